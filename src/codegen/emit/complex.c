/* codegen/emit/complex.c -- complex arithmetic and functions from real ones. */
#include <config.h>

#include "codegen/emit/emit.h"

#define add(e, a, b) gen_bin(e, LLVMFAdd, a, b)
#define sub(e, a, b) gen_bin(e, LLVMFSub, a, b)
#define mul(e, a, b) gen_bin(e, LLVMFMul, a, b)
#define quo(e, a, b) gen_bin(e, LLVMFDiv, a, b)
static gen_ssa neg(gen_emit *e, gen_ssa a) { return LLVMBuildFNeg(e->b, a, ""); }
static gen_ssa fabs_(gen_emit *e, gen_ssa a) { return gen_intrinsic1(e, "llvm.fabs", a); }
static gen_ssa sqrt_(gen_emit *e, gen_ssa a) { return gen_intrinsic1(e, "llvm.sqrt", a); }
static gen_ssa fn(gen_emit *e, hlo_opcode op, gen_ssa a) { return gen_math(e, op, a, NULL); }

/* A function of two complex numbers from and to f32, computed in f64 for accuracy. */
static gen_value in_f64(gen_emit *e, hlo_opcode op, gen_value a, gen_value b)
{
  LLVMTypeRef f64 = e->part->f64, f32 = e->part->f32;
  gen_value wide_a = {gen_cast(e, LLVMFPExt, a.re, f64), gen_cast(e, LLVMFPExt, a.im, f64)};
  gen_value wide_b = {gen_cast(e, LLVMFPExt, b.re, f64), gen_cast(e, LLVMFPExt, b.im, f64)}, wide;

  gen_complex_math(e, op, wide_a, wide_b, &wide);
  return (gen_value){gen_cast(e, LLVMFPTrunc, wide.re, f32), gen_cast(e, LLVMFPTrunc, wide.im, f32)};
}

gen_value gen_complex_mul(gen_emit *e, gen_value a, gen_value b)
{
  return (gen_value){sub(e, mul(e, a.re, b.re), mul(e, a.im, b.im)), add(e, mul(e, a.re, b.im), mul(e, a.im, b.re))};
}

static gen_ssa is_infinite(gen_emit *e, gen_value z)
{
  gen_ssa inf = gen_f(z.re, __builtin_inf());
  return gen_bin(e, LLVMOr, gen_fcmp(e, LLVMRealOEQ, fabs_(e, z.re), inf),
                 gen_fcmp(e, LLVMRealOEQ, fabs_(e, z.im), inf));
}

/* An infinite number over a finite one is infinite, even if its other part is NaN (C, annex G). Where both parts of
 * `quotient` are NaN, the result is infinity times (x + iy) times the conjugate of b; x and y are 1 for an infinite
 * part of a, 0 for a finite one, with the signs of a's parts. */
static gen_value infinite_over_finite(gen_emit *e, gen_value a, gen_value b, gen_value quotient)
{
  gen_ssa inf = gen_f(a.re, __builtin_inf()), one = gen_f(a.re, 1), zero = gen_f(a.re, 0);
  gen_ssa x =
    gen_intrinsic2(e, "llvm.copysign", gen_select(e, gen_fcmp(e, LLVMRealOEQ, fabs_(e, a.re), inf), one, zero), a.re);
  gen_ssa y =
    gen_intrinsic2(e, "llvm.copysign", gen_select(e, gen_fcmp(e, LLVMRealOEQ, fabs_(e, a.im), inf), one, zero), a.im);
  gen_ssa finite = gen_fcmp(e, LLVMRealOEQ, add(e, mul(e, b.re, zero), mul(e, b.im, zero)), zero);
  gen_ssa none = gen_bin(e, LLVMAnd, gen_fcmp(e, LLVMRealUNO, quotient.re, quotient.re),
                         gen_fcmp(e, LLVMRealUNO, quotient.im, quotient.im));
  gen_ssa here = gen_bin(e, LLVMAnd, none, gen_bin(e, LLVMAnd, finite, is_infinite(e, a)));

  return (gen_value){gen_select(e, here, mul(e, inf, add(e, mul(e, x, b.re), mul(e, y, b.im))), quotient.re),
                     gen_select(e, here, mul(e, inf, sub(e, mul(e, y, b.re), mul(e, x, b.im))), quotient.im)};
}

