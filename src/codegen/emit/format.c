/* codegen/emit/format.c -- the two forms of an element: in memory, where narrow types stay narrow, and in registers,
 * where it is computed with. */
#include <config.h>

#include "codegen/emit/emit.h"

#include <string.h>

/* ---- narrow floats --------------------------------------------------------------------------------------------- */

static gen_ssa bits_of(gen_emit *e, gen_ssa f)
{
  return gen_cast(e, LLVMBitCast, f, gen_scalar_type(f) == e->part->f64 ? e->part->i64 : e->part->i32);
}
static gen_ssa float_of(gen_emit *e, gen_ssa bits) { return gen_cast(e, LLVMBitCast, bits, e->part->f32); }

gen_ssa gen_decode_float(gen_emit *e, weft_dtype type, gen_ssa bits)
{
  const weft_float_format *f = weft_dtype_float_format(type);
  gen_part *p = e->part;
  int width = f->exponent_bits + f->mantissa_bits, to_f32 = 23 - f->mantissa_bits;

  if (type == WEFT_F16 && p->target->has_f16c) {
    gen_ssa half = gen_cast(e, LLVMBitCast, bits, LLVMHalfTypeInContext(p->ctx));
    return gen_cast(e, LLVMFPExt, half, p->f32);
  }
  bits = gen_cast(e, LLVMZExt, bits, p->i32);
  if (type == WEFT_BF16) return float_of(e, gen_bin(e, LLVMShl, bits, gen_i(bits, 16)));
  if (type == WEFT_F8E8M0FNU) { /* 2^(bits - 127): 0 is the denormal 2^-127, 255 is NaN */
    gen_ssa r = gen_bin(e, LLVMShl, bits, gen_i(bits, 23));
    r = gen_select(e, gen_icmp(e, LLVMIntEQ, bits, gen_i(bits, 0)), gen_i(bits, 0x400000), r);
    return float_of(e, gen_select(e, gen_icmp(e, LLVMIntEQ, bits, gen_i(bits, 255)), gen_i(bits, 0x7fc00000), r));
  }
  int64_t magnitude_mask = ((int64_t)1 << width) - 1, top = (((int64_t)1 << f->exponent_bits) - 1) << f->mantissa_bits;
  gen_ssa magnitude = gen_bin(e, LLVMAnd, bits, gen_i(bits, magnitude_mask));
  gen_ssa sign =
    gen_bin(e, LLVMShl, gen_bin(e, LLVMAnd, bits, gen_i(bits, magnitude_mask + 1)), gen_i(bits, 31 - width));
  gen_ssa shifted = gen_bin(e, LLVMShl, magnitude, gen_i(bits, to_f32));
  /* A denormal is the fraction of a normal number less one: times a power of two it would be a denormal f32, for which
   * processors stop. */
  gen_ssa r = gen_bin(e, LLVMAdd, shifted, gen_i(bits, (int64_t)(127 - f->bias) << 23));
  gen_ssa above = float_of(e, gen_bin(e, LLVMAdd, r, gen_i(bits, 1 << 23)));
  gen_ssa denormal = gen_bin(e, LLVMFSub, above, gen_f(above, __builtin_ldexp(1, 1 - f->bias)));
  r = gen_select(e, gen_icmp(e, LLVMIntULT, magnitude, gen_i(bits, 1 << f->mantissa_bits)), bits_of(e, denormal), r);
  if (f->has_inf)
    r = gen_select(e, gen_icmp(e, LLVMIntUGE, magnitude, gen_i(bits, top)),
                   gen_bin(e, LLVMOr, shifted, gen_i(bits, 0x7f800000)), r);
  else if (f->has_nan && !f->nan_is_negative_zero)
    r = gen_select(e, gen_icmp(e, LLVMIntEQ, magnitude, gen_i(bits, magnitude_mask)), gen_i(bits, 0x7fc00000), r);
  r = gen_bin(e, LLVMOr, r, sign);
  if (f->nan_is_negative_zero)
    r = gen_select(e, gen_icmp(e, LLVMIntEQ, bits, gen_i(bits, magnitude_mask + 1)), gen_i(bits, 0xffc00000), r);
  return float_of(e, r);
}

