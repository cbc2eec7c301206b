/* coord/wire/h2.c -- unary gRPC over nghttp2.
 *
 *   request   HEADERS(:method POST, :path, te trailers, ...) DATA(flag, length32, message) END_STREAM
 *   reply     HEADERS(:status 200) DATA(flag, length32, message) HEADERS(grpc-status 0) END_STREAM
 *   error     HEADERS(:status 200, grpc-status, grpc-message, grpc-status-details-bin) END_STREAM */
#include <config.h>

#include "coord/wire/h2.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nghttp2/nghttp2.h>
#include <utlist.h>

#include "base/array.h"
#include "base/deadline.h"
#include "base/secret.h"
#include "coord/wire/pool.h"
#include "coord/wire/text.h"
#include "coord/wire/wire_status.h"

enum {
  GRPC_FRAME_BYTES = 5,      /* compression flag, big-endian length */
  MAX_METADATA_BYTES = 16384, /* of one call's headers; longer ones are refused */
  MAX_PATH_BYTES = 128,
  MAX_SECRET_BYTES = 512,
  SMALL_OUTPUT_BYTES = 32, /* most replies: kept within the call */
  STREAM_WINDOW_BYTES = 4 << 20,
  CONNECTION_WINDOW_BYTES = 16 << 20,
};

/* What a server accepts from a peer. If a peer sends more, its connection ends with ENHANCE_YOUR_CALM. */
enum {
  STRANGER_BYTES = 1 << 20,   /* until the first call is let in: bodies of refused calls, which are discarded */
  STRANGER_FRAMES = 256,      /* the same, in frames */
  STRANGER_CALLS = 16,        /* calls that are refused before the first is let in */
  STRANGER_MEMORY = 46 << 10, /* kept until then; an idle connection has 28 KiB, one with STRANGER_CALLS 44 */
  MOST_METADATA_BYTES = 1 << 16, /* headers of one call, decoded: one byte may repeat a table entry */
  MOST_CONTINUATIONS = 16,    /* frames of one call's headers after the first */
  CONTROLS_PER_SECOND = 20000, /* RST_STREAM, PING, SETTINGS, PRIORITY: a member that cancels all calls sends fewer */
};

typedef enum call_state { CALL_OPEN, CALL_HANDED, CALL_ANSWERED, CALL_CANCELLED } call_state;

struct coord_h2_call {
  coord_h2 *h2;
  coord_h2_call *prev, *next;             /* of the connection's calls */
  coord_h2_call *prev_reply, *next_reply; /* of those whose reply nghttp2 does not have yet */
  bool is_replied;                        /* it is on that list */
  int32_t stream_id;
  call_state state;
  size_t metadata_bytes;
  size_t charged_bytes; /* against the budget */
  bool gzip;            /* the peer's grpc-encoding */
  bool is_post;
  weft_status *refused; /* why the message is not read: the answer when the request ends */

  uint8_t *in; /* the peer's message with its frame */
  size_t in_size, in_capacity;

  uint8_t *out; /* ours: frame and head; `small_out` or malloc'd */
  uint8_t small_out[SMALL_OUTPUT_BYTES];
  size_t out_size, out_sent;
  coord_blob *tail;
  size_t tail_sent;

  union {
    struct { /* server */
      char path[MAX_PATH_BYTES];
      char *secret;
    };
    struct { /* client */
      coord_h2_done done;
      void *done_ctx;
      int http_status, grpc_status; /* -1: not seen */
      char *message;
      uint8_t *details;
      size_t details_size;
    };
  };
  _Alignas(max_align_t) char user[];
};

struct coord_h2 {
  nghttp2_session *session;
  coord_h2_call *calls;
  coord_h2_call *replies; /* handed to nghttp2 when the connection is written: see coord_h2_reply */
  const coord_h2_handler *handler; /* NULL: client */
  void *ctx;
  const coord_h2_limits *limits;
  coord_budget unlimited; /* a client's own */
  size_t max_message_bytes;
  char *authority, *secret;
  bool is_member;       /* a call has been let in */
  size_t stranger_bytes, stranger_frames, stranger_calls; /* before a call has been let in */
  int continuations;    /* of the headers that are coming in */
  int controls;         /* since controls_since_ns */
  int64_t controls_since_ns;
  const char *excess;   /* what the peer sends too much of; NULL: nothing */
  size_t unread_bytes;  /* of replies that the peer has not taken */
  coord_pool pool; /* of session and calls */
};

