/* codegen/emit/elementwise.c -- one elementwise operation on values in registers, with XLA's
 * semantics for the corner cases: integer division by zero, shifts past the width, saturating
 * conversions, NaN through max and min, total order. */
#include <config.h>

#include "codegen/emit/emit.h"

#include <math.h>

#include "base/swap.h"

weft_status *gen_unimplemented(gen_emit *e, const hlo_instr *instr, const char *what)
{
  char where[160];

  (void)e;
  return WEFT_ERR(UNIMPLEMENTED, "codegen: %s of %s is not supported%s%s (%s)", hlo_opcode_name(instr->op),
                  weft_dtype_name(instr->operand_count ? instr->operands[0]->shape->type : instr->shape->type),
                  what ? ": " : "", what ? what : "", hlo_describe(instr, where, sizeof where));
}

/* ---- integers -------------------------------------------------------------------------------------------------- */

static gen_ssa int_divide(gen_emit *e, bool is_signed, bool remainder, gen_ssa a, gen_ssa b)
{
  gen_unify(e, &a, &b);
  gen_ssa by_zero = gen_icmp(e, LLVMIntEQ, b, gen_i(b, 0)), unsafe = by_zero;
  unsigned bits = LLVMGetIntTypeWidth(gen_scalar_type(a));

  if (is_signed) { /* the least value over -1 overflows: the quotient is the least value, the remainder 0 */
    gen_ssa least = gen_icmp(e, LLVMIntEQ, a, gen_i(a, (int64_t)(UINT64_C(1) << (bits - 1))));
    gen_ssa overflow = gen_bin(e, LLVMAnd, least, gen_icmp(e, LLVMIntEQ, b, gen_i(b, -1)));
    unsafe = gen_bin(e, LLVMOr, by_zero, overflow);
  }
  gen_ssa safe = gen_select(e, unsafe, gen_i(b, 1), b), r;
  /* there is no vector division; f64 quotients of 32-bit integers truncate exactly */
  if (gen_is_vector(a) && bits <= 32) {
    LLVMOpcode to = is_signed ? LLVMSIToFP : LLVMUIToFP, back = is_signed ? LLVMFPToSI : LLVMFPToUI;
    gen_ssa q = gen_bin(e, LLVMFDiv, gen_cast(e, to, a, e->part->f64), gen_cast(e, to, safe, e->part->f64));
    r = gen_cast(e, back, q, gen_scalar_type(a));
    if (remainder) r = gen_bin(e, LLVMSub, a, gen_bin(e, LLVMMul, r, safe));
  } else {
    r = gen_bin(e, remainder ? is_signed ? LLVMSRem : LLVMURem : is_signed ? LLVMSDiv : LLVMUDiv, a, safe);
  }
  return gen_select(e, by_zero, remainder ? a : gen_i(a, -1), r);
}

static gen_ssa int_power(gen_emit *e, bool is_signed, gen_ssa base, gen_ssa exponent)
{
  gen_unify(e, &base, &exponent);
  unsigned bits = LLVMGetIntTypeWidth(gen_scalar_type(base));
  gen_ssa result = gen_i(base, 1), square = base;

  for (unsigned i = 0; i < bits; i++) {
    gen_ssa bit = gen_bin(e, LLVMAnd, gen_bin(e, LLVMLShr, exponent, gen_i(base, i)), gen_i(base, 1));
    gen_ssa set = gen_icmp(e, LLVMIntNE, bit, gen_i(base, 0));
    result = gen_select(e, set, gen_bin(e, LLVMMul, result, square), result);
    if (i + 1 < bits) square = gen_bin(e, LLVMMul, square, square);
  }
  if (!is_signed) return result;
  gen_ssa odd = gen_icmp(e, LLVMIntNE, gen_bin(e, LLVMAnd, exponent, gen_i(base, 1)), gen_i(base, 0));
  gen_ssa minus_one = gen_select(e, odd, gen_i(base, -1), gen_i(base, 1));
  gen_ssa inverse = gen_select(e, gen_icmp(e, LLVMIntEQ, base, gen_i(base, -1)), minus_one, gen_i(base, 0));
  inverse = gen_select(e, gen_icmp(e, LLVMIntEQ, base, gen_i(base, 1)), gen_i(base, 1), inverse);
  return gen_select(e, gen_icmp(e, LLVMIntSLT, exponent, gen_i(base, 0)), inverse, result);
}

static gen_ssa low_bits(gen_emit *e, weft_dtype type, gen_ssa v)
{
  int bits = weft_dtype_bits(type);
  return bits < 8 ? gen_bin(e, LLVMAnd, v, gen_i(v, (1 << bits) - 1)) : v;
}

