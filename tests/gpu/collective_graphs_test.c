/* tests/gpu/collective_graphs_test.c -- collectives of NCCL in CUDA graphs, also in loops: the bits of collectives
 * outside of graphs, one launch for all steps, and what goes wrong: devices that hang, errors of the library, calls
 * that fail while a graph is recorded, ranks that are late.  The emulated NCCL notices graphs that outlive their
 * communicator. */
enum { DEVICES = 4, MOST_BYTES = 4096 };
#include "collective_programs.h"

#include "runtime/runtime_internal.h"
#include "runtime/trace.h"

enum { OPS = 4 /* operations of the program on each device */, BYTES = 4 * 8 * 4 };

static int (*misuses)(void);
static void (*emu_reset)(void);
static size_t (*emu_leaks)(char *, size_t);
static uint64_t (*emu_calls)(const char *);

#define STEPS                                                                      \
  "y = f32[4,8] add(x, x)\n"                                                       \
  " u = f32[4,8] all-reduce(y), replica_groups={}, to_apply=f\n"                   \
  " w = f32[4,8] multiply(u, u)\n"                                                 \
  " g = f32[16,8] all-gather(w), replica_groups={}, dimensions={0}\n"              \
  " n2 = f32[16,8] negate(g)\n"                                                    \
  " h = f32[4,8] reduce-scatter(n2), replica_groups={}, dimensions={0}, to_apply=f\n" \
  " q = f32[4,8] add(h, x)\n"                                                      \
  " p = f32[4,8] collective-permute(q), source_target_pairs={{0,1},{1,2},{3,3}}\n" \
  " ROOT r = f32[4,8] add(p, q)"

static int open_emulator(void **state)
{
  (void)state;
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
  *(void **)&misuses = emulated_symbol("libnccl.so.2", "weft_emu_nccl_misuses");
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  *(void **)&emu_leaks = emulated_symbol("libcuda.so.1", "weft_emu_leaks");
  *(void **)&emu_calls = emulated_symbol("libcuda.so.1", "weft_emu_calls");
  emu_calls(NULL); /* counts from now on */
  return 0;
}

static weft_executable *compile_steps(weft_platform *platform, bool graphs)
{
  uint32_t kinds = 1u << WEFT_GRAPH_FUSION | (graphs ? 1u << WEFT_GRAPH_COLLECTIVES : 0);
  weft_compile_options options = {.order = BUF_TOPOLOGICAL, .graph_kinds = kinds, .graph_least = 2,
                                  .collective_timeout_ns = TIMEOUT_MS * WEFT_NS_PER_MS};
  hlo_module *module;
  weft_executable *exe;
  char text[4096];

  program(text, sizeof text, "f32", "add", STEPS);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(platform, module, &options, &exe));
  return exe;
}

static void expect(char (*want)[MOST_BYTES])
{
  weft_platform *cpu = platform_called("cpu");
  weft_executable *exe = compile_steps(cpu, false);

  launch_well(exe, want);
  weft_executable_release(exe);
  weft_platform_release(cpu);
}

static void check(const char *what, char (*got)[MOST_BYTES], char (*want)[MOST_BYTES])
{
  for (int d = 0; d < DEVICES; d++)
    if (memcmp(got[d], want[d], BYTES) != 0) fail_msg("%s: device %d differs from the CPU", what, d);
}

static void check_nothing_is_left(void)
{
  char text[1000];

  T_EQ_INT(misuses(), 0);
  if (emu_leaks(text, sizeof text) != 0) fail_msg("%s", text);
}

/* Launches the program six times; the library gets each of its calls `calls` times for each device. */
static void run(const char *what, bool graphs, uint64_t calls)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];

  expect(want);
  weft_platform *gpu = platform_called("cuda");
  weft_executable *exe = compile_steps(gpu, graphs);
  uint64_t before = emu_calls("cuGraphLaunch"), queued = emu_calls("ncclAllReduce");
  for (int i = 0; i < 6; i++) {
    memset(got, 0, sizeof got);
    launch_well(exe, got);
    check(what, got, want);
  }
  if (emu_calls("ncclAllReduce") - queued != calls * DEVICES)
    fail_msg("%s: %d calls of the library", what, (int)(emu_calls("ncclAllReduce") - queued));
  if (calls == 2) T_EQ_INT(emu_calls("cuGraphLaunch") - before, 5 * DEVICES); /* one for each run but the first */
  weft_executable_release(exe);
  weft_platform_release(gpu);
  check_nothing_is_left();
}

