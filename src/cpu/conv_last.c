/* cpu/conv_last.c -- convolutions in place, where features come last (conv_last.h).  A task takes some lines of the
 * result and some output features.  It copies the lines of the input that they see, as f32 and with their padding.
 * In such a line the taps of a window's line are neighbours, and so are the windows of neighbouring pixels:
 *
 *   for each line of the window:  sums[pixels, out] += lines[pixels, taps * in] . kernel[taps * in, out]
 *
 * where neighbouring rows of the left operand overlap: they are stride * in elements apart.  Few output features would
 * leave most lanes of such a product idle: then the lanes are elements of k, and each sum is that of a vector.  bf16 is
 * added up in f32 and rounded once. */
#include <config.h>

#include "cpu/conv_last.h"

#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/gemm_dense.h"
#include "cpu/hot.h"

enum {
  WIDTH = CPU_NARROW_WIDTH, /* features of a panel of the kernel */
  MOST_RUNS = 128,
  LEAST_WIDTH = 8,        /* pixels of a line of the result: shorter lines leave registers unused */
  LEAST_RUN = 48,         /* neighbouring elements of k: for shorter runs, loading the sums would cost too much */
  FEW_FEATURES = 6,       /* so many output features at most are computed with k in the lanes, */
  MOST_TURNED = 1 << 14,  /* if the kernel has so many elements at most: each task turns it */
  TOGETHER = 4,           /* pixels, which few features of the kernel are multiplied with at a time */
  TASK_PIXELS = 64,
  TASK_FLOPS = 2000000,
  MOST_FEATURES = 128,    /* of a task */
  MOST_LINE_BYTES = 1 << 20, /* of the lines of a task */
};

bool cpu_conv_last_init(cpu_conv *c)
{
  cpu_conv_last *p = &c->last;
  const hlo_window_dim *y = &c->window[0], *x = &c->window[1];

  p->few = c->out_features <= FEW_FEATURES && c->out_features * c->taps * c->in_features <= MOST_TURNED;
  /* with AVX-512 the patches of conv.c do as well, unless few features leave most lanes of a product idle */
  if (!cpu_dense_kernel_of(WEFT_F32) || (!cpu_dense_narrow_kernel() && !p->few) || c->spatial != 2 || c->taps < 2 ||
      c->gemm.a_type != WEFT_F32 || c->gemm.b_type != WEFT_F32 || c->gemm.c_type != WEFT_F32 || c->direct ||
      c->by_plane || c->by_phase || c->out_size[1] < LEAST_WIDTH)
    return false;
  for (int d = 0; d < 2; d++)
    if (c->window[d].base_dilation != 1 || c->window[d].reversal) return false;
  p->run_taps = x->window_dilation == 1 ? c->kernel_size[1] : 1;
  if (p->run_taps * c->in_features < LEAST_RUN || c->taps > MOST_RUNS) return false;
  if (c->batch * c->out_pixels * c->out_features == 0) return false;
  p->width = (c->out_size[1] - 1) * x->stride + (c->kernel_size[1] - 1) * x->window_dilation + 1;
  double line_flops = 2.0 * (double)(c->taps * c->in_features) * (double)WEFT_MIN(c->out_features, MOST_FEATURES) *
                      (double)c->out_size[1];
  p->lines = WEFT_MIN(c->out_size[0], WEFT_MAX((TASK_PIXELS + c->out_size[1] - 1) / c->out_size[1],
                                               (int64_t)(TASK_FLOPS / line_flops) + 1));
  p->in_lines = (p->lines - 1) * y->stride + (c->kernel_size[0] - 1) * y->window_dilation + 1;
  if ((double)p->in_lines * (double)p->width * (double)c->in_features * sizeof(float) > MOST_LINE_BYTES) return false;
  p->line_tasks = (c->out_size[0] + p->lines - 1) / p->lines;
  p->features = WEFT_ALIGN_UP(cpu_even_part(c->out_features, MOST_FEATURES), WIDTH);
  p->feature_tasks = (c->out_features + p->features - 1) / p->features;
  return true;
}

/* ---- few output features ----------------------------------------------------------------------------------------- */

