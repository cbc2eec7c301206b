/* tests/collective/actors.h -- ranks that a test directs one by one: each is a thread, which does what the test tells
 * it and answers.  The threads live in as many processes as the test wants, so a world is one process with devices, or
 * processes of a rank each.
 *
 * The test's own process has no communicator: it forks the processes once, and they live through all of its worlds.
 *
 * Elements of rank r's operand: 1000 r, 1000 r + 1, ...
 *
 * With ON_GPUS the ranks are devices of the emulated GPU platform.  There an operation is *held* if its device does not
 * come to it: it has met the others on the host, and is queued behind work that ends when the test lets the rank go. */
#ifndef WEFT_TESTS_COLLECTIVE_ACTORS_H
#define WEFT_TESTS_COLLECTIVE_ACTORS_H

#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/kv.h"
#include "collective/host/host.h"

#ifdef ON_GPUS
#include "gpu/gpu_internal.h"
#include "gpus.h"
#endif

enum { RANKS = 4, MOST_ELEMS = 2000, SLOTS = 4, WORDS = 600, ANSWER_MS = 60000 };

/* What a rank can be told. */
typedef enum verb { OPEN, POST, AWAIT, IS_READY, RUN, ABORT, LEAVE, HEARS, INCARNATION, DIED, IS_FROM, REPEAT, QUIT } verb;

typedef struct actor_op {
  weft_coll_kind kind;
  size_t count;
  int source, target, peer; /* of a permute; of a send or receive */
  uint64_t tag;
  int64_t deadline_ms;      /* 0: the communicator's */
  bool held;
} actor_op;

/* A rank's orders and answers, in memory that all processes share. */
typedef struct actor {
  sem_t go, done;
  verb verb;
  actor_op op;
  int slot, times;
  uint64_t number;      /* of an incarnation; an answer */
  int code;             /* of the answer, a weft_code */
  char text[WORDS];     /* why it aborts; the error of the answer */
  atomic_bool let_go;
} actor;

typedef struct stage {
  actor actors[RANKS];
  char name[64];        /* of the world's communicator */
  char directory[64];   /* where ranks meet */
} stage;

static stage *shared;
static pid_t processes[RANKS];
static int process_count, ranks_each;

/* ---- a rank ----------------------------------------------------------------------------------------------------- */

typedef struct self {
  int rank;
  weft_comm *comm;
  float of[MOST_ELEMS * RANKS], to[MOST_ELEMS * RANKS];
  weft_event *events[SLOTS];
#ifdef ON_GPUS
  gpu_operands staged[SLOTS];
  weft_stream *gate; /* held operations are queued behind its work */
#endif
} self;

static self selves[RANKS];

static weft_coll_op operation(self *me, const actor_op *op)
{
  return (weft_coll_op){.kind = op->kind,
                        .dtype = WEFT_F32,
                        .count = op->count,
                        .reduction = op->kind == WEFT_ALL_REDUCE ? WEFT_SUM : WEFT_REDUCE_NONE,
                        .send = op->kind == WEFT_BARRIER ? NULL : me->of,
                        .recv = op->kind == WEFT_BARRIER ? NULL : me->to,
                        .source = op->source,
                        .target = op->target,
                        .peer = op->peer,
                        .tag = op->tag};
}

#ifdef ON_GPUS
/* Work of the gate's stream: the device stands still until the test lets the rank go. */
static int stand_still(const void *args, int device, char *error, size_t size)
{
  atomic_bool *let_go = *(atomic_bool *const *)args;

  (void)device;
  (void)error;
  (void)size;
  while (!atomic_load(let_go)) usleep(200);
  return 0;
}

static void close_gate(self *me)
{
  int (*enqueue)(wcu_stream, int (*)(const void *, int, char *, size_t), const void *, size_t);
  weft_device *device = gpus_device(me->comm);
  atomic_bool *let_go = &shared->actors[me->rank].let_go;

  if (!me->gate) T_OK(weft_device_operations(device)->stream_create(device, 0, &me->gate));
  *(void **)&enqueue = emulated_symbol("libcuda.so.1", "weft_emu_enqueue");
  atomic_store(let_go, false);
  T_OK(gpu_enter(gpu_of(device)));
  T_EQ_INT(enqueue(gpu_stream_handle(me->gate), stand_still, &let_go, sizeof let_go), 0);
  gpu_stream_used(me->gate);
  gpu_leave();
}

static void open_gate(self *me)
{
  atomic_store(&shared->actors[me->rank].let_go, true);
  if (me->gate) gpu_stream_destroy(WEFT_MOVE(me->gate));
}
#endif

