/* tests/codegen/programs_test.c -- Every operation of the StableHLO test programs as a kernel, on random inputs,
 * against the evaluator. PROGRAMS=substring takes matching files only. */
#include "read_file.h"
#include "test.h"

#include <dirent.h>
#include <math.h>

#include "base/deadline.h"
#include "base/dtype.h"
#include "codegen/codegen.h"
#include "hlo/eval.h"
#include "hlo/text.h"
#include "passes/passes.h"
#include "stablehlo/stablehlo.h"

enum { MOST_ELEMS = 20000, EVERY = 9 };

static uint64_t state = 1;
static double uniform(void)
{
  state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (double)(state >> 11) * 0x1p-53;
}

static int kernels, skipped, differing;

static bool is_small(const hlo_shape *s) { return hlo_shape_total_bytes(s) <= MOST_ELEMS * 8; }

/* Values that stay finite through several kernels; values that may be indices stay small. */
static void fill(hlo_literal *lit)
{
  weft_dtype type = lit->shape->type;

  for (int64_t i = 0; i < hlo_shape_elems(lit->shape); i++) {
    if (type == WEFT_PRED) hlo_literal_set_s64(lit, i, uniform() < 0.5);
    else if (weft_dtype_is_integer(type))
      hlo_literal_set_s64(lit, i, (int64_t)(uniform() * (weft_dtype_bits(type) < 4 ? 2 : 6)));
    else hlo_literal_set_f64(lit, i, uniform() * 1.5 + 0.1, uniform());
  }
}

static double tolerance(weft_dtype type)
{
  weft_dtype part = weft_dtype_component(type);
  return part == WEFT_F64 ? 1e-9 : part == WEFT_F32 ? 1e-3 : part == WEFT_BF16 ? 0.1 : part == WEFT_F16 ? 0.02 : 0.6;
}

