/* collective/diagnose.h -- deadlines: what is stuck is logged, what is overdue is diagnosed and ends its group. */
#ifndef WEFT_COLLECTIVE_DIAGNOSE_H
#define WEFT_COLLECTIVE_DIAGNOSE_H

#include "collective/address.h"

/* Logs operations that are stuck.  If one is overdue, freezes the group and starts the diagnosis, whose report ends
 * it. */
void coll_group_timers_locked(coll_group *g, int64_t now_ns) WEFT_REQUIRES(g->mu);

/* A connection that has not been made while a communicator is created. */
typedef struct coll_missing {
  int rank, asker; /* asker: a rank of this process */
  coll_address to; /* of `rank`, if the group does not know it yet; magic 0: it does, or nobody does */
} coll_missing;

/* The ranks have not met in time, for the reason `st` (taken).  Asks the missing ranks, for WEFT_COLLECTIVE_DIAGNOSE at
 * most, and returns the reason with what was found. */
WEFT_NODISCARD weft_status *coll_diagnose_meeting(coll_group *g, const coll_missing *missing, int count,
                                                  weft_status *st);

#endif
