/* collective/host/host.h -- the host's communicator, driven by the threads that wait and by the progress thread. */
#ifndef WEFT_COLLECTIVE_HOST_HOST_H
#define WEFT_COLLECTIVE_HOST_HOST_H

#include "collective/internal.h"

extern const coll_communicator_ops coll_host_communicator;

/* Runs whatever can run now; may release the lock meanwhile.  True if anything moved. */
bool coll_group_progress_locked(coll_group *g) WEFT_REQUIRES(g->mu);

/* Waits, a few microseconds, until no thread works on the group's memory outside the lock; then all pending
 * operations are in the queue.  The group must be disturbed.  Releases the lock meanwhile. */
void coll_group_settle_locked(coll_group *g) WEFT_REQUIRES(g->mu);

/* After the group has failed: waits, ten seconds at most, until the platform's communicator has given all operations
 * back, and with them their buffers.  Releases the lock meanwhile.  False: some are left, which is logged. */
bool coll_group_drain_locked(coll_group *g) WEFT_REQUIRES(g->mu);

/* How long a thread polls without any progress before it sleeps. */
int64_t coll_group_spin_ns(const coll_group *g);

#endif
