/* tests/gpu/epilogues_test.c -- dots with what is added and their activation in one call of cuBLASLt, on the emulated
 * platform "cuda", and algorithms of cuBLASLt that are chosen once and kept. */
#include "cpu/run.h"

#include <dirent.h>
#include <unistd.h>

#include "driver.h"
#include "hlo/eval.h"
#include "hlo/infer.h"
#include "passes/eval_compare.h"
#include "codegen/code/cache.h"
#include "runtime/saved.h"

enum { ARGS = 4 };

#define DOT(type) \
  "  a = " type "[24,40] parameter(0)\n" \
  "  b = " type "[40,32] parameter(1)\n" \
  "  d = " type "[24,32] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
#define BIAS(type) \
  "  v = " type "[32] parameter(2)\n" \
  "  w = " type "[24,32] broadcast(v), dimensions={1}\n" \
  "  s = " type "[24,32] add(w, d)\n"
#define MATRIX(type, number) \
  "  c = " type "[24,32] parameter(" number ")\n" \
  "  e = " type "[24,32] add(d, c)\n"
#define ZERO(type) \
  "  z = " type "[] constant(0)\n" \
  "  y = " type "[24,32] broadcast(z), dimensions={}\n"
#define GELU(type) \
  "  x2 = " type "[24,32] multiply(s, s)\n" \
  "  x3 = " type "[24,32] multiply(s, x2)\n" \
  "  c0 = " type "[] constant(0.044715)\n" \
  "  b0 = " type "[24,32] broadcast(c0), dimensions={}\n" \
  "  m0 = " type "[24,32] multiply(b0, x3)\n" \
  "  a0 = " type "[24,32] add(s, m0)\n" \
  "  c1 = " type "[] constant(0.797884561)\n" \
  "  b1 = " type "[24,32] broadcast(c1), dimensions={}\n" \
  "  m1 = " type "[24,32] multiply(b1, a0)\n" \
  "  t = " type "[24,32] tanh(m1)\n" \
  "  c2 = " type "[] constant(1)\n" \
  "  b2 = " type "[24,32] broadcast(c2), dimensions={}\n" \
  "  a1 = " type "[24,32] add(b2, t)\n" \
  "  c3 = " type "[] constant(0.5)\n" \
  "  b3 = " type "[24,32] broadcast(c3), dimensions={}\n" \
  "  m2 = " type "[24,32] multiply(b3, a1)\n" \
  "  ROOT r = " type "[24,32] multiply(s, m2)\n"

