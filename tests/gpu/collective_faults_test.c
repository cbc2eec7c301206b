/* tests/gpu/collective_faults_test.c -- collectives between emulated GPUs that cannot end well: for every communicator
 * (peers with and without multicast, NCCL in one process, NCCL between ranks that meet in a store), every operation
 * that it moves and every fault, each rank gets the specified error by its deadline and a second, the next communicator
 * works, and nothing is left.
 *
 *   WEFT_TEST_LONG=1     all cells; otherwise each fault with a third of the operations, which differs by communicator
 *   WEFT_TEST_ONLY=late  only the faults with that in their name */
#define ON_GPUS
#include "collective/world.h"

#include <malloc.h>
#include <stdatomic.h>

enum { DEADLINE_MS = 400, LONG_MS = 20000, LATE_MS = 1100, PAST_MS = 1000, SLACK_MS = 1900, COUNT = 300, VICTIM = 2, STOP = 5 };

typedef enum by { PEERS, MULTICAST, NCCL, NCCL_OF_PROCESSES, BY_COUNT } by;
static const char *const by_names[BY_COUNT] = {"peers", "peers with multicast", "NCCL", "NCCL of processes"};
static const char *const by_settings[BY_COUNT] = {"peers", "peers", "nccl", "nccl"};
static const int by_sizes[BY_COUNT] = {GPUS, GPUS, GPUS, 4};

static bool is_peers(by by) { return by == PEERS || by == MULTICAST; }
/* Multicast reduces integers. */
static weft_dtype by_type(by by) { return by == MULTICAST ? WEFT_S32 : WEFT_F32; }

/* What goes wrong. */
typedef enum what { ABSENT, COUNTS, KINDS, ABORTS, LEAVES, DIES, LATE, CALL, ASYNC } what;

typedef struct fault {
  what what;
  const char *name;
  unsigned of;        /* bits of `by` */
  bool needs_deadline; /* the deadline is what ends the operation */
  /* The code of the operation where it says why, and what it says there; other ranks may have `other`. */
  weft_code code, other;
  const char *says;
} fault;

#define EACH (1u << PEERS | 1u << MULTICAST | 1u << NCCL | 1u << NCCL_OF_PROCESSES)
#define BY_NCCL (1u << NCCL | 1u << NCCL_OF_PROCESSES)
static const fault faults[] = {
  {ABSENT, "a rank that does not come", EACH, true, WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "not arrived: 1 of"},
  {COUNTS, "ranks that disagree on the count", EACH, false, WEFT_FAILED_PRECONDITION, WEFT_FAILED_PRECONDITION, "disagree on the operation"},
  {KINDS, "ranks that disagree on the operation", EACH, false, WEFT_FAILED_PRECONDITION, WEFT_FAILED_PRECONDITION, "disagree on the operation"},
  {ABORTS, "a rank that aborts", EACH, false, WEFT_ABORTED, WEFT_ABORTED, "lost patience"},
  {LEAVES, "a rank that leaves", EACH, false, WEFT_FAILED_PRECONDITION, WEFT_ABORTED, ""},
  {DIES, "an incarnation that dies", 1u << NCCL_OF_PROCESSES, false, WEFT_FAILED_PRECONDITION, WEFT_ABORTED, "is not connected"},
  {LATE, "a device that is late", EACH, true, WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "is with"},
  {CALL, "a call that fails", EACH, false, WEFT_INTERNAL, WEFT_ABORTED, "failed on rank"},
  {ASYNC, "an error of the library", BY_NCCL, false, WEFT_UNAVAILABLE, WEFT_ABORTED, "an injected error"},
};

static const weft_coll_kind kinds[] = {
  WEFT_ALL_REDUCE, WEFT_REDUCE, WEFT_REDUCE_SCATTER, WEFT_BROADCAST, WEFT_ALL_GATHER, WEFT_ALL_TO_ALL, WEFT_PERMUTE,
  WEFT_RAGGED_ALL_TO_ALL,
};

static void (*emu_reset)(void);
static size_t (*emu_kept_bytes)(void);
static size_t (*emu_faults_left)(void);

static bool reduces(weft_coll_kind k) { return k == WEFT_ALL_REDUCE || k == WEFT_REDUCE || k == WEFT_REDUCE_SCATTER; }

