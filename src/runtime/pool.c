/* runtime/pool.c -- the worker threads of a process's devices (pool.h). */
#include <config.h>

#include "runtime/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"
#include "runtime/trace.h"

struct rt_pool {
  rt_pool_options options;
  int worker_count;
  pthread_t *workers;
  weft_mutex mu;
  weft_cond offered;
  rt_job *first WEFT_GUARDED_BY(mu); /* with wanted > 0, oldest first */
  rt_job *last WEFT_GUARDED_BY(mu);
  int sleeping WEFT_GUARDED_BY(mu);
  bool stopping WEFT_GUARDED_BY(mu);
  atomic_int wanted; /* sum over jobs: what spinning workers look at */
};

static _Thread_local const rt_pool *my_pool; /* of a worker */
static _Thread_local int my_index;           /* from 1 */

typedef struct worker { rt_pool *pool; int index; } worker;

/* How long a thread looks for work or for the end of a loop before it sleeps: about what waking it costs. */
enum { SPIN_NS = 50000 };

enum { WAKES = 2 }; /* sleepers that one thread wakes */

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

static void unlink_job(rt_pool *pool, rt_job *job) WEFT_REQUIRES(pool->mu)
{
  *(job->prev ? &job->prev->next : &pool->first) = job->next;
  *(job->next ? &job->next->prev : &pool->last) = job->prev;
  job->prev = job->next = NULL;
}

/* Wakes WAKES sleepers at most. Each of them wakes as many again while workers are wanted. So a thread that offers work
 * wakes few and goes on, and all workers are awake after a number of steps that grows with the logarithm of their
 * number. */
static void wake_some(rt_pool *pool, int wanted) WEFT_REQUIRES(pool->mu)
{
  for (int i = 0; i < WAKES && i < wanted && i < pool->sleeping; i++) weft_cond_signal(&pool->offered);
}

static void *work(void *arg)
{
  worker self = *(worker *)arg;
  rt_pool *pool = self.pool;

  free(arg);
  my_pool = pool;
  my_index = self.index;
  if (pool->options.on_start) pool->options.on_start(pool->options.ctx, self.index);
  for (;;) {
    for (int64_t until = weft_now_ns() + SPIN_NS; atomic_load_explicit(&pool->wanted, memory_order_relaxed) == 0;) {
      if (weft_now_ns() >= until) break;
      wait_a_little();
    }
    weft_mutex_lock(&pool->mu);
    while (!pool->first && !pool->stopping) {
      pool->sleeping++;
      weft_cond_wait(&pool->offered, &pool->mu, WEFT_NO_DEADLINE); /* sleeps until work is offered or the pool ends */
      pool->sleeping--;
    }
    rt_job *job = pool->first;
    if (job) {
      if (--job->wanted == 0) unlink_job(pool, job);
      atomic_fetch_sub_explicit(&pool->wanted, 1, memory_order_relaxed);
    }
    wake_some(pool, atomic_load_explicit(&pool->wanted, memory_order_relaxed));
    weft_mutex_unlock(&pool->mu);
    if (!job) return NULL;
    job->run(job);
  }
}

weft_status *rt_pool_new(const rt_pool_options *options, rt_pool **out_pool)
{
  WEFT_AUTO(rt_pool) pool = calloc(1, sizeof *pool);
  int count = WEFT_MAX(options->threads, 1);

  *out_pool = NULL;
  WEFT_TRY_ALLOC(pool);
  pool->options = *options;
  pool->options.threads = WEFT_MAX(options->threads, 1);
  weft_mutex_init(&pool->mu);
  weft_cond_init(&pool->offered);
  pool->workers = calloc((size_t)count, sizeof *pool->workers);
  WEFT_TRY_ALLOC(pool->workers);
  for (int i = 0; i < count; i++) {
    worker *arg = malloc(sizeof *arg);
    WEFT_TRY_ALLOC(arg);
    *arg = (worker){pool, i + 1};
    weft_status *st = weft_thread_start(&pool->workers[i], "weft-worker", work, arg);
    if (st) {
      free(arg);
      return st;
    }
    pool->worker_count++;
  }
  *out_pool = WEFT_MOVE(pool);
  return NULL;
}

void rt_pool_free(rt_pool *pool)
{
  if (!pool) return;
  weft_mutex_lock(&pool->mu);
  pool->stopping = true;
  weft_cond_broadcast(&pool->offered);
  weft_mutex_unlock(&pool->mu);
  for (int i = 0; i < pool->worker_count; i++) pthread_join(pool->workers[i], NULL);
  free(pool->workers);
  weft_cond_fini(&pool->offered);
  weft_mutex_fini(&pool->mu);
  free(pool);
}

