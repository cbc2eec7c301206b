/* tests/codegen/random_test.c -- Random kernels, split in several ways, give what the reference evaluator gives; those
 * of narrow floats, to the last bit. WEFT_SEED=n runs one seed and prints its program; WEFT_COUNT=n runs that many,
 * from WEFT_FIRST on. */
#include "random_program.h"

#include "harness.h"

static bool check_seed(uint64_t seed, bool is_exact, bool verbose)
{
  WEFT_AUTO(gen_code) code = NULL;
  WEFT_AUTO(hlo_module) module = NULL;
  const hlo_literal *arguments[ARGUMENTS], *want;
  hlo_eval_options eval = {.deadline = WEFT_NO_DEADLINE, .stepwise_sums = true};
  gen_options options;
  weft_arena arena;
  char what[64];
  bool same = true;

  weft_arena_init(&arena);
  module = random_kernel(seed, is_exact, &arena, arguments);
  if (verbose) T_OK(hlo_print(module, HLO_PRINT_DEFAULT, stderr));
  T_OK(hlo_eval_module(module, arguments, &eval, &arena, &want));
  T_OK(gen_options_load(&options));
  options.threads = 1;
  options.allow_excess_precision = false;
  options.quick = seed % 4 == 0;
  T_OK(gen_compile(module, &options, &code));
  const hlo_instr *fusion = module->entry->root;
  hlo_literal *got = empty_literal(&arena, fusion->shape);
  for (int split = 0; split < 2 * KERNEL_SPLITS && same; split++) {
    snprintf(what, sizeof what, "seed %" PRIu64 ", split %d", seed, split);
    run_compiled(gen_code_kernel(code, fusion), fusion, arguments, split >= KERNEL_SPLITS, split % KERNEL_SPLITS, got,
                 what);
    same = is_exact ? literals_same(got, want, what)
                    : literals_within(got, want, what, 0) || is_sensitive(module, arguments, &eval, &arena, want, 0);
  }
  weft_arena_fini(&arena);
  return same;
}

static void check_seeds(bool is_exact)
{
  const char *seed = getenv("WEFT_SEED"), *count = getenv("WEFT_COUNT"), *first = getenv("WEFT_FIRST");
  uint64_t from = first ? strtoull(first, NULL, 10) : 1, kernels = count ? strtoull(count, NULL, 10) : 150;
  int failures = 0;

  if (seed) T_TRUE(check_seed(strtoull(seed, NULL, 10), is_exact, true));
  for (uint64_t i = from; !seed && i < from + kernels; i++) failures += !check_seed(i, is_exact, false);
  T_EQ_INT(failures, 0);
}

TEST(random_kernels_compute_what_the_evaluator_does) { check_seeds(false); }
TEST(kernels_of_narrow_floats_are_exact) { check_seeds(true); }

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(random_kernels_compute_what_the_evaluator_does), UNIT(kernels_of_narrow_floats_are_exact)};
  const char *only = getenv("WEFT_ONLY"); /* names of tests, with * */

  if (only) cmocka_set_test_filter(only);
  return cmocka_run_group_tests(units, NULL, NULL);
}
