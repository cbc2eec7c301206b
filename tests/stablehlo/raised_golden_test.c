/* tests/stablehlo/raised_golden_test.c -- The values that jaxlib computed, by programs that have been StableHLO in
 * between. */
#include "hlo/golden.h"

#include "stablehlo/stablehlo.h"

static weft_status *golden_run(const char *text, const hlo_module *module, const hlo_literal *args, weft_arena *arena,
                               const hlo_literal **got)
{
  static hlo_module *back; /* until the next run: the result has its shapes */
  WEFT_AUTO_STR printed = NULL;
  size_t size;
  FILE *f = open_memstream(&printed, &size);

  (void)text;
  hlo_module_free(back);
  back = NULL;
  if (!f) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  weft_status *st = shlo_print_hlo(module, f);
  fclose(f);
  if (!st) st = shlo_parse(printed, size, NULL, &back);
  if (!st) st = hlo_verify(back);
  if (!st) st = hlo_eval_module(back, args->elements, &HLO_EVAL_DEFAULT, arena, got);
  if (st) printf("# %.2000s\n", printed);
  return st;
}

int main(int argc, char **argv) { return golden_main(argc, argv); }
