/* passes/scatter_sorter.c -- scatter-sorter: the updates of a scatter in the order of their places, for a platform
 * whose kernel combines the updates of different places at the same time.
 *
 *     place  = row-major number of each window's place; one number behind all others for windows that do not fit
 *     order  = sort(place, iota), stable
 *     scatter(x, indices taken in that order, updates taken in that order), indices_are_sorted
 *
 * The sort is stable, so the updates of one place are combined in the order that they have in the program, and the
 * result has the same bits.
 * Not sorted: scatters whose indices are unique or sorted, those that atomic operations combine in any order
 * (gen_scatter_in_any_order), those whose windows may overlap without being the same, and short ones. */
#include <config.h>

#include "codegen/model/strategy.h"
#include "passes/build.h"
#include "passes/passes.h"

enum { FEW_WINDOWS = 16 };

/* A scatter as rows: one for each window. */
typedef struct rows_of_scatter {
  hlo_instr *scatter;
  int n;                     /* arrays */
  int64_t windows;
  int batch[HLO_MAX_RANK], batch_count; /* dimensions of the updates that are not of the window */
  hlo_ints to_operand;       /* the operand's dimensions that the index columns choose */
  hlo_instr *index;          /* [windows, columns] */
  int64_t places;            /* 0: no window fits */
} rows_of_scatter;

static const hlo_scatter_attrs *attrs_of(const rows_of_scatter *s) { return s->scatter->u.scatter; }

static const hlo_shape *updates_of(const rows_of_scatter *s) { return s->scatter->operands[s->n + 1]->shape; }

/* The size of the window along dimension `d` of the operand. */
static int64_t window_size(const rows_of_scatter *s, int64_t d)
{
  const hlo_scatter_attrs *a = attrs_of(s);
  int k = 0;

  if (pass_ints_contain(a->inserted_window_dims, d) || pass_ints_contain(a->input_batching_dims, d)) return 1;
  for (int64_t i = 0; i < d; i++)
    k += !pass_ints_contain(a->inserted_window_dims, i) && !pass_ints_contain(a->input_batching_dims, i);
  return updates_of(s)->dims[a->update_window_dims.v[k]];
}

static bool is_wanted(const hlo_instr *scatter, rows_of_scatter *s)
{
  const hlo_scatter_attrs *a = scatter->u.scatter;

  *s = (rows_of_scatter){.scatter = (hlo_instr *)scatter, .n = (scatter->operand_count - 1) / 2, .windows = 1};
  if (a->unique_indices || pass_has_control_edges(scatter) || gen_scatter_in_any_order(scatter)) return false;
  if (a->indices_are_sorted && a->input_batching_dims.count == 0) return false;
  for (int d = 0; d < updates_of(s)->rank; d++) {
    if (pass_ints_contain(a->update_window_dims, d)) continue;
    s->batch[s->batch_count++] = d;
    s->windows *= updates_of(s)->dims[d];
  }
  if (s->windows <= FEW_WINDOWS || s->windows > INT32_MAX || a->scatter_dims_to_operand_dims.count == 0) return false;
  for (int k = 0; k < a->scatter_dims_to_operand_dims.count; k++)
    if (window_size(s, a->scatter_dims_to_operand_dims.v[k]) != 1) return false;
  return hlo_shape_elems(updates_of(s)) > 0;
}

/* ---- indices --------------------------------------------------------------------------------------------------- */

/* Column `i` of the batching dimensions: the number of each window along one of the dimensions of the indices. */
static hlo_instr *batch_column(pass_build *b, const rows_of_scatter *s, weft_dtype type, int i)
{
  const hlo_scatter_attrs *a = attrs_of(s);
  int64_t dims[HLO_MAX_RANK], at = a->scatter_indices_batching_dims.v[i];

  for (int k = 0; k < s->batch_count; k++) dims[k] = updates_of(s)->dims[s->batch[k]];
  const hlo_shape *shape = hlo_shape_array(&b->comp->module->arena, type, s->batch_count, dims);
  return pb_reshape(b, pb_iota(b, shape, at < a->index_vector_dim ? at : at - 1), 2, (int64_t[]){s->windows, 1});
}

