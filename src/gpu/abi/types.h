/* gpu/abi/types.h -- element types in the terms of NVIDIA's libraries, and the rows of their tables of entry points.
 *
 * A list of entry points has rows X(type, name, arguments): the result, the symbol and its arguments.
 * tests/gpu/library_abi_test.c compares the numbers with NVIDIA's headers where they are installed. */
#ifndef WEFT_GPU_ABI_TYPES_H
#define WEFT_GPU_ABI_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* Element types.  CUDA_*: R is a real number, C a pair (re, im). */
#define WCT_TYPES(X) \
  X(R_32F, 0) X(R_64F, 1) X(R_16F, 2) X(R_8I, 3) X(C_32F, 4) X(C_64F, 5) X(R_8U, 8) X(R_32I, 10) X(R_16BF, 14)

#define WCT_ROW(name, value) WCT_##name = value,
typedef enum wct_type { WCT_TYPES(WCT_ROW) } wct_type;
#undef WCT_ROW

#endif
