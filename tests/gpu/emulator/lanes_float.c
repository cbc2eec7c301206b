/* tests/gpu/emulator/lanes_float.c -- floating-point arithmetic, lane by lane.
 *
 * Results are rounded as PTX says.  The approximate functions (.approx, .full) are computed as exactly as the host can;
 * PTX only bounds their error, so a program must not depend on more than the bound.  f16 and bf16 are computed in f64,
 * in which sums of products are exact but for a rounding to odd, and rounded once. */
#include <config.h>

#include "internal.h"
#include "numbers.h"

#define EACH_LANE(...)                                           \
  const uint64_t *A = ptx_in(x, i, 0), *B = ptx_in(x, i, 1), *C = ptx_in(x, i, 2); \
  uint64_t *D = ptx_out(x, i, 0);                                \
  (void)B, (void)C;                                              \
  if (mask == ~0u) for (int l = 0; l < PTX_LANES; l++) __VA_ARGS__ \
  else PTX_EACH(mask) __VA_ARGS__

/* The common forms: rounded to nearest, no modifier. */
#define F32(name, expression)                                                                    \
  static void name(ptx_exec *x, const ptx_inst *i, uint32_t mask)                                \
  {                                                                                              \
    EACH_LANE({                                                                                  \
      float a = ptx_f32(A[l]), b = ptx_f32(B[l]), c = ptx_f32(C[l]);                             \
      (void)a, (void)b, (void)c;                                                                 \
      D[l] = ptx_bits32(expression);                                                             \
    })                                                                                           \
  }
#define F64(name, expression)                                                                    \
  static void name(ptx_exec *x, const ptx_inst *i, uint32_t mask)                                \
  {                                                                                              \
    EACH_LANE({                                                                                  \
      double a = ptx_f64(A[l]), b = ptx_f64(B[l]), c = ptx_f64(C[l]);                            \
      (void)a, (void)b, (void)c;                                                                 \
      D[l] = ptx_bits64(expression);                                                             \
    })                                                                                           \
  }
F32(add_f32, a + b)
F32(sub_f32, a - b)
F32(mul_f32, a * b)
F32(fma_f32, fmaf(a, b, c))
F32(div_f32, a / b)
F64(add_f64, a + b)
F64(sub_f64, a - b)
F64(mul_f64, a * b)
F64(fma_f64, fma(a, b, c))
F64(div_f64, a / b)

static uint64_t sign_bit(ptx_type t) { return 1ull << (ptx_bytes(t) * 8 - 1); }

static double number(ptx_type t, uint64_t v)
{
  return t == PTX_F32   ? (double)ptx_f32(v)
         : t == PTX_F64 ? ptx_f64(v)
         : t == PTX_F16 ? ptx_f16(v)
                        : (double)ptx_bf16(v);
}

static uint64_t bits(ptx_type t, double v)
{
  return t == PTX_F32   ? ptx_bits32((float)v)
         : t == PTX_F64 ? ptx_bits64(v)
         : t == PTX_F16 ? ptx_bits_f16(v)
                        : ptx_bits_bf16(v);
}

static uint64_t canonical_nan(ptx_type t)
{
  return t == PTX_F64 ? 0x7fffffffffffffffull : t == PTX_F32 ? PTX_NAN32 : PTX_NAN16;
}

/* Smaller or larger: a number wins over a NaN, unless .NaN; -0 is less than +0. */
static uint64_t extreme(const ptx_inst *i, ptx_type t, uint64_t a_bits, uint64_t b_bits)
{
  uint64_t sign = (a_bits ^ b_bits) & sign_bit(t);
  if (i->flags & PTX_F_XORSIGN) a_bits &= ~sign_bit(t), b_bits &= ~sign_bit(t);
  double a = number(t, a_bits), b = number(t, b_bits);
  if (i->flags & PTX_F_FTZ && t == PTX_F32) {
    a = (double)ptx_flush((float)a), b = (double)ptx_flush((float)b);
    a_bits = ptx_bits32((float)a), b_bits = ptx_bits32((float)b);
  }
  bool least = i->op == PTX_OP_min;
  if (a != a || b != b) {
    if (i->flags & PTX_F_NAN || (a != a && b != b)) return canonical_nan(t);
    a_bits = a != a ? b_bits : a_bits;
  } else if (a == b ? (signbit(a) != 0) != least : (a < b) != least) {
    a_bits = b_bits;
  }
  if (i->flags & PTX_F_XORSIGN) a_bits |= sign;
  if (i->flags & PTX_F_RELU && number(t, a_bits) < 0) a_bits = 0;
  return a_bits;
}