/* Smith's method: no overflow where the result is in range. Division by zero divides each part by zero. */
gen_value gen_complex_div(gen_emit *e, gen_value a, gen_value b)
{
  gen_ssa re_big = gen_fcmp(e, LLVMRealOGE, fabs_(e, b.re), fabs_(e, b.im));
  gen_ssa big = gen_select(e, re_big, b.re, b.im), small = gen_select(e, re_big, b.im, b.re);
  gen_ssa x = gen_select(e, re_big, a.re, a.im), y = gen_select(e, re_big, a.im, a.re);
  gen_ssa ratio = quo(e, small, big), scale = add(e, big, mul(e, small, ratio));
  gen_ssa re = quo(e, add(e, x, mul(e, y, ratio)), scale), t = sub(e, y, mul(e, x, ratio));
  gen_ssa im = quo(e, gen_select(e, re_big, t, neg(e, t)), scale);
  gen_ssa by_zero = gen_fcmp(e, LLVMRealOEQ, big, gen_f(big, 0));
  /* Where both parts of b are infinite, the ratio is NaN: a finite number over b is 0. */
  gen_ssa inf = gen_f(big, __builtin_inf()), zero = gen_f(big, 0), sum = sub(e, add(e, a.re, a.im), add(e, a.re, a.im));
  gen_ssa vanishes =
    gen_bin(e, LLVMAnd, gen_fcmp(e, LLVMRealOEQ, fabs_(e, small), inf), gen_fcmp(e, LLVMRealOEQ, sum, zero));

  re = gen_select(e, by_zero, quo(e, a.re, fabs_(e, big)), gen_select(e, vanishes, zero, re));
  im = gen_select(e, by_zero, quo(e, a.im, fabs_(e, big)), gen_select(e, vanishes, zero, im));
  return infinite_over_finite(e, a, b, (gen_value){re, im});
}

/* The greater or the less of two numbers without a sign, whose bits are in their order: one instruction, where an
 * extremum of floats takes some more for NaN and for zeros of two signs. NaN counts as greater than all. */
static gen_ssa extreme(gen_emit *e, const char *name, gen_ssa x, gen_ssa y)
{
  LLVMTypeRef type = gen_scalar_type(x), bits = type == e->part->f64 ? e->part->i64 : e->part->i32;
  return gen_cast(e, LLVMBitCast,
                  gen_intrinsic2(e, name, gen_cast(e, LLVMBitCast, x, bits), gen_cast(e, LLVMBitCast, y, bits)), type);
}

/* |z| without overflow. */
static gen_ssa modulus(gen_emit *e, gen_value z)
{
  gen_ssa x = fabs_(e, z.re), y = fabs_(e, z.im), big = extreme(e, "llvm.smax", x, y),
          small = extreme(e, "llvm.smin", x, y);
  gen_ssa ratio = quo(e, small, big), r = mul(e, big, sqrt_(e, add(e, gen_f(big, 1), mul(e, ratio, ratio))));
  gen_ssa inf = gen_f(big, __builtin_inf());

  r = gen_select(e, gen_fcmp(e, LLVMRealOEQ, big, gen_f(big, 0)), big, r);
  gen_ssa infinite = gen_bin(e, LLVMOr, gen_fcmp(e, LLVMRealOEQ, x, inf), gen_fcmp(e, LLVMRealOEQ, y, inf));
  return gen_select(e, infinite, inf, r);
}

