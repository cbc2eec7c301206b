/* base/options.c -- settings as tables: parser, manual and defaults from one table (options.h). */
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

/* Parses "number unit": *out is the number times the unit's factor.  Negative values and those that int64_t cannot
 * hold are refused. */
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
    if (end == text || *end || errno)
      return WEFT_ERR(INVALID_ARGUMENT, "%s: expected an integer, got \"%s\"", what, text);
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

/* ---- what an option allows ---- */

static bool is_among(const char *words, const char *text)
{
  size_t length = strlen(text);

  for (const char *at = words; at; at = strchr(at, '|')) {
    at += *at == '|';
    if (strcspn(at, "|") == length && strncmp(at, text, length) == 0) return true;
  }
  return false;
}

/* *out_inside: `value` lies in "LEAST..MOST", both ends written as values of the option. */
static weft_status *check_range(const weft_option *o, int64_t value, bool *out_inside)
{
  const char *dots = strstr(o->allowed, "..");
  char least_text[32];
  int64_t least = INT64_MIN, most = INT64_MAX;

  if (!dots) return WEFT_ERR(INTERNAL, "%s: no range: \"%s\"", o->name, o->allowed);
  snprintf(least_text, sizeof least_text, "%.*s", (int)(dots - o->allowed), o->allowed);
  if (*least_text) WEFT_TRY(weft_option_parse(o->type, o->name, least_text, &least));
  if (dots[2]) WEFT_TRY(weft_option_parse(o->type, o->name, dots + 2, &most));
  *out_inside = value >= least && value <= most;
  return NULL;
}

weft_status *weft_option_read(const weft_option *o, const char *what, const char *text, void *out)
{
  bool inside = true;

  WEFT_TRY(weft_option_parse(o->type, what, text, out));
  if (!o->allowed) return NULL;
  if (o->type == WEFT_OPT_STRING) inside = !*text || is_among(o->allowed, text);
  else if (o->type != WEFT_OPT_BOOL) WEFT_TRY(check_range(o, *(const int64_t *)out, &inside));
  if (!inside)
    return WEFT_ERR(INVALID_ARGUMENT, "%s: expected %s, got \"%s\"", what, o->allowed + (*o->allowed == '|'), text);
  return NULL;
}

/* ---- tables ---- */

static const char *text_of(const weft_option *o)
{
  const char *text = getenv(o->name);

  return text && *text ? text : o->default_text;
}

weft_status *weft_options_load(const weft_option_table *table, void *settings)
{
  for (size_t i = 0; i < table->count; i++) {
    const weft_option *o = &table->options[i];
    WEFT_TRY(weft_option_read(o, o->name, text_of(o), (char *)settings + o->offset));
  }
  return NULL;
}

weft_status *weft_options_check(const weft_option_table *table)
{
  for (size_t i = 0; i < table->count; i++) {
    const weft_option *o = &table->options[i];
    union { bool truth; int64_t number; const char *text; } value;
    if (*text_of(o))
      WEFT_TRY(weft_option_read(o, o->name, text_of(o), &value)); /* a number without a default has an empty text */
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
