/* hlo/sharding.c -- axes of a mesh turned into device lists (sharding.h). */
#include <config.h>

#include "hlo/sharding.h"

#include <inttypes.h>
#include <string.h>

/* The position of an axis reference in the row-major number of a device: the coordinate is number / stride % size. */
typedef struct place { int64_t stride, size; } place;

static weft_status *find_axis(const hlo_mesh *mesh, const hlo_axis_ref *axis, place *out)
{
  int64_t stride = 1;

  for (int i = mesh->axis_count - 1; i >= 0; i--) {
    int64_t size = mesh->axes[i].size;
    if (strcmp(mesh->axes[i].name, axis->name) == 0) {
      int64_t part; /* a sub-axis splits its axis into [pre_size, size, rest] */
      *out = (place){stride, size};
      if (axis->size == 0) return NULL;
      if (axis->pre_size < 1 || axis->size < 1 || __builtin_mul_overflow(axis->pre_size, axis->size, &part) ||
          size % part)
        return WEFT_ERR(INVALID_ARGUMENT, "sub-axis (%" PRId64 ")%" PRId64 " of mesh axis \"%s\" of size %" PRId64,
                        axis->pre_size, axis->size, axis->name, size);
      *out = (place){stride * (size / part), axis->size};
      return NULL;
    }
    stride *= size;
  }
  return WEFT_ERR(INVALID_ARGUMENT, "the mesh has no axis \"%s\"", axis->name);
}

static weft_status *device_count(const hlo_mesh *mesh, int64_t *out)
{
  *out = 1;
  for (int i = 0; i < mesh->axis_count; i++)
    if (mesh->axes[i].size < 1 || __builtin_mul_overflow(*out, mesh->axes[i].size, out) || *out > HLO_MAX_MESH_DEVICES)
      return WEFT_ERR(INVALID_ARGUMENT, "mesh axis \"%s\" of size %" PRId64, mesh->axes[i].name, mesh->axes[i].size);
  if (mesh->device_ids.count && mesh->device_ids.count != *out)
    return WEFT_ERR(INVALID_ARGUMENT, "a mesh of %" PRId64 " places has %d device ids", *out, mesh->device_ids.count);
  return NULL;
}

weft_status *hlo_mesh_axis_size(const hlo_mesh *mesh, const hlo_axis_ref *axis, int64_t *out_size)
{
  place p;
  int64_t count;

  WEFT_TRY(device_count(mesh, &count));
  WEFT_TRY(find_axis(mesh, axis, &p));
  *out_size = p.size;
  return NULL;
}

weft_status *hlo_mesh_arrange(weft_arena *arena, const hlo_mesh *mesh, int axis_count, const hlo_axis_ref *axes,
                              int64_t *out_tiles, hlo_ints *out_devices)
{
  int64_t count, tiles = 1, *devices, *filled;
  place *places = WEFT_ARENA_ARRAY(arena, place, axis_count);

  WEFT_TRY_ALLOC(places);
  WEFT_TRY(device_count(mesh, &count));
  for (int i = 0; i < axis_count; i++) {
    WEFT_TRY(find_axis(mesh, &axes[i], &places[i]));
    tiles *= places[i].size;
    if (tiles > count) return WEFT_ERR(INVALID_ARGUMENT, "mesh axis \"%s\" is used twice", axes[i].name);
  }
  devices = WEFT_ARENA_ARRAY(arena, int64_t, count);
  filled = WEFT_ARENA_ARRAY(arena, int64_t, tiles);
  if (!devices || !filled) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int64_t n = 0; n < count; n++) {
    int64_t tile = 0;
    for (int i = 0; i < axis_count; i++) tile = tile * places[i].size + n / places[i].stride % places[i].size;
    if (filled[tile] == count / tiles)
      return WEFT_ERR(INVALID_ARGUMENT, "mesh axis \"%s\" is used twice", axes[0].name);
    devices[tile * (count / tiles) + filled[tile]++] = mesh->device_ids.count ? mesh->device_ids.v[n] : n;
  }
  *out_tiles = tiles;
  *out_devices = (hlo_ints){(int)count, devices};
  return NULL;
}

