/* The values that jaxlib computed, by programs that have been StableHLO in between. */
#include "hlo/golden.h"

#include "stablehlo/stablehlo.h"

static weft_status *golden_run(const char *text, const hlo_module *module, const hlo_literal *args, weft_arena *arena,
                               const hlo_literal **got)
{
  WEFT_AUTO(hlo_module) back = NULL;
  WEFT_AUTO_STR printed = NULL;
  size_t size;
  FILE *f = open_memstream(&printed, &size);

  (void)text;
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
