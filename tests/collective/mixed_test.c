/* tests/collective/mixed_test.c -- every way to wait, at the same time: random programs of collectives and messages, in
 * which each rank chooses by itself what it waits for in the call, what it posts, when, and how it waits for that.
 *
 * Each rank has a thread for each of one or two communicators; all threads of a process share one progress thread.  No
 * operation has a deadline or a warning that comes soon, so an operation that nobody drives is late.
 *
 *   WEFT_TEST_SEED=n     the first seed (1)
 *   WEFT_TEST_SECONDS=n  goes on for so long */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/kv.h"
#include "collective/host/host.h"

enum { RANKS = 4, COMMS = 2, STEPS = 12, EPOCHS = 24, MOST = 3000, LATE_MS = 10000, LIMIT_S = 100, SEEDS = 2 };

/* What a step is, which all ranks know: a collective of all, or a message. */
typedef struct step {
  weft_coll_kind kind; /* WEFT_SEND: a message */
  int count, from, to; /* from: also the root */
} step;

/* An operation that was started, and has not ended in that call. */
typedef struct started {
  weft_coll_waiter waiter;
  sem_t ended;
  weft_status *error;
  bool pending;
} started;

/* One rank's thread for one communicator. */
typedef struct player {
  int rank, number;     /* number: of the communicator */
  int steps;            /* of the epoch */
  weft_comm *comm;
  uint64_t own;         /* state of the rank's own random numbers */
  float in[STEPS][MOST], out[STEPS][MOST * RANKS];
  weft_event *events[STEPS];
  started started[STEPS];
  bool left[STEPS];     /* to be posted later */
} player;

typedef struct process {
  int first, each;
  const char *directory;
  uint64_t seed;
  int comms;
  player *players;      /* [each * comms] */
} process;

