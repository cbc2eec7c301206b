/* cpu/convert.c -- converts rows of elements from one type to another, for packing the panels of the matrix kernels. */
#include <config.h>

#include <pthread.h>
#include <string.h>
#if defined __x86_64__
#include <immintrin.h>
#endif

#include "codegen/model/processor.h"
#include "cpu/gemm.h"
#include "cpu/hot.h"
#include "hlo/literal.h"

static void convert_any(weft_dtype to, char *dst, weft_dtype from, const char *src, int64_t step, int64_t count)
{
  int64_t from_bytes = (int64_t)weft_dtype_bytes(from), to_bytes = (int64_t)weft_dtype_bytes(to);
  hlo_shape in = HLO_SCALAR_SHAPE(from), out = HLO_SCALAR_SHAPE(to);

  for (int64_t i = 0; i < count; i++) {
    hlo_literal x = {.shape = &in, .data = (void *)(src + i * step * from_bytes)};
    hlo_literal y = {.shape = &out, .data = dst + i * to_bytes};
    if (weft_dtype_is_float(from) || weft_dtype_is_complex(from))
      hlo_literal_set_f64(&y, 0, hlo_literal_get_f64(&x, 0), hlo_literal_get_imag(&x, 0));
    else hlo_literal_set_s64(&y, 0, hlo_literal_get_s64(&x, 0));
  }
}

/* to[i] = from[i * step]. Every second element is a loop of its own, for vectors. */
#define COPY(name, type)                                                                            \
  static CPU_HOT void name(type *restrict to, const type *restrict from, int64_t step, int64_t count) \
  {                                                                                                 \
    if (step == 2)                                                                                  \
      for (int64_t i = 0; i < count; i++) to[i] = from[2 * i];                                      \
    else                                                                                            \
      for (int64_t i = 0; i < count; i++) to[i] = from[i * step];                                   \
  }
COPY(copy_1, uint8_t)
COPY(copy_2, uint16_t)
COPY(copy_4, uint32_t)
COPY(copy_8, uint64_t)
typedef struct two_words { uint64_t v[2]; } two_words;
COPY(copy_16, two_words)
#undef COPY

static void copy(void *dst, const void *src, int64_t bytes, int64_t step, int64_t count)
{
  if (step == 1) {
    memcpy(dst, src, (size_t)(bytes * count));
    return;
  }
  switch (bytes) {
  case 1: copy_1(dst, src, step, count); return;
  case 2: copy_2(dst, src, step, count); return;
  case 4: copy_4(dst, src, step, count); return;
  case 8: copy_8(dst, src, step, count); return;
  case 16: copy_16(dst, src, step, count); return;
  }
}

/* The pairs of types that matter for speed, as loops that vectorise. `READ` gives a value from element p. */
#define LOOP(in_type, out_type, READ)                             \
  do {                                                            \
    const in_type *restrict s = src;                              \
    out_type *restrict d = dst;                                   \
    if (step == 1) {                                              \
      for (int64_t i = 0; i < count; i++) {                       \
        in_type p = s[i];                                         \
        d[i] = READ;                                              \
      }                                                           \
    } else {                                                      \
      for (int64_t i = 0; i < count; i++) {                       \
        in_type p = s[i * step];                                  \
        d[i] = READ;                                              \
      }                                                           \
    }                                                             \
    return;                                                       \
  } while (0)

