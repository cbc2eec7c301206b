/* passes/dot_expander.c -- dot-expander: products that are more than a dot, by dots.
 *
 *   scaled-dot    operands times their scales, each repeated over its block; a dot in f32 or wider
 *   ragged-dot    ragged dimension in the batch: a dot; else a loop over the groups:
 *                   free          rows of group g of (lhs x rhs[g])
 *                   contracting   result[g] = lhs x rhs, with zeros for what is not in group g on both sides
 *
 * Rows of other groups are selected away, never multiplied by zero: they may hold anything.  What is left alone
 * (complex operands with scales, scales that do not divide) goes to the reference evaluator. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"
#include "passes/util.h"

static hlo_instr *dot_of(pass_build *b, hlo_instr *lhs, hlo_instr *rhs, const hlo_shape *shape,
                         const hlo_dot_attrs *like)
{
  hlo_instr *dot = pb_instr(b, HLO_DOT, shape, 2, (hlo_instr *[]){lhs, rhs});
  hlo_dot_attrs *attrs = WEFT_ARENA_NEW(&b->comp->module->arena, hlo_dot_attrs);

  if (!dot) return NULL;
  if (!attrs) {
    if (!b->error) b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    return NULL;
  }
  *attrs = *like;
  attrs->lhs_ragged = attrs->rhs_group = (hlo_ints){0};
  attrs->precision_count = WEFT_MIN(like->precision_count, 2);
  dot->u.dot = attrs;
  return dot;
}

/* ---- scaled-dot -------------------------------------------------------------------------------------------------- */

/* True if there is a scale for each block of x, or one scale for the whole array. */
static bool divides(const hlo_shape *scale, const hlo_shape *x)
{
  if (scale->rank == 0) return true;
  if (scale->rank != x->rank || 2 * x->rank > HLO_MAX_RANK) return false;
  for (int d = 0; d < x->rank; d++)
    if (scale->dims[d] == 0 || x->dims[d] % scale->dims[d]) return false;
  return true;
}

static hlo_instr *repeat_blocks(pass_build *b, hlo_instr *scale, const hlo_shape *x)
{
  int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK];

  if (!scale || scale->shape->rank == 0) return scale ? pb_fill(b, scale, x) : NULL;
  for (int d = 0; d < x->rank; d++) {
    map[d] = 2 * d;
    dims[2 * d] = scale->shape->dims[d];
    dims[2 * d + 1] = x->dims[d] / scale->shape->dims[d];
  }
  return pb_reshape_like(b, pb_broadcast(b, scale, 2 * x->rank, dims, map), x);
}

static weft_status *expand_scaled(hlo_instr *instr, bool *changed)
{
  weft_dtype type = instr->shape->type, wide = weft_dtype_bits(type) < 32 ? WEFT_F32 : type;
  pass_build b = PASS_BUILD_AT(instr);
  hlo_instr *x[2];

  if (!weft_dtype_is_float(type)) return NULL;
  for (int i = 0; i < instr->operand_count; i++)
    if (weft_dtype_is_complex(instr->operands[i]->shape->type)) return NULL;
  for (int i = 2; i < instr->operand_count; i++)
    if (!divides(instr->operands[i]->shape, instr->operands[i - 2]->shape)) return NULL;
  for (int i = 0; i < 2; i++) {
    x[i] = pb_convert(&b, instr->operands[i], wide);
    if (i + 2 >= instr->operand_count) continue;
    x[i] = pb_mul(&b, x[i], repeat_blocks(&b, pb_convert(&b, instr->operands[i + 2], wide), instr->operands[i]->shape));
  }
  const hlo_shape *shape = hlo_shape_with_type(&instr->parent->module->arena, instr->shape, wide);
  *changed = true;
  return pass_build_replace(&b, instr, pb_convert(&b, dot_of(&b, x[0], x[1], shape, instr->u.dot), type));
}

/* ---- ragged-dot -------------------------------------------------------------------------------------------------- */

typedef struct ragged {
  const hlo_instr *instr;
  const hlo_dot_attrs *attrs;
  hlo_module *module;
  int64_t groups, length; /* the number of groups; the size of the ragged dimension */
  int batches;            /* the number of leading dimensions of the group sizes */
  int contracting;        /* the position of the ragged dimension among the contracting ones, or -1 */
  int64_t free_at;        /* otherwise the ragged dimension of the result */
} ragged;