/* f64 to f32 with rounding to odd, so that a second rounding, to a narrower type, gives the right result. */
static gen_ssa round_to_odd(gen_emit *e, gen_ssa v)
{
  gen_part *p = e->part;
  gen_ssa narrow = gen_cast(e, LLVMFPTrunc, v, p->f32), back = gen_cast(e, LLVMFPExt, narrow, p->f64);
  gen_ssa abs_v = gen_intrinsic1(e, "llvm.fabs", v), abs_back = gen_intrinsic1(e, "llvm.fabs", back);
  gen_ssa above = gen_cast(e, LLVMZExt, gen_fcmp(e, LLVMRealOGT, abs_back, abs_v), p->i32);
  gen_ssa inexact = gen_cast(e, LLVMZExt, gen_fcmp(e, LLVMRealONE, abs_back, abs_v), p->i32);

  return float_of(e, gen_bin(e, LLVMOr, gen_bin(e, LLVMSub, bits_of(e, narrow), above), inexact));
}

gen_ssa gen_encode_float(gen_emit *e, weft_dtype type, gen_ssa v)
{
  const weft_float_format *f = weft_dtype_float_format(type);
  gen_part *p = e->part;
  int width = f->exponent_bits + f->mantissa_bits, shift = 23 - f->mantissa_bits;
  LLVMTypeRef storage = gen_storage_type(p, type);

  if (gen_scalar_type(v) == p->f64)
    v = type == WEFT_F8E8M0FNU ? gen_cast(e, LLVMFPTrunc, v, p->f32) : round_to_odd(e, v);
  if (type == WEFT_F16 && p->target->has_f16c) {
    gen_ssa half = gen_cast(e, LLVMFPTrunc, v, LLVMHalfTypeInContext(p->ctx));
    return gen_cast(e, LLVMBitCast, half, p->i16);
  }
  if (type == WEFT_BF16 && p->target->has_bf16)
    return gen_cast(e, LLVMBitCast, gen_cast(e, LLVMFPTrunc, v, LLVMBFloatTypeInContext(p->ctx)), p->i16);
  gen_ssa x = bits_of(e, v), abs = gen_bin(e, LLVMAnd, x, gen_i(x, 0x7fffffff));
  gen_ssa is_nan = gen_fcmp(e, LLVMRealUNO, v, v), r; /* one instruction; a test of the bits takes three with AVX2 */
  if (type == WEFT_BF16) {
    gen_ssa odd = gen_bin(e, LLVMAnd, gen_bin(e, LLVMLShr, x, gen_i(x, 16)), gen_i(x, 1));
    r = gen_bin(e, LLVMAdd, x, gen_bin(e, LLVMAdd, odd, gen_i(x, 0x7fff)));
    r = gen_select(e, is_nan, gen_bin(e, LLVMOr, x, gen_i(x, 0x400000)), r);
    return gen_cast(e, LLVMTrunc, gen_bin(e, LLVMLShr, r, gen_i(x, 16)), storage);
  }
  if (type == WEFT_F8E8M0FNU) { /* positive powers of two, ties upwards */
    r = gen_bin(e, LLVMLShr, gen_bin(e, LLVMAdd, x, gen_i(x, 0x400000)), gen_i(x, 23));
    gen_ssa small = gen_cast(e, LLVMZExt, gen_icmp(e, LLVMIntUGE, x, gen_i(x, 0x600000)), p->i32);
    r = gen_select(e, gen_icmp(e, LLVMIntULT, x, gen_i(x, 0x800000)), small, r);
    gen_ssa bad = gen_bin(e, LLVMOr, is_nan, gen_icmp(e, LLVMIntSLE, x, gen_i(x, 0))); /* no zero, nothing negative */
    r = gen_select(e, bad, gen_i(x, 255), gen_intrinsic2(e, "llvm.umin", r, gen_i(x, 255)));
    return gen_cast(e, LLVMTrunc, r, storage);
  }
  /* Normal in the target type: rounds the mantissa as an integer; the carry moves the exponent. */
  gen_ssa odd = gen_bin(e, LLVMAnd, gen_bin(e, LLVMLShr, abs, gen_i(x, shift)), gen_i(x, 1));
  r = gen_bin(e, LLVMAdd, abs, gen_bin(e, LLVMAdd, odd, gen_i(x, ((int64_t)1 << (shift - 1)) - 1)));
  r = gen_bin(e, LLVMSub, gen_bin(e, LLVMLShr, r, gen_i(x, shift)),
              gen_i(x, (int64_t)(127 - f->bias) << f->mantissa_bits));
  /* Denormal in the target type: adding a number whose ulp is the target's least value rounds to multiples of that
   * value. */
  gen_ssa magic = gen_f(v, __builtin_ldexp(1, 23 + 1 - f->bias - f->mantissa_bits));
  gen_ssa sum = gen_bin(e, LLVMFAdd, float_of(e, abs), magic);
  gen_ssa denormal = gen_bin(e, LLVMSub, bits_of(e, sum), LLVMConstBitCast(magic, LLVMTypeOf(x)));
  int64_t least_normal = (int64_t)(127 + 1 - f->bias) << 23;
  r = gen_select(e, gen_icmp(e, LLVMIntULT, abs, gen_i(x, least_normal)), denormal, r);
  int64_t ones = ((int64_t)1 << width) - 1, top = (((int64_t)1 << f->exponent_bits) - 1) << f->mantissa_bits;
  int64_t most = f->has_inf ? top - 1 : f->has_nan && !f->nan_is_negative_zero ? ones - 1 : ones;
  int64_t nan = f->nan_is_negative_zero || !f->has_nan ? ones + 1
                : f->has_inf                           ? top | (int64_t)1 << (f->mantissa_bits - 1)
                                                       : ones;
  int64_t over = f->has_inf ? top : f->has_nan ? nan : most;
  r = gen_select(e, gen_icmp(e, LLVMIntUGT, r, gen_i(x, most)), gen_i(x, over), r);
  gen_ssa nan_bits = gen_i(x, nan);
  if (f->has_inf) { /* as much of the payload as there is room for, if the result still is a NaN */
    gen_ssa payload = gen_bin(e, LLVMAnd, gen_bin(e, LLVMLShr, abs, gen_i(x, shift)), gen_i(x, ones - top));
    gen_ssa kept = gen_bin(e, LLVMOr, payload, gen_i(x, top));
    nan_bits = gen_select(e, gen_icmp(e, LLVMIntEQ, payload, gen_i(x, 0)), nan_bits, kept);
  }
  r = gen_select(e, is_nan, nan_bits, r);
  gen_ssa sign = gen_bin(e, LLVMAnd, gen_bin(e, LLVMLShr, x, gen_i(x, 31 - width)), gen_i(x, ones + 1));
  gen_ssa with_sign = gen_bin(e, LLVMOr, r, sign);
  if (f->nan_is_negative_zero) { /* no -0, and NaN has its sign already */
    gen_ssa plain = gen_icmp(e, LLVMIntEQ, gen_bin(e, LLVMAnd, r, gen_i(x, ones)), gen_i(x, 0));
    with_sign = gen_select(e, plain, r, with_sign);
  }
  return gen_cast(e, LLVMTrunc, with_sign, storage);
}

