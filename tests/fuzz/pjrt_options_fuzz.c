/* tests/fuzz/pjrt_options_fuzz.c -- CompileOptionsProto of any bytes: an error, or options within their bounds. */
#include <config.h>

#include "fuzz.h"
#include "pjrt/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  pjrt_options options;
  weft_status *st = pjrt_options_read(data, size, &options);

  if (st) {
    weft_status_free(st);
    return 0;
  }
  FUZZ_TRUE(options.replica_count >= 1 && options.partition_count >= 1);
  FUZZ_TRUE(!options.assignment || options.assignment_count == options.replica_count * options.partition_count);
  pjrt_options_fini(&options);
  return 0;
}
