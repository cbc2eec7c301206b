/* gpu/talk.c -- stretches with collectives, as graphs (talk.h).
 *
 * A run posts all collectives of the stretch at once, with a hold (nccl.h).  The ranks meet for each of them on the
 * host, as for collectives outside of graphs: deadlines, the comparison of operations, the flight recorder and
 * reports are the same.  When the ranks have met for the last one, a worker launches the graph, or queues the steps
 * one by one on the compute stream.  The collectives end when the stream has done all of it.
 *
 *   start: find or record the graph -> post, held -> all have met (owner's thread) -> worker: launch -> landed -> ended
 *
 * A device's first run queues one by one, as in graph.c; by then the library has made its connections.  So do runs
 * while events are recorded, whose steps are timed one by one, and runs in which an operand lies in the way of its
 * result and has to be copied.  They, too, post all collectives first, since neither may be so on other ranks: ranks
 * that post one after another and ranks that post all at once would wait for each other.  For the same reason all ranks
 * must agree whether NCCL has the collectives of a stretch (gpu_communicator_nccl_rank).
 *
 * Later runs record: each rank's owner queues the rank's operations on the stream that captures.  A graph is kept for
 * its addresses and for the communicators with which it was recorded.  It is never updated, and the library wants it to
 * end before the communicator does (gpu_lease).  If a communicator fails after the launch, its abort makes the graph's
 * kernels leave; before the launch, nothing is launched any more.
 *
 * Within a graph the collectives are queued among the steps in program order: none of them overlaps with other work.
 * A loop with a known, small number of rounds is part of it round by round, and each collective in it is posted once a
 * round.
 *
 * Locks: of_device.mu; then gpu_device.talk_mu, which is held while a graph is launched, so that no communicator ends
 * meanwhile. */
#include <config.h>

#include "gpu/talk.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "collective/host/schedule.h"
#include "gpu/communicator.h"
#include "gpu/jobs.h"
#include "gpu/makers.h"
#include "gpu/nccl.h"
#include "gpu/recording.h"
#include "runtime/trace.h"

enum { KEPT = 4, MOST_FAILURES = 3, FREE_RECORDINGS = 8 };

/* The most that a recording waits for the library: nothing is posted yet whose deadline could end it. */
enum { RECORD_MS = 60000 };

/* A graph for some addresses, ids and communicators. */
typedef struct recorded {
  wcu_graph_exec exec; /* NULL: none, or a communicator has ended.  Guarded by talk_mu */
  wcu_graph graph;     /* likewise */
  void **args;
  int64_t replica_id, partition_id;
  struct held_lease *leases; /* [gpu_talks.most_ranks] */
  int rank_count;
  int runs;            /* runs that may launch it; guarded by of_device.mu */
  uint64_t launched;
} recorded;

typedef struct held_lease {
  gpu_lease lease; /* first */
  recorded *of;
} held_lease;

typedef struct device_talks {
  weft_mutex mu;
  bool is_warm WEFT_GUARDED_BY(mu);
  int failures WEFT_GUARDED_BY(mu);
  uint64_t launches WEFT_GUARDED_BY(mu), recordings WEFT_GUARDED_BY(mu), hits WEFT_GUARDED_BY(mu);
  recorded kept[KEPT] WEFT_GUARDED_BY(mu);
} device_talks;

struct gpu_talks {
  gpu_platform *platform;
  rt_stretch *stretch;
  int thunk_count, op_count;  /* collectives, and their operations; those in loops once for each round */
  const rt_thunk **thunks;    /* [thunk_count] in program order */
  device_talks *of_device;    /* by ordinal */
};

/* One collective of a run. */
typedef struct talk {
  struct run *run;
  weft_coll_waiter waiter;
  weft_comm *comm;
  weft_coll_call call;
  int first, count;           /* its operations */
} talk;

