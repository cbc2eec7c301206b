/* passes/dot_groups.c -- dot-groups: a dot of few rows for each group of contracted elements, whose results are scaled
 * and then added up, becomes one dot by scaled weights:
 *
 *   sum over g of (sum over k of x[m,g,k] * w[g,k,n]) * scale[g,n]
 *     = sum over (g,k) of x[m,(g,k)] * (w[g,k,n] * scale[g,n])[(g,k),n]
 *
 * JAX writes the first for einsum("mgk,gkn,gn->mn", x, w.astype(x.dtype), scale). Pass dot-parts lets the second read
 * the weights as they are stored, with a scale for each group; the results of each group would have to be written and
 * read, and are rounded where the program says so. So this is done for narrow weights alone, and where excess precision
 * is allowed. Dots must be canonical (dot-canonicalizer). */
#include <config.h>

#include "codegen/model/weights.h"
#include "passes/build.h"
#include "passes/passes.h"

/* Dimensions of the results of the groups, and of what is made of them. */
typedef enum role { GROUP, COLUMN, ROW } role;

typedef struct grouped {
  const hlo_instr *dot;   /* of the groups */
  hlo_instr *x, *weights, *scale;
  int side;               /* the operand of `dot` that the weights are */
  hlo_instr *last;        /* what adds the groups up */
  role roles[3];          /* of the dimensions of the scaled results, in their order */
  role scale_roles[2];    /* of the scale's */
} grouped;

static bool is_read_once(const hlo_instr *value)
{
  return value->user_count == 1 && value != value->parent->root && !pass_has_control_edges(value);
}

/* Is `dot` a batch of products by narrow weights? */
static bool find_groups(hlo_instr *dot, grouped *g)
{
  const hlo_dot_attrs *a = dot->u.dot;

  if (!pass_is_canonical_dot(dot) || a->lhs_batch.count != 1 || a->algorithm != HLO_ALG_UNSET || !is_read_once(dot) ||
      !weft_dtype_is_float(dot->shape->type) || weft_dtype_bytes(dot->shape->type) > sizeof(float))
    return false;
  for (g->side = 0; g->side < 2; g->side++) {
    gen_stored stored;
    if (!gen_stored_of(dot->operands[g->side], true, &stored) || stored.shared) continue;
    g->dot = dot;
    g->weights = dot->operands[g->side];
    g->x = dot->operands[!g->side];
    g->roles[0] = GROUP;
    g->roles[1] = g->side ? ROW : COLUMN;
    g->roles[2] = g->side ? COLUMN : ROW;
    return true;
  }
  return false;
}

static int position(const role *roles, int count, role wanted)
{
  int at = 0;

  while (at < count && roles[at] != wanted) at++;
  return at;
}

static void permute(grouped *g, const hlo_instr *transpose)
{
  role before[3] = {g->roles[0], g->roles[1], g->roles[2]};

  for (int d = 0; d < 3; d++) g->roles[d] = before[transpose->dims.v[d]];
}

/* results * broadcast(scale), whose scale has a number for each group and column */
static bool find_factor(hlo_instr *multiply, const hlo_instr *results, grouped *g)
{
  hlo_instr *other = multiply->operands[multiply->operands[0] == results];

  if (g->scale || other->op != HLO_BROADCAST || other->operands[0]->shape->rank != 2) return false;
  g->scale = other->operands[0];
  for (int d = 0; d < 2; d++) {
    g->scale_roles[d] = g->roles[other->dims.v[d]];
    if (g->scale_roles[d] == ROW) return false;
  }
  return true;
}

static bool is_sum_of_groups(const hlo_instr *reduce, const grouped *g)
{
  return reduce->operand_count == 2 && reduce->dims.count == 1 && g->roles[reduce->dims.v[0]] == GROUP &&
         hlo_reducer_op(reduce->called[0]) == HLO_ADD && pass_is_identity(HLO_ADD, reduce->operands[1]);
}

