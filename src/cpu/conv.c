/* Convolution as products of matrices: see conv.h.
 *
 * Arrays are brought into canonical order where they are not: input [batch, space, features], kernel [space, in, out],
 * output [batch, space, features].  Then each group is   out[pixels, out] = patches[pixels, taps * in] . kernel[taps * in, out]
 * where a row of `patches` is the part of the input that one output pixel sees: zeros for padding and for the holes of
 * base dilation.  Patches are made for a few hundred pixels at a time.  Groups of few features run as plain loops. */
#include <config.h>

#include "cpu/conv.h"

#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/hot.h"

enum {
  PATCH_BYTES = 2 << 20,      /* of a task's patches, but at least MIN_ROWS */
  MIN_ROWS = 48,
  TASK_MFLOPS = 50,
  DIRECT_FEATURES = 12,       /* at most this many output features a group: loops */
};

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* Sets up the copy of an array into the order `dims`; false if it is in that order. */
static bool plan_order(cpu_transpose *t, const hlo_shape *shape, const int64_t *dims)
{
  int64_t steps[HLO_MAX_RANK], step = 1;
  bool changes = false;

  for (int d = shape->rank - 1; d >= 0; d--) {
    steps[d] = step;
    step *= shape->dims[d];
  }
  *t = (cpu_transpose){.rank = shape->rank, .elems = step, .elem_bytes = (int64_t)weft_dtype_bytes(shape->type)};
  for (int d = 0; d < shape->rank; d++) {
    t->size[d] = shape->dims[dims[d]];
    t->step[d] = steps[dims[d]];
    changes |= dims[d] != d;
  }
  return changes;
}

/* The copy of the canonical result into the order asked for: result dimension dims[d] is canonical dimension d. */
static bool plan_result_order(cpu_transpose *t, const hlo_shape *out, const int64_t *dims)
{
  int64_t step = 1;
  bool changes = false;

  *t = (cpu_transpose){.rank = out->rank, .elems = hlo_shape_elems(out), .elem_bytes = (int64_t)weft_dtype_bytes(out->type)};
  for (int d = out->rank - 1; d >= 0; d--) {
    t->size[dims[d]] = out->dims[dims[d]];
    t->step[dims[d]] = step;
    step *= out->dims[dims[d]];
    changes |= dims[d] != d;
  }
  return changes;
}

static bool is_plain(const cpu_conv *c)
{
  for (int d = 0; d < c->spatial; d++) {
    const hlo_window_dim *w = &c->window[d];
    if (w->size != 1 || w->stride != 1 || w->pad_low || w->pad_high || w->base_dilation != 1) return false;
  }
  return true;
}

static void plan_tasks(cpu_conv *c)
{
  int64_t k = c->taps * c->in_features, rows = c->batch * c->out_pixels;
  int64_t lhs_bytes = (int64_t)weft_dtype_bytes(c->lhs_type);
  double flops_per_row = 2.0 * (double)k * (double)c->out_features * (c->direct ? (double)c->groups : 1);

  c->rows_per_task = (int64_t)(TASK_MFLOPS * 1e6 / WEFT_MAX(flops_per_row, 1.0));
  if (!c->plain && !c->direct)
    c->rows_per_task = WEFT_MIN(c->rows_per_task, PATCH_BYTES / WEFT_MAX(1, k * lhs_bytes));
  c->rows_per_task = WEFT_ALIGN_UP(WEFT_MAX(c->rows_per_task, MIN_ROWS), 16);
  c->rows_per_task = WEFT_MAX(1, WEFT_MIN(c->rows_per_task, rows));
  c->tasks_per_group = (rows + c->rows_per_task - 1) / c->rows_per_task;
  c->patch_bytes = c->plain || c->direct ? 0 : WEFT_ALIGN_UP(c->rows_per_task * k * lhs_bytes, 64);
}

