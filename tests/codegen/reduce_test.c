/* tests/codegen/reduce_test.c -- kernels of reductions. */
#include "test.h"

#include "codegen/model/cost.h"
#include "harness.h"

#include "base/dtype.h"

#include <math.h>

static char text[16384];

/* `defs`: computations; `params`: types of the parameters; `body`: the fused computation. */
static const char *fusion(const char *defs, const char *params, const char *body, const char *result)
{
  char list[1024] = "", entry[2048] = "", *copy = strdup(params), *save = NULL;
  int n = 0;

  snprintf(text, sizeof text,
           "HloModule t\n"
           "%sf {\n",
           defs);
  for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save), n++) {
    snprintf(text + strlen(text), sizeof text - strlen(text), "  p%d = %s parameter(%d)\n", n, p, n);
    snprintf(entry + strlen(entry), sizeof entry - strlen(entry), "  a%d = %s parameter(%d)\n", n, p, n);
    snprintf(list + strlen(list), sizeof list - strlen(list), "%sa%d", n ? ", " : "", n);
  }
  free(copy);
  snprintf(text + strlen(text), sizeof text - strlen(text),
           "%s\n"
           "}\n"
           "ENTRY e {\n"
           "%s\n"
           "  ROOT r = %s fusion(%s), kind=kInput, calls=f\n"
           "}\n",
           body, entry, result, list);
  return text;
}

static const char *reducer(const char *op, const char *type)
{
  static char def[4][512];
  static int next;
  char *d = def[next++ % 4];
  snprintf(d, sizeof def[0],
           "%.3s {\n"
           "  x = %s[] parameter(0)\n"
           "  y = %s[] parameter(1)\n"
           "  ROOT r = %s[] %s(x, y)\n"
           "}\n",
           op, type, type, type, op);
  return d;
}

/* {operand dims, reduced dims, result dims} */
static const struct { const char *in, *dims, *out; } forms[] = {
  {"[70]", "0", "[]"}, {"[5,70]", "1", "[5]"}, {"[70,5]", "0", "[5]"}, {"[33,70]", "0", "[70]"}, {"[3,4,70]", "1,2", "[3]"},
  {"[7,4,37]", "0,1", "[37]"}, {"[7,4,37]", "1", "[7,37]"}, {"[7,40,3]", "0,2", "[40]"}, {"[1,64,1]", "1", "[1,1]"},
  {"[200,3]", "1", "[200]"}, {"[3,0]", "1", "[3]"}, {"[9,5,8,3]", "1,2", "[9,3]"}, {"[2,300]", "1", "[2]"}, {"[130,200]", "0", "[200]"},
  {"[20,270]", "0", "[270]"}, {"[3,20,330]", "1", "[3,330]"}, {"[3,31]", "1", "[3]"}, {"[2,70003]", "1", "[2]"},
  {"[5,70,3]", "1", "[5,3]"}, {"[4,3,131,2]", "1,2", "[4,2]"}, {"[70003,3]", "0", "[3]"}, {"[64,7]", "0", "[7]"},
};

TEST(sums_of_every_form)
{
  static const char *const types[] = {"f32", "f64", "bf16", "s32", "c64", "u8", "f8e5m2"};
  for (size_t t = 0; t < WEFT_COUNT(types); t++) {
    for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
      char in[64], out[64], body[300];
      double tolerance = strcmp(types[t], "bf16") == 0     ? 0.1
                         : strcmp(types[t], "f8e5m2") == 0 ? 1e9
                                                           : 0; /* the evaluator rounds each step */
      snprintf(in, sizeof in, "%s%s", types[t], forms[i].in);
      snprintf(out, sizeof out, "%s%s", types[t], forms[i].out);
      snprintf(body, sizeof body,
               "  z = %s[] constant(%s)\n"
               "  ROOT r = %s reduce(p0, z), dimensions={%s}, to_apply=add",
               types[t], strcmp(types[t], "c64") == 0 ? "(1, 0)" : "1", out, forms[i].dims);
      check_kernel(fusion(reducer("add", types[t]), in, body, out),
                   &(kernel_check){.low = 0, .high = 1, .rtol = tolerance ? tolerance : 1e-5, .atol = tolerance});
    }
  }
}

/* Factors that three neighbouring columns share: each of the three has an accumulator of its own. */
TEST(columns_whose_neighbours_share_a_factor)
{
  static const char *const types[] = {"f32", "f64", "bf16", "s32"};
  char params[64], body[400], out[32];

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (int dim = 0; dim < 2; dim++) {
      const char *x = types[t];
      snprintf(params, sizeof params, "%s[70,68] %s[70,68,3]", x, x);
      snprintf(out, sizeof out, "%s[%d,3]", x, dim ? 70 : 68);
      snprintf(body, sizeof body,
               "  b = %s[70,68,3] broadcast(p0), dimensions={0,1}\n"
               "  m = %s[70,68,3] multiply(b, p1)\n"
               "  z = %s[] constant(0)\n"
               "  ROOT r = %s reduce(m, z), dimensions={%d}, to_apply=add",
               x, x, x, out, dim);
      double tolerance = strcmp(x, "bf16") == 0 ? 0.1 : 1e-5; /* the evaluator rounds each step */
      check_kernel(fusion(reducer("add", x), params, body, out),
                   &(kernel_check){.low = 0, .high = 1, .rtol = tolerance, .atol = tolerance});
    }
}

