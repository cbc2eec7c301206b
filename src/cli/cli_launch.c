/* cli/cli_launch.c -- weft launch: starts N processes on this machine or on others, with the coordination service in
 * the launcher.
 *
 * One loop over poll(2) handles the output of the processes, signals (through a signalfd), and the next timed action (a
 * fault to inject, a restart, the end of a grace period). With --hosts the processes belong to a node on each host
 * (hosts.h), which sends their output and reports their ends. With a runner (srun, mpirun) the loop watches the runner
 * alone. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weft/coord.h>

#include "base/fd.h"
#include "base/secret.h"
#include "cli/bind.h"
#include "cli/cli.h"
#include "cli/environment.h"
#include "cli/hosts.h"
#include "cli/job_secret.h"
#include "cli/node.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/spawn.h"

#define SSH "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15"
enum { MAX_PROCESSES = 4096, MAX_FAULTS = 64, LINE_BYTES = 8192, STREAMS = CLI_STREAMS, EXIT_SIGNAL = 128, RESTARTS = 10 };
enum { ANSWER_S = 5 };           /* how long a host may take to kill a process */
enum { MOST_LAST_READS = 1024 }; /* of a process that has ended: more than a pipe holds */

/* The read end of a pipe that a process writes to, and the line that the process has begun. */
typedef struct stream {
  int fd; /* -1: closed, or the process is on another host */
  int out_fd;
  size_t size;
  char line[LINE_BYTES];
} stream;

typedef struct process {
  int rank;
  pid_t pid; /* 0: not running; -1: running under a node */
  bool has_ended;
  int exit_code;
  int asked_by; /* the signal by which stop_next or do_due asked the process to end; 0: none */
  int restarts;
  int64_t restart_at_ns; /* 0: not */
  /* it ended with 0: when the service is asked whether it had joined the job, and the pause before that; 0: not */
  int64_t ask_at_ns, ask_after_ns;
  stream streams[STREAMS];
} process;

typedef enum fault_kind { FAULT_KILL, FAULT_STOP, FAULT_RESTART } fault_kind;
typedef struct fault {
  fault_kind kind;
  int rank;
  /* counted from the start of the job: when the fault strikes; after a stop has struck, when it ends */
  int64_t at_ns;
  int64_t length_ns; /* stop: how long the process stays stopped; restart: the pause before it */
  bool is_done, has_stopped;
} fault;

typedef struct launch {
  int count;
  int64_t devices; /* devices of each process; 0: not given */
  bool recoverable, is_plain, no_jax_env, is_local;
  /* how often one process of a recoverable job is restarted; after that the job goes on without the process */
  int64_t restarts;
  int64_t grace_ns;
  char **command;
  const char *runner;  /* "srun", "mpirun --hostfile hosts", ...; NULL: start the processes here */
  cli_environment to_runner; /* what the runner carries on its command line */
  cli_hosts machines;        /* with --hosts */
  cli_bind bind_to;
  const char *files[STREAMS]; /* patterns of files for the output (output_files.h); NULL: this process's own output */
  bool has_lost_output;
  weft_coord_service_options service_options;
  weft_coord_service *service;
  cli_job_secret secret;
  char *hosts;           /* of the allocation */
  const char *address;
  char address_text[300];
  process *processes;
  int process_count; /* of `processes` */
  int running;
  fault faults[MAX_FAULTS];
  int fault_count;
  int64_t started_ns;
  bool is_stopping;
  int stop_next;         /* while the job ends: the rank that must end next, from the highest down; -1: none */
  int64_t kill_at_ns;
  /* the exit code of the first process that failed. A process that a signal killed counts before one that exited,
   * because others may have exited as a consequence */
  int exit_code;
  int signals_seen;
  sigset_t original_mask;
} launch;

/* ---- environment ---- */

static int local_rank(const launch *l, int rank)
{
  const cli_host *host = cli_hosts_find(&l->machines, rank);

  return host ? rank - host->first : rank;
}

/* Sets what jax.distributed.initialize() reads. JAX has no variables of its own for the number of processes and the
 * rank. It looks for those of Open MPI first, and reads them as text. Processes of a runner find theirs in the
 * runner's variables. */
static weft_status *jax_environment(const launch *l, int rank, cli_environment *env)
{
  WEFT_TRY(cli_environment_set(env, "JAX_COORDINATOR_ADDRESS=%s", l->address));
  /* rank 0 starts a service of its own at this address; it stays unused, because all connect to the launcher's */
  WEFT_TRY(cli_environment_set(env, "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0"));
  if (l->devices > 0) WEFT_TRY(cli_environment_set(env, "JAX_NUM_CPU_DEVICES=%" PRId64, l->devices));
  if (rank < 0) return NULL;
  WEFT_TRY(cli_environment_set(env, "OMPI_MCA_orte_hnp_uri=0.0;tcp://127.0.0.1%s", strrchr(l->address, ':')));
  WEFT_TRY(cli_environment_set(env, "OMPI_COMM_WORLD_SIZE=%d", l->count));
  WEFT_TRY(cli_environment_set(env, "OMPI_COMM_WORLD_RANK=%d", rank));
  return cli_environment_set(env, "OMPI_COMM_WORLD_LOCAL_RANK=%d", local_rank(l, rank));
}

/* Sets the environment of one rank. With rank -1 it is the environment that a runner passes on, and the runner
 * numbers the processes. */
static weft_status *make_environment(const launch *l, int rank, cli_environment *env)
{
  WEFT_TRY(cli_environment_inherit(env));
  WEFT_TRY(cli_environment_set(env, "WEFT_COORD_ADDRESS=%s", l->address));
  WEFT_TRY(cli_environment_set(env, "WEFT_NUM_PROCESSES=%d", l->count));
  WEFT_TRY(cli_environment_set(env, "WEFT_COORD_HEARTBEAT_TIMEOUT=%gs",
                               (double)l->service_options.heartbeat_timeout_ns / WEFT_NS_PER_S));
  if (l->secret.file) WEFT_TRY(cli_environment_set(env, "WEFT_COORD_SECRET_FILE=%s", l->secret.file));
  if (l->devices > 0) WEFT_TRY(cli_environment_set(env, "WEFT_NUM_DEVICES=%" PRId64, l->devices));
  if (l->recoverable) WEFT_TRY(cli_environment_set(env, "JAX_ENABLE_RECOVERABILITY=1"));
  if (rank >= 0) {
    WEFT_TRY(cli_environment_set(env, "WEFT_PROCESS_ID=%d", rank));
    WEFT_TRY(cli_environment_set(env, "WEFT_LOCAL_PROCESS_ID=%d", local_rank(l, rank)));
    WEFT_TRY(cli_environment_set(env, "WEFT_COORD_TASK=%d", rank));
  }
  return l->no_jax_env ? NULL : jax_environment(l, rank, env);
}

