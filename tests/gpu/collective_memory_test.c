/* tests/gpu/collective_memory_test.c -- memory of collectives: where programs have it, which communicators register it
 * and when they end that, on platform "cuda" over the emulated NCCL, which notices windows that are left, windows of
 * memory that was freed, and operands at different offsets. */
enum { DEVICES = 4, MOST_BYTES = 4096 };
#include "collective_programs.h"

#include "buffer/plan.h"
#include "collective/gpus.h"

static int (*misuses)(void);
static void (*emu_reset)(void);
static size_t (*emu_leaks)(char *, size_t);
static uint64_t (*emu_calls)(const char *);

#define SUMS                                                        \
  "y = f32[4,8] add(x, x)\n"                                       \
  " u = f32[4,8] all-reduce(y), replica_groups={}, to_apply=f\n"   \
  " w = f32[4,8] multiply(u, u)\n"                              \
  " g = f32[4,32] all-gather(w), replica_groups={}, dimensions={1}\n" \
  " ROOT r = f32[4,32] negate(g)"

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

static void check_nothing_is_left(void)
{
  char text[1000];

  T_EQ_INT(misuses(), 0);
  if (emu_leaks(text, sizeof text) != 0) fail_msg("%s", text);
}

static int64_t collective_bytes(const weft_executable *exe)
{
  return buf_plan_stats(weft_executable_plan(exe))->collective_bytes;
}

static void use_memory(const char *memory, const char *library)
{
  setenv("WEFT_CUDA_COLLECTIVE_MEMORY", memory, 1);
  if (library) setenv("WEFT_EMU_NCCL", library, 1);
  else unsetenv("WEFT_EMU_NCCL");
}

/* Runs the program three times.  `call`: what registers its memory, once for each block and rank. */
static void run_with(const char *memory, const char *library, const char *call, bool has_memory)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];
  weft_platform *cpu = platform_called("cpu");
  char text[4096], ends[64];

  use_memory(memory, library);
  weft_platform *gpu = platform_called("cuda");
  program(text, sizeof text, "f32", "add", SUMS);
  weft_executable *on_gpu = compile(gpu, text), *on_cpu = compile(cpu, text);
  snprintf(ends, sizeof ends, "%.*sDeregister", (int)(strlen(call) - strlen("Register")), call);
  uint64_t before = emu_calls(call), ended = emu_calls(ends);
  T_EQ_INT(collective_bytes(on_gpu) > 0, has_memory);
  launch_well(on_cpu, want);
  for (int i = 0; i < 3; i++) {
    memset(got, 0, sizeof got);
    launch_well(on_gpu, got);
    for (int d = 0; d < DEVICES; d++)
      if (memcmp(got[d], want[d], 4 * 32 * 4) != 0) fail_msg("%s, launch %d: device %d differs", call, i, d);
  }
  /* one block on each device, from the first launch on */
  T_EQ_INT(emu_calls(call) - before, has_memory ? DEVICES : 0);
  T_EQ_INT(emu_calls(ends) - ended, 0);
  weft_executable_release(on_gpu);
  weft_executable_release(on_cpu);
  weft_platform_release(gpu);
  weft_platform_release(cpu);
  T_EQ_INT(emu_calls(ends) - ended, has_memory ? DEVICES : 0); /* before the communicators */
  use_memory("0", NULL);
  check_nothing_is_left();
}

TEST(temporaries_of_collectives_are_registered_once)
{
  run_with("1", NULL, "ncclCommWindowRegister", true);
  run_with("1", "polls:3", "ncclCommWindowRegister", true);
}
TEST(older_libraries_register_without_windows) { run_with("1", "version:22400", "ncclCommRegister", true); }
TEST(without_the_setting_nothing_is_registered) { run_with("0", NULL, "ncclCommWindowRegister", false); }

TEST(a_program_asks_for_it_by_its_option)
{
  weft_platform *gpu = platform_called("cuda");
  weft_compile_options options = {.order = BUF_TOPOLOGICAL, .collective_memory = true};
  hlo_module *module;
  weft_executable *exe;
  char text[4096];

  program(text, sizeof text, "f32", "add", SUMS);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(gpu, module, &options, &exe));
  T_TRUE(collective_bytes(exe) > 0);
  weft_executable_release(exe);
  setenv("WEFT_CUDA_COLLECTIVES", "peers", 1);
  weft_platform *peers = platform_called("cuda");
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(weft_compile(peers, module, &options, &exe));
  T_EQ_INT(collective_bytes(exe), 0); /* peers register nothing */
  weft_executable_release(exe);
  weft_platform_release(peers);
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
  weft_platform_release(gpu);
}