static uint64_t next(uint64_t *state)
{
  *state += 0x9e3779b97f4a7c15u;
  uint64_t z = (*state ^ (*state >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static int below(uint64_t *state, int limit) { return (int)(next(state) % (uint64_t)limit); }

static step draw(uint64_t *state)
{
  static const weft_coll_kind kinds[] = {WEFT_ALL_REDUCE, WEFT_BROADCAST, WEFT_ALL_GATHER, WEFT_BARRIER,
                                         WEFT_SEND,       WEFT_SEND,      WEFT_SEND};
  step s = {.kind = kinds[below(state, (int)WEFT_COUNT(kinds))], .from = below(state, RANKS)};

  s.count = below(state, 3) ? 1 + below(state, 20) : 1 + below(state, MOST);
  s.to = (s.from + 1 + below(state, RANKS - 1)) % RANKS;
  return s;
}

static float element(int epoch, int i, int rank, int e) { return (float)(epoch * 7 + i * 31 + rank * 101 + e % 977); }

static weft_coll_op operation(player *p, const step *s, int i)
{
  weft_coll_op op = {
    .kind = s->kind, .dtype = WEFT_F32, .count = (size_t)s->count, .send = p->in[i], .recv = p->out[i]};

  if (s->kind == WEFT_ALL_REDUCE) op.reduction = WEFT_SUM;
  if (s->kind == WEFT_BROADCAST) op.root = s->from;
  if (s->kind == WEFT_BARRIER) op = (weft_coll_op){.kind = WEFT_BARRIER};
  if (s->kind != WEFT_SEND) return op;
  if (p->rank == s->to) op.kind = WEFT_RECV;
  op.peer = op.kind == WEFT_SEND ? s->to : s->from;
  op.tag = (uint64_t)i;
  return op;
}

static bool is_mine(const player *p, const step *s)
{
  return s->kind != WEFT_SEND || p->rank == s->from || p->rank == s->to;
}

static void check(const player *p, const step *s, int epoch, int i)
{
  const float *out = p->out[i];

  for (int e = 0; e < s->count; e++) {
    float sum = 0;
    for (int r = 0; r < RANKS; r++) sum += element(epoch, i, r, e);
    bool is_sum = s->kind == WEFT_ALL_REDUCE, is_all = s->kind == WEFT_ALL_GATHER;
    bool is_from = s->kind == WEFT_BROADCAST || (s->kind == WEFT_SEND && p->rank == s->to);
    if (is_sum) T_TRUE(out[e] == sum);
    if (is_from) T_TRUE(out[e] == element(epoch, i, s->from, e));
    for (int r = 0; is_all && r < RANKS; r++) T_TRUE(out[r * s->count + e] == element(epoch, i, r, e));
  }
}

static void note_end(void *ctx, weft_status *error)
{
  started *s = ctx;

  s->error = error;
  sem_post(&s->ended);
}

static void start_op(player *p, const step *s, int i)
{
  started *one = &p->started[i];
  weft_coll_op op = operation(p, s, i);
  weft_coll_patience patience = {below(&p->own, 2) * below(&p->own, 200000), NULL};

  one->waiter = (weft_coll_waiter){.fn = note_end, .ctx = one};
  sem_init(&one->ended, 0, 0);
  T_OK(weft_coll_start(p->comm, &op, 1, NULL, patience, &one->waiter, &one->pending));
}

static void wait_for(player *p, int i)
{
  weft_event *event = WEFT_MOVE(p->events[i]);

  if (p->started[i].pending) {
    while (sem_wait(&p->started[i].ended) != 0) T_EQ_INT(errno, EINTR);
    T_OK(p->started[i].error);
    p->started[i].pending = false;
  }
  if (!event) return;
  T_OK(below(&p->own, 2) ? weft_coll_wait(p->comm, event) : weft_event_await(event, WEFT_NO_DEADLINE));
  weft_event_release(event);
}

static void post(player *p, const step *s, int i)
{
  weft_coll_op op = operation(p, s, i);

  T_OK(weft_coll_post(p->comm, &op, NULL, &p->events[i]));
  p->left[i] = false;
}

/* A collective, in the order that all ranks have. */
static void begin_collective(player *p, const step *s, int i)
{
  if (below(&p->own, 2)) {
    weft_coll_op op = operation(p, s, i);
    T_OK(weft_coll_run(p->comm, &op, NULL));
    return;
  }
  if (below(&p->own, 2)) post(p, s, i);
  else start_op(p, s, i);
  if (below(&p->own, 3) == 0) wait_for(p, i);
}

/* A message may be posted at any time, but nobody waits for one before all have been posted. */
static void begin(player *p, const step *steps, int epoch, int i)
{
  const step *s = &steps[i];

  for (int e = 0; e < s->count; e++) p->in[i][e] = element(epoch, i, p->rank, e);
  if (below(&p->own, 4) == 0) usleep((useconds_t)below(&p->own, 2000));
  if (below(&p->own, 40) == 0) usleep(20000);
  p->left[i] = is_mine(p, s) && s->kind == WEFT_SEND && below(&p->own, 2);
  if (s->kind != WEFT_SEND) begin_collective(p, s, i);
  else if (is_mine(p, s) && !p->left[i]) post(p, s, i);
  for (int k = 0; k < i; k++)
    if (p->left[k] && below(&p->own, 4) == 0) post(p, &steps[k], k);
}

static void play_epoch(player *p, const step *steps, int epoch)
{
  int64_t began_ns = weft_now_ns();

  for (int i = 0; i < p->steps; i++) begin(p, steps, epoch, i);
  for (int i = p->steps - 1; i >= 0; i--)
    if (p->left[i]) post(p, &steps[i], i);
  for (int first = below(&p->own, p->steps), i = 0; i < p->steps; i++) wait_for(p, (first + i) % p->steps);
  for (int i = 0; i < p->steps; i++) check(p, &steps[i], epoch, i);
  int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
  if (took_ms > LATE_MS)
    fail_msg("rank %d, communicator %d, epoch %d: something was late: %lld ms", p->rank, p->number, epoch,
             (long long)took_ms);
}

typedef struct start { process *of; player *p; } start;

static void *play(void *arg)
{
  start *s = arg;
  uint64_t all = s->of->seed * 1000 + (uint64_t)s->p->number;

  s->p->own = all * 100 + (uint64_t)s->p->rank + 1;
  for (int epoch = 0; epoch < EPOCHS; epoch++) {
    step steps[STEPS];
    s->p->steps = 1 + below(&all, STEPS);
    for (int i = 0; i < s->p->steps; i++) steps[i] = draw(&all);
    play_epoch(s->p, steps, epoch);
  }
  return NULL;
}

static void make_communicators(process *me, weft_kv *kv)
{
  static const char *const names[COMMS] = {"one", "two"};
  int ranks[RANKS];
  weft_comm *comms[RANKS];

  for (int i = 0; i < me->each; i++) ranks[i] = me->first + i;
  for (int c = 0; c < me->comms; c++) {
    weft_comm_spec spec = {.kv = kv, .name = names[c], .size = RANKS, .ranks = ranks, .rank_count = me->each};
    T_OK(weft_comm_create(&spec, comms));
    for (int i = 0; i < me->each; i++) {
      player *p = &me->players[i * me->comms + c];
      p->rank = me->first + i;
      p->number = c;
      p->comm = comms[i];
    }
  }
}

/* A check that fails ends the process. */
static void be_process(process *me)
{
  pthread_t threads[RANKS * COMMS];
  start starts[RANKS * COMMS];
  WEFT_AUTO(weft_kv) kv = NULL;

  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("CMOCKA_TEST_ABORT", "1", 1);
  alarm(LIMIT_S);
  T_OK(weft_kv_file_new(me->directory, &kv));
  me->players = calloc((size_t)(me->each * me->comms), sizeof *me->players);
  assert_non_null(me->players);
  make_communicators(me, kv);
  for (int i = 0; i < me->each * me->comms; i++) {
    starts[i] = (start){me, &me->players[i]};
    pthread_create(&threads[i], NULL, play, &starts[i]);
  }
  for (int i = 0; i < me->each * me->comms; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < me->each * me->comms; i++) weft_comm_destroy(me->players[i].comm);
  free(me->players);
}

static void play_seed(uint64_t seed, int each)
{
  char directory[] = "/tmp/weft-mixed-XXXXXX", command[64];
  pid_t children[RANKS];
  bool failed = false;

  assert_non_null(mkdtemp(directory));
  fflush(stdout);
  for (int p = 0; p < RANKS / each; p++) {
    children[p] = fork();
    assert_true(children[p] >= 0);
    if (children[p] > 0) continue;
    process me = {.first = p * each, .each = each, .directory = directory, .seed = seed, .comms = 1 + (int)(seed % COMMS)};
    be_process(&me);
    exit(0);
  }
  for (int p = 0; p < RANKS / each; p++) {
    int status = 0;
    waitpid(children[p], &status, 0);
    failed |= status != 0;
  }
  snprintf(command, sizeof command, "rm -rf %s", directory);
  assert_int_equal(system(command), 0);
  if (failed) fail_msg("seed %llu, %d ranks a process", (unsigned long long)seed, each);
}

static void play_over(const char *transport)
{
  const char *set = getenv("WEFT_TEST_SEED"), *seconds = getenv("WEFT_TEST_SECONDS");
  int64_t until_ns = weft_now_ns() + (seconds ? atoi(seconds) : 0) * WEFT_NS_PER_S;
  uint64_t seed = set ? strtoull(set, NULL, 10) : 1;
  int played = 0;

  setenv("WEFT_COLLECTIVE_TRANSPORT", transport, 1);
  for (int n = 0; n < SEEDS || weft_now_ns() < until_ns; n++, seed++)
    for (int each = 1; each <= RANKS; each *= 2, played++) play_seed(seed, each);
  print_message("# %s: %d programs\n", transport, played);
}

TEST(all_ways_to_wait_over_shared_memory) { play_over("shm"); }
TEST(all_ways_to_wait_over_libfabric)
{
  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  play_over("fabric");
}

TEST_MAIN(UNIT(all_ways_to_wait_over_shared_memory), UNIT(all_ways_to_wait_over_libfabric))
