/* tests/gpu/emulator/cusolver.c -- an emulated cuSOLVER: OpenBLAS's LAPACK on the thread of the stream.
 *
 * It refuses leading dimensions that are too small and workspaces that are smaller than its bufferSize functions say.
 * The workspace is overwritten before a routine begins, so that a workspace which the caller also uses for other things
 * gives wrong results. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/abi/cusolver.h"
#include "library.h"

#define WSV_FN(type, name, args) API type name args;
WSV_ENTRIES(WSV_FN)
#undef WSV_FN

enum { ELEMENTS = 64, DEVICE_BYTES = 1024, HOST_BYTES = 128 };

struct wsv_context { struct wcu_stream_st *stream; };
struct wsv_params_st { int unused; };
struct wsv_jacobi_st { int unused; };
struct wsv_eigen_jacobi_st { int unused; };

#define ENTER() ENTER_CALL(wsv_status)

EMU_CREATE_HANDLE(wsv_status, cusolverDnCreate, wsv_handle, WSV_STATUS_NOT_INITIALIZED, WSV_STATUS_ALLOC_FAILED)
EMU_DESTROY(wsv_status, cusolverDnDestroy, wsv_handle)
EMU_SET_STREAM(wsv_status, cusolverDnSetStream, wsv_handle, WSV_STATUS_NOT_INITIALIZED)
EMU_CREATE(wsv_status, cusolverDnCreateParams, wsv_params, WSV_STATUS_INVALID_VALUE, WSV_STATUS_ALLOC_FAILED)
EMU_DESTROY(wsv_status, cusolverDnDestroyParams, wsv_params)
EMU_CREATE(wsv_status, cusolverDnCreateGesvdjInfo, wsv_jacobi, WSV_STATUS_INVALID_VALUE, WSV_STATUS_ALLOC_FAILED)
EMU_DESTROY(wsv_status, cusolverDnDestroyGesvdjInfo, wsv_jacobi)

API wsv_status cusolverDnCreateSyevjInfo(wsv_eigen_jacobi *options)
{
  ENTER();
  *options = calloc(1, sizeof **options);
  return *options ? WSV_STATUS_SUCCESS : WSV_STATUS_ALLOC_FAILED;
}
API wsv_status cusolverDnDestroySyevjInfo(wsv_eigen_jacobi options)
{
  free(options);
  return WSV_STATUS_SUCCESS;
}

/* ---- LAPACK, in Fortran's calling convention; lengths of characters follow the arguments ---- */

typedef const int *n_t;
#define POTRF(x) void x##potrf_(const char *, n_t, void *, n_t, int *, size_t);
#define GETRF(x) void x##getrf_(n_t, n_t, void *, n_t, int *, int *);
#define GEQRF(x) void x##geqrf_(n_t, n_t, void *, n_t, void *, void *, n_t, int *);
#define ORGQR(x) void x##gqr_(n_t, n_t, n_t, void *, n_t, void *, void *, n_t, int *);
POTRF(s)
POTRF(d)
POTRF(c)
POTRF(z)
GETRF(s)
GETRF(d)
GETRF(c)
GETRF(z)
GEQRF(s)
GEQRF(d)
GEQRF(c)
GEQRF(z)
ORGQR(sor)
ORGQR(dor)
ORGQR(cun)
ORGQR(zun) void ssyev_(const char *, const char *, n_t, void *, n_t, void *, void *, n_t, int *, size_t, size_t);
void dsyev_(const char *, const char *, n_t, void *, n_t, void *, void *, n_t, int *, size_t, size_t);
void cheev_(const char *, const char *, n_t, void *, n_t, void *, void *, n_t, void *, int *, size_t, size_t);
void zheev_(const char *, const char *, n_t, void *, n_t, void *, void *, n_t, void *, int *, size_t, size_t);
#define REAL_SVD n_t, n_t, void *, n_t, void *, void *, n_t, void *, n_t, void *, n_t
void sgesvd_(const char *, const char *, REAL_SVD, int *, size_t, size_t);
void dgesvd_(const char *, const char *, REAL_SVD, int *, size_t, size_t);
void cgesvd_(const char *, const char *, REAL_SVD, void *, int *, size_t, size_t);
void zgesvd_(const char *, const char *, REAL_SVD, void *, int *, size_t, size_t);

#define MQR n_t, n_t, n_t, void *, n_t, void *, void *, n_t, void *, n_t, int *, size_t, size_t
void sormqr_(const char *, const char *, MQR);
void dormqr_(const char *, const char *, MQR);
void cunmqr_(const char *, const char *, MQR);
void zunmqr_(const char *, const char *, MQR);
#define TRD n_t, void *, n_t, void *, void *, void *, void *, n_t, int *, size_t
void ssytrd_(const char *, TRD);
void dsytrd_(const char *, TRD);
void chetrd_(const char *, TRD);
void zhetrd_(const char *, TRD);

