/* tests/gpu/emulator/lanes_int.c -- integer arithmetic, lane by lane.
 *
 * A handler is made of an expression over a, b and c, which have the instruction's type.  The rows hold 64 bits; what
 * an expression leaves above the width of its type is never read.  Division by zero gives all ones and its remainder
 * the dividend, as on the device, where PTX says "unspecified". */
#include <config.h>

#include "internal.h"

#define HANDLER(name, T, expression)                                                \
  static void name(ptx_exec *x, const ptx_inst *i, uint32_t mask)                   \
  {                                                                                 \
    const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2); \
    uint64_t *D = ptx_out(x, i, 0);                                                 \
    if (mask == ~0u)                                                                \
      for (int l = 0; l < PTX_LANES; l++) {                                         \
        T a = (T)A[l], b = (T)B[l], c = (T)C[l];                                    \
        (void)a, (void)b, (void)c;                                                  \
        D[l] = (uint64_t)(expression);                                              \
      }                                                                             \
    else                                                                            \
      PTX_EACH(mask) {                                                              \
        T a = (T)A[l], b = (T)B[l], c = (T)C[l];                                    \
        (void)a, (void)b, (void)c;                                                  \
        D[l] = (uint64_t)(expression);                                              \
      }                                                                             \
  }

typedef unsigned __int128 u128;
typedef __int128 s128;

/* X(type, C type, unsigned C type, a C type of twice the width, bits) */
#define INTS(X) \
  X(U16, uint16_t, uint16_t, uint32_t, 16) X(U32, uint32_t, uint32_t, uint64_t, 32) X(U64, uint64_t, uint64_t, u128, 64) \
  X(S16, int16_t, uint16_t, int32_t, 16) X(S32, int32_t, uint32_t, int64_t, 32) X(S64, int64_t, uint64_t, s128, 64)

