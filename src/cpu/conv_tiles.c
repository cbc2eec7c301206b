/* cpu/conv_tiles.c -- convolutions of bf16 on AMX tiles (conv_tiles.h).  For one image
 *
 *   out[features, pixels] = kernel[features, k] . patches[k, pixels]
 *
 * where two elements of k that meet in a 32-bit lane of a tile are the neighbours of a pixel.  First the planes of the
 * input are spread into scratch: with their padding, and with strides by phases, so that neighbouring pixels of a line
 * of the result meet a tap in neighbouring elements.  Pixels are counted through a whole plane, with those in the
 * padding between lines, whose sums nobody reads:  every panel of 32 pixels is then one run in the planes.  The matrix
 * of patches is never made:
 *
 *   pairs    a plane holds two input features, in words: k is made of blocks of 32 features, in each block of the taps,
 *            and a tile is loaded where it lies, its rows a plane apart
 *   gathers  few input features, or a window of one element, which needs no planes: k lies as in the kernel, and a
 *            panel is gathered from the planes, two rows of k at a time
 *
 * Tasks take some features and some panels.  Sums are f32, and are rounded once. */
#include <config.h>

#include "cpu/conv_tiles.h"

#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/conv_amx.h"
#include "cpu/conv_phases.h"
#include "cpu/gemm_amx.h"
#include "cpu/hot.h"

enum {
  FEATURES = CPU_AMX_FEATURES, PIXELS = CPU_AMX_PIXELS, STRIP = CPU_AMX_STRIP, K = CPU_AMX_K, PAIRS = K / 2,
  LEAST_FLOPS = 200000,
  ROUND_BYTES = 4 << 20,   /* of scratch of several images: so many are computed at a time */
  KERNEL_BYTES = 1 << 20,  /* most bytes of a task's part of the kernel: half of an L2 cache */
  FEW_PANELS = 16,         /* an image of so many panels is cut along the features: the kernel is read once */
  MOST_PANELS = 16,        /* of a task */
  FEW_TASKS = 16,
  SPREAD_PLANES = 4,       /* of a task */
  TAIL = 2 * PIXELS,       /* elements behind the last plane: a tile reads beyond it */
  FORM_KEY = 1001,         /* no cpu_gemm_kind */
};
#define MOST_BYTES 1e12 /* of an array in scratch: more is not planned */

static int64_t element_bytes(const cpu_conv *c) { return c->tiles.gathers ? 2 : 4; }
static int64_t panels_of(const cpu_conv *c) { return (c->tiles.phases.columns + PIXELS - 1) / PIXELS; }
static int64_t panel_bytes(const cpu_conv *c) { return c->tiles.k_tiles * PAIRS * PIXELS * 4; }
static int64_t strip_bytes(const cpu_conv *c) { return c->tiles.k_tiles * CPU_AMX_TILE_BYTES; }
static int64_t strips_of(const cpu_conv *c) { return (c->out_features + STRIP - 1) / STRIP; }

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* The layout of the planes; false if they or their padding are too large. */
static bool plan_planes(cpu_conv *c)
{
  cpu_conv_tiles *p = &c->tiles;

  if (!cpu_conv_phases_plan(c, &p->phases)) return false;
  p->plane = WEFT_ALIGN_UP(p->phases.places * p->phases.all, 16);
  /* the rows of a tile, which are a plane apart, lie in different sets of the L1 cache */
  if (p->plane % 32 == 0) p->plane += 16;
  if (c->plain) p->plane = c->in_pixels;
  return true;
}

static void plan_tasks(cpu_conv *c)
{
  cpu_conv_tiles *p = &c->tiles;
  int64_t panels = panels_of(c), most = WEFT_MAX(1, KERNEL_BYTES / (2 * strip_bytes(c))) * FEATURES;

  if (panels < FEW_PANELS)
    most = WEFT_MIN(most, WEFT_ALIGN_UP((c->out_features + FEW_TASKS - 1) / FEW_TASKS, FEATURES));
  p->features = WEFT_MIN(most, WEFT_ALIGN_UP(cpu_even_part(c->out_features, most), FEATURES));
  p->feature_tasks = (c->out_features + p->features - 1) / p->features;
  p->panels = WEFT_MAX(1, WEFT_MIN(MOST_PANELS, panels * p->feature_tasks / FEW_TASKS));
  /* reading a part of the kernel takes longer than its product with a few panels */
  if (panels < FEW_PANELS && p->feature_tasks >= FEW_TASKS / 2) p->panels = panels;
  p->panel_tasks = (panels + p->panels - 1) / p->panels;
  p->shared = p->gathers && panels < FEW_PANELS;
}

static bool pack_kernel(const rt_packing *packing, rt_pool *pool, const void *from, void *to);