/* `kernels`: how many are left beside the dot. */
static const struct { const char *what, *dot, *text; int kernels; } programs[] = {
  {"a bias", "[with bias]", "HloModule m\nENTRY e {\n" DOT("f32") BIAS("f32") " ROOT r = f32[24,32] copy(s)\n}\n", 0},
  {"relu alone", "[with relu]",
   "HloModule m\nENTRY e {\n" DOT("f16") ZERO("f16") " ROOT r = f16[24,32] maximum(d, y)\n}\n", 0},
  {"a bias and relu", "[with bias and relu]",
   "HloModule m\nENTRY e {\n" DOT("f32") BIAS("f32") ZERO("f32") " ROOT r = f32[24,32] maximum(y, s)\n}\n", 0},
  {"a bias and gelu of bf16", "[with bias and gelu]", "HloModule m\nENTRY e {\n" DOT("bf16") BIAS("bf16") GELU("bf16") "}\n", 0},
  {"gelu of f32, which the library approximates", "[with bias]",
   "HloModule m\nENTRY e {\n" DOT("f32") BIAS("f32") GELU("f32") "}\n", 1},
  {"a dense layer on an array of three dimensions", "[with bias and relu]",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[3,8,40] parameter(0)\n"
   "  b = f32[40,32] parameter(1)\n"
   "  v = f32[32] parameter(2)\n"
   "  d = f32[3,8,32] dot(a, b), lhs_contracting_dims={2}, rhs_contracting_dims={0}\n"
   "  w = f32[3,8,32] broadcast(v), dimensions={2}\n"
   "  s = f32[3,8,32] add(d, w)\n"
   "  z = f32[] constant(0)\n"
   "  y = f32[3,8,32] broadcast(z), dimensions={}\n"
   "  ROOT r = f32[3,8,32] maximum(s, y)\n"
   "}\n", 0},
  {"a matrix times its own transpose", "[with bias]",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[32,40] parameter(0)\n"
   "  v = f32[32] parameter(1)\n"
   "  d = f32[32,32] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
   "  w = f32[32,32] broadcast(v), dimensions={1}\n"
   "  ROOT s = f32[32,32] add(d, w)\n"
   "}\n", 0},
  {"a vector that is both operand and bias of two products", "[with bias]",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[24,32] parameter(0)\n"
   "  b = f32[32,32] parameter(1)\n"
   "  v = f32[32] parameter(2)\n"
   "  d = f32[24,32] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  w = f32[24,32] broadcast(v), dimensions={1}\n"
   "  s = f32[24,32] add(d, w)\n"
   "  e = f32[24,32] dot(s, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  ROOT q = f32[24,32] add(e, w)\n"
   "}\n", 0},
  {"a bias whose broadcast the dot reads too", "dot",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[32,32] parameter(0)\n"
   "  v = f32[32] parameter(1)\n"
   "  w = f32[32,32] broadcast(v), dimensions={1}\n"
   "  d = f32[32,32] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  ROOT s = f32[32,32] add(d, w)\n"
   "}\n", 2},
  {"a sum whose sign the backward pass reads", "[with bias]",
   "HloModule m\n"
   "ENTRY e {\n"
   DOT("f32") BIAS("f32") ZERO("f32")
   "  r = f32[24,32] maximum(s, y)\n"
   "  ROOT q = f32[24,32] add(r, s)\n"
   "}\n", 1},
  {"a number for each row", "dot",
   "HloModule m\n"
   "ENTRY e {\n"
   DOT("f32")
   "  v = f32[24] parameter(2)\n"
   "  w = f32[24,32] broadcast(v), dimensions={0}\n"
   "  ROOT s = f32[24,32] add(d, w)\n"
   "}\n", 1},
  {"a matrix that is added", "[with matrix]",
   "HloModule m\nENTRY e {\n" DOT("f32") MATRIX("f32", "2") " ROOT r = f32[24,32] copy(e)\n}\n", 0},
  {"a matrix, a bias and relu of bf16", "[with matrix, bias and relu]",
   "HloModule m\nENTRY e {\n" DOT("bf16") MATRIX("bf16", "3")
   "  v = bf16[32] parameter(2)\n"
   "  w = bf16[24,32] broadcast(v), dimensions={1}\n"
   "  s = bf16[24,32] add(w, e)\n"
   ZERO("bf16")
   "  ROOT r = bf16[24,32] maximum(s, y)\n"
   "}\n", 0},
  {"a bias before the matrix, whose order of additions stays", "[with bias]",
   "HloModule m\nENTRY e {\n" DOT("f32") BIAS("f32")
   "  c = f32[24,32] parameter(3)\n"
   "  ROOT r = f32[24,32] add(s, c)\n"
   "}\n", 1},
  {"a residual connection around two layers, whose input is operand and addend", "[with matrix]",
   "HloModule m\n"
   "ENTRY e {\n"
   "  x = f32[24,32] parameter(0)\n"
   "  a = f32[32,32] parameter(1)\n"
   "  d = f32[24,32] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  s = f32[24,32] add(x, d)\n"
   "  e = f32[24,32] dot(s, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
   "  ROOT t = f32[24,32] add(e, s)\n"
   "}\n", 0},
  {"a sum of two products", "[with matrix]",
   "HloModule m\n"
   "ENTRY e {\n" DOT("f32")
   "  c = f32[24,32] parameter(2)\n"
   "  f = f32[32,32] dot(c, c), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
   "  g = f32[24,32] dot(c, f), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  ROOT s = f32[24,32] add(d, g)\n"
   "}\n", 0},
  {"a matrix that would be stored for the product alone", "dot",
   "HloModule m\n"
   "ENTRY e {\n" DOT("f32")
   "  c = f32[24,32] parameter(2)\n"
   "  n = f32[24,32] multiply(c, c)\n"
   "  ROOT s = f32[24,32] add(d, n)\n"
   "}\n", 1},
  {"f64", "dot", "HloModule m\nENTRY e {\n" DOT("f64") BIAS("f64") " ROOT r = f64[24,32] negate(s)\n}\n", 1},
  {"at most one", "dot",
   "HloModule m\n"
   "ENTRY e {\n"
   DOT("f32")
   "  z = f32[] constant(1)\n"
   "  y = f32[24,32] broadcast(z), dimensions={}\n"
   "  ROOT r = f32[24,32] maximum(d, y)\n"
   "}\n", 1},
};

