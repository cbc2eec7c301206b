/* passes/spmd/parts.c -- operations in which each partition handles its own rows of a cut dimension (parts.h). */
#include <config.h>

#include "passes/spmd/parts.h"

#include "passes/util.h"

/* A factor of which each partition handles its own rows: the axes cut the `rows` rows of dimension `dim` of the
 * first operand into `n` tiles of `tile` rows. */
typedef struct cut { int dim; int64_t n, rows, tile; const spmd_axes *axes; } cut;

static bool next_cut(const spmd_mover *m, const spmd_factors *f, const spmd_axes *axes, int *factor, cut *out)
{
  for (; *factor < f->count; ++*factor) {
    if (!f->factor[*factor].in_parts || !axes[*factor].count) continue;
    for (int u = 0; u < f->tensors[0].use_count; u++)
      if (f->tensors[0].uses[u].factor == *factor) out->dim = f->tensors[0].uses[u].dim;
    out->axes = &axes[*factor];
    out->n = spmd_axes_size(m->grid, out->axes, 0);
    out->rows = f->tensors[0].shape->dims[out->dim];
    out->tile = out->rows / out->n;
    ++*factor;
    return true;
  }
  return false;
}

bool spmd_parts_fit(const hlo_instr *instr, const spmd_factors *f, int i, int64_t n)
{
  const hlo_shape *slice = instr->op == HLO_DYNAMIC_SLICE          ? instr->shape
                           : instr->op == HLO_DYNAMIC_UPDATE_SLICE ? instr->operands[1]->shape
                                                                   : NULL;

  for (int u = 0; slice && u < f->tensors[0].use_count; u++)
    if (f->tensors[0].uses[u].factor == i && f->factor[i].size / n < slice->dims[f->tensors[0].uses[u].dim])
      return false;
  return true;
}

bool spmd_parts_needed(const spmd_factors *f, const spmd_axes *axes)
{
  for (int i = 0; i < f->count; i++)
    if (f->factor[i].in_parts && axes[i].count) return true;
  return false;
}

static bool is_indexed_by(const hlo_instr *instr, int operand, int64_t rows)
{
  weft_dtype index = instr->operands[operand]->shape->type, type = instr->shape->type;

  return weft_dtype_bits(index) >= 32 && rows <= INT32_MAX && weft_dtype_bits(type) >= 8 &&
         !weft_dtype_is_complex(type);
}

bool spmd_parts_can_index(const hlo_instr *instr, int operand, int64_t dim)
{
  return hlo_shape_is_array(instr->shape) && is_indexed_by(instr, operand, instr->operands[0]->shape->dims[dim]);
}

/* ---- dynamic slices ---------------------------------------------------------------------------------------------- */

/* s32[]: the first row of the slice, minus the first row of this partition's tile. */
static weft_status *local_start(spmd_mover *m, pass_build *b, hlo_instr *start, int64_t size, const cut *c,
                                hlo_instr **out)
{
  hlo_instr *origin;

  if (!start) return NULL;
  start = pb_op2(b, HLO_MAXIMUM, start, pb_int(b, start->shape->type, 0));
  start = pb_op2(b, HLO_MINIMUM, start, start ? pb_int(b, start->shape->type, c->rows - size) : NULL);
  WEFT_TRY(spmd_number_along(m, b, c->axes, c->tile, &origin));
  *out = pb_sub(b, pb_convert(b, start, WEFT_S32), origin);
  return pass_build_finish(b);
}

static hlo_instr *clamp(pass_build *b, hlo_instr *x, int64_t low, int64_t high)
{
  return pb_op2(b, HLO_MINIMUM, pb_op2(b, HLO_MAXIMUM, x, pb_int(b, WEFT_S32, low)), pb_int(b, WEFT_S32, high));
}

