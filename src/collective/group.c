/* collective/group.c -- a process's share of a communicator: its lock, the life of operations, waiting. */
#include <config.h>

#include "collective/internal.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/prepare.h"

enum { SPINS_BEFORE_SLEEPING_LOCK = 200, FIRED_AT_ONCE = 16 };

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  __asm__ volatile("" ::: "memory");
#endif
}

/* ---- the lock ---- */

void coll_group_lock(coll_group *g) WEFT_NO_THREAD_SAFETY
{
  for (int i = 0; i < SPINS_BEFORE_SLEEPING_LOCK; i++) {
    if (weft_mutex_try_lock(&g->mu)) return;
    cpu_relax();
  }
  weft_mutex_lock(&g->mu);
}

bool coll_group_try_lock(coll_group *g) WEFT_NO_THREAD_SAFETY { return weft_mutex_try_lock(&g->mu); }

static void waiter_finish(weft_coll_waiter *w, weft_status *st)
{
  void (*fn)(void *ctx, weft_status *error) = w->fn;
  void *ctx = w->ctx;

  w->status = st;
  /* acq_rel: pairs with await_waiter and leave_waiter.  Who looks may be gone after this: only its address is used. */
  switch (atomic_exchange_explicit(&w->state, COLL_WAITER_DONE, memory_order_acq_rel)) {
  case COLL_WAITER_SLEEPS: syscall(SYS_futex, &w->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); break;
  case COLL_WAITER_LEFT: fn(ctx, st); break;
  default: break;
  }
}

static void fire(coll_completion to, weft_status *st);

static void batch_finish(coll_batch *batch, weft_status *st)
{
  if (st && !atomic_flag_test_and_set(&batch->failed))
    batch->status = st;
  else
    weft_status_free(st);
  if (atomic_fetch_sub(&batch->left, 1) != 1) return; /* seq_cst: the last one sees every status */
  fire(batch->to, batch->status);
  free(batch);
}

static void fire(coll_completion to, weft_status *st)
{
  if (to.waiter) {
    waiter_finish(to.waiter, st);
  } else if (to.batch) {
    batch_finish(to.batch, st);
  } else {
    weft_event_set(to.event, st);
    weft_event_release(to.event);
  }
}

static void free_op_locked(coll_op *op)
{
  coll_group *g = op->comm->group;

  op->next = g->free_ops;
  g->free_ops = op;
}

/* An operation's memory, to its rank's next post.  False: there is one already. */
static bool spare_op(coll_op *op, bool alone)
{
  if (atomic_load_explicit(&op->comm->spare[alone], memory_order_relaxed)) return false;
  atomic_store_explicit(&op->comm->spare[alone], op, memory_order_release); /* only here does it become one; pairs with take_spare */
  return true;
}

static coll_op *take_spare(weft_comm *comm, bool alone)
{
  if (!atomic_load_explicit(&comm->spare[alone], memory_order_relaxed)) return NULL;
  return atomic_exchange_explicit(&comm->spare[alone], NULL, memory_order_acquire);
}

void coll_group_unlock(coll_group *g) WEFT_NO_THREAD_SAFETY
{
  bool more;

  do {
    struct { coll_completion to; weft_status *st; } fired[FIRED_AT_ONCE];
    int count = 0;
    for (coll_op *op; count < FIRED_AT_ONCE && (op = g->finished);) {
      g->finished = op->next;
      fired[count].to = op->completion;
      fired[count++].st = WEFT_MOVE(op->result);
      if (!spare_op(op, false)) free_op_locked(op);
    }
    more = g->finished != NULL;
    weft_mutex_unlock(&g->mu);
    for (int i = 0; i < count; i++) fire(fired[i].to, fired[i].st);
    if (more) coll_group_lock(g);
  } while (more);
}

/* ---- the life of an operation ---- */

void coll_op_finish_locked(coll_op *op, weft_status *st) { coll_op_finish_at_locked(op, st, weft_now_ns()); }

