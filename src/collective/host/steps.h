/* collective/host/steps.h -- the bytes of a message: where they come from and go to, and which operation can go on
 * after it. */
#ifndef WEFT_COLLECTIVE_HOST_STEPS_H
#define WEFT_COLLECTIVE_HOST_STEPS_H

#include "collective/internal.h"

/* Where the payload of a send is; the bytes of a payload. */
const char *coll_msg_source(const coll_msg *msg);
char *coll_msg_target(const coll_msg *msg); /* where the payload of a receive goes unchanged; NULL: it is reduced */
int64_t coll_msg_bytes(const coll_msg *msg);

/* The next `bytes` of the payload have come: copies or reduces them into place. */
void coll_engine_deliver(coll_msg *msg, const void *data, size_t bytes);

/* The message has ended. With the last message of a round its operation becomes runnable; a send or receive ends. */
void coll_engine_msg_done_locked(coll_msg *msg) WEFT_REQUIRES_ASSERTED(msg->op->comm->group->mu);
/* Puts the operation on the group's runnable list, unless it is there. */
void coll_engine_make_runnable_locked(coll_op *op) WEFT_REQUIRES_ASSERTED(op->comm->group->mu);

/* Asks the platform's communicator for the operation's place (coll_communicator_ops.place).  It goes with the messages
 * of the meeting: coll_op.place becomes COLL_NO_PLACE when another rank has another one. */
void coll_engine_place_locked(coll_op *op) WEFT_REQUIRES_ASSERTED(op->comm->group->mu);
static inline void coll_op_meet_place(coll_op *op, uint64_t other)
{
  if (op->place != other) op->place = COLL_NO_PLACE;
}

/* All ranks have met at the operation, or it is a send or receive: posts it to the platform's communicator.  The
 * rank's next collective may then begin to meet. */
void coll_engine_hand_over_locked(coll_op *op) WEFT_REQUIRES_ASSERTED(op->comm->group->mu);

#endif
