/* tests/gpu/multicast_test.c -- collectives of communicators between 2 to 8 emulated GPUs that multicast joins: the
 * bits are those of the same collectives without multicast, for every integer type and reduction, for odd counts, and
 * for operands of any alignment.  What cannot be made is done without, and nothing is left. */
#define ON_GPUS
#include "collective/world.h"

#include "emulator/ptx.h"
#include "gpu/peer_ptx.h"

static void (*emu_reset)(void);
static size_t (*emu_leaks)(char *, size_t);
static size_t (*emu_faults_left)(void);
static uint64_t (*emu_calls)(const char *);
static bool (*emu_counters)(const char *, ptx_stats *);

static void set_emulator(const char *name, const char *value)
{
  if (value) setenv(name, value, 1);
  else unsetenv(name);
  emu_reset();
}

typedef enum overlap { APART, IN_PLACE, SHIFTED /* the operand begins one element behind the result */ } overlap;

/* A collective, with arrays that begin `send_off` and `recv_off` bytes behind an aligned address, or overlap. */
typedef struct trial {
  weft_coll_kind kind;
  weft_dtype dtype;
  weft_reduction reduction;
  size_t count;
  int root, send_off, recv_off;
  overlap overlap;
} trial;

static int64_t blocks_in(const trial *t, int size) { return t->kind == WEFT_REDUCE_SCATTER ? size : 1; }
static int64_t blocks_out(const trial *t, int size) { return t->kind == WEFT_ALL_GATHER ? size : 1; }

/* ---- trials ------------------------------------------------------------------------------------------------------ */

typedef void on_trial(void *ctx, const trial *t);

static void each_reduction(int size, on_trial *f, void *ctx)
{
  static const size_t counts[] = {1, 5, 77, 1000};
  static const weft_coll_kind kinds[] = {WEFT_ALL_REDUCE, WEFT_REDUCE_SCATTER};

  for (int type = WEFT_PRED; type <= WEFT_U64; type++) {
    int bytes = (int)weft_dtype_bytes((weft_dtype)type), number = 0;
    weft_dtype kernels;
    int per_elem;
    for (int r = WEFT_SUM; r <= WEFT_XOR; r++)
      for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
        for (size_t c = 0; c < WEFT_COUNT(counts); c++, number++) {
          if (!gpu_peer_reduces((weft_dtype)type, (weft_reduction)r, &kernels, &per_elem)) continue;
          if ((number + type + size) % 2) continue; /* the other half with other sizes */
          f(ctx, &(trial){kinds[k], (weft_dtype)type, (weft_reduction)r, counts[c], 0, number % 3 * bytes,
                          number / 3 % 3 * bytes, kinds[k] == WEFT_ALL_REDUCE ? (overlap)(number % 3) : APART});
        }
  }
}

static void each_move(int size, on_trial *f, void *ctx)
{
  static const size_t counts[] = {1, 3, 50, 1001};
  int number = 0;

  for (int type = WEFT_PRED; type <= WEFT_C128; type++) {
    int bytes = (int)weft_dtype_bytes((weft_dtype)type);
    if (bytes == 0 || weft_dtype_bits((weft_dtype)type) < 8) continue;
    for (size_t c = 0; c < WEFT_COUNT(counts); c++, number++) {
      f(ctx, &(trial){WEFT_ALL_GATHER, (weft_dtype)type, WEFT_REDUCE_NONE, counts[c], 0, number % 2 * bytes,
                      number / 2 % 2 * bytes});
      f(ctx, &(trial){WEFT_BROADCAST, (weft_dtype)type, WEFT_REDUCE_NONE, counts[c], number % size, number % 2 * bytes,
                      number / 2 % 2 * bytes, (overlap)(number % 3)});
    }
  }
}

/* More than goes at once, with several pieces where there are two ranks. */
static void each_large(int size, on_trial *f, void *ctx)
{
  size_t much = size == 2 ? 1150003 : 48001;

  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_S32, WEFT_SUM, much, 0});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_U64, WEFT_MAX, 40001, 0, 8, 0});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_U8, WEFT_XOR, 600007, 0, 0, 0, IN_PLACE});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_F32, WEFT_SUM, much + 30001, 0});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_BF16, WEFT_SUM, 140003, 0, 2, 2});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_F16, WEFT_MIN, 140003, 0, 0, 0, IN_PLACE});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_F64, WEFT_SUM, 40001, 0, 0, 8});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_C64, WEFT_SUM, 40001, 0});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_S16, WEFT_SUM, 140003, 0, 0, 0, SHIFTED});
  f(ctx, &(trial){WEFT_REDUCE_SCATTER, WEFT_S32, WEFT_SUM, much / 2, 0});
  f(ctx, &(trial){WEFT_BROADCAST, WEFT_F32, WEFT_REDUCE_NONE, much, 1});
  f(ctx, &(trial){WEFT_ALL_GATHER, WEFT_F32, WEFT_REDUCE_NONE, 100001, 0});
}