TEST(collectives_are_part_of_graphs_when_asked_for) { run("graphs", true, 2); }
TEST(without_the_option_they_are_not) { run("no graphs", false, 6); }

TEST(a_library_that_takes_its_time_records_too)
{
  setenv("WEFT_EMU_NCCL", "polls:3", 1);
  run("polls", true, 2);
  unsetenv("WEFT_EMU_NCCL");
}

TEST(memory_of_collectives_is_registered_in_graphs)
{
  setenv("WEFT_CUDA_COLLECTIVE_MEMORY", "1", 1);
  run("windows", true, 2);
  unsetenv("WEFT_CUDA_COLLECTIVE_MEMORY");
}

/* Peers have the small operations: the steps run one by one. */
TEST(what_peers_move_is_in_no_graph)
{
  setenv("WEFT_CUDA_COLLECTIVES", "auto", 1);
  run("peers", true, 0);
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
}

/* ---- loops ---- */

/* FEW_OPS: operations of a device without the inner loop. LOOP_MS: the deadline of one, where some do not end. */
enum { ROUNDS = 10, INNER = 9, LAUNCHES = 6, FEW_OPS = ROUNDS + 1, LOOP_MS = 500 };

/* A loop with a collective and `inner` rounds of a loop with another one, and a collective behind it. `bound`: the
 * number of rounds, or what computes it. */
static void loop_program(char *text, size_t size, const char *bound, int inner)
{
  snprintf(text, size,
           "HloModule m, replica_count=4\n"
           "f {\n"
           "  a = f32[] parameter(0)\n"
           "  b = f32[] parameter(1)\n"
           "  ROOT r = f32[] add(a, b)\n"
           "}\n"
           "inner {\n"
           "  s = (s32[], f32[4,8], f32[4,8]) parameter(0)\n"
           "  i = s32[] get-tuple-element(s), index=0\n"
           "  x = f32[4,8] get-tuple-element(s), index=1\n"
           "  y = f32[4,8] get-tuple-element(s), index=2\n"
           "  one = s32[] constant(1)\n"
           "  j = s32[] add(i, one)\n"
           "  p = f32[4,8] collective-permute(x), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}\n"
           "  z = f32[4,8] add(p, y)\n"
           "  ROOT t = (s32[], f32[4,8], f32[4,8]) tuple(j, p, z)\n"
           "}\n"
           "inner_cond {\n"
           "  s = (s32[], f32[4,8], f32[4,8]) parameter(0)\n"
           "  i = s32[] get-tuple-element(s), index=0\n"
           "  n = s32[] constant(%d)\n"
           "  ROOT c = pred[] compare(i, n), direction=LT\n"
           "}\n"
           "outer {\n"
           "  s = (s32[], s32[], f32[4,8]) parameter(0)\n"
           "  i = s32[] get-tuple-element(s), index=0\n"
           "  n = s32[] get-tuple-element(s), index=1\n"
           "  x = f32[4,8] get-tuple-element(s), index=2\n"
           "  one = s32[] constant(1)\n"
           "  j = s32[] add(i, one)\n"
           "  u = f32[4,8] all-reduce(x), replica_groups={}, to_apply=f\n"
           "  zero = s32[] constant(0)\n"
           "  w = (s32[], f32[4,8], f32[4,8]) tuple(zero, u, x)\n"
           "  v = (s32[], f32[4,8], f32[4,8]) while(w), condition=inner_cond, body=inner\n"
           "  vy = f32[4,8] get-tuple-element(v), index=2\n"
           "  y = f32[4,8] add(vy, u)\n"
           "  q = f32[] constant(0.0625)\n"
           "  qb = f32[4,8] broadcast(q), dimensions={}\n"
           "  m = f32[4,8] multiply(y, qb)\n"
           "  z = f32[4,8] floor(m)\n"
           "  ROOT t = (s32[], s32[], f32[4,8]) tuple(j, n, z)\n"
           "}\n"
           "outer_cond {\n"
           "  s = (s32[], s32[], f32[4,8]) parameter(0)\n"
           "  i = s32[] get-tuple-element(s), index=0\n"
           "  n = s32[] get-tuple-element(s), index=1\n"
           "  %s\n"
           "  ROOT c = pred[] compare(i, b), direction=LT\n"
           "}\n"
           "ENTRY e {\n"
           "  d = u32[] replica-id()\n"
           "  s = s32[] convert(d)\n"
           "  o = s32[4,8] broadcast(s), dimensions={}\n"
           "  io = s32[4,8] iota(), iota_dimension=1\n"
           "  k = s32[4,8] add(io, o)\n"
           "  x = f32[4,8] convert(k)\n"
           "  zero = s32[] constant(0)\n"
           "  ten = s32[] constant(10)\n"
           "  sm = s32[] multiply(s, zero)\n"
           "  n = s32[] add(sm, ten)\n"
           "  g = u32[] partition-id()\n"
           "  gs = s32[] convert(g)\n"
           "  nn = s32[] add(n, gs)\n"
           "  t = (s32[], s32[], f32[4,8]) tuple(zero, nn, x)\n"
           "  w = (s32[], s32[], f32[4,8]) while(t), condition=outer_cond, body=outer\n"
           "  y = f32[4,8] get-tuple-element(w), index=2\n"
           "  ROOT r = f32[4,8] all-reduce(y), replica_groups={}, to_apply=f\n"
           "}\n",
           inner, bound);
}

