/* tests/gpu/library_steps_test.c -- programs on the emulated platform "cuda" whose steps are library calls: each step
 * is queued on the device, not run on the host, and its results are the evaluator's. */
#include "cpu/run.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hlo/eval.h"
#include "hlo/infer.h"
#include "passes/eval_compare.h"

/* A program with one or two parameters and one result. */
typedef struct program {
  weft_arena arena;
  hlo_module *module; /* the shapes of the literals are its */
  weft_platform *platform;
  weft_executable *exe;
  const hlo_literal *args[2], *want;
  hlo_literal *got;
} program;

/* Compiles the text, evaluates it, and runs it. */
static void run_program(program *p, const char *text, uint64_t *seed)
{
  const void *inputs[2];

  *p = (program){.platform = test_platform(1, 2)};
  weft_arena_init(&p->arena);
  T_OK(hlo_parse(text, strlen(text), &p->module));
  const hlo_module *module = p->module;
  T_OK(hlo_verify(module));
  for (int i = 0; i < module->entry->param_count; i++) {
    p->args[i] = random_literal(&p->arena, module->entry->params[i]->shape, seed);
    inputs[i] = p->args[i]->data;
  }
  T_OK(hlo_eval_module(module, p->args, &HLO_EVAL_DEFAULT, &p->arena, &p->want));
  T_OK(hlo_literal_new(&p->arena, module->entry->root->shape, &p->got));
  p->exe = test_compile(p->platform, text, BUF_SEQUENTIAL);
  T_OK(test_run(p->exe, inputs, (void *[]){p->got->data}));
}

static void free_program(program *p)
{
  weft_executable_release(p->exe);
  weft_platform_release(p->platform);
  weft_arena_fini(&p->arena);
  hlo_module_free(p->module);
}

