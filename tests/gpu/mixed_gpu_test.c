/* tests/gpu/mixed_gpu_test.c -- every way to wait for collectives of emulated GPUs at the same time, with a fault now
 * and then: random programs of several cliques, which overlap, are made anew or split off the one of all devices, and
 * of launches of compiled programs, with and without graphs, on the same devices.
 *
 * Each rank of a clique has a thread, which chooses by itself what it waits for in the call, what it posts, when,
 * behind which stream, and how it waits for that. A clique may have a fault in an epoch: its operations end with the
 * right data or with an error that the fault allows, within the deadline and a second. All others must end well and
 * soon. After each epoch what has failed is made anew, and the other communicators go on.
 *
 *   WEFT_TEST_SEED=n     the first seed (1)
 *   WEFT_TEST_SEEDS=n    how many
 *   WEFT_TEST_SECONDS=n  goes on for so long
 *   WEFT_TEST_VERBOSE=1  says what is played */
#define ON_GPUS
#include "collective/mixed.h"
#include "collective/world.h"

#include <semaphore.h>
#include <stdatomic.h>

#include "hlo/text.h"

enum { CLIQUES = 4, MOST_SIZE = 4, STEPS = 8, EPOCHS = 3, MOST = 400, SEEDS = 8, LIMIT_S = 240 };
enum { LONG_MS = 30000, PAST_MS = 1000, SLACK_MS = 2900, HANGS_MS = 60000 };

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* What moves the data: peers, NCCL, or both, between devices of a process; NCCL between ranks that meet in a store. */
typedef enum by { PEERS, NCCL, BOTH, NCCL_OF_PROCESSES, BYS } by;
static const char *const by_settings[BYS] = {"peers", "nccl", "auto", "nccl"};

typedef enum what { NONE, ABSENT, LATE, DISAGREES, ABORTS, LEAVES, DIES, SILENT, ASYNC, POLLS, UNCONNECTED, WHATS } what;

static const struct {
  const char *name;
  unsigned by;          /* bits */
  bool needs_deadline;  /* it is the deadline that ends operations */
  bool in_links;
  weft_code code;       /* of its operations, beside those of all failures; WEFT_OK: all end well */
} faults[WHATS] = {
  [NONE] = {"nothing", 15, false, true, WEFT_OK},
  [ABSENT] = {"a rank stops posting", 15, true, true, WEFT_DEADLINE_EXCEEDED},
  [LATE] = {"a rank is later than the deadline", 15, true, true, WEFT_DEADLINE_EXCEEDED},
  [DISAGREES] = {"a rank disagrees", 15, false, false, WEFT_FAILED_PRECONDITION},
  [ABORTS] = {"another thread aborts", 15, false, true, WEFT_ABORTED},
  [LEAVES] = {"a rank leaves", 15, false, true, WEFT_CANCELLED},
  [DIES] = {"an incarnation dies", 8, false, true, WEFT_FAILED_PRECONDITION},
  [SILENT] = {"a device hangs", 10, true, true, WEFT_DEADLINE_EXCEEDED},
  [ASYNC] = {"an error of the library", 10, false, true, WEFT_UNAVAILABLE},
  [POLLS] = {"calls that are in progress", 14, false, true, WEFT_OK},
  [UNCONNECTED] = {"a rank that does not connect", 14, true, true, WEFT_DEADLINE_EXCEEDED},
};

/* What may happen to calls of the driver and of the library, in all cliques. */
static const struct { const char *call; bool fails; } call_faults[] = {
  {"cuLaunchKernel:%d=stall:80ms", false}, {"cuLaunchKernel:%d=delay:60ms", false}, {"cuStreamWaitEvent:%d=delay:40ms", false},
  {"ncclAllReduce:%d=delay:90ms", false},  {"ncclGroupEnd:%d=delay:70ms", false},   {"cuEventQuery:%d=delay:30ms", false},
  {"ncclAllReduce:%d=3", true},            {"ncclAllGather:%d=2", true},            {"ncclSend:%d=3", true},
  {"ncclGroupEnd:%d=2", true},             {"ncclBroadcast:%d=6", true},
};

/* ---- what is played ---------------------------------------------------------------------------------------------- */

typedef struct clique clique;

/* An operation of a rank. */
typedef struct act {
  weft_event *event;
  weft_coll_waiter waiter;
  sem_t ended;            /* of the waiter */
  weft_coll_op op;        /* with arrays on the device */
  gpu_operands staged;
  bool started, posted, streamed, has_end;
  weft_status *end;       /* once has_end */
  int64_t posted_ns;
  _Atomic int64_t ended_ns;
} act;

/* One rank of a clique, with a thread of its own. */
typedef struct player {
  clique *of;
  int rank, epoch;
  uint64_t own;           /* state of the rank's own random numbers */
  weft_comm *comm;        /* NULL: the rank has left */
  bool gone;              /* the rank posts nothing more */
  float in[STEPS][MOST * MOST_SIZE], out[STEPS][MOST * MOST_SIZE];
  act acts[STEPS];
} player;

