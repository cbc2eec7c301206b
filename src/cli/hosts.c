/* cli/hosts.c -- the machines of `weft launch --hosts` (hosts.h). Each gets one ssh process, which runs the node. The
 * environment and the secret of the job go through its standard input: command lines are seen by every user of a
 * machine. */
#include <config.h>

#include "cli/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/options.h"
#include "cli/environment.h"
#include "cli/node.h"

enum { MOST_SLOTS = 4096, MOST_HOSTS = 4096, END_S = 5, MOST_LINE_BYTES = 4096, MOST_READS = 4, HELLO_S = 120 };

/* ---- the list ---- */

/* Letters, digits and ._- with an optional user and a bracketed IPv6 address: nothing that ssh takes for an option. */
static bool is_host_name(const char *name)
{
  return *name && *name != '-' &&
         name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@:%")] == '\0';
}

static weft_status *parse_host(char *text, cli_host *out)
{
  char *colon = strrchr(text, ':'), *name = text;
  int64_t slots = 1;

  *out = (cli_host){.to_fd = -1, .out_fds = {-1, -1}};
  if (*text == '[') { /* an IPv6 address: "[fe80::1]:4" */
    char *end = strchr(text, ']');
    if (end && colon < end) colon = NULL;
    if (end && (colon ? colon == end + 1 : !end[1])) { /* else the bracket stays, which no name has */
      name = text + 1;
      *end = '\0';
    }
  }
  if (colon) {
    *colon = '\0';
    WEFT_TRY(weft_option_parse(WEFT_OPT_INT, "--hosts", colon + 1, &slots));
  }
  if (!is_host_name(name) || (*text != '[' && strchr(name, ':')) || slots < 1 || slots > MOST_SLOTS)
    return WEFT_ERR(INVALID_ARGUMENT, "--hosts: expected HOST or HOST:N with N from 1 to %d, got \"%s\"", MOST_SLOTS,
                    name);
  WEFT_TRY_ALLOC(out->name = strdup(name));
  out->slots = (int)slots;
  return NULL;
}

/* A host that is named again takes the processes of both. */
static void put_host(cli_hosts *out, cli_host *host)
{
  out->slots += host->slots;
  for (int i = 0; i < out->count; i++)
    if (strcmp(out->list[i].name, host->name) == 0) {
      out->list[i].slots += host->slots;
      free(host->name);
      return;
    }
  out->list[out->count++] = *host;
}

weft_status *cli_hosts_parse(const char *text, cli_hosts *out)
{
  WEFT_AUTO_STR copy = strdup(text);
  char *rest = copy;
  int words = 1;

  WEFT_TRY_ALLOC(copy);
  for (const char *c = text; *c; c++) words += *c == ',';
  if (words > MOST_HOSTS) return WEFT_ERR(INVALID_ARGUMENT, "--hosts: more than %d hosts", MOST_HOSTS);
  WEFT_TRY_ALLOC(out->list = calloc((size_t)words, sizeof *out->list));
  for (char *word; (word = strsep(&rest, ","));) {
    cli_host host;
    WEFT_TRY(parse_host(word, &host));
    put_host(out, &host);
  }
  return NULL;
}

weft_status *cli_hosts_assign(cli_hosts *hosts, int count)
{
  int rank = 0;

  if (count > hosts->slots)
    return WEFT_ERR(INVALID_ARGUMENT, "-n %d: --hosts has room for %d processes; HOST:N gives a host room for N", count,
                    hosts->slots);
  for (int i = 0; i < hosts->count; i++) {
    cli_host *host = &hosts->list[i];
    host->first = rank;
    host->count = WEFT_MIN(host->slots, count - rank);
    rank += host->count;
  }
  return NULL;
}

bool cli_host_is_here(const cli_host *host)
{
  char here[HOST_NAME_MAX + 1] = "";

  return strcmp(host->name, "localhost") == 0 ||
         (gethostname(here, sizeof here - 1) == 0 && strcmp(host->name, here) == 0);
}

cli_host *cli_hosts_find(const cli_hosts *hosts, int rank)
{
  for (int i = 0; i < hosts->count; i++)
    if (rank >= hosts->list[i].first && rank < hosts->list[i].first + hosts->list[i].count) return &hosts->list[i];
  return NULL;
}

/* ---- the connection ---- */

