/* cpu/conv_plane.c -- convolutions plane by plane (conv_plane.h).
 *
 * A task takes one batch element and group.  It spreads the group's input planes, converted to the type of the sums,
 * into a buffer with the padding and the holes of base dilation filled by zeros, so that every tap of every pixel is
 * inside. Of a row with stride s, every s-th element lies side by side:   row[p % s][p / s], so that the pixels of an
 * output row meet a tap in neighbouring elements; a row of sums then stays in registers while all taps are added. */
#include <config.h>

#include "cpu/conv_plane.h"

#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/gemm_block.h"
#include "cpu/hot.h"

enum {
  MAX_BUFFER = 4 << 20,
  MAX_FEATURES = 16, /* input times output features of a group: from more on, a product of matrices is faster */
  MAX_TAPS = 1024,   /* over all input features */
  TASK_FLOPS = 400000,
  VECTORS = 4,
};

/* The steps of an array's batch and feature dimensions, if its spatial dimensions are dense and in order. */
static bool plane_steps(const hlo_shape *shape, int64_t batch, int64_t feature, hlo_ints spatial, int64_t *batch_step,
                        int64_t *feature_step)
{
  int64_t steps[HLO_MAX_RANK], step = 1, dense = 1;

  for (int d = shape->rank - 1; d >= 0; d--) {
    steps[d] = step;
    step *= shape->dims[d];
  }
  for (int i = spatial.count - 1; i >= 0; i--) {
    int64_t size = shape->dims[spatial.v[i]];
    if (size != 1 && steps[spatial.v[i]] != dense) return false;
    dense *= size;
  }
  *batch_step = steps[batch];
  *feature_step = steps[feature];
  return true;
}

bool cpu_conv_plane_init(cpu_conv *c, const hlo_conv_attrs *attrs, const hlo_shape *lhs, const hlo_shape *out)
{
  cpu_conv_plane *p = &c->plane;
  int last = c->spatial - 1;

  if (c->spatial == 0 || c->batch_groups != 1 || c->out_pixels == 0 || c->taps == 0 ||
      c->in_features * c->out_features > MAX_FEATURES || c->lhs_type != c->rhs_type ||
      !weft_dtype_is_float(c->lhs_type) || !weft_dtype_is_float(c->out_type) || c->taps * c->in_features > MAX_TAPS)
    return false;
  if (!plane_steps(lhs, attrs->lhs_batch, attrs->lhs_feature, attrs->lhs_spatial, &p->lhs_batch_step,
                   &p->lhs_feature_step) ||
      !plane_steps(out, attrs->out_batch, attrs->out_feature, attrs->out_spatial, &p->out_batch_step,
                   &p->out_feature_step))
    return false;
  p->compute = c->lhs_type == WEFT_F64 || c->out_type == WEFT_F64 ? WEFT_F64 : WEFT_F32;
  int64_t bytes = (int64_t)weft_dtype_bytes(p->compute);
  p->elems = 1;
  for (int d = last; d >= 0; d--) {
    const hlo_window_dim *w = &c->window[d];
    p->size[d] = (c->out_size[d] - 1) * w->stride + (c->kernel_size[d] - 1) * w->window_dilation + 1;
    if (p->size[d] > MAX_BUFFER) return false;
    if (d == last) p->phase = (p->size[d] + w->stride - 1) / w->stride;
    p->step[d] = p->elems;
    p->elems *= d == last ? p->phase * w->stride : p->size[d];
    if (p->elems * c->in_features * bytes > MAX_BUFFER) return false;
  }
  /* room for vectors that read beyond the last row, and for rows of sums that reach beyond its last pixel */
  p->buffer_bytes = WEFT_ALIGN_UP(p->elems * c->in_features * bytes, CPU_VECTOR_BYTES) + VECTORS * CPU_VECTOR_BYTES;
  p->row_bytes = WEFT_ALIGN_UP(WEFT_MAX(c->out_size[last], c->in_size[last]) * bytes, CPU_VECTOR_BYTES) +
                 VECTORS * CPU_VECTOR_BYTES;
  double flops = 2.0 * (double)c->out_pixels * (double)(c->taps * c->in_features * c->out_features);
  p->groups_per_task = (int64_t)WEFT_MAX(1.0, TASK_FLOPS / WEFT_MAX(flops, 1.0));
  return true;
}

/* ---- one row of the result --------------------------------------------------------------------------------------- */

