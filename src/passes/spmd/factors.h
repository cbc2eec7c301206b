/* passes/spmd/factors.h -- which dimensions of an operation's operands and results belong together.
 *
 * An operation is a loop nest over factors. Each dimension of each tensor is indexed by some of the factors, the
 * major factor first (a dot has batch, rows, columns, and the contracted one; a dimension of a reshape may have
 * several). A factor may be cut if all its tensors are cut alike. A factor that only operands have leaves partial
 * results, which a reducer combines. Dimensions that no factor indexes must be whole. Propagation and partitioning
 * work with factors alone; factors.c has one function for each kind of operation. */
#ifndef WEFT_PASSES_SPMD_FACTORS_H
#define WEFT_PASSES_SPMD_FACTORS_H

#include "passes/spmd/axes.h"

enum { SPMD_MAX_FACTORS = 3 * HLO_MAX_RANK };

typedef struct spmd_factor {
  int64_t size;
  bool is_reduced; /* indexes no result: partial results are combined */
  bool is_moved;   /* elements change places along it: tensors are cut alike but computed whole, unless is_fetched */
  bool is_fetched; /* a moved factor for which tiles get the rows that they need from other tiles (edges.h) */
  bool in_parts;   /* each partition handles its own rows (parts.h) */
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
  int counted_once;       /* an operand that only one of the partial results may include; -1: none */
  bool passes_through;    /* elements pass unchanged or one by one: propagated first */
  bool is_linear;         /* for sums: f(a + b) = f(a) + f(b) for all operands together, or for one operand at a time */
  bool is_additive;       /* for sums of operands: all of them are partial, or none is */
} spmd_factors;

/* The factors of an operation on arrays. An unknown operation has none, and is computed whole. Results are the
 * leaves of the shape. */
WEFT_NODISCARD weft_status *spmd_factors_of(const hlo_instr *instr, weft_arena *arena, spmd_factors *out);
/* `tensor_count` arrays of one shape that are cut alike: the values carried around a loop. */
WEFT_NODISCARD weft_status *spmd_factors_alike(const hlo_shape *shape, int tensor_count, weft_arena *arena,
                                               spmd_factors *out);

/* The axes by which each factor of tensor `t` is cut if `s` cuts the tensor: as much of the lists as divides the
 * sizes. */
void spmd_factor_axes(const spmd_grid *grid, const spmd_factors *f, int t, const spmd_sharding *s, spmd_axes *out_axes);
/* The sharding of tensor `t`, into out->dims, if `axes` cut its factors. False: a minor factor is cut although a
 * major one of the same dimension is not cut completely; *out_factor is the minor one. */
bool spmd_factor_sharding(const spmd_grid *grid, const spmd_factors *f, int t, const spmd_axes *axes,
                          spmd_sharding *out, int *out_factor);

#endif
