/* passes/spmd/tiling.c -- how an array is cut over the partitions (tiling.h). */
#include <config.h>

#include "passes/spmd/tiling.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_PARTITIONS = 1 << 20, MAX_DIMS = 2 * HLO_MAX_RANK };

/* Fills out[i], i over the grid `sizes` in row-major order, with the number at that place of iota(product) reshaped to
 * `from` and transposed by `perm`. */
static void permuted_iota(int rank, const int64_t *from, const int64_t *perm, int64_t count, int64_t *out)
{
  int64_t strides[MAX_DIMS], index[MAX_DIMS] = {0}, stride = 1;

  for (int i = rank - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= from[i];
  }
  for (int64_t n = 0; n < count; n++) {
    int64_t at = 0;
    for (int i = 0; i < rank; i++) at += index[i] * strides[perm[i]];
    out[n] = at;
    for (int i = rank - 1; i >= 0 && ++index[i] == from[perm[i]]; i--) index[i] = 0;
  }
}

static weft_status *whole(int rank, int64_t device_count, weft_arena *arena, spmd_tiling *out)
{
  int64_t *devices = WEFT_ARENA_ARRAY(arena, int64_t, device_count);

  WEFT_TRY_ALLOC(devices);
  for (int64_t i = 0; i < device_count; i++) devices[i] = i;
  *out = (spmd_tiling){.rank = rank, .copies = device_count, .device_count = device_count, .devices = devices};
  for (int i = 0; i < rank; i++) out->tiles[i] = 1;
  return NULL;
}

/* OpSharding: the tile dimensions of the array, then the subgroup dimensions. */
static weft_status *tiled(const hlo_sharding *s, int rank, int64_t device_count, weft_arena *arena, spmd_tiling *out)
{
  int64_t product = 1, *devices = WEFT_ARENA_ARRAY(arena, int64_t, device_count);

  WEFT_TRY_ALLOC(devices);
  if (s->tile_dims.count < rank || s->tile_dims.count > MAX_DIMS)
    return WEFT_ERR(INVALID_ARGUMENT, "a sharding of %d dimensions for an array of rank %d", s->tile_dims.count, rank);
  for (int i = 0; i < s->tile_dims.count; i++) {
    if (s->tile_dims.v[i] < 1 || s->tile_dims.v[i] > MAX_PARTITIONS)
      return WEFT_ERR(INVALID_ARGUMENT, "a sharding of %" PRId64 " tiles", s->tile_dims.v[i]);
    product *= s->tile_dims.v[i];
    if (product > MAX_PARTITIONS) break;
  }
  if (product != device_count)
    return WEFT_ERR(INVALID_ARGUMENT, "a sharding over %" PRId64 " devices in a program of %" PRId64 " partitions",
                    product, device_count);
  if (s->tile_devices.count) {
    if (s->tile_devices.count != device_count)
      return WEFT_ERR(INVALID_ARGUMENT, "a sharding that lists %d of %" PRId64 " devices", s->tile_devices.count,
                      device_count);
    memcpy(devices, s->tile_devices.v, (size_t)device_count * sizeof *devices);
  } else if (s->iota_reshape.count == 0) {
    for (int64_t i = 0; i < device_count; i++) devices[i] = i;
  } else {
    int64_t identity[MAX_DIMS], total = 1;
    int dims = s->iota_reshape.count;
    for (int i = 0; i < dims && i < MAX_DIMS; i++) {
      identity[i] = i;
      total *= WEFT_MAX(s->iota_reshape.v[i], 0);
    }
    if (dims > MAX_DIMS || total != device_count || (s->iota_transpose.count && s->iota_transpose.count != dims))
      return WEFT_ERR(INVALID_ARGUMENT, "an iota sharding whose reshape does not have %" PRId64 " devices",
                      device_count);
    for (int i = 0; i < s->iota_transpose.count; i++)
      if (s->iota_transpose.v[i] < 0 || s->iota_transpose.v[i] >= dims)
        return WEFT_ERR(INVALID_ARGUMENT, "an iota sharding with a transpose out of range");
    permuted_iota(dims, s->iota_reshape.v, s->iota_transpose.count ? s->iota_transpose.v : identity, device_count,
                  devices);
  }
  *out = (spmd_tiling){.rank = rank, .copies = device_count, .device_count = device_count, .devices = devices};
  for (int i = 0; i < rank; i++) {
    out->tiles[i] = s->tile_dims.v[i];
    out->copies /= s->tile_dims.v[i];
  }
  return NULL;
}

weft_status *spmd_tiling_of(const hlo_sharding *sharding, int rank, int64_t device_count, weft_arena *arena,
                            spmd_tiling *out_tiling)
{
  bool *seen = NULL;

  if (device_count < 1 || device_count > MAX_PARTITIONS)
    return WEFT_ERR(INVALID_ARGUMENT, "%" PRId64 " partitions", device_count);
  if (!sharding || sharding->kind != HLO_SHARDING_TILED) {
    if (sharding && sharding->kind == HLO_SHARDING_NAMED)
      return WEFT_ERR(UNIMPLEMENTED, "a named sharding that was not turned into tiles");
    return whole(rank, device_count, arena, out_tiling);
  }
  WEFT_TRY(tiled(sharding, rank, device_count, arena, out_tiling));
  seen = WEFT_ARENA_ARRAY(arena, bool, device_count);
  WEFT_TRY_ALLOC(seen);
  for (int64_t i = 0; i < device_count; i++) {
    int64_t d = out_tiling->devices[i];
    if (d < 0 || d >= device_count || seen[d])
      return WEFT_ERR(INVALID_ARGUMENT, "a sharding that names device %" PRId64 " wrongly or twice", d);
    seen[d] = true;
  }
  return NULL;
}

bool spmd_tiling_is_whole(const spmd_tiling *tiling) { return tiling->copies == tiling->device_count; }

weft_status *spmd_tile_shape(const spmd_tiling *tiling, const hlo_shape *full, weft_arena *arena,
                             const hlo_shape **out_shape)
{
  int64_t dims[HLO_MAX_RANK];

  for (int i = 0; i < full->rank; i++) {
    if (full->dims[i] % tiling->tiles[i] != 0)
      return WEFT_ERR(UNIMPLEMENTED, "a sharding of dimension %d, of size %" PRId64 ", into %" PRId64 " uneven tiles",
                      i, full->dims[i], tiling->tiles[i]);
    dims[i] = full->dims[i] / tiling->tiles[i];
  }
  *out_shape = hlo_shape_array(arena, full->type, full->rank, dims);
  WEFT_TRY_ALLOC(*out_shape);
  return NULL;
}
