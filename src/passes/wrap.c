/* passes/wrap.c -- wrap: every instruction of a sequential computation that needs a compiled kernel and is not in a
 * fusion becomes a fusion of its own, so that code generation sees kernels in one form only. */
#include <config.h>

#include <stdio.h>

#include "codegen/model/library.h"
#include "passes/fusion.h"
#include "passes/passes.h"

static weft_status *wrap_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch};
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) {
    HLO_FOREACH(instr, comps.v[i]) {
      char name[64];
      hlo_instr *fusion;
      if (!gen_needs_kernel(pass_target(ctx), instr)) continue;
      snprintf(name, sizeof name, "wrapped_%s", hlo_opcode_name(instr->op));
      WEFT_TRY(pass_outline(&instr, 1, &instr, 1, &map, name, &fusion));
      WEFT_TRY(pass_fusion_classify(fusion, NULL));
      *changed = true;
    }
  }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_wrap = {"wrap", wrap_run};
