/* cli/node.c -- the part of `weft launch --hosts` that runs on each host (node.h).
 *
 * One loop over poll(2) handles the launcher's frames, the output of the processes and signals (through a signalfd).
 * Frames to the launcher are written at once: the launcher always reads. */
#include <config.h>

#include "cli/node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fd.h"
#include "cli/bind.h"
#include "cli/cli.h"
#include "cli/environment.h"
#include "cli/frames.h"
#include "cli/job_secret.h"
#include "cli/spawn.h"

enum { READ_BYTES = 1 << 16, MOST_LAST_READS = 17 }; /* more than a pipe holds */

typedef struct member {
  int rank;
  pid_t pid; /* 0: not running */
  int fds[CLI_STREAMS]; /* -1: closed */
} member;

typedef struct node {
  member *members;
  int count;
  cli_queue in;
  cli_job_secret secret;
  sigset_t mask; /* with which the processes start */
  bool is_over;  /* the launcher is gone, or has said that nothing more will come */
} node;

/* The strings of a CLI_FRAME_START, taken apart. */
typedef struct start {
  cli_environment env;
  char **command;
  size_t words;
  const char *directory;
  cpu_set_t cpus;
  bool is_bound;
} start;

static void send_frame(node *n, cli_frame_kind kind, int rank, const void *data, size_t size)
{
  cli_queue out = {0};
  weft_status *st = cli_queue_add_frame(&out, kind, rank, data, size);

  if (st || !weft_fd_write_all(STDOUT_FILENO, out.data + out.begin, cli_queue_size(&out))) n->is_over = true;
  weft_status_free(st);
  cli_queue_free(&out);
}

static void send_end(node *n, int rank, int wait_status)
{
  char text[16];

  send_frame(n, CLI_FRAME_ENDED, rank, text, (size_t)snprintf(text, sizeof text, "%d", wait_status));
}

/* ---- start ---- */

static weft_status *bind_as(const char *text, start *s)
{
  char word[16];
  int index, count, sharers;
  cli_bind how;

  if (sscanf(text, "%15s %d %d", word, &index, &count) != 3 || index < 0 || index >= count)
    return WEFT_ERR(INVALID_ARGUMENT, "--bind-to: \"%s\"", text);
  WEFT_TRY(cli_bind_parse(word, &how));
  s->is_bound = how != CLI_BIND_NONE;
  sharers = count;
  if (s->is_bound) WEFT_TRY(cli_bind_here(how, index, count, &s->cpus, &sharers));
  return cli_environment_set(&s->env, CLI_SHARERS "=%d", sharers);
}

static weft_status *take_string(const char *text, start *s)
{
  switch (text[0]) {
  case CLI_START_DIRECTORY: s->directory = text + 1; return NULL;
  case CLI_START_VARIABLE: return cli_environment_put(&s->env, strdup(text + 1));
  case CLI_START_BIND: return bind_as(text + 1, s);
  case CLI_START_ARGUMENT: s->command[s->words++] = (char *)(uintptr_t)(text + 1); return NULL;
  default: return WEFT_ERR(INVALID_ARGUMENT, "the launcher sent a string of an unknown kind: \"%.40s\"", text);
  }
}

/* `s` borrows from the frame. */
static weft_status *take_apart(const node *n, const cli_frame *frame, start *s)
{
  size_t strings = 0;

  if (frame->size == 0 || frame->data[frame->size - 1] != '\0')
    return WEFT_ERR(INVALID_ARGUMENT, "the launcher sent a command without its final NUL");
  for (size_t i = 0; i < frame->size; i++) strings += frame->data[i] == '\0';
  s->command = calloc(strings + 1, sizeof *s->command);
  WEFT_TRY_ALLOC(s->command);
  WEFT_TRY(cli_environment_inherit(&s->env));
  for (size_t at = 0; at < frame->size; at += strlen(frame->data + at) + 1) WEFT_TRY(take_string(frame->data + at, s));
  if (s->words == 0) return WEFT_ERR(INVALID_ARGUMENT, "the launcher sent no command");
  return n->secret.file ? cli_environment_set(&s->env, "WEFT_COORD_SECRET_FILE=%s", n->secret.file) : NULL;
}

