/* cpu/conv_turned.c -- windows of one element on small images (conv_turned.h).  For one image
 *
 *   sums[pixels, features] = pixels[pixels, in] . kernel[in, features]
 *
 * with the loops of gemm_dense.c.  The numbers of the image are broadcast where they lie: those of neighbouring pixels
 * are neighbours.  A panel of the kernel, two vectors of output features wide, is packed.  A task takes one panel and
 * some pixels, and turns its sums as it writes them.  Sums are added up in the order of gemm_dense.c. */
#include <config.h>

#include "cpu/conv_turned.h"

#if defined __x86_64__

#include <immintrin.h>
#include <stdatomic.h>
#include <string.h>

#include "base/macros.h"
#include "cpu/gemm_dense.h"
#include "cpu/gemm_turn.h"

enum {
  LANES = 16, WIDTH = CPU_MICRO_VECTORS * LANES, /* output features of a panel */
  MOST_PIXELS = 512,
  LEAST_FEATURES = 64,
  LEAST_K = 64,    /* for fewer, turning the sums costs more than it saves */
  LEAST_PART = 28, /* pixels of a task */
  FEW_TASKS = 16,
  SQUARE = 8,
  FORM_KEY = 1002, /* no cpu_gemm_kind */
};
#define BUSY 0.9 /* the part of the lanes that pixels would keep busy */

static int64_t panels_of(const cpu_conv *c) { return (c->out_features + WIDTH - 1) / WIDTH; }
static int64_t panel_bytes(const cpu_conv *c) { return c->in_features * WIDTH * (int64_t)sizeof(float); }

typedef struct form_job {
  const cpu_conv *c;
  const float *from;
  char *to;
} form_job;

/* to[k][WIDTH] = the elements l .. l + k of the kernel of one panel's features. */
static void pack(const cpu_conv *c, const float *kernel, int64_t panel, int64_t l, int64_t k, void *to)
{
  cpu_dense_kernel_of(WEFT_F32)->pack(WEFT_MIN(WIDTH, c->out_features - panel * WIDTH), k,
                                      kernel + panel * WIDTH * c->in_features + l, c->in_features, 1, to, WIDTH);
}

static void form_task(void *ctx, int64_t panel)
{
  const form_job *job = ctx;

  pack(job->c, job->from, panel, 0, job->c->in_features, job->to + panel * panel_bytes(job->c));
}

static bool pack_kernel(const rt_packing *packing, rt_pool *pool, const void *from, void *to)
{
  const cpu_conv *c = ((const cpu_packing *)packing)->plan;
  form_job job = {.c = c, .from = from, .to = to};

  rt_parallel_for(pool, panels_of(c), form_task, &job);
  return true;
}

bool cpu_conv_turned_init(cpu_conv *c)
{
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(WEFT_F32);
  int64_t key[] = {FORM_KEY, c->out_features, c->in_features}, wide = WEFT_ALIGN_UP(c->out_pixels, WIDTH);

  if (!kernel || kernel->lanes != LANES || !c->plain || c->lhs_type != WEFT_F32 || c->out_type != WEFT_F32 ||
      c->out_pixels > MOST_PIXELS || c->out_features < LEAST_FEATURES || c->in_features < LEAST_K ||
      (double)c->out_pixels > BUSY * (double)wide || (double)c->in_features * (double)c->out_features > 1e11)
    return false;
  int64_t parts = (FEW_TASKS + c->batch * panels_of(c) - 1) / (c->batch * panels_of(c));
  parts = WEFT_MAX(1, WEFT_MIN(parts, c->out_pixels / LEAST_PART));
  c->turned = (cpu_conv_turned){.pixels = cpu_even_part(c->out_pixels, (c->out_pixels + parts - 1) / parts)};
  c->turned.parts = (c->out_pixels + c->turned.pixels - 1) / c->turned.pixels;
  memcpy(c->packing.key, key, sizeof key);
  c->packing.plan = c;
  c->packing.base = (rt_packing){
    .key = c->packing.key, .key_bytes = sizeof key, .pack = pack_kernel, .bytes = panels_of(c) * panel_bytes(c)};
  return true;
}

