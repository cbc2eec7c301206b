/* tests/codegen/math_test.c -- Transcendentals against the C library's double (f32) and long double (f64) functions. */
#include "test.h"

#include "harness.h"

#include <math.h>

#include "codegen/model/processor.h"

enum { BLOCK = 1 << 16 };

typedef long double wide_fn(long double);
typedef double plain_fn(double);

static long double rsqrt_wide(long double x) { return 1 / sqrtl(x); }
static double rsqrt_plain(double x) { return 1 / sqrt(x); }
static long double logistic_wide(long double x) { return 1 / (1 + expl(-x)); }
static double logistic_plain(double x) { return 1 / (1 + exp(-x)); }

/* {operation, f32 reference, f64 reference, budgets in ULP, range of f64 samples} */
static const struct { const char *op; plain_fn *f32; wide_fn *f64; double ulp_f32, ulp_f64, low, high; } functions[] = {
  {"exponential", exp, expl, 1.0, 1.0, -745, 709.7},
  {"log", log, logl, 1.0, 1.0, 0, 1e300},
  {"log-plus-one", log1p, log1pl, 1.0, 1.0, -0.999, 30},
  {"exponential-minus-one", expm1, expm1l, 1.0, 2.0, -40, 100},
  {"tanh", tanh, tanhl, 2.5, 3.0, -22, 22},
  {"sine", sin, sinl, 1.0, 1.0, -1e6, 1e6},
  {"cosine", cos, cosl, 1.0, 1.0, -1e6, 1e6},
  {"sine", sin, sinl, 1.0, 1.0, -1e300, 1e300},
  {"cosine", cos, cosl, 1.0, 1.0, -1e15, 1e15},
  {"tan", tan, tanl, 1.0, 3.0, -100, 100},
  {"tan", tan, tanl, 1.0, 3.0, -1e30, 1e30},
  {"rsqrt", rsqrt_plain, rsqrt_wide, 1.0, 1.0, 0, 1e10},
  {"logistic", logistic_plain, logistic_wide, 3.0, 3.0, -30, 30},
  {"erf", erf, erfl, 2.0, 2.0, -6, 6},
  {"erfc", NULL, erfcl, 0, 4.0, -6, 1}, /* f32: erfc_of_f32_stays_within_its_budgets */
  {"cbrt", cbrt, cbrtl, 1.0, 2.0, -1e10, 1e10},
  {"asin", asin, asinl, 1.0, 4.0, -1, 1},
  {"acos", acos, acosl, 1.0, 4.0, -1, 1},
  {"sinh", sinh, sinhl, 1.0, 3.0, -700, 700},
  {"cosh", cosh, coshl, 1.0, 3.0, -700, 700},
  {"asinh", asinh, asinhl, 1.0, 4.0, -1e6, 1e6},
  {"acosh", acosh, acoshl, 1.0, 4.0, 1, 1e6},
  {"atanh", atanh, atanhl, 1.0, 4.0, -0.9999, 0.9999},
};

/* y = op(x), for x and y of `shape`. */
static gen_code *compile_shape(const char *op, const char *shape, hlo_module **module, const gen_kernel **kernel)
{
  char text[512];
  gen_options options;
  gen_code *code;

  snprintf(text, sizeof text,
           "HloModule t\n"
           "f {\n"
           "  x = %1$s parameter(0)\n"
           "  ROOT r = %1$s %2$s(x)\n"
           "}\n"
           "ENTRY e {\n"
           "  x = %1$s parameter(0)\n"
           "  ROOT r = %1$s fusion(x), kind=kLoop, calls=f\n"
           "}\n",
           shape, op);
  T_OK(hlo_parse(text, strlen(text), module));
  T_OK(gen_options_load(&options));
  T_OK(gen_compile(*module, &options, &code));
  *kernel = gen_code_kernel(code, (*module)->entry->root);
  return code;
}

/* The same for BLOCK numbers of `type`. */
static gen_code *compile(const char *op, const char *type, hlo_module **module, const gen_kernel **kernel)
{
  char shape[32];

  snprintf(shape, sizeof shape, "%s[%d]", type, BLOCK);
  return compile_shape(op, shape, module, kernel);
}

/* The error of `got` in units of the last place of an f32 near `want`. */
static double error_f32(float got, double want)
{
  float nearest = (float)want;
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got) ? 0 : INFINITY;
  if (isinf(nearest) || isinf(got))
    return nearest == got || (fabs(want) > 3.402823e38 && fabsf(got) > 3.40282e38f) ? 0 : INFINITY;
  double ulp = fmax(ldexp(1, ilogb(want == 0 ? 0x1p-126 : want) - 23), 0x1p-149);
  return fabs(got - want) / ulp;
}

static double error_f64(double got, long double want)
{
  double nearest = (double)want;
  if (isnan(nearest) || isnan(got)) return isnan(nearest) && isnan(got) ? 0 : INFINITY;
  if (isinf(nearest) || isinf(got)) return nearest == got ? 0 : INFINITY;
  long double ulp = fmaxl(ldexpl(1, ilogbl(want == 0 ? 0x1p-1022L : want) - 52), 0x1p-1074L);
  return (double)(fabsl(got - want) / ulp);
}

/* Every 1009th f32 (all of them with WEFT_EXHAUSTIVE set). */
TEST(f32_functions_stay_within_their_budgets)
{
  uint32_t step = getenv("WEFT_EXHAUSTIVE") ? 1 : 1009;
  float *in = aligned_alloc(64, BLOCK * sizeof *in), *out = aligned_alloc(64, BLOCK * sizeof *out);

  for (size_t k = 0; k < WEFT_COUNT(functions); k++) {
    if (!functions[k].f32) continue;
    hlo_module *module = NULL;
    const gen_kernel *kernel;
    gen_code *code = compile(functions[k].op, "f32", &module, &kernel);
    double worst = 0;
    float worst_at = 0, worst_got = 0;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32;) {
      for (int i = 0; i < BLOCK; i++, bits += step) {
        uint32_t b = (uint32_t)bits;
        memcpy(&in[i], &b, sizeof b);
      }
      void *args[2] = {in, out};
      kernel->phases[0].fn(args, 0, kernel->phases[0].units);
      for (int i = 0; i < BLOCK; i++) {
        double want = functions[k].f32(in[i]), error;
        /* 1/(1+exp(-x)) is 0 where exp(-x) overflows: the smallest results are lost, as in XLA */
        if (strcmp(functions[k].op, "logistic") == 0 && in[i] < -87) continue;
        error = error_f32(out[i], want);
        if (error > worst) worst = error, worst_at = in[i], worst_got = out[i];
      }
    }
    print_message("%-22s f32 worst %.3f ULP at %a (got %a)\n", functions[k].op, worst, worst_at, worst_got);
    if (!(worst <= functions[k].ulp_f32))
      fail_msg("%s f32: %g ULP at %a: got %a, want %a", functions[k].op, worst, worst_at, worst_got,
               functions[k].f32(worst_at));
    gen_code_free(code);
    hlo_module_free(module);
  }
  free(in);
  free(out);
}

