/* passes/erfc.c -- erfc: the expression that XLA makes of chlo.erfc of f32 becomes one instruction, which is more exact
 * and is computed by fewer. jaxlib expands the operation before a plugin sees the program.
 *
 *   |x| < 1 ? 1 - x T(x^2) : x < 0 ? 2 - y : y
 *   y = -x^2 < -88.72... ? 0 : (exp(-x^2) (1 / |x|)) (|x| < 2 ? P(1 / x^2) : R(1 / x^2))
 *
 * Where x comes from a narrower type and all users want that type, the instruction has that type: then nothing is
 * rounded in between. Terminates: no erfc becomes such an expression. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

/* The coefficients, highest power first. */
static const float coefs_t[] = {7.85386146e-05f, -0.000801019371f, 0.00518832775f, -0.0268538129f, 0.112835854f, -0.37612626f, 1.12837911f};
static const float coefs_p[] = {0.0232682f, -0.138703942f, 0.368742466f, -0.582473278f, 0.621000469f, -0.494451523f, 0.340488f, -0.274112701f, 0.563825965f};
static const float coefs_r[] = {-10.477664f, 12.9772f, -7.49551868f, 2.92101908f, -1.01526523f, 0.42184633f, -0.282076746f, 0.564189494f};
static const float least_exponent = -88.7228394f;

/* The operands of `x` if it is this operation, else NULL. */
static hlo_instr *const *of(const hlo_instr *x, hlo_opcode op) { return x->op == op ? x->operands : NULL; }

static bool is_less(const hlo_instr *x, float bound, const hlo_instr **out_left)
{
  hlo_instr *const *v = of(x, HLO_COMPARE);

  if (!v || x->u.compare.direction != HLO_LT || !hlo_is_constant_scalar(v[1], bound)) return false;
  *out_left = v[0];
  return true;
}

static bool is_magnitude(const hlo_instr *a, const hlo_instr *x) { return a->op == HLO_ABS && a->operands[0] == x; }

static bool is_square(const hlo_instr *z, const hlo_instr *x)
{
  return z->op == HLO_MULTIPLY && z->operands[0] == x && z->operands[1] == x;
}

/* 1 / v: v, else NULL. */
static const hlo_instr *inverted(const hlo_instr *x)
{
  hlo_instr *const *v = of(x, HLO_DIVIDE);
  return v && hlo_is_constant_scalar(v[0], 1) ? v[1] : NULL;
}

/* Is p the polynomial c[0] v^(n-1) + ... + c[n-1] by Horner's scheme? *out_v: v. */
static bool is_polynomial(const hlo_instr *p, const float *c, int n, const hlo_instr **out_v)
{
  *out_v = NULL;
  for (int i = n - 1; i > 0; i--) {
    hlo_instr *const *sum = of(p, HLO_ADD), *const *product = sum ? of(sum[0], HLO_MULTIPLY) : NULL;
    if (!product || !hlo_is_constant_scalar(sum[1], c[i]) || (*out_v && product[1] != *out_v)) return false;
    *out_v = product[1];
    p = product[0];
  }
  return hlo_is_constant_scalar(p, c[0]);
}
#define IS_POLYNOMIAL(p, c, v) is_polynomial((p), (c), (int)WEFT_COUNT(c), (v))

/* Is y = exp(-x^2) (1 / |x|) (|x| < 2 ? P(1 / x^2) : R(1 / x^2)), or 0 below the least exponent? */
static bool is_tail(const hlo_instr *y, const hlo_instr *x)
{
  hlo_instr *const *either = of(y, HLO_SELECT), *const * product, *const * factor, *const * rest;
  const hlo_instr *minus_square, *magnitude, *v[2];

  if (!either || !is_less(either[0], least_exponent, &minus_square) || !hlo_is_constant_scalar(either[1], 0))
    return false;
  if (minus_square->op != HLO_NEGATE || !is_square(minus_square->operands[0], x)) return false;
  product = of(either[2], HLO_MULTIPLY);
  factor = product ? of(product[0], HLO_MULTIPLY) : NULL;
  rest = product ? of(product[1], HLO_SELECT) : NULL;
  if (!factor || !rest || factor[0]->op != HLO_EXP || factor[0]->operands[0] != minus_square) return false;
  magnitude = inverted(factor[1]);
  if (!magnitude || !is_magnitude(magnitude, x)) return false;
  if (!is_less(rest[0], 2, &magnitude) || !is_magnitude(magnitude, x)) return false;
  if (!IS_POLYNOMIAL(rest[1], coefs_p, &v[0]) || !IS_POLYNOMIAL(rest[2], coefs_r, &v[1])) return false;
  for (int i = 0; i < 2; i++) {
    const hlo_instr *square = inverted(v[i]);
    if (!square || !is_square(square, x)) return false;
  }
  return true;
}

/* x if `instr` is XLA's erfc(x), else NULL. */
static hlo_instr *erfc_operand(const hlo_instr *instr)
{
  hlo_instr *const *whole = of(instr, HLO_SELECT), *const * near, *const * product, *const * far, *const * reflected;
  const hlo_instr *magnitude, *x, *square;

  if (!whole || instr->shape->type != WEFT_F32 || !is_less(whole[0], 1, &magnitude) || magnitude->op != HLO_ABS)
    return NULL;
  x = magnitude->operands[0];
  near = of(whole[1], HLO_SUBTRACT);
  product = near && hlo_is_constant_scalar(near[0], 1) ? of(near[1], HLO_MULTIPLY) : NULL;
  if (!product || product[0] != x || !IS_POLYNOMIAL(product[1], coefs_t, &square) || !is_square(square, x)) return NULL;
  far = of(whole[2], HLO_SELECT);
  if (!far || !is_less(far[0], 0, &magnitude) || magnitude != x) return NULL;
  reflected = of(far[1], HLO_SUBTRACT);
  if (!reflected || !hlo_is_constant_scalar(reflected[0], 2) || reflected[1] != far[2] || !is_tail(far[2], x))
    return NULL;
  return product[0];
}

/* The operand in the type that all users of `instr` convert it to, if x is converted from that type; else NULL. */
static hlo_instr *narrow_operand(const hlo_instr *instr, const hlo_instr *x)
{
  hlo_instr *narrow = x->op == HLO_CONVERT ? x->operands[0] : NULL;

  if (!narrow || !weft_dtype_is_float(narrow->shape->type) || weft_dtype_bits(narrow->shape->type) > 16) return NULL;
  if (instr == instr->parent->root) return NULL;
  for (int i = 0; i < instr->user_count; i++)
    if (instr->users[i]->op != HLO_CONVERT || instr->users[i]->shape->type != narrow->shape->type) return NULL;
  return narrow;
}

static weft_status *erfc_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      hlo_instr *x = erfc_operand(instr), *narrow = x ? narrow_operand(instr, x) : NULL;
      if (!x) continue;
      pass_build b = PASS_BUILD_AT(instr);
      hlo_instr *erfc = pb_op1(&b, HLO_ERFC, narrow ? narrow : x);
      if (narrow && !b.error) erfc = pb_convert(&b, erfc, WEFT_F32); /* and back, which the users undo */
      WEFT_TRY(pass_build_replace(&b, instr, erfc));
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_erfc = {"erfc", erfc_run};
