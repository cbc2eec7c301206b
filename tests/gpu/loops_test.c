/* tests/gpu/loops_test.c -- loops over small arrays on the emulated platform "cuda": each is one kernel of one block,
 * with every strategy of kernels inside, and has the reference evaluator's results in each order of warps, without a
 * race. */
#include "cpu/run.h"

#include "driver.h"
#include "hlo/eval.h"
#include "hlo/infer.h"
#include "passes/eval_compare.h"

/* `step`: a step that the program has; `no_step`: one that it has not. `exact`: the results have the same bits. */
typedef struct program {
  const char *what, *step, *no_step;
  bool exact;
  const char *text;
} program;

#define HEAD "HloModule m\nadd {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT c = f32[] add(a, b) }\n" \
  "max {\n" \
  "  a = f32[] parameter(0)\n" \
  "  b = f32[] parameter(1)\n" \
  "  ROOT c = f32[] maximum(a, b) }\n" \
  "addi {\n" \
  "  a = s32[] parameter(0)\n" \
  "  b = s32[] parameter(1)\n" \
  "  ROOT c = s32[] add(a, b) }\n"
/* A loop of `rounds` rounds over the state (s32[], REST): the body's text makes the next values x0, x1, ... of s0, s1,
 * ... in round i. */
#define COND(state, rounds) "cond {\n" \
  "  s = (s32[], " state ") parameter(0)\n" \
  "  i = s32[] get-tuple-element(s), index=0\n" \
  "  n = s32[] constant(" rounds ")\n" \
  "  ROOT r = pred[] compare(i, n), direction=LT }\n"
#define BODY1(a, text) "body {\n" \
  "  s = (s32[], " a ") parameter(0)\n" \
  "  i = s32[] get-tuple-element(s), index=0\n" \
  "  s0 = " a " get-tuple-element(s), index=1\n" \
  text "\n" \
  "  oo = s32[] constant(1)\n" \
  "  jj = s32[] add(i, oo)\n" \
  "  ROOT tt = (s32[], " a ") tuple(jj, x0) }\n"
#define BODY2(a, b, text) "body {\n" \
  "  s = (s32[], " a ", " b ") parameter(0)\n" \
  "  i = s32[] get-tuple-element(s), index=0\n" \
  "  s0 = " a " get-tuple-element(s), index=1\n" \
  "  s1 = " b " get-tuple-element(s), index=2\n" \
  text "\n" \
  "  oo = s32[] constant(1)\n" \
  "  jj = s32[] add(i, oo)\n" \
  "  ROOT tt = (s32[], " a ", " b ") tuple(jj, x0, x1) }\n"
#define RUN1(a) "ENTRY e {\n" \
  "  p = " a " parameter(0)\n" \
  "  z = s32[] constant(0)\n" \
  "  init = (s32[], " a ") tuple(z, p)\n" \
  "  w = (s32[], " a ") while(init), condition=cond, body=body\n" \
  "  ROOT r = " a " get-tuple-element(w), index=1 }\n"
#define RUN2(a, b) "ENTRY e {\n" \
  "  p = " a " parameter(0)\n" \
  "  q = " b " parameter(1)\n" \
  "  z = s32[] constant(0)\n" \
  "  init = (s32[], " a ", " b ") tuple(z, p, q)\n" \
  "  w = (s32[], " a ", " b ") while(init), condition=cond, body=body\n" \
  "  r0 = " a " get-tuple-element(w), index=1\n" \
  "  r1 = " b " get-tuple-element(w), index=2\n" \
  "  ROOT r = (" a ", " b ") tuple(r0, r1) }\n"
#define LOOP1(rounds, a, text) COND(a, rounds) BODY1(a, text) RUN1(a)
#define LOOP2(rounds, a, b, text) COND(a ", " b, rounds) BODY2(a, b, text) RUN2(a, b)
#define FILL(name, shape, value) name " = f32" shape " broadcast(f32[] constant(" value ")), dimensions={}\n"