static uint64_t state = 1234567;
static double uniform(void)
{
  state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
  return (double)(state >> 11) * 0x1p-53;
}

TEST(f64_functions_stay_within_their_budgets)
{
  static const double corners[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 0x1p-1074, -0x1p-1074, 0x1p-1022, 1e-300, 1e-10,
                                   -1e-10, 1e-5, 0.5, -0.5, 1e300, -1e300, 709.78, -745.1, 1e15, 3.141592653589793, 1e8, 22.0};
  double *in = aligned_alloc(64, BLOCK * sizeof *in), *out = aligned_alloc(64, BLOCK * sizeof *out);

  for (size_t k = 0; k < WEFT_COUNT(functions); k++) {
    hlo_module *module = NULL;
    const gen_kernel *kernel;
    gen_code *code = compile(functions[k].op, "f64", &module, &kernel);
    double worst = 0, worst_at = 0, worst_got = 0;
    for (int round = 0; round < 6; round++) {
      for (int i = 0; i < BLOCK; i++) {
        double x = functions[k].low + (functions[k].high - functions[k].low) * uniform();
        if (i % 3 == 1) x *= ldexp(1, -(int)(uniform() * 60));
        if (i % 3 == 2 && functions[k].low <= 0)
          x = ldexp(uniform() - (functions[k].low < 0 ? 0.5 : 0), -(int)(uniform() * 8));
        in[i] = i < (int)WEFT_COUNT(corners) ? corners[i] : x;
      }
      void *args[2] = {in, out};
      kernel->phases[0].fn(args, 0, kernel->phases[0].units);
      for (int i = 0; i < BLOCK; i++) {
        double error = error_f64(out[i], functions[k].f64(in[i]));
        if (error > worst) worst = error, worst_at = in[i], worst_got = out[i];
      }
    }
    print_message("%-22s f64 worst %.3f ULP at %a (got %a)\n", functions[k].op, worst, worst_at, worst_got);
    if (!(worst <= functions[k].ulp_f64))
      fail_msg("%s f64: %g ULP at %a: got %a, want %La", functions[k].op, worst, worst_at, worst_got,
               functions[k].f64(worst_at));
    gen_code_free(code);
    hlo_module_free(module);
  }
  free(in);
  free(out);
}

TEST(power_and_atan2_and_their_corners)
{
  static const double corners[] = {0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, INFINITY, -INFINITY, NAN, 1e30, -1e30, 1e-30,
                                   -1e-30, 8388609, -8388609, 16777218, 0x1p-149, -0x1p-149, 7.5, -7.5};
  enum { C = WEFT_COUNT(corners) };
  static const struct { const char *op; double (*f)(double, double); } binary[] = {{"power", pow}, {"atan2", atan2}, {"remainder", fmod}};
  float *x = aligned_alloc(64, BLOCK * sizeof *x), *y = aligned_alloc(64, BLOCK * sizeof *y),
        *out = aligned_alloc(64, BLOCK * sizeof *out);

  for (size_t k = 0; k < WEFT_COUNT(binary); k++) {
    hlo_module *module = NULL;
    gen_options options;
    gen_code *code;
    char text[512];
    snprintf(text, sizeof text,
             "HloModule t\n"
             "f {\n"
             "  x = f32[%d] parameter(0)\n"
             "  y = f32[%d] parameter(1)\n"
             "  ROOT r = f32[%d] %s(x, y)\n"
             "}\n"
             "ENTRY e {\n"
             "  x = f32[%d] parameter(0)\n"
             "  y = f32[%d] parameter(1)\n"
             "  ROOT r = f32[%d] fusion(x, y), kind=kLoop, calls=f\n"
             "}\n",
             BLOCK, BLOCK, BLOCK, binary[k].op, BLOCK, BLOCK, BLOCK);
    T_OK(hlo_parse(text, strlen(text), &module));
    T_OK(gen_options_load(&options));
    T_OK(gen_compile(module, &options, &code));
    const gen_kernel *kernel = gen_code_kernel(code, module->entry->root);
    for (int i = 0; i < BLOCK; i++) {
      x[i] =
        (float)(i < C * C ? corners[i / C] : (i % 2 ? 10 * uniform() : ldexp(uniform(), (int)(60 * uniform()) - 30)));
      y[i] = (float)(i < C * C ? corners[i % C] : 40 * uniform() - 20);
    }
    void *args[3] = {x, y, out};
    kernel->phases[0].fn(args, 0, kernel->phases[0].units);
    for (int i = 0; i < BLOCK; i++) {
      double want = binary[k].f(x[i], y[i]), error = error_f32(out[i], want);
      if (!(error <= 1) || (want == 0 && !signbit(want) != !signbit(out[i])))
        fail_msg("%s(%a, %a): got %a, want %a", binary[k].op, x[i], y[i], out[i], want);
    }
    gen_code_free(code);
    hlo_module_free(module);
  }
  free(x);
  free(y);
  free(out);
}

static long double fmod_wide(long double x, long double y) { return fmodl(x, y); }

