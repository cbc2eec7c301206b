/* tests/gpu/graph_test.c -- CUDA graphs on the emulated GPU: the results of steps that are queued one by one, the calls
 * of the driver that they save, new addresses, calls that fail, options. */
#include "cpu/run.h"

#include <unistd.h>

#include "driver.h"
#include "runtime/trace.h"

enum { N = 16, VALUES = N * N };

/* Two operands and a number of rounds; products between kernels, sums whose order matters, a loop of which each round
 * has the same addresses, and a loop with an unknown number of rounds. The loops sort, so that they are no part
 * of one kernel. */
static const char mixed_text[] =
  "HloModule mixed, "
  "entry_computation_layout={(f32[16,16]{1,0}, f32[16,16]{1,0}, s32[])->(f32[16,16]{1,0}, f32[16]{0}, "
  "f32[16,16]{1,0})}\n"
  "add {\n"
  "  a = f32[] parameter(0)\n"
  "  b = f32[] parameter(1)\n"
  "  ROOT r = f32[] add(a, b)\n"
  "}\n"
  "less {\n"
  "  a = f32[] parameter(0)\n"
  "  b = f32[] parameter(1)\n"
  "  ROOT r = pred[] compare(a, b), direction=LT\n"
  "}\n"
  "round {\n"
  "  t = (s32[], f32[16,16]) parameter(0)\n"
  "  i = s32[] get-tuple-element(t), index=0\n"
  "  v = f32[16,16] get-tuple-element(t), index=1\n"
  "  one = s32[] constant(1)\n"
  "  j = s32[] add(i, one)\n"
  "  p = f32[16,16] dot(v, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
  "  q = f32[16,16] tanh(p)\n"
  "  u = f32[16,16] transpose(q), dimensions={1,0}\n"
  "  w = f32[16,16] dot(u, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
  "  k = f32[16,16] sine(w)\n"
  "  x = f32[16,16] sort(k), dimensions={1}, to_apply=less\n"
  "  ROOT r = (s32[], f32[16,16]) tuple(j, x)\n"
  "}\n"
  "more {\n"
  "  t = (s32[], f32[16,16]) parameter(0)\n"
  "  i = s32[] get-tuple-element(t), index=0\n"
  "  n = s32[] constant(40)\n"
  "  ROOT r = pred[] compare(i, n), direction=LT\n"
  "}\n"
  "again {\n"
  "  t = (s32[], f32[16,16], s32[]) parameter(0)\n"
  "  i = s32[] get-tuple-element(t), index=0\n"
  "  v = f32[16,16] get-tuple-element(t), index=1\n"
  "  n = s32[] get-tuple-element(t), index=2\n"
  "  one = s32[] constant(1)\n"
  "  j = s32[] add(i, one)\n"
  "  p = f32[16,16] dot(v, v), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
  "  k = f32[16,16] cosine(p)\n"
  "  q = f32[16,16] sort(k), dimensions={1}, to_apply=less\n"
  "  ROOT r = (s32[], f32[16,16], s32[]) tuple(j, q, n)\n"
  "}\n"
  "left {\n"
  "  t = (s32[], f32[16,16], s32[]) parameter(0)\n"
  "  i = s32[] get-tuple-element(t), index=0\n"
  "  n = s32[] get-tuple-element(t), index=2\n"
  "  ROOT r = pred[] compare(i, n), direction=LT\n"
  "}\n"
  "ENTRY e {\n"
  "  a = f32[16,16] parameter(0)\n"
  "  b = f32[16,16] parameter(1)\n"
  "  rounds = s32[] parameter(2)\n"
  "  c = f32[16,16] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
  "  d = f32[16,16] tanh(c)\n"
  "  z = f32[] constant(0)\n"
  "  s = f32[16] reduce(d, z), dimensions={1}, to_apply=add\n"
  "  sb = f32[16,16] broadcast(s), dimensions={0}\n"
  "  f = f32[16,16] divide(d, sb)\n"
  "  g = f32[16,16] dot(f, a), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
  "  k = s32[] constant(0)\n"
  "  t = (s32[], f32[16,16]) tuple(k, g)\n"
  "  l = (s32[], f32[16,16]) while(t), condition=more, body=round\n"
  "  lh = f32[16,16] get-tuple-element(l), index=1\n"
  "  u = (s32[], f32[16,16], s32[]) tuple(k, lh, rounds)\n"
  "  y = (s32[], f32[16,16], s32[]) while(u), condition=left, body=again\n"
  "  h = f32[16,16] get-tuple-element(y), index=1\n"
  "  m = f32[16,16] dot(h, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
  "  o = f32[16,16] exponential(m)\n"
  "  ROOT r = (f32[16,16], f32[16], f32[16,16]) tuple(o, s, h)\n"
  "}\n";