static coord_budget *budget_of(coord_h2 *h2) { return h2->handler ? h2->limits->budget : &h2->unlimited; }

static bool charge(coord_h2_call *call, size_t bytes)
{
  if (!coord_budget_take(budget_of(call->h2), bytes)) return false;
  call->charged_bytes += bytes;
  return true;
}

static coord_h2_call *call_new(coord_h2 *h2, int32_t stream_id)
{
  size_t user_bytes = h2->handler ? h2->handler->call_bytes : 0, size = sizeof(coord_h2_call) + user_bytes;
  coord_h2_call *call = coord_pool_zeroed(&h2->pool, 1, size);

  if (!call) return NULL;
  call->h2 = h2;
  call->stream_id = stream_id;
  if (!charge(call, size)) {
    coord_pool_free(&h2->pool, call);
    return NULL;
  }
  call->next = h2->calls;
  if (h2->calls) h2->calls->prev = call;
  h2->calls = call;
  return call;
}

static void drop_input(coord_h2_call *call)
{
  free(call->in);
  call->in = NULL;
  call->in_size = 0;
  coord_budget_give(budget_of(call->h2), call->in_capacity);
  call->charged_bytes -= call->in_capacity;
  call->in_capacity = 0;
}

static void call_free(coord_h2_call *call)
{
  coord_h2 *h2 = call->h2;

  if (call->prev) call->prev->next = call->next;
  else h2->calls = call->next;
  if (call->next) call->next->prev = call->prev;
  if (call->is_replied) DL_DELETE2(h2->replies, call, prev_reply, next_reply);
  if (h2->handler) h2->unread_bytes -= call->out_size + (call->tail ? call->tail->size : 0);
  drop_input(call);
  coord_budget_give(budget_of(h2), call->charged_bytes);
  weft_status_free(call->refused);
  if (call->out != call->small_out) free(call->out);
  coord_blob_release(call->tail);
  if (h2->handler) {
    weft_secret_free(call->secret);
  } else {
    free(call->message);
    free(call->details);
  }
  coord_pool_free(&h2->pool, call);
}

/* Only the first reason counts. Takes st. */
static void refuse(coord_h2_call *call, weft_status *st)
{
  if (call->refused) weft_status_free(st);
  else call->refused = st;
  drop_input(call);
}

/* ---- the peer's message ---- */

static size_t message_limit(coord_h2_call *call)
{
  coord_h2 *h2 = call->h2;

  return h2->handler ? h2->handler->message_limit(h2->ctx, call->path) : h2->max_message_bytes;
}

static void append_input(coord_h2_call *call, const uint8_t *data, size_t size)
{
  size_t limit, need, bigger;

  if (call->refused) return;
  limit = message_limit(call);
  need = call->in_size + size;
  if (need > limit + GRPC_FRAME_BYTES) {
    refuse(call, COORD_ERR(RESOURCE_EXHAUSTED, "message of more than %zu bytes, the limit of this method", limit));
    return;
  }
  if (need > call->in_capacity) { /* grows with what has come, never with what a header promises */
    bigger = WEFT_MAX(need, WEFT_MIN(call->in_capacity * 2, limit + GRPC_FRAME_BYTES));
    if (!charge(call, bigger - call->in_capacity) || !WEFT_RESIZE(call->in, bigger)) {
      refuse(call, COORD_ERR(RESOURCE_EXHAUSTED, "the service's memory limit of %zu bytes is reached",
                             budget_of(call->h2)->limit_bytes));
      return;
    }
    call->in_capacity = bigger;
  }
  memcpy(call->in + call->in_size, data, size);
  call->in_size = need;
}