static const struct { const char *what, *step, *text; } programs[] = {
  {"a product of matrices", "dot",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[20,30] parameter(0)\n"
   "  b = f32[30,40] parameter(1)\n"
   "  ROOT d = f32[20,40] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "}\n"},
  {"a product with two batch dimensions between the others", "dot",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = bf16[4,2,5,3] parameter(0)\n"
   "  b = bf16[2,3,6,5] parameter(1)\n"
   "  ROOT d = bf16[2,3,4,6] dot(a, b), lhs_batch_dims={1,3}, rhs_batch_dims={0,1}, "
   "lhs_contracting_dims={2}, rhs_contracting_dims={3}\n"
   "}\n"},
  {"a Cholesky factor of a batch, the upper one of a real matrix", "cusolver",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f64[3,2,2] parameter(0)\n"
   "  t = f64[3,2,2] transpose(a), dimensions={0,2,1}\n"
   "  p = f64[3,2,2] add(a, t)\n"
   "  four = f64[] constant(40)\n"
   "  e = s32[3,2,2] iota(), iota_dimension=1\n"
   "  f = s32[3,2,2] iota(), iota_dimension=2\n"
   "  g = pred[3,2,2] compare(e, f), direction=EQ\n"
   "  b = f64[3,2,2] broadcast(four), dimensions={}\n"
   "  s = f64[3,2,2] select(g, b, p)\n"
   "  ROOT c = f64[3,2,2] cholesky(s), lower=false\n"
   "}\n"},
  {"the lower Cholesky factor of a complex matrix", "cusolver",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = c128[5,5] parameter(0)\n"
   "  r = f64[5,5] real(a)\n"
   "  j = f64[5,5] imag(a)\n"
   "  rt = f64[5,5] transpose(r), dimensions={1,0}\n"
   "  jt = f64[5,5] transpose(j), dimensions={1,0}\n"
   "  rs = f64[5,5] add(r, rt)\n"
   "  js = f64[5,5] subtract(j, jt)\n"
   "  h = c128[5,5] complex(rs, js)\n"
   "  e = s32[5,5] iota(), iota_dimension=0\n"
   "  f = s32[5,5] iota(), iota_dimension=1\n"
   "  g = pred[5,5] compare(e, f), direction=EQ\n"
   "  big = c128[] constant((90, 0))\n"
   "  b = c128[5,5] broadcast(big), dimensions={}\n"
   "  s = c128[5,5] select(g, b, h)\n"
   "  ROOT c = c128[5,5] cholesky(s), lower=true\n"
   "}\n"},
  {"a matrix without a Cholesky factor", "cusolver",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[3,3] parameter(0)\n"
   "  m = f32[] constant(-5)\n"
   "  b = f32[3,3] broadcast(m), dimensions={}\n"
   "  x = f32[3,3] abs(a)\n"
   "  d = f32[3,3] subtract(b, x)\n"
   "  ROOT c = f32[3,3] cholesky(d), lower=true\n"
   "}\n"},
  {"a long sum, which needs a workspace", "dot",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[3,500] parameter(0)\n"
   "  b = f32[500,4] parameter(1)\n"
   "  d = f32[3,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  t = f32[3,4] tanh(d)\n"
   "  ROOT s = f32[3,4] add(t, d)\n"
   "}\n"},
  {"a matrix times a vector", "dot",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f64[7,9] parameter(0)\n"
   "  b = f64[9] parameter(1)\n"
   "  ROOT d = f64[7] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "}\n"},
  {"integers in another order, of odd sizes", " dot ",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = s8[17,30] parameter(0)\n"
   "  b = s8[17,21] parameter(1)\n"
   "  ROOT d = s32[30,21] dot(a, b), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
   "}\n"},
  {"a batch of integers", " dot ",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = s8[3,20,18] parameter(0)\n"
   "  b = s8[3,18,22] parameter(1)\n"
   "  ROOT d = s32[3,20,22] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, "
   "lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
   "}\n"},
  {"integers that the library does not have", "kernel",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = s32[20,33] parameter(0)\n"
   "  b = s32[33,40] parameter(1)\n"
   "  ROOT d = s32[20,40] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "}\n"},
  {"unsigned integers", "kernel",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = u8[20,33] parameter(0)\n"
   "  b = u8[40,33] parameter(1)\n"
   "  ROOT d = u32[20,40] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
   "}\n"},
  {"operands of different types", " dot ",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = bf16[20,30] parameter(0)\n"
   "  b = f32[30,40] parameter(1)\n"
   "  ROOT d = f32[20,40] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "}\n"},
  {"a wider result", " dot ",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[20,30] parameter(0)\n"
   "  b = f32[30,40] parameter(1)\n"
   "  ROOT d = f64[20,40] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "}\n"},
  {"floats of eight bits", " dot ",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f8e4m3fn[20,30] parameter(0)\n"
   "  b = f8e5m2[30,40] parameter(1)\n"
   "  ROOT d = f32[20,40] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "}\n"},
  {"a narrower result", " dot ",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f16[20,30] parameter(0)\n"
   "  b = f16[30,40] parameter(1)\n"
   "  d = bf16[20,40] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  ROOT c = f32[20,40] convert(d)\n"
   "}\n"},
  {"a convolution with channels last and padding on one side", "convolution",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,8,8,3] parameter(0)\n"
   "  b = f32[3,3,3,4] parameter(1)\n"
   "  ROOT c = f32[2,4,4,4] convolution(a, b), window={size=3x3 stride=2x2 pad=0_1x0_1}, dim_labels=b01f_01io->b01f\n"
   "}\n"},
  {"the gradient of a convolution's input", "convolution",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,4,5,5] parameter(0)\n"
   "  b = f32[4,3,3,3] parameter(1)\n"
   "  ROOT c = f32[2,3,9,9] convolution(a, b), "
   "window={size=3x3 pad=1_1x1_1 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=bf01_io01->bf01\n"
   "}\n"},
  {"the gradient of a convolution's filter", "convolution",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,3,9,9] parameter(0)\n"
   "  b = f32[2,4,5,5] parameter(1)\n"
   "  ROOT c = f32[3,3,4,3] convolution(a, b), window={size=5x5 pad=1_1x1_1 rhs_dilate=2x2}, "
   "dim_labels=fb01_io01->01fb\n"
   "}\n"},
  {"a transform of two dimensions and back", "fft",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[3,4,6] parameter(0)\n"
   "  f = c64[3,4,4] fft(a), fft_type=RFFT, fft_length={4,6}\n"
   "  ROOT b = f32[3,4,6] fft(f), fft_type=IRFFT, fft_length={4,6}\n"
   "}\n"},
  {"a triangular system", "triangular-solve",
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f64[2,4,4] parameter(0)\n"
   "  b = f64[2,4,3] parameter(1)\n"
   "  ROOT x = f64[2,4,3] triangular-solve(a, b), left_side=true, lower=true, unit_diagonal=true, "
   "transpose_a=TRANSPOSE\n"
   "}\n"},
};

TEST(steps_are_library_calls_and_give_the_evaluators_results)
{
  uint64_t seed = 1;

  for (size_t i = 0; i < WEFT_COUNT(programs); i++) {
    program p;
    run_program(&p, programs[i].text, &seed);
    char *steps = test_steps_of(p.exe);
    if (!strstr(steps, programs[i].step) || strstr(steps, "reference"))
      fail_msg("%s: steps are\n%s", programs[i].what, steps);
    T_TRUE(literals_within(p.got, p.want, programs[i].what, 1e-5));
    free(steps);
    free_program(&p);
  }
}

