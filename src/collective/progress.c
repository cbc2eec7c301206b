/* collective/progress.c -- the progress thread.
 *
 * It drives groups whose pending work no waiter drives, and the timers of all groups.  It polls while data moves and
 * for a bounded time after; then it arms the links, so that peers wake it, and sleeps until a descriptor is ready, a
 * wake-up is requested or the next timer is due.  It lives while the process has communicators. */
#include <config.h>

#include "collective/progress.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "collective/context.h"
#include "collective/diagnose.h"
#include "collective/flight_text.h"
#include "collective/host/host.h"
#include "collective/host/link.h"
#include "collective/listener.h"
#include "collective/transport/transport.h"

/* Serialises starts and stops of the thread. */
static weft_mutex life = WEFT_MUTEX_INITIALIZER;
static pthread_t thread WEFT_GUARDED_BY(life);
static bool running WEFT_GUARDED_BY(life);
static atomic_bool stop, dump_wanted; /* dump_wanted: SIGUSR1 has come */

static void on_signal(int number)
{
  int saved = errno;
  (void)number;
  atomic_store(&dump_wanted, true);
  coll_context_ring();
  errno = saved;
}

static void dispatch(uint64_t id)
{
  coll_group *g = coll_context_watcher(id);

  if (!g) return; /* closed since */
  coll_group_lock(g);
  coll_link_ready_locked(g, id);
  coll_group_unlock(g);
  coll_group_release(g);
}

typedef struct round_result {
  bool moved, polls; /* polls: something is pending on a link that no other thread drives */
  int64_t spin_ns;   /* the longest of all groups */
  int64_t next_timer_ns;
} round_result;

static bool needs_driving(coll_group *g)
{
  return atomic_load_explicit(&g->pending, memory_order_relaxed) > 0 ||
         atomic_load_explicit(&g->unsent, memory_order_relaxed);
}

static void drive(coll_group *g, int64_t now_ns, round_result *r)
{
  if (!needs_driving(g)) return;
  bool helped = atomic_load_explicit(&g->helpers, memory_order_relaxed) > 0;
  if (!coll_group_try_lock(g)) {
    /* another thread has the lock, and may change the timers under it: this thread looks again soon */
    r->moved = true;
    r->next_timer_ns = WEFT_MIN(r->next_timer_ns, now_ns + WEFT_NS_PER_MS);
    return;
  }
  if (!helped) r->moved |= coll_group_progress_locked(g);
  coll_group_timers_locked(g, now_ns);
  bool unsent = atomic_load_explicit(&g->unsent, memory_order_relaxed);
  r->spin_ns = WEFT_MAX(r->spin_ns, coll_group_spin_ns(g));
  r->polls |= !helped && g->open_links && (g->all_pending || unsent);
  int64_t nap_ns = unsent ? WEFT_NS_PER_MS : coll_transports_nap_ns(g, now_ns);
  if (nap_ns) r->next_timer_ns = WEFT_MIN(r->next_timer_ns, now_ns + nap_ns);
  r->next_timer_ns = WEFT_MIN(r->next_timer_ns, atomic_load_explicit(&g->next_timer_ns, memory_order_relaxed));
  coll_group_unlock(g);
}

static bool arm(coll_group *g)
{
  if (!needs_driving(g) || atomic_load_explicit(&g->helpers, memory_order_relaxed) > 0)
    return true; /* a helper polls the links, and wakes this thread when it stops */
  coll_group_lock(g);
  bool quiet = !g->open_links || coll_links_arm_locked(g);
  coll_group_unlock(g);
  return quiet;
}

/* One round: drives all groups.  Returns whether the thread may sleep after it. */
static bool drive_all(coll_group **groups, size_t count, round_result *r, int64_t *moved_at_ns)
{
  int64_t now_ns = weft_now_ns();

  for (size_t i = 0; i < count; i++) drive(groups[i], now_ns, r);
  if (r->moved) *moved_at_ns = now_ns;
  bool sleeps = !r->polls || now_ns - *moved_at_ns > r->spin_ns;
  for (size_t i = 0; i < count; i++) {
    sleeps = sleeps && arm(groups[i]);
    coll_group_release(groups[i]);
  }
  r->next_timer_ns = WEFT_MIN(r->next_timer_ns, coll_listener_timer_ns());
  return sleeps;
}

static void *progress(void *unused)
{
  int64_t moved_at_ns = 0;
  size_t capacity = 0, count = 0;
  coll_group **groups = NULL;

  (void)unused;
  coll_context_enter();
  while (!atomic_load(&stop)) {
    unsigned long seen = coll_context_requests();
    round_result r = {.next_timer_ns = INT64_MAX};
    uint64_t ids[16];

    if (coll_listener_is_due()) coll_listener_ready();
    groups = coll_context_groups(groups, &capacity, &count);
    bool sleeps = drive_all(groups, count, &r, &moved_at_ns), knocks = false;
    if (!sleeps) sched_yield();
    int n = coll_context_sleep(seen, r.next_timer_ns, &sleeps, ids, WEFT_COUNT(ids));
    for (int i = 0; i < n; i++) {
      knocks |= ids[i] == 0;
      if (ids[i]) dispatch(ids[i]);
    }
    if (knocks) coll_listener_ready();
    if (sleeps) moved_at_ns = weft_now_ns(); /* something woke the thread: it polls for a while */
    if (atomic_exchange(&dump_wanted, false)) coll_flight_dump(stderr);
  }
  free(groups);
  return NULL;
}

static weft_status *start_locked(void) WEFT_REQUIRES(life)
{
  weft_mutex_assert_held(&life);
  WEFT_TRY(coll_context_open());
  atomic_store(&stop, false);
  if (coll_settings_get()->dump_on_signal) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
  }
  weft_status *st = weft_thread_start(&thread, "weft-coll", progress, NULL);
  if (st) coll_context_close();
  running = !st;
  return st;
}

weft_status *coll_progress_add(coll_group *g)
{
  weft_status *st = NULL;

  weft_mutex_lock(&life);
  if (!running) st = start_locked();
  if (!st) coll_context_add(g);
  weft_mutex_unlock(&life);
  return st;
}

void coll_progress_remove(coll_group *g)
{
  weft_mutex_lock(&life);
  bool last = coll_context_remove(g) == 0;
  /* called by a callback on the progress thread itself, which goes on */
  bool self = running && coll_context_is_progress_thread();
  if (last && running && !self) {
    running = false;
    atomic_store(&stop, true);
    coll_context_ring();
    pthread_join(thread, NULL);
    coll_listener_stop();
    coll_context_close();
  }
  weft_mutex_unlock(&life);
}
