/* tests/gpu/on_device.c -- the program of on_device.sh: what is checked in C on a GPU, real or emulated.
 *
 *   on_device kernels FIRST COUNT    runs random programs and prints a line for each: its seed, whether a library of
 *                                    NVIDIA's computes a part of it, and a hash of its results' bits, in which all NaNs
 *                                    are one. Results of libraries are also held against the reference evaluator.
 *   on_device faults                 an illegal address and a program that does not fit; prints TAP
 *   on_device together               NCCL of one rank, and of two of which one never comes; collectives of programs of
 *                                    eight devices by peers (WEFT_CUDA_SHARE), with a hash of each one's bits;
 *                                    collectives with and without multicast, if there are several GPUs that have it;
 *                                    steps one by one and as a graph, with what a launch costs; prints TAP
 *   on_device conformance            the programs of openxla/stablehlo that check themselves; prints TAP
 *
 * The device is that of WEFT_PLATFORM and WEFT_CUDA_LIBDIR. Exit status: 0 all is right, 1 not. */
#undef main /* conformance_test.c, which is linked too, has its main under another name */

enum { DEVICES = 8, MOST_BYTES = 4096 };
#include "random_program.h"

#include "collective_programs.h"
#include "collective/internal.h"
#include "cpu/run.h"
#include "gpu/gpu_internal.h"
#include "gpu/multicast.h"
#include "gpu/nccl.h"
#include "gpu/nccl_calls.h"
#include "runtime/runtime_internal.h"

int conformance_main(void);

/* ---- random programs ------------------------------------------------------------------------------------------- */

static hlo_literal *empty_like(weft_arena *arena, const hlo_shape *shape)
{
  hlo_literal *literal;
  T_OK(hlo_literal_new(arena, shape, &literal));
  for (int i = 0; hlo_shape_is_tuple(shape) && i < shape->rank; i++)
    literal->elements[i] = empty_like(arena, shape->elements[i]);
  return literal;
}

static uint64_t hash_word(uint64_t hash, uint64_t word) /* FNV-1a over words */
{
  return (hash ^ word) * UINT64_C(1099511628211);
}

static uint64_t hash_float(uint64_t hash, double value)
{
  uint64_t bits;

  if (isnan(value)) return hash_word(hash, 1);
  memcpy(&bits, &value, sizeof bits);
  return hash_word(hash, bits);
}

static uint64_t hash_array(uint64_t hash, const hlo_literal *literal)
{
  weft_dtype type = literal->shape->type;

  for (int64_t i = 0; i < hlo_shape_elems(literal->shape); i++) {
    if (weft_dtype_is_float(type) || weft_dtype_is_complex(type))
      hash = hash_float(hash_float(hash, hlo_literal_get_f64(literal, i)), hlo_literal_get_imag(literal, i));
    else hash = hash_word(hash, (uint64_t)hlo_literal_get_s64(literal, i));
  }
  return hash;
}

/* A library of NVIDIA's may add in another order than the emulated one. */
static bool uses_library(const hlo_module *module)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp)
      if (instr->op == HLO_DOT || instr->op == HLO_CONVOLUTION || instr->op == HLO_FFT ||
          instr->op == HLO_TRIANGULAR_SOLVE || instr->op == HLO_CUSTOM_CALL)
        return true;
  return false;
}

static weft_status *run_one(weft_platform *platform, const hlo_module *module, const hlo_literal *const *arguments,
                            bool is_exact, const hlo_literal *got, bool *out_library)
{
  WEFT_AUTO(weft_executable) exe = NULL;
  const void *inputs[ARGUMENTS];
  void *outputs[RESULTS];
  hlo_module *copy;

  for (int i = 0; i < ARGUMENTS; i++) inputs[i] = arguments[i]->data;
  for (int i = 0; i < RESULTS; i++) outputs[i] = got->elements[i]->data;
  WEFT_TRY(hlo_module_clone(module, &copy));
  WEFT_TRY(weft_compile(platform, copy, &(weft_compile_options){.no_excess_precision = is_exact}, &exe));
  *out_library = uses_library(weft_executable_module(exe));
  return test_run(exe, inputs, outputs);
}