/* The message within its frame.  *out_inflated is to be freed, and its *out_size bytes are charged to the call. */
static weft_status *unframe(coord_h2_call *call, const uint8_t **out, size_t *out_size, uint8_t **out_inflated)
{
  size_t length;

  *out_inflated = NULL;
  if (call->in_size < GRPC_FRAME_BYTES)
    return COORD_ERR(INVALID_ARGUMENT, "gRPC frame of %zu bytes, shorter than its header", call->in_size);
  length = (size_t)call->in[1] << 24 | (size_t)call->in[2] << 16 | (size_t)call->in[3] << 8 | call->in[4];
  if (length != call->in_size - GRPC_FRAME_BYTES)
    return COORD_ERR(INVALID_ARGUMENT, "gRPC frame announces %zu bytes and holds %zu: a call has exactly one message",
                     length, call->in_size - GRPC_FRAME_BYTES);
  *out = call->in + GRPC_FRAME_BYTES;
  *out_size = length;
  if (call->in[0] == 0) return NULL;
  if (call->in[0] != 1 || !call->gzip)
    return COORD_ERR(INTERNAL, "compressed message (flag %d) without a known grpc-encoding", call->in[0]);
  WEFT_TRY(coord_mark(coord_gunzip(*out, length, message_limit(call), budget_of(call->h2), out_inflated, out_size)));
  call->charged_bytes += *out_size;
  *out = *out_inflated;
  return NULL;
}

/* ---- our message ---- */

static ssize_t read_body(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length, uint32_t *flags,
                         nghttp2_data_source *source, void *user)
{
  static const nghttp2_nv trailer = {.name = (uint8_t *)(uintptr_t)"grpc-status", .value = (uint8_t *)(uintptr_t)"0",
                                     .namelen = 11, .valuelen = 1,
                                     .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
  coord_h2_call *call = source->ptr;
  size_t head = WEFT_MIN(length, call->out_size - call->out_sent), tail = 0,
         tail_size = call->tail ? call->tail->size : 0;

  (void)user;
  memcpy(buf, call->out + call->out_sent, head);
  call->out_sent += head;
  if (call->tail) {
    tail = WEFT_MIN(length - head, tail_size - call->tail_sent);
    memcpy(buf + head, call->tail->data + call->tail_sent, tail);
    call->tail_sent += tail;
  }
  if (call->out_sent == call->out_size && call->tail_sent == tail_size) {
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (call->h2->handler) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      if (nghttp2_submit_trailer(session, stream_id, &trailer, 1) != 0) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
  }
  return (ssize_t)(head + tail);
}

static bool set_output(coord_h2_call *call, const void *head, size_t head_size, coord_blob *tail)
{
  size_t length = head_size + (tail ? tail->size : 0);

  if (length > UINT32_MAX) return false;
  call->out = call->small_out;
  if (GRPC_FRAME_BYTES + head_size > sizeof call->small_out)
    call->out = charge(call, head_size) ? malloc(GRPC_FRAME_BYTES + head_size) : NULL;
  if (!call->out) return false;
  call->out[0] = 0;
  for (int i = 0; i < 4; i++) call->out[1 + i] = (uint8_t)(length >> (24 - 8 * i));
  if (head_size > 0) memcpy(call->out + GRPC_FRAME_BYTES, head, head_size);
  call->out_size = GRPC_FRAME_BYTES + head_size;
  if (tail) call->tail = coord_blob_retain(tail);
  return true;
}

static nghttp2_nv header(const char *name, const char *value, size_t value_length)
{
  return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                      .namelen = strlen(name),
                      .value = (uint8_t *)(uintptr_t)value,
                      .valuelen = value_length};
}
#define HEADER(name, value) header(name, value, strlen(value))

void *coord_h2_call_user(coord_h2_call *call) { return call->user; }
void *coord_h2_context(const coord_h2_call *call) { return call->h2->ctx; }

weft_status *coord_h2_check_room(const coord_h2_call *call, size_t size)
{
  size_t most = call->h2->limits->max_unread_bytes, unread = call->h2->unread_bytes;

  if (unread == 0 || (size <= most && unread <= most - size)) return NULL;
  return COORD_ERR(RESOURCE_EXHAUSTED,
                   "replies of %zu bytes wait for this connection to take them; with this one, of %zu, they "
                   "would pass the limit of %zu (WEFT_COORD_MAX_UNREAD)",
                   unread, size, most);
}