static bool open_ragged(const hlo_instr *instr, ragged *r)
{
  const hlo_dot_attrs *a = instr->u.dot;
  const hlo_shape *sizes = instr->operands[2]->shape, *lhs = instr->operands[0]->shape;
  int64_t dim = a->lhs_ragged.v[0];

  *r = (ragged){.instr = instr,
                .attrs = a,
                .module = instr->parent->module,
                .groups = sizes->dims[sizes->rank - 1],
                .length = lhs->dims[dim],
                .batches = sizes->rank - 1,
                .contracting = -1,
                .free_at = a->lhs_batch.count};
  for (int i = 0; i < a->lhs_contracting.count; i++)
    if (a->lhs_contracting.v[i] == dim) r->contracting = i;
  for (int64_t d = 0; d < dim; d++)
    r->free_at += !pass_ints_contain(a->lhs_batch, d) && !pass_ints_contain(a->lhs_contracting, d);
  return (r->batches == 0 || r->batches == a->lhs_batch.count) && r->batches + 2 <= HLO_MAX_RANK;
}

/* The group of each place along the ragged dimension, [batches..., length]; `groups` for places behind the last
 * group. */
static weft_status *group_numbers(const ragged *r, pass_build *b, hlo_instr **out)
{
  const hlo_shape *sizes = r->instr->operands[2]->shape;
  int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK], last = r->batches + 1;
  hlo_computation *add;

  WEFT_TRY(hlo_add_reducer(r->module, HLO_ADD, WEFT_S32, &add));
  for (int i = 0; i < r->batches; i++) dims[i] = sizes->dims[i], map[i] = i;
  hlo_instr *zero = pb_int(b, WEFT_S32, 0), *size = pb_convert(b, r->instr->operands[2], WEFT_S32);
  dims[last - 1] = dims[last] = r->groups;
  map[last - 1] = last;
  const hlo_shape *pairs = hlo_shape_array(&r->module->arena, WEFT_S32, (int)last + 1, dims);
  hlo_instr *before = pb_compare(b, HLO_LE, pb_iota(b, pairs, last), pb_iota(b, pairs, last - 1));
  hlo_instr *counted = pb_select(b, before, pb_broadcast(b, size, pairs->rank, dims, map), pb_fill(b, zero, pairs));
  hlo_instr *ends = pb_reduce(b, counted, zero, 1, &last, add);
  dims[last - 1] = r->length;
  const hlo_shape *places = hlo_shape_array(&r->module->arena, WEFT_S32, (int)last + 1, dims);
  hlo_instr *past = pb_compare(b, HLO_GE, pb_iota(b, places, last - 1), pb_broadcast(b, ends, places->rank, dims, map));
  *out = pb_reduce(b, pb_convert(b, past, WEFT_S32), zero, 1, &last, add);
  return NULL;
}

/* x where the place along `dim` belongs to group `g`, and `otherwise` elsewhere; `batch`: x's batch dimensions. */
static hlo_instr *of_group(const ragged *r, pass_build *b, hlo_instr *x, hlo_instr *otherwise, hlo_instr *numbers,
                           hlo_instr *g, const int64_t *batch, int64_t dim)
{
  int64_t map[HLO_MAX_RANK];

  if (!x) return NULL;
  for (int i = 0; i < r->batches; i++) map[i] = batch[i];
  map[r->batches] = dim;
  hlo_instr *number = pb_broadcast(b, numbers, x->shape->rank, x->shape->dims, map);
  return pb_select(b, pb_compare(b, HLO_EQ, number, pb_fill(b, g, x->shape)), x, otherwise);
}

/* The dimensions without `gone`; those behind it are one lower. */
static hlo_ints without(pass_build *b, hlo_ints dims, int64_t gone)
{
  int64_t v[HLO_MAX_RANK];

  for (int i = 0; i < dims.count; i++) v[i] = dims.v[i] - (dims.v[i] > gone);
  return pb_ints(b, dims.count, v);
}

