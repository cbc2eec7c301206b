/* cpu/blocked.c -- Triangular systems of some hundred rows with few right-hand sides (blocked.h).
 *
 * Columns of X are solved in panels of one or two vectors, [n][width]. From a block of some rows of a panel, the
 * product of op(A)'s rows and the rows of X that are known is subtracted, which is what the innermost loops of
 * gemm_dense.c compute. That leaves a triangular system of the block's own size. The loops add, so a panel holds -X in
 * the rows that are solved, and B in the others. A single column is solved eight rows at a time. */
#include <config.h>

#include "cpu/blocked.h"

#include <string.h>

#include "base/macros.h"
#include "cpu/gemm_dense.h"
#include "cpu/hot.h"
#include "runtime/pool.h"

enum {
  VECTOR_BYTES = 32,
  MOST_ROWS = CPU_MICRO_ROWS,             /* of a block */
  TILE = MOST_ROWS * MOST_ROWS,           /* elements of a triangle of a block */
  LEAST_ROWS = 96, MOST_COLUMNS = 16,     /* for fewer rows, or more columns than one, OpenBLAS is faster */
  ROWS_AT_ONCE = 8,                       /* of a system with one right-hand side */
};

/* ---- the triangles ----------------------------------------------------------------------------------------------- */

/* Solves `h` rows of a panel, the first of which is `first`, the others `step` elements apart, and negates them. `tile`
 * is the triangle by rows, MOST_ROWS apart, with the inverses of the diagonal. */
