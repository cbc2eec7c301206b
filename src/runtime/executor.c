/* runtime/executor.c -- Running programs.
 *
 * A sequence in order is a loop over thunks. A sequence as a graph is a heap of ready thunks by priority, which the
 * starting thread and workers that join drain together. No thread waits: the thread that ends the last piece of a
 * sequence goes on with what comes after it. A thunk that ends elsewhere (a collective) leaves its thread free, and
 * a loop whose body contains one is resumed by the pool.
 *
 * "Finished" travels in one of two ways. A function that returns true has finished its sequence on this thread. A
 * function that returns false has not: the rest happens elsewhere, and the caller must not touch the run any more,
 * since frame and program may be gone. */
#include <config.h>

#include <string.h>

#include "runtime/device.h"
#include "runtime/host_copies.h"
#include "runtime/program_internal.h"
#include "runtime/trace.h"

static bool seq_start(rt_frame *frame, const rt_seq *seq);
static void seq_finished(rt_frame *frame, const rt_seq *seq);

/* Takes the error of a sequence that has ended. Only its last thread is here, so no lock is needed. */
static weft_status *take_error(rt_frame *frame, const rt_seq *seq) WEFT_NO_THREAD_SAFETY
{
  rt_seq_run *run = &frame->runs[seq->index];
  weft_status *st = run->error;
  run->error = NULL;
  return st;
}

/* ---- one thunk ------------------------------------------------------------------------------------------------- */

/* Starts an asynchronous thunk. True if the thunk has ended already, with its error in *out. */
static bool start_thunk(rt_frame *frame, const rt_thunk *thunk, weft_status **out)
{
  rt_async *async = &frame->asyncs[thunk->index];
  int phase = RT_STARTING;

  async->st = NULL;
  atomic_store_explicit(&async->phase, RT_STARTING, memory_order_relaxed);
  memset(&frame->ctx.states[thunk->index], 0, sizeof frame->ctx.states[0]);
  *out = thunk->ops->start(thunk, &frame->ctx);
  if (*out) return true;
  /* acq_rel: pairs with rt_thunk_done; of the starting and the ending thread, the second goes on with the run */
  if (atomic_compare_exchange_strong_explicit(&async->phase, &phase, RT_LEFT, memory_order_acq_rel,
                                              memory_order_acquire))
    return false;
  *out = async->st;
  return true;
}

static bool run_or_start(rt_frame *frame, const rt_thunk *thunk, weft_status **out)
{
  if (thunk->ops->run) *out = thunk->ops->run(thunk, &frame->ctx);
  else if (thunk->ops->control) return thunk->ops->control(thunk, &frame->ctx, out);
  else if (thunk->ops->enqueue) *out = thunk->ops->enqueue(thunk, &frame->ctx);
  else return start_thunk(frame, thunk, out);
  return true;
}

rt_trace_step rt_trace_step_of(const rt_thunk *thunk, const rt_run_info *info)
{
  return (rt_trace_step){.kind = thunk->own_ops->kind,
                         .name = thunk->name,
                         .device = info->device_ordinal,
                         .program = info->program_id,
                         .run = info->run_id,
                         .contains = thunk->own_ops->control != NULL};
}

/* run_or_start while events are recorded. */
static __attribute__((noinline)) bool record_step(rt_frame *frame, const rt_thunk *thunk, weft_status **out)
{
  int64_t begin = weft_now_ns();
  rt_trace_step step = rt_trace_step_of(thunk, frame->ctx.info), outer = rt_trace_current;
  bool queues = thunk->ops->enqueue != NULL, done;

  rt_trace_current = step;
  done = run_or_start(frame, thunk, out);
  /* a step that starts late has been recorded by the thread that ran it */
  if (done && !rt_starts_late(thunk)) (queues ? rt_trace_queued : rt_trace_done)(&step, begin);
  rt_trace_current = outer;
  return done;
}

/* Runs or starts a thunk. True when it is done; its error is then in *out. */
static bool execute(rt_frame *frame, const rt_thunk *thunk, weft_status **out)
{
  return WEFT_UNLIKELY(rt_trace_on) ? record_step(frame, thunk, out) : run_or_start(frame, thunk, out);
}

