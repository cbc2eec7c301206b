/* hlo/eval.h -- the reference evaluator: every operation as plain scalar loops, written for obviousness.
 * Used for constant folding, by `weft run --compare=reference`, and as the yardstick of tests. */
#ifndef WEFT_HLO_EVAL_H
#define WEFT_HLO_EVAL_H

#include "base/deadline.h"
#include "hlo/hlo.h"

typedef struct hlo_eval_options {
  int64_t max_loop_iterations; /* of one while; 0: no limit */
  weft_deadline deadline;      /* checked between instructions and iterations */
  int64_t max_bytes;           /* of live literals; 0: no limit */
  uint64_t seed;               /* of rng, on each device */
  int replicas, partitions;    /* the devices, which run in lockstep; 0: one device, and what asks for devices
                                * (collectives, replica-id, partition-id) is UNIMPLEMENTED */
  bool stepwise_sums;          /* sums of a reduction, and of products in f32 and c64, are rounded at every step, in the
                                * order of the indices, as kernels do; else once, at their end.  Sums of floats narrower
                                * than f32 are rounded to f32 at every step, and to their type at their end; sums of
                                * windows are rounded to their type at every step */
  /* What a custom-call does; NULL: UNIMPLEMENTED naming the target.  Results go into *out (in arena). */
  weft_status *(*custom_call)(void *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                              weft_arena *arena, const hlo_literal **out);
  void *ctx;
} hlo_eval_options;
#define HLO_EVAL_DEFAULT ((hlo_eval_options){.deadline = WEFT_NO_DEADLINE})

/* Runs the entry computation on `arguments`, one per parameter, for several devices those of the first, then those of
 * the second, and so on; device replica * partitions + partition is that replica's partition.  out_result: one for each
 * device, in `arena`.
 *
 * A collective reduces in the order of the ranks in its group, rounding to the type of its operand at every step; sums,
 * products, minima and maxima of floats narrower than f32 are rounded to f32 at every step and to their type at the end.
 * Devices may disagree about a condition as long as none of them waits in a collective for one that went another way:
 * that is FAILED_PRECONDITION, naming the collective, both devices and where they parted. */
WEFT_NODISCARD weft_status *hlo_eval_module(const hlo_module *module, const hlo_literal *const *arguments,
                                            const hlo_eval_options *options, weft_arena *arena,
                                            const hlo_literal **out_result);
WEFT_NODISCARD weft_status *hlo_eval_computation(const hlo_computation *comp, const hlo_literal *const *arguments,
                                                 const hlo_eval_options *options, weft_arena *arena,
                                                 const hlo_literal **out_result);
/* One instruction on literal operands (constant folding).  Collectives, ids of devices, infeed, parameters: UNIMPLEMENTED. */
WEFT_NODISCARD weft_status *hlo_eval_instr(const hlo_instr *instr, const hlo_literal *const *operands,
                                           const hlo_eval_options *options, weft_arena *arena,
                                           const hlo_literal **out_result);

#endif
