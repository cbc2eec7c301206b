/* collective/host/direct.h -- operations whose ranks all are in this process. */
#ifndef WEFT_COLLECTIVE_HOST_DIRECT_H
#define WEFT_COLLECTIVE_HOST_DIRECT_H

#include "collective/internal.h"

WEFT_NODISCARD weft_status *coll_direct_init(coll_group *g);

bool coll_direct_fits(const coll_op *op); /* slotted? */
static inline coll_slot *coll_direct_slot(const coll_group *g, int rank, uint64_t seq)
{
  return (coll_slot *)(g->slots + (2 * (size_t)rank + (seq & 1)) * g->slot_bytes);
}

/* Tells the others that the operation is here; `queued`: somebody else is to end it. */
void coll_direct_publish(coll_op *op, bool queued);

bool coll_direct_met(const coll_group *g, coll_meeting *m); /* all have, or a stranger has */

/* What an operation that runs alone does once all have met: its result, in time.  False without memory.  *others: some
 * are in the queue. */
bool coll_direct_end_alone(coll_op *op, bool *others);
void coll_direct_end_queued_locked(coll_group *g, uint64_t seq); /* those that have met there */

/* Its group is spent, but had all arrived?  Then it ends as others may have ended it, and well. */
bool coll_direct_had_met_locked(coll_op *op);

void coll_direct_arrive_locked(coll_op *op); /* became its rank's oldest, or joined the queue after it had arrived */
bool coll_direct_work_locked(coll_group *g); /* may release the lock meanwhile; true if it did something */

#endif
