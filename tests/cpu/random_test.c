/* Random programs, compiled and run, give what the reference evaluator gives.
 * WEFT_SEED=n runs one seed and prints its program; WEFT_COUNT=n runs that many, from WEFT_FIRST on. */
#include "random_program.h"

#include "cpu/run.h"

static weft_platform *platform;

static hlo_literal *empty_like(weft_arena *arena, const hlo_shape *shape)
{
  hlo_literal *literal;
  T_OK(hlo_literal_new(arena, shape, &literal));
  for (int i = 0; hlo_shape_is_tuple(shape) && i < shape->rank; i++) literal->elements[i] = empty_like(arena, shape->elements[i]);
  return literal;
}

/* Kernels round bf16 only where it is stored: what is computed from it is as coarse. */
static bool has_narrow_floats(const hlo_module *module)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp)
      if (instr->shape->type == WEFT_BF16) return true;
  return false;
}

/* Whether a bf16 was rounded decides what is larger, and which integer it is. */
static bool decides_by_narrow_floats(const hlo_module *module)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      bool decides = instr->op == HLO_COMPARE || (instr->op == HLO_CONVERT && !weft_dtype_is_float(instr->shape->type));
      if (decides && instr->operands[0]->shape->type == WEFT_BF16) return true;
    }
  return false;
}

static bool check_seed(uint64_t seed, bool verbose)
{
  WEFT_AUTO(weft_executable) exe = NULL;
  const hlo_literal *arguments[ARGUMENTS], *want;
  const void *inputs[ARGUMENTS];
  void *outputs[RESULTS];
  hlo_literal *got;
  hlo_eval_options eval = {.deadline = WEFT_NO_DEADLINE, .stepwise_sums = true};
  weft_arena arena;
  char what[64];

  weft_arena_init(&arena);
  hlo_module *module = random_program(seed, NULL, &arena, arguments);
  if (verbose) T_OK(hlo_print(module, HLO_PRINT_DEFAULT, stderr));
  T_OK(hlo_eval_module(module, arguments, &eval, &arena, &want));
  bool narrow = has_narrow_floats(module);
  got = empty_like(&arena, hlo_shape_copy(&arena, module->entry->root->shape));
  for (int i = 0; i < ARGUMENTS; i++) inputs[i] = arguments[i]->data;
  for (int i = 0; i < RESULTS; i++) outputs[i] = got->elements[i]->data;
  T_OK(weft_compile(platform, module, &(weft_compile_options){0}, &exe));
  T_OK(test_run(exe, inputs, outputs));
  snprintf(what, sizeof what, "seed %" PRIu64, seed);
  bool same = literals_within(got, want, what, narrow ? 2e-2 : 0);
  if (!same) { /* made once more: the first was compiled and is gone */
    WEFT_AUTO(hlo_module) again = random_program(seed, NULL, &arena, arguments);
    same = decides_by_narrow_floats(again) || is_sensitive(again, arguments, &eval, &arena, want, narrow ? 2e-2 : 0);
    if (same) print_message("# rounding decides that\n");
  }
  weft_arena_fini(&arena);
  return same;
}

TEST(random_programs_compute_what_the_evaluator_does)
{
  const char *seed = getenv("WEFT_SEED"), *count = getenv("WEFT_COUNT"), *first = getenv("WEFT_FIRST");
  uint64_t from = first ? strtoull(first, NULL, 10) : 1, programs = count ? strtoull(count, NULL, 10) : 200;
  int failures = 0;

  platform = test_platform(1, 2);
  if (seed) T_TRUE(check_seed(strtoull(seed, NULL, 10), true));
  for (uint64_t i = from; !seed && i < from + programs; i++) failures += !check_seed(i, false);
  weft_platform_release(platform);
  T_EQ_INT(failures, 0);
}

TEST_MAIN(UNIT(random_programs_compute_what_the_evaluator_does))