static gen_ssa shift(gen_emit *e, hlo_opcode op, weft_dtype type, gen_ssa a, gen_ssa b)
{
  int bits = type == WEFT_PRED ? 1 : weft_dtype_bits(type);
  gen_unify(e, &a, &b);
  gen_ssa in_range = gen_icmp(e, LLVMIntULT, b, gen_i(b, bits)), zero = gen_i(a, 0);

  if (op == HLO_SHIFT_RIGHT_ARITHMETIC && bits < 8) /* the sign is the type's top bit, for unsigned types too */
    a = gen_bin(e, LLVMAShr, gen_bin(e, LLVMShl, a, gen_i(a, 8 - bits)), gen_i(a, 8 - bits));
  if (op == HLO_SHIFT_RIGHT_ARITHMETIC) return gen_bin(e, LLVMAShr, a, gen_select(e, in_range, b, gen_i(b, bits - 1)));
  gen_ssa amount = gen_select(e, in_range, b, gen_i(b, 0));
  gen_ssa r = op == HLO_SHIFT_LEFT ? gen_bin(e, LLVMShl, a, amount)
                                   : gen_bin(e, LLVMLShr, low_bits(e, type, a), amount);
  return gen_select(e, in_range, r, zero);
}

static gen_ssa flagged_intrinsic(gen_emit *e, const char *name, gen_ssa a)
{
  return gen_intrinsic(e, name, 2, (gen_ssa[]){a, LLVMConstInt(e->part->i1, 0, 0)});
}

static gen_ssa int_op(gen_emit *e, hlo_opcode op, weft_dtype type, gen_ssa a, gen_ssa b, gen_ssa c)
{
  bool is_signed = weft_dtype_is_signed(type), is_pred = type == WEFT_PRED;
  int bits = weft_dtype_bits(type);
  LLVMTypeRef t = gen_scalar_type(a);

  switch (op) {
  case HLO_ADD: return gen_bin(e, is_pred ? LLVMOr : LLVMAdd, a, b);
  case HLO_SUBTRACT: return gen_bin(e, is_pred ? LLVMXor : LLVMSub, a, b);
  case HLO_MULTIPLY: return gen_bin(e, is_pred ? LLVMAnd : LLVMMul, a, b);
  case HLO_AND: return gen_bin(e, LLVMAnd, a, b);
  case HLO_OR: return gen_bin(e, LLVMOr, a, b);
  case HLO_XOR: return gen_bin(e, LLVMXor, a, b);
  case HLO_NOT: return gen_bin(e, LLVMXor, a, gen_i(a, -1));
  case HLO_NEGATE: return gen_bin(e, LLVMSub, gen_i(a, 0), a);
  case HLO_ABS: return is_signed ? flagged_intrinsic(e, "llvm.abs", a) : a;
  case HLO_SIGN:
    if (!is_signed) return gen_cast(e, LLVMZExt, gen_icmp(e, LLVMIntNE, a, gen_i(a, 0)), t);
    return gen_bin(e, LLVMOr, gen_bin(e, LLVMAShr, a, gen_i(a, (int64_t)LLVMGetIntTypeWidth(t) - 1)),
                   gen_cast(e, LLVMZExt, gen_icmp(e, LLVMIntNE, a, gen_i(a, 0)), t));
  case HLO_DIVIDE: return is_pred ? a : int_divide(e, is_signed, false, a, b);
  case HLO_REMAINDER: return is_pred ? gen_i(a, 0) : int_divide(e, is_signed, true, a, b);
  case HLO_POWER: return int_power(e, is_signed, a, b);
  case HLO_MAXIMUM:
    return is_pred ? gen_bin(e, LLVMOr, a, b) : gen_intrinsic2(e, is_signed ? "llvm.smax" : "llvm.umax", a, b);
  case HLO_MINIMUM:
    return is_pred ? gen_bin(e, LLVMAnd, a, b) : gen_intrinsic2(e, is_signed ? "llvm.smin" : "llvm.umin", a, b);
  case HLO_CLAMP: return int_op(e, HLO_MINIMUM, type, int_op(e, HLO_MAXIMUM, type, b, a, NULL), c, NULL);
  case HLO_SHIFT_LEFT: case HLO_SHIFT_RIGHT_ARITHMETIC: case HLO_SHIFT_RIGHT_LOGICAL: return shift(e, op, type, a, b);
  case HLO_POPCNT: return gen_intrinsic1(e, "llvm.ctpop", low_bits(e, type, a));
  case HLO_CLZ: {
    gen_ssa r = flagged_intrinsic(e, "llvm.ctlz", low_bits(e, type, a));
    return bits < 8 ? gen_bin(e, LLVMSub, r, gen_i(r, 8 - bits)) : r;
  }
  case HLO_MULHI: {
    LLVMTypeRef wide = LLVMIntTypeInContext(e->part->ctx, (unsigned)WEFT_MAX(2 * bits, 16));
    LLVMOpcode extend = is_signed ? LLVMSExt : LLVMZExt;
    gen_ssa product = gen_bin(e, LLVMMul, gen_cast(e, extend, a, wide), gen_cast(e, extend, b, wide));
    return gen_cast(e, LLVMTrunc, gen_bin(e, LLVMLShr, product, gen_i(product, bits)), t);
  }
  default: return NULL;
  }
}

