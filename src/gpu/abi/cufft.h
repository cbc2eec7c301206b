/* gpu/abi/cufft.h -- the part of cuFFT's binary interface that Weft uses, declared without NVIDIA's headers.
 *
 * The interface is that of versions 11 and 12 of the library.  Transforms are not scaled.
 * tests/gpu/library_abi_test.c compares the numbers with NVIDIA's header where it is installed. */
#ifndef WEFT_GPU_ABI_CUFFT_H
#define WEFT_GPU_ABI_CUFFT_H

#include "gpu/abi/types.h"

/* Results of every call.  CUFFT_* */
#define WFT_RESULTS(X) \
  X(SUCCESS, 0) X(INVALID_PLAN, 1) X(ALLOC_FAILED, 2) X(INVALID_TYPE, 3) X(INVALID_VALUE, 4) X(INTERNAL_ERROR, 5) \
  X(EXEC_FAILED, 6) X(SETUP_FAILED, 7) X(INVALID_SIZE, 8) X(UNALIGNED_DATA, 9) X(NO_WORKSPACE, 13) \
  X(NOT_IMPLEMENTED, 14) X(NOT_SUPPORTED, 16)

/* Kinds of transforms: C and Z are complex, R and D real.  CUFFT_* */
#define WFT_TYPES(X) \
  X(R2C, 0x2a) X(C2R, 0x2c) X(C2C, 0x29) X(D2Z, 0x6a) X(Z2D, 0x6c) X(Z2Z, 0x69)

/* Signs of the exponent.  CUFFT_* */
#define WFT_DIRECTIONS(X) \
  X(FORWARD, -1) X(INVERSE, 1)

#define WFT_ROW(name, value) WFT_##name = value,
typedef enum wft_result { WFT_RESULTS(WFT_ROW) } wft_result;
typedef enum wft_type { WFT_TYPES(WFT_ROW) } wft_type;
typedef enum wft_direction { WFT_DIRECTIONS(WFT_ROW) } wft_direction;
#undef WFT_ROW

typedef int wft_plan; /* of the context that is current when the plan is made */

struct wcu_stream_st;

/* cufftMakePlanMany64: `n` the sizes of the real array; without `embed`, arrays
 * are dense and the steps are not read. */
#define WFT_ENTRIES(X) \
  X(wft_result, cufftCreate, (wft_plan *plan)) \
  X(wft_result, cufftDestroy, (wft_plan plan)) \
  X(wft_result, cufftSetAutoAllocation, (wft_plan plan, int automatic)) \
  X(wft_result, cufftMakePlanMany64, \
    (wft_plan plan, int rank, long long *n, long long *in_embed, long long in_step, long long in_distance, \
     long long *out_embed, long long out_step, long long out_distance, wft_type type, long long batch, size_t *bytes)) \
  X(wft_result, cufftSetStream, (wft_plan plan, struct wcu_stream_st *stream)) \
  X(wft_result, cufftSetWorkArea, (wft_plan plan, void *workspace)) \
  X(wft_result, cufftXtExec, (wft_plan plan, void *in, void *out, int direction))

#define WFT_FN(type, name, args) typedef type (*wft_fn_##name) args;
WFT_ENTRIES(WFT_FN)
#undef WFT_FN

#endif
