/* gpu/abi/cusolver.h -- the part of cuSOLVER's binary interface that Weft uses, declared without NVIDIA's headers.
 *
 * The interface is that of versions 11 and 12 of the library.  Matrices are column-major; arrays are void so that one
 * signature serves all element types.  tests/gpu/library_abi_test.c compares the numbers with
 * NVIDIA's headers where they are installed. */
#ifndef WEFT_GPU_ABI_CUSOLVER_H
#define WEFT_GPU_ABI_CUSOLVER_H

#include "gpu/abi/cublas.h"

/* Results of every call.  CUSOLVER_STATUS_* */
#define WSV_STATUSES(X) \
  X(SUCCESS, 0) X(NOT_INITIALIZED, 1) X(ALLOC_FAILED, 2) X(INVALID_VALUE, 3) X(ARCH_MISMATCH, 4) X(MAPPING_ERROR, 5) \
  X(EXECUTION_FAILED, 6) X(INTERNAL_ERROR, 7) X(MATRIX_TYPE_NOT_SUPPORTED, 8) X(NOT_SUPPORTED, 9) \
  X(INVALID_WORKSPACE, 31)

/* Which triangle of a matrix is read.  CUBLAS_FILL_MODE_* */
#define WSV_TRIANGLES(X) \
  X(LOWER, 0) X(UPPER, 1)

/* Whether vectors are computed besides values.  CUSOLVER_EIG_MODE_* */
#define WSV_VECTORS(X) \
  X(NOVECTOR, 0) X(VECTOR, 1)

#define WSV_ROW(name, value) WSV_STATUS_##name = value,
typedef enum wsv_status { WSV_STATUSES(WSV_ROW) } wsv_status;
#undef WSV_ROW
#define WSV_ROW(name, value) WSV_##name = value,
typedef enum wsv_triangle { WSV_TRIANGLES(WSV_ROW) } wsv_triangle;
typedef enum wsv_vectors { WSV_VECTORS(WSV_ROW) } wsv_vectors;
#undef WSV_ROW

typedef struct wsv_context *wsv_handle;
typedef struct wsv_params_st *wsv_params;             /* options of the generic calls */
typedef struct wsv_jacobi_st *wsv_jacobi;             /* options of gesvdj */
typedef struct wsv_eigen_jacobi_st *wsv_eigen_jacobi; /* options of syevj */

struct wcu_stream_st;

/* X(type, name, arguments) for each of f32, f64, c64 and c128.  lwork counts elements;
 * info and pivots are s32 on the device. */
