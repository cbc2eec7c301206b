/* passes/spmd/reshard.c -- from one sharding to another: the steps and their instructions (reshard.h). */
#include <config.h>

#include "passes/spmd/reshard.h"

#include <string.h>

#include "hlo/literal.h"

/* ---- groups and numbers ------------------------------------------------------------------------------------------ */

static weft_status *new_attrs(spmd_mover *m, hlo_collective_attrs **out)
{
  *out = WEFT_ARENA_NEW(m->arena, hlo_collective_attrs);
  WEFT_TRY_ALLOC(*out);
  (*out)->channel_id = m->next_channel++;
  (*out)->use_global_device_ids = true;
  return NULL;
}

/* The attributes of a collective over groups of `size` partitions each, which stand one after the other in `ids`. */
static weft_status *group_attrs(spmd_mover *m, int64_t groups, int64_t size, const int64_t *ids,
                                const hlo_collective_attrs **out)
{
  hlo_collective_attrs *attrs;
  hlo_ints *lists = WEFT_ARENA_ARRAY(m->arena, hlo_ints, groups);

  WEFT_TRY_ALLOC(lists);
  for (int64_t g = 0; g < groups; g++) WEFT_TRY(hlo_ints_new(m->module, (int)size, ids + g * size, &lists[g]));
  WEFT_TRY(new_attrs(m, &attrs));
  attrs->groups = (hlo_replica_groups){.form = HLO_GROUPS_LIST, .group_count = (int)groups, .groups = lists};
  *out = attrs;
  return NULL;
}

/* The partitions in groups that differ along `axes` alone, each in the order of their numbers along them. */
static weft_status *groups_along(spmd_mover *m, const spmd_axes *axes, int64_t **out)
{
  const spmd_grid *grid = m->grid;
  int64_t *ids = *out = WEFT_ARENA_ARRAY(m->arena, int64_t, grid->device_count);
  spmd_axes all = {0};

  WEFT_TRY_ALLOC(ids);
  for (int a = 0; a < grid->count; a++)
    if (!spmd_axes_has(axes, a)) spmd_axes_push(&all, a);
  for (int i = 0; i < axes->count; i++) spmd_axes_push(&all, axes->v[i]);
  for (int64_t p = 0; p < grid->device_count; p++) ids[spmd_place_along(grid, &all, p)] = grid->devices[p];
  return NULL;
}

static weft_status *attrs_along(spmd_mover *m, const spmd_axes *axes, const hlo_collective_attrs **out)
{
  int64_t size = spmd_axes_size(m->grid, axes, 0), *ids;

  WEFT_TRY(groups_along(m, axes, &ids));
  return group_attrs(m, m->grid->device_count / size, size, ids, out);
}

static const hlo_shape *scalar_shape(spmd_mover *m, weft_dtype type)
{
  return hlo_shape_array(m->arena, type, 0, NULL);
}

/* The scalar s32 at `table`[partition-id]. */
static weft_status *look_up(spmd_mover *m, pass_build *b, const int64_t *table, hlo_instr **out)
{
  int64_t count = m->grid->device_count;
  const hlo_shape *shape = hlo_shape_array(m->arena, WEFT_S32, 1, &count),
                  *one = hlo_shape_array(m->arena, WEFT_S32, 1, (int64_t[]){1});
  hlo_literal *literal;
  hlo_instr *operands[2], *slice;

  WEFT_TRY_ALLOC(shape);
  WEFT_TRY_ALLOC(one);
  WEFT_TRY(hlo_literal_new(m->arena, shape, &literal));
  for (int64_t i = 0; i < count; i++) hlo_literal_set_s64(literal, i, table[i]);
  operands[0] = pb_constant(b, literal);
  operands[1] = pb_convert(b, pb_instr(b, HLO_PARTITION_ID, scalar_shape(m, WEFT_U32), 0, NULL), WEFT_S32);
  slice = pb_instr(b, HLO_DYNAMIC_SLICE, one, 2, operands);
  if (slice) slice->u.slice_sizes = pb_ints(b, 1, (int64_t[]){1});
  *out = pb_reshape(b, slice, 0, NULL);
  return pass_build_finish(b);
}

