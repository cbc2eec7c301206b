/* codegen/emit/exact.c -- arithmetic that needs more bits than a float has: the remainder of a division, and the
 * distance of a large number from the nearest multiple of pi/2. Both work on integers, one lane at a time. */
#include <config.h>

#include "codegen/emit/emit.h"

#include <string.h>

static gen_ssa bin(gen_emit *e, LLVMOpcode op, gen_ssa a, gen_ssa b) { return LLVMBuildBinOp(e->b, op, a, b, ""); }
static gen_ssa bin_by(gen_emit *e, LLVMOpcode op, gen_ssa a, int64_t b) { return bin(e, op, a, gen_i(a, b)); }
static gen_ssa slot_of(gen_emit *e, gen_ssa first)
{
  gen_ssa slot = gen_alloca(e, LLVMTypeOf(first), "exact");
  LLVMBuildStore(e->b, first, slot);
  return slot;
}
static gen_ssa get(gen_emit *e, gen_ssa slot) { return LLVMBuildLoad2(e->b, LLVMGetAllocatedType(slot), slot, ""); }
static gen_ssa leading_zeros(gen_emit *e, gen_ssa v)
{
  gen_ssa no_poison = LLVMConstInt(e->part->i1, 0, 0);
  return gen_intrinsic(e, "llvm.ctlz", 2, (gen_ssa[]){v, no_poison});
}

/* ---- remainders ------------------------------------------------------------------------------------------------ */

/* A float type's fields. A step of the remainder shifts by the bits of a 64-bit word that the mantissa does not use. */
typedef struct format {
  int mantissa, exponent_bits;
} format;

/* The magnitude's mantissa with its first bit in place, and its exponent, of a number that may be denormal. */
static void unpack(gen_emit *e, format f, gen_ssa magnitude, gen_ssa *mantissa, gen_ssa *exponent)
{
  int64_t first = INT64_C(1) << f.mantissa;
  gen_ssa field = bin_by(e, LLVMLShr, magnitude, f.mantissa), low = bin_by(e, LLVMAnd, magnitude, first - 1);
  gen_ssa denormal = gen_icmp(e, LLVMIntEQ, field, gen_i64(e, 0));
  gen_ssa shift = bin_by(e, LLVMSub, leading_zeros(e, low), 63 - f.mantissa);

  *mantissa = gen_select(e, denormal, bin(e, LLVMShl, low, shift), bin_by(e, LLVMOr, low, first));
  *exponent = gen_select(e, denormal, bin(e, LLVMSub, gen_i64(e, 1), shift), field);
}

static gen_ssa pack(gen_emit *e, format f, gen_ssa mantissa, gen_ssa exponent)
{
  gen_ssa shift = bin_by(e, LLVMSub, leading_zeros(e, mantissa), 63 - f.mantissa);
  gen_ssa field = bin(e, LLVMSub, exponent, shift), whole = bin(e, LLVMShl, mantissa, shift);
  gen_ssa normal = bin(e, LLVMAdd, whole, bin_by(e, LLVMShl, bin_by(e, LLVMSub, field, 1), f.mantissa));
  gen_ssa below = gen_intrinsic2(e, "llvm.umin", bin(e, LLVMSub, gen_i64(e, 1), field), gen_i64(e, 63));
  gen_ssa denormal = bin(e, LLVMLShr, whole, below);
  gen_ssa v = gen_select(e, gen_icmp(e, LLVMIntSGT, field, gen_i64(e, 0)), normal, denormal);

  return gen_select(e, gen_icmp(e, LLVMIntEQ, mantissa, gen_i64(e, 0)), mantissa, v);
}

/* x % y for mantissas, where x stands `distance` >= 0 bits higher than y. */
static gen_ssa long_division(gen_emit *e, format f, gen_ssa x, gen_ssa y, gen_ssa distance)
{
  gen_ssa rest = slot_of(e, bin(e, LLVMURem, x, y)), left = slot_of(e, distance);
  gen_while digits;

  gen_while_begin(e, &digits);
  gen_ssa more = gen_icmp(e, LLVMIntSGT, get(e, left), gen_i64(e, 0));
  gen_while_test(e, &digits, gen_bin(e, LLVMAnd, more, gen_icmp(e, LLVMIntNE, get(e, rest), gen_i64(e, 0))));
  gen_ssa step = gen_intrinsic2(e, "llvm.smin", get(e, left), gen_i64(e, 63 - f.mantissa));
  LLVMBuildStore(e->b, bin(e, LLVMURem, bin(e, LLVMShl, get(e, rest), step), y), rest);
  LLVMBuildStore(e->b, bin(e, LLVMSub, get(e, left), step), left);
  gen_while_end(e, &digits);
  return get(e, rest);
}

