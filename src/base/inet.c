/* base/inet.c -- addresses of two families as one. */
#include <config.h>

#include "base/inet.h"

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