static void plan_packing(cpu_conv *c)
{
  int64_t key[] = {FORM_KEY, c->tiles.gathers, c->out_features, c->in_features, c->taps};
  cpu_packing *packing = &c->packing;

  memcpy(packing->key, key, sizeof key);
  packing->plan = c;
  packing->base = (rt_packing){.key = packing->key,
                               .key_bytes = sizeof key,
                               .whole = c->tiles.feature_tasks == 1,
                               .pack = pack_kernel,
                               .bytes = strips_of(c) * strip_bytes(c)};
}

bool cpu_conv_tiles_init(cpu_conv *c)
{
  cpu_conv_tiles *p = &c->tiles;
  int64_t k = c->taps * c->in_features, whole = WEFT_ALIGN_UP(c->in_features, K);
  double flops = 2.0 * (double)k * (double)c->out_features * (double)c->out_pixels * (double)c->batch;

  if (c->lhs_type != WEFT_BF16 || c->taps > CPU_CONV_MOST_TAPS || flops < LEAST_FLOPS || !cpu_conv_amx_fits())
    return false;
  if ((double)k * (double)c->out_features > MOST_BYTES || (double)c->in_pixels * (double)c->in_features > MOST_BYTES)
    return false;
  /* where a quarter of the elements of k would be padding */
  p->gathers = c->plain || whole - c->in_features > whole / 4;
  if (!plan_planes(c)) return false;
  p->planes = p->gathers ? c->in_features : whole / 2;
  p->k_tiles = p->gathers ? (k + K - 1) / K : whole / K * c->taps;
  plan_tasks(c);

  double planes = c->plain ? 0 : (double)p->planes * (double)p->plane * (double)element_bytes(c);
  double shared = p->shared ? (double)panels_of(c) * (double)panel_bytes(c) : 0;
  if (planes + shared > MOST_BYTES) return false;
  p->images = (int64_t)WEFT_MAX(1.0, WEFT_MIN((double)c->batch, ROUND_BYTES / WEFT_MAX(1.0, planes + shared)));
  p->panels_at = c->plain ? 0 : WEFT_ALIGN_UP(p->images * (int64_t)planes + TAIL * element_bytes(c), 64);
  p->kernel_at = p->panels_at + p->images * (int64_t)shared;
  plan_packing(c);
  p->scratch_bytes = p->kernel_at + c->packing.base.bytes;
  return true;
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

typedef uint16_t __attribute__((may_alias)) half;
typedef uint32_t __attribute__((may_alias)) word;

typedef struct form_job {
  const cpu_conv *c;
  const half *from;
  char *to;
} form_job;

/* Packs one strip: 16 features, of which those that there are not are zeros. */
static CPU_HOT void form_task(void *ctx, int64_t strip)
{
  const form_job *job = ctx;
  const cpu_conv *c = job->c;
  int64_t k = c->taps * c->in_features, taps = c->taps;
  char *to = job->to + strip * strip_bytes(c);

  memset(to, 0, (size_t)strip_bytes(c));
  for (int64_t i = 0; i < WEFT_MIN(STRIP, c->out_features - strip * STRIP); i++) {
    const half *from = job->from + (strip * STRIP + i) * k;
    half *row = (half *)(void *)to + i * K;
    if (c->tiles.gathers)
      for (int64_t l = 0; l < k; l += K) memcpy(row + l * STRIP, from + l, (size_t)WEFT_MIN(K, k - l) * sizeof *from);
    else
      for (int64_t ch = 0; ch < c->in_features; ch++) {
        half *first = row + ch / K * taps * (CPU_AMX_TILE_BYTES / 2) + ch % K;
        for (int64_t t = 0; t < taps; t++) first[t * (CPU_AMX_TILE_BYTES / 2)] = from[ch * taps + t];
      }
  }
}

static bool pack_kernel(const rt_packing *packing, rt_pool *pool, const void *from, void *to)
{
  const cpu_conv *c = ((const cpu_packing *)packing)->plan;
  form_job job = {.c = c, .from = from, .to = to};

  rt_parallel_for(pool, strips_of(c), form_task, &job);
  return true;
}

/* ---- planes ------------------------------------------------------------------------------------------------------ */

typedef struct tiles_job {
  const cpu_conv *c;
  const char *lhs; /* of the first of `images` images */
  char *out, *planes, *panels;
  rt_form kernel;  /* packed */
  const rt_pool *pool;
  int64_t taps[CPU_CONV_MOST_TAPS]; /* elements from a pixel's place in its plane to what the tap reads */
  int64_t tap_bytes[CPU_CONV_MOST_TAPS];
  atomic_bool failed;
} tiles_job;

/* to[count] = every `step`-th element of a, and of b beside it. */
static CPU_HOT void pair_line(const half *restrict a, const half *restrict b, int64_t step, int64_t count,
                              word *restrict to)
{
  if (step == 1)
    for (int64_t i = 0; i < count; i++) to[i] = a[i] | (uint32_t)b[i] << 16;
  else if (step == 2)
    for (int64_t i = 0; i < count; i++) to[i] = a[2 * i] | (uint32_t)b[2 * i] << 16;
  else
    for (int64_t i = 0; i < count; i++) to[i] = a[step * i] | (uint32_t)b[step * i] << 16;
}

/* The same for one feature, with zeros beside it. */
static CPU_HOT void widen_line(const half *restrict a, int64_t step, int64_t count, word *restrict to)
{
  for (int64_t i = 0; i < count; i++) to[i] = a[step * i];
}

static CPU_HOT void copy_line(const half *restrict a, int64_t step, int64_t count, half *restrict to)
{
  if (step == 1) memcpy(to, a, (size_t)count * sizeof *to);
  else if (step == 2)
    for (int64_t i = 0; i < count; i++) to[i] = a[2 * i];
  else
    for (int64_t i = 0; i < count; i++) to[i] = a[step * i];
}

/* Fills one line of a plane. `a` and `b`: the lines of the input that it reads; NULL: padding, or no such feature. `q`:
 * the phase along the line. */
static void spread_line(const cpu_conv *c, const half *a, const half *b, int64_t q, char *to)
{
  int last = c->spatial - 1;
  const hlo_window_dim *w = &c->window[last];
  int64_t bytes = element_bytes(c), count = c->tiles.phases.size[last], lo, hi;

  cpu_conv_phases_inside(c, &c->tiles.phases, q, &lo, &hi);
  if (!a || lo == hi) {
    memset(to, 0, (size_t)(count * bytes));
    return;
  }
  int64_t from = lo * w->stride + q - w->pad_low;
  char *at = to + lo * bytes;
  memset(to, 0, (size_t)(lo * bytes));
  if (c->tiles.gathers) copy_line(a + from, w->stride, hi - lo, (half *)(void *)at);
  else if (b) pair_line(a + from, b + from, w->stride, hi - lo, (word *)(void *)at);
  else widen_line(a + from, w->stride, hi - lo, (word *)(void *)at);
  memset(to + hi * bytes, 0, (size_t)((count - hi) * bytes));
}

/* Spreads the planes of two features of the input, or of one (b NULL), or fills a plane with zeros (a NULL, too). */
static void spread_plane(const cpu_conv *c, const half *a, const half *b, char *to)
{
  const cpu_conv_tiles *p = &c->tiles;
  int last = c->spatial - 1;
  int64_t q[HLO_MAX_RANK] = {0}, line[HLO_MAX_RANK] = {0}, line_bytes = p->phases.size[last] * element_bytes(c);

  do {
    do {
      int64_t from = 0;
      bool inside = a != NULL;
      for (int d = 0; d < last; d++) {
        int64_t at = line[d] * c->window[d].stride + q[d] - c->window[d].pad_low;
        inside &= at >= 0 && at < c->in_size[d];
        from += at * c->in_step[d];
      }
      spread_line(c, inside ? a + from : NULL, inside && b ? b + from : NULL, q[last], to);
      to += line_bytes;
    } while (cpu_conv_next(last, p->phases.size, line));
  } while (cpu_conv_next(c->spatial, p->phases.count, q));
}

static void spread_task(void *ctx, int64_t task)
{
  const tiles_job *job = ctx;
  const cpu_conv *c = job->c;
  const cpu_conv_tiles *p = &c->tiles;
  int64_t parts = (p->planes + SPREAD_PLANES - 1) / SPREAD_PLANES, image = task / parts,
          first = task % parts * SPREAD_PLANES;
  const half *lhs = (const half *)(const void *)job->lhs + image * c->in_features * c->in_pixels;

  for (int64_t i = first; i < WEFT_MIN(first + SPREAD_PLANES, p->planes); i++) {
    int64_t ch = p->gathers ? i : 2 * i;
    const half *a = ch < c->in_features ? lhs + ch * c->in_pixels : NULL;
    spread_plane(c, a, !p->gathers && ch + 1 < c->in_features ? a + c->in_pixels : NULL,
                 job->planes + (image * p->planes + i) * p->plane * element_bytes(c));
  }
}

/* ---- panels ------------------------------------------------------------------------------------------------------ */

/* Gathers the panel of the pixels from `pixel` on: to[k / 2][PIXELS] words. */
static void gather(const tiles_job *job, int64_t image, int64_t pixel, word *to)
{
  const cpu_conv *c = job->c;
  const cpu_conv_tiles *p = &c->tiles;
  int64_t count = WEFT_MIN(PIXELS, p->phases.columns - pixel), k = c->taps * c->in_features, t = 0;
  const half *plane = (const half *)(const void *)job->planes + image * p->planes * p->plane + pixel;

  for (int64_t l = 0; l < p->k_tiles * K; l += 2, to += PIXELS) {
    const half *row[2] = {NULL, NULL};
    for (int64_t i = 0; i < 2 && l + i < k; i++) {
      row[i] = plane + job->taps[t];
      if (++t < c->taps) continue;
      t = 0;
      plane += p->plane;
    }
    cpu_conv_amx_pairs(row[0], row[1], count, to);
  }
}

static void gather_task(void *ctx, int64_t task)
{
  const tiles_job *job = ctx;
  int64_t panels = panels_of(job->c);

  gather(job, task / panels, task % panels * PIXELS, (word *)(void *)(job->panels + task * panel_bytes(job->c)));
}

static void multiply_task(void *ctx, int64_t task)
{
  tiles_job *job = ctx;
  const cpu_conv *c = job->c;
  const cpu_conv_tiles *p = &c->tiles;
  int64_t part = task % p->feature_tasks, tile = task / p->feature_tasks % p->panel_tasks;
  int64_t image = task / p->feature_tasks / p->panel_tasks, bytes = (int64_t)weft_dtype_bytes(c->out_type);
  int64_t first = part * p->features, end = WEFT_MIN(first + p->features, c->out_features), none = 0;
  int64_t row_bytes = p->gathers ? PIXELS * 4 : p->plane * 4;
  cpu_amx_walk walk = {.blocks = p->gathers ? p->k_tiles : p->k_tiles / c->taps, .block_bytes = PAIRS * row_bytes,
                       .taps = p->gathers ? 1 : c->taps, .row_bytes = row_bytes,
                       .tap_bytes = p->gathers ? &none : job->tap_bytes};
  _Alignas(64) float sums[FEATURES * PIXELS] = {0};
  const char *kernel = rt_form_near(job->kernel, job->pool);
  char *scratch = p->gathers && !p->shared ? rt_task_scratch(panel_bytes(c), &job->failed) : NULL;

  if (p->gathers && !p->shared && !scratch) return;
  cpu_amx_hold_whole();
  for (int64_t i = tile * p->panels; i < WEFT_MIN((tile + 1) * p->panels, panels_of(c)); i++) {
    const char *pixels = job->planes + (image * p->planes * p->plane + i * PIXELS) * 4;
    int64_t pixel = 0;
    uint32_t which =
      cpu_conv_phases_pixels(c, &p->phases, i * PIXELS, WEFT_MIN(i * PIXELS + PIXELS, p->phases.columns), &pixel);
    if (!which) continue;
    if (p->shared) pixels = job->panels + (image * panels_of(c) + i) * panel_bytes(c);
    else if (p->gathers) gather(job, image, i * PIXELS, (word *)(void *)(scratch)), pixels = scratch;
    for (int64_t f = first; f < end; f += FEATURES) {
      cpu_conv_amx_multiply(&walk, kernel + f / STRIP * strip_bytes(c), pixels, end - f > STRIP, which >> STRIP, sums);
      cpu_conv_amx_store(sums, WEFT_MIN(FEATURES, end - f), which, c->out_type,
                         job->out + ((image * c->out_features + f) * c->out_pixels + pixel) * bytes,
                         c->out_pixels * bytes);
    }
  }
  cpu_amx_let_go();
}

weft_status *cpu_conv_tiles_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs,
                                const rt_form *packed, void *out, void *scratch)
{
  const cpu_conv_tiles *p = &c->tiles;
  tiles_job job = {.c = c, .planes = scratch, .panels = (char *)scratch + p->panels_at, .pool = pool};

  if (packed) {
    job.kernel = *packed;
  } else {
    job.kernel.data = (char *)scratch + p->kernel_at;
    pack_kernel(&c->packing.base, pool, rhs, (char *)scratch + p->kernel_at);
  }
  cpu_conv_phases_taps(c, &c->tiles.phases, job.taps);
  for (int64_t t = 0; t < c->taps; t++) job.tap_bytes[t] = job.taps[t] * element_bytes(c);
  for (int64_t image = 0; image < c->batch; image += p->images) {
    int64_t images = WEFT_MIN(p->images, c->batch - image);
    job.lhs = (const char *)lhs + image * c->in_features * c->in_pixels * 2;
    job.out = (char *)out + image * c->out_features * c->out_pixels * (int64_t)weft_dtype_bytes(c->out_type);
    if (c->plain) job.planes = (char *)job.lhs;
    else rt_parallel_for(pool, images * ((p->planes + SPREAD_PLANES - 1) / SPREAD_PLANES), spread_task, &job);
    if (p->shared) rt_parallel_for(pool, images * panels_of(c), gather_task, &job);
    rt_parallel_for(pool, images * p->panel_tasks * p->feature_tasks, multiply_task, &job);
  }
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: out of memory for a panel");
  return NULL;
}
