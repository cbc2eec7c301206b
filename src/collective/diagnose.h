/* collective/diagnose.h -- deadlines: what is stuck is logged, what is overdue is diagnosed and ends its group. */
#ifndef WEFT_COLLECTIVE_DIAGNOSE_H
#define WEFT_COLLECTIVE_DIAGNOSE_H

#include "collective/internal.h"

/* Logs operations that are stuck.  If one is overdue, freezes the group and starts the diagnosis, whose report ends
 * it. */
void coll_group_timers_locked(coll_group *g, int64_t now_ns) WEFT_REQUIRES(g->mu);

#endif
