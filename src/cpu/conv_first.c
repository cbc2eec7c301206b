/* cpu/conv_first.c -- convolutions of arrays whose features come before their pixels (conv_first.h).  For one image
 *
 *   out[features, pixels] = kernel[features, in * taps] . patches[in * taps, pixels]
 *
 * where kernel and result have the order that the product needs, and a row of patches consists of lines of the input.
 * A 1 x 1 window needs no patches.  Where there are many pixels a task makes the patches of some of them and multiplies
 * all features; where there are few, all patches are made first and tasks take some features each, so that the kernel
 * is read once. */
#include <config.h>

#include "cpu/conv_first.h"

#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/conv_lines.h"
#include "cpu/conv_turned.h"
#include "cpu/hot.h"

enum {
  LEAST_FEATURES = 16,
  PATCH_BYTES = 512 << 10, /* most bytes of one task's patches, unless LEAST_PIXELS need more */
  LEAST_PIXELS = 64,
  SHARED_BYTES = 2 << 20,  /* most bytes of the patches of all pixels */
  FEW_TASKS = 8,           /* fewer tasks than these leave threads idle */
  PART_FEATURES = 32,      /* the least features of a task where there are few pixels */
  WIDTH = 32,              /* columns of a panel of the products */
  RUN_BYTES = 64,          /* bytes that are copied at once; a row of patches has as much room at its end */
  FILL_CHANNELS = 32,
};

static bool is_in_order(hlo_ints spatial)
{
  for (int d = 0; d < spatial.count; d++)
    if (spatial.v[d] != d + 2) return false;
  return true;
}

bool cpu_conv_is_first(const cpu_conv *c, const hlo_conv_attrs *attrs)
{
  bool same_type = c->lhs_type == c->out_type;

  if (c->spatial == 0 || c->groups != 1 || c->batch_groups != 1 || c->lhs_type != c->rhs_type ||
      (!same_type && c->out_type != WEFT_F32) || (c->lhs_type != WEFT_F32 && c->lhs_type != WEFT_BF16) ||
      c->taps * c->in_features == 0 || c->batch * c->out_pixels == 0 || c->in_pixels == 0)
    return false;
  if (attrs->lhs_batch != 0 || attrs->lhs_feature != 1 || attrs->out_batch != 0 || attrs->out_feature != 1 ||
      attrs->rhs_out_feature != 0 || attrs->rhs_in_feature != 1 || !is_in_order(attrs->lhs_spatial) ||
      !is_in_order(attrs->rhs_spatial) || !is_in_order(attrs->out_spatial))
    return false;
  for (int d = 0; d < c->spatial; d++)
    if (c->window[d].base_dilation != 1 || c->window[d].reversal) return false;
  return true;
}

bool cpu_conv_first_init(cpu_conv *c, const hlo_conv_attrs *attrs)
{
  cpu_conv_first *p = &c->first_plan;
  int64_t bytes = (int64_t)weft_dtype_bytes(c->lhs_type), k = c->taps * c->in_features;
  bool same_type = c->lhs_type == c->out_type;

  if (!cpu_conv_is_first(c, attrs)) return false;
  if (cpu_conv_turned_init(c)) return c->by_turned = true;
  if (!(c->plain && c->lhs_type == WEFT_F32) && cpu_conv_lines_init(c)) return c->by_lines = true;
  if (!same_type || c->out_features < LEAST_FEATURES) return false;

  int64_t room = PATCH_BYTES / (k * bytes), even = c->batch * c->out_pixels / FEW_TASKS;
  int64_t pixels = WEFT_MAX(LEAST_PIXELS, WEFT_MIN(room, even) / WIDTH * WIDTH);
  p->pixels = WEFT_MIN(c->out_pixels, pixels);
  p->features = c->out_features;
  int64_t all_row = WEFT_ALIGN_UP(c->out_pixels * bytes, RUN_BYTES) + RUN_BYTES;
  bool few = c->batch * ((c->out_pixels + p->pixels - 1) / p->pixels) < FEW_TASKS;
  p->shared = few && (c->plain || c->batch * k * all_row <= SHARED_BYTES);
  if (p->shared) {
    p->pixels = c->out_pixels;
    p->features = WEFT_MIN(c->out_features, WEFT_MAX(PART_FEATURES, WEFT_ALIGN_UP(c->out_features / FEW_TASKS, 8)));
  }
  p->pixel_tasks = (c->out_pixels + p->pixels - 1) / p->pixels;
  p->feature_tasks = (c->out_features + p->features - 1) / p->features;
  p->row_bytes = c->plain ? c->in_pixels * bytes : WEFT_ALIGN_UP(p->pixels * bytes, RUN_BYTES) + RUN_BYTES;
  p->shared_bytes = p->shared && !c->plain ? c->batch * k * p->row_bytes : 0;
  p->gemm = (cpu_gemm){.a_type = c->lhs_type,
                       .b_type = c->lhs_type,
                       .c_type = c->lhs_type,
                       .m = p->features,
                       .n = p->pixels,
                       .k = k,
                       .a_row = k,
                       .a_col = 1,
                       .b_row = p->row_bytes / bytes,
                       .b_col = 1,
                       .c_row = c->out_pixels,
                       .via = WEFT_INVALID};
  cpu_gemm_init(&p->gemm);
  return p->gemm.kind == CPU_GEMM_LANES || p->gemm.kind == CPU_GEMM_DENSE;
}