/* ---- jobs ---- */

typedef enum routine { POTRF_JOB, GETRF_JOB, GEQRF_JOB, ORGQR_JOB, SYEVD_JOB, GESVDJ_JOB, GESVD_JOB, ORMQR_JOB, SYTRD_JOB } routine;

/* One routine: the arguments of its job.  Sizes are in elements. */
typedef struct job {
  routine what;
  wct_type type;
  int m, n, k, lda, ldu, ldv;
  int count;                                 /* of a batch; 0: one matrix */
  bool upper, economic, vectors;
  bool left;
  char op;                                   /* of ORMQR: 'N', 'T' or 'C' */
  uint64_t a, second, u, v, info, workspace; /* second: pivots, tau, w, s or d; of ORMQR, a is c, and u is a; of SYTRD,
                                              * u is e, and v is tau; of a batch of POTRF, a has the addresses */
  size_t workspace_bytes;
} job;

static size_t real_bytes(wct_type type) { return type == WCT_R_32F || type == WCT_C_32F ? 4 : 8; }
static bool is_complex(wct_type type) { return type == WCT_C_32F || type == WCT_C_64F; }
static size_t bytes_of(wct_type type) { return real_bytes(type) * (is_complex(type) ? 2 : 1); }
static int least(const job *j) { return j->m < j->n ? j->m : j->n; }

/* Calls the routine of the type: BY_TYPE(j, spotrf_, dpotrf_, cpotrf_, zpotrf_, (arguments)). */
#define BY_TYPE(j, s, d, c, z, args)             \
  switch ((j)->type) {                           \
  case WCT_R_32F: s args; break;                 \
  case WCT_R_64F: d args; break;                 \
  case WCT_C_32F: c args; break;                 \
  default: z args;                               \
  }

typedef struct memory { void *a, *second, *u, *v; int *info; } memory;

static void eigen(const job *j, const memory *p, void *work, int lwork)
{
  const char *uplo = j->upper ? "U" : "L";
  double *more = calloc((size_t)(3 * j->n + 1), sizeof *more);

  if (j->type == WCT_R_32F) ssyev_("V", uplo, &j->n, p->a, &j->lda, p->second, work, &lwork, p->info, 1, 1);
  if (j->type == WCT_R_64F) dsyev_("V", uplo, &j->n, p->a, &j->lda, p->second, work, &lwork, p->info, 1, 1);
  if (j->type == WCT_C_32F) cheev_("V", uplo, &j->n, p->a, &j->lda, p->second, work, &lwork, more, p->info, 1, 1);
  if (j->type == WCT_C_64F) zheev_("V", uplo, &j->n, p->a, &j->lda, p->second, work, &lwork, more, p->info, 1, 1);
  free(more);
}

/* v (n x columns) = the adjoint of vt (columns x n). */
static void adjoint(const job *j, const char *vt, int columns, char *v)
{
  size_t size = bytes_of(j->type), real = real_bytes(j->type);

  for (int col = 0; col < columns; col++)
    for (int row = 0; row < j->n; row++) {
      char *to = v + ((size_t)col * (size_t)j->ldv + (size_t)row) * size;
      memcpy(to, vt + ((size_t)row * (size_t)columns + (size_t)col) * size, size);
      if (is_complex(j->type)) to[2 * real - 1] ^= (char)0x80; /* the sign of the imaginary part */
    }
}

static void singular(const job *j, const memory *p, void *work, int lwork)
{
  const char *how = !j->vectors ? "N" : j->economic ? "S" : "A";
  int columns = j->economic ? least(j) : j->n;
  char *vt = calloc((size_t)columns * (size_t)j->n + 1, bytes_of(j->type));
  double *more = calloc((size_t)(5 * least(j) + 1), sizeof *more);

  if (j->type == WCT_R_32F)
    sgesvd_(how, how, &j->m, &j->n, p->a, &j->lda, p->second, p->u, &j->ldu, vt, &columns, work, &lwork, p->info, 1, 1);
  if (j->type == WCT_R_64F)
    dgesvd_(how, how, &j->m, &j->n, p->a, &j->lda, p->second, p->u, &j->ldu, vt, &columns, work, &lwork, p->info, 1, 1);
  if (j->type == WCT_C_32F)
    cgesvd_(how, how, &j->m, &j->n, p->a, &j->lda, p->second, p->u, &j->ldu, vt, &columns, work, &lwork, more, p->info,
            1, 1);
  if (j->type == WCT_C_64F)
    zgesvd_(how, how, &j->m, &j->n, p->a, &j->lda, p->second, p->u, &j->ldu, vt, &columns, work, &lwork, more, p->info,
            1, 1);
  if (j->vectors) adjoint(j, vt, columns, p->v);
  free(vt);
  free(more);
}