struct clique {
  int number, size, steps;
  bool is_link;           /* sends from rank 0 to rank 1, by NCCL */
  bool of_whole;          /* it may be split off clique 0 */
  int64_t devices[MOST_SIZE];
  int in_whole[MOST_SIZE]; /* the ranks' ranks in clique 0 */
  weft_kv *kv;
  weft_comm *comms[MOST_SIZE]; /* NULL: to be made */
  player *players;        /* [size] */
  mixed_step program[STEPS];
  /* of the epoch: */
  what what;
  int victim, at, after_ms;
  int64_t deadline_ms;
  bool may_fail;          /* a call of somebody fails */
  bool dies;              /* with another clique's incarnation, which a part has from its whole */
};

typedef struct play {
  uint64_t seed, state;
  by by;
  int count, epoch;
  clique cliques[CLIQUES];
  char call_fault[64];
  bool call_fails, verbose;
  struct programs *programs; /* NULL: none */
} play;

static void (*emu_faults)(const char *);

static bool is_of(by by, unsigned bits) { return (bits >> by & 1) != 0; }

/* What the library is to do wrong in communicators that are made from now on. */
static void inject_nccl(const char *nccl)
{
  if (nccl) setenv("WEFT_EMU_NCCL", nccl, 1);
  else unsetenv("WEFT_EMU_NCCL");
}

/* ---- making communicators ---------------------------------------------------------------------------------------- */

static weft_comm_spec spec_of(const clique *c, const char *name, weft_deadline deadline)
{
  weft_comm_spec spec = {.kv = c->kv, .name = name, .size = c->size, .device_ids = c->devices, .deadline = deadline};

  gpus_bring(&spec);
  return spec;
}

static weft_status *first_error(weft_status *first, weft_status *st)
{
  if (!first) return st;
  weft_status_free(st);
  return first;
}

/* Ranks that meet in a store: a thread for each. */
static weft_status *make_of_processes(clique *c, const char *name, weft_deadline deadline)
{
  pthread_t threads[MOST_SIZE];
  creation creations[MOST_SIZE];
  weft_status *st = NULL;

  for (int r = 0; r < c->size; r++) {
    creations[r] = (creation){.rank = r, .spec = spec_of(c, name, deadline)};
    creations[r].spec.rank_count = 1;
    pthread_create(&threads[r], NULL, create_one, &creations[r]);
  }
  for (int r = 0; r < c->size; r++) {
    pthread_join(threads[r], NULL);
    c->comms[r] = creations[r].comm;
    st = first_error(st, creations[r].st);
  }
  return st;
}

typedef struct splitting {
  weft_comm *whole, *part;
  int color, key;
  weft_deadline deadline;
  weft_status *st;
} splitting;

static void *split_one(void *arg)
{
  splitting *s = arg;

  s->st = weft_comm_split(&s->whole, 1, &s->color, &s->key, s->deadline, &s->part);
  return NULL;
}

/* Splits the clique off the one of all devices, all of whose ranks take part. */
static weft_status *make_of_whole(play *p, clique *c, weft_deadline deadline)
{
  const clique *whole = &p->cliques[0];
  splitting all[MOST_SIZE];
  pthread_t threads[MOST_SIZE];
  weft_comm *parts[MOST_SIZE];
  int colors[MOST_SIZE], keys[MOST_SIZE];
  weft_status *st = NULL;

  for (int w = 0; w < whole->size; w++) colors[w] = keys[w] = -1;
  for (int r = 0; r < c->size; r++) colors[c->in_whole[r]] = 0, keys[c->in_whole[r]] = r;
  if (p->by != NCCL_OF_PROCESSES) {
    st = weft_comm_split(whole->comms, whole->size, colors, keys, deadline, parts);
    for (int r = 0; r < c->size && !st; r++) c->comms[r] = parts[c->in_whole[r]];
    return st;
  }
  for (int w = 0; w < whole->size; w++) {
    all[w] = (splitting){.whole = whole->comms[w], .color = colors[w], .key = keys[w], .deadline = deadline};
    pthread_create(&threads[w], NULL, split_one, &all[w]);
  }
  for (int w = 0; w < whole->size; w++) {
    pthread_join(threads[w], NULL);
    st = first_error(st, all[w].st);
    for (int r = 0; r < c->size; r++)
      if (c->in_whole[r] == w) c->comms[r] = all[w].part;
  }
  return st;
}

static weft_status *make(play *p, clique *c, weft_deadline deadline)
{
  static int number;
  char name[32];
  int ranks[MOST_SIZE];

  snprintf(name, sizeof name, "clique%d.%d", c->number, number++);
  if (c->of_whole && c->what != UNCONNECTED && mixed_below(&p->state, 2)) return make_of_whole(p, c, deadline);
  if (p->by == NCCL_OF_PROCESSES) return make_of_processes(c, name, deadline);
  weft_comm_spec spec = spec_of(c, name, deadline);
  for (int r = 0; r < c->size; r++) ranks[r] = r;
  spec.ranks = ranks;
  spec.rank_count = c->size;
  spec.kv = NULL;
  return weft_comm_create(&spec, c->comms);
}

static void *destroy_one(void *comm)
{
  weft_comm_destroy(comm);
  return NULL;
}

/* All ranks at the same time, as the processes of a job would. */
static void unmake(clique *c)
{
  pthread_t threads[MOST_SIZE];

  for (int r = 0; r < c->size; r++) pthread_create(&threads[r], NULL, destroy_one, WEFT_MOVE(c->comms[r]));
  for (int r = 0; r < c->size; r++) pthread_join(threads[r], NULL);
}

