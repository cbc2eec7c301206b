/* hlo/eval_elem.c -- Elementwise operations: one element in memory to one element in memory, for every type.
 *
 * An element is loaded into a wide type (int64, uint64, double or a pair of doubles), computed, and rounded once
 * when it is stored.  For f32 and narrower types + - * / sqrt are therefore correctly rounded (Figueroa: double has
 * more than 2p + 2 bits), and functions of libm are within half a unit in the last place.  Integers wrap. */
#include <config.h>

#include <math.h>
#include <string.h>

#include "hlo/eval_internal.h"

/* ---- loading and storing ----------------------------------------------------------------------------------------- */

static uint64_t load_bits(weft_dtype type, const void *from)
{
  uint64_t bits = 0;

  memcpy(&bits, from, weft_dtype_bytes(type)); /* little-endian hosts only: configure checks */
  return bits;
}

/* Sign-extends the low `width` bits. */
static int64_t sign_extend(uint64_t bits, int width) { return (int64_t)(bits << (64 - width)) >> (64 - width); }
static uint64_t low_bits(uint64_t bits, int width) { return width >= 64 ? bits : bits & ((UINT64_C(1) << width) - 1); }

eval_scalar eval_load(weft_dtype type, const void *from)
{
  eval_scalar x = {.im = 0};
  float part[2];

  switch (weft_dtype_class_of(type)) {
  case WEFT_CLASS_PRED: x.s = *(const uint8_t *)from != 0; break;
  case WEFT_CLASS_SINT: x.s = sign_extend(load_bits(type, from), weft_dtype_bits(type)); break;
  case WEFT_CLASS_UINT: x.u = low_bits(load_bits(type, from), weft_dtype_bits(type)); break;
  case WEFT_CLASS_FLOAT:
    if (type == WEFT_F64) {
      memcpy(&x.re, from, sizeof x.re);
    } else if (type == WEFT_F32) {
      memcpy(part, from, sizeof part[0]);
      x.re = part[0];
    } else {
      x.re = weft_float_decode_f64(type, load_bits(type, from));
    }
    break;
  case WEFT_CLASS_COMPLEX:
    if (type == WEFT_C128) {
      memcpy(&x, from, sizeof x);
    } else {
      memcpy(part, from, sizeof part);
      x.re = part[0];
      x.im = part[1];
    }
    break;
  case WEFT_CLASS_NONE: break;
  }
  return x;
}

void eval_store(weft_dtype type, void *to, eval_scalar x)
{
  uint64_t bits;
  float part[2];

  switch (weft_dtype_class_of(type)) {
  case WEFT_CLASS_PRED: *(uint8_t *)to = x.s != 0; break;
  case WEFT_CLASS_SINT:
    bits = (uint64_t)sign_extend(x.u, weft_dtype_bits(type));
    memcpy(to, &bits, weft_dtype_bytes(type));
    break;
  case WEFT_CLASS_UINT:
    bits = low_bits(x.u, weft_dtype_bits(type));
    memcpy(to, &bits, weft_dtype_bytes(type));
    break;
  case WEFT_CLASS_FLOAT:
    if (type == WEFT_F64) {
      memcpy(to, &x.re, sizeof x.re);
    } else if (type == WEFT_F32) {
      part[0] = (float)x.re;
      memcpy(to, part, sizeof part[0]);
    } else {
      bits = weft_float_encode_f64(type, x.re);
      memcpy(to, &bits, weft_dtype_bytes(type));
    }
    break;
  case WEFT_CLASS_COMPLEX:
    if (type == WEFT_C128) {
      memcpy(to, &x, sizeof x);
    } else {
      part[0] = (float)x.re;
      part[1] = (float)x.im;
      memcpy(to, part, sizeof part);
    }
    break;
  case WEFT_CLASS_NONE: break;
  }
}

/* ---- convert ----------------------------------------------------------------------------------------------------- */