static void miss(rt_frame *frame, const rt_thunk *thunk)
{
  if (thunk->order_group > 0)
    atomic_store_explicit(&frame->fell_behind, true, memory_order_relaxed); /* read after `done`, which orders it */
}

static weft_status *name_failure(weft_status *st, const rt_thunk *thunk)
{
  return weft_status_note(st, __FILE__, __LINE__, "%s \"%s\"", thunk->ops->kind, thunk->name);
}

/* ---- in order -------------------------------------------------------------------------------------------------- */

/* Thunk `at` has failed with `st` (taken), and none after it will run. A sequence in order is on one thread at a
 * time, so no lock is needed. */
static void end_in_order(rt_frame *frame, const rt_seq *seq, int at, weft_status *st) WEFT_NO_THREAD_SAFETY
{
  frame->runs[seq->index].error = name_failure(st, seq->thunks[at]);
  for (; at < seq->count; at++) miss(frame, seq->thunks[at]);
}

/* Runs the sequence from thunk `at` on; true when it is done. */
static bool run_in_order(rt_frame *frame, const rt_seq *seq, int at)
{
  for (; at < seq->count; at++) {
    weft_status *st = NULL;
    frame->runs[seq->index].next = at;
    if (!execute(frame, seq->thunks[at], &st)) return false;
    if (WEFT_UNLIKELY(st != NULL)) {
      end_in_order(frame, seq, at, st);
      return true;
    }
  }
  return true;
}

/* ---- as a graph ------------------------------------------------------------------------------------------------ */

static void push_ready(rt_seq_run *run, int node) WEFT_REQUIRES(run->mu)
{
  const rt_node *nodes = run->seq->nodes;
  int at = run->ready_count++;

  for (int up; at > 0 && nodes[run->ready[up = (at - 1) / 2]].priority < nodes[node].priority; at = up)
    run->ready[at] = run->ready[up];
  run->ready[at] = node;
}

static int pop_ready(rt_seq_run *run) WEFT_REQUIRES(run->mu)
{
  const rt_node *nodes = run->seq->nodes;
  int top = run->ready[0], last = run->ready[--run->ready_count], at = 0;

  for (int down; (down = 2 * at + 1) < run->ready_count; at = down) {
    if (down + 1 < run->ready_count && nodes[run->ready[down + 1]].priority > nodes[run->ready[down]].priority) down++;
    if (nodes[run->ready[down]].priority <= nodes[last].priority) break;
    run->ready[at] = run->ready[down];
  }
  run->ready[at] = last;
  return top;
}

static void release_waiters(rt_seq_run *run, int begin, int count) WEFT_REQUIRES(run->mu)
{
  for (int i = begin; i < begin + count; i++) {
    int node = run->seq->successors[i];
    if (--run->waits[node] == 0) push_ready(run, node);
  }
}

/* Ends a node (takes `st`) and releases what waits for it. Unlike a collective, control flow releases the next of
 * its order group only now. */
static void node_ended(rt_seq_run *run, int node, weft_status *st) WEFT_REQUIRES(run->mu)
{
  const rt_node *n = &run->seq->nodes[node];

  if (st) miss(run->frame, run->seq->thunks[node]);
  if (st && !run->error) run->error = name_failure(st, run->seq->thunks[node]);
  else weft_status_free(st);
  if (!run->seq->thunks[node]->ops->start) release_waiters(run, n->started_begin, n->started_count);
  release_waiters(run, n->successor_begin, n->successor_count);
  run->left--;
}

enum entry { BEGIN, JOIN };

/* Runs ready thunks until there are none. If `ended` >= 0, that node has ended with `st` (taken), which is recorded
 * first. Returns true if the sequence is done, to exactly one caller: the last thread inside. The run cannot be done
 * while a thread is inside, so the thread may use it. The lock is held from the end of one thunk to the choice of
 * the next, so that a thread which leaves does so without touching the run again. */