/* The rows start, start + 1, ... of x, as many as x has, with zeros for rows that x does not have. */
static hlo_instr *shifted(spmd_mover *m, pass_build *b, hlo_instr *x, hlo_instr *start, int dim)
{
  hlo_pad_dim pads[HLO_MAX_RANK] = {{0}};
  hlo_instr *operands[HLO_MAX_RANK + 1], *made;
  const hlo_shape *shape;

  if (!x) return NULL;
  shape = x->shape;
  pads[dim] = (hlo_pad_dim){shape->dims[dim], shape->dims[dim], 0};
  operands[0] = pb_pad(b, x, pb_scalar(b, shape->type, 0), pads);
  for (int d = 0; d < shape->rank; d++) operands[d + 1] = pb_int(b, WEFT_S32, 0);
  operands[dim + 1] = clamp(b, pb_add(b, start, pb_int(b, WEFT_S32, shape->dims[dim])), 0, 2 * shape->dims[dim]);
  made = pb_instr(b, HLO_DYNAMIC_SLICE, hlo_shape_array(m->arena, shape->type, shape->rank, shape->dims),
                  shape->rank + 1, operands);
  if (made) made->u.slice_sizes = pb_ints(b, shape->rank, shape->dims);
  return made;
}

/* `instr`, a dynamic slice or update, with `start` as its index of dimension `dim`; update: the rows to write, or
 * NULL. */
static hlo_instr *with_start(pass_build *b, const hlo_instr *instr, int dim, hlo_instr *start, hlo_instr *update)
{
  hlo_instr *operands[HLO_MAX_RANK + 2], *made;
  int first = instr->op == HLO_DYNAMIC_SLICE ? 1 : 2;

  for (int i = 0; i < instr->operand_count; i++) operands[i] = instr->operands[i];
  operands[first + dim] = start ? pb_convert(b, start, instr->operands[first + dim]->shape->type) : NULL;
  if (update) operands[1] = update;
  made = pb_clone(b, instr, operands);
  if (made) made->shape = instr->shape;
  return made;
}

static weft_status *read_slice(spmd_mover *m, pass_build *b, hlo_instr *made, const cut *c, hlo_instr **out)
{
  int64_t size = made->shape->dims[c->dim];
  hlo_instr *start, *near;

  WEFT_TRY(local_start(m, b, made->operands[1 + c->dim], size, c, &start));
  near = clamp(b, start, 0, c->tile - size);
  *out = shifted(m, b, with_start(b, made, c->dim, near, NULL), pb_sub(b, start, near), c->dim);
  return pass_build_finish(b);
}

/* Reads the rows near the update, replaces those of them that the update has, and writes all of them back. */
static weft_status *write_slice(spmd_mover *m, pass_build *b, hlo_instr *made, const cut *c, hlo_instr **out)
{
  hlo_instr *update = made->operands[1], *operands[HLO_MAX_RANK + 1] = {made->operands[0]}, *start, *near, *old, *by, *row, *news;
  const hlo_shape *shape = update->shape, *numbers = hlo_shape_array(m->arena, WEFT_S32, shape->rank, shape->dims);
  int64_t size = shape->dims[c->dim];

  WEFT_TRY_ALLOC(numbers);
  WEFT_TRY(local_start(m, b, made->operands[2 + c->dim], size, c, &start));
  near = clamp(b, start, 0, c->tile - size);
  by = pb_sub(b, near, start); /* row i of those read is row i + by of the update */
  for (int d = 0; d < shape->rank; d++) operands[d + 1] = made->operands[2 + d];
  operands[c->dim + 1] = near ? pb_convert(b, near, made->operands[2 + c->dim]->shape->type) : NULL;
  old = pb_instr(b, HLO_DYNAMIC_SLICE, shape, shape->rank + 1, operands);
  if (old) old->u.slice_sizes = pb_ints(b, shape->rank, shape->dims);
  row = pb_add(b, pb_iota(b, numbers, c->dim), pb_fill(b, by, numbers));
  news = pb_select(b, pb_compare(b, HLO_LT, row, row ? pb_splat_int(b, row, size) : NULL),
                   shifted(m, b, update, by, c->dim), old);
  news = pb_select(b, pb_compare(b, HLO_GE, row, row ? pb_splat_int(b, row, 0) : NULL), news, old);
  *out = with_start(b, made, c->dim, near, news);
  return pass_build_finish(b);
}

