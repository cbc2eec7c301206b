/* cpu/gemm_few.c -- products of a few rows by a large matrix of f32 or of a narrower type, on processors with AVX2;
 * with AVX-512 not those of f32 by dense columns (gemm_dense.c turns them) and of bf16 (gemm_lanes.c). Such a product
 * costs what reading B costs, so B is read once, in place:
 *
 *   rows of B are dense:     DEPTH or WIDE_DEPTH rows of B at a time are added to the sums of a tile of columns, which
 *                            stay in L1
 *   columns of B are dense:  each element of C is a dot product of a row of A and a column of B, in LANES parts
 *
 * A is small and becomes f32. A narrow B becomes f32 a few rows or columns at a time, in L1 or L2. The order of
 * additions depends on the shape alone: where the rows of B are dense, it is that of gemm_dense.c, whose packed form of
 * B serves here too. */
#include <config.h>

#include "cpu/gemm_few.h"

#include <string.h>

#if defined __x86_64__
#include <immintrin.h>
#endif

#include "base/macros.h"
#include "codegen/model/processor.h"
#include "cpu/gemm_block.h"
#include "cpu/gemm_dense.h"
#include "cpu/hot.h"

enum {
  MOST_ROWS = 16,
  LEAST_COLUMNS = 64,
  NEAR_BYTES = 1 << 19,      /* gemm_dense.c is as good where an f32 B of dense rows stays in L2 */
  SUM_BYTES = 1 << 14,       /* sums of a tile, at most: they and DEPTH rows of B stay in L1 */
  MOST_COLUMNS = 2048, LEAST_WIDENED = 256, MOST_WIDENED = 512,
  ROW_TILES = 8, COLUMN_TILES = 32, /* tiles wanted; a tile reads runs of its width where the rows of B are dense */
  MOST_DEPTH = 1 << 16,      /* of k: a thread's copies of A and of columns of B stay below 5 MiB */
  DEPTH = 4, LANES = 8, COLUMNS = 4,
  WIDE_DEPTH = 8, WIDE_LANES = 16, WIDE_ROWS = 4, /* with AVX-512 */
  AHEAD = 8,                 /* rows of B from those that are added to those that are asked for */
  LINE = 64,                 /* bytes of a cache line */
};

typedef float vec __attribute__((vector_size(32), aligned(4), may_alias));
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint16_t halves __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint32_t words __attribute__((vector_size(32), may_alias));

/* Bits of the packed form are those of gemm_dense.c, so sums are made by the same instructions: also where a sanitizer
 * forbids clones. */
#if defined __x86_64__
#define HOT CPU_HOT_OPT __attribute__((target("avx2,fma")))
#else
#define HOT CPU_HOT_OPT
#endif

/* ---- dense rows of B --------------------------------------------------------------------------------------------- */

/* sums[count][cols] += a[count][DEPTH] . x[DEPTH][cols] for one or two rows. Asks for the memory `ahead` elements
 * behind each x, unless it is 0: the processor does not know of itself where the next run of B is. */
#define ADD_ROWS(name, count)                                                                                    \
  static HOT void name(int64_t cols, const float *const *x, const float *a, int64_t a_row, float *sums,      \
                           int64_t sum_row, int64_t ahead)                                                       \
  {                                                                                                              \
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];                                                  \
    float *to = sums, *to1 = sums + (count - 1) * sum_row;                                                       \
    const float *b = a + (count - 1) * a_row;                                                                    \
    float a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3], b0 = b[0], b1 = b[1], b2 = b[2], b3 = b[3];                \
    int64_t j = 0;                                                                                               \
    for (; j + LANES <= cols; j += LANES) {                                                                      \
      if (ahead && j % (2 * LANES) == 0) {                                                                       \
        __builtin_prefetch(x0 + j + ahead);                                                                      \
        __builtin_prefetch(x1 + j + ahead);                                                                      \
        __builtin_prefetch(x2 + j + ahead);                                                                      \
        __builtin_prefetch(x3 + j + ahead);                                                                      \
      }                                                                                                          \
      vec v0 = *(const vec *)(x0 + j), v1 = *(const vec *)(x1 + j), v2 = *(const vec *)(x2 + j), v3 = *(const vec *)(x3 + j); \
      vec s = *(const vec *)(to + j);                                                                            \
      s += v0 * a0;                                                                                              \
      s += v1 * a1;                                                                                              \
      s += v2 * a2;                                                                                              \
      s += v3 * a3;                                                                                              \
      *(vec *)(to + j) = s;                                                                                      \
      if (count == 1) continue;                                                                                  \
      s = *(const vec *)(to1 + j);                                                                               \
      s += v0 * b0;                                                                                              \
      s += v1 * b1;                                                                                              \
      s += v2 * b2;                                                                                              \
      s += v3 * b3;                                                                                              \
      *(vec *)(to1 + j) = s;                                                                                     \
    }                                                                                                            \
    for (; j < cols; j++) {                                                                                      \
      to[j] += a0 * x0[j];                                                                                       \
      to[j] += a1 * x1[j];                                                                                       \
      to[j] += a2 * x2[j];                                                                                       \
      to[j] += a3 * x3[j];                                                                                       \
      if (count == 1) continue;                                                                                  \
      to1[j] += b0 * x0[j];                                                                                      \
      to1[j] += b1 * x1[j];                                                                                      \
      to1[j] += b2 * x2[j];                                                                                      \
      to1[j] += b3 * x3[j];                                                                                      \
    }                                                                                                            \
  }