weft_status *cpu_conv_init(cpu_conv *c, const hlo_conv_attrs *attrs, const hlo_shape *lhs, const hlo_shape *rhs,
                           const hlo_shape *out)
{
  int64_t lhs_dims[HLO_MAX_RANK], rhs_dims[HLO_MAX_RANK], out_dims[HLO_MAX_RANK];
  int n = attrs->window.rank;

  memset(c, 0, sizeof *c);
  c->lhs_type = lhs->type;
  c->rhs_type = rhs->type;
  c->out_type = out->type;
  c->spatial = n;
  c->groups = attrs->feature_group_count;
  c->batch_groups = attrs->batch_group_count;
  c->batch = out->dims[attrs->out_batch];
  c->in_features = rhs->dims[attrs->rhs_in_feature];
  c->all_features = out->dims[attrs->out_feature];
  c->lhs_features = lhs->dims[attrs->lhs_feature];
  c->out_features = c->all_features / (c->groups * c->batch_groups);
  c->in_pixels = c->taps = c->out_pixels = 1;
  for (int d = n - 1; d >= 0; d--) {
    c->window[d] = attrs->window.dims[d];
    c->in_step[d] = c->in_pixels;
    c->in_pixels *= c->in_size[d] = lhs->dims[attrs->lhs_spatial.v[d]];
    c->taps *= c->kernel_size[d] = rhs->dims[attrs->rhs_spatial.v[d]];
    c->out_pixels *= c->out_size[d] = out->dims[attrs->out_spatial.v[d]];
    lhs_dims[d + 1] = attrs->lhs_spatial.v[d];
    rhs_dims[d] = attrs->rhs_spatial.v[d];
    out_dims[d + 1] = attrs->out_spatial.v[d];
  }
  lhs_dims[0] = attrs->lhs_batch;
  lhs_dims[n + 1] = attrs->lhs_feature;
  rhs_dims[n] = attrs->rhs_in_feature;
  rhs_dims[n + 1] = attrs->rhs_out_feature;
  out_dims[0] = attrs->out_batch;
  out_dims[n + 1] = attrs->out_feature;
  c->order_lhs = plan_order(&c->lhs_order, lhs, lhs_dims);
  c->order_rhs = plan_order(&c->rhs_order, rhs, rhs_dims);
  c->order_out = plan_result_order(&c->out_order, out, out_dims);
  c->rhs_at = c->order_lhs ? WEFT_ALIGN_UP(hlo_shape_bytes(lhs), 64) : 0;
  c->out_at = c->rhs_at + (c->order_rhs ? WEFT_ALIGN_UP(hlo_shape_bytes(rhs), 64) : 0);
  c->scratch_bytes = c->out_at + (c->order_out ? hlo_shape_bytes(out) : 0);

  bool same_type = lhs->type == out->type && rhs->type == out->type;
  c->plain = is_plain(c); /* also without spatial dimensions */
  c->direct = c->groups > 1 && c->out_features <= DIRECT_FEATURES && same_type &&
              (out->type == WEFT_F32 || out->type == WEFT_F64);
  plan_tasks(c);
  int64_t k = c->taps * c->in_features;
  c->gemm = (cpu_gemm){
    .a_type = c->lhs_type, .b_type = c->rhs_type, .c_type = c->out_type, .m = c->rows_per_task, .n = c->out_features,
    .k = k, .a_row = c->plain ? c->lhs_features : k, .a_col = 1, .b_row = c->all_features, .b_col = 1,
    .c_row = c->all_features, .via = WEFT_INVALID,
  };
  cpu_gemm_init(&c->gemm);
  if (c->gemm.kind == CPU_GEMM_NONE && !c->direct)
    return WEFT_ERR(UNIMPLEMENTED, "convolution of %s and %s to %s", weft_dtype_name(lhs->type),
                    weft_dtype_name(rhs->type), weft_dtype_name(out->type));
  return NULL;
}

/* ---- running ------------------------------------------------------------------------------------------------------- */

typedef struct conv_job {
  const cpu_conv *c;
  const char *lhs, *rhs;
  char *out;
  atomic_bool failed;
} conv_job;

/* Which input pixel tap `tap` (an index into the kernel) of output pixel `at` reads; -1: padding or a hole. */
static int64_t input_pixel(const cpu_conv *c, const int64_t *at, const int64_t *tap)
{
  int64_t pixel = 0;

  for (int d = 0; d < c->spatial; d++) {
    const hlo_window_dim *w = &c->window[d];
    int64_t place = w->reversal ? c->kernel_size[d] - 1 - tap[d] : tap[d];
    int64_t x = at[d] * w->stride + place * w->window_dilation - w->pad_low;
    if (x < 0) return -1;
    if (w->base_dilation != 1) {
      if (x % w->base_dilation != 0) return -1;
      x /= w->base_dilation;
    }
    if (x >= c->in_size[d]) return -1;
    pixel += x * c->in_step[d];
  }
  return pixel;
}

