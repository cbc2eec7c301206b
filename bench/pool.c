/* bench/pool.c -- how soon a loop over the worker pool begins, and what it costs: the time from the call to its first
 * index and to its end, with workers that are awake and with workers that sleep, for 2 to 128 threads.
 * Prints one line a case, or with --markdown a table. */
#include <config.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/machine.h"
#include "runtime/pool.h"

enum { ROUNDS = 400, WORK_NS = 2000, PAUSE_US = 1500 };

typedef struct call {
  atomic_llong first; /* when the first index began */
} call;

static void touch(void *ctx, int64_t index)
{
  call *c = ctx;
  long long now = weft_now_ns(), known = atomic_load_explicit(&c->first, memory_order_relaxed);

  (void)index;
  while (now < known && !atomic_compare_exchange_weak(&c->first, &known, now)) {}
  while (weft_now_ns() < now + WORK_NS) {}
}

static int compare(const void *a, const void *b)
{
  return (*(const int64_t *)a > *(const int64_t *)b) - (*(const int64_t *)a < *(const int64_t *)b);
}

static double percentile(int64_t *ns, int percent) { return (double)ns[ROUNDS * percent / 100] / 1e3; }

static weft_status *measure(int threads, bool asleep, bool markdown)
{
  static int64_t first[ROUNDS], all[ROUNDS];
  WEFT_AUTO(rt_pool) pool = NULL;
  rt_pool_counts before, after;
  call c;

  WEFT_TRY(rt_pool_new(&(rt_pool_options){.threads = threads, .counts = true}, &pool));
  usleep(20000);
  before = rt_pool_counts_of(pool);
  for (int i = 0; i < ROUNDS; i++) {
    if (asleep) usleep(PAUSE_US);
    int64_t begin = weft_now_ns();
    atomic_init(&c.first, INT64_MAX);
    rt_parallel_for(pool, threads, touch, &c);
    all[i] = weft_now_ns() - begin;
    first[i] = c.first - begin;
  }
  after = rt_pool_counts_of(pool);
  qsort(first, ROUNDS, sizeof *first, compare);
  qsort(all, ROUNDS, sizeof *all, compare);
  printf(
    markdown ? "| %d | %s | %.1f | %.1f | %.1f | %.1f | %.2f | %.2f | %.2f | %.2f |\n"
             : "pool %3d threads  %-6s  first index p50 %.1fus p90 %.1fus  whole p50 %.1fus p90 %.1fus  joined %.2f  "
               "woken %.2f  locks %.2f  shared lines %.2f\n",
    threads, asleep ? "asleep" : "awake", percentile(first, 50), percentile(first, 90), percentile(all, 50),
    percentile(all, 90), (double)(after.joins - before.joins) / ROUNDS, (double)(after.wakes - before.wakes) / ROUNDS,
    (double)(after.locks - before.locks) / ROUNDS, (double)(after.shared - before.shared) / ROUNDS);
  return NULL;
}

int main(int argc, char **argv)
{
  bool markdown = argc > 1 && strcmp(argv[1], "--markdown") == 0;
  weft_status *st = NULL;

  if (markdown)
    printf("| threads | workers | first index p50 µs | p90 µs | whole call p50 µs | p90 µs | workers that joined | "
           "wake-ups | locks taken | writes to shared lines |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (int asleep = 0; asleep < 2 && !st; asleep++)
    for (int threads = 2; threads <= 128 && !st; threads *= 2) st = measure(threads, asleep, markdown);
  if (st) fprintf(stderr, "%s\n", weft_status_text(st, true));
  return st != NULL;
}
