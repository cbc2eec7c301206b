/* cpu/conv_plane.c -- convolutions plane by plane (conv_plane.h).
 *
 * A task takes one batch element and group.  It spreads the group's input planes, converted to the type of the sums,
 * into a buffer with the padding and the holes of base dilation filled by zeros, so that every tap of every pixel is
 * inside. Of a row with stride s, every s-th element lies side by side:   row[p % s][p / s], so that the pixels of an
 * output row meet a tap in neighbouring elements; a row of sums then stays in registers while all taps are added.
 * Without strides, rows of sums are computed together, as one long row that has some sums between its rows which nobody
 * reads: short rows alone would leave lanes and the latency of the sums unused. */
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
  VECTORS = 8,           /* sums in registers */
  ROWS_TOGETHER = 4096,  /* elements of rows of sums that are computed together: they stay in the L1 cache */
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

/* How many rows of sums are computed as one row. */
static int64_t rows_together(const cpu_conv *c)
{
  int last = c->spatial - 1;
  int64_t pitch = c->plane.pitch;

  if (last == 0 || c->window[last].stride != 1 || pitch > 2 * c->out_size[last]) return 1;
  return WEFT_MAX(1, WEFT_MIN(ROWS_TOGETHER / pitch, c->out_size[last - 1]));
}

bool cpu_conv_plane_layout(cpu_conv *c, int64_t most)
{
  cpu_conv_plane *p = &c->plane;
  int last = c->spatial - 1;

  p->elems = 1;
  for (int d = last; d >= 0; d--) {
    const hlo_window_dim *w = &c->window[d];
    p->size[d] = (c->out_size[d] - 1) * w->stride + (c->kernel_size[d] - 1) * w->window_dilation + 1;
    if (p->size[d] > most) return false;
    if (d == last) p->phase = (p->size[d] + w->stride - 1) / w->stride;
    p->step[d] = p->elems;
    p->elems *= d == last ? p->phase * w->stride : p->size[d];
    if (p->elems > most) return false;
  }
  return true;
}

bool cpu_conv_plane_init(cpu_conv *c, const hlo_conv_attrs *attrs, const hlo_shape *lhs, const hlo_shape *rhs,
                         const hlo_shape *out)
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
  if (!cpu_conv_plane_layout(c, MAX_BUFFER / bytes / WEFT_MAX(1, c->in_features))) return false;
  if (c->in_pixels * bytes > MAX_BUFFER) return false;
  p->pitch = last > 0 ? c->window[last - 1].stride * p->step[last - 1] : 0;
  p->rows = rows_together(c);
  p->kernel = cpu_conv_kernel_of(attrs, rhs);
  /* room for vectors that read beyond the last row, and for rows of sums that reach beyond its last pixel */
  int64_t sums = (p->rows - 1) * p->pitch + c->out_size[last];
  p->buffer_bytes = WEFT_ALIGN_UP(p->elems * c->in_features * bytes, CPU_VECTOR_BYTES) + VECTORS * CPU_VECTOR_BYTES;
  p->sums_bytes = WEFT_ALIGN_UP(sums * bytes, CPU_VECTOR_BYTES) + VECTORS * CPU_VECTOR_BYTES;
  p->spare_bytes =
    WEFT_ALIGN_UP(WEFT_MAX(c->lhs_type == p->compute ? 0 : c->in_pixels, c->out_type == p->compute ? 0 : sums) * bytes,
                  CPU_VECTOR_BYTES);
  double flops = 2.0 * (double)c->out_pixels * (double)(c->taps * c->in_features * c->out_features);
  p->groups_per_task = (int64_t)WEFT_MAX(1.0, TASK_FLOPS / WEFT_MAX(flops, 1.0));
  return true;
}

/* ---- one row of the result --------------------------------------------------------------------------------------- */

