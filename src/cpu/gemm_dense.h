/* cpu/gemm_dense.h -- matrix products of f32 and of f64 on processors with AVX2 and FMA, or AVX-512. */
#ifndef WEFT_CPU_GEMM_DENSE_H
#define WEFT_CPU_GEMM_DENSE_H

#include "cpu/gemm.h"

bool cpu_dense_fits(const cpu_gemm *gemm); /* True if the types, the sizes and this machine suit the kernel */
void cpu_dense_plan(cpu_gemm *gemm);       /* sets the tiles and their scratch size */
/* Bytes of scratch of cpu_dense_tile, for any product of f32 or of f64; 0 on a machine without the kernel, and for
 * other types. */
int64_t cpu_dense_panel_scratch(const cpu_gemm *gemm);
/* c[m,n] = a . b with gemm's k and steps. */
void cpu_dense_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);
extern const cpu_packed_ops cpu_dense_packed;

/* For tests: uses vectors of 256 bits also on machines with 512. */
extern bool cpu_dense_narrow;

#endif