/* A communicator that is not made within its deadline says so within a second. */
static void fail_to_make(play *p, clique *c)
{
  int64_t began_ns = weft_now_ns();
  weft_status *st = make(p, c, weft_deadline_after_ms(c->deadline_ms));
  int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;

  if (weft_status_code(st) != WEFT_DEADLINE_EXCEEDED && weft_status_code(st) != WEFT_FAILED_PRECONDITION &&
      weft_status_code(st) != WEFT_ABORTED)
    fail_msg("clique %d is made although a rank is absent: %s", c->number, st ? weft_status_text(st, true) : "OK");
  if (took_ms > c->deadline_ms + PAST_MS + SLACK_MS)
    fail_msg("clique %d is not made for %lld ms", c->number, (long long)took_ms);
  weft_status_free(st);
  unmake(c);
}

/* Makes the communicators of the epoch. What the library is to do wrong is set while a clique is made. */
static void make_all(play *p)
{
  for (int i = 0; i < p->count; i++) {
    clique *c = &p->cliques[i];
    char nccl[64] = "";
    if (c->what == SILENT) snprintf(nccl, sizeof nccl, "silent:%d@%d", c->victim, 1 + c->at);
    if (c->what == ASYNC) snprintf(nccl, sizeof nccl, "async:%d@%d=6", c->victim, 1 + c->at);
    if (c->what == POLLS) snprintf(nccl, sizeof nccl, "polls:%d", 1 + c->at);
    if (c->what == UNCONNECTED) snprintf(nccl, sizeof nccl, "absent:%d", c->victim);
    if (*nccl) {
      unmake(c);
      inject_nccl(nccl);
    }
    if (c->what == UNCONNECTED) {
      fail_to_make(p, c);
      inject_nccl(NULL);
      c->what = NONE;
      c->deadline_ms = LONG_MS;
    }
    if (!c->comms[0]) T_OK(make(p, c, weft_deadline_after_ms(LONG_MS)));
    if (*nccl) inject_nccl(NULL);
  }
}

static bool has_incarnation(const clique *c, uint64_t incarnation)
{
  bool has = false;

  for (int r = 0; r < c->size; r++) has |= weft_comm_incarnation(c->comms[0], r) == incarnation;
  return has;
}

/* A part has the incarnations of its whole. */
static void spread_deaths(play *p)
{
  for (int i = 0; i < p->count; i++) {
    const clique *dead = &p->cliques[i];
    if (dead->what != DIES) continue;
    uint64_t incarnation = weft_comm_incarnation(dead->comms[0], dead->victim);
    for (int k = 0; k < p->count; k++) p->cliques[k].dies |= has_incarnation(&p->cliques[k], incarnation);
  }
}

/* ---- a rank ------------------------------------------------------------------------------------------------------ */

static const mixed_step *step_of(const player *p, int i) { return &p->of->program[i]; }

/* Arrays on the device; those of an operation behind a stream get their data there. */
static void stage(player *p)
{
  static float nothing[MOST * MOST_SIZE];

  for (int i = 0; i < p->of->steps; i++) {
    const mixed_step *s = step_of(p, i);
    act *a = &p->acts[i];
    *a = (act){0};
    if (!mixed_takes_part(s, p->rank)) continue;
    for (int e = 0; e < mixed_given(s, p->of->size); e++) p->in[i][e] = mixed_element(p->epoch, i, p->rank, e);
    for (int e = 0; e < MOST * MOST_SIZE; e++) p->out[i][e] = -1;
    a->streamed = mixed_below(&p->own, 3) == 0;
    weft_coll_op op = mixed_operation(s, i, p->rank, p->of->size, a->streamed ? nothing : p->in[i], p->out[i]);
    if (op.kind == WEFT_RECV) op.send = NULL;
    if (op.kind == WEFT_SEND || (op.kind == WEFT_REDUCE && op.root != p->rank)) op.recv = NULL;
    if (p->of->what == DISAGREES && p->rank == p->of->victim && i == p->of->at && op.count > 1) op.count--;
    a->op = gpus_stage(p->comm, &op, &a->staged);
  }
}

static void note_time(void *ctx, const weft_status *error)
{
  (void)error;
  atomic_store(&((act *)ctx)->ended_ns, weft_now_ns());
}

static void note_end(void *ctx, weft_status *error)
{
  act *a = ctx;

  a->end = error;
  note_time(a, NULL);
  sem_post(&a->ended);
}

static void has_ended(act *a, weft_status *st)
{
  a->end = st;
  a->has_end = true;
  if (!atomic_load(&a->ended_ns)) note_time(a, NULL);
}

static weft_coll_call call_of(player *p, act *a, int i)
{
  weft_coll_call call = {.deadline = weft_deadline_after_ms(p->of->deadline_ms), .together = p->of->is_link};
  weft_device *device = a->staged.device;

  a->posted = true;
  a->posted_ns = weft_now_ns();
  if (!a->streamed) return call;
  weft_stream *stream = weft_device_stream(device, WEFT_STREAM_COMPUTE);
  if (a->op.send) T_OK(weft_device_write(device, stream, a->staged.block[0], p->in[i], a->staged.bytes[0]));
  call.stream = stream;
  return call;
}

static void run_op(player *p, int i)
{
  act *a = &p->acts[i];
  weft_coll_call call = call_of(p, a, i);

  has_ended(a, weft_coll_run(p->comm, &a->op, &call));
}

