/* cpu/conv_rows.c -- convolutions of bf16, features last, on AMX tiles (conv_rows.h).  For one image
 *
 *   out[pixels, features] = patches[pixels, k] . kernel[k, features]
 *
 * where a tile of the left operand is 16 neighbouring pixels by 32 of their features, which it reads where they lie.
 * The input is first spread into scratch: with its padding, its features up to a multiple of 32, and with strides by
 * phases, so that neighbouring pixels of a line of the result meet a tap in neighbouring pixels.  Pixels are counted
 * through the whole of a phase, with those in the padding between lines, whose sums nobody reads: then the rows of a
 * tile are a pixel apart, wherever it begins, and a tap is only another beginning.  An input without padding, strides
 * and features that fill no tile is read where it lies.  k is made of blocks of 32 features, in each block of the taps.
 *
 * Tasks take some features and some pixels.  A small image is cut along the features, so that each part of the kernel
 * is read by one core; while that is multiplied, the next part is asked for.  Sums are f32, and are rounded once. */
#include <config.h>

#include "cpu/conv_rows.h"

#include <string.h>

#include "base/macros.h"
#include "cpu/conv_amx.h"
#include "cpu/conv_phases.h"
#include "cpu/gemm_amx.h"
#include "cpu/hot.h"

enum {
  FEATURES = CPU_AMX_FEATURES, PIXELS = CPU_AMX_PIXELS, K = CPU_AMX_K, STEP_BYTES = 2 * CPU_AMX_TILE_BYTES,
  LEAST_FLOPS = 200000,
  ROUND_BYTES = 4 << 20,   /* of scratch of several images: so many are computed at a time */
  KERNEL_BYTES = 1 << 20,  /* most bytes of a task's part of the kernel: half of an L2 cache */
  FEW_PANELS = 16,         /* an image of so many panels is cut along the features */
  MOST_PANELS = 16,        /* of a task */
  FEW_TASKS = 16,
  SPREAD_BYTES = 16 << 10, /* of a task */
  LONG_PIXEL = 256,        /* elements: tiles of pixels of a power of two of bytes lie in few sets of the L1 cache */
  FORM_KEY = 1003,         /* no cpu_gemm_kind */
};
#define MOST_BYTES 1e12 /* of an array in scratch: more is not planned */

static int64_t panels_of(const cpu_conv *c) { return (c->rows.phases.columns + PIXELS - 1) / PIXELS; }
static int64_t strips_of(const cpu_conv *c) { return (c->out_features + FEATURES - 1) / FEATURES; }
static int64_t blocks_of(const cpu_conv *c) { return (c->in_features + K - 1) / K; }
static int64_t strip_bytes(const cpu_conv *c) { return blocks_of(c) * c->taps * STEP_BYTES; }

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* True if the input is read where it lies. */
static bool reads_input(const cpu_conv *c)
{
  for (int d = 0; d < c->spatial; d++)
    if (c->window[d].stride != 1 || c->window[d].pad_low || c->window[d].pad_high) return false;
  return c->in_features % K == 0;
}

static void plan_tasks(cpu_conv *c)
{
  cpu_conv_rows *p = &c->rows;
  int64_t panels = panels_of(c), strips = strips_of(c), most = WEFT_MAX(1, KERNEL_BYTES / strip_bytes(c));

  if (panels < FEW_PANELS) most = WEFT_MIN(most, (strips + FEW_TASKS - 1) / FEW_TASKS);
  p->strips = cpu_even_part(strips, most);
  p->strip_tasks = (strips + p->strips - 1) / p->strips;
  p->panels = WEFT_MAX(1, WEFT_MIN(MOST_PANELS, panels * p->strip_tasks / FEW_TASKS));
  /* reading a part of the kernel takes longer than its product with a few panels */
  if (panels < FEW_PANELS && p->strip_tasks >= FEW_TASKS / 2) p->panels = panels;
  p->panel_tasks = (panels + p->panels - 1) / p->panels;
}

static bool pack_kernel(const rt_packing *packing, rt_pool *pool, const void *from, void *to);

