/* base/child.h -- waiting for processes that this one has started. */
#ifndef WEFT_BASE_CHILD_H
#define WEFT_BASE_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/deadline.h"

/* Waits for the end of a child. If it has not *ended when the deadline passes, it is killed and *ended becomes false; a
 * caller that has killed it already passes false. Returns what waitpid does: < 0 if SIGCHLD is ignored. */
pid_t weft_child_await(pid_t pid, weft_deadline deadline, bool *ended, int *status);

#endif
