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

typedef struct cpu_fft {
  hlo_fft_type type;
  bool is_double;
  int rank, transformed;              /* the last `transformed` dimensions are transformed */
  int64_t in_dims[HLO_MAX_RANK], out_dims[HLO_MAX_RANK];
  const cpu_fft_line *lines[CPU_FFT_MAX_DIMS]; /* the tables of each dimension, the last dimension first */
  const void *half_roots;             /* exp(-2 pi i k / n) to n / 4, n the reals of a line if that is even: the last
                                         dimension's lines are of n / 2 complex numbers then; else NULL */
  /* for the half spectrum between the passes of an inverse real transform of several dimensions */
  int64_t scratch_bytes;
} cpu_fft;

/* Plans; tables are in `arena`.  Errors: UNIMPLEMENTED, RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_fft_init(cpu_fft *fft, weft_arena *arena, const hlo_instr *instr);
/* `out` does not overlap `in`.  Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_fft_run(const cpu_fft *fft, rt_pool *pool, const void *in, void *out, void *scratch);

#endif
