/* collective/host/reduce.c -- one loop for each type and reduction, made by macros; narrow floats go through f32. */
#include <config.h>

#include "collective/host/reduce.h"

#include <string.h>

#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#pragma GCC optimize("O3") /* the loops below are all the arithmetic of this module: vectorize them in every build */
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#define FOLD_BLOCK_BYTES 8192

/* ---- scalar operations ---- */

/* IEEE 754-2019 minimum and maximum: NaN wins, -0 < +0. */
#define FLOAT_EXTREMES(T, U)                                    \
  static inline T min_##T(T a, T b)                             \
  {                                                             \
    union { T f; U u; } x = {a}, y = {b};                       \
    x.u |= a == b ? y.u : 0;                                    \
    return a != a || a < b || a == b ? x.f : b;                 \
  }                                                             \
  static inline T max_##T(T a, T b)                             \
  {                                                             \
    union { T f; U u; } x = {a}, y = {b};                       \
    x.u &= a == b ? y.u : ~(U)0;                                \
    return a != a || a > b || a == b ? x.f : b;                 \
  }
FLOAT_EXTREMES(float, uint32_t)
FLOAT_EXTREMES(double, uint64_t)

#define LOOP(name, T, expr)                                                                 \
  static void name(void *dst_, const void *a_, const void *b_, size_t count)                \
  {                                                                                         \
    T *dst = dst_;                                                                          \
    const T *as = a_, *bs = b_;                                                             \
    INDEPENDENT for (size_t i = 0; i < count; i++)                                          \
    {                                                                                       \
      T a = as[i], b = bs[i];                                                               \
      dst[i] = (T)(expr);                                                                   \
    }                                                                                       \
  }