enum { RESULT, LHS, RHS, NUMBERS, STATE }; /* the state of the loop over groups */

static hlo_instr *rows_of_group(const ragged *r, pass_build *b, hlo_instr *g, hlo_instr *const *state)
{
  hlo_instr *rhs = state[RHS];
  int64_t kept[HLO_MAX_RANK], gone = r->attrs->rhs_group.v[0], batch[HLO_MAX_RANK];
  hlo_dot_attrs attrs = *r->attrs;
  int n = 0;

  for (int d = 0; d < rhs->shape->rank; d++)
    if (d != gone) kept[n++] = rhs->shape->dims[d];
  for (int i = 0; i < r->batches; i++) batch[i] = i;
  attrs.rhs_batch = without(b, attrs.rhs_batch, gone);
  attrs.rhs_contracting = without(b, attrs.rhs_contracting, gone);
  hlo_instr *of_g = pb_reshape(b, pb_slice_at(b, rhs, gone, g, 1), n, kept);
  hlo_instr *dot = dot_of(b, state[LHS], of_g, state[RESULT]->shape, &attrs);
  return of_group(r, b, dot, state[RESULT], state[NUMBERS], g, batch, r->free_at);
}

static hlo_instr *result_of_group(const ragged *r, pass_build *b, hlo_instr *g, hlo_instr *const *state)
{
  const hlo_dot_attrs *a = r->attrs;
  const hlo_shape *whole = state[RESULT]->shape;
  hlo_instr *x[2];

  for (int i = 0; i < 2; i++) {
    hlo_instr *all = state[LHS + i];
    const hlo_ints batch = i ? a->rhs_batch : a->lhs_batch, contracting = i ? a->rhs_contracting : a->lhs_contracting;
    x[i] = of_group(r, b, all, pb_splat(b, all, 0), state[NUMBERS], g, batch.v, contracting.v[r->contracting]);
  }
  hlo_instr *dot =
    dot_of(b, x[0], x[1], hlo_shape_array(&r->module->arena, whole->type, whole->rank - 1, whole->dims + 1), a);
  int64_t dims[HLO_MAX_RANK] = {1};
  for (int d = 1; d < whole->rank; d++) dims[d] = whole->dims[d];
  return pb_update_at(b, state[RESULT], pb_reshape(b, dot, whole->rank, dims), 0, g);
}

static void ragged_body(pass_build *in, const void *context, hlo_instr *g, hlo_instr *const *state, hlo_instr **next)
{
  const ragged *r = context;

  for (int k = LHS; k < STATE; k++) next[k] = state[k];
  next[RESULT] = r->contracting >= 0 ? result_of_group(r, in, g, state) : rows_of_group(r, in, g, state);
}

static weft_status *expand_ragged(hlo_instr *instr, bool *changed)
{
  pass_build b = PASS_BUILD_AT(instr);
  hlo_instr *init[STATE];
  ragged r;

  if (pass_ints_contain(instr->u.dot->lhs_batch, instr->u.dot->lhs_ragged.v[0])) {
    *changed = true;
    return pass_build_replace(&b, instr,
                              dot_of(&b, instr->operands[0], instr->operands[1], instr->shape, instr->u.dot));
  }
  if (!open_ragged(instr, &r)) return NULL;
  init[RESULT] = pb_splat(&b, instr, 0);
  for (int i = 0; i < 2; i++) { /* f8e8m0fnu has no zero that could stand for other groups */
    hlo_instr *x = instr->operands[i];
    init[LHS + i] = x->shape->type == WEFT_F8E8M0FNU ? pb_convert(&b, x, WEFT_F32) : x;
  }
  WEFT_TRY(group_numbers(&r, &b, &init[NUMBERS]));
  *changed = true;
  return pass_build_replace(&b, instr,
                            pb_gte(&b, pb_loop(&b, "ragged", r.groups, STATE, init, ragged_body, &r), 1 + RESULT));
}

static weft_status *dot_expander_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op == HLO_SCALED_DOT) WEFT_TRY(expand_scaled(instr, changed));
      else if (instr->op == HLO_RAGGED_DOT) WEFT_TRY(expand_ragged(instr, changed));
    }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_dot_expander = {"dot-expander", dot_expander_run};
