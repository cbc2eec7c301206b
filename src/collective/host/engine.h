/* collective/host/engine.h -- runs schedules, and sends and receives between ranks of this process. */
#ifndef WEFT_COLLECTIVE_HOST_ENGINE_H
#define WEFT_COLLECTIVE_HOST_ENGINE_H

#include "collective/internal.h"

bool coll_engine_drain_locked(coll_group *g)
  WEFT_REQUIRES(g->mu); /* runs the operations that can go on; true if there was one */

/* Posts a send or receive operation. */
void coll_p2p_post_locked(coll_op *op) WEFT_REQUIRES_ASSERTED(op->comm->group->mu);

#endif