/* ---- floats ---------------------------------------------------------------------------------------------------- */

static bool is_false(gen_ssa v) { return LLVMIsConstant(v) && LLVMIsNull(v); }

gen_ssa gen_max(gen_emit *e, weft_dtype type, bool min, gen_ssa a, gen_ssa b)
{
  if (!weft_dtype_is_float(type)) return int_op(e, min ? HLO_MINIMUM : HLO_MAXIMUM, type, a, b, NULL);
  if (is_false(gen_fcmp(e, LLVMRealUNO, a, a))) WEFT_SWAP(a, b);
  /* If b is a constant other than NaN, one comparison decides. Whether `a` wins when they are equal matters where
   * one is 0 and the other -0. */
  if (is_false(gen_fcmp(e, LLVMRealUNO, b, b))) {
    bool is_zero = LLVMIsNull(b);
    LLVMRealPredicate wins = min ? (is_zero ? LLVMRealULE : LLVMRealULT) : is_zero ? LLVMRealUGT : LLVMRealUGE;
    return gen_select(e, gen_fcmp(e, wins, a, b), a, b);
  }
  /* LLVM would narrow the extremum of two converted halves to an extremum of halves. A machine that can only convert
   * halves does that lane by lane, with a wrong result if one of them is NaN (LLVM 19, AVX-512 without FP16). */
  if (e->part->target->has_f16c && !e->part->target->has_f16 && gen_scalar_type(a) == e->part->f32)
    a = gen_intrinsic1(e, "llvm.arithmetic.fence", a);
  return gen_intrinsic2(e, min ? "llvm.minimum" : "llvm.maximum", a, b);
}

/* True for a sum whose last operand is a coefficient, which step_of_polynomial may have made. */
static bool is_part_of_polynomial(gen_ssa v)
{
  gen_ssa added = gen_operand_of(v, LLVMFAdd, 1);
  if (!added && LLVMIsACallInst(v) && LLVMGetNumArgOperands(v) == 3) added = LLVMGetOperand(v, 2);
  return added && LLVMIsConstant(added);
}

/* p x + c, or c - p x, as one instruction if that is a step of Horner's scheme: p (or x) is such a part and c anything,
 * as in x + x p(x), or p is a coefficient and c another one. Else NULL. Rounding once instead of twice only brings the
 * result nearer. */
static gen_ssa step_of_polynomial(gen_emit *e, gen_ssa product, gen_ssa c, bool minus)
{
  gen_ssa p = gen_operand_of(product, LLVMFMul, 0), x = gen_operand_of(product, LLVMFMul, 1);

  if (!p) return NULL;
  bool first = LLVMIsConstant(c) && (LLVMIsConstant(p) || LLVMIsConstant(x));
  if (!first && !is_part_of_polynomial(p) && !is_part_of_polynomial(x)) return NULL;
  return gen_fma(e, minus ? LLVMBuildFNeg(e->b, p, "") : p, x, c);
}

static gen_ssa float_add(gen_emit *e, gen_ssa a, gen_ssa b)
{
  gen_unify(e, &a, &b);
  gen_ssa step = step_of_polynomial(e, a, b, false);
  if (!step) step = step_of_polynomial(e, b, a, false);
  return step ? step : gen_bin(e, LLVMFAdd, a, b);
}

static gen_ssa float_subtract(gen_emit *e, gen_ssa a, gen_ssa b)
{
  gen_unify(e, &a, &b);
  gen_ssa step = step_of_polynomial(e, b, a, true);
  if (!step && gen_operand_of(a, LLVMFMul, 0)) step = step_of_polynomial(e, a, LLVMBuildFNeg(e->b, b, ""), false);
  return step ? step : gen_bin(e, LLVMFSub, a, b);
}

/* a / b where all lanes have one divisor, in the bits of the division. If y is 1 / b rounded, q is within one ULP of
 * the quotient and r is its exact remainder, then q + r y rounds as a / b does (Markstein). Operands are taken for
 * which neither remainder nor quotient is denormal, and +0. LLVM computes y once where b is the same in all rounds. */