/* a % b as C's fmod has it; a and b are scalars. */
static gen_ssa remainder_of(gen_emit *e, gen_ssa a, gen_ssa b)
{
  bool wide = LLVMTypeOf(a) == e->part->f64;
  format f = wide ? (format){52, 11} : (format){23, 8};
  LLVMTypeRef own = wide ? e->part->i64 : e->part->i32;
  gen_ssa bits[2] = {LLVMBuildBitCast(e->b, a, own, ""), LLVMBuildBitCast(e->b, b, own, "")}, magnitude[2];
  gen_ssa mantissa[2], exponent[2], result = slot_of(e, a);
  int64_t infinity = ((INT64_C(1) << f.exponent_bits) - 1) << f.mantissa;
  gen_if divides, special;

  for (int i = 0; i < 2; i++) {
    if (!wide) bits[i] = LLVMBuildZExt(e->b, bits[i], e->part->i64, "");
    magnitude[i] = bin_by(e, LLVMAnd, bits[i], (int64_t)((UINT64_C(1) << (f.mantissa + f.exponent_bits)) - 1));
  }
  gen_ssa sign = bin(e, LLVMXor, bits[0], magnitude[0]);
  gen_ssa none = gen_icmp(e, LLVMIntEQ, magnitude[1], gen_i64(e, 0));
  none = gen_bin(e, LLVMOr, none, gen_icmp(e, LLVMIntSGE, magnitude[0], gen_i64(e, infinity)));
  none = gen_bin(e, LLVMOr, none, gen_icmp(e, LLVMIntSGT, magnitude[1], gen_i64(e, infinity)));
  gen_ssa smaller = gen_icmp(e, LLVMIntSLT, magnitude[0], magnitude[1]);
  gen_if_begin(e, &divides, LLVMBuildNot(e->b, gen_bin(e, LLVMOr, none, smaller), ""));
  for (int i = 0; i < 2; i++) unpack(e, f, magnitude[i], &mantissa[i], &exponent[i]);
  gen_ssa rest = long_division(e, f, mantissa[0], mantissa[1], bin(e, LLVMSub, exponent[0], exponent[1]));
  gen_ssa packed = bin(e, LLVMOr, pack(e, f, rest, exponent[1]), sign);
  if (!wide) packed = LLVMBuildTrunc(e->b, packed, own, "");
  LLVMBuildStore(e->b, LLVMBuildBitCast(e->b, packed, LLVMTypeOf(a), ""), result);
  gen_if_end(e, &divides);
  gen_if_begin(e, &special, none);
  LLVMBuildStore(e->b, gen_f(a, __builtin_nan("")), result);
  gen_if_end(e, &special);
  return get(e, result);
}

gen_ssa gen_remainder(gen_emit *e, gen_ssa a, gen_ssa b)
{
  gen_part *p = e->part;
  LLVMTypeRef type = gen_scalar_type(a), params[2] = {type, type};
  const char *name = type == p->f64 ? "weft.remainder.f64" : "weft.remainder.f32";

  if (!LLVMGetNamedFunction(p->mod, name)) {
    gen_ssa fn = LLVMAddFunction(p->mod, name, LLVMFunctionType(type, params, 2, 0));
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    gen_emit inner;
    LLVMSetLinkage(fn, LLVMInternalLinkage);
    gen_emit_init(&inner, p, fn, e->kernel);
    gen_emit_finish(&inner, remainder_of(&inner, LLVMGetParam(fn, 0), LLVMGetParam(fn, 1)));
    LLVMPositionBuilderAtEnd(e->b, here);
  }
  return gen_libcall(e, name, 2, (gen_ssa[]){a, b});
}

/* ---- large angles ---------------------------------------------------------------------------------------------- */

/* The bits of 2/pi behind 64 zeros: x times 2/pi modulo 4 needs those of the bits whose product with x is below 4 and
 * large enough to matter (M. H. Payne, R. N. Hanek, "Radian reduction for trigonometric functions", 1983). */
static const uint64_t two_over_pi[] = {
  0, UINT64_C(0xa2f9836e4e441529), UINT64_C(0xfc2757d1f534ddc0), UINT64_C(0xdb6295993c439041), UINT64_C(0xfe5163abdebbc561),
  UINT64_C(0xb7246e3a424dd2e0), UINT64_C(0x06492eea09d1921c), UINT64_C(0xfe1deb1cb129a73e), UINT64_C(0xe88235f52ebb4484),
  UINT64_C(0xe99c7026b45f7e41), UINT64_C(0x3991d639835339f4), UINT64_C(0x9c845f8bbdf9283b), UINT64_C(0x1ff897ffde05980f),
  UINT64_C(0xef2f118b5a0a6d1f), UINT64_C(0x6d367ecf27cb09b7), UINT64_C(0x4f463f669e5fea2d), UINT64_C(0x7527bac7ebe5f17b),
  UINT64_C(0x3d0739f78a5292ea), UINT64_C(0x6bfb5fb11f8d5d08), UINT64_C(0x56033046fc7b6bab), UINT64_C(0xf0cfbc209af4361d),
};

