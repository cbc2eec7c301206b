/* tests/gpu/graph_loops_test.c -- loops and branches in CUDA graphs on the emulated GPU: the reference evaluator's
 * results with conditional nodes and without, one launch for a loop of any length, loops that do not end, drivers that
 * have no such nodes, calls that fail. */
#include "cpu/run.h"

#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"
#include "hlo/eval.h"
#include "runtime/runtime_internal.h"
#include "runtime/trace.h"

/* ---- programs -------------------------------------------------------------------------------------------------- */

/* Each takes x: s32[3,13] and n: s32[], and gives s32[3,13]. Rounds and branches sort, so that they are no part of
 * one kernel. */
enum { ROWS = 3, COLUMNS = 13, VALUES = ROWS * COLUMNS };
#define T "s32[3,13]"
#define HEAD "HloModule m, entry_computation_layout={(s32[3,13]{1,0}, s32[])->s32[3,13]{1,0}}\n" \
  "less {\n" \
  "  a = s32[] parameter(0)\n" \
  "  b = s32[] parameter(1)\n" \
  "  ROOT r = pred[] compare(a, b), direction=LT }\n" \
  "add {\n" \
  "  a = s32[] parameter(0)\n" \
  "  b = s32[] parameter(1)\n" \
  "  ROOT r = s32[] add(a, b) }\n"
/* to = a mixture of `from` and the scalar `by`; names begin with `to` */
#define MIX_AS(root, to, from, by) \
  "  " to "k = s32[] constant(1103515245)\n" \
  "  " to "f = " T " broadcast(" to "k), dimensions={}\n" \
  "  " to "m = " T " multiply(" from ", " to "f)\n" \
  "  " to "b = " T " broadcast(" by "), dimensions={}\n" \
  "  " to "i = " T " iota(), iota_dimension=0\n" \
  "  " to "a = " T " add(" to "m, " to "b)\n" \
  "  " to "x = " T " xor(" to "a, " to "i)\n" \
  "  " root to " = " T " sort(" to "x), dimensions={1}, to_apply=less\n"
#define MIX(to, from, by) MIX_AS("", to, from, by)
#define LAST(to, from, by) MIX_AS("ROOT ", to, from, by)
#define STATE "(s32[], " T ", s32[])"
#define PARTS "  t = " STATE " parameter(0)\n" \
  "  i = s32[] get-tuple-element(t), index=0\n" \
  "  v = " T " get-tuple-element(t), index=1\n" \
  "  n = s32[] get-tuple-element(t), index=2\n"
#define NEXT(result) "  one = s32[] constant(1)\n" \
  "  j = s32[] add(i, one)\n" \
  "  ROOT r = " STATE " tuple(j, " result ", n) }\n"
#define BODY(name, text, result) name " {\n" PARTS text NEXT(result)
#define UP_TO_N "up_to_n {\n" PARTS \
  "  ROOT r = pred[] compare(i, n), direction=LT }\n"
#define UP_TO(name, rounds) name " {\n" PARTS \
  "  k = s32[] constant(" rounds ")\n" \
  "  ROOT r = pred[] compare(i, k), direction=LT }\n"
/* w = the array after the loop that begins with `from` in round 0 */
#define LOOP(w, from, condition, body) \
  "  " w "z = s32[] constant(0)\n" \
  "  " w "t = " STATE " tuple(" w "z, " from ", n)\n" \
  "  " w "w = " STATE " while(" w "t), condition=" condition ", body=" body "\n" \
  "  " w " = " T " get-tuple-element(" w "w), index=1\n"
#define ENTRY(text) "ENTRY e {\n" \
  "  x = " T " parameter(0)\n" \
  "  n = s32[] parameter(1)\n" text " }\n"
#define BRANCH(name, text) name " {\n" \
  "  p = " T " parameter(0)\n" \
  "  q = s32[] constant(3)\n" text " }\n"

typedef struct program {
  const char *what;
  int32_t n[4];       /* in four runs */
  const char *inside; /* a kind of step that the graph has taken in: the host no longer runs it; NULL: any */
  const char *text;
} program;

