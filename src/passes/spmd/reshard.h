/* passes/spmd/reshard.h -- from one sharding to another: which steps it takes, what they move, and their instructions. */
#ifndef WEFT_PASSES_SPMD_RESHARD_H
#define WEFT_PASSES_SPMD_RESHARD_H

#include "passes/build.h"
#include "passes/spmd/axes.h"

typedef struct spmd_mover {
  hlo_module *module;
  weft_arena *arena;     /* of the module */
  const spmd_grid *grid;
  int64_t next_channel;  /* every collective of the partitioner has its own: partitions reach them in one order */
} spmd_mover;

/* `tile`, cut by `from`, as a tile of `to`: all-to-alls for axes that change their dimension, a permute where only the
 * owners change, all-gathers for axes that go, slices for axes that come; sums of unreduced axes that go are
 * reduce-scattered or all-reduced. */
WEFT_NODISCARD weft_status *spmd_reshard(spmd_mover *m, pass_build *b, hlo_instr *tile,
                                         const spmd_sharding *from, const spmd_sharding *to, hlo_instr **out);
/* spmd_reshard where the axes `partial` of `from` hold partial results, which `reducer` combines. */
WEFT_NODISCARD weft_status *spmd_combine(spmd_mover *m, pass_build *b, hlo_instr *tile,
                                         const spmd_sharding *from, spmd_mask partial, hlo_computation *reducer,
                                         const spmd_sharding *to, hlo_instr **out);
/* Bytes that each partition receives for it. */
WEFT_NODISCARD weft_status *spmd_combine_cost(const spmd_mover *m, const hlo_shape *whole, const spmd_sharding *from,
                                              spmd_mask partial, const spmd_sharding *to, weft_arena *scratch,
                                              double *out_bytes);

/* s32[]: this partition's number along `axes`, times `scale`. */
WEFT_NODISCARD weft_status *spmd_number_along(spmd_mover *m, pass_build *b, const spmd_axes *axes, int64_t scale, hlo_instr **out);

/* s32[]: values[this partition's number along `axes`]. */
WEFT_NODISCARD weft_status *spmd_value_along(spmd_mover *m, pass_build *b, const spmd_axes *axes, const int64_t *values, hlo_instr **out);
/* The x of number sources[i] along `axes`, on number i; zeros where that is no number. */
WEFT_NODISCARD weft_status *spmd_permute_along(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_axes *axes, const int64_t *sources,
                                               hlo_instr **out);
/* All x along `axes`, one behind the other in dimension `dim`. */
WEFT_NODISCARD weft_status *spmd_gather_along(spmd_mover *m, pass_build *b, hlo_instr *x, int64_t dim, const spmd_axes *axes, hlo_instr **out);

/* The tile on the first partition along `axes`, zeros on the others. */
WEFT_NODISCARD weft_status *spmd_keep_first(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_axes *axes, hlo_instr **out);

/* For shardings that no axes express: this partition's tile of `whole`, and the whole array from all tiles. */
WEFT_NODISCARD weft_status *spmd_slice(spmd_mover *m, pass_build *b, hlo_instr *whole, const spmd_tiling *tiling, hlo_instr **out);
WEFT_NODISCARD weft_status *spmd_gather(spmd_mover *m, pass_build *b, hlo_instr *tile, const spmd_tiling *tiling, hlo_instr **out);

#endif
