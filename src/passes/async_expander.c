/* passes/async_expander.c -- async-expander: a pair of start and done that wraps a computation becomes a call in the
 * place of the start, and a pair of a copy becomes a copy. The executor finds from dependences which steps may overlap.
 * A start whose done is not reached through updates alone is not changed here, and is refused later. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

static hlo_instr *start_of(const hlo_instr *done)
{
  hlo_instr *start = done->operands[0];

  while (start->op == HLO_ASYNC_UPDATE) start = start->operands[0];
  return start->op == (done->op == HLO_COPY_DONE ? HLO_COPY_START : HLO_ASYNC_START) ? start : NULL;
}

/* The control edges of the start move to its replacement; those of the done and of the updates are bridged. */
static weft_status *expand(hlo_instr *done, hlo_instr *start)
{
  bool is_call = start->op == HLO_ASYNC_START;
  pass_build b = PASS_BUILD_AT(start);
  hlo_instr *value = pb_instr(&b, is_call ? HLO_CALL : HLO_COPY, done->shape, start->operand_count, start->operands);

  WEFT_TRY(pass_build_finish(&b));
  if (is_call) WEFT_TRY(hlo_set_called(value, 1, &start->called[0]));
  WEFT_TRY(hlo_replace_uses(done, value));
  for (hlo_instr *link = done; link != start && link->user_count == 0;) {
    hlo_instr *before = link->operands[0];
    WEFT_TRY(hlo_remove(link));
    link = before;
  }
  return start->user_count == 0 ? hlo_replace(start, value) : NULL;
}

static weft_status *async_expander_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) { /* instructions that are removed together with a done stand before it in the list */
      hlo_instr *start = instr->op == HLO_ASYNC_DONE || instr->op == HLO_COPY_DONE ? start_of(instr) : NULL;
      if (!start) continue;
      WEFT_TRY(expand(instr, start));
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_async_expander = {"async-expander", async_expander_run};
