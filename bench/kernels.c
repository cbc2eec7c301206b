/* bench/kernels.c -- compile and run times of the fusions of a scheduled module, one line each:
 *   kernels FILE.hlo [SECONDS]
 * Inputs are random; every kernel runs alone, on one thread, until SECONDS have passed (0.3). */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/read_file.h"

#include "base/deadline.h"
#include "codegen/codegen.h"
#include "hlo/text.h"

static void fill(void *data, const hlo_shape *shape)
{
  int64_t n = hlo_shape_elems(shape);

  for (int64_t i = 0; i < n; i++) {
    if (shape->type == WEFT_F32) ((float *)data)[i] = (float)(i * 7919 % 2003) / 1000 - 1;
    else if (shape->type == WEFT_F64) ((double *)data)[i] = (double)(i * 7919 % 2003) / 1000 - 1;
    else if (shape->type == WEFT_BF16) ((uint16_t *)data)[i] = (uint16_t)(0x3f00 + i % 256);
    else memset((char *)data + i * (int64_t)weft_dtype_bytes(shape->type), 0, weft_dtype_bytes(shape->type));
  }
}

static void run(const hlo_instr *fusion, const gen_kernel *k, double seconds)
{
  void **args = calloc((size_t)k->arg_count + 1, sizeof *args);
  int n = 0;
  int64_t best = INT64_MAX, start, until = weft_now_ns() + (int64_t)(seconds * 1e9);

  for (int i = 0; i <= fusion->operand_count; i++) {
    const hlo_shape *shape = i < fusion->operand_count ? fusion->operands[i]->shape : fusion->shape;
    for (int l = 0; l < hlo_shape_leaf_count(shape); l++) {
      const hlo_shape *leaf = hlo_shape_leaf(shape, l);
      args[n] = aligned_alloc(64, WEFT_ALIGN_UP((size_t)hlo_shape_bytes(leaf) + 64, (size_t)64));
      fill(args[n++], leaf);
    }
  }
  if (k->scratch_bytes) args[n++] = aligned_alloc(64, WEFT_ALIGN_UP((size_t)k->scratch_bytes, (size_t)64));
  if (k->shared_bytes) args[n++] = aligned_alloc(64, WEFT_ALIGN_UP((size_t)k->shared_bytes, (size_t)64));
  do {
    start = weft_now_ns();
    for (int p = 0; p < k->phase_count; p++) k->phases[p].fn(args, 0, k->phases[p].units);
    best = WEFT_MIN(best, weft_now_ns() - start);
  } while (weft_now_ns() < until);
  double ns = 0;
  for (int p = 0; p < k->phase_count; p++) ns += (double)k->phases[p].units * k->phases[p].unit_ns;
  printf("%-24s %-8s units %-6lld  min %10.3f us  estimate %10.3f us  %7.2f GB/s\n", fusion->name, k->symbol,
         (long long)k->phases[k->phase_count - 1].units, (double)best / 1e3, ns / 1e3, k->bytes / (double)best);
  for (int i = 0; i < n; i++) free(args[i]);
  free(args);
}

static weft_status *bench(const char *path, double seconds)
{
  WEFT_AUTO_STR text = NULL;
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO(gen_code) code = NULL;
  gen_options options;
  size_t size;

  text = read_file(path, &size);
  if (!text) return WEFT_ERR(NOT_FOUND, "cannot read %s", path);
  WEFT_TRY(hlo_parse(text, size, &module));
  WEFT_TRY(gen_options_load(&options));
  WEFT_TRY(gen_compile(module, &options, &code));
  const gen_stats *s = gen_code_stats(code);
  printf(
    "%d fusions, %d kernels, %d parts: emit %.1f ms, optimise %.1f ms, codegen %.1f ms, link %.1f ms, total %.1f ms\n",
    s->fusions, s->kernels, s->parts, (double)s->emit_ns / 1e6, (double)s->optimize_ns / 1e6,
    (double)s->codegen_ns / 1e6, (double)s->link_ns / 1e6, (double)s->total_ns / 1e6);
  HLO_FOREACH(x, module->entry) {
    const gen_kernel *k = x->op == HLO_FUSION ? gen_code_kernel(code, x) : NULL;
    if (k) run(x, k, seconds);
  }
  return NULL;
}

int main(int argc, char **argv)
{
  if (argc < 2) return fprintf(stderr, "usage: %s FILE.hlo [SECONDS]\n", argv[0]), 2;
  weft_status *st = bench(argv[1], argc > 2 ? atof(argv[2]) : 0.3);
  if (st) fprintf(stderr, "%s\n", weft_status_text(st, false));
  weft_status_free(st);
  return st ? 1 : 0;
}