/* Integers wrap: unsigned arithmetic of at least the type's width. */
#define INTEGER_LOOPS(T, W)                     \
  LOOP(sum_##T, T, (W)a + (W)b)                 \
  LOOP(product_##T, T, (W)a * (W)b)             \
  LOOP(min_loop_##T, T, a < b ? a : b)          \
  LOOP(max_loop_##T, T, a > b ? a : b)          \
  LOOP(and_##T, T, a & b)                       \
  LOOP(or_##T, T, a | b)                        \
  LOOP(xor_##T, T, a ^ b)
INTEGER_LOOPS(int8_t, uint32_t)
INTEGER_LOOPS(int16_t, uint32_t)
INTEGER_LOOPS(int32_t, uint32_t)
INTEGER_LOOPS(int64_t, uint64_t)
INTEGER_LOOPS(uint8_t, uint32_t)
INTEGER_LOOPS(uint16_t, uint32_t)
INTEGER_LOOPS(uint32_t, uint32_t)
INTEGER_LOOPS(uint64_t, uint64_t)

#define FLOAT_LOOPS(T)                          \
  LOOP(sum_##T, T, a + b)                       \
  LOOP(product_##T, T, a * b)                   \
  LOOP(min_loop_##T, T, min_##T(a, b))          \
  LOOP(max_loop_##T, T, max_##T(a, b))
FLOAT_LOOPS(float)
FLOAT_LOOPS(double)

#define COMPLEX_LOOPS(T)                                                                            \
  static void complex_sum_##T(void *dst, const void *a, const void *b, size_t count)                \
  {                                                                                                 \
    sum_##T(dst, a, b, 2 * count);                                                                  \
  }                                                                                                 \
  static void complex_product_##T(void *dst_, const void *a_, const void *b_, size_t count)         \
  {                                                                                                 \
    T *dst = dst_;                                                                                  \
    const T *a = a_, *b = b_;                                                                       \
    for (size_t i = 0; i < 2 * count; i += 2) {                                                     \
      T re = a[i] * b[i] - a[i + 1] * b[i + 1], im = a[i] * b[i + 1] + a[i + 1] * b[i];             \
      dst[i] = re;                                                                                  \
      dst[i + 1] = im;                                                                              \
    }                                                                                               \
  }
COMPLEX_LOOPS(float)
COMPLEX_LOOPS(double)

/* Integers of 1, 2 and 4 bits, each in a byte: signed ones are sign-extended, unsigned ones have upper bits of zero. */
#define WRAP_SIGNED(x, bits) ((int8_t)((uint8_t)((unsigned)(x) << (8 - (bits)))) >> (8 - (bits)))
#define WRAP_UNSIGNED(x, bits) ((unsigned)(x) & ((1u << (bits)) - 1))
#define SMALL_LOOPS(name, T, bits, wrap)                                        \
  LOOP(sum_##name, T, wrap((unsigned)a + (unsigned)b, bits))                    \
  LOOP(product_##name, T, wrap((unsigned)a * (unsigned)b, bits))
SMALL_LOOPS(s1, int8_t, 1, WRAP_SIGNED)
SMALL_LOOPS(s2, int8_t, 2, WRAP_SIGNED)
SMALL_LOOPS(s4, int8_t, 4, WRAP_SIGNED)
SMALL_LOOPS(u1, uint8_t, 1, WRAP_UNSIGNED)
SMALL_LOOPS(u2, uint8_t, 2, WRAP_UNSIGNED)
SMALL_LOOPS(u4, uint8_t, 4, WRAP_UNSIGNED)

typedef void combine_fn(void *dst, const void *a, const void *b, size_t count);

/* Columns WEFT_SUM .. WEFT_XOR.  NULL: the type has no such reduction, or it goes through f32 (floats narrower than
 * f32). */
#define INTEGER_ROW(T) {sum_##T, product_##T, min_loop_##T, max_loop_##T, and_##T, or_##T, xor_##T}
#define SMALL_ROW(name, T) {sum_##name, product_##name, min_loop_##T, max_loop_##T, and_##T, or_##T, xor_##T}
#define FLOAT_ROW(T) {sum_##T, product_##T, min_loop_##T, max_loop_##T}
static combine_fn *const combines[WEFT_DTYPE_COUNT][7] = {
  [WEFT_PRED] = {or_uint8_t, and_uint8_t, and_uint8_t, or_uint8_t, and_uint8_t, or_uint8_t, xor_uint8_t},
  [WEFT_S1] = SMALL_ROW(s1, int8_t),
  [WEFT_S2] = SMALL_ROW(s2, int8_t),
  [WEFT_S4] = SMALL_ROW(s4, int8_t),
  [WEFT_U1] = SMALL_ROW(u1, uint8_t),
  [WEFT_U2] = SMALL_ROW(u2, uint8_t),
  [WEFT_U4] = SMALL_ROW(u4, uint8_t),
  [WEFT_S8] = INTEGER_ROW(int8_t),
  [WEFT_S16] = INTEGER_ROW(int16_t),
  [WEFT_S32] = INTEGER_ROW(int32_t),
  [WEFT_S64] = INTEGER_ROW(int64_t),
  [WEFT_U8] = INTEGER_ROW(uint8_t),
  [WEFT_U16] = INTEGER_ROW(uint16_t),
  [WEFT_U32] = INTEGER_ROW(uint32_t),
  [WEFT_U64] = INTEGER_ROW(uint64_t),
  [WEFT_F32] = FLOAT_ROW(float),
  [WEFT_F64] = FLOAT_ROW(double),
  [WEFT_C64] = {complex_sum_float, complex_product_float},
  [WEFT_C128] = {complex_sum_double, complex_product_double},
};

static bool through_f32(weft_dtype dtype) { return weft_dtype_is_float(dtype) && !combines[dtype][0]; }

/* ---- narrow floats ---- */

static void decode(weft_dtype dtype, float *out, const void *in, size_t count)
{
  const uint16_t *wide = in;
  const uint8_t *narrow = in;

  if (dtype == WEFT_BF16) {
    INDEPENDENT for (size_t i = 0; i < count; i++)
    {
      uint32_t bits = (uint32_t)wide[i] << 16;
      memcpy(&out[i], &bits, sizeof bits);
    }
    return;
  }
  for (size_t i = 0; i < count; i++) out[i] = weft_float_decode(dtype, dtype == WEFT_F16 ? wide[i] : narrow[i]);
}

static void encode(weft_dtype dtype, void *out, const float *in, size_t count)
{
  uint16_t *wide = out;
  uint8_t *narrow = out;

  if (dtype == WEFT_BF16) {
    INDEPENDENT for (size_t i = 0; i < count; i++)
    {
      uint32_t bits;
      memcpy(&bits, &in[i], sizeof bits);
      uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
      wide[i] = (uint16_t)(in[i] != in[i] ? (bits >> 16) | 0x40 : rounded);
    }
    return;
  }
  for (size_t i = 0; i < count; i++) {
    uint64_t bits = weft_float_encode(dtype, in[i]);
    if (dtype == WEFT_F16) wide[i] = (uint16_t)bits;
    else narrow[i] = (uint8_t)bits;
  }
}

/* ---- the three ways to combine one block ---- */

enum { F32_BLOCK = FOLD_BLOCK_BYTES / sizeof(float) };

static void combine_block(const coll_reducer *r, void *dst, const void *a, const void *b, size_t count)
{
  float x[F32_BLOCK], y[F32_BLOCK];

  if (r->combine) {
    r->combine(dst, a, b, count);
  } else if (r->reduction == WEFT_CUSTOM) {
    /* acc = f(acc, in) needs `a` in acc: a copy, as dst need not be a */
    char acc[FOLD_BLOCK_BYTES];
    memcpy(acc, a, count * r->elem_bytes);
    r->custom.fn(r->custom.ctx, acc, b, count);
    memcpy(dst, acc, count * r->elem_bytes);
  } else {
    decode(r->dtype, x, a, count);
    decode(r->dtype, y, b, count);
    combines[WEFT_F32][r->reduction - WEFT_SUM](x, x, y, count);
    encode(r->dtype, dst, x, count);
  }
}

static size_t block_elems(const coll_reducer *r)
{
  return through_f32(r->dtype) ? F32_BLOCK : FOLD_BLOCK_BYTES / r->elem_bytes;
}

void coll_reduce(const coll_reducer *r, void *dst, const void *a, const void *b, size_t bytes)
{
  size_t count = bytes / r->elem_bytes, block = block_elems(r);

  if (r->combine) {
    r->combine(dst, a, b, count);
    return;
  }
  for (size_t i = 0; i < count; i += block) {
    size_t at = i * r->elem_bytes;
    combine_block(r, (char *)dst + at, (const char *)a + at, (const char *)b + at, WEFT_MIN(block, count - i));
  }
}

void coll_fold(const coll_reducer *r, void *const *dsts, int dst_count, const void *const *parts, int part_count,
               size_t start, size_t bytes)
{
  size_t count = bytes / r->elem_bytes, block = block_elems(r);
  bool wide = through_f32(r->dtype) && r->reduction != WEFT_CUSTOM;
  _Alignas(64) char acc[FOLD_BLOCK_BYTES];
  float sum[F32_BLOCK], term[F32_BLOCK];

  if (part_count == 2 && dst_count == 1) {
    coll_reduce(r, (char *)dsts[0] + start, (const char *)parts[0] + start, (const char *)parts[1] + start, bytes);
    return;
  }
  for (size_t i = 0; i < count; i += block) {
    size_t at = start + i * r->elem_bytes, n = WEFT_MIN(block, count - i);
    const char *first = (const char *)parts[0] + at;

    if (wide && part_count > 1) {
      decode(r->dtype, sum, first, n);
      for (int k = 1; k < part_count; k++) {
        decode(r->dtype, term, (const char *)parts[k] + at, n);
        combines[WEFT_F32][r->reduction - WEFT_SUM](sum, sum, term, n);
      }
      encode(r->dtype, acc, sum, n);
    } else if (part_count > 1) {
      combine_block(r, acc, first, (const char *)parts[1] + at, n);
      for (int k = 2; k < part_count; k++) combine_block(r, acc, acc, (const char *)parts[k] + at, n);
    } else {
      memcpy(acc, first, n * r->elem_bytes);
    }
    for (int k = 0; k < dst_count; k++) memcpy((char *)dsts[k] + at, acc, n * r->elem_bytes);
  }
}

weft_status *coll_reducer_init(coll_reducer *r, weft_dtype dtype, weft_reduction reduction, const weft_reducer *custom)
{
  *r = (coll_reducer){.dtype = dtype, .reduction = reduction, .elem_bytes = weft_dtype_bytes(dtype)};
  if (reduction == WEFT_CUSTOM) {
    if (!custom || !custom->fn) return WEFT_ERR(INVALID_ARGUMENT, "a custom reduction without a reducer");
    r->custom = *custom;
    return NULL;
  }
  if (reduction > WEFT_REDUCE_NONE && reduction < WEFT_CUSTOM) {
    r->combine = combines[dtype][reduction - WEFT_SUM];
    if (r->combine || (through_f32(dtype) && reduction <= WEFT_MAX)) return NULL;
  }
  return WEFT_ERR(INVALID_ARGUMENT, "no reduction \"%s\" of %s", weft_reduction_name(reduction),
                  weft_dtype_name(dtype));
}
