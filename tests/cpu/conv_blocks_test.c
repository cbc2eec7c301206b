/* tests/cpu/conv_blocks_test.c -- convolutions whose results a kernel takes block by block (pass conv-blocks). Whole,
 * small numbers give the bits of the reference evaluator. */
#include "cpu/against_evaluator.h"

#include "cpu/conv_amx.h"
#include "cpu/planned.h"

typedef struct program {
  const char *name, *body;
  int steps, kernels; /* where the library computes blocks; of convolutions, and of kernels besides */
} program;

/* max(y * scale + shift, 0), for y with `features` features and the other dimensions `dims`. */
#define ACTIVATED(y, dims, features, last) \
  "  scale = bf16[" features "] parameter(2)\n" \
  "  shift = bf16[" features "] parameter(3)\n" \
  "  a = bf16[" dims "," features "] broadcast(scale), dimensions={" last "}\n" \
  "  b = bf16[" dims "," features "] broadcast(shift), dimensions={" last "}\n" \
  "  zero = bf16[] constant(0)\n" \
  "  z = bf16[" dims "," features "] broadcast(zero), dimensions={}\n" \
  "  m = bf16[" dims "," features "] multiply(" y ", a)\n" \
  "  s = bf16[" dims "," features "] add(m, b)\n"

#define PLAIN \
  "  x = bf16[1,26,27,64] parameter(0)\n" \
  "  w = bf16[96,64,3,3] parameter(1)\n" \
  "  y = bf16[1,26,27,96] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_oi01->b01f\n" \
  ACTIVATED("y", "1,26,27", "96", "3")

static const program programs[] = {
  {"scale, shift and residual", PLAIN
   "  r = bf16[1,26,27,96] parameter(4)\n"
   "  t = bf16[1,26,27,96] add(s, r)\n"
   "  ROOT o = bf16[1,26,27,96] maximum(t, z)\n", 1, 0},
  {"one matrix of all images, whose pixels are no whole lines of a cache",
   "  x = bf16[3,19,13,64] parameter(0)\n"
   "  w = bf16[40,64,1,1] parameter(1)\n"
   "  y = bf16[3,19,13,40] convolution(x, w), window={size=1x1}, dim_labels=b01f_oi01->b01f\n"
   ACTIVATED("y", "3,19,13", "40", "3")
   "  ROOT o = bf16[3,19,13,40] maximum(s, z)\n", 1, 0},
  {"images with strides",
   "  x = bf16[2,41,40,32] parameter(0)\n"
   "  w = bf16[3,3,32,72] parameter(1)\n"
   "  y = bf16[2,21,20,72] convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_01io->b01f\n"
   ACTIVATED("y", "2,21,20", "72", "3")
   "  ROOT o = bf16[2,21,20,72] maximum(s, z)\n", 1, 0},
  {"more images than are spread at a time",
   "  x = bf16[330,200,32] parameter(0)\n"
   "  w = bf16[2,32,32] parameter(1)\n"
   "  y = bf16[330,200,32] convolution(x, w), window={size=2 pad=1_0}, dim_labels=b0f_0io->b0f\n"
   ACTIVATED("y", "330,200", "32", "2")
   "  ROOT o = bf16[330,200,32] maximum(s, z)\n", 1, 0},
  {"two convolutions of one kernel",
   "  x = bf16[1,26,27,64] parameter(0)\n"
   "  w = bf16[96,64,1,1] parameter(1)\n"
   "  u = bf16[96,64,3,3] parameter(4)\n"
   "  y = bf16[1,26,27,96] convolution(x, w), window={size=1x1}, dim_labels=b01f_oi01->b01f\n"
   "  v = bf16[1,26,27,96] convolution(x, u), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_oi01->b01f\n"
   ACTIVATED("y", "1,26,27", "96", "3")
   "  t = bf16[1,26,27,96] add(s, v)\n"
   "  ROOT o = bf16[1,26,27,96] maximum(t, z)\n", 2, 0},
  {"features that fill no tiles: the convolution is computed as a whole, within the same step",
   "  x = bf16[1,26,27,40] parameter(0)\n"
   "  w = bf16[96,40,1,1] parameter(1)\n"
   "  y = bf16[1,26,27,96] convolution(x, w), window={size=1x1}, dim_labels=b01f_oi01->b01f\n"
   ACTIVATED("y", "1,26,27", "96", "3")
   "  ROOT o = bf16[1,26,27,96] maximum(s, z)\n", 1, 0},
  {"someone else reads the convolution's result", PLAIN
   "  o = bf16[1,26,27,96] maximum(s, z)\n"
   "  ROOT t = (bf16[1,26,27,96], bf16[1,26,27,96]) tuple(o, y)\n", 1, 1},
  {"pixels need other pixels", PLAIN
   "  t = bf16[1,26,27,96] reverse(s), dimensions={1}\n"
   "  ROOT o = bf16[1,26,27,96] maximum(t, z)\n", 1, 1},
  {"an operand has a number for each image and feature",
   "  x = bf16[2,26,27,64] parameter(0)\n"
   "  w = bf16[96,64,1,1] parameter(1)\n"
   "  g = bf16[2,96] parameter(2)\n"
   "  y = bf16[2,26,27,96] convolution(x, w), window={size=1x1}, dim_labels=b01f_oi01->b01f\n"
   "  gb = bf16[2,26,27,96] broadcast(g), dimensions={0,3}\n"
   "  ROOT o = bf16[2,26,27,96] multiply(y, gb)\n", 1, 1},
  {"no features apart: the kernel's units are no pixels",
   "  x = bf16[1,26,27,64] parameter(0)\n"
   "  w = bf16[96,64,1,1] parameter(1)\n"
   "  y = bf16[1,26,27,96] convolution(x, w), window={size=1x1}, dim_labels=b01f_oi01->b01f\n"
   "  ROOT o = bf16[1,26,27,96] negate(y)\n", 1, 1},
  {"few pixels, of which the library takes some features at a time",
   "  x = bf16[1,14,14,64] parameter(0)\n"
   "  w = bf16[96,64,1,1] parameter(1)\n"
   "  y = bf16[1,14,14,96] convolution(x, w), window={size=1x1}, dim_labels=b01f_oi01->b01f\n"
   ACTIVATED("y", "1,14,14", "96", "3")
   "  ROOT o = bf16[1,14,14,96] maximum(s, z)\n", 1, 1},
};

