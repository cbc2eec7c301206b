/* hlo/sharding.h -- axes of a mesh turned into device lists: what named shardings and mesh-axes replica groups mean. */
#ifndef WEFT_HLO_SHARDING_H
#define WEFT_HLO_SHARDING_H

#include "hlo/hlo.h"

enum { HLO_MAX_MESH_DEVICES = 1 << 20 };

/* Sorts the mesh's devices by their coordinates along `axes`, major to minor: out_devices[tile * copies + copy], where
 * the devices with the same coordinates (copies) stay in the mesh's order.  tiles = the product of the axes' sizes.
 * Errors: INVALID_ARGUMENT for unknown axes, sub-axes that do not divide, an axis used twice, absurd sizes. */
WEFT_NODISCARD weft_status *hlo_mesh_arrange(weft_arena *arena, const hlo_mesh *mesh, int axis_count,
                                             const hlo_axis_ref *axes, int64_t *out_tiles, hlo_ints *out_devices);

/* The size of an axis or sub-axis.  Errors: as above. */
WEFT_NODISCARD weft_status *hlo_mesh_axis_size(const hlo_mesh *mesh, const hlo_axis_ref *axis, int64_t *out_size);

/* Device ids that are written as an iota: 0, 1, ... reshaped and transposed (an empty `transpose`: not at all).
 * Errors: INVALID_ARGUMENT where that is no permutation, or not one id for each place of the mesh. */
WEFT_NODISCARD weft_status *hlo_mesh_set_iota(weft_arena *arena, hlo_mesh *mesh, hlo_ints reshape, hlo_ints transpose);

/* A NAMED sharding of an array of that rank as REPLICATED, MAXIMAL or TILED with a device list.
 * Errors: INVALID_ARGUMENT as above, or for another number of dimensions; UNIMPLEMENTED for unreduced axes. */
WEFT_NODISCARD weft_status *hlo_sharding_from_named(weft_arena *arena, const hlo_sharding *named, int rank,
                                                    const hlo_sharding **out_sharding);

/* Replica groups of any form as lists.  Errors: INVALID_ARGUMENT for iotas and meshes that do not add up. */
WEFT_NODISCARD weft_status *hlo_groups_as_lists(weft_arena *arena, const hlo_replica_groups *groups,
                                                hlo_replica_groups *out_groups);
/* Replica groups along mesh axes as lists. */
WEFT_NODISCARD weft_status *hlo_groups_from_mesh(weft_arena *arena, const hlo_mesh *mesh, int axis_count,
                                                 const hlo_axis_ref *axes, hlo_replica_groups *out_groups);

#endif