static void singular_by_qr(const job *j, const memory *p, void *work, int lwork)
{
  const char *how = !j->vectors ? "N" : j->economic ? "S" : "A";
  double *more = calloc((size_t)(5 * least(j) + 1), sizeof *more);

  if (j->type == WCT_R_32F)
    sgesvd_(how, how, &j->m, &j->n, p->a, &j->lda, p->second, p->u, &j->ldu, p->v, &j->ldv, work, &lwork, p->info, 1,
            1);
  if (j->type == WCT_R_64F)
    dgesvd_(how, how, &j->m, &j->n, p->a, &j->lda, p->second, p->u, &j->ldu, p->v, &j->ldv, work, &lwork, p->info, 1,
            1);
  if (j->type == WCT_C_32F)
    cgesvd_(how, how, &j->m, &j->n, p->a, &j->lda, p->second, p->u, &j->ldu, p->v, &j->ldv, work, &lwork, more, p->info,
            1, 1);
  if (j->type == WCT_C_64F)
    zgesvd_(how, how, &j->m, &j->n, p->a, &j->lda, p->second, p->u, &j->ldu, p->v, &j->ldv, work, &lwork, more, p->info,
            1, 1);
  free(more);
}

static void compute(const job *j, const memory *p, void *work, int lwork)
{
  switch (j->what) {
  case POTRF_JOB:
    BY_TYPE(j, spotrf_, dpotrf_, cpotrf_, zpotrf_, (j->upper ? "U" : "L", &j->n, p->a, &j->lda, p->info, 1));
    break;
  case GETRF_JOB:
    BY_TYPE(j, sgetrf_, dgetrf_, cgetrf_, zgetrf_, (&j->m, &j->n, p->a, &j->lda, p->second, p->info));
    break;
  case GEQRF_JOB:
    BY_TYPE(j, sgeqrf_, dgeqrf_, cgeqrf_, zgeqrf_, (&j->m, &j->n, p->a, &j->lda, p->second, work, &lwork, p->info));
    break;
  case ORGQR_JOB:
    BY_TYPE(j, sorgqr_, dorgqr_, cungqr_, zungqr_,
            (&j->m, &j->n, &j->k, p->a, &j->lda, p->second, work, &lwork, p->info));
    break;
  case SYEVD_JOB: eigen(j, p, work, lwork); break;
  case GESVDJ_JOB: singular(j, p, work, lwork); break;
  case GESVD_JOB: singular_by_qr(j, p, work, lwork); break;
  case ORMQR_JOB:
    BY_TYPE(j, sormqr_, dormqr_, cunmqr_, zunmqr_,
            (j->left ? "L" : "R", &j->op, &j->m, &j->n, &j->k, p->u, &j->ldu, p->second, p->a, &j->lda, work, &lwork,
             p->info, 1, 1));
    break;
  case SYTRD_JOB:
    BY_TYPE(j, ssytrd_, dsytrd_, chetrd_, zhetrd_,
            (j->upper ? "U" : "L", &j->n, p->a, &j->lda, p->second, p->u, p->v, work, &lwork, p->info, 1));
    break;
  }
}

/* Bytes of the second array. */
static size_t second_bytes(const job *j)
{
  switch (j->what) {
  case GETRF_JOB: return (size_t)least(j) * 4;
  case GEQRF_JOB: return (size_t)least(j) * bytes_of(j->type);
  case ORGQR_JOB: case ORMQR_JOB: return (size_t)j->k * bytes_of(j->type);
  case SYEVD_JOB: case SYTRD_JOB: return (size_t)j->n * real_bytes(j->type);
  case GESVDJ_JOB: case GESVD_JOB: return (size_t)least(j) * real_bytes(j->type);
  default: return 0;
  }
}

/* Bytes of the arrays u and v; 0: the routine does not have it. */
static size_t u_bytes(const job *j)
{
  switch (j->what) {
  case GESVDJ_JOB: return (size_t)j->ldu * (size_t)(j->economic ? least(j) : j->m) * bytes_of(j->type);
  case GESVD_JOB: return j->vectors ? (size_t)j->ldu * (size_t)(j->economic ? least(j) : j->m) * bytes_of(j->type) : 0;
  case ORMQR_JOB: return (size_t)j->ldu * (size_t)j->k * bytes_of(j->type);
  case SYTRD_JOB: return (size_t)(j->n - 1) * real_bytes(j->type);
  default: return 0;
  }
}
static size_t v_bytes(const job *j)
{
  switch (j->what) {
  case GESVDJ_JOB: return (size_t)j->ldv * (size_t)(j->economic ? least(j) : j->n) * bytes_of(j->type);
  case GESVD_JOB: return j->vectors ? (size_t)j->ldv * (size_t)j->n * bytes_of(j->type) : 0;
  case SYTRD_JOB: return (size_t)(j->n - 1) * bytes_of(j->type);
  default: return 0;
  }
}

