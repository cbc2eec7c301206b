/* codegen/emit/extreme.c -- reducers for the least or greatest value and its place, as JAX writes argmin and argmax:
 *
 *   better = a < b or a is NaN;  (better ? a : b,  better or a == b and i < j ? i : j)
 *
 * where the indices count the columns. Lanes may be combined in any order, since of equal values the one with the
 * lower index wins. NaN is the exception: of two NaNs the reducer takes the left one, which is the first in the
 * order of columns, but not in the order of lanes. gen_combine_extremes takes the one with the lower index. */
#include <config.h>

#include "codegen/emit/emit.h"

static bool is_parameter(const hlo_instr *x, int64_t number)
{
  return x->op == HLO_PARAMETER && x->u.parameter_number == number;
}

/* Is `x` a comparison of the parameters a and b, either way round? */
static bool compares(const hlo_instr *x, hlo_direction direction, int64_t a, int64_t b)
{
  hlo_direction turned = direction == HLO_LT ? HLO_GT : direction == HLO_GT ? HLO_LT : direction;

  if (x->op != HLO_COMPARE || x->u.compare.type == HLO_COMPARE_TOTALORDER) return false;
  return (x->u.compare.direction == direction && is_parameter(x->operands[0], a) && is_parameter(x->operands[1], b)) ||
         (x->u.compare.direction == turned && is_parameter(x->operands[0], b) && is_parameter(x->operands[1], a));
}

/* If `x` is select(condition, parameter a, parameter b): the condition, else NULL. */
static const hlo_instr *selects(const hlo_instr *x, int64_t a, int64_t b)
{
  return x->op == HLO_SELECT && is_parameter(x->operands[1], a) && is_parameter(x->operands[2], b) ? x->operands[0]
                                                                                                   : NULL;
}

static bool is_better(const hlo_instr *x, bool is_float)
{
  if (!is_float) return compares(x, HLO_LT, 0, 2) || compares(x, HLO_GT, 0, 2);
  for (int i = 0; x->op == HLO_OR && i < 2; i++)
    if (is_better(x->operands[i], false) && compares(x->operands[1 - i], HLO_NE, 0, 0)) return true;
  return false;
}

static bool is_first_of_equals(const hlo_instr *x)
{
  for (int i = 0; x->op == HLO_AND && i < 2; i++)
    if (compares(x->operands[i], HLO_EQ, 0, 2) && compares(x->operands[1 - i], HLO_LT, 1, 3)) return true;
  return false;
}

static bool finds_extreme(const hlo_computation *comp)
{
  const hlo_instr *root = comp->root;

  if (comp->param_count != 4 || root->op != HLO_TUPLE || root->operand_count != 2) return false;
  const hlo_instr *better = selects(root->operands[0], 0, 2), *chosen = selects(root->operands[1], 1, 3);
  if (!better || !chosen || chosen->op != HLO_OR ||
      !is_better(better, weft_dtype_is_float(comp->params[0]->shape->type)))
    return false;
  for (int i = 0; i < 2; i++)
    if (chosen->operands[i] == better && is_first_of_equals(chosen->operands[1 - i])) return true;
  return false;
}

/* Is `x`, an operand of `reduce`, the position along the one dimension that is reduced? */
static bool counts_columns(const hlo_instr *reduce, const hlo_instr *x)
{
  int64_t dim = -1;

  for (int i = 0; i < reduce->dims.count; i++) {
    if (x->shape->dims[reduce->dims.v[i]] == 1) continue;
    if (dim >= 0) return false;
    dim = reduce->dims.v[i];
  }
  for (; dim >= 0 && x->op == HLO_BROADCAST; x = x->operands[0]) {
    int64_t inner = -1;
    for (int i = 0; i < x->dims.count; i++)
      if (x->dims.v[i] == dim) inner = i;
    dim = inner;
  }
  return dim >= 0 && x->op == HLO_IOTA && x->dims.v[0] == dim && weft_dtype_is_integer(x->shape->type) &&
         weft_dtype_bits(x->shape->type) >= 32;
}

bool gen_is_extreme(const hlo_instr *reduce)
{
  return reduce->operand_count == 4 && finds_extreme(reduce->called[0]) && counts_columns(reduce, reduce->operands[1]);
}

weft_status *gen_combine_extremes(gen_emit *e, const gen_acc *acc, const gen_value left[2], const gen_value right[2],
                                  gen_value out[2])
{
  gen_value args[4] = {left[0], left[1], right[0], right[1]};
  const gen_value *r;

  WEFT_TRY(gen_emit_apply(e, acc->reduce->called[0], args, &r));
  gen_ssa index = r[1].re;
  if (weft_dtype_is_float(acc->type)) {
    gen_ssa both = gen_bin(e, LLVMAnd, LLVMBuildFCmp(e->b, LLVMRealUNO, left[0].re, left[0].re, ""),
                           LLVMBuildFCmp(e->b, LLVMRealUNO, right[0].re, right[0].re, ""));
    index = gen_select(e, both, gen_max(e, acc[1].type, true, left[1].re, right[1].re), index);
  }
  out[0] = r[0];
  out[1] = (gen_value){index, NULL};
  return NULL;
}