typedef struct result {
  float o[VALUES], s[N], h[VALUES];
} result;

static weft_status *compile_with(weft_platform *platform, const char *text, int64_t least, uint32_t kinds,
                                 weft_executable **out)
{
  hlo_module *module;

  T_OK(hlo_parse(text, strlen(text), &module));
  return weft_compile(platform, module, &(weft_compile_options){.graph_least = least, .graph_kinds = kinds}, out);
}

static weft_executable *compile(weft_platform *platform, const char *text, int64_t least, uint32_t kinds)
{
  weft_executable *exe;

  T_OK(compile_with(platform, text, least, kinds, &exe));
  return exe;
}

static void fill(float *v, int seed)
{
  for (int i = 0; i < VALUES; i++) v[i] = (float)((i * 37 + seed * 11) % 23 - 11) / 13.0f;
}

static weft_status *try_mixed(weft_executable *exe, int seed, result *out)
{
  float a[VALUES], b[VALUES];
  int32_t rounds = 3 + seed % 2;
  const void *const inputs[] = {a, b, &rounds};
  void *const outputs[] = {out->o, out->s, out->h};

  fill(a, seed);
  fill(b, seed + 5);
  memset(out, 0xee, sizeof *out);
  return test_run(exe, inputs, outputs);
}

static void set_faults(const char *faults)
{
  setenv("WEFT_EMU_FAULTS", faults, 1);
  emu_reset();
}

static void nothing_is_left(void)
{
  char text[300] = "";

  for (int i = 0; i < 2000 && emu_leaks(text, sizeof text) > 0; i++) usleep(5000);
  if (emu_leaks(text, sizeof text)) fail_msg("leaked: %s", text);
}

/* ---- bits ------------------------------------------------------------------------------------------------------ */

TEST(results_are_those_of_single_steps)
{
  static const char *const orders[] = {"normal", "reversed", "interleaved:3"};
  weft_platform *platform = test_platform(1, 2);
  weft_executable *single = compile(platform, mixed_text, INT64_MAX, 0);
  result want, got;

  for (size_t i = 0; i < WEFT_COUNT(orders); i++) {
    setenv("WEFT_EMU_ORDER", orders[i], 1);
    emu_reset();
    for (int64_t least = 1; least <= 5; least += 2) {
      weft_executable *exe = compile(platform, mixed_text, least, 0);
      uint64_t before = emu_calls("cuGraphLaunch");
      for (int run = 0; run < 6; run++) {
        T_OK(try_mixed(single, run, &want));
        T_OK(try_mixed(exe, run, &got));
        if (memcmp(&want, &got, sizeof got) != 0)
          fail_msg("other bits in run %d, least %lld, order %s", run, (long long)least, orders[i]);
      }
      T_TRUE(emu_calls("cuGraphLaunch") > before);
      weft_executable_release(exe);
    }
  }
  unsetenv("WEFT_EMU_ORDER");
  emu_reset();
  weft_executable_release(single);
  weft_platform_release(platform);
  nothing_is_left();
}

/* ---- calls of the driver --------------------------------------------------------------------------------------- */

/* One operand and one result; STEPS products, which become no fusion. */
enum { STEPS = 12 };
static void chain(char *text, size_t size)
{
  size_t at = (size_t)snprintf(text, size, "HloModule chain ENTRY e { v0 = f32[16,16] parameter(0)\n");

  for (int i = 0; i < STEPS; i++)
    at += (size_t)snprintf(text + at, size - at,
                           " %sv%d = f32[16,16] dot(v%d, v0), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n",
                           i == STEPS - 1 ? "ROOT " : "", i + 1, i);
  snprintf(text + at, size - at, "}\n");
}

