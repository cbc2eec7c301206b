/* tests/codegen/update_test.c -- kernels that update an array in place. */
#include "test.h"

#include "harness.h"

#define ADD(t) \
  "add {\n" \
  "  x = " t "[] parameter(0)\n" \
  "  y = " t "[] parameter(1)\n" \
  "  ROOT r = " t "[] add(x, y)\n" \
  "}\n"
#define MAX \
  "ge {\n" \
  "  x = f32[] parameter(0)\n" \
  "  y = f32[] parameter(1)\n" \
  "  ROOT r = pred[] compare(x, y), direction=GE\n" \
  "}\n"
#define F(body) "HloModule t\n" ADD("f32") MAX "f {\n" body "}\n"

static const char *const scatters[] = {
  /* rows */
  F("  p0 = f32[50,16] parameter(0)\n"
    "  p1 = s32[20,1] parameter(1)\n"
    "  p2 = f32[20,16] parameter(2)\n"
    "  ROOT r = f32[50,16] scatter(p0, p1, p2), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n")
  "ENTRY e {\n"
  "  a = f32[50,16] parameter(0)\n"
  "  b = s32[20,1] parameter(1)\n"
  "  c = f32[20,16] parameter(2)\n"
  "  ROOT r = f32[50,16] fusion(a, b, c), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
  "}\n",
  /* wide rows, split into units */
  F("  p0 = f32[9,3,200] parameter(0)\n"
    "  p1 = s32[20,1] parameter(1)\n"
    "  p2 = f32[20,3,200] parameter(2)\n"
    "  ROOT r = f32[9,3,200] scatter(p0, p1, p2), update_window_dims={1,2}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n")
  "ENTRY e {\n"
  "  a = f32[9,3,200] parameter(0)\n"
  "  b = s32[20,1] parameter(1)\n"
  "  c = f32[20,3,200] parameter(2)\n"
  "  ROOT r = f32[9,3,200] fusion(a, b, c), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
  "}\n",
  /* single elements, indices partly outside, zeros computed inside */
  F("  z = f32[] constant(0)\n"
    "  p0 = f32[40] broadcast(z), dimensions={}\n"
    "  p1 = s64[90,1] parameter(0)\n"
    "  p2 = f32[90] parameter(1)\n"
    "  ROOT r = f32[40] scatter(p0, p1, p2), update_window_dims={}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n")
  "ENTRY e {\n"
  "  b = s64[90,1] parameter(0)\n"
  "  c = f32[90] parameter(1)\n"
  "  ROOT r = f32[40] fusion(b, c), kind=kCustom, calls=f\n"
  "}\n",
  /* windows at two-dimensional places, window last in the updates but not in the operand */
  F("  p0 = f32[12,15] parameter(0)\n"
    "  p1 = u32[5,2] parameter(1)\n"
    "  p2 = f32[4,5,3] parameter(2)\n"
    "  ROOT r = f32[12,15] scatter(p0, p1, p2), update_window_dims={0,2}, inserted_window_dims={}, "
    "scatter_dims_to_operand_dims={1,0}, index_vector_dim=1, to_apply=add\n")
  "ENTRY e {\n"
  "  a = f32[12,15] parameter(0)\n"
  "  b = u32[5,2] parameter(1)\n"
  "  c = f32[4,5,3] parameter(2)\n"
  "  ROOT r = f32[12,15] fusion(a, b, c), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
  "}\n",
};

TEST(scatter_in_place_and_not)
{
  for (size_t i = 0; i < WEFT_COUNT(scatters); i++)
    for (int donate = 0; donate < 2; donate++)
      check_kernel(scatters[i],
                   &(kernel_check){.int_low = 0, .int_high = 20, .donate = donate, .rtol = 1e-5, .atol = 1e-5});
  for (size_t i = 0; i < WEFT_COUNT(scatters); i++)
    check_kernel(scatters[i], &(kernel_check){.int_low = i == 3 ? 0 : -10, .int_high = 80, .rtol = 1e-5, .atol = 1e-5});
}

/* A scatter whose combiner depends on the order of the updates: y + x / 2. */
typedef struct divided_scatter {
  const char *operand, *indices, *updates, *attributes;
  bool has_own_indices; /* made by the fusion, each once, without a parameter */
  int64_t units;
} divided_scatter;

