/* tests/fuzz/hlo_text_fuzz.c -- HLO text of any bytes: an error, or a module whose print reads back and prints the
 * same. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "hlo/text.h"

/* A few bytes of text make a constant of a thousand million elements: printing and reading those takes minutes, and
 * shows no more than printing the first thousands does. */
enum { MOST_PRINTED = 1 << 16 };

static int64_t printed_elems(const hlo_literal *literal)
{
  int64_t sum = 0;

  if (!hlo_shape_is_tuple(literal->shape))
    return hlo_shape_is_array(literal->shape) && !literal->elided ? hlo_shape_elems(literal->shape) : 0;
  for (int i = 0; i < literal->shape->rank; i++) sum += printed_elems(literal->elements[i]);
  return sum;
}

static bool is_short(const hlo_module *module)
{
  int64_t sum = 0;

  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op == HLO_CONSTANT) sum += printed_elems(instr->u.literal);
      if (instr->op == HLO_CUSTOM_CALL && instr->u.custom->literal) sum += printed_elems(instr->u.custom->literal);
    }
  return sum <= MOST_PRINTED;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  hlo_module *module = NULL, *again = NULL;
  char *text, *second;
  size_t text_size, second_size;
  weft_status *st = hlo_parse((const char *)data, size, &module);

  if (st) {
    weft_status_free(st);
    return 0;
  }
  if (!is_short(module)) {
    hlo_module_free(module);
    return 0;
  }
  FUZZ_OK(hlo_print_to_string(module, HLO_PRINT_DEFAULT, &text, &text_size));
  FUZZ_OK(hlo_parse(text, text_size, &again));
  FUZZ_OK(hlo_print_to_string(again, HLO_PRINT_DEFAULT, &second, &second_size));
  FUZZ_TRUE(text_size == second_size && memcmp(text, second, text_size) == 0);
  free(text);
  free(second);
  hlo_module_free(module);
  hlo_module_free(again);
  return 0;
}
