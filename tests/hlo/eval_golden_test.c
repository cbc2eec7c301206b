/* tests/hlo/eval_golden_test.c -- The evaluator against values that jaxlib computed. */
#include "hlo/golden.h"

static weft_status *golden_run(const char *text, const hlo_module *module, const hlo_literal *args, weft_arena *arena,
                               const hlo_literal **got)
{
  (void)text;
  return hlo_eval_module(module, args->elements, &HLO_EVAL_DEFAULT, arena, got);
}

int main(int argc, char **argv) { return golden_main(argc, argv); }