/* Adds all taps of `count` vectors of sums, which stay in registers. */
#define ROW_BLOCK(count)                                            \
  {                                                                 \
    vec s[count] = {{0}};                                           \
    for (int64_t t = 0; t < taps; t++) {                            \
      const vec *from = (const vec *)(in + offset[t] + x);          \
      __typeof__(*in) w = weight[t];                                \
      _Pragma("GCC unroll 8") for (int v = 0; v < (count); v++) s[v] += from[v] * w; \
    }                                                               \
    vec *to = (vec *)(out + x);                                     \
    _Pragma("GCC unroll 8") for (int v = 0; v < (count); v++) to[v] = s[v]; \
  }

/* out[x] = sum over t of weight[t] * in[offset[t] + x]; may write up to 7 vectors beyond `width`. */
#define ROW(name, type, bytes)                                                                                   \
  static CPU_HOT void name(int64_t width, int64_t taps, const type *in, const int64_t *offset, const type *weight, \
                           type *out)                                                                           \
  {                                                                                                             \
    typedef type vec __attribute__((vector_size(bytes), aligned(sizeof(type)), may_alias));                     \
    enum { LANES = bytes / sizeof(type) };                                                                      \
    int64_t x = 0;                                                                                              \
    for (; x + 5 * LANES < width; x += VECTORS * LANES) ROW_BLOCK(VECTORS)                                      \
    for (; x + LANES < width; x += 3 * LANES) ROW_BLOCK(3)                                                      \
    for (; x < width; x += LANES) ROW_BLOCK(1)                                                                  \
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
  /* elements from a pixel's place in the buffer to what each tap of each input feature reads, and from an output
   * feature's place in the kernel to the weight of the tap */
  int64_t offset[MAX_TAPS], weight[MAX_TAPS];
  atomic_bool failed;
} plane_job;

/* Copies every `step`-th element. */
#define EVERY(name, type)                                                                           \
  static CPU_HOT void name(const char *from, int64_t step, char *to, int64_t count)                 \
  {                                                                                                 \
    const type *in = (const type *)from;                                                            \
    type *out = (type *)to;                                                                         \
    if (step == 2) {                                                                                \
      CPU_INDEPENDENT for (int64_t i = 0; i < count; i++) out[i] = in[2 * i];                        \
    } else {                                                                                        \
      for (int64_t i = 0; i < count; i++) out[i] = in[step * i];                                    \
    }                                                                                               \
  }
EVERY(every_f32, float)
EVERY(every_f64, double)

/* Spreads one row of the input, of the type of the sums, into its row of the buffer. */
static void spread_row(const cpu_conv *c, const char *from, char *to)
{
  const cpu_conv_plane *p = &c->plane;
  int last = c->spatial - 1;
  const hlo_window_dim *w = &c->window[last];
  int64_t bytes = (int64_t)weft_dtype_bytes(p->compute), count = c->in_size[last];

  if (w->stride == 1 && w->base_dilation == 1) {
    int64_t lo = WEFT_MAX(0, -w->pad_low), hi = WEFT_MIN(count, p->size[last] - w->pad_low);
    if (lo < hi) memcpy(to + (lo + w->pad_low) * bytes, from + lo * bytes, (size_t)((hi - lo) * bytes));
    return;
  }
  for (int64_t q = 0; q < w->stride && w->base_dilation == 1; q++) { /* places q, q + stride, ... */
    int64_t lo = WEFT_MAX(0, (w->pad_low - q + w->stride - 1) / w->stride);
    int64_t hi = WEFT_MIN(p->phase, (count + w->pad_low - q + w->stride - 1) / w->stride);
    const char *first = from + (lo * w->stride + q - w->pad_low) * bytes;
    char *place = to + (q * p->phase + lo) * bytes;
    if (lo >= hi) continue;
    if (p->compute == WEFT_F32) every_f32(first, w->stride, place, hi - lo);
    else every_f64(first, w->stride, place, hi - lo);
  }
  for (int64_t x = 0; x < count && w->base_dilation != 1; x++) {
    int64_t at = x * w->base_dilation + w->pad_low;
    if (at < 0 || at >= p->size[last]) continue;
    memcpy(to + (at % w->stride * p->phase + at / w->stride) * bytes, from + x * bytes, (size_t)bytes);
  }
}