/* As chain, of kernels: sums over alternating dimensions do not fuse with each other. */
static void kernel_chain(char *text, size_t size)
{
  size_t at = (size_t)snprintf(text, size,
                               "HloModule chain\n"
                               "add {\n"
                               "  a = f32[] parameter(0)\n"
                               "  b = f32[] parameter(1)\n"
                               "  ROOT r = f32[] add(a, b)\n"
                               "}\n"
                               "ENTRY e {\n"
                               "  v0 = f32[16,16] parameter(0)\n"
                               "  z = f32[] constant(0)\n");

  for (int i = 0; i < STEPS / 2; i++)
    at += (size_t)snprintf(text + at, size - at,
                           " s%d = f32[16] reduce(v%d, z), dimensions={%d}, to_apply=add\n"
                           " c%d = f32[16,16] broadcast(s%d), dimensions={%d}\n"
                           " %sv%d = f32[16,16] sort(c%d), dimensions={0}, to_apply=less\n",
                           i, i, i % 2, i, i, i % 2, i == STEPS / 2 - 1 ? "ROOT " : "", i + 1, i);
  snprintf(text + at, size - at, "}\n");
  char *less = strdup(text);
  snprintf(text, size,
           "HloModule chain\n"
           "less {\n"
           "  a = f32[] parameter(0)\n"
           "  b = f32[] parameter(1)\n"
           "  ROOT r = pred[] compare(a, b), direction=LT\n"
           "}\n"
           "%s",
           less + strlen("HloModule chain"));
  free(less);
}

typedef struct counts {
  uint64_t kernels, launches, captures, instances, updates;
} counts;

static counts count_now(void)
{
  return (counts){emu_calls("cuLaunchKernel"), emu_calls("cuGraphLaunch"), emu_calls("cuStreamBeginCapture_v2"),
                  emu_calls("cuGraphInstantiateWithFlags"), emu_calls("cuGraphExecUpdate_v2")};
}

static counts since(counts before)
{
  counts now = count_now();

  return (counts){now.kernels - before.kernels, now.launches - before.launches, now.captures - before.captures,
                  now.instances - before.instances, now.updates - before.updates};
}

/* Runs the program once on `in`; the result, for the caller. */
static weft_buffer *run_on(weft_executable *exe, weft_buffer *in)
{
  weft_buffer *const *ins[] = {&in};
  weft_buffer *out;
  weft_buffer **outs[] = {&out};

  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
  T_OK(weft_event_await(weft_buffer_defined(out), weft_deadline_after_ms(60000)));
  return out;
}

static weft_buffer *new_input(weft_platform *platform, const weft_executable *exe, int seed)
{
  float v[VALUES];

  fill(v, seed);
  return test_buffer(weft_platform_device(platform, 0), weft_executable_param_type(exe, 0), v);
}

/* A run with known addresses is one launch, however many steps it has. */
TEST(a_run_with_known_addresses_is_one_call)
{
  char text[8000];
  weft_platform *platform = test_platform(1, 2);

  for (int kernels = 0; kernels < 2; kernels++) {
    (kernels ? kernel_chain : chain)(text, sizeof text);
    weft_executable *exe = compile(platform, text, 5, 0), *single = compile(platform, text, INT64_MAX, 0);
    weft_buffer *in = new_input(platform, exe, 1);
    count_now();
    for (int run = 0; run < 6; run++) {
      uint64_t all = emu_calls(NULL);
      counts before = count_now();
      weft_buffer_release(run_on(exe, in));
      counts now = since(before);
      all = emu_calls(NULL) - all;
      print_message("# %s, run %d: %llu calls, %llu kernels, %llu graphs, %llu recorded\n",
                    kernels ? "kernels" : "products", run, (unsigned long long)all, (unsigned long long)now.kernels,
                    (unsigned long long)now.launches, (unsigned long long)now.captures);
      T_EQ_INT(now.launches, run > 0);
      T_EQ_INT(now.captures, run == 1);
      T_EQ_INT(now.instances, run == 1);
      if (run > 1) T_EQ_INT(now.kernels, 0);
      before = count_now();
      all = emu_calls(NULL);
      weft_buffer_release(run_on(single, in));
      all = emu_calls(NULL) - all;
      now = since(before);
      if (run == 5)
        print_message("# one by one: %llu calls, %llu kernels\n", (unsigned long long)all,
                      (unsigned long long)now.kernels);
      T_EQ_INT(now.launches + now.captures, 0);
    }
    weft_buffer_release(in);
    weft_executable_release(exe);
    weft_executable_release(single);
  }
  weft_platform_release(platform);
  nothing_is_left();
}