ADD_ROWS(add_one_row, 1)
ADD_ROWS(add_two_rows, 2)

/* The functions marked HOT need AVX2 on x86-64. Without it, only weights that are made of B come here. */
static bool has_hot(void)
{
#if defined __x86_64__
  return gen_this_processor.avx2;
#else
  return true;
#endif
}

static CPU_HOT void add_row(int64_t cols, const float *x, float a, float *sums)
{
  for (int64_t j = 0; j < cols; j++) sums[j] += a * x[j];
}

static const float zeros[MOST_COLUMNS]; /* rows past the end */

/* ---- weights that are made of B ---------------------------------------------------------------------------------- */

/* weight = (b - zero) * scale + bias, with a number of each for a column of B, or for each group of a column. */
typedef struct factors {
  float *zero, *scale, *bias;
  bool has_zero, has_scale, has_bias; /* the others are 0, 1 and 0 */
} factors;

/* Each makes numbers of elements `p` by READ. shift: to[j] = from[j] - zero[j]. make: the weights of a row of B, whose
 * columns have factors each; make_column: those of a column, whose groups have factors each. `from` may be `to`. */
#define MAKE(name, element, READ)                                                                                \
  static CPU_HOT void shift_##name(const element *from, const float *zero, int64_t count, float *to)             \
  {                                                                                                              \
    CPU_INDEPENDENT                                                                                              \
    for (int64_t j = 0; j < count; j++) {                                                                        \
      element p = from[j];                                                                                       \
      to[j] = (float)(READ) - zero[j];                                                                           \
    }                                                                                                            \
  }                                                                                                              \
  static CPU_HOT void make_##name(const element *from, const factors *f, int64_t count, float *to)               \
  {                                                                                                              \
    const float *zero = f->zero, *scale = f->scale, *bias = f->bias;                                             \
    CPU_INDEPENDENT                                                                                              \
    for (int64_t j = 0; j < count; j++) {                                                                        \
      element p = from[j];                                                                                       \
      to[j] = ((float)(READ) - zero[j]) * scale[j] + bias[j];                                                    \
    }                                                                                                            \
  }                                                                                                              \
  static CPU_HOT void make_column_##name(const element *from, const factors *f, int64_t groups, int64_t group,   \
                                         float *to)                                                              \
  {                                                                                                              \
    for (int64_t i = 0; i < groups; i++, from += group, to += group) {                                           \
      float zero = f->zero[i], scale = f->scale[i], bias = f->bias[i];                                           \
      CPU_INDEPENDENT                                                                                            \
      for (int64_t j = 0; j < group; j++) {                                                                      \
        element p = from[j];                                                                                     \
        to[j] = ((float)(READ) - zero) * scale + bias;                                                           \
      }                                                                                                          \
    }                                                                                                            \
  }
MAKE(s8, int8_t, p)
MAKE(u8, uint8_t, p)
MAKE(s4, uint8_t, (int8_t)(p << 4) >> 4)
MAKE(u4, uint8_t, p & 15)
MAKE(f32, float, p)

/* Makes a row of weights. The scale is left to the end of the group unless there is a bias: then all arithmetic is done
 * for each weight, as sums of numbers and of biases apart could be far larger than their sum. */
static void make_row(weft_dtype type, const void *from, const factors *f, int64_t count, float *to)
{
  bool all = f->has_bias;

  switch (type) {
  case WEFT_S8: all ? make_s8(from, f, count, to) : shift_s8(from, f->zero, count, to); return;
  case WEFT_U8: all ? make_u8(from, f, count, to) : shift_u8(from, f->zero, count, to); return;
  case WEFT_S4: all ? make_s4(from, f, count, to) : shift_s4(from, f->zero, count, to); return;
  case WEFT_U4: all ? make_u4(from, f, count, to) : shift_u4(from, f->zero, count, to); return;
  default: all ? make_f32(from, f, count, to) : shift_f32(from, f->zero, count, to); return;
  }
}

static void make_column(weft_dtype type, const void *from, const factors *f, int64_t groups, int64_t group, float *to)
{
  switch (type) {
  case WEFT_S8: make_column_s8(from, f, groups, group, to); return;
  case WEFT_U8: make_column_u8(from, f, groups, group, to); return;
  case WEFT_S4: make_column_s4(from, f, groups, group, to); return;
  case WEFT_U4: make_column_u4(from, f, groups, group, to); return;
  default: make_column_f32(from, f, groups, group, to); return;
  }
}

/* Does a row of weights differ from the numbers of B? */
static bool is_made(const factors *f) { return f->has_zero || f->has_bias; }

/* Other types become f32 first. */
static bool has_maker(weft_dtype type)
{
  return type == WEFT_S8 || type == WEFT_U8 || type == WEFT_S4 || type == WEFT_U4;
}

static void fill(float *to, float value, int64_t count)
{
  for (int64_t i = 0; i < count; i++) to[i] = value;
}

static CPU_HOT void add_factors(float *sums, float sign, const float *x, int64_t count)
{
  for (int64_t i = 0; i < count; i++) sums[i] += sign * x[i];
}

static CPU_HOT void negate_factors(float *x, int64_t count)
{
  for (int64_t i = 0; i < count; i++) x[i] = -x[i];
}

static CPU_HOT void multiply_factors(float *to, const float *x, int64_t count)
{
  for (int64_t i = 0; i < count; i++) to[i] *= x[i];
}

