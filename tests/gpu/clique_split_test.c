/* tests/gpu/clique_split_test.c -- cliques of a program that come about by dividing the communicator of a larger one,
 * on platform "cuda" over the emulated NCCL: which do, what they compute, and what happens when a division fails. */
enum { DEVICES = 4, MOST_BYTES = 4096 };
#include "collective_programs.h"

#include "collective/clique.h"
#include "collective/world.h"

static int (*misuses)(void);
static void (*emu_reset)(void);
static uint64_t (*emu_calls)(const char *);

static int open_emulator(void **state)
{
  (void)state;
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
  *(void **)&misuses = emulated_symbol("libnccl.so.2", "weft_emu_nccl_misuses");
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  *(void **)&emu_calls = emulated_symbol("libcuda.so.1", "weft_emu_calls");
  emu_calls(NULL); /* counts from now on */
  return 0;
}

/* How many communicators have been made anew and how many ranks have been divided since the last call. */
static void check_calls(const char *what, int made, int divided)
{
  static uint64_t made_before, divided_before;
  uint64_t made_now = emu_calls("ncclCommInitRankConfig"), divided_now = emu_calls("ncclCommSplit");

  if (what && (made_now - made_before != (uint64_t)made || divided_now - divided_before != (uint64_t)divided))
    fail_msg("%s: %d ranks of communicators are made anew, %d are divided; %d and %d are expected", what,
             (int)(made_now - made_before), (int)(divided_now - divided_before), made, divided);
  made_before = made_now;
  divided_before = divided_now;
}

/* ---- programs on the devices of one process ---- */

#define REDUCE(result, of, groups) result " = f32[4,8] all-reduce(" of "), replica_groups={" groups "}, to_apply=f\n"
#define ALL REDUCE("a", "x", "")
#define PAIRS REDUCE("b", "a", "{0,1},{2,3}")
#define CROSSING REDUCE("c", "b", "{0,2},{3,1}")
#define UNEVEN REDUCE("e", "a", "{1,0},{2},{3}")

/* Runs the program twice; the second launch makes nothing. */
static void run_program(weft_platform *gpu, const char *lines, bool no_splitting, int made, int divided)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];
  weft_platform *cpu = platform_called("cpu");
  weft_compile_options options = {.order = BUF_TOPOLOGICAL, .no_comm_splitting = no_splitting};
  hlo_module *module;
  weft_executable *exe, *on_cpu;
  char text[4096];

  program(text, sizeof text, "f32", "add", lines);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(gpu, module, &options, &exe));
  on_cpu = compile(cpu, text);
  launch_well(on_cpu, want);
  for (int i = 0; i < 2; i++) {
    check_calls(NULL, 0, 0);
    memset(got, 0, sizeof got);
    launch_well(exe, got);
    check_calls(lines, i ? 0 : made, i ? 0 : divided);
    for (int d = 0; d < DEVICES; d++)
      if (memcmp(got[d], want[d], 4 * 8 * 4) != 0) fail_msg("%s: device %d differs", lines, d);
  }
  weft_executable_release(exe);
  weft_executable_release(on_cpu);
  weft_platform_release(cpu);
}

TEST(groups_of_a_program_are_split_off_the_largest)
{
  static const char *const ways[] = {"nccl", "auto"};

  for (size_t i = 0; i < WEFT_COUNT(ways); i++) {
    setenv("WEFT_CUDA_COLLECTIVES", ways[i], 1);
    weft_platform *gpu = platform_called("cuda");
    run_program(gpu, ALL PAIRS CROSSING "ROOT r = f32[4,8] add(b, c)", false, DEVICES, 2 * DEVICES);
    weft_platform_release(gpu);
    gpu = platform_called("cuda");
    run_program(gpu, ALL UNEVEN "ROOT r = f32[4,8] add(a, e)", false, DEVICES, DEVICES);
    weft_platform_release(gpu);
  }
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
  T_EQ_INT(misuses(), 0);
}

TEST(a_program_or_a_setting_makes_each_anew)
{
  weft_platform *gpu = platform_called("cuda");

  run_program(gpu, ALL PAIRS CROSSING "ROOT r = f32[4,8] add(b, c)", true, 3 * DEVICES, 0);
  weft_platform_release(gpu);
  setenv("WEFT_CUDA_SPLIT", "0", 1);
  gpu = platform_called("cuda");
  run_program(gpu, ALL PAIRS "ROOT r = f32[4,8] add(a, b)", false, 2 * DEVICES, 0);
  weft_platform_release(gpu);
  unsetenv("WEFT_CUDA_SPLIT");
  setenv("WEFT_CUDA_COLLECTIVES", "peers", 1);
  gpu = platform_called("cuda");
  run_program(gpu, ALL PAIRS "ROOT r = f32[4,8] add(a, b)", false, 0, 0);
  weft_platform_release(gpu);
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
}