static void close_fd(int *fd)
{
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static void disconnect(cli_host *host)
{
  close_fd(&host->to_fd);
  for (int i = 0; i < CLI_STREAMS; i++) close_fd(&host->out_fds[i]);
  cli_queue_free(&host->to);
  cli_queue_free(&host->from);
  cli_queue_free(&host->errors);
  host->is_ready = false;
  host->kill_at_ns = 0;
}

/* The command line. On the host, this program is looked for where it is here, then in PATH. The login shell there may
 * be any: all that is special stands between single quotes. */
static weft_status *make_command(const cli_hosts *hosts, const cli_host *host, char *words, size_t bytes, char *remote,
                                 size_t remote_bytes, char **command)
{
  static char shell[] = "sh", dash_c[] = "-c";
  static char script[] = "test -x \"$0\" && exec \"$0\" launch --node; exec weft launch --node";
  static char self[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  char *rest = words;
  size_t n = 0;

  self[WEFT_MAX(length, 0)] = '\0';
  if (strchr(self, '\'')) self[0] = '\0';
  if (cli_host_is_here(host)) {
    memcpy(command, (char *[]){shell, dash_c, script, self, NULL}, 5 * sizeof *command);
    return NULL;
  }
  if ((size_t)snprintf(words, bytes, "%s", hosts->ssh) >= bytes)
    return WEFT_ERR(INVALID_ARGUMENT, "--ssh: more than %zu bytes", bytes);
  snprintf(remote, remote_bytes, "exec sh -c '%s' '%s'", script, *self ? self : "-");
  for (char *word; (word = strsep(&rest, " \t"));)
    if (*word) command[n++] = word;
  if (n == 0) return WEFT_ERR(INVALID_ARGUMENT, "--ssh: no command");
  command[n++] = host->name;
  command[n++] = remote;
  return NULL;
}

static weft_status *connect_host(const cli_hosts *hosts, cli_host *host)
{
  char words[4096], remote[PATH_MAX + 200], *command[2048 + 8] = {NULL};
  int ends[2];
  cli_environment env = {0};

  WEFT_TRY(make_command(hosts, host, words, sizeof words, remote, sizeof remote, command));
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "socketpair: %s", strerror(errno));
  weft_status *st = cli_environment_inherit(&env);
  if (!st) {
    cli_spawn what = {.command = command, .environment = env.vars, .mask = hosts->mask, .in_fd = ends[1]};
    st = cli_spawn_process(&what, &host->pid, host->out_fds);
  }
  cli_environment_free(&env);
  close(ends[1]);
  if (st) {
    host->pid = 0;
    close(ends[0]);
    return st;
  }
  host->to_fd = ends[0];
  host->kill_at_ns = weft_now_ns() + HELLO_S * WEFT_NS_PER_S;
  return hosts->secret
           ? cli_queue_add_frame(&host->to, CLI_FRAME_SECRET, host->first, hosts->secret, strlen(hosts->secret))
           : NULL;
}

weft_status *cli_host_send(const cli_hosts *hosts, cli_host *host, cli_frame_kind kind, int rank, const void *data,
                           size_t size)
{
  if (!host->pid) {
    if (kind != CLI_FRAME_START) return NULL; /* there is nothing to signal */
    WEFT_TRY(connect_host(hosts, host));
  }
  return cli_queue_add_frame(&host->to, kind, rank, data, size);
}

void cli_host_poll(const cli_host *host, struct pollfd fds[CLI_HOST_POLLS])
{
  for (int i = 0; i < CLI_STREAMS; i++) fds[i] = (struct pollfd){.fd = host->out_fds[i], .events = POLLIN};
  fds[CLI_STREAMS] = (struct pollfd){.fd = cli_queue_size(&host->to) ? host->to_fd : -1, .events = POLLOUT};
}

static void write_queued(cli_host *host)
{
  ssize_t n = send(host->to_fd, host->to.data + host->to.begin, cli_queue_size(&host->to), MSG_NOSIGNAL | MSG_DONTWAIT);

  if (n > 0) host->to.begin += (size_t)n;
  else if (errno != EAGAIN && errno != EINTR) close_fd(&host->to_fd); /* its end is seen as the end of its output */
}

static void tell_lines(cli_host *host, cli_queue *queue, const cli_host_sink *sink, bool is_last)
{
  char *line;

  if ((is_last || cli_queue_size(queue) > MOST_LINE_BYTES) && cli_queue_size(queue) > 0)
    weft_status_ignore(cli_queue_add(queue, "\n", 1));
  while ((line = cli_queue_next_line(queue))) {
    line[strcspn(line, "\r")] = '\0';
    if (*line) sink->said(sink->context, host, line);
  }
}

/* Before a node's first line, a shell's profile may print lines of its own. */
static weft_status *look_for_hello(cli_host *host, const cli_host_sink *sink)
{
  static const char program[] = "weft launch --node ";
  char *line;

  while (!host->is_ready && (line = cli_queue_next_line(&host->from))) {
    const char *hello = strstr(line, program); /* a profile may not have ended its last line */
    host->is_ready = hello && strcmp(hello, CLI_NODE_HELLO) == 0;
    if (host->is_ready) {
      host->kill_at_ns = 0;
      break;
    }
    if (hello)
      return WEFT_ERR(FAILED_PRECONDITION, "the host has weft %s, and the launcher is weft %s",
                      hello + sizeof program - 1, PACKAGE_VERSION);
    sink->said(sink->context, host, line);
  }
  if (!host->is_ready && cli_queue_size(&host->from) > MOST_LINE_BYTES)
    return WEFT_ERR(FAILED_PRECONDITION, "the program that ssh started there is not weft");
  return NULL;
}

static weft_status *take_frames(cli_host *host, const cli_host_sink *sink)
{
  cli_frame frame;
  bool found = true;
  char text[16];

  WEFT_TRY(look_for_hello(host, sink));
  while (host->is_ready) {
    WEFT_TRY(cli_queue_next_frame(&host->from, &frame, &found));
    if (!found) return NULL;
    if (frame.rank < host->first || frame.rank >= host->first + host->count)
      return WEFT_ERR(INVALID_ARGUMENT, "the node sent a frame about rank %d, which is not on that host", frame.rank);
    switch (frame.kind) {
    case CLI_FRAME_OUTPUT: sink->output(sink->context, frame.rank, 0, frame.data, frame.size); break;
    case CLI_FRAME_ERROR: sink->output(sink->context, frame.rank, 1, frame.data, frame.size); break;
    case CLI_FRAME_ENDED:
      snprintf(text, sizeof text, "%.*s", (int)WEFT_MIN(frame.size, sizeof text - 1), frame.data);
      sink->ended(sink->context, frame.rank, atoi(text));
      break;
    default: return WEFT_ERR(INVALID_ARGUMENT, "a node does not send frames of kind %d", (int)frame.kind);
    }
  }
  return NULL;
}

/* Reads what is there, at most what a pipe holds: other hosts, signals and the host's own frames wait meanwhile. */
static void read_node(cli_host *host, const cli_host_sink *sink)
{
  bool ended = false;
  weft_status *st = NULL;

  for (int reads = 0; reads < MOST_READS && !st && !ended; reads++) {
    size_t size = cli_queue_size(&host->from);
    st = cli_queue_read(&host->from, host->out_fds[0], &ended);
    bool more = cli_queue_size(&host->from) > size;
    if (!st) st = take_frames(host, sink);
    if (!more) break;
  }
  if (st) {
    sink->said(sink->context, host, weft_status_message(st));
    weft_status_free(st);
    ended = true;
  }
  if (!ended) return;
  if (!host->is_ready) tell_lines(host, &host->from, sink, true);
  close_fd(&host->out_fds[0]);
  close_fd(&host->to_fd);
  host->kill_at_ns = weft_now_ns() + WEFT_NS_PER_S;
}

static void read_errors(cli_host *host, const cli_host_sink *sink)
{
  bool ended;

  weft_status_ignore(cli_queue_read(&host->errors, host->out_fds[1], &ended));
  tell_lines(host, &host->errors, sink, ended);
  if (ended) close_fd(&host->out_fds[1]);
}

void cli_host_move(cli_host *host, const struct pollfd fds[CLI_HOST_POLLS], const cli_host_sink *sink)
{
  if (fds[1].revents && host->out_fds[1] == fds[1].fd) read_errors(host, sink);
  if (fds[0].revents && host->out_fds[0] == fds[0].fd) read_node(host, sink);
  if (fds[2].revents && host->to_fd == fds[2].fd && cli_queue_size(&host->to) > 0) write_queued(host);
}

bool cli_host_reap(cli_host *host, const cli_host_sink *sink, int *out_wait_status)
{
  if (host->pid <= 0 || waitpid(host->pid, out_wait_status, WNOHANG) != host->pid) return false;
  host->pid = 0;
  if (host->out_fds[1] >= 0) read_errors(host, sink);
  if (host->out_fds[0] >= 0) read_node(host, sink);
  disconnect(host);
  return true;
}

void cli_hosts_free(cli_hosts *hosts)
{
  int64_t until_ns = weft_now_ns() + END_S * WEFT_NS_PER_S;

  for (int i = 0; i < hosts->count; i++) { /* a node that waits for its output to be read ends too */
    close_fd(&hosts->list[i].to_fd);
    for (int k = 0; k < CLI_STREAMS; k++) close_fd(&hosts->list[i].out_fds[k]);
  }
  for (int i = 0; i < hosts->count; i++) {
    cli_host *host = &hosts->list[i];
    while (host->pid > 0 && waitpid(host->pid, NULL, WNOHANG) == 0) {
      if (weft_now_ns() > until_ns) cli_spawn_signal(host->pid, SIGKILL);
      poll(NULL, 0, 5);
    }
    disconnect(host);
    free(host->name);
  }
  free(hosts->list);
  if (hosts->secret) explicit_bzero(hosts->secret, strlen(hosts->secret));
  free(hosts->secret);
  *hosts = (cli_hosts){0};
}
