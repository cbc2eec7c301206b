/* gpu/abi/cublaslt.h -- the part of cuBLASLt's binary interface that Weft uses, declared without NVIDIA's headers.
 *
 * The interface is that of versions 12 and 13 of the library.  Matrices are column-major.  Descriptors are memory of
 * the caller that the library fills in; a version may use less of it than these structures have.
 * tests/gpu/library_abi_test.c compares numbers, sizes and types with NVIDIA's header where it is installed. */
#ifndef WEFT_GPU_ABI_CUBLASLT_H
#define WEFT_GPU_ABI_CUBLASLT_H

#include "gpu/abi/types.h"

/* Results of every call.  CUBLAS_STATUS_* */
#define WBL_STATUSES(X) \
  X(SUCCESS, 0) X(NOT_INITIALIZED, 1) X(ALLOC_FAILED, 3) X(INVALID_VALUE, 7) X(ARCH_MISMATCH, 8) \
  X(MAPPING_ERROR, 11) X(EXECUTION_FAILED, 13) X(INTERNAL_ERROR, 14) X(NOT_SUPPORTED, 15) X(LICENSE_ERROR, 16)

/* Types of the arithmetic.  CUBLAS_COMPUTE_*: FAST types may round the operands to the named type. */
#define WBL_COMPUTES(X) \
  X(16F, 64) X(32F, 68) X(64F, 70) X(32I, 72) X(32F_FAST_16F, 74) X(32F_FAST_16BF, 75) X(32F_FAST_TF32, 77)

/* Whether an operand is read transposed.  CUBLAS_OP_* */
#define WBL_OPERATIONS(X) \
  X(N, 0) X(T, 1) X(C, 2)

/* Attributes of a matrix.  CUBLASLT_MATRIX_LAYOUT_* */
#define WBL_LAYOUT_ATTRIBUTES(X) \
  X(TYPE, 0) X(ORDER, 1) X(ROWS, 2) X(COLS, 3) X(LD, 4) X(BATCH_COUNT, 5) X(STRIDED_BATCH_OFFSET, 6)

/* Attributes of a product.  CUBLASLT_MATMUL_DESC_* */
#define WBL_MATMUL_ATTRIBUTES(X) \
  X(COMPUTE_TYPE, 0) X(SCALE_TYPE, 1) X(POINTER_MODE, 2) X(TRANSA, 3) X(TRANSB, 4) X(EPILOGUE, 7) X(BIAS_POINTER, 8) \
  X(BIAS_BATCH_STRIDE, 10) X(BIAS_DATA_TYPE, 26)

/* What is done to the product before it is stored.  CUBLASLT_EPILOGUE_* */
#define WBL_EPILOGUES(X) \
  X(DEFAULT, 1) X(RELU, 2) X(BIAS, 4) X(RELU_BIAS, 6) X(GELU, 32) X(GELU_BIAS, 36)

/* Attributes of the search for an algorithm.  CUBLASLT_MATMUL_PREF_* */
#define WBL_PREFERENCE_ATTRIBUTES(X) \
  X(SEARCH_MODE, 0) X(MAX_WORKSPACE_BYTES, 1) X(MIN_ALIGNMENT_A_BYTES, 5) X(MIN_ALIGNMENT_B_BYTES, 6) \
  X(MIN_ALIGNMENT_C_BYTES, 7) X(MIN_ALIGNMENT_D_BYTES, 8)