TEST(communicators_that_are_there_are_kept)
{
  weft_platform *gpu = platform_called("cuda");

  run_program(gpu, REDUCE("a", "x", "{0,1},{2,3}") "ROOT r = f32[4,8] negate(a)", false, DEVICES, 0);
  run_program(gpu, ALL PAIRS "ROOT r = f32[4,8] add(a, b)", false, DEVICES, 0); /* the pairs are there */
  run_program(gpu, ALL PAIRS CROSSING "ROOT r = f32[4,8] add(b, c)", false, 0, DEVICES);
  run_program(gpu, ALL PAIRS CROSSING "ROOT r = f32[4,8] subtract(b, c)", true, 0, 0);
  weft_platform_release(gpu);
  T_EQ_INT(misuses(), 0);
}

/* An error that comes within the deadline and a second; then the next launch works. */
static void fail_once(const char *faults, weft_code code, weft_code other, const char *part)
{
  static char out[DEVICES][MOST_BYTES];
  weft_status *ends[DEVICES];
  char text[4096];

  weft_platform *gpu = platform_called("cuda");
  program(text, sizeof text, "f32", "add", ALL PAIRS "ROOT r = f32[4,8] add(a, b)");
  weft_executable *exe = compile_within(gpu, text, TIMEOUT_MS), *patient = compile(gpu, text);
  setenv("WEFT_EMU_FAULTS", faults, 1);
  emu_reset();
  int64_t began_ns = weft_now_ns();
  launch(exe, out, ends);
  int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
  unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
  check_ends(faults, ends, code, other, part);
  if (took_ms > TIMEOUT_MS + 1000 + 8000) fail_msg("%s: %lld ms", faults, (long long)took_ms);
  launch_well(patient, out);
  weft_executable_release(exe);
  weft_executable_release(patient);
  weft_platform_release(gpu);
  T_EQ_INT(misuses(), 0);
}

TEST(a_division_that_fails_is_the_runs_error)
{
  fail_once("ncclCommSplit:2=3", WEFT_INTERNAL, WEFT_INTERNAL, "ncclCommSplit: internal error");
  fail_once("ncclCommSplit:3=delay:4s", WEFT_DEADLINE_EXCEEDED, WEFT_DEADLINE_EXCEEDED, "NCCL");
  fail_once("cuStreamCreateWithPriority:6=2", WEFT_RESOURCE_EXHAUSTED, WEFT_RESOURCE_EXHAUSTED, "");
}

/* ---- cliques of four processes with a GPU each ---- */

enum { PROCESSES = DEVICES, WHOLE = 0, PAIR = 1, PATIENCE_MS = 20000 };

static const int64_t all_devices[] = {0, 1, 2, 3}, pairs[][2] = {{1, 0}, {2, 3}};
static uint64_t first_incarnation = 500; /* other ones for each test, since the dead stay dead */

typedef struct processes {
  weft_kv *kv;
  coll_cliques *cliques[PROCESSES];
  coll_clique_hold *holds[PROCESSES];
  weft_event *ready[PROCESSES];
} processes;

static void begin(processes *p)
{
  *p = (processes){.kv = NULL};
  first_incarnation += 10;
  T_OK(weft_kv_local_new(&p->kv));
  for (int i = 0; i < PROCESSES; i++)
    T_OK(coll_cliques_new(p->kv, "job", &(coll_clique_factory){gpus()->ops->communicator, gpus()}, &p->cliques[i]));
  check_calls(NULL, 0, 0);
}

static void finish(processes *p)
{
  for (int i = 0; i < PROCESSES; i++) coll_cliques_free(p->cliques[i]);
  weft_kv_destroy(p->kv);
  gpus_close();
}

typedef enum wanted { ONLY_WHOLE, ONLY_PAIR, BOTH_DIVIDED, BOTH_ANEW } wanted;

