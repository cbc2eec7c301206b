/* passes/algebraic_simplifier.c -- algebraic-simplifier: local rewrites, each of which gives the same values (bit for
 * bit where IEEE is on, NaN and -0 included, except that sums may be re-associated where a reduction already leaves its
 * order open) with less work. Worklist-driven: an instruction is looked at once, and again only when an operand or user
 * of it changed.  Terminates, because every rule lowers (instructions weighted by cost, then operands' depth); no rule
 * undoes another. The rules are in algebraic_elementwise.c, algebraic_shape.c and algebraic_reduce.c. */
#include <config.h>

#include "base/log.h"
#include "passes/algebraic.h"
#include "passes/passes.h"

/* The pass stops after this many visits for each instruction, counted together: two rules that undo each other would
 * be a bug. */
enum { VISIT_LIMIT_FACTOR = 64 };

static simplify_rule *const rules[HLO_OPCODE_COUNT] = {
  [HLO_ABS] = simplify_abs,
  [HLO_ADD] = simplify_add,
  [HLO_AND] = simplify_and,
  [HLO_BITCAST_CONVERT] = simplify_bitcast_convert,
  [HLO_BROADCAST] = simplify_broadcast,
  [HLO_CLAMP] = simplify_clamp,
  [HLO_COMPARE] = simplify_compare,
  [HLO_CONCATENATE] = simplify_concatenate,
  [HLO_CONSTANT] = simplify_constant,
  [HLO_CONVERT] = simplify_convert,
  [HLO_CONVOLUTION] = simplify_convolution,
  [HLO_COPY] = simplify_copy,
  [HLO_DIVIDE] = simplify_divide,
  [HLO_DOT] = simplify_dot,
  [HLO_DYNAMIC_SLICE] = simplify_dynamic_slice,
  [HLO_DYNAMIC_UPDATE_SLICE] = simplify_dynamic_update_slice,
  [HLO_GATHER] = simplify_gather,
  [HLO_IMAG] = simplify_real_imag,
  [HLO_IOTA] = simplify_iota,
  [HLO_MAXIMUM] = simplify_max_min,
  [HLO_MINIMUM] = simplify_max_min,
  [HLO_MULTIPLY] = simplify_multiply,
  [HLO_NEGATE] = simplify_negate,
  [HLO_NOT] = simplify_not,
  [HLO_OR] = simplify_or,
  [HLO_PAD] = simplify_pad,
  [HLO_POWER] = simplify_power,
  [HLO_REAL] = simplify_real_imag,
  [HLO_REDUCE] = simplify_reduce,
  [HLO_REDUCE_PRECISION] = simplify_reduce_precision,
  [HLO_REDUCE_WINDOW] = simplify_reduce_window,
  [HLO_REMAINDER] = simplify_remainder,
  [HLO_RESHAPE] = simplify_reshape,
  [HLO_REVERSE] = simplify_reverse,
  [HLO_SELECT] = simplify_select,
  [HLO_SHIFT_LEFT] = simplify_shift,
  [HLO_SHIFT_RIGHT_ARITHMETIC] = simplify_shift,
  [HLO_SHIFT_RIGHT_LOGICAL] = simplify_shift,
  [HLO_SLICE] = simplify_slice,
  [HLO_SUBTRACT] = simplify_subtract,
  [HLO_TRANSPOSE] = simplify_transpose,
  [HLO_XOR] = simplify_xor,
};

static weft_status *push_users(simplifier *s, const hlo_instr *instr)
{
  for (int i = 0; i < instr->user_count; i++)
    if (rules[instr->users[i]->op]) WEFT_TRY(pass_worklist_push(&s->work, instr->users[i]));
  return NULL;
}

/* Queues `instr` and, if the current rule made it, its operands in the same way. A rule nests only a few
 * instructions. */
static weft_status *push_new(simplifier *s, hlo_instr *instr, int depth)
{
  if (rules[instr->op]) WEFT_TRY(pass_worklist_push(&s->work, instr));
  if (instr->id < s->first_new_id || depth > 16) return NULL;
  for (int i = 0; i < instr->operand_count; i++) WEFT_TRY(push_new(s, instr->operands[i], depth + 1));
  return NULL;
}

weft_status *simplify_to(simplifier *s, hlo_instr *instr, hlo_instr *with)
{
  s->done = true;
  WEFT_TRY(push_users(s, instr));
  for (int i = 0; i < instr->operand_count; i++) { /* the operand has one user less, and some rules need a sole user */
    if (instr->operands[i]->user_count <= 2) WEFT_TRY(push_users(s, instr->operands[i]));
    if (rules[instr->operands[i]->op]) WEFT_TRY(pass_worklist_push(&s->work, instr->operands[i]));
  }
  WEFT_TRY(push_new(s, with, 0));
  WEFT_TRY(hlo_replace_uses(instr, with));
  return instr->user_count ? NULL : hlo_remove_with_dead_operands(instr);
}

weft_status *simplify_built(simplifier *s, pass_build *b, hlo_instr *instr, hlo_instr *with)
{
  WEFT_TRY(pass_build_finish(b));
  return simplify_to(s, instr, with);
}

weft_status *simplify_touched(simplifier *s, hlo_instr *instr)
{
  s->done = true;
  WEFT_TRY(push_users(s, instr));
  return push_new(s, instr, 0);
}

static weft_status *algebraic_simplifier_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  simplifier s = {.options = ctx->options, .work.arena = ctx->scratch};
  int64_t visits_left;
  hlo_instr *instr;

  /* The list is a stack: the last instruction pushed is visited first, so operands are simplified before their
   * users. */
  for (hlo_computation *comp = module->last; comp; comp = comp->prev)
    for (instr = comp->last; instr; instr = instr->prev)
      if (rules[instr->op]) WEFT_TRY(pass_worklist_push(&s.work, instr));
  visits_left = (int64_t)s.work.count * VISIT_LIMIT_FACTOR;
  while (visits_left-- > 0 && (instr = pass_worklist_pop(&s.work))) {
    if (pass_has_control_edges(instr) || hlo_shape_is_dynamic(instr->shape)) continue;
    if (instr->user_count == 0 && instr != instr->parent->root) continue; /* the pass dce removes it */
    s.done = false;
    s.first_new_id = module->next_id;
    hlo_opcode op = instr->op;
    const char *name = instr->name;
    WEFT_TRY(rules[op](&s, instr));
    *changed |= s.done;
    if (s.done) WEFT_LOG("passes", DEBUG, "algebraic-simplifier: %s %s", hlo_opcode_name(op), name);
  }
  return NULL;
}
const hlo_pass pass_algebraic_simplifier = {"algebraic-simplifier", algebraic_simplifier_run};
