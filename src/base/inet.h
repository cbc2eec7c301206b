/* base/inet.h -- network addresses, of both families in one form. */
#ifndef WEFT_BASE_INET_H
#define WEFT_BASE_INET_H

#include <netinet/in.h>
#include <sys/socket.h>

/* The host's address as one of IPv6: an IPv4 address as the mapped one, ::ffff:a.b.c.d.  Of another family: ::. */
struct in6_addr weft_inet_address(const struct sockaddr_storage *name);

#endif
