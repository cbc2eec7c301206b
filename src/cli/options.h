/* cli/options.h -- the options of a command as a table, which is its parser and its --help at once. */
#ifndef WEFT_CLI_OPTIONS_H
#define WEFT_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/options.h"

/* One option: `--name VALUE` or `--name=VALUE`, or without `value` a switch, which makes *(bool *)out true. */
typedef struct cli_option {
  const char *name;      /* with its hyphens */
  const char *value;     /* what it takes, as --help calls it; NULL: nothing */
  const char *help;      /* lines with '\n' between them; NULL: stands in the row before */
  weft_option_type type; /* of *out, as the enum's comments say; integers are 0 to `most` where `most` is not 0 */
  void *out;
  weft_status *(*set)(void *out, const char *text); /* parses the value in place of `type`; may be given again */
  int64_t most;
} cli_option;

typedef struct cli_command {
  const char *name;      /* "run", "coord serve" */
  const char *usage;     /* what follows the name */
  const char *summary;   /* above the options, lines with '\n' between them */
  const cli_option *options;
  size_t option_count;
  const char *notes;     /* below them; or NULL */
  bool ends_at_words;    /* options end at the first word that is none: the rest is another command with its own */
} cli_command;

/* Takes the options out of argv, of which argv[0] is not looked at: *argc becomes 1 and the number of words that are left, and argv[*argc] NULL.
 * "--" ends them.  --help and -h print the help and set *out_helped; the rest of argv is not looked at then.
 * Errors: INVALID_ARGUMENT naming the option. */
WEFT_NODISCARD weft_status *cli_parse_options(const cli_command *command, int *argc, char **argv, bool *out_helped);

#endif
