/* tests/cpu/dot_parts_test.c -- dots of parts of arrays, which are read where they lie: results are those of the
 * reference evaluator to the last bit (numbers are whole and small, so that sums are exact in any order), in the first
 * run, with packed forms, and in a program that was saved and loaded. */
#include "cpu/against_evaluator.h"

#include "cpu/makers.h"
#include "runtime/runtime_internal.h"

typedef struct program {
  const char *name, *body;
  int kernels;     /* steps of compiled code: copies of parts would be such steps */
  int64_t start;   /* what integer scalars are */
} program;

static const program programs[] = {
  {"weights of one layer",
   "  x = f32[8,64] parameter(0)\n"
   "  w = f32[3,64,96] parameter(1)\n"
   "  s = f32[1,64,96] slice(w), slice={[1:2], [0:64], [0:96]}\n"
   "  r = f32[64,96] reshape(s)\n"
   "  ROOT y = f32[8,96] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 0},
  {"weights of one layer, transposed",
   "  x = f32[8,96] parameter(0)\n"
   "  w = f32[3,64,96] parameter(1)\n"
   "  s = f32[1,64,96] slice(w), slice={[2:3], [0:64], [0:96]}\n"
   "  r = f32[64,96] reshape(s)\n"
   "  ROOT y = f32[8,64] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n", 0},
  {"large weights, few rows",
   "  x = f32[4,512] parameter(0)\n"
   "  w = f32[2,512,640] parameter(1)\n"
   "  s = f32[1,512,640] slice(w), slice={[1:2], [0:512], [0:640]}\n"
   "  r = f32[512,640] reshape(s)\n"
   "  ROOT y = f32[4,640] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 0},
  {"large weights, many rows",
   "  x = f32[70,512] parameter(0)\n"
   "  w = f32[2,512,640] parameter(1)\n"
   "  s = f32[1,512,640] slice(w), slice={[1:2], [0:512], [0:640]}\n"
   "  r = f32[512,640] reshape(s)\n"
   "  ROOT y = f32[70,640] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 0},
  {"one row",
   "  x = f32[64] parameter(0)\n"
   "  w = f32[3,64,96] parameter(1)\n"
   "  s = f32[1,64,96] slice(w), slice={[1:2], [0:64], [0:96]}\n"
   "  r = f32[64,96] reshape(s)\n"
   "  ROOT y = f32[96] dot(x, r), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n", 0},
  {"some columns of weights",
   "  x = f32[8,64] parameter(0)\n"
   "  w = f32[64,200] parameter(1)\n"
   "  s = f32[64,70] slice(w), slice={[0:64], [13:83]}\n"
   "  ROOT y = f32[8,70] dot(x, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 0},
  {"a part on the left, and on both sides",
   "  a = f32[24,3,64] parameter(0)\n"
   "  w = f32[64,40] parameter(1)\n"
   "  s = f32[24,1,64] slice(a), slice={[0:24], [1:2], [0:64]}\n"
   "  r = f32[24,64] reshape(s)\n"
   "  t = f32[24,1,64] slice(a), slice={[0:24], [2:3], [0:64]}\n"
   "  u = f32[24,64] reshape(t)\n"
   "  y = f32[24,40] dot(r, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  z = f32[24,24] dot(r, u), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
   "  ROOT o = (f32[24,40], f32[24,24]) tuple(y, z)\n", 0},
  {"heads of queries and keys",
   "  a = f32[2,16,3,4,8] parameter(0)\n"
   "  q = f32[2,16,1,4,8] slice(a), slice={[0:2], [0:16], [0:1], [0:4], [0:8]}\n"
   "  r = f32[2,16,4,8] reshape(q)\n"
   "  k = f32[2,16,1,4,8] slice(a), slice={[0:2], [0:16], [1:2], [0:4], [0:8]}\n"
   "  l = f32[2,16,4,8] reshape(k)\n"
   "  ROOT y = f32[2,4,16,16] dot(r, l), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, "
   "rhs_contracting_dims={3}\n", 0},
  {"keys and values of a cache",
   "  q = f32[3,1,4,32] parameter(0)\n"
   "  c = f32[2,2,3,20,4,32] parameter(1)\n"
   "  a = f32[1,1,3,20,4,32] slice(c), slice={[1:2], [0:1], [0:3], [0:20], [0:4], [0:32]}\n"
   "  k = f32[3,20,4,32] reshape(a)\n"
   "  b = f32[1,1,3,20,4,32] slice(c), slice={[1:2], [1:2], [0:3], [0:20], [0:4], [0:32]}\n"
   "  v = f32[3,20,4,32] reshape(b)\n"
   "  s = f32[3,4,1,20] dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, "
   "rhs_contracting_dims={3}\n"
   "  ROOT y = f32[3,4,32,1] dot(v, s), lhs_batch_dims={0,2}, rhs_batch_dims={0,1}, lhs_contracting_dims={1}, "
   "rhs_contracting_dims={3}\n", 0},
  {"a part of a product",
   "  x = f32[16,24] parameter(0)\n"
   "  w = f32[24,96] parameter(1)\n"
   "  p = f32[16,96] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  q = f32[16,32] slice(p), slice={[0:16], [0:32]}\n"
   "  k = f32[16,32] slice(p), slice={[0:16], [32:64]}\n"
   "  ROOT y = f32[16,16] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n", 0},
#define DYNAMIC(type) \
  "  x = f32[8,64] parameter(0)\n" \
  "  w = f32[5,2,64,96] parameter(1)\n" \
  "  i = " type "[] parameter(2)\n" \
  "  one = " type "[] constant(1)\n" \
  "  zero = " type "[] constant(0)\n" \
  "  s = f32[1,1,64,96] dynamic-slice(w, i, one, zero, zero), dynamic_slice_sizes={1,1,64,96}\n" \
  "  r = f32[64,96] reshape(s)\n" \
  "  ROOT y = f32[8,96] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
  {"a start that is known in the run", DYNAMIC("s32"), 0, 3},
  {"a start before the array", DYNAMIC("s32"), 0, -7},
  {"a start behind the array", DYNAMIC("s32"), 0, 1000},
  {"a start of 8 bits", DYNAMIC("s8"), 0, -2},
  {"a start of 64 bits", DYNAMIC("s64"), 0, INT64_MAX},
  {"a start of 64 bits without a sign", DYNAMIC("u64"), 0, -1},
  {"a start of 16 bits without a sign", DYNAMIC("u16"), 0, 2},
  {"a constant start of 64 bits without a sign, behind the array",
   "  x = f32[8,64] parameter(0)\n"
   "  w = f32[5,3,64,96] parameter(1)\n"
   "  i = u64[] parameter(2)\n"
   "  most = u64[] constant(18446744073709551615)\n"
   "  zero = u64[] constant(0)\n"
   "  s = f32[1,1,64,96] dynamic-slice(w, i, most, zero, zero), dynamic_slice_sizes={1,1,64,96}\n"
   "  r = f32[64,96] reshape(s)\n"
   "  ROOT y = f32[8,96] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 0, 3},
  {"a part on the left from a start on",
   "  a = f32[40,64] parameter(0)\n"
   "  w = f32[64,30] parameter(1)\n"
   "  i = s32[] parameter(2)\n"
   "  zero = s32[] constant(0)\n"
   "  s = f32[16,64] dynamic-slice(a, i, zero), dynamic_slice_sizes={16,64}\n"
   "  ROOT y = f32[16,30] dot(s, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 0, 5},
#define OF_TYPE(type, result) \
  "  x = " type "[8,64] parameter(0)\n" \
  "  w = " type "[3,64,96] parameter(1)\n" \
  "  s = " type "[1,64,96] slice(w), slice={[1:2], [0:64], [0:96]}\n" \
  "  r = " type "[64,96] reshape(s)\n" \
  "  ROOT y = " result "[8,96] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
  {"bf16", OF_TYPE("bf16", "f32"), 0},
  {"f16", OF_TYPE("f16", "f32"), 0},
  {"f64", OF_TYPE("f64", "f64"), 0},
  {"c64", OF_TYPE("c64", "c64"), 0},
  {"s8", OF_TYPE("s8", "s32"), 0},
  {"s32", OF_TYPE("s32", "s32"), 0},
  /* no library multiplies these in place: the part is copied */
  {"every second column",
   "  x = f32[8,64] parameter(0)\n"
   "  w = f32[64,200] parameter(1)\n"
   "  s = f32[64,100] slice(w), slice={[0:64], [0:200:2]}\n"
   "  ROOT y = f32[8,100] dot(x, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 1},
  {"rows that lie apart in two ways",
   "  a = f32[4,8,64] parameter(0)\n"
   "  w = f32[64,30] parameter(1)\n"
   "  s = f32[4,3,64] slice(a), slice={[0:4], [2:5], [0:64]}\n"
   "  r = f32[12,64] reshape(s)\n"
   "  ROOT y = f32[12,30] dot(r, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 1},
  {"a part of what a kernel computes", /* the kernel computes the part alone */
   "  x = f32[8,64] parameter(0)\n"
   "  w = f32[3,64,96] parameter(1)\n"
   "  d = f32[3,64,96] add(w, w)\n"
   "  s = f32[1,64,96] slice(d), slice={[1:2], [0:64], [0:96]}\n"
   "  r = f32[64,96] reshape(s)\n"
   "  ROOT y = f32[8,96] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 1},
};

/* The layers that a loop goes through. The number of rounds is a parameter, so that the loop stays a loop. */
static const char layers[] = "HloModule layers\n"
                             "body {\n"
                             "  s = (s32[], f32[24,32], f32[3,32,32], s32[]) parameter(0)\n"
                             "  i = s32[] get-tuple-element(s), index=0\n"
                             "  x = f32[24,32] get-tuple-element(s), index=1\n"
                             "  w = f32[3,32,32] get-tuple-element(s), index=2\n"
                             "  zero = s32[] constant(0)\n"
                             "  one = s32[] constant(1)\n"
                             "  p = f32[1,32,32] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,32,32}\n"
                             "  r = f32[32,32] reshape(p)\n"
                             "  y = f32[24,32] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                             "  j = s32[] add(i, one)\n"
                             "  k = s32[] get-tuple-element(s), index=3\n"
                             "  ROOT t = (s32[], f32[24,32], f32[3,32,32], s32[]) tuple(j, y, w, k)\n"
                             "}\n"
                             "cond {\n"
                             "  s = (s32[], f32[24,32], f32[3,32,32], s32[]) parameter(0)\n"
                             "  i = s32[] get-tuple-element(s), index=0\n"
                             "  n = s32[] get-tuple-element(s), index=3\n"
                             "  ROOT r = pred[] compare(i, n), direction=LT\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[24,32] parameter(0)\n"
                             "  w = f32[3,32,32] parameter(1)\n"
                             "  n = s32[] parameter(2)\n"
                             "  zero = s32[] constant(0)\n"
                             "  t = (s32[], f32[24,32], f32[3,32,32], s32[]) tuple(zero, x, w, n)\n"
                             "  l = (s32[], f32[24,32], f32[3,32,32], s32[]) while(t), condition=cond, body=body\n"
                             "  ROOT y = f32[24,32] get-tuple-element(l), index=1\n"
                             "}\n";

/* In each round `old` is read by a product that needs `new`, which is written over it. */
static const char updates[] = "HloModule updates\n"
                              "body {\n"
                              "  s = (s32[], f32[3,32,32], f32[32,32], s32[]) parameter(0)\n"
                              "  i = s32[] get-tuple-element(s), index=0\n"
                              "  old = f32[3,32,32] get-tuple-element(s), index=1\n"
                              "  z = f32[32,32] get-tuple-element(s), index=2\n"
                              "  zero = s32[] constant(0)\n"
                              "  one = s32[] constant(1)\n"
                              "  p = f32[1,32,32] slice(old), slice={[0:1], [0:32], [0:32]}\n"
                              "  q = f32[32,32] reshape(p)\n"
                              "  two = f32[] constant(2)\n"
                              "  c = f32[32,32] broadcast(two), dimensions={}\n"
                              "  m = f32[32,32] subtract(c, q)\n"
                              "  next = f32[1,32,32] reshape(m)\n"
                              "  new = f32[3,32,32] dynamic-update-slice(old, next, zero, zero, zero)\n"
                              "  a = f32[1,32,32] slice(new), slice={[0:1], [0:32], [0:32]}\n"
                              "  b = f32[32,32] reshape(a)\n"
                              "  y = f32[32,32] dot(q, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                              "  u = f32[32,32] add(z, y)\n"
                              "  j = s32[] add(i, one)\n"
                              "  k = s32[] get-tuple-element(s), index=3\n"
                              "  ROOT t = (s32[], f32[3,32,32], f32[32,32], s32[]) tuple(j, new, u, k)\n"
                              "}\n"
                              "cond {\n"
                              "  s = (s32[], f32[3,32,32], f32[32,32], s32[]) parameter(0)\n"
                              "  i = s32[] get-tuple-element(s), index=0\n"
                              "  n = s32[] get-tuple-element(s), index=3\n"
                              "  ROOT r = pred[] compare(i, n), direction=LT\n"
                              "}\n"
                              "ENTRY e {\n"
                              "  w = f32[3,32,32] parameter(0)\n"
                              "  x = f32[32,32] parameter(1)\n"
                              "  n = s32[] parameter(2)\n"
                              "  zero = s32[] constant(0)\n"
                              "  t = (s32[], f32[3,32,32], f32[32,32], s32[]) tuple(zero, w, x, n)\n"
                              "  l = (s32[], f32[3,32,32], f32[32,32], s32[]) while(t), condition=cond, body=body\n"
                              "  a = f32[3,32,32] get-tuple-element(l), index=1\n"
                              "  u = f32[32,32] get-tuple-element(l), index=2\n"
                              "  ROOT r = (f32[3,32,32], f32[32,32]) tuple(a, u)\n"
                              "}\n";

TEST(parts_are_read_in_place_and_give_the_same_results)
{
  weft_platform *platform = test_platform(1, 2);
  bool ok = true;

  for (size_t i = 0; i < WEFT_COUNT(programs); i++) {
    const program *p = &programs[i];
    char text[2048];
    int kernels, copies;
    snprintf(text, sizeof text,
             "HloModule m\n"
             "ENTRY e {\n"
             "%s}\n",
             p->body);
    ok = gives_exactly(platform, text, p->start, p->name, &kernels, &copies) && ok;
    if (kernels == p->kernels && copies == 0) continue;
    print_message("# %s: %d kernels and %d copies, want %d and 0\n", p->name, kernels, copies, p->kernels);
    ok = false;
  }
  weft_platform_release(platform);
  T_TRUE(ok);
}

TEST(a_loop_goes_through_stacked_weights_without_copies)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, layers, BUF_TOPOLOGICAL);
  char *steps = test_steps_of(exe);
  int kernels, copies;

  T_TRUE(strstr(steps, "dot_fusion") != NULL);
  T_TRUE(strstr(steps, "dynamic-slice") == NULL);
  free(steps);
  weft_executable_release(exe);
  T_TRUE(gives_exactly(platform, layers, 3, "layers", &kernels, &copies));
  weft_platform_release(platform);
}

/* The steps between the line of the sequence whose name begins with `name` and the next such line. */
static int count_in_sequence(const weft_executable *exe, const char *name, const char *kind)
{
  char *steps = test_steps_of(exe), *save = NULL;
  bool inside = false;
  int count = 0;

  for (char *line = strtok_r(steps, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    if (*line != ' ') inside = strstr(line, name) != NULL;
    else count += inside && strstr(line, kind) != NULL;
  }
  free(steps);
  return count;
}

/* A copy of the part that is still needed costs less than one of the whole array. */
TEST(an_array_that_is_updated_before_the_product_is_not_copied_as_a_whole)
{
  weft_platform *platform = test_platform(1, 2);
  weft_executable *exe = test_compile(platform, updates, BUF_TOPOLOGICAL);
  int kernels, copies;

  T_TRUE(count_in_sequence(exe, "body", " dot ") > 0);
  T_EQ_INT(count_in_sequence(exe, "body", " copy "), 0);
  weft_executable_release(exe);
  T_TRUE(gives_exactly(platform, updates, 5, "updates", &kernels, &copies));
  weft_platform_release(platform);
}

/* Pass dot-joins. */
TEST(a_cache_that_is_joined_to_new_keys_and_values_gives_the_same_results)
{
  static const char decoder[] =
    "HloModule m\n"
    "ENTRY e {\n"
    "  q = TYPE[4,1,64] parameter(0)\n"
    "  cache = TYPE[2,4,127,64] parameter(1)\n"
    "  new = TYPE[4,1,64] parameter(2)\n"
    "  ks = TYPE[1,4,127,64] slice(cache), slice={[0:1], [0:4], [0:127], [0:64]}\n"
    "  nk = TYPE[1,4,1,64] reshape(new)\n"
    "  k = TYPE[1,4,128,64] concatenate(nk, ks), dimensions={2}\n"
    "  kt = TYPE[1,4,64,128] transpose(k), dimensions={0,1,3,2}\n"
    "  kb = TYPE[4,64,128] reshape(kt)\n"
    "  scores = TYPE[4,1,128] dot(q, kb), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
    "  p = TYPE[4,1,128] parameter(3)\n"
    "  vs = TYPE[1,4,127,64] slice(cache), slice={[1:2], [0:4], [0:127], [0:64]}\n"
    "  vr = TYPE[4,127,64] reshape(vs)\n"
    "  v = TYPE[4,128,64] concatenate(vr, new), dimensions={1}\n"
    "  mixed = TYPE[4,1,64] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
    "  w = TYPE[4,128,64] concatenate(new, vr), dimensions={1}\n"
    "  vt = TYPE[4,64,128] transpose(w), dimensions={0,2,1}\n"
    "  turned = TYPE[4,64,1] dot(vt, p), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
    "  first = TYPE[512] reshape(scores)\n"
    "  second = TYPE[256] reshape(mixed)\n"
    "  third = TYPE[256] reshape(turned)\n"
    "  ROOT all = TYPE[1024] concatenate(first, second, third), dimensions={0}\n"
    "}\n";
  static const char *const types[] = {"f32", "bf16", "f64", "s32"};
  weft_platform *platform = test_platform(1, 2);

  for (size_t i = 0; i < WEFT_COUNT(types); i++) {
    char text[4096];
    int kernels, copies;
    put_of_type(text, decoder, types[i]);
    T_TRUE(gives_exactly(platform, text, 0, types[i], &kernels, &copies));
  }
  weft_platform_release(platform);
}

#define WEIGHTS \
  "HloModule m\n" \
  "ENTRY e {\n" \
  "  x = f32[24,520] parameter(0)\n" \
  "  w = f32[3,520,528] parameter(1)\n"

/* Two parts of one weight have a form each, and those that a start chooses from have one all together. */
TEST(each_part_of_a_weight_has_its_packed_form)
{
  static const char one[] = WEIGHTS
    "  a = f32[1,520,528] slice(w), slice={[0:1], [0:520], [0:528]}\n"
    "  b = f32[520,528] reshape(a)\n"
    "  ROOT y = f32[24,528] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "}\n";
  static const char two[] = WEIGHTS "  a = f32[1,520,528] slice(w), slice={[0:1], [0:520], [0:528]}\n"
                                    "  b = f32[520,528] reshape(a)\n"
                                    "  c = f32[1,520,528] slice(w), slice={[2:3], [0:520], [0:528]}\n"
                                    "  d = f32[520,528] reshape(c)\n"
                                    "  y = f32[24,528] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                                    "  z = f32[24,528] dot(x, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                                    "  ROOT o = (f32[24,528], f32[24,528]) tuple(y, z)\n"
                                    "}\n";
  static const char any[] = WEIGHTS
    "  i = s32[] parameter(2)\n"
    "  zero = s32[] constant(0)\n"
    "  a = f32[1,520,528] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,520,528}\n"
    "  b = f32[520,528] reshape(a)\n"
    "  ROOT y = f32[24,528] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "}\n";
  static const char window[] = /* its matrices overlap */
    WEIGHTS "  i = s32[] parameter(2)\n"
            "  zero = s32[] constant(0)\n"
            "  v = f32[1560,528] reshape(w)\n"
            "  a = f32[520,528] dynamic-slice(v, i, zero), dynamic_slice_sizes={520,528}\n"
            "  ROOT y = f32[24,528] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
            "}\n";
  const struct { const char *text; int forms; int64_t start; } cases[] = {
    {one, 1, 0}, {two, 2, 0}, {any, 3, 0}, {any, 3, 1}, {any, 3, 7}, {window, 0, 3},
  };
  weft_platform *platform = test_platform(1, 2);
  int64_t form_bytes = 0;

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    weft_executable *exe = test_compile(platform, cases[i].text, BUF_TOPOLOGICAL);
    int kernels, copies;
    if (i == 0) form_bytes = weft_executable_packed_bytes(exe, true);
    T_EQ_INT(weft_executable_packed_bytes(exe, true), cases[i].forms * form_bytes);
    weft_executable_release(exe);
    T_TRUE(gives_exactly(platform, cases[i].text, cases[i].start, "packed forms", &kernels, &copies));
    T_EQ_INT(rt_packed_bytes(platform), 0); /* they have ended with the buffers */
  }
  weft_platform_release(platform);
}

/* What a file says to be a step of the library must be one that the library can do. */
TEST(other_fusions_are_left_to_the_evaluator)
{
  static const struct { const char *body, *why; } cases[] = {
    {"p = f32[64,64] parameter(0)\n"
    "  q = s32[] parameter(1)\n"
    "  ROOT r = f32[64,64] add(p, p)\n", "no dot"},
    {"p = f32[64,64] parameter(0)\n"
    "  q = s32[] parameter(1)\n"
    "  a = f32[64,64] add(p, p)\n"
     "  ROOT r = f32[64,64] dot(a, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", "an array"},
    {"p = f32[64,64] parameter(0)\n"
    "  q = s32[] parameter(1)\n"
    "  i = s32[] add(q, q)\n"
    "  z = s32[] constant(0)\n"
     "  s = f32[8,64] dynamic-slice(p, i, z), dynamic_slice_sizes={8,64}\n"
     "  ROOT r = f32[8,64] dot(s, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", "a start"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    char text[1024];
    weft_arena arena;
    hlo_module *module;
    low_plan plan = {0};
    snprintf(text, sizeof text,
             "HloModule m\n"
             "f {\n"
             "  %s}\n"
             "ENTRY e {\n"
             "  x = f32[64,64] parameter(0)\n"
             "  n = s32[] parameter(1)\n"
             "  ROOT y = f32[%d,64] fusion(x, n), kind=kCustom, calls=f, backend_config=\"library\"\n"
             "}\n",
             cases[i].body, i == 2 ? 8 : 64);
    T_OK(hlo_parse(text, strlen(text), &module));
    weft_arena_init(&arena);
    T_FAILS(cpu_dot_parts_plan(NULL, &arena, module->entry->root, &plan), cases[i].why);
    weft_arena_fini(&arena);
    hlo_module_free(module);
  }
}

/* ---- random parts ------------------------------------------------------------------------------------------------ */

/* The text of a program, and the part that its last line takes. */
typedef struct writer {
  char text[8192];
  size_t size;
  uint64_t state;
  int values;      /* v0, v1, ... of the part's path */
  int rank;
  int64_t dims[HLO_MAX_RANK];
  const char *type, *start_type;
} writer;

static int64_t pick(writer *w, int64_t below) { return pick_below(&w->state, below); }

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
  va_list args;

  va_start(args, format);
  int count = vsnprintf(w->text + w->size, sizeof w->text - w->size, format, args);
  va_end(args);
  T_TRUE(count >= 0 && (size_t)count < sizeof w->text - w->size);
  w->size += (size_t)count;
}

static void put_numbers(writer *w, const char *before, int count, const int64_t *v, const char *after)
{
  put(w, "%s", before);
  for (int i = 0; i < count; i++) put(w, "%s%" PRId64, i ? "," : "", v[i]);
  put(w, "%s", after);
}

/* "  vN = type[dims] op(vN-1", whose rest the caller writes. */
static void put_value(writer *w, const int64_t *dims, int rank, const char *op)
{
  put(w, "  v%d = %s", w->values + 1, w->type);
  put_numbers(w, "[", rank, dims, "]");
  put(w, " %s(v%d", op, w->values);
  w->values++;
  w->rank = rank;
  memcpy(w->dims, dims, (size_t)rank * sizeof *dims);
}

static void put_slice(writer *w)
{
  int64_t from[HLO_MAX_RANK], size[HLO_MAX_RANK];

  for (int d = 0; d < w->rank; d++) {
    bool whole = pick(w, 2);
    size[d] = whole ? w->dims[d] : 1 + pick(w, w->dims[d]);
    from[d] = pick(w, w->dims[d] - size[d] + 1);
  }
  put_value(w, size, w->rank, "slice");
  for (int d = 0; d < w->rank; d++)
    put(w, "%s[%" PRId64 ":%" PRId64 "]", d ? ", " : "), slice={", from[d], from[d] + size[d]);
  put(w, "}\n");
}

/* Starts are the program's parameter or constants, also such as are out of range. */
static void put_dynamic_slice(writer *w)
{
  bool is_signed = w->start_type[0] == 's', is_known[HLO_MAX_RANK];
  int64_t size[HLO_MAX_RANK];

  for (int d = 0; d < w->rank; d++) {
    is_known[d] = pick(w, 2);
    size[d] = pick(w, 2) ? w->dims[d] : 1 + pick(w, w->dims[d]);
    if (!is_known[d]) continue;
    put(w, "  c%d.%d = %s[] constant(", w->values, d, w->start_type);
    if (!is_signed && pick(w, 4) == 0) put(w, "%s)\n", strcmp(w->start_type, "u64") ? "255" : "18446744073709551615");
    else put(w, "%" PRId64 ")\n", pick(w, 9) - (is_signed ? 2 : 0));
  }
  put_value(w, size, w->rank, "dynamic-slice");
  for (int d = 0; d < w->rank; d++)
    if (is_known[d]) put(w, ", c%d.%d", w->values - 1, d);
    else put(w, ", start");
  put_numbers(w, "), dynamic_slice_sizes={", w->rank, size, "}\n");
}

static void put_transpose(writer *w)
{
  int64_t order[HLO_MAX_RANK], dims[HLO_MAX_RANK];

  for (int d = 0; d < w->rank; d++) order[d] = d;
  for (int d = w->rank - 1; d > 0; d--) {
    int64_t other = pick(w, d + 1), kept = order[d];
    order[d] = order[other];
    order[other] = kept;
  }
  for (int d = 0; d < w->rank; d++) dims[d] = w->dims[order[d]];
  put_value(w, dims, w->rank, "transpose");
  put_numbers(w, "), dimensions={", w->rank, order, "}\n");
}

/* Two dimensions become one, or an even one becomes two. */
static void put_reshape(writer *w)
{
  int at = (int)pick(w, w->rank), rank = 0;
  bool splits = w->dims[at] % 2 == 0 && pick(w, 2);
  int64_t dims[HLO_MAX_RANK];

  if (w->rank > 5 || (!splits && at + 1 == w->rank)) return;
  for (int d = 0; d < w->rank; d++) {
    if (d != at) dims[rank++] = w->dims[d];
    else if (splits) dims[rank++] = 2, dims[rank++] = w->dims[d] / 2;
    else dims[rank++] = w->dims[d] * w->dims[d + 1], d++;
  }
  put_value(w, dims, rank, "reshape");
  put(w, ")\n");
}

/* A product of the part, on either side, by a second parameter. */
static void put_dot(writer *w)
{
  int sum = (int)pick(w, w->rank), batch = w->rank > 2 && pick(w, 2) ? (sum + 1) % w->rank : -1, rank = 0, out_rank = 0;
  bool left = pick(w, 2);
  int64_t columns = 8 + pick(w, 60), dims[3], out[HLO_MAX_RANK];

  if (batch >= 0) dims[rank++] = out[out_rank++] = w->dims[batch];
  if (!left) out[out_rank++] = columns;
  for (int d = 0; d < w->rank; d++)
    if (d != sum && d != batch) out[out_rank++] = w->dims[d];
  if (left) out[out_rank++] = columns;
  dims[rank++] = w->dims[sum];
  dims[rank++] = columns;
  put(w, "  other = %s", w->type);
  put_numbers(w, "[", rank, dims, "] parameter(2)\n");
  put(w, "  ROOT y = %s", strcmp(w->type, "bf16") ? w->type : "f32");
  put_numbers(w, "[", out_rank, out, "]");
  if (left) put(w, " dot(v%d, other)", w->values);
  else put(w, " dot(other, v%d)", w->values);
  if (batch >= 0) put(w, ", lhs_batch_dims={%d}, rhs_batch_dims={%d}", left ? batch : 0, left ? 0 : batch);
  put(w, ", lhs_contracting_dims={%d}, rhs_contracting_dims={%d}\n}\n", left ? sum : rank - 2, left ? rank - 2 : sum);
}

static void put_program(writer *w, uint64_t seed)
{
  static const char *const types[] = {"f32", "f32", "bf16", "f64", "s32"};
  static const char *const start_types[] = {"s32", "s8", "u8", "s64", "u64"};
  static const int64_t sizes[] = {2, 3, 5, 16, 24, 32, 48};

  *w = (writer){.state = seed * 7919 + 1, .rank = 3};
  w->rank += (int)pick(w, 2);
  w->type = types[pick(w, WEFT_COUNT(types))];
  w->start_type = start_types[pick(w, WEFT_COUNT(start_types))];
  for (int d = 0; d < w->rank; d++) w->dims[d] = sizes[pick(w, (int64_t)WEFT_COUNT(sizes) - (d > 2 ? 4 : 0))];
  put(w, "HloModule random\nENTRY e {\n  v0 = %s", w->type);
  put_numbers(w, "[", w->rank, w->dims, "] parameter(0)\n");
  put(w, "  start = %s[] parameter(1)\n", w->start_type);
  for (int64_t steps = 1 + pick(w, 4); steps > 0; steps--) {
    switch (pick(w, 5)) {
    case 0: put_slice(w); break;
    case 1: put_transpose(w); break;
    case 2: put_reshape(w); break;
    default: put_dynamic_slice(w); break;
    }
  }
  put_dot(w);
}

/* WEFT_SEED=n runs one seed and prints its program, WEFT_COUNT=n that many seeds from WEFT_FIRST on. */
TEST(random_parts_give_the_same_results)
{
  seeds of = seeds_of(120);
  uint64_t in_place = 0;
  weft_platform *platform = test_platform(1, 2);

  for (uint64_t seed = of.from; seed < of.from + of.count; seed++) {
    static const int64_t starts[] = {0, 1, 2, 5, 100};
    writer w;
    char name[32];
    int kernels, copies;
    put_program(&w, seed);
    if (of.print) print_message("%s", w.text);
    snprintf(name, sizeof name, "seed %" PRIu64, seed);
    if (!gives_exactly(platform, w.text, starts[seed % WEFT_COUNT(starts)], name, &kernels, &copies))
      fail_msg("%s", w.text);
    in_place += kernels == 0 && copies == 0;
  }
  weft_platform_release(platform);
  if (of.count >= 100 && in_place * 4 < of.count)
    fail_msg("%" PRIu64 " of %" PRIu64 " read parts in place", in_place, of.count);
}

/* ---- weights with zero points and scales ---- */

/* What a random program makes weights of. */
typedef struct recipe {
  int64_t rows, depth, columns, group, layers; /* layers: 0: the weights are not stacked */
  bool turned;          /* the contracted dimension is the last one */
  bool stored_in_groups;
  const char *type, *stored, *made; /* of the dot; of the weights in memory; of the arithmetic */
} recipe;

/* "[K,N]", or with its groups apart "[G,g,N]"; turned "[N,K]", "[N,G,g]". `layers`, if not 0, comes first. */
static void put_dims(writer *w, const recipe *r, int64_t layers, bool apart)
{
  int64_t dims[4];
  int rank = 0;

  if (layers) dims[rank++] = layers;
  if (r->turned) dims[rank++] = r->columns;
  if (apart) dims[rank++] = r->depth / r->group;
  dims[rank++] = apart ? r->group : r->depth;
  if (!r->turned) dims[rank++] = r->columns;
  put_numbers(w, "[", rank, dims, "]");
}

/* Parameter `name`, of which the layer that `start` chooses is taken if there are layers, as an array of those
 * dimensions. */
static void put_array(writer *w, const recipe *r, const char *name, const char *type, int number, int rank,
                      const int64_t *dims)
{
  int64_t all[4] = {r->layers}, one[4] = {1};

  if (r->layers == 0) {
    put(w, "  %s = %s", name, type);
    put_numbers(w, "[", rank, dims, "]");
    put(w, " parameter(%d)\n", number);
    return;
  }
  memcpy(all + 1, dims, (size_t)rank * sizeof *dims);
  memcpy(one + 1, dims, (size_t)rank * sizeof *dims);
  put(w, "  %s.all = %s", name, type);
  put_numbers(w, "[", rank + 1, all, "]");
  put(w, " parameter(%d)\n  %s.one = %s", number, name, type);
  put_numbers(w, "[", rank + 1, one, "]");
  put(w, " dynamic-slice(%s.all, start", name);
  for (int d = 0; d < rank; d++) put(w, ", zero");
  put_numbers(w, "), dynamic_slice_sizes={", rank + 1, one, "}\n");
  put(w, "  %s = %s", name, type);
  put_numbers(w, "[", rank, dims, "]");
  put(w, " reshape(%s.one)\n", name);
}

/* A number for each group and column, for each column, or for all weights, as parameter `number`, or a constant, that
 * is repeated for the weights with their groups apart. */
static void put_repeated(writer *w, const recipe *r, const char *name, const char *stored, const char *type, int number)
{
  int kind = (int)pick(w, 4); /* half of them have groups */
  int64_t groups = r->depth / r->group, dims[] = {r->turned ? r->columns : groups, r->turned ? groups : r->columns};

  if (kind >= 2) put_array(w, r, name, stored, number, 2, dims);
  else if (kind == 1) put_array(w, r, name, stored, number, 1, &r->columns);
  else
    put(w,
        "  %s.out = %s[] parameter(%d)\n"
        "  %s = %s[] constant(%d)\n",
        name, stored, number, name, stored, strcmp(stored, "s2") ? 2 : 1);
  put(w, "  %s.c = %s", name, type);
  if (kind >= 2) put_numbers(w, "[", 2, dims, "]");
  else put_numbers(w, "[", kind, &r->columns, "]");
  put(w, " convert(%s)\n  %s.b = %s", name, name, type);
  put_dims(w, r, 0, true);
  put(w, " broadcast(%s.c), dimensions={%s}\n", name,
      kind >= 2   ? (r->turned ? "0,1" : "0,2")
      : kind == 1 ? (r->turned ? "0" : "2")
                  : "");
}

static void put_weights(writer *w, const recipe *r)
{
  bool integer = r->stored[0] != 'f' && pick(w, 3) == 0; /* zero points are subtracted from integers */
  const char *shifted = integer ? (pick(w, 2) ? "s32" : "s16") : r->made;
  int64_t dims[3], rank = 0, groups = r->depth / r->group;
  bool apart = r->stored_in_groups;
  bool may_grow = strcmp(r->stored, "u8") != 0; /* 257 is no number of bf16: the evaluator would round it */

  if (r->turned) dims[rank++] = r->columns;
  if (apart) dims[rank++] = groups;
  dims[rank++] = apart ? r->group : r->depth;
  if (!r->turned) dims[rank++] = r->columns;
  put_array(w, r, "q", r->stored, 1, (int)rank, dims);
  put(w, "  q.a = %s", r->stored);
  put_dims(w, r, 0, true);
  put(w, " reshape(q)\n  w0 = %s", shifted);
  put_dims(w, r, 0, true);
  put(w, " convert(q.a)\n");
  put_repeated(w, r, "z", integer ? r->stored : r->made, shifted, 2);
  put(w, "  w1 = %s", shifted);
  put_dims(w, r, 0, true);
  put(w, " %s(w0, z.b)\n  w2 = %s", pick(w, 3) || !may_grow ? "subtract" : "add", r->made);
  put_dims(w, r, 0, true);
  put(w, " convert(w1)\n");
  put_repeated(w, r, "s", pick(w, 2) ? "f32" : r->made, r->made, 3);
  put(w, "  w3 = %s", r->made);
  put_dims(w, r, 0, true);
  put(w, " multiply(w2, s.b)\n");
  put_repeated(w, r, "b", r->made, r->made, 4);
  put(w, "  w4 = %s", r->made);
  put_dims(w, r, 0, true);
  put(w, " add(w3, b.b)\n  w5 = %s", r->made);
  put_dims(w, r, 0, false);
  put(w, " reshape(%s)\n  w6 = %s", pick(w, 3) ? "w3" : pick(w, 2) && may_grow ? "w4" : "w2", r->type);
  put_dims(w, r, 0, false);
  put(w, " convert(w5)\n");
}

static void put_product_of_weights(writer *w, uint64_t seed)
{
  static const char *const types[] = {"f32", "bf16", "f16"};
  static const char *const stored[] = {"s8", "u8", "s4", "u4", "s2", "f8e4m3fn"};
  static const int64_t groups[] = {8, 20, 32, 33, 64, 128};
  recipe r;

  *w = (writer){.state = seed * 7919 + 1};
  for (int i = 0; i < 4; i++) pick(w, 2);
  r.type = types[pick(w, WEFT_COUNT(types))];
  r.made = pick(w, 2) ? r.type : "f32";
  r.stored = stored[pick(w, WEFT_COUNT(stored))];
  r.group = groups[pick(w, WEFT_COUNT(groups))];
  r.columns = 64 + pick(w, 90);
  r.depth = ((1 << 16) / r.columns / r.group + 1) * r.group;
  r.rows = 1 + pick(w, 16);
  r.turned = pick(w, 2);
  r.stored_in_groups = pick(w, 2);
  r.layers = pick(w, 2) ? 3 : 0;
  put(w,
      "HloModule weights\n"
      "ENTRY e {\n"
      "  x = %s[%" PRId64 ",%" PRId64 "] parameter(0)\n"
      "  start = s32[] parameter(5)\n"
      "  zero = s32[] constant(0)\n",
      r.type, r.rows, r.depth);
  put_weights(w, &r);
  bool left = pick(w, 4) == 0;
  put(w, "  ROOT y = %s[%" PRId64 ",%" PRId64 "] dot(%s), lhs_contracting_dims={%d}, rhs_contracting_dims={%d}\n}\n",
      pick(w, 2) ? r.type : "f32", left ? r.columns : r.rows, left ? r.rows : r.columns, left ? "w6, x" : "x, w6",
      left ? r.turned : 1, left ? 1 : r.turned);
}

/* Pass dot-groups: sums over the groups of products, which are scaled first, by a reduction and by a second product. */
TEST(sums_of_products_of_groups_become_one_product)
{
  static const char sums[] =
    "HloModule sums\n"
    "add {\n"
    "  a = TYPE[] parameter(0)\n"
    "  b = TYPE[] parameter(1)\n"
    "  ROOT c = TYPE[] add(a, b)\n"
    "}\n"
    "ENTRY e {\n"
    "  x = TYPE[3,27,33] parameter(0)\n"
    "  q = u4[27,33,77] parameter(1)\n"
    "  s = TYPE[27,77] parameter(2)\n"
    "  w = TYPE[27,33,77] convert(q)\n"
    "  p = TYPE[27,3,77] dot(x, w), lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
    "  b = TYPE[27,3,77] broadcast(s), dimensions={0,2}\n"
    "  m = TYPE[27,3,77] multiply(p, b)\n"
    "  zero = TYPE[] constant(0)\n"
    "  y = TYPE[3,77] reduce(m, zero), dimensions={0}, to_apply=add\n"
    "  t = s8[27,77,33] parameter(3)\n"
    "  v = TYPE[27,77,33] convert(t)\n"
    "  u = s8[77,27,33] parameter(4)\n"
    "  uw = TYPE[77,27,33] convert(u)\n"
    "  h = TYPE[27,77,3] dot(uw, x), lhs_batch_dims={1}, rhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
    "  z = TYPE[77,3] dot(h, s), lhs_batch_dims={1}, rhs_batch_dims={1}, lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
    "  k = TYPE[27,3,77] dot(x, v), lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
    "  l = TYPE[77,3] dot(s, k), lhs_batch_dims={1}, rhs_batch_dims={2}, lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
    "  ra = TYPE[231] reshape(y)\n"
    "  rb = TYPE[231] reshape(z)\n"
    "  rc = TYPE[231] reshape(l)\n"
    "  ROOT all = TYPE[693] concatenate(ra, rb, rc), dimensions={0}\n"
    "}\n";
  static const char *const types[] = {"f32", "bf16"};
  weft_platform *platform = test_platform(1, 2);
  char text[4096];

  for (size_t i = 0; i < WEFT_COUNT(types); i++) {
    int kernels, copies;
    put_of_type(text, sums, types[i]);
    weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
    T_TRUE(count_in_steps(exe, "dot_fusion") >= 2); /* the third would have to turn its weights */
    weft_executable_release(exe);
    T_TRUE(gives_exactly(platform, text, 0, types[i], &kernels, &copies));
  }
  weft_platform_release(platform);
}

TEST(random_weights_with_zero_points_and_scales_give_the_same_results)
{
  seeds of = seeds_of(60);
  uint64_t in_place = 0;
  weft_platform *platform = test_platform(1, 2);

  for (uint64_t seed = of.from; seed < of.from + of.count; seed++) {
    writer w;
    char name[32];
    int kernels, copies;
    put_product_of_weights(&w, seed);
    if (of.print) print_message("%s", w.text);
    snprintf(name, sizeof name, "weights %" PRIu64, seed);
    if (!gives_exactly(platform, w.text, (int64_t)seed % 4, name, &kernels, &copies)) fail_msg("%s", w.text);
    in_place += kernels == 0 && copies == 0;
  }
  weft_platform_release(platform);
  if (of.count >= 50 && in_place * 2 < of.count)
    fail_msg("%" PRIu64 " of %" PRIu64 " are read as they are stored", in_place, of.count);
}

TEST_MAIN(UNIT(a_cache_that_is_joined_to_new_keys_and_values_gives_the_same_results),
          UNIT(parts_are_read_in_place_and_give_the_same_results),
          UNIT(a_loop_goes_through_stacked_weights_without_copies),
          UNIT(an_array_that_is_updated_before_the_product_is_not_copied_as_a_whole),
          UNIT(each_part_of_a_weight_has_its_packed_form), UNIT(other_fusions_are_left_to_the_evaluator), UNIT(random_parts_give_the_same_results), UNIT(sums_of_products_of_groups_become_one_product),
          UNIT(random_weights_with_zero_points_and_scales_give_the_same_results))
