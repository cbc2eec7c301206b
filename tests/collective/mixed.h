/* tests/collective/mixed.h -- for tests that play random programs of collectives and messages: the random numbers, what
 * a step is, its data, and programs that are processes of their own. The same seed gives the same program
 * everywhere. */
#ifndef WEFT_TESTS_COLLECTIVE_MIXED_H
#define WEFT_TESTS_COLLECTIVE_MIXED_H

#include "test.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weft/collective.h"

static inline uint64_t mixed_next(uint64_t *state)
{
  *state += 0x9e3779b97f4a7c15u;
  uint64_t z = (*state ^ (*state >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static inline int mixed_below(uint64_t *state, int limit) { return (int)(mixed_next(state) % (uint64_t)limit); }

/* What a step is, which all ranks know: a collective of all, or a message. */
typedef struct mixed_step {
  weft_coll_kind kind; /* WEFT_SEND: a message */
  int count, from, to; /* from: also the root */
} mixed_step;

/* A step of `size` ranks, of one of the kinds, with up to `most` elements a rank. */
static inline mixed_step mixed_draw(uint64_t *state, const weft_coll_kind *kinds, size_t kind_count, int size, int most)
{
  mixed_step s = {.kind = kinds[mixed_below(state, (int)kind_count)], .from = mixed_below(state, size)};

  s.count = mixed_below(state, 3) ? 1 + mixed_below(state, 20) : 1 + mixed_below(state, most);
  s.to = size > 1 ? (s.from + 1 + mixed_below(state, size - 1)) % size : 0;
  return s;
}

/* Sums of these are exact in f32. */
static inline float mixed_element(int epoch, int i, int rank, int e)
{
  return (float)(epoch * 7 + i * 31 + rank * 101 + e % 977);
}

static inline bool mixed_reduces(weft_coll_kind kind)
{
  return kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE || kind == WEFT_REDUCE_SCATTER;
}

/* A rank's part in step number i, with arrays of size * count elements. A collective-permute goes around. */
static inline weft_coll_op mixed_operation(const mixed_step *s, int i, int rank, int size, const float *in, float *out)
{
  weft_coll_op op = {
    .kind = s->kind, .dtype = WEFT_F32, .count = (size_t)s->count, .send = in, .recv = out};

  if (mixed_reduces(s->kind)) op.reduction = WEFT_SUM;
  if (s->kind == WEFT_BROADCAST || s->kind == WEFT_REDUCE) op.root = s->from;
  if (s->kind == WEFT_PERMUTE) op.source = (rank + size - 1) % size, op.target = (rank + 1) % size;
  if (s->kind == WEFT_BARRIER) op = (weft_coll_op){.kind = WEFT_BARRIER};
  if (s->kind != WEFT_SEND) return op;
  if (rank == s->to) op.kind = WEFT_RECV;
  op.peer = op.kind == WEFT_SEND ? s->to : s->from;
  op.tag = (uint64_t)i;
  return op;
}

static inline bool mixed_takes_part(const mixed_step *s, int rank)
{
  return s->kind != WEFT_SEND || rank == s->from || rank == s->to;
}

/* How many elements a rank gives and gets. */
static inline int mixed_given(const mixed_step *s, int size)
{
  bool blocks = s->kind == WEFT_ALL_TO_ALL || s->kind == WEFT_REDUCE_SCATTER;

  return blocks ? s->count * size : s->count;
}

static inline int mixed_gets(const mixed_step *s, int rank, int size)
{
  if (s->kind == WEFT_BARRIER) return 0;
  if (s->kind == WEFT_REDUCE) return rank == s->from ? s->count : 0;
  if (s->kind == WEFT_SEND) return rank == s->to ? s->count : 0;
  return s->kind == WEFT_ALL_GATHER || s->kind == WEFT_ALL_TO_ALL ? s->count * size : s->count;
}

static inline float mixed_result(const mixed_step *s, int epoch, int i, int rank, int size, int e)
{
  int block = e / s->count, at = e % s->count;
  float sum = 0;

  switch (s->kind) {
  case WEFT_ALL_GATHER: return mixed_element(epoch, i, block, at);
  case WEFT_ALL_TO_ALL: return mixed_element(epoch, i, block, rank * s->count + at);
  case WEFT_PERMUTE: return mixed_element(epoch, i, (rank + size - 1) % size, e);
  case WEFT_BROADCAST:
  case WEFT_SEND: return mixed_element(epoch, i, s->from, e);
  default: break;
  }
  for (int r = 0; r < size; r++)
    sum += mixed_element(epoch, i, r, s->kind == WEFT_REDUCE_SCATTER ? rank * s->count + e : e);
  return sum;
}

/* The first element of a rank's result that is wrong; -1: none. */
static inline int mixed_wrong(const mixed_step *s, int epoch, int i, int rank, int size, const float *out)
{
  for (int e = 0; e < mixed_gets(s, rank, size); e++)
    if (out[e] != mixed_result(s, epoch, i, rank, size, e)) return e;
  return -1;
}

/* A process in which a check that fails ends the process, as a time limit does. */
static inline pid_t mixed_fork(void (*be)(void *arg), void *arg, unsigned limit_s)
{
  fflush(stdout);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("CMOCKA_TEST_ABORT", "1", 1);
  alarm(limit_s);
  be(arg);
  fflush(stdout);
  exit(0);
}

/* Did it end well? */
static inline bool mixed_join(pid_t child)
{
  int status = 0;

  return waitpid(child, &status, 0) == child && status == 0;
}

/* Plays WEFT_TEST_SEED (or 1) and the seeds after it: WEFT_TEST_SEEDS (or `least`) of them, and on until
 * WEFT_TEST_SECONDS have passed. Returns how many there were. */
static inline int mixed_play(int least, void (*play)(uint64_t seed))
{
  const char *set = getenv("WEFT_TEST_SEED"), *seconds = getenv("WEFT_TEST_SECONDS"),
             *seeds = getenv("WEFT_TEST_SEEDS");
  int64_t until_ns = weft_now_ns() + (seconds ? atoi(seconds) : 0) * WEFT_NS_PER_S;
  uint64_t seed = set ? strtoull(set, NULL, 10) : 1;
  int played = 0;

  if (seeds) least = atoi(seeds);
  for (; played < least || weft_now_ns() < until_ns; played++) play(seed++);
  return played;
}

#endif