#define KNOWN "b = s32[] constant(10)"
#define NOT_KNOWN "b = s32[] copy(n)"

static weft_executable *compile_loop(weft_platform *platform, const char *bound, int inner, uint32_t kinds,
                                     int64_t timeout_ms)
{
  weft_compile_options options = {.order = BUF_TOPOLOGICAL, .graph_kinds = kinds, .graph_least = 2,
                                  .collective_timeout_ns = timeout_ms * WEFT_NS_PER_MS};
  static char text[6000];
  hlo_module *module;
  weft_executable *exe;

  loop_program(text, sizeof text, bound, inner);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(platform, module, &options, &exe));
  return exe;
}

static void expect_loop(char (*want)[MOST_BYTES], const char *bound, int inner)
{
  weft_platform *cpu = platform_called("cpu");
  weft_executable *exe = compile_loop(cpu, bound, inner, 0, PATIENT_MS);

  launch_well(exe, want);
  weft_executable_release(exe);
  weft_platform_release(cpu);
}

#define LOOPS_TOO (1u << WEFT_GRAPH_FUSION | 1u << WEFT_GRAPH_WHILE | 1u << WEFT_GRAPH_COLLECTIVES)

/* The library gets the all-reduces of all rounds twice for each device: of the first launch and of the recording; and a
 * launch after that is one graph. Otherwise the host drives the loop: its all-reduces are called for in each launch, or
 * twice if those of one round are a graph. */
static void run_loop(const char *what, const char *bound, uint32_t kinds, bool in_graph)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];

  expect_loop(want, bound, INNER);
  weft_platform *gpu = platform_called("cuda");
  weft_executable *exe = compile_loop(gpu, bound, INNER, kinds, PATIENT_MS);
  uint64_t before = emu_calls("cuGraphLaunch"), queued = emu_calls("ncclAllReduce");
  for (int i = 0; i < LAUNCHES; i++) {
    memset(got, 0, sizeof got);
    launch_well(exe, got);
    check(what, got, want);
  }
  uint64_t launches = emu_calls("cuGraphLaunch") - before, calls = emu_calls("ncclAllReduce") - queued;
  if (in_graph && (launches != (LAUNCHES - 1) * DEVICES || calls != 2 * (ROUNDS + 1) * DEVICES))
    fail_msg("%s: %d launches of graphs, %d calls of the library", what, (int)launches, (int)calls);
  if (!in_graph && launches == (LAUNCHES - 1) * DEVICES) fail_msg("%s: the loop is part of a graph", what);
  weft_executable_release(exe);
  weft_platform_release(gpu);
  check_nothing_is_left();
}

TEST(a_loop_with_a_known_number_of_rounds_is_part_of_a_graph) { run_loop("a loop", KNOWN, LOOPS_TOO, true); }

TEST(loops_need_no_conditional_nodes)
{
  setenv("WEFT_EMU_VERSION", "12020", 1);
  emu_reset();
  run_loop("an older driver", KNOWN, LOOPS_TOO, true);
  unsetenv("WEFT_EMU_VERSION");
  emu_reset();
}

TEST(other_loops_with_collectives_are_driven_by_the_host)
{
  run_loop("rounds that are not known", NOT_KNOWN, LOOPS_TOO, false);
  run_loop("no loops asked for", KNOWN, LOOPS_TOO & ~(1u << WEFT_GRAPH_WHILE), false);
  run_loop("no collectives asked for", KNOWN, LOOPS_TOO & ~(1u << WEFT_GRAPH_COLLECTIVES), false);
  setenv("WEFT_CUDA_GRAPH_UNROLL", "99", 1);
  run_loop("too many steps", KNOWN, LOOPS_TOO, false);
  unsetenv("WEFT_CUDA_GRAPH_UNROLL");
  setenv("WEFT_CUDA_GRAPH_LOOPS", "0", 1);
  run_loop("no loops", KNOWN, LOOPS_TOO, false);
  unsetenv("WEFT_CUDA_GRAPH_LOOPS");
}

