/* cpu/conv_lines.c -- convolutions by panels of lines (conv_lines.h).  For one image
 *
 *   out[features, pixels] = kernel[features, in * taps] . patches[in * taps, pixels]
 *
 * First the planes of the input are spread into scratch (conv_plane.h): as f32, with their padding, and so that the
 * pixels of a line of the result meet a tap in neighbouring elements.  The matrix of patches is never made.  A task
 * takes some features and some pixels, and goes through k, which is made of whole input features, in blocks:
 *
 *   for each block of k, for each panel of pixels, two vectors wide:
 *     the panel is gathered from the planes (stays in L1)
 *     for each few features (a block of the kernel, from L2):  sums += kernel . panel
 *
 * A row of a panel is one tap of one input feature: one run of elements for each line of the result that the panel's
 * pixels are in.  bf16 is added up in f32 and rounded once. */
#include <config.h>

#include "cpu/conv_lines.h"

#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/conv_plane.h"
#include "cpu/gemm_dense.h"
#include "cpu/hot.h"

enum {
  MOST_WIDTH = CPU_MICRO_VECTORS * CPU_VECTOR_BYTES / sizeof(float), /* pixels of a panel */
  MOST_TAPS = 512,
  MOST_PLANE = 1 << 26,   /* elements */
  ROUND_BYTES = 4 << 20,  /* of scratch of several images: so many are computed at a time */
  FEW_PANELS = 16,        /* an image of so many panels has tasks of some features that share all panels, */
  SHARED_BYTES = 4 << 20, /* which have so many bytes at most: then the kernel is read once */
  SHARED_FEATURES = 32,
  MOST_FEATURES = 128,    /* a block of the kernel stays in L2 */
  MOST_PANELS = 8,
  FEW_TASKS = 16,
  FORM_KEY = 1000,        /* no cpu_gemm_kind */
};

#define MOST_BYTES 1e12 /* of an array in scratch: more is not planned */

/* Panels of an image, blocks of k, and elements of a panel of a block with the vectors that are written beyond it. */
static int64_t panels_of(const cpu_conv *c) { return (c->out_pixels + c->lines.width - 1) / c->lines.width; }
static int64_t blocks_of(const cpu_conv *c) { return (c->in_features + c->lines.channels - 1) / c->lines.channels; }
static int64_t panel_elems(const cpu_conv *c) { return (c->lines.channels * c->taps + 2) * c->lines.width; }

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static bool pack_kernel(const rt_packing *packing, rt_pool *pool, const void *from, void *to)
{
  const cpu_conv *c = ((const cpu_packing *)packing)->plan;

  cpu_conv_widen(pool, c->rhs_type, from, c->taps * c->in_features * c->out_features, to);
  return true;
}

/* The packed form is the kernel as f32. */
static void plan_packing(cpu_conv *c)
{
  int64_t count = c->taps * c->in_features * c->out_features, key[] = {FORM_KEY, c->rhs_type, count};
  cpu_packing *packing = &c->packing;

  memcpy(packing->key, key, sizeof key);
  packing->plan = c;
  packing->base = (rt_packing){.key = packing->key,
                               .key_bytes = sizeof key,
                               .whole = true,
                               .pack = pack_kernel,
                               .bytes = count * (int64_t)sizeof(float)};
}