/* Only keeps the reply until the connection is written. The service may answer thousands of connections in a row. If
 * each reply went to nghttp2 at once, the state of each connection would be touched twice, once for nghttp2 and once
 * for the socket, and the first connection would wait until nghttp2 has all replies. */
void coord_h2_reply(coord_h2_call *call, const void *head, size_t head_size, coord_blob *tail)
{
  size_t size = head_size + (tail ? tail->size : 0);
  weft_status *st = coord_h2_check_room(call, size);

  if (!st && !set_output(call, head, head_size, tail))
    st = COORD_ERR(RESOURCE_EXHAUSTED, "no memory for a reply of %zu bytes", size);
  if (st) {
    coord_h2_fail(call, st);
    weft_status_free(st);
    return;
  }
  call->h2->unread_bytes += call->out_size + (call->tail ? call->tail->size : 0);
  call->state = CALL_ANSWERED;
  call->is_replied = true;
  DL_APPEND2(call->h2->replies, call, prev_reply, next_reply);
}

static void submit_replies(coord_h2 *h2)
{
  nghttp2_nv headers[] = {HEADER(":status", "200"), HEADER("content-type", "application/grpc")};

  for (size_t i = 0; i < WEFT_COUNT(headers); i++)
    headers[i].flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE;
  while (h2->replies) {
    coord_h2_call *call = h2->replies;
    nghttp2_data_provider body = {.source.ptr = call, .read_callback = read_body};
    call->is_replied = false;
    DL_DELETE2(h2->replies, call, prev_reply, next_reply);
    if (nghttp2_submit_response(h2->session, call->stream_id, headers, WEFT_COUNT(headers), &body) != 0)
      nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, call->stream_id, NGHTTP2_INTERNAL_ERROR);
  }
}

void coord_h2_fail(coord_h2_call *call, const weft_status *st)
{
  static const char cut[] = "... [cut]";
  char code[16], *message, *base64;
  char text[COORD_MAX_MESSAGE_BYTES + sizeof cut];
  size_t length = strlen(weft_status_message(st)), details_size;
  uint8_t *details;
  nghttp2_nv headers[5] = {HEADER(":status", "200"), HEADER("content-type", "application/grpc")};
  size_t n = 2;

  snprintf(code, sizeof code, "%d", (int)weft_status_code(st));
  headers[n++] = HEADER("grpc-status", code);
  snprintf(text, sizeof text, "%.*s%s", COORD_MAX_MESSAGE_BYTES, weft_status_message(st),
           length > COORD_MAX_MESSAGE_BYTES ? cut : "");
  coord_details_encode(st, &details, &details_size);
  message = malloc(3 * strlen(text) + 1);
  base64 = malloc(4 * (details_size / 3 + 1) + 1);
  if (message) headers[n++] = header("grpc-message", message, coord_percent_encode(text, strlen(text), message));
  if (details && base64)
    headers[n++] = header("grpc-status-details-bin", base64, coord_base64_encode(details, details_size, base64));
  call->state = CALL_ANSWERED;
  if (nghttp2_submit_response(call->h2->session, call->stream_id, headers, n, NULL) != 0)
    nghttp2_submit_rst_stream(call->h2->session, NGHTTP2_FLAG_NONE, call->stream_id, NGHTTP2_INTERNAL_ERROR);
  free(details);
  free(message);
  free(base64);
}

/* ---- the server's half of the callbacks ---- */

/* Whether a header's name or value is that literal. */
#define IS(text, length, literal) ((length) == sizeof literal - 1 && memcmp(text, literal, sizeof literal - 1) == 0)

/* The values of headers that a stranger sends are kept only where the protocol needs them, and up to a length. */
static void server_header(coord_h2_call *call, const char *name, size_t name_length, const char *value, size_t length)
{
  if (IS(name, name_length, ":path")) {
    if (length >= MAX_PATH_BYTES) refuse(call, COORD_ERR(UNIMPLEMENTED, "path of %zu bytes", length));
    else memcpy(call->path, value, length);
  } else if (IS(name, name_length, ":method")) {
    call->is_post = IS(value, length, "POST");
  } else if (IS(name, name_length, "grpc-encoding")) {
    call->gzip = IS(value, length, "gzip");
  } else if (IS(name, name_length, COORD_H2_SECRET_HEADER) && length < MAX_SECRET_BYTES && !call->secret) {
    call->secret = strndup(value, length);
  }
}

