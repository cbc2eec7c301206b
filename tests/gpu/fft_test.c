/* tests/gpu/fft_test.c -- fft on the emulated cuFFT, triangular-solve and scaling on the emulated cuBLAS:
 * every form gives the evaluator's results. */
#include "library_device.h"

#include "gpu/fft.h"
#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/eval_compare.h"

static gpu_cublas *cublas;

/* One instruction on random arguments, and what the evaluator makes of them. */
typedef struct step {
  weft_arena arena;
  hlo_module *module;
  const hlo_instr *instr;
  const hlo_literal *args[2], *want;
} step;

static void make_step(step *s, const char *text, uint64_t *seed)
{
  *s = (step){.module = NULL};
  weft_arena_init(&s->arena);
  T_OK(hlo_parse(text, strlen(text), &s->module));
  T_OK(hlo_verify(s->module));
  s->instr = s->module->entry->root;
  for (int i = 0; i < s->instr->operand_count; i++)
    s->args[i] = random_literal(&s->arena, s->instr->operands[i]->shape, seed);
}

static void evaluate(step *s) { T_OK(hlo_eval_module(s->module, s->args, &HLO_EVAL_DEFAULT, &s->arena, &s->want)); }

static void free_step(step *s)
{
  hlo_module_free(s->module);
  weft_arena_fini(&s->arena);
}

/* ---- fft ---- */

static void check_fft(const char *in, const char *out, const char *kind, const char *length, double slack,
                      uint64_t *seed)
{
  char text[400];
  step s;
  gpu_fft fft;
  gpu_fft_plan *plan;

  snprintf(text, sizeof text,
           "HloModule m\n"
           "ENTRY e {\n"
           "  a = %s parameter(0)\n"
           "  ROOT f = %s fft(a), fft_type=%s, fft_length={%s}\n"
           "}\n",
           in, out, kind, length);
  make_step(&s, text, seed);
  evaluate(&s);
  T_OK(gpu_fft_init(&fft, s.instr));
  T_OK(gpu_fft_plan_new(&fft, &plan));
  wcu_ptr at[3] = {literal_on_device(s.args[0]), on_device(NULL, (size_t)hlo_shape_bytes(s.instr->shape)),
                   on_device(NULL, gpu_fft_workspace(&fft, plan))};
  if (!fft.keeps_input) CU(cuMemcpyDtoDAsync_v2(gpu_fft_copy_at(&fft, at[2]), at[0], fft.input_bytes, stream));
  T_OK(gpu_fft_enqueue(&fft, plan, stream, at[0], at[1], at[2]));
  if (fft.scale != 1) T_OK(gpu_scale_enqueue(cublas, stream, fft.is_double, fft.scale, at[1], fft.result_numbers));
  T_TRUE(literals_within(from_device(&s.arena, s.instr->shape, at[1]), s.want, text, slack));
  /* the operand is as it was */
  T_TRUE(hlo_literal_equal(from_device(&s.arena, s.instr->operands[0]->shape, at[0]), s.args[0]));
  free_device(3, at);
  gpu_fft_plan_free(plan);
  free_step(&s);
}

TEST(transforms_give_the_evaluators_results)
{
  static const char *const types[][2] = {{"c64", "f32"}, {"c128", "f64"}};
  static const struct { const char *full, *half, *length; } sizes[] = {
    {"[3,8]", "[3,5]", "8"}, {"[7]", "[4]", "7"}, {"[2,4,6]", "[2,4,4]", "4,6"}, {"[2,3,4,5]", "[2,3,4,3]", "3,4,5"}, {"[5,1]", "[5,1]", "1"}};
  uint64_t seed = 1;

  for (int type = 0; type < 2; type++)
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
      char complex_full[40], complex_half[40], real_full[40];
      double slack = type ? 1e-12 : 1e-5;
      snprintf(complex_full, sizeof complex_full, "%s%s", types[type][0], sizes[i].full);
      snprintf(complex_half, sizeof complex_half, "%s%s", types[type][0], sizes[i].half);
      snprintf(real_full, sizeof real_full, "%s%s", types[type][1], sizes[i].full);
      check_fft(complex_full, complex_full, "FFT", sizes[i].length, slack, &seed);
      check_fft(complex_full, complex_full, "IFFT", sizes[i].length, slack, &seed);
      check_fft(real_full, complex_half, "RFFT", sizes[i].length, slack, &seed);
      /* of one dimension: of several, a random half spectrum is that of no real array */
      if (!strchr(sizes[i].length, ',')) check_fft(complex_half, real_full, "IRFFT", sizes[i].length, slack, &seed);
    }
}

