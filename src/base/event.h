/* base/event.h -- a one-shot completion with a status, shared between threads.
 * Pending until weft_event_set; then ready for ever, with success (NULL) or an error. */
#ifndef WEFT_BASE_EVENT_H
#define WEFT_BASE_EVENT_H

#include <stdbool.h>

#include "base/deadline.h"
#include "base/status.h"

WEFT_PUBLIC_BEGIN

/* Reference-counted; every function is thread-safe. */
typedef struct weft_event weft_event;

/* A pending event with one reference. */
WEFT_NODISCARD weft_status *weft_event_new(weft_event **out_event);

/* An event that is ready from the start.  Takes `st` (NULL: success). */
WEFT_NODISCARD weft_status *weft_event_new_ready(weft_status *st, weft_event **out_event);

weft_event *weft_event_retain(weft_event *event); /* returns event */
void weft_event_release(weft_event *event); /* NULL is fine; callbacks still run when another holder sets the event */
WEFT_DEFINE_AUTO(weft_event, weft_event_release)

/* Makes the event ready, once; a second call is ignored (its status is freed).  Takes `st`.  Wakes waiters, then runs
 * the callbacks on the calling thread with no lock held.  Holds a reference to the event meanwhile, so that a callback
 * may release the caller's reference. */
void weft_event_set(weft_event *event, weft_status *st);

bool weft_event_is_ready(const weft_event *event); /* acquire: what was done before weft_event_set is visible */

/* The error of a ready event, borrowed from it; NULL for success.  Undefined before it is ready. */
const weft_status *weft_event_error(const weft_event *event);

/* Waits until the event is ready; returns a copy of its error, or NULL for success.  Errors: DEADLINE_EXCEEDED if
 * the event is still pending at `deadline`. */
WEFT_NODISCARD weft_status *weft_event_await(weft_event *event, weft_deadline deadline);

/* Calls fn(ctx, error) exactly once: at once on this thread if the event is ready, else from weft_event_set.
 * `error` is borrowed for the call.  Errors: RESOURCE_EXHAUSTED; fn is not called then. */
WEFT_NODISCARD weft_status *weft_event_on_ready(weft_event *event, void (*fn)(void *ctx, const weft_status *error),
                                                void *ctx);

/* The same without an allocation: the caller provides `slot`, which must stay valid until fn has been called. */
typedef struct weft_event_waiter {
  struct weft_event_waiter *next;
  void (*fn)(void *ctx, const weft_status *error);
  void *ctx;
  bool owned; /* private */
} weft_event_waiter;
void weft_event_on_ready_slot(weft_event *event, weft_event_waiter *slot,
                              void (*fn)(void *ctx, const weft_status *error), void *ctx);

WEFT_PUBLIC_END

#endif