typedef struct run {
  gpu_hold hold;              /* first */
  rt_job job;
  gpu_talks *talks;
  rt_ctx *ctx;
  device_talks *of;
  gpu_device *gpu;
  recorded *graph;            /* NULL: the steps are queued one by one */
  atomic_int pending;         /* collectives that have not ended, and a share of the poster */
  atomic_int parts;           /* the end of all collectives, the launch: then the run ends */
  _Atomic(weft_status *) error; /* the first one */
  talk *all;                  /* [thunk_count] */
  weft_coll_op *ops;          /* [op_count] */
  coll_problem *problems;     /* [op_count] */
  gpu_nccl_rank **rank_of;    /* [op_count] */
  gpu_job **jobs;             /* [op_count]: what the owners have given back; NULL while a graph is recorded */
  gpu_nccl_rank **ranks;      /* [rank_count] without repetition */
  int rank_count;
  bool copies;                /* an operand is in the way of its result: it is copied, which graphs do not */
  int64_t described_ns;       /* when the operations were described, and their deadlines set */
  int put;                    /* collectives whose operations have been queued or recorded */
  weft_deadline record_by;    /* while a graph is recorded; else WEFT_NO_DEADLINE */
} run;

static void fail(run *r, weft_status *st)
{
  weft_status *none = NULL;

  if (st && !atomic_compare_exchange_strong(&r->error, &none, st)) weft_status_free(st);
}

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

/* gpu_lease.end, under talk_mu: the communicator ends. */
static void lease_ends(gpu_lease *lease)
{
  recorded *one = ((held_lease *)lease)->of;

  gpu_drop_instance(WEFT_MOVE(one->exec));
  gpu_drop_graph(WEFT_MOVE(one->graph));
}

/* The caller has entered the device. */
static void drop(gpu_device *gpu, recorded *one)
{
  weft_mutex_lock(&gpu->talk_mu);
  for (int i = 0; i < one->rank_count; i++) gpu_nccl_give_up(&one->leases[i].lease);
  one->rank_count = 0;
  wcu_graph_exec exec = WEFT_MOVE(one->exec);
  wcu_graph graph = WEFT_MOVE(one->graph);
  weft_mutex_unlock(&gpu->talk_mu);
  gpu_drop_instance(exec);
  gpu_drop_graph(graph);
}

/* Are the communicators those with which the graph was recorded?  Under talk_mu. */
static bool has_ranks(const recorded *one, const run *r)
{
  bool same = one->exec && one->rank_count == r->rank_count;

  for (int i = 0; i < one->rank_count && same; i++)
    same = one->leases[i].lease.rank == r->ranks[i] && one->leases[i].lease.epoch == gpu_nccl_epoch(r->ranks[i]);
  return same;
}

static bool fits(const recorded *one, const run *r)
{
  const rt_stretch *s = r->talks->stretch;

  weft_mutex_lock(&r->gpu->talk_mu);
  bool same = has_ranks(one, r);
  weft_mutex_unlock(&r->gpu->talk_mu);
  same = same && one->replica_id == r->ctx->info->replica_id && one->partition_id == r->ctx->info->partition_id;
  for (int i = 0, at = 0; i < s->range_count && same; at += s->ranges[i++].count)
    same = memcmp(one->args + at, r->ctx->args + s->ranges[i].first, (size_t)s->ranges[i].count * sizeof(void *)) == 0;
  return same;
}

static weft_status *make_room(const gpu_talks *t, recorded *one)
{
  if (!one->args) one->args = malloc((size_t)WEFT_MAX(t->stretch->arg_count, 1) * sizeof *one->args);
  WEFT_TRY_ALLOC(one->args);
  if (!one->leases) one->leases = calloc((size_t)t->op_count, sizeof *one->leases);
  WEFT_TRY_ALLOC(one->leases);
  return NULL;
}

/* Queues the operations of a collective where the calling thread's steps go. */
static weft_status *put_step(void *ctx, const rt_thunk *step)
{
  run *r = ctx;
  wcu_stream stream;
  int i = r->put++;

  if (i >= r->talks->thunk_count || r->talks->thunks[i] != step)
    return WEFT_ERR(INTERNAL, "collectives of a graph are not in their order");
  WEFT_TRY(gpu_begin_step(step, r->ctx, &stream));
  weft_status *st = NULL;
  for (int k = r->all[i].first; k < r->all[i].first + r->all[i].count && !st; k++)
    st = gpu_nccl_put(r->rank_of[k], r->jobs[k], &r->ops[k], &r->problems[k], stream, r->record_by);
  return gpu_end_work(r->ctx, st);
}