/* How weights are made in a tile that begins at column `first`. */
typedef struct maker {
  const cpu_affine *affine;
  const void *const *operands;
  int64_t first;
  factors f;
  float *next; /* as many as an array of f */
} maker;

/* Sets the factors of `count` columns from column j of the tile on in one group, or, if `groups`, those of `count`
 * groups of column j from `group` on. */
static void find_factors(maker *w, int64_t group, int64_t j, bool groups, int64_t count)
{
  factors *f = &w->f;

  f->has_zero = f->has_scale = f->has_bias = false;
  for (int s = 0; s < w->affine->count; s++) {
    const struct cpu_step *step = &w->affine->steps[s];
    int64_t at = group * step->row + (w->first + j) * step->column;
    bool multiplies = step->kind == CPU_STEP_MULTIPLY;
    bool *has = multiplies ? &f->has_scale : f->has_scale ? &f->has_bias : &f->has_zero;
    float *to = multiplies ? f->scale : f->has_scale ? f->bias : f->zero, *numbers = *has ? w->next : to;
    float sign = multiplies || (step->kind == CPU_STEP_SUBTRACT) == (to == f->zero) ? 1 : -1; /* zeros are subtracted */
    cpu_convert(WEFT_F32, numbers, step->type,
                (const char *)w->operands[s] + at * (int64_t)weft_dtype_bytes(step->type),
                groups ? step->row : step->column, count);
    if (multiplies && f->has_bias) multiply_factors(f->bias, numbers, count);
    if (multiplies && *has) multiply_factors(to, numbers, count);
    else if (*has) add_factors(to, sign, numbers, count);
    else if (sign < 0) negate_factors(to, count);
    *has = true;
  }
  if (!f->has_bias && !groups) return; /* rows without biases have a loop of their own */
  if (!f->has_zero) fill(f->zero, 0, count);
  if (!f->has_scale) fill(f->scale, 1, count);
  if (!f->has_bias) fill(f->bias, 0, count);
}

/* Elements `from` to `from` + cols of B as f32: B itself, or `wide`, which receives them, or the weights that `f` makes
 * of them. Asks for the memory `ahead` elements behind those that it converts, unless it is 0. */
static const float *row_of(weft_dtype type, const char *b, int64_t from, int64_t cols, const factors *f, float *wide,
                           int64_t ahead)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(type);
  const char *row = b + from * bytes;

  if (type == WEFT_F32) return (const float *)(const void *)row;
  for (int64_t j = 0; ahead && j < cols * bytes; j += LINE) __builtin_prefetch(row + ahead * bytes + j);
  if (f && is_made(f) && has_maker(type)) {
    make_row(type, row, f, cols, wide);
    return wide;
  }
  cpu_convert(WEFT_F32, wide, type, row, 1, cols);
  if (f && is_made(f)) make_row(WEFT_F32, wide, f, cols, wide);
  return wide;
}

#if defined __x86_64__

/* sums[m][cols] += a[m][WIDE_DEPTH] . x[WIDE_DEPTH][cols] with vectors of 16, the last one cut by a mask: x is read
 * once for all rows. Asks for the memory `ahead` elements behind each x, unless it is 0. */
static __attribute__((target("avx512f,fma"))) void add_rows_wide(int64_t m, int64_t cols, const float *const *x,
                                                                 const float *a, int64_t a_row, float *sums,
                                                                 int64_t sum_row, int64_t ahead)
{
  const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3], *x4 = x[4], *x5 = x[5], *x6 = x[6], *x7 = x[7];

  for (int64_t j = 0; j < cols; j += WIDE_LANES) {
    __mmask16 mask = cols - j < WIDE_LANES ? (__mmask16)((1u << (cols - j)) - 1) : 0xffff;
    if (ahead) {
      CPU_UNROLL
      for (int q = 0; q < WIDE_DEPTH; q++) _mm_prefetch((const char *)(x[q] + j + ahead), _MM_HINT_T0);
    }
    __m512 v0 = _mm512_maskz_loadu_ps(mask, x0 + j), v1 = _mm512_maskz_loadu_ps(mask, x1 + j);
    __m512 v2 = _mm512_maskz_loadu_ps(mask, x2 + j), v3 = _mm512_maskz_loadu_ps(mask, x3 + j);
    __m512 v4 = _mm512_maskz_loadu_ps(mask, x4 + j), v5 = _mm512_maskz_loadu_ps(mask, x5 + j);
    __m512 v6 = _mm512_maskz_loadu_ps(mask, x6 + j), v7 = _mm512_maskz_loadu_ps(mask, x7 + j);
    float *to = sums + j;
    const float *from = a;
    for (int64_t i = 0; i < m; i++, to += sum_row, from += a_row) {
      __m512 s = _mm512_maskz_loadu_ps(mask, to);
      s = _mm512_fmadd_ps(v0, _mm512_set1_ps(from[0]), s);
      s = _mm512_fmadd_ps(v1, _mm512_set1_ps(from[1]), s);
      s = _mm512_fmadd_ps(v2, _mm512_set1_ps(from[2]), s);
      s = _mm512_fmadd_ps(v3, _mm512_set1_ps(from[3]), s);
      s = _mm512_fmadd_ps(v4, _mm512_set1_ps(from[4]), s);
      s = _mm512_fmadd_ps(v5, _mm512_set1_ps(from[5]), s);
      s = _mm512_fmadd_ps(v6, _mm512_set1_ps(from[6]), s);
      s = _mm512_fmadd_ps(v7, _mm512_set1_ps(from[7]), s);
      _mm512_mask_storeu_ps(to, mask, s);
    }
  }
}

