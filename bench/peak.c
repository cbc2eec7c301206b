/* bench/peak.c -- what the machine can do at most: f32 multiply-adds, and bytes read and copied, on all threads.
 *   peak [THREADS]
 * Prints one line of JSON: {"gflops": .., "read_gbs": .., "copy_gbs": ..}.  Each figure is the best of several rounds.
 * bench/peers.py divides by these figures. */
#include <config.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"
#include "base/macros.h"
#include "cpu/hot.h"

enum {
  ROUNDS = 12,
  CHAINS = 12,          /* independent sums: more than latency times throughput of any core that we know */
  STEPS = 4000000,
  BYTES = 128 << 20,    /* of each thread: far more than its share of the last cache */
};

typedef float lanes __attribute__((vector_size(32))); /* one AVX2 register; two of them fill an AVX-512 pipe's turn */

typedef struct task {
  void (*run)(struct task *task);
  char *from, *to;
  float sink;
} task;

/* Multiply-adds of one thread. The compiler contracts them where the processor has such an instruction. */
static CPU_HOT float multiply_add(float by)
{
  lanes sums[CHAINS], factor;

  for (int i = 0; i < 8; i++) factor[i] = by;
  for (int c = 0; c < CHAINS; c++) sums[c] = factor + (float)c;
  for (int64_t step = 0; step < STEPS; step++) {
#pragma GCC unroll 12
    for (int c = 0; c < CHAINS; c++) sums[c] = sums[c] * factor + factor;
  }
  for (int c = 1; c < CHAINS; c++) sums[0] += sums[c];
  return sums[0][0];
}

static CPU_HOT uint64_t read_words(const uint64_t *from, int64_t count)
{
  uint64_t sum[8] = {0};

  for (int64_t i = 0; i + 8 <= count; i += 8)
    for (int j = 0; j < 8; j++) sum[j] += from[i + j];
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

static void run_flops(task *t) { t->sink = multiply_add(0.5f); }
static void run_read(task *t) { t->sink = (float)read_words((const uint64_t *)t->from, BYTES / 8); }
static void run_copy(task *t) { memcpy(t->to, t->from, BYTES); }

static void *start(void *arg)
{
  task *t = arg;
  t->run(t);
  return NULL;
}

/* Seconds of the shortest round in which all threads do the task. */
static double best(task *tasks, int threads, void (*run)(task *t))
{
  pthread_t *thread = calloc((size_t)threads, sizeof *thread);
  double least = 1e9;

  for (int r = 0; r < ROUNDS && thread; r++) {
    int64_t begin = weft_now_ns();
    for (int i = 0; i < threads; i++) {
      tasks[i].run = run;
      if (pthread_create(&thread[i], NULL, start, &tasks[i]) != 0) exit(1);
    }
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    least = WEFT_MIN(least, (double)(weft_now_ns() - begin) / 1e9);
  }
  free(thread);
  return least;
}

int main(int argc, char **argv)
{
  int threads = argc > 1 ? atoi(argv[1]) : 1;
  if (threads < 1 || threads > 1024) return 2;
  task *tasks = calloc((size_t)threads, sizeof *tasks);

  if (!tasks) return 1;
  for (int i = 0; i < threads; i++) {
    tasks[i].from = malloc(BYTES);
    tasks[i].to = malloc(BYTES);
    if (!tasks[i].from || !tasks[i].to) return 1;
    memset(tasks[i].from, 1, BYTES);
    memset(tasks[i].to, 1, BYTES);
  }
  double flops = 2.0 * 8 * CHAINS * STEPS * threads, bytes = (double)BYTES * threads;
  printf("{\"gflops\": %.1f, \"read_gbs\": %.1f, \"copy_gbs\": %.1f}\n", flops / best(tasks, threads, run_flops) / 1e9,
         bytes / best(tasks, threads, run_read) / 1e9, 2 * bytes / best(tasks, threads, run_copy) / 1e9);
  for (int i = 0; i < threads; i++) {
    free(tasks[i].from);
    free(tasks[i].to);
  }
  free(tasks);
  return 0;
}