void cpu_conv_plane_spread(const cpu_conv *c, const char *from, char *to, char *spare)
{
  const cpu_conv_plane *p = &c->plane;
  int64_t row[HLO_MAX_RANK] = {0}, bytes = (int64_t)weft_dtype_bytes(p->compute);
  int64_t row_bytes = c->in_size[c->spatial - 1] * bytes;

  if (c->in_pixels == 0) return;
  if (c->lhs_type != p->compute) {
    cpu_convert(p->compute, spare, c->lhs_type, from, 1, c->in_pixels);
    from = spare;
  }
  do {
    int64_t at = 0;
    for (int d = 0; d < c->spatial - 1 && at >= 0; d++) {
      int64_t place = row[d] * c->window[d].base_dilation + c->window[d].pad_low;
      at = place < 0 || place >= p->size[d] ? -1 : at + place * p->step[d];
    }
    if (at >= 0) spread_row(c, from, to + at * bytes);
    from += row_bytes;
  } while (cpu_conv_next(c->spatial - 1, c->in_size, row));
}

/* The elements from a pixel's place in its spread plane to what tap `tap` reads. */
static int64_t tap_offset(const cpu_conv *c, const int64_t *tap)
{
  const cpu_conv_plane *p = &c->plane;
  int64_t at = 0, stride = c->window[c->spatial - 1].stride;

  for (int d = 0; d < c->spatial; d++) {
    const hlo_window_dim *w = &c->window[d];
    int64_t place = (w->reversal ? c->kernel_size[d] - 1 - tap[d] : tap[d]) * w->window_dilation;
    at += d == c->spatial - 1 ? place % stride * p->phase + place / stride : place * p->step[d];
  }
  return at;
}

void cpu_conv_plane_taps(const cpu_conv *c, int64_t *offsets)
{
  int64_t tap[HLO_MAX_RANK] = {0};

  do *offsets++ = tap_offset(c, tap);
  while (cpu_conv_next(c->spatial, c->kernel_size, tap));
}

static void list_taps(plane_job *job)
{
  const cpu_conv *c = job->c;
  const cpu_conv_plane *p = &c->plane;
  int64_t tap[HLO_MAX_RANK] = {0}, n = 0;

  do {
    int64_t at = tap_offset(c, tap), weight = 0;
    for (int d = 0; d < c->spatial; d++) weight += tap[d] * p->kernel.step[d];
    for (int64_t i = 0; i < c->in_features; i++, n++) {
      job->offset[n] = at + i * p->elems;
      job->weight[n] = weight + i * p->kernel.in_step;
    }
  } while (cpu_conv_next(c->spatial, c->kernel_size, tap));
}

typedef uint8_t __attribute__((may_alias)) gathered_8;
typedef uint16_t __attribute__((may_alias)) gathered_16;
typedef uint32_t __attribute__((may_alias)) gathered_32;
typedef uint64_t __attribute__((may_alias)) gathered_64;

/* The weights of output feature `o`, in the type of the sums. */
static void gather_weights(const plane_job *job, int64_t o, double *weights)
{
  const cpu_conv *c = job->c;
  int64_t bytes = (int64_t)weft_dtype_bytes(c->rhs_type), taps = c->taps * c->in_features;
  const char *from = job->rhs + o * c->plane.kernel.out_step * bytes;
  double raw[MAX_TAPS];

  switch (bytes) {
#define GATHER(type) \
  for (int64_t t = 0; t < taps; t++) ((type *)raw)[t] = ((const type *)from)[job->weight[t]];
  case 1: GATHER(gathered_8) break;
  case 2: GATHER(gathered_16) break;
  case 4: GATHER(gathered_32) break;
  default: GATHER(gathered_64)
  }
  cpu_convert(c->plane.compute, weights, c->rhs_type, raw, 1, taps);
}

