/* schedule: fixes the order of every sequential computation and marks the module scheduled. */
#include <config.h>

#include "passes/passes.h"

static weft_status *schedule_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  *changed = !module->is_scheduled;
  module->is_scheduled = true;
  return NULL;
}
const hlo_pass pass_schedule = {"schedule", schedule_run};
