/* cpu/gemm_complex.c -- Products of c64 and of c128 as products of reals.  A complex number is two reals side by side,
 * so a row of A of k complex numbers is a row of 2k reals.  With two real rows for each row of B,
 *
 *   B[l] = (x0 + iy0, x1 + iy1, ...)   ->   ( x0, y0,  x1, y1, ...)
 *                                           (-y0, x0, -y1, x1, ...)
 *
 * the real product has in its rows the reals of C, in order, and no more multiplications than the complex one.  A panel
 * of B is written so for each tile; A is read in place where its rows are dense.  As in BLAS and in XLA, an infinite
 * number times a complex one is what the four real products make of it.  The blocks of k depend only on k, and within
 * a block each element of C is summed up in order, so the way in which C is cut into tiles changes no bit. */
#include <config.h>

#include "cpu/gemm_complex.h"

#include "base/macros.h"
#include "cpu/gemm_dense.h"
#include "cpu/hot.h"

enum {
  BLOCK_K = CPU_DENSE_BLOCK_K / 2, /* each row of B is two rows of a panel */
  LEAST_ROWS = 8,                  /* for fewer rows writing the panels takes as long as the product */
  MOST_ROWS = 256,
  TILES = 32,                      /* tiles wanted, for many threads or threads of uneven speed */
};
#define LEAST_TILE_FLOPS 4e6 /* some 30 us */
#define MOST_TILE_FLOPS 32e6

static const cpu_dense_kernel *kernel_of(const cpu_gemm *g)
{
  return cpu_dense_kernel_of(weft_dtype_component(g->c_type));
}

/* Complex columns of a panel. */
static int64_t width_of(const cpu_gemm *g) { return CPU_MICRO_VECTORS * kernel_of(g)->lanes / 2; }

static int64_t block_of_k(const cpu_gemm *g) { return cpu_even_part(g->k, BLOCK_K); }

static int64_t panel_bytes(const cpu_gemm *g)
{
  return 2 * block_of_k(g) * width_of(g) * (int64_t)weft_dtype_bytes(g->c_type);
}

/* The step between copied rows of A, in complex numbers: an odd number of cache lines, at least. */
static int64_t copied_row(const cpu_gemm *g) { return WEFT_ALIGN_UP(block_of_k(g), 16) + 8; }

bool cpu_complex_fits(const cpu_gemm *g)
{
  return weft_dtype_is_complex(g->c_type) && g->a_type == g->c_type && g->b_type == g->c_type &&
         g->via == WEFT_INVALID && g->m >= LEAST_ROWS && g->n >= 2 && kernel_of(g) != NULL;
}

void cpu_complex_plan(cpu_gemm *g)
{
  double flops = 4 * g->flops, most = WEFT_MAX(LEAST_TILE_FLOPS, WEFT_MIN(MOST_TILE_FLOPS, flops / TILES));

  g->tile_m = cpu_even_part(g->m, MOST_ROWS);
  double columns = most / (8.0 * (double)g->tile_m * (double)WEFT_MAX(g->k, 1));
  /* not more than n, which the first comparison keeps the number within the integers */
  g->tile_n = columns >= (double)g->n ? g->n : WEFT_ALIGN_UP(WEFT_MAX((int64_t)columns, 1), width_of(g));
  g->scratch_bytes = panel_bytes(g);
  if (g->a_col != 1) g->scratch_bytes += g->tile_m * copied_row(g) * (int64_t)weft_dtype_bytes(g->c_type);
}

/* Writes the panel of B of `cols` columns, and zeros in the columns up to `width`, which lanes of a vector read. */
#define EXPAND(name, type)                                                                                             \
  static CPU_HOT void name(int64_t cols, int64_t width, int64_t k, const type *b, int64_t b_row, int64_t b_col,        \
                           type *restrict to)                                                                          \
  {                                                                                                                    \
    for (int64_t l = 0; l < k; l++, to += 4 * width) {                                                                 \
      const type *from = b + 2 * l * b_row;                                                                            \
      type *turned = to + 2 * width;                                                                                   \
      if (b_col == 1)                                                                                                  \
        for (int64_t j = 0; j < cols; j++) {                                                                           \
          type re = from[2 * j], im = from[2 * j + 1];                                                                 \
          to[2 * j] = re, to[2 * j + 1] = im;                                                                          \
          turned[2 * j] = -im, turned[2 * j + 1] = re;                                                                 \
        }                                                                                                              \
      else                                                                                                             \
        for (int64_t j = 0; j < cols; j++) {                                                                           \
          type re = from[2 * j * b_col], im = from[2 * j * b_col + 1];                                                 \
          to[2 * j] = re, to[2 * j + 1] = im;                                                                          \
          turned[2 * j] = -im, turned[2 * j + 1] = re;                                                                 \
        }                                                                                                              \
      for (int64_t x = 2 * cols; x < 2 * width; x++) to[x] = turned[x] = 0;                                            \
    }                                                                                                                  \
  }
EXPAND(expand_c64, float)
EXPAND(expand_c128, double)

/* Copies k columns of `m` rows of A, so that each row is dense. */
#define GATHER(name, type)                                                                                             \
  static CPU_HOT void name(int64_t m, int64_t k, const type *a, int64_t a_row, int64_t a_col, type *restrict to,       \
                           int64_t to_row)                                                                             \
  {                                                                                                                    \
    for (int64_t i = 0; i < m; i++)                                                                                    \
      for (int64_t l = 0; l < k; l++) {                                                                                \
        to[2 * (i * to_row + l)] = a[2 * (i * a_row + l * a_col)];                                                     \
        to[2 * (i * to_row + l) + 1] = a[2 * (i * a_row + l * a_col) + 1];                                             \
      }                                                                                                                \
  }
GATHER(gather_c64, float)
GATHER(gather_c128, double)

void cpu_complex_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  const cpu_dense_kernel *kernel = kernel_of(g);
  bool wide = g->c_type == WEFT_C128;
  int64_t bytes = (int64_t)weft_dtype_bytes(g->c_type), width = width_of(g), block = block_of_k(g);
  int64_t height = cpu_even_part(m, kernel->rows), a_row = g->a_col == 1 ? g->a_row : copied_row(g);
  char *copied = (char *)scratch + panel_bytes(g);
  cpu_micro_steps steps = {2 * a_row, 1, 2 * width, 2 * g->c_row};

  for (int64_t l = 0; l < g->k; l += block) {
    int64_t k = WEFT_MIN(block, g->k - l);
    const char *rows = a + l * g->a_col * bytes;
    if (g->a_col != 1) {
      if (wide) gather_c128(m, k, (const double *)rows, g->a_row, g->a_col, (double *)copied, a_row);
      else gather_c64(m, k, (const float *)rows, g->a_row, g->a_col, (float *)copied, a_row);
      rows = copied;
    }
    for (int64_t j = 0; j < n; j += width) {
      int64_t cols = WEFT_MIN(width, n - j), vectors = (2 * cols + kernel->lanes - 1) / kernel->lanes;
      const char *from = b + (l * g->b_row + j * g->b_col) * bytes;
      if (wide) expand_c128(cols, width, k, (const double *)from, g->b_row, g->b_col, scratch);
      else expand_c64(cols, width, k, (const float *)from, g->b_row, g->b_col, scratch);
      for (int64_t i = 0; i < m; i += height)
        kernel->micro[WEFT_MIN(height, m - i)][vectors](2 * k, rows + i * a_row * bytes, scratch,
                                                        c + (i * g->c_row + j) * bytes, &steps,
                                                        2 * cols - (vectors - 1) * kernel->lanes, l > 0);
    }
  }
}