static int run_one(const job *j, int device, char *error, size_t size)
{
  size_t one = bytes_of(j->type);
  int lwork = 8 * (j->m + j->n + 8) * 8;
  memory p = {.a = weft_emu_reach(device, j->a, ((size_t)j->lda * (size_t)(j->n - 1) + (size_t)j->m) * one, true, error, size),
              .info = weft_emu_reach(device, j->info, 4, true, error, size)};
  void *workspace = j->workspace ? weft_emu_reach(device, j->workspace, j->workspace_bytes, true, error, size) : NULL;

  if (!p.a || !p.info || (j->workspace && !workspace)) return ILLEGAL_ADDRESS;
  if (second_bytes(j) && !(p.second = weft_emu_reach(device, j->second, second_bytes(j),
                                                     j->what != ORGQR_JOB && j->what != ORMQR_JOB, error, size)))
    return ILLEGAL_ADDRESS;
  if (u_bytes(j) && !(p.u = weft_emu_reach(device, j->u, u_bytes(j), j->what != ORMQR_JOB, error, size)))
    return ILLEGAL_ADDRESS;
  if (v_bytes(j) && !(p.v = weft_emu_reach(device, j->v, v_bytes(j), true, error, size))) return ILLEGAL_ADDRESS;
  if (workspace) memset(workspace, 0xff, j->workspace_bytes);
  void *work = calloc((size_t)lwork, one);
  if (!work) {
    snprintf(error, size, "a routine of cuSOLVER: no memory");
    return OUT_OF_MEMORY;
  }
  compute(j, &p, work, lwork);
  free(work);
  return 0;
}

/* The matrices of a batch lie one after the other, or where the array of addresses says. */
static int run(const void *args, int device, char *error, size_t size)
{
  const job *j = args;
  const uint64_t *addresses = NULL;
  int result = 0;

  if (j->count == 0) return run_one(j, device, error, size);
  if (j->what == POTRF_JOB) {
    addresses = weft_emu_reach(device, j->a, (size_t)j->count * sizeof *addresses, false, error, size);
    if (!addresses) return ILLEGAL_ADDRESS;
  }
  for (int i = 0; i < j->count && !result; i++) {
    uint64_t n = (uint64_t)i;
    job one = *j;
    one.a = addresses ? addresses[i] : j->a + n * (uint64_t)j->lda * (uint64_t)j->n * bytes_of(j->type);
    one.second += n * second_bytes(j);
    one.u += n * u_bytes(j);
    one.v += n * v_bytes(j);
    one.info += n * 4;
    result = run_one(&one, device, error, size);
  }
  return result;
}

static wsv_status submit(wsv_handle handle, const job *j)
{
  if (!handle || !weft_emu_ready()) return WSV_STATUS_NOT_INITIALIZED;
  if (j->m < 1 || j->n < 1 || j->lda < j->m || !j->a || !j->info) return WSV_STATUS_INVALID_VALUE;
  if (j->what == POTRF_JOB && j->count) /* has no workspace */
    return weft_emu_enqueue(handle->stream, run, j, sizeof *j) ? WSV_STATUS_EXECUTION_FAILED : WSV_STATUS_SUCCESS;
  if (!j->workspace || j->workspace_bytes < ELEMENTS * bytes_of(j->type)) return WSV_STATUS_INVALID_WORKSPACE;
  return weft_emu_enqueue(handle->stream, run, j, sizeof *j) ? WSV_STATUS_EXECUTION_FAILED : WSV_STATUS_SUCCESS;
}

/* ---- generic calls ---- */

static wsv_status sizes(int64_t rows, int64_t lda, size_t *device_bytes, size_t *host_bytes)
{
  if (rows < 1 || lda < rows) return WSV_STATUS_INVALID_VALUE;
  *device_bytes = DEVICE_BYTES, *host_bytes = HOST_BYTES;
  return WSV_STATUS_SUCCESS;
}

/* What generic calls check beside `submit`. */
static bool has_room(wct_type type, wct_type compute, size_t device_bytes, const void *host, size_t host_bytes)
{
  return type == compute && device_bytes >= DEVICE_BYTES && host && host_bytes >= HOST_BYTES;
}

API wsv_status cusolverDnXpotrf_bufferSize(wsv_handle handle, wsv_params p, wsv_triangle triangle, int64_t n,
                                           wct_type type, const void *a, int64_t lda, wct_type compute,
                                           size_t *device_bytes, size_t *host_bytes)
{
  (void)handle, (void)p, (void)triangle, (void)type, (void)a, (void)compute;
  ENTER();
  return sizes(n, lda, device_bytes, host_bytes);
}
API wsv_status cusolverDnXpotrf(wsv_handle handle, wsv_params p, wsv_triangle triangle, int64_t n, wct_type type,
                                void *a, int64_t lda, wct_type compute, void *device, size_t device_bytes, void *host,
                                size_t host_bytes, int *info)
{
  ENTER();
  if (!p) return WSV_STATUS_INVALID_VALUE;
  if (!has_room(type, compute, device_bytes, host, host_bytes)) return WSV_STATUS_INVALID_WORKSPACE;
  return submit(handle, &(job){.what = POTRF_JOB,
                               .type = type,
                               .m = (int)n,
                               .n = (int)n,
                               .lda = (int)lda,
                               .upper = triangle == WSV_UPPER,
                               .a = (uintptr_t)a,
                               .info = (uintptr_t)info,
                               .workspace = (uintptr_t)device,
                               .workspace_bytes = DEVICE_BYTES});
}

