/* tests/gpu/emulator/numbers.h -- floating-point formats of PTX: bits to values and back, with PTX's rules for NaN.
 *
 * An operation on f16, bf16 or f32 whose result is not a number gives the one NaN that PTX calls canonical.  f64
 * keeps the result of the host's arithmetic, which is a quiet NaN with an operand's payload, as on the device. */
#ifndef WEFT_EMU_NUMBERS_H
#define WEFT_EMU_NUMBERS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PTX_NAN32 0x7fffffffu
#define PTX_NAN16 0x7fffu

static inline float ptx_f32(uint64_t v)
{
  uint32_t b = (uint32_t)v;
  float f;
  memcpy(&f, &b, 4);
  return f;
}
static inline uint32_t ptx_bits32(float f)
{
  uint32_t b;
  memcpy(&b, &f, 4);
  return f != f ? PTX_NAN32 : b;
}
static inline double ptx_f64(uint64_t v)
{
  double f;
  memcpy(&f, &v, 8);
  return f;
}
static inline uint64_t ptx_bits64(double f)
{
  uint64_t b;
  memcpy(&b, &f, 8);
  return b;
}
static inline float ptx_bf16(uint64_t v) { return ptx_f32((v & 0xffff) << 16); }
static inline float ptx_flush(float f) { return fabsf(f) < 0x1p-126f ? copysignf(0, f) : f; }

/* A format with a sign, `exponent` bits of exponent and `mantissa` bits of fraction.  finite: there are no
 * infinities, and the only NaN is the code of all ones (e4m3). */
typedef struct ptx_format { int exponent, mantissa; bool finite; } ptx_format;
static const ptx_format ptx_fmt_f16 = {5, 10, false}, ptx_fmt_bf16 = {8, 7, false}, ptx_fmt_tf32 = {8, 10, false},
                        ptx_fmt_e4m3 = {4, 3, true}, ptx_fmt_e5m2 = {5, 2, false};

/* The bits of `value` in the format, rounded once by `round` (PTX_RN and so on; PTX_NOROUND is PTX_RN).  saturate: a
 * value that is too large becomes the largest finite value. */
uint32_t ptx_narrow(double value, ptx_format f, int round, bool saturate);
double ptx_widen(uint32_t bits, ptx_format f);
static inline double ptx_f16(uint64_t v) { return ptx_widen((uint32_t)v & 0xffff, ptx_fmt_f16); }
static inline uint32_t ptx_bits_f16(double v) { return v != v ? PTX_NAN16 : ptx_narrow(v, ptx_fmt_f16, 0, false); }
static inline uint32_t ptx_bits_bf16(double v) { return v != v ? PTX_NAN16 : ptx_narrow(v, ptx_fmt_bf16, 0, false); }

/* a + b, rounded to odd: a second rounding to a narrower format then gives the same as one rounding of the exact
 * sum. */
double ptx_add_odd(double a, double b);

/* Sets the host's rounding mode for PTX_RN..PTX_RP during one operation. */
int ptx_enter_rounding(int round);
void ptx_leave_rounding(int saved);

#endif
