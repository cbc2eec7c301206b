/* tests/gpu/nccl_programs_test.c -- collectives of programs on platform "cuda" over the emulated NCCL: the CPU's
 * results, moved by NCCL where it has the operation, and an error within the deadline for each thing that goes
 * wrong, after which the next launch works. */
enum { DEVICES = 4, MOST_BYTES = 4096 };
#include "collective_programs.h"

static int (*misuses)(void);
static int (*jobs)(void);
static void (*emu_reset)(void);
static size_t (*emu_leaks)(char *, size_t);

static int open_emulator(void **state)
{
  (void)state;
  setenv("WEFT_CUDA_COLLECTIVES", "nccl", 1);
  *(void **)&misuses = emulated_symbol("libnccl.so.2", "weft_emu_nccl_misuses");
  *(void **)&jobs = emulated_symbol("libnccl.so.2", "weft_emu_nccl_jobs");
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  *(void **)&emu_leaks = emulated_symbol("libcuda.so.1", "weft_emu_leaks");
  return 0;
}

/* The CPU's result; `by_nccl`: it is NCCL that moves the data. */
static void compare(weft_platform *gpu, weft_platform *cpu, const char *type, const char *reducer, const char *line,
                    bool by_nccl)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];
  char text[4096];
  int before = jobs();

  program(text, sizeof text, type, reducer, line);
  weft_executable *on_gpu = compile(gpu, text), *on_cpu = compile(cpu, text);
  memset(got, 0, sizeof got);
  memset(want, 0, sizeof want);
  launch_well(on_gpu, got);
  launch_well(on_cpu, want);
  for (int d = 0; d < DEVICES; d++)
    if (memcmp(got[d], want[d], MOST_BYTES) != 0)
      fail_msg("device %d differs from the CPU: %s of %s: %s", d, reducer, type, line);
  if ((jobs() > before) != by_nccl)
    fail_msg("%s of %s: NCCL has run %d operations: %s", reducer, type, jobs() - before, line);
  weft_executable_release(on_gpu);
  weft_executable_release(on_cpu);
}

TEST(reductions_are_nccls_where_it_has_them)
{
  static const struct { const char *type, *reducer; bool by_nccl; } cases[] = {
    {"f32", "add", true}, {"f64", "add", true}, {"bf16", "add", true}, {"f16", "multiply", true}, {"s8", "minimum", true},
    {"u8", "add", true}, {"s32", "maximum", true}, {"u32", "multiply", true}, {"s64", "add", true}, {"u64", "maximum", true},
    {"pred", "and", true}, {"pred", "or", true}, {"c64", "add", true}, {"c128", "add", true},
    /* not in NCCL, or not with IEEE's NaN */
    {"f32", "maximum", false}, {"bf16", "minimum", false}, {"s16", "add", false}, {"s32", "xor", false}, {"s32", "and", false},
    {"c64", "multiply", false}, {"f8e5m2", "add", false},
  };
  weft_platform *gpu = platform_called("cuda"), *cpu = platform_called("cpu");
  char line[256];

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    snprintf(line, sizeof line, "ROOT r = %s[4,8] all-reduce(x), replica_groups={}, to_apply=f", cases[i].type);
    compare(gpu, cpu, cases[i].type, cases[i].reducer, line, cases[i].by_nccl);
    snprintf(line, sizeof line, "ROOT r = %s[4,2] reduce-scatter(x), replica_groups={}, dimensions={1}, to_apply=f",
             cases[i].type);
    compare(gpu, cpu, cases[i].type, cases[i].reducer, line, cases[i].by_nccl);
  }
  T_EQ_INT(misuses(), 0);
  weft_platform_release(gpu);
  weft_platform_release(cpu);
}

