/* runtime/lender.c -- a thread that runs a launch's host callbacks while it waits for the launch (lender.h). */
#include <config.h>

#include "runtime/lender.h"

void rt_lender_init(rt_lender *lender)
{
  *lender = (rt_lender){0};
  weft_mutex_init(&lender->mu);
  weft_cond_init(&lender->changed);
}

void rt_lender_fini(rt_lender *lender)
{
  weft_cond_fini(&lender->changed);
  weft_mutex_fini(&lender->mu);
}

bool rt_lender_offer(rt_lender *lender, void (*call)(void *arg), void *arg)
{
  bool taken;

  weft_mutex_lock(&lender->mu);
  taken = !lender->busy;
  if (taken) {
    lender->busy = true;
    lender->call = call;
    lender->arg = arg;
    weft_cond_signal(&lender->changed);
  }
  weft_mutex_unlock(&lender->mu);
  return taken;
}

void rt_lender_give_back(rt_lender *lender)
{
  weft_mutex_lock(&lender->mu);
  lender->busy = false;
  weft_mutex_unlock(&lender->mu);
}

/* Signals under the lock: the lender's memory may be gone once the lock is free. */
static void event_ready(void *ctx, const weft_status *error)
{
  rt_lender *lender = ctx;

  (void)error;
  weft_mutex_lock(&lender->mu);
  lender->pending--;
  weft_cond_signal(&lender->changed);
  weft_mutex_unlock(&lender->mu);
}

void rt_lender_serve(rt_lender *lender, weft_event *const *events, int count, weft_event_waiter *slots)
{
  weft_mutex_lock(&lender->mu);
  lender->pending = count;
  weft_mutex_unlock(&lender->mu);
  for (int i = 0; i < count; i++) weft_event_on_ready_slot(events[i], &slots[i], event_ready, lender);
  weft_mutex_lock(&lender->mu);
  while (lender->pending > 0) {
    if (!lender->call) {
      weft_cond_wait(&lender->changed, &lender->mu, WEFT_NO_DEADLINE); /* docs/adr/0003 */
      continue;
    }
    void (*call)(void *arg) = lender->call;
    void *arg = lender->arg;
    lender->call = NULL;
    weft_mutex_unlock(&lender->mu);
    call(arg);
    weft_mutex_lock(&lender->mu);
  }
  weft_mutex_unlock(&lender->mu);
}
