/* passes/spmd/reshard.h -- from one sharding to another: the steps, the bytes that they move, and their
 * instructions. */
#ifndef WEFT_PASSES_SPMD_RESHARD_H
#define WEFT_PASSES_SPMD_RESHARD_H

#include "passes/build.h"
#include "passes/spmd/axes.h"

typedef struct spmd_mover {
  hlo_module *module;
  weft_arena *arena;     /* of the module */
  const spmd_grid *grid;
  /* every collective of the partitioner has its own channel: all partitions reach them in one order */
  int64_t next_channel;
} spmd_mover;

/* `tile`, cut by `from`, as a tile of `to`: all-to-alls for axes that move to another dimension, a permute if only
 * the owners change, all-gathers for axes that end, slices for axes that begin. Sums of unreduced axes that end are
 * reduce-scattered or all-reduced. */
WEFT_NODISCARD weft_status *spmd_reshard(spmd_mover *m, pass_build *b, hlo_instr *tile, const spmd_sharding *from,
                                         const spmd_sharding *to, hlo_instr **out);
/* spmd_reshard for tiles that hold partial results along the axes `partial`, which `reducer` combines (NULL: a sum). */
WEFT_NODISCARD weft_status *spmd_combine(spmd_mover *m, pass_build *b, hlo_instr *tile, const spmd_sharding *from,
                                         spmd_mask partial, hlo_computation *reducer, const spmd_sharding *to,
                                         hlo_instr **out);
/* The bytes that each partition receives for spmd_combine. */
WEFT_NODISCARD weft_status *spmd_combine_cost(const spmd_mover *m, const hlo_shape *whole, const spmd_sharding *from,
                                              spmd_mask partial, const spmd_sharding *to, weft_arena *scratch,
                                              double *out_bytes);

/* s32[]: this partition's number along `axes`, times `scale`. */
WEFT_NODISCARD weft_status *spmd_number_along(spmd_mover *m, pass_build *b, const spmd_axes *axes, int64_t scale,
                                              hlo_instr **out);

/* s32[]: values[this partition's number along `axes`]. */
WEFT_NODISCARD weft_status *spmd_value_along(spmd_mover *m, pass_build *b, const spmd_axes *axes, const int64_t *values,
                                             hlo_instr **out);
/* On the partition with number i along `axes`: x of the partition with number sources[i]; zeros if that is not a
 * number of a partition. */
WEFT_NODISCARD weft_status *spmd_permute_along(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_axes *axes,
                                               const int64_t *sources, hlo_instr **out);
/* x of all partitions along `axes`, one behind the other in dimension `dim`. */
WEFT_NODISCARD weft_status *spmd_gather_along(spmd_mover *m, pass_build *b, hlo_instr *x, int64_t dim,
                                              const spmd_axes *axes, hlo_instr **out);

/* The tile on the first partition along `axes`, zeros on the others. */
WEFT_NODISCARD weft_status *spmd_keep_first(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_axes *axes,
                                            hlo_instr **out);

/* For shardings that no axes express: this partition's tile of `whole`, and the whole array from all tiles. */
WEFT_NODISCARD weft_status *spmd_slice(spmd_mover *m, pass_build *b, hlo_instr *whole, const spmd_tiling *tiling,
                                       hlo_instr **out);
WEFT_NODISCARD weft_status *spmd_gather(spmd_mover *m, pass_build *b, hlo_instr *tile, const spmd_tiling *tiling,
                                        hlo_instr **out);

#endif