/* ---- output ---- */

static void write_all(int fd, const char *data, size_t size)
{
  if (!weft_fd_write_all(fd, data, size) && fd == STDOUT_FILENO) cli_output_lost(errno);
}

WEFT_PRINTF(1, 2) static void say(const char *fmt, ...)
{
  char text[600];
  va_list args;
  size_t n = (size_t)snprintf(text, sizeof text, "weft launch: ");

  va_start(args, fmt);
  vsnprintf(text + n, sizeof text - n - 1, fmt, args);
  va_end(args);
  strcat(text, "\n");
  write_all(STDERR_FILENO, text, strlen(text));
}

static void write_output(launch *l, const stream *s, const char *data, size_t size)
{
  if (s->out_fd == STDOUT_FILENO || s->out_fd == STDERR_FILENO) return write_all(s->out_fd, data, size);
  if (weft_fd_write_all(s->out_fd, data, size) || l->has_lost_output) return;
  say("output is lost, its file cannot be written: %s", strerror(errno));
  l->has_lost_output = true;
}

/* Writes whole lines, each with its rank in front, by one write call, so that lines of different ranks do not mix. A
 * file that belongs to one rank has no ranks in it. */
static void put_line(launch *l, const process *p, stream *s, size_t size)
{
  const char *pattern = l->files[s - p->streams];
  char out[LINE_BYTES + 32];
  bool is_plain = l->runner || l->is_plain || (pattern && cli_output_is_by_rank(pattern));
  int n = is_plain ? 0 : snprintf(out, 32, "[%d] ", p->rank);

  memcpy(out + n, s->line, size);
  n += (int)size;
  if (out[n - 1] != '\n') out[n++] = '\n';
  write_output(l, s, out, (size_t)n);
  memmove(s->line, s->line + size, s->size - size);
  s->size -= size;
}

/* Puts out the whole lines; with `is_last` also a line without its end. */
static void put_lines(launch *l, const process *p, stream *s, bool is_last)
{
  char *newline;

  while ((newline = memchr(s->line, '\n', s->size))) put_line(l, p, s, (size_t)(newline - s->line) + 1);
  if (s->size > 0 && (is_last || s->size == LINE_BYTES - 1)) put_line(l, p, s, s->size);
}

static void read_stream(launch *l, const process *p, stream *s)
{
  ssize_t n = read(s->fd, s->line + s->size, LINE_BYTES - 1 - s->size);

  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) s->size += (size_t)n;
  put_lines(l, p, s, n <= 0);
  if (n > 0) return;
  close(s->fd);
  s->fd = -1;
}

/* Opens the files of all ranks before anything starts. */
static weft_status *open_files(launch *l)
{
  char here[HOST_NAME_MAX + 1] = "";

  gethostname(here, sizeof here - 1);
  for (int i = 0; i < (l->runner ? 1 : l->count); i++) { /* a runner's output comes as the first one's */
    process *p = &l->processes[i];
    const cli_host *host = cli_hosts_find(&l->machines, i);
    for (int k = 0; k < STREAMS; k++) {
      if (!l->files[k]) continue;
      if (k > 0 && l->files[k] == l->files[0]) p->streams[k].out_fd = p->streams[0].out_fd;
      else WEFT_TRY(cli_output_open(l->files[k], i, host ? host->name : here, &p->streams[k].out_fd));
    }
  }
  return NULL;
}

static void close_files(launch *l)
{
  for (int i = 0; l->processes && i < l->process_count; i++)
    for (int k = 0; k < STREAMS; k++) {
      stream *s = &l->processes[i].streams[k];
      if (s->fd >= 0) close(s->fd);
      if (s->out_fd > STDERR_FILENO && (k == 0 || s->out_fd != l->processes[i].streams[0].out_fd)) close(s->out_fd);
    }
}

/* ---- processes ---- */

static weft_status *put_string(cli_queue *strings, char kind, const char *text)
{
  WEFT_TRY(cli_queue_add(strings, &kind, 1));
  return cli_queue_add(strings, text, strlen(text) + 1);
}

/* What the node of its host gets to start rank `rank`. */
static weft_status *describe_start(const launch *l, const cli_host *host, int rank, char **command, cli_queue *out)
{
  WEFT_AUTO_STR directory = getcwd(NULL, 0);
  cli_environment env = {0};
  char binding[64];
  weft_status *st = make_environment(l, rank, &env);

  for (size_t i = 0; i < env.count && !st; i++)
    if ((cli_environment_concerns_job(env.vars[i]) && strncmp(env.vars[i], "WEFT_COORD_SECRET_FILE=", 23) != 0) ||
        strncmp(env.vars[i], "OMPI_", 5) == 0)
      st = put_string(out, CLI_START_VARIABLE, env.vars[i]);
  cli_environment_free(&env);
  WEFT_TRY(st);
  if (directory) WEFT_TRY(put_string(out, CLI_START_DIRECTORY, directory));
  snprintf(binding, sizeof binding, "%s %d %d", cli_bind_words[l->bind_to], rank - host->first, host->count);
  WEFT_TRY(put_string(out, CLI_START_BIND, binding));
  for (; *command; command++) WEFT_TRY(put_string(out, CLI_START_ARGUMENT, *command));
  return NULL;
}

static weft_status *start_on_host(launch *l, cli_host *host, process *p, char **command)
{
  cli_queue strings = {0};
  weft_status *st = describe_start(l, host, p->rank, command, &strings);

  if (!st)
    st = cli_host_send(&l->machines, host, CLI_FRAME_START, p->rank, strings.data + strings.begin,
                       cli_queue_size(&strings));
  cli_queue_free(&strings);
  p->pid = st ? 0 : -1;
  return st;
}