static void post_op(player *p, int i)
{
  act *a = &p->acts[i];
  weft_coll_call call = call_of(p, a, i);
  weft_status *st = weft_coll_post(p->comm, &a->op, &call, &a->event);

  if (st) has_ended(a, st);
  else T_OK(weft_event_on_ready(a->event, note_time, a));
}

static void start_op(player *p, int i)
{
  act *a = &p->acts[i];
  weft_coll_call call = call_of(p, a, i);
  weft_coll_patience patience = {mixed_below(&p->own, 2) * mixed_below(&p->own, 200000), NULL};

  a->waiter = (weft_coll_waiter){.fn = note_end, .ctx = a};
  sem_init(&a->ended, 0, 0);
  weft_status *st = weft_coll_start(p->comm, &a->op, 1, &call, patience, &a->waiter, &a->started);
  if (!a->started) has_ended(a, st);
}

static void hangs(const player *p, int i)
{
  const clique *c = p->of;

  fail_msg("clique %d (%s), epoch %d, rank %d: step %d, %s, has not ended after %d ms", c->number, faults[c->what].name,
           p->epoch, p->rank, i, weft_coll_kind_name(step_of(p, i)->kind), HANGS_MS);
}

static void wait_for(player *p, int i)
{
  act *a = &p->acts[i];

  if (a->started) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANGS_MS / 1000;
    if (sem_timedwait(&a->ended, &until)) hangs(p, i);
    a->started = false;
    has_ended(a, a->end);
  }
  if (!a->event) return;
  if (p->comm && mixed_below(&p->own, 2)) {
    has_ended(a, weft_coll_wait(p->comm, a->event));
  } else {
    weft_status *st = weft_event_await(a->event, weft_deadline_after_ms(HANGS_MS));
    if (!weft_event_is_ready(a->event)) hangs(p, i);
    has_ended(a, st);
  }
  weft_event_release(WEFT_MOVE(a->event));
}

/* The rank does what its clique's fault wants of it. */
static void err(player *p, int i)
{
  clique *c = p->of;

  if (p->rank != c->victim || i != c->at) return;
  if (c->what == ABSENT) p->gone = true;
  if (c->what == LATE) usleep((useconds_t)(c->deadline_ms + 300) * 1000);
  if (c->what != LEAVES) return;
  weft_comm_destroy(WEFT_MOVE(p->comm));
  c->comms[p->rank] = NULL;
  p->gone = true;
}

/* Nobody waits for a message before all have been posted, which other messages of a link may have to join. */
static void begin(player *p, int i)
{
  bool is_message = step_of(p, i)->kind == WEFT_SEND;

  if (mixed_below(&p->own, 4) == 0) usleep((useconds_t)mixed_below(&p->own, 3000));
  if (mixed_below(&p->own, 30) == 0) usleep(20000);
  err(p, i);
  if (p->gone || !mixed_takes_part(step_of(p, i), p->rank)) return;
  if (!is_message && mixed_below(&p->own, 3) == 0) {
    run_op(p, i);
    return;
  }
  if (mixed_below(&p->own, 2)) post_op(p, i);
  else start_op(p, i);
  if (!is_message && mixed_below(&p->own, 3) == 0) wait_for(p, i);
}

static void *play_rank(void *arg)
{
  player *p = arg;
  int steps = p->of->steps;

  for (int i = 0; i < steps; i++) begin(p, i);
  for (int first = mixed_below(&p->own, steps), i = 0; i < steps; i++) wait_for(p, (first + i) % steps);
  return NULL;
}

static void *strike(void *arg)
{
  clique *c = arg;
  weft_comm *comm = c->comms[c->victim];

  usleep((useconds_t)c->after_ms * 1000);
  if (c->what == ABORTS) weft_comm_abort(comm, WEFT_ERR(ABORTED, "lost patience"));
  else weft_coll_incarnation_died(weft_comm_incarnation(comm, c->victim), "heartbeats stopped");
  return NULL;
}

/* ---- judging ----------------------------------------------------------------------------------------------------- */

static bool may_end_with(const clique *c, weft_code code)
{
  if (code == WEFT_OK) return true;
  if (c->may_fail && (code == WEFT_INTERNAL || code == WEFT_UNAVAILABLE)) return true;
  if (!c->may_fail && !c->dies && faults[c->what].code == WEFT_OK) return false;
  return code == WEFT_ABORTED || code == WEFT_FAILED_PRECONDITION || code == faults[c->what].code;
}

static void wrong(const player *p, int i, const char *text)
{
  const clique *c = p->of;
  const act *a = &p->acts[i];

  fail_msg(
    "clique %d of %d%s (%s: rank %d, step %d%s), epoch %d, rank %d, step %d, %s of %d, after %lld of %lld ms: %s: %s",
    c->number, c->size, c->is_link ? ", a link" : "", faults[c->what].name, c->victim, c->at,
    c->may_fail ? ", a call fails" : "", p->epoch, p->rank, i, weft_coll_kind_name(step_of(p, i)->kind),
    step_of(p, i)->count, (long long)((atomic_load(&a->ended_ns) - a->posted_ns) / WEFT_NS_PER_MS),
    (long long)c->deadline_ms, text, a->end ? weft_status_text(a->end, true) : "OK");
}

