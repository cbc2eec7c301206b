/* small-loops: a while whose changing state is scalars and whose body is short becomes one kernel (kCustom, "loop"): the
 * state lives in registers, arrays that the loop only reads are the kernel's operands, and no iteration goes through the
 * executor.  The results are the state's elements that are used after the loop. */
#include <config.h>

#include "passes/fusion.h"
#include "passes/passes.h"
#include "passes/while_loop.h"

enum {
  MOST_INSTRUCTIONS = 200, /* of body and condition */
  MOST_ELEMENTS = 16,      /* of a value inside: it is computed element by element where it is used */
  MOST_REDUCED = 64,       /* elements of a reduction inside */
};

static bool is_simple(const hlo_instr *instr)
{
  const hlo_computation *comp = instr->parent;

  if (pass_has_control_edges(instr)) return false;
  if (instr->op == HLO_PARAMETER || (instr->op == HLO_TUPLE && instr == comp->root)) return true;
  if (instr->op == HLO_GET_TUPLE_ELEMENT) return instr->operands[0] == comp->params[0];
  if (!hlo_shape_is_array(instr->shape) || hlo_shape_elems(instr->shape) > MOST_ELEMENTS) return false;
  if (hlo_opcode_is_elementwise(instr->op)) return true;
  switch (instr->op) {
  case HLO_CONSTANT: case HLO_RESHAPE: case HLO_BITCAST: case HLO_BROADCAST: case HLO_SLICE: case HLO_DYNAMIC_SLICE:
  case HLO_IOTA: case HLO_CONCATENATE: case HLO_BITCAST_CONVERT:
    return true;
  case HLO_REDUCE: return instr->operand_count == 2 && hlo_shape_elems(instr->operands[0]->shape) <= MOST_REDUCED;
  default: return false;
  }
}

static bool has_short_body(const while_loop *w)
{
  const hlo_computation *comps[] = {w->body, w->cond};

  if (w->body->instr_count + w->cond->instr_count > MOST_INSTRUCTIONS) return false;
  for (int c = 0; c < 2; c++)
    for (const hlo_instr *instr = comps[c]->first; instr; instr = instr->next)
      if (!is_simple(instr)) return false;
  return true;
}

/* What changes is scalar, and what does not is not wanted after the loop (while-simplifier sees to that). */
static bool has_scalar_state(const while_loop *w)
{
  for (int i = 0; i < w->count; i++) {
    if (!hlo_shape_is_array(while_init(w, i)->shape) || hlo_shape_is_dynamic(while_init(w, i)->shape)) return false;
    if (while_is_invariant(w, i) ? w->after[i] && w->after[i]->user_count > 0
                                 : !hlo_shape_is_scalar(while_init(w, i)->shape))
      return false;
  }
  return true;
}

static weft_status *make_kernel(while_loop *w, pass_map *map, bool *changed)
{
  hlo_instr **members = WEFT_ARENA_ARRAY(map->arena, hlo_instr *, w->count + 2), **outputs, *fusion;
  int member_count = 0, output_count = 0;

  outputs = WEFT_ARENA_ARRAY(map->arena, hlo_instr *, w->count);
  WEFT_TRY_ALLOC(members);
  WEFT_TRY_ALLOC(outputs);
  members[member_count++] = w->loop->operands[0];
  members[member_count++] = w->loop;
  for (int i = 0; i < w->count; i++) {
    if (!w->after[i] || (w->after[i]->user_count == 0 && w->after[i] != w->loop->parent->root)) continue;
    members[member_count++] = outputs[output_count++] = w->after[i];
    hlo_move_before(w->after[i], w->loop->next);
  }
  if (output_count == 0) return NULL; /* dead */
  /* The list has the elements right behind the loop, in the opposite order of the members' loop above. */
  for (int i = 0; i < output_count; i++) members[2 + i] = outputs[output_count - 1 - i];
  WEFT_TRY(pass_outline(members, member_count, outputs, output_count, map, "loop_fusion", &fusion));
  *changed = true;
  return pass_fusion_classify(fusion, "loop");
}

static weft_status *small_loops_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch};
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) {
    bool found = false;
    HLO_FOREACH(instr, comps.v[i]) {
      while_loop w;
      bool is_tuple;
      if (instr->op != HLO_WHILE || pass_has_control_edges(instr)) continue;
      WEFT_TRY(while_open(instr, ctx->scratch, &w, &is_tuple));
      if (is_tuple && has_short_body(&w) && has_scalar_state(&w)) WEFT_TRY(make_kernel(&w, &map, &found));
    }
    if (found) WEFT_TRY(hlo_computation_sort(comps.v[i]));
    *changed |= found;
  }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_small_loops = {"small-loops", small_loops_run};