gen_ssa gen_reduce_precision(gen_emit *e, gen_ssa v, int exponent_bits, int mantissa_bits)
{
  bool is_f64 = gen_scalar_type(v) == e->part->f64, is_f16 = gen_scalar_type(v) == LLVMHalfTypeInContext(e->part->ctx);
  const weft_float_format *own = weft_dtype_float_format(is_f64 ? WEFT_F64 : is_f16 ? WEFT_F16 : WEFT_F32);
  int own_mantissa = own->mantissa_bits, own_exponent = own->exponent_bits, drop = own_mantissa - mantissa_bits;
  int64_t own_bias = own->bias;
  LLVMTypeRef float_type = gen_scalar_type(v);
  gen_ssa x = is_f16 ? gen_cast(e, LLVMBitCast, v, e->part->i16) : bits_of(e, v), sign, r = x;
  int64_t inf = (int64_t)((INT64_C(1) << own_exponent) - 1) << own_mantissa;
  int64_t sign_bit = is_f64 ? INT64_MIN : is_f16 ? INT16_MIN : INT32_MIN;

  sign = gen_bin(e, LLVMAnd, x, gen_i(x, sign_bit));
  if (drop > 0) { /* round to nearest even */
    gen_ssa odd = gen_bin(e, LLVMAnd, gen_bin(e, LLVMLShr, x, gen_i(x, drop)), gen_i(x, 1));
    gen_ssa bias = gen_bin(e, LLVMAdd, odd, gen_i(x, (INT64_C(1) << (drop - 1)) - 1));
    r = gen_bin(e, LLVMAnd, gen_bin(e, LLVMAdd, x, bias), gen_i(x, -(INT64_C(1) << drop)));
  }
  if (exponent_bits < own_exponent) { /* past the range: infinity; below it: zero */
    int64_t bias = (INT64_C(1) << (exponent_bits - 1)) - 1;
    int64_t most = own_bias + bias, least = own_bias - bias + 1;
    gen_ssa exponent = gen_bin(e, LLVMAnd, r, gen_i(x, inf));
    gen_ssa over = gen_icmp(e, LLVMIntUGT, exponent, gen_i(x, most << own_mantissa));
    gen_ssa under = gen_icmp(e, LLVMIntULT, exponent, gen_i(x, least << own_mantissa));
    r = gen_select(e, over, gen_bin(e, LLVMOr, sign, gen_i(x, inf)), r);
    r = gen_select(e, under, sign, r);
  }
  gen_ssa rounded = gen_cast(e, LLVMBitCast, r, float_type);
  gen_ssa is_nan = gen_fcmp(e, LLVMRealUNO, v, v);
  if (mantissa_bits > 0) return gen_select(e, is_nan, v, rounded);
  gen_ssa infinite = gen_cast(e, LLVMBitCast, gen_bin(e, LLVMOr, sign, gen_i(x, inf)), float_type);
  return gen_select(e, is_nan, infinite, rounded);
}

