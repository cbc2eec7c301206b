/* cpu/gemm_complex.h -- matrix products of c64 and of c128 by the loops of gemm_dense.c. */
#ifndef WEFT_CPU_GEMM_COMPLEX_H
#define WEFT_CPU_GEMM_COMPLEX_H

#include "cpu/gemm.h"

bool cpu_complex_fits(const cpu_gemm *gemm); /* True if the types, the sizes and this machine suit the kernel */
void cpu_complex_plan(cpu_gemm *gemm);       /* sets the tiles and their scratch size */
/* c[m,n] = a . b with gemm's k and steps. */
void cpu_complex_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);

#endif