/* Convolutions in all forms. `library`: cuDNN does it; otherwise products of patches do. */
static const struct { const char *what; bool library; const char *text; } convolutions[] = {
  {"groups of the batch", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[4,5,5,2] parameter(0)\n"
   "  b = f32[3,3,2,4] parameter(1)\n"
   "  ROOT c = f32[2,3,3,4] convolution(a, b), window={size=3x3}, dim_labels=b01f_01io->b01f, batch_group_count=2\n"
   "}\n"},
  {"the gradient of a depthwise filter, whose product has strides and padding on one side", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,8,8,6] parameter(0)\n"
   "  b = f32[2,4,4,6] parameter(1)\n"
   "  ROOT c = f32[3,3,1,6] convolution(a, b), window={size=4x4 pad=0_1x0_1 rhs_dilate=2x2}, "
   "dim_labels=f01b_i01o->01bf, batch_group_count=6\n"
   "}\n"},
  {"groups of the batch and a window that is reversed", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[4,5,5,2] parameter(0)\n"
   "  b = f32[3,3,2,4] parameter(1)\n"
   "  ROOT c = f32[2,3,3,4] convolution(a, b), window={size=3x3 rhs_reversal=1x1}, "
   "dim_labels=b01f_01io->b01f, batch_group_count=2\n"
   "}\n"},
  {"groups of the batch and base dilation", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[4,3,3,2] parameter(0)\n"
   "  b = f32[3,3,2,4] parameter(1)\n"
   "  ROOT c = f32[2,3,3,4] convolution(a, b), window={size=3x3 lhs_dilate=2x2}, "
   "dim_labels=b01f_01io->b01f, batch_group_count=2\n"
   "}\n"},
  {"a window that is reversed in one dimension", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,8,8,3] parameter(0)\n"
   "  b = f32[3,2,3,4] parameter(1)\n"
   "  ROOT c = f32[2,6,7,4] convolution(a, b), window={size=3x2 rhs_reversal=1x0}, dim_labels=b01f_01io->b01f\n"
   "}\n"},
  {"the gradient of a grouped product's input", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,4,4,6] parameter(0)\n"
   "  b = f32[3,3,2,9] parameter(1)\n"
   "  ROOT c = f32[2,9,9,9] convolution(a, b), "
   "window={size=3x3 pad=2_2x2_2 lhs_dilate=2x2 rhs_reversal=1x1}, dim_labels=b01f_01io->b01f, feature_group_count=3\n"
   "}\n"},
  {"strides, dilation and padding", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,3,9,10] parameter(0)\n"
   "  b = f32[4,3,3,2] parameter(1)\n"
   "  ROOT c = f32[2,4,4,5] convolution(a, b), window={size=3x2 stride=2x2 pad=1_1x1_0 rhs_dilate=2x1}, "
   "dim_labels=bf01_oi01->bf01\n"
   "}\n"},
  {"groups of the features", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,6,6,8] parameter(0)\n"
   "  b = f32[3,3,2,12] parameter(1)\n"
   "  ROOT c = f32[2,6,6,12] convolution(a, b), window={size=3x3 pad=1_1x1_1}, "
   "dim_labels=b01f_01io->b01f, feature_group_count=4\n"
   "}\n"},
  {"the gradient of a filter", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,3,9,9] parameter(0)\n"
   "  b = f32[2,4,5,5] parameter(1)\n"
   "  ROOT c = f32[3,3,4,3] convolution(a, b), window={size=5x5 pad=1_1x1_1 rhs_dilate=2x2}, "
   "dim_labels=fb01_io01->01fb\n"
   "}\n"},
  {"negative padding", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,8,8,3] parameter(0)\n"
   "  b = f32[3,3,3,4] parameter(1)\n"
   "  ROOT c = f32[2,4,5,4] convolution(a, b), window={size=3x3 pad=-1_-1x0_-1}, dim_labels=b01f_01io->b01f\n"
   "}\n"},
  {"no spatial dimensions", true,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[5,8] parameter(0)\n"
   "  b = f32[8,4] parameter(1)\n"
   "  ROOT c = f32[5,4] convolution(a, b), window={}, dim_labels=bf_io->bf\n"
   "}\n"},
  {"integers", false,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = s32[2,6,6,3] parameter(0)\n"
   "  b = s32[3,3,3,4] parameter(1)\n"
   "  ROOT c = s32[2,4,4,4] convolution(a, b), window={size=3x3}, dim_labels=b01f_01io->b01f\n"
   "}\n"},
  {"complex numbers", false,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = c64[2,6,6,3] parameter(0)\n"
   "  b = c64[3,3,3,4] parameter(1)\n"
   "  ROOT c = c64[2,4,4,4] convolution(a, b), window={size=3x3}, dim_labels=b01f_01io->b01f\n"
   "}\n"},
  {"four spatial dimensions", false,
   "HloModule m\n"
   "ENTRY e {\n"
   "  a = f32[2,4,3,4,3,2] parameter(0)\n"
   "  b = f32[2,2,2,2,2,4] parameter(1)\n"
   "  ROOT c = f32[2,3,2,3,2,4] convolution(a, b), window={size=2x2x2x2}, dim_labels=b0123f_0123io->b0123f\n"
   "}\n"},
};

