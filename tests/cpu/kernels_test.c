/* tests/cpu/kernels_test.c -- The library kernels against the reference evaluator. */
#include "test.h"

#include <dirent.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codegen/model/processor.h"
#include "codegen/model/strategy.h"
#include "cpu/conv.h"
#include "cpu/conv_amx.h"
#include "cpu/dot.h"
#include "cpu/fft.h"
#include "cpu/gemm_block.h"
#include "cpu/gemm_dense.h"
#include "cpu/linalg.h"
#include "cpu/scan.h"
#include "cpu/sort.h"
#include "hlo/eval.h"
#include "hlo/infer.h"
#include "hlo/text.h"
#include "cpu/run.h"

static uint64_t seed = 1;

/* Small values, exact in every type, so that sums of products are exact too unless they are long. */
static double next_value(void)
{
  seed = seed * 6364136223846793005 + 1442695040888963407;
  return (double)(seed >> 60) - 7;
}

static hlo_literal *random_literal(weft_arena *arena, const hlo_shape *shape)
{
  hlo_literal *lit;

  T_OK(hlo_literal_new(arena, shape, &lit));
  for (int64_t i = 0; i < hlo_shape_elems(shape); i++) {
    double re = next_value(), im = next_value();
    if (weft_dtype_is_unsigned(shape->type)) re = fabs(re);
    hlo_literal_set_f64(lit, i, re, im);
  }
  return lit;
}

static void check_close(const char *what, const hlo_literal *got, const hlo_literal *want, double tolerance)
{
  double largest = 1;

  for (int64_t i = 0; i < hlo_shape_elems(want->shape); i++)
    largest = fmax(largest, fabs(hlo_literal_get_f64(want, i)));
  for (int64_t i = 0; i < hlo_shape_elems(want->shape); i++) {
    double dr = hlo_literal_get_f64(got, i) - hlo_literal_get_f64(want, i);
    double di = hlo_literal_get_imag(got, i) - hlo_literal_get_imag(want, i);
    if (!(fabs(dr) + fabs(di) <= tolerance * largest))
      fail_msg("%s: element %" PRId64 ": got %.9g, want %.9g", what, i, hlo_literal_get_f64(got, i),
               hlo_literal_get_f64(want, i));
  }
}

/* The packed form of `b`; NULL: there is none.  The caller frees it. */
static void *packed_form(const cpu_packing *packing, rt_pool *pool, const void *b)
{
  if (packing->base.bytes == 0) return NULL;
  void *form = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(packing->base.bytes, 64));
  T_TRUE(form);
  T_TRUE(packing->base.pack(&packing->base, pool, b, form));
  return form;
}

/* Runs a kernel on its operands as they lie, and once more with the packed form: the bits must be the same. */
#define RUN_TWICE(name, type, RUN)                                                                                    \
  static weft_status *name(const type *plan, rt_pool *pool, const hlo_shape *shape, const void *a, const void *b,     \
                           void *out, void *scratch)                                                                  \
  {                                                                                                                   \
    size_t bytes = (size_t)hlo_shape_bytes(shape);                                                                    \
    void *form = packed_form(&plan->packing, pool, b), *first = malloc(bytes + 1);                                    \
    weft_status *st = RUN(plan, pool, a, b, NULL, out, scratch);                                                      \
    T_TRUE(first);                                                                                                    \
    memcpy(first, out, bytes);                                                                                        \
    memset(out, 0x5a, form ? bytes : 0);                                                                              \
    if (!st && form) st = RUN(plan, pool, a, b, &(rt_form){.data = form}, out, scratch);                                                  \
    T_TRUE(memcmp(first, out, bytes) == 0);                                                                           \
    free(first);                                                                                                      \
    free(form);                                                                                                       \
    return st;                                                                                                        \
  }
RUN_TWICE(run_dot, cpu_dot, cpu_dot_run)
RUN_TWICE(run_conv, cpu_conv, cpu_conv_run)

/* Plans and runs one instruction. With out NULL it only reports the scratch that the plan wants. */
static weft_status *run_kernel(rt_pool *pool, weft_arena *arena, const hlo_instr *in, const void *a, const void *b,
                               void *out, void *scratch, int64_t *scratch_bytes)
{
  const hlo_shape *lhs = in->operands[0]->shape, *rhs = in->operand_count > 1 ? in->operands[1]->shape : NULL;
  union { cpu_dot dot; cpu_conv conv; cpu_fft fft; cpu_cholesky cholesky; cpu_triangular_solve solve; } plan;
  weft_status *st;

  *scratch_bytes = 0;
  switch (in->op) {
  case HLO_DOT:
    WEFT_TRY(cpu_dot_init(&plan.dot, in->u.dot, lhs, rhs, in->shape));
    *scratch_bytes = plan.dot.scratch_bytes;
    return out ? run_dot(&plan.dot, pool, in->shape, a, b, out, scratch) : NULL;
  case HLO_CONVOLUTION:
    WEFT_TRY(cpu_conv_init(&plan.conv, in->u.conv, lhs, rhs, in->shape));
    *scratch_bytes = plan.conv.scratch_bytes;
    st = out ? run_conv(&plan.conv, pool, in->shape, a, b, out, scratch) : NULL;
    cpu_conv_fini(&plan.conv);
    return st;
  case HLO_FFT:
    WEFT_TRY(cpu_fft_init(&plan.fft, arena, in));
    *scratch_bytes = plan.fft.scratch_bytes;
    return out ? cpu_fft_run(&plan.fft, pool, a, out, scratch) : NULL;
  case HLO_CHOLESKY:
    WEFT_TRY(cpu_cholesky_init(&plan.cholesky, in));
    return out ? cpu_cholesky_run(&plan.cholesky, pool, a, out) : NULL;
  default:
    WEFT_TRY(cpu_triangular_solve_init(&plan.solve, in));
    return out ? cpu_triangular_solve_run(&plan.solve, pool, a, b, out) : NULL;
  }
}

/* A matrix with a heavy diagonal, so that it has a factor and its systems are well conditioned. */
static void add_to_diagonal(hlo_literal *lit, double value)
{
  int64_t n = lit->shape->dims[lit->shape->rank - 1];

  for (int64_t i = 0; i < hlo_shape_elems(lit->shape); i++)
    if (i / n % n == i % n) hlo_literal_set_f64(lit, i, value, 0);
}

/* A matrix whose system is well conditioned with ones on the diagonal. */
static void shrink(hlo_literal *lit)
{
  for (int64_t i = 0; i < hlo_shape_elems(lit->shape); i++)
    hlo_literal_set_f64(lit, i, hlo_literal_get_f64(lit, i) / 2000, hlo_literal_get_imag(lit, i) / 2000);
}

/* Runs the root instruction, whose operands are parameters, by kernel and by evaluator.  Guard bytes surround what the
 * kernel writes. */
static void check_instr(rt_pool *pool, const char *shapes_and_root, double tolerance)
{
  enum { GUARD = 64 };
  WEFT_AUTO(hlo_module) module = NULL;
  hlo_eval_options options = HLO_EVAL_DEFAULT;
  weft_arena arena;
  const hlo_literal *want, *args[2];
  int64_t scratch_bytes;
  char text[2048];

  snprintf(text, sizeof text,
           "HloModule m\n"
           "ENTRY e {\n"
           "%s\n"
           "}\n",
           shapes_and_root);
  weft_arena_init(&arena);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(hlo_verify(module));
  const hlo_instr *root = module->entry->root;
  for (int i = 0; i < root->operand_count; i++) {
    hlo_literal *lit = random_literal(&arena, root->operands[i]->shape);
    if (i == 0 && (root->op == HLO_CHOLESKY || root->op == HLO_TRIANGULAR_SOLVE)) add_to_diagonal(lit, 2000);
    if (i == 0 && root->op == HLO_TRIANGULAR_SOLVE && root->u.triangular.unit_diagonal) shrink(lit);
    args[i] = lit;
  }
  T_OK(hlo_eval_instr(root, args, &options, &arena, &want));

  const void *a = args[0]->data, *b = root->operand_count > 1 ? args[1]->data : NULL;
  T_OK(run_kernel(pool, &arena, root, a, b, NULL, NULL, &scratch_bytes));
  int64_t bytes = hlo_shape_bytes(root->shape);
  char *out = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(bytes, 64) + 2 * GUARD);
  char *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(scratch_bytes, 64) + 64);
  T_TRUE(out && scratch);
  memset(out, 0x5a, (size_t)bytes + 2 * GUARD);
  memset(scratch, 0xff, (size_t)scratch_bytes); /* NaNs */
  T_OK(run_kernel(pool, &arena, root, a, b, out + GUARD, scratch, &scratch_bytes));
  for (int i = 0; i < GUARD; i++)
    if (out[i] != 0x5a || out[GUARD + bytes + i] != 0x5a) fail_msg("%s: wrote outside the result", text);
  hlo_literal got = {.shape = want->shape, .data = out + GUARD};
  check_close(text, &got, want, tolerance);
  free(out);
  free(scratch);
  weft_arena_fini(&arena);
}

static rt_pool *new_pool(void)
{
  rt_pool *pool;

  T_OK(rt_pool_new(&(rt_pool_options){.threads = 3}, &pool));
  return pool;
}

/* Operand and result types with the tolerance relative to the largest element: the rounding of the result's type. */
static const struct { const char *in, *out; double tolerance; } types[] = {
  {"f32", "f32", 1e-6},     {"f64", "f64", 1e-15},  {"c64", "c64", 1e-6},    {"c128", "c128", 1e-15}, {"f16", "f16", 1e-3},
  {"bf16", "bf16", 8e-3},   {"bf16", "f32", 1e-6},  {"f8e4m3fn", "f32", 1e-6}, {"s8", "s32", 0},      {"s32", "s32", 0},
  {"u8", "u8", 0},          {"u16", "u16", 0},      {"s64", "s64", 0},       {"s4", "s32", 0},        {"f32", "f64", 1e-6},
  {"f8e5m2", "bf16", 8e-3},
};

