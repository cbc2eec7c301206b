/* cpu/gemm_tiny.h -- products so small that calling BLAS or packing would cost more than the work. */
#ifndef WEFT_CPU_GEMM_TINY_H
#define WEFT_CPU_GEMM_TINY_H

#include "cpu/gemm.h"

/* True if `gemm`, of f32 or f64 throughout, is such a product. */
bool cpu_tiny_fits(const cpu_gemm *gemm);

#endif
