/* tests/stablehlo/conformance_test.c -- The programs of openxla/stablehlo that check themselves, and those in
 * tests/stablehlo/programs, run by the reference evaluator; compiled with CONFORMANCE_CPU, run by the CPU's compiler,
 * with the constants of the program as arguments, lest everything is worked out at compile time; with
 * CONFORMANCE_RAISED, printed from HLO as StableHLO, read again, and then run by the evaluator. One test per group
 * prints its counts; a failure that no line of `reasons` explains fails the test, and so does a reason that explains
 * nothing any more.  CONFORMANCE=substring runs the matching files alone and prints each failure. */
#include "test.h"

#include <dirent.h>
#include <errno.h>

#include "platform/parallel.h"
#include "platform/registry.h"
#include "hlo/check.h"
#include "hlo/eval.h"
#include "hlo/infer.h"
#include "passes/pass.h"
#include "passes/passes.h"
#include "read_file.h"
#include "stablehlo/stablehlo.h"

/* Why a program cannot pass: group, file, module of a split file (-1: any), and the reason. */
typedef struct reason { const char *group, *file; int module; const char *why; bool met; } reason;
static reason reasons[] = {
#include "stablehlo/conformance_reasons.h"
};

/* By the evaluator; the programs of interpreter.run_parallel on devices of this process. */
static weft_status *evaluate(hlo_module *module, int *checks)
{
  hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE, .max_loop_iterations = 1 << 20, .custom_call = plat_interpreter_call,
                              .ctx = checks, .stepwise_sums = true};
  weft_arena arena;
  const hlo_literal *result;

  if (getenv("CONFORMANCE_PASSES")) { /* tests/passes/stablehlo.sh: the pipeline keeps what they mean */
    pass_options passes = {.disabled = getenv("CONFORMANCE_DISABLED"), .num_threads = 2, .fold_limit_bytes = 1 << 10};
    WEFT_TRY(pass_run(&pass_cpu_pipeline, module, &passes, NULL, NULL));
    WEFT_TRY(hlo_verify(module));
  }
  weft_arena_init(&arena);
  weft_status *st = hlo_eval_module(module, NULL, &options, &arena, &result);
  weft_arena_fini(&arena);
  return st;
}

#ifdef CONFORMANCE_CPU

static bool is_driver(const hlo_module *module)
{
  HLO_FOREACH(in, module->entry)
    if (plat_is_run_parallel(in)) return true;
  return false;
}

/* The entry's constants become its parameters; copies of their values, in `arena`, to *out. */
static weft_status *constants_to_parameters(hlo_module *module, weft_arena *arena, void ***out)
{
  static const struct pass_entry inliner[] = {{&pass_call_inliner, NULL}};
  static const pass_pipeline pipeline = {"inline", inliner, 1, 1};
  hlo_computation *entry;
  int count = 0;

  WEFT_TRY(pass_run(&pipeline, module, &(pass_options){0}, NULL, NULL));
  entry = module->entry;
  *out = WEFT_ARENA_ARRAY(arena, void *, entry->instr_count);
  WEFT_TRY_ALLOC(*out);
  HLO_FOREACH(in, entry) {
    hlo_instr *parameter;
    if (in->op != HLO_CONSTANT || in == entry->root || !hlo_shape_is_array(in->shape)) continue;
    size_t bytes = (size_t)hlo_shape_bytes(in->shape);
    WEFT_TRY_ALLOC((*out)[count] = weft_arena_alloc(arena, bytes + 1));
    memcpy((*out)[count], in->u.literal->data, bytes);
    WEFT_TRY(hlo_add_parameter(entry, count++, in->shape, NULL, &parameter));
    hlo_move_before(parameter, entry->first);
    WEFT_TRY(hlo_replace_uses(in, parameter));
    WEFT_TRY(hlo_remove(in));
  }
  module->has_entry_layout = false;
  return hlo_verify(module);
}

static weft_status *await_outputs(int count, weft_buffer **outputs)
{
  weft_status *st = NULL;

  for (int i = 0; i < count; i++) {
    weft_status *one = weft_event_await(weft_buffer_defined(outputs[i]), weft_deadline_after_ms(60000));
    if (!st) st = one;
    else weft_status_free(one);
    weft_buffer_release(outputs[i]);
  }
  return st;
}

static weft_status *run_compiled(hlo_module *borrowed, weft_arena *arena, int *checks)
{
  static weft_platform *platform;
  enum { MOST = 256 };
  weft_buffer *in[MOST], *out[MOST];
  weft_buffer *const *ins[] = {in};
  weft_buffer **outs[] = {out};
  void **values;
  hlo_module *module;
  weft_executable *exe;
  weft_status *st;

  if (!platform) WEFT_TRY(plat_new(&(weft_platform_options){.device_count = 1}, &platform));
  WEFT_TRY(hlo_module_clone(borrowed, &module));
  for (const hlo_instr *i = module->entry->first; i; i = i->next) *checks += hlo_is_check(i);
  st = constants_to_parameters(module, arena, &values);
  if (st) {
    hlo_module_free(module);
    return st;
  }
  WEFT_TRY(weft_compile(platform, module, &(weft_compile_options){0}, &exe));
  int inputs = weft_executable_param_count(exe), outputs = weft_executable_output_count(exe);
  T_TRUE(inputs <= MOST && outputs <= MOST);
  for (int i = 0; i < inputs; i++)
    T_OK(weft_buffer_from_host(weft_executable_device(exe, 0), weft_executable_param_type(exe, i), values[i], &in[i]));
  st = weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs});
  for (int i = 0; i < inputs; i++) weft_buffer_release(in[i]);
  if (!st) st = await_outputs(outputs, out);
  weft_executable_release(exe);
  return st;
}

