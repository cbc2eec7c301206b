/* cpu/small_solve.h -- LU factors and triangular systems of small real matrices, for which a call of BLAS or
 * LAPACK costs more than the arithmetic. */
#ifndef WEFT_CPU_SMALL_SOLVE_H
#define WEFT_CPU_SMALL_SOLVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

/* The LU factors of column-major m by n matrices of f32, f64, c64 or c128, one behind the other, in place, with partial
 * pivoting: what LAPACK's getrf gives, except that a NaN below a pivot of 0 always reaches the columns to its right
 * (OpenBLAS's kernels for some processors drop it). For each matrix, pivots has min(m, n) numbers of rows, counted from
 * 1: row i was exchanged with row pivots[i]; info has the number, counted from 1, of the first pivot that is 0, or 0.
 * False, with nothing written, for other types and larger matrices. */
bool cpu_lu_small(weft_dtype type, int64_t m, int64_t n, int64_t matrices, void *a, int32_t *pivots, int32_t *info);

/* A triangular system op(A) X = B of f32 or f64. Element (i, j) of op(A) lies at i * a_row + j * a_col, that of X at
 * i * x_row + j * x_col, all in elements. */
typedef struct cpu_system {
  weft_dtype type;
  int64_t n, columns; /* op(A) is n by n, X is n by columns */
  int64_t a_row, a_col, x_row, x_col;
  bool lower;         /* of op(A): the other triangle is not read */
  bool unit;          /* the diagonal is not read, and is 1 */
} cpu_system;

/* Whether cpu_small_systems_solve is meant for the system. */
bool cpu_system_is_small(const cpu_system *s);
/* Overwrites B, which lies in `x`, by X, for each of `matrices` systems, whose matrices lie one behind the other. */
void cpu_small_systems_solve(const cpu_system *s, int64_t matrices, const void *a, void *x);

#endif