/* Stores `rows` rows of sums. */
static void store_rows(const cpu_conv *c, int64_t rows, const char *sums, char *spare, char *out)
{
  const cpu_conv_plane *p = &c->plane;
  int64_t bytes = (int64_t)weft_dtype_bytes(c->out_type), width = c->out_size[c->spatial - 1];

  if (c->out_type != p->compute) {
    cpu_convert(c->out_type, spare, p->compute, sums, 1, (rows - 1) * p->pitch + width);
    sums = spare;
  }
  for (int64_t i = 0; i < rows; i++)
    memcpy(out + i * width * bytes, sums + i * p->pitch * bytes, (size_t)(width * bytes));
}

static void plane_group(const plane_job *job, int64_t batch, int64_t group, char *scratch)
{
  const cpu_conv *c = job->c;
  const cpu_conv_plane *p = &c->plane;
  int64_t bytes = (int64_t)weft_dtype_bytes(p->compute), out_bytes = (int64_t)weft_dtype_bytes(c->out_type);
  int64_t lhs_bytes = (int64_t)weft_dtype_bytes(c->lhs_type), taps = c->taps * c->in_features;
  int64_t width = c->out_size[c->spatial - 1], lines = c->spatial > 1 ? c->out_size[c->spatial - 2] : 1;
  double weights[MAX_TAPS];
  bool wide = cpu_block_is_fast();
  __typeof__(row_f32) *of_f32 = wide ? row_f32 : row_f32_narrow;
  __typeof__(row_f64) *of_f64 = wide ? row_f64 : row_f64_narrow;
  char *sums = scratch + p->buffer_bytes, *spare = sums + p->sums_bytes;

  for (int64_t i = 0; i < c->in_features; i++)
    cpu_conv_plane_spread(
      c, job->lhs + (batch * p->lhs_batch_step + (group * c->in_features + i) * p->lhs_feature_step) * lhs_bytes,
      scratch + i * p->elems * bytes, spare);
  for (int64_t o = group * c->out_features; o < (group + 1) * c->out_features; o++) {
    char *out = job->out + (batch * p->out_batch_step + o * p->out_feature_step) * out_bytes;
    int64_t row[HLO_MAX_RANK] = {0};
    gather_weights(job, o, weights);
    do {
      int64_t at = 0;
      for (int d = 0; d < c->spatial - 2; d++) at += row[d] * c->window[d].stride * p->step[d];
      for (int64_t y = 0; y < lines; y += p->rows) {
        int64_t rows = WEFT_MIN(p->rows, lines - y), from = at + y * p->pitch, sum = (rows - 1) * p->pitch + width;
        if (p->compute == WEFT_F32)
          of_f32(sum, taps, (const float *)scratch + from, job->offset, (const float *)weights, (float *)sums);
        else of_f64(sum, taps, (const double *)scratch + from, job->offset, weights, (double *)sums);
        store_rows(c, rows, sums, spare, out);
        out += rows * width * out_bytes;
      }
    } while (cpu_conv_next(c->spatial - 2, c->out_size, row));
  }
}

static void plane_task(void *ctx, int64_t task)
{
  plane_job *job = ctx;
  const cpu_conv *c = job->c;
  const cpu_conv_plane *p = &c->plane;
  int64_t first = task * p->groups_per_task, end = WEFT_MIN(first + p->groups_per_task, c->batch * c->groups);
  char *scratch = rt_task_scratch(p->buffer_bytes + p->sums_bytes + p->spare_bytes, &job->failed);

  if (!scratch) return;
  memset(scratch, 0, (size_t)p->buffer_bytes); /* planes leave what is padding to them as it is */
  for (int64_t i = first; i < end; i++) plane_group(job, i / c->groups, i % c->groups, scratch);
}

weft_status *cpu_conv_plane_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs, void *out)
{
  plane_job job = {.c = c, .lhs = lhs, .rhs = rhs, .out = out};
  int64_t per_task = c->plane.groups_per_task;

  list_taps(&job);
  rt_parallel_for(pool, (c->batch * c->groups + per_task - 1) / per_task, plane_task, &job);
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: out of memory for a plane");
  return NULL;
}