static gen_ssa table_of(gen_emit *e)
{
  enum { WORDS = WEFT_COUNT(two_over_pi) };
  gen_ssa table = LLVMGetNamedGlobal(e->part->mod, "weft.two_over_pi"), words[WORDS];

  if (table) return table;
  for (int i = 0; i < WORDS; i++) words[i] = LLVMConstInt(e->part->i64, two_over_pi[i], 0);
  gen_ssa data = LLVMConstArray2(e->part->i64, words, WORDS);
  table = LLVMAddGlobal(e->part->mod, LLVMTypeOf(data), "weft.two_over_pi");
  LLVMSetInitializer(table, data);
  LLVMSetGlobalConstant(table, 1);
  LLVMSetLinkage(table, LLVMPrivateLinkage);
  return table;
}

/* 192 bits of the table from bit `start` on, the highest word first. */
static void table_bits(gen_emit *e, gen_ssa start, gen_ssa out[3])
{
  gen_ssa first = bin_by(e, LLVMLShr, start, 6), words[4];

  for (int i = 0; i < 4; i++) {
    gen_ssa at = bin_by(e, LLVMAdd, first, i);
    gen_ssa place = LLVMBuildInBoundsGEP2(e->b, e->part->i64, table_of(e), &at, 1, "");
    words[i] = LLVMBuildLoad2(e->b, e->part->i64, place, "");
  }
  for (int i = 0; i < 3; i++)
    out[i] = gen_intrinsic(e, "llvm.fshl", 3, (gen_ssa[]){words[i], words[i + 1], bin_by(e, LLVMAnd, start, 63)});
}

/* mantissa * words modulo 2^192, as its upper 128 bits without the first two, which are *quadrant. */
static gen_ssa turns_of(gen_emit *e, gen_ssa mantissa, const gen_ssa words[3], gen_ssa *quadrant)
{
  LLVMTypeRef i128 = LLVMInt128TypeInContext(e->part->ctx), i64 = e->part->i64;
  gen_ssa m = LLVMBuildZExt(e->b, mantissa, i128, "");
  gen_ssa low = bin(e, LLVMMul, m, LLVMBuildZExt(e->b, words[2], i128, ""));
  gen_ssa middle = bin(e, LLVMMul, m, LLVMBuildZExt(e->b, words[1], i128, ""));
  gen_ssa high = bin(e, LLVMShl, m, LLVMConstInt(i128, 64, 0));

  middle = bin(e, LLVMAdd, middle, bin(e, LLVMLShr, low, LLVMConstInt(i128, 64, 0)));
  high = bin(e, LLVMMul, high, LLVMBuildZExt(e->b, words[0], i128, ""));
  gen_ssa all = bin(e, LLVMAdd, high, middle); /* bits 64 to 191 of the product */
  *quadrant = LLVMBuildTrunc(e->b, bin(e, LLVMLShr, all, LLVMConstInt(i128, 126, 0)), i64, "");
  gen_ssa rest = LLVMBuildZExt(e->b, bin_by(e, LLVMLShr, LLVMBuildTrunc(e->b, low, i64, ""), 62), i128, "");
  return bin(e, LLVMOr, bin(e, LLVMShl, all, LLVMConstInt(i128, 2, 0)), rest);
}

/* The bits [from, from + 53) of `n`, as a float times 2^scale. */
static gen_ssa piece(gen_emit *e, gen_ssa n, int from, gen_ssa scale)
{
  LLVMTypeRef type = LLVMTypeOf(n), i64 = e->part->i64, f64 = e->part->f64;
  gen_ssa bits = LLVMBuildTrunc(e->b, bin(e, LLVMLShr, n, LLVMConstInt(type, (unsigned)from, 0)), i64, "");
  gen_ssa power = LLVMBuildBitCast(e->b, bin_by(e, LLVMShl, bin_by(e, LLVMAdd, scale, 1023), 52), f64, "");

  bits = bin_by(e, LLVMAnd, bits, (INT64_C(1) << 53) - 1);
  return bin(e, LLVMFMul, LLVMBuildSIToFP(e->b, bits, f64, ""), power);
}

