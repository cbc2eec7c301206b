/* tests/gpu/nccl_test.c -- the emulated NCCL: its operations give what their definitions say, between devices and
 * between processes; it notices what breaks the library's rules; ranks that do not come, or hang, end by an abort. */
#include "library_device.h"

#include <math.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu/abi/nccl.h"

enum { MOST = 4, N = 70000 /* more than a chunk of the emulator */ };

static struct {
#define MEMBER(type, name, args) wnc_fn_##name name;
  WNC_ENTRIES(MEMBER) WNC_LATER_ENTRIES(MEMBER)
#undef MEMBER
} nccl;
static int (*misuses)(void);
static wcu_context contexts[MOST];
static wcu_stream streams[MOST];

static void resolve(void *lib, const char *name, void *to)
{
  void *fn = dlsym(lib, name);
  if (!fn) fail_msg("no %s", name);
  memcpy(to, &fn, sizeof fn);
}

static void open_nccl(void)
{
  char path[4096];

  setenv("WEFT_EMU_DEVICES", "4", 1);
  open_device();
  snprintf(path, sizeof path, "%s/libnccl.so.2", getenv("WEFT_CUDA_LIBDIR"));
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib) fail_msg("%s", dlerror());
#define RESOLVE(type, name, args) resolve(lib, #name, &nccl.name);
  WNC_ENTRIES(RESOLVE)
  WNC_LATER_ENTRIES(RESOLVE)
#undef RESOLVE
  resolve(lib, "weft_emu_nccl_misuses", &misuses);
  for (int d = 0; d < MOST; d++) {
    CU(cuDevicePrimaryCtxRetain(&contexts[d], d));
    CU(cuCtxSetCurrent(contexts[d]));
    CU(cuStreamCreate(&streams[d], WCU_STREAM_NON_BLOCKING));
  }
}