static void acquire(processes *p, int i, wanted what, int timeout_ms)
{
  static const int parts[] = {PAIR};
  const int rank = i, rank_in_pair = pairs[i / 2][0] == i ? 0 : 1;
  uint64_t all_incarnations[PROCESSES], pair_incarnations[2];
  for (int k = 0; k < PROCESSES; k++) all_incarnations[k] = first_incarnation + (uint64_t)k;
  for (int k = 0; k < 2; k++) pair_incarnations[k] = all_incarnations[pairs[i / 2][k]];
  coll_clique_request requests[] = {
    [WHOLE] = {{all_devices, all_incarnations, PROCESSES, COLL_FOR_COLLECTIVES}, &rank, 1},
    [PAIR] = {{pairs[i / 2], pair_incarnations, 2, COLL_FOR_COLLECTIVES}, &rank_in_pair, 1}};
  coll_clique_division division = {77, WHOLE, parts, what == BOTH_DIVIDED};

  T_OK(coll_cliques_acquire_divided(p->cliques[i], requests + (what == ONLY_PAIR), what <= ONLY_PAIR ? 1 : 2, &division,
                                    what > ONLY_PAIR, weft_deadline_after_ms(timeout_ms), &p->holds[i], &p->ready[i]));
}

/* How the acquisition of process `i` has ended.  Releases what it holds after an error. */
static weft_status *end_of(processes *p, int i)
{
  weft_status *st = weft_event_await(p->ready[i], weft_deadline_after_ms(PATIENCE_MS + 20000));

  weft_event_release(WEFT_MOVE(p->ready[i]));
  if (st) coll_clique_hold_release(WEFT_MOVE(p->holds[i]));
  return st;
}

static void release(processes *p)
{
  for (int i = 0; i < PROCESSES; i++) coll_clique_hold_release(WEFT_MOVE(p->holds[i]));
}

/* Each rank's sum over its communicator. */
static void check_sums(weft_comm **comms, int size)
{
  world w = {.size = size};
  float in[PROCESSES][100], out[PROCESSES][100];
  weft_coll_op ops[PROCESSES];

  for (int r = 0; r < size; r++) {
    T_EQ_INT(weft_comm_size(comms[r]), size);
    T_EQ_INT(weft_comm_rank(comms[r]), r);
    w.comms[r] = comms[r];
    for (int e = 0; e < 100; e++) in[r][e] = (float)(r + e);
    ops[r] = (weft_coll_op){
      .kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .count = 100, .reduction = WEFT_SUM, .send = in[r], .recv = out[r]};
  }
  T_OK(world_run(&w, ops, NULL));
  for (int r = 0; r < size; r++)
    for (int e = 0; e < 100; e++) assert_true(out[r][e] == (float)(size * (size - 1) / 2 + size * e));
}

/* All processes have their cliques: these work.  Releases them. */
static void check_holds(processes *p)
{
  weft_comm *whole[PROCESSES], *pair[2];

  for (int i = 0; i < PROCESSES; i++) T_OK(end_of(p, i));
  for (int i = 0; i < PROCESSES; i++) whole[i] = coll_clique_hold_comm(p->holds[i], WHOLE, i);
  check_sums(whole, PROCESSES);
  for (int k = 0; k < 2; k++) {
    for (int r = 0; r < 2; r++) pair[r] = coll_clique_hold_comm(p->holds[pairs[k][r]], PAIR, r);
    check_sums(pair, 2);
    T_EQ_INT(weft_comm_incarnation(pair[0], 1), first_incarnation + (uint64_t)pairs[k][1]);
  }
  check_sums(whole, PROCESSES);
  release(p);
}

static void acquire_all(processes *p, wanted what)
{
  for (int i = PROCESSES - 1; i >= 0; i--) acquire(p, i, what, PATIENCE_MS);
}

TEST(processes_divide_together)
{
  processes p;

  gpus_use("nccl");
  begin(&p);
  acquire_all(&p, BOTH_DIVIDED);
  check_holds(&p);
  check_calls("first", PROCESSES, PROCESSES);
  acquire_all(&p, BOTH_DIVIDED);
  check_holds(&p);
  check_calls("again", 0, 0);
  finish(&p);
}

/* A process that does not want to divide, or has the pair already, takes part without joining one. */
TEST(processes_that_differ_agree)
{
  processes p;

  gpus_use("nccl");
  begin(&p);
  for (int i = 0; i < PROCESSES; i++) acquire(&p, i, i == 0 ? BOTH_ANEW : BOTH_DIVIDED, PATIENCE_MS);
  check_holds(&p);
  check_calls("one process makes its pair anew", PROCESSES + 2, PROCESSES);
  finish(&p);
  begin(&p);
  for (int i = 0; i < 2; i++) acquire(&p, i, ONLY_PAIR, PATIENCE_MS);
  for (int i = 0; i < 2; i++) T_OK(end_of(&p, i));
  release(&p);
  check_calls("a pair", 2, 0);
  acquire_all(&p, BOTH_DIVIDED);
  check_holds(&p);
  check_calls("the other pair", PROCESSES, PROCESSES);
  finish(&p);
  begin(&p);
  acquire_all(&p, BOTH_ANEW);
  check_holds(&p);
  check_calls("nobody divides", PROCESSES + 4, 0);
  finish(&p);
}