/* out[x] = sum over t of weight[t] * in[offset[t] + x]; may write up to 3 vectors beyond `width`. */
#define ROW(name, type, bytes)                                                                                   \
  static CPU_HOT void name(int64_t width, int64_t taps, const type *in, const int64_t *offset, const type *weight, \
                           type *out)                                                                           \
  {                                                                                                             \
    typedef type vec __attribute__((vector_size(bytes), aligned(sizeof(type)), may_alias));                     \
    enum { LANES = bytes / sizeof(type) };                                                                      \
    int64_t x = 0;                                                                                              \
    for (; x + LANES < width; x += VECTORS * LANES) {                                                           \
      vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                               \
      for (int64_t t = 0; t < taps; t++) {                                                                      \
        const vec *from = (const vec *)(in + offset[t] + x);                                                    \
        type w = weight[t];                                                                                     \
        s0 += from[0] * w;                                                                                      \
        s1 += from[1] * w;                                                                                      \
        s2 += from[2] * w;                                                                                      \
        s3 += from[3] * w;                                                                                      \
      }                                                                                                         \
      vec *to = (vec *)(out + x);                                                                               \
      to[0] = s0;                                                                                               \
      to[1] = s1;                                                                                               \
      to[2] = s2;                                                                                               \
      to[3] = s3;                                                                                               \
    }                                                                                                           \
    for (; x < width; x += LANES) {                                                                             \
      vec sum = {0};                                                                                            \
      for (int64_t t = 0; t < taps; t++) sum += *(const vec *)(in + offset[t] + x) * weight[t];                 \
      *(vec *)(out + x) = sum;                                                                                  \
    }                                                                                                           \
  }
ROW(row_f32, float, CPU_VECTOR_BYTES)
ROW(row_f64, double, CPU_VECTOR_BYTES)
ROW(row_f32_narrow, float, CPU_NARROW_BYTES)
ROW(row_f64_narrow, double, CPU_NARROW_BYTES)

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

typedef struct plane_job {
  const cpu_conv *c;
  const char *lhs, *rhs;
  char *out;
  atomic_bool failed;
} plane_job;

static bool next_index(int rank, const int64_t *size, int64_t *idx)
{
  for (int d = rank - 1; d >= 0; d--) {
    if (++idx[d] < size[d]) return true;
    idx[d] = 0;
  }
  return false;
}

/* Spreads one row of the input into its row of the buffer. `spare` has room for the row. */
static void spread_row(const cpu_conv *c, const char *from, char *to, char *spare)
{
  const cpu_conv_plane *p = &c->plane;
  int last = c->spatial - 1;
  const hlo_window_dim *w = &c->window[last];
  int64_t bytes = (int64_t)weft_dtype_bytes(p->compute), lhs_bytes = (int64_t)weft_dtype_bytes(c->lhs_type);
  int64_t count = c->in_size[last];

  if (w->stride == 1 && w->base_dilation == 1) {
    int64_t lo = WEFT_MAX(0, -w->pad_low), hi = WEFT_MIN(count, p->size[last] - w->pad_low);
    if (lo < hi)
      cpu_convert(p->compute, to + (lo + w->pad_low) * bytes, c->lhs_type, from + lo * lhs_bytes, 1, hi - lo);
    return;
  }
  cpu_convert(p->compute, spare, c->lhs_type, from, 1, count);
  for (int64_t x = 0; x < count; x++) {
    int64_t at = x * w->base_dilation + w->pad_low;
    if (at < 0 || at >= p->size[last]) continue;
    memcpy(to + (at % w->stride * p->phase + at / w->stride) * bytes, spare + x * bytes, (size_t)bytes);
  }
}

static void spread_plane(const cpu_conv *c, const char *from, char *to, char *spare)
{
  const cpu_conv_plane *p = &c->plane;
  int64_t row[HLO_MAX_RANK] = {0}, bytes = (int64_t)weft_dtype_bytes(p->compute);
  int64_t row_bytes = c->in_size[c->spatial - 1] * (int64_t)weft_dtype_bytes(c->lhs_type);

  do {
    int64_t at = 0;
    for (int d = 0; d < c->spatial - 1 && at >= 0; d++) {
      int64_t place = row[d] * c->window[d].base_dilation + c->window[d].pad_low;
      at = place < 0 || place >= p->size[d] ? -1 : at + place * p->step[d];
    }
    if (at >= 0) spread_row(c, from, to + at * bytes, spare);
    from += row_bytes;
  } while (next_index(c->spatial - 1, c->in_size, row));
}

/* Where each tap of each input feature lies relative to a pixel's place in the buffer, and the weights of output
 * feature `o`. */