#define NC(call)                                                                                      \
  do {                                                                                                \
    wnc_result nc_ = (call);                                                                          \
    if (nc_) fail_msg("%s: %s (%s)", #call, nccl.ncclGetErrorString(nc_), nccl.ncclGetLastError(NULL)); \
  } while (0)
#define NC_IS(call, want)                                                                             \
  do {                                                                                                \
    wnc_result nc_ = (call);                                                                          \
    if (nc_ != (want)) fail_msg("%s: got %d (%s), want %d", #call, (int)nc_, nccl.ncclGetLastError(NULL), (int)(want)); \
  } while (0)

static wnc_result state_of(wnc_comm c)
{
  wnc_result result = WNC_InternalError;
  NC(nccl.ncclCommGetAsyncError(c, &result));
  return result;
}

/* Polls until none of the communicators is in progress, or the time is over. */
static bool await_comms(wnc_comm *comms, int count, int ms)
{
  int64_t until = weft_now_ns() + ms * WEFT_NS_PER_MS;

  for (;;) {
    int busy = 0;
    for (int r = 0; r < count; r++) busy += comms[r] && state_of(comms[r]) == WNC_InProgress;
    if (!busy) return true;
    if (weft_now_ns() > until) return false;
    usleep(500);
  }
}

static void start_comms(wnc_comm *comms, int count)
{
  wnc_config config = WNC_CONFIG(WNC_VERSION);
  wnc_unique_id id;

  config.blocking = 0;
  NC(nccl.ncclGetUniqueId(&id));
  for (int r = 0; r < count; r++) {
    CU(cuCtxSetCurrent(contexts[r]));
    NC_IS(nccl.ncclCommInitRankConfig(&comms[r], count, id, r, &config), WNC_InProgress);
  }
}

static void make_comms(wnc_comm *comms, int count)
{
  start_comms(comms, count);
  assert_true(await_comms(comms, count, 60000));
  for (int r = 0; r < count; r++) NC_IS(state_of(comms[r]), WNC_Success);
}

static void destroy_comms(wnc_comm *comms, int count)
{
  for (int r = 0; r < count; r++) NC(nccl.ncclCommDestroy(comms[r]));
}

static void sync_all(int count)
{
  for (int r = 0; r < count; r++) {
    CU(cuCtxSetCurrent(contexts[r]));
    CU(cuStreamSynchronize(streams[r]));
  }
}

static wcu_ptr floats_on(int r, size_t count, float first, float step)
{
  float *data = malloc(count * sizeof *data);
  for (size_t i = 0; i < count; i++) data[i] = first + step * (float)(i % 97);
  CU(cuCtxSetCurrent(contexts[r]));
  wcu_ptr at = on_device(data, count * sizeof *data);
  free(data);
  return at;
}

static void check_floats(const char *what, int r, wcu_ptr at, size_t count, float (*want)(int r, size_t i))
{
  float *data = malloc(count * sizeof *data);
  CU(cuCtxSetCurrent(contexts[r]));
  CU(cuMemcpyDtoH_v2(data, at, count * sizeof *data));
  for (size_t i = 0; i < count; i++)
    if (data[i] != want(r, i)) fail_msg("%s: rank %d element %zu: got %g, want %g", what, r, i, data[i], want(r, i));
  free(data);
}

#define P(p) ((void *)(uintptr_t)(p)) /* NOLINT */
enum { RANKS = 3 };
static float x_of(int r, size_t i) { return (float)(1000 * r) + (float)(i % 97); }
static float want_sum(int r, size_t i)
{
  (void)r;
  return x_of(0, i) + x_of(1, i) + x_of(2, i);
}
static float want_root_two(int r, size_t i)
{
  (void)r;
  return x_of(2, i);
}
static float want_gathered(int r, size_t i)
{
  (void)r;
  return x_of((int)(i / N), i % N);
}
static float want_scattered(int r, size_t i) { return want_sum(0, (size_t)r * N + i); }
static float want_exchanged(int r, size_t i) { return x_of((int)(i / N), (size_t)r * N + i % N); }
static float want_left(int r, size_t i) { return x_of((r + 2) % 3, i); }
static float want_max(int r, size_t i)
{
  (void)r;
  return x_of(2, i);
}
static float want_part(int r, size_t i) { return x_of(1, (size_t)r * N + i); }

TEST(collectives_give_what_their_definitions_say)
{
  wnc_comm c[RANKS];
  wcu_ptr in[RANKS], out[RANKS];

  make_comms(c, RANKS);
  for (int r = 0; r < RANKS; r++) {
    in[r] = floats_on(r, RANKS * N, (float)(1000 * r), 1);
    out[r] = floats_on(r, RANKS * N, 0, 0);
  }
#define ALL(what, call, count, want)                             \
  for (int r = 0; r < RANKS; r++) {                              \
    CU(cuCtxSetCurrent(contexts[r]));                            \
    NC(call);                                                    \
  }                                                              \
  sync_all(RANKS);                                               \
  for (int r = 0; r < RANKS; r++) check_floats(what, r, out[r], count, want)
  ALL("all-reduce", nccl.ncclAllReduce(P(in[r]), P(out[r]), N, WNC_Float32, WNC_Sum, c[r], streams[r]), N, want_sum);
  ALL("maximum", nccl.ncclAllReduce(P(in[r]), P(out[r]), N, WNC_Float32, WNC_Max, c[r], streams[r]), N, want_max);
  ALL("broadcast", nccl.ncclBroadcast(P(in[r]), P(out[r]), N, WNC_Float32, 2, c[r], streams[r]), N, want_root_two);
  ALL("all-gather", nccl.ncclAllGather(P(in[r]), P(out[r]), N, WNC_Float32, c[r], streams[r]), RANKS * N,
      want_gathered);
  ALL("reduce-scatter", nccl.ncclReduceScatter(P(in[r]), P(out[r]), N, WNC_Float32, WNC_Sum, c[r], streams[r]), N,
      want_scattered);
  ALL("all-to-all", nccl.ncclAlltoAll(P(in[r]), P(out[r]), N, WNC_Float32, c[r], streams[r]), RANKS * N,
      want_exchanged);
  ALL("scatter", nccl.ncclScatter(P(in[r]), P(out[r]), N, WNC_Float32, 1, c[r], streams[r]), N, want_part);
  for (int r = 0; r < RANKS; r++) {
    CU(cuCtxSetCurrent(contexts[r]));
    NC(nccl.ncclGroupStart());
    NC(nccl.ncclSend(P(in[r]), N, WNC_Float32, (r + 1) % RANKS, c[r], streams[r]));
    NC(nccl.ncclRecv(P(out[r]), N, WNC_Float32, (r + 2) % RANKS, c[r], streams[r]));
    NC(nccl.ncclGroupEnd());
  }
  sync_all(RANKS);
  for (int r = 0; r < RANKS; r++) check_floats("a ring of sends", r, out[r], N, want_left);
  for (int r = 0; r < RANKS; r++) /* only the root has a result */
    NC(nccl.ncclReduce(P(in[r]), r == 1 ? P(out[r]) : NULL, N, WNC_Float32, WNC_Sum, 1, c[r], streams[r]));
  sync_all(RANKS);
  check_floats("reduce", 1, out[1], N, want_sum);
  for (int r = 0; r < RANKS; r++) /* in place */
    NC(nccl.ncclAllReduce(P(in[r]), P(in[r]), N, WNC_Float32, WNC_Sum, c[r], streams[r]));
  sync_all(RANKS);
  for (int r = 0; r < RANKS; r++) check_floats("in place", r, in[r], N, want_sum);
  T_EQ_INT(misuses(), 0);
  destroy_comms(c, RANKS);
  for (int r = 0; r < RANKS; r++) free_device(2, (wcu_ptr[]){in[r], out[r]});
}

/* NCCL's maximum of a number and a NaN is the number; sums of f16 are rounded at each rank. */
TEST(reductions_round_and_compare_as_the_library_does)
{
  wnc_comm c[2];
  wcu_ptr at[2];
  float nan_or_one[2] = {NAN, 1.0f}, got;
  uint16_t halves[2] = {0x6800 /* 2048 */, 0x3c00 /* 1 */}, half;

  make_comms(c, 2);
  for (int r = 0; r < 2; r++) {
    CU(cuCtxSetCurrent(contexts[r]));
    at[r] = on_device(&nan_or_one[r], 4);
  }
  for (int r = 0; r < 2; r++) NC(nccl.ncclAllReduce(P(at[r]), P(at[r]), 1, WNC_Float32, WNC_Max, c[r], streams[r]));
  sync_all(2);
  CU(cuMemcpyDtoH_v2(&got, at[0], 4));
  assert_true(got == 1.0f);
  for (int r = 0; r < 2; r++) CU(cuMemcpyHtoD_v2(at[r], &halves[r], 2));
  for (int r = 0; r < 2; r++) NC(nccl.ncclAllReduce(P(at[r]), P(at[r]), 1, WNC_Float16, WNC_Sum, c[r], streams[r]));
  sync_all(2);
  CU(cuMemcpyDtoH_v2(&half, at[1], 2));
  T_EQ_INT(half, 0x6800); /* 2049 is no f16: a tie, to even */
  destroy_comms(c, 2);
  free_device(2, at);
}

TEST(calls_are_in_progress_for_as_many_polls_as_asked)
{
  wnc_comm c[2];
  wcu_ptr at[2];
  int before = misuses();

  setenv("WEFT_EMU_NCCL", "polls:3", 1);
  make_comms(c, 2);
  for (int r = 0; r < 2; r++) at[r] = floats_on(r, 8, 1, 0);
  for (int r = 0; r < 2; r++)
    NC_IS(nccl.ncclAllReduce(P(at[r]), P(at[r]), 8, WNC_Float32, WNC_Sum, c[r], streams[r]), WNC_InProgress);
  /* a call before the polls have come to an end breaks a rule */
  NC_IS(nccl.ncclAllReduce(P(at[0]), P(at[0]), 8, WNC_Float32, WNC_Sum, c[0], streams[0]), WNC_InvalidUsage);
  T_EQ_INT(misuses(), before + 1);
  for (int i = 0; i < 2; i++) NC_IS(state_of(c[0]), WNC_InProgress);
  NC_IS(state_of(c[0]), WNC_Success);
  assert_true(await_comms(c, 2, 60000));
  sync_all(2);
  unsetenv("WEFT_EMU_NCCL");
  destroy_comms(c, 2);
  free_device(2, at);
}

TEST(a_rank_that_does_not_come_leaves_the_others_in_progress_until_an_abort)
{
  wnc_comm c[RANKS];

  setenv("WEFT_EMU_NCCL", "absent:1", 1);
  start_comms(c, RANKS);
  unsetenv("WEFT_EMU_NCCL");
  assert_false(await_comms(c, RANKS, 200));
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclCommAbort(c[r]));
}

static void fail_in_second(const char *fault, wnc_result want)
{
  wnc_comm c[RANKS];
  wcu_ptr at[RANKS];

  setenv("WEFT_EMU_NCCL", fault, 1);
  make_comms(c, RANKS);
  unsetenv("WEFT_EMU_NCCL");
  for (int r = 0; r < RANKS; r++) at[r] = floats_on(r, 8, 1, 0);
  for (int i = 0; i < 2; i++) {
    for (int r = 0; r < RANKS; r++)
      NC(nccl.ncclAllReduce(P(at[r]), P(at[r]), 8, WNC_Float32, WNC_Sum, c[r], streams[r]));
    if (i == 0) sync_all(RANKS);
  }
  usleep(50000);
  for (int r = 0; r < RANKS; r++) CU_IS(cuStreamQuery(streams[r]), WCU_ERROR_NOT_READY);
  NC_IS(state_of(c[1]), want);
  NC_IS(state_of(c[0]), WNC_Success);
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclCommAbort(c[r]));
  sync_all(RANKS); /* the abort has drained the streams */
  free_device(RANKS, at);
}

