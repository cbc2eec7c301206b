/* cpu/gemm.h -- matrix products over raw pointers, one tile of the result at a time, so that a caller can spread the
 * tiles over the worker pool. Tiles depend on the shape alone, so results are the same bits for any number of
 * threads. */
#ifndef WEFT_CPU_GEMM_H
#define WEFT_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

typedef enum cpu_gemm_kind {
  CPU_GEMM_NONE,    /* there is no kernel for these types */
  CPU_GEMM_TINY,    /* f32, f64: a plain loop, for products so small that calling BLAS would cost more than the work */
  CPU_GEMM_VECTOR,  /* gemm_vector.c: f32, f64: a matrix times a vector */
  CPU_GEMM_FEW,     /* gemm_few.c: few rows by much f32 or bf16 */
  CPU_GEMM_DENSE,   /* gemm_dense.c: f32, f64 */
  CPU_GEMM_COMPLEX, /* gemm_complex.c: c64, c128 */
  CPU_GEMM_BLAS,    /* f32, f64, c64, c128 throughout: OpenBLAS in place */
  CPU_GEMM_CONVERT, /* panels are converted to a type of BLAS, and the result is converted back */
  CPU_GEMM_BLOCK,   /* gemm_block.c: every real type, converted as it is packed; integer products wrap */
  CPU_GEMM_AMX,     /* gemm_amx.c: bf16 x bf16 -> f32/bf16, s8 x s8 -> s32 */
  CPU_GEMM_LANES,   /* gemm_lanes.c: bf16 x bf16 -> f32/bf16, s8 x s8 -> s32, large f32 */
  CPU_GEMM_PAIRS,   /* gemm_pairs.c: s8, u8, s16 -> s32, u32 */
} cpu_gemm_kind;

/* c[m,n] = a[m,k] . b[k,n].  Steps count elements: a[i,l] is at i * a_row + l * a_col, and so on; c is row-major.
 * Floats narrower than f32 are added up in f32. */
typedef struct cpu_gemm {
  weft_dtype a_type, b_type, c_type;
  int64_t m, n, k;
  int64_t a_row, a_col, b_row, b_col, c_row;
  weft_dtype via;          /* operands are rounded to this type first; WEFT_INVALID: not */
  bool adds;               /* c += a . b; of products for which cpu_gemm_can_add is true */
  int64_t used_k;          /* of k, that are added up: cpu_gemm_tile_part sets it in a copy; 0: all */
  /* the members below are set by cpu_gemm_init: */
  cpu_gemm_kind kind;
  weft_dtype compute;      /* for CONVERT and BLOCK: the type that they compute in */
  int64_t tile_m, tile_n, tiles_n, tiles;
  int64_t scratch_bytes;   /* of one tile */
  int64_t column_bytes;    /* of a column of b in its packed form; 0: the kernel has no such form, or it does not pay */
  double flops;            /* of the whole product */
} cpu_gemm;

/* What a product multiplies by in the place of b's elements: each is converted to f32, and the steps are done one after
 * the other. The operand of step s for b[l,j] is its element l / group * row + j * column. */
enum { CPU_MOST_STEPS = 4 };
typedef enum cpu_step_kind { CPU_STEP_ADD, CPU_STEP_SUBTRACT, CPU_STEP_MULTIPLY } cpu_step_kind;
typedef struct cpu_affine {
  int count;
  int64_t group; /* k is a multiple */
  struct cpu_step {
    cpu_step_kind kind;
    weft_dtype type;
    int64_t row, column;
  } steps[CPU_MOST_STEPS];
} cpu_affine;

/* Chooses the kernel (the table in gemm.c) and the tiles from the fields above `kind`.  kind NONE: there is no
 * kernel for these types. */
void cpu_gemm_init(cpu_gemm *gemm);

/* The product of m rows and n columns of `whole`, planned for that size: kernel, tiles and scratch may be others. */
cpu_gemm cpu_gemm_part(const cpu_gemm *whole, int64_t m, int64_t n);

/* True if the kernel that cpu_gemm_init has chosen can add to c. */
bool cpu_gemm_can_add(const cpu_gemm *gemm);

/* Computes tile 0 <= tile < gemm->tiles.  `packed`: the packed form of b, or NULL; the bits of c are the same.
 * `scratch`: gemm->scratch_bytes, 64-byte aligned. */
