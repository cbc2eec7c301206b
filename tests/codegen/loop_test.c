/* tests/codegen/loop_test.c -- whole loops as one kernel. */
#include "test.h"

#include "harness.h"

#include "base/dtype.h"

static char text[8192];

/* A fusion whose computation is `body` (lines of instructions, the root marked), with parameters `params`. */
static const char *fusion(const char *params, const char *body, const char *result)
{
  char list[1024] = "", entry[2048] = "", *copy = strdup(params), *save = NULL;
  int n = 0;

  snprintf(text, sizeof text,
           "HloModule t\n"
           "f {\n");
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
           "  ROOT r = %s fusion(%s), kind=kLoop, calls=f\n"
           "}\n",
           body, entry, result, list);
  return text;
}

static const char *const shapes[] = {"[]", "[1]", "[7]", "[16]", "[100]", "[3,5]", "[4,1,33]"};

TEST(add_of_every_type_and_several_shapes)
{
  for (int t = 1; t < WEFT_DTYPE_COUNT; t++) {
    if (!weft_dtype_is_array((weft_dtype)t)) continue;
    for (size_t s = 0; s < WEFT_COUNT(shapes); s++) {
      char array[64], params[160], body[160];
      snprintf(array, sizeof array, "%s%s", weft_dtype_name((weft_dtype)t), shapes[s]);
      snprintf(params, sizeof params, "%s %s", array, array);
      snprintf(body, sizeof body, "  ROOT r = %s add(p0, p1)", array);
      check_kernel(fusion(params, body, array), NULL);
    }
  }
}

static bool is(weft_dtype t, const char *classes)
{
  if (strchr(classes, 'f') && weft_dtype_is_float(t)) return true;
  if (strchr(classes, 'i') && weft_dtype_is_integer(t)) return true;
  if (strchr(classes, 'c') && weft_dtype_is_complex(t)) return true;
  return strchr(classes, 'p') && t == WEFT_PRED;
}

/* {operation, operand count, classes of types, low, high} */
static const struct { const char *op; int n; const char *classes; double low, high; } elementwise[] = {
  {"add", 2, "ficp", 0, 0}, {"subtract", 2, "fic", 0, 0}, {"multiply", 2, "ficp", 0, 0}, {"divide", 2, "fic", 0, 0},
  {"maximum", 2, "fip", 0, 0}, {"minimum", 2, "fip", 0, 0}, {"remainder", 2, "fi", 0, 0}, {"negate", 1, "fic", 0, 0},
  {"abs", 1, "fi", 0, 0}, {"sign", 1, "fic", 0, 0}, {"not", 1, "ip", 0, 0}, {"and", 2, "ip", 0, 0}, {"or", 2, "ip", 0, 0},
  {"xor", 2, "ip", 0, 0}, {"shift-left", 2, "i", 0, 0}, {"shift-right-arithmetic", 2, "i", 0, 0},
  {"shift-right-logical", 2, "i", 0, 0}, {"popcnt", 1, "i", 0, 0}, {"count-leading-zeros", 1, "i", 0, 0},
  {"floor", 1, "f", -5, 5}, {"ceil", 1, "f", -5, 5}, {"round-nearest-even", 1, "f", -5, 5},
  {"round-nearest-afz", 1, "f", -5, 5}, {"sqrt", 1, "fc", 0, 4}, {"rsqrt", 1, "fc", 0.1, 4}, {"exponential", 1, "fc", 0, 0},
  {"log", 1, "fc", 0.1, 4}, {"log-plus-one", 1, "fc", 0.1, 4}, {"exponential-minus-one", 1, "fc", 0, 0}, {"tanh", 1, "fc", 0, 0},
  {"sine", 1, "fc", 0, 0}, {"cosine", 1, "fc", 0, 0}, {"tan", 1, "fc", -1, 1}, {"atan2", 2, "f", 0, 0}, {"erf", 1, "f", 0, 0},
  {"erfc", 1, "f", 0, 0},
  {"cbrt", 1, "f", 0, 0}, {"power", 2, "fic", 0.1, 2}, {"logistic", 1, "fc", 0, 0}, {"is-finite", 1, "f", 0, 0},
  {"asin", 1, "fc", -0.9, 0.9}, {"acos", 1, "fc", -0.9, 0.9}, {"sinh", 1, "f", 0, 0}, {"cosh", 1, "f", 0, 0},
  {"asinh", 1, "fc", 0, 0}, {"acosh", 1, "fc", 1.5, 4}, {"atanh", 1, "fc", -0.9, 0.9},
};

TEST(elementwise_operations_of_every_type)
{
  for (size_t k = 0; k < WEFT_COUNT(elementwise); k++) {
    for (int t = 1; t < WEFT_DTYPE_COUNT; t++) {
      if (!is((weft_dtype)t, elementwise[k].classes)) continue;
      const char *name = weft_dtype_name((weft_dtype)t), *result = name;
      char array[64], params[160], body[160], out[64];
      if (strcmp(elementwise[k].op, "is-finite") == 0) result = "pred";
      snprintf(array, sizeof array, "%s[83]", name);
      snprintf(out, sizeof out, "%s[83]", result);
      snprintf(params, sizeof params, elementwise[k].n == 2 ? "%s %s" : "%s", array, array);
      snprintf(body, sizeof body, elementwise[k].n == 2 ? "  ROOT r = %s %s(p0, p1)" : "  ROOT r = %s %s(p0)", out,
               elementwise[k].op);
      check_kernel(fusion(params, body, out), &(kernel_check){.low = elementwise[k].low, .high = elementwise[k].high});
    }
  }
}

TEST(integers_at_their_corners)
{
  static const char *const ops[] = {"divide", "remainder", "shift-left", "shift-right-arithmetic", "shift-right-logical",
                                    "power", "multiply", "abs"};
  for (size_t k = 0; k < WEFT_COUNT(ops); k++) {
    for (int t = 1; t < WEFT_DTYPE_COUNT; t++) {
      if (!weft_dtype_is_integer((weft_dtype)t)) continue;
      char array[64], params[160], body[160];
      snprintf(array, sizeof array, "%s[%d]", weft_dtype_name((weft_dtype)t), 300);
      snprintf(params, sizeof params, "%s %s", array, array);
      snprintf(body, sizeof body, strcmp(ops[k], "abs") ? "  ROOT r = %s %s(p0, p1)" : "  ROOT r = %s %s(p0)", array,
               ops[k]);
      int64_t high = weft_dtype_bits((weft_dtype)t) > 8 ? 70 : 0;
      check_kernel(fusion(params, body, array),
                   &(kernel_check){.int_low = weft_dtype_is_signed((weft_dtype)t) && high ? -4 : 0, .int_high = high});
    }
  }
}