weft_status *spmd_value_along(spmd_mover *m, pass_build *b, const spmd_axes *axes, const int64_t *values,
                              hlo_instr **out)
{
  int64_t *table = WEFT_ARENA_ARRAY(m->arena, int64_t, m->grid->device_count);

  WEFT_TRY_ALLOC(table);
  for (int64_t p = 0; p < m->grid->device_count; p++)
    table[m->grid->devices[p]] = values[spmd_place_along(m->grid, axes, p)];
  return look_up(m, b, table, out);
}

weft_status *spmd_number_along(spmd_mover *m, pass_build *b, const spmd_axes *axes, int64_t scale, hlo_instr **out)
{
  int64_t n = spmd_axes_size(m->grid, axes, 0), *values = WEFT_ARENA_ARRAY(m->arena, int64_t, n);

  WEFT_TRY_ALLOC(values);
  for (int64_t i = 0; i < n; i++) values[i] = i * scale;
  return spmd_value_along(m, b, axes, values, out);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* One collective or slice on the way. `axes` are those that it changes. */
typedef enum step_kind { DONE, SCATTER_SUM, SUM, PLACE, PERMUTE, EXCHANGE, SLICE, GATHER, MASK } step_kind;
typedef struct step { step_kind kind; int dim, to_dim; spmd_axes axes; } step;

static spmd_axes tail(const spmd_axes *axes, int from)
{
  spmd_axes out = {.count = (uint8_t)(axes->count - from)};

  memcpy(out.v, axes->v + from, out.count);
  return out;
}

static bool starts_with(const spmd_axes *axes, const spmd_axes *prefix)
{
  return spmd_axes_common(axes, prefix) == prefix->count;
}

/* Sums that `to` does not keep: they are reduce-scattered over a dimension that the same axes cut next, otherwise
 * all-reduced. */
static bool sum_step(const spmd_sharding *cur, const spmd_sharding *to, spmd_mask partial, step *out)
{
  *out = (step){.kind = SUM};
  if (!partial) return false;
  for (int d = 0; d < cur->rank; d++) {
    if (!starts_with(&to->dims[d], &cur->dims[d])) continue;
    *out = (step){.kind = SCATTER_SUM, .dim = d};
    for (int i = cur->dims[d].count; i < to->dims[d].count && partial >> to->dims[d].v[i] & 1; i++)
      spmd_axes_push(&out->axes, to->dims[d].v[i]);
    if (out->axes.count) return true;
  }
  *out = (step){.kind = SUM};
  for (int a = 0; a < SPMD_MAX_AXES; a++)
    if (partial >> a & 1) spmd_axes_push(&out->axes, a);
  return true;
}

/* Axes that cut a dimension and are to hold sums instead: every tile is surrounded by zeros. */
static bool place_step(const spmd_sharding *cur, const spmd_sharding *to, step *out)
{
  spmd_mask come = to->unreduced & ~cur->unreduced;

  for (int d = 0; d < cur->rank; d++) {
    int common = spmd_axes_common(&cur->dims[d], &to->dims[d]);
    *out = (step){.kind = PLACE, .dim = d, .axes = tail(&cur->dims[d], common)};
    if (out->axes.count && !(spmd_axes_mask(&out->axes) & ~come)) return true;
  }
  return false;
}

static bool permute_step(const spmd_grid *grid, const spmd_sharding *cur, const spmd_sharding *to, step *out)
{
  bool differ = false;

  *out = (step){.kind = PERMUTE};
  if (cur->unreduced | to->unreduced) return false;
  for (int d = 0; d < cur->rank; d++) {
    if (spmd_axes_size(grid, &cur->dims[d], 0) != spmd_axes_size(grid, &to->dims[d], 0)) return false;
    differ |= !spmd_axes_equal(&cur->dims[d], &to->dims[d]);
  }
  return differ;
}

/* The minor axes of one dimension that are the next axes of another one. */
static bool exchange_step(const spmd_sharding *cur, const spmd_sharding *to, step *out)
{
  for (int d = 0; d < cur->rank; d++)
    for (int at = spmd_axes_common(&cur->dims[d], &to->dims[d]); at < cur->dims[d].count; at++) {
      spmd_axes moved = tail(&cur->dims[d], at);
      for (int e = 0; e < cur->rank; e++) {
        spmd_axes rest;
        if (e == d || !starts_with(&to->dims[e], &cur->dims[e])) continue;
        rest = tail(&to->dims[e], cur->dims[e].count);
        if (!starts_with(&rest, &moved)) continue;
        *out = (step){.kind = EXCHANGE, .dim = d, .to_dim = e, .axes = moved};
        return true;
      }
    }
  return false;
}

static bool slice_step(const spmd_sharding *cur, const spmd_sharding *to, step *out)
{
  spmd_mask used = spmd_sharding_axes(cur);

  for (int d = 0; d < cur->rank; d++) {
    if (!starts_with(&to->dims[d], &cur->dims[d])) continue;
    *out = (step){.kind = SLICE, .dim = d};
    for (int i = cur->dims[d].count; i < to->dims[d].count && !(used >> to->dims[d].v[i] & 1); i++)
      spmd_axes_push(&out->axes, to->dims[d].v[i]);
    if (out->axes.count) return true;
  }
  return false;
}

static bool gather_step(const spmd_sharding *cur, const spmd_sharding *to, step *out)
{
  for (int d = 0; d < cur->rank; d++) {
    int common = spmd_axes_common(&cur->dims[d], &to->dims[d]);
    if (common == cur->dims[d].count) continue;
    *out = (step){.kind = GATHER, .dim = d, .axes = tail(&cur->dims[d], common)};
    return true;
  }
  return false;
}

static step next_step(const spmd_grid *grid, const spmd_sharding *cur, const spmd_sharding *to, spmd_mask partial)
{
  spmd_mask come = to->unreduced & ~cur->unreduced;
  step s;

  if (sum_step(cur, to, partial | (cur->unreduced & ~to->unreduced), &s) || place_step(cur, to, &s) ||
      permute_step(grid, cur, to, &s) || exchange_step(cur, to, &s) || slice_step(cur, to, &s) ||
      gather_step(cur, to, &s))
    return s;
  s = (step){.kind = come ? MASK : DONE};
  for (int a = 0; a < grid->count; a++)
    if (come >> a & 1) spmd_axes_push(&s.axes, a);
  return s;
}

/* The sharding after the step. */
static void advance(spmd_sharding *cur, const spmd_sharding *to, spmd_mask *partial, const step *s)
{
  spmd_mask mask = spmd_axes_mask(&s->axes);

  switch (s->kind) {
  case SCATTER_SUM:
  case SLICE:
    for (int i = 0; i < s->axes.count; i++) spmd_axes_push(&cur->dims[s->dim], s->axes.v[i]);
    break;
  case EXCHANGE:
    for (int i = 0; i < s->axes.count; i++) spmd_axes_push(&cur->dims[s->to_dim], s->axes.v[i]);
    cur->dims[s->dim].count -= s->axes.count;
    break;
  case PLACE: cur->unreduced |= mask; /* fall through */
  case GATHER: cur->dims[s->dim].count -= s->axes.count; break;
  case PERMUTE: memcpy(cur->dims, to->dims, (size_t)cur->rank * sizeof *cur->dims); break;
  case MASK: cur->unreduced |= mask; break;
  default: break;
  }
  if (s->kind == SUM || s->kind == SCATTER_SUM) {
    cur->unreduced &= ~mask;
    *partial &= ~mask;
  }
}

/* ---- the instructions of the steps ----------------------------------------------------------------------------- */

static hlo_instr *collective(pass_build *b, hlo_opcode op, const hlo_shape *shape, hlo_instr *x,
                             const hlo_collective_attrs *attrs)
{
  hlo_instr *made = pb_instr(b, op, shape, 1, &x);

  if (made) made->u.collective = attrs;
  return made;
}

/* The shape of x with the size of dimension `dim` multiplied by `num` / `den`. */
static const hlo_shape *scaled(spmd_mover *m, const hlo_shape *x, int dim, int64_t num, int64_t den)
{
  int64_t dims[HLO_MAX_RANK];

  for (int d = 0; d < x->rank; d++) dims[d] = d == dim ? x->dims[d] * num / den : x->dims[d];
  return hlo_shape_array(m->arena, x->type, x->rank, dims);
}

/* x [.., a (dim), .., n * c (to_dim), ..] becomes [n, .., a, .., c, ..]: the pieces go to their owners, who put them
 * one behind the other along `dim`. */
static weft_status *exchange(spmd_mover *m, pass_build *b, hlo_instr *x, const step *s,
                             const hlo_collective_attrs *attrs, hlo_instr **out)
{
  int64_t n = spmd_axes_size(m->grid, &s->axes, 0), dims[HLO_MAX_RANK + 1], perm[HLO_MAX_RANK + 1];
  int rank = x->shape->rank, at = 0;
  hlo_instr *y;

  if (rank + 1 > HLO_MAX_RANK) return WEFT_ERR(UNIMPLEMENTED, "resharding an array of rank %d", rank);
  for (int d = 0; d < rank; d++) {
    if (d == s->to_dim) dims[at++] = n;
    dims[at++] = d == s->to_dim ? x->shape->dims[d] / n : x->shape->dims[d];
  }
  perm[0] = s->to_dim;
  for (int d = 0, k = 1; d <= rank; d++)
    if (d != s->to_dim) perm[k++] = d;
  y = pb_transpose(b, pb_reshape(b, x, rank + 1, dims), perm);
  y = collective(b, HLO_ALL_TO_ALL, y ? y->shape : NULL, y, attrs);
  if (y) y->dims = pb_ints(b, 1, (int64_t[]){0});
  /* [n, d0, .., a, ..]: n moves in front of a */
  at = 0;
  for (int d = 0; d < rank; d++) {
    if (d == s->dim) perm[at++] = 0;
    perm[at++] = d + 1;
    dims[d] = d == s->dim ? n * x->shape->dims[d] : d == s->to_dim ? x->shape->dims[d] / n : x->shape->dims[d];
  }
  *out = pb_reshape(b, pb_transpose(b, y, perm), rank, dims);
  return pass_build_finish(b);
}

/* Every tile goes from its owner under `from` to its owner under `to`; among copies, in order. */
static weft_status *permute(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_sharding *from,
                            const spmd_sharding *to, hlo_instr **out)
{
  const spmd_grid *grid = m->grid;
  int64_t count = grid->device_count, *at = WEFT_ARENA_ARRAY(m->arena, int64_t, count),
          (*pairs)[2] = weft_arena_alloc_array(m->arena, (size_t)count, sizeof *pairs);
  hlo_collective_attrs *attrs;

  WEFT_TRY_ALLOC(at);
  WEFT_TRY_ALLOC(pairs);
  for (int side = 0; side < 2; side++) {
    const spmd_sharding *s = side ? to : from;
    spmd_axes all = {0};
    for (int d = 0; d < s->rank; d++)
      for (int i = 0; i < s->dims[d].count; i++) spmd_axes_push(&all, s->dims[d].v[i]);
    for (int a = 0; a < grid->count; a++)
      if (!spmd_axes_has(&all, a)) spmd_axes_push(&all, a);
    for (int64_t p = 0; p < count; p++) pairs[spmd_place_along(grid, &all, p)][side] = grid->devices[p];
  }
  WEFT_TRY(new_attrs(m, &attrs));
  attrs->pairs = (const int64_t(*)[2])pairs;
  attrs->pair_count = (int)count;
  *out = collective(b, HLO_COLLECTIVE_PERMUTE, x->shape, x, attrs);
  return pass_build_finish(b);
}

weft_status *spmd_permute_along(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_axes *axes,
                                const int64_t *sources, hlo_instr **out)
{
  int64_t n = spmd_axes_size(m->grid, axes, 0), count = m->grid->device_count, *ids,
          (*pairs)[2] = weft_arena_alloc_array(m->arena, (size_t)count, sizeof *pairs);
  hlo_collective_attrs *attrs;

  WEFT_TRY_ALLOC(pairs);
  WEFT_TRY(pass_build_finish(b));
  WEFT_TRY(groups_along(m, axes, &ids));
  WEFT_TRY(new_attrs(m, &attrs));
  for (int64_t i = 0; i < count; i++) {
    int64_t source = sources[i % n];
    if (source < 0 || source >= n) continue;
    pairs[attrs->pair_count][0] = ids[i - i % n + source];
    pairs[attrs->pair_count++][1] = ids[i];
  }
  attrs->pairs = (const int64_t(*)[2])pairs;
  *out = collective(b, HLO_COLLECTIVE_PERMUTE, x->shape, x, attrs);
  return pass_build_finish(b);
}

weft_status *spmd_gather_along(spmd_mover *m, pass_build *b, hlo_instr *x, int64_t dim, const spmd_axes *axes,
                               hlo_instr **out)
{
  const hlo_collective_attrs *attrs;

  WEFT_TRY(pass_build_finish(b));
  WEFT_TRY(attrs_along(m, axes, &attrs));
  *out = collective(b, HLO_ALL_GATHER, scaled(m, x->shape, (int)dim, spmd_axes_size(m->grid, axes, 0), 1), x, attrs);
  if (*out) (*out)->dims = pb_ints(b, 1, &dim);
  return pass_build_finish(b);
}

/* Where this partition's tile begins in an array whose dimension s->dim has tiles of `size`. */
static weft_status *starts(spmd_mover *m, pass_build *b, int rank, const step *s, int64_t size, hlo_instr **out)
{
  for (int d = 0; d < rank; d++) {
    if (d == s->dim) WEFT_TRY(spmd_number_along(m, b, &s->axes, size, &out[d]));
    else out[d] = pb_int(b, WEFT_S32, 0);
  }
  return NULL;
}

static weft_status *slice_along(spmd_mover *m, pass_build *b, hlo_instr *x, const step *s, hlo_instr **out)
{
  hlo_instr *operands[HLO_MAX_RANK + 1] = {x};
  int64_t n = spmd_axes_size(m->grid, &s->axes, 0);
  const hlo_shape *shape = scaled(m, x->shape, s->dim, 1, n);

  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(starts(m, b, x->shape->rank, s, shape->dims[s->dim], operands + 1));
  *out = pb_instr(b, HLO_DYNAMIC_SLICE, shape, x->shape->rank + 1, operands);
  if (*out) (*out)->u.slice_sizes = pb_ints(b, shape->rank, shape->dims);
  return pass_build_finish(b);
}

static weft_status *place(spmd_mover *m, pass_build *b, hlo_instr *x, const step *s, hlo_instr **out)
{
  int64_t n = spmd_axes_size(m->grid, &s->axes, 0);
  const hlo_shape *shape = scaled(m, x->shape, s->dim, n, 1);
  hlo_instr *operands[HLO_MAX_RANK + 2];

  WEFT_TRY_ALLOC(shape);
  operands[0] = pb_fill(b, pb_scalar(b, shape->type, 0), shape);
  operands[1] = x;
  WEFT_TRY(starts(m, b, shape->rank, s, x->shape->dims[s->dim], operands + 2));
  *out = pb_instr(b, HLO_DYNAMIC_UPDATE_SLICE, shape, shape->rank + 2, operands);
  return pass_build_finish(b);
}

weft_status *spmd_keep_first(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_axes *axes, hlo_instr **out)
{
  hlo_instr *number, *first;

  WEFT_TRY(spmd_number_along(m, b, axes, 1, &number));
  first = pb_compare(b, HLO_EQ, number, pb_int(b, WEFT_S32, 0));
  *out = pb_select(b, pb_fill(b, first, x->shape), x, pb_splat(b, x, 0));
  return pass_build_finish(b);
}

static weft_status *take_step(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_sharding *cur,
                              const spmd_sharding *to, hlo_computation *reducer, const step *s, hlo_instr **out)
{
  const hlo_collective_attrs *attrs = NULL;
  int64_t n = spmd_axes_size(m->grid, &s->axes, 0), dim = s->dim;

  if (s->kind == PERMUTE) return permute(m, b, x, cur, to, out);
  if (s->kind == SLICE) return slice_along(m, b, x, s, out);
  if (s->kind == PLACE) return place(m, b, x, s, out);
  if (s->kind == MASK) return spmd_keep_first(m, b, x, &s->axes, out);
  WEFT_TRY(attrs_along(m, &s->axes, &attrs));
  if (s->kind == EXCHANGE) return exchange(m, b, x, s, attrs, out);
  if (s->kind == GATHER) {
    *out = collective(b, HLO_ALL_GATHER, scaled(m, x->shape, s->dim, n, 1), x, attrs);
  } else {
    if (!reducer) WEFT_TRY(hlo_add_reducer(m->module, HLO_ADD, x->shape->type, &reducer));
    *out = s->kind == SUM ? collective(b, HLO_ALL_REDUCE, x->shape, x, attrs)
                          : collective(b, HLO_REDUCE_SCATTER, scaled(m, x->shape, s->dim, 1, n), x, attrs);
    if (*out && !b->error) b->error = hlo_set_called(*out, 1, &reducer);
  }
  if (*out && s->kind != SUM) (*out)->dims = pb_ints(b, 1, &dim);
  return pass_build_finish(b);
}

weft_status *spmd_combine(spmd_mover *m, pass_build *b, hlo_instr *tile, const spmd_sharding *from, spmd_mask partial,
                          hlo_computation *reducer, const spmd_sharding *to, hlo_instr **out)
{
  spmd_sharding cur;
  step s;

  WEFT_TRY(spmd_sharding_copy(m->arena, from, &cur));
  for (*out = tile; (s = next_step(m->grid, &cur, to, partial)).kind != DONE; advance(&cur, to, &partial, &s))
    WEFT_TRY(take_step(m, b, *out, &cur, to, reducer, &s, out));
  return NULL;
}

weft_status *spmd_reshard(spmd_mover *m, pass_build *b, hlo_instr *tile, const spmd_sharding *from,
                          const spmd_sharding *to, hlo_instr **out)
{
  *out = tile;
  return spmd_sharding_equal(from, to) ? NULL : spmd_combine(m, b, tile, from, 0, NULL, to, out);
}

weft_status *spmd_combine_cost(const spmd_mover *m, const hlo_shape *whole, const spmd_sharding *from,
                               spmd_mask partial, const spmd_sharding *to, weft_arena *scratch, double *out_bytes)
{
  double bytes = (double)hlo_shape_bytes(whole);
  spmd_sharding cur;
  step s;

  *out_bytes = 0;
  for (int d = 0; d < from->rank; d++) bytes /= (double)spmd_axes_size(m->grid, &from->dims[d], 0);
  WEFT_TRY(spmd_sharding_copy(scratch, from, &cur));
  for (; (s = next_step(m->grid, &cur, to, partial)).kind != DONE; advance(&cur, to, &partial, &s)) {
    double n = (double)spmd_axes_size(m->grid, &s.axes, 0);
    switch (s.kind) {
    case SUM: *out_bytes += 2 * bytes * (n - 1) / n; break;
    case SCATTER_SUM:
      *out_bytes += bytes * (n - 1) / n;
      bytes /= n;
      break;
    case PERMUTE: *out_bytes += bytes; break;
    case EXCHANGE: *out_bytes += bytes * (n - 1) / n; break;
    case SLICE: bytes /= n; break;
    case PLACE: bytes *= n; break;
    case GATHER:
      *out_bytes += bytes * (n - 1);
      bytes *= n;
      break;
    default: break;
    }
  }
  return NULL;
}

/* ---- shardings that no axes express ------------------------------------------------------------------------------ */

weft_status *spmd_slice(spmd_mover *m, pass_build *b, hlo_instr *whole, const spmd_tiling *t, hlo_instr **out)
{
  hlo_instr *operands[HLO_MAX_RANK + 1];
  const hlo_shape *tile;
  int64_t *table = WEFT_ARENA_ARRAY(m->arena, int64_t, t->device_count);

  *out = whole;
  if (spmd_tiling_is_whole(t)) return NULL;
  WEFT_TRY_ALLOC(table);
  WEFT_TRY(spmd_tile_shape(t, whole->shape, m->arena, &tile));
  operands[0] = whole;
  for (int d = t->rank - 1, stride = (int)t->copies; d >= 0; stride *= (int)t->tiles[d], d--) {
    for (int64_t i = 0; i < t->device_count; i++) table[t->devices[i]] = i / stride % t->tiles[d] * tile->dims[d];
    WEFT_TRY(look_up(m, b, table, &operands[d + 1]));
  }
  *out = pb_instr(b, HLO_DYNAMIC_SLICE, tile, t->rank + 1, operands);
  if (*out) (*out)->u.slice_sizes = pb_ints(b, tile->rank, tile->dims);
  return pass_build_finish(b);
}

weft_status *spmd_gather(spmd_mover *m, pass_build *b, hlo_instr *tile, const spmd_tiling *t, hlo_instr **out)
{
  int64_t groups = t->copies, size = t->device_count / groups, dims[2 * HLO_MAX_RANK], permutation[2 * HLO_MAX_RANK],
          full[HLO_MAX_RANK], *ids = WEFT_ARENA_ARRAY(m->arena, int64_t, t->device_count);
  const hlo_collective_attrs *attrs;
  const hlo_shape *shape;
  hlo_instr *gathered;
  int rank = t->rank;

  *out = tile;
  if (spmd_tiling_is_whole(t)) return NULL;
  if (2 * rank > HLO_MAX_RANK) return WEFT_ERR(UNIMPLEMENTED, "gathering a sharded array of rank %d", rank);
  WEFT_TRY_ALLOC(ids);
  for (int64_t g = 0; g < groups; g++)
    for (int64_t i = 0; i < size; i++) ids[g * size + i] = t->devices[i * t->copies + g];
  WEFT_TRY(group_attrs(m, groups, size, ids, &attrs));
  /* the tiles one behind the other; then each grid dimension moves beside the array dimension that it cuts */
  dims[0] = size;
  for (int i = 0; i < rank; i++) dims[i + 1] = tile->shape->dims[i];
  shape = hlo_shape_array(m->arena, tile->shape->type, rank + 1, dims);
  WEFT_TRY_ALLOC(shape);
  dims[0] = 1;
  gathered = collective(b, HLO_ALL_GATHER, shape, pb_reshape(b, tile, rank + 1, dims), attrs);
  if (gathered) gathered->dims = pb_ints(b, 1, (int64_t[]){0});
  for (int i = 0; i < rank; i++) {
    dims[i] = t->tiles[i];
    dims[rank + i] = shape->dims[i + 1];
    permutation[2 * i] = i;
    permutation[2 * i + 1] = rank + i;
    full[i] = t->tiles[i] * shape->dims[i + 1];
  }
  *out = pb_reshape(b, pb_transpose(b, pb_reshape(b, gathered, 2 * rank, dims), permutation), rank, full);
  return pass_build_finish(b);
}
