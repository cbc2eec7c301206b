/* passes/dce.c -- dce: removes instructions without a side effect whose results are not used, and computations that
 * are not called. One backward sweep over each computation, callers first, also removes what earlier removals have
 * made unused. Entry parameters stay. Loops keep the shape of their state (while-simplifier reduces that). */
#include <config.h>

#include "passes/passes.h"

static weft_status *dce_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  for (hlo_computation *comp = module->last; comp; comp = comp->prev)
    for (hlo_instr *instr = comp->last, *prev; instr; instr = prev) {
      prev = instr->prev;
      if (!hlo_is_dead(instr)) continue;
      WEFT_TRY(hlo_remove(instr));
      *changed = true;
    }
  int before = module->computation_count;
  WEFT_TRY(hlo_module_gc(module));
  *changed |= module->computation_count != before;
  return NULL;
}
const hlo_pass pass_dce = {"dce", dce_run};