/* Clears and sets flags, adds, and returns what was there.  The lock is enough where nobody runs alone, nor can begin to. */
static uint64_t change_turn_locked(weft_comm *comm, uint64_t clear, uint64_t set, uint64_t add)
{
  uint64_t old = atomic_load_explicit(&comm->turn, memory_order_relaxed);

  if (!comm->group->use_direct || old % COLL_TURN_NEXT == COLL_TURN_QUEUED)
    atomic_store_explicit(&comm->turn, ((old & ~clear) | set) + add, memory_order_release);
  else
    while (!atomic_compare_exchange_weak(&comm->turn, &old, ((old & ~clear) | set) + add)) {}
  return old;
}

void coll_comm_waited(weft_comm *comm, int peer, int64_t late_ns)
{
  weft_comm_lateness *late = &comm->lateness[peer]; /* one writer: whose turn it is, or under the lock; any reader */

  __atomic_store_n(&late->times_last, late->times_last + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&late->waited_ns, late->waited_ns + late_ns, __ATOMIC_RELAXED);
  if (late_ns > late->max_ns) __atomic_store_n(&late->max_ns, late_ns, __ATOMIC_RELAXED);
}

weft_comm_lateness coll_comm_lateness(const weft_comm *comm, int peer)
{
  const weft_comm_lateness *late = &comm->lateness[peer];

  return (weft_comm_lateness){__atomic_load_n(&late->times_last, __ATOMIC_RELAXED), __atomic_load_n(&late->waited_ns, __ATOMIC_RELAXED),
                              __atomic_load_n(&late->max_ns, __ATOMIC_RELAXED)};
}

void coll_op_finish_at_locked(coll_op *op, weft_status *st, int64_t now_ns)
{
  weft_comm *comm = op->comm;
  coll_group *g = comm->group;

  *op->pending_prev = op->pending_next;
  if (op->pending_next) op->pending_next->pending_prev = op->pending_prev;
  coll_flight_ended(op, weft_status_code(st), now_ns);
  if (op->fused && !st) coll_op_unpack(op);
  op->result = st;
  comm->told |= st != NULL;
  atomic_store_explicit(&g->pending, atomic_load_explicit(&g->pending, memory_order_relaxed) - 1, memory_order_relaxed);
  if (op->collective) { /* the oldest of its rank, unless all are failing */
    coll_op **at = &comm->head;
    while (*at != op) at = &(*at)->next;
    *at = op->next;
    if (comm->tail == &op->next) comm->tail = at;
    if (!st) atomic_store_explicit(&comm->ended_seq, op->seq + 1, memory_order_relaxed);
    if (!comm->head) change_turn_locked(comm, COLL_TURN_QUEUED, 0, 0);
    if (op->last_peer >= 0 && !st) coll_comm_waited(comm, op->last_peer, now_ns - op->posted_ns);
  }
  op->next = g->finished;
  g->finished = op;
}

void coll_group_fail_locked(coll_group *g, weft_status *st, bool tell_peers)
{
  if (g->error) {
    weft_status_free(st);
    return;
  }
  g->error = st;
  g->spent_ns = weft_now_ns();
  coll_flight_failed_locked(g);
  weft_status_free(WEFT_MOVE(g->ending));
  g->frozen = false;
  atomic_store(&g->disturbed, true); /* who waits outside the lock comes and looks */
  coll_links_fail_locked(g, st, tell_peers);
  for (int i = 0; i < g->local_count * g->local_count; i++) g->pairs[i] = (coll_pair){0};
  for (coll_op *op = g->runnable; op; op = op->next_runnable) op->runnable = false;
  g->runnable = NULL;
  g->runnable_tail = &g->runnable;
  if (g->direct.running) return; /* whoever works on it ends the operations: their memory is in use */
  while (g->all_pending) coll_op_finish_locked(g->all_pending, weft_status_dup(st));
  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i]) g->locals[i]->p2p_sends = g->locals[i]->p2p_recvs = (coll_fifo){0};
}