/* Rounds toward zero.  A value out of range becomes the nearest value in range; NaN becomes 0. */
static eval_scalar float_to_integer(weft_dtype to, double x)
{
  int width = weft_dtype_bits(to);
  eval_scalar out = {.im = 0};

  if (isnan(x)) return out;
  if (weft_dtype_is_unsigned(to)) {
    if (x >= ldexp(1, width)) out.u = low_bits(UINT64_MAX, width);
    else if (x > 0) out.u = (uint64_t)x;
  } else {
    double limit = ldexp(1, width - 1);
    if (x >= limit) out.s = (int64_t)(low_bits(UINT64_MAX, width - 1));
    else if (x <= -limit) out.s = sign_extend(UINT64_C(1) << (width - 1), width);
    else out.s = (int64_t)x;
  }
  return out;
}

/* Rounds once.  f32 is rounded directly from 64 bits, not through double.  Other types get the value as a double
 * (rounded if it has over 53 bits, as in kernels), which is rounded again when it is stored. */
static double integer_to_float(weft_dtype from, weft_dtype to, eval_scalar x)
{
  bool is_unsigned = weft_dtype_is_unsigned(from);

  if (to != WEFT_F32 && to != WEFT_C64) return is_unsigned ? (double)x.u : (double)x.s;
  return is_unsigned ? (double)(float)x.u : (double)(float)x.s;
}

eval_scalar eval_convert(weft_dtype from, weft_dtype to, eval_scalar x)
{
  weft_dtype_class from_class = weft_dtype_class_of(from), to_class = weft_dtype_class_of(to);
  bool from_float = from_class == WEFT_CLASS_FLOAT || from_class == WEFT_CLASS_COMPLEX;
  eval_scalar out = {.im = 0};

  switch (to_class) {
  case WEFT_CLASS_PRED:
    out.s = !from_float ? x.u != 0 : x.re != 0 || (from_class == WEFT_CLASS_COMPLEX && x.im != 0);
    break;
  case WEFT_CLASS_SINT:
  case WEFT_CLASS_UINT:
    if (from_float) out = float_to_integer(to, x.re);
    else out.u = x.u;
    break;
  case WEFT_CLASS_FLOAT:
  case WEFT_CLASS_COMPLEX:
    out.re = from_float ? x.re : integer_to_float(from, to, x);
    if (from_class == WEFT_CLASS_COMPLEX && to_class == WEFT_CLASS_COMPLEX) out.im = x.im;
    break;
  case WEFT_CLASS_NONE: break;
  }
  return out;
}

/* ---- integers and predicates ----------------------------------------------------------------------------------- */

/* Exponentiation by squaring; wraps.  With a negative exponent only the bases 1 and -1 give a result other than 0,
 * as in XLA. */
static uint64_t integer_power(uint64_t base, eval_scalar exponent, bool is_signed)
{
  uint64_t result = 1;

  if (is_signed && exponent.s < 0) {
    if (base == 1) return 1;
    if (base == UINT64_MAX) return exponent.s & 1 ? UINT64_MAX : 1;
    return 0;
  }
  for (uint64_t e = exponent.u; e; e >>= 1, base *= base)
    if (e & 1) result *= base;
  return result;
}

/* Division by zero gives all ones, remainder by zero the dividend.  INT_MIN / -1 wraps. */
static eval_scalar signed_divide(hlo_opcode op, int64_t a, int64_t b)
{
  eval_scalar out = {.im = 0};

  if (b == 0) out.s = op == HLO_DIVIDE ? -1 : a;
  else if (b == -1) out.u = op == HLO_DIVIDE ? -(uint64_t)a : 0;
  else out.s = op == HLO_DIVIDE ? a / b : a % b;
  return out;
}

