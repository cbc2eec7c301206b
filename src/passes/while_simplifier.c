/* passes/while_simplifier.c -- while-simplifier: less state carried, fewer iterations, fewer loops.
 *   - an element that the body hands on unchanged is its initial value: after the loop, and inside if it is a small
 *     constant (constant sinking);
 *   - elements that start equal and are updated by the same instruction are one;
 *   - elements that nothing depends on but themselves are dropped;
 *   - a loop that never runs is its initial value, one that runs once is its body, one that runs a few times with a
 *     small body without loops is that body repeated (threefry's five rounds meet one elementwise fusion);
 *   - a counted loop is annotated: backend_config={"known_trip_count":{"n":"5"}}. */
#include <config.h>

#include <string.h>

#include "passes/passes.h"
#include "passes/while_loop.h"

enum {
  SUNK_CONSTANT_BYTES = 256, /* bytes of the largest constant that is copied into the body */
  UNROLL_TRIPS = 8,
  UNROLL_INSTRUCTIONS = 800,
};

/* ---- invariant elements ------------------------------------------------------------------------------------------ */

/* Replaces all uses of `element` except the one in the root's own slot, which stays. */
static weft_status *replace_in_body(while_loop *w, int i, hlo_instr *with)
{
  hlo_instr *element = w->in_body[i], *root = w->body->root;

  WEFT_TRY(hlo_replace_uses(element, with));
  return hlo_set_operand(root, i, element);
}

static weft_status *sink_constant(while_loop *w, int i, const hlo_instr *constant, bool *changed)
{
  hlo_instr *copy;

  if (w->in_body[i]->user_count > 1) {
    hlo_instr *param = hlo_parameter(w->body, 0);
    WEFT_TRY(hlo_add_clone(w->body, param->next, constant, NULL, &copy));
    WEFT_TRY(replace_in_body(w, i, copy));
    *changed = true;
  }
  if (w->in_cond[i] && (w->in_cond[i]->user_count > 0 || w->cond->root == w->in_cond[i])) {
    hlo_instr *param = hlo_parameter(w->cond, 0);
    WEFT_TRY(hlo_add_clone(w->cond, param->next, constant, NULL, &copy));
    WEFT_TRY(hlo_replace_uses(w->in_cond[i], copy));
    *changed = true;
  }
  return NULL;
}

static weft_status *use_initial_values(while_loop *w, bool *changed)
{
  for (int i = 0; i < w->count; i++) {
    hlo_instr *init = while_init(w, i);
    if (!while_is_invariant(w, i)) continue;
    if (init->op == HLO_CONSTANT && hlo_shape_total_bytes(init->shape) <= SUNK_CONSTANT_BYTES)
      WEFT_TRY(sink_constant(w, i, init, changed));
    if (w->after[i] && (w->after[i]->user_count > 0 || w->after[i] == w->loop->parent->root) &&
        !pass_has_control_edges(w->loop)) {
      WEFT_TRY(hlo_replace_uses(w->after[i], init));
      *changed = true;
    }
  }
  return NULL;
}

/* ---- equal elements ---------------------------------------------------------------------------------------------- */

static weft_status *merge_into(while_loop *w, int from, int to)
{
  hlo_instr *element, *param;

  if (w->in_body[from]) {
    WEFT_TRY(while_in_body(w, to, &element));
    WEFT_TRY(replace_in_body(w, from, element));
  }
  if (w->in_cond[from]) {
    param = hlo_parameter(w->cond, 0);
    if (!w->in_cond[to]) WEFT_TRY(hlo_add_gte(w->cond, param->next, param, to, &w->in_cond[to]));
    WEFT_TRY(hlo_replace_uses(w->in_cond[from], w->in_cond[to]));
  }
  if (w->after[from]) {
    if (!w->after[to]) WEFT_TRY(hlo_add_gte(w->loop->parent, w->loop->next, w->loop, to, &w->after[to]));
    WEFT_TRY(hlo_replace_uses(w->after[from], w->after[to]));
  }
  return NULL;
}

