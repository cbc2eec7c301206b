/* passes/spmd/edges.c -- operations along a cut dimension whose tiles need rows of other tiles (edges.h). */
#include <config.h>

#include "passes/spmd/edges.h"

#include <string.h>

#include "passes/util.h"

/* Partition p needs the rows [p * step + first, p * step + first + size). */
typedef struct span { int64_t step, first, size; } span;

/* How a dimension of `rows` rows in `n` tiles gives each partition its span: `left` and `right` rows come from the
 * tiles before and after its own; then `before` and `after` rows that no tile has are added around. */
typedef struct plan { int64_t n, rows, tile, left, right, before, after; span want; } plan;

/* ---- what each operation needs ----------------------------------------------------------------------------------- */

static span window_span(const hlo_window_dim *w, int64_t q)
{
  return (span){q * w->stride, -w->pad_low, (q - 1) * w->stride + (w->size - 1) * w->window_dilation + 1};
}

/* The span of operand `operand` along its dimension `dim` that `q` rows of the result need. */
static span span_of(const hlo_instr *instr, int operand, int dim, int64_t q)
{
  int64_t at = 0;

  switch (instr->op) {
  case HLO_SLICE: {
    int64_t stride = instr->u.slice->stride.count ? instr->u.slice->stride.v[dim] : 1;
    return (span){q * stride, instr->u.slice->start.v[dim], (q - 1) * stride + 1};
  }
  case HLO_PAD: return (span){q, -instr->u.pad.dims[dim].low, q};
  case HLO_CONCATENATE:
    for (int i = 0; i < operand; i++) at += instr->operands[i]->shape->dims[dim];
    return (span){q, -at, q};
  case HLO_CONVOLUTION:
    for (int i = 0; i < instr->u.conv->lhs_spatial.count; i++)
      if (instr->u.conv->lhs_spatial.v[i] == dim) at = i;
    return window_span(&instr->u.conv->window.dims[at], q);
  default: return window_span(&instr->u.window->dims[dim], q);
  }
}

static plan plan_of(const hlo_instr *instr, int operand, int dim, int64_t n, int64_t result_rows)
{
  plan p = {.n = n, .rows = instr->operands[operand]->shape->dims[dim], .want = span_of(instr, operand, dim, result_rows / n)};

  p.tile = p.rows / n;
  for (int64_t i = 0; i < n; i++) {
    int64_t from = WEFT_MAX(i * p.want.step + p.want.first, 0),
            to = WEFT_MIN(i * p.want.step + p.want.first + p.want.size, p.rows);
    if (from >= to) continue;
    p.left = WEFT_MAX(p.left, i * p.tile - from);
    p.right = WEFT_MAX(p.right, to - (i + 1) * p.tile);
  }
  for (int64_t i = 0; i < n; i++) {
    int64_t begin = i * (p.want.step - p.tile) + p.want.first + p.left;
    p.before = WEFT_MAX(p.before, -begin);
    p.after = WEFT_MAX(p.after, begin + p.want.size - (p.left + p.tile + p.right));
  }
  return p;
}

/* Where partition i's span begins in the rows that it has. */
static int64_t begin_of(const plan *p, int64_t i)
{
  return i * (p->want.step - p->tile) + p->want.first + p->left + p->before;
}

/* ---- over an operation's fetched dimensions ---------------------------------------------------------------------- */

static int dim_of(const spmd_factors *f, int t, int factor)
{
  for (int u = 0; u < f->tensors[t].use_count; u++)
    if (f->tensors[t].uses[u].factor == factor) return f->tensors[t].uses[u].dim;
  return -1;
}

bool spmd_edges_needed(const spmd_factors *f, const spmd_axes *axes)
{
  for (int i = 0; i < f->count; i++)
    if (f->factor[i].is_fetched && axes[i].count) return true;
  return false;
}

