/* gpu/abi/cublas.h -- the part of cuBLAS's binary interface that Weft uses beside cuBLASLt, declared without NVIDIA's
 * headers: scaling of vectors, triangular systems, and factors of the matrices of a batch.
 *
 * The interface is that of versions 12 and 13 of the library.  Matrices are column-major; arrays are void so that one
 * signature serves all element types.  Results and operations are those of gpu/abi/cublaslt.h.
 * tests/gpu/library_abi_test.c compares the numbers with NVIDIA's header where it is installed. */
#ifndef WEFT_GPU_ABI_CUBLAS_H
#define WEFT_GPU_ABI_CUBLAS_H

#include "gpu/abi/cublaslt.h"

/* The side on which the triangular matrix stands.  CUBLAS_SIDE_* */
#define WB3_SIDES(X) \
  X(LEFT, 0) X(RIGHT, 1)

/* Which triangle is read.  CUBLAS_FILL_MODE_* */
#define WB3_TRIANGLES(X) \
  X(LOWER, 0) X(UPPER, 1)

/* Whether the diagonal is taken for ones.  CUBLAS_DIAG_* */
#define WB3_DIAGONALS(X) \
  X(NON_UNIT, 0) X(UNIT, 1)

#define WB3_ROW(name, value) WB3_SIDE_##name = value,
typedef enum wb3_side { WB3_SIDES(WB3_ROW) } wb3_side;
#undef WB3_ROW
#define WB3_ROW(name, value) WB3_FILL_##name = value,
typedef enum wb3_triangle { WB3_TRIANGLES(WB3_ROW) } wb3_triangle;
#undef WB3_ROW
#define WB3_ROW(name, value) WB3_DIAG_##name = value,
typedef enum wb3_diagonal { WB3_DIAGONALS(WB3_ROW) } wb3_diagonal;
#undef WB3_ROW

typedef struct wb3_context *wb3_handle;

/* alpha is host memory. */
#define WB3_TRSM(X, letter) \
  X(wbl_status, cublas##letter##trsm_v2, \
    (wb3_handle handle, wb3_side side, wb3_triangle triangle, wbl_operation op, wb3_diagonal diagonal, int m, int n, \
     const void *alpha, const void *a, int lda, void *b, int ldb))
/* The same for `count` systems; `a` and `b` are arrays of addresses in the device's memory. */
#define WB3_TRSM_BATCHED(X, letter) \
  X(wbl_status, cublas##letter##trsmBatched, \
    (wb3_handle handle, wb3_side side, wb3_triangle triangle, wbl_operation op, wb3_diagonal diagonal, int m, int n, \
     const void *alpha, const void *a, int lda, void *b, int ldb, int count))
/* LU factors of `count` square matrices, with pivots counted from 1 and an info for each in the device's memory. */
#define WB3_GETRF_BATCHED(X, letter) \
  X(wbl_status, cublas##letter##getrfBatched, \
    (wb3_handle handle, int n, void *a, int lda, int *pivots, int *info, int count))
/* QR factors of `count` matrices; `tau` is an array of addresses as well, and `info`, about the arguments, is on the
 * host. */
#define WB3_GEQRF_BATCHED(X, letter) \
  X(wbl_status, cublas##letter##geqrfBatched, \
    (wb3_handle handle, int m, int n, void *a, int lda, void *tau, int *info, int count))
#define WB3_ENTRIES(X) \
  X(wbl_status, cublasCreate_v2, (wb3_handle *handle)) \
  X(wbl_status, cublasDestroy_v2, (wb3_handle handle)) \
  X(wbl_status, cublasSetStream_v2, (wb3_handle handle, struct wcu_stream_st *stream)) \
  X(wbl_status, cublasSscal_v2, (wb3_handle handle, int n, const float *alpha, float *x, int step)) \
  X(wbl_status, cublasDscal_v2, (wb3_handle handle, int n, const double *alpha, double *x, int step)) \
  WB3_TRSM(X, S) WB3_TRSM(X, D) WB3_TRSM(X, C) WB3_TRSM(X, Z) \
  WB3_TRSM_BATCHED(X, S) WB3_TRSM_BATCHED(X, D) WB3_TRSM_BATCHED(X, C) WB3_TRSM_BATCHED(X, Z) \
  WB3_GETRF_BATCHED(X, S) WB3_GETRF_BATCHED(X, D) WB3_GETRF_BATCHED(X, C) WB3_GETRF_BATCHED(X, Z) \
  WB3_GEQRF_BATCHED(X, S) WB3_GEQRF_BATCHED(X, D) WB3_GEQRF_BATCHED(X, C) WB3_GEQRF_BATCHED(X, Z)

#define WB3_FN(type, name, args) typedef type (*wb3_fn_##name) args;
WB3_ENTRIES(WB3_FN)
#undef WB3_FN

#endif