/* Is anything on its way?  Looking costs a system call where there is libfabric. */
static bool links_matter(const coll_group *g)
{
  return g->open_links && (g->all_pending || atomic_load_explicit(&g->unsent, memory_order_relaxed));
}

bool coll_group_progress_locked(coll_group *g)
{
  bool moved = false, again;

  do {
    again = false;
    if (g->frozen) return moved;
    if (g->runnable) again |= coll_engine_drain_locked(g);
    if (g->direct.running) again |= coll_direct_work_locked(g);
    if (links_matter(g)) again |= coll_links_poll_locked(g);
    if (g->ending) coll_group_check_end_locked(g);
    moved |= again;
  } while (again);
  return moved;
}

/* ---- ending because a rank elsewhere has given up ---- */

static bool is_behind_locked(const coll_group *g)
{
  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i] && atomic_load_explicit(&g->locals[i]->ended_seq, memory_order_relaxed) < g->ends_at) return true;
  return false;
}

static bool has_collectives_locked(const coll_group *g)
{
  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i] && g->locals[i]->head) return true;
  return false;
}

void coll_group_check_end_locked(coll_group *g)
{
  coll_links_end_p2p_locked(g);
  if (!g->ending || is_behind_locked(g) || (!has_collectives_locked(g) && coll_links_owe_p2p_locked(g))) return;
  coll_group_fail_locked(g, WEFT_MOVE(g->ending), true);
}

void coll_group_end_at_locked(coll_group *g, weft_status *st, uint64_t ends_at, int origin)
{
  bool earlier = !g->ending || ends_at < g->ends_at;

  g->ends_at = WEFT_MIN(g->ends_at, ends_at);
  if (g->error || g->frozen || !earlier) { /* frozen: it is about to fail for a deadline of its own */
    weft_status_free(st);
    if (g->ending && !g->frozen) coll_group_check_end_locked(g);
    return;
  }
  weft_status_free(g->ending);
  g->ending = st;
  g->origin = origin;
  for (coll_op *op = g->all_pending, *next; op; op = next) { /* what runs already ends with the group */
    next = op->pending_next;
    if (op->collective && op->seq >= g->ends_at && !op->started && !op->runnable) coll_op_finish_locked(op, weft_status_dup(st));
  }
  coll_group_check_end_locked(g);
  if (g->ending) coll_links_tell_end_locked(g);
}

void coll_group_bereave_locked(coll_group *g, uint64_t incarnation, weft_status *st)
{
  g->ends_at = 0;
  if (!g->error) {
    g->lost = incarnation;
    g->bereaved = true;
  }
  coll_group_fail_locked(g, st, true);
}

void coll_group_timers_locked(coll_group *g, int64_t now_ns)
{
  int64_t next_ns = INT64_MAX;
  bool overdue = false;

  if (now_ns < atomic_load_explicit(&g->next_timer_ns, memory_order_relaxed) || g->error) return;
  for (coll_op *op = g->all_pending; op; op = op->pending_next) {
    if (!op->warned && now_ns >= op->warn_at_ns) {
      char text[256];
      coll_op_describe(op, text, sizeof text);
      WEFT_LOG("coll", WARN, "%s: rank %d has waited %.1f s in %s and may be stuck", g->name, op->comm->rank,
               (double)(now_ns - op->posted_ns) / 1e9, text);
      op->warned = true;
    }
    overdue |= now_ns >= op->deadline_ns;
    next_ns = WEFT_MIN(next_ns, op->warned ? op->deadline_ns : WEFT_MIN(op->warn_at_ns, op->deadline_ns));
  }
  atomic_store_explicit(&g->next_timer_ns, overdue ? INT64_MAX : next_ns, memory_order_relaxed);
  if (overdue && !g->frozen) coll_diagnose_start_locked(g);
}

/* ---- waiting ---- */