/* Splits a row number into batch and output pixel. */
static int64_t row_position(const cpu_conv *c, int64_t row, int64_t *at)
{
  int64_t pixel = row % c->out_pixels;

  for (int d = c->spatial - 1; d >= 0; d--) {
    at[d] = pixel % c->out_size[d];
    pixel /= c->out_size[d];
  }
  return row / c->out_pixels;
}

static bool next_index(int rank, const int64_t *size, int64_t *idx)
{
  for (int d = rank - 1; d >= 0; d--) {
    if (++idx[d] < size[d]) return true;
    idx[d] = 0;
  }
  return false;
}

/* The taps of a kernel along the last spatial dimension, for an output pixel: neighbours in memory where nothing is dilated
 * or reversed.  `tap` is 0 in that dimension; `image` is one batch element's first pixel. */
static char *patch_line(const cpu_conv *c, const char *image, const int64_t *at, int64_t *tap, char *to)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(c->lhs_type), run = c->in_features * bytes, pixel_bytes = c->lhs_features * bytes;
  int last = c->spatial - 1;
  int64_t taps = c->kernel_size[last];
  const hlo_window_dim *w = &c->window[last];

  if (w->window_dilation != 1 || w->base_dilation != 1 || w->reversal) {
    for (tap[last] = 0; tap[last] < taps; tap[last]++, to += run) {
      int64_t pixel = input_pixel(c, at, tap);
      if (pixel < 0) memset(to, 0, (size_t)run);
      else memcpy(to, image + pixel * pixel_bytes, (size_t)run);
    }
    tap[last] = 0;
    return to;
  }
  int64_t first = at[last] * w->stride - w->pad_low; /* may be outside; lo .. hi are the taps inside */
  int64_t lo = WEFT_MIN(taps, WEFT_MAX(0, -first)), hi = WEFT_MAX(lo, WEFT_MIN(taps, c->in_size[last] - first));
  int64_t pixel = -1;
  if (lo < hi) {
    tap[last] = lo;
    pixel = input_pixel(c, at, tap);
    tap[last] = 0;
  }
  if (pixel < 0) lo = hi = taps; /* outside in another dimension */
  memset(to, 0, (size_t)(lo * run));
  if (run == pixel_bytes) memcpy(to + lo * run, image + pixel * pixel_bytes, (size_t)((hi - lo) * run));
  else
    for (int64_t t = lo; t < hi; t++) memcpy(to + t * run, image + (pixel + t - lo) * pixel_bytes, (size_t)run);
  memset(to + hi * run, 0, (size_t)((taps - hi) * run));
  return to + taps * run;
}

/* patches[rows, taps, in_features] for rows first.. of a group; `lhs` points at the group's first feature, batch 0. */
static void make_patches(const cpu_conv *c, const char *lhs, int64_t first, int64_t rows, char *patches)
{
  int64_t pixel_bytes = c->lhs_features * (int64_t)weft_dtype_bytes(c->lhs_type), at[HLO_MAX_RANK];

  for (int64_t r = 0; r < rows; r++) {
    int64_t tap[HLO_MAX_RANK] = {0};
    const char *image = lhs + row_position(c, first + r, at) * c->in_pixels * pixel_bytes;
    do patches = patch_line(c, image, at, tap, patches);
    while (next_index(c->spatial - 1, c->kernel_size, tap));
  }
}

/* One group's rows first..; the group's place among feature groups and batch groups alike gives its output features. */
static void gemm_task(void *ctx, int64_t task)
{
  conv_job *job = ctx;
  const cpu_conv *c = job->c;
  int64_t group = task / c->tasks_per_group, first = task % c->tasks_per_group * c->rows_per_task;
  int64_t lhs_bytes = (int64_t)weft_dtype_bytes(c->lhs_type), rhs_bytes = (int64_t)weft_dtype_bytes(c->rhs_type);
  int64_t out_bytes = (int64_t)weft_dtype_bytes(c->out_type), features_at = group * c->out_features;
  int64_t lhs_at = c->groups > 1 ? group * c->in_features : group * c->batch * c->in_pixels * c->lhs_features;
  const char *lhs = job->lhs + lhs_at * lhs_bytes, *rhs = job->rhs + features_at * rhs_bytes;
  char *out = job->out + (first * c->all_features + features_at) * out_bytes;
  cpu_gemm gemm = c->gemm;
  char *scratch = rt_thread_scratch(c->patch_bytes + WEFT_MAX(1, gemm.scratch_bytes));

  if (!scratch) {
    atomic_store_explicit(&job->failed, true, memory_order_relaxed); /* read after the loop's join */
    return;
  }
  gemm.m = WEFT_MIN(c->rows_per_task, c->batch * c->out_pixels - first);
  gemm.tiles = (gemm.m + gemm.tile_m - 1) / gemm.tile_m * gemm.tiles_n;
  const char *a = lhs + first * c->lhs_features * lhs_bytes;
  if (!c->plain) {
    make_patches(c, lhs, first, gemm.m, scratch);
    a = scratch;
  }
  for (int64_t t = 0; t < gemm.tiles; t++) cpu_gemm_tile(&gemm, t, a, rhs, out, scratch + c->patch_bytes);
}