static weft_status *find_member(node *n, int rank, member **out)
{
  for (int i = 0; i < n->count; i++)
    if (n->members[i].rank == rank) {
      *out = &n->members[i];
      return NULL;
    }
  WEFT_TRY_ALLOC(WEFT_RESIZE(n->members, (size_t)n->count + 1));
  *out = &n->members[n->count++];
  **out = (member){.rank = rank, .fds = {-1, -1}};
  return NULL;
}

static weft_status *spawn(node *n, const start *s, int rank)
{
  cli_spawn what = {.command = s->command,
                    .environment = s->env.vars,
                    .directory = s->directory,
                    .cpus = s->is_bound ? &s->cpus : NULL,
                    .mask = n->mask,
                    .in_fd = -1};
  member *m;

  WEFT_TRY(find_member(n, rank, &m));
  if (m->pid > 0) return WEFT_ERR(FAILED_PRECONDITION, "rank %d runs already", rank);
  for (int i = 0; i < CLI_STREAMS; i++)
    if (m->fds[i] >= 0) close(m->fds[i]); /* of the process that had this rank earlier */
  weft_status *st = cli_spawn_process(&what, &m->pid, m->fds);
  if (st) m->pid = 0;
  return st;
}

/* What keeps a process from being started is said where its own errors are. */
static void start_member(node *n, const cli_frame *frame)
{
  start s = {0};
  weft_status *st = take_apart(n, frame, &s);
  char text[600];

  if (!st) st = spawn(n, &s, frame->rank);
  free(s.command);
  cli_environment_free(&s.env);
  if (!st) return;
  int size = snprintf(text, sizeof text, "weft launch: %.500s\n", weft_status_message(st));
  weft_status_free(st);
  send_frame(n, CLI_FRAME_ERROR, frame->rank, text, (size_t)size);
  send_end(n, frame->rank, CLI_USAGE << 8);
}

/* ---- life ---- */

static void read_stream(node *n, member *m, int stream)
{
  char data[READ_BYTES];
  ssize_t size = read(m->fds[stream], data, sizeof data);

  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size > 0) return send_frame(n, stream == 0 ? CLI_FRAME_OUTPUT : CLI_FRAME_ERROR, m->rank, data, (size_t)size);
  close(m->fds[stream]);
  m->fds[stream] = -1;
}

static void reap(node *n)
{
  for (int i = 0; i < n->count; i++) {
    member *m = &n->members[i];
    int wait_status;
    if (m->pid <= 0 || waitpid(m->pid, &wait_status, WNOHANG) != m->pid) continue;
    m->pid = 0;
    /* the last output; a process that it left behind may keep the pipe open, and write to it for ever */
    for (int k = 0; k < CLI_STREAMS; k++)
      for (int r = 0; r < MOST_LAST_READS && m->fds[k] >= 0 && !n->is_over; r++) {
        struct pollfd ready = {.fd = m->fds[k], .events = POLLIN};
        if (poll(&ready, 1, 0) <= 0) break;
        read_stream(n, m, k);
      }
    send_end(n, m->rank, wait_status);
  }
}

static void signal_member(const node *n, const cli_frame *frame)
{
  char text[8] = "";
  int signal_number;

  memcpy(text, frame->data, WEFT_MIN(frame->size, sizeof text - 1));
  signal_number = (int)strtol(text, NULL, 10);
  for (int i = 0; i < n->count; i++)
    if (n->members[i].rank == frame->rank && n->members[i].pid > 0) cli_spawn_signal(n->members[i].pid, signal_number);
}