static const program programs[] = {
  {"a loop of n rounds", {7, 0, 1, 30}, "while",
   HEAD BODY("body", MIX("u", "v", "i"), "u") UP_TO_N ENTRY(LOOP("w", "x", "up_to_n", "body") LAST("y", "w", "n"))},
  {"a loop until a sum has a remainder", {15, 5, 20, 11}, "while",
   HEAD BODY("body", MIX("u", "v", "i"), "u")
   "until {\n" PARTS
   "  z = s32[] constant(0)\n"
   "  s = s32[] reduce(v, z), dimensions={0,1}, to_apply=add\n"
   "  k = s32[] constant(9)\n"
   "  m = s32[] remainder(s, k)\n"
   "  d = s32[] constant(4)\n"
   "  ne = pred[] compare(m, d), direction=NE\n"
   "  lt = pred[] compare(i, n), direction=LT\n"
   "  ROOT r = pred[] and(ne, lt) }\n"
   ENTRY(MIX("y", "x", "n") LOOP("w", "y", "until", "body") LAST("o", "w", "n"))},
  {"a known number of rounds, counted on the device", {7, 0, 1, 30}, "while",
   HEAD BODY("body", MIX("u", "v", "i") MIX("o", "u", "n"), "o") UP_TO("forty", "40")
   ENTRY(LOOP("w", "x", "forty", "body") LAST("y", "w", "n"))},
  {"few known rounds, which are recorded one by one", {7, 0, 1, 30}, "while",
   HEAD BODY("body", MIX("u", "v", "i"), "u") UP_TO("ten", "10")
   ENTRY(LOOP("w", "x", "ten", "body") LAST("o", "w", "n"))},
  {"loops in loops", {1, 0, 2, 1}, "while",
   HEAD BODY("inmost", MIX("u", "v", "i"), "u") UP_TO("twelve", "12") UP_TO("eleven", "11")
   BODY("inner", MIX("u", "v", "i") LOOP("w", "u", "twelve", "inmost") MIX("o", "w", "n"), "o")
   BODY("next", MIX("u", "v", "n") LOOP("w", "u", "eleven", "inmost"), "w") UP_TO("nine", "9") UP_TO_N
   BODY("middle", LOOP("w", "v", "up_to_n", "inner") MIX("u", "w", "i"), "u")
   BODY("outer", LOOP("w", "v", "nine", "middle") LOOP("y", "w", "up_to_n", "next"), "y")
   ENTRY(LOOP("w", "x", "up_to_n", "outer") LAST("y", "w", "n"))},
  {"one of two branches", {1, -1, 0, 8}, "conditional",
   HEAD BRANCH("yes", LAST("r", "p", "q")) BRANCH("no", "  s = " T " negate(p)\n" MIX("u", "s", "q") LAST("r", "u", "q"))
   ENTRY("  z = s32[] constant(0)\n"
   "  f = pred[] compare(n, z), direction=GT\n"
         "  c = " T " conditional(f, x, x), true_computation=yes, false_computation=no\n" LAST("o", "c", "n"))},
  {"a branch that does nothing", {1, -1, 0, 8}, "conditional",
   HEAD BRANCH("yes", LAST("r", "p", "q")) "no {\n"
   "  ROOT p = " T " parameter(0) }\n"
   ENTRY("  z = s32[] constant(0)\n"
   "  f = pred[] compare(n, z), direction=GT\n" MIX("y", "x", "n")
         "  c = " T " conditional(f, y, y), true_computation=yes, false_computation=no\n" LAST("o", "c", "n"))},
  {"one of four branches, and numbers that name none", {0, 1, 2, 3}, "conditional",
   HEAD BRANCH("b0", LAST("r", "p", "q")) BRANCH("b1", "  s = " T " negate(p)\n" LAST("r", "s", "q"))
   BRANCH("b2", "  s = " T " not(p)\n" LAST("r", "s", "q")) BRANCH("b3", MIX("u", "p", "q") LAST("r", "u", "q"))
   ENTRY("  c = " T " conditional(n, x, x, x, x), branch_computations={b0, b1, b2, b3}\n" LAST("o", "c", "n"))},
  {"the same with numbers that name none", {-1, 4, 100, -2147483647}, "conditional",
   HEAD BRANCH("b0", LAST("r", "p", "q")) BRANCH("b1", "  s = " T " negate(p)\n" LAST("r", "s", "q"))
   BRANCH("b2", "  s = " T " not(p)\n" LAST("r", "s", "q"))
   ENTRY("  c = " T " conditional(n, x, x, x), branch_computations={b0, b1, b2}\n" LAST("o", "c", "n"))},
  {"branches in a loop, and a loop in a branch", {4, 0, 1, 5}, "while",
   HEAD BODY("inmost", MIX("u", "v", "i"), "u") UP_TO("twelve", "12") UP_TO_N
   BRANCH("yes", "  n = s32[] constant(5)\n" LOOP("w", "p", "twelve", "inmost") LAST("r", "w", "q"))
   BRANCH("no", "  s = " T " negate(p)\n" LAST("r", "s", "q")) BRANCH("b2", "  s = " T " not(p)\n" LAST("r", "s", "q"))
   BODY("body", "  k = s32[] constant(3)\n"
   "  m = s32[] remainder(i, k)\n"
   "  z = s32[] constant(0)\n"
        "  f = pred[] compare(m, z), direction=EQ\n"
        "  c = " T " conditional(f, v, v), true_computation=yes, false_computation=no\n"
        "  d = " T " conditional(m, c, c, c), branch_computations={no, b2, yes}\n" MIX("u", "d", "i"), "u")
   ENTRY(LOOP("w", "x", "up_to_n", "body") LAST("y", "w", "n"))},
  {"arrays that change places in each round", {7, 0, 1, 30}, "while",
   HEAD
   "body {\n"
   "  t = (s32[], " T ", " T ", s32[]) parameter(0)\n"
   "  i = s32[] get-tuple-element(t), index=0\n"
   "  v = " T " get-tuple-element(t), index=1\n"
   "  w = " T " get-tuple-element(t), index=2\n"
   "  n = s32[] get-tuple-element(t), index=3\n" MIX("u", "v", "i")
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  ROOT r = (s32[], " T ", " T ", s32[]) tuple(j, w, u, n) }\n"
   "up_to_n {\n"
   "  t = (s32[], " T ", " T ", s32[]) parameter(0)\n"
   "  i = s32[] get-tuple-element(t), index=0\n"
   "  n = s32[] get-tuple-element(t), index=3\n"
   "  ROOT r = pred[] compare(i, n), direction=LT }\n"
   ENTRY(MIX("y", "x", "n") "  z = s32[] constant(0)\n"
   "  t = (s32[], " T ", " T ", s32[]) tuple(z, x, y, n)\n"
         "  w = (s32[], " T ", " T ", s32[]) while(t), condition=up_to_n, body=body\n"
         "  a = " T " get-tuple-element(w), index=1\n"
         "  b = " T " get-tuple-element(w), index=2\n"
         "  s = " T " subtract(a, b)\n" LAST("o", "s", "n"))},
};
enum { BY_N, UNTIL, KNOWN, FEW, NESTED, TWO, NOTHING, FOUR, NO_NUMBER, MIXED, PLACES };

