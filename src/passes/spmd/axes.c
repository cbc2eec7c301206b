/* passes/spmd/axes.c -- the partitions as a grid of small axes, and the shardings that name them (axes.h). */
#include <config.h>

#include "passes/spmd/axes.h"

#include <string.h>

#include "hlo/sharding.h"

/* ---- the grid ---------------------------------------------------------------------------------------------------- */

enum { MAX_CUTS = 64 };

/* Strides at which some sharding cuts the places. They form a chain: each divides the next. */
typedef struct cuts {
  int count;
  int64_t v[MAX_CUTS], total;
  hlo_ints devices; /* the first order of devices that is not the plain one */
  const hlo_mesh *mesh; /* the first one */
} cuts;

/* Strides that do not fit into the chain are left out: shardings that need them will not fit the grid. */
static void add_cut(cuts *c, int64_t stride)
{
  int at = 0;

  if (stride <= 1 || stride >= c->total || c->total % stride || c->count == MAX_CUTS) return;
  while (at < c->count && c->v[at] < stride) at++;
  if (at < c->count && (c->v[at] == stride || c->v[at] % stride)) return;
  if (at > 0 && stride % c->v[at - 1]) return;
  memmove(&c->v[at + 1], &c->v[at], (size_t)(c->count - at) * sizeof *c->v);
  c->v[at] = stride;
  c->count++;
}

static void add_row_major(cuts *c, hlo_ints dims)
{
  int64_t stride = 1;

  for (int i = dims.count - 1; i >= 0 && stride < c->total; stride *= WEFT_MAX(dims.v[i], 1), i--) add_cut(c, stride);
}

static void note_sharding(cuts *c, const hlo_sharding *s)
{
  int64_t stride = 1;

  for (int i = 0; s && i < s->tuple_count; i++) note_sharding(c, s->elements[i]);
  if (!s) return;
  if (s->kind == HLO_SHARDING_NAMED) {
    for (int i = s->mesh->axis_count - 1; i >= 0 && stride < c->total;
         stride *= WEFT_MAX(s->mesh->axes[i].size, 1), i--)
      add_cut(c, stride);
    if (!c->mesh && s->mesh->axis_count) c->mesh = s->mesh;
    if (!c->devices.count && s->mesh->device_ids.count == c->total) c->devices = s->mesh->device_ids;
  } else if (s->kind == HLO_SHARDING_TILED) {
    if (s->iota_reshape.count) add_row_major(c, s->iota_reshape);
    else add_row_major(c, s->tile_dims);
  }
}

/* Without a mesh each axis of the grid counts as a mesh axis of its own. */
static void number_mesh_axes(const hlo_mesh *mesh, spmd_grid *grid)
{
  int64_t stride = 1;

  for (int a = 0; a < grid->count; a++) grid->mesh_axis[a] = a;
  for (int i = mesh ? mesh->axis_count - 1 : -1; i >= 0; i--) {
    int64_t end = stride * WEFT_MAX(mesh->axes[i].size, 1);
    for (int a = 0; a < grid->count; a++)
      if (grid->strides[a] >= stride && grid->strides[a] < end) grid->mesh_axis[a] = SPMD_MAX_AXES + i;
    if (end > grid->device_count) return;
    stride = end;
  }
}

weft_status *spmd_grid_of(const hlo_module *module, weft_arena *arena, spmd_grid *out)
{
  cuts c = {.total = module->num_partitions};
  int64_t *devices = WEFT_ARENA_ARRAY(arena, int64_t, c.total), done = 1;

  WEFT_TRY_ALLOC(devices);
  note_sharding(&c, module->spmd_output_sharding);
  for (const hlo_computation *comp = module->first; comp; comp = comp->next)
    for (const hlo_instr *i = comp->first; i; i = i->next)
      if (i->extra) note_sharding(&c, i->extra->sharding);
  for (int64_t i = 0; i < c.total; i++) devices[i] = c.devices.count ? c.devices.v[i] : i;
  *out = (spmd_grid){.device_count = c.total, .devices = devices};
  for (int i = 0; i <= c.count; i++) { /* from the minor end: the prime factors of the gaps, the small ones minor */
    int64_t gap = (i < c.count ? c.v[i] : c.total) / done;
    for (int64_t p = 2; gap > 1; p = gap % p == 0 ? p : p + 1) {
      if (gap % p) continue;
      if (out->count == SPMD_MAX_AXES)
        return WEFT_ERR(UNIMPLEMENTED, "partitions in a grid of over %d axes", SPMD_MAX_AXES);
      memmove(&out->sizes[1], out->sizes, (size_t)out->count * sizeof *out->sizes);
      memmove(&out->strides[1], out->strides, (size_t)out->count * sizeof *out->strides);
      out->sizes[0] = p;
      out->strides[0] = done;
      out->count++;
      gap /= p;
      done *= p;
    }
  }
  number_mesh_axes(c.mesh, out);
  return NULL;
}

