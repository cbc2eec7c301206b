/* cpu/linalg.c -- Cholesky factors and triangular systems (linalg.h). Matrices are spread over the pool, and so are the
 * right-hand sides of one large system. */
#include <config.h>

#include "cpu/linalg.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/blas.h"
#include "cpu/blocked.h"
#include "cpu/cholesky.h"
#include "cpu/gemm.h"
#include "cpu/lapack.h"
#include "cpu/small_solve.h"

enum { LEAST_STRIP = 64 }; /* right-hand sides that one task solves, at least: for fewer OpenBLAS is slower */
#define STRIP_WORK 4e6     /* multiplications and additions of one task, at least: some 60 us */

static bool is_blas_type(weft_dtype t) { return t == WEFT_F32 || t == WEFT_F64 || t == WEFT_C64 || t == WEFT_C128; }

/* ---- cholesky ---------------------------------------------------------------------------------------------------- */

weft_status *cpu_cholesky_init(cpu_cholesky *c, const hlo_instr *instr)
{
  const hlo_shape *shape = instr->shape;
  int64_t n = shape->dims[shape->rank - 1];

  cpu_blas_init();
  if (!is_blas_type(shape->type) || n > INT_MAX)
    return WEFT_ERR(UNIMPLEMENTED, "cholesky of %s", weft_dtype_name(shape->type));
  *c = (cpu_cholesky){shape->type, n, n ? hlo_shape_elems(shape) / (n * n) : 0, instr->u.lower};
  return NULL;
}

typedef struct cholesky_job {
  const cpu_cholesky *c;
  const char *in;
  char *out;
} cholesky_job;

/* A in row-major order is A^T in column-major order. If the upper factor U of A^T satisfies A^T = U^H U, then U^T,
 * which is the same memory read by rows, is the lower factor of A. The same holds with upper and lower exchanged. */
static void cholesky_task(void *ctx, int64_t matrix)
{
  const cholesky_job *job = ctx;
  int64_t n = job->c->n, bytes = (int64_t)weft_dtype_bytes(job->c->type), size = n * n * bytes;
  const char *in = job->in + matrix * size;
  char *out = job->out + matrix * size;
  char uplo = job->c->lower ? 'U' : 'L';
  lapack_int order = (lapack_int)n, info = 0;

  for (int64_t i = 0; i < n; i++) {
    int64_t from = job->c->lower ? 0 : i, count = job->c->lower ? i + 1 : n - i;
    memmove(out + (i * n + from) * bytes, in + (i * n + from) * bytes, (size_t)(count * bytes));
    memset(out + (i * n + (job->c->lower ? i + 1 : 0)) * bytes, 0, (size_t)((n - count) * bytes));
  }
  if (cpu_cholesky_small(job->c->type, n, job->c->lower, out, out)) return;
  switch (job->c->type) {
  case WEFT_F32: spotrf_(&uplo, &order, out, &order, &info, 1); break;
  case WEFT_F64: dpotrf_(&uplo, &order, out, &order, &info, 1); break;
  case WEFT_C64: cpotrf_(&uplo, &order, out, &order, &info, 1); break;
  default: zpotrf_(&uplo, &order, out, &order, &info, 1);
  }
  if (info == 0 && cpu_nan_pivot(job->c->type, n, out) == 0) return;
  bool is_double = weft_dtype_component(job->c->type) == WEFT_F64;
  for (int64_t i = 0; i < size / (is_double ? 8 : 4); i++) {
    if (is_double) ((double *)out)[i] = NAN;
    else ((float *)out)[i] = NAN;
  }
}

weft_status *cpu_cholesky_run(const cpu_cholesky *c, rt_pool *pool, const void *in, void *out)
{
  cholesky_job job = {c, in, out};

  rt_parallel_for(pool, c->matrices, cholesky_task, &job);
  return NULL;
}

/* ---- triangular systems ------------------------------------------------------------------------------------------ */