/* A transfer that has begun goes on, while the network carries parts of it that nobody sees yet. */
int64_t coll_group_spin_ns(const coll_group *g)
{
  enum { LONGER = 40 };
  return coll_settings_get()->spin_ns * (atomic_load_explicit(&g->bulk, memory_order_relaxed) ? LONGER : 1);
}

/* Polls for a while, working, no longer than until `until_ns`; true once *ready(ctx). */
static bool help(coll_group *g, bool (*ready)(void *ctx), void *ctx, int64_t until_ns)
{
  int64_t since_ns = 0;
  bool done = ready(ctx), polls = !g->use_direct && !done;

  if (polls) atomic_fetch_add_explicit(&g->helpers, 1, memory_order_relaxed);
  for (int spins = 1; !done; spins++) {
    /* where all ranks are here, whoever arrives last does the work: only large work is worth joining */
    bool rests = spins % g->spins == 0; /* only then a look at the group: whoever works on it has those lines */
    bool useful = polls || (rests && atomic_load_explicit(&g->direct.running, memory_order_relaxed)), moved = false;
    if (useful && coll_group_try_lock(g)) {
      moved = coll_group_progress_locked(g);
      coll_group_unlock(g);
    }
    if ((done = ready(ctx))) break;
    if (moved) since_ns = 0;
    bool looked_long = polls && atomic_load_explicit(&g->has_fabric, memory_order_relaxed); /* as long as a yield takes */
    if (!looked_long && !rests) {
      cpu_relax();
      continue;
    }
    sched_yield();
    int64_t now_ns = weft_now_ns();
    if (since_ns == 0) since_ns = now_ns;
    if (now_ns - since_ns > coll_group_spin_ns(g) || now_ns >= until_ns) break;
    if (now_ns >= atomic_load_explicit(&g->next_timer_ns, memory_order_relaxed)) {
      coll_group_lock(g);
      coll_group_timers_locked(g, now_ns);
      coll_group_unlock(g);
    }
  }
  if (polls) atomic_fetch_sub_explicit(&g->helpers, 1, memory_order_relaxed);
  if (atomic_load_explicit(&g->unsent, memory_order_relaxed)) coll_context_wake_by(weft_now_ns() + WEFT_NS_PER_MS);
  return done;
}

static bool event_ready(void *event) { return weft_event_is_ready(event); }
static bool waiter_ready(void *waiter)
{
  return atomic_load_explicit(&((weft_coll_waiter *)waiter)->state, memory_order_acquire) == COLL_WAITER_DONE;
}

weft_status *weft_coll_wait(weft_comm *comm, weft_event *event)
{
  coll_comm_retain(comm); /* the operation may end with its destruction */
  if (!help(comm->group, event_ready, event, INT64_MAX)) coll_context_wake();
  coll_comm_release(comm);
  return weft_event_await(event, WEFT_NO_DEADLINE); /* every operation has a deadline of its own */
}

/* Waits for the end of a weft_coll_run. */
static void await_waiter(weft_coll_waiter *w)
{
  int looks = COLL_WAITER_LOOKS;

  coll_context_wake();
  atomic_compare_exchange_strong_explicit(&w->state, &looks, COLL_WAITER_SLEEPS, memory_order_acq_rel, memory_order_acquire);
  while (!waiter_ready(w)) syscall(SYS_futex, &w->state, FUTEX_WAIT_PRIVATE, COLL_WAITER_SLEEPS, NULL, NULL, 0);
}

/* From now on it is to be called.  False: it is done. */
static bool leave_waiter(weft_coll_waiter *w)
{
  int looks = COLL_WAITER_LOOKS;

  return atomic_compare_exchange_strong_explicit(&w->state, &looks, COLL_WAITER_LEFT, memory_order_acq_rel, memory_order_acquire);
}

/* ---- posting ---- */