TEST(power_and_remainder_of_f64_and_their_corners)
{
  static const double corners[] = {0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, INFINITY, -INFINITY, NAN, 1e300, -1e300, 1e-300,
                                   0x1p-1074, -0x1p-1074, 9007199254740994, -9007199254740992, 1e18, 0x1.0000000000001p0, 745.5, -7.5};
  enum { C = WEFT_COUNT(corners) };
  static const struct { const char *op; long double (*f)(long double, long double); double ulp; } binary[] = {
    {"power", powl, 1.5}, {"remainder", fmod_wide, 0}};
  double *x = aligned_alloc(64, BLOCK * sizeof *x), *y = aligned_alloc(64, BLOCK * sizeof *y),
         *out = aligned_alloc(64, BLOCK * sizeof *out);

  for (size_t k = 0; k < WEFT_COUNT(binary); k++) {
    hlo_module *module = NULL;
    gen_options options;
    gen_code *code;
    char text[512];
    double worst = 0;
    snprintf(text, sizeof text,
             "HloModule t\n"
             "f {\n"
             "  x = f64[%1$d] parameter(0)\n"
             "  y = f64[%1$d] parameter(1)\n"
             "  ROOT r = f64[%1$d] %2$s(x, y)\n"
             "}\n"
             "ENTRY e {\n"
             "  x = f64[%1$d] parameter(0)\n"
             "  y = f64[%1$d] parameter(1)\n"
             "  ROOT r = f64[%1$d] fusion(x, y), kind=kLoop, calls=f\n"
             "}\n",
             BLOCK, binary[k].op);
    T_OK(hlo_parse(text, strlen(text), &module));
    T_OK(gen_options_load(&options));
    T_OK(gen_compile(module, &options, &code));
    const gen_kernel *kernel = gen_code_kernel(code, module->entry->root);
    for (int i = 0; i < BLOCK; i++) {
      double wide = ldexp(0.5 + uniform(), (int)(2000 * uniform()) - 1000), near = 1 + (uniform() - 0.5) * 1e-3;
      x[i] = i < C * C ? corners[i / C] : i % 3 == 0 ? wide : i % 3 == 1 ? near : 10 * uniform();
      y[i] = i < C * C    ? corners[i % C]
             : i % 3 == 0 ? (uniform() - 0.5) * 2
             : i % 3 == 1 ? 1e5 * (uniform() - 0.5)
                          : 600 * uniform() - 300;
    }
    void *args[3] = {x, y, out};
    kernel->phases[0].fn(args, 0, kernel->phases[0].units);
    for (int i = 0; i < BLOCK; i++) {
      long double want = binary[k].f(x[i], y[i]);
      double error = error_f64(out[i], want);
      if (!(error <= binary[k].ulp) || (want == 0 && !signbit((double)want) != !signbit(out[i])))
        fail_msg("%s(%a, %a): got %a, want %a (%g ULP)", binary[k].op, x[i], y[i], out[i], (double)want, error);
      worst = fmax(worst, error);
    }
    print_message("%-22s f64 worst %.3f ULP\n", binary[k].op, worst);
    gen_code_free(code);
    hlo_module_free(module);
  }
  free(x);
  free(y);
  free(out);
}

/* y = f32[BLOCK] of the instructions in `body`, the last of which is y, from the parameter x. */
static gen_code *compile_body(const char *body, hlo_module **module, const gen_kernel **kernel)
{
  char text[1024];
  gen_options options;
  gen_code *code;

  snprintf(text, sizeof text,
           "HloModule t\n"
           "f {\n"
           "  x = f32[%1$d] parameter(0)\n"
           "%2$s"
           "  ROOT r = f32[%1$d] copy(y)\n"
           "}\n"
           "ENTRY e {\n"
           "  x = f32[%1$d] parameter(0)\n"
           "  ROOT r = f32[%1$d] fusion(x), kind=kLoop, calls=f\n"
           "}\n",
           BLOCK, body);
  T_OK(hlo_parse(text, strlen(text), module));
  T_OK(gen_options_load(&options));
  T_OK(gen_compile(*module, &options, &code));
  *kernel = gen_code_kernel(code, (*module)->entry->root);
  return code;
}

static void run_block(const gen_kernel *kernel, float *x, float *y)
{
  kernel->phases[0].fn((void *[]){x, y}, 0, kernel->phases[0].units);
}

/* Computes y as compile_body has it. */
static void compute(const char *body, float *x, float *y)
{
  hlo_module *module;
  const gen_kernel *kernel;
  gen_code *code = compile_body(body, &module, &kernel);

  run_block(kernel, x, y);
  gen_code_free(code);
  hlo_module_free(module);
}

/* The exponential of -x x, which needs no care for infinity, has the bits of the exponential of the same number. */
TEST(exponentials_of_squares_are_those_of_numbers)
{
  float *x = aligned_alloc(64, BLOCK * sizeof *x), *square = aligned_alloc(64, BLOCK * sizeof *x);
  float *got = aligned_alloc(64, BLOCK * sizeof *x), *want = aligned_alloc(64, BLOCK * sizeof *x);

  for (uint64_t step = 0; step < 8; step++) {
    for (int i = 0; i < BLOCK; i++) { /* every exponent and sign, infinity and NaN, and what lies between 0 and 11 */
      uint32_t bits = (uint32_t)(i * UINT64_C(65537) + step * 7919);
      memcpy(&x[i], &bits, sizeof bits);
      if (i % 2) x[i] = (float)(11 * uniform());
      square[i] = -(x[i] * x[i]);
    }
    compute("  a = f32[65536] multiply(x, x)\n"
            "  b = f32[65536] negate(a)\n"
            "  y = f32[65536] exponential(b)\n",
            x, got);
    compute("  y = f32[65536] exponential(x)\n", square, want);
    for (int i = 0; i < BLOCK; i++)
      if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i])))
        fail_msg("exp(-%a^2): got %a, want %a", x[i], got[i], want[i]);
  }
  free(x), free(square), free(got), free(want);
}

/* Vectors that have numbers only for which exp neither overflows nor is denormal take a shorter way. A lane has the
 * same bits whatever its neighbours are. */
