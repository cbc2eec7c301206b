/* collective/wait.h -- a thread that waits for an operation works on the operation first, and then sleeps. */
#ifndef WEFT_COLLECTIVE_WAIT_H
#define WEFT_COLLECTIVE_WAIT_H

#include "collective/internal.h"

/* Polls, working on the group's operations, until ready(ctx) is true, nothing has moved for coll_group_spin_ns, or
 * the time is `until_ns`.  Returns whether ready(ctx) is true. */
bool coll_wait_working(coll_group *g, bool (*ready)(void *ctx), void *ctx, int64_t until_ns);

/* ---- the waiter of an operation: see weft_coll_waiter ---- */

/* True if the operation has ended.  `waiter` is a weft_coll_waiter: the function is a predicate of
 * coll_wait_working. */
bool coll_waiter_ready(void *waiter);
/* Sleeps until the operation has ended. The operation has a deadline of its own. */
void coll_waiter_await(weft_coll_waiter *w);
/* Asks for a call of the waiter's function when the operation ends.  False: the operation has ended already. */
bool coll_waiter_leave(weft_coll_waiter *w);

#endif