static void each_trial(int size, on_trial *f, void *ctx)
{
  each_reduction(size, f, ctx);
  each_move(size, f, ctx);
  if (size == 2 || size == 5) each_large(size, f, ctx);
}

/* ---- one trial --------------------------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525 + 1013904223; }

/* Bytes of any kind; of floats, which are added, numbers between 1 and 2, and their negatives. */
static void fill(const trial *t, int rank, uint8_t *to, int64_t bytes)
{
  uint32_t state = (uint32_t)rank * 977 + (uint32_t)t->count * 31 + (uint32_t)t->dtype;
  bool is_float = t->reduction && !weft_dtype_is_integer(t->dtype) && t->dtype != WEFT_PRED;

  for (int64_t i = 0; i < bytes; i++) to[i] = (uint8_t)(next_random(&state) >> 24);
  for (int64_t i = 0; t->dtype == WEFT_PRED && i < bytes; i++) to[i] &= 1;
  if (!is_float) return;
  int each = t->dtype == WEFT_C64 ? 4 : (int)weft_dtype_bytes(t->dtype);
  for (int64_t i = 0; i + each <= bytes; i += each) {
    uint8_t *last = to + i + each - 1;
    *last = (uint8_t)((*last & 0x80) | (t->dtype == WEFT_F16 ? 0x3c | (*last & 3) : 0x3f));
    if (t->dtype != WEFT_F16) last[-1] |= t->dtype == WEFT_F64 ? 0xf0 : 0x80;
  }
}

typedef struct arrays { char *block[2]; int64_t bytes[2]; const char *send; char *recv; } arrays;

static void take(const world *w, int r, const trial *t, arrays *out)
{
  weft_device *device = weft_platform_device(gpus(), r);
  int64_t each = (int64_t)weft_dtype_bytes(t->dtype) * (int64_t)t->count;
  int64_t in = each * blocks_in(t, w->size), result = each * blocks_out(t, w->size);
  uint8_t *data = malloc((size_t)WEFT_MAX(in, result));

  for (int i = 0; i < 2; i++) {
    void *at;
    out->bytes[i] = (i ? result + t->recv_off : in + t->send_off) + 64;
    T_OK(rt_device_take(device, 0, out->bytes[i], RT_ANYONE, &at));
    out->block[i] = at;
  }
  out->recv = out->block[1] + t->recv_off;
  out->send = t->overlap == APART      ? out->block[0] + t->send_off
              : t->overlap == IN_PLACE ? out->recv
                                       : out->recv + weft_dtype_bytes(t->dtype);
  fill(t, 99, data, result);
  T_OK(weft_device_write(device, NULL, out->recv, data, result));
  fill(t, r, data, in);
  T_OK(weft_device_write(device, NULL, (char *)(uintptr_t)out->send, data, in));
  free(data);
}

/* Runs a trial; the results of all ranks are appended to those of the trials before. */
typedef struct run { world *w; char *results; size_t used, room; int trials; } run;

static void run_trial(void *ctx, const trial *t)
{
  run *all = ctx;
  int size = all->w->size;
  size_t bytes = weft_dtype_bytes(t->dtype) * t->count * (size_t)blocks_out(t, size);
  arrays a[MOST_RANKS];
  weft_event *events[MOST_RANKS];

  if (all->used + bytes * (size_t)size > all->room) {
    all->room = 2 * (all->used + bytes * (size_t)size);
    all->results = realloc(all->results, all->room);
  }
  for (int r = 0; r < size; r++) take(all->w, r, t, &a[r]);
  for (int r = 0; r < size; r++) {
    weft_coll_op op = {.kind = t->kind, .dtype = t->dtype, .reduction = t->reduction, .count = t->count, .root = t->root,
                       .send = a[r].send, .recv = a[r].recv};
    T_OK(weft_coll_post(all->w->comms[r], &op, NULL, &events[r]));
  }
  for (int r = 0; r < size; r++) {
    weft_device *device = weft_platform_device(gpus(), r);
    T_OK(weft_coll_wait(all->w->comms[r], events[r]));
    weft_event_release(events[r]);
    T_OK(weft_device_read(device, NULL, all->results + all->used, a[r].recv, (int64_t)bytes));
    all->used += bytes;
    for (int i = 0; i < 2; i++) rt_device_give(device, 0, a[r].block[i], a[r].bytes[i]);
  }
  all->trials++;
}