static eval_scalar integer_op(hlo_opcode op, weft_dtype type, eval_scalar a, eval_scalar b)
{
  bool is_signed = weft_dtype_is_signed(type);
  int width = weft_dtype_bits(type);
  uint64_t bits = low_bits(a.u, width);
  eval_scalar out = {.im = 0};

  switch (op) {
  case HLO_ABS: out.u = is_signed && a.s < 0 ? -a.u : a.u; break;
  case HLO_NEGATE: out.u = -a.u; break;
  case HLO_NOT: out.u = ~a.u; break;
  case HLO_SIGN: out.s = is_signed ? (a.s > 0) - (a.s < 0) : a.u != 0; break;
  case HLO_POPCNT: out.s = __builtin_popcountll(bits); break;
  case HLO_CLZ: out.s = bits ? __builtin_clzll(bits) - (64 - width) : width; break;
  case HLO_ADD: out.u = a.u + b.u; break;
  case HLO_SUBTRACT: out.u = a.u - b.u; break;
  case HLO_MULTIPLY: out.u = a.u * b.u; break;
  case HLO_MULHI:
    if (is_signed) out.s = (int64_t)(((__int128)a.s * b.s) >> width);
    else out.u = (uint64_t)(((unsigned __int128)a.u * b.u) >> width);
    break;
  case HLO_DIVIDE:
  case HLO_REMAINDER:
    if (is_signed) out = signed_divide(op, a.s, b.s);
    else if (b.u == 0) out.u = op == HLO_DIVIDE ? UINT64_MAX : a.u;
    else out.u = op == HLO_DIVIDE ? a.u / b.u : a.u % b.u;
    break;
  case HLO_POWER: out.u = integer_power(a.u, b, is_signed); break;
  case HLO_MAXIMUM: out = (is_signed ? a.s >= b.s : a.u >= b.u) ? a : b; break;
  case HLO_MINIMUM: out = (is_signed ? a.s <= b.s : a.u <= b.u) ? a : b; break;
  case HLO_AND: out.u = a.u & b.u; break;
  case HLO_OR: out.u = a.u | b.u; break;
  case HLO_XOR: out.u = a.u ^ b.u; break;
  /* A shift by the width or more gives 0, or only copies of the sign.  A negative count counts as unsigned, so it is
   * large. */
  case HLO_SHIFT_LEFT: out.u = low_bits(b.u, width) < (uint64_t)width ? bits << b.u : 0; break;
  case HLO_SHIFT_RIGHT_LOGICAL: out.u = low_bits(b.u, width) < (uint64_t)width ? bits >> b.u : 0; break;
  case HLO_SHIFT_RIGHT_ARITHMETIC:
    out.s = sign_extend(bits, width) >> WEFT_MIN(low_bits(b.u, width), (uint64_t)width - 1);
    break;
  default: break;
  }
  return out;
}

/* Predicates are computed as one bit: + is or, * is and. */
static eval_scalar pred_op(hlo_opcode op, eval_scalar a, eval_scalar b)
{
  eval_scalar out = {.im = 0};

  switch (op) {
  case HLO_NOT: out.s = !a.s; break;
  case HLO_ADD:
  case HLO_OR:
  case HLO_MAXIMUM: out.s = a.s | b.s; break;
  case HLO_MULTIPLY:
  case HLO_AND:
  case HLO_MINIMUM: out.s = a.s & b.s; break;
  case HLO_SUBTRACT:
  case HLO_XOR: out.s = a.s ^ b.s; break;
  default: break;
  }
  return out;
}

/* ---- floats ------------------------------------------------------------------------------------------------------ */

/* IEEE 754-2019 maximum and minimum: NaN wins, -0 < 0. */
static double float_max(double a, double b)
{
  if (isnan(a) || isnan(b)) return isnan(a) ? a : b;
  return a > b || (a == b && !signbit(a)) ? a : b;
}
static double float_min(double a, double b)
{
  if (isnan(a) || isnan(b)) return isnan(a) ? a : b;
  return a < b || (a == b && signbit(a)) ? a : b;
}

