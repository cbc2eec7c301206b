/* collective/group.c -- a process's share of a communicator: its state, its lock, the life of operations, its
 * failure.
 *
 * Nothing here knows how data moves, who waits or what a peer says.  The one call that leaves this file upwards is
 * `abort` of the group's communicators (communicator.h). */
#include <config.h>

#include "collective/internal.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "collective/address.h"
#include "collective/flight.h"
#include "collective/prepare.h"

enum { SPINS_BEFORE_SLEEPING_LOCK = 200, FIRED_AT_ONCE = 16 };

/* How long after a failure half-ended operations may run on.  A broadcast's root, for example, may have ended although
 * another device hangs. */
#define STOP_NS (300 * WEFT_NS_PER_MS)

/* ---- the lock ---- */

void coll_group_lock(coll_group *g) WEFT_NO_THREAD_SAFETY
{
  for (int i = 0; i < SPINS_BEFORE_SLEEPING_LOCK; i++) {
    if (weft_mutex_try_lock(&g->mu)) return;
    coll_cpu_relax();
  }
  weft_mutex_lock(&g->mu);
}

bool coll_group_try_lock(coll_group *g) WEFT_NO_THREAD_SAFETY { return weft_mutex_try_lock(&g->mu); }

static void waiter_finish(weft_coll_waiter *w, weft_status *st)
{
  void (*fn)(void *ctx, weft_status *error) = w->fn;
  void *ctx = w->ctx;

  w->status = st;
  /* acq_rel: pairs with coll_waiter_await and coll_waiter_leave.  After the exchange the waiter's memory may be
   * gone: only its address is used. */
  switch (atomic_exchange_explicit(&w->state, COLL_WAITER_DONE, memory_order_acq_rel)) {
  case COLL_WAITER_SLEEPS: syscall(SYS_futex, &w->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); break;
  case COLL_WAITER_LEFT: fn(ctx, st); break;
  default: break;
  }
}

static void fire(coll_completion to, weft_status *st);

void coll_batch_finish(coll_batch *batch, weft_status *st)
{
  if (st && !atomic_flag_test_and_set(&batch->failed)) batch->status = st;
  else weft_status_free(st);
  if (atomic_fetch_sub(&batch->left, 1) != 1) return; /* seq_cst: the last one sees every status */
  fire(batch->to, batch->status);
  free(batch);
}

static void fire(coll_completion to, weft_status *st)
{
  if (to.waiter) {
    waiter_finish(to.waiter, st);
  } else if (to.batch) {
    coll_batch_finish(to.batch, st);
  } else {
    weft_event_set(to.event, st);
    weft_event_release(to.event);
  }
}

void coll_op_free_locked(coll_op *op)
{
  weft_mutex_assert_held(&op->comm->group->mu);
  coll_group *g = op->comm->group;

  op->next = g->free_ops;
  g->free_ops = op;
}

coll_op *coll_op_take_locked(coll_group *g)
{
  weft_mutex_assert_held(&g->mu);
  coll_op *op = g->free_ops;

  if (op) g->free_ops = op->next;
  else if ((op = aligned_alloc(_Alignof(coll_op), sizeof *op))) memset(op, 0, sizeof *op);
  return op;
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
      if (!coll_op_spare(op, false)) coll_op_free_locked(op);
    }
    more = g->finished != NULL;
    weft_mutex_unlock(&g->mu);
    for (int i = 0; i < count; i++) fire(fired[i].to, fired[i].st);
    if (more) coll_group_lock(g);
  } while (more);
}

/* ---- the life of an operation ---- */

void coll_op_finish_locked(coll_op *op, weft_status *st) { coll_op_finish_at_locked(op, st, weft_now_ns()); }