static weft_executable *compile(weft_platform *platform, const char *text, int64_t least, uint32_t kinds)
{
  weft_executable *exe;
  hlo_module *module;

  weft_status *st = hlo_parse(text, strlen(text), &module);
  if (st) fail_msg("%s\n%s", weft_status_message(st), text);
  T_OK(weft_compile(platform, module, &(weft_compile_options){.graph_least = least, .graph_kinds = kinds}, &exe));
  return exe;
}

static void fill(int32_t *v, int seed)
{
  uint32_t x = 12345u + (uint32_t)seed * 977u;

  for (int i = 0; i < VALUES; i++) v[i] = (int32_t)(x = x * 1664525u + 1013904223u);
}

static weft_status *try_run(weft_executable *exe, int seed, int32_t n, int32_t *out)
{
  int32_t x[VALUES];
  const void *const inputs[] = {x, &n};
  void *const outputs[] = {out};

  fill(x, seed);
  memset(out, 0xee, VALUES * sizeof *out);
  return test_run(exe, inputs, outputs);
}

/* What the reference evaluator gives. */
static void evaluate(const char *text, int seed, int32_t n, int32_t *out)
{
  const hlo_literal *want;
  hlo_literal *x, *count;
  hlo_module *module;
  weft_arena arena;

  weft_arena_init(&arena);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(hlo_literal_new(&arena, module->entry->params[0]->shape, &x));
  T_OK(hlo_literal_new(&arena, module->entry->params[1]->shape, &count));
  fill(x->data, seed);
  memcpy(count->data, &n, sizeof n);
  T_OK(hlo_eval_module(module, (const hlo_literal *[]){x, count}, &HLO_EVAL_DEFAULT, &arena, &want));
  memcpy(out, want->data, VALUES * sizeof *out);
  hlo_module_free(module);
  weft_arena_fini(&arena);
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

/* Whether a step of the entry is of this kind. */
static bool entry_has(weft_executable *exe, const char *kind)
{
  char *steps = test_steps_of(exe), word[64];
  bool found = false, in_entry = false;

  for (const char *line = steps; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
    if (*line != ' ') in_entry = strncmp(line, "entry ", 6) == 0;
    found |= in_entry && sscanf(line, " %*d %63s", word) == 1 && strcmp(word, kind) == 0;
  }
  free(steps);
  return found;
}

/* ---- bits ------------------------------------------------------------------------------------------------------ */

/* Runs one program on several inputs. `in_graph`: its control flow is part of a graph. */
static void check(weft_platform *platform, const program *p, bool in_graph)
{
  weft_executable *exe = compile(platform, p->text, 0, 0);
  int32_t got[VALUES], want[VALUES];

  if (entry_has(exe, p->inside) == in_graph || (in_graph && !entry_has(exe, "graph"))) {
    char *steps = test_steps_of(exe);
    fail_msg("%s: steps are\n%s", p->what, steps);
  }
  for (int run = 0; run < 8; run++) {
    int32_t n = p->n[run % 4];
    uint64_t launches = emu_calls("cuGraphLaunch"), kernels = emu_calls("cuLaunchKernel");
    uint64_t captures = emu_calls("cuStreamBeginCaptureToGraph");
    weft_status *st = try_run(exe, run, n, got);
    if (st) fail_msg("%s, n %d: %s", p->what, n, weft_status_text(st, true));
    launches = emu_calls("cuGraphLaunch") - launches;
    kernels = emu_calls("cuLaunchKernel") - kernels;
    captures = emu_calls("cuStreamBeginCaptureToGraph") - captures;
    evaluate(p->text, run, n, want);
    if (memcmp(got, want, sizeof got) != 0) fail_msg("%s: other numbers in run %d, n %d", p->what, run, n);
    if (in_graph && run > 0 && launches != 1) fail_msg("%s: %d launches in run %d", p->what, (int)launches, run);
    if (in_graph && run > 0 && captures == 0 && kernels > 0)
      fail_msg("%s: %d kernels in run %d", p->what, (int)kernels, run);
    if (!in_graph && captures > 0) fail_msg("%s: a graph with control flow was recorded", p->what);
  }
  weft_executable_release(exe);
}

/* In the first `count` orders of the emulated GPU. */
static void check_all(bool in_graph, size_t count)
{
  static const char *const orders[] = {"normal", "reversed", "interleaved:3"};

  for (size_t i = 0; i < count; i++) {
    setenv("WEFT_EMU_ORDER", orders[i], 1);
    setenv("WEFT_EMU_CHECKS", "all", 1);
    emu_reset();
    weft_platform *platform = test_platform(1, 2);
    for (size_t k = 0; k < WEFT_COUNT(programs); k++) {
      int64_t begin = weft_now_ns();
      check(platform, &programs[k], in_graph);
      print_message("# %s: %s: %.1f s\n", orders[i], programs[k].what, (double)(weft_now_ns() - begin) / WEFT_NS_PER_S);
    }
    weft_platform_release(platform);
  }
  unsetenv("WEFT_EMU_ORDER");
  unsetenv("WEFT_EMU_CHECKS");
  emu_reset();
  nothing_is_left();
}

TEST(loops_and_branches_in_graphs_have_the_evaluators_results) { check_all(true, 3); }

TEST(so_have_those_that_the_host_drives)
{
  setenv("WEFT_CUDA_GRAPH_LOOPS", "0", 1);
  check_all(false, 1);
  unsetenv("WEFT_CUDA_GRAPH_LOOPS");
}

/* ---- calls ----------------------------------------------------------------------------------------------------- */

static weft_buffer *new_x(weft_platform *platform, weft_executable *exe, int seed)
{
  int32_t x[VALUES];

  fill(x, seed);
  return test_buffer(weft_platform_device(platform, 0), weft_executable_param_type(exe, 0), x);
}

static weft_buffer *new_n(weft_platform *platform, weft_executable *exe, int32_t n)
{
  return test_buffer(weft_platform_device(platform, 0), weft_executable_param_type(exe, 1), &n);
}

static weft_buffer *launch(weft_executable *exe, weft_buffer *x, weft_buffer *n)
{
  weft_buffer *ins[] = {x, n}, *out;
  weft_buffer *const *all[] = {ins};
  weft_buffer **outs[] = {&out};

  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = all, .outputs = outs}));
  return out;
}