static void server_dispatch(coord_h2_call *call)
{
  coord_h2 *h2 = call->h2;
  coord_h2_request request = {.path = call->path};
  weft_status *st = WEFT_MOVE(call->refused);
  uint8_t *inflated = NULL;

  if (!st) st = unframe(call, &request.message, &request.size, &inflated);
  if (st) {
    coord_h2_fail(call, st);
    weft_status_free(st);
  } else {
    call->state = CALL_HANDED;
    h2->handler->request(h2->ctx, call, &request);
    if (inflated) {
      coord_budget_give(budget_of(h2), request.size);
      call->charged_bytes -= request.size;
    }
  }
  free(inflated);
  drop_input(call);
}

/* The headers are complete. A caller that is not let in learns nothing else, whatever is wrong with its call.
 * Refused calls are answered now, and their bodies are discarded as they come. */
static void server_admit(coord_h2_call *call)
{
  coord_h2 *h2 = call->h2;
  weft_status *st = h2->handler->admit(h2->ctx, call->path, call->secret ? call->secret : "");

  weft_secret_free(WEFT_MOVE(call->secret));
  if (!st) {
    h2->is_member = true;
    st = WEFT_MOVE(call->refused);
    if (!st && !call->is_post) st = COORD_ERR(UNIMPLEMENTED, "gRPC calls are POST requests");
  }
  if (st) coord_h2_fail(call, st);
  weft_status_free(st);
}

