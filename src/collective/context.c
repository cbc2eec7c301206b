/* collective/context.c -- the progress thread.
 *
 * It drives groups with pending work that no waiter drives, and the timers of all.  It polls while things move and for
 * a bounded time after, then arms the links (so that peers ring) and sleeps in epoll until a descriptor, a wake-up or
 * the next timer.  It lives while the process has communicators. */
#include <config.h>

#include "collective/context.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/fabric/fabric.h"
#include "collective/flight.h"
#include "collective/link.h"
#include "collective/listener.h"

typedef struct watch {
  coll_group *group; /* borrowed: links go before their group */
  uint64_t id;
  int fd;
} watch;

static struct {
  weft_mutex mu;
  coll_group *groups WEFT_GUARDED_BY(mu); /* borrowed; each leaves before it is freed */
  int group_count WEFT_GUARDED_BY(mu);
  watch *watches WEFT_GUARDED_BY(mu);
  size_t watch_count, watch_capacity WEFT_GUARDED_BY(mu);
  pthread_t thread WEFT_GUARDED_BY(mu);
  bool running WEFT_GUARDED_BY(mu);
  int epoll_fd, wake_fd; /* open while running */
  atomic_bool stop;
  atomic_ulong requests;         /* wake-ups asked for */
  _Atomic int64_t sleeps_until;  /* INT64_MAX while awake */
  atomic_bool asleep;
  atomic_ulong next_id;
} context = {.mu = WEFT_MUTEX_INITIALIZER, .epoll_fd = -1, .wake_fd = -1, .next_id = 1};

static atomic_bool dump_wanted; /* by SIGUSR1 */

uint64_t coll_context_next_id(void) { return atomic_fetch_add(&context.next_id, 1); }

static void ring(void)
{
  uint64_t one = 1;
  ssize_t written = write(context.wake_fd, &one, sizeof one);
  (void)written; /* a full counter wakes as well */
}

void coll_context_wake(void)
{
  atomic_fetch_add(&context.requests, 1); /* seq_cst: either the thread sees this before it sleeps, or we see `asleep` */
  if (atomic_load(&context.asleep)) ring();
}

void coll_context_wake_by(int64_t at_ns)
{
  if (at_ns < atomic_load(&context.sleeps_until)) coll_context_wake();
}

static void on_signal(int number)
{
  int saved = errno;
  (void)number;
  atomic_store(&dump_wanted, true);
  ring();
  errno = saved;
}

/* ---- watching descriptors ---- */

static weft_status *watch_for(int fd, coll_group *g, uint64_t id, uint32_t events)
{
  struct epoll_event event = {.events = events, .data.u64 = id};
  weft_status *st = NULL;
  size_t i = 0;

  weft_mutex_lock(&context.mu);
  while (i < context.watch_count && context.watches[i].fd != fd) i++;
  bool known = i < context.watch_count;
  if (!known && context.watch_count == context.watch_capacity) {
    size_t capacity = 2 * context.watch_capacity + 8;
    watch *grown = realloc(context.watches, capacity * sizeof *grown);
    if (grown) {
      context.watches = grown;
      context.watch_capacity = capacity;
    } else {
      st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    }
  }
  if (!st && epoll_ctl(context.epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0)
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "epoll: %s", strerror(errno));
  if (!st && !known) context.watches[context.watch_count++] = (watch){g, id, fd};
  weft_mutex_unlock(&context.mu);
  return st;
}

weft_status *coll_context_watch(int fd, coll_group *g, uint64_t id, bool output)
{
  return watch_for(fd, g, id, EPOLLIN | EPOLLRDHUP | (output ? EPOLLOUT : 0));
}

weft_status *coll_context_watch_once(int fd, coll_group *g, uint64_t id) { return watch_for(fd, g, id, EPOLLIN | EPOLLONESHOT); }

