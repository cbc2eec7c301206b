/* tests/cpu/random_test.c -- Random programs, compiled and run, give what the reference evaluator gives; exact ones
 * (random_program.h), compiled without excess precision, to the last bit. WEFT_SEED=n runs one seed and prints its
 * program; WEFT_COUNT=n runs that many, from WEFT_FIRST on. */
#include "random_program.h"

#include "cpu/run.h"

static weft_platform *platform;

static hlo_literal *empty_like(weft_arena *arena, const hlo_shape *shape)
{
  hlo_literal *literal;
  T_OK(hlo_literal_new(arena, shape, &literal));
  for (int i = 0; hlo_shape_is_tuple(shape) && i < shape->rank; i++)
    literal->elements[i] = empty_like(arena, shape->elements[i]);
  return literal;
}

/* Kernels round bf16 only where it is stored, so values that are computed from it have the precision of bf16. */
static bool has_narrow_floats(const hlo_module *module)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp)
      if (instr->shape->type == WEFT_BF16) return true;
  return false;
}

/* The rounding of a bf16 may decide a comparison, or the integer that it is converted to. */
static bool decides_by_narrow_floats(const hlo_module *module)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      bool decides = instr->op == HLO_COMPARE || (instr->op == HLO_CONVERT && !weft_dtype_is_float(instr->shape->type));
      if (decides && instr->operands[0]->shape->type == WEFT_BF16) return true;
    }
  return false;
}

/* The program of a seed and its results. */
typedef struct trial {
  hlo_module *module; /* owned; `want` refers to its shapes */
  const hlo_literal *arguments[ARGUMENTS], *want;
  hlo_eval_options eval;
  hlo_literal *got;
} trial;

static void make(trial *t, uint64_t seed, bool is_exact, weft_arena *arena)
{
  t->eval = (hlo_eval_options){.deadline = WEFT_NO_DEADLINE, .stepwise_sums = true};
  t->module = is_exact ? exact_program(seed, arena, t->arguments) : random_program(seed, NULL, arena, t->arguments);
}

static void evaluate_and_run(trial *t, bool is_exact, weft_arena *arena)
{
  WEFT_AUTO(weft_executable) exe = NULL;
  const void *inputs[ARGUMENTS];
  void *outputs[RESULTS];
  hlo_module *copy;

  T_OK(hlo_eval_module(t->module, t->arguments, &t->eval, arena, &t->want));
  t->got = empty_like(arena, hlo_shape_copy(arena, t->module->entry->root->shape));
  for (int i = 0; i < ARGUMENTS; i++) inputs[i] = t->arguments[i]->data;
  for (int i = 0; i < RESULTS; i++) outputs[i] = t->got->elements[i]->data;
  T_OK(hlo_module_clone(t->module, &copy));
  T_OK(weft_compile(platform, copy, &(weft_compile_options){.no_excess_precision = is_exact}, &exe));
  T_OK(test_run(exe, inputs, outputs));
}

static bool check_seed(uint64_t seed, bool is_exact, bool verbose)
{
  weft_arena arena;
  char what[64];
  trial t = {0};

  weft_arena_init(&arena);
  make(&t, seed, is_exact, &arena);
  if (verbose) T_OK(hlo_print(t.module, HLO_PRINT_DEFAULT, stderr));
  bool narrow = has_narrow_floats(t.module);
  evaluate_and_run(&t, is_exact, &arena);
  snprintf(what, sizeof what, "seed %" PRIu64, seed);
  bool same = is_exact ? literals_same(t.got, t.want, what) : literals_within(t.got, t.want, what, narrow ? 2e-2 : 0);
  if (!same && !is_exact) { /* made again, because compiling took the first module */
    WEFT_AUTO(hlo_module) again = random_program(seed, NULL, &arena, t.arguments);
    same = decides_by_narrow_floats(again) ||
           is_sensitive(again, t.arguments, &t.eval, &arena, t.want, narrow ? 2e-2 : 0);
    if (same) print_message("# rounding decides that\n");
  }
  hlo_module_free(t.module);
  weft_arena_fini(&arena);
  return same;
}

static void check_seeds(bool is_exact, uint64_t default_count)
{
  const char *seed = getenv("WEFT_SEED"), *count = getenv("WEFT_COUNT"), *first = getenv("WEFT_FIRST");
  uint64_t from = first ? strtoull(first, NULL, 10) : 1, programs = count ? strtoull(count, NULL, 10) : default_count;
  int failures = 0;

  platform = test_platform(1, 2);
  if (seed) T_TRUE(check_seed(strtoull(seed, NULL, 10), is_exact, true));
  for (uint64_t i = from; !seed && i < from + programs; i++) failures += !check_seed(i, is_exact, false);
  weft_platform_release(platform);
  T_EQ_INT(failures, 0);
}

TEST(random_programs_compute_what_the_evaluator_does) { check_seeds(false, 200); }
TEST(programs_of_narrow_floats_are_exact) { check_seeds(true, 100); }

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(random_programs_compute_what_the_evaluator_does), UNIT(programs_of_narrow_floats_are_exact)};
  const char *only = getenv("WEFT_ONLY"); /* names of tests, with * */

  if (only) cmocka_set_test_filter(only);
  return cmocka_run_group_tests(units, NULL, NULL);
}
