/* base/inet.h -- network addresses, of both families in one form. */
#ifndef WEFT_BASE_INET_H
#define WEFT_BASE_INET_H

#include <netinet/in.h>
#include <sys/socket.h>

/* The address in `name` as an IPv6 address: an IPv4 address becomes the mapped one, ::ffff:a.b.c.d.  For another
 * family: ::. */
struct in6_addr weft_inet_address(const struct sockaddr_storage *name);

#endif