/* What peers move lies in memory that the other devices reach. */
TEST(peers_use_the_memory_too)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];
  weft_platform *cpu = platform_called("cpu");
  char text[4096];

  use_memory("1", NULL);
  setenv("WEFT_CUDA_COLLECTIVES", "auto", 1);
  weft_platform *gpu = platform_called("cuda");
  program(text, sizeof text, "f32", "add", SUMS);
  weft_executable *on_gpu = compile(gpu, text), *on_cpu = compile(cpu, text);
  uint64_t before = emu_calls("ncclCommWindowRegister");
  T_TRUE(collective_bytes(on_gpu) > 0);
  launch_well(on_gpu, got);
  launch_well(on_cpu, want);
  for (int d = 0; d < DEVICES; d++) T_TRUE(memcmp(got[d], want[d], 4 * 32 * 4) == 0);
  T_EQ_INT(emu_calls("ncclCommWindowRegister"), before); /* the operations are small */
  weft_executable_release(on_gpu);
  weft_executable_release(on_cpu);
  weft_platform_release(gpu);
  weft_platform_release(cpu);
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
  use_memory("0", NULL);
  check_nothing_is_left();
}

/* Two programs take the same block from the cache, one that needs more gets another. */
TEST(programs_share_blocks)
{
  static char out[DEVICES][MOST_BYTES];
  char text[4096];

  use_memory("1", NULL);
  weft_platform *gpu = platform_called("cuda");
  program(text, sizeof text, "f32", "add", SUMS);
  weft_executable *a = compile(gpu, text);
  program(text, sizeof text, "s32", "add",
          "bx = s32[4,8,20000] broadcast(x), dimensions={0,1}\n"
          " u = s32[4,8,20000] all-reduce(bx), replica_groups={}, to_apply=f\n"
          " ROOT r = s32[4,8,1] slice(u), slice={[0:4],[0:8],[7:8]}");
  weft_executable *b = compile(gpu, text);
  uint64_t before = emu_calls("ncclCommWindowRegister");
  for (int i = 0; i < 2; i++) launch_well(a, out);
  weft_executable *again = NULL;
  program(text, sizeof text, "f32", "add", SUMS);
  again = compile(gpu, text);
  for (int i = 0; i < 2; i++) launch_well(again, out);
  T_EQ_INT(emu_calls("ncclCommWindowRegister") - before, DEVICES);
  for (int i = 0; i < 2; i++) launch_well(b, out);
  T_EQ_INT(emu_calls("ncclCommWindowRegister") - before, 2 * DEVICES);
  for (int d = 0; d < DEVICES; d++) {
    int32_t first;
    memcpy(&first, out[d], sizeof first);
    T_EQ_INT(first, 0 + 3 + 1 + 4); /* of (3 d) mod 5 */
  }
  weft_executable_release(a);
  weft_executable_release(b);
  weft_executable_release(again);
  weft_platform_release(gpu);
  use_memory("0", NULL);
  check_nothing_is_left();
}

/* ---- parameters and results ---- */

enum { LARGE = 1200000 }; /* elements of f32: more than 4 MiB */

static const char large_sum[] = "HloModule m, replica_count=4\n"
                                "f {\n"
                                "  a = f32[] parameter(0)\n"
                                "  b = f32[] parameter(1)\n"
                                "  ROOT r = f32[] add(a, b)\n"
                                "}\n"
                                "ENTRY e {\n"
                                "  x = f32[1200000] parameter(0)\n"
                                "  ROOT r = f32[1200000] all-reduce(x), replica_groups={}, to_apply=f\n"
                                "}\n";

static weft_buffer *large_buffer(weft_platform *platform, int d)
{
  static float x[LARGE];
  weft_array_type type = {.type = WEFT_F32, .rank = 1, .dims = {LARGE}};
  weft_buffer *buffer;

  for (int i = 0; i < LARGE; i++) x[i] = (float)(d + i % 8);
  T_OK(weft_buffer_from_host(weft_platform_device(platform, d), &type, x, &buffer));
  return buffer;
}

