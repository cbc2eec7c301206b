/* collective/host/engine.c -- runs schedules round by round, and sends and receives between ranks of this process.
 *
 * An operation that can go on is on the group's runnable list.  Entering a round posts its messages and runs its
 * local steps.  The operation counts the messages of the round that have not ended; the last one that ends makes it
 * runnable again. */
#include <config.h>

#include "collective/host/engine.h"

#include <stdlib.h>
#include <string.h>

#include "collective/flight.h"
#include "collective/host/direct.h"
#include "collective/host/link_state.h"
#include "collective/host/select.h"
#include "collective/host/steps.h"
#include "collective/prepare.h"

static void run_local(coll_op *op, const coll_step *step)
{
  char *dst;
  const char *src;
  enum { PARTS_ON_STACK = 64 };

  weft_mutex_assert_held(&op->comm->group->mu);
  if (step->bytes == 0) return; /* the memory may be NULL */
  dst = op->memory[step->dst_in] + step->dst;
  src = op->memory[step->src_in] + step->src;
  switch (step->kind) {
  case COLL_COPY:
    if (dst != src) memmove(dst, src, (size_t)step->bytes);
    return;
  case COLL_ZERO: memset(dst, 0, (size_t)step->bytes); return;
  default: { /* COLL_FOLD */
    const void *few[PARTS_ON_STACK] = {NULL}, **parts = step->peer <= PARTS_ON_STACK ? few : malloc((size_t)step->peer * sizeof *parts);
    /* A fold of one pair after the other would need no array, but it rounds narrow floats after each pair, so ranks
     * could get different bits. */
    if (!parts) {
      coll_group_fail_locked(op->comm->group, WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for a fold"));
      return;
    }
    for (int i = 0; i < step->peer; i++) parts[i] = src + i * step->bytes;
    coll_fold(&op->reducer, (void *const[]){dst}, 1, parts, step->peer, 0, (size_t)step->bytes);
    if (parts != few) free(parts);
  }
  }
}

/* ---- between ranks of this process ---- */

/* A send and a receive have met: moves the data.  False if the group failed. */
static bool transfer(coll_group *g, coll_msg *from, coll_msg *to)
{
  weft_mutex_assert_held(&g->mu);
  if (from->op->fingerprint != to->op->fingerprint || from->op->seq != to->op->seq ||
      coll_msg_bytes(from) != coll_msg_bytes(to)) {
    coll_group_fail_locked(g, coll_op_disagreement(from->op, to->op));
    return false;
  }
  coll_op_meet_place(to->op, from->op->place);
  coll_engine_deliver(to, coll_msg_source(from), (size_t)coll_msg_bytes(from));
  to->op->last_peer = from->op->comm->rank;
  coll_engine_msg_done_locked(from);
  coll_engine_msg_done_locked(to);
  return true;
}

static void post_message(coll_group *g, coll_msg *msg)
{
  int me = msg->op->comm->local, there = g->local_of[msg->step->peer];
  bool sends = msg->step->kind == COLL_SEND;

  weft_mutex_assert_held(&g->mu);
  if (there < 0) {
    coll_link_post_locked(g, me, msg->step->peer, msg);
    return;
  }
  coll_pair *pair = &g->pairs[sends ? me * g->local_count + there : there * g->local_count + me];
  coll_msg *other = coll_fifo_pop(sends ? &pair->recvs : &pair->sends);
  if (!other) coll_fifo_push(sends ? &pair->sends : &pair->recvs, msg);
  else transfer(g, sends ? msg : other, sends ? other : msg);
}

/* ---- starting ---- */

static bool same_problem(const coll_problem *a, const coll_problem *b)
{
  return a->kind == b->kind && a->bytes == b->bytes && a->elem_bytes == b->elem_bytes && a->root == b->root &&
         a->in_place == b->in_place && a->rank_order == b->rank_order && a->source == b->source &&
         a->target == b->target;
}

static size_t most_messages(const coll_schedule *s)
{
  size_t most = 0, now = 0;

  for (size_t i = 0; i < s->count; i++) {
    now += s->steps[i].kind <= COLL_RECV_REDUCE;
    most = WEFT_MAX(most, now);
    if (s->steps[i].ends_round) now = 0;
  }
  return most;
}

/* The schedule of a problem.  Problems without arrays have theirs in the cache. */
static weft_status *find_schedule(coll_op *op, const coll_problem *problem, coll_cached **out)
{
  weft_comm *comm = op->comm;
  bool plain = !problem->prefix && !problem->send_at;
  int forced = comm->group->forced_algorithm;
  coll_cached *oldest = comm->cache;

  for (int i = 0; i < COLL_CACHED_SCHEDULES; i++) {
    coll_cached *c = &comm->cache[i];
    if (plain && c->used && c->forced == forced && same_problem(&c->key, problem)) {
      c->used = ++comm->cache_clock;
      *out = c;
      return NULL;
    }
    if (c->used < oldest->used) oldest = c;
  }
  oldest->used = 0;
  WEFT_TRY(coll_schedule_build(problem, coll_select(comm->group, problem), &oldest->schedule));
  oldest->key = *problem;
  oldest->forced = forced;
  oldest->round_msgs = most_messages(&oldest->schedule);
  oldest->used = plain ? ++comm->cache_clock : 0;
  *out = oldest;
  return NULL;
}

/* Loads the schedule of `problem` into `op`, and reserves scratch and messages for it. */
static weft_status *load_schedule(coll_op *op, const coll_problem *problem)
{
  coll_cached *found;

  WEFT_TRY(find_schedule(op, problem, &found));
  if ((size_t)found->schedule.tmp_bytes > op->tmp_capacity) {
    free(op->tmp);
    op->tmp_capacity = 0;
    WEFT_TRY_ALLOC(op->tmp = aligned_alloc(64, WEFT_ALIGN_UP((size_t)found->schedule.tmp_bytes, (size_t)64)));
    op->tmp_capacity = (size_t)found->schedule.tmp_bytes;
  }
  if (found->round_msgs > op->msgs_capacity) {
    free(op->msgs);
    op->msgs_capacity = 0;
    WEFT_TRY_ALLOC(op->msgs = malloc(found->round_msgs * sizeof *op->msgs));
    op->msgs_capacity = found->round_msgs;
  }
  op->memory[COLL_TMP] = op->tmp;
  op->schedule = &found->schedule;
  op->next_step = 0;
  return NULL;
}

/* Ragged all-to-all, first part: every rank sends to every rank how many rows it has for that rank, and where they
 * go. */
static weft_status *load_ragged_sizes(coll_op *op)
{
  const coll_problem *p = &op->problem;
  int64_t n = (int64_t)p->size * p->pieces;
  coll_problem sizes = {.kind = WEFT_ALL_TO_ALL, .size = p->size, .rank = p->rank, .bytes = 16 * (int64_t)p->pieces,
                        .elem_bytes = 8, .source = -1, .target = -1, .topology = p->topology};

  op->memory[COLL_IN] = (char *)(op->arrays + 4 * n);
  op->memory[COLL_OUT] = (char *)(op->arrays + 6 * n);
  return load_schedule(op, &sizes);
}

/* Second part: what every rank has said is checked, and becomes the receiving half of the problem. */
static weft_status *take_ragged_sizes(coll_op *op)
{
  coll_problem *p = &op->problem;
  int64_t n = (int64_t)p->size * p->pieces, *heard = op->arrays + 6 * n, *expected = op->arrays + 3 * n;
  int64_t *at = op->arrays + 4 * n,
          *bytes = op->arrays + 5 * n; /* the pairs that this rank has sent are not needed after this */

  for (int64_t i = 0; i < n; i++) {
    int64_t end;
    if (heard[2 * i + 1] != expected[i])
      return WEFT_ERR(FAILED_PRECONDITION, "ragged-all-to-all: rank %d sends %lld bytes, rank %d's recv_sizes say %lld",
                      (int)(i / p->pieces), (long long)heard[2 * i + 1], p->rank, (long long)expected[i]);
    if (heard[2 * i] < 0 || __builtin_add_overflow(heard[2 * i], heard[2 * i + 1], &end) || end > p->bytes)
      return WEFT_ERR(FAILED_PRECONDITION, "ragged-all-to-all: rank %d writes bytes %lld + %lld of rank %d's %lld",
                      (int)(i / p->pieces), (long long)heard[2 * i], (long long)heard[2 * i + 1], p->rank,
                      (long long)p->bytes);
    at[i] = heard[2 * i];
    bytes[i] = heard[2 * i + 1];
  }
  op->memory[COLL_IN] = op->stage && op->args.send && op->phase == 2 ? op->stage : (char *)op->args.send;
  op->memory[COLL_OUT] = op->args.recv;
  p->recv_at = at;
  p->recv_bytes = bytes;
  return NULL;
}

/* The barrier by which all ranks meet before a platform's communicator gets the operation; its messages carry the
 * operation's own fingerprint. */
static weft_status *load_meeting(coll_op *op)
{
  const coll_problem *p = &op->problem;
  coll_problem meeting = {.kind = WEFT_BARRIER, .size = p->size, .rank = p->rank, .elem_bytes = 1, .source = -1, .target = -1,
                          .topology = p->topology};

  return load_schedule(op, &meeting);
}

static weft_status *load_first(coll_op *op)
{
  op->started = true;
  coll_flight_started(op);
  if (coll_op_goes_below(op)) coll_engine_place_locked(op);
  if (op->args.kind != WEFT_RAGGED_ALL_TO_ALL)
    return coll_op_goes_below(op) ? load_meeting(op) : load_schedule(op, &op->problem);
  if (op->memory[COLL_IN] != op->args.send) op->phase = 2; /* staged: see take_ragged_sizes */
  return load_ragged_sizes(op);
}

/* ---- rounds ---- */

/* Posts the messages of the round that begins at step `begin`; returns the first step after the round. */
static size_t post_round(coll_op *op, size_t begin)
{
  const coll_step *step;
  size_t i = begin, msgs = 0;

  do {
    step = &op->schedule->steps[i++];
    if (step->kind > COLL_RECV_REDUCE) continue;
    coll_msg *msg = &op->msgs[msgs++];
    *msg = (coll_msg){.op = op, .step = step};
    op->unmatched++;
    post_message(op->comm->group, msg);
  } while (!step->ends_round && !op->comm->group->error);
  return i;
}

/* Runs rounds until one has to wait.  True when the schedule has ended. */
static bool run_rounds(coll_op *op)
{
  coll_group *g = op->comm->group;
  const coll_schedule *s = op->schedule;

  while (op->next_step < s->count) {
    size_t begin = op->next_step;
    op->unmatched = 1; /* one count is held here until all messages are posted, so that the round cannot end earlier */
    op->next_step = post_round(op, begin);
    for (size_t i = begin; i < op->next_step && !g->error; i++) /* while the messages travel */
      if (s->steps[i].kind > COLL_RECV_REDUCE) run_local(op, &s->steps[i]);
    if (g->error || --op->unmatched > 0) return false;
  }
  return true;
}

/* All ranks have met, `last_peer` last. */
static void hand_over(coll_op *op)
{
  if (op->last_peer >= 0) coll_comm_waited(op->comm, op->last_peer, weft_now_ns() - op->posted_ns);
  op->last_peer = -1;
  coll_engine_hand_over_locked(op);
}

/* Starts or continues the active collective of a rank. */
static void run_locked(coll_op *op) WEFT_REQUIRES_ASSERTED(op->comm->group->mu)
{
  coll_group *g = op->comm->group;
  weft_mutex_assert_held(&g->mu);
  weft_status *st = NULL;

  if (g->use_direct) {
    coll_direct_arrive_locked(op);
    return;
  }
  if (!op->started) st = load_first(op);
  while (!st) {
    if (!run_rounds(op)) return;
    bool tells_sizes = op->args.kind == WEFT_RAGGED_ALL_TO_ALL && !op->problem.recv_at;
    if (tells_sizes) st = take_ragged_sizes(op);
    if (!st && coll_op_goes_below(op)) { /* ranks that have told each other sizes have met */
      hand_over(op);
      return;
    }
    if (!tells_sizes) break;
    if (!st) st = load_schedule(op, &op->problem);
  }
  if (st) {
    coll_group_fail_locked(g, st);
    return;
  }
  coll_op *next = op->next; /* the rank's oldest operation may be one that a platform's communicator has */
  coll_op_finish_locked(op, NULL);
  if (next) coll_engine_make_runnable_locked(next);
}

bool coll_engine_drain_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  bool any = false;

  while (g->runnable && !g->frozen) {
    coll_op *op = g->runnable;
    g->runnable = op->next_runnable;
    if (!g->runnable) g->runnable_tail = &g->runnable;
    op->runnable = false;
    run_locked(op);
    any = true;
  }
  return any;
}

