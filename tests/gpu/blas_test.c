/* tests/gpu/blas_test.c -- gpu/blas.c on the emulated cuBLASLt: random dots of every form give the evaluator's results,
 * what the library cannot do is refused by name, and errors of the library become errors of Weft. */
#include "library_device.h"

#include "gpu/blas.h"
#include "gpu/library.h"
#include "hlo/text.h"
#include "passes/eval_compare.h"

static gpu_blas *blas;

/* ---- a product ---- */

typedef struct product {
  weft_arena arena;
  hlo_module *module;
  const hlo_instr *dot;
  const hlo_literal *args[2], *want;
} product;

/* A dot of these types and sizes, and what the evaluator makes of random arguments. */
static void make_product(product *p, const char *in, const char *out, const int64_t *bmnk, bool batched,
                         bool lhs_swapped, bool rhs_swapped, const char *algorithm, uint64_t *seed)
{
  char text[1000], lhs[64], rhs[64], result[64], prefix[24] = "";
  int first = batched;

  if (batched) snprintf(prefix, sizeof prefix, "%" PRId64 ",", bmnk[0]);
  snprintf(lhs, sizeof lhs, "%s[%s%" PRId64 ",%" PRId64 "]", in, prefix, bmnk[lhs_swapped ? 3 : 1],
           bmnk[lhs_swapped ? 1 : 3]);
  snprintf(rhs, sizeof rhs, "%s[%s%" PRId64 ",%" PRId64 "]", in, prefix, bmnk[rhs_swapped ? 2 : 3],
           bmnk[rhs_swapped ? 3 : 2]);
  snprintf(result, sizeof result, "%s[%s%" PRId64 ",%" PRId64 "]", out, prefix, bmnk[1], bmnk[2]);
  snprintf(text, sizeof text,
           "HloModule m\n"
           "ENTRY e {\n"
           "  a = %s parameter(0)\n"
           "  b = %s parameter(1)\n"
           "  ROOT d = %s dot(a, b), %slhs_contracting_dims={%d}, rhs_contracting_dims={%d}%s%s\n"
           "}\n",
           lhs, rhs, result, batched ? "lhs_batch_dims={0}, rhs_batch_dims={0}, " : "", first + !lhs_swapped,
           first + rhs_swapped, *algorithm ? ", algorithm=" : "", algorithm);
  *p = (product){.module = NULL};
  weft_arena_init(&p->arena);
  T_OK(hlo_parse(text, strlen(text), &p->module));
  p->dot = p->module->entry->root;
  for (int i = 0; i < 2; i++) p->args[i] = random_literal(&p->arena, p->dot->operands[i]->shape, seed);
  T_OK(hlo_eval_module(p->module, p->args, &HLO_EVAL_DEFAULT, &p->arena, &p->want));
}

static void free_product(product *p)
{
  hlo_module_free(p->module);
  weft_arena_fini(&p->arena);
}

static weft_status *init(gpu_dot *dot, const product *p, bool has_bias, gpu_activation activation)
{
  return gpu_dot_init(dot, p->dot->u.dot, p->dot->operands[0]->shape, p->dot->operands[1]->shape, p->dot->shape,
                      has_bias, activation);
}

/* Runs the dot on the device; the result is in p's arena. bias, addend: NULL: there is none. */
static const hlo_literal *run_with(product *p, const gpu_dot *dot, const hlo_literal *bias, const hlo_literal *addend)
{
  gpu_dot_arrays at = {.lhs = literal_on_device(p->args[0]), .rhs = literal_on_device(p->args[1]),
                       .bias = bias ? literal_on_device(bias) : 0, .addend = addend ? literal_on_device(addend) : 0,
                       .out = on_device(NULL, (size_t)hlo_shape_bytes(p->dot->shape)),
                       .workspace = on_device(NULL, gpu_dot_workspace(dot))};

  T_OK(gpu_dot_enqueue(dot, blas, stream, &at));
  const hlo_literal *got = from_device(&p->arena, p->dot->shape, at.out);
  free_device(6, (wcu_ptr[]){at.lhs, at.rhs, at.bias, at.addend, at.out, at.workspace});
  return got;
}