/* A dot of the results and the scale, [column, group, 1] or [column, 1, group]; its result has the roles that are left
 * in g->roles. */
static bool is_dot_by_scale(hlo_instr *dot, const hlo_instr *results, grouped *g)
{
  const hlo_dot_attrs *a = dot->u.dot;
  int side = dot->operands[0] != results;
  hlo_ints batch = side ? a->rhs_batch : a->lhs_batch, sum = side ? a->rhs_contracting : a->lhs_contracting;
  hlo_ints scale_batch = side ? a->lhs_batch : a->rhs_batch, scale_sum = side ? a->lhs_contracting : a->rhs_contracting;
  hlo_instr *scale = dot->operands[!side];

  if (!pass_is_canonical_dot(dot) || dot->operands[0] == dot->operands[1] || batch.count != 1 ||
      a->algorithm != HLO_ALG_UNSET || g->roles[batch.v[0]] != COLUMN || g->roles[sum.v[0]] != GROUP)
    return false;
  int64_t free = 3 - scale_batch.v[0] - scale_sum.v[0];
  if (scale->shape->dims[free] != 1) return false;
  g->scale = scale;
  g->scale_roles[0] = scale_batch.v[0] < scale_sum.v[0] ? COLUMN : GROUP;
  g->scale_roles[1] = g->scale_roles[0] == COLUMN ? GROUP : COLUMN;
  g->roles[0] = COLUMN;
  g->roles[1] = ROW;
  g->roles[2] = GROUP;
  return true;
}

/* Follows the results of the groups to their sum. */
static bool find_sum(grouped *g)
{
  const hlo_instr *results = g->dot;

  for (;;) {
    if (!is_read_once(results)) return false;
    hlo_instr *user = results->users[0];
    g->last = user;
    switch (user->op) {
    case HLO_TRANSPOSE: permute(g, user); break;
    case HLO_CONVERT:
      if (!weft_dtype_is_float(user->shape->type) || weft_dtype_bytes(user->shape->type) > sizeof(float)) return false;
      break;
    case HLO_MULTIPLY:
      if (!find_factor(user, results, g)) return false;
      break;
    case HLO_REDUCE: return g->scale && is_sum_of_groups(user, g) && !pass_has_control_edges(user);
    case HLO_DOT: return !g->scale && is_dot_by_scale(user, results, g) && !pass_has_control_edges(user);
    default: return false;
    }
    results = user;
  }
}

/* The weights times the scale, in the type of the weights. Scales of a wider type are multiplied in that type. */
static hlo_instr *scaled_weights(pass_build *b, const grouped *g)
{
  const hlo_dot_attrs *a = g->dot->u.dot;
  hlo_ints batch = g->side ? a->rhs_batch : a->lhs_batch, sum = g->side ? a->rhs_contracting : a->lhs_contracting;
  const hlo_shape *shape = g->weights->shape;
  weft_dtype type = shape->type, wide = g->scale->shape->type;
  int64_t group = batch.v[0], column = 3 - group - sum.v[0], dims[2], map[2];
  hlo_instr *scale = g->scale;

  if (weft_dtype_bytes(wide) <= weft_dtype_bytes(type)) wide = type;
  if ((g->scale_roles[0] == GROUP) != (group < column)) {
    dims[0] = shape->dims[WEFT_MAX(group, column)];
    dims[1] = shape->dims[WEFT_MIN(group, column)];
    scale = pb_transpose(b, pb_reshape(b, scale, 2, dims), (int64_t[]){1, 0});
  } else {
    dims[0] = shape->dims[WEFT_MIN(group, column)];
    dims[1] = shape->dims[WEFT_MAX(group, column)];
    scale = pb_reshape(b, scale, 2, dims);
  }
  map[0] = WEFT_MIN(group, column);
  map[1] = WEFT_MAX(group, column);
  hlo_instr *spread = pb_broadcast(b, pb_convert(b, scale, wide), 3, shape->dims, map);
  return pb_convert(b, pb_mul(b, pb_convert(b, g->weights, wide), spread), type);
}