TEST(a_device_that_hangs_is_drained_by_aborts) { fail_in_second("silent:1@2", WNC_Success); }
TEST(an_error_shows_at_its_rank_and_the_others_hang) { fail_in_second("async:1@2=6", WNC_RemoteError); }

TEST(ranks_that_do_different_operations_are_told)
{
  wnc_comm c[2];
  wcu_ptr at[2];

  make_comms(c, 2);
  for (int r = 0; r < 2; r++) at[r] = floats_on(r, 16, 1, 0);
  NC(nccl.ncclAllReduce(P(at[0]), P(at[0]), 8, WNC_Float32, WNC_Sum, c[0], streams[0]));
  NC(nccl.ncclBroadcast(P(at[1]), P(at[1]), 8, WNC_Float32, 0, c[1], streams[1]));
  for (int i = 0; i < 10000 && (state_of(c[0]) == WNC_Success || state_of(c[1]) == WNC_Success); i++) usleep(1000);
  for (int r = 0; r < 2; r++) NC_IS(state_of(c[r]), WNC_InvalidUsage);
  assert_non_null(strstr(nccl.ncclGetLastError(c[0]), "rank 0 AllReduce of 8"));
  assert_non_null(strstr(nccl.ncclGetLastError(c[0]), "rank 1 Broadcast of 8"));
  for (int r = 0; r < 2; r++) NC(nccl.ncclCommAbort(c[r]));
  sync_all(2);
  free_device(2, at);
}

