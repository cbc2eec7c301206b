/* lower/lower.h -- from a scheduled module to a program of thunks, the same for every platform.
 *
 * This module makes the memory plan, control flow, the order of tokens, groupings, collectives and transfers with the
 * host. The platform makes the thunks that compute: it passes a target, which is a table of functions. */
#ifndef WEFT_LOWER_LOWER_H
#define WEFT_LOWER_LOWER_H

#include "lower/step.h"
#include "runtime/runtime_internal.h"

/* What a platform provides for one compilation. All functions are given `ctx`; they are called on the compiling
 * thread. */
struct low_target {
  void *ctx;
  int threads; /* of the worker pool */

  /* Plans the step of `instr`, one that `make` will be asked for: fills scratch_bytes, data, destroy and make of
   * `plan`, which is zeroed. The memory that it allocates in `arena` lives as long as the executable. Called once for
   * each step; an error becomes plan->error, and `make` decides what follows from it. */
  weft_status *(*plan)(void *ctx, weft_arena *arena, const hlo_instr *instr, low_plan *plan);
  /* Estimated time of the step of `instr` on one thread, or, if the platform's devices do not consist of threads, on
   * the whole device. */
  double (*cost_ns)(void *ctx, const hlo_instr *instr);
  double long_ns; /* steps from this time on are worth spreading over threads: see low_step.passed_bytes. 0: none are */
  /* Makes the thunk of an instruction that computes: any instruction but control flow, collectives, send and recv,
   * infeed and outfeed. It may be called twice for an instruction, with the same plan: the first thunk is destroyed
   * then. Errors: UNIMPLEMENTED, naming the operation. */
  weft_status *(*make)(void *ctx, low_step *step, rt_thunk **out_thunk);
  /* Groups steps that the device takes as one. NULL: the platform does not group steps. */
  const rt_stretcher *stretcher;
  /* Temporaries of collectives whose data the platform's communicator moves lie in memory that it can register:
   * BUF_COLLECTIVE. */
  bool registers;
  /* Makes a reducer for a computation that is none of the usual operators; fills all members but `id`. Errors:
   * UNIMPLEMENTED. */
  weft_status *(*reducer)(void *ctx, const hlo_computation *computation, weft_reducer *out_reducer);
};

/* Plans the memory of compiled->module, which is scheduled, and makes its program: fills plan, program,
 * step plans and groupings. The caller frees what was filled, also after an error. */
WEFT_NODISCARD weft_status *low_lower(weft_platform *platform, const low_target *target,
                                      const weft_compile_options *options, rt_compiled *compiled);

/* ---- collectives in graphs (collective.c) ---- */

/* The number of operations of a collective's thunk whose kind of step is WEFT_GRAPH_COLLECTIVES. */
int low_collective_count(const rt_thunk *thunk);
/* Describes the operations as the thunk posts them, ops[low_collective_count(thunk)], and how. */
WEFT_NODISCARD weft_status *low_collective_describe(const rt_thunk *thunk, const rt_ctx *ctx, weft_coll_op *ops,
                                                    weft_coll_call *out_call, weft_comm **out_comm);

#endif