void coll_comm_waited(weft_comm *comm, int peer, int64_t late_ns)
{
  /* written by the thread that has the rank's turn, or under the lock; read by any thread */
  weft_comm_lateness *late = &comm->lateness[peer];

  __atomic_store_n(&late->times_last, late->times_last + 1, __ATOMIC_RELAXED);
  __atomic_store_n(&late->waited_ns, late->waited_ns + late_ns, __ATOMIC_RELAXED);
  if (late_ns > late->max_ns) __atomic_store_n(&late->max_ns, late_ns, __ATOMIC_RELAXED);
}

weft_comm_lateness coll_comm_lateness(const weft_comm *comm, int peer)
{
  const weft_comm_lateness *late = &comm->lateness[peer];

  return (weft_comm_lateness){__atomic_load_n(&late->times_last, __ATOMIC_RELAXED),
                              __atomic_load_n(&late->waited_ns, __ATOMIC_RELAXED),
                              __atomic_load_n(&late->max_ns, __ATOMIC_RELAXED)};
}

void coll_op_finish_at_locked(coll_op *op, weft_status *st, int64_t now_ns)
{
  weft_mutex_assert_held(&op->comm->group->mu);
  weft_comm *comm = op->comm;
  coll_group *g = comm->group;

  *op->pending_prev = op->pending_next;
  if (op->pending_next) op->pending_next->pending_prev = op->pending_prev;
  coll_flight_ended(op, weft_status_code(st), now_ns);
  if (op->fused && !st) coll_op_unpack(op);
  op->result = st;
  comm->told |= st != NULL;
  atomic_store_explicit(&g->pending, atomic_load_explicit(&g->pending, memory_order_relaxed) - 1, memory_order_relaxed);
  if (op->collective) { /* the rank's oldest, unless the group fails */
    coll_op **at = &comm->head;
    while (*at != op) at = &(*at)->next;
    *at = op->next;
    if (comm->tail == &op->next) comm->tail = at;
    if (!st && atomic_load_explicit(&comm->ended_seq, memory_order_relaxed) <= op->seq) /* platforms end in any order */
      atomic_store_explicit(&comm->ended_seq, op->seq + 1, memory_order_relaxed);
    if (!comm->head) coll_comm_change_turn_locked(comm, COLL_TURN_QUEUED, 0, 0);
    if (op->last_peer >= 0 && !st) coll_comm_waited(comm, op->last_peer, now_ns - op->posted_ns);
  }
  op->next = g->finished;
  g->finished = op;
}

/* Ends the pending operations, except those whose memory threads of this process or a platform's communicator still
 * use: these end them. */
static void end_all_locked(coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  if (g->direct.running) return;
  for (coll_op *op = g->all_pending, *next; op; op = next) {
    next = op->pending_next;
    if (!op->below) coll_op_finish_locked(op, op->ended_frozen ? NULL : weft_status_dup(g->error));
  }
}

/* Has another rank ended the operation well, which the platform's communicator still has? */
static bool is_half_ended(const coll_op *op)
{
  const coll_group *g = op->comm->group;

  for (int i = 0; i < g->local_count && op->below && op->collective; i++) {
    const weft_comm *comm = g->locals[i];
    if (!comm || comm == op->comm || coll_comm_posted(comm) <= op->seq) continue;
    const coll_op *own = comm->head;
    while (own && own->seq != op->seq) own = own->next;
    if (!own) return true;
  }
  return false;
}

/* Aborts the platform's communicator.  Where all ranks are devices of this process, an operation that one of them has
 * ended has what it needs from all of them, and ends on the others in a moment.  The abort is put off until then, so
 * that a rank does not get an error for an operation that has succeeded elsewhere. */
static void stop_platform_locked(coll_group *g) WEFT_REQUIRES(g->mu)
{
  weft_mutex_assert_held(&g->mu);
  g->stop_at_ns = g->spent_ns + STOP_NS;
  for (coll_op *op = g->all_pending; op && g->local_count == g->size; op = op->pending_next)
    op->half_ended = is_half_ended(op);
  coll_group_stop_platform_locked(g, g->spent_ns);
}

