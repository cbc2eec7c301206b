/* coord/server.c -- the service on the network: one thread, one loop, any number of connections.
 *
 *   socket -> conn -> h2 -> request -> [secret, decode] -> coord_service -> answer -> [encode] -> h2 -> conn -> socket */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/rand.h>
#include <utlist.h>
#include <weft/coord.h>

#include "base/log.h"
#include "base/thread.h"
#include "coord/conn.h"
#include "coord/service.h"
#include "coord/wire/codec.h"
#include "coord/wire/wire_status.h"

#define ADMIN_STATUS_PATH "/weft.coord.Admin/Status"

enum {
  CONTROL_MESSAGE_BYTES = 4 << 20, /* limit for all but InsertKeyValue */
  MESSAGE_SLACK_BYTES = 1024,      /* an InsertKeyValue around its key and value */
  ARENA_KEEP_BYTES = 1 << 20,
  SILENT_CONNECTION_S = 20,        /* a connection that does not begin to speak HTTP/2 is closed */
  STOP_GRACE_S = 2,                /* for the last answers to be written */
};

typedef struct server_conn {
  coord_conn conn;
  weft_coord_service *server;
  struct server_conn *prev, *next;
  int64_t opened_ns;
  bool has_spoken;
} server_conn;

typedef struct server_call {
  coord_call core;
  coord_h2_call *h2;
  coord_dialect dialect;
} server_call;

struct weft_coord_service {
  weft_coord_service_options options;
  char *bound, *secret;
  SSL_CTX *tls;
  coord_budget budget;
  coord_h2_limits h2_limits;
  coord_loop *loop;
  coord_io listener;
  int64_t accept_again_ns; /* out of descriptors: when to try again; 0: accepting */
  coord_service *core;
  coord_conns conns;
  server_conn *first_conn;
  int64_t conn_count;
  int64_t next_sweep_ns;
  weft_arena arena; /* of one turn */
  /* The last reply that many callers share, as bytes. */
  uint64_t share;
  coord_dialect share_dialect;
  coord_blob *shared;
  pthread_t thread;
  coord_job stop_job;
  int64_t stop_deadline_ns; /* 0: running */
};

/* ---- requests ---- */

static size_t message_limit(void *ctx, const char *path)
{
  const server_conn *conn = ctx;
  const weft_coord_service_options *options = &conn->server->options;
  const char *method = strrchr(path, '/');

  if (!method || strcmp(method, "/InsertKeyValue") != 0) return CONTROL_MESSAGE_BYTES;
  return (size_t)options->max_key_bytes + (size_t)options->max_value_bytes + MESSAGE_SLACK_BYTES;
}

/* What decoding may take: every byte of a message blows up to less than this many. */
static size_t arena_limit(size_t message_bytes) { return 32 * WEFT_MIN(message_bytes, (size_t)CONTROL_MESSAGE_BYTES) + 2 * message_bytes + (16 << 20); }

static void reply_status(weft_coord_service *server, coord_h2_call *call)
{
  const uint8_t *data;
  size_t size;
  weft_status *st = coord_service_status(server->core, weft_now_ns(), server->conn_count, &server->arena, &data, &size);

  if (st)
    coord_h2_fail(call, st);
  else
    coord_h2_reply(call, data, size, NULL);
  weft_status_free(st);
}

static weft_status *handle(weft_coord_service *server, coord_h2_call *call, const coord_h2_request *request)
{
  server_call *mine = coord_h2_call_user(call);
  coord_request decoded;
  coord_method method;
  weft_status *st;

  if (server->secret && !coord_secret_equal(server->secret, request->secret))
    return COORD_ERR(UNAUTHENTICATED, "this service wants a secret (WEFT_COORD_SECRET_FILE), and the call %s",
                     *request->secret ? "has another" : "has none");
  if (strcmp(request->path, ADMIN_STATUS_PATH) == 0) {
    reply_status(server, call);
    return NULL;
  }
  if (!coord_path_parse(request->path, &mine->dialect, &method))
    return COORD_ERR(UNIMPLEMENTED, "no method %s: this service speaks the XLA coordination protocol", request->path);
  server->arena.limit_bytes = server->arena.total_bytes + arena_limit(request->size);
  st = coord_request_decode(mine->dialect, method, request->message, request->size, &server->arena, &decoded);
  server->arena.limit_bytes = 0;
  WEFT_TRY(st);
  WEFT_LOG("coord", DEBUG, "%s from task %d", coord_method_name(method), (int)decoded.task);
  mine->h2 = call;
  coord_service_handle(server->core, weft_now_ns(), &decoded, &mine->core);
  return NULL;
}

static void on_request(void *ctx, coord_h2_call *call, const coord_h2_request *request)
{
  server_conn *conn = ctx;
  weft_status *st = handle(conn->server, call, request);

  if (st) coord_h2_fail(call, st);
  weft_status_free(st);
}

