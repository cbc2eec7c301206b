/* tests/passes/random_test.c -- Random programs give the same results on the reference evaluator before and after the
 * pipeline; exact ones (random_program.h) the same to the last bit. WEFT_SEED=n runs one seed and prints its program;
 * WEFT_COUNT=n runs that many; WEFT_DISABLED=pass,... */
#include "random_kinds.h"

#include "passes/passes.h"

static pass_options options = {.fold_limit_bytes = 1 << 12, .num_threads = 2, .bf16_features_last = true,
                                     .f32_features_last = true};

/* A kind of programs, and how alike their results must be. */
typedef struct program_kind {
  hlo_instr *(*rare)(maker *m);
  bool is_exact;
} program_kind;

static bool check_seed(uint64_t seed, program_kind kind, bool verbose)
{
  WEFT_AUTO(hlo_module) module = NULL;
  const hlo_literal *arguments[ARGUMENTS], *before = NULL, *after = NULL;
  hlo_eval_options eval = {.deadline = WEFT_NO_DEADLINE, .stepwise_sums = kind.is_exact};
  weft_arena arena;
  char what[64];
  bool same;

  weft_arena_init(&arena);
  module = kind.is_exact ? exact_program(seed, &arena, arguments) : random_program(seed, kind.rare, &arena, arguments);
  if (verbose) T_OK(hlo_print(module, HLO_PRINT_DEFAULT, stderr));
  T_OK(hlo_eval_module(module, arguments, &eval, &arena, &before));
  T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
  if (verbose) T_OK(hlo_print(module, HLO_PRINT_DEFAULT, stderr));
  T_OK(hlo_eval_module(module, arguments, &eval, &arena, &after));
  snprintf(what, sizeof what, "seed %" PRIu64, seed);
  same = kind.is_exact ? literals_same(after, before, what)
                       : literals_near(after, before, what) || is_sensitive(module, arguments, &eval, &arena, after, 0);
  weft_arena_fini(&arena);
  return same;
}

static void check_seeds(program_kind kind, uint64_t default_count)
{
  const char *seed = getenv("WEFT_SEED"), *count = getenv("WEFT_COUNT"), *first = getenv("WEFT_FIRST");
  uint64_t from = first ? strtoull(first, NULL, 10) : 1, programs = count ? strtoull(count, NULL, 10) : default_count;
  int failures = 0;

  options.disabled = getenv("WEFT_DISABLED");
  if (seed) {
    T_TRUE(check_seed(strtoull(seed, NULL, 10), kind, true));
    return;
  }
  for (uint64_t i = from; i < from + programs; i++) failures += !check_seed(i, kind, false);
  T_EQ_INT(failures, 0);
}

TEST(random_programs_mean_the_same_after_the_pipeline) { check_seeds((program_kind){NULL, false}, 1200); }
TEST(and_so_do_programs_of_rarer_kinds) { check_seeds((program_kind){rare_kind, false}, 800); }
TEST(exact_programs_give_the_same_bits_after_the_pipeline) { check_seeds((program_kind){NULL, true}, 600); }

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(random_programs_mean_the_same_after_the_pipeline),
    UNIT(and_so_do_programs_of_rarer_kinds),
    UNIT(exact_programs_give_the_same_bits_after_the_pipeline),
  };
  const char *only = getenv("WEFT_ONLY"); /* names of tests, with * */

  if (only) cmocka_set_test_filter(only);
  return cmocka_run_group_tests(units, NULL, NULL);
}