static void convolutions_run(bool has_library)
{
  uint64_t seed = 2;

  for (size_t i = 0; i < WEFT_COUNT(convolutions); i++) {
    program p;
    run_program(&p, convolutions[i].text, &seed);
    char *steps = test_steps_of(p.exe);
    if (strstr(steps, "reference") || !strstr(steps, " convolution ") != !(has_library && convolutions[i].library))
      fail_msg("%s: steps are\n%s", convolutions[i].what, steps);
    T_TRUE(literals_within(p.got, p.want, convolutions[i].what, 1e-5));
    free(steps);
    free_program(&p);
  }
}

TEST(convolutions_of_all_forms_run_on_the_device) { convolutions_run(true); }

/* No library has such a window, and there are no patches of it. */
TEST(a_window_of_no_elements_gives_zeros)
{
  static const char text[] =
    "HloModule m\n"
    "ENTRY e {\n"
    "  a = f32[1,5,5,3] parameter(0)\n"
    "  b = f32[0,3,3,4] parameter(1)\n"
    "  ROOT c = f32[1,5,3,4] convolution(a, b), window={size=0x3}, dim_labels=b01f_01io->b01f\n"
    "}\n";
  uint64_t seed = 3;
  program p;

  run_program(&p, text, &seed);
  T_TRUE(literals_within(p.got, p.want, "a window of no elements", 0));
  free_program(&p);
}

static void link_library(const char *from, const char *to, const char *name)
{
  char target[4096], path[4096];

  snprintf(target, sizeof target, "%s/%s", from, name);
  snprintf(path, sizeof path, "%s/%s", to, name);
  T_TRUE(symlink(target, path) == 0);
}

/* A process that sees no cuDNN. */
TEST(without_cudnn_convolutions_are_products_of_patches)
{
  static const char *const there[] = {"libcuda.so.1", "libcublasLt.so.13", "libcublas.so.13"};
  char folder[] = "/tmp/weft-without-cudnn-XXXXXX", command[100];
  int status;

  T_TRUE(mkdtemp(folder) != NULL);
  for (size_t i = 0; i < WEFT_COUNT(there); i++) link_library(getenv("WEFT_CUDA_LIBDIR"), folder, there[i]);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO); /* its TAP is not this program's */
    setenv("WEFT_TEST_LIBRARIES", folder, 1);
    execl("/proc/self/exe", "library_steps_test", (char *)NULL);
    _exit(98);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  snprintf(command, sizeof command, "rm -r %s", folder);
  T_TRUE(system(command) == 0);
  assert_int_equal(status, 0);
}

TEST(all_of_them_without_cudnn) { convolutions_run(false); }

/* ---- devices and errors ---- */

/* A program in which three libraries keep a state for each device: `a` transformed and back, times `b`. */
static const char three_libraries[] =
  "HloModule m\n"
  "ENTRY e {\n"
  "  a = f32[64,80] parameter(0)\n"
  "  b = f32[80,96] parameter(1)\n"
  "  f = c64[64,41] fft(a), fft_type=RFFT, fft_length={80}\n"
  "  g = f32[64,80] fft(f), fft_type=IRFFT, fft_length={80}\n"
  "  ROOT d = f32[64,96] dot(g, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
  "}\n";

enum { DEVICES = 2 };

TEST(each_device_uses_its_own_states_of_the_libraries)
{
  uint64_t seed = 4;
  program p;
  hlo_module *module;
  weft_executable *exe;
  weft_buffer *in[DEVICES][2], *out[DEVICES];
  weft_buffer *const *ins[] = {in[0], in[1]};
  weft_buffer **outs[] = {&out[0], &out[1]};

  run_program(&p, three_libraries, &seed); /* for the arguments and what the evaluator makes of them */
  weft_platform *platform = test_platform(DEVICES, 2);
  T_OK(hlo_parse(three_libraries, strlen(three_libraries), &module));
  T_OK(
    weft_compile(platform, module, &(weft_compile_options){.order = BUF_SEQUENTIAL, .replica_count = DEVICES}, &exe));
  T_EQ_INT(weft_executable_device_count(exe), DEVICES);
  for (int d = 0; d < DEVICES; d++)
    for (int i = 0; i < 2; i++)
      in[d][i] = test_buffer(weft_executable_device(exe, d), weft_executable_param_type(exe, i), p.args[i]->data);
  T_OK(weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs}));
  for (int d = 0; d < DEVICES; d++) {
    T_OK(weft_buffer_to_host(out[d], p.got->data, weft_deadline_after_ms(60000)));
    T_TRUE(literals_within(p.got, p.want, "one device of two", 1e-4));
    weft_buffer_release(out[d]);
    for (int i = 0; i < 2; i++) weft_buffer_release(in[d][i]);
  }
  weft_executable_release(exe);
  weft_platform_release(platform);
  free_program(&p);
}

