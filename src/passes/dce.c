/* dce: removes instructions whose results nobody uses and that have no side effect, and computations that nobody
 * calls.  One backward sweep per computation, callers first, so that what a removal frees is seen in the same sweep.
 * Entry parameters stay; loops keep their state's shape (while-simplifier trims that). */
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
