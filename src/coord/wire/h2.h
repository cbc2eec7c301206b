/* coord/wire/h2.h -- unary gRPC calls over one HTTP/2 connection: bytes in, bytes out, no socket.
 *
 *   received bytes -> coord_h2_recv -> handler->request (server) or done (client)
 *   coord_h2_reply (server), coord_h2_start (client) -> coord_h2_send -> bytes to write
 *
 * Thread-compatible: one thread at a time.  Callbacks run inside coord_h2_recv, coord_h2_send or coord_h2_close; they
 * may start, answer and cancel calls, and may not free the connection. */
#ifndef WEFT_COORD_WIRE_H2_H
#define WEFT_COORD_WIRE_H2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "coord/wire/blob.h"

typedef struct coord_h2 coord_h2;
typedef struct coord_h2_call coord_h2_call; /* one stream; it lives until answered, reset, or the connection closes */

/* The header that carries the shared secret. */
#define COORD_H2_SECRET_HEADER "weft-coord-secret"

typedef struct coord_h2_request {
  const char *path; /* "/service/Method" */
  const uint8_t *message;
  size_t size;
} coord_h2_request;

/* What a server does with requests. */
typedef struct coord_h2_handler {
  size_t call_bytes; /* zeroed memory for the handler in every call: coord_h2_call_user */
  /* Called when the headers of a call are complete and no byte of its body has been kept. An error becomes the
   * call's answer, and its body is discarded. NULL lets the call in, and from then on the connection counts as a
   * member's. */
  weft_status *(*admit)(void *ctx, const char *path, const char *secret);
  /* The largest message, after inflation, that `path` may carry. */
  size_t (*message_limit)(void *ctx, const char *path);
  /* Called with a whole request, which is borrowed until it returns. The handler answers now or later, with
   * coord_h2_reply or coord_h2_fail. */
  void (*request)(void *ctx, coord_h2_call *call, const coord_h2_request *request);
  /* A call that was handed to `request` and is not answered was reset by the peer, or lost with its connection. */
  void (*gone)(void *ctx, coord_h2_call *call);
} coord_h2_handler;

typedef struct coord_h2_limits {
  uint32_t max_streams;    /* concurrent calls of one connection */
  size_t max_unread_bytes; /* most bytes of replies that a connection's peer has not taken */
  coord_budget *budget;    /* charged with request bodies and calls; borrowed */
} coord_h2_limits;

/* `handler` and `limits` are borrowed for the connection's life. */
WEFT_NODISCARD weft_status *coord_h2_server_new(const coord_h2_handler *handler, void *ctx,
                                                const coord_h2_limits *limits, coord_h2 **out_h2);

/* `authority` is the :authority header; `secret` NULL sends none; both copied.  Replies larger than max_message_bytes
 * fail RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coord_h2_client_new(const char *authority, const char *secret, size_t max_message_bytes,
                                                coord_h2 **out_h2);

/* Ends every call (server: handler->gone; client: done with UNAVAILABLE and `why`) and frees.  NULL is fine. */
void coord_h2_close(coord_h2 *h2, const char *why);

/* Feeds received bytes.  After an error, send the bytes that are queued (a GOAWAY among them) and close.
 * Errors: INVALID_ARGUMENT    the peer does not speak HTTP/2
 *         RESOURCE_EXHAUSTED  the peer sends too much of what costs this side more than the peer */
WEFT_NODISCARD weft_status *coord_h2_recv(coord_h2 *h2, const uint8_t *data, size_t size);

/* The next bytes to write, valid until the next call on h2; *out_size 0 when there are none. */
WEFT_NODISCARD weft_status *coord_h2_send(coord_h2 *h2, const uint8_t **out_data, size_t *out_size);

/* Starts to bring the connection's memory into the caches: it is about to be used. */
void coord_h2_prefetch(const coord_h2 *h2);

/* False when neither side has anything left to say and the connection should close. */
bool coord_h2_is_alive(const coord_h2 *h2);

/* ---- server side ---- */

void *coord_h2_call_user(coord_h2_call *call);     /* handler->call_bytes of memory, aligned for any type */
void *coord_h2_context(const coord_h2_call *call); /* the `ctx` of its connection */

/* Answers with the message `head` followed by `tail`. Copies head, retains tail (NULL: none). The call is no longer
 * the caller's. If replies wait for the peer already, and with this one they would exceed max_unread_bytes, the
 * answer is RESOURCE_EXHAUSTED instead. */
void coord_h2_reply(coord_h2_call *call, const void *head, size_t head_size, coord_blob *tail);

/* Checks whether coord_h2_reply would send a reply of `size` bytes, before the reply is encoded.
 * Errors: RESOURCE_EXHAUSTED, the answer that it would send instead. */
WEFT_NODISCARD weft_status *coord_h2_check_room(const coord_h2_call *call, size_t size);

/* Answers with an error; borrows st. */
void coord_h2_fail(coord_h2_call *call, const weft_status *st);

/* ---- client side ---- */

/* The end of a call: takes `error`, or, if that is NULL, borrows the reply `message`. */
typedef void (*coord_h2_done)(void *ctx, weft_status *error, const uint8_t *message, size_t size);

/* Starts a call; `message` is copied.  done runs once, later, unless the call is cancelled. */
WEFT_NODISCARD weft_status *coord_h2_start(coord_h2 *h2, const char *path, const void *message, size_t size,
                                           coord_h2_done done, void *ctx, coord_h2_call **out_call);

/* Resets the stream; done will not run. */
void coord_h2_cancel(coord_h2_call *call);

#endif