static coll_op *op_take_locked(coll_group *g)
{
  coll_op *op = g->free_ops;

  if (op)
    g->free_ops = op->next;
  else if ((op = aligned_alloc(_Alignof(coll_op), sizeof *op)))
    memset(op, 0, sizeof *op);
  return op;
}

static void op_give_back(coll_op *op)
{
  coll_group *g = op->comm->group;

  coll_group_lock(g);
  free_op_locked(op);
  coll_group_unlock(g);
}

/* A rank that had nothing pending when the group failed hears of it now, with the code that it would have had then: what
 * a rank is told does not hang on who was a moment faster. */
static weft_status *spent_locked(weft_comm *comm)
{
  const coll_group *g = comm->group;
  const weft_status *why = g->error ? g->error : g->ending;
  weft_code code = comm->told ? WEFT_FAILED_PRECONDITION : weft_status_code(why);

  comm->told = true;
  return weft_status_new(code, __FILE__, __LINE__, "communicator %s was aborted: %s", g->name, weft_status_message(why));
}

/* Is there no way for an operation that is posted now to end well?  (One that runs alone was posted before.) */
static bool is_refused_locked(const coll_op *op)
{
  const coll_group *g = op->comm->group;

  if (op->alone || !(g->error || g->ending)) return false;
  if (g->error || op->comm->told || op->args.kind == WEFT_SEND) return true;
  return op->collective && coll_comm_posted(op->comm) >= g->ends_at;
}

/* A cleared operation that keeps the buffers of the last one. */
static weft_status *op_new(weft_comm *comm, coll_op **out_op)
{
  coll_group *g = comm->group;
  coll_op *op = take_spare(comm, true);

  if (!op && !(op = take_spare(comm, false))) {
    coll_group_lock(g);
    op = op_take_locked(g);
    coll_group_unlock(g);
  }
  WEFT_TRY_ALLOC(op);
  memset(op, 0, offsetof(coll_op, problem));
  op->comm = comm;
  op->last_peer = -1;
  *out_op = op;
  return NULL;
}

static void set_times(coll_op *op, const weft_coll_call *call)
{
  coll_group *g = op->comm->group;
  int64_t now_ns = weft_now_ns(), warn_ns = call && call->warn_ns ? call->warn_ns : g->warn_ns;

  op->posted_ns = now_ns;
  if (call) op->site = call->site;
  if (call && call->deadline.at_ns)
    op->deadline_ns = call->deadline.at_ns;
  else
    op->deadline_ns = g->timeout_ns > 0 && g->timeout_ns < INT64_MAX - now_ns ? now_ns + g->timeout_ns : INT64_MAX;
  op->warn_at_ns = warn_ns > 0 && warn_ns < INT64_MAX - now_ns ? now_ns + warn_ns : INT64_MAX;
}

/* An operation that its rank has posted, to wait for its turn under the lock, or for others.  True: it can go on. */
static bool enqueue_locked(coll_op *op)
{
  weft_comm *comm = op->comm;

  if (op->alone) { /* it has its place in the order, before all that queued meanwhile */
    op->next = comm->head;
    comm->head = op;
    if (!op->next) comm->tail = &op->next;
    change_turn_locked(comm, COLL_TURN_ALONE, COLL_TURN_QUEUED, 0);
    return true;
  }
  uint64_t turn = change_turn_locked(comm, 0, COLL_TURN_QUEUED, COLL_TURN_NEXT);
  op->seq = turn / COLL_TURN_NEXT;
  coll_flight_posted(op);
  op->next = NULL;
  *comm->tail = op;
  comm->tail = &op->next;
  return comm->head == op && !(turn & COLL_TURN_ALONE) && !comm->group->frozen;
}

