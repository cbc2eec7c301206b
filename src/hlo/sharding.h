/* hlo/sharding.h -- axes of a mesh as device lists: the meaning of named shardings and of replica groups on a mesh. */
#ifndef WEFT_HLO_SHARDING_H
#define WEFT_HLO_SHARDING_H

#include "hlo/hlo.h"

enum { HLO_MAX_MESH_DEVICES = 1 << 20 };

/* Sorts the mesh's devices by their coordinates along `axes`, the first axis being the most major: device number
 * `copy` of tile `tile` is out_devices[tile * copies + copy].  Devices with the same coordinates (copies) stay in
 * the mesh's order.  *out_tiles is the product of the axes' sizes.
 * Errors: INVALID_ARGUMENT for unknown axes, sub-axes that do not divide their axis, an axis used twice, and sizes
 * out of range (HLO_MAX_MESH_DEVICES). */
WEFT_NODISCARD weft_status *hlo_mesh_arrange(weft_arena *arena, const hlo_mesh *mesh, int axis_count,
                                             const hlo_axis_ref *axes, int64_t *out_tiles, hlo_ints *out_devices);

/* The size of an axis or sub-axis.  Errors: as for hlo_mesh_arrange. */
WEFT_NODISCARD weft_status *hlo_mesh_axis_size(const hlo_mesh *mesh, const hlo_axis_ref *axis, int64_t *out_size);

/* Sets the device ids to the iota 0, 1, ... of dimensions `reshape`, transposed by `transpose` (if that is not
 * empty).
 * Errors: INVALID_ARGUMENT if `transpose` is no permutation, or if there is not one id for each place of the mesh. */
WEFT_NODISCARD weft_status *hlo_mesh_set_iota(weft_arena *arena, hlo_mesh *mesh, hlo_ints reshape, hlo_ints transpose);

/* Turns a NAMED sharding of an array of that rank into REPLICATED, MAXIMAL or TILED with a device list.
 * Errors: INVALID_ARGUMENT as for hlo_mesh_arrange, or for another number of dimensions; UNIMPLEMENTED for unreduced
 * axes. */
WEFT_NODISCARD weft_status *hlo_sharding_from_named(weft_arena *arena, const hlo_sharding *named, int rank,
                                                    const hlo_sharding **out_sharding);

/* Replica groups of any form as lists.  Errors: INVALID_ARGUMENT for an iota or a mesh that is inconsistent. */
WEFT_NODISCARD weft_status *hlo_groups_as_lists(weft_arena *arena, const hlo_replica_groups *groups,
                                                hlo_replica_groups *out_groups);
/* Replica groups along the axes of a mesh, as lists. */
WEFT_NODISCARD weft_status *hlo_groups_from_mesh(weft_arena *arena, const hlo_mesh *mesh, int axis_count,
                                                 const hlo_axis_ref *axes, hlo_replica_groups *out_groups);

#endif
