/* tests/buffer/alloc_test.c -- Each allocation of the parser, the passes and the memory plan fails in turn. The answer
 * is RESOURCE_EXHAUSTED, or success where the code can do without the memory (a hash table that does not grow); nothing
 * leaks (AddressSanitizer checks), and the next attempt succeeds. Code generation is left out, because LLVM ends the
 * process when it finds no memory. */
#include "test.h"

#include "alloc.h"
#include "buffer/plan.h"
#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/passes.h"

static weft_status *read_and_plan(const char *text)
{
  static const pass_options passes = {.fold_limit_bytes = 1 << 16, .num_threads = 1};
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO(buf_plan) plan = NULL;

  WEFT_TRY(hlo_parse(text, strlen(text), &module));
  WEFT_TRY(hlo_verify(module));
  WEFT_TRY(pass_run(&pass_cpu_pipeline, module, &passes, NULL, NULL));
  WEFT_TRY(buf_plan_new(module, &(buf_options){.order = BUF_TOPOLOGICAL}, &plan));
  return buf_plan_check(plan);
}

static const struct { const char *what, *text; } programs[] = {
  {"a fusion",
   "e {\n"
   "  a = f32[64] parameter(0)\n"
   "  b = f32[64] sine(a)\n"
   "  c = f32[64] add(a, b)\n"
   "  ROOT r = f32[64] exponential(c)\n"
   "}"},
  {"a loop around a sort",
   "less {\n"
   "  a = f32[] parameter(0)\n"
   "  b = f32[] parameter(1)\n"
   "  ROOT r = pred[] compare(a, b), direction=LT\n"
   "}\n"
   "body {\n"
   "  p = (s32[], f32[64]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[64] get-tuple-element(p), index=1\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  n = f32[64] negate(x)\n"
   "  y = f32[64] sort(n), dimensions={0}, to_apply=less\n"
   "  ROOT r = (s32[], f32[64]) tuple(j, y)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[64]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(3)\n"
   "  ROOT lt = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "ENTRY e {\n"
   "  z = s32[] constant(0)\n"
   "  a = f32[64] parameter(0)\n"
   "  t = (s32[], f32[64]) tuple(z, a)\n"
   "  ROOT w = (s32[], f32[64]) while(t), condition=cond, body=body\n"
   "}"},
  {"products and a reduction",
   "add {\n"
   "  a = f32[] parameter(0)\n"
   "  b = f32[] parameter(1)\n"
   "  ROOT r = f32[] add(a, b)\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[40,50] parameter(0)\n"
   "  b = f32[50,60] parameter(1)\n"
   "  d = f32[40,60] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  z = f32[] constant(0)\n"
   "  t = f32[60,40] transpose(d), dimensions={1,0}\n"
   "  ROOT r = f32[60] reduce(t, z), dimensions={1}, to_apply=add\n"
   "}"},
};

TEST(every_allocation_on_the_way_to_a_plan_may_fail)
{
  for (size_t i = 0; i < WEFT_COUNT(programs); i++) {
    int n = 0, dispensable = 0;
    T_OK(read_and_plan(programs[i].text)); /* what is allocated once for the process exists from here on */
    for (bool failed = true; failed; n++) {
      alloc_fail_at(n);
      weft_status *st = read_and_plan(programs[i].text);
      failed = alloc_stop();
      if (failed && st && weft_status_code(st) != WEFT_RESOURCE_EXHAUSTED)
        print_message("%s: allocation %d failed: %s\n", programs[i].what, n, weft_status_text(st, false));
      dispensable += failed && !st;
      T_CODE(st, failed && st ? WEFT_RESOURCE_EXHAUSTED : WEFT_OK);
    }
    print_message("# %s: %d allocations, %d of them dispensable\n", programs[i].what, n - 1, dispensable);
    T_TRUE(n > 10 && dispensable < n / 2);
  }
}

TEST_MAIN(UNIT(every_allocation_on_the_way_to_a_plan_may_fail))
