/* Random programs give the same results on the reference evaluator before and after the pipeline.
 * WEFT_SEED=n runs one seed and prints its program; WEFT_COUNT=n runs that many; WEFT_DISABLED=pass,... */
#include "random_kinds.h"

#include "passes/passes.h"

static pass_options options = {.fold_limit_bytes = 1 << 12, .num_threads = 2};

static bool check_seed(uint64_t seed, hlo_instr *(*rare)(maker *m), bool verbose)
{
  WEFT_AUTO(hlo_module) module = NULL;
  const hlo_literal *arguments[ARGUMENTS], *before = NULL, *after = NULL;
  hlo_eval_options eval = HLO_EVAL_DEFAULT;
  weft_arena arena;
  char what[64];
  bool same;

  weft_arena_init(&arena);
  module = random_program(seed, rare, &arena, arguments);
  if (verbose) T_OK(hlo_print(module, HLO_PRINT_DEFAULT, stderr));
  T_OK(hlo_eval_module(module, arguments, &eval, &arena, &before));
  T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
  if (verbose) T_OK(hlo_print(module, HLO_PRINT_DEFAULT, stderr));
  T_OK(hlo_eval_module(module, arguments, &eval, &arena, &after));
  snprintf(what, sizeof what, "seed %" PRIu64, seed);
  same = literals_near(after, before, what) || is_sensitive(module, arguments, &eval, &arena, after, 0);
  weft_arena_fini(&arena);
  return same;
}

static void check_seeds(hlo_instr *(*rare)(maker *m), uint64_t default_count)
{
  const char *seed = getenv("WEFT_SEED"), *count = getenv("WEFT_COUNT");
  int failures = 0;

  options.disabled = getenv("WEFT_DISABLED");
  if (seed) {
    T_TRUE(check_seed(strtoull(seed, NULL, 10), rare, true));
    return;
  }
  for (uint64_t i = 1; i <= (count ? strtoull(count, NULL, 10) : default_count); i++) failures += !check_seed(i, rare, false);
  T_EQ_INT(failures, 0);
}

TEST(random_programs_mean_the_same_after_the_pipeline) { check_seeds(NULL, 1200); }

TEST(and_so_do_programs_of_rarer_kinds) { check_seeds(rare_kind, 800); }

TEST_MAIN(UNIT(random_programs_mean_the_same_after_the_pipeline), UNIT(and_so_do_programs_of_rarer_kinds))
