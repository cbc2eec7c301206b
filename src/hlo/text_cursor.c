/* hlo/text_cursor.c -- the tokens of HLO text: words, numbers, strings, lists, and errors that show their place. */
#include <config.h>

#include "base/array.h"
#include "hlo/text_internal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/quote.h"

/* ---- setting up ---- */

weft_status *hlo_rd_init(hlo_reader *r, weft_arena *arena, const char *text, size_t size)
{
  char *copy = size < SIZE_MAX ? malloc(size + 1) : NULL;

  *r = (hlo_reader){.arena = arena};
  WEFT_TRY_ALLOC(copy);
  if (size) memcpy(copy, text, size);
  copy[size] = '\0';
  r->begin = r->p = copy;
  r->end = copy + size;
  hlo_rd_space(r);
  return NULL;
}

void hlo_rd_fini(hlo_reader *r)
{
  free((char *)r->begin);
  free(r->stack);
  *r = (hlo_reader){0};
}

/* ---- errors ---- */

weft_status *hlo_rd_error(const hlo_reader *r, const char *at, const char *fmt, ...)
{
  char message[512], quote[WEFT_QUOTE_BYTES];
  const char *line = r->begin;
  size_t line_number = 1;
  va_list args;

  va_start(args, fmt);
  vsnprintf(message, sizeof message, fmt, args);
  va_end(args);
  for (const char *p = r->begin; (p = memchr(p, '\n', (size_t)(at - p))); line = ++p) line_number++;
  return WEFT_ERR(INVALID_ARGUMENT, "%zu:%zu: %s%s", line_number, (size_t)(at - line) + 1, message,
                  weft_quote(r->begin, r->end, at, quote));
}

weft_status *hlo_rd_expected(const hlo_reader *r, const char *what)
{
  hlo_span word = hlo_rd_peek_word(r);
  unsigned char c = (unsigned char)*r->p;

  if (r->p == r->end) return hlo_rd_error(r, r->p, "expected %s, got the end of the text", what);
  if (word.length)
    return hlo_rd_error(r, r->p, "expected %s, got \"%.*s\"", what, (int)WEFT_MIN(word.length, 60u), word.p);
  if (!isprint(c)) return hlo_rd_error(r, r->p, "expected %s, got byte 0x%02x", what, c);
  return hlo_rd_error(r, r->p, "expected %s, got '%c'", what, c);
}

/* ---- words and punctuation ---- */

