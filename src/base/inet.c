/* base/inet.c -- network addresses, and the settings of TCP connections (inet.h). */
#include <config.h>

#include "base/inet.h"

#include <netinet/tcp.h>
#include <string.h>

struct in6_addr weft_inet_address(const struct sockaddr_storage *name)
{
  struct in6_addr address = IN6ADDR_ANY_INIT;

  if (name->ss_family == AF_INET6) return ((const struct sockaddr_in6 *)name)->sin6_addr;
  if (name->ss_family != AF_INET) return address;
  address.s6_addr[10] = address.s6_addr[11] = 0xff;
  memcpy(&address.s6_addr[12], &((const struct sockaddr_in *)name)->sin_addr, 4);
  return address;
}

void weft_tcp_tune(int fd, const weft_tcp_watch *watch)
{
  int one = 1;

  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &watch->idle_s, sizeof watch->idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &watch->interval_s, sizeof watch->interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &watch->count, sizeof watch->count);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &watch->unacked_ms, sizeof watch->unacked_ms);
}
