/* flatten: gives every while, conditional and call computations of its own, so that later passes may change a body
 * knowing its only caller, and the memory plan has one frame per call site.  Callers are visited before callees: a copy
 * made here is visited in turn.  A program whose flat form would be absurd (calls that double at every level) is
 * refused instead of expanded. */
#include <config.h>

#include "passes/passes.h"

enum { FLAT_LIMIT = 2 << 20 }; /* instructions added */

static bool owns_callees(hlo_opcode op)
{
  return op == HLO_WHILE || op == HLO_CONDITIONAL || op == HLO_CALL || op == HLO_FUSION || op == HLO_ASYNC_START;
}

static weft_status *flatten_instr(hlo_instr *instr, pass_map *owner, int64_t *added, bool *changed)
{
  hlo_module *module = instr->parent->module;

  for (int i = 0; i < instr->called_count; i++) {
    hlo_computation *callee = instr->called[i], *copy, **called;
    if (!pass_map_get(owner, callee->id)) {
      WEFT_TRY(pass_map_set(owner, callee->id, instr));
      continue;
    }
    *added += callee->instr_count;
    if (*added > FLAT_LIMIT)
      return WEFT_ERR(RESOURCE_EXHAUSTED, "the call graph below \"%s\" has over %d instructions when flattened",
                      instr->name, FLAT_LIMIT);
    WEFT_TRY(hlo_computation_clone(module, callee, callee->name, instr->parent, &copy));
    WEFT_TRY(pass_map_set(owner, copy->id, instr));
    called = WEFT_ARENA_ARRAY(owner->arena, hlo_computation *, instr->called_count);
    WEFT_TRY_ALLOC(called);
    for (int k = 0; k < instr->called_count; k++) called[k] = k == i ? copy : instr->called[k];
    WEFT_TRY(hlo_set_called(instr, instr->called_count, called));
    *changed = true;
  }
  return NULL;
}

static weft_status *flatten_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map owner = {.arena = ctx->scratch};
  int64_t added = 0;

  for (hlo_computation *comp = module->last; comp; comp = comp->prev) /* copies appear before their caller */
    for (hlo_instr *instr = comp->first; instr; instr = instr->next)
      if (owns_callees(instr->op)) WEFT_TRY(flatten_instr(instr, &owner, &added, changed));
  return NULL;
}
const hlo_pass pass_flatten = {"flatten", flatten_run};
