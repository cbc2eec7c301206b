/* base/inet.h -- network addresses, of both families in one form, and TCP connections. */
#ifndef WEFT_BASE_INET_H
#define WEFT_BASE_INET_H

#include <netinet/in.h>
#include <sys/socket.h>

/* The address in `name` as an IPv6 address: an IPv4 address becomes the mapped one, ::ffff:a.b.c.d.  For another
 * family: ::. */
struct in6_addr weft_inet_address(const struct sockaddr_storage *name);

/* How soon a TCP connection ends whose peer's host does not answer any more. */
typedef struct weft_tcp_watch {
  int idle_s, interval_s, count; /* after idle_s of silence: `count` probes, one every interval_s */
  int unacked_ms;                /* how long sent bytes may stay without an acknowledgement */
} weft_tcp_watch;
/* Sets the watch on the socket `fd`, and TCP_NODELAY, so that small messages are sent at once. An option that the
 * system lacks is not set. */
void weft_tcp_tune(int fd, const weft_tcp_watch *watch);

#endif
