/* tests/gpu/peer_programs_test.c -- collectives of programs on platform "cuda" between eight emulated GPUs, by kernels
 * and copies: the bits of the CPU's collectives in rank order, also where all devices are one GPU; an error within the
 * deadline for each thing that goes wrong, after which the next launch works. */
enum { DEVICES = 8, MOST_BYTES = 1 << 20 };
#include "collective_programs.h"

#include "collective/gpus.h"

static void (*emu_reset)(void);
static size_t (*emu_leaks)(char *, size_t);
static size_t (*emu_faults_left)(void);

static int open_emulator(void **state)
{
  (void)state;
  setenv("WEFT_CUDA_COLLECTIVES", "peers", 1);
  setenv("WEFT_COLLECTIVE_ORDER", "rank", 1); /* of the CPU's: that of the GPUs always is */
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  *(void **)&emu_leaks = emulated_symbol("libcuda.so.1", "weft_emu_leaks");
  *(void **)&emu_faults_left = emulated_symbol("libcuda.so.1", "weft_emu_faults_left");
  return 0;
}

static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];

/* The steps of the program, which name the kind of each: a collective on copies in host memory has another one. */
static void compare(weft_platform *gpu, weft_platform *cpu, const char *type, const char *reducer, const char *line)
{
  char text[4096];

  program(text, sizeof text, type, reducer, line);
  weft_executable *on_gpu = compile(gpu, text), *on_cpu = compile(cpu, text);
  for (int d = 0; d < DEVICES; d++) {
    memset(got[d], 0, MOST_BYTES);
    memset(want[d], 0, MOST_BYTES);
  }
  launch_well(on_gpu, got);
  launch_well(on_cpu, want);
  for (int d = 0; d < DEVICES; d++)
    for (size_t i = 0; i < MOST_BYTES; i++)
      if (got[d][i] != want[d][i])
        fail_msg("device %d byte %zu: got %#x, want %#x: %s of %s: %s", d, i, (uint8_t)got[d][i], (uint8_t)want[d][i],
                 reducer, type, line);
  weft_executable_release(on_gpu);
  weft_executable_release(on_cpu);
}

/* Has `line` with the element type for each of its @. */
static void compare_type(weft_platform *gpu, weft_platform *cpu, const char *type, const char *reducer,
                         const char *line)
{
  char text[2000], *to = text;

  for (; *line; line++) {
    if (*line == '@') to += sprintf(to, "%s", type);
    else *to++ = *line;
  }
  *to = 0;
  compare(gpu, cpu, type, reducer, text);
}

/* Values whose sums depend on their order. */
#define UNEVEN                                                                     \
  "c = @[] constant(0.3)\n" \
  "cb = @[4,8] broadcast(c), dimensions={}\n" \
  "xu = @[4,8] multiply(x, cb)\n" \
  "yu = @[4,8] exponential(xu)\n"

static const struct { const char *type, *reducer; bool uneven; } reductions[] = {
  {"f32", "add", true}, {"f32", "multiply", true}, {"f32", "maximum", true}, {"f32", "minimum", true}, {"f64", "add", true},
  {"f64", "minimum", true}, {"bf16", "add", true}, {"bf16", "multiply", true}, {"bf16", "maximum", true}, {"f16", "add", true},
  {"f16", "minimum", true}, {"s8", "add", false}, {"s8", "minimum", false}, {"u8", "multiply", false}, {"s16", "add", false},
  {"s16", "maximum", false}, {"u16", "xor", false}, {"s32", "add", false}, {"s32", "and", false}, {"u32", "maximum", false},
  {"u32", "or", false}, {"s64", "multiply", false}, {"s64", "minimum", false}, {"u64", "add", false}, {"pred", "and", false},
  {"pred", "or", false}, {"pred", "xor", false}, {"c64", "add", false}, {"c128", "add", false},
};

static void compare_reductions(const char *uneven, const char *even, size_t step)
{
  weft_platform *gpu = platform_called("cuda"), *cpu = platform_called("cpu");

  for (size_t i = 0; i < WEFT_COUNT(reductions); i += step * T_STRIDE(2))
    compare_type(gpu, cpu, reductions[i].type, reductions[i].reducer, reductions[i].uneven ? uneven : even);
  weft_platform_release(gpu);
  weft_platform_release(cpu);
}

#define SMALL(x) "ROOT r = @[4,8] all-reduce(" x "), replica_groups={}, to_apply=f"
#define ODD(x) \
  "od = @[3,7] slice(" x "), slice={[1:4],[1:8]}\n" \
  "ROOT r = @[3,7] all-reduce(od), replica_groups={{0,1,2},{3,4,5,6,7}}, to_apply=f"
