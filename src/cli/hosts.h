/* cli/hosts.h -- the machines of `weft launch --hosts`, and the connection to the node (node.h) that runs on each. */
#ifndef WEFT_CLI_HOSTS_H
#define WEFT_CLI_HOSTS_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/frames.h"
#include "cli/spawn.h"

enum { CLI_HOST_POLLS = 3 }; /* descriptors of a host that are polled */

typedef struct cli_host {
  char *name;
  int slots;        /* processes that it takes */
  int first, count; /* its ranks */
  pid_t pid;        /* of the ssh process; 0: not connected */
  int to_fd;        /* a socket, ssh's standard input; -1: closed */
  int out_fds[CLI_STREAMS]; /* the node's messages; error messages of ssh and of the node; -1: closed */
  bool is_ready;    /* the node has sent its first line */
  cli_queue to, from, errors;
  int64_t kill_at_ns; /* when ssh is killed: unless the node is there by then, or as its output has ended; 0: never */
} cli_host;

typedef struct cli_hosts {
  cli_host *list;
  int count, slots;
  const char *ssh; /* the words of the ssh command before the host's name */
  sigset_t mask;   /* the signal mask with which ssh starts */
  char *secret;    /* of the job; NULL: none. From malloc, freed with the hosts */
} cli_hosts;

/* Messages from a host. */
typedef struct cli_host_sink {
  void *context;
  void (*output)(void *context, int rank, int stream, const char *data, size_t size);
  void (*ended)(void *context, int rank, int wait_status);
  void (*said)(void *context, const cli_host *host, const char *line); /* an error message of ssh or of the node */
} cli_host_sink;

/* Reads "a,b:4": each host with the number of its processes, 1 where there is none. A host may be named again. Errors:
 * INVALID_ARGUMENT. */
WEFT_NODISCARD weft_status *cli_hosts_parse(const char *text, cli_hosts *out);
/* Shares out `count` ranks, host by host. Errors: INVALID_ARGUMENT if the hosts take fewer. */
WEFT_NODISCARD weft_status *cli_hosts_assign(cli_hosts *hosts, int count);
/* True if the host is this machine by name, where no ssh is needed. */
bool cli_host_is_here(const cli_host *host);
/* The host of a rank. */
cli_host *cli_hosts_find(const cli_hosts *hosts, int rank);

/* Queues a frame for the host; connects first if there is no connection. Errors: RESOURCE_EXHAUSTED, and those of
 * cli_queue_add_frame. */
WEFT_NODISCARD weft_status *cli_host_send(const cli_hosts *hosts, cli_host *host, cli_frame_kind kind, int rank,
                                          const void *data, size_t size);

/* Fills in what to poll for; closed descriptors are -1. */
void cli_host_poll(const cli_host *host, struct pollfd fds[CLI_HOST_POLLS]);
/* Writes and reads what can be written and read without waiting. */
void cli_host_move(cli_host *host, const struct pollfd fds[CLI_HOST_POLLS], const cli_host_sink *sink);
/* Checks whether ssh has ended. If it has, reports the messages that were not read yet, closes the connection and
 * returns true: processes that have not ended by then are lost. */
bool cli_host_reap(cli_host *host, const cli_host_sink *sink, int *out_wait_status);

/* Ends all connections, which ends what still runs on the hosts, and waits for ssh, at most five seconds. */
void cli_hosts_free(cli_hosts *hosts);

#endif