bool rt_pool_is_worker(const rt_pool *pool) { return my_pool == pool; }
const atomic_int *rt_pool_wanted(const rt_pool *pool) { return &pool->wanted; }
int rt_pool_threads(const rt_pool *pool) { return pool ? pool->options.threads : 1; }

void rt_pool_offer(rt_pool *pool, rt_job *job, int count)
{
  if (count <= 0) return;
  weft_mutex_lock(&pool->mu);
  if (job->wanted == 0) {
    job->prev = pool->last;
    *(pool->last ? &pool->last->next : &pool->first) = job;
    pool->last = job;
  }
  job->wanted += count;
  atomic_fetch_add_explicit(&pool->wanted, count, memory_order_relaxed);
  wake_some(pool, count);
  weft_mutex_unlock(&pool->mu);
}

int rt_pool_withdraw(rt_pool *pool, rt_job *job)
{
  weft_mutex_lock(&pool->mu);
  int count = job->wanted;
  if (count > 0) {
    unlink_job(pool, job);
    job->wanted = 0;
    atomic_fetch_sub_explicit(&pool->wanted, count, memory_order_relaxed);
  }
  weft_mutex_unlock(&pool->mu);
  return count;
}

/* ---- loops ----------------------------------------------------------------------------------------------------- */

/* Each thread that takes part in a loop has a share of the indices. Loops of the same size give a thread the same
 * share, so that what it wrote in one step lies in its own cache in the next. A thread that has finished its share
 * takes indices that are left in other shares. */
enum { MOST_SHARES = 128 }; /* 8 KiB on the stack */

typedef struct share {
  _Alignas(64) atomic_llong next; /* the next index to run */
  int64_t end;
} share;

typedef struct loop {
  rt_job job;
  void (*fn)(void *ctx, int64_t index);
  void *ctx;
  int share_count, cpu;
  rt_trace_step step; /* of the thread that runs the loop; set while events are recorded */
  share shares[MOST_SHARES];
  _Alignas(64) atomic_int left; /* helpers that have left: release, pairs with the acquire in rt_parallel_for */
} loop;

static void run_indices(loop *l, int first)
{
  for (int s = 0; s < l->share_count; s++) {
    share *mine = &l->shares[(first + s) % l->share_count];
    for (int64_t i; (i = atomic_fetch_add_explicit(&mine->next, 1, memory_order_relaxed)) < mine->end;)
      l->fn(l->ctx, i);
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

static void help(rt_job *job)
{
  loop *l = WEFT_CONTAINER_OF(job, loop, job);
  atomic_int *left = &l->left;

  int64_t begin = WEFT_UNLIKELY(rt_trace_on) ? weft_now_ns() : 0;
  make_way(l);
  run_indices(l, 1 + my_index % (l->share_count - 1));
  if (WEFT_UNLIKELY(begin != 0)) rt_trace_help(&l->step, begin);
  atomic_fetch_add_explicit(left, 1, memory_order_release);
  /* The loop's memory may be freed by now; waking an address is harmless whatever it holds. */
  syscall(SYS_futex, left, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void rt_parallel_for(rt_pool *pool, int64_t count, void (*fn)(void *ctx, int64_t index), void *ctx)
{
  int helpers = pool ? (int)WEFT_MIN(count - 1, pool->options.threads - 1) : 0, left;

  if (helpers <= 0) {
    for (int64_t i = 0; i < count; i++) fn(ctx, i);
    return;
  }
  loop l; /* not zeroed, because most of the struct is shares */
  l.job = (rt_job){.run = help};
  l.fn = fn;
  l.ctx = ctx;
  l.share_count = WEFT_MIN(helpers + 1, MOST_SHARES);
  l.cpu = sched_getcpu();
  l.step = WEFT_UNLIKELY(rt_trace_on) ? rt_trace_current : (rt_trace_step){0};
  atomic_init(&l.left, 0);
  for (int s = 0; s < l.share_count; s++) {
    atomic_init(&l.shares[s].next, count / l.share_count * s + WEFT_MIN(s, count % l.share_count));
    l.shares[s].end = count / l.share_count * (s + 1) + WEFT_MIN(s + 1, count % l.share_count);
  }
  rt_pool_offer(pool, &l.job, helpers);
  run_indices(&l, 0);
  helpers -= rt_pool_withdraw(pool, &l.job);
  int64_t until = weft_now_ns() + SPIN_NS;
  while ((left = atomic_load_explicit(&l.left, memory_order_acquire)) < helpers) {
    if (weft_now_ns() < until) wait_a_little();
    else syscall(SYS_futex, &l.left, FUTEX_WAIT_PRIVATE, left, NULL, NULL, 0); /* local work, which ends */
  }
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