static gen_ssa divide_by_one(gen_emit *e, gen_ssa a, gen_ssa b)
{
  enum { LEAST_A = (127 - 76) << 23, END_A = (127 + 76) << 23, LEAST_B = (127 - 30) << 23, END_B = (127 + 30) << 23 };
  LLVMBasicBlockRef from[2];
  gen_ssa r[2], bits = gen_cast(e, LLVMBitCast, a, e->part->i32),
                size = gen_bin(e, LLVMAnd, bits, gen_i(bits, INT32_MAX));
  gen_ssa within =
    gen_icmp(e, LLVMIntULT, gen_bin(e, LLVMSub, size, gen_i(size, LEAST_A)), gen_i(size, END_A - LEAST_A));
  gen_ssa divisor = gen_cast(e, LLVMBitCast, b, e->part->i32);
  gen_if block;

  divisor = gen_bin(e, LLVMSub, gen_bin(e, LLVMAnd, divisor, gen_i(divisor, INT32_MAX)), gen_i(divisor, LEAST_B));
  within = gen_bin(e, LLVMOr, within, gen_icmp(e, LLVMIntEQ, bits, gen_i(bits, 0)));
  within = gen_bin(e, LLVMAnd, gen_intrinsic1(e, "llvm.vector.reduce.and", within),
                   gen_icmp(e, LLVMIntULT, divisor, gen_i(divisor, END_B - LEAST_B)));
  gen_ssa y = gen_bin(e, LLVMFDiv, gen_f(b, 1), b), minus = LLVMBuildFNeg(e->b, b, "");
  gen_if_begin(e, &block, within);
  r[0] = gen_bin(e, LLVMFMul, a, y);
  for (int i = 0; i < 2; i++) r[0] = gen_fma(e, gen_fma(e, r[0], minus, a), y, r[0]);
  from[0] = LLVMGetInsertBlock(e->b);
  gen_if_else(e, &block);
  r[1] = gen_bin(e, LLVMFDiv, a, b);
  from[1] = LLVMGetInsertBlock(e->b);
  gen_if_end(e, &block);
  gen_ssa phi = LLVMBuildPhi(e->b, LLVMTypeOf(a), "");
  LLVMAddIncoming(phi, r, from, 2);
  return phi;
}

/* 1 / divisor as high + low, if a * high + (a * low), with both sums and products rounded, is the quotient
 * a / divisor in all its bits for every a of at least 2^-63 and for zeros, infinities and NaN; else false. Both parts
 * have the divisor's sign, so that an infinity meets no other one.
 *
 * The sum before it is rounded is within 2^-46.9 of a / divisor, for both numbers in [1, 2). It can be rounded
 * otherwise than the quotient only where a number in the middle of two floats is that near: m with
 * |a 2^s - m divisor| <= 4 as integers of 24 bits (m: 25), s being 24 where the quotient is 1 or more, 25 where it is
 * less. There are a few such a for each divisor, which are tried (after Brisebarre, Muller and Raina, "Accelerating
 * correctly rounded floating-point division when the divisor is known in advance", 2004). */
static bool parts_of_inverse(double divisor, float *high, float *low)
{
  enum { BITS = 24, NEAR = 4 };
  double b = fabs(divisor), inverse = 1 / b;
  int exponent, zeros;

  if (!(b >= 0x1p-30 && b <= 0x1p30)) return false;
  *high = (float)inverse;
  if (*high > inverse) *high = nextafterf(*high, 0);
  *low = (float)(inverse - *high);
  if (*low == 0) return false; /* a power of two: LLVM multiplies */
  int64_t whole = (int64_t)ldexp(frexp(b, &exponent), BITS), odd = whole;
  for (zeros = 0; odd % 2 == 0; zeros++) odd /= 2;
  for (int s = BITS; s <= BITS + 1; s++)
    for (int64_t delta = -NEAR; delta <= NEAR; delta++) {
      if (delta == 0 || delta % (INT64_C(1) << zeros) != 0) continue;
      uint64_t mask = (UINT64_C(1) << (s - zeros)) - 1, inverse_of_odd = 1;
      for (int i = 0; i < 5; i++) inverse_of_odd *= 2 - (uint64_t)odd * inverse_of_odd; /* modulo 2^32, Newton */
      uint64_t first = (uint64_t)-(delta >> zeros) * inverse_of_odd & mask;
      for (uint64_t m = first; m < UINT64_C(1) << (BITS + 1); m += mask + 1) {
        int64_t a = ((int64_t)m * whole + delta) >> s;
        if (m < UINT64_C(1) << BITS || a < INT64_C(1) << (BITS - 1) || a >= INT64_C(1) << BITS) continue;
        float x = (float)a, product = x * *low;
        if (fmaf(x, *high, product) != (float)(x / (float)b)) return false;
      }
    }
  *high = copysignf(*high, (float)divisor);
  *low = copysignf(*low, (float)divisor);
  return true;
}

/* a / b for a constant b, in the bits of the division; NULL where that takes more than two products. */
static gen_ssa divide_by_constant(gen_emit *e, gen_ssa a, gen_ssa b)
{
  LLVMBool loses;
  float high, low;
  gen_rare rare;

  if (!LLVMIsAConstantFP(b) || !parts_of_inverse(LLVMConstRealGetDouble(b, &loses), &high, &low)) return NULL;
  gen_ssa quotient = gen_fma(e, a, gen_f(a, high), gen_bin(e, LLVMFMul, a, gen_f(a, low)));
  /* below 2^-63; that zeros are divided, too, saves two instructions */
  gen_ssa bits = gen_cast(e, LLVMBitCast, a, e->part->i32),
          high_bits = gen_bin(e, LLVMAnd, bits, gen_i(bits, 0x60000000));
  gen_rare_begin(e, &rare, gen_icmp(e, LLVMIntEQ, high_bits, gen_i(high_bits, 0)));
  return gen_rare_end(e, &rare, quotient, gen_bin(e, LLVMFDiv, a, b));
}