bool cpu_conv_lines_init(cpu_conv *c)
{
  cpu_conv_lines *p = &c->lines;
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(WEFT_F32);

  if (!kernel || c->taps > MOST_TAPS) return false;
  /* with longer vectors there are better products of bf16 */
  if (kernel != cpu_dense_narrow_kernel() && c->rhs_type != WEFT_F32) return false;
  p->width = CPU_MICRO_VECTORS * kernel->lanes;
  c->plane.compute = WEFT_F32;
  if (!cpu_conv_plane_layout(c, MOST_PLANE)) return false;
  p->channels = cpu_even_part(c->in_features, WEFT_MAX(1, CPU_DENSE_BLOCK_K / c->taps));
  int64_t panels = panels_of(c), bytes = sizeof(float);
  double planes = (double)c->in_features * (double)c->plane.elems * (double)bytes,
         shared = (double)panels * (double)blocks_of(c) * (double)panel_elems(c) * (double)bytes,
         form = (double)c->taps * (double)c->in_features * (double)c->out_features * (double)bytes;
  if (planes > MOST_BYTES || form > MOST_BYTES) return false;
  p->shared = panels <= FEW_PANELS && shared <= SHARED_BYTES;
  p->images = WEFT_MIN(c->batch, WEFT_MAX(1, (int64_t)(ROUND_BYTES / (planes + (p->shared ? shared : 0)))));
  p->features = cpu_even_part(c->out_features, p->shared ? SHARED_FEATURES : MOST_FEATURES);
  p->feature_tasks = (c->out_features + p->features - 1) / p->features;
  p->panels = p->shared ? panels : WEFT_MAX(1, WEFT_MIN(MOST_PANELS, panels * p->feature_tasks / FEW_TASKS));
  p->panel_tasks = (panels + p->panels - 1) / p->panels;
  p->panels_at = WEFT_ALIGN_UP(p->images * (int64_t)planes + 2 * p->width * bytes, 64);
  p->kernel_at = p->panels_at + (p->shared ? p->images * (int64_t)shared : 0);
  p->scratch_bytes = p->kernel_at + (c->rhs_type == WEFT_F32 || p->shared ? 0 : (int64_t)form);
  if (c->rhs_type != WEFT_F32) plan_packing(c);
  return true;
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* Neighbouring pixels of a panel that lie in one line of the result: from column `column` of the panel on, and from
 * element `from` of a plane on. */
typedef struct line_run { int64_t from, column; } line_run;

/* The runs of a panel's pixels, from `pixel` on, or of those that there are; their number. */
static int list_runs(const cpu_conv *c, int64_t pixel, line_run runs[MOST_WIDTH])
{
  const cpu_conv_plane *p = &c->plane;
  int last = c->spatial - 1, count = 0;
  int64_t end = WEFT_MIN(pixel + c->lines.width, c->out_pixels);

  if (c->plain) {
    runs[0] = (line_run){pixel, 0};
    return 1;
  }
  for (int64_t first = pixel; pixel < end; count++) {
    int64_t x = pixel % c->out_size[last], rest = pixel / c->out_size[last], at = x;
    for (int d = last - 1; d >= 0; rest /= c->out_size[d--])
      at += rest % c->out_size[d] * c->window[d].stride * p->step[d];
    runs[count] = (line_run){at, pixel - first};
    pixel += c->out_size[last] - x;
  }
  return count;
}

/* to[channels][taps][two vectors] = what the taps of the runs' pixels read in the planes from `plane` on. A run is
 * copied in whole vectors: what is beyond its end is overwritten by the next run or row. Writes up to two vectors
 * beyond the end. */
#define GATHER(name, bytes)                                                                                             \
  static CPU_HOT void name(const float *plane, int64_t elems, int64_t channels, const int64_t *taps, int64_t tap_count, \
                           const line_run *runs, int run_count, float *to)                                              \
  {                                                                                                                     \
    typedef float vec __attribute__((vector_size(bytes), aligned(sizeof(float)), may_alias));                           \
    enum { LANES = bytes / sizeof(float), WIDTH = 2 * LANES };                                                          \
    for (int64_t ch = 0; ch < channels; ch++, plane += elems)                                                           \
      if (run_count == 1)                                                                                               \
        for (int64_t t = 0; t < tap_count; t++, to += WIDTH) {                                                          \
          const vec *from = (const vec *)(plane + taps[t] + runs[0].from);                                              \
          ((vec *)to)[0] = from[0];                                                                                     \
          ((vec *)to)[1] = from[1];                                                                                     \
        }                                                                                                               \
      else if (run_count == 2)                                                                                          \
        for (int64_t t = 0; t < tap_count; t++, to += WIDTH) {                                                          \
          const vec *from = (const vec *)(plane + taps[t] + runs[0].from),                                              \
                    *then = (const vec *)(plane + taps[t] + runs[1].from);                                              \
          vec *second = (vec *)(to + runs[1].column);                                                                   \
          ((vec *)to)[0] = from[0];                                                                                     \
          ((vec *)to)[1] = from[1];                                                                                     \
          second[0] = then[0];                                                                                          \
          if (runs[1].column < LANES) second[1] = then[1];                                                              \
        }                                                                                                               \
      else                                                                                                              \
        for (int64_t t = 0; t < tap_count; t++, to += WIDTH)                                                            \
          for (int r = 0; r < run_count; r++) {                                                                         \
            const vec *from = (const vec *)(plane + taps[t] + runs[r].from);                                            \
            vec *at = (vec *)(to + runs[r].column);                                                                     \
            at[0] = from[0];                                                                                            \
            if (runs[r].column < LANES) at[1] = from[1];                                                                \
          }                                                                                                             \
  }
GATHER(gather_wide, CPU_VECTOR_BYTES)
GATHER(gather_narrow, CPU_NARROW_BYTES)

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct lines_job {
  const cpu_conv *c;
  const char *lhs; /* of the first of `images` images */
  char *out;
  float *planes, *panels; /* panels: of all pixels, if they are shared */
  const void *kernel;
  rt_form packed;  /* the kernel's form, as f32; its data is NULL without one */
  const rt_pool *pool;
  weft_dtype type; /* of the kernel. Not f32: it is converted by each task, as each reads its part once. */
  int64_t taps[MOST_TAPS];
  atomic_bool failed;
} lines_job;

static void spread_task(void *ctx, int64_t task)
{
  lines_job *job = ctx;
  const cpu_conv *c = job->c;
  const char *from = job->lhs + task * c->in_pixels * (int64_t)weft_dtype_bytes(c->lhs_type);
  float *to = job->planes + task * c->plane.elems;

  if (c->plain) {
    cpu_convert(WEFT_F32, to, c->lhs_type, from, 1, c->in_pixels);
    return;
  }
  char *spare = rt_task_scratch(WEFT_MAX(1, c->in_pixels) * (int64_t)sizeof(float), &job->failed);
  if (!spare) return;
  memset(to, 0, (size_t)c->plane.elems * sizeof(float));
  cpu_conv_plane_spread(c, from, (char *)to, spare);
}

/* The panel of the pixels from `pixel` on, of the block of input features from `ch` on. */
static void make_panel(const lines_job *job, int64_t image, int64_t ch, int64_t pixel, float *to)
{
  const cpu_conv *c = job->c;
  line_run runs[MOST_WIDTH];
  int count = list_runs(c, pixel, runs);

  (c->lines.width == CPU_NARROW_WIDTH ? gather_narrow : gather_wide)(
    job->planes + (image * c->in_features + ch) * c->plane.elems, c->plane.elems,
    WEFT_MIN(c->lines.channels, c->in_features - ch), job->taps, c->taps, runs, count, to);
}

/* The panels of one panel's pixels, of all blocks. */
static void gather_task(void *ctx, int64_t task)
{
  const lines_job *job = ctx;
  const cpu_conv *c = job->c;
  int64_t panels = panels_of(c), image = task / panels, at = task % panels;
  float *to = job->panels + task * panel_elems(c) * blocks_of(c);

  for (int64_t ch = 0; ch < c->in_features; ch += c->lines.channels, to += panel_elems(c))
    make_panel(job, image, ch, at * c->lines.width, to);
}

static void multiply_task(void *ctx, int64_t task)
{
  lines_job *job = ctx;
  const cpu_conv *c = job->c;
  const cpu_conv_lines *p = &c->lines;
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(WEFT_F32);
  int64_t width = p->width, lanes = width / CPU_MICRO_VECTORS, part = task % p->feature_tasks,
          tile = task / p->feature_tasks % p->panel_tasks, image = task / p->feature_tasks / p->panel_tasks,
          k = c->taps * c->in_features;
  int64_t feature = part * p->features, features = WEFT_MIN(p->features, c->out_features - feature),
          first = tile * p->panels * width, pixels = WEFT_MIN(p->panels * width, c->out_pixels - first);
  bool widens = job->type != WEFT_F32;
  int64_t panel_bytes = (p->shared ? 0 : panel_elems(c)) * (int64_t)sizeof(float),
          rows_bytes = (widens ? features * p->channels * c->taps : 0) * (int64_t)sizeof(float),
          bytes = (int64_t)weft_dtype_bytes(c->out_type);
  bool narrow = c->out_type != WEFT_F32;
  char *scratch = rt_task_scratch(
    64 + panel_bytes + rows_bytes + (narrow ? features * pixels * (int64_t)sizeof(float) : 0), &job->failed);
  char *out = job->out + ((image * c->out_features + feature) * c->out_pixels + first) * bytes;

  if (!scratch) return;
  const char *weights = job->packed.data ? rt_form_near(job->packed, job->pool) : job->kernel;
  float *sums = narrow ? (float *)(scratch + panel_bytes + rows_bytes) : (float *)out,
        *wide = (float *)(scratch + panel_bytes);
  cpu_micro_steps steps = {widens ? p->channels * c->taps : k, 1, width, narrow ? pixels : c->out_pixels};
  for (int64_t ch = 0; ch < c->in_features; ch += p->channels) {
    int64_t block = WEFT_MIN(p->channels, c->in_features - ch) * c->taps, at = feature * k + ch * c->taps;
    const float *rows_of = widens ? wide : (const float *)(const void *)weights + at;
    for (int64_t i = 0; widens && i < features; i++)
      cpu_convert(WEFT_F32, wide + i * steps.a_row, job->type,
                  weights + (at + i * k) * (int64_t)weft_dtype_bytes(job->type), 1, block);
    for (int64_t x = 0; x < pixels; x += width) {
      int64_t columns = WEFT_MIN(width, pixels - x), vectors = (columns + lanes - 1) / lanes;
      float *panel = p->shared ? job->panels +
                                   ((image * panels_of(c) + (first + x) / width) * blocks_of(c) + ch / p->channels) *
                                     panel_elems(c)
                               : (float *)scratch;
      if (!p->shared) make_panel(job, image, ch, first + x, panel);
      for (int64_t i = 0, rows; i < features; i += rows) { /* in parts of nearly the same size */
        rows = cpu_even_part(features - i, kernel->rows);
        kernel->micro[rows][vectors](block, rows_of + i * steps.a_row, panel, sums + i * steps.c_row + x, &steps,
                                     columns - (vectors - 1) * lanes, ch > 0);
      }
    }
  }
  for (int64_t i = 0; narrow && i < features; i++)
    cpu_convert(c->out_type, out + i * c->out_pixels * bytes, WEFT_F32, sums + i * pixels, 1, pixels);
}

weft_status *cpu_conv_lines_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs,
                                const rt_form *packed, void *out, void *scratch)
{
  const cpu_conv_lines *p = &c->lines;
  lines_job job = {.c = c, .planes = scratch, .kernel = rhs, .type = c->rhs_type, .panels = (float *)((char *)scratch + p->panels_at)};

  cpu_conv_plane_taps(c, job.taps);
  if (packed) {
    job.packed = *packed;
    job.pool = pool;
    job.type = WEFT_F32;
  } else if (c->rhs_type != WEFT_F32 && !p->shared) {
    float *kernel = (float *)((char *)scratch + p->kernel_at);
    cpu_conv_widen(pool, c->rhs_type, rhs, c->taps * c->in_features * c->out_features, kernel);
    job.kernel = kernel;
    job.type = WEFT_F32;
  }
  for (int64_t image = 0; image < c->batch; image += p->images) {
    int64_t images = WEFT_MIN(p->images, c->batch - image);
    job.lhs = (const char *)lhs + image * c->in_features * c->in_pixels * (int64_t)weft_dtype_bytes(c->lhs_type);
    job.out = (char *)out + image * c->out_features * c->out_pixels * (int64_t)weft_dtype_bytes(c->out_type);
    rt_parallel_for(pool, images * c->in_features, spread_task, &job);
    if (p->shared) rt_parallel_for(pool, images * panels_of(c), gather_task, &job);
    rt_parallel_for(pool, images * p->panel_tasks * p->feature_tasks, multiply_task, &job);
  }
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: out of memory for a plane");
  return NULL;
}