/* Sets WEFT_EMU_FAULTS of the emulated driver, which is open. */
static void set_faults(const char *faults)
{
  char path[4096];

  snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("WEFT_CUDA_LIBDIR"));
  void *driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void (*reset)(void) = NULL;
  if (driver) *(void **)&reset = dlsym(driver, "weft_emu_reset");
  T_TRUE(reset != NULL);
  setenv("WEFT_EMU_FAULTS", faults, 1);
  reset();
  dlclose(driver);
}

TEST(a_call_that_fails_is_the_runs_error_and_the_next_run_succeeds)
{
  static const char *const faults[] = {"cublasLtMatmul:1=13", "cufftXtExec:2=6", "cublasSscal_v2:1=14"};
  uint64_t seed = 5;
  program p;

  run_program(&p, three_libraries, &seed);
  for (size_t i = 0; i < WEFT_COUNT(faults); i++) {
    char call[32];
    snprintf(call, sizeof call, "%.*s", (int)strcspn(faults[i], ":"), faults[i]);
    set_faults(faults[i]);
    T_FAILS(test_run(p.exe, (const void *[]){p.args[0]->data, p.args[1]->data}, (void *[]){p.got->data}), call);
    set_faults("");
    T_OK(test_run(p.exe, (const void *[]){p.args[0]->data, p.args[1]->data}, (void *[]){p.got->data}));
    T_TRUE(literals_within(p.got, p.want, "the next run", 1e-4));
  }
  free_program(&p);
}

/* ---- JAX's custom calls, with the layouts that JAX gives them ---- */

#define FACTORS                                                                                                         \
  "HloModule m\n" \
  "ENTRY e {\n" \
  "  a = f32[3,5,5] parameter(0)\n" \
  "  g = (f32[3,5,5]{1,2,0}, s32[3,5]{1,0}, s32[3]{0}) custom-call(a), " \
  "custom_call_target=\"cusolver_getrf_ffi\", operand_layout_constraints={f32[3,5,5]{1,2,0}}, " \
  "api_version=API_VERSION_TYPED_FFI, backend_config={}\n" \
  "  lu = f32[3,5,5] get-tuple-element(g), index=0\n" \
  "  p = s32[3,5] get-tuple-element(g), index=1\n" \
  "  one = s32[] constant(1)\n" \
  "  ones = s32[3,5] broadcast(one), dimensions={}\n" \
  "  p0 = s32[3,5] subtract(p, ones)\n" \
  "  o = s32[3,5] custom-call(p0), custom_call_target=\"cu_lu_pivots_to_permutation\", " \
  "api_version=API_VERSION_TYPED_FFI, backend_config={}\n" \
  "  ROOT r = (f32[3,5,5], s32[3,5]) tuple(lu, o)\n" \
  "}\n"

TEST(lu_and_its_permutation_are_the_matrix)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, FACTORS, BUF_SEQUENTIAL);
  float a[3][5][5], lu[3][5][5];
  int32_t order[3][5];
  uint64_t seed = 3;

  for (int i = 0; i < 75; i++) ((float *)a)[i] = (float)((double)(next_random(&seed) >> 11) * 0x1p-52 - 1);
  T_OK(test_run(exe, (const void *[]){a}, (void *[]){lu, order}));
  for (int i = 0; i < 3; i++)
    for (int row = 0; row < 5; row++)
      for (int col = 0; col < 5; col++) {
        double sum = 0;
        for (int k = 0; k <= row && k <= col; k++) sum += (k == row ? 1 : lu[i][row][k]) * lu[i][k][col];
        T_TRUE(fabs(sum - a[i][order[i][row]][col]) < 1e-5);
      }
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(a_factor_of_empty_matrices_succeeds)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe =
    test_compile(platform,
                 "HloModule m\nENTRY e {\n  a = f32[2,0,0] parameter(0)\n"
                 "  ROOT c = (f32[2,0,0], s32[2]) custom-call(a), custom_call_target=\"cusolver_potrf_ffi\", "
                 "api_version=API_VERSION_TYPED_FFI, backend_config={lower = true}\n}\n",
                 BUF_SEQUENTIAL);
  int32_t info[2] = {7, 7};
  float none[1];

  T_OK(test_run(exe, (const void *[]){none}, (void *[]){none, info}));
  T_EQ_INT(info[0], 0);
  T_EQ_INT(info[1], 0);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(a_custom_call_with_wrong_shapes_is_refused_when_it_is_compiled)
{
  static const char text[] = "HloModule m\nENTRY e {\n  a = f32[2,3] parameter(0)\n"
                             "  ROOT c = (f32[2,3], s32[]) custom-call(a), custom_call_target=\"cusolver_potrf_ffi\", "
                             "api_version=API_VERSION_TYPED_FFI, backend_config={lower = true}\n}\n";
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe;
  hlo_module *module;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_FAILS(weft_compile(platform, module, &(weft_compile_options){.order = BUF_SEQUENTIAL}, &exe),
          "cusolver_potrf_ffi of a matrix of 2 x 3");
  weft_platform_release(platform);
}

