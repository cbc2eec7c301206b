/* passes/cse.c -- cse: instructions of a computation that compute the same thing from the same operands become one.
 * One sweep in list order is enough for chains of equal instructions. Instructions with a side effect, a control
 * edge or their own randomness stay. Constants and iotas are merged too. */
#include <config.h>

#include "passes/passes.h"

static bool is_candidate(const hlo_instr *instr)
{
  if (instr->op == HLO_PARAMETER || instr->op == HLO_RNG || pass_has_control_edges(instr)) return false;
  if (hlo_opcode_is_collective(instr->op) || hlo_opcode_is_async(instr->op)) return false;
  if (hlo_opcode_runs_steps(instr->op)) return false;
  return !hlo_has_side_effect(instr);
}

static bool same_operands(const hlo_instr *a, const hlo_instr *b)
{
  if (a->operand_count != b->operand_count) return false;
  for (int i = 0; i < a->operand_count; i++)
    if (a->operands[i] != b->operands[i]) return false;
  return true;
}

/* Open addressing in a table whose size is a power of two and at least twice the number of a computation's
 * instructions. */
typedef struct table {
  hlo_instr **slots;
  uint64_t mask;
} table;

static weft_status *cse_computation(hlo_computation *comp, table *t, bool *changed)
{
  HLO_FOREACH(instr, comp) {
    uint64_t at;
    if (!is_candidate(instr)) continue;
    for (at = hlo_instr_hash(instr) & t->mask; t->slots[at]; at = (at + 1) & t->mask)
      if (same_operands(t->slots[at], instr) && hlo_instr_equal(t->slots[at], instr)) break;
    if (!t->slots[at]) {
      t->slots[at] = instr;
      continue;
    }
    WEFT_TRY(hlo_replace(instr, t->slots[at]));
    *changed = true;
  }
  return NULL;
}

static weft_status *cse_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  HLO_FOREACH_COMPUTATION(comp, module) {
    uint64_t size = 16;
    table t;
    while (size < (uint64_t)comp->instr_count * 2) size *= 2;
    t = (table){WEFT_ARENA_ARRAY(ctx->scratch, hlo_instr *, size), size - 1};
    WEFT_TRY_ALLOC(t.slots);
    WEFT_TRY(cse_computation(comp, &t, changed));
  }
  return NULL;
}
const hlo_pass pass_cse = {"cse", cse_run};