static uint64_t instructions_of(const char *kernel)
{
  ptx_stats stats = {0};

  return emu_counters(kernel, &stats) ? stats.warp_instructions : 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* A report does not name multicast where its memory could not be made, or its kernels could not be loaded. */
static void check_report(const world *w, bool multicast)
{
  coll_communicator *by = w->comms[0]->group->communicator;
  char text[300];

  by->ops->describe(by, text, sizeof text);
  if ((strstr(text, ", with multicast") != NULL) != multicast) fail_msg("the report says: %s", text);
}

static run run_all(int size, bool multicast, void (*trials)(int, on_trial *, void *))
{
  world w;
  run all = {.w = &w};

  setenv("WEFT_CUDA_MULTICAST", multicast ? "1" : "0", 1);
  gpus_use("peers");
  gpus();
  uint64_t before = emu_calls("cuMulticastCreate");
  world_open_devices(&w, size);
  T_EQ_INT(emu_calls("cuMulticastCreate") - before, multicast ? 1 : 0);
  trials(size, run_trial, &all);
  check_report(&w, multicast);
  world_close(&w);
  gpus_close();
  unsetenv("WEFT_CUDA_MULTICAST");
  return all;
}

typedef struct place { const run *got, *want; int size; size_t at; } place;

static void compare_trial(void *ctx, const trial *t)
{
  place *p = ctx;
  size_t bytes = weft_dtype_bytes(t->dtype) * t->count * (size_t)blocks_out(t, p->size);

  for (int r = 0; r < p->size; r++, p->at += bytes)
    if (memcmp(p->got->results + p->at, p->want->results + p->at, bytes) != 0)
      fail_msg("%s of %s, %s, %zu elements, offsets %d and %d%s: rank %d of %d differs", weft_coll_kind_name(t->kind),
               weft_dtype_name(t->dtype), weft_reduction_name(t->reduction), t->count, t->send_off, t->recv_off,
               t->overlap ? ", overlapping" : "", r, p->size);
}

static void compare(int size, void (*trials)(int, on_trial *, void *))
{
  run want = run_all(size, false, trials), got = run_all(size, true, trials);

  T_EQ_INT(got.used, want.used);
  trials(size, compare_trial, &(place){&got, &want, size, 0});
  print_message("# %d ranks: %d collectives\n", size, got.trials);
  free(got.results);
  free(want.results);
}

TEST(multicast_changes_no_bit)
{
  static const char *const kernels[] = {"multicast_reduce", "multicast_two_shot", "multicast_scatter",
                                        "multicast_spread", "multicast_gather", "multicast_broadcast"};

  for (int size = 2; size <= GPUS; size += size < 5 ? T_STRIDE(3) : 3) compare(size, each_trial);
  for (size_t k = 0; k < WEFT_COUNT(kernels); k++)
    if (!instructions_of(kernels[k])) fail_msg("%s was not launched", kernels[k]);
}

/* Delays, blocks in a random order, and checks for races. */
static void each_checked(int size, on_trial *f, void *ctx)
{
  each_move(size, f, ctx);
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_S32, WEFT_SUM, 5003, 0, 4, 0});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_U8, WEFT_AND, 12345, 0, 0, 1});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_S64, WEFT_SUM, 50001, 0});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_F32, WEFT_SUM, 70001, 0, 4, 4});
  f(ctx, &(trial){WEFT_REDUCE_SCATTER, WEFT_U32, WEFT_MIN, 5003, 0, 0, 4});
}

TEST(nor_with_delays_and_checks_for_races)
{
  setenv("WEFT_EMU_CHECKS", "all", 1);
  setenv("WEFT_EMU_ORDER", "interleaved:11", 1);
  set_emulator("WEFT_EMU_DELAY_US", "200");
  compare(3, each_checked);
  unsetenv("WEFT_EMU_CHECKS");
  unsetenv("WEFT_EMU_ORDER");
  set_emulator("WEFT_EMU_DELAY_US", NULL);
}

/* One of each kernel. */
static void each_kernel(int size, on_trial *f, void *ctx)
{
  (void)size;
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_S32, WEFT_SUM, 100, 0});
  f(ctx, &(trial){WEFT_ALL_REDUCE, WEFT_F32, WEFT_SUM, 70001, 0});
  f(ctx, &(trial){WEFT_ALL_GATHER, WEFT_U8, WEFT_REDUCE_NONE, 33, 0});
  f(ctx, &(trial){WEFT_BROADCAST, WEFT_U8, WEFT_REDUCE_NONE, 33, 1});
}