void coll_context_unwatch(int fd)
{
  weft_mutex_lock(&context.mu);
  for (size_t i = 0; i < context.watch_count; i++) {
    if (context.watches[i].fd != fd) continue;
    context.watches[i] = context.watches[--context.watch_count];
    epoll_ctl(context.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    break;
  }
  weft_mutex_unlock(&context.mu);
}

static void dispatch(uint64_t id)
{
  coll_group *g = NULL;

  weft_mutex_lock(&context.mu);
  for (size_t i = 0; i < context.watch_count; i++)
    if (context.watches[i].id == id && context.watches[i].group) g = coll_group_retain(context.watches[i].group);
  weft_mutex_unlock(&context.mu);
  if (!g) return; /* closed since */
  coll_group_lock(g);
  coll_link_ready_locked(g, id);
  coll_group_unlock(g);
  coll_group_release(g);
}

/* ---- groups ---- */

coll_group *coll_context_find(uint64_t group_id, int rank)
{
  coll_group *found = NULL;

  weft_mutex_lock(&context.mu);
  for (coll_group *g = context.groups; g && !found; g = g->next_in_context)
    if (g->id == group_id && rank >= 0 && rank < g->size && g->local_of[rank] >= 0) found = coll_group_retain(g);
  weft_mutex_unlock(&context.mu);
  return found;
}

/* All groups, retained, in a malloc'd array. */
static coll_group **snapshot(coll_group **reuse, size_t *capacity, size_t *count)
{
  *count = 0;
  weft_mutex_lock(&context.mu);
  if ((size_t)context.group_count > *capacity) {
    free(reuse);
    *capacity = (size_t)context.group_count + 8;
    reuse = malloc(*capacity * sizeof *reuse);
    if (!reuse) *capacity = 0;
  }
  for (coll_group *g = context.groups; g && *count < *capacity; g = g->next_in_context) reuse[(*count)++] = coll_group_retain(g);
  weft_mutex_unlock(&context.mu);
  return reuse;
}

void coll_context_each(void (*visit)(coll_group *g, void *ctx), void *ctx)
{
  size_t capacity = 0, count;
  coll_group **groups = snapshot(NULL, &capacity, &count);

  for (size_t i = 0; i < count; i++) {
    visit(groups[i], ctx);
    coll_group_release(groups[i]);
  }
  free(groups);
}

/* ---- the dead ---- */

/* A connection may also have been cut between two processes that live.  So it is believed for as long as the coordination service
 * takes to notice a death (its heartbeat timeout); what that reports is final. */
enum { MOST_DEAD = 256 };
#define BELIEVED_NS (100 * WEFT_NS_PER_S)

typedef struct death {
  uint64_t incarnation;
  int64_t when_ns;
} death;

static struct {
  weft_mutex mu; /* innermost */
  death of[MOST_DEAD] WEFT_GUARDED_BY(mu); /* the newest */
  size_t count WEFT_GUARDED_BY(mu);
} obituary = {.mu = WEFT_MUTEX_INITIALIZER};

void coll_obituary_add(uint64_t incarnation)
{
  if (coll_obituary_has(incarnation)) return;
  weft_mutex_lock(&obituary.mu);
  obituary.of[obituary.count++ % MOST_DEAD] = (death){.incarnation = incarnation, .when_ns = weft_now_ns()};
  weft_mutex_unlock(&obituary.mu);
}

bool coll_obituary_has(uint64_t incarnation)
{
  int64_t since = weft_now_ns() - BELIEVED_NS;
  bool found = false;

  weft_mutex_lock(&obituary.mu);
  for (size_t i = 0; i < WEFT_MIN(obituary.count, (size_t)MOST_DEAD); i++)
    found |= obituary.of[i].incarnation == incarnation && obituary.of[i].when_ns > since;
  weft_mutex_unlock(&obituary.mu);
  return found;
}

/* ---- the thread ---- */

typedef struct round_result {
  bool moved, polls; /* polls: something is pending on a link that only we drive */
  int64_t spin_ns;   /* the longest of the groups' */
  int64_t next_timer_ns;
} round_result;

static bool needs_driving(coll_group *g)
{
  return atomic_load_explicit(&g->pending, memory_order_relaxed) > 0 || atomic_load_explicit(&g->unsent, memory_order_relaxed);
}

static void drive(coll_group *g, int64_t now_ns, round_result *r)
{
  if (!needs_driving(g)) return;
  bool helped = atomic_load_explicit(&g->helpers, memory_order_relaxed) > 0;
  if (!coll_group_try_lock(g)) {
    r->moved = true; /* look again soon */
    return;
  }
  if (!helped) r->moved |= coll_group_progress_locked(g);
  coll_group_timers_locked(g, now_ns);
  bool unsent = atomic_load_explicit(&g->unsent, memory_order_relaxed);
  r->spin_ns = WEFT_MAX(r->spin_ns, coll_group_spin_ns(g));
  r->polls |= !helped && g->open_links && (g->all_pending || unsent);
  int64_t nap_ns = unsent ? WEFT_NS_PER_MS : coll_fabric_nap_ns(g, now_ns);
  if (nap_ns) r->next_timer_ns = WEFT_MIN(r->next_timer_ns, now_ns + nap_ns);
  r->next_timer_ns = WEFT_MIN(r->next_timer_ns, atomic_load_explicit(&g->next_timer_ns, memory_order_relaxed));
  coll_group_unlock(g);
}

static bool arm(coll_group *g)
{
  if (!needs_driving(g) || atomic_load_explicit(&g->helpers, memory_order_relaxed) > 0)
    return true; /* a helper polls, and wakes us when it gives up */
  coll_group_lock(g);
  bool quiet = !g->open_links || coll_links_arm_locked(g);
  coll_group_unlock(g);
  return quiet;
}

static int timeout_ms(int64_t next_timer_ns)
{
  return weft_deadline_poll_ms((weft_deadline){next_timer_ns});
}

static void *progress(void *unused)
{
  int64_t moved_at_ns = 0;
  size_t capacity = 0, count = 0;
  coll_group **groups = NULL;

  (void)unused;
  while (!atomic_load(&context.stop)) {
    unsigned long seen = atomic_load(&context.requests);
    round_result r = {.next_timer_ns = INT64_MAX};
    int64_t now_ns = weft_now_ns();
    struct epoll_event events[16];
    bool sleeps;

    if (coll_listener_is_due()) coll_listener_ready();
    groups = snapshot(groups, &capacity, &count);
    for (size_t i = 0; i < count; i++) drive(groups[i], now_ns, &r);
    if (r.moved) moved_at_ns = now_ns;
    sleeps = !r.polls || now_ns - moved_at_ns > r.spin_ns;
    for (size_t i = 0; i < count; i++) {
      sleeps = sleeps && arm(groups[i]);
      coll_group_release(groups[i]);
    }
    r.next_timer_ns = WEFT_MIN(r.next_timer_ns, coll_listener_timer_ns());
    if (sleeps) {
      atomic_store(&context.sleeps_until, r.next_timer_ns);
      atomic_store(&context.asleep, true);
      if (atomic_load(&context.requests) != seen) sleeps = false;
    } else {
      sched_yield();
    }
    int n = epoll_wait(context.epoll_fd, events, WEFT_COUNT(events), sleeps ? timeout_ms(r.next_timer_ns) : 0);
    atomic_store(&context.asleep, false);
    atomic_store(&context.sleeps_until, INT64_MAX);
    bool knocks = false;
    for (int i = 0; i < n; i++) {
      knocks |= events[i].data.u64 == 0;
      if (events[i].data.u64 == UINT64_MAX) {
        uint64_t drained;
        ssize_t got = read(context.wake_fd, &drained, sizeof drained);
        (void)got;
      } else if (events[i].data.u64) {
        dispatch(events[i].data.u64);
      }
    }
    if (knocks) coll_listener_ready();
    if (sleeps) moved_at_ns = weft_now_ns(); /* something woke us: poll for a while */
    if (atomic_exchange(&dump_wanted, false)) coll_flight_dump(stderr);
  }
  free(groups);
  return NULL;
}

/* ---- forks of the user's program ----
 *
 * A child has copies of our sockets: while it lived, the death of its parent would close none of them, and no peer would
 * hear of it.  So it closes them at once.  It cannot use its parent's communicators. */

static void before_fork(void) WEFT_NO_THREAD_SAFETY { weft_mutex_lock(&context.mu); }
static void after_fork(void) WEFT_NO_THREAD_SAFETY { weft_mutex_unlock(&context.mu); }
static void in_child(void) WEFT_NO_THREAD_SAFETY
{
  for (size_t i = 0; i < context.watch_count; i++) close(context.watches[i].fd);
  after_fork();
}
static void mind_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

static weft_status *start_locked(void) WEFT_REQUIRES(context.mu)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, mind_forks);
  context.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  context.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
  if (context.epoll_fd < 0 || context.wake_fd < 0 || epoll_ctl(context.epoll_fd, EPOLL_CTL_ADD, context.wake_fd, &event) != 0)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "progress thread: %s", strerror(errno));
  atomic_store(&context.stop, false);
  atomic_store(&context.sleeps_until, INT64_MAX);
  if (coll_settings_get()->dump_on_signal) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
  }
  WEFT_TRY(weft_thread_start(&context.thread, "weft-coll", progress, NULL));
  context.running = true;
  return NULL;
}

