/* collective/host/direct.c -- collectives whose ranks are all in this process.
 *
 * Ranks meet by slots (coll_slot).  A small operation puts its input into the slot as well: each rank makes its own
 * result from the slots, and no rank waits until another has read.  For a large operation, the last rank to arrive
 * turns the buffers of all ranks into jobs (fold these places into those), and every thread that has time works on
 * the jobs.  Reductions are left folds in rank order.  Work is cut into chunks by size alone. */
#include <config.h>

#include "collective/host/direct.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "collective/context.h"
#include "collective/flight.h"
#include "collective/host/steps.h"

enum { MIN_LATE_NS = 2000 }; /* shorter delays are not recorded */
enum { SLOTS_BYTES = 8 << 10 }; /* inputs of all ranks together: for more, one fold for all ranks is faster */
enum { CHUNK_BYTES = 64 << 10, INLINE_BYTES = 64 << 10, CHUNKS_WORTH_A_WAKE = 4 };

/* ---- slots ---- */

weft_status *coll_direct_init(coll_group *g)
{
  g->slot_bytes = WEFT_ALIGN_UP(sizeof(coll_slot) + SLOTS_BYTES / (size_t)g->size, _Alignof(coll_slot));
  WEFT_TRY_ALLOC(g->slots = aligned_alloc(_Alignof(coll_slot), 2 * (size_t)g->size * g->slot_bytes));
  memset(g->slots, 0, 2 * (size_t)g->size * g->slot_bytes);
  return NULL;
}

bool coll_direct_fits(const coll_op *op)
{
  const coll_problem *p = &op->problem;
  /* the most that one rank gives; the same on all ranks, unless they disagree on the operation */
  int64_t bytes = p->bytes;

  switch (p->kind) {
  case WEFT_ALL_TO_ALL_V:
  case WEFT_RAGGED_ALL_TO_ALL:
  case WEFT_SEND:
  case WEFT_RECV: return false;
  case WEFT_REDUCE_SCATTER:
  case WEFT_SCATTER:
  case WEFT_ALL_TO_ALL: bytes *= p->size; break;
  default: break;
  }
  if (p->prefix) bytes = p->prefix[p->size];
  return bytes <= SLOTS_BYTES / p->size && op->args.reduction != WEFT_CUSTOM;
}

void coll_direct_publish(coll_op *op, bool queued)
{
  coll_slot *slot = coll_direct_slot(op->comm->group, op->comm->rank, op->seq);
  size_t bytes = op->slotted ? (size_t)coll_problem_in_bytes(&op->problem) : 0;

  op->started = true;
  slot->fingerprint = op->fingerprint;
  slot->posted_ns = op->posted_ns;
  slot->op = op;
  if (bytes) memcpy(slot->payload, op->memory[COLL_IN], bytes);
  atomic_store_explicit(&slot->word, 2 * (op->seq + 1) + queued, memory_order_release); /* pairs with coll_direct_met */
}

bool coll_direct_met(const coll_group *g, coll_meeting *m)
{
  for (; m->seen < g->size; m->seen++) {
    const coll_slot *slot = coll_direct_slot(g, m->seen, m->number - 1);
    if (atomic_load_explicit(&slot->word, memory_order_acquire) / 2 != m->number) return false;
    if ((m->stranger = slot->fingerprint != m->fingerprint)) return true;
  }
  return true;
}

/* ---- making jobs ---- */

static bool reserve(coll_jobs *d, size_t pointers)
{
  return WEFT_RESERVE(d->jobs, d->job_capacity, d->job_count + 1, 16) &&
         WEFT_RESERVE(d->pointers, d->pointer_capacity, d->pointer_count + pointers, 32);
}

/* Adds a job with `parts` and `dsts` pointers.  The caller writes the pointers to the returned place, parts first.
 * NULL without memory. */
