/* collective/post.c -- from the caller to the queue of a rank: checked arguments, times, refusals, groups of
 * operations. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "collective/context.h"
#include "collective/flight.h"
#include "collective/host/direct.h"
#include "collective/host/host.h"
#include "collective/prepare.h"
#include "collective/wait.h"

static void op_give_back(coll_op *op)
{
  coll_group *g = op->comm->group;

  coll_group_lock(g);
  coll_op_free_locked(op);
  coll_group_unlock(g);
}

/* A rank that had nothing pending when the group failed gets the error now, with the code that a pending operation
 * would have had.  So the code does not depend on which rank was a moment faster. */
static weft_status *spent_locked(weft_comm *comm) WEFT_REQUIRES_ASSERTED(comm->group->mu)
{
  weft_mutex_assert_held(&comm->group->mu);
  const coll_group *g = comm->group;
  const weft_status *why = g->error ? g->error : g->ending;
  weft_code code = comm->told ? WEFT_FAILED_PRECONDITION : weft_status_code(why);

  comm->told = true;
  return weft_status_new(code, __FILE__, __LINE__, "communicator %s was aborted: %s", g->name,
                         weft_status_message(why));
}

/* True if an operation that is posted now cannot end well. (An operation that runs alone was posted earlier.) */
static bool is_refused_locked(const coll_op *op) WEFT_REQUIRES_ASSERTED(op->comm->group->mu)
{
  weft_mutex_assert_held(&op->comm->group->mu);
  const coll_group *g = op->comm->group;

  if (op->alone || !(g->error || g->ending)) return false;
  if (g->error || op->comm->told || op->args.kind == WEFT_SEND) return true;
  return op->collective && coll_comm_posted(op->comm) >= g->ends_at;
}

/* An operation whose fields are cleared, but which keeps the buffers of its last use. */
static weft_status *op_new(weft_comm *comm, coll_op **out_op)
{
  coll_group *g = comm->group;
  coll_op *op = coll_comm_spare(comm, true);

  if (!op && !(op = coll_comm_spare(comm, false))) {
    coll_group_lock(g);
    op = coll_op_take_locked(g);
    coll_group_unlock(g);
  }
  WEFT_TRY_ALLOC(op);
  memset(op, 0, offsetof(coll_op, problem));
  op->comm = comm;
  op->last_peer = -1;
  *out_op = op;
  return NULL;
}

/* Copies the call's settings, and notes the time of the call. */
static void set_call(coll_op *op, const weft_coll_call *call)
{
  coll_group *g = op->comm->group;
  int64_t now_ns = weft_now_ns(), warn_ns = call && call->warn_ns ? call->warn_ns : g->warn_ns;

  op->posted_ns = now_ns;
  if (call) op->site = call->site;
  op->stream = call ? call->stream : NULL;
  op->stream_point = call ? call->stream_point : 0;
  op->together = call && call->together;
  op->program = call ? call->program : 0;
  op->run = call ? call->run : 0;
  op->hold = call ? call->hold : NULL;
  if (call && call->deadline.at_ns) op->deadline_ns = call->deadline.at_ns;
  else op->deadline_ns = g->timeout_ns > 0 && g->timeout_ns < INT64_MAX - now_ns ? now_ns + g->timeout_ns : INT64_MAX;
  op->warn_at_ns = warn_ns > 0 && warn_ns < INT64_MAX - now_ns ? now_ns + warn_ns : INT64_MAX;
}

/* Puts an operation that its rank has posted into the rank's queue.  True: the operation can begin now. */
static bool enqueue_locked(coll_op *op) WEFT_REQUIRES_ASSERTED(op->comm->group->mu)
{
  weft_mutex_assert_held(&op->comm->group->mu);
  weft_comm *comm = op->comm;

  if (op->alone) { /* the rank took its turn before all operations that are in the queue now */
    op->next = comm->head;
    comm->head = op;
    if (!op->next) comm->tail = &op->next;
    coll_comm_change_turn_locked(comm, COLL_TURN_ALONE, COLL_TURN_QUEUED, 0);
    return true;
  }
  uint64_t turn = coll_comm_change_turn_locked(comm, 0, COLL_TURN_QUEUED, COLL_TURN_NEXT);
  op->seq = turn / COLL_TURN_NEXT;
  coll_flight_posted(op);
  op->next = NULL;
  const coll_op *before = comm->tail == &comm->head ? NULL : WEFT_CONTAINER_OF(comm->tail, coll_op, next);
  *comm->tail = op;
  comm->tail = &op->next;
  return (!before || before->below) && !(turn & COLL_TURN_ALONE) && !comm->group->frozen;
}

