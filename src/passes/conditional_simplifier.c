/* passes/conditional_simplifier.c -- conditional-simplifier: a conditional on a constant becomes its branch. A
 * conditional on a pred whose branches are short, cheap and free of effects becomes both branches and selects, which
 * fuse with their surroundings. */
#include <config.h>

#include "passes/build.h"
#include "passes/fusion.h"
#include "passes/passes.h"

enum {
  SELECT_INSTRUCTIONS = 24, /* instructions of a branch that may be computed in vain */
  SELECT_ELEMENTS = 512,    /* elements that the instructions of such a branch compute, weighted by their cost */
};

static bool is_cheap(const hlo_computation *branch)
{
  double work = 0;

  if (branch->instr_count > SELECT_INSTRUCTIONS) return false;
  for (const hlo_instr *instr = branch->first; instr; instr = instr->next) {
    switch (instr->op) {
    case HLO_PARAMETER: case HLO_TUPLE: case HLO_GET_TUPLE_ELEMENT: case HLO_CONSTANT: continue;
    case HLO_DYNAMIC_SLICE: case HLO_SLICE: case HLO_RESHAPE: case HLO_BROADCAST: break;
    default:
      if (!hlo_opcode_is_elementwise(instr->op) || pass_has_control_edges(instr)) return false;
    }
    if (!hlo_shape_is_array(instr->shape)) return false;
    work += (double)hlo_shape_elems(instr->shape) * (1 + pass_element_cost(instr));
  }
  return work <= SELECT_ELEMENTS;
}

static bool is_array_or_flat_tuple(const hlo_shape *shape)
{
  if (hlo_shape_is_array(shape)) return !hlo_shape_is_dynamic(shape);
  for (int i = 0; i < shape->rank; i++)
    if (!hlo_shape_is_array(shape->elements[i])) return false;
  return hlo_shape_is_tuple(shape) && !hlo_shape_is_dynamic(shape);
}

/* Puts the branch's body in front of the conditional. */
static weft_status *inline_branch(hlo_instr *conditional, int branch, pass_map *map, hlo_instr **out)
{
  hlo_instr *call, *keep;

  WEFT_TRY(hlo_add(conditional->parent, conditional, HLO_CALL, conditional->shape, 1,
                   &conditional->operands[branch + 1], NULL, &call));
  WEFT_TRY(hlo_set_called(call, 1, &conditional->called[branch]));
  /* An instruction must use the call while it is replaced; the copy then takes the call's place there. */
  WEFT_TRY(hlo_add_tuple(conditional->parent, conditional, 1, &call, &keep));
  WEFT_TRY(pass_inline(call, conditional->called[branch], map, out));
  return hlo_remove(keep);
}

static hlo_instr *choose(pass_build *b, hlo_instr *pred, hlo_instr *x, hlo_instr *y)
{
  if (b->error) return NULL;
  if (x == y) return x;
  if (hlo_shape_is_tuple(x->shape)) {
    int count = x->shape->rank;
    hlo_instr **elements = WEFT_ARENA_ARRAY(&b->comp->module->arena, hlo_instr *, count);
    for (int i = 0; elements && i < count; i++)
      elements[i] = choose(b, pred, pb_gte(b, x, i), pb_gte(b, y, i)); /* flat: one level */
    return pb_tuple(b, count, elements);
  }
  return pb_select(b, pb_fill(b, pred, x->shape), x, y);
}

static weft_status *simplify_conditional(hlo_instr *conditional, pass_map *map, bool *changed)
{
  hlo_instr *which = conditional->operands[0], *branches[2];
  int count = conditional->called_count, known = -1;
  bool is_pred = which->shape->type == WEFT_PRED;

  if (pass_has_control_edges(conditional)) return NULL;
  if (count == 1) known = 0;
  else if (which->op == HLO_CONSTANT) {
    int64_t value = hlo_literal_get_s64(which->u.literal, 0);
    known = is_pred ? !value : value < 0 || value >= count ? count - 1 : (int)value;
  }
  if (known >= 0) {
    WEFT_TRY(inline_branch(conditional, known, map, &branches[0]));
    *changed = true;
    return hlo_replace(conditional, branches[0]);
  }
  if (!is_pred || count != 2 || !is_array_or_flat_tuple(conditional->shape) || !is_cheap(conditional->called[0]) ||
      !is_cheap(conditional->called[1]))
    return NULL;
  pass_build b = PASS_BUILD_AT(conditional);
  for (int i = 0; i < 2; i++) WEFT_TRY(inline_branch(conditional, i, map, &branches[i]));
  *changed = true;
  return pass_build_replace(&b, conditional, choose(&b, which, branches[0], branches[1]));
}

static weft_status *conditional_simplifier_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch};
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) {
    HLO_FOREACH(instr, comps.v[i])
      if (instr->op == HLO_CONDITIONAL) WEFT_TRY(simplify_conditional(instr, &map, changed));
  }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_conditional_simplifier = {"conditional-simplifier", conditional_simplifier_run};
