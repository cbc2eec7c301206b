/* tests/cpu/control_test.c -- Random programs of control flow and collectives (random_control.h): after the pipeline
 * they mean the same and have a plan in every order that the checker proves; compiled and run, in every order and with
 * several numbers of threads, they give the evaluator's bits.
 *
 * WEFT_SEED=n runs one seed and prints its program; WEFT_COUNT=n runs that many, from WEFT_FIRST on.  A seed runs once
 * in each order, each time with another number of threads, or with WEFT_WAYS=all in each order with each. */
#include "random_control.h"

#include "cpu/run.h"
#include "passes/passes.h"
#include "read_file.h"
#include "runtime/ffi.h"

static XLA_FFI_Error *mix(XLA_FFI_CallFrame *frame)
{
  const uint32_t *in[MOST_VALUES];
  uint32_t *out[MOST_VALUES];
  int operands = (int)frame->args.size, results = (int)frame->rets.size;

  for (int i = 0; i < operands; i++) in[i] = ((const XLA_FFI_Buffer *)frame->args.args[i])->data;
  for (int i = 0; i < results; i++) out[i] = ((const XLA_FFI_Buffer *)frame->rets.rets[i])->data;
  control_mix(operands, in, results, out, ((const XLA_FFI_Buffer *)frame->args.args[0])->dims[0]);
  return NULL;
}

static hlo_eval_options eval_options(const control_program *p)
{
  return (hlo_eval_options){.deadline = WEFT_NO_DEADLINE,
                            .custom_call = eval_control_mix,
                            .replicas = p->replicas,
                            .partitions = p->partitions};
}

/* A test of one program; it prints what is wrong. */
typedef bool seed_test(const control_program *p, weft_arena *arena, uint64_t seed, const char *what);

static bool says(weft_status *st, const char *what)
{
  if (!st) return true;
  print_message("# %s: %s\n", what, weft_status_text(st, true));
  weft_status_free(st);
  return false;
}

/* The results of every device are the same. */
static bool all_within(const control_program *p, const hlo_literal *const *got, const hlo_literal *const *want,
                       const char *what)
{
  for (int d = 0; d < p->replicas * p->partitions; d++)
    if (!literals_within(got[d], want[d], what, 0)) {
      print_message("# on device %d of %d replicas, %d partitions\n", d, p->replicas, p->partitions);
      return false;
    }
  return true;
}

static bool plans(const control_program *p, weft_arena *arena, uint64_t seed, const char *what)
{
  const hlo_literal *before[MOST_DEVICES], *after[MOST_DEVICES];
  pass_options options = {.fold_limit_bytes = 1 << 12, .num_threads = 2};
  hlo_eval_options eval = eval_options(p);
  bool good;

  (void)seed;
  T_OK(hlo_eval_module(p->module, p->arguments, &eval, arena, before));
  good = says(pass_run(&pass_cpu_pipeline, p->module, &options, NULL, NULL), what);
  if (good) {
    T_OK(hlo_eval_module(p->module, p->arguments, &eval, arena, after));
    good = all_within(p, after, before, what);
  }
  for (buf_order order = BUF_TOPOLOGICAL; order <= BUF_BUDGET && good; order++) {
    WEFT_AUTO(buf_plan) plan = NULL;
    good = says(buf_plan_new(p->module, &(buf_options){.order = order}, &plan), what) &&
           says(buf_plan_check(plan), what);
  }
  return good;
}

/* ---- compiled ---------------------------------------------------------------------------------------------------- */

static const int thread_counts[] = {1, 2, 3, 7};
enum { THREADS = WEFT_COUNT(thread_counts), ORDERS = 5, BUDGETS = 12 };
static weft_platform *platforms[THREADS];

/* The memory order with this number. Three have a budget: one of 0, which asks for the smallest plan; one of five
 * values, which forces some choices; and one of as many values as the seed says. */
static weft_compile_options compile_options(const control_program *p, int order, uint64_t seed)
{
  int64_t value = hlo_shape_bytes(p->module->entry->params[0]->shape);
  const int64_t values[ORDERS] = {0, 0, 0, 5, 1 + (int64_t)(seed % BUDGETS)};

  return (weft_compile_options){.replica_count = p->replicas,
                                .partition_count = p->partitions,
                                .order = order > BUF_BUDGET ? BUF_BUDGET : (buf_order)order,
                                .budget_bytes = values[order] * value,
                                .collective_timeout_ns = 60 * WEFT_NS_PER_S};
}