/* 16 numbers of one byte, or those that `mask` chooses, as f32. */
static CPU_INLINE __attribute__((target("avx512f,avx512bw,avx512vl,fma"))) __m512 widen(weft_dtype type, __mmask16 mask,
                                                                                        const uint8_t *from)
{
  __m128i p = _mm_maskz_loadu_epi8(mask, from);

  switch (type) {
  case WEFT_S8: return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(p));
  case WEFT_U8: return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(p));
  case WEFT_U4: return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_and_si128(p, _mm_set1_epi8(15))));
  default:
    p = _mm_shuffle_epi8(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1),
                         _mm_and_si128(p, _mm_set1_epi8(15)));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(p));
  }
}

/* As add_rows_wide, for rows of numbers of one byte, from which `zero` is subtracted unless it is NULL: they become f32
 * in registers. `b_row` elements are between the rows. The sums are the same bits. */
#define ADD_BYTES(name, type)                                                                                    \
  static __attribute__((target("avx512f,avx512bw,avx512vl,fma"))) void name(                                     \
    int64_t m, int64_t cols, const uint8_t *b, int64_t b_row, const float *zero, const float *a, int64_t a_row,  \
    float *sums, int64_t sum_row, int64_t ahead)                                                                 \
  {                                                                                                              \
    for (int64_t j = 0; j < cols; j += WIDE_LANES) {                                                             \
      __mmask16 mask = cols - j < WIDE_LANES ? (__mmask16)((1u << (cols - j)) - 1) : 0xffff;                     \
      __m512 v[WIDE_DEPTH];                                                                                      \
      const uint8_t *row = b + j;                                                                                \
      if (ahead && j % LINE == 0) {                                                                              \
        CPU_UNROLL                                                                                               \
        for (int q = 0; q < WIDE_DEPTH; q++) _mm_prefetch((const char *)(row + q * b_row + ahead), _MM_HINT_T0); \
      }                                                                                                          \
      CPU_UNROLL                                                                                                 \
      for (int q = 0; q < WIDE_DEPTH; q++) v[q] = widen(type, mask, row + q * b_row);                            \
      if (zero) {                                                                                                \
        __m512 z = _mm512_maskz_loadu_ps(mask, zero + j);                                                        \
        CPU_UNROLL                                                                                               \
        for (int q = 0; q < WIDE_DEPTH; q++) v[q] = _mm512_sub_ps(v[q], z);                                      \
      }                                                                                                          \
      float *to = sums + j;                                                                                      \
      const float *from = a;                                                                                     \
      for (int64_t i = 0; i < m; i++, to += sum_row, from += a_row) {                                            \
        __m512 s = _mm512_maskz_loadu_ps(mask, to);                                                              \
        CPU_UNROLL                                                                                               \
        for (int q = 0; q < WIDE_DEPTH; q++) s = _mm512_fmadd_ps(v[q], _mm512_set1_ps(from[q]), s);              \
        _mm512_mask_storeu_ps(to, mask, s);                                                                      \
      }                                                                                                          \
    }                                                                                                            \
  }
ADD_BYTES(add_s8, WEFT_S8)
ADD_BYTES(add_u8, WEFT_U8)
ADD_BYTES(add_s4, WEFT_S4)
ADD_BYTES(add_u4, WEFT_U4)

/* The loop that adds rows of B in registers; NULL: there is none. */
static __typeof__(&add_s8) byte_loop(weft_dtype type, const factors *f)
{
  if (f && f->has_bias) return NULL;
  switch (type) {
  case WEFT_S8: return add_s8;
  case WEFT_U8: return add_u8;
  case WEFT_S4: return add_s4;
  case WEFT_U4: return add_u4;
  default: return NULL;
  }
}

/* As multiply_block, which follows. */
static void multiply_block_wide(int64_t m, int64_t cols, int64_t first, int64_t end, int64_t k, const float *a,
                                int64_t a_row, const char *b, int64_t b_row, weft_dtype type, const factors *f,
                                float *wide, float *sums, int64_t sum_row)
{
  __typeof__(&add_s8) add_bytes = byte_loop(type, f);

  memset(sums, 0, (size_t)(m * sum_row) * sizeof *sums);
  for (int64_t l = first; l < end; l += WIDE_DEPTH) {
    int64_t depth = WEFT_MIN(WIDE_DEPTH, end - l);
    bool has_next = l + 2 * WIDE_DEPTH <= k;
    if (add_bytes && depth == WIDE_DEPTH) {
      add_bytes(m, cols, (const uint8_t *)b + l * b_row, b_row, f && f->has_zero ? f->zero : NULL, a + l, a_row, sums,
                sum_row, has_next ? WIDE_DEPTH * b_row : 0);
      continue;
    }
    const float *x[WIDE_DEPTH];
    for (int64_t q = 0; q < WIDE_DEPTH; q++)
      x[q] = q < depth
               ? row_of(type, b, (l + q) * b_row, cols, f, wide + q * sum_row, has_next ? WIDE_DEPTH * b_row : 0)
               : zeros;
    if (depth == WIDE_DEPTH) {
      add_rows_wide(m, cols, x, a + l, a_row, sums, sum_row, has_next && type == WEFT_F32 ? WIDE_DEPTH * b_row : 0);
      continue;
    }
    float last[MOST_ROWS * WIDE_DEPTH];
    for (int64_t i = 0; i < m * WIDE_DEPTH; i++) last[i] = -0.0f; /* times 0: adds nothing, not even to a sum of -0 */
    for (int64_t i = 0; i < m; i++) memcpy(last + i * WIDE_DEPTH, a + i * a_row + l, (size_t)depth * sizeof *last);
    add_rows_wide(m, cols, x, last, WIDE_DEPTH, sums, sum_row, 0);
  }
}

