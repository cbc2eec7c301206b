/* cpu/gemm_tiny.c -- tiny products, without packing. With AVX-512, dense columns of more than 8 rows are
 * multiplied by the loops of gemm_dense.c; otherwise 8 rows by one vector of C stay in registers. Masks cut the vector
 * at the last column, and columns that are not dense are gathered. */
#include <config.h>

#include "cpu/gemm_tiny.h"

#include <string.h>

#include "base/macros.h"
#include "cpu/gemm_block.h"
#include "cpu/gemm_dense.h"
#include "cpu/hot.h"

enum { FLOPS = 2000, DENSE_FLOPS = 70000, ROWS = 8, MOST_STEP = 1 << 24 };

bool cpu_tiny_fits(const cpu_gemm *g)
{
  bool dense = g->b_col == 1 && g->n > 1 && cpu_block_is_fast(); /* one column: lanes run along it in BLAS */

  return g->m * g->n <= (dense ? DENSE_FLOPS : FLOPS) && g->flops <= (dense ? DENSE_FLOPS : FLOPS);
}

/* ---- any machine ------------------------------------------------------------------------------------------------- */

#define LOOPS(name, type)                                                                   \
  static CPU_HOT void name(const cpu_gemm *g, const type *a, const type *b, type *restrict c) \
  {                                                                                         \
    for (int64_t i = 0; i < g->m; i++) {                                                    \
      type *row = c + i * g->c_row;                                                         \
      memset(row, 0, (size_t)g->n * sizeof(type));                                          \
      for (int64_t l = 0; l < g->k; l++) {                                                  \
        type x = a[i * g->a_row + l * g->a_col];                                            \
        const type *from = b + l * g->b_row;                                                \
        for (int64_t j = 0; j < g->n; j++) row[j] += x * from[j * g->b_col];                \
      }                                                                                     \
    }                                                                                       \
  }
LOOPS(loops_f32, float)
LOOPS(loops_f64, double)

/* ---- AVX-512 ----------------------------------------------------------------------------------------------------- */

#if defined __x86_64__

#include <immintrin.h>

/* Computes `count` rows (at most 8) of C from `a` and `c` on, all columns. Rows that do not exist repeat the last
 * one. */
#define MASKED(name, type, vec, mask_type, LANES, ZERO, SET1, FMA, LOAD, GATHER, STORE)                                   \
  static __attribute__((target("avx512f,avx512vl,avx512dq,fma"))) void name(const cpu_gemm *g, int64_t count, const type *a, \
                                                                            const type *b, type *c)                       \
  {                                                                                                                       \
    const type *rows[ROWS];                                                                                               \
    __m512i step = _mm512_mullo_epi32(_mm512_set1_epi32((int)g->b_col),                                                   \
                                      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));           \
    (void)step;                                                                                                           \
    for (int64_t q = 0; q < ROWS; q++) rows[q] = a + WEFT_MIN(q, count - 1) * g->a_row;                                   \
    for (int64_t j = 0; j < g->n; j += LANES) {                                                                           \
      mask_type mask = (mask_type)((1u << WEFT_MIN(LANES, g->n - j)) - 1);                                                \
      const type *from = b + j * g->b_col;                                                                                \
      vec s0 = ZERO, s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;                                       \
      for (int64_t l = 0, at = 0; l < g->k; l++, at += g->a_col, from += g->b_row) {                                      \
        vec x = g->b_col == 1 ? LOAD(mask, from) : GATHER;                                                                \
        s0 = FMA(SET1(rows[0][at]), x, s0);                                                                               \
        s1 = FMA(SET1(rows[1][at]), x, s1);                                                                               \
        s2 = FMA(SET1(rows[2][at]), x, s2);                                                                               \
        s3 = FMA(SET1(rows[3][at]), x, s3);                                                                               \
        s4 = FMA(SET1(rows[4][at]), x, s4);                                                                               \
        s5 = FMA(SET1(rows[5][at]), x, s5);                                                                               \
        s6 = FMA(SET1(rows[6][at]), x, s6);                                                                               \
        s7 = FMA(SET1(rows[7][at]), x, s7);                                                                               \
      }                                                                                                                   \
      vec sums[ROWS] = {s0, s1, s2, s3, s4, s5, s6, s7};                                                                  \
      for (int64_t q = 0; q < count; q++) STORE(c + q * g->c_row + j, mask, sums[q]);                                     \
    }                                                                                                                     \
  }
MASKED(masked_f32, float, __m512, __mmask16, 16, _mm512_setzero_ps(), _mm512_set1_ps, _mm512_fmadd_ps,
       _mm512_maskz_loadu_ps, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), mask, step, from, 4), _mm512_mask_storeu_ps)
MASKED(masked_f64, double, __m512d, __mmask8, 8, _mm512_setzero_pd(), _mm512_set1_pd, _mm512_fmadd_pd,
       _mm512_maskz_loadu_pd,
       _mm512_mask_i32gather_pd(_mm512_setzero_pd(), mask, _mm512_castsi512_si256(step), from, 8),
       _mm512_mask_storeu_pd)

static bool use_masks(const cpu_gemm *g) { return cpu_block_is_fast() && g->b_col < MOST_STEP; }

#else

static void masked_f32(const cpu_gemm *g, int64_t count, const float *a, const float *b, float *c)
{
  (void)g, (void)count, (void)a, (void)b, (void)c;
}
static void masked_f64(const cpu_gemm *g, int64_t count, const double *a, const double *b, double *c)
{
  (void)g, (void)count, (void)a, (void)b, (void)c;
}
static bool use_masks(const cpu_gemm *g)
{
  (void)g;
  return false;
}

#endif

/* Dense columns: the loops of gemm_dense.c over all of k, which add in the same order. */
static void multiply_dense(const cpu_dense_kernel *kernel, const cpu_gemm *g, const char *a, const char *b, char *c)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(g->c_type), width = CPU_MICRO_VECTORS * kernel->lanes;
  int64_t height = cpu_even_part(g->m, kernel->rows);
  cpu_micro_steps steps = {g->a_row, g->a_col, g->b_row, g->c_row};

  for (int64_t j = 0; j < g->n; j += width) {
    int64_t cols = WEFT_MIN(width, g->n - j), vectors = cols > kernel->lanes ? 2 : 1;
    for (int64_t i = 0; i < g->m; i += height)
      kernel->micro[WEFT_MIN(height, g->m - i)][vectors](g->k, a + i * g->a_row * bytes, b + j * bytes,
                                                         c + (i * g->c_row + j) * bytes, &steps,
                                                         cols - (vectors - 1) * kernel->lanes, false);
  }
}

void cpu_gemm_tiny(const cpu_gemm *g, const void *a, const void *b, void *c)
{
  if (use_masks(g) && g->b_col == 1 && g->m > ROWS) {
    multiply_dense(cpu_dense_kernel_of(g->c_type), g, a, b, c);
    return;
  }
  if (!use_masks(g)) {
    if (g->c_type == WEFT_F32) loops_f32(g, a, b, c);
    else loops_f64(g, a, b, c);
    return;
  }
  for (int64_t i = 0; i < g->m; i += ROWS) {
    int64_t count = WEFT_MIN(ROWS, g->m - i);
    if (g->c_type == WEFT_F32) masked_f32(g, count, (const float *)a + i * g->a_row, b, (float *)c + i * g->c_row);
    else masked_f64(g, count, (const double *)a + i * g->a_row, b, (double *)c + i * g->c_row);
  }
}
