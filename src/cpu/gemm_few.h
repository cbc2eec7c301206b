/* cpu/gemm_few.h -- products of 2 to 16 rows by a large matrix of f32 or bf16, which is read once: in place, or f32 in
 * its packed form. */
#ifndef WEFT_CPU_GEMM_FEW_H
#define WEFT_CPU_GEMM_FEW_H

#include "cpu/gemm.h"

bool cpu_few_fits(const cpu_gemm *gemm); /* True if the types, the sizes and this machine suit the kernel */
void cpu_few_plan(cpu_gemm *gemm);       /* sets the tiles and their scratch size */
/* c[m,n] = a . b with gemm's k and steps; sums are f32 and rounded once. */
void cpu_few_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);

/* The same by weights that are made of b as `affine` says (cpu_gemm_init_affine), for all rows and for `n` columns from
 * column j on, at which `b` and `c` begin. */
int64_t cpu_few_affine_scratch(const cpu_gemm *gemm, const cpu_affine *affine);
void cpu_few_affine_tile(const cpu_gemm *gemm, const cpu_affine *affine, int64_t j, int64_t n, const char *a,
                         const char *b, const void *const *operands, char *c, void *scratch);

extern const cpu_packed_ops cpu_few_packed; /* of B in f32 with dense rows */

#endif
