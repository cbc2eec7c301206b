/* coord/server.c -- the service on the network: one thread, one loop, any number of connections.
 *
 *   socket -> conn -> h2 -> frontend -> service -> frontend -> h2 -> conn -> socket */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utlist.h>
#include <weft/coord.h>

#include "base/inet.h"
#include "base/log.h"
#include "base/strangers.h"
#include "base/thread.h"
#include "coord/conn.h"
#include "coord/frontend.h"

enum {
  STRANGER_S = 5, /* a connection is closed after this time if no call of it was let in */
  STOP_GRACE_S = 2,         /* for the last answers to be written */
  SPIN_US = 50,             /* several times what it costs to be woken */
};

/* Limits on connections of which no call has been let in yet (base/strangers.h). A member is among them only until
 * its first bytes have come, so it has left before its turn to be closed comes. */
enum {
  MOST_STRANGERS = 320,     /* of STRANGER_MEMORY (wire/h2.c) at most: 14 MiB */
  MOST_STRANGERS_TLS = 160, /* of 84 KiB at most, in the handshake and after it: 13 MiB */
  MOST_STRANGERS_OF_AN_ADDRESS = 192,
  MOST_STRANGERS_OF_AN_ADDRESS_TLS = 96,
};

typedef struct server_conn {
  coord_conn conn;
  coord_peer peer;
  weft_coord_service *server;
  struct server_conn *prev, *next;
  weft_stranger stranger; /* in the table until a call is let in */
} server_conn;

struct weft_coord_service {
  coord_frontend frontend;
  char *bound;
  SSL_CTX *tls;
  coord_loop *loop;
  coord_io listener;
  int64_t accept_again_ns; /* out of descriptors: when to try again; 0: accepting */
  coord_conns conns;
  server_conn *first_conn;
  weft_strangers strangers;
  coord_trust_policy policy;
  int64_t next_sweep_ns;
  pthread_t thread;
  coord_job stop_job;
  int64_t stop_deadline_ns; /* 0: running */
};

/* ---- connections ---- */

static void remove_stranger(server_conn *conn) { weft_strangers_remove(&conn->server->strangers, &conn->stranger); }

static void drop_conn(server_conn *conn, const char *why)
{
  weft_coord_service *server = conn->server;

  DL_DELETE(server->first_conn, conn);
  if (!conn->peer.trust) remove_stranger(conn);
  server->frontend.connections--;
  coord_conn_fini(&conn->conn, why);
  coord_peer_gone(&conn->peer);
  free(conn);
}

static void on_closed(coord_conn *conn, const char *why) { drop_conn(WEFT_CONTAINER_OF(conn, server_conn, conn), why); }

static void on_touched(coord_peer *peer) { coord_conn_touch(&WEFT_CONTAINER_OF(peer, server_conn, peer)->conn); }

static void on_trusted(coord_peer *peer) { remove_stranger(WEFT_CONTAINER_OF(peer, server_conn, peer)); }

static coord_trust identify(coord_peer *peer)
{
  server_conn *conn = WEFT_CONTAINER_OF(peer, server_conn, peer);

  return coord_trust_of(&conn->server->policy, conn->conn.io.fd);
}

static void drop_stranger(weft_stranger *stranger, const char *why)
{
  drop_conn(WEFT_CONTAINER_OF(stranger, server_conn, stranger), why);
}

static weft_status *make_h2(coord_conn *conn, coord_h2 **out)
{
  server_conn *self = WEFT_CONTAINER_OF(conn, server_conn, conn);

  return coord_h2_server_new(&coord_frontend_handler, &self->peer, &self->server->frontend.h2_limits, out);
}

