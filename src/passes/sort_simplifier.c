/* passes/sort_simplifier.c -- sort-simplifier: removes operands of a sort that the comparator does not look at and
 * whose sorted form is not read; replaces a sort along a dimension of at most one element by its operands; and turns
 * a sort of which only the first few elements are read into a topk (JAX's top_k arrives as a sort). */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

static weft_status *replace_by_operands(hlo_instr *sort)
{
  pass_build b = PASS_BUILD_AT(sort);
  hlo_instr *with = sort->operand_count == 1 ? sort->operands[0] : pb_tuple(&b, sort->operand_count, sort->operands);

  return pass_build_replace(&b, sort, with);
}

static bool is_compared(const hlo_instr *sort, int i)
{
  const hlo_computation *less = sort->called[0];

  return less->params[2 * i]->user_count > 0 || less->params[2 * i + 1]->user_count > 0 ||
         less->root == less->params[2 * i] || less->root == less->params[2 * i + 1];
}

static weft_status *drop_unread(hlo_instr *sort, weft_arena *scratch, bool *changed)
{
  hlo_module *module = sort->parent->module;
  hlo_instr **operands = WEFT_ARENA_ARRAY(scratch, hlo_instr *, sort->operand_count), *with, **elements;
  int *place = WEFT_ARENA_ARRAY(scratch, int, sort->operand_count), kept = 0;
  bool *is_read = WEFT_ARENA_ARRAY(scratch, bool, sort->operand_count);
  hlo_computation *less;
  pass_build b = PASS_BUILD_AT(sort);

  WEFT_TRY_ALLOC(operands);
  WEFT_TRY_ALLOC(place);
  WEFT_TRY_ALLOC(is_read);
  for (int i = 0; i < sort->user_count; i++) {
    if (sort->users[i]->op != HLO_GET_TUPLE_ELEMENT) return NULL;
    is_read[sort->users[i]->u.tuple_index] = true;
  }
  for (int i = 0; i < sort->operand_count; i++) {
    place[i] = -1;
    if (!is_read[i] && !is_compared(sort, i)) continue;
    place[i] = kept;
    operands[kept++] = sort->operands[i];
  }
  if (kept == sort->operand_count || kept == 0 || sort == sort->parent->root) return NULL;

  WEFT_TRY(hlo_computation_clone(module, sort->called[0], sort->called[0]->name, sort->parent, &less));
  for (int i = sort->operand_count - 1; i >= 0; i--) {
    if (place[i] >= 0) continue;
    hlo_computation_remove_parameter(less, 2 * i + 1);
    hlo_computation_remove_parameter(less, 2 * i);
  }
  const hlo_shape *shape = operands[0]->shape, **shapes = WEFT_ARENA_ARRAY(scratch, const hlo_shape *, kept);
  WEFT_TRY_ALLOC(shapes);
  for (int i = 0; i < kept; i++) shapes[i] = operands[i]->shape;
  if (kept > 1) shape = hlo_shape_tuple(&module->arena, kept, shapes);
  with = pb_instr(&b, HLO_SORT, shape, kept, operands);
  WEFT_TRY(pass_build_finish(&b));
  with->dims = sort->dims;
  with->u.is_stable = sort->u.is_stable;
  with->extra = sort->extra;
  with->metadata = sort->metadata;
  WEFT_TRY(hlo_set_called(with, 1, &less));
  /* A tuple in the old form, which tuple-simplifier takes apart. Its elements for removed operands are not read. */
  elements = WEFT_ARENA_ARRAY(scratch, hlo_instr *, sort->operand_count);
  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < sort->operand_count; i++)
    elements[i] = place[i] < 0 ? sort->operands[i] : kept == 1 ? with : pb_gte(&b, with, place[i]);
  *changed = true;
  return pass_build_replace(&b, sort, pb_tuple(&b, sort->operand_count, elements));
}

/* The order of topk: by the first operand alone, floats by total order. */
static bool is_topk_order(const hlo_instr *sort, bool *largest)
{
  weft_dtype type = sort->operands[0]->shape->type;
  bool has_order = weft_dtype_is_integer(type) || type == WEFT_F16 || type == WEFT_BF16 || type == WEFT_F32 ||
                   type == WEFT_F64;

  return has_order && pass_compares_two(sort->called[0], largest) &&
         (!weft_dtype_is_float(type) || sort->called[0]->root->u.compare.type == HLO_COMPARE_TOTALORDER);
}