/* ---- gather and scatter ------------------------------------------------------------------------------------------ */

/* The component of the index vector for operand dimension `dim`. */
static int component_of(hlo_ints map, int dim)
{
  for (int i = 0; i < map.count; i++)
    if (map.v[i] == dim) return i;
  return -1;
}

/* True in the place of that component and false elsewhere, in the shape of the indices. */
static hlo_instr *selects(pass_build *b, const hlo_shape *indices, int64_t vector_dim, int component, weft_arena *arena)
{
  const hlo_shape *shape = hlo_shape_array(arena, indices->type, indices->rank, indices->dims);
  hlo_instr *number;

  if (!shape) return NULL;
  if (vector_dim == indices->rank) return pb_fill(b, pb_scalar(b, WEFT_PRED, 1), indices);
  number = pb_iota(b, shape, vector_dim);
  return pb_compare(b, HLO_EQ, number, number ? pb_splat_int(b, number, component) : NULL);
}

/* The indices, counted from this partition's tile on. */
static weft_status *local_indices(spmd_mover *m, pass_build *b, hlo_instr *indices, int64_t vector_dim, int component,
                                  const cut *c, hlo_instr **out)
{
  hlo_instr *origin, *moved;

  WEFT_TRY(spmd_number_along(m, b, c->axes, c->tile, &origin));
  moved = pb_sub(b, indices, pb_fill(b, pb_convert(b, origin, indices->shape->type), indices->shape));
  *out = pb_select(b, selects(b, indices->shape, vector_dim, component, m->arena), moved, indices);
  return pass_build_finish(b);
}

static weft_status *write_indexed(spmd_mover *m, pass_build *b, hlo_instr *made, const cut *c, hlo_instr **out)
{
  const hlo_scatter_attrs *s = made->u.scatter;
  hlo_instr *indices;

  WEFT_TRY(local_indices(m, b, made->operands[1], s->index_vector_dim,
                         component_of(s->scatter_dims_to_operand_dims, c->dim), c, &indices));
  /* rows of other tiles are out of range, and scatter skips them */
  *out = pb_clone(b, made, (hlo_instr *[]){made->operands[0], indices, made->operands[2]});
  WEFT_TRY(pass_build_finish(b));
  (*out)->shape = made->shape;
  return NULL;
}

static weft_status *read_indexed(spmd_mover *m, pass_build *b, hlo_instr *made, const cut *c, hlo_instr **out)
{
  const hlo_gather_attrs *g = made->u.gather;
  hlo_instr *indices = made->operands[1], *bounded, *local, *here, *one;
  int component = component_of(g->start_index_map, c->dim), rank = 0, at = 0;
  int64_t dims[HLO_MAX_RANK], start[HLO_MAX_RANK], limit[HLO_MAX_RANK], map[HLO_MAX_RANK];

  bounded = pb_op2(b, HLO_MAXIMUM, indices, pb_splat_int(b, indices, 0));
  bounded = pb_op2(b, HLO_MINIMUM, bounded, pb_splat_int(b, indices, c->rows - 1));
  bounded = pb_select(b, selects(b, indices->shape, g->index_vector_dim, component, m->arena), bounded, indices);
  WEFT_TRY(pass_build_finish(b));
  WEFT_TRY(local_indices(m, b, bounded, g->index_vector_dim, component, c, &local));
  /* true where the component is in this tile, in the shape of the batch dimensions */
  for (int d = 0; d < indices->shape->rank; d++) {
    bool vector = d == g->index_vector_dim;
    start[d] = vector ? component : 0;
    limit[d] = vector ? component + 1 : indices->shape->dims[d];
    if (!vector) dims[rank++] = indices->shape->dims[d];
  }
  for (int d = 0; d < made->shape->rank; d++)
    if (!pass_ints_contain(g->offset_dims, d)) map[at++] = d;
  one = local;
  if (g->index_vector_dim < indices->shape->rank) {
    int64_t sizes[HLO_MAX_RANK];
    for (int d = 0; d < indices->shape->rank; d++) sizes[d] = limit[d] - start[d];
    one =
      pb_instr(b, HLO_SLICE, hlo_shape_array(m->arena, indices->shape->type, indices->shape->rank, sizes), 1, &local);
    if (one) WEFT_TRY(hlo_set_slice(one, indices->shape->rank, start, limit, NULL));
    one = pb_reshape(b, one, rank, dims);
  }
  WEFT_TRY(pass_build_finish(b));
  here = pb_op2(b, HLO_AND, pb_compare(b, HLO_GE, one, pb_splat_int(b, one, 0)),
                pb_compare(b, HLO_LT, one, pb_splat_int(b, one, c->tile)));
  *out = pb_clone(b, made, (hlo_instr *[]){made->operands[0], local});
  WEFT_TRY(pass_build_finish(b));
  (*out)->shape = made->shape;
  *out = pb_select(b, pb_broadcast(b, here, made->shape->rank, made->shape->dims, map), *out, pb_splat(b, *out, 0));
  return pass_build_finish(b);
}