/* `value`, one operand of the groups' dot, with its groups and contracted elements as one dimension. *out_sum receives
 * where that is. */
static hlo_instr *merged(pass_build *b, hlo_instr *value, hlo_ints batch, hlo_ints sum, int64_t *out_sum)
{
  const hlo_shape *shape = value->shape;
  int64_t group = batch.v[0], k = sum.v[0], free = 3 - group - k, depth = shape->dims[group] * shape->dims[k];

  if (k != group + 1) { /* the contracted elements of a group come behind its number, and the free dimension first */
    value = pb_transpose(b, value, (int64_t[]){free, group, k});
    free = 0;
  }
  *out_sum = free == 0;
  return pb_reshape(b, value, 2,
                    free == 0 ? (int64_t[]){shape->dims[3 - group - k], depth}
                              : (int64_t[]){depth, shape->dims[3 - group - k]});
}

static hlo_instr *one_dot(pass_build *b, const grouped *g, hlo_instr *weights)
{
  weft_arena *arena = &b->comp->module->arena;
  const hlo_dot_attrs *a = g->dot->u.dot;
  hlo_ints batch[] = {a->lhs_batch, a->rhs_batch}, sum[] = {a->lhs_contracting, a->rhs_contracting};
  hlo_dot_attrs *attrs = weft_arena_memdup(arena, a, sizeof *attrs);
  int64_t x_sum, weights_sum;
  hlo_instr *x = merged(b, g->x, batch[!g->side], sum[!g->side], &x_sum);

  weights = merged(b, weights, batch[g->side], sum[g->side], &weights_sum);
  if (!x || !weights || !attrs) return NULL;
  attrs->lhs_batch = attrs->rhs_batch = (hlo_ints){0, NULL};
  attrs->lhs_contracting = pb_ints(b, 1, &x_sum);
  attrs->rhs_contracting = pb_ints(b, 1, &weights_sum);
  int64_t dims[] = {x->shape->dims[!x_sum], weights->shape->dims[!weights_sum]};
  hlo_instr *dot =
    pb_instr(b, HLO_DOT, hlo_shape_array(arena, g->last->shape->type, 2, dims), 2, (hlo_instr *[]){x, weights});
  if (dot) dot->u.dot = attrs;
  return dot;
}

static weft_status *join_groups(hlo_instr *first, pass_ctx *ctx, bool *changed)
{
  grouped g = {.scale = NULL};
  gen_stored stored;

  if (!find_groups(first, &g) || !find_sum(&g)) return NULL;
  pass_build b = PASS_BUILD_AT(g.last);
  hlo_instr *dot = one_dot(&b, &g, scaled_weights(&b, &g)), *result = dot;
  if (!dot) return pass_build_finish(&b);
  *changed = true; /* pass dce must follow: it removes what is not used */
  if (!gen_dot_has_few_rows(pass_target(ctx), dot) || !gen_stored_of(dot->operands[1], true, &stored) ||
      !gen_stored_lie(&stored, dot->operands[1]->shape, dot->u.dot->rhs_contracting.v[0]))
    return pass_build_finish(&b);
  if (position(g.roles, 3, COLUMN) < position(g.roles, 3, ROW)) result = pb_transpose(&b, dot, (int64_t[]){1, 0});
  return pass_build_replace(&b, g.last, pb_reshape_like(&b, result, g.last->shape));
}

static weft_status *dot_groups_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  if (ctx->options->rounds_narrow) return NULL;
  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int c = 0; c < comps.count; c++)
    for (hlo_instr *instr = comps.v[c]->first; instr; instr = instr->next) /* it stays, but what follows may go */
      if (instr->op == HLO_DOT) WEFT_TRY(join_groups(instr, ctx, changed));
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_dot_groups = {"dot-groups", dot_groups_run};