/* ---- small things ------------------------------------------------------------------------------------------------ */

weft_status *spmd_sharding_new(weft_arena *arena, int rank, spmd_sharding **out)
{
  *out = WEFT_ARENA_NEW(arena, spmd_sharding);
  WEFT_TRY_ALLOC(*out);
  (*out)->rank = rank;
  (*out)->dims = WEFT_ARENA_ARRAY(arena, spmd_axes, rank);
  WEFT_TRY_ALLOC((*out)->dims);
  return NULL;
}

weft_status *spmd_sharding_copy(weft_arena *arena, const spmd_sharding *s, spmd_sharding *out)
{
  *out = *s;
  out->dims = weft_arena_memdup(arena, s->dims, (size_t)s->rank * sizeof *s->dims);
  WEFT_TRY_ALLOC(out->dims);
  return NULL;
}

int spmd_axes_common(const spmd_axes *a, const spmd_axes *b)
{
  int n = 0;

  while (n < a->count && n < b->count && a->v[n] == b->v[n]) n++;
  return n;
}

bool spmd_axes_equal(const spmd_axes *a, const spmd_axes *b)
{
  return a->count == b->count && spmd_axes_common(a, b) == a->count;
}

int64_t spmd_axes_size(const spmd_grid *grid, const spmd_axes *axes, int from)
{
  int64_t size = 1;

  for (int i = from; i < axes->count; i++) size *= grid->sizes[axes->v[i]];
  return size;
}

spmd_mask spmd_axes_mask(const spmd_axes *axes)
{
  spmd_mask mask = 0;

  for (int i = 0; i < axes->count; i++) mask |= UINT32_C(1) << axes->v[i];
  return mask;
}

void spmd_sharding_drop_parts(const spmd_grid *grid, spmd_sharding *s)
{
  for (int d = 0; d < s->rank; d++) {
    spmd_axes *axes = &s->dims[d];
    for (int i = 0, end; i < axes->count; i = end) {
      int mesh_axis = grid->mesh_axis[axes->v[i]], whole = 0;
      bool in_order = true;
      for (end = i; end < axes->count && grid->mesh_axis[axes->v[end]] == mesh_axis; end++)
        in_order &= end == i || grid->strides[axes->v[end]] < grid->strides[axes->v[end - 1]];
      for (int a = 0; a < grid->count; a++) whole += grid->mesh_axis[a] == mesh_axis;
      if (in_order && end - i == whole) continue;
      axes->count = (uint8_t)i;
      break;
    }
  }
}

bool spmd_sharding_equal(const spmd_sharding *a, const spmd_sharding *b)
{
  if (a->rank != b->rank || a->unreduced != b->unreduced) return false;
  for (int d = 0; d < a->rank; d++)
    if (!spmd_axes_equal(&a->dims[d], &b->dims[d])) return false;
  return true;
}

spmd_mask spmd_sharding_axes(const spmd_sharding *s)
{
  spmd_mask mask = s->unreduced;

  for (int d = 0; d < s->rank; d++) mask |= spmd_axes_mask(&s->dims[d]);
  return mask;
}

int64_t spmd_place_along(const spmd_grid *grid, const spmd_axes *axes, int64_t place)
{
  int64_t at = 0;

  for (int i = 0; i < axes->count; i++)
    at = at * grid->sizes[axes->v[i]] + place / grid->strides[axes->v[i]] % grid->sizes[axes->v[i]];
  return at;
}