static int occurrences(const char *text, const char *word)
{
  int count = 0;

  for (; (text = strstr(text, word)); text++) count++;
  return count;
}

static void run_case(weft_platform *platform, size_t index, uint64_t *seed)
{
  const hlo_literal *args[ARGS], *want;
  const void *inputs[ARGS];
  hlo_module *module;
  hlo_literal *got;
  weft_arena arena;

  weft_arena_init(&arena);
  T_OK(hlo_parse(programs[index].text, strlen(programs[index].text), &module));
  for (int i = 0; i < module->entry->param_count; i++) {
    args[i] = random_literal(&arena, module->entry->params[i]->shape, seed);
    inputs[i] = args[i]->data;
  }
  T_OK(hlo_eval_module(module, args, &HLO_EVAL_DEFAULT, &arena, &want));
  T_OK(hlo_literal_new(&arena, module->entry->root->shape, &got));
  weft_executable *exe = test_compile(platform, programs[index].text, BUF_SEQUENTIAL);
  T_OK(test_run(exe, inputs, (void *[]){got->data}));
  char *steps = test_steps_of(exe);
  if (!strstr(steps, programs[index].dot) || strstr(steps, "reference") ||
      occurrences(steps, " kernel ") != programs[index].kernels)
    fail_msg("%s: steps are\n%s", programs[index].what, steps);
  if (programs[index].dot[0] != '[' && strstr(steps, "[with"))
    fail_msg("%s: steps are\n%s", programs[index].what, steps);
  T_TRUE(literals_within(got, want, programs[index].what, 1e-5));
  free(steps);
  weft_executable_release(exe);
  hlo_module_free(module);
  weft_arena_fini(&arena);
}

TEST(a_dot_takes_in_its_bias_and_activation)
{
  weft_platform *platform = test_platform(1, 2);
  uint64_t seed = 1;

  for (size_t i = 0; i < WEFT_COUNT(programs); i++) run_case(platform, i, &seed);
  weft_platform_release(platform);
}

