/* collective/host/direct.h -- operations whose ranks all are in this process. */
#ifndef WEFT_COLLECTIVE_HOST_DIRECT_H
#define WEFT_COLLECTIVE_HOST_DIRECT_H

#include "collective/internal.h"

/* Allocates the slots of a group whose ranks are all in this process. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coll_direct_init(coll_group *g);

bool coll_direct_fits(const coll_op *op); /* is the operation slotted: does its input fit in a slot? */
static inline coll_slot *coll_direct_slot(const coll_group *g, int rank, uint64_t seq)
{
  return (coll_slot *)(g->slots + (2 * (size_t)rank + (seq & 1)) * g->slot_bytes);
}

/* Announces in the rank's slot that it has arrived at the operation.  `queued`: another thread is to end the
 * operation. */
void coll_direct_publish(coll_op *op, bool queued);

bool coll_direct_met(const coll_group *g, coll_meeting *m); /* true: all ranks have arrived, or m->stranger */

/* Ends an operation that runs alone, once all ranks have arrived: makes the rank's own result and records how late
 * the last rank was.  False: no memory, nothing has ended.  *others: operations of other ranks wait in the queue to
 * be ended. */
bool coll_direct_end_alone(coll_op *op, bool *others);
/* Ends the queued operations of number `seq`, at which all ranks have arrived */
void coll_direct_end_queued_locked(coll_group *g, uint64_t seq) WEFT_REQUIRES(g->mu);

/* Ends a slotted operation well, although its group is spent, if all ranks had arrived at it: other ranks may have
 * ended it well too.  True if so. */
bool coll_direct_had_met_locked(coll_op *op) WEFT_REQUIRES_ASSERTED(op->comm->group->mu);

/* The operation became its rank's oldest, or joined the queue after the rank had arrived at it */
void coll_direct_arrive_locked(coll_op *op) WEFT_REQUIRES_ASSERTED(op->comm->group->mu);
bool coll_direct_work_locked(coll_group *g)
  WEFT_REQUIRES(g->mu); /* may release the lock meanwhile; true if an operation ended */

#endif