TEST(other_reducers)
{
  static const struct { const char *op, *type, *init; } ops[] = {
    {"maximum", "f32", "-inf"}, {"minimum", "f64", "inf"}, {"multiply", "f32", "1"}, {"and", "pred", "true"}, {"or", "pred", "false"},
    {"xor", "u32", "0"}, {"maximum", "s8", "-128"}, {"minimum", "u16", "65535"}, {"maximum", "bf16", "-inf"}, {"subtract", "f32", "0"},
    {"maximum", "s4", "-8"},
  };
  for (size_t t = 0; t < WEFT_COUNT(ops); t++) {
    for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
      char in[64], out[64], body[300], def[400];
      snprintf(def, sizeof def,
               "add {\n"
               "  x = %s[] parameter(0)\n"
               "  y = %s[] parameter(1)\n"
               "  ROOT r = %s[] %s(x, y)\n"
               "}\n",
               ops[t].type, ops[t].type, ops[t].type, ops[t].op);
      snprintf(in, sizeof in, "%s%s", ops[t].type, forms[i].in);
      snprintf(out, sizeof out, "%s%s", ops[t].type, forms[i].out);
      snprintf(body, sizeof body,
               "  z = %s[] constant(%s)\n"
               "  ROOT r = %s reduce(p0, z), dimensions={%s}, to_apply=add",
               ops[t].type, ops[t].init, out, forms[i].dims);
      check_kernel(fusion(def, in, body, out), &(kernel_check){.low = 0.9, .high = 1.1, .rtol = 1e-4});
    }
  }
}

#define ARGMAX \
  "argmax {\n" \
  "  v = f32[] parameter(0)\n" \
  "  i = s32[] parameter(1)\n" \
  "  w = f32[] parameter(2)\n" \
  "  j = s32[] parameter(3)\n" \
  "  gt = pred[] compare(v, w), direction=GT\n" \
  "  eq = pred[] compare(v, w), direction=EQ\n" \
  "  lt = pred[] compare(i, j), direction=LT\n" \
  "  both = pred[] and(eq, lt)\n" \
  "  keep = pred[] or(gt, both)\n" \
  "  a = f32[] select(keep, v, w)\n" \
  "  b = s32[] select(keep, i, j)\n" \
  "  ROOT r = (f32[], s32[]) tuple(a, b)\n" \
  "}\n"

TEST(argmax_and_fused_forms)
{
  check_kernel(fusion(ARGMAX, "f32[7,50]",
                      "  n = f32[] constant(-inf)\n"
                      "  z = s32[] constant(0)\n"
                      "  io = s32[7,50] iota(), iota_dimension=1\n"
                      "  ROOT r = (f32[7], s32[7]) reduce(p0, io, n, z), dimensions={1}, to_apply=argmax",
                      "(f32[7], s32[7])"),
               NULL);
  check_kernel(fusion(ARGMAX, "f32[50,70]",
                      "  n = f32[] constant(-inf)\n"
                      "  z = s32[] constant(0)\n"
                      "  io = s32[50,70] iota(), iota_dimension=0\n"
                      "  r = (f32[70], s32[70]) reduce(p0, io, n, z), dimensions={0}, to_apply=argmax\n"
                      "  ROOT i = s32[70] get-tuple-element(r), index=1",
                      "s32[70]"),
               NULL);
  check_kernel(fusion(reducer("add", "f32"), "bf16[40,300]",
                      "  z = f32[] constant(0)\n"
                      "  c = f32[40,300] convert(p0)\n"
                      "  s = f32[40] reduce(c, z), dimensions={1}, to_apply=add\n"
                      "  n = f32[] constant(0.003)\n"
                      "  nb = f32[40] broadcast(n), dimensions={}\n"
                      "  m = f32[40] multiply(s, nb)\n"
                      "  ROOT r = bf16[40] convert(m)",
                      "bf16[40]"),
               NULL);
  check_kernel(fusion(reducer("add", "f32"), "f32[40,300]",
                      "  z = f32[] constant(0)\n"
                      "  q = f32[40,300] multiply(p0, p0)\n"
                      "  s = f32[40] reduce(p0, z), dimensions={1}, to_apply=add\n"
                      "  t = f32[40] reduce(q, z), dimensions={1}, to_apply=add\n"
                      "  ROOT r = (f32[40], f32[40]) tuple(s, t)",
                      "(f32[40], f32[40])"),
               &(kernel_check){.rtol = 1e-4, .atol = 1e-4});
  check_kernel(fusion(reducer("add", "f32"), "f32[300,40]",
                      "  z = f32[] constant(0)\n"
                      "  q = f32[300,40] multiply(p0, p0)\n"
                      "  s = f32[40] reduce(p0, z), dimensions={0}, to_apply=add\n"
                      "  t = f32[40] reduce(q, z), dimensions={0}, to_apply=add\n"
                      "  ROOT r = (f32[40], f32[40]) tuple(s, t)",
                      "(f32[40], f32[40])"),
               &(kernel_check){.rtol = 1e-4, .atol = 1e-4});
}

