/* cpu/blas.h -- matrix products in the types of BLAS: by OpenBLAS, or by plain loops in a build without it. */
#ifndef WEFT_CPU_BLAS_H
#define WEFT_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

/* OpenBLAS runs on the calling thread only; call before the first use (idempotent). */
void cpu_blas_init(void);

/* c (+)= a . b, of f32, f64, c64 or c128. a[i,l] is at i * a_row + l * a_col elements, b[l,j] at l * b_row + j * b_col,
 * and c[i,j] at i * c_row + j. One step of each operand is 1; all fit an int. k is at least 1. */
void cpu_blas_gemm(weft_dtype type, int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, int64_t a_col,
                   const void *b, int64_t b_row, int64_t b_col, bool add, void *c, int64_t c_row);

#endif
