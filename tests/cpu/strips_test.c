/* tests/cpu/strips_test.c -- chains of a dot, a kernel over rows and a dot, which are computed strip by strip (pass
 * strips). Kernels that only subtract the maximum of a row give whole numbers, and so the bits of the reference
 * evaluator; a softmax gives the same bits for any number of threads, and nearly the evaluator's numbers. */
#include "cpu/against_evaluator.h"

#include <inttypes.h>
#include <math.h>

#include "cpu/makers.h"
#include "cpu/planned.h"

typedef struct program {
  const char *name, *body;
  int strips;      /* steps of this kind */
  int64_t start;   /* what integer scalars are */
} program;

#define REDUCER(type) \
  "any {\n" \
  "  a = pred[] parameter(0)\n" \
  "  b = pred[] parameter(1)\n" \
  "  ROOT c = pred[] or(a, b)\n" \
  "}\n" \
  "max {\n" \
  "  a = " type "[] parameter(0)\n" \
  "  b = " type "[] parameter(1)\n" \
  "  ROOT c = " type "[] maximum(a, b)\n" \
  "}\n"

/* s less the largest of its row. `dims`: of s; `rows`: of the rows. */
#define LESS_MAX(type, dims, rows, map, last, lowest) \
  "  low = " type "[] constant(" lowest ")\n" \
  "  m = " type "[" rows "] reduce(s, low), dimensions={" last "}, to_apply=max\n" \
  "  mb = " type "[" dims "] broadcast(m), dimensions={" map "}\n" \
  "  p = " type "[" dims "] subtract(s, mb)\n"

#define SCORES(type) \
  "  q = " type "[3,90,24] parameter(0)\n" \
  "  k = " type "[3,300,24] parameter(1)\n" \
  "  v = " type "[3,300,40] parameter(2)\n" \
  "  s = " type "[3,90,300] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
#define MIXED(type) \
  "  ROOT y = " type "[3,90,40] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
#define OF_TYPE(type, lowest) SCORES(type) LESS_MAX(type, "3,90,300", "3,90", "0,1", "2", lowest) MIXED(type)