/* The fault comes in the third launch, which is a graph; it may take `most_ms`, and 20 s on a busy machine. */
static void fail_third_launch(weft_platform *gpu, weft_executable *exe, char want[DEVICES][MOST_BYTES],
                              const char *nccl, weft_code code, weft_code other, const char *part, int64_t most_ms)
{
  static char got[DEVICES][MOST_BYTES];
  weft_status *ends[DEVICES];

  setenv("WEFT_EMU_NCCL", nccl, 1);
  launch_well(exe, got);
  unsetenv("WEFT_EMU_NCCL");
  launch_well(exe, got);
  int64_t began = weft_now_ns();
  launch(exe, got, ends);
  int64_t took_ms = (weft_now_ns() - began) / WEFT_NS_PER_MS;
  check_ends(nccl, ends, code, other, part);
  if (took_ms > most_ms + 20000) fail_msg("%s: it took %lld ms", nccl, (long long)took_ms);
  for (int i = 0; i < 4; i++) { /* on a new communicator */
    launch_well(exe, got);
    check(nccl, got, want);
  }
  weft_executable_release(exe);
  weft_platform_release(gpu);
  check_nothing_is_left();
}

/* The fault comes in the third launch, which is a graph, in a round of the loop. */
static void fail_in_a_loop(const char *nccl, weft_code code, weft_code other, const char *part)
{
  static char want[DEVICES][MOST_BYTES];

  expect_loop(want, KNOWN, 0);
  weft_platform *gpu = platform_called("cuda");
  fail_third_launch(gpu, compile_loop(gpu, KNOWN, 0, LOOPS_TOO, LOOP_MS), want, nccl, code, other, part,
                    LOOP_MS * FEW_OPS);
}

TEST(what_goes_wrong_in_a_round_of_a_loop_is_the_runs)
{
  char nccl[64];

  snprintf(nccl, sizeof nccl, "silent:2@%d", 2 * FEW_OPS + 5);
  fail_in_a_loop(nccl, WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "is with NCCL");
  snprintf(nccl, sizeof nccl, "async:1@%d=6", 2 * FEW_OPS + 8);
  fail_in_a_loop(nccl, WEFT_UNAVAILABLE, WEFT_UNAVAILABLE, "an injected error of operation");
}

/* The deadlines of a graph's operations, which are many times one deadline, come before the devices count as hung. */
TEST(a_device_that_hangs_in_a_long_graph_is_not_given_up)
{
  enum { HUNG_S = LOOP_MS * (FEW_OPS - 2) / 1000 };
  char nccl[64], hung[16];

  snprintf(nccl, sizeof nccl, "silent:2@%d", 2 * FEW_OPS + 5);
  snprintf(hung, sizeof hung, "%ds", HUNG_S);
  setenv("WEFT_CUDA_TIMEOUT", hung, 1);
  fail_in_a_loop(nccl, WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "is with NCCL");
  unsetenv("WEFT_CUDA_TIMEOUT");
}

/* ---- what goes wrong ---- */

static void fail_in_a_graph(const char *nccl, weft_code code, weft_code other, const char *part)
{
  static char want[DEVICES][MOST_BYTES];

  expect(want);
  weft_platform *gpu = platform_called("cuda");
  fail_third_launch(gpu, compile_steps(gpu, true), want, nccl, code, other, part, OPS * TIMEOUT_MS);
}

TEST(a_device_that_hangs_in_a_graph_ends_at_the_deadline)
{
  fail_in_a_graph("silent:2@10", WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "is with NCCL");
}

TEST(an_error_of_the_library_in_a_graph_is_the_runs)
{
  fail_in_a_graph("async:1@11=6", WEFT_UNAVAILABLE, WEFT_UNAVAILABLE, "an injected error of operation 11");
}

/* No call of the library ends any more from the second launch on, which records: nothing is posted then that has a
 * deadline. */
