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

#define API __attribute__((visibility("default")))
#define WSV_FN(type, name, args) API type name args;
WSV_ENTRIES(WSV_FN)
#undef WSV_FN

enum { ILLEGAL_ADDRESS = 700, OUT_OF_MEMORY = 2, ELEMENTS = 64, DEVICE_BYTES = 1024, HOST_BYTES = 128 };

struct wsv_context { struct wcu_stream_st *stream; };
struct wsv_params_st { int unused; };
struct wsv_jacobi_st { int unused; };

#define ENTER() do { int fault_ = weft_emu_fault(__func__); if (fault_) return (wsv_status)fault_; } while (0)

API wsv_status cusolverDnCreate(wsv_handle *handle)
{
  ENTER();
  if (!handle || !weft_emu_ready()) return WSV_STATUS_NOT_INITIALIZED;
  *handle = calloc(1, sizeof **handle);
  return *handle ? WSV_STATUS_SUCCESS : WSV_STATUS_ALLOC_FAILED;
}
API wsv_status cusolverDnDestroy(wsv_handle handle)
{
  free(handle);
  return WSV_STATUS_SUCCESS;
}
API wsv_status cusolverDnSetStream(wsv_handle handle, struct wcu_stream_st *stream)
{
  ENTER();
  if (!handle) return WSV_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return WSV_STATUS_SUCCESS;
}
API wsv_status cusolverDnCreateParams(wsv_params *options)
{
  ENTER();
  *options = calloc(1, sizeof **options);
  return *options ? WSV_STATUS_SUCCESS : WSV_STATUS_ALLOC_FAILED;
}
API wsv_status cusolverDnDestroyParams(wsv_params options)
{
  free(options);
  return WSV_STATUS_SUCCESS;
}
API wsv_status cusolverDnCreateGesvdjInfo(wsv_jacobi *options)
{
  ENTER();
  *options = calloc(1, sizeof **options);
  return *options ? WSV_STATUS_SUCCESS : WSV_STATUS_ALLOC_FAILED;
}
API wsv_status cusolverDnDestroyGesvdjInfo(wsv_jacobi options)
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

/* ---- jobs ---- */

typedef enum routine { POTRF_JOB, GETRF_JOB, GEQRF_JOB, ORGQR_JOB, SYEVD_JOB, GESVDJ_JOB } routine;

/* One routine: the arguments of its job.  Sizes are in elements. */
typedef struct job {
  routine what;
  wct_type type;
  int m, n, k, lda, ldu, ldv;
  bool upper, economic, vectors;
  uint64_t a, second, u, v, info, workspace; /* second: pivots, tau, w or s */
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
  }
}

/* Bytes of the second array. */
static size_t second_bytes(const job *j)
{
  switch (j->what) {
  case GETRF_JOB: return (size_t)least(j) * 4;
  case GEQRF_JOB: return (size_t)least(j) * bytes_of(j->type);
  case ORGQR_JOB: return (size_t)j->k * bytes_of(j->type);
  case SYEVD_JOB: return (size_t)j->n * real_bytes(j->type);
  case GESVDJ_JOB: return (size_t)least(j) * real_bytes(j->type);
  default: return 0;
  }
}

static int run(const void *args, int device, char *error, size_t size)
{
  const job *j = args;
  size_t one = bytes_of(j->type);
  int lwork = 8 * (j->m + j->n + 8) * 8;
  memory p = {.a = weft_emu_reach(device, j->a, ((size_t)j->lda * (size_t)(j->n - 1) + (size_t)j->m) * one, true, error, size),
              .info = weft_emu_reach(device, j->info, 4, true, error, size)};
  void *workspace = weft_emu_reach(device, j->workspace, j->workspace_bytes, true, error, size);

  if (!p.a || !p.info || !workspace) return ILLEGAL_ADDRESS;
  if (second_bytes(j) &&
      !(p.second = weft_emu_reach(device, j->second, second_bytes(j), j->what != ORGQR_JOB, error, size)))
    return ILLEGAL_ADDRESS;
  if (j->what == GESVDJ_JOB) {
    size_t u = (size_t)(j->economic ? least(j) : j->m), v = (size_t)(j->economic ? least(j) : j->n);
    p.u = weft_emu_reach(device, j->u, (size_t)j->ldu * u * one, true, error, size);
    p.v = weft_emu_reach(device, j->v, (size_t)j->ldv * v * one, true, error, size);
    if (!p.u || !p.v) return ILLEGAL_ADDRESS;
  }
  memset(workspace, 0xff, j->workspace_bytes);
  void *work = calloc((size_t)lwork, one);
  if (!work) {
    snprintf(error, size, "a routine of cuSOLVER: no memory");
    return OUT_OF_MEMORY;
  }
  compute(j, &p, work, lwork);
  free(work);
  return 0;
}

static wsv_status submit(wsv_handle handle, const job *j)
{
  if (!handle || !weft_emu_ready()) return WSV_STATUS_NOT_INITIALIZED;
  if (j->m < 1 || j->n < 1 || j->lda < j->m || !j->a || !j->info) return WSV_STATUS_INVALID_VALUE;
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

/* ---- calls by type ---- */

static wsv_status elements(wsv_handle handle, int m, int n, int lda, int *lwork)
{
  if (!handle || m < 1 || n < 1 || lda < m) return WSV_STATUS_INVALID_VALUE;
  *lwork = ELEMENTS;
  return WSV_STATUS_SUCCESS;
}

#define CALLS(X, t, gqr)                                                                                                      \
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
  }
CALLS(S, WCT_R_32F, orgqr)
CALLS(D, WCT_R_64F, orgqr)
CALLS(C, WCT_C_32F, ungqr)
CALLS(Z, WCT_C_64F, ungqr)