weft_status *spmd_local_shape(const spmd_grid *grid, const spmd_sharding *s, const hlo_shape *full, weft_arena *arena,
                              const hlo_shape **out)
{
  int64_t dims[HLO_MAX_RANK];
  hlo_shape *made;

  for (int d = 0; d < full->rank; d++) dims[d] = full->dims[d] / spmd_axes_size(grid, &s->dims[d], 0);
  made = hlo_shape_array(arena, full->type, full->rank, dims);
  WEFT_TRY_ALLOC(made);
  made->layout = full->layout;
  *out = made;
  return NULL;
}

/* ---- from and to OpShardings ------------------------------------------------------------------------------------- */

/* The axes of which `number[place]` (0 .. size-1) is the row-major number. False: there are none. */
static bool find_axes(const spmd_grid *grid, const int64_t *number, int64_t size, spmd_axes *out)
{
  int64_t left = size;

  out->count = 0;
  while (left > 1) {
    int axis = 0;
    while (axis < grid->count && number[grid->strides[axis]] * grid->sizes[axis] != left) axis++;
    if (axis == grid->count || spmd_axes_has(out, axis)) return false;
    spmd_axes_push(out, axis);
    left /= grid->sizes[axis];
  }
  for (int64_t p = 0; p < grid->device_count; p++)
    if (number[p] != spmd_place_along(grid, out, p)) return false;
  return true;
}

/* Grid dimension `dim` of the tiling (t->rank: the copies), as axes. */
static bool tiling_axes(const spmd_grid *grid, const spmd_tiling *t, int dim, const int64_t *index, int64_t *number,
                        spmd_axes *out)
{
  int64_t stride = t->copies;

  for (int d = t->rank - 1; d > dim; d--) stride *= t->tiles[d];
  for (int64_t p = 0; p < grid->device_count; p++) number[p] = index[grid->devices[p]] / stride % t->tiles[dim];
  return find_axes(grid, number, t->tiles[dim], out);
}

static weft_status *unreduced_axes(const spmd_grid *grid, const hlo_sharding *s, weft_arena *arena, spmd_mask *out);

weft_status *spmd_sharding_of(const spmd_grid *grid, const hlo_sharding *given, const hlo_shape *shape,
                              weft_arena *arena, spmd_sharding *out, bool *out_fits)
{
  const hlo_sharding *s = given;
  spmd_sharding *made;
  spmd_tiling tiling;
  int64_t *index = WEFT_ARENA_ARRAY(arena, int64_t, grid->device_count),
          *number = WEFT_ARENA_ARRAY(arena, int64_t, grid->device_count);
  int rank = hlo_shape_is_array(shape) ? shape->rank : 0;

  WEFT_TRY_ALLOC(index);
  WEFT_TRY_ALLOC(number);
  WEFT_TRY(spmd_sharding_new(arena, rank, &made));
  *out = *made;
  *out_fits = true;
  if (given && given->kind == HLO_SHARDING_UNKNOWN) return NULL;
  out->closed = ~UINT32_C(0);
  out->fixed = true;
  if (given && given->kind == HLO_SHARDING_NAMED) {
    hlo_sharding named = *given;
    for (int d = 0; d < given->dim_count && d < 32; d++)
      if (given->dims[d].open) out->closed &= ~(UINT32_C(1) << d);
    WEFT_TRY(unreduced_axes(grid, given, arena, &out->unreduced));
    named.unreduced_count = 0;
    WEFT_TRY(hlo_sharding_from_named(arena, &named, rank, &s));
  }
  WEFT_TRY(spmd_tiling_of(s, rank, grid->device_count, arena, &tiling));
  for (int64_t i = 0; i < grid->device_count; i++) index[tiling.devices[i]] = i;
  for (int d = 0; d < rank && *out_fits; d++) *out_fits = tiling_axes(grid, &tiling, d, index, number, &out->dims[d]);
  for (int d = 0; d < rank; d++) {
    spmd_axes *axes = &out->dims[d];
    if (!*out_fits) axes->count = 0;
    while (axes->count && (shape->dims[d] == 0 || shape->dims[d] % spmd_axes_size(grid, axes, 0))) axes->count--;
  }
  return NULL;
}