static const program programs[] = {
  {"Newton's method until all have converged", "region", " while", false,
   HEAD "cond {\n"
   "  s = (f32[300], f32[300]) parameter(0)\n"
   "  x = f32[300] get-tuple-element(s), index=0\n"
   "  y = f32[300] get-tuple-element(s), index=1 "
   "xx = f32[300] multiply(x, x)\n"
   "  d = f32[300] subtract(xx, y)\n"
   "  a = f32[300] abs(d)\n"
   "  z = f32[] constant(0)\n"
   "  m = f32[] reduce(a, z), dimensions={0}, to_apply=max "
   "t = f32[] constant(0.0001)\n"
   "  ROOT r = pred[] compare(m, t), direction=GT }\n"
   "body {\n"
   "  s = (f32[300], f32[300]) parameter(0)\n"
   "  x = f32[300] get-tuple-element(s), index=0\n"
   "  y = f32[300] get-tuple-element(s), index=1 "
   "q = f32[300] divide(y, x)\n"
   "  u = f32[300] add(x, q) " FILL("h", "[300]", "0.5") "n = f32[300] multiply(u, h)\n"
   "  ROOT t = (f32[300], f32[300]) tuple(n, y) }\n"
   "ENTRY e {\n"
   "  p = f32[300] parameter(0)\n"
   "  a = f32[300] abs(p) " FILL("h", "[300]", "0.5") "y = f32[300] add(a, h)\n"
   "  init = (f32[300], f32[300]) tuple(y, y) "
   "w = (f32[300], f32[300]) while(init), condition=cond, body=body\n"
   "  ROOT r = f32[300] get-tuple-element(w), index=0 }\n"},
  {"a recurrent cell: products, bias, relu, and its history", "region", " while", false,
   HEAD LOOP2("40", "f32[4,32]", "f32[40,4,32]", "k = f32[32,32] iota(), iota_dimension=0\n"
   "  l = f32[32,32] iota(), iota_dimension=1 "
   "d = f32[32,32] subtract(k, l) " FILL("c", "[32,32]", "0.002") "m = f32[32,32] multiply(d, c) "
   "g = f32[4,32] dot(s0, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
   "  a = f32[40] iota(), iota_dimension=0\n"
   "  b = f32[32] slice(a), slice={[3:35]} "
   "bb = f32[4,32] broadcast(b), dimensions={1}\n"
   "  h = f32[4,32] add(g, bb) " FILL("o", "[4,32]", "0") "x0 = f32[4,32] maximum(h, o) "
   "y = f32[1,4,32] reshape(x0)\n"
   "  z = s32[] constant(0)\n"
   "  x1 = f32[40,4,32] dynamic-update-slice(s1, y, i, z, z) ")},
  {"softmax of rows", "region", " while", false,
   HEAD LOOP1("40", "f32[20,100]", "low = f32[] constant(-inf)\n"
   "  z = f32[] constant(0)\n"
   "  m = f32[20] reduce(s0, low), dimensions={1}, to_apply=max "
   "mb = f32[20,100] broadcast(m), dimensions={0}\n"
   "  d = f32[20,100] subtract(s0, mb)\n"
   "  e = f32[20,100] exponential(d) "
   "u = f32[20] reduce(e, z), dimensions={1}, to_apply=add\n"
   "  ub = f32[20,100] broadcast(u), dimensions={0}\n"
   "  x0 = f32[20,100] divide(e, ub) ")},
  {"sums of wide rows and of columns", "region", " while", false,
   HEAD LOOP1("40", "f32[30,257]", "z = f32[] constant(0)\n"
   "  m = f32[30] reduce(s0, z), dimensions={1}, to_apply=add\n"
   "  mb = f32[30,257] broadcast(m), dimensions={0} "
   "c = f32[257] reduce(s0, z), dimensions={0}, to_apply=add\n"
   "  cb = f32[30,257] broadcast(c), dimensions={1} "
   "t = f32[30,257] add(mb, cb) " FILL("k", "[30,257]", "0.003") "v = f32[30,257] multiply(t, k)\n"
   "  x0 = f32[30,257] subtract(s0, v) ")},
  {"a transposed state, turned again in each round", "region", " while", true,
   HEAD LOOP1("40", "f32[40,40]", "a = f32[40,40] transpose(s0), dimensions={1,0} " FILL("k", "[40,40]", "1") "x0 = f32[40,40] add(a, k) ")},
  {"scatters: sums in order, and counts", "region", " while", true,
   HEAD LOOP2("40", "f32[9]", "s32[9]", "n = s32[14,1] iota(), iota_dimension=0\n"
   "  ib = s32[14,1] broadcast(i), dimensions={}\n"
   "  p = s32[14,1] multiply(n, ib) "
   "q = s32[14,1] broadcast(s32[] constant(9)), dimensions={}\n"
   "  k = s32[14,1] remainder(p, q)\n"
   "  u = f32[14] iota(), iota_dimension=0\n"
   "  v = f32[14] sine(u) "
   "x0 = f32[9] scatter(s0, k, v), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add "
   "w = s32[14] broadcast(s32[] constant(1)), dimensions={}\n"
   "x1 = s32[9] scatter(s1, k, w), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=addi ")},
  {"two arrays that change places", "region", " while", true,
   HEAD LOOP2("40", "f32[400]", "f32[400]", "b = f32[400] reverse(s1), dimensions={0}\n"
   "  x0 = f32[400] negate(b)\n"
   "  x1 = f32[400] copy(s0) ")},
  {"branches, and a loop of scalars inside", "region", " while", true,
   HEAD "yes {\n"
   "  v = f32[30] parameter(0)\n"
   "  ROOT r = f32[30] negate(v) }\nno {\n"
   "  v = f32[30] parameter(0)\n"
   "  ROOT r = f32[30] add(v, v) }\n"
   "less {\n"
   "  t = (s32[], f32[]) parameter(0)\n"
   "  i = s32[] get-tuple-element(t), index=0\n"
   "  n = s32[] constant(4)\n"
   "  ROOT r = pred[] compare(i, n), direction=LT }\n"
   "step {\n"
   "  t = (s32[], f32[]) parameter(0)\n"
   "  i = s32[] get-tuple-element(t), index=0\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one) "
   "v = f32[] get-tuple-element(t), index=1\n"
   "  h = f32[] constant(0.5)\n"
   "  w = f32[] multiply(v, h)\n"
   "  ROOT r = (s32[], f32[]) tuple(j, w) }\n"
   LOOP1("40", "f32[30]", "two = s32[] constant(2)\n"
   "  m = s32[] remainder(i, two)\n"
   "  z = s32[] constant(0)\n"
   "  odd = pred[] compare(m, z), direction=NE "
   "c = f32[30] conditional(odd, s0, s0), true_computation=yes, false_computation=no "
   "f = f32[1] slice(c), slice={[7:8]}\n"
   "  g = f32[] reshape(f)\n"
   "  st = (s32[], f32[]) tuple(m, g)\n"
   "  lo = (s32[], f32[]) while(st), condition=less, body=step "
   "h = f32[] get-tuple-element(lo), index=1\n"
   "  hb = f32[30] broadcast(h), dimensions={}\n"
   "  x0 = f32[30] subtract(c, hb) ")},
  {"rows of a large array that is updated in place", "region", " while", true,
   HEAD LOOP1("40", "f32[5000,48]", "z = s32[] constant(0)\n"
   "  five = s32[] constant(97)\n"
   "  at = s32[] multiply(i, five) "
   "v = f32[1,48] dynamic-slice(s0, at, z), dynamic_slice_sizes={1,48}\n"
   "  w = f32[1,48] negate(v)\n"
   "  one1 = s32[] constant(1)\n"
   "  to = s32[] add(at, one1) "
   "x0 = f32[5000,48] dynamic-update-slice(s0, w, to, z) ")},
  {"narrow types, and the place of the greatest", "region", " while", true,
   HEAD "best {\n"
   "  a = bf16[] parameter(0)\n"
   "  i = s32[] parameter(1)\n"
   "  b = bf16[] parameter(2)\n"
   "  j = s32[] parameter(3)\n"
   "  g = pred[] compare(a, b), direction=GE "
   "v = bf16[] select(g, a, b)\n"
   "  k = s32[] select(g, i, j)\n"
   "  ROOT t = (bf16[], s32[]) tuple(v, k) }\n"
   LOOP2("40", "bf16[12,50]", "s32[12]", "n = s32[12,50] iota(), iota_dimension=1\n"
   "  low = bf16[] constant(-inf)\n"
   "  z = s32[] constant(0) "
   "r = (bf16[12], s32[12]) reduce(s0, n, low, z), dimensions={1}, to_apply=best\n"
   "  k = s32[12] get-tuple-element(r), index=1 "
   "x1 = s32[12] add(s1, k)\n"
   "  kb = s32[12,50] broadcast(k), dimensions={0}\n"
   "  at = pred[12,50] compare(kb, n), direction=EQ "
   "m = bf16[12,50] negate(s0)\n"
   "  x0 = bf16[12,50] select(at, m, s0) ")},
  {"the gradient of a maximum over windows", "region", " while", false,
   HEAD "ge {\n"
   "  a = f32[] parameter(0)\n"
   "  b = f32[] parameter(1)\n"
   "  ROOT c = pred[] compare(a, b), direction=GE }\n"
   LOOP1("40", "f32[24,24]", "low = f32[] constant(-inf)\n"
   "  z = f32[] constant(0)\n"
   "  w = f32[12,12] reduce-window(s0, low), window={size=2x2 stride=2x2}, to_apply=max "
   "x0 = f32[24,24] select-and-scatter(s0, w, z), window={size=2x2 stride=2x2}, select=ge, scatter=add ")},
  {"scalars alone are one thread's", "loop_fusion", " while", true,
   HEAD "cond {\n"
   "  s = (s32[], s32[]) parameter(0)\n"
   "  v = s32[] get-tuple-element(s), index=1\n"
   "  n = s32[] constant(1)\n"
   "  ROOT r = pred[] compare(v, n), direction=GT }\n"
   "body {\n"
   "  s = (s32[], s32[]) parameter(0)\n"
   "  c = s32[] get-tuple-element(s), index=0\n"
   "  v = s32[] get-tuple-element(s), index=1\n"
   "  one = s32[] constant(1) "
   "two = s32[] constant(2)\n"
   "  three = s32[] constant(3)\n"
   "  d = s32[] add(c, one)\n"
   "  h = s32[] divide(v, two)\n"
   "  t = s32[] multiply(v, three)\n"
   "  o = s32[] add(t, one) "
   "m = s32[] remainder(v, two)\n"
   "  z = s32[] constant(0)\n"
   "  odd = pred[] compare(m, z), direction=NE\n"
   "  w = s32[] select(odd, o, h)\n"
   "  ROOT r = (s32[], s32[]) tuple(d, w) }\n"
   "ENTRY e {\n"
   "  p = s32[] parameter(0)\n"
   "  a = s32[] abs(p)\n"
   "  k = s32[] constant(97)\n"
   "  b = s32[] remainder(a, k)\n"
   "  one = s32[] constant(1)\n"
   "  v = s32[] add(b, one)\n"
   "  z = s32[] constant(0) "
   "init = (s32[], s32[]) tuple(z, v)\n"
   "  w = (s32[], s32[]) while(init), condition=cond, body=body\n"
   "  ROOT r = s32[] get-tuple-element(w), index=0 }\n"},
  {"no round", NULL, " while", true, HEAD LOOP1("0", "f32[300]", "x0 = f32[300] negate(s0) ")},
  {"what is worth a device stays a loop of launches", " while", "region", true,
   HEAD LOOP1("40", "f32[300,300]", "x0 = f32[300,300] negate(s0) ")},
};