/* small ones by more than one block */
#define BLOCKS(x) \
  "b = @[4,8,403] broadcast(" x "), dimensions={0,1}\n" \
  "ROOT r = @[4,8,403] all-reduce(b), replica_groups={}, to_apply=f"
#define LARGE(x) \
  "b = @[4,8,9001] broadcast(" x "), dimensions={0,1}\n" \
  "w = @[4,8,9001] all-reduce(b), replica_groups={}, to_apply=f\n" \
  "ROOT r = @[4,8,300] slice(w), slice={[0:4],[0:8],[8701:9001]}"
#define SCATTERED(x) "ROOT r = @[4,1] reduce-scatter(" x "), replica_groups={}, dimensions={1}, to_apply=f"
/* by one kernel of several blocks; types of 16 bytes take the way of large ones */
#define SCATTERED_BLOCKS(x) \
  "b = @[4,8,700] broadcast(" x "), dimensions={0,1}\n" \
  "ROOT r = @[4,1,700] reduce-scatter(b), replica_groups={}, dimensions={1}, to_apply=f"
#define GATHERED(count, from) \
  "b = @[4,8," count "] broadcast(x), dimensions={0,1}\n" \
  "along = @[4,8," count "] iota(), iota_dimension=2\n" \
  "y = @[4,8," count "] add(b, along)\n" \
  "w = @[32,8," count "] all-gather(y), replica_groups={}, dimensions={0}\n" \
  "ROOT r = @[32,8,50] slice(w), slice={[0:32],[0:8],[" from ":" count "]}"

TEST(small_all_reduces_have_the_bits_of_the_cpu) { compare_reductions(UNEVEN SMALL("yu"), SMALL("x"), 1); }
TEST(odd_sizes_and_groups_too) { compare_reductions(UNEVEN ODD("yu"), ODD("x"), 4); }
TEST(small_all_reduces_of_several_blocks_too) { compare_reductions(UNEVEN BLOCKS("yu"), BLOCKS("x"), 5); }
TEST(large_all_reduces_too) { compare_reductions(UNEVEN LARGE("yu"), LARGE("x"), 7); }
TEST(reduce_scatters_too) { compare_reductions(UNEVEN SCATTERED("yu"), SCATTERED("x"), 3); }
TEST(reduce_scatters_of_several_blocks_too)
{
  compare_reductions(UNEVEN SCATTERED_BLOCKS("yu"), SCATTERED_BLOCKS("x"), 4);
}

/* By one kernel, of one block and of several, with and without a length of whole steps; and by copies. */
static void compare_gathers(int first)
{
  static const char *const lines[] = {GATHERED("53", "3"), GATHERED("90", "40"), GATHERED("301", "251")};
  weft_platform *gpu = platform_called("cuda"), *cpu = platform_called("cpu");

  for (int i = first; i < (first ? first + 1 : (int)WEFT_COUNT(lines)); i++) {
    compare_type(gpu, cpu, "f32", "add", lines[i]);
    compare_type(gpu, cpu, "s8", "add", lines[i]);
  }
  weft_platform_release(gpu);
  weft_platform_release(cpu);
}

TEST(all_gathers_of_every_size) { compare_gathers(0); }

static const char *const moves[] = {
  "ROOT r = @[32,8] all-gather(x), replica_groups={}, dimensions={0}",
  "ROOT r = @[4,16] all-gather(x), replica_groups={{0,2},{1,3},{7,4},{5,6}}, dimensions={1}",
  "ROOT r = @[4,8] all-to-all(x), replica_groups={}, dimensions={1}",
  "ROOT r = @[4,8] collective-permute(x), source_target_pairs={{0,1},{1,2},{3,3},{7,0}}",
  "ROOT r = @[4,8] collective-broadcast(x), replica_groups={{1,0,2}}",
  "u = @[4,8] collective-permute(x), source_target_pairs={{0,1},{1,0}}\n"
  "w = @[4,8] all-to-all(u), replica_groups={}, dimensions={1}\n"
  "ROOT r = @[4,64] all-gather(w), replica_groups={}, dimensions={1}",
};

/* Rows of `row` elements: device d sends 1 + (d + e) % 3 rows to device e, from its own row e on to row 4 d of the
 * result. */