static weft_status *add_conn(weft_coord_service *server, int fd, const struct in6_addr *address)
{
  server_conn *conn = calloc(1, sizeof *conn);
  coord_h2 *h2 = NULL;
  SSL *ssl = NULL;
  weft_status *st = conn ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");

  if (conn) conn->server = server;
  if (!st) st = coord_tls_session(server->tls, true, fd, NULL, &ssl);
  if (!st && !ssl) st = make_h2(&conn->conn, &h2);
  if (st) {
    close(fd);
    free(conn);
    return st;
  }
  conn->peer =
    (coord_peer){.frontend = &server->frontend, .touched = on_touched, .identify = identify, .trusted = on_trusted};
  st = coord_conn_init(&conn->conn, &server->conns, server->loop, fd, ssl, h2, false, on_closed);
  if (st) {
    free(conn);
    return st;
  }
  conn->conn.is_served = true;
  conn->conn.make_h2 = make_h2;
  DL_APPEND(server->first_conn, conn);
  weft_strangers_add(&server->strangers, &conn->stranger, address, weft_now_ns());
  server->frontend.connections++;
  return NULL;
}

/* Out of descriptors: closes the oldest stranger to get one. False: there is no stranger, and the listener pauses
 * for a moment. */
static bool find_descriptor(weft_coord_service *server)
{
  if (server->strangers.oldest) {
    drop_stranger(server->strangers.oldest, "its descriptor is needed: it did not authenticate");
    return true;
  }
  WEFT_LOG("coord", WARN, "cannot accept a connection: %s", strerror(errno));
  coord_loop_change(server->loop, &server->listener, 0); /* level-triggered: it would spin */
  server->accept_again_ns = weft_now_ns() + WEFT_NS_PER_S / 4;
  return false;
}

static bool is_full(weft_coord_service *server)
{
  if (server->frontend.connections < server->frontend.options.max_connections) return false;
  if (server->strangers.oldest) {
    drop_stranger(server->strangers.oldest, "a newer connection takes its place: it did not authenticate");
    return false;
  }
  WEFT_LOG("coord", WARN, "more than %lld connections: one refused",
           (long long)server->frontend.options.max_connections);
  return true;
}

