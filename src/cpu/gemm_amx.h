/* cpu/gemm_amx.h -- matrix products on Intel's AMX tiles. */
#ifndef WEFT_CPU_GEMM_AMX_H
#define WEFT_CPU_GEMM_AMX_H

#include "cpu/gemm.h"

/* True if this machine and its kernel let us multiply tiles of bf16. */
bool cpu_amx_has_bf16(void);
/* True if the types and sizes suit the tiles, and this machine and its kernel let us use them. */
bool cpu_amx_fits(const cpu_gemm *gemm);

int64_t cpu_amx_scratch(const cpu_gemm *gemm); /* bytes, for a tile of gemm's tile_m by tile_n */
/* c[m,n] = a . b with gemm's k and steps. */
void cpu_amx_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);
/* Configures the tiles of the calling thread for all tiles of `gemm` that it computes before cpu_amx_let_go: small
 * products take less time than that. It must compute no other products meanwhile. */
void cpu_amx_hold(const cpu_gemm *gemm);
/* The same for tiles of whole rows, which others than this kernel compute (conv_amx.h). */
void cpu_amx_hold_whole(void);
void cpu_amx_let_go(void);
extern const cpu_packed_ops cpu_amx_packed;

#endif
