/* cli/cli.h -- the `weft` command: a table of subcommands, each a main of its own. */
#ifndef WEFT_CLI_CLI_H
#define WEFT_CLI_CLI_H

#include <stdio.h>

#include "base/status.h"

/* Exit codes of every subcommand. */
enum { CLI_OK = 0, CLI_DIFFERENT = 1, CLI_USAGE = 2, CLI_FAILED = 3 };

int cli_run_main(int argc, char **argv);
int cli_compile_main(int argc, char **argv);
int cli_inspect_main(int argc, char **argv);
int cli_info_main(int argc, char **argv);
int cli_coord_main(int argc, char **argv);
int cli_launch_main(int argc, char **argv);
int cli_bench_main(int argc, char **argv);

/* Takes the error, prints it as "weft COMMAND: text" on standard error and returns the exit code that fits:
 * CLI_USAGE for mistakes of the user (INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, ...), CLI_FAILED for all others,
 * CLI_OK for NULL. */
int cli_report(const char *command, weft_status *st);

/* Opens the standard streams that the caller has closed. Call it first: the next file that is opened would take the
 * number of a closed stream and would receive what is printed. */
void cli_open_standard_streams(void);

/* Records the errno of a write to standard output that failed outside stdio; cli_close_output reports it. */
void cli_output_lost(int error);

/* Closes standard output. Call it last, with the exit code so far. If printed text could not be written, it says so
 * on standard error and turns CLI_OK into CLI_FAILED. It says nothing about a pipe whose reader has gone. */
int cli_close_output(int exit_code);

/* Reads a whole file; "-" is standard input. *out_data is allocated by malloc, ends with a NUL that is not counted,
 * and belongs to the caller. Errors: NOT_FOUND, INVALID_ARGUMENT (a directory), RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cli_read_file(const char *path, char **out_data, size_t *out_size);

/* Writes a whole file: under another name first, so that no reader sees a part of it. What is no file, such as
 * /dev/null or a pipe, is written to where it is. Errors: INVALID_ARGUMENT. */
WEFT_NODISCARD weft_status *cli_write_file(const char *path, const void *data, size_t size);
/* Moves a whole file to where it belongs. Errors: INVALID_ARGUMENT, also if `to` is there and is no file. */
WEFT_NODISCARD weft_status *cli_move_file(const char *from, const char *to);

#endif