TEST(broken_rules_are_noticed)
{
  wnc_comm c[2];
  wcu_ptr at = floats_on(0, 64, 1, 0);
  void *handle;
  int before = misuses();

  make_comms(c, 2);
  CU(cuCtxSetCurrent(contexts[0]));
  NC_IS(nccl.ncclGroupEnd(), WNC_InvalidUsage);
  NC_IS(nccl.ncclBroadcast(P(at), P(at), 8, WNC_Float32, 2, c[0], streams[0]), WNC_InvalidArgument);
  NC_IS(nccl.ncclAllReduce(P(at), P(at), 8, (wnc_type)12, WNC_Sum, c[0], streams[0]), WNC_InvalidArgument);
  NC_IS(nccl.ncclAllReduce(P(at), P(at + 4), 8, WNC_Float32, WNC_Sum, c[0], streams[0]), WNC_InvalidArgument);
  NC_IS(nccl.ncclAllReduce(P(at), P(at), 8, WNC_Float32, WNC_Sum, NULL, streams[0]), WNC_InvalidArgument);
  NC(nccl.ncclGroupStart()); /* a group with a bad operation is not queued */
  NC(nccl.ncclSend(P(at), 8, WNC_Float32, 1, c[0], streams[0]));
  NC_IS(nccl.ncclRecv(P(at), 8, WNC_Float32, 7, c[0], streams[0]), WNC_InvalidArgument);
  NC_IS(nccl.ncclGroupEnd(), WNC_InvalidArgument);
  CU(cuStreamSynchronize(streams[0]));
  NC(nccl.ncclCommRegister(c[0], P(at), 64, &handle));
  NC(nccl.ncclCommDeregister(c[0], handle));
  NC_IS(nccl.ncclCommDeregister(c[0], handle), WNC_InvalidArgument);
  NC(nccl.ncclCommRegister(c[0], P(at), 64, &handle));
  free_device(1, &at);
  NC_IS(nccl.ncclCommDeregister(c[0], handle), WNC_InvalidUsage); /* freed before it was deregistered */
  NC(nccl.ncclCommFinalize(c[0]));
  NC_IS(nccl.ncclAllReduce(NULL, NULL, 0, WNC_Float32, WNC_Sum, c[0], streams[0]), WNC_InvalidUsage);
  NC(nccl.ncclCommDestroy(c[0]));
  NC_IS(nccl.ncclCommDestroy(c[0]), WNC_InvalidArgument);
  NC(nccl.ncclCommAbort(c[1]));
  NC_IS(nccl.ncclAllReduce(NULL, NULL, 0, WNC_Float32, WNC_Sum, c[1], streams[1]), WNC_InvalidArgument);
  T_EQ_INT(misuses(), before + 11);
}