static void add_pending_locked(coll_op *op, int64_t timer_ns) WEFT_REQUIRES_ASSERTED(op->comm->group->mu)
{
  weft_mutex_assert_held(&op->comm->group->mu);
  coll_group *g = op->comm->group;

  atomic_store_explicit(&g->pending, atomic_load_explicit(&g->pending, memory_order_relaxed) + 1, memory_order_relaxed);
  if (timer_ns < atomic_load_explicit(&g->next_timer_ns, memory_order_relaxed))
    atomic_store_explicit(&g->next_timer_ns, timer_ns, memory_order_relaxed);
  op->pending_prev = &g->all_pending;
  op->pending_next = g->all_pending;
  if (g->all_pending) g->all_pending->pending_prev = &op->pending_next;
  g->all_pending = op;
}

/* The operation's turn has come: posts it to the host's communicator. */
static void host_post(coll_op *op)
{
  coll_group *g = op->comm->group;
  g->host.ops->post(&g->host, &(coll_posting){.op = op});
}

/* Queues the operation, or refuses it.  `driven`: the caller will work on it. */
static weft_status *op_submit(coll_op *op, bool driven)
{
  weft_comm *comm = op->comm;
  coll_group *g = comm->group;
  int64_t timer_ns = WEFT_MIN(op->warn_at_ns, op->deadline_ns);
  weft_status *st = NULL;

  coll_group_lock(g);
  bool spent = g->error != NULL; /* a failure from here on ends this operation together with all others */
  if (is_refused_locked(op)) {
    st = spent_locked(comm);
    coll_op_free_locked(op);
  } else {
    add_pending_locked(op, timer_ns);
    if (op->collective) {
      if (enqueue_locked(op) && !spent) host_post(op);
    } else {
      coll_flight_posted(op);
      host_post(op);
    }
    if (spent && !coll_direct_had_met_locked(op)) /* posted before the rank could know of the failure */
      coll_op_finish_locked(op, comm->told ? spent_locked(comm) : weft_status_dup(g->error));
    coll_group_progress_locked(g);
  }
  bool left = g->all_pending || atomic_load_explicit(&g->unsent, memory_order_relaxed);
  bool poll = g->open_links && left;
  coll_group_unlock(g);
  if (driven || !left || st) return st;
  if (poll) coll_context_wake();
  else coll_context_wake_by(timer_ns);
  return NULL;
}

/* An operation of `fused` parts, ready to be posted. */
static weft_status *op_make(weft_comm *comm, const weft_coll_op *args, size_t fused, const weft_coll_call *call,
                            bool by_host, coll_completion to, coll_op **out_op)
{
  coll_op *op = NULL;
  weft_status *st;

  *out_op = NULL;
  if (call && call->stream && !coll_group_has_platform(comm->group))
    return WEFT_ERR(INVALID_ARGUMENT, "communicator %s moves data on the host, where there are no streams",
                    comm->group->name);
  WEFT_TRY(op_new(comm, &op));
  op->by_host = by_host;
  set_call(op, call);
  st = fused > 1 ? coll_op_fuse(op, args, fused, call) : coll_op_prepare(op, args, call);
  if (st) {
    op_give_back(op);
    return st;
  }
  op->collective = op->args.kind != WEFT_SEND && op->args.kind != WEFT_RECV;
  op->slotted = comm->group->use_direct && !coll_group_has_platform(comm->group) && coll_direct_fits(op);
  op->completion = to;
  *out_op = op;
  return NULL;
}

static weft_status *post_to(weft_comm *comm, const weft_coll_op *args, size_t fused, const weft_coll_call *call,
                            coll_completion to, bool driven)
{
  coll_op *op;

  WEFT_TRY(op_make(comm, args, fused, call, false, to, &op));
  return op_submit(op, driven);
}

