/* cpu/gemm_lanes.c -- Products by instructions that add several products to each 32-bit lane: two of bf16 (AVX512-BF16)
 * or four of an unsigned and a signed byte (AVX-512 VNNI).  A "quad" is the 32 bits of operand that meet in a lane: two
 * or four numbers that follow each other along k, or one f32.  Large products of f32 whose A has dense columns are
 * multiplied here, by the innermost loops of gemm_dense.c, since A is copied.  In terms of quads the loops are:
 *
 *   for each block of k:                 A is read in place, or copied if its rows are not dense or collide in caches
 *     for each strip of columns:         packed, as panels of 32 columns (stays in L2)
 *       for each panel (stays in L1):    blocks of C in registers
 *
 * A product of few rows costs what reading B costs.  Where rows of B are dense, a few of them are packed
 * at a time over all columns of the tile, and used at once; where columns are dense, they are multiplied
 * by the rows of A without packing, sixteen numbers of C at a time.  A product with fewer than 16 columns
 * and more rows is computed as C' = B' . A'.
 *
 * bf16: the instruction takes denormals for zero and rounds sums to nearest even (Intel SDM, VDPBF16PS); AMX does the
 * same. s8: B has 128 added to make it unsigned, so C starts as -128 times the sums of A's rows; sums wrap and are
 * exact. The blocks of k depend only on k, so the way in which C is cut changes no bit. */
#include <config.h>

#include "cpu/gemm_lanes.h"

#if defined __x86_64__

#include <assert.h>
#include <immintrin.h>
#include <string.h>

#include "base/macros.h"
#include "codegen/model/processor.h"
#include "cpu/gemm_dense.h"
#include "cpu/gemm_micro.h"
#include "cpu/gemm_turn.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

typedef int32_t vec __attribute__((vector_size(64), may_alias));
typedef int32_t quad __attribute__((aligned(1), may_alias));

enum {
  MAX_ROWS = CPU_MICRO_ROWS, VECTORS = CPU_MICRO_VECTORS, LANE_COUNT = 16, WIDTH = VECTORS * LANE_COUNT, QUAD_BYTES = 4,
  BLOCK_QUADS = 256,  /* of k: a panel of B has at most 32 KiB */
  STRIP = 256,        /* columns packed at a time: at most 256 KiB */
  MOST_ROWS = 512,    /* rows of A in a tile: a block of k of them stays in L2 */
  MOST_COPIED_ROWS = 256, LEAST_COPIED_COLUMNS = 256,
  AHEAD = 8,          /* rows of quads that are packed at a time where they lie far apart */
  LEAST_F32 = 512,    /* rows, columns and k of f32: gemm_dense.c is as good for less */
  FEW = 16,           /* rows that are multiplied as B is read */
  LEAST_FEW_COLUMNS = 128,
  DEEP = 8,           /* rows of B at a time */
  PANELS = 4,         /* of B at a time, for one row */
  ROW_BYTES = WIDTH * QUAD_BYTES,
  AHEAD_BYTES = 8 * ROW_BYTES, /* that are asked for before they are read */
  TILES = 32,         /* tiles wanted, for many threads or threads of uneven speed */
  PAGE = 4096,        /* rows that are a multiple of this apart share a set of the L1 cache */
};
#define LEAST_TILE_OPS 4e6      /* some 10 us */
#define LEAST_ROW_TILE_OPS 5e5  /* the same for each row of few */
#define MOST_TILE_OPS 64e6

#define EACH_VARIANT UP_TO_14
#define TABLE static cpu_micro_table micro_s8
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
#include "cpu/gemm_micro_loop.h"

#undef TARGET
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define TABLE static cpu_micro_table micro_bf16
#define NAME(x) bf16_##x
#define ELEM quad
#define VEC __m512
#define LANES 16
#define MASK __mmask16
#define MASK_OF(count) ((MASK)((1u << (count)) - 1))
#define LOAD(p) _mm512_loadu_ps(p)
#define LOAD_MASKED(m, p) _mm512_maskz_loadu_ps(m, p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define STORE_MASKED(p, m, v) _mm512_mask_storeu_ps(p, m, v)
#define SPLAT(x) _mm512_castsi512_ps(_mm512_set1_epi32(x))
#define ZERO _mm512_setzero_ps()
#define FMA(x, y, z) _mm512_dpbf16_ps(z, (__m512bh)(x), (__m512bh)(y))
#include "cpu/gemm_micro_loop.h"

#undef TARGET
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

/* ---- dot products ------------------------------------------------------------------------------------------------ */

/* name(bytes, a, b, s): the dot products of the rows of A that ROWS names and four columns of B, all of them dense, as
 * vectors whose lanes are still to be added up: s[4 * row + column]. */