/* Opens a window of `bytes` bytes of every rank's memory. */
static void open_windows(wnc_comm *c, void **at, const size_t *bytes, wnc_window *windows, int ranks)
{
  for (int r = 0; r < ranks; r++) {
    CU(cuCtxSetCurrent(contexts[r]));
    NC_IS(nccl.ncclCommWindowRegister(c[r], at[r], bytes[r], &windows[r], WNC_WIN_COLL_SYMMETRIC), WNC_InProgress);
  }
}

/* Memory of ncclMemAlloc, zeroed. */
static void shared_memory(void **at, int ranks)
{
  for (int r = 0; r < ranks; r++) {
    CU(cuCtxSetCurrent(contexts[r]));
    NC(nccl.ncclMemAlloc(&at[r], 1 << 16));
    CU(cuMemsetD32_v2((wcu_ptr)(uintptr_t)at[r], 0, 1 << 14));
  }
}

TEST(windows_are_opened_by_all_ranks_and_used_at_one_offset)
{
  enum { RANKS = 2, BYTES = 1 << 16 };
  static const size_t sizes[] = {BYTES, BYTES};
  wnc_comm c[RANKS];
  wnc_window windows[RANKS] = {NULL};
  void *at[RANKS];
  int before = misuses();

  make_comms(c, RANKS);
  shared_memory(at, RANKS);
  CU(cuCtxSetCurrent(contexts[0]));
  NC_IS(nccl.ncclCommWindowRegister(c[0], at[0], BYTES, &windows[0], WNC_WIN_COLL_SYMMETRIC), WNC_InProgress);
  NC_IS(state_of(c[0]), WNC_InProgress); /* the other rank has not come */
  NC_IS(nccl.ncclAllReduce(at[0], at[0], 8, WNC_Float32, WNC_Sum, c[0], streams[0]), WNC_InvalidUsage);
  CU(cuCtxSetCurrent(contexts[1]));
  NC_IS(nccl.ncclCommWindowRegister(c[1], at[1], BYTES, &windows[1], WNC_WIN_COLL_SYMMETRIC), WNC_InProgress);
  for (int r = 0; r < RANKS; r++) NC_IS(state_of(c[r]), WNC_Success);
  for (int r = 0; r < RANKS; r++) assert_non_null(windows[r]);
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclAllReduce(at[r], at[r], 8, WNC_Float32, WNC_Sum, c[r], streams[r]));
  sync_all(RANKS);
  NC(nccl.ncclCommWindowDeregister(c[1], windows[1])); /* each rank by itself */
  NC_IS(nccl.ncclCommWindowDeregister(c[1], windows[1]), WNC_InvalidArgument);
  NC(nccl.ncclCommWindowDeregister(c[0], windows[0]));
  T_EQ_INT(misuses(), before + 2);
  /* other offsets */
  open_windows(c, at, sizes, windows, RANKS);
  for (int r = 0; r < RANKS; r++) NC_IS(state_of(c[r]), WNC_Success);
  for (int r = 0; r < RANKS; r++)
    NC(nccl.ncclAllReduce((char *)at[r] + 64 * r, (char *)at[r] + 64 * r, 8, WNC_Float32, WNC_Sum, c[r], streams[r]));
  for (int i = 0; i < 10000 && (state_of(c[0]) == WNC_Success || state_of(c[1]) == WNC_Success); i++) usleep(1000);
  for (int r = 0; r < RANKS; r++) NC_IS(state_of(c[r]), WNC_InvalidUsage);
  assert_non_null(strstr(nccl.ncclGetLastError(c[0]), "other places of symmetric windows in AllReduce"));
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclCommAbort(c[r]));
  sync_all(RANKS);
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclMemFree(at[r]));
  NC_IS(nccl.ncclMemFree(at[0]), WNC_InvalidArgument);
}