TEST(a_library_that_hangs_while_a_graph_is_recorded_ends_at_the_deadline)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];
  weft_status *ends[DEVICES];

  expect(want);
  weft_platform *gpu = platform_called("cuda");
  weft_executable *exe = compile_steps(gpu, true);
  launch_well(exe, got);
  setenv("WEFT_EMU_NCCL", "polls:2000000000", 1);
  int64_t began = weft_now_ns();
  launch(exe, got, ends);
  int64_t took_ms = (weft_now_ns() - began) / WEFT_NS_PER_MS;
  unsetenv("WEFT_EMU_NCCL");
  for (int d = 0; d < DEVICES; d++) {
    T_TRUE(ends[d] != NULL);
    weft_status_free(ends[d]);
  }
  if (took_ms > OPS * TIMEOUT_MS + 20000) fail_msg("it took %lld ms", (long long)took_ms);
  launch_well(exe, got); /* on a new communicator */
  check("after it", got, want);
  weft_executable_release(exe);
  weft_platform_release(gpu);
  check_nothing_is_left();
}

/* A call fails while the second launch records: the steps are queued one by one. */
static void fail_to_record(const char *faults)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];

  expect(want);
  weft_platform *gpu = platform_called("cuda");
  weft_executable *exe = compile_steps(gpu, true);
  launch_well(exe, got);
  setenv("WEFT_EMU_FAULTS", faults, 1);
  emu_reset();
  launch_well(exe, got);
  check(faults, got, want);
  unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
  uint64_t before = emu_calls("cuGraphLaunch");
  for (int i = 0; i < 2; i++) {
    launch_well(exe, got);
    check(faults, got, want);
  }
  T_TRUE(emu_calls("cuGraphLaunch") - before == 2 * DEVICES);
  weft_executable_release(exe);
  weft_platform_release(gpu);
  check_nothing_is_left();
}

TEST(steps_are_queued_one_by_one_where_recording_fails)
{
  fail_to_record("cuStreamBeginCapture_v2:2=999");
  fail_to_record("cuGraphInstantiateWithFlags:3=2");
  fail_to_record("ncclAllGather:1=3");
}

/* A launch that fails is the run's error on all devices. */
TEST(a_launch_that_fails_ends_the_run)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];
  weft_status *ends[DEVICES];

  expect(want);
  weft_platform *gpu = platform_called("cuda");
  weft_executable *exe = compile_steps(gpu, true);
  for (int i = 0; i < 2; i++) launch_well(exe, got);
  setenv("WEFT_EMU_FAULTS", "cuGraphLaunch:2=999", 1);
  emu_reset();
  launch(exe, got, ends);
  unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
  check_ends("cuGraphLaunch", ends, WEFT_INTERNAL, WEFT_ABORTED, "cuGraphLaunch");
  for (int i = 0; i < 3; i++) launch_well(exe, got);
  check("after it", got, want);
  weft_executable_release(exe);
  weft_platform_release(gpu);
  check_nothing_is_left();
}

/* A loop of collectives that wait for each other. */
static weft_executable *compile_with_input(weft_platform *gpu, int64_t timeout_ms)
{
  static const char text[] = "HloModule m, replica_count=4\n"
                             "f {\n"
                             "  a = f32[] parameter(0)\n"
                             "  b = f32[] parameter(1)\n"
                             "  ROOT r = f32[] add(a, b)\n"
                             "}\n"
                             "body {\n"
                             "  s = (s32[], f32[8]) parameter(0)\n"
                             "  i = s32[] get-tuple-element(s), index=0\n"
                             "  x = f32[8] get-tuple-element(s), index=1\n"
                             "  one = s32[] constant(1)\n"
                             "  j = s32[] add(i, one)\n"
                             "  y = f32[8] add(x, x)\n"
                             "  u = f32[8] all-reduce(y), replica_groups={}, to_apply=f\n"
                             "  w = f32[8] multiply(u, u)\n"
                             "  v = f32[8] all-reduce(w), replica_groups={}, to_apply=f\n"
                             "  m = f32[8] sqrt(v)\n"
                             "  ROOT t = (s32[], f32[8]) tuple(j, m)\n"
                             "}\n"
                             "cond {\n"
                             "  s = (s32[], f32[8]) parameter(0)\n"
                             "  i = s32[] get-tuple-element(s), index=0\n"
                             "  n = s32[] constant(2)\n"
                             "  ROOT c = pred[] compare(i, n), direction=LT\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[8] parameter(0)\n"
                             "  zero = s32[] constant(0)\n"
                             "  t = (s32[], f32[8]) tuple(zero, x)\n"
                             "  w = (s32[], f32[8]) while(t), condition=cond, body=body\n"
                             "  r = f32[8] get-tuple-element(w), index=1\n"
                             "  ROOT n = f32[8] negate(r)\n"
                             "}\n";
  weft_compile_options options = {.order = BUF_TOPOLOGICAL, .graph_kinds = LOOPS_TOO, .graph_least = 2,
                                  .collective_timeout_ns = timeout_ms * WEFT_NS_PER_MS};
  hlo_module *module;
  weft_executable *exe;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(gpu, module, &options, &exe));
  return exe;
}