/* The buffers become the results of the program. */
static void sum_large(weft_executable *exe, weft_buffer **x)
{
  weft_buffer *const *ins[DEVICES], *results[DEVICES];
  weft_buffer **outs[DEVICES];

  for (int d = 0; d < DEVICES; d++) {
    ins[d] = &x[d];
    outs[d] = &results[d];
  }
  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs, .launch_id = 7}));
  for (int d = 0; d < DEVICES; d++) {
    weft_buffer_release(x[d]);
    x[d] = results[d];
  }
}

static void check_large(weft_buffer **x, float of_first, float of_last)
{
  static float got[LARGE];

  for (int d = 0; d < DEVICES; d++) {
    T_OK(weft_buffer_to_host(x[d], got, weft_deadline_after_ms(60000)));
    if (got[0] != of_first || got[LARGE - 1] != of_last)
      fail_msg("device %d: %g and %g", d, (double)got[0], (double)got[LARGE - 1]);
  }
}

/* As in training: the results of a step are parameters of the next. */
TEST(parameters_and_results_are_registered_once)
{
  for (int memory = 0; memory < 2; memory++) {
    weft_buffer *x[DEVICES];
    use_memory(memory ? "1" : "0", NULL);
    weft_platform *gpu = platform_called("cuda");
    weft_executable *exe = compile(gpu, large_sum);
    uint64_t before = emu_calls("ncclCommWindowRegister"), ended = emu_calls("ncclCommWindowDeregister");
    for (int d = 0; d < DEVICES; d++) x[d] = large_buffer(gpu, d);
    sum_large(exe, x);
    float first = 0 + 1 + 2 + 3, last = 0 + 1 + 2 + 3 + 4 * 7;
    check_large(x, first, last);
    T_EQ_INT(emu_calls("ncclCommWindowRegister") - before, memory ? 2 * DEVICES : 0);
    for (int i = 0; i < 3; i++) {
      sum_large(exe, x);
      check_large(x, first *= DEVICES, last *= DEVICES);
    }
    T_EQ_INT(emu_calls("ncclCommWindowRegister") - before, memory ? 2 * DEVICES : 0);
    T_EQ_INT(emu_calls("ncclCommWindowDeregister") - ended, 0);
    for (int d = 0; d < DEVICES; d++) weft_buffer_release(x[d]);
    weft_executable_release(exe);
    weft_platform_release(gpu);
  }
  use_memory("0", NULL);
  check_nothing_is_left();
}

/* On one device the parameter lies in two blocks in turn.  After some time no rank registers parameters and results any
 * more; temporaries are registered all the same. */
TEST(parameters_in_other_blocks_on_one_device_do_without_windows)
{
  enum { ROUNDS = 30 };
  static char out[DEVICES][MOST_BYTES];
  weft_buffer *x[DEVICES], *used[DEVICES];
  char text[4096];
  uint64_t given_up = 0;

  use_memory("1", NULL);
  weft_platform *gpu = platform_called("cuda");
  weft_executable *exe = compile(gpu, large_sum);
  for (int d = 0; d < DEVICES; d++) x[d] = large_buffer(gpu, d);
  weft_buffer *other = large_buffer(gpu, 2);
  uint64_t before = emu_calls("ncclCommWindowRegister"), ended = emu_calls("ncclCommWindowDeregister");
  for (int i = 0; i < ROUNDS; i++) {
    for (int d = 0; d < DEVICES; d++) used[d] = weft_buffer_retain(d == 2 && i % 2 ? other : x[d]);
    if (i == ROUNDS - 4) given_up = emu_calls("ncclCommWindowRegister");
    sum_large(exe, used);
    check_large(used, 6, 34);
    for (int d = 0; d < DEVICES; d++) weft_buffer_release(used[d]);
  }
  T_TRUE(given_up - before >= 3 * DEVICES);
  T_EQ_INT(emu_calls("ncclCommWindowRegister"), given_up);
  T_EQ_INT(emu_calls("ncclCommWindowDeregister") - ended, given_up - before);
  program(text, sizeof text, "f32", "add", SUMS);
  weft_executable *sums = compile(gpu, text);
  launch_well(sums, out);
  launch_well(sums, out);
  T_EQ_INT(emu_calls("ncclCommWindowRegister") - given_up, DEVICES);
  for (int d = 0; d < DEVICES; d++) weft_buffer_release(x[d]);
  weft_buffer_release(other);
  weft_executable_release(exe);
  weft_executable_release(sums);
  weft_platform_release(gpu);
  use_memory("0", NULL);
  check_nothing_is_left();
}

/* ---- what goes wrong ---- */

