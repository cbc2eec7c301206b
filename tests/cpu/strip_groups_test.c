/* tests/cpu/strip_groups_test.c -- dots and kernels that exchange arrays of scores, as the backward pass of attention:
 * pass strip-groups makes steps of them. Kernels that only add and take maxima of rows give whole numbers, and so the
 * bits of the reference evaluator; gradients of a softmax give the same bits for any number of threads, and nearly the
 * evaluator's numbers. */
#include "cpu/against_evaluator.h"

#include <inttypes.h>
#include <math.h>

#include "cpu/makers.h"
#include "cpu/planned.h"

typedef struct program {
  const char *name, *body;
  int groups, chains, dots; /* steps of these kinds: strip-group, strips, dot */
} program;

#define MAX \
  "max {\n" \
  "  a = TYPE[] parameter(0)\n" \
  "  b = TYPE[] parameter(1)\n" \
  "  ROOT c = TYPE[] maximum(a, b)\n" \
  "}\n"
#define OPERANDS \
  "  q = TYPE[3,90,24] parameter(0)\n" \
  "  k = TYPE[3,300,24] parameter(1)\n" \
  "  v = TYPE[3,300,40] parameter(2)\n" \
  "  g = TYPE[3,90,40] parameter(3)\n"
#define DOT(name, dims, l, r, lc, rc) \
  "  " name " = TYPE[" dims "] dot(" l ", " r "), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={" lc "}, rhs_contracting_dims={" rc "}\n"
/* `to` = `from` less the largest of its row. */
#define LESS_MAX(to, from) \
  "  " to "l = TYPE[] constant(-inf)\n" \
  "  " to "m = TYPE[3,90] reduce(" from ", " to "l), dimensions={2}, to_apply=max\n" \
  "  " to "b = TYPE[3,90,300] broadcast(" to "m), dimensions={0,1}\n" \
  "  " to " = TYPE[3,90,300] subtract(" from ", " to "b)\n"
#define SCORES DOT("s", "3,90,300", "q", "k", "2", "2") LESS_MAX("p", "s")
#define BACK(g) DOT("dp", "3,90,300", g, "v", "2", "2") "  t = TYPE[3,90,300] add(dp, p)\n" LESS_MAX("ds", "t")
#define DQ DOT("dq", "3,90,24", "ds", "k", "2", "1")
#define DK DOT("dk", "3,300,24", "ds", "q", "1", "1")
#define DV(g) DOT("dv", "3,300,40", "p", g, "1", "1")
#define RESULT DOT("y", "3,90,40", "p", "v", "2", "1")
#define ALL "  ROOT r = (TYPE[3,90,40], TYPE[3,90,24], TYPE[3,300,24], TYPE[3,300,40]) tuple(y, dq, dk, dv)\n"

