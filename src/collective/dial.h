/* collective/dial.h -- addresses of sockets, and connections to them. */
#ifndef WEFT_COLLECTIVE_DIAL_H
#define WEFT_COLLECTIVE_DIAL_H

#include <sys/socket.h>
#include <sys/un.h>

#include "collective/address.h"

/* A connection, non-blocking.  EINPROGRESS is no error: wait for output.  After an error errno says why. */
WEFT_NODISCARD weft_status *coll_dial(const coll_address *to, bool local, int *out_fd);

/* The abstract local socket of that name. */
socklen_t coll_local_name(const char *name, struct sockaddr_un *out);

/* A numeric address.  False: `text` is none. */
bool coll_inet_name(const char *text, uint16_t port, struct sockaddr_storage *out, socklen_t *out_length);

/* Makes a TCP connection end soon after its peer's host. */
void coll_tune_connection(int fd);

#endif
