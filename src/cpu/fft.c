/* cpu/fft.c -- Fourier transforms: the passes over an array's dimensions. The transform of one line is in
 * fft_lines.h. Lengths with a large prime factor use Bluestein's convolution.
 *
 * Long lines of the last dimension: with n = n1 n2, element j1 n2 + j2 of a line is x[j1][j2], and element
 * k1 + n1 k2 of its transform is
 *   sum_j2 exp(-2 pi i j2 k2 / n2) (exp(-2 pi i j2 k1 / n) sum_j1 x[j1][j2] exp(-2 pi i j1 k1 / n1))
 * These are short lines, first along columns, then along rows. They stay in the caches, and all threads share them. */
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
  LARGEST_PRIME = 31,       /* prime factors up to this one are computed as a sum */
  LEAST_LONG = 1 << 11,     /* complex numbers of a long line, if there are at most FEW_LINES */
  ALWAYS_LONG = 1 << 16,    /* complex numbers of a line that is long however many lines there are */
  FEW_LINES = 8,
  ROW_PADDING = 16,         /* complex numbers between rows, whose distance would else be a power of two */
  HALVES = 4096,            /* pairs of a half spectrum that are one task */
  LANE_BYTES = 1 << 20,     /* most bytes of the lines of one task: fewer long lines go together */
  FEW_LANES = 8,            /* lines side by side if LANES would leave threads without a task, and */
  TASK_NUMBERS = 1 << 12,   /* a task then still has as many complex numbers */
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

/* One step of a long line (cpu_fft_long). Strides, between rows, are in complex numbers. */
typedef struct long_pass {
  const cpu_fft_long *plan;
  const void *half_roots, *in;
  void *out;
  int64_t in_stride, out_stride, h; /* h: complex numbers of the line, or half its reals */
  bool inverse, is_double;
  atomic_bool failed;
} long_pass;

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

/* Plans `lines` lines of n complex numbers as long lines; *out is NULL if that does not pay, or if n has no divisor. */
static weft_status *long_new(weft_arena *arena, int64_t n, int64_t lines, bool is_double, const cpu_fft_long **out)
{
  int64_t n1 = 1, rest = n;
  cpu_fft_long *l;

  *out = NULL;
  for (int64_t prime = 2; prime <= LARGEST_PRIME; prime++)
    while (rest % prime == 0) rest /= prime;
  if (n < (lines <= FEW_LINES ? LEAST_LONG : ALWAYS_LONG) || rest > 1) return NULL;
  for (int64_t d = LANES; d * d <= n; d++) /* the divisor next to the root */
    if (n % d == 0) n1 = d;
  if (n1 == 1) return NULL;
  l = WEFT_ARENA_NEW(arena, cpu_fft_long);
  WEFT_TRY_ALLOC(l);
  WEFT_TRY(line_new(arena, n1, is_double, &l->columns));
  if (n1 * n1 == n) l->rows = l->columns;
  else WEFT_TRY(line_new(arena, n / n1, is_double, &l->rows));
  *out = l;
  return is_double ? long_roots_f64(arena, l) : long_roots_f32(arena, l);
}

static int64_t complex_bytes(const cpu_fft *f) { return f->is_double ? 16 : 8; }

/* The distance of the rows of a long line in scratch. The line of an inverse real transform is whole there. */
static int64_t long_stride(const cpu_fft *f)
{
  return f->longs->rows->n + (f->type == HLO_FFT_IRFFT ? 0 : ROW_PADDING);
}

/* Plans the last dimension as long lines, if it is fit for it. */
static weft_status *plan_long_lines(cpu_fft *f, weft_arena *arena, int64_t length, int64_t n)
{
  int64_t in = f->in_dims[f->rank - 1], out = f->out_dims[f->rank - 1], half = length / 2 + 1, lines = 1;

  if ((f->type == HLO_FFT_RFFT || f->type == HLO_FFT_IRFFT) && !f->half_roots) return NULL;
  if (in != (f->type == HLO_FFT_IRFFT ? half : length) || out != (f->type == HLO_FFT_RFFT ? half : length)) return NULL;
  for (int d = 0; d < f->rank - 1; d++) lines *= f->in_dims[d];
  WEFT_TRY(long_new(arena, n, lines, f->is_double, &f->longs));
  if (f->longs) f->half_at = WEFT_ALIGN_UP(f->longs->columns->n * long_stride(f) * complex_bytes(f), 64);
  return NULL;
}