static void judge(player *p)
{
  bool failed = false;

  for (int i = 0; i < p->of->steps; i++) {
    act *a = &p->acts[i];
    const mixed_step *s = step_of(p, i);
    if (!mixed_takes_part(s, p->rank)) continue;
    gpus_unstage(&a->staged);
    if (!a->posted) continue;
    int64_t took_ms = (atomic_load(&a->ended_ns) - a->posted_ns) / WEFT_NS_PER_MS;
    if (!a->has_end) wrong(p, i, "has no end");
    if (!may_end_with(p->of, weft_status_code(a->end))) wrong(p, i, "another code");
    if (took_ms > p->of->deadline_ms + PAST_MS + SLACK_MS) wrong(p, i, "late");
    if (a->end && s->kind != WEFT_SEND) failed = true;
    if (!a->end && failed && s->kind != WEFT_SEND) wrong(p, i, "ends well behind one that has failed");
    if (!a->end && p->of->what == ABSENT && i >= p->of->at && s->kind != WEFT_SEND)
      wrong(p, i, "ends well without a rank");
    int at = a->end ? -1 : mixed_wrong(s, p->epoch, i, p->rank, p->of->size, p->out[i]);
    if (at >= 0) wrong(p, i, "wrong data");
  }
}

/* Whether the communicator failed, and then why; an operation that failed must have made it fail. */
static bool has_failed(clique *c)
{
  bool failed = false;

  for (int r = 0; r < c->size; r++) {
    weft_status *st = c->comms[r] ? weft_comm_health(c->comms[r]) : WEFT_ERR(CANCELLED, "the rank has left");
    failed |= st != NULL;
    for (int i = 0; i < c->steps; i++)
      if (!st && c->players[r].acts[i].end) wrong(&c->players[r], i, "failed, and the communicator did not");
    if (st && c->what == NONE && !c->may_fail && !c->dies)
      fail_msg("clique %d has failed without a fault: %s", c->number, weft_status_text(st, true));
    weft_status_free(st);
  }
  return failed;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

enum { EXES = 2, PROGRAM_DEVICES = 4, PROGRAM_FLOATS = 32, LAUNCHES = 4, HASTY_MS = 600 };

/* A program whose result is the same in each launch. */
typedef struct exe {
  weft_executable *patient, *hasty; /* by the deadline of its collectives */
  float want[PROGRAM_DEVICES][PROGRAM_FLOATS];
  char text[4000];
} exe;

/* What a device gets as its input in the second launch of an epoch. */
typedef enum input { INPUT, NO_INPUT, INPUT_ERROR, INPUTS } input;

typedef struct programs {
  uint64_t own;
  int64_t launch;
  input input;
  bool may_fail;
  exe exes[EXES];
} programs;

static const char *const program_lines[] = {
  "f32[4,8] all-reduce(%s), replica_groups={}, to_apply=f",
  "f32[4,8] all-reduce(%s), replica_groups={{0,1},{2,3}}, to_apply=f",
  "f32[4,8] all-reduce(%s), replica_groups={{3,0},{1,2}}, to_apply=f",
  "f32[4,8] collective-permute(%s), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}",
  "f32[4,8] all-to-all(%s), replica_groups={}, dimensions={0}",
  "f32[4,8] add(%s, x)",
  "f32[4,8] negate(%s)",
};

/* A chain of some of these lines, and a loop of three rounds around half of them. */
static void write_program(uint64_t *state, char *text, size_t size)
{
  char lines[2][900] = {"", ""};
  int used[2] = {0, 0};

  for (int part = 0; part < 2; part++) {
    char last[8] = "x";
    for (int n = 2 + mixed_below(state, 3), i = 0; i < n; i++) {
      char name[8], line[160];
      snprintf(name, sizeof name, "v%d", i);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      snprintf(line, sizeof line, program_lines[mixed_below(state, (int)WEFT_COUNT(program_lines))], last);
#pragma GCC diagnostic pop
      used[part] +=
        snprintf(lines[part] + used[part], sizeof lines[part] - (size_t)used[part], "  %s = %s\n", name, line);
      memcpy(last, name, sizeof last);
    }
    /* values stay small, so that sums are exact */
    snprintf(lines[part] + used[part], sizeof lines[part] - (size_t)used[part],
             "  h = f32[] constant(0.25)\n"
             "  hb = f32[4,8] broadcast(h), dimensions={}\n"
             "  m = f32[4,8] multiply(%s, hb)\n"
             "  y = f32[4,8] floor(m)\n",
             last);
  }
  snprintf(text, size,
           "HloModule m, replica_count=%d\n"
           "f {\n"
           "  a = f32[] parameter(0)\n"
           "  b = f32[] parameter(1)\n"
           "  ROOT r = f32[] add(a, b)\n"
           "}\n"
           "body {\n"
           "  s = (s32[], f32[4,8]) parameter(0)\n"
           "  i = s32[] get-tuple-element(s), index=0\n"
           "  x = f32[4,8] get-tuple-element(s), index=1\n"
           "  one = s32[] constant(1)\n"
           "  j = s32[] add(i, one)\n"
           "%s"
           "  ROOT t = (s32[], f32[4,8]) tuple(j, y)\n"
           "}\n"
           "cond {\n"
           "  s = (s32[], f32[4,8]) parameter(0)\n"
           "  i = s32[] get-tuple-element(s), index=0\n"
           "  n = s32[] constant(%d)\n"
           "  ROOT c = pred[] compare(i, n), direction=LT\n"
           "}\n"
           "ENTRY e {\n"
           "  x = f32[4,8] parameter(0)\n"
           "%s"
           "  zero = s32[] constant(0)\n"
           "  s = (s32[], f32[4,8]) tuple(zero, y)\n"
           "  w = (s32[], f32[4,8]) while(s), condition=cond, body=body\n"
           "  ROOT r = f32[4,8] get-tuple-element(w), index=1\n"
           "}\n",
           PROGRAM_DEVICES, lines[0], 1 + mixed_below(state, 4), lines[1]);
}

static weft_executable *compile_program(weft_platform *platform, const char *text, uint32_t kinds, int64_t timeout_ms)
{
  weft_compile_options options = {.order = BUF_TOPOLOGICAL, .graph_kinds = kinds, .graph_least = 2,
                                  .collective_timeout_ns = timeout_ms * WEFT_NS_PER_MS};
  hlo_module *module;
  weft_executable *made;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(platform, module, &options, &made));
  return made;
}