static void **add_job(coll_jobs *d, int parts, int dsts, int64_t bytes)
{
  if (!reserve(d, (size_t)(parts + dsts))) return NULL;
  d->jobs[d->job_count++] =
    (coll_job){d->pointer_count, d->pointer_count + (size_t)parts, parts, dsts, (size_t)bytes, d->chunk_count};
  d->chunk_count += ((size_t)bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
  void **at = d->pointers + d->pointer_count;
  d->pointer_count += (size_t)(parts + dsts);
  return at;
}

static bool add_copy(coll_jobs *d, const char *src, char *dst, int64_t bytes)
{
  if (bytes == 0 || src == dst) return true;
  void **at = add_job(d, 1, 1, bytes);
  if (!at) return false;
  at[0] = (void *)src;
  at[1] = dst;
  return true;
}

/* The operation that all ranks have posted, as `op` describes it, and the ranks [first, end), whose results
 * are wanted. */
typedef struct demand {
  coll_group *g;
  const coll_op *op;
  int first, end;
  coll_jobs *jobs;
} demand;

/* The operation of `rank`.  If the operation is slotted, only ranks whose results are wanted may be asked for. */
static const coll_op *op_of(const demand *d, int rank)
{
  return rank == d->op->comm->rank ? d->op : d->g->locals[rank]->head;
}
static const char *in_of(const demand *d, int rank)
{
  return d->op->slotted ? coll_direct_slot(d->g, rank, d->op->seq)->payload : op_of(d, rank)->memory[COLL_IN];
}
static char *out_of(const demand *d, int rank) { return op_of(d, rank)->memory[COLL_OUT]; }

/* Block `rank` of a vector laid out by p. */
static int64_t block_at(const coll_problem *p, int rank) { return p->prefix ? p->prefix[rank] : p->bytes * rank; }
static int64_t block_bytes(const coll_problem *p, int rank)
{
  return p->prefix ? p->prefix[rank + 1] - p->prefix[rank] : p->bytes;
}

/* Folds bytes [at, at + bytes) of all inputs into the outputs of ranks [first, end). */
static bool add_fold(const demand *d, int64_t at, int64_t bytes, int first, int end)
{
  void **p = bytes ? add_job(d->jobs, d->g->size, end - first, bytes) : NULL;

  if (!p) return bytes == 0;
  for (int r = 0; r < d->g->size; r++) *p++ = (void *)(in_of(d, r) + at);
  for (int r = first; r < end; r++) *p++ = out_of(d, r);
  return true;
}

/* Copies `bytes` from `src` to byte `at` of the output of every wanted rank except `skip`. */
static bool add_spread(const demand *d, const char *src, int64_t at, int64_t bytes, int skip)
{
  int n = d->end - d->first - (d->first <= skip && skip < d->end);
  void **p = bytes && n ? add_job(d->jobs, 1, n, bytes) : NULL;

  if (!p) return bytes == 0 || n == 0;
  *p++ = (void *)src;
  for (int r = d->first; r < d->end; r++)
    if (r != skip) *p++ = out_of(d, r) + at;
  return true;
}

static bool add_zeroes(const demand *d, int to, int64_t bytes)
{
  void **p = bytes ? add_job(d->jobs, 0, 1, bytes) : NULL;

  if (p) p[0] = out_of(d, to);
  return p || bytes == 0;
}

/* What `sender` sends to `receiver` becomes a part of the receiving half of the receiver's problem (prepare.c describes
 * the arrays). */
static weft_status *take_ragged_sizes(const coll_op *sender, const coll_op *receiver)
{
  int from = sender->comm->rank, to = receiver->comm->rank, pieces = sender->problem.pieces;
  int64_t n = (int64_t)sender->problem.size * pieces, *out = sender->arrays, *in = receiver->arrays;

  for (int k = 0; k < pieces; k++) {
    int64_t i = (int64_t)to * pieces + k, j = (int64_t)from * pieces + k, bytes = out[n + i], at = out[2 * n + i];
    int64_t expected = in[3 * n + j], limit = receiver->problem.bytes;
    if (bytes != expected || at > limit - bytes)
      return WEFT_ERR(FAILED_PRECONDITION,
                      "ragged-all-to-all: rank %d sends %lld bytes to byte %lld of rank %d's %lld, whose recv_sizes "
                      "say %lld",
                      from, (long long)bytes, (long long)at, to, (long long)limit, (long long)expected);
    in[4 * n + j] = at;
    in[5 * n + j] = bytes;
  }
  return NULL;
}

static bool add_ragged(const demand *d, int from, int to)
{
  const coll_op *sender = op_of(d, from), *receiver = op_of(d, to);
  int pieces = sender->problem.pieces;
  int64_t n = (int64_t)sender->problem.size * pieces;

  weft_mutex_assert_held(&d->g->mu);
  weft_status *st = take_ragged_sizes(sender, receiver);
  if (st) {
    coll_group_fail_locked(d->g, st);
    return true;
  }
  for (int k = 0; k < pieces; k++) {
    int64_t j = (int64_t)from * pieces + k;
    if (!add_copy(d->jobs, in_of(d, from) + sender->arrays[(int64_t)to * pieces + k],
                  out_of(d, to) + receiver->arrays[4 * n + j], receiver->arrays[5 * n + j]))
      return false;
  }
  return true;
}

/* Is the root wanted, and its broadcast in place?  Then its memory must not be written: it may be read-only. */
static bool keeps_own(const demand *d, int root)
{
  return d->first <= root && root < d->end && out_of(d, root) == op_of(d, root)->memory[COLL_IN];
}

/* Adds the jobs that make the result of rank r.  Where one job makes the results of all wanted ranks, the first of
 * them adds it.  False without memory. */
static bool add_jobs_of(const demand *d, int r)
{
  coll_group *g = d->g;
  const coll_problem *p = &d->op->problem, *mine = &op_of(d, r)->problem;
  int n = g->size;
  bool ok = true;

  switch (p->kind) {
  case WEFT_ALL_REDUCE: return r > d->first || add_fold(d, 0, p->bytes, d->first, d->end);
  case WEFT_REDUCE: return r != p->root || add_fold(d, 0, p->bytes, r, r + 1);
  case WEFT_REDUCE_SCATTER: return add_fold(d, block_at(p, r), block_bytes(p, r), r, r + 1);
  case WEFT_BROADCAST:
    return r > d->first || add_spread(d, in_of(d, p->root), 0, p->bytes, keeps_own(d, p->root) ? p->root : -1);
  case WEFT_ALL_GATHER:
  case WEFT_ALL_GATHER_V:
    for (int s = 0; s < n && ok && r == d->first; s++)
      ok = add_spread(d, in_of(d, s), block_at(p, s), block_bytes(p, s), -1);
    return ok;
  case WEFT_GATHER:
  case WEFT_GATHER_V:
    for (int s = 0; s < n && ok && r == p->root; s++)
      ok = add_copy(d->jobs, in_of(d, s), out_of(d, r) + block_at(p, s), block_bytes(p, s));
    return ok;
  case WEFT_SCATTER:
  case WEFT_SCATTER_V: return add_copy(d->jobs, in_of(d, p->root) + block_at(p, r), out_of(d, r), block_bytes(p, r));
  case WEFT_PERMUTE:
    return mine->source < 0 ? add_zeroes(d, r, p->bytes)
                            : add_copy(d->jobs, in_of(d, mine->source), out_of(d, r), p->bytes);
  case WEFT_ALL_TO_ALL:
    for (int s = 0; s < n && ok; s++)
      ok = add_copy(d->jobs, in_of(d, s) + p->bytes * r, out_of(d, r) + p->bytes * s, p->bytes);
    return ok;
  case WEFT_ALL_TO_ALL_V:
    for (int s = 0; s < n && ok; s++) {
      const coll_problem *theirs = &op_of(d, s)->problem;
      ok = add_copy(d->jobs, in_of(d, s) + theirs->send_at[r], out_of(d, r) + mine->recv_at[s], theirs->send_bytes[r]);
    }
    return ok;
  case WEFT_RAGGED_ALL_TO_ALL:
    for (int s = 0; s < n && ok && !g->error; s++) ok = add_ragged(d, s, r); /* large, so under the lock */
    return ok;
  default: return true; /* barrier */
  }
}

static bool make_jobs(const demand *d)
{
  bool ok = true;

  d->jobs->job_count = d->jobs->pointer_count = d->jobs->chunk_count = 0;
  d->jobs->reducer = &d->op->reducer; /* `op` arrived last, so its memory is in this core's cache */
  for (int r = d->first; r < d->end && ok; r++) ok = add_jobs_of(d, r);
  return ok;
}

/* ---- working ---- */

static void run_chunk(const coll_jobs *d, const coll_job *job, size_t chunk)
{
  size_t at = chunk * CHUNK_BYTES, bytes = WEFT_MIN((size_t)CHUNK_BYTES, job->bytes - at);
  void **parts = d->pointers + job->parts, **dsts = d->pointers + job->dsts;

  if (job->part_count == 0) {
    memset((char *)dsts[0] + at, 0, bytes);
  } else if (job->part_count == 1) {
    for (int i = 0; i < job->dst_count; i++)
      if (dsts[i] != parts[0]) memcpy((char *)dsts[i] + at, (char *)parts[0] + at, bytes);
  } else {
    coll_fold(d->reducer, dsts, job->dst_count, (const void *const *)parts, job->part_count, at, bytes);
  }
}

/* Runs chunk number `chunk` of all jobs, which bisection finds: jobs are in order of first_chunk, and none is empty. */
static void run_numbered(const coll_jobs *d, size_t chunk)
{
  size_t lo = 0, hi = d->job_count;

  while (hi - lo > 1) {
    size_t mid = (lo + hi) / 2;
    if (d->jobs[mid].first_chunk <= chunk) lo = mid;
    else hi = mid;
  }
  run_chunk(d, &d->jobs[lo], chunk - d->jobs[lo].first_chunk);
}

static void work(coll_direct *d)
{
  for (size_t chunk;
       (chunk = atomic_fetch_add_explicit(&d->next_chunk, 1, memory_order_relaxed)) < d->jobs.chunk_count;) {
    run_numbered(&d->jobs, chunk);
    atomic_fetch_add_explicit(&d->done_chunks, 1, memory_order_relaxed); /* relaxed: the group's lock orders the data */
  }
}

/* ---- small operations ---- */

/* Makes the rank's result from the slots of all ranks.  False without memory. */
static bool make_result(coll_op *op)
{
  coll_jobs *jobs = &op->jobs;
  int rank = op->comm->rank;

  if (!make_jobs(&(demand){op->comm->group, op, rank, rank + 1, jobs})) return false;
  for (size_t i = 0; i < jobs->job_count; i++) run_chunk(jobs, &jobs->jobs[i], 0);
  return true;
}

/* The rank that came last to the operation of number `seq`, and how late it was; -1: no rank was late. */
static int last_to_come(const coll_group *g, uint64_t seq, bool slotted, int64_t *late_ns)
{
  int64_t first_ns = INT64_MAX, last_ns = 0;
  int last = 0;

  for (int r = 0; r < g->size; r++) {
    int64_t posted_ns = slotted ? coll_direct_slot(g, r, seq)->posted_ns : g->locals[r]->head->posted_ns;
    first_ns = WEFT_MIN(first_ns, posted_ns);
    if (posted_ns < last_ns) continue;
    last_ns = posted_ns;
    last = r;
  }
  *late_ns = last_ns - first_ns;
  return *late_ns >= MIN_LATE_NS ? last : -1;
}

bool coll_direct_end_alone(coll_op *op, bool *others)
{
  const coll_group *g = op->comm->group;
  int64_t late_ns;
  int last;

  *others = false;
  if (!make_result(op)) return false;
  if ((last = last_to_come(g, op->seq, true, &late_ns)) >= 0) coll_comm_waited(op->comm, last, late_ns);
  /* A rank that joins the queue after it has arrived is seen here; or, in coll_direct_arrive_locked, it sees that
   * this rank has ended.  One of the two happens because all four accesses are seq_cst. */
  atomic_store(&op->comm->ended_seq, op->seq + 1);
  for (int r = 0; r < g->size; r++) *others |= atomic_load(&coll_direct_slot(g, r, op->seq)->word) & 1;
  return true;
}

void coll_direct_end_queued_locked(coll_group *g, uint64_t seq)
{
  weft_mutex_assert_held(&g->mu);
  int64_t now_ns = weft_now_ns(), late_ns;
  int last = -2;

  for (int r = 0; r < g->size && !g->error; r++) {
    coll_op *op = g->locals[r] ? g->locals[r]->head : NULL;
    if (!op || op->seq != seq || !op->started) continue;
    if (!make_result(op)) {
      coll_group_fail_locked(g, WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for an operation's jobs"));
      return;
    }
    if (last == -2) last = last_to_come(g, seq, true, &late_ns);
    if (last >= 0) coll_comm_waited(op->comm, last, late_ns);
    coll_op_finish_at_locked(op, NULL, now_ns);
    if (op->comm->head) coll_engine_make_runnable_locked(op->comm->head);
  }
}

bool coll_direct_had_met_locked(coll_op *op)
{
  weft_mutex_assert_held(&op->comm->group->mu);
  coll_meeting m = {.number = op->seq + 1, .fingerprint = op->fingerprint};
  bool met = op->slotted && op->started && coll_direct_met(op->comm->group, &m) && !m.stranger && make_result(op);

  if (met) coll_op_finish_locked(op, NULL);
  return met;
}

/* ---- large operations ---- */

/* Ends the operation on every rank and lets the ranks' next operations arrive. */
static void finish_all(coll_group *g)
{
  int64_t now_ns = weft_now_ns(), late_ns;

  atomic_store_explicit(&g->direct.running, false, memory_order_relaxed);
  if (g->error) {
    while (g->all_pending) coll_op_finish_locked(g->all_pending, weft_status_dup(g->error));
    return;
  }
  int last = last_to_come(g, g->locals[0]->head->seq, false, &late_ns);
  for (int r = 0; r < g->size; r++) {
    weft_comm *comm = g->locals[r];
    if (last >= 0) coll_comm_waited(comm, last, late_ns);
    coll_op_finish_at_locked(comm->head, NULL, now_ns);
    if (comm->head) coll_engine_make_runnable_locked(comm->head);
  }
}

static bool is_inline(const coll_jobs *jobs)
{
  size_t bytes = 0;
  for (size_t i = 0; i < jobs->job_count && bytes <= INLINE_BYTES; i++)
    bytes += jobs->jobs[i].bytes * (size_t)(jobs->jobs[i].part_count + jobs->jobs[i].dst_count);
  return bytes <= INLINE_BYTES;
}

bool coll_direct_work_locked(coll_group *g) WEFT_NO_THREAD_SAFETY
{
  coll_direct *d = &g->direct;

  weft_mutex_assert_held(&g->mu);
  if (is_inline(&d->jobs)) {
    work(d);
  } else if (atomic_load_explicit(&d->next_chunk, memory_order_relaxed) < d->jobs.chunk_count) {
    d->workers++;
    weft_mutex_unlock(&g->mu); /* no event is fired here: the caller's unlock does that */
    work(d);
    coll_group_lock(g);
    d->workers--;
  }
  if (!d->running || d->workers > 0 ||
      atomic_load_explicit(&d->done_chunks, memory_order_relaxed) < d->jobs.chunk_count)
    return false;
  finish_all(g);
  return true;
}

static void start(coll_group *g, const coll_op *last)
{
  coll_direct *d = &g->direct;

  weft_mutex_assert_held(&g->mu);
  if (!make_jobs(&(demand){g, last, 0, g->size, &d->jobs}))
    coll_group_fail_locked(g, WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for an operation's jobs"));
  if (g->error) return;
  atomic_store_explicit(&d->next_chunk, 0, memory_order_relaxed);
  atomic_store_explicit(&d->done_chunks, 0, memory_order_relaxed);
  atomic_store_explicit(&d->running, true, memory_order_relaxed);
  if (d->jobs.chunk_count >= CHUNKS_WORTH_A_WAKE && !is_inline(&d->jobs)) coll_context_wake();
}

/* The operation of number `seq` of a rank; NULL: it has ended. */
static coll_op *operation_of(const coll_group *g, int rank, uint64_t seq)
{
  weft_mutex_assert_held(&g->mu);
  coll_op *op = g->locals[rank]->head;

  while (op && op->seq != seq) op = op->next;
  return op;
}

/* Every rank learns what the others send it. */
static weft_status *exchange_ragged_sizes(coll_group *g, uint64_t seq)
{
  weft_mutex_assert_held(&g->mu);
  for (int to = 0; to < g->size; to++) {
    coll_op *receiver = operation_of(g, to, seq);
    for (int from = 0; from < g->size && receiver; from++) {
      const coll_op *sender = operation_of(g, from, seq);
      if (sender) WEFT_TRY(take_ragged_sizes(sender, receiver));
    }
    if (!receiver) continue;
    int64_t n = (int64_t)g->size * receiver->problem.pieces;
    receiver->problem.recv_at = receiver->arrays + 4 * n;
    receiver->problem.recv_bytes = receiver->arrays + 5 * n;
  }
  return NULL;
}

/* The place that all ranks have in common. */
static uint64_t agree_on_place(coll_group *g, uint64_t seq)
{
  weft_mutex_assert_held(&g->mu);
  coll_op *any = NULL;

  for (int r = 0; r < g->size; r++) {
    coll_op *op = operation_of(g, r, seq);
    if (!op) continue;
    coll_engine_place_locked(op);
    if (any) coll_op_meet_place(any, op->place);
    else any = op;
  }
  return any ? any->place : COLL_NO_PLACE;
}

/* Hands each rank's operation of number `seq` over to the platform's communicator. */
static void hand_over_all(coll_group *g, uint64_t seq)
{
  weft_mutex_assert_held(&g->mu);
  int64_t late_ns;
  int last = last_to_come(g, seq, true, &late_ns);
  const coll_op *any = operation_of(g, 0, seq);
  weft_status *st = any && any->args.kind == WEFT_RAGGED_ALL_TO_ALL ? exchange_ragged_sizes(g, seq) : NULL;

  if (st) coll_group_fail_locked(g, st);
  uint64_t place = agree_on_place(g, seq);
  for (int r = 0; r < g->size && !g->error; r++) {
    coll_op *op = operation_of(g, r, seq);
    if (!op) continue;
    if (last >= 0) coll_comm_waited(op->comm, last, late_ns);
    op->place = place;
    coll_engine_hand_over_locked(op);
  }
}

/* ---- arriving ---- */

/* Ranks arrive at large operations only through the queue, so for these it is enough to count. */
static bool all_have_met_locked(const coll_op *op, coll_meeting *m) WEFT_REQUIRES_ASSERTED(op->comm->group->mu)
{
  weft_mutex_assert_held(&op->comm->group->mu);
  const coll_group *g = op->comm->group;

  return op->slotted ? coll_direct_met(g, m) : ++m->seen == g->size;
}

void coll_direct_arrive_locked(coll_op *op)
{
  coll_group *g = op->comm->group;
  weft_mutex_assert_held(&g->mu);
  coll_meeting *m = &g->direct.meeting[op->seq & 1];
  const coll_op **first = &g->direct.first[op->seq & 1], *other = NULL;
  uint64_t number = op->seq + 1;

  coll_flight_started(op);
  if (op->started) { /* the rank ran alone before: see coll_direct_end_alone */
    atomic_store(&coll_direct_slot(g, op->comm->rank, op->seq)->word, 2 * number + 1);
    for (int r = 0; r < g->size; r++)
      /* if a rank that ended alone missed the bit above, this sees its end, and so its slot */
      if (g->locals[r]) (void)atomic_load(&g->locals[r]->ended_seq);
  } else {
    coll_direct_publish(op, true);
  }
  if (m->number != number) {
    *m = (coll_meeting){number, op->fingerprint, 0, false};
    *first = op;
  }
  if (m->fingerprint != op->fingerprint) {
    other = *first;
  } else if (!all_have_met_locked(op, m)) {
    int gone = 0;
    while (gone < g->size && g->locals[gone]) gone++;
    if (gone < g->size) coll_group_fail_locked(g, WEFT_ERR(FAILED_PRECONDITION, "rank %d left the communicator", gone));
  } else if (m->stranger) {
    other = coll_direct_slot(g, m->seen, op->seq)->op;
  } else if (op->slotted) {
    coll_direct_end_queued_locked(g, op->seq);
  } else if (coll_group_has_platform(g)) {
    hand_over_all(g, op->seq);
  } else {
    start(g, op);
  }
  if (other) coll_group_fail_locked(g, coll_op_disagreement(other, op));
}