/* Inputs and outputs are kept, so each run has new addresses. The first run is not recorded, and four instances are
 * kept. */
TEST(new_addresses_update_a_graph)
{
  enum { RUNS = 24, KEPT = 4 };
  char text[8000];
  weft_platform *platform = test_platform(1, 2);
  weft_buffer *in[RUNS], *out[RUNS];
  float got[VALUES], want[VALUES];

  kernel_chain(text, sizeof text);
  weft_executable *exe = compile(platform, text, 5, 0), *single = compile(platform, text, INT64_MAX, 0);
  for (int run = 0; run < RUNS; run++) {
    in[run] = new_input(platform, exe, run);
    counts before = count_now();
    out[run] = run_on(exe, in[run]);
    counts now = since(before);
    bool records = run >= 1;
    T_EQ_INT(now.captures, records);
    T_EQ_INT(now.launches, records);
    T_EQ_INT(now.updates, records && run > KEPT);
    T_EQ_INT(now.instances, records && run <= KEPT);
  }
  for (int run = 0; run < RUNS; run++) {
    weft_buffer *right = run_on(single, in[run]);
    T_OK(weft_buffer_to_host(right, want, weft_deadline_after_ms(60000)));
    T_OK(weft_buffer_to_host(out[run], got, weft_deadline_after_ms(60000)));
    if (memcmp(got, want, sizeof got) != 0) fail_msg("other bits in run %d", run);
    weft_buffer_release(right);
  }
  /* the addresses of the last recorded run once more */
  weft_buffer_release(WEFT_MOVE(out[RUNS - 1]));
  counts before = count_now();
  out[RUNS - 1] = run_on(exe, in[RUNS - 1]);
  T_EQ_INT(since(before).launches, 1);
  T_EQ_INT(since(before).captures, 0);
  for (int run = 0; run < RUNS; run++) {
    weft_buffer_release(in[run]);
    weft_buffer_release(out[run]);
  }
  weft_executable_release(exe);
  weft_executable_release(single);
  weft_platform_release(platform);
  nothing_is_left();
}

TEST(while_events_are_recorded_steps_are_queued_one_by_one)
{
  char text[8000];
  weft_platform *platform = test_platform(1, 2);

  chain(text, sizeof text);
  weft_executable *exe = compile(platform, text, 5, 0);
  weft_buffer *in = new_input(platform, exe, 1);
  for (int run = 0; run < 3; run++) weft_buffer_release(run_on(exe, in));
  rt_trace_capture(false);
  counts before = count_now();
  weft_buffer_release(run_on(exe, in));
  rt_trace_release();
  T_EQ_INT(since(before).launches, 0);
  before = count_now();
  weft_buffer_release(run_on(exe, in));
  T_EQ_INT(since(before).launches, 1);
  weft_buffer_release(in);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* ---- options --------------------------------------------------------------------------------------------------- */

static bool has_graph(weft_executable *exe)
{
  char *steps = test_steps_of(exe);
  bool found = strstr(steps, " graph ") != NULL;

  free(steps);
  return found;
}

TEST(options_say_which_steps_and_from_how_many_on)
{
  static const struct { int64_t least; uint32_t kinds; bool products, kernels; } rows[] = {
    {0, 0, true, true}, {STEPS, 0, true, true}, {STEPS + 1, 0, false, true}, {100, 0, false, false}, {INT64_MAX, 0, false, false},
    {5, 1u << WEFT_GRAPH_FUSION, false, true}, {5, 1u << WEFT_GRAPH_CUBLAS, true, false},
    {5, 1u << WEFT_GRAPH_CUBLASLT | 1u << WEFT_GRAPH_WHILE, true, false}, {5, 1u << WEFT_GRAPH_CUDNN, false, false},
  };
  char products_text[8000], kernels_text[8000];
  weft_platform *platform = test_platform(1, 2);

  chain(products_text, sizeof products_text);
  kernel_chain(kernels_text, sizeof kernels_text);
  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    weft_executable *products = compile(platform, products_text, rows[i].least, rows[i].kinds);
    weft_executable *kernels = compile(platform, kernels_text, rows[i].least, rows[i].kinds);
    if (has_graph(products) != rows[i].products) fail_msg("row %zu: products", i);
    if (has_graph(kernels) != rows[i].kernels) fail_msg("row %zu: kernels", i);
    weft_executable_release(products);
    weft_executable_release(kernels);
  }
  weft_platform_release(platform);
  setenv("WEFT_CUDA_GRAPHS", "0", 1);
  platform = test_platform(1, 2);
  weft_executable *exe = compile(platform, products_text, 2, 0);
  T_TRUE(!has_graph(exe));
  weft_executable_release(exe);
  weft_platform_release(platform);
  unsetenv("WEFT_CUDA_GRAPHS");
}