typedef struct launched {
  exe *exe;
  weft_buffer *in[PROGRAM_DEVICES], *out[PROGRAM_DEVICES];
  weft_event *late; /* of an input that comes when the launch is over */
  bool faulty;
  int64_t began_ns;
} launched;

static weft_buffer *make_input(weft_device *device, int d, weft_event *defined)
{
  weft_array_type type = {.type = WEFT_F32, .rank = 2, .dims = {4, 8}};
  float values[PROGRAM_FLOATS];
  weft_buffer *buffer;
  weft_storage *storage;

  for (int e = 0; e < PROGRAM_FLOATS; e++) values[e] = (float)(d * 3 + e % 7);
  if (!defined) {
    T_OK(weft_buffer_from_host(device, &type, values, &buffer));
    return buffer;
  }
  T_OK(rt_storage_new(device, 0, sizeof values, RT_ANYONE, &storage));
  T_OK(weft_device_write(device, NULL, storage->data, values, sizeof values));
  T_OK(weft_buffer_new(device, &type, storage, defined, &buffer));
  weft_storage_release(storage);
  return buffer;
}

static void launch_program(weft_executable *which, int64_t id, launched *l)
{
  weft_buffer *const *ins[PROGRAM_DEVICES];
  weft_buffer **outs[PROGRAM_DEVICES];

  for (int d = 0; d < PROGRAM_DEVICES; d++) {
    l->in[d] = make_input(weft_executable_device(which, d), d, d == 2 ? l->late : NULL);
    ins[d] = &l->in[d];
    outs[d] = &l->out[d];
  }
  l->began_ns = weft_now_ns();
  T_OK(weft_executable_launch(which, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = id}));
}

/* The results, or errors that a fault allows. */
static void read_results(const programs *p, launched *l, bool may_fail)
{
  for (int d = 0; d < PROGRAM_DEVICES; d++) {
    float got[PROGRAM_FLOATS] = {0};
    int64_t read_ns = weft_now_ns();
    weft_status *st = weft_buffer_to_host(l->out[d], got, weft_deadline_after_ms(HANGS_MS));
    if (weft_now_ns() - read_ns > (HANGS_MS - 1) * WEFT_NS_PER_MS)
      fail_msg("program, launch %lld, device %d has no end\n%s", (long long)p->launch, d, l->exe->text);
    weft_code code = weft_status_code(st);
    bool allowed = code == WEFT_DEADLINE_EXCEEDED || code == WEFT_ABORTED || code == WEFT_FAILED_PRECONDITION ||
                   (p->may_fail && (code == WEFT_INTERNAL || code == WEFT_UNAVAILABLE)) ||
                   (p->input == INPUT_ERROR && code == WEFT_DATA_LOSS);
    if (st && !(may_fail && allowed))
      fail_msg("program, launch %lld, device %d: %s\n%s", (long long)p->launch, d, weft_status_text(st, true),
               l->exe->text);
    if (!st && d == 2 && l->faulty && p->input == INPUT_ERROR)
      fail_msg("program, launch %lld, device %d has a result", (long long)p->launch, d);
    if (!st && memcmp(got, l->exe->want[d], sizeof got) != 0)
      fail_msg("program, launch %lld, device %d: wrong data\n%s", (long long)p->launch, d, l->exe->text);
    weft_status_free(st);
    weft_buffer_release(l->out[d]);
    weft_buffer_release(l->in[d]);
  }
  int64_t took_ms = (weft_now_ns() - l->began_ns) / WEFT_NS_PER_MS;
  if (took_ms > (l->faulty ? HASTY_MS : LONG_MS) * LAUNCHES + PAST_MS + SLACK_MS)
    fail_msg("program, launch %lld took %lld ms", (long long)p->launch, (long long)took_ms);
}

