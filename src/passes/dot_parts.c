/* passes/dot_parts.c -- dot-parts: a dot of the CPU's library reads an operand that is a part of an array in the array
 * itself, instead of in a copy of that part. The part is what slices and dynamic slices, with reshapes and transposes,
 * take out of the array:
 *
 *   weights of one layer that are stacked with those of others      x . w[n]
 *   queries, keys and values in the result of one product           qkv[:, 0], with heads as the batch
 *   keys and values in a cache                                      cache[n, 0]
 *
 * A dot of few rows also reads weights as they are stored that zero points, scales and biases are applied to
 * (codegen/model/weights.h), in parts or whole:
 *
 *   groups of rows     x . reshape((convert(reshape(w, [G, g, N])) - zero[G, 1, N]) * scale[G, 1, N], [K, N])
 *
 * The dot and what takes the part become a fusion that is one step of the library (gen_is_library_fusion). The array
 * must be in memory in any case, and the part a stack of matrices of which one step is 1 (codegen/model/view.h). An
 * array that is updated in place while the dot is still to come would have to be copied, which is dearer than the part:
 * then the dot keeps its copy. */
#include <config.h>

#include "codegen/model/library.h"
#include "codegen/model/view.h"
#include "codegen/model/weights.h"
#include "passes/fusion.h"
#include "passes/passes.h"

enum {
  MOST_MEMBERS = 128, /* what takes both parts, or makes weights of what is stored, and the dot */
  /* instructions before a dot that are searched for an update; where there are more, the dot keeps its copy */
  MOST_VISITED = 2000,
  MOST_USERS = 1000, /* of an array, that are searched for each of the dots that read it */
};

typedef struct searcher {
  weft_arena *arena;
  const hlo_instr **stack;
  int *visit, visit_capacity; /* by id: the number of the search that has last seen the instruction */
  int number;
} searcher;

/* ---- updates in place -------------------------------------------------------------------------------------------- */

/* True if this search sees `instr` for the first time, or if there is no memory to note it. */
static bool is_new(searcher *s, const hlo_instr *instr)
{
  if (!WEFT_ARENA_RESERVE(s->arena, s->visit, s->visit_capacity, instr->id + 1, 256)) return true;
  bool seen = s->visit[instr->id] == s->number;
  s->visit[instr->id] = s->number;
  return !seen;
}

/* True if `value` needs `wanted`, or if that is too far to see. */
static bool needs(searcher *s, const hlo_instr *value, const hlo_instr *wanted)
{
  int depth = 0, visited = 0;

  s->number++;
  s->stack[depth++] = value;
  while (depth > 0) {
    const hlo_instr *x = s->stack[--depth];
    if (x == wanted) return true;
    for (int i = 0; i < x->operand_count; i++) {
      if (!is_new(s, x->operands[i])) continue;
      if (++visited > MOST_VISITED) return true;
      s->stack[depth++] = x->operands[i];
    }
  }
  return false;
}

/* The element of the loop's state that `x` is in a body; -1: it is none. */
static int64_t state_element(const hlo_instr *x)
{
  const hlo_computation *comp = x->parent;

  return x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0]->op == HLO_PARAMETER && comp->root->op == HLO_TUPLE &&
             x->u.tuple_index < comp->root->operand_count
           ? x->u.tuple_index
           : -1;
}

/* Does the loop change the element of its state that begins with operand `element` of its initial tuple? */
static bool loop_changes(const hlo_instr *loop, int element)
{
  const hlo_instr *root = loop->called[0]->root;

  return root->op != HLO_TUPLE || state_element(root->operands[element]) != element;
}

/* True if `user` may write over its operand `array`. */
static bool may_overwrite(const hlo_instr *user, const hlo_instr *array)
{
  switch (user->op) {
  case HLO_DYNAMIC_UPDATE_SLICE: case HLO_SCATTER: return true;
  case HLO_CUSTOM_CALL: return user->u.custom->alias_count > 0;
  case HLO_TUPLE:
    for (int u = 0; u < user->user_count; u++)
      for (int i = 0; user->users[u]->op == HLO_WHILE && i < user->operand_count; i++)
        if (user->operands[i] == array && loop_changes(user->users[u], i)) return true;
    return false;
  default: return false;
  }
}

