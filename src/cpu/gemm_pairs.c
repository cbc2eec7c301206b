/* cpu/gemm_pairs.c -- Products of s8, u8 and s16 into 32 bits by an instruction that adds two products of 16 bits to
 * each 32-bit lane: the form for processors without VNNI.  Blocks of C stay in registers as in gemm_dense.c, and the
 * loops are the same (gemm_micro.h); an "element" is two numbers of 16 bits that follow each other along k.  Both
 * operands are widened as they are packed: of A a tile's rows, of B panels of 16 columns, a block of k of each.
 * Products are exact and sums wrap, also the sum of two products that is 2^31. */
#include <config.h>

#include "cpu/gemm_pairs.h"

#if defined __x86_64__

#include <immintrin.h>
#include <string.h>

#include "base/macros.h"
#include "codegen/model/processor.h"
#include "cpu/gemm_micro.h"
#include "cpu/gemm_turn.h"

#define TARGET __attribute__((target("avx2,fma")))

typedef int32_t vec __attribute__((vector_size(32), may_alias));
typedef int32_t pair __attribute__((aligned(4), may_alias));

enum {
  MAX_ROWS = 6, VECTORS = CPU_MICRO_VECTORS, LANE_COUNT = 8, WIDTH = VECTORS * LANE_COUNT,
  BLOCK_K = 512,   /* a panel of B has at most 16 KiB */
  MOST_ROWS = 192, /* rows of A in a tile: a block of k of them stays in L2 */
  FEW = 8,
  TILES = 32,      /* tiles wanted, for many threads or threads of uneven speed */
};
#define LEAST_TILE_OPS 4e6 /* some 25 us */
#define MOST_TILE_OPS 32e6
#define ROW_TILE_OPS 0.5e6   /* operations of a tile for each row or column, where there are fewer than FEW of them */

/* The 8 entries from place 8 - n on select n lanes. */
static const int32_t choose[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

#define EACH_VARIANT UP_TO_6
#define TABLE static cpu_micro_table micro
#define NAME(x) s16_##x
#define ELEM pair
#define VEC vec
#define LANES 8
#define MASK __m256i
#define MASK_OF(count) _mm256_loadu_si256((const __m256i *)(choose + 8 - (count)))
#define LOAD(p) (vec)_mm256_loadu_si256((const __m256i *)(p))
#define LOAD_MASKED(m, p) (vec)_mm256_maskload_epi32((const int *)(p), m)
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), (__m256i)(v))
#define STORE_MASKED(p, m, v) _mm256_maskstore_epi32((int *)(p), m, (__m256i)(v))
#define SPLAT(x) (vec)_mm256_set1_epi32(x)
#define ZERO ((vec){0})
#define FMA(x, y, z) (vec)_mm256_add_epi32((__m256i)(z), _mm256_madd_epi16((__m256i)(x), (__m256i)(y)))
#include "cpu/gemm_micro_loop.h"

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static inline int16_t number_at(weft_dtype type, const char *from)
{
  int16_t x;

  if (type == WEFT_S8) return *(const int8_t *)from;
  if (type == WEFT_U8) return *(const uint8_t *)from;
  memcpy(&x, from, sizeof x);
  return x;
}

/* 16 neighbouring numbers. */
static inline TARGET __m256i sixteen_at(weft_dtype type, const char *from)
{
  if (type == WEFT_S8) return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)from));
  if (type == WEFT_U8) return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)from));
  return _mm256_loadu_si256((const void *)from);
}

/* to[k / 2][16 columns] = `rows` / 2 pairs of rows of B, which are dense and `row` bytes apart. */
static TARGET void pack_rows(weft_dtype type, int64_t rows, const char *from, int64_t row, uint32_t *to)
{
  for (int64_t l = 0; l + 2 <= rows; l += 2, from += 2 * row, to += WIDTH) {
    __m256i x = sixteen_at(type, from), y = sixteen_at(type, from + row);
    __m256i low = _mm256_unpacklo_epi16(x, y), high = _mm256_unpackhi_epi16(x, y);
    _mm256_storeu_si256((void *)to, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256((void *)(to + LANE_COUNT), _mm256_permute2x128_si256(low, high, 0x31));
  }
}

/* to[k / 2][8 of a panel's columns] = columns of B, which are dense and `column` bytes apart, transposed in squares
 * of 8 x 8 elements. */
static TARGET void pack_columns(weft_dtype type, int64_t pairs, const char *from, int64_t column, uint32_t *to)
{
  int64_t step = LANE_COUNT * 2 * (int64_t)weft_dtype_bytes(type);

  for (int64_t l = 0; l + LANE_COUNT <= pairs; l += LANE_COUNT, from += step, to += LANE_COUNT * WIDTH) {
    __m256 v[LANE_COUNT];
    for (int q = 0; q < LANE_COUNT; q++) v[q] = (__m256)sixteen_at(type, from + q * column);
    cpu_turn_8x8(v);
    for (int q = 0; q < LANE_COUNT; q++) _mm256_storeu_ps((float *)(to + q * WIDTH), v[q]);
  }
}

/* to[k / 2][16 columns] = a panel of B; an odd k ends with a zero. */
static void pack_b(weft_dtype type, int64_t cols, int64_t k, const char *from, int64_t row, int64_t column,
                   uint32_t *to)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(type), done;

  for (int64_t j = 0; j < cols; j += done, from += done * column, to += done) {
    int64_t first = 0;
    done = 1;
    if (column == bytes && cols == WIDTH) {
      pack_rows(type, first = k / 2 * 2, from, row, to);
      done = WIDTH;
    } else if (row == bytes && cols - j >= LANE_COUNT) {
      first = k / 2 / LANE_COUNT * LANE_COUNT;
      pack_columns(type, first, from, column, to);
      first *= 2;
      done = LANE_COUNT;
    }
    for (int64_t l = first; l < k; l += 2)
      for (int64_t c = 0; c < done; c++) {
        const char *at = from + l * row + c * column;
        uint16_t x = (uint16_t)number_at(type, at), y = l + 1 < k ? (uint16_t)number_at(type, at + row) : 0;
        to[l / 2 * WIDTH + c] = (uint32_t)y << 16 | x;
      }
  }
}

