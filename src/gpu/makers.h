/* gpu/makers.h -- from an instruction to the thunk that queues its work on the device: the one place where a library's
 * step or a new kind of step is added.
 *
 * To add one: write a maker in a file of its own (a thunk with `enqueue`, see gpu/thunks.c), declare it here, and give
 * it a row in gpu_makers (makers.c).  The maker returns UNIMPLEMENTED, naming what it lacks, for the forms that it
 * does not do; the evaluator then does the step on the host.  A library plans the step once, in the row's `plan`, which
 * also asks for scratch; the thunk finds the scratch behind its results. */
#ifndef WEFT_GPU_MAKERS_H
#define WEFT_GPU_MAKERS_H

#include "gpu/kernel.h"
#include "lower/lower.h"

/* The context that this platform's target (lower/lower.h) gets. */
typedef struct gpu_target {
  gpu_platform *platform;
  const gpu_code *code;
  const gen_target *machine; /* numbers of the machine, for code generation */
} gpu_target;

static inline const gpu_target *gpu_target_of(const low_step *step) { return step->target->ctx; }

typedef struct gpu_maker {
  hlo_opcode op;
  weft_status *(*make)(low_step *step, rt_thunk **out_thunk); /* called if planning has not failed */
  /* As low_target.plan; NULL: there is nothing to plan, and no scratch. */
  weft_status *(*plan)(const gpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *plan);
} gpu_maker;

/* The makers by opcode, ended by a row with make NULL. */
extern const gpu_maker gpu_makers[];
const gpu_maker *gpu_find_maker(hlo_opcode op); /* NULL: no maker has a row for it */

/* ---- thunks.c: what every program may have ---- */

WEFT_NODISCARD weft_status *gpu_kernel_make(low_step *step, rt_thunk **out_thunk); /* fusions */
WEFT_NODISCARD weft_status *gpu_plan_kernel(const gpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                            low_plan *plan);
WEFT_NODISCARD weft_status *gpu_copy_make(low_step *step, rt_thunk **out_thunk);
WEFT_NODISCARD weft_status *gpu_id_make(low_step *step, rt_thunk **out_thunk); /* replica-id, partition-id */

WEFT_NODISCARD weft_status *gpu_fusion_make(low_step *step, rt_thunk **out_thunk); /* a kernel, or a library's step */
WEFT_NODISCARD weft_status *gpu_plan_fusion(const gpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                            low_plan *plan);

/* ---- steps.c, linalg_steps.c: NVIDIA's libraries ---- */

WEFT_NODISCARD weft_status *gpu_dot_make(low_step *step, rt_thunk **out_thunk);
WEFT_NODISCARD weft_status *gpu_plan_dot(const gpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                         low_plan *plan);
WEFT_NODISCARD weft_status *gpu_conv_make(low_step *step, rt_thunk **out_thunk);
WEFT_NODISCARD weft_status *gpu_plan_conv(const gpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                          low_plan *plan);
WEFT_NODISCARD weft_status *gpu_fft_make(low_step *step, rt_thunk **out_thunk);
WEFT_NODISCARD weft_status *gpu_plan_fft(const gpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                         low_plan *plan);
WEFT_NODISCARD weft_status *gpu_triangular_make(low_step *step, rt_thunk **out_thunk);
WEFT_NODISCARD weft_status *gpu_plan_triangular(const gpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                                low_plan *plan);
WEFT_NODISCARD weft_status *gpu_custom_call_make(low_step *step, rt_thunk **out_thunk); /* all others run on the host */
WEFT_NODISCARD weft_status *gpu_plan_custom_call(const gpu_target *target, weft_arena *arena, const hlo_instr *instr,
                                                 low_plan *plan);

/* ---- graph.c: several steps at once ---- */

/* Fills the stretcher for `platform`, by the compile options and the settings. If the module has loops or branches, it
 * is found out whether they may be part of graphs. False: no step becomes part of a graph. */
bool gpu_stretcher_init(rt_stretcher *stretcher, gpu_platform *platform, const weft_compile_options *options,
                        const hlo_module *module);
/* What the calling thread's steps queue from now on goes to `stream`, where it is recorded; NULL: to the compute
 * stream again. */
void gpu_record_on(wcu_stream stream);
bool gpu_is_recording(void); /* whether the calling thread's steps are recorded */

/* gpu_begin_work for a thunk, by whose name a message knows its work. */
WEFT_NODISCARD weft_status *gpu_begin_step(const rt_thunk *thunk, const rt_ctx *ctx, wcu_stream *out_stream);
/* ---- host_linalg.c: custom calls of JAX that the host does ---- */

typedef weft_status *gpu_make_fn(low_step *step, rt_thunk **out_thunk);
gpu_make_fn *gpu_find_host_routine(const char *target); /* NULL: there is none */
gpu_make_fn gpu_sparse_make;                            /* host_sparse.c: cusolver_csrlsvqr_ffi */

/* For the `enqueue` of a thunk: makes the context of the run's device current and gives the driver's handle of its
 * compute stream. gpu_end_work has to follow, also after an error of the work: it takes the error and adds the thunk's
 * program. */
WEFT_NODISCARD weft_status *gpu_begin_work(const rt_ctx *ctx, wcu_stream *out_stream);
WEFT_NODISCARD weft_status *gpu_end_work(const rt_ctx *ctx, weft_status *st);

#endif
