/* passes/custom_partitioner.h -- what somebody outside knows of custom-calls that the SPMD partitioner does not: how to compute
 * one on tiles, or that it only wants to see a sharding. */
#ifndef WEFT_PASSES_CUSTOM_PARTITIONER_H
#define WEFT_PASSES_CUSTOM_PARTITIONER_H

#include "hlo/hlo.h"

/* How a call is computed on tiles. */
typedef struct pass_partitioned_call {
  hlo_module *module;                     /* its entry: the operands' tiles to the results' tiles; the receiver frees it */
  const hlo_sharding *const *operands;    /* one for each; in the arena that was given, as the next */
  const hlo_sharding *result;             /* of a tuple: a tuple */
} pass_partitioned_call;

/* Shardings are REPLICATED or TILED; of a tuple, a tuple of those.  Either function may be absent. */
typedef struct pass_custom_partitioner {
  void *self;
  /* `operands` and `result` are what propagation has found; the answer may have others. */
  weft_status *(*partition)(void *self, const hlo_instr *call, const hlo_sharding *const *operands, const hlo_sharding *result,
                            weft_arena *arena, pass_partitioned_call *out);
  /* A call of one operand, whose value is that operand's: told its sharding. */
  weft_status *(*inspect)(void *self, const hlo_instr *call, const hlo_sharding *operand);
} pass_custom_partitioner;

/* For calls of `target`; `partitioner` is copied, the latest one counts, and none is ever forgotten.  Thread-safe. */
WEFT_NODISCARD weft_status *pass_register_custom_partitioner(const char *target, size_t target_size,
                                                             const pass_custom_partitioner *partitioner);
/* NULL: nobody knows calls of that target. */
const pass_custom_partitioner *pass_custom_partitioner_of(const char *target);

#endif
