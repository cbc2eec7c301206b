#include "cpu/run.h"

TEST(a_scalar_add_goes_through_everything)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform,
    "HloModule m\nENTRY e { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n", BUF_TOPOLOGICAL);
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
      "body { p = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(p), index=0\n"
      " x = f32[8] get-tuple-element(p), index=1 one = s32[] constant(1) j = s32[] add(i, one)\n"
      " two = f32[] constant(2) t = f32[8] broadcast(two), dimensions={} y = f32[8] multiply(x, t)\n"
      " ROOT r = (s32[], f32[8]) tuple(j, y) }\n"
      "cond { p = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(5)\n"
      " ROOT lt = pred[] compare(i, n), direction=LT }\n"
      "ENTRY e { z = s32[] constant(0) a = f32[8] parameter(0) t = (s32[], f32[8]) tuple(z, a)\n"
      " ROOT w = (s32[], f32[8]) while(t), body=body, condition=cond }\n", order);
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
  int at = snprintf(text, sizeof text, "HloModule m\nENTRY e {\n"), width = 0;
  static int32_t in[N][ROWS * N * INNER], got[ROWS * N * (N + 1) / 2 * INNER];
  const void *inputs[N];

  for (int i = 0; i < N; i++, width += i) {
    at += snprintf(text + at, sizeof text - (size_t)at, "  p%d = s32[%d,%d,%d] parameter(%d)\n", i, ROWS, i + 1, INNER, i);
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

TEST_MAIN(UNIT(a_wide_concatenate_is_copied), UNIT(a_scalar_add_goes_through_everything), UNIT(a_loop_counts))
