/* tests/passes/loop_pairs_test.c -- Loops whose state is made anew in each round: for every number of rounds the
 * pipeline keeps their meaning, copies nothing in the loop, and plans no more memory than without pass loop-pairs. */
#include "eval_compare.h"

#include "buffer/plan.h"
#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/passes.h"

/* A loop over (i, n, a, b), with what its body makes of a and b. The condition is i < `limit`. */
static const char *const shell =
  "HloModule m%s\n"
  "body {\n"
  "  s = (s32[], s32[], s32[128,128], s32[128,128]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  n = s32[] get-tuple-element(s), index=1\n"
  "  a = s32[128,128] get-tuple-element(s), index=2\n"
  "  b = s32[128,128] get-tuple-element(s), index=3\n"
  "  one = s32[] constant(1)\n"
  "  ones = s32[128,128] broadcast(one), dimensions={}\n"
  "  is = s32[128,128] broadcast(i), dimensions={}\n"
  "  next = s32[] add(i, one)\n"
  "%s"
  "  ROOT r = (s32[], s32[], s32[128,128], s32[128,128]) tuple(next, n, x, y)\n"
  "}\n"
  "cond {\n"
  "  s = (s32[], s32[], s32[128,128], s32[128,128]) parameter(0)\n"
  "  i = s32[] get-tuple-element(s), index=0\n"
  "  n = s32[] get-tuple-element(s), index=1\n"
  "  known = s32[] constant(%d)\n"
  "  ROOT c = pred[] compare(i, %s), direction=LT\n"
  "}\n"
  "ENTRY e {\n"
  "  n = s32[] parameter(0)\n"
  "  a = s32[128,128] parameter(1)\n"
  "  b = s32[128,128] parameter(2)\n"
  "  zero = s32[] constant(0)\n"
  "  s = (s32[], s32[], s32[128,128], s32[128,128]) tuple(zero, n, a, b)\n"
  "  w = (s32[], s32[], s32[128,128], s32[128,128]) while(s), condition=cond, body=body\n"
  "  i = s32[] get-tuple-element(w), index=0\n"
  "  x = s32[128,128] get-tuple-element(w), index=2\n"
  "  y = s32[128,128] get-tuple-element(w), index=3\n"
  "  ROOT r = (s32[], s32[128,128], s32[128,128]) tuple(i, x, y)\n"
  "}\n";

static const struct round_case {
  const char *name, *body;
  int copies, unknown_copies; /* large ones that stay in the loop; the same where the condition decides */
} rounds[] = {
  {"an element made anew",
   "  t = s32[128,128] transpose(a), dimensions={1,0}\n"
   "  u = s32[128,128] add(a, t)\n"
   "  x = s32[128,128] add(u, is)\n"
   "  y = s32[128,128] add(b, ones)\n", 0, 0},
  {"both made anew, from each other",
   "  t = s32[128,128] transpose(a), dimensions={1,0}\n"
   "  x = s32[128,128] add(b, t)\n"
   "  u = s32[128,128] transpose(b), dimensions={1,0}\n"
   "  v = s32[128,128] multiply(a, u)\n"
   "  y = s32[128,128] add(v, is)\n", 0, 0},
  {"an exchange",
   "  x = s32[128,128] add(b, ones)\n"
   "  y = s32[128,128] add(a, is)\n", 0, 0},
  {"a step of a wave: the last state, and the one before it",
   "  t = s32[128,128] transpose(b), dimensions={1,0}\n"
   "  u = s32[128,128] subtract(t, a)\n"
   "  y = s32[128,128] add(u, is)\n"
   "  x = s32[128,128] copy(b)\n", 0, 2},
};
static const struct { const char *header; bool known; } kinds[] = {
  {"", true}, {"", false}, {", input_output_alias={ {1}: (1, {}, may-alias), {2}: (2, {}, may-alias) }", true}};
static const int trip_counts[] = {0, 1, 2, 9, 10, 16, 17};

