/* collective/context.h -- what a process has once: its groups, the descriptors that the progress thread sleeps on,
 * and its alarm clock. */
#ifndef WEFT_COLLECTIVE_CONTEXT_H
#define WEFT_COLLECTIVE_CONTEXT_H

#include "collective/internal.h"

/* ---- waking the progress thread ---- */

/* Makes the thread look at the groups: one has pending work that nobody drives. */
void coll_context_wake(void);
void coll_context_wake_by(int64_t at_ns); /* no later than that */

/* ---- descriptors ---- */

/* Watches `fd` for input (and output, if `output`): the progress thread then calls coll_link_ready_locked for the link
 * numbered `id` of `g`, or, for id 0, coll_listener_ready.  Watching again changes what is watched. */
WEFT_NODISCARD weft_status *coll_context_watch(int fd, coll_group *g, uint64_t id, bool output);
void coll_context_unwatch(int fd);

/* The same for one wake-up: it must be asked for again before each sleep. */
WEFT_NODISCARD weft_status *coll_context_watch_once(int fd, coll_group *g, uint64_t id);

/* A number that no other link of this process has. */
uint64_t coll_context_next_id(void);

/* The group that watches under that number, retained; NULL: the descriptor was closed meanwhile. */
coll_group *coll_context_watcher(uint64_t id);

/* ---- groups ---- */

void coll_context_add(coll_group *g);
int coll_context_remove(coll_group *g); /* how many are left */

/* This process's group of that id with that rank among its own, retained; NULL if there is none. */
coll_group *coll_context_find(uint64_t group_id, int rank);

/* All groups, retained, in a malloc'd array, which is `reuse` if that has room. */
coll_group **coll_context_groups(coll_group **reuse, size_t *capacity, size_t *count);

/* Calls visit with each group of the process, retained and unlocked. */
void coll_context_each(void (*visit)(coll_group *g, void *ctx), void *ctx);

/* ---- for the progress thread ---- */

WEFT_NODISCARD weft_status *coll_context_open(void);
void coll_context_close(void);
void coll_context_ring(void); /* ends a sleep; signal-safe */

/* How often the thread has been woken so far. */
unsigned long coll_context_requests(void);

/* Sleeps until a descriptor, a wake-up after the request number `seen`, or `until_ns` (0: looks, and does not sleep).
 * Returns how many of ids[most], the numbers under which descriptors became ready, are set.  *sleeps becomes false if
 * it did not. */
int coll_context_sleep(unsigned long seen, int64_t until_ns, bool *sleeps, uint64_t *ids, int most);

#endif