/* The pairs of one process may be peers, which a communicator of several processes has not. */
TEST(pairs_within_a_process_have_peers)
{
  static const int both[] = {0, 1}, parts[] = {1};
  const int64_t mine[2][2] = {{0, 1}, {2, 3}};
  const uint64_t incarnations[] = {7, 7, 8, 8};
  coll_cliques *cs[2];
  coll_clique_hold *holds[2];
  weft_event *ready[2];
  weft_kv *kv;

  gpus_use("auto");
  T_OK(weft_kv_local_new(&kv));
  check_calls(NULL, 0, 0);
  for (int i = 0; i < 2; i++) {
    const int ranks[] = {2 * i, 2 * i + 1};
    coll_clique_request requests[] = {{{all_devices, incarnations, 4, COLL_FOR_COLLECTIVES}, ranks, 2},
                                      {{mine[i], incarnations + 2 * i, 2, COLL_FOR_COLLECTIVES}, both, 2}};
    T_OK(coll_cliques_new(kv, "job", &(coll_clique_factory){gpus()->ops->communicator, gpus()}, &cs[i]));
    T_OK(coll_cliques_acquire_divided(cs[i], requests, 2, &(coll_clique_division){5, 0, parts, 1}, 1,
                                      weft_deadline_after_ms(PATIENCE_MS), &holds[i], &ready[i]));
  }
  for (int i = 0; i < 2; i++) {
    char text[1000];
    T_OK(weft_event_await(ready[i], weft_deadline_after_ms(PATIENCE_MS)));
    weft_comm *pair[2] = {coll_clique_hold_comm(holds[i], 1, 0), coll_clique_hold_comm(holds[i], 1, 1)};
    const coll_communicator *c = pair[0]->group->communicator;
    c->ops->describe(c, text, sizeof text);
    if (!strstr(text, "kernels and copies between 2 devices")) fail_msg("%s", text);
    check_sums(pair, 2);
  }
  check_calls("both kinds", 8, 0);
  for (int i = 0; i < 2; i++) {
    coll_clique_hold_release(holds[i]);
    weft_event_release(ready[i]);
  }
  for (int i = 0; i < 2; i++) coll_cliques_free(cs[i]);
  weft_kv_destroy(kv);
  gpus_close();
}

/* The whole is there; process 3 does not come to the division. */
static void begin_without_the_last(processes *p, int timeout_ms)
{
  gpus_use("nccl");
  begin(p);
  acquire_all(p, ONLY_WHOLE);
  for (int i = 0; i < PROCESSES; i++) T_OK(end_of(p, i));
  release(p);
  for (int i = 0; i < PROCESSES - 1; i++) acquire(p, i, BOTH_DIVIDED, timeout_ms);
}

/* After an error of the whole: a process that has not heard of it hears now, and then all have their cliques. */
static void check_next(processes *p, bool has_last)
{
  if (has_last) {
    acquire(p, PROCESSES - 1, BOTH_DIVIDED, PATIENCE_MS);
    weft_status *st = end_of(p, PROCESSES - 1);
    if (!st) fail_msg("the last process has the old communicator");
    weft_status_free(st);
    acquire_all(p, BOTH_DIVIDED);
    check_holds(p);
  }
  finish(p);
}

TEST(a_process_that_does_not_come_is_named)
{
  enum { TIMEOUT = 1000 };
  processes p;
  bool named = false;

  begin_without_the_last(&p, TIMEOUT);
  int64_t began_ns = weft_now_ns();
  for (int i = 0; i < PROCESSES - 1; i++) {
    weft_status *st = end_of(&p, i);
    weft_code code = weft_status_code(st);
    if (code != WEFT_DEADLINE_EXCEEDED && code != WEFT_ABORTED) fail_msg("%s", weft_status_text(st, true));
    named |= code == WEFT_DEADLINE_EXCEEDED &&
             strstr(weft_status_message(st), "not arrived: 1 of 4\n    rank 3 (device 3");
    weft_status_free(st);
  }
  int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
  T_TRUE(named);
  if (took_ms > TIMEOUT + 1000 + 8000) fail_msg("%lld ms", (long long)took_ms);
  check_next(&p, true);
}