static const program floats[] = {
  {"one matrix after another", OF_TYPE("f32", "-inf"), 1},
  {"the last strip is shorter, and products are transposed",
   "  q = f32[2,24,333] parameter(0)\n"
   "  k = f32[2,24,170] parameter(1)\n"
   "  v = f32[2,19,170] parameter(2)\n"
   "  s = f32[2,333,170] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
   LESS_MAX("f32", "2,333,170", "2,333", "0,1", "2", "-inf")
   "  ROOT y = f32[2,333,19] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n", 1},
  {"no batch, one column of values more than a tile",
   "  q = f32[200,16] parameter(0)\n"
   "  k = f32[333,16] parameter(1)\n"
   "  v = f32[333,33] parameter(2)\n"
   "  s = f32[200,333] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
   LESS_MAX("f32", "200,333", "200", "0", "1", "-inf")
   "  ROOT y = f32[200,33] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 1},
  {"rows longer than the least strip has room for",
   "  q = f32[40,8] parameter(0)\n"
   "  k = f32[5000,8] parameter(1)\n"
   "  v = f32[5000,8] parameter(2)\n"
   "  s = f32[40,5000] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
   LESS_MAX("f32", "40,5000", "40", "0", "1", "-inf")
   "  ROOT y = f32[40,8] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n", 1},
  {"a mask, and a number for each row",
   SCORES("f32")
   "  ok = pred[90,300] parameter(3)\n"
   "  bias = f32[3,90] parameter(4)\n"
   "  okb = pred[3,90,300] broadcast(ok), dimensions={1,2}\n"
   "  none = f32[] constant(-50)\n"
   "  nb = f32[3,90,300] broadcast(none), dimensions={}\n"
   "  sel = f32[3,90,300] select(okb, s, nb)\n"
   "  low = f32[] constant(-inf)\n"
   "  m = f32[3,90] reduce(sel, low), dimensions={2}, to_apply=max\n"
   "  more = f32[3,90] add(m, bias)\n"
   "  mb = f32[3,90,300] broadcast(more), dimensions={0,1}\n"
   "  p = f32[3,90,300] subtract(sel, mb)\n" MIXED("f32"), 1},
#define CHOSEN(mask, dims, map, yes, no) \
   SCORES("f32") \
   "  ok = pred[" dims "] parameter(3)\n" mask \
   "  okb = pred[3,90,300] broadcast(okm), dimensions={" map "}\n" \
   "  none = f32[] constant(-50)\n" \
   "  nb = f32[3,90,300] broadcast(none), dimensions={}\n" \
   "  t = f32[3,90,300] add(s, s)\n" \
   "  sel = f32[3,90,300] select(okb, " yes ", " no ")\n" \
   "  low = f32[] constant(-inf)\n" \
   "  m = f32[3,90] reduce(sel, low), dimensions={2}, to_apply=max\n" \
   "  mb = f32[3,90,300] broadcast(m), dimensions={0,1}\n" \
   "  p = f32[3,90,300] subtract(sel, mb)\n"
#define AS_IT_IS(dims) "  okm = pred[" dims "] copy(ok)\n"
/* Columns below the row's number times 3: those behind are wanted by no row of a strip. */
#define BELOW(direction) \
   "  row = s32[90,300] iota(), iota_dimension=0\n" \
   "  three = s32[] constant(3)\n" \
   "  threes = s32[90,300] broadcast(three), dimensions={}\n" \
   "  reach = s32[90,300] multiply(row, threes)\n" \
   "  column = s32[90,300] iota(), iota_dimension=1\n" \
   "  okm = pred[90,300] compare(column, reach), direction=" direction "\n"
#define ANY_OF_IT \
   "  no = pred[] constant(false)\n" \
   "  okm = pred[] reduce(ok, no), dimensions={0}, to_apply=any\n"
/* The mask is a result, too, so that the kernel reads it instead of computing it. */
#define WITH_MASK \
   "  y = f32[3,90,40] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n" \
   "  ROOT r = (f32[3,90,40], pred[90,300]) tuple(y, okm)\n"
/* Shares that are zeros behind the mask, and values of which row 290 is infinite or NaN, or none is. */
#define ZERO_SHARES(mask, direction, worst) \
   "  q = f32[3,90,24] parameter(0)\n" \
   "  k = f32[3,300,24] parameter(1)\n" \
   "  v0 = f32[3,300,40] parameter(2)\n" \
   "  n = s32[3,300,40] iota(), iota_dimension=1\n" \
   "  bad = s32[] constant(290)\n" \
   "  bads = s32[3,300,40] broadcast(bad), dimensions={}\n" \
   "  isbad = pred[3,300,40] compare(n, bads), direction=EQ\n" \
   "  worst = f32[] constant(" worst ")\n" \
   "  worsts = f32[3,300,40] broadcast(worst), dimensions={}\n" \
   "  v1 = f32[3,300,40] select(isbad, worsts, v0)\n" \
   "  v = f32[3,300,40] reverse(v1), dimensions={0}\n" \
   "  s = f32[3,90,300] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n" \
   "  ok = pred[300] parameter(3)\n" mask \
   "  okb = pred[3,90,300] broadcast(okm), dimensions={1,2}\n" \
   "  none = f32[] constant(-90)\n" \
   "  nb = f32[3,90,300] broadcast(none), dimensions={}\n" \
   "  sel = f32[3,90,300] select(okb, " direction ")\n" \
   "  low = f32[] constant(-inf)\n" \
   "  m = f32[3,90] reduce(sel, low), dimensions={2}, to_apply=max\n" \
   "  mb = f32[3,90,300] broadcast(m), dimensions={0,1}\n" \
   "  d = f32[3,90,300] subtract(sel, mb)\n" \
   "  eight = f32[] constant(8)\n" \
   "  eights = f32[3,90,300] broadcast(eight), dimensions={}\n" \
   "  up = f32[3,90,300] add(d, eights)\n" \
   "  zero = f32[] constant(0)\n" \
   "  zeros = f32[3,90,300] broadcast(zero), dimensions={}\n" \
   "  p = f32[3,90,300] maximum(up, zeros)\n" WITH_MASK
  {"shares behind a mask are zeros, but for a row without wanted columns", ZERO_SHARES(BELOW("LT"), "s, nb", "1"), 1},
  {"the same by a mask that says what is not wanted", ZERO_SHARES(BELOW("GE"), "nb, s", "2"), 1},
  {"zeros times infinity", ZERO_SHARES(BELOW("LT"), "s, nb", "inf"), 1},
  {"a mask for all rows", CHOSEN(AS_IT_IS("300"), "300", "2", "t", "nb") MIXED("f32"), 1},
  {"a mask for the rows of each matrix", CHOSEN(AS_IT_IS("3,300"), "3,300", "0,2", "t", "nb") MIXED("f32"), 1},
  {"a mask that says what is not wanted", CHOSEN(AS_IT_IS("90,300"), "90,300", "1,2", "nb", "t") MIXED("f32"), 1},
  {"a causal mask", CHOSEN(BELOW("LT"), "300", "1,2", "t", "nb") WITH_MASK, 1},
  {"a causal mask that says what is not wanted", CHOSEN(BELOW("GE"), "300", "1,2", "nb", "t") WITH_MASK, 1},
  {"a causal mask that the kernel computes", CHOSEN(BELOW("LT"), "300", "1,2", "t", "nb") MIXED("f32"), 1},
  {"one choice for all", CHOSEN(ANY_OF_IT, "300", "", "t", "nb") MIXED("f32"), 1},
  {"scores of other dimensions than the kernel's",
   SCORES("f32")
   "  r = f32[3,2,45,300] reshape(s)\n"
   "  low = f32[] constant(-inf)\n"
   "  m = f32[3,2,45] reduce(r, low), dimensions={3}, to_apply=max\n"
   "  mb = f32[3,2,45,300] broadcast(m), dimensions={0,1,2}\n"
   "  d = f32[3,2,45,300] subtract(r, mb)\n"
   "  p = f32[3,90,300] reshape(d)\n" MIXED("f32"), 1},
  {"heads in the result of one product",
   "  a = f32[2,96,3,4,8] parameter(0)\n"
   "  a0 = f32[2,96,1,4,8] slice(a), slice={[0:2], [0:96], [0:1], [0:4], [0:8]}\n"
   "  q = f32[2,96,4,8] reshape(a0)\n"
   "  a1 = f32[2,96,1,4,8] slice(a), slice={[0:2], [0:96], [1:2], [0:4], [0:8]}\n"
   "  k = f32[2,96,4,8] reshape(a1)\n"
   "  a2 = f32[2,96,1,4,8] slice(a), slice={[0:2], [0:96], [2:3], [0:4], [0:8]}\n"
   "  v = f32[2,96,4,8] reshape(a2)\n"
   "  s = f32[2,4,96,96] dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={3}\n"
   LESS_MAX("f32", "2,4,96,96", "2,4,96", "0,1,2", "3", "-inf")
   "  ROOT y = f32[2,4,96,8] dot(p, v), lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={1}\n", 1},
#define CACHE(start) \
   "  q = f32[3,90,24] parameter(0)\n" \
   "  c = f32[2,3,300,24] parameter(1)\n" \
   "  i = s32[] parameter(2)\n" \
   "  zero = s32[] constant(0)\n" \
   "  c0 = f32[1,3,300,24] dynamic-slice(c, i, zero, zero, zero), dynamic_slice_sizes={1,3,300,24}\n" \
   "  k = f32[3,300,24] reshape(c0)\n" \
   "  c1 = f32[1,3,300,24] slice(c), slice={[1:2], [0:3], [0:300], [0:24]}\n" \
   "  v = f32[3,300,24] reshape(c1)\n" \
   "  s = f32[3,90,300] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n" \
   LESS_MAX("f32", "3,90,300", "3,90", "0,1", "2", "-inf") \
   "  ROOT y = f32[3,90,24] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n", 1, start
  {"keys from a start on that is known in the run", CACHE(0)},
  {"keys from a start behind the array", CACHE(9)},
  {"values first, as attention of JAX has them",
   "  q = f32[2,96,4,8] parameter(0)\n"
   "  k = f32[2,96,4,8] parameter(1)\n"
   "  v = f32[2,96,4,8] parameter(2)\n"
   "  s = f32[2,4,96,96] dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={3}\n"
   LESS_MAX("f32", "2,4,96,96", "2,4,96", "0,1,2", "3", "-inf")
   "  y = f32[2,4,8,96] dot(v, p), lhs_batch_dims={0,2}, rhs_batch_dims={0,1}, lhs_contracting_dims={1}, rhs_contracting_dims={3}\n"
   "  ROOT t = f32[2,96,4,8] transpose(y), dimensions={0,3,1,2}\n", 1},
  {"grouped heads as jax.nn has them: scores are transposed between the dots",
   "  q = f32[2,64,2,4,8] parameter(0)\n"
   "  k = f32[2,80,2,8] parameter(1)\n"
   "  v = f32[2,80,2,8] parameter(2)\n"
   "  ok = pred[64,80] parameter(3)\n"
   "  s = f32[2,2,64,4,80] dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={3}\n"
   "  t = f32[4,2,2,64,80] transpose(s), dimensions={3,0,1,2,4}\n"
   "  okb = pred[4,2,2,64,80] broadcast(ok), dimensions={3,4}\n"
   "  none = f32[] constant(-50)\n"
   "  nb = f32[4,2,2,64,80] broadcast(none), dimensions={}\n"
   "  sel = f32[4,2,2,64,80] select(okb, t, nb)\n"
   "  low = f32[] constant(-inf)\n"
   "  m = f32[4,2,2,64] reduce(sel, low), dimensions={4}, to_apply=max\n"
   "  mb = f32[4,2,2,64,80] broadcast(m), dimensions={0,1,2,3}\n"
   "  p = f32[4,2,2,64,80] subtract(sel, mb)\n"
   "  y = f32[2,2,8,4,64] dot(v, p), lhs_batch_dims={0,2}, rhs_batch_dims={1,2}, lhs_contracting_dims={1}, rhs_contracting_dims={4}\n"
   "  y1 = f32[4,2,64,2,8] transpose(y), dimensions={3,0,4,1,2}\n"
   "  ROOT y2 = f32[2,64,2,4,8] transpose(y1), dimensions={1,2,3,0,4}\n", 1},
  {"values first, and a result that nothing transposes",
   "  q = f32[8,96,8] parameter(0)\n"
   "  k = f32[8,96,8] parameter(1)\n"
   "  v = f32[8,96,8] parameter(2)\n"
   "  s = f32[8,96,96] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
   LESS_MAX("f32", "8,96,96", "8,96", "0,1", "2", "-inf")
   "  ROOT y = f32[8,8,96] dot(v, p), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={2}\n", 1},
#define BYTE_KEYS(weights) \
   "  q = f32[16,512] parameter(0)\n" \
   "  k = s8[512,4096] parameter(1)\n" \
   "  v = f32[4096,8] parameter(2)\n" \
   "  zero = f32[4096] parameter(3)\n" \
   "  kw = f32[512,4096] convert(k)\n" weights \
   "  s = f32[16,4096] dot(q, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n" \
   LESS_MAX("f32", "16,4096", "16", "0", "1", "-inf") \
   "  ROOT y = f32[16,8] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
  {"keys of bytes", BYTE_KEYS("  w = f32[512,4096] copy(kw)\n"), 1},
  /* these need whole arrays of scores */
  {"keys of bytes with zero points, which the first product makes of what is stored",
   BYTE_KEYS("  zeros = f32[512,4096] broadcast(zero), dimensions={1}\n"
             "  w = f32[512,4096] subtract(kw, zeros)\n"), 0},
  {"scores that are results, too",
   SCORES("f32") LESS_MAX("f32", "3,90,300", "3,90", "0,1", "2", "-inf")
   "  y = f32[3,90,40] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
   "  ROOT r = (f32[3,90,40], f32[3,90,300]) tuple(y, s)\n", 0},
  {"rows that need other rows",
   SCORES("f32")
   "  low = f32[] constant(-inf)\n"
   "  m = f32[3,90] reduce(s, low), dimensions={2}, to_apply=max\n"
   "  mb = f32[3,90,300] broadcast(m), dimensions={0,1}\n"
   "  back = f32[3,90,300] reverse(s), dimensions={1}\n"
   "  p = f32[3,90,300] subtract(back, mb)\n" MIXED("f32"), 0},
  {"maxima of columns",
   SCORES("f32")
   "  low = f32[] constant(-inf)\n"
   "  m = f32[3,300] reduce(s, low), dimensions={1}, to_apply=max\n"
   "  mb = f32[3,90,300] broadcast(m), dimensions={0,2}\n"
   "  p = f32[3,90,300] subtract(s, mb)\n" MIXED("f32"), 0},
  {"maxima of rows that other rows get",
   "  q = f32[3,120,24] parameter(0)\n"
   "  k = f32[3,120,24] parameter(1)\n"
   "  v = f32[3,120,300] parameter(2)\n"
   "  s = f32[3,120,120] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
   "  low = f32[] constant(-inf)\n"
   "  m = f32[3,120] reduce(s, low), dimensions={2}, to_apply=max\n"
   "  mb = f32[3,120,120] broadcast(m), dimensions={0,2}\n"
   "  p = f32[3,120,120] subtract(s, mb)\n"
   "  ROOT y = f32[3,120,300] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n", 0},
};
static const program doubles[] = {{"f64", OF_TYPE("f64", "-inf"), 1}};
static const program halves[] = {{"f16", OF_TYPE("f16", "-inf"), 1}};
static const program brains[] = {{"bf16", OF_TYPE("bf16", "-inf"), 1}};
static const program integers[] = {{"s32", OF_TYPE("s32", "-2147483648"), 1}};
static const program bytes[] = {
  {"s8, and sums of s32",
   "  q = s8[3,90,24] parameter(0)\n"
   "  k = s8[3,300,24] parameter(1)\n"
   "  v = s8[3,300,40] parameter(2)\n"
   "  s = s32[3,90,300] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
   "  low = s32[] constant(-2147483648)\n"
   "  m = s32[3,90] reduce(s, low), dimensions={2}, to_apply=max\n"
   "  mb = s32[3,90,300] broadcast(m), dimensions={0,1}\n"
   "  d = s32[3,90,300] subtract(s, mb)\n"
   "  p = s8[3,90,300] convert(d)\n"
   "  ROOT y = s32[3,90,40] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n", 1},
};

static bool all_give_exactly(const program *programs, size_t count, const char *reducer)
{
  weft_platform *platform = test_platform(1, 2);
  bool ok = true;

  for (size_t i = 0; i < count; i++) {
    const program *p = &programs[i];
    char text[4096];
    int kernels, copies;
    snprintf(text, sizeof text, "HloModule m\n%sENTRY e {\n%s}\n", reducer, p->body);
    ok = gives_exactly(platform, text, p->start, p->name, &kernels, &copies) && ok;
    weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
    int strips = count_steps(exe, "strips"), dots = count_steps(exe, "dot");
    weft_executable_release(exe);
    if (strips == p->strips && dots == 2 - 2 * p->strips) continue;
    print_message("# %s: %d chains and %d products, want %d and %d\n", p->name, strips, dots, p->strips,
                  2 - 2 * p->strips);
    ok = false;
  }
  weft_platform_release(platform);
  return ok;
}

TEST(chains_are_one_step_where_rows_do_not_need_each_other)
{
  T_TRUE(all_give_exactly(floats, WEFT_COUNT(floats), REDUCER("f32")));
}

TEST(chains_of_other_types_give_the_same_results)
{
  T_TRUE(all_give_exactly(doubles, WEFT_COUNT(doubles), REDUCER("f64")));
  T_TRUE(all_give_exactly(halves, WEFT_COUNT(halves), REDUCER("f16")));
  T_TRUE(all_give_exactly(brains, WEFT_COUNT(brains), REDUCER("bf16")));
  T_TRUE(all_give_exactly(integers, WEFT_COUNT(integers), REDUCER("s32")));
  T_TRUE(all_give_exactly(bytes, WEFT_COUNT(bytes), REDUCER("s32")));
}

/* Scores of a causal softmax, some of which are masked. */
static const char attention[] =
  "HloModule m\n"
  "max {\n"
  "  a = f32[] parameter(0)\n"
  "  b = f32[] parameter(1)\n"
  "  ROOT c = f32[] maximum(a, b)\n"
  "}\n"
  "add {\n"
  "  a = f32[] parameter(0)\n"
  "  b = f32[] parameter(1)\n"
  "  ROOT c = f32[] add(a, b)\n"
  "}\n"
  "ENTRY e {\n"
  "  q = TYPE[5,130,48] parameter(0)\n"
  "  k = TYPE[5,130,48] parameter(1)\n"
  "  v = TYPE[5,130,48] parameter(2)\n"
  "  s = f32[5,130,130] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
  "  c = f32[] constant(0.144337567)\n"
  "  cb = f32[5,130,130] broadcast(c), dimensions={}\n"
  "  t = f32[5,130,130] multiply(s, cb)\n"
  "  row = s32[5,130,130] iota(), iota_dimension=1\n"
  "  column = s32[5,130,130] iota(), iota_dimension=2\n"
  "  seen = pred[5,130,130] compare(row, column), direction=GE\n"
  "  none = f32[] constant(-1e30)\n"
  "  nb = f32[5,130,130] broadcast(none), dimensions={}\n"
  "  u = f32[5,130,130] select(seen, t, nb)\n"
  "  low = f32[] constant(-inf)\n"
  "  m = f32[5,130] reduce(u, low), dimensions={2}, to_apply=max\n"
  "  mb = f32[5,130,130] broadcast(m), dimensions={0,1}\n"
  "  d = f32[5,130,130] subtract(u, mb)\n"
  "  x = f32[5,130,130] exponential(d)\n"
  "  zero = f32[] constant(0)\n"
  "  sum = f32[5,130] reduce(x, zero), dimensions={2}, to_apply=add\n"
  "  sb = f32[5,130,130] broadcast(sum), dimensions={0,1}\n"
  "  w = f32[5,130,130] divide(x, sb)\n"
  "  p = TYPE[5,130,130] convert(w)\n"
  "  ROOT y = f32[5,130,48] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
  "}\n";

enum { ELEMS = 5 * 130 * 48 };

static void attend(const char *text, int threads, const hlo_literal *const *arguments, float *out)
{
  weft_platform *platform = test_platform(1, threads);
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);

  T_EQ_INT(count_steps(exe, "strips"), 1);
  T_OK(test_run(exe, (const void *[]){arguments[0]->data, arguments[1]->data, arguments[2]->data}, (void *[]){out}));
  weft_executable_release(exe);
  weft_platform_release(platform);
}