static weft_status *post_with_event(weft_comm *comm, const weft_coll_op *args, const weft_coll_call *call, bool by_host,
                                    weft_event **out_event)
{
  WEFT_AUTO(weft_event) event = NULL;
  coll_op *op;

  *out_event = NULL;
  WEFT_TRY(weft_event_new(&event));
  coll_completion to = {.event = weft_event_retain(event)};
  weft_status *st = op_make(comm, args, 1, call, by_host, to, &op);
  if (!st) st = op_submit(op, call && call->will_wait);
  if (st) {
    weft_event_release(event); /* the engine's reference */
    return st;
  }
  *out_event = WEFT_MOVE(event);
  return NULL;
}

weft_status *weft_coll_post(weft_comm *comm, const weft_coll_op *op, const weft_coll_call *call, weft_event **out_event)
{
  return post_with_event(comm, op, call, false, out_event);
}

weft_status *coll_post_by_host(weft_comm *comm, const weft_coll_op *op, const weft_coll_call *call,
                               weft_event **out_event)
{
  return post_with_event(comm, op, call, true, out_event);
}

/* ---- a small operation between devices, by slots alone ---- */

/* Takes the rank's turn, if the rank has nothing else pending. */
static bool take_turn(coll_op *op)
{
  weft_comm *comm = op->comm;
  uint64_t turn = atomic_load_explicit(&comm->turn, memory_order_relaxed);

  if (!op->slotted || turn % COLL_TURN_NEXT || atomic_load(&comm->group->disturbed)) return false;
  op->alone = atomic_compare_exchange_strong(&comm->turn, &turn, turn + COLL_TURN_NEXT + COLL_TURN_ALONE);
  op->seq = turn / COLL_TURN_NEXT;
  return op->alone;
}

/* The other conditions, besides the slots, that a polling thread looks at. */
typedef struct lone_wait {
  coll_group *g;
  coll_meeting meeting;
  const atomic_int *wanted; /* NULL: the thread has nothing else to do */
} lone_wait;

static bool is_wanted(const atomic_int *wanted)
{
  return wanted && atomic_load_explicit(wanted, memory_order_relaxed) != 0;
}

static bool met_or_disturbed(void *wait)
{
  lone_wait *w = wait;
  return coll_direct_met(w->g, &w->meeting) || atomic_load_explicit(&w->g->disturbed, memory_order_acquire) ||
         is_wanted(w->wanted);
}

/* Runs the operation that has its rank's turn to its end, normally without the group's lock.  False: the operation has
 * to go through the queue, because a rank is late or the group is disturbed.  The communicator lives as long as the
 * turn lasts: see coll_group_settle_locked. */
static bool run_alone(coll_op *op, const weft_coll_patience *patience)
{
  weft_comm *comm = op->comm;
  coll_group *g = comm->group;
  lone_wait wait = {g, {.number = op->seq + 1, .fingerprint = op->fingerprint}, patience ? patience->wanted : NULL};
  int64_t until_ns = WEFT_MIN(op->warn_at_ns, op->deadline_ns);
  uint64_t seq = op->seq;
  bool others;

  if (patience) until_ns = WEFT_MIN(until_ns, op->posted_ns + patience->poll_ns);
  coll_flight_posted(op);
  /* looked at after the turn was taken: weft_comm_abort sets it and then looks at turns */
  if (atomic_load(&g->disturbed)) return false;
  coll_direct_publish(op, false);
  coll_wait_working(g, met_or_disturbed, &wait, until_ns);
  if (wait.meeting.seen < g->size || !coll_direct_end_alone(op, &others)) return false;
  if (op->fused) coll_op_unpack(op);
  coll_flight_ended(op, WEFT_OK, weft_now_ns());
  if (!coll_op_spare(op, true)) op_give_back(op);
  uint64_t turn = (seq + 1) * COLL_TURN_NEXT + COLL_TURN_ALONE;
  if (!others && atomic_compare_exchange_strong(&comm->turn, &turn, turn - COLL_TURN_ALONE)) return true;
  coll_group_retain(g);
  coll_group_lock(g);
  coll_comm_change_turn_locked(comm, COLL_TURN_ALONE, 0, 0);
  if (others) coll_direct_end_queued_locked(g, seq);
  if (comm->head && !comm->head->started) host_post(comm->head);
  coll_group_progress_locked(g);
  coll_group_unlock(g);
  coll_group_release(g);
  return true;
}

