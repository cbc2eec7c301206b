/* cpu/gemm_lanes.h -- matrix products of bf16, of s8 and large ones of f32, on processors with AVX512-BF16 and AVX-512
 * VNNI. */
#ifndef WEFT_CPU_GEMM_LANES_H
#define WEFT_CPU_GEMM_LANES_H

#include "cpu/gemm.h"

bool cpu_lanes_fits(const cpu_gemm *gemm); /* True if the types, the sizes and this machine suit the kernel */
void cpu_lanes_plan(cpu_gemm *gemm);       /* sets the tiles and their scratch size */
/* c[m,n] = a . b with gemm's k and steps. */
void cpu_lanes_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);
extern const cpu_packed_ops cpu_lanes_packed;

#endif