static void on_accept(coord_io *io, uint32_t events)
{
  weft_coord_service *server = WEFT_CONTAINER_OF(io, weft_coord_service, listener);

  (void)events;
  for (int i = 0; i < 64; i++) {
    struct sockaddr_storage name = {0};
    socklen_t size = sizeof name;
    int fd = accept4(io->fd, (struct sockaddr *)&name, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    bool is_short = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    weft_status *st;
    if (is_short && find_descriptor(server)) continue;
    if (fd < 0) return;
    if (is_full(server)) {
      close(fd);
      continue;
    }
    struct in6_addr address = weft_inet_address(&name);
    coord_socket_tune(fd);
    weft_stranger *oldest = weft_strangers_in_the_way(&server->strangers, &address);
    if (oldest) drop_stranger(oldest, "a newer connection takes its place: it did not authenticate");
    st = add_conn(server, fd, &address);
    if (st) WEFT_LOG("coord", WARN, "connection refused: %s", weft_status_message(st));
    weft_status_free(st);
  }
}

/* Closes strangers that have held a descriptor and memory for too long. */
static void sweep(weft_coord_service *server, int64_t now_ns)
{
  weft_stranger *late;

  server->next_sweep_ns = now_ns + WEFT_NS_PER_S;
  while ((late = weft_strangers_overdue(&server->strangers, now_ns))) drop_stranger(late, "it did not authenticate");
}

/* ---- the thread ---- */

static bool everything_is_written(const weft_coord_service *server)
{
  const server_conn *conn;

  DL_FOREACH(server->first_conn, conn)
    if (!coord_conn_is_idle(&conn->conn)) return false;
  return true;
}

static int64_t after_events(void *ctx, int64_t now_ns)
{
  weft_coord_service *server = ctx;
  int64_t next_ns = coord_service_tick(server->frontend.core, now_ns);

  if (server->accept_again_ns && now_ns >= server->accept_again_ns) {
    server->accept_again_ns = 0;
    coord_loop_change(server->loop, &server->listener, EPOLLIN);
  }
  if (now_ns >= server->next_sweep_ns) sweep(server, now_ns);
  coord_conns_flush(&server->conns);
  if (server->stop_deadline_ns) {
    if (now_ns >= server->stop_deadline_ns || everything_is_written(server)) coord_loop_quit(server->loop);
    return now_ns + WEFT_NS_PER_S / 100;
  }
  next_ns = WEFT_MIN(next_ns, server->next_sweep_ns);
  return server->accept_again_ns ? WEFT_MIN(next_ns, server->accept_again_ns) : next_ns;
}

static void *serve(void *arg)
{
  weft_coord_service *server = arg;

  coord_loop_run(server->loop, after_events, server);
  while (server->first_conn) drop_conn(server->first_conn, "the service has stopped");
  return NULL;
}

static void stop_serving(coord_job *job)
{
  weft_coord_service *server = WEFT_CONTAINER_OF(job, weft_coord_service, stop_job);

  coord_loop_remove(server->loop, &server->listener);
  close(server->listener.fd);
  server->listener.fd = -1;
  coord_service_stop(server->frontend.core);
  server->stop_deadline_ns = weft_now_ns() + STOP_GRACE_S * WEFT_NS_PER_S;
}

/* ---- life ---- */

static void server_free(weft_coord_service *server)
{
  coord_frontend_fini(&server->frontend);
  coord_trust_fini(&server->policy);
  if (server->listener.fd >= 0) close(server->listener.fd);
  coord_loop_free(server->loop);
  SSL_CTX_free(server->tls);
  free(server->bound);
  free(server);
}

/* A job of thousands needs a descriptor for each process; the usual soft limit is 1024. */
static void raise_descriptor_limit(int64_t wanted)
{
  struct rlimit limit;

  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= (rlim_t)wanted) return;
  limit.rlim_cur = WEFT_MIN((rlim_t)wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

static weft_status *start(weft_coord_service *server, const weft_coord_service_options *options)
{
  WEFT_TRY(coord_frontend_init(&server->frontend, options, 0));
  WEFT_TRY(coord_tls_new(true, options->tls_cert_file, options->tls_key_file, options->tls_ca_file, &server->tls));
  WEFT_TRY(coord_trust_init(&server->policy, options, server->frontend.secret));
  server->frontend.policy = &server->policy;
  server->strangers = (weft_strangers){.most = server->tls ? MOST_STRANGERS_TLS : MOST_STRANGERS,
                                       .most_of_an_address = server->tls ? MOST_STRANGERS_OF_AN_ADDRESS_TLS
                                                                         : MOST_STRANGERS_OF_AN_ADDRESS,
                                       .most_ns = STRANGER_S * WEFT_NS_PER_S};
  raise_descriptor_limit(2 * options->task_count + 64 + MOST_STRANGERS);
  WEFT_TRY(coord_loop_new(&server->loop));
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1) coord_loop_set_spin(server->loop, SPIN_US * (WEFT_NS_PER_MS / 1000));
  WEFT_TRY(coord_listen(options->address, &server->listener.fd, &server->bound));
  WEFT_TRY(coord_trust_check_listener(options, server->frontend.secret, server->listener.fd));
  WEFT_TRY(coord_loop_add(server->loop, &server->listener, EPOLLIN));
  return weft_thread_start(&server->thread, "weft-coord", serve, server);
}

weft_status *weft_coord_service_start(const weft_coord_service_options *options, weft_coord_service **out_service)
{
  weft_coord_service *server = calloc(1, sizeof *server);
  weft_status *st;

  *out_service = NULL;
  WEFT_TRY_ALLOC(server);
  server->listener = (coord_io){.fd = -1, .ready = on_accept};
  server->stop_job.run = stop_serving;
  st = start(server, options);
  if (st) server_free(server);
  else *out_service = server;
  return st;
}

const char *weft_coord_service_address(const weft_coord_service *service) { return service->bound; }

void weft_coord_service_stop(weft_coord_service *service)
{
  if (!service) return;
  coord_loop_post(service->loop, &service->stop_job);
  pthread_join(service->thread, NULL);
  server_free(service);
}