/* ---- cumulative windows ------------------------------------------------------------------------------------------ */

bool spmd_parts_is_cumulative(const hlo_instr *instr, int *out_dim, bool *out_reverse)
{
  const hlo_window *w = instr->u.window;
  int found = 0;

  if (instr->operand_count != 2 || hlo_reducer_op(instr->called[0]) == HLO_OPCODE_COUNT ||
      !pass_is_identity(hlo_reducer_op(instr->called[0]), instr->operands[1]))
    return false;
  for (int d = 0; d < w->rank; d++) {
    const hlo_window_dim *x = &w->dims[d];
    int64_t rows = instr->operands[0]->shape->dims[d];
    if (x->stride != 1 || x->base_dilation != 1 || x->window_dilation != 1) return false;
    if (x->size == 1 && !x->pad_low && !x->pad_high) continue;
    if (x->size != rows || !((x->pad_low == rows - 1 && !x->pad_high) || (x->pad_high == rows - 1 && !x->pad_low)))
      return false;
    *out_dim = d;
    *out_reverse = x->pad_high > 0;
    found++;
  }
  return found == 1;
}

/* The window within the tile, then the totals of the tiles before (or behind) it. */
static weft_status *accumulate(spmd_mover *m, pass_build *b, const hlo_instr *instr, hlo_instr *made, const cut *c,
                               hlo_instr **out)
{
  hlo_opcode op = hlo_reducer_op(instr->called[0]);
  hlo_window *w = weft_arena_memdup(m->arena, made->u.window, sizeof *w);
  hlo_window_dim *dims;
  hlo_instr *own, *totals, *number, *row, *sum;
  const hlo_shape *numbers;
  int64_t map[HLO_MAX_RANK], last;
  int dim = c->dim, at = 0;
  bool reverse = false;

  WEFT_TRY_ALLOC(w);
  (void)spmd_parts_is_cumulative(instr, &dim, &reverse);
  dims = weft_arena_memdup(m->arena, w->dims, (size_t)w->rank * sizeof *dims);
  WEFT_TRY_ALLOC(dims);
  dims[dim].size = c->tile;
  dims[dim].pad_low = reverse ? 0 : c->tile - 1;
  dims[dim].pad_high = reverse ? c->tile - 1 : 0;
  w->dims = dims;
  own = pb_clone(b, made, made->operands);
  WEFT_TRY(pass_build_finish(b));
  own->u.window = w;
  own->shape = made->shape;
  last = reverse ? 0 : c->tile - 1;
  WEFT_TRY(spmd_gather_along(m, b, pb_slice_dim(b, own, dim, last, last + 1), dim, c->axes, &totals));
  WEFT_TRY(spmd_number_along(m, b, c->axes, 1, &number));
  numbers = hlo_shape_array(m->arena, WEFT_S32, totals->shape->rank, totals->shape->dims);
  WEFT_TRY_ALLOC(numbers);
  row = pb_iota(b, numbers, dim);
  totals = pb_select(b, pb_compare(b, reverse ? HLO_GT : HLO_LT, row, pb_fill(b, number, numbers)), totals,
                     pb_fill(b, made->operands[1], totals->shape));
  sum = pb_reduce(b, totals, made->operands[1], 1, (int64_t[]){dim}, instr->called[0]);
  for (int d = 0; d < own->shape->rank; d++)
    if (d != dim) map[at++] = d;
  *out = pb_op2(b, op, pb_broadcast(b, sum, own->shape->rank, own->shape->dims, map), own);
  return pass_build_finish(b);
}

