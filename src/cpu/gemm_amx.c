/* AMX: a tile register holds 16 rows of 64 bytes, and one instruction adds the product of two tiles to a third:
 *
 *   C[16][16] += A[16][K] . B[K][16]      K = 32 bf16 or 64 s8; C is f32 or s32
 *
 * where B is stored with the 2 (or 4) elements that meet in one 32-bit lane side by side.  Both operands are packed into
 * such tiles, zero-padded, then each 32 x 32 block of C is run over K with four accumulators.
 * The hardware treats bf16 denormals as zero (Intel SDM, TDPBF16PS). */
#include <config.h>

#include "cpu/gemm_amx.h"

#if defined __x86_64__ && defined __linux__

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"

#define AMX __attribute__((target("amx-tile,amx-bf16,amx-int8,avx512f,avx512bw,avx512vl")))

/* gcc's tile intrinsics do not say which memory they read: stores must be done before them. */
#define SETTLE(ptr) __asm__ volatile("" : : "r"(ptr) : "memory")

enum { TILE = 16, TILE_BYTES = 1024, ROW_BYTES = 64, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

static bool have_bf16, have_int8;

static void detect(void)
{
  unsigned a, b, c, d;

  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 24)) return;
  if (!(b & 1u << 16) || !(b & 1u << 30) || !(b & 1u << 31)) return; /* AVX-512 F, BW, VL for packing */
  if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0) return;
  have_bf16 = d & 1u << 22;
  have_int8 = d & 1u << 25;
}

bool cpu_amx_fits(const cpu_gemm *g)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, detect);
  if (g->m < TILE || g->n < TILE || g->k < 32 || (g->via != WEFT_INVALID && g->via != g->a_type)) return false;
  if (g->a_type == WEFT_BF16 && g->b_type == WEFT_BF16)
    return have_bf16 && (g->c_type == WEFT_F32 || g->c_type == WEFT_BF16);
  return g->a_type == WEFT_S8 && g->b_type == WEFT_S8 && g->c_type == WEFT_S32 && have_int8;
}

/* What both packers walk over: `lanes` elements of `bytes` meet in a 32-bit lane. */
typedef struct packing {
  int64_t bytes, lanes, k, k_tiles;
} packing;

/* to[row block][k tile][16 rows][64 bytes] */
static AMX void pack_a(const packing *p, int64_t m, const char *a, int64_t row, int64_t col, char *to)
{
  int64_t per_row = ROW_BYTES / p->bytes;

  for (int64_t i0 = 0; i0 < m; i0 += TILE)
    for (int64_t t = 0; t < p->k_tiles; t++, to += TILE_BYTES)
      for (int64_t i = 0; i < TILE; i++) {
        int64_t l0 = t * per_row, count = i0 + i < m ? WEFT_MIN(per_row, p->k - l0) : 0;
        const char *from = a + ((i0 + i) * row + l0 * col) * p->bytes;
        char *out = to + i * ROW_BYTES;
        if (col == 1) {
          __mmask64 mask = count * p->bytes >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (count * p->bytes)) - 1;
          _mm512_storeu_si512(out, _mm512_maskz_loadu_epi8(mask, from));
          continue;
        }
        memset(out, 0, ROW_BYTES);
        if (p->bytes == 2)
          for (int64_t l = 0; l < count; l++) memcpy(out + 2 * l, from + l * col * 2, 2);
        else
          for (int64_t l = 0; l < count; l++) out[l] = from[l * col];
      }
}

/* One row of a tile of B: 16 lanes of elements l .. l + lanes of each of `count` columns; `rows` of them exist. */
static AMX void pack_b_row(const packing *p, const char *b, int64_t row, int64_t col, int64_t rows, int64_t count,
                           char *out)
{
  if (col == 1) { /* rows are dense: spread each over the lanes and shift it into place */
    __m512i sum = _mm512_setzero_si512();
    __mmask16 mask = (__mmask16)((1u << count) - 1);
    for (int64_t r = 0; r < rows; r++) {
      const char *from = b + r * row * p->bytes;
      __m512i wide = p->bytes == 2 ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from))
                                   : _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, from));
      sum = _mm512_or_si512(sum, _mm512_sllv_epi32(wide, _mm512_set1_epi32((int)(r * p->bytes * 8))));
    }
    _mm512_storeu_si512(out, sum);
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

