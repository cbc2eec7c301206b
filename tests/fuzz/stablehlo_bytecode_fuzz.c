/* tests/fuzz/stablehlo_bytecode_fuzz.c -- MLIR bytecode of any bytes behind its magic. */
#include <config.h>

#include <string.h>

#include "stablehlo_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size < 4 || memcmp(data, "ML\xefR", 4) != 0) return 0;
  return stablehlo_fuzz(data, size);
}
