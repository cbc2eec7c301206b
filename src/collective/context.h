/* collective/context.h -- what a process has once: the progress thread and the descriptors it sleeps on. */
#ifndef WEFT_COLLECTIVE_CONTEXT_H
#define WEFT_COLLECTIVE_CONTEXT_H

#include "collective/internal.h"

/* Watches `fd` for input (and output, if `output`): the progress thread then calls coll_link_ready_locked for the link
 * numbered `id` of `g`, or, for id 0, coll_listener_ready.  Watching again changes what is watched. */
WEFT_NODISCARD weft_status *coll_context_watch(int fd, coll_group *g, uint64_t id, bool output);
void coll_context_unwatch(int fd);

/* The same for one wake-up: it must be asked for again before each sleep. */
WEFT_NODISCARD weft_status *coll_context_watch_once(int fd, coll_group *g, uint64_t id);

/* A number that no other link of this process has. */
uint64_t coll_context_next_id(void);

/* This process's group of that id with that rank among its own, retained; NULL if there is none. */
coll_group *coll_context_find(uint64_t group_id, int rank);

/* Calls visit with each group of the process, retained and unlocked. */
void coll_context_each(void (*visit)(coll_group *g, void *ctx), void *ctx);

/* Incarnations whose connection closed without a word, here or at a peer that said so: for a hundred seconds they are not waited for. */
void coll_obituary_add(uint64_t incarnation);
bool coll_obituary_has(uint64_t incarnation);

#endif
