/* cpu/gemm_pairs.h -- matrix products of integers of up to 16 bits into 32 bits on processors with AVX2. */
#ifndef WEFT_CPU_GEMM_PAIRS_H
#define WEFT_CPU_GEMM_PAIRS_H

#include "cpu/gemm.h"

bool cpu_pairs_fits(const cpu_gemm *gemm); /* True if the types, the sizes and this machine suit the kernel */
void cpu_pairs_plan(cpu_gemm *gemm);       /* sets the tiles and their scratch size */
/* c[m,n] = a . b with gemm's k and steps. */
void cpu_pairs_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);

#endif