gen_ssa gen_wrap_int(gen_emit *e, weft_dtype type, gen_ssa v)
{
  int bits = weft_dtype_bits(type);

  if (bits >= 8 || !weft_dtype_is_integer(type)) return v;
  if (weft_dtype_is_unsigned(type)) return gen_bin(e, LLVMAnd, v, gen_i(v, (1 << bits) - 1));
  return gen_bin(e, LLVMAShr, gen_bin(e, LLVMShl, v, gen_i(v, 8 - bits)), gen_i(v, 8 - bits));
}

static bool is_coded(gen_emit *e, weft_dtype type) /* differs between memory and registers */
{
  return weft_dtype_is_float(type) && type != WEFT_F32 && type != WEFT_F64 && !e->part->raw_narrow;
}

gen_ssa gen_from_storage(gen_emit *e, weft_dtype type, gen_ssa v)
{
  if (type == WEFT_PRED) return gen_icmp(e, LLVMIntNE, v, gen_i(v, 0));
  if (is_coded(e, type)) return gen_decode_float(e, type, v);
  return v;
}

/* An intrinsic of the target, whose name says its types. */
static gen_ssa target_intrinsic(gen_emit *e, const char *name, int count, gen_ssa *args)
{
  gen_ssa fn = LLVMGetIntrinsicDeclaration(e->part->mod, LLVMLookupIntrinsicID(name, strlen(name)), NULL, 0);
  return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, (unsigned)count, "");
}

/* The bits of the bf16 that `v` has been made of, and of nothing else; NULL: it has not. */
static gen_ssa decoded_bf16(gen_ssa v)
{
  gen_ssa bits = gen_operand_of(v, LLVMBitCast, 0), by = bits ? gen_operand_of(bits, LLVMShl, 1) : NULL;
  return by && by == gen_i(by, 16) ? gen_operand_of(gen_operand_of(bits, LLVMShl, 0), LLVMZExt, 0) : NULL;
}

