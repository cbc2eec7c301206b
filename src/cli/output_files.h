/* cli/output_files.h -- the files that the output of a job's processes goes to. */
#ifndef WEFT_CLI_OUTPUT_FILES_H
#define WEFT_CLI_OUTPUT_FILES_H

#include <stdbool.h>

#include "base/status.h"

/* True if each rank has a file of its own. */
bool cli_output_is_by_rank(const char *pattern);

/* Opens the file of a rank for writing at its end, and makes it empty. In `pattern`, %r is the rank, %h the host and
 * %% a percent sign. Errors: INVALID_ARGUMENT, naming the file or what the pattern has behind a percent sign. */
WEFT_NODISCARD weft_status *cli_output_open(const char *pattern, int rank, const char *host, int *out_fd);

#endif