/* x = *quadrant * pi/2 + (*r + *low) modulo 2 pi for a scalar x of f64, |x| >= 2^20. */
static void reduce_one(gen_emit *e, gen_ssa x, gen_ssa *r, gen_ssa *low, gen_ssa *quadrant)
{
  LLVMTypeRef i128 = LLVMInt128TypeInContext(e->part->ctx), i64 = e->part->i64;
  gen_ssa bits = LLVMBuildBitCast(e->b, x, i64, ""), words[3], zero = LLVMConstInt(i128, 0, 0);
  gen_ssa field = bin_by(e, LLVMAnd, bin_by(e, LLVMLShr, bits, 52), 2047);
  gen_ssa mantissa = bin_by(e, LLVMOr, bin_by(e, LLVMAnd, bits, (INT64_C(1) << 52) - 1), INT64_C(1) << 52);

  /* x = mantissa * 2^(field - 1075). The table begins 64 bits before the point, and the bit before the last two that
   * count has the weight 2^2. */
  table_bits(e, bin_by(e, LLVMSub, field, 1075 + 2 - 64), words);
  gen_ssa turns = turns_of(e, mantissa, words, quadrant);
  gen_ssa below = gen_icmp(e, LLVMIntSLT, turns, zero); /* more than half a quadrant: counted from the next one */
  gen_ssa size = gen_select(e, below, bin(e, LLVMSub, zero, turns), turns);
  *quadrant = bin(e, LLVMAdd, *quadrant, LLVMBuildZExt(e->b, below, i64, ""));
  gen_ssa zeros = leading_zeros(e, size), n = bin(e, LLVMShl, size, zeros);
  gen_ssa scale = bin(e, LLVMSub, gen_i64(e, -53), LLVMBuildTrunc(e->b, zeros, i64, ""));
  gen_ssa high = piece(e, n, 75, scale), rest = piece(e, n, 22, bin_by(e, LLVMSub, scale, 53));

  gen_ssa half_pi = gen_f(x, 0x1.921fb54442d18p+0), lost = gen_f(x, 0x1.1a62633145c07p-54);
  *r = bin(e, LLVMFMul, high, half_pi);
  *low = gen_intrinsic(e, "llvm.fma", 3, (gen_ssa[]){high, half_pi, LLVMBuildFNeg(e->b, *r, "")});
  *low = bin(e, LLVMFAdd, *low, gen_bin(e, LLVMFAdd, bin(e, LLVMFMul, high, lost), bin(e, LLVMFMul, rest, half_pi)));
  gen_ssa negative = gen_icmp(e, LLVMIntSLT, bits, gen_i64(e, 0)), turned = gen_bin(e, LLVMXor, negative, below);
  *r = gen_select(e, turned, LLVMBuildFNeg(e->b, *r, ""), *r);
  *low = gen_select(e, turned, LLVMBuildFNeg(e->b, *low, ""), *low);
  *quadrant = gen_select(e, negative, bin(e, LLVMSub, gen_i64(e, 0), *quadrant), *quadrant);
}

void gen_reduce_angle(gen_emit *e, gen_ssa x, double limit, gen_ssa *r, gen_ssa *low, gen_ssa *quadrant)
{
  bool vector = gen_is_vector(x);
  int lanes = vector ? (int)LLVMGetVectorSize(LLVMTypeOf(x)) : 1;
  gen_ssa *parts[] = {r, low, quadrant}, in = slot_of(e, x), slots[3], one[3];
  gen_loop loop;
  gen_if large;

  for (int i = 0; i < 3; i++) slots[i] = slot_of(e, gen_splat(e, *parts[i], lanes));
  gen_loop_static(e, &loop, 0, lanes, 1);
  gen_ssa lane = e->vars[loop.var].value;
  gen_ssa v = LLVMBuildLoad2(e->b, e->part->f64, LLVMBuildInBoundsGEP2(e->b, e->part->f64, in, &lane, 1, ""), "");
  gen_if_begin(e, &large, gen_fcmp(e, LLVMRealOGT, gen_intrinsic1(e, "llvm.fabs", v), gen_f(v, limit)));
  reduce_one(e, v, &one[0], &one[1], &one[2]);
  gen_ssa infinite = gen_fcmp(e, LLVMRealOEQ, gen_intrinsic1(e, "llvm.fabs", v), gen_f(v, __builtin_inf()));
  one[0] = gen_select(e, infinite, gen_f(v, __builtin_nan("")), one[0]);
  for (int i = 0; i < 3; i++)
    LLVMBuildStore(e->b, one[i], LLVMBuildInBoundsGEP2(e->b, LLVMTypeOf(one[i]), slots[i], &lane, 1, ""));
  gen_if_end(e, &large);
  gen_loop_end(e, &loop);
  for (int i = 0; i < 3; i++) *parts[i] = get(e, slots[i]);
}