TEST(exponentials_do_not_depend_on_their_neighbours)
{
  static const float wild[] = {NAN, INFINITY, -INFINITY, -90, -104.5, 89, 87.0625, -87.0625};
  float *x = aligned_alloc(64, BLOCK * sizeof *x), *mixed = aligned_alloc(64, BLOCK * sizeof *x);
  float *got = aligned_alloc(64, BLOCK * sizeof *x), *want = aligned_alloc(64, BLOCK * sizeof *x);

  for (int i = 0; i < BLOCK; i++) {
    x[i] = i < 4096 ? ldexpf(87, -i / 64) * (i % 2 ? 1 : -1) : (float)(174 * uniform() - 87);
    mixed[i] = i % 5 == 3 ? wild[i / 5 % (int)WEFT_COUNT(wild)] : x[i];
    /* runs of numbers whose exp is 0, as a mask makes them; in some the one that is not */
    if (i / 256 % 4 == 3)
      mixed[i] = i % 5 == 3 && i % 3 == 0 && i / 1024 % 2 ? x[i] : -104.5f - (float)ldexp(1, i % 120);
  }
  compute("  y = f32[65536] exponential(x)\n", x, want);
  compute("  y = f32[65536] exponential(x)\n", mixed, got);
  for (int i = 0; i < BLOCK; i++) {
    bool same = memcmp(&mixed[i], &x[i], sizeof *x) ? error_f32(got[i], exp(mixed[i])) <= 1
                                                    : memcmp(&got[i], &want[i], sizeof *got) == 0;
    if (!same) fail_msg("exp(%a): got %a, alone %a", mixed[i], got[i], want[i]);
  }
  free(x), free(mixed), free(got), free(want);
}

/* The special cases of a function are computed where some lane needs them. A lane has the same bits whatever its
 * neighbours are. */
TEST(functions_do_not_depend_on_their_neighbours)
{
  static const float wild[] = {NAN, INFINITY, -INFINITY, -1, -2.5f, 0, -0.0f, 0x1p-140f, 3300, -2e6f, 0x1p127f};
  static const struct { const char *body; plain_fn *f; } rows[] = {
    {"  y = f32[65536] log(x)\n", log},
    {"  y = f32[65536] log-plus-one(x)\n", log1p},
    {"  y = f32[65536] sine(x)\n", sin},
    {"  y = f32[65536] cosine(x)\n", cos},
    {"  y = f32[65536] erfc(x)\n", erfc},
    {"  s = f32[] constant(1.75)\n"
     "  p = f32[65536] broadcast(s), dimensions={}\n"
     "  y = f32[65536] power(x, p)\n", NULL},
  };
  float *x = aligned_alloc(64, BLOCK * sizeof *x), *mixed = aligned_alloc(64, BLOCK * sizeof *x);
  float *got = aligned_alloc(64, BLOCK * sizeof *x), *want = aligned_alloc(64, BLOCK * sizeof *x);

  for (size_t k = 0; k < WEFT_COUNT(rows); k++) {
    for (int i = 0; i < BLOCK; i++) {
      x[i] = (float)ldexp(1 + uniform(), (int)(16 * uniform()) - 8);
      mixed[i] = i % 5 == 3 ? wild[i / 5 % (int)WEFT_COUNT(wild)] : x[i];
    }
    compute(rows[k].body, x, want);
    compute(rows[k].body, mixed, got);
    for (int i = 0; i < BLOCK; i++) {
      double exact = rows[k].f ? rows[k].f(mixed[i]) : pow(mixed[i], 1.75);
      bool same = i % 5 == 3 ? error_f32(got[i], exact) <= 1 && !signbit(got[i]) == !signbit(exact)
                             : memcmp(&got[i], &want[i], sizeof *got) == 0;
      if (!same && !(isnan(exact) && isnan(got[i])))
        fail_msg("%s of %a: got %a, alone %a", rows[k].body, mixed[i], got[i], want[i]);
    }
  }
  free(x), free(mixed), free(got), free(want);
}

/* A number by itself is computed without branches, and has the bits of the same number in a vector. */
TEST(logarithms_of_one_number_are_those_of_many)
{
  static const float wild[] = {NAN, INFINITY, -INFINITY, -1, 0, -0.0f, 0x1p-149f, 0x1.8p-127f, 0x1p-126f, 0x1p127f};
  static const char *ops[] = {"log", "log-plus-one"};
  float *x = aligned_alloc(64, BLOCK * sizeof *x), *want = aligned_alloc(64, BLOCK * sizeof *x);
  char body[64];

  for (int i = 0; i < BLOCK; i++)
    x[i] = i < (int)WEFT_COUNT(wild) ? wild[i] : (float)ldexp(1 + uniform(), (int)(250 * uniform()) - 140);
  for (size_t k = 0; k < WEFT_COUNT(ops); k++) {
    hlo_module *module;
    const gen_kernel *kernel;
    gen_code *code = compile_shape(ops[k], "f32[]", &module, &kernel);
    snprintf(body, sizeof body, "  y = f32[65536] %s(x)\n", ops[k]);
    compute(body, x, want);
    for (int i = 0; i < BLOCK; i++) {
      float got;
      kernel->phases[0].fn((void *[]){&x[i], &got}, 0, kernel->phases[0].units);
      if (memcmp(&got, &want[i], sizeof got) != 0 && !(isnan(got) && isnan(want[i])))
        fail_msg("%s(%a): alone %a, in a vector %a", ops[k], x[i], got, want[i]);
    }
    gen_code_free(code);
    hlo_module_free(module);
  }
  free(x), free(want);
}

/* 2/pi is rounded, so that the rest of an angle is the further beyond pi/4 the larger the angle is. */
TEST(sines_of_large_angles)
{
  float *x = aligned_alloc(64, BLOCK * sizeof *x), *y = aligned_alloc(64, BLOCK * sizeof *x);

  for (int cosine = 0; cosine < 2; cosine++)
    for (uint32_t from = 0x49600000; from < 0x49800000; from += 4 * BLOCK) {
      for (int i = 0; i < BLOCK; i++) {
        uint32_t bits = from + (uint32_t)i;
        memcpy(&x[i], &bits, sizeof bits);
      }
      compute(cosine ? "  y = f32[65536] cosine(x)\n" : "  y = f32[65536] sine(x)\n", x, y);
      for (int i = 0; i < BLOCK; i++) {
        double want = cosine ? cos(x[i]) : sin(x[i]), error = error_f32(y[i], want);
        if (!(error <= 1))
          fail_msg("%s(%a): got %a, want %a (%g ULP)", cosine ? "cos" : "sin", x[i], y[i], want, error);
      }
    }
  free(x), free(y);
}