static const program programs[] = {
  {"all of a gradient", OPERANDS SCORES RESULT BACK("g") DQ DK DV("g") ALL, 1, 0, 0},
  {"the gradient of the result depends on the result",
   OPERANDS SCORES RESULT
   "  one = TYPE[] constant(1)\n"
   "  ones = TYPE[3,90,40] broadcast(one), dimensions={}\n"
   "  less = TYPE[3,90,40] minimum(y, ones)\n"
   "  none = TYPE[3,90,40] negate(ones)\n"
   "  h = TYPE[3,90,40] maximum(less, none)\n"
   BACK("h") DQ DK DV("h") ALL, 1, 1, 0},
  {"a sum over rows alone", OPERANDS SCORES "  ROOT dv = TYPE[3,300,40] dot(p, g), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}\n", 1, 0, 0},
  {"no batch, and a last block of one row",
   "  q = TYPE[257,16] parameter(0)\n"
   "  k = TYPE[519,16] parameter(1)\n"
   "  g = TYPE[257,33] parameter(2)\n"
   "  s = TYPE[257,519] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
   "  low = TYPE[] constant(-inf)\n"
   "  m = TYPE[257] reduce(s, low), dimensions={1}, to_apply=max\n"
   "  mb = TYPE[257,519] broadcast(m), dimensions={0}\n"
   "  p = TYPE[257,519] subtract(s, mb)\n"
   "  dv = TYPE[519,33] dot(p, g), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
   "  y = TYPE[257,16] dot(p, k), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  ROOT r = (TYPE[519,33], TYPE[257,16]) tuple(dv, y)\n", 1, 0, 0},
  {"two kernels between the dots, one of which gives numbers for each row",
   OPERANDS SCORES
   "  low = TYPE[] constant(-inf)\n"
   "  most = TYPE[3,90] reduce(p, low), dimensions={2}, to_apply=max\n"
   "  mosts = TYPE[3,90,300] broadcast(most), dimensions={0,1}\n"
   "  dp = TYPE[3,90,300] dot(g, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
   "  t = TYPE[3,90,300] add(dp, mosts)\n"
   "  ds = TYPE[3,90,300] subtract(t, p)\n" DQ DK "  ROOT r = (TYPE[3,90,24], TYPE[3,300,24]) tuple(dq, dk)\n", 1, 0, 0},
  {"scores on the right side", OPERANDS SCORES BACK("g") DQ DOT("dk", "3,24,300", "q", "ds", "1", "1")
   DOT("dv", "3,40,300", "g", "p", "1", "1") "  ROOT r = (TYPE[3,90,24], TYPE[3,24,300], TYPE[3,40,300]) tuple(dq, dk, dv)\n", 1, 0, 0},
  {"grouped heads as jax.nn has them: scores are transposed between the dots, in both directions",
   "  q = TYPE[2,64,2,4,8] parameter(0)\n"
   "  k = TYPE[2,80,2,8] parameter(1)\n"
   "  v = TYPE[2,80,2,8] parameter(2)\n"
   "  g = TYPE[2,2,8,4,64] parameter(3)\n"
   "  s = TYPE[2,2,64,4,80] dot(q, k), lhs_batch_dims={0,2}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={3}\n"
   "  t = TYPE[4,2,2,64,80] transpose(s), dimensions={3,0,1,2,4}\n"
   "  low = TYPE[] constant(-inf)\n"
   "  m = TYPE[4,2,2,64] reduce(t, low), dimensions={4}, to_apply=max\n"
   "  mb = TYPE[4,2,2,64,80] broadcast(m), dimensions={0,1,2,3}\n"
   "  p = TYPE[4,2,2,64,80] subtract(t, mb)\n"
   "  dp = TYPE[2,2,4,64,80] dot(g, v), lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={2}, rhs_contracting_dims={3}\n"
   "  dpt = TYPE[4,2,2,64,80] transpose(dp), dimensions={2,0,1,3,4}\n"
   "  dv = TYPE[2,2,8,80] dot(g, p), lhs_batch_dims={0,1}, rhs_batch_dims={1,2}, lhs_contracting_dims={3,4}, rhs_contracting_dims={0,3}\n"
   "  both = TYPE[4,2,2,64,80] add(dpt, p)\n"
   "  n = TYPE[4,2,2,64] reduce(both, low), dimensions={4}, to_apply=max\n"
   "  nb = TYPE[4,2,2,64,80] broadcast(n), dimensions={0,1,2,3}\n"
   "  less = TYPE[4,2,2,64,80] subtract(both, nb)\n"
   "  ds = TYPE[2,2,64,4,80] transpose(less), dimensions={1,2,3,0,4}\n"
   "  dk = TYPE[2,2,80,8] dot(ds, q), lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={2,3}, rhs_contracting_dims={1,3}\n"
   "  dq = TYPE[2,2,64,4,8] dot(ds, k), lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={4}, rhs_contracting_dims={1}\n"
   "  ROOT r = (TYPE[2,2,64,4,8], TYPE[2,2,80,8], TYPE[2,2,8,80]) tuple(dq, dk, dv)\n", 1, 0, 0},
  /* these need whole arrays of scores */
  {"scores that are results, too",
   OPERANDS SCORES BACK("g") DQ DK "  ROOT r = (TYPE[3,90,24], TYPE[3,300,24], TYPE[3,90,300]) tuple(dq, dk, ds)\n", 0, 0, 4},
  {"rows that need other rows",
   OPERANDS SCORES "  back = TYPE[3,90,300] reverse(p), dimensions={1}\n"
   DOT("dp", "3,90,300", "g", "v", "2", "2") "  t = TYPE[3,90,300] add(dp, back)\n" LESS_MAX("ds", "t") DQ DK
   "  ROOT r = (TYPE[3,90,24], TYPE[3,300,24]) tuple(dq, dk)\n", 0, 0, 4},
  {"scores of which columns are reduced, too",
   OPERANDS SCORES BACK("g") DQ DK
   "  low = TYPE[] constant(-inf)\n"
   "  most = TYPE[3,300] reduce(ds, low), dimensions={1}, to_apply=max\n"
   "  ROOT r = (TYPE[3,90,24], TYPE[3,300,24], TYPE[3,300]) tuple(dq, dk, most)\n", 0, 0, 4},
};

