/* lower/evaluate.c -- steps without a kernel: the reference evaluator over their buffers (host_steps.h). */
#include <config.h>

#include "lower/host_steps.h"

#include <string.h>

#include "hlo/eval.h"

/* A literal over the buffers, leaf by leaf. The recursion is as deep as tuples nest. */
static weft_status *wrap(weft_arena *arena, const hlo_shape *shape, void *const **args, const hlo_literal **out)
{
  hlo_literal *literal = WEFT_ARENA_NEW(arena, hlo_literal);

  WEFT_TRY_ALLOC(literal);
  literal->shape = shape;
  *out = literal;
  if (!hlo_shape_is_tuple(shape)) {
    literal->data = *(*args)++;
    return NULL;
  }
  literal->elements = WEFT_ARENA_ARRAY(arena, const hlo_literal *, shape->rank);
  WEFT_TRY_ALLOC(literal->elements);
  for (int i = 0; i < shape->rank; i++) WEFT_TRY(wrap(arena, shape->elements[i], args, &literal->elements[i]));
  return NULL;
}

static void unwrap(const hlo_literal *literal, void *const **args)
{
  if (hlo_shape_is_tuple(literal->shape)) {
    for (int i = 0; i < literal->shape->rank; i++) unwrap(literal->elements[i], args);
    return;
  }
  int64_t bytes = hlo_shape_bytes(literal->shape);
  if (bytes > 0) memcpy(**args, literal->data, (size_t)bytes);
  (*args)++;
}

static weft_status *evaluate(const hlo_instr *instr, void *const *args, weft_arena *arena)
{
  /* as a kernel of that type would do */
  hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE, .stepwise_sums = true};
  const hlo_literal **operands = WEFT_ARENA_ARRAY(arena, const hlo_literal *, instr->operand_count), *result;

  WEFT_TRY_ALLOC(operands);
  for (int i = 0; i < instr->operand_count; i++) WEFT_TRY(wrap(arena, instr->operands[i]->shape, &args, &operands[i]));
  WEFT_TRY(hlo_eval_instr(instr, operands, &options, arena, &result));
  unwrap(result, &args);
  return NULL;
}

typedef struct evaluate_thunk {
  rt_thunk base;
  const hlo_instr *instr; /* an instruction of the executable's module */
} evaluate_thunk;

static weft_status *evaluate_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  weft_arena arena;

  weft_arena_init(&arena);
  weft_status *st = evaluate(((const evaluate_thunk *)thunk)->instr, rt_args(thunk, ctx), &arena);
  weft_arena_fini(&arena);
  return st;
}
static const rt_thunk_ops evaluate_ops = {sizeof(rt_thunk_ops), "reference", .run = evaluate_run};

weft_status *low_evaluate_make(low_step *step, rt_thunk **out_thunk)
{
  rt_thunk *thunk;

  WEFT_TRY(low_thunk_new(step, &evaluate_ops, sizeof(evaluate_thunk), &thunk));
  ((evaluate_thunk *)thunk)->instr = step->instr;
  thunk->cost_ns *= 50;
  thunk->wants_host_memory = true;
  *out_thunk = thunk;
  return NULL;
}
