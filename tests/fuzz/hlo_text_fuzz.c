/* tests/fuzz/hlo_text_fuzz.c -- HLO text of any bytes: an error, or a module whose print reads back and prints the
 * same. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "hlo/text.h"

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
