/* gpu/abi/cudnn.h -- the part of cuDNN's binary interface that Weft uses, declared without NVIDIA's headers.
 *
 * The interface is that of version 9 of the library: convolutions by descriptors.  With x the input, w the filter and
 * y the output, Forward computes y of x and w, BackwardData x of w and y, BackwardFilter w of x and y.
 * tests/gpu/library_abi_test.c compares numbers, sizes and types with NVIDIA's headers where they are installed. */
#ifndef WEFT_GPU_ABI_CUDNN_H
#define WEFT_GPU_ABI_CUDNN_H

#include "gpu/abi/types.h"

/* Results of every call: the first of each class of errors.  CUDNN_STATUS_* */
#define WDN_STATUSES(X) \
  X(SUCCESS, 0) X(NOT_INITIALIZED, 1001) X(SUBLIBRARY_LOADING_FAILED, 1008) X(BAD_PARAM, 2000) \
  X(BAD_PARAM_MISALIGNED_POINTER, 2003) X(NOT_SUPPORTED, 3000) X(INTERNAL_ERROR, 4000) \
  X(INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 4003) X(INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004) \
  X(EXECUTION_FAILED, 5000)

/* Element types.  CUDNN_DATA_* */
#define WDN_TYPES(X) \
  X(FLOAT, 0) X(DOUBLE, 1) X(HALF, 2) X(BFLOAT16, 9)

/* Orders of a filter's dimensions: channels before or behind the spatial ones.  CUDNN_TENSOR_* */
#define WDN_FORMATS(X) \
  X(NCHW, 0) X(NHWC, 1)

/* Whether the filter is read backwards (CONVOLUTION).  CUDNN_* */
#define WDN_MODES(X) \
  X(CONVOLUTION, 0) X(CROSS_CORRELATION, 1)

/* Arithmetic that an algorithm may use.  CUDNN_*: DEFAULT_MATH may round f32 to tf32, FMA_MATH does not. */
#define WDN_MATHS(X) \
  X(DEFAULT_MATH, 0) X(TENSOR_OP_MATH, 1) X(TENSOR_OP_MATH_ALLOW_CONVERSION, 2) X(FMA_MATH, 3)

#define WDN_ROW(name, value) WDN_STATUS_##name = value,
typedef enum wdn_status { WDN_STATUSES(WDN_ROW) } wdn_status;
#undef WDN_ROW
#define WDN_ROW(name, value) WDN_##name = value,
typedef enum wdn_type { WDN_TYPES(WDN_ROW) } wdn_type;
typedef enum wdn_format { WDN_FORMATS(WDN_ROW) } wdn_format;
typedef enum wdn_mode { WDN_MODES(WDN_ROW) } wdn_mode;
typedef enum wdn_math { WDN_MATHS(WDN_ROW) } wdn_math;
#undef WDN_ROW

typedef struct wdn_context *wdn_handle;
typedef struct wdn_tensor_st *wdn_tensor;
typedef struct wdn_filter_st *wdn_filter;
typedef struct wdn_convolution_st *wdn_convolution;

/* One algorithm that the library proposes; the three directions number their algorithms each on its own. */
typedef struct wdn_perf {
  int algo;
  wdn_status status;
  float time;
  size_t memory;   /* bytes of workspace */
  int determinism; /* 1: the same bits each time */
  wdn_math mathType;
  int reserved[3];
} wdn_perf;

struct wcu_stream_st;