/* ---- steps of libraries ---------------------------------------------------------------------------------------- */

/* A transform that scales its result and copies its input first (c64 to f32), and a triangular solve of one matrix. */
static const char libraries_text[] =
  "HloModule libraries\n"
  "ENTRY e {\n"
  "  v = f32[16,16] parameter(0)\n"
  "  f = c64[16,9] fft(v), fft_type=RFFT, fft_length={16}\n"
  "  g = f32[16,16] fft(f), fft_type=IRFFT, fft_length={16}\n"
  "  s = f32[16,16] triangular-solve(v, g), left_side=true, lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE\n"
  "  h = c64[16,9] fft(s), fft_type=RFFT, fft_length={16}\n"
  "  ROOT k = f32[16,16] fft(h), fft_type=IRFFT, fft_length={16}\n"
  "}\n";

TEST(transforms_and_triangular_solves_are_part_of_graphs)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = compile(platform, libraries_text, 5, 0);
  weft_executable *single = compile(platform, libraries_text, INT64_MAX, 0);
  weft_executable *kernels = compile(platform, libraries_text, 1, 1u << WEFT_GRAPH_FUSION);
  float got[VALUES], want[VALUES];

  T_TRUE(!has_graph(kernels));
  for (int run = 0; run < 8; run++) { /* the last ones have new addresses */
    weft_buffer *in = new_input(platform, exe, run), *right = run_on(single, in);
    counts before = count_now();
    weft_buffer *out = run_on(exe, in);
    T_EQ_INT(since(before).launches, run > 0);
    T_OK(weft_buffer_to_host(right, want, weft_deadline_after_ms(60000)));
    T_OK(weft_buffer_to_host(out, got, weft_deadline_after_ms(60000)));
    if (memcmp(got, want, sizeof got) != 0) fail_msg("other bits in run %d", run);
    weft_buffer_release(in);
    weft_buffer_release(out);
    weft_buffer_release(right);
  }
  weft_executable_release(exe);
  weft_executable_release(single);
  weft_executable_release(kernels);
  weft_platform_release(platform);
  nothing_is_left();
}

/* ---- what fails ------------------------------------------------------------------------------------------------ */

/* The n-th call of `symbol` fails in one of six runs. That run's results are right or its error names the call, and the
 * other runs' results are right. False: there were fewer calls. */
static bool one_fault(weft_platform *platform, const char *name, const char *symbol, int n, const result *want)
{
  weft_executable *exe = compile(platform, mixed_text, 2, 0);
  char fault[96];
  result got;
  int failed = 0;

  snprintf(fault, sizeof fault, "%s:%d=2", symbol, n);
  set_faults(fault);
  for (int run = 0; run < 6; run++) {
    weft_status *st = try_mixed(exe, run % 3, &got);
    if (!st && memcmp(&got, &want[run % 3], sizeof got) != 0) fail_msg("%s: other bits in run %d", fault, run);
    if (st && (!strstr(weft_status_text(st, true), name) || !strstr(weft_status_text(st, true), "mixed")))
      fail_msg("%s: %s", fault, weft_status_text(st, true));
    failed += st != NULL;
    weft_status_free(st);
  }
  bool came = emu_faults_left() == 0;
  set_faults("");
  if (failed > came) fail_msg("%s: %d runs failed", fault, failed);
  bool may_fail = strcmp(name, "cuGraphLaunch") == 0;
  if (failed && !may_fail) fail_msg("%s: a run failed, where its steps can be queued one by one", fault);
  weft_executable_release(exe);
  return came;
}