static weft_coll_op operation(weft_coll_kind kind, weft_dtype dtype, int rank, int size)
{
  static float in[MOST_RANKS][COUNT * MOST_RANKS], out[MOST_RANKS][COUNT * MOST_RANKS];
  static int64_t offsets[MOST_RANKS][MOST_RANKS], sizes[MOST_RANKS], theirs[MOST_RANKS][MOST_RANKS];
  static weft_coll_ragged ragged[MOST_RANKS];

  for (int i = 0; i < COUNT * MOST_RANKS; i++) in[rank][i] = (float)(rank + 1);
  for (int r = 0; r < size; r++) {
    offsets[rank][r] = r * COUNT;
    theirs[rank][r] = rank * COUNT;
    sizes[r] = COUNT;
  }
  ragged[rank] = (weft_coll_ragged){offsets[rank], sizes, theirs[rank], sizes, 1, 1, COUNT * size, COUNT * size};
  return (weft_coll_op){.kind = kind,
                        .dtype = dtype,
                        .reduction = reduces(kind) ? WEFT_SUM : WEFT_REDUCE_NONE,
                        .count = COUNT,
                        .send = in[rank],
                        .recv = out[rank],
                        .source = (rank + size - 1) % size,
                        .target = (rank + 1) % size,
                        .ragged = &ragged[rank]};
}

/* ---- a cell ---- */

typedef struct cell {
  world w;
  by by;
  weft_coll_kind kind;
  const fault *fault;
  weft_status *ends[MOST_RANKS]; /* NULL of a rank without an operation */
  bool has_end[MOST_RANKS];
  int64_t took_ms[MOST_RANKS];
} cell;

static void wrong(const cell *c, int rank, const char *text)
{
  fail_msg("%s by %s, %s: rank %d after %lld ms: %s: %s", weft_coll_kind_name(c->kind), by_names[c->by], c->fault->name,
           rank, (long long)c->took_ms[rank], text, c->ends[rank] ? weft_status_text(c->ends[rank], true) : "OK");
}

static void inject(const char *emulator, const char *nccl)
{
  if (emulator) setenv("WEFT_EMU_FAULTS", emulator, 1);
  else unsetenv("WEFT_EMU_FAULTS");
  if (nccl) setenv("WEFT_EMU_NCCL", nccl, 1);
  else unsetenv("WEFT_EMU_NCCL");
  emu_reset();
}

/* The call with which the library moves data. */
static const char *nccl_call(weft_coll_kind kind)
{
  switch (kind) {
  case WEFT_ALL_REDUCE: return "ncclAllReduce";
  case WEFT_REDUCE: return "ncclReduce";
  case WEFT_REDUCE_SCATTER: return "ncclReduceScatter";
  case WEFT_BROADCAST: return "ncclBroadcast";
  case WEFT_ALL_GATHER: return "ncclAllGather";
  default: return "ncclSend";
  }
}

/* Faults of the driver are set once the communicator is there; those of the library are read when it is made. */
static void inject_before(const cell *c)
{
  char nccl[64] = "";

  if (c->fault->what == LATE && !is_peers(c->by)) snprintf(nccl, sizeof nccl, "silent:%d@1", VICTIM);
  if (c->fault->what == ASYNC) snprintf(nccl, sizeof nccl, "async:%d@1=6", VICTIM);
  /* what is to end otherwise must not end well first */
  if ((c->fault->what == ABORTS || c->fault->what == LEAVES || c->fault->what == DIES) && !is_peers(c->by))
    snprintf(nccl, sizeof nccl, "silent:%d@1", VICTIM);
  inject(NULL, *nccl ? nccl : NULL);
}

static void inject_after(const cell *c)
{
  char driver[96] = "";

  if (c->fault->what == CALL) {
    if (is_peers(c->by)) snprintf(driver, sizeof driver, "cuLaunchKernel:%d=719", VICTIM + 1);
    else snprintf(driver, sizeof driver, "%s:%d=3", nccl_call(c->kind), VICTIM + 1);
  } else if (is_peers(c->by) && (c->fault->what == LATE || c->fault->what == ABORTS || c->fault->what == LEAVES)) {
    snprintf(driver, sizeof driver, "cuLaunchKernel:%d=stall:%dms", VICTIM + 1, LATE_MS);
  }
  if (!*driver) return;
  setenv("WEFT_EMU_FAULTS", driver, 1);
  emu_reset();
}

/* In these a rank may have done its part although another has not: then an abort by the first leaves the operation to
 * the others, and an abort that ends it is one by a rank that has not done its part. */