static int large_copies(const hlo_computation *comp)
{
  int count = 0;

  HLO_FOREACH(x, comp) {
    count += x->op == HLO_COPY && hlo_shape_total_bytes(x->shape) > 4096;
    for (int i = 0; i < x->called_count && hlo_opcode_runs_steps(x->op); i++)
      /* the branch that only hands the state on is taken once */
      if (strncmp(x->called[i]->name, "same_state", 10) != 0) count += large_copies(x->called[i]);
  }
  return count;
}

static int copies_in_loops(const hlo_module *module)
{
  int count = 0;

  HLO_FOREACH(x, module->entry)
    if (x->op == HLO_WHILE) count += large_copies(x->called[0]);
  return count;
}

static int64_t planned_bytes(const hlo_module *module)
{
  WEFT_AUTO(buf_plan) plan = NULL;

  T_OK(buf_plan_new(module, &(buf_options){.order = BUF_TOPOLOGICAL}, &plan));
  T_OK(buf_plan_check(plan));
  return buf_plan_stats(plan)->temp_bytes;
}

static void check(const char *text, const char *what, int trips, int copies)
{
  WEFT_AUTO(hlo_module) module = NULL;
  WEFT_AUTO(hlo_module) without = NULL;
  pass_options options = {.fold_limit_bytes = 1 << 12, .num_threads = 2};
  hlo_eval_options eval = {.deadline = WEFT_NO_DEADLINE};
  const hlo_literal *arguments[3], *before, *after;
  hlo_literal *limit;
  uint64_t state = 5;
  weft_arena arena;

  weft_arena_init(&arena);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(hlo_verify(module));
  T_OK(hlo_module_clone(module, &without));
  for (int i = 0; i < 3; i++) arguments[i] = random_literal(&arena, module->entry->params[i]->shape, &state);
  T_OK(hlo_literal_new(&arena, module->entry->params[0]->shape, &limit));
  hlo_literal_set_s64(limit, 0, trips);
  arguments[0] = limit;

  T_OK(hlo_eval_module(module, arguments, &eval, &arena, &before));
  T_OK(pass_run(&pass_cpu_pipeline, module, &options, NULL, NULL));
  T_OK(hlo_eval_module(module, arguments, &eval, &arena, &after));
  T_TRUE(literals_within(after, before, what, 0));
  options.disabled = "loop-pairs";
  T_OK(pass_run(&pass_cpu_pipeline, without, &options, NULL, NULL));
  if (planned_bytes(module) > planned_bytes(without) + 1024)
    fail_msg("%s: %lld bytes planned, %lld without the pass", what, (long long)planned_bytes(module),
             (long long)planned_bytes(without));
  if (copies >= 0 && copies_in_loops(module) != copies)
    fail_msg("%s: %d large copies in the loop, not %d", what, copies_in_loops(module), copies);
  if (copies == 0) T_TRUE(copies_in_loops(without) > 0);
  weft_arena_fini(&arena);
}

TEST(a_loop_of_any_number_of_rounds_keeps_its_meaning_and_copies_nothing)
{
  char text[4096], what[256];

  for (size_t c = 0; c < WEFT_COUNT(rounds); c++)
    for (size_t k = 0; k < WEFT_COUNT(kinds); k++)
      for (size_t t = 0; t < WEFT_COUNT(trip_counts); t++) {
        int trips = trip_counts[t];
        /* Short loops are unrolled. An odd round before a loop in donated memory would need memory of its own. */
        bool joined = !kinds[k].known || (trips > 8 && (trips % 2 == 0 || !kinds[k].header[0]));
        snprintf(text, sizeof text, shell, kinds[k].header, rounds[c].body, trips, kinds[k].known ? "known" : "n");
        snprintf(what, sizeof what, "%s, %d rounds%s%s", rounds[c].name, trips, kinds[k].known ? "" : ", not known",
                 kinds[k].header);
        check(text, what, trips, !joined ? -1 : kinds[k].known ? rounds[c].copies : rounds[c].unknown_copies);
      }
}

