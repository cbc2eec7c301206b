/* cpu/small_solve.c -- LU factors of small matrices and triangular systems of small real ones (small_solve.h). */
#include <config.h>

#include "cpu/small_solve.h"

#include <complex.h>
#include <math.h>

#include "base/macros.h"
#include "cpu/hot.h"

enum { LU_MOST = 32, SYSTEM_MOST = 32, SYSTEM_WORK = 4096 }; /* for larger matrices OpenBLAS is faster */

/* ---- LU ---------------------------------------------------------------------------------------------------------- */

/* Column by column: the largest element below becomes the pivot, and its row is taken from those below. */
#define LU(name, type, absolute)                                                                                   \
  static CPU_HOT void name(int64_t m, int64_t n, int64_t matrices, type *restrict a, int32_t *restrict pivots,     \
                           int32_t *restrict info)                                                                 \
  {                                                                                                                \
    int64_t order = WEFT_MIN(m, n);                                                                                \
                                                                                                                   \
    for (; matrices > 0; matrices--, a += m * n, pivots += order, info++) {                                        \
      *info = 0;                                                                                                   \
      for (int64_t k = 0; k < order; k++) {                                                                        \
        type *column = a + k * m;                                                                                  \
        int64_t best = k;                                                                                          \
        for (int64_t i = k + 1; i < m; i++)                                                                        \
          if (absolute(column[i]) > absolute(column[best])) best = i;                                              \
        pivots[k] = (int32_t)best + 1;                                                                             \
        /* If the pivot is 0 or NaN, best is k: no rows are exchanged, and NaN spreads to the columns on the right. */ \
        bool is_zero = column[best] == 0;                                                                          \
        if (is_zero && *info == 0) *info = (int32_t)k + 1;                                                         \
        for (int64_t j = 0; best != k && j < n; j++) {                                                             \
          type kept = a[j * m + k];                                                                                \
          a[j * m + k] = a[j * m + best];                                                                          \
          a[j * m + best] = kept;                                                                                  \
        }                                                                                                          \
        type pivot = column[k];                                                                                    \
        for (int64_t i = k + 1; !is_zero && i < m; i++) column[i] /= pivot;                                        \
        for (int64_t j = k + 1; j < n; j++) {                                                                      \
          type *to = a + j * m, factor = to[k];                                                                    \
          for (int64_t i = k + 1; i < m; i++) to[i] -= factor * column[i];                                         \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
  }

LU(lu_f32, float, fabsf)
LU(lu_f64, double, fabs)

/* LAPACK compares complex pivots in this norm. */
static inline float abs1_f32(float complex z) { return fabsf(crealf(z)) + fabsf(cimagf(z)); }
static inline double abs1_f64(double complex z) { return fabs(creal(z)) + fabs(cimag(z)); }
LU(lu_c64, float complex, abs1_f32)
LU(lu_c128, double complex, abs1_f64)

bool cpu_lu_small(weft_dtype type, int64_t m, int64_t n, int64_t matrices, void *a, int32_t *pivots, int32_t *info)
{
  if (m > LU_MOST || n > LU_MOST) return false;
  if (type == WEFT_F32) lu_f32(m, n, matrices, a, pivots, info);
  else if (type == WEFT_F64) lu_f64(m, n, matrices, a, pivots, info);
  else if (type == WEFT_C64) lu_c64(m, n, matrices, a, pivots, info);
  else if (type == WEFT_C128) lu_c128(m, n, matrices, a, pivots, info);
  else return false;
  return true;
}

/* ---- triangular systems ------------------------------------------------------------------------------------------ */

/* Row after row of X, from the end of op(A) that has one element in its row. Where the elements of a row of X are
 * neighbours, a whole row is computed at once, else column by column. */
#define SOLVE(name, type)                                                                                          \
  static CPU_INLINE void name##_one(const cpu_system *s, const type *restrict a, type *restrict x)           \
  {                                                                                                                \
    int64_t n = s->n, columns = s->columns, a_row = s->a_row, a_col = s->a_col, x_row = s->x_row;                  \
    int64_t first = s->lower ? 0 : n - 1, step = s->lower ? 1 : -1;                                                \
                                                                                                                   \
    if (s->x_col == 1 && columns > 1) {                                                                            \
      for (int64_t k = 0, i = first; k < n; k++, i += step) {                                                      \
        type *to = x + i * x_row, diagonal = a[i * (a_row + a_col)];                                               \
        for (int64_t l = 0, j = first; l < k; l++, j += step) {                                                    \
          type factor = a[i * a_row + j * a_col];                                                                  \
          const type *from = x + j * x_row;                                                                        \
          for (int64_t c = 0; c < columns; c++) to[c] -= factor * from[c];                                         \
        }                                                                                                          \
        for (int64_t c = 0; !s->unit && c < columns; c++) to[c] /= diagonal;                                       \
      }                                                                                                            \
      return;                                                                                                      \
    }                                                                                                              \
    for (int64_t c = 0; c < columns; c++, x += s->x_col)                                                           \
      for (int64_t k = 0, i = first; k < n; k++, i += step) {                                                      \
        type sum = x[i * x_row];                                                                                   \
        for (int64_t l = 0, j = first; l < k; l++, j += step) sum -= a[i * a_row + j * a_col] * x[j * x_row];      \
        x[i * x_row] = s->unit ? sum : sum / a[i * (a_row + a_col)];                                               \
      }                                                                                                            \
  }                                                                                                                \
  static CPU_HOT void name(const cpu_system *s, int64_t matrices, const type *a, type *x)                    \
  {                                                                                                                \
    for (; matrices > 0; matrices--, a += s->n * s->n, x += s->n * s->columns) name##_one(s, a, x);                \
  }

SOLVE(solve_f32, float)
SOLVE(solve_f64, double)

bool cpu_system_is_small(const cpu_system *s)
{
  return (s->type == WEFT_F32 || s->type == WEFT_F64) && s->n <= SYSTEM_MOST && s->n * s->n * s->columns <= SYSTEM_WORK;
}

void cpu_small_systems_solve(const cpu_system *s, int64_t matrices, const void *a, void *x)
{
  if (s->type == WEFT_F32) solve_f32(s, matrices, a, x);
  else solve_f64(s, matrices, a, x);
}