/* ---- reductions of several arrays -------------------------------------------------------------------------------- */

/* The results of all partitions, one behind the other in a new dimension, are reduced once more. */
static weft_status *reduce_again(spmd_mover *m, pass_build *b, const hlo_instr *instr, hlo_instr *made, const cut *c,
                                 hlo_instr **out)
{
  int count = instr->operand_count / 2;
  hlo_instr **operands = WEFT_ARENA_ARRAY(m->arena, hlo_instr *, 2 * count);

  WEFT_TRY_ALLOC(operands);
  for (int i = 0; i < count; i++) {
    hlo_instr *x = pb_gte(b, made, i);
    int64_t dims[HLO_MAX_RANK + 1] = {1};
    WEFT_TRY(pass_build_finish(b));
    for (int d = 0; d < x->shape->rank; d++) dims[d + 1] = x->shape->dims[d];
    x = pb_reshape(b, x, x->shape->rank + 1, dims);
    WEFT_TRY(spmd_gather_along(m, b, x, 0, c->axes, &operands[i]));
    operands[count + i] = made->operands[count + i];
  }
  *out = pb_clone(b, made, operands);
  WEFT_TRY(pass_build_finish(b));
  (*out)->shape = made->shape;
  (*out)->dims = pb_ints(b, 1, (int64_t[]){0});
  return pass_build_finish(b);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

weft_status *spmd_parts_compute(spmd_mover *m, pass_build *b, const hlo_instr *instr, const spmd_factors *f,
                                const spmd_axes *axes, hlo_instr *made, hlo_instr **out)
{
  int factor = 0;
  cut c = {0};

  *out = made;
  while (next_cut(m, f, axes, &factor, &c)) {
    switch (instr->op) {
    case HLO_DYNAMIC_SLICE: WEFT_TRY(read_slice(m, b, *out, &c, out)); break;
    case HLO_DYNAMIC_UPDATE_SLICE: WEFT_TRY(write_slice(m, b, *out, &c, out)); break;
    case HLO_GATHER: WEFT_TRY(read_indexed(m, b, *out, &c, out)); break;
    case HLO_SCATTER: WEFT_TRY(write_indexed(m, b, *out, &c, out)); break;
    case HLO_REDUCE_WINDOW: WEFT_TRY(accumulate(m, b, instr, *out, &c, out)); break;
    default: WEFT_TRY(reduce_again(m, b, instr, *out, &c, out)); break;
    }
  }
  return NULL;
}

weft_status *spmd_parts_combine(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_sharding *from,
                                spmd_mask partial, const spmd_sharding *to, hlo_instr **out)
{
  weft_dtype type = x->shape->type;
  static const weft_dtype bits[] = {[1] = WEFT_U8, [2] = WEFT_U16, [4] = WEFT_U32, [8] = WEFT_U64};
  hlo_computation *any;

  if (type != WEFT_PRED) x = pb_bitcast_convert(b, x, bits[weft_dtype_bytes(type)]);
  WEFT_TRY(pass_build_finish(b));
  WEFT_TRY(hlo_add_reducer(m->module, HLO_OR, x->shape->type, &any));
  WEFT_TRY(spmd_combine(m, b, x, from, partial, any, to, out));
  if (type != WEFT_PRED) *out = pb_bitcast_convert(b, *out, type);
  return pass_build_finish(b);
}
