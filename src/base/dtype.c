/* base/dtype.c -- element types, by the numbers and names of XLA, PJRT and MLIR (dtype.h). */
#include <config.h>

#include "base/dtype.h"

#include <math.h>
#include <string.h>

static const struct dtype_info {
  const char *name, *mlir;
  uint8_t bits, proto, pjrt, class;
} infos[WEFT_DTYPE_COUNT] = {
#define X(NAME, name, bits, proto, pjrt, mlir, class) [WEFT_##NAME] = {name, mlir, bits, proto, pjrt, WEFT_CLASS_##class},
#include "base/dtype.def"
#undef X
};

static bool is_valid(weft_dtype type) { return (unsigned)type < WEFT_DTYPE_COUNT; }

const char *weft_dtype_name(weft_dtype type) { return is_valid(type) ? infos[type].name : "invalid"; }
const char *weft_dtype_mlir_name(weft_dtype type) { return is_valid(type) ? infos[type].mlir : ""; }
int weft_dtype_bits(weft_dtype type) { return is_valid(type) ? infos[type].bits : 0; }
weft_dtype_class weft_dtype_class_of(weft_dtype type)
{
  return is_valid(type) ? (weft_dtype_class)infos[type].class : WEFT_CLASS_NONE;
}
size_t weft_dtype_bytes(weft_dtype type) { return ((size_t)weft_dtype_bits(type) + 7) / 8; }
int weft_dtype_to_proto(weft_dtype type) { return is_valid(type) ? infos[type].proto : 0; }
int weft_dtype_to_pjrt(weft_dtype type) { return is_valid(type) ? infos[type].pjrt : 0; }

weft_dtype weft_dtype_from_proto(int number)
{
  for (int t = 1; t < WEFT_DTYPE_COUNT; t++)
    if (infos[t].proto == number) return (weft_dtype)t;
  return WEFT_INVALID;
}

weft_dtype weft_dtype_from_pjrt(int number)
{
  for (int t = 1; t < WEFT_DTYPE_COUNT && number != 0; t++)
    if (infos[t].pjrt == number) return (weft_dtype)t;
  return WEFT_INVALID;
}

weft_dtype weft_dtype_from_name(const char *name, size_t length)
{
  for (int t = 1; t < WEFT_DTYPE_COUNT; t++)
    if (name[0] == infos[t].name[0] && strlen(infos[t].name) == length && memcmp(infos[t].name, name, length) == 0)
      return (weft_dtype)t;
  return WEFT_INVALID;
}

weft_dtype weft_dtype_component(weft_dtype type)
{
  return type == WEFT_C64 ? WEFT_F32 : type == WEFT_C128 ? WEFT_F64 : type;
}

weft_dtype weft_dtype_complex_of(weft_dtype type)
{
  return type == WEFT_F32 ? WEFT_C64 : type == WEFT_F64 ? WEFT_C128 : WEFT_INVALID;
}

/* {exponent, mantissa, bias, sign, inf, nan, fnuz, zero}; OCP 8-bit and microscaling formats, and LLVM's APFloat
 * names for the others. */
static const weft_float_format formats[WEFT_DTYPE_COUNT] = {
  [WEFT_F16] = {5, 10, 15, true, true, true, false, true},
  [WEFT_BF16] = {8, 7, 127, true, true, true, false, true},
  [WEFT_F32] = {8, 23, 127, true, true, true, false, true},
  [WEFT_F64] = {11, 52, 1023, true, true, true, false, true},
  [WEFT_F8E5M2] = {5, 2, 15, true, true, true, false, true},
  [WEFT_F8E4M3] = {4, 3, 7, true, true, true, false, true},
  [WEFT_F8E3M4] = {3, 4, 3, true, true, true, false, true},
  [WEFT_F8E4M3FN] = {4, 3, 7, true, false, true, false, true},
  [WEFT_F8E4M3B11FNUZ] = {4, 3, 11, true, false, true, true, true},
  [WEFT_F8E5M2FNUZ] = {5, 2, 16, true, false, true, true, true},
  [WEFT_F8E4M3FNUZ] = {4, 3, 8, true, false, true, true, true},
  [WEFT_F8E8M0FNU] = {8, 0, 127, false, false, true, false, false},
  [WEFT_F6E2M3FN] = {2, 3, 1, true, false, false, false, true},
  [WEFT_F6E3M2FN] = {3, 2, 3, true, false, false, false, true},
  [WEFT_F4E2M1FN] = {2, 1, 1, true, false, false, false, true},
};

const weft_float_format *weft_dtype_float_format(weft_dtype type)
{
  return weft_dtype_is_float(type) ? &formats[type] : NULL;
}

/* The NaN of a format that has one, without sign. */
static uint64_t format_nan(const weft_float_format *f)
{
  uint64_t sign = UINT64_C(1) << (f->exponent_bits + f->mantissa_bits);

  if (f->nan_is_negative_zero) return sign;
  if (!f->has_inf) return (UINT64_C(1) << (f->exponent_bits + f->mantissa_bits)) - 1; /* all ones */
  return (((UINT64_C(1) << f->exponent_bits) - 1) << f->mantissa_bits) | UINT64_C(1) << (f->mantissa_bits - 1);
}

/* The largest finite magnitude. */
static uint64_t format_max(const weft_float_format *f)
{
  uint64_t all_ones = (UINT64_C(1) << (f->exponent_bits + f->mantissa_bits)) - 1;

  if (f->has_inf) return (((UINT64_C(1) << f->exponent_bits) - 1) << f->mantissa_bits) - 1;
  return f->has_nan && !f->nan_is_negative_zero ? all_ones - 1 : all_ones;
}

