/* tests/hlo/eval_limit_test.c -- The evaluator keeps to max_bytes in one instruction, in loops and in reducers. */
#include "test.h"

#include "hlo/eval.h"
#include "hlo/text.h"

enum { MIB = 1 << 20 };

static weft_status *evaluate(const char *text, int64_t max_bytes)
{
  WEFT_AUTO(hlo_module) module = NULL;
  hlo_eval_options options = {.deadline = weft_deadline_after_ms(60 * 1000), .max_bytes = max_bytes};
  const hlo_literal *result;
  weft_arena arena;

  T_OK(hlo_parse(text, strlen(text), &module));
  weft_arena_init(&arena);
  weft_status *st = hlo_eval_module(module, NULL, &options, &arena, &result);
  weft_arena_fini(&arena);
  return st;
}

TEST(one_instruction_keeps_to_the_limit)
{
  static const char text[] = "HloModule m\n"
                             "ENTRY e { ROOT r = f32[100000000] iota(), iota_dimension=0 }\n";
  WEFT_AUTO(hlo_module) module = NULL;
  hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE, .max_bytes = 8 * MIB};
  const hlo_literal *result;
  weft_arena arena;

  T_OK(hlo_parse(text, strlen(text), &module));
  weft_arena_init(&arena);
  T_CODE(hlo_eval_instr(module->entry->root, NULL, &options, &arena, &result), WEFT_RESOURCE_EXHAUSTED);
  weft_arena_fini(&arena);
}

/* The loop's state is 2 MiB. While a turn runs, the evaluator holds it three times. */
TEST(the_arenas_of_a_loop_share_one_limit)
{
  static const char text[] = "HloModule m\n"
                             "body {\n"
                             "  s = (s32[], f32[524288]) parameter(0)\n"
                             "  i = s32[] get-tuple-element(s), index=0\n"
                             "  one = s32[] constant(1)\n"
                             "  x = f32[524288] get-tuple-element(s), index=1\n"
                             "  j = s32[] add(i, one)\n"
                             "  y = f32[524288] negate(x)\n"
                             "  ROOT t = (s32[], f32[524288]) tuple(j, y)\n"
                             "}\n"
                             "more {\n"
                             "  s = (s32[], f32[524288]) parameter(0)\n"
                             "  i = s32[] get-tuple-element(s), index=0\n"
                             "  n = s32[] constant(4)\n"
                             "  ROOT c = pred[] compare(i, n), direction=LT\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  zero = s32[] constant(0)\n"
                             "  x = f32[524288] iota(), iota_dimension=0\n"
                             "  t = (s32[], f32[524288]) tuple(zero, x)\n"
                             "  ROOT w = (s32[], f32[524288]) while(t), condition=more, body=body\n"
                             "}\n";

  T_CODE(evaluate(text, 8 * MIB), WEFT_RESOURCE_EXHAUSTED);
  T_OK(evaluate(text, 64 * MIB));
}

TEST(reducers_keep_to_the_limit)
{
  static const char text[] = "HloModule m\n"
                             "sum {\n"
                             "  a = f32[] parameter(0)\n"
                             "  b = f32[] parameter(1)\n"
                             "  ROOT c = f32[] add(a, b)\n"
                             "}\n"
                             "odd {\n"
                             "  a = f32[] parameter(0)\n"
                             "  b = f32[] parameter(1)\n"
                             "  x = f32[100000000] iota(), iota_dimension=0\n"
                             "  ROOT c = f32[] reduce(x, a), dimensions={0}, to_apply=sum\n"
                             "}\n"
                             "ENTRY e {\n"
                             "  zero = f32[] constant(0)\n"
                             "  x = f32[4] iota(), iota_dimension=0\n"
                             "  ROOT r = f32[] reduce(x, zero), dimensions={0}, to_apply=odd\n"
                             "}\n";

  T_CODE(evaluate(text, 8 * MIB), WEFT_RESOURCE_EXHAUSTED);
}

TEST_MAIN(UNIT(one_instruction_keeps_to_the_limit), UNIT(the_arenas_of_a_loop_share_one_limit),
          UNIT(reducers_keep_to_the_limit))