/* Without excess precision the sum is rounded before the bias is added, which the library does not do. */
TEST(narrow_sums_are_rounded_where_excess_precision_is_forbidden)
{
  static const char text[] = "HloModule m\nENTRY e {\n" DOT("bf16") BIAS("bf16") " ROOT r = bf16[24,32] copy(s)\n}\n";
  weft_platform *platform = test_platform(1, 2);

  for (int forbid = 0; forbid < 2; forbid++) {
    hlo_module *module;
    weft_executable *exe;
    T_OK(hlo_parse(text, strlen(text), &module));
    T_OK(weft_compile(platform, module, &(weft_compile_options){.no_excess_precision = forbid}, &exe));
    char *steps = test_steps_of(exe);
    if ((strstr(steps, "[with bias]") == NULL) != (forbid != 0)) fail_msg("steps are\n%s", steps);
    free(steps);
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
}

/* A NaN of the product or of the bias is a NaN of the result, also behind relu. */
TEST(relu_keeps_nan)
{
  static float a[24 * 40], b[40 * 32], v[32], got[24 * 32];
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, programs[2].text, BUF_SEQUENTIAL);

  a[3 * 40 + 7] = NAN;
  v[5] = NAN;
  T_OK(test_run(exe, (const void *[]){a, b, v}, (void *[]){got}));
  for (int row = 0; row < 24; row++)
    for (int col = 0; col < 32; col++) T_TRUE(isnan(got[row * 32 + col]) == (row == 3 || col == 5));
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* ---- algorithms ------------------------------------------------------------------------------------------------ */

static uint64_t choices(void) { return emu_calls("cublasLtMatmulAlgoGetHeuristic"); }

static void run_product(weft_executable *exe)
{
  static float a[24 * 40], b[40 * 32], v[32], got[24 * 32];

  for (size_t i = 0; i < WEFT_COUNT(a); i++) a[i] = 1;
  for (size_t i = 0; i < WEFT_COUNT(b); i++) b[i] = 2;
  T_OK(test_run(exe, (const void *[]){a, b, v}, (void *[]){got}));
  assert_float_equal(got[100], 80, 0);
}

static void compile_product(weft_platform *platform)
{
  weft_executable *exe = test_compile(platform, programs[0].text, BUF_SEQUENTIAL);

  run_product(exe);
  weft_executable_release(exe);
}

/* Turns a bit in all files of the folder, and in their digests. */
static void damage(const char *folder)
{
  DIR *dir = opendir(folder);
  int fd = gen_cache_open(folder);

  for (struct dirent *entry; (entry = readdir(dir));) {
    void *data;
    size_t size;
    if (entry->d_name[0] == '.' || !gen_cache_read(fd, entry->d_name, &data, &size)) continue;
    ((char *)data)[size / 2] ^= 1;
    T_OK(gen_cache_write(fd, entry->d_name, data, size));
    free(data);
  }
  close(fd);
  closedir(dir);
}

TEST(an_algorithm_is_chosen_once_and_kept)
{
  weft_platform *platform = test_platform(1, 2);
  char folder[] = "/tmp/weft-algorithms-XXXXXX", command[100];
  uint64_t before = choices();

  T_TRUE(mkdtemp(folder) != NULL);
  setenv("WEFT_CACHE_DIR", folder, 1);
  compile_product(platform);
  T_EQ_INT(choices() - before, 1);
  compile_product(platform);
  T_EQ_INT(choices() - before, 1);
  damage(folder); /* the library refuses the algorithm */
  compile_product(platform);
  T_EQ_INT(choices() - before, 2);
  compile_product(platform);
  T_EQ_INT(choices() - before, 2);
  unsetenv("WEFT_CACHE_DIR");
  snprintf(command, sizeof command, "rm -r %s", folder);
  T_TRUE(system(command) == 0);
  weft_platform_release(platform);
}

TEST(a_saved_program_keeps_its_algorithms)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, programs[0].text, BUF_SEQUENTIAL), *loaded;
  uint64_t before = choices();
  weft_saved saved;
  void *data;
  size_t size;

  T_OK(weft_executable_save(exe, NULL, "", NULL, 0, &data, &size));
  T_OK(weft_saved_open(data, size, &saved));
  T_OK(weft_executable_load(platform, &saved, &(weft_compile_options){0}, &loaded));
  T_EQ_INT(choices() - before, 0);
  run_product(loaded);
  free(data);
  weft_executable_release(loaded);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

int main(void)
{
  open_driver();
  const struct CMUnitTest units[] = {
    UNIT(a_dot_takes_in_its_bias_and_activation), UNIT(narrow_sums_are_rounded_where_excess_precision_is_forbidden),
    UNIT(relu_keeps_nan), UNIT(an_algorithm_is_chosen_once_and_kept), UNIT(a_saved_program_keeps_its_algorithms)};
  return cmocka_run_group_tests(units, NULL, NULL);
}
