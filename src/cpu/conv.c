/* cpu/conv.c -- convolution as products of matrices (conv.h).
 *
 * Arrays are brought into canonical order where they are not: input [batch, space, features], kernel [space, in,
 * out], output [batch, space, features].  Then each group is
 *
 *   out[pixels, out] = patches[pixels, taps * in] . kernel[taps * in, out]
 *
 * where a row of `patches` is the part of the input that one output pixel sees: zeros for padding and for the holes
 * of base dilation.  Patches are made for a few hundred pixels at a time.  With base dilation (the gradient of
 * strides), the output pixels fall into classes that meet the same taps outside of holes: each class is a
 * convolution of its own.  Groups of few features run as plain loops, over the features of a pixel or, where the
 * spatial dimensions are innermost, over planes (conv_plane.c). */
#include <config.h>

#include "cpu/conv.h"

#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/conv_first.h"
#include "cpu/conv_last.h"
#include "cpu/conv_lines.h"
#include "cpu/conv_plane.h"
#include "cpu/conv_rows.h"
#include "cpu/conv_tiles.h"
#include "cpu/conv_turned.h"
#include "cpu/gemm_block.h"
#include "cpu/gemm_dense.h"
#include "cpu/hot.h"

enum {
  PATCH_BYTES = 2 << 20,      /* most bytes of the patches of one task, unless MIN_ROWS rows need more */
  MIN_ROWS = 48,
  NARROW_PATCH_BYTES = 384 << 10, /* with vectors of 256 bits: all stays in an L2 cache of 512 KiB */
  NARROW_MIN_ROWS = 32,
  TASK_MFLOPS = 50,
  SMALL_TASK_ROWS = 256,
  DIRECT_FEATURES = 12,       /* groups with at most this many output features run as loops */
  MAX_DIRECT_TAPS = 256,
  MOST_PHASES = 256,
  WIDEN_TASK = 1 << 15, /* elements */
  WHOLE_ROWS = 1024,
};
#define SMALL_TASK 0.1 /* the part of TASK_MFLOPS that a small task has: some 50 us of work */

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

/* Sets up the copy of the canonical result into the order that the instruction asks for: dimension dims[d] of the
 * result is canonical dimension d. */
