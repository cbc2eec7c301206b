/* cli/spawn.c -- starts a process whose output this process reads (spawn.h). */
#include <config.h>

#include "cli/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fd.h"

extern char **environ;

static void complain(const char *what, const char *name, const char *why)
{
  const char *parts[] = {"weft launch: cannot ", what, " ", name, ": ", why, "\n"};

  for (size_t i = 0; i < WEFT_COUNT(parts); i++)
    if (!weft_fd_write_all(STDERR_FILENO, parts[i], strlen(parts[i]))) return;
}

/* Runs in the child between fork and exec. Only async-signal-safe calls are allowed, because the parent may have
 * threads. */
static void become(const cli_spawn *what, const int *write_ends)
{
  int in_fd = what->in_fd >= 0 ? what->in_fd : open("/dev/null", O_RDONLY);

  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a killed launcher leaves no processes behind */
  setpgid(0, 0);                    /* signals to the process group reach the child's own children too */
  if (in_fd >= 0) dup2(in_fd, STDIN_FILENO);
  dup2(write_ends[0], STDOUT_FILENO);
  dup2(write_ends[1], STDERR_FILENO);
  if (what->directory && chdir(what->directory) != 0) {
    complain("enter the folder", what->directory, errno == ENOENT ? "it is not on this machine" : "no access");
    _exit(126);
  }
  if (what->cpus && sched_setaffinity(0, sizeof *what->cpus, what->cpus) != 0) {
    complain("bind", what->command[0], "sched_setaffinity failed");
    _exit(126);
  }
  sigprocmask(SIG_SETMASK, &what->mask, NULL);
  environ = what->environment;
  execvp(what->command[0], what->command);
  bool missing = errno == ENOENT;
  complain("run", what->command[0], missing ? "no such command" : "it cannot be executed");
  _exit(missing ? 127 : 126);
}

weft_status *cli_spawn_process(const cli_spawn *what, pid_t *out_pid, int out_fds[CLI_STREAMS])
{
  int write_ends[CLI_STREAMS] = {-1, -1};
  weft_status *st = NULL;

  *out_pid = -1;
  for (int i = 0; i < CLI_STREAMS; i++) out_fds[i] = -1;
  for (int i = 0; i < CLI_STREAMS && !st; i++) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) st = WEFT_ERR(RESOURCE_EXHAUSTED, "pipe: %s", strerror(errno));
    else out_fds[i] = ends[0], write_ends[i] = ends[1];
  }
  if (!st) {
    *out_pid = fork();
    if (*out_pid == 0) become(what, write_ends);
    if (*out_pid < 0) st = WEFT_ERR(RESOURCE_EXHAUSTED, "fork: %s", strerror(errno));
  }
  for (int i = 0; i < CLI_STREAMS; i++) {
    if (write_ends[i] >= 0) close(write_ends[i]);
    if (!st) fcntl(out_fds[i], F_SETFL, O_NONBLOCK);
    if (!st || out_fds[i] < 0) continue;
    close(out_fds[i]);
    out_fds[i] = -1;
  }
  if (!st) setpgid(*out_pid, *out_pid); /* parent or child, whichever runs first */
  return st;
}

void cli_spawn_signal(pid_t pid, int signal_number)
{
  if (kill(-pid, signal_number) != 0) kill(pid, signal_number);
}