/* ---- patches ----------------------------------------------------------------------------------------------------- */

typedef struct line_copy {
  const char *from, *end; /* of channel 0; of the whole input */
  char *to;               /* in the row of channel 0 */
  int64_t bytes, step;    /* of an element; elements between neighbours in `from` */
  int64_t before, count, after; /* zeros, elements, zeros */
  int64_t channels, from_step, to_step;
} line_copy;

/* Of numbers `l->step` apart, most often 2. */
#define COPY_STEPS(type)                                                            \
  do {                                                                              \
    const type *restrict x = (const type *)from;                                    \
    type *restrict y = (type *)to;                                                  \
    if (l->step == 2)                                                               \
      for (int64_t i = 0; i < l->count; i++) y[i] = x[2 * i];                       \
    else                                                                            \
      for (int64_t i = 0; i < l->count; i++) y[i] = x[i * l->step];                 \
  } while (0)

/* Copies one line of each channel. May write RUN_BYTES beyond the line's end. */
static CPU_HOT void copy_lines(const line_copy *l)
{
  typedef char run __attribute__((vector_size(RUN_BYTES), aligned(1), may_alias));
  int64_t before = l->before * l->bytes, size = l->count * l->bytes, after = l->after * l->bytes;

  for (int64_t ch = 0; ch < l->channels; ch++) {
    const char *from = l->from + ch * l->from_step;
    char *to = l->to + ch * l->to_step;
    if (before) memset(to, 0, (size_t)before);
    to += before;
    if (l->step == 1 && WEFT_ALIGN_UP(size, RUN_BYTES) <= l->end - from)
      for (int64_t i = 0; i < size; i += RUN_BYTES) *(run *)(to + i) = *(const run *)(from + i);
    else if (l->step == 1) memcpy(to, from, (size_t)size);
    else if (l->bytes == 2) COPY_STEPS(uint16_t);
    else COPY_STEPS(uint32_t);
    if (after) memset(to + size, 0, (size_t)after);
  }
}

/* The places of [0, count) along one dimension whose input place, first + i *
 * stride, is inside [0, size): *lo .. *hi. */
static void clip(int64_t first, int64_t stride, int64_t count, int64_t size, int64_t *lo, int64_t *hi)
{
  *lo = first >= 0 ? 0 : (-first + stride - 1) / stride;
  *hi = first >= size ? 0 : (size - 1 - first) / stride + 1;
  *lo = WEFT_MIN(*lo, count);
  *hi = WEFT_MAX(*lo, WEFT_MIN(*hi, count));
}

/* Fills the rows of `channels` input features, of which `image` is the first, for the pixels first .. first + count.
 * `end`: of the whole input. */
