/* passes/library_epilogues.c -- library-epilogues: dots whose library adds a matrix and a bias and applies an
 * activation before it stores the result.  The dot and what follows become a fusion that a library does as one step
 * (gen_is_library_fusion), so the result is written once instead of written, read and written again.
 *
 *   matrix      dot + c, a residual connection for example; c is an array that is in memory anyway
 *   bias        dot + broadcast(b), or (dot + c) + broadcast(b), b one number for each column of the result
 *   relu        max(x, 0), x the dot or the sum
 *   gelu        0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), of f16 and bf16 alone: libraries approximate tanh
 *
 * The result of the dot may be reshaped first, as long as its last dimension stays.  Only values that no other
 * instruction reads are taken in.  The dots are those that pass library-dots leaves, without batch dimensions, of f32,
 * f16 or bf16; a narrow sum is not rounded before the bias is added, so this is done only where excess precision is
 * allowed. */
#include <config.h>

#include <math.h>
#include <string.h>

#include "codegen/model/library.h"
#include "passes/fusion.h"
#include "passes/passes.h"

enum { MOST_MEMBERS = 24 };

/* The instructions that become one fusion, in no order. */
typedef struct group {
  hlo_instr *members[MOST_MEMBERS];
  int count;
} group;

static bool has_member(const group *g, const hlo_instr *instr)
{
  for (int i = 0; i < g->count; i++)
    if (g->members[i] == instr) return true;
  return false;
}

static bool join(group *g, hlo_instr *instr)
{
  if (has_member(g, instr)) return true;
  if (g->count == MOST_MEMBERS || pass_has_control_edges(instr)) return false;
  g->members[g->count++] = instr;
  return true;
}

/* The only user of `x`; NULL: there are several, or the value is a result of the computation. */
static hlo_instr *user_of(const hlo_instr *x)
{
  return x->user_count == 1 && x != x->parent->root ? x->users[0] : NULL;
}

/* The other operand of an operation of two operands; NULL: both are `x`, or `instr` is another operation. */
static hlo_instr *beside(const hlo_instr *instr, hlo_opcode op, const hlo_instr *x)
{
  if (!instr || instr->op != op || instr->operand_count != 2) return NULL;
  if (instr->operands[0] == x) return instr->operands[1] == x ? NULL : instr->operands[1];
  return instr->operands[1] == x ? instr->operands[0] : NULL;
}

/* A scalar constant, broadcast, within the rounding of its type. */
static bool is_splat(group *g, hlo_instr *x, double value)
{
  if (!x || x->op != HLO_BROADCAST || x->operands[0]->op != HLO_CONSTANT || x->operands[0]->shape->rank != 0)
    return false;
  double got = hlo_literal_get_f64(x->operands[0]->u.literal, 0);
  /* half of the distance to the neighbouring numbers */
  double near = x->shape->type == WEFT_F16 ? 0x1.1p-12 : 0x1.1p-9;
  return fabs(got - value) <= fabs(value) * near && join(g, x);
}

/* ---- what follows a dot ---------------------------------------------------------------------------------------- */

/* Takes in the reshape of a matrix to an array with the same last dimension.  Returns the last value. */
static hlo_instr *take_reshape(group *g, hlo_instr *x)
{
  hlo_instr *user = user_of(x);

  if (!user || user->op != HLO_RESHAPE || user->shape->rank < 1 ||
      user->shape->dims[user->shape->rank - 1] != x->shape->dims[x->shape->rank - 1] || !join(g, user))
    return x;
  return user;
}

/* Is the value stored, whatever becomes of the group?  What a kernel computes for one reader would never be. */
static bool is_in_memory(const hlo_instr *x)
{
  switch (x->op) {
  case HLO_BROADCAST: case HLO_IOTA: return false;
  case HLO_PARAMETER: case HLO_CONSTANT: case HLO_GET_TUPLE_ELEMENT: case HLO_DOT: case HLO_CONVOLUTION:
  case HLO_CUSTOM_CALL: return true;
  case HLO_FUSION: return gen_is_library_fusion(x);
  case HLO_RESHAPE: case HLO_BITCAST: return x->user_count > 1 || is_in_memory(x->operands[0]);
  default: return x->user_count > 1 || x == x->parent->root;
  }
}

static hlo_instr *take_matrix(group *g, hlo_instr *x)
{
  hlo_instr *sum = user_of(x), *matrix = beside(sum, HLO_ADD, x);

  return matrix && is_in_memory(matrix) && join(g, sum) ? sum : NULL;
}

static hlo_instr *take_bias(group *g, hlo_instr *x)
{
  hlo_instr *sum = user_of(x), *bias = beside(sum, HLO_ADD, x);
  int last = x->shape->rank - 1;

  if (!bias || bias->op != HLO_BROADCAST || bias->operands[0]->shape->rank != 1 || bias->dims.v[0] != last) return NULL;
  return join(g, bias) && join(g, sum) ? sum : NULL;
}

static hlo_instr *take_relu(group *g, hlo_instr *x)
{
  hlo_instr *result = user_of(x), *zero = beside(result, HLO_MAXIMUM, x);

  return zero && is_splat(g, zero, 0) && join(g, result) ? result : NULL;
}