static bool drain(rt_seq_run *run, enum entry entry, int ended, weft_status *st) WEFT_NO_THREAD_SAFETY
{
  rt_frame *frame = run->frame;
  const rt_seq *seq = run->seq;

  weft_mutex_lock(&run->mu);
  run->working++;
  if (entry == BEGIN) {
    run->left = seq->count;
    run->ready_count = 0;
    for (int n = 0; n < seq->count; n++) run->waits[n] = seq->nodes[n].waits;
    for (int n = 0; n < seq->count; n++)
      if (seq->nodes[n].waits == 0) push_ready(run, n);
  }
  if (ended >= 0) node_ended(run, ended, st);
  while (run->ready_count > 0) {
    int node = pop_ready(run), helpers = atomic_load_explicit(&run->helpers, memory_order_relaxed);
    int wanted = WEFT_MIN(run->ready_count, frame->program->threads - run->working - helpers);
    const rt_thunk *thunk = seq->thunks[node];
    bool skip = run->error != NULL;
    if (wanted > 0) atomic_fetch_add_explicit(&run->helpers, wanted, memory_order_relaxed);
    weft_mutex_unlock(&run->mu);
    if (wanted > 0) rt_pool_offer(frame->ctx.pool, &run->job, wanted);
    st = NULL;
    if (skip) miss(frame, thunk);
    bool done = skip || execute(frame, thunk, &st);
    weft_mutex_lock(&run->mu);
    /* not before the thunk has started: another thread would start the next thunk of the order group first. A thunk
     * that is skipped never starts */
    if (thunk->ops->start && (skip || !rt_starts_late(thunk)))
      release_waiters(run, seq->nodes[node].started_begin, seq->nodes[node].started_count);
    if (done) node_ended(run, node, st);
  }
  bool finished = --run->working == 0 && run->left == 0;
  if (finished) run->left = -1; /* so that no other thread finds the sequence done */
  weft_mutex_unlock(&run->mu);
  return finished;
}

/* ---- going on after an end ------------------------------------------------------------------------------------- */

static bool control_go_on(rt_frame *frame, const rt_thunk *thunk, const rt_seq *after, weft_status **out);

/* A thunk that had left its thread has ended (takes `st`); true if its sequence is now done. */
static bool thunk_ended(rt_frame *frame, const rt_thunk *thunk, weft_status *st)
{
  const rt_seq *seq = thunk->parent;

  if (!seq->in_order) return drain(&frame->runs[seq->index], JOIN, thunk->node, st);
  if (!st) return run_in_order(frame, seq, thunk->node + 1);
  end_in_order(frame, seq, thunk->node, st);
  return true;
}

/* A sequence is done: continues the control flow that the sequence belongs to, then the control flow around that, as
 * far as possible at once. */
static void seq_finished(rt_frame *frame, const rt_seq *seq)
{
  for (;;) {
    const rt_thunk *owner = seq->owner;
    weft_status *st = NULL;
    if (!owner) {
      frame->done(frame->done_arg, take_error(frame, seq));
      return;
    }
    if (!control_go_on(frame, owner, seq, &st) || !thunk_ended(frame, owner, st)) return;
    seq = owner->parent;
  }
}

/* A worker joins a graph, or resumes a sequence in order whose thunk has ended elsewhere. */
static void join_in(rt_job *job)
{
  rt_seq_run *run = (rt_seq_run *)job;
  rt_frame *frame = run->frame;
  const rt_seq *seq = run->seq;
  bool finished;

  if (seq->in_order) {
    const rt_thunk *thunk = seq->thunks[run->next];
    atomic_fetch_sub_explicit(&run->helpers, 1, memory_order_release);
    finished = thunk_ended(frame, thunk, frame->asyncs[thunk->index].st);
  } else {
    finished = drain(run, JOIN, -1, NULL);
    atomic_fetch_sub_explicit(&run->helpers, 1, memory_order_release); /* pairs with free_frame */
  }
  if (finished) seq_finished(frame, seq);
}

/* Starts a sequence. True if it is done on return. */
static bool seq_start(rt_frame *frame, const rt_seq *seq)
{
  return seq->in_order ? run_in_order(frame, seq, 0) : drain(&frame->runs[seq->index], BEGIN, -1, NULL);
}