static gen_ssa divide(gen_emit *e, gen_ssa a, gen_ssa b)
{
  bool one = e->part->target->has_avx512 && e->part->target->has_fma && gen_is_vector(a) && !gen_is_vector(b) &&
             gen_scalar_type(a) == e->part->f32;
  gen_ssa quotient = one ? divide_by_constant(e, a, b) : NULL;

  if (quotient) return quotient;
  return one ? divide_by_one(e, a, b) : gen_bin(e, LLVMFDiv, a, b);
}

static gen_ssa float_op(gen_emit *e, hlo_opcode op, gen_ssa a, gen_ssa b, gen_ssa c)
{
  switch (op) {
  case HLO_ADD: return float_add(e, a, b);
  case HLO_SUBTRACT: return float_subtract(e, a, b);
  case HLO_MULTIPLY: return gen_bin(e, LLVMFMul, a, b);
  case HLO_DIVIDE: return divide(e, a, b);
  case HLO_REMAINDER: return gen_remainder(e, a, b);
  case HLO_NEGATE: return LLVMBuildFNeg(e->b, a, "");
  case HLO_ABS: return gen_intrinsic1(e, "llvm.fabs", a);
  case HLO_MAXIMUM: return gen_max(e, WEFT_F32, false, a, b);
  case HLO_MINIMUM: return gen_max(e, WEFT_F32, true, a, b);
  case HLO_CLAMP: return gen_max(e, WEFT_F32, true, gen_max(e, WEFT_F32, false, b, a), c);
  case HLO_FLOOR: return gen_intrinsic1(e, "llvm.floor", a);
  case HLO_CEIL: return gen_intrinsic1(e, "llvm.ceil", a);
  case HLO_ROUND_EVEN: return gen_intrinsic1(e, "llvm.roundeven", a);
  case HLO_ROUND_AFZ: return gen_intrinsic1(e, "llvm.round", a);
  case HLO_SQRT: return gen_intrinsic1(e, "llvm.sqrt", a);
  case HLO_SIGN: {
    gen_ssa keep = gen_fcmp(e, LLVMRealUEQ, a, gen_f(a, 0));
    return gen_select(e, keep, a, gen_intrinsic2(e, "llvm.copysign", gen_f(a, 1), a));
  }
  default: return hlo_opcode_is_transcendental(op) ? gen_math(e, op, a, b) : NULL;
  }
}

static gen_value complex_op(gen_emit *e, hlo_opcode op, gen_value a, gen_value b, gen_value c, bool *known)
{
  gen_value r = {0};

  *known = true;
  switch (op) {
  case HLO_ADD: return (gen_value){gen_bin(e, LLVMFAdd, a.re, b.re), gen_bin(e, LLVMFAdd, a.im, b.im)};
  case HLO_SUBTRACT: return (gen_value){gen_bin(e, LLVMFSub, a.re, b.re), gen_bin(e, LLVMFSub, a.im, b.im)};
  case HLO_MULTIPLY: return gen_complex_mul(e, a, b);
  case HLO_DIVIDE: return gen_complex_div(e, a, b);
  case HLO_NEGATE: return (gen_value){LLVMBuildFNeg(e->b, a.re, ""), LLVMBuildFNeg(e->b, a.im, "")};
  case HLO_CLAMP:
    gen_complex_math(e, HLO_MAXIMUM, b, a, &r);
    gen_complex_math(e, HLO_MINIMUM, r, c, &r);
    return r;
  default: *known = gen_complex_math(e, op, a, b, &r); return r;
  }
}

/* ---- comparison ------------------------------------------------------------------------------------------------ */

static gen_ssa total_order_key(gen_emit *e, gen_ssa v)
{
  bool is_f64 = gen_scalar_type(v) == e->part->f64;
  gen_ssa x = gen_cast(e, LLVMBitCast, v, is_f64 ? e->part->i64 : e->part->i32);
  gen_ssa fill = gen_bin(e, LLVMAShr, x, gen_i(x, is_f64 ? 63 : 31));

  return gen_bin(e, LLVMXor, x, gen_bin(e, LLVMLShr, fill, gen_i(x, 1)));
}

