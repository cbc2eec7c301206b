/* passes/pass.h -- HLO to HLO. Each pass has a file; a pipeline is a table of passes. */
#ifndef WEFT_PASSES_PASS_H
#define WEFT_PASSES_PASS_H

#include "codegen/model/target.h"
#include "hlo/hlo.h"

/* The memory and the options that a pass gets. */
typedef struct pass_options {
  int64_t fold_limit_bytes;      /* the largest constant that folding may make */
  bool fast_math;
  bool has_solver;               /* the platform does the custom calls cusolver_*_ffi */
  bool has_dnn;                  /* the platform's library has convolutions */
  bool has_blas;                 /* the platform's library of products adds a bias and applies an activation */
  /* the platform's convolutions of these types are faster where features come last */
  bool bf16_features_last, f32_features_last;
  bool rounds_narrow;            /* no excess precision: each value of a narrow float is rounded to its type */
  int64_t num_threads;           /* number of workers of the pool, as far as the compiler knows; for heuristics only */
  const gen_target *target;      /* the machine that the program is for; NULL: any CPU */
  const char *dump_dir;          /* WEFT_DUMP_HLO: the folder for a numbered file after each pass; or NULL */
  const char *disabled;          /* names of passes, separated by commas (xla_disable_hlo_passes); or NULL */
} pass_options;

typedef struct pass_ctx {
  const pass_options *options;
  weft_arena *scratch;           /* is reset when the pass returns */
} pass_ctx;

static inline const gen_target *pass_target(const pass_ctx *ctx)
{
  return ctx->options->target ? ctx->options->target : &gen_cpu_target;
}

typedef struct hlo_pass {
  const char *name;
  weft_status *(*run)(hlo_module *module, pass_ctx *ctx, bool *changed);
} hlo_pass;

/* Entries run in order. A group of `fixpoint` entries repeats until none of them changes the module, at most
 * `rounds` times. */
typedef struct pass_pipeline {
  const char *name;
  const struct pass_entry { const hlo_pass *pass; const struct pass_pipeline *group; } *entries;
  int count;
  int rounds; /* 1: once */
} pass_pipeline;

/* Is called after each pass, for `weft inspect --passes`; or NULL. */
typedef void pass_observer(void *ctx, const char *pass, bool changed, int64_t ns, const hlo_module *module);

/* Runs the pipeline on `module`, which is borrowed and changed. After an error the module may be half rewritten: free
 * it. Errors: those of the passes; in debug builds INTERNAL, if a pass leaves a module that does not verify.
 * Thread-safe for different modules. */
WEFT_NODISCARD weft_status *pass_run(const pass_pipeline *pipeline, hlo_module *module, const pass_options *options,
                                     pass_observer *observer, void *observer_ctx);

/* Takes a verified module and leaves a scheduled module of fusions, library calls, control flow, collectives and
 * tuples, with every copy that mandatory aliases need. */
extern const pass_pipeline pass_cpu_pipeline;
/* The same for a GPU: its fusions are such as one launch over a grid computes. */
extern const pass_pipeline pass_gpu_pipeline;

#endif