/* Runs no thunks itself, because the caller may be a thread that must not compute. */
void rt_thunk_done(const rt_thunk *thunk, rt_ctx *ctx, weft_status *st) WEFT_NO_THREAD_SAFETY
{
  rt_frame *frame = (rt_frame *)ctx;
  rt_seq_run *run = &frame->runs[thunk->parent->index];
  rt_pool *pool = ctx->pool;
  bool someone_must_go_on = true;

  if (WEFT_UNLIKELY(frame->asyncs[thunk->index].copies != NULL))
    st = rt_host_copies_end(thunk, ctx, WEFT_MOVE(frame->asyncs[thunk->index].copies), st);
  frame->asyncs[thunk->index].st = st;
  if (atomic_exchange_explicit(&frame->asyncs[thunk->index].phase, RT_ENDED, memory_order_acq_rel) == RT_STARTING)
    return; /* the starting thread goes on */
  if (thunk->parent->in_order) {
    atomic_fetch_add_explicit(&run->helpers, 1, memory_order_relaxed);
  } else {
    weft_mutex_lock(&run->mu);
    node_ended(run, thunk->node, st);
    someone_must_go_on = run->ready_count > 0 || (run->left == 0 && run->working == 0);
    if (someone_must_go_on) atomic_fetch_add_explicit(&run->helpers, 1, memory_order_relaxed);
    weft_mutex_unlock(&run->mu);
  }
  if (someone_must_go_on) rt_pool_offer(pool, &run->job, 1);
}

void rt_thunk_started(rt_frame *frame, const rt_thunk *thunk) WEFT_NO_THREAD_SAFETY
{
  rt_seq_run *run = &frame->runs[thunk->parent->index];
  const rt_node *node = &thunk->parent->nodes[thunk->node];
  rt_pool *pool = frame->ctx.pool;

  weft_mutex_lock(&run->mu);
  release_waiters(run, node->started_begin, node->started_count);
  bool someone_must_go_on = run->ready_count > 0;
  if (someone_must_go_on) atomic_fetch_add_explicit(&run->helpers, 1, memory_order_relaxed);
  weft_mutex_unlock(&run->mu);
  if (someone_must_go_on) rt_pool_offer(pool, &run->job, 1);
}

/* ---- control flow ---------------------------------------------------------------------------------------------- */

/* Goes on with a loop; `after` is the sequence that has just ended, NULL at the start. True when the loop is done. */
static bool while_go_on(rt_frame *frame, const rt_thunk *thunk, const rt_seq *after, weft_status **out)
{
  const rt_while_thunk *loop = (const rt_while_thunk *)thunk;
  const rt_seq *body = thunk->seqs[0], *condition = thunk->seqs[1], *next;
  int64_t *rounds = &frame->ctx.states[thunk->index].words.n;

  for (;; after = next) {
    if (after && (*out = take_error(frame, after))) return true;
    if (WEFT_UNLIKELY(frame->program->queues) && rt_has_fault(&frame->ctx)) return true; /* the run has its error */
    if (after == condition) {
      if (!rt_read_flag(frame, thunk, sizeof(bool), out)) return false;
      if (*out || !frame->asyncs[thunk->index].flag.pred) return true;
      next = body;
    } else if (loop->trips >= 0) {
      if ((*rounds)++ == loop->trips) return true;
      next = body;
    } else {
      next = condition;
    }
    if (!seq_start(frame, next)) return false;
  }
}

bool rt_control_while(const rt_thunk *thunk, rt_ctx *ctx, weft_status **out)
{
  ctx->states[thunk->index].words.n = 0;
  return while_go_on((rt_frame *)ctx, thunk, NULL, out);
}

static bool is_pred(const rt_thunk *thunk) { return ((const rt_conditional_thunk *)thunk)->flag_is_pred; }

/* Runs the branch that the flag names; the flag has been read. True when the branch is done. */
static bool take_branch(rt_frame *frame, const rt_thunk *thunk, weft_status **out)
{
  const rt_async *async = &frame->asyncs[thunk->index];
  int32_t branch = is_pred(thunk) ? !async->flag.pred : async->flag.branch;

  if (branch < 0 || branch >= thunk->seq_count) branch = thunk->seq_count - 1;
  if (!seq_start(frame, thunk->seqs[branch])) return false;
  *out = take_error(frame, thunk->seqs[branch]);
  return true;
}