/* Functions whose exact value is not representable: computed in f64. */
static double function(const ptx_inst *i, double a)
{
  switch (i->op) {
  case PTX_OP_ex2: return exp2(a);
  case PTX_OP_lg2: return log2(a);
  case PTX_OP_sin: return sin(a);
  case PTX_OP_cos: return cos(a);
  case PTX_OP_tanh: return tanh(a);
  case PTX_OP_rsqrt: return 1 / sqrt(a);
  default: return NAN;
  }
}

static float single(const ptx_inst *i, float a, float b, float c)
{
  volatile float p = a, q = b, r = c; /* volatile: the operation stays between the changes of the rounding mode */
  switch (i->op) {
  case PTX_OP_add: return p + q;
  case PTX_OP_sub: return p - q;
  case PTX_OP_mul: return p * q;
  case PTX_OP_mad: case PTX_OP_fma: return fmaf(p, q, r);
  case PTX_OP_div: return p / q;
  case PTX_OP_rcp: return 1 / p;
  case PTX_OP_sqrt: return sqrtf(p);
  default: return (float)function(i, (double)p);
  }
}

static double twice(const ptx_inst *i, double a, double b, double c)
{
  volatile double p = a, q = b, r = c;
  switch (i->op) {
  case PTX_OP_add: return p + q;
  case PTX_OP_sub: return p - q;
  case PTX_OP_mul: return p * q;
  case PTX_OP_mad: case PTX_OP_fma: return fma(p, q, r);
  case PTX_OP_div: return p / q;
  case PTX_OP_rcp: return 1 / p;
  case PTX_OP_sqrt: return sqrt(p);
  default: return function(i, p);
  }
}

static double saturate(double v) { return v > 0 ? v < 1 ? v : 1 : 0; }

/* f16 and bf16: the exact result, or one rounded to odd, which `bits` rounds to nearest. */
static double half(const ptx_inst *i, double a, double b, double c)
{
  switch (i->op) {
  case PTX_OP_add: return ptx_add_odd(a, b);
  case PTX_OP_sub: return ptx_add_odd(a, -b);
  case PTX_OP_mul: return a * b;
  case PTX_OP_fma: return ptx_add_odd(a * b, c);
  default: return function(i, a);
  }
}

static uint64_t one(const ptx_inst *i, ptx_type t, uint64_t a_bits, uint64_t b_bits, uint64_t c_bits)
{
  if (i->op == PTX_OP_min || i->op == PTX_OP_max) return extreme(i, t, a_bits, b_bits);
  bool ftz = i->flags & PTX_F_FTZ && t == PTX_F32;
  if (i->op == PTX_OP_copysign) return (b_bits & ~sign_bit(t)) | (a_bits & sign_bit(t));
  if (i->op == PTX_OP_neg || i->op == PTX_OP_abs) {
    if (ftz) a_bits = ptx_bits32(ptx_flush(ptx_f32(a_bits)));
    return i->op == PTX_OP_neg ? a_bits ^ sign_bit(t) : a_bits & ~sign_bit(t) & (sign_bit(t) * 2 - 1);
  }
  double a = number(t, a_bits), b = number(t, b_bits), c = number(t, c_bits), r;
  if (ftz) a = (double)ptx_flush((float)a), b = (double)ptx_flush((float)b), c = (double)ptx_flush((float)c);
  int saved = ptx_enter_rounding(i->round);
  if (t == PTX_F32) r = (double)single(i, (float)a, (float)b, (float)c);
  else if (t == PTX_F64) r = twice(i, a, b, c);
  else r = half(i, a, b, c);
  ptx_leave_rounding(saved);
  if (ftz) r = (double)ptx_flush((float)r);
  if (i->flags & PTX_F_SAT) r = saturate(r);
  if (i->flags & PTX_F_RELU && r < 0) r = 0;
  uint64_t v = bits(t, r);
  /* rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 give the upper word only. */
  return i->flags & PTX_F_APPROX && t == PTX_F64 ? v & 0xffffffff00000000ull : v;
}

