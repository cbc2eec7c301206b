/* collective/dial.c -- addresses of sockets, and connections to them. */
#include <config.h>

#include "collective/dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/inet.h"

socklen_t coll_local_name(const char *name, struct sockaddr_un *out)
{
  size_t length = strnlen(name, sizeof((coll_address){0}).local_name);

  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  memcpy(out->sun_path + 1, name, length); /* a leading NUL: the abstract name space, without a file */
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

bool coll_inet_name(const char *text, uint16_t port, struct sockaddr_storage *out, socklen_t *out_length)
{
  struct sockaddr_in *v4 = (struct sockaddr_in *)out;
  struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

  *out = (struct sockaddr_storage){0};
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    *out_length = sizeof *v4;
    return true;
  }
  if (inet_pton(AF_INET6, text, &v6->sin6_addr) != 1) return false;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  *out_length = sizeof *v6;
  return true;
}

/* A control connection must not outlive its peer's host for long. */
void coll_tune_connection(int fd)
{
  weft_tcp_tune(fd, &(weft_tcp_watch){.idle_s = 5, .interval_s = 2, .count = 5, .unacked_ms = 20000});
}

weft_status *coll_dial(const coll_address *to, bool local, int *out_fd)
{
  struct sockaddr_storage name;
  socklen_t length;

  *out_fd = -1;
  errno = EADDRNOTAVAIL;
  if (local) length = coll_local_name(to->local_name, (struct sockaddr_un *)&name);
  else if (!coll_inet_name(to->inet, to->port, &name, &length))
    return WEFT_ERR(FAILED_PRECONDITION, "host %.64s published no network address", to->host);
  int fd = socket(name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return WEFT_ERR(RESOURCE_EXHAUSTED, "socket: %s", strerror(errno));
  if (!local) coll_tune_connection(fd);
  if (connect(fd, (struct sockaddr *)&name, length) != 0 && errno != EINPROGRESS) {
    int error = errno;
    weft_status *st = WEFT_ERR(UNAVAILABLE, "connecting to host %.64s, pid %d: %s", to->host, to->pid, strerror(error));
    close(fd);
    errno = error;
    return st;
  }
  *out_fd = fd;
  return NULL;
}
