/* tests/runtime/pool_test.c -- Loops over the worker pool: each index runs once, for any number of threads and nodes;
 * shares stay on their node; all sleeping workers that a job wants are woken. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/thread.h"
#include "runtime/pool.h"

enum { MOST = 1000 };

typedef struct visits { atomic_int of[MOST]; } visits;

static void visit(void *ctx, int64_t index) { atomic_fetch_add(&((visits *)ctx)->of[index], 1); }

/* The nodes of `threads` workers that are spread over `count` nodes. */
static const int *nodes_of(int threads, int count)
{
  static int nodes[MOST];

  for (int i = 0; i < threads; i++) nodes[i] = i * count / threads;
  return nodes;
}

static void check_indices(int threads, int nodes)
{
  static const int64_t counts[] = {0, 1, 2, 3, 17, 128, 129, MOST};
  WEFT_AUTO(rt_pool) pool = NULL;

  T_OK(
    rt_pool_new(&(rt_pool_options){.threads = threads, .nodes = nodes_of(threads, nodes), .node_count = nodes}, &pool));
  for (int round = 0; round < 5; round++)
    for (size_t c = 0; c < WEFT_COUNT(counts); c++) {
      visits seen = {0};
      rt_parallel_for(pool, counts[c], visit, &seen);
      for (int64_t i = 0; i < MOST; i++)
        if (atomic_load(&seen.of[i]) != (i < counts[c]))
          fail_msg("%d threads, %d nodes, %lld indices: index %lld", threads, nodes, (long long)counts[c],
                   (long long)i);
    }
}

TEST(each_index_runs_once)
{
  static const int threads[] = {1, 2, 7, 64, 600}, nodes[] = {1, 2, 3, 8};

  for (size_t t = 0; t < WEFT_COUNT(threads); t++)
    for (size_t n = 0; n < WEFT_COUNT(nodes); n++) check_indices(threads[t], nodes[n]);
}

/* ---- many loops at once ---- */

enum { CALLERS = 6, ROUNDS = 300 };

typedef struct caller {
  rt_pool *pool;
  pthread_t thread;
  atomic_llong sum;
} caller;

static void add_index(void *ctx, int64_t index) { atomic_fetch_add(&((caller *)ctx)->sum, index + 1); }

/* A loop in each index of a loop. */
static void nest(void *ctx, int64_t index)
{
  (void)index;
  rt_parallel_for(((caller *)ctx)->pool, 20, add_index, ctx);
}

static void *call(void *arg)
{
  caller *c = arg;

  for (int i = 0; i < ROUNDS; i++) {
    atomic_store(&c->sum, 0);
    rt_parallel_for(c->pool, 7, nest, c);
    if (atomic_load(&c->sum) != 7 * 210) return "a loop ended early, or ran an index twice";
    if (i % 16 == 0) usleep(200); /* so that workers fall asleep now and then */
  }
  return NULL;
}

TEST(loops_of_many_threads_and_loops_in_loops)
{
  for (int nodes = 1; nodes <= 2; nodes++) {
    WEFT_AUTO(rt_pool) pool = NULL;
    caller callers[CALLERS];
    T_OK(rt_pool_new(&(rt_pool_options){.threads = 5, .nodes = nodes_of(5, nodes), .node_count = nodes}, &pool));
    for (int i = 0; i < CALLERS; i++) {
      callers[i].pool = pool;
      T_OK(weft_thread_start(&callers[i].thread, "caller", call, &callers[i]));
    }
    for (int i = 0; i < CALLERS; i++) {
      void *error;
      pthread_join(callers[i].thread, &error);
      if (error) fail_msg("%s", (char *)error);
    }
    T_EQ_INT(atomic_load(rt_pool_wanted(pool)), 0);
  }
}

/* ---- shares ---- */

enum { SHARED = 64 };

typedef struct owners {
  rt_pool *pool;
  int nodes;
  atomic_int inside, strangers;
  atomic_bool over; /* threads take indices of others by now */
} owners;

/* Waits until a thread has come to each share, so that none takes another's. Where there are few cores some threads
 * come only when there is nothing left to do (make_way in pool.c). So all others leave after a while, and who comes
 * then is not looked at. */
static void note_owner(void *ctx, int64_t index)
{
  owners *o = ctx;
  int64_t deadline = weft_now_ns() + INT64_C(100000000);

  if (!atomic_load(&o->over) && rt_pool_node(o->pool) != index * o->nodes / SHARED) atomic_fetch_add(&o->strangers, 1);
  atomic_fetch_add(&o->inside, 1);
  while (atomic_load(&o->inside) < SHARED && !atomic_load(&o->over) && weft_now_ns() < deadline) usleep(50);
  atomic_store(&o->over, true);
}

typedef struct shares_job {
  rt_job job;
  owners *owners;
  atomic_bool done;
} shares_job;

static void share_out(rt_job *job)
{
  shares_job *s = WEFT_CONTAINER_OF(job, shares_job, job);

  rt_parallel_for(s->owners->pool, SHARED, note_owner, s->owners);
  atomic_store(&s->done, true);
}

/* The caller is a worker, as it is in long programs: then each worker has its own share. */
TEST(a_share_goes_to_a_worker_of_its_node)
{
  for (int nodes = 1; nodes <= 4; nodes *= 2) {
    WEFT_AUTO(rt_pool) pool = NULL;
    T_OK(
      rt_pool_new(&(rt_pool_options){.threads = SHARED, .nodes = nodes_of(SHARED, nodes), .node_count = nodes}, &pool));
    for (int round = 0; round < 4; round++) {
      owners o = {.pool = pool, .nodes = nodes};
      shares_job s = {.job = {.run = share_out, .node = round % nodes}, .owners = &o};
      rt_pool_offer(pool, &s.job, 1);
      while (!atomic_load(&s.done)) usleep(50);
      T_EQ_INT(atomic_load(&o.strangers), 0);
    }
  }
}

