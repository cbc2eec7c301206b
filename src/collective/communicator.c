/* collective/communicator.c -- how the operations of a platform's communicator end. */
#include <config.h>

#include "collective/communicator.h"

#include <time.h>

#include "base/log.h"
#include "collective/host/host.h"

/* How long an abort waits until a device gives operations back. */
#define DRAIN_NS (10 * WEFT_NS_PER_S)

/* The error of an operation that ended with `st` (taken), as its communicator and its peers will report it. */
static weft_status *error_of(const coll_op *op, weft_status *st)
{
  const coll_communicator *c = op->comm->group->communicator;
  char text[256];

  coll_op_describe(op, text, sizeof text);
  weft_status *error = weft_status_new(weft_status_code(st), __FILE__, __LINE__,
                                       "%s failed on rank %d of communicator %s (%s): %s", text, op->comm->rank,
                                       op->comm->group->name, c->ops->name, weft_status_message(st));
  weft_status_free(st);
  return error;
}

void coll_communicator_ended(coll_op *op, weft_status *st)
{
  WEFT_AUTO(coll_group) g = coll_group_retain(op->comm->group);

  coll_group_lock(g);
  op->below = false;
  g->below_count--;
  if (g->frozen && !g->error && !st) { /* the state stays as it is until the diagnosis has failed the group */
    op->ended_frozen = true;
    coll_group_unlock(g);
    return;
  }
  if (g->error && op->half_ended && !st && g->stop_at_ns && !op->result) {
    op->half_ended = false; /* the communicator has not been aborted: it ends as on the other ranks */
  } else if (g->error) {    /* the operation was aborted: with this error or one of its own */
    weft_status_free(st);
    st = op->result ? WEFT_MOVE(op->result) : weft_status_dup(g->error);
  } else if (st) {
    coll_group_fail_locked(g, error_of(op, st)); /* ends the operation too */
    op = NULL;
  }
  if (op) coll_op_finish_locked(op, st);
  coll_group_stop_platform_locked(g, weft_now_ns());
  coll_group_progress_locked(g);
  coll_group_unlock(g);
}

void coll_communicator_extend(coll_op *op, int times, int64_t most_ns)
{
  coll_group *g = op->comm->group;
  int64_t now_ns = weft_now_ns();

  coll_group_lock(g);
  if (op->deadline_ns != INT64_MAX) {
    int64_t usual_ns = op->deadline_ns - op->posted_ns, given_ns;
    if (__builtin_mul_overflow(usual_ns, times, &given_ns)) given_ns = INT64_MAX;
    if (most_ns > 0) given_ns = WEFT_MAX(usual_ns, WEFT_MIN(given_ns, most_ns));
    op->deadline_ns = given_ns < INT64_MAX - now_ns ? now_ns + given_ns : INT64_MAX;
  }
  coll_group_unlock(g);
}

void coll_communicator_failed(coll_communicator *c, weft_status *st)
{
  WEFT_AUTO(coll_group) g = coll_group_retain(c->group);

  coll_group_lock(g);
  coll_group_fail_locked(g, st);
  coll_group_unlock(g);
}

bool coll_group_drain_locked(coll_group *g) WEFT_NO_THREAD_SAFETY
{
  static const struct timespec nap = {.tv_nsec = 50000};
  int64_t until_ns = weft_now_ns() + DRAIN_NS;

  weft_mutex_assert_held(&g->mu);
  while (g->below_count && weft_now_ns() < until_ns) {
    coll_group_unlock(g);
    nanosleep(&nap, NULL);
    coll_group_lock(g);
    coll_group_stop_platform_locked(g, weft_now_ns());
  }
  if (g->below_count)
    WEFT_LOG("coll", ERROR, "communicator %s (%s) still has %d operations after its abort: their buffers stay in use",
             g->name, g->communicator->ops->name, g->below_count);
  return !g->below_count;
}