/* A platform's calls that come before those for multicast are not counted: faults begin when the platform is there. */
static void fail_at(const char *fault, const run *want)
{
  enum { SIZE = 3 };
  char text[400];
  world w;
  run all = {.w = &w};

  gpus_use("peers");
  gpus();
  set_emulator("WEFT_EMU_FAULTS", fault);
  world_open_devices(&w, SIZE);
  each_kernel(SIZE, run_trial, &all);
  check_report(&w, false);
  if (emu_faults_left()) fail_msg("%s: the call does not come", fault);
  set_emulator("WEFT_EMU_FAULTS", NULL);
  world_close(&w);
  gpus_close(); /* nothing is left */
  T_EQ_INT(emu_leaks(text, sizeof text), 0);
  T_EQ_INT(all.used, want->used);
  if (memcmp(all.results, want->results, all.used) != 0) fail_msg("%s: other results", fault);
  free(all.results);
}

TEST(what_cannot_be_made_is_done_without)
{
  static const char *const faults[] = {
    "cuMulticastGetGranularity:1=801", "cuMulticastCreate:1=2", "cuMulticastAddDevice:1=101", "cuMulticastAddDevice:3=101",
    "cuMemGetAllocationGranularity:2=1", "cuMemCreate:1=2", "cuMemCreate:3=2", "cuMulticastBindMem:1=401",
    "cuMulticastBindMem:3=802", "cuMemAddressReserve:1=2", "cuMemAddressReserve:2=2", "cuMemAddressReserve:6=2",
    "cuMemMap:1=2", "cuMemMap:2=401", "cuMemMap:6=401", "cuMemSetAccess:1=2", "cuMemSetAccess:6=999",
    "cuModuleLoadDataEx:1=222", "cuModuleLoadDataEx:2=2", "cuModuleGetFunction:3=500",
  };
  run want = run_all(3, false, each_kernel);

  for (size_t i = 0; i < WEFT_COUNT(faults); i++) fail_at(faults[i], &want);
  set_emulator("WEFT_EMU_MULTICAST", "0"); /* the devices have none */
  uint64_t before = emu_calls("cuMulticastCreate");
  fail_at("", &want);
  T_EQ_INT(emu_calls("cuMulticastCreate"), before);
  set_emulator("WEFT_EMU_MULTICAST", "1");
  setenv("WEFT_CUDA_SHARE", "8", 1); /* of one GPU there is nothing to join */
  fail_at("", &want);
  unsetenv("WEFT_CUDA_SHARE");
  T_EQ_INT(emu_calls("cuMulticastCreate"), before);
  free(want.results);
}

/* Groups of a process have objects of their own, at the same time as the communicator of all. */
TEST(communicators_of_groups_have_it_too)
{
  world all, some;
  run a = {.w = &all}, b = {.w = &some};
  run want = run_all(GPUS, false, each_kernel), of_some = run_all(4, false, each_kernel);

  gpus_use("peers");
  gpus();
  uint64_t before = emu_calls("cuMulticastCreate");
  world_open_devices(&all, GPUS);
  world_open_devices(&some, 4);
  T_EQ_INT(emu_calls("cuMulticastCreate") - before, 2);
  each_kernel(GPUS, run_trial, &a);
  each_kernel(4, run_trial, &b);
  T_TRUE(memcmp(a.results, want.results, want.used) == 0 && memcmp(b.results, of_some.results, of_some.used) == 0);
  world_close(&all);
  world_close(&some);
  gpus_close();
  free(a.results);
  free(b.results);
  free(want.results);
  free(of_some.results);
}

static int open_emulator(void **state)
{
  (void)state;
  *(void **)&emu_reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  *(void **)&emu_leaks = emulated_symbol("libcuda.so.1", "weft_emu_leaks");
  *(void **)&emu_faults_left = emulated_symbol("libcuda.so.1", "weft_emu_faults_left");
  *(void **)&emu_calls = emulated_symbol("libcuda.so.1", "weft_emu_calls");
  *(void **)&emu_counters = emulated_symbol("libcuda.so.1", "weft_emu_counters");
  emu_calls(NULL); /* counts from now on */
  set_emulator("WEFT_EMU_MULTICAST", "1");
  return 0;
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(multicast_changes_no_bit), UNIT(nor_with_delays_and_checks_for_races), UNIT(what_cannot_be_made_is_done_without),
    UNIT(communicators_of_groups_have_it_too)};
  return cmocka_run_group_tests(units, open_emulator, NULL);
}