static bool gives_steps(weft_platform *platform, const program *p, const char *type)
{
  char generic[8192], text[8192];
  int kernels, copies;

  snprintf(generic, sizeof generic, "HloModule m\n" MAX "ENTRY e {\n%s}\n", p->body);
  put_of_type(text, generic, type);
  bool ok = gives_exactly(platform, text, 0, p->name, &kernels, &copies);
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
  int groups = count_steps(exe, "strip-group"), chains = count_steps(exe, "strips"), dots = count_steps(exe, "dot");
  weft_executable_release(exe);
  if (groups == p->groups && chains == p->chains && dots == p->dots) return ok;
  print_message("# %s of %s: %d groups, %d chains and %d products, want %d, %d and %d\n", p->name, type, groups, chains,
                dots, p->groups, p->chains, p->dots);
  return false;
}

TEST(nets_are_steps_where_rows_do_not_need_each_other)
{
  static const char *const types[] = {"f32", "bf16", "f16", "f64"};
  weft_platform *platform = test_platform(1, 2);
  bool ok = true;

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (size_t i = 0; i < WEFT_COUNT(programs); i++) ok = gives_steps(platform, &programs[i], types[t]) && ok;
  weft_platform_release(platform);
  T_TRUE(ok);
}

/* ---- gradients of a softmax -------------------------------------------------------------------------------------- */

/* The value and the gradients of attention with a mask. Rows of which the mask takes everything have equal shares. */
static const char gradient[] =
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
  "  q = TYPE[5,270,48] parameter(0)\n"
  "  k = TYPE[5,270,48] parameter(1)\n"
  "  v = TYPE[5,270,48] parameter(2)\n"
  "  g = TYPE[5,270,48] parameter(3)\n"
  "  s = f32[5,270,270] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
  "  c = f32[] constant(0.144337567)\n"
  "  cb = f32[5,270,270] broadcast(c), dimensions={}\n"
  "  t = f32[5,270,270] multiply(s, cb)\n"
  "  ok = pred[270,270] parameter(4)\n"
  "  seen = pred[5,270,270] broadcast(ok), dimensions={1,2}\n"
  "  none = f32[] constant(-1e30)\n"
  "  nb = f32[5,270,270] broadcast(none), dimensions={}\n"
  "  u = f32[5,270,270] select(seen, t, nb)\n"
  "  low = f32[] constant(-inf)\n"
  "  m = f32[5,270] reduce(u, low), dimensions={2}, to_apply=max\n"
  "  mb = f32[5,270,270] broadcast(m), dimensions={0,1}\n"
  "  d = f32[5,270,270] subtract(u, mb)\n"
  "  x = f32[5,270,270] exponential(d)\n"
  "  zero = f32[] constant(0)\n"
  "  sum = f32[5,270] reduce(x, zero), dimensions={2}, to_apply=add\n"
  "  sb = f32[5,270,270] broadcast(sum), dimensions={0,1}\n"
  "  w = f32[5,270,270] divide(x, sb)\n"
  "  p = TYPE[5,270,270] convert(w)\n"
  "  y = f32[5,270,48] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
  "  dp = f32[5,270,270] dot(g, v), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}\n"
  "  pp = f32[5,270,270] multiply(w, dp)\n"
  "  mean = f32[5,270] reduce(pp, zero), dimensions={2}, to_apply=add\n"
  "  means = f32[5,270,270] broadcast(mean), dimensions={0,1}\n"
  "  off = f32[5,270,270] subtract(dp, means)\n"
  "  ds = f32[5,270,270] multiply(w, off)\n"
  "  dc = f32[5,270,270] multiply(ds, cb)\n"
  "  dt = TYPE[5,270,270] convert(dc)\n"
  "  dq = f32[5,270,48] dot(dt, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}\n"
  "  dk = f32[5,270,48] dot(dt, q), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
  "  dv = f32[5,270,48] dot(p, g), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
  "  ROOT r = (f32[5,270,48], f32[5,270,48], f32[5,270,48], f32[5,270,48]) tuple(y, dq, dk, dv)\n"
  "}\n";