/* The number of elements along `dim` that the users of `x` read from the front; the whole dimension if `x` is the
 * root or has a user that is not a slice. */
static int64_t read_from_front(const hlo_instr *x, int64_t dim)
{
  int64_t k = 0;

  for (int i = 0; i < x->user_count && x != x->parent->root; i++) {
    if (x->users[i]->op != HLO_SLICE) return x->shape->dims[dim];
    k = WEFT_MAX(k, x->users[i]->u.slice->limit.v[dim]);
  }
  return x == x->parent->root ? x->shape->dims[dim] : k;
}

/* The slices of `from` become slices of `to`. */
static weft_status *slice_instead(hlo_instr *from, hlo_instr *to)
{
  while (from->user_count > 0) WEFT_TRY(hlo_set_operand(from->users[0], 0, to));
  return NULL;
}

/* 0, 1, 2, ... along `dim`. */
static bool counts_along(const hlo_instr *x, int64_t dim)
{
  if (x->op == HLO_BROADCAST && x->operands[0]->op == HLO_IOTA && x->operands[0]->shape->rank == 1)
    return x->dims.v[0] == dim;
  return x->op == HLO_IOTA && x->dims.v[0] == dim;
}

/* sort(x) or sort(x, iota) of which at most the first quarter is read: beyond that, sorting everything costs little
 * more. */
static weft_status *first_few(hlo_instr *sort, bool *changed)
{
  const hlo_shape *shape = sort->operands[0]->shape, *parts[2], *both;
  int64_t dim = sort->dims.v[0], dims[HLO_MAX_RANK], k = 0;
  hlo_module *module = sort->parent->module;
  pass_build b = PASS_BUILD_AT(sort);
  hlo_instr *top, *elements[2];
  bool largest;

  if (sort->operand_count > 2 || dim != shape->rank - 1 || !is_topk_order(sort, &largest)) return NULL;
  if (sort->operand_count == 1) {
    k = read_from_front(sort, dim);
  } else {
    const hlo_instr *at = sort->operands[1];
    if (!counts_along(at, dim) || at->shape->type != WEFT_S32 || sort == sort->parent->root) return NULL;
    for (int i = 0; i < sort->user_count; i++) {
      if (sort->users[i]->op != HLO_GET_TUPLE_ELEMENT) return NULL;
      k = WEFT_MAX(k, read_from_front(sort->users[i], dim));
    }
  }
  if (k == 0 || k > shape->dims[dim] / 4) return NULL;

  for (int d = 0; d < shape->rank; d++) dims[d] = d == dim ? k : shape->dims[d];
  WEFT_TRY_ALLOC(parts[0] = hlo_shape_array(&module->arena, shape->type, shape->rank, dims));
  WEFT_TRY_ALLOC(parts[1] = hlo_shape_array(&module->arena, WEFT_S32, shape->rank, dims));
  WEFT_TRY_ALLOC(both = hlo_shape_tuple(&module->arena, 2, parts));
  top = pb_instr(&b, HLO_TOPK, both, 1, sort->operands);
  for (int i = 0; i < 2; i++) elements[i] = pb_gte(&b, top, i);
  WEFT_TRY(pass_build_finish(&b));
  top->u.topk.k = k;
  top->u.topk.largest = largest;
  top->u.topk.is_stable = true;
  if (sort->operand_count == 1) WEFT_TRY(slice_instead(sort, elements[0]));
  for (int i = 0; sort->operand_count == 2 && i < sort->user_count; i++)
    WEFT_TRY(slice_instead(sort->users[i], elements[sort->users[i]->u.tuple_index]));
  *changed = true;
  return NULL;
}

static weft_status *sort_simplifier_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) {
    HLO_FOREACH(instr, comps.v[i]) {
      if (instr->op != HLO_SORT || pass_has_control_edges(instr)) continue;
      if (instr->operands[0]->shape->dims[instr->dims.v[0]] <= 1) {
        WEFT_TRY(replace_by_operands(instr));
        *changed = true;
        continue;
      }
      WEFT_TRY(first_few(instr, changed));
      if (instr->operand_count > 1 && instr->user_count > 0) WEFT_TRY(drop_unread(instr, ctx->scratch, changed));
    }
  }
  return NULL;
}
const hlo_pass pass_sort_simplifier = {"sort-simplifier", sort_simplifier_run};
