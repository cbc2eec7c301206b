/* base/wire.h -- numbers, strings and blocks of bytes in a row: written to memory that grows, and read from bytes that
 * may come from an untrusted source. Numbers are little-endian; strings and blocks follow their length in 8 bytes. */
#ifndef WEFT_BASE_WIRE_H
#define WEFT_BASE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* A zeroed writer is empty. Without memory it keeps its first `size` bytes and remembers it: weft_writer_take fails. */
typedef struct weft_writer {
  char *data;
  size_t size, capacity;
  bool failed;
} weft_writer;
void weft_put_u64(weft_writer *w, uint64_t value);
void weft_put_f64(weft_writer *w, double value);
void weft_put_raw(weft_writer *w, const void *data, size_t size); /* without a length */
void weft_put_bytes(weft_writer *w, const void *data, size_t size);
void weft_put_text(weft_writer *w, const char *text);
/* Moves what was written out of `w`, in memory from malloc. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *weft_writer_take(weft_writer *w, void **out_data, size_t *out_size);
void weft_writer_fini(weft_writer *w);

/* Reads [at, end). After a read past the end, `failed` is set and all that is read is zero or empty. */
typedef struct weft_reader {
  const char *at, *end;
  bool failed;
} weft_reader;
uint64_t weft_get_u64(weft_reader *r);
double weft_get_f64(weft_reader *r);
const void *weft_get_raw(weft_reader *r, size_t size); /* borrowed from the input; NULL: there are fewer bytes */
const void *weft_get_bytes(weft_reader *r, size_t *out_size);
/* A number of items of at least `item_bytes` each, so that no count is larger than the input. */
int weft_get_count(weft_reader *r, size_t item_bytes);
/* A string in `arena`; "" if it failed. */
const char *weft_get_text(weft_reader *r, weft_arena *arena);

#endif
