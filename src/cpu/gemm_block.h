/* cpu/gemm_block.h -- our own blocked matrix product, for every real type. */
#ifndef WEFT_CPU_GEMM_BLOCK_H
#define WEFT_CPU_GEMM_BLOCK_H

#include "cpu/gemm.h"

/* True on machines where this kernel is faster than BLAS on floats: those with 32 vector registers of 64 bytes. */
bool cpu_block_is_fast(void);
/* For tests: uses narrow vectors also on machines with wide ones. */
extern bool cpu_block_narrow;

/* True if b is read in place, so that tiles of few rows cost nothing extra. */
bool cpu_block_reads_in_place(const cpu_gemm *gemm);

/* c[m,n] = a . b with gemm's k, steps and types; gemm->compute is F32, F64 or an unsigned integer type, to which
 * operands are converted as they are packed. */
void cpu_block_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);
int64_t cpu_block_scratch(const cpu_gemm *gemm); /* bytes, for a tile of gemm's tile_m by tile_n */

#endif
