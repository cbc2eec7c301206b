/* tests/gpu/library_abi_test.c -- src/gpu/abi says of NVIDIA's libraries what their headers say: numbers, sizes and
 * types by assertions at compile time.  Without the toolkit's headers the test is skipped. */
#include "test.h"

#include "gpu/abi/cublas.h"
#include "gpu/abi/cudnn.h"
#include "gpu/abi/cufft.h"
#include "gpu/abi/cusolver.h"
#include "gpu/abi/nccl.h"
#include "gpu/abi/nvjitlink.h"

#define HEADER(name) WEFT_TEXT(WEFT_CUDA_INCLUDE/name)

#define ROW(prefix, name, value) _Static_assert((long long)prefix##name == value, #prefix #name);
#define SIZE(ours, theirs) \
  _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), "the size of " #theirs);
#define FIELD(ours, theirs, field)                                                        \
  _Static_assert(offsetof(ours, field) == offsetof(theirs, field) &&                      \
                   sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->field), #theirs "." #field);

#if __has_include(HEADER(cublasLt.h))
#define HAVE_HEADERS 1
#include HEADER(cublasLt.h)

#define TYPE(n, v) ROW(CUDA_, n, v)
WCT_TYPES(TYPE)
#define STATUS(n, v) ROW(CUBLAS_STATUS_, n, v)
WBL_STATUSES(STATUS)
#define COMPUTE(n, v) ROW(CUBLAS_COMPUTE_, n, v)
WBL_COMPUTES(COMPUTE)
#define OPERATION(n, v) ROW(CUBLAS_OP_, n, v)
WBL_OPERATIONS(OPERATION)
#define LAYOUT(n, v) ROW(CUBLASLT_MATRIX_LAYOUT_, n, v)
WBL_LAYOUT_ATTRIBUTES(LAYOUT)
#define MATMUL(n, v) ROW(CUBLASLT_MATMUL_DESC_, n, v)
WBL_MATMUL_ATTRIBUTES(MATMUL)
#define EPILOGUE(n, v) ROW(CUBLASLT_EPILOGUE_, n, v)
WBL_EPILOGUES(EPILOGUE)
#define PREFERENCE(n, v) ROW(CUBLASLT_MATMUL_PREF_, n, v)
WBL_PREFERENCE_ATTRIBUTES(PREFERENCE)
SIZE(wbl_layout, cublasLtMatrixLayoutOpaque_t) SIZE(wbl_matmul, cublasLtMatmulDescOpaque_t)
SIZE(wbl_preference, cublasLtMatmulPreferenceOpaque_t) SIZE(wbl_algo, cublasLtMatmulAlgo_t)
SIZE(wbl_heuristic, cublasLtMatmulHeuristicResult_t) FIELD(wbl_heuristic, cublasLtMatmulHeuristicResult_t, algo)
FIELD(wbl_heuristic, cublasLtMatmulHeuristicResult_t, workspaceSize)
FIELD(wbl_heuristic, cublasLtMatmulHeuristicResult_t, state)
#if __has_include(HEADER(cudnn.h))
#include HEADER(cudnn.h)
#define DNN_STATUS(n, v) ROW(CUDNN_STATUS_, n, v)
WDN_STATUSES(DNN_STATUS)
#define DNN_TYPE(n, v) ROW(CUDNN_DATA_, n, v)
WDN_TYPES(DNN_TYPE)
#define DNN_FORMAT(n, v) ROW(CUDNN_TENSOR_, n, v)
WDN_FORMATS(DNN_FORMAT)
#define DNN_NAME(n, v) ROW(CUDNN_, n, v)
WDN_MODES(DNN_NAME) WDN_MATHS(DNN_NAME)
#define PERF(theirs)                                                                                          \
  SIZE(wdn_perf, theirs) FIELD(wdn_perf, theirs, algo) FIELD(wdn_perf, theirs, status) FIELD(wdn_perf, theirs, memory) \
  FIELD(wdn_perf, theirs, determinism) FIELD(wdn_perf, theirs, mathType)
