/* cpu/gemm_vnni.c -- Products of s8 into s32 by an instruction that adds four products of a signed and an unsigned byte
 * to each 32-bit lane. Blocks of C stay in registers as in gemm_dense.c, and the loops are the same (gemm_micro.h); an
 * "element" is four bytes that follow each other along k.  A is read as it lies if it lies in such elements, else its
 * rows are copied first.  B is packed into panels of 32 columns, with 128 added to make it unsigned: C therefore starts
 * as -128 times the sums of A's rows. All of it is exact, sums wrap. */
#include <config.h>

#include "cpu/gemm_vnni.h"

#if defined __x86_64__

#include <immintrin.h>
#include <string.h>

#include "base/macros.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

/* Elements, of four bytes, between neighbours: rows of a, columns of a, rows of b, rows of c. */
typedef struct micro_steps { int64_t a_row, a_col, b_row, c_row; } micro_steps;
typedef void micro_fn(int64_t k, const void *a, const void *b, void *c, const micro_steps *steps, int64_t last,
                      bool add);
typedef int32_t vec __attribute__((vector_size(64), may_alias));
typedef int32_t quad __attribute__((aligned(1), may_alias));

enum {
  MAX_ROWS = 14, VECTORS = 2, LANE_COUNT = 16, WIDTH = VECTORS * LANE_COUNT, QUAD = 4,
  BLOCK_K = 512,      /* a panel of B has at most 16 KiB */
  MOST_ROWS = 392,    /* rows of A in a tile */
  TILES = 32,         /* tiles wanted, for many threads or threads of uneven speed */
};
#define LEAST_TILE_OPS 4e6 /* some 15 us */
#define MOST_TILE_OPS 64e6

#define WITH_VECTORS(X, rows) X(rows, 1) X(rows, 2)
#define UP_TO_14(X)                                                                                             \
  WITH_VECTORS(X, 1) WITH_VECTORS(X, 2) WITH_VECTORS(X, 3) WITH_VECTORS(X, 4) WITH_VECTORS(X, 5) WITH_VECTORS(X, 6) \
  WITH_VECTORS(X, 7) WITH_VECTORS(X, 8) WITH_VECTORS(X, 9) WITH_VECTORS(X, 10) WITH_VECTORS(X, 11)              \
  WITH_VECTORS(X, 12) WITH_VECTORS(X, 13) WITH_VECTORS(X, 14)
#define EACH_VARIANT UP_TO_14
#define NAME(x) s8_##x
#define ELEM quad
#define VEC vec
#define LANES 16
#define MASK __mmask16
#define MASK_OF(count) ((MASK)((1u << (count)) - 1))
#define LOAD(p) (vec)_mm512_loadu_si512(p)
#define LOAD_MASKED(m, p) (vec)_mm512_maskz_loadu_epi32(m, p)
#define STORE(p, v) _mm512_storeu_si512(p, (__m512i)(v))
#define STORE_MASKED(p, m, v) _mm512_mask_storeu_epi32(p, m, (__m512i)(v))
#define SPLAT(x) (vec)_mm512_set1_epi32(x)
#define ZERO ((vec){0})
#define FMA(x, y, z) (vec)_mm512_dpbusd_epi32((__m512i)(z), (__m512i)(y), (__m512i)(x))
#include "cpu/gemm_micro.h"

#define ENTRY(rows, vectors) [rows][vectors] = s8_micro_##rows##_##vectors,
static micro_fn *const micro[MAX_ROWS + 1][VECTORS + 1] = {UP_TO_14(ENTRY)};

/* ---- packing ------------------------------------------------------------------------------------------------------- */

/* `count` bytes that are `step` apart, followed by zeros. */
static inline uint32_t quad_of(const char *from, int64_t step, int64_t count)
{
  unsigned char bytes[QUAD] = {0};
  uint32_t x;

  for (int64_t q = 0; q < count; q++) bytes[q] = (unsigned char)from[q * step];
  memcpy(&x, bytes, sizeof x);
  return x;
}