static void general(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  EACH_LANE({ D[l] = one(i, (ptx_type)i->type, A[l], B[l], C[l]); })
}

static void pairs(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  ptx_type t = i->type == PTX_F16X2 ? PTX_F16 : PTX_BF16;
  EACH_LANE({
    uint64_t lower = one(i, t, A[l] & 0xffff, B[l] & 0xffff, C[l] & 0xffff);
    uint64_t upper = one(i, t, A[l] >> 16 & 0xffff, B[l] >> 16 & 0xffff, C[l] >> 16 & 0xffff);
    D[l] = (lower & 0xffff) | (upper & 0xffff) << 16;
  })
}

static void test_property(ptx_exec *x, const ptx_inst *i, uint32_t mask)
{
  const uint64_t *A = ptx_in(x, i, 0);
  uint32_t r = 0;
  PTX_EACH(mask)
  {
    int k = i->type == PTX_F32 ? fpclassify(ptx_f32(A[l])) : fpclassify(ptx_f64(A[l]));
    bool is[] = {k != FP_NAN && k != FP_INFINITE, k == FP_INFINITE, k != FP_NAN, k == FP_NAN, k == FP_NORMAL, k == FP_SUBNORMAL};
    r |= (uint32_t)is[i->mode] << l;
  }
  ptx_out_pred(x, i, 0, mask, r);
}

static ptx_handler *quick(const ptx_inst *i)
{
  bool s = i->type == PTX_F32;
  switch (i->op) {
  case PTX_OP_add: return s ? add_f32 : add_f64;
  case PTX_OP_sub: return s ? sub_f32 : sub_f64;
  case PTX_OP_mul: return s ? mul_f32 : mul_f64;
  case PTX_OP_fma: return s ? fma_f32 : fma_f64;
  case PTX_OP_div: return s ? div_f32 : div_f64;
  default: return NULL;
  }
}

ptx_handler *ptx_pick_float(const ptx_inst *i)
{
  if (i->op == PTX_OP_testp) return i->type == PTX_F32 || i->type == PTX_F64 ? test_property : NULL;
  bool wide = i->type == PTX_F32 || i->type == PTX_F64, narrow = i->type == PTX_F16 || i->type == PTX_BF16;
  bool paired = i->type == PTX_F16X2 || i->type == PTX_BF16X2;
  if ((!wide && !narrow && !paired) || i->round > PTX_RP || (!wide && i->round > PTX_RN)) return NULL;
  switch (i->op) {
  case PTX_OP_add: case PTX_OP_sub: case PTX_OP_mul: case PTX_OP_fma: case PTX_OP_min: case PTX_OP_max: case PTX_OP_neg:
  case PTX_OP_abs: case PTX_OP_ex2: case PTX_OP_tanh: break;
  case PTX_OP_mad: case PTX_OP_div: case PTX_OP_rcp: case PTX_OP_sqrt: case PTX_OP_rsqrt: case PTX_OP_copysign:
  case PTX_OP_lg2: case PTX_OP_sin: case PTX_OP_cos:
    if (wide) break;
    return NULL;
  default: return NULL;
  }
  bool plain = wide && i->round <= PTX_RN && !(i->flags & ~(unsigned)(PTX_F_APPROX | PTX_F_FULL));
  ptx_handler *h = plain ? quick(i) : NULL;
  return h ? h : paired ? pairs : general;
}