static void make_index(pass_build *b, rows_of_scatter *s)
{
  const hlo_scatter_attrs *a = attrs_of(s);
  hlo_instr *x = s->scatter->operands[s->n], *parts[1 + HLO_MAX_RANK];
  int rank = x->shape->rank, count = 1;
  int64_t order[HLO_MAX_RANK], to[2 * HLO_MAX_RANK], columns = a->scatter_dims_to_operand_dims.count;
  bool is_small = x->shape->type == WEFT_S32 || weft_dtype_bytes(x->shape->type) < 4;

  for (int d = 0, k = 0; d < rank; d++)
    if (d != a->index_vector_dim) order[k++] = d;
  order[rank - 1] = a->index_vector_dim < rank ? a->index_vector_dim : rank - 1;
  parts[0] = pb_convert(b, pb_transpose(b, x, order), is_small ? WEFT_S32 : WEFT_S64);
  parts[0] = pb_reshape(b, parts[0], 2, (int64_t[]){s->windows, columns});
  for (int k = 0; k < columns; k++) to[k] = a->scatter_dims_to_operand_dims.v[k];
  for (int i = 0; i < a->input_batching_dims.count; i++, count++) {
    parts[count] = batch_column(b, s, is_small ? WEFT_S32 : WEFT_S64, i);
    to[columns++] = a->input_batching_dims.v[i];
  }
  s->to_operand = pb_ints(b, (int)columns, to);
  s->index = count == 1 ? parts[0] : pb_concat(b, 1, count, parts);
}

static int64_t last_index(const rows_of_scatter *s, int k)
{
  int64_t d = s->to_operand.v[k];
  return s->scatter->operands[0]->shape->dims[d] - window_size(s, d);
}

/* The number of each window's place, [windows]. */
static hlo_instr *place_of(pass_build *b, rows_of_scatter *s)
{
  hlo_instr *place = NULL, *inside = NULL;
  int64_t stride = 1;

  s->places = 1;
  for (int k = 0; k < s->to_operand.count; k++) s->places *= WEFT_MAX(last_index(s, k) + 1, 0);
  for (int k = s->to_operand.count - 1; k >= 0; k--) {
    hlo_instr *at = pb_reshape(b, pb_slice_dim(b, s->index, 1, k, k + 1), 1, &s->windows);
    if (b->error) return NULL;
    hlo_instr *from = pb_compare(b, HLO_GE, at, pb_splat_int(b, at, 0));
    hlo_instr *fits = pb_op2(b, HLO_AND, from, pb_compare(b, HLO_LE, at, pb_splat_int(b, at, last_index(s, k))));
    hlo_instr *wide = pb_convert(b, at, s->places < INT32_MAX ? WEFT_S32 : WEFT_S64);
    if (b->error) return NULL;
    hlo_instr *scaled = pb_mul(b, wide, pb_splat_int(b, wide, stride));
    inside = inside ? pb_op2(b, HLO_AND, inside, fits) : fits;
    place = place ? pb_add(b, place, scaled) : scaled;
    stride *= last_index(s, k) + 1;
  }
  return b->error ? NULL : pb_select(b, inside, place, pb_splat_int(b, place, s->places));
}

/* ---- sorting --------------------------------------------------------------------------------------------------- */

/* The comparator, as a computation before `caller`. */
static weft_status *less_than(hlo_computation *caller, weft_dtype key, hlo_computation **out)
{
  hlo_module *module = caller->module;
  weft_arena *arena = &module->arena;
  const hlo_shape *types[] = {hlo_shape_array(arena, key, 0, NULL), hlo_shape_array(arena, WEFT_S32, 0, NULL)};
  hlo_instr *params[4];
  const char *name;

  WEFT_TRY(hlo_unique_name(module, "by_place", &name));
  WEFT_TRY(hlo_computation_new(module, name, out));
  hlo_computation_move_before(*out, caller);
  for (int i = 0; i < 4; i++) WEFT_TRY(hlo_add_parameter(*out, i, types[i / 2], NULL, &params[i]));
  pass_build b = PASS_BUILD_IN(*out);
  hlo_instr *root = pb_compare(&b, HLO_LT, params[0], params[1]);
  (*out)->root = root;
  return pass_build_finish(&b);
}

/* The numbers of the windows in the order of their places, [windows]. */
static hlo_instr *order_of(pass_build *b, rows_of_scatter *s)
{
  hlo_module *module = b->comp->module;
  hlo_instr *keys = place_of(b, s), *numbers, *sort;
  hlo_computation *less;

  if (b->error) return NULL;
  numbers = pb_iota(b, hlo_shape_array(&module->arena, WEFT_S32, 1, &s->windows), 0);
  if (!b->error) b->error = less_than(b->comp, keys->shape->type, &less);
  if (b->error) return NULL;
  const hlo_shape *shapes[] = {keys->shape, numbers->shape};
  sort = pb_instr(b, HLO_SORT, hlo_shape_tuple(&module->arena, 2, shapes), 2, (hlo_instr *[]){keys, numbers});
  if (!sort) return NULL;
  sort->u.is_stable = true;
  sort->dims = pb_ints(b, 1, (int64_t[]){0});
  if (!b->error) b->error = hlo_set_called(sort, 1, &less);
  return pb_gte(b, sort, 1);
}

