/* tests/fuzz/stablehlo_fuzz.h -- a program of any bytes: an error, or functions each of which lowers to a module or
 * gives an error, and a program that can be printed. The verifier may refuse a module that was lowered, for example
 * because of an alias of another size. */
#ifndef WEFT_TESTS_STABLEHLO_FUZZ_H
#define WEFT_TESTS_STABLEHLO_FUZZ_H

#include <stdio.h>

#include "fuzz.h"
#include "hlo/infer.h"
#include "stablehlo/stablehlo.h"

static inline int stablehlo_fuzz(const uint8_t *data, size_t size)
{
  shlo_program *program = NULL;
  hlo_module *entry = NULL;
  weft_status *st = shlo_parse(data, size, NULL, &entry); /* reads bodies as it lowers them */

  hlo_module_free(entry);
  weft_status_free(st);
  st = shlo_read(data, size, &program);
  if (st) {
    weft_status_free(st);
    return 0;
  }
  FILE *nowhere = fopen("/dev/null", "w");
  if (nowhere) {
    weft_status_free(shlo_print(program, nowhere));
    fclose(nowhere);
  }
  for (int m = 0; m < shlo_module_count(program) && m < 4; m++)
    for (int f = 0; f < shlo_function_count(program, m) && f < 16; f++) {
      hlo_module *module = NULL;
      st = shlo_lower(program, &(shlo_options){.module = m, .function = shlo_function_name(program, m, f)}, &module);
      if (!st) st = hlo_verify(module);
      weft_status_free(st);
      hlo_module_free(module);
    }
  shlo_program_free(program);
  return 0;
}

#endif
