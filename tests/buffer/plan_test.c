/* tests/buffer/plan_test.c -- the memory plan: no two live values overlap, and the sizes are what they should be. */
#include "test.h"

#include "buffer/plan.h"
#include "hlo/hlo.h"
#include "hlo/text.h"
#include "passes/passes.h"

/* Runs copy insertion and returns the module; *out_copies is the number of copies that the module then has. */
static hlo_module *prepare(const char *text, int *out_copies)
{
  static const struct pass_entry entries[] = {{.pass = &pass_copy_insertion}};
  static const pass_pipeline pipeline = {"test", entries, 1, 1};
  pass_options options = {0};
  hlo_module *module;

  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(pass_run(&pipeline, module, &options, NULL, NULL));
  *out_copies = 0;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) *out_copies += instr->op == HLO_COPY;
  return module;
}

/* A plan of a draft is what a plan at once is. */
static void check_draft(const hlo_module *module, const buf_options *options, const buf_stats *stats)
{
  buf_plan *p;

  T_OK(buf_plan_draft(module, options, &p));
  T_OK(buf_plan_place(p, options));
  T_OK(buf_plan_check(p));
  assert_int_equal(buf_plan_stats(p)->temp_bytes, stats->temp_bytes);
  assert_int_equal(buf_plan_stats(p)->value_bytes, stats->value_bytes);
  assert_int_equal(buf_plan_stats(p)->buffer_count, stats->buffer_count);
  assert_int_equal(buf_plan_stats(p)->reused_count, stats->reused_count);
  assert_true(buf_plan_stats(p)->critical_path == stats->critical_path);
  buf_plan_free(p);
}

static buf_stats plan_with(const hlo_module *module, buf_options options)
{
  buf_plan *p;

  T_OK(buf_plan_new(module, &options, &p));
  T_OK(buf_plan_check(p));
  buf_stats stats = *buf_plan_stats(p);
  buf_plan_free(p);
  check_draft(module, &options, &stats);
  return stats;
}

/* In a draft no two steps use the same bytes but where one reads what the other wrote. */
static void drafts_share_no_memory(void **state)
{
  hlo_module *module;
  buf_plan *p;
  buf_options options = {0};
  int copies;
  (void)state;

  module = prepare("HloModule m, is_scheduled=true\n"
                   "ENTRY e {\n"
                   "  p = f32[8,8] parameter(0)\n"
                   "  a = f32[8,8] transpose(p), dimensions={1,0}\n"
                   "  b = f32[8,8] transpose(a), dimensions={1,0}\n"
                   "  c = f32[8,8] transpose(b), dimensions={1,0}\n"
                   "  ROOT d = f32[8,8] transpose(c), dimensions={1,0}\n"
                   "}\n",
                   &copies);
  assert_int_equal(plan_with(module, options).temp_bytes, 512); /* the plan puts c where a was */
  T_OK(buf_plan_draft(module, &options, &p));
  const hlo_instr *c = module->entry->root->operands[0], *b = c->operands[0], *a = b->operands[0];
  const hlo_instr *values[] = {a, b, c};
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < i; k++) {
      buf_slice x = buf_plan_slice(p, values[i], 0), y = buf_plan_slice(p, values[k], 0);
      assert_true(x.alloc != y.alloc || x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset);
    }
  buf_plan_free(p);
  hlo_module_free(module);
}

static buf_stats plan(const hlo_module *module, buf_order order, int64_t budget)
{
  return plan_with(module, (buf_options){.order = order, .budget_bytes = budget});
}

