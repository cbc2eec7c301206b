/* collective/diagnose.h -- deadlines: what is stuck is logged, what is overdue is diagnosed and ends its group. */
#ifndef WEFT_COLLECTIVE_DIAGNOSE_H
#define WEFT_COLLECTIVE_DIAGNOSE_H

#include "collective/internal.h"

/* Logs what is stuck and starts the diagnosis of what is overdue: then the group is frozen until the report is ready. */
void coll_group_timers_locked(coll_group *g, int64_t now_ns);

#endif