static bool has_wide_rows(void) { return gen_this_processor.avx512 && !cpu_dense_narrow; }

#else

static void multiply_block_wide(int64_t m, int64_t cols, int64_t first, int64_t end, int64_t k, const float *a,
                                int64_t a_row, const char *b, int64_t b_row, weft_dtype type, const factors *f,
                                float *wide, float *sums, int64_t sum_row)
{
  (void)m, (void)cols, (void)first, (void)end, (void)k, (void)a, (void)a_row, (void)b, (void)b_row, (void)type;
  (void)f, (void)wide, (void)sums, (void)sum_row;
}

static bool has_wide_rows(void) { return false; }

#endif

/* sums[m][cols] = a[m][first..end] . b[first..end][cols]; of a b that is not f32, `wide` receives DEPTH rows at a
 * time. */
static void multiply_block(int64_t m, int64_t cols, int64_t first, int64_t end, int64_t k, const float *a,
                           int64_t a_row, const char *b, int64_t b_row, weft_dtype type, const factors *f, float *wide,
                           float *sums, int64_t sum_row)
{
  memset(sums, 0, (size_t)(m * sum_row) * sizeof *sums);
  for (int64_t l = first; l < end; l += DEPTH) {
    int64_t depth = WEFT_MIN(DEPTH, end - l), next = l + AHEAD + DEPTH <= k ? AHEAD * b_row : 0;
    const float *x[DEPTH];
    float last[2 * DEPTH];
    for (int64_t q = 0; q < DEPTH; q++)
      x[q] = q < depth ? row_of(type, b, (l + q) * b_row, cols, f, wide + q * sum_row, next) : zeros;
    if (!has_hot()) {
      for (int64_t i = 0; i < m; i++)
        for (int64_t q = 0; q < depth; q++) add_row(cols, x[q], a[i * a_row + l + q], sums + i * sum_row);
      continue;
    }
    for (int64_t i = 0; i < m; i += 2) {
      int64_t count = WEFT_MIN(2, m - i), row = a_row;
      const float *factors = a + i * a_row + l;
      int64_t ahead = i == 0 && type == WEFT_F32 && depth == DEPTH ? next : 0;
      if (depth < DEPTH) {
        for (int64_t q = 0; q < 2 * DEPTH; q++) last[q] = -0.0f; /* times 0: adds nothing, not even to a sum of -0 */
        for (int64_t r = 0; r < count; r++) memcpy(last + r * DEPTH, factors + r * a_row, (size_t)depth * sizeof *last);
        factors = last;
        row = DEPTH;
      }
      if (count == 2) add_two_rows(cols, x, factors, row, sums + i * sum_row, sum_row, ahead);
      else add_one_row(cols, x, factors, row, sums + i * sum_row, sum_row, ahead);
    }
  }
}

/* total[m][cols] = a[m][k] . b[k][cols], summed up in blocks of k. */
static void multiply_rows(const cpu_gemm *g, int64_t m, int64_t cols, const float *a, int64_t a_row, const char *b,
                          float *wide, float *sums, float *total, int64_t sum_row)
{
  int64_t block = cpu_dense_block_of_k(g);

  for (int64_t l = 0; l < g->k; l += block) {
    int64_t end = WEFT_MIN(l + block, g->k);
    float *to = l ? sums : total;
    (has_wide_rows() ? multiply_block_wide : multiply_block)(m, cols, l, end, g->k, a, a_row, b, g->b_row, g->b_type,
                                                             NULL, wide, to, sum_row);
    for (int64_t j = 0; l && j < m * sum_row; j += LANES) *(vec *)(total + j) += *(const vec *)(sums + j);
  }
}

/* total[m][cols] += scale[cols] * sums[m][cols]; scale NULL: 1 */
static CPU_HOT void add_sums(int64_t m, int64_t cols, const float *scale, const float *sums, float *total,
                             int64_t sum_row)
{
  for (int64_t i = 0; i < m; i++, sums += sum_row, total += sum_row) {
    if (scale)
      for (int64_t j = 0; j < cols; j++) total[j] += scale[j] * sums[j];
    else
      for (int64_t j = 0; j < cols; j++) total[j] += sums[j];
  }
}

/* total[m][cols] = a[m][k] . the weights that `w` makes of b[k][cols], summed up in groups and in blocks of these. */
static void multiply_groups(const cpu_gemm *g, maker *w, int64_t m, int64_t cols, const float *a, int64_t a_row,
                            const char *b, float *wide, float *sums, float *total, int64_t sum_row)
{
  int64_t block = cpu_dense_block_of_k(g), group = w->affine->group, end;

  memset(total, 0, (size_t)(m * sum_row) * sizeof *total);
  for (int64_t l = 0; l < g->k; l = end) {
    int64_t begin = l / group * group;
    end = WEFT_MIN(l + block, begin + group);
    if (l == begin) find_factors(w, l / group, 0, false, cols);
    (has_wide_rows() ? multiply_block_wide : multiply_block)(m, cols, l, end, g->k, a, a_row, b, g->b_row, g->b_type,
                                                             &w->f, wide, sums, sum_row);
    /* weights that have a bias are scaled one by one */
    add_sums(m, cols, w->f.has_scale && !w->f.has_bias ? w->f.scale : NULL, sums, total, sum_row);
  }
}