typedef float vec __attribute__((vector_size(CPU_NARROW_BYTES), aligned(sizeof(float)), may_alias));
typedef float four __attribute__((vector_size(TOGETHER * sizeof(float)), aligned(sizeof(float)), may_alias));

/* The sums of the lanes of four vectors. */
static CPU_INLINE four sums_of(const vec *v)
{
  enum { PARTS = CPU_NARROW_BYTES / sizeof(four) };
  four t[TOGETHER];

  for (int i = 0; i < TOGETHER; i++) {
    const four *part = (const four *)&v[i];
    t[i] = part[0];
    for (int q = 1; q < PARTS; q++) t[i] += part[q];
  }
  four ab = __builtin_shufflevector(t[0], t[1], 0, 4, 1, 5) + __builtin_shufflevector(t[0], t[1], 2, 6, 3, 7),
       cd = __builtin_shufflevector(t[2], t[3], 0, 4, 1, 5) + __builtin_shufflevector(t[2], t[3], 2, 6, 3, 7);
  return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}

/* The runs of k in the lines: that of tap t * run_taps begins offset[t] elements into them. */
typedef struct few_runs {
  int64_t count, run, offset[MOST_RUNS];
} few_runs;

/* sums[o][TOGETHER] of `features` features: the dot products of the kernel's rows, `k` apart, with four pixels. */
static CPU_INLINE void add_few(const few_runs *runs, int features, const float *const *pixels, const float *kernel,
                               int64_t k, four *sums)
{
  enum { LANES = CPU_NARROW_LANES, MOST = 3 };
  vec s[MOST][TOGETHER] = {{{0}}};
  int64_t whole = runs->run / LANES * LANES, rest = runs->run - whole;

  for (int64_t t = 0; t < runs->count; t++) {
    const float *w = kernel + t * runs->run;
    for (int64_t l = 0; l < whole; l += LANES) _Pragma("GCC unroll 4") for (int i = 0; i < TOGETHER; i++)
      {
        vec x = *(const vec *)(pixels[i] + runs->offset[t] + l);
        _Pragma("GCC unroll 3") for (int o = 0; o < features; o++) s[o][i] += x * *(const vec *)(w + o * k + l);
      }
    if (rest == 0) continue;
    vec y[MOST] = {{0}};
    for (int o = 0; o < features; o++) memcpy(&y[o], w + o * k + whole, (size_t)rest * sizeof(float));
    _Pragma("GCC unroll 4") for (int i = 0; i < TOGETHER; i++)
    {
      vec x = {0};
      memcpy(&x, pixels[i] + runs->offset[t] + whole, (size_t)rest * sizeof(float));
      _Pragma("GCC unroll 3") for (int o = 0; o < features; o++) s[o][i] += x * y[o];
    }
  }
  _Pragma("GCC unroll 3") for (int o = 0; o < features; o++) sums[o] = sums_of(s[o]);
}

/* A line of `width` pixels, `step` elements apart; the sums of neighbouring pixels are `row` apart. */
static CPU_HOT void few_line(const few_runs *runs, int64_t features, const float *line, int64_t step, int64_t width,
                             const float *kernel, int64_t k, float *sums, int64_t row)
{
  for (int64_t x = 0; x < width; x += TOGETHER) {
    int64_t count = WEFT_MIN(TOGETHER, width - x);
    const float *pixels[TOGETHER];
    for (int64_t i = 0; i < TOGETHER; i++) pixels[i] = line + (x + WEFT_MIN(i, count - 1)) * step;
    for (int64_t o = 0; o < features; o += 3) {
      four part[3];
      switch (features - o) {
      case 1: add_few(runs, 1, pixels, kernel + o * k, k, part); break;
      case 2: add_few(runs, 2, pixels, kernel + o * k, k, part); break;
      default: add_few(runs, 3, pixels, kernel + o * k, k, part);
      }
      for (int64_t q = o; q < WEFT_MIN(o + 3, features); q++)
        for (int64_t i = 0; i < count; i++) sums[(x + i) * row + q] = part[q - o][i];
    }
  }
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

typedef struct last_job {
  const cpu_conv *c;
  const char *lhs;
  const float *rhs;
  rt_form packed;
  const rt_pool *pool;
  char *out;
  atomic_bool failed;
} last_job;

/* to = `pixels` pixels of one group, the input features of a pixel side by side, as f32. */
static void copy_pixels(const cpu_conv *c, const char *from, int64_t pixels, float *to)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(c->lhs_type), features = c->in_features;

  if (features == c->lhs_features) { /* one run */
    features *= pixels;
    pixels = 1;
  }
  for (int64_t i = 0; i < pixels; i++, from += c->lhs_features * bytes, to += features)
    if (c->lhs_type == WEFT_F32) memcpy(to, from, (size_t)features * sizeof(float));
    else cpu_convert(WEFT_F32, to, c->lhs_type, from, 1, features);
}