static bool is_one_way(weft_coll_kind kind)
{
  return kind == WEFT_PERMUTE || kind == WEFT_BROADCAST || kind == WEFT_REDUCE;
}

static void strike(cell *c, weft_event **events)
{
  weft_comm **comms = c->w.comms;

  if (c->fault->what != ABORTS && c->fault->what != LEAVES && c->fault->what != DIES) return;
  usleep(100000);
  if (c->fault->what == ABORTS)
    weft_comm_abort(comms[is_one_way(c->kind) ? VICTIM : STOP % c->w.size], WEFT_ERR(ABORTED, "lost patience"));
  if (c->fault->what == DIES) weft_coll_incarnation_died(weft_comm_incarnation(comms[0], VICTIM), "heartbeats stopped");
  if (c->fault->what != LEAVES) return;
  weft_comm_destroy(WEFT_MOVE(comms[VICTIM]));
  weft_status *st = weft_event_await(events[VICTIM], weft_deadline_after_ms(LONG_MS));
  if (weft_status_code(st) != WEFT_CANCELLED) wrong(c, VICTIM, st ? weft_status_text(st, true) : "not cancelled");
  weft_status_free(st);
  weft_event_release(WEFT_MOVE(events[VICTIM]));
}

static void play(cell *c)
{
  gpu_operands staged[MOST_RANKS];
  weft_coll_op ops[MOST_RANKS];
  weft_coll_ragged shorter;
  weft_event *events[MOST_RANKS] = {NULL};
  int size = c->w.size;

  for (int r = 0; r < size; r++) {
    weft_coll_kind kind =
      c->fault->what == KINDS && r == VICTIM ? c->kind == WEFT_ALL_REDUCE ? WEFT_ALL_GATHER : WEFT_ALL_REDUCE : c->kind;
    weft_coll_op op = operation(kind, by_type(c->by), r, size);
    if (c->fault->what == COUNTS && r == VICTIM) op.count = COUNT - 1;
    if (c->fault->what == COUNTS && r == VICTIM && kind == WEFT_RAGGED_ALL_TO_ALL) { /* two updates without rows */
      static const int64_t none[2 * MOST_RANKS];
      shorter = (weft_coll_ragged){none, none, none, none, 2, 1, COUNT * size, COUNT * size};
      op.ragged = &shorter;
    }
    ops[r] = gpus_stage(c->w.comms[r], &op, &staged[r]);
  }
  inject_after(c);
  weft_coll_call call = {.deadline = weft_deadline_after_ms(c->fault->needs_deadline ? DEADLINE_MS : LONG_MS)};
  for (int r = 0; r < size; r++) {
    if (c->fault->what == ABSENT && r == VICTIM) continue;
    weft_status *st = weft_coll_post(c->w.comms[r], &ops[r], &call, &events[r]);
    if (!st) continue;
    c->ends[r] = st; /* refused: an error is known already */
    c->has_end[r] = true;
  }
  int64_t began_ns = weft_now_ns();
  strike(c, events);
  for (int r = 0; r < size; r++) {
    if (!events[r]) continue;
    c->ends[r] = weft_event_await(events[r], weft_deadline_after_ms(60000));
    c->took_ms[r] = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
    c->has_end[r] = true;
    weft_event_release(events[r]);
  }
  for (int r = 0; r < size; r++) gpus_unstage(&staged[r]);
}

/* Whether a rank that does not wait for the victim's device may have ended; a call that fails may be any rank's. */
static bool may_end_well(const cell *c, int rank)
{
  return c->fault->what >= ABORTS && is_one_way(c->kind) && (rank != VICTIM || c->fault->what == CALL);
}

/* False: the deadline has passed, and no rank says what was to be said. On a busy machine ranks may be late themselves,
 * before they come to the fault. */
static bool judge(cell *c)
{
  const fault *f = c->fault;
  bool said = false;

  for (int r = 0; r < c->w.size; r++) {
    weft_code code = weft_status_code(c->ends[r]);
    if (!c->has_end[r]) continue;
    if (!c->ends[r] && may_end_well(c, r)) continue;
    if (!c->ends[r]) wrong(c, r, "ended well");
    if (code != f->code && code != f->other) wrong(c, r, "another code");
    said |= code == f->code && strstr(weft_status_text(c->ends[r], true), f->says) != NULL;
    /* what waits for a late kernel ends when that kernel is over */
    int64_t most_ms = (f->needs_deadline ? DEADLINE_MS : 0) + (is_peers(c->by) ? LATE_MS : 0) + PAST_MS + SLACK_MS;
    if (c->took_ms[r] > most_ms) wrong(c, r, "late");
  }
  if (!said && !f->needs_deadline) wrong(c, 0, "no rank says why");
  for (int r = 0; r < c->w.size; r++) weft_status_free(WEFT_MOVE(c->ends[r]));
  return said;
}