/* to[columns][count], whose rows are `row` apart, = from[count][WIDTH]. */
static __attribute__((target("avx2,fma"))) void turn(const float *from, int64_t count, int64_t columns, float *to,
                                                     int64_t row)
{
  for (int64_t j = 0; j < columns; j += SQUARE)
    for (int64_t i = 0; i < count; i += SQUARE) {
      int64_t rows = WEFT_MIN(SQUARE, count - i), width = WEFT_MIN(SQUARE, columns - j);
      __m256 v[SQUARE];
      if (rows < SQUARE || width < SQUARE) {
        for (int64_t y = 0; y < width; y++)
          for (int64_t x = 0; x < rows; x++) to[(j + y) * row + i + x] = from[(i + x) * WIDTH + j + y];
        continue;
      }
      for (int x = 0; x < SQUARE; x++) v[x] = _mm256_loadu_ps(from + (i + x) * WIDTH + j);
      cpu_turn_8x8(v);
      for (int y = 0; y < SQUARE; y++) _mm256_storeu_ps(to + (j + y) * row + i, v[y]);
    }
}

typedef struct turned_job {
  const cpu_conv *c;
  const float *lhs, *rhs;
  float *out;
  const char *packed; /* NULL: tasks pack what they read */
  atomic_bool failed;
} turned_job;

static void multiply_task(void *ctx, int64_t task)
{
  turned_job *job = ctx;
  const cpu_conv *c = job->c;
  const cpu_dense_kernel *kernel = cpu_dense_kernel_of(WEFT_F32);
  int64_t part = task % c->turned.parts, panel = task / c->turned.parts % panels_of(c);
  int64_t image = task / c->turned.parts / panels_of(c), first = part * c->turned.pixels;
  int64_t pixels = WEFT_MIN(c->turned.pixels, c->out_pixels - first), height = cpu_even_part(pixels, kernel->rows);
  int64_t columns = WEFT_MIN(WIDTH, c->out_features - panel * WIDTH), vectors = (columns + LANES - 1) / LANES;
  int64_t block = cpu_even_part(c->in_features, CPU_DENSE_BLOCK_K);
  const float *from = job->lhs + image * c->in_features * c->out_pixels + first;
  cpu_micro_steps steps = {1, c->out_pixels, WIDTH, WIDTH, NULL, 0};
  int64_t row_bytes = WIDTH * (int64_t)sizeof(float);
  float *sums = rt_task_scratch((pixels + (job->packed ? 0 : block)) * WIDTH * (int64_t)sizeof(float), &job->failed);

  if (!sums) return;
  for (int64_t l = 0; l < c->in_features; l += block) {
    int64_t k = WEFT_MIN(block, c->in_features - l);
    const char *weights = job->packed ? job->packed + panel * panel_bytes(c) + l * WIDTH * (int64_t)sizeof(float)
                                      : (const char *)(sums + pixels * WIDTH);
    if (!job->packed) pack(c, job->rhs, panel, l, k, sums + pixels * WIDTH);
    /* the block behind this one, most often also of the next task, is asked for, a share by each pass over this one */
    if (job->packed) steps.next_step = height * row_bytes / pixels;
    for (int64_t i = 0; i < pixels; i += height) {
      if (job->packed) steps.next = weights + (k + i * k / pixels) * row_bytes;
      kernel->micro[WEFT_MIN(height, pixels - i)][vectors](k, from + l * c->out_pixels + i, weights, sums + i * WIDTH,
                                                           &steps, columns - (vectors - 1) * LANES, l > 0);
    }
  }
  turn(sums, pixels, columns, job->out + (image * c->out_features + panel * WIDTH) * c->out_pixels + first,
       c->out_pixels);
}

weft_status *cpu_conv_turned_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs,
                                 const rt_form *packed, void *out)
{
  turned_job job = {.c = c, .lhs = lhs, .rhs = rhs, .out = out, .packed = packed ? packed->data : NULL};

  rt_parallel_for(pool, c->batch * panels_of(c) * c->turned.parts, multiply_task, &job);
  if (atomic_load(&job.failed)) return WEFT_ERR(RESOURCE_EXHAUSTED, "convolution: out of memory for sums");
  return NULL;
}

#else

bool cpu_conv_turned_init(cpu_conv *c)
{
  (void)c;
  return false;
}

weft_status *cpu_conv_turned_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs,
                                 const rt_form *packed, void *out)
{
  (void)c, (void)pool, (void)lhs, (void)rhs, (void)packed, (void)out;
  return NULL;
}

#endif