/* to[in_lines][width][in_features] = what the lines of the result from `line` on see of a group's input. */
static void copy_lines(const cpu_conv *c, const char *image, int64_t line, float *to)
{
  const cpu_conv_last *p = &c->last;
  const hlo_window_dim *y = &c->window[0], *x = &c->window[1];
  int64_t pixel_bytes = c->lhs_features * (int64_t)weft_dtype_bytes(c->lhs_type), n = c->in_features;
  int64_t lo = WEFT_MIN(p->width, WEFT_MAX(0, x->pad_low)), first = WEFT_MAX(0, -x->pad_low);
  int64_t count = WEFT_MAX(0, WEFT_MIN(p->width - lo, c->in_size[1] - first)), hi = lo + count;

  for (int64_t i = 0; i < p->in_lines; i++, to += p->width * n) {
    int64_t at = line * y->stride - y->pad_low + i;
    if (at < 0 || at >= c->in_size[0] || count == 0) {
      memset(to, 0, (size_t)(p->width * n) * sizeof(float));
      continue;
    }
    if (lo > 0) memset(to, 0, (size_t)(lo * n) * sizeof(float));
    copy_pixels(c, image + (at * c->in_size[1] + first) * pixel_bytes, count, to + lo * n);
    if (hi < p->width) memset(to + hi * n, 0, (size_t)((p->width - hi) * n) * sizeof(float));
  }
}

/* A task's sums: for pixel x of its line i, from `sums` + (i * out width + x) * row on. */
typedef struct last_tile {
  const float *lines, *kernel, *packed; /* kernel, packed: of the task's features; packed may be NULL */
  float *panel, *sums;
  int64_t row, count, features;         /* count: lines of the result */
} last_tile;

/* Adds the part [from, from + k) of a run, whose taps are those from `tap` on, `offset` elements into the lines. */
static void add_part(const cpu_conv *c, const last_tile *t, int64_t tap, int64_t offset, int64_t from, int64_t k)
{
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(WEFT_F32);
  int64_t n = c->in_features, all_k = c->taps * n, at = tap * n + from, width = c->out_size[1];
  int64_t step = c->window[1].stride * n, line_step = c->window[0].stride * c->last.width * n;

  for (int64_t j = 0; j < t->features; j += WIDTH) {
    int64_t columns = WEFT_MIN(WIDTH, t->features - j), vectors = (columns + CPU_NARROW_LANES - 1) / CPU_NARROW_LANES;
    const float *panel = t->packed ? t->packed + j * all_k + at * WIDTH : t->panel;
    if (!t->packed) kernel->pack(columns, k, t->kernel + at * c->all_features + j, 1, c->all_features, t->panel, WIDTH);
    for (int64_t i = 0; i < t->count; i++) {
      const float *line = t->lines + i * line_step + offset + from;
      cpu_micro_steps steps = {step, 1, WIDTH, t->row};
      for (int64_t x = 0, rows; x < width; x += rows) { /* in parts of nearly the same size */
        rows = cpu_even_part(width - x, kernel->rows);
        kernel->micro[rows][vectors](k, line + x * step, panel, t->sums + (i * width + x) * t->row + j, &steps,
                                     columns - (vectors - 1) * CPU_NARROW_LANES, at > 0);
      }
    }
  }
}

