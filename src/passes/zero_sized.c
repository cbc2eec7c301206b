/* passes/zero_sized.c -- zero-sized: an array without elements needs no computation and becomes a broadcast of a
 * scalar constant. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

static weft_status *zero_sized_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) {
    HLO_FOREACH(instr, comps.v[i]) {
      pass_build b = PASS_BUILD_AT(instr);
      if (!hlo_shape_is_array(instr->shape) || hlo_shape_elems(instr->shape) > 0 || instr->op == HLO_PARAMETER ||
          instr->op == HLO_CONSTANT || hlo_shape_is_dynamic(instr->shape) || pass_has_control_edges(instr) ||
          (instr->op == HLO_BROADCAST && instr->operands[0]->op == HLO_CONSTANT) ||
          (instr->op == HLO_GET_TUPLE_ELEMENT && instr->operands[0]->op == HLO_PARAMETER) ||
          hlo_opcode_is_collective(instr->op) || hlo_opcode_is_async(instr->op) || hlo_has_side_effect(instr))
        continue;
      WEFT_TRY(pass_build_replace(&b, instr, pb_fill(&b, pb_scalar(&b, instr->shape->type, 0), instr->shape)));
      *changed = true;
    }
  }
  return NULL;
}
const hlo_pass pass_zero_sized = {"zero-sized", zero_sized_run};
