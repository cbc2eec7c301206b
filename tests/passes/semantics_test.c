/* tests/passes/semantics_test.c -- The pipeline keeps what programs mean: small real programs give the same results on
 * the reference evaluator before and after.  semantics_test FILE... checks the files named. */
#include "eval_compare.h"
#include "read_file.h"

#include "hlo/text.h"
#include "passes/passes.h"

static const pass_options options = {.fold_limit_bytes = 1 << 16, .num_threads = 2, .bf16_features_last = true,
                                     .f32_features_last = true};

static const char *const programs[] = {
  "bench_mass_matrix_35", "bench_scan_N2000_M3", "dlrm_keras_jax_f32_test_step",
  "dynamic_slice_loop_1x2048x768_bf16", "jax.issue.33666.linx.frag_0100.module_0005",
  "jax.issue.33666.linx.frag_0100.module_0009", "jax.issue.33666.linx.slow_0100.module_0007",
  "mean_axis_1x4096x1024_bf16", "mha_block_1x12x128x64_bf16",
  "topk_logits_k10_1x50000_bf16",
};

/* Sharding annotations do nothing on one device. */
static weft_status *identity(void *ctx, const hlo_instr *instr, const hlo_literal *const *operands, weft_arena *arena,
                             const hlo_literal **out)
{
  (void)ctx;
  (void)arena;
  if (instr->operand_count != 1 || strcmp(instr->u.custom->target, "Sharding") != 0)
    return WEFT_ERR(UNIMPLEMENTED, "custom-call to \"%s\"", instr->u.custom->target);
  *out = operands[0];
  return NULL;
}

/* Unknown things (custom-calls, collectives) and slow programs are skipped: *out is NULL. */
static void evaluate(const hlo_module *module, weft_arena *arena, const hlo_literal *const *arguments, int64_t limit_ms,
                     const hlo_literal **out)
{
  hlo_eval_options eval = HLO_EVAL_DEFAULT;
  weft_status *st;

  eval.custom_call = identity;
  eval.deadline = weft_deadline_after_ms(limit_ms);
  *out = NULL;
  st = hlo_eval_module(module, arguments, &eval, arena, out);
  if (weft_status_code(st) == WEFT_UNIMPLEMENTED || weft_status_code(st) == WEFT_DEADLINE_EXCEEDED) {
    print_message("# not evaluated: %s\n", weft_status_message(st));
    weft_status_free(st);
    *out = NULL;
    return;
  }
  T_OK(st);
}

static void check_file(const char *path)
{
  WEFT_AUTO(hlo_module) module = NULL;
  const hlo_literal *arguments[256], *before, *after;
  size_t size = 0;
  char *text = read_file(path, &size);
  uint64_t state = 7;
  weft_arena arena;

  if (!text) T_SKIP("no %s", path);
  weft_arena_init(&arena);
  T_OK(hlo_parse(text, size, &module));
  free(text);
  T_TRUE(module->entry->param_count <= 256);
  for (int i = 0; i < module->entry->param_count; i++)
    arguments[i] = random_literal(&arena, module->entry->params[i]->shape, &state);
  evaluate(module, &arena, arguments, 20000, &before);
  if (before) {
    T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
    evaluate(module, &arena, arguments, 60000, &after);
    T_TRUE(after && literals_near(after, before, path));
  }
  weft_arena_fini(&arena);
}

static int chosen_count;
static char **chosen;
TEST(programs_mean_the_same_after_the_pipeline)
{
  char path[4096];
  const char *source = getenv("WEFT_SRCDIR");

  for (int i = 0; i < chosen_count; i++) check_file(chosen[i]);
  for (size_t i = 0; chosen_count == 0 && i < WEFT_COUNT(programs); i++) {
    snprintf(path, sizeof path, "%s/../shared/testdata/hlo/%s.hlo", source ? source : ".", programs[i]);
    check_file(path);
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest units[] = {UNIT(programs_mean_the_same_after_the_pipeline)};

  chosen_count = argc - 1;
  chosen = argv + 1;
  return cmocka_run_group_tests(units, NULL, NULL);
}