/* argmin and argmax as JAX writes them: the index of the first of equal values, and of the first NaN, in rows of every
 * length. `nans`: some elements are NaN. */
static void check_extreme(const char *value, const char *index, const char *direction, int cols, bool nans)
{
  char reducer[1024], in[64], out[64], body[1024];
  bool is_float = strchr(value, 'f') != NULL, is_min = strcmp(direction, "LT") == 0;

  snprintf(reducer, sizeof reducer,
           "best {\n"
           "  v = %s[] parameter(0)\n"
           "  i = %s[] parameter(1)\n"
           "  w = %s[] parameter(2)\n"
           "  j = %s[] parameter(3)\n"
           "  b = pred[] compare(v, w), direction=%s\n"
           "  n = pred[] compare(v, v), direction=NE\n"
           "  o = pred[] or(b, n)\n"
           "  eq = pred[] compare(v, w), direction=EQ\n"
           "  lt = pred[] compare(i, j), direction=LT\n"
           "  first = pred[] and(eq, lt)\n"
           "  keep = pred[] or(%s, first)\n"
           "  a = %s[] select(%s, v, w)\n"
           "  c = %s[] select(keep, i, j)\n"
           "  ROOT r = (%s[], %s[]) tuple(a, c)\n"
           "}\n",
           value, index, value, index, direction, is_float ? "o" : "b", value, is_float ? "o" : "b", index, value,
           index);
  snprintf(in, sizeof in, "s32[3,%d]", cols);
  snprintf(body, sizeof body,
           "  k = s32[] constant(%d)\n"
           "  kb = s32[3,%d] broadcast(k), dimensions={}\n"
           "  m = pred[3,%d] compare(p0, kb), direction=EQ\n"
           "  x = %s[3,%d] convert(p0)\n"
           "  y = %s[] constant(%s)\n"
           "  yb = %s[3,%d] broadcast(y), dimensions={}\n"
           "  q = %s[3,%d] select(m, yb, x)\n"
           "  io = %s[%d] iota(), iota_dimension=0\n"
           "  ib = %s[3,%d] broadcast(io), dimensions={1}\n"
           "  n = %s[] constant(%s)\n"
           "  z = %s[] constant(0)\n"
           "  ROOT r = (%s[3], %s[3]) reduce(q, ib, n, z), dimensions={1}, to_apply=best",
           nans ? 17 : 1000, cols, cols, value, cols, value, is_float ? "nan" : "1", value, cols, value, cols, index,
           cols, index, cols, value,
           is_float ? is_min ? "inf" : "-inf"
           : is_min ? "127"
                    : "0",
           index, value, index);
  snprintf(out, sizeof out, "(%s[3], %s[3])", value, index);
  check_kernel(fusion(reducer, in, body, out), &(kernel_check){.int_low = 1, .int_high = 20});
}

TEST(least_and_greatest_with_their_places)
{
  static const char *const values[] = {"f32", "bf16", "f64", "s32", "u8"};
  static const int cols[] = {8, 16, 33, 100, 1000};

  for (size_t n = 0; n < WEFT_COUNT(values) * WEFT_COUNT(cols) * 8; n++)
    check_extreme(values[n / 8 % WEFT_COUNT(values)], n & 1 ? "s32" : "s64", n & 2 ? "LT" : "GT",
                  cols[n / 8 / WEFT_COUNT(values)], n & 4);
}

TEST(long_sums_in_two_phases)
{
  check_kernel(fusion(reducer("add", "f32"), "f32[100000]",
                      "  z = f32[] constant(3)\n"
                      "  ROOT r = f32[] reduce(p0, z), dimensions={0}, to_apply=add",
                      "f32[]"),
               &(kernel_check){.low = 0, .high = 1, .rtol = 1e-3});
  check_kernel(fusion(reducer("add", "f32"), "f32[3,70001]",
                      "  z = f32[] constant(3)\n"
                      "  ROOT r = f32[3] reduce(p0, z), dimensions={1}, to_apply=add",
                      "f32[3]"),
               &(kernel_check){.low = 0, .high = 1, .rtol = 1e-3});
  check_kernel(fusion(reducer("maximum", "f64"), "f64[20001,7]",
                      "  z = f64[] constant(-inf)\n"
                      "  ROOT r = f64[7] reduce(p0, z), dimensions={0}, to_apply=max",
                      "f64[7]"),
               NULL);
  check_kernel(fusion(reducer("add", "s32"), "s32[40,50,70]",
                      "  z = s32[] constant(5)\n"
                      "  s = s32[70] reduce(p0, z), dimensions={0,1}, to_apply=add\n"
                      "  ROOT r = s32[70] negate(s)",
                      "s32[70]"),
               NULL);
}

