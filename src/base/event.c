/* base/event.c -- a one-shot completion with a status, shared between threads (event.h). */
#include <config.h>

#include "base/event.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/thread.h"

/* At most 120 bytes without assertions: malloc serves more from a slower list. */
struct weft_event {
  weft_mutex mu;
  weft_cond became_ready;
  atomic_int refs;
  atomic_bool ready;   /* release store in weft_event_set; pairs with the acquire load in weft_event_is_ready */
  bool awaited WEFT_GUARDED_BY(mu); /* a thread has waited for became_ready */
  weft_status *status; /* written before `ready`, immutable after */
  weft_event_waiter *first WEFT_GUARDED_BY(mu); /* in order of registration */
  weft_event_waiter **last WEFT_GUARDED_BY(mu);
};

weft_status *weft_event_new(weft_event **out_event) WEFT_UNSHARED
{
  weft_event *event = calloc(1, sizeof *event);

  *out_event = NULL;
  WEFT_TRY_ALLOC(event);
  atomic_init(&event->refs, 1);
  atomic_init(&event->ready, false);
  weft_mutex_init(&event->mu);
  weft_cond_init(&event->became_ready);
  event->last = &event->first;
  *out_event = event;
  return NULL;
}

weft_status *weft_event_new_ready(weft_status *st, weft_event **out_event)
{
  weft_status *failed = weft_event_new(out_event);

  if (failed) {
    weft_status_free(st);
    return failed;
  }
  weft_event_set(*out_event, st);
  return NULL;
}

weft_event *weft_event_retain(weft_event *event)
{
  atomic_fetch_add_explicit(&event->refs, 1, memory_order_relaxed); /* a caller's reference keeps it alive */
  return event;
}

void weft_event_release(weft_event *event) WEFT_UNSHARED
{
  /* acq_rel: what other holders did with the event happens before it is freed */
  if (!event || atomic_fetch_sub_explicit(&event->refs, 1, memory_order_acq_rel) != 1) return;
  /* the last reference is gone; waiters are left only if the event was never set */
  for (weft_event_waiter *w = event->first, *next; w; w = next) {
    next = w->next;
    if (w->owned) free(w);
  }
  weft_status_free(event->status);
  weft_cond_fini(&event->became_ready);
  weft_mutex_fini(&event->mu);
  free(event);
}

void weft_event_set(weft_event *event, weft_status *st)
{
  weft_event_waiter *waiters = NULL;
  bool first_call;

  weft_event_retain(event);
  weft_mutex_lock(&event->mu);
  first_call = !atomic_load_explicit(&event->ready, memory_order_relaxed);
  if (first_call) {
    event->status = st;
    atomic_store_explicit(&event->ready, true, memory_order_release);
    waiters = event->first;
    event->first = NULL;
    event->last = &event->first;
    if (event->awaited) weft_cond_broadcast(&event->became_ready);
  }
  weft_mutex_unlock(&event->mu);
  if (!first_call) weft_status_free(st);
  while (waiters) {
    weft_event_waiter *w = waiters;
    bool owned = w->owned;
    waiters = w->next;
    w->fn(w->ctx, event->status); /* the callback may free its slot */
    if (owned) free(w);
  }
  weft_event_release(event);
}

bool weft_event_is_ready(const weft_event *event) { return atomic_load_explicit(&event->ready, memory_order_acquire); }

const weft_status *weft_event_error(const weft_event *event) { return event->status; }

weft_status *weft_event_await(weft_event *event, weft_deadline deadline)
{
  bool ready = weft_event_is_ready(event);

  if (!ready) {
    weft_mutex_lock(&event->mu);
    event->awaited = true;
    while (!atomic_load_explicit(&event->ready, memory_order_relaxed) &&
           weft_cond_wait(&event->became_ready, &event->mu, deadline)) {}
    ready = atomic_load_explicit(&event->ready, memory_order_relaxed);
    weft_mutex_unlock(&event->mu);
  }
  if (!ready) return WEFT_ERR(DEADLINE_EXCEEDED, "event still pending at the deadline");
  return weft_status_dup(event->status);
}

static void add_waiter(weft_event *event, weft_event_waiter *slot, bool owned,
                       void (*fn)(void *ctx, const weft_status *error), void *ctx)
{
  bool ready = weft_event_is_ready(event);

  *slot = (weft_event_waiter){.fn = fn, .ctx = ctx, .owned = owned};
  if (!ready) {
    weft_mutex_lock(&event->mu);
    ready = atomic_load_explicit(&event->ready, memory_order_relaxed);
    if (!ready) {
      *event->last = slot;
      event->last = &slot->next;
    }
    weft_mutex_unlock(&event->mu);
  }
  if (!ready) return;
  fn(ctx, event->status);
  if (owned) free(slot);
}

void weft_event_on_ready_slot(weft_event *event, weft_event_waiter *slot,
                              void (*fn)(void *ctx, const weft_status *error), void *ctx)
{
  add_waiter(event, slot, false, fn, ctx);
}

weft_status *weft_event_on_ready(weft_event *event, void (*fn)(void *ctx, const weft_status *error), void *ctx)
{
  weft_event_waiter *waiter = calloc(1, sizeof *waiter);

  WEFT_TRY_ALLOC(waiter);
  add_waiter(event, waiter, true, fn, ctx);
  return NULL;
}