double weft_float_decode_f64(weft_dtype type, uint64_t bits)
{
  const weft_float_format *f = &formats[type];
  uint64_t mantissa = bits & ((UINT64_C(1) << f->mantissa_bits) - 1);
  int exponent = (int)(bits >> f->mantissa_bits & ((UINT64_C(1) << f->exponent_bits) - 1));
  bool negative = f->has_sign && bits >> (f->mantissa_bits + f->exponent_bits) & 1;
  int top = (1 << f->exponent_bits) - 1;
  double value;

  if (type == WEFT_F64) {
    memcpy(&value, &bits, sizeof value);
    return value;
  }
  if (f->nan_is_negative_zero) {
    if (negative && exponent == 0 && mantissa == 0) return -NAN;
  } else if (f->has_inf && exponent == top) {
    value = mantissa ? NAN : INFINITY;
    return copysign(value, negative ? -1 : 1);
  } else if (f->has_nan && !f->has_inf && exponent == top && mantissa == (UINT64_C(1) << f->mantissa_bits) - 1) {
    return copysign(NAN, negative ? -1 : 1);
  }
  if (exponent == 0 && f->has_zero) value = ldexp((double)mantissa, 1 - f->bias - f->mantissa_bits);
  else value = ldexp((double)(mantissa | UINT64_C(1) << f->mantissa_bits), exponent - f->bias - f->mantissa_bits);
  return negative ? -value : value;
}

uint64_t weft_float_encode_f64(weft_dtype type, double value)
{
  const weft_float_format *f = &formats[type];
  uint64_t wide, mantissa, result, sign_bit = 0, half, rest;
  int exponent, shift;

  if (type == WEFT_F8E8M0FNU) value = (float)value; /* a value that is zero in f32 becomes NaN, as zero does */
  memcpy(&wide, &value, sizeof wide);
  if (type == WEFT_F64) return wide;
  if (f->has_sign && wide >> 63) sign_bit = UINT64_C(1) << (f->exponent_bits + f->mantissa_bits);
  if (isnan(value)) {
    if (!f->has_nan) return UINT64_C(1) << (f->exponent_bits + f->mantissa_bits); /* -0, as XLA's cast gives */
    return f->nan_is_negative_zero ? format_nan(f) : format_nan(f) | sign_bit;
  }
  if (!f->has_sign && wide >> 63) return format_nan(f); /* f8e8m0fnu holds positive values only */
  if (isinf(value)) {
    if (f->has_inf) return (((UINT64_C(1) << f->exponent_bits) - 1) << f->mantissa_bits) | sign_bit;
    if (!f->has_nan) return format_max(f) | sign_bit;
    return f->nan_is_negative_zero ? format_nan(f) : format_nan(f) | sign_bit;
  }
  if (value == 0) {
    if (!f->has_zero) return format_nan(f);
    return f->nan_is_negative_zero ? 0 : sign_bit;
  }
  /* value = mantissa * 2^(exponent - 52), 2^52 <= mantissa < 2^53 */
  exponent = (int)(wide >> 52 & 0x7ff) - 1023;
  mantissa = wide & ((UINT64_C(1) << 52) - 1);
  if (exponent == -1023) {
    int lead = __builtin_clzll(mantissa) - 11;
    mantissa <<= lead;
    exponent = -1022 - lead;
  } else {
    mantissa |= UINT64_C(1) << 52;
  }
  /* Drop the bits that the target's mantissa lacks, and one more for each power of two below its least normal
   * exponent. */
  shift = 52 - f->mantissa_bits;
  if (f->has_zero && exponent < 1 - f->bias) {
    shift += 1 - f->bias - exponent;
    exponent = 1 - f->bias;
  } else if (!f->has_zero && exponent < -f->bias) {
    return 0;
  }
  if (shift > 63) {
    mantissa = 0;
  } else {
    half = UINT64_C(1) << (shift - 1);
    rest = mantissa & ((UINT64_C(1) << shift) - 1);
    mantissa >>= shift;
    if (rest > half || (rest == half && (f->mantissa_bits ? mantissa & 1 : 1))) mantissa++; /* f8e8m0fnu: ties go up */
  }
  /* A carry out of the mantissa raises the exponent in this addition; so does one from subnormal to the least
   * normal. */
  if (f->has_zero) result = ((uint64_t)(exponent + f->bias - 1) << f->mantissa_bits) + mantissa;
  else result = (uint64_t)(exponent + f->bias) + mantissa - 1;
  if (result > format_max(f)) {
    if (f->has_inf) return (((UINT64_C(1) << f->exponent_bits) - 1) << f->mantissa_bits) | sign_bit;
    if (!f->has_nan) return format_max(f) | sign_bit;
    return f->nan_is_negative_zero ? format_nan(f) : format_nan(f) | sign_bit;
  }
  if (f->nan_is_negative_zero && result == 0) return 0;
  return result | sign_bit;
}

float weft_float_decode(weft_dtype type, uint64_t bits)
{
  float value;
  uint32_t narrow = (uint32_t)bits;

  if (type == WEFT_BF16) narrow <<= 16;
  if (type == WEFT_BF16 || type == WEFT_F32) {
    memcpy(&value, &narrow, sizeof value);
    return value;
  }
  return (float)weft_float_decode_f64(type, bits);
}

uint64_t weft_float_encode(weft_dtype type, float value)
{
  uint32_t wide;

  memcpy(&wide, &value, sizeof wide);
  if (type == WEFT_F32) return wide;
  if (type == WEFT_BF16) {
    if (isnan(value)) return wide >> 16 | 0x40; /* quiet, payload truncated */
    return (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
  }
  return weft_float_encode_f64(type, value);
}
