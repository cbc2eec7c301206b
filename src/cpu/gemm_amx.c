/* cpu/gemm_amx.c -- AMX: a tile register holds 16 rows of 64 bytes, and one instruction adds the product of two tiles
 * to a third:
 *
 *   C[16][16] += A[16][K] . B[K][16]      K = 32 bf16 or 64 s8; C is f32 or s32
 *
 * where B is stored with the 2 (or 4) elements that meet in one 32-bit lane side by side.  B is packed into such tiles,
 * zero-padded, a panel of columns at a time; then each 32 x 32 block of C is run over K with four accumulators.  Tiles
 * of A are read in place where its rows are dense and their numbers fill tiles; other rows are packed, 32 at a time.
 * Where one tile holds all of k, tiles are as long as k.  A product with a small A and a B of dense columns is computed
 * as C' = B' . A', so that a large matrix of weights is read once, in the order of its memory.  The hardware treats
 * bf16 denormals as zero (Intel SDM, TDPBF16PS, VCVTNE2PS2BF16). */
#include <config.h>

#include "cpu/gemm_amx.h"

#if defined __x86_64__ && defined __linux__

#include <assert.h>
#include <immintrin.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/swap.h"
#include "codegen/model/processor.h"
#include "cpu/gemm_turn.h"

#define AMX __attribute__((target("amx-tile,amx-bf16,amx-int8,avx512f,avx512bw,avx512vl")))

/* gcc's tile intrinsics do not declare which memory they read, so stores must be finished before them. */
#define SETTLE(ptr) __asm__ volatile("" : : "r"(ptr) : "memory")

enum {
  TILE = 16, TILE_BYTES = 1024, ROW_BYTES = 64,
  LEAST_DEPTH = 16,      /* of k */
  PANEL_BYTES = 1 << 20, /* bytes of packed B: half of the L2 cache */
  KEPT_BYTES = 3 << 19,  /* of packed A, that all columns of a tile read: three quarters of it */
  LINE = 64,
  ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18,
};

static bool have_bf16, have_int8;

static void detect(void)
{
  char missing[64];

  if (!gen_processor_has("amx-tile,avx512f,avx512bw,avx512vl", missing)) return; /* packing uses AVX-512 */
  if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0) return;
  have_bf16 = gen_processor_has("amx-bf16", missing);
  have_int8 = gen_processor_has("amx-int8", missing);
}

bool cpu_amx_has_bf16(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, detect);
  return have_bf16;
}

bool cpu_amx_fits(const cpu_gemm *g)
{
  bool bf16 = cpu_amx_has_bf16();

  if (WEFT_MIN(g->m, g->n) < 2 || WEFT_MAX(g->m, g->n) < TILE || g->k < LEAST_DEPTH ||
      (g->via != WEFT_INVALID && g->via != g->a_type))
    return false;
  if (g->a_type == WEFT_BF16 && g->b_type == WEFT_BF16)
    return bf16 && (g->c_type == WEFT_F32 || g->c_type == WEFT_BF16);
  return g->a_type == WEFT_S8 && g->b_type == WEFT_S8 && g->c_type == WEFT_S32 && have_int8;
}

/* One operand: element l of row (of A) or column (of B) i is at i * across + l * along. */
typedef struct side {
  const char *data;
  int64_t count, across, along;
} side;

/* The product as the tiles see it. `lanes` elements of `bytes` bytes meet in a 32-bit lane. */
typedef struct product {
  side a, b;
  bool swapped;           /* a and b have changed places, and C is written transposed */
  bool adds;              /* C += A . B */
  bool is_bf16;
  int64_t bytes, lanes, k, k_tiles; /* k: those that are added up */
  int64_t strip;          /* bytes of 16 packed rows or columns, of all that there are of k */
  int64_t tile_row;       /* bytes of a row of A's tiles: fewer than ROW_BYTES where one tile holds all of k */
  int64_t panel;          /* columns of B packed at a time */
} product;