/* Rows of x, [windows, ...], in the order of `order`. */
static hlo_instr *take_rows(pass_build *b, hlo_instr *x, hlo_instr *order)
{
  hlo_gather_attrs *a = WEFT_ARENA_NEW(&b->comp->module->arena, hlo_gather_attrs);
  int64_t offsets[HLO_MAX_RANK], sizes[HLO_MAX_RANK], zero = 0;

  if (b->error || !a) return NULL;
  for (int d = 0; d < x->shape->rank; d++) {
    offsets[d] = d + 1;
    sizes[d] = d == 0 ? 1 : x->shape->dims[d];
  }
  *a = (hlo_gather_attrs){.offset_dims = pb_ints(b, x->shape->rank - 1, offsets),
                          .collapsed_slice_dims = pb_ints(b, 1, &zero),
                          .start_index_map = pb_ints(b, 1, &zero),
                          .index_vector_dim = 1,
                          .slice_sizes = pb_ints(b, x->shape->rank, sizes)};
  order = pb_reshape(b, order, 2, (int64_t[]){x->shape->dims[0], 1});
  hlo_instr *taken = pb_instr(b, HLO_GATHER, x->shape, 2, (hlo_instr *[]){x, order});
  if (taken) taken->u.gather = a;
  return taken;
}

/* The updates of array `i` as [windows, window...]. */
static hlo_instr *window_rows(pass_build *b, const rows_of_scatter *s, int i)
{
  hlo_instr *x = s->scatter->operands[s->n + 1 + i];
  const hlo_ints window = attrs_of(s)->update_window_dims;
  int64_t order[HLO_MAX_RANK], dims[HLO_MAX_RANK] = {s->windows};

  for (int k = 0; k < s->batch_count; k++) order[k] = s->batch[k];
  for (int k = 0; k < window.count; k++) {
    order[s->batch_count + k] = window.v[k];
    dims[1 + k] = x->shape->dims[window.v[k]];
  }
  return pb_reshape(b, pb_transpose(b, x, order), 1 + window.count, dims);
}

static hlo_ints inserted_dims(pass_build *b, const rows_of_scatter *s)
{
  const hlo_scatter_attrs *a = attrs_of(s);
  int64_t dims[HLO_MAX_RANK];
  int count = 0;

  for (int d = 0; d < s->scatter->operands[0]->shape->rank; d++)
    if (pass_ints_contain(a->inserted_window_dims, d) || pass_ints_contain(a->input_batching_dims, d))
      dims[count++] = d;
  return pb_ints(b, count, dims);
}

static weft_status *sort_updates(rows_of_scatter *s)
{
  hlo_instr *scatter = s->scatter, *order, *out;
  weft_arena *arena = &scatter->parent->module->arena;
  hlo_instr **operands = WEFT_ARENA_ARRAY(arena, hlo_instr *, scatter->operand_count);
  hlo_scatter_attrs *a = WEFT_ARENA_NEW(arena, hlo_scatter_attrs);
  int64_t window[HLO_MAX_RANK];
  pass_build b = PASS_BUILD_AT(scatter);

  WEFT_TRY_ALLOC(operands);
  WEFT_TRY_ALLOC(a);
  make_index(&b, s);
  order = order_of(&b, s);
  for (int i = 0; i < s->n; i++) {
    operands[i] = scatter->operands[i];
    operands[s->n + 1 + i] = take_rows(&b, window_rows(&b, s, i), order);
  }
  operands[s->n] = take_rows(&b, s->index, order);
  for (int k = 0; k < attrs_of(s)->update_window_dims.count; k++) window[k] = k + 1;
  *a = (hlo_scatter_attrs){.update_window_dims = pb_ints(&b, attrs_of(s)->update_window_dims.count, window),
                           .inserted_window_dims = inserted_dims(&b, s),
                           .scatter_dims_to_operand_dims = s->to_operand,
                           .index_vector_dim = 1,
                           .indices_are_sorted = true};
  out = pb_instr(&b, HLO_SCATTER, scatter->shape, scatter->operand_count, operands);
  if (out) {
    out->u.scatter = a;
    b.error = hlo_set_called(out, 1, scatter->called);
  }
  return pass_build_replace(&b, scatter, out);
}

static weft_status *scatter_sorter_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(instr, comps.v[i]) {
      rows_of_scatter s;
      if (instr->op != HLO_SCATTER || !is_wanted(instr, &s)) continue;
      WEFT_TRY(sort_updates(&s));
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_scatter_sorter = {"scatter-sorter", scatter_sorter_run};
