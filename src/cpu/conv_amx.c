/* cpu/conv_amx.c -- the inner loops of conv_tiles.c and conv_rows.c (conv_amx.h).  TDPBF16PS takes denormals for zero,
 * of operands and of sums (Intel SDM), so that rounding sums by VCVTNE2PS2BF16, which does the same, changes
 * nothing. */
#include <config.h>

#include "cpu/conv_amx.h"

#include "cpu/gemm_amx.h"

#if defined __x86_64__ && defined __linux__

#include <immintrin.h>

#include "base/macros.h"
#include "codegen/model/processor.h"

#define AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16,avx512vbmi2")))

/* gcc's tile intrinsics do not declare which memory they read and write. */
#define SETTLE(ptr) __asm__ volatile("" : : "r"(ptr) : "memory")

enum { ROW_BYTES = 64, LINE_BYTES = 64, SUMS_BYTES = CPU_AMX_PIXELS * 4 };

bool cpu_conv_amx_fits(void)
{
  char missing[64];

  return cpu_amx_has_bf16() && gen_processor_has("avx512bf16,avx512vbmi2", missing);
}

/* The sums are the tiles 0 and 1, of the first strip, and 2 and 3, of the second one. */
static AMX inline void clear_sums(void)
{
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

static AMX inline void store_sums(bool tall, bool wide, float *sums)
{
  char *to = (char *)sums, *below = to + CPU_AMX_STRIP * SUMS_BYTES;

  _tile_stored(0, to, SUMS_BYTES);
  if (wide) _tile_stored(1, to + ROW_BYTES, SUMS_BYTES);
  if (tall) _tile_stored(2, below, SUMS_BYTES);
  if (tall && wide) _tile_stored(3, below + ROW_BYTES, SUMS_BYTES);
}

/* For each tile of the walk, with the addresses of the tiles of the two strips and of the pixels. */
#define WALK(...)                                                                              \
  for (int64_t i = 0; i < w->blocks; i++, pixels += w->block_bytes)                            \
    for (int64_t t = 0; t < w->taps; t++, a += CPU_AMX_TILE_BYTES) {                           \
      const char *b = pixels + w->tap_bytes[t];                                                \
      __VA_ARGS__                                                                              \
    }

AMX void cpu_conv_amx_multiply(const cpu_amx_walk *w, const char *kernel, const char *pixels, bool tall, bool wide,
                               float *sums)
{
  int64_t strip = w->blocks * w->taps * CPU_AMX_TILE_BYTES;
  const char *a = kernel;

  SETTLE(kernel);
  clear_sums();
  if (tall && wide)
    WALK(_tile_loadd(4, a, ROW_BYTES); _tile_loadd(6, b, w->row_bytes); _tile_loadd(5, a + strip, ROW_BYTES);
         _tile_loadd(7, b + ROW_BYTES, w->row_bytes); _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(2, 5, 6);
         _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(3, 5, 7);)
  else if (tall)
    WALK(_tile_loadd(4, a, ROW_BYTES); _tile_loadd(6, b, w->row_bytes); _tile_loadd(5, a + strip, ROW_BYTES);
         _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(2, 5, 6);)
  else if (wide)
    WALK(_tile_loadd(4, a, ROW_BYTES); _tile_loadd(6, b, w->row_bytes); _tile_loadd(7, b + ROW_BYTES, w->row_bytes);
         _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7);)
  else WALK(_tile_loadd(4, a, ROW_BYTES); _tile_loadd(6, b, w->row_bytes); _tile_dpbf16ps(0, 4, 6);)
  store_sums(tall, wide, sums);
  SETTLE(sums);
}

/* The same for pixels whose features are neighbours: `a` are pixels, `b` the kernel. */
#define WALK_ROWS(...)                                                                                        \
  for (int64_t i = 0; i < w->blocks; i++, pixels += w->block_bytes)                                           \
    for (int64_t t = 0; t < w->taps; t++, b += 2 * CPU_AMX_TILE_BYTES) {                                      \
      const char *a = pixels + w->tap_bytes[t];                                                               \
      for (int64_t q = 0; q < w->next_lines; q++, next += LINE_BYTES) _mm_prefetch(next, _MM_HINT_T1);        \
      __VA_ARGS__                                                                                             \
    }

