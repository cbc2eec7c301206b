/* pjrt/cross_device.c -- transfers of device memory between two processes.
 *
 * The platform's communicator matches the operations of a pair by their order alone, and it hangs if one side does not
 * post.  So the two sides first agree over the host's communicator, in messages whose tag is the transfer's key:
 *
 *   sender                                            receiver
 *   the buffer may be read by queued work: OFFER  ->  takes the next number, posts its operation
 *   posts its operation in the order of the     <-  GO with the number
 *   numbers, behind the point at which the
 *   buffer's bytes are there
 *   the buffer is defined, the operation ended:   ->
 *   VERDICT, with the buffer's error if there is one
 *   ends when it has both                       <-  its operation has ended: ARRIVED; ends when it has the VERDICT
 *
 * The sender's own operation may end while the receiver's has not.  A sender that left then would take down the
 * library's communicator under the receiver's operation; so the sender's transfer ends only when the bytes are there.
 *
 * Transfers whose bytes are there when they are offered may go to the library as a group.  Others may not: a program
 * that computes one buffer may wait for a process that waits for another one.
 *
 * An OFFER or GO with an error ends this transfer on both sides, and no other transfer.  Every other error fails the
 * whole link. */
#include <config.h>

#include "pjrt/cross_link.h"

#include <stdlib.h>
#include <string.h>

enum { SENDER, RECEIVER, TEXT_BYTES = 400 };

/* The messages between the two sides. */
typedef struct message {
  int32_t code;  /* a weft_code; WEFT_OK: no error */
  int32_t dtype; /* OFFER */
  int64_t bytes; /* OFFER */
  uint64_t number; /* GO; in an OFFER: 1 if the buffer's bytes are there */
  char text[TEXT_BYTES];
} message;

typedef struct device_transfer transfer;
struct device_transfer {
  pjrt_turn turn;        /* its turn to post the operation */
  rt_job job;
  pjrt_link *link;       /* a reference */
  int side;
  weft_buffer *buffer;   /* of a send: being read; else NULL */
  weft_storage *storage; /* retained: it holds the bytes; NULL: the buffer is empty */
  weft_event *done, *operation, *message_ended, *arrived_ended; /* arrived_ended: of a receive, of its ARRIVED */
  weft_dtype dtype;
  int64_t bytes;
  uint64_t tag;
  message out, in;
  atomic_int waiting;    /* events that the next step needs */
  weft_event_waiter waiters[2];
  void (*step)(transfer *t, weft_status *st); /* called when these events have come; takes the first error */
  _Atomic(weft_status *) failure;
};

/* ---- the end ---- */

/* Takes `st`. */
static void end(transfer *t, weft_status *st)
{
  weft_event_set(t->done, st);
  weft_event_release(t->done);
  weft_event_release(t->operation);
  weft_event_release(t->message_ended);
  weft_event_release(t->arrived_ended);
  pjrt_link_give_back(t->link, t->buffer, t->storage);
  free(t);
}

/* Fails the link, because its two sides do not agree any more on the transfers that it carries.  Takes `st`. */
static void fail(transfer *t, weft_status *st)
{
  pjrt_link_fail(t->link, weft_status_dup(st));
  end(t, st);
}

/* ---- waiting ---- */

static void one_has_come(void *ctx, const weft_status *error)
{
  transfer *t = ctx;
  weft_status *none = NULL, *own = weft_status_dup(error);

  if (own && !atomic_compare_exchange_strong(&t->failure, &none, own)) weft_status_free(own);
  /* seq_cst: this thread or the other sees both changes */
  if (atomic_fetch_sub(&t->waiting, 1) == 1) t->step(t, atomic_exchange(&t->failure, NULL));
}

/* Calls `step` when both events are ready; `second` may be NULL. */
static void after(transfer *t, weft_event *first, weft_event *second, void (*step)(transfer *t, weft_status *st))
{
  t->step = step;
  atomic_store(&t->waiting, second ? 2 : 1);
  weft_event_on_ready_slot(first, &t->waiters[0], one_has_come, t);
  if (second) weft_event_on_ready_slot(second, &t->waiters[1], one_has_come, t); /* the first call was not the last */
}

/* ---- messages ---- */