static void plan_packing(cpu_conv *c)
{
  cpu_packing *packing = &c->packing;
  int count = 0;

  packing->key[count++] = FORM_KEY;
  packing->key[count++] = c->out_features;
  packing->key[count++] = c->in_features;
  packing->key[count++] = c->rows.kernel.out_step;
  packing->key[count++] = c->rows.kernel.in_step;
  for (int d = 0; d < c->spatial; d++) {
    packing->key[count++] = c->kernel_size[d];
    packing->key[count++] = c->rows.kernel.step[d];
  }
  packing->plan = c;
  packing->base = (rt_packing){.key = packing->key,
                               .key_bytes = count * (int64_t)sizeof *packing->key,
                               .whole = c->rows.strip_tasks == 1,
                               .pack = pack_kernel,
                               .bytes = strips_of(c) * strip_bytes(c)};
}

/* Counts the pixels of all images of an input that is one matrix as those of one image of one dimension. */
static void join_images(cpu_conv *c)
{
  cpu_conv_rows *p = &c->rows;

  p->joined = true;
  p->phases.columns = p->image_pixels = c->batch * c->out_pixels;
  p->all_images = 1;
}

bool cpu_conv_rows_init(cpu_conv *c, const hlo_conv_attrs *attrs, const hlo_shape *rhs)
{
  cpu_conv_rows *p = &c->rows;
  int64_t k = c->taps * c->in_features, whole = WEFT_ALIGN_UP(c->in_features, K);
  double flops = 2.0 * (double)k * (double)c->out_features * (double)c->out_pixels * (double)c->batch;

  if (c->lhs_type != WEFT_BF16 || c->rhs_type != WEFT_BF16 || (c->out_type != WEFT_BF16 && c->out_type != WEFT_F32) ||
      c->order_lhs || c->order_out || c->spatial == 0 || c->groups != 1 || c->batch_groups != 1 ||
      c->taps > CPU_CONV_MOST_TAPS || flops < LEAST_FLOPS || !cpu_conv_amx_fits())
    return false;
  for (int d = 0; d < c->spatial; d++)
    if (c->window[d].base_dilation != 1 || c->window[d].reversal) return false;
  if ((double)k * (double)c->out_features > MOST_BYTES || (double)c->in_pixels * (double)whole > MOST_BYTES)
    return false;
  /* where a quarter of the elements of k would be padding, patches have less of it */
  if (c->in_features == 0 || whole - c->in_features > whole / 4 || !cpu_conv_phases_plan(c, &p->phases)) return false;
  p->image_pixels = p->phases.places * p->phases.all;
  p->all_images = c->batch;
  p->in_place = reads_input(c);
  if (p->in_place && c->taps == 1) join_images(c);
  /* a tile that begins before the last pixels of an input that is read in place begins in it */
  if (p->in_place && p->phases.columns < PIXELS) p->in_place = false;
  if (!p->in_place && p->joined) return false;
  p->pixel = p->in_place || whole < LONG_PIXEL ? whole : whole + K;
  p->kernel = cpu_conv_kernel_of(attrs, rhs);
  plan_tasks(c);

  double bytes = p->in_place ? 0 : (double)p->image_pixels * (double)p->pixel * 2;
  if (bytes > MOST_BYTES) return false;
  p->images = (int64_t)WEFT_MAX(1.0, WEFT_MIN((double)p->all_images, ROUND_BYTES / WEFT_MAX(1.0, bytes)));
  /* a tile reads beyond the last pixel */
  p->kernel_at = p->in_place ? 0 : WEFT_ALIGN_UP((p->images * p->image_pixels + PIXELS) * p->pixel * 2, 64);
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
  int64_t taps[CPU_CONV_MOST_TAPS]; /* elements from the kernel's first element to the tap's first one */
} form_job;

/* Packs one block of k of one strip: for each tap two tiles of 16 features.  A row of a tile has two neighbours of k
 * for each of its features. What there is not is zeros. */
