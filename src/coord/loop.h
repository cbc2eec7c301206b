/* coord/loop.h -- one thread's event loop over epoll: descriptors, jobs from other threads, one clock. */
#ifndef WEFT_COORD_LOOP_H
#define WEFT_COORD_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct coord_loop coord_loop;

/* A descriptor that the loop watches; embedded by its owner. */
typedef struct coord_io {
  int fd;
  void (*ready)(struct coord_io *io, uint32_t events); /* EPOLLIN, EPOLLOUT, ... ; may remove any io, also its own */
  void (*prefetch)(const struct coord_io *io);         /* NULL, or brings into the caches what `ready` will use */
} coord_io;

/* Work for the loop's thread. The caller owns the memory and keeps it in place until `run` is called. */
typedef struct coord_job {
  struct coord_job *next;
  void (*run)(struct coord_job *job);
} coord_job;

/* Makes a loop without a thread: the thread that calls coord_loop_run is the loop's thread. Errors:
 * RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coord_loop_new(coord_loop **out_loop);
void coord_loop_free(coord_loop *loop); /* NULL is fine; the thread has returned; jobs not yet run stay the callers' */

/* Level-triggered.  Loop thread only. */
WEFT_NODISCARD weft_status *coord_loop_add(coord_loop *loop, coord_io *io, uint32_t events);
void coord_loop_change(coord_loop *loop, coord_io *io, uint32_t events);
void coord_loop_remove(coord_loop *loop, coord_io *io);

/* Thread-safe.  Jobs run in order. */
void coord_loop_post(coord_loop *loop, coord_job *job);

/* Lets the loop look for events for up to spin_ns before it sleeps, as long as events come that fast, because waking a
 * thread takes longer than a small call. 0, the default: it sleeps at once. */
void coord_loop_set_spin(coord_loop *loop, int64_t spin_ns);

/* Runs until coord_loop_quit. After each batch of events it calls `after` with the time; `after` returns the latest
 * time for its next call (INT64_MAX: only after events). */
void coord_loop_run(coord_loop *loop, int64_t (*after)(void *ctx, int64_t now_ns), void *ctx);
void coord_loop_quit(coord_loop *loop); /* loop thread only */

#endif