static gen_ssa compare(gen_emit *e, const hlo_instr *instr, gen_value a, gen_value b)
{
  static const LLVMRealPredicate real[] = {[HLO_EQ] = LLVMRealOEQ, [HLO_NE] = LLVMRealUNE, [HLO_GE] = LLVMRealOGE,
                                           [HLO_GT] = LLVMRealOGT, [HLO_LE] = LLVMRealOLE, [HLO_LT] = LLVMRealOLT};
  static const LLVMIntPredicate sint[] = {[HLO_EQ] = LLVMIntEQ, [HLO_NE] = LLVMIntNE, [HLO_GE] = LLVMIntSGE,
                                          [HLO_GT] = LLVMIntSGT, [HLO_LE] = LLVMIntSLE, [HLO_LT] = LLVMIntSLT};
  static const LLVMIntPredicate uint[] = {[HLO_EQ] = LLVMIntEQ, [HLO_NE] = LLVMIntNE, [HLO_GE] = LLVMIntUGE,
                                          [HLO_GT] = LLVMIntUGT, [HLO_LE] = LLVMIntULE, [HLO_LT] = LLVMIntULT};
  weft_dtype type = instr->operands[0]->shape->type;
  hlo_direction dir = instr->u.compare.direction;

  if (weft_dtype_is_complex(type)) {
    gen_ssa re = gen_fcmp(e, real[dir], a.re, b.re), im = gen_fcmp(e, real[dir], a.im, b.im);
    return gen_bin(e, dir == HLO_NE ? LLVMOr : LLVMAnd, re, im);
  }
  if (weft_dtype_is_float(type)) {
    if (instr->u.compare.type != HLO_COMPARE_TOTALORDER) return gen_fcmp(e, real[dir], a.re, b.re);
    return gen_icmp(e, sint[dir], total_order_key(e, a.re), total_order_key(e, b.re));
  }
  return gen_icmp(e, weft_dtype_is_signed(type) ? sint[dir] : uint[dir], a.re, b.re);
}

/* ---- conversion ------------------------------------------------------------------------------------------------ */

static bool is_narrow_float(weft_dtype type)
{
  return weft_dtype_is_float(type) && type != WEFT_F32 && type != WEFT_F64;
}

/* Saturates; NaN becomes 0. LLVM's saturating conversions would be slower: LLVM takes those of vectors apart, lane
 * by lane. */
static gen_ssa float_to_int(gen_emit *e, weft_dtype to, gen_ssa v)
{
  bool is_signed = weft_dtype_is_signed(to);
  int bits = weft_dtype_bits(to), magnitude = is_signed ? bits - 1 : bits,
      digits = gen_scalar_type(v) == e->part->f64 ? 53 : 24;
  double limit = ldexp(1, magnitude);
  gen_ssa low = gen_f(v, is_signed ? -limit : 0);
  gen_ssa high =
    gen_f(v, limit - ldexp(1, WEFT_MAX(0, magnitude - digits))); /* the last float below the limit, or integer */
  gen_ssa nan = gen_fcmp(e, LLVMRealUNO, v, v), above = gen_fcmp(e, LLVMRealOGT, v, high);
  LLVMTypeRef type = gen_register_type(e->part, to);

  v = gen_select(e, gen_fcmp(e, LLVMRealOLT, v, low), low, v);
  v = gen_select(e, above, high, v);
  v = gen_select(e, nan, gen_f(v, 0), v);
  if (bits <= 16) return gen_cast(e, LLVMTrunc, gen_cast(e, LLVMFPToSI, v, e->part->i32), type);
  v = gen_cast(e, is_signed ? LLVMFPToSI : LLVMFPToUI, v, type);
  return gen_select(e, above, gen_i(v, (int64_t)(~UINT64_C(0) >> (64 - magnitude))), v);
}

static gen_ssa convert_real(gen_emit *e, weft_dtype from, weft_dtype to, gen_ssa v)
{
  LLVMTypeRef t = gen_register_type(e->part, to), own = gen_scalar_type(v);
  bool from_float = weft_dtype_is_float(from), is_signed = weft_dtype_is_signed(from);

  if (to == WEFT_PRED)
    return from == WEFT_PRED ? v
           : from_float      ? gen_fcmp(e, LLVMRealUNE, v, gen_f(v, 0))
                             : gen_icmp(e, LLVMIntNE, v, gen_i(v, 0));
  if (weft_dtype_is_integer(to)) {
    if (from_float) return float_to_int(e, to, v);
    unsigned have = LLVMGetIntTypeWidth(own), want = LLVMGetIntTypeWidth(t);
    if (have != want) v = gen_cast(e, have > want ? LLVMTrunc : is_signed ? LLVMSExt : LLVMZExt, v, t);
    return gen_wrap_int(e, to, v);
  }
  if (!from_float) { /* to a narrow float by way of f64, so that it is rounded once */
    LLVMTypeRef via = is_narrow_float(to) && weft_dtype_bits(from) > 16 ? e->part->f64 : t;
    v = gen_cast(e, is_signed ? LLVMSIToFP : LLVMUIToFP, v, via);
  } else if (!is_narrow_float(to) && own != t) {
    v = gen_cast(e, own == e->part->f64 ? LLVMFPTrunc : LLVMFPExt, v, t);
  }
  return is_narrow_float(to) && from != to ? gen_round_to(e, to, v) : v;
}