static weft_status *take_frame(node *n, const cli_frame *frame)
{
  WEFT_AUTO_STR text = NULL;

  switch (frame->kind) {
  case CLI_FRAME_SECRET:
    text = strndup(frame->data, frame->size);
    WEFT_TRY_ALLOC(text);
    cli_job_secret_remove(&n->secret);
    weft_status *st = cli_job_secret_hold(text, &n->secret);
    explicit_bzero(text, strlen(text));
    explicit_bzero((char *)(uintptr_t)frame->data, frame->size);
    return st;
  case CLI_FRAME_START: start_member(n, frame); return NULL;
  case CLI_FRAME_SIGNAL: signal_member(n, frame); return NULL;
  default: return WEFT_ERR(INVALID_ARGUMENT, "a launcher does not send frames of kind %d", (int)frame->kind);
  }
}

static weft_status *read_launcher(node *n)
{
  cli_frame frame;
  bool found = true, ended;

  WEFT_TRY(cli_queue_read(&n->in, STDIN_FILENO, &ended));
  while (found) {
    WEFT_TRY(cli_queue_next_frame(&n->in, &frame, &found));
    if (found) WEFT_TRY(take_frame(n, &frame));
  }
  n->is_over |= ended;
  return NULL;
}

static weft_status *mind(node *n, int signal_fd)
{
  WEFT_AUTO_STR memory = NULL;

  while (!n->is_over) {
    struct signalfd_siginfo info;
    WEFT_TRY_ALLOC(weft_array_resize(&memory, (size_t)n->count * CLI_STREAMS + 2, sizeof(struct pollfd)));
    struct pollfd *fds = (struct pollfd *)memory;
    fds[0] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = signal_fd, .events = POLLIN};
    int count = n->count; /* frames add members */
    /* no deadline: the end of the launcher, or of its connection, ends standard input */
    for (int i = 0; i < count * CLI_STREAMS; i++)
      fds[i + 2] = (struct pollfd){.fd = n->members[i / CLI_STREAMS].fds[i % CLI_STREAMS], .events = POLLIN};
    if (poll(fds, (nfds_t)count * CLI_STREAMS + 2, -1) < 0 && errno != EINTR) break;
    for (int i = 0; i < count * CLI_STREAMS; i++)
      if (fds[i + 2].revents) read_stream(n, &n->members[i / CLI_STREAMS], i % CLI_STREAMS);
    while (read(signal_fd, &info, sizeof info) == sizeof info)
      if (info.ssi_signo == SIGCHLD) reap(n);
      else n->is_over = true; /* this host ends, or the launcher is gone: so do the processes */
    if (fds[0].revents) WEFT_TRY(read_launcher(n));
  }
  return NULL;
}

int cli_node_main(void)
{
  static const int watched[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  static const char hello[] = CLI_NODE_HELLO "\n";
  node n = {.secret.fd = -1};
  sigset_t signals;

  sigemptyset(&signals);
  for (size_t i = 0; i < WEFT_COUNT(watched); i++) sigaddset(&signals, watched[i]);
  sigprocmask(SIG_BLOCK, &signals, NULL);
  sigemptyset(&n.mask);
  int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd < 0) return cli_report("launch", WEFT_ERR(RESOURCE_EXHAUSTED, "signalfd: %s", strerror(errno)));
  n.is_over = !weft_fd_write_all(STDOUT_FILENO, hello, sizeof hello - 1);
  weft_status *st = mind(&n, signal_fd);
  for (int i = 0; i < n.count; i++) {
    if (n.members[i].pid > 0) cli_spawn_signal(n.members[i].pid, SIGKILL);
    for (int k = 0; k < CLI_STREAMS; k++)
      if (n.members[i].fds[k] >= 0) close(n.members[i].fds[k]);
  }
  free(n.members);
  cli_queue_free(&n.in);
  cli_job_secret_remove(&n.secret);
  close(signal_fd);
  return cli_report("launch", st);
}