static bool is_used(const while_loop *w, int i)
{
  return (w->in_body[i] && w->in_body[i]->user_count > (while_next(w, i) == w->in_body[i])) ||
         (w->in_cond[i] && w->in_cond[i]->user_count > 0) || (w->after[i] && w->after[i]->user_count > 0);
}

/* Two elements are equal if they start equal and are both invariant, or are both set to the value of the same
 * instruction. */
static weft_status *merge_equal(while_loop *w, weft_arena *arena, bool *changed)
{
  /* index + 1 of the first element with that start (invariant) or that next value */
  pass_map by_key = {.arena = arena};
  pass_map by_next = {.arena = arena};

  for (int i = 0; i < w->count; i++) {
    bool invariant = while_is_invariant(w, i);
    hlo_instr *key = invariant ? while_init(w, i) : while_next(w, i);
    pass_map *map = invariant ? &by_key : &by_next;
    intptr_t first = (intptr_t)pass_map_get(map, key->id) - 1;
    if (first < 0) {
      WEFT_TRY(pass_map_set(map, key->id, (void *)(intptr_t)(i + 1)));
      continue;
    }
    if (while_init(w, (int)first) != while_init(w, i) || !is_used(w, i)) continue;
    WEFT_TRY(merge_into(w, i, (int)first));
    *changed = true;
  }
  return NULL;
}

/* ---- unused elements --------------------------------------------------------------------------------------------- */

typedef struct liveness {
  const while_loop *w;
  pass_map seen;
  hlo_instr **stack;
  bool *live;
} liveness;

/* Marks what `value` depends on in the body. Elements that are reached become live and are returned through `queue`. */
static weft_status *mark(liveness *l, hlo_instr *value, int *queue, int *queued)
{
  const hlo_instr *param = hlo_parameter(l->w->body, 0);
  int depth = 0;

  if (pass_map_get(&l->seen, value->id)) return NULL;
  WEFT_TRY(pass_map_set(&l->seen, value->id, value));
  l->stack[depth++] = value;
  while (depth > 0) {
    hlo_instr *instr = l->stack[--depth];
    if (instr->op == HLO_GET_TUPLE_ELEMENT && instr->operands[0] == param) {
      int i = (int)instr->u.tuple_index;
      if (!l->live[i]) {
        l->live[i] = true;
        queue[(*queued)++] = i;
      }
      continue;
    }
    for (int i = 0; i < instr->operand_count; i++) {
      if (pass_map_get(&l->seen, instr->operands[i]->id)) continue;
      WEFT_TRY(pass_map_set(&l->seen, instr->operands[i]->id, instr->operands[i]));
      l->stack[depth++] = instr->operands[i];
    }
  }
  return NULL;
}

static weft_status *drop_unused(while_loop *w, weft_arena *arena, bool *changed)
{
  liveness l = {.w = w, .seen.arena = arena};
  int *queue = WEFT_ARENA_ARRAY(arena, int, w->count + 1), queued = 0, live_count = 0;

  l.stack = WEFT_ARENA_ARRAY(arena, hlo_instr *, w->body->instr_count + 1);
  l.live = WEFT_ARENA_ARRAY(arena, bool, w->count);
  WEFT_TRY_ALLOC(queue);
  WEFT_TRY_ALLOC(l.stack);
  WEFT_TRY_ALLOC(l.live);
  for (int i = 0; i < w->count; i++) {
    bool outside = w->after[i] && (w->after[i]->user_count > 0 || w->after[i] == w->loop->parent->root);
    bool in_cond = w->in_cond[i] && (w->in_cond[i]->user_count > 0 || w->in_cond[i] == w->cond->root);
    if (!outside && !in_cond) continue;
    l.live[i] = true;
    queue[queued++] = i;
  }
  /* An instruction with an effect stays, whether or not the token that it makes is read after the loop. */
  for (hlo_instr *instr = w->body->first; instr; instr = instr->next)
    if (instr != w->body->root && instr->op != HLO_PARAMETER &&
        (pass_has_control_edges(instr) || hlo_has_side_effect(instr)))
      WEFT_TRY(mark(&l, instr, queue, &queued));
  while (queued > 0) WEFT_TRY(mark(&l, while_next(w, queue[--queued]), queue, &queued));
  for (int i = 0; i < w->count; i++) live_count += l.live[i];
  if (live_count == w->count) return NULL;

  WEFT_TRY(while_keep(w, l.live));
  *changed = true;
  /* Removes what only the dropped elements needed, so that no get-tuple-element names a missing element. */
  hlo_computation *comps[] = {w->body, w->cond};
  for (int c = 0; c < 2; c++)
    for (hlo_instr *instr = comps[c]->last, *prev; instr; instr = prev) {
      prev = instr->prev;
      if (hlo_is_dead(instr)) WEFT_TRY(hlo_remove(instr));
    }
  return NULL;
}