TEST(the_inverse_of_a_real_transform_of_several_dimensions_keeps_its_operand)
{
  uint64_t seed = 2;
  step s;
  gpu_fft forward, inverse;
  gpu_fft_plan *plans[2];

  make_step(&s,
            "HloModule m\n"
            "ENTRY e {\n"
            "  a = f32[2,4,6] parameter(0)\n"
            "  ROOT f = c64[2,4,4] fft(a), fft_type=RFFT, fft_length={4,6}\n"
            "}\n",
            &seed);
  evaluate(&s);
  step back;
  make_step(&back,
            "HloModule m\n"
            "ENTRY e {\n"
            "  a = c64[2,4,4] parameter(0)\n"
            "  ROOT f = f32[2,4,6] fft(a), fft_type=IRFFT, fft_length={4,6}\n"
            "}\n",
            &seed);
  T_OK(gpu_fft_init(&forward, s.instr));
  T_OK(gpu_fft_init(&inverse, back.instr));
  T_TRUE(forward.keeps_input && !inverse.keeps_input);
  T_OK(gpu_fft_plan_new(&forward, &plans[0]));
  T_OK(gpu_fft_plan_new(&inverse, &plans[1]));
  wcu_ptr at[4] = {literal_on_device(s.args[0]), on_device(NULL, (size_t)hlo_shape_bytes(s.instr->shape)), on_device(NULL, 4096),
                   on_device(NULL, (size_t)hlo_shape_bytes(s.args[0]->shape))};
  T_OK(gpu_fft_enqueue(&forward, plans[0], stream, at[0], at[1], at[2]));
  CU(cuMemcpyDtoDAsync_v2(gpu_fft_copy_at(&inverse, at[2]), at[1], inverse.input_bytes, stream));
  T_OK(gpu_fft_enqueue(&inverse, plans[1], stream, at[1], at[3], at[2]));
  T_OK(gpu_scale_enqueue(cublas, stream, false, inverse.scale, at[3], inverse.result_numbers));
  T_TRUE(literals_within(from_device(&s.arena, s.args[0]->shape, at[3]), s.args[0], "round trip", 1e-5));
  T_TRUE(literals_within(from_device(&s.arena, s.instr->shape, at[1]), s.want, "operand of the inverse", 1e-5));
  free_device(4, at);
  for (int i = 0; i < 2; i++) gpu_fft_plan_free(plans[i]);
  free_step(&s);
  free_step(&back);
}

TEST(transforms_that_the_library_does_not_have_are_refused)
{
  uint64_t seed = 3;
  step s;
  gpu_fft fft;
  gpu_fft_plan *plan;

  make_step(&s,
            "HloModule m\n"
            "ENTRY e {\n"
            "  a = c64[0,4] parameter(0)\n"
            "  ROOT f = c64[0,4] fft(a), fft_type=FFT, fft_length={4}\n"
            "}\n",
            &seed);
  T_CODE(gpu_fft_init(&fft, s.instr), WEFT_UNIMPLEMENTED);
  free_step(&s);
  make_step(&s,
            "HloModule m\n"
            "ENTRY e {\n"
            "  a = c64[2,4] parameter(0)\n"
            "  ROOT f = c64[2,4] fft(a), fft_type=FFT, fft_length={4}\n"
            "}\n",
            &seed);
  T_OK(gpu_fft_init(&fft, s.instr));
  set_faults("cufftMakePlanMany64:1=8,cufftMakePlanMany64:2=2");
  T_CODE(gpu_fft_plan_new(&fft, &plan), WEFT_UNIMPLEMENTED);
  T_CODE(gpu_fft_plan_new(&fft, &plan), WEFT_RESOURCE_EXHAUSTED);
  set_faults(NULL);
  free_step(&s);
}

/* ---- triangular systems ---- */

/* Adds 4 to the diagonals, so that the systems are well-conditioned.  `l` is a literal of the test. */
static void strengthen(const hlo_literal *l)
{
  int64_t n = l->shape->dims[l->shape->rank - 1];

  for (int64_t i = 0; i < hlo_shape_elems(l->shape); i++)
    if (i / n % n == i % n)
      hlo_literal_set_f64((hlo_literal *)(uintptr_t)l, i, 4 + hlo_literal_get_f64(l, i), hlo_literal_get_imag(l, i));
}