static weft_status *lend(run *r, recorded *one, const uint64_t *epochs)
{
  bool all = true;

  weft_mutex_lock(&r->gpu->talk_mu);
  for (int i = 0; i < r->rank_count; i++) {
    one->leases[i] = (held_lease){.lease = {.epoch = epochs[i], .end = lease_ends}, .of = one};
    all &= gpu_nccl_lend(r->ranks[i], &one->leases[i].lease);
    one->rank_count = i + 1;
  }
  weft_mutex_unlock(&r->gpu->talk_mu);
  return all ? NULL : WEFT_ERR(ABORTED, "a communicator has failed");
}

static weft_status *instantiate(run *r, recorded *one)
{
  wcu_graph_exec exec = NULL;

  weft_mutex_lock(&r->talks->platform->launching); /* as in graph.c */
  weft_status *st = GPU_CALL(cuGraphInstantiate, &exec, one->graph, 0);
  weft_mutex_unlock(&r->talks->platform->launching);
  weft_mutex_lock(&r->gpu->talk_mu);
  bool alive = one->graph != NULL; /* else a communicator has ended meanwhile */
  if (!st && alive) one->exec = WEFT_MOVE(exec);
  weft_mutex_unlock(&r->gpu->talk_mu);
  if (!st) gpu_drop_instance(exec);
  return st || alive ? st : WEFT_ERR(ABORTED, "a communicator has failed");
}

/* Records the steps for this run.  The caller has entered the device. */
static weft_status *record(run *r, recorded *one)
{
  const rt_stretch *s = r->talks->stretch;
  uint64_t *epochs;
  wcu_graph graph;

  WEFT_TRY(make_room(r->talks, one));
  epochs = malloc((size_t)r->rank_count * sizeof *epochs);
  WEFT_TRY_ALLOC(epochs);
  for (int i = 0; i < r->rank_count; i++) epochs[i] = gpu_nccl_epoch(r->ranks[i]);
  weft_deadline own = r->all[0].call.deadline;
  r->record_by = weft_deadline_min(weft_deadline_after_ms(RECORD_MS), own.at_ns ? own : WEFT_NO_DEADLINE);
  r->put = 0;
  weft_status *st = gpu_record_stretch(r->talks->platform, s, r->ctx, r->gpu, put_step, r, &graph);
  r->record_by = WEFT_NO_DEADLINE;
  if (!st) one->graph = graph; /* nobody else knows it yet */
  if (!st) st = lend(r, one, epochs);
  free(epochs);
  WEFT_TRY(st);
  WEFT_TRY(instantiate(r, one));
  for (int i = 0, at = 0; i < s->range_count; at += s->ranges[i++].count)
    memcpy(one->args + at, r->ctx->args + s->ranges[i].first, (size_t)s->ranges[i].count * sizeof(void *));
  one->replica_id = r->ctx->info->replica_id;
  one->partition_id = r->ctx->info->partition_id;
  return NULL;
}

/* The graph that was launched longest ago and that no run is to launch; NULL: there is none. */
static recorded *find_oldest(device_talks *of) WEFT_REQUIRES(of->mu)
{
  recorded *oldest = NULL;

  weft_mutex_assert_held(&of->mu);
  for (int i = 0; i < KEPT; i++)
    if (!of->kept[i].runs && (!oldest || of->kept[i].launched < oldest->launched)) oldest = &of->kept[i];
  return oldest;
}

/* A graph for this run; NULL: the steps are queued one by one, as while events are recorded or where operands must be
 * copied.  The caller has entered the device. */
static recorded *graph_for(run *r) WEFT_REQUIRES(r->of->mu)
{
  device_talks *of = r->of;

  weft_mutex_assert_held(&of->mu);
  if (WEFT_UNLIKELY(rt_trace_on || r->copies)) return NULL;
  for (int i = 0; i < KEPT; i++)
    if (fits(&of->kept[i], r)) {
      of->hits++;
      return &of->kept[i];
    }
  if (!of->is_warm || of->failures >= MOST_FAILURES || of->recordings >= FREE_RECORDINGS + of->hits) return NULL;
  recorded *one = find_oldest(of);
  if (!one) return NULL;
  drop(r->gpu, one);
  weft_status *st = record(r, one);
  of->failures = st ? of->failures + 1 : 0;
  of->recordings += !st;
  if (!st) return one;
  drop(r->gpu, one);
  WEFT_LOG("gpu", WARN, "steps \"%s\" are queued one by one, since no graph was made of them: %s",
           r->talks->stretch->base.name, weft_status_message(st));
  weft_status_free(st);
  return NULL;
}

