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

/* Called first: a standard stream that the caller closed would be the number of the next file that is opened, and get what is printed. */
void cli_open_standard_streams(void);

/* What a subcommand writes to standard output past stdio, and could not: for cli_close_output. */
void cli_output_lost(int error);

/* Called last, with the exit code so far: closes standard output.  Where something that was printed could not be written, says so on
 * standard error, and CLI_OK becomes CLI_FAILED.  Of a pipe whose reader has left nothing is said. */
int cli_close_output(int exit_code);

/* Reads a whole file; "-" is standard input.  *out_data is malloc'd, NUL-terminated past its end, the caller's.
 * Errors: NOT_FOUND, INVALID_ARGUMENT (a directory), RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cli_read_file(const char *path, char **out_data, size_t *out_size);

/* A string as a JSON string, quotes included. */
void cli_json_string(FILE *out, const char *text);

#endif