static bool plan_result_order(cpu_transpose *t, const hlo_shape *out, const int64_t *dims)
{
  int64_t step = 1;
  bool changes = false;

  *t = (cpu_transpose){
    .rank = out->rank, .elems = hlo_shape_elems(out), .elem_bytes = (int64_t)weft_dtype_bytes(out->type)};
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

/* The distance along a dimension at which output pixels meet the same taps. */
static int64_t phase_step(const hlo_window_dim *w) { return w->base_dilation / weft_gcd(w->stride, w->base_dilation); }

/* True if tasks copy what they multiply: patches, or pixels as f32. */
static bool has_patches(const cpu_conv *c) { return !c->plain || c->is_widened; }

/* True if a task has sums of its own, which it then rounds. */
static bool rounds_sums(const cpu_conv *c) { return c->is_widened && c->out_type != WEFT_F32; }

static void plan_tasks(cpu_conv *c)
{
  int64_t k = c->taps * c->in_features, rows = c->batch * c->out_pixels;
  int64_t lhs_bytes = (int64_t)weft_dtype_bytes(c->is_widened ? WEFT_F32 : c->lhs_type);
  double flops_per_row = 2.0 * (double)k * (double)c->out_features * (c->direct ? (double)c->groups : 1);

  double most = TASK_MFLOPS * 1e6 / WEFT_MAX(flops_per_row, 1.0); /* with few rows, reading the kernel would dominate */
  c->rows_per_task = (int64_t)WEFT_MIN(most, WEFT_MAX(most * SMALL_TASK, SMALL_TASK_ROWS));
  int64_t patch_bytes = cpu_block_is_fast() ? PATCH_BYTES : NARROW_PATCH_BYTES;
  if (has_patches(c) && !c->direct)
    c->rows_per_task = WEFT_MIN(c->rows_per_task, patch_bytes / WEFT_MAX(1, k * lhs_bytes));
  c->rows_per_task = WEFT_ALIGN_UP(WEFT_MAX(c->rows_per_task, cpu_block_is_fast() ? MIN_ROWS : NARROW_MIN_ROWS), 16);
  int64_t tasks = WEFT_MAX(1, (rows + c->rows_per_task - 1) / c->rows_per_task); /* tasks of nearly the same size */
  c->rows_per_task = WEFT_MAX(1, WEFT_MIN(WEFT_ALIGN_UP((rows + tasks - 1) / tasks, 16), rows));
  c->tasks_per_group = (rows + c->rows_per_task - 1) / c->rows_per_task;
  c->patch_bytes = !has_patches(c) || c->direct ? 0 : WEFT_ALIGN_UP(c->rows_per_task * k * lhs_bytes, 64);
}

/* True if the products would convert panels to f32 for each task (CPU_GEMM_CONVERT): then the kernel is converted once
 * and the patches as they are made. */
static bool is_better_wide(const cpu_conv *c)
{
  return c->spatial > 0 && c->lhs_type == WEFT_BF16 && c->rhs_type == WEFT_BF16 &&
         (c->out_type == WEFT_BF16 || c->out_type == WEFT_F32) && cpu_dense_narrow_kernel();
}

static void plan_products(cpu_conv *c, int64_t c_row)
{
  int64_t k = c->taps * c->in_features;

  plan_tasks(c);
  c->gemm = (cpu_gemm){
    .a_type = c->is_widened ? WEFT_F32 : c->lhs_type,
    .b_type = c->is_widened ? WEFT_F32 : c->rhs_type,
    .c_type = c->is_widened ? WEFT_F32 : c->out_type,
    .m = c->rows_per_task,
    .n = c->out_features,
    .k = k,
    .a_row = has_patches(c) ? k : c->lhs_features,
    .a_col = 1,
    .b_row = c->all_features,
    .b_col = 1,
    .c_row = rounds_sums(c) ? c->out_features : c_row,
    .via = WEFT_INVALID,
  };
  cpu_gemm_init(&c->gemm);
}

/* Plans one product of all rows for windows of one element, if there are too few pixels for tasks that read the whole
 * kernel each. With more pixels, threads keep the shares that they have of the arrays before and behind. */
static void plan_whole(cpu_conv *c)
{
  int64_t rows = c->batch * c->out_pixels;

  c->whole = c->plain && c->spatial > 0 && c->groups == 1 && c->batch_groups == 1 && !c->is_widened && !c->direct &&
             !c->by_plane && rows <= WHOLE_ROWS;
  if (c->whole) c->gemm = cpu_gemm_part(&c->gemm, rows, c->gemm.n);
}

static int64_t group_count(const cpu_conv *c) { return c->groups * c->batch_groups; }

typedef struct widen_job {
  weft_dtype type;
  const char *from;
  float *to;
  int64_t count;
} widen_job;

static void widen_task(void *ctx, int64_t task)
{
  const widen_job *job = ctx;
  int64_t at = task * WIDEN_TASK;

  cpu_convert(WEFT_F32, job->to + at, job->type, job->from + at * (int64_t)weft_dtype_bytes(job->type), 1,
              WEFT_MIN(WIDEN_TASK, job->count - at));
}

void cpu_conv_widen(rt_pool *pool, weft_dtype type, const void *from, int64_t count, float *to)
{
  widen_job job = {.type = type, .from = from, .to = to, .count = count};

  rt_parallel_for(pool, (count + WIDEN_TASK - 1) / WIDEN_TASK, widen_task, &job);
}

/* The bytes of the kernel as the products read it. */
static int64_t kernel_bytes(const cpu_conv *c)
{
  return c->taps * c->in_features * c->all_features * (int64_t)weft_dtype_bytes(c->is_widened ? WEFT_F32 : c->rhs_type);
}

static bool copies_kernel(const cpu_conv *c) { return c->order_rhs || c->is_widened; }

/* Bytes that copy_kernel needs besides. */
static int64_t spare_bytes(const cpu_conv *c)
{
  return c->order_rhs && c->is_widened ? WEFT_ALIGN_UP(kernel_bytes(c), 64) : 0;
}

/* to = the kernel in canonical order, and as f32 if tasks read that. */
static void copy_kernel(const cpu_conv *c, rt_pool *pool, const void *from, void *to, void *spare)
{
  if (c->is_widened) {
    float *wide = c->order_rhs ? spare : to;
    cpu_conv_widen(pool, c->rhs_type, from, c->taps * c->in_features * c->all_features, wide);
    from = wide;
  }
  if (c->order_rhs) cpu_transpose_run(&c->rhs_order, pool, to, from);
}

static bool pack_kernel(const rt_packing *packing, rt_pool *pool, const void *from, void *to)
{
  const cpu_conv *c = ((const cpu_packing *)packing)->plan;
  char *packed = (char *)to + c->packed_at;

  if (copies_kernel(c)) {
    copy_kernel(c, pool, from, to, packed);
    from = to;
  }
  if (c->gemm.column_bytes)
    cpu_pack_matrices(&c->gemm, pool, group_count(c), c->out_features * (int64_t)weft_dtype_bytes(c->gemm.b_type), from,
                      packed);
  return true;
}

static void plan_packing(cpu_conv *c)
{
  int64_t ordered = copies_kernel(c) ? WEFT_ALIGN_UP(kernel_bytes(c), 64) : 0;

  if (c->by_plane || c->direct || c->by_phase) return;
  c->packed_at = ordered;
  int64_t bytes = ordered + WEFT_MAX(group_count(c) * cpu_gemm_packed_bytes(&c->gemm), spare_bytes(c));
  if (bytes == 0) return;
  int count = cpu_packing_begin(&c->packing, c, &c->gemm, bytes, pack_kernel);
  c->packing.base.whole = !c->whole; /* else the work is cut along the pixels */
  c->packing.key[count++] = c->rhs_type;
  for (int d = 0; c->order_rhs && d < c->rhs_order.rank; d++) {
    c->packing.key[count++] = c->rhs_order.size[d];
    c->packing.key[count++] = c->rhs_order.step[d];
  }
  c->packing.base.key_bytes = count * (int64_t)sizeof *c->packing.key;
}

/* ---- oneDNN ------------------------------------------------------------------------------------------------------ */

static bool make_form(const rt_packing *packing, rt_pool *pool, const void *from, void *to)
{
  const cpu_conv *c = ((const cpu_packing *)packing)->plan;
  weft_status *st = cpu_onednn_make_form(c->onednn, pool, from, to);
  bool made = !st;

  weft_status_free(st); /* ignored: if the error persists, the run without the form reports it */
  return made;
}

cpu_conv_kernel cpu_conv_kernel_of(const hlo_conv_attrs *attrs, const hlo_shape *rhs)
{
  int64_t steps[HLO_MAX_RANK], step = 1;
  cpu_conv_kernel kernel;

  for (int d = rhs->rank - 1; d >= 0; d--) {
    steps[d] = step;
    step *= rhs->dims[d];
  }
  kernel = (cpu_conv_kernel){.out_step = steps[attrs->rhs_out_feature], .in_step = steps[attrs->rhs_in_feature]};
  for (int d = 0; d < attrs->rhs_spatial.count; d++) kernel.step[d] = steps[attrs->rhs_spatial.v[d]];
  return kernel;
}

/* Plans the convolution with oneDNN if oneDNN is faster at it. */
static bool plan_onednn(cpu_conv *c, const hlo_conv_attrs *attrs, const hlo_shape *rhs)
{
  cpu_onednn_conv conv = {.type = c->lhs_type, .out_type = c->out_type, .spatial = c->spatial, .batch = c->batch,
                          .groups = c->groups, .in_features = c->in_features, .out_features = c->out_features,
                          .in_size = c->in_size, .kernel_size = c->kernel_size, .out_size = c->out_size,
                          .window = c->window, .plain = c->plain,
                          .in_order = !c->order_lhs && !c->order_out};
  cpu_conv_kernel kernel = cpu_conv_kernel_of(attrs, rhs);

  if (c->rhs_type != c->lhs_type || c->batch_groups != 1) return false;
  conv.kernel_step[0] = kernel.out_step;
  conv.kernel_step[1] = kernel.in_step;
  for (int d = 0; d < c->spatial; d++) conv.kernel_step[d + 2] = kernel.step[d];
  c->onednn = cpu_onednn_plan(&conv);
  if (!c->onednn) return false;
  c->packing.plan = c;
  c->packing.base = (rt_packing){.bytes = cpu_onednn_form_bytes(c->onednn), .pack = make_form};
  c->packing.base.key = cpu_onednn_form_key(c->onednn, &c->packing.base.key_bytes);
  return true;
}

void cpu_conv_fini(cpu_conv *c) { cpu_onednn_free(c->onednn); }

/* ---- strides of windows of one element --------------------------------------------------------------------------- */

/* Makes the input the pixels that the windows read, if these have one element each, and leave pixels out. */
static bool plan_pick(cpu_conv *c)
{
  for (int d = 0; d < c->spatial; d++) {
    const hlo_window_dim *w = &c->window[d];
    if (w->size != 1 || w->pad_low || w->base_dilation != 1 || (c->out_size[d] - 1) * w->stride >= c->in_size[d])
      return false;
  }
  if (c->in_pixels == c->out_pixels || (double)c->batch * (double)c->lhs_features * (double)c->out_pixels > 1e12)
    return false;
  c->picks = true;
  c->pick = (cpu_transpose){.rank = c->spatial + 1,
                            .size = {c->batch * c->lhs_features},
                            .step = {c->in_pixels},
                            .elems = c->batch * c->lhs_features * c->out_pixels,
                            .elem_bytes = (int64_t)weft_dtype_bytes(c->lhs_type)};
  c->in_pixels = 1;
  for (int d = c->spatial - 1; d >= 0; d--) {
    c->pick.size[d + 1] = c->out_size[d];
    c->pick.step[d + 1] = c->in_step[d] * c->window[d].stride;
    c->window[d].stride = 1;
    c->window[d].pad_high = 0;
    c->in_step[d] = c->in_pixels;
    c->in_pixels *= c->in_size[d] = c->out_size[d];
  }
  return c->plain = true;
}

/* The arrays are read and written as they lie, by the form that was chosen for features before pixels. */
static void end_first(cpu_conv *c)
{
  c->order_lhs = c->order_out = false;
  c->scratch_bytes = c->by_tiles    ? c->tiles.scratch_bytes
                     : c->by_lines  ? c->lines.scratch_bytes
                     : c->by_turned ? 0
                                    : c->first_plan.shared_bytes;
  if (!c->picks) return;
  c->pick_at = WEFT_ALIGN_UP(c->scratch_bytes, 64);
  c->scratch_bytes = c->pick_at + WEFT_ALIGN_UP(c->pick.elems * c->pick.elem_bytes, 64);
}

/* Plans one of these forms for an input of which pixels are picked. */
static bool plan_picked(cpu_conv *c, const hlo_conv_attrs *attrs)
{
  cpu_conv whole = *c;

  if (cpu_conv_is_first(c, attrs) && plan_pick(c)) {
    c->by_tiles = cpu_conv_tiles_init(c);
    c->by_first = !c->by_tiles && cpu_conv_first_init(c, attrs);
  }
  if (c->by_tiles || c->by_first) return true;
  *c = whole;
  return false;
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
  c->plain = is_plain(c); /* holds for convolutions without spatial dimensions too */
  c->order_lhs = plan_order(&c->lhs_order, lhs, lhs_dims);
  c->order_out = plan_result_order(&c->out_order, out, out_dims);
  if (!plan_picked(c, attrs)) c->by_tiles = cpu_conv_is_first(c, attrs) && cpu_conv_tiles_init(c);
  if (c->by_tiles || c->by_first) {
    end_first(c);
    return NULL;
  }
  c->by_rows = cpu_conv_rows_init(c, attrs, rhs);
  if (c->by_rows) {
    c->scratch_bytes = c->rows.scratch_bytes;
    return NULL;
  }
  if (plan_onednn(c, attrs, rhs)) {
    c->rhs_at = c->order_lhs ? WEFT_ALIGN_UP(hlo_shape_bytes(lhs), 64) : 0;
    c->out_at = c->rhs_at + (cpu_onednn_wants_form(c->onednn) ? c->packing.base.bytes : 0);
    c->scratch_bytes = c->out_at + (c->order_out ? hlo_shape_bytes(out) : 0);
    return NULL;
  }
  c->by_plane = cpu_conv_plane_init(c, attrs, lhs, rhs, out);
  c->by_first = !c->by_plane && cpu_conv_first_init(c, attrs);
  if (c->by_first) {
    end_first(c);
    return NULL;
  }
  if (c->by_plane) c->order_lhs = c->order_out = false;
  c->order_rhs = !c->by_plane && plan_order(&c->rhs_order, rhs, rhs_dims);

  bool same_type = lhs->type == out->type && rhs->type == out->type;
  c->direct = c->groups > 1 && c->out_features <= DIRECT_FEATURES && same_type && n > 0 && c->taps <= MAX_DIRECT_TAPS &&
              (out->type == WEFT_F32 || out->type == WEFT_F64 ||
               (out->type == WEFT_BF16 && c->in_features == 1 && c->out_features == 1));
  c->is_widened = !c->by_plane && !c->direct && is_better_wide(c);
  if (c->is_widened) c->rhs_order.elem_bytes = sizeof(float);
  c->rhs_at = c->order_lhs ? WEFT_ALIGN_UP(hlo_shape_bytes(lhs), 64) : 0;
  c->spare_at = c->rhs_at + (copies_kernel(c) ? WEFT_ALIGN_UP(kernel_bytes(c), 64) : 0);
  c->out_at = c->spare_at + spare_bytes(c);
  c->scratch_bytes = c->out_at + (c->order_out ? hlo_shape_bytes(out) : 0);
  int64_t phases = 1;
  for (int d = 0; d < n && phases <= MOST_PHASES; d++) phases *= WEFT_MIN(phase_step(&c->window[d]), MOST_PHASES + 1);
  /* Output pixels that meet holes only are set to zero. f8e8m0fnu has no zero, so sums of that type take the general
   * way, which gives NaN for an empty sum. */
  c->by_phase = phases > 1 && phases <= MOST_PHASES && !c->direct && !c->by_plane && c->out_type != WEFT_F8E8M0FNU;
  if (c->by_phase) { /* the taps of one class */
    c->phase_rhs_at = WEFT_ALIGN_UP(c->scratch_bytes, 64);
    c->scratch_bytes = c->phase_rhs_at + kernel_bytes(c);
  }
  plan_products(c, c->all_features);
  if (c->gemm.kind == CPU_GEMM_NONE && !c->direct && !c->by_plane)
    return WEFT_ERR(UNIMPLEMENTED, "convolution of %s and %s to %s", weft_dtype_name(lhs->type),
                    weft_dtype_name(rhs->type), weft_dtype_name(out->type));
  plan_whole(c);
  plan_packing(c);
  c->by_last = cpu_conv_last_init(c);
  return NULL;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* A class of output pixels: those at `start`, `start + step`, ... in an output of `size`. */
typedef struct conv_phase {
  int64_t start[HLO_MAX_RANK], step[HLO_MAX_RANK], size[HLO_MAX_RANK];
} conv_phase;

typedef struct conv_job {
  const cpu_conv *c;
  const conv_phase *phase; /* NULL: all output pixels */
  const char *lhs, *rhs;
  rt_form packed;          /* the packed forms of the groups' kernels */
  const rt_pool *pool;
  char *out;
  atomic_bool failed;
} conv_job;

/* The input place that tap `tap` of output place `at` reads along one dimension; -1: padding or a hole. */
static inline int64_t input_place(const hlo_window_dim *w, int64_t taps, int64_t size, int64_t at, int64_t tap)
{
  int64_t x = at * w->stride + (w->reversal ? taps - 1 - tap : tap) * w->window_dilation - w->pad_low;

  if (x < 0) return -1;
  if (w->base_dilation != 1) {
    if (x % w->base_dilation != 0) return -1;
    x /= w->base_dilation;
  }
  return x < size ? x : -1;
}

/* The input pixel that tap `tap` (an index into the kernel) of output pixel `at` reads, counted over the first
 * `dims` dimensions; -1: padding or a hole. */
static int64_t input_pixel(const cpu_conv *c, int dims, const int64_t *at, const int64_t *tap)
{
  int64_t pixel = 0;

  for (int d = 0; d < dims; d++) {
    int64_t x = input_place(&c->window[d], c->kernel_size[d], c->in_size[d], at[d], tap[d]);
    if (x < 0) return -1;
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

static CPU_INLINE void copy_run(char *to, const char *from, int64_t bytes)
{
  typedef char wide __attribute__((vector_size(64), aligned(1), may_alias));
  typedef char narrow __attribute__((vector_size(16), aligned(1), may_alias));
  int64_t i = 0;

  if (bytes >= 64) { /* the last vector overlaps the one before it */
    for (; i + 64 <= bytes; i += 64) *(wide *)(to + i) = *(const wide *)(from + i);
    *(wide *)(to + bytes - 64) = *(const wide *)(from + bytes - 64);
  } else if (bytes >= 16) {
    for (; i + 16 <= bytes; i += 16) *(narrow *)(to + i) = *(const narrow *)(from + i);
    *(narrow *)(to + bytes - 16) = *(const narrow *)(from + bytes - 16);
  } else {
    memcpy(to, from, (size_t)bytes);
  }
}

/* to = `count` elements of bf16 as f32: for short runs. (gemm_few.c's loop is quicker for long ones.) */
static CPU_INLINE void widen_run(char *to, const char *from, int64_t count)
{
  enum { LANES = 8 };
  typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
  typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
  typedef uint16_t half __attribute__((may_alias));
  typedef uint32_t word __attribute__((may_alias));
  const half *x = (const half *)from;
  word *y = (word *)to;

#define WIDEN(i) *(words *)(y + (i)) = __builtin_convertvector(*(const halves *)(x + (i)), words) << 16
  if (count >= LANES) { /* the last vector overlaps the one before it */
    for (int64_t i = 0; i + LANES <= count; i += LANES) WIDEN(i);
    WIDEN(count - LANES);
  } else
    for (int64_t i = 0; i < count; i++) y[i] = (uint32_t)x[i] << 16;
#undef WIDEN
}

/* Copies `count` elements into a patch. */
static CPU_INLINE void copy_taps(const cpu_conv *c, char *to, const char *from, int64_t count)
{
  if (c->is_widened) widen_run(to, from, count);
  else copy_run(to, from, count * (int64_t)weft_dtype_bytes(c->lhs_type));
}

/* Copies the taps along the last spatial dimension for `count` neighbouring output pixels, the first of them at x.
 * `to` is their place in the first pixel's patch. `line` is the line of the input that they read; NULL if it is
 * padding or a hole. Without dilation and reversal the taps are neighbours in memory. */
static CPU_HOT void patch_lines(const cpu_conv *c, const char *line, int64_t x, int64_t count, char *to,
                                int64_t patch_bytes)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(c->lhs_type), pixel_bytes = c->lhs_features * bytes,
          features = c->in_features, run = features * (int64_t)weft_dtype_bytes(c->gemm.a_type);
  int last = c->spatial - 1;
  int64_t taps = c->kernel_size[last], size = c->in_size[last];
  const hlo_window_dim w = c->window[last];
  bool dense = w.window_dilation == 1 && w.base_dilation == 1 && !w.reversal;

  for (int64_t i = 0; i < count; i++, to += patch_bytes) {
    int64_t first = (x + i) * w.stride - w.pad_low; /* may be outside */
    if (!line) {
      memset(to, 0, (size_t)(taps * run));
    } else if (dense && features == c->lhs_features) { /* the taps lo .. hi are inside the input */
      int64_t lo = WEFT_MIN(taps, WEFT_MAX(0, -first)), hi = WEFT_MAX(lo, WEFT_MIN(taps, size - first));
      /* most patches touch no edge of the input, and a call of memset costs as much as copying a short run */
      if (lo > 0) memset(to, 0, (size_t)(lo * run));
      copy_taps(c, to + lo * run, line + (first + lo) * pixel_bytes, (hi - lo) * features);
      if (hi < taps) memset(to + hi * run, 0, (size_t)((taps - hi) * run));
    } else {
      for (int64_t t = 0; t < taps; t++) {
        int64_t at = input_place(&w, taps, size, x + i, t);
        if (at < 0) memset(to + t * run, 0, (size_t)run);
        else copy_taps(c, to + t * run, line + at * pixel_bytes, features);
      }
    }
  }
}

/* Fills patches[rows, taps, in_features] for the rows from `first` on of a group. `lhs` points at the group's first
 * feature in batch 0. */
static void make_patches(const cpu_conv *c, const char *lhs, int64_t first, int64_t rows, char *patches)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(c->lhs_type), pixel_bytes = c->lhs_features * bytes, at[HLO_MAX_RANK];
  int64_t tap_bytes = c->in_features * (int64_t)weft_dtype_bytes(c->gemm.a_type),
          line_bytes = c->kernel_size[c->spatial - 1] * tap_bytes, patch_bytes = c->taps * tap_bytes;

  for (int64_t r = 0, count; r < rows; r += count, patches += count * patch_bytes) {
    int64_t tap[HLO_MAX_RANK] = {0};
    const char *image = lhs + row_position(c, first + r, at) * c->in_pixels * pixel_bytes;
    char *to = patches;
    count = WEFT_MIN(rows - r, c->out_size[c->spatial - 1] - at[c->spatial - 1]);
    do {
      int64_t pixel = input_pixel(c, c->spatial - 1, at, tap);
      patch_lines(c, pixel < 0 ? NULL : image + pixel * pixel_bytes, at[c->spatial - 1], count, to, patch_bytes);
      to += line_bytes;
    } while (cpu_conv_next(c->spatial - 1, c->kernel_size, tap));
  }
}

/* Writes the rows from `first` on of a class to their places in the output, whose features begin at `out`. */
static void spread_rows(const cpu_conv *c, const conv_phase *p, int64_t first, int64_t rows, const char *from,
                        char *out)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(c->out_type), run = c->out_features * bytes, at[HLO_MAX_RANK];
  int last = c->spatial - 1;

  for (int64_t r = 0, count; r < rows; r += count) {
    int64_t pixel = row_position(c, first + r, at);
    for (int d = 0; d < c->spatial; d++) pixel = pixel * p->size[d] + p->start[d] + at[d] * p->step[d];
    count = WEFT_MIN(rows - r, c->out_size[last] - at[last]);
    char *to = out + pixel * c->all_features * bytes;
    for (int64_t i = 0; i < count; i++, from += run, to += p->step[last] * c->all_features * bytes)
      memcpy(to, from, (size_t)run);
  }
}

/* Writes sums[rows, out_features] into rows of the result, which are `row_bytes` apart. */
static void round_sums(const cpu_conv *c, int64_t rows, const float *sums, char *to, int64_t row_bytes)
{
  int64_t n = c->out_features;

  if (row_bytes == n * (int64_t)weft_dtype_bytes(c->out_type)) { /* one run */
    n *= rows;
    rows = 1;
  }
  for (int64_t i = 0; i < rows; i++) cpu_convert(c->out_type, to + i * row_bytes, WEFT_F32, sums + i * n, 1, n);
}

/* Computes the rows from `first` on of one group. The group's index, among feature groups and batch groups alike,
 * gives its output features. */
static void gemm_task(void *ctx, int64_t task)
{
  conv_job *job = ctx;
  const cpu_conv *c = job->c;
  int64_t group = task / c->tasks_per_group, first = task % c->tasks_per_group * c->rows_per_task;
  int64_t lhs_bytes = (int64_t)weft_dtype_bytes(c->lhs_type), rhs_bytes = (int64_t)weft_dtype_bytes(c->gemm.b_type);
  int64_t out_bytes = (int64_t)weft_dtype_bytes(c->out_type), features_at = group * c->out_features;
  int64_t lhs_at = c->groups > 1 ? group * c->in_features : group * c->batch * c->in_pixels * c->lhs_features;
  const char *lhs = job->lhs + lhs_at * lhs_bytes, *rhs = job->rhs + features_at * rhs_bytes;
  char *out = job->out + ((job->phase ? 0 : first * c->all_features) + features_at) * out_bytes;
  cpu_gemm gemm = cpu_gemm_part(&c->gemm, WEFT_MIN(c->rows_per_task, c->batch * c->out_pixels - first), c->gemm.n);
  /* the rows of a class, which are then spread over the output; sums that are then rounded */
  int64_t rows_at = c->patch_bytes + WEFT_ALIGN_UP(WEFT_MAX(1, gemm.scratch_bytes), 64),
          elems = c->rows_per_task * c->out_features;
  int64_t sums_at = rows_at + (job->phase ? WEFT_ALIGN_UP(elems * out_bytes, 64) : 0);
  char *scratch = rt_task_scratch(sums_at + (rounds_sums(c) ? elems * (int64_t)sizeof(float) : 0), &job->failed);

  if (!scratch) return;
  const char *a = lhs + first * c->lhs_features * lhs_bytes;
  if (c->is_widened && c->plain && c->in_features == c->lhs_features) {
    cpu_convert(WEFT_F32, scratch, c->lhs_type, a, 1, gemm.m * gemm.k);
    a = scratch;
  } else if (has_patches(c)) {
    make_patches(c, lhs, first, gemm.m, scratch);
    a = scratch;
  }
  char *rows = job->phase ? scratch + rows_at : out, *to = rounds_sums(c) ? scratch + sums_at : rows;
  int64_t row_bytes = (job->phase ? c->out_features : c->all_features) * out_bytes;
  const char *packed = job->packed.data && cpu_gemm_shares_packed(&c->gemm, &gemm)
                         ? (const char *)rt_form_near(job->packed, job->pool) + group * cpu_gemm_packed_bytes(&c->gemm)
                         : NULL;
  for (int64_t t = 0; t < gemm.tiles; t++) cpu_gemm_tile(&gemm, t, a, rhs, packed, to, scratch + c->patch_bytes);
  if (to != rows) round_sums(c, gemm.m, (const float *)to, rows, row_bytes);
  if (job->phase) spread_rows(c, job->phase, first, gemm.m, rows, out);
}

/* One tile of a convolution that is one product. */
static void tile_task(void *ctx, int64_t tile)
{
  conv_job *job = ctx;
  const cpu_conv *c = job->c;
  char *scratch = rt_task_scratch(WEFT_MAX(1, c->gemm.scratch_bytes), &job->failed);

  if (scratch)
    cpu_gemm_tile(&c->gemm, tile, job->lhs, job->rhs, job->packed.data ? rt_form_near(job->packed, job->pool) : NULL,
                  job->out, scratch);
}

/* Finds the taps along one dimension that the output places `start` + i * phase_step meet outside of holes, and
 * describes them as the window of a convolution without base dilation. Their numbers, ascending, go to `taps`. */
static hlo_window_dim phase_window(const hlo_window_dim *w, int64_t start, int64_t size, int64_t *taps)
{
  hlo_window_dim of = *w;
  int64_t first = 0;

  of.size = 0;
  for (int64_t tap = 0; tap < size; tap++) {
    int64_t place = w->reversal ? size - 1 - tap : tap, x = start * w->stride + place * w->window_dilation - w->pad_low;
    if (x % w->base_dilation != 0) continue;
    if (of.size == 0 || w->reversal) first = x / w->base_dilation; /* the tap of the least `place` */
    taps[of.size++] = tap;
  }
  of.pad_low = -first;
  of.stride = w->stride / weft_gcd(w->stride, w->base_dilation);
  of.window_dilation = w->window_dilation / weft_gcd(w->window_dilation, w->base_dilation);
  of.base_dilation = 1;
  return of;
}

/* Computes the class of output pixels that begins at p->start. False without memory. */
static bool run_phase(const conv_job *job, rt_pool *pool, conv_phase *p, char *kernel)
{
  cpu_conv c = *job->c;
  int64_t most = 1, tap[HLO_MAX_RANK] = {0}, row = c.in_features * c.all_features * (int64_t)weft_dtype_bytes(c.gemm.b_type);
  char *to = kernel;

  for (int d = 0; d < c.spatial; d++) most = WEFT_MAX(most, c.kernel_size[d]);
  int64_t *taps = rt_thread_scratch(most * c.spatial * (int64_t)sizeof *taps);
  if (!taps) return false;
  c.plain = false;
  c.taps = c.out_pixels = 1;
  for (int d = 0; d < c.spatial; d++) {
    c.window[d] = phase_window(&job->c->window[d], p->start[d], c.kernel_size[d], taps + d * most);
    c.taps *= c.kernel_size[d] = c.window[d].size;
    c.out_pixels *= c.out_size[d] = (p->size[d] - p->start[d] + p->step[d] - 1) / p->step[d];
  }
  if (c.taps == 0) return true; /* holes only */
  do {
    int64_t at = 0;
    for (int d = 0; d < c.spatial; d++) at = at * job->c->kernel_size[d] + taps[d * most + tap[d]];
    memcpy(to, job->rhs + at * row, (size_t)row);
    to += row;
  } while (cpu_conv_next(c.spatial, c.kernel_size, tap));
  plan_products(&c, c.out_features);
  conv_job mine = {.c = &c, .phase = p, .lhs = job->lhs, .rhs = kernel, .out = job->out};
  rt_parallel_for(pool, c.tasks_per_group * c.groups * c.batch_groups, gemm_task, &mine);
  return !atomic_load(&mine.failed);
}

static bool run_phases(const conv_job *job, rt_pool *pool, char *kernel)
{
  const cpu_conv *c = job->c;
  conv_phase p = {{0}, {0}, {0}};
  int64_t classes[HLO_MAX_RANK];
  bool done = true;

  for (int d = 0; d < c->spatial; d++) {
    p.size[d] = c->out_size[d];
    p.step[d] = phase_step(&c->window[d]);
    classes[d] = WEFT_MIN(p.step[d], p.size[d]);
  }
  /* output pixels that meet holes only */
  memset(job->out, 0, (size_t)(c->batch * c->out_pixels * c->all_features) * weft_dtype_bytes(c->out_type));
  do done = run_phase(job, pool, &p, kernel);
  while (done && cpu_conv_next(c->spatial, classes, p.start));
  return done;
}

/* One output pixel of the direct form. Tap t reads the input from `in` + offset[t] on. `kernel` is [taps, in, out]
 * in the type of the sums, and row[t] is the tap's place in it. Taps outside the input are not in the lists. */
typedef struct direct_pixel {
  const char *in;
  const void *kernel;
  int taps;
  int64_t offset[MAX_DIRECT_TAPS], row[MAX_DIRECT_TAPS];
} direct_pixel;

/* Depthwise: out[g] = sum over t of in[t][g] * kernel[t][g]. */
#define DEPTHWISE(name, elem, sum, LOAD, bytes)                                                                     \
  static CPU_HOT void name(const direct_pixel *p, int64_t groups, sum *restrict out)                              \
  {                                                                                                               \
    typedef sum vec __attribute__((vector_size(bytes), aligned(sizeof(sum)), may_alias));                         \
    typedef uint16_t halves __attribute__((vector_size(bytes / 2), aligned(2), may_alias, unused));               \
    typedef uint32_t words __attribute__((vector_size(bytes), unused));                                           \
    enum { LANES = bytes / sizeof(sum) };                                                                         \
    int64_t g = 0;                                                                                                \
    for (; g + 2 * LANES <= groups; g += 2 * LANES) {                                                             \
      vec s0 = {0}, s1 = {0};                                                                                     \
      for (int t = 0; t < p->taps; t++) {                                                                         \
        const elem *x = (const elem *)(p->in + p->offset[t]) + g;                                                 \
        const vec *k = (const vec *)((const sum *)p->kernel + p->row[t] + g);                                     \
        s0 += LOAD(x) * k[0];                                                                                     \
        s1 += LOAD(x + LANES) * k[1];                                                                             \
      }                                                                                                           \
      *(vec *)(out + g) = s0;                                                                                     \
      *(vec *)(out + g + LANES) = s1;                                                                             \
    }                                                                                                             \
    for (; g < groups; g += LANES) { /* the remaining features, in padded vectors */                              \
      size_t count = (size_t)WEFT_MIN(LANES, groups - g);                                                         \
      elem x[LANES] = {0};                                                                                        \
      vec s = {0}, k = {0};                                                                                       \
      for (int t = 0; t < p->taps; t++) {                                                                         \
        memcpy(x, (const elem *)(p->in + p->offset[t]) + g, count * sizeof(elem));                                \
        memcpy(&k, (const sum *)p->kernel + p->row[t] + g, count * sizeof(sum));                                  \
        s += LOAD(x) * k;                                                                                         \
      }                                                                                                           \
      memcpy(out + g, &s, count * sizeof(sum));                                                                   \
    }                                                                                                             \
  }
#define LOAD_AS_IS(from) (*(const vec *)(from))
#define LOAD_BF16(from) ((vec)(__builtin_convertvector(*(const halves *)(from), words) << 16))
DEPTHWISE(depthwise_f32_wide, float, float, LOAD_AS_IS, CPU_VECTOR_BYTES)
DEPTHWISE(depthwise_f64_wide, double, double, LOAD_AS_IS, CPU_VECTOR_BYTES)
DEPTHWISE(depthwise_bf16_wide, uint16_t, float, LOAD_BF16, CPU_VECTOR_BYTES)
DEPTHWISE(depthwise_f32_narrow, float, float, LOAD_AS_IS, CPU_NARROW_BYTES)
DEPTHWISE(depthwise_f64_narrow, double, double, LOAD_AS_IS, CPU_NARROW_BYTES)
DEPTHWISE(depthwise_bf16_narrow, uint16_t, float, LOAD_BF16, CPU_NARROW_BYTES)
#define DEPTHWISE_OF(name) (cpu_block_is_fast() ? name##_wide : name##_narrow)

/* out[group][o] = sum over t, i of in[t][group][i] * kernel[t][i][group][o]. */
#define DIRECT(name, type)                                                                                        \
  static CPU_HOT void name(const cpu_conv *c, const direct_pixel *p, type *restrict out)                          \
  {                                                                                                               \
    memset(out, 0, (size_t)c->all_features * sizeof *out);                                                        \
    for (int t = 0; t < p->taps; t++) {                                                                           \
      const type *in = (const type *)(p->in + p->offset[t]), *kernel = (const type *)p->kernel + p->row[t];       \
      for (int64_t g = 0; g < c->groups; g++)                                                                     \
        for (int64_t i = 0; i < c->in_features; i++)                                                              \
          for (int64_t o = 0; o < c->out_features; o++)                                                           \
            out[g * c->out_features + o] +=                                                                       \
                in[g * c->in_features + i] * kernel[i * c->all_features + g * c->out_features + o];               \
    }                                                                                                             \
  }
DIRECT(direct_f32, float)
DIRECT(direct_f64, double)

static bool is_depthwise(const cpu_conv *c) { return c->in_features == 1 && c->out_features == 1; }

/* Lists the taps of output pixel `at` that are inside the input, as offsets from the image's first pixel. */
static void list_taps(const cpu_conv *c, const int64_t *at, const char *image, direct_pixel *p)
{
  int64_t tap[HLO_MAX_RANK] = {0}, pixel_bytes = c->lhs_features * (int64_t)weft_dtype_bytes(c->lhs_type), row = 0;

  p->in = image;
  p->taps = 0;
  do {
    int64_t pixel = input_pixel(c, c->spatial, at, tap);
    if (pixel >= 0) {
      p->offset[p->taps] = pixel * pixel_bytes;
      p->row[p->taps++] = row;
    }
    row += c->in_features * c->all_features;
  } while (cpu_conv_next(c->spatial, c->kernel_size, tap));
}

/* True if all taps of output pixel x along the last dimension are inside the input, so that pixel x + 1 has the same
 * taps one stride further. */
static bool is_inside(const cpu_conv *c, int64_t x)
{
  int last = c->spatial - 1;
  const hlo_window_dim *w = &c->window[last];
  int64_t first = x * w->stride - w->pad_low;

  return w->base_dilation == 1 && first >= 0 &&
         first + (c->kernel_size[last] - 1) * w->window_dilation < c->in_size[last];
}

static void direct_task(void *ctx, int64_t task)
{
  conv_job *job = ctx;
  const cpu_conv *c = job->c;
  int64_t first = task * c->rows_per_task, end = WEFT_MIN(first + c->rows_per_task, c->batch * c->out_pixels);
  bool narrow = c->out_type == WEFT_BF16;
  int64_t out_bytes = (int64_t)weft_dtype_bytes(c->out_type), lhs_bytes = (int64_t)weft_dtype_bytes(c->lhs_type);
  int64_t at[HLO_MAX_RANK], weights = c->taps * c->in_features * c->all_features, last = c->spatial - 1;
  direct_pixel p = {.kernel = job->rhs};
  float *scratch = narrow ? rt_task_scratch((weights + c->all_features) * (int64_t)sizeof(float), &job->failed) : NULL;

  if (narrow && !scratch) return;
  if (narrow) {
    cpu_convert(WEFT_F32, scratch, c->rhs_type, job->rhs, 1, weights);
    p.kernel = scratch;
  }
  for (int64_t row = first; row < end; row++) {
    int64_t batch = row_position(c, row, at);
    char *out = job->out + row * c->all_features * out_bytes;
    if (row > first && at[last] > 0 && is_inside(c, at[last] - 1) && is_inside(c, at[last]))
      p.in += c->window[last].stride * c->lhs_features * lhs_bytes;
    else list_taps(c, at, job->lhs + batch * c->in_pixels * c->lhs_features * lhs_bytes, &p);
    if (narrow) {
      DEPTHWISE_OF(depthwise_bf16)(&p, c->groups, scratch + weights);
      cpu_convert(WEFT_BF16, out, WEFT_F32, scratch + weights, 1, c->all_features);
    } else if (c->out_type == WEFT_F32) {
      if (is_depthwise(c)) DEPTHWISE_OF(depthwise_f32)(&p, c->groups, (float *)out);
      else direct_f32(c, &p, (float *)out);
    } else {
      if (is_depthwise(c)) DEPTHWISE_OF(depthwise_f64)(&p, c->groups, (double *)out);
      else direct_f64(c, &p, (double *)out);
    }
  }
}

static weft_status *run_onednn(const conv_job *job, rt_pool *pool, const rt_form *form, void *out, char *scratch)
{
  const void *packed = form ? form->data : NULL;
  const cpu_conv *c = job->c;

  if (!packed && cpu_onednn_wants_form(c->onednn)) {
    WEFT_TRY(cpu_onednn_make_form(c->onednn, pool, job->rhs, scratch + c->rhs_at));
    packed = scratch + c->rhs_at;
  }
  WEFT_TRY(cpu_onednn_run(c->onednn, pool, job->lhs, job->rhs, packed, job->out));
  if (c->order_out) cpu_transpose_run(&c->out_order, pool, out, job->out);
  return NULL;
}

weft_status *cpu_conv_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs, const rt_form *packed,
                          void *out, void *scratch)
{
  conv_job job = {.c = c, .pool = pool, .lhs = lhs, .rhs = rhs, .out = c->order_out ? (char *)scratch + c->out_at : out};
  int64_t rows = c->batch * c->out_pixels;

  if (rows * c->all_features == 0) return NULL;
  if (c->taps * c->in_features == 0) {
    memset(out, 0, (size_t)(rows * c->all_features) * weft_dtype_bytes(c->out_type));
    return NULL;
  }
  if (c->picks) {
    cpu_transpose_run(&c->pick, pool, (char *)scratch + c->pick_at, lhs);
    lhs = (char *)scratch + c->pick_at;
  }
  if (c->by_tiles) return cpu_conv_tiles_run(c, pool, lhs, rhs, packed, out, scratch);
  if (c->by_rows) {
    cpu_conv_rows_run(c, pool, lhs, rhs, packed, out, NULL, scratch);
    return NULL;
  }
  if (c->by_turned) return cpu_conv_turned_run(c, pool, lhs, rhs, packed, out);
  if (c->by_lines) return cpu_conv_lines_run(c, pool, lhs, rhs, packed, out, scratch);
  if (c->by_first) return cpu_conv_first_run(c, pool, lhs, rhs, out, scratch);
  if (c->order_lhs) {
    cpu_transpose_run(&c->lhs_order, pool, scratch, lhs);
    job.lhs = scratch;
  }
  if (c->onednn) return run_onednn(&job, pool, packed, out, scratch);
  if (packed) {
    if (copies_kernel(c)) job.rhs = packed->data;
    if (c->gemm.column_bytes) job.packed = (rt_form){(const char *)packed->data + c->packed_at, packed->step};
  } else if (copies_kernel(c)) {
    char *copy = (char *)scratch + c->rhs_at;
    copy_kernel(c, pool, rhs, copy, (char *)scratch + c->spare_at);
    job.rhs = copy;
  }
  if (c->by_plane) return cpu_conv_plane_run(c, pool, job.lhs, job.rhs, out);
  if (c->by_last) WEFT_TRY(cpu_conv_last_run(c, pool, job.lhs, job.rhs, job.packed, job.out));
  else if (c->direct) rt_parallel_for(pool, c->tasks_per_group, direct_task, &job);
  else if (c->by_phase) atomic_store(&job.failed, !run_phases(&job, pool, (char *)scratch + c->phase_rhs_at));
  else if (c->whole) rt_parallel_for(pool, c->gemm.tiles, tile_task, &job);
  else rt_parallel_for(pool, c->tasks_per_group * c->groups * c->batch_groups, gemm_task, &job);
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: out of memory for patches");
  if (c->order_out) cpu_transpose_run(&c->out_order, pool, out, job.out);
  return NULL;
}

bool cpu_conv_takes_pixels(const cpu_conv *c) { return c->by_rows && c->rows.strip_tasks == 1; }

weft_status *cpu_conv_run_then(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs,
                               const rt_form *packed, const cpu_conv_then *then, void *scratch)
{
  cpu_conv_rows_run(c, pool, lhs, rhs, packed, NULL, then, scratch);
  if (atomic_load(then->no_memory)) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: out of memory for its blocks");
  return NULL;
}