#define RAGGED_OFFSETS(index)                                           \
  "e = " index "[8] iota(), iota_dimension=0\n" \
  "di = " index "[] convert(d)\n" \
  "db = " index "[8] broadcast(di), dimensions={}\n" \
  "sum = " index "[8] add(db, e)\n" \
  "three = " index "[] constant(3)\n" \
  "threes = " index "[8] broadcast(three), dimensions={}\n" \
  "rest = " index "[8] remainder(sum, threes)\n" \
  "one = " index "[] constant(1)\n" \
  "ones = " index "[8] broadcast(one), dimensions={}\n" \
  "sizes = " index "[8] add(rest, ones)\n" \
  "four = " index "[] constant(4)\n" \
  "fours = " index "[8] broadcast(four), dimensions={}\n" \
  "theirs = " index "[8] multiply(db, fours)\n"
#define RAGGED(index, row)                                               \
  RAGGED_OFFSETS(index) \
  "b = @[4,8," row "] broadcast(x), dimensions={0,1}\n" \
  "flat = @[32," row "] reshape(b)\n" \
  "along = @[32," row "] iota(), iota_dimension=1\n" \
  "from = @[32," row "] add(flat, along)\n" \
  "zero = @[] constant(0)\n" \
  "to = @[33," row "] broadcast(zero), dimensions={}\n" \
  "ROOT r = @[33," row "] ragged-all-to-all(from, to, e, sizes, theirs, sizes), replica_groups={{0,1,2,3,4,5,6,7}}"

/* Rows of 1 to 37 elements, at addresses of every kind; offsets of both widths. */
static void compare_ragged(void)
{
  static const char *const lines[] = {RAGGED("s32", "1"), RAGGED("s64", "37"), RAGGED("u32", "16"), RAGGED("s64", "700")};
  weft_platform *gpu = platform_called("cuda"), *cpu = platform_called("cpu");

  T_TRUE(weft_platform_moves(gpu, WEFT_RAGGED_ALL_TO_ALL, WEFT_F32, WEFT_REDUCE_NONE)); /* no copies in host memory */
  for (size_t i = 0; i < WEFT_COUNT(lines); i++) {
    compare_type(gpu, cpu, "f32", "add", lines[i]);
    compare_type(gpu, cpu, "s8", "add", lines[i]);
    compare_type(gpu, cpu, "bf16", "add", lines[i]);
  }
  weft_platform_release(gpu);
  weft_platform_release(cpu);
}

TEST(ragged_rows_move_between_devices) { compare_ragged(); }

/* The offsets are read on the host: what is wrong with them is an error before any row moves, and so is a read that
 * fails. */
TEST(ragged_offsets_that_are_wrong_are_the_runs_error)
{
  static const struct { const char *from, *to, *says; } cases[] = {
    {"theirs, sizes)", "theirs, ones)", "recv_sizes"},
    {"e, sizes, theirs", "sum, sizes, theirs", NULL}, /* right: the last row is 7 + 7 + 3 */
    {"multiply(db, fours)", "subtract(e, fours)", "output rows"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    char line[4096] = RAGGED("s32", "4"), text[8192], good[4096] = "", *at;
    weft_status *ends[DEVICES];
    for (const char *c = line; *c; c++) {
      size_t at = strlen(good);
      snprintf(good + at, sizeof good - at, "%.*s", *c == '@' ? 3 : 1, *c == '@' ? "f32" : c);
    }
    at = strstr(good, cases[i].from);
    assert_non_null(at);
    snprintf(line, sizeof line, "%.*s%s%s", (int)(at - good), good, cases[i].to, at + strlen(cases[i].from));
    program(text, sizeof text, "f32", "add", line);
    weft_platform *gpu = platform_called("cuda");
    weft_executable *exe = compile(gpu, text);
    launch(exe, got, ends);
    if (cases[i].says)
      check_ends(cases[i].to, ends, i == 2 ? WEFT_INVALID_ARGUMENT : WEFT_FAILED_PRECONDITION, WEFT_ABORTED,
                 cases[i].says);
    else
      for (int d = 0; d < DEVICES; d++) T_OK(ends[d]);
    weft_executable_release(exe);
    weft_platform_release(gpu);
  }
}

static void compare_moves(void)
{
  static const char *const types[] = {"pred", "u16", "f32", "c128", "f8e4m3fn"};
  weft_platform *gpu = platform_called("cuda"), *cpu = platform_called("cpu");

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t i = t % T_STRIDE(2); i < WEFT_COUNT(moves); i += T_STRIDE(2))
      compare_type(gpu, cpu, types[t], strcmp(types[t], "pred") == 0 ? "or" : "add", moves[i]);
  weft_platform_release(gpu);
  weft_platform_release(cpu);
}

TEST(data_of_every_type_moves) { compare_moves(); }