/* A library's results are compared with the evaluator's, unless rounding decides what they are. */
static bool library_is_right(const hlo_module *module, const hlo_literal *const *arguments, const hlo_literal *got,
                             uint64_t seed, weft_arena *arena)
{
  hlo_eval_options eval = {.deadline = WEFT_NO_DEADLINE, .stepwise_sums = true};
  const hlo_literal *want;
  char what[64];

  snprintf(what, sizeof what, "seed %" PRIu64, seed);
  T_OK(hlo_eval_module(module, arguments, &eval, arena, &want));
  return literals_within(got, want, what, 2e-2) || is_sensitive(module, arguments, &eval, arena, want, 2e-2);
}

/* Prints the line of a seed.  False: the program does not run, or a library is wrong. */
static bool one_seed(weft_platform *platform, uint64_t seed)
{
  const hlo_literal *arguments[ARGUMENTS];
  bool is_exact = seed % 2, library = false, right = true;
  uint64_t hash = UINT64_C(14695981039346656037);
  weft_arena arena;

  weft_arena_init(&arena);
  WEFT_AUTO(hlo_module)
  module = is_exact ? exact_program(seed, &arena, arguments) : random_program(seed, NULL, &arena, arguments);
  hlo_literal *got = empty_like(&arena, hlo_shape_copy(&arena, module->entry->root->shape));
  weft_status *st = run_one(platform, module, arguments, is_exact, got, &library);
  for (int i = 0; !st && i < RESULTS; i++) hash = hash_array(hash, got->elements[i]);
  if (st) printf("%" PRIu64 " error %s\n", seed, weft_status_text(st, false));
  else if (library) right = library_is_right(module, arguments, got, seed, &arena);
  if (!st) printf("%" PRIu64 " %s %016" PRIx64 "\n", seed, library ? "library" : "kernels", hash);
  right = right && !st;
  weft_status_free(st);
  weft_arena_fini(&arena);
  return right;
}

static int kernels(uint64_t first, uint64_t count)
{
  weft_platform *platform = test_platform(1, 2);
  bool right = true;

  for (uint64_t seed = first; seed < first + count; seed++) right &= one_seed(platform, seed);
  weft_platform_release(platform);
  return !right;
}

/* ---- faults ---------------------------------------------------------------------------------------------------- */

static const char add_text[] = "HloModule additions\n"
                               "ENTRY e {\n"
                               "  x = f32[1024] parameter(0)\n"
                               "  ROOT r = f32[1024] add(x, x)\n"
                               "}";

/* Runs the program; `before_launch`, unless it is NULL, is called once the input is on the device. */
static weft_status *try_additions(weft_executable *exe, void (*before_launch)(weft_device *device))
{
  weft_device *device = weft_executable_device(exe, 0);
  float x[1024], y[1024] = {0};
  weft_buffer *in = NULL, *out = NULL;
  weft_buffer *const *ins[] = {&in};
  weft_buffer **outs[] = {&out};

  for (int i = 0; i < 1024; i++) x[i] = (float)i;
  weft_status *st = weft_buffer_from_host(device, weft_executable_param_type(exe, 0), x, &in);
  if (!st && before_launch) before_launch(device);
  if (!st) st = weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs});
  if (!st) st = weft_event_await(weft_buffer_defined(out), weft_deadline_after_ms(60000));
  if (!st) st = weft_buffer_to_host(out, y, weft_deadline_after_ms(60000));
  if (in) weft_buffer_release(in);
  if (out) weft_buffer_release(out);
  for (int i = 0; !st && i < 1024; i++)
    if (y[i] != 2 * x[i]) return WEFT_ERR(DATA_LOSS, "element %d: got %g, want %g", i, y[i], 2 * x[i]);
  return st;
}