static double float_op(hlo_opcode op, double a, double b)
{
  switch (op) {
  case HLO_ABS: return fabs(a);
  case HLO_ACOS: return acos(a);
  case HLO_ACOSH: return acosh(a);
  case HLO_ASIN: return asin(a);
  case HLO_ASINH: return asinh(a);
  case HLO_ATANH: return atanh(a);
  case HLO_CBRT: return cbrt(a);
  case HLO_CEIL: return ceil(a);
  case HLO_COS: return cos(a);
  case HLO_COSH: return cosh(a);
  case HLO_ERF: return erf(a);
  case HLO_ERFC: return erfc(a);
  case HLO_EXP: return exp(a);
  case HLO_EXPM1: return expm1(a);
  case HLO_FLOOR: return floor(a);
  case HLO_LOG: return log(a);
  case HLO_LOG1P: return log1p(a);
  case HLO_LOGISTIC: return 1 / (1 + exp(-a));
  case HLO_NEGATE: return -a;
  case HLO_ROUND_AFZ: return round(a);
  case HLO_ROUND_EVEN: return nearbyint(a);
  case HLO_RSQRT: return 1 / sqrt(a);
  case HLO_SIGN: return a > 0 ? 1 : a < 0 ? -1 : a; /* zeros and NaN stay as they are */
  case HLO_SIN: return sin(a);
  case HLO_SINH: return sinh(a);
  case HLO_SQRT: return sqrt(a);
  case HLO_TAN: return tan(a);
  case HLO_TANH: return tanh(a);
  case HLO_ADD: return a + b;
  case HLO_ATAN2: return atan2(a, b);
  case HLO_DIVIDE: return a / b;
  case HLO_MAXIMUM: return float_max(a, b);
  case HLO_MINIMUM: return float_min(a, b);
  case HLO_MULTIPLY: return a * b;
  case HLO_POWER: return pow(a, b);
  case HLO_REMAINDER: return fmod(a, b);
  case HLO_SUBTRACT: return a - b;
  default: return 0;
  }
}

/* ---- compare, clamp, reduce-precision, stochastic-convert -------------------------------------------------------- */

/* -1, 0, 1, or 2 for unordered. */
static int compare_values(weft_dtype_class class, eval_scalar a, eval_scalar b)
{
  switch (class) {
  case WEFT_CLASS_UINT: return (a.u > b.u) - (a.u < b.u);
  case WEFT_CLASS_FLOAT: return isnan(a.re) || isnan(b.re) ? 2 : (a.re > b.re) - (a.re < b.re);
  case WEFT_CLASS_COMPLEX:
    if (isnan(a.re) || isnan(b.re) || isnan(a.im) || isnan(b.im)) return 2;
    return a.re != b.re ? (a.re > b.re) - (a.re < b.re) : (a.im > b.im) - (a.im < b.im);
  default: return (a.s > b.s) - (a.s < b.s);
  }
}

/* The bits of a float as an integer in total order.  A NaN that is encoded as negative zero comes first, as -NaN.
 * f8e8m0fnu has no sign. */
static int64_t total_order_key(weft_dtype type, const void *element)
{
  const weft_float_format *f = weft_dtype_float_format(type);
  uint64_t bits = load_bits(type, element);
  int64_t key = sign_extend(bits, f->exponent_bits + f->mantissa_bits + 1);

  if (!f->has_sign) return (int64_t)bits;
  if (f->nan_is_negative_zero && isnan(eval_load(type, element).re)) return INT64_MIN;
  return key < 0 ? key ^ INT64_MAX : key;
}

int eval_compare_total(weft_dtype type, const void *a, const void *b)
{
  weft_dtype_class class = weft_dtype_class_of(type);

  if (class == WEFT_CLASS_FLOAT) {
    int64_t x = total_order_key(type, a), y = total_order_key(type, b);
    return (x > y) - (x < y);
  }
  return compare_values(class, eval_load(type, a), eval_load(type, b));
}

