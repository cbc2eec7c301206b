/* passes/multi_output_fusion.c -- multi-output-fusion: merges loop fusions over the same dimensions into one loop
 * with several results, if they read the same array or if one reads the other's result element by element.  An
 * array that both read is then read once.
 *
 * Two fusions are merged in one of two cases, so that no cycle can arise.  Either nothing between them (in the
 * list's order) uses the earlier fusion, which then moves down to the later one; or all operands of the later
 * fusion come before the earlier one, and the later fusion moves up.  The pass walks the list once; each merge
 * removes a fusion. */
#include <config.h>

#include <stdio.h>
#include <string.h>

#include "passes/fusion.h"
#include "passes/passes.h"

enum {
  MOST_INSTRUCTIONS = 96, /* in the merged loop */
  MOST_RESULTS = 8,
  TINY_ELEMENTS = 64,     /* loops this small may have MOST_TINY_RESULTS results: their cost is the dispatch */
  MOST_TINY_RESULTS = 64,
  MOST_USERS = 64,        /* an operand, or a fusion, with more users is not considered */
};

typedef struct merger {
  weft_arena *arena;
  pass_map map;   /* of pass_inline and pass_outline */
  pass_map place; /* position in the list + 1, as an integer */
  pass_map stamp; /* a set that is emptied by counting `current` up */
  intptr_t current;
} merger;

static weft_status *stamp(merger *m, const hlo_instr *instr)
{
  return pass_map_set(&m->stamp, instr->id, (void *)m->current);
}
static bool has_stamp(const merger *m, const hlo_instr *instr)
{
  return (intptr_t)pass_map_get(&m->stamp, instr->id) == m->current;
}

static intptr_t place_of(const merger *m, const hlo_instr *instr)
{
  return (intptr_t)pass_map_get(&m->place, instr->id);
}

static bool is_loop(const hlo_instr *instr)
{
  return instr->op == HLO_FUSION && instr->u.fusion.kind == HLO_FUSION_LOOP && !pass_has_control_edges(instr);
}

static const hlo_shape *loop_shape(const hlo_instr *fusion) { return hlo_shape_leaf(fusion->shape, 0); }

static int result_count(const hlo_instr *fusion) { return hlo_shape_leaf_count(fusion->shape); }

/* Do all users of `a`, seen through its tuple elements, come after `b`, or are they `b`? */
static bool is_free_until(const merger *m, const hlo_instr *a, const hlo_instr *b)
{
  if (a->user_count > MOST_USERS || a == a->parent->root) return false;
  for (int i = 0; i < a->user_count; i++) {
    const hlo_instr *user = a->users[i];
    if (user == b) continue;
    if (user->op == HLO_GET_TUPLE_ELEMENT && hlo_shape_is_tuple(a->shape)) {
      if (!is_free_until(m, user, b)) return false; /* one level: elements are arrays */
    } else if (place_of(m, user) <= place_of(m, b)) {
      return false;
    }
  }
  return true;
}

/* *out: does `fusion` read parameter `number` only at the index that it writes? */
static weft_status *reads_in_step(merger *m, const hlo_instr *fusion, int number, bool *out)
{
  const hlo_computation *body = fusion->called[0];

  *out = false;
  m->current++;
  for (hlo_instr *instr = body->last; instr; instr = instr->prev) {
    bool all = instr->user_count > 0 || instr == body->root;
    for (int i = 0; i < instr->user_count && all; i++) {
      const hlo_instr *user = instr->users[i];
      all = user->op == HLO_TUPLE || (hlo_opcode_is_elementwise(user->op) && has_stamp(m, user));
    }
    if (!all) continue;
    WEFT_TRY(stamp(m, instr));
    *out |= instr->op == HLO_PARAMETER && instr->u.parameter_number == number;
  }
  return NULL;
}

/* Do all operands of `b` come before `a`? */
static bool is_ready_at(const merger *m, const hlo_instr *b, const hlo_instr *a)
{
  for (int i = 0; i < b->operand_count; i++)
    if (place_of(m, b->operands[i]) >= place_of(m, a)) return false;
  return true;
}

static bool may_merge(const merger *m, const hlo_instr *a, const hlo_instr *b)
{
  return a != b && is_loop(a) && is_loop(b) && hlo_shape_same_dims(loop_shape(a), loop_shape(b)) &&
         place_of(m, a) < place_of(m, b) &&
         a->called[0]->instr_count + b->called[0]->instr_count <= MOST_INSTRUCTIONS &&
         result_count(a) + result_count(b) <=
           (hlo_shape_elems(loop_shape(a)) <= TINY_ELEMENTS ? MOST_TINY_RESULTS : MOST_RESULTS) &&
         (is_free_until(m, a, b) || is_ready_at(m, b, a));
}

/* The fusion that makes `value`, directly or as one of several results. */
static hlo_instr *maker_of(hlo_instr *value) { return value->op == HLO_GET_TUPLE_ELEMENT ? value->operands[0] : value; }