/* alpha and beta are host memory: double for DOUBLE, else float. */
#define WDN_ENTRIES(X) \
  X(size_t, cudnnGetVersion, (void)) \
  X(const char *, cudnnGetErrorString, (wdn_status status)) \
  X(wdn_status, cudnnCreate, (wdn_handle *handle)) \
  X(wdn_status, cudnnDestroy, (wdn_handle handle)) \
  X(wdn_status, cudnnSetStream, (wdn_handle handle, struct wcu_stream_st *stream)) \
  X(wdn_status, cudnnCreateTensorDescriptor, (wdn_tensor *tensor)) \
  X(wdn_status, cudnnSetTensorNdDescriptor, \
    (wdn_tensor tensor, wdn_type type, int rank, const int *dims, const int *strides)) \
  X(wdn_status, cudnnDestroyTensorDescriptor, (wdn_tensor tensor)) \
  X(wdn_status, cudnnCreateFilterDescriptor, (wdn_filter *filter)) \
  X(wdn_status, cudnnSetFilterNdDescriptor, \
    (wdn_filter filter, wdn_type type, wdn_format format, int rank, const int *dims)) \
  X(wdn_status, cudnnDestroyFilterDescriptor, (wdn_filter filter)) \
  X(wdn_status, cudnnCreateConvolutionDescriptor, (wdn_convolution *convolution)) \
  X(wdn_status, cudnnSetConvolutionNdDescriptor, \
    (wdn_convolution convolution, int spatial, const int *pad, const int *stride, const int *dilation, wdn_mode mode, \
     wdn_type compute)) \
  X(wdn_status, cudnnSetConvolutionGroupCount, (wdn_convolution convolution, int groups)) \
  X(wdn_status, cudnnSetConvolutionMathType, (wdn_convolution convolution, wdn_math math)) \
  X(wdn_status, cudnnDestroyConvolutionDescriptor, (wdn_convolution convolution)) \
  X(wdn_status, cudnnGetConvolutionForwardAlgorithm_v7, \
    (wdn_handle handle, wdn_tensor x, wdn_filter w, wdn_convolution c, wdn_tensor y, int most, int *count, \
     wdn_perf *results)) \
  X(wdn_status, cudnnGetConvolutionBackwardDataAlgorithm_v7, \
    (wdn_handle handle, wdn_filter w, wdn_tensor y, wdn_convolution c, wdn_tensor x, int most, int *count, \
     wdn_perf *results)) \
  X(wdn_status, cudnnGetConvolutionBackwardFilterAlgorithm_v7, \
    (wdn_handle handle, wdn_tensor x, wdn_tensor y, wdn_convolution c, wdn_filter w, int most, int *count, \
     wdn_perf *results)) \
  X(wdn_status, cudnnGetConvolutionForwardWorkspaceSize, \
    (wdn_handle handle, wdn_tensor x, wdn_filter w, wdn_convolution c, wdn_tensor y, int algo, size_t *bytes)) \
  X(wdn_status, cudnnGetConvolutionBackwardDataWorkspaceSize, \
    (wdn_handle handle, wdn_filter w, wdn_tensor y, wdn_convolution c, wdn_tensor x, int algo, size_t *bytes)) \
  X(wdn_status, cudnnGetConvolutionBackwardFilterWorkspaceSize, \
    (wdn_handle handle, wdn_tensor x, wdn_tensor y, wdn_convolution c, wdn_filter w, int algo, size_t *bytes)) \
  X(wdn_status, cudnnConvolutionForward, \
    (wdn_handle handle, const void *alpha, wdn_tensor x, const void *x_at, wdn_filter w, const void *w_at, \
     wdn_convolution c, int algo, void *workspace, size_t bytes, const void *beta, wdn_tensor y, void *y_at)) \
  X(wdn_status, cudnnConvolutionBackwardData, \
    (wdn_handle handle, const void *alpha, wdn_filter w, const void *w_at, wdn_tensor y, const void *y_at, \
     wdn_convolution c, int algo, void *workspace, size_t bytes, const void *beta, wdn_tensor x, void *x_at)) \
  X(wdn_status, cudnnConvolutionBackwardFilter, \
    (wdn_handle handle, const void *alpha, wdn_tensor x, const void *x_at, wdn_tensor y, const void *y_at, \
     wdn_convolution c, int algo, void *workspace, size_t bytes, const void *beta, wdn_filter w, void *w_at))

#define WDN_FN(type, name, args) typedef type (*wdn_fn_##name) args;
WDN_ENTRIES(WDN_FN)
#undef WDN_FN

#endif