#define DOTS(name, ROWS, FEATURES, ADD, FLIP)                                                                           \
  static __attribute__((target(FEATURES))) void name(int64_t bytes, const char *const *a, const char *const *b,        \
                                                     __m512i *s)                                                       \
  {                                                                                                                    \
    const char *b0 = b[0], *b1 = b[1], *b2 = b[2], *b3 = b[3];                                                         \
    ROWS(DOT_CLEAR, ADD)                                                                                               \
    for (int64_t at = 0; at < bytes; at += 64) {                                                                       \
      __mmask64 mask = bytes - at < 64 ? ((__mmask64)1 << (bytes - at)) - 1 : ~(__mmask64)0;                           \
      __m512i y0 = FLIP(_mm512_maskz_loadu_epi8(mask, b0 + at)), y1 = FLIP(_mm512_maskz_loadu_epi8(mask, b1 + at)),    \
              y2 = FLIP(_mm512_maskz_loadu_epi8(mask, b2 + at)), y3 = FLIP(_mm512_maskz_loadu_epi8(mask, b3 + at));    \
      ROWS(DOT_ADD, ADD)                                                                                               \
    }                                                                                                                  \
    ROWS(DOT_KEEP, ADD)                                                                                                \
  }
/* Lane i is the sum of the lanes of vector i. */
#define SUM_LANES(name, SUM)                             \
  static TARGET __m512i name(__m512i s[16])              \
  {                                                      \
    cpu_turn_16x16(s);                                       \
    __m512i total = s[0];                                \
    CPU_UNROLL                                           \
    for (int i = 1; i < 16; i++) total = SUM(total, s[i]); \
    return total;                                        \
  }
#define DOT_CLEAR(i, ADD)                                                                                     \
  const char *a##i = a[i];                                                                                    \
  __m512i s##i##0 = _mm512_setzero_si512(), s##i##1 = s##i##0, s##i##2 = s##i##0, s##i##3 = s##i##0;