/* An earlier fusion to merge into `b`, or NULL. */
static weft_status *find_partner(merger *m, const hlo_instr *b, hlo_instr **out)
{
  *out = NULL;
  for (int i = 0; i < b->operand_count; i++) {
    hlo_instr *x = b->operands[i], *a = maker_of(x);
    if (!hlo_shape_is_array(x->shape)) continue;
    if (may_merge(m, a, b)) {
      bool in_step = true;
      for (int k = 0; k < b->operand_count && in_step; k++)
        if (maker_of(b->operands[k]) == a) WEFT_TRY(reads_in_step(m, b, k, &in_step));
      if (in_step) {
        *out = a;
        return NULL;
      }
    }
    if (x->user_count > MOST_USERS || hlo_shape_elems(x->shape) * 2 < hlo_shape_elems(loop_shape(b))) continue;
    for (int k = 0; k < x->user_count; k++) {
      bool depends = false;
      a = x->users[k];
      if (!may_merge(m, a, b)) continue;
      for (int j = 0; j < b->operand_count; j++) depends |= maker_of(b->operands[j]) == a;
      if (depends) continue; /* out of step, or it would have been found above */
      *out = a;
      return NULL;
    }
  }
  return NULL;
}

/* Puts the body of a fusion back into the computation, and appends its instructions to `members` and its results
 * to `results`. */
static weft_status *dissolve(merger *m, hlo_instr *fusion, hlo_instr **members, int *member_count, hlo_instr **results,
                             int *result_total)
{
  const hlo_computation *body = fusion->called[0];
  hlo_instr *root;

  WEFT_TRY(pass_inline(fusion, body, &m->map, &root));
  for (const hlo_instr *instr = body->first; instr; instr = instr->next) {
    if (instr->op == HLO_PARAMETER || (instr == body->root && instr->op == HLO_TUPLE)) continue;
    members[(*member_count)++] = pass_map_get(&m->map, instr->id);
  }
  if (root->op != HLO_TUPLE) {
    results[(*result_total)++] = root;
  } else {
    for (int i = 0; i < root->operand_count; i++) results[(*result_total)++] = root->operands[i];
    while (root->user_count > 0) { /* its elements */
      hlo_instr *element = root->users[root->user_count - 1];
      WEFT_TRY(hlo_replace(element, root->operands[element->u.tuple_index]));
    }
    WEFT_TRY(hlo_remove(root));
  }
  for (const hlo_instr *instr = body->first; instr; instr = instr->next)
    WEFT_TRY(pass_map_set(&m->map, instr->id, NULL));
  return NULL;
}

/* The members carry the current stamp. */
static bool is_used_outside(const merger *m, const hlo_instr *value)
{
  if (value == value->parent->root) return true;
  for (int i = 0; i < value->user_count; i++)
    if (!has_stamp(m, value->users[i])) return true;
  return false;
}

static weft_status *merge(merger *m, hlo_instr *a, hlo_instr *b, hlo_instr **out)
{
  int count = a->called[0]->instr_count + b->called[0]->instr_count, member_count = 0, total = 0, outputs = 0;
  hlo_instr **members = WEFT_ARENA_ARRAY(m->arena, hlo_instr *, count);
  hlo_instr **results = WEFT_ARENA_ARRAY(m->arena, hlo_instr *, result_count(a) + result_count(b));
  intptr_t place = place_of(m, is_free_until(m, a, b) ? b : a);

  WEFT_TRY_ALLOC(members);
  WEFT_TRY_ALLOC(results);
  WEFT_TRY(dissolve(m, a, members, &member_count, results, &total));
  WEFT_TRY(dissolve(m, b, members, &member_count, results, &total));
  m->current++;
  for (int i = 0; i < member_count; i++) WEFT_TRY(stamp(m, members[i]));
  for (int i = 0; i < total; i++) {
    bool is_new = true; /* two results may be one value */
    for (int k = 0; k < outputs; k++) is_new &= results[k] != results[i];
    if (is_new && is_used_outside(m, results[i])) results[outputs++] = results[i];
  }
  WEFT_TRY(pass_outline(members, member_count, results, outputs, &m->map, "loop_multi_fusion", out));
  WEFT_TRY(pass_fusion_classify(*out, NULL));
  WEFT_TRY(pass_map_set(&m->place, (*out)->id, (void *)place));
  for (int i = 0; i < (*out)->user_count; i++)
    if ((*out)->users[i]->op == HLO_GET_TUPLE_ELEMENT)
      WEFT_TRY(pass_map_set(&m->place, (*out)->users[i]->id, (void *)place));
  return NULL;
}

static weft_status *merge_in(merger *m, hlo_computation *comp, bool *changed)
{
  intptr_t place = 0;
  bool merged = false;

  HLO_FOREACH(instr, comp) WEFT_TRY(pass_map_set(&m->place, instr->id, (void *)++place));
  HLO_FOREACH(instr, comp) {
    hlo_instr *b = instr, *a;
    if (!is_loop(b)) continue;
    for (;;) {
      WEFT_TRY(find_partner(m, b, &a));
      if (!a) break;
      WEFT_TRY(merge(m, a, b, &b));
      merged = true;
    }
  }
  *changed |= merged;
  return merged ? hlo_computation_sort(comp) : NULL;
}

static weft_status *multi_output_fusion_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  merger m = {.arena = ctx->scratch, .map.arena = ctx->scratch, .place.arena = ctx->scratch,
              .stamp.arena = ctx->scratch};
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) WEFT_TRY(merge_in(&m, comps.v[i], changed));
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_multi_output_fusion = {"multi-output-fusion", multi_output_fusion_run};
