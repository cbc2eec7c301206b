/* cpu/conv_amx.h -- what conv_tiles.c and conv_rows.c do by Intel's instructions: products of bf16 on AMX tiles whose
 * pixels are read where they lie. */
#ifndef WEFT_CPU_CONV_AMX_H
#define WEFT_CPU_CONV_AMX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

/* A block of sums: so many output features by so many pixels.  A tile of the kernel has 16 features by 32 elements of
 * k. */
enum { CPU_AMX_FEATURES = 32, CPU_AMX_PIXELS = 32, CPU_AMX_STRIP = 16, CPU_AMX_K = 32, CPU_AMX_TILE_BYTES = 1024 };

/* The way through k: `blocks` blocks of `taps` tiles each.  A tile of pixels is 16 rows, `row_bytes` apart, of 32-bit
 * words, in which neighbouring elements of k meet; it begins at block * block_bytes + tap_bytes[tap]. */
typedef struct cpu_amx_walk {
  int64_t blocks, block_bytes, taps, row_bytes;
  const int64_t *tap_bytes;
  /* what is read next, from `next` on: each step of the walk asks the memory for so many lines of it */
  const char *next;
  int64_t next_lines;
} cpu_amx_walk;

bool cpu_conv_amx_fits(void); /* this processor has the instructions, and this process may use them */

/* sums[CPU_AMX_FEATURES][CPU_AMX_PIXELS] = kernel . pixels, between cpu_amx_hold_whole and cpu_amx_let_go.  The kernel
 * is one strip of tiles, or two (`tall`), each as long as the walk; the pixels are one tile wide, or two (`wide`).
 * Sums of what there is not are left as they are. */
void cpu_conv_amx_multiply(const cpu_amx_walk *walk, const char *kernel, const char *pixels, bool tall, bool wide,
                           float *sums);

/* Writes those of the CPU_AMX_PIXELS sums of each of `features` rows whose bit is set in `which`, side by side, as f32
 * or bf16, to rows that are `row_bytes` apart. */
void cpu_conv_amx_store(const float *sums, int64_t features, uint32_t which, weft_dtype type, char *to,
                        int64_t row_bytes);

/* sums[CPU_AMX_PIXELS][CPU_AMX_FEATURES] = pixels . kernel, for pixels whose features are neighbours.  A tile of pixels
 * is 16 of them, `row_bytes` apart, by 64 bytes; the pixels are one tile, or two (`tall`).  Each step of the walk reads
 * two tiles of the kernel, which lie side by side, or the first of them (not `wide`). */
void cpu_conv_amx_rows(const cpu_amx_walk *walk, const char *kernel, const char *pixels, bool tall, bool wide,
                       float *sums);

/* Writes `features` sums of each of the CPU_AMX_PIXELS pixels whose bit is set in `which`, as f32 or bf16, to rows that
 * are `row_bytes` apart. */
void cpu_conv_amx_store_rows(const float *sums, int64_t features, uint32_t which, weft_dtype type, char *to,
                             int64_t row_bytes);

/* to[CPU_AMX_PIXELS] = the elements a[i] and b[i] in one word each, for `count` of them; then zeros. NULL: zeros. */
void cpu_conv_amx_pairs(const uint16_t *a, const uint16_t *b, int64_t count, uint32_t *to);

#endif