static weft_status *start_here(launch *l, process *p, char **command, int rank)
{
  cli_environment env = {0};
  cpu_set_t cpus;
  int fds[STREAMS], sharers = l->count;
  cli_spawn what = {.command = command, .mask = l->original_mask, .in_fd = -1};
  weft_status *st = make_environment(l, rank, &env);

  if (l->bind_to != CLI_BIND_NONE) {
    if (!st) st = cli_bind_here(l->bind_to, rank, l->count, &cpus, &sharers);
    what.cpus = &cpus;
  }
  if (!st && rank >= 0) st = cli_environment_set(&env, CLI_SHARERS "=%d", sharers);
  what.environment = env.vars;
  if (!st) st = cli_spawn_process(&what, &p->pid, fds);
  cli_environment_free(&env);
  if (st) {
    p->pid = 0;
    return st;
  }
  for (int i = 0; i < STREAMS; i++) {
    if (p->streams[i].fd >= 0) close(p->streams[i].fd); /* of the process that had this rank before */
    p->streams[i].fd = fds[i];
  }
  return NULL;
}

/* Starts the process of a rank; with rank -1 it is the runner. */
static weft_status *start_process(launch *l, process *p, char **command, int rank)
{
  cli_host *host = cli_hosts_find(&l->machines, rank);

  WEFT_TRY(host ? start_on_host(l, host, p, command) : start_here(l, p, command, rank));
  for (int i = 0; i < STREAMS; i++) p->streams[i].size = 0;
  p->has_ended = false;
  p->ask_at_ns = 0;
  p->restart_at_ns = 0;
  l->running++;
  return NULL;
}

static void signal_process(launch *l, const process *p, int signal_number)
{
  char text[16];

  if (p->pid > 0) cli_spawn_signal(p->pid, signal_number);
  if (p->pid >= 0) return;
  snprintf(text, sizeof text, "%d", signal_number);
  weft_status_ignore(
    cli_host_send(&l->machines, cli_hosts_find(&l->machines, p->rank), CLI_FRAME_SIGNAL, p->rank, text, strlen(text)));
}

static void ask_to_end(launch *l, process *p, int signal_number)
{
  p->asked_by = signal_number;
  signal_process(l, p, signal_number);
}

/* Asks the running process of the highest rank to end. The next one is asked when this one has ended. */
static void stop_next(launch *l)
{
  while (l->stop_next >= 0 && l->processes[l->stop_next].pid == 0) l->stop_next--;
  if (l->stop_next < 0) return;
  signal_process(l, &l->processes[l->stop_next], SIGCONT);
  ask_to_end(l, &l->processes[l->stop_next], SIGTERM);
  l->kill_at_ns = weft_now_ns() + l->grace_ns;
}

static void stop_all(launch *l)
{
  if (l->is_stopping) return;
  l->is_stopping = true;
  for (int i = 0; i < l->count; i++) l->processes[i].restart_at_ns = 0;
  l->stop_next = l->count - 1;
  stop_next(l);
}

