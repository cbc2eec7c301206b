/* passes/spmd/axes.h -- the partitions as a grid of small axes, and shardings that name the axes by which a
 * dimension is cut.
 *
 * Whatever form a sharding was written in (a mesh with names, a list of devices, an iota), here it is a list of axes
 * for each dimension, the major axis first. The axes are the common refinement of all meshes and tilings that the
 * module mentions, split into prime factors. The lists show which data must move between partitions when a sharding
 * changes. */
#ifndef WEFT_PASSES_SPMD_AXES_H
#define WEFT_PASSES_SPMD_AXES_H

#include "passes/spmd/tiling.h"

enum { SPMD_MAX_AXES = 20 };

typedef uint32_t spmd_mask; /* a set of bits, one for each axis or for each dimension */

typedef struct spmd_grid {
  int count;
  /* strides are counted in places, which are row-major: the first axis is the major one */
  int64_t sizes[SPMD_MAX_AXES], strides[SPMD_MAX_AXES];
  int64_t device_count;
  const int64_t *devices; /* the partition at each place */
  int mesh_axis[SPMD_MAX_AXES]; /* axes with the same number make up one axis of the module's (first) mesh */
} spmd_grid;

typedef struct spmd_axes {
  uint8_t count;
  uint8_t v[SPMD_MAX_AXES]; /* major to minor */
} spmd_axes;

/* How one array is cut. An axis occurs at most once: in one dimension, or in `unreduced`. */
typedef struct spmd_sharding {
  int rank;
  spmd_mask closed;    /* dimensions that propagation leaves alone */
  spmd_mask unreduced; /* axes along which the array is the sum of what the partitions hold */
  bool fixed;          /* the program asked for this sharding, so no other sharding takes its place */
  spmd_axes *dims;
} spmd_sharding;

/* The grid that fits most of the module's shardings. Errors: INVALID_ARGUMENT for invalid shardings. */
WEFT_NODISCARD weft_status *spmd_grid_of(const hlo_module *module, weft_arena *arena, spmd_grid *out_grid);

/* `sharding` (NULL: replicated) as axes. If no axes of the grid express it, *out_fits is false and the result is
 * replicated. Dimensions that the sharding leaves open are open; UNKNOWN leaves all of them open. Tiles that do not
 * divide a dimension of `shape` evenly are dropped from the minor end. */
WEFT_NODISCARD weft_status *spmd_sharding_of(const spmd_grid *grid, const hlo_sharding *sharding,
                                             const hlo_shape *shape, weft_arena *arena, spmd_sharding *out,
                                             bool *out_fits);
/* The manual axes of `sharding`; all axes if it does not name them. */
WEFT_NODISCARD weft_status *spmd_manual_axes(const spmd_grid *grid, const hlo_sharding *sharding, weft_arena *arena,
                                             spmd_mask *out);
/* Turns the sharding back into a device list, or into REPLICATED. */
WEFT_NODISCARD weft_status *spmd_sharding_to_hlo(const spmd_grid *grid, const spmd_sharding *s, weft_arena *arena,
                                                 const hlo_sharding **out);

WEFT_NODISCARD weft_status *spmd_sharding_new(weft_arena *arena, int rank, spmd_sharding **out); /* whole and open */
WEFT_NODISCARD weft_status *spmd_sharding_copy(weft_arena *arena, const spmd_sharding *s, spmd_sharding *out);
bool spmd_sharding_equal(const spmd_sharding *a, const spmd_sharding *b);
/* Removes axes that cut a dimension by a part of a mesh axis, because clients name shardings by whole mesh axes. */
void spmd_sharding_drop_parts(const spmd_grid *grid, spmd_sharding *s);
spmd_mask spmd_sharding_axes(const spmd_sharding *s); /* the axes that it uses, unreduced ones included */

bool spmd_axes_equal(const spmd_axes *a, const spmd_axes *b);
int spmd_axes_common(const spmd_axes *a, const spmd_axes *b); /* the length of the common prefix */
/* the product of the sizes of the axes from index `from` on */
int64_t spmd_axes_size(const spmd_grid *grid, const spmd_axes *axes, int from);
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
