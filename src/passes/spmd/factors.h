/* passes/spmd/factors.h -- what a partitioner must know of an operation: which dimensions of its operands and results go
 * together.
 *
 * An operation is a loop nest over factors; each dimension of each tensor is indexed by some of them, the major one first
 * (a dot: batch, rows, columns, and the contracted one; a reshape's dimensions have several).  A factor may be cut if all
 * its tensors are cut alike; one that only operands have leaves partial results, which a reducer combines.  Dimensions
 * that no factor indexes must be whole.  Propagation and partitioning work on factors alone; factors.c has one function for
 * each kind of operation. */
#ifndef WEFT_PASSES_SPMD_FACTORS_H
#define WEFT_PASSES_SPMD_FACTORS_H

#include "passes/spmd/axes.h"

enum { SPMD_MAX_FACTORS = 3 * HLO_MAX_RANK };

typedef struct spmd_factor {
  int64_t size;
  bool is_reduced; /* indexes no result: partial results are combined */
  bool is_moved;   /* elements change places along it: cut alike on all sides, but computed whole; unless */
  bool is_fetched; /* ... tiles get what they need of other tiles (edges.h) */
  bool in_parts;   /* each partition does what concerns its own rows (parts.h) */
} spmd_factor;

typedef struct spmd_use { uint8_t dim, factor; } spmd_use;

typedef struct spmd_tensor {
  const hlo_shape *shape; /* whole */
  int use_count;
  spmd_use *uses;         /* by dimension, major to minor within one; at most HLO_MAX_RANK + 8 */
} spmd_tensor;

typedef struct spmd_factors {
  int count;
  spmd_factor factor[SPMD_MAX_FACTORS];
  int operand_count, tensor_count; /* operands, then results */
  spmd_tensor *tensors;
  hlo_opcode reducer;     /* how partial results combine: ADD, MAXIMUM, ...; COUNT: they do not */
  int counted_once;       /* an operand that only one of the partial results may have in it; -1: none */
  bool passes_through;    /* elements go by unchanged or one by one: propagated first */
  bool is_linear;         /* of sums: f(a + b) = f(a) + f(b) for all operands together, or one operand at a time */
  bool is_additive;       /* sums of operands: all of them are partial, or none */
} spmd_factors;

/* The factors of an operation on arrays.  Everything it does not know has none, and is computed whole.
 * Results are the leaves of the shape. */
WEFT_NODISCARD weft_status *spmd_factors_of(const hlo_instr *instr, weft_arena *arena, spmd_factors *out);
/* `tensor_count` arrays of one shape that are cut alike: what flows around a loop. */
WEFT_NODISCARD weft_status *spmd_factors_alike(const hlo_shape *shape, int tensor_count, weft_arena *arena, spmd_factors *out);

/* The axes that cut each factor of tensor `t` where it is cut by `s`: as much of the lists as divides. */
void spmd_factor_axes(const spmd_grid *grid, const spmd_factors *f, int t, const spmd_sharding *s, spmd_axes *out_axes);
/* The sharding of tensor `t` when its factors are cut by `axes`, into out->dims.  False: a minor factor is cut though a
 * major one of the same dimension is not cut to the end; *out_factor is the minor one. */
bool spmd_factor_sharding(const spmd_grid *grid, const spmd_factors *f, int t, const spmd_axes *axes, spmd_sharding *out,
                          int *out_factor);

#endif