static CPU_HOT void form_block_task(void *ctx, int64_t task)
{
  const form_job *job = ctx;
  const cpu_conv *c = job->c;
  const cpu_conv_rows *p = &c->rows;
  int64_t strip = task / blocks_of(c), ch = task % blocks_of(c) * K, features = c->out_features - strip * FEATURES;
  int64_t count = WEFT_MIN(K, c->in_features - ch);
  const half *from = job->from + strip * FEATURES * p->kernel.out_step + ch * p->kernel.in_step;
  char *to = job->to + task * c->taps * STEP_BYTES;

  features = WEFT_MIN(FEATURES, features);
  if (p->kernel.out_step == 1) {
    for (int64_t t = 0; t < c->taps; t++)
      for (int64_t l = 0; l < K; l += 2) {
        const half *row = from + job->taps[t] + l * p->kernel.in_step;
        word pairs[FEATURES];
        cpu_conv_amx_pairs(l < count ? row : NULL, l + 1 < count ? row + p->kernel.in_step : NULL, features, pairs);
        for (int i = 0; i < 2; i++)
          memcpy(to + t * STEP_BYTES + i * CPU_AMX_TILE_BYTES + l * 32, pairs + i * CPU_AMX_STRIP, 64);
      }
    return;
  }
  memset(to, 0, (size_t)(c->taps * STEP_BYTES));
  for (int64_t i = 0; i < features; i++)
    for (int64_t l = 0; l < count; l++) {
      const half *x = from + i * p->kernel.out_step + l * p->kernel.in_step;
      half *y = (half *)(void *)to + i / CPU_AMX_STRIP * (CPU_AMX_TILE_BYTES / 2) + l / 2 * 32 + i % CPU_AMX_STRIP * 2 +
                l % 2;
      for (int64_t t = 0; t < c->taps; t++) y[t * (STEP_BYTES / 2)] = x[job->taps[t]];
    }
}

static bool pack_kernel(const rt_packing *packing, rt_pool *pool, const void *from, void *to)
{
  const cpu_conv *c = ((const cpu_packing *)packing)->plan;
  form_job job = {.c = c, .from = from, .to = to};
  int64_t tap[HLO_MAX_RANK] = {0}, t = 0;

  do {
    job.taps[t] = 0;
    for (int d = 0; d < c->spatial; d++) job.taps[t] += tap[d] * c->rows.kernel.step[d];
    t++;
  } while (cpu_conv_next(c->spatial, c->kernel_size, tap));
  rt_parallel_for(pool, strips_of(c) * blocks_of(c), form_block_task, &job);
  return true;
}

/* ---- the input --------------------------------------------------------------------------------------------------- */

typedef struct rows_job {
  const cpu_conv *c;
  const char *lhs; /* of the first of `images` images */
  char *out, *spread; /* out: of all images */
  rt_form kernel;  /* packed */
  const rt_pool *pool;
  const cpu_conv_then *then; /* NULL: the result goes to `out` */
  int64_t first_image, images, lines_per_task;
  int64_t tap_bytes[CPU_CONV_MOST_TAPS]; /* from a pixel of the result to what the tap reads for it */
} rows_job;

static void list_taps(const cpu_conv *c, int64_t *tap_bytes)
{
  cpu_conv_phases_taps(c, &c->rows.phases, tap_bytes);
  for (int64_t t = 0; t < c->taps; t++) tap_bytes[t] *= c->rows.pixel * 2;
}

/* to[count] = every `step`-th pixel of `from`, with zeros behind its features. */
static CPU_HOT void copy_pixels(const cpu_conv *c, const half *from, int64_t step, int64_t count, half *to)
{
  int64_t features = c->in_features, pixel = c->rows.pixel, whole = WEFT_ALIGN_UP(features, K);

  if (step == 1 && pixel == features) {
    memcpy(to, from, (size_t)(count * features) * sizeof *to);
    return;
  }
  for (int64_t i = 0; i < count; i++, from += step * features, to += pixel) {
    memcpy(to, from, (size_t)features * sizeof *to);
    if (whole != features) memset(to + features, 0, (size_t)(whole - features) * sizeof *to);
  }
}

/* Fills one line of the spread input. `from`: the line of the input that it reads; NULL: padding. `q`: the phase along
 * the line. */
static void spread_line(const cpu_conv *c, const half *from, int64_t q, half *to)
{
  int last = c->spatial - 1;
  const hlo_window_dim *w = &c->window[last];
  int64_t count = c->rows.phases.size[last], bytes = c->rows.pixel * (int64_t)sizeof *to, lo, hi;

  cpu_conv_phases_inside(c, &c->rows.phases, q, &lo, &hi);
  if (!from) hi = lo = count;
  memset(to, 0, (size_t)(lo * bytes));
  if (lo < hi)
    copy_pixels(c, from + (lo * w->stride + q - w->pad_low) * c->in_features, w->stride, hi - lo,
                to + lo * c->rows.pixel);
  memset(to + hi * c->rows.pixel, 0, (size_t)((count - hi) * bytes));
}