/* Ends the connection with a GOAWAY. Returns what nghttp2's callbacks return then. */
static int calm_down(coord_h2 *h2, const char *excess)
{
  h2->excess = excess;
  nghttp2_session_terminate_session(h2->session, NGHTTP2_ENHANCE_YOUR_CALM);
  return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static bool is_control(uint8_t frame_type)
{
  return frame_type != NGHTTP2_DATA && frame_type != NGHTTP2_HEADERS && frame_type != NGHTTP2_CONTINUATION &&
         frame_type != NGHTTP2_WINDOW_UPDATE;
}

/* Counts frames that are cheap to send and cost a server more, and all frames of a stranger. */
static int server_count_frame(coord_h2 *h2, uint8_t frame_type)
{
  if (!h2->is_member && ++h2->stranger_frames > STRANGER_FRAMES) return calm_down(h2, "frames before authentication");
  if (frame_type == NGHTTP2_HEADERS) h2->continuations = 0;
  if (frame_type == NGHTTP2_CONTINUATION && ++h2->continuations > MOST_CONTINUATIONS)
    return calm_down(h2, "CONTINUATION frames");
  if (!is_control(frame_type) || ++h2->controls < CONTROLS_PER_SECOND) return 0;
  int64_t now_ns = weft_now_ns(), since_ns = h2->controls_since_ns;
  h2->controls = 0;
  h2->controls_since_ns = now_ns;
  return since_ns && now_ns - since_ns < WEFT_NS_PER_S ? calm_down(h2, "resets and other control frames") : 0;
}

/* ---- the client's half ---- */

static void client_header(coord_h2_call *call, const char *name, size_t name_length, const char *value, size_t length)
{
  if (IS(name, name_length, ":status")) {
    call->http_status = atoi(value);
  } else if (IS(name, name_length, "grpc-status")) {
    call->grpc_status = length > 0 && length < 4 ? atoi(value) : WEFT_UNKNOWN;
  } else if (IS(name, name_length, "grpc-message") && !call->message) {
    call->message = malloc(length + 1);
    if (call->message) coord_percent_decode(value, length, call->message);
  } else if (IS(name, name_length, "grpc-status-details-bin") && !call->details) {
    call->details = malloc(length + 4);
    if (call->details && !coord_base64_decode(value, length, call->details, &call->details_size))
      call->details_size = 0;
  } else if (IS(name, name_length, "grpc-encoding")) {
    call->gzip = IS(value, length, "gzip");
  }
}

/* The error that gRPC prescribes for a call that ended without grpc-status. */
static weft_status *error_without_status(const coord_h2_call *call, uint32_t reset_code)
{
  if (call->http_status == 404) return WEFT_ERR(UNIMPLEMENTED, "the peer answered HTTP 404");
  if (call->http_status == 401) return WEFT_ERR(UNAUTHENTICATED, "the peer answered HTTP 401");
  if (call->http_status == 403) return WEFT_ERR(PERMISSION_DENIED, "the peer answered HTTP 403");
  if (call->http_status == 429 || (call->http_status >= 502 && call->http_status <= 504))
    return WEFT_ERR(UNAVAILABLE, "the peer answered HTTP %d", call->http_status);
  switch (reset_code) {
  case NGHTTP2_NO_ERROR: return WEFT_ERR(UNKNOWN, "stream ended without a grpc-status");
  case NGHTTP2_REFUSED_STREAM: return WEFT_ERR(UNAVAILABLE, "stream refused by the peer");
  case NGHTTP2_CANCEL: return WEFT_ERR(CANCELLED, "stream cancelled by the peer");
  case NGHTTP2_ENHANCE_YOUR_CALM: return WEFT_ERR(RESOURCE_EXHAUSTED, "stream reset by the peer: too much");
  default: return WEFT_ERR(INTERNAL, "stream reset by the peer: %s", nghttp2_http2_strerror(reset_code));
  }
}

static void client_finish(coord_h2_call *call, uint32_t reset_code)
{
  const uint8_t *message = NULL;
  uint8_t *inflated = NULL;
  size_t size = 0;
  weft_status *st = NULL;

  if (call->grpc_status < 0) st = error_without_status(call, reset_code);
  else if (call->grpc_status != 0)
    st =
      coord_status_from_wire(call->grpc_status, call->message ? call->message : "", call->details, call->details_size);
  else if (call->refused) st = WEFT_MOVE(call->refused);
  else st = unframe(call, &message, &size, &inflated);
  call->state = CALL_ANSWERED;
  call->done(call->done_ctx, st, message, size);
  free(inflated);
}

weft_status *coord_h2_start(coord_h2 *h2, const char *path, const void *message, size_t size, coord_h2_done done,
                            void *ctx, coord_h2_call **out_call)
{
  coord_h2_call *call = call_new(h2, -1);
  nghttp2_nv headers[9];
  nghttp2_data_provider body = {.source.ptr = call, .read_callback = read_body};
  size_t n = 0;

  *out_call = NULL;
  WEFT_TRY_ALLOC(call);
  if (!h2->session) { /* in the middle of coord_h2_close */
    call_free(call);
    return WEFT_ERR(UNAVAILABLE, "%s: the connection is closing", path);
  }
  call->done = done;
  call->done_ctx = ctx;
  call->http_status = call->grpc_status = -1;
  headers[n++] = HEADER(":method", "POST");
  headers[n++] = HEADER(":scheme", "http");
  headers[n++] = HEADER(":path", path);
  headers[n++] = HEADER(":authority", h2->authority);
  headers[n++] = HEADER("content-type", "application/grpc");
  headers[n++] = HEADER("te", "trailers"); /* a C-core server insists on it */
  headers[n++] = HEADER("grpc-accept-encoding", "identity, gzip");
  headers[n++] = HEADER("user-agent", "weft/" PACKAGE_VERSION);
  if (h2->secret) {
    headers[n] = HEADER(COORD_H2_SECRET_HEADER, h2->secret);
    headers[n++].flags = NGHTTP2_NV_FLAG_NO_INDEX;
  }
  if (set_output(call, message, size, NULL))
    call->stream_id = nghttp2_submit_request(h2->session, NULL, headers, n, &body, call);
  if (call->stream_id < 0) {
    call_free(call);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "%s: cannot start a call", path);
  }
  *out_call = call;
  return NULL;
}

void coord_h2_cancel(coord_h2_call *call)
{
  call->state = CALL_CANCELLED; /* the stream's close frees it */
  if (call->h2->session)
    nghttp2_submit_rst_stream(call->h2->session, NGHTTP2_FLAG_NONE, call->stream_id, NGHTTP2_CANCEL);
}