enum { LATE_DEVICE = 2 };

/* Launches that program.  The run of LATE_DEVICE does not start, because its input is not there, until `delay_ms` have
 * passed (< 0: it is there), and from then on events are recorded if `trace`.  ends[d]: what device d's result says. */
static void launch_late(weft_platform *gpu, weft_executable *exe, int launch_id, int delay_ms, bool trace,
                        weft_status **ends)
{
  weft_array_type type = {.type = WEFT_F32, .rank = 1, .dims = {8}};
  weft_buffer *in[DEVICES], *result[DEVICES], **outs[DEVICES], *const *ins[DEVICES];
  weft_event *event;

  T_OK(weft_event_new(&event));
  for (int d = 0; d < DEVICES; d++) {
    weft_device *device = weft_platform_device(gpu, d);
    weft_storage *storage;
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    T_OK(rt_storage_new(device, 0, sizeof values, RT_ANYONE, &storage));
    T_OK(weft_device_write(device, NULL, storage->data, values, sizeof values));
    T_OK(weft_buffer_new(device, &type, storage, delay_ms >= 0 && d == LATE_DEVICE ? event : NULL, &in[d]));
    weft_storage_release(storage);
    ins[d] = &in[d];
    outs[d] = &result[d];
  }
  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = launch_id}));
  if (delay_ms >= 0) {
    usleep((useconds_t)delay_ms * 1000);
    if (trace) rt_trace_capture(false);
    weft_event_set(event, NULL);
  }
  for (int d = 0; d < DEVICES; d++) {
    float out[8];
    ends[d] = weft_buffer_to_host(result[d], out, weft_deadline_after_ms(60000));
    /* a round: v = 4 (4 * 2 x)^2, whose root is 16 x */
    if (!ends[d]) assert_true(out[1] == -16.0f * 16.0f * 2.0f);
    weft_buffer_release(result[d]);
    weft_buffer_release(in[d]);
  }
  weft_event_release(event);
}

/* ---- ranks that differ ---- */

/* The result of the permute, and nothing else, lies where the second parameter was, which is donated: `v` reads that
 * parameter before, and is needed after. */
static const char beside_text[] = "HloModule m, replica_count=4, input_output_alias={ {0}: (1, {}, must-alias) }\n"
                                  "f {\n"
                                  "  a = f32[] parameter(0)\n"
                                  "  b = f32[] parameter(1)\n"
                                  "  ROOT r = f32[] add(a, b)\n"
                                  "}\n"
                                  "ENTRY e {\n"
                                  "  x = f32[8] parameter(0)\n"
                                  "  y = f32[8] parameter(1)\n"
                                  "  z = f32[8] add(x, x)\n"
                                  "  u = f32[8] all-reduce(z), replica_groups={}, to_apply=f\n"
                                  "  v = f32[8] subtract(u, y)\n"
                                  "  p = f32[8] collective-permute(x), source_target_pairs={{0,1},{1,2},{2,3},{3,0}},"
                                  " control-predecessors={v}\n"
                                  "  w = f32[8] all-reduce(v), replica_groups={}, to_apply=f,"
                                  " control-predecessors={p}\n"
                                  "  ROOT t = (f32[8], f32[8]) tuple(p, w)\n"
                                  "}\n";

