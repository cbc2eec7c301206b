/* passes/dot_rounding.c -- dot-rounding: a dot whose algorithm rounds its operands to a narrower float (one pass of
 * bf16 or f16) gets operands of that type:
 *
 *   dot(x f32, y bf16), algorithm=dot_bf16_bf16_f32     becomes     dot(convert(x) bf16, y bf16)
 *
 * The conversion rounds as the dot would. It is fused into the kernel that makes the operand, which then stores half as
 * many bytes, and products of two narrow operands have faster kernels (JAX writes the gradients of attention so). */
#include <config.h>

#include "passes/passes.h"

static weft_dtype rounded_type(const hlo_instr *dot)
{
  switch (dot->u.dot->algorithm) {
  case HLO_ALG_F16_F16_F16:
  case HLO_ALG_F16_F16_F32: return WEFT_F16;
  case HLO_ALG_BF16_BF16_BF16:
  case HLO_ALG_BF16_BF16_F32: return WEFT_BF16;
  default: return WEFT_INVALID;
  }
}

static weft_status *dot_rounding_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int c = 0; c < comps.count; c++)
    HLO_FOREACH(dot, comps.v[c]) {
      weft_dtype type = dot->op == HLO_DOT ? rounded_type(dot) : WEFT_INVALID;
      for (int i = 0; type != WEFT_INVALID && i < 2; i++) {
        hlo_instr *x = dot->operands[i], *rounded;
        if (x->shape->type != WEFT_F32) continue;
        WEFT_TRY(hlo_add_convert(comps.v[c], dot, x, type, &rounded));
        WEFT_TRY(hlo_set_operand(dot, i, rounded));
        *changed = true;
      }
    }
  return NULL;
}
const hlo_pass pass_dot_rounding = {"dot-rounding", dot_rounding_run};
