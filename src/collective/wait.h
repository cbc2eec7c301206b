/* collective/wait.h -- a thread that waits for an operation works on it meanwhile, and then sleeps. */
#ifndef WEFT_COLLECTIVE_WAIT_H
#define WEFT_COLLECTIVE_WAIT_H

#include "collective/internal.h"

/* Polls for a while, working, no longer than until `until_ns`; true once *ready(ctx). */
bool coll_wait_working(coll_group *g, bool (*ready)(void *ctx), void *ctx, int64_t until_ns);

/* ---- the waiter of an operation: see weft_coll_waiter ---- */

bool coll_waiter_ready(void *waiter);
void coll_waiter_await(weft_coll_waiter *w);
bool coll_waiter_leave(weft_coll_waiter *w); /* from now on it is to be called.  False: it is done */

#endif