static void open_world(world *w, by by)
{
  if (by == NCCL_OF_PROCESSES) world_open_processes(w, by_sizes[by], NULL);
  else world_open_devices(w, by_sizes[by]);
}

static void run_cell(by by, weft_coll_kind kind, const fault *f)
{
  enum { MOST_TRIES = 4 };
  weft_coll_op ops[MOST_RANKS];
  world next;
  bool said = false;

  for (int tries = 0; tries < MOST_TRIES && !said; tries++) {
    cell c = {.by = by, .kind = kind, .fault = f};
    inject_before(&c);
    open_world(&c.w, by);
    play(&c);
    said = judge(&c);
    inject(NULL, NULL);
    world_close(&c.w);
  }
  if (!said) fail_msg("%s by %s, %s: no rank says \"%s\"", weft_coll_kind_name(kind), by_names[by], f->name, f->says);
  open_world(&next, by); /* survivors and the victim go on */
  for (int r = 0; r < next.size; r++) ops[r] = operation(kind, by_type(by), r, next.size);
  weft_status *st = world_run(&next, ops, NULL);
  if (st)
    fail_msg("%s by %s, after %s: %s", weft_coll_kind_name(kind), by_names[by], f->name, weft_status_text(st, true));
  world_close(&next);
}

static void run_all(by by)
{
  bool is_long = getenv("WEFT_TEST_LONG") != NULL;
  const char *only = getenv("WEFT_TEST_ONLY");
  int cells = 0;
  int64_t begin = weft_now_ns();

  gpus_use(by_settings[by]);
  gpus_have_multicast(by == MULTICAST);
  uint64_t before = gpus_multicast_work();
  gpus(); /* opens the driver */
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  *(void **)&emu_faults_left = emulated_symbol("libcuda.so.1", "weft_emu_faults_left");
  for (size_t f = 0; f < WEFT_COUNT(faults); f++)
    for (size_t k = 0; k < WEFT_COUNT(kinds); k++) {
      if (!(faults[f].of & 1u << by) || (only && !strstr(faults[f].name, only))) continue;
      if (!is_long && (f + k + (size_t)by) % 3 != 0) continue;
      if (!gpus_move(kinds[k], by_type(by), reduces(kinds[k]) ? WEFT_SUM : WEFT_REDUCE_NONE)) continue;
      run_cell(by, kinds[k], &faults[f]);
      cells++;
    }
  if (by == MULTICAST && cells > 0) T_TRUE(gpus_multicast_work() > before);
  print_message("# %s: %d cells in %.1f s\n", by_names[by], cells, (double)(weft_now_ns() - begin) / 1e9);
  gpus_close();
}

/* ---- a communicator that is being made ---- */

static atomic_bool not_wanted;
static weft_status *made;
static weft_comm *comms_made[GPUS];

static void *make_communicator(void *arg)
{
  static const int ranks[GPUS] = {0, 1, 2, 3, 4, 5, 6, 7};
  weft_comm_spec spec = {.name = "cancelled", .size = GPUS, .ranks = ranks, .rank_count = GPUS, .cancel = &not_wanted,
                         .deadline = weft_deadline_after_ms(LONG_MS)};

  (void)arg;
  gpus_bring(&spec);
  made = weft_comm_create(&spec, comms_made);
  return NULL;
}

/* The library waits for a rank that does not come. */
TEST(making_a_communicator_can_be_cancelled)
{
  pthread_t thread;

  gpus_use("nccl");
  gpus();
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  inject(NULL, "absent:1");
  pthread_create(&thread, NULL, make_communicator, NULL);
  usleep(300000);
  int64_t began_ns = weft_now_ns();
  atomic_store(&not_wanted, true);
  pthread_join(thread, NULL);
  int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
  T_EQ_INT(weft_status_code(made), WEFT_CANCELLED);
  weft_status_free(made);
  if (took_ms > PAST_MS + SLACK_MS) fail_msg("it took %lld ms", (long long)took_ms);
  inject(NULL, NULL);
  atomic_store(&not_wanted, false);
  make_communicator(NULL);
  T_OK(made);
  for (int r = 0; r < GPUS; r++) weft_comm_destroy(comms_made[r]);
  gpus_close();
}