/* ---- nghttp2's callbacks ---- */

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *frame, void *user)
{
  coord_h2 *h2 = user;

  (void)session;
  return h2->handler ? server_count_frame(h2, frame->type) : 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
  coord_h2 *h2 = user;
  coord_h2_call *call;

  if (!h2->handler || frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  if (!h2->is_member && ++h2->stranger_calls > STRANGER_CALLS) return calm_down(h2, "calls without authentication");
  call = call_new(h2, frame->hd.stream_id);
  if (!call) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* resets the stream */
  nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
  return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
                     const uint8_t *value, size_t value_length, uint8_t flags, void *user)
{
  coord_h2 *h2 = user;
  coord_h2_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

  (void)flags;
  if (!call || call->state != CALL_OPEN) return 0;
  call->metadata_bytes += name_length + value_length + 32; /* as RFC 9113 counts */
  if (call->metadata_bytes > MAX_METADATA_BYTES) {
    refuse(call, COORD_ERR(RESOURCE_EXHAUSTED, "more than %d bytes of metadata", MAX_METADATA_BYTES));
    return h2->handler && call->metadata_bytes > MOST_METADATA_BYTES ? calm_down(h2, "metadata") : 0;
  }
  /* nghttp2 terminates both strings */
  (h2->handler ? server_header : client_header)(call, (const char *)name, name_length, (const char *)value,
                                                value_length);
  return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data, size_t size,
                   void *user)
{
  coord_h2_call *call = nghttp2_session_get_stream_user_data(session, stream_id);

  (void)flags;
  (void)user;
  if (call && call->state == CALL_OPEN) append_input(call, data, size);
  return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
  coord_h2 *h2 = user;
  coord_h2_call *call;

  if (!h2->handler || (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS)) return 0;
  call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
  if (!call || call->state != CALL_OPEN) return 0;
  if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) server_admit(call);
  if (call->state == CALL_OPEN && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) server_dispatch(call);
  return 0;
}

/* A call that was answered before its request ended is over: resets the stream, since the rest of the request is not
 * wanted (RFC 9113, 8.1). */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
  coord_h2 *h2 = user;

  if (h2->handler && frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) &&
      nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
  return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code, void *user)
{
  coord_h2 *h2 = user;
  coord_h2_call *call = nghttp2_session_get_stream_user_data(session, stream_id);

  if (!call) return 0;
  nghttp2_session_set_stream_user_data(session, stream_id, NULL);
  if (h2->handler) {
    if (call->state == CALL_HANDED) h2->handler->gone(h2->ctx, call);
  } else if (call->state == CALL_OPEN) {
    client_finish(call, error_code);
  }
  call_free(call);
  return 0;
}

static void *pool_malloc(size_t size, void *pool) { return coord_pool_alloc(pool, size); }
static void *pool_calloc(size_t count, size_t size, void *pool) { return coord_pool_zeroed(pool, count, size); }
static void *pool_realloc(void *memory, size_t size, void *pool) { return coord_pool_resize(pool, memory, size); }
static void pool_free(void *memory, void *pool) { coord_pool_free(pool, memory); }

static coord_h2 *h2_new(void)
{
  coord_h2 *h2 = aligned_alloc(_Alignof(coord_h2), sizeof *h2);

  if (!h2) return NULL;
  memset(h2, 0, offsetof(coord_h2, pool));
  coord_pool_init(&h2->pool);
  return h2;
}

static weft_status *session_new(coord_h2 *h2)
{
  nghttp2_mem memory = {&h2->pool, pool_malloc, pool_free, pool_calloc, pool_realloc};
  nghttp2_session_callbacks *callbacks = NULL;
  nghttp2_option *option = NULL;
  nghttp2_settings_entry settings[] = {
    {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
    {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, 1 << 18},
    {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, h2->handler ? h2->limits->max_streams : 0},
    {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}, /* a client's alone */
  };
  int rc = nghttp2_session_callbacks_new(&callbacks);

  if (rc == 0) rc = nghttp2_option_new(&option);
  if (rc == 0) {
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_peer_max_concurrent_streams(option, UINT32_MAX); /* until the peer says otherwise */
    rc = h2->handler ? nghttp2_session_server_new3(&h2->session, callbacks, h2, option, &memory)
                     : nghttp2_session_client_new3(&h2->session, callbacks, h2, option, &memory);
  }
  if (rc == 0) rc = nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings, h2->handler ? 3 : 4);
  if (rc == 0) rc = nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW_BYTES);
  nghttp2_session_callbacks_del(callbacks);
  nghttp2_option_del(option);
  return rc == 0 ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "cannot make an HTTP/2 session: %s", nghttp2_strerror(rc));
}