/* Launches that program, with x = y = d + 1.  On `device` x is a view of y's memory, half of which it shares. */
static void launch_beside(weft_platform *gpu, weft_executable *exe, int launch_id, int device)
{
  enum { BYTES_OF = 32, SHIFT = 16, ALL = 64 /* the least block of memory */ };
  weft_array_type type = {.type = WEFT_F32, .rank = 1, .dims = {8}};
  weft_buffer *in[DEVICES][2], *result[DEVICES][2], **outs[DEVICES], *const *ins[DEVICES];

  for (int d = 0; d < DEVICES; d++) {
    weft_device *on = weft_platform_device(gpu, d);
    float values[ALL / 4];
    weft_storage *x, *y;
    for (int e = 0; e < ALL / 4; e++) values[e] = (float)(d + 1);
    T_OK(rt_storage_new(on, 0, BYTES_OF, RT_ANYONE, &y));
    T_OK(weft_device_write(on, NULL, y->data, values, ALL));
    if (d == device) T_OK(weft_storage_view(on, (char *)y->data + SHIFT, BYTES_OF, NULL, NULL, &x));
    else T_OK(rt_storage_new(on, 0, BYTES_OF, RT_ANYONE, &x));
    if (d != device) T_OK(weft_device_write(on, NULL, x->data, values, BYTES_OF));
    T_OK(weft_buffer_new(on, &type, x, NULL, &in[d][0]));
    T_OK(weft_buffer_new(on, &type, y, NULL, &in[d][1]));
    weft_storage_release(x);
    weft_storage_release(y);
    ins[d] = in[d];
    outs[d] = result[d];
  }
  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = launch_id}));
  for (int d = 0; d < DEVICES; d++) {
    float p[8], w[8];
    T_OK(weft_buffer_to_host(result[d][0], p, weft_deadline_after_ms(60000)));
    T_OK(weft_buffer_to_host(result[d][1], w, weft_deadline_after_ms(60000)));
    for (int e = 0; e < 8; e++)
      if (p[e] != (float)((d + 3) % 4 + 1) || w[e] != 4.0f * 20.0f - 10.0f)
        fail_msg("launch %d, device %d: %g and %g at %d", launch_id, d, p[e], w[e], e);
    for (int i = 0; i < 2; i++) {
      weft_buffer_release(result[d][i]);
      weft_buffer_release(in[d][i]);
    }
  }
}

/* One rank has to copy its operand aside, the others launch graphs. */
TEST(an_operand_in_the_way_on_one_rank_only_delays_nobody)
{
  weft_compile_options options = {.order = BUF_TOPOLOGICAL, .graph_kinds = LOOPS_TOO, .graph_least = 2,
                                  .collective_timeout_ns = 10 * TIMEOUT_MS * WEFT_NS_PER_MS};
  weft_platform *gpu = platform_called("cuda");
  hlo_module *module;
  weft_executable *exe;

  T_OK(hlo_parse(beside_text, strlen(beside_text), &module));
  T_OK(weft_compile(gpu, module, &options, &exe));
  int64_t began = weft_now_ns();
  for (int round = 0; round < 12; round++) {
    int device = round > 2 && round % 2 ? round % DEVICES : -1;
    uint64_t before = emu_calls("cuMemAlloc_v2");
    launch_beside(gpu, exe, 1 + round, device);
    if (device >= 0) T_TRUE(emu_calls("cuMemAlloc_v2") > before); /* the operand did lie in the way */
  }
  int64_t took_ms = (weft_now_ns() - began) / WEFT_NS_PER_MS;
  if (took_ms > 10 * TIMEOUT_MS) fail_msg("it took %lld ms", (long long)took_ms);
  weft_executable_release(exe);
  weft_platform_release(gpu);
  check_nothing_is_left();
}

/* Devices 0 to 2 reach each other's memory, device 3 does not.  So of the groups of one collective the first has peers,
 * and the second has NCCL only; the collectives around it are of all devices. */
static void run_with_groups(const char *groups)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];
  char line[600], text[4096];

  snprintf(line, sizeof line,
           "y = f32[4,8] add(x, x)\n"
           " u = f32[4,8] all-reduce(y), replica_groups={}, to_apply=f\n"
           " w = f32[4,8] multiply(u, u)\n"
           " g = f32[4,8] all-reduce(w), replica_groups={%s}, to_apply=f\n"
           " n2 = f32[4,8] negate(g)\n"
           " h = f32[4,8] all-reduce(n2), replica_groups={}, to_apply=f\n"
           " ROOT r = f32[4,8] add(h, x)",
           groups);
  program(text, sizeof text, "f32", "add", line);
  for (int i = 0; i < 2; i++) {
    weft_platform *platform = platform_called(i ? "cuda" : "cpu");
    weft_compile_options options = {.order = BUF_TOPOLOGICAL, .graph_kinds = LOOPS_TOO, .graph_least = 2,
                                    .collective_timeout_ns = TIMEOUT_MS * WEFT_NS_PER_MS};
    hlo_module *module;
    weft_executable *exe;
    T_OK(hlo_parse(text, strlen(text), &module));
    T_OK(weft_compile(platform, module, &options, &exe));
    uint64_t before = emu_calls("cuGraphLaunch");
    if (!i) launch_well(exe, want);
    for (int n = 0; i && n < 4; n++) {
      memset(got, 0, sizeof got);
      launch_well(exe, got);
      check(groups, got, want);
    }
    if (i) T_TRUE(emu_calls("cuGraphLaunch") - before == 3 * DEVICES);
    weft_executable_release(exe);
    weft_platform_release(platform);
  }
  check_nothing_is_left();
}