/* Removes unused get-tuple-elements, which would otherwise keep an index that no longer exists. */
static weft_status *remove_unused_views(while_loop *w)
{
  hlo_instr **views[] = {w->in_body, w->in_cond, w->after};

  for (size_t v = 0; v < WEFT_COUNT(views); v++)
    for (int i = 0; i < w->count; i++)
      if (views[v][i] && hlo_is_dead(views[v][i])) {
        WEFT_TRY(hlo_remove(views[v][i]));
        views[v][i] = NULL;
      }
  return NULL;
}

/* ---- trip counts ------------------------------------------------------------------------------------------------- */

static bool is_small_straight_line(const hlo_computation *body, int64_t trips)
{
  if (trips > UNROLL_TRIPS || body->instr_count * trips > UNROLL_INSTRUCTIONS) return false;
  for (const hlo_instr *instr = body->first; instr; instr = instr->next)
    if (hlo_opcode_runs_steps(instr->op) || hlo_has_side_effect(instr) || hlo_opcode_is_collective(instr->op) ||
        hlo_opcode_is_async(instr->op))
      return false;
  return true;
}

/* Puts the body `trips` times in a row in place of the loop. */
static weft_status *unroll(while_loop *w, int64_t trips, weft_arena *arena)
{
  hlo_instr *state = w->loop->operands[0];
  pass_map map = {.arena = arena};

  for (int64_t t = 0; t < trips; t++) {
    hlo_instr *call;
    WEFT_TRY(hlo_add(w->loop->parent, w->loop, HLO_CALL, w->loop->shape, 1, &state, NULL, &call));
    WEFT_TRY(hlo_set_called(call, 1, &w->body));
    WEFT_TRY(hlo_set_operand(w->loop, 0, call)); /* a use, so that the copy of the body has a place to go */
    WEFT_TRY(pass_inline(call, w->body, &map, &state));
  }
  return hlo_replace(w->loop, state);
}

static bool never_runs(const hlo_instr *loop)
{
  const hlo_instr *test = loop->called[1]->root;

  return test->op == HLO_CONSTANT && !hlo_literal_get_s64(test->u.literal, 0) && !pass_has_control_edges(loop);
}

static weft_status *simplify_while(hlo_instr *loop, weft_arena *arena, bool *changed)
{
  while_loop w;
  bool is_tuple;
  int64_t trips;

  if (never_runs(loop)) {
    *changed = true;
    return hlo_replace(loop, loop->operands[0]);
  }
  WEFT_TRY(while_open(loop, arena, &w, &is_tuple));
  if (!is_tuple) return NULL;
  WEFT_TRY(use_initial_values(&w, changed));
  WEFT_TRY(merge_equal(&w, arena, changed));
  WEFT_TRY(remove_unused_views(&w));
  trips = while_trip_count(&w);
  if (pass_has_control_edges(loop) || trips < 0) return drop_unused(&w, arena, changed);
  if (trips <= 1 || is_small_straight_line(w.body, trips)) {
    *changed = true;
    return unroll(&w, trips, arena);
  }
  if (!loop->extra || !loop->extra->backend_config) WEFT_TRY(pass_set_trip_count(loop, trips));
  return drop_unused(&w, arena, changed);
}

static weft_status *while_simplifier_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) {
    HLO_FOREACH(instr, comps.v[i])
      if (instr->op == HLO_WHILE && !hlo_shape_is_dynamic(instr->shape))
        WEFT_TRY(simplify_while(instr, ctx->scratch, changed));
  }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_while_simplifier = {"while-simplifier", while_simplifier_run};
