/* base/child.c -- waits for the end of a child process until a deadline (child.h). */
#include <config.h>

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"

pid_t weft_child_await(pid_t pid, weft_deadline deadline, bool *ended, int *status)
{
  for (;;) {
    pid_t waited = waitpid(pid, status, *ended ? WNOHANG : 0);
    if (waited > 0 || (waited < 0 && errno != EINTR)) return waited;
    if (waited < 0) continue;
    if (weft_deadline_passed(deadline)) {
      *ended = false;
      kill(pid, SIGKILL);
    } else {
      usleep(500);
    }
  }
}
