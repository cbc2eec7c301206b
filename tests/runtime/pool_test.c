/* tests/runtime/pool_test.c -- Loops over the worker pool: each index runs once, for any number of threads; all
 * sleeping workers that a job wants are woken. */
#include "test.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/deadline.h"
#include "runtime/pool.h"

enum { MOST = 1000 };

typedef struct visits { atomic_int of[MOST]; } visits;

static void visit(void *ctx, int64_t index) { atomic_fetch_add(&((visits *)ctx)->of[index], 1); }

TEST(each_index_runs_once)
{
  static const int threads[] = {1, 2, 7, 64};
  static const int64_t counts[] = {0, 1, 2, 3, 17, 128, 129, MOST};

  for (size_t t = 0; t < WEFT_COUNT(threads); t++) {
    WEFT_AUTO(rt_pool) pool = NULL;
    T_OK(rt_pool_new(&(rt_pool_options){.threads = threads[t]}, &pool));
    for (int round = 0; round < 5; round++)
      for (size_t c = 0; c < WEFT_COUNT(counts); c++) {
        visits seen = {0};
        rt_parallel_for(pool, counts[c], visit, &seen);
        for (int64_t i = 0; i < MOST; i++)
          if (atomic_load(&seen.of[i]) != (i < counts[c]))
            fail_msg("%d threads, %lld indices: index %lld", threads[t], (long long)counts[c], (long long)i);
      }
  }
}

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
    T_OK(rt_pool_new(&(rt_pool_options){.threads = threads[t]}, &pool));
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

TEST_MAIN(UNIT(each_index_runs_once), UNIT(all_sleeping_workers_that_a_job_wants_are_woken))