gen_ssa gen_bf16_bits(gen_emit *e, gen_ssa v)
{
  gen_ssa bits = decoded_bf16(v), wide;

  if (bits) return bits;
  wide = bits_of(e, v);
  return gen_cast(e, LLVMTrunc, gen_bin(e, LLVMLShr, wide, gen_i(wide, 16)), e->part->i16);
}

/* x if `v` is the greater of x and 0, as gen_max makes it; else NULL. */
static gen_ssa positive_part_of(gen_ssa v)
{
  gen_ssa compare = gen_operand_of(v, LLVMSelect, 0), x = compare ? gen_operand_of(v, LLVMSelect, 1) : NULL;

  if (!x || !LLVMIsNull(LLVMGetOperand(v, 2)) || gen_operand_of(compare, LLVMFCmp, 0) != x) return NULL;
  return LLVMGetFCmpPredicate(compare) == LLVMRealUGT && LLVMIsNull(LLVMGetOperand(compare, 1)) ? x : NULL;
}

/* One or two vectors of f32 to bf16 by the processor's instruction, where no number is denormal. The greater of a
 * number and 0 is chosen among the rounded numbers, as integers, where there is no NaN either. */
static gen_ssa vectors_to_bf16(gen_emit *e, gen_ssa v)
{
  enum { LANES = 16, QUIET_NAN = 1 << 0, DENORMAL = 1 << 5, SIGNALLING_NAN = 1 << 7 };
  int count = (int)LLVMGetVectorSize(LLVMTypeOf(v)) / LANES, lanes[LANES];
  gen_ssa part[2], denormal = NULL, rounded, x = positive_part_of(v), all = x ? x : v;
  gen_rare rare;

  for (int k = 0; k < count; k++) {
    for (int i = 0; i < LANES; i++) lanes[i] = k * LANES + i;
    part[k] = count == 1 ? all : gen_shuffle(e, all, LLVMGetPoison(LLVMTypeOf(all)), LANES, lanes);
    gen_ssa class = LLVMConstInt(e->part->i32, x ? QUIET_NAN | DENORMAL | SIGNALLING_NAN : DENORMAL, 0);
    class = target_intrinsic(e, "llvm.x86.avx512.fpclass.ps.512", 2, (gen_ssa[]){part[k], class});
    denormal = denormal ? gen_bin(e, LLVMOr, denormal, class) : class;
  }
  rounded = count == 1 ? target_intrinsic(e, "llvm.x86.avx512bf16.cvtneps2bf16.512", 1, part)
                       : target_intrinsic(e, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", 2, (gen_ssa[]){part[1], part[0]});
  rounded = gen_cast(e, LLVMBitCast, rounded, e->part->i16);
  if (x) rounded = gen_intrinsic2(e, "llvm.smax", rounded, gen_i(rounded, 0));
  gen_rare_begin(e, &rare, denormal);
  return gen_rare_end(e, &rare, rounded, gen_encode_float(e, WEFT_BF16, v));
}

static bool has_vectors_to_bf16(const gen_emit *e, gen_ssa v)
{
  unsigned lanes = gen_is_vector(v) ? LLVMGetVectorSize(LLVMTypeOf(v)) : 1;

  return e->part->target->has_avx512_bf16 && (lanes == 16 || lanes == 32) && gen_scalar_type(v) == e->part->f32 &&
         !LLVMIsConstant(v);
}

gen_ssa gen_round_to(gen_emit *e, weft_dtype type, gen_ssa value)
{
  bool by_instruction = type == WEFT_BF16 && has_vectors_to_bf16(e, value);

  return gen_decode_float(e, type, by_instruction ? vectors_to_bf16(e, value) : gen_encode_float(e, type, value));
}

gen_ssa gen_to_storage(gen_emit *e, weft_dtype type, gen_ssa v)
{
  if (type == WEFT_BF16 && is_coded(e, type) && has_vectors_to_bf16(e, v)) {
    gen_ssa bits = decoded_bf16(v);
    /* a number from memory may be a signalling NaN; LLVM leaves little of its conversion back by integers */
    if (!bits) return vectors_to_bf16(e, v);
    if (!LLVMIsALoadInst(bits)) return bits;
  }

  if (type == WEFT_PRED) return gen_cast(e, LLVMZExt, v, e->part->i8);
  if (is_coded(e, type)) return gen_encode_float(e, type, v);
  return v;
}

gen_value gen_literal_element(gen_emit *e, const hlo_literal *lit, int64_t index)
{
  weft_dtype type = lit->shape->type;
  gen_part *p = e->part;
  LLVMTypeRef t = gen_register_type(p, type);

  if (weft_dtype_is_complex(type)) {
    bool is_f64 = type == WEFT_C128;
    uint64_t parts[2] = {0, 0};
    for (int i = 0; i < 2; i++)
      memcpy(&parts[i], (const char *)lit->data + (is_f64 ? 16 : 8) * index + (is_f64 ? 8 : 4) * i, is_f64 ? 8 : 4);
    LLVMTypeRef integer = is_f64 ? p->i64 : p->i32;
    return (gen_value){LLVMConstBitCast(LLVMConstInt(integer, parts[0], 0), t),
                       LLVMConstBitCast(LLVMConstInt(integer, parts[1], 0), t)};
  }
  if (weft_dtype_is_float(type)) { /* by bits: NaN payloads and signs survive */
    uint64_t bits = 0;
    memcpy(&bits, (const char *)lit->data + weft_dtype_bytes(type) * (size_t)index, weft_dtype_bytes(type));
    if (type == WEFT_F64) return (gen_value){.re = LLVMConstBitCast(LLVMConstInt(p->i64, bits, 0), t)};
    if (type != WEFT_F32 && p->raw_narrow) return (gen_value){.re = LLVMConstInt(t, bits, 0)};
    float v = weft_float_decode(type, bits);
    uint32_t wide;
    memcpy(&wide, &v, sizeof wide);
    return (gen_value){.re = LLVMConstBitCast(LLVMConstInt(p->i32, wide, 0), t)};
  }
  return (gen_value){.re = LLVMConstInt(t, (unsigned long long)hlo_literal_get_s64(lit, index), 1)};
}

/* ---- what a computation needs ---------------------------------------------------------------------------------- */

static bool is_narrow(const hlo_shape *s)
{
  return hlo_shape_is_array(s) && weft_dtype_is_float(s->type) && weft_dtype_bits(s->type) < 32;
}

bool gen_only_moves_narrow(const hlo_computation *comp)
{
  HLO_FOREACH(x, comp) {
    bool touches = is_narrow(x->shape) || x->called_count > 0;
    for (int i = 0; i < x->operand_count; i++) touches = touches || is_narrow(x->operands[i]->shape);
    if (!touches) continue;
    switch (x->op) {
    case HLO_PARAMETER: case HLO_CONSTANT: case HLO_BROADCAST: case HLO_RESHAPE: case HLO_BITCAST: case HLO_TRANSPOSE:
    case HLO_SLICE: case HLO_REVERSE: case HLO_PAD: case HLO_CONCATENATE: case HLO_DYNAMIC_SLICE:
    case HLO_DYNAMIC_UPDATE_SLICE: case HLO_GATHER: case HLO_SELECT: case HLO_COPY: case HLO_TUPLE:
    case HLO_GET_TUPLE_ELEMENT:
    case HLO_OPT_BARRIER: break;
    default: return false;
    }
  }
  return true;
}

int gen_widest_bytes(const hlo_computation *comp)
{
  bool raw = gen_only_moves_narrow(comp);
  int widest = 1;

  HLO_FOREACH(x, comp) {
    for (int i = 0; x->op == HLO_WHILE && i < x->called_count; i++)
      widest = WEFT_MAX(widest, gen_widest_bytes(x->called[i]));
    if (!hlo_shape_is_array(x->shape)) continue;
    weft_dtype type = weft_dtype_component(x->shape->type);
    int bytes = weft_dtype_is_float(type) && type != WEFT_F64 && !raw ? 4 : (int)weft_dtype_bytes(type);
    if (x->shape->rank > 0) widest = WEFT_MAX(widest, bytes);
  }
  return widest;
}