TEST(softmax_and_layer_norm_by_rows)
{
  static const struct { const char *type, *dims, *rows, *bcast; } shapes[] = {
    {"f32", "[6,100]", "[6]", "0"}, {"f32", "[2,3,64]", "[2,3]", "0,1"}, {"f64", "[5,33]", "[5]", "0"}, {"bf16", "[4,80]", "[4]", "0"}, {"f32", "[1,40]", "[1]", "0"},
  };
  for (size_t i = 0; i < WEFT_COUNT(shapes); i++) {
    char in[64], rows[64], body[2048], defs[1024];
    const char *t = shapes[i].type, *last = strchr(shapes[i].bcast, ',') ? "2" : "1";
    snprintf(in, sizeof in, "%s%s", t, shapes[i].dims);
    snprintf(rows, sizeof rows, "%s%s", t, shapes[i].rows);
    snprintf(defs, sizeof defs, "%s%s", reducer("add", t), reducer("maximum", t));
    snprintf(body, sizeof body,
             "  n = %s[] constant(-inf)\n"
             "  z = %s[] constant(0)\n"
             "  m = %s reduce(p0, n), dimensions={%s}, to_apply=max\n"
             "  mb = %s broadcast(m), dimensions={%s}\n"
             "  d = %s subtract(p0, mb)\n"
             "  x = %s exponential(d)\n"
             "  s = %s reduce(x, z), dimensions={%s}, to_apply=add\n"
             "  sb = %s broadcast(s), dimensions={%s}\n"
             "  ROOT r = %s divide(x, sb)",
             t, t, rows, last, in, shapes[i].bcast, in, in, rows, last, in, shapes[i].bcast, in);
    check_kernel(fusion(defs, in, body, in), NULL);
    snprintf(body, sizeof body,
             "  z = %s[] constant(0)\n"
             "  k = %s[] constant(0.01)\n"
             "  kb = %s broadcast(k), dimensions={}\n"
             "  s = %s reduce(p0, z), dimensions={%s}, to_apply=add\n"
             "  mean = %s multiply(s, kb)\n"
             "  mb = %s broadcast(mean), dimensions={%s}\n"
             "  d = %s subtract(p0, mb)\n"
             "  q = %s multiply(d, d)\n"
             "  v = %s reduce(q, z), dimensions={%s}, to_apply=add\n"
             "  ve = %s add(v, kb)\n"
             "  rs = %s rsqrt(ve)\n"
             "  rb = %s broadcast(rs), dimensions={%s}\n"
             "  ROOT r = %s multiply(d, rb)",
             t, t, rows, rows, last, rows, in, shapes[i].bcast, in, in, rows, last, rows, rows, in, shapes[i].bcast,
             in);
    check_kernel(fusion(defs, in, body, in), NULL);
  }
}

/* A row kernel keeps values of a row. It may use a kept value only at the same index, not behind a transpose, a reverse
 * or a slice. */
TEST(costly_values_that_move_before_they_are_used)
{
  check_kernel(fusion(reducer("add", "f32"), "f32[2,3,2,19] f32[2,3,2,19]",
                      "  d = f32[2,3,2,19] divide(p0, p1)\n"
                      "  t = f32[3,2,2,19] transpose(d), dimensions={1,2,0,3}\n"
                      "  z = f32[] constant(0)\n"
                      "  s = f32[3,2,2] reduce(t, z), dimensions={3}, to_apply=add\n"
                      "  b = f32[3,2,2,19] broadcast(s), dimensions={0,1,2}\n"
                      "  ROOT r = f32[3,2,2,19] subtract(t, b)",
                      "f32[3,2,2,19]"),
               &(kernel_check){.low = 1, .high = 2, .rtol = 1e-5});
  check_kernel(fusion(reducer("add", "f32"), "f32[5,40]",
                      "  e = f32[5,40] exponential(p0)\n"
                      "  z = f32[] constant(0)\n"
                      "  s = f32[5] reduce(e, z), dimensions={1}, to_apply=add\n"
                      "  b = f32[5,40] broadcast(s), dimensions={0}\n"
                      "  v = f32[5,40] reverse(e), dimensions={1}\n"
                      "  q = f32[5,40] divide(v, b)\n"
                      "  ROOT r = f32[5,40] add(q, e)",
                      "f32[5,40]"),
               &(kernel_check){.low = 0, .high = 1, .rtol = 1e-5});
}

/* Several rows of few columns are reduced side by side, as one block; few long rows are reduced in two phases. */
TEST(the_form_decides_how_rows_are_taken)
{
  static const char plain[] = "  z = f32[] constant(0)\n"
                              "  ROOT r = %s reduce(p0, z), dimensions={1}, to_apply=add";
  static const char beside[] = "  z = f32[] constant(0)\n"
                               "  s = f32[] reduce(p1, z), dimensions={0}, to_apply=add\n"
                               "  b = f32[2,100000] broadcast(s), dimensions={}\n"
                               "  m = f32[2,100000] multiply(p0, b)\n"
                               "  ROOT r = %s reduce(m, z), dimensions={1}, to_apply=add";
  static const struct { const char *in, *out; int phases; int64_t units; const char *body; } cases[] = {
    {"f32[48,2]", "f32[48]", 1, 1, plain}, {"f32[48,100]", "f32[48]", 1, 48, plain}, {"f32[2,100000]", "f32[2]", 2, 12, plain},
    {"f32[2,100000] f32[16]", "f32[2]", 2, 12, beside}, /* a sum that all rows share is not a reduction of each row */
  };
  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    char body[400];
    hlo_module *module = NULL;
    gen_options options;
    gen_code *code;
    snprintf(body, sizeof body, cases[i].body, cases[i].out);
    const char *program = fusion(reducer("add", "f32"), cases[i].in, body, cases[i].out);
    T_OK(hlo_parse(program, strlen(program), &module));
    T_OK(gen_options_load(&options));
    T_OK(gen_compile(module, &options, &code));
    const gen_kernel *kernel = gen_code_kernel(code, module->entry->root);
    assert_int_equal(kernel->phase_count, cases[i].phases);
    assert_int_equal(kernel->phases[0].units, cases[i].units);
    gen_code_free(code);
    hlo_module_free(module);
  }
}

