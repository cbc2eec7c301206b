/* cpu/makers.h -- from an instruction that no kernel was compiled for to a thunk: library kernels and custom calls. */
#ifndef WEFT_CPU_MAKERS_H
#define WEFT_CPU_MAKERS_H

#include "codegen/codegen.h"
#include "codegen/model/target.h"
#include "lower/lower.h"

/* What the CPU's target (lower/lower.h) is given as its context. */
typedef struct cpu_target {
  const gen_target *machine; /* its numbers */
  gen_code *code;            /* what is compiled: kernels, comparators, reducers */
} cpu_target;

static inline const cpu_target *cpu_target_of(const low_step *step) { return step->target->ctx; }
static inline const gen_code *cpu_code_of(const low_step *step) { return cpu_target_of(step)->code; }

/* The threads that a thunk's run may use besides its own: NULL, if its work is not worth splitting. */
static inline rt_pool *cpu_pool_of(const rt_thunk *thunk, const rt_ctx *ctx) { return thunk->splits ? ctx->pool : NULL; }

/* Whether a step of the library of `ns` on one thread is done sooner by all of the pool's. */
bool cpu_pays_to_share(const low_step *step, double ns);

/* How one opcode becomes a thunk (table in cpu/library.c).  A maker returns UNIMPLEMENTED, naming what it lacks, to hand
 * the instruction to the reference evaluator. */
typedef struct cpu_maker {
  hlo_opcode op;
  weft_status *(*make)(low_step *step, rt_thunk **out_thunk);
  int64_t (*scratch_bytes)(const hlo_instr *instr); /* optional */
} cpu_maker;

WEFT_NODISCARD weft_status *cpu_custom_call_make(low_step *step, rt_thunk **out_thunk);  /* cpu/custom_call.c: by their target */
WEFT_NODISCARD weft_status *cpu_rng_state_make(low_step *step, rt_thunk **out_thunk);    /* cpu/rng_state.c */
WEFT_NODISCARD weft_status *cpu_concatenate_make(low_step *step, rt_thunk **out_thunk);  /* cpu/concatenate.c */
WEFT_NODISCARD weft_status *cpu_print_make(low_step *step, rt_thunk **out_thunk);        /* cpu/print.c: interpreter.print */

/* The library kernels, ended by an entry with make NULL. */
extern const cpu_maker cpu_makers[];

#endif
