/* collective/context.h -- what a process has once: its groups, the descriptors that the progress thread sleeps on,
 * and its alarm clock. */
#ifndef WEFT_COLLECTIVE_CONTEXT_H
#define WEFT_COLLECTIVE_CONTEXT_H

#include "collective/internal.h"

/* ---- waking the progress thread ---- */

/* Makes the thread look at the groups: one of them has pending work that no thread drives. */
void coll_context_wake(void);
void coll_context_enter(void); /* called by the progress thread when it begins */
bool coll_context_is_progress_thread(void);
void coll_context_wake_by(int64_t at_ns); /* the same, at that time at the latest */

/* ---- descriptors ---- */

/* Watches `fd` for input (and for output, if `output`).  The progress thread then calls coll_link_ready_locked for
 * link number `id` of `g`, or, if `id` is 0, coll_listener_ready.  Watching an `fd` again changes the events that
 * are watched. */
WEFT_NODISCARD weft_status *coll_context_watch(int fd, coll_group *g, uint64_t id, bool output);
void coll_context_unwatch(int fd);

/* Watches `fd` for input until one event has come: call it again before each sleep. */
WEFT_NODISCARD weft_status *coll_context_watch_once(int fd, coll_group *g, uint64_t id);

/* A number that no other link or transport of this process has. */
uint64_t coll_context_next_id(void);

/* The group that watches under number `id`, retained; NULL if the descriptor was closed meanwhile. */
coll_group *coll_context_watcher(uint64_t id);

/* ---- groups ---- */

void coll_context_add(coll_group *g);
int coll_context_remove(coll_group *g); /* returns how many are left */

/* The group of this process that has the id `group_id` and contains `rank` as one of its local ranks, retained;
 * NULL: none. */
coll_group *coll_context_find(uint64_t group_id, int rank);

/* All groups, retained.  The malloc'd array is `reuse`, if that is large enough. */
coll_group **coll_context_groups(coll_group **reuse, size_t *capacity, size_t *count);

/* Calls `visit` with each group of the process; the group is retained, and its lock is not held. */
void coll_context_each(void (*visit)(coll_group *g, void *ctx), void *ctx);

/* ---- for the progress thread ---- */

/* Opens and closes the descriptors on which the progress thread sleeps. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coll_context_open(void);
void coll_context_close(void);
void coll_context_ring(void); /* ends a sleep; signal-safe */

/* How many rounds the thread has made: in a round it looks at all groups and descriptors. */
unsigned long coll_context_rounds(void);

/* How often the thread has been woken so far. */
unsigned long coll_context_requests(void);

/* Sleeps until a descriptor is ready, a wake-up is requested after request number `seen`, or the time is `until_ns`
 * (0: looks without sleeping).  *sleeps says whether it may sleep; it becomes false if there was a request, so that
 * it did not.  Writes the numbers of ready descriptors to ids[most] and returns how many. */
int coll_context_sleep(unsigned long seen, int64_t until_ns, bool *sleeps, uint64_t *ids, int most);

#endif
