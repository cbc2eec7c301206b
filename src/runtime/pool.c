/* runtime/pool.c -- the worker threads of a process's devices (pool.h). */
#include <config.h>

#include "runtime/pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"
#include "runtime/trace.h"

/* A worker that sleeps, or is about to, stands on the stack of sleepers of its node. A thread that wants workers
 * takes one from a stack and wakes that one. A worker that has found work before anybody woke it stays on its stack,
 * awake. */
typedef struct worker {
  _Alignas(64) atomic_int asleep; /* the worker waits on this word; who sets it to 0 wakes the worker */
  atomic_bool listed;             /* stands on a stack: set by the worker, cleared by the thread that took it */
  atomic_uint below;              /* the next worker on the stack, from 1; 0: there is none */
  rt_pool *pool;
  int position, node;             /* from 0 */
  int64_t declines_since;         /* it leaves jobs to workers of their nodes since then; 0: it does not */
  pthread_t thread;
} worker;

/* The sleepers of one node: the top worker, from 1, and above it a count of changes, so that a thread which takes the
 * top sees whether another has changed the stack meanwhile. */
typedef struct stack {
  _Alignas(64) atomic_ullong top;
  atomic_int idle; /* workers of the node that have nothing to do, awake or not; counted only with node_patience_ns */
} stack;

typedef struct loop loop;

/* A loop that runs. Workers join by taking one of its tickets. */
typedef struct slot {
  _Alignas(64) atomic_int tickets; /* workers that may still join */
  loop *loop;                      /* stays while it has tickets, and until all that took one have left */
} slot;

enum { MOST_LOOPS = 64 }; /* loops that may have helpers at the same time */

struct rt_pool {
  rt_pool_options options;
  int worker_count, node_count;
  worker *workers;
  int *first_of_node; /* position of the first worker of each node, and the number of workers */
  stack *sleepers;    /* of each node */

  weft_mutex mu; /* of the list of jobs */
  rt_job *first WEFT_GUARDED_BY(mu); /* with wanted > 0, oldest first */
  rt_job *last WEFT_GUARDED_BY(mu);
  atomic_bool stopping;
  atomic_ullong used; /* slots that belong to a loop: a bit each */
  struct { atomic_llong joins, wakes, locks, shared; } counts;

  /* What workers look at while they wait, in one line that changes only when work comes or is all taken. */
  _Alignas(64) atomic_int wanted; /* workers that jobs want, and loops that have tickets */
  atomic_int listed;              /* workers that jobs want */
  atomic_ullong open;             /* slots whose loop may have tickets: a bit each */
  slot slots[MOST_LOOPS];
};

static _Thread_local const worker *me; /* of a worker */

/* How long a thread looks for work or for the end of a loop before it sleeps: about what waking it costs. */
enum { SPIN_NS = 50000 };

enum { WAKES = 2 }; /* sleepers that one thread wakes */

/* Counts for measurements: only if the pool's options ask for them. */
#define COUNT(pool, what, n) \
  ((void)(WEFT_UNLIKELY((pool)->options.counts) ? \
            atomic_fetch_add_explicit(&(pool)->counts.what, (n), memory_order_relaxed) : 0))

/* Pauses, and yields the core: the thread that is waited for may need this core. */
static void wait_a_little(void)
{
#if defined(__x86_64__)
  for (int i = 0; i < 8; i++) __builtin_ia32_pause();
#elif defined(__aarch64__)
  for (int i = 0; i < 32; i++) __asm__ volatile("yield");
#endif
  sched_yield();
}