TEST(data_of_every_type_moves)
{
  static const char *const types[] = {"pred", "s8", "u16", "f16", "bf16", "f32", "s64", "c64", "c128", "f8e4m3fn"};
  static const char *const lines[] = {
    "ROOT r = %s[16,8] all-gather(x), replica_groups={}, dimensions={0}",
    "ROOT r = %s[4,32] all-gather(x), replica_groups={}, dimensions={1}",
    "ROOT r = %s[4,16] all-gather(x), replica_groups={{0,2},{1,3}}, dimensions={1}",
    "ROOT r = %s[4,8] all-to-all(x), replica_groups={}, dimensions={0}",
    "ROOT r = %s[4,8] all-to-all(x), replica_groups={}, dimensions={1}",
    "ROOT r = %s[4,8] collective-permute(x), source_target_pairs={{0,1},{1,2},{3,3}}",
    "ROOT r = %s[4,8] collective-broadcast(x), replica_groups={{1,0,2}}",
  };
  weft_platform *gpu = platform_called("cuda"), *cpu = platform_called("cpu");
  char line[256];

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t i = 0; i < WEFT_COUNT(lines); i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      snprintf(line, sizeof line, lines[i], types[t]);
#pragma GCC diagnostic pop
      compare(gpu, cpu, types[t], strcmp(types[t], "pred") == 0 ? "or" : "add", line, true);
    }
  compare(gpu, cpu, "f32", "add",
          "a = f32[1,8] slice(x), slice={[0:1],[0:8]}\n"
          "b = f32[1,8] slice(x), slice={[1:2],[0:8]}\n"
          "c = f32[1,8] slice(x), slice={[2:3],[0:8]}\n"
          "d4 = f32[1,8] slice(x), slice={[3:4],[0:8]}\n"
          "t = (f32[1,8], f32[1,8], f32[1,8], f32[1,8]) all-to-all(a, b, c, d4), replica_groups={{0,1,2,3}}\n"
          "t0 = f32[1,8] get-tuple-element(t), index=0\n"
          "t1 = f32[1,8] get-tuple-element(t), index=1\n"
          "t2 = f32[1,8] get-tuple-element(t), index=2\n"
          "t3 = f32[1,8] get-tuple-element(t), index=3\n"
          "ROOT r = f32[4,8] concatenate(t0, t1, t2, t3), dimensions={0}",
          true);
  /* device d sends its row e and, where e is 0 or 1, the next one to row 2 d of device e */
  compare(gpu, cpu, "f32", "add",
          "e = s64[4] iota(), iota_dimension=0\n"
          "di = s64[] convert(d)\n"
          "db = s64[4] broadcast(di), dimensions={}\n"
          "theirs = s64[4] add(db, db)\n"
          "sizes = s64[4] constant({2, 2, 1, 0})\n"
          "table = s64[4,4] constant({{2,2,2,2},{2,2,2,2},{1,1,1,1},{0,0,0,0}})\n"
          "zero = s64[] constant(0)\n"
          "row = s64[1,4] dynamic-slice(table, di, zero), dynamic_slice_sizes={1,4}\n"
          "comes = s64[4] reshape(row)\n"
          "half = f32[] constant(0.5)\n"
          "to = f32[9,8] broadcast(half), dimensions={}\n"
          "ROOT r = f32[9,8] ragged-all-to-all(x, to, e, sizes, theirs, comes), replica_groups={{0,1,2,3}}",
          true);
  T_EQ_INT(misuses(), 0);
  weft_platform_release(gpu);
  weft_platform_release(cpu);
}

