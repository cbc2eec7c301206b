/* tests/collective/mixed_test.c -- every way to wait, at the same time: random programs of collectives and messages, in
 * which each rank chooses by itself what it waits for in the call, what it posts, when, and how it waits for that.
 *
 * Each rank has a thread for each of one or two communicators; all threads of a process share one progress thread.  No
 * operation has a deadline or a warning that comes soon, so an operation that nobody drives is late.
 *
 *   WEFT_TEST_SEED=n     the first seed (1)
 *   WEFT_TEST_SEEDS=n    how many
 *   WEFT_TEST_SECONDS=n  goes on for so long */
#include "mixed.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>

#include "base/kv.h"
#include "collective/host/host.h"

enum { RANKS = 4, COMMS = 2, STEPS = 12, EPOCHS = 24, MOST = 3000, LATE_MS = 10000, LIMIT_S = 100, SEEDS = 2 };

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

static mixed_step draw(uint64_t *state)
{
  static const weft_coll_kind kinds[] = {WEFT_ALL_REDUCE, WEFT_BROADCAST, WEFT_ALL_GATHER, WEFT_BARRIER,
                                         WEFT_SEND,       WEFT_SEND,      WEFT_SEND};

  return mixed_draw(state, kinds, WEFT_COUNT(kinds), RANKS, MOST);
}

static weft_coll_op operation(player *p, const mixed_step *s, int i)
{
  return mixed_operation(s, i, p->rank, RANKS, p->in[i], p->out[i]);
}

static void note_end(void *ctx, weft_status *error)
{
  started *s = ctx;

  s->error = error;
  sem_post(&s->ended);
}

static void start_op(player *p, const mixed_step *s, int i)
{
  started *one = &p->started[i];
  weft_coll_op op = operation(p, s, i);
  weft_coll_patience patience = {mixed_below(&p->own, 2) * mixed_below(&p->own, 200000), NULL};

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
  T_OK(mixed_below(&p->own, 2) ? weft_coll_wait(p->comm, event) : weft_event_await(event, WEFT_NO_DEADLINE));
  weft_event_release(event);
}

static void post(player *p, const mixed_step *s, int i)
{
  weft_coll_op op = operation(p, s, i);

  T_OK(weft_coll_post(p->comm, &op, NULL, &p->events[i]));
  p->left[i] = false;
}

/* A collective, in the order that all ranks have. */
static void begin_collective(player *p, const mixed_step *s, int i)
{
  if (mixed_below(&p->own, 2)) {
    weft_coll_op op = operation(p, s, i);
    T_OK(weft_coll_run(p->comm, &op, NULL));
    return;
  }
  if (mixed_below(&p->own, 2)) post(p, s, i);
  else start_op(p, s, i);
  if (mixed_below(&p->own, 3) == 0) wait_for(p, i);
}

/* A message may be posted at any time, but nobody waits for one before all have been posted. */
static void begin(player *p, const mixed_step *steps, int epoch, int i)
{
  const mixed_step *s = &steps[i];

  for (int e = 0; e < s->count; e++) p->in[i][e] = mixed_element(epoch, i, p->rank, e);
  if (mixed_below(&p->own, 4) == 0) usleep((useconds_t)mixed_below(&p->own, 2000));
  if (mixed_below(&p->own, 40) == 0) usleep(20000);
  p->left[i] = mixed_takes_part(s, p->rank) && s->kind == WEFT_SEND && mixed_below(&p->own, 2);
  if (s->kind != WEFT_SEND) begin_collective(p, s, i);
  else if (mixed_takes_part(s, p->rank) && !p->left[i]) post(p, s, i);
  for (int k = 0; k < i; k++)
    if (p->left[k] && mixed_below(&p->own, 4) == 0) post(p, &steps[k], k);
}

static void play_epoch(player *p, const mixed_step *steps, int epoch)
{
  int64_t began_ns = weft_now_ns();

  for (int i = 0; i < p->steps; i++) begin(p, steps, epoch, i);
  for (int i = p->steps - 1; i >= 0; i--)
    if (p->left[i]) post(p, &steps[i], i);
  for (int first = mixed_below(&p->own, p->steps), i = 0; i < p->steps; i++) wait_for(p, (first + i) % p->steps);
  for (int i = 0; i < p->steps; i++) T_EQ_INT(mixed_wrong(&steps[i], epoch, i, p->rank, RANKS, p->out[i]), -1);
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
    mixed_step steps[STEPS];
    s->p->steps = 1 + mixed_below(&all, STEPS);
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

static void be_process(void *arg)
{
  process *me = arg;
  pthread_t threads[RANKS * COMMS];
  start starts[RANKS * COMMS];
  WEFT_AUTO(weft_kv) kv = NULL;

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

static void play_with(uint64_t seed, int each)
{
  char directory[] = "/tmp/weft-mixed-XXXXXX", command[64];
  pid_t children[RANKS];
  bool failed = false;

  assert_non_null(mkdtemp(directory));
  for (int p = 0; p < RANKS / each; p++) {
    process me = {.first = p * each, .each = each, .directory = directory, .seed = seed, .comms = 1 + (int)(seed % COMMS)};
    children[p] = mixed_fork(be_process, &me, LIMIT_S);
  }
  for (int p = 0; p < RANKS / each; p++) failed |= !mixed_join(children[p]);
  snprintf(command, sizeof command, "rm -rf %s", directory);
  assert_int_equal(system(command), 0);
  if (failed) fail_msg("seed %llu, %d ranks a process", (unsigned long long)seed, each);
}

static void play_seed(uint64_t seed)
{
  for (int each = 1; each <= RANKS; each *= 2) play_with(seed, each);
}

static void play_over(const char *transport)
{
  setenv("WEFT_COLLECTIVE_TRANSPORT", transport, 1);
  print_message("# %s: %d seeds\n", transport, mixed_play(SEEDS, play_seed));
}

TEST(all_ways_to_wait_over_shared_memory) { play_over("shm"); }
TEST(all_ways_to_wait_over_libfabric)
{
  if (getenv("WEFT_TEST_NO_FABRIC")) T_SKIP("no libfabric here");
  play_over("fabric");
}

TEST_MAIN(UNIT(all_ways_to_wait_over_shared_memory), UNIT(all_ways_to_wait_over_libfabric))