/* Where all lanes have one divisor, most quotients are corrected products. Their bits are those of a division. */
TEST(quotients_by_one_divisor_are_divisions)
{
  static const float divisors[] = {3, -7, 1024, 0x1.fffffep+0f, 0x1.000002p+0f, -0x1.8p-20f, 1e-12f, 1e30f, 0x1p-130f, 0, INFINITY, NAN};
  float *x = aligned_alloc(64, BLOCK * sizeof *x), *y = aligned_alloc(64, BLOCK * sizeof *x);

  for (int k = 0; k < (int)WEFT_COUNT(divisors) + 32; k++) {
    float d = k < (int)WEFT_COUNT(divisors) ? divisors[k] : (float)ldexp(1 + uniform(), (int)(50 * uniform()) - 25);
    for (int i = 0; i < BLOCK; i++) {
      uint32_t bits = (uint32_t)(i * UINT64_C(65537) + (uint64_t)k * 7919); /* every exponent and sign */
      memcpy(&x[i], &bits, sizeof bits);
      if (i / 16 % 2)
        x[i] = i % 16 ? (float)((uniform() - 0.5) * ldexp(1, i % 64 - 32)) : 0.0f; /* vectors without specials */
    }
    char body[256], number[64];
    if (isnan(d)) snprintf(number, sizeof number, "nan");
    else if (isinf(d)) snprintf(number, sizeof number, "inf");
    else snprintf(number, sizeof number, "%.9g", d);
    snprintf(body, sizeof body,
             "  d = f32[] constant(%s)\n"
             "  b = f32[65536] broadcast(d), dimensions={}\n"
             "  y = f32[65536] divide(x, b)\n",
             number);
    compute(body, x, y);
    for (int i = 0; i < BLOCK; i++) {
      volatile float want = x[i] / d;
      float exact = want;
      if (memcmp(&y[i], &exact, sizeof exact) != 0 && !(isnan(y[i]) && isnan(exact)))
        fail_msg("%a / %a: got %a, want %a", x[i], d, y[i], exact);
    }
  }
  free(x), free(y);
}

/* Every mantissa by divisors of which both ways are taken, and by those for which some quotient is nearly in the middle
 * of two floats: m b = a 2^24 +- 1 for integers. */
TEST(quotients_by_a_constant_are_divisions_for_every_mantissa)
{
  static const float divisors[] = {0x1.6a09e6p+0f, 3, 10, 255, 0x1.6a09e6p-1f, 0x1.921fb6p+1f, 0x1.fffffep+0f, 0x1.000002p+0f, 0x1.2p-9f, -0x1.5bf0a8p+1f};
  float *x = aligned_alloc(64, BLOCK * sizeof *x), *y = aligned_alloc(64, BLOCK * sizeof *x);

  for (size_t k = 0; k < WEFT_COUNT(divisors); k++) {
    hlo_module *module;
    const gen_kernel *kernel;
    char body[200];
    snprintf(body, sizeof body,
             "  d = f32[] constant(%2$.9g)\n"
             "  b = f32[%1$d] broadcast(d), dimensions={}\n"
             "  y = f32[%1$d] divide(x, b)\n",
             BLOCK, divisors[k]);
    gen_code *code = compile_body(body, &module, &kernel);
    for (uint32_t first = 0x3f800000; first < 0x40000000; first += BLOCK) {
      for (int i = 0; i < BLOCK; i++) {
        uint32_t bits = first + (uint32_t)i;
        memcpy(&x[i], &bits, sizeof bits);
      }
      run_block(kernel, x, y);
      for (int i = 0; i < BLOCK; i++) {
        volatile float want = x[i] / divisors[k];
        if (y[i] != want) fail_msg("%a / %a: got %a, want %a", x[i], divisors[k], y[i], want);
      }
    }
    gen_code_free(code);
    hlo_module_free(module);
  }
  free(x), free(y);
}

/* Against the C library's erfc, in units of the last place: XLA's expression has 1.2, 3.7, 5.3 and 11 at worst from 0
 * to 4. Beyond, rounding x^2 costs more than the fits. */
TEST(erfc_of_f32_stays_within_its_budgets)
{
  static const struct { double below, ulp; } budgets[] = {{-1, 1}, {0, 1.1}, {0.5, 1.5}, {1, 6}, {2, 8}, {4, 13}, {INFINITY, 80}};
  static const float ends[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 0x1p-149f, -0x1p-130f, 9.1f, 9.3f, 10.05f, 10.06f, 11, 12, -12, 1e30f, -1e30f};
  float *x = aligned_alloc(64, BLOCK * sizeof *x), *y = aligned_alloc(64, BLOCK * sizeof *x);
  double worst[WEFT_COUNT(budgets)] = {0};

  for (int round = 0; round < 24; round++) {
    for (int i = 0; i < BLOCK; i++) {
      uint32_t bits = (uint32_t)(i * UINT64_C(65537) + (uint64_t)round * 7919);
      memcpy(&x[i], &bits, sizeof bits);                          /* every exponent and sign */
      if (i % 2 || round % 2) x[i] = (float)(uniform() * 17 - 6); /* vectors without extremes */
      if (i < (int)WEFT_COUNT(ends)) x[i] = ends[i];
    }
    compute("  y = f32[65536] erfc(x)\n", x, y);
    for (int i = 0; i < BLOCK; i++) {
      double error = error_f32(y[i], erfc(x[i]));
      size_t range = 0;
      while (range + 1 < WEFT_COUNT(budgets) && x[i] >= budgets[range].below) range++;
      worst[range] = fmax(worst[range], error);
      if (!(error <= budgets[range].ulp)) fail_msg("erfc(%a): got %a, want %a (%g ULP)", x[i], y[i], erfc(x[i]), error);
    }
  }
  for (size_t i = 0; i < WEFT_COUNT(budgets); i++)
    print_message("erfc below %-4g f32 worst %.3f ULP\n", budgets[i].below, worst[i]);
  free(x), free(y);
}

