/* tests/cpu/run_test.c -- compiled programs give the values that arithmetic says. */
#include "cpu/run.h"

TEST(a_scalar_add_goes_through_everything)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform,
                                      "HloModule m\n"
                                      "ENTRY e {\n"
                                      "  a = f32[] parameter(0)\n"
                                      "  b = f32[] parameter(1)\n"
                                      "  ROOT r = f32[] add(a, b)\n"
                                      "}\n",
                                      BUF_TOPOLOGICAL);
  float a = 2, b = 40, r = 0;

  T_OK(test_run(exe, (const void *[]){&a, &b}, (void *[]){&r}));
  T_TRUE(r == 42);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(a_loop_counts)
{
  weft_platform *platform = test_platform(1, 2);
  for (buf_order order = BUF_TOPOLOGICAL; order <= BUF_BUDGET; order++) {
    weft_executable *exe = test_compile(platform,
                                        "HloModule m\n"
                                        "body {\n"
                                        "  p = (s32[], f32[8]) parameter(0)\n"
                                        "  i = s32[] get-tuple-element(p), index=0\n"
                                        "  x = f32[8] get-tuple-element(p), index=1\n"
                                        "  one = s32[] constant(1)\n"
                                        "  j = s32[] add(i, one)\n"
                                        "  two = f32[] constant(2)\n"
                                        "  t = f32[8] broadcast(two), dimensions={}\n"
                                        "  y = f32[8] multiply(x, t)\n"
                                        "  ROOT r = (s32[], f32[8]) tuple(j, y)\n"
                                        "}\n"
                                        "cond {\n"
                                        "  p = (s32[], f32[8]) parameter(0)\n"
                                        "  i = s32[] get-tuple-element(p), index=0\n"
                                        "  n = s32[] constant(5)\n"
                                        "  ROOT lt = pred[] compare(i, n), direction=LT\n"
                                        "}\n"
                                        "ENTRY e {\n"
                                        "  z = s32[] constant(0)\n"
                                        "  a = f32[8] parameter(0)\n"
                                        "  t = (s32[], f32[8]) tuple(z, a)\n"
                                        "  ROOT w = (s32[], f32[8]) while(t), body=body, condition=cond\n"
                                        "}\n",
                                        order);
    float a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, r[8];
    int32_t n = 0;
    T_OK(test_run(exe, (const void *[]){a}, (void *[]){&n, r}));
    T_EQ_INT(n, 5);
    for (int i = 0; i < 8; i++) T_TRUE(r[i] == 32 * a[i]);
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
}

/* Twelve operands, joined along a dimension that is neither the first nor the last. */
TEST(a_wide_concatenate_is_copied)
{
  enum { N = 12, ROWS = 3, INNER = 10 };
  weft_platform *platform = test_platform(1, 2);
  char text[2048];
  int at = snprintf(text, sizeof text,
                    "HloModule m\n"
                    "ENTRY e {\n"),
      width = 0;
  static int32_t in[N][ROWS * N * INNER], got[ROWS * N * (N + 1) / 2 * INNER];
  const void *inputs[N];

  for (int i = 0; i < N; i++, width += i) {
    at +=
      snprintf(text + at, sizeof text - (size_t)at, "  p%d = s32[%d,%d,%d] parameter(%d)\n", i, ROWS, i + 1, INNER, i);
    for (int k = 0; k < ROWS * (i + 1) * INNER; k++) in[i][k] = i * 1000 + k;
    inputs[i] = in[i];
  }
  at += snprintf(text + at, sizeof text - (size_t)at, "  ROOT r = s32[%d,%d,%d] concatenate(p0", ROWS, width, INNER);
  for (int i = 1; i < N; i++) at += snprintf(text + at, sizeof text - (size_t)at, ", p%d", i);
  snprintf(text + at, sizeof text - (size_t)at, "), dimensions={1}\n}\n");
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
  T_OK(test_run(exe, inputs, (void *[]){got}));
  const int32_t *place = got;
  for (int row = 0; row < ROWS; row++)
    for (int i = 0; i < N; i++)
      for (int k = 0; k < (i + 1) * INNER; k++) T_EQ_INT(*place++, i * 1000 + row * (i + 1) * INNER + k);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* Narrow floats may stay f32 between the operations of a kernel, but not where that could be seen: (1 + 2^-8) squared
 * is 1.01568603515625, which bf16 rounds to 1.015625. */
TEST(roundings_that_a_program_can_see_are_made)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe =
    test_compile(platform,
                 "HloModule m\n"
                 "ENTRY e { p = bf16[4] parameter(0)\n"
                 " q = bf16[4] parameter(1)\n"
                 " r = bf16[4] parameter(2)\n"
                 " s = bf16[4] multiply(p, q)\n"
                 " eq = pred[4] compare(s, r), direction=EQ\n"
                 " wide = f32[4] convert(s)\n"
                 " whole = s32[4] convert(s)\n"
                 " down = bf16[4] floor(s)\n"
                 " w = f32[4] parameter(3)\n"
                 " n = bf16[4] convert(w)\n"
                 " again = f32[4] convert(n)\n"
                 " ROOT t = (pred[4], f32[4], s32[4], bf16[4], f32[4]) tuple(eq, wide, whole, down, again) }\n",
                 BUF_TOPOLOGICAL);
  const uint16_t p[4] = {0x3f81, 0x3f81, 0x4380, 0xbf81}; /* 1.0078125, 1.0078125, 256, -1.0078125 */
  const uint16_t q[4] = {0x3f81, 0x3f80, 0x3f81, 0x3f81};
  const uint16_t r[4] = {0x3f82, 0x3f81, 0x4381, 0xbf82};
  const float w[4] = {1.00390625f, 257, 1.5f, -3};
  bool eq[4];
  float wide[4], again[4];
  int32_t whole[4];
  uint16_t down[4];

  T_OK(test_run(exe, (const void *[]){p, q, r, w}, (void *[]){eq, wide, whole, down, again}));
  for (int i = 0; i < 4; i++) T_TRUE(eq[i]);
  T_TRUE(wide[0] == 1.015625f && wide[1] == 1.0078125f && wide[2] == 258 && wide[3] == -1.015625f);
  T_TRUE(whole[0] == 1 && whole[2] == 258 && whole[3] == -1);
  T_TRUE(down[0] == 0x3f80 && down[3] == 0xc000);
  T_TRUE(again[0] == 1 && again[1] == 256 && again[2] == 1.5f && again[3] == -3);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* MoveToHost and similar custom calls give their operand as the result. A call whose result has another size is not
 * such a marker. */
TEST(a_marker_of_another_size_does_not_compile)
{
  static const char text[] = "HloModule m\n"
                             "ENTRY e { p = f32[1024] parameter(0)\n"
                             " ROOT r = f32[8] custom-call(p), custom_call_target=\"MoveToHost\" }\n";
  weft_platform *platform = test_platform(1, 1);
  hlo_module *module;
  weft_executable *exe;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_FAILS(weft_compile(platform, module, &(weft_compile_options){0}, &exe), "MoveToHost");
  weft_platform_release(platform);
}

TEST(a_custom_call_of_a_buffer_with_a_layout_is_refused_by_name)
{
  static const char text[] = "HloModule m\n"
                             "ENTRY e { p = s32[2,8] parameter(0)\n"
                             " b = b(s32[2,8]{0,1}) custom-call(p), custom_call_target=\"Pin\",\n"
                             " operand_layout_constraints={s32[2,8]{0,1}}\n"
                             " ROOT r = s32[2,8] custom-call(b), custom_call_target=\"Unpin\" }\n";
  weft_platform *platform = test_platform(1, 1);
  hlo_module *module;
  weft_executable *exe;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_FAILS(weft_compile(platform, module, &(weft_compile_options){0}, &exe), "Pin");
  weft_platform_release(platform);
}

TEST(random_bits_come_with_the_new_state_or_alone)
{
  weft_platform *platform = test_platform(1, 1);
  weft_executable *exe = test_compile(platform,
                                      "HloModule m\n"
                                      "ENTRY e { s = u64[2] parameter(0)\n"
                                      " a = u32[4] rng-bit-generator(s), algorithm=rng_three_fry\n"
                                      " b = (u64[2], u32[4]) rng-bit-generator(s), algorithm=rng_three_fry\n"
                                      " c = u32[4] get-tuple-element(b), index=1\n"
                                      " ROOT t = (u32[4], u32[4]) tuple(a, c) }\n",
                                      BUF_TOPOLOGICAL);
  const uint64_t seed[2] = {42, 7};
  uint32_t alone[4] = {0}, with[4] = {1};

  T_OK(test_run(exe, (const void *[]){seed}, (void *[]){alone, with}));
  for (int i = 0; i < 4; i++) T_EQ_INT(alone[i], with[i]);
  T_TRUE(alone[0] != alone[1]);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* 2^30 + 2^22 + 1 lies above the midpoint of two bf16. Rounded to f32 first, it lies on the midpoint. */
TEST(integers_are_rounded_to_narrow_floats_once_in_kernels_and_constants)
{
  static const char *const values[] = {"x = s32[2] parameter(0)",
                                       "u = s32[2] parameter(0)\n"
                                       "x = s32[2] constant({1077936129, -1077936129})"};
  static const uint16_t want[] = {0x4e81, 0xce81};
  weft_platform *platform = test_platform(1, 1);

  for (size_t k = 0; k < WEFT_COUNT(values); k++) {
    char text[256];
    const int32_t in[2] = {1077936129, -1077936129};
    uint16_t got[2] = {0};
    snprintf(text, sizeof text,
             "HloModule m\n"
             "ENTRY e { %s\n"
             "  ROOT r = bf16[2] convert(x)\n"
             "}\n",
             values[k]);
    weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
    T_OK(test_run(exe, (const void *[]){in}, (void *[]){got}));
    for (int i = 0; i < 2; i++) T_EQ_INT(got[i], want[i]);
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
}

TEST_MAIN(UNIT(integers_are_rounded_to_narrow_floats_once_in_kernels_and_constants), UNIT(roundings_that_a_program_can_see_are_made), UNIT(a_marker_of_another_size_does_not_compile),
          UNIT(a_custom_call_of_a_buffer_with_a_layout_is_refused_by_name), UNIT(random_bits_come_with_the_new_state_or_alone), UNIT(a_wide_concatenate_is_copied), UNIT(a_scalar_add_goes_through_everything), UNIT(a_loop_counts))
