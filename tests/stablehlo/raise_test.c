/* tests/stablehlo/raise_test.c -- HLO printed as StableHLO (raise.c): read again, it is a program that computes the
 * same and says the same of its arguments and results.  conformance_raised_test and raised_golden_test run more
 * programs; raise_jaxlib_test.py has jaxlib read and run what is printed. */
#include "random_program.h"

#include <dirent.h>

#include "read_file.h"
#include "stablehlo/stablehlo.h"

/* *out_text, if wanted, is the caller's. */
static weft_status *there_and_back(const hlo_module *module, hlo_module **out, char **out_text)
{
  WEFT_AUTO_STR text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);

  T_TRUE(f != NULL);
  weft_status *st = shlo_print_hlo(module, f);
  fclose(f);
  if (!st) st = shlo_parse(text, size, NULL, out);
  if (!st) st = hlo_verify(*out);
  if (st && size > 0) print_message("# printed as\n%.4000s\n", text);
  if (out_text) *out_text = WEFT_MOVE(text);
  return st;
}

static bool means_the_same(const hlo_module *module, const hlo_literal *const *arguments, weft_arena *arena,
                           const char *name)
{
  WEFT_AUTO(hlo_module) back = NULL;
  const hlo_literal *want = NULL, *got = NULL;

  T_OK(there_and_back(module, &back, NULL));
  weft_status *st = hlo_eval_module(module, arguments, &HLO_EVAL_DEFAULT, arena, &want);
  bool evaluates = !st ||
                   weft_status_code(st) != WEFT_UNIMPLEMENTED; /* not what communicates: it is for jaxlib to run */
  if (evaluates) T_OK(st);
  weft_status_free(st);
  if (!evaluates) return true;
  T_OK(hlo_eval_module(back, arguments, &HLO_EVAL_DEFAULT, arena, &got));
  return literals_near(got, want, name);
}

TEST(random_programs_mean_the_same)
{
  int failures = 0;

  for (uint64_t seed = 1; seed <= 300; seed++) {
    const hlo_literal *arguments[ARGUMENTS];
    char name[32];
    weft_arena arena;
    weft_arena_init(&arena);
    hlo_module *module = random_program(seed, NULL, &arena, arguments);
    snprintf(name, sizeof name, "seed %" PRIu64, seed);
    failures += !means_the_same(module, arguments, &arena, name);
    hlo_module_free(module);
    weft_arena_fini(&arena);
  }
  T_EQ_INT(failures, 0);
}

/* raised.hlo: programs between lines of `// -----`. */
TEST(programs_that_are_said_differently_mean_the_same)
{
  const char *root = getenv("WEFT_SRCDIR");
  char path[512];
  size_t size;
  int count = 0;

  snprintf(path, sizeof path, "%s/tests/stablehlo/raised.hlo", root ? root : ".");
  WEFT_AUTO_STR text = read_file(path, &size);
  T_TRUE(text != NULL);
  for (char *at = strstr(text, "HloModule"); at; count++) {
    WEFT_AUTO(hlo_module) module = NULL;
    const hlo_literal *arguments[ARGUMENTS];
    uint64_t seed = 7;
    weft_arena arena;
    char *end = strstr(at, "// -----"), *next = end ? strstr(end, "HloModule") : NULL;
    T_OK(hlo_parse(at, end ? (size_t)(end - at) : strlen(at), &module));
    T_OK(hlo_verify(module));
    weft_arena_init(&arena);
    T_TRUE(module->entry->param_count <= ARGUMENTS);
    for (int i = 0; i < module->entry->param_count; i++)
      arguments[i] = random_literal(&arena, hlo_parameter(module->entry, i)->shape, &seed);
    T_TRUE(means_the_same(module, arguments, &arena, module->name));
    weft_arena_fini(&arena);
    at = next;
  }
  print_message("# %d programs\n", count);
  T_TRUE(count >= 10);
}