#define DOT_ADD(i, ADD)                                         \
  {                                                             \
    __m512i x = _mm512_maskz_loadu_epi8(mask, a##i + at);       \
    s##i##0 = ADD(s##i##0, y0, x);                              \
    s##i##1 = ADD(s##i##1, y1, x);                              \
    s##i##2 = ADD(s##i##2, y2, x);                              \
    s##i##3 = ADD(s##i##3, y3, x);                              \
  }
#define DOT_KEEP(i, ADD) s[4 * i] = s##i##0, s[4 * i + 1] = s##i##1, s[4 * i + 2] = s##i##2, s[4 * i + 3] = s##i##3;
#define DOT_1(X, ADD) X(0, ADD)
#define DOT_2(X, ADD) X(0, ADD) X(1, ADD)
#define DOT_4(X, ADD) X(0, ADD) X(1, ADD) X(2, ADD) X(3, ADD)
#define ALL_DOTS(name, FEATURES, ADD, FLIP)        \
  DOTS(name##_1, DOT_1, FEATURES, ADD, FLIP)       \
  DOTS(name##_2, DOT_2, FEATURES, ADD, FLIP)       \
  DOTS(name##_4, DOT_4, FEATURES, ADD, FLIP)
#define ADD_BYTES(s, y, x) _mm512_dpbusd_epi32(s, y, x)
#define FLIP_BYTES(y) _mm512_xor_si512(y, _mm512_set1_epi8((char)0x80))
#define ADD_PAIRS(s, y, x) (__m512i) _mm512_dpbf16_ps((__m512)(s), (__m512bh)(x), (__m512bh)(y))
#define SUM_FLOATS(x, y) (__m512i) _mm512_add_ps((__m512)(x), (__m512)(y))
#define AS_IT_IS(y) y
ALL_DOTS(dots_s8, "avx512f,avx512bw,avx512vl,avx512vnni", ADD_BYTES, FLIP_BYTES)
SUM_LANES(sum_lanes_s8, _mm512_add_epi32)
ALL_DOTS(dots_bf16, "avx512f,avx512bw,avx512vl,avx512bf16,avx512vnni", ADD_PAIRS, AS_IT_IS)
SUM_LANES(sum_lanes_bf16, SUM_FLOATS)

/* ---- few rows ---------------------------------------------------------------------------------------------------- */

/* Interleaves two rows of 32 numbers of 16 bits. */
#define LOW_PAIRS                                                                                                         \
  _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, \
                   33, 1, 32, 0)

/* sums[m][cols] += a[m][8] . b[8][cols], where rows of A and of B are dense and
 * steps are in bytes; `rows` of the 8 exist. */
static __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void add_rows_bf16(int64_t m, int64_t cols,
                                                                                          int64_t rows, const char *a,
                                                                                          int64_t a_row, const char *b,
                                                                                          int64_t b_row, quad *sums,
                                                                                          int64_t sum_row)
{
  const __m512i low = LOW_PAIRS, high = _mm512_add_epi16(low, _mm512_set1_epi16(16));

  for (int64_t j = 0; j < cols; j += WIDTH, b += 2 * WIDTH) {
    int64_t count = WEFT_MIN(WIDTH, cols - j);
    const __mmask32 mask = count < 32 ? (1u << count) - 1 : ~0u;
    const __mmask16 first = (__mmask16)mask, second = (__mmask16)(mask >> 16);
    __m512i r0 = _mm512_maskz_loadu_epi16(mask, b), r1 = _mm512_maskz_loadu_epi16(rows > 1 ? mask : 0, b + b_row);
    __m512i r2 = _mm512_maskz_loadu_epi16(rows > 2 ? mask : 0, b + 2 * b_row);
    __m512i r3 = _mm512_maskz_loadu_epi16(rows > 3 ? mask : 0, b + 3 * b_row);
    __m512i r4 = _mm512_maskz_loadu_epi16(rows > 4 ? mask : 0, b + 4 * b_row);
    __m512i r5 = _mm512_maskz_loadu_epi16(rows > 5 ? mask : 0, b + 5 * b_row);
    __m512i r6 = _mm512_maskz_loadu_epi16(rows > 6 ? mask : 0, b + 6 * b_row);
    __m512i r7 = _mm512_maskz_loadu_epi16(rows > 7 ? mask : 0, b + 7 * b_row);
    __m512bh x0 = (__m512bh)_mm512_permutex2var_epi16(r0, low, r1),
             y0 = (__m512bh)_mm512_permutex2var_epi16(r0, high, r1);
    __m512bh x1 = (__m512bh)_mm512_permutex2var_epi16(r2, low, r3),
             y1 = (__m512bh)_mm512_permutex2var_epi16(r2, high, r3);
    __m512bh x2 = (__m512bh)_mm512_permutex2var_epi16(r4, low, r5),
             y2 = (__m512bh)_mm512_permutex2var_epi16(r4, high, r5);
    __m512bh x3 = (__m512bh)_mm512_permutex2var_epi16(r6, low, r7),
             y3 = (__m512bh)_mm512_permutex2var_epi16(r6, high, r7);
    for (int64_t i = 0; i < m; i++) {
      float *to = (float *)(sums + i * sum_row + j);
      const quad *from = (const quad *)(a + i * a_row);
      __m512bh a0 = (__m512bh)_mm512_set1_epi32(from[0]), a1 = (__m512bh)_mm512_set1_epi32(from[1]);
      __m512bh a2 = (__m512bh)_mm512_set1_epi32(from[2]), a3 = (__m512bh)_mm512_set1_epi32(from[3]);
      __m512 s0 = _mm512_maskz_loadu_ps(first, to), s1 = _mm512_maskz_loadu_ps(second, to + LANE_COUNT);
      s0 = _mm512_dpbf16_ps(_mm512_dpbf16_ps(_mm512_dpbf16_ps(_mm512_dpbf16_ps(s0, a0, x0), a1, x1), a2, x2), a3, x3);
      s1 = _mm512_dpbf16_ps(_mm512_dpbf16_ps(_mm512_dpbf16_ps(_mm512_dpbf16_ps(s1, a0, y0), a1, y1), a2, y2), a3, y3);
      _mm512_mask_storeu_ps(to, first, s0);
      _mm512_mask_storeu_ps(to + LANE_COUNT, second, s1);
    }
  }
}

/* c[cols] = a . b for one row of `quads` quads and PANELS panels of B beside each other, of which each is read as it
 * lies: as many streams as the memory answers at once. */
static __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void add_panels_bf16(int64_t quads,
                                                                                            const quad *a,
                                                                                            const char *b, float *c)
{
  const char *b0 = b, *b1 = b0 + quads * ROW_BYTES, *b2 = b1 + quads * ROW_BYTES, *b3 = b2 + quads * ROW_BYTES;
#define PANEL_CLEAR(p) __m512 s##p##0 = _mm512_setzero_ps(), s##p##1 = s##p##0
#define PANEL_ADD(p)                                                                             \
  {                                                                                              \
    _mm_prefetch(b##p + AHEAD_BYTES, _MM_HINT_T0);                                               \
    _mm_prefetch(b##p + AHEAD_BYTES + ROW_BYTES / 2, _MM_HINT_T0);                               \
    s##p##0 = _mm512_dpbf16_ps(s##p##0, x, (__m512bh)_mm512_loadu_si512(b##p));                   \
    s##p##1 = _mm512_dpbf16_ps(s##p##1, x, (__m512bh)_mm512_loadu_si512(b##p + ROW_BYTES / 2));   \
    b##p += ROW_BYTES;                                                                           \
  }
#define PANEL_STORE(p)                                        \
  {                                                           \
    _mm512_storeu_ps(c + p * WIDTH, s##p##0);                 \
    _mm512_storeu_ps(c + p * WIDTH + LANE_COUNT, s##p##1);    \
  }
  PANEL_CLEAR(0);
  PANEL_CLEAR(1);
  PANEL_CLEAR(2);
  PANEL_CLEAR(3);
  for (int64_t l = 0; l < quads; l++) {
    __m512bh x = (__m512bh)_mm512_set1_epi32(a[l]);
    PANEL_ADD(0)
    PANEL_ADD(1)
    PANEL_ADD(2)
    PANEL_ADD(3)
  }
  PANEL_STORE(0)
  PANEL_STORE(1)
  PANEL_STORE(2)
  PANEL_STORE(3)
}

/* ---- the types --------------------------------------------------------------------------------------------------- */

/* Packs `quads` rows of quads of `cols` columns (at most WIDTH) whose rows of numbers are dense: to[quads][width]. */
typedef void pack_rows_fn(int64_t cols, int64_t k, const char *from, int64_t row, uint32_t *to, int64_t width);

/* See DOTS and SUM_LANES. */
typedef void dots_fn(int64_t bytes, const char *const *a, const char *const *b, __m512i *s);
typedef __m512i sum_lanes_fn(__m512i s[16]);

typedef void add_rows_fn(int64_t m, int64_t cols, int64_t rows, const char *a, int64_t a_row, const char *b,
                         int64_t b_row, quad *sums, int64_t sum_row);

typedef void add_panels_fn(int64_t quads, const quad *a, const char *b, float *c);

typedef struct form {
  weft_dtype type, sums;
  int64_t bytes, lanes; /* of a number; numbers in a quad */
  uint32_t flip;        /* of a quad of the packed operand */
  pack_rows_fn *pack_rows;
  dots_fn *dots[5];     /* by the number of rows */
  sum_lanes_fn *sum_lanes;
  add_rows_fn *add_rows; /* NULL: rows are packed */
  add_panels_fn *add_panels; /* NULL: one row is multiplied as several are */
  cpu_micro_fn *const (*micro)[VECTORS + 1];
} form;

/* Rows of f32 are copied. */
static TARGET void pack_rows_of_one(int64_t cols, int64_t k, const char *from, int64_t row, uint32_t *to, int64_t width)
{
  const __mmask16 first = cols < 16 ? (__mmask16)((1u << cols) - 1) : 0xffff;
  const __mmask16 second = cols < 32 ? cols > 16 ? (__mmask16)((1u << (cols - 16)) - 1) : 0 : 0xffff;

  for (int64_t l = 0; l < k; l++, from += row, to += width) {
    _mm512_storeu_si512(to, _mm512_maskz_loadu_epi32(first, from));
    _mm512_storeu_si512(to + LANE_COUNT, _mm512_maskz_loadu_epi32(second, from + 64));
  }
}

/* Two rows of bf16 at a time become one of pairs. */
static TARGET void pack_rows_of_two(int64_t cols, int64_t k, const char *from, int64_t row, uint32_t *to, int64_t width)
{
  const __mmask32 mask = cols < 32 ? (1u << cols) - 1 : ~0u;
  const __m512i low = LOW_PAIRS;
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));

  for (int64_t l = 0; l < k; l += 2, from += 2 * row, to += width) {
    __m512i even = _mm512_maskz_loadu_epi16(mask, from);
    __m512i odd = l + 1 < k ? _mm512_maskz_loadu_epi16(mask, from + row) : _mm512_setzero_si512();
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_storeu_si512(to + LANE_COUNT, _mm512_permutex2var_epi16(even, high, odd));
  }
}

/* Four rows of bytes at a time become one of quads, with 128 added to each byte. */
static TARGET void pack_rows_of_four(int64_t cols, int64_t k, const char *from, int64_t row, uint32_t *to,
                                     int64_t width)
{
  const __mmask32 mask = cols < 32 ? (1u << cols) - 1 : ~0u;
  const __m256i sign = _mm256_set1_epi8((char)0x80);

  for (int64_t l = 0; l < k; l += 4, from += 4 * row, to += width) {
    __m256i r[4];
    for (int64_t q = 0; q < 4; q++)
      r[q] = _mm256_xor_si256(l + q < k ? _mm256_maskz_loadu_epi8(mask, from + q * row) : _mm256_setzero_si256(), sign);
    __m256i low01 = _mm256_unpacklo_epi8(r[0], r[1]), high01 = _mm256_unpackhi_epi8(r[0], r[1]);
    __m256i low23 = _mm256_unpacklo_epi8(r[2], r[3]), high23 = _mm256_unpackhi_epi8(r[2], r[3]);
    /* columns 0 to 3 and 16 to 19, 4 to 7 and 20 to 23, and so on */
    __m256i c0 = _mm256_unpacklo_epi16(low01, low23), c4 = _mm256_unpackhi_epi16(low01, low23);
    __m256i c8 = _mm256_unpacklo_epi16(high01, high23), c12 = _mm256_unpackhi_epi16(high01, high23);
    _mm256_storeu_si256((void *)to, _mm256_permute2x128_si256(c0, c4, 0x20));
    _mm256_storeu_si256((void *)(to + 8), _mm256_permute2x128_si256(c8, c12, 0x20));
    _mm256_storeu_si256((void *)(to + 16), _mm256_permute2x128_si256(c0, c4, 0x31));
    _mm256_storeu_si256((void *)(to + 24), _mm256_permute2x128_si256(c8, c12, 0x31));
  }
}

static const form forms[] = {
  {WEFT_BF16, WEFT_F32, 2, 2, 0, pack_rows_of_two, {NULL, dots_bf16_1, dots_bf16_2, NULL, dots_bf16_4}, sum_lanes_bf16, add_rows_bf16, add_panels_bf16, micro_bf16},
  {WEFT_S8, WEFT_S32, 1, 4, 0x80808080, pack_rows_of_four, {NULL, dots_s8_1, dots_s8_2, NULL, dots_s8_4}, sum_lanes_s8, NULL, NULL, micro_s8},
  {WEFT_F32, WEFT_F32, 4, 1, 0, pack_rows_of_one, {NULL}, NULL, NULL, NULL, cpu_micro_f32},
};

static const form *form_of(const cpu_gemm *g)
{
  return &forms[g->a_type == WEFT_S8 ? 1 : g->a_type == WEFT_F32 ? 2 : 0];
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* Number l of row (of A) or column (of B) i is at i * across + l * along. */
typedef struct side {
  const char *data;
  int64_t across, along;
} side;

/* to[quads][width] = `cols` dense columns (at most 16), `column` bytes apart; `bytes` of each. */
static TARGET void pack_columns(int64_t cols, int64_t bytes, const char *from, int64_t column, uint32_t flip,
                                uint32_t *to, int64_t width)
{
  const __m512i signs = _mm512_set1_epi32((int)flip);

  for (int64_t at = 0; at < bytes; at += 64, to += LANE_COUNT * width) {
    __mmask64 mask = bytes - at < 64 ? ((__mmask64)1 << (bytes - at)) - 1 : ~(__mmask64)0;
    int64_t quads = WEFT_MIN(LANE_COUNT, (bytes - at + QUAD_BYTES - 1) / QUAD_BYTES);
    __m512i v[16];
    CPU_UNROLL
    for (int64_t q = 0; q < 16; q++)
      v[q] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(q < cols ? mask : 0, from + WEFT_MIN(q, cols - 1) * column + at),
                              signs);
    cpu_turn_16x16(v);
    if (quads == LANE_COUNT) {
      CPU_UNROLL
      for (int64_t q = 0; q < LANE_COUNT; q++) _mm512_storeu_si512(to + q * width, v[q]);
    } else
      for (int64_t q = 0; q < quads; q++) _mm512_storeu_si512(to + q * width, v[q]);
  }
}

static void pack_any(const form *f, int64_t cols, int64_t k, side s, uint32_t flip, uint32_t *to, int64_t width)
{
  for (int64_t l = 0; l < k; l += f->lanes, to += width)
    for (int64_t j = 0; j < cols; j++) {
      const char *from = s.data + (j * s.across + l * s.along) * f->bytes;
      uint32_t x = 0;
      for (int64_t q = 0; q < WEFT_MIN(f->lanes, k - l); q++)
        memcpy((char *)&x + q * f->bytes, from + q * s.along * f->bytes, (size_t)f->bytes);
      to[j] = x ^ flip;
    }
}

static int64_t quads_of(const form *f, int64_t k) { return (k + f->lanes - 1) / f->lanes; }

/* Packs k numbers of each of `count` rows or columns of one operand: to[panel][quads][width], panels of `width`
 * columns, a multiple of WIDTH.  Dense rows are packed row by row over all panels, since they lie far apart. */
static void pack(const form *f, int64_t count, int64_t k, side s, bool flip, uint32_t *to, int64_t width)
{
  int64_t quads = quads_of(f, k), at_once = s.across == 1 ? AHEAD * f->lanes : k;

  for (int64_t l = 0; l < k; l += at_once)
    for (int64_t j = 0; j < count; j += WIDTH) {
      int64_t cols = WEFT_MIN(WIDTH, count - j), rest = WEFT_MIN(at_once, k - l);
      side part = {s.data + (j * s.across + l * s.along) * f->bytes, s.across, s.along};
      uint32_t *out = to + j / width * width * quads + l / f->lanes * width + j % width;
      if (s.across == 1) f->pack_rows(cols, rest, part.data, s.along * f->bytes, out, width);
      else if (s.along == 1)
        for (int64_t c = 0; c < cols; c += LANE_COUNT)
          pack_columns(WEFT_MIN(LANE_COUNT, cols - c), rest * f->bytes, part.data + c * s.across * f->bytes,
                       s.across * f->bytes, flip ? f->flip : 0, out + c, width);
      else pack_any(f, cols, rest, part, flip ? f->flip : 0, out, width);
    }
  /* the bytes of A are signed */
  if (s.across == 1 && f->flip && !flip)
    for (int64_t q = 0; q < (count + width - 1) / width * width * quads; q++) to[q] ^= f->flip;
}

/* to[m][quads] = dense rows of A. */
static TARGET void copy_rows(const form *f, int64_t m, int64_t k, side a, char *to, int64_t row_bytes)
{
  int64_t bytes = k * f->bytes;

  for (int64_t i = 0; i < m; i++, to += row_bytes) {
    const char *from = a.data + i * a.across * f->bytes;
    for (int64_t at = 0; at < bytes; at += 64) {
      __mmask64 mask = bytes - at < 64 ? ((__mmask64)1 << (bytes - at)) - 1 : ~(__mmask64)0;
      _mm512_storeu_si512(to + at, _mm512_maskz_loadu_epi8(mask, from + at));
    }
  }
}

/* c[i][n] = -128 times the sum of row i of A. */
static TARGET void start_sums(int64_t m, int64_t n, int64_t k, side a, int32_t *c, int64_t c_row)
{
  const __m512i ones = _mm512_set1_epi8(1);

  for (int64_t i = 0; i < m; i++, c += c_row) {
    const char *from = a.data + i * a.across;
    uint32_t total = 0;
    if (a.along == 1) {
      __m512i sum = _mm512_setzero_si512();
      int64_t l = 0;
      for (; l + 64 <= k; l += 64) sum = _mm512_dpbusd_epi32(sum, ones, _mm512_loadu_si512(from + l));
      sum = _mm512_dpbusd_epi32(sum, ones, _mm512_maskz_loadu_epi8(((__mmask64)1 << (k - l)) - 1, from + l));
      total = (uint32_t)_mm512_reduce_add_epi32(sum);
    } else
      for (int64_t l = 0; l < k; l++) total += (uint32_t)(int8_t)from[l * a.along];
    total *= (uint32_t)-128;
    for (int64_t j = 0; j < n; j++) c[j] = (int32_t)total;
  }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

bool cpu_lanes_fits(const cpu_gemm *g)
{
  if (g->a_type == WEFT_F32)
    return g->b_type == WEFT_F32 && g->c_type == WEFT_F32 && g->via == WEFT_INVALID && g->a_col != 1 &&
           WEFT_MIN(WEFT_MIN(g->m, g->n), g->k) >= LEAST_F32 && !cpu_dense_narrow && gen_this_processor.avx512_vnni;
  if (g->a_type != g->b_type || g->k < 2 || WEFT_MAX(g->m, g->n) < LANE_COUNT / 2 || !gen_this_processor.avx512_vnni)
    return false;
  if (g->a_type == WEFT_S8) return g->c_type == WEFT_S32 && g->via == WEFT_INVALID;
  return g->a_type == WEFT_BF16 && (g->c_type == WEFT_F32 || g->c_type == WEFT_BF16) &&
         (g->via == WEFT_INVALID || g->via == WEFT_BF16) && gen_this_processor.avx512_bf16;
}

static bool is_turned(const cpu_gemm *g) { return g->n < LANE_COUNT && g->m > g->n; }

static int64_t block_of_k(const cpu_gemm *g)
{
  const form *f = form_of(g);
  int64_t quads = quads_of(f, g->k);

  return f->lanes * (quads <= BLOCK_QUADS ? quads : WEFT_ALIGN_UP(cpu_even_part(quads, BLOCK_QUADS), LANE_COUNT));
}

typedef enum left_order { IN_PLACE, ROWS, PANEL } left_order;

/* How the left operand is read: of a product of m rows. */
static left_order order_of(const cpu_gemm *g, int64_t m, int64_t across, int64_t along)
{
  const form *f = form_of(g);

  if (along != 1) return PANEL;
  return (m > 1 && across % f->lanes) || g->k % f->lanes || (m > MAX_ROWS && across * f->bytes % PAGE == 0) ? ROWS
                                                                                                            : IN_PLACE;
}

/* The product of one tile as the loops see it, and where its parts lie in the scratch. */
typedef struct tile_plan {
  const form *form;
  bool turned, in_place; /* in_place: sums are kept in c */
  bool dots, add_rows;   /* few rows by dense columns, by dense rows */
  bool has_form;         /* few rows, for which the right operand has a packed form */
  left_order order;
  int64_t m, n, block, strip, left_row;
  int64_t left_at, sum_at, bytes;
} tile_plan;

static tile_plan plan_tile(const cpu_gemm *g, int64_t m, int64_t n)
{
  const form *f = form_of(g);
  bool turned = is_turned(g);
  tile_plan p = {.form = f, .turned = turned, .m = turned ? n : m, .n = turned ? m : n, .block = block_of_k(g)};

  p.in_place = g->c_type == f->sums && (!turned || (n == 1 && g->c_row == 1));
  p.order = turned ? order_of(g, p.m, g->b_col, g->b_row) : order_of(g, p.m, g->a_row, g->a_col);
  int64_t across = turned ? g->a_row : g->b_col, along = turned ? g->a_col : g->b_row;
  bool few = p.m <= FEW && f->sum_lanes && (turned ? g->m : g->n) >= LEAST_FEW_COLUMNS &&
             (turned ? g->b_row : g->a_col) == 1;
  p.dots = few && along == 1;
  p.add_rows = few && !p.dots && across == 1 && f->add_rows;
  p.has_form = few && !p.dots && !turned;
  if (p.add_rows) {
    p.block = g->k;
    p.order = g->k % DEEP ? ROWS : IN_PLACE;
  }
  int64_t quads = quads_of(f, p.block);
  p.strip = p.dots || p.add_rows ? 0 : WEFT_MIN(STRIP, WEFT_ALIGN_UP(p.n, WIDTH));
  p.left_row = p.order == PANEL ? WEFT_ALIGN_UP(p.m, WIDTH) : WEFT_ALIGN_UP(quads, LANE_COUNT) + LANE_COUNT;
  p.left_at = p.strip * quads * QUAD_BYTES;
  p.sum_at = p.left_at + (p.order == IN_PLACE && !p.has_form ? 0
                          : p.order == PANEL                 ? quads * p.left_row
                                                             : p.m * p.left_row) *
                           QUAD_BYTES;
  p.bytes = p.sum_at + (p.in_place ? 0 : p.m * p.n * QUAD_BYTES);
  return p;
}

void cpu_lanes_plan(cpu_gemm *g)
{
  bool turned = is_turned(g);
  int64_t m = turned ? g->n : g->m, n = turned ? g->m : g->n;
  bool copied = order_of(g, m, turned ? g->b_col : g->a_row, turned ? g->b_row : g->a_col) != IN_PLACE;
  double least =
    WEFT_MIN(g->a_type == WEFT_F32 ? LEAST_TILE_OPS / 2 : LEAST_TILE_OPS, LEAST_ROW_TILE_OPS * (double)WEFT_MAX(m, 1));
  double most = WEFT_MAX(least, WEFT_MIN(MOST_TILE_OPS, g->flops / TILES));
  int64_t rows = cpu_even_part(m, copied ? MOST_COPIED_ROWS : MOST_ROWS);
  double columns = most / WEFT_MAX(2.0 * (double)rows * (double)g->k, 1);
  int64_t cols = WEFT_MAX((int64_t)columns, copied && m > FEW ? LEAST_COPIED_COLUMNS : m <= FEW ? 2 * WIDTH : 1);

  cols = WEFT_MIN(WEFT_MAX(n, 1), WEFT_ALIGN_UP(cols, m == 1 ? PANELS * WIDTH : WIDTH));
  g->tile_m = turned ? cols : rows;
  g->tile_n = turned ? rows : cols;
  g->scratch_bytes = plan_tile(g, g->tile_m, g->tile_n).bytes;
}

/* Writes sums[p->m][p->n] into c. */
static void put_sums(const cpu_gemm *g, const tile_plan *p, void *sums, char *c)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->c_type);

  if (!p->turned) {
    bool one_run = g->c_row == p->n;
    for (int64_t i = 0; i < (one_run ? 1 : p->m); i++)
      cpu_convert(g->c_type, c + i * g->c_row * bytes, p->form->sums, (float *)sums + i * p->n, 1,
                  one_run ? p->m * p->n : p->n);
    return;
  }
  for (int64_t j = 0; j < p->m; j++) { /* a row of the sums is a column of c */
    char *from = (char *)sums + j * p->n * QUAD_BYTES;
    if (g->c_type == WEFT_BF16) {
      uint16_t *to = (uint16_t *)c + j, narrow[256];
      for (int64_t i = 0; i < p->n; i += 256) {
        int64_t count = WEFT_MIN(256, p->n - i);
        cpu_convert(g->c_type, narrow, p->form->sums, from + i * QUAD_BYTES, 1, count);
        for (int64_t q = 0; q < count; q++) to[(i + q) * g->c_row] = narrow[q];
      }
    } else
      for (int64_t i = 0; i < p->n; i++) ((quad *)c)[i * g->c_row + j] = ((const quad *)from)[i];
  }
}

/* Dense rows by dense columns: 4 rows by 4 columns at a time, 2 by 8 or 1 by 16. */
static TARGET void multiply_dots(const form *f, int64_t m, int64_t n, int64_t k, side left, side right, bool add,
                                 quad *sums, int64_t sum_row)
{
  int64_t height = m >= 3 ? 4 : m, width = 16 / height;

  for (int64_t j = 0; j < n; j += width)
    for (int64_t i = 0; i < m; i += height) {
      int64_t rows = WEFT_MIN(height, m - i), cols = WEFT_MIN(width, n - j);
      const char *a[4], *b[16];
      __m512i s[16];
      int32_t part[16];
      for (int64_t q = 0; q < 4; q++) a[q] = left.data + (i + WEFT_MIN(q, rows - 1)) * left.across * f->bytes;
      for (int64_t q = 0; q < width; q++) b[q] = right.data + (j + WEFT_MIN(q, cols - 1)) * right.across * f->bytes;
      for (int64_t q = 0; q < width; q += 4) f->dots[height](k * f->bytes, a, b + q, s + q * height);
      _mm512_storeu_si512(part, f->sum_lanes(s));
      for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
          quad *to = sums + (i + r) * sum_row + j + c;
          uint32_t x = (uint32_t)part[c / 4 * 4 * height + 4 * r + c % 4];
          *to = (int32_t)(x + (add ? (uint32_t)*to : 0));
        }
    }
}

/* Dense rows by a matrix of dense rows, DEEP of them at a time. */
static void multiply_rows(const tile_plan *p, int64_t k, side left, side right, char *copy, quad *sums, int64_t sum_row)
{
  int64_t bytes = p->form->bytes, a_row = left.across * bytes;
  const char *a = left.data;

  if (p->order == ROWS) {
    a_row = p->left_row * QUAD_BYTES;
    copy_rows(p->form, p->m, k, left, copy, a_row);
    a = copy;
  }
  for (int64_t i = 0; i < p->m; i++) memset((void *)(sums + i * sum_row), 0, (size_t)(p->n * QUAD_BYTES));
  for (int64_t l = 0; l < k; l += DEEP)
    p->form->add_rows(p->m, p->n, k - l, a + l * bytes, a_row, right.data + l * right.along * bytes,
                      right.along * bytes, sums, sum_row);
}

void cpu_lanes_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  tile_plan p = plan_tile(g, m, n);
  const form *f = p.form;
  side left = {a, g->a_row, g->a_col}, right = {b, g->b_col, g->b_row}, other = left;
  uint32_t *strip = scratch;
  char *copy = (char *)scratch + p.left_at;
  quad *sums = p.in_place ? (quad *)c : (quad *)((char *)scratch + p.sum_at);
  int64_t sum_row = p.in_place && !p.turned ? g->c_row : p.n, height = cpu_even_part(p.m, MAX_ROWS);
  int64_t depth = cpu_gemm_used_k(g);

  assert(p.bytes <= g->scratch_bytes);
  if (p.turned) {
    left = right;
    right = other;
  }
  if (f->flip) start_sums(p.m, p.n, depth, left, (int32_t *)sums, sum_row);
  if (p.dots) multiply_dots(f, p.m, p.n, depth, left, right, f->flip, sums, sum_row);
  if (p.add_rows) multiply_rows(&p, depth, left, right, copy, sums, sum_row);
  for (int64_t l = 0; l < depth && !p.dots && !p.add_rows; l += p.block) {
    int64_t k = WEFT_MIN(p.block, depth - l), quads = quads_of(f, k);
    side from = {left.data + l * left.along * f->bytes, left.across, left.along};
    cpu_micro_steps steps = {left.across / f->lanes, 1, WIDTH, sum_row};
    const char *rows = from.data;
    if (p.order == ROWS) {
      copy_rows(f, p.m, k, from, copy, p.left_row * QUAD_BYTES);
      steps.a_row = p.left_row;
      rows = copy;
    } else if (p.order == PANEL) {
      pack(f, p.m, k, from, false, (uint32_t *)copy, p.left_row);
      steps.a_row = 1;
      steps.a_col = p.left_row;
      rows = copy;
    }
    for (int64_t j0 = 0; j0 < p.n; j0 += p.strip) {
      int64_t end = WEFT_MIN(p.n, j0 + p.strip);
      pack(f, end - j0, k,
           (side){right.data + (j0 * right.across + l * right.along) * f->bytes, right.across, right.along}, true,
           strip, WIDTH);
      for (int64_t j = j0; j < end; j += WIDTH) {
        int64_t cols = WEFT_MIN(WIDTH, end - j), vectors = (cols + LANE_COUNT - 1) / LANE_COUNT;
        for (int64_t i = 0; i < p.m; i += height)
          f->micro[WEFT_MIN(height, p.m - i)][vectors](quads, rows + i * steps.a_row * QUAD_BYTES,
                                                       strip + (j - j0) * quads, sums + i * sum_row + j, &steps,
                                                       cols - (vectors - 1) * LANE_COUNT, f->flip || l > 0);
      }
    }
  }
  if (!p.in_place) put_sums(g, &p, sums, c);
}

/* ---- the packed form: panels of all k, as pack makes them, for products of few rows ---- */

static int64_t packed_column_bytes(const cpu_gemm *g)
{
  return plan_tile(g, g->tile_m, g->tile_n).has_form ? quads_of(form_of(g), g->k) * QUAD_BYTES : 0;
}

static void pack_form(const cpu_gemm *g, int64_t columns, const char *b, char *to)
{
  pack(form_of(g), columns, g->k, (side){b, g->b_col, g->b_row}, true, (uint32_t *)to, WIDTH);
}

static void packed_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *packed, char *c,
                        void *scratch)
{
  tile_plan p = plan_tile(g, m, n);
  const form *f = p.form;
  side left = {a, g->a_row, g->a_col};
  const uint32_t *panels = (const uint32_t *)packed;
  char *copy = (char *)scratch + p.left_at;
  quad *sums = p.in_place ? (quad *)c : (quad *)((char *)scratch + p.sum_at);
  int64_t sum_row = p.in_place ? g->c_row : p.n, height = cpu_even_part(p.m, MAX_ROWS), all = quads_of(f, g->k);
  int64_t depth = cpu_gemm_used_k(g);
  cpu_micro_steps steps = {p.left_row, 1, WIDTH, sum_row};

  if (f->flip) start_sums(p.m, p.n, depth, left, (int32_t *)sums, sum_row);
  for (int64_t l = 0; l < depth; l += p.block) {
    int64_t k = WEFT_MIN(p.block, depth - l);
    copy_rows(f, p.m, k, (side){a + l * f->bytes, g->a_row, 1}, copy, p.left_row * QUAD_BYTES);
    int64_t j = 0;
    for (; f->add_panels && p.m == 1 && k == g->k && j + PANELS * WIDTH <= p.n; j += PANELS * WIDTH)
      f->add_panels(all, (const quad *)copy, (const char *)(panels + j * all), (float *)sums + j);
    for (; j < p.n; j += WIDTH) {
      int64_t cols = WEFT_MIN(WIDTH, p.n - j), vectors = (cols + LANE_COUNT - 1) / LANE_COUNT;
      for (int64_t i = 0; i < p.m; i += height)
        f->micro[WEFT_MIN(height, p.m - i)][vectors](quads_of(f, k), copy + i * p.left_row * QUAD_BYTES,
                                                     panels + j * all + l / f->lanes * WIDTH, sums + i * sum_row + j,
                                                     &steps, cols - (vectors - 1) * LANE_COUNT, f->flip || l > 0);
    }
  }
  if (!p.in_place) put_sums(g, &p, sums, c);
}

const cpu_packed_ops cpu_lanes_packed = {packed_column_bytes, pack_form, packed_tile};

#else

const cpu_packed_ops cpu_lanes_packed;

bool cpu_lanes_fits(const cpu_gemm *gemm)
{
  (void)gemm;
  return false;
}

void cpu_lanes_plan(cpu_gemm *gemm) { (void)gemm; }

void cpu_lanes_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  (void)gemm, (void)m, (void)n, (void)a, (void)b, (void)c, (void)scratch;
}

#endif