/* Sums and products are of the unsigned type: they wrap. */
#define ARITHMETIC(E, T, U, W, bits)                                                                          \
  HANDLER(add_##E, U, (U)(a + b))                                                                             \
  HANDLER(sub_##E, U, (U)(a - b))                                                                             \
  HANDLER(mul_lo_##E, U, (U)((uint64_t)a * b))                                                                \
  HANDLER(mul_hi_##E, T, (U)(((W)a * (W)b) >> bits))                                                          \
  HANDLER(mul_wide_##E, T, (W)a * (W)b)                                                                       \
  HANDLER(mad_lo_##E, U, (U)((uint64_t)a * b + c))                                                            \
  HANDLER(mad_hi_##E, T, (U)((U)(((W)a * (W)b) >> bits) + (U)c))                                              \
  HANDLER(div_##E, T, b == 0 ? (T)-1 : b == (T)-1 && (T)-1 < (T)1 ? (T)(0 - (U)a) : (T)(a / b))               \
  HANDLER(rem_##E, T, b == 0 ? a : b == (T)-1 && (T)-1 < (T)1 ? (T)0 : (T)(a % b))                            \
  HANDLER(min_##E, T, a < b ? a : b)                                                                          \
  HANDLER(max_##E, T, a > b ? a : b)                                                                          \
  HANDLER(abs_##E, T, a < (T)1 ? (U)(0 - (U)a) : (U)a)                                                        \
  HANDLER(neg_##E, U, (U)(0 - a))                                                                             \
  HANDLER(sad_##E, T, (U)((a < b ? (U)b - (U)a : (U)a - (U)b) + (U)c))
INTS(ARITHMETIC)

/* mad.wide adds a number of twice the width. */
#define WIDE(name, T, W)                                                                      \
  static void name(ptx_exec *x, const ptx_inst *i, uint32_t mask)                             \
  {                                                                                           \
    const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2);           \
    uint64_t *D = ptx_out(x, i, 0);                                                           \
    PTX_EACH(mask) D[l] = (uint64_t)((W)(T)A[l] * (W)(T)B[l]) + C[l];                          \
  }
WIDE(mad_wide_U16, uint16_t, uint32_t)
WIDE(mad_wide_S16, int16_t, int32_t)
WIDE(mad_wide_U32, uint32_t, uint64_t)
WIDE(mad_wide_S32, int32_t, int64_t)

HANDLER(mul24_lo_U32, uint32_t, (a & 0xffffff) * (b & 0xffffff))
HANDLER(mul24_hi_U32, uint32_t, (uint32_t)((uint64_t)(a & 0xffffff) * (b & 0xffffff) >> 16))
HANDLER(mul24_lo_S32, uint32_t, (uint32_t)(((int32_t)(a << 8) >> 8) * (int64_t)((int32_t)(b << 8) >> 8)))
HANDLER(mul24_hi_S32, uint32_t, (uint32_t)(((int32_t)(a << 8) >> 8) * (int64_t)((int32_t)(b << 8) >> 8) >> 16))
HANDLER(mad24_lo_U32, uint32_t, (a & 0xffffff) * (b & 0xffffff) + c)
HANDLER(mad24_lo_S32, uint32_t, (uint32_t)(((int32_t)(a << 8) >> 8) * (int64_t)((int32_t)(b << 8) >> 8)) + c)

static int32_t clamp32(int64_t v) { return v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : (int32_t)v; }
HANDLER(add_sat_S32, int32_t, (uint32_t)clamp32((int64_t)a + b))
HANDLER(sub_sat_S32, int32_t, (uint32_t)clamp32((int64_t)a - b))
HANDLER(mad_sat_S32, int32_t, (uint32_t)clamp32(((int64_t)a * b >> 32) + c))   /* mad.hi.sat */

/* Sums with carry.  The carry is a row; subtraction keeps a borrow there. */
static void carried(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2);
  uint64_t *D = ptx_out(x, i, 0), *carry = x->warp->rows[PTX_SR_CARRY];
  bool takes = i->op == PTX_OP_addc || i->op == PTX_OP_subc || i->op == PTX_OP_madc;
  bool minus = i->op == PTX_OP_sub || i->op == PTX_OP_subc, product = i->op == PTX_OP_mad || i->op == PTX_OP_madc;
  int bits = ptx_bytes(i->type) * 8;
  uint64_t all = bits == 64 ? ~0ull : (1ull << bits) - 1;
  PTX_EACH(mask)
  {
    uint64_t a = A[l] & all, b = B[l] & all;
    if (product) {
      u128 r = ptx_is_signed(i->type) && i->mode == PTX_HI
                 ? (u128)((s128)(bits == 64 ? (int64_t)a : (int32_t)a) * (bits == 64 ? (int64_t)b : (int32_t)b))
                 : (u128)a * b;
      a = (uint64_t)(i->mode == PTX_HI ? r >> bits : r) & all, b = C[l] & all;
    }
    uint64_t in = takes ? carry[l] & 1 : 0;
    u128 r = minus ? (u128)a - b - in : (u128)a + b + in;
    D[l] = (uint64_t)r & all;
    if (i->flags & PTX_F_CC) carry[l] = (uint64_t)(r >> bits) & 1;
  }
}

/* Sums of products of the bytes (dp4a) or halves and bytes (dp2a) of two words. */
static void dot_product(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2);
  uint64_t *D = ptx_out(x, i, 0);
  bool sa = i->type == PTX_S32, sb = i->from == PTX_S32, four = i->op == PTX_OP_dp4a;
  PTX_EACH(mask)
  {
    uint32_t a = (uint32_t)A[l], b = (uint32_t)B[l], sum = (uint32_t)C[l];
    if (!four && i->mode == PTX_HI) b >>= 16;
    for (int n = 0; n < (four ? 4 : 2); n++) {
      uint32_t u = four ? a >> (8 * n) & 255 : a >> (16 * n) & 0xffff, v = b >> (8 * n) & 255;
      int32_t p = four ? sa ? (int8_t)u : (int32_t)u : sa ? (int16_t)u : (int32_t)u, q = sb ? (int8_t)v : (int32_t)v;
      sum += (uint32_t)(p * q);
    }
    D[l] = sum;
  }
}

typedef struct entry { uint8_t op, mode, type; ptx_handler *run; } entry;
#define ENTRIES(E, T, U, W, bits)                                                                                            \
  {PTX_OP_add, 0, PTX_##E, add_##E}, {PTX_OP_sub, 0, PTX_##E, sub_##E}, {PTX_OP_mul, PTX_LO, PTX_##E, mul_lo_##E},            \
  {PTX_OP_mul, PTX_HI, PTX_##E, mul_hi_##E}, {PTX_OP_mad, PTX_LO, PTX_##E, mad_lo_##E},                                       \
  {PTX_OP_mad, PTX_HI, PTX_##E, mad_hi_##E}, {PTX_OP_div, 0, PTX_##E, div_##E}, {PTX_OP_rem, 0, PTX_##E, rem_##E},            \
  {PTX_OP_min, 0, PTX_##E, min_##E}, {PTX_OP_max, 0, PTX_##E, max_##E}, {PTX_OP_abs, 0, PTX_##E, abs_##E},                    \
  {PTX_OP_neg, 0, PTX_##E, neg_##E}, {PTX_OP_sad, 0, PTX_##E, sad_##E}, {PTX_OP_mul, PTX_WIDE, PTX_##E, mul_wide_##E},
static const entry entries[] = {INTS(ENTRIES)
  {PTX_OP_mad, PTX_WIDE, PTX_U16, mad_wide_U16}, {PTX_OP_mad, PTX_WIDE, PTX_S16, mad_wide_S16},
  {PTX_OP_mad, PTX_WIDE, PTX_U32, mad_wide_U32}, {PTX_OP_mad, PTX_WIDE, PTX_S32, mad_wide_S32},
  {PTX_OP_mul24, PTX_LO, PTX_U32, mul24_lo_U32}, {PTX_OP_mul24, PTX_HI, PTX_U32, mul24_hi_U32},
  {PTX_OP_mul24, PTX_LO, PTX_S32, mul24_lo_S32}, {PTX_OP_mul24, PTX_HI, PTX_S32, mul24_hi_S32},
  {PTX_OP_mad24, PTX_LO, PTX_U32, mad24_lo_U32}, {PTX_OP_mad24, PTX_LO, PTX_S32, mad24_lo_S32}};

ptx_handler *ptx_pick_int(const ptx_inst *i)
{
  if (i->op == PTX_OP_dp4a || i->op == PTX_OP_dp2a) return i->src_count == 3 ? dot_product : NULL;
  uint8_t type = i->type == PTX_B16 ? PTX_U16 : i->type == PTX_B32 ? PTX_U32 : i->type == PTX_B64 ? PTX_U64 : i->type;
  if (ptx_is_float((ptx_type)type) || type < PTX_U8) return NULL;
  bool chain = i->op == PTX_OP_addc || i->op == PTX_OP_subc || i->op == PTX_OP_madc;
  if (chain || i->flags & PTX_F_CC) return ptx_bytes((ptx_type)type) >= 4 && i->mode != PTX_WIDE ? carried : NULL;
  if (i->flags & PTX_F_SAT) {
    if (type != PTX_S32) return NULL;
    return i->op == PTX_OP_add                        ? add_sat_S32
           : i->op == PTX_OP_sub                      ? sub_sat_S32
           : i->op == PTX_OP_mad && i->mode == PTX_HI ? mad_sat_S32
                                                      : NULL;
  }
  for (size_t n = 0; n < sizeof entries / sizeof *entries; n++)
    if (entries[n].op == i->op && entries[n].mode == i->mode && entries[n].type == type)
      return i->mode == PTX_WIDE && ptx_bytes((ptx_type)type) > 4 ? NULL : entries[n].run;
  return NULL;
}