/* to[k / 4][16 of a panel's columns] = rows of B that are dense, four at a time. */
static TARGET void pack_rows(int64_t quads, const char *from, int64_t row, uint32_t *to)
{
  const __m128i sign = _mm_set1_epi8((char)0x80);

  for (int64_t l = 0; l < quads; l++, from += QUAD * row, to += WIDTH) {
    __m128i r[QUAD];
    for (int q = 0; q < QUAD; q++) r[q] = _mm_xor_si128(_mm_loadu_si128((const void *)(from + q * row)), sign);
    __m128i low01 = _mm_unpacklo_epi8(r[0], r[1]), high01 = _mm_unpackhi_epi8(r[0], r[1]);
    __m128i low23 = _mm_unpacklo_epi8(r[2], r[3]), high23 = _mm_unpackhi_epi8(r[2], r[3]);
    _mm_storeu_si128((void *)to, _mm_unpacklo_epi16(low01, low23));
    _mm_storeu_si128((void *)(to + 4), _mm_unpackhi_epi16(low01, low23));
    _mm_storeu_si128((void *)(to + 8), _mm_unpacklo_epi16(high01, high23));
    _mm_storeu_si128((void *)(to + 12), _mm_unpackhi_epi16(high01, high23));
  }
}

/* to[k / 4][4 of a panel's columns] = columns of B, which are dense, transposed in squares of 4 x 4 elements. */
static TARGET void pack_columns(int64_t quads, const char *from, int64_t column, uint32_t *to)
{
  const __m128i sign = _mm_set1_epi8((char)0x80);

  for (int64_t l = 0; l < quads; l += 4, from += 4 * QUAD, to += 4 * WIDTH) {
    __m128i c[4];
    for (int q = 0; q < 4; q++) c[q] = _mm_xor_si128(_mm_loadu_si128((const void *)(from + q * column)), sign);
    __m128i low01 = _mm_unpacklo_epi32(c[0], c[1]), high01 = _mm_unpackhi_epi32(c[0], c[1]);
    __m128i low23 = _mm_unpacklo_epi32(c[2], c[3]), high23 = _mm_unpackhi_epi32(c[2], c[3]);
    _mm_storeu_si128((void *)to, _mm_unpacklo_epi64(low01, low23));
    _mm_storeu_si128((void *)(to + WIDTH), _mm_unpackhi_epi64(low01, low23));
    _mm_storeu_si128((void *)(to + 2 * WIDTH), _mm_unpacklo_epi64(high01, high23));
    _mm_storeu_si128((void *)(to + 3 * WIDTH), _mm_unpackhi_epi64(high01, high23));
  }
}

/* to[k / 4][32 columns] = a panel of B, rounded up to whole elements, with 128 added to each byte that exists. */
static void pack_b(int64_t cols, int64_t k, const char *from, int64_t row, int64_t column, uint32_t *to)
{
  int64_t quads = k / QUAD, done, stop = (k + QUAD - 1) / QUAD;

  for (int64_t j = 0; j < cols; j += done, from += done * column, to += done) {
    int64_t first = 0;
    done = 1;
    if (column == 1 && cols - j >= LANE_COUNT) {
      pack_rows(first = quads, from, row, to);
      done = LANE_COUNT;
    } else if (row == 1 && cols - j >= 4) {
      pack_columns(first = quads / 4 * 4, from, column, to);
      done = 4;
    }
    for (int64_t l = first; l < stop; l++) {
      int64_t count = WEFT_MIN(QUAD, k - l * QUAD);
      uint32_t signs = 0x80808080u >> 8 * (QUAD - count);
      for (int64_t c = 0; c < done; c++)
        to[l * WIDTH + c] = quad_of(from + l * QUAD * row + c * column, row, count) ^ signs;
    }
  }
}

static int64_t padded(int64_t k) { return WEFT_ALIGN_UP(k, QUAD); }

static bool reads_in_place(const cpu_gemm *g) { return g->a_col == 1 && g->a_row % QUAD == 0 && g->k % QUAD == 0; }