static weft_status *post(self *me, const actor_op *how, int slot)
{
  weft_coll_op op = operation(me, how);
  weft_coll_call call = {.deadline = how->deadline_ms ? weft_deadline_after_ms(how->deadline_ms) : (weft_deadline){0}};

#ifdef ON_GPUS
  op = gpus_stage(me->comm, &op, &me->staged[slot]);
  if (how->held) {
    close_gate(me);
    call.stream = me->gate;
  }
#endif
  weft_status *st = weft_coll_post(me->comm, &op, &call, &me->events[slot]);
#ifdef ON_GPUS
  if (st) gpus_unstage(&me->staged[slot]);
#endif
  return st;
}

static weft_status *await_end(self *me, int slot)
{
  weft_status *st = weft_event_await(me->events[slot], weft_deadline_after_ms(ANSWER_MS / 3));

  weft_event_release(WEFT_MOVE(me->events[slot]));
#ifdef ON_GPUS
  gpus_unstage(&me->staged[slot]);
#endif
  return st;
}

static weft_status *run(self *me, const actor_op *how)
{
  weft_coll_op op = operation(me, how);

#ifdef ON_GPUS
  op = gpus_stage(me->comm, &op, &me->staged[0]);
#endif
  weft_status *st = weft_coll_run(me->comm, &op, NULL);
#ifdef ON_GPUS
  gpus_unstage(&me->staged[0]);
#endif
  return st;
}

/* Runs the operation until it fails, or `times` times and then gives up. *out_count: how often it has ended well. */
static weft_status *repeat(self *me, const actor_op *op, int times, uint64_t *out_count)
{
  weft_status *st = NULL;

  *out_count = 0;
  while (!st && (times == 0 || *out_count < (uint64_t)times)) {
    st = run(me, op);
    if (!st) ++*out_count;
  }
  if (!st) weft_comm_abort(me->comm, WEFT_ERR(ABORTED, "lost patience"));
  return st;
}

/* Makes the communicators of the ranks of this process; the process's first rank makes them for all. */
static weft_status *open_comms(self *me)
{
  int ranks[RANKS];
  weft_comm *comms[RANKS];
  WEFT_AUTO(weft_kv) kv = NULL;

  for (int i = 0; i < ranks_each; i++) ranks[i] = me->rank + i;
  WEFT_TRY(weft_kv_file_new(shared->directory, &kv));
  weft_comm_spec spec = {.kv = kv, .name = shared->name, .size = RANKS, .ranks = ranks, .rank_count = ranks_each};
#ifdef ON_GPUS
  gpus_bring(&spec);
#endif
  WEFT_TRY(weft_comm_create(&spec, comms));
  for (int i = 0; i < ranks_each; i++) {
    self *one = &selves[me->rank + i];
    one->comm = comms[i];
    for (int e = 0; e < MOST_ELEMS; e++) {
      one->of[e] = (float)(1000 * one->rank + e);
      one->to[e] = -1;
    }
  }
  return NULL;
}

static weft_status *check_from(const self *me, int source, size_t count)
{
  for (size_t e = 0; e < count; e++) {
    float want = (float)(1000 * (size_t)source + e);
    if (me->to[e] != want)
      return WEFT_ERR(INTERNAL, "element %d is %g, not %g", (int)e, (double)me->to[e], (double)want);
  }
  return NULL;
}

static weft_status *obey(self *me, actor *a)
{
  switch (a->verb) {
  case OPEN: return open_comms(me);
  case POST: return post(me, &a->op, a->slot);
  case AWAIT: return await_end(me, a->slot);
  case IS_READY: a->number = weft_event_is_ready(me->events[a->slot]); return NULL;
  case RUN: return run(me, &a->op);
  case ABORT: weft_comm_abort(me->comm, WEFT_ERR(ABORTED, "%s", a->text)); return NULL;
  case LEAVE:
    if (me->comm) weft_comm_destroy(WEFT_MOVE(me->comm));
#ifdef ON_GPUS
    open_gate(me);
#endif
    for (int i = 0; i < SLOTS && a->slot < 0; i++) /* the world ends: also what nobody has waited for */
      if (me->events[i]) weft_status_free(await_end(me, i));
    return NULL;
  case HEARS: return weft_comm_health(me->comm);
  case INCARNATION: a->number = weft_comm_incarnation(me->comm, (int)a->number); return NULL;
  case DIED: weft_coll_incarnation_died(a->number, "heartbeats stopped"); return NULL;
  case IS_FROM: return check_from(me, a->op.source, a->op.count);
  case REPEAT: return repeat(me, &a->op, a->times, &a->number);
  case QUIT: return NULL;
  }
  return NULL;
}

/* Orders come one after another, by way of the test's process: the thread sanitizer does not see that. */
static void be_in_order(void)
{
  static atomic_int orders;

  atomic_fetch_add(&orders, 1);
}

static void *act(void *arg)
{
  self *me = arg;
  actor *a = &shared->actors[me->rank];

  for (verb told = OPEN; told != QUIT;) {
    while (sem_wait(&a->go) != 0) {}
    told = a->verb;
    be_in_order();
    weft_status *st = obey(me, a);
    be_in_order();
    a->code = weft_status_code(st);
    snprintf(a->text, sizeof a->text, "%s", st ? weft_status_text(st, false) : "");
    weft_status_free(st);
    sem_post(&a->done);
  }
  return NULL;
}