static bool same_bits(const hlo_literal *a, const hlo_literal *b)
{
  if (!hlo_shape_is_tuple(a->shape)) return memcmp(a->data, b->data, (size_t)hlo_shape_bytes(a->shape)) == 0;
  for (int i = 0; i < a->shape->rank; i++)
    if (!same_bits(a->elements[i], b->elements[i])) return false;
  return true;
}

static void check(weft_platform *platform, const program *p, uint64_t seed)
{
  const hlo_literal *args[2], *want;
  const void *inputs[2];
  void *outputs[2];
  hlo_module *module;
  hlo_literal *got;
  weft_arena arena;

  weft_arena_init(&arena);
  weft_status *st = hlo_parse(p->text, strlen(p->text), &module);
  if (st) fail_msg("%s: %s", p->what, weft_status_message(st));
  T_OK(hlo_verify(module));
  for (int i = 0; i < module->entry->param_count; i++) {
    args[i] = random_literal(&arena, module->entry->params[i]->shape, &seed);
    inputs[i] = args[i]->data;
  }
  T_OK(hlo_eval_module(module, args, &HLO_EVAL_DEFAULT, &arena, &want));
  T_OK(hlo_literal_new(&arena, module->entry->root->shape, &got));
  outputs[0] = got->data;
  for (int i = 0; hlo_shape_is_tuple(got->shape) && i < got->shape->rank; i++) outputs[i] = got->elements[i]->data;
  weft_executable *exe = test_compile(platform, p->text, BUF_SEQUENTIAL);
  char *steps = test_steps_of(exe);
  if ((p->step && !strstr(steps, p->step)) || (p->no_step && strstr(steps, p->no_step)) || strstr(steps, "reference"))
    fail_msg("%s: steps are\n%s", p->what, steps);
  for (int run = 0; run < 2; run++) { /* the second finds what the first has left in memory */
    T_OK(test_run(exe, inputs, outputs));
    if (p->exact ? !same_bits(got, want) : !literals_within(got, want, p->what, 1e-5))
      fail_msg("%s: not what the evaluator gives\n%s", p->what, steps);
  }
  free(steps);
  weft_executable_release(exe);
  hlo_module_free(module);
  weft_arena_fini(&arena);
}

static void check_all(const char *order)
{
  weft_platform *platform = test_platform(1, 2);

  setenv("WEFT_EMU_ORDER", order, 1);
  setenv("WEFT_EMU_CHECKS", "all", 1);
  emu_reset();
  for (size_t i = 0; i < WEFT_COUNT(programs); i++) check(platform, &programs[i], i + 1);
  weft_platform_release(platform);
}

TEST(loops_have_the_evaluators_results) { check_all("normal"); }
TEST(warps_may_run_in_any_order)
{
  check_all("reversed");
  check_all("interleaved:5");
}

int main(void)
{
  const struct CMUnitTest units[] = {UNIT(loops_have_the_evaluators_results), UNIT(warps_may_run_in_any_order)};

  open_driver();
  return cmocka_run_group_tests(units, NULL, NULL);
}