static product plan_product(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, bool is_swapped)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->a_type), per_tile = ROW_BYTES / bytes;
  product p = {
    .a = {a, m, g->a_row, g->a_col}, .b = {b, n, g->b_col, g->b_row}, .swapped = is_swapped,
    .adds = g->adds, .is_bf16 = g->a_type == WEFT_BF16, .bytes = bytes, .lanes = 4 / bytes, .k = cpu_gemm_used_k(g),
  };

  if (p.swapped) WEFT_SWAP(p.a, p.b);
  p.k_tiles = (p.k + per_tile - 1) / per_tile;
  p.strip = (g->k + per_tile - 1) / per_tile * TILE_BYTES;
  p.tile_row = p.strip == TILE_BYTES ? WEFT_ALIGN_UP(p.k * bytes, 4) : ROW_BYTES;
  p.panel = WEFT_MIN(WEFT_ALIGN_UP(p.b.count, 2 * TILE), 2 * TILE * WEFT_MAX(1, PANEL_BYTES / (2 * p.strip)));
  return p;
}

/* pack_a of bf16 that are dense along the other dimension: pairs of elements that meet in a lane are brought together
 * as in a tile of B, which is then transposed. */
static AMX void pack_a_turned(const product *p, int64_t i0, char *to)
{
  const __m512i turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                        5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  int64_t step = p->a.along * 2;

  for (int64_t block = 0; block < 2 && i0 + block * TILE < p->a.count; block++) {
    const char *from = p->a.data + (i0 + block * TILE) * 2;
    const __mmask16 mask = (__mmask16)((1u << WEFT_MIN(TILE, p->a.count - i0 - block * TILE)) - 1);
    for (int64_t t = 0; t < p->k_tiles; t++, from += 2 * TILE * step) {
      __m512i v[TILE];
      int64_t rows = WEFT_MIN(2 * TILE, p->k - t * 2 * TILE);
      for (int64_t q = 0; q < TILE; q++) {
        __mmask16 even = 2 * q < rows ? mask : 0, odd = 2 * q + 1 < rows ? mask : 0;
        __m512i both = _mm512_zextsi256_si512(_mm256_maskz_loadu_epi16(even, from + 2 * q * step));
        both = _mm512_inserti64x4(both, _mm256_maskz_loadu_epi16(odd, from + (2 * q + 1) * step), 1);
        v[q] = _mm512_permutexvar_epi16(turn, both);
      }
      cpu_turn_16x16(v);
      for (int64_t q = 0; q < TILE; q++)
        _mm512_storeu_si512(to + block * p->strip + t * TILE_BYTES + q * ROW_BYTES, v[q]);
    }
  }
}

/* Packs two blocks of 16 rows from i0 on: to[block][k tile][16 rows][64 bytes], row by row, because a dense row is
 * read fastest. */
static AMX void pack_a(const product *p, int64_t i0, char *to)
{
  int64_t per_tile = ROW_BYTES / p->bytes, rows = WEFT_MIN(2 * TILE, p->a.count - i0);

  if (p->bytes == 2 && p->a.across == 1 && p->a.along != 1) {
    pack_a_turned(p, i0, to);
    return;
  }
  if (p->a.along != 1 || rows % TILE) memset(to, 0, (size_t)((rows > TILE ? 2 : 1) * p->strip));
  for (int64_t i = 0; i < rows; i++) {
    const char *from = p->a.data + (i0 + i) * p->a.across * p->bytes;
    char *out = to + i / TILE * p->strip + i % TILE * ROW_BYTES;
    for (int64_t l = 0; l < p->k; l += per_tile, out += TILE_BYTES) {
      int64_t count = WEFT_MIN(per_tile, p->k - l);
      if (p->a.along == 1) {
        __mmask64 mask = count == per_tile ? ~(__mmask64)0 : ((__mmask64)1 << (count * p->bytes)) - 1;
        _mm512_storeu_si512(out, _mm512_maskz_loadu_epi8(mask, from + l * p->bytes));
      } else if (p->bytes == 2)
        for (int64_t q = 0; q < count; q++) memcpy(out + 2 * q, from + (l + q) * p->a.along * 2, 2);
      else
        for (int64_t q = 0; q < count; q++) out[q] = from[(l + q) * p->a.along];
    }
  }
}

