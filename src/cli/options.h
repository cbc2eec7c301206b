/* cli/options.h -- the options of a command as a table, from which both the parser and --help come. */
#ifndef WEFT_CLI_OPTIONS_H
#define WEFT_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "base/options.h"

/* One option: `--name VALUE` or `--name=VALUE`. Without `value` it is a switch that sets *(bool *)out to true. */
typedef struct cli_option {
  const char *name;      /* with its hyphens */
  const char *value;     /* the name of the value in --help; NULL: the option takes none */
  /* lines with '\n' between them; NULL: the text of the previous row describes this option too */
  const char *help;
  /* the type of *out, as the enum's comments say; an integer is 0 to `most` if `most` is not 0 */
  weft_option_type type;
  void *out;
  /* parses the value in place of `type`; the option may be given several times */
  weft_status *(*set)(void *out, const char *text);
  int64_t most;
} cli_option;

typedef struct cli_command {
  const char *name;      /* "run", "coord serve" */
  const char *usage;     /* the usage text after the command's name */
  const char *summary;   /* the text above the options: lines with '\n' between them */
  const cli_option *options;
  size_t option_count;
  const char *notes;     /* the text below the options, or NULL */
  /* options end at the first word that is not one: the rest is another command with its own options */
  bool ends_at_words;
} cli_command;

/* Removes the options from argv (argv[0] is not looked at). Afterwards *argc is one more than the number of words
 * that are left, and argv[*argc] is NULL. "--" ends the options. --help and -h print the help, set *out_helped and
 * ignore the rest of argv. Errors: INVALID_ARGUMENT naming the option. */
WEFT_NODISCARD weft_status *cli_parse_options(const cli_command *command, int *argc, char **argv, bool *out_helped);

#endif
