/* collective/dial.h -- addresses of sockets, and connections to them. */
#ifndef WEFT_COLLECTIVE_DIAL_H
#define WEFT_COLLECTIVE_DIAL_H

#include <sys/socket.h>
#include <sys/un.h>

#include "collective/address.h"

/* Begins a non-blocking connection.  EINPROGRESS is no error: the socket is connected once it is writable.  After an
 * error errno says why. */
WEFT_NODISCARD weft_status *coll_dial(const coll_address *to, bool local, int *out_fd);

/* Writes the name of an abstract local socket; returns its length. */
socklen_t coll_local_name(const char *name, struct sockaddr_un *out);

/* Writes a numeric address.  False: `text` is not one. */
bool coll_inet_name(const char *text, uint16_t port, struct sockaddr_storage *out, socklen_t *out_length);

/* Sets options so that a TCP connection ends soon after the peer's host does. */
void coll_tune_connection(int fd);

#endif