/* One row of a tile of B, where the 16 lanes take elements l .. l + lanes of each of
 * `count` columns; `rows` of them exist. */
static AMX inline void pack_b_row(const product *p, const char *b, int64_t rows, int64_t count, char *out)
{
  int64_t row = p->b.along, col = p->b.across;

  if (col == 1) { /* the rows are dense: they lie one after the other in a vector, whose numbers then change places */
    const __mmask16 mask = (__mmask16)((1u << count) - 1);
    if (p->bytes == 2) {
      const __m512i turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                            21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
      __m512i both = _mm512_zextsi256_si512(_mm256_maskz_loadu_epi16(rows > 0 ? mask : 0, b));
      both = _mm512_inserti64x4(both, _mm256_maskz_loadu_epi16(rows > 1 ? mask : 0, b + 2 * row), 1);
      _mm512_storeu_si512(out, _mm512_permutexvar_epi16(turn, both));
      return;
    }
    const __m512i gather = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i turn = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m512i all = _mm512_zextsi128_si512(_mm_maskz_loadu_epi8(rows > 0 ? mask : 0, b));
    all = _mm512_inserti32x4(all, _mm_maskz_loadu_epi8(rows > 1 ? mask : 0, b + row), 1);
    all = _mm512_inserti32x4(all, _mm_maskz_loadu_epi8(rows > 2 ? mask : 0, b + 2 * row), 2);
    all = _mm512_inserti32x4(all, _mm_maskz_loadu_epi8(rows > 3 ? mask : 0, b + 3 * row), 3);
    _mm512_storeu_si512(out, _mm512_shuffle_epi8(_mm512_permutexvar_epi32(gather, all), turn));
    return;
  }
  memset(out, 0, ROW_BYTES);
  for (int64_t j = 0; j < count; j++) {
    const char *from = b + j * col * p->bytes;
    char *lane = out + 4 * j;
    if (row == 1 && rows == p->lanes) memcpy(lane, from, 4);
    else
      for (int64_t r = 0; r < rows; r++) memcpy(lane + r * p->bytes, from + r * row * p->bytes, (size_t)p->bytes);
  }
}

/* Two whole tiles of bf16 beside each other, whose rows are dense: a cache line of each row at a time. */
static AMX void pack_b_pairs(const product *p, const char *b, char *to)
{
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  int64_t row = p->b.along * 2;

  for (int q = 0; q < TILE; q++, b += 2 * row, to += ROW_BYTES) {
    _mm_prefetch(b + 2 * TILE * row, _MM_HINT_T0); /* prefetched for the next tile */
    _mm_prefetch(b + (2 * TILE + 1) * row, _MM_HINT_T0);
    __m512i even = _mm512_loadu_si512(b), odd = _mm512_loadu_si512(b + row);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, low, odd));
    _mm512_storeu_si512(to + p->strip, _mm512_permutex2var_epi16(even, high, odd));
  }
}

/* Four whole tiles of s8 beside each other, whose rows are dense: the bytes that meet in a lane come together by two
 * rounds of unpacking, the lanes of a tile by turning 4 x 4 quarters of vectors. */
static AMX void pack_b_bytes(const product *p, const char *b, char *to)
{
  int64_t row = p->b.along;

  for (int q = 0; q < TILE; q++, b += 4 * row, to += ROW_BYTES) {
    __m512i r0 = _mm512_loadu_si512(b), r1 = _mm512_loadu_si512(b + row), r2 = _mm512_loadu_si512(b + 2 * row),
            r3 = _mm512_loadu_si512(b + 3 * row);
    __m512i low01 = _mm512_unpacklo_epi8(r0, r1), high01 = _mm512_unpackhi_epi8(r0, r1),
            low23 = _mm512_unpacklo_epi8(r2, r3), high23 = _mm512_unpackhi_epi8(r2, r3);
    __m512i x0 = _mm512_unpacklo_epi16(low01, low23), x1 = _mm512_unpackhi_epi16(low01, low23),
            x2 = _mm512_unpacklo_epi16(high01, high23), x3 = _mm512_unpackhi_epi16(high01, high23);
    __m512i a01 = _mm512_shuffle_i32x4(x0, x1, 0x44), a23 = _mm512_shuffle_i32x4(x2, x3, 0x44),
            b01 = _mm512_shuffle_i32x4(x0, x1, 0xee), b23 = _mm512_shuffle_i32x4(x2, x3, 0xee);
    _mm512_storeu_si512(to, _mm512_shuffle_i32x4(a01, a23, 0x88));
    _mm512_storeu_si512(to + p->strip, _mm512_shuffle_i32x4(a01, a23, 0xdd));
    _mm512_storeu_si512(to + 2 * p->strip, _mm512_shuffle_i32x4(b01, b23, 0x88));
    _mm512_storeu_si512(to + 3 * p->strip, _mm512_shuffle_i32x4(b01, b23, 0xdd));
  }
}