static const hlo_literal *run(product *p, const gpu_dot *dot, const hlo_literal *bias)
{
  return run_with(p, dot, bias, NULL);
}

/* ---- results ---- */

static const struct { const char *in, *out, *algorithm; double slack; } kinds[] = {
  {"f32", "f32", "", 1e-5}, {"f16", "f16", "", 2e-3}, {"f16", "f32", "", 1e-5}, {"bf16", "bf16", "", 1e-2},
  {"bf16", "f32", "", 1e-5}, {"f64", "f64", "", 1e-12}, {"c64", "c64", "", 1e-5}, {"c128", "c128", "", 1e-12},
  {"f32", "f32", "dot_tf32_tf32_f32", 1e-2}, {"f32", "f32", "dot_bf16_bf16_f32", 5e-2}};

TEST(random_dots_give_the_evaluators_results)
{
  uint64_t seed = 1;

  for (int round = 0; round < 240; round++) {
    size_t kind = (size_t)round % WEFT_COUNT(kinds);
    int64_t bmnk[4];
    for (int i = 0; i < 4; i++) bmnk[i] = 1 + (int64_t)(next_random(&seed) % (i == 0 ? 4 : 50));
    if (round % 3 == 0) bmnk[3] += 150; /* such sums use a workspace */
    uint64_t form = next_random(&seed);
    product p;
    gpu_dot dot;

    make_product(&p, kinds[kind].in, kinds[kind].out, bmnk, form & 1, form & 2, form & 4, kinds[kind].algorithm, &seed);
    T_OK(init(&dot, &p, false, GPU_LINEAR));
    T_OK(gpu_dot_choose(&dot, blas, round % 2 ? 1 << 20 : 0));
    T_EQ_INT(gpu_dot_workspace(&dot) > 0, round % 2 && bmnk[3] >= 128);
    const hlo_literal *got = run(&p, &dot, NULL);
    if (!literals_within(got, p.want, kinds[kind].in, kinds[kind].slack)) fail_msg("round %d", round);
    free_product(&p);
  }
}

TEST(s8_dots_are_exact_and_need_rows_of_whole_words)
{
  uint64_t seed = 2;
  product p;
  gpu_dot dot;

  make_product(&p, "s8", "s32", (int64_t[]){3, 5, 8, 12}, true, false, true, "", &seed);
  T_OK(init(&dot, &p, false, GPU_LINEAR));
  T_OK(gpu_dot_choose(&dot, blas, 0));
  T_TRUE(literals_within(run(&p, &dot, NULL), p.want, "s8", 0));
  free_product(&p);
  make_product(&p, "s8", "s32", (int64_t[]){3, 5, 8, 10}, true, false, true, "", &seed);
  T_FAILS(init(&dot, &p, false, GPU_LINEAR), "n = 8, k = 10");
  free_product(&p);
  make_product(&p, "s8", "s32", (int64_t[]){3, 5, 8, 12}, true, false, false, "", &seed);
  T_CODE(init(&dot, &p, false, GPU_LINEAR), WEFT_UNIMPLEMENTED);
  free_product(&p);
}

/* activation(v), in f64. */
static double activated(gpu_activation activation, double v)
{
  switch (activation) {
  case GPU_RELU: return fmax(v, 0);
  case GPU_GELU: return 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  default: return v;
  }
}

