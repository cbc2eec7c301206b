/* tests/fuzz/fuzz.h -- what the fuzz targets share.  A target is one function; libFuzzer drives it where configure had
 * --enable-fuzzers, replay.c over its corpus everywhere. */
#ifndef WEFT_TESTS_FUZZ_H
#define WEFT_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_TRUE(expr)                                                        \
  do {                                                                         \
    if (!(expr)) {                                                             \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #expr);     \
      abort();                                                                 \
    }                                                                          \
  } while (0)

#define FUZZ_OK(expr)                                                                                         \
  do {                                                                                                        \
    weft_status *fuzz_st_ = (expr);                                                                           \
    if (fuzz_st_) {                                                                                           \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expr, weft_status_text(fuzz_st_, true));        \
      abort();                                                                                                \
    }                                                                                                         \
  } while (0)

#endif
