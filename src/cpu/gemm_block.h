/* cpu/gemm_block.h -- our own blocked matrix product, for every real type. */
#ifndef WEFT_CPU_GEMM_BLOCK_H
#define WEFT_CPU_GEMM_BLOCK_H

#include "cpu/gemm.h"

/* True where it beats BLAS on floats: with 32 vector registers of 64 bytes. */
bool cpu_block_is_fast(void);
/* For tests: narrow vectors also where there are those. */
extern bool cpu_block_narrow;

/* Whether b is used as it lies, so that tiles of few rows cost nothing. */
bool cpu_block_reads_in_place(const cpu_gemm *gemm);

/* c[m,n] = a . b with gemm's k, steps and types; gemm->compute is F32, F64 or an unsigned integer type, to which operands
 * are converted as they are packed. */
void cpu_block_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);
int64_t cpu_block_scratch(const cpu_gemm *gemm); /* bytes, for a tile of gemm's tile_m by tile_n */

#endif