TEST(what_is_added_and_the_activation_are_applied_to_the_sum)
{
  static const gpu_activation activations[] = {GPU_LINEAR, GPU_RELU, GPU_GELU};
  uint64_t seed = 3;

  for (int round = 0; round < 24; round++) {
    product p;
    gpu_dot dot;
    const int64_t n = 20;
    const char *type = round / 6 % 2 ? "bf16" : "f32";
    bool has_bias = round & 1;
    gpu_activation activation = activations[round / 2 % 3];

    make_product(&p, type, type, (int64_t[]){2, 7, n, 9}, round % 4 == 0, false, false, "", &seed);
    const hlo_literal *bias =
      random_literal(&p.arena, &(hlo_shape){.type = p.want->shape->type, .rank = 1, .dims = &n}, &seed);
    const hlo_literal *addend = round / 12 ? random_literal(&p.arena, p.want->shape, &seed) : NULL;
    T_OK(init(&dot, &p, has_bias, activation));
    T_OK(gpu_dot_choose(&dot, blas, 0));
    const hlo_literal *got = run_with(&p, &dot, has_bias ? bias : NULL, addend);
    for (int64_t i = 0; i < hlo_shape_elems(got->shape); i++) {
      double added = (has_bias ? hlo_literal_get_f64(bias, i % n) : 0) + (addend ? hlo_literal_get_f64(addend, i) : 0);
      double want = activated(activation, hlo_literal_get_f64(p.want, i) + added);
      if (!near(hlo_literal_get_f64(got, i), want, round / 6 % 2 ? 4e-2 : 1e-5))
        fail_msg("round %d, element %d: got %g, want %g", round, (int)i, hlo_literal_get_f64(got, i), want);
    }
    free_product(&p);
  }
}

/* ---- refusals ---- */

TEST(dots_that_the_library_does_not_have_are_refused_by_name)
{
  static const struct { const char *in, *out, *words; } refused[] = {
    {"s32", "s32", "dot of s32 and s32 to s32"}, {"f32", "f64", "f32 to f64"}, {"u8", "s32", "dot of u8"},
    {"f8e4m3fn", "f32", "dot of f8e4m3fn"}};
  uint64_t seed = 4;
  gpu_dot dot;
  product p;

  for (size_t i = 0; i < WEFT_COUNT(refused); i++) {
    make_product(&p, refused[i].in, refused[i].out, (int64_t[]){2, 4, 4, 4}, false, false, true, "", &seed);
    weft_status *st = init(&dot, &p, false, GPU_LINEAR);
    T_EQ_INT(weft_status_code(st), WEFT_UNIMPLEMENTED);
    T_FAILS(st, refused[i].words);
    free_product(&p);
  }
  make_product(&p, "f64", "f64", (int64_t[]){2, 4, 4, 4}, false, false, true, "", &seed);
  T_OK(init(&dot, &p, true, GPU_RELU));
  T_CODE(gpu_dot_choose(&dot, blas, 0), WEFT_UNIMPLEMENTED); /* no epilogues for f64 */
  free_product(&p);
}

/* Calls gpu_dot_enqueue with one address changed. */
static weft_status *enqueue_at(const gpu_dot *dot, wcu_ptr base, int which, wcu_ptr add)
{
  wcu_ptr at[5] = {base, base + 65536, 0, base + 2 * 65536, base + 3 * 65536};
  at[which] += add;
  return gpu_dot_enqueue(dot, blas, stream, &(gpu_dot_arrays){at[0], at[1], at[2], 0, at[3], at[4]});
}

TEST(the_emulated_library_refuses_what_the_real_one_refuses)
{
  uint64_t seed = 5;
  product p;
  gpu_dot dot;
  wcu_ptr base = on_device(NULL, 1 << 20);

  make_product(&p, "f32", "f32", (int64_t[]){1, 16, 16, 256}, false, false, false, "", &seed);
  T_OK(init(&dot, &p, false, GPU_LINEAR));
  T_OK(gpu_dot_choose(&dot, blas, 1 << 20));
  T_OK(enqueue_at(&dot, base, 0, 0));
  CU(cuStreamSynchronize(stream));
  T_FAILS(enqueue_at(&dot, base, 0, 4),
          "cublasLtMatmul: CUBLAS_STATUS_INVALID_VALUE"); /* alignment of 16 was promised */
  T_FAILS(enqueue_at(&dot, base, 3, 8), "CUBLAS_STATUS_INVALID_VALUE");
  gpu_dot other = dot;
  other.choice.workspace_bytes -= 4;
  T_FAILS(enqueue_at(&other, base, 0, 0), "CUBLAS_STATUS_INVALID_VALUE");
  other = dot;
  other.rhs_layout = dot.lhs_layout;
  T_FAILS(enqueue_at(&other, base, 0, 0), "CUBLAS_STATUS_INVALID_VALUE");
  other = dot;
  other.activation = GPU_RELU; /* not the product for which the algorithm was chosen */
  T_FAILS(enqueue_at(&other, base, 0, 0), "CUBLAS_STATUS_NOT_SUPPORTED");
  free_product(&p);
  CU(cuMemFree_v2(base));
}

