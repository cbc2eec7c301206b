/* passes/spmd/axes.h -- the partitions as a grid of small axes, and shardings that name the axes which cut a dimension.
 *
 * Whatever form a sharding was written in (a mesh with names, a list of devices, an iota), here it is a list of axes for
 * each dimension, the major one first; axes are the common refinement of all that the module mentions, split into prime
 * factors.  What moves between partitions when a sharding changes can then be read off the lists. */
#ifndef WEFT_PASSES_SPMD_AXES_H
#define WEFT_PASSES_SPMD_AXES_H

#include "passes/spmd/tiling.h"

enum { SPMD_MAX_AXES = 20 };

typedef uint32_t spmd_mask; /* of axes, or of dimensions */

typedef struct spmd_grid {
  int count;
  int64_t sizes[SPMD_MAX_AXES], strides[SPMD_MAX_AXES]; /* of places, row-major: the first axis is the major one */
  int64_t device_count;
  const int64_t *devices; /* the partition at each place */
  int mesh_axis[SPMD_MAX_AXES]; /* axes of the same number make up one axis of the module's (first) mesh */
} spmd_grid;

typedef struct spmd_axes {
  uint8_t count;
  uint8_t v[SPMD_MAX_AXES]; /* major to minor */
} spmd_axes;

/* How one array is cut.  An axis occurs once: in one dimension, or in `unreduced`. */
typedef struct spmd_sharding {
  int rank;
  spmd_mask closed;    /* dimensions that propagation leaves alone */
  spmd_mask unreduced; /* axes along which the array is the sum of what the partitions hold */
  bool fixed;          /* somebody asked for it: nobody may take it over for another array */
  spmd_axes *dims;
} spmd_sharding;

/* The grid that fits most of the module's shardings.  Errors: INVALID_ARGUMENT for shardings that are none. */
WEFT_NODISCARD weft_status *spmd_grid_of(const hlo_module *module, weft_arena *arena, spmd_grid *out_grid);

/* `sharding` (NULL: replicated) in axes.  *out_fits is false, and the result replicated, if no axes of the grid express
 * it.  Dimensions that it leaves open are open; UNKNOWN leaves all open.  Tiles that do not divide a dimension of `shape`
 * evenly are dropped from the minor end. */
WEFT_NODISCARD weft_status *spmd_sharding_of(const spmd_grid *grid, const hlo_sharding *sharding, const hlo_shape *shape,
                                             weft_arena *arena, spmd_sharding *out, bool *out_fits);
/* The axes of `sharding`'s manual axes: all of them where it does not say. */
WEFT_NODISCARD weft_status *spmd_manual_axes(const spmd_grid *grid, const hlo_sharding *sharding, weft_arena *arena,
                                             spmd_mask *out);
/* Back to a device list, or REPLICATED. */
WEFT_NODISCARD weft_status *spmd_sharding_to_hlo(const spmd_grid *grid, const spmd_sharding *s, weft_arena *arena,
                                                 const hlo_sharding **out);

WEFT_NODISCARD weft_status *spmd_sharding_new(weft_arena *arena, int rank, spmd_sharding **out); /* whole and open */
WEFT_NODISCARD weft_status *spmd_sharding_copy(weft_arena *arena, const spmd_sharding *s, spmd_sharding *out);
bool spmd_sharding_equal(const spmd_sharding *a, const spmd_sharding *b);
/* Takes away what cuts a dimension by a part of a mesh axis: clients name shardings by whole ones. */
void spmd_sharding_drop_parts(const spmd_grid *grid, spmd_sharding *s);
spmd_mask spmd_sharding_axes(const spmd_sharding *s); /* that it uses, unreduced ones included */

bool spmd_axes_equal(const spmd_axes *a, const spmd_axes *b);
int spmd_axes_common(const spmd_axes *a, const spmd_axes *b); /* length of the common prefix */
int64_t spmd_axes_size(const spmd_grid *grid, const spmd_axes *axes, int from); /* product of sizes from there on */
static inline bool spmd_axes_has(const spmd_axes *axes, int axis)
{
  for (int i = 0; i < axes->count; i++)
    if (axes->v[i] == axis) return true;
  return false;
}
static inline void spmd_axes_push(spmd_axes *axes, int axis) { axes->v[axes->count++] = (uint8_t)axis; }
spmd_mask spmd_axes_mask(const spmd_axes *axes);

/* The number of a place along `axes`: 0 .. size-1. */
int64_t spmd_place_along(const spmd_grid *grid, const spmd_axes *axes, int64_t place);
/* The shape of one tile. */
WEFT_NODISCARD weft_status *spmd_local_shape(const spmd_grid *grid, const spmd_sharding *s, const hlo_shape *full,
                                             weft_arena *arena, const hlo_shape **out);

#endif