/* The bytes are the device's and a quarter more. */
TEST(a_program_that_does_not_fit_is_refused_and_the_next_one_runs)
{
  weft_platform *platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = NULL;
  weft_executable *big = NULL;
  char text[256];
  float one = 1;
  weft_buffer *x = NULL, *y = NULL;
  weft_buffer *const *ins[] = {&x};
  weft_buffer **outs[] = {&y};
  hlo_module *module;

  snprintf(text, sizeof text,
           "HloModule too_big\n"
           "ENTRY e {\n"
           "  x = f32[] parameter(0)\n"
           "  ROOT r = f32[%lld,1024] broadcast(x), dimensions={}\n"
           "}",
           (long long)(gpu_of(weft_platform_device(platform, 0))->bytes / 4096 * 5 / 4));
  T_OK(hlo_parse(text, strlen(text), &module));
  weft_status *st = weft_compile(platform, module, &(weft_compile_options){0}, &big);
  if (!st) {
    x = test_buffer(weft_platform_device(platform, 0), weft_executable_param_type(big, 0), &one);
    st = weft_executable_launch(big, &(weft_launch){.inputs = ins, .outputs = outs});
  }
  if (!st) {
    st = weft_event_await(weft_buffer_defined(y), weft_deadline_after_ms(60000));
    weft_buffer_release(y);
  }
  T_EQ_INT(weft_status_code(st), WEFT_RESOURCE_EXHAUSTED);
  T_TRUE(strstr(weft_status_text(st, true), "too_big") != NULL);
  print_message("# %s\n", weft_status_text(st, false));
  weft_status_free(st);
  if (x) weft_buffer_release(x);
  if (big) weft_executable_release(big);
  exe = test_compile(platform, add_text, BUF_TOPOLOGICAL);
  T_OK(try_additions(exe, NULL));
  weft_executable_release(WEFT_MOVE(exe));
  weft_platform_release(platform);
}

static const char bad_text[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                               ".visible .entry bad()\n{\n.reg .b64 %rd<2>;\n.reg .b32 %r<2>;\n"
                               "mov.u64 %rd1, 16;\nmov.u32 %r1, 7;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";

/* Queues a kernel that stores to address 16 on the stream of all programs. */
static void queue_bad_kernel(weft_device *device)
{
  weft_stream *stream = weft_device_stream(device, WEFT_STREAM_COMPUTE);
  wcu_function function;
  wcu_module module;

  T_OK(gpu_enter(gpu_of(device)));
  T_OK(GPU_CALL(cuModuleLoadDataEx, &module, bad_text, 0, NULL, NULL));
  T_OK(GPU_CALL(cuModuleGetFunction, &function, module, "bad"));
  T_OK(GPU_CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, gpu_stream_handle(stream), NULL, NULL));
  gpu_leave();
  gpu_stream_used(stream);
}

TEST(an_illegal_address_fails_the_runs_behind_it_and_the_process_lives)
{
  weft_platform *platform = test_platform(1, 1), *cpu;
  weft_executable *exe = test_compile(platform, add_text, BUF_TOPOLOGICAL);

  T_OK(try_additions(exe, NULL));
  for (int i = 0; i < 2; i++) { /* the run that is queued behind the kernel, and a run after the device is lost */
    weft_status *st = try_additions(exe, i == 0 ? queue_bad_kernel : NULL);
    T_TRUE(st != NULL);
    const char *text = weft_status_text(st, true);
    if (!strstr(text, "ILLEGAL_ADDRESS")) fail_msg("run %d: %s", i, text);
    print_message("# %s\n", weft_status_text(st, false));
    weft_status_free(st);
  }
  weft_executable_release(exe);
  weft_platform_release(platform);
  setenv("WEFT_PLATFORM", "cpu", 1);
  T_OK(plat_new(&(weft_platform_options){.device_count = 1}, &cpu));
  setenv("WEFT_PLATFORM", "cuda", 1);
  exe = test_compile(cpu, add_text, BUF_TOPOLOGICAL);
  T_OK(try_additions(exe, NULL));
  weft_executable_release(exe);
  weft_platform_release(cpu);
}

static int faults(void)
{
  const struct CMUnitTest units[] = {UNIT(a_program_that_does_not_fit_is_refused_and_the_next_one_runs),
                                     UNIT(an_illegal_address_fails_the_runs_behind_it_and_the_process_lives)};

  return cmocka_run_group_tests(units, NULL, NULL);
}

/* ---- GPUs together --------------------------------------------------------------------------------------------- */