/* ---- dense columns of B ------------------------------------------------------------------------------------------ */

#define LOAD_F32(p) (*(const vec *)(p))
#define LOAD_BF16(p) ((vec)(__builtin_convertvector(*(const halves *)(p), words) << 16))
#define F32_OF(x) (x)

static CPU_INLINE float f32_of_bf16(uint16_t bits)
{
  uint32_t word = (uint32_t)bits << 16;
  float x;

  memcpy(&x, &word, sizeof x);
  return x;
}

/* to[c] = the sum of the parts of s[c], in the order ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)). */
static CPU_INLINE HOT void add_parts(const vec s[COLUMNS], float *restrict to)
{
  four q[COLUMNS];

  for (int c = 0; c < COLUMNS; c++)
    q[c] = __builtin_shufflevector(s[c], s[c], 0, 1, 2, 3) + __builtin_shufflevector(s[c], s[c], 4, 5, 6, 7);
  four low01 = __builtin_shufflevector(q[0], q[1], 0, 4, 1, 5),
       high01 = __builtin_shufflevector(q[0], q[1], 2, 6, 3, 7);
  four low23 = __builtin_shufflevector(q[2], q[3], 0, 4, 1, 5),
       high23 = __builtin_shufflevector(q[2], q[3], 2, 6, 3, 7);
  four even = __builtin_shufflevector(low01, low23, 0, 1, 4, 5) + __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
  four odd = __builtin_shufflevector(low01, low23, 2, 3, 6, 7) + __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
  *(four *)to = even + odd;
}

/* to[r * to_row + c] = row r of a . column c of b, for two rows and COLUMNS columns; where there are fewer, the caller
 * repeats the last one. */
#define DOTS(name, type, LOAD, VALUE)                                                                            \
  static HOT void name(int64_t k, const float *const *a, const type *const *b, float (*restrict to)[COLUMNS]) \
  {                                                                                                              \
    const float *a0 = a[0], *a1 = a[1];                                                                          \
    const type *b0 = b[0], *b1 = b[1], *b2 = b[2], *b3 = b[3];                                                   \
    vec s00 = {0}, s01 = {0}, s02 = {0}, s03 = {0}, s10 = {0}, s11 = {0}, s12 = {0}, s13 = {0};                  \
    int64_t l = 0;                                                                                               \
    for (; l + LANES <= k; l += LANES) {                                                                         \
      vec x = *(const vec *)(a0 + l), y = *(const vec *)(a1 + l), v = LOAD(b0 + l);                              \
      s00 += x * v;                                                                                              \
      s10 += y * v;                                                                                              \
      v = LOAD(b1 + l);                                                                                          \
      s01 += x * v;                                                                                              \
      s11 += y * v;                                                                                              \
      v = LOAD(b2 + l);                                                                                          \
      s02 += x * v;                                                                                              \
      s12 += y * v;                                                                                              \
      v = LOAD(b3 + l);                                                                                          \
      s03 += x * v;                                                                                              \
      s13 += y * v;                                                                                              \
    }                                                                                                            \
    add_parts((const vec[]){s00, s01, s02, s03}, to[0]);                                                         \
    add_parts((const vec[]){s10, s11, s12, s13}, to[1]);                                                         \
    for (int r = 0; r < 2; r++)                                                                                  \
      for (int c = 0; c < COLUMNS; c++)                                                                          \
        for (int64_t t = l; t < k; t++) to[r][c] += a[r][t] * VALUE(b[c][t]);                                    \
  }
DOTS(dots_f32, float, LOAD_F32, F32_OF)
DOTS(dots_bf16, uint16_t, LOAD_BF16, f32_of_bf16)

#if defined __x86_64__

/* to[r][c] = row r of a . column c of b, for WIDE_ROWS rows and COLUMNS columns, in WIDE_LANES parts. */
static __attribute__((target("avx512f,fma"))) void dots_wide(int64_t k, const float *const *a, const float *const *b,
                                                             float (*restrict to)[COLUMNS])
{
  __m512 s[WIDE_ROWS][COLUMNS];

  CPU_UNROLL
  for (int r = 0; r < WIDE_ROWS; r++) {
    CPU_UNROLL
    for (int c = 0; c < COLUMNS; c++) s[r][c] = _mm512_setzero_ps();
  }
  for (int64_t l = 0; l < k; l += WIDE_LANES) {
    __mmask16 mask = k - l < WIDE_LANES ? (__mmask16)((1u << (k - l)) - 1) : 0xffff;
    __m512 x[WIDE_ROWS];
    CPU_UNROLL
    for (int r = 0; r < WIDE_ROWS; r++) x[r] = _mm512_maskz_loadu_ps(mask, a[r] + l);
    CPU_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
      __m512 v = _mm512_maskz_loadu_ps(mask, b[c] + l);
      CPU_UNROLL
      for (int r = 0; r < WIDE_ROWS; r++) s[r][c] = _mm512_fmadd_ps(x[r], v, s[r][c]);
    }
  }
  for (int r = 0; r < WIDE_ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) to[r][c] = _mm512_reduce_add_ps(s[r][c]);
}

#else

static void dots_wide(int64_t k, const float *const *a, const float *const *b, float (*restrict to)[COLUMNS])
{
  (void)k, (void)a, (void)b, (void)to;
}

#endif

static CPU_HOT float dot_plain(int64_t k, const float *a, const float *b)
{
  float sum = 0;

  for (int64_t l = 0; l < k; l++) sum += a[l] * b[l];
  return sum;
}

