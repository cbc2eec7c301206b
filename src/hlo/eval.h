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
  uint64_t seed;               /* of rng */
  bool stepwise_sums;          /* sums of a reduction, and of products in f32 and c64, are rounded at every step, in the
                                * order of the indices, as StableHLO's interpreter does; else once, at their end */
  /* What a custom-call does; NULL: UNIMPLEMENTED naming the target.  Results go into *out (in arena). */
  weft_status *(*custom_call)(void *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                              weft_arena *arena, const hlo_literal **out);
  void *ctx;
} hlo_eval_options;
#define HLO_EVAL_DEFAULT ((hlo_eval_options){.deadline = WEFT_NO_DEADLINE})

/* Runs the entry computation on `arguments` (one per parameter).  The result is in `arena`. */
WEFT_NODISCARD weft_status *hlo_eval_module(const hlo_module *module, const hlo_literal *const *arguments,
                                            const hlo_eval_options *options, weft_arena *arena,
                                            const hlo_literal **out_result);
WEFT_NODISCARD weft_status *hlo_eval_computation(const hlo_computation *comp, const hlo_literal *const *arguments,
                                                 const hlo_eval_options *options, weft_arena *arena,
                                                 const hlo_literal **out_result);
/* One instruction on literal operands (constant folding).  Collectives, infeed, parameters: UNIMPLEMENTED. */
WEFT_NODISCARD weft_status *hlo_eval_instr(const hlo_instr *instr, const hlo_literal *const *operands,
                                           const hlo_eval_options *options, weft_arena *arena,
                                           const hlo_literal **out_result);

#endif
