/* collective/context.c -- what a process has once: its groups, the descriptors that the progress thread sleeps on,
 * and its alarm clock. */
#include <config.h>

#include "collective/context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"

typedef struct watch {
  coll_group *group; /* borrowed: links are closed before their group is freed */
  uint64_t id;
  int fd;
} watch;

static struct {
  weft_mutex mu;
  coll_group *groups WEFT_GUARDED_BY(mu); /* borrowed; a group leaves the list before it is freed */
  int group_count WEFT_GUARDED_BY(mu);
  watch *watches WEFT_GUARDED_BY(mu);
  size_t watch_count WEFT_GUARDED_BY(mu), watch_capacity WEFT_GUARDED_BY(mu);
  int epoll_fd, wake_fd; /* open while the progress thread runs */
  atomic_ulong requests;         /* wake-ups asked for */
  _Atomic int64_t sleeps_until;  /* INT64_MAX while awake */
  atomic_bool asleep;
  atomic_ulong next_id;
  atomic_ulong rounds;
} context = {.mu = WEFT_MUTEX_INITIALIZER, .epoll_fd = -1, .wake_fd = -1, .next_id = 1};

uint64_t coll_context_next_id(void) { return atomic_fetch_add(&context.next_id, 1); }

void coll_context_ring(void)
{
  uint64_t one = 1;
  ssize_t written = write(context.wake_fd, &one, sizeof one);
  (void)written; /* if the eventfd's counter is full the descriptor is readable, which wakes the thread as well */
}

void coll_context_wake(void)
{
  atomic_fetch_add(&context.requests,
                   1); /* seq_cst: either the thread sees the request before it sleeps, or this thread sees `asleep` */
  if (atomic_load(&context.asleep)) coll_context_ring();
}

void coll_context_wake_by(int64_t at_ns)
{
  if (at_ns < atomic_load(&context.sleeps_until)) coll_context_wake();
}

static _Thread_local bool is_progress_thread;
void coll_context_enter(void) { is_progress_thread = true; }
bool coll_context_is_progress_thread(void) { return is_progress_thread; }

unsigned long coll_context_rounds(void) { return atomic_load_explicit(&context.rounds, memory_order_relaxed); }
unsigned long coll_context_requests(void) { return atomic_load(&context.requests); }

/* ---- watching descriptors ---- */

