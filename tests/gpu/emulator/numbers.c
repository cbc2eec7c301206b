/* tests/gpu/emulator/numbers.c -- see numbers.h. */
#include <config.h>

#include "numbers.h"

#include <fenv.h>

#include "internal.h"

uint32_t ptx_narrow(double value, ptx_format f, int round, bool saturate)
{
  uint32_t sign = signbit(value) ? 1u << (f.exponent + f.mantissa) : 0, ones = (1u << f.exponent) - 1;
  int bias = (1 << (f.exponent - 1)) - 1;
  uint32_t infinity = ones << f.mantissa,
           largest = f.finite ? (ones << f.mantissa | ((1u << f.mantissa) - 2)) : infinity - 1;
  uint32_t overflow = saturate ? largest : f.finite ? largest + 1 : infinity;
  if (value != value)
    return f.finite ? (ones << f.mantissa | ((1u << f.mantissa) - 1)) : infinity | ((1u << f.mantissa) - 1);
  if (isinf(value)) return sign | overflow;
  if (value == 0) return sign;
  double a = fabs(value);
  int e;
  frexp(a, &e); /* a in [2^(e-1), 2^e) */
  int unit = (e - 1 < 1 - bias ? 1 - bias : e - 1) - f.mantissa;
  double scaled = ldexp(a, -unit), whole = floor(scaled), rest = scaled - whole; /* all exact */
  bool up = round == PTX_RZ    ? false
            : round == PTX_RM  ? sign && rest > 0
            : round == PTX_RP  ? !sign && rest > 0
            : round == PTX_RNA ? rest >= 0.5
                               : rest > 0.5 || (rest == 0.5 && fmod(whole, 2) != 0);
  uint64_t digits = (uint64_t)whole + up;
  /* The biased exponent and the fraction are one number: a carry out of the fraction raises the exponent. */
  uint64_t biased = (uint64_t)(unit + f.mantissa + bias - 1);
  uint64_t bits = digits + (biased << f.mantissa);
  if (bits > largest) {
    bool stays = round == PTX_RZ || (round == PTX_RM && !sign) || (round == PTX_RP && sign);
    return sign | (stays ? largest : overflow);
  }
  return sign | (uint32_t)bits;
}

double ptx_widen(uint32_t bits, ptx_format f)
{
  int bias = (1 << (f.exponent - 1)) - 1;
  uint32_t ones = (1u << f.exponent) - 1, e = bits >> f.mantissa & ones, m = bits & ((1u << f.mantissa) - 1);
  bool minus = bits >> (f.exponent + f.mantissa) & 1;
  double v;
  if (e == ones && f.finite)
    v = m == (1u << f.mantissa) - 1 ? NAN : ldexp(m | 1u << f.mantissa, (int)e - bias - f.mantissa);
  else if (e == ones) v = m ? NAN : INFINITY;
  else v = e ? ldexp(m | 1u << f.mantissa, (int)e - bias - f.mantissa) : ldexp(m, 1 - bias - f.mantissa);
  return minus ? -v : v;
}

double ptx_add_odd(double a, double b)
{
  double s = a + b;
  if (!isfinite(s)) return s;
  double bb = s - a, error = (a - (s - bb)) + (b - bb);
  uint64_t bits = ptx_bits64(s);
  if (error == 0 || bits & 1) return s;
  return ptx_f64((error > 0) == (s > 0) ? bits | 1 : bits - 1);
}

int ptx_enter_rounding(int round)
{
  static const int host[] = {FE_TONEAREST, FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  if (round <= PTX_RN || round > PTX_RP) return -1;
  int saved = fegetround();
  fesetround(host[round]);
  return saved;
}

void ptx_leave_rounding(int saved)
{
  if (saved >= 0) fesetround(saved);
}
