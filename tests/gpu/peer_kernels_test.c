/* tests/gpu/peer_kernels_test.c -- the kernels between devices on eight emulated devices: they meet, whatever the
 * delays are, also when the numbers of barriers wrap; an abort ends the ones that wait; folds go from the left. */
#include "driver.h"

#include <unistd.h>

#include "base/deadline.h"
#include "gpu/peer_ptx.h"

#if defined WEFT_HAS_ASAN || defined WEFT_HAS_TSAN
enum { ROUNDS = 1500 };
#else
enum { ROUNDS = 10000 };
#endif
enum { RANKS = 8, SCRATCH_BYTES = 4096 };

static wcu_context contexts[RANKS];
static wcu_stream streams[RANKS];
static wcu_module modules[RANKS];
static wcu_ptr areas[RANKS], scratches[RANKS];
static uint32_t *abort_word;

/* All devices with the kernels of `text`; the signal areas are filled with `number`, with the scratches behind them. */
static void open_ranks(const char *text, uint32_t number)
{
  for (int d = 0; d < RANKS; d++) {
    CU(cuDevicePrimaryCtxRetain(&contexts[d], d));
    CU(cuCtxSetCurrent(contexts[d]));
    CU(cuStreamCreate(&streams[d], WCU_STREAM_NON_BLOCKING));
    CU(cuModuleLoadData(&modules[d], text));
    CU(cuMemAlloc_v2(&areas[d], GPU_PEER_AREA_BYTES));
    CU(cuMemAlloc_v2(&scratches[d], 2 * SCRATCH_BYTES));
    CU(cuMemsetD32_v2(areas[d], number, GPU_PEER_AREA_BYTES / 4));
  }
  for (int d = 0; d < RANKS; d++)
    for (int peer = 0; peer < RANKS; peer++) {
      CU(cuCtxSetCurrent(contexts[d]));
      if (peer != d) {
        wcu_result result = cuCtxEnablePeerAccess(contexts[peer], 0);
        if (result != WCU_ERROR_PEER_ACCESS_ALREADY_ENABLED) CU(result);
      }
    }
  CU(cuMemHostAlloc((void **)&abort_word, 4, WCU_MEMHOSTALLOC_PORTABLE));
  *abort_word = 0;
}

static void close_ranks(bool have_failed)
{
  char text[400];

  for (int d = 0; d < RANKS && have_failed; d++) CU(cuDevicePrimaryCtxReset_v2(d)); /* errors stick to the contexts */
  CU(cuMemFreeHost(abort_word));
  for (int d = 0; d < RANKS; d++) {
    CU(cuCtxSetCurrent(contexts[d]));
    CU(cuMemFree_v2(areas[d]));
    CU(cuMemFree_v2(scratches[d]));
    CU(cuModuleUnload(modules[d]));
    if (!have_failed) CU(cuStreamDestroy_v2(streams[d])); /* a reset has ended it */
  }
  for (int d = 0; d < RANKS; d++) CU(cuDevicePrimaryCtxRelease_v2(d));
  if (emu_leaks(text, sizeof text)) fail_msg("%s", text);
}

