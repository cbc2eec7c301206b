/* cli/environment.h -- the environment of a process that is to be started, as a list that can be changed. */
#ifndef WEFT_CLI_ENVIRONMENT_H
#define WEFT_CLI_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* A list of "NAME=value" strings, each allocated by malloc; NULL ends the list. {0} is the empty list. */
typedef struct cli_environment {
  char **vars;
  size_t count, capacity;
} cli_environment;

/* Adds `assignment` ("NAME=value" from malloc, taken) to the list and replaces an entry of the same name. Errors:
 * RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cli_environment_put(cli_environment *env, char *assignment);
WEFT_NODISCARD WEFT_PRINTF(2, 3) weft_status *cli_environment_set(cli_environment *env, const char *fmt, ...);
/* Adds all variables of this process. */
WEFT_NODISCARD weft_status *cli_environment_inherit(cli_environment *env);
void cli_environment_free(cli_environment *env);

/* True for variables that the processes of a job need on every machine: those of Weft, JAX and libfabric. */
bool cli_environment_concerns_job(const char *assignment);

#endif