static bool compare(const hlo_instr *instr, weft_dtype type, const void *const *in)
{
  hlo_direction direction = instr->u.compare.direction;
  int order;

  if (instr->u.compare.type == HLO_COMPARE_TOTALORDER) order = eval_compare_total(type, in[0], in[1]);
  else order = compare_values(weft_dtype_class_of(type), eval_load(type, in[0]), eval_load(type, in[1]));
  if (order == 2) return direction == HLO_NE;
  switch (direction) {
  case HLO_EQ: return order == 0;
  case HLO_NE: return order != 0;
  case HLO_GE: return order >= 0;
  case HLO_GT: return order > 0;
  case HLO_LE: return order <= 0;
  case HLO_LT: return order < 0;
  }
  return false;
}

static eval_scalar binary(hlo_opcode op, weft_dtype type, eval_scalar a, eval_scalar b)
{
  switch (weft_dtype_class_of(type)) {
  case WEFT_CLASS_PRED: return pred_op(op, a, b);
  case WEFT_CLASS_FLOAT: return (eval_scalar){.re = float_op(op, a.re, b.re)};
  case WEFT_CLASS_COMPLEX:
    if (op == HLO_MAXIMUM || op == HLO_MINIMUM) { /* lexicographic; NaN wins */
      int order = compare_values(WEFT_CLASS_COMPLEX, a, b);
      if (order == 2) return isnan(a.re) || isnan(a.im) ? a : b;
      return (op == HLO_MAXIMUM) == (order >= 0) ? a : b;
    }
    return eval_complex_binary(op, a, b);
  default: return integer_op(op, type, a, b);
  }
}

/* Rounds the mantissa to nearest even; then an overflow becomes infinite and an underflow zero.  Works on the bits
 * of the value: of its f16 form for 8-bit and narrower types, as in XLA (of its f32 form for f8e8m0fnu). */
static void reduce_precision(const hlo_instr *instr, weft_dtype type, const void *in, void *out)
{
  weft_dtype own = type == WEFT_F8E8M0FNU ? WEFT_F32 : weft_dtype_bits(type) <= 8 ? WEFT_F16 : type;
  const weft_float_format *f = weft_dtype_float_format(type);
  int exponent_bits = instr->u.reduce_precision.exponent_bits, mantissa_bits = instr->u.reduce_precision.mantissa_bits;

  if (exponent_bits == f->exponent_bits && mantissa_bits == f->mantissa_bits) { /* the type's own */
    memcpy(out, in, weft_dtype_bytes(type));
    return;
  }
  f = weft_dtype_float_format(own);
  uint64_t bits = own == type ? load_bits(type, in) : weft_float_encode_f64(own, eval_load(type, in).re),
           sign_bit = UINT64_C(1) << (f->exponent_bits + f->mantissa_bits);
  uint64_t exponent_mask = ((UINT64_C(1) << f->exponent_bits) - 1) << f->mantissa_bits;
  bool is_nan = isnan(eval_load(type, in).re);
  uint64_t result = bits;

  if (mantissa_bits < f->mantissa_bits) {
    uint64_t last = UINT64_C(1) << (f->mantissa_bits - mantissa_bits);
    uint64_t bias = (last >> 1) - 1 + ((result & last) != 0);
    result = (result + bias) & ~(last - 1);
  }
  if (exponent_bits < f->exponent_bits) {
    int64_t reduced_bias = (INT64_C(1) << (exponent_bits - 1)) - 1;
    int64_t exponent = (int64_t)((result & exponent_mask) >> f->mantissa_bits) - f->bias;
    if (exponent > reduced_bias) result = (bits & sign_bit) | exponent_mask;
    else if (exponent <= -reduced_bias) result = bits & sign_bit;
  }
  /* with no mantissa bit left for NaN the result is infinity, as in XLA */
  if (is_nan) result = mantissa_bits > 0 ? bits : exponent_mask;
  if (own != type) result = weft_float_encode_f64(type, weft_float_decode_f64(own, result));
  memcpy(out, &result, weft_dtype_bytes(type));
}