/* A list of mesh axes, treated as if it cut the one dimension of a vector. */
static weft_status *mesh_axes(const spmd_grid *grid, const hlo_mesh *mesh, int count, const hlo_axis_ref *axes,
                              weft_arena *arena, spmd_mask *out)
{
  struct hlo_named_dim dim = {.axis_count = count, .axes = axes};
  hlo_sharding vector = {.kind = HLO_SHARDING_NAMED, .mesh = mesh, .dim_count = 1, .dims = &dim};
  const hlo_shape *shape = hlo_shape_array(arena, WEFT_U8, 1, &grid->device_count);
  spmd_sharding s;
  bool fits;

  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(spmd_sharding_of(grid, &vector, shape, arena, &s, &fits));
  if (!fits) return WEFT_ERR(UNIMPLEMENTED, "manual or unreduced axes of a mesh that does not fit the others");
  *out = spmd_axes_mask(&s.dims[0]);
  return NULL;
}

static weft_status *unreduced_axes(const spmd_grid *grid, const hlo_sharding *s, weft_arena *arena, spmd_mask *out)
{
  *out = 0;
  if (!s->unreduced_count) return NULL;
  if (s->unreduced_kind != 0) return WEFT_ERR(UNIMPLEMENTED, "unreduced axes that combine by maximum or minimum");
  return mesh_axes(grid, s->mesh, s->unreduced_count, s->unreduced, arena, out);
}

weft_status *spmd_manual_axes(const spmd_grid *grid, const hlo_sharding *s, weft_arena *arena, spmd_mask *out)
{
  *out = (UINT32_C(1) << grid->count) - 1;
  if (!s || s->kind != HLO_SHARDING_NAMED || !s->manual_count) return NULL;
  return mesh_axes(grid, s->mesh, s->manual_count, s->manual, arena, out);
}

weft_status *spmd_sharding_to_hlo(const spmd_grid *grid, const spmd_sharding *s, weft_arena *arena,
                                  const hlo_sharding **out)
{
  hlo_sharding *made = WEFT_ARENA_NEW(arena, hlo_sharding);
  int64_t *dims = WEFT_ARENA_ARRAY(arena, int64_t, s->rank + 2),
          *devices = WEFT_ARENA_ARRAY(arena, int64_t, grid->device_count), tiles = 1, sums = 1, copies;
  hlo_sharding_kind *last = WEFT_ARENA_ARRAY(arena, hlo_sharding_kind, 2);
  spmd_axes all = {0};
  int rank = s->rank;

  WEFT_TRY_ALLOC(made);
  WEFT_TRY_ALLOC(dims);
  WEFT_TRY_ALLOC(devices);
  WEFT_TRY_ALLOC(last);
  *out = made;
  for (int d = 0; d < s->rank; d++) {
    for (int i = 0; i < s->dims[d].count; i++) spmd_axes_push(&all, s->dims[d].v[i]);
    tiles *= dims[d] = spmd_axes_size(grid, &s->dims[d], 0);
  }
  for (int a = 0; a < grid->count; a++)
    if (s->unreduced >> a & 1) {
      spmd_axes_push(&all, a);
      sums *= grid->sizes[a];
    }
  copies = grid->device_count / tiles / sums;
  if (tiles == 1 && sums == 1) {
    *made = (hlo_sharding){.kind = HLO_SHARDING_REPLICATED};
    return NULL;
  }
  for (int a = 0; a < grid->count; a++)
    if (!spmd_axes_has(&all, a)) spmd_axes_push(&all, a);
  for (int64_t p = 0; p < grid->device_count; p++) devices[spmd_place_along(grid, &all, p)] = grid->devices[p];
  *made = (hlo_sharding){.kind = HLO_SHARDING_TILED, .tile_devices = {(int)grid->device_count, devices}};
  if (sums > 1) {
    last[made->last_dim_count++] = HLO_SHARDING_UNREDUCED;
    dims[rank++] = sums;
    if (copies > 1) last[made->last_dim_count++] = HLO_SHARDING_REPLICATED;
    made->last_dims = last;
  } else {
    made->replicate_last_dim = copies > 1;
  }
  if (copies > 1) dims[rank++] = copies;
  made->tile_dims = (hlo_ints){rank, dims};
  return NULL;
}
