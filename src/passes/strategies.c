/* passes/strategies.c -- strategies: decides, once all fusions have their final form, the strategy of each
 * (codegen/model/strategy.h) and keeps it on the fusion (u.fusion.strategy), also inside regions.  Code generation
 * obeys it.  The program itself does not change. */
#include <config.h>

#include "codegen/model/library.h"
#include "codegen/model/strategy.h"
#include "passes/passes.h"

static weft_status *strategies_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)changed;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(x, comp) {
      gen_strategy strategy;
      if (x->op != HLO_FUSION || gen_calls_kernel(x)) continue; /* the kernel in it has a strategy */
      WEFT_TRY(gen_decide(pass_target(ctx), ctx->scratch, x, &strategy));
      x->u.fusion.strategy = (int)strategy;
    }
  return NULL;
}
const hlo_pass pass_strategies = {"strategies", strategies_run};