/* Rounds away from zero if the random number is below the part of x that is cut off, as a fraction of the random
 * type's range. */
static eval_scalar stochastic_convert(weft_dtype random_type, weft_dtype to, double x, uint64_t random)
{
  double magnitude = fabs(x), threshold, low, high;
  int digits = weft_dtype_bits(random_type);
  eval_scalar out = {.im = 0};

  if (weft_dtype_is_integer(to)) {
    if (!isfinite(x)) return float_to_integer(to, x);
    threshold = floor(ldexp(magnitude - trunc(magnitude), digits));
    return float_to_integer(to, trunc(x) + ((double)random < threshold ? copysign(1, x) : 0));
  }
  /* For floats: low and high are the neighbours of the magnitude in the narrower type. */
  out.re = x;
  if (!isfinite(x)) return out;
  uint64_t bits = weft_float_encode_f64(to, magnitude);
  low = weft_float_decode_f64(to, bits);
  if (low > magnitude) low = weft_float_decode_f64(to, --bits);
  high = weft_float_decode_f64(to, bits + 1);
  if (low != magnitude && isfinite(high)) {
    threshold = ldexp((magnitude - low) / (high - low), digits);
    magnitude = (double)random < floor(threshold) ? high : low;
  }
  out.re = copysign(magnitude, x);
  return out;
}

/* ---- dispatch ---------------------------------------------------------------------------------------------------- */

/* Shape inference accepts the remainder of complex numbers, as XLA does, but the operation has no meaning. */
bool eval_elem_exists(hlo_opcode op, weft_dtype type)
{
  return hlo_opcode_is_elementwise(op) && hlo_opcode_takes(op, type) &&
         !(op == HLO_REMAINDER && weft_dtype_is_complex(type));
}

void eval_elem_apply(const hlo_instr *instr, const void *const *in, void *out)
{
  weft_dtype type = instr->operands[0]->shape->type, to = instr->shape->type;
  eval_scalar x, y = {.im = 0};

  switch (instr->op) { /* operations on bits or on mixed types */
  case HLO_COPY: memcpy(out, in[0], weft_dtype_bytes(to)); return;
  case HLO_SELECT: memcpy(out, in[*(const uint8_t *)in[0] ? 1 : 2], weft_dtype_bytes(to)); return;
  case HLO_COMPARE: *(uint8_t *)out = compare(instr, type, in); return;
  case HLO_REDUCE_PRECISION: reduce_precision(instr, type, in[0], out); return;
  case HLO_CLAMP:
    x = binary(HLO_MAXIMUM, type, eval_load(type, in[1]), eval_load(type, in[0]));
    eval_store(to, out, binary(HLO_MINIMUM, type, x, eval_load(type, in[2])));
    return;
  default: break;
  }
  x = eval_load(type, in[0]);
  switch (instr->op) {
  case HLO_CONVERT: x = eval_convert(type, to, x); break;
  case HLO_IS_FINITE: x.s = isfinite(x.re) != 0; break;
  case HLO_REAL: break;
  case HLO_IMAG: x.re = weft_dtype_is_complex(type) ? x.im : 0; break;
  case HLO_COMPLEX: x.im = eval_load(type, in[1]).re; break;
  case HLO_STOCHASTIC_CONVERT: {
    weft_dtype random_type = instr->operands[1]->shape->type;
    x = stochastic_convert(random_type, to, x.re, eval_load(random_type, in[1]).u);
    break;
  }
  default:
    if (instr->operand_count == 2) x = binary(instr->op, type, x, eval_load(type, in[1]));
    else if (weft_dtype_is_complex(type)) x = eval_complex_unary(instr->op, x);
    else x = binary(instr->op, type, x, y);
    if (to == WEFT_F8E8M0FNU) x.re = (float)x.re; /* f32 rounds tiny results to 0, which the type cannot represent */
  }
  eval_store(to, out, x);
}

