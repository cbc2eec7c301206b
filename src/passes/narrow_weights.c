/* passes/narrow_weights.c -- narrow-weights: a dot of few rows reads its weights in the narrow type in which they are
 * stored, instead of in a copy that is as wide as the other operand:
 *
 *   x . convert(w)             =  x . w            a dot of operands of two types
 *   x . (convert(w) * scale)   =  (x . w) * scale  if all weights that one result needs have one scale
 *
 *   convert(w) . x            =  transpose(transpose(x) . transpose(w)), also with zero points and scales of groups,
 *                                for dot-parts
 *
 * Such a dot costs what reading its weights costs: those of a byte a half of what bf16 costs, if nothing writes the
 * wide ones.  Each number of the narrow type must be one of the wide type.  A scale is taken out where excess precision
 * is allowed, since the scaled weights are then not rounded; the scaled sums are rounded once.  Dots must be canonical
 * (dot-canonicalizer), and nothing else may read the converted weights. */
#include <config.h>

#include "codegen/model/weights.h"
#include "passes/build.h"
#include "passes/passes.h"

enum { MOST_LINKS = 8 }; /* reshapes and transposes between the converted weights and the dot */

/* How an operand is made of weights: converted, scaled perhaps, then links[count - 1], ..., links[0]. */
typedef struct weights {
  hlo_instr *narrow;
  hlo_instr *scale; /* that is broadcast; or NULL */
  hlo_instr *links[MOST_LINKS];
  int count;
  int64_t scale_dims[HLO_MAX_RANK]; /* the operand's dimension for each of the scale's */
} weights;

static bool is_read_once(const hlo_instr *value)
{
  return value->user_count == 1 && value != value->parent->root && !pass_has_control_edges(value);
}

/* Takes the scale out of `multiply`; *out_rest is what it scales. */
static bool find_scale(hlo_instr *multiply, weights *w, hlo_instr **out_rest)
{
  for (int i = 0; i < 2; i++) {
    hlo_instr *spread = multiply->operands[i];
    if (spread->op != HLO_BROADCAST || multiply->operands[!i]->op != HLO_CONVERT) continue;
    w->scale = spread->operands[0];
    for (int d = 0; d < spread->dims.count; d++) w->scale_dims[d] = spread->dims.v[d];
    *out_rest = multiply->operands[!i];
    return true;
  }
  return false;
}

static bool find_weights(hlo_instr *value, weights *w)
{
  weft_dtype wide = value->shape->type;

  *w = (weights){.count = 0};
  for (; value->op == HLO_RESHAPE || value->op == HLO_TRANSPOSE; value = value->operands[0]) {
    if (w->count == MOST_LINKS || !is_read_once(value)) return false;
    w->links[w->count++] = value;
  }
  if (!is_read_once(value)) return false;
  if (value->op == HLO_MULTIPLY) {
    if (!find_scale(value, w, &value) || !is_read_once(value)) return false;
    for (int l = w->count - 1; l >= 0; l--) { /* where the scale's dimensions are after the links */
      const hlo_instr *link = w->links[l];
      if (link->op != HLO_TRANSPOSE && w->scale->shape->rank > 0) return false;
      for (int64_t d = 0; d < w->scale->shape->rank; d++)
        for (int64_t to = 0; to < link->shape->rank; to++)
          if (link->dims.v[to] == w->scale_dims[d]) {
            w->scale_dims[d] = to;
            break;
          }
    }
  }
  if (value->op != HLO_CONVERT) return false;
  w->narrow = value->operands[0];
  return gen_type_widens(w->narrow->shape->type, wide);
}

/* The dimension of the dot's result for dimension `dim` of its right operand; -1: it is contracted. */
static int64_t dim_of_result(const hlo_instr *dot, int64_t dim)
{
  const hlo_dot_attrs *a = dot->u.dot;

  if (dim == a->rhs_contracting.v[0]) return -1;
  return a->rhs_batch.count && dim == a->rhs_batch.v[0] ? 0 : dot->shape->rank - 1;
}