static weft_status *post_message(transfer *t, bool send, weft_event **ended)
{
  weft_coll_op op = {.kind = send ? WEFT_SEND : WEFT_RECV, .dtype = WEFT_U8, .count = sizeof(message),
                     .peer = 1 - t->side, .source = -1, .target = -1, .tag = t->tag};
  weft_coll_call call = {.site = {.executable = "cross-host transfer"}};

  if (send) op.send = &t->out;
  else op.recv = &t->in;
  weft_event_release(WEFT_MOVE(*ended));
  return weft_coll_post(pjrt_link_host(t->link, t->side), &op, &call, ended);
}

/* `step` follows once the message has been sent, or received. */
static void exchange(transfer *t, bool send, void (*step)(transfer *t, weft_status *st))
{
  weft_status *st = post_message(t, send, &t->message_ended);

  if (st) fail(t, st);
  else after(t, t->message_ended, NULL, step);
}

static void set_error(message *m, const weft_status *st)
{
  m->code = (int32_t)weft_status_code(st);
  snprintf(m->text, sizeof m->text, "%s", st ? weft_status_message(st) : "");
}

/* The error in the peer's message; NULL: none. */
static weft_status *error_in(message *m)
{
  m->text[sizeof m->text - 1] = '\0';
  return m->code == WEFT_OK ? NULL : weft_status_new((weft_code)m->code, __FILE__, __LINE__, "%s", m->text);
}

/* ---- operations ---- */

static weft_status *post_operation(transfer *t)
{
  bool is_there = (t->side == SENDER ? t->out : t->in).number != 0; /* as the OFFER said */
  weft_coll_call call = {.site = {.executable = "cross-host transfer"}, .together = is_there};
  weft_coll_op op = {.kind = t->side == SENDER ? WEFT_SEND : WEFT_RECV, .dtype = WEFT_U8, .count = (size_t)t->bytes,
                     .peer = 1 - t->side, .source = -1, .target = -1, .tag = t->tag};
  weft_stream *stream = NULL;

  if (t->side == SENDER) {
    t->storage = weft_buffer_source(t->buffer, &stream, &call.stream_point);
    call.stream = stream;
    op.send = t->storage ? weft_storage_data(t->storage) : NULL;
  } else {
    op.recv = t->storage ? weft_storage_data(t->storage) : NULL;
  }
  return weft_coll_post(pjrt_link_device(t->link, t->side), &op, &call, &t->operation);
}

/* ---- a send ---- */

static void arrived(transfer *t, weft_status *st)
{
  if (st) fail(t, st);
  else end(t, error_in(&t->out)); /* the receiver gets the buffer's error, and so does this side */
}

static void verdict_given(transfer *t, weft_status *st)
{
  if (st) fail(t, st);
  else exchange(t, false, arrived);
}

static void defined(transfer *t, weft_status *st)
{
  set_error(&t->out, st);
  weft_status_free(st);
  exchange(t, true, verdict_given);
}

static void sent(transfer *t, weft_status *st)
{
  if (st) fail(t, st);
  else after(t, weft_buffer_defined(t->buffer), NULL, defined);
}

static void go_came(transfer *t, weft_status *st)
{
  if (st) {
    fail(t, st);
  } else if ((st = error_in(&t->in))) {
    end(t, st);
  } else {
    t->turn.number = t->in.number;
    pjrt_link_queue(t->link, &t->turn, true);
  }
}

static void offered(transfer *t, weft_status *st)
{
  if (st) fail(t, st);
  else if (t->out.code != WEFT_OK) end(t, error_in(&t->out));
  else exchange(t, false, go_came);
}

/* On a worker: the thread that makes a buffer readable may hold locks of the launch that it queues. */
static void offer(rt_job *job)
{
  transfer *t = WEFT_CONTAINER_OF(job, transfer, job);
  const weft_status *unlinked = weft_event_error(t->link->ready);

  if (unlinked) {
    end(t, weft_status_dup(unlinked));
    return;
  }
  t->out = (message){
    .dtype = (int32_t)t->dtype, .bytes = t->bytes, .number = weft_event_is_ready(weft_buffer_defined(t->buffer))};
  set_error(&t->out, weft_event_error(weft_buffer_readable(t->buffer)));
  exchange(t, true, offered);
}