static long futex(atomic_int *word, int operation, int value)
{
  return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

/* ---- sleeping and waking ----------------------------------------------------------------------------------------- */

/* The atomics of this section are sequentially consistent. A worker first puts itself on a stack and then looks
 * whether work is wanted; a thread first says that work is wanted and then takes workers from the stacks. So one of
 * the two sees the other. */

static void push_sleeper(worker *w)
{
  stack *s = &w->pool->sleepers[w->node];
  unsigned long long top = atomic_load(&s->top), mine;

  do {
    atomic_store(&w->below, (unsigned)top);
    mine = ((top >> 32) + 1) << 32 | (unsigned)(w->position + 1);
  } while (!atomic_compare_exchange_weak(&s->top, &top, mine));
  COUNT(w->pool, shared, 1);
}

/* NULL: the stack is empty. */
static worker *pop_sleeper(rt_pool *pool, int node)
{
  stack *s = &pool->sleepers[node];
  unsigned long long top = atomic_load(&s->top), rest;
  worker *w;

  do {
    if ((unsigned)top == 0) return NULL;
    w = &pool->workers[(unsigned)top - 1];
    rest = ((top >> 32) + 1) << 32 | atomic_load(&w->below);
  } while (!atomic_compare_exchange_weak(&s->top, &top, rest));
  COUNT(pool, shared, 1);
  atomic_store(&w->listed, false); /* before `asleep` is looked at: see sleep_until_wanted */
  return w;
}

/* Marks one sleeper as awake, of node `node` if there is one, and returns the word that it waits on. NULL: nobody
 * sleeps. */
static atomic_int *rouse_one(rt_pool *pool, int node)
{
  worker *w;

  for (int n = 0; n < pool->node_count; n++)
    while ((w = pop_sleeper(pool, (node + n) % pool->node_count)))
      if (atomic_exchange(&w->asleep, 0) == 1) {
        COUNT(pool, wakes, 1);
        return &w->asleep;
      }
  return NULL;
}

/* Marks WAKES sleepers at most as awake, the first on node `node`, the others on the nodes behind it. Each of them
 * wakes as many again while workers are wanted. So a thread that offers work wakes few and goes on, and all workers
 * are awake after a number of steps that grows with the logarithm of their number. */
static int rouse_some(rt_pool *pool, int node, int wanted, atomic_int *words[WAKES])
{
  int count = 0;

  while (count < WAKES && count < wanted && (words[count] = rouse_one(pool, node + count))) count++;
  return count;
}

/* Does not touch the pool, which may be gone: the work that was offered may have ended it. Waking an address is
 * harmless whatever it holds. */
static void wake(atomic_int *const words[WAKES], int count)
{
  for (int i = 0; i < count; i++) futex(words[i], FUTEX_WAKE_PRIVATE, 1);
}

static void wake_some(rt_pool *pool, int node, int wanted)
{
  atomic_int *words[WAKES];

  wake(words, rouse_some(pool, node, wanted, words));
}

/* A worker that another thread has taken from the stack, but not marked as not listed yet, need not put itself there
 * again: that thread will look at `asleep` afterwards, and wake the worker. */
static void sleep_until_wanted(worker *w)
{
  rt_pool *pool = w->pool;

  atomic_store(&w->asleep, 1);
  if (!atomic_load(&w->listed)) {
    atomic_store(&w->listed, true);
    push_sleeper(w);
  }
  while (atomic_load(&w->asleep) == 1 && atomic_load(&pool->wanted) == 0 && !atomic_load(&pool->stopping))
    futex(&w->asleep, FUTEX_WAIT_PRIVATE, 1); /* sleeps until work is offered or the pool ends */
  atomic_store(&w->asleep, 0);
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

static void unlink_job(rt_pool *pool, rt_job *job) WEFT_REQUIRES(pool->mu)
{
  *(job->prev ? &job->prev->next : &pool->first) = job->next;
  *(job->next ? &job->next->prev : &pool->last) = job->prev;
  job->prev = job->next = NULL;
}

/* The oldest job that no idle worker of its own node will take; NULL: there is none. */
static rt_job *find_near(rt_pool *pool, worker *self) WEFT_REQUIRES(pool->mu)
{
  for (rt_job *job = pool->first; job; job = job->next) {
    int node = __atomic_load_n(&job->node, __ATOMIC_RELAXED);
    if (node == self->node || node >= pool->node_count ||
        atomic_load_explicit(&pool->sleepers[node].idle, memory_order_relaxed) == 0)
      return job;
  }
  int64_t now = weft_now_ns();
  if (self->declines_since == 0) self->declines_since = now;
  return now - self->declines_since < pool->options.node_patience_ns ? NULL : pool->first;
}

/* The oldest job that wants the calling worker. NULL: there is none. */
static rt_job *take_job(rt_pool *pool, worker *self, int *out_left)
{
  if (atomic_load_explicit(&pool->listed, memory_order_relaxed) == 0) {
    self->declines_since = 0; /* others have taken what it left to them */
    return NULL;
  }
  weft_mutex_lock(&pool->mu);
  rt_job *job = pool->options.node_patience_ns > 0 ? find_near(pool, self) : pool->first;
  if (job) {
    if (--job->wanted == 0) unlink_job(pool, job);
    *out_left = atomic_fetch_sub_explicit(&pool->listed, 1, memory_order_relaxed) - 1;
    atomic_fetch_sub_explicit(&pool->wanted, 1, memory_order_relaxed);
  }
  COUNT(pool, locks, 1);
  weft_mutex_unlock(&pool->mu);
  return job;
}

static loop *join_loop(rt_pool *pool, int *out_left);
static void help(loop *l, const worker *self);

static void count_idle(worker *self, int change)
{
  if (self->pool->options.node_patience_ns > 0)
    atomic_fetch_add_explicit(&self->pool->sleepers[self->node].idle, change, memory_order_relaxed);
}

static void *work(void *arg)
{
  worker *self = arg;
  rt_pool *pool = self->pool;

  me = self;
  if (pool->options.on_start) pool->options.on_start(pool->options.ctx, self->position + 1);
  count_idle(self, 1);
  for (;;) {
    for (int64_t until = weft_now_ns() + SPIN_NS; atomic_load_explicit(&pool->wanted, memory_order_relaxed) == 0;) {
      if (weft_now_ns() >= until) break;
      wait_a_little();
    }
    if (atomic_load_explicit(&pool->wanted, memory_order_relaxed) == 0) sleep_until_wanted(self);
    int left = 0;
    rt_job *job = take_job(pool, self, &left);
    loop *l = job ? NULL : join_loop(pool, &left);
    if (!job && !l) {
      if (atomic_load(&pool->stopping)) return NULL;
      if (self->declines_since != 0) wait_a_little();
      continue;
    }
    self->declines_since = 0;
    count_idle(self, -1);
    if (left > 0) wake_some(pool, self->node, left);
    if (job) job->run(job);
    else help(l, self);
    count_idle(self, 1);
  }
}

/* Says which workers stand on which node, and makes the empty stacks. */
static weft_status *place_workers(rt_pool *pool)
{
  const rt_pool_options *o = &pool->options;

  pool->node_count = o->nodes ? WEFT_MAX(o->node_count, 1) : 1;
  pool->first_of_node = calloc((size_t)pool->node_count + 1, sizeof *pool->first_of_node);
  pool->sleepers = aligned_alloc(_Alignof(stack), (size_t)pool->node_count * sizeof *pool->sleepers);
  WEFT_TRY_ALLOC(pool->first_of_node && pool->sleepers);
  for (int n = 0; n < pool->node_count; n++) {
    atomic_init(&pool->sleepers[n].top, 0);
    atomic_init(&pool->sleepers[n].idle, 0);
  }
  for (int i = 0; i < o->threads; i++) {
    pool->workers[i].node = o->nodes ? o->nodes[i] : 0;
    for (int n = pool->workers[i].node + 1; n <= pool->node_count; n++) pool->first_of_node[n] = i + 1;
  }
  pool->options.nodes = NULL; /* the caller's */
  return NULL;
}

weft_status *rt_pool_new(const rt_pool_options *options, rt_pool **out_pool)
{
  rt_pool *made = aligned_alloc(_Alignof(rt_pool), sizeof *made);
  size_t count = (size_t)WEFT_MAX(options->threads, 1);

  *out_pool = NULL;
  WEFT_TRY_ALLOC(made);
  memset(made, 0, sizeof *made);
  weft_mutex_init(&made->mu);
  WEFT_AUTO(rt_pool) pool = made;
  pool->options = *options;
  pool->options.threads = (int)count;
  pool->workers = aligned_alloc(_Alignof(worker), count * sizeof *pool->workers);
  WEFT_TRY_ALLOC(pool->workers);
  memset(pool->workers, 0, count * sizeof *pool->workers);
  WEFT_TRY(place_workers(pool));
  for (size_t i = 0; i < count; i++) {
    pool->workers[i].pool = pool;
    pool->workers[i].position = (int)i;
    WEFT_TRY(weft_thread_start(&pool->workers[i].thread, "weft-worker", work, &pool->workers[i]));
    pool->worker_count++;
  }
  *out_pool = WEFT_MOVE(pool);
  return NULL;
}

void rt_pool_free(rt_pool *pool)
{
  if (!pool) return;
  atomic_store(&pool->stopping, true);
  for (int i = 0; i < pool->worker_count; i++) {
    atomic_store(&pool->workers[i].asleep, 0);
    futex(&pool->workers[i].asleep, FUTEX_WAKE_PRIVATE, 1);
  }
  for (int i = 0; i < pool->worker_count; i++) pthread_join(pool->workers[i].thread, NULL);
  weft_mutex_fini(&pool->mu);
  free(pool->workers);
  free(pool->first_of_node);
  free(pool->sleepers);
  free(pool);
}

bool rt_pool_is_worker(const rt_pool *pool) { return me && me->pool == pool; }
const atomic_int *rt_pool_wanted(const rt_pool *pool) { return &pool->wanted; }
int rt_pool_threads(const rt_pool *pool) { return pool ? pool->options.threads : 1; }

int rt_pool_node(const rt_pool *pool)
{
  if (!pool || pool->node_count == 1) return 0;
  if (me && me->pool == pool) return me->node;
  return pool->options.node_here ? pool->options.node_here(pool->options.ctx) : 0;
}

rt_pool_counts rt_pool_counts_of(const rt_pool *pool)
{
  return (rt_pool_counts){.joins = atomic_load(&pool->counts.joins),
                          .wakes = atomic_load(&pool->counts.wakes),
                          .locks = atomic_load(&pool->counts.locks),
                          .shared = atomic_load(&pool->counts.shared)};
}

void rt_pool_offer(rt_pool *pool, rt_job *job, int count)
{
  atomic_int *words[WAKES];

  if (count <= 0) return;
  weft_mutex_lock(&pool->mu);
  if (job->wanted == 0) {
    job->prev = pool->last;
    *(pool->last ? &pool->last->next : &pool->first) = job;
    pool->last = job;
  }
  job->wanted += count;
  atomic_fetch_add(&pool->listed, count);
  atomic_fetch_add(&pool->wanted, count);
  int roused = rouse_some(pool, __atomic_load_n(&job->node, __ATOMIC_RELAXED), count, words);
  COUNT(pool, locks, 1);
  weft_mutex_unlock(&pool->mu); /* the last use of the pool: see wake */
  wake(words, roused);
}

int rt_pool_withdraw(rt_pool *pool, rt_job *job)
{
  weft_mutex_lock(&pool->mu);
  int count = job->wanted;
  if (count > 0) {
    unlink_job(pool, job);
    job->wanted = 0;
    atomic_fetch_sub_explicit(&pool->listed, count, memory_order_relaxed);
    atomic_fetch_sub_explicit(&pool->wanted, count, memory_order_relaxed);
  }
  COUNT(pool, locks, 1);
  weft_mutex_unlock(&pool->mu);
  return count;
}

/* ---- loops ----------------------------------------------------------------------------------------------------- */

/* Each thread that takes part in a loop claims a share of the indices, in a line of its own. Shares stand in the
 * order of the workers, so in the order of their nodes, and a worker claims the share that stands where the worker
 * does: loops of the same size give a thread the same share, so that what it wrote in one step lies in its own cache,
 * and in the memory of its node, in the next. A thread that has finished its share takes indices that are left in
 * other shares, first in those of its node. */
enum { MOST_SHARES = 512 }; /* 32 KiB of the stack, of which a loop uses as many lines as it has shares */

typedef struct share {
  _Alignas(64) atomic_llong next; /* the next index to run */
  int64_t end;
  atomic_bool claimed;
} share;

struct loop {
  rt_pool *pool;
  void (*fn)(void *ctx, int64_t index);
  void *ctx;
  int share_count, cpu;
  rt_trace_step step; /* of the thread that runs the loop; set while events are recorded */
  share shares[MOST_SHARES];
  /* Helpers that have left; once the caller knows how many took part, it takes off their number, and the helper that
   * makes this 0 is the last one. Release, pairs with the acquire in wait_for_helpers. */
  _Alignas(64) atomic_int left;
};

/* The share at which a thread begins, and those of its node. */
typedef struct place { int own, first, end; } place;

/* The first share of the worker at `position`, of those that stand behind it. */
static int share_at(const loop *l, int position)
{
  int64_t threads = l->pool->options.threads;

  return (int)(((int64_t)position * l->share_count + threads - 1) / threads);
}

static place place_of(const loop *l, int position, int node)
{
  place p = {.own = (int)((int64_t)position * l->share_count / l->pool->options.threads), .end = l->share_count};

  p.own = WEFT_MIN(p.own, l->share_count - 1); /* behind the last worker: of a node that has none */
  if (l->pool->node_count == 1) return p;
  int first = share_at(l, l->pool->first_of_node[node]), end = share_at(l, l->pool->first_of_node[node + 1]);
  if (first >= end) return p; /* fewer shares than nodes */
  p.first = first;
  p.end = end;
  p.own = WEFT_MAX(first, WEFT_MIN(p.own, end - 1));
  return p;
}

/* Share number `i` in the order in which a thread looks at them: those of its node, then the others. */
static int share_in_turn(const loop *l, const place *p, int i)
{
  int size = p->end - p->first, at;

  if (i < size) {
    at = p->own + i;
    return at < p->end ? at : at - size;
  }
  at = p->end + i - size;
  return at < l->share_count ? at : at - l->share_count;
}

/* Gives the thread a share that no other thread has claimed, its own if it can. */
static void claim(loop *l, place *p)
{
  for (int i = 0; i < l->share_count; i++) {
    share *s = &l->shares[share_in_turn(l, p, i)];
    if (atomic_load_explicit(&s->claimed, memory_order_relaxed)) continue;
    if (atomic_exchange_explicit(&s->claimed, true, memory_order_relaxed)) continue;
    int own = share_in_turn(l, p, i);
    if (i >= p->end - p->first) *p = (place){.end = l->share_count}; /* of another node */
    p->own = own;
    return;
  }
}

static void run_indices(loop *l, const place *p)
{
  for (int i = 0; i < l->share_count; i++) {
    share *mine = &l->shares[share_in_turn(l, p, i)];
    if (atomic_load_explicit(&mine->next, memory_order_relaxed) >= mine->end) continue; /* leaves the line shared */
    for (int64_t at; (at = atomic_fetch_add_explicit(&mine->next, 1, memory_order_relaxed)) < mine->end;)
      l->fn(l->ctx, at);
  }
}

static bool is_dealt_out(loop *l)
{
  for (int s = 0; s < l->share_count; s++)
    if (atomic_load_explicit(&l->shares[s].next, memory_order_relaxed) < l->shares[s].end) return false;
  return true;
}

/* A helper that was woken on the caller's own core would only keep the caller from working: it yields until the
 * system moves it or no indices are left. */
static void make_way(loop *l)
{
  while (l->cpu >= 0 && sched_getcpu() == l->cpu && !is_dealt_out(l)) sched_yield();
}

static void help(loop *l, const worker *self)
{
  atomic_int *left = &l->left;
  rt_pool *pool = l->pool;
  place p = place_of(l, self->position, self->node);

  int64_t begin = WEFT_UNLIKELY(rt_trace_on) ? weft_now_ns() : 0;
  make_way(l);
  claim(l, &p);
  run_indices(l, &p);
  if (WEFT_UNLIKELY(begin != 0)) rt_trace_help(&l->step, begin);
  COUNT(pool, shared, 1);
  if (atomic_fetch_add_explicit(left, 1, memory_order_release) != -1) return;
  /* The loop's memory may be freed by now; waking an address is harmless whatever it holds. */
  futex(left, FUTEX_WAKE_PRIVATE, 1);
}

/* The slot has no tickets any more. Called by the thread that took the last one, or took back those that were left. */
static void close_slot(rt_pool *pool, int at)
{
  atomic_fetch_and_explicit(&pool->open, ~(1ull << at), memory_order_relaxed);
  atomic_fetch_sub_explicit(&pool->wanted, 1, memory_order_relaxed);
  COUNT(pool, shared, 2);
}

/* Takes a ticket of a loop. The loop then stays until the calling thread has left it. NULL: no loop has tickets. */
static loop *join_loop(rt_pool *pool, int *out_left)
{
  for (unsigned long long open = atomic_load_explicit(&pool->open, memory_order_relaxed); open; open &= open - 1) {
    int at = __builtin_ctzll(open);
    slot *s = &pool->slots[at];
    int tickets = atomic_load_explicit(&s->tickets, memory_order_relaxed);
    /* acquire: pairs with the store in open_slot */
    while (tickets > 0 && !atomic_compare_exchange_weak_explicit(&s->tickets, &tickets, tickets - 1,
                                                                 memory_order_acquire, memory_order_relaxed)) {}
    if (tickets <= 0) continue;
    loop *l = s->loop;
    if (tickets == 1) close_slot(pool, at);
    *out_left = tickets - 1;
    COUNT(pool, joins, 1);
    COUNT(pool, shared, 1);
    return l;
  }
  return NULL;
}

/* A slot that no loop has; -1: all are used. */
static int take_slot(rt_pool *pool)
{
  unsigned long long used = atomic_load_explicit(&pool->used, memory_order_relaxed);
  int at;

  do {
    if (!~used) return -1;
    at = __builtin_ctzll(~used);
    /* acquire: pairs with the release of the thread that had the slot before */
  } while (!atomic_compare_exchange_weak_explicit(&pool->used, &used, used | 1ull << at, memory_order_acquire,
                                                  memory_order_relaxed));
  return at;
}

/* The bit and the count come before the tickets: who takes the last ticket takes both back. */
static void open_slot(rt_pool *pool, int at, loop *l, int tickets)
{
  pool->slots[at].loop = l;
  atomic_fetch_or_explicit(&pool->open, 1ull << at, memory_order_relaxed);
  atomic_fetch_add(&pool->wanted, 1);
  atomic_store(&pool->slots[at].tickets, tickets);
  COUNT(pool, shared, 5); /* and the bit of take_slot */
}

/* Takes back the tickets, and waits until those who took one have left. */
static void wait_for_helpers(rt_pool *pool, int at, loop *l, int helpers)
{
  int unused = atomic_exchange_explicit(&pool->slots[at].tickets, 0, memory_order_relaxed), left;

  COUNT(pool, shared, 3); /* with the bit that is given back below */
  if (unused > 0) close_slot(pool, at);
  helpers -= unused;
  left = atomic_fetch_sub_explicit(&l->left, helpers, memory_order_acquire) - helpers;
  for (int64_t until = weft_now_ns() + SPIN_NS; left != 0;
       left = atomic_load_explicit(&l->left, memory_order_acquire)) {
    if (weft_now_ns() < until) wait_a_little();
    else futex(&l->left, FUTEX_WAIT_PRIVATE, left); /* local work, which ends */
  }
  atomic_fetch_and_explicit(&pool->used, ~(1ull << at), memory_order_release);
}

void rt_parallel_for(rt_pool *pool, int64_t count, void (*fn)(void *ctx, int64_t index), void *ctx)
{
  int helpers = pool ? (int)WEFT_MIN(count - 1, pool->options.threads - 1) : 0;
  int at = helpers > 0 ? take_slot(pool) : -1;

  if (at < 0) {
    for (int64_t i = 0; i < count; i++) fn(ctx, i);
    return;
  }
  loop l; /* not zeroed, because most of the struct is shares */
  l.pool = pool;
  l.fn = fn;
  l.ctx = ctx;
  l.share_count = WEFT_MIN(helpers + 1, MOST_SHARES);
  l.cpu = sched_getcpu();
  l.step = WEFT_UNLIKELY(rt_trace_on) ? rt_trace_current : (rt_trace_step){0};
  atomic_init(&l.left, 0);
  for (int s = 0; s < l.share_count; s++) {
    atomic_init(&l.shares[s].next, count / l.share_count * s + WEFT_MIN(s, count % l.share_count));
    l.shares[s].end = count / l.share_count * (s + 1) + WEFT_MIN(s + 1, count % l.share_count);
    atomic_init(&l.shares[s].claimed, false);
  }
  bool inside = me && me->pool == pool;
  int node = rt_pool_node(pool);
  place p = place_of(&l, inside ? me->position : pool->first_of_node[node], node);
  claim(&l, &p);
  open_slot(pool, at, &l, helpers);
  wake_some(pool, node, helpers);
  run_indices(&l, &p);
  wait_for_helpers(pool, at, &l, helpers);
}

typedef struct copy { char *to; const char *from; int64_t bytes, piece; } copy;

static void copy_piece(void *ctx, int64_t index)
{
  const copy *c = ctx;
  int64_t at = index * c->piece;

  memcpy(c->to + at, c->from + at, (size_t)WEFT_MIN(c->bytes - at, c->piece));
}

void rt_parallel_copy(rt_pool *pool, void *to, const void *from, int64_t bytes, int64_t piece)
{
  copy c = {to, from, bytes, piece};

  rt_parallel_for(pool, (bytes + piece - 1) / piece, copy_piece, &c);
}

/* ---- scratch --------------------------------------------------------------------------------------------------- */

typedef struct scratch { void *data; int64_t bytes; } scratch;

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static _Thread_local scratch *my_scratch;

static void free_scratch(void *arg)
{
  scratch *s = arg;
  free(s->data);
  free(s);
}
static void make_scratch_key(void) { pthread_key_create(&scratch_key, free_scratch); }

void *rt_thread_scratch(int64_t bytes)
{
  scratch *s = my_scratch;

  if (WEFT_LIKELY(s && s->bytes >= bytes)) return s->data;
  if (!s) {
    pthread_once(&scratch_once, make_scratch_key);
    s = calloc(1, sizeof *s);
    if (!s) return NULL;
    my_scratch = s;
    pthread_setspecific(scratch_key, s);
  }
  free(s->data);
  s->bytes = WEFT_ALIGN_UP(WEFT_MAX(bytes, 4096), 4096);
  if (posix_memalign(&s->data, 64, (size_t)s->bytes) != 0) {
    s->data = NULL;
    s->bytes = 0;
  }
  return s->data;
}

void *rt_task_scratch(int64_t bytes, atomic_bool *failed)
{
  void *memory = rt_thread_scratch(bytes);

  if (!memory) atomic_store_explicit(failed, true, memory_order_relaxed);
  return memory;
}