enum { ELEMS = 5 * 270 * 48, RESULTS = 4, FLOATS = 4, GRADIENT_OPERANDS = 5, LEAST_TAKEN = 70, MOST_TAKEN = 75 };

static void differentiate(const char *text, int threads, const hlo_literal *const *arguments, float out[RESULTS][ELEMS])
{
  weft_platform *platform = test_platform(1, threads);
  weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
  const void *in[GRADIENT_OPERANDS];

  for (int i = 0; i < GRADIENT_OPERANDS; i++) in[i] = arguments[i]->data;
  T_EQ_INT(count_steps(exe, "strip-group"), 1);
  T_EQ_INT(count_steps(exe, "dot"), 0);
  T_OK(test_run(exe, in, (void *[]){out[0], out[1], out[2], out[3]}));
  weft_executable_release(exe);
  weft_platform_release(platform);
}

static void make_arguments(const hlo_module *module, weft_arena *arena, hlo_literal **arguments)
{
  unsigned random = 3;

  for (int i = 0; i < GRADIENT_OPERANDS; i++) {
    T_OK(hlo_literal_new(arena, module->entry->params[i]->shape, &arguments[i]));
    for (int64_t e = 0; i < FLOATS && e < hlo_shape_elems(module->entry->params[i]->shape); e++) {
      random = random * 1664525u + 1013904223u;
      hlo_literal_set_f64(arguments[i], e, (double)(int)(random >> 16 & 0xfff) / 1024 - 2, 0);
    }
  }
  for (int64_t row = 0; row < 270; row++) /* causal, and a few rows have nothing */
    for (int64_t column = 0; column < 270; column++)
      hlo_literal_set_s64(arguments[FLOATS], row * 270 + column,
                          column <= row && (row < LEAST_TAKEN || row > MOST_TAKEN));
}

TEST(gradients_are_the_same_bits_with_any_number_of_threads)
{
  static const struct { const char *type; double error; } types[] = {{"f32", 2e-5}, {"bf16", 5e-2}};
  static const int threads[] = {1, 2, 7};
  static float out[WEFT_COUNT(threads)][RESULTS][ELEMS];

  for (size_t t = 0; t < WEFT_COUNT(types); t++) {
    char text[sizeof gradient];
    weft_arena arena;
    hlo_module *module;
    hlo_literal *arguments[GRADIENT_OPERANDS];
    const hlo_literal *want;
    put_of_type(text, gradient, types[t].type);
    weft_arena_init(&arena);
    T_OK(hlo_parse(text, strlen(text), &module));
    make_arguments(module, &arena, arguments);
    T_OK(hlo_eval_module(module, (const hlo_literal *const *)arguments, &HLO_EVAL_DEFAULT, &arena, &want));
    for (size_t n = 0; n < WEFT_COUNT(threads); n++) {
      differentiate(text, threads[n], (const hlo_literal *const *)arguments, out[n]);
      T_TRUE(memcmp(out[n], out[0], sizeof out[0]) == 0);
    }
    for (int r = 0; r < RESULTS; r++)
      for (int64_t e = 0; e < ELEMS; e++)
        T_TRUE(fabs(out[0][r][e] - hlo_literal_get_f64(want->elements[r], e)) <= types[t].error);
    hlo_module_free(module);
    weft_arena_fini(&arena);
  }
}