weft_status *cpu_triangular_solve_init(cpu_triangular_solve *t, const hlo_instr *instr)
{
  const hlo_shape *b = instr->shape;
  int64_t rows = b->dims[b->rank - 2], cols = b->dims[b->rank - 1];
  bool left = instr->u.triangular.left_side;
  int64_t n = left ? rows : cols, sides = left ? cols : rows;
  int64_t strip = WEFT_MAX(LEAST_STRIP, (int64_t)(STRIP_WORK / WEFT_MAX(1, (double)n * (double)n)));

  cpu_blas_init();
  if (!is_blas_type(b->type) || WEFT_MAX(rows, cols) > INT_MAX)
    return WEFT_ERR(UNIMPLEMENTED, "triangular-solve of %s", weft_dtype_name(b->type));
  *t = (cpu_triangular_solve){
    .type = b->type,
    .rows = rows,
    .cols = cols,
    .n = n,
    .left = left,
    .matrices = rows && cols ? hlo_shape_elems(b) / (rows * cols) : 0,
    .strip = cpu_even_part(sides, strip),
    .strips = (sides + strip - 1) / strip,
    .lower = instr->u.triangular.lower,
    .unit = instr->u.triangular.unit_diagonal,
    .transpose = instr->u.triangular.transpose_a,
  };
  return NULL;
}

typedef struct solve_job {
  const cpu_triangular_solve *t;
  const char *a;
  char *x;
} solve_job;

static void solve_task(void *ctx, int64_t task)
{
  const solve_job *job = ctx;
  const cpu_triangular_solve *t = job->t;
  int64_t bytes = (int64_t)weft_dtype_bytes(t->type), matrix = task / t->strips, first = task % t->strips * t->strip;
  const char *a = job->a + matrix * t->n * t->n * bytes;
  char *x = job->x + (matrix * t->rows * t->cols + (t->left ? first : first * t->cols)) * bytes;
  blasint rows = (blasint)(t->left ? t->rows : WEFT_MIN(t->strip, t->rows - first));
  blasint cols = (blasint)(t->left ? WEFT_MIN(t->strip, t->cols - first) : t->cols);
  CBLAS_SIDE side = t->left ? CblasLeft : CblasRight;
  CBLAS_UPLO uplo = t->lower ? CblasLower : CblasUpper;
  CBLAS_DIAG diag = t->unit ? CblasUnit : CblasNonUnit;
  CBLAS_TRANSPOSE trans = t->transpose == HLO_ADJOINT        ? CblasConjTrans
                          : t->transpose == HLO_DO_TRANSPOSE ? CblasTrans
                                                             : CblasNoTrans;
  blasint lda = (blasint)t->n, ldx = (blasint)t->cols;
  static const float one_c[2] = {1, 0};
  static const double one_z[2] = {1, 0};
  /* x op(a) = b is op(a)^T x^T = b^T */
  bool turned = (t->transpose != HLO_NO_TRANSPOSE) == t->left;
  cpu_system system = {
    .type = t->type, .n = t->n, .columns = t->left ? cols : rows,
    .a_row = turned ? 1 : t->n, .a_col = turned ? t->n : 1,
    .x_row = t->left ? t->cols : 1, .x_col = t->left ? 1 : t->cols,
    .lower = t->lower != turned, .unit = t->unit,
  };

  if (cpu_system_is_small(&system)) {
    cpu_small_systems_solve(&system, 1, a, x);
    return;
  }
  if (cpu_blocked_system_fits(&system) && cpu_blocked_system_solve(&system, a, x)) return;

  switch (t->type) {
  case WEFT_F32:
    cblas_strsm(CblasRowMajor, side, uplo, trans, diag, rows, cols, 1, (void *)a, lda, (void *)x, ldx);
    break;
  case WEFT_F64:
    cblas_dtrsm(CblasRowMajor, side, uplo, trans, diag, rows, cols, 1, (void *)a, lda, (void *)x, ldx);
    break;
  case WEFT_C64: cblas_ctrsm(CblasRowMajor, side, uplo, trans, diag, rows, cols, one_c, a, lda, x, ldx); break;
  default: cblas_ztrsm(CblasRowMajor, side, uplo, trans, diag, rows, cols, one_z, a, lda, x, ldx);
  }
}

weft_status *cpu_triangular_solve_run(const cpu_triangular_solve *t, rt_pool *pool, const void *a, const void *b,
                                      void *x)
{
  solve_job job = {t, a, x};

  if (t->matrices == 0) return NULL;
  if (x != b) memcpy(x, b, (size_t)(t->matrices * t->rows * t->cols) * weft_dtype_bytes(t->type));
  rt_parallel_for(pool, t->matrices * t->strips, solve_task, &job);
  return NULL;
}