AMX void cpu_conv_amx_rows(const cpu_amx_walk *w, const char *kernel, const char *pixels, bool tall, bool wide,
                           float *sums)
{
  int64_t below = CPU_AMX_STRIP * w->row_bytes;
  const char *b = kernel, *next = w->next;

  SETTLE(kernel);
  clear_sums();
  if (tall && wide)
    WALK_ROWS(_tile_loadd(4, a, w->row_bytes); _tile_loadd(6, b, ROW_BYTES); _tile_dpbf16ps(0, 4, 6);
              _tile_loadd(7, b + CPU_AMX_TILE_BYTES, ROW_BYTES); _tile_dpbf16ps(1, 4, 7);
              _tile_loadd(5, a + below, w->row_bytes); _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);)
  else if (tall)
    WALK_ROWS(_tile_loadd(4, a, w->row_bytes); _tile_loadd(6, b, ROW_BYTES); _tile_dpbf16ps(0, 4, 6);
              _tile_loadd(5, a + below, w->row_bytes); _tile_dpbf16ps(2, 5, 6);)
  else if (wide)
    WALK_ROWS(_tile_loadd(4, a, w->row_bytes); _tile_loadd(6, b, ROW_BYTES); _tile_dpbf16ps(0, 4, 6);
              _tile_loadd(7, b + CPU_AMX_TILE_BYTES, ROW_BYTES); _tile_dpbf16ps(1, 4, 7);)
  else WALK_ROWS(_tile_loadd(4, a, w->row_bytes); _tile_loadd(6, b, ROW_BYTES); _tile_dpbf16ps(0, 4, 6);)
  store_sums(tall, wide, sums);
  SETTLE(sums);
}

AMX void cpu_conv_amx_store_rows(const float *sums, int64_t features, uint32_t which, weft_dtype type, char *to,
                                 int64_t row_bytes)
{
  __mmask32 all = features >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << features) - 1;

  for (; which; which &= which - 1, to += row_bytes) {
    const float *row = sums + __builtin_ctz(which) * CPU_AMX_FEATURES;
    __m512 first = _mm512_maskz_loadu_ps((__mmask16)all, row);
    __m512 second = _mm512_maskz_loadu_ps((__mmask16)(all >> 16), row + 16);
    if (type == WEFT_BF16) {
      _mm512_mask_storeu_epi16(to, all, (__m512i)_mm512_cvtne2ps_pbh(second, first));
      continue;
    }
    _mm512_mask_storeu_ps(to, (__mmask16)all, first);
    _mm512_mask_storeu_ps(to + 64, (__mmask16)(all >> 16), second);
  }
}

AMX void cpu_conv_amx_store(const float *sums, int64_t features, uint32_t which, weft_dtype type, char *to,
                            int64_t row_bytes)
{
  int count = __builtin_popcount(which), low = __builtin_popcount(which & 0xffff);
  __mmask32 all = count == 32 ? ~(__mmask32)0 : ((__mmask32)1 << count) - 1;

  for (int64_t f = 0; f < features; f++, sums += CPU_AMX_PIXELS, to += row_bytes) {
    __m512 first = _mm512_loadu_ps(sums), second = _mm512_loadu_ps(sums + 16);
    if (type == WEFT_BF16) {
      __m512i both = (__m512i)_mm512_cvtne2ps_pbh(second, first);
      _mm512_mask_storeu_epi16(to, all, _mm512_maskz_compress_epi16(which, both));
      continue;
    }
    first = _mm512_maskz_compress_ps((__mmask16)which, first);
    second = _mm512_maskz_compress_ps((__mmask16)(which >> 16), second);
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << low) - 1), first);
    _mm512_mask_storeu_ps(to + 4 * low, (__mmask16)((1u << (count - low)) - 1), second);
  }
}

AMX void cpu_conv_amx_pairs(const uint16_t *a, const uint16_t *b, int64_t count, uint32_t *to)
{
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  __mmask32 mask = count >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << count) - 1;
  __m512i even = a ? _mm512_maskz_loadu_epi16(mask, a) : _mm512_setzero_si512(),
          odd = b ? _mm512_maskz_loadu_epi16(mask, b) : _mm512_setzero_si512();

  _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, low, odd));
  _mm512_storeu_si512(to + 16, _mm512_permutex2var_epi16(even, high, odd));
}

#else

bool cpu_conv_amx_fits(void) { return false; }
void cpu_conv_amx_multiply(const cpu_amx_walk *walk, const char *kernel, const char *pixels, bool tall, bool wide,
                           float *sums)
{
  (void)walk, (void)kernel, (void)pixels, (void)tall, (void)wide, (void)sums;
}
void cpu_conv_amx_rows(const cpu_amx_walk *walk, const char *kernel, const char *pixels, bool tall, bool wide,
                       float *sums)
{
  (void)walk, (void)kernel, (void)pixels, (void)tall, (void)wide, (void)sums;
}
void cpu_conv_amx_store_rows(const float *sums, int64_t features, uint32_t which, weft_dtype type, char *to,
                             int64_t row_bytes)
{
  (void)sums, (void)features, (void)which, (void)type, (void)to, (void)row_bytes;
}
void cpu_conv_amx_store(const float *sums, int64_t features, uint32_t which, weft_dtype type, char *to,
                        int64_t row_bytes)
{
  (void)sums, (void)features, (void)which, (void)type, (void)to, (void)row_bytes;
}
void cpu_conv_amx_pairs(const uint16_t *a, const uint16_t *b, int64_t count, uint32_t *to)
{
  (void)a, (void)b, (void)count, (void)to;
}

#endif