bool rt_control_conditional(const rt_thunk *thunk, rt_ctx *ctx, weft_status **out)
{
  rt_frame *frame = (rt_frame *)ctx;

  if (!rt_read_flag(frame, thunk, is_pred(thunk) ? sizeof(bool) : sizeof(int32_t), out)) return false;
  return *out || take_branch(frame, thunk, out);
}

/* The flag of a loop has been read: runs another round, or ends the loop. True when the loop is done. */
static bool take_round(rt_frame *frame, const rt_thunk *thunk, weft_status **out)
{
  const rt_seq *body = thunk->seqs[0];

  if (!frame->asyncs[thunk->index].flag.pred) return true;
  return seq_start(frame, body) && while_go_on(frame, thunk, body, out);
}

void rt_flag_arrived(rt_frame *frame, const rt_thunk *thunk, weft_status *st)
{
  bool is_loop = thunk->ops->control == rt_control_while;

  if (!st && !(is_loop ? take_round(frame, thunk, &st) : take_branch(frame, thunk, &st))) return;
  if (thunk_ended(frame, thunk, st)) seq_finished(frame, thunk->parent);
}

bool rt_control_call(const rt_thunk *thunk, rt_ctx *ctx, weft_status **out)
{
  if (!seq_start((rt_frame *)ctx, thunk->seqs[0])) return false;
  *out = take_error((rt_frame *)ctx, thunk->seqs[0]);
  return true;
}

/* Starts a stretch that talks. False, without an error: its steps are to run one by one. *out_done as start_thunk
 * returns it. */
static bool start_stretch(rt_frame *frame, rt_stretch *stretch, weft_status **out, bool *out_done)
{
  rt_async *async = &frame->asyncs[stretch->base.index];
  int phase = RT_STARTING;
  bool started = false;

  async->st = NULL;
  atomic_store_explicit(&async->phase, RT_STARTING, memory_order_relaxed);
  *out = stretch->start(stretch, &frame->ctx, &started);
  *out_done = true;
  if (*out || !started) return *out != NULL;
  /* acq_rel: as in start_thunk */
  *out_done = !atomic_compare_exchange_strong_explicit(&async->phase, &phase, RT_LEFT, memory_order_acq_rel,
                                                       memory_order_acquire);
  if (*out_done) *out = async->st;
  return true;
}

bool rt_control_stretch(const rt_thunk *thunk, rt_ctx *ctx, weft_status **out)
{
  rt_stretch *stretch = (rt_stretch *)thunk;
  bool queued = false, done;

  if (stretch->talks) { /* also while events are recorded: other devices' processes may record none */
    if (start_stretch((rt_frame *)ctx, stretch, out, &done)) return done;
  } else if (WEFT_LIKELY(!rt_trace_on)) {
    *out = stretch->queue(stretch, ctx, &queued);
  }
  return queued || *out || rt_control_call(thunk, ctx, out);
}

static bool control_go_on(rt_frame *frame, const rt_thunk *thunk, const rt_seq *after, weft_status **out)
{
  if (thunk->ops->control == rt_control_while) return while_go_on(frame, thunk, after, out);
  *out = take_error(frame, after);
  return true;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

bool rt_frame_run(rt_frame *frame, rt_pool *pool, const rt_run_info *info, void (*done)(void *arg, weft_status *st),
                  void *arg, weft_status **out)
{
  const rt_seq *root = frame->program->root;
  int near = rt_device_near(info->device);

  /* a helper that an earlier run of the frame has asked for may still be to come */
  for (int s = 0; s < frame->program->seq_count; s++)
    __atomic_store_n(&frame->runs[s].job.node, near, __ATOMIC_RELAXED);
  frame->ctx.pool = pool;
  frame->ctx.info = info;
  frame->done = done;
  frame->done_arg = arg;
  atomic_store_explicit(&frame->fell_behind, false, memory_order_relaxed);
  if (!seq_start(frame, root)) return false;
  *out = take_error(frame, root);
  return true;
}

bool rt_frame_fell_behind(const rt_frame *frame)
{
  return atomic_load_explicit(&frame->fell_behind, memory_order_relaxed);
}

void rt_seq_run_init(rt_seq_run *run) { run->job.run = join_in; }