weft_status *cpu_fft_init(cpu_fft *f, weft_arena *arena, const hlo_instr *instr)
{
  const hlo_shape *in = instr->operands[0]->shape, *out = instr->shape;

  memset(f, 0, sizeof *f);
  f->type = instr->u.fft_type;
  f->is_double = weft_dtype_component(in->type) == WEFT_F64;
  f->rank = in->rank;
  f->transformed = instr->dims.count;
  if (f->transformed > CPU_FFT_MAX_DIMS) return WEFT_ERR(UNIMPLEMENTED, "fft over %d dimensions", f->transformed);
  memcpy(f->in_dims, in->dims, (size_t)in->rank * sizeof *in->dims);
  memcpy(f->out_dims, out->dims, (size_t)out->rank * sizeof *out->dims);
  f->is_empty = f->transformed == 0 || hlo_shape_elems(in) == 0 || hlo_shape_elems(out) == 0;
  for (int i = 0; i < f->transformed && !f->is_empty; i++) {
    int64_t n = instr->dims.v[f->transformed - 1 - i];
    if (i == 0 && n % 2 == 0 && (f->type == HLO_FFT_RFFT || f->type == HLO_FFT_IRFFT)) {
      WEFT_TRY(f->is_double ? half_roots_f64(arena, n, &f->half_roots) : half_roots_f32(arena, n, &f->half_roots));
      n /= 2;
    }
    if (i == 0) WEFT_TRY(plan_long_lines(f, arena, instr->dims.v[f->transformed - 1], n));
    if (i == 0 && f->longs) continue;
    for (int k = 0; k < i && !f->lines[i]; k++)
      if (f->lines[k] && f->lines[k]->n == n) f->lines[i] = f->lines[k];
    if (!f->lines[i]) WEFT_TRY(line_new(arena, n, f->is_double, &f->lines[i]));
  }
  f->scratch_bytes = f->half_at + (f->type == HLO_FFT_IRFFT && f->transformed > 1 ? hlo_shape_bytes(in) : 0);
  return NULL;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The reals that a task needs for its lines: input, output, and twice the inner length for Bluestein. */
static int64_t lane_reals(const cpu_fft_line *l) { return 4 * (l->n + 1) + (l->inner ? 4 * l->inner->n : 0); }

static void pass_task(void *ctx, int64_t task)
{
  fft_pass *p = ctx;
  int64_t first = task * p->lanes, lanes = WEFT_MIN(p->lanes, p->lines - first);
  void *memory = rt_task_scratch(lane_reals(p->line) * lanes * (p->is_double ? 8 : 4), &p->failed);

  if (!memory) return;
  if (p->is_double) task_f64(p, first, lanes, memory);
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
  if (p.lanes == LANES && p.lines < 2 * LANES && FEW_LANES * p.line->n >= TASK_NUMBERS) p.lanes = FEW_LANES;
  rt_parallel_for(pool, (p.lines + p.lanes - 1) / p.lanes, pass_task, &p);
  if (atomic_load(&p.failed))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "fft: out of memory for lines of %lld", (long long)p.line->n);
  return NULL;
}

static void columns_task(void *ctx, int64_t task)
{
  long_pass *p = ctx;
  const cpu_fft_long *l = p->plan;
  int64_t first = task * LANES, lanes = WEFT_MIN(LANES, l->rows->n - first);
  void *memory = rt_task_scratch(lane_reals(l->columns) * lanes * (p->is_double ? 8 : 4), &p->failed);

  if (!memory) return;
  if (p->is_double) columns_task_f64(p, first, lanes, memory);
  else columns_task_f32(p, first, lanes, memory);
}

static void rows_task(void *ctx, int64_t task)
{
  long_pass *p = ctx;
  const cpu_fft_long *l = p->plan;
  int64_t first = task * LANES, lanes = WEFT_MIN(LANES, l->columns->n - first);
  void *memory = rt_task_scratch(lane_reals(l->rows) * lanes * (p->is_double ? 8 : 4), &p->failed);

  if (!memory) return;
  if (p->is_double) rows_task_f64(p, first, lanes, memory);
  else rows_task_f32(p, first, lanes, memory);
}