weft_status *hlo_sharding_from_named(weft_arena *arena, const hlo_sharding *named, int rank,
                                     const hlo_sharding **out_sharding)
{
  hlo_sharding *s = WEFT_ARENA_NEW(arena, hlo_sharding);
  int64_t *dims = WEFT_ARENA_ARRAY(arena, int64_t, rank + 1), tiles, count = 1;
  int axis_count = 0, at = 0;
  hlo_axis_ref *axes;

  if (!s || !dims) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  if (named->unreduced_count) return WEFT_ERR(UNIMPLEMENTED, "shardings with unreduced axes");
  if (named->dim_count != rank)
    return WEFT_ERR(INVALID_ARGUMENT, "a sharding of %d dimensions for an array of rank %d", named->dim_count, rank);
  for (int d = 0; d < rank; d++) axis_count += named->dims[d].axis_count;
  axes = WEFT_ARENA_ARRAY(arena, hlo_axis_ref, axis_count);
  WEFT_TRY_ALLOC(axes);
  for (int d = 0; d < rank; d++) {
    dims[d] = 1;
    for (int i = 0; i < named->dims[d].axis_count; i++) {
      int64_t size;
      WEFT_TRY(hlo_mesh_axis_size(named->mesh, &named->dims[d].axes[i], &size));
      dims[d] *= size; /* no overflow: both factors are at most HLO_MAX_MESH_DEVICES */
      if (dims[d] > HLO_MAX_MESH_DEVICES) return WEFT_ERR(INVALID_ARGUMENT, "dimension %d has too many axes", d);
      axes[at++] = named->dims[d].axes[i];
    }
  }
  WEFT_TRY(hlo_mesh_arrange(arena, named->mesh, axis_count, axes, &tiles, &s->tile_devices));
  count = s->tile_devices.count;
  *out_sharding = s;
  if (tiles == 1) {
    *s = (hlo_sharding){.kind = HLO_SHARDING_REPLICATED};
    if (count == 1 && named->mesh->device_ids.count)
      *s = (hlo_sharding){.kind = HLO_SHARDING_MAXIMAL, .maximal_device = named->mesh->device_ids.v[0]};
    return NULL;
  }
  s->kind = HLO_SHARDING_TILED;
  s->replicate_last_dim = tiles < count;
  dims[rank] = count / tiles;
  s->tile_dims = (hlo_ints){rank + s->replicate_last_dim, dims};
  return NULL;
}

weft_status *hlo_groups_from_mesh(weft_arena *arena, const hlo_mesh *mesh, int axis_count, const hlo_axis_ref *axes,
                                  hlo_replica_groups *out_groups)
{
  int64_t size, count, *ids;
  hlo_ints devices, *groups;

  WEFT_TRY(hlo_mesh_arrange(arena, mesh, axis_count, axes, &size, &devices));
  count = devices.count / size;
  groups = WEFT_ARENA_ARRAY(arena, hlo_ints, count);
  ids = WEFT_ARENA_ARRAY(arena, int64_t, devices.count);
  if (!groups || !ids) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int64_t g = 0; g < count; g++) { /* group g has copy number g of each tile */
    for (int64_t i = 0; i < size; i++) ids[g * size + i] = devices.v[i * count + g];
    groups[g] = (hlo_ints){(int)size, ids + g * size};
  }
  *out_groups = (hlo_replica_groups){.form = HLO_GROUPS_LIST, .group_count = (int)count, .groups = groups};
  return NULL;
}

