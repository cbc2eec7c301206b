/* coord/conn.h -- a socket under an HTTP/2 connection, with TLS or without; driven by a loop.
 * Loop thread only. */
#ifndef WEFT_COORD_CONN_H
#define WEFT_COORD_CONN_H

#include <openssl/ssl.h>

#include "base/status.h"
#include "coord/loop.h"
#include "coord/wire/h2.h"

typedef struct coord_conn {
  coord_io io;
  coord_loop *loop;
  coord_h2 *h2;   /* owned; NULL: made by `make_h2` after the TLS handshake */
  SSL *ssl;       /* owned; NULL: cleartext */
  bool connecting, handshaking, wants_write;
  bool is_served; /* a service's: nothing is read while the peer does not read, so that replies do not pile up */
  bool is_paused; /* nothing is read at present, because the peer does not read */
  bool is_dirty;  /* it is in the list of connections that may have something to write */
  struct coord_conn *next_dirty;
  struct coord_conns *group;
  uint8_t *unsent; /* what the socket did not take; NULL: nothing */
  size_t unsent_size, unsent_offset;
  /* The connection is over. Called once, from the loop or from coord_conns_flush; the callee calls coord_conn_fini. */
  void (*closed)(struct coord_conn *conn, const char *why);
  /* Of a service with TLS: makes `h2` after the handshake, so a client that does not complete it takes no memory for
   * HTTP/2. */
  weft_status *(*make_h2)(struct coord_conn *conn, coord_h2 **out);
} coord_conn;

/* Connections that are flushed together, once in a turn of the loop. */
typedef struct coord_conns {
  coord_conn *dirty;
} coord_conns;

/* Takes over fd, ssl and h2, even if it fails. `connecting`: connect(2) is in progress. */
WEFT_NODISCARD weft_status *coord_conn_init(coord_conn *conn, coord_conns *group, coord_loop *loop, int fd, SSL *ssl,
                                            coord_h2 *h2, bool connecting,
                                            void (*closed)(coord_conn *conn, const char *why));

/* Closes everything. Calls that are still open end as coord_h2_close says. Does not call `closed`. */
void coord_conn_fini(coord_conn *conn, const char *why);

/* Something was queued on conn->h2: the connection is written at the end of this turn. */
void coord_conn_touch(coord_conn *conn);

/* Writes what all touched connections have queued. */
void coord_conns_flush(coord_conns *group);

bool coord_conn_is_idle(const coord_conn *conn); /* nothing is waiting to be written */

/* Sockets.  "host:port" or "[v6]:port"; getaddrinfo may block. */
WEFT_NODISCARD weft_status *coord_listen(const char *address, int *out_fd, char **out_bound);
WEFT_NODISCARD weft_status *coord_dial(const char *address, int *out_fd); /* connect(2) has begun */
void coord_socket_tune(int fd);                                           /* no delay; dead peers are noticed */

/* TLS contexts; *out is NULL if cert and ca are both "". */
WEFT_NODISCARD weft_status *coord_tls_new(bool is_server, const char *cert_file, const char *key_file,
                                          const char *ca_file, SSL_CTX **out);
WEFT_NODISCARD weft_status *coord_tls_session(SSL_CTX *tls, bool is_server, int fd, const char *host, SSL **out);

#endif