static void write_scatter(const divided_scatter *c, char *text, size_t size)
{
  const char *own = c->has_own_indices ? "  i = s32[9000] iota(), iota_dimension=0\n"
                                         "  v = s32[9000] reverse(i), dimensions={0}\n"
                                         "  w = s32[9000,1] reshape(v)\n"
                                       : "";

  snprintf(text, size,
           "HloModule t\n"
           "order {\n"
           "  x = f32[] parameter(0)\n"
           "  y = f32[] parameter(1)\n"
           "  h = f32[] constant(0.5)\n"
           "  m = f32[] multiply(x, h)\n"
           "  ROOT r = f32[] add(m, y)\n"
           "}\n"
           "f {\n"
           "  p0 = %s parameter(0)\n"
           "  p1 = %s parameter(1)\n"
           "  p2 = %s parameter(2)\n"
           "%s"
           "  ROOT r = %s scatter(p0, %s, p2), %s, to_apply=order\n"
           "}\n"
           "ENTRY e {\n"
           "  a = %s parameter(0)\n"
           "  b = %s parameter(1)\n"
           "  c = %s parameter(2)\n"
           "  ROOT r = %s fusion(a, b, c), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n}\n",
           c->operand, c->indices, c->updates, own, c->operand, c->has_own_indices ? "w" : "p1", c->attributes,
           c->operand, c->indices, c->updates, c->operand);
}

TEST(scatters_without_wide_windows_are_divided_and_stay_in_order)
{
  static const divided_scatter cases[] = {
    /* rows; some indices lie outside of the operand */
    {"f32[300,4]", "s32[4133,1]", "f32[4133,4]",
     "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1", false, 300},
    /* elements by two columns, in two dimensions of updates: the longer dimension of the operand is divided */
    {"f32[70,500]", "s64[2,4200,2]", "f32[2,4200]",
     "update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=2", false, 500},
    /* more places than units, narrow indices, columns before rows of the indices */
    {"f32[3000]", "u16[1,9011]", "f32[9011]",
     "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0", false, 1000},
    /* windows that begin anywhere along the other dimension */
    {"f32[90,40]", "s32[3000,2]", "f32[3000,5]",
     "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={1,0}, index_vector_dim=1", false, 90},
    /* batches, which do not meet */
    {"f32[5,90]", "s32[2000,5,1]", "f32[2000,5]",
     "update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
     "scatter_indices_batching_dims={1}, index_vector_dim=2", false, 5},
    /* indices that are unique */
    {"f32[9001]", "s32[1]", "f32[9000]",
     "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
     "unique_indices=true", true, 1000},
    /* too few updates */
    {"f32[300,4]", "s32[100,1]", "f32[100,4]",
     "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1", false, 1},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    hlo_module *module = NULL;
    gen_options options;
    gen_code *code;
    char text[2048];
    write_scatter(&cases[i], text, sizeof text);
    for (int donate = 0; donate < 2; donate++)
      check_kernel(text,
                   &(kernel_check){.int_low = i == 2 ? 0 : -3, .int_high = i == 2 ? 3100 : 100, .donate = donate});
    T_OK(hlo_parse(text, strlen(text), &module));
    T_OK(gen_options_load(&options));
    T_OK(gen_compile(module, &options, &code));
    const gen_kernel *kernel = gen_code_kernel(code, module->entry->root);
    assert_int_equal(kernel->phase_count, 2);
    if (kernel->phases[1].units != cases[i].units) fail_msg("case %d: %d units", (int)i, (int)kernel->phases[1].units);
    gen_code_free(code);
    hlo_module_free(module);
  }
}

/* Windows of 300 elements that overlap in part. Updates of the same element are applied in order: the last one
 * remains. */
TEST(wide_windows_that_overlap_are_taken_in_order)
{
  static const char text[] =
    "HloModule t\n"
    "last {\n"
    "  x = f32[] parameter(0)\n"
    "  ROOT y = f32[] parameter(1)\n"
    "}\n"
    "f {\n"
    "  p0 = f32[2,700] parameter(0)\n"
    "  p1 = s32[9,1] parameter(1)\n"
    "  p2 = f32[9,2,300] parameter(2)\n"
    "  ROOT r = f32[2,700] scatter(p0, p1, p2), update_window_dims={1,2}, "
    "inserted_window_dims={}, scatter_dims_to_operand_dims={1}, index_vector_dim=1, to_apply=last\n"
    "}\n"
    "ENTRY e {\n"
    "  a = f32[2,700] parameter(0)\n"
    "  b = s32[9,1] parameter(1)\n"
    "  c = f32[9,2,300] parameter(2)\n"
    "  ROOT r = f32[2,700] fusion(a, b, c), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
    "}\n";
  static const char flat[] =
    "HloModule t\n"
    "last {\n"
    "  x = f32[] parameter(0)\n"
    "  ROOT y = f32[] parameter(1)\n"
    "}\n"
    "f {\n"
    "  p0 = f32[700] parameter(0)\n"
    "  p1 = s32[9,1] parameter(1)\n"
    "  p2 = f32[9,300] parameter(2)\n"
    "  ROOT r = f32[700] scatter(p0, p1, p2), update_window_dims={1}, "
    "inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=last\n"
    "}\n"
    "ENTRY e {\n"
    "  a = f32[700] parameter(0)\n"
    "  b = s32[9,1] parameter(1)\n"
    "  c = f32[9,300] parameter(2)\n"
    "  ROOT r = f32[700] fusion(a, b, c), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
    "}\n";

  check_kernel(text, &(kernel_check){.int_low = 0, .int_high = 400});
  check_kernel(flat, &(kernel_check){.int_low = 0, .int_high = 400});
}