/* Two columns of {{0,1,0},{2,1,1},{0,1,2}} x = b, whose first pivot is 0. Columns of b are neighbours in memory. */
TEST(three_diagonals_are_solved_with_exchanges_of_rows)
{
  static const char text[] =
    "HloModule m, entry_computation_layout={(f32[3]{0}, f32[3]{0}, f32[3]{0}, f32[3,2]{1,0})->f32[3,2]{1,0}}\n"
    "ENTRY e {\n"
    "  l = f32[3]{0} parameter(0)\n"
    "  d = f32[3]{0} parameter(1)\n"
    "  u = f32[3]{0} parameter(2)\n"
    "  b = f32[3,2]{1,0} parameter(3)\n"
    "  t = f32[3,2]{0,1} copy(b)\n"
    "  x = f32[3,2]{0,1} custom-call(l, d, u, t), "
    "custom_call_target=\"cusparse_gtsv2_ffi\", "
    "operand_layout_constraints={f32[3]{0}, f32[3]{0}, f32[3]{0}, f32[3,2]{0,1}}, api_version=API_VERSION_TYPED_FFI\n"
    "  ROOT r = f32[3,2]{1,0} copy(x)\n"
    "}\n";
  static const float l[3] = {9, 2, 1}, d[3] = {0, 1, 2}, u[3] = {1, 1, 9}, b[3][2] = {{2, 1}, {7, 4}, {8, 3}};
  static const float want[3][2] = {{1, 1}, {2, 1}, {3, 1}};
  weft_platform *platform = test_platform(1, 1);
  weft_executable *exe = test_compile(platform, text, BUF_SEQUENTIAL);
  float x[3][2];

  T_OK(test_run(exe, (const void *[]){l, d, u, b}, (void *[]){x}));
  for (int i = 0; i < 6; i++) assert_float_equal(((float *)x)[i], ((const float *)want)[i], 1e-6);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* Systems with three diagonals of one column: `n` rows of l, d, u and b. */
static void solve_perturbed(const char *type, int n, const float *l, const float *d, const float *u, const float *b,
                            float *x)
{
  weft_platform *platform = test_platform(1, 1);
  char text[1024];

  snprintf(text, sizeof text,
           "HloModule m\n"
           "ENTRY e {\n"
           "  l = f32[%d] parameter(0)\n"
           "  d = f32[%d] parameter(1)\n"
           "  u = f32[%d] parameter(2)\n"
           "  b = f32[%d,1] parameter(3)\n"
           "  m = %s[%d] convert(l)\n"
           "  e = %s[%d] convert(d)\n"
           "  v = %s[%d] convert(u)\n"
           "  c = %s[%d,1] convert(b)\n"
           "  x = %s[%d,1] custom-call(m, e, v, c), custom_call_target=\"cu_tridiagonal_solve_perturbed\", "
           "api_version=API_VERSION_TYPED_FFI\n"
           "  ROOT r = f32[%d,1] convert(x)\n"
           "}\n",
           n, n, n, n, type, n, type, n, type, n, type, n, type, n, n);
  weft_executable *exe = test_compile(platform, text, BUF_SEQUENTIAL);
  T_OK(test_run(exe, (const void *[]){l, d, u, b}, (void *[]){x}));
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* What jaxlib 0.10.2 gives on the CPU (lax.linalg.tridiagonal_solve with perturb_singular). The second matrix has the
 * null vector {1, 1, 1}, the third is 0. */
TEST(a_singular_matrix_of_three_diagonals_is_perturbed)
{
  static const float l[3] = {0, 2, 1}, d[3] = {0, 1, 2}, u[3] = {1, 1, 0}, b[3] = {2, 7, 8};
  static const float l1[3] = {0, -1, -1}, d1[3] = {1, 2, 1}, u1[3] = {-1, -1, 0}, b1[3] = {1, 2, 4};
  static const float zero[1] = {0}, three[1] = {3};
  static const float none[2] = {0, 0}, d2[2] = {0, 1}, u2[2] = {1, 0}, b2[2] = {2, 3}; /* a column of zeros */
  float x[3];

  solve_perturbed("f32", 3, l, d, u, b, x);
  for (int i = 0; i < 3; i++) assert_float_equal(x[i], (float)(i + 1), 1e-6);
  solve_perturbed("f32", 3, l1, d1, u1, b1, x);
  for (int i = 0; i < 3; i++) assert_float_equal(x[i] / 5.8720252e+07F, 1, 1e-6);
  solve_perturbed("f64", 3, l1, d1, u1, b1, x);
  for (int i = 0; i < 3; i++) assert_float_equal(x[i] / 3.15251974e+16F, 1, 1e-6);
  solve_perturbed("f32", 1, zero, zero, zero, three, x);
  assert_float_equal(x[0] / 8.507059e+37F, 1, 1e-6);
  solve_perturbed("f32", 2, none, d2, u2, b2, x);
  assert_float_equal(x[0], -8.388608e+06F, 1);
  assert_float_equal(x[1], 3, 1e-6);
}

static const char sparse_text[] =
  "HloModule m\n"
  "ENTRY e {\n"
  "  v = f64[8] parameter(0)\n"
  "  c = s32[8] parameter(1)\n"
  "  s = s32[5] parameter(2)\n"
  "  b = f64[4] parameter(3)\n"
  "  ROOT x = f64[4] custom-call(v, c, s, b), custom_call_target=\"cusolver_csrlsvqr_ffi\", "
  "api_version=API_VERSION_TYPED_FFI, backend_config={reorder = 1 : i32, tol = 1.0e-6 : f64}\n"
  "}\n";

/* The matrix {{4,0,1,0},{0,2,0,0},{3,0,5,1},{0,1,0,6}}, whose third row is not in the order of columns, times
 * {1,2,3,4} is {7,4,22,26}. */
TEST(a_sparse_system_is_solved)
{
  static const double v[8] = {4, 1, 2, 5, 1, 3, 1, 6}, b[4] = {7, 4, 22, 26};
  static const double singular[8] = {4, 1, 2, 5, 1, 3, 1, 0}, same[8] = {4, 1, 0, 5, 1, 3, 1, 6};
  static const int32_t c[8] = {0, 2, 1, 2, 3, 0, 1, 3}, s[5] = {0, 2, 3, 6, 8};
  static const int32_t far[8] = {0, 2, 1, 2, 4, 0, 1, 3}, back[5] = {0, 2, 1, 6, 8};
  weft_platform *platform = test_platform(1, 1);
  weft_executable *exe = test_compile(platform, sparse_text, BUF_SEQUENTIAL);
  double x[4];

  T_OK(test_run(exe, (const void *[]){v, c, s, b}, (void *[]){x}));
  for (int i = 0; i < 4; i++) assert_float_equal(x[i], i + 1, 1e-12);
  T_FAILS(test_run(exe, (const void *[]){same, c, s, b}, (void *[]){x}), "the matrix is singular");
  T_FAILS(test_run(exe, (const void *[]){singular, c, s, b}, (void *[]){x}), "the matrix is singular");
  T_FAILS(test_run(exe, (const void *[]){v, far, s, b}, (void *[]){x}), "column 4 of a matrix with 4 columns");
  T_FAILS(test_run(exe, (const void *[]){v, c, back, b}, (void *[]){x}), "row 1 has entries 2 to 1 of 8");
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* r^T r + w w^T of r = {{3,1},{0,2}}, w = {4,0} is {{25,3},{3,5}}. */
TEST(a_factor_is_updated_by_a_vector)
{
  static const char text[] =
    "HloModule m\n"
    "ENTRY e {\n"
    "  r = f64[2,2] parameter(0)\n"
    "  w = f64[2] parameter(1)\n"
    "  ROOT c = (f64[2,2], f64[2]) custom-call(r, w), custom_call_target=\"cu_cholesky_update_ffi\", "
    "api_version=API_VERSION_TYPED_FFI\n"
    "}\n";
  static const double r[2][2] = {{3, 1}, {0, 2}}, w[2] = {4, 0};
  weft_platform *platform = test_platform(1, 1);
  weft_executable *exe = test_compile(platform, text, BUF_SEQUENTIAL);
  double u[2][2], rest[2];

  T_OK(test_run(exe, (const void *[]){r, w}, (void *[]){u, rest}));
  assert_float_equal(u[0][0], 5, 1e-12);
  assert_float_equal(u[0][1], 0.6, 1e-12);
  assert_float_equal(u[1][0], 0, 1e-12);
  assert_float_equal(u[1][1], sqrt(4.64), 1e-12);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* ---- tf32 ------------------------------------------------------------------------------------------------------- */

/* A product and a convolution whose operands are 1 + 2^-12, which tf32 rounds to 1. */
static void run_rounded(const char *config, float *out_dot, float *out_conv)
{
  static const char form[] = "HloModule m\n"
                             "ENTRY e {\n"
                             "  a = f32[96,96] parameter(0)\n"
                             "  i = f32[1,8,6,6] parameter(1)\n"
                             "  k = f32[8,8,3,3] parameter(2)\n"
                             "  d = f32[96,96] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}%s\n"
                             "  c = f32[1,8,4,4] convolution(i, k), window={size=3x3}, dim_labels=bf01_oi01->bf01%s\n"
                             "  ROOT r = (f32[96,96], f32[1,8,4,4]) tuple(d, c)\n"
                             "}\n";
  char text[sizeof form + 200];
  float x[96 * 96], dot[96 * 96], conv[8 * 4 * 4];

  snprintf(text, sizeof text, form, config, config);
  for (size_t i = 0; i < WEFT_COUNT(x); i++) x[i] = 1 + 0x1p-12f;
  weft_platform *platform = test_platform(1, 1);
  weft_executable *exe = test_compile(platform, text, BUF_SEQUENTIAL);
  T_OK(test_run(exe, (const void *[]){x, x, x}, (void *[]){dot, conv}));
  *out_dot = dot[1];
  *out_conv = conv[1];
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(f32_is_rounded_to_tf32_where_it_is_asked_for)
{
  const double square = (1 + 0x1p-12) * (1 + 0x1p-12);
  float dot, conv, rounded, high, highest;

  run_rounded("", &dot, &conv);
  assert_float_equal(dot, 96 * square, 1e-4);
  assert_float_equal(conv, 72 * square, 1e-4);
  setenv("WEFT_CUDA_TF32", "1", 1);
  run_rounded("", &rounded, &conv);
  run_rounded(", operand_precision={high,high}", &high, &conv);
  run_rounded(", operand_precision={highest,highest}", &highest, &conv);
  unsetenv("WEFT_CUDA_TF32");
  assert_float_equal(rounded, 96, 0);
  assert_float_equal(high, 96, 0);
  assert_float_equal(highest, 96 * square, 1e-4);
  assert_float_equal(conv, 72 * square, 1e-4);
}

/* ---- sums ------------------------------------------------------------------------------------------------------- */

/* Of few results with kept dimensions between those that are reduced, no thread adds all elements. */
TEST(a_sum_over_short_rows_and_others_is_two_kernels)
{
  static const char text[] = "HloModule m\n"
                             "add {\n"
                             "  p = f32[] parameter(0)\n"
                             "  q = f32[] parameter(1)\n"
                             "  ROOT s = f32[] add(p, q)\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[4,32,32,8,8] parameter(0)\n"
                             "  z = f32[] constant(0)\n"
                             "  ROOT r = f32[4,8] reduce(x, z), dimensions={1,2,4}, to_apply=add\n"
                             "}\n";
  static float x[4][1024][8][8];
  float got[4][8];
  int reduces = 0;

  for (int a = 0; a < 4; a++)
    for (int b = 0; b < 1024; b++)
      for (int c = 0; c < 8; c++)
        for (int d = 0; d < 8; d++) x[a][b][c][d] = (float)(a + c + d % 2); /* sums are exact */
  weft_platform *platform = test_platform(1, 1);
  weft_executable *exe = test_compile(platform, text, BUF_SEQUENTIAL);
  const hlo_module *module = weft_executable_module(exe);
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) reduces += instr->op == HLO_REDUCE;
  T_EQ_INT(reduces, 2);
  T_OK(test_run(exe, (const void *[]){x}, (void *[]){got}));
  for (int a = 0; a < 4; a++)
    for (int c = 0; c < 8; c++) assert_float_equal(got[a][c], 8192 * (a + c) + 4096, 0);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

int main(void)
{
  const char *libraries = getenv("WEFT_TEST_LIBRARIES"); /* of a process that this program has started */

  if (libraries) {
    const struct CMUnitTest alone[] = {UNIT(all_of_them_without_cudnn)};
    setenv("WEFT_CUDA_LIBDIR", libraries, 1);
    return cmocka_run_group_tests(alone, NULL, NULL);
  }
  const struct CMUnitTest units[] = {
          UNIT(f32_is_rounded_to_tf32_where_it_is_asked_for), UNIT(a_sum_over_short_rows_and_others_is_two_kernels),
          UNIT(three_diagonals_are_solved_with_exchanges_of_rows), UNIT(a_factor_is_updated_by_a_vector),
          UNIT(a_singular_matrix_of_three_diagonals_is_perturbed), UNIT(a_sparse_system_is_solved),
          UNIT(steps_are_library_calls_and_give_the_evaluators_results),
          UNIT(convolutions_of_all_forms_run_on_the_device), UNIT(a_window_of_no_elements_gives_zeros),
          UNIT(without_cudnn_convolutions_are_products_of_patches),
          UNIT(each_device_uses_its_own_states_of_the_libraries),
          UNIT(a_call_that_fails_is_the_runs_error_and_the_next_run_succeeds), UNIT(lu_and_its_permutation_are_the_matrix),
          UNIT(a_factor_of_empty_matrices_succeeds), UNIT(a_custom_call_with_wrong_shapes_is_refused_when_it_is_compiled)};
  return cmocka_run_group_tests(units, NULL, NULL);
}
