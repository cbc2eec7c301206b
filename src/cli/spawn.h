/* cli/spawn.h -- starts a process whose output this process reads. */
#ifndef WEFT_CLI_SPAWN_H
#define WEFT_CLI_SPAWN_H

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include "base/status.h"

enum { CLI_STREAMS = 2 }; /* standard output and standard error */

typedef struct cli_spawn {
  char **command;
  char **environment;
  const char *directory; /* where it runs; NULL: where this process does */
  const cpu_set_t *cpus; /* on which it may run; NULL: those of this process */
  sigset_t mask;         /* the signals that it blocks */
  int in_fd;             /* its standard input, borrowed; -1: /dev/null */
} cli_spawn;

/* Starts the process in a process group of its own; it dies with this process. What cannot be run says so on its
 * standard error and exits with 127 (no such command) or 126.
 *   out_fds  the ends of two pipes, non-blocking, owned by the caller: what the process writes to its standard output
 *            and to its standard error
 * Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cli_spawn_process(const cli_spawn *what, pid_t *out_pid, int out_fds[CLI_STREAMS]);

/* Sends a signal to the process and to its process group. */
void cli_spawn_signal(pid_t pid, int signal_number);

#endif