#define TRIANGLE(name, type)                                                                                           \
  typedef type name##_vec __attribute__((vector_size(VECTOR_BYTES), may_alias));                                       \
  static CPU_INLINE void name##_rows(int h, const type *tile, type *first, int64_t step, int64_t width)                \
  {                                                                                                                    \
    for (int64_t j = 0; j < width; j += VECTOR_BYTES / (int)sizeof(type)) {                                            \
      name##_vec r[MOST_ROWS];                                                                                         \
      _Pragma("GCC unroll 14") for (int i = 0; i < h; i++) r[i] = *(name##_vec *)(first + i * step + j);               \
      _Pragma("GCC unroll 14") for (int i = 0; i < h; i++)                                                             \
      {                                                                                                                \
        r[i] *= tile[i * MOST_ROWS + i];                                                                               \
        _Pragma("GCC unroll 14") for (int k = i + 1; k < h; k++) r[k] -= tile[k * MOST_ROWS + i] * r[i];               \
      }                                                                                                                \
      _Pragma("GCC unroll 14") for (int i = 0; i < h; i++) *(name##_vec *)(first + i * step + j) = -r[i];              \
    }                                                                                                                  \
  }                                                                                                                    \
  static CPU_INLINE void name##_any(int64_t h, const type *tile, type *first, int64_t step, int64_t width)             \
  {                                                                                                                    \
    for (int64_t i = 0; i < h; i++) {                                                                                  \
      type *to = first + i * step;                                                                                     \
      for (int64_t k = 0; k < i; k++)                                                                                  \
        for (int64_t j = 0; j < width; j++) to[j] += tile[i * MOST_ROWS + k] * first[k * step + j];                    \
      for (int64_t j = 0; j < width; j++) to[j] *= -tile[i * MOST_ROWS + i];                                           \
    }                                                                                                                  \
  }                                                                                                                    \
  static CPU_HOT void name(int64_t h, const void *tile, void *first, int64_t step, int64_t width)                      \
  {                                                                                                                    \
    switch (h) {                                                                                                       \
    case 4: name##_rows(4, tile, first, step, width); break;                                                           \
    case 5: name##_rows(5, tile, first, step, width); break;                                                           \
    case 6: name##_rows(6, tile, first, step, width); break;                                                           \
    case 11: name##_rows(11, tile, first, step, width); break;                                                         \
    case 14: name##_rows(14, tile, first, step, width); break;                                                         \
    default: name##_any(h, tile, first, step, width);                                                                  \
    }                                                                                                                  \
  }                                                                                                                    \
  static void name##_tile(int64_t h, const void *from, int64_t row, int64_t col, bool unit, void *to)                  \
  {                                                                                                                    \
    const type *a = from;                                                                                              \
    type *tile = to;                                                                                                   \
    for (int64_t i = 0; i < h; i++) {                                                                                  \
      for (int64_t k = 0; k < i; k++) tile[i * MOST_ROWS + k] = a[i * row + k * col];                                  \
      tile[i * MOST_ROWS + i] = unit ? 1 : 1 / a[i * (row + col)];                                                     \
    }                                                                                                                  \
  }                                                                                                                    \
  static CPU_HOT void name##_negate(int64_t n, void *x)                                                                \
  {                                                                                                                    \
    type *at = x;                                                                                                      \
    for (int64_t i = 0; i < n; i++) at[i] = -at[i];                                                                    \
  }                                                                                                                    \
  /* Columns [0, cols) of a panel of n rows, to elements `row` and `col` apart. */                                     \
  static CPU_HOT void name##_unpack(int64_t n, int64_t cols, const void *panel, int64_t width, void *to, int64_t row,  \
                                    int64_t col)                                                                       \
  {                                                                                                                    \
    const type *from = panel;                                                                                          \
    type *x = to;                                                                                                      \
    if (col == 1)                                                                                                      \
      for (int64_t i = 0; i < n; i++) memcpy(x + i * row, from + i * width, (size_t)cols * sizeof *x);                 \
    else                                                                                                               \
      for (int64_t i = 0; i < n; i++)                                                                                  \
        for (int64_t j = 0; j < cols; j++) x[i * row + j * col] = from[i * width + j];                                 \
  }

TRIANGLE(triangle_f32, float)
TRIANGLE(triangle_f64, double)

typedef struct blocked {
  const cpu_dense_kernel *kernel;
  int64_t bytes, width, vectors; /* bytes of an element; elements of a row of a panel, and vectors */
  bool is_f64;
} blocked;

static blocked blocked_of(weft_dtype type, int64_t columns)
{
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(type);
  int64_t vectors = columns > kernel->lanes ? CPU_MICRO_VECTORS : 1;

  return (blocked){kernel, (int64_t)weft_dtype_bytes(type), vectors * kernel->lanes, vectors, type == WEFT_F64};
}

/* Triangles of the blocks of `height` rows of an n by n matrix. */
static void make_tiles(const blocked *b, int64_t n, int64_t height, const char *a, int64_t row, int64_t col, bool unit,
                       char *tiles)
{
  for (int64_t i = 0; i < n; i += height, tiles += TILE * b->bytes)
    (b->is_f64 ? triangle_f64_tile : triangle_f32_tile)(WEFT_MIN(height, n - i), a + i * (row + col) * b->bytes, row,
                                                        col, unit, tiles);
}

/* Solves a panel of `n` rows, which are `step` elements apart. `a` is the lower triangular matrix. */
static void solve_rows(const blocked *b, int64_t n, int64_t height, const char *a, int64_t row, int64_t col,
                       const char *tiles, char *panel, int64_t step)
{
  cpu_micro_steps steps = {row, col, step, step};

  for (int64_t i = 0; i < n; i += height, tiles += TILE * b->bytes) {
    int64_t h = WEFT_MIN(height, n - i);
    char *to = panel + i * step * b->bytes;
    if (i > 0) b->kernel->micro[h][b->vectors](i, a + i * row * b->bytes, panel, to, &steps, b->kernel->lanes, true);
    (b->is_f64 ? triangle_f64 : triangle_f32)(h, tiles, to, step, b->width);
  }
}

static void negate(const blocked *b, int64_t n, void *x)
{
  (b->is_f64 ? triangle_f64_negate : triangle_f32_negate)(n, x);
}

/* A panel's columns to where they belong. `row` or `col` is 1. */
static void unpack(const blocked *b, int64_t n, int64_t cols, const char *panel, char *to, int64_t row, int64_t col)
{
  int64_t turned = col != 1 && row == 1 ? n / b->kernel->lanes * b->kernel->lanes : 0;

  if (turned) b->kernel->pack(turned, cols, panel, b->width, 1, to, col);
  (b->is_f64 ? triangle_f64_unpack : triangle_f32_unpack)(n - turned, cols, panel + turned * b->width * b->bytes,
                                                          b->width, to + turned * row * b->bytes, row, col);
}

/* ---- one right-hand side ----------------------------------------------------------------------------------------- */

/* Eight rows are solved at a time. If the elements of a row of A are neighbours, the eight rows' products with the part
 * of x that is known are subtracted before. If those of a column are, the products of the columns of the eight new
 * elements are subtracted from the rest of x afterwards. */
#define VECTOR(name, type)                                                                                             \
  typedef type name##_vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(type)), may_alias));                \
  static CPU_INLINE void name##_dots(int64_t n, const type *a, int64_t row, const type *x, type *to)                   \
  {                                                                                                                    \
    enum { LANES = VECTOR_BYTES / (int)sizeof(type) };                                                                 \
    name##_vec s[ROWS_AT_ONCE] = {{0}};                                                                                \
    int64_t l = 0;                                                                                                     \
    for (; l + LANES <= n; l += LANES) {                                                                               \
      name##_vec v = *(const name##_vec *)(x + l);                                                                     \
      _Pragma("GCC unroll 8") for (int i = 0; i < ROWS_AT_ONCE; i++)                                                   \
        s[i] += *(const name##_vec *)(a + i * row + l) * v;                                                            \
    }                                                                                                                  \
    for (int i = 0; i < ROWS_AT_ONCE; i++) {                                                                           \
      type sum = 0;                                                                                                    \
      for (int64_t t = l; t < n; t++) sum += a[i * row + t] * x[t];                                                    \
      for (int t = 0; t < LANES; t++) sum += s[i][t];                                                                  \
      to[i] -= sum;                                                                                                    \
    }                                                                                                                  \
  }                                                                                                                    \
  static CPU_INLINE void name##_columns(int64_t n, const type *restrict a, int64_t col, const type *restrict x,        \
                                        type *restrict to)                                                            \
  {                                                                                                                    \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
      const type *at = a + i;                                                                                          \
      to[i] -= (at[0] * x[0] + at[col] * x[1]) + (at[2 * col] * x[2] + at[3 * col] * x[3]) +                           \
               ((at[4 * col] * x[4] + at[5 * col] * x[5]) + (at[6 * col] * x[6] + at[7 * col] * x[7]));                \
    }                                                                                                                  \
  }                                                                                                                    \
  static CPU_INLINE void name##_few(const cpu_system *s, int64_t n, const type *a, type *x)                            \
  {                                                                                                                    \
    int64_t first = s->lower ? 0 : n - 1, step = s->lower ? 1 : -1;                                                    \
    for (int64_t k = 0, i = first; k < n; k++, i += step) {                                                            \
      type sum = x[i];                                                                                                 \
      for (int64_t l = 0, j = first; l < k; l++, j += step) sum -= a[i * s->a_row + j * s->a_col] * x[j];              \
      x[i] = s->unit ? sum : sum / a[i * (s->a_row + s->a_col)];                                                       \
    }                                                                                                                  \
  }                                                                                                                    \
  static CPU_HOT void name(const cpu_system *s, const void *matrix, void *result)                                      \
  {                                                                                                                    \
    const type *a = matrix;                                                                                            \
    type *x = result;                                                                                                  \
    int64_t n = s->n, row = s->a_row, col = s->a_col, whole = n / ROWS_AT_ONCE * ROWS_AT_ONCE, rest = n - whole;       \
    int64_t begin = s->lower ? 0 : rest, edge = s->lower ? whole : 0; /* of the blocks; of the rest */                 \
    for (int64_t k = 0; k < whole; k += ROWS_AT_ONCE) {                                                                \
      int64_t i = s->lower ? k : n - k - ROWS_AT_ONCE, after = i + ROWS_AT_ONCE;                                       \
      const type *rows = a + i * row;                                                                                  \
      if (col == 1) name##_dots(s->lower ? i : n - after, s->lower ? rows : rows + after, row,                         \
                                s->lower ? x : x + after, x + i);                                                      \
      name##_few(s, ROWS_AT_ONCE, rows + i * col, x + i);                                                              \
      if (col != 1) name##_columns(s->lower ? n - after : i, s->lower ? a + after + i * col : a + i * col, col, x + i, \
                                   s->lower ? x + after : x);                                                          \
    }                                                                                                                  \
    if (col == 1 && rest)                                                                                              \
      for (int64_t i = edge; i < edge + rest; i++)                                                                     \
        for (int64_t l = begin; l < begin + whole; l++) x[i] -= a[i * row + l] * x[l];                                 \
    name##_few(s, rest, a + edge * (row + col), x + edge);                                                             \
  }