/* All launches of an epoch; the second may lack an input on one device. Then each program once more. */
static void *play_programs(void *arg)
{
  programs *p = arg;
  launched all[LAUNCHES];
  bool fails = p->may_fail || p->input != INPUT, waits = mixed_below(&p->own, 2);

  for (int i = 0; i < LAUNCHES; i++) {
    exe *e = &p->exes[mixed_below(&p->own, EXES)];
    all[i] = (launched){.exe = e, .faulty = i == 1 && p->input != INPUT};
    if (all[i].faulty) T_OK(weft_event_new(&all[i].late));
    launch_program(p->input != INPUT ? e->hasty : e->patient, ++p->launch, &all[i]);
    if (all[i].faulty && p->input == INPUT_ERROR) weft_event_set(all[i].late, WEFT_ERR(DATA_LOSS, "an injected error"));
    if (all[i].faulty && p->input == NO_INPUT) {
      usleep((HASTY_MS + 500) * 1000);
      weft_event_set(all[i].late, NULL);
    }
    if (waits) read_results(p, &all[i], fails);
  }
  for (int i = 0; i < LAUNCHES && !waits; i++) read_results(p, &all[i], fails);
  for (int i = 0; i < LAUNCHES; i++) weft_event_release(all[i].late);
  return NULL;
}

static void check_programs(programs *p)
{
  p->may_fail = false;
  p->input = INPUT;
  for (int e = 0; e < EXES; e++) {
    launched l = {.exe = &p->exes[e]};
    launch_program(p->exes[e].patient, ++p->launch, &l);
    read_results(p, &l, false);
  }
}

static void expect_results(exe *e, const char *text)
{
  setenv("WEFT_PLATFORM", "cpu", 1);
  weft_platform *cpu = NULL;
  T_OK(plat_new(&(weft_platform_options){.device_count = PROGRAM_DEVICES, .threads = 2}, &cpu));
  setenv("WEFT_PLATFORM", "cuda", 1);
  weft_executable *on_cpu = compile_program(cpu, text, 0, LONG_MS);
  launched l = {.exe = e};
  launch_program(on_cpu, 1, &l);
  for (int d = 0; d < PROGRAM_DEVICES; d++) {
    T_OK(weft_buffer_to_host(l.out[d], e->want[d], weft_deadline_after_ms(HANGS_MS)));
    weft_buffer_release(l.out[d]);
    weft_buffer_release(l.in[d]);
  }
  weft_executable_release(on_cpu);
  weft_platform_release(cpu);
}

static programs *make_programs(uint64_t *state)
{
  static const uint32_t usual = 1u << WEFT_GRAPH_FUSION | 1u << WEFT_GRAPH_WHILE;
  static const uint32_t kinds[] = {0, usual, usual | 1u << WEFT_GRAPH_COLLECTIVES};
  programs *p = calloc(1, sizeof *p);

  assert_non_null(p);
  p->own = mixed_next(state);
  for (int i = 0; i < EXES; i++) {
    exe *e = &p->exes[i];
    uint32_t which = kinds[mixed_below(state, (int)WEFT_COUNT(kinds))];
    write_program(state, e->text, sizeof e->text);
    expect_results(e, e->text);
    e->patient = compile_program(gpus(), e->text, which, LONG_MS);
    e->hasty = compile_program(gpus(), e->text, which, HASTY_MS);
  }
  return p;
}

static void free_programs(programs *p)
{
  for (int i = 0; p && i < EXES; i++) {
    weft_executable_release(p->exes[i].patient);
    weft_executable_release(p->exes[i].hasty);
  }
  free(p);
}

/* ---- a seed ------------------------------------------------------------------------------------------------------ */

static void draw_clique(play *p, int number)
{
  clique *c = &p->cliques[number];
  uint64_t *state = &p->state;
  int order[MOST_SIZE] = {0, 1, 2, 3};

  *c = (clique){.number = number, .size = number == 0 ? MOST_SIZE : 1 + mixed_below(state, MOST_SIZE)};
  c->is_link = number > 0 && p->by != PEERS && mixed_below(state, 3) == 0;
  if (c->is_link) c->size = 2;
  for (int i = MOST_SIZE - 1; i > 0 && number > 0; i--) {
    int j = mixed_below(state, i + 1), other = order[j];
    order[j] = order[i];
    order[i] = other;
  }
  for (int r = 0; r < c->size; r++) {
    c->in_whole[r] = order[r];
    c->devices[r] = order[r];
  }
  c->of_whole = number > 0 && c->size > 1 && mixed_below(state, 2);
  if (p->by == NCCL_OF_PROCESSES) T_OK(weft_kv_local_new(&c->kv));
  c->players = calloc((size_t)c->size, sizeof *c->players);
  assert_non_null(c->players);
}

/* What the clique does in the epoch, and what goes wrong. */
static void draw_epoch(play *p, clique *c)
{
  static const weft_coll_kind kinds[] = {WEFT_ALL_REDUCE, WEFT_ALL_REDUCE, WEFT_REDUCE,  WEFT_REDUCE_SCATTER,
                                         WEFT_BROADCAST,  WEFT_ALL_GATHER, WEFT_PERMUTE, WEFT_ALL_TO_ALL};
  static const weft_coll_kind message[] = {WEFT_SEND};
  uint64_t *state = &p->state;

  c->steps = 1 + mixed_below(state, STEPS);
  for (int i = 0; i < c->steps; i++) {
    c->program[i] = c->is_link ? mixed_draw(state, message, 1, 2, MOST)
                               : mixed_draw(state, kinds, WEFT_COUNT(kinds), c->size, MOST);
    if (c->is_link) c->program[i].from = 0, c->program[i].to = 1;
  }
  c->what = mixed_below(state, 2) && c->size > 1 ? (what)mixed_below(state, WHATS) : NONE;
  if (!is_of(p->by, faults[c->what].by) || (c->is_link && !faults[c->what].in_links)) c->what = NONE;
  c->victim = mixed_below(state, c->size);
  c->at = mixed_below(state, c->steps);
  c->after_ms = mixed_below(state, 30);
  c->deadline_ms = faults[c->what].needs_deadline ? 300 + mixed_below(state, 400) : LONG_MS;
  c->may_fail = p->call_fails;
  c->dies = false;
}