/* The same with eight devices on one GPU, and on three. */
TEST(devices_that_share_gpus_meet_by_events)
{
  static const char *const shares[] = {"8", "3"};

  for (size_t i = 0; i < WEFT_COUNT(shares); i++) {
    setenv("WEFT_CUDA_SHARE", shares[i], 1);
    compare_reductions(UNEVEN SMALL("yu"), SMALL("x"), 5);
    compare_reductions(UNEVEN LARGE("yu"), LARGE("x"), 13);
    compare_reductions(UNEVEN SCATTERED("yu"), SCATTERED("x"), 9);
    compare_moves();
    compare_ragged();
  }
  unsetenv("WEFT_CUDA_SHARE");
}

/* Delays, blocks in a random order, and checks for races. */
TEST(delays_change_nothing)
{
  setenv("WEFT_EMU_DELAY_US", "300", 1);
  setenv("WEFT_EMU_ORDER", "interleaved:5", 1);
  setenv("WEFT_EMU_CHECKS", "all", 1);
  emu_reset();
  compare_reductions(UNEVEN SMALL("yu"), SMALL("x"), 6);
  compare_reductions(UNEVEN SCATTERED("yu"), SCATTERED("x"), 11);
  compare_reductions(UNEVEN SCATTERED_BLOCKS("yu"), SCATTERED_BLOCKS("x"), WEFT_COUNT(reductions));
  compare_gathers(1);
  compare_ragged();
  unsetenv("WEFT_EMU_DELAY_US");
  unsetenv("WEFT_EMU_ORDER");
  unsetenv("WEFT_EMU_CHECKS");
  emu_reset();
}

