/* tests/gpu/multicast_kernels_test.c -- multicast objects of the emulated driver and multimem instructions of the
 * emulated GPU: what the manuals demand is checked, and no order of additions is to be relied on.  Then Weft's kernels
 * with multicast: NVIDIA's assembler takes them, where it is installed, and without one of their fences or barriers the
 * emulator finds a race. */
#include "driver.h"

#include <unistd.h>

#include "gpu/peer_ptx.h"

enum { RANKS = 8, BYTES = 2 << 20 };

static wcu_context contexts[RANKS];

static wcu_mem_allocation_prop memory_of(int d)
{
  return (wcu_mem_allocation_prop){.type = WCU_MEM_ALLOCATION_TYPE_PINNED, .location = {WCU_MEM_LOCATION_TYPE_DEVICE, d}};
}

static void set_emulator(const char *name, const char *value)
{
  if (value) setenv(name, value, 1);
  else unsetenv(name);
  emu_reset();
}

/* Memory of the first `count` devices that an object joins. */
typedef struct team {
  int count;
  wcu_mem_handle object, memory[RANKS];
  wcu_ptr own[RANKS], all[RANKS];
} team;

static wcu_ptr map_for(int d, wcu_mem_handle handle)
{
  wcu_mem_access_desc rights = {{WCU_MEM_LOCATION_TYPE_DEVICE, d}, WCU_MEM_ACCESS_READWRITE};
  wcu_ptr at;

  CU(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
  CU(cuMemMap(at, BYTES, 0, handle, 0));
  CU(cuMemSetAccess(at, BYTES, &rights, 1));
  return at;
}

static void unmap(wcu_ptr at)
{
  CU(cuMemUnmap(at, BYTES));
  CU(cuMemAddressFree(at, BYTES));
}

static void open_team(team *t, int count)
{
  wcu_multicast_prop prop = {.numDevices = (unsigned)count, .size = BYTES};

  t->count = count;
  CU(cuMulticastCreate(&t->object, &prop));
  for (int d = 0; d < count; d++) CU(cuMulticastAddDevice(t->object, d));
  for (int d = 0; d < count; d++) {
    wcu_mem_allocation_prop memory = memory_of(d);
    CU(cuMemCreate(&t->memory[d], BYTES, &memory, 0));
    CU(cuMulticastBindMem(t->object, 0, t->memory[d], 0, BYTES, 0));
    t->own[d] = map_for(d, t->memory[d]);
    t->all[d] = map_for(d, t->object);
  }
}

static void close_team(team *t)
{
  for (int d = 0; d < t->count; d++) CU(cuMulticastUnbind(t->object, d, 0, BYTES));
  for (int d = 0; d < t->count; d++) {
    unmap(t->all[d]);
    unmap(t->own[d]);
    CU(cuMemRelease(t->memory[d]));
  }
  CU(cuMemRelease(t->object));
}

static void check_nothing_is_left(void)
{
  char text[400];

  if (emu_leaks(text, sizeof text)) fail_msg("%s", text);
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

TEST(objects_keep_the_drivers_rules)
{
  wcu_multicast_prop prop = {.numDevices = 2, .size = BYTES}, bad;
  wcu_mem_allocation_prop first = memory_of(0), third = memory_of(2);
  wcu_mem_handle object, memory, other, again;
  size_t least, better;
  wcu_ptr at;
  int has;

  CU(cuDeviceGetAttribute(&has, WCU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
  assert_int_equal(has, 1);
  CU(cuMulticastGetGranularity(&least, &prop, WCU_MULTICAST_GRANULARITY_MINIMUM));
  CU(cuMulticastGetGranularity(&better, &prop, WCU_MULTICAST_GRANULARITY_RECOMMENDED));
  T_TRUE(least == BYTES && better > least && better % least == 0);
  bad = prop, bad.size = least + 1;
  CU_IS(cuMulticastCreate(&object, &bad), WCU_ERROR_INVALID_VALUE);
  bad = prop, bad.numDevices = RANKS + 1;
  CU_IS(cuMulticastCreate(&object, &bad), WCU_ERROR_INVALID_VALUE);
  bad = prop, bad.flags = 1;
  CU_IS(cuMulticastCreate(&object, &bad), WCU_ERROR_INVALID_VALUE);
  CU(cuMulticastCreate(&object, &prop));
  CU(cuMemCreate(&memory, 2 * BYTES, &first, 0));
  CU(cuMemCreate(&other, BYTES, &third, 0));
  CU(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
  CU(cuMulticastAddDevice(object, 0));
  CU_IS(cuMulticastAddDevice(object, 0), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuMulticastBindMem(object, 0, memory, 0, BYTES, 0), WCU_ERROR_ILLEGAL_STATE); /* device 1 is missing */
  CU_IS(cuMemMap(at, BYTES, 0, object, 0), WCU_ERROR_ILLEGAL_STATE);
  CU(cuMulticastAddDevice(object, 1));
  CU_IS(cuMulticastAddDevice(object, 2), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuMulticastBindMem(object, 0, other, 0, BYTES, 0), WCU_ERROR_INVALID_DEVICE);
  CU_IS(cuMulticastBindMem(object, 4096, memory, 0, BYTES, 0), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuMulticastBindMem(object, 0, memory, 0, 2 * BYTES, 0), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuMulticastBindMem(object, 0, memory, 2 * BYTES, BYTES, 0), WCU_ERROR_INVALID_VALUE);
  CU(cuMulticastBindMem(object, 0, memory, BYTES, BYTES, 0));
  CU_IS(cuMulticastBindMem(object, 0, memory, 0, BYTES, 0), WCU_ERROR_INVALID_VALUE); /* a second time */
  CU_IS(cuMemRelease(memory), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuMemRelease(object), WCU_ERROR_INVALID_VALUE);
  CU_IS(cuMulticastUnbind(object, 1, 0, BYTES), WCU_ERROR_INVALID_VALUE);
  CU(cuMulticastUnbind(object, 0, 0, BYTES));
  CU_IS(cuMulticastBindMem(memory, 0, other, 0, BYTES, 0), WCU_ERROR_INVALID_VALUE);
  CU(cuMemRelease(memory));
  CU(cuMemRelease(other));
  CU(cuMemRelease(object));
  CU(cuMemAddressFree(at, BYTES));
  bad = prop, bad.handleTypes = WCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; /* only memory that others may have, too */
  CU(cuMulticastCreate(&again, &bad));
  for (int d = 0; d < 2; d++) CU(cuMulticastAddDevice(again, d));
  CU(cuMemCreate(&memory, BYTES, &first, 0));
  CU_IS(cuMulticastBindMem(again, 0, memory, 0, BYTES, 0), WCU_ERROR_INVALID_VALUE);
  CU(cuMemRelease(memory));
  CU(cuMemRelease(again));
  set_emulator("WEFT_EMU_MULTICAST", "0");
  CU_IS(cuMulticastCreate(&object, &prop), WCU_ERROR_NOT_SUPPORTED);
  CU(cuDeviceGetAttribute(&has, WCU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
  assert_int_equal(has, 0);
  set_emulator("WEFT_EMU_MULTICAST", "1");
  check_nothing_is_left();
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

/* A kernel of one thread with the addresses %a and %o. */
static void write_kernel(char *text, size_t size, const char *target, const char *body)
{
  snprintf(
    text, size,
    ".version 8.1\n.target %s\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 o)\n{\n"
    ".reg .b32 %%r<5>;\n.reg .b64 %%d<3>, %%a, %%o;\nld.param.u64 %%a, [a];\nld.param.u64 %%o, [o];\n%s\nret;\n}\n",
    target, body);
}

static wcu_result run_body(int d, const char *body, wcu_ptr a, wcu_ptr o)
{
  char text[1024];
  wcu_module module;
  wcu_function fn;
  void *params[] = {&a, &o};

  write_kernel(text, sizeof text, "sm_90", body);
  CU(cuCtxSetCurrent(contexts[d]));
  CU(cuModuleLoadData(&module, text));
  CU(cuModuleGetFunction(&fn, module, "k"));
  CU(cuLaunchKernel(fn, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  wcu_result result = cuCtxSynchronize();
  if (result) CU(cuDevicePrimaryCtxReset_v2(d));
  CU(cuModuleUnload(module));
  return result;
}

static void put_words(const team *t, size_t at, const uint64_t *words, size_t bytes)
{
  for (int d = 0; d < t->count; d++) {
    CU(cuCtxSetCurrent(contexts[d]));
    CU(cuMemcpyHtoD_v2(t->own[d] + at, &words[d], bytes));
  }
}

static uint64_t word_of(const team *t, int d, size_t at, size_t bytes)
{
  uint64_t word = 0;

  CU(cuCtxSetCurrent(contexts[d]));
  CU(cuMemcpyDtoH_v2(&word, t->own[d] + at, bytes));
  return word;
}

TEST(instructions_reach_the_memory_of_all_devices)
{
  static const struct { const char *reduce; int bytes; uint64_t in[3], want; } cases[] = {
    {"add.u32", 4, {0xffffffff, 5, 7}, 11}, {"add.s32", 4, {0xffffffff, 5, 7}, 11},
    {"add.u64", 8, {UINT64_MAX, 5, 7}, 11}, {"min.u32", 4, {0xffffffff, 5, 7}, 5},
    {"min.s32", 4, {0xffffffff, 5, 7}, 0xffffffff}, {"max.u64", 8, {UINT64_MAX, 5, 7}, UINT64_MAX},
    {"max.s64", 8, {UINT64_MAX, 5, 7}, 7}, {"and.b32", 4, {7, 6, 0xe}, 6}, {"or.b64", 8, {1ull << 40, 2, 4}, (1ull << 40) + 6},
    {"xor.b32", 4, {1, 3, 7}, 5}, {"add.f32", 4, {0x3f800000, 0x40000000, 0x40800000}, 0x40e00000},
    {"add.f64", 8, {0x3ff0000000000000, 0x4000000000000000, 0x4010000000000000}, 0x401c000000000000},
    {"add.f16x2", 4, {0x3c004000, 0x3c004000, 0x3c004000}, 0x42004600},
    {"min.bf16x2", 4, {0x3f804000, 0x40803f80, 0xbf803f80}, 0xbf803f80},
    /* 2048 + 1 + 1 in f32, rounded once */
    {"add.acc::f32.f16x2", 4, {0x68006800, 0x3c003c00, 0x3c003c00}, 0x68016801},
  };
  char body[400];
  team t;

  open_team(&t, 3);
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    int bits = 8 * cases[i].bytes;
    const char *reg = bits == 64 ? "%d1" : "%r1";
    snprintf(body, sizeof body, "multimem.ld_reduce.relaxed.sys.global.%s %s, [%%a+16];\nst.global.b%d [%%o], %s;",
             cases[i].reduce, reg, bits, reg);
    put_words(&t, 16, cases[i].in, (size_t)cases[i].bytes);
    CU(run_body(1, body, t.all[1], t.own[1] + 64));
    uint64_t got = word_of(&t, 1, 64, (size_t)cases[i].bytes);
    if (got != cases[i].want) fail_msg("%s: got %#llx", cases[i].reduce, (unsigned long long)got);
  }
  CU(run_body(2,
              "mov.b32 %r1, 1; mov.b32 %r2, 2; mov.b32 %r3, 3; mov.b32 %r4, 0x7fc00001;\n"
              "multimem.st.release.sys.global.v4.f32 [%a+32], {%r1, %r2, %r3, %r4};\n"
              "mov.b64 %d1, 40; multimem.red.relaxed.sys.global.add.u64 [%a+32], %d1;\n"
              "multimem.red.relaxed.sys.global.and.b32 [%a+40], %r2;",
              t.all[2], 0));
  for (int d = 0; d < t.count; d++) {
    T_TRUE(word_of(&t, d, 32, 8) == (2ull << 32) + 41);
    T_TRUE(word_of(&t, d, 40, 8) == (0x7fc00001ull << 32) + 2);
  }
  close_team(&t);
  check_nothing_is_left();
}

/* A program that relies on an order of additions has different results. */
TEST(sums_of_floats_have_no_order)
{
  static const float values[RANKS] = {1e8f, 1.0f, -1e8f, 0.5f, 3e7f, 0.25f, -3e7f, 1.0f};
  uint64_t words[RANKS] = {0}, first = 0;
  bool by_seed = false, by_place = false;
  team t;

  for (int d = 0; d < RANKS; d++) memcpy(&words[d], &values[d], sizeof values[d]);
  open_team(&t, RANKS);
  for (int seed = 1; seed < 9; seed++) {
    char order[40];
    snprintf(order, sizeof order, "interleaved:%d", seed);
    set_emulator("WEFT_EMU_ORDER", order);
    for (size_t at = 0; at < 64; at += 4) {
      put_words(&t, at, words, 4);
      CU(run_body(0, "multimem.ld_reduce.relaxed.sys.global.add.f32 %r1, [%a]; st.global.b32 [%o], %r1;", t.all[0] + at,
                  t.own[0] + 64));
      uint64_t got = word_of(&t, 0, 64, 4);
      if (!first) first = got;
      if (at == 0) by_seed |= got != first;
      else by_place |= got != first;
    }
  }
  set_emulator("WEFT_EMU_ORDER", NULL);
  T_TRUE(by_seed && by_place);
  close_team(&t);
}

static void fail_with(wcu_result result, const char *says)
{
  assert_int_equal(result, WCU_ERROR_ILLEGAL_ADDRESS);
  if (!strstr(emu_last_error(), says)) fail_msg("%s", emu_last_error());
}

TEST(addresses_are_for_their_instructions_only)
{
  team t;
  wcu_ptr a;

  open_team(&t, 3);
  fail_with(run_body(0, "ld.global.b32 %r1, [%a];", t.all[0], 0), "only multimem instructions");
  fail_with(run_body(0, "mov.b32 %r1, 0; st.global.b32 [%a], %r1;", t.all[0], 0), "only multimem instructions");
  fail_with(run_body(0, "multimem.ld_reduce.add.u32 %r1, [%a];", t.own[0], 0), "no multicast object is mapped there");
  fail_with(run_body(1, "multimem.ld_reduce.add.u32 %r1, [%a];", t.all[0], 0), "device 1 has no access");
  CU_IS(run_body(0, "multimem.ld_reduce.add.u32 %r1, [%a+2];", t.all[0], 0), WCU_ERROR_MISALIGNED_ADDRESS);
  CU(cuCtxSetCurrent(contexts[0]));
  CU_IS(cuMemcpyDtoH_v2(&a, t.all[0], 4), WCU_ERROR_INVALID_VALUE);
  CU(cuMulticastUnbind(t.object, 2, 0, BYTES));
  fail_with(run_body(0, "multimem.ld_reduce.add.u32 %r1, [%a];", t.all[0], 0), "device 2 has bound no memory");
  CU(cuMulticastBindMem(t.object, 0, t.memory[2], 0, BYTES, 0));
  close_team(&t);
}

TEST(other_forms_are_refused)
{
  static const struct { const char *target, *body; } cases[] = {
    {"sm_80", "multimem.ld_reduce.add.u32 %r1, [%a];"},
    {"sm_90", "multimem.ld_reduce.add.s64 %d1, [%a];"},
    {"sm_90", "multimem.ld_reduce.and.u32 %r1, [%a];"},
    {"sm_90", "multimem.ld_reduce.add.v2.u32 {%r1, %r2}, [%a];"},
    {"sm_90", "multimem.ld_reduce.min.f32 %r1, [%a];"},
    {"sm_90", "multimem.ld_reduce.release.sys.add.u32 %r1, [%a];"},
    {"sm_90", "multimem.ld_reduce.relaxed.add.u32 %r1, [%a];"},
    {"sm_90", "multimem.st.v4.b32 [%a], {%r1, %r2, %r3, %r4};"},
    {"sm_90", "multimem.red.max.f16x2 [%a], %r1;"},
    {"sm_90", "multimem.ld_reduce.add.v8.f32 %r1, [%a];"},
  };
  char text[1024];
  wcu_module module;

  CU(cuCtxSetCurrent(contexts[0]));
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    write_kernel(text, sizeof text, cases[i].target, cases[i].body);
    if (cuModuleLoadData(&module, text) == WCU_SUCCESS) fail_msg("%s: accepted", cases[i].body);
    if (!strstr(emu_last_error(), "multimem")) fail_msg("%s: %s", cases[i].body, emu_last_error());
  }
}

/* ---- Weft's kernels ---------------------------------------------------------------------------------------------- */

/* Each thread has one step for each rank. */
enum { PEERS = 4, THREADS = 8, ROUND_BYTES = PEERS * THREADS * GPU_PEER_STEP_BYTES };

static wcu_stream streams[PEERS];
static wcu_module modules[PEERS];
static wcu_ptr areas[PEERS], arrays[PEERS]; /* operands, which differ by round, then results */
static uint32_t *abort_word;
static int refused; /* launches, because the device had failed before */

static void open_ranks(const char *text, int rounds)
{
  size_t words = (size_t)rounds * ROUND_BYTES / 4;
  uint32_t *data = malloc(4 * words), value = 1;

  for (int d = 0; d < PEERS; d++) {
    for (size_t i = 0; i < words; i++) data[i] = value = value * 1664525 + 1013904223;
    CU(cuCtxSetCurrent(contexts[d]));
    CU(cuStreamCreate(&streams[d], WCU_STREAM_NON_BLOCKING));
    CU(cuModuleLoadData(&modules[d], text));
    CU(cuMemAlloc_v2(&areas[d], GPU_PEER_AREA_BYTES));
    CU(cuMemsetD32_v2(areas[d], 0, GPU_PEER_AREA_BYTES / 4));
    CU(cuMemAlloc_v2(&arrays[d], 4 * words + PEERS * ROUND_BYTES));
    CU(cuMemcpyHtoD_v2(arrays[d], data, 4 * words));
  }
  for (int d = 0; d < PEERS; d++)
    for (int peer = 0; peer < PEERS; peer++) {
      CU(cuCtxSetCurrent(contexts[d]));
      if (peer == d) continue;
      wcu_result result = cuCtxEnablePeerAccess(contexts[peer], 0);
      if (result != WCU_ERROR_PEER_ACCESS_ALREADY_ENABLED) CU(result);
    }
  CU(cuMemHostAlloc((void **)&abort_word, 4, WCU_MEMHOSTALLOC_PORTABLE));
  *abort_word = 0;
  free(data);
}

static void close_ranks(bool have_failed)
{
  for (int d = 0; d < PEERS && have_failed; d++) CU(cuDevicePrimaryCtxReset_v2(d)); /* errors stick to the contexts */
  CU(cuMemFreeHost(abort_word));
  for (int d = 0; d < PEERS; d++) {
    CU(cuCtxSetCurrent(contexts[d]));
    CU(cuMemFree_v2(areas[d]));
    CU(cuMemFree_v2(arrays[d]));
    CU(cuModuleUnload(modules[d]));
    if (!have_failed) CU(cuStreamDestroy_v2(streams[d])); /* a reset has ended it */
  }
}

/* WCU_ERROR_LAUNCH_FAILED: the rank's device has failed in an earlier round. */
static wcu_result launch(const team *t, int r, const char *kernel, int round, int rounds)
{
  enum { END, BUFFER_POINTER, BUFFER_SIZE };
  gpu_peer_args args = {.rank = (uint32_t)r, .abort = (uint64_t)(uintptr_t)abort_word, .bytes = ROUND_BYTES - 12,
                        .slot = ROUND_BYTES, .steps = ROUND_BYTES / 16 - 1, .out_steps = ROUND_BYTES / 16 - 1};
  size_t bytes = sizeof args;
  void *extra[] = {(void *)BUFFER_POINTER, &args, (void *)BUFFER_SIZE, &bytes, (void *)END};
  uint64_t half = (uint64_t)(round % 2) * BYTES / 2;
  wcu_function fn;

  for (int k = 0; k < PEERS; k++) {
    args.area[k] = areas[k];
    args.in[k] = arrays[k] + (uint64_t)round * ROUND_BYTES;
  }
  args.send = args.in[r];
  if (strstr(kernel, "broadcast") && r != round % PEERS) args.send = 0;
  if (strstr(kernel, "gather")) args.block = ROUND_BYTES;
  args.out = arrays[r] + (uint64_t)rounds * ROUND_BYTES;
  args.scratch = t->own[r] + half;
  args.all = t->all[r] + half;
  CU(cuCtxSetCurrent(contexts[r]));
  wcu_result result = cuModuleGetFunction(&fn, modules[r], kernel);
  if (result == WCU_SUCCESS) result = cuLaunchKernel(fn, 1, 1, 1, THREADS, 1, 1, 0, streams[r], NULL, extra);
  refused += result == WCU_ERROR_LAUNCH_FAILED;
  return result;
}

/* Whether all ranks have the same result, as of all kernels but "multicast_scatter". */
static bool agree(int rounds)
{
  static char results[2][ROUND_BYTES - 12];

  for (int r = 0; r < PEERS; r++) {
    CU(cuCtxSetCurrent(contexts[r]));
    CU(cuMemcpyDtoH_v2(results[r > 0], arrays[r] + (uint64_t)rounds * ROUND_BYTES, sizeof results[0]));
    if (memcmp(results[0], results[r > 0], sizeof results[0]) != 0) return false;
  }
  return true;
}

/* Runs the kernel on all ranks until one fails or `rounds` are done. The host looks for failures after every fourth
 * round. `slowly`: it launches a round when the one before has ended or failed. True: a device has found a race, or the
 * results are wrong. */
static bool run_until_a_race(const char *text, const char *kernel, int rounds, bool slowly)
{
  wcu_result ended = WCU_SUCCESS;
  bool differs = false;
  char where[80];
  team t;

  open_team(&t, PEERS);
  open_ranks(text, rounds);
  for (int n = 0; n < rounds && !ended && !differs; n++) {
    for (int r = 0; r < PEERS && !ended; r++) ended = launch(&t, r, kernel, n, rounds);
    if (ended) break;
    bool fourth = n % 4 == 3;
    wcu_result seen = fourth || slowly ? await_streams(contexts, streams, PEERS) : WCU_SUCCESS;
    if (fourth) ended = seen;
    differs = fourth && !ended && !strstr(kernel, "scatter") && !agree(rounds);
  }
  if (ended) __atomic_store_n(abort_word, 1, __ATOMIC_RELEASE); /* the others wait for the rank that has failed */
  for (int r = 0; r < PEERS; r++) {
    CU(cuCtxSetCurrent(contexts[r]));
    cuStreamSynchronize(streams[r]);
  }
  snprintf(where, sizeof where, "kernel %s,", kernel);
  bool race = ended == WCU_ERROR_LAUNCH_FAILED && strstr(emu_last_error(), "race: ") && strstr(emu_last_error(), where);
  if (ended && !race) fail_msg("another error: %d (%s)", ended, emu_last_error());
  close_ranks(ended);
  close_team(&t);
  check_nothing_is_left();
  return ended || differs;
}

/* The text with `to` for each `from`; the caller frees it. */
static char *with_another(const char *text, const char *from, const char *to)
{
  size_t size = 2 * strlen(text) + 1;
  char *out = malloc(size), *end = out;

  for (const char *at; (at = strstr(text, from)); text = at + strlen(from))
    end += sprintf(end, "%.*s%s", (int)(at - text), text, to);
  snprintf(end, size - (size_t)(end - out), "%s", text);
  return out;
}

TEST(a_missing_fence_or_barrier_is_found)
{
  enum { ROUNDS = 40 };
  static const struct { const char *kernel; weft_reduction reduction; } kernels[] = {
    {"multicast_reduce", WEFT_SUM}, {"multicast_two_shot", WEFT_SUM}, {"multicast_scatter", WEFT_SUM},
    {"multicast_spread", WEFT_SUM}, {"multicast_gather", WEFT_REDUCE_NONE}, {"multicast_broadcast", WEFT_REDUCE_NONE},
  };
  static const struct { const char *what, *from, *to; } edits[] = {
    {"no fence between the two addresses", "fence.proxy.alias;", ""},
    {"no release", "st.release.sys", "st.relaxed.sys"},
    {"no acquire", "ld.acquire.sys", "ld.relaxed.sys"},
    {"a release in the scope of the device", "st.release.sys", "st.release.gpu"},
    {"a barrier that does not wait", "setp.ge.s32 %p, %t, 0;", "setp.ge.s32 %p, %t, -4096;"},
  };

  setenv("WEFT_EMU_CHECKS", "all", 1);
  set_emulator("WEFT_EMU_DELAY_US", "500"); /* launches begin and end at different times */
  for (size_t k = 0; k < WEFT_COUNT(kernels); k++) {
    char *text = gpu_peer_multicast_ptx(kernels[k].reduction ? WEFT_S32 : WEFT_U8, kernels[k].reduction, PEERS);
    assert_non_null(text);
    if (run_until_a_race(text, kernels[k].kernel, ROUNDS, false)) fail_msg("%s", emu_last_error());
    for (size_t i = 0; i < WEFT_COUNT(edits); i++) {
      char *edited = with_another(text, edits[i].from, edits[i].to);
      T_TRUE(strcmp(edited, text) != 0);
      if (!run_until_a_race(edited, kernels[k].kernel, 2 * ROUNDS, i == 0))
        fail_msg("%s: %s is not found", kernels[k].kernel, edits[i].what);
      free(edited);
    }
    free(text);
  }
  T_TRUE(refused > 0); /* a device may have failed before the next round is launched */
  unsetenv("WEFT_EMU_CHECKS");
  set_emulator("WEFT_EMU_DELAY_US", NULL);
}

/* WEFT_CUDA_PTXAS names the program; else it is looked for where programs are. */
TEST(ptxas_takes_all_modules)
{
  const char *named = getenv("WEFT_CUDA_PTXAS"), *ptxas = named ? named : "ptxas";
  char command[4400], file[] = "/tmp/weft-multicast-XXXXXX";
  int modules = 0;

  snprintf(command, sizeof command, "'%s' --version >/dev/null 2>&1", ptxas);
  if (system(command) != 0) T_SKIP("there is no ptxas: WEFT_CUDA_PTXAS names none, and PATH has none");
  int fd = mkstemp(file);
  T_TRUE(fd >= 0);
  close(fd);
  snprintf(command, sizeof command, "'%s' -arch=sm_90 -o /dev/null '%s'", ptxas, file);
  for (int type = WEFT_PRED; type <= WEFT_C128; type++)
    for (int reduction = WEFT_REDUCE_NONE; reduction <= WEFT_XOR; reduction++) {
      weft_dtype dtype = reduction ? (weft_dtype)type : WEFT_U8, kernels = dtype;
      int per_elem, ranks = 2 + modules % 7;
      if (reduction ? !gpu_peer_reduces(dtype, (weft_reduction)reduction, &kernels, &per_elem) : type != WEFT_PRED)
        continue;
      char *text = gpu_peer_multicast_ptx(kernels, (weft_reduction)reduction, ranks);
      FILE *out = fopen(file, "w");
      T_TRUE(text && out && fputs(text, out) >= 0 && fclose(out) == 0);
      if (system(command) != 0)
        fail_msg("ptxas does not take %s of %s", weft_reduction_name((weft_reduction)reduction),
                 weft_dtype_name(dtype));
      free(text);
      modules++;
    }
  print_message("# %d modules\n", modules);
  unlink(file);
}

static int set_up(void **state)
{
  (void)state;
  setenv("WEFT_EMU_DEVICES", "8", 1);
  setenv("WEFT_EMU_MULTICAST", "1", 1);
  open_driver();
  CU(cuInit(0));
  for (int d = 0; d < RANKS; d++) CU(cuDevicePrimaryCtxRetain(&contexts[d], d));
  return 0;
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(objects_keep_the_drivers_rules), UNIT(instructions_reach_the_memory_of_all_devices),
    UNIT(sums_of_floats_have_no_order), UNIT(addresses_are_for_their_instructions_only), UNIT(other_forms_are_refused),
    UNIT(a_missing_fence_or_barrier_is_found), UNIT(ptxas_takes_all_modules)};
  return cmocka_run_group_tests(units, set_up, NULL);
}
