/* coord/conn.c -- one socket, with or without TLS: bytes between it and the connection's HTTP/2. */
#include <config.h>

#include "coord/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>

enum {
  BUFFER_BYTES = 64 << 10,
  FRAME_BYTES = 17 << 10,  /* nghttp2 hands out a frame of at most 16 KiB at a time */
  READS_PER_TURN = 16,     /* then other connections get their turn */
  TURN_BYTES = 4 << 20,    /* written to one connection before others get their turn */
};

/* Bytes that were read, or frames gathered for a write; for one connection at a time. */
static _Thread_local uint8_t buffer[BUFFER_BYTES];

/* ---- bytes ---- */

typedef enum io_result { IO_OK, IO_AGAIN, IO_CLOSED, IO_FAILED } io_result;

static io_result tls_result(coord_conn *conn, int rc)
{
  switch (SSL_get_error(conn->ssl, rc)) {
  case SSL_ERROR_WANT_READ: return IO_AGAIN;
  case SSL_ERROR_WANT_WRITE: conn->wants_write = true; return IO_AGAIN;
  case SSL_ERROR_ZERO_RETURN: return IO_CLOSED;
  default: ERR_clear_error(); return IO_FAILED;
  }
}

static io_result read_some(coord_conn *conn, uint8_t *buf, size_t size, size_t *out_size)
{
  ssize_t n;

  if (conn->ssl) {
    int rc = SSL_read_ex(conn->ssl, buf, size, out_size);
    return rc == 1 ? IO_OK : tls_result(conn, rc);
  }
  n = recv(conn->io.fd, buf, size, 0);
  *out_size = n > 0 ? (size_t)n : 0;
  if (n > 0) return IO_OK;
  if (n == 0) return IO_CLOSED;
  return errno == EAGAIN || errno == EINTR ? IO_AGAIN : IO_FAILED;
}

static io_result write_some(coord_conn *conn, const uint8_t *buf, size_t size, size_t *out_size)
{
  ssize_t n;

  *out_size = 0;
  if (conn->ssl) {
    int rc = SSL_write_ex(conn->ssl, buf, size, out_size);
    return rc == 1 ? IO_OK : tls_result(conn, rc);
  }
  n = send(conn->io.fd, buf, size, MSG_NOSIGNAL);
  if (n >= 0) {
    *out_size = (size_t)n;
    return IO_OK;
  }
  if (errno != EAGAIN && errno != EINTR) return IO_FAILED;
  conn->wants_write = true;
  return IO_AGAIN;
}

/* ---- writing ---- */

/* Writes as much of `data` as the socket takes, and keeps the rest until it takes more. */
static io_result write_and_keep(coord_conn *conn, const uint8_t *data, size_t size)
{
  io_result result = IO_OK;
  size_t n;

  while (size > 0 && (result = write_some(conn, data, size, &n)) == IO_OK) {
    data += n;
    size -= n;
  }
  if (result != IO_AGAIN) return result;
  conn->unsent = malloc(size);
  if (!conn->unsent) return IO_FAILED;
  memcpy(conn->unsent, data, size);
  conn->unsent_size = size;
  conn->unsent_offset = 0;
  return IO_AGAIN;
}

/* Writes what write_and_keep has kept. */
static io_result write_unsent(coord_conn *conn)
{
  while (conn->unsent_offset < conn->unsent_size) {
    size_t n;
    io_result result =
      write_some(conn, conn->unsent + conn->unsent_offset, conn->unsent_size - conn->unsent_offset, &n);
    if (result != IO_OK) return result;
    conn->unsent_offset += n;
  }
  conn->unsent_size = conn->unsent_offset = 0;
  free(WEFT_MOVE(conn->unsent));
  return IO_OK;
}

/* Fills the buffer with frames; the size is 0 when there are none. */
static io_result gather(coord_conn *conn, size_t *out_size)
{
  const uint8_t *data;
  size_t n;

  for (*out_size = 0; *out_size + FRAME_BYTES <= sizeof buffer; *out_size += n) {
    weft_status *st = coord_h2_send(conn->h2, &data, &n);
    if (st || n > FRAME_BYTES) {
      weft_status_free(st);
      return IO_FAILED;
    }
    if (n == 0) break;
    memcpy(buffer + *out_size, data, n);
  }
  return IO_OK;
}

static void over(coord_conn *conn, const char *why) { conn->closed(conn, why); }

/* Writes what there is to write. False: the connection is over, and `conn` is gone. */
static bool flush(coord_conn *conn)
{
  size_t written = 0, n;
  io_result result;
  bool wanted = conn->wants_write, was_paused = conn->is_paused;

  if (conn->connecting || conn->handshaking) return true;
  conn->wants_write = false;
  result = write_unsent(conn);
  while (result == IO_OK && written < TURN_BYTES) {
    result = gather(conn, &n);
    if (result != IO_OK || n == 0) break;
    written += n;
    result = write_and_keep(conn, buffer, n);
  }
  if (result == IO_CLOSED || result == IO_FAILED || !coord_h2_is_alive(conn->h2)) {
    over(conn, "the connection was closed");
    return false;
  }
  if (written >= TURN_BYTES) conn->wants_write = true;
  conn->is_paused = conn->is_served && conn->unsent_size > 0;
  if (conn->wants_write != wanted || conn->is_paused != was_paused)
    coord_loop_change(conn->loop, &conn->io, (conn->is_paused ? 0u : EPOLLIN) | (conn->wants_write ? EPOLLOUT : 0u));
  return true;
}