static hlo_instr *through_links(pass_build *b, const weights *w, hlo_instr *value)
{
  for (int l = w->count - 1; l >= 0; l--) {
    const hlo_instr *link = w->links[l];
    if (link->op == HLO_TRANSPOSE) value = pb_transpose(b, value, link->dims.v);
    else value = pb_reshape(b, value, link->shape->rank, link->shape->dims);
  }
  return value;
}

static weft_status *narrow_dot(hlo_instr *dot, pass_ctx *ctx, bool *changed)
{
  weights w;
  int64_t map[HLO_MAX_RANK];
  weft_dtype type = dot->shape->type;
  pass_build b = PASS_BUILD_AT(dot);

  if (!pass_is_canonical_dot(dot) || dot->u.dot->algorithm != HLO_ALG_UNSET || pass_has_control_edges(dot) ||
      !gen_dot_has_few_rows(pass_target(ctx), dot) || !find_weights(dot->operands[1], &w))
    return NULL;
  for (int64_t d = 0; w.scale && d < w.scale->shape->rank; d++)
    if ((map[d] = dim_of_result(dot, w.scale_dims[d])) < 0) return NULL;
  if (w.scale && (ctx->options->rounds_narrow || type != w.scale->shape->type)) return NULL;

  weft_dtype sum = w.scale && weft_dtype_bytes(type) < sizeof(float) ? WEFT_F32 : type;
  hlo_instr *result = pb_dot_like(&b, dot, dot->operands[0], through_links(&b, &w, w.narrow), sum, dot->shape->dims);
  if (w.scale) {
    hlo_instr *scale = pb_convert(&b, w.scale, sum);
    result = pb_mul(&b, result, pb_broadcast(&b, scale, (int)dot->shape->rank, dot->shape->dims, map));
    result = pb_convert(&b, result, type);
  }
  *changed = true;
  return pass_build_replace(&b, dot, result);
}

/* A dot whose left operand is made of stored numbers becomes one by them on the right, *out_dot. */
static weft_status *turn_dot(hlo_instr *dot, pass_ctx *ctx, bool *changed, hlo_instr **out_dot)
{
  weft_arena *arena = &dot->parent->module->arena;
  const hlo_dot_attrs *a = dot->u.dot;
  pass_build b = PASS_BUILD_AT(dot);
  hlo_dot_attrs *attrs;
  gen_stored stored;

  if (!pass_is_canonical_dot(dot) || a->lhs_batch.count > 0 || a->algorithm != HLO_ALG_UNSET ||
      pass_has_control_edges(dot) || !gen_dot_has_few_columns(pass_target(ctx), dot) ||
      !gen_stored_of(dot->operands[0], true, &stored) || stored.shared ||
      !gen_stored_lie(&stored, dot->operands[0]->shape, a->lhs_contracting.v[0]))
    return NULL;
  attrs = weft_arena_memdup(arena, a, sizeof *attrs);
  WEFT_TRY_ALLOC(attrs);
  attrs->lhs_contracting = a->rhs_contracting;
  attrs->rhs_contracting = a->lhs_contracting;
  attrs->precision_count = 0; /* of each operand; for floats that are narrow, or become so, they say nothing */
  int64_t dims[] = {dot->shape->dims[1], dot->shape->dims[0]};
  hlo_instr *turned = pb_instr(&b, HLO_DOT, hlo_shape_array(arena, dot->shape->type, 2, dims), 2,
                               (hlo_instr *[]){dot->operands[1], dot->operands[0]});
  if (turned) turned->u.dot = attrs;
  *changed = true;
  *out_dot = turned;
  return pass_build_replace(
    &b, dot, dims[0] == 1 ? pb_reshape_like(&b, turned, dot->shape) : pb_transpose(&b, turned, (int64_t[]){1, 0}));
}

static weft_status *narrow_weights_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int c = 0; c < comps.count; c++)
    for (hlo_instr *instr = comps.v[c]->first, *next; instr; instr = next) {
      next = instr->next;
      if (instr->op != HLO_DOT) continue;
      WEFT_TRY(turn_dot(instr, ctx, changed, &instr));
      WEFT_TRY(narrow_dot(instr, ctx, changed));
    }
  return NULL;
}
const hlo_pass pass_narrow_weights = {"narrow-weights", narrow_weights_run};