/* Reads what is printed of each text in a folder; how many were refused by name. */
static int read_folder(const char *place, int *out_count)
{
  const char *root = getenv("WEFT_SRCDIR");
  char folder[512], path[1024];
  struct dirent **files;
  int refused = 0, n;

  *out_count = 0;
  snprintf(folder, sizeof folder, "%s/%s", root ? root : ".", place);
  n = scandir(folder, &files, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    WEFT_AUTO(hlo_module) module = NULL;
    WEFT_AUTO(hlo_module) back = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/%s", folder, files[i]->d_name);
    if (strstr(files[i]->d_name, ".hlo")) {
      WEFT_AUTO_STR text = read_file(path, &size);
      T_OK(hlo_parse(text, size, &module));
      T_OK(hlo_verify(module));
      weft_status *st = there_and_back(module, &back, NULL);
      if (st && weft_status_code(st) == WEFT_UNIMPLEMENTED) refused++;
      else if (st) fail_msg("%s: %s", path, weft_status_text(st, false));
      weft_status_free(st);
      if (back) {
        T_TRUE(hlo_shape_equal(back->entry->root->shape, module->entry->root->shape, false));
        T_EQ_INT(back->alias_count, module->alias_count);
        T_EQ_INT(back->num_partitions, module->num_partitions);
      }
      ++*out_count;
    }
    free(files[i]);
  }
  if (n >= 0) free(files);
  return refused;
}

TEST(texts_are_printed_and_read)
{
  int count;

  T_EQ_INT(read_folder("tests/data/hlo", &count), 2); /* a permute in place, a custom-call with a window */
  T_TRUE(count > 5);
  if (!getenv("WEFT_SRCDIR")) return;
  T_EQ_INT(read_folder("../shared/testdata/hlo", &count), 0);
  print_message("# %d dumps of ../shared/testdata/hlo\n", count);
}

static char *back_text(const char *text, char **out_stablehlo)
{
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO(hlo_module) back = NULL;
  char *printed;
  size_t size;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(hlo_verify(module));
  T_OK(there_and_back(module, &back, out_stablehlo));
  T_OK(hlo_print_to_string(back, HLO_PRINT_DEFAULT, &printed, &size));
  return printed;
}

#define HAS(text, part) do { if (!strstr(text, part)) fail_msg("no \"%s\" in\n%s", part, text); } while (0)