/* A tile of B whose columns are dense: `count` columns, of which `bytes` bytes exist, are transposed as numbers of 32
 * bits, the elements that meet in a lane. */
static AMX void pack_b_turned(const product *p, const char *b, int64_t count, int64_t bytes, char *to)
{
  const __mmask64 mask = bytes < ROW_BYTES ? ((__mmask64)1 << bytes) - 1 : ~(__mmask64)0;
  __m512i v[TILE];

  CPU_UNROLL
  for (int64_t j = 0; j < TILE; j++)
    v[j] = _mm512_maskz_loadu_epi8(j < count ? mask : 0, b + j * p->b.across * p->bytes);
  cpu_turn_16x16(v);
  CPU_UNROLL
  for (int64_t q = 0; q < TILE; q++) _mm512_storeu_si512(to + q * ROW_BYTES, v[q]);
}

/* Packs the columns j0 .. j0 + n: to[column block][k tile][16 rows][16 lanes]. Reads b along its rows or along its
 * columns, whichever is dense. */
static AMX void pack_b(const product *p, int64_t j0, int64_t n, char *to)
{
  int64_t blocks = (n + TILE - 1) / TILE, per_tile = TILE * p->lanes;
  bool by_row = p->b.across == 1;

  for (int64_t outer = 0; outer < (by_row ? p->k_tiles : blocks); outer++)
    for (int64_t inner = 0; inner < (by_row ? blocks : p->k_tiles); inner++) {
      int64_t t = by_row ? outer : inner, block = by_row ? inner : outer, columns = WEFT_MIN(TILE, n - block * TILE);
      const char *from = p->b.data + (t * per_tile * p->b.along + (j0 + block * TILE) * p->b.across) * p->bytes;
      char *tile = to + block * p->strip + t * TILE_BYTES;
      if (by_row && p->bytes == 2 && n - block * TILE >= 2 * TILE && (t + 1) * per_tile <= p->k) {
        pack_b_pairs(p, from, tile);
        inner++;
        continue;
      }
      if (by_row && p->bytes == 1 && n - block * TILE >= 4 * TILE && (t + 1) * per_tile <= p->k) {
        pack_b_bytes(p, from, tile);
        inner += 3;
        continue;
      }
      if (p->b.along == 1 && !by_row) {
        pack_b_turned(p, from, columns, WEFT_MIN(ROW_BYTES, (p->k - t * per_tile) * p->bytes), tile);
        continue;
      }
      for (int64_t q = 0, l = t * per_tile; q < p->tile_row / 4; q++, l += p->lanes)
        pack_b_row(p, from + q * p->lanes * p->b.along * p->bytes, WEFT_MAX(0, WEFT_MIN(p->lanes, p->k - l)), columns,
                   tile + q * ROW_BYTES);
    }
}

/* Rows of a tile in memory. */
typedef struct tile_rows {
  char *data;
  int64_t step; /* bytes from one row to the next */
} tile_rows;

#define ADD_TILES(DO)             \
  {                               \
    if (p->is_bf16) {             \
      DO(dpbf16ps)                \
    } else {                      \
      DO(dpbssd)                  \
    }                             \
  }