static void add_pending_locked(coll_op *op, int64_t timer_ns)
{
  coll_group *g = op->comm->group;

  atomic_store_explicit(&g->pending, atomic_load_explicit(&g->pending, memory_order_relaxed) + 1, memory_order_relaxed);
  if (timer_ns < atomic_load_explicit(&g->next_timer_ns, memory_order_relaxed))
    atomic_store_explicit(&g->next_timer_ns, timer_ns, memory_order_relaxed);
  op->pending_prev = &g->all_pending;
  op->pending_next = g->all_pending;
  if (g->all_pending) g->all_pending->pending_prev = &op->pending_next;
  g->all_pending = op;
}

/* Hands the operation to the engine. */
static weft_status *op_submit(coll_op *op, bool driven)
{
  weft_comm *comm = op->comm;
  coll_group *g = comm->group;
  int64_t timer_ns = WEFT_MIN(op->warn_at_ns, op->deadline_ns);
  weft_status *st = NULL;

  coll_group_lock(g);
  bool spent = g->error != NULL; /* what fails from here on ends this operation with all others */
  if (is_refused_locked(op)) {
    st = spent_locked(comm);
    free_op_locked(op);
  } else {
    add_pending_locked(op, timer_ns);
    if (op->collective) {
      if (enqueue_locked(op) && !spent) coll_engine_make_runnable_locked(op);
    } else {
      coll_flight_posted(op);
      coll_p2p_post_locked(op);
    }
    if (spent && !coll_direct_had_met_locked(op)) /* posted before it could know */
      coll_op_finish_locked(op, comm->told ? spent_locked(comm) : weft_status_dup(g->error));
    coll_group_progress_locked(g);
  }
  bool left = g->all_pending || atomic_load_explicit(&g->unsent, memory_order_relaxed);
  bool poll = g->open_links && left;
  coll_group_unlock(g);
  if (driven || !left || st) return st;
  if (poll)
    coll_context_wake();
  else
    coll_context_wake_by(timer_ns);
  return NULL;
}

/* An operation of `fused` parts, ready to be posted. */
static weft_status *op_make(weft_comm *comm, const weft_coll_op *args, size_t fused, const weft_coll_call *call, coll_completion to,
                            coll_op **out_op)
{
  coll_op *op = NULL;
  weft_status *st;

  *out_op = NULL;
  WEFT_TRY(op_new(comm, &op));
  set_times(op, call);
  st = fused > 1 ? coll_op_fuse(op, args, fused, call) : coll_op_prepare(op, args, call);
  if (st) {
    op_give_back(op);
    return st;
  }
  op->collective = op->args.kind != WEFT_SEND && op->args.kind != WEFT_RECV;
  op->slotted = comm->group->use_direct && coll_direct_fits(op);
  op->completion = to;
  *out_op = op;
  return NULL;
}

static weft_status *post_to(weft_comm *comm, const weft_coll_op *args, size_t fused, const weft_coll_call *call,
                            coll_completion to, bool driven)
{
  coll_op *op;

  WEFT_TRY(op_make(comm, args, fused, call, to, &op));
  return op_submit(op, driven);
}

weft_status *weft_coll_post(weft_comm *comm, const weft_coll_op *op, const weft_coll_call *call, weft_event **out_event)
{
  WEFT_AUTO(weft_event) event = NULL;
  weft_status *st;

  *out_event = NULL;
  WEFT_TRY(weft_event_new(&event));
  st = post_to(comm, op, 1, call, (coll_completion){.event = weft_event_retain(event)}, call && call->will_wait);
  if (st) {
    weft_event_release(event); /* the engine's reference */
    return st;
  }
  *out_event = WEFT_MOVE(event);
  return NULL;
}

/* ---- a small operation between devices, by slots alone ---- */

/* The rank's turn, if it has nothing else pending. */
static bool take_turn(coll_op *op)
{
  weft_comm *comm = op->comm;
  uint64_t turn = atomic_load_explicit(&comm->turn, memory_order_relaxed);

  if (!op->slotted || turn % COLL_TURN_NEXT || atomic_load(&comm->group->disturbed)) return false;
  op->alone = atomic_compare_exchange_strong(&comm->turn, &turn, turn + COLL_TURN_NEXT + COLL_TURN_ALONE);
  op->seq = turn / COLL_TURN_NEXT;
  return op->alone;
}