TEST(conversion_between_all_types)
{
  for (int t = 1; t < WEFT_DTYPE_COUNT; t++) {
    for (int u = 1; u < WEFT_DTYPE_COUNT; u++) {
      if (!weft_dtype_is_array((weft_dtype)t) || !weft_dtype_is_array((weft_dtype)u)) continue;
      if (weft_dtype_is_complex((weft_dtype)t) && !weft_dtype_is_complex((weft_dtype)u)) continue;
      char from[64], to[64], body[160];
      snprintf(from, sizeof from, "%s[67]", weft_dtype_name((weft_dtype)t));
      snprintf(to, sizeof to, "%s[67]", weft_dtype_name((weft_dtype)u));
      snprintf(body, sizeof body, "  ROOT r = %s convert(p0)", to);
      check_kernel(fusion(from, body, to), &(kernel_check){.low = -300, .high = 300, .rtol = 1e-9, .atol = 1e-30});
    }
  }
}

/* Floats near and beyond the limits of each integer type: the conversion saturates, and NaN becomes 0. */
TEST(floats_become_integers)
{
  static const char *const floats[] = {"f32", "f64", "bf16", "f16"}, *const to[] = {"s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"};
  static const char values[] =
    "nan, -nan, inf, -inf, -0.0, 0.5, -0.5, -0.99, -1, 7.5, 8, -8.5, -9, 15.5, 16, 127.5, 128, -128.5, -129, 255.5, 256, 32767.5, 32768, -32768.5, -32769, "
    "65535.5, 65536, 2147483520, 2147483647, 2147483648, -2147483648, -2147483904, 4294967040, 4294967295.5, 4294967296, 9223371487098961920, "
    "9223372036854774784, 9223372036854775808, -9223372036854775808, -9223373136366403584, 18446742974197923840, 18446744073709549568, 18446744073709551616, 1e30, -1e30";
  enum { COUNT = 45 };
  char params[32], body[2048], result[32];

  for (size_t f = 0; f < WEFT_COUNT(floats); f++)
    for (size_t t = 0; t < WEFT_COUNT(to); t++) {
      snprintf(params, sizeof params, "%s[%d]", floats[f], COUNT);
      snprintf(body, sizeof body,
               "  c = f64[%d] constant({%s})\n"
               "  d = %s[%d] convert(c)\n"
               "  z = %s[] constant(0)\n"
               "  zb = %s[%d] broadcast(z), dimensions={}\n"
               "  p = %s[%d] multiply(p0, zb)\n"
               "  x = %s[%d] add(d, p)\n"
               "  ROOT r = %s[%d] convert(x)",
               COUNT, values, floats[f], COUNT, floats[f], floats[f], COUNT, floats[f], COUNT, floats[f], COUNT, to[t],
               COUNT);
      snprintf(result, sizeof result, "%s[%d]", to[t], COUNT);
      check_kernel(fusion(params, body, result), NULL);
    }
}

