/* cpu/gemm_dense.h -- matrix products of f32 and of f64 on processors with AVX2 and FMA, or AVX-512. */
#ifndef WEFT_CPU_GEMM_DENSE_H
#define WEFT_CPU_GEMM_DENSE_H

#include "cpu/gemm.h"
#include "cpu/gemm_micro.h"
#include "cpu/hot.h"

enum {
  CPU_DENSE_BLOCK_K = 256,                                     /* a panel of B is at most 32 KiB */
  CPU_NARROW_LANES = CPU_NARROW_BYTES / sizeof(float),         /* f32 of the shorter vectors */
  CPU_NARROW_WIDTH = CPU_MICRO_VECTORS * CPU_NARROW_LANES,     /* of a panel with these */
};

bool cpu_dense_fits(const cpu_gemm *gemm); /* True if the types, the sizes and this machine suit the kernel */
void cpu_dense_plan(cpu_gemm *gemm);       /* sets the tiles and their scratch size */
/* Bytes of scratch of cpu_dense_tile, for any product of f32 or of f64; 0 on a machine without the kernel, and for
 * other types. */
int64_t cpu_dense_panel_scratch(const cpu_gemm *gemm);
/* c[m,n] = a . b with gemm's k and steps. */
void cpu_dense_tile(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch);
extern const cpu_packed_ops cpu_dense_packed;
/* Of each element of C, so many products are summed up in order; the sums of such blocks are added, in order. */
static inline int64_t cpu_dense_block_of_k(const cpu_gemm *gemm) { return cpu_even_part(gemm->k, CPU_DENSE_BLOCK_K); }

/* The loops of this processor for one type, of which other kernels are made too (blocked.c). */
typedef struct cpu_dense_kernel {
  int64_t rows, lanes; /* rows of the largest block of C, and lanes of a vector */
  /* to[k][width] = a panel of B of `cols` columns `across` apart, whose rows are `along` apart. If one of these is 1,
   * the columns up to a multiple of `lanes` are written too: as zeros if that is `across`, else as anything. */
  void (*pack)(int64_t cols, int64_t k, const void *panel, int64_t across, int64_t along, void *to, int64_t width);
  cpu_micro_fn *const (*micro)[CPU_MICRO_VECTORS + 1];
} cpu_dense_kernel;
/* For f32 or f64. NULL: this processor has none of these instruction sets. */
const cpu_dense_kernel *cpu_dense_kernel_of(weft_dtype type);
/* Those for f32 where they have CPU_NARROW_LANES; NULL: this processor has longer vectors, or none. */
const cpu_dense_kernel *cpu_dense_narrow_kernel(void);

/* For tests: uses vectors of 256 bits also on machines with 512. */
extern bool cpu_dense_narrow;

#endif