/* Infinities in the last rows of each operand: columns of zeros are multiplied by them, and give NaN, as in the
 * evaluator. */
TEST(zeros_of_masked_columns_are_multiplied_by_infinities)
{
  static float out[RESULTS][ELEMS];

  for (int operand = 0; operand < FLOATS; operand++) {
    char text[sizeof gradient];
    weft_arena arena;
    hlo_module *module;
    hlo_literal *arguments[GRADIENT_OPERANDS];
    const hlo_literal *want;
    put_of_type(text, gradient, "f32");
    weft_arena_init(&arena);
    T_OK(hlo_parse(text, strlen(text), &module));
    make_arguments(module, &arena, arguments);
    hlo_literal_set_f64(arguments[operand], (operand % 2 ? 269 : 3) * 48 + 5, INFINITY, 0);
    T_OK(hlo_eval_module(module, (const hlo_literal *const *)arguments, &HLO_EVAL_DEFAULT, &arena, &want));
    differentiate(text, 2, (const hlo_literal *const *)arguments, out);
    for (int r = 0; r < RESULTS; r++)
      for (int64_t e = 0; e < ELEMS; e++) {
        double expected = hlo_literal_get_f64(want->elements[r], e);
        bool same = isnan(expected)   ? isnan(out[r][e])
                    : isinf(expected) ? out[r][e] == expected
                                      : fabs(out[r][e] - expected) <= 2e-5;
        if (!same) fail_msg("operand %d, result %d, element %d: %g, not %g", operand, r, (int)e, out[r][e], expected);
      }
    hlo_module_free(module);
    weft_arena_fini(&arena);
  }
}

/* ---- random nets ------------------------------------------------------------------------------------------------- */

#define PUT(...) at += sprintf(text + at, __VA_ARGS__)
#define S "%s[%" PRId64 ",%" PRId64 ",%" PRId64 "]"

/* Some of the products of a gradient, whose operands have either order, of scores with or without a causal mask; the
 * gradient of the result may depend on the result. */
