/* coord/frontend.c -- admits calls, decodes requests for the service, and encodes its answers. */
#include <config.h>

#include "coord/frontend.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/rand.h>

#include "base/log.h"
#include "base/secret.h"
#include "coord/conn.h"
#include "coord/wire/codec.h"
#include "coord/wire/wire_status.h"

#define ADMIN_STATUS_PATH "/weft.coord.Admin/Status"

enum {
  CONTROL_MESSAGE_BYTES = 4 << 20, /* limit for all methods but InsertKeyValue */
  MESSAGE_SLACK_BYTES = 1024,      /* what an InsertKeyValue message holds besides key and value */
  ARENA_KEEP_BYTES = 1 << 20,
};

typedef struct server_call {
  coord_call core;
  coord_h2_call *h2;
  coord_dialect dialect;
} server_call;

/* ---- who may call ---- */

static coord_trust trust_without_secret(coord_peer *peer)
{
  if (!peer->is_identified) {
    peer->is_identified = true;
    peer->without_secret = peer->identify           ? peer->identify(peer)
                           : peer->frontend->secret ? COORD_TRUST_NONE
                                                    : COORD_TRUST_ANYONE;
  }
  return peer->without_secret;
}

static void uncount(coord_peer *peer)
{
  if (peer->trust != COORD_TRUST_NONE) peer->frontend->trusted[peer->trust]--;
}

static void set_trust(coord_peer *peer, coord_trust trust)
{
  bool is_first = peer->trust == COORD_TRUST_NONE;

  if (peer->trust == trust || peer->trust == COORD_TRUST_SECRET) return;
  uncount(peer);
  peer->trust = trust;
  peer->frontend->trusted[trust]++;
  if (is_first && peer->trusted) peer->trusted(peer);
}

void coord_peer_gone(coord_peer *peer)
{
  coord_service_caller_gone(peer->frontend->core, weft_now_ns(), &peer->caller);
  uncount(peer);
}

/* A wrong secret is refused even if something else would let the connection in: the secret belongs to another job. */
static weft_status *admit(void *ctx, const char *path, const char *secret)
{
  coord_peer *peer = ctx;
  coord_frontend *frontend = peer->frontend;
  coord_trust trust;

  (void)path;
  if (frontend->secret && *secret)
    trust = weft_secret_equal(frontend->secret, secret) ? COORD_TRUST_SECRET : COORD_TRUST_NONE;
  else /* a connection that was let in before needs to show nothing again */
    trust = peer->trust ? peer->trust : trust_without_secret(peer);
  if (trust == COORD_TRUST_NONE) {
    frontend->refused_calls++;
    return COORD_ERR(UNAUTHENTICATED, "authentication required");
  }
  set_trust(peer, trust);
  return NULL;
}

/* ---- requests ---- */

/* Empties the arena at once, not at the end of a turn of the loop: a turn takes in thousands of requests. */
static void empty(weft_arena *arena)
{
  if (arena->total_bytes > ARENA_KEEP_BYTES) weft_arena_fini(arena);
  else weft_arena_reset(arena);
}

static size_t message_limit(void *ctx, const char *path)
{
  const coord_peer *peer = ctx;
  const weft_coord_service_options *options = &peer->frontend->options;
  const char *method = strrchr(path, '/');

  if (!method || strcmp(method, "/InsertKeyValue") != 0) return CONTROL_MESSAGE_BYTES;
  return (size_t)options->max_key_bytes + (size_t)options->max_value_bytes + MESSAGE_SLACK_BYTES;
}

/* The limit of the memory that decoding a message may take; no valid message needs so much. */
static size_t arena_limit(size_t message_bytes)
{
  return 32 * WEFT_MIN(message_bytes, (size_t)CONTROL_MESSAGE_BYTES) + 2 * message_bytes + (16 << 20);
}

static weft_coord_protection protection_of(const coord_frontend *frontend)
{
  const int64_t *by = frontend->trusted;
  int64_t members = 0;

  for (int i = COORD_TRUST_NONE + 1; i < COORD_TRUST_COUNT; i++) members += by[i];
  return (weft_coord_protection){
    .has_secret = frontend->secret,
    .has_tls = frontend->has_tls,
    .asks_certificates = frontend->asks_certificates,
    .lets_anyone_in = frontend->policy ? frontend->policy->by_anyone : !frontend->secret,
    .hosts = frontend->policy ? (int64_t)frontend->policy->host_count : 0,
    .by_secret = by[COORD_TRUST_SECRET],
    .by_certificate = by[COORD_TRUST_CERTIFICATE],
    .by_uid = by[COORD_TRUST_UID],
    .by_host = by[COORD_TRUST_HOST],
    .by_anyone = by[COORD_TRUST_ANYONE],
    .strangers = frontend->connections - members,
    .refused_calls = frontend->refused_calls,
  };
}