static void say(const play *p)
{
  static const char *const names[BYS] = {"peers", "NCCL", "both", "NCCL of processes"};

  for (int i = 0; i < p->count; i++) {
    const clique *c = &p->cliques[i];
    print_message("# seed %llu by %s, epoch %d, clique %d of %d%s, %d steps: %s, rank %d, step %d; calls: %s\n",
                  (unsigned long long)p->seed, names[p->by], p->epoch, i, c->size, c->is_link ? " (a link)" : "",
                  c->steps, faults[c->what].name, c->victim, c->at, p->call_fault);
  }
}

static void play_epoch(play *p)
{
  pthread_t threads[CLIQUES * MOST_SIZE], strikers[CLIQUES], programs;
  int count = 0;
  size_t call = (size_t)mixed_below(&p->state, (int)WEFT_COUNT(call_faults) * 2);

  *p->call_fault = 0;
  p->call_fails = call < WEFT_COUNT(call_faults) && call_faults[call].fails;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  if (call < WEFT_COUNT(call_faults))
    snprintf(p->call_fault, sizeof p->call_fault, call_faults[call].call, 1 + mixed_below(&p->state, 12));
#pragma GCC diagnostic pop
  for (int i = 0; i < p->count; i++) draw_epoch(p, &p->cliques[i]);
  if (p->verbose) say(p);
  make_all(p);
  spread_deaths(p);
  for (int i = 0; i < p->count; i++) {
    clique *c = &p->cliques[i];
    for (int r = 0; r < c->size; r++) {
      player *one = &c->players[r];
      one->of = c;
      one->rank = r;
      one->epoch = p->epoch;
      one->own = mixed_next(&p->state);
      one->comm = c->comms[r];
      one->gone = false;
      stage(one);
    }
  }
  if (p->programs) {
    p->programs->may_fail = p->call_fails;
    p->programs->input = (input)mixed_below(&p->state, 2 * INPUTS);
    if (p->programs->input >= INPUTS) p->programs->input = INPUT;
  }
  emu_faults(p->call_fault);
  if (p->programs) pthread_create(&programs, NULL, play_programs, p->programs);
  for (int i = 0; i < p->count; i++) {
    clique *c = &p->cliques[i];
    if (c->what == ABORTS || c->what == DIES) pthread_create(&strikers[i], NULL, strike, c);
    for (int r = 0; r < c->size; r++) pthread_create(&threads[count++], NULL, play_rank, &c->players[r]);
  }
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < p->count; i++)
    if (p->cliques[i].what == ABORTS || p->cliques[i].what == DIES) pthread_join(strikers[i], NULL);
  if (p->programs) pthread_join(programs, NULL);
  emu_faults("");
  for (int i = 0; i < p->count; i++)
    for (int r = 0; r < p->cliques[i].size; r++) judge(&p->cliques[i].players[r]);
  for (int i = p->count - 1; i >= 0; i--) {
    clique *c = &p->cliques[i];
    bool failed = has_failed(c);
    for (int r = 0; r < c->size; r++)
      for (int s = 0; s < c->steps; s++) weft_status_free(c->players[r].acts[s].end);
    /* a message that nobody has received stays in its link */
    if (failed || c->what == SILENT || c->what == ASYNC || (c->is_link && c->what == ABSENT)) unmake(c);
  }
  if (p->programs) check_programs(p->programs);
}

static void be_seed(void *arg)
{
  play p = {.seed = *(uint64_t *)arg, .verbose = getenv("WEFT_TEST_VERBOSE") != NULL};

  p.state = p.seed * 1000003;
  p.by = (by)mixed_below(&p.state, BYS);
  p.count = 1 + mixed_below(&p.state, CLIQUES);
  uint64_t own = p.seed * 7919; /* another row of numbers: what the seeds are known for does not change */
  gpus_use(by_settings[p.by]);
  gpus_have_multicast((p.by == PEERS || p.by == BOTH) && mixed_below(&own, 2));
  gpus();
  *(void **)&emu_faults = emulated_symbol("libcuda.so.1", "weft_emu_faults");
  for (int i = 0; i < p.count; i++) draw_clique(&p, i);
  if (mixed_below(&p.state, 2)) p.programs = make_programs(&p.state);
  for (p.epoch = 0; p.epoch < EPOCHS; p.epoch++) play_epoch(&p);
  for (int i = p.count - 1; i >= 0; i--) {
    unmake(&p.cliques[i]);
    weft_kv_destroy(p.cliques[i].kv);
    free(p.cliques[i].players);
  }
  free_programs(p.programs);
  gpus_close();
}

static void play_seed(uint64_t seed)
{
  if (!mixed_join(mixed_fork(be_seed, &seed, LIMIT_S))) fail_msg("seed %llu", (unsigned long long)seed);
}

TEST(all_ways_to_wait_with_faults_now_and_then) { print_message("# %d seeds\n", mixed_play(SEEDS, play_seed)); }

TEST_MAIN(UNIT(all_ways_to_wait_with_faults_now_and_then))