/* Returns false with the first difference printed. */
static bool same(const char *what, const hlo_instr *fusion, const hlo_literal *got, const hlo_literal *want)
{
  weft_dtype type = want->shape->type;
  int64_t n = hlo_shape_elems(want->shape), bad = 0, first = -1;

  for (int64_t i = 0; i < n; i++) {
    bool equal;
    if (weft_dtype_is_float(type) || weft_dtype_is_complex(type)) {
      double a = hlo_literal_get_f64(got, i), b = hlo_literal_get_f64(want, i), t = tolerance(type);
      double c = hlo_literal_get_imag(got, i), d = hlo_literal_get_imag(want, i), size = fabs(b) + fabs(d);
      equal = (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= t * (1 + size);
      equal = equal && ((isnan(c) && isnan(d)) || c == d || fabs(c - d) <= t * (1 + size));
    } else {
      size_t bytes = weft_dtype_bytes(type);
      equal = memcmp((char *)got->data + bytes * (size_t)i, (char *)want->data + bytes * (size_t)i, bytes) == 0;
    }
    if (!equal && bad++ == 0) first = i;
  }
  /* Rounding may change the result of a comparison, a floor or a conversion to an integer: a few such elements are
   * allowed. */
  if (bad <= n / 20 + 1) return true;
  char where[160];
  print_message("%s: %s: %" PRId64 " of %" PRId64 " differ, first %" PRId64 ": got %.9g, want %.9g\n", what,
                hlo_describe(fusion, where, sizeof where), bad, n, first, hlo_literal_get_f64(got, first),
                hlo_literal_get_f64(want, first));
  return false;
}

static weft_status *check_fusion(const char *what, const hlo_instr *fusion, const gen_kernel *k)
{
  weft_arena arena;
  void *args[256];
  const hlo_literal *inputs[128], *want;
  const char *strategy = fusion->extra ? fusion->extra->backend_config : NULL;
  int n = 0, results = hlo_shape_leaf_count(fusion->shape);
  weft_status *st = NULL;

  if ((strategy && (!strcmp(strategy, "region") || !strcmp(strategy, "loop"))) || !is_small(fusion->shape) ||
      fusion->operand_count > 100 || k->arg_count > 250) {
    skipped++;
    return NULL;
  }
  for (int i = 0; i < fusion->operand_count; i++)
    if (!is_small(fusion->operands[i]->shape) || !hlo_shape_is_array(fusion->operands[i]->shape))
      return skipped++, NULL;
  HLO_FOREACH(x, fusion->called[0])
    if (!is_small(x->shape)) return skipped++, NULL;
  weft_arena_init(&arena);
  hlo_literal *outputs[128];
  for (int i = 0; i < fusion->operand_count && !st; i++) {
    hlo_literal *lit;
    st = hlo_literal_new(&arena, fusion->operands[i]->shape, &lit);
    if (st) break;
    fill(lit);
    inputs[i] = lit;
    args[n++] = lit->data;
  }
  for (int r = 0; r < results && !st; r++) {
    st = hlo_literal_new(&arena, hlo_shape_leaf(fusion->shape, r), &outputs[r]);
    if (!st) args[n++] = outputs[r]->data;
  }
  if (!st && k->scratch_bytes) args[n++] = weft_arena_alloc(&arena, (size_t)k->scratch_bytes + 64);
  if (!st && k->shared_bytes) args[n++] = weft_arena_alloc(&arena, (size_t)k->shared_bytes + 64);
  hlo_eval_options options = {.max_loop_iterations = 10000, .deadline = weft_deadline_after_ms(5000)};
  if (!st) st = hlo_eval_computation(fusion->called[0], inputs, &options, &arena, &want);
  if (!st) {
    kernels++;
    for (int p = 0; p < k->phase_count; p++) /* two ranges */
      for (int half = 0; half < 2; half++) {
        int64_t middle = k->phases[p].units / 2, lo = half ? middle : 0, hi = half ? k->phases[p].units : middle;
        if (lo < hi) k->phases[p].fn(args, lo, hi);
      }
    for (int r = 0; r < results; r++)
      if (!same(what, fusion, outputs[r], hlo_shape_is_array(want->shape) ? want : want->elements[r])) {
        differing++;
        break;
      }
  } else if (weft_status_code(st) == WEFT_UNIMPLEMENTED || weft_status_code(st) == WEFT_DEADLINE_EXCEEDED) {
    weft_status_ignore(st);
    st = NULL;
    skipped++;
  }
  weft_arena_fini(&arena);
  return st;
}

/* The passes that make each operation a kernel of its own. No pass simplifies, because the programs' inputs are
 * constants. */
#define PASS(name) {.pass = &pass_##name}
static const struct pass_entry entries[] = {
  PASS(normalize_layouts), PASS(call_inliner), PASS(flatten), PASS(map_inliner), PASS(batch_norm_expander),
  PASS(rng_expander), PASS(elementwise_expander), PASS(wrap), PASS(schedule), PASS(copy_insertion),
};
static const pass_pipeline one_by_one = {"one-by-one", entries, (int)WEFT_COUNT(entries), .rounds = 1};

static weft_status *check_program(const char *path, bool is_hlo, const char *name)
{
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO(gen_code) code = NULL;
  size_t size = 0;
  WEFT_AUTO_STR text = read_file(path, &size);
  gen_options options;
  pass_options passes = {.num_threads = 1};

  if (!text) return WEFT_ERR(NOT_FOUND, "%s", path);
  WEFT_TRY(is_hlo ? hlo_parse(text, size, &module) : shlo_parse(text, size, NULL, &module));
  WEFT_TRY(pass_run(&one_by_one, module, &passes, NULL, NULL));
  WEFT_TRY(gen_options_load(&options));
  options.allow_excess_precision = false;
  WEFT_TRY(gen_compile(module, &options, &code));
  HLO_FOREACH_COMPUTATION(comp, module) {
    HLO_FOREACH(x, comp) {
      const gen_kernel *k = x->op == HLO_FUSION ? gen_code_kernel(code, x) : NULL;
      if (k) WEFT_TRY(check_fusion(name, x, k));
    }
  }
  return NULL;
}

static void check_folder(const char *folder, bool is_hlo, int every)
{
  char path[4096];
  const char *wanted = getenv("PROGRAMS"), *source = getenv("WEFT_SRCDIR");
  struct dirent *entry;
  int seen = 0, failed = 0;

  snprintf(path, sizeof path, "%s/../../shared/testdata/%s", source ? source : ".", folder);
  DIR *dir = opendir(path);
  if (!dir) {
    snprintf(path, sizeof path, "%s/../shared/testdata/%s", source ? source : ".", folder);
    dir = opendir(path);
  }
  if (!dir) T_SKIP("no test data at %s\n", path);
  size_t length = strlen(path);
  kernels = skipped = differing = 0;
  while ((entry = readdir(dir))) {
    if (entry->d_name[0] == '.') continue;
    if (wanted ? !strstr(entry->d_name, wanted) : seen++ % every) continue;
    snprintf(path + length, sizeof path - length, "/%s", entry->d_name);
    weft_status *st = check_program(path, is_hlo, entry->d_name);
    weft_code code = weft_status_code(st);
    if (st && (strstr(weft_status_text(st, false), "codegen") ||
               (code != WEFT_UNIMPLEMENTED && code != WEFT_INVALID_ARGUMENT))) {
      print_message("%s: %s\n", entry->d_name, weft_status_text(st, false));
      failed++;
    }
    weft_status_ignore(st);
  }
  closedir(dir);
  print_message("%s: %d kernels agree, %d differ, %d skipped, %d programs failed\n", folder, kernels - differing,
                differing, skipped, failed);
  T_EQ_INT(differing, 0);
  T_EQ_INT(failed, 0);
}

TEST(kernels_of_stablehlo_programs)
{
  check_folder("stablehlo/testdata", false, getenv("WEFT_EXHAUSTIVE") ? 1 : EVERY);
}
TEST(kernels_of_interpreted_programs)
{
  check_folder("stablehlo/interpret", false, getenv("WEFT_EXHAUSTIVE") ? 1 : EVERY);
}

/* With any bound on memory, an emission that the bound stops ends with an error and leaks nothing (sanitizers
 * check). */
TEST(emission_without_memory_is_an_error)
{
  static const char text[] = "HloModule m\n"
                             "add {\n"
                             "  a = f32[] parameter(0)\n"
                             "  b = f32[] parameter(1)\n"
                             "  ROOT r = f32[] add(a, b)\n"
                             "}\n"
                             "f {\n"
                             "  x = f32[8,40,30] parameter(0)\n"
                             "  t = f32[40,8,30] transpose(x), dimensions={1,0,2}\n"
                             "  e = f32[40,8,30] exponential(t)\n"
                             "  z = f32[] constant(0)\n"
                             "  p = f32[42,8,30] pad(e, z), padding=1_1x0_0x0_0\n"
                             "  ROOT s = f32[42,8] reduce(p, z), dimensions={2}, to_apply=add\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[8,40,30] parameter(0)\n"
                             "  ROOT r = f32[42,8] fusion(x), kind=kLoop, calls=f\n"
                             "}\n";
  int failures = 0;

  for (int64_t bytes = 1024; bytes < 1 << 20; bytes *= 2) {
    hlo_module *module;
    gen_options options;
    gen_code *code = NULL;
    T_OK(hlo_parse(text, strlen(text), &module));
    T_OK(gen_options_load(&options));
    options.emission_bytes = bytes;
    weft_status *st = gen_compile(module, &options, &code);
    if (st) {
      T_EQ_INT(weft_status_code(st), WEFT_RESOURCE_EXHAUSTED);
      weft_status_free(st);
      failures++;
    } else {
      gen_code_free(code);
    }
    hlo_module_free(module);
  }
  T_TRUE(failures > 1 && failures < 10);
}

static char *assembly_of(const char *text)
{
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO(gen_code) code = NULL;
  gen_options options;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(gen_options_load(&options));
  options.keep_text = true;
  T_OK(gen_compile(module, &options, &code));
  return strdup(gen_code_assembly(code, gen_code_kernel(code, module->entry->root)));
}

/* tests/codegen/random_test compares the results of both. */
TEST(code_is_optimised_little_on_request)
{
  static const char text[] = "HloModule m\n"
                             "f {\n"
                             "  x = f32[1000] parameter(0)\n"
                             "  ROOT e = f32[1000] exponential(x)\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[1000] parameter(0)\n"
                             "  ROOT r = f32[1000] fusion(x), kind=kLoop, calls=f\n"
                             "}\n";
  char *full = assembly_of(text);

  setenv("WEFT_QUICK_COMPILE", "1", 1);
  char *quick = assembly_of(text);
  unsetenv("WEFT_QUICK_COMPILE");
  T_TRUE(strlen(quick) > strlen(full));
  free(full);
  free(quick);
}

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(emission_without_memory_is_an_error), UNIT(code_is_optimised_little_on_request),
                                     UNIT(kernels_of_stablehlo_programs), UNIT(kernels_of_interpreted_programs)};
  return cmocka_run_group_tests(units, NULL, NULL);
}