#define WSV_FOUR(X, s, d, c, z, args) \
  X(wsv_status, cusolverDnS##s, args) X(wsv_status, cusolverDnD##d, args) X(wsv_status, cusolverDnC##c, args) \
  X(wsv_status, cusolverDnZ##z, args)
#define WSV_SAME(X, name, args) WSV_FOUR(X, name, name, name, name, args)

#define WSV_ENTRIES(X) \
  X(wsv_status, cusolverDnCreate, (wsv_handle *handle)) \
  X(wsv_status, cusolverDnDestroy, (wsv_handle handle)) \
  X(wsv_status, cusolverDnSetStream, (wsv_handle handle, struct wcu_stream_st *stream)) \
  X(wsv_status, cusolverDnCreateParams, (wsv_params *options)) \
  X(wsv_status, cusolverDnDestroyParams, (wsv_params options)) \
  X(wsv_status, cusolverDnCreateGesvdjInfo, (wsv_jacobi *options)) \
  X(wsv_status, cusolverDnDestroyGesvdjInfo, (wsv_jacobi options)) \
  X(wsv_status, cusolverDnCreateSyevjInfo, (wsv_eigen_jacobi *options)) \
  X(wsv_status, cusolverDnDestroySyevjInfo, (wsv_eigen_jacobi options)) \
  X(wsv_status, cusolverDnXpotrf_bufferSize, \
    (wsv_handle handle, wsv_params p, wsv_triangle triangle, int64_t n, wct_type type, const void *a, int64_t lda, \
     wct_type compute, size_t *device_bytes, size_t *host_bytes)) \
  X(wsv_status, cusolverDnXpotrf, \
    (wsv_handle handle, wsv_params p, wsv_triangle triangle, int64_t n, wct_type type, void *a, int64_t lda, \
     wct_type compute, void *device, size_t device_bytes, void *host, size_t host_bytes, int *info)) \
  X(wsv_status, cusolverDnXgeqrf_bufferSize, \
    (wsv_handle handle, wsv_params p, int64_t m, int64_t n, wct_type type, const void *a, int64_t lda, wct_type tau_type, \
     const void *tau, wct_type compute, size_t *device_bytes, size_t *host_bytes)) \
  X(wsv_status, cusolverDnXgeqrf, \
    (wsv_handle handle, wsv_params p, int64_t m, int64_t n, wct_type type, void *a, int64_t lda, wct_type tau_type, \
     void *tau, wct_type compute, void *device, size_t device_bytes, void *host, size_t host_bytes, int *info)) \
  X(wsv_status, cusolverDnXsyevd_bufferSize, \
    (wsv_handle handle, wsv_params p, wsv_vectors vectors, wsv_triangle triangle, int64_t n, wct_type type, const void *a, \
     int64_t lda, wct_type w_type, const void *w, wct_type compute, size_t *device_bytes, size_t *host_bytes)) \
  X(wsv_status, cusolverDnXsyevd, \
    (wsv_handle handle, wsv_params p, wsv_vectors vectors, wsv_triangle triangle, int64_t n, wct_type type, void *a, \
     int64_t lda, wct_type w_type, void *w, wct_type compute, void *device, size_t device_bytes, void *host, \
     size_t host_bytes, int *info)) \
  X(wsv_status, cusolverDnXgesvdp_bufferSize, \
    (wsv_handle handle, wsv_params p, wsv_vectors vectors, int econ, int64_t m, int64_t n, wct_type type, const void *a, \
     int64_t lda, wct_type s_type, const void *s, wct_type u_type, const void *u, int64_t ldu, wct_type v_type, \
     const void *v, int64_t ldv, wct_type compute, size_t *device_bytes, size_t *host_bytes)) \
  X(wsv_status, cusolverDnXgesvdp, \
    (wsv_handle handle, wsv_params p, wsv_vectors vectors, int econ, int64_t m, int64_t n, wct_type type, void *a, \
     int64_t lda, wct_type s_type, void *s, wct_type u_type, void *u, int64_t ldu, wct_type v_type, void *v, int64_t ldv, \
     wct_type compute, void *device, size_t device_bytes, void *host, size_t host_bytes, int *info, double *host_error)) \
  WSV_SAME(X, potrfBatched, (wsv_handle handle, wsv_triangle triangle, int n, void **a, int lda, int *info, int count)) \
  WSV_SAME(X, gesvd_bufferSize, (wsv_handle handle, int m, int n, int *lwork)) \
  WSV_SAME(X, gesvd, \
           (wsv_handle handle, signed char u_job, signed char vt_job, int m, int n, void *a, int lda, void *s, void *u, \
            int ldu, void *vt, int ldvt, void *work, int lwork, void *real_work, int *info)) \
  WSV_FOUR(X, ormqr_bufferSize, ormqr_bufferSize, unmqr_bufferSize, unmqr_bufferSize, \
           (wsv_handle handle, wb3_side side, wbl_operation op, int m, int n, int k, const void *a, int lda, \
            const void *tau, const void *c, int ldc, int *lwork)) \
  WSV_FOUR(X, ormqr, ormqr, unmqr, unmqr, \
           (wsv_handle handle, wb3_side side, wbl_operation op, int m, int n, int k, const void *a, int lda, \
            const void *tau, void *c, int ldc, void *work, int lwork, int *info)) \
  WSV_FOUR(X, sytrd_bufferSize, sytrd_bufferSize, hetrd_bufferSize, hetrd_bufferSize, \
           (wsv_handle handle, wsv_triangle triangle, int n, const void *a, int lda, const void *d, const void *e, \
            const void *tau, int *lwork)) \
  WSV_FOUR(X, sytrd, sytrd, hetrd, hetrd, \
           (wsv_handle handle, wsv_triangle triangle, int n, void *a, int lda, void *d, void *e, void *tau, void *work, \
            int lwork, int *info)) \
  WSV_FOUR(X, syevjBatched_bufferSize, syevjBatched_bufferSize, heevjBatched_bufferSize, heevjBatched_bufferSize, \
           (wsv_handle handle, wsv_vectors vectors, wsv_triangle triangle, int n, const void *a, int lda, const void *w, \
            int *lwork, wsv_eigen_jacobi options, int count)) \
  WSV_FOUR(X, syevjBatched, syevjBatched, heevjBatched, heevjBatched, \
           (wsv_handle handle, wsv_vectors vectors, wsv_triangle triangle, int n, void *a, int lda, void *w, void *work, \
            int lwork, int *info, wsv_eigen_jacobi options, int count)) \
  WSV_SAME(X, gesvdjBatched_bufferSize, \
           (wsv_handle handle, wsv_vectors vectors, int m, int n, const void *a, int lda, const void *s, const void *u, \
            int ldu, const void *v, int ldv, int *lwork, wsv_jacobi options, int count)) \
  WSV_SAME(X, gesvdjBatched, \
           (wsv_handle handle, wsv_vectors vectors, int m, int n, void *a, int lda, void *s, void *u, int ldu, void *v, \
            int ldv, void *work, int lwork, int *info, wsv_jacobi options, int count)) \
  WSV_SAME(X, getrf_bufferSize, (wsv_handle handle, int m, int n, void *a, int lda, int *lwork)) \
  WSV_SAME(X, getrf, (wsv_handle handle, int m, int n, void *a, int lda, void *work, int *pivots, int *info)) \
  WSV_FOUR(X, orgqr_bufferSize, orgqr_bufferSize, ungqr_bufferSize, ungqr_bufferSize, \
           (wsv_handle handle, int m, int n, int k, const void *a, int lda, const void *tau, int *lwork)) \
  WSV_FOUR(X, orgqr, orgqr, ungqr, ungqr, \
           (wsv_handle handle, int m, int n, int k, void *a, int lda, const void *tau, void *work, int lwork, int *info)) \
  WSV_SAME(X, gesvdj_bufferSize, \
           (wsv_handle handle, wsv_vectors vectors, int econ, int m, int n, const void *a, int lda, const void *s, \
            const void *u, int ldu, const void *v, int ldv, int *lwork, wsv_jacobi options)) \
  WSV_SAME(X, gesvdj, \
           (wsv_handle handle, wsv_vectors vectors, int econ, int m, int n, void *a, int lda, void *s, void *u, int ldu, \
            void *v, int ldv, void *work, int lwork, int *info, wsv_jacobi options))

#define WSV_FN(type, name, args) typedef type (*wsv_fn_##name) args;
WSV_ENTRIES(WSV_FN)
#undef WSV_FN

#endif