static void last_task(void *ctx, int64_t task)
{
  last_job *job = ctx;
  const cpu_conv *c = job->c;
  const cpu_conv_last *p = &c->last;
  int64_t part = task % p->feature_tasks, tile = task / p->feature_tasks % p->line_tasks,
          rest = task / p->feature_tasks / p->line_tasks, image = rest % c->batch, group = rest / c->batch;
  int64_t n = c->in_features, width = c->out_size[1], feature = part * p->features, line = tile * p->lines;
  int64_t lhs_bytes = (int64_t)weft_dtype_bytes(c->lhs_type), out_bytes = (int64_t)weft_dtype_bytes(c->out_type);
  last_tile t = {.count = WEFT_MIN(p->lines, c->out_size[0] - line),
                 .features = WEFT_MIN(p->features, c->out_features - feature)};
  bool rounds = c->out_type != WEFT_F32;
  int64_t lines_bytes = WEFT_ALIGN_UP(p->in_lines * p->width * n * (int64_t)sizeof(float), 64),
          panel_elems = p->few ? WEFT_ALIGN_UP(t.features * c->taps * n, WIDTH) : (CPU_DENSE_BLOCK_K + 1) * WIDTH,
          panel_bytes = panel_elems * (int64_t)sizeof(float);
  int64_t sums = rounds ? t.count * width * t.features : 0;
  char *scratch = rt_task_scratch(lines_bytes + panel_bytes + sums * (int64_t)sizeof(float), &job->failed);

  if (!scratch) return;
  int64_t features_at = group * c->out_features + feature;
  int64_t lhs_at = c->groups > 1 ? group * n + image * c->in_pixels * c->lhs_features
                                 : (group * c->batch + image) * c->in_pixels * c->lhs_features;
  char *out = job->out + ((image * c->out_pixels + line * width) * c->all_features + features_at) * out_bytes;
  copy_lines(c, job->lhs + lhs_at * lhs_bytes, line, (float *)scratch);
  t.lines = (float *)scratch;
  t.panel = (float *)(scratch + lines_bytes);
  t.sums = rounds ? (float *)(scratch + lines_bytes + panel_bytes) : (float *)out;
  t.row = rounds ? t.features : c->all_features;
  t.kernel = job->rhs + features_at;
  if (job->packed.data)
    t.packed =
      (const float *)((const char *)rt_form_near(job->packed, job->pool) + group * cpu_gemm_packed_bytes(&c->gemm)) +
      feature * c->taps * n;
  few_runs runs = {.count = c->taps / p->run_taps, .run = p->run_taps * n};
  int64_t block = cpu_even_part(runs.run, CPU_DENSE_BLOCK_K);
  for (int64_t i = 0, tap = 0; i < runs.count; i++, tap += p->run_taps) {
    runs.offset[i] = tap / c->kernel_size[1] * c->window[0].window_dilation * p->width * n +
                     tap % c->kernel_size[1] * c->window[1].window_dilation * n;
    for (int64_t from = 0; from < runs.run && !p->few; from += block)
      add_part(c, &t, tap, runs.offset[i], from, WEFT_MIN(block, runs.run - from));
  }
  for (int64_t l = 0; l < c->taps * n && p->few; l++) /* the kernel, turned */
    for (int64_t o = 0; o < t.features; o++) t.panel[o * c->taps * n + l] = t.kernel[l * c->all_features + o];
  for (int64_t i = 0; i < t.count && p->few; i++)
    few_line(&runs, t.features, t.lines + i * c->window[0].stride * p->width * n, c->window[1].stride * n, width,
             t.panel, c->taps * n, t.sums + i * width * t.row, t.row);
  for (int64_t i = 0; rounds && i < t.count * width; i++)
    cpu_convert(c->out_type, out + i * c->all_features * out_bytes, WEFT_F32, t.sums + i * t.row, 1, t.features);
}

weft_status *cpu_conv_last_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs, rt_form packed,
                               void *out)
{
  last_job job = {.c = c, .lhs = lhs, .rhs = rhs, .packed = packed, .pool = pool, .out = out};

  rt_parallel_for(pool, c->batch * c->groups * c->batch_groups * c->last.line_tasks * c->last.feature_tasks, last_task,
                  &job);
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: out of memory for lines");
  return NULL;
}
