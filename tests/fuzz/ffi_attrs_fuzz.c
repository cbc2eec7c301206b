/* tests/fuzz/ffi_attrs_fuzz.c -- Attributes of a custom call of any bytes: an error, or a dictionary sorted by name. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/ffi.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char *text = malloc(size + 1);
  XLA_FFI_Attrs attrs;
  weft_arena arena;

  if (!text) return 0;
  memcpy(text, data, size);
  text[size] = 0;
  weft_arena_init(&arena);
  weft_status *st = rt_ffi_attrs_parse(&arena, text, &attrs);
  if (!st)
    for (int64_t i = 1; i < attrs.size; i++) {
      const XLA_FFI_ByteSpan *a = attrs.names[i - 1], *b = attrs.names[i];
      int order = memcmp(a->ptr, b->ptr, a->len < b->len ? a->len : b->len);
      FUZZ_TRUE(order < 0 || (order == 0 && a->len < b->len));
    }
  FUZZ_TRUE(arena.total_bytes <= 65536 + 512 * size);
  weft_status_free(st);
  weft_arena_fini(&arena);
  free(text);
  return 0;
}
