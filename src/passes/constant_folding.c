/* passes/constant_folding.c -- constant-folding: the reference evaluator computes instructions whose operands are
 * all constants, if the result is no larger than the limit or than what it replaces, and if that takes little time.
 * Broadcasts and iotas stay, because they are cheaper than the constants that they would make. Loops, elided
 * constants, and operations that the evaluator does not know stay too. */
#include <config.h>

#include <string.h>

#include "hlo/eval.h"
#include "passes/passes.h"

enum {
  /* scalar operations of one instruction; this count decides, so that every run folds the same instructions */
  WORK_LIMIT = 1 << 20,
  TOTAL_WORK_LIMIT = 1 << 24, /* scalar operations of everything that one run of the pass folds */
  INSTR_BUDGET_MS = 500, /* milliseconds for one instruction, in case the counts are far too low */
  PASS_BUDGET_MS = 4000,
};

static int64_t result_bytes(const hlo_instr *instr) { return hlo_shape_total_bytes(instr->shape); }

/* The scalar operations of an instruction, roughly: what it reads, what products multiply, what windows see, what
 * factorisations cost. */
static double work_of(const hlo_instr *instr)
{
  double work = 1 + hlo_multiply_add_flops(instr), steps;

  for (int i = 0; i < instr->operand_count; i++) work += (double)hlo_shape_total_bytes(instr->operands[i]->shape);
  switch (instr->op) {
  case HLO_REDUCE_WINDOW: case HLO_SELECT_AND_SCATTER:
    steps = (double)hlo_shape_elems(instr->op == HLO_REDUCE_WINDOW ? hlo_shape_leaf(instr->shape, 0)
                                                                   : instr->operands[1]->shape);
    for (int d = 0; d < instr->u.window->rank; d++) steps *= (double)instr->u.window->dims[d].size;
    return work + steps;
  case HLO_CHOLESKY: case HLO_TRIANGULAR_SOLVE:
    return work +
           (double)hlo_shape_elems(instr->shape) * (double)instr->operands[0]->shape->dims[instr->shape->rank - 1];
  default: return work;
  }
}

static bool may_fold(const hlo_instr *instr, int64_t limit_bytes)
{
  int64_t operand_bytes = 0;

  switch (instr->op) {
  case HLO_PARAMETER: case HLO_CONSTANT: case HLO_BROADCAST: case HLO_IOTA: case HLO_TUPLE: case HLO_AFTER_ALL:
  case HLO_OPT_BARRIER: case HLO_CUSTOM_CALL: case HLO_RNG: case HLO_FUSION: case HLO_PARTITION_ID:
  case HLO_REPLICA_ID: case HLO_ADD_DEPENDENCY: case HLO_WHILE: case HLO_CONDITIONAL: case HLO_CALL:
  case HLO_RNG_GET_AND_UPDATE_STATE: return false;
  default: break;
  }
  if (instr->operand_count == 0 || hlo_opcode_is_collective(instr->op) || hlo_opcode_is_async(instr->op)) return false;
  if (pass_has_control_edges(instr) || hlo_shape_is_token(instr->shape)) return false;
  /* a literal has no layout; the instruction is a bitcast for an operand of a custom call */
  if (!hlo_shape_is_default_layout(instr->shape)) return false;
  for (int i = 0; i < instr->operand_count; i++) {
    const hlo_instr *x = instr->operands[i];
    if (x->op == HLO_BROADCAST && x->operands[0]->op == HLO_CONSTANT) x = x->operands[0];
    if (x->op != HLO_CONSTANT || x->u.literal->elided) return false;
    operand_bytes += result_bytes(instr->operands[i]);
  }
  if (result_bytes(instr) > WEFT_MAX(limit_bytes, operand_bytes) || work_of(instr) > WORK_LIMIT) return false;
  return !hlo_has_side_effect(instr);
}

static weft_status *operand_literal(const hlo_instr *x, const hlo_eval_options *options, weft_arena *arena,
                                    const hlo_literal **out)
{
  if (x->op == HLO_CONSTANT) {
    *out = x->u.literal;
    return NULL;
  }
  return hlo_eval_instr(x, &x->operands[0]->u.literal, options, arena, out);
}

/* Makes a constant with a copy of that value; for a tuple, a tuple of constants. */
static weft_status *add_literal(hlo_instr *before, const hlo_literal *literal, hlo_instr **out)
{
  weft_arena *arena = &before->parent->module->arena;
  hlo_instr **elements;
  hlo_literal *copy;

  if (!hlo_shape_is_tuple(literal->shape)) {
    hlo_shape *shape = hlo_shape_without_layout(arena, literal->shape);
    WEFT_TRY_ALLOC(shape);
    WEFT_TRY(hlo_literal_new(arena, shape, &copy));
    memcpy(copy->data, literal->data, (size_t)hlo_shape_bytes(shape));
    return hlo_add_constant(before->parent, before, copy, out);
  }
  elements = WEFT_ARENA_ARRAY(&before->parent->module->arena, hlo_instr *, literal->shape->rank);
  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < literal->shape->rank; i++) WEFT_TRY(add_literal(before, literal->elements[i], &elements[i]));
  return hlo_add_tuple(before->parent, before, literal->shape->rank, elements, out);
}

/* Evaluates in the scratch arena: a result may share the memory of an operand that was made there. */
static weft_status *fold(hlo_instr *instr, weft_deadline pass_deadline, weft_arena *scratch, bool *changed)
{
  /* sums are added step by step, which gives the value that a kernel would give */
  hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE, .stepwise_sums = true};
  const hlo_literal **operands = WEFT_ARENA_ARRAY(scratch, const hlo_literal *, instr->operand_count);
  const hlo_literal *result;
  hlo_instr *constant;
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(operands);
  options.deadline = weft_deadline_min(pass_deadline, weft_deadline_after_ms(INSTR_BUDGET_MS));
  for (int i = 0; i < instr->operand_count && !st; i++)
    st = operand_literal(instr->operands[i], &options, scratch, &operands[i]);
  if (!st) st = hlo_eval_instr(instr, operands, &options, scratch, &result);
  if (st) { /* the evaluator does not know it, or it takes too long: it is computed at run time */
    weft_status_ignore(st);
    return NULL;
  }
  WEFT_TRY(add_literal(instr, result, &constant));
  *changed = true;
  return hlo_replace(instr, constant);
}

static weft_status *constant_folding_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  weft_deadline deadline = weft_deadline_after_ms(PASS_BUDGET_MS);
  double work = 0;
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++)
    HLO_FOREACH(instr, comps.v[i]) {
      if (!may_fold(instr, ctx->options->fold_limit_bytes)) continue;
      work += work_of(instr);
      if (work > TOTAL_WORK_LIMIT || weft_deadline_passed(deadline)) return NULL;
      WEFT_TRY(fold(instr, deadline, ctx->scratch, changed));
    }
  return NULL;
}
const hlo_pass pass_constant_folding = {"constant-folding", constant_folding_run};