static void halves_task(void *ctx, int64_t task)
{
  const long_pass *p = ctx;
  int64_t first = task * HALVES, count = WEFT_MIN(HALVES, p->h / 2 + 1 - first);

  if (p->is_double) halves_task_f64(p, first, count);
  else halves_task_f32(p, first, count);
}

/* Transforms one long line. */
static weft_status *run_long_line(const cpu_fft *f, rt_pool *pool, const void *in, void *out, void *scratch)
{
  const cpu_fft_long *l = f->longs;
  int64_t n1 = l->columns->n, n2 = l->rows->n, stride = long_stride(f), h = n1 * n2;
  bool inverse = f->type == HLO_FFT_IFFT || f->type == HLO_FFT_IRFFT;
  long_pass halves = {.plan = l, .half_roots = f->half_roots, .h = h, .inverse = inverse, .is_double = f->is_double};
  long_pass columns = halves, rows = halves;
  int64_t halves_tasks = (h / 2 + HALVES) / HALVES;

  columns.in = in, columns.in_stride = n2;
  columns.out = scratch, columns.out_stride = stride;
  rows.in = scratch, rows.in_stride = stride;
  rows.out = out, rows.out_stride = n1;
  if (f->type == HLO_FFT_IRFFT) {
    halves.in = in;
    columns.in = halves.out = scratch;
    rt_parallel_for(pool, halves_tasks, halves_task, &halves);
  }
  rt_parallel_for(pool, (n2 + LANES - 1) / LANES, columns_task, &columns);
  rt_parallel_for(pool, (n1 + LANES - 1) / LANES, rows_task, &rows);
  if (f->type == HLO_FFT_RFFT) {
    halves.in = halves.out = out;
    rt_parallel_for(pool, halves_tasks, halves_task, &halves);
  }
  if (atomic_load(&columns.failed) || atomic_load(&rows.failed))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "fft: out of memory for lines of %lld", (long long)h);
  return NULL;
}

/* Transforms the lines of the last dimension. */
static weft_status *run_last(const cpu_fft *f, rt_pool *pool, const void *in, void *out, void *scratch)
{
  int last = f->rank - 1;
  int64_t in_row = f->in_dims[last], out_row = f->out_dims[last], lines = 1, bytes = complex_bytes(f);

  if (!f->longs)
    return run_pass(f, pool, last, f->in_dims, in, in_row, out, out_row, f->type == HLO_FFT_RFFT,
                    f->type == HLO_FFT_IRFFT);
  for (int d = 0; d < last; d++) lines *= f->in_dims[d];
  for (int64_t i = 0; i < lines; i++) {
    const char *from = (const char *)in + i * in_row * (f->type == HLO_FFT_RFFT ? bytes / 2 : bytes);
    char *to = (char *)out + i * out_row * (f->type == HLO_FFT_IRFFT ? bytes / 2 : bytes);
    WEFT_TRY(run_long_line(f, pool, from, to, scratch));
  }
  return NULL;
}

weft_status *cpu_fft_run(const cpu_fft *f, rt_pool *pool, const void *in, void *out, void *scratch)
{
  int last = f->rank - 1, first = f->rank - f->transformed;
  void *half = scratch ? (char *)scratch + f->half_at : NULL;

  if (f->is_empty) return NULL;
  if (f->type == HLO_FFT_IRFFT) { /* the other dimensions come first, on the half spectrum */
    for (int d = first; d < last; d++) {
      WEFT_TRY(run_pass(f, pool, d, f->in_dims, in, f->in_dims[d], half, f->in_dims[d], false, false));
      in = half;
    }
    return run_last(f, pool, in, out, scratch);
  }
  WEFT_TRY(run_last(f, pool, in, out, scratch));
  for (int d = first; d < last; d++)
    WEFT_TRY(run_pass(f, pool, d, f->out_dims, out, f->out_dims[d], out, f->out_dims[d], false, false));
  return NULL;
}