static int64_t padded(int64_t k) { return WEFT_ALIGN_UP(k, 2); }

/* to[m][padded k] = rows of A; steps in bytes. */
static TARGET void pack_a(weft_dtype type, int64_t m, int64_t k, const char *a, int64_t row, int64_t column,
                          int16_t *to)
{
  bool dense = column == (int64_t)weft_dtype_bytes(type);

  for (int64_t i = 0; i < m; i++, a += row, to += padded(k)) {
    int64_t l = 0;
    for (; dense && l + 16 <= k; l += 16) _mm256_storeu_si256((void *)(to + l), sixteen_at(type, a + l * column));
    for (; l < k; l++) to[l] = number_at(type, a + l * column);
    if (k & 1) to[k] = 0;
  }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

static bool is_short(weft_dtype type) { return type == WEFT_S8 || type == WEFT_U8 || type == WEFT_S16; }

/* A product with a dense column is computed as one with a row: C' = B' . A'. */
static bool is_turned(const cpu_gemm *g) { return g->n == 1 && g->m > 1 && g->c_row == 1; }

bool cpu_pairs_fits(const cpu_gemm *g)
{
  return is_short(g->a_type) && is_short(g->b_type) && (g->c_type == WEFT_S32 || g->c_type == WEFT_U32) &&
         g->via == WEFT_INVALID && g->k >= 2 && gen_this_processor.avx2;
}

static int64_t block_of_k(const cpu_gemm *g) { return WEFT_MIN(padded(g->k), BLOCK_K); }

void cpu_pairs_plan(cpu_gemm *g)
{
  double most = WEFT_MAX(LEAST_TILE_OPS, WEFT_MIN(MOST_TILE_OPS, g->flops / TILES));
  bool turned = is_turned(g);
  int64_t m = turned ? 1 : g->m, n = turned ? g->m : g->n, rows = cpu_even_part(m, MOST_ROWS);

  /* most of the time is packing */
  if (WEFT_MIN(m, n) < FEW) most = WEFT_MIN(most, (double)WEFT_MAX(WEFT_MIN(m, n), 1) * ROW_TILE_OPS);
  double columns = most / WEFT_MAX(2.0 * (double)rows * (double)g->k, 1);
  int64_t cols = WEFT_MIN(WEFT_MAX(n, 1), WEFT_ALIGN_UP(WEFT_MAX((int64_t)columns, 1), WIDTH));
  g->tile_m = turned ? cols : rows;
  g->tile_n = turned ? 1 : cols;
  g->scratch_bytes = block_of_k(g) * (WIDTH + rows) * (int64_t)sizeof(int16_t);
}

static void turn(cpu_gemm *g, int64_t *m, int64_t *n, const char **a, const char **b)
{
  cpu_gemm was = *g;
  const char *left = *a;

  g->a_type = was.b_type, g->a_row = was.b_col, g->a_col = was.b_row;
  g->b_type = was.a_type, g->b_row = was.a_col, g->b_col = was.a_row;
  *n = *m;
  *m = 1;
  *a = *b;
  *b = left;
}

static void make_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  int64_t a_bytes = (int64_t)weft_dtype_bytes(g->a_type), b_bytes = (int64_t)weft_dtype_bytes(g->b_type);
  int64_t block = block_of_k(g), height = cpu_even_part(m, MAX_ROWS), depth = cpu_gemm_used_k(g);
  uint32_t *panel = scratch;
  int16_t *rows = (int16_t *)(panel + block / 2 * WIDTH);
  int32_t *sums = (int32_t *)c;

  for (int64_t l = 0; l < depth; l += block) {
    int64_t k = WEFT_MIN(block, depth - l);
    pack_a(g->a_type, m, k, a + l * g->a_col * a_bytes, g->a_row * a_bytes, g->a_col * a_bytes, rows);
    cpu_micro_steps steps = {padded(k) / 2, 1, WIDTH, g->c_row};
    for (int64_t j = 0; j < n; j += WIDTH) {
      int64_t cols = WEFT_MIN(WIDTH, n - j), vectors = (cols + LANE_COUNT - 1) / LANE_COUNT;
      pack_b(g->b_type, cols, k, b + (l * g->b_row + j * g->b_col) * b_bytes, g->b_row * b_bytes, g->b_col * b_bytes,
             panel);
      for (int64_t i = 0; i < m; i += height)
        micro[WEFT_MIN(height, m - i)][vectors](padded(k) / 2, rows + i * padded(k), panel, sums + i * g->c_row + j,
                                                &steps, cols - (vectors - 1) * LANE_COUNT, l > 0);
    }
  }
}

void cpu_pairs_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  cpu_gemm g = *gemm;

  if (is_turned(gemm)) turn(&g, &m, &n, &a, &b);
  make_tile(&g, m, n, a, b, c, scratch);
}

#else

bool cpu_pairs_fits(const cpu_gemm *gemm)
{
  (void)gemm;
  return false;
}

void cpu_pairs_plan(cpu_gemm *gemm) { (void)gemm; }

void cpu_pairs_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  (void)gemm, (void)m, (void)n, (void)a, (void)b, (void)c, (void)scratch;
}

#endif