void hlo_rd_space(hlo_reader *r)
{
  const char *p = r->p;

  for (;;) {
    while (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r') p++;
    if (WEFT_LIKELY(*p != '/')) break;
    if (p[1] == '/') {
      const char *line_end = memchr(p, '\n', (size_t)(r->end - p));
      p = line_end ? line_end : r->end;
    } else if (p[1] == '*') {
      const char *close = strstr(p + 2, "*/");
      if (!close) break; /* a comment without an end: the next token reports its '/' */
      p = close + 2;
    } else {
      break;
    }
  }
  r->p = p;
}

bool hlo_rd_accept_text(hlo_reader *r, const char *text)
{
  size_t length = strlen(text);

  if (strncmp(r->p, text, length) != 0) return false;
  hlo_rd_skip(r, length);
  return true;
}

weft_status *hlo_rd_expect(hlo_reader *r, char c)
{
  char what[4] = {'\'', c, '\'', '\0'};

  return WEFT_LIKELY(hlo_rd_accept(r, c)) ? NULL : hlo_rd_expected(r, what);
}

weft_status *hlo_rd_expect_text(hlo_reader *r, const char *text)
{
  char what[32];

  if (hlo_rd_accept_text(r, text)) return NULL;
  snprintf(what, sizeof what, "\"%s\"", text);
  return hlo_rd_expected(r, what);
}

enum { WORD_FIRST = 1, WORD = 2 };
static const unsigned char char_class[256] = {
  ['a' ... 'z'] = WORD_FIRST | WORD, ['A' ... 'Z'] = WORD_FIRST | WORD, ['_'] = WORD_FIRST | WORD,
  ['0' ... '9'] = WORD, ['.'] = WORD, ['-'] = WORD,
};

hlo_span hlo_rd_peek_word(const hlo_reader *r)
{
  const char *first = r->p + (*r->p == '%'), *p = first;

  if (!(char_class[(unsigned char)*p] & WORD_FIRST)) return (hlo_span){first, 0};
  do {
    p++;
  } while (char_class[(unsigned char)*p] & WORD && !(p[0] == '-' && p[1] == '>'));
  return (hlo_span){first, (size_t)(p - first)};
}

static void skip_span(hlo_reader *r, hlo_span span)
{
  r->p = span.p + span.length;
  hlo_rd_space(r);
}

bool hlo_rd_accept_word(hlo_reader *r, const char *word)
{
  hlo_span span = hlo_rd_peek_word(r);

  if (!hlo_span_is(span, word)) return false;
  skip_span(r, span);
  return true;
}

weft_status *hlo_rd_word(hlo_reader *r, const char *what, hlo_span *out)
{
  *out = hlo_rd_peek_word(r);
  if (WEFT_UNLIKELY(out->length == 0)) return hlo_rd_expected(r, what);
  skip_span(r, *out);
  return NULL;
}

weft_status *hlo_rd_keep(hlo_reader *r, hlo_span span, const char **out)
{
  *out = weft_arena_strndup(r->arena, span.p, span.length);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

/* ---- numbers ---- */

weft_status *hlo_rd_int(hlo_reader *r, int64_t *out)
{
  const char *p = r->p;
  bool negative = *p == '-';
  uint64_t value = 0;

  p += negative;
  if (!isdigit((unsigned char)*p)) return hlo_rd_expected(r, "an integer");
  for (; isdigit((unsigned char)*p); p++) {
    if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, (unsigned)(*p - '0'), &value))
      return hlo_rd_error(r, r->p, "integer over 64 bits");
  }
  if (negative && value > (uint64_t)INT64_MAX + 1) return hlo_rd_error(r, r->p, "integer below -2^63");
  *out = (int64_t)(negative ? 0 - value : value);
  hlo_rd_skip(r, (size_t)(p - r->p));
  return NULL;
}

weft_status *hlo_rd_int_in(hlo_reader *r, int64_t least, int64_t most, int64_t *out)
{
  const char *at = r->p;

  WEFT_TRY(hlo_rd_int(r, out));
  if (*out < least || *out > most || (*at != '-' && *out < 0))
    return hlo_rd_error(r, at, "%s%" PRIu64 " is not between %" PRId64 " and %" PRId64, *at == '-' ? "-" : "",
                        *at == '-' ? 0 - (uint64_t)*out : (uint64_t)*out, least, most);
  return NULL;
}

weft_status *hlo_rd_double(hlo_reader *r, double *out)
{
  const char *p = r->p + (*r->p == '-' || *r->p == '+');
  char *end;

  if (!isdigit((unsigned char)*p) && *p != '.' && strncmp(p, "inf", 3) != 0 && strncmp(p, "nan", 3) != 0)
    return hlo_rd_expected(r, "a number");
  *out = strtod(r->p, &end);
  if (end == r->p) return hlo_rd_expected(r, "a number");
  hlo_rd_skip(r, (size_t)(end - r->p));
  return NULL;
}

weft_status *hlo_rd_bool(hlo_reader *r, bool *out)
{
  *out = false;
  if (hlo_rd_accept_word(r, "true")) *out = true;
  else if (!hlo_rd_accept_word(r, "false")) return hlo_rd_expected(r, "true or false");
  return NULL;
}

/* ---- strings and braces ---- */

