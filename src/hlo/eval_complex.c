/* hlo/eval_complex.c -- Complex functions, to about one unit in the last place of each part.
 *
 * Everything is computed in long double.  Its libm handles cancellation and overflow (clog near the unit circle,
 * csqrt, the inverse functions at their branch cuts), and its eleven extra bits over f64 absorb the remaining
 * errors. */
#include <config.h>

#include <complex.h>
#include <math.h>

#include "hlo/eval_internal.h"

typedef long double real;
typedef long double complex cplx;

static cplx make(real re, real im) { return CMPLXL(re, im); }

/* log(1 + z) = log1p(x^2 + y^2 + 2x) / 2 + i atan2(y, 1 + x).  Where |1 + z| is near 1 the terms of the sum cancel,
 * so each square is the sum of a rounded product and its exact error. */
static cplx log1p_c(cplx z)
{
  real x = creall(z), y = cimagl(z), im = atan2l(y, 1 + x);
  real xx = x * x, yy = y * y, xx_low = fmal(x, x, -xx), yy_low = fmal(y, y, -yy);

  if (!isfinite(x) || !isfinite(y) || fabsl(x) > 0x1p60L || fabsl(y) > 0x1p60L || x < -0.5L)
    return clogl(make(1 + x, y));
  /* two-sum: s + e = 2x + yy exactly, then the same for s + xx */
  real s = 2 * x + yy, t = s - 2 * x, e = (2 * x - (s - t)) + (yy - t);
  real s2 = s + xx, t2 = s2 - s, e2 = (s - (s2 - t2)) + (xx - t2);
  return make(log1pl(s2 + (e + e2 + xx_low + yy_low)) / 2, im);
}

/* exp(z) - 1; the real part is expm1(x) cos y - 2 sin^2(y/2). */
static cplx expm1_c(cplx z)
{
  real x = creall(z), y = cimagl(z), h = sinl(y / 2);

  if (y == 0) return make(expm1l(x), y);
  if (!isfinite(y)) return make(NAN, NAN);
  if (!isfinite(x)) return cexpl(z) - 1;
  return make(expm1l(x) * cosl(y) - 2 * h * h, expl(x) * sinl(y));
}

/* 0^y is 0 if y has a positive real part; x^0 is 1 for every x. */
static cplx pow_c(cplx x, cplx y)
{
  if (y == 0) return 1;
  if (x == 0) return creall(y) > 0 ? 0 : cexpl(y * clogl(x));
  return cpowl(x, y);
}

/* -i log((x + i y) / sqrt(x^2 + y^2)); y is the first argument, as in atan2(y, x). */
static cplx atan2_c(cplx y, cplx x) { return -I * clogl((x + I * y) / csqrtl(x * x + y * y)); }

static eval_scalar narrow(cplx z) { return (eval_scalar){.re = (double)creall(z), .im = (double)cimagl(z)}; }

eval_scalar eval_complex_unary(hlo_opcode op, eval_scalar x)
{
  cplx z = make(x.re, x.im), r = 0;
  real size;

  switch (op) {
  case HLO_ABS: return (eval_scalar){.re = (double)hypotl(x.re, x.im)};
  case HLO_NEGATE: return (eval_scalar){.re = -x.re, .im = -x.im};
  case HLO_SIGN: /* 0 for 0, else x / |x| */
    size = hypotl(x.re, x.im);
    if (isnan(size)) return (eval_scalar){.re = NAN, .im = NAN};
    if (size == 0) return x;
    return (eval_scalar){.re = (double)(x.re / size), .im = (double)(x.im / size)};
  case HLO_ACOS: r = cacosl(z); break;
  case HLO_ACOSH: r = cacoshl(z); break;
  case HLO_ASIN: r = casinl(z); break;
  case HLO_ASINH: r = casinhl(z); break;
  case HLO_ATANH: r = catanhl(z); break;
  case HLO_CBRT: r = pow_c(z, 1.0L / 3); break;
  case HLO_COS: r = ccosl(z); break;
  case HLO_COSH: r = ccoshl(z); break;
  /* NaN without a finite angle, where C gives 0 for a real part of -inf */
  case HLO_EXP: r = isfinite(cimagl(z)) ? cexpl(z) : make(NAN, NAN); break;
  case HLO_EXPM1: r = expm1_c(z); break;
  case HLO_LOG: r = clogl(z); break;
  case HLO_LOG1P: r = log1p_c(z); break;
  case HLO_LOGISTIC: r = isfinite(cimagl(z)) ? 1 / (1 + cexpl(-z)) : make(NAN, NAN); break;
  case HLO_RSQRT: r = 1 / csqrtl(z); break;
  case HLO_SIN: r = csinl(z); break;
  case HLO_SINH: r = csinhl(z); break;
  case HLO_SQRT: r = csqrtl(z); break;
  case HLO_TAN: r = ctanl(z); break;
  case HLO_TANH: r = ctanhl(z); break;
  default: break;
  }
  return narrow(r);
}

eval_scalar eval_complex_binary(hlo_opcode op, eval_scalar x, eval_scalar y)
{
  cplx a = make(x.re, x.im), b = make(y.re, y.im), r = 0;

  switch (op) {
  case HLO_ADD: return (eval_scalar){.re = x.re + y.re, .im = x.im + y.im};
  case HLO_SUBTRACT: return (eval_scalar){.re = x.re - y.re, .im = x.im - y.im};
  case HLO_MULTIPLY:
    return (eval_scalar){.re = (double)((real)x.re * y.re - (real)x.im * y.im),
                         .im = (double)((real)x.re * y.im + (real)x.im * y.re)};
  case HLO_DIVIDE: r = a / b; break;
  case HLO_POWER: r = pow_c(a, b); break;
  case HLO_ATAN2: r = atan2_c(a, b); break;
  default: break;
  }
  return narrow(r);
}