static weft_status *fetch(const control_program *p, weft_buffer *(*from)[MOST_VALUES], weft_arena *arena,
                          const hlo_literal **got)
{
  weft_status *first = NULL;

  for (int d = 0; d < p->replicas * p->partitions; d++) {
    hlo_literal *tuple, *each;
    T_OK(hlo_literal_new(arena, p->module->entry->root->shape, &tuple));
    for (int i = 0; i < p->count; i++) {
      T_OK(hlo_literal_new(arena, tuple->shape->elements[i], &each));
      tuple->elements[i] = each;
      weft_status *st = weft_buffer_to_host(from[d][i], each->data, weft_deadline_after_ms(120000));
      if (!first) first = st;
      else weft_status_free(st);
      weft_buffer_release(from[d][i]);
    }
    got[d] = tuple;
  }
  return first;
}

static weft_status *run_on_devices(const control_program *p, weft_executable *exe, weft_arena *arena,
                                   const hlo_literal **got)
{
  int devices = p->replicas * p->partitions;
  weft_buffer *in[MOST_DEVICES][MOST_VALUES], *out[MOST_DEVICES][MOST_VALUES];
  weft_buffer *const *ins[MOST_DEVICES];
  weft_buffer **outs[MOST_DEVICES];

  for (int d = 0; d < devices; d++) {
    for (int i = 0; i < p->count; i++)
      in[d][i] = test_buffer(weft_executable_device(exe, d), weft_executable_param_type(exe, i),
                             p->arguments[d * p->count + i]->data);
    ins[d] = in[d];
    outs[d] = out[d];
  }
  weft_status *st = weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs});
  for (int d = 0; d < devices; d++)
    for (int i = 0; i < p->count; i++) weft_buffer_release(in[d][i]);
  return st ? st : fetch(p, out, arena, got);
}

static bool run_once(const control_program *p, int order, int threads, uint64_t seed, weft_arena *arena,
                     const hlo_literal *const *want, const char *what)
{
  WEFT_AUTO(weft_executable) exe = NULL;
  weft_compile_options options = compile_options(p, order, seed);
  const hlo_literal *got[MOST_DEVICES];
  hlo_module *clone;

  T_OK(hlo_module_clone(p->module, &clone));
  if (says(weft_compile(platforms[threads], clone, &options, &exe), what) &&
      says(run_on_devices(p, exe, arena, got), what) && all_within(p, got, want, what))
    return true;
  print_message("# %s: order %d, %d threads\n", what, order, thread_counts[threads]);
  return false;
}

static bool runs(const control_program *p, weft_arena *arena, uint64_t seed, const char *what)
{
  const hlo_literal *want[MOST_DEVICES];
  hlo_eval_options eval = eval_options(p);
  const char *ways = getenv("WEFT_WAYS");
  bool in_all = ways && strcmp(ways, "all") == 0;

  T_OK(hlo_eval_module(p->module, p->arguments, &eval, arena, want));
  for (int order = 0; order < ORDERS; order++)
    for (int threads = 0; threads < THREADS; threads++)
      if ((in_all || (uint64_t)threads == (seed + (uint64_t)order) % THREADS) &&
          !run_once(p, order, threads, seed, arena, want, what))
        return false;
  return true;
}

/* Valid programs that a planner refuses if it takes values for one buffer that must be several. */
TEST(programs_of_the_folder_have_plans)
{
  static const char *const names[] = {"barriers_hide_invariants", "nested_branches_hand_on", "one_operand_three_times",
                                      "one_result_for_two_operands"};

  for (size_t i = 0; i < WEFT_COUNT(names); i++) {
    control_program p = {.replicas = 1, .partitions = 1};
    uint64_t random = i;
    weft_arena arena;
    char path[4096];
    size_t size;

    weft_arena_init(&arena);
    snprintf(path, sizeof path, "%s/tests/cpu/control/%s.hlo", getenv("WEFT_SRCDIR"), names[i]);
    char *text = read_file(path, &size);
    T_OK(hlo_parse(text, size, &p.module));
    T_OK(hlo_verify(p.module));
    p.count = p.module->entry->param_count;
    for (int k = 0; k < p.count; k++)
      p.arguments[k] = random_literal(&arena, p.module->entry->params[k]->shape, &random);
    T_TRUE(plans(&p, &arena, 0, names[i]));
    hlo_module_free(p.module);
    weft_arena_fini(&arena);
    free(text);
  }
}