TEST(windows_that_break_rules_are_noticed)
{
  enum { RANKS = 2, BYTES = 1 << 16 };
  wnc_comm c[RANKS];
  wnc_window windows[RANKS] = {NULL};
  void *at[RANKS];
  wcu_ptr plain = floats_on(0, BYTES / 4, 1, 0);

  make_comms(c, RANKS);
  shared_memory(at, RANKS);
  CU(cuCtxSetCurrent(contexts[0]));
  NC_IS(nccl.ncclCommWindowRegister(c[0], (char *)at[0] + 64, 64, windows, WNC_WIN_COLL_SYMMETRIC),
        WNC_InvalidArgument);
  NC_IS(nccl.ncclCommWindowRegister(c[0], (void *)(uintptr_t)((plain + 4095) & ~(wcu_ptr)4095), 64, windows,
                                    WNC_WIN_COLL_SYMMETRIC),
        WNC_InvalidArgument); /* memory of cuMemAlloc */
  open_windows(c, at, (size_t[]){BYTES, BYTES}, windows, RANKS);
  for (int r = 0; r < RANKS; r++) NC_IS(state_of(c[r]), WNC_Success);
  NC(nccl.ncclMemFree(at[1]));
  NC_IS(nccl.ncclCommWindowDeregister(c[1], windows[1]), WNC_InvalidUsage); /* freed before */
  int before = misuses();
  NC(nccl.ncclCommFinalize(c[0]));
  NC(nccl.ncclCommDestroy(c[0])); /* a window is left */
  T_EQ_INT(misuses(), before + 1);
  NC(nccl.ncclCommAbort(c[1]));
  NC(nccl.ncclMemFree(at[0]));
  /* different sizes */
  make_comms(c, RANKS);
  shared_memory(at, RANKS);
  open_windows(c, at, (size_t[]){BYTES, BYTES / 2}, windows, RANKS);
  for (int r = 0; r < RANKS; r++) NC_IS(state_of(c[r]), WNC_InvalidUsage);
  assert_non_null(strstr(nccl.ncclGetLastError(c[0]), "ranks register different windows"));
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclCommAbort(c[r]));
  /* another order of windows and operations */
  make_comms(c, RANKS);
  NC(nccl.ncclAllReduce(at[0], at[0], 8, WNC_Float32, WNC_Sum, c[0], streams[0]));
  open_windows(c, at, (size_t[]){BYTES, BYTES}, windows, RANKS);
  for (int r = 0; r < RANKS; r++) NC_IS(state_of(c[r]), WNC_InvalidUsage);
  assert_non_null(strstr(nccl.ncclGetLastError(c[0]), "after 1 operations"));
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclCommAbort(c[r]));
  sync_all(RANKS);
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclMemFree(at[r]));
  free_device(1, &plain);
}

TEST(two_ranks_on_one_device_are_refused)
{
  wnc_config config = WNC_CONFIG(WNC_VERSION);
  wnc_unique_id id;
  wnc_comm c[2];

  config.blocking = 0;
  NC(nccl.ncclGetUniqueId(&id));
  CU(cuCtxSetCurrent(contexts[0]));
  for (int r = 0; r < 2; r++) NC_IS(nccl.ncclCommInitRankConfig(&c[r], 2, id, r, &config), WNC_InProgress);
  assert_true(await_comms(c, 2, 60000));
  NC_IS(state_of(c[0]), WNC_InvalidUsage);
  assert_non_null(strstr(nccl.ncclGetLastError(c[0]), "Duplicate GPU"));
  for (int r = 0; r < 2; r++) NC(nccl.ncclCommAbort(c[r]));
}

TEST(a_split_makes_communicators_of_its_colours)
{
  wnc_comm c[MOST], part[MOST];
  int size, rank;

  make_comms(c, MOST);
  for (int r = 0; r < MOST; r++) { /* ranks 0 and 2 in this order, 3 and 1 in that */
    CU(cuCtxSetCurrent(contexts[r]));
    NC_IS(nccl.ncclCommSplit(c[r], r % 2, r % 2 ? -r : r, &part[r], NULL), WNC_InProgress);
  }
  assert_true(await_comms(c, MOST, 60000) && await_comms(part, MOST, 60000));
  for (int r = 0; r < MOST; r++) {
    NC(nccl.ncclCommCount(part[r], &size));
    NC(nccl.ncclCommUserRank(part[r], &rank));
    T_EQ_INT(size, 2);
    T_EQ_INT(rank, r == 1 || r == 2);
  }
  destroy_comms(part, MOST);
  destroy_comms(c, MOST);
}

