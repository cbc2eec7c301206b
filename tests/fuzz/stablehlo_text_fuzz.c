/* tests/fuzz/stablehlo_text_fuzz.c -- StableHLO text of any bytes. */
#include <config.h>

#include <string.h>

#include "stablehlo_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size >= 4 && memcmp(data, "ML\xefR", 4) == 0) return 0;
  return stablehlo_fuzz(data, size);
}