/* What a thread that polls looks at besides. */
typedef struct lone_wait {
  coll_group *g;
  coll_meeting meeting;
  const atomic_int *wanted; /* NULL: it has nothing else to do */
} lone_wait;

static bool is_wanted(const atomic_int *wanted) { return wanted && atomic_load_explicit(wanted, memory_order_relaxed) != 0; }

static bool met_or_disturbed(void *wait)
{
  lone_wait *w = wait;
  return coll_direct_met(w->g, &w->meeting) || atomic_load_explicit(&w->g->disturbed, memory_order_acquire) || is_wanted(w->wanted);
}

/* Runs the operation whose turn it is to its end, taking no lock that others take.  False: it has to go through the queue,
 * because somebody is late or something is wrong.  The communicator lives as long as the turn lasts: see
 * coll_group_settle_locked. */
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
  if (atomic_load(&g->disturbed)) return false; /* looked at after the turn was taken: see weft_comm_abort */
  coll_direct_publish(op, false);
  help(g, met_or_disturbed, &wait, until_ns);
  if (wait.meeting.seen < g->size || !coll_direct_end_alone(op, &others)) return false;
  if (op->fused) coll_op_unpack(op);
  coll_flight_ended(op, WEFT_OK, weft_now_ns());
  if (!spare_op(op, true)) op_give_back(op);
  uint64_t turn = (seq + 1) * COLL_TURN_NEXT + COLL_TURN_ALONE;
  if (!others && atomic_compare_exchange_strong(&comm->turn, &turn, turn - COLL_TURN_ALONE)) return true;
  coll_group_retain(g);
  coll_group_lock(g);
  change_turn_locked(comm, COLL_TURN_ALONE, 0, 0);
  if (others) coll_direct_end_queued_locked(g, seq);
  if (comm->head && !comm->head->started) coll_engine_make_runnable_locked(comm->head);
  coll_group_progress_locked(g);
  coll_group_unlock(g);
  coll_group_release(g);
  return true;
}

weft_status *weft_coll_run(weft_comm *comm, const weft_coll_op *args, const weft_coll_call *call)
{
  weft_coll_waiter waiter = {0};
  coll_op *op;

  WEFT_TRY(op_make(comm, args, 1, call, (coll_completion){.waiter = &waiter}, &op));
  if (take_turn(op) && run_alone(op, NULL)) return NULL;
  bool looked = op->alone;
  coll_comm_retain(comm); /* the operation may end with its destruction */
  weft_status *st = op_submit(op, true);
  if (!st && (looked || !help(comm->group, waiter_ready, &waiter, INT64_MAX))) await_waiter(&waiter);
  coll_comm_release(comm);
  return st ? st : waiter.status;
}

/* ---- several, and callers that do not wait ---- */

/* As many operations as there are, to one completion.  On an error nothing was posted; a later operation's is the
 * completion's: what was posted goes on. */
