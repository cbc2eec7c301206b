#include <config.h>

#include "base/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static weft_status *parse_bool(const char *what, const char *text, bool *out)
{
  static const struct { const char *word; bool value; } words[] = {
    {"1", true}, {"true", true}, {"on", true}, {"yes", true}, {"0", false}, {"false", false}, {"off", false}, {"no", false},
  };

  for (size_t i = 0; i < WEFT_COUNT(words); i++) {
    if (strcasecmp(text, words[i].word) != 0) continue;
    *out = words[i].value;
    return NULL;
  }
  return WEFT_ERR(INVALID_ARGUMENT, "%s: expected a boolean (1, 0, true, false, on, off), got \"%s\"", what, text);
}

/* number unit: the value of the number times the unit's factor, which must fit int64_t. */
static weft_status *parse_scaled(const char *what, const char *text, const char *const *units, const double *factors,
                                 size_t unit_count, double bare_factor, const char *expected, int64_t *out)
{
  char *end;
  double number, factor = bare_factor, value;

  errno = 0;
  number = strtod(text, &end);
  if (end == text || errno || !isfinite(number)) goto bad;
  while (*end == ' ') end++;
  if (*end) {
    size_t i = 0;
    while (i < unit_count && strcasecmp(end, units[i]) != 0) i++;
    if (i == unit_count) goto bad;
    factor = factors[i];
  }
  value = number * factor;
  if (value < 0 || value >= 9.2e18) goto bad;
  *out = (int64_t)value;
  return NULL;
bad:
  return WEFT_ERR(INVALID_ARGUMENT, "%s: expected %s, got \"%s\"", what, expected, text);
}

weft_status *weft_option_parse(weft_option_type type, const char *what, const char *text, void *out)
{
  static const char *const time_units[] = {"ns", "us", "ms", "s", "m", "min", "h"};
  static const double time_factors[] = {1, 1e3, 1e6, 1e9, 60e9, 60e9, 3600e9};
  static const char *const byte_units[] = {"b", "k", "m", "g", "t", "kib", "mib", "gib", "tib", "kb", "mb", "gb", "tb"};
  static const double byte_factors[] = {1, 0x1p10, 0x1p20, 0x1p30, 0x1p40, 0x1p10, 0x1p20, 0x1p30, 0x1p40,
                                        0x1p10, 0x1p20, 0x1p30, 0x1p40};
  char *end;
  long long integer;

  switch (type) {
  case WEFT_OPT_BOOL: return parse_bool(what, text, out);
  case WEFT_OPT_STRING: *(const char **)out = text; return NULL;
  case WEFT_OPT_INT:
    errno = 0;
    integer = strtoll(text, &end, 0);
    if (end == text || *end || errno) return WEFT_ERR(INVALID_ARGUMENT, "%s: expected an integer, got \"%s\"", what, text);
    *(int64_t *)out = integer;
    return NULL;
  case WEFT_OPT_BYTES:
    return parse_scaled(what, text, byte_units, byte_factors, WEFT_COUNT(byte_units), 1,
                        "a size in bytes (512, 64K, 2G)", out);
  case WEFT_OPT_DURATION:
    return parse_scaled(what, text, time_units, time_factors, WEFT_COUNT(time_units), 1e9,
                        "a duration (30s, 500ms, 2m; a bare number is seconds; 0 is none)", out);
  }
  return WEFT_ERR(INTERNAL, "%s: option type %d", what, (int)type);
}

weft_status *weft_options_load(const weft_option_table *table, void *settings)
{
  for (size_t i = 0; i < table->count; i++) {
    const weft_option *option = &table->options[i];
    const char *text = getenv(option->name);

    if (!text || !*text) text = option->default_text;
    WEFT_TRY(weft_option_parse(option->type, option->name, text, (char *)settings + option->offset));
  }
  return NULL;
}

const char *weft_bytes_text(int64_t bytes, char *buf, size_t size)
{
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  size_t unit = 0;

  for (; value >= 1024 && unit + 1 < WEFT_COUNT(units); unit++) value /= 1024;
  snprintf(buf, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return buf;
}
