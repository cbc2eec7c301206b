/* cpu/gemm_vector.h -- a matrix of f32 or f64 times a vector; the matrix is read once, in place. */
#ifndef WEFT_CPU_GEMM_VECTOR_H
#define WEFT_CPU_GEMM_VECTOR_H

#include "cpu/gemm.h"

extern bool cpu_vector_narrow; /* for tests: vectors of CPU_NARROW_BYTES on every machine */

bool cpu_vector_fits(const cpu_gemm *gemm); /* True if one side has one row or column and the types and steps suit */
void cpu_vector_plan(cpu_gemm *gemm);       /* sets the tiles and their scratch size */
/* c[m,n] = a . b with gemm's k and steps. */
void cpu_vector_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);

#endif