/* out[group][o] += in[group][i] * kernel[i][group][o] for all groups of one tap. */
#define DIRECT_TAP(name, type)                                                                                  \
  static CPU_HOT void name(const cpu_conv *c, const type *restrict in, const type *restrict kernel, type *restrict out) \
  {                                                                                                             \
    if (c->in_features == 1 && c->out_features == 1) { /* depthwise */                                          \
      for (int64_t g = 0; g < c->groups; g++) out[g] += in[g] * kernel[g];                                      \
      return;                                                                                                   \
    }                                                                                                           \
    for (int64_t g = 0; g < c->groups; g++)                                                                     \
      for (int64_t i = 0; i < c->in_features; i++)                                                              \
        for (int64_t o = 0; o < c->out_features; o++)                                                           \
          out[g * c->out_features + o] +=                                                                       \
              in[g * c->in_features + i] * kernel[i * c->all_features + g * c->out_features + o];               \
  }
DIRECT_TAP(direct_f32, float)
DIRECT_TAP(direct_f64, double)

static void direct_task(void *ctx, int64_t task)
{
  conv_job *job = ctx;
  const cpu_conv *c = job->c;
  int64_t first = task * c->rows_per_task, end = WEFT_MIN(first + c->rows_per_task, c->batch * c->out_pixels);
  int64_t bytes = (int64_t)weft_dtype_bytes(c->out_type), at[HLO_MAX_RANK];

  for (int64_t row = first; row < end; row++) {
    int64_t tap[HLO_MAX_RANK] = {0}, image = row_position(c, row, at) * c->in_pixels;
    char *out = job->out + row * c->all_features * bytes;
    const char *kernel = job->rhs;
    memset(out, 0, (size_t)(c->all_features * bytes));
    do {
      int64_t pixel = input_pixel(c, at, tap);
      const char *in = job->lhs + (image + pixel) * c->lhs_features * bytes;
      if (pixel >= 0 && c->out_type == WEFT_F32) direct_f32(c, (const void *)in, (const void *)kernel, (void *)out);
      else if (pixel >= 0) direct_f64(c, (const void *)in, (const void *)kernel, (void *)out);
      kernel += c->in_features * c->all_features * bytes;
    } while (next_index(c->spatial, c->kernel_size, tap));
  }
}

weft_status *cpu_conv_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs, void *out, void *scratch)
{
  conv_job job = {.c = c, .lhs = lhs, .rhs = rhs, .out = c->order_out ? (char *)scratch + c->out_at : out};
  int64_t rows = c->batch * c->out_pixels;

  if (rows * c->all_features == 0) return NULL;
  if (c->taps * c->in_features == 0) {
    memset(out, 0, (size_t)(rows * c->all_features) * weft_dtype_bytes(c->out_type));
    return NULL;
  }
  if (c->order_lhs) {
    cpu_transpose_run(&c->lhs_order, pool, scratch, lhs);
    job.lhs = scratch;
  }
  if (c->order_rhs) {
    char *ordered = (char *)scratch + c->rhs_at;
    cpu_transpose_run(&c->rhs_order, pool, ordered, rhs);
    job.rhs = ordered;
  }
  if (c->direct) rt_parallel_for(pool, c->tasks_per_group, direct_task, &job);
  else rt_parallel_for(pool, c->tasks_per_group * c->groups * c->batch_groups, gemm_task, &job);
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: out of memory for patches");
  if (c->order_out) cpu_transpose_run(&c->out_order, pool, out, job.out);
  return NULL;
}
