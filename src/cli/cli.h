/* cli/cli.h -- the `weft` command: a table of subcommands, each a main of its own. */
#ifndef WEFT_CLI_CLI_H
#define WEFT_CLI_CLI_H

#include <stdio.h>

#include "base/status.h"

/* Exit codes of every subcommand. */
enum { CLI_OK = 0, CLI_DIFFERENT = 1, CLI_USAGE = 2, CLI_FAILED = 3 };

int cli_run_main(int argc, char **argv);
int cli_inspect_main(int argc, char **argv);
int cli_info_main(int argc, char **argv);
int cli_coord_main(int argc, char **argv);
int cli_launch_main(int argc, char **argv);
int cli_bench_main(int argc, char **argv);

/* Takes the error, prints it as "weft COMMAND: text" on standard error, returns the exit code that fits: CLI_USAGE for
 * what the user gave (INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, ...), CLI_FAILED for the rest; CLI_OK for NULL. */
int cli_report(const char *command, weft_status *st);

/* Reads a whole file; "-" is standard input.  *out_data is malloc'd, NUL-terminated past its end, the caller's.
 * Errors: NOT_FOUND, INVALID_ARGUMENT (a directory), RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cli_read_file(const char *path, char **out_data, size_t *out_size);

/* A string as a JSON string, quotes included. */
void cli_json_string(FILE *out, const char *text);

#endif