static double priced_units(const char *in, const char *body, const char *out, int64_t *units)
{
  const char *program = fusion(reducer("add", "f32"), in, body, out);
  hlo_module *module = NULL;
  gen_options options;
  gen_code *code;
  double ns = 0;

  T_OK(hlo_parse(program, strlen(program), &module));
  T_OK(gen_options_load(&options));
  T_OK(gen_compile(module, &options, &code));
  const gen_kernel *kernel = gen_code_kernel(code, module->entry->root);
  for (int p = 0; p < kernel->phase_count; p++) ns += kernel->phases[p].unit_ns * (double)kernel->phases[p].units;
  *units = kernel->phases[0].units;
  gen_code_free(code);
  hlo_module_free(module);
  return ns;
}
static double priced(const char *in, const char *body, const char *out)
{
  int64_t units;
  return priced_units(in, body, out, &units);
}

/* Short rows may be treated as one long row also behind a bitcast-convert that keeps the width. */
TEST(bits_seen_otherwise_keep_dimensions_together)
{
  int64_t apart, together;

  priced_units("f32[16,32,32,3]",
               "  u = u32[16,32,32,3] bitcast-convert(p0)\n"
               "  ROOT r = u32[16,32,32,3] not(u)",
               "u32[16,32,32,3]", &apart);
  priced_units("u32[16,32,32,3]",
               "  u = u32[16,32,32,3] negate(p0)\n"
               "  ROOT r = u32[16,32,32,3] not(u)",
               "u32[16,32,32,3]", &together);
  T_EQ_INT(apart, together);
}

/* The second program of each pair does at least `more` times the work of the first, and its estimate says so. No
 * estimate is zero or infinite. */
TEST(estimates_follow_the_work)
{
  static const struct { const char *in, *less, *out, *in2, *much, *out2; double more; } pairs[] = {
    {"f32[1000]", "  ROOT r = f32[1000] negate(p0)", "f32[1000]", "f32[100000]", "  ROOT r = f32[100000] negate(p0)", "f32[100000]", 20},
    {"f32[70000]", "  ROOT r = f32[70000] negate(p0)", "f32[70000]", "f32[70000]", "  ROOT r = f32[70000] tanh(p0)", "f32[70000]", 3},
    {"f32[70000]", "  ROOT r = f32[70000] tanh(p0)", "f32[70000]", "f64[70000]", "  ROOT r = f64[70000] tanh(p0)", "f64[70000]", 1.5},
    /* only a slice of the computed array is read */
    {"f32[70000]", "  t = f32[70000] tanh(p0)\n"
                   "  ROOT r = f32[70] slice(t), slice={[10:80]}", "f32[70]",
     "f32[70000]", "  t = f32[70000] tanh(p0)\n"
                   "  ROOT r = f32[69990] slice(t), slice={[10:70000]}", "f32[69990]", 50},
    /* a sum reads its whole operand; a sum of a slice reads the slice */
    {"f32[50,4000]", "  z = f32[] constant(0)\n"
                     "  s = f32[50,40] slice(p0), slice={[0:50], [0:40]}\n"
                     "  ROOT r = f32[50] reduce(s, z), dimensions={1}, to_apply=add", "f32[50]",
     "f32[50,4000]", "  z = f32[] constant(0)\n"
                     "  ROOT r = f32[50] reduce(p0, z), dimensions={1}, to_apply=add", "f32[50]", 20},
    {"f32[9000]", "  z = f32[] constant(0)\n"
                  "  ROOT r = f32[9000] reduce-window(p0, z), window={size=3 pad=1_1}, to_apply=add", "f32[9000]",
     "f32[9000]", "  z = f32[] constant(0)\n"
                  "  ROOT r = f32[9000] reduce-window(p0, z), window={size=301 pad=150_150}, to_apply=add", "f32[9000]", 20},
  };
  for (size_t i = 0; i < WEFT_COUNT(pairs); i++) {
    double less = priced(pairs[i].in, pairs[i].less, pairs[i].out),
           much = priced(pairs[i].in2, pairs[i].much, pairs[i].out2);
    if (!(less > 50 && much > pairs[i].more * less && much < 1e9)) fail_msg("pair %zu: %g and %g ns", i, less, much);
  }
}

/* A step that is split over threads moves its operands' bytes to the other cores: trilinear sampling takes twice as
 * long on two threads. In the middle of a chain, one thread would have to fetch half of what several wrote. */