TEST(attention_gives_the_same_bits_with_any_number_of_threads)
{
  static const struct { const char *type; double error; } types[] = {{"f32", 2e-6}, {"bf16", 1e-2}};
  static const int threads[] = {1, 2, 7};

  for (size_t t = 0; t < WEFT_COUNT(types); t++) {
    static float out[WEFT_COUNT(threads)][ELEMS];
    char text[sizeof attention];
    weft_arena arena;
    hlo_module *module;
    hlo_literal *arguments[3];
    const hlo_literal *want;
    unsigned random = 3;
    put_of_type(text, attention, types[t].type);
    weft_arena_init(&arena);
    T_OK(hlo_parse(text, strlen(text), &module));
    for (int i = 0; i < 3; i++) {
      T_OK(hlo_literal_new(&arena, module->entry->params[i]->shape, &arguments[i]));
      for (int64_t e = 0; e < ELEMS; e++) {
        random = random * 1664525u + 1013904223u;
        hlo_literal_set_f64(arguments[i], e, (double)(int)(random >> 16 & 0xfff) / 1024 - 2, 0);
      }
    }
    T_OK(hlo_eval_module(module, (const hlo_literal *const *)arguments, &HLO_EVAL_DEFAULT, &arena, &want));
    for (size_t n = 0; n < WEFT_COUNT(threads); n++) {
      attend(text, threads[n], (const hlo_literal *const *)arguments, out[n]);
      T_TRUE(memcmp(out[n], out[0], sizeof out[0]) == 0);
    }
    for (int64_t e = 0; e < ELEMS; e++) T_TRUE(fabs(out[0][e] - hlo_literal_get_f64(want, e)) <= types[t].error);
    hlo_module_free(module);
    weft_arena_fini(&arena);
  }
}

