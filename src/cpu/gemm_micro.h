/* cpu/gemm_micro.h -- the innermost loops of products: what they are called with, tables of them by the size of their
 * block of C, and the macros of which gemm_micro_loop.h makes such a table for one type and one instruction set. */
#ifndef WEFT_CPU_GEMM_MICRO_H
#define WEFT_CPU_GEMM_MICRO_H

#include <stdbool.h>
#include <stdint.h>

/* Elements between neighbours: rows of a, columns of a, rows of b, rows of c. Loops that can do so ask the memory for
 * what will be read next: from `next` on, `next_step` bytes further with each of k; NULL: for nothing. */
typedef struct cpu_micro_steps {
  int64_t a_row, a_col, b_row, c_row;
  const char *next;
  int64_t next_step;
} cpu_micro_steps;

/* c[rows, n] (+)= a . b for n columns in one or two vectors, the last of them of `last` lanes. */
typedef void cpu_micro_fn(int64_t k, const void *a, const void *b, void *c, const cpu_micro_steps *steps, int64_t last,
                          bool add);

/* The loops by the rows and the vectors of their blocks; NULL for sizes that have none. */
enum { CPU_MICRO_ROWS = 14, CPU_MICRO_VECTORS = 2 };
typedef cpu_micro_fn *const cpu_micro_table[CPU_MICRO_ROWS + 1][CPU_MICRO_VECTORS + 1];

#if defined __x86_64__
/* Products of f32 with AVX-512 (gemm_dense.c): up to 14 rows, vectors of 16. */
extern cpu_micro_table cpu_micro_f32;
#endif

/* ---- of which the loops are made --------------------------------------------------------------------------------- */

#define WITH_VECTORS(X, rows) X(rows, 1) X(rows, 2)
#define UP_TO_6(X)                                                                                                     \
  WITH_VECTORS(X, 1) WITH_VECTORS(X, 2) WITH_VECTORS(X, 3) WITH_VECTORS(X, 4) WITH_VECTORS(X, 5) WITH_VECTORS(X, 6)
#define UP_TO_14(X)                                                                                                    \
  UP_TO_6(X) WITH_VECTORS(X, 7) WITH_VECTORS(X, 8) WITH_VECTORS(X, 9) WITH_VECTORS(X, 10) WITH_VECTORS(X, 11)          \
  WITH_VECTORS(X, 12) WITH_VECTORS(X, 13) WITH_VECTORS(X, 14)

#define ROW_0 a0[0]
#define ROW_1 a0[row]
#define ROW_2 a0[2 * row]
#define ROW_3 a0[row3]
#define ROW_4 a0[4 * row]
#define ROW_5 a5[0]
#define ROW_6 a5[row]
#define ROW_7 a5[2 * row]
#define ROW_8 a5[row3]
#define ROW_9 a5[4 * row]
#define ROW_10 a10[0]
#define ROW_11 a10[row]
#define ROW_12 a10[2 * row]
#define ROW_13 a10[row3]

#define EACH_1(X) X(0)
#define EACH_2(X) EACH_1(X) X(1)
#define EACH_3(X) EACH_2(X) X(2)
#define EACH_4(X) EACH_3(X) X(3)
#define EACH_5(X) EACH_4(X) X(4)
#define EACH_6(X) EACH_5(X) X(5)
#define EACH_7(X) EACH_6(X) X(6)
#define EACH_8(X) EACH_7(X) X(7)
#define EACH_9(X) EACH_8(X) X(8)
#define EACH_10(X) EACH_9(X) X(9)
#define EACH_11(X) EACH_10(X) X(10)
#define EACH_12(X) EACH_11(X) X(11)
#define EACH_13(X) EACH_12(X) X(12)
#define EACH_14(X) EACH_13(X) X(13)

#define CLEAR_1(i) VEC s##i##0 = ZERO;
#define CLEAR_2(i) VEC s##i##0 = ZERO, s##i##1 = ZERO;
#define FETCH_1 VEC b0 = LOAD_MASKED(mask, b);
#define FETCH_2 VEC b0 = LOAD(b), b1 = LOAD_MASKED(mask, b + LANES);
#define ADD_1(i) s##i##0 = FMA(SPLAT(ROW_##i), b0, s##i##0);
#define ADD_2(i)                   \
  {                                \
    VEC x = SPLAT(ROW_##i);        \
    s##i##0 = FMA(x, b0, s##i##0); \
    s##i##1 = FMA(x, b1, s##i##1); \
  }
/* Zen 1 to 3 take some ten cycles for a store under a mask of AVX2 (some 20 operations of microcode). */
#define STORE_LAST(to, v)            \
  {                                  \
    if (is_whole) STORE(to, v);      \
    else STORE_MASKED(to, mask, v);  \
  }
#define KEEP_1(i)                                                \
  if (add) s##i##0 += LOAD_MASKED(mask, c + i * steps->c_row);   \
  STORE_LAST(c + i * steps->c_row, s##i##0)
#define KEEP_2(i)                                                \
  {                                                              \
    ELEM *to = c + i * steps->c_row;                             \
    if (add) {                                                   \
      s##i##0 += LOAD(to);                                       \
      s##i##1 += LOAD_MASKED(mask, to + LANES);                  \
    }                                                            \
    STORE(to, s##i##0);                                          \
    STORE_LAST(to + LANES, s##i##1)                              \
  }

#endif