#define WBL_ROW(name, value) WBL_STATUS_##name = value,
typedef enum wbl_status { WBL_STATUSES(WBL_ROW) } wbl_status;
#undef WBL_ROW
#define WBL_ROW(name, value) WBL_COMPUTE_##name = value,
typedef enum wbl_compute { WBL_COMPUTES(WBL_ROW) } wbl_compute;
#undef WBL_ROW
#define WBL_ROW(name, value) WBL_OP_##name = value,
typedef enum wbl_operation { WBL_OPERATIONS(WBL_ROW) } wbl_operation;
#undef WBL_ROW
#define WBL_ROW(name, value) WBL_LAYOUT_##name = value,
typedef enum wbl_layout_attribute { WBL_LAYOUT_ATTRIBUTES(WBL_ROW) } wbl_layout_attribute;
#undef WBL_ROW
#define WBL_ROW(name, value) WBL_MATMUL_##name = value,
typedef enum wbl_matmul_attribute { WBL_MATMUL_ATTRIBUTES(WBL_ROW) } wbl_matmul_attribute;
#undef WBL_ROW
#define WBL_ROW(name, value) WBL_EPILOGUE_##name = value,
typedef enum wbl_epilogue { WBL_EPILOGUES(WBL_ROW) } wbl_epilogue;
#undef WBL_ROW
#define WBL_ROW(name, value) WBL_PREF_##name = value,
typedef enum wbl_preference_attribute { WBL_PREFERENCE_ATTRIBUTES(WBL_ROW) } wbl_preference_attribute;
#undef WBL_ROW

typedef struct wbl_context *wbl_handle;
typedef struct wbl_layout { uint64_t data[8]; } wbl_layout;
typedef struct wbl_matmul { uint64_t data[32]; } wbl_matmul;
typedef struct wbl_preference { uint64_t data[8]; } wbl_preference;
typedef struct wbl_algo { uint64_t data[8]; } wbl_algo; /* plain data, valid for one version of the library */

typedef struct wbl_heuristic {
  wbl_algo algo;
  size_t workspaceSize; /* bytes that the algorithm needs */
  wbl_status state;     /* the other members are valid if this is success */
  float wavesCount;
  int reserved[4];
} wbl_heuristic;

struct wcu_stream_st;

/* alpha and beta are host memory, of the scale type.  D = epilogue(alpha op(A) op(B) + beta C). */
#define WBL_ENTRIES(X) \
  X(wbl_status, cublasLtCreate, (wbl_handle *handle)) \
  X(wbl_status, cublasLtDestroy, (wbl_handle handle)) \
  X(size_t, cublasLtGetVersion, (void)) \
  X(wbl_status, cublasLtMatmulDescInit_internal, (wbl_matmul *d, size_t size, wbl_compute compute, wct_type scale)) \
  X(wbl_status, cublasLtMatmulDescSetAttribute, (wbl_matmul *d, wbl_matmul_attribute a, const void *from, size_t size)) \
  X(wbl_status, cublasLtMatrixLayoutInit_internal, \
    (wbl_layout *l, size_t size, wct_type type, uint64_t rows, uint64_t cols, int64_t ld)) \
  X(wbl_status, cublasLtMatrixLayoutSetAttribute, (wbl_layout *l, wbl_layout_attribute a, const void *from, size_t size)) \
  X(wbl_status, cublasLtMatmulPreferenceInit_internal, (wbl_preference *p, size_t size)) \
  X(wbl_status, cublasLtMatmulPreferenceSetAttribute, \
    (wbl_preference *p, wbl_preference_attribute a, const void *from, size_t size)) \
  X(wbl_status, cublasLtMatmulAlgoGetHeuristic, \
    (wbl_handle handle, const wbl_matmul *d, const wbl_layout *a, const wbl_layout *b, const wbl_layout *c, \
     const wbl_layout *out, const wbl_preference *p, int most, wbl_heuristic *results, int *count)) \
  X(wbl_status, cublasLtMatmulAlgoCheck, \
    (wbl_handle handle, const wbl_matmul *d, const wbl_layout *a, const wbl_layout *b, const wbl_layout *c, \
     const wbl_layout *out, const wbl_algo *algo, wbl_heuristic *result)) \
  X(wbl_status, cublasLtMatmul, \
    (wbl_handle handle, const wbl_matmul *d, const void *alpha, const void *a, const wbl_layout *a_layout, \
     const void *b, const wbl_layout *b_layout, const void *beta, const void *c, const wbl_layout *c_layout, \
     void *out, const wbl_layout *out_layout, const wbl_algo *algo, void *workspace, size_t workspace_bytes, \
     struct wcu_stream_st *stream))

#define WBL_FN(type, name, args) typedef type (*wbl_fn_##name) args;
WBL_ENTRIES(WBL_FN)
#undef WBL_FN

#endif