/* The loop is the body of another one, whose state it makes anew. */
TEST(so_does_a_loop_inside_of_another)
{
  static const char *const text = "HloModule m\n"
                                  "inner_body {\n"
                                  "  s = (s32[], s32[128,128]) parameter(0)\n"
                                  "  i = s32[] get-tuple-element(s), index=0\n"
                                  "  a = s32[128,128] get-tuple-element(s), index=1\n"
                                  "  one = s32[] constant(1)\n"
                                  "  next = s32[] add(i, one)\n"
                                  "  t = s32[128,128] transpose(a), dimensions={1,0}\n"
                                  "  is = s32[128,128] broadcast(i), dimensions={}\n"
                                  "  u = s32[128,128] add(a, t)\n"
                                  "  x = s32[128,128] add(u, is)\n"
                                  "  ROOT r = (s32[], s32[128,128]) tuple(next, x)\n"
                                  "}\n"
                                  "inner_cond {\n"
                                  "  s = (s32[], s32[128,128]) parameter(0)\n"
                                  "  i = s32[] get-tuple-element(s), index=0\n"
                                  "  n = s32[] constant(%d)\n"
                                  "  ROOT c = pred[] compare(i, n), direction=LT\n"
                                  "}\n"
                                  "outer_body {\n"
                                  "  s = (s32[], s32[], s32[128,128]) parameter(0)\n"
                                  "  i = s32[] get-tuple-element(s), index=0\n"
                                  "  n = s32[] get-tuple-element(s), index=1\n"
                                  "  a = s32[128,128] get-tuple-element(s), index=2\n"
                                  "  one = s32[] constant(1)\n"
                                  "  next = s32[] add(i, one)\n"
                                  "  zero = s32[] constant(0)\n"
                                  "  init = (s32[], s32[128,128]) tuple(zero, a)\n"
                                  "  w = (s32[], s32[128,128]) while(init), condition=inner_cond, body=inner_body\n"
                                  "  x = s32[128,128] get-tuple-element(w), index=1\n"
                                  "  y = s32[128,128] transpose(x), dimensions={1,0}\n"
                                  "  z = s32[128,128] subtract(y, a)\n"
                                  "  ROOT r = (s32[], s32[], s32[128,128]) tuple(next, n, z)\n"
                                  "}\n"
                                  "outer_cond {\n"
                                  "  s = (s32[], s32[], s32[128,128]) parameter(0)\n"
                                  "  i = s32[] get-tuple-element(s), index=0\n"
                                  "  n = s32[] get-tuple-element(s), index=1\n"
                                  "  ROOT c = pred[] compare(i, n), direction=LT\n"
                                  "}\n"
                                  "ENTRY e {\n"
                                  "  n = s32[] parameter(0)\n"
                                  "  a = s32[128,128] parameter(1)\n"
                                  "  b = s32[128,128] parameter(2)\n"
                                  "  zero = s32[] constant(0)\n"
                                  "  s = (s32[], s32[], s32[128,128]) tuple(zero, n, a)\n"
                                  "  w = (s32[], s32[], s32[128,128]) while(s), condition=outer_cond, body=outer_body\n"
                                  "  x = s32[128,128] get-tuple-element(w), index=2\n"
                                  "  ROOT r = s32[128,128] add(x, b)\n"
                                  "}\n";
  char program[4096];

  for (int inner = 9; inner <= 12; inner++)
    for (int outer = 0; outer <= 3; outer++) {
      snprintf(program, sizeof program, text, inner);
      check(program, "a loop inside of another", outer, -1);
    }
}

TEST_MAIN(UNIT(a_loop_of_any_number_of_rounds_keeps_its_meaning_and_copies_nothing), UNIT(so_does_a_loop_inside_of_another))