TEST(what_is_said_of_arguments_results_and_calls_is_kept)
{
  WEFT_AUTO_STR shlo = NULL;
  WEFT_AUTO_STR tuples = NULL;
  WEFT_AUTO_STR calls = NULL;
  WEFT_AUTO_STR text = back_text(
    "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }, buffer_donor={ (1, {}) }, replica_count=2, num_partitions=2, "
    "entry_computation_layout={(f32[4,6]{0,1}, f32[4])->(f32[4,6]{0,1}, f32[4])}\n"
    "ENTRY e {\n"
    "  p = f32[4,6]{0,1} parameter(0), sharding={devices=[2,1]0,1}\n"
    "  q = f32[4] parameter(1)\n"
    "  n = f32[4,6] negate(p), sharding={devices=[1,2]0,1}, frontend_attributes={a=\"b\"}\n"
    "  ROOT r = (f32[4,6], f32[4]) tuple(n, q), sharding={{devices=[2,1]0,1}, {replicated}}\n"
    "}\n",
    &shlo);
  HAS(text, "replica_count=2, num_partitions=2");
  HAS(text, "{0}: (0, {}, may-alias)");
  HAS(text, "buffer_donor={ (1, {}) }");
  HAS(text, "entry_computation_layout={(f32[4,6]{0,1}, f32[4])->(f32[4,6]{0,1}, f32[4])}");
  HAS(text, "sharding={devices=[1,2]0,1}, frontend_attributes={a=\"b\"}");
  HAS(text, "parameter(0), sharding={devices=[2,1]0,1}");
  HAS(shlo, "tf.aliasing_output = 0 : i32");
  HAS(shlo, "mhlo.sharding = \"{devices=[2,1]0,1}\"");

  tuples = back_text("HloModule m, input_output_alias={ {0}: (0, {1}, must-alias) }\n"
                     "ENTRY e {\n"
                     "  p = (f32[4], f32[4]) parameter(0)\n"
                     "  a = f32[4] get-tuple-element(p), index=1\n"
                     "  ROOT r = (f32[4], f32[4]) tuple(a, a)\n"
                     "}\n",
                     NULL);
  HAS(tuples, "{0}: (0, {1}, must-alias)");

  /* More outputs than an argument may name. */
  WEFT_AUTO_STR outputs = NULL;
  size_t outputs_size;
  FILE *f = open_memstream(&outputs, &outputs_size);
  T_TRUE(f != NULL);
  fprintf(f, "HloModule m, input_output_alias={ ");
  for (int i = 0; i < 40; i++) fprintf(f, "%s{%d}: (0, {}, may-alias)", i ? ", " : "", i);
  fprintf(f, " }\n"
             "ENTRY e {\n"
             "  p = f32[] parameter(0)\n"
             "  ROOT r = (");
  for (int i = 0; i < 40; i++) fprintf(f, "%sf32[]", i ? ", " : "");
  fprintf(f, ") tuple(");
  for (int i = 0; i < 40; i++) fprintf(f, "%sp", i ? ", " : "");
  fprintf(f, ")\n}\n");
  fclose(f);
  WEFT_AUTO_STR many = back_text(outputs, NULL);
  HAS(many, "{39}: (0, {}, may-alias)");

  calls = back_text(
    "HloModule m\n"
    "ENTRY e {\n"
    "  p = f32[4,6]{0,1} parameter(0)\n"
    "  q = f32[<=8] parameter(1)\n"
    "  c = (f32[4,6]{0,1}, s32[]) custom-call(p), custom_call_target=\"t\", operand_layout_constraints={f32[4,6]{0,1}}, "
    "custom_call_has_side_effect=true, output_to_operand_aliasing={{0}: (0, {})}, api_version=API_VERSION_TYPED_FFI, "
    "backend_config=\"{k = 3 : i32}\"\n"
    "  d = f32[4] custom-call(p), custom_call_target=\"u\", backend_config=\"a\\\"b\", literal=s32[2]{0} {1, 1}\n"
    "  s = s32[] get-dimension-size(q), dimensions={0}\n"
    "  x = f32[4,6] get-tuple-element(c), index=0\n"
    "  ROOT r = (f32[4,6], s32[], f32[4]) tuple(x, s, d)\n"
    "}\n",
    NULL);
  HAS(calls, "operand_layout_constraints={f32[4,6]{0,1}}");
  HAS(calls,
      "output_to_operand_aliasing={{0}: (0, {})}, api_version=API_VERSION_TYPED_FFI, backend_config=\"{k = 3 : i32}\"");
  HAS(calls, "backend_config=\"a\\\"b\"");
  HAS(calls, "literal=s32[2]{0} {1,1}");
  HAS(calls, "f32[<=8]");
}