void coll_group_stop_platform_locked(coll_group *g, int64_t now_ns)
{
  weft_mutex_assert_held(&g->mu);
  bool waits = false;

  if (g->stop_at_ns == 0) return;
  for (const coll_op *op = g->all_pending; op && now_ns < g->stop_at_ns; op = op->pending_next)
    waits |= op->half_ended && op->below;
  atomic_store_explicit(&g->next_timer_ns, waits ? g->stop_at_ns : INT64_MAX, memory_order_relaxed);
  if (waits) return;
  g->stop_at_ns = 0;
  g->communicator->ops->abort(g->communicator, g->error);
}

void coll_group_fail_locked(coll_group *g, weft_status *st)
{
  weft_mutex_assert_held(&g->mu);
  if (g->error) {
    weft_status_free(st);
    return;
  }
  g->error = st;
  g->spent_ns = weft_now_ns();
  coll_flight_failed_locked(g);
  weft_status_free(WEFT_MOVE(g->ending));
  g->frozen = false;
  atomic_store(&g->disturbed, true); /* threads that wait outside the lock see it and take the lock */
  if (coll_group_has_platform(g)) stop_platform_locked(g);
  g->host.ops->abort(&g->host, st);
  end_all_locked(g);
}

void coll_group_lose_member_locked(coll_group *g, uint64_t incarnation, weft_status *st)
{
  weft_mutex_assert_held(&g->mu);
  g->ends_at = 0;
  if (!g->error) {
    g->lost = incarnation;
    g->member_lost = true;
  }
  coll_group_fail_locked(g, st);
}

/* ---- making and freeing ---- */

coll_group *coll_group_retain(coll_group *g)
{
  atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
  return g;
}

void coll_op_free(coll_op *op)
{
  free(op->arrays);
  free(op->stage);
  free(op->tmp);
  free(op->msgs);
  free(op->parts);
  coll_jobs_fini(&op->jobs);
  free(op);
}

static void comm_free(weft_comm *comm)
{
  if (!comm) return;
  for (int i = 0; i < 2; i++)
    if (comm->spare[i]) coll_op_free(comm->spare[i]);
  coll_flight_close(comm);
  for (int i = 0; i < COLL_CACHED_SCHEDULES; i++) coll_schedule_fini(&comm->cache[i].schedule);
  free(comm->lateness);
  free(comm);
}

weft_comm *coll_comm_retain(weft_comm *comm)
{
  atomic_fetch_add_explicit(&comm->refs, 1, memory_order_relaxed);
  return comm;
}

void coll_comm_release(weft_comm *comm)
{
  coll_group *g = comm->group;

  if (atomic_fetch_sub_explicit(&comm->refs, 1, memory_order_acq_rel) != 1) return; /* acq_rel: as for groups */
  comm_free(comm);
  coll_group_release(g);
}

void coll_group_release(coll_group *g)
{
  /* acq_rel: all that other threads did with the group happens before it is freed */
  if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
  for (coll_op *op = g->free_ops, *next; op; op = next) {
    next = op->next;
    coll_op_free(op);
  }
  for (int i = 0; g->locals && i < g->local_count; i++) comm_free(g->locals[i]);
  coll_jobs_fini(&g->direct.jobs);
  free(g->slots);
  coll_topology_fini(&g->topology);
  weft_status_free(g->error);
  weft_status_free(g->ending);
  weft_mutex_fini(&g->mu);
  free(g->name);
  free(g->locals);
  free(g->local_of);
  free(g->device_ids);
  free(g->incarnations);
  free(g->addresses);
  free(g->pairs);
  free(g->links);
  free(g);
}

static bool group_allocate(coll_group *g, const weft_comm_spec *spec)
{
  size_t n = (size_t)spec->size, local = (size_t)spec->rank_count;

  return (g->name = strdup(spec->name ? spec->name : "unnamed")) && (g->locals = calloc(local, sizeof *g->locals)) &&
         (g->local_of = malloc(n * sizeof *g->local_of)) && (g->device_ids = malloc(n * sizeof *g->device_ids)) &&
         (g->incarnations = calloc(n, sizeof *g->incarnations)) && (g->pairs = calloc(local * local, sizeof *g->pairs));
}