static const struct {
  const char *name;
  int copies; /* that must be there in the end */
  const char *text;
} programs[] = {
  {"a scan's carry needs no copy", 2, /* of the two constants that start it */
   "HloModule m, is_scheduled=true\n"
   "body {\n"
   "  p = (s32[], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[8] get-tuple-element(p), index=1\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  y = f32[8] sine(x)\n"
   "  ROOT t = (s32[], f32[8]) tuple(j, y)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(5)\n"
   "  ROOT lt = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "ENTRY e {\n"
   "  z = s32[] constant(0)\n"
   "  c = f32[] constant(1)\n"
   "  a = f32[8] parameter(0) \n"
   "  t = (s32[], f32[8]) tuple(z, a)\n"
   "  w = (s32[], f32[8]) while(t), body=body, condition=cond\n"
   "  ROOT r = f32[8] get-tuple-element(w), index=1\n"
   "}\n"},
  {"two carried values that swap", 5, /* their two entries and the counter's, and one copy more than two for the swap */
   "HloModule m, is_scheduled=true\n"
   "body {\n"
   "  p = (s32[], f32[8], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[8] get-tuple-element(p), index=1\n"
   "  y = f32[8] get-tuple-element(p), index=2\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  ROOT t = (s32[], f32[8], f32[8]) tuple(j, y, x)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[8], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(5)\n"
   "  ROOT lt = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "ENTRY e {\n"
   "  z = s32[] constant(0)\n"
   "  a = f32[8] parameter(0)\n"
   "  b = f32[8] sine(a)\n"
   "  t = (s32[], f32[8], f32[8]) tuple(z, a, b)\n"
   "  w = (s32[], f32[8], f32[8]) while(t), body=body, condition=cond\n"
   "  x = f32[8] get-tuple-element(w), index=1\n"
   "  y = f32[8] get-tuple-element(w), index=2\n"
   "  ROOT r = (f32[8], f32[8]) tuple(x, y)\n"
   "}\n"},
  {"an invariant of a loop is not copied, even a parameter", 1,
   "HloModule m, is_scheduled=true\n"
   "body {\n"
   "  p = (s32[], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[8] get-tuple-element(p), index=1\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  ROOT t = (s32[], f32[8]) tuple(j, x)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(5)\n"
   "  ROOT lt = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "ENTRY e {\n"
   "  z = s32[] constant(0)\n"
   "  a = f32[8] parameter(0)\n"
   "  t = (s32[], f32[8]) tuple(z, a)\n"
   "  w = (s32[], f32[8]) while(t), body=body, condition=cond\n"
   "  x = f32[8] get-tuple-element(w), index=1\n"
   "  ROOT r = f32[8] sine(x)\n"
   "}\n"},
  {"a donated parameter carries the loop's state to the result", 1,
   "HloModule m, is_scheduled=true, input_output_alias={ {}: (0, {}, may-alias) }\n"
   "body {\n"
   "  p = (s32[], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[8] get-tuple-element(p), index=1\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  y = f32[8] sine(x)\n"
   "  ROOT t = (s32[], f32[8]) tuple(j, y)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(5)\n"
   "  ROOT lt = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "ENTRY e {\n"
   "  z = s32[] constant(0)\n"
   "  a = f32[8] parameter(0)\n"
   "  t = (s32[], f32[8]) tuple(z, a)\n"
   "  w = (s32[], f32[8]) while(t), body=body, condition=cond\n"
   "  ROOT r = f32[8] get-tuple-element(w), index=1\n"
   "}\n"},
  {"donated parameters returned crosswise", 3,
   "HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }\n"
   "ENTRY e {\n"
   "  a = f32[8] parameter(0)\n"
   "  b = f32[8] parameter(1)\n"
   "  ROOT t = (f32[8], f32[8]) tuple(b, a)\n"
   "}\n"},
  {"a parameter and a constant as results, one of them twice", 3,
   "HloModule m, is_scheduled=true\n"
   "ENTRY e {\n"
   "  a = f32[8] parameter(0)\n"
   "  c = f32[] constant(2)\n"
   "  ROOT t = (f32[8], f32[], f32[8]) tuple(a, c, a)\n"
   "}\n"},
  {"an update in place of a value that dies", 0,
   "HloModule m, is_scheduled=true\n"
   "f {\n"
   "  p0 = f32[8] parameter(0)\n"
   "  p1 = f32[1] parameter(1)\n"
   "  p2 = s32[] parameter(2)\n"
   "  ROOT d = f32[8] dynamic-update-slice(p0, p1, p2)\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[8] parameter(0)\n"
   "  u = f32[1] parameter(1)\n"
   "  i = s32[] parameter(2)\n"
   "  b = f32[8] sine(a)\n"
   "  ROOT d = f32[8] fusion(b, u, i), kind=kLoop, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
   "}\n"},
  {"an update in place of a value that is read later", 1,
   "HloModule m, is_scheduled=true\n"
   "f {\n"
   "  p0 = f32[8] parameter(0)\n"
   "  p1 = f32[1] parameter(1)\n"
   "  p2 = s32[] parameter(2)\n"
   "  ROOT d = f32[8] dynamic-update-slice(p0, p1, p2)\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[8] parameter(0)\n"
   "  u = f32[1] parameter(1)\n"
   "  i = s32[] parameter(2)\n"
   "  b = f32[8] sine(a)\n"
   "  d = f32[8] fusion(b, u, i), kind=kLoop, calls=f, output_to_operand_aliasing={{}: (0, {})}\n"
   "  ROOT r = f32[8] add(d, b)\n"
   "}\n"},
  {"a conditional whose branch hands its operand on", 1,
   "HloModule m, is_scheduled=true\n"
   "yes {\n"
   "  p = f32[8] parameter(0)\n"
   "  ROOT s = f32[8] sine(p)\n"
   "}\n"
   "no { ROOT p = f32[8] parameter(0) }\n"
   "ENTRY e {\n"
   "  a = f32[8] parameter(0)\n"
   "  q = pred[] parameter(1)\n"
   "  b = f32[8] cosine(a)\n"
   "  c = f32[8] conditional(q, b, b), true_computation=yes, false_computation=no\n"
   "  ROOT r = f32[8] add(c, b)\n"
   "}\n"},
  {"a conditional renews loop state that only its later branch reads", 8,
   "HloModule m, is_scheduled=true\n"
   "yes {\n"
   "  p = f32[8] parameter(0)\n"
   "  ROOT s = f32[8] sine(p)\n"
   "}\n"
   "no {\n"
   "  p = f32[8] parameter(0)\n"
   "  ROOT s = f32[8] cosine(p)\n"
   "}\n"
   "body {\n"
   "  p = (s32[], f32[8], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[8] get-tuple-element(p), index=1\n"
   "  y = f32[8] get-tuple-element(p), index=2\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  c = f32[8] conditional(i, y, x), branch_computations={yes, no}\n"
   "  ROOT t = (s32[], f32[8], f32[8]) tuple(j, c, y)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[8], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(5)\n"
   "  ROOT lt = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "ENTRY e {\n"
   "  z = s32[] constant(0)\n"
   "  a = f32[8] parameter(0)\n"
   "  b = f32[8] sine(a)\n"
   "  t = (s32[], f32[8], f32[8]) tuple(z, a, b)\n"
   "  w = (s32[], f32[8], f32[8]) while(t), body=body, condition=cond\n"
   "  ROOT x = f32[8] get-tuple-element(w), index=1\n"
   "}\n"},
  {"a conditional renews loop state or hands it on", 8,
   "HloModule m, is_scheduled=true\n"
   "yes {\n"
   "  p = f32[8] parameter(0)\n"
   "  ROOT s = f32[8] sine(p)\n"
   "}\n"
   "no { ROOT p = f32[8] parameter(0) }\n"
   "body {\n"
   "  p = (s32[], f32[8], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[8] get-tuple-element(p), index=1\n"
   "  y = f32[8] get-tuple-element(p), index=2\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  c = f32[8] conditional(i, y, x), branch_computations={yes, no}\n"
   "  ROOT t = (s32[], f32[8], f32[8]) tuple(j, c, y)\n"
   "}\n"
   "cond {\n"
   "  p = (s32[], f32[8], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(5)\n"
   "  ROOT lt = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "ENTRY e {\n"
   "  z = s32[] constant(0)\n"
   "  a = f32[8] parameter(0)\n"
   "  b = f32[8] sine(a)\n"
   "  t = (s32[], f32[8], f32[8]) tuple(z, a, b)\n"
   "  w = (s32[], f32[8], f32[8]) while(t), body=body, condition=cond\n"
   "  ROOT x = f32[8] get-tuple-element(w), index=1\n"
   "}\n"},
  {"several results over operands that all of them read", 0,
   "HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }\n"
   "f {\n"
   "  m = f32[8] parameter(0)\n"
   "  p = f32[8] parameter(1)\n"
   "  g = f32[8] parameter(2)\n"
   "  n = f32[8] add(m, g)\n"
   "  q = f32[8] multiply(n, p)\n"
   "  r = f32[8] subtract(q, m)\n"
   "  ROOT t = (f32[8], f32[8]) tuple(n, r)\n"
   "}\n"
   "ENTRY e {\n"
   "  m = f32[8] parameter(0)\n"
   "  p = f32[8] parameter(1)\n"
   "  g = f32[8] parameter(2)\n"
   "  ROOT u = (f32[8], f32[8]) fusion(m, p, g), kind=kLoop, calls=f\n"
   "}\n"},
  {"results of different lengths are written one after the other", 1,
   "HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }\n"
   "f {\n"
   "  m = f32[8] parameter(0)\n"
   "  n = f32[8] negate(m)\n"
   "  s = f32[4] slice(m), slice={[0:4]}\n"
   "  ROOT t = (f32[8], f32[4]) tuple(n, s)\n"
   "}\n"
   "ENTRY e {\n"
   "  m = f32[8] parameter(0)\n"
   "  ROOT u = (f32[8], f32[4]) fusion(m), kind=kLoop, calls=f\n"
   "}\n"},
  {"a call's result", 0,
   "HloModule m, is_scheduled=true\n"
   "f {\n"
   "  p = f32[8] parameter(0)\n"
   "  ROOT s = f32[8] sine(p)\n"
   "}\n"
   "ENTRY e {\n"
   "  a = f32[8] parameter(0)\n"
   "  b = f32[8] call(a), to_apply=f\n"
   "  ROOT r = f32[8] cosine(b)\n"
   "}\n"},
  {"loops in loops", 2,
   "HloModule m, is_scheduled=true\n"
   "ib {\n"
   "  p = (s32[], f32[8], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[8] get-tuple-element(p), index=1\n"
   "  k = f32[8] get-tuple-element(p), index=2\n"
   "  one = s32[] constant(1)\n"
   "  j = s32[] add(i, one)\n"
   "  s = f32[8] sine(x)\n"
   "  y = f32[8] add(s, k)\n"
   "  ROOT t = (s32[], f32[8], f32[8]) tuple(j, y, k)\n"
   "}\n"
   "ic {\n"
   "  p = (s32[], f32[8], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(5)\n"
   "  ROOT lt = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "ob {\n"
   "  p = (s32[], f32[8], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  x = f32[8] get-tuple-element(p), index=1\n"
   "  k = f32[8] get-tuple-element(p), index=2\n"
   "  one = s32[] constant(1)\n"
   "  z = s32[] constant(0)\n"
   "  it = (s32[], f32[8], f32[8]) tuple(z, x, k)\n"
   "  w = (s32[], f32[8], f32[8]) while(it), body=ib, condition=ic\n"
   "  j = s32[] add(i, one)\n"
   "  y = f32[8] get-tuple-element(w), index=1\n"
   "  ROOT t = (s32[], f32[8], f32[8]) tuple(j, y, k)\n"
   "}\n"
   "oc {\n"
   "  p = (s32[], f32[8], f32[8]) parameter(0)\n"
   "  i = s32[] get-tuple-element(p), index=0\n"
   "  n = s32[] constant(5)\n"
   "  ROOT lt = pred[] compare(i, n), direction=LT\n"
   "}\n"
   "ENTRY e {\n"
   "  z = s32[] constant(0)\n"
   "  a = f32[8] parameter(0)\n"
   "  s = f32[8] sine(a)\n"
   "  t = (s32[], f32[8], f32[8]) tuple(z, s, a)\n"
   "  w = (s32[], f32[8], f32[8]) while(t), body=ob, condition=oc\n"
   "  ROOT r = f32[8] get-tuple-element(w), index=1\n"
   "}\n"},
};

TEST(copies_are_those_that_sharing_needs)
{
  for (size_t i = 0; i < WEFT_COUNT(programs); i++) {
    int copies;
    hlo_module *module = prepare(programs[i].text, &copies);
    for (buf_order order = BUF_TOPOLOGICAL; order <= BUF_BUDGET; order++) plan(module, order, 0);
    if (copies > programs[i].copies) {
      WEFT_AUTO_STR text = NULL;
      T_OK(hlo_print_to_string(module, HLO_PRINT_DEFAULT, &text, &(size_t){0}));
      fail_msg("%s: %d copies, want at most %d\n%s", programs[i].name, copies, programs[i].copies, text);
    }
    hlo_module_free(module);
  }
}

/* Two independent chains. An order by dependence gives each its own memory; an order by the schedule lets them
 * share. */
static hlo_module *chains(int width, int length, int64_t bytes)
{
  hlo_module *module;
  hlo_computation *comp;
  hlo_instr *at[16], *sum;

  T_OK(hlo_module_new("chains", &module));
  T_OK(hlo_computation_new(module, "e", &comp));
  module->entry = comp;
  module->is_scheduled = true;
  const hlo_shape *shape = hlo_shape_array(&module->arena, WEFT_U8, 1, &bytes);
  T_OK(hlo_add_parameter(comp, 0, shape, "a", &sum));
  for (int w = 0; w < width; w++) at[w] = sum;
  for (int w = 0; w < width; w++)      /* one chain after the other in the schedule */
    for (int i = 0; i < length; i++) { /* reverse cannot work in place */
      T_OK(hlo_add_unary(comp, NULL, HLO_REVERSE, at[w], &at[w]));
      T_OK(hlo_ints_new(module, 1, &(int64_t){0}, &at[w]->dims));
    }
  sum = at[0];
  for (int w = 1; w < width; w++) T_OK(hlo_add_binary(comp, NULL, HLO_ADD, sum, at[w], &sum));
  comp->root = sum;
  return module;
}

TEST(topological_adds_no_dependence_and_sequential_is_smallest)
{
  hlo_module *module = chains(4, 10, 1 << 20);
  buf_stats topological = plan(module, BUF_TOPOLOGICAL, 0), sequential = plan(module, BUF_SEQUENTIAL, 0);

  T_EQ_INT(topological.added_edge_count, 0);
  T_EQ_INT(topological.temp_bytes, 8 << 20); /* two a chain */
  T_EQ_INT(sequential.temp_bytes, sequential.lower_bound_bytes);
  T_TRUE(sequential.added_edge_count > 0);
  T_TRUE(sequential.critical_path > topological.critical_path);
  buf_stats budget = plan(module, BUF_BUDGET, 7 << 20);
  T_TRUE(budget.temp_bytes <= 7 << 20);
  T_TRUE(budget.critical_path <= sequential.critical_path);
  hlo_module_free(module);
}

TEST(steps_that_run_in_order_share_by_the_schedule)
{
  hlo_module *module = chains(4, 10, 1 << 20);
  const bool in_order[] = {true, true};
  T_TRUE(module->next_computation_id <= 2);
  buf_stats by_order = plan_with(module, (buf_options){.order = BUF_TOPOLOGICAL, .in_order = in_order});

  T_EQ_INT(by_order.temp_bytes, plan(module, BUF_SEQUENTIAL, 0).temp_bytes);
  T_EQ_INT(by_order.added_edge_count, 0);
  hlo_module_free(module);
}

static bool is_all_reduce(void *ctx, const hlo_instr *instr)
{
  (void)ctx;
  return instr->op == HLO_ALL_REDUCE;
}

static void check_collective_arena(const hlo_module *module, const buf_plan *p)
{
  const buf_stats *stats = buf_plan_stats(p);
  int arena = buf_plan_collective_alloc(p), inside = 0;

  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op != HLO_ALL_REDUCE) continue;
      if (buf_plan_slice(p, instr, 0).alloc != arena) fail_msg("%s is in the wrong arena", instr->name);
      if (buf_plan_slice(p, instr->operands[0], 0).alloc != arena) fail_msg("%s's operand is", instr->name);
      inside++;
    }
  T_EQ_INT(inside, 3);
  T_TRUE(stats->temp_bytes > stats->collective_bytes); /* the loop's counter */
  T_EQ_INT(buf_plan_alloc(p, arena)->kind, BUF_COLLECTIVE);
  T_EQ_INT(buf_plan_alloc(p, arena)->bytes, stats->collective_bytes);
  T_EQ_INT(buf_plan_alloc(p, buf_plan_temp_alloc(p))->bytes, stats->temp_bytes - stats->collective_bytes);
  T_TRUE(stats->collective_bytes >= 256 && stats->collective_bytes <= 4 * 256); /* of six values */
}

/* What collectives read and write lies in an arena of its own, also inside loops, and is reused there. */
TEST(collectives_have_an_arena)
{
  static const buf_order orders[] = {BUF_TOPOLOGICAL, BUF_SEQUENTIAL, BUF_BUDGET};
  hlo_module *module;
  buf_plan *p;
  int copies;

  module = prepare("HloModule m, is_scheduled=true\n"
                   "add {\n"
                   "  a = f32[] parameter(0)\n"
                   "  b = f32[] parameter(1)\n"
                   "  ROOT s = f32[] add(a, b)\n"
                   "}\n"
                   "body {\n"
                   "  p = (s32[], f32[64]) parameter(0)\n"
                   "  i = s32[] get-tuple-element(p), index=0\n"
                   "  x = f32[64] get-tuple-element(p), index=1\n"
                   "  one = s32[] constant(1)\n"
                   "  j = s32[] add(i, one)\n"
                   "  m = f32[64] multiply(x, x)\n"
                   "  r = f32[64] all-reduce(m), replica_groups={}, to_apply=add\n"
                   "  q = f32[64] sine(r)\n"
                   "  ROOT t = (s32[], f32[64]) tuple(j, q)\n"
                   "}\n"
                   "cond {\n"
                   "  p = (s32[], f32[64]) parameter(0)\n"
                   "  i = s32[] get-tuple-element(p), index=0\n"
                   "  n = s32[] constant(5)\n"
                   "  ROOT l = pred[] compare(i, n), direction=LT\n"
                   "}\n"
                   "ENTRY e {\n"
                   "  p = f32[64] parameter(0)\n"
                   "  z = s32[] constant(0)\n"
                   "  a = f32[64] cosine(p)\n"
                   "  u = f32[64] all-reduce(a), replica_groups={}, to_apply=add\n"
                   "  b = f32[64] sine(u)\n"
                   "  c = f32[64] all-reduce(b), replica_groups={}, to_apply=add\n"
                   "  d = f32[64] sine(c)\n"
                   "  t = (s32[], f32[64]) tuple(z, d)\n"
                   "  w = (s32[], f32[64]) while(t), condition=cond, body=body\n"
                   "  y = f32[64] get-tuple-element(w), index=1\n"
                   "  ROOT r = f32[64] reverse(y), dimensions={0}\n"
                   "}\n",
                   &copies);
  for (size_t o = 0; o < WEFT_COUNT(orders); o++) {
    buf_options options = {.order = orders[o], .budget_bytes = 64, .is_collective = is_all_reduce};
    T_OK(buf_plan_new(module, &options, &p));
    T_OK(buf_plan_check(p));
    check_collective_arena(module, p);
    buf_plan_free(p);
  }
  buf_stats with = plan_with(module, (buf_options){.order = BUF_TOPOLOGICAL, .is_collective = is_all_reduce});
  buf_stats without = plan_with(module, (buf_options){.order = BUF_TOPOLOGICAL});
  T_EQ_INT(without.collective_bytes, 0);
  T_EQ_INT(with.added_edge_count, 0);
  hlo_module_free(module);
}

/* x + sum(x): the sum reads x too, but has ended when the addition starts. The step that reads y is not ordered with
 * the others. */
TEST(an_operand_is_overwritten_once_all_its_readers_are_done)
{
  static const char start[] = "HloModule m, is_scheduled=true\n"
                              "add {\n"
                              "  a = f32[] parameter(0)\n"
                              "  b = f32[] parameter(1)\n"
                              "  ROOT c = f32[] add(a, b)\n"
                              "}\n"
                              "ENTRY e {\n"
                              "  p = f32[1000] parameter(0)\n"
                              "  zero = f32[] constant(0)\n"
                              "  x = f32[1000] sine(p)\n";
  static const char *const ends[] = {
    " s = f32[] reduce(x, zero), dimensions={0}, to_apply=add\n"
    " b = f32[1000] broadcast(s), dimensions={}\n"
    " y = f32[1000] add(x, b)\n"
    " ROOT r = f32[1000] reverse(y), dimensions={0}\n"
    "}\n",
    " s = f32[] reduce(x, zero), dimensions={0}, to_apply=add\n"
    " y = f32[1000] cosine(x)\n"
    " z = f32[1000] reverse(y), dimensions={0}\n"
    " ROOT r = (f32[1000], f32[]) tuple(z, s)\n"
    "}\n",
  };
  static const int buffers[] = {3, 2}; /* x and y in one, s, b; x, y */

  for (int i = 0; i < 2; i++) {
    char text[1000];
    int copies;
    snprintf(text, sizeof text, "%s%s", start, ends[i]);
    hlo_module *module = prepare(text, &copies);
    T_EQ_INT(plan(module, BUF_TOPOLOGICAL, 0).buffer_count, buffers[i]);
    hlo_module_free(module);
  }
}

static uint64_t next_random(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

TEST(random_graphs_pass_the_checker_in_every_order)
{
  for (uint64_t seed = 1; seed <= 60; seed++) {
    uint64_t r = seed;
    hlo_module *module;
    hlo_computation *comp;
    hlo_instr *made[200];
    int count = 0, total = 5 + (int)(next_random(&r) % 190);

    T_OK(hlo_module_new("random", &module));
    T_OK(hlo_computation_new(module, "e", &comp));
    module->entry = comp;
    module->is_scheduled = true;
    for (int i = 0; i < total; i++) {
      int64_t size = 1 + (int64_t)(next_random(&r) % 2000);
      const hlo_shape *shape = hlo_shape_array(&module->arena, WEFT_U8, 1, &size);
      if (count < 2) {
        T_OK(hlo_add_parameter(comp, count, shape, NULL, &made[count]));
        count++;
        continue;
      }
      hlo_instr *operands[3];
      int operand_count = 1 + (int)(next_random(&r) % 3);
      for (int k = 0; k < operand_count; k++) {
        int back = 1 + (int)(next_random(&r) % 20);
        operands[k] = made[back > count ? 0 : count - back];
      }
      T_OK(hlo_add(comp, NULL, HLO_CONCATENATE, shape, operand_count, operands, NULL, &made[count]));
      count++;
    }
    comp->root = made[count - 1];
    buf_stats topological = plan(module, BUF_TOPOLOGICAL, 0), sequential = plan(module, BUF_SEQUENTIAL, 0);
    int64_t middle = (topological.temp_bytes + sequential.temp_bytes) / 2;
    buf_stats budget = plan(module, BUF_BUDGET, middle);
    if (topological.added_edge_count != 0 || sequential.temp_bytes > topological.temp_bytes * 11 / 10 ||
        sequential.temp_bytes < sequential.lower_bound_bytes ||
        (budget.temp_bytes > middle && budget.temp_bytes > sequential.temp_bytes))
      fail_msg("seed %d: topological %lld, sequential %lld, lower bound %lld, budget %lld for %lld", (int)seed,
               (long long)topological.temp_bytes, (long long)sequential.temp_bytes,
               (long long)sequential.lower_bound_bytes, (long long)budget.temp_bytes, (long long)middle);
    hlo_module_free(module);
  }
}

TEST_MAIN(UNIT(copies_are_those_that_sharing_needs), UNIT(topological_adds_no_dependence_and_sequential_is_smallest),
          UNIT(steps_that_run_in_order_share_by_the_schedule), UNIT(collectives_have_an_arena), UNIT(drafts_share_no_memory),
          UNIT(an_operand_is_overwritten_once_all_its_readers_are_done), UNIT(random_graphs_pass_the_checker_in_every_order))