/* ---- random chains ----------------------------------------------------------------------------------------------- */

/* The sizes and the numbers of those dimensions of the scores (batch, rows, columns) whose bit is set in `which`. */
static void put_part(char *dims, char *numbers, const int64_t *size, unsigned which)
{
  *dims = *numbers = 0;
  for (int d = 0; d < 3; d++) {
    if (!(which >> d & 1)) continue;
    sprintf(dims + strlen(dims), "%s%" PRId64, *dims ? "," : "", size[d]);
    sprintf(numbers + strlen(numbers), "%s%d", *numbers ? "," : "", d);
  }
}

/* A chain whose kernel subtracts the largest of a row, after and before some of: a factor, a bias of some dimensions, a
 * mask of some dimensions. Operands have either order. */
static void put_chain(char *text, uint64_t seed)
{
  static const struct { const char *type, *lowest; } types[] = {
    {"f32", "-inf"}, {"f32", "-inf"}, {"bf16", "-inf"}, {"f16", "-inf"}, {"f64", "-inf"}, {"s32", "-2147483648"},
  };
  static const unsigned parts[] = {7, 6, 4, 5, 2}; /* bit d: dimension d of the scores */
  uint64_t state = seed * 2654435761u + 1;
  int kind = (int)pick_below(&state, WEFT_COUNT(types));
  const char *t = types[kind].type, *last = "s";
  int64_t b = 1 + pick_below(&state, 5), m = 16 + pick_below(&state, 180), n = 100 + pick_below(&state, 500), k = 1 + pick_below(&state, 70),
          d = 1 + pick_below(&state, 70), size[] = {b, m, n};
  bool q_turned = pick_below(&state, 2), k_turned = pick_below(&state, 2), v_turned = pick_below(&state, 2);
  char dims[64], numbers[16];
  int at = 0, param = 3;

#define PUT(...) at += sprintf(text + at, __VA_ARGS__)
  PUT("HloModule m\n"
      "max {\n"
      "  a = %s[] parameter(0)\n"
      "  b = %s[] parameter(1)\n"
      "  ROOT c = %s[] maximum(a, b)\n"
      "}\n"
      "ENTRY e {\n",
      t, t, t);
  PUT("  q = %s[%" PRId64 ",%" PRId64 ",%" PRId64 "] parameter(0)\n", t, b, q_turned ? k : m, q_turned ? m : k);
  PUT("  k = %s[%" PRId64 ",%" PRId64 ",%" PRId64 "] parameter(1)\n", t, b, k_turned ? k : n, k_turned ? n : k);
  PUT("  v = %s[%" PRId64 ",%" PRId64 ",%" PRId64 "] parameter(2)\n", t, b, v_turned ? d : n, v_turned ? n : d);
  PUT("  s = %s[%" PRId64 ",%" PRId64 ",%" PRId64 "] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, "
      "lhs_contracting_dims={%d}, rhs_contracting_dims={%d}\n",
      t, b, m, n, q_turned ? 1 : 2, k_turned ? 1 : 2);
#define S "%s[%" PRId64 ",%" PRId64 ",%" PRId64 "]"
#define OF_S t, b, m, n
  if (pick_below(&state, 2)) {
    PUT("  two = %s[] constant(2)\n", t);
    PUT("  twos = " S " broadcast(two), dimensions={}\n", OF_S);
    PUT("  scaled = " S " multiply(%s, twos)\n", OF_S, last);
    last = "scaled";
  }
  if (pick_below(&state, 2)) {
    put_part(dims, numbers, size, parts[pick_below(&state, WEFT_COUNT(parts))]);
    PUT("  bias = %s[%s] parameter(%d)\n", t, dims, param++);
    PUT("  biases = " S " broadcast(bias), dimensions={%s}\n", OF_S, numbers);
    PUT("  biased = " S " add(%s, biases)\n", OF_S, last);
    last = "biased";
  }
  if (pick_below(&state, 3)) {
    bool unwanted = pick_below(&state, 2), causal = pick_below(&state, 2);
    put_part(dims, numbers, size, causal ? 6 : parts[pick_below(&state, WEFT_COUNT(parts))]);
    PUT("  ok = pred[%s] parameter(%d)\n", dims, param++);
    if (causal) { /* with a reach that the rows share out in different ways */
      PUT("  row = s32[%s] iota(), iota_dimension=0\n", dims);
      PUT("  column = s32[%s] iota(), iota_dimension=1\n", dims);
      PUT("  more = s32[] constant(%" PRId64 ")\n", pick_below(&state, n) - n / 4);
      PUT("  mores = s32[%s] broadcast(more), dimensions={}\n", dims);
      PUT("  reach = s32[%s] add(row, mores)\n", dims);
      PUT("  seen = pred[%s] compare(column, reach), direction=%s\n", dims, unwanted ? "GT" : "LE");
      PUT("  mask = pred[%s] %s(seen, ok)\n", dims, unwanted ? "or" : "and");
    } else {
      PUT("  mask = pred[%s] copy(ok)\n", dims);
    }
    PUT("  masks = pred[%" PRId64 ",%" PRId64 ",%" PRId64 "] broadcast(mask), dimensions={%s}\n", b, m, n, numbers);
    PUT("  none = %s[] constant(-64)\n", t);
    PUT("  nones = " S " broadcast(none), dimensions={}\n", OF_S);
    PUT("  masked = " S " select(masks, %s, %s)\n", OF_S, unwanted ? "nones" : last, unwanted ? last : "nones");
    last = "masked";
  }
  PUT("  low = %s[] constant(%s)\n", t, types[kind].lowest);
  PUT("  most = %s[%" PRId64 ",%" PRId64 "] reduce(%s, low), dimensions={2}, to_apply=max\n", t, b, m, last);
  PUT("  mosts = " S " broadcast(most), dimensions={0,1}\n", OF_S);
  PUT("  p = " S " subtract(%s, mosts)\n", OF_S, last);
  PUT("  ROOT y = %s[%" PRId64 ",%" PRId64 ",%" PRId64 "] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, "
      "lhs_contracting_dims={2}, rhs_contracting_dims={%d}\n",
      t, b, m, d, v_turned ? 2 : 1);
  PUT("}\n");
}

