/* cpu/linalg.h -- HLO cholesky and triangular-solve on OpenBLAS: f32, f64, c64, c128. */
#ifndef WEFT_CPU_LINALG_H
#define WEFT_CPU_LINALG_H

#include "base/status.h"
#include "hlo/hlo.h"
#include "runtime/pool.h"

typedef struct cpu_cholesky {
  weft_dtype type;
  int64_t n, matrices;
  bool lower;
} cpu_cholesky;

/* Errors: UNIMPLEMENTED for other element types. */
WEFT_NODISCARD weft_status *cpu_cholesky_init(cpu_cholesky *c, const hlo_instr *instr);
/* The other triangle of `out` is zero. A matrix without a factor gives NaN. `out` may be `in`. */
WEFT_NODISCARD weft_status *cpu_cholesky_run(const cpu_cholesky *c, rt_pool *pool, const void *in, void *out);

typedef struct cpu_triangular_solve {
  weft_dtype type;
  int64_t rows, cols, n, matrices;
  int64_t strip, strips;   /* right-hand sides of one task, and tasks of one matrix */
  bool left, lower, unit;
  hlo_transpose transpose;
} cpu_triangular_solve;

WEFT_NODISCARD weft_status *cpu_triangular_solve_init(cpu_triangular_solve *t, const hlo_instr *instr);
/* Solves op(a) x = b or x op(a) = b. `x` may be `b`. */
WEFT_NODISCARD weft_status *cpu_triangular_solve_run(const cpu_triangular_solve *t, rt_pool *pool, const void *a,
                                                     const void *b, void *x);

#endif
