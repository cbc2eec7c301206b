/* tests/cpu/dynamic_test.c -- Arrays whose sizes are known only at run time: elements beyond the size never change a
 * result. x is 1, 2, 4, 8, 16, 32, of which the first n are in the array; the expected results are exact. */
#include "cpu/run.h"

#include <math.h>

#define ADD \
  "add {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT r = f32[] add(a, b)\n" \
  "}\n"
#define FIRST \
  "ENTRY e {\n" \
  "  x = f32[6] parameter(0)\n" \
  "  n = s32[] parameter(1)\n" \
  "  d = f32[<=6] set-dimension-size(x, n), dimensions={0}\n" \
  "  z = f32[] constant(0)\n"
#define SUM_AND_SIZE " ROOT both = (f32[], f32[]) tuple(s, k) }"

#define SIZE_OF(name) \
  " q_ = s32[] get-dimension-size(" name "), dimensions={0}\n" \
  " k = f32[] convert(q_)" \
  SUM_AND_SIZE
#define SUM_OF(name) " s = f32[] reduce(" name ", z), dimensions={0}, to_apply=add" SIZE_OF(name)
#define PLACES(name, bound) \
  " p_ = f32[" bound "] iota(), iota_dimension=0\n" \
  " s = f32[] dot(" name ", p_), lhs_contracting_dims={0}, rhs_contracting_dims={0}" \
  SIZE_OF(name)

enum { MOST = 6 };

static const float x[MOST] = {1, 2, 4, 8, 16, 32};

static double sum(int n) { return (double)(1 << n) - 1; }
static double count(int n) { return n; }
static double twice(int n) { return 2 * n; }
static double squares(int n) { return (double)((1 << 2 * n) - 1) / 3; }
static double five_sums(int n) { return 5 * sum(n); }
static double everything(int n) { return n * 0 + 63; }
static double largest(int n) { return n ? 1 << (n - 1) : -1; }
static double last_place(int n) { return n ? n - 1 : 99; }
static double three_more(int n) { return n + 3; }
static double by_place(const double *v, int n) /* the dot product with 0, 1, 2 ... */
{
  double total = 0;
  for (int i = 0; i < n; i++) total += i * v[i];
  return total;
}
static double joined_by_place(int n)
{
  double v[2 * MOST + 1];
  for (int i = 0; i < n; i++) v[i] = v[n + i] = x[i];
  return by_place(v, 2 * n);
}
static double padded_by_place(int n)
{
  double v[MOST + 3] = {100};
  for (int i = 0; i < n; i++) v[i + 1] = x[i];
  v[n + 1] = v[n + 2] = 100;
  return by_place(v, n + 3);
}
static double fewer_of(int n) { return sum(n < 2 ? n : 2); }
static double turned_by_place(int n)
{
  double v[MOST];
  for (int i = 0; i < n; i++) v[i] = x[n - 1 - i];
  return by_place(v, n);
}
static double every_second(int n) { return (n > 1 ? 2 : 0) + (n > 3 ? 8 : 0); } /* of places 1 to 4 */
static double seconds(int n) { return n > 5 ? 2 : n / 2; }
static double with_holes(int n) { return n ? 2 * n - 1 : 0; }
static double holes_by_place(int n)
{
  double v[2 * MOST];
  for (int i = 0; i < 2 * n; i++) v[i] = i % 2 ? 100 : x[i / 2];
  return by_place(v, n ? 2 * n - 1 : 0);
}
static double pairs(int n) { return n / 2; }
static double in_pairs(int n) { return sum(n / 2 * 2); }
static double second_half(int n) { return in_pairs(n) - sum(n / 2); }
static double pairs_by_place(int n)
{
  double v[MOST];
  for (int i = 0; i < n; i++) v[i] = x[i];
  return by_place(v, n / 2 * 2);
}
static double windows(int n) { return n ? n - 1 : 0; }
static double neighbours(int n) { return n > 1 ? 2 * sum(n) - 1 - x[n - 1] : 0; }
static double all_but_first(int n) { return n ? sum(n) - 1 : 0; }
static double twice_pairs(int n) { return n / 2 * 2; }
static double in_order_by_place(int n)
{
  double v[MOST];
  for (int i = 0; i < n; i++) v[i] = x[i];
  return by_place(v, n);
}
static double written_over(int n) { return 800 - 100 * n + sum(n); }
static double eight_sums(int n) { return 8 * sum(n); }
static double double_or_few(int n) { return n > 3 ? 2 * sum(n) : fewer_of(n); }
static double all_or_few(int n) { return n > 3 ? n : n < 2 ? n : 2; }
static double one_more_each(int n) { return sum(n) + n; }
static double few(int n) { return n < 2 ? n : 2; }
static double two(int n) { return n * 0 + 2; }
static double zero(int n) { return n * 0; }

