/* collective/local/direct.c -- collectives whose ranks all live in this process: every buffer is in reach, so the last
 * rank to arrive turns the operation into jobs (fold these places into those) and whoever has time works on them.
 * Reductions are left folds in rank order; work is cut by size alone. */
#include <config.h>

#include "collective/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MIN_LATE_NS = 2000 }; /* less is nobody's fault */
enum { CHUNK_BYTES = 64 << 10, INLINE_BYTES = 64 << 10, CHUNKS_WORTH_A_WAKE = 4 };

/* ---- making jobs ---- */

static bool reserve(coll_direct *d, size_t pointers)
{
  if (d->job_count == d->job_capacity) {
    size_t capacity = WEFT_MAX((size_t)16, 2 * d->job_capacity);
    coll_job *grown = realloc(d->jobs, capacity * sizeof *grown);
    if (!grown) return false;
    d->jobs = grown;
    d->job_capacity = capacity;
  }
  if (d->pointer_count + pointers > d->pointer_capacity) {
    size_t capacity = 2 * d->pointer_capacity + pointers + 32;
    void **grown = realloc(d->pointers, capacity * sizeof *grown);
    if (!grown) return false;
    d->pointers = grown;
    d->pointer_capacity = capacity;
  }
  return true;
}

/* A job of `parts` and `dsts` pointers, to be filled at the returned place: parts first.  NULL without memory. */
static void **add_job(coll_direct *d, int parts, int dsts, int64_t bytes)
{
  if (!reserve(d, (size_t)(parts + dsts))) return NULL;
  d->jobs[d->job_count++] = (coll_job){d->pointer_count, d->pointer_count + (size_t)parts, parts, dsts, (size_t)bytes,
                                       d->chunk_count};
  d->chunk_count += ((size_t)bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
  void **at = d->pointers + d->pointer_count;
  d->pointer_count += (size_t)(parts + dsts);
  return at;
}

static bool add_copy(coll_direct *d, const char *src, char *dst, int64_t bytes)
{
  if (bytes == 0 || src == dst) return true;
  void **at = add_job(d, 1, 1, bytes);
  if (!at) return false;
  at[0] = (void *)src;
  at[1] = dst;
  return true;
}

static coll_op *op_of(coll_group *g, int rank) { return g->locals[rank]->head; }
static char *in_of(coll_group *g, int rank) { return op_of(g, rank)->memory[COLL_IN]; }
static char *out_of(coll_group *g, int rank) { return op_of(g, rank)->memory[COLL_OUT]; }

/* Block `rank` of a vector laid out by p. */
static int64_t block_at(const coll_problem *p, int rank) { return p->prefix ? p->prefix[rank] : p->bytes * rank; }
static int64_t block_bytes(const coll_problem *p, int rank)
{
  return p->prefix ? p->prefix[rank + 1] - p->prefix[rank] : p->bytes;
}

/* Folds bytes [at, at + bytes) of all inputs to one place, or to all outputs (to NULL). */
static bool add_fold(coll_group *g, int64_t at, int64_t bytes, char *to)
{
  int n = g->size;
  void **p = bytes ? add_job(&g->direct, n, to ? 1 : n, bytes) : NULL;

  if (!p) return bytes == 0;
  for (int r = 0; r < n; r++) p[r] = in_of(g, r) + at;
  for (int r = 0; r < (to ? 1 : n); r++) p[n + r] = to ? to : out_of(g, r);
  return true;
}

/* From one place to all outputs. */
static bool add_spread(coll_group *g, const char *src, int64_t at, int64_t bytes, int skip)
{
  int n = g->size - (skip >= 0);
  void **p = bytes && n ? add_job(&g->direct, 1, n, bytes) : NULL;

  if (!p) return bytes == 0 || n == 0;
  p[0] = (void *)src;
  for (int r = 0; r < g->size; r++)
    if (r != skip) *++p = out_of(g, r) + at;
  return true;
}

static bool add_ragged(coll_group *g, int from, int to)
{
  const coll_problem *p = &op_of(g, from)->problem;
  int64_t n = (int64_t)p->size * p->pieces, *out = op_of(g, from)->arrays, *in = op_of(g, to)->arrays;

  for (int k = 0; k < p->pieces; k++) {
    int64_t i = (int64_t)to * p->pieces + k, bytes = out[n + i], at = out[2 * n + i];
    int64_t expected = in[3 * n + (int64_t)from * p->pieces + k], limit = op_of(g, to)->problem.bytes;
    if (bytes != expected || at > limit - bytes) {
      weft_status *st = WEFT_ERR(FAILED_PRECONDITION,
                                 "ragged-all-to-all: rank %d sends %lld bytes to byte %lld of rank %d's %lld, whose "
                                 "recv_sizes say %lld", from, (long long)bytes, (long long)at, to, (long long)limit,
                                 (long long)expected);
      coll_group_fail_locked(g, st, false);
      return true;
    }
    if (!add_copy(&g->direct, in_of(g, from) + out[i], out_of(g, to) + at, bytes)) return false;
  }
  return true;
}

/* The jobs of what all have posted, as `any` says it.  False without memory. */
static bool make_jobs(coll_group *g, const coll_op *any)
{
  coll_direct *d = &g->direct;
  const coll_problem *p = &any->problem;
  int n = g->size;
  bool ok = true;

  for (int r = 0; r < n && ok && !g->error; r++) {
    const coll_problem *mine = &op_of(g, r)->problem;
    switch (p->kind) {
    case WEFT_ALL_REDUCE: ok = r > 0 || add_fold(g, 0, p->bytes, NULL); break;
    case WEFT_REDUCE: ok = r != p->root || add_fold(g, 0, p->bytes, out_of(g, r)); break;
    case WEFT_REDUCE_SCATTER: ok = add_fold(g, block_at(p, r), block_bytes(p, r), out_of(g, r)); break;
    case WEFT_BROADCAST:
      ok = r != p->root || add_spread(g, in_of(g, r), 0, p->bytes, out_of(g, r) == in_of(g, r) ? r : -1);
      break;
    case WEFT_ALL_GATHER:
    case WEFT_ALL_GATHER_V: ok = add_spread(g, in_of(g, r), block_at(p, r), block_bytes(p, r), -1); break;
    case WEFT_GATHER:
    case WEFT_GATHER_V: ok = add_copy(d, in_of(g, r), out_of(g, p->root) + block_at(p, r), block_bytes(p, r)); break;
    case WEFT_SCATTER:
    case WEFT_SCATTER_V: ok = add_copy(d, in_of(g, p->root) + block_at(p, r), out_of(g, r), block_bytes(p, r)); break;
    case WEFT_PERMUTE:
      if (mine->source >= 0)
        ok = add_copy(d, in_of(g, mine->source), out_of(g, r), p->bytes);
      else if (p->bytes) {
        void **at = add_job(d, 0, 1, p->bytes);
        if ((ok = at != NULL)) at[0] = out_of(g, r);
      }
      break;
    case WEFT_ALL_TO_ALL:
      for (int to = 0; to < n && ok; to++)
        ok = add_copy(d, in_of(g, r) + p->bytes * to, out_of(g, to) + p->bytes * r, p->bytes);
      break;
    case WEFT_ALL_TO_ALL_V:
      for (int to = 0; to < n && ok; to++)
        ok = add_copy(d, in_of(g, r) + mine->send_at[to], out_of(g, to) + op_of(g, to)->problem.recv_at[r],
                      mine->send_bytes[to]);
      break;
    case WEFT_RAGGED_ALL_TO_ALL:
      for (int to = 0; to < n && ok && !g->error; to++) ok = add_ragged(g, r, to);
      break;
    default: break; /* barrier */
    }
  }
  return ok;
}

/* ---- working ---- */

static void run_chunk(const coll_direct *d, const coll_job *job, size_t chunk)
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

/* Chunk number `chunk` of all jobs, by bisection: jobs are in order of first_chunk, and empty ones do not exist. */
static void run_numbered(const coll_direct *d, size_t chunk)
{
  size_t lo = 0, hi = d->job_count;

  while (hi - lo > 1) {
    size_t mid = (lo + hi) / 2;
    if (d->jobs[mid].first_chunk <= chunk)
      lo = mid;
    else
      hi = mid;
  }
  run_chunk(d, &d->jobs[lo], chunk - d->jobs[lo].first_chunk);
}

static void work(coll_direct *d)
{
  for (size_t chunk; (chunk = atomic_fetch_add_explicit(&d->next_chunk, 1, memory_order_relaxed)) < d->chunk_count;) {
    run_numbered(d, chunk);
    atomic_fetch_add_explicit(&d->done_chunks, 1, memory_order_relaxed); /* the group's lock orders the data */
  }
}

/* Ends the operation on every rank and lets the next one arrive. */
static void finish_all(coll_group *g)
{
  coll_direct *d = &g->direct;
  int64_t first_ns = INT64_MAX, last_ns = 0, now_ns = weft_now_ns();
  int last = -1;

  atomic_store_explicit(&d->running, false, memory_order_relaxed);
  d->arrived = 0;
  if (g->error) {
    while (g->all_pending) coll_op_finish_locked(g->all_pending, weft_status_dup(g->error));
    return;
  }
  for (int r = 0; r < g->size; r++) first_ns = WEFT_MIN(first_ns, op_of(g, r)->posted_ns);
  for (int r = 0; r < g->size; r++) {
    int64_t late_ns = op_of(g, r)->posted_ns - first_ns;
    if (late_ns >= last_ns) {
      last_ns = late_ns;
      last = r;
    }
  }
  if (last_ns < MIN_LATE_NS) last = -1;
  for (int r = 0; r < g->size; r++) {
    op_of(g, r)->last_peer = last;
    if (last >= 0) {
      weft_comm_lateness *late = &g->locals[r]->lateness[last];
      late->waited_ns += last_ns;
      late->max_ns = WEFT_MAX(late->max_ns, last_ns);
    }
    coll_op_finish_at_locked(op_of(g, r), NULL, now_ns);
  }
  for (int r = 0; r < g->size && !g->error; r++)
    if (g->locals[r]->head) coll_direct_arrive_locked(g->locals[r]->head);
}

/* `last` arrived last: its memory is the nearest. */
static void start(coll_group *g, const coll_op *last)
{
  coll_direct *d = &g->direct;

  d->job_count = d->pointer_count = d->chunk_count = 0;
  d->reducer = &last->reducer;
  if (!make_jobs(g, last)) coll_group_fail_locked(g, WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for an operation's jobs"), true);
  if (g->error) return;
  atomic_store_explicit(&d->next_chunk, 0, memory_order_relaxed);
  atomic_store_explicit(&d->done_chunks, 0, memory_order_relaxed);
  atomic_store_explicit(&d->running, true, memory_order_relaxed);
}

static bool is_small(const coll_direct *d)
{
  size_t bytes = 0;
  for (size_t i = 0; i < d->job_count && bytes <= INLINE_BYTES; i++)
    bytes += d->jobs[i].bytes * (size_t)(d->jobs[i].part_count + d->jobs[i].dst_count);
  return bytes <= INLINE_BYTES;
}

bool coll_direct_work_locked(coll_group *g) WEFT_NO_THREAD_SAFETY
{
  coll_direct *d = &g->direct;

  if (is_small(d)) {
    work(d);
  } else if (atomic_load_explicit(&d->next_chunk, memory_order_relaxed) < d->chunk_count) {
    d->workers++;
    weft_mutex_unlock(&g->mu); /* nothing is fired here: the caller's unlock does that */
    work(d);
    coll_group_lock(g);
    d->workers--;
  }
  if (!d->running || d->workers > 0 || atomic_load_explicit(&d->done_chunks, memory_order_relaxed) < d->chunk_count) return false;
  finish_all(g);
  return true;
}

void coll_direct_arrive_locked(coll_op *op)
{
  coll_group *g = op->comm->group;
  coll_direct *d = &g->direct;

  op->started = true;
  op->flight->started_ns = op->posted_ns;
  if (g->live_count < g->size) {
    int gone = 0;
    while (g->locals[gone]) gone++;
    coll_group_fail_locked(g, WEFT_ERR(FAILED_PRECONDITION, "rank %d left the communicator", gone), true);
    return;
  }
  if (d->arrived++ == 0) d->first = op;
  if (op->fingerprint != d->first->fingerprint) {
    coll_group_fail_locked(g, coll_op_disagreement(d->first, op), true);
    return;
  }
  if (d->arrived < g->size) return;
  start(g, op);
  if (d->running && !is_small(d) && d->chunk_count >= CHUNKS_WORTH_A_WAKE) coll_context_wake();
}

void coll_direct_fini(coll_direct *direct)
{
  free(direct->jobs);
  free(direct->pointers);
}
