/* cpu/fft.h -- HLO fft on the worker pool: all four kinds, any lengths, c64 and c128 (f32, f64 where real). */
#ifndef WEFT_CPU_FFT_H
#define WEFT_CPU_FFT_H

#include "base/arena.h"
#include "base/status.h"
#include "hlo/hlo.h"
#include "runtime/pool.h"

enum { CPU_FFT_MAX_STAGES = 64, CPU_FFT_MAX_DIMS = 8 };

/* Tables for lines of one length. */
typedef struct cpu_fft_line {
  int64_t n;
  int stage_count;
  int radix[CPU_FFT_MAX_STAGES];      /* the factors of n, whose product is n; none if n has a large prime factor: */
  const void *twiddles;               /* of each stage in turn, as (re, im) pairs of the real type */
  const struct cpu_fft_line *inner;   /* Bluestein: of a power of two >= 2 n - 1, else NULL */
  const void *chirp, *chirp_spectrum; /* exp(-i pi k^2 / n) for k < n; the transform of its conjugate, cyclic */
} cpu_fft_line;

/* A long line of n = n1 n2 complex numbers, seen as n1 rows of n2: its columns are transformed first, then its
 * rows. */
typedef struct cpu_fft_long {
  const cpu_fft_line *columns, *rows; /* of n1 and of n2 */
  /* The factor exp(-2 pi i j k / n) of row k and column j is the product of two entries: of group_roots at j / 16 and
   * k, and of lane_roots at k and j % 16, where the 16 real parts come first. */
  const void *group_roots, *lane_roots;
} cpu_fft_long;

typedef struct cpu_fft {
  hlo_fft_type type;
  bool is_double;
  int rank, transformed;              /* the last `transformed` dimensions are transformed */
  int64_t in_dims[HLO_MAX_RANK], out_dims[HLO_MAX_RANK];
  const cpu_fft_line *lines[CPU_FFT_MAX_DIMS]; /* the tables of each dimension, the last dimension first */
  const void *half_roots;             /* exp(-2 pi i k / n) to n / 4, n the reals of a line if that is even: the last
                                         dimension's lines are of n / 2 complex numbers then; else NULL */
  const cpu_fft_long *longs;          /* of the last dimension, if its lines are long; lines[0] is not used then */
  /* for one long line between its columns and rows; behind it, from half_at on,
   * for the half spectrum between the passes of an inverse real transform of several dimensions */
  int64_t scratch_bytes, half_at;
  bool is_empty;                      /* nothing to transform */
} cpu_fft;

/* Plans; tables are in `arena`.  Errors: UNIMPLEMENTED, RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_fft_init(cpu_fft *fft, weft_arena *arena, const hlo_instr *instr);
/* `out` does not overlap `in`.  Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_fft_run(const cpu_fft *fft, rt_pool *pool, const void *in, void *out, void *scratch);

#endif
