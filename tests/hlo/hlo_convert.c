/* tests/hlo/hlo_convert.c -- HLO from standard input to standard output, for
 * tests that compare with other readers of it.
 *   hlo_convert text|proto|config|verify|value
 * The argument says what to write: `verify` writes nothing, `value` what a program without parameters computes.  The
 * form of the input follows from its content. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/eval.h"
#include "hlo/infer.h"
#include "hlo/proto.h"
#include "hlo/text.h"

static char *read_all(FILE *in, size_t *out_size)
{
  char *data = NULL, buffer[65536];
  FILE *copy = open_memstream(&data, out_size);
  size_t count;

  if (!copy) return NULL;
  while ((count = fread(buffer, 1, sizeof buffer, in)) > 0) fwrite(buffer, 1, count, copy);
  return fclose(copy) == 0 ? data : NULL;
}

static weft_status *print_value(const hlo_module *module)
{
  const hlo_literal *value;
  weft_arena arena;
  weft_status *st;

  if (module->entry->param_count) return WEFT_ERR(INVALID_ARGUMENT, "the program has parameters");
  weft_arena_init(&arena);
  st = hlo_eval_module(module, NULL, &HLO_EVAL_DEFAULT, &arena, &value);
  if (!st) st = hlo_print_literal(value, stdout);
  weft_arena_fini(&arena);
  return st;
}

static weft_status *convert(const char *to)
{
  size_t size, written;
  char *data = read_all(stdin, &size);
  hlo_module *module = NULL;
  void *result = NULL;
  weft_status *st;

  WEFT_TRY_ALLOC(data);
  st = memchr(data, '\0', size) || *data == '\n' ? hlo_from_proto(data, size, &module) : hlo_parse(data, size, &module);
  free(data);
  WEFT_TRY(st);
  if (strcmp(to, "verify") == 0) st = hlo_verify(module);
  else if (strcmp(to, "text") == 0) st = hlo_print_to_string(module, HLO_PRINT_DEFAULT, (char **)&result, &written);
  else if (strcmp(to, "proto") == 0) st = hlo_to_proto(module, &result, &written);
  else if (strcmp(to, "config") == 0) st = hlo_to_proto_with_config(module, &result, &written);
  else if (strcmp(to, "value") == 0) st = print_value(module);
  else st = WEFT_ERR(INVALID_ARGUMENT, "expected text, proto, config, verify or value");
  if (!st && result && fwrite(result, 1, written, stdout) != written) st = WEFT_ERR(UNKNOWN, "cannot write");
  free(result);
  hlo_module_free(module);
  return st;
}

int main(int argc, char **argv)
{
  weft_status *st = convert(argc > 1 ? argv[1] : "");

  if (st) fprintf(stderr, "hlo_convert: %s\n", weft_status_text(st, false));
  weft_status_free(st);
  return st != NULL;
}
