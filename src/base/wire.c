/* base/wire.c -- numbers, strings and blocks of bytes in a row (wire.h). */
#include <config.h>

#include "base/wire.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macros.h"

/* ---- writing --------------------------------------------------------------------------------------------------- */

void weft_put_raw(weft_writer *w, const void *data, size_t size)
{
  size_t need;

  if (w->failed || size == 0) return;
  if (__builtin_add_overflow(w->size, size, &need)) {
    w->failed = true;
    return;
  }
  if (!WEFT_RESERVE(w->data, w->capacity, need, 256)) {
    w->failed = true;
    return;
  }
  memcpy(w->data + w->size, data, size);
  w->size = need;
}

void weft_put_u64(weft_writer *w, uint64_t value)
{
  unsigned char bytes[8];

  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(value >> (8 * i));
  weft_put_raw(w, bytes, sizeof bytes);
}

void weft_put_f64(weft_writer *w, double value)
{
  uint64_t bits;

  memcpy(&bits, &value, sizeof bits);
  weft_put_u64(w, bits);
}

void weft_put_bytes(weft_writer *w, const void *data, size_t size)
{
  weft_put_u64(w, size);
  weft_put_raw(w, data, size);
}

void weft_put_text(weft_writer *w, const char *text) { weft_put_bytes(w, text, strlen(text)); }

weft_status *weft_writer_take(weft_writer *w, void **out_data, size_t *out_size)
{
  *out_data = NULL;
  *out_size = 0;
  if (w->failed) {
    weft_writer_fini(w);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  *out_data = w->data;
  *out_size = w->size;
  *w = (weft_writer){0};
  return NULL;
}

void weft_writer_fini(weft_writer *w)
{
  free(w->data);
  *w = (weft_writer){0};
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

const void *weft_get_raw(weft_reader *r, size_t size)
{
  const char *at = r->at;

  if (r->failed || size > (size_t)(r->end - at)) {
    r->failed = true;
    return NULL;
  }
  r->at += size;
  return at;
}

uint64_t weft_get_u64(weft_reader *r)
{
  const unsigned char *bytes = weft_get_raw(r, 8);
  uint64_t value = 0;

  for (int i = 0; bytes && i < 8; i++) value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

double weft_get_f64(weft_reader *r)
{
  uint64_t bits = weft_get_u64(r);
  double value;

  memcpy(&value, &bits, sizeof value);
  return value;
}

const void *weft_get_bytes(weft_reader *r, size_t *out_size)
{
  uint64_t size = weft_get_u64(r);
  const void *bytes = weft_get_raw(r, size);

  *out_size = bytes ? size : 0;
  return bytes;
}

int weft_get_count(weft_reader *r, size_t item_bytes)
{
  uint64_t count = weft_get_u64(r);

  if (r->failed || count > INT_MAX || count > (size_t)(r->end - r->at) / item_bytes) {
    r->failed = true;
    return 0;
  }
  return (int)count;
}

const char *weft_get_text(weft_reader *r, weft_arena *arena)
{
  size_t size;
  const char *bytes = weft_get_bytes(r, &size);
  char *text = bytes && !memchr(bytes, '\0', size) ? weft_arena_alloc(arena, size + 1) : NULL;

  if (!text) {
    r->failed = true;
    return "";
  }
  memcpy(text, bytes, size);
  text[size] = '\0';
  return text;
}
