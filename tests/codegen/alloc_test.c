/* tests/codegen/alloc_test.c -- For each strategy, each allocation of code generation fails in turn. The answer is
 * RESOURCE_EXHAUSTED, or success where the code can do without the memory; nothing leaks, and the next attempt
 * succeeds. Allocations of LLVM do not fail here: LLVM ends the process when it finds no memory. */
#include "test.h"

#include "alloc.h"
#include "codegen/codegen.h"
#include "hlo/infer.h"
#include "hlo/text.h"

#define ADD \
  "add {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT r = f32[] add(a, b)\n" \
  "}\n"
#define GE \
  "ge {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT r = pred[] compare(a, b), direction=GE\n" \
  "}\n"

static const struct { const char *what, *text; } programs[] = {
  {"a loop with a pad, a gather and a window",
   ADD
   "f {\n"
   "  a = f32[9,8] parameter(0)\n"
   "  i = s32[4,1] parameter(1)\n"
   "  z = f32[] constant(0)\n"
   "  p = f32[12,8] pad(a, z), padding=1_2x0_0\n"
   "  w = f32[10,8] reduce-window(p, z), window={size=3x1}, to_apply=add\n"
   "  ROOT r = f32[4,8] gather(w, i), offset_dims={1}, collapsed_slice_dims={0}, "
   "start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[9,8] parameter(0)\n"
   "  i = s32[4,1] parameter(1)\n"
   "  ROOT r = f32[4,8] fusion(a, i), kind=kLoop, calls=f\n"
   "}"},
  {"rows in stages",
   ADD
   "f {\n"
   "  a = f32[16,40] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  x = f32[16,40] exponential(a)\n"
   "  s = f32[16] reduce(x, z), dimensions={1}, to_apply=add\n"
   "  b = f32[16,40] broadcast(s), dimensions={0}\n"
   "  d = f32[16,40] divide(x, b)\n"
   "  ROOT t = (f32[16,40], f32[16]) tuple(d, s)\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[16,40] parameter(0)\n"
   "  ROOT r = (f32[16,40], f32[16]) fusion(a), kind=kCustom, calls=f\n"
   "}"},
  {"one long row, in two phases",
   ADD
   "f {\n"
   "  a = f32[200000] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  ROOT s = f32[] reduce(a, z), dimensions={0}, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[200000] parameter(0)\n"
   "  ROOT r = f32[] fusion(a), kind=kInput, calls=f\n"
   "}"},
  {"columns, in two phases",
   ADD
   "f {\n"
   "  a = f32[40000,5] parameter(0)\n"
   "  z = f32[] constant(0)\n"
   "  s = f32[5] reduce(a, z), dimensions={0}, to_apply=add\n"
   "  ROOT n = f32[5] negate(s)\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[40000,5] parameter(0)\n"
   "  ROOT r = f32[5] fusion(a), kind=kInput, calls=f\n"
   "}"},
  {"a transpose by tiles",
   "f {\n"
   "  a = f32[24,16] parameter(0)\n"
   "  b = f32[16,24] parameter(1)\n"
   "  t = f32[16,24] transpose(a), dimensions={1,0}\n"
   "  ROOT r = f32[16,24] add(t, b)\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[24,16] parameter(0)\n"
   "  b = f32[16,24] parameter(1)\n"
   "  ROOT r = f32[16,24] fusion(a, b), kind=kLoop, calls=f\n"
   "}"},
  {"an update in place",
   "f {\n"
   "  a = f32[64] parameter(0)\n"
   "  u = f32[8] parameter(1)\n"
   "  i = s32[] parameter(2)\n"
   "  n = f32[8] negate(u)\n"
   "  ROOT r = f32[64] dynamic-update-slice(a, n, i)\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[64] parameter(0)\n"
   "  u = f32[8] parameter(1)\n"
   "  i = s32[] parameter(2)\n"
   "  ROOT r = f32[64] fusion(a, u, i), kind=kCustom, output_to_operand_aliasing={{}: (0, {})}, calls=f\n"
   "}"},
  {"a scatter",
   ADD
   "f {\n"
   "  a = f32[64,4] parameter(0)\n"
   "  i = s32[5,1] parameter(1)\n"
   "  u = f32[5,4] parameter(2)\n"
   "  ROOT r = f32[64,4] scatter(a, i, u), update_window_dims={1}, "
   "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[64,4] parameter(0)\n"
   "  i = s32[5,1] parameter(1)\n"
   "  u = f32[5,4] parameter(2)\n"
   "  ROOT r = f32[64,4] fusion(a, i, u), kind=kCustom, calls=f\n"
   "}"},
  {"a select-and-scatter",
   ADD GE
   "f {\n"
   "  a = f32[8,8] parameter(0)\n"
   "  u = f32[4,4] parameter(1)\n"
   "  z = f32[] constant(0)\n"
   "  ROOT r = f32[8,8] select-and-scatter(a, u, z), window={size=2x2 stride=2x2}, select=ge, scatter=add\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[8,8] parameter(0)\n"
   "  u = f32[4,4] parameter(1)\n"
   "  ROOT r = f32[8,8] fusion(a, u), kind=kInput, calls=f\n"
   "}"},
  {"a region",
   "neg {\n"
   "  a = f32[3] parameter(0)\n"
   "  ROOT n = f32[3] negate(a)\n"
   "}\n"
   "inc {\n"
   "  i = s32[] parameter(0)\n"
   "  one = s32[] constant(1)\n"
   "  ROOT n = s32[] add(i, one)\n"
   "}\n"
   "lt {\n"
   "  i = s32[] parameter(0)\n"
   "  n = s32[] constant(5)\n"
   "  ROOT c = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "body {\n"
   "  p = (s32[], f32[3]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[3] get-tuple-element(p), index=1\n"
   "  j = s32[] fusion(i), kind=kLoop, calls=inc\n"
   "  y = f32[3] fusion(x), kind=kLoop, calls=neg\n"
   "  ROOT r = (s32[], f32[3]) tuple(j, y)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[3]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  ROOT c = pred[] fusion(i), kind=kLoop, calls=lt\n"
   "}\n"
   "f {\n"
   "  z = s32[] parameter(0)\n"
   "  a = f32[3] parameter(1)\n"
   "  t = (s32[], f32[3]) tuple(z, a)\n"
   "  w = (s32[], f32[3]) while(t), condition=cond, body=body\n"
   "  ROOT r = f32[3] get-tuple-element(w), index=1\n"
   "}\n"
   "ENTRY e {\n"
   "  z = s32[] parameter(0)\n"
   "  a = f32[3] parameter(1)\n"
   "  ROOT r = f32[3] fusion(z, a), kind=kCustom, calls=f, backend_config=\"region\"\n"
   "}"},
  {"a small loop",
   "body {\n"
   "  p = (s32[], f32[]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[] get-tuple-element(p), index=1\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  y = f32[] cosine(x)\n"
   "  ROOT r = (s32[], f32[]) tuple(j, y)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(5)\n"
   "  ROOT c = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "f {\n"
   "  z = s32[] parameter(0)\n"
   "  a = f32[] parameter(1)\n"
   "  t = (s32[], f32[]) tuple(z, a)\n"
   "  w = (s32[], f32[]) while(t), condition=cond, body=body\n"
   "  ROOT r = f32[] get-tuple-element(w), index=1\n"
   "}\n"
   "ENTRY e {\n"
   "  z = s32[] parameter(0)\n"
   "  a = f32[] parameter(1)\n"
   "  ROOT r = f32[] fusion(z, a), kind=kCustom, calls=f, backend_config=\"loop\"\n"
   "}"},
  {"a comparator",
   "less {\n"
   "  a = f32[] parameter(0)\n"
   "  b = f32[] parameter(1)\n"
   "  n = f32[] negate(a)\n"
   "  ROOT r = pred[] compare(n, b), direction=LT\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[64] parameter(0)\n"
   "  ROOT s = f32[64] sort(a), dimensions={0}, to_apply=less\n"
   "}"},
};

static weft_status *compile(const hlo_module *module)
{
  WEFT_AUTO(gen_code) code = NULL;
  gen_options options = {.threads = 1};

  return gen_compile(module, &options, &code);
}

TEST(every_allocation_of_code_generation_may_fail)
{
  for (size_t i = 0; i < WEFT_COUNT(programs); i++) {
    WEFT_AUTO(hlo_module) module = NULL;
    int n = 0, dispensable = 0;
    T_OK(hlo_parse(programs[i].text, strlen(programs[i].text), &module));
    T_OK(hlo_verify(module));
    T_OK(compile(module)); /* what is allocated once for the process exists from here on */
    for (bool failed = true; failed; n++) {
      alloc_fail_at(n);
      weft_status *st = compile(module);
      failed = alloc_stop();
      if (st && weft_status_code(st) != WEFT_RESOURCE_EXHAUSTED)
        print_message("%s: allocation %d failed: %s\n", programs[i].what, n, weft_status_text(st, false));
      dispensable += failed && !st;
      T_CODE(st, failed && st ? WEFT_RESOURCE_EXHAUSTED : WEFT_OK);
    }
    print_message("# %s: %d allocations, %d of them dispensable\n", programs[i].what, n - 1, dispensable);
    T_TRUE(n > 5 && dispensable < n - 1);
  }
}

TEST_MAIN(UNIT(every_allocation_of_code_generation_may_fail))
