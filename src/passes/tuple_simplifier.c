/* passes/tuple_simplifier.c -- tuple-simplifier: get-tuple-element(tuple(x...)) is x; tuple(gte(t,0), gte(t,1), ...) of
 * all of t's elements is t. */
#include <config.h>

#include "passes/passes.h"

static hlo_instr *reassembled(const hlo_instr *tuple)
{
  hlo_instr *source;

  if (tuple->operand_count == 0 || tuple->operands[0]->op != HLO_GET_TUPLE_ELEMENT) return NULL;
  source = tuple->operands[0]->operands[0];
  if (source->shape->rank != tuple->operand_count) return NULL;
  for (int i = 0; i < tuple->operand_count; i++) {
    const hlo_instr *element = tuple->operands[i];
    if (element->op != HLO_GET_TUPLE_ELEMENT || element->operands[0] != source || element->u.tuple_index != i)
      return NULL;
  }
  return source;
}

static weft_status *tuple_simplifier_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      hlo_instr *with = NULL;
      if (pass_has_control_edges(instr)) continue;
      if (instr->op == HLO_GET_TUPLE_ELEMENT && instr->operands[0]->op == HLO_TUPLE)
        with = instr->operands[0]->operands[instr->u.tuple_index];
      else if (instr->op == HLO_TUPLE) with = reassembled(instr);
      if (!with) continue;
      WEFT_TRY(hlo_replace(instr, with));
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_tuple_simplifier = {"tuple-simplifier", tuple_simplifier_run};
