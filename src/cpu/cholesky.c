/* cpu/cholesky.c -- Cholesky factors of matrices that fit L1, for which a call
 * of LAPACK costs more than the arithmetic.
 *
 * The upper factor U (A = U^T U) is made row by row: row i is that of A less the sum over l < i of
 * U[l][i] times row l of U, CHUNK columns at a time in registers.  The lower factor is the upper factor
 * of the transposed matrix, transposed. */
#include <config.h>

#include "cpu/cholesky.h"

#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/hot.h"

enum { VECTOR_BYTES = 32, VECTORS = 4 };

/* Vectors of columns from `first` on become rows: u[i][j], of which i <= j counts. */
#define SMALL(name, type, root)                                                                                          \
  typedef type name##_vec __attribute__((vector_size(VECTOR_BYTES), may_alias));                                         \
  static CPU_HOT bool name(int64_t n, bool lower, const type *in, type *out)                                            \
  {                                                                                                                      \
    enum { LANES = VECTOR_BYTES / (int)sizeof(type), CHUNK = VECTORS * LANES };                                          \
    _Alignas(64) type u[CPU_CHOLESKY_MOST * CPU_CHOLESKY_MOST];                                                          \
    int64_t width = WEFT_ALIGN_UP(n, CHUNK);                                                                             \
                                                                                                                         \
    memset(u, 0, (size_t)(n * width) * sizeof *u);                                                                       \
    for (int64_t i = 0; i < n; i++)                                                                                      \
      for (int64_t j = lower ? 0 : i; j < (lower ? i + 1 : n); j++)                                                      \
        u[lower ? j * width + i : i * width + j] = in[i * n + j];                                                        \
    for (int64_t i = 0; i < n; i++) {                                                                                    \
      type *row = u + i * width;                                                                                         \
      for (int64_t j = i / CHUNK * CHUNK; j < width; j += CHUNK) {                                                       \
        name##_vec *to = (name##_vec *)(row + j);                                                                        \
        name##_vec s0 = to[0], s1 = to[1], s2 = to[2], s3 = to[3], t0 = {0}, t1 = {0}, t2 = {0}, t3 = {0};               \
        int64_t l = 0;                                                                                                   \
        for (; l + 2 <= i; l += 2) {                                                                                     \
          const type *above = u + l * width, *next = above + width;                                                      \
          const name##_vec *x = (const name##_vec *)(above + j), *y = (const name##_vec *)(next + j);                    \
          type f = above[i], g = next[i];                                                                                \
          s0 -= f * x[0];                                                                                                \
          s1 -= f * x[1];                                                                                                \
          s2 -= f * x[2];                                                                                                \
          s3 -= f * x[3];                                                                                                \
          t0 += g * y[0];                                                                                                \
          t1 += g * y[1];                                                                                                \
          t2 += g * y[2];                                                                                                \
          t3 += g * y[3];                                                                                                \
        }                                                                                                                \
        if (l < i) {                                                                                                     \
          const name##_vec *x = (const name##_vec *)(u + l * width + j);                                                 \
          type f = u[l * width + i];                                                                                     \
          s0 -= f * x[0];                                                                                                \
          s1 -= f * x[1];                                                                                                \
          s2 -= f * x[2];                                                                                                \
          s3 -= f * x[3];                                                                                                \
        }                                                                                                                \
        to[0] = s0 - t0;                                                                                                 \
        to[1] = s1 - t1;                                                                                                 \
        to[2] = s2 - t2;                                                                                                 \
        to[3] = s3 - t3;                                                                                                 \
      }                                                                                                                  \
      if (!(row[i] > 0)) return false;                                                                                   \
      type pivot = root(row[i]);                                                                                         \
      for (int64_t j = i / CHUNK * CHUNK; j < width; j++) row[j] /= pivot;                                               \
      row[i] = pivot;                                                                                                    \
    }                                                                                                                    \
    for (int64_t i = 0; i < n; i++)                                                                                      \
      for (int64_t j = lower ? 0 : i; j < (lower ? i + 1 : n); j++)                                                      \
        out[i * n + j] = u[lower ? j * width + i : i * width + j];                                                       \
    return true;                                                                                                         \
  }

SMALL(small_f32, float, sqrtf)
SMALL(small_f64, double, sqrt)

bool cpu_cholesky_small(weft_dtype type, int64_t n, bool lower, const void *in, void *out)
{
  if (n > CPU_CHOLESKY_MOST) return false;
  if (type == WEFT_F32) return small_f32(n, lower, in, out);
  return type == WEFT_F64 && small_f64(n, lower, in, out);
}