/* to[m][padded k] = rows of A. */
static void pack_a(const cpu_gemm *g, int64_t m, const char *a, char *to)
{
  for (int64_t i = 0; i < m; i++, a += g->a_row, to += padded(g->k)) {
    memset(to + padded(g->k) - QUAD, 0, QUAD);
    if (g->a_col == 1) memcpy(to, a, (size_t)g->k);
    else
      for (int64_t l = 0; l < g->k; l++) to[l] = a[l * g->a_col];
  }
}

/* c[i] = -128 times the sum of row i of A, `row` bytes apart. */
static TARGET void start_sums(int64_t m, int64_t n, int64_t k, const char *a, int64_t row, int32_t *c, int64_t c_row)
{
  const __m512i ones = _mm512_set1_epi8(1);

  for (int64_t i = 0; i < m; i++, a += row, c += c_row) {
    __m512i sum = _mm512_setzero_si512();
    int64_t l = 0;
    for (; l + 64 <= k; l += 64) sum = _mm512_dpbusd_epi32(sum, ones, _mm512_loadu_si512(a + l));
    __mmask64 rest = ((__mmask64)1 << (k - l)) - 1;
    sum = _mm512_dpbusd_epi32(sum, ones, _mm512_maskz_loadu_epi8(rest, a + l));
    uint32_t total = (uint32_t)_mm512_reduce_add_epi32(sum) * (uint32_t)-128;
    for (int64_t j = 0; j < n; j++) c[j] = (int32_t)total;
  }
}

/* ---- tiles ----------------------------------------------------------------------------------------------------------- */

bool cpu_vnni_fits(const cpu_gemm *g)
{
  return g->a_type == WEFT_S8 && g->b_type == WEFT_S8 && g->c_type == WEFT_S32 && g->via == WEFT_INVALID &&
         g->k >= QUAD && WEFT_MAX(g->m, g->n) >= LANE_COUNT && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

void cpu_vnni_plan(cpu_gemm *g)
{
  double most = WEFT_MAX(LEAST_TILE_OPS, WEFT_MIN(MOST_TILE_OPS, g->flops / TILES));

  g->tile_m = cpu_even_part(g->m, MOST_ROWS);
  double columns = most / WEFT_MAX(2.0 * (double)g->tile_m * (double)g->k, 1);
  g->tile_n = WEFT_MIN(WEFT_MAX(g->n, 1), WEFT_ALIGN_UP(WEFT_MAX((int64_t)columns, 1), WIDTH));
  g->scratch_bytes = WIDTH * BLOCK_K + (reads_in_place(g) ? 0 : g->tile_m * padded(g->k));
}

void cpu_vnni_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  uint32_t *panel = scratch;
  int32_t *sums = (int32_t *)c;
  int64_t a_row = g->a_row, height = cpu_even_part(m, MAX_ROWS);

  if (!reads_in_place(g)) {
    char *packed = (char *)scratch + WIDTH * BLOCK_K;
    pack_a(g, m, a, packed);
    a = packed;
    a_row = padded(g->k);
  }
  start_sums(m, n, padded(g->k), a, a_row, sums, g->c_row);
  micro_steps steps = {a_row / QUAD, 1, WIDTH, g->c_row};
  for (int64_t l = 0; l < g->k; l += BLOCK_K)
    for (int64_t j = 0; j < n; j += WIDTH) {
      int64_t k = WEFT_MIN(BLOCK_K, g->k - l), cols = WEFT_MIN(WIDTH, n - j),
              vectors = (cols + LANE_COUNT - 1) / LANE_COUNT;
      pack_b(cols, k, b + l * g->b_row + j * g->b_col, g->b_row, g->b_col, panel);
      for (int64_t i = 0; i < m; i += height)
        micro[WEFT_MIN(height, m - i)][vectors](padded(k) / QUAD, a + i * a_row + l, panel, sums + i * g->c_row + j,
                                                &steps, cols - (vectors - 1) * LANE_COUNT, true);
    }
}

#else

bool cpu_vnni_fits(const cpu_gemm *gemm)
{
  (void)gemm;
  return false;
}

void cpu_vnni_plan(cpu_gemm *gemm) { (void)gemm; }

void cpu_vnni_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  (void)gemm, (void)m, (void)n, (void)a, (void)b, (void)c, (void)scratch;
}

#endif
