/* tests/gpu/emulator/convert.c -- cvt: between integers, floats and each other. */
#include <config.h>

#include "internal.h"
#include "numbers.h"

static uint64_t extend(ptx_type t, uint64_t v)
{
  switch (t) {
  case PTX_U8: case PTX_B8: return (uint8_t)v;
  case PTX_S8: return (uint64_t)(int8_t)v;
  case PTX_U16: case PTX_B16: return (uint16_t)v;
  case PTX_S16: return (uint64_t)(int16_t)v;
  case PTX_U32: case PTX_B32: return (uint32_t)v;
  case PTX_S32: return (uint64_t)(int32_t)v;
  default: return v;
  }
}

static uint64_t clamp_int(ptx_type to, bool from_signed, uint64_t v)
{
  int bits = ptx_bytes(to) * 8;
  uint64_t most = bits == 64 ? ~0ull : (1ull << bits) - 1;
  if (ptx_is_signed(to)) most >>= 1;
  int64_t least = ptx_is_signed(to) ? -(int64_t)most - 1 : 0;
  if (from_signed && (int64_t)v < 0) return (int64_t)v < least ? (uint64_t)least : v;
  return v > most ? most : v;
}

static double number(const ptx_inst *i, uint64_t v)
{
  switch (i->from) {
  case PTX_F32: return (double)(i->flags & PTX_F_FTZ ? ptx_flush(ptx_f32(v)) : ptx_f32(v));
  case PTX_F64: return ptx_f64(v);
  case PTX_F16: return ptx_f16(v);
  default: return (double)ptx_bf16(v);
  }
}

static uint64_t narrow(const ptx_inst *i, ptx_type to, double v)
{
  bool saturate = i->flags & PTX_F_SATFINITE;
  if (i->flags & PTX_F_RELU && v < 0) v = 0;
  switch (to) {
  case PTX_F16: return v != v ? PTX_NAN16 : ptx_narrow(v, ptx_fmt_f16, i->round, saturate);
  case PTX_BF16: return v != v ? PTX_NAN16 : ptx_narrow(v, ptx_fmt_bf16, i->round, saturate);
  case PTX_TF32: return v != v ? PTX_NAN32 : (uint64_t)ptx_narrow(v, ptx_fmt_tf32, i->round, saturate) << 13;
  case PTX_E4M3X2: return ptx_narrow(v, ptx_fmt_e4m3, i->round, saturate);
  case PTX_E5M2X2: return ptx_narrow(v, ptx_fmt_e5m2, i->round, saturate);
  default: return 0;
  }
}

static uint64_t to_float(const ptx_inst *i, double v)
{
  if (i->flags & PTX_F_SAT) v = v > 0 ? v < 1 ? v : 1 : 0;
  if (i->type == PTX_F64) return ptx_bits64(v);
  if (i->type != PTX_F32) return narrow(i, (ptx_type)i->type, v);
  int saved = ptx_enter_rounding(i->round);
  volatile double d = v;
  volatile float f = (float)d;
  ptx_leave_rounding(saved);
  float r = f;
  return ptx_bits32(i->flags & PTX_F_FTZ ? ptx_flush(r) : r);
}

/* What is out of range becomes the nearest integer of the type; NaN becomes 0, or the highest
 * bit alone where either type has 64 bits. */
static uint64_t to_int(const ptx_inst *i, double v)
{
  ptx_type to = (ptx_type)i->type;
  int bits = ptx_bytes(to) * 8;
  if (v != v) return i->from == PTX_F64 || bits == 64 ? extend(to, 1ull << (bits - 1)) : 0;
  if (!ptx_is_signed(to)) {
    if (v >= ldexp(1, bits)) return bits == 64 ? ~0ull : (1ull << bits) - 1;
    return v <= 0 ? 0 : (uint64_t)v;
  }
  double end = ldexp(1, bits - 1);
  if (v >= end) return (1ull << (bits - 1)) - 1;
  return v < -end ? extend(to, 1ull << (bits - 1)) : (uint64_t)(int64_t)v;
}

static double to_integral(int round, double v)
{
  switch (round) {
  case PTX_RNI: return nearbyint(v);
  case PTX_RZI: return trunc(v);
  case PTX_RMI: return floor(v);
  case PTX_RPI: return ceil(v);
  default: return v;
  }
}

