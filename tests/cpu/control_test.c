/* Random programs of control flow (random_control.h): after the pipeline they mean the same and have a plan in every order that
 * the checker proves; compiled and run, in every order, on one thread and on three, they give the evaluator's bits.
 * WEFT_SEED=n runs one seed and prints its program; WEFT_COUNT=n runs that many, from WEFT_FIRST on. */
#include "random_control.h"

#include "cpu/run.h"
#include "passes/passes.h"
#include "read_file.h"
#include "runtime/ffi.h"

static const hlo_eval_options eval = {.deadline = WEFT_NO_DEADLINE, .custom_call = eval_control_mix};

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

/* A test of one seed; it says itself what is wrong, and takes `module`. */
typedef bool seed_test(hlo_module *module, weft_arena *arena, const hlo_literal *const *arguments, int count, const char *what);

static bool says(weft_status *st, const char *what)
{
  if (!st) return true;
  print_message("# %s: %s\n", what, weft_status_message(st));
  weft_status_free(st);
  return false;
}

static bool plans(hlo_module *module, weft_arena *arena, const hlo_literal *const *arguments, int count, const char *what)
{
  const hlo_literal *before, *after;
  pass_options options = {.fold_limit_bytes = 1 << 12, .num_threads = 2};
  bool good;

  (void)count;
  T_OK(hlo_eval_module(module, arguments, &eval, arena, &before));
  good = says(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL), what);
  if (good) {
    T_OK(hlo_eval_module(module, arguments, &eval, arena, &after));
    good = literals_within(after, before, what, 0);
  }
  for (buf_order order = BUF_TOPOLOGICAL; order <= BUF_BUDGET && good; order++) {
    WEFT_AUTO(buf_plan) plan = NULL;
    good = says(buf_plan_new(module, &(buf_options){.order = order}, &plan), what) && says(buf_plan_check(plan), what);
  }
  hlo_module_free(module);
  return good;
}

static weft_platform *platforms[2];

static bool run_once(weft_platform *platform, buf_order order, hlo_module *module, weft_arena *arena,
                     const hlo_literal *const *arguments, const hlo_literal *want, int count, const char *what)
{
  WEFT_AUTO(weft_executable) exe = NULL;
  const void *inputs[MOST_VALUES];
  void *outputs[MOST_VALUES];
  hlo_literal *got, *each;

  T_OK(hlo_literal_new(arena, want->shape, &got));
  for (int i = 0; i < count; i++) {
    T_OK(hlo_literal_new(arena, want->shape->elements[i], &each));
    got->elements[i] = each;
    inputs[i] = arguments[i]->data;
    outputs[i] = each->data;
  }
  return says(weft_compile(platform, module, &(weft_compile_options){.order = order}, &exe), what) &&
         says(test_run(exe, inputs, outputs), what) && literals_within(got, want, what, 0);
}

static bool runs(hlo_module *module, weft_arena *arena, const hlo_literal *const *arguments, int count, const char *what)
{
  const hlo_literal *want;
  bool good = true;

  T_OK(hlo_eval_module(module, arguments, &eval, arena, &want));
  for (int way = 0; way < 6 && good; way++) {
    hlo_module *clone;
    T_OK(hlo_module_clone(module, &clone));
    good = run_once(platforms[way & 1], (buf_order)(way / 2), clone, arena, arguments, want, count, what);
  }
  hlo_module_free(module);
  return good;
}

/* Programs that were once refused. */
TEST(programs_of_the_folder_have_plans)
{
  static const char *const names[] = {"barriers_hide_invariants", "nested_branches_hand_on", "one_result_for_two_operands"};

  for (size_t i = 0; i < WEFT_COUNT(names); i++) {
    const hlo_literal *arguments[MOST_VALUES];
    uint64_t random = i;
    hlo_module *module;
    weft_arena arena;
    char path[4096];
    size_t size;

    weft_arena_init(&arena);
    snprintf(path, sizeof path, "%s/tests/cpu/control/%s.hlo", getenv("WEFT_SRCDIR"), names[i]);
    char *text = read_file(path, &size);
    T_OK(hlo_parse(text, size, &module));
    T_OK(hlo_verify(module));
    for (int k = 0; k < module->entry->param_count; k++)
      arguments[k] = random_literal(&arena, module->entry->params[k]->shape, &random);
    T_TRUE(plans(module, &arena, arguments, module->entry->param_count, names[i]));
    weft_arena_fini(&arena);
    free(text);
  }
}

static void check_seeds(seed_test *test, uint64_t default_count)
{
  const char *seed = getenv("WEFT_SEED"), *count = getenv("WEFT_COUNT"), *first = getenv("WEFT_FIRST");
  uint64_t from = strtoull(seed ? seed : first ? first : "1", NULL, 10);
  uint64_t programs = seed ? 1 : count ? strtoull(count, NULL, 10) : default_count;
  int failures = 0;

  for (uint64_t i = from; i < from + programs; i++) {
    const hlo_literal *arguments[MOST_VALUES];
    weft_arena arena;
    char what[64];
    int values;

    weft_arena_init(&arena);
    hlo_module *module = random_control(i, &arena, arguments, &values);
    if (seed) T_OK(hlo_print(module, HLO_PRINT_DEFAULT, stderr));
    snprintf(what, sizeof what, "seed %" PRIu64, i);
    failures += !test(module, &arena, arguments, values, what);
    weft_arena_fini(&arena);
  }
  T_EQ_INT(failures, 0);
}

TEST(programs_of_control_flow_mean_the_same_and_have_plans) { check_seeds(plans, 1500); }

TEST(programs_of_control_flow_give_the_same_bits_however_they_run)
{
  static const XLA_FFI_Handler_Bundle bundle = {.execute = mix};

  T_OK(rt_ffi_register(CONTROL_TARGET, strlen(CONTROL_TARGET), &bundle));
  platforms[0] = test_platform(1, 1);
  platforms[1] = test_platform(1, 3);
  check_seeds(runs, 40);
  for (int i = 0; i < 2; i++) weft_platform_release(platforms[i]);
}

TEST_MAIN(UNIT(programs_of_the_folder_have_plans), UNIT(programs_of_control_flow_mean_the_same_and_have_plans),
          UNIT(programs_of_control_flow_give_the_same_bits_however_they_run))
