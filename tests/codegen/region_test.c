/* tests/codegen/region_test.c -- regions of small instructions as one kernel. */
#include "test.h"

#include "harness.h"

/* A counted loop with a scalar, a small array, an array updated in place, and a conditional in its body. */
static const char loop_text[] =
  "HloModule t\n"
  "inc { p = s32[] parameter(0)\n"
  "  one = s32[] constant(1)\n"
  "  ROOT r = s32[] add(p, one) }\n"
  "mix { v = f32[3] parameter(0)\n"
  "  s = f32[3] sine(v)\n"
  "  k = f32[] constant(0.5)\n"
  "  b = f32[3] broadcast(k), dimensions={}\n"
  "  ROOT r = f32[3] multiply(s, b) }\n"
  "put { buf = f32[20,3] parameter(0)\n"
  "  v = f32[3] parameter(1)\n"
  "  i = s32[] parameter(2)\n"
  "  z = s32[] constant(0)\n"
  "  u = f32[1,3] reshape(v)\n"
  "  ROOT r = f32[20,3] dynamic-update-slice(buf, u, i, z) }\n"
  "odd { i = s32[] parameter(0)\n"
  "  two = s32[] constant(2)\n"
  "  m = s32[] remainder(i, two)\n"
  "  z = s32[] constant(0)\n"
  "  ROOT r = pred[] compare(m, z), direction=NE }\n"
  "neg { v = f32[3] parameter(0)\n"
  "  ROOT r = f32[3] negate(v) }\n"
  "add { v = f32[3] parameter(0)\n"
  "  ROOT r = f32[3] add(v, v) }\n"
  "yes { v = f32[3] parameter(0)\n"
  "  ROOT r = f32[3] fusion(v), kind=kLoop, calls=neg }\n"
  "no { v = f32[3] parameter(0)\n"
  "  ROOT r = f32[3] fusion(v), kind=kLoop, calls=add }\n"
  "less { i = s32[] parameter(0)\n"
  "  n = s32[] constant(20)\n"
  "  ROOT r = pred[] compare(i, n), direction=LT }\n"
  "body { s = (s32[], f32[3], f32[20,3], f32[]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  v = f32[3] get-tuple-element(s), index=1\n"
  "  buf = f32[20,3] get-tuple-element(s), index=2\n"
  "  keep = f32[] get-tuple-element(s), index=3\n"
  "  o = pred[] fusion(i), kind=kLoop, calls=odd\n"
  "  w = f32[3] conditional(o, v, v), true_computation=yes, false_computation=no\n"
  "  x = f32[3] fusion(w), kind=kLoop, calls=mix\n"
  "  y = f32[20,3] fusion(buf, x, i), kind=kCustom, calls=put, backend_config=\"dus\", output_to_operand_aliasing={{}: (0, {})}\n"
  "  j = s32[] fusion(i), kind=kLoop, calls=inc\n"
  "  ROOT t = (s32[], f32[3], f32[20,3], f32[]) tuple(j, x, y, keep) }\n"
  "cond { s = (s32[], f32[3], f32[20,3], f32[]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  ROOT r = pred[] fusion(i), kind=kLoop, calls=less }\n"
  "region { a = f32[3] parameter(0)\n"
  "  b = f32[20,3] parameter(1)\n"
  "  k = f32[] parameter(2)\n"
  "  z = s32[] constant(0)\n"
  "  init = (s32[], f32[3], f32[20,3], f32[]) tuple(z, a, b, k)\n"
  "  ROOT w = (s32[], f32[3], f32[20,3], f32[]) while(init), condition=cond, body=body }\n"
  "ENTRY e { a = f32[3] parameter(0)\n"
  "  b = f32[20,3] parameter(1)\n"
  "  k = f32[] parameter(2)\n"
  "  ROOT r = (s32[], f32[3], f32[20,3], f32[]) fusion(a, b, k), kind=kCustom, calls=region, backend_config=\"region\" }\n";

TEST(a_loop_with_state_updates_and_branches) { check_kernel(loop_text, NULL); }

TEST(a_loop_that_updates_its_operands_in_place)
{
  char text[sizeof loop_text + 200];
  snprintf(text, sizeof text, "%s", loop_text);
  char *tail = strstr(text, ", backend_config=\"region\"");
  sprintf(tail, ", backend_config=\"region\", output_to_operand_aliasing={{1}: (0, {}), {2}: (1, {})} }\n");
  check_kernel(text, NULL);
  check_kernel(text, &(kernel_check){.donate = true});
}