API wsv_status cusolverDnXgeqrf_bufferSize(wsv_handle handle, wsv_params p, int64_t m, int64_t n, wct_type type,
                                           const void *a, int64_t lda, wct_type tau_type, const void *tau,
                                           wct_type compute, size_t *device_bytes, size_t *host_bytes)
{
  (void)handle, (void)p, (void)n, (void)type, (void)a, (void)tau_type, (void)tau, (void)compute;
  ENTER();
  return sizes(m, lda, device_bytes, host_bytes);
}
API wsv_status cusolverDnXgeqrf(wsv_handle handle, wsv_params p, int64_t m, int64_t n, wct_type type, void *a,
                                int64_t lda, wct_type tau_type, void *tau, wct_type compute, void *device,
                                size_t device_bytes, void *host, size_t host_bytes, int *info)
{
  ENTER();
  if (!p) return WSV_STATUS_INVALID_VALUE;
  if (!has_room(type, compute, device_bytes, host, host_bytes) || tau_type != type) return WSV_STATUS_INVALID_WORKSPACE;
  return submit(handle, &(job){.what = GEQRF_JOB,
                               .type = type,
                               .m = (int)m,
                               .n = (int)n,
                               .lda = (int)lda,
                               .a = (uintptr_t)a,
                               .second = (uintptr_t)tau,
                               .info = (uintptr_t)info,
                               .workspace = (uintptr_t)device,
                               .workspace_bytes = DEVICE_BYTES});
}

API wsv_status cusolverDnXsyevd_bufferSize(wsv_handle handle, wsv_params p, wsv_vectors vectors, wsv_triangle triangle,
                                           int64_t n, wct_type type, const void *a, int64_t lda, wct_type w_type,
                                           const void *w, wct_type compute, size_t *device_bytes, size_t *host_bytes)
{
  (void)handle, (void)p, (void)vectors, (void)triangle, (void)type, (void)a, (void)w_type, (void)w, (void)compute;
  ENTER();
  return sizes(n, lda, device_bytes, host_bytes);
}
API wsv_status cusolverDnXsyevd(wsv_handle handle, wsv_params p, wsv_vectors vectors, wsv_triangle triangle, int64_t n,
                                wct_type type, void *a, int64_t lda, wct_type w_type, void *w, wct_type compute,
                                void *device, size_t device_bytes, void *host, size_t host_bytes, int *info)
{
  ENTER();
  if (!p) return WSV_STATUS_INVALID_VALUE;
  if (!has_room(type, compute, device_bytes, host, host_bytes) || bytes_of(w_type) != real_bytes(type) ||
      vectors != WSV_VECTOR)
    return WSV_STATUS_INVALID_WORKSPACE;
  return submit(handle, &(job){.what = SYEVD_JOB,
                               .type = type,
                               .m = (int)n,
                               .n = (int)n,
                               .lda = (int)lda,
                               .upper = triangle == WSV_UPPER,
                               .a = (uintptr_t)a,
                               .second = (uintptr_t)w,
                               .info = (uintptr_t)info,
                               .workspace = (uintptr_t)device,
                               .workspace_bytes = DEVICE_BYTES});
}

API wsv_status cusolverDnXgesvdp_bufferSize(wsv_handle handle, wsv_params p, wsv_vectors vectors, int econ, int64_t m,
                                            int64_t n, wct_type type, const void *a, int64_t lda, wct_type s_type,
                                            const void *s, wct_type u_type, const void *u, int64_t ldu, wct_type v_type,
                                            const void *v, int64_t ldv, wct_type compute, size_t *device_bytes,
                                            size_t *host_bytes)
{
  (void)handle, (void)p, (void)vectors, (void)econ, (void)type, (void)a, (void)s_type, (void)s, (void)u_type, (void)u;
  (void)v_type, (void)v, (void)compute;
  ENTER();
  return ldu < m || ldv < n ? WSV_STATUS_INVALID_VALUE : sizes(m, lda, device_bytes, host_bytes);
}
API wsv_status cusolverDnXgesvdp(wsv_handle handle, wsv_params p, wsv_vectors vectors, int econ, int64_t m, int64_t n,
                                 wct_type type, void *a, int64_t lda, wct_type s_type, void *s, wct_type u_type,
                                 void *u, int64_t ldu, wct_type v_type, void *v, int64_t ldv, wct_type compute,
                                 void *device, size_t device_bytes, void *host, size_t host_bytes, int *info,
                                 double *host_error)
{
  ENTER();
  if (!p || ldu < m || ldv < n || !host_error || u_type != type || v_type != type ||
      bytes_of(s_type) != real_bytes(type))
    return WSV_STATUS_INVALID_VALUE;
  if (!has_room(type, compute, device_bytes, host, host_bytes)) return WSV_STATUS_INVALID_WORKSPACE;
  *host_error = 0;
  return submit(handle, &(job){.what = GESVDJ_JOB,
                               .type = type,
                               .m = (int)m,
                               .n = (int)n,
                               .lda = (int)lda,
                               .ldu = (int)ldu,
                               .ldv = (int)ldv,
                               .economic = econ,
                               .vectors = vectors == WSV_VECTOR,
                               .a = (uintptr_t)a,
                               .second = (uintptr_t)s,
                               .u = (uintptr_t)u,
                               .v = (uintptr_t)v,
                               .info = (uintptr_t)info,
                               .workspace = (uintptr_t)device,
                               .workspace_bytes = DEVICE_BYTES});
}