/* True if something may be written over `array` that `dot` needs, so that the dot would find another value there. */
static bool changes_before(searcher *s, const hlo_instr *array, const hlo_instr *dot)
{
  int64_t element = state_element(array);
  const hlo_instr *next = element >= 0 ? array->parent->root->operands[element] : array;

  if (array->user_count > MOST_USERS) return true;
  for (int i = 0; i < array->user_count; i++)
    if (may_overwrite(array->users[i], array) && needs(s, dot, array->users[i])) return true;
  return next != array && needs(s, dot, next);
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

static bool walks(const gen_view *view, hlo_ints dims, gen_parts *out)
{
  return gen_view_walk(view, dims.count, dims.v, out);
}

/* The free dimensions of an operand as one loop. */
static bool walks_free(const gen_view *view, hlo_ints batch, hlo_ints contracting, gen_parts *out)
{
  int64_t dims[HLO_MAX_RANK];
  int count = 0;

  for (int64_t d = 0; d < view->rank; d++)
    if (!pass_ints_contain(batch, d) && !pass_ints_contain(contracting, d)) dims[count++] = d;
  return gen_view_walk(view, count, dims, out);
}

/* Is the view a stack of matrices whose rows or columns are dense? */
static bool is_matrices(const gen_view *view, hlo_ints batch, hlo_ints contracting)
{
  gen_parts free, sum;

  if (!walks_free(view, batch, contracting, &free) || !walks(view, contracting, &sum)) return false;
  if (free.count > 1 || sum.count > 1) return false;
  return free.count == 0 || sum.count == 0 || free.v[0].step == 1 || sum.v[0].step == 1;
}

/* A view of operand `i` of `dot` that the library can read. False: the operand is read as it is. */
static bool view_operand(searcher *s, const hlo_instr *dot, int i, gen_view *out)
{
  const hlo_dot_attrs *a = dot->u.dot;

  *out = gen_view_of(dot->operands[i]);
  return out->is_part && dot->operands[i]->shape->type != WEFT_PRED && pass_is_in_memory(out->array) &&
         is_matrices(out, i ? a->rhs_batch : a->lhs_batch, i ? a->rhs_contracting : a->lhs_contracting) &&
         !changes_before(s, out->array, dot);
}

/* Can one loop walk the matrices of both operands? */
static bool batches_match(const hlo_instr *dot, const gen_view *lhs, const gen_view *rhs)
{
  gen_parts l, r;

  return walks(lhs, dot->u.dot->lhs_batch, &l) && walks(rhs, dot->u.dot->rhs_batch, &r) && gen_parts_match(&l, &r);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

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

/* Adds what is between `array` and `value`, the first to be computed first. */
static bool join(group *g, hlo_instr *value, const hlo_instr *array)
{
  int begin = g->count;

  for (; value != array && !has_member(g, value); value = value->operands[0]) {
    if (pass_has_control_edges(value) || g->count == MOST_MEMBERS - 1) return false;
    g->members[g->count++] = value;
  }
  for (int i = begin, j = g->count - 1; i < j; i++, j--) {
    hlo_instr *member = g->members[i];
    g->members[i] = g->members[j];
    g->members[j] = member;
  }
  return true;
}

static weft_status *make_fusion(group *g, hlo_instr *dot, pass_map *map, bool *changed)
{
  hlo_instr *fusion;

  g->members[g->count++] = dot;
  WEFT_TRY(pass_outline(g->members, g->count, &dot, 1, map, "dot_fusion", &fusion));
  *changed = true;
  return pass_fusion_classify(fusion, GEN_LIBRARY_FUSION);
}

/* ---- weights with zero points and scales ---- */

static bool is_array_of(const gen_stored *w, const hlo_instr *value)
{
  bool found = value == w->view.array;

  for (int i = 0; i < w->count; i++) found = found || value == w->steps[i].view.array;
  return found;
}

/* Adds what makes `value` of the arrays of `w`, operands first. Scalar constants are copied into any fusion. False:
 * there is too much of it. */
static bool join_weights(group *g, hlo_instr *value, const gen_stored *w)
{
  if (is_array_of(w, value) || has_member(g, value) || value->op == HLO_CONSTANT) return true;
  if (pass_has_control_edges(value) || g->count == MOST_MEMBERS - 1) return false;
  int operands = value->op == HLO_DYNAMIC_SLICE ? 1 : value->operand_count; /* starts come from outside */
  for (int i = 0; i < operands; i++)
    if (!join_weights(g, value->operands[i], w)) return false;
  if (g->count == MOST_MEMBERS - 1) return false;
  g->members[g->count++] = value;
  return true;
}

static bool can_read(searcher *s, const hlo_instr *dot, const gen_view *view)
{
  return !view->is_part || (pass_is_in_memory(view->array) && !changes_before(s, view->array, dot));
}

static bool can_read_all(searcher *s, const hlo_instr *dot, const gen_stored *w)
{
  for (int i = 0; i < w->count; i++)
    if (!can_read(s, dot, &w->steps[i].view)) return false;
  return can_read(s, dot, &w->view);
}

/* Finds weights that the dot can read as they are stored, in parts of arrays if that is possible. */
static bool find_weights(searcher *s, const pass_ctx *ctx, const hlo_instr *dot, gen_stored *out)
{
  for (int in_parts = 1; in_parts >= 0; in_parts--)
    if (gen_dot_reads_stored(pass_target(ctx), dot, in_parts, ctx->options->rounds_narrow, out) &&
        can_read_all(s, dot, out))
      return true;
  return false;
}

static weft_status *fuse_weights(hlo_instr *dot, searcher *s, const gen_stored *w, pass_map *map, bool *changed)
{
  group g = {.count = 0};
  gen_view lhs;

  if (view_operand(s, dot, 0, &lhs) && !join(&g, dot->operands[0], lhs.array)) g.count = 0;
  return join_weights(&g, dot->operands[1], w) ? make_fusion(&g, dot, map, changed) : NULL;
}

/* ---- parts ---- */

static weft_status *fuse(hlo_instr *dot, searcher *s, pass_map *map, bool *changed)
{
  gen_view views[2], dense[2];
  bool wanted[2];
  unsigned sides = 3;
  group g = {.count = 0};

  for (int i = 0; i < 2; i++) {
    dense[i] = gen_view_dense(dot->operands[i]->shape);
    wanted[i] = view_operand(s, dot, i, &views[i]);
  }
  for (; sides > 0; sides--) { /* both parts, that of rhs, that of lhs */
    bool lhs = sides & 1, rhs = sides & 2;
    if ((!lhs || wanted[0]) && (!rhs || wanted[1]) &&
        batches_match(dot, lhs ? &views[0] : &dense[0], rhs ? &views[1] : &dense[1]))
      break;
  }
  for (int i = 0; i < 2; i++)
    if ((sides >> i & 1) && !join(&g, dot->operands[i], views[i].array)) return NULL;
  return g.count ? make_fusion(&g, dot, map, changed) : NULL;
}

static bool may_have_parts(const pass_ctx *ctx, const hlo_instr *instr)
{
  return instr->op == HLO_DOT && instr->operand_count == 2 && !instr->u.dot->sparsity &&
         !pass_has_control_edges(instr) && !gen_dot_needs_kernel(pass_target(ctx), instr, false);
}

static weft_status *dot_parts_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch};
  searcher s = {.arena = ctx->scratch};
  pass_comps comps;

  s.stack = WEFT_ARENA_ARRAY(ctx->scratch, const hlo_instr *, MOST_VISITED + 2);
  WEFT_TRY_ALLOC(s.stack);
  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int c = 0; c < comps.count; c++)
    for (hlo_instr *instr = comps.v[c]->first, *next; instr; instr = next) {
      next = instr->next; /* a fusion comes before its dot, and the dot goes */
      gen_stored w;
      if (!may_have_parts(ctx, instr)) continue;
      if (find_weights(&s, ctx, instr, &w)) WEFT_TRY(fuse_weights(instr, &s, &w, &map, changed));
      else WEFT_TRY(fuse(instr, &s, &map, changed));
    }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_dot_parts = {"dot-parts", dot_parts_run};