/* to[r][c] = row r of a . column c of b, for the first `rows` rows at least. */
static void dots(int64_t rows, int64_t k, const float *const *a, const float *const *b, float (*restrict to)[COLUMNS])
{
  if (rows == WIDE_ROWS) {
    dots_wide(k, a, b, to);
  } else if (has_hot()) {
    dots_f32(k, a, b, to);
  } else {
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < COLUMNS; c++) to[r][c] = dot_plain(k, a[r], b[c]);
  }
}

/* to[k] = the weights that `w` makes of column j of the tile, which begins at `from`. */
static void make_weights(maker *w, int64_t j, int64_t k, weft_dtype type, const void *from, float *to)
{
  int64_t group = w->affine->group, groups = k / group;

  find_factors(w, 0, j, true, groups);
  if (has_maker(type)) {
    make_column(type, from, &w->f, groups, group, to);
    return;
  }
  cpu_convert(WEFT_F32, to, type, from, 1, k);
  make_column(WEFT_F32, to, &w->f, groups, group, to);
}

/* sums[m][cols] = a[m][k] . b, whose column j starts at b + j * b_col. `wide` receives COLUMNS columns of a narrow type
 * at a time, or the weights that `w` makes of them, unless it is NULL; wide NULL: each column is read in place. */
static void multiply_columns(int64_t m, int64_t cols, int64_t k, const float *a, int64_t a_row, const char *b,
                             int64_t b_col, weft_dtype type, maker *w, float *wide, float *sums, int64_t sum_row)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(type), at_once = wide && m > 2 && has_wide_rows() ? WIDE_ROWS : 2;

  for (int64_t j = 0; j < cols; j += COLUMNS) {
    const void *from[COLUMNS];
    for (int64_t c = 0; c < COLUMNS; c++) {
      from[c] = b + WEFT_MIN(j + c, cols - 1) * b_col * bytes;
      if (!wide) continue;
      if (w) make_weights(w, WEFT_MIN(j + c, cols - 1), k, type, from[c], wide + c * k);
      else cpu_convert(WEFT_F32, wide + c * k, type, from[c], 1, k);
      from[c] = wide + c * k;
    }
    for (int64_t i = 0; i < m; i += at_once) {
      const float *rows[WIDE_ROWS];
      float block[WIDE_ROWS][COLUMNS];
      for (int64_t r = 0; r < at_once; r++) rows[r] = a + WEFT_MIN(i + r, m - 1) * a_row;
      if (type == WEFT_BF16 && !wide) dots_bf16(k, rows, (const uint16_t *const *)from, block);
      else dots(at_once, k, rows, (const float *const *)from, block);
      for (int64_t r = 0; r < WEFT_MIN(at_once, m - i); r++)
        memcpy(sums + (i + r) * sum_row + j, block[r], (size_t)WEFT_MIN(COLUMNS, cols - j) * sizeof *sums);
    }
  }
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */

static bool is_f32(const cpu_gemm *g)
{
  return g->a_type == WEFT_F32 && g->b_type == WEFT_F32 && g->c_type == WEFT_F32;
}

/* Are B's elements exact in f32, and of fewer bytes? */
static bool is_narrow(weft_dtype type)
{
  return type != WEFT_PRED && weft_dtype_bytes(type) < sizeof(float) &&
         (weft_dtype_is_float(type) || weft_dtype_is_integer(type));
}

bool cpu_few_fits(const cpu_gemm *g)
{
  bool narrow = is_narrow(g->b_type), is_bf16 = g->b_type == WEFT_BF16;
  bool is_left_to_others = is_bf16 ? g->a_type == WEFT_BF16 : !narrow && !(is_f32(g) && g->b_col == 1);

  if (g->compute != WEFT_F32 || g->via != WEFT_INVALID || (g->b_type != WEFT_F32 && !narrow) ||
      !gen_this_processor.avx2 || (cpu_block_is_fast() && is_left_to_others))
    return false;
  if (g->m < (narrow && !is_bf16 ? 1 : 2) || g->m > MOST_ROWS || g->n < LEAST_COLUMNS || g->k < 1 || g->k > MOST_DEPTH)
    return false;
  if (g->b_row == 1 && g->b_col != 1) return true;
  return g->b_col == 1 && (narrow || g->k * g->n * 4 > NEAR_BYTES);
}

static bool a_is_in_place(const cpu_gemm *g) { return g->a_type == WEFT_F32 && g->a_col == 1; }

/* Whether parts of B become f32 in memory: not where two rows of A read each column of bf16 once. */
static bool widens(const cpu_gemm *g)
{
  return g->b_type != WEFT_F32 && (g->b_type != WEFT_BF16 || g->b_col == 1 || g->m > 2);
}

/* The scratch of a tile: A in f32, then WIDE_DEPTH rows or COLUMNS columns of B in f32, the sums, and those of a
 * block. */
typedef struct tile_memory { int64_t wide_at, sums_at, block_at, bytes; } tile_memory;

static tile_memory memory_of(const cpu_gemm *g, bool has_wide)
{
  int64_t row = WEFT_ALIGN_UP(g->tile_n, LANES) * (int64_t)sizeof(float), wide = 0;
  tile_memory t = {.wide_at = a_is_in_place(g) ? 0 : WEFT_ALIGN_UP(g->m * g->k * (int64_t)sizeof(float), 64)};

  if (has_wide) wide = g->b_col == 1 ? WIDE_DEPTH * row : WEFT_ALIGN_UP(COLUMNS * g->k * (int64_t)sizeof(float), 64);
  t.sums_at = t.wide_at + wide;
  t.block_at = t.sums_at + g->m * row;
  t.bytes = t.block_at + (g->b_col == 1 ? g->m * row : 0);
  return t;
}