/* Numbers of f16 and bf16 stay whole. */
TEST(random_chains_give_the_same_results)
{
  seeds of = seeds_of((uint64_t)40 / T_STRIDE(4));
  uint64_t chains = 0;
  weft_platform *platform = test_platform(1, 2);

  for (uint64_t seed = of.from; seed < of.from + of.count; seed++) {
    char text[8192], name[32];
    int kernels, copies;
    put_chain(text, seed);
    if (of.print) print_message("%s", text);
    snprintf(name, sizeof name, "seed %" PRIu64, seed);
    if (!gives_exactly(platform, text, 0, name, &kernels, &copies)) fail_msg("%s", text);
    weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
    chains += (uint64_t)count_steps(exe, "strips");
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
  if (of.count >= 10 && chains * 4 < of.count) fail_msg("%" PRIu64 " of %" PRIu64 " are chains", chains, of.count);
}

/* What a file says to be a chain must be one that the library can do: the rest is the evaluator's. */
TEST(other_fusions_are_left_to_the_evaluator)
{
#define DOUBLED(rows) PLANNED_KERNEL(rows, "  t = f32[" rows ",80] add(s, s)\n")
#define CHAIN_OPERANDS(rows) \
  "  q = f32[" rows ",16] parameter(0)\n" \
  "  k = f32[80,16] parameter(1)\n" \
  "  v = f32[80,32] parameter(2)\n"
#define MIX(rows, result) "  " result " = f32[" rows ",32] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
#define CHAIN(rows, kernel, body) \
  "HloModule m, is_scheduled=true\n" kernel "chain {\n" CHAIN_OPERANDS(rows) body "}\n" \
  "ENTRY e {\n" CHAIN_OPERANDS(rows) \
  "  ROOT y = f32[" rows ",32] fusion(q, k, v), kind=kCustom, calls=chain, backend_config=\"strips\"\n" \
  "}\n"
#define WHOLE_CHAIN PLANNED_SCORES("64", "q, k") PLANNED_CALL("64", "s") MIX("64", "ROOT y")
  static const struct { const char *text, *why; } cases[] = {
    {CHAIN("64", DOUBLED("64"), WHOLE_CHAIN), NULL},
    {CHAIN("64", PLANNED_KERNEL("64", "  t = f32[64,80] reverse(s), dimensions={0}\n"), WHOLE_CHAIN), "rows need other rows"},
    {CHAIN("64", PLANNED_KERNEL("64", "  t = f32[64,80] reverse(s), dimensions={1}\n"), WHOLE_CHAIN), "rows need other rows"},
    {CHAIN("64", DOUBLED("64"), PLANNED_SCORES("64", "q, k") "  a = f32[64,80] add(s, s)\n" PLANNED_CALL("64", "a") MIX("64", "ROOT y")),
     "begin with a dot"},
    {CHAIN("64", DOUBLED("64"), PLANNED_SCORES("64", "q, k") PLANNED_CALL("64", "s") MIX("64", "z") "  ROOT y = f32[64,32] add(z, z)\n"),
     "end with a dot"},
    {CHAIN("64", DOUBLED("64"), "  w = f32[80,16] add(k, k)\n" PLANNED_SCORES("64", "q, w") PLANNED_CALL("64", "s") MIX("64", "ROOT y")),
     "compute an array"},
    {CHAIN("0", DOUBLED("0"), PLANNED_SCORES("0", "q, k") PLANNED_CALL("0", "s") MIX("0", "ROOT y")), "no scores"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) is_planned(cases[i].text, cpu_strips_plan, cases[i].why);
}

TEST_MAIN(UNIT(chains_are_one_step_where_rows_do_not_need_each_other), UNIT(chains_of_other_types_give_the_same_results),
          UNIT(attention_gives_the_same_bits_with_any_number_of_threads), UNIT(other_fusions_are_left_to_the_evaluator), UNIT(random_chains_give_the_same_results))