TEST(dot_of_every_form_and_type)
{
  static const struct { const char *lhs, *rhs, *out, *attrs; } forms[] = {
    {"3,4", "4,5", "3,5", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"33,70", "70,65", "33,65", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"70,33", "65,70", "33,65", "lhs_contracting_dims={0}, rhs_contracting_dims={1}"},
    {"1,300", "300,129", "1,129", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"130,300", "300", "130", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"300", "129,300", "129", "lhs_contracting_dims={0}, rhs_contracting_dims={1}"},
    {"300", "300", "", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"},
    {"7", "9", "7,9", "lhs_contracting_dims={}, rhs_contracting_dims={}"},
    {"50,2,2", "50,2,3", "50,2,3", "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"},
    {"2,3,20,2", "20,2,35,2", "2,2,3,35",
     "lhs_batch_dims={0,3}, rhs_batch_dims={1,3}, lhs_contracting_dims={2}, rhs_contracting_dims={0}"},
    {"3,4,20", "20,5,4", "3,5", "lhs_contracting_dims={1,2}, rhs_contracting_dims={2,0}"},
    {"3,4,20", "4,20,5", "3,5", "lhs_contracting_dims={2,1}, rhs_contracting_dims={1,0}"},
    {"18,40,19", "40,33", "18,19,33", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"3,0", "0,5", "3,5", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"0,4", "4,5", "0,5", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"5,70", "70,65", "5,65", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"}, /* skinny */
    {"5,70", "90,70", "5,90", "lhs_contracting_dims={1}, rhs_contracting_dims={1}"},
    {"11,600", "600,100", "11,100", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"11,600", "100,600", "11,100", "lhs_contracting_dims={1}, rhs_contracting_dims={1}"},
    {"100,64", "64,3", "100,3", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"64,5", "40,64", "5,40", "lhs_contracting_dims={0}, rhs_contracting_dims={1}"},
    {"260,300", "300,270", "260,270", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
  };
  WEFT_AUTO(rt_pool) pool = new_pool();
  char text[1024];

  for (size_t t = 0; t < WEFT_COUNT(types); t++) /* the largest size for some types only: the evaluator is slow */
    for (size_t i = 0; i < WEFT_COUNT(forms) - (t > 5); i++) {
      snprintf(text, sizeof text,
               "  a = %s[%s] parameter(0)\n"
               "  b = %s[%s] parameter(1)\n"
               "  ROOT r = %s[%s] dot(a, b), %s",
               types[t].in, forms[i].lhs, types[t].in, forms[i].rhs, types[t].out, forms[i].out, forms[i].attrs);
      check_instr(pool, text, types[t].tolerance);
    }
}

TEST(dot_rounds_operands_as_its_algorithm_says)
{
  WEFT_AUTO(rt_pool) pool = new_pool();

  check_instr(pool,
              "  a = f32[40,50] parameter(0)\n"
              "  b = f32[50,60] parameter(1)\n"
              "  ROOT r = f32[40,60] dot(a, b), "
              "lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_bf16_bf16_f32",
              1e-6);
}

TEST(convolution_of_every_form_and_type)
{
  static const struct { const char *lhs, *rhs, *out, *attrs; } forms[] = {
    {"2,5,6,3", "3,2,3,4", "2,3,6,4", "window={size=3x2 stride=2x1 pad=1_1x0_1}, dim_labels=b01f_01io->b01f"},
    {"1,5,6,2", "2,2,2,3", "1,10,18,3", "window={size=2x2 pad=2_1x1_2 lhs_dilate=2x3 rhs_dilate=2x1}, dim_labels=b01f_01io->b01f"},
    {"2,4,5", "3,2,6", "2,5,6", "window={size=3 pad=1_1}, dim_labels=bf0_0io->b0f, feature_group_count=2"},
    {"2,40,9", "3,20,36", "2,36,9", "window={size=3 pad=1_1}, dim_labels=bf0_0io->bf0, feature_group_count=2"},
    {"1,6,4", "2,1,8", "1,5,8", "window={size=2}, dim_labels=b0f_0io->b0f, feature_group_count=4"},
    {"2,9,9,24", "3,3,1,24", "2,9,9,24", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=24"},
    {"4,5,2", "3,2,4", "2,3,4", "window={size=3}, dim_labels=b0f_0io->b0f, batch_group_count=2"},
    {"1,2,6", "4,2,3", "1,4,4", "window={size=3 rhs_reversal=1}, dim_labels=bf0_oi0->bf0"},
    {"1,3,4,3,2", "2,2,2,2,2", "1,2,3,2,2", "window={size=2x2x2}, dim_labels=b012f_012io->b012f"},
    {"2,7,7,33", "1,1,33,40", "2,7,7,40", "window={size=1x1}, dim_labels=b01f_01io->b01f"},
    {"2,12,12,16", "3,3,16,32", "2,12,12,32", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"},
    {"3,8,8,5", "3,6,6,7", "5,3,3,7", "window={size=6x6}, dim_labels=f01b_i01o->b01f"},
    {"2,6,9,70", "6,1,3,3", "2,6,9,70", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01, feature_group_count=6"},
    {"2,6,9,11", "12,2,3,3", "2,12,4,6", "window={size=3x3 stride=2x2 pad=0_1x1_1}, dim_labels=bf01_oi01->bf01, feature_group_count=3"},
    {"2,3,7", "3,1,3", "2,3,24", "window={size=3 stride=1 pad=3_4 lhs_dilate=3 rhs_dilate=1 rhs_reversal=1}, dim_labels=bf0_oi0->bf0, feature_group_count=3"},
    {"1,4,5,20", "2,2,4,4", "1,4,6,4", "window={size=2x4 stride=1x4 pad=1_1x-1_3 rhs_dilate=1x2}, dim_labels=bf01_i01o->bf01, feature_group_count=2"},
    /* plane by plane: rows in two groups, a window that is wider than the image, three dimensions, strides */
    {"1,2,75,60", "2,1,3,3", "1,2,75,60", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01, feature_group_count=2"},
    {"2,3,6,3", "3,1,3,7", "2,3,6,3", "window={size=3x7 pad=1_1x3_3}, dim_labels=bf01_oi01->bf01, feature_group_count=3"},
    {"2,3,4,5,14", "6,1,2,3,5", "2,6,3,5,14", "window={size=2x3x5 pad=0_0x1_1x2_2}, dim_labels=bf012_oi012->bf012, feature_group_count=3"},
    {"2,3,9,40", "3,1,3,5", "2,3,9,13", "window={size=3x5 stride=1x3 pad=1_1x2_1}, dim_labels=bf01_oi01->bf01, feature_group_count=3"},
    {"2,3,9,40", "3,1,2,2", "2,3,8,19", "window={size=2x2 stride=1x2 pad=0_0x-1_-1}, dim_labels=bf01_oi01->bf01, feature_group_count=3"},
    {"2,6,19,70", "3,5,1,70", "2,6,10,70",
     "window={size=3x5 stride=1x2 pad=1_1x3_2}, dim_labels=b01f_01io->b01f, feature_group_count=70"},
    {"2,5,40,1", "3,5,1,2", "2,2,5,40", "window={size=3x5 pad=1_1x2_2}, dim_labels=b01f_01io->bf01"},
    {"3,4", "4,6", "3,6", "window={}, dim_labels=bf_io->bf"},
    {"2,5,5,3", "7,7,3,2", "2,1,1,2", "window={size=7x7 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"},
    {"2,5,5,3", "3,3,3,2", "2,1,3,2", "window={size=3x3 pad=-1_-1x0_0}, dim_labels=b01f_01io->b01f"},
    /* features before pixels: shared patches, patches of each task, tiles that begin within a line */
    {"2,5,9,11", "20,5,3,3", "2,20,9,11", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"},
    {"2,5,9,12", "70,5,3,2", "2,70,5,6", "window={size=3x2 stride=2x2 pad=1_1x2_1 rhs_dilate=1x3}, dim_labels=bf01_oi01->bf01"},
    {"3,7,6,5", "19,7,1,1", "3,19,6,5", "window={size=1x1}, dim_labels=bf01_oi01->bf01"},
    {"9,7,6,5", "19,7,1,1", "9,19,6,5", "window={size=1x1}, dim_labels=bf01_oi01->bf01"},
    {"2,4,40", "17,4,5", "2,17,33", "window={size=5 pad=-2_-1}, dim_labels=bf0_oi0->bf0"},
    {"2,4,2", "17,4,3", "2,17,11", "window={size=3 stride=3 pad=16_17}, dim_labels=bf0_oi0->bf0"},
    {"1,3,4,5,6", "16,3,2,2,2", "1,16,3,4,5", "window={size=2x2x2}, dim_labels=bf012_oi012->bf012"},
    {"8,3,9,9", "16,3,3,3", "8,16,4,3", "window={size=3x3 stride=2x3}, dim_labels=bf01_oi01->bf01"},
    {"4,230,9,9", "16,230,3,3", "4,16,9,9", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"},
    /* the last task of an image has four pixels, whose product needs more scratch than that of 64 */
    {"4,128,4,17", "64,128,3,1", "4,64,4,17", "window={size=3x1 pad=1_1x0_0}, dim_labels=bf01_oi01->bf01"},
    /* panels of lines: shared ones of many lines, of each task, of lines of one pixel, features in two parts, images in
     * two rounds */
    {"2,20,7,7", "40,20,3,3", "2,40,7,7", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"},
    {"2,3,29,21", "17,3,4,3", "2,17,28,21", "window={size=4x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"},
    {"2,4,40,1", "18,4,3,1", "2,18,40,1", "window={size=3x1 pad=1_1x0_0}, dim_labels=bf01_oi01->bf01"},
    {"1,3,20,20", "131,3,3,3", "1,131,20,20", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"},
    {"4,20,160,180", "16,20,2,1", "4,16,80,90", "window={size=2x1 stride=2x2}, dim_labels=bf01_oi01->bf01"},
    /* windows of one element with strides, which read picked pixels: few features, features in the lanes, one dimension
     * and three, a stride along one dimension, padding that no window reads, a window in the padding */
    {"4,20,160,180", "16,20,1,1", "4,16,80,90", "window={size=1x1 stride=2x2}, dim_labels=bf01_oi01->bf01"},
    {"2,7,9,8", "5,7,1,1", "2,5,3,4", "window={size=1x1 stride=3x2}, dim_labels=bf01_oi01->bf01"},
    {"2,70,14,13", "100,70,1,1", "2,100,7,7", "window={size=1x1 stride=2x2}, dim_labels=bf01_oi01->bf01"},
    {"2,64,70", "40,64,1", "2,40,24", "window={size=1 stride=3}, dim_labels=bf0_oi0->bf0"},
    {"1,32,5,6,7", "20,32,1,1,1", "1,20,3,2,3", "window={size=1x1x1 stride=2x4x3}, dim_labels=bf012_oi012->bf012"},
    {"1,64,12,11", "24,64,1,1", "1,24,12,6", "window={size=1x1 stride=1x2}, dim_labels=bf01_oi01->bf01"},
    {"1,64,12,11", "24,64,1,1", "1,24,4,4", "window={size=1x1 stride=3x3 pad=0_0x0_1}, dim_labels=bf01_oi01->bf01"},
    {"1,64,12,11", "24,64,1,1", "1,24,5,4", "window={size=1x1 stride=3x3 pad=0_1x0_0}, dim_labels=bf01_oi01->bf01"},
    /* features in the lanes: pixels and panels in parts, the last of which have four features; two blocks of k */
    {"2,70,7,7", "100,70,1,1", "2,100,7,7", "window={size=1x1}, dim_labels=bf01_oi01->bf01"},
    {"1,70,14,14", "64,70,1,1", "1,64,14,14", "window={size=1x1}, dim_labels=bf01_oi01->bf01"},
    {"1,300,9,5", "65,300,1,1", "1,65,9,5", "window={size=1x1}, dim_labels=bf01_oi01->bf01"},
    /* tiles, by planes of pairs: an odd number of features, padding of one side, strides and holes, features in two
     * tasks, one dimension and three, phases that no tap reads */
    {"2,51,9,11", "20,51,3,3", "2,20,9,11", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"},
    {"2,60,19,23", "35,60,3,2", "2,35,8,9", "window={size=3x2 stride=2x3 pad=1_0x-1_4 rhs_dilate=2x1}, dim_labels=bf01_oi01->bf01"},
    {"1,64,7,7", "80,64,3,3", "1,80,7,7", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"},
    {"2,64,70", "40,64,5", "2,40,68", "window={size=5 pad=2_0}, dim_labels=bf0_oi0->bf0"},
    {"1,32,5,6,7", "20,32,2,3,2", "1,20,4,4,6", "window={size=2x3x2}, dim_labels=bf012_oi012->bf012"},
    {"2,64,15,12", "33,64,1,1", "2,33,8,6", "window={size=1x1 stride=2x2}, dim_labels=bf01_oi01->bf01"},
    {"1,64,40,37", "33,64,3,3", "1,33,40,37", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01"},
    /* tiles, by gathered panels: an odd k, panels of each task, panels that are shared, images in two rounds */
    {"2,3,40,41", "17,3,5,5", "2,17,20,21", "window={size=5x5 stride=2x2 pad=2_2x2_2}, dim_labels=bf01_oi01->bf01"},
    {"1,33,25,23", "24,33,1,1", "1,24,25,23", "window={size=1x1}, dim_labels=bf01_oi01->bf01"},
    {"2,70,6,9", "40,70,1,1", "2,40,6,9", "window={size=1x1}, dim_labels=bf01_oi01->bf01"},
    {"5,3,400,400", "2,3,4,4", "5,2,100,100", "window={size=4x4 stride=4x4}, dim_labels=bf01_oi01->bf01"},
    /* rows of tiles, features last: an image that is spread, phases and a kernel in another order, one dimension and
     * three, features that fill no tile, long pixels, strips in several tasks, many panels, images in two rounds */
    {"2,13,11,64", "3,3,64,33", "2,13,11,33", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"},
    {"1,9,7,96", "40,96,3,2", "1,3,3,40", "window={size=3x2 stride=2x3 pad=1_0x-1_4 rhs_dilate=2x1}, dim_labels=b01f_oi01->b01f"},
    {"2,70,64", "5,64,40", "2,68,40", "window={size=5 pad=2_0}, dim_labels=b0f_0io->b0f"},
    {"1,5,6,7,32", "2,20,3,2,32", "1,5,4,6,20", "window={size=2x3x2 pad=0_1x0_0x0_0}, dim_labels=b012f_0o12i->b012f"},
    {"1,9,11,50", "3,3,50,20", "1,9,11,20", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"},
    {"1,6,5,288", "3,3,288,40", "1,6,5,40", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"},
    {"1,5,5,64", "600,64,3,3", "1,5,5,600", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_oi01->b01f"},
    {"1,40,37,64", "33,64,3,3", "1,40,37,33", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_oi01->b01f"},
    {"5,3,700,320", "1,2,320,2", "5,3,700,2", "window={size=1x2 pad=0_0x0_1}, dim_labels=b01f_01io->b01f"},
    {"2,15,12,64", "33,64,1,1", "2,8,6,33", "window={size=1x1 stride=2x2}, dim_labels=b01f_oi01->b01f"},
    /* the input where it lies: a last tile of one pixel in two, of one in one, of all, fewer pixels than two tiles,
     * images that are counted as one, a window without padding */
    {"1,7,7,64", "1,1,64,70", "1,7,7,70", "window={size=1x1}, dim_labels=b01f_01io->b01f"},
    {"1,3,11,96", "40,96,1,1", "1,3,11,40", "window={size=1x1}, dim_labels=b01f_oi01->b01f"},
    {"1,4,16,64", "1,1,64,24", "1,4,16,24", "window={size=1x1}, dim_labels=b01f_01io->b01f"},
    {"1,31,128", "1,128,80", "1,31,80", "window={size=1}, dim_labels=b0f_0io->b0f"},
    {"3,5,5,64", "24,64,1,1", "3,5,5,24", "window={size=1x1}, dim_labels=b01f_oi01->b01f"},
    {"2,9,10,64", "3,3,64,48", "2,7,8,48", "window={size=3x3}, dim_labels=b01f_01io->b01f"},
    /* features last, in place: strides and holes, lines in several tasks, runs with holes, groups, few features with
     * and without a rest of the run, negative padding */
    {"2,11,19,20", "3,3,20,24", "2,6,19,24", "window={size=3x3 stride=2x1 pad=1_1x1_1 rhs_dilate=1x1}, dim_labels=b01f_01io->b01f"},
    {"1,23,25,17", "2,3,17,35", "1,20,12,35", "window={size=2x3 stride=1x2 pad=0_0x1_0 rhs_dilate=3x1}, dim_labels=b01f_01io->b01f"},
    {"1,9,21,50", "3,2,50,13", "1,9,19,13", "window={size=3x2 pad=1_1x0_0 rhs_dilate=1x2}, dim_labels=b01f_01io->b01f"},
    {"2,9,12,40", "3,3,20,130", "2,9,12,130", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=2"},
    {"2,8,9,32", "3,3,32,3", "2,8,9,3", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"},
    {"1,8,17,19", "3,3,19,5", "1,7,15,5", "window={size=3x3 pad=1_0x1_-1}, dim_labels=b01f_01io->b01f"},
    {"2,8,19,33", "3,2,33,1", "2,3,9,1", "window={size=3x2 stride=2x2 pad=0_0x-1_0}, dim_labels=b01f_01io->b01f"},
    {"4,8,13,20", "3,3,20,4", "2,8,13,4", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, batch_group_count=2"},
    /* base dilation: output pixels are computed by classes, and some classes read holes only */
    {"2,4,5,24", "3,3,24,20", "2,8,15,20", "window={size=3x3 pad=2_1x2_2 lhs_dilate=2x3}, dim_labels=b01f_01io->b01f"},
    {"2,4,5,24", "1,1,24,20", "2,10,9,20", "window={size=1x1 lhs_dilate=3x2}, dim_labels=b01f_01io->b01f"},
    {"2,7,24", "4,24,20", "2,8,20", "window={size=4 stride=2 pad=-1_3 lhs_dilate=3 rhs_dilate=2 rhs_reversal=1}, dim_labels=b0f_0io->b0f"},
    {"2,7,48", "3,24,40", "2,13,40", "window={size=3 pad=1_1 lhs_dilate=2}, dim_labels=b0f_0io->b0f, feature_group_count=2"},
    {"4,6,24", "3,24,40", "2,19,40", "window={size=3 lhs_dilate=4}, dim_labels=b0f_0io->b0f, batch_group_count=2"},
    {"2,7,24", "2,24,20", "2,20,12", "window={size=2 lhs_dilate=2}, dim_labels=b0f_0io->bf0"},
    {"1,5,24", "3,24,20", "1,5,20", "window={size=3 stride=2 pad=1_1 lhs_dilate=2}, dim_labels=b0f_0io->b0f"},
    {"2,1,24", "3,24,20", "2,3,20", "window={size=3 pad=2_2 lhs_dilate=9}, dim_labels=b0f_0io->b0f"},
    {"16,8,8,24", "3,3,24,20", "16,3,6,20", "window={size=3x3 pad=0_-3x0_0}, dim_labels=b01f_01io->b01f"},
  };
  WEFT_AUTO(rt_pool) pool = new_pool();
  char text[1024];

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
      snprintf(text, sizeof text,
               "  a = %s[%s] parameter(0)\n"
               "  b = %s[%s] parameter(1)\n"
               "  ROOT r = %s[%s] convolution(a, b), %s",
               types[t].in, forms[i].lhs, types[t].in, forms[i].rhs, types[t].out, forms[i].out, forms[i].attrs);
      check_instr(pool, text, types[t].tolerance);
      if (strcmp(types[t].in, "f32") != 0) continue;
      cpu_dense_narrow = true; /* as with AVX2 alone */
      check_instr(pool, text, types[t].tolerance);
      cpu_dense_narrow = false;
    }
}

/* Threads of the process. */
static int count_threads(void)
{
  DIR *dir = opendir("/proc/self/task");
  int count = 0;

  T_TRUE(dir);
  for (const struct dirent *entry; (entry = readdir(dir));) count += entry->d_name[0] != '.';
  closedir(dir);
  return count;
}

/* Plans the convolution, and checks that oneDNN takes it where it is there, if `wanted`. */
static void check_taken(const char *shapes_and_root, bool wanted)
{
  WEFT_AUTO(hlo_module) module = NULL;
  cpu_conv conv;
  char text[2048];

  snprintf(text, sizeof text,
           "HloModule m\n"
           "ENTRY e {\n"
           "%s\n"
           "}\n",
           shapes_and_root);
  T_OK(hlo_parse(text, strlen(text), &module));
  const hlo_instr *root = module->entry->root;
  T_OK(cpu_conv_init(&conv, root->u.conv, root->operands[0]->shape, root->operands[1]->shape, root->shape));
  if ((conv.onednn != NULL) != (wanted && cpu_onednn_is_there() && !conv.by_tiles && !conv.by_rows))
    fail_msg("%s: oneDNN's: %d", text, conv.onednn != NULL);
  cpu_conv_fini(&conv);
}

/* One dimension to three, tiles of lines and of images, images whose last lines are not read, padding of one side and
 * more than a tile is high, strides, holes in the window, groups, kernels in another order and kernels that are cut. */
TEST(convolutions_by_onednn_are_the_evaluators)
{
  /* types and processors with which oneDNN takes it: bf16 with AVX512-BF16, f32 with AVX-512, f32 with AVX2 alone */
  enum { B = 1, F = 2, A = 4, ALL = 7 };
  static const struct { const char *lhs, *rhs, *out, *attrs; int taken; } forms[] = {
    {"2,12,13,16", "3,3,16,32", "2,12,13,32", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f", ALL},
    {"1,40,41,8", "5,3,8,24", "1,21,22,24", "window={size=5x3 stride=2x2 pad=3_3x2_2}, dim_labels=b01f_01io->b01f", ALL},
    {"1,30,9,16", "3,3,16,50", "1,26,5,50", "window={size=3x3 rhs_dilate=2x2}, dim_labels=b01f_01io->b01f", ALL},
    {"1,64,17,16", "9,1,16,17", "1,64,17,17", "window={size=9x1 pad=4_4x0_0}, dim_labels=b01f_01io->b01f", ALL},
    {"9,8,8,20", "3,3,20,33", "9,6,7,33", "window={size=3x3 pad=0_0x1_0}, dim_labels=b01f_01io->b01f", ALL},
    {"2,20,20,24", "3,3,1,24", "2,20,20,24", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=24", ALL},
    {"2,14,14,24", "3,3,4,24", "2,14,14,24", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=6", B | F},
    {"2,14,14,24", "3,3,4,48", "2,14,14,48", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=6", B | F},
    {"3,70,20", "5,20,40", "3,70,40", "window={size=5 pad=2_2}, dim_labels=b0f_0io->b0f", ALL},
    {"1,6,7,8,6", "2,3,2,6,20", "1,5,7,7,20", "window={size=2x3x2 pad=0_0x1_1x0_0}, dim_labels=b012f_012io->b012f", ALL},
    {"1,5,5,64", "3,3,64,160", "1,5,5,160", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f", ALL},
    {"2,5,5,64", "3,3,64,192", "2,5,5,192", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f", ALL},
    {"1,3,30,70", "3,3,70,128", "1,3,30,128", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f", B | F},
    {"1,6,6,40", "150,40,3,3", "1,6,6,150", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_oi01->b01f", ALL},
    {"2,33,12,11", "20,33,3,3", "2,20,12,11", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01", B | F},
    {"2,24,12,11", "24,1,5,5", "2,24,12,11", "window={size=5x5 pad=2_2x2_2}, dim_labels=bf01_oi01->bf01, feature_group_count=24", B | F},
    {"16,8,8,32", "3,3,32,32", "16,3,3,32", "window={size=3x3 stride=2x2}, dim_labels=b01f_01io->b01f", B | F},
    {"4,9,9,70", "1,1,70,40", "4,9,9,40", "window={size=1x1}, dim_labels=b01f_01io->b01f", B | A},
    {"17,8,8,64", "1,1,64,64", "17,4,4,64", "window={size=1x1 stride=2x2}, dim_labels=b01f_01io->b01f", B},
    {"1,14,14,40", "1,1,40,600", "1,7,7,600", "window={size=1x1 stride=2x2}, dim_labels=b01f_01io->b01f", B},
  };
  setenv("OMP_NUM_THREADS", "3", 1); /* read as the library is loaded, which is when the first of these is planned */
  WEFT_AUTO(rt_pool) pool = new_pool();
  const gen_processor *cpu = &gen_this_processor;
  int threads = count_threads();
  char text[1024];

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
      bool narrow = strcmp(types[t].in, "bf16") == 0;
      if (!narrow && (strcmp(types[t].in, "f32") != 0 || strcmp(types[t].out, "f32") != 0)) continue;
      snprintf(text, sizeof text,
               "  a = %s[%s] parameter(0)\n"
               "  b = %s[%s] parameter(1)\n"
               "  ROOT r = %s[%s] convolution(a, b), %s",
               types[t].in, forms[i].lhs, types[t].in, forms[i].rhs, types[t].out, forms[i].out, forms[i].attrs);
      int with = narrow ? (cpu->avx512_bf16 ? B : 0) : cpu->avx512 ? F : cpu->avx2 ? A : 0;
      check_taken(text, forms[i].taken & with);
      check_instr(pool, text, types[t].tolerance);
    }
  /* the library runs on the threads that call it; a thread of an earlier test may have been joined, but not gone */
  int more = count_threads() - threads;
  if (more > 0) fail_msg("%d threads more", more);
}

/* Shapes that no memory holds are planned at once, without arrays that oneDNN cannot count. */
TEST(convolutions_that_are_too_large_are_planned_too)
{
  check_taken("  a = bf16[1,1048576,1048576,64] parameter(0)\n"
              "  b = bf16[1,1,64,64] parameter(1)\n"
              "  ROOT r = bf16[1,1048576,1048576,64] convolution(a, b), window={size=1x1}, dim_labels=b01f_01io->b01f",
              gen_this_processor.avx512_bf16);
  check_taken("  a = bf16[1073741824,1073741824] parameter(0)\n"
              "  b = bf16[1073741824,1073741824] parameter(1)\n"
              "  ROOT r = bf16[1073741824,1073741824] convolution(a, b), dim_labels=bf_io->bf",
              false);
  check_taken("  a = f32[1,2,268435456,268435456] parameter(0)\n"
              "  b = f32[2,1,268435456,128] parameter(1)\n"
              "  ROOT r = f32[1,1,268435456,128] convolution(a, b), window={size=2x1}, dim_labels=b01f_01io->b01f",
              false);
}

/* The pass zero-sized does not see every convolution without a result. */
TEST(convolutions_without_a_result_are_planned_too)
{
  check_taken("  a = f32[1,8,8,64] parameter(0)\n"
              "  b = f32[3,3,64,0] parameter(1)\n"
              "  ROOT r = f32[1,8,8,0] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
              false);
  check_taken("  a = f32[1,2,20,64] parameter(0)\n"
              "  b = f32[3,3,64,16] parameter(1)\n"
              "  ROOT r = f32[1,0,18,16] convolution(a, b), window={size=3x3}, dim_labels=b01f_01io->b01f",
              false);
}

/* What oneDNN computes on several threads has the bits of one thread, and it leaves the caller's number of OpenMP's
 * threads alone. */
TEST(convolutions_by_onednn_are_the_same_bits_on_any_number_of_threads)
{
  static const char text[] =
    "HloModule m\n"
    "ENTRY e {\n"
    "  a = f32[2,40,40,16] parameter(0)\n"
    "  b = f32[3,3,16,64] parameter(1)\n"
    "  ROOT r = f32[2,40,40,64] convolution(a, b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f\n"
    "}\n";
  enum { IN = 2 * 40 * 40 * 16, KERNEL = 9 * 16 * 64, OUT = 2 * 40 * 40 * 64 };
  WEFT_AUTO(hlo_module) module = NULL;
  static const int threads[] = {1, 2, 7};
  cpu_conv conv;

  if (!cpu_onednn_is_there() || !gen_this_processor.avx2) T_SKIP("no oneDNN, or no AVX2");
  float *a = malloc(4 * IN), *b = malloc(4 * KERNEL), *c[] = {malloc(4 * OUT), malloc(4 * OUT)};
  T_TRUE(a && b && c[0] && c[1]);
  for (int i = 0; i < IN; i++) a[i] = (float)next_value() / 3;
  for (int i = 0; i < KERNEL; i++) b[i] = (float)next_value() / 7;
  T_OK(hlo_parse(text, strlen(text), &module));
  const hlo_instr *root = module->entry->root;
  T_OK(cpu_conv_init(&conv, root->u.conv, root->operands[0]->shape, root->operands[1]->shape, root->shape));
  T_TRUE(conv.onednn);
  void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(conv.scratch_bytes, 64));
  T_TRUE(scratch);
  for (size_t i = 0; i < WEFT_COUNT(threads); i++) {
    WEFT_AUTO(rt_pool) pool = NULL;
    T_OK(rt_pool_new(&(rt_pool_options){.threads = threads[i]}, &pool));
    T_OK(cpu_conv_run(&conv, pool, a, b, NULL, c[i > 0], scratch));
    T_TRUE(i == 0 || memcmp(c[0], c[1], 4 * OUT) == 0);
  }
  cpu_conv_fini(&conv);
  free(a), free(b), free(c[0]), free(c[1]), free(scratch);
}

/* Convolutions of one kind of kernel each, at sizes with several tasks, have the bits of one thread, with the packed
 * form of the kernel and without. */
TEST(convolutions_are_the_same_bits_on_any_number_of_threads)
{
  static const struct { const char *text; int in, kernel, out; weft_dtype type; } cases[] = {
#define CASE(type, in, kernel, out, labels) WINDOW(type, in, kernel, out, "3x3 pad=1_1x1_1", labels)
#define WINDOW(type, in, kernel, out, window, labels)                                                                   \
  "HloModule m\n"                                                                                             \
  "ENTRY e {\n"                                                                                               \
  "  a = " type "[" in "] parameter(0)\n"                                                                     \
  "  b = " type "[" kernel "] parameter(1)\n"                                                                 \
  "  ROOT r = " type "[" out "] convolution(a, b), window={size=" window "}, dim_labels=" labels "\n"    \
  "}\n"
    {CASE("f32", "2,20,40,24", "40,20,3,3", "2,40,40,24", "bf01_oi01->bf01"), 2 * 20 * 40 * 24, 40 * 20 * 9, 2 * 40 * 40 * 24, WEFT_F32},
    {CASE("bf16", "2,20,40,24", "40,20,3,3", "2,40,40,24", "bf01_oi01->bf01"), 2 * 20 * 40 * 24, 40 * 20 * 9, 2 * 40 * 40 * 24, WEFT_BF16},
    {CASE("bf16", "2,20,8,9", "80,20,3,3", "2,80,8,9", "bf01_oi01->bf01"), 2 * 20 * 8 * 9, 80 * 20 * 9, 2 * 80 * 8 * 9, WEFT_BF16},
    {CASE("bf16", "2,64,20,24", "80,64,3,3", "2,80,20,24", "bf01_oi01->bf01"), 2 * 64 * 20 * 24, 80 * 64 * 9, 2 * 80 * 20 * 24, WEFT_BF16},
    {WINDOW("bf16", "2,64,30,24", "80,64,1,1", "2,80,30,24", "1x1", "bf01_oi01->bf01"), 2 * 64 * 30 * 24, 80 * 64, 2 * 80 * 30 * 24, WEFT_BF16},
    {WINDOW("f32", "2,300,14,27", "80,300,1,1", "2,80,7,14", "1x1 stride=2x2", "bf01_oi01->bf01"), 2 * 300 * 14 * 27, 80 * 300, 2 * 80 * 7 * 14, WEFT_F32},
    {WINDOW("f32", "2,300,14,14", "80,300,1,1", "2,80,14,14", "1x1", "bf01_oi01->bf01"), 2 * 300 * 14 * 14, 80 * 300, 2 * 80 * 14 * 14, WEFT_F32},
    {CASE("f32", "2,40,24,40", "3,3,40,48", "2,40,24,48", "b01f_01io->b01f"), 2 * 40 * 24 * 40, 40 * 48 * 9, 2 * 48 * 40 * 24, WEFT_F32},
    {CASE("bf16", "2,40,24,40", "3,3,40,48", "2,40,24,48", "b01f_01io->b01f"), 2 * 40 * 24 * 40, 40 * 48 * 9, 2 * 48 * 40 * 24, WEFT_BF16},
    {CASE("bf16", "2,40,24,64", "3,3,64,48", "2,40,24,48", "b01f_01io->b01f"), 2 * 24 * 40 * 64, 64 * 48 * 9, 2 * 48 * 40 * 24, WEFT_BF16},
    {CASE("bf16", "1,8,9,64", "320,64,3,3", "1,8,9,320", "b01f_oi01->b01f"), 8 * 9 * 64, 64 * 320 * 9, 320 * 8 * 9, WEFT_BF16},
    {WINDOW("bf16", "2,7,9,128", "1,1,128,80", "2,7,9,80", "1x1", "b01f_01io->b01f"), 2 * 128 * 7 * 9, 80 * 128, 2 * 80 * 7 * 9, WEFT_BF16},
    {WINDOW("f32", "2,14,14,300", "80,300,1,1", "2,14,14,80", "1x1", "b01f_oi01->b01f"), 2 * 300 * 14 * 14, 80 * 300, 2 * 80 * 14 * 14, WEFT_F32},
    {CASE("f32", "2,40,24,40", "3,3,40,3", "2,40,24,3", "b01f_01io->b01f"), 2 * 40 * 24 * 40, 40 * 3 * 9, 2 * 3 * 40 * 24, WEFT_F32},
    {CASE("bf16", "2,40,24,40", "3,3,40,3", "2,40,24,3", "b01f_01io->b01f"), 2 * 40 * 24 * 40, 40 * 3 * 9, 2 * 3 * 40 * 24, WEFT_BF16},
#undef CASE
#undef WINDOW
  };
  static const int threads[] = {1, 2, 7};

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    WEFT_AUTO(hlo_module) module = NULL;
    cpu_conv conv;
    void *form = NULL;
    size_t bytes = weft_dtype_bytes(cases[i].type), out = bytes * (size_t)cases[i].out;
    char *a = malloc(bytes * (size_t)cases[i].in), *b = malloc(bytes * (size_t)cases[i].kernel), *c[] = {malloc(out), malloc(out)};

    T_TRUE(a && b && c[0] && c[1]);
    for (int q = 0; q < cases[i].in + cases[i].kernel; q++) {
      float x = (float)next_value() / 7;
      char *to = q < cases[i].in ? a + (size_t)q * bytes : b + (size_t)(q - cases[i].in) * bytes;
      cpu_convert(cases[i].type, to, WEFT_F32, &x, 1, 1);
    }
    T_OK(hlo_parse(cases[i].text, strlen(cases[i].text), &module));
    const hlo_instr *root = module->entry->root;
    T_OK(cpu_conv_init(&conv, root->u.conv, root->operands[0]->shape, root->operands[1]->shape, root->shape));
    T_TRUE(conv.by_tiles ==
           (cases[i].type == WEFT_BF16 && strstr(cases[i].text, "bf01_oi01") != NULL && cpu_conv_amx_fits()));
    T_TRUE(conv.by_rows == (cases[i].type == WEFT_BF16 && strstr(cases[i].text, "->b01f") != NULL &&
                            conv.in_features != 40 && cpu_conv_amx_fits()));
    void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(conv.scratch_bytes + 1, 64));
    T_TRUE(scratch);
    for (size_t q = 0; q < 2 * WEFT_COUNT(threads); q++) {
      WEFT_AUTO(rt_pool) pool = NULL;
      const rt_packing *packing = &conv.packing.base;
      T_OK(rt_pool_new(&(rt_pool_options){.threads = threads[q / 2]}, &pool));
      if (packing->bytes && !form) {
        form = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(packing->bytes, 64));
        T_TRUE(form && packing->pack(packing, pool, b, form));
      }
      memset(c[q > 0], 255, out);
      T_OK(cpu_conv_run(&conv, pool, a, b, q % 2 && form ? &(rt_form){.data = form} : NULL, c[q > 0], scratch));
      if (q && memcmp(c[0], c[1], out) != 0) fail_msg("case %zu: other bits on %d threads", i, threads[q / 2]);
    }
    cpu_conv_fini(&conv);
    free(a), free(b), free(c[0]), free(c[1]), free(scratch), free(form);
  }
}

/* `bytes` bytes that end where a page begins that nobody may touch.  *map, of *map_bytes, is unmapped by the caller. */
static char *before_guard(size_t bytes, char **map, size_t *map_bytes)
{
  size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;

  *map_bytes = whole + page;
  *map = mmap(NULL, *map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  T_TRUE(*map != MAP_FAILED && mprotect(*map + whole, page, PROT_NONE) == 0);
  return *map + whole - bytes;
}

/* Sanitizers do not see what tiles read: here memory ends with the arrays, which have any number of pixels. */
TEST(convolutions_in_place_read_nothing_behind_their_arrays)
{
  WEFT_AUTO(rt_pool) pool = new_pool();
  char text[512];

  for (int pixels = 1; pixels < 70; pixels++) {
    WEFT_AUTO(hlo_module) module = NULL;
    cpu_conv conv;
    char *map[3];
    size_t map_bytes[3];
    snprintf(text, sizeof text,
             "HloModule m\n"
             "ENTRY e {\n"
             "  a = bf16[1,%d,160] parameter(0)\n"
             "  b = bf16[1,160,80] parameter(1)\n"
             "  ROOT r = bf16[1,%d,80] convolution(a, b), window={size=1}, dim_labels=b0f_0io->b0f\n"
             "}\n",
             pixels, pixels);
    T_OK(hlo_parse(text, strlen(text), &module));
    const hlo_instr *root = module->entry->root;
    const hlo_shape *shapes[] = {root->operands[0]->shape, root->operands[1]->shape, root->shape};
    char *arrays[3];
    for (int i = 0; i < 3; i++) arrays[i] = before_guard((size_t)hlo_shape_bytes(shapes[i]), &map[i], &map_bytes[i]);
    const uint16_t one = 0x3f80, sum = 0x4320; /* 1 and 160 */
    for (int i = 0; i < 2; i++)
      for (int64_t q = 0; q < hlo_shape_elems(shapes[i]); q++) memcpy(arrays[i] + 2 * q, &one, sizeof one);
    T_OK(cpu_conv_init(&conv, root->u.conv, shapes[0], shapes[1], root->shape));
    char *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(conv.scratch_bytes + 1, 64));
    void *form = packed_form(&conv.packing, pool, arrays[1]);
    T_TRUE(scratch);
    T_OK(cpu_conv_run(&conv, pool, arrays[0], arrays[1], form ? &(rt_form){.data = form} : NULL, arrays[2], scratch));
    for (int64_t q = 0; q < hlo_shape_elems(shapes[2]); q++) T_TRUE(memcmp(arrays[2] + 2 * q, &sum, sizeof sum) == 0);
    cpu_conv_fini(&conv);
    free(scratch), free(form);
    for (int i = 0; i < 3; i++) munmap(map[i], map_bytes[i]);
  }
}

TEST(fft_of_every_kind_and_length)
{
  static const int lengths[] = {1, 2, 3, 4, 7, 8, 17, 29, 30, 31, 36, 64, 97, 128, 143, 194, 211, 713, 1000, 1024, 4096, 4620};
  static const struct { const char *kind, *c, *r; double tolerance; } kinds[] = {
    {"FFT", "c64", "c64", 1e-6},  {"IFFT", "c64", "c64", 1e-6},   {"RFFT", "c64", "f32", 1e-6},   {"IRFFT", "c64", "f32", 1e-6},
    {"FFT", "c128", "c128", 1e-14}, {"IFFT", "c128", "c128", 1e-14}, {"RFFT", "c128", "f64", 1e-14}, {"IRFFT", "c128", "f64", 1e-14},
  };
  WEFT_AUTO(rt_pool) pool = new_pool();
  char text[512], full[16], half[16];

  for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
    for (size_t i = 0; i < WEFT_COUNT(lengths); i++) {
      int n = lengths[i], lines = n == 713 || n == 1000 ? 19 : 3; /* 19: tasks of few lines, and one of fewer */
      bool to_half = kinds[k].kind[0] == 'R', from_half = !strcmp(kinds[k].kind, "IRFFT");
      snprintf(full, sizeof full, "%d", n);
      snprintf(half, sizeof half, "%d", n / 2 + 1);
      const char *in = from_half ? half : full, *out = to_half ? half : full;
      const char *in_type = to_half ? kinds[k].r : kinds[k].c, *out_type = from_half ? kinds[k].r : kinds[k].c;
      snprintf(text, sizeof text,
               "  a = %s[%d,%s] parameter(0)\n"
               "  ROOT r = %s[%d,%s] fft(a), fft_type=%s, fft_length={%d}",
               in_type, lines, in, out_type, lines, out, kinds[k].kind, n);
      check_instr(pool, text, kinds[k].tolerance);
      snprintf(text, sizeof text,
               "  a = %s[2,5,19,%s] parameter(0)\n"
               "  ROOT r = %s[2,5,19,%s] fft(a), fft_type=%s, fft_length={5,19,%d}",
               in_type, in, out_type, out, kinds[k].kind, n);
      if (n <= 36) check_instr(pool, text, kinds[k].tolerance);
    }
}

TEST(long_fft_lines_are_the_same_bits_on_any_number_of_threads)
{
  static const int threads[] = {1, 2, 7, 64};
  static const struct { const char *text; int64_t in, out; } cases[] = {
    {"  a = c64[131072] parameter(0)\n"
     "  ROOT r = c64[131072] fft(a), fft_type=IFFT, fft_length={131072}", 262144, 262144},
    {"  a = f32[2,120000] parameter(0)\n"
     "  ROOT r = c64[2,60001] fft(a), fft_type=RFFT, fft_length={120000}", 240000, 240004},
    {"  a = c64[2,60001] parameter(0)\n"
     "  ROOT r = f32[2,120000] fft(a), fft_type=IRFFT, fft_length={120000}", 240004, 240000},
  };

  for (size_t k = 0; k < WEFT_COUNT(cases); k++) {
    WEFT_AUTO(hlo_module) module = NULL;
    char text[512];
    cpu_fft fft;
    snprintf(text, sizeof text, "HloModule m\nENTRY e {\n%s\n}\n", cases[k].text);
    T_OK(hlo_parse(text, strlen(text), &module));
    T_OK(cpu_fft_init(&fft, &module->arena, module->entry->root));
    T_TRUE(fft.longs && fft.scratch_bytes > 0);
    float *in = malloc((size_t)cases[k].in * sizeof *in), *out[2];
    void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(fft.scratch_bytes, 64));
    for (int i = 0; i < 2; i++) out[i] = calloc((size_t)cases[k].out, sizeof(float));
    T_TRUE(in && scratch && out[0] && out[1]);
    for (int64_t i = 0; i < cases[k].in; i++) in[i] = (float)((i * 2654435761u >> 8) % 1000) / 500 - 1;
    for (size_t t = 0; t < WEFT_COUNT(threads); t++) {
      WEFT_AUTO(rt_pool) pool = NULL;
      T_OK(rt_pool_new(&(rt_pool_options){.threads = threads[t]}, &pool));
      T_OK(cpu_fft_run(&fft, pool, in, out[t > 0], scratch));
      T_TRUE(memcmp(out[0], out[t > 0], (size_t)cases[k].out * sizeof(float)) == 0);
    }
    free(in), free(out[0]), free(out[1]), free(scratch);
  }
}

TEST(cholesky_and_triangular_solve_of_every_form)
{
#ifndef HAVE_OPENBLAS
  T_SKIP("this build has no OpenBLAS: tests/without_libraries_test.sh has what computes them");
#endif
  static const struct { const char *type; double tolerance; } kinds[] = {{"f32", 1e-5}, {"f64", 1e-14}, {"c64", 1e-5}, {"c128", 1e-14}};
  static const char *const words[] = {"false", "true"}, *const ops[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  WEFT_AUTO(rt_pool) pool = new_pool();
  char text[512];

  for (size_t t = 0; t < WEFT_COUNT(kinds); t++) {
    static const int sides[] = {1, 2, 17, 32, 40, 63, 64, 65, 100};
    for (int form = 0; form < 2 * (int)WEFT_COUNT(sides); form++) {
      int n = sides[form / 2];
      snprintf(text, sizeof text,
               "  a = %s[3,%d,%d] parameter(0)\n"
               "  ROOT r = %s[3,%d,%d] cholesky(a), lower=%s",
               kinds[t].type, n, n, kinds[t].type, n, n, words[form & 1]);
      check_instr(pool, text, kinds[t].tolerance);
    }
    for (int form = 0; form < 24; form++) {
      const char *shape = form & 1 ? "2,20,300" : "2,300,20";
      snprintf(text, sizeof text,
               "  a = %s[2,20,20] parameter(0)\n"
               "  b = %s[%s] parameter(1)\n"
               "  ROOT r = %s[%s] triangular-solve(a, b), "
               "left_side=%s, lower=%s, unit_diagonal=%s, transpose_a=%s",
               kinds[t].type, kinds[t].type, shape, kinds[t].type, shape, words[form & 1], words[form >> 1 & 1],
               "false", ops[(form >> 3) % 3]);
      check_instr(pool, text, kinds[t].tolerance);
    }
    /* One right-hand side, few and many, in every layout of both operands; sizes that fill blocks and that do not. */
    static const struct { int n, columns; } systems[] = {{33, 1}, {40, 1}, {95, 1}, {96, 5}, {100, 16}, {101, 9}, {130, 40}, {110, 700}};
    for (int form = 0; form < 16 * (int)WEFT_COUNT(systems); form++) {
      int n = systems[form / 16].n, columns = systems[form / 16].columns;
      bool left = form & 1;
      if (n > 101 && (form + (int)t) % 4) continue; /* the evaluator is slow: each form with one of the types */
      snprintf(text, sizeof text,
               "  a = %s[2,%d,%d] parameter(0)\n"
               "  b = %s[2,%d,%d] parameter(1)\n"
               "  ROOT r = %s[2,%d,%d] triangular-solve(a, b), "
               "left_side=%s, lower=%s, unit_diagonal=%s, transpose_a=%s",
               kinds[t].type, n, n, kinds[t].type, left ? n : columns, left ? columns : n, kinds[t].type,
               left ? n : columns, left ? columns : n, words[left], words[form >> 1 & 1], words[form >> 2 & 1],
               ops[form >> 3 & 1]);
      check_instr(pool, text, kinds[t].tolerance);
    }
  }
}

/* ---- transposing copies ----------------------------------------------------------------------------------------- */

/* Copies an array of `size` in the order of dimensions `order`, and compares each element with its source. */
static void check_transpose(rt_pool *pool, const int64_t *size, const int *order, int rank, int64_t bytes)
{
  cpu_transpose t = {.rank = rank, .elems = 1, .elem_bytes = bytes};
  int64_t steps[4];

  for (int d = rank - 1; d >= 0; d--) {
    steps[d] = t.elems;
    t.elems *= size[d];
  }
  for (int d = 0; d < rank; d++) {
    t.size[d] = size[order[d]];
    t.step[d] = steps[order[d]];
  }
  uint8_t *src = malloc((size_t)(t.elems * bytes)),
          *dst = malloc((size_t)(t.elems * bytes)); /* exact, for sanitizers */
  T_TRUE(src && dst);
  for (int64_t i = 0; i < t.elems * bytes; i++) src[i] = (uint8_t)(i / bytes * 37 + i / bytes / 251 + i % bytes * 101);
  cpu_transpose_run(&t, pool, dst, src);
  for (int64_t i = 0; i < t.elems; i++) {
    int64_t rest = i, from = 0;
    for (int d = rank - 1; d >= 0; d--) {
      from += rest % t.size[d] * t.step[d];
      rest /= t.size[d];
    }
    if (memcmp(dst + i * bytes, src + from * bytes, (size_t)bytes) != 0)
      fail_msg("[%lld,%lld,%lld,%lld] of %lld bytes, order %d %d %d %d: element %lld", (long long)size[0],
               (long long)size[1], (long long)size[2], (long long)size[3], (long long)bytes, order[0], order[1],
               order[2], order[3], (long long)i);
  }
  free(src);
  free(dst);
}

TEST(transposes_in_every_order_are_exact)
{
  static const int64_t sizes[][4] = {{1, 1, 1, 1}, {2, 3, 4, 5}, {9, 1, 17, 8}, {33, 3, 3, 40}, {8, 8, 8, 8}, {1, 65, 1, 300}};
  WEFT_AUTO(rt_pool) pool = new_pool();

  for (size_t s = 0; s < WEFT_COUNT(sizes); s++)
    for (int code = 0; code < 256; code++) {
      int order[4] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
      if ((1 << order[0] | 1 << order[1] | 1 << order[2] | 1 << order[3]) != 15) continue;
      for (int64_t bytes = 1; bytes <= 16; bytes *= 2) check_transpose(pool, sizes[s], order, 4, bytes);
    }
}

/* ---- sort and top-k -------------------------------------------------------------------------------------------- */

static const char jax_less[] = "  a = T[] parameter(0)\n"
                               "  b = T[] parameter(1)\n"
                               "  n = T[] constant(nan)\n"
                               "  z = T[] constant(0)\n"
                               "  na = pred[] compare(a, a), direction=NE\n"
                               "  za = pred[] compare(a, z), direction=EQ\n"
                               "  sa = T[] select(za, z, a)\n"
                               "  ka = T[] select(na, n, sa)\n"
                               "  nb = pred[] compare(b, b), direction=NE\n"
                               "  zb = pred[] compare(b, z), direction=EQ\n"
                               "  sb = T[] select(zb, z, b)\n"
                               "  kb = T[] select(nb, n, sb)\n";
static const char plain[] = "  a = T[] parameter(0)\n"
                            "  b = T[] parameter(1)\n";

static char *with_type(char *to, size_t size, const char *text, const char *type)
{
  size_t n = 0;
  for (; *text && n + 8 < size; text++) {
    if (text[0] == 'T' && text[1] == '[') n += (size_t)snprintf(to + n, size - n, "%s", type);
    else to[n++] = *text;
  }
  to[n] = 0;
  return to;
}

/* What a key operand is filled with. ANY_BITS are random bytes: NaNs of many payloads among floats. */
typedef enum sortable { FEW_VALUES, FEW_VALUES_AND_NANS, ANY_BITS } sortable;

/* Zeros and NaNs of both signs, infinities, and so few other values that many elements are equal. */
static void fill_sortable(hlo_literal *lit, sortable with)
{
  bool nans = with == FEW_VALUES_AND_NANS;
  static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, 1, -1, 2.5, -3, 7, 100, -100};
  weft_dtype type = lit->shape->type;

  for (int64_t i = 0; with == ANY_BITS && i < hlo_shape_bytes(lit->shape); i++)
    ((uint8_t *)lit->data)[i] = (uint8_t)((int)(next_value() + 7) * 16 + (int)(next_value() + 7));
  for (int64_t i = 0; with != ANY_BITS && i < hlo_shape_elems(lit->shape); i++) {
    unsigned pick = (unsigned)(fabs(next_value()) * 9 + fabs(next_value())) % 40;
    if (weft_dtype_is_float(type)) {
      hlo_literal_set_f64(lit, i,
                          pick < 11           ? special[pick]
                          : pick < 14 && nans ? copysign(NAN, pick == 12 ? -1 : 1)
                                              : pick,
                          0);
    } else {
      hlo_literal_set_s64(lit, i, (int64_t)pick - (weft_dtype_is_unsigned(type) ? 0 : 20));
    }
  }
}

static const struct { const char *type, *body, *root; bool nans; } orders[] = {
  {"f32", jax_less, "compare(ka, kb), direction=LT, type=TOTALORDER", true},
  {"bf16", jax_less, "compare(ka, kb), direction=LT, type=TOTALORDER", true},
  {"f64", jax_less, "compare(ka, kb), direction=GT, type=TOTALORDER", true},
  {"f16", plain, "compare(a, b), direction=LT, type=TOTALORDER", true},
  {"f32", plain, "compare(a, b), direction=GT, type=TOTALORDER", true},
  {"f32", plain, "compare(a, b), direction=LT", false},
  {"f32", plain, "compare(b, a), direction=LT", false},
  {"s32", plain, "compare(a, b), direction=LT", false},
  {"s64", plain, "compare(a, b), direction=GT", false},
  {"u8", plain, "compare(a, b), direction=LT", false},
  {"u64", plain, "compare(a, b), direction=LT", false},
  {"s16", plain, "compare(b, a), direction=GT", false},
  {"pred", plain, "compare(a, b), direction=LT", false},
};

/* operands: the keys. The last of several operands is an s32 that distinguishes equal keys. */
static void check_sort(rt_pool *pool, const char *module_text, sortable with, bool in_place)
{
  WEFT_AUTO(hlo_module) module = NULL;
  hlo_eval_options options = HLO_EVAL_DEFAULT;
  const hlo_literal *want, *args[4];
  void *ins[4], *outs[4];
  weft_arena arena;
  cpu_sort sort;

  weft_arena_init(&arena);
  T_OK(hlo_parse(module_text, strlen(module_text), &module));
  T_OK(hlo_verify(module));
  const hlo_instr *root = module->entry->root;
  for (int i = 0; i < root->operand_count; i++) {
    hlo_literal *lit;
    T_OK(hlo_literal_new(&arena, root->operands[i]->shape, &lit));
    if (i + 1 == root->operand_count && i > 0)
      for (int64_t k = 0; k < hlo_shape_elems(lit->shape); k++) hlo_literal_set_s64(lit, k, k);
    else fill_sortable(lit, with);
    args[i] = lit;
  }
  T_OK(hlo_eval_instr(root, args, &options, &arena, &want));
  T_OK(cpu_sort_init(&sort, root, NULL));
  char *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(sort.scratch_bytes, 64) + 64);
  T_TRUE(scratch);
  for (int i = 0; i < root->operand_count; i++) {
    ins[i] = args[i]->data;
    outs[i] = in_place ? ins[i] : malloc((size_t)hlo_shape_bytes(args[i]->shape) + 1);
  }
  T_OK(cpu_sort_run(&sort, pool, ins, outs, scratch));
  for (int i = 0; i < root->operand_count; i++) {
    const hlo_literal *w = root->operand_count > 1 ? want->elements[i] : want;
    if (memcmp(outs[i], w->data, (size_t)hlo_shape_bytes(w->shape)) != 0)
      fail_msg("operand %d differs:\n%s", i, module_text);
    if (!in_place) free(outs[i]);
  }
  free(scratch);
  weft_arena_fini(&arena);
}

TEST(sort_is_the_evaluators_to_the_bit)
{
  static const struct { const char *dims; int dim; } shapes[] = {{"7", 0}, {"5,33", 1}, {"33,5", 0}, {"3,300", 1}, {"3,700", 1},
                                                                 {"0,4", 1}, {"300000", 0}};
  WEFT_AUTO(rt_pool) pool = new_pool();
  char text[4096], body[2048];

  for (size_t o = 0; o < WEFT_COUNT(orders); o++)
    for (size_t s = 0; s < WEFT_COUNT(shapes) - (o > 0); s++) {
      const char *dims = shapes[s].dims, *type = orders[o].type;
      snprintf(text, sizeof text,
               "HloModule m\n"
               "less {\n"
               "%s\n"
               "  c = s32[] parameter(2)\n"
               "  d = s32[] parameter(3)\n"
               "  ROOT r = pred[] %s\n"
               "}\n"
               "ENTRY e {\n"
               "  k = %s[%s] parameter(0)\n"
               "  i = s32[%s] parameter(1)\n"
               "  ROOT r = (%s[%s], s32[%s]) sort(k, i), dimensions={%d}, is_stable=true, to_apply=less\n"
               "}\n",
               with_type(body, sizeof body, orders[o].body, type), orders[o].root, type, dims, dims, type, dims, dims,
               shapes[s].dim);
      check_sort(pool, text, orders[o].nans ? FEW_VALUES_AND_NANS : FEW_VALUES, false);
      check_sort(pool, text, orders[o].nans ? FEW_VALUES_AND_NANS : FEW_VALUES, true);
    }
}

/* A sort of one operand by its values sorts no positions with it. Equal elements with different bits keep their order
 * nevertheless. */
TEST(sort_of_one_operand_is_the_evaluators_to_the_bit)
{
  static const struct { const char *dims; int dim; } shapes[] = {{"1", 0}, {"5,33", 1}, {"33,5", 0}, {"2,300", 1}, {"3,700", 1}, {"900,3", 0},
                                                                 {"2,5000", 1}, {"0,4", 1}, {"140000", 0}, {"132000,2", 0}};
  WEFT_AUTO(rt_pool) pool = new_pool();
  char text[4096], body[2048];

  for (size_t o = 0; o < WEFT_COUNT(orders); o++)
    for (size_t s = 0; s < WEFT_COUNT(shapes) - (o % 4 ? 2 : 0); s++) {
      const char *dims = shapes[s].dims, *type = orders[o].type;
      sortable few = orders[o].nans ? FEW_VALUES_AND_NANS : FEW_VALUES;
      bool any = orders[o].nans ||
                 (strcmp(type, "f32") != 0 && strcmp(type, "pred") != 0); /* NaNs have no place in a plain order */
      snprintf(text, sizeof text,
               "HloModule m\n"
               "less {\n"
               "%s"
               "  ROOT r = pred[] %s\n"
               "}\n"
               "ENTRY e {\n"
               "  k = %s[%s] parameter(0)\n"
               "  ROOT r = %s[%s] sort(k), dimensions={%d}, is_stable=true, to_apply=less\n"
               "}\n",
               with_type(body, sizeof body, orders[o].body, type), orders[o].root, type, dims, type, dims,
               shapes[s].dim);
      bool large = s >= WEFT_COUNT(shapes) - 2; /* the evaluator is slow: one of the three */
      if (!large || o % 3 == 0) check_sort(pool, text, few, false);
      if (!large || o % 3 == 1) check_sort(pool, text, any ? ANY_BITS : few, false);
      if (!large || o % 3 == 2) check_sort(pool, text, any ? ANY_BITS : few, true);
    }
}

TEST(sort_by_several_keys)
{
  static const char text[] =
    "HloModule m\n"
    "less {\n"
    "  a = f32[] parameter(0)\n"
    "  b = f32[] parameter(1)\n"
    "  c = s64[] parameter(2)\n"
    "  d = s64[] parameter(3)\n"
    "  x = s32[] parameter(4)\n"
    "  y = s32[] parameter(5)\n"
    "  l = pred[] compare(a, b), direction=LT, type=TOTALORDER\n"
    "  q = pred[] compare(a, b), direction=EQ, type=TOTALORDER\n"
    "  g = pred[] compare(c, d), direction=GT\n"
    "  t = pred[] and(q, g)\n"
    "  ROOT r = pred[] or(l, t)\n"
    "}\n"
    "ENTRY e {\n"
    "  k = f32[4,900] parameter(0)\n"
    "  j = s64[4,900] parameter(1)\n"
    "  i = s32[4,900] parameter(2)\n"
    "  ROOT r = (f32[4,900], s64[4,900], s32[4,900]) sort(k, j, i), dimensions={1}, is_stable=true, to_apply=less\n"
    "}\n";
  WEFT_AUTO(rt_pool) pool = new_pool();

  check_sort(pool, text, FEW_VALUES_AND_NANS, false);
}

TEST(a_comparator_that_is_not_by_keys_is_refused)
{
  static const char text[] = "HloModule m\n"
                             "less {\n"
                             "  a = s32[] parameter(0)\n"
                             "  b = s32[] parameter(1)\n"
                             "  n = s32[] negate(a)\n"
                             "  ROOT r = pred[] compare(n, b), direction=LT\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  k = s32[9] parameter(0)\n"
                             "  ROOT r = s32[9] sort(k), dimensions={0}, to_apply=less\n"
                             "}\n";
  WEFT_AUTO(hlo_module) module = NULL;
  cpu_sort sort;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_CODE(cpu_sort_init(&sort, module->entry->root, NULL), WEFT_UNIMPLEMENTED);
}

TEST(topk_is_the_evaluators)
{
  static const char *const cases[][3] = {{"f32", "5,200", "7"}, {"bf16", "3,33", "33"}, {"s32", "2,1000", "10"},
                                         {"f64", "1,5", "0"},   {"u8", "4,300", "3"},   {"f32", "3,9001", "7"}, {"bf16", "2,5000", "9"},
                                         {"s64", "1,7000", "5"}, {"u16", "1,6000", "20"}, {"s8", "2,4000", "4"},
                                         /* equal ones keep their order */
                                         {"s8", "2,1000", "801"}, {"bf16", "1,3000", "2000"},
                                         {"f32", "5,72", "8"}, {"f64", "3,72", "32"}, {"u8", "4,40", "32"}, {"u32", "2,64", "1"},
                                         {"s16", "3,333", "33"}, {"f16", "2,32", "32"}};
  WEFT_AUTO(rt_pool) pool = new_pool();

  for (size_t i = 0; i < 2 * WEFT_COUNT(cases); i++) {
    const char *const *c = cases[i / 2];
    WEFT_AUTO(hlo_module) module = NULL;
    hlo_eval_options options = HLO_EVAL_DEFAULT;
    const hlo_literal *want;
    hlo_literal *in;
    weft_arena arena;
    cpu_topk topk;
    char text[512];
    snprintf(text, sizeof text,
             "HloModule m\n"
             "ENTRY e {\n"
             "  a = %s[%s] parameter(0)\n"
             "  ROOT r = (%s[%c,%s], s32[%c,%s]) "
             "topk(a), k=%s, largest=%s\n}\n",
             c[0], c[1], c[0], c[1][0], c[2], c[1][0], c[2], c[2], i % 2 ? "true" : "false");
    weft_arena_init(&arena);
    T_OK(hlo_parse(text, strlen(text), &module));
    const hlo_instr *root = module->entry->root;
    T_OK(hlo_literal_new(&arena, root->operands[0]->shape, &in));
    fill_sortable(in, FEW_VALUES_AND_NANS);
    T_OK(hlo_eval_instr(root, (const hlo_literal *const[]){in}, &options, &arena, &want));
    T_OK(cpu_topk_init(&topk, root));
    size_t bytes[2] = {(size_t)hlo_shape_bytes(want->elements[0]->shape), (size_t)hlo_shape_bytes(want->elements[1]->shape)};
    void *values = malloc(bytes[0] + 1), *indices = malloc(bytes[1] + 1);
    T_OK(cpu_topk_run(&topk, pool, in->data, values, indices));
    if (memcmp(values, want->elements[0]->data, bytes[0]) || memcmp(indices, want->elements[1]->data, bytes[1]))
      fail_msg("%s", text);
    free(values), free(indices);
    weft_arena_fini(&arena);
  }
}

/* ---- random state ------------------------------------------------------------------------------------------------ */

TEST(rng_goes_on_from_run_to_run)
{
  static const char text[] = "HloModule m\n"
                             "ENTRY e {\n"
                             "  a = f32[] constant(2)\n"
                             "  b = f32[] constant(5)\n"
                             "  ROOT r = f32[500] rng(a, b), distribution=rng_uniform\n"
                             "}\n";
  WEFT_AUTO(weft_platform) platform = test_platform(1, 1);
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
  float first[500], second[500];

  T_OK(test_run(exe, NULL, (void *[]){first}));
  T_OK(test_run(exe, NULL, (void *[]){second}));
  for (int i = 0; i < 500; i++) T_TRUE(first[i] >= 2 && first[i] < 5 && second[i] >= 2 && second[i] < 5);
  T_TRUE(memcmp(first, second, sizeof first) != 0);
  weft_executable_release(exe);
}

/* Work is split by shape alone. */
TEST(the_number_of_threads_changes_no_bit)
{
  enum { N = 600 };
  int64_t dims[] = {N, N}, one[] = {1}, zero[] = {0};
  hlo_shape shape = {.type = WEFT_F32, .rank = 2, .dims = dims};
  hlo_dot_attrs attrs = {.lhs_contracting = {1, one}, .rhs_contracting = {1, zero}};
  float *a = malloc(4 * N * N), *b = malloc(4 * N * N), *c[2] = {malloc(4 * N * N), malloc(4 * N * N)};
  cpu_dot dot;

  T_TRUE(a && b && c[0] && c[1]);
  for (int i = 0; i < N * N; i++) {
    a[i] = (float)next_value() / 3;
    b[i] = (float)next_value() / 7;
  }
  T_OK(cpu_dot_init(&dot, &attrs, &shape, &shape, &shape));
  for (int i = 0; i < 2; i++) {
    WEFT_AUTO(rt_pool) pool = NULL;
    T_OK(rt_pool_new(&(rt_pool_options){.threads = i ? 4 : 1}, &pool));
    T_OK(cpu_dot_run(&dot, pool, a, b, NULL, c[i], NULL));
  }
  T_TRUE(memcmp(c[0], c[1], 4 * N * N) == 0);
  free(a), free(b), free(c[0]), free(c[1]);
}

/* The tasks of a convolution have almost the same number of pixels, the last one too: with tasks of 1820 and 228 pixels
 * one of two threads would do most of the work. */
TEST(convolutions_are_cut_evenly)
{
  static const struct { int size, in, out, least; } cases[] = {{32, 32, 32, 3}, {32, 32, 3, 1}, {56, 64, 64, 10}, {7, 512, 512, 1}, {112, 3, 64, 10}};
  char text[512];

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    int n = cases[i].size, in = cases[i].in, out = cases[i].out;
    WEFT_AUTO(hlo_module) module = NULL;
    cpu_conv conv;
    snprintf(text, sizeof text,
             "HloModule m\n"
             "ENTRY e {\n"
             "  x = f32[2,%d,%d,%d] parameter(0)\n"
             "  w = f32[3,3,%d,%d] parameter(1)\n"
             "  ROOT r = f32[2,%d,%d,%d] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f\n"
             "}\n",
             n, n, in, in, out, n, n, out);
    T_OK(hlo_parse(text, strlen(text), &module));
    const hlo_instr *root = module->entry->root;
    cpu_onednn_allow(false);
    T_OK(cpu_conv_init(&conv, root->u.conv, root->operands[0]->shape, root->operands[1]->shape, root->shape));
    cpu_onednn_allow(true);
    T_TRUE(!conv.onednn);
    if (conv.direct) continue;
    int64_t rows = 2 * (int64_t)n * n, last = rows - (conv.tasks_per_group - 1) * conv.rows_per_task;
    if (!(conv.tasks_per_group >= cases[i].least && last <= conv.rows_per_task &&
          conv.rows_per_task - last < 16 * conv.tasks_per_group))
      fail_msg("%d -> %d features: %d tasks of %d pixels, the last %d", in, out, (int)conv.tasks_per_group,
               (int)conv.rows_per_task, (int)last);
  }
}

/* ---- scans ----------------------------------------------------------------------------------------------------- */

static double combined(hlo_opcode op, double a, double b, bool is_single)
{
  switch (op) {
  case HLO_ADD: return is_single ? (double)((float)a + (float)b) : a + b;
  case HLO_MULTIPLY: return is_single ? (double)((float)a * (float)b) : a * b;
  case HLO_MAXIMUM: return isnan(a) || isnan(b) ? NAN : a > b || (a == b && signbit(b)) ? a : b;
  default: return isnan(a) || isnan(b) ? NAN : a < b || (a == b && signbit(a)) ? a : b;
  }
}

/* The grouping that cpu/scan.c promises, as pass reduce-window-rewriter writes it down: prefixes of blocks, and the
 * prefixes of the blocks' sums, moved by one place, before them. */
static void scan_in_groups(hlo_opcode op, bool is_single, double init, double *v, int64_t n, int64_t step)
{
  int64_t size = n <= GEN_MOST_TOP_SCAN ? n : gen_scan_block(n), blocks = (n + size - 1) / size;
  double *carries = calloc((size_t)blocks, sizeof *carries), so_far = init;

  T_TRUE(carries);
  for (int64_t i = 0; i < n; i++) {
    if (i % size == 0) so_far = init;
    v[step * i] = so_far = combined(op, so_far, v[step * i], is_single);
    if (i / size + 1 < blocks) carries[i / size + 1] = so_far;
  }
  carries[0] = init;
  if (blocks > 1) scan_in_groups(op, is_single, init, carries, blocks, 1);
  for (int64_t i = 0; i < n && blocks > 1; i++) v[step * i] = combined(op, carries[i / size], v[step * i], is_single);
  free(carries);
}

/* Random bits that are normal numbers between 2^-3 and 2^3, few NaNs and zeros; products stay in the range for long. */
static void fill_for_scan(hlo_literal *lit, hlo_opcode op)
{
  static const double special[] = {0, -0.0, NAN};
  bool is_float = weft_dtype_is_float(lit->shape->type), is_product = op == HLO_MULTIPLY;

  for (int64_t i = 0; i < hlo_shape_elems(lit->shape); i++) {
    double x = next_value() / (is_float ? 7.25 : 1) * (is_product && is_float ? 0.125 : 1) + (is_product ? 1 : 0);
    seed = seed * 6364136223846793005 + 1442695040888963407;
    if (is_float) x *= 1 + (double)(seed >> 41) / (is_product ? 1e9 : 1e7);
    if (weft_dtype_is_unsigned(lit->shape->type)) x = fabs(x);
    if (is_float && !is_product && op != HLO_ADD && seed >> 55 < 2) x = special[(seed >> 20) % 3];
    hlo_literal_set_f64(lit, i, x, 0);
  }
}

static void check_scan(rt_pool *pools[], int pool_count, const char *type, const char *dims, int dim, const char *op,
                       const char *init, bool is_reverse)
{
  WEFT_AUTO(hlo_module) module = NULL;
  weft_arena arena;
  const hlo_literal *start;
  hlo_literal *in;
  gen_scan form;
  cpu_scan s;
  char text[1024], window[128] = "";
  int rank = 1;

  for (const char *c = dims; *c; c++) rank += *c == ',';
  int64_t n = 0;
  const char *at = dims;
  for (int d = 0; d < dim; d++) at = strchr(at, ',') + 1;
  n = atoll(at);
  snprintf(window, sizeof window, "size=");
  for (int d = 0; d < rank; d++)
    snprintf(window + strlen(window), sizeof window - strlen(window), "%s%d", d ? "x" : "", d == dim ? (int)n : 1);
  snprintf(window + strlen(window), sizeof window - strlen(window), " pad=");
  for (int d = 0; d < rank; d++)
    snprintf(window + strlen(window), sizeof window - strlen(window), "%s%d_%d", d ? "x" : "",
             d == dim && !is_reverse ? (int)n - 1 : 0, d == dim && is_reverse ? (int)n - 1 : 0);
  snprintf(text, sizeof text,
           "HloModule m\n"
           "f {\n"
           "  a = %s[] parameter(0)\n"
           "  b = %s[] parameter(1)\n"
           "  ROOT c = %s[] %s(a, b)\n"
           "}\n"
           "ENTRY e {\n"
           "  x = %s[%s] parameter(0)\n"
           "  i = %s[] constant(%s)\n"
           "  ROOT r = %s[%s] reduce-window(x, i), window={%s}, to_apply=f\n"
           "}\n",
           type, type, type, op, type, dims, type, init, type, dims, window);
  weft_arena_init(&arena);
  T_OK(hlo_parse(text, strlen(text), &module));
  const hlo_instr *root = module->entry->root;
  T_OK(cpu_scan_init(&s, root));
  T_TRUE(gen_library_scan(root, &form));
  T_OK(hlo_literal_new(&arena, root->shape, &in));
  fill_for_scan(in, form.op);
  start = root->operands[1]->u.literal;
  int64_t count = hlo_shape_elems(root->shape), bytes = hlo_shape_bytes(root->shape);
  bool is_single = weft_dtype_is_float(root->shape->type) && root->shape->type != WEFT_F64;
  double *want = malloc((size_t)count * sizeof *want);
  char *out = malloc((size_t)bytes), *scratch = malloc((size_t)s.scratch_bytes + 1);
  T_TRUE(want && out && scratch);
  for (int64_t i = 0; i < count; i++) want[i] = hlo_literal_get_f64(in, i);
  for (int64_t i = 0; i < count / n; i++) {
    int64_t first = i / form.inner * n * form.inner + i % form.inner;
    scan_in_groups(form.op, is_single, hlo_literal_get_f64(start, 0),
                   want + first + (is_reverse ? (n - 1) * form.inner : 0), n, is_reverse ? -form.inner : form.inner);
  }
  hlo_literal *rounded, got = {.shape = root->shape, .data = out};
  T_OK(hlo_literal_new(&arena, root->shape, &rounded));
  for (int64_t i = 0; i < count; i++) hlo_literal_set_f64(rounded, i, want[i], 0);
  for (int p = 0; p < 3 * pool_count; p++) {
    bool in_place = p / pool_count == 1;
    cpu_block_narrow = p / pool_count == 2;
    memset(out, 0x5a, (size_t)bytes);
    if (in_place) memcpy(out, in->data, (size_t)bytes);
    T_OK(cpu_scan_run(&s, pools[p % pool_count], in_place ? out : in->data, start->data, out,
                      s.scratch_bytes ? scratch : NULL));
    for (int64_t i = 0; i < count; i++) {
      double x = hlo_literal_get_f64(&got, i), y = hlo_literal_get_f64(rounded, i);
      if (!(isnan(x) && isnan(y)) && (x != y || signbit(x) != signbit(y)))
        fail_msg("%s, pool %d: element %" PRId64 ": got %.9g, want %.9g", text, p, i, x, y);
    }
  }
  cpu_block_narrow = false;
  free(want);
  free(out);
  free(scratch);
  weft_arena_fini(&arena);
}

/* The expected bits are those of the grouping above, computed one operation after another. Narrow floats are
 * summed in f32 and rounded once. */
TEST(a_scan_has_the_bits_of_its_grouping_on_any_number_of_threads)
{
  static const struct { const char *dims; int dim; } shapes[] = {
    {"4096", 0}, {"5,1024", 1}, {"7,1000", 1}, {"70,67", 1}, {"2,4099", 1}, {"140003", 0}, {"3,257,18", 1},
    {"64,300", 0}, {"1500,16", 0},
  };
  static const struct { const char *type, *add, *multiply, *maximum, *minimum; } kinds[] = {
    {"f32", "0", "1", "-inf", "inf"}, {"f64", "0", "1", "-inf", "inf"}, {"bf16", "0", "1", "-inf", "inf"},
    {"f16", "0", "1", "-inf", "inf"}, {"s32", "0", NULL, "-2147483648", "2147483647"},
    {"u32", "0", NULL, "0", "4294967295"}, {"s64", "0", NULL, "-5", "5"}, {"u64", "0", NULL, "0", "7"},
  };
  rt_pool *pools[3] = {NULL};

  T_OK(rt_pool_new(&(rt_pool_options){.threads = 2}, &pools[1]));
  T_OK(rt_pool_new(&(rt_pool_options){.threads = 5}, &pools[2]));
  for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
    for (size_t s = 0; s < WEFT_COUNT(shapes); s++)
      for (int reverse = 0; reverse < 2; reverse++) {
        check_scan(pools, 3, kinds[k].type, shapes[s].dims, shapes[s].dim, "add", kinds[k].add, reverse);
        if (kinds[k].multiply)
          check_scan(pools, 3, kinds[k].type, shapes[s].dims, shapes[s].dim, "multiply", kinds[k].multiply, reverse);
        check_scan(pools, 3, kinds[k].type, shapes[s].dims, shapes[s].dim, "maximum", kinds[k].maximum, reverse);
        check_scan(pools, 3, kinds[k].type, shapes[s].dims, shapes[s].dim, "minimum", kinds[k].minimum, reverse);
      }
  rt_pool_free(pools[1]);
  rt_pool_free(pools[2]);
}

TEST_MAIN(UNIT(convolutions_are_cut_evenly), UNIT(dot_of_every_form_and_type), UNIT(dot_rounds_operands_as_its_algorithm_says),
          UNIT(convolution_of_every_form_and_type), UNIT(convolutions_by_onednn_are_the_evaluators),
          UNIT(convolutions_that_are_too_large_are_planned_too), UNIT(convolutions_without_a_result_are_planned_too),
          UNIT(convolutions_by_onednn_are_the_same_bits_on_any_number_of_threads), UNIT(fft_of_every_kind_and_length),
          UNIT(convolutions_are_the_same_bits_on_any_number_of_threads),
          UNIT(convolutions_in_place_read_nothing_behind_their_arrays),
          UNIT(long_fft_lines_are_the_same_bits_on_any_number_of_threads),
          UNIT(cholesky_and_triangular_solve_of_every_form), UNIT(transposes_in_every_order_are_exact), UNIT(sort_is_the_evaluators_to_the_bit),
          UNIT(sort_of_one_operand_is_the_evaluators_to_the_bit), UNIT(sort_by_several_keys),
          UNIT(a_comparator_that_is_not_by_keys_is_refused), UNIT(topk_is_the_evaluators), UNIT(rng_goes_on_from_run_to_run), UNIT(the_number_of_threads_changes_no_bit),
          UNIT(a_scan_has_the_bits_of_its_grouping_on_any_number_of_threads))