weft_status *coord_h2_server_new(const coord_h2_handler *handler, void *ctx, const coord_h2_limits *limits,
                                 coord_h2 **out_h2)
{
  coord_h2 *h2 = h2_new();
  weft_status *st;

  *out_h2 = NULL;
  WEFT_TRY_ALLOC(h2);
  h2->handler = handler;
  h2->ctx = ctx;
  h2->limits = limits;
  st = session_new(h2);
  if (st) coord_h2_close(h2, "");
  else *out_h2 = h2;
  return st;
}

weft_status *coord_h2_client_new(const char *authority, const char *secret, size_t max_message_bytes, coord_h2 **out_h2)
{
  coord_h2 *h2 = h2_new();
  weft_status *st;

  *out_h2 = NULL;
  WEFT_TRY_ALLOC(h2);
  h2->unlimited.limit_bytes = SIZE_MAX;
  h2->max_message_bytes = max_message_bytes;
  h2->authority = strdup(authority);
  h2->secret = secret ? strdup(secret) : NULL;
  st = h2->authority && (h2->secret || !secret) ? session_new(h2) : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  if (st) coord_h2_close(h2, "");
  else *out_h2 = h2;
  return st;
}

void coord_h2_close(coord_h2 *h2, const char *why)
{
  if (!h2) return;
  nghttp2_session_del(h2->session); /* runs no callbacks */
  h2->session = NULL;
  while (h2->calls) {
    coord_h2_call *call = h2->calls;
    if (h2->handler && call->state == CALL_HANDED) h2->handler->gone(h2->ctx, call);
    if (!h2->handler && call->state == CALL_OPEN) {
      call->state = CALL_ANSWERED;
      call->done(call->done_ctx, WEFT_ERR(UNAVAILABLE, "%s", why), NULL, 0);
    }
    call_free(call);
  }
  free(h2->authority);
  free(h2->secret);
  free(h2);
}

weft_status *coord_h2_recv(coord_h2 *h2, const uint8_t *data, size_t size)
{
  ssize_t n;

  if (h2->excess) return WEFT_ERR(RESOURCE_EXHAUSTED, "HTTP/2: the peer sends too many %s", h2->excess);
  n = nghttp2_session_mem_recv(h2->session, data, size);
  if (h2->handler && !h2->is_member && !h2->excess && (h2->stranger_bytes += size) > STRANGER_BYTES)
    calm_down(h2, "bytes before authentication");
  if (h2->handler && !h2->is_member && !h2->excess && coord_pool_bytes(&h2->pool) > STRANGER_MEMORY)
    calm_down(h2, "bytes to be kept before authentication");
  if (h2->excess) return WEFT_ERR(RESOURCE_EXHAUSTED, "HTTP/2: the peer sends too many %s", h2->excess);
  if (n < 0) return WEFT_ERR(INVALID_ARGUMENT, "HTTP/2: %s", nghttp2_strerror((int)n));
  return NULL;
}

weft_status *coord_h2_send(coord_h2 *h2, const uint8_t **out_data, size_t *out_size)
{
  ssize_t n;

  submit_replies(h2);
  n = nghttp2_session_mem_send(h2->session, out_data);
  *out_size = n > 0 ? (size_t)n : 0;
  return n < 0 ? WEFT_ERR(RESOURCE_EXHAUSTED, "HTTP/2: %s", nghttp2_strerror((int)n)) : NULL;
}

void coord_h2_prefetch(const coord_h2 *h2)
{
  if (!h2) return;
  __builtin_prefetch(h2);
  coord_pool_prefetch(&h2->pool);
}

bool coord_h2_is_alive(const coord_h2 *h2)
{
  return nghttp2_session_want_read(h2->session) || nghttp2_session_want_write(h2->session);
}
