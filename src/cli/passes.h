/* cli/passes.h -- what each pass of a compilation did: how long it took, and which lines of the module it changed. */
#ifndef WEFT_CLI_PASSES_H
#define WEFT_CLI_PASSES_H

#include <stdio.h>

#include "cli/diff.h"
#include "cli/json.h"
#include "hlo/hlo.h"

typedef struct cli_pass {
  const char *name;
  bool changed;
  int64_t ns;
  int instructions, computations; /* of the module after the pass */
  cli_diff diff;                  /* empty unless cli_passes.keeps_diffs */
} cli_pass;

/* Set `keeps_diffs` and `after`, zero the rest; then pass cli_passes_observe as
 * the pass observer of one compilation. */
typedef struct cli_passes {
  bool keeps_diffs;
  const char *after;              /* print the module after the first pass of this name on standard output; or NULL */
  bool printed;                   /* it has been printed */
  weft_arena arena;               /* of everything below */
  cli_pass *list;
  int count, capacity;
  const char *text;               /* the module after the last pass that changed it; NULL: not yet known */
  weft_status *st;                /* the first error, owned */
} cli_passes;

/* Notes the module as it is before the first pass. */
WEFT_NODISCARD weft_status *cli_passes_begin(cli_passes *passes, const hlo_module *module);
/* `ctx` is a cli_passes. Errors are kept in passes->st. */
void cli_passes_observe(void *ctx, const char *pass, bool changed, int64_t ns, const hlo_module *module);
void cli_passes_fini(cli_passes *passes);

/* One line for each pass, with its difference if there is one, then the total of each pass that ran several times. */
void cli_passes_print(const cli_passes *passes, FILE *out);
/* Writes the array "passes". At most `most_lines` lines of each difference are written; "lines" counts all of them. */
void cli_passes_json(const cli_passes *passes, size_t most_lines, cli_json *json);

#endif