void cpu_few_plan(cpu_gemm *g)
{
  int64_t most =
    WEFT_MIN(g->b_type != WEFT_F32 ? MOST_WIDENED : MOST_COLUMNS, SUM_BYTES / (int64_t)sizeof(float) / g->m);

  int64_t least = g->b_col == 1 && weft_dtype_bytes(g->b_type) < sizeof(float) ? LEAST_WIDENED : LEAST_COLUMNS;

  g->tile_m = g->m;
  g->tile_n = WEFT_MIN(WEFT_ALIGN_UP(WEFT_MAX(g->n / (g->b_col == 1 ? ROW_TILES : COLUMN_TILES), least), 4 * LANES),
                       WEFT_MAX(most / CPU_PACKED_ALIGN * CPU_PACKED_ALIGN, LEAST_COLUMNS));
  g->scratch_bytes = WEFT_MAX(memory_of(g, widens(g)).bytes, cpu_dense_panel_scratch(g));
}

/* A in f32: where it lies, or in `scratch`. *out_row: the step of its rows. */
static const float *rows_of_a(const cpu_gemm *g, int64_t m, const char *a, float *scratch, int64_t *out_row)
{
  *out_row = a_is_in_place(g) ? g->a_row : g->k;
  if (a_is_in_place(g)) return (const float *)(const void *)a;
  for (int64_t i = 0; i < m; i++)
    cpu_convert(WEFT_F32, scratch + i * g->k, g->a_type, a + i * g->a_row * (int64_t)weft_dtype_bytes(g->a_type),
                g->a_col, g->k);
  return scratch;
}

static void put_sums(const cpu_gemm *g, int64_t m, int64_t n, const float *sums, int64_t sum_row, char *c)
{
  for (int64_t i = 0; i < m; i++)
    cpu_convert(g->c_type, c + i * g->c_row * (int64_t)weft_dtype_bytes(g->c_type), WEFT_F32, sums + i * sum_row, 1, n);
}

void cpu_few_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  tile_memory at = memory_of(g, widens(g));
  float *sums = (void *)((char *)scratch + at.sums_at), *wide = (void *)((char *)scratch + at.wide_at);
  int64_t sum_row = WEFT_ALIGN_UP(g->tile_n, LANES), a_row;
  const float *left = rows_of_a(g, m, a, scratch, &a_row);

  if (g->b_col == 1)
    multiply_rows(g, m, n, left, a_row, b, wide, (void *)((char *)scratch + at.block_at), sums, sum_row);
  else multiply_columns(m, n, g->k, left, a_row, b, g->b_col, g->b_type, NULL, widens(g) ? wide : NULL, sums, sum_row);
  put_sums(g, m, n, sums, sum_row, c);
}

/* ---- weights that are made of B ---- */

/* Numbers in each array of factors. */
static int64_t factor_count(const cpu_gemm *g, const cpu_affine *affine)
{
  return WEFT_ALIGN_UP(g->b_col == 1 ? g->tile_n : g->k / affine->group, WIDE_LANES);
}

int64_t cpu_few_affine_scratch(const cpu_gemm *g, const cpu_affine *affine)
{
  return WEFT_ALIGN_UP(memory_of(g, true).bytes, 64) + 4 * factor_count(g, affine) * (int64_t)sizeof(float);
}

void cpu_few_affine_tile(const cpu_gemm *g, const cpu_affine *affine, int64_t j, int64_t n, const char *a,
                         const char *b, const void *const *operands, char *c, void *scratch)
{
  tile_memory at = memory_of(g, true);
  float *sums = (void *)((char *)scratch + at.sums_at), *wide = (void *)((char *)scratch + at.wide_at);
  float *arrays = (void *)((char *)scratch + WEFT_ALIGN_UP(at.bytes, 64));
  int64_t sum_row = WEFT_ALIGN_UP(g->tile_n, LANES), count = factor_count(g, affine), a_row;
  const float *left = rows_of_a(g, g->m, a, scratch, &a_row);
  maker w = {.affine = affine, .operands = operands, .first = j, .next = arrays + 3 * count,
             .f = {.zero = arrays, .scale = arrays + count, .bias = arrays + 2 * count}};

  if (g->b_col == 1)
    multiply_groups(g, &w, g->m, n, left, a_row, b, wide, (void *)((char *)scratch + at.block_at), sums, sum_row);
  else multiply_columns(g->m, n, g->k, left, a_row, b, g->b_col, g->b_type, &w, wide, sums, sum_row);
  put_sums(g, g->m, n, sums, sum_row, c);
}

/* ---- the packed form: that of gemm_dense.c ---- */

static int64_t packed_column_bytes(const cpu_gemm *g)
{
  return g->b_col == 1 && is_f32(g) ? g->k * (int64_t)sizeof(float) : 0;
}

static void pack_form(const cpu_gemm *g, int64_t columns, const char *b, char *to)
{
  cpu_dense_packed.pack(g, columns, b, to);
}

static void packed_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *packed, char *c,
                        void *scratch)
{
  cpu_dense_packed.tile(g, m, n, a, packed, c, scratch);
}

const cpu_packed_ops cpu_few_packed = {packed_column_bytes, pack_form, packed_tile};