static void close_descriptors(void)
{
  if (context.epoll_fd >= 0) close(context.epoll_fd);
  if (context.wake_fd >= 0) close(context.wake_fd);
  context.epoll_fd = context.wake_fd = -1;
}

/* Serialises starts and stops of the thread. */
static weft_mutex life = WEFT_MUTEX_INITIALIZER;

weft_status *coll_context_add(coll_group *g)
{
  weft_status *st = NULL;

  weft_mutex_lock(&life);
  weft_mutex_lock(&context.mu);
  if (!context.running && (st = start_locked())) close_descriptors();
  if (!st) {
    g->next_in_context = context.groups;
    context.groups = g;
    context.group_count++;
  }
  weft_mutex_unlock(&context.mu);
  weft_mutex_unlock(&life);
  return st;
}

void coll_context_remove(coll_group *g)
{
  bool last = false, self = false;
  pthread_t thread;

  weft_mutex_lock(&life);
  weft_mutex_lock(&context.mu);
  for (coll_group **at = &context.groups; *at; at = &(*at)->next_in_context) {
    if (*at != g) continue;
    *at = g->next_in_context;
    last = --context.group_count == 0;
    break;
  }
  thread = context.thread;
  self = context.running && pthread_equal(thread, pthread_self()); /* in a callback of ours: the thread stays */
  if (last && !self) context.running = false;
  weft_mutex_unlock(&context.mu);
  if (last && !self) {
    atomic_store(&context.stop, true);
    ring();
    pthread_join(thread, NULL);
    coll_listener_stop();
    close_descriptors();
  }
  weft_mutex_unlock(&life);
}
