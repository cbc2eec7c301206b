/* tests/gpu/on_device.c -- the program of on_device.sh: what is checked in C on a GPU, real or emulated.
 *
 *   on_device kernels FIRST COUNT    runs random programs and prints a line for each: its seed, whether a library of
 *                                    NVIDIA's computes a part of it, and a hash of its results' bits, in which all NaNs
 *                                    are one. Results of libraries are also held against the reference evaluator.
 *   on_device faults                 an illegal address and a program that does not fit; prints TAP
 *   on_device conformance            the programs of openxla/stablehlo that check themselves; prints TAP
 *
 * The device is that of WEFT_PLATFORM and WEFT_CUDA_LIBDIR. Exit status: 0 all is right, 1 not. */
#undef main /* conformance_test.c, which is linked too, has its main under another name */

#include "random_program.h"

#include "cpu/run.h"
#include "gpu/gpu_internal.h"
#include "runtime/runtime_internal.h"

int conformance_main(void);

/* ---- random programs ------------------------------------------------------------------------------------------- */

static hlo_literal *empty_like(weft_arena *arena, const hlo_shape *shape)
{
  hlo_literal *literal;
  T_OK(hlo_literal_new(arena, shape, &literal));
  for (int i = 0; hlo_shape_is_tuple(shape) && i < shape->rank; i++)
    literal->elements[i] = empty_like(arena, shape->elements[i]);
  return literal;
}

static uint64_t hash_word(uint64_t hash, uint64_t word) /* FNV-1a over words */
{
  return (hash ^ word) * UINT64_C(1099511628211);
}

static uint64_t hash_float(uint64_t hash, double value)
{
  uint64_t bits;

  if (isnan(value)) return hash_word(hash, 1);
  memcpy(&bits, &value, sizeof bits);
  return hash_word(hash, bits);
}

static uint64_t hash_array(uint64_t hash, const hlo_literal *literal)
{
  weft_dtype type = literal->shape->type;

  for (int64_t i = 0; i < hlo_shape_elems(literal->shape); i++) {
    if (weft_dtype_is_float(type) || weft_dtype_is_complex(type))
      hash = hash_float(hash_float(hash, hlo_literal_get_f64(literal, i)), hlo_literal_get_imag(literal, i));
    else hash = hash_word(hash, (uint64_t)hlo_literal_get_s64(literal, i));
  }
  return hash;
}

/* A library of NVIDIA's may add in another order than the emulated one. */
static bool uses_library(const hlo_module *module)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp)
      if (instr->op == HLO_DOT || instr->op == HLO_CONVOLUTION || instr->op == HLO_FFT ||
          instr->op == HLO_TRIANGULAR_SOLVE || instr->op == HLO_CUSTOM_CALL)
        return true;
  return false;
}

static weft_status *run_one(weft_platform *platform, const hlo_module *module, const hlo_literal *const *arguments,
                            bool is_exact, const hlo_literal *got, bool *out_library)
{
  WEFT_AUTO(weft_executable) exe = NULL;
  const void *inputs[ARGUMENTS];
  void *outputs[RESULTS];
  hlo_module *copy;

  for (int i = 0; i < ARGUMENTS; i++) inputs[i] = arguments[i]->data;
  for (int i = 0; i < RESULTS; i++) outputs[i] = got->elements[i]->data;
  WEFT_TRY(hlo_module_clone(module, &copy));
  WEFT_TRY(weft_compile(platform, copy, &(weft_compile_options){.no_excess_precision = is_exact}, &exe));
  *out_library = uses_library(weft_executable_module(exe));
  return test_run(exe, inputs, outputs);
}

/* A library's results are compared with the evaluator's, unless rounding decides what they are. */
static bool library_is_right(const hlo_module *module, const hlo_literal *const *arguments, const hlo_literal *got,
                             uint64_t seed, weft_arena *arena)
{
  hlo_eval_options eval = {.deadline = WEFT_NO_DEADLINE, .stepwise_sums = true};
  const hlo_literal *want;
  char what[64];

  snprintf(what, sizeof what, "seed %" PRIu64, seed);
  T_OK(hlo_eval_module(module, arguments, &eval, arena, &want));
  return literals_within(got, want, what, 2e-2) || is_sensitive(module, arguments, &eval, arena, want, 2e-2);
}