TEST(errors_of_calls_keep_their_meaning)
{
  uint64_t seed = 6;
  product p;
  gpu_dot dot;
  gpu_blas *second;

  make_product(&p, "f32", "f32", (int64_t[]){1, 4, 4, 4}, false, false, false, "", &seed);
  T_OK(init(&dot, &p, false, GPU_LINEAR));
  set_faults("cublasLtCreate:1=3,cublasLtCreate:2=1,cublasLtMatmulAlgoGetHeuristic:1=15");
  T_CODE(gpu_blas_new(&second), WEFT_RESOURCE_EXHAUSTED);
  T_CODE(gpu_blas_new(&second), WEFT_UNAVAILABLE);
  T_CODE(gpu_dot_choose(&dot, blas, 0), WEFT_UNIMPLEMENTED);
  T_OK(gpu_dot_choose(&dot, blas, 0));
  set_faults(NULL);
  free_product(&p);
}

/* The last test: the context's error stays. */
TEST(a_result_outside_of_memory_is_an_error_of_the_stream)
{
  uint64_t seed = 7;
  product p;
  gpu_dot dot;
  wcu_ptr in = on_device(NULL, 64), out = on_device(NULL, 32);

  make_product(&p, "f32", "f32", (int64_t[]){1, 4, 4, 4}, false, false, false, "", &seed);
  T_OK(init(&dot, &p, false, GPU_LINEAR));
  T_OK(gpu_dot_choose(&dot, blas, 0));
  T_OK(gpu_dot_enqueue(&dot, blas, stream, &(gpu_dot_arrays){.lhs = in, .rhs = in, .out = out}));
  CU_IS(cuStreamSynchronize(stream), WCU_ERROR_ILLEGAL_ADDRESS);
  T_TRUE(strstr(emu_last_error(), "64 bytes") != NULL);
  T_CODE(gpu_dot_enqueue(&dot, blas, stream, &(gpu_dot_arrays){.lhs = in, .rhs = in, .out = out}), WEFT_INTERNAL);
  free_product(&p);
  CU(cuDevicePrimaryCtxReset_v2(0));
  make_context();
  free_device(2, (wcu_ptr[]){in, out});
}

static int set_up(void **state)
{
  (void)state;
  open_device();
  T_OK(gpu_blas_new(&blas));
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  gpu_blas_free(blas);
  close_device();
  return 0;
}

/* As in a process whose JAX or PyTorch has loaded the library from a folder that the loader does not search. */
TEST(a_copy_that_the_process_has_loaded_is_shared)
{
  char path[4200], *dir = strdup(getenv("WEFT_CUDA_LIBDIR"));
  void *shared = NULL;

  snprintf(path, sizeof path, "%s/libcublasLt.so.13", dir);
  void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  T_TRUE(loaded);
  unsetenv("WEFT_CUDA_LIBDIR");
  weft_status *st = gpu_library_open("libcublasLt.so.13", &shared);
  setenv("WEFT_CUDA_LIBDIR", dir, 1);
  T_OK(st);
  T_TRUE(gpu_library_symbol(shared, "cublasLtMatmul") != NULL);
  T_TRUE(gpu_library_symbol(shared, "cublasLtMatmul") == dlsym(loaded, "cublasLtMatmul"));
  free(dir);
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(random_dots_give_the_evaluators_results), UNIT(s8_dots_are_exact_and_need_rows_of_whole_words),
    UNIT(what_is_added_and_the_activation_are_applied_to_the_sum), UNIT(dots_that_the_library_does_not_have_are_refused_by_name),
    UNIT(the_emulated_library_refuses_what_the_real_one_refuses), UNIT(errors_of_calls_keep_their_meaning),
    UNIT(a_copy_that_the_process_has_loaded_is_shared), UNIT(a_result_outside_of_memory_is_an_error_of_the_stream)};
  return cmocka_run_group_tests(units, set_up, tear_down);
}