void coord_conn_touch(coord_conn *conn)
{
  if (conn->is_dirty) return;
  conn->is_dirty = true;
  conn->next_dirty = conn->group->dirty;
  conn->group->dirty = conn;
}

void coord_conns_flush(coord_conns *group)
{
  while (group->dirty) {
    coord_conn *conn = group->dirty;
    group->dirty = conn->next_dirty;
    conn->is_dirty = false;
    if (group->dirty) { /* the next connection's memory is fetched into the caches while this connection is written */
      coord_h2_prefetch(group->dirty->h2);
      __builtin_prefetch(group->dirty->next_dirty);
    }
    flush(conn);
  }
}

bool coord_conn_is_idle(const coord_conn *conn) { return conn->unsent_size == 0 && !conn->is_dirty; }

/* ---- events ---- */

/* False: the connection is over, and `conn` is gone. */
static bool finish_connect(coord_conn *conn)
{
  int error = 0;
  socklen_t size = sizeof error;

  getsockopt(conn->io.fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error) {
    over(conn, strerror(error));
    return false;
  }
  conn->connecting = false;
  coord_loop_change(conn->loop, &conn->io, EPOLLIN);
  coord_conn_touch(conn);
  return true;
}

static bool handshake(coord_conn *conn)
{
  int rc = SSL_do_handshake(conn->ssl);
  bool wanted = conn->wants_write;

  conn->wants_write = false;
  if (rc == 1) {
    weft_status *st = conn->h2 ? NULL : conn->make_h2(conn, &conn->h2);
    if (st) {
      weft_status_free(st);
      over(conn, "no memory");
      return false;
    }
    conn->handshaking = false;
    coord_conn_touch(conn);
  } else if (tls_result(conn, rc) != IO_AGAIN) {
    over(conn, "the TLS handshake failed");
    return false;
  }
  if (conn->wants_write != wanted)
    coord_loop_change(conn->loop, &conn->io, EPOLLIN | (conn->wants_write ? EPOLLOUT : 0u));
  return !conn->handshaking;
}

static void on_ready(coord_io *io, uint32_t events)
{
  coord_conn *conn = WEFT_CONTAINER_OF(io, coord_conn, io);
  io_result result = IO_OK;
  weft_status *st = NULL;
  size_t n;

  if (conn->connecting && !finish_connect(conn)) return;
  if (conn->handshaking && !handshake(conn)) return;
  if (events & EPOLLOUT) coord_conn_touch(conn);
  if (conn->is_paused && !(events & (EPOLLERR | EPOLLHUP))) return;
  for (int i = 0; i < READS_PER_TURN && !st; i++) {
    result = read_some(conn, buffer, sizeof buffer, &n);
    if (result != IO_OK) break;
    st = coord_h2_recv(conn->h2, buffer, n);
    coord_conn_touch(conn);
    if (n < sizeof buffer && !conn->ssl) break;
  }
  if (st) {
    weft_status_free(st);
    if (flush(conn)) over(conn, "the peer broke the protocol, or sent too much"); /* after a GOAWAY that says why */
    return;
  }
  if (result == IO_CLOSED) return over(conn, "the peer closed the connection");
  if (result == IO_FAILED) return over(conn, "the connection was reset");
}

static void prefetch(const coord_io *io) { coord_h2_prefetch(WEFT_CONTAINER_OF(io, coord_conn, io)->h2); }

weft_status *coord_conn_init(coord_conn *conn, coord_conns *group, coord_loop *loop, int fd, SSL *ssl, coord_h2 *h2,
                             bool connecting, void (*closed)(coord_conn *conn, const char *why))
{
  weft_status *st;

  *conn = (coord_conn){.io = {.fd = fd, .ready = on_ready, .prefetch = prefetch},
                       .group = group,
                       .loop = loop,
                       .h2 = h2,
                       .ssl = ssl,
                       .connecting = connecting,
                       .handshaking = ssl != NULL,
                       .closed = closed};
  st = coord_loop_add(loop, &conn->io, EPOLLIN | (connecting || ssl ? EPOLLOUT : 0u));
  conn->wants_write = connecting || ssl;
  if (st) coord_conn_fini(conn, "no memory");
  else coord_conn_touch(conn);
  return st;
}

void coord_conn_fini(coord_conn *conn, const char *why)
{
  coord_h2 *h2 = WEFT_MOVE(conn->h2);

  if (conn->is_dirty)
    for (coord_conn **link = &conn->group->dirty; *link; link = &(*link)->next_dirty)
      if (*link == conn) {
        *link = conn->next_dirty;
        break;
      }
  conn->is_dirty = true; /* so that nobody puts it back while its calls end */
  if (conn->io.fd >= 0) {
    coord_loop_remove(conn->loop, &conn->io);
    if (conn->ssl && !conn->handshaking) SSL_shutdown(conn->ssl);
    SSL_free(conn->ssl);
    close(conn->io.fd);
    conn->io.fd = -1;
    conn->ssl = NULL;
  }
  free(WEFT_MOVE(conn->unsent));
  coord_h2_close(h2, why); /* last: calls that end now may open the connection again, in the same memory */
}