/* A product to which a coefficient is added, as in Horner's scheme, is rounded once where the processor can do so. */
TEST(steps_of_polynomials_round_once)
{
  static const char *const bodies[] = {
    "  y = f32[65536] add(a, one)\n", "  y = f32[65536] add(one, a)\n", "  y = f32[65536] subtract(a, one)\n",
    "  y = f32[65536] subtract(one, a)\n"};
  float *x = aligned_alloc(64, BLOCK * sizeof *x), *y = aligned_alloc(64, BLOCK * sizeof *x);
  const float c = 1 + 0x1p-12f;

  if (!gen_this_processor.avx2) T_SKIP("no instruction that multiplies and adds");
  for (int i = 0; i < BLOCK; i++) x[i] = (i % 2 ? 1 : -1) * (1 + (float)(i % 64) * 0x1p-12f);
  for (size_t k = 0; k < WEFT_COUNT(bodies); k++) {
    char body[512];
    snprintf(body, sizeof body,
             "  p = f32[] constant(%.9g)\n"
             "  q = f32[65536] broadcast(p), dimensions={}\n"
             "  o = f32[] constant(1)\n"
             "  one = f32[65536] broadcast(o), dimensions={}\n"
             "  a = f32[65536] multiply(q, x)\n"
             "%s",
             c, bodies[k]);
    compute(body, x, y);
    for (int i = 0; i < BLOCK; i++) {
      double a = (double)c * x[i];
      float want = (float)(k == 2 ? a - 1 : k == 3 ? 1 - a : a + 1);
      if (y[i] != want) fail_msg("%zu, x = %a: got %a, want %a", k, x[i], y[i], want);
    }
  }
  free(x), free(y);
}

/* ---- bf16 ------------------------------------------------------------------------------------------------------- */

static double of_bf16(uint16_t bits)
{
  uint32_t wide = (uint32_t)bits << 16;
  float f;

  memcpy(&f, &wide, sizeof f);
  return f;
}

/* The bf16 that is nearest to v, to even where two are. */
static double nearest_bf16(double v)
{
  if (v == 0 || isinf(v) || isnan(v)) return v;
  double unit = ldexp(1, (ilogb(v) < -126 ? -126 : ilogb(v)) - 7), r = nearbyint(v / unit) * unit;
  return fabs(r) > 0x1.fep127 ? copysign(INFINITY, v) : r;
}

static gen_code *compile_rounding(const char *text, bool excess_precision, hlo_module **module,
                                  const gen_kernel **kernel)
{
  gen_options options;
  gen_code *code;

  T_OK(hlo_parse(text, strlen(text), module));
  T_OK(gen_options_load(&options));
  options.allow_excess_precision = excess_precision;
  T_OK(gen_compile(*module, &options, &code));
  *kernel = gen_code_kernel(code, (*module)->entry->root);
  return code;
}

TEST(functions_of_every_bf16_are_rounded_right)
{
  static const struct { const char *op; double (*f)(double); } shorter[] = {{"exponential", exp}, {"sine", sin}, {"cosine", cos}, {"erfc", erfc}};
  uint16_t *in = aligned_alloc(64, BLOCK * sizeof *in), *out = aligned_alloc(64, BLOCK * sizeof *out);

  for (size_t k = 0; k < 2 * WEFT_COUNT(shorter); k++) {
    bool mixed = k >= WEFT_COUNT(shorter); /* numbers of all sizes side by side */
    hlo_module *module = NULL;
    for (int i = 0; i < BLOCK; i++) in[i] = (uint16_t)(mixed ? (unsigned)i * 40503u : (unsigned)i);
    const gen_kernel *kernel;
    gen_code *code = compile(shorter[k % WEFT_COUNT(shorter)].op, "bf16", &module, &kernel);
    kernel->phases[0].fn((void *[]){in, out}, 0, kernel->phases[0].units);
    for (int i = 0; i < BLOCK; i++) {
      double x = of_bf16(in[i]), want = nearest_bf16(shorter[k % WEFT_COUNT(shorter)].f(x)), got = of_bf16(out[i]);
      if (isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want))
        fail_msg("%s(%a): got %a, want %a", shorter[k % WEFT_COUNT(shorter)].op, x, got, want);
    }
    gen_code_free(code);
    hlo_module_free(module);
  }
  free(in);
  free(out);
}

/* Products of every bf16, exact in double: denormal ones, ties, those that are too large, infinities and NaN. Most
 * vectors of x have no denormal product, so that both ways to round are taken. `positive`: the greater of the product
 * and 0, whatever the sign of its zero. */
static void check_products_of_bf16(bool positive)
{
  static const char text[] = "HloModule t\n"
                             "f {\n"
                             "  x = bf16[65536] parameter(0)\n"
                             "  y = bf16[65536] parameter(1)\n"
                             "  ROOT r = bf16[65536] multiply(x, y)\n"
                             "}\n"
                             "g {\n"
                             "  x = bf16[65536] parameter(0)\n"
                             "  y = bf16[65536] parameter(1)\n"
                             "  p = bf16[65536] multiply(x, y)\n"
                             "  c = bf16[] constant(0)\n"
                             "  z = bf16[65536] broadcast(c), dimensions={}\n"
                             "  ROOT r = bf16[65536] maximum(p, z)\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = bf16[65536] parameter(0)\n"
                             "  y = bf16[65536] parameter(1)\n"
                             "  ROOT r = bf16[65536] fusion(x, y), kind=kLoop, calls=%c\n"
                             "}\n";
  char program[sizeof text];
  static const uint16_t factors[] = {0x3f80, 0x3f81, 0xbfc3, 0x3f7f, 0x0001, 0x8001, 0x007f, 0x0080, 0x2481, 0x1fff, 0x7f7f, 0x7f80, 0x7fc1, 0x0000, 0x8000, 0x3e15};
  uint16_t *in = aligned_alloc(64, BLOCK * sizeof *in), *by = aligned_alloc(64, BLOCK * sizeof *in),
           *out = aligned_alloc(64, BLOCK * sizeof *out);

  snprintf(program, sizeof program, text, positive ? 'g' : 'f');
  for (int excess = 0; excess < 2; excess++) {
    hlo_module *module = NULL;
    const gen_kernel *kernel;
    gen_code *code = compile_rounding(program, excess, &module, &kernel);
    for (size_t k = 0; k < WEFT_COUNT(factors); k++) {
      for (int i = 0; i < BLOCK; i++) {
        in[i] = (uint16_t)i;
        by[i] = k % 2 && i % 16 == 7 ? 0x0101 : factors[k];
      }
      kernel->phases[0].fn((void *[]){in, by, out}, 0, kernel->phases[0].units);
      for (int i = 0; i < BLOCK; i++) {
        double a = of_bf16(in[i]), b = of_bf16(by[i]), want = nearest_bf16(a * b), got = of_bf16(out[i]);
        if (positive && want <= 0) want = 0;
        if (isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want))
          fail_msg("%a * %a: got %a, want %a", a, b, got, want);
      }
    }
    gen_code_free(code);
    hlo_module_free(module);
  }
  free(in), free(by), free(out);
}

