/* tests/gpu/emulator/lanes_bits.c -- operations on bits: logic, shifts, fields, permutations. */
#include <config.h>

#include "internal.h"

#define HANDLER(name, T, expression)                                                \
  static void name(ptx_exec *x, const ptx_inst *i, uint32_t mask)                   \
  {                                                                                 \
    const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1);                       \
    uint64_t *D = ptx_out(x, i, 0);                                                 \
    PTX_EACH(mask) {                                                                \
      T a = (T)A[l];                                                                \
      uint64_t b = B[l];                                                            \
      (void)b;                                                                      \
      D[l] = (uint64_t)(expression);                                                \
    }                                                                               \
  }

HANDLER(and_all, uint64_t, a & b)
HANDLER(or_all, uint64_t, a | b)
HANDLER(xor_all, uint64_t, a ^ b)
HANDLER(not_all, uint64_t, ~a)
HANDLER(cnot_16, uint16_t, a == 0)
HANDLER(cnot_32, uint32_t, a == 0)
HANDLER(cnot_64, uint64_t, a == 0)
HANDLER(popc_32, uint32_t, __builtin_popcount(a))
HANDLER(popc_64, uint64_t, __builtin_popcountll(a))
HANDLER(clz_32, uint32_t, a ? __builtin_clz(a) : 32)
HANDLER(clz_64, uint64_t, a ? __builtin_clzll(a) : 64)
/* A shift by the width or more gives 0, or copies of the sign. */
HANDLER(shl_16, uint16_t, (uint32_t)b > 15 ? 0 : (uint16_t)(a << (uint32_t)b))
HANDLER(shl_32, uint32_t, (uint32_t)b > 31 ? 0 : a << (uint32_t)b)
HANDLER(shl_64, uint64_t, (uint32_t)b > 63 ? 0 : a << (uint32_t)b)
HANDLER(shr_U16, uint16_t, (uint32_t)b > 15 ? 0 : a >> (uint32_t)b)
HANDLER(shr_U32, uint32_t, (uint32_t)b > 31 ? 0 : a >> (uint32_t)b)
HANDLER(shr_U64, uint64_t, (uint32_t)b > 63 ? 0 : a >> (uint32_t)b)
HANDLER(shr_S16, int16_t, a >> ((uint32_t)b > 15 ? 15 : (uint32_t)b))
HANDLER(shr_S32, int32_t, a >> ((uint32_t)b > 31 ? 31 : (uint32_t)b))
HANDLER(shr_S64, int64_t, a >> ((uint32_t)b > 63 ? 63 : (uint32_t)b))

static uint64_t low(int bits, uint64_t v) { return bits >= 64 ? v : v & ((1ull << bits) - 1); }
static uint64_t reverse(uint64_t v, int bits)
{
  uint64_t r = 0;
  for (int n = 0; n < bits; n++) r |= (v >> n & 1) << (bits - 1 - n);
  return r;
}
HANDLER(brev_32, uint32_t, reverse(a, 32))
HANDLER(brev_64, uint64_t, reverse(a, 64))

/* shf: the words b:a as one of 64 bits, shifted by c. */
static void funnel(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2);
  uint64_t *D = ptx_out(x, i, 0);
  PTX_EACH(mask)
  {
    uint64_t v = (uint32_t)A[l] | (uint64_t)(uint32_t)B[l] << 32;
    uint32_t n = (uint32_t)C[l];
    n = i->flags & PTX_F_WRAP ? n & 31 : n > 32 ? 32 : n;
    D[l] = (uint32_t)(i->flags & PTX_F_LEFT ? v << n >> 32 : v >> n);
  }
}

static uint64_t extract(uint64_t a, unsigned at, unsigned length, int bits, bool is_signed)
{
  if (length == 0) return 0;
  a = low(bits, a);
  unsigned last = at + length - 1 < (unsigned)bits ? at + length - 1 : (unsigned)bits - 1;
  bool sign = is_signed && a >> last & 1;
  uint64_t r = at >= (unsigned)bits ? 0 : low((int)length, a >> at);
  unsigned kept = at >= (unsigned)bits ? 0 : last - at + 1;
  if (sign && kept < 64) r |= ~0ull << kept;
  return low(bits, r);
}

static void field_extract(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2);
  uint64_t *D = ptx_out(x, i, 0);
  PTX_EACH(mask) D[l] = extract(A[l], B[l] & 255, C[l] & 255, ptx_bytes(i->type) * 8, ptx_is_signed(i->type));
}

static void field_insert(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2), *E = ptx_in(x, i, 3);
  uint64_t *D = ptx_out(x, i, 0);
  int bits = ptx_bytes(i->type) * 8;
  PTX_EACH(mask)
  {
    unsigned at = C[l] & 255, length = E[l] & 255;
    uint64_t field = at >= (unsigned)bits ? 0 : low((int)length, ~0ull) << at;
    D[l] = low(bits, (B[l] & ~field) | (at >= 64 ? 0 : A[l] << at & field));
  }
}