weft_status *eval_elementwise(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                              const hlo_literal **out)
{
  hlo_literal *result;
  const char *in[3];
  int64_t step[3], out_step = (int64_t)weft_dtype_bytes(instr->shape->type), count;
  weft_dtype type = operands[0]->shape->type;

  if (!eval_elem_exists(instr->op, instr->op == HLO_SELECT ? operands[1]->shape->type : type))
    return WEFT_ERR(INVALID_ARGUMENT, "%s of %s does not exist", hlo_opcode_name(instr->op), weft_dtype_name(type));
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  count = hlo_shape_elems(result->shape);
  for (int i = 0; i < instr->operand_count; i++) { /* clamp and select take scalars next to arrays */
    in[i] = operands[i]->data;
    step[i] = hlo_shape_is_scalar(operands[i]->shape) ? 0 : (int64_t)weft_dtype_bytes(operands[i]->shape->type);
    if (step[i] && !hlo_shape_same_dims(operands[i]->shape, result->shape))
      return WEFT_ERR(INVALID_ARGUMENT, "operand %d of %s has other dimensions than the result", i, instr->name);
  }
  for (int64_t k = 0; k < count; k++) {
    const void *at[3] = {NULL};
    for (int i = 0; i < instr->operand_count; i++) at[i] = in[i] + k * step[i];
    eval_elem_apply(instr, at, (char *)result->data + k * out_step);
  }
  *out = result;
  return NULL;
}

/* ---- bitcast-convert --------------------------------------------------------------------------------------------- */

/* Read and write the bits of one element, without the unused high bits of its bytes. */
static uint64_t get_lane(weft_dtype type, const hlo_literal *lit, int64_t element)
{
  return low_bits(load_bits(type, eval_at(lit, element)), weft_dtype_bits(type));
}
static void set_lane(weft_dtype type, hlo_literal *lit, int64_t element, uint64_t bits)
{
  if (type == WEFT_PRED) bits = bits != 0;
  if (weft_dtype_is_signed(type)) bits = (uint64_t)sign_extend(bits, weft_dtype_bits(type));
  memcpy(eval_at(lit, element), &bits, weft_dtype_bytes(type));
}

/* The same bits as another type.  Wide elements are split into a minor dimension of narrow ones, or put together
 * from it, the low part first.  The widths of both types are powers of two, or equal. */
weft_status *eval_bitcast_convert(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                  const hlo_literal **out)
{
  const hlo_literal *in = operands[0];
  weft_dtype from = in->shape->type, to = instr->shape->type;
  int from_bits = weft_dtype_bits(from), to_bits = weft_dtype_bits(to);
  hlo_literal *result;

  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  int64_t from_count = hlo_shape_elems(in->shape), to_count = hlo_shape_elems(result->shape);
  if (from_count * from_bits != to_count * to_bits)
    return WEFT_ERR(INVALID_ARGUMENT, "bitcast-convert %s: sizes in bits differ", instr->name);
  if (from_bits >= 8 && to_bits >= 8 && from_bits % 8 == 0 && to_bits % 8 == 0 && to != WEFT_PRED) {
    memcpy(result->data, in->data, (size_t)hlo_shape_bytes(result->shape));
  } else if (from_bits <= to_bits) {
    int parts = to_bits / from_bits;
    for (int64_t k = 0; k < to_count; k++) {
      uint64_t bits = 0;
      for (int p = 0; p < parts; p++) bits |= get_lane(from, in, k * parts + p) << (p * from_bits);
      set_lane(to, result, k, bits);
    }
  } else {
    int parts = from_bits / to_bits;
    for (int64_t k = 0; k < from_count; k++) {
      uint64_t bits = get_lane(from, in, k);
      for (int p = 0; p < parts; p++) set_lane(to, result, k * parts + p, low_bits(bits >> (p * to_bits), to_bits));
    }
  }
  *out = result;
  return NULL;
}