/* ---- waking ---- */

typedef struct meeting {
  rt_job job;
  atomic_int arrived, left;
  int expected;
  int64_t deadline;
} meeting;

/* Returns when as many workers are inside as are expected, or at the deadline. */
static void meet(rt_job *job)
{
  meeting *m = WEFT_CONTAINER_OF(job, meeting, job);

  atomic_fetch_add(&m->arrived, 1);
  while (atomic_load(&m->arrived) < m->expected && weft_now_ns() < m->deadline) usleep(50);
  atomic_fetch_add(&m->left, 1);
}

TEST(all_sleeping_workers_that_a_job_wants_are_woken)
{
  static const int threads[] = {1, 2, 3, 4, 9, 33, 100};

  for (size_t t = 0; t < WEFT_COUNT(threads); t++) {
    WEFT_AUTO(rt_pool) pool = NULL;
    int nodes = 1 + (int)t % 3;
    /* with patience the workers of other nodes come when those of the job's node are there */
    T_OK(rt_pool_new(&(rt_pool_options){.threads = threads[t],
                                        .nodes = nodes_of(threads[t], nodes),
                                        .node_count = nodes,
                                        .node_patience_ns = t % 2 ? 100000 : 0},
                     &pool));
    for (int round = 0; round < 6; round++) {
      meeting m = {.job = {.run = meet}, .expected = threads[t], .deadline = weft_now_ns() + INT64_C(20000000000)};
      usleep(round % 2 ? 2000 : 0); /* workers are asleep, or some of them still look for work */
      rt_pool_offer(pool, &m.job, threads[t]);
      while (atomic_load(&m.left) < threads[t] && weft_now_ns() < m.deadline + INT64_C(1000000000)) usleep(50);
      int came = atomic_load(&m.arrived), stayed_away = rt_pool_withdraw(pool, &m.job);
      while (atomic_load(&m.left) < threads[t] - stayed_away)
        usleep(50); /* the workers use `m` until they end, which their deadline bounds */
      if (came != threads[t]) fail_msg("%d of %d workers came", came, threads[t]);
    }
  }
}

/* ---- jobs of nodes ---- */

typedef struct errand {
  rt_job job;
  rt_pool *pool;
  atomic_bool waits; /* the worker stays until this is false */
  atomic_int taken_by; /* 1 + the worker's node; 0: nobody has come */
  atomic_bool done;
} errand;

static void run_errand(rt_job *job)
{
  errand *e = WEFT_CONTAINER_OF(job, errand, job);

  atomic_store(&e->taken_by, 1 + rt_pool_node(e->pool));
  while (atomic_load(&e->waits)) usleep(50);
  atomic_store(&e->done, true);
}

static void await_errand(const errand *e)
{
  while (!atomic_load(&e->done)) usleep(50);
}

/* Workers of other nodes are patient: they leave a job to those of its node, but not if these have work. */
TEST(a_job_goes_to_a_worker_of_its_node)
{
  enum { THREADS = 6, NODES = 3, EACH = THREADS / NODES, JOBS = 200 };
  WEFT_AUTO(rt_pool) pool = NULL;

  T_OK(rt_pool_new(&(rt_pool_options){.threads = THREADS,
                                      .nodes = nodes_of(THREADS, NODES),
                                      .node_count = NODES,
                                      .node_patience_ns = INT64_C(20000000000)},
                   &pool));
  meeting all = {.job = {.run = meet}, .expected = THREADS, .deadline = INT64_MAX};
  rt_pool_offer(pool, &all.job, THREADS); /* all workers have started */
  while (atomic_load(&all.left) < THREADS) usleep(50);
  usleep(1000);
  for (int i = 0; i < JOBS; i++) {
    errand e = {.job = {.run = run_errand, .node = i * 7 % NODES}, .pool = pool};
    rt_pool_offer(pool, &e.job, 1);
    await_errand(&e);
    T_EQ_INT(e.taken_by, 1 + e.job.node);
  }
  errand busy[EACH], other = {.job = {.run = run_errand, .node = 1}, .pool = pool};
  for (int i = 0; i < EACH; i++) {
    busy[i] = (errand){.job = {.run = run_errand, .node = 1}, .pool = pool, .waits = true};
    rt_pool_offer(pool, &busy[i].job, 1);
  }
  for (int i = 0; i < EACH; i++)
    while (atomic_load(&busy[i].taken_by) == 0) usleep(50);
  rt_pool_offer(pool, &other.job, 1);
  await_errand(&other); /* at once, though the patience is not over */
  T_TRUE(other.taken_by != 2);
  for (int i = 0; i < EACH; i++) {
    T_EQ_INT(busy[i].taken_by, 2);
    atomic_store(&busy[i].waits, false);
    await_errand(&busy[i]);
  }
}

TEST_MAIN(UNIT(each_index_runs_once), UNIT(loops_of_many_threads_and_loops_in_loops),
          UNIT(a_share_goes_to_a_worker_of_its_node), UNIT(all_sleeping_workers_that_a_job_wants_are_woken),
          UNIT(a_job_goes_to_a_worker_of_its_node))