static void fill(const cpu_conv *c, const char *image, const char *end, int64_t channels, int64_t first, int64_t count,
                 char *to)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(c->lhs_type), row = c->first_plan.row_bytes,
          width = c->out_size[c->spatial - 1];
  int last = c->spatial - 1;

  for (int64_t tap = 0; tap < c->taps; tap++) {
    int64_t taps[HLO_MAX_RANK];
    for (int64_t d = last, rest = tap; d >= 0; rest /= c->kernel_size[d--]) taps[d] = rest % c->kernel_size[d];
    for (int64_t p = first, part; p < first + count; p += part) {
      int64_t x = p % width, from = 0, lo, hi, rest = p / width;
      bool inside = true;
      part = WEFT_MIN(width - x, first + count - p);
      for (int d = last - 1; d >= 0; rest /= c->out_size[d--]) {
        const hlo_window_dim *w = &c->window[d];
        int64_t at = rest % c->out_size[d] * w->stride + taps[d] * w->window_dilation - w->pad_low;
        inside &= at >= 0 && at < c->in_size[d];
        from += at * c->in_step[d];
      }
      const hlo_window_dim *w = &c->window[last];
      int64_t at = x * w->stride + taps[last] * w->window_dilation - w->pad_low;
      clip(at, w->stride, part, c->in_size[last], &lo, &hi);
      if (!inside || lo == hi) lo = hi = part;
      line_copy l = {.to = to + tap * row + (p - first) * bytes, .end = end, .bytes = bytes, .step = w->stride, .before = lo,
                     .count = hi - lo, .after = part - hi, .channels = channels,
                     .from = hi > lo ? image + (from + at + lo * w->stride) * bytes : image,
                     .from_step = c->in_pixels * bytes, .to_step = c->taps * row};
      copy_lines(&l);
    }
  }
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct first_job {
  const cpu_conv *c;
  const char *lhs, *rhs;
  char *out, *patches; /* patches: of all images, if they are shared */
  atomic_bool failed;
} first_job;

static void fill_task(void *ctx, int64_t task)
{
  const first_job *job = ctx;
  const cpu_conv *c = job->c;
  int64_t parts = (c->in_features + FILL_CHANNELS - 1) / FILL_CHANNELS, image = task / parts,
          at = task % parts * FILL_CHANNELS;
  int64_t plane = c->in_pixels * (int64_t)weft_dtype_bytes(c->lhs_type);

  fill(c, job->lhs + (image * c->in_features + at) * plane, job->lhs + c->batch * c->in_features * plane,
       WEFT_MIN(FILL_CHANNELS, c->in_features - at), 0, c->out_pixels,
       job->patches + (image * c->in_features + at) * c->taps * c->first_plan.row_bytes);
}

static void multiply_task(void *ctx, int64_t task)
{
  first_job *job = ctx;
  const cpu_conv *c = job->c;
  const cpu_conv_first *p = &c->first_plan;
  int64_t part = task % p->feature_tasks, tile = task / p->feature_tasks % p->pixel_tasks;
  int64_t image = task / p->feature_tasks / p->pixel_tasks, bytes = (int64_t)weft_dtype_bytes(c->lhs_type);
  int64_t first = tile * p->pixels, feature = part * p->features, plane = c->in_pixels * bytes;
  int64_t own_bytes = p->shared || c->plain ? 0 : WEFT_ALIGN_UP(p->gemm.k * p->row_bytes, 64);
  const char *lhs = job->lhs + image * c->in_features * plane, *b = lhs + first * bytes;
  cpu_gemm g = cpu_gemm_part(&p->gemm, WEFT_MIN(p->features, c->out_features - feature),
                             WEFT_MIN(p->pixels, c->out_pixels - first));
  char *scratch = rt_task_scratch(own_bytes + WEFT_MAX(g.scratch_bytes, 64), &job->failed);

  if (!scratch) return;
  if (own_bytes) {
    fill(c, lhs, job->lhs + c->batch * c->in_features * plane, c->in_features, first, g.n, scratch);
    b = scratch;
  } else if (p->shared && !c->plain) b = job->patches + image * g.k * p->row_bytes;
  for (int64_t t = 0; t < g.tiles; t++)
    cpu_gemm_tile(&g, t, job->rhs + feature * g.k * bytes, b, NULL,
                  job->out + ((image * c->out_features + feature) * c->out_pixels + first) * bytes,
                  scratch + own_bytes);
}

weft_status *cpu_conv_first_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs, void *out,
                                void *scratch)
{
  const cpu_conv_first *p = &c->first_plan;
  first_job job = {.c = c, .lhs = lhs, .rhs = rhs, .out = out, .patches = scratch};

  if (p->shared_bytes)
    rt_parallel_for(pool, c->batch * ((c->in_features + FILL_CHANNELS - 1) / FILL_CHANNELS), fill_task, &job);
  rt_parallel_for(pool, c->batch * p->pixel_tasks * p->feature_tasks, multiply_task, &job);
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: out of memory for patches");
  return NULL;
}