static const struct { const char *what, *text; double (*first)(int), (*second)(int); } programs[] = {
  {"a sum",
   ADD FIRST
   "s = f32[] reduce(d, z), dimensions={0}, to_apply=add\n"
   "c = s32[] get-dimension-size(d), dimensions={0}\n"
   "k = f32[] convert(c)"
   SUM_AND_SIZE, sum, count},
  {"the operand is whole for others", ADD FIRST "s = f32[] reduce(x, z), dimensions={0}, to_apply=add\n"
   "k = f32[] reduce(d, z), dimensions={0}, to_apply=add" SUM_AND_SIZE, everything, sum},
  {"elementwise with an array of the bound",
   ADD FIRST
   "m = f32[<=6] multiply(x, d)\n"
   "s = f32[] reduce(m, z), dimensions={0}, to_apply=add\n"
   "c = s32[] get-dimension-size(m), dimensions={0}\n"
   "k = f32[] convert(c)"
   SUM_AND_SIZE, squares, count},
  {"a product", ADD FIRST "s = f32[] dot(d, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
   "k = f32[] dot(x, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}" SUM_AND_SIZE, squares, squares},
  {"a free dimension of a product",
   ADD FIRST
   "o = f32[5] broadcast(z), dimensions={}\n"
   "e = f32[5] exponential(o)\n"
   "p = f32[<=6,5] dot(d, e), lhs_contracting_dims={}, rhs_contracting_dims={}\n"
   "s = f32[] reduce(p, z), dimensions={0,1}, to_apply=add\n"
   "c = s32[] get-dimension-size(p), dimensions={0}\n"
   "k = f32[] convert(c)"
   SUM_AND_SIZE, five_sums, count},
  {"broadcast, transposed, reshaped",
   ADD FIRST
   "b = f32[5,<=6] broadcast(d), dimensions={1}\n"
   "t = f32[<=6,5] transpose(b), dimensions={1,0}\n"
   "h = f32[1,<=6,5] reshape(t)\n"
   "s = f32[] reduce(h, z), dimensions={0,1,2}, to_apply=add\n"
   "c = s32[] get-dimension-size(h), dimensions={1}\n"
   "k = f32[] convert(c)"
   SUM_AND_SIZE, five_sums, count},
  {"joined",
   ADD FIRST
   "j = f32[<=12] concatenate(d, d), dimensions={0}\n"
   "p = f32[12] iota(), iota_dimension=0\n"
   "s = f32[] dot(j, p), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
   "c = s32[] get-dimension-size(j), dimensions={0}\n"
   "k = f32[] convert(c)"
   SUM_AND_SIZE, joined_by_place, twice},
  {"padded",
   ADD FIRST
   "w = f32[] constant(100)\n"
   "j = f32[<=9] pad(d, w), padding=1_2\n"
   "p = f32[9] iota(), iota_dimension=0\n"
   "s = f32[] dot(p, j), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
   "c = s32[] get-dimension-size(j), dimensions={0}\n"
   "k = f32[] convert(c)"
   SUM_AND_SIZE, padded_by_place, three_more},
  {"the largest and where it is",
   "arg {\n"
   "  a = f32[] parameter(0)\n"
   "  i = s32[] parameter(1)\n"
   "  b = f32[] parameter(2)\n"
   "  j = s32[] parameter(3)\n"
   "  g = pred[] compare(a, b), direction=GT\n"
   "  v = f32[] select(g, a, b)\n"
   "  w = s32[] select(g, i, j)\n"
   "  ROOT t = (f32[], s32[]) tuple(v, w)\n"
   "}\n"
   FIRST
   "  i = s32[6] iota(), iota_dimension=0\n"
   "  low = f32[] constant(-1)\n"
   "  no = s32[] constant(99)\n"
   "  m = (f32[], s32[]) reduce(d, i, low, no), dimensions={0}, to_apply=arg\n"
   "  s = f32[] get-tuple-element(m), index=0\n"
   "  c = s32[] get-tuple-element(m), index=1\n"
   "  k = f32[] convert(c)"
   SUM_AND_SIZE, largest, last_place},
  {"set again, to what is no constant",
   ADD FIRST
   "two = s32[] constant(2)\n"
   "m = s32[] minimum(n, two)\n"
   "g = f32[<=6] set-dimension-size(d, m), dimensions={0}\n"
   "s = f32[] reduce(g, z), dimensions={0}, to_apply=add\n"
   "k = f32[] reduce(d, z), dimensions={0}, to_apply=add"
   SUM_AND_SIZE, fewer_of, sum},
  {"turned around", ADD FIRST "j = f32[<=6] reverse(d), dimensions={0}" PLACES("j", "6"), turned_by_place, count},
  {"a slice along it", ADD FIRST "j = f32[<=2] slice(d), slice={[1:5:2]}" SUM_OF("j"), every_second, seconds},
  {"holes",
   ADD FIRST
   "w = f32[] constant(100)\n"
   "j = f32[<=11] pad(d, w), padding=0_0_1"
   PLACES("j", "11"), holes_by_place, with_holes},
  {"cut from the front", ADD FIRST "j = f32[<=5] pad(d, z), padding=-1_0" SUM_OF("j"), all_but_first, windows},
  {"divided",
   ADD FIRST
   "j = f32[<=3,2] reshape(d)\n"
   "s = f32[] reduce(j, z), dimensions={0,1}, to_apply=add"
   SIZE_OF("j"), in_pairs, pairs},
  {"divided inside",
   ADD FIRST
   "h = f32[2,<=3] reshape(d), inferred_dimension=1\n"
   "j = f32[1,<=3] slice(h), slice={[1:2],[0:3]}\n"
   "s = f32[] reduce(j, z), dimensions={0,1}, to_apply=add\n"
   "c = s32[] get-dimension-size(h), dimensions={1}\n"
   "k = f32[] convert(c)"
   SUM_AND_SIZE,
   second_half, pairs},
  {"divided and joined again",
   ADD FIRST
   "h = f32[2,<=3] reshape(d), inferred_dimension=1\n"
   "j = f32[<=6] reshape(h)"
   PLACES("j", "6"), pairs_by_place, twice_pairs},
  {"a dynamic reshape",
   ADD FIRST
   "h = f32[2,<=3] reshape(d), inferred_dimension=1\n"
   "o = s32[] constant(1)\n"
   "q = s32[] get-dimension-size(h), dimensions={1}\n"
   "t = s32[] add(q, q)\n"
   "j = f32[1,<=6] dynamic-reshape(h, o, t)\n"
   "l = f32[<=6] reshape(j)"
   PLACES("l", "6"), pairs_by_place, twice_pairs},
  {"gathered by some",
   ADD FIRST
   "i = s32[6] iota(), iota_dimension=0\n"
   "e = s32[<=6] set-dimension-size(i, n), dimensions={0}\n"
   "j = f32[<=6] gather(x, e), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
   "index_vector_dim=1, slice_sizes={1}"
   SUM_OF("j"), sum, count},
  {"some scattered",
   ADD FIRST
   "i = s32[6] iota(), iota_dimension=0\n"
   "o = f32[6] broadcast(z), dimensions={}\n"
   "j = f32[6] scatter(o, i, d), update_window_dims={}, inserted_window_dims={0}, "
   "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n"
   "s = f32[] reduce(j, z), dimensions={0}, to_apply=add\n"
   "k = f32[] constant(0)"
   SUM_AND_SIZE, sum, zero},
  {"windows", ADD FIRST "j = f32[<=5] reduce-window(d, z), window={size=2}, to_apply=add" SUM_OF("j"), neighbours, windows},
  {"sorted",
   "gt {\n"
   "  a = f32[] parameter(0)\n"
   "  b = f32[] parameter(1)\n"
   "  ROOT r = pred[] compare(a, b), direction=GT\n"
   "}\n"
   ADD FIRST
   "  j = f32[<=6] sort(d), dimensions={0}, to_apply=gt"
   PLACES("j", "6"), turned_by_place, count},
  {"sorted with places",
   "gt {\n"
   "  a = f32[] parameter(0)\n"
   "  b = f32[] parameter(1)\n"
   "  i = s32[] parameter(2)\n"
   "  l = s32[] parameter(3)\n"
   "  ROOT r = pred[] compare(a, b), direction=GT\n"
   "}\n"
   ADD FIRST
   "  i = s32[6] iota(), iota_dimension=0\n"
   "  m = f32[6] negate(x)\n"
   "  e = f32[<=6] set-dimension-size(m, n), dimensions={0}\n"
   "  h = (f32[<=6], s32[<=6]) sort(e, i), dimensions={0}, to_apply=gt\n"
   "  g = f32[<=6] get-tuple-element(h), index=0\n"
   "  j = f32[<=6] negate(g)"
   PLACES("j", "6"), in_order_by_place, count},
  {"written over others",
   ADD FIRST
   "w = f32[] constant(100)\n"
   "o = f32[8] broadcast(w), dimensions={}\n"
   "u = s32[] constant(1)\n"
   "j = f32[8] dynamic-update-slice(o, d, u)\n"
   "s = f32[] reduce(j, z), dimensions={0}, to_apply=add\n"
   "k = f32[] constant(0)"
   SUM_AND_SIZE,
   written_over, zero},
  {"of one and of many",
   ADD FIRST
   "u = s32[] constant(1)\n"
   "e = f32[<=6] set-dimension-size(x, u), dimensions={0}\n"
   "j = f32[<=6] add(d, e)"
   SUM_OF("j"),
   one_more_each, count},
  {"a loop",
   "body {\n"
   "  p = (s32[], f32[<=6]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  d = f32[<=6] get-tuple-element(p), index=1\n"
   "  o = s32[] constant(1)\n"
   "  l = s32[] add(i, o)\n"
   "  e = f32[<=6] add(d, d)\n"
   "  ROOT t = (s32[], f32[<=6]) tuple(l, e)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[<=6]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  o = s32[] constant(3)\n"
   "  ROOT c = pred[] compare(i, o), direction=LT\n"
   "}\n"
   ADD FIRST
   "  o = s32[] constant(0)\n"
   "  i = (s32[], f32[<=6]) tuple(o, d)\n"
   "  w = (s32[], f32[<=6]) while(i), condition=cond, body=body\n"
   "  j = f32[<=6] get-tuple-element(w), index=1"
   SUM_OF("j"), eight_sums, count},
  {"a loop that changes the size",
   "body {\n"
   "  d = f32[<=6] parameter(0)\n"
   "  q = s32[] get-dimension-size(d), dimensions={0}\n"
   "  o = s32[] constant(1)\n"
   "  l = s32[] subtract(q, o)\n"
   "  ROOT e = f32[<=6] set-dimension-size(d, l), dimensions={0}\n"
   "}\n"
   "cond {\n"
   "  d = f32[<=6] parameter(0)\n"
   "  q = s32[] get-dimension-size(d), dimensions={0}\n"
   "  o = s32[] constant(2)\n"
   "  ROOT c = pred[] compare(q, o), direction=GT\n"
   "}\n"
   ADD FIRST
   "  j = f32[<=6] while(d), condition=cond, body=body"
   SUM_OF("j"), fewer_of, few},
  {"branches",
   "more {\n"
   "  d = f32[<=6] parameter(0)\n"
   "  ROOT e = f32[<=6] add(d, d)\n"
   "}\n"
   "less {\n"
   "  d = f32[<=6] parameter(0)\n"
   "  q = s32[] get-dimension-size(d), dimensions={0}\n"
   "  o = s32[] constant(2)\n"
   "  l = s32[] minimum(q, o)\n"
   "  ROOT e = f32[<=6] set-dimension-size(d, l), dimensions={0}\n"
   "}\n"
   ADD FIRST
   "  three = s32[] constant(3)\n"
   "  c = pred[] compare(n, three), direction=GT\n"
   "  j = f32[<=6] conditional(c, d, d), true_computation=more, false_computation=less"
   SUM_OF("j"), double_or_few, all_or_few},
  {"a constant",
   ADD FIRST
   "two = s32[] constant(2)\n"
   "g = f32[<=6] set-dimension-size(x, two), dimensions={0}\n"
   "q = s32[] get-dimension-size(g), dimensions={0}\n"
   "s = f32[] convert(q)\n"
   "k = f32[] constant(0)"
   SUM_AND_SIZE, two, zero},
};