static void put_net(char *text, uint64_t seed)
{
  static const char *const types[] = {"f32", "f32", "bf16", "f16", "f64"};
  uint64_t state = seed * 2654435761u + 1;
  const char *t = types[pick_below(&state, WEFT_COUNT(types))], *p = "p0", *ds = "ds0", *g = "g";
  int64_t b = 1 + pick_below(&state, 5), m = 16 + pick_below(&state, 300), n = 100 + pick_below(&state, 500),
          k = 1 + pick_below(&state, 40), d = 1 + pick_below(&state, 40);
  bool q_turned = pick_below(&state, 2), k_turned = pick_below(&state, 2), v_turned = pick_below(&state, 2),
       g_turned = pick_below(&state, 2), is_masked = pick_below(&state, 2), depends = pick_below(&state, 3) == 0;
  int64_t sinks = 1 + pick_below(&state, 15), turned = pick_below(&state, 16); /* bits: y, dq, dk, dv */
  int at = 0;

  if (depends) {
    g_turned = false;
    sinks |= 1;
    turned &= 14;
  }
  PUT("HloModule m\n"
      "max {\n"
      "  a = %s[] parameter(0)\n"
      "  b = %s[] parameter(1)\n"
      "  ROOT c = %s[] maximum(a, b)\n"
      "}\n"
      "ENTRY e {\n",
      t, t, t);
  PUT("  q = " S " parameter(0)\n", t, b, q_turned ? k : m, q_turned ? m : k);
  PUT("  k = " S " parameter(1)\n", t, b, k_turned ? k : n, k_turned ? n : k);
  PUT("  v = " S " parameter(2)\n", t, b, v_turned ? d : n, v_turned ? n : d);
  PUT("  g = " S " parameter(3)\n", t, b, g_turned ? d : m, g_turned ? m : d);
  PUT("  low = %s[] constant(-inf)\n", t);
  PUT("  zero = %s[] constant(0)\n", t);
  PUT("  zeros = " S " broadcast(zero), dimensions={}\n", t, b, m, n);
#define PRODUCT(name, rows, columns, l, r, lc, rc) \
  PUT("  %s = " S " dot(%s, %s), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={%d}, rhs_contracting_dims={%d}\n", \
      name, t, b, rows, columns, l, r, lc, rc)
#define ROWS_LESS_MAX(to, from) \
  PUT("  %sm = %s[%" PRId64 ",%" PRId64 "] reduce(%s, low), dimensions={2}, to_apply=max\n", to, t, b, m, from); \
  PUT("  %sb = " S " broadcast(%sm), dimensions={0,1}\n", to, t, b, m, n, to); \
  PUT("  %s = " S " subtract(%s, %sb)\n", to, t, b, m, n, from, to)
  PRODUCT("s", m, n, "q", "k", q_turned ? 1 : 2, k_turned ? 1 : 2);
  ROWS_LESS_MAX("p0", "s");
  if (is_masked) { /* zeros behind a diagonal */
    PUT("  row = s32[%" PRId64 ",%" PRId64 "] iota(), iota_dimension=0\n", m, n);
    PUT("  column = s32[%" PRId64 ",%" PRId64 "] iota(), iota_dimension=1\n", m, n);
    PUT("  more = s32[] constant(%" PRId64 ")\n", pick_below(&state, n) - n / 4);
    PUT("  mores = s32[%" PRId64 ",%" PRId64 "] broadcast(more), dimensions={}\n", m, n);
    PUT("  reach = s32[%" PRId64 ",%" PRId64 "] add(row, mores)\n", m, n);
    PUT("  seen = pred[%" PRId64 ",%" PRId64 "] compare(column, reach), direction=LE\n", m, n);
    PUT("  masks = pred[%" PRId64 ",%" PRId64 ",%" PRId64 "] broadcast(seen), dimensions={1,2}\n", b, m, n);
    PUT("  p1 = " S " select(masks, p0, zeros)\n", t, b, m, n);
    p = "p1";
  }
/* A sink, whose scores are on its left or on its right side. */
#define SINK(bit, name, rows, columns, l, r, lc, rc) \
  if (sinks & (bit) && turned & (bit)) PRODUCT(name, columns, rows, r, l, rc, lc); \
  else if (sinks & (bit)) PRODUCT(name, rows, columns, l, r, lc, rc)
  SINK(1, "y", m, d, p, "v", 2, v_turned ? 2 : 1);
  if (depends) {
    PUT("  one = %s[] constant(1)\n", t);
    PUT("  ones = " S " broadcast(one), dimensions={}\n", t, b, m, d);
    PUT("  y1 = " S " minimum(y, ones)\n", t, b, m, d);
    PUT("  y2 = " S " negate(ones)\n", t, b, m, d);
    PUT("  h = " S " maximum(y1, y2)\n", t, b, m, d);
    g = "h";
  }
  PRODUCT("dp", m, n, g, "v", g_turned ? 1 : 2, v_turned ? 1 : 2);
  PUT("  t = " S " add(dp, %s)\n", t, b, m, n, p);
  ROWS_LESS_MAX("ds0", "t");
  if (is_masked) {
    PUT("  ds1 = " S " select(masks, ds0, zeros)\n", t, b, m, n);
    ds = "ds1";
  }
  SINK(2, "dq", m, k, ds, "k", 2, k_turned ? 2 : 1);
  SINK(4, "dk", n, k, ds, "q", 1, q_turned ? 2 : 1);
  SINK(8, "dv", n, d, p, g, 1, g_turned ? 2 : 1);
  const struct { const char *name; int64_t rows, columns; } results[] = {{"y", m, d}, {"dq", m, k}, {"dk", n, k}, {"dv", n, d}};
  PUT("  ROOT r = (");
  for (int i = 0, count = 0; i < 4; i++)
    if (sinks >> i & 1)
      PUT("%s" S, count++ ? ", " : "", t, b, turned >> i & 1 ? results[i].columns : results[i].rows,
          turned >> i & 1 ? results[i].rows : results[i].columns);
  PUT(") tuple(");
  for (int i = 0, count = 0; i < 4; i++)
    if (sinks >> i & 1) PUT("%s%s", count++ ? ", " : "", results[i].name);
  PUT(")\n}\n");
}

