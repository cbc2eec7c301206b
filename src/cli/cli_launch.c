/* cli/cli_launch.c -- weft launch: starts N processes on this machine, with the coordination service in the
 * launcher.
 *
 * One loop over poll(2) handles the output of the processes, signals (through a signalfd), and the next timed action
 * (a fault to inject, a restart, the end of a grace period). With a runner (srun, mpirun) the same loop watches the
 * runner alone. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <weft/coord.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/job_secret.h"
#include "cli/options.h"

enum { MAX_PROCESSES = 4096, MAX_FAULTS = 64, LINE_BYTES = 8192, STREAMS = 2, EXIT_SIGNAL = 128, RESTARTS = 10 };

extern char **environ;

/* The read end of a pipe that a process writes to, and the line that the process has begun. */
typedef struct stream {
  int fd; /* -1: closed */
  int out_fd;
  size_t size;
  char line[LINE_BYTES];
} stream;

typedef struct process {
  int rank;
  pid_t pid; /* 0: not running */
  bool has_ended;
  int exit_code;
  int asked_by; /* the signal by which stop_next or do_due asked the process to end; 0: none */
  int restarts;
  int64_t restart_at_ns; /* 0: not */
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

/* A list of "NAME=value" strings, each allocated by malloc; NULL ends the list. */
typedef struct environment {
  char **vars;
  size_t count, capacity;
} environment;

typedef struct launch {
  int count;
  int64_t devices; /* devices of each process; 0: not given */
  bool recoverable, is_plain, no_jax_env, is_local;
  /* how often one process of a recoverable job is restarted; after that the job goes on without the process */
  int64_t restarts;
  int64_t grace_ns;
  char **command;
  const char *runner;  /* "srun", "mpirun --hostfile hosts", ...; NULL: start the processes here */
  environment to_runner; /* what the runner carries on its command line */
  weft_coord_service_options service_options;
  weft_coord_service *service;
  cli_job_secret secret;
  char *hosts;           /* of the allocation */
  const char *address;
  char address_text[300];
  process *processes;
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

static bool same_name(const char *var, const char *assignment)
{
  size_t length = strcspn(assignment, "=");

  return strncmp(var, assignment, length) == 0 && var[length] == '=';
}

/* Adds `assignment` ("NAME=value" from malloc, taken) to the list and replaces an entry of the same name. */
static weft_status *env_put(environment *env, char *assignment)
{
  WEFT_TRY_ALLOC(assignment);
  for (size_t i = 0; i < env->count; i++) {
    if (!same_name(env->vars[i], assignment)) continue;
    free(env->vars[i]);
    env->vars[i] = assignment;
    return NULL;
  }
  if (env->count + 1 >= env->capacity) {
    size_t bigger = env->capacity ? 2 * env->capacity : 128;
    char **grown = realloc(env->vars, bigger * sizeof *grown);
    if (!grown) free(assignment);
    WEFT_TRY_ALLOC(grown);
    env->vars = grown;
    env->capacity = bigger;
  }
  env->vars[env->count++] = assignment;
  env->vars[env->count] = NULL;
  return NULL;
}

WEFT_PRINTF(2, 3) static weft_status *env_set(environment *env, const char *fmt, ...)
{
  char *assignment = NULL;
  va_list args;

  va_start(args, fmt);
  if (vasprintf(&assignment, fmt, args) < 0) assignment = NULL;
  va_end(args);
  return env_put(env, assignment);
}

static void env_free(environment *env)
{
  for (size_t i = 0; i < env->count; i++) free(env->vars[i]);
  free(env->vars);
}

/* Sets what jax.distributed.initialize() reads. JAX has no variables of its own for the number of processes and the
 * rank. It looks for those of Open MPI first, and reads them as text. Processes of a runner find theirs in the
 * runner's variables. */
static weft_status *jax_environment(const launch *l, int rank, environment *env)
{
  WEFT_TRY(env_set(env, "JAX_COORDINATOR_ADDRESS=%s", l->address));
  /* rank 0 starts a service of its own at this address; it stays unused, because all connect to the launcher's */
  WEFT_TRY(env_set(env, "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0"));
  if (l->devices > 0) WEFT_TRY(env_set(env, "JAX_NUM_CPU_DEVICES=%" PRId64, l->devices));
  if (rank < 0) return NULL;
  WEFT_TRY(env_set(env, "OMPI_MCA_orte_hnp_uri=0.0;tcp://127.0.0.1%s", strrchr(l->address, ':')));
  WEFT_TRY(env_set(env, "OMPI_COMM_WORLD_SIZE=%d", l->count));
  WEFT_TRY(env_set(env, "OMPI_COMM_WORLD_RANK=%d", rank));
  return env_set(env, "OMPI_COMM_WORLD_LOCAL_RANK=%d", rank);
}

/* Sets the environment of one rank. With rank -1 it is the environment that a runner passes on, and the runner
 * numbers the processes. */
static weft_status *make_environment(const launch *l, int rank, environment *env)
{
  for (char **var = environ; *var; var++) WEFT_TRY(env_put(env, strdup(*var)));
  WEFT_TRY(env_set(env, "WEFT_COORD_ADDRESS=%s", l->address));
  WEFT_TRY(env_set(env, "WEFT_NUM_PROCESSES=%d", l->count));
  WEFT_TRY(
    env_set(env, "WEFT_COORD_HEARTBEAT_TIMEOUT=%gs", (double)l->service_options.heartbeat_timeout_ns / WEFT_NS_PER_S));
  if (l->secret.file) WEFT_TRY(env_set(env, "WEFT_COORD_SECRET_FILE=%s", l->secret.file));
  if (l->devices > 0) WEFT_TRY(env_set(env, "WEFT_NUM_DEVICES=%" PRId64, l->devices));
  if (l->recoverable) WEFT_TRY(env_set(env, "JAX_ENABLE_RECOVERABILITY=1"));
  if (rank >= 0) {
    WEFT_TRY(env_set(env, "WEFT_PROCESS_ID=%d", rank));
    WEFT_TRY(env_set(env, "WEFT_LOCAL_PROCESS_ID=%d", rank));
    WEFT_TRY(env_set(env, "WEFT_COORD_TASK=%d", rank));
  }
  return l->no_jax_env ? NULL : jax_environment(l, rank, env);
}

/* ---- output ---- */

static void write_all(int fd, const char *data, size_t size)
{
  if (!weft_fd_write_all(fd, data, size) && fd == STDOUT_FILENO) cli_output_lost(errno);
}

/* Writes whole lines, each with its rank in front, by one write call, so that lines of different ranks do not mix. */
static void put_line(const launch *l, const process *p, stream *s, size_t size)
{
  char out[LINE_BYTES + 32];
  int n = l->runner || l->is_plain ? 0 : snprintf(out, 32, "[%d] ", p->rank);

  memcpy(out + n, s->line, size);
  n += (int)size;
  if (out[n - 1] != '\n') out[n++] = '\n';
  write_all(s->out_fd, out, (size_t)n);
  memmove(s->line, s->line + size, s->size - size);
  s->size -= size;
}

static void read_stream(const launch *l, const process *p, stream *s)
{
  ssize_t n = read(s->fd, s->line + s->size, LINE_BYTES - 1 - s->size);
  char *newline;

  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) s->size += (size_t)n;
  while ((newline = memchr(s->line, '\n', s->size))) put_line(l, p, s, (size_t)(newline - s->line) + 1);
  if (s->size > 0 && (n <= 0 || s->size == LINE_BYTES - 1)) put_line(l, p, s, s->size);
  if (n > 0) return;
  close(s->fd);
  s->fd = -1;
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

/* ---- processes ---- */

/* Runs in the child between fork and exec. Only async-signal-safe calls are allowed, because the parent has threads. */
static void become(const launch *l, char **command, char **env, const int *write_ends)
{
  int null_fd = open("/dev/null", O_RDONLY);

  prctl(PR_SET_PDEATHSIG, SIGKILL); /* a killed launcher leaves no processes behind */
  setpgid(0, 0);                    /* signals to the process group reach the child's own children too */
  if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
  dup2(write_ends[0], STDOUT_FILENO);
  dup2(write_ends[1], STDERR_FILENO);
  sigprocmask(SIG_SETMASK, &l->original_mask, NULL);
  environ = env;
  execvp(command[0], command);
  bool missing = errno == ENOENT;
  write_all(STDERR_FILENO, "weft launch: cannot run ", 24);
  write_all(STDERR_FILENO, command[0], strlen(command[0]));
  write_all(STDERR_FILENO, missing ? ": no such command\n" : ": it cannot be executed\n", missing ? 18 : 24);
  _exit(missing ? 127 : 126);
}

static weft_status *start_process(launch *l, process *p, char **command, int rank)
{
  environment env = {0};
  int pipes[STREAMS][2] = {{-1, -1}, {-1, -1}}, write_ends[STREAMS];
  weft_status *st = make_environment(l, rank, &env);
  pid_t pid = -1;

  for (int i = 0; i < STREAMS && !st; i++) {
    if (pipe2(pipes[i], O_CLOEXEC) != 0) st = WEFT_ERR(RESOURCE_EXHAUSTED, "pipe: %s", strerror(errno));
    write_ends[i] = pipes[i][1];
  }
  if (!st) {
    pid = fork();
    if (pid == 0) become(l, command, env.vars, write_ends);
    if (pid < 0) st = WEFT_ERR(RESOURCE_EXHAUSTED, "fork: %s", strerror(errno));
  }
  for (int i = 0; i < STREAMS; i++) {
    if (pipes[i][1] >= 0) close(pipes[i][1]);
    if (st && pipes[i][0] >= 0) close(pipes[i][0]);
    if (st) continue;
    if (p->streams[i].fd >= 0) close(p->streams[i].fd); /* of the process that had this rank before */
    fcntl(pipes[i][0], F_SETFL, O_NONBLOCK);
    p->streams[i].fd = pipes[i][0];
    p->streams[i].out_fd = i == 0 ? STDOUT_FILENO : STDERR_FILENO;
    p->streams[i].size = 0;
  }
  env_free(&env);
  if (st) return st;
  setpgid(pid, pid); /* parent or child, whichever runs first */
  p->pid = pid;
  p->has_ended = false;
  p->restart_at_ns = 0;
  l->running++;
  return NULL;
}

static void signal_process(const process *p, int signal_number)
{
  if (p->pid > 0 && kill(-p->pid, signal_number) != 0) kill(p->pid, signal_number);
}

static void ask_to_end(process *p, int signal_number)
{
  p->asked_by = signal_number;
  signal_process(p, signal_number);
}

/* Asks the running process of the highest rank to end. The next one is asked when this one has ended. */
static void stop_next(launch *l)
{
  while (l->stop_next >= 0 && l->processes[l->stop_next].pid == 0) l->stop_next--;
  if (l->stop_next < 0) return;
  signal_process(&l->processes[l->stop_next], SIGCONT);
  ask_to_end(&l->processes[l->stop_next], SIGTERM);
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
  char name[256];

  if (l->runner) /* the options do not name the runner */
    snprintf(name, sizeof name, "the runner (%.*s)", (int)WEFT_MIN(strcspn(l->runner, " \t"), (size_t)200), l->runner);
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

/* Says which rank failed first. The runner's exit code says nothing about ranks, but the service knows the tasks
 * that joined the job. */
static weft_status *say_which_rank(const launch *l)
{
  weft_coord_agent_options options;
  const weft_coord_status_task *task;
  WEFT_AUTO(weft_coord_agent) agent = NULL;
  WEFT_AUTO(weft_coord_status_report) report = NULL;

  WEFT_TRY(weft_coord_agent_options_load(&options));
  options.address = weft_coord_service_address(l->service);
  options.secret_file = l->service_options.secret_file;
  options.init_timeout_ns = 2 * WEFT_NS_PER_S;
  options.observes_at_once = true;
  WEFT_TRY(weft_coord_agent_new(&options, &agent));
  WEFT_TRY(weft_coord_agent_observe(agent));
  WEFT_TRY(weft_coord_agent_status(agent, &report));
  task = find_culprit(report);
  if (!task) say("no rank of Weft's reported a failure");
  else if (task->info.error_code != WEFT_OK)
    say("rank %d failed: %.400s", (int)task->info.task, task->info.error_message);
  else say("rank %d was the first to end, without leaving the job", (int)task->info.task);
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
  p->pid = 0;
  p->has_ended = true;
  p->exit_code = WIFSIGNALED(wait_status) ? EXIT_SIGNAL + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  l->running--;
  for (int i = 0; i < STREAMS; i++)
    while (p->streams[i].fd >= 0) { /* the last output of the process; a grandchild may keep the pipe open */
      struct pollfd ready = {.fd = p->streams[i].fd, .events = POLLIN};
      if (poll(&ready, 1, 0) <= 0) break;
      read_stream(l, p, &p->streams[i]);
    }
  if (l->is_stopping) return ended_while_stopping(l, p, wait_status);
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

static void reap(launch *l)
{
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
    signal_process(p, SIGKILL);
    break;
  case FAULT_RESTART:
    say("fault: rank %d is killed and restarted", f->rank);
    p->restart_at_ns = now_ns + WEFT_MAX(f->length_ns, 1);
    signal_process(p, SIGKILL);
    break;
  case FAULT_STOP:
    say("fault: rank %d is %s", f->rank, f->has_stopped ? "continued" : "stopped");
    signal_process(p, f->has_stopped ? SIGCONT : SIGSTOP);
    f->is_done = f->has_stopped || f->length_ns == 0;
    f->at_ns += f->length_ns;
    f->has_stopped = true;
    break;
  }
}

/* ---- the loop ---- */

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
    if (!p->restart_at_ns || p->pid > 0) continue;
    if (now_ns >= p->restart_at_ns) {
      weft_status *st = start_process(l, p, l->command, p->rank);
      if (st) say("rank %d cannot be restarted: %s", p->rank, weft_status_message(st));
      weft_status_free(st);
      p->restart_at_ns = 0;
    } else {
      next_ns = WEFT_MIN(next_ns, p->restart_at_ns);
    }
  }
  if (l->is_stopping && l->stop_next >= 0) {
    if (now_ns >= l->kill_at_ns) {
      ask_to_end(&l->processes[l->stop_next], SIGKILL);
      l->kill_at_ns = now_ns + WEFT_NS_PER_S;
    }
    next_ns = WEFT_MIN(next_ns, l->kill_at_ns);
  }
  return next_ns;
}

static void on_signal(launch *l, int signal_number)
{
  if (signal_number == SIGCHLD) return reap(l);
  for (int i = 0; i < l->count; i++) signal_process(&l->processes[i], signal_number);
  if (signal_number != SIGINT && signal_number != SIGTERM && signal_number != SIGHUP) return;
  if (!l->exit_code) l->exit_code = EXIT_SIGNAL + signal_number;
  if (++l->signals_seen > 1) { /* the user insists */
    for (int i = 0; i < l->count; i++) signal_process(&l->processes[i], SIGKILL);
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
    if (l->processes[i].has_ended && l->processes[i].exit_code == 0) return 0;
  return l->exit_code;
}

static weft_status *mind(launch *l, int signal_fd)
{
  struct pollfd *fds = calloc((size_t)l->count * STREAMS + 1, sizeof *fds);
  stream **streams = calloc((size_t)l->count * STREAMS + 1, sizeof *streams);

  if (!fds || !streams) {
    free(fds);
    free(streams);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
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
    if (poll(fds, count, weft_deadline_poll_ms((weft_deadline){next_ns})) < 0 && errno != EINTR) break;
    for (nfds_t i = 1; i < count; i++) {
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

/* True for variables that the processes need on every machine. */
static bool concerns_processes(const char *assignment)
{
  static const char *const beginnings[] = {"WEFT_", "JAX_", "FI_", "XLA_FLAGS=", "PJRT_NAMES_AND_LIBRARY_PATHS="};

  for (size_t i = 0; i < WEFT_COUNT(beginnings); i++)
    if (strncmp(assignment, beginnings[i], strlen(beginnings[i])) == 0) return true;
  return false;
}

/* Starts the runner, which numbers and watches the processes: RUNNER -n COUNT [env NAME=value ...] COMMAND. srun
 * passes the environment on to all machines. mpirun passes it on only on its own machine, and each MPI library has
 * other options for more, so `env` carries the variables. */
static weft_status *start_runner(launch *l, int count, char ***out_command)
{
  static char number[16], runner[4096];
  const environment *env = &l->to_runner;
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
    if (concerns_processes(env->vars[i])) command[n++] = env->vars[i];
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
      {"--no-jax-env", NULL, "set WEFT_* only, not what jax.distributed.initialize() reads", .out = &l->no_jax_env},
      {"--local", NULL, "start the processes here even inside an allocation", .out = &l->is_local},
      {"--runner", "'WORDS'", "let this command start them: \"mpirun --hostfile hosts\"; it gets -n N and the command", .type = WEFT_OPT_STRING, .out = &l->runner},
      {"--fault", "SPEC", "for tests: kill:rank=2,after=3s  stop:rank=1,after=2s,for=5s\n"
                          "restart:rank=0,after=3s,delay=1s; may be given again", .set = add_fault, .out = l},
  };
  const cli_command command = {
      "launch", "-n N [OPTIONS] -- COMMAND ...",
      "Starts N processes of COMMAND on this machine, with the coordination service inside, and watches them.\n"
      "Inside a Slurm or MPI allocation it runs srun or mpirun instead (--local: here even then).\n"
      "A command that is `weft run PROGRAM` runs the program on the devices of all processes.",
      .options = options, .option_count = WEFT_COUNT(options), .ends_at_words = true, .notes =
      "\nEach process gets WEFT_COORD_ADDRESS, WEFT_COORD_TASK, WEFT_NUM_PROCESSES, WEFT_PROCESS_ID, WEFT_LOCAL_PROCESS_ID, and in\n"
      "WEFT_COORD_SECRET_FILE the name of a file with the secret of this job (yours, if you set it).\n"
      "Exit code: 0 if all ended with 0, else the code of the first that failed, or 128 + signal of one that was killed;\n"
      "under --recoverable 0 if any ended with 0."};

  WEFT_TRY(cli_parse_options(&command, &argc, argv, out_helped));
  if (*out_helped) return NULL;
  if (count < 1 || count > MAX_PROCESSES)
    return WEFT_ERR(INVALID_ARGUMENT, "-n: expected 1 to %d processes (see `weft launch --help`)", MAX_PROCESSES);
  if (argc < 2) return WEFT_ERR(INVALID_ARGUMENT, "no command (see `weft launch --help`)");
  l->count = (int)count;
  l->command = argv + 1;
  for (int k = 0; k < l->fault_count; k++)
    if (l->faults[k].rank >= l->count)
      return WEFT_ERR(INVALID_ARGUMENT, "--fault: there is no rank %d", l->faults[k].rank);
  return NULL;
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
  if (!l->runner || *service->hosts) return NULL;
  l->hosts = cli_allocation_hosts();
  WEFT_TRY_ALLOC(l->hosts);
  service->hosts = l->hosts;
  return NULL;
}

static weft_status *start_service(launch *l)
{
  bool is_anywhere = l->runner && strcmp(l->service_options.address, "127.0.0.1:0") == 0; /* the default */
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
  if (!l->is_local && !l->runner) l->runner = find_runner();
  WEFT_TRY(protect(l));
  WEFT_TRY(start_service(l));
  l->processes = calloc((size_t)l->count, sizeof *l->processes);
  WEFT_TRY_ALLOC(l->processes);
  for (int i = 0; i < l->count; i++) {
    l->processes[i].rank = i;
    for (int k = 0; k < STREAMS; k++) l->processes[i].streams[k].fd = -1;
  }
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
  env_free(&l->to_runner);
  close(signal_fd);
  return st;
}

int cli_launch_main(int argc, char **argv)
{
  launch l = {.grace_ns = 10 * WEFT_NS_PER_S, .restarts = RESTARTS, .secret.fd = -1};
  bool helped = false;
  weft_status *st = weft_coord_service_options_load(&l.service_options);

  if (!st) st = parse(&l, argc, argv, &helped);
  if (helped) return CLI_OK;
  if (!st) st = run(&l);
  for (int i = 0; l.processes && i < l.count; i++)
    for (int k = 0; k < STREAMS; k++)
      if (l.processes[i].streams[k].fd >= 0) close(l.processes[i].streams[k].fd);
  weft_coord_service_stop(l.service);
  cli_job_secret_remove(&l.secret);
  free(l.hosts);
  int code = st ? cli_report("launch", st) : exit_code(&l);
  free(l.processes);
  return code;
}