TEST(what_is_beyond_a_size_does_not_show)
{
  weft_platform *platform = test_platform(1, 1);

  for (size_t i = 0; i < WEFT_COUNT(programs); i++) {
    weft_executable *exe = test_compile(platform, programs[i].text, BUF_TOPOLOGICAL);
    for (int32_t n = 0; n <= MOST; n++) {
      float first = -2, second = -2;
      T_OK(test_run(exe, (const void *[]){x, &n}, (void *[]){&first, &second}));
      if (first != (float)programs[i].first(n) || second != (float)programs[i].second(n))
        fail_msg("%s, %d of %d: got %g and %g, want %g and %g", programs[i].what, n, MOST, (double)first,
                 (double)second, programs[i].first(n), programs[i].second(n));
    }
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
}

static const struct { const char *text, *words; } refused[] = {
  {FIRST
   "i = s32[] constant(1)\n"
   "s = f32[3] dynamic-slice(d, i), dynamic_slice_sizes={3}\n"
   "ROOT t = (f32[3]) tuple(s)\n"
   "}", "dynamic-slice of an array"},
  {FIRST
   "r = f32[2,3] reshape(d)\n"
   "ROOT s = f32[1,3] slice(r), slice={[0:1],[0:3]}\n"
   "}", "nothing says which dimension"},
};

TEST(what_is_not_followed_is_named)
{
  weft_platform *platform = test_platform(1, 1);

  for (size_t i = 0; i < WEFT_COUNT(refused); i++) {
    hlo_module *module;
    weft_executable *exe = NULL;
    T_OK(hlo_parse(refused[i].text, strlen(refused[i].text), &module));
    weft_status *st = weft_compile(platform, module, &(weft_compile_options){0}, &exe);
    if (!st || !strstr(weft_status_text(st, false), refused[i].words))
      fail_msg("%s\n%s", refused[i].text, st ? weft_status_text(st, false) : "no error");
    T_CODE(st, WEFT_UNIMPLEMENTED);
  }
  weft_platform_release(platform);
}

/* A result is packed by its sizes and zero behind that, as XLA's lies in memory. */
TEST(results_are_packed)
{
  const float six[6] = {1, 2, 3, 4, 5, 6}, want[6] = {1, 2, 4, 5, 0, 0}, want_whole[6] = {1, 2, 0, 0, 0, 0};
  float packed[6], whole[6];
  const int32_t n = 2;
  weft_platform *platform = test_platform(1, 1);
  weft_executable *exe = test_compile(platform,
                                      "ENTRY e {\n"
                                      "  x = f32[2,3] parameter(0)\n"
                                      "  n = s32[] parameter(1)\n"
                                      "  y = f32[6] reshape(x)\n"
                                      "  d = f32[2,<=3] set-dimension-size(x, n), dimensions={1}\n"
                                      "  l = f32[<=6] set-dimension-size(y, n), dimensions={0}\n"
                                      "  o = (f32[<=6]) tuple(l)\n"
                                      "  ROOT t = (f32[2,<=3], (f32[<=6])) tuple(d, o)\n"
                                      "}",
                                      BUF_TOPOLOGICAL);

  T_OK(test_run(exe, (const void *[]){six, &n}, (void *[]){packed, whole}));
  for (int i = 0; i < 6; i++) T_TRUE(packed[i] == want[i] && whole[i] == want_whole[i]);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

/* A group's matrix may hold NaNs and infinities without an effect on rows of other groups: these rows do not read it,
 * and zero times it is not added. */
TEST(groups_of_a_ragged_dot_do_not_meet)
{
  weft_platform *platform = test_platform(1, 1);
  const float lhs[4] = {1, 2, 3, 4}, rhs[3] = {10, NAN, 100}, want[4] = {10, 20, 300, 0}, by_group[3] = {90, 0, 300};
  float right[4] = {10, 40, 100, NAN}, got[4], sums[3];
  const int32_t sizes[3] = {2, 0, 1};
  weft_executable *exe =
    test_compile(platform,
                 "ENTRY e {\n"
                 "  l = f32[4,1] parameter(0)\n"
                 "  r = f32[3,1,1] parameter(1)\n"
                 "  s = s32[3] parameter(2)\n"
                 "  v = f32[4,1] parameter(3)\n"
                 "  a = f32[4,1] ragged-dot(l, r, s), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
                 "lhs_ragged_dims={0}, rhs_group_dims={0}\n"
                 "  b = f32[3,1,1] ragged-dot(l, v, s), lhs_contracting_dims={0}, rhs_contracting_dims={0}, "
                 "lhs_ragged_dims={0}, rhs_group_dims={}\n"
                 "  ROOT t = (f32[4,1], f32[3,1,1]) tuple(a, b)\n"
                 "}",
                 BUF_TOPOLOGICAL);

  T_OK(test_run(exe, (const void *[]){lhs, rhs, sizes, right}, (void *[]){got, sums}));
  for (int i = 0; i < 4; i++) T_TRUE(got[i] == want[i]);
  for (int i = 0; i < 3; i++) T_TRUE(sums[i] == by_group[i]);
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST_MAIN(UNIT(results_are_packed), UNIT(groups_of_a_ragged_dot_do_not_meet), UNIT(what_is_beyond_a_size_does_not_show), UNIT(what_is_not_followed_is_named))