/* Values that change places every iteration, a constant in the state, and results that are operands. */
TEST(state_that_swaps_and_passes_through)
{
  check_kernel(
    "HloModule t\n"
    "inc { p = s32[] parameter(0)\n"
    "  one = s32[] constant(1)\n"
    "  ROOT r = s32[] add(p, one) }\n"
    "less { i = s32[] parameter(0)\n"
    "  n = s32[] constant(7)\n"
    "  ROOT r = pred[] compare(i, n), direction=LT }\n"
    "body { s = (s32[], f32[40], f32[40], f32[2]) parameter(0)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  a = f32[40] get-tuple-element(s), index=1\n"
    "  b = f32[40] get-tuple-element(s), index=2\n"
    "  c = f32[2] constant({3, 4})\n"
    "  j = s32[] fusion(i), kind=kLoop, calls=inc\n"
    "  ROOT t = (s32[], f32[40], f32[40], f32[2]) tuple(j, b, a, c) }\n"
    "cond { s = (s32[], f32[40], f32[40], f32[2]) parameter(0)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  ROOT r = pred[] fusion(i), kind=kLoop, calls=less }\n"
    "region { a = f32[40] parameter(0)\n"
    "  b = f32[40] parameter(1)\n"
    "  c = f32[2] parameter(2)\n"
    "  z = s32[] parameter(3)\n"
    "  init = (s32[], f32[40], f32[40], f32[2]) tuple(z, a, b, c)\n"
    "  w = (s32[], f32[40], f32[40], f32[2]) while(init), condition=cond, body=body\n"
    "  x = f32[40] get-tuple-element(w), index=1\n"
    "  y = f32[2] get-tuple-element(w), index=3\n"
    "  ROOT t = (f32[40], f32[2], f32[40], f32[40]) tuple(x, y, b, x) }\n"
    "ENTRY e { a = f32[40] parameter(0)\n"
    "  b = f32[40] parameter(1)\n"
    "  c = f32[2] parameter(2)\n"
    "  z = s32[] parameter(3)\n"
    "  ROOT r = (f32[40], f32[2], f32[40], f32[40]) fusion(a, b, c, z), kind=kCustom, calls=region, backend_config=\"region\" }\n",
    &(kernel_check){.int_low = -3, .int_high = 9});
}

TEST(branches_by_index_calls_and_reductions)
{
  check_kernel(
    "HloModule t\n"
    "add { x = f64[] parameter(0)\n"
    "  y = f64[] parameter(1)\n"
    "  ROOT r = f64[] add(x, y) }\n"
    "sum { v = f64[50,60] parameter(0)\n"
    "  z = f64[] constant(0)\n"
    "  ROOT r = f64[50] reduce(v, z), dimensions={1}, to_apply=add }\n"
    "exp { v = f64[50] parameter(0)\n"
    "  ROOT r = f64[50] exponential(v) }\n"
    "b0 { p = (f64[50], f64[50]) parameter(0)\n"
    "  v = f64[50] get-tuple-element(p), index=0\n"
    "  w = f64[50] fusion(v), kind=kLoop, calls=exp\n"
    "  ROOT t = (f64[50], f64[50]) tuple(w, v) }\n"
    "b1 { p = f64[50] parameter(0)\n"
    "  c = f64[50] constant({...})\n"
    "  ROOT t = (f64[50], f64[50]) tuple(p, p) }\n"
    "b2 { p = f64[50] parameter(0)\n"
    "  w = f64[50] fusion(p), kind=kLoop, calls=exp\n"
    "  ROOT t = (f64[50], f64[50]) tuple(w, p) }\n"
    "callee { p = f64[50,60] parameter(0)\n"
    "  ROOT s = f64[50] fusion(p), kind=kInput, calls=sum }\n"
    "region { m = f64[50,60] parameter(0)\n"
    "  i = s32[] parameter(1)\n"
    "  s = f64[50] call(m), to_apply=callee\n"
    "  two = (f64[50], f64[50]) tuple(s, s)\n"
    "  c = (f64[50], f64[50]) conditional(i, two, s, s), branch_computations={b0, b1, b2}\n"
    "  x = f64[50] get-tuple-element(c), index=0\n"
    "  y = f64[50] get-tuple-element(c), index=1\n"
    "  ROOT t = (f64[50], f64[50], f64[50]) tuple(x, y, s) }\n"
    "ENTRY e { m = f64[50,60] parameter(0)\n"
    "  i = s32[] parameter(1)\n"
    "  ROOT r = (f64[50], f64[50], f64[50]) fusion(m, i), kind=kCustom, calls=region, backend_config=\"region\" }\n",
    &(kernel_check){.int_low = -1, .int_high = 4, .low = -0.1, .high = 0.1});
}

/* Both loops end a round with a copy into their state. Instead of copying, the region exchanges two buffers; after any
 * number of rounds the state is in the buffer where later steps read it. */
