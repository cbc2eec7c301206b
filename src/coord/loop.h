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
  void (*ready)(struct coord_io *io, uint32_t events); /* EPOLLIN, EPOLLOUT, ... ; may remove any io, its own too */
  void (*prefetch)(const struct coord_io *io);         /* NULL, or brings into the caches what `ready` will use */
} coord_io;

/* Work handed to the loop's thread; memory of the caller until `run` is called. */
typedef struct coord_job {
  struct coord_job *next;
  void (*run)(struct coord_job *job);
} coord_job;

WEFT_NODISCARD weft_status *coord_loop_new(coord_loop **out_loop);
void coord_loop_free(coord_loop *loop); /* NULL is fine; the thread has returned; jobs not yet run stay the callers' */

/* Level-triggered.  Loop thread only. */
WEFT_NODISCARD weft_status *coord_loop_add(coord_loop *loop, coord_io *io, uint32_t events);
void coord_loop_change(coord_loop *loop, coord_io *io, uint32_t events);
void coord_loop_remove(coord_loop *loop, coord_io *io);

/* Thread-safe.  Jobs run in order. */
void coord_loop_post(coord_loop *loop, coord_job *job);

/* Lets the loop look for events for so long before it sleeps, while events come that fast: to be woken takes longer than
 * a small call.  0, the default: it sleeps at once. */
void coord_loop_set_spin(coord_loop *loop, int64_t spin_ns);

/* Runs until coord_loop_quit.  After each batch of events `after` is called with the time; it returns when it wants
 * to be called next at the latest (INT64_MAX: not by itself). */
void coord_loop_run(coord_loop *loop, int64_t (*after)(void *ctx, int64_t now_ns), void *ctx);
void coord_loop_quit(coord_loop *loop); /* loop thread only */

#endif