static void fail_once(const char *nccl, const char *faults, weft_code code, weft_code other, const char *part)
{
  static char out[DEVICES][MOST_BYTES];
  weft_status *ends[DEVICES];
  char text[4096];

  use_memory("1", NULL);
  weft_platform *gpu = platform_called("cuda");
  program(text, sizeof text, "f32", "add", SUMS);
  weft_executable *exe = compile_within(gpu, text, TIMEOUT_MS), *patient = compile(gpu, text);
  if (nccl) setenv("WEFT_EMU_NCCL", nccl, 1);
  if (faults) setenv("WEFT_EMU_FAULTS", faults, 1);
  emu_reset();
  launch(exe, out, ends);
  unsetenv("WEFT_EMU_NCCL");
  unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
  check_ends(nccl ? nccl : faults, ends, code, other, part);
  launch_well(patient, out); /* on a new communicator */
  weft_executable_release(exe);
  weft_executable_release(patient);
  weft_platform_release(gpu);
  use_memory("0", NULL);
  check_nothing_is_left();
}

TEST(a_registration_that_fails_is_the_runs_error)
{
  fail_once(NULL, "ncclCommWindowRegister:2=3", WEFT_INTERNAL, WEFT_INTERNAL, "ncclCommWindowRegister: internal error");
  fail_once(NULL, "ncclCommWindowRegister:1=delay:4s", WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "registering memory");
  fail_once("silent:1@1", NULL, WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "is with NCCL");
}

TEST(memory_that_cannot_be_had_is_the_runs_error)
{
  fail_once(NULL, "cuMemCreate:1=2", WEFT_RESOURCE_EXHAUSTED, WEFT_RESOURCE_EXHAUSTED, "collective memory");
  fail_once(NULL, "cuMemMap:1=2", WEFT_RESOURCE_EXHAUSTED, WEFT_RESOURCE_EXHAUSTED, "collective memory");
  fail_once(NULL, "cuMemSetAccess:1=999", WEFT_INTERNAL, WEFT_INTERNAL, "cuMemSetAccess");
  fail_once(NULL, "cuMemAddressReserve:1=2", WEFT_RESOURCE_EXHAUSTED, WEFT_RESOURCE_EXHAUSTED, "collective memory");
}

/* ---- places, by operations of a communicator ---- */

enum { ELEMENTS = 256 };

typedef struct team {
  weft_comm *comms[DEVICES];
  char *blocks[DEVICES];
} team;

static char *new_block(int d)
{
  void *at;

  T_OK(weft_device_operations(weft_platform_device(gpus(), d))
         ->allocate(weft_platform_device(gpus(), d), WEFT_COLLECTIVE_SPACE, RT_COLLECTIVE_UNIT, &at));
  return at;
}

static void free_block(int d, char *at)
{
  weft_device *device = weft_platform_device(gpus(), d);

  weft_device_operations(device)->deallocate(device, WEFT_COLLECTIVE_SPACE, at, RT_COLLECTIVE_UNIT);
}

static void make_team(team *t)
{
  static const int ranks[DEVICES] = {0, 1, 2, 3};
  static const int64_t ids[DEVICES] = {0, 1, 2, 3};
  weft_comm_spec spec = {.name = "team", .size = DEVICES, .ranks = ranks, .rank_count = DEVICES, .device_ids = ids};

  gpus_use("nccl");
  gpus_bring(&spec);
  T_OK(weft_comm_create(&spec, t->comms));
  for (int d = 0; d < DEVICES; d++) t->blocks[d] = new_block(d);
}

static void end_team(team *t)
{
  for (int d = 0; d < DEVICES; d++) weft_comm_destroy(t->comms[d]);
  for (int d = 0; d < DEVICES; d++) free_block(d, t->blocks[d]);
  gpus_close();
}

/* Adds, with the operand of rank r at offsets[r] of its block and the result where it is. */
static void sum_at(team *t, const int *offsets)
{
  weft_event *events[DEVICES];

  for (int d = 0; d < DEVICES; d++) {
    float in[ELEMENTS];
    char *at = t->blocks[d] + offsets[d];
    for (int i = 0; i < ELEMENTS; i++) in[i] = (float)(d + i);
    T_OK(weft_device_write(weft_platform_device(gpus(), d), NULL, at, in, sizeof in));
    weft_coll_op op = {.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .count = ELEMENTS, .reduction = WEFT_SUM, .send = at,
                       .recv = at};
    T_OK(weft_coll_post(t->comms[d], &op, NULL, &events[d]));
  }
  for (int d = 0; d < DEVICES; d++) {
    float out[ELEMENTS];
    T_OK(weft_coll_wait(t->comms[d], events[d]));
    weft_event_release(events[d]);
    T_OK(weft_device_read(weft_platform_device(gpus(), d), NULL, out, t->blocks[d] + offsets[d], sizeof out));
    for (int i = 0; i < ELEMENTS; i++) assert_true(out[i] == (float)(0 + 1 + 2 + 3 + 4 * i));
  }
}