static const char *const updates[] = {
  F("  p0 = f32[20,30] parameter(0)\n"
    "  p1 = f32[7,25] parameter(1)\n"
    "  i = s32[] parameter(2)\n"
    "  j = s32[] parameter(3)\n"
    "  ROOT r = f32[20,30] dynamic-update-slice(p0, p1, i, j)\n")
  "ENTRY e {\n"
  "  a = f32[20,30] parameter(0)\n"
  "  b = f32[7,25] parameter(1)\n"
  "  i = s32[] parameter(2)\n"
  "  j = s32[] parameter(3)\n"
  "  ROOT r = f32[20,30] fusion(a, b, i, j), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
  "}\n",
  F("  p0 = bf16[20,30] parameter(0)\n"
    "  p1 = bf16[1,30] parameter(1)\n"
    "  i = s64[] parameter(2)\n"
    "  z = s64[] constant(0)\n"
    "  n = bf16[1,30] negate(p1)\n"
    "  ROOT r = bf16[20,30] dynamic-update-slice(p0, n, i, z)\n")
  "ENTRY e {\n"
  "  a = bf16[20,30] parameter(0)\n"
  "  b = bf16[1,30] parameter(1)\n"
  "  i = s64[] parameter(2)\n"
  "  ROOT r = bf16[20,30] fusion(a, b, i), kind=kCustom, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
  "}\n",
  F("  p0 = f32[20] parameter(0)\n"
    "  p1 = f32[30] parameter(1)\n"
    "  u = f32[3] parameter(2)\n"
    "  i = s32[] parameter(3)\n"
    "  x = f32[20] dynamic-update-slice(p0, u, i)\n"
    "  y = f32[30] dynamic-update-slice(p1, u, i)\n"
    "  ROOT r = (f32[20], f32[30]) tuple(x, y)\n")
  "ENTRY e {\n"
  "  a = f32[20] parameter(0)\n"
  "  b = f32[30] parameter(1)\n"
  "  u = f32[3] parameter(2)\n"
  "  i = s32[] parameter(3)\n"
  "  ROOT r = (f32[20], f32[30]) fusion(a, b, u, i), kind=kCustom, calls=f, output_to_operand_aliasing={{0}: (0, {}), {1}: (1, {})}\n"
  "}\n",
};

TEST(update_slices_in_place_and_not)
{
  for (size_t i = 0; i < WEFT_COUNT(updates); i++)
    for (int64_t start = -2; start < 30; start += 6)
      for (int donate = 0; donate < 2; donate++)
        check_kernel(updates[i], &(kernel_check){.int_low = start, .int_high = start + 1, .donate = donate});
}

TEST(select_and_scatter_picks_the_same_elements)
{
  check_kernel(
    F("  p0 = f32[3,11,12,5] parameter(0)\n"
      "  p1 = f32[3,5,6,5] parameter(1)\n"
      "  z = f32[] parameter(2)\n"
      "  ROOT r = f32[3,11,12,5] select-and-scatter(p0, p1, z), window={size=1x3x3x1 stride=1x2x2x1 pad=0_0x0_0x1_0x0_0}, select=ge, scatter=add\n") "ENTRY e {\n"
                                                                                                                                                     "  a = f32[3,11,12,5] parameter(0)\n"
                                                                                                                                                     "  b = f32[3,5,6,5] parameter(1)\n"
                                                                                                                                                     "  z = f32[] parameter(2)\n"
                                                                                                                                                     "  ROOT r = f32[3,11,12,5] fusion(a, b, z), kind=kInput, calls=f\n"
                                                                                                                                                     "}\n",
    &(kernel_check){.rtol = 1e-5, .atol = 1e-5});
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(scatter_in_place_and_not), UNIT(scatters_without_wide_windows_are_divided_and_stay_in_order),
    UNIT(wide_windows_that_overlap_are_taken_in_order),
    UNIT(update_slices_in_place_and_not),
    UNIT(select_and_scatter_picks_the_same_elements),
  };
  return cmocka_run_group_tests(units, NULL, NULL);
}
