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

static const float zeros[MOST_COLUMNS]; /* rows past the end */

/* Elements `from` to `from` + cols of B as f32: B itself, or `wide`, which receives them. Asks for the memory `ahead`
 * elements behind those that it converts, unless it is 0. */
static const float *row_of(weft_dtype type, const char *b, int64_t from, int64_t cols, float *wide, int64_t ahead)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(type);
  const char *row = b + from * bytes;

  if (type == WEFT_F32) return (const float *)(const void *)row;
  for (int64_t j = 0; ahead && j < cols * bytes; j += LINE) __builtin_prefetch(row + ahead * bytes + j);
  cpu_convert(WEFT_F32, wide, type, row, 1, cols);
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

/* As multiply_block, which follows. */
static void multiply_block_wide(int64_t m, int64_t cols, int64_t first, int64_t end, int64_t k, const float *a,
                                int64_t a_row, const char *b, int64_t b_row, weft_dtype type, float *wide, float *sums,
                                int64_t sum_row)
{
  memset(sums, 0, (size_t)(m * sum_row) * sizeof *sums);
  for (int64_t l = first; l < end; l += WIDE_DEPTH) {
    int64_t depth = WEFT_MIN(WIDE_DEPTH, end - l);
    bool has_next = l + 2 * WIDE_DEPTH <= k;
    const float *x[WIDE_DEPTH];
    for (int64_t q = 0; q < WIDE_DEPTH; q++)
      x[q] = q < depth ? row_of(type, b, (l + q) * b_row, cols, wide + q * sum_row, has_next ? WIDE_DEPTH * b_row : 0)
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
                                int64_t a_row, const char *b, int64_t b_row, weft_dtype type, float *wide, float *sums,
                                int64_t sum_row)
{
  (void)m, (void)cols, (void)first, (void)end, (void)k, (void)a, (void)a_row, (void)b, (void)b_row, (void)type;
  (void)wide, (void)sums, (void)sum_row;
}

static bool has_wide_rows(void) { return false; }

#endif

/* sums[m][cols] = a[m][first..end] . b[first..end][cols]; of a b that is not f32, `wide` receives DEPTH rows at a
 * time. */
static void multiply_block(int64_t m, int64_t cols, int64_t first, int64_t end, int64_t k, const float *a,
                           int64_t a_row, const char *b, int64_t b_row, weft_dtype type, float *wide, float *sums,
                           int64_t sum_row)
{
  memset(sums, 0, (size_t)(m * sum_row) * sizeof *sums);
  for (int64_t l = first; l < end; l += DEPTH) {
    int64_t depth = WEFT_MIN(DEPTH, end - l), next = l + AHEAD + DEPTH <= k ? AHEAD * b_row : 0;
    const float *x[DEPTH];
    float last[2 * DEPTH];
    for (int64_t q = 0; q < DEPTH; q++)
      x[q] = q < depth ? row_of(type, b, (l + q) * b_row, cols, wide + q * sum_row, next) : zeros;
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
                                                             wide, to, sum_row);
    for (int64_t j = 0; l && j < m * sum_row; j += LANES) *(vec *)(total + j) += *(const vec *)(sums + j);
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

/* sums[m][cols] = a[m][k] . b, whose column j starts at b + j * b_col. `wide` receives COLUMNS columns of a narrow type
 * at a time; NULL: each column is read in place. */
static void multiply_columns(int64_t m, int64_t cols, int64_t k, const float *a, int64_t a_row, const char *b,
                             int64_t b_col, weft_dtype type, float *wide, float *sums, int64_t sum_row)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(type), at_once = wide && m > 2 && has_wide_rows() ? WIDE_ROWS : 2;

  for (int64_t j = 0; j < cols; j += COLUMNS) {
    const void *from[COLUMNS];
    for (int64_t c = 0; c < COLUMNS; c++) {
      from[c] = b + WEFT_MIN(j + c, cols - 1) * b_col * bytes;
      if (!wide) continue;
      cpu_convert(WEFT_F32, wide + c * k, type, from[c], 1, k);
      from[c] = wide + c * k;
    }
    for (int64_t i = 0; i < m; i += at_once) {
      const float *rows[WIDE_ROWS];
      float block[WIDE_ROWS][COLUMNS];
      for (int64_t r = 0; r < at_once; r++) rows[r] = a + WEFT_MIN(i + r, m - 1) * a_row;
      if (at_once == WIDE_ROWS) dots_wide(k, rows, (const float *const *)from, block);
      else if (type == WEFT_BF16 && !wide) dots_bf16(k, rows, (const uint16_t *const *)from, block);
      else dots_f32(k, rows, (const float *const *)from, block);
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

static tile_memory memory_of(const cpu_gemm *g)
{
  int64_t row = WEFT_ALIGN_UP(g->tile_n, LANES) * (int64_t)sizeof(float), wide = 0;
  tile_memory t = {.wide_at = a_is_in_place(g) ? 0 : WEFT_ALIGN_UP(g->m * g->k * (int64_t)sizeof(float), 64)};

  if (widens(g)) wide = g->b_col == 1 ? WIDE_DEPTH * row : WEFT_ALIGN_UP(COLUMNS * g->k * (int64_t)sizeof(float), 64);
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
  g->scratch_bytes = WEFT_MAX(memory_of(g).bytes, cpu_dense_panel_scratch(g));
}

void cpu_few_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  tile_memory at = memory_of(g);
  float *left = scratch, *sums = (void *)((char *)scratch + at.sums_at), *wide = (void *)((char *)scratch + at.wide_at);
  int64_t sum_row = WEFT_ALIGN_UP(g->tile_n, LANES), a_row = g->k;

  if (a_is_in_place(g)) {
    left = (float *)(void *)a;
    a_row = g->a_row;
  } else {
    for (int64_t i = 0; i < m; i++)
      cpu_convert(WEFT_F32, left + i * g->k, g->a_type, a + i * g->a_row * (int64_t)weft_dtype_bytes(g->a_type),
                  g->a_col, g->k);
  }
  if (g->b_col == 1)
    multiply_rows(g, m, n, left, a_row, b, wide, (void *)((char *)scratch + at.block_at), sums, sum_row);
  else multiply_columns(m, n, g->k, left, a_row, b, g->b_col, g->b_type, widens(g) ? wide : NULL, sums, sum_row);
  for (int64_t i = 0; i < m; i++)
    cpu_convert(g->c_type, c + i * g->c_row * (int64_t)weft_dtype_bytes(g->c_type), WEFT_F32, sums + i * sum_row, 1, n);
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