/* ---- the end of a run ------------------------------------------------------------------------------------------ */

static void part_ended(run *r)
{
  if (atomic_fetch_sub(&r->parts, 1) > 1) return;
  const rt_thunk *thunk = &r->talks->stretch->base;
  weft_status *st = atomic_load(&r->error);
  rt_ctx *ctx = r->ctx;

  weft_mutex_lock(&r->of->mu);
  if (r->graph) r->graph->runs--;
  weft_mutex_unlock(&r->of->mu);
  free(r);
  rt_thunk_done(thunk, ctx, st);
}

/* A collective has ended, or the poster is done. */
static void talk_ended(run *r)
{
  if (atomic_fetch_sub(&r->pending, 1) > 1) return;
  /* an operation for which the ranks have not met: nobody will launch anything */
  if (atomic_load(&r->hold.left) > 0) part_ended(r);
  part_ended(r);
}

static void waiter_called(void *ctx, weft_status *st)
{
  talk *t = ctx;

  fail(t->run, st);
  talk_ended(t->run);
}

/* ---- the launch ------------------------------------------------------------------------------------------------ */

/* *out_launched: the graph was that of these communicators, and has been launched. */
static weft_status *launch_graph(run *r, bool *out_launched)
{
  wcu_stream stream;
  weft_status *st = NULL;

  *out_launched = false;
  if (!r->graph) return NULL;
  WEFT_TRY(gpu_begin_step(&r->talks->stretch->base, r->ctx, &stream));
  weft_mutex_lock(&r->gpu->talk_mu);
  if (has_ranks(r->graph, r)) {
    st = GPU_CALL(cuGraphLaunch, r->graph->exec, stream);
    *out_launched = true;
  }
  weft_mutex_unlock(&r->gpu->talk_mu);
  return gpu_end_work(r->ctx, st);
}

static weft_status *queue_work(run *r)
{
  bool launched;

  WEFT_TRY(launch_graph(r, &launched));
  r->put = 0;
  return launched ? NULL : gpu_queue_stretch(r->talks->stretch, r->ctx, put_step, r);
}

/* The steps have the run's number in a profile or a trace, and queuing them is an event of this thread. */
static weft_status *queue_recorded(run *r)
{
  rt_trace_step outer = rt_trace_current;
  int64_t begin = weft_now_ns();

  if (WEFT_LIKELY(!rt_trace_on)) return queue_work(r);
  rt_trace_current = rt_trace_step_of(&r->talks->stretch->base, r->ctx->info);
  weft_status *st = queue_work(r);
  rt_trace_queued(&rt_trace_current, begin);
  rt_trace_current = outer;
  return st;
}

/* Takes back the operations that the owners hold, and finds out which one of the run each of them is: a rank's are in
 * the order of their posts.  Returns their number. */
static int take_back(run *r, gpu_jobs *out)
{
  int count = 0;

  gpu_jobs_init(out);
  for (int i = 0; i < r->rank_count; i++) {
    int k = 0;
    for (gpu_job *j = gpu_nccl_take(r->ranks[i], &r->hold), *next; j; j = next, count++) {
      next = j->next;
      while (r->rank_of[k] != r->ranks[i]) k++;
      r->jobs[k++] = j;
      gpu_jobs_push(out, j);
    }
  }
  return count;
}

/* On a worker: all ranks have met for all operations. */
static void launch(rt_job *job)
{
  run *r = WEFT_CONTAINER_OF(job, run, job);
  weft_stream *compute = weft_device_stream(r->ctx->info->device, WEFT_STREAM_COMPUTE);
  gpu_jobs taken;
  int count = take_back(r, &taken);

  /* The work of an operation comes after all work before it in the stretch.  The deadline, which aborts communicators,
   * comes before the devices count as hung, after which they are of no more use. */
  for (gpu_job *j = taken.first; j; j = j->next)
    coll_communicator_extend(j->posting.op, r->talks->op_count, r->gpu->timeout_ns / 2);
  weft_status *st = count == r->talks->op_count ? queue_recorded(r) : WEFT_ERR(ABORTED, "a communicator was aborted");
  for (gpu_job *j = taken.first, *next; j; j = next) {
    next = j->next;
    gpu_nccl_queued(j, compute, weft_status_dup(st));
  }
  fail(r, st);
  part_ended(r);
}

