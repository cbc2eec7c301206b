/* cpu/fft.c -- Fourier transforms: the passes over an array's dimensions. The transform of one line is in
 * fft_lines.h. Lengths with a large prime factor use Bluestein's convolution. */
#include <config.h>

#include "cpu/fft.h"

#include <stdatomic.h>
#include <string.h>
#include <tgmath.h>

#include "base/macros.h"
#include "cpu/hot.h"

enum {
  LANES = 16,               /* lines transformed side by side */
  TRANSPOSE = 16,           /* elements of a line that are read or written at a time */
  LARGEST_PRIME = 31,       /* prime factors up to this one are computed as a plain sum */
  LANE_BYTES = 1 << 20,     /* most bytes of the lines of one task: fewer long lines go together */
};

/* One pass: all lines along one dimension. */
typedef struct fft_pass {
  const cpu_fft_line *line;
  /* cpu_fft.half_roots, if one end of the pass is real and its length even: that end is then read or written as half
   * as many complex numbers, and real_in and real_out are false. Otherwise NULL. in_length and out_length count what
   * is read and written */
  const void *half_roots;
  const void *in;
  void *out;
  int64_t inner, lines, in_length, out_length, lanes;
  bool inverse, real_in, real_out, is_double;
  atomic_bool failed;
} fft_pass;

#define REAL float
#define WIDE double
#define NAME(x) x##_f32
#include "cpu/fft_lines.h"
#undef REAL
#undef WIDE
#undef NAME
#define REAL double
#define WIDE long double
#define NAME(x) x##_f64
#include "cpu/fft_lines.h"
#undef REAL
#undef WIDE
#undef NAME

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static weft_status *line_new(weft_arena *arena, int64_t n, bool is_double, const cpu_fft_line **out)
{
  cpu_fft_line *l = WEFT_ARENA_NEW(arena, cpu_fft_line);
  int64_t rest = n;

  WEFT_TRY_ALLOC(l);
  *out = l;
  l->n = n;
  for (int r = 4; rest > 1 && r <= LARGEST_PRIME; r = r == 4 ? 2 : r == 2 ? 3 : r + 2)
    while (rest % r == 0) {
      l->radix[l->stage_count++] = r;
      rest /= r;
    }
  if (rest > 1) { /* a large prime */
    int64_t m = 1;
    l->stage_count = 0;
    while (m < 2 * n - 1) m *= 2;
    WEFT_TRY(line_new(arena, m, is_double, &l->inner));
    return is_double ? chirp_f64(arena, l) : chirp_f32(arena, l);
  }
  return is_double ? tables_f64(arena, l) : tables_f32(arena, l);
}

