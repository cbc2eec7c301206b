/* tests/fuzz/hlo_proto_fuzz.c -- HloModuleProto of any bytes: an error, or a module that prints to text that reads
 * back, and serialises. */
#include <config.h>

#include <stdlib.h>

#include "fuzz.h"
#include "hlo/proto.h"
#include "hlo/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  hlo_module *module = NULL, *again = NULL;
  char *text;
  void *proto;
  size_t text_size, proto_size;
  weft_status *st = hlo_from_proto(data, size, &module);

  if (st) {
    weft_status_free(st);
    return 0;
  }
  FUZZ_OK(hlo_print_to_string(module, HLO_PRINT_DEFAULT, &text, &text_size));
  FUZZ_OK(hlo_parse(text, text_size, &again));
  hlo_module_free(again);
  FUZZ_OK(hlo_to_proto(module, &proto, &proto_size));
  FUZZ_OK(hlo_from_proto(proto, proto_size, &again));
  free(text);
  free(proto);
  hlo_module_free(module);
  hlo_module_free(again);
  return 0;
}