/* to[column block][k tile][16 rows][16 lanes].  Walks b as it lies: along its rows, or along its columns. */
static void pack_b(const packing *p, int64_t n, const char *b, int64_t row, int64_t col, char *to)
{
  int64_t strip = p->k_tiles * TILE_BYTES, rows = p->k_tiles * TILE, blocks = (n + TILE - 1) / TILE;

  for (int64_t i = 0; i < rows * blocks; i++) {
    int64_t q = col == 1 ? i / blocks : i % rows, j = (col == 1 ? i % blocks : i / rows) * TILE, l = q * p->lanes;
    pack_b_row(p, b + (l * row + j * col) * p->bytes, row, col, WEFT_MAX(0, WEFT_MIN(p->lanes, p->k - l)),
               WEFT_MIN(TILE, n - j), to + j / TILE * strip + q * ROW_BYTES);
  }
}

/* One block of 2 x 2 tiles into sums[4][16][16].  `wide`, `tall`: whether the second tiles exist. */
static AMX void multiply(bool is_bf16, int64_t k_tiles, const char *a, const char *b, bool tall, bool wide,
                         uint32_t sums[4][TILE * TILE])
{
  const char *a1 = tall ? a + k_tiles * TILE_BYTES : a, *b1 = wide ? b + k_tiles * TILE_BYTES : b;

  SETTLE(a);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t t = 0; t < k_tiles * TILE_BYTES; t += TILE_BYTES) {
    _tile_loadd(4, a + t, ROW_BYTES);
    _tile_loadd(6, b + t, ROW_BYTES);
    _tile_loadd(5, a1 + t, ROW_BYTES);
    _tile_loadd(7, b1 + t, ROW_BYTES);
    if (is_bf16) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    } else {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
  }
  _tile_stored(0, sums[0], ROW_BYTES);
  _tile_stored(1, sums[1], ROW_BYTES);
  _tile_stored(2, sums[2], ROW_BYTES);
  _tile_stored(3, sums[3], ROW_BYTES);
}

static AMX void configure_tiles(void)
{
  struct { uint8_t palette, start_row, reserved[14]; uint16_t row_bytes[16]; uint8_t rows[16]; } config = {.palette = 1};

  for (int t = 0; t < 8; t++) {
    config.row_bytes[t] = ROW_BYTES;
    config.rows[t] = TILE;
  }
  SETTLE(&config);
  _tile_loadconfig(&config);
}
static AMX void release_tiles(void) { _tile_release(); }

static packing packing_of(const cpu_gemm *g)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->a_type), per_tile = ROW_BYTES / bytes;

  return (packing){bytes, 4 / bytes, g->k, (g->k + per_tile - 1) / per_tile};
}

int64_t cpu_amx_scratch(const cpu_gemm *g)
{
  return ((g->tile_m + TILE - 1) / TILE + (g->tile_n + TILE - 1) / TILE) * packing_of(g).k_tiles * TILE_BYTES;
}

void cpu_amx_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  int64_t c_bytes = (int64_t)weft_dtype_bytes(g->c_type);
  packing p = packing_of(g);
  int64_t strip = p.k_tiles * TILE_BYTES, m_tiles = (m + TILE - 1) / TILE, n_tiles = (n + TILE - 1) / TILE;
  char *pa = scratch, *pb = pa + m_tiles * strip;
  bool is_bf16 = g->a_type == WEFT_BF16;
  _Alignas(64) uint32_t sums[4][TILE * TILE];

  pack_a(&p, m, a, g->a_row, g->a_col, pa);
  pack_b(&p, n, b, g->b_row, g->b_col, pb);
  configure_tiles();
  for (int64_t jt = 0; jt < n_tiles; jt += 2)
    for (int64_t it = 0; it < m_tiles; it += 2) {
      multiply(is_bf16, p.k_tiles, pa + it * strip, pb + jt * strip, it + 1 < m_tiles, jt + 1 < n_tiles, sums);
      for (int part = 0; part < 4; part++) {
        int64_t i0 = (it + part / 2) * TILE, j0 = (jt + part % 2) * TILE;
        for (int64_t i = i0; i < WEFT_MIN(i0 + TILE, m) && j0 < n; i++)
          cpu_convert(g->c_type, c + (i * g->c_row + j0) * c_bytes, is_bf16 ? WEFT_F32 : WEFT_S32,
                      sums[part] + (i - i0) * TILE, 1, WEFT_MIN(TILE, n - j0));
      }
    }
  release_tiles();
}

#else

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