weft_status *gen_convert(gen_emit *e, weft_dtype from, weft_dtype to, gen_value v, gen_value *out)
{
  weft_dtype from_part = weft_dtype_component(from), to_part = weft_dtype_component(to);

  if (weft_dtype_is_complex(from) && to == WEFT_PRED) {
    gen_ssa re = convert_real(e, from_part, to, v.re), im = convert_real(e, from_part, to, v.im);
    *out = (gen_value){.re = gen_bin(e, LLVMOr, re, im)};
    return NULL;
  }
  *out = (gen_value){.re = convert_real(e, from_part, to_part, v.re)};
  if (weft_dtype_is_complex(to)) out->im = v.im ? convert_real(e, from_part, to_part, v.im) : gen_f(out->re, 0);
  return NULL;
}

/* Works on the type's own bits, and for types that fit into f16 on those of f16, as XLA does: their denormals are
 * not f32's. */
static gen_ssa reduce_precision(gen_emit *e, weft_dtype type, gen_ssa v, int exponent_bits, int mantissa_bits)
{
  gen_part *p = e->part;

  if (!is_narrow_float(type) || type == WEFT_BF16 || type == WEFT_F8E8M0FNU)
    return gen_reduce_precision(e, v, exponent_bits, mantissa_bits);
  gen_ssa half = gen_cast(e, LLVMBitCast, gen_encode_float(e, WEFT_F16, v), LLVMHalfTypeInContext(p->ctx));
  half = gen_reduce_precision(e, half, exponent_bits, mantissa_bits);
  return gen_decode_float(e, WEFT_F16, gen_cast(e, LLVMBitCast, half, p->i16));
}

/* ---- narrow floats kept in f32 --------------------------------------------------------------------------------- */

/* True if a value of narrow type has the precision of its type, although the operations that made it compute in f32. */
static bool is_rounded(const hlo_instr *x)
{
  for (;; x = x->operands[0]) switch (x->op) {
    case HLO_PARAMETER: case HLO_CONSTANT: case HLO_CONVERT: case HLO_GET_TUPLE_ELEMENT: return true;
    case HLO_ABS: case HLO_NEGATE: case HLO_BITCAST: case HLO_BROADCAST: case HLO_COPY: case HLO_DYNAMIC_SLICE: case HLO_GATHER:
    case HLO_RESHAPE: case HLO_REVERSE: case HLO_SLICE: case HLO_TRANSPOSE: break;
    default: return false;
    }
}

/* ---- bf16 ------------------------------------------------------------------------------------------------------- */

/* Do all elements of a row of the quotient have the same divisor? */
static bool is_divided_by_rows(const hlo_instr *instr)
{
  if (instr->op != HLO_DIVIDE || instr->operands[1]->op != HLO_BROADCAST) return false;
  const hlo_instr *divisor = instr->operands[1];
  for (int i = 0; i < divisor->dims.count; i++)
    if (divisor->dims.v[i] == divisor->shape->rank - 1) return false;
  return divisor->shape->rank > 0;
}

/* a / b as the product of a and 1 / b, which LLVM computes once for a row. If a and b have the 8 bits of bf16, their
 * quotient is at least 2^-18 of it away from where rounding to bf16 jumps, and the product's error is at most 2^-23. */
static gen_ssa divide_by_row(gen_emit *e, gen_ssa a, gen_ssa b)
{
  gen_ssa tiny = gen_fcmp(e, LLVMRealOLT, gen_intrinsic1(e, "llvm.fabs", b), gen_f(b, 0x1p-64));
  gen_ssa scale = gen_select(e, tiny, gen_f(b, 0x1p64), gen_f(b, 1)); /* 1 / b itself may be too large */
  gen_ssa inverse = gen_bin(e, LLVMFDiv, gen_f(b, 1), gen_bin(e, LLVMFMul, b, scale));

  /* a denormal a becomes a normal number first; an a that this makes infinite has an infinite quotient */
  return gen_bin(e, LLVMFMul, gen_bin(e, LLVMFMul, a, scale), inverse);
}

/* Is the value only rounded to bf16 or f16? Then an error of one ULP of f32 changes about one result in 2^15, and no
 * result by more than 2^-15 of its own ULP more than rounding does. */
static bool is_only_narrowed(const hlo_instr *x)
{
  if (x->user_count == 0 || x == x->parent->root) return false;
  for (int i = 0; i < x->user_count; i++) {
    const hlo_instr *user = x->users[i];
    bool narrows = user->op == HLO_CONVERT && (user->shape->type == WEFT_BF16 || user->shape->type == WEFT_F16);
    if (!narrows && ((user->op != HLO_RESHAPE && user->op != HLO_BITCAST) || !is_only_narrowed(user))) return false;
  }
  return true;
}