/* Prints the line of a seed.  False: the program does not run, or a library is wrong. */
static bool one_seed(weft_platform *platform, uint64_t seed)
{
  const hlo_literal *arguments[ARGUMENTS];
  bool is_exact = seed % 2, library = false, right = true;
  uint64_t hash = UINT64_C(14695981039346656037);
  weft_arena arena;

  weft_arena_init(&arena);
  WEFT_AUTO(hlo_module)
  module = is_exact ? exact_program(seed, &arena, arguments) : random_program(seed, NULL, &arena, arguments);
  hlo_literal *got = empty_like(&arena, hlo_shape_copy(&arena, module->entry->root->shape));
  weft_status *st = run_one(platform, module, arguments, is_exact, got, &library);
  for (int i = 0; !st && i < RESULTS; i++) hash = hash_array(hash, got->elements[i]);
  if (st) printf("%" PRIu64 " error %s\n", seed, weft_status_text(st, false));
  else if (library) right = library_is_right(module, arguments, got, seed, &arena);
  if (!st) printf("%" PRIu64 " %s %016" PRIx64 "\n", seed, library ? "library" : "kernels", hash);
  right = right && !st;
  weft_status_free(st);
  weft_arena_fini(&arena);
  return right;
}

static int kernels(uint64_t first, uint64_t count)
{
  weft_platform *platform = test_platform(1, 2);
  bool right = true;

  for (uint64_t seed = first; seed < first + count; seed++) right &= one_seed(platform, seed);
  weft_platform_release(platform);
  return !right;
}

/* ---- faults ---------------------------------------------------------------------------------------------------- */

static const char add_text[] = "HloModule additions\n"
                               "ENTRY e {\n"
                               "  x = f32[1024] parameter(0)\n"
                               "  ROOT r = f32[1024] add(x, x)\n"
                               "}";

/* Runs the program; `before_launch`, unless it is NULL, is called once the input is on the device. */
static weft_status *try_additions(weft_executable *exe, void (*before_launch)(weft_device *device))
{
  weft_device *device = weft_executable_device(exe, 0);
  float x[1024], y[1024] = {0};
  weft_buffer *in = NULL, *out = NULL;
  weft_buffer *const *ins[] = {&in};
  weft_buffer **outs[] = {&out};

  for (int i = 0; i < 1024; i++) x[i] = (float)i;
  weft_status *st = weft_buffer_from_host(device, weft_executable_param_type(exe, 0), x, &in);
  if (!st && before_launch) before_launch(device);
  if (!st) st = weft_executable_launch(exe, &(weft_launch){.inputs = ins, .outputs = outs});
  if (!st) st = weft_event_await(weft_buffer_defined(out), weft_deadline_after_ms(60000));
  if (!st) st = weft_buffer_to_host(out, y, weft_deadline_after_ms(60000));
  if (in) weft_buffer_release(in);
  if (out) weft_buffer_release(out);
  for (int i = 0; !st && i < 1024; i++)
    if (y[i] != 2 * x[i]) return WEFT_ERR(DATA_LOSS, "element %d: got %g, want %g", i, y[i], 2 * x[i]);
  return st;
}