TEST(a_run_that_is_cancelled_does_not_wait)
{
  processes p;

  begin_without_the_last(&p, PATIENCE_MS);
  usleep(50000);
  int64_t began_ns = weft_now_ns();
  coll_clique_hold_release(WEFT_MOVE(p.holds[0]));
  weft_status *st = weft_event_await(p.ready[0], weft_deadline_after_ms(PATIENCE_MS));
  weft_event_release(WEFT_MOVE(p.ready[0]));
  T_EQ_INT(weft_status_code(st), WEFT_CANCELLED);
  weft_status_free(st);
  for (int i = 1; i < PROCESSES - 1; i++) {
    st = end_of(&p, i);
    T_EQ_INT(weft_status_code(st), WEFT_ABORTED);
    if (!strstr(weft_status_message(st), "was cancelled")) fail_msg("%s", weft_status_text(st, true));
    weft_status_free(st);
  }
  if (weft_now_ns() - began_ns > PATIENCE_MS / 2 * WEFT_NS_PER_MS) fail_msg("it ends by the deadline only");
  check_next(&p, true);
}

TEST(a_death_ends_a_division)
{
  processes p;

  begin_without_the_last(&p, PATIENCE_MS);
  usleep(50000);
  int64_t began_ns = weft_now_ns();
  for (int i = 0; i < PROCESSES - 1; i++)
    coll_cliques_incarnation_died(p.cliques[i], first_incarnation + 3, "it was killed");
  for (int i = 0; i < PROCESSES - 1; i++) {
    weft_status *st = end_of(&p, i);
    T_EQ_INT(weft_status_code(st), WEFT_FAILED_PRECONDITION);
    if (!strstr(weft_status_message(st), "Task with incarnation id")) fail_msg("%s", weft_status_text(st, true));
    weft_status_free(st);
  }
  if (weft_now_ns() - began_ns > PATIENCE_MS / 2 * WEFT_NS_PER_MS) fail_msg("it ends by the deadline only");
  /* the pair of the living is made anew */
  for (int i = 0; i < 2; i++) acquire(&p, i, ONLY_PAIR, PATIENCE_MS);
  for (int i = 0; i < 2; i++) T_OK(end_of(&p, i));
  release(&p);
  check_next(&p, false);
}

/* What fails, or does not return, on one rank, ends the division on all. */
static void fail_among_processes(const char *faults, weft_code code, const char *says)
{
  processes p;
  bool said = false;

  gpus_use("nccl");
  begin(&p);
  setenv("WEFT_EMU_FAULTS", faults, 1);
  emu_reset();
  for (int i = 0; i < PROCESSES; i++) acquire(&p, i, BOTH_DIVIDED, 3000);
  for (int i = 0; i < PROCESSES; i++) {
    weft_status *st = end_of(&p, i);
    if (!st) fail_msg("%s: process %d has its cliques", faults, i);
    said |= weft_status_code(st) == code && strstr(weft_status_text(st, true), says);
    weft_status_free(st);
  }
  unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
  if (!said) fail_msg("%s: no process says \"%s\"", faults, says);
  acquire_all(&p, BOTH_DIVIDED);
  check_holds(&p);
  finish(&p);
}

TEST(a_failure_of_one_process_ends_all)
{
  fail_among_processes("ncclCommSplit:2=3", WEFT_INTERNAL, "ncclCommSplit");
  fail_among_processes("ncclCommSplit:4=2", WEFT_UNAVAILABLE, "ncclCommSplit");
  fail_among_processes("ncclCommSplit:2=delay:8s", WEFT_DEADLINE_EXCEEDED, "NCCL");
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(groups_of_a_program_are_split_off_the_largest), UNIT(a_program_or_a_setting_makes_each_anew),
    UNIT(communicators_that_are_there_are_kept), UNIT(a_division_that_fails_is_the_runs_error),
    UNIT(processes_divide_together), UNIT(processes_that_differ_agree), UNIT(pairs_within_a_process_have_peers),
    UNIT(a_process_that_does_not_come_is_named), UNIT(a_run_that_is_cancelled_does_not_wait),
    UNIT(a_death_ends_a_division), UNIT(a_failure_of_one_process_ends_all)};
  return cmocka_run_group_tests(units, open_emulator, NULL);
}
