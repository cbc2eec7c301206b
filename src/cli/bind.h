/* cli/bind.h -- which CPUs the processes of a job may use on one machine. */
#ifndef WEFT_CLI_BIND_H
#define WEFT_CLI_BIND_H

#include <sched.h>

#include "base/status.h"

typedef enum cli_bind { CLI_BIND_NONE, CLI_BIND_CORE, CLI_BIND_NUMA, CLI_BIND_SOCKET } cli_bind;

/* The variable that tells a process how many processes of the job have the CPUs which it may use. */
#define CLI_SHARERS "WEFT_LOCAL_PROCESSES"

extern const char *const cli_bind_words[]; /* "none", "core", "numa", "socket" */

/* Errors: INVALID_ARGUMENT. */
WEFT_NODISCARD weft_status *cli_bind_parse(const char *word, cli_bind *out);

/* The CPUs of process `index` of the `count` processes on this machine: one core, NUMA node or socket, with all its
 * hardware threads. The processes are spread evenly over those that have usable CPUs; nodes and sockets are shared
 * where there are more processes.
 *   system   "/sys/devices/system"
 *   usable   the CPUs that this process may use
 *   *out_sharers   the processes that have the same CPUs, this one included
 * Errors: FAILED_PRECONDITION  there are fewer cores than processes, or the kernel does not describe them. */
WEFT_NODISCARD weft_status *cli_bind_cpus(cli_bind how, const char *system, const cpu_set_t *usable, int index,
                                          int count, cpu_set_t *out, int *out_sharers);

/* The same for this machine and process. */
WEFT_NODISCARD weft_status *cli_bind_here(cli_bind how, int index, int count, cpu_set_t *out, int *out_sharers);

#endif
