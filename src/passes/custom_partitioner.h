/* passes/custom_partitioner.h -- functions that a client registers for custom-calls that the SPMD partitioner does
 * not know: one function computes a call on tiles, the other one is only shown a sharding. */
#ifndef WEFT_PASSES_CUSTOM_PARTITIONER_H
#define WEFT_PASSES_CUSTOM_PARTITIONER_H

#include "hlo/hlo.h"

/* How a call is computed on tiles. */
typedef struct pass_partitioned_call {
  /* its entry computation turns the operands' tiles into the results' tiles; the receiver frees it */
  hlo_module *module;
  /* one sharding for each operand; like `result` they are allocated in the arena that `partition` was given */
  const hlo_sharding *const *operands;
  const hlo_sharding *result;             /* for a tuple: a tuple of shardings */
} pass_partitioned_call;

/* Shardings are REPLICATED or TILED; for a tuple, a tuple of those. Either function may be absent. */
typedef struct pass_custom_partitioner {
  void *self;
  /* `operands` and `result` are the shardings that propagation has found. The answer may have other ones. */
  weft_status *(*partition)(void *self, const hlo_instr *call, const hlo_sharding *const *operands, const hlo_sharding *result,
                            weft_arena *arena, pass_partitioned_call *out);
  /* Is called with the sharding of a call with one operand, whose value is that operand. */
  weft_status *(*inspect)(void *self, const hlo_instr *call, const hlo_sharding *operand);
} pass_custom_partitioner;

/* Registers functions for calls of `target`. `partitioner` is copied. The latest registration counts, and
 * registrations are never removed. Thread-safe. */
WEFT_NODISCARD weft_status *pass_register_custom_partitioner(const char *target, size_t target_size,
                                                             const pass_custom_partitioner *partitioner);
/* NULL: no functions are registered for calls of that target. */
const pass_custom_partitioner *pass_custom_partitioner_of(const char *target);

#endif