static void readable(transfer *t, weft_status *st)
{
  weft_status_free(st); /* `offer` looks at both events */
  rt_pool_offer(weft_platform_pool(t->link->platform), &t->job, 1);
}

/* ---- a receive ---- */

static void verdict_came(transfer *t, weft_status *st)
{
  if (st) fail(t, st);
  else end(t, error_in(&t->in));
}

/* The VERDICT is awaited before ARRIVED is sent, because without room for small messages each side's send waits for the
 * other side's receive. */
static void received(transfer *t, weft_status *st)
{
  if (!st) st = post_message(t, false, &t->message_ended);
  if (st) {
    fail(t, st);
    return;
  }
  t->out = (message){0};
  st = post_message(t, true, &t->arrived_ended);
  if (st) { /* the receive that is posted ends with the link */
    atomic_store(&t->failure, weft_status_dup(st));
    pjrt_link_fail(t->link, st);
  }
  after(t, t->message_ended, t->arrived_ended, verdict_came);
}

static void go_given(transfer *t, weft_status *st)
{
  if (st) fail(t, st);
  else after(t, t->operation, NULL, received);
}

static void refused(transfer *t, weft_status *st)
{
  if (st) fail(t, st);
  else end(t, error_in(&t->out));
}

static void offer_came(transfer *t, weft_status *st)
{
  if (st) {
    fail(t, st);
    return;
  }
  if ((st = error_in(&t->in))) {
    end(t, st);
    return;
  }
  if (t->in.bytes == t->bytes && t->in.dtype == (int32_t)t->dtype) {
    pjrt_link_queue(t->link, &t->turn, false);
    return;
  }
  st = WEFT_ERR(INVALID_ARGUMENT, "transfer %llu: %lld bytes of type %d are sent, %lld bytes of %s are expected",
                (unsigned long long)t->tag, (long long)t->in.bytes, (int)t->in.dtype, (long long)t->bytes,
                weft_dtype_name(t->dtype));
  set_error(&t->out, st);
  weft_status_free(st);
  exchange(t, true, refused);
}

static void linked(transfer *t, weft_status *st)
{
  if (st) end(t, st);
  else exchange(t, false, offer_came);
}

/* ---- both ---- */

static void begin(pjrt_turn *turn, weft_status *st)
{
  transfer *t = WEFT_CONTAINER_OF(turn, transfer, turn);

  if (!st) st = post_operation(t);
  if (st) {
    fail(t, st);
  } else if (t->side == SENDER) {
    after(t, t->operation, NULL, sent);
  } else {
    t->out = (message){.number = t->turn.number};
    exchange(t, true, go_given);
  }
}

/* Takes `link` and `buffer` (NULL: a receive), also on failure. */
static weft_status *transfer_new(pjrt_link *link, weft_buffer *buffer, const weft_array_type *type, int64_t key,
                                 weft_event *done, transfer **out)
{
  transfer *t = calloc(1, sizeof *t);

  if (!t) {
    pjrt_link_give_back(link, buffer, NULL);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for a transfer");
  }
  t->job.run = offer;
  t->turn.begin = begin;
  t->link = link;
  t->side = buffer ? SENDER : RECEIVER;
  t->buffer = buffer;
  t->done = weft_event_retain(done);
  t->dtype = type->type;
  t->bytes = weft_array_bytes(type);
  t->tag = (uint64_t)key;
  *out = t;
  return NULL;
}

weft_status *pjrt_device_send(pjrt_link *link, weft_buffer *buffer, int64_t key, weft_event *done)
{
  transfer *t;

  WEFT_TRY(transfer_new(link, buffer, weft_buffer_type(buffer), key, done, &t));
  after(t, link->ready, weft_buffer_readable(buffer), readable);
  return NULL;
}

weft_status *pjrt_device_receive(pjrt_link *link, const weft_array_type *type, weft_storage *storage, int64_t key,
                                 weft_event *done)
{
  transfer *t;

  WEFT_TRY(transfer_new(link, NULL, type, key, done, &t));
  t->storage = weft_storage_retain(storage);
  after(t, link->ready, NULL, linked);
  return NULL;
}
