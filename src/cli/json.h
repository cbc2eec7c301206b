/* cli/json.h -- writes one JSON value to a file: objects and arrays are opened
 * and closed, commas come by themselves. */
#ifndef WEFT_CLI_JSON_H
#define WEFT_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct cli_json {
  FILE *out;      /* borrowed */
  bool has_value; /* the innermost object or array has a value already */
} cli_json;

/* Every function writes one value. `key` is its name in an object; NULL in an array, and for the outermost value. */
void cli_json_object(cli_json *json, const char *key);
void cli_json_array(cli_json *json, const char *key);
void cli_json_end_object(cli_json *json);
void cli_json_end_array(cli_json *json);

void cli_json_text(cli_json *json, const char *key, const char *text); /* NULL: the value null */
void cli_json_int(cli_json *json, const char *key, int64_t value);
void cli_json_bool(cli_json *json, const char *key, bool value);
/* Nine digits. NaN and infinities become null, which JSON has in their place. */
void cli_json_number(cli_json *json, const char *key, double value);

/* Writes a string as a JSON string, with its quotes. "<" is escaped, so that the text can stand in an HTML page. A byte
 * that belongs to no UTF-8 character becomes U+FFFD. */
void cli_json_string(FILE *out, const char *text);

#endif