/* ---- sends and receives ---- */

static bool p2p_match(const coll_op *send, const coll_op *recv)
{
  return send->args.tag == recv->args.tag && send->args.peer == recv->comm->rank &&
         (recv->args.peer < 0 || recv->args.peer == send->comm->rank);
}

/* Takes the first message of the FIFO that matches `op`; NULL: none. */
static coll_msg *take_match(coll_fifo *fifo, const coll_op *op, bool op_sends)
{
  coll_msg **at = &fifo->head, *before = NULL;

  for (; *at; before = *at, at = &(*at)->next) {
    coll_msg *msg = *at;
    if (!p2p_match(op_sends ? op : msg->op, op_sends ? msg->op : op)) continue;
    *at = msg->next;
    if (fifo->tail == msg) fifo->tail = before;
    return msg;
  }
  return NULL;
}

static void p2p_transfer(coll_group *g, coll_op *send, coll_op *recv)
{
  weft_mutex_assert_held(&g->mu);
  if (send->problem.bytes != recv->problem.bytes || send->args.dtype != recv->args.dtype) {
    coll_group_fail_locked(g, coll_op_disagreement(send, recv));
    return;
  }
  if (send->problem.bytes) memmove(recv->memory[COLL_OUT], send->memory[COLL_IN], (size_t)send->problem.bytes);
  coll_op_finish_locked(send, NULL);
  coll_op_finish_locked(recv, NULL);
}