/* A call that makes a communicator returns long after the deadline: the creation ends without it, and what it has left
 * goes when it is back. */
TEST(a_call_of_the_library_that_does_not_return_delays_nobody)
{
  static const int ranks[GPUS] = {0, 1, 2, 3, 4, 5, 6, 7};

  gpus_use("nccl");
  gpus();
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  inject("ncclCommInitRankConfig:3=delay:6s", NULL);
  weft_comm_spec spec = {.name = "stuck", .size = GPUS, .ranks = ranks, .rank_count = GPUS,
                         .deadline = weft_deadline_after_ms(DEADLINE_MS)};
  gpus_bring(&spec);
  int64_t began_ns = weft_now_ns();
  weft_status *st = weft_comm_create(&spec, comms_made);
  int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
  T_EQ_INT(weft_status_code(st), WEFT_DEADLINE_EXCEEDED);
  weft_status_free(st);
  if (took_ms > DEADLINE_MS + PAST_MS + SLACK_MS) fail_msg("it took %lld ms", (long long)took_ms);
  inject(NULL, NULL);
  make_communicator(NULL); /* while that call has not returned */
  T_OK(made);
  for (int r = 0; r < GPUS; r++) weft_comm_destroy(comms_made[r]);
  gpus_close(); /* waits for what is left */
}

static _Thread_local bool makes;
static atomic_int asked, asked_by_others;

static weft_status *note_who_asks(void *ctx, int rank)
{
  (void)ctx;
  (void)rank;
  atomic_fetch_add(makes ? &asked : &asked_by_others, 1);
  return NULL;
}

static void *make_and_ask(void *arg)
{
  makes = true;
  return create_one(arg);
}

/* A question to the caller may take longer than the caller waits for the threads of the communicator. So these do not
 * ask, since what they ask with may have gone. */
TEST(only_the_thread_that_makes_a_communicator_asks_who_has_gone)
{
  pthread_t threads[2];
  creation creations[2];
  WEFT_AUTO(weft_kv) kv = NULL;

  gpus_use("nccl");
  gpus();
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  inject(NULL, "absent:1");
  T_OK(weft_kv_local_new(&kv));
  for (int r = 0; r < 2; r++) {
    creations[r] = (creation){.rank = r, .spec = {.kv = kv, .name = "asking", .size = 2, .rank_count = 1, .gone = note_who_asks,
                                                  .deadline = weft_deadline_after_ms(DEADLINE_MS)}};
    gpus_bring(&creations[r].spec);
    pthread_create(&threads[r], NULL, make_and_ask, &creations[r]);
  }
  for (int r = 0; r < 2; r++) {
    pthread_join(threads[r], NULL);
    T_EQ_INT(weft_status_code(creations[r].st), WEFT_DEADLINE_EXCEEDED);
    weft_status_free(creations[r].st);
  }
  T_TRUE(atomic_load(&asked) > 0);
  T_EQ_INT(atomic_load(&asked_by_others), 0);
  inject(NULL, NULL);
  gpus_close();
}

/* ---- a death ----------------------------------------------------------------------------------------------------- */

/* A communicator of the first `size` of processes whose incarnations are 1001, 1002, ... */
static void open_known(world *w, int size, const char *name)
{
  pthread_t threads[MOST_RANKS];
  creation creations[MOST_RANKS];

  *w = (world){.size = size};
  T_OK(weft_kv_local_new(&w->kv));
  for (int r = 0; r < size; r++) {
    creations[r] = (creation){.rank = r, .spec = {.kv = w->kv, .name = name, .size = size, .rank_count = 1, .incarnation = 1001 + (uint64_t)r}};
    gpus_bring(&creations[r].spec);
    pthread_create(&threads[r], NULL, create_one, &creations[r]);
  }
  for (int r = 0; r < size; r++) {
    pthread_join(threads[r], NULL);
    T_OK(creations[r].st);
    w->comms[r] = creations[r].comm;
  }
}

static weft_status *run_sum(world *w)
{
  weft_coll_op ops[MOST_RANKS];

  for (int r = 0; r < w->size; r++) ops[r] = operation(WEFT_ALL_REDUCE, WEFT_F32, r, w->size);
  return world_run(w, ops, NULL);
}

