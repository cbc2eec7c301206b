/* bench/convolutions.c -- convolutions by oneDNN beside Weft's own kernels, as a Markdown table:
 *   convolutions [SECONDS] [THREADS] [MATCH]
 * Both sides take turns in one process for SECONDS (0.2) each case, on THREADS threads (1); the shortest run counts.
 * With MATCH only the cases whose first four columns, with a space between them, contain it ("bf16 first 3x3").
 * The kernel is in its packed form, and in the columns "unpacked" it is rearranged in each run. */
#include <config.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"
#include "cpu/conv.h"
#include "hlo/text.h"
#include "runtime/pool.h"

typedef struct shape { int window, stride, in, out, size, groups, batch; } shape;
static const shape shapes[] = {
  {7, 2, 3, 64, 224, 1, 1}, {3, 1, 64, 64, 56, 1, 1}, {3, 1, 128, 128, 28, 1, 1}, {3, 1, 256, 256, 14, 1, 1},
  {3, 1, 512, 512, 7, 1, 1}, {3, 2, 128, 128, 56, 1, 1}, {3, 2, 256, 256, 28, 1, 1}, {3, 1, 128, 128, 28, 1, 8},
  {1, 1, 64, 256, 56, 1, 1}, {1, 1, 256, 64, 56, 1, 1}, {1, 1, 1024, 256, 14, 1, 1}, {1, 1, 256, 1024, 14, 1, 1},
  {1, 1, 512, 2048, 7, 1, 1}, {1, 2, 256, 512, 56, 1, 1}, {1, 2, 1024, 2048, 14, 1, 1}, {3, 1, 32, 3, 64, 1, 1},
  {3, 1, 3, 32, 64, 1, 1}, {3, 1, 16, 16, 32, 1, 1}, {5, 1, 32, 64, 14, 1, 8}, {3, 1, 1, 32, 28, 1, 8},
  {3, 1, 128, 128, 56, 128, 1}, {3, 1, 256, 256, 56, 256, 1}, {3, 2, 256, 256, 56, 256, 1},
  {5, 1, 240, 240, 14, 240, 1}, {5, 1, 672, 672, 14, 672, 1}, {3, 1, 128, 128, 28, 32, 1}, {7, 1, 96, 96, 56, 96, 1},
};

typedef struct side {
  cpu_conv plan;
  void *scratch, *form;
  int64_t best[2]; /* packed, unpacked */
} side;

static void *fill(int64_t count, weft_dtype type)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(type);
  char *data = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(count * bytes + 64, 64));

  for (int64_t i = 0; i < count && data; i++) {
    float x = (float)(i * 7919 % 2003) / 1000 - 1;
    if (type == WEFT_F32) memcpy(data + i * 4, &x, 4);
    else *(uint16_t *)(data + i * 2) = (uint16_t)weft_float_encode(WEFT_BF16, x);
  }
  return data;
}

static double value(const void *data, int64_t i, weft_dtype type)
{
  return type == WEFT_F32 ? (double)((const float *)data)[i]
                          : weft_float_decode(WEFT_BF16, ((const uint16_t *)data)[i]);
}

static weft_status *parse(const shape *s, weft_dtype type, bool features_last, hlo_module **out)
{
  int pad = s->window / 2, size = (s->size + 2 * pad - s->window) / s->stride + 1;
  int high = WEFT_MAX(0, (size - 1) * s->stride + s->window - pad - s->size), each = s->in / s->groups;
  const char *t = weft_dtype_name(type);
  char text[1024], x[128], k[128], y[128];

  if (features_last) {
    snprintf(x, sizeof x, "%d,%d,%d,%d", s->batch, s->size, s->size, s->in);
    snprintf(k, sizeof k, "%d,%d,%d,%d", s->window, s->window, each, s->out);
    snprintf(y, sizeof y, "%d,%d,%d,%d", s->batch, size, size, s->out);
  } else {
    snprintf(x, sizeof x, "%d,%d,%d,%d", s->batch, s->in, s->size, s->size);
    snprintf(k, sizeof k, "%d,%d,%d,%d", s->out, each, s->window, s->window);
    snprintf(y, sizeof y, "%d,%d,%d,%d", s->batch, s->out, size, size);
  }
  snprintf(
    text, sizeof text,
    "HloModule m\n"
    "ENTRY e {\n"
    "  x = %s[%s] parameter(0)\n"
    "  k = %s[%s] parameter(1)\n"
    "  ROOT y = %s[%s] convolution(x, k), window={size=%dx%d stride=%dx%d pad=%d_%dx%d_%d}, dim_labels=%s, feature_group_count=%d\n"
    "}\n",
    t, x, t, k, t, y, s->window, s->window, s->stride, s->stride, pad, high, pad, high,
    features_last ? "b01f_01io->b01f" : "bf01_oi01->bf01", s->groups);
  return hlo_parse(text, strlen(text), out);
}

