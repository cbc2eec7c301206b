/* tests/gpu/emulator/cublas.c -- an emulated cuBLAS: scaling, triangular systems and factors by OpenBLAS, on the
 * thread of their stream.  It refuses leading dimensions that are too small. */
#include <config.h>

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/abi/cublas.h"
#include "library.h"

#define WB3_FN(type, name, args) API type name args;
WB3_ENTRIES(WB3_FN)
#undef WB3_FN

struct wb3_context { struct wcu_stream_st *stream; };

#define ENTER() ENTER_CALL(wbl_status)

EMU_CREATE_HANDLE(wbl_status, cublasCreate_v2, wb3_handle, WBL_STATUS_NOT_INITIALIZED, WBL_STATUS_ALLOC_FAILED)
EMU_DESTROY(wbl_status, cublasDestroy_v2, wb3_handle)
EMU_SET_STREAM(wbl_status, cublasSetStream_v2, wb3_handle, WBL_STATUS_NOT_INITIALIZED)

static wbl_status submit(wb3_handle handle, weft_emu_job *run, const void *job, size_t bytes)
{
  if (!handle) return WBL_STATUS_NOT_INITIALIZED;
  if (!weft_emu_ready()) return WBL_STATUS_EXECUTION_FAILED;
  return weft_emu_enqueue(handle->stream, run, job, bytes) ? WBL_STATUS_EXECUTION_FAILED : WBL_STATUS_SUCCESS;
}

/* ---- scaling ---- */

typedef struct scaling { bool is_double; int n, step; double alpha; uint64_t x; } scaling;

static int run_scaling(const void *args, int device, char *error, size_t size)
{
  const scaling *s = args;
  size_t count = (size_t)(s->n - 1) * (size_t)s->step + 1;
  void *x = weft_emu_reach(device, s->x, count * (s->is_double ? sizeof(double) : sizeof(float)), true, error, size);

  if (!x) return ILLEGAL_ADDRESS;
  if (s->is_double) cblas_dscal(s->n, s->alpha, x, s->step);
  else cblas_sscal(s->n, (float)s->alpha, x, s->step);
  return 0;
}

API wbl_status cublasSscal_v2(wb3_handle handle, int n, const float *alpha, float *x, int step)
{
  ENTER();
  if (n < 1 || step < 1 || !alpha || !x) return WBL_STATUS_INVALID_VALUE;
  return submit(handle, run_scaling, &(scaling){false, n, step, *alpha, (uintptr_t)x}, sizeof(scaling));
}
API wbl_status cublasDscal_v2(wb3_handle handle, int n, const double *alpha, double *x, int step)
{
  ENTER();
  if (n < 1 || step < 1 || !alpha || !x) return WBL_STATUS_INVALID_VALUE;
  return submit(handle, run_scaling, &(scaling){true, n, step, *alpha, (uintptr_t)x}, sizeof(scaling));
}

/* ---- triangular systems ---- */

typedef struct triangular {
  wct_type type;
  CBLAS_SIDE side;
  CBLAS_UPLO triangle;
  CBLAS_TRANSPOSE op;
  CBLAS_DIAG diagonal;
  int m, n, lda, ldb;
  double alpha[2];
  uint64_t a, b;
} triangular;

static int run_triangular(const void *args, int device, char *error, size_t size)
{
  const triangular *t = args;
  size_t bytes = t->type == WCT_R_32F ? 4 : t->type == WCT_C_64F ? 16 : 8;
  int order = t->side == CblasLeft ? t->m : t->n;
  const void *a =
    weft_emu_reach(device, t->a, ((size_t)t->lda * (size_t)(order - 1) + (size_t)order) * bytes, false, error, size);
  void *b =
    a ? weft_emu_reach(device, t->b, ((size_t)t->ldb * (size_t)(t->n - 1) + (size_t)t->m) * bytes, true, error, size)
      : NULL;
  const float alpha[2] = {(float)t->alpha[0], (float)t->alpha[1]};

  if (!b) return ILLEGAL_ADDRESS;
  switch (t->type) {
  case WCT_R_32F:
    cblas_strsm(CblasColMajor, t->side, t->triangle, t->op, t->diagonal, t->m, t->n, alpha[0], a, t->lda, b, t->ldb);
    break;
  case WCT_R_64F:
    cblas_dtrsm(CblasColMajor, t->side, t->triangle, t->op, t->diagonal, t->m, t->n, t->alpha[0], a, t->lda, b, t->ldb);
    break;
  case WCT_C_32F:
    cblas_ctrsm(CblasColMajor, t->side, t->triangle, t->op, t->diagonal, t->m, t->n, alpha, a, t->lda, b, t->ldb);
    break;
  default:
    cblas_ztrsm(CblasColMajor, t->side, t->triangle, t->op, t->diagonal, t->m, t->n, t->alpha, a, t->lda, b, t->ldb);
  }
  return 0;
}

