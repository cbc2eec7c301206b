/* runtime/lender.h -- the *lender*: a thread that waits for its launch, and runs the launch's host callbacks meanwhile.
 *
 * A callback into the language of that thread then has the thread's own state (Python's contexts), and needs no other
 * thread. */
#ifndef WEFT_RUNTIME_LENDER_H
#define WEFT_RUNTIME_LENDER_H

#include "base/event.h"
#include "base/thread.h"

typedef struct rt_lender {
  weft_mutex mu;
  weft_cond changed;
  bool busy WEFT_GUARDED_BY(mu);               /* from an offer that was taken to rt_lender_give_back */
  void (*call)(void *arg) WEFT_GUARDED_BY(mu); /* offered and not begun, or NULL */
  void *arg WEFT_GUARDED_BY(mu);
  int pending WEFT_GUARDED_BY(mu);             /* events not ready yet */
} rt_lender;

void rt_lender_init(rt_lender *lender); /* the caller's memory; the calling thread must then call rt_lender_serve */
void rt_lender_fini(rt_lender *lender);

/* Asks the lending thread to call call(arg) soon. False if that thread has another callback already; callbacks may
 * wait for each other, so the caller then runs its own elsewhere. Not to be called once the events that the lending
 * thread waits for are ready. Thread-safe. */
bool rt_lender_offer(rt_lender *lender, void (*call)(void *arg), void *arg);
/* Must be called once inside call(arg), when the call will not block any more: the thread then takes the next offer. */
void rt_lender_give_back(rt_lender *lender);

/* Serves offers until all `count` events are ready. `slots`: memory for as many waiters. */
void rt_lender_serve(rt_lender *lender, weft_event *const *events, int count, weft_event_waiter *slots);

#endif