static weft_status *prepare(side *s, const hlo_instr *conv, bool library, const void *kernel)
{
  cpu_onednn_allow(library);
  WEFT_TRY(cpu_conv_init(&s->plan, conv->u.conv, conv->operands[0]->shape, conv->operands[1]->shape, conv->shape));
  s->scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(s->plan.scratch_bytes + 64, 64));
  WEFT_TRY_ALLOC(s->scratch);
  s->best[0] = s->best[1] = INT64_MAX;
  const cpu_packing *packing = &s->plan.packing;
  if (packing->base.bytes == 0) return NULL;
  s->form = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(packing->base.bytes, 64));
  WEFT_TRY_ALLOC(s->form);
  return packing->base.pack(&packing->base, NULL, kernel, s->form) ? NULL : WEFT_ERR(INTERNAL, "no form is made");
}

static weft_status *measure(const shape *s, weft_dtype type, bool features_last, double seconds, rt_pool *pool)
{
  WEFT_AUTO(hlo_module) module = NULL;
  side sides[2] = {{.form = NULL}};

  WEFT_TRY(parse(s, type, features_last, &module));
  const hlo_instr *conv = module->entry->root;
  int64_t count = hlo_shape_elems(conv->shape);
  void *x = fill(hlo_shape_elems(conv->operands[0]->shape), type),
       *k = fill(hlo_shape_elems(conv->operands[1]->shape), type);
  void *y[2] = {fill(count, type), fill(count, type)};
  for (int i = 0; i < 2; i++) WEFT_TRY(prepare(&sides[i], conv, i == 1, k));
  int64_t until = weft_now_ns() + (int64_t)(seconds * 1e9);
  do
    for (int i = 0; i < 4; i++) {
      side *one = &sides[i / 2];
      int64_t begin = weft_now_ns();
      WEFT_TRY(cpu_conv_run(&one->plan, pool, x, k, i % 2 || !one->form ? NULL : &(rt_form){.data = one->form},
                            y[i / 2], one->scratch));
      one->best[i % 2] = WEFT_MIN(one->best[i % 2], weft_now_ns() - begin);
    }
  while (weft_now_ns() < until);
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < count; i++) {
    worst = fmax(worst, fabs(value(y[0], i, type) - value(y[1], i, type)));
    largest = fmax(largest, fabs(value(y[0], i, type)));
  }
  printf("| %s | %s | %dx%d%s | %d-%d%s | %d | %d | %.1f | %.1f | %.1f | %.1f | %.2f | %.2f | %.0e%s |\n",
         weft_dtype_name(type), features_last ? "last" : "first", s->window, s->window, s->stride == 2 ? " / 2" : "",
         s->in, s->out,
         s->groups == 1       ? ""
         : s->groups == s->in ? " depthwise"
                              : " grouped",
         s->size, s->batch, (double)sides[0].best[0] / 1e3, (double)sides[1].best[0] / 1e3,
         (double)sides[0].best[1] / 1e3, (double)sides[1].best[1] / 1e3,
         (double)sides[0].best[0] / (double)sides[1].best[0], (double)sides[0].best[1] / (double)sides[1].best[1],
         worst / largest, sides[1].plan.onednn ? "" : " *");
  fflush(stdout);
  for (int i = 0; i < 2; i++) {
    cpu_conv_fini(&sides[i].plan);
    free(sides[i].scratch), free(sides[i].form), free(y[i]);
  }
  free(x), free(k);
  return NULL;
}

static bool is_asked(const shape *s, weft_dtype type, bool features_last, const char *match)
{
  char name[128];

  snprintf(name, sizeof name, "%s %s %dx%d%s %d-%d", weft_dtype_name(type), features_last ? "last" : "first", s->window,
           s->window, s->stride == 2 ? " / 2" : "", s->in, s->out);
  return strstr(name, match);
}

static weft_status *run(double seconds, int threads, const char *match)
{
  WEFT_AUTO(rt_pool) pool = NULL;

  WEFT_TRY(rt_pool_new(&(rt_pool_options){.threads = threads}, &pool));
  printf(
    "oneDNN %s, %d threads. Times in microseconds; ratio: Weft / oneDNN. *Unpacked*: the kernel is rearranged in each "
    "run. *Difference* of the results, relative to the largest element. Rows marked with a star are Weft's kernel on "
    "both sides: they show the noise.\n\n",
    cpu_onednn_version(), threads);
  printf(
    "| type | features | window | channels | image | batch | Weft | oneDNN | Weft, unpacked | oneDNN, unpacked | ratio | "
    "unpacked | difference |\n");
  printf("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (int type = 0; type < 2; type++)
    for (int last = 1; last >= 0; last--)
      for (size_t i = 0; i < WEFT_COUNT(shapes); i++)
        if (is_asked(&shapes[i], type ? WEFT_BF16 : WEFT_F32, last, match))
          WEFT_TRY(measure(&shapes[i], type ? WEFT_BF16 : WEFT_F32, last, seconds, pool));
  return NULL;
}

int main(int argc, char **argv)
{
  weft_status *st =
    run(argc > 1 ? atof(argv[1]) : 0.2, argc > 2 ? WEFT_MAX(1, atoi(argv[2])) : 1, argc > 3 ? argv[3] : "");

  if (!st) return 0;
  fprintf(stderr, "%s\n", weft_status_message(st));
  weft_status_free(st);
  return 1;
}