static gen_value csqrt_(gen_emit *e, gen_value z)
{
  gen_ssa r = modulus(e, z), half = gen_f(r, 0.5);
  gen_ssa t = sqrt_(e, mul(e, half, add(e, r, fabs_(e, z.re)))), zero = gen_f(r, 0);
  gen_ssa other = quo(e, fabs_(e, z.im), mul(e, gen_f(r, 2), t));
  gen_ssa positive = gen_fcmp(e, LLVMRealOGE, z.re, zero), at_zero = gen_fcmp(e, LLVMRealOEQ, r, zero);
  gen_ssa re = gen_select(e, positive, t, other), im = gen_select(e, positive, other, t);
  gen_ssa inf_im = gen_fcmp(e, LLVMRealOEQ, fabs_(e, z.im), gen_f(r, __builtin_inf()));

  re = gen_select(e, inf_im, gen_f(r, __builtin_inf()), gen_select(e, at_zero, zero, re));
  im = gen_select(e, inf_im, gen_f(r, __builtin_inf()), gen_select(e, at_zero, zero, im));
  return (gen_value){re, gen_intrinsic2(e, "llvm.copysign", im, z.im)};
}

/* 1 / z, and 0 where either part of z is infinite, whatever the other is. */
static gen_value reciprocal(gen_emit *e, gen_value z)
{
  gen_ssa zero = gen_f(z.re, 0), far = is_infinite(e, z);
  gen_value r = gen_complex_div(e, (gen_value){gen_f(z.re, 1), zero}, z);
  return (gen_value){gen_select(e, far, zero, r.re), gen_select(e, far, zero, r.im)};
}

static gen_value cexp_(gen_emit *e, gen_value z)
{
  gen_ssa m = fn(e, HLO_EXP, z.re), is_real = gen_fcmp(e, LLVMRealOEQ, z.im, gen_f(m, 0));
  gen_ssa re = mul(e, m, fn(e, HLO_COS, z.im)), im = mul(e, m, fn(e, HLO_SIN, z.im));

  return (gen_value){gen_select(e, is_real, m, re), gen_select(e, is_real, z.im, im)};
}

/* a + b, rounded; the rounding error is added to *lost (Knuth). */
static gen_ssa two_sum(gen_emit *e, gen_ssa a, gen_ssa b, gen_ssa *lost)
{
  gen_ssa s = add(e, a, b), from_b = sub(e, s, a), from_a = sub(e, s, from_b);

  *lost = add(e, *lost, add(e, sub(e, a, from_a), sub(e, b, from_b)));
  return s;
}

/* The rounding error of xx, the square of x. This needs a fused multiply-add, even where that is a call. */
static gen_ssa square_low(gen_emit *e, gen_ssa x, gen_ssa xx)
{
  return gen_intrinsic(e, "llvm.fma", 3, (gen_ssa[]){x, x, neg(e, xx)});
}

/* a + x^2 + y^2 where it cancels: the rounding errors are summed and added at the end. */
static gen_ssa add_squares(gen_emit *e, gen_ssa a, gen_ssa x, gen_ssa y)
{
  gen_ssa xx = mul(e, x, x), yy = mul(e, y, y), lost = add(e, square_low(e, x, xx), square_low(e, y, yy));
  gen_ssa s = two_sum(e, a, xx, &lost);

  s = two_sum(e, s, yy, &lost);
  return add(e, s, lost);
}

/* log(1 + t) / 2, or `far` where 1 + t is small or immense. */
static gen_ssa half_log1p(gen_emit *e, gen_ssa t, gen_ssa far)
{
  gen_ssa above = gen_fcmp(e, LLVMRealOGT, t, gen_f(t, -0.75)), below = gen_fcmp(e, LLVMRealOLT, t, gen_f(t, 1e30));
  return gen_select(e, gen_bin(e, LLVMAnd, above, below), mul(e, gen_f(t, 0.5), fn(e, HLO_LOG1P, t)), far);
}

/* log|z| = log1p(x^2 + y^2 - 1) / 2 */
static gen_value clog_(gen_emit *e, gen_value z)
{
  gen_ssa x = fabs_(e, z.re), y = fabs_(e, z.im);
  gen_ssa big = gen_max(e, WEFT_F64, false, x, y), small = gen_max(e, WEFT_F64, true, x, y);
  gen_ssa t = add_squares(e, gen_f(x, -1), big, small), re = half_log1p(e, t, fn(e, HLO_LOG, modulus(e, z)));

  return (gen_value){re, gen_math(e, HLO_ATAN2, z.im, z.re)};
}