/* Element `at` of an iota of dimensions `dims` transposed by `perm` (NULL: not transposed). */
static int64_t transposed_iota(const int64_t *dims, const int64_t *perm, int rank, int64_t at)
{
  int64_t strides[HLO_MAX_RANK], stride = 1, value = 0;

  for (int i = rank - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= dims[i];
  }
  for (int i = rank - 1; i >= 0; i--) {
    int64_t source = perm ? perm[i] : i;
    value += at % dims[source] * strides[source];
    at /= dims[source];
  }
  return value;
}

/* The ids 0, 1, ... as an array of dimensions `dims`, transposed by `perm` (if not empty), in row-major order. */
static weft_status *iota_ids(weft_arena *arena, const char *what, hlo_ints dims, hlo_ints perm, hlo_ints *out)
{
  int64_t total = 1, *ids;
  uint64_t seen = 0;

  if (dims.count > HLO_MAX_RANK || (perm.count && perm.count != dims.count))
    return WEFT_ERR(INVALID_ARGUMENT, "%s of rank %d", what, dims.count);
  for (int i = 0; i < dims.count; i++)
    if (dims.v[i] < 1 || __builtin_mul_overflow(total, dims.v[i], &total) || total > HLO_MAX_MESH_DEVICES)
      return WEFT_ERR(INVALID_ARGUMENT, "%s dimensions are absurd", what);
  for (int i = 0; i < perm.count; i++) {
    if (perm.v[i] < 0 || perm.v[i] >= dims.count || seen >> perm.v[i] & 1)
      return WEFT_ERR(INVALID_ARGUMENT, "%s transpose is no permutation", what);
    seen |= UINT64_C(1) << perm.v[i];
  }
  ids = WEFT_ARENA_ARRAY(arena, int64_t, total);
  WEFT_TRY_ALLOC(ids);
  for (int64_t i = 0; i < total; i++) ids[i] = transposed_iota(dims.v, perm.count ? perm.v : NULL, dims.count, i);
  *out = (hlo_ints){(int)total, ids};
  return NULL;
}

static weft_status *groups_from_iota(weft_arena *arena, const hlo_replica_groups *g, hlo_replica_groups *out_groups)
{
  hlo_ints *groups, ids;

  WEFT_TRY(iota_ids(arena, "replica_groups", g->reshape_dims, g->transpose_perm, &ids));
  if (g->num_groups < 1 || g->group_size < 1 || g->num_groups > ids.count || g->num_groups * g->group_size != ids.count)
    return WEFT_ERR(INVALID_ARGUMENT, "%" PRId64 " groups of %" PRId64 " are not %d ids", g->num_groups, g->group_size,
                    ids.count);
  groups = WEFT_ARENA_ARRAY(arena, hlo_ints, g->num_groups);
  WEFT_TRY_ALLOC(groups);
  for (int64_t i = 0; i < g->num_groups; i++) groups[i] = (hlo_ints){(int)g->group_size, ids.v + i * g->group_size};
  *out_groups = (hlo_replica_groups){.form = HLO_GROUPS_LIST, .group_count = (int)g->num_groups, .groups = groups};
  return NULL;
}

weft_status *hlo_mesh_set_iota(weft_arena *arena, hlo_mesh *mesh, hlo_ints reshape, hlo_ints transpose)
{
  int64_t count;

  mesh->device_ids = (hlo_ints){0};
  WEFT_TRY(iota_ids(arena, "device_ids", reshape, transpose, &mesh->device_ids));
  return device_count(mesh, &count);
}

weft_status *hlo_groups_as_lists(weft_arena *arena, const hlo_replica_groups *groups, hlo_replica_groups *out_groups)
{
  if (groups->form == HLO_GROUPS_IOTA) return groups_from_iota(arena, groups, out_groups);
  if (groups->form == HLO_GROUPS_MESH)
    return hlo_groups_from_mesh(arena, groups->mesh, groups->axis_count, groups->axes, out_groups);
  *out_groups = *groups;
  return NULL;
}