static void reply_status(coord_frontend *frontend, coord_h2_call *call)
{
  const uint8_t *data;
  size_t size;
  weft_coord_protection protection = protection_of(frontend);
  weft_status *st = coord_service_status(frontend->core, weft_now_ns(), frontend->connections, &protection,
                                         &frontend->reply, &data, &size);

  if (st) coord_h2_fail(call, st);
  else coord_h2_reply(call, data, size, NULL);
  weft_status_free(st);
  empty(&frontend->reply);
}

static weft_status *handle(coord_frontend *frontend, coord_h2_call *call, const coord_h2_request *request)
{
  server_call *mine = coord_h2_call_user(call);
  coord_request decoded;
  coord_method method;
  weft_status *st;

  if (strcmp(request->path, ADMIN_STATUS_PATH) == 0) {
    reply_status(frontend, call);
    return NULL;
  }
  if (!coord_path_parse(request->path, &mine->dialect, &method))
    return COORD_ERR(UNIMPLEMENTED, "no method %s: this service speaks the XLA coordination protocol", request->path);
  frontend->request.limit_bytes = frontend->request.total_bytes + arena_limit(request->size);
  st = coord_request_decode(mine->dialect, method, request->message, request->size, &frontend->request, &decoded);
  WEFT_TRY(st);
  WEFT_LOG("coord", DEBUG, "%s from task %d", coord_method_name(method), (int)decoded.task);
  mine->h2 = call;
  decoded.caller = &((coord_peer *)coord_h2_context(call))->caller;
  coord_service_handle(frontend->core, weft_now_ns(), &decoded, &mine->core);
  return NULL;
}

static void on_request(void *ctx, coord_h2_call *call, const coord_h2_request *request)
{
  const coord_peer *peer = ctx;
  weft_status *st = handle(peer->frontend, call, request);

  if (st) coord_h2_fail(call, st);
  weft_status_free(st);
  empty(&peer->frontend->request);
}

static void on_gone(void *ctx, coord_h2_call *call)
{
  const coord_peer *peer = ctx;
  server_call *mine = coord_h2_call_user(call);

  coord_service_drop(peer->frontend->core, &mine->core);
}

const coord_h2_handler coord_frontend_handler = {
  .call_bytes = sizeof(server_call), .admit = admit, .message_limit = message_limit, .request = on_request, .gone = on_gone,
};

/* ---- answers ---- */

/* The reply encoded, for all callers that get it to share; NULL without memory. The frontend keeps it. */
static coord_blob *shared_reply(coord_frontend *frontend, const server_call *call, const coord_reply *reply)
{
  const uint8_t *data;
  coord_blob *tail;
  size_t size;
  weft_status *st;

  if (frontend->shared && frontend->share == reply->share && frontend->share_dialect == call->dialect)
    return frontend->shared;
  st = coord_reply_encode(call->dialect, call->core.method, reply, &frontend->reply, &data, &size, &tail);
  weft_status_free(st);
  if (st) return NULL;
  coord_blob_release(frontend->shared);
  frontend->share = reply->share;
  frontend->share_dialect = call->dialect;
  return frontend->shared = coord_blob_new(&frontend->budget, data, size);
}

/* Encodes a reply if the connection has room for it. Otherwise its values are not copied together: a few bytes of a
 * request can ask for many of a reply. */
static weft_status *encode(coord_frontend *frontend, const server_call *call, const coord_reply *reply,
                           const uint8_t **out, size_t *out_size, coord_blob **out_tail)
{
  size_t least = 0;

  for (size_t i = 0; i < reply->entry_count; i++) least += reply->entries[i].value_size;
  WEFT_TRY(coord_h2_check_room(call->h2, least));
  return coord_reply_encode(call->dialect, call->core.method, reply, &frontend->reply, out, out_size, out_tail);
}

