/* coord/loop.c -- an epoll loop, and jobs that other threads post to it. */
#include <config.h>

#include "coord/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/thread.h"

enum { EVENTS_PER_WAIT = 256, SHORT_WAITS_TO_SPIN = 8 };

struct coord_loop {
  int epoll_fd;
  coord_io wake; /* an eventfd: jobs have come */
  bool quit;
  int64_t spin_ns;
  const void *last_alone; /* the only descriptor with events in the last wait, or NULL; compared, not followed */
  int64_t short_waits;    /* waits in a row that were short and ended with that descriptor */
  struct epoll_event events[EVENTS_PER_WAIT]; /* the batch that is being worked on */
  int event_count;
  weft_mutex mu;
  coord_job *first_job WEFT_GUARDED_BY(mu);
  coord_job **last_job WEFT_GUARDED_BY(mu);
};

static void run_jobs(coord_io *io, uint32_t events)
{
  coord_loop *loop = WEFT_CONTAINER_OF(io, coord_loop, wake);
  uint64_t count;
  coord_job *jobs;

  (void)events;
  if (read(io->fd, &count, sizeof count) < 0) return; /* EAGAIN: another read took it */
  weft_mutex_lock(&loop->mu);
  jobs = loop->first_job;
  loop->first_job = NULL;
  loop->last_job = &loop->first_job;
  weft_mutex_unlock(&loop->mu);
  while (jobs) {
    coord_job *job = jobs;
    jobs = job->next;
    job->run(job);
  }
}

void coord_loop_post(coord_loop *loop, coord_job *job)
{
  static const uint64_t one = 1;
  bool was_empty;

  job->next = NULL;
  weft_mutex_lock(&loop->mu);
  was_empty = loop->first_job == NULL;
  *loop->last_job = job;
  loop->last_job = &job->next;
  /* Under the lock: once the job has run, its owner may free the loop. */
  /* full: the eventfd is readable anyway */
  if (was_empty && write(loop->wake.fd, &one, sizeof one) < 0) was_empty = false;
  weft_mutex_unlock(&loop->mu);
}

weft_status *coord_loop_new(coord_loop **out_loop) WEFT_UNSHARED
{
  coord_loop *loop = calloc(1, sizeof *loop);
  weft_status *st = NULL;

  *out_loop = NULL;
  WEFT_TRY_ALLOC(loop);
  weft_mutex_init(&loop->mu);
  loop->last_job = &loop->first_job;
  loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  loop->wake = (coord_io){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .ready = run_jobs};
  if (loop->epoll_fd < 0 || loop->wake.fd < 0)
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "cannot make an event loop: %s", strerror(errno));
  if (!st) st = coord_loop_add(loop, &loop->wake, EPOLLIN);
  if (st) coord_loop_free(loop);
  else *out_loop = loop;
  return st;
}

void coord_loop_free(coord_loop *loop)
{
  if (!loop) return;
  if (loop->wake.fd >= 0) close(loop->wake.fd);
  if (loop->epoll_fd >= 0) close(loop->epoll_fd);
  weft_mutex_fini(&loop->mu);
  free(loop);
}

weft_status *coord_loop_add(coord_loop *loop, coord_io *io, uint32_t events)
{
  struct epoll_event event = {.events = events, .data.ptr = io};

  if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, io->fd, &event) == 0) return NULL;
  return WEFT_ERR(RESOURCE_EXHAUSTED, "epoll: %s", strerror(errno));
}

void coord_loop_change(coord_loop *loop, coord_io *io, uint32_t events)
{
  struct epoll_event event = {.events = events, .data.ptr = io};

  epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, io->fd, &event); /* cannot fail for a descriptor that was added */
}

void coord_loop_remove(coord_loop *loop, coord_io *io)
{
  epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
  for (int i = 0; i < loop->event_count; i++) /* it may come later in this batch */
    if (loop->events[i].data.ptr == io) loop->events[i].data.ptr = NULL;
}

/* Prefetches what the next event's owner will use, and the descriptor of the event after that. */
static void prefetch_after(const coord_loop *loop, int i)
{
  const coord_io *next = i + 1 < loop->event_count ? loop->events[i + 1].data.ptr : NULL;

  if (i + 2 < loop->event_count) __builtin_prefetch(loop->events[i + 2].data.ptr);
  if (next && next->prefetch) next->prefetch(next);
}

void coord_loop_set_spin(coord_loop *loop, int64_t spin_ns) { loop->spin_ns = spin_ns; }

static void poll_events(coord_loop *loop, int timeout_ms)
{
  loop->event_count = epoll_wait(loop->epoll_fd, loop->events, EVENTS_PER_WAIT, timeout_ms);
}

/* Waits for a batch of events. It looks for them without sleeping only while that pays: when the last few waits were
 * shorter than spin_ns and one descriptor alone had events. That is a caller that makes its next call as soon as it
 * has its reply. With many callers nothing is gained: while a sleeping thread is woken the others' calls gather, and
 * a batch costs less than its parts. */
static void wait_for_events(coord_loop *loop, int64_t next_ns)
{
  int64_t began_ns = weft_now_ns(), spin_until_ns = WEFT_MIN(next_ns, began_ns + loop->spin_ns);
  const void *alone;

  loop->event_count = 0;
  while (loop->event_count == 0 && loop->short_waits >= SHORT_WAITS_TO_SPIN && weft_now_ns() < spin_until_ns)
    poll_events(loop, 0);
  if (loop->event_count == 0)
    poll_events(loop, next_ns == INT64_MAX ? -1 : weft_deadline_poll_ms((weft_deadline){next_ns}));
  alone = loop->event_count == 1 ? loop->events[0].data.ptr : NULL;
  if (alone && alone == loop->last_alone && weft_now_ns() - began_ns < loop->spin_ns) loop->short_waits++;
  else loop->short_waits = 0;
  loop->last_alone = alone;
}

void coord_loop_run(coord_loop *loop, int64_t (*after)(void *ctx, int64_t now_ns), void *ctx)
{
  int64_t next_ns;

  loop->quit = false;
  next_ns = after(ctx, weft_now_ns());
  while (!loop->quit) {
    wait_for_events(loop, next_ns);
    for (int i = 0; i < loop->event_count; i++) {
      coord_io *io = loop->events[i].data.ptr;
      prefetch_after(loop, i);
      if (io) io->ready(io, loop->events[i].events);
    }
    loop->event_count = 0;
    next_ns = after(ctx, weft_now_ns());
  }
}

void coord_loop_quit(coord_loop *loop) { loop->quit = true; }