static weft_status *add_local(coll_group *g, int local, int rank)
{
  static _Atomic uint64_t last_serial;
  weft_comm *comm = aligned_alloc(_Alignof(weft_comm), sizeof *comm);

  WEFT_TRY_ALLOC(comm);
  memset(comm, 0, sizeof *comm);
  comm->serial = ++last_serial;
  g->locals[local] = comm;
  g->local_of[rank] = local;
  comm->group = g;
  atomic_init(&comm->refs, 1);
  comm->rank = rank;
  comm->local = local;
  comm->tail = &comm->head;
  WEFT_TRY_ALLOC(comm->lateness = calloc((size_t)g->size, sizeof *comm->lateness));
  return coll_flight_open(comm);
}

/* Where ranks outnumber cores, the rank that is waited for needs this core: a yield that no thread takes costs a
 * quarter of a microsecond, and the spins before it cost time of every rank's turn.  How many ranks of other
 * processes share our cores is not known. */
static int spins_of(const coll_group *g)
{
  enum { FEW = 4, MANY = 32 };
  cpu_set_t allowed;
  bool counted = sched_getaffinity(0, sizeof allowed, &allowed) == 0;

  return g->local_count == g->size && counted && CPU_COUNT(&allowed) >= g->size ? MANY : FEW;
}

weft_status *coll_group_new(const weft_comm_spec *spec, uint64_t public_id, const coll_communicator_ops *host,
                            coll_group **out_group)
{
  const coll_settings *settings = coll_settings_get();
  WEFT_AUTO(coll_group) g = aligned_alloc(64, sizeof *g);
  coll_algorithm forced = COLL_ALG_AUTO;

  *out_group = NULL;
  WEFT_TRY_ALLOC(g);
  memset(g, 0, sizeof *g);
  atomic_init(&g->refs, 1);
  weft_mutex_init(&g->mu);
  g->host = (coll_communicator){host, g};
  g->communicator = &g->host;
  g->public_id = g->id = public_id;
  if (spec->rank_count < spec->size) {
    coll_key door;
    WEFT_TRY(coll_door_own(&door));
    WEFT_TRY(coll_door_group_id(&door, public_id, &g->id));
  }
  g->size = spec->size;
  g->local_count = g->live_count = spec->rank_count;
  g->runnable_tail = &g->runnable;
  g->ends_at = UINT64_MAX;
  g->origin = -1;
  g->timeout_ns = spec->timeout_ns ? spec->timeout_ns : settings->timeout_ns;
  g->warn_ns = spec->warn_ns ? spec->warn_ns : settings->warn_ns;
  g->rank_order = spec->order == WEFT_ORDER_RANK ||
                  (spec->order == WEFT_ORDER_DEFAULT && strcmp(settings->order, "rank") == 0);
  if (*settings->algorithm)
    coll_algorithm_from_name(settings->algorithm, strlen(settings->algorithm),
                             &forced); /* the option table has checked the name */
  g->forced_algorithm = forced;
  g->use_direct = spec->rank_count == spec->size && forced == COLL_ALG_AUTO;
  g->spins = spins_of(g);
  atomic_init(&g->next_timer_ns, INT64_MAX);
  WEFT_TRY_ALLOC(group_allocate(g, spec));
  for (int r = 0; r < g->size; r++) {
    g->local_of[r] = -1;
    g->device_ids[r] = spec->device_ids ? spec->device_ids[r] : r;
    g->incarnations[r] = spec->incarnation;
  }
  for (int i = 0; i < g->local_count; i++) WEFT_TRY(add_local(g, i, spec->ranks[i]));
  *out_group = WEFT_MOVE(g);
  return NULL;
}