static void answer(void *ctx, coord_call *core, const coord_reply *reply, const weft_status *error)
{
  coord_frontend *frontend = ctx;
  server_call *call = WEFT_CONTAINER_OF(core, server_call, core);
  coord_peer *peer = coord_h2_context(call->h2);
  const uint8_t *data = NULL;
  size_t size = 0;
  coord_blob *tail = NULL;
  weft_status *st = NULL;

  if (error)
    st = call->dialect == COORD_DIALECT_X ? NULL : coord_status_for_dialect(weft_status_dup(error), call->dialect);
  else if (reply->share == 0) st = encode(frontend, call, reply, &data, &size, &tail);
  else if (!(tail = shared_reply(frontend, call, reply))) st = COORD_ERR(RESOURCE_EXHAUSTED, "no memory for the reply");
  WEFT_LOG("coord", DEBUG, "%s of task %d: %s %s", coord_method_name(core->method), (int)core->task,
           weft_code_name(weft_status_code(st ? st : error)), weft_status_message(st ? st : error));
  if (st || error) coord_h2_fail(call->h2, st ? st : error);
  else coord_h2_reply(call->h2, data, size, tail);
  weft_status_free(st);
  empty(&frontend->reply);
  peer->touched(peer);
}

/* ---- life ---- */

static weft_status *check_options(const weft_coord_service_options *options)
{
  if (options->task_count < 1 || options->task_count > 1 << 24)
    return WEFT_ERR(INVALID_ARGUMENT, "a service for %lld tasks", (long long)options->task_count);
  if (options->max_key_bytes < 1 || options->max_value_bytes < 1 || options->max_value_bytes > INT32_MAX ||
      options->max_streams < 2 || options->max_streams > INT32_MAX || options->max_connections < 1 ||
      options->max_total_bytes < 1 << 20 || options->max_unread_bytes < 0)
    return WEFT_ERR(INVALID_ARGUMENT,
                    "a limit (WEFT_COORD_MAX_*) is out of range: values may have up to 2 GiB, streams 2 "
                    "or more, the total at least 1 MiB");
  return NULL;
}

static weft_status *init(coord_frontend *frontend, const weft_coord_service_options *options, uint64_t incarnation)
{
  coord_service_config config = {
    .task_count = (int32_t)options->task_count,
    .heartbeat_timeout_ns = options->heartbeat_timeout_ns, .register_timeout_ns = options->register_timeout_ns,
    .shutdown_timeout_ns = options->shutdown_timeout_ns, .recoverable = options->recoverable,
    .max_key_bytes = (size_t)options->max_key_bytes, .max_value_bytes = (size_t)options->max_value_bytes,
    .max_task_keys = (size_t)options->max_task_keys, .max_task_bytes = (size_t)options->max_task_bytes,
    .max_task_barriers = (size_t)options->max_task_barriers, .max_task_waits = (size_t)options->max_task_waits, .budget = &frontend->budget,
    .answer = answer, .answer_ctx = frontend, .incarnation = incarnation,
  };

  WEFT_TRY(check_options(options));
  frontend->budget.limit_bytes = (size_t)options->max_total_bytes;
  frontend->h2_limits = (coord_h2_limits){.max_streams = (uint32_t)options->max_streams,
                                          .max_unread_bytes = (size_t)options->max_unread_bytes,
                                          .budget = &frontend->budget};
  if (incarnation == 0 &&
      (RAND_bytes((unsigned char *)&config.incarnation, sizeof config.incarnation) != 1 || config.incarnation == 0))
    return WEFT_ERR(INTERNAL, "no random numbers for an incarnation");
  frontend->has_tls = options->tls_cert_file && *options->tls_cert_file;
  frontend->asks_certificates = options->tls_ca_file && *options->tls_ca_file;
  WEFT_TRY(weft_secret_read(options->secret_file, &frontend->secret));
  return coord_service_new(&config, weft_now_ns(), &frontend->core);
}

weft_status *coord_frontend_init(coord_frontend *frontend, const weft_coord_service_options *options,
                                 uint64_t incarnation)
{
  weft_status *st;

  *frontend = (coord_frontend){.options = *options};
  weft_arena_init(&frontend->request);
  weft_arena_init(&frontend->reply);
  st = init(frontend, options, incarnation);
  if (st) coord_frontend_fini(frontend);
  return st;
}

void coord_frontend_fini(coord_frontend *frontend)
{
  coord_service_free(WEFT_MOVE(frontend->core));
  coord_blob_release(WEFT_MOVE(frontend->shared));
  weft_arena_fini(&frontend->request);
  weft_arena_fini(&frontend->reply);
  weft_secret_free(WEFT_MOVE(frontend->secret));
}