#define TRSM(letter, real, is_complex, t)                                                                             \
  API wbl_status cublas##letter##trsm_v2(wb3_handle handle, wb3_side side, wb3_triangle triangle_, wbl_operation op,   \
                                         wb3_diagonal diagonal, int m, int n, const void *alpha, const void *a,       \
                                         int lda, void *b, int ldb)                                                   \
  {                                                                                                                   \
    ENTER();                                                                                                          \
    if (m < 1 || n < 1 || !alpha || !a || !b || lda < (side == WB3_SIDE_LEFT ? m : n) || ldb < m)                     \
      return WBL_STATUS_INVALID_VALUE;                                                                                \
    const real *one = alpha;                                                                                          \
    triangular job = {t,                                                                                              \
                      side == WB3_SIDE_LEFT ? CblasLeft : CblasRight,                                                 \
                      triangle_ == WB3_FILL_LOWER ? CblasLower : CblasUpper,                                          \
                      op == WBL_OP_N ? CblasNoTrans : op == WBL_OP_T ? CblasTrans : CblasConjTrans,                   \
                      diagonal == WB3_DIAG_UNIT ? CblasUnit : CblasNonUnit,                                           \
                      m, n, lda, ldb, {one[0], is_complex ? one[1] : 0}, (uintptr_t)a, (uintptr_t)b};                 \
    return submit(handle, run_triangular, &job, sizeof job);                                                          \
  }

/* The addresses are read when the work is done, as those in a device's memory are. */
typedef struct batch {
  triangular system; /* whose a and b are the arrays of addresses */
  int count;
} batch;

static int run_batch(const void *args, int device, char *error, size_t size)
{
  const batch *b = args;
  size_t bytes = (size_t)b->count * sizeof(uint64_t);
  const uint64_t *as = weft_emu_reach(device, b->system.a, bytes, false, error, size);
  const uint64_t *bs = as ? weft_emu_reach(device, b->system.b, bytes, false, error, size) : NULL;

  for (int i = 0; bs && i < b->count; i++) {
    triangular one = b->system;
    one.a = as[i], one.b = bs[i];
    int result = run_triangular(&one, device, error, size);
    if (result) return result;
  }
  return bs ? 0 : ILLEGAL_ADDRESS;
}

#define TRSM_BATCHED(letter, real, is_complex, t)                                                                     \
  API wbl_status cublas##letter##trsmBatched(wb3_handle handle, wb3_side side, wb3_triangle triangle_,                \
                                             wbl_operation op, wb3_diagonal diagonal, int m, int n,                   \
                                             const void *alpha, const void *a, int lda, void *b, int ldb, int count)  \
  {                                                                                                                   \
    ENTER();                                                                                                          \
    if (m < 1 || n < 1 || !alpha || !a || !b || lda < (side == WB3_SIDE_LEFT ? m : n) || ldb < m || count < 1)        \
      return WBL_STATUS_INVALID_VALUE;                                                                                \
    const real *one = alpha;                                                                                          \
    batch job = {{t,                                                                                                  \
                  side == WB3_SIDE_LEFT ? CblasLeft : CblasRight,                                                     \
                  triangle_ == WB3_FILL_LOWER ? CblasLower : CblasUpper,                                              \
                  op == WBL_OP_N ? CblasNoTrans : op == WBL_OP_T ? CblasTrans : CblasConjTrans,                       \
                  diagonal == WB3_DIAG_UNIT ? CblasUnit : CblasNonUnit,                                               \
                  m, n, lda, ldb, {one[0], is_complex ? one[1] : 0}, (uintptr_t)a, (uintptr_t)b}, count};             \
    return submit(handle, run_batch, &job, sizeof job);                                                               \
  }
TRSM_BATCHED(S, float, false, WCT_R_32F)
TRSM_BATCHED(D, double, false, WCT_R_64F)
TRSM_BATCHED(C, float, true, WCT_C_32F)
TRSM_BATCHED(Z, double, true, WCT_C_64F)

TRSM(S, float, false, WCT_R_32F)
TRSM(D, double, false, WCT_R_64F)
TRSM(C, float, true, WCT_C_32F)
TRSM(Z, double, true, WCT_C_64F)

/* ---- factors of a batch ---- */

#define FACTORS(X) X(s) X(d) X(c) X(z)
#define LAPACK(x) \
  void x##getrf_(const int *, const int *, void *, const int *, int *, int *); \
  void x##geqrf_(const int *, const int *, void *, const int *, void *, void *, const int *, int *);
FACTORS(LAPACK)

/* a and tau are arrays of addresses; pivots and info are arrays of numbers.  tau 0: LU factors. */
typedef struct factors {
  wct_type type;
  int m, n, lda, count;
  uint64_t a, tau, pivots, info;
} factors;

enum { ROWS_OF_WORK = 64 };