static weft_status *run(hlo_module *module, int *checks)
{
  weft_arena arena; /* of the inputs: compiling takes the module */

  if (is_driver(module)) return evaluate(module, checks);
  weft_arena_init(&arena);
  weft_status *st = run_compiled(module, &arena, checks);
  weft_arena_fini(&arena);
  return st;
}

#else

static weft_status *run(hlo_module *module, int *checks) { return evaluate(module, checks); }

#endif

#ifdef CONFORMANCE_RAISED

/* The module printed as StableHLO and read again takes its place. */
static weft_status *raise_and_lower(hlo_module **module)
{
  WEFT_AUTO_STR text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  hlo_module *back;

  T_TRUE(f != NULL);
  weft_status *st = shlo_print_hlo(*module, f);
  fclose(f);
  if (!st) st = shlo_parse(text, size, NULL, &back);
  if (st) {
    if (getenv("CONFORMANCE")) print_message("%s\n", text);
    return st;
  }
  hlo_module_free(*module);
  *module = back;
  return hlo_verify(back);
}

#endif

/* Lowers module `index` of a program, and function `function` of it if there is no main. */
static weft_status *run_function(shlo_program *program, int index, const char *function, int *checks)
{
  WEFT_AUTO(hlo_module) module = NULL;

  WEFT_TRY(shlo_lower(program, &(shlo_options){.module = index, .function = function}, &module));
  WEFT_TRY(hlo_verify(module));
#ifdef CONFORMANCE_RAISED
  WEFT_TRY_NOTE(raise_and_lower(&module), "printed as StableHLO");
#endif
  if (module->entry->param_count > 0) return NULL; /* takes arguments: reading it is what can be tested */
  return run(module, checks);
}

static weft_status *run_module(shlo_program *program, int index, int *checks)
{
  int count = shlo_function_count(program, index);

  for (int i = 0; i < count; i++)
    if (strcmp(shlo_function_name(program, index, i), "main") == 0) return run_function(program, index, "main", checks);
  for (int i = 0; i < count; i++)
    if (shlo_function_is_public(program, index, i))
      WEFT_TRY(run_function(program, index, shlo_function_name(program, index, i), checks));
  return NULL;
}

static bool explained(const char *group, const char *file, int module)
{
  for (size_t i = 0; i < WEFT_COUNT(reasons); i++)
    if (strcmp(reasons[i].group, group) == 0 && strcmp(reasons[i].file, file) == 0 &&
        (reasons[i].module < 0 || reasons[i].module == module)) {
      reasons[i].met = true;
      return true;
    }
  return false;
}

typedef struct counts { int passed, explained, failed, checks; } counts;

static void tell(const char *group, const char *file, int module, weft_status *st, counts *c)
{
  if (!st) {
    c->passed++;
  } else if (explained(group, file, module)) {
    c->explained++;
  } else {
    if (c->failed++ < 20 || getenv("CONFORMANCE"))
      print_message("# %s/%s:%d: %.700s\n", group, file, module, weft_status_text(st, false));
  }
  weft_status_free(st);
}

static void run_file(const char *group, const char *path, const char *file, counts *c)
{
  WEFT_AUTO(shlo_program) program = NULL;
  WEFT_AUTO_STR text = NULL;
  size_t size = 0;

  text = read_file(path, &size);
  if (!text) fail_msg("cannot read %s: %s", path, strerror(errno));
  weft_status *st = shlo_read(text, size, &program);
  if (st) {
    tell(group, file, 0, st, c);
    return;
  }
  for (int i = 0; i < shlo_module_count(program); i++) tell(group, file, i, run_module(program, i, &c->checks), c);
}

static void run_folder(const char *group, const char *place)
{
  const char *root = getenv("WEFT_SRCDIR"), *only = getenv("CONFORMANCE");
  struct dirent **files;
  char folder[512], path[1024];
  counts c = {0};

  snprintf(folder, sizeof folder, "%s/%s/%s", root ? root : ".", place, group);
  int n = scandir(folder, &files, NULL, alphasort);
  if (n < 0) T_SKIP("no %s", folder);
  for (int i = 0; i < n; i++) {
    size_t length = strlen(files[i]->d_name);
    snprintf(path, sizeof path, "%s/%s", folder, files[i]->d_name);
    if (length > 5 && strcmp(files[i]->d_name + length - 5, ".mlir") == 0 && (!only || strstr(path, only)))
      run_file(group, path, files[i]->d_name, &c);
    free(files[i]);
  }
  free(files);
  print_message("# %s: %d passed, %d with a reason, %d failed; %d checks\n", group, c.passed, c.explained, c.failed,
                c.checks);
  if (c.failed) fail_msg("%d programs of %s fail", c.failed, group);
  for (size_t i = 0; !only && i < WEFT_COUNT(reasons); i++)
    if (strcmp(reasons[i].group, group) == 0 && !reasons[i].met)
      fail_msg("%s/%s passes now: its reason \"%s\" can go", group, reasons[i].file, reasons[i].why);
}

static void run_group(const char *group) { run_folder(group, "../shared/testdata/stablehlo"); }

TEST(programs_made_by_jax) { run_group("testdata"); }
TEST(operations_one_by_one) { run_group("interpret"); }
TEST(chlo_operations) { run_group("interpret-chlo"); }
TEST(accuracy_of_elementary_functions) { run_group("math"); }
TEST(quantized_programs) { run_group("testdata-quantized"); }

TEST(programs_of_our_own) { run_folder("programs", "tests/stablehlo"); }

TEST_MAIN(UNIT(programs_of_our_own), UNIT(programs_made_by_jax), UNIT(operations_one_by_one), UNIT(chlo_operations),
          UNIT(accuracy_of_elementary_functions), UNIT(quantized_programs))