static void float_to_any(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0);
  uint64_t *D = ptx_out(x, i, 0);
  bool to = ptx_is_float((ptx_type)i->type);
  PTX_EACH(mask)
  {
    double v = to_integral(i->round, number(i, A[l]));
    D[l] = to ? to_float(i, v) : to_int(i, v);
  }
}

static void int_to_float(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0);
  uint64_t *D = ptx_out(x, i, 0);
  bool is_signed = ptx_is_signed((ptx_type)i->from);
  PTX_EACH(mask)
  {
    uint64_t v = extend((ptx_type)i->from, A[l]);
    if (i->type == PTX_F32) {
      int saved = ptx_enter_rounding(i->round);
      volatile uint64_t held = v;
      volatile float f = is_signed ? (float)(int64_t)held : (float)held;
      ptx_leave_rounding(saved);
      D[l] = ptx_bits32(i->flags & PTX_F_SAT ? (f > 0 ? f < 1 ? f : 1 : 0) : f);
    } else if (i->type == PTX_F64) {
      int saved = ptx_enter_rounding(i->round);
      volatile uint64_t held = v;
      volatile double f = is_signed ? (double)(int64_t)held : (double)held;
      ptx_leave_rounding(saved);
      D[l] = ptx_bits64(f);
    } else {
      /* Both halves of 64 bits are exact in f64, and their sum is rounded to odd: one rounding in all. */
      double upper = (is_signed ? (double)((int64_t)v >> 32) : (double)(v >> 32)) * 0x1p32;
      D[l] = narrow(i, (ptx_type)i->type, ptx_add_odd(upper, (double)(uint32_t)v));
    }
  }
}

static void int_to_int(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0);
  uint64_t *D = ptx_out(x, i, 0);
  ptx_type to = (ptx_type)i->type, from = (ptx_type)i->from;
  PTX_EACH(mask)
  {
    uint64_t v = extend(from, A[l]);
    D[l] = i->flags & PTX_F_SAT ? clamp_int(to, ptx_is_signed(from), v) : extend(to, v);
  }
}

/* Two floats to one word of two numbers; the first operand is the upper. */
static void pack_pair(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1);
  uint64_t *D = ptx_out(x, i, 0);
  bool bytes = i->type == PTX_E4M3X2 || i->type == PTX_E5M2X2;
  ptx_type t = i->type == PTX_F16X2 ? PTX_F16 : i->type == PTX_BF16X2 ? PTX_BF16 : (ptx_type)i->type;
  PTX_EACH(mask) D[l] = narrow(i, t, number(i, A[l])) << (bytes ? 8 : 16) | narrow(i, t, number(i, B[l]));
}

/* A word of two numbers to one of two others: fp8 from and to f16. */
static void convert_pair(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0);
  uint64_t *D = ptx_out(x, i, 0);
  PTX_EACH(mask)
  {
    if (i->from == PTX_F16X2) {
      D[l] = narrow(i, (ptx_type)i->type, ptx_f16(A[l] >> 16)) << 8 | narrow(i, (ptx_type)i->type, ptx_f16(A[l]));
    } else {
      ptx_format f = i->from == PTX_E4M3X2 ? ptx_fmt_e4m3 : ptx_fmt_e5m2;
      D[l] = narrow(i, PTX_F16, ptx_widen(A[l] >> 8 & 255, f)) << 16 | narrow(i, PTX_F16, ptx_widen(A[l] & 255, f));
    }
  }
}

ptx_handler *ptx_pick_convert(const ptx_inst *i)
{
  if (i->op != PTX_OP_cvt || i->types != 2) return NULL;
  ptx_type to = (ptx_type)i->type, from = (ptx_type)i->from;
  bool fp8 = to == PTX_E4M3X2 || to == PTX_E5M2X2;
  if (i->src_count == 2) return from == PTX_F32 && (to == PTX_F16X2 || to == PTX_BF16X2 || fp8) ? pack_pair : NULL;
  if (from == PTX_F16X2) return fp8 ? convert_pair : NULL;
  if (from == PTX_E4M3X2 || from == PTX_E5M2X2) return to == PTX_F16X2 ? convert_pair : NULL;
  if (to > PTX_F64 || from > PTX_F64 || from == PTX_TF32 || to == PTX_PRED || from == PTX_PRED) return NULL;
  if (ptx_is_float(from)) return to == PTX_TF32 && from != PTX_F32 ? NULL : float_to_any;
  return to == PTX_TF32 ? NULL : ptx_is_float(to) ? int_to_float : int_to_int;
}