#define ONE(add) _tile_##add(0, 4, 6);
#define TWO(add) ONE(add) _tile_##add(1, 4, 7);
#define LOAD_FOUR(add)           \
  _tile_loadd(4, a, left.row);   \
  _tile_loadd(6, b, ROW_BYTES);  \
  _tile_##add(0, 4, 6);          \
  _tile_loadd(7, b1, ROW_BYTES); \
  _tile_##add(1, 4, 7);          \
  _tile_loadd(5, a1, left.row);  \
  _tile_##add(2, 5, 6);          \
  _tile_##add(3, 5, 7);

/* What is read next, of which each pair of tiles asks the memory for some lines. NULL: nothing. */
typedef struct ahead {
  const char *next;
  int64_t lines;
} ahead;

static AMX inline void ask_for(ahead *what)
{
  for (int64_t q = 0; q < what->lines; q++, what->next += LINE) _mm_prefetch(what->next, _MM_HINT_T1);
}

/* Two tiles of rows of A, or one: the first rows of each, the bytes between rows, and those from one tile of k to the
 * next. */
typedef struct left_tiles {
  const char *data[2];
  int64_t row, next;
} left_tiles;

/* Tile `sum` begins with what is in to[sum], or with zeros. */
#define BEGIN_SUM(sum)                                                   \
  {                                                                      \
    if (p->adds) _tile_loadd(sum, to[sum].data, to[sum].step);           \
    else _tile_zero(sum);                                                \
  }

/* Computes one block of 2 x 2 tiles of sums, to[0] to to[3]. `wide` and `tall` say whether the second tiles exist.
 * Loads stand between products, as the processor holds few tiles that wait for their products. */
static AMX void multiply(const product *p, left_tiles left, const char *b, bool tall, bool wide, const tile_rows to[4],
                         ahead what)
{
  const char *a = left.data[0], *a1 = left.data[1], *b1 = wide ? b + p->strip : b, *end = b + p->k_tiles * TILE_BYTES;

  SETTLE(a);
  BEGIN_SUM(0)
  if (!tall && !wide) {
    for (; b < end; b += TILE_BYTES, a += left.next) {
      ask_for(&what);
      _tile_loadd(4, a, left.row);
      _tile_loadd(6, b, ROW_BYTES);
      ADD_TILES(ONE)
    }
    _tile_stored(0, to[0].data, to[0].step);
    return;
  }
  BEGIN_SUM(1)
  if (!tall) { /* a product of few rows takes as long as its loads */
    for (; b < end; b += TILE_BYTES, b1 += TILE_BYTES, a += left.next) {
      ask_for(&what);
      _tile_loadd(4, a, left.row);
      _tile_loadd(6, b, ROW_BYTES);
      _tile_loadd(7, b1, ROW_BYTES);
      ADD_TILES(TWO)
    }
    _tile_stored(0, to[0].data, to[0].step);
    _tile_stored(1, to[1].data, to[1].step);
    return;
  }
  BEGIN_SUM(2)
  BEGIN_SUM(3)
  for (; b < end; b += TILE_BYTES, b1 += TILE_BYTES, a += left.next, a1 += left.next) {
    ask_for(&what);
    ADD_TILES(LOAD_FOUR)
  }
  _tile_stored(0, to[0].data, to[0].step);
  _tile_stored(1, to[1].data, to[1].step);
  _tile_stored(2, to[2].data, to[2].step);
  _tile_stored(3, to[3].data, to[3].step);
}

/* As the processor reads it: tiles 0 to 3 hold sums, 4 and 5 parts of A, 6 and 7 parts of B. */
typedef struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} tile_config;

/* Where a row of A's tiles has `lanes` times 4 bytes. Constants, since a configuration that has just been written byte
 * by byte is read many cycles later. */
#define CONFIG(lanes)                                                                                   \
  {.palette = 1,                                                                                        \
   .row_bytes = {ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, 4 * (lanes), 4 * (lanes), ROW_BYTES, ROW_BYTES}, \
   .rows = {TILE, TILE, TILE, TILE, TILE, TILE, lanes, lanes}}
#define FOUR_CONFIGS(lanes) CONFIG(lanes), CONFIG((lanes) + 1), CONFIG((lanes) + 2), CONFIG((lanes) + 3)
static const tile_config configs[TILE] __attribute__((aligned(64))) = {FOUR_CONFIGS(1), FOUR_CONFIGS(5), FOUR_CONFIGS(9),
                                                                       FOUR_CONFIGS(13)};