/* The highest bit that differs from the sign. */
static void find_highest(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0);
  uint64_t *D = ptx_out(x, i, 0);
  int bits = ptx_bytes(i->type) * 8;
  PTX_EACH(mask)
  {
    uint64_t a = low(bits, A[l]);
    if (ptx_is_signed(i->type) && a >> (bits - 1) & 1) a = low(bits, ~a);
    uint32_t at = a ? 63 - (uint32_t)__builtin_clzll(a) : ~0u;
    D[l] = a && i->flags & PTX_F_SHIFTAMT ? (uint32_t)bits - 1 - at : at;
  }
}

/* Four bytes out of eight.  The named modes are the selectors below for each value of the low two bits of c. */
static const uint16_t permutations[7][4] = {
  {0}, {0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123}, {0x0000, 0x1111, 0x2222, 0x3333},
  {0x3210, 0x3211, 0x3222, 0x3333}, {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};
static void permute(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2);
  uint64_t *D = ptx_out(x, i, 0);
  PTX_EACH(mask)
  {
    uint64_t v = (uint32_t)A[l] | (uint64_t)(uint32_t)B[l] << 32, r = 0;
    uint32_t selector = i->mode ? permutations[i->mode][C[l] & 3] : (uint32_t)C[l];
    for (int n = 0; n < 4; n++) {
      uint32_t s = selector >> (4 * n) & 15;
      uint64_t byte = v >> (8 * (s & 7)) & 255;
      if (s & 8) byte = byte & 0x80 ? 0xff : 0;
      r |= byte << (8 * n);
    }
    D[l] = r;
  }
}

/* Any function of three bits: the immediate has its value for each combination. */
static void logic_of_three(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2), *E = ptx_in(x, i, 3);
  uint64_t *D = ptx_out(x, i, 0);
  PTX_EACH(mask)
  {
    uint32_t r = 0, a = (uint32_t)A[l], b = (uint32_t)B[l], c = (uint32_t)C[l];
    for (int n = 0; n < 8; n++)
      if (E[l] >> n & 1) r |= (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c);
    D[l] = r;
  }
}

/* bmsk: ones from bit a, b of them.  szext: sign or zero extension from bit b. */
static void mask_or_extend(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1);
  uint64_t *D = ptx_out(x, i, 0);
  PTX_EACH(mask)
  {
    uint32_t a = (uint32_t)A[l], b = (uint32_t)B[l];
    if (i->flags & PTX_F_WRAP) b &= 31, a = i->op == PTX_OP_bmsk ? a & 31 : a;
    if (b > 32) b = 32;
    if (i->op == PTX_OP_bmsk) D[l] = a > 31 ? 0 : (uint32_t)(low((int)b, ~0ull) << a);
    else D[l] = extract(a, 0, b, 32, i->type == PTX_S32);
  }
}

ptx_handler *ptx_pick_bits(const ptx_inst *i)
{
  if (i->type == PTX_NOTYPE || i->type == PTX_PRED || ptx_is_float(i->type)) return NULL;
  int bytes = ptx_bytes(i->type);
  bool is_signed = ptx_is_signed(i->type);
  switch (i->op) {
  case PTX_OP_and: return and_all;
  case PTX_OP_or: return or_all;
  case PTX_OP_xor: return xor_all;
  case PTX_OP_not: return not_all;
  case PTX_OP_cnot: return bytes == 2 ? cnot_16 : bytes == 4 ? cnot_32 : cnot_64;
  case PTX_OP_popc: return bytes == 4 ? popc_32 : popc_64;
  case PTX_OP_clz: return bytes == 4 ? clz_32 : clz_64;
  case PTX_OP_brev: return bytes == 4 ? brev_32 : brev_64;
  case PTX_OP_shl: return bytes == 2 ? shl_16 : bytes == 4 ? shl_32 : shl_64;
  case PTX_OP_shr:
    if (is_signed) return bytes == 2 ? shr_S16 : bytes == 4 ? shr_S32 : shr_S64;
    return bytes == 2 ? shr_U16 : bytes == 4 ? shr_U32 : shr_U64;
  case PTX_OP_shf: return funnel;
  case PTX_OP_bfe: return bytes >= 4 ? field_extract : NULL;
  case PTX_OP_bfi: return bytes >= 4 ? field_insert : NULL;
  case PTX_OP_bfind: return bytes >= 4 ? find_highest : NULL;
  case PTX_OP_prmt: return permute;
  case PTX_OP_lop3: return i->src_count == 4 ? logic_of_three : NULL;
  case PTX_OP_bmsk: case PTX_OP_szext: return mask_or_extend;
  default: return NULL;
  }
}
