/* codegen/memory.c -- elements between memory and registers: narrow types stay narrow in memory. */
#include <config.h>

#include "codegen/codegen_internal.h"

#include <string.h>

/* ---- narrow floats ------------------------------------------------------------------------------------------------------ */

static gen_ssa bits_of(gen_emit *e, gen_ssa f) { return gen_cast(e, LLVMBitCast, f, gen_scalar_type(f) == e->part->f64 ? e->part->i64 : e->part->i32); }
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
  gen_ssa sign = gen_bin(e, LLVMShl, gen_bin(e, LLVMAnd, bits, gen_i(bits, magnitude_mask + 1)), gen_i(bits, 31 - width));
  gen_ssa shifted = gen_bin(e, LLVMShl, magnitude, gen_i(bits, to_f32));
  gen_ssa v = float_of(e, shifted);
  v = gen_bin(e, LLVMFMul, v, gen_f(v, __builtin_ldexp(1, 127 - f->bias))); /* exact, denormals too */
  gen_ssa r = bits_of(e, v);
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

/* f64 to f32 with rounding to odd, so that rounding again to a narrower type is right. */
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

  if (gen_scalar_type(v) == p->f64) v = type == WEFT_F8E8M0FNU ? gen_cast(e, LLVMFPTrunc, v, p->f32) : round_to_odd(e, v);
  if (type == WEFT_F16 && p->target->has_f16c) {
    gen_ssa half = gen_cast(e, LLVMFPTrunc, v, LLVMHalfTypeInContext(p->ctx));
    return gen_cast(e, LLVMBitCast, half, p->i16);
  }
  gen_ssa x = bits_of(e, v), abs = gen_bin(e, LLVMAnd, x, gen_i(x, 0x7fffffff));
  gen_ssa is_nan = gen_fcmp(e, LLVMRealUNO, v, v), r; /* one instruction; of the bits it takes three with AVX2 */
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
  /* Normal in the target: round the mantissa's integer; the carry moves the exponent. */
  gen_ssa odd = gen_bin(e, LLVMAnd, gen_bin(e, LLVMLShr, abs, gen_i(x, shift)), gen_i(x, 1));
  r = gen_bin(e, LLVMAdd, abs, gen_bin(e, LLVMAdd, odd, gen_i(x, ((int64_t)1 << (shift - 1)) - 1)));
  r = gen_bin(e, LLVMSub, gen_bin(e, LLVMLShr, r, gen_i(x, shift)), gen_i(x, (int64_t)(127 - f->bias) << f->mantissa_bits));
  /* Denormal in the target: adding a number whose ulp is the target's least value rounds to multiples of it. */
  gen_ssa magic = gen_f(v, __builtin_ldexp(1, 23 + 1 - f->bias - f->mantissa_bits));
  gen_ssa sum = gen_bin(e, LLVMFAdd, float_of(e, abs), magic);
  gen_ssa denormal = gen_bin(e, LLVMSub, bits_of(e, sum), LLVMConstBitCast(magic, LLVMTypeOf(x)));
  int64_t least_normal = (int64_t)(127 + 1 - f->bias) << 23;
  r = gen_select(e, gen_icmp(e, LLVMIntULT, abs, gen_i(x, least_normal)), denormal, r);
  int64_t ones = ((int64_t)1 << width) - 1, top = (((int64_t)1 << f->exponent_bits) - 1) << f->mantissa_bits;
  int64_t most = f->has_inf ? top - 1 : f->has_nan && !f->nan_is_negative_zero ? ones - 1 : ones;
  int64_t nan = f->nan_is_negative_zero || !f->has_nan ? ones + 1 : f->has_inf ? top | (int64_t)1 << (f->mantissa_bits - 1) : ones;
  int64_t over = f->has_inf ? top : f->has_nan ? nan : most;
  r = gen_select(e, gen_icmp(e, LLVMIntUGT, r, gen_i(x, most)), gen_i(x, over), r);
  gen_ssa nan_bits = gen_i(x, nan);
  if (f->has_inf) { /* as much of the payload as there is room for, if it still says NaN */
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

gen_ssa gen_round_to(gen_emit *e, weft_dtype type, gen_ssa value)
{
  return gen_decode_float(e, type, gen_encode_float(e, type, value));
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

static gen_ssa from_storage(gen_emit *e, weft_dtype type, gen_ssa v)
{
  if (type == WEFT_PRED) return gen_icmp(e, LLVMIntNE, v, gen_i(v, 0));
  if (is_coded(e, type)) return gen_decode_float(e, type, v);
  return v;
}

static gen_ssa to_storage(gen_emit *e, weft_dtype type, gen_ssa v)
{
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

/* ---- loads and stores ------------------------------------------------------------------------------------------------------ */

static void annotate(gen_emit *e, const gen_buffer *buf, gen_ssa access, bool is_load)
{
  gen_part *p = e->part;

  if (buf->scope) LLVMSetMetadata(access, p->md_scope, LLVMMetadataAsValue(p->ctx, buf->scope));
  if (buf->noalias) LLVMSetMetadata(access, p->md_noalias, LLVMMetadataAsValue(p->ctx, buf->noalias));
  if (is_load && buf->invariant) LLVMSetMetadata(access, p->md_invariant, LLVMMetadataAsValue(p->ctx, p->empty_node));
}

static gen_ssa element_ptr(gen_emit *e, const gen_buffer *buf, LLVMTypeRef type, gen_ssa index)
{
  return LLVMBuildInBoundsGEP2(e->b, type, buf->ptr, &index, 1, "");
}

static unsigned type_bytes(gen_part *p, LLVMTypeRef t)
{
  return t == p->i8 ? 1 : t == p->i16 ? 2 : t == p->i32 || t == p->f32 ? 4 : 8;
}

static gen_ssa load_plain(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa index, int lanes)
{
  LLVMTypeRef t = lanes > 1 ? LLVMVectorType(element, (unsigned)lanes) : element;
  gen_ssa v = LLVMBuildLoad2(e->b, t, element_ptr(e, buf, element, index), "");

  LLVMSetAlignment(v, type_bytes(e->part, element));
  annotate(e, buf, v, true);
  return v;
}

static gen_ssa masked_load(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa index, int lanes)
{
  gen_part *p = e->part;
  LLVMTypeRef t = LLVMVectorType(element, (unsigned)lanes), types[2] = {t, p->ptr};
  gen_ssa fn = LLVMGetIntrinsicDeclaration(p->mod, LLVMLookupIntrinsicID("llvm.masked.load", 16), types, 2);
  gen_ssa args[4] = {element_ptr(e, buf, element, index), LLVMConstInt(p->i32, type_bytes(p, element), 0),
                     gen_splat(e, e->mask, lanes), LLVMConstNull(t)};
  gen_ssa v = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, 4, "");

  annotate(e, buf, v, true);
  return v;
}

/* One element from each of the addresses `indices`, all of them valid. */
static gen_ssa gather(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa indices)
{
  gen_part *p = e->part;
  int lanes = (int)LLVMGetVectorSize(LLVMTypeOf(indices));

  if (type_bytes(p, element) < 4) { /* no such instruction: lane by lane */
    gen_ssa v = LLVMGetPoison(LLVMVectorType(element, (unsigned)lanes));
    for (int i = 0; i < lanes; i++) {
      gen_ssa lane = LLVMConstInt(p->i32, (unsigned)i, 0);
      gen_ssa at = LLVMBuildExtractElement(e->b, indices, lane, "");
      v = LLVMBuildInsertElement(e->b, v, load_plain(e, buf, element, at, 1), lane, "");
    }
    return v;
  }
  LLVMTypeRef t = LLVMVectorType(element, (unsigned)lanes);
  gen_ssa ptrs = element_ptr(e, buf, element, indices);
  LLVMTypeRef types[2] = {t, LLVMTypeOf(ptrs)};
  gen_ssa fn = LLVMGetIntrinsicDeclaration(p->mod, LLVMLookupIntrinsicID("llvm.masked.gather", 18), types, 2);
  gen_ssa args[4] = {ptrs, LLVMConstInt(p->i32, type_bytes(p, element), 0),
                     gen_splat(e, LLVMConstInt(p->i1, 1, 0), lanes), LLVMGetPoison(t)};
  gen_ssa v = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, 4, "");
  annotate(e, buf, v, true);
  return v;
}

/* In any lane? */
static gen_ssa any_lane(gen_emit *e, gen_ssa mask)
{
  return gen_is_vector(mask) ? gen_intrinsic1(e, "llvm.vector.reduce.or", mask) : mask;
}

enum { MOST_STEP = 8 };

/* Lanes `step` apart are picked from whole vectors: cheaper than a gather, and accesses to the elements between share the loads.
 * NULL where that might read past an end. */
static gen_ssa load_picked(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_affine linear, int step)
{
  int lanes = e->lanes, picked[64];
  int64_t lo, hi, r = (linear.base % step + step) % step;
  gen_ssa v = NULL, uniform, varying;

  for (int i = 0; i < linear.count; i++)
    if (linear.terms[i].coef % step) return NULL;
  gen_affine_range(e, linear, &lo, &hi);
  if (lo < r || hi - r + step > buf->elems) return NULL;
  gen_affine_split(e, gen_affine_offset(linear, -r), &uniform, &lo, &varying);
  for (int k = 0; k < step; k++) {
    gen_ssa part = load_plain(e, buf, element, LLVMBuildNSWAdd(e->b, uniform, gen_i64(e, (int64_t)k * lanes), ""), lanes);
    for (int i = 0; i < lanes; i++) {
      int at = (int)r + i * step - k * lanes;
      picked[i] = at < 0 ? i : at < lanes ? lanes + at : i;
    }
    v = v ? gen_shuffle(e, v, part, lanes, picked) : part;
    if (k == 0) {
      for (int i = 0; i < lanes; i++) picked[i] = WEFT_MIN((int)r + i * step, lanes - 1);
      v = gen_shuffle(e, v, LLVMGetPoison(LLVMTypeOf(v)), lanes, picked);
    }
  }
  return v;
}

/* The same where it is not known which of `step` neighbours comes first: the last vector overlaps the one before it, so that
 * nothing past the last lane's element is read. */
static gen_ssa load_strided(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa first, int step)
{
  int lanes = e->lanes, picked[64];
  gen_ssa v = NULL;

  for (int k = 0; k < step; k++) {
    int start = k == step - 1 ? (lanes - 1) * step + 1 - lanes : k * lanes;
    gen_ssa part = load_plain(e, buf, element, LLVMBuildNSWAdd(e->b, first, gen_i64(e, start), ""), lanes);
    for (int i = 0; i < lanes; i++) {
      int at = i * step;
      if (k == 0) picked[i] = WEFT_MIN(at, lanes - 1);
      else picked[i] = at < k * lanes ? i : lanes + WEFT_MIN(at - start, lanes - 1);
    }
    v = gen_shuffle(e, v ? v : part, part, lanes, picked);
  }
  return v;
}

static gen_ssa load_component(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_affine linear)
{
  gen_ssa uniform, varying;
  int64_t step;
  int lanes = e->lanes;

  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (!varying && step == 0) {
    if (e->mask) uniform = gen_select(e, any_lane(e, e->mask), uniform, gen_i64(e, 0));
    return load_plain(e, buf, element, uniform, 1);
  }
  if (!varying && step == 1)
    return e->mask ? masked_load(e, buf, element, uniform, lanes) : load_plain(e, buf, element, uniform, lanes);
  if (!varying && step == -1 && !e->mask) {
    int reversed[64];
    for (int i = 0; i < lanes; i++) reversed[i] = lanes - 1 - i;
    gen_ssa first = LLVMBuildNSWAdd(e->b, uniform, gen_i64(e, 1 - lanes), "");
    gen_ssa v = load_plain(e, buf, element, first, lanes);
    return gen_shuffle(e, v, LLVMGetPoison(LLVMTypeOf(v)), lanes, reversed);
  }
  if (!varying && step > 1 && step <= MOST_STEP && !e->mask) {
    gen_ssa v = load_picked(e, buf, element, linear, (int)step);
    if (v) return v;
  }
  if (!varying && step > 1 && step <= MOST_STEP && !e->mask && lanes > 1) return load_strided(e, buf, element, uniform, (int)step);
  gen_ssa at = gen_affine_ssa(e, linear);
  if (e->mask) at = gen_select(e, e->mask, at, gen_i(at, 0));
  return gather(e, buf, element, at);
}

gen_value gen_load(gen_emit *e, const gen_buffer *buf, gen_affine linear)
{
  gen_part *p = e->part;
  LLVMTypeRef element = gen_storage_type(p, buf->type);
  bool is_complex = weft_dtype_is_complex(buf->type);

  if (buf->elems == 0) {
    gen_ssa zero = LLVMConstNull(gen_register_type(p, buf->type));
    return (gen_value){zero, is_complex ? zero : NULL};
  }
  if (!is_complex) return (gen_value){.re = from_storage(e, buf->type, load_component(e, buf, element, linear))};
  gen_ssa uniform, varying;
  int64_t step;
  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (e->lanes > 1 && !varying && step == 1 && !e->mask) { /* de-interleave */
    int even[64], odd[64];
    gen_buffer twice = *buf;
    twice.elems *= 2;
    gen_ssa at = LLVMBuildNSWMul(e->b, uniform, gen_i64(e, 2), "");
    gen_ssa low = load_plain(e, &twice, element, at, e->lanes);
    gen_ssa high = load_plain(e, &twice, element, LLVMBuildNSWAdd(e->b, at, gen_i64(e, e->lanes), ""), e->lanes);
    for (int i = 0; i < e->lanes; i++) even[i] = 2 * i, odd[i] = 2 * i + 1;
    return (gen_value){gen_shuffle(e, low, high, e->lanes, even), gen_shuffle(e, low, high, e->lanes, odd)};
  }
  gen_affine re = gen_affine_scale(e, linear, 2);
  return (gen_value){load_component(e, buf, element, re), load_component(e, buf, element, gen_affine_offset(re, 1))};
}

static void store_plain(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_ssa index, gen_ssa v)
{
  gen_ssa store = LLVMBuildStore(e->b, v, element_ptr(e, buf, element, index));

  LLVMSetAlignment(store, type_bytes(e->part, element));
  annotate(e, buf, store, false);
}

static void store_component(gen_emit *e, const gen_buffer *buf, LLVMTypeRef element, gen_affine linear, gen_ssa v)
{
  gen_ssa uniform, varying;
  int64_t step;

  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (!varying && step <= 1 && step >= 0) {
    if (step == 1) v = gen_splat(e, v, e->lanes);
    store_plain(e, buf, element, uniform, v);
    return;
  }
  v = gen_splat(e, v, e->lanes);
  gen_ssa at = gen_splat(e, gen_affine_ssa(e, linear), e->lanes);
  for (int i = 0; i < e->lanes; i++) {
    gen_ssa lane = LLVMConstInt(e->part->i32, (unsigned)i, 0);
    store_plain(e, buf, element, LLVMBuildExtractElement(e->b, at, lane, ""), LLVMBuildExtractElement(e->b, v, lane, ""));
  }
}

void gen_store(gen_emit *e, const gen_buffer *buf, gen_affine linear, gen_value v)
{
  LLVMTypeRef element = gen_storage_type(e->part, buf->type);

  if (!weft_dtype_is_complex(buf->type)) {
    store_component(e, buf, element, linear, to_storage(e, buf->type, v.re));
    return;
  }
  gen_ssa uniform, varying;
  int64_t step;
  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (e->lanes > 1 && !varying && step == 1) { /* interleave */
    int low[64], high[64], n = e->lanes;
    gen_ssa re = gen_splat(e, v.re, n), im = gen_splat(e, v.im, n);
    for (int i = 0; i < n; i++) {
      low[i] = i / 2 + (i % 2 ? n : 0);
      high[i] = n / 2 + i / 2 + (i % 2 ? n : 0);
    }
    gen_ssa at = LLVMBuildNSWMul(e->b, uniform, gen_i64(e, 2), "");
    store_plain(e, buf, element, at, gen_shuffle(e, re, im, n, low));
    store_plain(e, buf, element, LLVMBuildNSWAdd(e->b, at, gen_i64(e, n), ""), gen_shuffle(e, re, im, n, high));
    return;
  }
  gen_affine re = gen_affine_scale(e, linear, 2);
  store_component(e, buf, element, re, v.re);
  store_component(e, buf, element, gen_affine_offset(re, 1), v.im);
}

/* out[k] = lanes k * lanes .. of values[0][0], values[1][0], ..., values[0][1], ...: by halves where there are two. */
static void interleave(gen_emit *e, const gen_ssa *values, int count, gen_ssa *out)
{
  int lanes = e->lanes, picked[64];

  if (count == 1) {
    out[0] = values[0];
  } else if (count % 2 == 0) {
    gen_ssa even[MOST_STEP], odd[MOST_STEP], joined[2][MOST_STEP];
    for (int i = 0; i < count / 2; i++) even[i] = values[2 * i], odd[i] = values[2 * i + 1];
    interleave(e, even, count / 2, joined[0]);
    interleave(e, odd, count / 2, joined[1]);
    for (int k = 0; k < count; k++) {
      for (int i = 0; i < lanes; i++) picked[i] = k % 2 * (lanes / 2) + i / 2 + i % 2 * lanes;
      out[k] = gen_shuffle(e, joined[0][k / 2], joined[1][k / 2], lanes, picked);
    }
  } else {
    for (int k = 0; k < count; k++) {
      out[k] = values[0];
      for (int v = 1; v < count; v++) {
        for (int i = 0; i < lanes; i++) {
          int from = (k * lanes + i) / count, of = (k * lanes + i) % count;
          picked[i] = of == v ? lanes + from : v == 1 ? from : i;
        }
        out[k] = gen_shuffle(e, out[k], values[v], lanes, picked);
      }
    }
  }
}

void gen_store_joined(gen_emit *e, const gen_buffer *buf, gen_affine linear, const gen_value *values, int apart, int count)
{
  LLVMTypeRef element = gen_storage_type(e->part, buf->type);
  gen_ssa uniform, varying, parts[MOST_STEP], joined[MOST_STEP];
  int64_t step;

  gen_affine_split(e, linear, &uniform, &step, &varying);
  if (count == 1 || varying || step != count || count > MOST_STEP || weft_dtype_is_complex(buf->type)) {
    for (int i = 0; i < count; i++) gen_store(e, buf, gen_affine_offset(linear, i), values[i * apart]);
    return;
  }
  for (int i = 0; i < count; i++) parts[i] = gen_splat(e, to_storage(e, buf->type, values[i * apart].re), e->lanes);
  interleave(e, parts, count, joined);
  for (int i = 0; i < count; i++)
    store_plain(e, buf, element, LLVMBuildNSWAdd(e->b, uniform, gen_i64(e, (int64_t)i * e->lanes), ""), joined[i]);
}