TEST(a_death_ends_the_communicators_with_the_dead_and_no_other)
{
  world all, pair, three;

  gpus_use("nccl");
  gpus();
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  inject(NULL, NULL);
  open_known(&all, 4, "all");
  open_known(&pair, 2, "pair");
  open_known(&three, 3, "three");
  T_OK(run_sum(&all));
  weft_coll_incarnation_died(1003, "heartbeats stopped");
  T_FAILS(run_sum(&all), "incarnation id 1003 is not connected");
  T_FAILS(run_sum(&three), "incarnation id 1003 is not connected");
  for (int i = 0; i < 3; i++) T_OK(run_sum(&pair));
  world_close(&all);
  world_close(&three);
  world_close(&pair);
  gpus_close();
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The number behind `before` and " size=\"", where that is last in the text. */
static int64_t size_after(const char *text, const char *before)
{
  const char *at = NULL, *size;

  for (const char *next = text; (next = strstr(next, before)); next++) at = next;
  size = at ? strstr(at, " size=\"") : NULL;
  return size ? strtoll(size + 7, NULL, 10) : 0;
}

/* Bytes that are allocated in all of malloc's arenas. */
static int64_t heap_bytes(void)
{
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);

  assert_non_null(out);
  assert_int_equal(malloc_info(0, out), 0);
  fclose(out);
  int64_t bytes = size_after(text, "<system type=\"current\"") + size_after(text, "<total type=\"mmap\"") -
                  size_after(text, "<total type=\"fast\"") - size_after(text, "<total type=\"rest\"");
  free(text);
  return bytes;
}

/* A communicator of two whose library reports an error in the first operation. */
static void survive_one(void)
{
  world w;

  inject(NULL, "async:1@1=6");
  world_open_processes(&w, 2, NULL);
  weft_coll_op ops[MOST_RANKS] = {operation(WEFT_ALL_REDUCE, WEFT_F32, 0, 2), operation(WEFT_ALL_REDUCE, WEFT_F32, 1, 2)};
  weft_status *st = world_run(&w, ops, NULL);
  if (!st) fail_msg("it ended well");
  weft_status_free(st);
  world_close(&w);
}

/* Nothing of a fault stays. What the emulator keeps is not counted; its next block of 256 KiB would be, where the cells
 * before this test have filled the last one. */
TEST(a_process_that_survives_faults_does_not_grow)
{
  enum { FIRST = 20, FAULTS = 60, MOST_BYTES = 1024 };

  if (getenv("WEFT_SANITIZED")) T_SKIP("the heap is the sanitizer's");
  gpus_use("nccl");
  gpus();
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  *(void **)&emu_kept_bytes = emulated_symbol("libcuda.so.1", "weft_emu_kept_bytes");
  for (int i = 0; i < FIRST; i++) survive_one();
  int64_t before = heap_bytes() - (int64_t)emu_kept_bytes();
  for (int i = 0; i < FAULTS; i++) survive_one();
  int64_t each = (heap_bytes() - (int64_t)emu_kept_bytes() - before) / FAULTS;
  print_message("# %lld bytes for each fault\n", (long long)each);
  if (each > MOST_BYTES) fail_msg("each fault leaves %lld bytes", (long long)each);
  inject(NULL, NULL);
  gpus_close();
}

TEST(every_fault_of_every_operation_between_peers) { run_all(PEERS); }
TEST(every_fault_of_every_operation_with_multicast) { run_all(MULTICAST); }
TEST(every_fault_of_every_operation_by_nccl) { run_all(NCCL); }
TEST(every_fault_of_every_operation_by_nccl_between_processes) { run_all(NCCL_OF_PROCESSES); }

TEST_MAIN(UNIT(every_fault_of_every_operation_between_peers), UNIT(every_fault_of_every_operation_with_multicast), UNIT(every_fault_of_every_operation_by_nccl),
          UNIT(every_fault_of_every_operation_by_nccl_between_processes), UNIT(making_a_communicator_can_be_cancelled),
          UNIT(a_call_of_the_library_that_does_not_return_delays_nobody),
          UNIT(only_the_thread_that_makes_a_communicator_asks_who_has_gone),
          UNIT(a_death_ends_the_communicators_with_the_dead_and_no_other), UNIT(a_process_that_survives_faults_does_not_grow))