/* Lines of an image, in all phases. */
static int64_t lines_of(const cpu_conv *c) { return c->rows.image_pixels / c->rows.phases.size[c->spatial - 1]; }

static void spread_task(void *ctx, int64_t task)
{
  const rows_job *job = ctx;
  const cpu_conv *c = job->c;
  const cpu_conv_rows *p = &c->rows;
  int last = c->spatial - 1;
  int64_t lines = lines_of(c), line_elems = p->phases.size[last] * p->pixel, first = task * job->lines_per_task;

  for (int64_t i = first; i < WEFT_MIN(first + job->lines_per_task, job->images * lines); i++) {
    int64_t rest = i % lines, phase, place[HLO_MAX_RANK], from = 0;
    bool inside = true;
    for (int d = last - 1; d >= 0; rest /= p->phases.size[d--]) place[d] = rest % p->phases.size[d];
    phase = rest / p->phases.count[last];
    for (int d = last - 1; d >= 0; phase /= p->phases.count[d--]) {
      int64_t at = place[d] * c->window[d].stride + phase % p->phases.count[d] - c->window[d].pad_low;
      inside &= at >= 0 && at < c->in_size[d];
      from += at * c->in_step[d];
    }
    from = (from + i / lines * c->in_pixels) * c->in_features;
    spread_line(c, inside ? (const half *)(const void *)job->lhs + from : NULL, rest % p->phases.count[last],
                (half *)(void *)job->spread + i * line_elems);
  }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Which of the columns from `column` on, up to `end`, are pixels of the result. *pixel: the first one. */
static uint32_t columns_of(const cpu_conv *c, int64_t column, int64_t end, int64_t *pixel)
{
  if (!c->rows.joined) return cpu_conv_phases_pixels(c, &c->rows.phases, column, end, pixel);
  *pixel = column;
  return (uint32_t)(((uint64_t)1 << (end - column)) - 1);
}

/* Where a task puts the pixels of a panel, with all their features, for the kernel that takes them. */
typedef struct pixel_block {
  char *at;    /* 64 bytes more than a panel has, for end_block's alignment */
  void **args; /* of the kernel */
} pixel_block;

static bool begin_block(const rows_job *job, pixel_block *block)
{
  const cpu_conv *c = job->c;
  const cpu_conv_then *then = job->then;
  int64_t bytes = WEFT_ALIGN_UP(PIXELS * c->out_features * (int64_t)weft_dtype_bytes(c->out_type), 64) + 64;
  int64_t args_bytes = WEFT_ALIGN_UP(then->arg_count * (int64_t)sizeof *then->args, 64);

  block->at = rt_task_scratch(bytes + args_bytes + then->room_bytes, then->no_memory);
  if (!block->at) return false;
  block->args = (void **)(void *)(block->at + bytes);
  memcpy(block->args, then->args, (size_t)then->arg_count * sizeof *then->args);
  if (then->room_bytes) block->args[then->arg_count - 1] = block->at + bytes + args_bytes;
  return true;
}

/* Where pixel `pixel` of all images lies in the block that begins with it, so that the address at which the result
 * would begin is a multiple of 64. */
static char *block_place(const rows_job *job, const pixel_block *block, int64_t pixel)
{
  return block->at + pixel * job->c->out_features * (int64_t)weft_dtype_bytes(job->c->out_type) % 64;
}

static void end_block(const rows_job *job, const pixel_block *block, int64_t pixel, int64_t count)
{
  const cpu_conv *c = job->c;
  int64_t bytes = c->out_features * (int64_t)weft_dtype_bytes(c->out_type);

  block->args[job->then->pixels_arg] = (void *)((uintptr_t)block_place(job, block, pixel) - (uintptr_t)(pixel * bytes));
  job->then->fn(block->args, pixel, pixel + count);
}

static void multiply_task(void *ctx, int64_t task)
{
  const rows_job *job = ctx;
  const cpu_conv *c = job->c;
  const cpu_conv_rows *p = &c->rows;
  int64_t tile = task % p->panel_tasks, part = task / p->panel_tasks % p->strip_tasks;
  int64_t image = task / p->panel_tasks / p->strip_tasks, bytes = (int64_t)weft_dtype_bytes(c->out_type);
  int64_t strip = part * p->strips, strip_end = WEFT_MIN(strip + p->strips, strips_of(c));
  int64_t panel = tile * p->panels, panel_end = WEFT_MIN(panel + p->panels, panels_of(c));
  bool by_panel = p->strip_tasks == 1; /* else each strip is multiplied by all panels, and the next one asked for */
  const char *kernel = rt_form_near(job->kernel, job->pool);
  cpu_amx_walk walk = {.blocks = blocks_of(c), .block_bytes = K * 2, .taps = c->taps, .row_bytes = p->pixel * 2,
                       .tap_bytes = job->tap_bytes};
  int64_t steps = walk.blocks * walk.taps, rounds = (panel_end - panel) * (strip_end - strip);
  _Alignas(64) float sums[PIXELS * FEATURES];
  pixel_block block;

  if (job->then && !begin_block(job, &block)) return;
  cpu_amx_hold_whole();
  for (int64_t r = 0; r < rounds; r++) {
    int64_t s = strip + (by_panel ? r % (strip_end - strip) : r / (panel_end - panel));
    int64_t i = panel + (by_panel ? r / (strip_end - strip) : r % (panel_end - panel));
    int64_t column = i * PIXELS, end = WEFT_MIN(column + PIXELS, p->phases.columns), pixel = 0;
    uint32_t which = columns_of(c, column, end, &pixel);
    if (!which) continue;
    if (p->in_place) { /* the last tile begins earlier, so that it ends with the input */
      int64_t first = p->phases.columns - (end - column > CPU_AMX_STRIP ? PIXELS : CPU_AMX_STRIP);
      if (column > first) which <<= column - first, column = first;
    }
    const char *pixels = job->spread + (image * p->image_pixels + column) * p->pixel * 2;
    if (!by_panel) { /* a share of the next strip */
      int64_t lines = (STEP_BYTES / 64 + panel_end - panel - 1) / (panel_end - panel);
      walk.next = kernel + (s + 1) * strip_bytes(c) + (i - panel) * lines * 64 * steps;
      walk.next_lines = lines;
    }
    cpu_conv_amx_rows(&walk, kernel + s * strip_bytes(c), pixels, which >> CPU_AMX_STRIP,
                      c->out_features - s * FEATURES > CPU_AMX_STRIP, sums);
    int64_t of_all = (job->first_image + image) * c->out_pixels + pixel;
    char *to = job->then ? block_place(job, &block, of_all) : job->out + of_all * c->out_features * bytes;
    cpu_conv_amx_store_rows(sums, WEFT_MIN(FEATURES, c->out_features - s * FEATURES), which, c->out_type,
                            to + s * FEATURES * bytes, c->out_features * bytes);
    if (job->then && s == strip_end - 1) end_block(job, &block, of_all, __builtin_popcount(which));
  }
  cpu_amx_let_go();
}

void cpu_conv_rows_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs, const rt_form *packed,
                       void *out, const cpu_conv_then *then, void *scratch)
{
  const cpu_conv_rows *p = &c->rows;
  rows_job job = {.c = c, .then = then, .out = out, .spread = scratch, .pool = pool};

  if (packed) {
    job.kernel = *packed;
  } else {
    job.kernel.data = (char *)scratch + p->kernel_at;
    pack_kernel(&c->packing.base, pool, rhs, (char *)scratch + p->kernel_at);
  }
  list_taps(c, job.tap_bytes);
  for (int64_t image = 0; image < p->all_images; image += p->images) {
    job.images = WEFT_MIN(p->images, p->all_images - image);
    job.lhs = (const char *)lhs + image * c->in_features * c->in_pixels * 2;
    job.first_image = image;
    if (p->in_place) {
      job.spread = (char *)job.lhs;
    } else {
      job.lines_per_task = WEFT_MAX(1, SPREAD_BYTES / (p->phases.size[c->spatial - 1] * p->pixel * 2));
      rt_parallel_for(pool, (job.images * lines_of(c) + job.lines_per_task - 1) / job.lines_per_task, spread_task,
                      &job);
    }
    rt_parallel_for(pool, job.images * p->panel_tasks * p->strip_tasks, multiply_task, &job);
  }
}
