/* tests/passes/golden_test.c -- One pass, HLO in and HLO out: golden/PASS/CASE.hlo beside CASE.out.  A case says in its
 * first comment what it shows and where the meaning is written down.  WEFT_UPDATE_GOLDEN=1 rewrites the .out files:
 * review the difference. */
#include "read_file.h"
#include "test.h"

#include <dirent.h>

#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/passes.h"

static const hlo_pass *const passes[] = {
  &pass_algebraic_simplifier, &pass_all_gather_combiner, &pass_all_reduce_combiner, &pass_batch_norm_expander, &pass_call_inliner, &pass_conditional_simplifier,
  &pass_constant_folding, &pass_conv_blocks, &pass_conv_canonicalizer, &pass_cse, &pass_dce, &pass_dim_orders, &pass_dot_canonicalizer, &pass_dot_expander, &pass_dot_groups, &pass_dot_joins, &pass_dot_parts, &pass_dot_rounding, &pass_dynamic_dimensions,
  &pass_eigenvalues, &pass_element_loops, &pass_elementwise_expander, &pass_erfc, &pass_features_last, &pass_flatten, &pass_fusion, &pass_licm, &pass_loop_pairs, &pass_map_inliner, &pass_multi_output_fusion, &pass_narrow_weights,
  &pass_normalize_layouts, &pass_one_form, &pass_reduce_scatter_combiner, &pass_reduce_splitter, &pass_reduce_window_rewriter, &pass_regions, &pass_remove_annotations, &pass_remove_barriers,
  &pass_rng_expander, &pass_scan_expander, &pass_schedule, &pass_scopes, &pass_small_loops, &pass_sort_simplifier, &pass_strip_groups, &pass_strips, &pass_triangular_calls, &pass_tuple_simplifier, &pass_while_simplifier, &pass_wrap,
  &pass_zero_sized,
};

static const hlo_pass *find_pass(const char *name)
{
  for (size_t i = 0; i < WEFT_COUNT(passes); i++)
    if (strcmp(passes[i]->name, name) == 0) return passes[i];
  return NULL;
}

static bool run_case(const hlo_pass *pass, const char *input_path, const char *output_path)
{
  WEFT_AUTO(hlo_module) module = NULL;
  const struct pass_entry entry = {.pass = pass};
  const pass_pipeline pipeline = {pass->name, &entry, 1, 1};
  const pass_options options = {
    .fold_limit_bytes = 1 << 12, .num_threads = 2, .bf16_features_last = true, .f32_features_last = true};
  size_t size, want_size;
  char *input = read_file(input_path, &size), *want = read_file(output_path, &want_size), *got = NULL;
  bool same;

  T_TRUE(input != NULL);
  T_OK(hlo_parse(input, size, &module));
  T_OK(hlo_verify(module));
  T_OK(pass_run(&pipeline, module, &options, NULL, NULL));
  T_OK(hlo_verify(module));
  T_OK(hlo_print_to_string(module, HLO_PRINT_DEFAULT, &got, &size));
  same = want && strcmp(want, got) == 0;
  if (getenv("WEFT_UPDATE_GOLDEN")) {
    FILE *file = fopen(output_path, "wb");
    T_TRUE(file && fwrite(got, 1, size, file) == size && fclose(file) == 0);
    same = true;
  } else if (!same) {
    print_message("# %s: got\n%s\n# want\n%s\n", input_path, got, want ? want : "(no file)");
  }
  free(input);
  free(want);
  free(got);
  return same;
}

TEST(each_pass_gives_what_its_golden_files_say)
{
  const char *source = getenv("WEFT_SRCDIR");
  char root[2048], folder[4096], input[8192], output[8192];
  struct dirent **names;
  int cases = 0, failures = 0, folders;

  snprintf(root, sizeof root, "%s/tests/passes/golden", source ? source : ".");
  folders = scandir(root, &names, NULL, alphasort);
  T_TRUE(folders > 0);
  for (int i = 0; i < folders; i++) {
    const hlo_pass *pass = find_pass(names[i]->d_name);
    struct dirent **files;
    if (names[i]->d_name[0] != '.' && !pass) fail_msg("no pass is named \"%s\"", names[i]->d_name);
    snprintf(folder, sizeof folder, "%s/%s", root, names[i]->d_name);
    int count = pass ? scandir(folder, &files, NULL, alphasort) : 0;
    for (int k = 0; k < count; k++) {
      size_t length = strlen(files[k]->d_name);
      if (length > 4 && strcmp(files[k]->d_name + length - 4, ".hlo") == 0) {
        snprintf(input, sizeof input, "%s/%s", folder, files[k]->d_name);
        snprintf(output, sizeof output, "%s/%.*s.out", folder, (int)length - 4, files[k]->d_name);
        failures += !run_case(pass, input, output);
        cases++;
      }
      free(files[k]);
    }
    if (pass) free(files);
    free(names[i]);
  }
  free(names);
  print_message("# %d cases\n", cases);
  T_EQ_INT(failures, 0);
}

TEST_MAIN(UNIT(each_pass_gives_what_its_golden_files_say))