static void all_have_met(gpu_hold *hold)
{
  run *r = (run *)hold;

  rt_pool_offer(r->ctx->pool, &r->job, 1);
}

/* ---- the start of a run ---------------------------------------------------------------------------------------- */

static void count_talks(gpu_talks *t, rt_thunk *const *steps, int count)
{
  for (int i = 0; i < count; i++) {
    for (int64_t n = gpu_rounds_of(steps[i]); n > 0; n--)
      count_talks(t, rt_seq_steps(steps[i]->seqs[0]), rt_seq_count(steps[i]->seqs[0]));
    if (rt_control_kind_of(steps[i]) == RT_NO_CONTROL && steps[i]->own_ops->start) {
      if (t->thunks) t->thunks[t->thunk_count] = steps[i];
      t->thunk_count++;
      t->op_count += low_collective_count(steps[i]);
    }
  }
}

weft_status *gpu_talks_new(gpu_platform *platform, rt_stretch *stretch, gpu_talks **out_talks)
{
  gpu_talks *t = calloc(1, sizeof *t);

  *out_talks = NULL;
  WEFT_TRY_ALLOC(t);
  *t = (gpu_talks){.platform = platform, .stretch = stretch};
  count_talks(t, stretch->steps, stretch->count);
  t->thunks = calloc((size_t)WEFT_MAX(t->thunk_count, 1), sizeof *t->thunks);
  t->of_device = calloc((size_t)platform->gpu_count, sizeof *t->of_device);
  if (!t->thunks || !t->of_device) {
    free(t->thunks);
    free(t->of_device);
    free(t);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  t->thunk_count = t->op_count = 0;
  count_talks(t, stretch->steps, stretch->count);
  for (int d = 0; d < platform->gpu_count; d++) weft_mutex_init(&t->of_device[d].mu);
  *out_talks = t;
  return NULL;
}

void gpu_talks_free(gpu_talks *t) WEFT_UNSHARED
{
  if (!t) return;
  for (int d = 0; d < t->platform->gpu_count; d++) {
    weft_status *st = gpu_enter(&t->platform->gpus[d]); /* graphs of a device that hangs are not freed */
    for (int i = 0; i < KEPT; i++) {
      recorded *one = &t->of_device[d].kept[i];
      if (!st) drop(&t->platform->gpus[d], one);
      free(one->args);
      free(one->leases);
    }
    if (!st) gpu_leave();
    weft_status_ignore(st);
    weft_mutex_fini(&t->of_device[d].mu);
  }
  free(t->thunks);
  free(t->of_device);
  free(t);
}

/* A run and its arrays are one block of memory. */
static run *new_run(gpu_talks *t, rt_ctx *ctx)
{
  size_t ops = (size_t)t->op_count, thunks = (size_t)t->thunk_count;
  char *memory = calloc(1, sizeof(run) + thunks * sizeof(talk) +
                             ops * (sizeof(coll_problem) + sizeof(weft_coll_op) + 3 * sizeof(void *)));
  run *r = (run *)(void *)memory;

  if (!r) return NULL;
  memory += sizeof *r;
  r->all = (talk *)(void *)memory, memory += thunks * sizeof *r->all;
  r->problems = (coll_problem *)(void *)memory, memory += ops * sizeof *r->problems;
  r->ops = (weft_coll_op *)(void *)memory, memory += ops * sizeof *r->ops;
  r->rank_of = (gpu_nccl_rank **)(void *)memory, memory += ops * sizeof *r->rank_of;
  r->jobs = (gpu_job **)(void *)memory, memory += ops * sizeof *r->jobs;
  r->ranks = (gpu_nccl_rank **)(void *)memory;
  r->hold.met = all_have_met;
  r->job = (rt_job){.run = launch, .node = rt_device_near(ctx->info->device)};
  r->record_by = WEFT_NO_DEADLINE;
  r->talks = t;
  r->ctx = ctx;
  r->gpu = gpu_of(ctx->info->device);
  r->of = &t->of_device[ctx->info->device_ordinal];
  atomic_init(&r->hold.left, t->op_count + 1);
  atomic_init(&r->pending, t->thunk_count + 1);
  atomic_init(&r->parts, 2);
  atomic_init(&r->error, NULL);
  return r;
}

static void note_rank(run *r, gpu_nccl_rank *rank)
{
  int i = 0;

  while (i < r->rank_count && r->ranks[i] != rank) i++;
  if (i == r->rank_count) r->ranks[r->rank_count++] = rank;
}

/* Describes the operations of all collectives.  *out_fits: NCCL has all of them.  All ranks of the program's operations
 * find the same: a rank that posts its collectives one after another, each when the one before has ended, and a rank
 * that posts all of them before it begins would wait for each other. */
static weft_status *describe(run *r, bool *out_fits)
{
  const gpu_talks *t = r->talks;
  int first = 0;

  *out_fits = false;
  r->described_ns = weft_now_ns();
  for (int i = 0; i < t->thunk_count; i++) {
    talk *one = &r->all[i];
    int64_t ignored;
    one->run = r;
    one->first = first;
    one->count = low_collective_count(t->thunks[i]);
    first += one->count;
    WEFT_TRY(low_collective_describe(t->thunks[i], r->ctx, r->ops + one->first, &one->call, &one->comm));
    one->call.hold = &r->hold;
    one->waiter.fn = waiter_called;
    one->waiter.ctx = one;
    for (int k = one->first; k < first; k++) {
      WEFT_TRY(coll_communicator_problem(one->comm, &r->ops[k], &r->problems[k]));
      r->rank_of[k] = gpu_communicator_nccl_rank(one->comm, t->platform, &r->ops[k], &r->problems[k]);
      if (!r->rank_of[k]) return NULL;
      r->copies |= gpu_operand_is_in_the_way(&r->problems[k], r->ops[k].send, r->ops[k].recv, &ignored);
      note_rank(r, r->rank_of[k]);
    }
  }
  *out_fits = true;
  return NULL;
}

/* Fails all communicators of the run: an operation of this rank is missing. */
static void abort_all(const run *r, const weft_status *st)
{
  for (int i = 0; i < r->talks->thunk_count; i++) weft_comm_abort(r->all[i].comm, weft_status_dup(st));
}

/* Recording may have taken long: the operations have their time from now on. */
static void renew_deadline(const run *r, weft_deadline *deadline)
{
  int64_t late_ns = weft_now_ns() - r->described_ns;

  if (deadline->at_ns > 0 && deadline->at_ns < INT64_MAX - late_ns) deadline->at_ns += late_ns;
}

static void post_all(run *r)
{
  const gpu_talks *t = r->talks;
  weft_status *st = NULL;
  int i = 0;

  for (int k = 0; k < t->thunk_count; k++) renew_deadline(r, &r->all[k].call.deadline);
  for (; i < t->thunk_count && !st; i++) {
    talk *one = &r->all[i];
    bool pending = false;
    st = weft_coll_start(one->comm, r->ops + one->first, (size_t)one->count, &one->call, (weft_coll_patience){0, NULL},
                         &one->waiter, &pending);
    if (!st && !pending) talk_ended(r); /* it has ended already; the poster has its share */
    if (st) break;
  }
  if (st) {
    abort_all(r, st);
    fail(r, st);
    for (; i < t->thunk_count; i++) talk_ended(r);
  } else {
    gpu_hold_count(&r->hold);
  }
  talk_ended(r);
}

weft_status *gpu_talks_start(gpu_talks *t, rt_ctx *ctx, bool *out_started)
{
  run *r = new_run(t, ctx);
  bool fits_in;

  *out_started = false;
  WEFT_TRY_ALLOC(r);
  weft_status *st = describe(r, &fits_in);
  if (!st && fits_in) st = gpu_enter(r->gpu);
  if (st || !fits_in) {
    free(r);
    return st;
  }
  weft_mutex_lock(&r->of->mu);
  r->graph = graph_for(r);
  r->of->is_warm = true;
  if (r->graph) {
    r->graph->runs++;
    r->graph->launched = ++r->of->launches;
  }
  weft_mutex_unlock(&r->of->mu);
  gpu_leave();
  *out_started = true;
  post_all(r);
  return NULL;
}