TEST(any_call_of_graphs_may_fail_at_any_time)
{
  static const struct { const char *name, *symbol; int least; } calls[] = {
    {"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 2}, {"cuStreamEndCapture", "cuStreamEndCapture", 2},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 2},
    {"cuGraphLaunch", "cuGraphLaunch", 20},
  };
  weft_platform *platform = test_platform(1, 2);
  weft_executable *single = compile(platform, mixed_text, INT64_MAX, 0);
  result want[3];

  for (int i = 0; i < 3; i++) T_OK(try_mixed(single, i, &want[i]));
  weft_executable_release(single);
  for (size_t i = 0; i < WEFT_COUNT(calls); i++) {
    int n = 1;
    while (one_fault(platform, calls[i].name, calls[i].symbol, n, want)) n += 1 + n / (16 / T_STRIDE(4));
    print_message("# %s: up to call %d\n", calls[i].name, n - 1);
    if (n - 1 < calls[i].least) fail_msg("%s: only %d calls", calls[i].name, n - 1);
  }
  weft_platform_release(platform);
  nothing_is_left();
}

/* An update that the driver refuses makes a new instance. */
TEST(an_update_that_fails_makes_a_new_instance)
{
  enum { RUNS = 8 };
  char text[8000];
  weft_platform *platform = test_platform(1, 2);
  weft_buffer *in[RUNS], *out[RUNS];

  kernel_chain(text, sizeof text);
  weft_executable *exe = compile(platform, text, 5, 0);
  set_faults("cuGraphExecUpdate_v2:2=910");
  counts before = count_now();
  for (int run = 0; run < RUNS; run++) {
    in[run] = new_input(platform, exe, run);
    out[run] = run_on(exe, in[run]);
  }
  T_EQ_INT(emu_faults_left(), 0);
  T_EQ_INT(since(before).updates, 3);
  T_EQ_INT(since(before).instances, 5);
  T_EQ_INT(since(before).launches, RUNS - 1);
  set_faults("");
  for (int run = 0; run < RUNS; run++) {
    weft_buffer_release(in[run]);
    weft_buffer_release(out[run]);
  }
  weft_executable_release(exe);
  weft_platform_release(platform);
  nothing_is_left();
}

/* Each recording fails: after three the device does not try any more. */
TEST(a_device_that_cannot_record_gives_up)
{
  char text[8000];
  weft_platform *platform = test_platform(1, 2);

  chain(text, sizeof text);
  weft_executable *exe = compile(platform, text, 5, 0);
  weft_buffer *in = new_input(platform, exe, 1);
  set_faults("cuGraphInstantiateWithFlags:1=2,cuGraphInstantiateWithFlags:2=2,cuGraphInstantiateWithFlags:3=2");
  counts before = count_now();
  for (int run = 0; run < 8; run++) weft_buffer_release(run_on(exe, in));
  T_EQ_INT(since(before).captures, 3);
  T_EQ_INT(since(before).launches, 0);
  set_faults("");
  weft_buffer_release(in);
  weft_executable_release(exe);
  weft_platform_release(platform);
  nothing_is_left();
}

/* ---- several devices ------------------------------------------------------------------------------------------- */

/* Steps that do not wait for the all-reduce are not in a graph with steps that do. */
static const char reduced_text[] = "HloModule reduced, replica_count=4\n"
                                   "add {\n"
                                   "  a = f32[] parameter(0)\n"
                                   "  b = f32[] parameter(1)\n"
                                   "  ROOT r = f32[] add(a, b)\n"
                                   "}\n"
                                   "less {\n"
                                   "  a = f32[] parameter(0)\n"
                                   "  b = f32[] parameter(1)\n"
                                   "  ROOT r = pred[] compare(a, b), direction=LT\n"
                                   "}\n"
                                   "ENTRY e {\n"
                                   "  x = f32[16,16] parameter(0)\n"
                                   "  a0 = f32[16,16] sort(x), dimensions={0}, to_apply=less\n"
                                   "  a1 = f32[16,16] sort(a0), dimensions={1}, to_apply=less\n"
                                   "  r = f32[16,16] all-reduce(a1), replica_groups={}, to_apply=add\n"
                                   "  b0 = f32[16,16] dot(a1, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                                   "  b1 = f32[16,16] sort(b0), dimensions={1}, to_apply=less\n"
                                   "  c0 = f32[16,16] sort(r), dimensions={0}, to_apply=less\n"
                                   "  c1 = f32[16,16] dot(c0, b1), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                                   "  d = f32[16,16] all-reduce(c1), replica_groups={}, to_apply=add\n"
                                   "  ROOT e = f32[16,16] sort(d), dimensions={0}, to_apply=less\n"
                                   "}\n";

static void run_on_four(weft_platform *platform, weft_executable *exe, float (*got)[VALUES])
{
  weft_buffer *in[4], *out[4];
  weft_buffer *const *ins[4];
  weft_buffer **outs[4];
  float v[VALUES];

  for (int d = 0; d < 4; d++) {
    fill(v, d);
    in[d] = test_buffer(weft_platform_device(platform, d), weft_executable_param_type(exe, 0), v);
    ins[d] = &in[d];
    outs[d] = &out[d];
  }
  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
  for (int d = 0; d < 4; d++) {
    T_OK(weft_buffer_to_host(out[d], got[d], weft_deadline_after_ms(60000)));
    weft_buffer_release(in[d]);
    weft_buffer_release(out[d]);
  }
}

TEST(graphs_stand_between_collectives_of_several_devices)
{
  weft_platform *platform = test_platform(4, 2);
  weft_executable *exe = compile(platform, reduced_text, 2, 0), *single = compile(platform, reduced_text, INT64_MAX, 0);
  static float got[4][VALUES], want[4][VALUES];

  char *steps = test_steps_of(exe);
  T_TRUE(strstr(steps, "a0 to a1") != NULL);
  T_TRUE(strstr(steps, "b0 to b1") != NULL);
  T_TRUE(strstr(steps, "c0 to c1") != NULL);
  free(steps);
  run_on_four(platform, single, want);
  for (int run = 0; run < 5; run++) {
    uint64_t before = emu_calls("cuGraphLaunch");
    run_on_four(platform, exe, got);
    assert_memory_equal(got, want, sizeof got);
    T_EQ_INT(emu_calls("cuGraphLaunch") - before, run == 0 ? 0 : 12);
  }
  weft_executable_release(exe);
  weft_executable_release(single);
  weft_platform_release(platform);
  nothing_is_left();
}

/* A kernel that fails in a graph loses the device as any kernel does; nothing hangs. */
TEST(a_graph_whose_kernel_fails_loses_the_device)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = compile(platform, mixed_text, 2, 0);
  result got;

  for (int run = 0; run < 3; run++) T_OK(try_mixed(exe, run, &got));
  setenv("WEFT_EMU_BUDGET", "1", 1);
  emu_reset();
  weft_status *st = try_mixed(exe, 0, &got);
  unsetenv("WEFT_EMU_BUDGET");
  emu_reset();
  T_FAILS(st, "CUDA_ERROR_LAUNCH_TIMEOUT");
  weft_executable_release(exe);
  weft_platform_release(platform);
  nothing_is_left();
}

int main(void)
{
  open_driver();
  emu_calls(NULL); /* calls are counted from here on */
  const struct CMUnitTest units[] = {
    UNIT(results_are_those_of_single_steps), UNIT(a_run_with_known_addresses_is_one_call),
    UNIT(new_addresses_update_a_graph), UNIT(while_events_are_recorded_steps_are_queued_one_by_one),
    UNIT(options_say_which_steps_and_from_how_many_on), UNIT(transforms_and_triangular_solves_are_part_of_graphs),
    UNIT(any_call_of_graphs_may_fail_at_any_time),
    UNIT(an_update_that_fails_makes_a_new_instance), UNIT(a_device_that_cannot_record_gives_up),
    UNIT(graphs_stand_between_collectives_of_several_devices), UNIT(a_graph_whose_kernel_fails_loses_the_device)};
  return cmocka_run_group_tests(units, NULL, NULL);
}
