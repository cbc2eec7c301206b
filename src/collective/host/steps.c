/* collective/host/steps.c -- the bytes of a message: where they come from and go to, and which operation can go on
 * after it. */
#include <config.h>

#include "collective/host/steps.h"

#include <string.h>

/* NULL if the operation has no such memory: a step with no bytes may still name it. */
static char *place(const coll_op *op, int memory, int64_t offset)
{
  char *base = op->memory[memory];
  return base ? base + offset : NULL;
}

const char *coll_msg_source(const coll_msg *msg)
{
  return msg->step ? place(msg->op, msg->step->src_in, msg->step->src) : msg->op->memory[COLL_IN];
}

char *coll_msg_target(const coll_msg *msg)
{
  if (!msg->step) return msg->op->memory[COLL_OUT];
  return msg->step->kind == COLL_RECV ? place(msg->op, msg->step->dst_in, msg->step->dst) : NULL;
}

int64_t coll_msg_bytes(const coll_msg *msg) { return msg->step ? msg->step->bytes : msg->op->problem.bytes; }

void coll_engine_deliver(coll_msg *msg, const void *data, size_t bytes)
{
  const coll_step *step = msg->step;
  coll_op *op = msg->op;

  if (bytes) {
    char *dst = (step ? op->memory[step->dst_in] + step->dst : op->memory[COLL_OUT]) + msg->done_bytes;
    if (!step || step->kind == COLL_RECV) {
      memcpy(dst, data, bytes);
    } else {
      const char *own = op->memory[step->src_in] + step->src + msg->done_bytes;
      coll_reduce(&op->reducer, dst, step->incoming_left ? data : own, step->incoming_left ? own : data, bytes);
    }
  }
  msg->done_bytes += (int64_t)bytes;
}

void coll_engine_msg_done_locked(coll_msg *msg)
{
  weft_mutex_assert_held(&msg->op->comm->group->mu);
  coll_op *op = msg->op;

  if (!msg->step) coll_op_finish_locked(op, NULL);
  else if (--op->unmatched == 0) coll_engine_make_runnable_locked(op);
}

void coll_engine_make_runnable_locked(coll_op *op)
{
  weft_mutex_assert_held(&op->comm->group->mu);
  coll_group *g = op->comm->group;

  if (op->runnable) return;
  op->runnable = true;
  op->next_runnable = NULL;
  *g->runnable_tail = op;
  g->runnable_tail = &op->next_runnable;
}

static coll_posting posting_of(coll_op *op)
{
  return (coll_posting){.op = op,
                        .rank = op->comm->rank,
                        .local = op->comm->local,
                        .seq = op->seq,
                        .args = &op->args,
                        .problem = &op->problem,
                        .stream = op->stream,
                        .stream_point = op->stream_point,
                        .together = op->together,
                        .name = op->site.instruction,
                        .program = op->program,
                        .run = op->run,
                        .hold = op->hold,
                        .place = op->place};
}

void coll_engine_place_locked(coll_op *op)
{
  weft_mutex_assert_held(&op->comm->group->mu);
  coll_communicator *c = op->comm->group->communicator;
  coll_posting posting = posting_of(op);

  op->place = c->ops->place ? c->ops->place(c, &posting) : COLL_ANY_PLACE;
}

void coll_engine_hand_over_locked(coll_op *op)
{
  weft_mutex_assert_held(&op->comm->group->mu);
  coll_group *g = op->comm->group;
  coll_posting posting = posting_of(op);

  op->below = true;
  g->below_count++;
  g->communicator->ops->post(g->communicator, &posting);
  if (op->collective && op->next) coll_engine_make_runnable_locked(op->next);
}