TEST(groups_with_peers_and_groups_without_are_in_one_graph)
{
  setenv("WEFT_CUDA_COLLECTIVES", "auto", 1);
  setenv("WEFT_EMU_ISLAND", "3", 1);
  run_with_groups("{0,1},{2,3}");
  run_with_groups("{0,1},{3},{2}");
  unsetenv("WEFT_EMU_ISLAND");
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
}

/* The others end at the deadline, and say who is missing, before anything is launched. */
TEST(a_rank_that_does_not_come_is_named)
{
  weft_platform *gpu = platform_called("cuda");
  weft_executable *exe = compile_with_input(gpu, TIMEOUT_MS);

  for (int round = 0; round < 5; round++) {
    bool late = round == 3;
    weft_status *ends[DEVICES];
    uint64_t before = emu_calls("cuGraphLaunch");
    launch_late(gpu, exe, 1 + round, late ? TIMEOUT_MS + 1000 : -1, false, ends);
    for (int d = 0; d < DEVICES; d++) {
      if (!late) T_OK(ends[d]);
      else if (!ends[d]) fail_msg("device %d has a result", d);
      else if (d == 0) assert_non_null(strstr(weft_status_text(ends[d], true), "not arrived: 1 of 4"));
      weft_status_free(ends[d]);
    }
    if (late) T_EQ_INT(emu_calls("cuGraphLaunch"), before);
  }
  weft_executable_release(exe);
  weft_platform_release(gpu);
  check_nothing_is_left();
}

/* How often a device has executed the step, as the trace says. */
static int count_traced(const rt_trace_record *records, size_t count, int device, const char *name)
{
  int found = 0;

  for (size_t i = 0; i < count; i++)
    found += records[i].on_device && records[i].device == device && records[i].program != 0 &&
             strcmp(records[i].name, name) == 0;
  return found;
}

/* Three devices have posted all collectives of the graph before events are recorded, and the fourth begins after that,
 * as in a process of its own: it posts all, too, and each of its steps is timed. */
TEST(a_rank_that_records_events_meets_ranks_that_do_not)
{
  enum { LATER_MS = 500, MEET_MS = 10000 };
  weft_platform *gpu = platform_called("cuda");
  weft_executable *exe = compile_with_input(gpu, MEET_MS);

  for (int round = 0; round < 6; round++) {
    bool trace = round == 3;
    weft_status *ends[DEVICES];
    int64_t began_ns = weft_now_ns();
    size_t count;
    launch_late(gpu, exe, 1 + round, trace ? LATER_MS : -1, trace, ends);
    for (int d = 0; d < DEVICES; d++) T_OK(ends[d]);
    if (!trace) continue;
    rt_trace_record *records = rt_trace_between(began_ns, INT64_MAX, &count);
    static const char *const names[] = {"u", "v"};
    for (size_t i = 0; i < WEFT_COUNT(names); i++) /* once a round */
      T_EQ_INT(count_traced(records, count, LATE_DEVICE, names[i]), 2);
    free(records);
    rt_trace_release();
  }
  weft_executable_release(exe);
  weft_platform_release(gpu);
  check_nothing_is_left();
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(collectives_are_part_of_graphs_when_asked_for), UNIT(without_the_option_they_are_not),
    UNIT(a_library_that_takes_its_time_records_too), UNIT(memory_of_collectives_is_registered_in_graphs),
    UNIT(what_peers_move_is_in_no_graph), UNIT(a_loop_with_a_known_number_of_rounds_is_part_of_a_graph),
    UNIT(loops_need_no_conditional_nodes), UNIT(other_loops_with_collectives_are_driven_by_the_host),
    UNIT(what_goes_wrong_in_a_round_of_a_loop_is_the_runs), UNIT(a_device_that_hangs_in_a_graph_ends_at_the_deadline), UNIT(a_library_that_hangs_while_a_graph_is_recorded_ends_at_the_deadline),
    UNIT(an_error_of_the_library_in_a_graph_is_the_runs), UNIT(steps_are_queued_one_by_one_where_recording_fails),
    UNIT(a_launch_that_fails_ends_the_run), UNIT(a_rank_that_does_not_come_is_named),
    UNIT(an_operand_in_the_way_on_one_rank_only_delays_nobody),
    UNIT(groups_with_peers_and_groups_without_are_in_one_graph),
    UNIT(a_device_that_hangs_in_a_long_graph_is_not_given_up),
    UNIT(a_rank_that_records_events_meets_ranks_that_do_not)};
  return cmocka_run_group_tests(units, open_emulator, NULL);
}
