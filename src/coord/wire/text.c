/* coord/wire/text.c -- percent encoding, base64, gzip and UTF-8. */
#include <config.h>

#include "coord/wire/text.h"

#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/array.h"

size_t coord_percent_encode(const char *text, size_t size, char *out)
{
  static const char hex[] = "0123456789ABCDEF";
  size_t n = 0;

  for (size_t i = 0; i < size; i++) {
    uint8_t c = (uint8_t)text[i];
    if (c >= 0x20 && c <= 0x7e && c != '%') {
      out[n++] = (char)c;
    } else {
      out[n++] = '%';
      out[n++] = hex[c >> 4];
      out[n++] = hex[c & 15];
    }
  }
  out[n] = '\0';
  return n;
}

static int hex_digit(char c)
{
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

size_t coord_percent_decode(const char *text, size_t size, char *out)
{
  size_t n = 0;

  for (size_t i = 0; i < size; i++) {
    if (text[i] == '%' && i + 2 < size && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out[n++] = (char)(hex_digit(text[i + 1]) << 4 | hex_digit(text[i + 2]));
      i += 2;
    } else {
      out[n++] = text[i];
    }
  }
  out[n] = '\0';
  return n;
}

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t coord_base64_encode(const uint8_t *data, size_t size, char *out)
{
  size_t n = 0;

  for (size_t i = 0; i < size; i += 3) {
    size_t left = WEFT_MIN(size - i, (size_t)3);
    uint32_t word = (uint32_t)data[i] << 16;
    if (left > 1) word |= (uint32_t)data[i + 1] << 8;
    if (left > 2) word |= data[i + 2];
    for (size_t digit = 0; digit <= left; digit++) out[n++] = base64_digits[word >> (18 - 6 * digit) & 63];
  }
  out[n] = '\0';
  return n;
}

bool coord_base64_decode(const char *text, size_t size, uint8_t *out, size_t *out_size)
{
  uint32_t word = 0;
  unsigned bits = 0;
  size_t n = 0;

  while (size > 0 && text[size - 1] == '=') size--;
  for (size_t i = 0; i < size; i++) {
    const char *digit = text[i] ? strchr(base64_digits, text[i]) : NULL;
    if (!digit) return false;
    word = word << 6 | (uint32_t)(digit - base64_digits);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out[n++] = (uint8_t)(word >> bits);
  }
  *out_size = n;
  return size % 4 != 1;
}

/* zlib's windowBits: 15, plus 16 for a gzip wrapper. */
enum { GZIP_WINDOW_BITS = 15 + 16 };

/* Makes room for more, up to one byte past the limit: that byte tells "over" from "exactly at". */
static weft_status *grow_inflated(uint8_t **buf, size_t *capacity, size_t first, size_t max_bytes, coord_budget *budget)
{
  size_t bigger = WEFT_MIN(*capacity ? *capacity * 2 : first, max_bytes + 1);

  if (*capacity > max_bytes)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "gzip message inflates to more than %zu bytes", max_bytes);
  if (!coord_budget_take(budget, bigger - *capacity))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "gzip message inflates past the memory limit of %zu bytes",
                    budget->limit_bytes);
  if (!WEFT_RESIZE(*buf, bigger)) {
    coord_budget_give(budget, bigger - *capacity);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  *capacity = bigger;
  return NULL;
}

weft_status *coord_gunzip(const uint8_t *data, size_t size, size_t max_bytes, coord_budget *budget, uint8_t **out,
                          size_t *out_size)
{
  z_stream z = {0};
  uint8_t *buf = NULL;
  size_t capacity = 0, used = 0, fed = 0;
  weft_status *st = NULL;
  int rc = Z_OK;

  *out = NULL;
  *out_size = 0;
  if (inflateInit2(&z, GZIP_WINDOW_BITS) != Z_OK) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  while (rc != Z_STREAM_END) {
    if (used == capacity)
      st = grow_inflated(&buf, &capacity, WEFT_MIN(size * 4 + 64, (size_t)65536), max_bytes, budget);
    if (st) break;
    if (z.avail_in == 0) { /* zlib counts in 32 bits */
      z.next_in = (uint8_t *)(uintptr_t)(data + fed);
      z.avail_in = (uInt)WEFT_MIN(size - fed, (size_t)1 << 30);
      fed += z.avail_in;
    }
    z.next_out = buf + used;
    z.avail_out = (uInt)WEFT_MIN(capacity - used, (size_t)1 << 30);
    rc = inflate(&z, Z_NO_FLUSH);
    used = (size_t)(z.next_out - buf);
    if (rc == Z_STREAM_END || (rc == Z_OK && (z.avail_out == 0 || fed < size))) continue;
    st = WEFT_ERR(INVALID_ARGUMENT, "broken gzip message (%s)", z.msg ? z.msg : "truncated");
    break;
  }
  if (!st && (z.avail_in > 0 || fed < size)) st = WEFT_ERR(INVALID_ARGUMENT, "bytes after the end of a gzip message");
  if (!st && used > max_bytes)
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "gzip message inflates to more than %zu bytes", max_bytes);
  inflateEnd(&z);
  coord_budget_give(budget, st ? capacity : capacity - used);
  if (st) {
    free(buf);
    return st;
  }
  *out = buf;
  *out_size = used;
  return NULL;
}

bool coord_is_utf8(const char *text, size_t size)
{
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

  for (size_t i = 0; i < size;) {
    uint8_t c = (uint8_t)text[i];
    size_t length = c < 0x80 ? 1 : c >> 5 == 6 ? 2 : c >> 4 == 14 ? 3 : c >> 3 == 30 ? 4 : 0;
    uint32_t point = length == 1 ? c : c & (0x7fu >> length);
    if (length == 0 || length > size - i) return false;
    for (size_t k = 1; k < length; k++) {
      if (((uint8_t)text[i + k] & 0xc0) != 0x80) return false;
      point = point << 6 | ((uint8_t)text[i + k] & 0x3f);
    }
    if (point < least[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return false;
    i += length;
  }
  return true;
}