/* The row of A's tiles that the calling thread's configuration stays for; 0: none. */
static _Thread_local int64_t held_row;

static AMX void load_config(int64_t tile_row) { _tile_loadconfig(&configs[tile_row / 4 - 1]); }
static AMX void configure_tiles(const product *p)
{
  assert(held_row == 0 || held_row == p->tile_row);
  if (!held_row) load_config(p->tile_row);
}
static AMX void release_tiles(void)
{
  if (!held_row) _tile_release();
}

static void hold(int64_t tile_row)
{
  held_row = tile_row;
  load_config(tile_row);
}

void cpu_amx_hold(const cpu_gemm *g) { hold(plan_product(g, g->m, g->n, NULL, NULL, false).tile_row); }
void cpu_amx_hold_whole(void) { hold(ROW_BYTES); }

void cpu_amx_let_go(void)
{
  held_row = 0;
  release_tiles();
}

/* Writes `cols` sums (at most 16) into a row of c. */
static AMX inline void store_row(weft_dtype type, const uint32_t *sums, int64_t cols, char *to)
{
  const __mmask16 mask = (__mmask16)((1u << cols) - 1);
  __m512i x = _mm512_loadu_si512(sums);

  if (type != WEFT_BF16) {
    _mm512_mask_storeu_epi32(to, mask, x);
    return;
  }
  /* rounds to nearest even; a NaN becomes a quiet one */
  __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
  rounded = _mm512_mask_or_epi32(rounded, nan, x, _mm512_set1_epi32(0x400000));
  _mm256_mask_storeu_epi16(to, mask, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

/* Writes a tile of sums into c from row i0 and column j0 on; if the operands are swapped, transposed, from row j0
 * and column i0 on. */
static AMX void store_tile(const cpu_gemm *g, const product *p, const uint32_t *sums, int64_t i0, int64_t j0, char *c)
{
  int64_t rows = WEFT_MIN(TILE, p->a.count - i0), cols = WEFT_MIN(TILE, p->b.count - j0);
  int64_t c_bytes = (int64_t)weft_dtype_bytes(g->c_type);

  if (p->swapped)
    for (int64_t j = 0; j < cols; j++)
      cpu_convert(g->c_type, c + ((j0 + j) * g->c_row + i0) * c_bytes, p->is_bf16 ? WEFT_F32 : WEFT_S32, sums + j, TILE,
                  rows);
  else
    for (int64_t i = 0; i < rows; i++)
      store_row(g->c_type, sums + i * TILE, cols, c + ((i0 + i) * g->c_row + j0) * c_bytes);
}

static bool is_swapped(const cpu_gemm *g, int64_t m, int64_t n) { return g->b_row == 1 && m < n; }

/* True if tiles of A can be read where A lies: k ends with a tile. */
static bool is_left_in_place(const product *p)
{
  return p->a.along == 1 && p->k_tiles * p->tile_row == p->k * p->bytes;
}

/* Bytes of all rows of A, in tiles. */
static int64_t whole_a(const product *p) { return WEFT_ALIGN_UP(p->a.count, 2 * TILE) / TILE * p->strip; }

/* True if all rows of A stay in L2 beside a packed form of B. Then the form is read once for all of them. */
static bool keeps_a(const product *p) { return whole_a(p) <= KEPT_BYTES; }

int64_t cpu_amx_scratch(const cpu_gemm *g)
{
  product p = plan_product(g, g->tile_m, g->tile_n, NULL, NULL, is_swapped(g, g->tile_m, g->tile_n));
  product packed = plan_product(g, g->tile_m, g->tile_n, NULL, NULL, false);

  return WEFT_MAX((2 + p.panel / TILE) * p.strip,
                  keeps_a(&packed) && !is_left_in_place(&packed) ? whole_a(&packed) : 0);
}

/* True if the 32 rows of A from i on, or 16 if there are no more, are read in place.  That costs some 8 % of the
 * product's time, packing 10 to 30 %. */
static bool is_block_in_place(const product *p, int64_t i)
{
  return is_left_in_place(p) && WEFT_MIN(2 * TILE, p->a.count - i) % TILE == 0;
}

/* Where rows of A are packed that are kept for all columns: all of them, or those at the end that fill no tile. */
static char *kept_rows(const product *p, int64_t i, char *kept)
{
  return is_left_in_place(p) ? kept : kept + i / TILE * p->strip;
}

/* The 32 rows of A from i on as the tiles read them: in place, or as they were packed. */
static left_tiles left_of(const product *p, int64_t i, const char *packed)
{
  int64_t row = p->a.across * p->bytes;
  const char *a = p->a.data + i * row;

  if (is_block_in_place(p, i)) return (left_tiles){{a, a + TILE * row}, row, p->tile_row};
  return (left_tiles){{packed, packed + p->strip}, ROW_BYTES, TILE_BYTES};
}

/* Rounds and writes the sums of two tiles beside each other, of which `rows` and `cols` (at most 32) exist.  No sum is
 * a denormal, so that the instruction rounds as store_row does. */
static __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void store_pairs(const uint32_t *left,
                                                                                        const uint32_t *right,
                                                                                        int64_t rows, int64_t cols,
                                                                                        char *to, int64_t row)
{
  const __mmask32 mask = cols < 2 * TILE ? (1u << cols) - 1 : ~0u;

  for (int64_t i = 0; i < rows; i++, left += TILE, right += TILE, to += row)
    _mm512_mask_storeu_epi16(to, mask, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(right), _mm512_loadu_ps(left)));
}

/* A tile of c of which `rows` and `cols` exist, if they are more than 0. */
static AMX void load_sums(const cpu_gemm *g, uint32_t *sums, int64_t rows, int64_t cols, const char *c)
{
  for (int64_t i = 0; i < rows && cols > 0; i++)
    _mm512_storeu_si512(sums + i * TILE, _mm512_maskz_loadu_epi32((__mmask16)((1u << cols) - 1), c + i * g->c_row * 4));
}

/* The 32 rows from i on and 32 columns from j on of c, which ends at column `end`. */
static AMX void multiply_block(const cpu_gemm *g, const product *p, int64_t i, int64_t j, int64_t end, left_tiles a,
                               const char *b, char *c, ahead what)
{
  _Alignas(64) uint32_t sums[4][TILE * TILE];
  bool in_place = !p->swapped && weft_dtype_bytes(g->c_type) == 4; /* C takes whole tiles as they are */
  tile_rows to[4];

  for (int part = 0; part < 4; part++) {
    int64_t i1 = i + part / 2 * TILE, j1 = j + part % 2 * TILE;
    bool whole = in_place && i1 + TILE <= p->a.count && j1 + TILE <= end;
    to[part] = whole ? (tile_rows){c + (i1 * g->c_row + j1) * 4, g->c_row * 4}
                     : (tile_rows){(char *)sums[part], ROW_BYTES};
    if (!whole && p->adds)
      load_sums(g, sums[part], WEFT_MIN(TILE, p->a.count - i1), WEFT_MIN(TILE, end - j1), c + (i1 * g->c_row + j1) * 4);
  }
  if (p->adds) SETTLE(sums);
  multiply(p, a, b, i + TILE < p->a.count, j + TILE < end, to, what);
  if (g->c_type == WEFT_BF16 && !p->swapped && gen_this_processor.avx512_bf16) {
    for (int64_t i1 = i, part = 0; i1 < WEFT_MIN(i + 2 * TILE, p->a.count); i1 += TILE, part += 2)
      store_pairs(sums[part], sums[part + 1], WEFT_MIN(TILE, p->a.count - i1), WEFT_MIN(2 * TILE, end - j),
                  c + (i1 * g->c_row + j) * 2, g->c_row * 2);
    return;
  }
  for (int part = 0; part < 4; part++)
    if (to[part].data == (char *)sums[part] && i + part / 2 * TILE < p->a.count && j + part % 2 * TILE < end)
      store_tile(g, p, sums[part], i + part / 2 * TILE, j + part % 2 * TILE, c);
}

/* The columns from j0 to `end` of c, for all rows.  `b`: these columns of B, packed; `packed_a`: memory for two
 * strips. */
static AMX void multiply_panel(const cpu_gemm *g, const product *p, int64_t j0, int64_t end, const char *b, char *c,
                               char *packed_a)
{
  for (int64_t i = 0; i < p->a.count; i += 2 * TILE) {
    left_tiles a = left_of(p, i, packed_a);
    if (!is_block_in_place(p, i)) pack_a(p, i, packed_a);
    for (int64_t j = j0; j < end; j += 2 * TILE)
      multiply_block(g, p, i, j, end, a, b + (j - j0) / TILE * p->strip, c, (ahead){0});
  }
}

/* All columns of c.  `b`: a packed form, which comes from memory: while two of its strips are multiplied by all rows of
 * A, the next two are asked for.  `kept`: memory for the rows of A that are not read in place. */
static AMX void multiply_form(const cpu_gemm *g, const product *p, const char *b, char *c, char *kept)
{
  int64_t blocks = WEFT_MAX((p->a.count + 2 * TILE - 1) / (2 * TILE), 1);
  int64_t lines = (2 * TILE_BYTES / LINE + blocks - 1) / blocks;

  for (int64_t i = 0; i < p->a.count; i += 2 * TILE)
    if (!is_block_in_place(p, i)) pack_a(p, i, kept_rows(p, i, kept));
  for (int64_t j = 0; j < p->b.count; j += 2 * TILE, b += 2 * p->strip)
    for (int64_t block = 0, i = 0; block < blocks; block++, i += 2 * TILE)
      multiply_block(g, p, i, j, p->b.count, left_of(p, i, kept_rows(p, i, kept)), b, c,
                     (ahead){b + 2 * p->strip + block * lines * LINE * p->k_tiles, lines});
}

void cpu_amx_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  product p = plan_product(g, m, n, a, b, is_swapped(g, m, n));
  char *packed_a = scratch, *packed_b = packed_a + 2 * p.strip;

  configure_tiles(&p);
  for (int64_t j = 0; j < p.b.count; j += p.panel) {
    int64_t end = WEFT_MIN(j + p.panel, p.b.count);
    pack_b(&p, j, end - j, packed_b);
    multiply_panel(g, &p, j, end, packed_b, c, packed_a);
  }
  release_tiles();
}