TEST(communication_is_kept)
{
  WEFT_AUTO_STR shlo = NULL;
  WEFT_AUTO_STR text = back_text(
    "HloModule m, replica_count=4\n"
    "add {\n"
    "  a = f32[] parameter(0)\n"
    "  b = f32[] parameter(1)\n"
    "  ROOT r = f32[] add(a, b)\n"
    "}\n"
    "ENTRY e {\n"
    "  p = f32[8] parameter(0)\n"
    "  q = f32[8] parameter(1)\n"
    "  at = s32[4] parameter(2)\n"
    "  t = token[] after-all()\n"
    "  a = (f32[8], f32[8]) all-reduce(p, q), channel_id=3, use_global_device_ids=true, replica_groups=[2,2]<=[2,2]T(1,0), to_apply=add\n"
    "  b = f32[4] reduce-scatter(p), replica_groups={{0,1},{2,3}}, dimensions={0}, to_apply=add\n"
    "  c = f32[32] all-gather(p), replica_groups={}, dimensions={0}\n"
    "  d = (f32[8], f32[8]) all-to-all(p, q), replica_groups={{0,1},{2,3}}\n"
    "  f = f32[8] collective-permute(p), source_target_pairs={{0,1},{1,0}}\n"
    "  g = f32[8] collective-broadcast(p), replica_groups={{1,0},{2}}\n"
    "  s = (f32[8], u32[], token[]) send(p, t), channel_id=5, is_host_transfer=true\n"
    "  u = token[] send-done(s), channel_id=5, is_host_transfer=true\n"
    "  v = (f32[8], u32[], token[]) recv(u), channel_id=6, is_host_transfer=true\n"
    "  w = (f32[8], token[]) recv-done(v), channel_id=6, is_host_transfer=true\n"
    "  x = f32[8] get-tuple-element(w), index=0\n"
    "  y = token[] get-tuple-element(w), index=1\n"
    "  i = ((f32[8], s32[]), token[]) infeed(y), infeed_config=\"in\"\n"
    "  j = (f32[8], s32[]) get-tuple-element(i), index=0\n"
    "  k = token[] get-tuple-element(i), index=1\n"
    "  o = token[] outfeed(j, k), outfeed_shape=(f32[8], s32[]), outfeed_config=\"out\"\n"
    "  id = u32[] replica-id()\n"
    "  z = f32[8] ragged-all-to-all(p, q, at, at, at, at), replica_groups={{0,1,2,3}}\n"
    "  ROOT r = (f32[8], token[], u32[]) tuple(x, o, id)\n"
    "}\n",
    &shlo);
  HAS(text, "channel_id=3, replica_groups={{0,2},{1,3}}, use_global_device_ids=true");
  HAS(text, "reduce-scatter(");
  HAS(text, "replica_groups={{0,1},{2,3}}, dimensions={0}");
  HAS(text, "source_target_pairs={{0,1},{1,0}}");
  HAS(text, "replica_groups={{1,0},{2}}");
  HAS(text, "send(");
  HAS(text, "channel_id=6, is_host_transfer=true");
  HAS(text, "infeed_config=\"in\"");
  HAS(text, "outfeed_config=\"out\"");
  HAS(text, "ragged-all-to-all(");
  HAS(shlo, "channel_handle = #stablehlo.channel_handle<handle = 6, type = 3>");
}

/* Twice the calls at each level: the text does not become 2^40 times as long. */
TEST(computations_that_are_called_from_everywhere_are_refused)
{
  WEFT_AUTO_STR text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  WEFT_AUTO(hlo_module) module = NULL;
  FILE *nowhere = fopen("/dev/null", "w");

  T_TRUE(f && nowhere);
  fprintf(f, "HloModule m\n"
             "b0 {\n"
             "  ROOT p = f32[] parameter(0)\n"
             "}\n");
  for (int i = 1; i <= 40; i++)
    fprintf(f,
            "b%d {\n"
            "  p = f32[] parameter(0)\n"
            "  z = pred[] constant(true)\n"
            "  ROOT c = f32[] conditional(z, p, p), true_computation=b%d, false_computation=b%d\n"
            "}\n",
            i, i - 1, i - 1);
  fprintf(f, "ENTRY e {\n"
             "  p = f32[] parameter(0)\n"
             "  z = pred[] constant(true)\n"
             "  ROOT c = f32[] conditional(z, p, p), true_computation=b40, false_computation=b40\n"
             "}\n");
  fclose(f);
  T_OK(hlo_parse(text, size, &module));
  T_FAILS(shlo_print_hlo(module, nowhere), "called from too many places");
  fclose(nowhere);
}

TEST_MAIN(UNIT(random_programs_mean_the_same), UNIT(programs_that_are_said_differently_mean_the_same),
          UNIT(texts_are_printed_and_read), UNIT(what_is_said_of_arguments_results_and_calls_is_kept),
          UNIT(communication_is_kept), UNIT(computations_that_are_called_from_everywhere_are_refused))