/* The same with GPUs that multicast joins, and then with delays and checks. */
TEST(multicast_changes_nothing)
{
  setenv("WEFT_EMU_MULTICAST", "1", 1);
  uint64_t before = gpus_multicast_work();
  for (int checks = 0; checks < 2; checks++) {
    if (checks) {
      setenv("WEFT_EMU_DELAY_US", "300", 1);
      setenv("WEFT_EMU_ORDER", "interleaved:9", 1);
      setenv("WEFT_EMU_CHECKS", "all", 1);
    }
    emu_reset();
    compare_reductions(UNEVEN SMALL("yu"), SMALL("x"), checks ? 5 : 2);
    compare_reductions(UNEVEN ODD("yu"), ODD("x"), checks ? 13 : 5);
    compare_reductions(UNEVEN BLOCKS("yu"), BLOCKS("x"), checks ? WEFT_COUNT(reductions) : 5);
    if (!checks) compare_reductions(UNEVEN LARGE("yu"), LARGE("x"), 7);
    compare_reductions(UNEVEN SCATTERED("yu"), SCATTERED("x"), checks ? 9 : 4);
    if (!checks) compare_reductions(UNEVEN SCATTERED_BLOCKS("yu"), SCATTERED_BLOCKS("x"), 6);
    compare_gathers(checks);
    if (!checks) compare_moves();
    uint64_t now = gpus_multicast_work();
    T_TRUE(now > before);
    before = now;
  }
  unsetenv("WEFT_EMU_DELAY_US");
  unsetenv("WEFT_EMU_ORDER");
  unsetenv("WEFT_EMU_CHECKS");
  unsetenv("WEFT_EMU_MULTICAST");
  emu_reset();
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

#define TWO_SUMS                                                \
  "u = f32[4,8] all-reduce(x), replica_groups={}, to_apply=f\n" \
  " ROOT r = f32[4,8] all-reduce(u), replica_groups={}, to_apply=f"
#define GATHER_AND_SCATTER                                            \
  "u = f32[4,64] all-gather(x), replica_groups={}, dimensions={1}\n" \
  " ROOT r = f32[4,8] reduce-scatter(u), replica_groups={}, dimensions={1}, to_apply=f"

#define ALL_TO_ALL "ROOT r = f32[4,8] all-to-all(x), replica_groups={}, dimensions={1}"

static void fail_once_of(const char *type, const char *line, const char *faults, weft_code code, weft_code other,
                         const char *part)
{
  weft_status *ends[DEVICES];
  char text[4096];

  program(text, sizeof text, type, "add", line);
  weft_platform *gpu = platform_called("cuda");
  weft_executable *exe = compile_within(gpu, text, TIMEOUT_MS), *patient = compile(gpu, text);
  setenv("WEFT_EMU_FAULTS", faults, 1);
  emu_reset();
  int64_t start = weft_now_ns();
  launch(exe, got, ends);
  int64_t took_ms = (weft_now_ns() - start) / WEFT_NS_PER_MS;
  T_EQ_INT(emu_faults_left(), 0);
  unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
  check_ends(faults, ends, code, other, part);
  if (took_ms > 2 * TIMEOUT_MS + 20000) fail_msg("%s: it took %lld ms", faults, (long long)took_ms);
  launch_well(patient, got); /* on a new communicator */
  launch_well(patient, got);
  weft_executable_release(exe);
  weft_executable_release(patient);
  weft_platform_release(gpu);
}

static void fail_once(const char *line, const char *faults, weft_code code, weft_code other, const char *part)
{
  fail_once_of("f32", line, faults, code, other, part);
}

/* The kernel of one rank starts late: the others wait in theirs until the deadline, and then leave. */
TEST(a_device_that_is_late_ends_at_the_deadline)
{
  fail_once(TWO_SUMS, "cuLaunchKernel:12=stall:4s", WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "is with peers");
  fail_once(GATHER_AND_SCATTER, "cuLaunchKernel:12=stall:4s", WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "is with peers");
}

#define TWO_SUMS_OF_INTEGERS                                        \
  "u = s32[4,8] all-reduce(x), replica_groups={}, to_apply=f\n" \
  " ROOT r = s32[4,8] all-reduce(u), replica_groups={}, to_apply=f"

/* The same in kernels with multicast; their memory is given back although the others have left them. */
TEST(also_with_multicast)
{
  setenv("WEFT_EMU_MULTICAST", "1", 1);
  emu_reset();
  uint64_t before = gpus_multicast_work();
  fail_once_of("s32", TWO_SUMS_OF_INTEGERS, "cuLaunchKernel:12=stall:4s", WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED,
               "is with peers");
  fail_once(GATHER_AND_SCATTER, "cuLaunchKernel:12=stall:4s", WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "is with peers");
  fail_once_of("s32", TWO_SUMS_OF_INTEGERS, "cuLaunchKernel:13=719", WEFT_INTERNAL, WEFT_INTERNAL, "cuLaunchKernel");
  T_TRUE(gpus_multicast_work() > before);
  unsetenv("WEFT_EMU_MULTICAST");
  emu_reset();
}

/* Programs launch a kernel on each device before the collective does. */
TEST(every_call_that_fails_is_the_runs_error)
{
  fail_once(TWO_SUMS, "cuLaunchKernel:13=719", WEFT_INTERNAL, WEFT_INTERNAL, "cuLaunchKernel");
  fail_once(TWO_SUMS, "cuModuleLoadDataEx:1=2", WEFT_RESOURCE_EXHAUSTED, WEFT_RESOURCE_EXHAUSTED, "cuModuleLoadDataEx");
  fail_once(ALL_TO_ALL, "cuMemcpyAsync:9=1", WEFT_INTERNAL, WEFT_INTERNAL, "cuMemcpyAsync");
}

TEST(every_call_that_fails_while_a_communicator_is_made_is_the_runs_error)
{
  fail_once(TWO_SUMS, "cuMemHostAlloc:1=2", WEFT_RESOURCE_EXHAUSTED, WEFT_RESOURCE_EXHAUSTED, "cuMemHostAlloc");
  fail_once(TWO_SUMS, "cuStreamCreateWithPriority:5=2", WEFT_RESOURCE_EXHAUSTED, WEFT_RESOURCE_EXHAUSTED,
            "cuStreamCreateWithPriority");
}

TEST(nothing_is_left)
{
  char text[1000];
  if (emu_leaks(text, sizeof text) != 0) fail_msg("%s", text);
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(small_all_reduces_have_the_bits_of_the_cpu), UNIT(odd_sizes_and_groups_too), UNIT(small_all_reduces_of_several_blocks_too), UNIT(large_all_reduces_too),
    UNIT(reduce_scatters_too), UNIT(reduce_scatters_of_several_blocks_too), UNIT(all_gathers_of_every_size), UNIT(data_of_every_type_moves), UNIT(ragged_rows_move_between_devices),
    UNIT(ragged_offsets_that_are_wrong_are_the_runs_error), UNIT(devices_that_share_gpus_meet_by_events),
    UNIT(delays_change_nothing), UNIT(multicast_changes_nothing), UNIT(also_with_multicast), UNIT(a_device_that_is_late_ends_at_the_deadline), UNIT(every_call_that_fails_is_the_runs_error),
    UNIT(every_call_that_fails_while_a_communicator_is_made_is_the_runs_error), UNIT(nothing_is_left)};
  return cmocka_run_group_tests(units, open_emulator, NULL);
}
