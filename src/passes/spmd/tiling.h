/* passes/spmd/tiling.h -- how an array is cut over the partitions: a grid of
 * tiles, each held by one or more of them. */
#ifndef WEFT_PASSES_SPMD_TILING_H
#define WEFT_PASSES_SPMD_TILING_H

#include "hlo/hlo.h"

/* Tile (t0, t1, ...) is held by partitions devices[((t0 * tiles[1] + t1) * ...) * copies + c], c in [0, copies). */
typedef struct spmd_tiling {
  int rank;
  int64_t tiles[HLO_MAX_RANK]; /* along each dimension of the array */
  int64_t copies;              /* partitions that hold the same tile */
  int64_t device_count;        /* of the module: the product of tiles, times copies */
  const int64_t *devices;      /* partition numbers; each occurs once */
} spmd_tiling;

/* The tiling that `sharding` (NULL: replicated) means for an array of that rank over `device_count` partitions.
 * Replicated, unknown, manual and one-device shardings cut nothing; subgroups of any kind are copies. Errors:
 * INVALID_ARGUMENT if the sharding does not fit. */
WEFT_NODISCARD weft_status *spmd_tiling_of(const hlo_sharding *sharding, int rank, int64_t device_count,
                                           weft_arena *arena, spmd_tiling *out_tiling);

bool spmd_tiling_is_whole(const spmd_tiling *tiling); /* nothing is cut */

/* The shape of one tile.  Errors: UNIMPLEMENTED for a dimension that the tiles do not divide. */
WEFT_NODISCARD weft_status *spmd_tile_shape(const spmd_tiling *tiling, const hlo_shape *full, weft_arena *arena,
                                            const hlo_shape **out_shape);

#endif