static void say_how_ended(const launch *l, const process *p, int wait_status)
{
  const cli_host *host = cli_hosts_find(&l->machines, p->rank);
  char name[256];

  if (l->runner) /* the options do not name the runner */
    snprintf(name, sizeof name, "the runner (%.*s)", (int)WEFT_MIN(strcspn(l->runner, " \t"), (size_t)200), l->runner);
  else if (host) snprintf(name, sizeof name, "rank %d on %.200s", p->rank, host->name);
  else snprintf(name, sizeof name, "rank %d", p->rank);
  if (WIFSIGNALED(wait_status))
    say("%s was killed by signal %d (%s)", name, WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
  else say("%s exited with %d", name, p->exit_code);
}

/* The task that the service reports as failed: one that gave an error, or whose process disappeared before the
 * others did. */
static const weft_coord_status_task *find_culprit(const weft_coord_status_report *report)
{
  const weft_coord_status_task *found = NULL;

  for (size_t i = 0; i < report->task_count; i++) {
    const weft_coord_status_task *task = &report->tasks[i];
    if (task->info.error_code != WEFT_OK) return task;
    if (task->info.state == WEFT_COORD_TASK_CONNECTED && task->lost_ms >= 0 &&
        (!found || task->lost_ms > found->lost_ms))
      found = task;
  }
  return found;
}

/* Asks the service for the state of the job's tasks. */
static weft_status *ask_service(const launch *l, weft_coord_agent **out_agent, weft_coord_status_report **out_report)
{
  weft_coord_agent_options options;

  WEFT_TRY(weft_coord_agent_options_load(&options));
  options.address = weft_coord_service_address(l->service);
  options.secret_file = l->service_options.secret_file;
  options.init_timeout_ns = 2 * WEFT_NS_PER_S;
  options.observes_at_once = true;
  WEFT_TRY(weft_coord_agent_new(&options, out_agent));
  WEFT_TRY(weft_coord_agent_observe(*out_agent));
  return weft_coord_agent_status(*out_agent, out_report);
}

/* Reports which rank failed first. The runner's exit code says nothing about ranks, but the service knows the tasks
 * that joined the job. */
static weft_status *say_which_rank(const launch *l)
{
  const weft_coord_status_task *task;
  WEFT_AUTO(weft_coord_agent) agent = NULL;
  WEFT_AUTO(weft_coord_status_report) report = NULL;

  WEFT_TRY(ask_service(l, &agent, &report));
  task = find_culprit(report);
  if (!task) say("no rank of Weft's reported a failure");
  else if (task->info.error_code != WEFT_OK)
    say("rank %d failed: %.400s", (int)task->info.task, task->info.error_message);
  else say("rank %d was the first to end, without leaving the job", (int)task->info.task);
  return NULL;
}

/* Says that a process which ended with 0 had never joined the job, if others wait for it there. *out_again: nothing is
 * decided yet, since no process has joined. */
static weft_status *say_if_never_joined(const launch *l, const process *p, bool *out_again)
{
  WEFT_AUTO(weft_coord_agent) agent = NULL;
  WEFT_AUTO(weft_coord_status_report) report = NULL;
  bool has_joined = false;
  int waiting = 0;

  *out_again = true;
  WEFT_TRY(ask_service(l, &agent, &report));
  for (size_t i = 0; i < report->task_count; i++) {
    const weft_coord_task_info *task = &report->tasks[i].info;
    if (task->task == p->rank) has_joined = task->incarnation != 0;
    else if (task->incarnation != 0) waiting++; /* nobody is let in before all are there */
  }
  *out_again = !has_joined && waiting == 0;
  if (!has_joined && waiting > 0)
    say("rank %d ended with 0 and never joined the job: %d process%s there for it, until --register-timeout", p->rank,
        waiting, waiting == 1 ? " waits" : "es wait");
  return NULL;
}

/* Handles the end of a process while the launcher stops the job. Peers notice the death of a process sooner than its
 * parent does, and exit: so the first exit that the launcher saw need not be the first failure. A process that a
 * signal killed without having been asked to end is therefore reported, and its exit code takes the place of one of
 * a process that exited. */
static void ended_while_stopping(launch *l, const process *p, int wait_status)
{
  bool was_asked = p->asked_by && (WTERMSIG(wait_status) == SIGTERM || WTERMSIG(wait_status) == p->asked_by);

  if (WIFSIGNALED(wait_status) && !was_asked && l->signals_seen == 0) {
    say_how_ended(l, p, wait_status);
    if (l->exit_code < EXIT_SIGNAL) l->exit_code = p->exit_code;
  }
  stop_next(l);
}

static void process_ended(launch *l, process *p, int wait_status)
{
  bool is_remote = p->pid < 0;

  p->pid = 0;
  p->has_ended = true;
  p->exit_code = WIFSIGNALED(wait_status) ? EXIT_SIGNAL + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  l->running--;
  /* the last output of the process; a grandchild may keep the pipe open, and write to it for ever */
  for (int i = 0; i < STREAMS; i++)
    for (int k = 0; k < MOST_LAST_READS && p->streams[i].fd >= 0; k++) {
      struct pollfd ready = {.fd = p->streams[i].fd, .events = POLLIN};
      if (poll(&ready, 1, 0) <= 0) break;
      read_stream(l, p, &p->streams[i]);
    }
  for (int i = 0; i < STREAMS && is_remote; i++) put_lines(l, p, &p->streams[i], true);
  if (l->is_stopping) return ended_while_stopping(l, p, wait_status);
  if (p->exit_code == 0 && l->service && !l->runner) {
    p->ask_after_ns = WEFT_NS_PER_S;
    p->ask_at_ns = weft_now_ns() + p->ask_after_ns;
  }
  if (p->exit_code == 0 || p->restart_at_ns) return;
  say_how_ended(l, p, wait_status);
  if (l->runner) weft_status_ignore(say_which_rank(l));
  if (l->recoverable && p->restarts < l->restarts) {
    p->restarts++;
    p->restart_at_ns = weft_now_ns() + WEFT_NS_PER_S / 2;
    return;
  }
  if (!l->exit_code) l->exit_code = p->exit_code;
  if (l->recoverable) {
    if (l->running > 0) say("the job goes on without rank %d", p->rank);
    return;
  }
  if (l->running > 0) say("stopping the others");
  stop_all(l);
}

/* ---- messages from hosts ---- */

static void host_output(void *context, int rank, int stream_index, const char *data, size_t size)
{
  launch *l = context;
  process *p = &l->processes[rank];
  stream *s = &p->streams[stream_index];

  while (size > 0) {
    size_t part = WEFT_MIN(size, LINE_BYTES - 1 - s->size);
    memcpy(s->line + s->size, data, part);
    s->size += part;
    put_lines(l, p, s, false);
    data += part;
    size -= part;
  }
}

static void host_ended(void *context, int rank, int wait_status)
{
  launch *l = context;

  if (l->processes[rank].pid < 0) process_ended(l, &l->processes[rank], wait_status);
}

static void host_said(void *context, const cli_host *host, const char *line)
{
  (void)context;
  say("%.200s: %.350s", host->name, line);
}

/* The ssh process of a host has ended. What the host ran counts as ended with ssh's exit code. */
static void host_lost(launch *l, const cli_host *host, int wait_status)
{
  int lost = 0, code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : EXIT_SIGNAL + WTERMSIG(wait_status);

  for (int i = host->first; i < host->first + host->count; i++) lost += l->processes[i].pid < 0;
  if (lost == 0) return;
  say("the connection to %.200s has ended (exit code %d), and with it %d process%s", host->name, code, lost,
      lost == 1 ? "" : "es");
  for (int i = host->first; i < host->first + host->count; i++)
    if (l->processes[i].pid < 0) process_ended(l, &l->processes[i], (code ? code : CLI_FAILED) << 8);
}

static cli_host_sink host_sink(launch *l)
{
  return (cli_host_sink){.context = l, .output = host_output, .ended = host_ended, .said = host_said};
}

static void reap(launch *l)
{
  cli_host_sink sink = host_sink(l);

  for (int i = 0; i < l->machines.count; i++) {
    int wait_status;
    if (cli_host_reap(&l->machines.list[i], &sink, &wait_status)) host_lost(l, &l->machines.list[i], wait_status);
  }
  for (int i = 0; i < l->count; i++) {
    process *p = &l->processes[i];
    int wait_status;
    if (p->pid > 0 && waitpid(p->pid, &wait_status, WNOHANG) == p->pid) process_ended(l, p, wait_status);
  }
}

/* ---- faults ---- */

/* kill:rank=2,after=3s   stop:rank=1,after=2s,for=5s   restart:rank=0,after=3s,delay=1s */
static weft_status *parse_fault(const char *text, fault *out)
{
  static const struct { const char *word; fault_kind kind; } kinds[] = {
    {"kill:", FAULT_KILL}, {"stop:", FAULT_STOP}, {"restart:", FAULT_RESTART},
  };
  const char *rest = NULL;
  int64_t rank = -1;

  *out = (fault){.rank = -1};
  for (size_t i = 0; i < WEFT_COUNT(kinds); i++) {
    if (strncmp(text, kinds[i].word, strlen(kinds[i].word)) != 0) continue;
    out->kind = kinds[i].kind;
    rest = text + strlen(kinds[i].word);
  }
  while (rest && *rest) {
    char part[64];
    size_t length = strcspn(rest, ",");
    const char *value;
    if (length >= sizeof part) break;
    memcpy(part, rest, length);
    part[length] = '\0';
    rest += length + (rest[length] == ',');
    value = strchr(part, '=');
    value = value ? value + 1 : "";
    if (strncmp(part, "rank=", 5) == 0) WEFT_TRY(weft_option_parse(WEFT_OPT_INT, "--fault rank", value, &rank));
    else if (strncmp(part, "after=", 6) == 0)
      WEFT_TRY(weft_option_parse(WEFT_OPT_DURATION, "--fault after", value, &out->at_ns));
    else if (strncmp(part, "for=", 4) == 0 || strncmp(part, "delay=", 6) == 0)
      WEFT_TRY(weft_option_parse(WEFT_OPT_DURATION, "--fault for", value, &out->length_ns));
    else rank = -1, rest = "";
  }
  if (!rest || rank < 0 || rank >= MAX_PROCESSES)
    return WEFT_ERR(INVALID_ARGUMENT,
                    "--fault: expected kill:rank=R,after=3s, stop:rank=R,after=3s,for=2s or "
                    "restart:rank=R,after=3s,delay=1s, got \"%s\"",
                    text);
  out->rank = (int)rank;
  return NULL;
}

static void strike(launch *l, fault *f, int64_t now_ns)
{
  process *p = &l->processes[f->rank];

  f->is_done = true;
  if (p->pid == 0) return;
  switch (f->kind) {
  case FAULT_KILL:
    say("fault: rank %d is killed", f->rank);
    signal_process(l, p, SIGKILL);
    break;
  case FAULT_RESTART:
    say("fault: rank %d is killed and restarted", f->rank);
    p->restart_at_ns = now_ns + WEFT_MAX(f->length_ns, 1);
    signal_process(l, p, SIGKILL);
    break;
  case FAULT_STOP:
    say("fault: rank %d is %s", f->rank, f->has_stopped ? "continued" : "stopped");
    signal_process(l, p, f->has_stopped ? SIGCONT : SIGSTOP);
    f->is_done = f->has_stopped || f->length_ns == 0;
    f->at_ns += f->length_ns;
    f->has_stopped = true;
    break;
  }
}

/* ---- the loop ---- */

/* Asks about a process that ended with 0 when it is time to, in ever longer pauses; returns the next time. */
static int64_t ask_if_due(const launch *l, process *p, int64_t now_ns)
{
  bool again = true;

  if (!p->ask_at_ns || l->running == 0 || l->is_stopping) return INT64_MAX;
  if (now_ns < p->ask_at_ns) return p->ask_at_ns;
  weft_status_ignore(say_if_never_joined(l, p, &again));
  p->ask_after_ns = WEFT_MIN(2 * p->ask_after_ns, 60 * WEFT_NS_PER_S);
  p->ask_at_ns = again ? weft_now_ns() + p->ask_after_ns : 0;
  return again ? p->ask_at_ns : INT64_MAX;
}

/* Performs the timed actions whose time has come; returns the time of the next one. */
static int64_t do_due(launch *l)
{
  int64_t now_ns = weft_now_ns(), next_ns = INT64_MAX;

  for (int i = 0; i < l->fault_count; i++) {
    fault *f = &l->faults[i];
    if (!f->is_done && now_ns >= l->started_ns + f->at_ns) strike(l, f, now_ns);
    if (!f->is_done) next_ns = WEFT_MIN(next_ns, l->started_ns + f->at_ns);
  }
  for (int i = 0; i < l->count; i++) {
    process *p = &l->processes[i];
    if (!p->restart_at_ns || p->pid != 0) continue;
    if (now_ns >= p->restart_at_ns) {
      weft_status *st = start_process(l, p, l->command, p->rank);
      if (st) say("rank %d cannot be restarted: %s", p->rank, weft_status_message(st));
      weft_status_free(st);
      p->restart_at_ns = 0;
    } else {
      next_ns = WEFT_MIN(next_ns, p->restart_at_ns);
    }
  }
  for (int i = 0; i < l->count; i++) next_ns = WEFT_MIN(next_ns, ask_if_due(l, &l->processes[i], now_ns));
  for (int i = 0; i < l->machines.count; i++) {
    cli_host *host = &l->machines.list[i];
    if (host->pid <= 0 || !host->kill_at_ns) continue;
    if (now_ns >= host->kill_at_ns) {
      if (!host->is_ready && host->out_fds[0] >= 0) say("%.200s: weft does not answer there", host->name);
      cli_spawn_signal(host->pid, SIGKILL);
      host->kill_at_ns = now_ns + WEFT_NS_PER_S;
    }
    next_ns = WEFT_MIN(next_ns, host->kill_at_ns);
  }
  if (l->is_stopping && l->stop_next >= 0) {
    if (now_ns >= l->kill_at_ns) {
      process *p = &l->processes[l->stop_next];
      const cli_host *host = cli_hosts_find(&l->machines, p->rank);
      if (host && host->pid > 0 && p->asked_by == SIGKILL) /* the host does not answer */
        cli_spawn_signal(host->pid, SIGKILL);
      ask_to_end(l, p, SIGKILL);
      l->kill_at_ns = now_ns + (host ? ANSWER_S : 1) * WEFT_NS_PER_S;
    }
    next_ns = WEFT_MIN(next_ns, l->kill_at_ns);
  }
  return next_ns;
}

static void on_signal(launch *l, int signal_number)
{
  if (signal_number == SIGCHLD) return reap(l);
  for (int i = 0; i < l->count; i++) signal_process(l, &l->processes[i], signal_number);
  if (signal_number != SIGINT && signal_number != SIGTERM && signal_number != SIGHUP) return;
  if (!l->exit_code) l->exit_code = EXIT_SIGNAL + signal_number;
  if (++l->signals_seen > 1) { /* a second signal of the user */
    for (int i = 0; i < l->count; i++) signal_process(l, &l->processes[i], SIGKILL);
    int64_t until_ns = weft_now_ns() + ANSWER_S * WEFT_NS_PER_S; /* then hosts that do not answer are given up */
    for (int i = 0; i < l->machines.count; i++) {
      cli_host *host = &l->machines.list[i];
      if (host->pid > 0 && (!host->kill_at_ns || host->kill_at_ns > until_ns)) host->kill_at_ns = until_ns;
    }
  }
  l->recoverable = false;
}

static bool is_over(const launch *l)
{
  if (l->running > 0) return false;
  for (int i = 0; i < l->count; i++)
    if (l->processes[i].restart_at_ns) return false;
  return true;
}

/* The exit code of the job. Processes that a recoverable job lost do not count if others reach the end. */
static int exit_code(const launch *l)
{
  for (int i = 0; l->recoverable && i < l->count; i++)
    if (l->processes[i].has_ended && l->processes[i].exit_code == 0) return l->has_lost_output ? CLI_FAILED : 0;
  return l->exit_code || !l->has_lost_output ? l->exit_code : CLI_FAILED;
}

static weft_status *mind(launch *l, int signal_fd)
{
  size_t most = (size_t)l->count * STREAMS + (size_t)l->machines.count * CLI_HOST_POLLS + 1;
  struct pollfd *fds = calloc(most, sizeof *fds);
  stream **streams = calloc((size_t)l->count * STREAMS + 1, sizeof *streams);

  if (!fds || !streams) {
    free(fds);
    free(streams);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  cli_host_sink sink = host_sink(l);
  fds[0] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
  while (!is_over(l)) {
    int64_t next_ns = do_due(l);
    nfds_t count = 1;
    struct signalfd_siginfo info;
    for (int i = 0; i < l->count; i++)
      for (int k = 0; k < STREAMS; k++) {
        if (l->processes[i].streams[k].fd < 0) continue;
        streams[count] = &l->processes[i].streams[k];
        fds[count] = (struct pollfd){.fd = streams[count]->fd, .events = POLLIN};
        count++;
      }
    nfds_t of_hosts = count;
    for (int i = 0; i < l->machines.count; i++, count += CLI_HOST_POLLS)
      cli_host_poll(&l->machines.list[i], &fds[count]);
    if (poll(fds, count, weft_deadline_poll_ms((weft_deadline){next_ns})) < 0 && errno != EINTR) break;
    for (int i = 0; i < l->machines.count; i++)
      cli_host_move(&l->machines.list[i], &fds[of_hosts + (nfds_t)i * CLI_HOST_POLLS], &sink);
    for (nfds_t i = 1; i < of_hosts; i++) {
      process *p = NULL;
      if (!fds[i].revents || streams[i]->fd != fds[i].fd) continue;
      for (int r = 0; r < l->count && !p; r++)
        if (streams[i] >= l->processes[r].streams && streams[i] < l->processes[r].streams + STREAMS)
          p = &l->processes[r];
      read_stream(l, p, streams[i]);
    }
    while (read(signal_fd, &info, sizeof info) == sizeof info) on_signal(l, (int)info.ssi_signo);
  }
  free(fds);
  free(streams);
  return NULL;
}

/* ---- batch systems ---- */

static bool is_in_path(const char *program)
{
  const char *path = getenv("PATH");
  char full[4096];

  while (path && *path) {
    size_t length = strcspn(path, ":");
    snprintf(full, sizeof full, "%.*s/%s", (int)length, path, program);
    if (access(full, X_OK) == 0) return true;
    path += length + (path[length] == ':');
  }
  return false;
}

/* The command that starts processes in the allocation that this process is in; NULL if there is no allocation. */
static const char *find_runner(void)
{
  static const char *const mpi_allocations[] = {"PBS_NODEFILE", "LSB_HOSTS", "LSB_MCPU_HOSTS", "PE_HOSTFILE"};

  if (getenv("SLURM_JOB_ID") && !getenv("SLURM_STEP_ID") && is_in_path("srun")) return "srun";
  for (size_t i = 0; i < WEFT_COUNT(mpi_allocations); i++)
    if (getenv(mpi_allocations[i]) && is_in_path("mpirun")) return "mpirun";
  return NULL;
}

/* Starts the runner, which numbers and watches the processes: RUNNER -n COUNT [env NAME=value ...] COMMAND. srun
 * passes the environment on to all machines. mpirun passes it on only on its own machine, and each MPI library has
 * other options for more, so `env` carries the variables. */
static weft_status *start_runner(launch *l, int count, char ***out_command)
{
  static char number[16], runner[4096];
  const cli_environment *env = &l->to_runner;
  size_t n = 0, words = 0;
  bool is_srun = strncmp(l->runner, "srun", 4) == 0;
  char **command, *rest = runner;

  while (l->command[words]) words++;
  WEFT_TRY(make_environment(l, -1, &l->to_runner));
  command = calloc(strlen(l->runner) + env->count + words + 8, sizeof *command);
  WEFT_TRY_ALLOC(command);
  *out_command = command;
  if ((size_t)snprintf(runner, sizeof runner, "%s", l->runner) >= sizeof runner)
    return WEFT_ERR(INVALID_ARGUMENT, "--runner: more than %zu bytes", sizeof runner);
  for (char *word; (word = strsep(&rest, " \t"));)
    if (*word) command[n++] = word;
  if (n == 0) return WEFT_ERR(INVALID_ARGUMENT, "--runner: no command");
  snprintf(number, sizeof number, "%d", count);
  command[n++] = (char *)(uintptr_t)"-n";
  command[n++] = number;
  command[n++] = (char *)(uintptr_t)(is_srun ? "--label" : "env");
  for (size_t i = 0; i < env->count && !is_srun; i++)
    if (cli_environment_concerns_job(env->vars[i])) command[n++] = env->vars[i];
  memcpy(command + n, l->command, words * sizeof *command);
  return start_process(l, &l->processes[0], command, -1);
}

/* ---- the command ---- */

static weft_status *add_fault(void *out, const char *text)
{
  launch *l = out;

  if (l->fault_count == MAX_FAULTS) return WEFT_ERR(INVALID_ARGUMENT, "more than %d faults", MAX_FAULTS);
  return parse_fault(text, &l->faults[l->fault_count++]);
}

static weft_status *set_hosts(void *out, const char *text)
{
  cli_hosts *hosts = out;

  if (hosts->list) return WEFT_ERR(INVALID_ARGUMENT, "--hosts: given twice; put a comma between the hosts");
  return cli_hosts_parse(text, hosts);
}

static weft_status *set_binding(void *out, const char *text) { return cli_bind_parse(text, out); }

/* What options say about each other. */
static weft_status *check_options(launch *l, int64_t *count)
{
  if (l->machines.count > 0) {
    if (l->runner || l->is_local) return WEFT_ERR(INVALID_ARGUMENT, "--hosts goes with neither --runner nor --local");
    if (*count == 0) *count = l->machines.slots;
  }
  if (*count < 1 || *count > MAX_PROCESSES)
    return WEFT_ERR(INVALID_ARGUMENT, "-n: expected 1 to %d processes (see `weft launch --help`)", MAX_PROCESSES);
  if (l->machines.count > 0) WEFT_TRY(cli_hosts_assign(&l->machines, (int)*count));
  else if (!l->is_local && !l->runner) l->runner = find_runner();
  if (l->runner && l->bind_to != CLI_BIND_NONE)
    return WEFT_ERR(INVALID_ARGUMENT,
                    "--bind-to: the runner binds processes: srun --cpu-bind=cores, mpirun --bind-to core");
  if (!l->files[1]) l->files[1] = l->files[0];
  for (int k = 0; k < STREAMS && l->runner; k++)
    if (l->files[k] && cli_output_is_by_rank(l->files[k]))
      return WEFT_ERR(INVALID_ARGUMENT,
                      "%s: a runner gives the output of all ranks as one: leave %%r out, or let the "
                      "runner write files (srun --output 'out.%%t')",
                      l->files[k]);
  return NULL;
}

static weft_status *parse(launch *l, int argc, char **argv, bool *out_helped)
{
  int64_t count = 0;
  weft_coord_service_options *service = &l->service_options;
  const cli_option options[] = {
      {"-n", "N", "processes", .type = WEFT_OPT_INT, .out = &count},
      {"--devices-per-process", "D", "devices that each process makes (WEFT_NUM_DEVICES, JAX_NUM_CPU_DEVICES)", .type = WEFT_OPT_INT, .out = &l->devices},
      {"--recoverable", NULL, "a process that fails is started again, and the job goes on", .out = &l->recoverable},
      {"--restarts", "N", "how often each (default 10); then the job goes on without it", .type = WEFT_OPT_INT, .out = &l->restarts},
      {"--bind", "HOST:PORT", "where the service listens (default 127.0.0.1:0, a free port)", .type = WEFT_OPT_STRING, .out = &service->address},
      {"--heartbeat-timeout", "T", "silence after which a process counts as dead (default 100s)", .type = WEFT_OPT_DURATION, .out = &service->heartbeat_timeout_ns},
      {"--register-timeout", "T", "longest wait for the last process, at the start and at the end (default 60m, 5m)",
       .type = WEFT_OPT_DURATION, .out = &service->register_timeout_ns},
      {"--shutdown-timeout", "T", NULL, .type = WEFT_OPT_DURATION, .out = &service->shutdown_timeout_ns},
      {"--allow-unauthenticated", NULL, "let in clients without the job's secret from anywhere, not only from this user or the allocation's hosts",
       .out = &service->allow_unauthenticated},
      {"--insecure", NULL, "make no secret for the job: everyone who reaches the service is let in", .out = &service->insecure},
      {"--grace", "T", "between SIGTERM and SIGKILL when the rest is stopped (default 10s)", .type = WEFT_OPT_DURATION, .out = &l->grace_ns},
      {"--plain", NULL, "output without \"[rank] \" in front of each line", .out = &l->is_plain},
      {"--output-file", "PATTERN", "write output to files, 'out.%r': %r is the rank, %h the host; without %r one file for all", .type = WEFT_OPT_STRING, .out = &l->files[0]},
      {"--error-file", "PATTERN", "the same for standard error (default: where --output-file writes)", .type = WEFT_OPT_STRING, .out = &l->files[1]},
      {"--no-jax-env", NULL, "set WEFT_* only, not what jax.distributed.initialize() reads", .out = &l->no_jax_env},
      {"--local", NULL, "start the processes here even inside an allocation", .out = &l->is_local},
      {"--hosts", "a,b:4", "start them on these machines by ssh, 4 on b, as many as there is room (or -n N)", .set = set_hosts, .out = &l->machines},
      {"--ssh", "'WORDS'", "the command that reaches a host (default \"" SSH "\")", .type = WEFT_OPT_STRING, .out = &l->machines.ssh},
      {"--bind-to", "WHAT", "spread the processes of a machine over its CPUs, bound: none (default), core, numa, socket", .set = set_binding, .out = &l->bind_to},
      {"--runner", "'WORDS'", "let this command start them: \"mpirun --hostfile hosts\"; it gets -n N and the command", .type = WEFT_OPT_STRING, .out = &l->runner},
      {"--fault", "SPEC", "for tests: kill:rank=2,after=3s  stop:rank=1,after=2s,for=5s\n"
                          "restart:rank=0,after=3s,delay=1s; may be given again", .set = add_fault, .out = l},
  };
  const cli_command command = {
      "launch", "-n N | --hosts a,b:4 [OPTIONS] -- COMMAND ...",
      "Starts N processes of COMMAND on this machine or on others, with the coordination service inside, and watches them.\n"
      "Inside a Slurm or MPI allocation it runs srun or mpirun instead (--local: here even then).\n"
      "A command that is `weft run PROGRAM` runs the program on the devices of all processes.",
      .options = options, .option_count = WEFT_COUNT(options), .ends_at_words = true, .notes =
      "\nEach process gets WEFT_COORD_ADDRESS, WEFT_COORD_TASK, WEFT_NUM_PROCESSES, WEFT_PROCESS_ID, WEFT_LOCAL_PROCESS_ID,\n"
      "WEFT_LOCAL_PROCESSES (how many share its CPUs, and so the number of its threads), and in\n"
      "WEFT_COORD_SECRET_FILE the name of a file with the secret of this job (yours, if you set it).\n"
      "Exit code: 0 if all ended with 0, else the code of the first that failed, or 128 + signal of one that was killed;\n"
      "under --recoverable 0 if any ended with 0."};

  WEFT_TRY(cli_parse_options(&command, &argc, argv, out_helped));
  if (*out_helped) return NULL;
  WEFT_TRY(check_options(l, &count));
  if (argc < 2) return WEFT_ERR(INVALID_ARGUMENT, "no command (see `weft launch --help`)");
  l->count = (int)count;
  l->command = argv + 1;
  for (int k = 0; k < l->fault_count; k++)
    if (l->faults[k].rank >= l->count)
      return WEFT_ERR(INVALID_ARGUMENT, "--fault: there is no rank %d", l->faults[k].rank);
  return NULL;
}

/* True if other machines are not part of the job as far as --hosts says. */
static bool is_here_only(const launch *l)
{
  for (int i = 0; i < l->machines.count; i++)
    if (l->machines.list[i].count > 0 && !cli_host_is_here(&l->machines.list[i])) return false;
  return true;
}

/* The names of the hosts that have processes, with commas between them, without users: "ada@node1" is node1. */
static char *join_hosts(const launch *l)
{
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);

  for (int i = 0; out && i < l->machines.count && l->machines.list[i].count > 0; i++) { /* those without come last */
    const char *name = l->machines.list[i].name, *at = strchr(name, '@');
    fprintf(out, "%s%s", i ? "," : "", at ? at + 1 : name);
  }
  if (out) fclose(out);
  return text;
}

/* Makes the job's secret, which tells its processes from strangers. Processes of a runner may be on other machines;
 * clients that cannot carry the secret are then recognised by their hosts. */
static weft_status *protect(launch *l)
{
  weft_coord_service_options *service = &l->service_options;

  if (!*service->secret_file && !service->insecure) {
    WEFT_TRY(cli_job_secret_make(l->runner, &l->secret));
    service->secret_file = l->secret.file;
  }
  if (l->machines.count > 0)
    WEFT_TRY(weft_secret_read(service->insecure ? "" : service->secret_file, &l->machines.secret));
  if ((!l->runner && is_here_only(l)) || *service->hosts) return NULL;
  l->hosts = l->machines.count > 0 ? join_hosts(l) : cli_allocation_hosts();
  WEFT_TRY_ALLOC(l->hosts);
  service->hosts = l->hosts;
  return NULL;
}

static weft_status *start_service(launch *l)
{
  bool is_anywhere = (l->runner || !is_here_only(l)) &&
                     strcmp(l->service_options.address, "127.0.0.1:0") == 0; /* the default */
  const char *port;
  char host[256];

  l->service_options.task_count = l->count;
  l->service_options.recoverable = l->recoverable;
  if (is_anywhere) l->service_options.address = "0.0.0.0:0"; /* the processes may be on other machines */
  WEFT_TRY(weft_coord_service_start(&l->service_options, &l->service));
  l->address = weft_coord_service_address(l->service);
  if (!is_anywhere) return NULL;
  port = strrchr(l->address, ':');
  if (gethostname(host, sizeof host) != 0) return WEFT_ERR(INTERNAL, "gethostname: %s", strerror(errno));
  snprintf(l->address_text, sizeof l->address_text, "%s%s", host, port);
  l->address = l->address_text;
  return NULL;
}

static weft_status *run(launch *l)
{
  static const int watched[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
  sigset_t signals;
  int signal_fd, count = l->count;
  char **command = NULL;
  weft_status *st = NULL;

  sigemptyset(&signals);
  for (size_t i = 0; i < WEFT_COUNT(watched); i++) sigaddset(&signals, watched[i]);
  /* before the thread of the service starts, which inherits the signal mask */
  sigprocmask(SIG_BLOCK, &signals, &l->original_mask);
  signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd < 0) return WEFT_ERR(RESOURCE_EXHAUSTED, "signalfd: %s", strerror(errno));
  l->machines.mask = l->original_mask;
  WEFT_TRY(protect(l));
  WEFT_TRY(start_service(l));
  l->processes = calloc((size_t)l->count, sizeof *l->processes);
  WEFT_TRY_ALLOC(l->processes);
  l->process_count = l->count;
  for (int i = 0; i < l->count; i++) {
    l->processes[i].rank = i;
    for (int k = 0; k < STREAMS; k++)
      l->processes[i].streams[k] = (stream){.fd = -1, .out_fd = k == 0 ? STDOUT_FILENO : STDERR_FILENO};
  }
  WEFT_TRY(open_files(l));
  l->started_ns = weft_now_ns();
  if (l->runner) {
    say("running %s -n %d", l->runner, count);
    l->is_plain = true;
    st = start_runner(l, count, &command);
    l->count = 1;
  }
  for (int i = 0; i < l->count && !l->runner && !st; i++) st = start_process(l, &l->processes[i], l->command, i);
  if (st) stop_all(l);
  if (!st) st = mind(l, signal_fd);
  free(command);
  cli_environment_free(&l->to_runner);
  close(signal_fd);
  return st;
}

int cli_launch_main(int argc, char **argv)
{
  if (argc == 2 && strcmp(argv[1], "--node") == 0) return cli_node_main();
  launch l = {.grace_ns = 10 * WEFT_NS_PER_S, .restarts = RESTARTS, .secret.fd = -1, .machines.ssh = SSH};
  bool helped = false;
  weft_status *st = weft_coord_service_options_load(&l.service_options);

  if (!st) st = parse(&l, argc, argv, &helped);
  if (helped) return CLI_OK;
  if (!st) st = run(&l);
  cli_hosts_free(&l.machines);
  close_files(&l);
  weft_coord_service_stop(l.service);
  cli_job_secret_remove(&l.secret);
  free(l.hosts);
  int code = st ? cli_report("launch", st) : exit_code(&l);
  free(l.processes);
  return code;
}