TEST(random_nets_give_the_same_results)
{
  seeds of = seeds_of((uint64_t)40 / T_STRIDE(4));
  uint64_t groups = 0;
  weft_platform *platform = test_platform(1, 2);

  for (uint64_t seed = of.from; seed < of.from + of.count; seed++) {
    char text[8192], name[32];
    int kernels, copies;
    put_net(text, seed);
    if (of.print) print_message("%s", text);
    snprintf(name, sizeof name, "seed %" PRIu64, seed);
    if (!gives_exactly(platform, text, 0, name, &kernels, &copies)) fail_msg("%s", text);
    weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
    groups += (uint64_t)count_steps(exe, "strip-group");
    weft_executable_release(exe);
  }
  weft_platform_release(platform);
  if (of.count >= 10 && groups * 4 < of.count) fail_msg("%" PRIu64 " of %" PRIu64 " have groups", groups, of.count);
}

/* ---- what a file says to be a group ------------------------------------------------------------------------------ */

/* It must be one that the library can do: the rest is the evaluator's. */
TEST(other_fusions_are_left_to_the_evaluator)
{
#define DOUBLED(rows) PLANNED_KERNEL(rows, "  t = f32[" rows ",80] add(s, s)\n")
#define GROUP_OPERANDS(rows) \
  "  q = f32[" rows ",16] parameter(0)\n" \
  "  k = f32[80,16] parameter(1)\n" \
  "  g = f32[" rows ",32] parameter(2)\n"
#define ADD_UP(result, of) "  " result " = f32[80,32] dot(" of "), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
#define GROUP(rows, kernel, body) \
  "HloModule m, is_scheduled=true\n" kernel "group {\n" GROUP_OPERANDS(rows) body "}\n" \
  "ENTRY e {\n" GROUP_OPERANDS(rows) \
  "  ROOT y = f32[80,32] fusion(q, k, g), kind=kCustom, calls=group, backend_config=\"strip-group\"\n" \
  "}\n"
#define LAST_SUM ADD_UP("ROOT y", "p, g")
  static const struct { const char *text, *why; } cases[] = {
    {GROUP("64", DOUBLED("64"), PLANNED_SCORES("64", "q, k") PLANNED_CALL("64", "s") LAST_SUM), NULL},
    {GROUP("64", PLANNED_KERNEL("64", "  t = f32[64,80] reverse(s), dimensions={0}\n"),
             PLANNED_SCORES("64", "q, k") PLANNED_CALL("64", "s") LAST_SUM), "rows need other rows"},
    {GROUP("64", DOUBLED("64"), PLANNED_SCORES("64", "q, k") "  a = f32[64,80] add(s, s)\n" PLANNED_CALL("64", "a") LAST_SUM),
     "begin with a dot"},
    {GROUP("64", DOUBLED("64"), PLANNED_SCORES("64", "q, k") PLANNED_CALL("64", "s") ADD_UP("z", "p, g") "  ROOT y = f32[80,32] add(z, z)\n"),
     "no product of the kernel's results"},
    {GROUP("64", DOUBLED("64"), PLANNED_SCORES("64", "q, k") PLANNED_CALL("64", "s") ADD_UP("ROOT y", "s, g")),
     "no product of the kernel's results"},
    {GROUP("64", DOUBLED("64"), PLANNED_SCORES("64", "q, k") PLANNED_CALL("64", "s") "  h = f32[64,32] add(g, g)\n" ADD_UP("ROOT y", "p, h")),
     "compute an array"},
    {GROUP("0", DOUBLED("0"), PLANNED_SCORES("0", "q, k") PLANNED_CALL("0", "s") LAST_SUM), "no scores"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) is_planned(cases[i].text, cpu_strip_group_plan, cases[i].why);
}

TEST_MAIN(UNIT(nets_are_steps_where_rows_do_not_need_each_other), UNIT(gradients_are_the_same_bits_with_any_number_of_threads),
          UNIT(zeros_of_masked_columns_are_multiplied_by_infinities), UNIT(random_nets_give_the_same_results),
          UNIT(other_fusions_are_left_to_the_evaluator))