static void on_gone(void *ctx, coord_h2_call *call)
{
  server_conn *conn = ctx;
  server_call *mine = coord_h2_call_user(call);

  coord_service_drop(conn->server->core, &mine->core);
}

static const coord_h2_handler handler = {
  .call_bytes = sizeof(server_call), .message_limit = message_limit, .request = on_request, .gone = on_gone,
};

/* ---- answers ---- */

/* The reply as bytes that all who get it share; NULL without memory. */
static coord_blob *shared_reply(weft_coord_service *server, const server_call *call, const coord_reply *reply)
{
  const uint8_t *data;
  coord_blob *tail;
  size_t size;
  weft_status *st;

  if (server->shared && server->share == reply->share && server->share_dialect == call->dialect) return server->shared;
  st = coord_reply_encode(call->dialect, call->core.method, reply, &server->arena, &data, &size, &tail);
  weft_status_free(st);
  if (st) return NULL;
  coord_blob_release(server->shared);
  server->share = reply->share;
  server->share_dialect = call->dialect;
  return server->shared = coord_blob_new(&server->budget, data, size);
}

static void answer(void *ctx, coord_call *core, const coord_reply *reply, const weft_status *error)
{
  weft_coord_service *server = ctx;
  server_call *call = WEFT_CONTAINER_OF(core, server_call, core);
  server_conn *conn = coord_h2_context(call->h2);
  const uint8_t *data = NULL;
  size_t size = 0;
  coord_blob *tail = NULL;
  weft_status *st = NULL;

  if (error)
    st = call->dialect == COORD_DIALECT_X ? NULL : coord_status_for_dialect(weft_status_dup(error), call->dialect);
  else if (reply->share == 0)
    st = coord_reply_encode(call->dialect, core->method, reply, &server->arena, &data, &size, &tail);
  else if (!(tail = shared_reply(server, call, reply)))
    st = COORD_ERR(RESOURCE_EXHAUSTED, "no memory for the reply");
  WEFT_LOG("coord", DEBUG, "%s of task %d: %s %s", coord_method_name(core->method), (int)core->task,
           weft_code_name(weft_status_code(st ? st : error)), weft_status_message(st ? st : error));
  if (st || error)
    coord_h2_fail(call->h2, st ? st : error);
  else
    coord_h2_reply(call->h2, data, size, tail);
  weft_status_free(st);
  coord_conn_touch(&conn->conn);
}

/* ---- connections ---- */

static void drop_conn(server_conn *conn, const char *why)
{
  weft_coord_service *server = conn->server;

  DL_DELETE(server->first_conn, conn);
  server->conn_count--;
  coord_conn_fini(&conn->conn, why);
  free(conn);
}

static void on_closed(coord_conn *conn, const char *why) { drop_conn(WEFT_CONTAINER_OF(conn, server_conn, conn), why); }

static weft_status *add_conn(weft_coord_service *server, int fd)
{
  server_conn *conn = calloc(1, sizeof *conn);
  coord_h2 *h2 = NULL;
  SSL *ssl = NULL;
  weft_status *st = conn ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");

  if (!st) st = coord_h2_server_new(&handler, conn, &server->h2_limits, &h2);
  if (!st) st = coord_tls_session(server->tls, true, fd, NULL, &ssl);
  if (st) {
    coord_h2_close(h2, "");
    close(fd);
    free(conn);
    return st;
  }
  conn->server = server;
  conn->opened_ns = weft_now_ns();
  st = coord_conn_init(&conn->conn, &server->conns, server->loop, fd, ssl, h2, false, on_closed);
  if (st) {
    free(conn);
    return st;
  }
  DL_APPEND(server->first_conn, conn);
  server->conn_count++;
  return NULL;
}

static void on_accept(coord_io *io, uint32_t events)
{
  weft_coord_service *server = WEFT_CONTAINER_OF(io, weft_coord_service, listener);

  (void)events;
  for (int i = 0; i < 64; i++) {
    int fd = accept4(io->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    weft_status *st;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      WEFT_LOG("coord", WARN, "cannot accept a connection: %s", strerror(errno));
      coord_loop_change(server->loop, io, 0); /* level-triggered: it would spin */
      server->accept_again_ns = weft_now_ns() + WEFT_NS_PER_S / 4;
    }
    if (fd < 0) return;
    if (server->conn_count >= server->options.max_connections) {
      WEFT_LOG("coord", WARN, "more than %lld connections: one refused", (long long)server->options.max_connections);
      close(fd);
      continue;
    }
    coord_socket_tune(fd);
    st = add_conn(server, fd);
    if (st) WEFT_LOG("coord", WARN, "connection refused: %s", weft_status_message(st));
    weft_status_free(st);
  }
}