TEST(survivors_of_a_hang_go_on_after_a_shrink)
{
  wnc_comm c[RANKS], rest[RANKS] = {NULL};
  wcu_ptr at[RANKS];

  setenv("WEFT_EMU_NCCL", "silent:1@1", 1);
  make_comms(c, RANKS);
  unsetenv("WEFT_EMU_NCCL");
  for (int r = 0; r < RANKS; r++) at[r] = floats_on(r, 4, 1, 0);
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclAllReduce(P(at[r]), P(at[r]), 4, WNC_Float32, WNC_Sum, c[r], streams[r]));
  for (int r = 0; r < RANKS; r += 2)
    NC_IS(nccl.ncclCommShrink(c[r], (int[]){1}, 1, &rest[r], NULL, WNC_SHRINK_ABORT), WNC_InProgress);
  assert_true(await_comms(rest, RANKS, 60000));
  for (int r = 0; r < RANKS; r += 2) { /* before any operation is queued: memory calls wait for the device */
    CU(cuStreamSynchronize(streams[r]));
    free_device(1, &at[r]);
    at[r] = floats_on(r, 4, 1, 0);
  }
  for (int r = 0; r < RANKS; r += 2) {
    CU(cuCtxSetCurrent(contexts[r]));
    NC(nccl.ncclAllReduce(P(at[r]), P(at[r]), 4, WNC_Float32, WNC_Sum, rest[r], streams[r]));
  }
  for (int r = 0; r < RANKS; r += 2) {
    float got;
    CU(cuCtxSetCurrent(contexts[r]));
    CU(cuStreamSynchronize(streams[r]));
    CU(cuMemcpyDtoH_v2(&got, at[r], 4));
    assert_true(got == 2);
    NC(nccl.ncclCommDestroy(rest[r]));
  }
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclCommAbort(c[r]));
  sync_all(RANKS);
  free_device(RANKS, at);
}

TEST(a_revoked_communicator_can_only_be_shrunk_split_or_ended)
{
  wnc_comm c[RANKS], rest;
  wcu_ptr at[RANKS];
  int before;

  setenv("WEFT_EMU_NCCL", "silent:1@1", 1);
  make_comms(c, RANKS);
  unsetenv("WEFT_EMU_NCCL");
  for (int r = 0; r < RANKS; r++) at[r] = floats_on(r, 4, 1, 0);
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclAllReduce(P(at[r]), P(at[r]), 4, WNC_Float32, WNC_Sum, c[r], streams[r]));
  before = misuses();
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclCommRevoke(c[r], 0));
  assert_true(await_comms(c, RANKS, 60000));
  sync_all(RANKS); /* the devices have stopped */
  NC_IS(nccl.ncclCommRevoke(c[0], 0), WNC_InvalidArgument);
  NC_IS(nccl.ncclAllReduce(P(at[0]), P(at[0]), 4, WNC_Float32, WNC_Sum, c[0], streams[0]), WNC_InvalidUsage);
  NC_IS(nccl.ncclCommFinalize(c[0]), WNC_InvalidUsage);
  NC_IS(nccl.ncclCommShrink(c[0], (int[]){0}, 1, &rest, NULL, WNC_SHRINK_ABORT), WNC_InvalidUsage);
  NC_IS(nccl.ncclCommShrink(c[0], (int[]){3}, 1, &rest, NULL, WNC_SHRINK_ABORT), WNC_InvalidArgument);
  T_EQ_INT(misuses(), before + 5);
  for (int r = 0; r < RANKS; r++) NC(nccl.ncclCommAbort(c[r]));
  free_device(RANKS, at);
}

TEST(calls_fail_when_asked)
{
  wnc_unique_id id;

  set_faults("ncclGetUniqueId:1=2");
  NC_IS(nccl.ncclGetUniqueId(&id), WNC_SystemError);
  NC(nccl.ncclGetUniqueId(&id));
  set_faults(NULL);
}