/* The bytes are the device's and a quarter more. */
TEST(a_program_that_does_not_fit_is_refused_and_the_next_one_runs)
{
  weft_platform *platform = test_platform(1, 1);
  WEFT_AUTO(weft_executable) exe = NULL;
  weft_executable *big = NULL;
  char text[256];
  float one = 1;
  weft_buffer *x = NULL, *y = NULL;
  weft_buffer *const *ins[] = {&x};
  weft_buffer **outs[] = {&y};
  hlo_module *module;

  snprintf(text, sizeof text,
           "HloModule too_big\n"
           "ENTRY e {\n"
           "  x = f32[] parameter(0)\n"
           "  ROOT r = f32[%lld,1024] broadcast(x), dimensions={}\n"
           "}",
           (long long)(gpu_of(weft_platform_device(platform, 0))->bytes / 4096 * 5 / 4));
  T_OK(hlo_parse(text, strlen(text), &module));
  weft_status *st = weft_compile(platform, module, &(weft_compile_options){0}, &big);
  if (!st) {
    x = test_buffer(weft_platform_device(platform, 0), weft_executable_param_type(big, 0), &one);
    st = weft_executable_launch(big, &(weft_launch){.inputs = ins, .outputs = outs});
  }
  if (!st) {
    st = weft_event_await(weft_buffer_defined(y), weft_deadline_after_ms(60000));
    weft_buffer_release(y);
  }
  T_EQ_INT(weft_status_code(st), WEFT_RESOURCE_EXHAUSTED);
  T_TRUE(strstr(weft_status_text(st, true), "too_big") != NULL);
  print_message("# %s\n", weft_status_text(st, false));
  weft_status_free(st);
  if (x) weft_buffer_release(x);
  if (big) weft_executable_release(big);
  exe = test_compile(platform, add_text, BUF_TOPOLOGICAL);
  T_OK(try_additions(exe, NULL));
  weft_executable_release(WEFT_MOVE(exe));
  weft_platform_release(platform);
}

static const char bad_text[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
                               ".visible .entry bad()\n{\n.reg .b64 %rd<2>;\n.reg .b32 %r<2>;\n"
                               "mov.u64 %rd1, 16;\nmov.u32 %r1, 7;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";

/* Queues a kernel that stores to address 16 on the stream of all programs. */
static void queue_bad_kernel(weft_device *device)
{
  weft_stream *stream = weft_device_stream(device, WEFT_STREAM_COMPUTE);
  wcu_function function;
  wcu_module module;

  T_OK(gpu_enter(gpu_of(device)));
  T_OK(GPU_CALL(cuModuleLoadDataEx, &module, bad_text, 0, NULL, NULL));
  T_OK(GPU_CALL(cuModuleGetFunction, &function, module, "bad"));
  T_OK(GPU_CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, gpu_stream_handle(stream), NULL, NULL));
  gpu_leave();
  gpu_stream_used(stream);
}

TEST(an_illegal_address_fails_the_runs_behind_it_and_the_process_lives)
{
  weft_platform *platform = test_platform(1, 1), *cpu;
  weft_executable *exe = test_compile(platform, add_text, BUF_TOPOLOGICAL);

  T_OK(try_additions(exe, NULL));
  for (int i = 0; i < 2; i++) { /* the run that is queued behind the kernel, and a run after the device is lost */
    weft_status *st = try_additions(exe, i == 0 ? queue_bad_kernel : NULL);
    T_TRUE(st != NULL);
    const char *text = weft_status_text(st, true);
    if (!strstr(text, "ILLEGAL_ADDRESS")) fail_msg("run %d: %s", i, text);
    print_message("# %s\n", weft_status_text(st, false));
    weft_status_free(st);
  }
  weft_executable_release(exe);
  weft_platform_release(platform);
  setenv("WEFT_PLATFORM", "cpu", 1);
  T_OK(plat_new(&(weft_platform_options){.device_count = 1}, &cpu));
  setenv("WEFT_PLATFORM", "cuda", 1);
  exe = test_compile(cpu, add_text, BUF_TOPOLOGICAL);
  T_OK(try_additions(exe, NULL));
  weft_executable_release(exe);
  weft_platform_release(cpu);
}

static int faults(void)
{
  const struct CMUnitTest units[] = {UNIT(a_program_that_does_not_fit_is_refused_and_the_next_one_runs),
                                     UNIT(an_illegal_address_fails_the_runs_behind_it_and_the_process_lives)};

  return cmocka_run_group_tests(units, NULL, NULL);
}

int main(int argc, char **argv)
{
  const char *what = argc > 1 ? argv[1] : "";

  if (strcmp(what, "kernels") == 0 && argc == 4)
    return kernels(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
  if (strcmp(what, "faults") == 0) return faults();
  if (strcmp(what, "conformance") == 0) return conformance_main();
  fprintf(stderr, "usage: on_device kernels FIRST COUNT | faults | conformance\n");
  return 2;
}