PERF(cudnnConvolutionFwdAlgoPerf_t) PERF(cudnnConvolutionBwdDataAlgoPerf_t) PERF(cudnnConvolutionBwdFilterAlgoPerf_t)
_Static_assert((int)CUDNN_DETERMINISTIC == 1, "determinism");
#endif
#if __has_include(HEADER(cusolverDn.h))
#include HEADER(cusolverDn.h)
#define SOLVER_STATUS(n, v) ROW(CUSOLVER_STATUS_, n, v)
WSV_STATUSES(SOLVER_STATUS)
#define TRIANGLE(n, v) ROW(CUBLAS_FILL_MODE_, n, v)
WSV_TRIANGLES(TRIANGLE)
#define VECTORS(n, v) ROW(CUSOLVER_EIG_MODE_, n, v)
WSV_VECTORS(VECTORS)
#endif
#if __has_include(HEADER(cufft.h))
#include HEADER(cufft.h)
#define FFT_NAME(n, v) ROW(CUFFT_, n, v)
WFT_RESULTS(FFT_NAME) WFT_TYPES(FFT_NAME) WFT_DIRECTIONS(FFT_NAME)
SIZE(wft_plan, cufftHandle)
#endif
#if __has_include(HEADER(nvJitLink.h))
#include HEADER(nvJitLink.h)
#define LINK_RESULT(n, v) ROW(NVJITLINK_, n, v)
WJL_RESULTS(LINK_RESULT)
#define LINK_INPUT(n, v) ROW(NVJITLINK_INPUT_, n, v)
WJL_INPUTS(LINK_INPUT)
SIZE(wjl_result, nvJitLinkResult) SIZE(wjl_input, nvJitLinkInputType) SIZE(wjl_handle, nvJitLinkHandle)
#endif
#define SIDE(n, v) ROW(CUBLAS_SIDE_, n, v)
WB3_SIDES(SIDE)
#define FILL(n, v) ROW(CUBLAS_FILL_MODE_, n, v)
WB3_TRIANGLES(FILL)
#define DIAGONAL(n, v) ROW(CUBLAS_DIAG_, n, v)
WB3_DIAGONALS(DIAGONAL)
SIZE(wct_type, cudaDataType) SIZE(wbl_status, cublasStatus_t) SIZE(wbl_compute, cublasComputeType_t)
#endif

#if __has_include(HEADER(nccl.h))
#define HAVE_NCCL 1
#include HEADER(nccl.h)
#define NCCL_NAME(n, v) ROW(nccl, n, v)
WNC_RESULTS(NCCL_NAME) WNC_TYPES(NCCL_NAME) WNC_OPS(NCCL_NAME)
SIZE(wnc_unique_id, ncclUniqueId)
#if NCCL_VERSION_CODE >= 22809
SIZE(wnc_config, ncclConfig_t)
#define CONFIG_FIELDS(X) \
  X(size) X(magic) X(version) X(blocking) X(cgaClusterSize) X(minCTAs) X(maxCTAs) X(netName) X(splitShare) \
  X(trafficClass) X(commName) X(collnetEnable) X(CTAPolicy) X(shrinkShare) X(nvlsCTAs) X(nChannelsPerNetPeer) \
  X(nvlinkCentricSched)
#define CONFIG_FIELD(name) FIELD(wnc_config, ncclConfig_t, name)
CONFIG_FIELDS(CONFIG_FIELD)
#endif
#endif

TEST(numbers_and_layouts_are_those_of_nccls_header)
{
#ifdef HAVE_NCCL
  print_message("# compared with NCCL's header when this was compiled\n");
#else
  T_SKIP("no header at %s", HEADER(nccl.h));
#endif
}

TEST(numbers_and_layouts_are_those_of_the_toolkits_headers)
{
#ifdef HAVE_HEADERS
  print_message("# compared with the headers of cuBLAS, cuBLASLt, cuDNN, cuFFT and cuSOLVER when this was compiled\n");
#else
  T_SKIP("no header at %s", HEADER(cublasLt.h));
#endif
}

TEST_MAIN(UNIT(numbers_and_layouts_are_those_of_the_toolkits_headers),
          UNIT(numbers_and_layouts_are_those_of_nccls_header))