/* tanh(x + iy) = (tanh x (1 + tan^2 y) + i tan y (1 - tanh^2 x)) / (1 + tanh^2 x tan^2 y) */
static gen_value ctanh_(gen_emit *e, gen_value z)
{
  gen_ssa h = fn(e, HLO_TANH, z.re), t = fn(e, HLO_TAN, z.im), one = gen_f(h, 1);
  gen_ssa t2 = mul(e, t, t), cosh = fn(e, HLO_COSH, z.re), sech2 = quo(e, one, mul(e, cosh, cosh));
  gen_ssa d = add(e, one, mul(e, mul(e, h, h), t2));
  gen_ssa at_infinity = gen_fcmp(e, LLVMRealOEQ, fabs_(e, z.re), gen_f(h, __builtin_inf())); /* whatever y is */

  return (gen_value){
    gen_select(e, at_infinity, h, quo(e, mul(e, h, add(e, one, t2)), d)),
    gen_select(e, at_infinity, gen_intrinsic2(e, "llvm.copysign", gen_f(h, 0), t), quo(e, mul(e, t, sech2), d))};
}

static gen_value times_i(gen_emit *e, gen_value z) { return (gen_value){neg(e, z.im), z.re}; }
static gen_value over_i(gen_emit *e, gen_value z) { return (gen_value){z.im, neg(e, z.re)}; }

/* Kahan, "Branch cuts for complex elementary functions": products of square roots keep the signs of zeros. */
static gen_value casin_(gen_emit *e, gen_value z)
{
  gen_ssa one = gen_f(z.re, 1);
  gen_value p = csqrt_(e, (gen_value){add(e, one, z.re), z.im}),
            m = csqrt_(e, (gen_value){sub(e, one, z.re), neg(e, z.im)});
  gen_ssa re = sub(e, mul(e, m.re, p.re), mul(e, m.im, p.im)), im = sub(e, mul(e, m.re, p.im), mul(e, m.im, p.re));

  return (gen_value){gen_math(e, HLO_ATAN2, z.re, re), fn(e, HLO_ASINH, im)};
}

static gen_value cacos_(gen_emit *e, gen_value z)
{
  gen_ssa one = gen_f(z.re, 1), two = gen_f(z.re, 2);
  gen_value p = csqrt_(e, (gen_value){add(e, one, z.re), z.im}),
            m = csqrt_(e, (gen_value){sub(e, one, z.re), neg(e, z.im)});
  gen_ssa im = sub(e, mul(e, p.re, m.im), mul(e, p.im, m.re));

  return (gen_value){mul(e, two, gen_math(e, HLO_ATAN2, m.re, p.re)), fn(e, HLO_ASINH, im)};
}

static gen_value cacosh_(gen_emit *e, gen_value z)
{
  gen_ssa one = gen_f(z.re, 1), two = gen_f(z.re, 2);
  gen_value p = csqrt_(e, (gen_value){add(e, z.re, one), z.im}), m = csqrt_(e, (gen_value){sub(e, z.re, one), z.im});
  gen_ssa re = add(e, mul(e, m.re, p.re), mul(e, m.im, p.im));

  return (gen_value){fn(e, HLO_ASINH, re), mul(e, two, gen_math(e, HLO_ATAN2, m.im, p.re))};
}