TEST(products_of_bf16_are_rounded_right) { check_products_of_bf16(false); }

TEST(positive_products_of_bf16_are_rounded_right) { check_products_of_bf16(true); }

/* Every bf16 by divisors of all kinds, of which each row of the result has one. */
TEST(quotients_of_bf16_by_rows_are_rounded_right)
{
  enum { ROWS = 96 };
  static const char text[] = "HloModule t\n"
                             "f {\n"
                             "  x = bf16[65536] parameter(0)\n"
                             "  y = bf16[96] parameter(1)\n"
                             "  a = bf16[96,65536] broadcast(x), dimensions={1}\n"
                             "  b = bf16[96,65536] broadcast(y), dimensions={0}\n"
                             "  ROOT r = bf16[96,65536] divide(a, b)\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = bf16[65536] parameter(0)\n"
                             "  y = bf16[96] parameter(1)\n"
                             "  ROOT r = bf16[96,65536] fusion(x, y), kind=kLoop, calls=f\n"
                             "}\n";
  static const uint16_t corners[] = {0, 0x8000, 1, 0x8001, 0x7f, 0x80, 0x7f80, 0xff80, 0x7fc0, 0x7f7f, 0xff7f, 0x3f80, 0x3f81, 0x1f80,
                                     0x1f7f, 0x5f80, 0x3, 0x41};
  uint16_t *in = aligned_alloc(64, BLOCK * sizeof *in), by[ROWS], *out = aligned_alloc(64, (size_t)BLOCK * ROWS * 2);

  for (int i = 0; i < BLOCK; i++) in[i] = (uint16_t)i;
  for (int i = 0; i < ROWS; i++) by[i] = i < (int)WEFT_COUNT(corners) ? corners[i] : (uint16_t)(uniform() * BLOCK);
  for (int excess = 0; excess < 2; excess++) {
    hlo_module *module = NULL;
    const gen_kernel *kernel;
    gen_code *code = compile_rounding(text, excess, &module, &kernel);
    kernel->phases[0].fn((void *[]){in, by, out}, 0, kernel->phases[0].units);
    for (int64_t i = 0; i < (int64_t)BLOCK * ROWS; i++) {
      double a = of_bf16(in[i % BLOCK]), b = of_bf16(by[i / BLOCK]), want = nearest_bf16(a / b), got = of_bf16(out[i]);
      if ((got != want || !signbit(got) != !signbit(want)) && !(isnan(got) && isnan(want)))
        fail_msg("%a / %a: got %a, want %a", a, b, got, want);
    }
    gen_code_free(code);
    hlo_module_free(module);
  }
  free(in);
  free(out);
}

/* The greatest and the least of two neighbours in a column, which are compared as the halves of words that they are in
 * memory: NaNs and zeros of both signs, infinities, and all else. Before the first row there is the initial value. */
TEST(extremes_of_bf16_windows)
{
  enum { COLUMNS = 64, ROWS = BLOCK / COLUMNS };
  static const char text[] =
    "HloModule t\n"
    "max {\n"
    "  a = bf16[] parameter(0)\n"
    "  b = bf16[] parameter(1)\n"
    "  ROOT r = bf16[] maximum(a, b)\n"
    "}\n"
    "min {\n"
    "  a = bf16[] parameter(0)\n"
    "  b = bf16[] parameter(1)\n"
    "  ROOT r = bf16[] minimum(a, b)\n"
    "}\n"
    "f {\n"
    "  x = bf16[1024,64] parameter(0)\n"
    "  first = bf16[] constant(%s)\n"
    "  ROOT r = bf16[1024,64] reduce-window(x, first), window={size=2x1 pad=1_0x0_0}, to_apply=%s\n"
    "}\n"
    "ENTRY e {\n"
    "  x = bf16[1024,64] parameter(0)\n"
    "  ROOT r = bf16[1024,64] fusion(x), kind=kLoop, calls=f\n"
    "}\n";
  static const uint16_t corners[] = {0, 0x8000, 1, 0x8001, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 0xff81, 0x7fff, 0xffff, 0x7f7f, 0xff7f, 0x3f80, 0xbf80};
  static const struct { const char *first; double value; } firsts[] = {{"-inf", -INFINITY}, {"inf", INFINITY}, {"0", 0}, {"-0", -0.0}, {"nan", NAN}};
  uint16_t *in = aligned_alloc(64, BLOCK * sizeof *in), *out = aligned_alloc(64, BLOCK * sizeof *out);

  for (int i = 0; i < BLOCK; i++) /* each corner with each of them, and random numbers */
    in[i] = i % COLUMNS < 48 ? corners[(i / COLUMNS % 2 ? i : i / (2 * COLUMNS)) % 16] : (uint16_t)(uniform() * BLOCK);
  for (int k = 0; k < 2 * (int)WEFT_COUNT(firsts); k++) {
    char program[sizeof text + 16];
    bool min = k % 2;
    hlo_module *module = NULL;
    const gen_kernel *kernel;
    snprintf(program, sizeof program, text, firsts[k / 2].first, min ? "min" : "max");
    gen_code *code = compile_rounding(program, true, &module, &kernel);
    kernel->phases[0].fn((void *[]){in, out}, 0, kernel->phases[0].units);
    for (int i = 0; i < BLOCK; i++) {
      double v[3] = {firsts[k / 2].value, i < COLUMNS ? firsts[k / 2].value : of_bf16(in[i - COLUMNS]), of_bf16(in[i])};
      double want = v[0], got = of_bf16(out[i]);
      for (int j = 1; j < 3; j++) {
        bool less = want < v[j] || (want == v[j] && signbit(want) && !signbit(v[j]));
        if (isnan(v[j]) || (!isnan(want) && (min ? !less : less))) want = v[j];
      }
      if (isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want))
        fail_msg("%s of %a, %a, %a: got %a", min ? "least" : "greatest", v[0], v[1], v[2], got);
    }
    gen_code_free(code);
    hlo_module_free(module);
  }
  free(in);
  free(out);
}