/* Whoever connects and says nothing holds a descriptor: not for ever. */
static void sweep(weft_coord_service *server, int64_t now_ns)
{
  server_conn *conn, *next;

  server->next_sweep_ns = now_ns + WEFT_NS_PER_S;
  DL_FOREACH_SAFE(server->first_conn, conn, next) {
    if (conn->has_spoken) continue;
    conn->has_spoken = coord_h2_has_spoken(conn->conn.h2);
    if (!conn->has_spoken && now_ns - conn->opened_ns > SILENT_CONNECTION_S * WEFT_NS_PER_S) drop_conn(conn, "silent");
  }
}

/* ---- the thread ---- */

static bool everything_is_written(const weft_coord_service *server)
{
  const server_conn *conn;

  DL_FOREACH(server->first_conn, conn) if (!coord_conn_is_idle(&conn->conn)) return false;
  return true;
}

static int64_t after_events(void *ctx, int64_t now_ns)
{
  weft_coord_service *server = ctx;
  int64_t next_ns = coord_service_tick(server->core, now_ns);

  if (server->accept_again_ns && now_ns >= server->accept_again_ns) {
    server->accept_again_ns = 0;
    coord_loop_change(server->loop, &server->listener, EPOLLIN);
  }
  if (now_ns >= server->next_sweep_ns) sweep(server, now_ns);
  coord_conns_flush(&server->conns);
  if (server->arena.total_bytes > ARENA_KEEP_BYTES)
    weft_arena_fini(&server->arena);
  else
    weft_arena_reset(&server->arena);
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
  coord_service_stop(server->core);
  server->stop_deadline_ns = weft_now_ns() + STOP_GRACE_S * WEFT_NS_PER_S;
}

/* ---- life ---- */

static void server_free(weft_coord_service *server)
{
  coord_service_free(server->core);
  coord_blob_release(server->shared);
  if (server->listener.fd >= 0) close(server->listener.fd);
  coord_loop_free(server->loop);
  weft_arena_fini(&server->arena);
  SSL_CTX_free(server->tls);
  if (server->secret) OPENSSL_cleanse(server->secret, strlen(server->secret));
  free(server->secret);
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

static weft_status *check_options(const weft_coord_service_options *options)
{
  if (options->task_count < 1 || options->task_count > 1 << 24)
    return WEFT_ERR(INVALID_ARGUMENT, "a service for %lld tasks", (long long)options->task_count);
  if (options->max_key_bytes < 1 || options->max_value_bytes < 1 || options->max_value_bytes > INT32_MAX ||
      options->max_streams < 2 || options->max_streams > INT32_MAX || options->max_connections < 1 ||
      options->max_total_bytes < 1 << 20)
    return WEFT_ERR(INVALID_ARGUMENT, "a limit (WEFT_COORD_MAX_*) is out of range: values may have up to 2 GiB, streams 2 "
                    "or more, the total at least 1 MiB");
  return NULL;
}

static weft_status *start(weft_coord_service *server, const weft_coord_service_options *options)
{
  coord_service_config config = {
    .task_count = (int32_t)options->task_count,
    .heartbeat_timeout_ns = options->heartbeat_timeout_ns, .register_timeout_ns = options->register_timeout_ns,
    .shutdown_timeout_ns = options->shutdown_timeout_ns, .recoverable = options->recoverable,
    .max_key_bytes = (size_t)options->max_key_bytes, .max_value_bytes = (size_t)options->max_value_bytes,
    .budget = &server->budget, .answer = answer, .answer_ctx = server,
  };

  server->options = *options;
  server->budget.limit_bytes = (size_t)options->max_total_bytes;
  server->h2_limits = (coord_h2_limits){.max_streams = (uint32_t)options->max_streams, .budget = &server->budget};
  if (RAND_bytes((unsigned char *)&config.incarnation, sizeof config.incarnation) != 1 || config.incarnation == 0)
    return WEFT_ERR(INTERNAL, "no random numbers for an incarnation");
  WEFT_TRY(check_options(options));
  WEFT_TRY(coord_secret_read(options->secret_file, &server->secret));
  WEFT_TRY(coord_tls_new(true, options->tls_cert_file, options->tls_key_file, options->tls_ca_file, &server->tls));
  WEFT_TRY(coord_service_new(&config, weft_now_ns(), &server->core));
  raise_descriptor_limit(2 * options->task_count + 64);
  WEFT_TRY(coord_loop_new(&server->loop));
  WEFT_TRY(coord_listen(options->address, &server->listener.fd, &server->bound));
  WEFT_TRY(coord_loop_add(server->loop, &server->listener, EPOLLIN));
  return weft_thread_start(&server->thread, "weft-coord", serve, server);
}

weft_status *weft_coord_service_start(const weft_coord_service_options *options, weft_coord_service **out_service)
{
  weft_coord_service *server = calloc(1, sizeof *server);
  weft_status *st;

  *out_service = NULL;
  WEFT_TRY_ALLOC(server);
  weft_arena_init(&server->arena);
  server->listener = (coord_io){.fd = -1, .ready = on_accept};
  server->stop_job.run = stop_serving;
  st = start(server, options);
  if (st)
    server_free(server);
  else
    *out_service = server;
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