TEST(steps_after_those_of_one_thread_are_shared_later)
{
  static const struct { gen_shareable step; int threads; bool pays; } cases[] = {
    {{GEN_KERNEL, 62000, 720000, 0, 0, 0}, 2, true},
    {{GEN_KERNEL, 110000, 720000, 480000, 0, 0}, 2, false},
    {{GEN_KERNEL, 620000, 720000, 480000, 0, 0}, 2, true},
    {{GEN_KERNEL, 110000, 720000, 480000, 0, 240000}, 2, true},
    {{GEN_KERNEL, 15000, 480000, 0, 0, 0}, 2, false},
    {{GEN_KERNEL, 15000, 480000, 0, 240000, 0}, 2, true},
    {{GEN_LIBRARY, 1e9, 100, 0, 0, 0}, 1, false},
    /* products whose operands nobody writes: 128x128 of f32, and one row of bf16 by 768x768 */
    {{GEN_LIBRARY, 40000, 196608, 0, 0, 0, 0}, 2, false},
    {{GEN_LIBRARY, 40000, 196608, 0, 0, 0, 131072}, 2, true},
    {{GEN_KERNEL, 30000, 1182720, 0, 0, 0, 0}, 2, false},
    {{GEN_KERNEL, 30000, 1182720, 0, 0, 0, 1181184}, 2, true},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    if (gen_pays_to_share(&gen_cpu_target, &cases[i].step, cases[i].threads) != cases[i].pays) fail_msg("case %zu", i);
}

TEST(steps_of_any_shape_have_a_price)
{
  static const char program[] = "HloModule t\n"
                                "ENTRY e {\n"
                                "  p = f32[4] parameter(0)\n"
                                "  t = token[] after-all()\n"
                                "  c = (f32[4], token[]) custom-call(t, p), custom_call_target=\"any\"\n"
                                "  d = () custom-call(), custom_call_target=\"any\"\n"
                                "  ROOT r = f32[4] get-tuple-element(c), index=0\n"
                                "}\n";
  hlo_module *module;

  T_OK(hlo_parse(program, sizeof program - 1, &module));
  HLO_FOREACH(x, module->entry) {
    double ns = gen_library_ns(&gen_cpu_target, x);
    if (!(ns > 0 && ns < 1e6)) fail_msg("%s: %g ns", x->name, ns);
  }
  hlo_module_free(module);
}

TEST(sums_of_values_that_are_sums_themselves)
{
  static const char *const shapes[][2] = {{"f32[3,9000]", "f32[3]"}, {"f32[40,300]", "f32[40]"}, {"f32[1,70000]", "f32[1]"}};
  for (size_t i = 0; i < WEFT_COUNT(shapes); i++) {
    char in[64], body[500];
    snprintf(in, sizeof in, "%s f32[16] %s", shapes[i][0], shapes[i][1]);
    snprintf(body, sizeof body,
             "  z = f32[] constant(0)\n"
             "  q = f32[16] multiply(p1, p1)\n"
             "  s = f32[] reduce(q, z), dimensions={0}, to_apply=add\n"
             "  b = %s broadcast(s), dimensions={}\n"
             "  m = %s maximum(p0, b)\n"
             "  t = %s reduce(m, z), dimensions={1}, to_apply=add\n"
             "  ROOT r = %s multiply(t, p2)",
             shapes[i][0], shapes[i][0], shapes[i][1], shapes[i][1]);
    check_kernel(fusion(reducer("add", "f32"), in, body, shapes[i][1]), &(kernel_check){.rtol = 1e-5, .atol = 1e-4});
  }
  check_kernel(fusion(reducer("add", "f32"), "f32[700] f32[16]", /* no rows at all */
                      "  z = f32[] constant(0)\n"
                      "  s = f32[] reduce(p1, z), dimensions={0}, to_apply=add\n"
                      "  b = f32[700] broadcast(s), dimensions={}\n"
                      "  ROOT m = f32[700] add(p0, b)",
                      "f32[700]"),
               &(kernel_check){.rtol = 1e-5, .atol = 1e-4});
}

TEST(reduce_window_forms)
{
  check_kernel(
    fusion(
      reducer("maximum", "f32"), "f32[2,9,10,5]",
      "  z = f32[] constant(-inf)\n"
      "  ROOT r = f32[2,4,5,5] reduce-window(p0, z), window={size=1x3x3x1 stride=1x2x2x1 pad=0_0x0_0x1_0x0_0}, to_apply=max",
      "f32[2,4,5,5]"),
    NULL);
  check_kernel(fusion(reducer("add", "s32"), "s32[40]",
                      "  z = s32[] constant(0)\n"
                      "  ROOT r = s32[40] reduce-window(p0, z), window={size=40 pad=39_0}, to_apply=add",
                      "s32[40]"),
               NULL);
  check_kernel(fusion(reducer("add", "f32"), "f32[7,30]",
                      "  z = f32[] constant(0)\n"
                      "  ROOT r = f32[7,58] reduce-window(p0, z), window={size=1x2 lhs_dilate=1x2}, to_apply=add",
                      "f32[7,58]"),
               NULL);
  check_kernel(fusion(reducer("add", "f32"), "f32[7,30]",
                      "  z = f32[] constant(0)\n"
                      "  ROOT r = f32[7,26] reduce-window(p0, z), window={size=1x3 rhs_dilate=1x2}, to_apply=add",
                      "f32[7,26]"),
               &(kernel_check){.rtol = 1e-5, .atol = 1e-5});
}

/* Windows with strides and padding, whose first and last lanes read outside of the array. */
TEST(windows_with_strides_and_padding_read_inside_of_the_array)
{
  static const struct { const char *in, *window, *out; } shapes[] = {
    {"[3,9,33]", "size=1x3x3 stride=1x2x2 pad=0_0x1_1x1_1", "[3,5,17]"},
    {"[70]", "size=3 stride=3 pad=2_4", "[25]"},
    {"[2,3,40]", "size=1x2x5 stride=1x1x8 pad=0_0x1_0x4_20", "[2,3,8]"},
    {"[4,19,2]", "size=1x3x1 stride=1x2x1 pad=0_0x1_1x0_0", "[4,10,2]"},
  };
  static const struct { const char *op, *init; } ops[] = {{"maximum", "-inf"}, {"minimum", "inf"}, {"add", "0"}, {"maximum", "0.5"}};
  static const char *const types[] = {"f32", "bf16", "f64", "f16"};
  char in[64], body[400], out[64];

  for (size_t i = 0; i < WEFT_COUNT(shapes); i++)
    for (size_t o = 0; o < WEFT_COUNT(ops); o++)
      for (size_t t = 0; t < WEFT_COUNT(types); t++) {
        snprintf(in, sizeof in, "%s%s", types[t], shapes[i].in);
        snprintf(out, sizeof out, "%s%s", types[t], shapes[i].out);
        snprintf(body, sizeof body,
                 "  z = %s[] constant(%s)\n"
                 "  ROOT r = %s reduce-window(p0, z), window={%s}, to_apply=%.3s",
                 types[t], ops[o].init, out, shapes[i].window, ops[o].op);
        /* nine numbers of up to 2, of which a narrow sum is rounded at every step or at its end */
        bool sums = ops[o].op[0] == 'a', narrow = types[t][0] == 'b' || types[t][1] == '1';
        check_kernel(fusion(reducer(ops[o].op, types[t]), in, body, out),
                     &(kernel_check){.rtol = sums && narrow ? 0.02 : 0, .atol = sums && narrow ? 0.15 : 0});
      }
}

/* An element has two parts, of which the array has twice as many. */
TEST(windows_of_complex_numbers_read_both_parts)
{
  check_kernel(fusion(reducer("add", "c64"), "c64[8,9]",
                      "  z = c64[] constant((0, 0))\n"
                      "  ROOT r = c64[8,9] reduce-window(p0, z), window={size=1x9 pad=0_0x8_0}, to_apply=add",
                      "c64[8,9]"),
               &(kernel_check){.rtol = 1e-5, .atol = 1e-5});
  check_kernel(
    fusion(reducer("add", "c64"), "c64[3,40]",
           "  z = c64[] constant((0, 0))\n"
           "  ROOT r = c64[3,21] reduce-window(p0, z), window={size=1x3 stride=1x2 pad=0_0x1_2}, to_apply=add",
           "c64[3,21]"),
    &(kernel_check){.rtol = 1e-5, .atol = 1e-5});
}

/* The extremes of windows are those of single maxima and minima: NaN wins over all, and 0 is greater than -0. Each
 * input chooses one of eight numbers; a quotient tells the zeros apart. */
TEST(extremes_of_windows_keep_nan_and_the_sign_of_zero)
{
  static const char *const ops[] = {"maximum", "minimum"};
  char body[1500];

  for (size_t o = 0; o < WEFT_COUNT(ops); o++) {
    snprintf(body, sizeof body,
             "  table = f32[8] constant({0, -0, inf, -inf, nan, 1, -1, 1e-40})\n"
             "  at = s32[4,9,33,1] reshape(p0)\n"
             "  x = f32[4,9,33] gather(table, at), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
             "index_vector_dim=3, slice_sizes={1}\n"
             "  z = f32[] constant(%s)\n"
             "  w = f32[4,5,17] reduce-window(x, z), window={size=1x3x3 stride=1x2x2 pad=0_0x1_1x1_1}, to_apply=%.3s\n"
             "  one = f32[] constant(1)\n"
             "  ones = f32[4,5,17] broadcast(one), dimensions={}\n"
             "  ROOT q = f32[4,5,17] divide(ones, w)",
             o ? "inf" : "-inf", ops[o]);
    check_kernel(fusion(reducer(ops[o], "f32"), "s32[4,9,33]", body, "f32[4,5,17]"),
                 &(kernel_check){.int_low = 0, .int_high = 7});
  }
}

TEST(a_sum_beside_another_combiner_starts_from_its_initial_value_once)
{
  static const char capped[] = "cap {\n"
                               "  x = f32[] parameter(0)\n"
                               "  y = f32[] parameter(1)\n"
                               "  m = f32[] maximum(x, y)\n"
                               "  k = f32[] constant(0.5)\n"
                               "  ROOT r = f32[] minimum(m, k)\n"
                               "}\n";
  char defs[1024];

  snprintf(defs, sizeof defs, "%s%s", reducer("add", "f32"), capped);
  check_kernel(fusion(defs, "f32[16,64]",
                      "  i = f32[] constant(5)\n"
                      "  s = f32[16] reduce(p0, i), dimensions={1}, to_apply=add\n"
                      "  c = f32[16] reduce(p0, i), dimensions={1}, to_apply=cap\n"
                      "  ROOT r = f32[16] subtract(s, c)",
                      "f32[16]"),
               &(kernel_check){.rtol = 1e-5, .atol = 1e-5});
}

enum { EXTREME_ROWS = 512 };

/* Rows of few different numbers, of which any may be special: NaN wins over all, and 0 is greater than -0. */
static void check_extremes(bool min, int cols, bool bf16)
{
  static const uint32_t bits[] = {0, 0x80000000, 0x7fc00000, 0xffc00000, 0x7f800000, 0xff800000, 0x3f800000, 0xbf800000, 0x10000, 0x80010000};
  const char *type = bf16 ? "bf16" : "f32", *op = min ? "minimum" : "maximum";
  int n = EXTREME_ROWS * cols;
  float *x = aligned_alloc(64, WEFT_ALIGN_UP((size_t)n * sizeof *x, 64)), want[EXTREME_ROWS], got[EXTREME_ROWS];
  uint16_t *narrow = (uint16_t *)x, narrow_got[EXTREME_ROWS];
  char params[64], body[300], out[32];
  hlo_module *module = NULL;
  gen_options options;
  gen_code *code;

  snprintf(params, sizeof params, "%s[%d,%d]", type, EXTREME_ROWS, cols);
  snprintf(out, sizeof out, "%s[%d]", type, EXTREME_ROWS);
  snprintf(body, sizeof body,
           "  z = %s[] constant(%sinf)\n"
           "  ROOT r = %s reduce(p0, z), dimensions={1}, to_apply=%.3s",
           type, min ? "" : "-", out, op);
  const char *program = fusion(reducer(op, type), params, body, out);
  T_OK(hlo_parse(program, strlen(program), &module));
  for (int r = 0; r < EXTREME_ROWS; r++) {
    want[r] = min ? INFINITY : -INFINITY;
    for (int c = 0; c < cols; c++) {
      /* most columns of a row have one number; two others are rare */
      int which = (c * 7 + r) % 31 == 0 ? r / 10 : (c * 5 + r) % 61 == 0 ? r / 100 + r / 7 : r;
      uint32_t b = bits[which % (int)WEFT_COUNT(bits)];
      float v;
      memcpy(&v, &b, sizeof v);
      if (bf16) narrow[r * cols + c] = (uint16_t)(b >> 16);
      else x[r * cols + c] = v;
      bool zeros = v == 0 && want[r] == 0, wins = min ? v < want[r] : v > want[r];
      if (isnan(v) || wins || (zeros && (min ? signbit(v) : !signbit(v)))) want[r] = isnan(want[r]) ? want[r] : v;
    }
  }
  T_OK(gen_options_load(&options));
  T_OK(gen_compile(module, &options, &code));
  const gen_kernel *kernel = gen_code_kernel(code, module->entry->root);
  void *args[2] = {x, bf16 ? (void *)narrow_got : got};
  kernel->phases[0].fn(args, 0, kernel->phases[0].units);
  for (int r = 0; r < EXTREME_ROWS; r++) {
    uint32_t b = (uint32_t)narrow_got[r] << 16;
    if (bf16) memcpy(&got[r], &b, sizeof b);
    if (isnan(want[r]) ? !isnan(got[r]) : got[r] != want[r] || signbit(got[r]) != signbit(want[r]))
      fail_msg("%s of row %d of %d %s: got %a, want %a", op, r, cols, type, got[r], want[r]);
  }
  gen_code_free(code);
  hlo_module_free(module);
  free(x);
}

TEST(extremes_keep_nan_and_the_order_of_zeros)
{
  static const int cols[] = {8, 16, 31, 70, 64, 200, 1024};
  for (size_t i = 0; i < WEFT_COUNT(cols); i++)
    for (int min = 0; min < 2; min++)
      for (int bf16 = 0; bf16 < 2; bf16++) check_extremes(min, cols[i], bf16);
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(sums_of_every_form), UNIT(columns_whose_neighbours_share_a_factor), UNIT(other_reducers), UNIT(argmax_and_fused_forms), UNIT(least_and_greatest_with_their_places), UNIT(long_sums_in_two_phases),
    UNIT(softmax_and_layer_norm_by_rows), UNIT(costly_values_that_move_before_they_are_used), UNIT(the_form_decides_how_rows_are_taken),
    UNIT(estimates_follow_the_work), UNIT(steps_of_any_shape_have_a_price), UNIT(bits_seen_otherwise_keep_dimensions_together), UNIT(steps_after_those_of_one_thread_are_shared_later), UNIT(reduce_window_forms), UNIT(windows_with_strides_and_padding_read_inside_of_the_array),
          UNIT(windows_of_complex_numbers_read_both_parts), UNIT(extremes_of_windows_keep_nan_and_the_sign_of_zero),
    UNIT(extremes_keep_nan_and_the_order_of_zeros), UNIT(sums_of_values_that_are_sums_themselves), UNIT(a_sum_beside_another_combiner_starts_from_its_initial_value_once),
  };
  return cmocka_run_group_tests(units, NULL, NULL);
}