static gen_value catanh_(gen_emit *e, gen_value z)
{
  gen_ssa a = fabs_(e, z.re), one = gen_f(a, 1), y2 = mul(e, z.im, z.im), gap = sub(e, one, a);
  gen_ssa ratio = quo(e, mul(e, gen_f(a, 4), a), add(e, mul(e, gap, gap), y2));
  gen_ssa re = gen_intrinsic2(e, "llvm.copysign", mul(e, gen_f(a, 0.25), fn(e, HLO_LOG1P, ratio)), z.re);
  gen_ssa under = sub(e, mul(e, gap, add(e, one, a)), y2);

  gen_ssa im = mul(e, gen_f(a, 0.5), gen_math(e, HLO_ATAN2, mul(e, gen_f(a, 2), z.im), under)), far = is_infinite(e, z);
  gen_ssa right = gen_intrinsic2(e, "llvm.copysign", gen_f(a, 1.5707963267948966), z.im);

  right = gen_select(e, gen_fcmp(e, LLVMRealUNO, z.im, z.im), z.im, right);

  return (gen_value){gen_select(e, far, gen_intrinsic2(e, "llvm.copysign", gen_f(a, 0), z.re), re),
                     gen_select(e, far, right, im)};
}

/* log|1+z| = log1p(2x + x^2 + y^2) / 2 */
static gen_value clog1p_(gen_emit *e, gen_value z)
{
  gen_value far = clog_(e, (gen_value){add(e, z.re, gen_f(z.re, 1)), z.im});

  return (gen_value){half_log1p(e, add_squares(e, mul(e, gen_f(z.re, 2), z.re), z.re, z.im), far.re), far.im};
}

/* -i log((x + iy) / sqrt(x^2 + y^2)), y being the first argument */
static gen_value catan2_(gen_emit *e, gen_value y, gen_value x)
{
  gen_value x2 = gen_complex_mul(e, x, x), y2 = gen_complex_mul(e, y, y), iy = times_i(e, y);
  gen_value root = csqrt_(e, (gen_value){add(e, x2.re, y2.re), add(e, x2.im, y2.im)});
  gen_value sum = {add(e, x.re, iy.re), add(e, x.im, iy.im)};

  return over_i(e, clog_(e, gen_complex_div(e, sum, root)));
}

/* The greater number (`before` is OLT) or the smaller one (OGT), by real parts, then by imaginary parts; NaN wins. */
static gen_value extremum(gen_emit *e, gen_value a, gen_value b, LLVMRealPredicate before)
{
  gen_ssa by_re = gen_fcmp(e, before, a.re, b.re), equal = gen_fcmp(e, LLVMRealOEQ, a.re, b.re);
  gen_ssa less = gen_bin(e, LLVMOr, by_re, gen_bin(e, LLVMAnd, equal, gen_fcmp(e, before, a.im, b.im)));
  gen_ssa take_b = gen_bin(e, LLVMAnd, gen_fcmp(e, LLVMRealORD, a.re, a.im),
                           gen_bin(e, LLVMOr, less, gen_fcmp(e, LLVMRealUNO, b.re, b.im)));

  return (gen_value){gen_select(e, take_b, b.re, a.re), gen_select(e, take_b, b.im, a.im)};
}