TEST(results_are_those_of_separate_steps)
{
  static const int threads[] = {1, 2, 7};
  bool ok = true;

  for (size_t t = 0; t < WEFT_COUNT(threads); t++) {
    weft_platform *platform = test_platform(1, threads[t]);
    for (size_t i = 0; i < WEFT_COUNT(programs); i++) {
      const program *p = &programs[i];
      char text[8192];
      int kernels, copies;
      snprintf(text, sizeof text, "HloModule m\nENTRY e {\n%s}\n", p->body);
      ok = gives_exactly(platform, text, 0, p->name, &kernels, &copies) && ok;
      weft_executable *exe = test_compile(platform, text, BUF_TOPOLOGICAL);
      int steps = count_steps(exe, "convolution");
      weft_executable_release(exe);
      if (cpu_conv_amx_fits() && (steps != p->steps || kernels != p->kernels)) {
        print_message("# %s: %d convolutions and %d kernels\n", p->name, steps, kernels);
        ok = false;
      }
    }
    weft_platform_release(platform);
  }
  T_TRUE(ok);
}

/* What a file says to be such a step must be one: the rest is the evaluator's. */
#define FUSED(kernel, result) \
  "HloModule m, is_scheduled=true\n" \
  "kernel {\n" \
  "  y = f32[1,9,10,24] parameter(0)\n" \
  "  b = f32[24] parameter(1)\n" \
  "  bb = f32[1,9,10,24] broadcast(b), dimensions={3}\n" kernel "}\n" \
  "step {\n" \
  "  x = f32[1,9,10,16] parameter(0)\n" \
  "  w = f32[24,16,3,3] parameter(1)\n" \
  "  b = f32[24] parameter(2)\n" \
  "  y = f32[1,9,10,24] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_oi01->b01f\n" result "}\n" \
  "ENTRY e {\n" \
  "  x = f32[1,9,10,16] parameter(0)\n" \
  "  w = f32[24,16,3,3] parameter(1)\n" \
  "  b = f32[24] parameter(2)\n" \
  "  ROOT o = f32[1,9,10,24] fusion(x, w, b), kind=kCustom, calls=step, backend_config=\"conv-blocks\"\n" \
  "}\n"
#define CALL(y) "  ROOT o = f32[1,9,10,24] fusion(" y ", b), kind=kLoop, calls=kernel, backend_config=\"loop\"\n"

TEST(other_fusions_are_left_to_the_evaluator)
{
  static const struct { const char *text, *why; } cases[] = {
    {FUSED("  ROOT r = f32[1,9,10,24] add(y, bb)\n", CALL("y")), NULL},
    {FUSED("  t = f32[1,9,10,24] reverse(y), dimensions={2}\n"
           "  ROOT r = f32[1,9,10,24] add(t, bb)\n", CALL("y")), "pixels"},
    {FUSED("  ROOT r = f32[1,9,10,24] add(y, y)\n", CALL("y")), "pixels"},
    {FUSED("  ROOT r = f32[1,9,10,24] add(y, bb)\n", "  n = f32[1,9,10,24] negate(y)\n" CALL("n")), "is computed"},
    {FUSED("  ROOT r = f32[1,9,10,24] add(y, bb)\n", "  ROOT n = f32[1,9,10,24] negate(y)\n"), "end with a kernel"},
  };

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) is_planned(cases[i].text, cpu_conv_blocks_plan, cases[i].why);
}

TEST_MAIN(UNIT(results_are_those_of_separate_steps), UNIT(other_fusions_are_left_to_the_evaluator))