TEST(loops_that_make_their_state_anew)
{
  static const char text[] =
    "HloModule t\n"
    "inc { p = s32[] parameter(0)\n"
    "  one = s32[] constant(1)\n"
    "  ROOT r = s32[] add(p, one) }\n"
    "next { v = f32[203] parameter(0)\n"
    "  k = f32[] constant(0.5)\n"
    "  b = f32[203] broadcast(k), dimensions={}\n"
    "  s = f32[203] sine(v)\n"
    "  t = f32[203] reverse(s), dimensions={0}\n"
    "  u = f32[203] subtract(b, t)\n"
    "  ROOT r = f32[203] multiply(u, b) }\n"
    "less { i = s32[] parameter(0)\n"
    "  n = s32[] parameter(1)\n"
    "  ROOT r = pred[] compare(i, n), direction=LT }\n"
    "cond { s = (s32[], s32[], f32[203]) parameter(0)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  n = s32[] get-tuple-element(s), index=1\n"
    "  ROOT r = pred[] fusion(i, n), kind=kLoop, calls=less }\n"
    "inner { s = (s32[], s32[], f32[203]) parameter(0)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  n = s32[] get-tuple-element(s), index=1\n"
    "  v = f32[203] get-tuple-element(s), index=2\n"
    "  x = f32[203] fusion(v), kind=kLoop, calls=next\n"
    "  j = s32[] fusion(i), kind=kLoop, calls=inc\n"
    "  c = f32[203] copy(x)\n"
    "  ROOT t = (s32[], s32[], f32[203]) tuple(j, n, c) }\n"
    "outer { s = (s32[], s32[], f32[203]) parameter(0)\n"
    "  i = s32[] get-tuple-element(s), index=0\n"
    "  n = s32[] get-tuple-element(s), index=1\n"
    "  v = f32[203] get-tuple-element(s), index=2\n"
    "  z = s32[] constant(0)\n"
    "  start = s32[] copy(z)\n"
    "  init = (s32[], s32[], f32[203]) tuple(start, n, v)\n"
    "  w = (s32[], s32[], f32[203]) while(init), condition=cond, body=inner\n"
    "  y = f32[203] get-tuple-element(w), index=2\n"
    "  x = f32[203] fusion(y), kind=kLoop, calls=next\n"
    "  j = s32[] fusion(i), kind=kLoop, calls=inc\n"
    "  c = f32[203] copy(x)\n"
    "  ROOT t = (s32[], s32[], f32[203]) tuple(j, n, c) }\n"
    "region { a = f32[203] parameter(0)\n"
    "  n = s32[] parameter(1)\n"
    "  z = s32[] constant(0)\n"
    "  start = s32[] copy(z)\n"
    "  b = f32[203] copy(a)\n"
    "  init = (s32[], s32[], f32[203]) tuple(start, n, b)\n"
    "  w = (s32[], s32[], f32[203]) while(init), condition=cond, body=outer\n"
    "  y = f32[203] get-tuple-element(w), index=2\n"
    "  x = f32[203] fusion(y), kind=kLoop, calls=next\n"
    "  ROOT t = (f32[203], f32[203]) tuple(y, x) }\n"
    "ENTRY e { a = f32[203] parameter(0)\n"
    "  n = s32[] parameter(1)\n"
    "  ROOT r = (f32[203], f32[203]) fusion(a, n), kind=kCustom, calls=region, backend_config=\"region\" }\n";

  for (int rounds = 0; rounds < 5; rounds++)
    check_kernel(text, &(kernel_check){.int_low = rounds, .int_high = rounds + 1});
}

TEST(what_a_region_cannot_hold_is_named)
{
  T_FAILS(compile_text("HloModule t\n"
                       "lt { x = f32[] parameter(0)\n"
                       "  y = f32[] parameter(1)\n"
                       "  ROOT r = pred[] compare(x, y), direction=LT }\n"
                       "region { m = f32[50] parameter(0)\n"
                       "  ROOT s = f32[50] sort(m), dimensions={0}, to_apply=lt }\n"
                       "ENTRY e { m = f32[50] parameter(0)\n"
                       "  ROOT r = f32[50] fusion(m), kind=kCustom, calls=region, backend_config=\"region\" }\n"),
          "sort in a region");
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(a_loop_with_state_updates_and_branches), UNIT(a_loop_that_updates_its_operands_in_place),
    UNIT(state_that_swaps_and_passes_through), UNIT(loops_that_make_their_state_anew),
    UNIT(branches_by_index_calls_and_reductions), UNIT(what_a_region_cannot_hold_is_named),
  };
  return cmocka_run_group_tests(units, NULL, NULL);
}