TEST(triangular_systems_give_the_evaluators_results)
{
  static const char *const types[] = {"f32", "f64", "c64", "c128"}, *const transposes[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  uint64_t seed = 4;

  for (int round = 0; round < 4 * 3 * 8; round++) {
    bool left = round & 1, lower = round & 2, unit = round & 4;
    const char *type = types[round / 24];
    char text[500];
    step s;
    gpu_triangular t;

    snprintf(text, sizeof text,
             "HloModule m\n"
             "ENTRY e {\n"
             "  a = %s[3,4,4] parameter(0)\n"
             "  b = %s[3,%s] parameter(1)\n"
             "  ROOT x = %s[3,%s] triangular-solve(a, b), left_side=%s, lower=%s, unit_diagonal=%s, transpose_a=%s\n"
             "}\n",
             type, type, left ? "4,6" : "6,4", type, left ? "4,6" : "6,4", left ? "true" : "false",
             lower ? "true" : "false", unit ? "true" : "false", transposes[round / 8 % 3]);
    make_step(&s, text, &seed);
    if (!unit) strengthen(s.args[0]);
    evaluate(&s);
    T_OK(gpu_triangular_init(&t, s.instr));
    T_EQ_INT(gpu_triangular_batch(&t), 3);
    wcu_ptr at[3] = {literal_on_device(s.args[0]), literal_on_device(s.args[1])}, addresses[6];
    for (int i = 0; i < 3; i++) {
      addresses[i] = at[0] + (wcu_ptr)(i * gpu_triangular_a_bytes(&t));
      addresses[3 + i] = at[1] + (wcu_ptr)(i * gpu_triangular_x_bytes(&t));
    }
    at[2] = on_device(addresses, sizeof addresses);
    T_OK(gpu_triangular_enqueue(&t, cublas, stream, at[0], at[1], at[2]));
    T_TRUE(literals_within(from_device(&s.arena, s.instr->shape, at[1]), s.want, text, round / 24 % 2 ? 1e-11 : 1e-4));
    free_device(3, at);
    free_step(&s);
  }
}

/* One matrix, and matrices that are too large to gain by it, have calls of their own. */
TEST(few_and_large_systems_are_solved_one_by_one)
{
  static const char *const shapes[][2] = {{"f64[6,6]", "f64[6,5]"}, {"f64[2,600,600]", "f64[2,600,1]"}};
  uint64_t seed = 5;

  for (size_t i = 0; i < WEFT_COUNT(shapes); i++) {
    char text[400];
    step s;
    gpu_triangular t;
    snprintf(text, sizeof text,
             "HloModule m\n"
             "ENTRY e {\n"
             "  a = %s parameter(0)\n"
             "  b = %s parameter(1)\n"
             "  ROOT x = %s triangular-solve(a, b), left_side=true, lower=true, unit_diagonal=false, "
             "transpose_a=NO_TRANSPOSE\n"
             "}\n",
             shapes[i][0], shapes[i][1], shapes[i][1]);
    make_step(&s, text, &seed);
    for (int64_t k = 0; k < hlo_shape_elems(s.args[0]->shape); k++)
      hlo_literal_set_f64((hlo_literal *)(uintptr_t)s.args[0], k, hlo_literal_get_f64(s.args[0], k) / 600, 0);
    strengthen(s.args[0]);
    evaluate(&s);
    T_OK(gpu_triangular_init(&t, s.instr));
    T_EQ_INT(gpu_triangular_batch(&t), 0);
    wcu_ptr at[2] = {literal_on_device(s.args[0]), literal_on_device(s.args[1])};
    T_OK(gpu_triangular_enqueue(&t, cublas, stream, at[0], at[1], 0));
    T_TRUE(literals_within(from_device(&s.arena, s.instr->shape, at[1]), s.want, text, 1e-11));
    free_device(2, at);
    free_step(&s);
  }
}

static int set_up(void **state)
{
  (void)state;
  open_device();
  T_OK(gpu_cublas_new(&cublas));
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  gpu_cublas_free(cublas);
  close_device();
  return 0;
}

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(transforms_give_the_evaluators_results),
                                     UNIT(the_inverse_of_a_real_transform_of_several_dimensions_keeps_its_operand),
                                     UNIT(transforms_that_the_library_does_not_have_are_refused),
                                     UNIT(triangular_systems_give_the_evaluators_results),
                                     UNIT(few_and_large_systems_are_solved_one_by_one)};
  return cmocka_run_group_tests(units, set_up, tear_down);
}