/* The driver is open: the emulated library belongs to the emulated driver that is. */
static bool has_nccl(void)
{
  int version = 0;
  weft_status *st = gpu_nccl_open(&version);

  if (st) print_message("# %s\n", weft_status_message(st));
  else print_message("# NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
  weft_status_free(st);
  return version > 0;
}

/* Polls a communicator that does not block. */
static void await_nccl(wnc_comm comm, const char *call)
{
  weft_deadline deadline = weft_deadline_after_ms(120000);
  wnc_result state = WNC_InProgress;

  while (state == WNC_InProgress) {
    T_OK(gpu_nccl_error(gpu_nccl()->ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm));
    if (weft_deadline_passed(deadline)) fail_msg("%s is in progress for two minutes", call);
    usleep(200);
  }
  T_OK(gpu_nccl_error(state, call, comm));
}

static wnc_comm lone_communicator(void)
{
  wnc_config config = WNC_CONFIG(WNC_OLDEST);
  wnc_unique_id id;
  wnc_comm comm = NULL;

  config.blocking = 0;
  T_OK(gpu_nccl_error(gpu_nccl()->ncclGetUniqueId(&id), "ncclGetUniqueId", NULL));
  T_OK(gpu_nccl_error(gpu_nccl()->ncclCommInitRankConfig(&comm, 1, id, 0, &config), "ncclCommInitRankConfig", NULL));
  await_nccl(comm, "ncclCommInitRankConfig");
  return comm;
}

/* An all-reduce, which copies. */
static void reduce_alone(weft_device *device, wnc_comm comm)
{
  weft_stream *stream = weft_device_stream(device, WEFT_STREAM_COMPUTE);
  float x[256], y[256] = {0};
  void *in, *out;

  for (int i = 0; i < 256; i++) x[i] = (float)i;
  T_OK(rt_device_take(device, 0, sizeof x, RT_ANYONE, &in));
  T_OK(rt_device_take(device, 0, sizeof x, RT_ANYONE, &out));
  T_OK(weft_device_write(device, NULL, in, x, sizeof x));
  wnc_result result = gpu_nccl()->ncclAllReduce(in, out, 256, WNC_Float32, WNC_Sum, comm, gpu_stream_handle(stream));
  T_OK(gpu_nccl_error(result, "ncclAllReduce", comm));
  await_nccl(comm, "ncclAllReduce");
  gpu_stream_used(stream);
  T_OK(rt_stream_sync(device, stream, weft_deadline_after_ms(60000)));
  T_OK(weft_device_read(device, NULL, y, out, sizeof y));
  T_TRUE(memcmp(x, y, sizeof x) == 0);
  rt_device_give(device, 0, in, sizeof x);
  rt_device_give(device, 0, out, sizeof x);
}

TEST(nccl_of_one_rank_reduces_divides_and_ends)
{
  weft_platform *platform = test_platform(1, 1);
  if (!has_nccl()) {
    weft_platform_release(platform);
    T_SKIP("no NCCL");
  }
  weft_device *device = weft_platform_device(platform, 0);
  wnc_config config = WNC_CONFIG(WNC_OLDEST);
  wnc_comm part = NULL;
  int size = 0, rank = -1;

  T_OK(gpu_enter(gpu_of(device)));
  wnc_comm comm = lone_communicator();
  T_OK(gpu_nccl_error(gpu_nccl()->ncclCommCount(comm, &size), "ncclCommCount", comm));
  T_OK(gpu_nccl_error(gpu_nccl()->ncclCommUserRank(comm, &rank), "ncclCommUserRank", comm));
  T_TRUE(size == 1 && rank == 0);
  reduce_alone(device, comm);
  config.blocking = 0;
  T_OK(gpu_nccl_error(gpu_nccl()->ncclCommSplit(comm, 3, 0, &part, &config), "ncclCommSplit", comm));
  await_nccl(comm, "ncclCommSplit");
  await_nccl(part, "ncclCommSplit");
  reduce_alone(device, part);
  T_OK(gpu_nccl_error(gpu_nccl()->ncclCommAbort(part), "ncclCommAbort", NULL));
  reduce_alone(device, comm);
  T_OK(gpu_nccl_error(gpu_nccl()->ncclCommFinalize(comm), "ncclCommFinalize", comm));
  await_nccl(comm, "ncclCommFinalize");
  T_OK(gpu_nccl_error(gpu_nccl()->ncclCommDestroy(comm), "ncclCommDestroy", NULL));
  gpu_leave();
  weft_platform_release(platform);
}

static atomic_bool not_wanted;

static void *want_it_no_more(void *arg)
{
  usleep(500000);
  atomic_store(&not_wanted, true);
  return arg;
}

/* Rank 1 of two never calls the library, so only an abort ends what rank 0 waits for: at the deadline, or when the
 * creation is cancelled.  The device works afterwards. */
TEST(nccl_of_two_ranks_one_of_them_absent_ends)
{
  enum { DEADLINE = 3000, SLACK = 2000 };
  static const int64_t devices[] = {0, 1 << 20}; /* the second is of another process */
  static const int rank = 0;

  weft_platform *platform = test_platform(1, 1);
  if (!has_nccl()) {
    weft_platform_release(platform);
    T_SKIP("no NCCL");
  }
  weft_kv *kv;
  T_OK(weft_kv_local_new(&kv));
  for (int cancels = 0; cancels < 2; cancels++) {
    coll_communicator *none = NULL;
    pthread_t thread;
    weft_comm_spec spec = {.kv = kv, .name = cancels ? "cancelled" : "late", .size = 2, .ranks = &rank, .rank_count = 1,
                           .device_ids = devices, .deadline = weft_deadline_after_ms(cancels ? 60000 : DEADLINE),
                           .cancel = &not_wanted};
    if (cancels) pthread_create(&thread, NULL, want_it_no_more, NULL);
    int64_t began_ns = weft_now_ns();
    weft_status *st = gpu_nccl_communicator.create(platform, &spec, &none);
    int64_t took_ms = (weft_now_ns() - began_ns) / WEFT_NS_PER_MS;
    if (cancels) pthread_join(thread, NULL);
    print_message("# after %lld ms: %s\n", (long long)took_ms, weft_status_text(st, false));
    T_TRUE(st && !none);
    T_EQ_INT(weft_status_code(st), cancels ? WEFT_CANCELLED : WEFT_DEADLINE_EXCEEDED);
    weft_status_free(st);
    if (took_ms > (cancels ? 500 : DEADLINE) + SLACK) fail_msg("it took %lld ms", (long long)took_ms);
  }
  weft_kv_destroy(kv);
  weft_executable *exe = test_compile(platform, add_text, BUF_TOPOLOGICAL);
  T_OK(try_additions(exe, NULL));
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* By peers: also where the eight devices share a GPU. The hashes are compared with those of the emulated GPU. */
TEST(eight_devices_have_the_bits_of_the_cpu)
{
  static char got[DEVICES][MOST_BYTES], want[DEVICES][MOST_BYTES];
  static const char *const lines[] = {
    "ROOT r = @[4,8] all-reduce(x), replica_groups={}, to_apply=f",
    "b = @[4,8,9001] broadcast(x), dimensions={0,1}\n"
    " w = @[4,8,9001] all-reduce(b), replica_groups={{0,1,2},{3,4,5,6,7}}, to_apply=f\n"
    " ROOT r = @[4,8,9] slice(w), slice={[0:4],[0:8],[8992:9001]}",
    "ROOT r = @[4,1] reduce-scatter(x), replica_groups={}, dimensions={1}, to_apply=f",
    "ROOT r = @[32,8] all-gather(x), replica_groups={}, dimensions={0}",
    "ROOT r = @[4,8] all-to-all(x), replica_groups={}, dimensions={1}",
    "ROOT r = @[4,8] collective-permute(x), source_target_pairs={{0,3},{3,1},{1,0},{2,7},{7,2}}",
  };
  static const char *const types[] = {"f32", "bf16", "s32", "f64"};

  setenv("WEFT_CUDA_COLLECTIVES", "peers", 1);
  weft_platform *gpu = platform_called("cuda"), *cpu = platform_called("cpu");
  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t l = 0; l < WEFT_COUNT(lines); l++) {
      char line[1024], text[4096];
      size_t used = 0;
      uint64_t hash = UINT64_C(14695981039346656037);
      for (const char *c = lines[l]; *c; c++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%.*s", *c == '@' ? 9 : 1, *c == '@' ? types[t] : c);
      program(text, sizeof text, types[t], "add", line);
      weft_executable *on_gpu = compile(gpu, text), *on_cpu = compile(cpu, text);
      for (int round = 0; round < 3; round++) {
        memset(got, 0, sizeof got);
        launch_well(on_gpu, got);
      }
      memset(want, 0, sizeof want);
      launch_well(on_cpu, want);
      if (memcmp(got, want, sizeof got) != 0) fail_msg("%s: %s differs from the CPU", types[t], lines[l]);
      for (size_t i = 0; i < sizeof got; i++) hash = hash_word(hash, (uint8_t)got[i / MOST_BYTES][i % MOST_BYTES]);
      print_message("# bits of %s %zu: %016" PRIx64 "\n", types[t], l, hash);
      weft_executable_release(on_gpu);
      weft_executable_release(on_cpu);
    }
  weft_platform_release(gpu);
  weft_platform_release(cpu);
  unsetenv("WEFT_CUDA_COLLECTIVES");
}

/* ---- multicast --------------------------------------------------------------------------------------------------- */

/* Collectives of one kernel each, and of several pieces. */
static const struct { weft_coll_kind kind; weft_dtype dtype; weft_reduction reduction; size_t count; } casts[] = {
  {WEFT_ALL_REDUCE, WEFT_S32, WEFT_SUM, 1000}, {WEFT_ALL_REDUCE, WEFT_S32, WEFT_SUM, 3000001},
  {WEFT_ALL_REDUCE, WEFT_U8, WEFT_XOR, 12345}, {WEFT_ALL_REDUCE, WEFT_U64, WEFT_MAX, 300001},
  {WEFT_ALL_REDUCE, WEFT_F32, WEFT_SUM, 300001}, {WEFT_REDUCE_SCATTER, WEFT_S32, WEFT_MIN, 100001},
  {WEFT_ALL_GATHER, WEFT_U8, WEFT_REDUCE_NONE, 10007}, {WEFT_BROADCAST, WEFT_F32, WEFT_REDUCE_NONE, 2000003},
};
enum { MOST_GPUS = 8, MOST_CAST_BYTES = 16 << 20 };

/* Operand and result of each rank. */
typedef struct casting { int size; weft_comm *comms[MOST_GPUS]; weft_device *devices[MOST_GPUS]; void *in[MOST_GPUS], *out[MOST_GPUS]; } casting;

static void post_cast(const casting *c, size_t i)
{
  weft_event *events[MOST_GPUS];

  for (int r = 0; r < c->size; r++) {
    weft_coll_op op = {.kind = casts[i].kind, .dtype = casts[i].dtype, .reduction = casts[i].reduction,
                       .count = casts[i].count, .send = c->in[r], .recv = c->out[r], .root = 1};
    T_OK(weft_coll_post(c->comms[r], &op, NULL, &events[r]));
  }
  for (int r = 0; r < c->size; r++) {
    T_OK(weft_coll_wait(c->comms[r], events[r]));
    weft_event_release(events[r]);
  }
}

/* A hash of the results of all ranks. */
static uint64_t hash_of_cast(const casting *c, size_t i)
{
  static uint32_t data[MOST_CAST_BYTES / 4];
  uint64_t hash = UINT64_C(14695981039346656037);
  size_t blocks = casts[i].kind == WEFT_ALL_GATHER ? (size_t)c->size : 1;
  size_t bytes = casts[i].count * weft_dtype_bytes(casts[i].dtype) * blocks;

  for (int r = 0; r < c->size; r++) {
    uint32_t state = (uint32_t)r + 1;
    /* numbers near 1 as f32, so that the order of a sum shows */
    for (size_t k = 0; k < WEFT_COUNT(data); k++) data[k] = 0x3f000000 | (state = state * 1664525 + 1013904223) >> 8;
    T_OK(weft_device_write(c->devices[r], NULL, c->in[r], data, sizeof data));
  }
  post_cast(c, i);
  for (int r = 0; r < c->size; r++) {
    memset(data, 0, sizeof data);
    T_OK(weft_device_read(c->devices[r], NULL, data, c->out[r], (int64_t)bytes));
    for (size_t k = 0; k < (bytes + 3) / 4; k++) hash = hash_word(hash, data[k]);
  }
  return hash;
}

static void open_casting(weft_platform *platform, int size, casting *out)
{
  static const int ranks[MOST_GPUS] = {0, 1, 2, 3, 4, 5, 6, 7};
  weft_comm_spec spec = {.name = "casting", .size = size, .ranks = ranks, .rank_count = size,
                         .communicator = platform->ops->communicator, .communicator_ctx = platform};

  *out = (casting){.size = size};
  T_OK(weft_comm_create(&spec, out->comms));
  for (int r = 0; r < size; r++) {
    out->devices[r] = weft_platform_device(platform, r);
    T_OK(rt_device_take(out->devices[r], 0, MOST_CAST_BYTES, RT_ANYONE, &out->in[r]));
    T_OK(rt_device_take(out->devices[r], 0, MOST_CAST_BYTES, RT_ANYONE, &out->out[r]));
  }
}

/* What moved the data of all collectives so far; kernels that the driver refuses end the use of multicast. */
static void check_multicast(const casting *c, bool multicast)
{
  coll_communicator *by = c->comms[0]->group->communicator;
  char text[300];

  by->ops->describe(by, text, sizeof text);
  if ((strstr(text, ", with multicast") != NULL) != multicast)
    fail_msg("multicast was to be %s: %s", multicast ? "used" : "off", text);
}

static void close_casting(casting *c)
{
  for (int r = 0; r < c->size; r++) weft_comm_destroy(c->comms[r]);
  for (int r = 0; r < c->size; r++) {
    rt_device_give(c->devices[r], 0, c->in[r], MOST_CAST_BYTES);
    rt_device_give(c->devices[r], 0, c->out[r], MOST_CAST_BYTES);
  }
}

/* Hashes, and how long each takes on the host, in microseconds. */
static void run_casts(int size, bool multicast, uint64_t *out_hashes, double *out_us)
{
  enum { TIMES = 20 };
  weft_platform *platform;
  casting c;

  setenv("WEFT_CUDA_MULTICAST", multicast ? "1" : "0", 1);
  T_OK(plat_new(&(weft_platform_options){.device_count = size, .threads = 1}, &platform));
  open_casting(platform, size, &c);
  for (size_t i = 0; i < WEFT_COUNT(casts); i++) {
    out_hashes[i] = hash_of_cast(&c, i);
    int64_t began_ns = weft_now_ns();
    for (int n = 0; n < TIMES; n++) post_cast(&c, i);
    out_us[i] = (double)(weft_now_ns() - began_ns) / TIMES / 1000;
  }
  check_multicast(&c, multicast);
  close_casting(&c);
  weft_platform_release(platform);
  unsetenv("WEFT_CUDA_MULTICAST");
}

/* Why there is no multicast between the GPUs; NULL: there is. Other errors of the driver fail the test. */
static const char *why_no_multicast(int size)
{
  static char why[400];
  weft_platform *platform;
  gpu_device *gpus[MOST_GPUS];
  gpu_multicast *object;

  if (size < 2) return "there is one GPU only";
  T_OK(plat_new(&(weft_platform_options){.device_count = size, .threads = 1}, &platform));
  for (int d = 0; d < size; d++) gpus[d] = gpu_of(weft_platform_device(platform, d));
  weft_status *st = gpu_multicast_new(gpus, size, 1 << 20, &object);
  snprintf(why, sizeof why, "%s", st ? weft_status_message(st) : "");
  weft_code code = weft_status_code(st);
  if (code != WEFT_UNIMPLEMENTED && code != WEFT_UNAVAILABLE && code != WEFT_RESOURCE_EXHAUSTED) T_OK(st);
  weft_status_free(st);
  gpu_multicast_free(object);
  weft_platform_release(platform);
  return *why ? why : NULL;
}

TEST(multicast_has_the_bits_of_the_peers)
{
  uint64_t hashes[2][WEFT_COUNT(casts)];
  double us[2][WEFT_COUNT(casts)];
  const char *share = getenv("WEFT_CUDA_SHARE");
  char *kept = share ? strdup(share) : NULL;
  int size;

  unsetenv("WEFT_CUDA_SHARE");
  T_OK(gpu_device_count(&size));
  size = WEFT_MIN(size, MOST_GPUS);
  setenv("WEFT_CUDA_COLLECTIVES", "peers", 1);
  const char *why = why_no_multicast(size);
  for (int multicast = 0; multicast < 2 && !why; multicast++)
    run_casts(size, multicast, hashes[multicast], us[multicast]);
  unsetenv("WEFT_CUDA_COLLECTIVES");
  if (kept) setenv("WEFT_CUDA_SHARE", kept, 1);
  free(kept);
  if (why) T_SKIP("%s", why);
  for (size_t i = 0; i < WEFT_COUNT(casts); i++) {
    print_message("# %s of %s, %zu elements, %d GPUs: %.1f us with multicast, %.1f us without\n",
                  weft_coll_kind_name(casts[i].kind), weft_dtype_name(casts[i].dtype), casts[i].count, size, us[1][i],
                  us[0][i]);
    if (hashes[0][i] != hashes[1][i]) fail_msg("other bits with multicast");
  }
}

/* Thirty steps that cannot be one kernel: half of them sort a small array. */
static void write_steps(char *text, size_t size)
{
  size_t used = (size_t)snprintf(text, size, "HloModule steps\nENTRY e {\n  x0 = f32[8,8] parameter(0)\n");

  for (int i = 0; i < 30; i++)
    used += (size_t)snprintf(text + used, size - used,
                             "  y%d = f32[8,8] reverse(x%d), dimensions={%d}\n"
                             "  %sx%d = f32[8,8] sort(y%d), dimensions={%d}, to_apply=less\n",
                             i, i, i % 2, i == 29 ? "ROOT " : "", i + 1, i, i % 2);
  snprintf(text + used, size - used, "}\n");
}

static weft_executable *compile_steps(weft_platform *platform, int64_t graph_least)
{
  static const char less[] = "less {\n"
                             "  a = f32[] parameter(0)\n"
                             "  b = f32[] parameter(1)\n"
                             "  ROOT l = pred[] compare(a, b), direction=LT\n}\n";
  char text[8192], all[9000];
  hlo_module *module;
  weft_executable *exe;

  write_steps(text, sizeof text);
  const char *entry = strchr(text, '\n') + 1;
  snprintf(all, sizeof all, "HloModule steps\n%s%s", less, entry);
  T_OK(hlo_parse(all, strlen(all), &module));
  T_OK(weft_compile(platform, module, &(weft_compile_options){.graph_least = graph_least}, &exe));
  return exe;
}

TEST(steps_one_by_one_and_as_a_graph_have_the_same_bits)
{
  enum { RUNS = 20 };
  static float x[64], results[2][64];
  weft_platform *platform = test_platform(1, 1);

  for (int i = 0; i < 64; i++) x[i] = (float)(i * 37 % 64);
  for (int graphs = 0; graphs < 2; graphs++) {
    weft_executable *exe = compile_steps(platform, graphs ? 2 : INT64_MAX);
    weft_device *device = weft_executable_device(exe, 0);
    weft_buffer *in = test_buffer(device, weft_executable_param_type(exe, 0), x), *out[RUNS];
    weft_buffer *const *ins[] = {&in};
    int64_t launch_ns = 0, began_ns = 0;
    for (int i = -5; i < RUNS; i++) { /* the first ones record */
      weft_buffer *one, **outs[] = {&one};
      if (i == 0) began_ns = weft_now_ns();
      int64_t before_ns = weft_now_ns();
      T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
      if (i >= 0) launch_ns += weft_now_ns() - before_ns;
      T_OK(weft_event_await(weft_buffer_defined(one), weft_deadline_after_ms(60000)));
      if (i < 0) weft_buffer_release(one);
      else out[i] = one;
    }
    int64_t took_ns = weft_now_ns() - began_ns;
    T_OK(weft_buffer_to_host(out[RUNS - 1], results[graphs], weft_deadline_after_ms(60000)));
    for (int i = 0; i < RUNS; i++) weft_buffer_release(out[i]);
    print_message("# %d steps %s: %.1f us for a launch to return, %.1f us to its end\n", 30,
                  graphs ? "as a graph" : "one by one", (double)launch_ns / RUNS / 1000, (double)took_ns / RUNS / 1000);
    weft_buffer_release(in);
    weft_executable_release(exe);
  }
  T_TRUE(memcmp(results[0], results[1], sizeof results[0]) == 0);
  weft_platform_release(platform);
}

static int together(void)
{
  const struct CMUnitTest units[] = {
    UNIT(nccl_of_one_rank_reduces_divides_and_ends), UNIT(nccl_of_two_ranks_one_of_them_absent_ends),
    UNIT(eight_devices_have_the_bits_of_the_cpu), UNIT(multicast_has_the_bits_of_the_peers), UNIT(steps_one_by_one_and_as_a_graph_have_the_same_bits)};

  return cmocka_run_group_tests(units, NULL, NULL);
}

int main(int argc, char **argv)
{
  const char *what = argc > 1 ? argv[1] : "";

  if (strcmp(what, "kernels") == 0 && argc == 4)
    return kernels(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
  if (strcmp(what, "faults") == 0) return faults();
  if (strcmp(what, "together") == 0) return together();
  if (strcmp(what, "conformance") == 0) return conformance_main();
  fprintf(stderr, "usage: on_device kernels FIRST COUNT | faults | together | conformance\n");
  return 2;
}
