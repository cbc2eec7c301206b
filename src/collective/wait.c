/* collective/wait.c -- a thread that waits for an operation works on the operation first, and then sleeps. */
#include <config.h>

#include "collective/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collective/context.h"
#include "collective/diagnose.h"
#include "collective/host/host.h"

bool coll_wait_working(coll_group *g, bool (*ready)(void *ctx), void *ctx, int64_t until_ns)
{
  int64_t since_ns = 0;
  bool done = ready(ctx), polls = !g->use_direct && !done;

  if (polls) atomic_fetch_add_explicit(&g->helpers, 1, memory_order_relaxed);
  for (int spins = 1; !done; spins++) {
    /* Where all ranks are here, the rank that arrives last does the work: only large work is worth joining.  This
     * thread looks at the group only when it rests, because the thread that works has the group's cache lines. */
    bool rests = spins % g->spins == 0;
    bool useful = polls || (rests && atomic_load_explicit(&g->direct.running, memory_order_relaxed)), moved = false;
    if (useful && coll_group_try_lock(g)) {
      moved = coll_group_progress_locked(g);
      coll_group_unlock(g);
    }
    if ((done = ready(ctx))) break;
    if (moved) since_ns = 0;
    /* a poll that takes a system call lasts as long as a yield */
    bool looked_long = polls && atomic_load_explicit(&g->polls_slowly, memory_order_relaxed);
    if (!looked_long && !rests) {
      coll_cpu_relax();
      continue;
    }
    sched_yield();
    int64_t now_ns = weft_now_ns();
    if (since_ns == 0) since_ns = now_ns;
    if (now_ns - since_ns > coll_group_spin_ns(g) || now_ns >= until_ns) break;
    if (now_ns >= atomic_load_explicit(&g->next_timer_ns, memory_order_relaxed)) {
      coll_group_lock(g);
      coll_group_timers_locked(g, now_ns);
      coll_group_unlock(g);
    }
  }
  bool last = polls && atomic_fetch_sub_explicit(&g->helpers, 1, memory_order_relaxed) == 1;
  /* the progress thread, which may sleep beside helpers without watching the links, has to drive what is left */
  if (last && atomic_load_explicit(&g->pending, memory_order_relaxed) > 0) coll_context_wake();
  if (atomic_load_explicit(&g->unsent, memory_order_relaxed)) coll_context_wake_by(weft_now_ns() + WEFT_NS_PER_MS);
  return done;
}

static bool event_ready(void *event) { return weft_event_is_ready(event); }
bool coll_waiter_ready(void *waiter)
{
  return atomic_load_explicit(&((weft_coll_waiter *)waiter)->state, memory_order_acquire) == COLL_WAITER_DONE;
}

weft_status *weft_coll_wait(weft_comm *comm, weft_event *event)
{
  coll_comm_retain(comm); /* another thread may destroy the communicator, which ends the operation */
  if (!coll_wait_working(comm->group, event_ready, event, INT64_MAX)) coll_context_wake();
  coll_comm_release(comm);
  return weft_event_await(event, WEFT_NO_DEADLINE); /* no deadline here: every operation has its own */
}

void coll_waiter_await(weft_coll_waiter *w)
{
  int looks = COLL_WAITER_LOOKS;

  coll_context_wake();
  atomic_compare_exchange_strong_explicit(&w->state, &looks, COLL_WAITER_SLEEPS, memory_order_acq_rel,
                                          memory_order_acquire);
  while (!coll_waiter_ready(w)) syscall(SYS_futex, &w->state, FUTEX_WAIT_PRIVATE, COLL_WAITER_SLEEPS, NULL, NULL, 0);
}

bool coll_waiter_leave(weft_coll_waiter *w)
{
  int looks = COLL_WAITER_LOOKS;

  return atomic_compare_exchange_strong_explicit(&w->state, &looks, COLL_WAITER_LEFT, memory_order_acq_rel,
                                                 memory_order_acquire);
}