/* ---- between processes ------------------------------------------------------------------------------------------- */

extern char **environ;

/* A rank in a process of its own: its blocking communicator does a sum and a ring of sends. */
static int be_rank(const char *text, int rank)
{
  wnc_unique_id id = {{0}};
  wnc_comm c;
  unsigned byte;

  for (int i = 0; i < WNC_UNIQUE_ID_BYTES; i++)
    if (sscanf(text + 2 * i, "%2x", &byte) == 1) id.bytes[i] = (char)byte;
  CU(cuCtxSetCurrent(contexts[0]));
  wnc_config config = WNC_CONFIG(WNC_VERSION);
  NC(nccl.ncclCommInitRankConfig(&c, RANKS, id, rank, &config));
  wcu_ptr in = floats_on(0, N, (float)(1000 * rank), 1), out = floats_on(0, N, 0, 0);
  NC(nccl.ncclAllReduce(P(in), P(out), N, WNC_Float32, WNC_Sum, c, streams[0]));
  CU(cuStreamSynchronize(streams[0]));
  check_floats("all-reduce of processes", 0, out, N, want_sum);
  NC(nccl.ncclGroupStart());
  NC(nccl.ncclSend(P(in), N, WNC_Float32, (rank + 1) % RANKS, c, streams[0]));
  NC(nccl.ncclRecv(P(out), N, WNC_Float32, (rank + 2) % RANKS, c, streams[0]));
  NC(nccl.ncclGroupEnd());
  CU(cuStreamSynchronize(streams[0]));
  float first;
  CU(cuMemcpyDtoH_v2(&first, out, 4));
  NC(nccl.ncclCommDestroy(c));
  free_device(2, (wcu_ptr[]){in, out});
  return first == x_of((rank + 2) % RANKS, 0) ? 0 : 1;
}

TEST(ranks_may_be_processes)
{
  wnc_unique_id id;
  char text[2 * WNC_UNIQUE_ID_BYTES + 1], number[16];
  pid_t pids[RANKS];
  posix_spawn_file_actions_t actions;

  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, 2, 1); /* the test's own output says what failed */
  NC(nccl.ncclGetUniqueId(&id));
  for (int i = 0; i < WNC_UNIQUE_ID_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", (unsigned char)id.bytes[i]);
  setenv("NCCL_TEST_ID", text, 1);
  for (int r = 0; r < RANKS; r++) {
    snprintf(number, sizeof number, "%d", r);
    setenv("NCCL_TEST_RANK", number, 1);
    assert_int_equal(
      posix_spawn(&pids[r], "/proc/self/exe", &actions, NULL, (char *[]){(char *)"nccl_test", NULL}, environ), 0);
  }
  unsetenv("NCCL_TEST_ID");
  posix_spawn_file_actions_destroy(&actions);
  for (int r = 0; r < RANKS; r++) {
    int status;
    assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
    T_EQ_INT(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  }
}

TEST(a_process_of_a_job)
{
  const char *id = getenv("NCCL_TEST_ID"), *rank = getenv("NCCL_TEST_RANK");
  if (id && rank) exit(be_rank(id, atoi(rank)));
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    UNIT(a_process_of_a_job), /* first: it is all that such a process does */
    UNIT(collectives_give_what_their_definitions_say), UNIT(reductions_round_and_compare_as_the_library_does),
    UNIT(calls_are_in_progress_for_as_many_polls_as_asked),
    UNIT(a_rank_that_does_not_come_leaves_the_others_in_progress_until_an_abort),
    UNIT(a_device_that_hangs_is_drained_by_aborts), UNIT(an_error_shows_at_its_rank_and_the_others_hang),
    UNIT(ranks_that_do_different_operations_are_told), UNIT(broken_rules_are_noticed),
    UNIT(windows_are_opened_by_all_ranks_and_used_at_one_offset), UNIT(windows_that_break_rules_are_noticed),
    UNIT(two_ranks_on_one_device_are_refused), UNIT(a_split_makes_communicators_of_its_colours),
    UNIT(survivors_of_a_hang_go_on_after_a_shrink), UNIT(a_revoked_communicator_can_only_be_shrunk_split_or_ended), UNIT(calls_fail_when_asked), UNIT(ranks_may_be_processes),
  };
  open_nccl();
  return cmocka_run_group_tests_name("nccl", tests, NULL, NULL);
}