/* ---- the packed form: strips of 16 columns, as pack_b makes them ---- */

static int64_t packed_column_bytes(const cpu_gemm *g)
{
  return plan_product(g, g->m, g->n, NULL, NULL, false).strip / TILE;
}

static void pack_form(const cpu_gemm *g, int64_t columns, const char *b, char *to)
{
  product p = plan_product(g, 1, columns, NULL, b, false);

  pack_b(&p, 0, columns, to);
}

static void packed_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *packed, char *c,
                        void *scratch)
{
  product p = plan_product(g, m, n, a, NULL, false);

  configure_tiles(&p);
  if (keeps_a(&p)) {
    multiply_form(g, &p, packed, c, scratch);
  } else {
    for (int64_t j = 0; j < n; j += p.panel)
      multiply_panel(g, &p, j, WEFT_MIN(j + p.panel, n), packed + j / TILE * p.strip, c, scratch);
  }
  release_tiles();
}

const cpu_packed_ops cpu_amx_packed = {packed_column_bytes, pack_form, packed_tile};

#else

const cpu_packed_ops cpu_amx_packed;

bool cpu_amx_has_bf16(void) { return false; }
void cpu_amx_hold(const cpu_gemm *gemm) { (void)gemm; }
void cpu_amx_hold_whole(void) {}
void cpu_amx_let_go(void) {}

bool cpu_amx_fits(const cpu_gemm *gemm)
{
  (void)gemm;
  return false;
}

int64_t cpu_amx_scratch(const cpu_gemm *gemm)
{
  (void)gemm;
  return 0;
}

void cpu_amx_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  (void)gemm, (void)m, (void)n, (void)a, (void)b, (void)c, (void)scratch;
}

#endif