static size_t bytes_of(wct_type type) { return type == WCT_R_32F ? 4 : type == WCT_C_64F ? 16 : 8; }

/* Returns LAPACK's info. */
static int factor_one(const factors *f, void *a, int *pivots, void *tau, void *work)
{
  int info = 0, lwork = f->n * ROWS_OF_WORK;

  switch (f->type) {
  case WCT_R_32F:
    if (tau) sgeqrf_(&f->m, &f->n, a, &f->lda, tau, work, &lwork, &info);
    else sgetrf_(&f->m, &f->n, a, &f->lda, pivots, &info);
    break;
  case WCT_R_64F:
    if (tau) dgeqrf_(&f->m, &f->n, a, &f->lda, tau, work, &lwork, &info);
    else dgetrf_(&f->m, &f->n, a, &f->lda, pivots, &info);
    break;
  case WCT_C_32F:
    if (tau) cgeqrf_(&f->m, &f->n, a, &f->lda, tau, work, &lwork, &info);
    else cgetrf_(&f->m, &f->n, a, &f->lda, pivots, &info);
    break;
  default:
    if (tau) zgeqrf_(&f->m, &f->n, a, &f->lda, tau, work, &lwork, &info);
    else zgetrf_(&f->m, &f->n, a, &f->lda, pivots, &info);
  }
  return info;
}

static int run_factors(const void *args, int device, char *error, size_t size)
{
  const factors *f = args;
  size_t one = bytes_of(f->type), count = (size_t)f->count, least = (size_t)(f->m < f->n ? f->m : f->n);
  size_t matrix = ((size_t)f->lda * (size_t)(f->n - 1) + (size_t)f->m) * one;
  const uint64_t *as = weft_emu_reach(device, f->a, count * sizeof *as, false, error, size), *taus = NULL;
  int *pivots = NULL, *info = NULL, result = 0;

  if (!as) return ILLEGAL_ADDRESS;
  if (f->tau && !(taus = weft_emu_reach(device, f->tau, count * sizeof *taus, false, error, size)))
    return ILLEGAL_ADDRESS;
  if (!f->tau && (!(pivots = weft_emu_reach(device, f->pivots, count * least * sizeof *pivots, true, error, size)) ||
                  !(info = weft_emu_reach(device, f->info, count * sizeof *info, true, error, size))))
    return ILLEGAL_ADDRESS;
  void *work = calloc((size_t)f->n * ROWS_OF_WORK, one);
  if (!work) return OUT_OF_MEMORY;
  for (size_t i = 0; i < count && !result; i++) {
    void *a = weft_emu_reach(device, as[i], matrix, true, error, size);
    void *tau = a && taus ? weft_emu_reach(device, taus[i], least * one, true, error, size) : NULL;
    if (!a || (taus && !tau)) result = ILLEGAL_ADDRESS;
    else if (taus) factor_one(f, a, NULL, tau, work);
    else info[i] = factor_one(f, a, pivots + i * least, NULL, work);
  }
  free(work);
  return result;
}

#define GETRF_BATCHED(letter, t)                                                                                    \
  API wbl_status cublas##letter##getrfBatched(wb3_handle handle, int n, void *a, int lda, int *pivots, int *info,   \
                                              int count)                                                            \
  {                                                                                                                 \
    ENTER();                                                                                                        \
    if (n < 1 || !a || lda < n || !pivots || !info || count < 1) return WBL_STATUS_INVALID_VALUE;                   \
    factors job = {t, n, n, lda, count, (uintptr_t)a, 0, (uintptr_t)pivots, (uintptr_t)info};                       \
    return submit(handle, run_factors, &job, sizeof job);                                                           \
  }
#define GEQRF_BATCHED(letter, t)                                                                                    \
  API wbl_status cublas##letter##geqrfBatched(wb3_handle handle, int m, int n, void *a, int lda, void *tau,         \
                                              int *info, int count)                                                 \
  {                                                                                                                 \
    ENTER();                                                                                                        \
    if (m < 1 || n < 1 || !a || lda < m || !tau || !info || count < 1) return WBL_STATUS_INVALID_VALUE;             \
    *info = 0;                                                                                                      \
    factors job = {t, m, n, lda, count, (uintptr_t)a, (uintptr_t)tau, 0, 0};                                        \
    return submit(handle, run_factors, &job, sizeof job);                                                           \
  }
GETRF_BATCHED(S, WCT_R_32F)
GETRF_BATCHED(D, WCT_R_64F)
GETRF_BATCHED(C, WCT_C_32F)
GETRF_BATCHED(Z, WCT_C_64F)
GEQRF_BATCHED(S, WCT_R_32F)
GEQRF_BATCHED(D, WCT_R_64F)
GEQRF_BATCHED(C, WCT_C_32F)
GEQRF_BATCHED(Z, WCT_C_64F)