VECTOR(vector_f32, float)
VECTOR(vector_f64, double)

static bool solve_vector(const cpu_system *s, const char *a, char *x)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(s->type);
  char *at = s->x_row == 1 ? x : rt_thread_scratch(s->n * bytes);

  if (!at) return false;
  for (int64_t i = 0; at != x && i < s->n; i++) memcpy(at + i * bytes, x + i * s->x_row * bytes, (size_t)bytes);
  (s->type == WEFT_F64 ? vector_f64 : vector_f32)(s, a, at);
  for (int64_t i = 0; at != x && i < s->n; i++) memcpy(x + i * s->x_row * bytes, at + i * bytes, (size_t)bytes);
  return true;
}

/* ---- systems ----------------------------------------------------------------------------------------------------- */

bool cpu_blocked_system_fits(const cpu_system *s)
{
  if ((s->type != WEFT_F32 && s->type != WEFT_F64) || (s->a_row != 1 && s->a_col != 1)) return false;
  return s->columns == 1 || (s->columns <= MOST_COLUMNS && s->n >= LEAST_ROWS && cpu_dense_kernel_of(s->type));
}

bool cpu_blocked_system_solve(const cpu_system *s, const void *a, void *x)
{
  if (s->columns == 1) return solve_vector(s, a, x);

  blocked b = blocked_of(s->type, s->columns);
  int64_t n = s->n, height = cpu_even_part(n, b.kernel->rows), blocks = (n + height - 1) / height;
  int64_t row = s->a_row, col = s->a_col, step = b.width, panel_bytes = WEFT_ALIGN_UP(n * b.width * b.bytes, 64);
  char *panel = rt_thread_scratch(panel_bytes + blocks * TILE * b.bytes), *first = panel;
  const char *corner = a;

  if (!panel) return false;
  /* An upper triangular matrix is lower triangular if its rows and columns are counted from the end. */
  if (!s->lower) {
    corner += (n - 1) * (row + col) * b.bytes;
    first += (n - 1) * step * b.bytes;
    row = -row, col = -col, step = -step;
  }
  make_tiles(&b, n, height, corner, row, col, s->unit, panel + panel_bytes);
  for (int64_t j = 0; j < s->columns; j += b.width) {
    int64_t cols = WEFT_MIN(b.width, s->columns - j);
    char *at = (char *)x + j * s->x_col * b.bytes;
    if (cols < b.width) memset(panel, 0, (size_t)(n * b.width * b.bytes));
    b.kernel->pack(cols, n, at, s->x_col, s->x_row, panel, b.width);
    solve_rows(&b, n, height, corner, row, col, panel + panel_bytes, first, step);
    negate(&b, n * b.width, panel);
    unpack(&b, n, cols, panel, at, s->x_row, s->x_col);
  }
  return true;
}