/* The product of `x` by the splat `value` that only user is; NULL: another operation comes. */
static hlo_instr *scaled(group *g, hlo_instr *x, double value)
{
  hlo_instr *user = x ? user_of(x) : NULL, *factor = beside(user, HLO_MULTIPLY, x);

  return factor && is_splat(g, factor, value) && join(g, user) ? user : NULL;
}

static hlo_instr *joined_with(group *g, hlo_instr *instr, hlo_opcode op, const hlo_instr *x)
{
  hlo_instr *user = instr ? user_of(instr) : NULL;

  return beside(user, op, instr) == x && x && join(g, user) ? user : NULL;
}

static hlo_instr *take_gelu(group *g, hlo_instr *x)
{
  hlo_instr *square = NULL;

  for (int i = 0; i < x->user_count; i++) {
    hlo_instr *user = x->users[i];
    if (user->op == HLO_MULTIPLY && user->operands[0] == x && user->operands[1] == x) square = user;
  }
  if (!square || x == x->parent->root || !join(g, square)) return NULL;
  hlo_instr *cube = joined_with(g, square, HLO_MULTIPLY, x);
  hlo_instr *inner = scaled(g, joined_with(g, scaled(g, cube, 0.044715), HLO_ADD, x), 0.7978845608);
  hlo_instr *tanh = inner ? user_of(inner) : NULL;
  if (!tanh || tanh->op != HLO_TANH || !join(g, tanh)) return NULL;
  hlo_instr *sum = user_of(tanh), *one = beside(sum, HLO_ADD, tanh);
  if (!one || !is_splat(g, one, 1) || !join(g, sum)) return NULL;
  hlo_instr *result = joined_with(g, scaled(g, sum, 0.5), HLO_MULTIPLY, x);
  for (int i = 0; i < x->user_count; i++)
    if (!has_member(g, x->users[i])) return NULL;
  return result;
}

/* Takes in the instructions after `dot` that the library can do.  Returns the last value; NULL: there are none. */
static hlo_instr *take_epilogue(group *g, hlo_instr *dot)
{
  typedef hlo_instr *taker(group *, hlo_instr *);
  hlo_instr *x = take_reshape(g, dot), *end = NULL;

  hlo_instr *sum = take_matrix(g, x);
  if (sum) x = end = sum;
  sum = take_bias(g, x);
  if (sum) x = end = sum;
  taker *const takers[] = {take_relu, take_gelu};
  for (size_t i = 0; i < WEFT_COUNT(takers); i++) {
    group with = *g;
    if (takers[i] == take_gelu && dot->shape->type == WEFT_F32) continue;
    hlo_instr *result = takers[i](&with, x);
    if (!result) continue;
    *g = with;
    return result;
  }
  return end;
}

/* ---- the pass -------------------------------------------------------------------------------------------------- */

static bool has_epilogues(const pass_ctx *ctx, const hlo_instr *dot)
{
  weft_dtype type = dot->shape->type;

  if (dot->op != HLO_DOT || dot->shape->rank != 2 || dot->u.dot->lhs_batch.count || dot->u.dot->sparsity ||
      pass_has_control_edges(dot) || gen_dot_needs_kernel(pass_target(ctx), dot, false))
    return false;
  for (int i = 0; i < 2; i++) /* the types of gpu/blas.c */
    if (dot->operands[i]->shape->type != type || dot->operands[i]->shape->rank != 2) return false;
  return type == WEFT_F32 || ((type == WEFT_F16 || type == WEFT_BF16) && !ctx->options->rounds_narrow);
}

/* The members in the order of their computation. */
static void put_in_order(group *g)
{
  group ordered = {.count = 0};

  HLO_FOREACH(instr, g->members[0]->parent)
    if (has_member(g, instr)) ordered.members[ordered.count++] = instr;
  *g = ordered;
}

static weft_status *fuse(group *g, hlo_instr *result, pass_map *map)
{
  hlo_instr *fusion;

  put_in_order(g);
  WEFT_TRY(pass_outline(g->members, g->count, &result, 1, map, "dot_fusion", &fusion));
  return pass_fusion_classify(fusion, GEN_LIBRARY_FUSION);
}

/* No group has two dots, so each dot of the list is still there when its turn comes. */
static weft_status *fuse_dots(hlo_computation *comp, pass_ctx *ctx, pass_map *map, bool *changed)
{
  int count = 0;

  HLO_FOREACH(instr, comp) count += has_epilogues(ctx, instr);
  hlo_instr **dots = WEFT_ARENA_ARRAY(ctx->scratch, hlo_instr *, count + 1);
  WEFT_TRY_ALLOC(dots);
  count = 0;
  HLO_FOREACH(instr, comp)
    if (has_epilogues(ctx, instr)) dots[count++] = instr;
  for (int i = 0; i < count; i++) {
    group g = {.members = {dots[i]}, .count = 1};
    hlo_instr *result = take_epilogue(&g, dots[i]);
    /* the step takes the dot's operands as parameters, which a member of the fusion is not */
    if (!result || has_member(&g, dots[i]->operands[0]) || has_member(&g, dots[i]->operands[1])) continue;
    WEFT_TRY(fuse(&g, result, map));
    *changed = true;
  }
  return NULL;
}

static weft_status *library_epilogues_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch};
  pass_comps comps;

  if (!ctx->options->has_blas) return NULL;
  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) WEFT_TRY(fuse_dots(comps.v[i], ctx, &map, changed));
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_library_epilogues = {"library-epilogues", library_epilogues_run};
