/* coord/agent.c -- the agent on the network: agent_core on a loop, in a thread, behind blocking functions.
 *
 *   caller's thread: agent_call on its stack -> job -> loop thread: core -> done -> event -> caller's thread */
#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/rand.h>
#include <weft/coord.h>

#include "base/event.h"
#include "base/secret.h"
#include "base/thread.h"
#include "coord/agent_internal.h"
#include "coord/wire/codec.h"
#include "coord/wire/wire_status.h"

enum { ARENA_KEEP_BYTES = 1 << 20 };

/* ---- the core's requests on the wire ---- */

static void on_closed(coord_conn *conn, const char *why)
{
  weft_coord_agent *agent = WEFT_CONTAINER_OF(conn, weft_coord_agent, conn);

  agent->has_conn = false; /* set first: operations that end now may be sent again, on a new connection */
  coord_conn_fini(conn, why);
}

weft_status *coord_agent_dial(weft_coord_agent *agent)
{
  coord_h2 *h2 = NULL;
  SSL *ssl = NULL;
  int fd;
  weft_status *st;

  if (agent->has_conn) return NULL;
  WEFT_TRY(coord_dial(agent->address, &fd));
  st = coord_tls_session(agent->tls, false, fd, agent->address, &ssl);
  if (!st) st = coord_h2_client_new(agent->address, agent->secret, (size_t)agent->options.max_message_bytes, &h2);
  if (st) {
    SSL_free(ssl);
    close(fd);
    return st;
  }
  WEFT_TRY(coord_conn_init(&agent->conn, &agent->conns, agent->loop, fd, ssl, h2, true, on_closed));
  agent->has_conn = true;
  return NULL;
}

static void on_reply(void *ctx, weft_status *error, const uint8_t *message, size_t size)
{
  coord_op *op = ctx;
  weft_coord_agent *agent = op->carrier;
  coord_reply reply;

  op->call = NULL;
  if (!error) error = coord_reply_decode(op->request.method, message, size, &agent->arena, &reply);
  error =
    weft_status_note(error, __FILE__, __LINE__, "%s at %s", coord_method_name(op->request.method), agent->address);
  coord_agent_core_reply(agent->core, weft_now_ns(), op, error ? NULL : &reply, error);
  weft_status_free(error);
}

static weft_status *send_request(void *ctx, coord_op *op)
{
  weft_coord_agent *agent = ctx;
  const uint8_t *message;
  size_t size;
  char path[COORD_PATH_BYTES];
  coord_h2_call *call;

  op->carrier = agent;
  WEFT_TRY(coord_agent_dial(agent));
  WEFT_TRY(coord_request_encode(&op->request, &agent->arena, &message, &size));
  WEFT_TRY(coord_h2_start(agent->conn.h2, coord_path(COORD_DIALECT_X, op->request.method, path), message, size,
                          on_reply, op, &call));
  op->call = call;
  coord_conn_touch(&agent->conn);
  return NULL;
}

static void cancel_request(void *ctx, coord_op *op)
{
  weft_coord_agent *agent = ctx;
  coord_h2_call *call = WEFT_MOVE(op->call);

  if (!call) return;
  coord_h2_cancel(call);
  if (agent->has_conn) coord_conn_touch(&agent->conn);
}

static void tell_error(void *ctx, const weft_status *error)
{
  weft_coord_agent *agent = ctx;

  weft_mutex_lock(&agent->mu);
  agent->error = weft_status_dup(error);
  weft_mutex_unlock(&agent->mu);
  if (agent->options.on_error) agent->options.on_error(agent->options.on_error_ctx, error);
}

/* ---- the thread ---- */

static int64_t after_events(void *ctx, int64_t now_ns)
{
  weft_coord_agent *agent = ctx;
  int64_t next_ns = agent->core ? coord_agent_core_tick(agent->core, now_ns) : INT64_MAX;

  coord_conns_flush(&agent->conns);
  if (agent->arena.total_bytes > ARENA_KEEP_BYTES) weft_arena_fini(&agent->arena);
  else weft_arena_reset(&agent->arena);
  return next_ns;
}

static void *run(void *arg)
{
  weft_coord_agent *agent = arg;

  coord_loop_run(agent->loop, after_events, agent);
  return NULL;
}

static void quit(coord_job *job)
{
  weft_coord_agent *agent = WEFT_CONTAINER_OF(job, weft_coord_agent, quit_job);

  coord_agent_core_free(WEFT_MOVE(agent->core));
  if (agent->has_conn) {
    coord_conns_flush(&agent->conns); /* sends the last resets */
    if (agent->has_conn) coord_conn_fini(&agent->conn, "the agent is gone");
    agent->has_conn = false;
  }
  coord_loop_quit(agent->loop);
}

/* ---- life ---- */

static void agent_free(weft_coord_agent *agent) WEFT_UNSHARED
{
  coord_agent_core_free(agent->core);
  coord_loop_free(agent->loop);
  weft_arena_fini(&agent->arena);
  SSL_CTX_free(agent->tls);
  weft_secret_free(agent->secret);
  free(agent->address);
  weft_status_free(agent->error);
  weft_mutex_fini(&agent->mu);
  free(agent);
}

