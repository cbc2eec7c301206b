/* elementwise-expander: elementwise instructions that code generation does not know, by those it does.
 *   logistic            1 / (1 + exp(-x))
 *   stochastic-convert  truncation, and one more in magnitude where the random number is below the fraction's bits */
#include <config.h>

#include <math.h>

#include "passes/build.h"
#include "passes/passes.h"

static weft_status *expand_logistic(hlo_instr *instr)
{
  pass_build b = PASS_BUILD_AT(instr);
  hlo_instr *x = instr->operands[0], *one = pb_splat(&b, x, 1);

  return pass_build_replace(&b, instr,
                            pb_div(&b, one, pb_add(&b, one, pb_op1(&b, HLO_EXP, pb_op1(&b, HLO_NEGATE, x)))));
}

/* Signed integer results only, as XLA has it. */
static weft_status *expand_stochastic_convert(hlo_instr *instr)
{
  pass_build b = PASS_BUILD_AT(instr);
  hlo_instr *x = instr->operands[0], *random = instr->operands[1], *magnitude, *whole, *fraction, *bits, *result, *up;
  weft_dtype to = instr->shape->type;
  double limit = ldexp(1, weft_dtype_bits(to) - 1);

  if (!weft_dtype_is_signed(to) || weft_dtype_bits(to) > 32)
    return WEFT_ERR(UNIMPLEMENTED, "stochastic-convert \"%s\" to %s: only signed integers up to 32 bits", instr->name,
                    weft_dtype_name(to));
  x = pb_convert(&b, x, x->shape->type == WEFT_F64 ? WEFT_F64 : WEFT_F32);
  magnitude = pb_op1(&b, HLO_ABS, x);
  whole = pb_op1(&b, HLO_FLOOR, magnitude);
  fraction = pb_sub(&b, magnitude, whole);
  if (b.error) return pass_build_finish(&b);
  bits = pb_mul(&b, fraction, pb_splat(&b, fraction, ldexp(1, weft_dtype_bits(random->shape->type))));
  up = pb_compare(&b, HLO_LT, random, b.error ? NULL : pb_convert(&b, bits, random->shape->type));
  result = pb_convert(&b, whole, to);
  if (b.error) return pass_build_finish(&b);
  result = pb_select(&b, up, pb_add(&b, result, pb_splat_int(&b, result, 1)), result);
  result = pb_select(&b, pb_compare(&b, HLO_LT, x, pb_splat(&b, x, 0)), pb_op1(&b, HLO_NEGATE, result), result);
  if (b.error) return pass_build_finish(&b);
  result = pb_select(&b, pb_compare(&b, HLO_LE, x, pb_splat(&b, x, -limit)),
                     pb_splat_int(&b, result, (int64_t)-limit), result);
  result = pb_select(&b, pb_compare(&b, HLO_GE, x, pb_splat(&b, x, limit - 1)),
                     b.error ? NULL : pb_splat_int(&b, result, (int64_t)(limit - 1)), result);
  return pass_build_replace(&b, instr, result);
}

static weft_status *elementwise_expander_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op == HLO_LOGISTIC) WEFT_TRY(expand_logistic(instr));
      else if (instr->op == HLO_STOCHASTIC_CONVERT) WEFT_TRY(expand_stochastic_convert(instr));
      else continue;
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_elementwise_expander = {"elementwise-expander", elementwise_expander_run};