enum { MOST_JACOBI = 32 };

/* ---- calls by type ---- */

static wsv_status elements(wsv_handle handle, int m, int n, int lda, int *lwork)
{
  if (!handle || m < 1 || n < 1 || lda < m) return WSV_STATUS_INVALID_VALUE;
  *lwork = ELEMENTS;
  return WSV_STATUS_SUCCESS;
}

#define CALLS(X, t, gqr, mqr, trd, evj)                                                                                                      \
  API wsv_status cusolverDn##X##getrf_bufferSize(wsv_handle handle, int m, int n, void *a, int lda, int *lwork)                \
  {                                                                                                                           \
    (void)a;                                                                                                                  \
    ENTER();                                                                                                                  \
    return elements(handle, m, n, lda, lwork);                                                                                \
  }                                                                                                                           \
  API wsv_status cusolverDn##X##getrf(wsv_handle handle, int m, int n, void *a, int lda, void *work, int *pivots, int *info)   \
  {                                                                                                                           \
    ENTER();                                                                                                                  \
    return submit(handle, &(job){.what = GETRF_JOB, .type = t, .m = m, .n = n, .lda = lda, .a = (uintptr_t)a,                 \
                                 .second = (uintptr_t)pivots, .info = (uintptr_t)info, .workspace = (uintptr_t)work,          \
                                 .workspace_bytes = ELEMENTS * bytes_of(t)});                                                 \
  }                                                                                                                           \
  API wsv_status cusolverDn##X##gqr##_bufferSize(wsv_handle handle, int m, int n, int k, const void *a, int lda,               \
                                                 const void *tau, int *lwork)                                                 \
  {                                                                                                                           \
    (void)a, (void)tau;                                                                                                       \
    ENTER();                                                                                                                  \
    return m < n || n < k ? WSV_STATUS_INVALID_VALUE : elements(handle, m, n, lda, lwork);                                    \
  }                                                                                                                           \
  API wsv_status cusolverDn##X##gqr(wsv_handle handle, int m, int n, int k, void *a, int lda, const void *tau, void *work,     \
                                    int lwork, int *info)                                                                     \
  {                                                                                                                           \
    ENTER();                                                                                                                  \
    return submit(handle, &(job){.what = ORGQR_JOB, .type = t, .m = m, .n = n, .k = k, .lda = lda, .a = (uintptr_t)a,          \
                                 .second = (uintptr_t)tau, .info = (uintptr_t)info, .workspace = (uintptr_t)work,             \
                                 .workspace_bytes = (size_t)lwork * bytes_of(t)});                                            \
  }                                                                                                                           \
  API wsv_status cusolverDn##X##gesvdj_bufferSize(wsv_handle handle, wsv_vectors vectors, int econ, int m, int n, const void *a, \
                                                  int lda, const void *s, const void *u, int ldu, const void *v, int ldv,     \
                                                  int *lwork, wsv_jacobi options)                                             \
  {                                                                                                                           \
    (void)vectors, (void)econ, (void)a, (void)s, (void)u, (void)v;                                                            \
    ENTER();                                                                                                                  \
    return ldu < m || ldv < n || !options ? WSV_STATUS_INVALID_VALUE : elements(handle, m, n, lda, lwork);                    \
  }                                                                                                                           \
  API wsv_status cusolverDn##X##gesvdj(wsv_handle handle, wsv_vectors vectors, int econ, int m, int n, void *a, int lda,       \
                                       void *s, void *u, int ldu, void *v, int ldv, void *work, int lwork, int *info,         \
                                       wsv_jacobi options)                                                                    \
  {                                                                                                                           \
    ENTER();                                                                                                                  \
    if (ldu < m || ldv < n || !options) return WSV_STATUS_INVALID_VALUE;                                                      \
    return submit(handle, &(job){.what = GESVDJ_JOB, .type = t, .m = m, .n = n, .lda = lda, .ldu = ldu, .ldv = ldv,            \
                                 .economic = econ, .vectors = vectors == WSV_VECTOR, .a = (uintptr_t)a,                       \
                                 .second = (uintptr_t)s, .u = (uintptr_t)u, .v = (uintptr_t)v, .info = (uintptr_t)info,       \
                                 .workspace = (uintptr_t)work, .workspace_bytes = (size_t)lwork * bytes_of(t)});              \
  }                                                                                                                        \
  API wsv_status cusolverDn##X##potrfBatched(wsv_handle handle, wsv_triangle triangle, int n, void **a, int lda, int *info, int count) \
  {                                                                                                                            \
    ENTER();                                                                                                                   \
    if (count < 1) return WSV_STATUS_INVALID_VALUE;                                                                            \
    return submit(handle, &(job){.what = POTRF_JOB, .type = t, .m = n, .n = n, .lda = lda, .count = count,                     \
                                 .upper = triangle == WSV_UPPER, .a = (uintptr_t)a, .info = (uintptr_t)info});                 \
  }                                                                                                                            \
  API wsv_status cusolverDn##X##gesvd_bufferSize(wsv_handle handle, int m, int n, int *lwork)                                  \
  {                                                                                                                            \
    ENTER();                                                                                                                   \
    return m < n ? WSV_STATUS_INVALID_VALUE : elements(handle, m, n, m, lwork);                                                \
  }                                                                                                                            \
  API wsv_status cusolverDn##X##gesvd(wsv_handle handle, signed char u_job, signed char vt_job, int m, int n, void *a, int lda, \
                                      void *s, void *u, int ldu, void *vt, int ldvt, void *work, int lwork,                    \
                                      void *real_work, int *info)                                                              \
  {                                                                                                                            \
    (void)real_work;                                                                                                           \
    ENTER();                                                                                                                   \
    if (m < n || ldu < m || ldvt < (vt_job == 'S' ? n : 1) || u_job != vt_job || !strchr("ASN", u_job)) return WSV_STATUS_INVALID_VALUE; \
    return submit(handle, &(job){.what = GESVD_JOB, .type = t, .m = m, .n = n, .lda = lda, .ldu = ldu, .ldv = ldvt,            \
                                 .economic = u_job == 'S', .vectors = u_job != 'N', .a = (uintptr_t)a, .second = (uintptr_t)s, \
                                 .u = (uintptr_t)u, .v = (uintptr_t)vt, .info = (uintptr_t)info,                               \
                                 .workspace = (uintptr_t)work, .workspace_bytes = (size_t)lwork * bytes_of(t)});               \
  }                                                                                                                            \
  API wsv_status cusolverDn##X##mqr##_bufferSize(wsv_handle handle, wb3_side side, wbl_operation op, int m, int n, int k,      \
                                                 const void *a, int lda, const void *tau, const void *c, int ldc, int *lwork)  \
  {                                                                                                                            \
    (void)op, (void)a, (void)tau, (void)c;                                                                                     \
    ENTER();                                                                                                                   \
    if (lda < (side == WB3_SIDE_LEFT ? m : n) || k > (side == WB3_SIDE_LEFT ? m : n)) return WSV_STATUS_INVALID_VALUE;         \
    return elements(handle, m, n, ldc, lwork);                                                                                 \
  }                                                                                                                            \
  API wsv_status cusolverDn##X##mqr(wsv_handle handle, wb3_side side, wbl_operation op, int m, int n, int k, const void *a,    \
                                    int lda, const void *tau, void *c, int ldc, void *work, int lwork, int *info)              \
  {                                                                                                                            \
    ENTER();                                                                                                                   \
    if (lda < (side == WB3_SIDE_LEFT ? m : n) || (is_complex(t) && op == WBL_OP_T) || (!is_complex(t) && op == WBL_OP_C))      \
      return WSV_STATUS_INVALID_VALUE;                                                                                         \
    return submit(handle, &(job){.what = ORMQR_JOB, .type = t, .m = m, .n = n, .k = k, .lda = ldc, .ldu = lda,                 \
                                 .left = side == WB3_SIDE_LEFT, .op = op == WBL_OP_N ? 'N' : op == WBL_OP_T ? 'T' : 'C',       \
                                 .a = (uintptr_t)c, .second = (uintptr_t)tau, .u = (uintptr_t)a, .info = (uintptr_t)info,      \
                                 .workspace = (uintptr_t)work, .workspace_bytes = (size_t)lwork * bytes_of(t)});               \
  }                                                                                                                            \
  API wsv_status cusolverDn##X##trd##_bufferSize(wsv_handle handle, wsv_triangle triangle, int n, const void *a, int lda,      \
                                                 const void *d, const void *e, const void *tau, int *lwork)                    \
  {                                                                                                                            \
    (void)triangle, (void)a, (void)d, (void)e, (void)tau;                                                                      \
    ENTER();                                                                                                                   \
    return elements(handle, n, n, lda, lwork);                                                                                 \
  }                                                                                                                            \
  API wsv_status cusolverDn##X##trd(wsv_handle handle, wsv_triangle triangle, int n, void *a, int lda, void *d, void *e,       \
                                    void *tau, void *work, int lwork, int *info)                                               \
  {                                                                                                                            \
    ENTER();                                                                                                                   \
    return submit(handle, &(job){.what = SYTRD_JOB, .type = t, .m = n, .n = n, .lda = lda, .upper = triangle == WSV_UPPER,     \
                                 .a = (uintptr_t)a, .second = (uintptr_t)d, .u = (uintptr_t)e, .v = (uintptr_t)tau,            \
                                 .info = (uintptr_t)info, .workspace = (uintptr_t)work,                                        \
                                 .workspace_bytes = (size_t)lwork * bytes_of(t)});                                             \
  }                                                                                                                            \
  API wsv_status cusolverDn##X##evj##Batched_bufferSize(wsv_handle handle, wsv_vectors vectors, wsv_triangle triangle, int n,  \
                                                        const void *a, int lda, const void *w, int *lwork,                     \
                                                        wsv_eigen_jacobi options, int count)                                   \
  {                                                                                                                            \
    (void)vectors, (void)triangle, (void)a, (void)w;                                                                           \
    ENTER();                                                                                                                   \
    return !options || count < 1 ? WSV_STATUS_INVALID_VALUE : elements(handle, n, n, lda, lwork);                              \
  }                                                                                                                            \
  API wsv_status cusolverDn##X##evj##Batched(wsv_handle handle, wsv_vectors vectors, wsv_triangle triangle, int n, void *a,    \
                                             int lda, void *w, void *work, int lwork, int *info, wsv_eigen_jacobi options,     \
                                             int count)                                                                        \
  {                                                                                                                            \
    ENTER();                                                                                                                   \
    if (!options || count < 1 || vectors != WSV_VECTOR) return WSV_STATUS_INVALID_VALUE;                                       \
    return submit(handle, &(job){.what = SYEVD_JOB, .type = t, .m = n, .n = n, .lda = lda, .count = count,                     \
                                 .upper = triangle == WSV_UPPER, .a = (uintptr_t)a, .second = (uintptr_t)w,                    \
                                 .info = (uintptr_t)info, .workspace = (uintptr_t)work,                                        \
                                 .workspace_bytes = (size_t)lwork * bytes_of(t)});                                             \
  }                                                                                                                            \
  API wsv_status cusolverDn##X##gesvdjBatched_bufferSize(wsv_handle handle, wsv_vectors vectors, int m, int n, const void *a,  \
                                                         int lda, const void *s, const void *u, int ldu, const void *v,        \
                                                         int ldv, int *lwork, wsv_jacobi options, int count)                   \
  {                                                                                                                            \
    (void)vectors, (void)a, (void)s, (void)u, (void)v;                                                                         \
    ENTER();                                                                                                                   \
    if (ldu < m || ldv < n || !options || count < 1 || m > MOST_JACOBI || n > MOST_JACOBI) return WSV_STATUS_INVALID_VALUE;    \
    return elements(handle, m, n, lda, lwork);                                                                                 \
  }                                                                                                                            \
  API wsv_status cusolverDn##X##gesvdjBatched(wsv_handle handle, wsv_vectors vectors, int m, int n, void *a, int lda, void *s, \
                                              void *u, int ldu, void *v, int ldv, void *work, int lwork, int *info,            \
                                              wsv_jacobi options, int count)                                                   \
  {                                                                                                                            \
    ENTER();                                                                                                                   \
    if (ldu < m || ldv < n || !options || count < 1 || m > MOST_JACOBI || n > MOST_JACOBI) return WSV_STATUS_INVALID_VALUE;    \
    return submit(handle, &(job){.what = GESVDJ_JOB, .type = t, .m = m, .n = n, .lda = lda, .ldu = ldu, .ldv = ldv,            \
                                 .count = count, .vectors = vectors == WSV_VECTOR, .a = (uintptr_t)a, .second = (uintptr_t)s,  \
                                 .u = (uintptr_t)u, .v = (uintptr_t)v, .info = (uintptr_t)info,                                \
                                 .workspace = (uintptr_t)work, .workspace_bytes = (size_t)lwork * bytes_of(t)});               \
  }
CALLS(S, WCT_R_32F, orgqr, ormqr, sytrd, syevj)
CALLS(D, WCT_R_64F, orgqr, ormqr, sytrd, syevj)
CALLS(C, WCT_C_32F, ungqr, unmqr, hetrd, heevj)
CALLS(Z, WCT_C_64F, ungqr, unmqr, hetrd, heevj)
