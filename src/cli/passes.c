/* cli/passes.c -- records and prints what each pass of a compilation did (passes.h). */
#include <config.h>

#include "cli/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "hlo/text.h"

/* The module as text, in the arena. */
static weft_status *text_of(const hlo_module *module, weft_arena *arena, const char **out)
{
  char *text = NULL, *copy;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  weft_status *st;

  WEFT_TRY_ALLOC(stream);
  st = hlo_print(module, HLO_PRINT_DEFAULT, stream);
  if (fclose(stream) != 0 && !st) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  copy = st ? NULL : weft_arena_alloc(arena, size + 1);
  if (copy) memcpy(copy, text, size + 1);
  else if (!st) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  free(text);
  *out = copy;
  return st;
}

weft_status *cli_passes_begin(cli_passes *p, const hlo_module *module)
{
  weft_arena_init(&p->arena);
  return p->keeps_diffs ? text_of(module, &p->arena, &p->text) : NULL;
}

void cli_passes_fini(cli_passes *p)
{
  weft_status_free(p->st);
  free(p->list);
  weft_arena_fini(&p->arena);
}

static weft_status *add(cli_passes *p, cli_pass pass)
{
  WEFT_TRY_ALLOC(WEFT_RESERVE(p->list, p->capacity, p->count + 1, 64));
  p->list[p->count++] = pass;
  return NULL;
}

static weft_status *observe(cli_passes *p, cli_pass pass, const hlo_module *module)
{
  const char *name;

  HLO_FOREACH_COMPUTATION(comp, module) pass.instructions += comp->instr_count;
  if (p->after && !p->printed && strcmp(p->after, pass.name) == 0) {
    p->printed = true;
    WEFT_TRY(hlo_print(module, HLO_PRINT_DEFAULT, stdout));
  }
  if (p->keeps_diffs && pass.changed) {
    const char *before = p->text;
    WEFT_TRY(text_of(module, &p->arena, &p->text));
    WEFT_TRY(cli_diff_texts(before, p->text, &p->arena, &pass.diff));
  }
  WEFT_TRY_ALLOC(name = weft_arena_strdup(&p->arena, pass.name));
  pass.name = name;
  return add(p, pass);
}

void cli_passes_observe(void *ctx, const char *pass, bool changed, int64_t ns, const hlo_module *module)
{
  cli_passes *p = ctx;
  weft_status *st = observe(
    p, (cli_pass){.name = pass, .changed = changed, .ns = ns, .computations = module->computation_count}, module);

  if (p->st) weft_status_free(st);
  else p->st = st;
}

/* ---- text ---- */

static void print_pass(const cli_pass *pass, FILE *out)
{
  fprintf(out, "%-36s %-9s %9.3f ms %7d instructions %5d computations\n", pass->name, pass->changed ? "changed" : "-",
          (double)pass->ns / 1e6, pass->instructions, pass->computations);
  for (size_t i = 0; i < pass->diff.count; i++) {
    const cli_diff_line *line = &pass->diff.lines[i];
    fprintf(out, "%c %.*s\n", line->mark, (int)line->size, line->text);
  }
}

typedef struct total {
  const char *name;
  int runs, changes;
  int64_t ns;
} total;

static int longest_first(const void *a, const void *b)
{
  const total *x = a, *y = b;

  if (x->ns != y->ns) return x->ns > y->ns ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* Adds up the runs of each pass. Returns the number of passes; totals[] has room for all runs. */
static int add_up(const cli_passes *p, total *totals)
{
  int count = 0;

  for (int i = 0; i < p->count; i++) {
    const cli_pass *pass = &p->list[i];
    int at = 0;
    while (at < count && strcmp(totals[at].name, pass->name) != 0) at++;
    if (at == count) totals[count++] = (total){.name = pass->name};
    totals[at].runs++;
    totals[at].changes += pass->changed;
    totals[at].ns += pass->ns;
  }
  qsort(totals, (size_t)count, sizeof *totals, longest_first);
  return count;
}

void cli_passes_print(const cli_passes *p, FILE *out)
{
  total *totals = calloc((size_t)p->count + 1, sizeof *totals);
  int64_t all_ns = 0;

  for (int i = 0; i < p->count; i++) {
    print_pass(&p->list[i], out);
    all_ns += p->list[i].ns;
  }
  fprintf(out, "\n%-36s %5s %8s %12s %7s\n", "total", "runs", "changes", "ms", "%");
  for (int i = 0, count = totals ? add_up(p, totals) : 0; i < count; i++)
    fprintf(out, "%-36s %5d %8d %12.3f %7.1f\n", totals[i].name, totals[i].runs, totals[i].changes,
            (double)totals[i].ns / 1e6, 100 * (double)totals[i].ns / (double)WEFT_MAX(all_ns, 1));
  fprintf(out, "%-36s %5d %8s %12.3f\n", "all", p->count, "", (double)all_ns / 1e6);
  free(totals);
}

/* ---- JSON ---- */

enum { LONGEST_LINE = 400 };

static void put_line(cli_json *json, const cli_diff_line *line)
{
  char text[LONGEST_LINE + 8];
  size_t size = WEFT_MIN(line->size, (size_t)LONGEST_LINE);

  while (size < line->size && size > 0 && ((unsigned char)line->text[size] & 0xc0) == 0x80) size--; /* whole letters */
  snprintf(text, sizeof text, "%c%.*s%s", line->mark, (int)size, line->text, size < line->size ? "…" : "");
  cli_json_text(json, NULL, text);
}

static void put_totals(const cli_passes *p, cli_json *json)
{
  total *totals = calloc((size_t)p->count + 1, sizeof *totals);

  cli_json_array(json, "pass_totals");
  for (int i = 0, count = totals ? add_up(p, totals) : 0; i < count; i++) {
    cli_json_object(json, NULL);
    cli_json_text(json, "name", totals[i].name);
    cli_json_int(json, "runs", totals[i].runs);
    cli_json_int(json, "changes", totals[i].changes);
    cli_json_number(json, "ms", (double)totals[i].ns / 1e6);
    cli_json_end_object(json);
  }
  cli_json_end_array(json);
  free(totals);
}

void cli_passes_json(const cli_passes *p, size_t most_lines, cli_json *json)
{
  cli_json_array(json, "passes");
  for (int i = 0; i < p->count; i++) {
    const cli_pass *pass = &p->list[i];
    cli_json_object(json, NULL);
    cli_json_text(json, "name", pass->name);
    cli_json_bool(json, "changed", pass->changed);
    cli_json_number(json, "ms", (double)pass->ns / 1e6);
    cli_json_int(json, "instructions", pass->instructions);
    cli_json_int(json, "computations", pass->computations);
    if (p->keeps_diffs) {
      cli_json_int(json, "lines", (int64_t)pass->diff.count);
      cli_json_array(json, "diff");
      for (size_t k = 0; k < pass->diff.count && k < most_lines; k++) put_line(json, &pass->diff.lines[k]);
      cli_json_end_array(json);
    }
    cli_json_end_object(json);
  }
  cli_json_end_array(json);
  put_totals(p, json);
}
