/* cli/json.c -- writes one JSON value to a file (json.h). */
#include <config.h>

#include "cli/json.h"

#include <inttypes.h>
#include <math.h>

/* The length of the UTF-8 character at `text`; 0: the bytes are none (RFC 3629: no overlong forms, no surrogates, none
 * above U+10FFFF). */
static int character_bytes(const unsigned char *text)
{
  unsigned char first = text[0], least = 0x80, most = 0xbf; /* limits of the second byte */
  int count = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;

  if (first == 0xe0) least = 0xa0;
  if (first == 0xed) most = 0x9f;
  if (first == 0xf0) least = 0x90;
  if (first == 0xf4) most = 0x8f;
  for (int i = 1; i < count; i++) {
    if (text[i] < least || text[i] > most) return 0;
    least = 0x80;
    most = 0xbf;
  }
  return count;
}

void cli_json_string(FILE *out, const char *text)
{
  fputc('"', out);
  for (const unsigned char *at = (const unsigned char *)text; *at;) {
    int bytes = character_bytes(at);
    if (bytes == 0) fputs("\\ufffd", out);
    else if (*at == '"' || *at == '\\') fprintf(out, "\\%c", *at);
    else if (*at < 0x20 || *at == '<') fprintf(out, "\\u%04x", *at);
    else fwrite(at, 1, (size_t)bytes, out);
    at += bytes ? bytes : 1;
  }
  fputc('"', out);
}

static void begin_value(cli_json *json, const char *key)
{
  if (json->has_value) fputs(", ", json->out);
  json->has_value = true;
  if (!key) return;
  cli_json_string(json->out, key);
  fputs(": ", json->out);
}

static void open(cli_json *json, const char *key, char bracket)
{
  begin_value(json, key);
  fputc(bracket, json->out);
  json->has_value = false;
}

static void close(cli_json *json, char bracket)
{
  fputc(bracket, json->out);
  json->has_value = true;
}

void cli_json_object(cli_json *json, const char *key) { open(json, key, '{'); }
void cli_json_array(cli_json *json, const char *key) { open(json, key, '['); }
void cli_json_end_object(cli_json *json) { close(json, '}'); }
void cli_json_end_array(cli_json *json) { close(json, ']'); }

void cli_json_text(cli_json *json, const char *key, const char *text)
{
  begin_value(json, key);
  if (text) cli_json_string(json->out, text);
  else fputs("null", json->out);
}

void cli_json_int(cli_json *json, const char *key, int64_t value)
{
  begin_value(json, key);
  fprintf(json->out, "%" PRId64, value);
}

void cli_json_bool(cli_json *json, const char *key, bool value)
{
  begin_value(json, key);
  fputs(value ? "true" : "false", json->out);
}

void cli_json_number(cli_json *json, const char *key, double value)
{
  begin_value(json, key);
  if (isfinite(value)) fprintf(json->out, "%.9g", value);
  else fputs("null", json->out);
}