weft_status *weft_coll_run(weft_comm *comm, const weft_coll_op *args, const weft_coll_call *call)
{
  weft_coll_waiter waiter = {0};
  coll_op *op;

  WEFT_TRY(op_make(comm, args, 1, call, false, (coll_completion){.waiter = &waiter}, &op));
  if (take_turn(op) && run_alone(op, NULL)) return NULL;
  bool looked = op->alone;
  coll_comm_retain(comm); /* another thread may destroy the communicator, which ends the operation */
  weft_status *st = op_submit(op, true);
  if (!st && (looked || !coll_wait_working(comm->group, coll_waiter_ready, &waiter, INT64_MAX)))
    coll_waiter_await(&waiter);
  coll_comm_release(comm);
  return st ? st : waiter.status;
}

/* ---- several, and callers that do not wait ---- */

/* How many of the operations travel as one message: see coll_op_fusable.  A platform's communicator gets every
 * operation by itself. */
static size_t fusable(const weft_comm *comm, const weft_coll_op *ops, size_t count)
{
  return coll_group_has_platform(comm->group) ? 1 : coll_op_fusable(ops, count, comm->group->size);
}

/* Posts all operations with one completion.  An error is returned only if nothing was posted.  An error of a later
 * operation goes to the completion, and the operations that were posted go on. */
static weft_status *post_all(weft_comm *comm, const weft_coll_op *ops, size_t count, const weft_coll_call *call,
                             coll_completion to, bool driven)
{
  coll_batch *batch = calloc(1, sizeof *batch);
  weft_status *st = NULL;
  size_t posted = 0;

  WEFT_TRY_ALLOC(batch);
  atomic_init(&batch->left, 1); /* one share is held here until all are posted */
  atomic_flag_clear(&batch->failed);
  batch->to = to;
  while (posted < count && !st) {
    size_t n = fusable(comm, ops + posted, count - posted);
    atomic_fetch_add(&batch->left, 1);
    st = post_to(comm, ops + posted, n, call, (coll_completion){.batch = batch}, driven);
    if (st) atomic_fetch_sub(&batch->left, 1);
    posted += st ? 0 : n;
  }
  if (st && posted == 0) {
    free(batch);
    return st;
  }
  coll_batch_finish(batch, st);
  return NULL;
}

weft_status *weft_coll_post_group(weft_comm *comm, const weft_coll_op *ops, size_t count, const weft_coll_call *call,
                                  weft_event **out_event)
{
  WEFT_AUTO(weft_event) event = NULL;
  weft_status *st;

  *out_event = NULL;
  WEFT_TRY(weft_event_new(&event));
  st = post_all(comm, ops, count, call, (coll_completion){.event = weft_event_retain(event)}, call && call->will_wait);
  if (st) {
    weft_event_release(event); /* the engine's reference */
    return st;
  }
  *out_event = WEFT_MOVE(event);
  return NULL;
}

typedef struct patient_wait {
  weft_coll_waiter *waiter;
  const atomic_int *wanted;
} patient_wait;

static bool done_or_wanted(void *wait)
{
  patient_wait *w = wait;
  return coll_waiter_ready(w->waiter) || is_wanted(w->wanted);
}

weft_status *weft_coll_start(weft_comm *comm, const weft_coll_op *ops, size_t count, const weft_coll_call *call,
                             weft_coll_patience patience, weft_coll_waiter *waiter, bool *out_pending)
{
  coll_completion to = {.waiter = waiter};
  bool patient = patience.poll_ns > 0, looked = false;
  weft_status *st;
  coll_op *op;

  *out_pending = false;
  atomic_init(&waiter->state, COLL_WAITER_LOOKS);
  if (fusable(comm, ops, count) < count) {
    WEFT_TRY(post_all(comm, ops, count, call, to, false));
  } else {
    WEFT_TRY(op_make(comm, ops, count, call, false, to, &op));
    if (patient && take_turn(op) && run_alone(op, &patience)) return NULL;
    looked = op->alone;
    coll_comm_retain(comm); /* another thread may destroy the communicator, which ends the operation */
    st = op_submit(op, patient && !looked);
    if (!st && patient && !looked) {
      patient_wait wait = {waiter, patience.wanted};
      coll_wait_working(comm->group, done_or_wanted, &wait, weft_now_ns() + patience.poll_ns);
      if (!coll_waiter_ready(waiter)) coll_context_wake();
    }
    coll_comm_release(comm);
    WEFT_TRY(st);
  }
  *out_pending = coll_waiter_leave(waiter);
  return *out_pending ? NULL : waiter->status;
}