static void gather_taps(const cpu_conv *c, const char *kernel, int64_t *offset, char *weights)
{
  const cpu_conv_plane *p = &c->plane;
  int64_t bytes = (int64_t)weft_dtype_bytes(p->compute), rhs_bytes = (int64_t)weft_dtype_bytes(c->rhs_type), n = 0;
  int64_t tap[HLO_MAX_RANK] = {0}, stride = c->window[c->spatial - 1].stride;

  do {
    int64_t at = 0;
    for (int d = 0; d < c->spatial; d++) {
      const hlo_window_dim *w = &c->window[d];
      int64_t place = (w->reversal ? c->kernel_size[d] - 1 - tap[d] : tap[d]) * w->window_dilation;
      at += d == c->spatial - 1 ? place % stride * p->phase + place / stride : place * p->step[d];
    }
    for (int64_t i = 0; i < c->in_features; i++, n++) {
      offset[n] = at + i * p->elems;
      cpu_convert(p->compute, weights + n * bytes, c->rhs_type, kernel + n * c->all_features * rhs_bytes, 1, 1);
    }
  } while (next_index(c->spatial, c->kernel_size, tap));
}

static void plane_group(const plane_job *job, int64_t batch, int64_t group, char *scratch)
{
  const cpu_conv *c = job->c;
  const cpu_conv_plane *p = &c->plane;
  int64_t bytes = (int64_t)weft_dtype_bytes(p->compute), out_bytes = (int64_t)weft_dtype_bytes(c->out_type);
  int64_t lhs_bytes = (int64_t)weft_dtype_bytes(c->lhs_type), rhs_bytes = (int64_t)weft_dtype_bytes(c->rhs_type);
  int64_t taps = c->taps * c->in_features, offset[MAX_TAPS], width = c->out_size[c->spatial - 1];
  double weights[MAX_TAPS];
  bool wide = cpu_block_is_fast();
  __typeof__(row_f32) *of_f32 = wide ? row_f32 : row_f32_narrow;
  __typeof__(row_f64) *of_f64 = wide ? row_f64 : row_f64_narrow;
  char *sums = scratch + p->buffer_bytes;

  memset(scratch, 0, (size_t)p->buffer_bytes);
  for (int64_t i = 0; i < c->in_features; i++)
    spread_plane(
      c, job->lhs + (batch * p->lhs_batch_step + (group * c->in_features + i) * p->lhs_feature_step) * lhs_bytes,
      scratch + i * p->elems * bytes, sums);
  for (int64_t o = group * c->out_features; o < (group + 1) * c->out_features; o++) {
    char *out = job->out + (batch * p->out_batch_step + o * p->out_feature_step) * out_bytes;
    int64_t row[HLO_MAX_RANK] = {0};
    gather_taps(c, job->rhs + o * rhs_bytes, offset, (char *)weights);
    do {
      int64_t at = 0;
      for (int d = 0; d < c->spatial - 1; d++) at += row[d] * c->window[d].stride * p->step[d];
      if (p->compute == WEFT_F32)
        of_f32(width, taps, (const float *)scratch + at, offset, (const float *)weights, (float *)sums);
      else of_f64(width, taps, (const double *)scratch + at, offset, weights, (double *)sums);
      cpu_convert(c->out_type, out, p->compute, sums, 1, width);
      out += width * out_bytes;
    } while (next_index(c->spatial - 1, c->out_size, row));
  }
}

static void plane_task(void *ctx, int64_t task)
{
  plane_job *job = ctx;
  const cpu_conv *c = job->c;
  int64_t first = task * c->plane.groups_per_task,
          end = WEFT_MIN(first + c->plane.groups_per_task, c->batch * c->groups);
  char *scratch = rt_thread_scratch(c->plane.buffer_bytes + c->plane.row_bytes);

  if (!scratch) {
    /* written by tasks; read after the parallel loop has ended */
    atomic_store_explicit(&job->failed, true, memory_order_relaxed);
    return;
  }
  for (int64_t i = first; i < end; i++) plane_group(job, i / c->groups, i % c->groups, scratch);
}

weft_status *cpu_conv_plane_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs, void *out)
{
  plane_job job = {.c = c, .lhs = lhs, .rhs = rhs, .out = out};
  int64_t per_task = c->plane.groups_per_task;

  rt_parallel_for(pool, (c->batch * c->groups + per_task - 1) / per_task, plane_task, &job);
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: out of memory for a plane");
  return NULL;
}