double spmd_edges_cost(const spmd_grid *grid, const hlo_instr *instr, const spmd_factors *f, const spmd_axes *axes,
                       const spmd_sharding *tensors)
{
  int result = f->operand_count;
  double bytes = 0;

  for (int i = 0; i < f->count; i++) {
    int64_t n = spmd_axes_size(grid, &axes[i], 0);
    if (!f->factor[i].is_fetched || n == 1) continue;
    for (int t = 0; t < f->operand_count; t++) {
      int dim = dim_of(f, t, i);
      double tile = 1;
      plan p;
      if (dim < 0) continue;
      tile = (double)hlo_shape_bytes(f->tensors[t].shape);
      for (int d = 0; d < tensors[t].rank; d++) tile /= (double)spmd_axes_size(grid, &tensors[t].dims[d], 0);
      if (instr->op == HLO_REVERSE) {
        bytes += tile;
        continue;
      }
      p = plan_of(instr, t, dim, n, f->tensors[result].shape->dims[dim_of(f, result, i)]);
      bytes += tile / (double)WEFT_MAX(p.tile, 1) * (double)(p.left + p.right);
    }
  }
  return bytes;
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

/* Rows [from, to) of the tile on the partition that is `by` places before (negative: behind) this one along `axes`. */
static weft_status *rows_of(spmd_mover *m, pass_build *b, hlo_instr *x, int dim, const spmd_axes *axes, int64_t by,
                            int64_t from, int64_t to, hlo_instr **out)
{
  int64_t n = spmd_axes_size(m->grid, axes, 0), *offsets = WEFT_ARENA_ARRAY(m->arena, int64_t, n);

  WEFT_TRY_ALLOC(offsets);
  for (int64_t i = 0; i < n; i++) offsets[i] = i - by;
  return spmd_permute_along(m, b, pb_slice_dim(b, x, dim, from, to), axes, offsets, out);
}

/* The tile with its neighbours' rows on both sides. */
static weft_status *widen(spmd_mover *m, pass_build *b, hlo_instr *x, int dim, const spmd_axes *axes, const plan *p,
                          hlo_instr **out)
{
  hlo_instr **parts;
  int64_t lefts = (p->left + p->tile - 1) / p->tile, rights = (p->right + p->tile - 1) / p->tile;
  int count = 0;

  parts = WEFT_ARENA_ARRAY(m->arena, hlo_instr *, lefts + rights + 1);
  WEFT_TRY_ALLOC(parts);
  for (int64_t k = lefts; k > 0; k--) {
    int64_t rows = WEFT_MIN(p->tile, p->left - (k - 1) * p->tile);
    WEFT_TRY(rows_of(m, b, x, dim, axes, k, p->tile - rows, p->tile, &parts[count++]));
  }
  parts[count++] = x;
  for (int64_t k = 1; k <= rights; k++)
    WEFT_TRY(rows_of(m, b, x, dim, axes, -k, 0, WEFT_MIN(p->tile, p->right - (k - 1) * p->tile), &parts[count++]));
  *out = count > 1 ? pb_concat(b, dim, count, parts) : x;
  return pass_build_finish(b);
}

/* s32[]: a function of this partition's number along `axes`, from a table of its values. */
static weft_status *by_number(spmd_mover *m, pass_build *b, const spmd_axes *axes, const int64_t *values,
                              hlo_instr **out)
{
  bool same = true;

  for (int64_t i = 1; i < spmd_axes_size(m->grid, axes, 0); i++) same &= values[i] == values[0];
  if (!same) return spmd_value_along(m, b, axes, values, out);
  *out = pb_int(b, WEFT_S32, values[0]);
  return pass_build_finish(b);
}

/* The numbers that rows have in the whole array: first + 0, 1, ... along `dim`, in an array of that shape. */
static hlo_instr *row_numbers(pass_build *b, hlo_instr *first, const hlo_shape *shape, int dim, weft_arena *arena)
{
  const hlo_shape *numbers = hlo_shape_array(arena, WEFT_S32, shape->rank, shape->dims);

  return numbers ? pb_add(b, pb_iota(b, numbers, dim), pb_fill(b, first, numbers)) : NULL;
}

/* x where its row is one of the array's, `fill` elsewhere. */
static weft_status *mask(spmd_mover *m, pass_build *b, hlo_instr *x, int dim, const spmd_axes *axes, const plan *p,
                         hlo_instr *fill, hlo_instr **out)
{
  int64_t *firsts = WEFT_ARENA_ARRAY(m->arena, int64_t, p->n);
  hlo_instr *first, *row;

  WEFT_TRY_ALLOC(firsts);
  for (int64_t i = 0; i < p->n; i++) firsts[i] = i * p->want.step + p->want.first;
  WEFT_TRY(by_number(m, b, axes, firsts, &first));
  row = row_numbers(b, first, x->shape, dim, m->arena);
  x = pb_select(b, pb_compare(b, HLO_GE, row, row ? pb_splat_int(b, row, 0) : NULL), x, pb_fill(b, fill, x->shape));
  *out = pb_select(b, pb_compare(b, HLO_LT, row, row ? pb_splat_int(b, row, p->rows) : NULL), x,
                   pb_fill(b, fill, x ? x->shape : NULL));
  return pass_build_finish(b);
}

/* Cuts the span out of the rows that a partition has. */
static weft_status *cut_span(spmd_mover *m, pass_build *b, hlo_instr *x, int dim, const spmd_axes *axes, const plan *p,
                             hlo_instr **out)
{
  int64_t dims[HLO_MAX_RANK], *begins = WEFT_ARENA_ARRAY(m->arena, int64_t, p->n);
  hlo_instr *operands[HLO_MAX_RANK + 1] = {x};
  bool same = true;

  WEFT_TRY_ALLOC(begins);
  for (int64_t i = 0; i < p->n; i++) {
    begins[i] = begin_of(p, i);
    same &= begins[i] == begins[0];
  }
  if (same) {
    *out = pb_slice_dim(b, x, dim, begins[0], begins[0] + p->want.size);
    return pass_build_finish(b);
  }
  for (int d = 0; d < x->shape->rank; d++) {
    dims[d] = d == dim ? p->want.size : x->shape->dims[d];
    if (d == dim) WEFT_TRY(spmd_value_along(m, b, axes, begins, &operands[d + 1]));
    else operands[d + 1] = pb_int(b, WEFT_S32, 0);
  }
  *out = pb_instr(b, HLO_DYNAMIC_SLICE, hlo_shape_array(m->arena, x->shape->type, x->shape->rank, dims),
                  x->shape->rank + 1, operands);
  if (*out) (*out)->u.slice_sizes = pb_ints(b, x->shape->rank, dims);
  return pass_build_finish(b);
}

/* `fill` NULL: rows outside the array are zeros, which a permute leaves where no partition sends. */
static weft_status *fetch(spmd_mover *m, pass_build *b, hlo_instr *x, int dim, const spmd_axes *axes, const plan *p,
                          hlo_instr *fill, hlo_instr **out)
{
  hlo_pad_dim pads[HLO_MAX_RANK] = {{0}};

  WEFT_TRY(widen(m, b, x, dim, axes, p, &x));
  pads[dim] = (hlo_pad_dim){p->before, p->after, 0};
  if (p->before || p->after) x = pb_pad(b, x, pb_scalar(b, x->shape->type, 0), pads);
  WEFT_TRY(pass_build_finish(b));
  WEFT_TRY(cut_span(m, b, x, dim, axes, p, out));
  return fill ? mask(m, b, *out, dim, axes, p, fill, out) : NULL;
}

/* True if some span reaches beyond the array. */
static bool reaches_out(const plan *p)
{
  return p->want.first < 0 || (p->n - 1) * p->want.step + p->want.first + p->want.size > p->rows;
}

static weft_status *mirror(spmd_mover *m, pass_build *b, hlo_instr *x, const spmd_axes *axes, hlo_instr **out)
{
  int64_t n = spmd_axes_size(m->grid, axes, 0), *sources = WEFT_ARENA_ARRAY(m->arena, int64_t, n);

  WEFT_TRY_ALLOC(sources);
  for (int64_t i = 0; i < n; i++) sources[i] = n - 1 - i;
  return spmd_permute_along(m, b, x, axes, sources, out);
}

weft_status *spmd_edges_fetch(spmd_mover *m, pass_build *b, const hlo_instr *instr, const spmd_factors *f,
                              const spmd_axes *axes, hlo_instr **operands)
{
  int result = f->operand_count;

  for (int i = 0; i < f->count; i++) {
    int64_t n = spmd_axes_size(m->grid, &axes[i], 0);
    if (!f->factor[i].is_fetched || n == 1) continue;
    for (int t = 0; t < f->operand_count; t++) {
      int dim = dim_of(f, t, i);
      plan p;
      bool fills = instr->op == HLO_PAD || instr->op == HLO_REDUCE_WINDOW;
      if (dim < 0) continue;
      if (instr->op == HLO_REVERSE) {
        WEFT_TRY(mirror(m, b, operands[t], &axes[i], &operands[t]));
        continue;
      }
      p = plan_of(instr, t, dim, n, f->tensors[result].shape->dims[dim_of(f, result, i)]);
      WEFT_TRY(
        fetch(m, b, operands[t], dim, &axes[i], &p, fills && reaches_out(&p) ? operands[1] : NULL, &operands[t]));
    }
  }
  return NULL;
}

/* Each row comes from the operand that has it: all operands are as long as the result. */
static weft_status *select_rows(spmd_mover *m, pass_build *b, const hlo_instr *instr, const spmd_axes *axes,
                                hlo_instr *const *operands, hlo_instr **made)
{
  int dim = (int)instr->dims.v[0];
  int64_t end = instr->shape->dims[dim];
  hlo_instr *first, *row, *x = operands[instr->operand_count - 1];

  WEFT_TRY(spmd_number_along(m, b, axes, x->shape->dims[dim], &first));
  row = row_numbers(b, first, x->shape, dim, m->arena);
  for (int i = instr->operand_count - 2; i >= 0; i--) {
    end -= instr->operands[i + 1]->shape->dims[dim];
    x = pb_select(b, pb_compare(b, HLO_LT, row, row ? pb_splat_int(b, row, end) : NULL), operands[i], x);
  }
  *made = x;
  return pass_build_finish(b);
}

static weft_status *drop_padding(weft_arena *arena, hlo_window *window, int dim)
{
  hlo_window_dim *dims = weft_arena_memdup(arena, window->dims, (size_t)window->rank * sizeof *dims);

  WEFT_TRY_ALLOC(dims);
  dims[dim].pad_low = dims[dim].pad_high = 0;
  window->dims = dims;
  return NULL;
}

static weft_status *finish_dim(spmd_mover *m, pass_build *b, const hlo_instr *instr, int dim, const spmd_axes *axes,
                               hlo_instr *const *operands, hlo_instr **made)
{
  hlo_instr *x = *made;

  switch (instr->op) {
  case HLO_SLICE: {
    int64_t start[HLO_MAX_RANK], limit[HLO_MAX_RANK];
    for (int d = 0; d < x->shape->rank; d++) {
      start[d] = d == dim ? 0 : x->u.slice->start.v[d];
      limit[d] = d == dim ? x->operands[0]->shape->dims[d] : x->u.slice->limit.v[d];
    }
    WEFT_TRY(pass_build_finish(b));
    return hlo_set_slice(x, x->shape->rank, start, limit, x->u.slice->stride.v);
  }
  case HLO_PAD: {
    hlo_pad_dim *dims = weft_arena_memdup(m->arena, x->u.pad.dims, (size_t)x->u.pad.rank * sizeof *dims);
    WEFT_TRY_ALLOC(dims);
    dims[dim] = (hlo_pad_dim){0};
    x->u.pad.dims = dims;
    return NULL;
  }
  case HLO_CONCATENATE: WEFT_TRY(select_rows(m, b, instr, axes, operands, made)); return hlo_remove(x);
  case HLO_CONVOLUTION: {
    hlo_conv_attrs *c = weft_arena_memdup(m->arena, x->u.conv, sizeof *c);
    int at = 0;
    WEFT_TRY_ALLOC(c);
    while (c->out_spatial.v[at] != dim) at++;
    x->u.conv = c;
    return drop_padding(m->arena, &c->window, at);
  }
  case HLO_REDUCE_WINDOW: {
    hlo_window *w = weft_arena_memdup(m->arena, x->u.window, sizeof *w);
    WEFT_TRY_ALLOC(w);
    x->u.window = w;
    return drop_padding(m->arena, w, dim);
  }
  default: return NULL;
  }
}

weft_status *spmd_edges_finish(spmd_mover *m, pass_build *b, const hlo_instr *instr, const spmd_factors *f,
                               const spmd_axes *axes, hlo_instr *const *operands, hlo_instr **made)
{
  for (int i = 0; i < f->count; i++)
    if (f->factor[i].is_fetched && axes[i].count)
      WEFT_TRY(finish_dim(m, b, instr, dim_of(f, f->operand_count, i), &axes[i], operands, made));
  return NULL;
}