static int hex_digit(char c)
{
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* Writes the character of the escape sequence, whose backslash is before `p`, to *to.  Returns the place behind it. */
static const char *unescape(const char *p, char *to)
{
  static const char letters[] = "abfnrtv", values[] = "\a\b\f\n\r\t\v";
  const char *letter = *p ? strchr(letters, *p) : NULL;
  int value = 0, digits = 0;

  if (letter) {
    *to = values[letter - letters];
    return p + 1;
  }
  if (*p == 'x' && hex_digit(p[1]) >= 0) {
    for (p++; digits < 2 && hex_digit(*p) >= 0; digits++) value = value * 16 + hex_digit(*p++);
    *to = (char)value;
    return p;
  }
  if (*p >= '0' && *p <= '7') {
    for (; digits < 3 && *p >= '0' && *p <= '7'; digits++) value = value * 8 + (*p++ - '0');
    *to = (char)value;
    return p;
  }
  *to = *p; /* \" \' \\ \?; any other character stands for itself, too */
  return p + 1;
}

/* The closing quote of the string that begins at `p`, or NULL. */
static const char *string_end(const hlo_reader *r, const char *p)
{
  char quote = *p++;

  for (; p < r->end && *p != quote; p++)
    if (*p == '\\' && p + 1 < r->end) p++;
  return p < r->end ? p : NULL;
}

weft_status *hlo_rd_string(hlo_reader *r, const char **out)
{
  const char *p = r->p, *close;
  char *to;

  if (*p != '"' && *p != '\'') return hlo_rd_expected(r, "a string");
  close = string_end(r, p);
  if (!close) return hlo_rd_error(r, p, "this string has no end");
  to = weft_arena_alloc(r->arena, (size_t)(close - p));
  WEFT_TRY_ALLOC(to);
  *out = to;
  for (p++; p < close;) {
    const char *escape = memchr(p, '\\', (size_t)(close - p));
    size_t plain = (size_t)((escape ? escape : close) - p);

    if (memchr(p, '\0', plain)) return hlo_rd_error(r, p, "a NUL byte in a string");
    memcpy(to, p, plain);
    to += plain;
    p += plain;
    if (escape) p = unescape(p + 1, to++);
    if (escape && to[-1] == '\0') return hlo_rd_error(r, escape, "a NUL byte in a string");
  }
  r->p = close + 1;
  hlo_rd_space(r);
  return NULL;
}

weft_status *hlo_rd_braces(hlo_reader *r, const char **out)
{
  const char *p = r->p;
  size_t depth = 0;

  *out = NULL;
  if (*p != '{') return hlo_rd_expected(r, "'{'");
  for (; p < r->end; p++) {
    if (*p == '"') {
      const char *at = p;
      p = string_end(r, p);
      if (!p) return hlo_rd_error(r, r->p, "a string in these braces has no end");
      if (memchr(at, '\0', (size_t)(p - at))) return hlo_rd_error(r, at, "a NUL byte in a string");
    } else if (*p == '{') {
      depth++;
    } else if (*p == '\0') {
      break;
    } else if (*p == '}' && --depth == 0) {
      WEFT_TRY(hlo_rd_keep(r, (hlo_span){r->p, (size_t)(p + 1 - r->p)}, out));
      r->p = p + 1;
      hlo_rd_space(r);
      return NULL;
    }
  }
  return hlo_rd_error(r, r->p, "this brace is never closed");
}

/* ---- lists ---- */

weft_status *hlo_rd_push(hlo_reader *r, const void *item, size_t size)
{
  WEFT_TRY_ALLOC(WEFT_RESERVE(r->stack, r->stack_size, r->stack_used + size, 256));
  memcpy(r->stack + r->stack_used, item, size);
  r->stack_used += size;
  return NULL;
}

weft_status *hlo_rd_take(hlo_reader *r, size_t mark, size_t item_size, void *out_array, int *out_count)
{
  size_t bytes = r->stack_used - mark;
  void *array = NULL;

  r->stack_used = mark;
  *out_count = (int)(bytes / item_size);
  if (bytes / item_size > INT32_MAX) return WEFT_ERR(RESOURCE_EXHAUSTED, "a list of more than 2^31 items");
  if (bytes) {
    array = weft_arena_memdup(r->arena, r->stack + mark, bytes);
    WEFT_TRY_ALLOC(array);
  }
  memcpy(out_array, &array, sizeof array);
  return NULL;
}

weft_status *hlo_rd_ints(hlo_reader *r, char open, char close, hlo_ints *out)
{
  size_t mark = r->stack_used;

  WEFT_TRY(hlo_rd_expect(r, open));
  while (!hlo_rd_at(r, close)) {
    int64_t value;

    if (r->stack_used > mark) WEFT_TRY(hlo_rd_expect(r, ','));
    WEFT_TRY(hlo_rd_int(r, &value));
    WEFT_TRY(hlo_rd_push(r, &value, sizeof value));
  }
  WEFT_TRY(hlo_rd_expect(r, close));
  return hlo_rd_take(r, mark, sizeof(int64_t), &out->v, &out->count);
}