static float of_bits(uint32_t bits)
{
  float f;

  memcpy(&f, &bits, sizeof f);
  return f;
}

/* f32 that become bf16 inside of a kernel: what is stored as bf16, and what is used as f32 again. */
TEST(conversions_of_f32_to_bf16_are_rounded_right)
{
  static const char text[] = "HloModule t\n"
                             "f {\n"
                             "  x = f32[65536] parameter(0)\n"
                             "  b = bf16[65536] convert(x)\n"
                             "  y = f32[65536] convert(b)\n"
                             "  ROOT r = (bf16[65536], f32[65536]) tuple(b, y)\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[65536] parameter(0)\n"
                             "  ROOT r = (bf16[65536], f32[65536]) fusion(x), kind=kLoop, calls=f\n"
                             "}\n";
  float *in = aligned_alloc(64, BLOCK * sizeof *in), *wide = aligned_alloc(64, BLOCK * sizeof *in);
  uint16_t *out = aligned_alloc(64, BLOCK * sizeof *out);
  hlo_module *module = NULL;
  const gen_kernel *kernel;
  gen_code *code = compile_rounding(text, true, &module, &kernel);

  for (uint32_t step = 0; step < 4; step++) {
    /* every upper half, with the ties and their neighbours; most vectors have no denormal number */
    for (uint32_t i = 0; i < BLOCK; i++)
      in[i] = of_bits(i << 16 | (step == 3 ? (uint32_t)(uniform() * 65536) : 0x7fff + step));
    kernel->phases[0].fn((void *[]){in, out, wide}, 0, kernel->phases[0].units);
    for (int i = 0; i < BLOCK; i++) {
      double want = nearest_bf16(in[i]), got = of_bf16(out[i]);
      if (isnan(want) ? !isnan(got) || !isnan(wide[i])
                      : got != want || wide[i] != want || !signbit(got) != !signbit(want))
        fail_msg("%a: got %a and %a, want %a", in[i], got, wide[i], want);
    }
  }
  gen_code_free(code);
  hlo_module_free(module);
  free(in), free(wide), free(out);
}

/* Quotients of f32 that become bf16, by divisors of which each row has one, as in a softmax: within 2^-12 of a unit in
 * the last place more than rounding alone. */
TEST(quotients_that_are_narrowed_are_nearly_rounded_right)
{
  enum { ROWS = 96, COLUMNS = 4096 };
  static const char text[] = "HloModule t\n"
                             "f {\n"
                             "  x = f32[4096] parameter(0)\n"
                             "  y = f32[96] parameter(1)\n"
                             "  a = f32[96,4096] broadcast(x), dimensions={1}\n"
                             "  b = f32[96,4096] broadcast(y), dimensions={0}\n"
                             "  q = f32[96,4096] divide(a, b)\n"
                             "  ROOT r = bf16[96,4096] convert(q)\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  x = f32[4096] parameter(0)\n"
                             "  y = f32[96] parameter(1)\n"
                             "  ROOT r = bf16[96,4096] fusion(x, y), kind=kLoop, calls=f\n"
                             "}\n";
  static const float corners[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1, 3, 0x1p-126f, 0x1p-149f, 0x1.8p-130f, 0x1.fffffep127f, 0x1p-64f, 0x1.4p-65f};
  float *in = aligned_alloc(64, COLUMNS * sizeof *in), by[ROWS];
  uint16_t *out = aligned_alloc(64, (size_t)COLUMNS * ROWS * 2);
  hlo_module *module = NULL;
  const gen_kernel *kernel;
  gen_code *code = compile_rounding(text, true, &module, &kernel);

  for (int i = 0; i < COLUMNS; i++)
    in[i] = i < (int)WEFT_COUNT(corners) ? corners[i] : (float)ldexp(uniform() - 0.25, (int)(uniform() * 250) - 125);
  for (int i = 0; i < ROWS; i++)
    by[i] = i < (int)WEFT_COUNT(corners) ? corners[i] : (float)ldexp(1 + uniform(), i % 40 - 20);
  kernel->phases[0].fn((void *[]){in, by, out}, 0, kernel->phases[0].units);
  for (int i = 0; i < COLUMNS * ROWS; i++) {
    double a = in[i % COLUMNS], b = by[i / COLUMNS], q = a / b, got = of_bf16(out[i]);
    bool exact = isnan(q) || isinf(q) || q == 0 || fabs(q) > 0x1.fep127;
    double unit = exact ? 0 : ldexp(1, (ilogb(q) < -126 ? -126 : ilogb(q)) - 7), want = nearest_bf16(q);
    bool right = isnan(want) ? isnan(got) : exact ? got == want : fabs(got - q) <= (0.5 + 0x1p-12) * unit;
    if (!right) fail_msg("%a / %a: got %a, want %a", a, b, got, want);
  }
  gen_code_free(code);
  hlo_module_free(module);
  free(in), free(out);
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(f32_functions_stay_within_their_budgets),
    UNIT(f64_functions_stay_within_their_budgets),
    UNIT(power_and_atan2_and_their_corners),
    UNIT(power_and_remainder_of_f64_and_their_corners),
    UNIT(exponentials_of_squares_are_those_of_numbers),
    UNIT(exponentials_do_not_depend_on_their_neighbours), UNIT(functions_do_not_depend_on_their_neighbours),
    UNIT(logarithms_of_one_number_are_those_of_many), UNIT(sines_of_large_angles),
    UNIT(quotients_by_one_divisor_are_divisions),
    UNIT(quotients_by_a_constant_are_divisions_for_every_mantissa), UNIT(erfc_of_f32_stays_within_its_budgets),
    UNIT(steps_of_polynomials_round_once),
    UNIT(functions_of_every_bf16_are_rounded_right), UNIT(products_of_bf16_are_rounded_right),
    UNIT(positive_products_of_bf16_are_rounded_right),
    UNIT(extremes_of_bf16_windows),
    UNIT(quotients_of_bf16_by_rows_are_rounded_right), UNIT(conversions_of_f32_to_bf16_are_rounded_right),
    UNIT(quotients_that_are_narrowed_are_nearly_rounded_right),
  };
  return cmocka_run_group_tests(units, NULL, NULL);
}