static weft_status *watch_for(int fd, coll_group *g, uint64_t id, uint32_t events)
{
  struct epoll_event event = {.events = events, .data.u64 = id};
  weft_status *st = NULL;
  size_t i = 0;

  weft_mutex_lock(&context.mu);
  while (i < context.watch_count && context.watches[i].fd != fd) i++;
  bool known = i < context.watch_count;
  if (!known && !WEFT_RESERVE(context.watches, context.watch_capacity, context.watch_count + 1, 8))
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
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

weft_status *coll_context_watch_once(int fd, coll_group *g, uint64_t id)
{
  return watch_for(fd, g, id, EPOLLIN | EPOLLONESHOT);
}

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

coll_group *coll_context_watcher(uint64_t id)
{
  coll_group *g = NULL;

  weft_mutex_lock(&context.mu);
  for (size_t i = 0; i < context.watch_count && !g; i++)
    if (context.watches[i].id == id && context.watches[i].group) g = coll_group_retain(context.watches[i].group);
  weft_mutex_unlock(&context.mu);
  return g;
}

/* ---- groups ---- */

void coll_context_add(coll_group *g)
{
  weft_mutex_lock(&context.mu);
  g->next_in_context = context.groups;
  context.groups = g;
  context.group_count++;
  weft_mutex_unlock(&context.mu);
}

int coll_context_remove(coll_group *g)
{
  weft_mutex_lock(&context.mu);
  for (coll_group **at = &context.groups; *at; at = &(*at)->next_in_context) {
    if (*at != g) continue;
    *at = g->next_in_context;
    context.group_count--;
    break;
  }
  int left = context.group_count;
  weft_mutex_unlock(&context.mu);
  return left;
}

coll_group *coll_context_find(uint64_t group_id, int rank)
{
  coll_group *found = NULL;

  weft_mutex_lock(&context.mu);
  for (coll_group *g = context.groups; g && !found; g = g->next_in_context)
    if (g->id == group_id && rank >= 0 && rank < g->size && g->local_of[rank] >= 0) found = coll_group_retain(g);
  weft_mutex_unlock(&context.mu);
  return found;
}

coll_group **coll_context_groups(coll_group **reuse, size_t *capacity, size_t *count)
{
  *count = 0;
  weft_mutex_lock(&context.mu);
  if ((size_t)context.group_count > *capacity) {
    free(reuse);
    *capacity = (size_t)context.group_count + 8;
    reuse = malloc(*capacity * sizeof *reuse);
    if (!reuse) *capacity = 0;
  }
  for (coll_group *g = context.groups; g && *count < *capacity; g = g->next_in_context)
    reuse[(*count)++] = coll_group_retain(g);
  weft_mutex_unlock(&context.mu);
  return reuse;
}

void coll_context_each(void (*visit)(coll_group *g, void *ctx), void *ctx)
{
  size_t capacity = 0, count;
  coll_group **groups = coll_context_groups(NULL, &capacity, &count);

  for (size_t i = 0; i < count; i++) {
    visit(groups[i], ctx);
    coll_group_release(groups[i]);
  }
  free(groups);
}

/* ---- sleeping ---- */

int coll_context_sleep(unsigned long seen, int64_t until_ns, bool *sleeps, uint64_t *ids, int most)
{
  struct epoll_event events[16];
  int count = 0;

  atomic_fetch_add_explicit(&context.rounds, 1, memory_order_relaxed);
  if (*sleeps) {
    atomic_store(&context.sleeps_until, until_ns);
    atomic_store(&context.asleep, true);
    if (atomic_load(&context.requests) != seen) *sleeps = false;
  }
  int timeout_ms = *sleeps ? weft_deadline_poll_ms((weft_deadline){until_ns}) : 0;
  int n = epoll_wait(context.epoll_fd, events, WEFT_MIN(most, (int)WEFT_COUNT(events)), timeout_ms);
  atomic_store(&context.asleep, false);
  atomic_store(&context.sleeps_until, INT64_MAX);
  for (int i = 0; i < n; i++) {
    if (events[i].data.u64 == UINT64_MAX) {
      uint64_t drained;
      ssize_t got = read(context.wake_fd, &drained, sizeof drained);
      (void)got;
    } else {
      ids[count++] = events[i].data.u64;
    }
  }
  return count;
}

/* ---- forks of the user's program ----
 *
 * A child has copies of this process's sockets.  While the child lived, the death of its parent would close none of
 * them, and no peer would hear of the death.  So the child closes its copies at once.  It cannot use its parent's
 * communicators. */

static void before_fork(void) WEFT_NO_THREAD_SAFETY { weft_mutex_lock(&context.mu); }
static void after_fork(void) WEFT_NO_THREAD_SAFETY { weft_mutex_unlock(&context.mu); }
static void in_child(void) WEFT_NO_THREAD_SAFETY
{
  for (size_t i = 0; i < context.watch_count; i++) close(context.watches[i].fd);
  after_fork();
}
static void mind_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

/* ---- opening and closing ---- */

void coll_context_close(void)
{
  if (context.epoll_fd >= 0) close(context.epoll_fd);
  if (context.wake_fd >= 0) close(context.wake_fd);
  context.epoll_fd = context.wake_fd = -1;
}

weft_status *coll_context_open(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, mind_forks);
  context.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  context.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
  if (context.epoll_fd < 0 || context.wake_fd < 0 ||
      epoll_ctl(context.epoll_fd, EPOLL_CTL_ADD, context.wake_fd, &event) != 0) {
    weft_status *st = WEFT_ERR(RESOURCE_EXHAUSTED, "progress thread: %s", strerror(errno));
    coll_context_close();
    return st;
  }
  atomic_store(&context.sleeps_until, INT64_MAX);
  return NULL;
}