void cpu_gemm_tile(const cpu_gemm *gemm, int64_t tile, const void *a, const void *b, const void *packed, void *c,
                   void *scratch);

/* The same of the first `columns` columns of c alone, as sums of the first `depth` of k: a multiple of CPU_DEPTH_ALIGN,
 * at least one, or k. Elements of a behind that are not read; those of b are, where b is packed. The order of sums is
 * that of the whole product, but for OpenBLAS, which chooses its own. Kernels without cpu_gemm_takes_depth get k. */
enum { CPU_DEPTH_ALIGN = 64 };
bool cpu_gemm_takes_depth(const cpu_gemm *gemm);
void cpu_gemm_tile_part(const cpu_gemm *gemm, int64_t tile, int64_t columns, int64_t depth, const void *a,
                        const void *b, const void *packed, void *c, void *scratch);
/* The same for a product by weights that `affine` makes of b: few rows (gemm_few.h) of floats by numbers of at most 16
 * bits, of which b_row or b_col is 1. `operands`: the first elements of the steps' operands. */
void cpu_gemm_init_affine(cpu_gemm *gemm, const cpu_affine *affine);
void cpu_gemm_tile_affine(const cpu_gemm *gemm, const cpu_affine *affine, int64_t tile, const void *a, const void *b,
                          const void *const *operands, void *c, void *scratch);

/* Optional, around the calls of cpu_gemm_tile that a thread makes for one `gemm` without other products between them:
 * state of the processor that the kernel needs is set and given back once. */
void cpu_gemm_begin(const cpu_gemm *gemm);
void cpu_gemm_end(const cpu_gemm *gemm);

/* The packed form of b, for all tiles at once.  Without it the kernel makes the part of b that a tile needs for each
 * tile.  It does not depend on m. */
enum { CPU_PACK_COLUMNS = 256 }; /* that one call of cpu_gemm_pack packs */
int64_t cpu_gemm_packed_bytes(const cpu_gemm *gemm); /* 0: there is none */
/* Packs CPU_PACK_COLUMNS columns, or those that there are, from column part * CPU_PACK_COLUMNS on.
 * `to`: the whole form, 64-byte aligned. */
void cpu_gemm_pack(const cpu_gemm *gemm, int64_t part, const void *b, void *to);
/* True if `part` can read the packed form that was made for `whole`: they differ in m only. */
bool cpu_gemm_shares_packed(const cpu_gemm *whole, const cpu_gemm *part);

/* Computes the whole product, which must be of kind TINY. */
void cpu_gemm_tiny(const cpu_gemm *gemm, const void *a, const void *b, void *c);

/* dst[i] = src[i * step], converted as HLO convert does; every numeric type.  `dst` is dense. */
void cpu_convert(weft_dtype to, void *dst, weft_dtype from, const void *src, int64_t step, int64_t count);

/* out[n] = x[k] . matrix, where matrix[l, j] is at l * row + j * col and is of a 16-bit float type; one step must be 1.
 * False for other types and steps. */
bool cpu_gemv_narrow(weft_dtype type, int64_t n, int64_t k, const float *x, const void *matrix, int64_t row,
                     int64_t col, float *out);

/* What a kernel with a packed form of b provides.  A form is a row of columns of `column_bytes` each, CPU_PACKED_ALIGN
 * of them at a time, so that a tile that begins at column j finds its part at j * column_bytes. */
enum { CPU_PACKED_ALIGN = 32 }; /* tiles begin at multiples of this */
typedef struct cpu_packed_ops {
  int64_t (*column_bytes)(const cpu_gemm *gemm); /* 0: a packed form does not pay */
  void (*pack)(const cpu_gemm *gemm, int64_t columns, const char *b, char *to);
  /* As the kernel's own tile, with the packed form in the place of b. */
  void (*tile)(const cpu_gemm *gemm, int64_t m, int64_t n, const char *a, const char *packed, char *c, void *scratch);
} cpu_packed_ops;

/* How many of k are added up. */
static inline int64_t cpu_gemm_used_k(const cpu_gemm *gemm) { return gemm->used_k ? gemm->used_k : gemm->k; }

/* The size of the parts of nearly equal size, each at most `most`, into which `size` is cut; 1 if `size` is 0. */
static inline int64_t cpu_even_part(int64_t size, int64_t most)
{
  return size ? (size + (size - 1) / most) / ((size - 1) / most + 1) : 1;
}

#endif