/* A custom call with side effects takes a kernel's result and declares it aliased to its own result. Nothing else reads
 * the kernel's result, and the call may take it twice. */
TEST(a_custom_call_writes_over_what_a_kernel_made)
{
  static const char *const calls[] = {
    "custom-call(r), output_to_operand_aliasing={{}: (0, {})}",
    "custom-call(r, r), output_to_operand_aliasing={{}: (0, {}), {}: (1, {})}",
    "custom-call(r, p, r), output_to_operand_aliasing={{}: (2, {}), {}: (0, {})}",
  };

  for (size_t i = 0; i < WEFT_COUNT(calls); i++)
    for (int order = 0; order < ORDERS; order++) {
      WEFT_AUTO(weft_executable) exe = NULL;
      control_program p = {.replicas = 1, .partitions = 1};
      char text[512];
      snprintf(text, sizeof text,
               "ENTRY e {\n"
               "  p = f32[40] parameter(0)\n"
               "  r = f32[40] rsqrt(p)\n"
               "  ROOT c = f32[40] %s, custom_call_target=\"" CONTROL_TARGET "\", custom_call_has_side_effect=true, "
               "api_version=API_VERSION_TYPED_FFI\n"
               "}\n",
               calls[i]);
      T_OK(hlo_parse(text, strlen(text), &p.module));
      T_OK(hlo_verify(p.module));
      weft_compile_options options = compile_options(&p, order, 0);
      T_OK(weft_compile(platforms[0], p.module, &options, &exe));
    }
}

static void check_seeds(seed_test *test, bool is_distributed, uint64_t default_count)
{
  const char *seed = getenv("WEFT_SEED"), *count = getenv("WEFT_COUNT"), *first = getenv("WEFT_FIRST");
  uint64_t from = strtoull(seed ? seed : first ? first : "1", NULL, 10);
  uint64_t programs = seed ? 1 : count ? strtoull(count, NULL, 10) : default_count;
  int failures = 0;

  for (uint64_t i = from; i < from + programs; i++) {
    weft_arena arena;
    char what[64];

    weft_arena_init(&arena);
    control_program p = random_control(i, is_distributed, &arena);
    if (seed) T_OK(hlo_print(p.module, HLO_PRINT_DEFAULT, stderr));
    snprintf(what, sizeof what, "seed %" PRIu64, i);
    failures += !test(&p, &arena, i, what);
    if (i % 1000 == 0) print_message("# up to seed %" PRIu64 ": %d failures\n", i, failures);
    hlo_module_free(p.module);
    weft_arena_fini(&arena);
  }
  T_EQ_INT(failures, 0);
}

static int make_platforms(void **state)
{
  static const XLA_FFI_Handler_Bundle bundle = {.execute = mix};

  (void)state;
  T_OK(rt_ffi_register(CONTROL_TARGET, strlen(CONTROL_TARGET), &bundle));
  for (size_t i = 0; i < THREADS; i++) platforms[i] = test_platform(MOST_DEVICES, thread_counts[i]);
  return 0;
}

static int release_platforms(void **state)
{
  (void)state;
  for (size_t i = 0; i < THREADS; i++) weft_platform_release(platforms[i]);
  return 0;
}

TEST(programs_of_control_flow_mean_the_same_and_have_plans) { check_seeds(plans, false, 1000); }
TEST(programs_of_collectives_mean_the_same_and_have_plans) { check_seeds(plans, true, 300); }
TEST(programs_of_control_flow_give_the_same_bits_however_they_run) { check_seeds(runs, false, 25); }
TEST(programs_of_collectives_give_the_same_bits_however_they_run) { check_seeds(runs, true, 25); }

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(programs_of_the_folder_have_plans), UNIT(a_custom_call_writes_over_what_a_kernel_made),
    UNIT(programs_of_control_flow_mean_the_same_and_have_plans),
    UNIT(programs_of_collectives_mean_the_same_and_have_plans),
    UNIT(programs_of_control_flow_give_the_same_bits_however_they_run),
    UNIT(programs_of_collectives_give_the_same_bits_however_they_run),
  };
  const char *only = getenv("WEFT_ONLY"); /* names of tests, with * */

  if (only) cmocka_set_test_filter(only);
  return cmocka_run_group_tests(units, make_platforms, release_platforms);
}
