/* cpu/gemm_vnni.h -- matrix products of s8 into s32 on processors with AVX-512 VNNI. */
#ifndef WEFT_CPU_GEMM_VNNI_H
#define WEFT_CPU_GEMM_VNNI_H

#include "cpu/gemm.h"

bool cpu_vnni_fits(const cpu_gemm *gemm); /* True if the types, the sizes and this machine suit the kernel */
void cpu_vnni_plan(cpu_gemm *gemm);       /* sets the tiles and their scratch size */
/* c[m,n] = a . b with gemm's k and steps. */
void cpu_vnni_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);

#endif
