/* hlo/eval.h -- the reference evaluator: every operation as plain scalar loops, written to be obviously right.
 * Used for constant folding, by `weft run --compare=reference`, and as the reference of tests. */
#ifndef WEFT_HLO_EVAL_H
#define WEFT_HLO_EVAL_H

#include "base/deadline.h"
#include "hlo/hlo.h"

typedef struct hlo_eval_options {
  int64_t max_loop_iterations; /* of each while; 0: no limit */
  weft_deadline deadline;      /* checked between instructions and iterations */
  /* that an evaluation adds to the arena, unless the arena has a limit already; 0: no limit.  Loops and called
   * computations may hold as many bytes again while they run. */
  int64_t max_bytes;
  uint64_t seed;               /* for rng, on each device */
  /* the devices, which run in lockstep; both 0: one device, on which operations that ask for devices (collectives,
   * replica-id, partition-id) are UNIMPLEMENTED */
  int replicas, partitions;
  /* true: as in kernels, the sums of a reduction, and sums of products in f32 and c64, are rounded at every step, in
   * the order of the indices; sums of floats narrower than f32 are rounded to f32 at every step and to their type at
   * their end, those of windows to their type at every step.  false: sums are rounded once, at their end. */
  bool stepwise_sums;
  /* Evaluates a custom-call: *out is made in `arena`.  NULL: custom-calls are UNIMPLEMENTED, and the error names the
   * target. */
  weft_status *(*custom_call)(void *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                              weft_arena *arena, const hlo_literal **out);
  void *ctx;
} hlo_eval_options;
#define HLO_EVAL_DEFAULT ((hlo_eval_options){.deadline = WEFT_NO_DEADLINE})

/* Runs the entry computation.  `arguments` has one value per parameter; with several devices, first the values of
 * device 0, then those of device 1, and so on.  Device replica * partitions + partition runs that partition of that
 * replica.  out_result gets one value for each device, in `arena`.
 *
 * A collective reduces in the order of the ranks in its group and rounds to the type of its operand at every step;
 * sums, products, minima and maxima of floats narrower than f32 are rounded to f32 at every step and to their type
 * at the end.
 * Devices may take different branches, or leave a loop at different times.  Errors: FAILED_PRECONDITION if a device
 * would then wait in a collective for a device that is not there; the message names the collective, both devices and
 * the instruction at which they parted. */
WEFT_NODISCARD weft_status *hlo_eval_module(const hlo_module *module, const hlo_literal *const *arguments,
                                            const hlo_eval_options *options, weft_arena *arena,
                                            const hlo_literal **out_result);
WEFT_NODISCARD weft_status *hlo_eval_computation(const hlo_computation *comp, const hlo_literal *const *arguments,
                                                 const hlo_eval_options *options, weft_arena *arena,
                                                 const hlo_literal **out_result);
/* Evaluates one instruction on literal operands (constant folding).  Collectives, ids of devices, infeed and
 * parameters are UNIMPLEMENTED. */
WEFT_NODISCARD weft_status *hlo_eval_instr(const hlo_instr *instr, const hlo_literal *const *operands,
                                           const hlo_eval_options *options, weft_arena *arena,
                                           const hlo_literal **out_result);

#endif