/* The process of ranks [first, first + ranks_each). */
static void be_process(int first)
{
  pthread_t threads[RANKS];

  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setenv("CMOCKA_TEST_ABORT", "1", 1); /* a check that fails ends the process */
  setenv("WEFT_COLLECTIVE_DIAGNOSE", "100ms", 1);
  setenv("WEFT_LOG", "error", 0);
#ifdef ON_GPUS
  gpus(); /* not in the time that deadlines count */
#endif
  for (int i = 0; i < ranks_each; i++) selves[first + i].rank = first + i; /* the first thread reads all of them */
  for (int i = 0; i < ranks_each; i++) pthread_create(&threads[i], NULL, act, &selves[first + i]);
  for (int i = 0; i < ranks_each; i++) pthread_join(threads[i], NULL);
#ifdef ON_GPUS
  gpus_close();
#endif
  exit(0); /* a leak checker reports */
}

/* ---- the test --------------------------------------------------------------------------------------------------- */

static void begin_telling(int rank, verb what)
{
  shared->actors[rank].verb = what;
  sem_post(&shared->actors[rank].go);
}

static actor *finish_telling(int rank)
{
  actor *a = &shared->actors[rank];
  struct timespec until;

  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += ANSWER_MS / 1000;
  while (sem_timedwait(&a->done, &until) != 0)
    if (errno != EINTR) fail_msg("rank %d does not answer to order %d", rank, (int)a->verb);
  return a;
}

static WEFT_UNUSED actor *tell(int rank, verb what)
{
  begin_telling(rank, what);
  return finish_telling(rank);
}

static WEFT_UNUSED actor *tell_op(int rank, verb what, actor_op op, int slot)
{
  shared->actors[rank].op = op;
  shared->actors[rank].slot = slot;
  return tell(rank, what);
}

static WEFT_UNUSED void check_answer(int rank, const actor *a, weft_code code, const char *says)
{
  if (a->code != (int)code || !strstr(a->text, says))
    fail_msg("rank %d: got %s \"%s\", want %s \"...%s...\"", rank, weft_code_name((weft_code)a->code), a->text,
             weft_code_name(code), says);
}

static void start_processes(int each)
{
  ranks_each = each;
  process_count = RANKS / each;
  strcpy(shared->directory, "/tmp/weft-actors-XXXXXX");
  assert_non_null(mkdtemp(shared->directory));
  fflush(stdout);
  for (int r = 0; r < RANKS; r++) {
    sem_init(&shared->actors[r].go, 1, 0);
    sem_init(&shared->actors[r].done, 1, 0);
  }
  for (int p = 0; p < process_count; p++) {
    processes[p] = fork();
    assert_true(processes[p] >= 0);
    if (processes[p] == 0) be_process(p * each);
  }
}

/* The processes end, if they can: after a test that failed they may not. */
static WEFT_UNUSED void stop_processes(bool well)
{
  char command[100];
  bool failed = false;
  int status;

  if (process_count == 0) return;
  for (int r = 0; r < RANKS && well; r++) begin_telling(r, QUIT);
  for (int p = 0; p < process_count; p++) {
    if (!well) kill(processes[p], SIGKILL);
    waitpid(processes[p], &status, 0);
    failed |= status != 0;
  }
  process_count = 0;
  snprintf(command, sizeof command, "rm -rf %s", shared->directory);
  if (system(command) != 0) print_message("# %s is left\n", shared->directory);
  if (well && failed) fail_msg("a process ended badly: it left something on its device, or broke a rule of NCCL");
}

static bool world_is_open;

/* A communicator of RANKS ranks, `each` in a process. */
static WEFT_UNUSED void open_world(int each)
{
  static int number;

  if (!shared) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
  }
  if (world_is_open) stop_processes(false); /* the test before has failed */
  if (process_count && ranks_each != each) stop_processes(true);
  if (!process_count) start_processes(each);
  world_is_open = true;
  snprintf(shared->name, sizeof shared->name, "world%d", number++);
  for (int r = 0; r < RANKS; r += each) begin_telling(r, OPEN);
  for (int r = 0; r < RANKS; r += each) check_answer(r, finish_telling(r), WEFT_OK, "");
}

static WEFT_UNUSED void close_world(void)
{
  for (int r = 0; r < RANKS; r++) {
    shared->actors[r].slot = -1;
    begin_telling(r, LEAVE);
  }
  for (int r = 0; r < RANKS; r++) finish_telling(r);
  world_is_open = false;
}

static WEFT_UNUSED void let_go(int rank) { atomic_store(&shared->actors[rank].let_go, true); }

#endif