static gen_ssa f32_op(gen_emit *e, const hlo_instr *instr, gen_ssa a, gen_ssa b, gen_ssa c)
{
  bool excess = e->part->options->allow_excess_precision;

  if (excess && is_divided_by_rows(instr) && is_only_narrowed(instr)) return divide_by_row(e, a, b);
  return float_op(e, instr->op, a, b, c);
}

static gen_ssa bf16_op(gen_emit *e, const hlo_instr *instr, gen_ssa a, gen_ssa b, gen_ssa c)
{
  if (instr->op == HLO_EXP) return gen_exp_bf16(e, a);
  if (instr->op == HLO_ERFC) return gen_erfc(e, a, true);
  if ((instr->op == HLO_SIN || instr->op == HLO_COS) && e->part->target->has_fma) return gen_sin_bf16(e, instr->op, a);
  if (is_divided_by_rows(instr)) return divide_by_row(e, a, b);
  return float_op(e, instr->op, a, b, c);
}

/* ---- all of them ----------------------------------------------------------------------------------------------- */

/* Operations for which a missing rounding could change the answer: they jump, look at bits, or pass the value to a
 * wider type. */
static bool sees_rounding(hlo_opcode op)
{
  switch (op) {
  case HLO_BITCAST_CONVERT: case HLO_CEIL: case HLO_COMPARE: case HLO_CONVERT: case HLO_FLOOR: case HLO_IS_FINITE:
  case HLO_REMAINDER: case HLO_ROUND_AFZ: case HLO_ROUND_EVEN: case HLO_SIGN: return true;
  default: return false;
  }
}

static gen_ssa rounded_operand(gen_emit *e, const hlo_instr *instr, int i, gen_ssa v)
{
  weft_dtype type = i < instr->operand_count ? instr->operands[i]->shape->type : WEFT_INVALID;

  if (!weft_dtype_is_float(type) || !is_narrow_float(type) || gen_scalar_type(v) != e->part->f32) return v;
  return is_rounded(instr->operands[i]) ? v : gen_round_to(e, type, v);
}

weft_status *gen_elementwise(gen_emit *e, const hlo_instr *instr, const gen_value *x, gen_value *out)
{
  weft_dtype type = instr->operands[0]->shape->type, result = instr->shape->type;
  gen_value a = x[0], b = instr->operand_count > 1 ? x[1] : (gen_value){0},
            c = instr->operand_count > 2 ? x[2] : (gen_value){0};

  *out = (gen_value){0};
  if (e->part->options->allow_excess_precision && sees_rounding(instr->op)) {
    a.re = rounded_operand(e, instr, 0, a.re);
    b.re = rounded_operand(e, instr, 1, b.re);
  }
  switch (instr->op) {
  case HLO_COPY: case HLO_OPT_BARRIER: case HLO_ADD_DEPENDENCY: *out = a; return NULL;
  case HLO_CONVERT: return gen_convert(e, type, result, a, out);
  case HLO_COMPARE: out->re = compare(e, instr, a, b); return NULL;
  case HLO_SELECT:
    out->re = gen_select(e, a.re, b.re, c.re);
    if (b.im) out->im = gen_select(e, a.re, b.im, c.im);
    return NULL;
  case HLO_REAL: out->re = a.re; return NULL;
  case HLO_IMAG: out->re = a.im ? a.im : gen_f(a.re, 0); return NULL;
  case HLO_COMPLEX: *out = (gen_value){a.re, b.re}; return NULL;
  case HLO_IS_FINITE: {
    gen_ssa abs = gen_intrinsic1(e, "llvm.fabs", a.re);
    out->re = gen_fcmp(e, LLVMRealONE, abs, gen_f(abs, __builtin_inf()));
    return NULL;
  }
  case HLO_REDUCE_PRECISION:
    out->re =
      reduce_precision(e, type, a.re, instr->u.reduce_precision.exponent_bits, instr->u.reduce_precision.mantissa_bits);
    return NULL;
  case HLO_STOCHASTIC_CONVERT: return gen_unimplemented(e, instr, NULL);
  default: break;
  }
  if (weft_dtype_is_complex(type)) {
    bool known;
    *out = complex_op(e, instr->op, a, b, c, &known);
    return known ? NULL : gen_unimplemented(e, instr, NULL);
  }
  if (weft_dtype_is_float(type)) {
    out->re = type == WEFT_BF16  ? bf16_op(e, instr, a.re, b.re, c.re)
              : type == WEFT_F32 ? f32_op(e, instr, a.re, b.re, c.re)
                                 : float_op(e, instr->op, a.re, b.re, c.re);
    if (!out->re) return gen_unimplemented(e, instr, NULL);
    if (is_narrow_float(type) && !e->part->options->allow_excess_precision) out->re = gen_round_to(e, type, out->re);
    return NULL;
  }
  out->re = int_op(e, instr->op, type, a.re, b.re, c.re);
  if (!out->re) return gen_unimplemented(e, instr, NULL);
  out->re = gen_wrap_int(e, type, out->re);
  return NULL;
}