static void await(weft_buffer *out)
{
  T_OK(weft_event_await(weft_buffer_defined(out), weft_deadline_after_ms(120000)));
}

/* The number of calls does not depend on the number of rounds. */
TEST(a_loop_of_any_length_is_one_launch)
{
  static const int which[] = {BY_N, KNOWN, MIXED};
  weft_platform *platform = test_platform(1, 2);

  for (size_t i = 0; i < WEFT_COUNT(which); i++) {
    weft_executable *exe = compile(platform, programs[which[i]].text, 0, 0);
    weft_buffer *x = new_x(platform, exe, 1), *n = new_n(platform, exe, which[i] == BY_N ? 1000 : 12);
    for (int run = 0; run < 5; run++) {
      uint64_t all = emu_calls(NULL), polls = emu_calls("cuEventQuery"), launches = emu_calls("cuGraphLaunch");
      uint64_t kernels = emu_calls("cuLaunchKernel"), copies = emu_calls("cuMemcpyAsync");
      uint64_t contexts = emu_calls("cuCtxPushCurrent_v2") + emu_calls("cuCtxPopCurrent_v2");
      weft_buffer *out = launch(exe, x, n);
      await(out);
      weft_buffer_release(out);
      contexts = emu_calls("cuCtxPushCurrent_v2") + emu_calls("cuCtxPopCurrent_v2") - contexts;
      polls = emu_calls("cuEventQuery") - polls;
      all = emu_calls(NULL) - all - polls - contexts;
      print_message("# %s, run %d: %d calls beside %d polls\n", programs[which[i]].what, run, (int)all, (int)polls);
      if (run < 2) continue;
      T_EQ_INT(emu_calls("cuGraphLaunch") - launches, 1);
      T_EQ_INT(emu_calls("cuLaunchKernel") - kernels, 0);
      T_EQ_INT(emu_calls("cuMemcpyAsync") - copies, 0); /* no flag is read */
      T_TRUE(all < 12);
    }
    weft_buffer_release(x);
    weft_buffer_release(n);
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
  nothing_is_left();
}

/* Each run has new addresses: an instance is made for them, also while the instance that it takes the place of may
 * still run. After eight instances that no other run has used the host drives the loops. */
TEST(new_addresses_make_new_instances)
{
  enum { RUNS = 16, RECORDED = 8 };
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = compile(platform, programs[MIXED].text, 0, 0);
  weft_buffer *x[RUNS], *n[RUNS], *out[RUNS];
  int32_t got[VALUES], want[VALUES];

  for (int run = 0; run < RUNS; run++) {
    x[run] = new_x(platform, exe, run);
    n[run] = new_n(platform, exe, 4 + run % 3);
  }
  setenv("WEFT_EMU_DELAY_US", "2000", 1);
  emu_reset();
  uint64_t instances = emu_calls("cuGraphInstantiateWithFlags"), updates = emu_calls("cuGraphExecUpdate_v2");
  uint64_t captures = emu_calls("cuStreamBeginCaptureToGraph");
  for (int run = 0; run < RUNS; run++) out[run] = launch(exe, x[run], n[run]);
  for (int run = 0; run < RUNS; run++) await(out[run]);
  print_message("# %d instances, %d updates\n", (int)(emu_calls("cuGraphInstantiateWithFlags") - instances),
                (int)(emu_calls("cuGraphExecUpdate_v2") - updates));
  T_TRUE(emu_calls("cuGraphInstantiateWithFlags") - instances >= RECORDED);
  T_TRUE(emu_calls("cuStreamBeginCaptureToGraph") - captures >= RECORDED);
  unsetenv("WEFT_EMU_DELAY_US");
  emu_reset();
  /* an instance that is still there, and new addresses again */
  weft_buffer_release(WEFT_MOVE(out[RECORDED]));
  uint64_t launches = emu_calls("cuGraphLaunch"), again = emu_calls("cuStreamBeginCaptureToGraph");
  out[RECORDED] = launch(exe, x[RECORDED], n[RECORDED]);
  await(out[RECORDED]);
  T_EQ_INT(emu_calls("cuGraphLaunch") - launches, 1);
  T_EQ_INT(emu_calls("cuStreamBeginCaptureToGraph") - again, 0);
  for (int run = 0; run < RUNS; run++) {
    T_OK(weft_buffer_to_host(out[run], got, weft_deadline_after_ms(60000)));
    evaluate(programs[MIXED].text, run, 4 + run % 3, want);
    if (memcmp(got, want, sizeof got) != 0) fail_msg("other numbers in run %d", run);
    weft_buffer_release(x[run]);
    weft_buffer_release(n[run]);
    weft_buffer_release(out[run]);
  }
  weft_executable_release(exe);
  weft_platform_release(platform);
  nothing_is_left();
}

TEST(while_events_are_recorded_the_host_drives_loops)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = compile(platform, programs[MIXED].text, 0, 0);
  int32_t got[VALUES], want[VALUES];

  for (int run = 0; run < 3; run++) T_OK(try_run(exe, run, 4, got));
  uint64_t launches = emu_calls("cuGraphLaunch");
  rt_trace_capture(false);
  T_OK(try_run(exe, 1, 6, got));
  rt_trace_release();
  T_EQ_INT(emu_calls("cuGraphLaunch") - launches, 0);
  evaluate(programs[MIXED].text, 1, 6, want);
  assert_memory_equal(got, want, sizeof got);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* ---- what stays outside ---------------------------------------------------------------------------------------- */

TEST(options_say_whether_loops_and_branches_are_part_of_graphs)
{
  static const struct { int which; int64_t least; uint32_t kinds; bool inside; } rows[] = {
    {BY_N, 0, 0, true}, {BY_N, 1000, 0, true}, {BY_N, INT64_MAX, 0, false}, {BY_N, 0, 1u << WEFT_GRAPH_FUSION, false},
    {BY_N, 0, 1u << WEFT_GRAPH_FUSION | 1u << WEFT_GRAPH_CONDITIONAL, false},
    {BY_N, 0, 1u << WEFT_GRAPH_FUSION | 1u << WEFT_GRAPH_WHILE, true},
    {FOUR, 0, 1u << WEFT_GRAPH_FUSION | 1u << WEFT_GRAPH_WHILE, false},
    {FOUR, 0, 1u << WEFT_GRAPH_FUSION | 1u << WEFT_GRAPH_CONDITIONAL, true},
    {MIXED, 0, 1u << WEFT_GRAPH_FUSION | 1u << WEFT_GRAPH_WHILE, false}, {MIXED, 0, 1u << WEFT_GRAPH_WHILE, false},
  };
  weft_platform *platform = test_platform(1, 2);

  for (size_t i = 0; i < WEFT_COUNT(rows); i++) {
    weft_executable *exe = compile(platform, programs[rows[i].which].text, rows[i].least, rows[i].kinds);
    if (entry_has(exe, programs[rows[i].which].inside) == rows[i].inside) fail_msg("row %zu", i);
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
}

/* A round with a collective, and one with a step that the host does. */
TEST(loops_with_collectives_or_steps_on_the_host_are_driven_by_the_host)
{
  static const char *const texts[] = {
    HEAD BODY("body", MIX("u", "v", "i") "  s = " T " all-reduce(u), replica_groups={}, to_apply=add\n", "s") UP_TO_N
    ENTRY(LOOP("w", "x", "up_to_n", "body") LAST("y", "w", "n")),
    HEAD BODY("body", MIX("u", "v", "i")
              "  k = s32[3] iota(), iota_dimension=0\n"
              "  l = f32[3] convert(k)\n"
              "  b = s32[3,1] iota(), iota_dimension=0\n"
              "  c = f32[3,1] convert(b)\n"
              "  o = f32[3] constant({3,4,5})\n"
              "  g = f32[3,1] custom-call(l, o, l, c), custom_call_target=\"cusparse_gtsv2_ffi\", "
              "api_version=API_VERSION_TYPED_FFI\n"
              "  h = f32[1,1] slice(g), slice={[1:2], [0:1]}\n"
              "  f = f32[] reshape(h)\n"
              "  e = s32[] convert(f)\n"
              MIX("a", "u", "e"), "a") UP_TO_N
    ENTRY(LOOP("w", "x", "up_to_n", "body") LAST("y", "w", "n")),
  };
  weft_platform *platform = test_platform(1, 2);

  for (size_t i = 0; i < WEFT_COUNT(texts); i++) {
    weft_executable *exe = compile(platform, texts[i], 1, 0);
    int32_t got[VALUES];
    char *steps = test_steps_of(exe);
    if (i == 0 && !strstr(steps, "all-reduce")) fail_msg("no collective:\n%s", steps);
    free(steps);
    T_TRUE(entry_has(exe, "while"));
    for (int run = 0; run < 3; run++) T_OK(try_run(exe, run, 3, got));
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
}

/* ---- loops that do not end ------------------------------------------------------------------------------------- */

static uint64_t decisions(const char *kernel)
{
  ptx_stats stats;

  return emu_counters(kernel, &stats) ? stats.threads : 0;
}

enum { FOREVER = INT32_MAX };

/* In a process of its own, since what a device that hangs holds is never given back. A device counts as hung after a
 * second: not one whose loop takes longer, but one whose copy does not end; then an endless loop ends, too. */
static int with_a_deadline(void)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = compile(platform, programs[BY_N].text, 0, 0);
  weft_device *device = weft_platform_device(platform, 0);
  int32_t got[VALUES], want[VALUES], rounds = 50;
  void *data;

  for (int run = 0; run < 3; run++) T_OK(try_run(exe, run, 5, got));
  int64_t begin = weft_now_ns(), took = 0;
  while (took < 2200 * WEFT_NS_PER_MS) {
    rounds *= 2;
    begin = weft_now_ns();
    T_OK(try_run(exe, 3, rounds, got));
    took = weft_now_ns() - begin;
  }
  printf("# %d rounds took %.1f s\n", rounds, (double)took / WEFT_NS_PER_S);
  if (rounds <= 5000) {
    evaluate(programs[BY_N].text, 3, rounds, want);
    if (memcmp(got, want, sizeof got) != 0) return 1;
  }
  weft_buffer *x = new_x(platform, exe, 1), *forever = new_n(platform, exe, FOREVER);
  T_OK(rt_device_take(device, 0, 64, RT_COMPUTE, &data));
  weft_buffer *out = launch(exe, x, forever);
  usleep(1600000); /* longer than the deadline */
  weft_status *st = weft_event_await(weft_buffer_defined(out), weft_deadline_after_ms(10));
  if (weft_status_code(st) != WEFT_DEADLINE_EXCEEDED || strstr(weft_status_message(st), "hangs")) return 2;
  weft_status_free(st);
  set_faults("cuMemcpyAsync:1=stall:4s");
  st = weft_device_write(device, NULL, data, got, 64);
  printf("# %s\n", weft_status_text(st, true));
  if (weft_status_code(st) != WEFT_DEADLINE_EXCEEDED) return 3;
  weft_status_free(st);
  st = weft_event_await(weft_buffer_defined(out), weft_deadline_after_ms(5000));
  if (weft_status_code(st) != WEFT_DEADLINE_EXCEEDED || !strstr(weft_status_text(st, true), "hangs")) return 4;
  weft_status_free(st);
  uint64_t before = decisions("by_flag");
  for (int i = 0; i < 100; i++, before = decisions("by_flag")) {
    usleep(100000);
    if (decisions("by_flag") == before) break;
    if (i == 99) return 5; /* the loop still runs */
  }
  weft_buffer_release(x);
  weft_buffer_release(forever);
  weft_buffer_release(out);
  weft_executable_release(exe);
  weft_platform_release(platform);
  usleep(4500000); /* the device goes on */
  platform = test_platform(1, 2);
  exe = compile(platform, programs[BY_N].text, 0, 0);
  for (int run = 0; run < 3; run++) T_OK(try_run(exe, 7, 9, got));
  evaluate(programs[BY_N].text, 7, 9, want);
  if (memcmp(got, want, sizeof got) != 0) return 6;
  weft_executable_release(exe);
  weft_platform_release(platform);
  return 0;
}

/* ---- drivers --------------------------------------------------------------------------------------------------- */

/* A new process of this program with this argument: "deadline", or the version of the driver. */
static void in_a_process(const char *word)
{
  int status;

  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    if (strcmp(word, "deadline") == 0) setenv("WEFT_CUDA_TIMEOUT", "1s", 1);
    setenv("WEFT_EMU_LEAKS", "off", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* what a device that hangs may still use is not freed */
    execl("/proc/self/exe", "graph_loops_test", word, (char *)NULL);
    _exit(98);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  if (status) fail_msg("%s: status %#x", word, status);
}

TEST(a_long_loop_is_no_device_that_hangs_and_an_endless_one_ends_with_one_that_does) { in_a_process("deadline"); }

TEST(nodes_with_one_body_do) { in_a_process("12030"); }
TEST(drivers_without_conditional_nodes_leave_loops_to_the_host) { in_a_process("12020"); }

/* ---- what fails ------------------------------------------------------------------------------------------------ */

/* The n-th call of `symbol` fails, from the making of the client on. Results are right, or there is an error that names
 * the call. False: there were fewer calls. */
static bool one_fault(const char *name, const char *symbol, int n, int32_t want[3][VALUES], bool may_fail)
{
  weft_platform *platform;
  weft_executable *exe = NULL;
  hlo_module *module;
  int32_t got[VALUES];
  char fault[96];
  int failed = 0;

  snprintf(fault, sizeof fault, "%s:%d=2", symbol, n);
  set_faults(fault);
  weft_status *st = plat_new(&(weft_platform_options){.device_count = 1, .threads = 2}, &platform);
  if (!st) {
    T_OK(hlo_parse(programs[MIXED].text, strlen(programs[MIXED].text), &module));
    st = weft_compile(platform, module, &(weft_compile_options){0}, &exe);
  }
  for (int run = 0; run < 4 && !st; run++) {
    weft_status *one = try_run(exe, run % 3, 4 + run % 3, got);
    if (!one && memcmp(got, want[run % 3], sizeof got) != 0) fail_msg("%s: other numbers in run %d", fault, run);
    if (one && !strstr(weft_status_text(one, true), name)) fail_msg("%s: %s", fault, weft_status_text(one, true));
    failed += one != NULL;
    weft_status_free(one);
  }
  if (st && !strstr(weft_status_text(st, true), name)) fail_msg("%s: %s", fault, weft_status_text(st, true));
  if ((failed || st) && !may_fail) fail_msg("%s: a run failed, where the host can drive loops", fault);
  weft_status_free(st);
  bool came = emu_faults_left() == 0;
  set_faults("");
  weft_executable_release(exe);
  weft_platform_release(platform);
  nothing_is_left();
  return came;
}

TEST(any_call_may_fail_at_any_time)
{
  static const struct { const char *name, *symbol; bool may_fail; int least; } calls[] = {
    {"cuGraphCreate", "cuGraphCreate", false, 3}, {"cuGraphAddNode", "cuGraphAddNode_v2", false, 8},
    {"cuGraphConditionalHandleCreate", "cuGraphConditionalHandleCreate", false, 8},
    {"cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph", false, 6},
    {"cuStreamGetCaptureInfo", "cuStreamGetCaptureInfo_v3", false, 6}, {"cuStreamEndCapture", "cuStreamEndCapture", false, 6},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", false, 3},
    {"cuGraphDestroy", "cuGraphDestroy", false, 3}, {"cuGraphExecDestroy", "cuGraphExecDestroy", false, 1},
    {"cuGraphLaunch", "cuGraphLaunch", true, 3}, {"cuModuleGetFunction", "cuModuleGetFunction", true, 3},
    {"cuModuleLoadDataEx", "cuModuleLoadDataEx", true, 1}, {"cuMemsetD8Async", "cuMemsetD8Async", true, 1},
    {"cuMemHostAlloc", "cuMemHostAlloc", true, 1}, {"cuMemAlloc", "cuMemAlloc_v2", true, 1},
    {"cuLaunchKernel", "cuLaunchKernel", true, 20}, {"cuStreamCreateWithPriority", "cuStreamCreateWithPriority", true, 3},
  };
  int32_t want[3][VALUES];

  for (int i = 0; i < 3; i++) evaluate(programs[MIXED].text, i, 4 + i, want[i]);
  for (size_t i = 0; i < WEFT_COUNT(calls); i++) {
    int n = 1;
    while (one_fault(calls[i].name, calls[i].symbol, n, want, calls[i].may_fail)) n += 1 + n / 4;
    print_message("# %s: up to call %d\n", calls[i].name, n - 1);
    if (n - 1 < calls[i].least) fail_msg("%s: only %d calls", calls[i].name, n - 1);
  }
}

int main(int argc, char **argv)
{
  open_driver();
  emu_calls(NULL); /* calls are counted from here on */
  if (argc > 1 && strcmp(argv[1], "deadline") == 0) return with_a_deadline();
  if (argc > 1) {
    setenv("WEFT_EMU_VERSION", argv[1], 1); /* not earlier: this program's own table has all entry points */
    check_all(atoi(argv[1]) >= 12030, 1);
    return 0;
  }
  const struct CMUnitTest units[] = {
    UNIT(loops_and_branches_in_graphs_have_the_evaluators_results), UNIT(so_have_those_that_the_host_drives),
    UNIT(a_loop_of_any_length_is_one_launch), UNIT(new_addresses_make_new_instances),
    UNIT(while_events_are_recorded_the_host_drives_loops), UNIT(options_say_whether_loops_and_branches_are_part_of_graphs),
    UNIT(loops_with_collectives_or_steps_on_the_host_are_driven_by_the_host),
    UNIT(a_long_loop_is_no_device_that_hangs_and_an_endless_one_ends_with_one_that_does), UNIT(nodes_with_one_body_do),
    UNIT(drivers_without_conditional_nodes_leave_loops_to_the_host), UNIT(any_call_may_fail_at_any_time)};
  return cmocka_run_group_tests(units, NULL, NULL);
}