bool gen_complex_math(gen_emit *e, hlo_opcode op, gen_value a, gen_value b, gen_value *out)
{
  if ((op == HLO_POWER || op == HLO_ATAN2) && gen_scalar_type(a.re) == e->part->f32) {
    *out = in_f64(e, op, a, b);
    return true;
  }
  switch (op) {
  case HLO_ABS: *out = (gen_value){.re = modulus(e, a)}; return true;
  case HLO_EXP: *out = cexp_(e, a); return true;
  case HLO_LOG: *out = clog_(e, a); return true;
  case HLO_SQRT: *out = csqrt_(e, a); return true;
  case HLO_RSQRT: *out = reciprocal(e, csqrt_(e, a)); return true;
  case HLO_SIGN: {
    gen_ssa r = modulus(e, a), zero = gen_fcmp(e, LLVMRealOEQ, r, gen_f(r, 0));
    *out = (gen_value){gen_select(e, zero, a.re, quo(e, a.re, r)), gen_select(e, zero, a.im, quo(e, a.im, r))};
    return true;
  }
  case HLO_LOG1P: *out = clog1p_(e, a); return true;
  case HLO_ATAN2: *out = catan2_(e, a, b); return true;
  case HLO_MAXIMUM: *out = extremum(e, a, b, LLVMRealOLT); return true;
  case HLO_MINIMUM: *out = extremum(e, a, b, LLVMRealOGT); return true;
  case HLO_EXPM1: { /* expm1(x) cos y - 2 sin^2(y/2), exp(x) sin y */
    gen_ssa s = fn(e, HLO_SIN, mul(e, a.im, gen_f(a.im, 0.5))), two = gen_f(s, 2);
    gen_ssa re = sub(e, mul(e, fn(e, HLO_EXPM1, a.re), fn(e, HLO_COS, a.im)), mul(e, two, mul(e, s, s)));
    gen_ssa im = mul(e, fn(e, HLO_EXP, a.re), fn(e, HLO_SIN, a.im)),
            is_real = gen_fcmp(e, LLVMRealOEQ, a.im, gen_f(s, 0));
    *out = (gen_value){re, gen_select(e, is_real, a.im, im)};
    return true;
  }
  case HLO_COS: {
    gen_ssa c = fn(e, HLO_COS, a.re), s = fn(e, HLO_SIN, a.re);
    *out = (gen_value){mul(e, c, fn(e, HLO_COSH, a.im)), neg(e, mul(e, s, fn(e, HLO_SINH, a.im)))};
    return true;
  }
  case HLO_SIN: {
    gen_ssa c = fn(e, HLO_COS, a.re), s = fn(e, HLO_SIN, a.re);
    *out = (gen_value){mul(e, s, fn(e, HLO_COSH, a.im)), mul(e, c, fn(e, HLO_SINH, a.im))};
    return true;
  }
  case HLO_COSH: return gen_complex_math(e, HLO_COS, times_i(e, a), b, out);
  case HLO_SINH: {
    gen_value s;
    gen_complex_math(e, HLO_SIN, times_i(e, a), b, &s);
    *out = over_i(e, s);
    return true;
  }
  case HLO_ASIN: *out = casin_(e, a); return true;
  case HLO_ACOS: *out = cacos_(e, a); return true;
  case HLO_ACOSH: *out = cacosh_(e, a); return true;
  case HLO_ATANH: *out = catanh_(e, a); return true;
  case HLO_ASINH: *out = over_i(e, casin_(e, times_i(e, a))); return true;
  case HLO_TANH: *out = ctanh_(e, a); return true;
  case HLO_TAN: *out = over_i(e, ctanh_(e, times_i(e, a))); return true;
  case HLO_LOGISTIC: {
    gen_value x = cexp_(e, (gen_value){neg(e, a.re), neg(e, a.im)});
    x.re = add(e, x.re, gen_f(x.re, 1));
    *out = reciprocal(e, x);
    return true;
  }
  case HLO_POWER: { /* exp(b log a); 0^0 = 1, 0^b = 0; a large b magnifies errors */
    gen_value r = cexp_(e, gen_complex_mul(e, b, clog_(e, a)));
    gen_ssa zero = gen_f(r.re, 0), nought = gen_fcmp(e, LLVMRealOEQ, modulus(e, a), zero);
    gen_ssa b_zero = gen_bin(e, LLVMAnd, gen_fcmp(e, LLVMRealOEQ, b.re, zero), gen_fcmp(e, LLVMRealOEQ, b.im, zero));
    r.re = gen_select(e, nought, zero, r.re), r.im = gen_select(e, nought, zero, r.im);
    *out = (gen_value){gen_select(e, b_zero, gen_f(r.re, 1), r.re), gen_select(e, b_zero, zero, r.im)};
    return true;
  }
  case HLO_CBRT: {
    gen_ssa third = fn(e, HLO_CBRT, modulus(e, a)), angle = quo(e, gen_math(e, HLO_ATAN2, a.im, a.re), gen_f(a.re, 3));
    *out = (gen_value){mul(e, third, fn(e, HLO_COS, angle)), mul(e, third, fn(e, HLO_SIN, angle))};
    return true;
  }
  default: return false;
  }
}