weft_status *cpu_fft_init(cpu_fft *f, weft_arena *arena, const hlo_instr *instr)
{
  const hlo_shape *in = instr->operands[0]->shape, *out = instr->shape;

  memset(f, 0, sizeof *f);
  f->type = instr->u.fft_type;
  f->is_double = weft_dtype_component(in->type) == WEFT_F64;
  f->rank = in->rank;
  f->transformed = instr->dims.count;
  f->scratch_bytes = f->type == HLO_FFT_IRFFT && f->transformed > 1 ? hlo_shape_bytes(in) : 0;
  if (f->transformed > CPU_FFT_MAX_DIMS) return WEFT_ERR(UNIMPLEMENTED, "fft over %d dimensions", f->transformed);
  memcpy(f->in_dims, in->dims, (size_t)in->rank * sizeof *in->dims);
  memcpy(f->out_dims, out->dims, (size_t)out->rank * sizeof *out->dims);
  if (hlo_shape_elems(in) == 0 || hlo_shape_elems(out) == 0) return NULL;
  for (int i = 0; i < f->transformed; i++) {
    int64_t n = instr->dims.v[f->transformed - 1 - i];
    if (i == 0 && n % 2 == 0 && (f->type == HLO_FFT_RFFT || f->type == HLO_FFT_IRFFT)) {
      WEFT_TRY(f->is_double ? half_roots_f64(arena, n, &f->half_roots) : half_roots_f32(arena, n, &f->half_roots));
      n /= 2;
    }
    for (int k = 0; k < i && !f->lines[i]; k++)
      if (f->lines[k]->n == n) f->lines[i] = f->lines[k];
    if (!f->lines[i]) WEFT_TRY(line_new(arena, n, f->is_double, &f->lines[i]));
  }
  return NULL;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The reals that a task needs for its lines: input, output, and twice the inner length for Bluestein. */
static int64_t lane_reals(const cpu_fft_line *l) { return 4 * (l->n + 1) + (l->inner ? 4 * l->inner->n : 0); }

static void pass_task(void *ctx, int64_t task)
{
  fft_pass *p = ctx;
  int64_t first = task * p->lanes, lanes = WEFT_MIN(p->lanes, p->lines - first);
  void *memory = rt_thread_scratch(lane_reals(p->line) * lanes * (p->is_double ? 8 : 4));

  /* written by tasks; read after the parallel loop has ended */
  if (!memory) atomic_store_explicit(&p->failed, true, memory_order_relaxed);
  else if (p->is_double) task_f64(p, first, lanes, memory);
  else task_f32(p, first, lanes, memory);
}

/* Transforms all lines along dimension d from `in` to `out`. The two arrays differ only in that dimension's length. */
static weft_status *run_pass(const cpu_fft *f, rt_pool *pool, int d, const int64_t *dims, const void *in,
                             int64_t in_length, void *out, int64_t out_length, bool real_in, bool real_out)
{
  fft_pass p = {
    .line = f->lines[f->rank - 1 - d], .in = in, .out = out, .inner = 1, .lines = 1, .in_length = in_length,
    .out_length = out_length, .inverse = f->type == HLO_FFT_IFFT || f->type == HLO_FFT_IRFFT, .real_in = real_in,
    .real_out = real_out, .is_double = f->is_double,
  };

  for (int i = 0; i < f->rank; i++) {
    if (i != d) p.lines *= dims[i];
    if (i > d) p.inner *= dims[i];
  }
  if ((real_in || real_out) && f->half_roots) {
    p.half_roots = f->half_roots;
    *(real_in ? &p.in_length : &p.out_length) /= 2;
    p.real_in = p.real_out = false;
  }
  p.lanes = WEFT_MAX(1, WEFT_MIN(LANES, LANE_BYTES / (lane_reals(p.line) * (f->is_double ? 8 : 4))));
  rt_parallel_for(pool, (p.lines + p.lanes - 1) / p.lanes, pass_task, &p);
  if (atomic_load(&p.failed))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "fft: out of memory for lines of %lld", (long long)p.line->n);
  return NULL;
}

weft_status *cpu_fft_run(const cpu_fft *f, rt_pool *pool, const void *in, void *out, void *scratch)
{
  int last = f->rank - 1, first = f->rank - f->transformed;
  int64_t in_row = f->in_dims[last], out_row = f->out_dims[last];

  if (!f->lines[0]) return NULL;  /* nothing to transform */
  if (f->type == HLO_FFT_IRFFT) { /* the other dimensions come first, on the half spectrum */
    for (int d = first; d < last; d++) {
      WEFT_TRY(run_pass(f, pool, d, f->in_dims, in, f->in_dims[d], scratch, f->in_dims[d], false, false));
      in = scratch;
    }
    return run_pass(f, pool, last, f->in_dims, in, in_row, out, out_row, false, true);
  }
  WEFT_TRY(run_pass(f, pool, last, f->in_dims, in, in_row, out, out_row, f->type == HLO_FFT_RFFT, false));
  for (int d = first; d < last; d++)
    WEFT_TRY(run_pass(f, pool, d, f->out_dims, out, f->out_dims[d], out, f->out_dims[d], false, false));
  return NULL;
}