static weft_status *post_all(weft_comm *comm, const weft_coll_op *ops, size_t count, const weft_coll_call *call, coll_completion to,
                             bool driven)
{
  coll_batch *batch = calloc(1, sizeof *batch);
  weft_status *st = NULL;
  size_t posted = 0;

  WEFT_TRY_ALLOC(batch);
  atomic_init(&batch->left, 1); /* held here until all are posted */
  atomic_flag_clear(&batch->failed);
  batch->to = to;
  while (posted < count && !st) {
    size_t n = coll_op_fusable(ops + posted, count - posted, comm->group->size);
    atomic_fetch_add(&batch->left, 1);
    st = post_to(comm, ops + posted, n, call, (coll_completion){.batch = batch}, driven);
    if (st) atomic_fetch_sub(&batch->left, 1);
    posted += st ? 0 : n;
  }
  if (st && posted == 0) {
    free(batch);
    return st;
  }
  batch_finish(batch, st);
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
  return waiter_ready(w->waiter) || is_wanted(w->wanted);
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
  if (coll_op_fusable(ops, count, comm->group->size) < count) {
    WEFT_TRY(post_all(comm, ops, count, call, to, false));
  } else {
    WEFT_TRY(op_make(comm, ops, count, call, to, &op));
    if (patient && take_turn(op) && run_alone(op, &patience)) return NULL;
    looked = op->alone;
    coll_comm_retain(comm); /* the operation may end with its destruction */
    st = op_submit(op, patient && !looked);
    if (!st && patient && !looked) {
      patient_wait wait = {waiter, patience.wanted};
      help(comm->group, done_or_wanted, &wait, weft_now_ns() + patience.poll_ns);
      if (!waiter_ready(waiter)) coll_context_wake();
    }
    coll_comm_release(comm);
    WEFT_TRY(st);
  }
  *out_pending = leave_waiter(waiter);
  return *out_pending ? NULL : waiter->status;
}

/* ---- descriptions ---- */

void coll_op_describe(const coll_op *op, char *out, size_t size)
{
  const weft_coll_site *site = &op->site;
  char operation[200];

  coll_describe((int)op->args.kind, (int)op->args.dtype, op->args.count, (int)op->args.reduction, site->instruction, operation, sizeof operation);
  snprintf(out, size, "%s%s%s%s%s (seq %llu, %lld bytes)", operation, site->source ? " at " : "", site->source ? site->source : "",
           site->executable ? " of " : "", site->executable ? site->executable : "", (unsigned long long)op->seq,
           (long long)op->problem.bytes);
}

int weft_comm_rank(const weft_comm *comm) { return comm->rank; }
int weft_comm_size(const weft_comm *comm) { return comm->group->size; }
int weft_comm_local_count(const weft_comm *comm) { return comm->group->local_count; }
uint64_t weft_comm_serial(const weft_comm *comm) { return comm->serial; }
uint64_t weft_comm_incarnation(const weft_comm *comm, int rank) { return comm->group->incarnations[rank]; }

weft_status *weft_comm_health(weft_comm *comm)
{
  coll_group *g = comm->group;

  coll_group_lock(g);
  weft_status *st = weft_status_dup(g->error ? g->error : g->ending);
  coll_group_unlock(g);
  return st;
}

bool weft_comm_is_told(weft_comm *comm)
{
  coll_group *g = comm->group;
  bool told = false;

  coll_group_lock(g);
  for (int i = 0; (g->error || g->ending) && i < g->local_count; i++) told |= g->locals[i] && g->locals[i]->told;
  coll_group_unlock(g);
  return told;
}

static bool runs_alone_locked(const coll_group *g)
{
  for (int i = 0; i < g->local_count; i++)
    if (g->locals[i] && atomic_load(&g->locals[i]->turn) & COLL_TURN_ALONE) return true;
  return false;
}

void coll_group_settle_locked(coll_group *g) WEFT_NO_THREAD_SAFETY
{
  while (g->direct.running || runs_alone_locked(g)) {
    if (g->direct.running) coll_direct_work_locked(g);
    coll_group_unlock(g);
    sched_yield();
    coll_group_lock(g);
  }
}

void weft_comm_abort(weft_comm *comm, weft_status *st)
{
  WEFT_AUTO(coll_group) g = coll_group_retain(comm->group);

  coll_group_lock(g);
  comm->told = true;
  coll_group_fail_locked(g, st ? st : WEFT_ERR(ABORTED, "aborted by rank %d", comm->rank), true);
  coll_group_settle_locked(g);
  coll_group_unlock(g);
}

void weft_comm_stragglers(weft_comm *comm, weft_comm_lateness *out)
{
  coll_group *g = comm->group;

  coll_group_lock(g);
  for (int r = 0; r < g->size; r++) out[r] = coll_comm_lateness(comm, r);
  coll_group_unlock(g);
}