TEST(comparisons)
{
  static const char *const dirs[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  for (size_t k = 0; k < WEFT_COUNT(dirs); k++) {
    for (int t = 1; t < WEFT_DTYPE_COUNT; t++) {
      if (!weft_dtype_is_array((weft_dtype)t) || (weft_dtype_is_complex((weft_dtype)t) && k > 1)) continue;
      for (int total = 0; total < (weft_dtype_is_float((weft_dtype)t) && t != WEFT_F8E8M0FNU ? 2 : 1); total++) {
        char array[64], params[160], body[160];
        snprintf(array, sizeof array, "%s[50]", weft_dtype_name((weft_dtype)t));
        snprintf(params, sizeof params, "%s %s", array, array);
        snprintf(body, sizeof body, "  ROOT r = pred[50] compare(p0, p1), direction=%s%s", dirs[k],
                 total ? ", type=TOTALORDER" : "");
        check_kernel(fusion(params, body, "pred[50]"), &(kernel_check){.low = -1, .high = 1});
      }
    }
  }
}

/* {parameters, body, result}: data movement, alone and fused. */
static const struct { const char *params, *body, *result; } cases[] = {
  {"f32[8,24]", "  ROOT r = f32[24,8] transpose(p0), dimensions={1,0}", "f32[24,8]"},
  {"f32[64,48]", "  ROOT r = f32[48,64] transpose(p0), dimensions={1,0}", "f32[48,64]"},
  {"f32[37,51]", "  ROOT r = f32[51,37] transpose(p0), dimensions={1,0}", "f32[51,37]"},
  /* columns in several parts: whole tiles, and tiles that do not cover the columns, the rows or both */
  {"f32[256,32]", "  ROOT r = f32[32,256] transpose(p0), dimensions={1,0}", "f32[32,256]"},
  {"f32[203,16]", "  ROOT r = f32[16,203] transpose(p0), dimensions={1,0}", "f32[16,203]"},
  /* tiles of whole cache lines, and of parts of them */
  {"bf16[96,64]", "  ROOT r = bf16[64,96] transpose(p0), dimensions={1,0}", "bf16[64,96]"},
  {"f16[2,48,32]", "  ROOT r = f16[2,32,48] transpose(p0), dimensions={0,2,1}", "f16[2,32,48]"},
  {"s8[64,160]", "  ROOT r = s8[160,64] transpose(p0), dimensions={1,0}", "s8[160,64]"},
  {"u8[40,56]", "  ROOT r = u8[56,40] transpose(p0), dimensions={1,0}", "u8[56,40]"},
  {"s32[80,32]", "  ROOT r = s32[32,80] transpose(p0), dimensions={1,0}", "s32[32,80]"},
  {"f64[24,40]", "  ROOT r = f64[40,24] transpose(p0), dimensions={1,0}", "f64[40,24]"},
  {"c64[32,16]", "  ROOT r = c64[16,32] transpose(p0), dimensions={1,0}", "c64[16,32]"},
  {"bf16[64,40]", "  t = bf16[40,64] transpose(p0), dimensions={1,0}\n"
                  "  ROOT r = bf16[40,64] negate(t)", "bf16[40,64]"},
  {"f32[192,13]", "  ROOT r = f32[13,192] transpose(p0), dimensions={1,0}", "f32[13,192]"},
  {"c64[131,9]", "  ROOT r = c64[9,131] transpose(p0), dimensions={1,0}", "c64[9,131]"},
  {"f64[5,150,11]", "  ROOT r = f64[11,5,150] transpose(p0), dimensions={2,0,1}", "f64[11,5,150]"},
  {"f64[3,20,19] f64[3,19,20]", "  t = f64[3,19,20] transpose(p0), dimensions={0,2,1}\n"
                                "  ROOT r = f64[3,19,20] add(t, p1)", "f64[3,19,20]"},
  {"bf16[17,5,33]", "  ROOT r = bf16[33,5,17] transpose(p0), dimensions={2,1,0}", "bf16[33,5,17]"},
  {"f64[16,16]", "  t = f64[16,16] transpose(p0), dimensions={1,0}\n"
                 "  v = f64[16,16] reverse(t), dimensions={0,1}\n"
                 "  ROOT r = f64[16,16] subtract(v, t)", "f64[16,16]"},
  /* a few channels, innermost in the operand, become the outer dimension: the kernel reads every third or fourth
   * element */
  {"u8[2,15,20,3]", "  ROOT r = u8[2,3,15,20] transpose(p0), dimensions={0,3,1,2}", "u8[2,3,15,20]"},
  {"bf16[3,9,17,4] f32[3,4,9,17]", "  t = bf16[3,4,9,17] transpose(p0), dimensions={0,3,1,2}\n"
                                   "  c = f32[3,4,9,17] convert(t)\n"
                                   "  ROOT r = f32[3,4,9,17] add(c, p1)", "f32[3,4,9,17]"},
  {"f64[50,3]", "  ROOT r = f64[3,50] transpose(p0), dimensions={1,0}", "f64[3,50]"},
  {"c64[41,3]", "  ROOT r = c64[3,41] transpose(p0), dimensions={1,0}", "c64[3,41]"},
  {"s8[5,203]", "  ROOT r = s8[5,68] slice(p0), slice={[0:5], [1:203:3]}", "s8[5,68]"},
  {"u16[260]", "  ROOT r = u16[64] slice(p0), slice={[5:260:4]}", "u16[64]"},
  {"s8[6,34] s8[]", "  x = s8[6,40] pad(p0, p1), padding=0_0x2_4\n"
                    "  y = s8[8,30] reshape(x)\n"
                    "  ROOT r = s8[4,10] slice(y), slice={[1:8:2], [0:30:3]}", "s8[4,10]"},
  {"f32[8,24]", "  x = f32[192] reshape(p0)\n"
                "  y = f32[176] slice(x), slice={[16:192]}\n"
                "  z = f32[176] negate(y)\n"
                "  ROOT r = f32[22,8] reshape(z)", "f32[22,8]"},
  {"s32[4,6,10] s32[3,6,10]", "  x = s32[7,6,10] concatenate(p0, p1), dimensions={0}\n"
                              "  y = s32[14,30] reshape(x)\n"
                              "  ROOT r = s32[13,30] slice(y), slice={[1:14], [0:30]}", "s32[13,30]"},
  {"c64[20,30]", "  ROOT r = c64[30,20] transpose(p0), dimensions={1,0}", "c64[30,20]"},
  {"f32[32,32] f32[32]", "  b = f32[32,32] broadcast(p1), dimensions={1}\n"
                         "  m = f32[32,32] multiply(p0, b)\n"
                         "  t = f32[32,32] transpose(m), dimensions={1,0}\n"
                         "  c = f32[32,32] broadcast(p1), dimensions={0}\n"
                         "  ROOT r = f32[32,32] add(t, c)", "f32[32,32]"},
  {"f64[961] pred[961]", "  c = pred[961] convert(p0)\n"
                         "  ROOT r = pred[2883] concatenate(p1, p1, c), dimensions={0}", "pred[2883]"},
  {"f32[3001] f32[4003] f32[]", "  x = f32[7004] concatenate(p0, p1), dimensions={0}\n"
                                "  y = f32[7511] pad(x, p2), padding=3_504\n"
                                "  ROOT r = f32[7511] negate(y)", "f32[7511]"},
  {"s8[2,40,50] s8[2,50,40]", "  t = s8[2,50,40] transpose(p0), dimensions={0,2,1}\n"
                              "  a = s8[2,50,40] add(t, p1)\n"
                              "  ROOT r = (s8[2,50,40], s8[2,50,40]) tuple(a, t)", "(s8[2,50,40], s8[2,50,40])"},
  {"f32[4,16,3,32]", "  t = f32[4,3,32,16] transpose(p0), dimensions={0,2,3,1}\n"
                     "  ROOT r = f32[4,96,16] reshape(t)", "f32[4,96,16]"},
  {"bf16[3,50] bf16[] bf16[3,40]", "  x = bf16[3,60] pad(p0, p1), padding=0_0x4_6\n"
                                   "  y = bf16[3,100] concatenate(x, p2), dimensions={1}\n"
                                   "  ROOT r = bf16[3,77] slice(y), slice={[0:3], [11:88]}", "bf16[3,77]"},
  {"f8e4m3fn[90] pred[90] f8e4m3fn[90]", "  c = f8e4m3fn[] constant(1.5)\n"
      "  b = f8e4m3fn[90] broadcast(c), dimensions={}\n"
      "  x = f8e4m3fn[90] select(p1, p0, b)\n"
      "  ROOT r = (f8e4m3fn[90], f8e4m3fn[90]) tuple(x, p2)", "(f8e4m3fn[90], f8e4m3fn[90])"},
  {"bf16[5,7,9]", "  ROOT r = bf16[9,5,7] transpose(p0), dimensions={2,0,1}", "bf16[9,5,7]"},
  {"f32[6,64]", "  x = f32[384] reshape(p0)\n"
                "  ROOT r = f32[384] add(x, x)", "f32[384]"},
  {"f32[6,35]", "  x = f32[14,15] reshape(p0)\n"
                "  y = f32[15,14] transpose(x), dimensions={1,0}\n"
                "  ROOT r = f32[5,42] reshape(y)", "f32[5,42]"},
  {"f32[33] f32[4,33]", "  b = f32[4,33] broadcast(p0), dimensions={1}\n"
                        "  ROOT r = f32[4,33] multiply(b, p1)", "f32[4,33]"},
  {"f32[4] f32[4,33]", "  b = f32[4,33] broadcast(p0), dimensions={0}\n"
                       "  ROOT r = f32[4,33] multiply(b, p1)", "f32[4,33]"},
  {"f32[4] f32[2,4,3,5]", "  b = f32[2,4,3,5] broadcast(p0), dimensions={1}\n"
                          "  ROOT r = f32[2,4,3,5] multiply(b, p1)", "f32[2,4,3,5]"},
  {"f32[] f32[100]", "  b = f32[100] broadcast(p0), dimensions={}\n"
                     "  ROOT r = f32[100] add(b, p1)", "f32[100]"},
  {"s32[40,50]", "  ROOT r = s32[10,33] slice(p0), slice={[3:13], [7:40]}", "s32[10,33]"},
  {"f32[40,50]", "  ROOT r = f32[10,17] slice(p0), slice={[3:33:3], [1:50:3]}", "f32[10,17]"},
  {"f32[40,50]", "  ROOT r = f32[40,25] slice(p0), slice={[0:40], [0:50:2]}", "f32[40,25]"},
  {"f32[40,50]", "  ROOT r = f32[40,50] reverse(p0), dimensions={1}", "f32[40,50]"},
  {"f32[40,50]", "  ROOT r = f32[40,50] reverse(p0), dimensions={0,1}", "f32[40,50]"},
  {"f32[10,20] f32[]", "  ROOT r = f32[15,27] pad(p0, p1), padding=2_3x4_3", "f32[15,27]"},
  {"f32[10,20] f32[]", "  ROOT r = f32[9,15] pad(p0, p1), padding=-2_1x-3_-2", "f32[9,15]"},
  {"f32[10,20] f32[]", "  ROOT r = f32[33,43] pad(p0, p1), padding=2_3_2x1_3_1", "f32[33,43]"},
  {"f32[10,20] f32[]", "  ROOT r = f32[9,20] pad(p0, p1), padding=-9223372036854775808_9223372036854775807x0_0", "f32[9,20]"},
  {"f32[2,20] f32[]", "  ROOT r = f32[7,20] pad(p0, p1), padding=5_-9223372036854775800_9223372036854775800x0_0", "f32[7,20]"},
  /* padding along another dimension than the lanes': a branch computes the costly operand only where it is read */
  {"f32[5,40] f32[40]", "  x = f32[5,40] exponential(p0)\n"
                        "  z = f32[] constant(0)\n"
                        "  a = f32[10,40] pad(x, z), padding=1_0_1x0_0\n"
   "  l = f32[5,40] log(p0)\n"
   "  b = f32[10,40] pad(l, z), padding=0_1_1x0_0\n"
   "  s = f32[10,40] add(a, b)\n"
   "  t = f32[10,40] tanh(s)\n"
   "  c = f32[19,40] pad(t, z), padding=0_0_1x0_0\n"
   "  q = f32[19,40] broadcast(p1), dimensions={1}\n"
   "  ROOT r = f32[19,40] add(c, q)", "f32[19,40]"},
  {"c64[4,33] c64[]", "  x = c64[4,33] exponential(p0)\n"
                      "  ROOT r = c64[9,33] pad(x, p1), padding=1_1_1x0_0", "c64[9,33]"},
  {"f32[3,20] f32[5,20] s32[]", "  x = f32[3,20] exponential(p0)\n"
                                "  y = f32[5,20] tanh(p1)\n"
                                "  z = f32[8,20] concatenate(x, y), dimensions={0}\n"
   "  i = s32[] constant(0)\n"
   "  ROOT r = f32[6,20] dynamic-slice(z, p2, i), dynamic_slice_sizes={6,20}", "f32[6,20]"},
  {"f32[9,40] f32[3] s32[]", "  x = f32[3] exponential(p1)\n"
                             "  b = f32[3,40] broadcast(x), dimensions={0}\n"
                             "  i = s32[] constant(0)\n"
   "  d = f32[9,40] dynamic-update-slice(p0, b, p2, i)\n"
   "  ROOT r = f32[9,40] negate(d)", "f32[9,40]"},
  {"f32[9] f32[]", "  x = f32[9] exponential(p0)\n"
                   "  ROOT r = f32[19] pad(x, p1), padding=1_1_1", "f32[19]"},
  {"f32[7,5] f32[]", "  x = f32[9,5] pad(p0, p1), padding=1_1x0_0\n"
                     "  y = f32[5,9] transpose(x), dimensions={1,0}\n"
                     "  ROOT r = f32[5,9] add(y, y)", "f32[5,9]"},
  /* two paddings between elements, whose sizes together are larger than any array */
  {"f32[4,1] f32[] f32[]", "  a = f32[4,1] pad(p0, p1), padding=0_0x1_-1_4294967295\n"
                           "  ROOT r = f32[4,33] pad(a, p2), padding=0_0x16_16_4294967295", "f32[4,33]"},
  {"f32[4,1] f32[] f32[]", "  a = f32[4,1] pad(p0, p1), padding=0_0x1_-1_9223372036854775807\n"
                           "  ROOT r = f32[4,33] pad(a, p2), padding=0_0x16_16_9223372036854775807", "f32[4,33]"},
  {"f32[10] f32[20] f32[3]", "  ROOT r = f32[33] concatenate(p0, p1, p2), dimensions={0}", "f32[33]"},
  {"f32[10,40] f32[10,3] f32[10,20]", "  ROOT r = f32[10,63] concatenate(p0, p1, p2), dimensions={1}", "f32[10,63]"},
  {"f32[100,3] f32[100]", "  a = f32[100,1] slice(p0), slice={[0:100], [2:3]}\n"
                          "  b = f32[1,100] reshape(a)\n"
                          "  c = f32[1,100] reshape(p1)\n"
   "  d = f32[100,1] slice(p0), slice={[0:100], [0:1]}\n"
   "  e = f32[1,100] reshape(d)\n"
   "  f = f32[3,100] concatenate(b, c, e), dimensions={0}\n"
   "  g = f32[100,3] transpose(f), dimensions={1,0}\n"
   "  h = f32[100,3] add(g, p0)\n"
   "  ROOT r = (f32[3,100], f32[100,3]) tuple(f, h)", "(f32[3,100], f32[100,3])"},
  {"f32[100,3] f32[100]", "  a = f32[100,1] slice(p0), slice={[0:100], [2:3]}\n"
                          "  b = f32[1,100] reshape(a)\n"
                          "  c = f32[1,100] reshape(p1)\n"
   "  f = f32[2,100] concatenate(c, b), dimensions={0}\n"
   "  ROOT r = f32[2,100] multiply(f, f)", "f32[2,100]"},
  {"f32[10,40] f32[3,40] f32[20,40]", "  x = f32[33,40] concatenate(p0, p1, p2), dimensions={0}\n"
                                      "  ROOT r = f32[33,40] negate(x)", "f32[33,40]"},
  {"f32[10,40] f32[3,40]", "  x = f32[13,40] concatenate(p0, p1), dimensions={0}\n"
                           "  ROOT r = f32[40,13] transpose(x), dimensions={1,0}", "f32[40,13]"},
  {"c64[10] c64[20]", "  ROOT r = c64[30] concatenate(p0, p1), dimensions={0}", "c64[30]"},
  {"s32[]", "  ROOT r = s32[5,21] iota(), iota_dimension=1", "s32[5,21]"},
  {"s32[]", "  ROOT r = f32[21,5] iota(), iota_dimension=0", "f32[21,5]"},
  {"s32[]", "  ROOT r = bf16[3,40] iota(), iota_dimension=1", "bf16[3,40]"},
  {"s32[]", "  ROOT r = c128[40] iota(), iota_dimension=0", "c128[40]"},
  {"s32[]", "  ROOT r = s4[5] iota(), iota_dimension=0", "s4[5]"},
  {"f32[20,30] s32[] s32[]", "  ROOT r = f32[7,25] dynamic-slice(p0, p1, p2), dynamic_slice_sizes={7,25}", "f32[7,25]"},
  {"f32[20,30] s32[] s64[] f32[7,25]", "  x = s32[] convert(p2)\n"
                                       "  ROOT r = f32[20,30] dynamic-update-slice(p0, p3, p1, x)", "f32[20,30]"},
  {"f32[20,30] u32[] u32[] f32[20,3]", "  x = f32[20,30] dynamic-update-slice(p0, p3, p1, p2)\n"
                                       "  ROOT r = f32[20,30] add(x, x)", "f32[20,30]"},
  {"f32[50,16] s32[20,1]", "  ROOT r = f32[20,16] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,16}", "f32[20,16]"},
  {"f32[50,16] s32[20,2]", "  ROOT r = f32[20,3,4] gather(p0, p1), offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={1,0}, index_vector_dim=1, slice_sizes={3,4}", "f32[20,3,4]"},
  {"f32[50] s64[70]", "  ROOT r = f32[70] gather(p0, p1), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}", "f32[70]"},
  {"bf16[50] u8[70]", "  ROOT r = bf16[70] gather(p0, p1), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}", "bf16[70]"},
  {"f32[4,50,6] s32[4,9,1]", "  ROOT r = f32[4,9,6] gather(p0, p1), offset_dims={2}, collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1,6}", "f32[4,9,6]"},
  {"f32[33]", "  ROOT r = u32[33] bitcast-convert(p0)", "u32[33]"},
  {"u32[33]", "  ROOT r = u8[33,4] bitcast-convert(p0)", "u8[33,4]"},
  {"u8[33,8]", "  ROOT r = s64[33] bitcast-convert(p0)", "s64[33]"},
  {"u16[33]", "  ROOT r = bf16[33] bitcast-convert(p0)", "bf16[33]"},
  {"bf16[33,2]", "  ROOT r = s32[33] bitcast-convert(p0)", "s32[33]"},
  {"pred[40] f32[40] f32[40]", "  ROOT r = f32[40] select(p0, p1, p2)", "f32[40]"},
  {"pred[] c64[40] c64[40]", "  ROOT r = c64[40] select(p0, p1, p2)", "c64[40]"},
  {"f32[] bf16[40] f32[]", "  x = bf16[] convert(p0)\n"
                           "  y = bf16[] convert(p2)\n"
                           "  ROOT r = bf16[40] clamp(x, p1, y)", "bf16[40]"},
  {"s32[40] s32[40] s32[40]", "  ROOT r = s32[40] clamp(p0, p1, p2)", "s32[40]"},
  {"f32[60]", "  ROOT r = f32[60] reduce-precision(p0), exponent_bits=5, mantissa_bits=10", "f32[60]"},
  {"f32[30] f32[30]", "  ROOT r = c64[30] complex(p0, p1)", "c64[30]"},
  {"c64[30]", "  a = f32[30] real(p0)\n"
              "  b = f32[30] imag(p0)\n"
              "  c = f32[30] abs(p0)\n"
              "  d = f32[30] add(a, b)\n"
              "  ROOT r = f32[30] add(c, d)", "f32[30]"},
  {"f32[30,7]", "  c = f32[7] constant({1, 2, 3, 4.5, 5, 6, -7})\n"
                "  b = f32[30,7] broadcast(c), dimensions={1}\n"
                "  ROOT r = f32[30,7] multiply(p0, b)", "f32[30,7]"},
  {"f32[40] f32[40]", "  a = f32[40] add(p0, p1)\n"
                      "  b = f32[40] multiply(a, p1)\n"
                      "  c = pred[40] compare(a, b), direction=LT\n"
                      "  ROOT r = (f32[40], f32[40], pred[40]) tuple(a, b, c)", "(f32[40], f32[40], pred[40])"},
  {"f32[40] f32[7]", "  a = f32[40] negate(p0)\n"
                     "  b = f32[7] negate(p1)\n"
                     "  ROOT r = (f32[40], f32[7]) tuple(a, b)", "(f32[40], f32[7])"},
  {"f32[5,6] f32[6,7]", "  ROOT r = f32[5,7] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[5,7]"},
  {"f64[3,5,6] f64[3,17,6]", "  ROOT r = f64[3,5,17] dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}", "f64[3,5,17]"},
  {"c64[3,3] c64[3]", "  ROOT r = c64[3] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "c64[3]"},
  /* lanes that are rows of an operand, with whole vectors along the rows and without */
  {"f32[40,37] f32[37]", "  ROOT r = f32[40] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[40]"},
  {"f32[32,11] f32[11,1]", "  ROOT r = f32[32,1] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[32,1]"},
  {"bf16[1,32] bf16[24,32]", "  ROOT r = bf16[1,24] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={1}", "bf16[1,24]"},
  {"f64[4,16,9] f64[4,9]", "  ROOT r = f64[4,16] dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}", "f64[4,16]"},
  {"s32[32,11] s32[11]", "  ROOT r = s32[32] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}", "s32[32]"},
  {"f32[0,5]", "  ROOT r = f32[0,5] negate(p0)", "f32[0,5]"},
  {"f32[0] f32[3]", "  ROOT r = f32[3] concatenate(p0, p1), dimensions={0}", "f32[3]"},
  {"f32[0] f32[]", "  ROOT r = f32[3] pad(p0, p1), padding=2_1", "f32[3]"},
  {"f32[1,64,56,56] f32[64]", "  b = f32[1,64,56,56] broadcast(p1), dimensions={1}\n"
                              "  z = f32[] constant(0)\n"
                              "  zb = f32[1,64,56,56] broadcast(z), dimensions={}\n"
                              "  a = f32[1,64,56,56] add(p0, b)\n"
                              "  ROOT r = f32[1,64,56,56] maximum(a, zb)", "f32[1,64,56,56]"},
  {"f32[3000,40]", "  ROOT r = f32[3000,40] negate(p0)", "f32[3000,40]"},
  {"f32[2,20000] f32[2]", "  b = f32[2,20000] broadcast(p1), dimensions={0}\n"
                          "  ROOT r = f32[2,20000] add(p0, b)", "f32[2,20000]"},
};

TEST(data_movement_alone_and_fused)
{
  for (size_t i = 0; i < WEFT_COUNT(cases); i++)
    check_kernel(fusion(cases[i].params, cases[i].body, cases[i].result),
                 &(kernel_check){.int_low = -5, .int_high = 30});
}

/* Kernels of bf16 whose vectors hold even and odd neighbours apart (gen_emit.even_odd), with rows that end in shorter
 * vectors, operands that are the same for a row or a column, and choices by comparisons; and kernels that may not. */
TEST(neighbours_of_bf16)
{
  static const struct { const char *params, *body, *result; } forms[] = {
    {"bf16[9,N] bf16[N] bf16[N] bf16[9,N]", "  a = bf16[9,N] broadcast(p1), dimensions={1}\n"
                                            "  b = bf16[9,N] broadcast(p2), dimensions={1}\n"
                                            "  c = bf16[] constant(0)\n"
                                            "  z = bf16[9,N] broadcast(c), dimensions={}\n"
                                            "  m = bf16[9,N] multiply(p0, a)\n"
                                            "  s = bf16[9,N] add(m, b)\n"
                                            "  t = bf16[9,N] add(s, p3)\n"
                                            "  ROOT r = bf16[9,N] maximum(t, z)", "bf16[9,N]"},
    {"bf16[N] bf16[N] bf16[]", "  g = pred[N] compare(p0, p1), direction=GT\n"
                               "  h = bf16[N] broadcast(p2), dimensions={}\n"
                               "  s = bf16[N] select(g, p0, h)\n"
                               "  d = bf16[N] divide(p1, h)\n"
                               "  ROOT r = (bf16[N], bf16[N], bf16[N]) tuple(s, d, p0)", "(bf16[N], bf16[N], bf16[N])"},
    {"bf16[N,3] bf16[3,N]", "  t = bf16[N,3] transpose(p1), dimensions={1,0}\n"
                            "  ROOT r = bf16[N,3] subtract(p0, t)", "bf16[N,3]"},
    {"bf16[5,N] bf16[5]", "  b = bf16[5,N] broadcast(p1), dimensions={0}\n"
                          "  w = f32[5,N] convert(p0)\n"
                          "  e = f32[5,N] multiply(w, w)\n"
                          "  n = bf16[5,N] convert(e)\n"
                          "  m = bf16[5,N] minimum(n, b)\n"
                          "  ROOT r = bf16[5,N] negate(m)", "bf16[5,N]"},
    {"bf16[6,N] f32[N]", "  n = bf16[N] convert(p1)\n"
                         "  b = bf16[6,N] broadcast(n), dimensions={1}\n"
                         "  ROOT r = bf16[6,N] add(p0, b)", "bf16[6,N]"},
    {"bf16[4,N] bf16[4,N]", "  i = bf16[4,N] iota(), iota_dimension=1\n"
                            "  m = bf16[4,N] multiply(p0, i)\n"
                            "  ROOT r = bf16[4,N] add(m, p1)", "bf16[4,N]"},
    {"bf16[N] bf16[]", "  v = bf16[N] reverse(p0), dimensions={0}\n"
                       "  x = bf16[N] pad(v, p1), padding=3_-3\n"
                       "  ROOT r = bf16[N] add(x, p0)", "bf16[N]"},
    {"bf16[2,3,N] bf16[2,N]", "  b = bf16[2,3,N] broadcast(p1), dimensions={0,2}\n"
                              "  m = bf16[2,3,N] multiply(p0, b)\n"
                              "  ROOT r = bf16[6,N] reshape(m)", "bf16[6,N]"},
  };
  static const char *const sizes[] = {"32", "33", "40", "64", "100", "127", "512", "3000"};

  for (size_t i = 0; i < WEFT_COUNT(forms); i++)
    for (size_t k = 0; k < WEFT_COUNT(sizes); k++) {
      char text[3][2000];
      const char *from[3] = {forms[i].params, forms[i].body, forms[i].result};
      for (int t = 0; t < 3; t++) {
        char *to = text[t];
        for (const char *c = from[t]; *c; c++) {
          if (*c == 'N') to += sprintf(to, "%s", sizes[k]);
          else *to++ = *c;
        }
        *to = '\0';
      }
      check_kernel(fusion(text[0], text[1], text[2]), &(kernel_check){.int_low = -5, .int_high = 30});
    }
}

/* Short rows and padding between elements: one step of the loop computes several neighbouring elements. */
TEST(neighbours_that_differ)
{
  static const char *const types[] = {"f32", "s8", "bf16", "f64", "c64", "pred"};
  static const int rows[] = {16, 37, 130};
  char params[256], body[1024], result[128];

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (int n = 2 + (int)t % 3; n <= 9; n += 3) {
      const char *x = types[t];
      int m = rows[(t + (size_t)n) % WEFT_COUNT(rows)], whole = (m - 1) * n + 1;
      /* a row rotated by one element, and a column that is broadcast along the rows */
      snprintf(params, sizeof params, "%s[%d,%d] %s[%d] %s[3,%d]", x, m, n, x, m, x, m * n);
      snprintf(body, sizeof body,
               "  a = %s[%d,%d] slice(p0), slice={[0:%d], [1:%d]}\n"
               "  b = %s[%d,1] slice(p0), slice={[0:%d], [0:1]}\n"
               "  c = %s[%d,%d] concatenate(a, b), dimensions={1}\n"
               "  d = %s[%d,%d] broadcast(p1), dimensions={0}\n"
               "  e = %s[%d,%d] add(c, d)\n"
               "  f = %s[1,%d] slice(p2), slice={[1:2], [0:%d]}\n"
               "  g = %s[%d,%d] reshape(f)\n"
               "  h = %s[%d,%d] multiply(e, g)\n"
               "  ROOT r = (%s[%d,%d], %s[%d,%d]) tuple(h, e)",
               x, m, n - 1, m, n, x, m, m, x, m, n, x, m, n, x, m, n, x, m * n, m * n, x, m, n, x, m, n, x, m, n, x, m,
               n);
      snprintf(result, sizeof result, "(%s[%d,%d], %s[%d,%d])", x, m, n, x, m, n);
      check_kernel(fusion(params, body, result), &(kernel_check){.int_low = -5, .int_high = 30});
      /* two interleaved arrays, one of them a sum of interleaved arrays, and every n-th element of a third array */
      snprintf(params, sizeof params, "%s[%d] %s[%d] %s[%d] %s[]", x, m, x, 2 * m, x, 3 * whole + n, x);
      snprintf(body, sizeof body,
               "  a = %s[%d] pad(p0, p3), padding=0_1_1\n"
               "  b = %s[%d] add(a, p1)\n"
               "  c = %s[%d] slice(b), slice={[0:%d:2]}\n"
               "  d = %s[%d] pad(c, p3), padding=0_%d_%d\n"
               "  e = %s[%d] pad(c, p3), padding=%d_0_%d\n"
               "  f = %s[%d] add(d, e)\n"
               "  g = %s[%d] slice(p2), slice={[1:%d:%d]}\n"
               "  h = %s[%d] pad(g, p3), padding=1_%d_1\n"
               "  ROOT r = %s[%d] add(f, h)",
               x, 2 * m, x, 2 * m, x, m, 2 * m, x, whole + n - 1, n - 1, n - 1, x, whole + n - 1, n - 1, n - 1, x,
               whole + n - 1, x, (m + 1) / 2, 1 + n * ((m + 1) / 2 - 1) + 1, n, x, whole + n - 1,
               whole + n - 2 - (2 * ((m + 1) / 2) - 1), x, whole + n - 1);
      snprintf(result, sizeof result, "%s[%d]", x, whole + n - 1);
      check_kernel(fusion(params, body, result), &(kernel_check){.int_low = -5, .int_high = 30});
    }
}

/* A dot adds up in another order where its elements share a vector: which of them do must not depend on the ranges of
 * units. Here the dot begins where no vector does, and three neighbours are computed side by side. */
TEST(dots_have_the_same_bits_in_all_ranges)
{
  check_kernel(fusion("f32[20001] f32[30000,8] f32[8]",
                      "  d = f32[30000] dot(p1, p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                      "  ROOT r = f32[50001] concatenate(p0, d), dimensions={0}",
                      "f32[50001]"),
               NULL);
  check_kernel(fusion("f32[30000,8] f32[3,8]",
                      "  ROOT r = f32[30000,3] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
                      "f32[30000,3]"),
               NULL);
  check_kernel(fusion("f64[13] f64[11] f64[20000,11] f64[7]",
                      "  d = f64[20000] dot(p2, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
                      "  ROOT r = f64[20020] concatenate(p0, d, p3), dimensions={0}",
                      "f64[20020]"),
               NULL);
}

/* In the code of the fusion that is the entry's root. */
static bool is_in_code(const char *program, const char *wanted)
{
  WEFT_AUTO(hlo_module) module = NULL;
  gen_options options;
  gen_code *code;

  T_OK(hlo_parse(program, strlen(program), &module));
  T_OK(gen_options_load(&options));
  options.keep_text = true;
  T_OK(gen_compile(module, &options, &code));
  bool found = strstr(gen_code_ir(code, gen_code_kernel(code, module->entry->root)), wanted) != NULL;
  gen_code_free(code);
  return found;
}

/* Columns of a dot are added up in several vectors, which do not wait for each other; rows are not. */
TEST(columns_of_small_dots_are_added_up_side_by_side)
{
  static const struct { const char *lhs, *rhs, *out, *attrs; } forms[] = {
    {"1,128", "128,256", "1,256", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"3,20", "20,100", "3,100", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"},
    {"7", "7,33", "33", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"},
    {"4,2,17", "4,17,70", "4,2,70", "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"},
    {"2,3,5", "3,5,64", "2,64", "lhs_contracting_dims={1,2}, rhs_contracting_dims={0,1}"},
  };
  static const char *const types[] = {"f32", "f64", "bf16", "s32"};
  char params[128], body[512], out[64];

  for (size_t t = 0; t < WEFT_COUNT(types); t++) {
    kernel_check how = {.int_low = -5, .int_high = 30, .atol = t == 0 ? 1e-4 : 0}; /* terms cancel each other */
    for (size_t i = 0; i < WEFT_COUNT(forms); i++) {
      snprintf(params, sizeof params, "%s[%s] %s[%s] %s[]", types[t], forms[i].lhs, types[t], forms[i].rhs, types[t]);
      snprintf(out, sizeof out, "%s[%s]", types[t], forms[i].out);
      snprintf(body, sizeof body, "  ROOT r = %s dot(p0, p1), %s", out, forms[i].attrs);
      check_kernel(fusion(params, body, out), &how);
      snprintf(body, sizeof body,
               "  d = %s dot(p0, p1), %s\n"
               "  b = %s broadcast(p2), dimensions={}\n"
               "  ROOT r = %s maximum(d, b)",
               out, forms[i].attrs, out, out);
      check_kernel(fusion(params, body, out), &how);
    }
  }
  const char *columns = "  ROOT r = f32[1,256] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}";
  const char *rows = "  ROOT r = f32[1,256] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={1}";
  T_TRUE(is_in_code(fusion("f32[1,128] f32[128,256]", columns, "f32[1,256]"), "<64 x float>"));
  T_TRUE(!is_in_code(fusion("f32[1,128] f32[256,128]", rows, "f32[1,256]"), "<64 x float>"));
}

/* `jnp.stack(..., -1).reshape`, applied to its own result: interleaved pairs of pairs (of pairs), computed in
 * vectors. */
TEST(stacks_of_stacks)
{
  static const char *const types[] = {"f32", "bf16", "s32", "f64", "c64"};
  static const int rows[] = {64, 37, 16};

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (int levels = 2; levels <= 4; levels++) {
      const char *x = types[t];
      int n = rows[(t + (size_t)levels) % WEFT_COUNT(rows)] * 3;
      char params[256], body[2048], result[64], last[16] = "p0";
      size_t at = 0, p = (size_t)snprintf(params, sizeof params, "%s[%d]", x, n);
      for (int l = 0; l < levels; l++, n *= 2) {
        p += (size_t)snprintf(params + p, sizeof params - p, " %s[%d]", x, n);
        at += (size_t)snprintf(body + at, sizeof body - at,
                               "  a%d = %s[%d] add(%s, p%d)\n"
                               "  s%d = %s[%d] subtract(%s, p%d)\n"
                               "  x%d = %s[%d,1] reshape(a%d)\n"
                               "  y%d = %s[%d,1] reshape(s%d)\n"
                               "  c%d = %s[%d,2] concatenate(x%d, y%d), dimensions={1}\n"
                               "  %sr%d = %s[%d] reshape(c%d)\n",
                               l, x, n, last, l + 1, l, x, n, last, l + 1, l, x, n, l, l, x, n, l, l, x, n, l, l,
                               l == levels - 1 ? "ROOT " : "", l, x, 2 * n, l);
        snprintf(last, sizeof last, "r%d", l);
      }
      snprintf(result, sizeof result, "%s[%d]", x, n);
      check_kernel(fusion(params, body, result), &(kernel_check){.int_low = -5, .int_high = 30});
      if (t == 0 && levels < 4) T_TRUE(is_in_code(fusion(params, body, result), " x float>"));
    }
}

/* The same in rows: code generation finds the constant distance of elements also where the row follows from a
 * remainder. */
TEST(rows_of_stacks_of_stacks)
{
  static const char params[] = "f32[40,64] f32[40,64] f32[40,64,2]";
  static const char body[] = "  q = f32[40,128] reshape(p2)\n"
                             "  a = f32[40,64,1] reshape(p0)\n"
                             "  b = f32[40,64,1] reshape(p1)\n"
                             "  c = f32[40,64,2] concatenate(a, b), dimensions={2}\n"
                             "  d = f32[40,128] reshape(c)\n"
                             "  s = f32[40,128] add(d, q)\n"
                             "  t = f32[40,128] subtract(d, q)\n"
                             "  u = f32[40,128,1] reshape(s)\n"
                             "  v = f32[40,128,1] reshape(t)\n"
                             "  w = f32[40,128,2] concatenate(u, v), dimensions={2}\n"
                             "  ROOT r = f32[40,256] reshape(w)";

  check_kernel(fusion(params, body, "f32[40,256]"), &(kernel_check){.int_low = -5, .int_high = 30});
  T_TRUE(!is_in_code(fusion(params, body, "f32[40,256]"), "masked.gather"));
}

/* Elements of a small loop's state that are computed by the same operations are computed in one vector. */
TEST(elements_of_a_small_loop_are_vectors)
{
  static const char program[] = "HloModule m\n"
                                "body {\n"
                                "  s = (s32[], f32[8]) parameter(0)\n"
                                "  i = s32[] get-tuple-element(s), index=0\n"
                                "  one = s32[] constant(1)\n"
                                "  n = s32[] add(i, one)\n"
                                "  x = f32[8] get-tuple-element(s), index=1\n"
                                "  e = f32[8] exponential(x)\n"
                                "  m = f32[8] negate(e)\n"
                                "  ROOT t = (s32[], f32[8]) tuple(n, m)\n"
                                "}\n"
                                "cond {\n"
                                "  s = (s32[], f32[8]) parameter(0)\n"
                                "  i = s32[] get-tuple-element(s), index=0\n"
                                "  ten = s32[] constant(10)\n"
                                "  ROOT c = pred[] compare(i, ten), direction=LT\n"
                                "}\n"
                                "f {\n"
                                "  i = s32[] parameter(0)\n"
                                "  x = f32[8] parameter(1)\n"
                                "  t = (s32[], f32[8]) tuple(i, x)\n"
                                "  w = (s32[], f32[8]) while(t), condition=cond, body=body\n"
                                "  ROOT r = f32[8] get-tuple-element(w), index=1\n"
                                "}\n"
                                "ENTRY e {\n"
                                "  i = s32[] parameter(0)\n"
                                "  x = f32[8] parameter(1)\n"
                                "  ROOT r = f32[8] fusion(i, x), kind=kCustom, calls=f\n"
                                "}\n";

  T_TRUE(is_in_code(program, "x float>"));
}

/* One instruction tests whether a sum is a NaN when the sum is rounded. */
TEST(rounding_to_bf16_asks_once)
{
  T_TRUE(is_in_code(fusion("bf16[64] bf16[64]", "  ROOT r = bf16[64] add(p0, p1)", "bf16[64]"), "fcmp uno <"));
}

/* Elements at a constant distance, whose first index is known only at run time; those of the last channel end with the
 * array. */
TEST(channels_of_pixels)
{
  static const char *const types[] = {"u8", "bf16", "f32", "f64", "c64", "pred"};
  static const int pixels[] = {32, 67, 160};
  char params[64], body[256], result[64];

  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (int n = 2; n <= 9; n++) {
      int m = pixels[(t + (size_t)n) % WEFT_COUNT(pixels)];
      const char *to = t == 4 ? "c128" : "f32";
      snprintf(params, sizeof params, "%s[3,%d,%d]", types[t], m, n);
      snprintf(body, sizeof body,
               "  a = %s[3,%d,%d] convert(p0)\n"
               "  b = %s[3,%d,%d] add(a, a)\n"
               "  ROOT r = %s[3,%d,%d] transpose(b), dimensions={0,2,1}",
               to, m, n, to, m, n, to, n, m);
      snprintf(result, sizeof result, "%s[3,%d,%d]", to, n, m);
      check_kernel(fusion(params, body, result), &(kernel_check){.int_low = 0, .int_high = 200});
    }
}

/* A tile's rows are loaded and stored in one piece. */
TEST(transposes_gather_nothing)
{
  static const struct { const char *in, *out; } transposes[] = {
    {"f32[64,128]", "f32[128,64]"}, {"bf16[64,128]", "bf16[128,64]"}, {"f32[40,24]", "f32[24,40]"}, {"s8[64,64]", "s8[64,64]"}};

  for (size_t i = 0; i < WEFT_COUNT(transposes); i++) {
    char body[160];
    snprintf(body, sizeof body, "  ROOT r = %s transpose(p0), dimensions={1,0}", transposes[i].out);
    const char *program = fusion(transposes[i].in, body, transposes[i].out);
    if (is_in_code(program, "gather") || is_in_code(program, "insertelement"))
      fail_msg("%s to %s gathers", transposes[i].in, transposes[i].out);
  }
}

/* So that threads can share it, a transpose is cut along its longest loops. */
TEST(transposes_have_many_units)
{
  static const struct { const char *in, *out, *dims; int64_t least; } transposes[] = {
    {"f32[4096,32]", "f32[32,4096]", "1,0", 16}, {"f32[32,4096]", "f32[4096,32]", "1,0", 16},
    {"f32[64,64,32]", "f32[32,64,64]", "2,0,1", 16}, {"f32[2,5000,8]", "f32[8,2,5000]", "2,0,1", 8},
  };

  for (size_t i = 0; i < WEFT_COUNT(transposes); i++) {
    char body[200];
    hlo_module *module = NULL;
    gen_options options;
    gen_code *code;
    snprintf(body, sizeof body, "  ROOT r = %s transpose(p0), dimensions={%s}", transposes[i].out, transposes[i].dims);
    const char *program = fusion(transposes[i].in, body, transposes[i].out);
    T_OK(hlo_parse(program, strlen(program), &module));
    T_OK(gen_options_load(&options));
    T_OK(gen_compile(module, &options, &code));
    int64_t units = gen_code_kernel(code, module->entry->root)->phases[0].units;
    if (units < transposes[i].least)
      fail_msg("%s to %s: %" PRId64 " units, want %" PRId64, transposes[i].in, transposes[i].out, units,
               transposes[i].least);
    gen_code_free(code);
    hlo_module_free(module);
  }
}

/* Looking at each operand of each would take 24^6 steps. */
TEST(concatenations_of_the_same_again_and_again)
{
  enum { LEVELS = 6, COPIES = 24 };
  char body[8192];
  size_t at = 0;

  for (int i = 0; i < LEVELS; i++) {
    at += (size_t)snprintf(body + at, sizeof body - at, "  c%d = f32[%d] concatenate(", i, 40 * COPIES);
    for (int k = 0; k < COPIES; k++)
      at += (size_t)snprintf(body + at, sizeof body - at, "%s%s%d", k ? ", " : "", i ? "s" : "p", i ? i - 1 : 0);
    at += (size_t)snprintf(body + at, sizeof body - at,
                           "), dimensions={0}\n"
                           "  %ss%d = f32[40] slice(c%d), slice={[7:47]}\n",
                           i == LEVELS - 1 ? "ROOT " : "", i, i);
  }
  check_kernel(fusion("f32[40]", body, "f32[40]"), &(kernel_check){.int_low = -5, .int_high = 30});
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(add_of_every_type_and_several_shapes),
    UNIT(elementwise_operations_of_every_type),
    UNIT(integers_at_their_corners),
    UNIT(conversion_between_all_types),
    UNIT(floats_become_integers),
    UNIT(comparisons),
    UNIT(data_movement_alone_and_fused),
    UNIT(neighbours_of_bf16),
    UNIT(neighbours_that_differ), UNIT(dots_have_the_same_bits_in_all_ranges), UNIT(columns_of_small_dots_are_added_up_side_by_side), UNIT(stacks_of_stacks), UNIT(rows_of_stacks_of_stacks), UNIT(rounding_to_bf16_asks_once), UNIT(elements_of_a_small_loop_are_vectors),
    UNIT(channels_of_pixels),
    UNIT(concatenations_of_the_same_again_and_again), UNIT(transposes_gather_nothing),
    UNIT(transposes_have_many_units),
  };
  return cmocka_run_group_tests(units, NULL, NULL);
}