static inline uint32_t bits_of(float x)
{
  uint32_t bits;

  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float float_of(uint32_t bits)
{
  float x;

  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float from_bf16(uint16_t bits) { return float_of((uint32_t)bits << 16); }

static inline uint16_t to_bf16(float x)
{
  uint32_t bits = bits_of(x);

  return (uint16_t)(x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A narrow float by arithmetic that meets no denormal f32, for which processors stop: `exponent` and `mantissa` are its
 * bits, and magnitudes from `least_special` on are infinity and NaN. A table takes longer than elements from memory. */
static inline float from_narrow(uint32_t bits, int exponent, int mantissa, uint32_t least_special)
{
  int width = exponent + mantissa, shift = 23 - mantissa;
  uint32_t magnitude = bits & ((1u << width) - 1), sign = bits >> width << 31;
  uint32_t scale = (uint32_t)(128 - (1 << (exponent - 1))) << 23, least = scale + (1u << 23);
  uint32_t wide = (magnitude << shift) + scale;
  uint32_t denormal = bits_of(float_of(wide + (1u << 23)) - float_of(least)); /* exact */

  wide = magnitude >> mantissa ? wide : denormal;
  wide = magnitude >= least_special ? magnitude << shift | 0x7f800000 : wide;
  return float_of(wide | sign);
}

/* Other floats of a byte or less are converted by one table for each type. */
static float byte_floats[WEFT_DTYPE_COUNT][256];

static void fill_byte_floats(void)
{
  for (int t = 0; t < WEFT_DTYPE_COUNT; t++)
    for (unsigned bits = 0; weft_dtype_is_float((weft_dtype)t) && weft_dtype_bytes((weft_dtype)t) == 1 && bits < 256;
         bits++)
      byte_floats[t][bits] = weft_float_decode((weft_dtype)t, bits & ((1u << weft_dtype_bits((weft_dtype)t)) - 1));
}

static const float *byte_floats_of(weft_dtype type)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, fill_byte_floats);
  return byte_floats[type];
}

#define PAIR(a, b) ((a) * WEFT_DTYPE_COUNT + (b))

/* out[j] = sum_l x[l] * matrix[l * row + j * col], where row or col is 1; sums are f32. The sum over a dense row is
 * kept in 64 parts, which are added up in a fixed order. */
#define GEMV(name, in_type, READ)                                                                               \
  CPU_HOT static void name(int64_t n, int64_t k, const float *x, const in_type *matrix, int64_t row, int64_t col, \
                           float *restrict out)                                                                 \
  {                                                                                                             \
    if (col == 1) {                                                                                             \
      memset(out, 0, (size_t)n * sizeof *out);                                                                  \
      for (int64_t l = 0; l < k; l++) {                                                                         \
        const in_type *m = matrix + l * row;                                                                    \
        float factor = x[l];                                                                                    \
        for (int64_t j = 0; j < n; j++) {                                                                       \
          in_type p = m[j];                                                                                     \
          out[j] += factor * (READ);                                                                            \
        }                                                                                                       \
      }                                                                                                         \
      return;                                                                                                   \
    }                                                                                                           \
    for (int64_t j = 0; j < n; j++) {                                                                           \
      const in_type *m = matrix + j * col;                                                                      \
      float part[64] = {0}, sum = 0;                                                                            \
      int64_t l = 0;                                                                                            \
      for (; l + 64 <= k; l += 64)                                                                              \
        for (int i = 0; i < 64; i++) {                                                                          \
          in_type p = m[l + i];                                                                                 \
          part[i] += x[l + i] * (READ);                                                                         \
        }                                                                                                       \
      for (; l < k; l++) {                                                                                      \
        in_type p = m[l];                                                                                       \
        part[l % 64] += x[l] * (READ);                                                                          \
      }                                                                                                         \
      for (int i = 0; i < 64; i++) sum += part[i];                                                              \
      out[j] = sum;                                                                                             \
    }                                                                                                           \
  }
GEMV(gemv_bf16, uint16_t, from_bf16(p))
#ifdef __FLT16_MANT_DIG__
GEMV(gemv_f16, _Float16, (float)p)
#endif

bool cpu_gemv_narrow(weft_dtype type, int64_t n, int64_t k, const float *x, const void *matrix, int64_t row,
                     int64_t col, float *out)
{
  if (row != 1 && col != 1) return false;
  if (type == WEFT_BF16) {
    gemv_bf16(n, k, x, matrix, row, col, out);
    return true;
  }
#ifdef __FLT16_MANT_DIG__
  if (type == WEFT_F16) {
    gemv_f16(n, k, x, matrix, row, col, out);
    return true;
  }
#endif
  return false;
}

static CPU_HOT void convert(weft_dtype to, void *dst, weft_dtype from, const void *src, int64_t step, int64_t count)
{
  if (from == to ||
      (weft_dtype_is_integer(from) && weft_dtype_is_integer(to) && weft_dtype_bits(from) == weft_dtype_bits(to))) {
    copy(dst, src, (int64_t)weft_dtype_bytes(from), step, count);
    return;
  }
  if (to == WEFT_F32 && from == WEFT_F8E5M2) LOOP(uint8_t, float, from_narrow(p, 5, 2, 0x7c));
  if (to == WEFT_F32 && from == WEFT_F8E4M3FN) LOOP(uint8_t, float, from_narrow(p, 4, 3, 0x7f));
  if (to == WEFT_F32 && weft_dtype_is_float(from) && weft_dtype_bytes(from) == 1) {
    const float *table = byte_floats_of(from);
    LOOP(uint8_t, float, table[p]);
  }
  switch (PAIR(from, to)) {
  case PAIR(WEFT_BF16, WEFT_F32): LOOP(uint16_t, float, from_bf16(p));
  case PAIR(WEFT_F32, WEFT_BF16): LOOP(float, uint16_t, to_bf16(p));
  case PAIR(WEFT_F16, WEFT_F32): LOOP(uint16_t, float, from_narrow(p, 5, 10, 0x7c00));
#ifdef __FLT16_MANT_DIG__
  case PAIR(WEFT_F32, WEFT_F16): LOOP(float, _Float16, (_Float16)p);
#endif
  case PAIR(WEFT_F32, WEFT_F64): LOOP(float, double, p);
  case PAIR(WEFT_F64, WEFT_F32): LOOP(double, float, (float)p);
  case PAIR(WEFT_S8, WEFT_S32):
  case PAIR(WEFT_S8, WEFT_U32): LOOP(int8_t, int32_t, p);
  case PAIR(WEFT_U8, WEFT_S32):
  case PAIR(WEFT_U8, WEFT_U32): LOOP(uint8_t, int32_t, p);
  case PAIR(WEFT_S16, WEFT_S32): LOOP(int16_t, int32_t, p);
  case PAIR(WEFT_S8, WEFT_F32): LOOP(int8_t, float, p);
  case PAIR(WEFT_U8, WEFT_F32): LOOP(uint8_t, float, p);
  case PAIR(WEFT_S4, WEFT_F32): LOOP(uint8_t, float, (float)((int8_t)(p << 4) >> 4));
  case PAIR(WEFT_U4, WEFT_F32): LOOP(uint8_t, float, (float)(p & 15));
  case PAIR(WEFT_S16, WEFT_F32): LOOP(int16_t, float, p);
  case PAIR(WEFT_U16, WEFT_F32): LOOP(uint16_t, float, p);
  case PAIR(WEFT_S32, WEFT_F32): LOOP(int32_t, float, (float)p);
  case PAIR(WEFT_S32, WEFT_S64): LOOP(int32_t, int64_t, p);
  default: convert_any(to, dst, from, src, step, count);
  }
}

#if defined __x86_64__
/* gcc before version 13 converts floats and half floats one by one. */
#define HALF __attribute__((target("avx512f,avx512bw,avx512vl")))
static HALF void floats_of_halves(float *to, const uint16_t *from, int64_t count)
{
  for (int64_t i = 0; i < count; i += 16) {
    __mmask16 some = count - i < 16 ? (__mmask16)((1u << (count - i)) - 1) : 0xffff;
    _mm512_mask_storeu_ps(to + i, some, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some, from + i)));
  }
}

static HALF void halves_of_floats(uint16_t *to, const float *from, int64_t count)
{
  for (int64_t i = 0; i < count; i += 16) {
    __mmask16 some = count - i < 16 ? (__mmask16)((1u << (count - i)) - 1) : 0xffff;
    __m256i halves = _mm512_cvtps_ph(_mm512_maskz_loadu_ps(some, from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_mask_storeu_epi16(to + i, some, halves);
  }
}
#endif

void cpu_convert(weft_dtype to, void *dst, weft_dtype from, const void *src, int64_t step, int64_t count)
{
#if defined __x86_64__
  if (step == 1 && gen_this_processor.avx512) {
    if (from == WEFT_F16 && to == WEFT_F32) return floats_of_halves(dst, src, count);
    if (from == WEFT_F32 && to == WEFT_F16) return halves_of_floats(dst, src, count);
  }
#endif
  convert(to, dst, from, src, step, count);
}