static weft_status *start(weft_coord_agent *agent, const weft_coord_agent_options *options)
{
  coord_agent_config config = {
    .task = (int32_t)options->task_id, .heartbeat_timeout_ns = options->heartbeat_timeout_ns,
    .init_timeout_ns = options->init_timeout_ns ? options->init_timeout_ns : 3600 * WEFT_NS_PER_S, .shutdown_timeout_ns = options->shutdown_timeout_ns,
    .poll_for_error = options->poll_for_error, .observes_at_once = options->observes_at_once, .send = send_request, .cancel = cancel_request, .on_error = tell_error,
    .ctx = agent,
  };

  agent->options = *options;
  if (!*options->address)
    return WEFT_ERR(INVALID_ARGUMENT, "no address of a coordination service (WEFT_COORD_ADDRESS)");
  if (options->task_id < 0 || options->task_id > INT32_MAX)
    return WEFT_ERR(INVALID_ARGUMENT, "task id %" PRId64, options->task_id);
  if (options->max_message_bytes < 1024) return WEFT_ERR(INVALID_ARGUMENT, "WEFT_COORD_MAX_MESSAGE under 1 KiB");
  if (RAND_bytes((unsigned char *)&agent->incarnation, sizeof agent->incarnation) != 1 || agent->incarnation == 0)
    return WEFT_ERR(INTERNAL, "no random numbers for an incarnation");
  config.incarnation = config.seed = agent->incarnation;
  agent->address = strdup(options->address);
  WEFT_TRY_ALLOC(agent->address);
  WEFT_TRY(weft_secret_read(options->secret_file, &agent->secret));
  WEFT_TRY(coord_tls_new(false, options->tls_cert_file, options->tls_key_file, options->tls_ca_file, &agent->tls));
  WEFT_TRY(coord_agent_core_new(&config, &agent->core));
  WEFT_TRY(coord_loop_new(&agent->loop));
  return weft_thread_start(&agent->thread, "weft-agent", run, agent);
}

weft_status *weft_coord_agent_new(const weft_coord_agent_options *options, weft_coord_agent **out_agent)
{
  weft_coord_agent *agent = calloc(1, sizeof *agent);
  weft_status *st;

  *out_agent = NULL;
  WEFT_TRY_ALLOC(agent);
  weft_mutex_init(&agent->mu);
  weft_arena_init(&agent->arena);
  agent->quit_job.run = quit;
  st = start(agent, options);
  if (st) agent_free(agent);
  else *out_agent = agent;
  return st;
}

void weft_coord_agent_free(weft_coord_agent *agent)
{
  if (!agent) return;
  coord_loop_post(agent->loop, &agent->quit_job);
  pthread_join(agent->thread, NULL);
  agent_free(agent);
}

uint64_t weft_coord_agent_incarnation(const weft_coord_agent *agent) { return agent->incarnation; }

weft_status *weft_coord_agent_error(weft_coord_agent *agent)
{
  weft_status *copy;

  weft_mutex_lock(&agent->mu);
  copy = weft_status_dup(agent->error);
  weft_mutex_unlock(&agent->mu);
  return copy;
}

/* ---- blocking calls ---- */

static void begin_call(coord_job *job)
{
  coord_agent_call *call = WEFT_CONTAINER_OF(job, coord_agent_call, job);

  call->begin(call->agent->core, weft_now_ns(), &call->op);
}

static void end_call(coord_op *op, const coord_reply *reply, const weft_status *error)
{
  coord_agent_call *call = WEFT_CONTAINER_OF(op, coord_agent_call, op);
  weft_status *st = weft_status_dup(error);

  if (!st && call->take) st = call->take(call, reply);
  weft_event_set(call->ended, st); /* the caller may return, and `call` be gone, from here on */
}

weft_status *coord_agent_run(weft_coord_agent *agent, coord_agent_call *call)
{
  weft_status *st;

  if (pthread_equal(pthread_self(), agent->thread))
    return WEFT_ERR(FAILED_PRECONDITION, "a blocking call from the agent's own callback");
  WEFT_TRY(weft_event_new(&call->ended));
  call->agent = agent;
  call->job.run = begin_call;
  call->op.done = end_call;
  if (!call->begin) call->begin = coord_agent_core_call;
  coord_loop_post(agent->loop, &call->job);
  st = weft_event_await(call->ended, WEFT_NO_DEADLINE); /* the core enforces op.deadline_ns */
  weft_event_release(call->ended);
  return st;
}

weft_status *weft_coord_agent_connect(weft_coord_agent *agent)
{
  coord_agent_call call = {.begin = coord_agent_core_connect};

  return coord_agent_run(agent, &call);
}

weft_status *weft_coord_agent_observe(weft_coord_agent *agent)
{
  coord_agent_call call = {.begin = coord_agent_core_observe};

  return coord_agent_run(agent, &call);
}

weft_status *weft_coord_agent_shutdown(weft_coord_agent *agent)
{
  coord_agent_call call = {.begin = coord_agent_core_shutdown};

  return coord_agent_run(agent, &call);
}