TEST(ranks_at_different_places_do_without_windows)
{
  static const int here[DEVICES] = {0}, there[DEVICES] = {4096, 4096, 4096, 4096}, apart[DEVICES] = {0, 0, 4096, 0};
  team t;

  make_team(&t);
  uint64_t begun = emu_calls("ncclCommWindowRegister"), ended = emu_calls("ncclCommWindowDeregister");
  sum_at(&t, here);
  sum_at(&t, there);
  T_EQ_INT(emu_calls("ncclCommWindowRegister") - begun, DEVICES);
  sum_at(&t, apart); /* all ranks end their windows before it */
  T_EQ_INT(emu_calls("ncclCommWindowDeregister") - ended, DEVICES);
  sum_at(&t, here);
  T_EQ_INT(emu_calls("ncclCommWindowRegister") - begun, 2 * DEVICES);
  for (int i = 1; i < 16; i++) { /* after 16 of these no rank registers memory any more */
    sum_at(&t, apart);
    sum_at(&t, here);
  }
  T_EQ_INT(emu_calls("ncclCommWindowRegister") - begun, 16 * DEVICES);
  T_EQ_INT(emu_calls("ncclCommWindowDeregister") - ended, 16 * DEVICES);
  sum_at(&t, here);
  sum_at(&t, apart);
  T_EQ_INT(emu_calls("ncclCommWindowRegister") - begun, 16 * DEVICES);
  end_team(&t);
}

/* One rank's block is another than it was, as when its process has compiled the program again. */
TEST(a_rank_with_another_block_has_all_register_theirs_again)
{
  static const int here[DEVICES] = {0};
  team t;

  make_team(&t);
  uint64_t begun = emu_calls("ncclCommWindowRegister"), ended = emu_calls("ncclCommWindowDeregister");
  sum_at(&t, here);
  char *old = t.blocks[2];
  t.blocks[2] = new_block(2);
  sum_at(&t, here);
  T_EQ_INT(emu_calls("ncclCommWindowDeregister") - ended, DEVICES - 1);
  sum_at(&t, here);
  T_EQ_INT(emu_calls("ncclCommWindowRegister") - begun, 2 * DEVICES);
  free_block(2, old);
  end_team(&t);
}

/* The memory stays until the communicator's thread has ended the registration, which nobody waits for. */
TEST(a_block_that_is_given_back_ends_its_window_first)
{
  static const int here[DEVICES] = {0};
  team t;

  make_team(&t);
  uint64_t ended = emu_calls("ncclCommWindowDeregister"), unmapped = emu_calls("cuMemUnmap");
  sum_at(&t, here);
  free_block(1, t.blocks[1]);
  for (int i = 0; i < 2000 && emu_calls("cuMemUnmap") == unmapped; i++) usleep(1000);
  T_EQ_INT(emu_calls("ncclCommWindowDeregister") - ended, 1);
  T_EQ_INT(emu_calls("cuMemUnmap") - unmapped, 1);
  t.blocks[1] = new_block(1);
  sum_at(&t, here);
  sum_at(&t, here);
  end_team(&t);
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(temporaries_of_collectives_are_registered_once), UNIT(older_libraries_register_without_windows),
    UNIT(without_the_setting_nothing_is_registered), UNIT(a_program_asks_for_it_by_its_option),
    UNIT(peers_use_the_memory_too), UNIT(programs_share_blocks), UNIT(parameters_and_results_are_registered_once),
    UNIT(parameters_in_other_blocks_on_one_device_do_without_windows), UNIT(a_registration_that_fails_is_the_runs_error),
    UNIT(memory_that_cannot_be_had_is_the_runs_error), UNIT(ranks_at_different_places_do_without_windows),
    UNIT(a_rank_with_another_block_has_all_register_theirs_again),
    UNIT(a_block_that_is_given_back_ends_its_window_first)};
  return cmocka_run_group_tests(units, open_emulator, NULL);
}