void coll_p2p_post_locked(coll_op *op)
{
  coll_group *g = op->comm->group;
  weft_mutex_assert_held(&g->mu);
  bool sends = op->args.kind == WEFT_SEND;

  op->p2p = (coll_msg){.op = op};
  op->started = true;
  if (coll_group_has_platform(g)) {
    if (coll_p2p_goes_below_locked(g, op)) coll_engine_hand_over_locked(op);
    return;
  }
  if (sends) {
    int there = g->local_of[op->args.peer];
    if (there < 0) {
      coll_link_p2p_locked(g, op->comm->local, op);
      return;
    }
    weft_comm *target = g->locals[there];
    if (!target) {
      coll_group_fail_locked(g, WEFT_ERR(FAILED_PRECONDITION, "rank %d left the communicator", op->args.peer));
      return;
    }
    coll_msg *recv = take_match(&target->p2p_recvs, op, true);
    if (recv) p2p_transfer(g, op, recv->op);
    else coll_fifo_push(&op->comm->p2p_sends, &op->p2p);
    return;
  }
  for (int i = 0; i < g->local_count; i++) {
    if (!g->locals[i]) continue;
    coll_msg *send = take_match(&g->locals[i]->p2p_sends, op, false);
    if (!send) continue;
    p2p_transfer(g, send->op, op);
    return;
  }
  if (g->local_count == g->size || !coll_link_p2p_locked(g, op->comm->local, op))
    coll_fifo_push(&op->comm->p2p_recvs, &op->p2p);
}