TEST(calls_that_stay_in_progress_are_waited_for)
{
  weft_platform *gpu, *cpu = platform_called("cpu");

  setenv("WEFT_EMU_NCCL", "polls:5", 1);
  gpu = platform_called("cuda");
  for (int i = 0; i < 3; i++)
    compare(gpu, cpu, "f32", "add",
            "u = f32[4,8] all-reduce(x), replica_groups={}, to_apply=f\n"
            " ROOT r = f32[4,32] all-gather(u), replica_groups={}, dimensions={1}",
            true);
  unsetenv("WEFT_EMU_NCCL");
  T_EQ_INT(misuses(), 0);
  weft_platform_release(gpu);
  weft_platform_release(cpu);
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

#define TWO_SUMS                                                 \
  "u = f32[4,8] all-reduce(x), replica_groups={}, to_apply=f\n" \
  " ROOT r = f32[4,8] all-reduce(u), replica_groups={}, to_apply=f"

static void fail_once(const char *nccl, const char *faults, weft_code code, weft_code other, const char *part)
{
  static char out[DEVICES][MOST_BYTES];
  weft_platform *gpu;
  weft_status *ends[DEVICES];
  char text[4096];
  int before = misuses();

  program(text, sizeof text, "f32", "add", TWO_SUMS);
  gpu = platform_called("cuda");
  weft_executable *exe = compile_within(gpu, text, TIMEOUT_MS), *patient = compile(gpu, text);
  if (nccl) setenv("WEFT_EMU_NCCL", nccl, 1);
  if (faults) setenv("WEFT_EMU_FAULTS", faults, 1);
  emu_reset();
  int64_t start = weft_now_ns();
  launch(exe, out, ends);
  int64_t took_ms = (weft_now_ns() - start) / WEFT_NS_PER_MS;
  unsetenv("WEFT_EMU_NCCL");
  unsetenv("WEFT_EMU_FAULTS");
  emu_reset();
  check_ends(nccl ? nccl : faults, ends, code, other, part);
  if (took_ms > 2 * TIMEOUT_MS + 20000) fail_msg("%s: it took %lld ms", nccl ? nccl : faults, (long long)took_ms);
  launch_well(patient, out); /* on a new communicator */
  launch_well(patient, out);
  float first;
  memcpy(&first, out[2], sizeof first);
  assert_true(first == 4 * (0 + 3 + 1 + 4)); /* of (3 d) mod 5, summed twice */
  T_EQ_INT(misuses(), before);
  weft_executable_release(exe);
  weft_executable_release(patient);
  weft_platform_release(gpu);
}

TEST(a_device_that_hangs_ends_at_the_deadline)
{
  fail_once("silent:2@1", NULL, WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "is with NCCL");
  fail_once("silent:0@2", NULL, WEFT_DEADLINE_EXCEEDED, WEFT_ABORTED, "arrived: 4 of 4");
}

TEST(an_error_of_the_library_is_the_runs)
{
  fail_once("async:1@2=6", NULL, WEFT_UNAVAILABLE, WEFT_UNAVAILABLE, "an injected error of operation 2");
  fail_once("async:3@1=1", NULL, WEFT_INTERNAL, WEFT_INTERNAL, "an injected error of operation 1");
}

TEST(a_rank_that_does_not_connect_ends_at_the_deadline)
{
  fail_once("absent:1", NULL, WEFT_DEADLINE_EXCEEDED, WEFT_DEADLINE_EXCEEDED, "NCCL has not connected rank");
}

TEST(every_call_that_fails_is_the_runs_error)
{
  fail_once(NULL, "ncclGetUniqueId:1=2", WEFT_UNAVAILABLE, WEFT_UNAVAILABLE, "ncclGetUniqueId");
  fail_once(NULL, "ncclCommInitRankConfig:3=3", WEFT_INTERNAL, WEFT_INTERNAL, "ncclCommInitRankConfig");
  fail_once(NULL, "ncclAllReduce:2=3", WEFT_INTERNAL, WEFT_INTERNAL, "ncclAllReduce: internal error (3)");
  fail_once(NULL, "ncclAllReduce:7=2", WEFT_UNAVAILABLE, WEFT_UNAVAILABLE, "ncclAllReduce: unhandled system error (2)");
}

TEST(nothing_is_left)
{
  char text[1000];
  if (emu_leaks(text, sizeof text) != 0) fail_msg("%s", text);
}

/* The last test: what the thread in the call uses is never freed. */
TEST(a_call_that_does_not_return_keeps_no_caller)
{
  static char out[DEVICES][MOST_BYTES];
  char text[4096];

  program(text, sizeof text, "f32", "add", TWO_SUMS);
  weft_platform *gpu = platform_called("cuda");
  weft_executable *exe = compile(gpu, text);
  launch_well(exe, out);
  setenv("WEFT_EMU_LEAKS", "off", 1);
  setenv("WEFT_EMU_FAULTS", "ncclCommFinalize:1=delay:60s", 1);
  emu_reset();
  int64_t start = weft_now_ns();
  weft_executable_release(exe);
  weft_platform_release(gpu);
  int64_t took_ms = (weft_now_ns() - start) / WEFT_NS_PER_MS;
  if (took_ms > 40000) fail_msg("the end of the client took %lld ms", (long long)took_ms);
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(reductions_are_nccls_where_it_has_them), UNIT(data_of_every_type_moves), UNIT(calls_that_stay_in_progress_are_waited_for),
    UNIT(a_device_that_hangs_ends_at_the_deadline), UNIT(an_error_of_the_library_is_the_runs),
    UNIT(a_rank_that_does_not_connect_ends_at_the_deadline), UNIT(every_call_that_fails_is_the_runs_error),
    UNIT(nothing_is_left), UNIT(a_call_that_does_not_return_keeps_no_caller)};
  return cmocka_run_group_tests(units, open_emulator, NULL);
}