static void launch(int r, const char *kernel, int blocks, int threads, gpu_peer_args args)
{
  enum { END, BUFFER_POINTER, BUFFER_SIZE };
  size_t bytes = sizeof args;
  void *extra[] = {(void *)BUFFER_POINTER, &args, (void *)BUFFER_SIZE, &bytes, (void *)END};
  wcu_function fn;

  for (int k = 0; k < RANKS; k++) args.area[k] = areas[k];
  args.abort = (uint64_t)(uintptr_t)abort_word;
  args.rank = (uint32_t)r;
  CU(cuCtxSetCurrent(contexts[r]));
  CU(cuModuleGetFunction(&fn, modules[r], kernel));
  CU(cuLaunchKernel(fn, (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1, 0, streams[r], NULL, extra));
}

static void sync_ranks(void)
{
  for (int d = 0; d < RANKS; d++) {
    CU(cuCtxSetCurrent(contexts[d]));
    CU(cuStreamSynchronize(streams[d]));
  }
}

static void set_emulator(const char *name, const char *value)
{
  if (value) setenv(name, value, 1);
  else unsetenv(name);
  emu_reset();
}

/* ---- one shot, many rounds --------------------------------------------------------------------------------------- */

enum { ELEMS = 4 };

static uint32_t operand_of(int rank, size_t i) { return (uint32_t)(i * 2654435761u) ^ (uint32_t)rank * 40503u; }

/* `rounds` small all-reduces behind each other, without the host; round n has operand and result of its own. */
static void run_rounds(int rounds)
{
  size_t count = (size_t)rounds * ELEMS, bytes = count * sizeof(uint32_t);
  uint32_t *data = malloc(bytes);
  wcu_ptr in[RANKS], out[RANKS];

  for (int r = 0; r < RANKS; r++) {
    for (size_t i = 0; i < count; i++) data[i] = operand_of(r, i);
    CU(cuCtxSetCurrent(contexts[r]));
    CU(cuMemAlloc_v2(&in[r], bytes));
    CU(cuMemAlloc_v2(&out[r], bytes));
    CU(cuMemcpyHtoD_v2(in[r], data, bytes));
  }
  for (int n = 0; n < rounds; n++)
    for (int r = 0; r < RANKS; r++) {
      uint64_t at = (uint64_t)n * ELEMS * sizeof(uint32_t), scratch_at = (uint64_t)(n % 2) * SCRATCH_BYTES;
      gpu_peer_args args = {.out = out[r] + at, .send = in[r] + at, .scratch = scratches[r] + scratch_at, .count = ELEMS};
      for (int k = 0; k < RANKS; k++) args.in[k] = scratches[k] + scratch_at;
      args.steps = (uint64_t)(n % 3 != 0); /* also by single elements */
      launch(r, "one_shot", 1 + n % 2, 32, args);
    }
  sync_ranks();
  for (int r = 0; r < RANKS; r++) {
    CU(cuCtxSetCurrent(contexts[r]));
    CU(cuMemcpyDtoH_v2(data, out[r], bytes));
    for (size_t i = 0; i < count; i++) {
      uint32_t want = 0;
      for (int k = 0; k < RANKS; k++) want += operand_of(k, i);
      if (data[i] != want) fail_msg("round %zu, rank %d: got %u, want %u", i / ELEMS, r, data[i], want);
    }
    CU(cuMemFree_v2(in[r]));
    CU(cuMemFree_v2(out[r]));
  }
  free(data);
}

TEST(rounds_with_delays_meet_and_their_numbers_wrap)
{
  char *text = gpu_peer_ptx(WEFT_U32, WEFT_SUM, RANKS), order[40];
  const char *seed = getenv("WEFT_TEST_SEED"), *wanted = getenv("WEFT_TEST_ROUNDS");
  int rounds = wanted ? atoi(wanted) : ROUNDS;

  snprintf(order, sizeof order, "interleaved:%s", seed ? seed : "17");
  print_message("# WEFT_TEST_SEED=%s WEFT_TEST_ROUNDS=%d\n", seed ? seed : "17", rounds);
  open_ranks(text, UINT32_MAX - (uint32_t)rounds / 2);
  set_emulator("WEFT_EMU_ORDER", order);
  set_emulator("WEFT_EMU_DELAY_US", "20");
  run_rounds(rounds / 5);
  set_emulator("WEFT_EMU_DELAY_US", NULL);
  set_emulator("WEFT_EMU_ORDER", NULL);
  run_rounds(rounds - rounds / 5);
  close_ranks(false);
  free(text);
}

TEST(a_barrier_waits_for_all_ranks_and_an_abort_ends_it)
{
  char *text = gpu_peer_ptx(WEFT_U8, WEFT_REDUCE_NONE, RANKS);

  open_ranks(text, 0);
  for (int r = 0; r < RANKS; r++) launch(r, "barrier", 1, GPU_PEER_BARRIER_THREADS, (gpu_peer_args){.count = 0});
  sync_ranks();
  for (int r = 0; r < RANKS - 1; r++) launch(r, "barrier", 1, GPU_PEER_BARRIER_THREADS, (gpu_peer_args){.count = 0});
  usleep(100000);
  for (int r = 0; r < RANKS - 1; r++) CU_IS(cuStreamQuery(streams[r]), WCU_ERROR_NOT_READY);
  __atomic_store_n(abort_word, 1, __ATOMIC_RELEASE);
  sync_ranks();
  close_ranks(false);
  free(text);
}

/* ---- fences ------------------------------------------------------------------------------------------------------ */

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

/* Small all-reduces on all ranks until one fails or `rounds` are done. True: a device has found a race. */
static bool run_until_a_race(const char *text, int rounds)
{
  wcu_result ended = WCU_SUCCESS;

  open_ranks(text, 0);
  for (int n = 0; n < rounds && !ended; n++) {
    for (int r = 0; r < RANKS; r++) {
      gpu_peer_args args = {.out = scratches[r] + SCRATCH_BYTES, .send = areas[r], .scratch = scratches[r], .count = ELEMS};
      for (int k = 0; k < RANKS; k++) args.in[k] = scratches[k];
      args.scratch += (uint64_t)(n % 2) * SCRATCH_BYTES / 2;
      for (int k = 0; k < RANKS; k++) args.in[k] += (uint64_t)(n % 2) * SCRATCH_BYTES / 2;
      launch(r, "one_shot", 1, 32, args);
    }
    ended = await_streams(contexts, streams, RANKS);
  }
  if (ended) __atomic_store_n(abort_word, 1, __ATOMIC_RELEASE); /* the others wait for the rank that has failed */
  for (int r = 0; r < RANKS; r++) {
    CU(cuCtxSetCurrent(contexts[r]));
    cuStreamSynchronize(streams[r]);
  }
  bool race = ended == WCU_ERROR_LAUNCH_FAILED && strstr(emu_last_error(), "race: ") &&
              strstr(emu_last_error(), "kernel \"one_shot\" on device");
  if (ended && !race) fail_msg("another error: %d (%s)", ended, emu_last_error());
  close_ranks(ended);
  return ended;
}

TEST(a_missing_fence_is_found_by_the_emulator)
{
  static const struct { const char *from, *to; } edits[] = {
    {"st.release.sys", "st.relaxed.sys"}, {"ld.acquire.sys", "ld.relaxed.sys"},
    {"st.release.sys", "st.release.gpu"}, {"ld.acquire.sys", "ld.acquire.gpu"},
  };
  char *text = gpu_peer_ptx(WEFT_U32, WEFT_SUM, RANKS);

  setenv("WEFT_EMU_CHECKS", "all", 1);
  set_emulator("WEFT_EMU_DELAY_US", "2000"); /* launches begin and end at different times */
  assert_false(run_until_a_race(text, 40));
  for (size_t i = 0; i < WEFT_COUNT(edits); i++) {
    char *edited = with_another(text, edits[i].from, edits[i].to);
    T_TRUE(strcmp(edited, text) != 0);
    if (!run_until_a_race(edited, 40)) fail_msg("%s in place of %s is not found", edits[i].to, edits[i].from);
    print_message("# %s: %s\n", edits[i].to, emu_last_error());
    free(edited);
  }
  unsetenv("WEFT_EMU_CHECKS");
  set_emulator("WEFT_EMU_DELAY_US", NULL);
  free(text);
}

/* ---- folds ------------------------------------------------------------------------------------------------------- */

/* The sums, 2055 and 263, lie in the middle of two numbers; with a rounding after
 * each operation the ones would be lost. */
TEST(narrow_floats_are_rounded_once)
{
  static const struct { weft_dtype dtype; uint16_t big, one, want; } cases[] = {
    {WEFT_F16, 0x6800, 0x3c00, 0x6804}, {WEFT_BF16, 0x4380, 0x3f80, 0x4384}};

  for (size_t c = 0; c < WEFT_COUNT(cases); c++) {
    char *text = gpu_peer_ptx(cases[c].dtype, WEFT_SUM, RANKS);
    uint16_t data[11];
    gpu_peer_args args = {.count = WEFT_COUNT(data), .steps = 1};
    open_ranks(text, 0);
    for (int r = 0; r < RANKS; r++) {
      for (size_t i = 0; i < WEFT_COUNT(data); i++) data[i] = r == 0 ? cases[c].big : cases[c].one;
      CU(cuCtxSetCurrent(contexts[r]));
      CU(cuMemcpyHtoD_v2(scratches[r], data, sizeof data));
      args.in[r] = scratches[r];
    }
    args.out = scratches[3] + SCRATCH_BYTES;
    launch(3, "fold", 1, 32, args);
    sync_ranks();
    CU(cuCtxSetCurrent(contexts[3]));
    CU(cuMemcpyDtoH_v2(data, args.out, sizeof data));
    for (size_t i = 0; i < WEFT_COUNT(data); i++) T_EQ_INT(data[i], cases[c].want);
    close_ranks(false);
    free(text);
  }
}

static int set_up(void **state)
{
  (void)state;
  setenv("WEFT_EMU_DEVICES", "8", 1);
  open_driver();
  CU(cuInit(0));
  return 0;
}

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(rounds_with_delays_meet_and_their_numbers_wrap),
                                     UNIT(a_barrier_waits_for_all_ranks_and_an_abort_ends_it),
                                     UNIT(narrow_floats_are_rounded_once), UNIT(a_missing_fence_is_found_by_the_emulator)};
  return cmocka_run_group_tests(units, set_up, NULL);
}
