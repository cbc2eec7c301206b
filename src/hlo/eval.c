/* The evaluator's frame: modules, computations, control flow, and the table of operations.
 *
 * A computation is run over its list in order; values are literals in an arena and are shared, never changed, once
 * made.  Each turn of a loop has an arena of its own, from which the loop's state is copied out. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "hlo/eval_internal.h"

/* ---- helpers declared in eval_internal.h ------------------------------------------------------------------------- */

weft_status *eval_result(eval_ctx *ctx, const hlo_shape *shape, hlo_literal **out)
{
  const hlo_shape *plain = hlo_shape_array(ctx->arena, shape->type, shape->rank, shape->dims); /* no layout, static */

  WEFT_TRY_ALLOC(plain);
  return hlo_literal_new(ctx->arena, plain, out);
}

weft_status *eval_result_tuple(eval_ctx *ctx, const hlo_shape *shape, const hlo_literal **elements,
                               const hlo_literal **out)
{
  hlo_literal *tuple = WEFT_ARENA_NEW(ctx->arena, hlo_literal);

  WEFT_TRY_ALLOC(tuple);
  tuple->shape = shape;
  tuple->elements = elements;
  *out = tuple;
  return NULL;
}

bool eval_next(int rank, const int64_t *dims, int64_t *idx)
{
  for (int d = rank - 1; d >= 0; d--) {
    if (++idx[d] < dims[d]) return true;
    idx[d] = 0;
  }
  return false;
}

int64_t eval_offset(int rank, const int64_t *dims, const int64_t *idx)
{
  int64_t offset = 0;

  for (int d = 0; d < rank; d++) offset = offset * dims[d] + idx[d];
  return offset;
}

bool eval_contains(hlo_ints list, int64_t value)
{
  for (int i = 0; i < list.count; i++)
    if (list.v[i] == value) return true;
  return false;
}

weft_status *eval_check_deadline(const eval_ctx *ctx)
{
  if (weft_deadline_passed(ctx->options->deadline)) return WEFT_ERR(DEADLINE_EXCEEDED, "evaluation took too long");
  return NULL;
}

/* A deep copy, so that the arena it came from may go. */
static weft_status *copy_literal(weft_arena *arena, const hlo_literal *from, const hlo_literal **out)
{
  hlo_literal *copy = WEFT_ARENA_NEW(arena, hlo_literal);

  WEFT_TRY_ALLOC(copy);
  copy->shape = hlo_shape_copy(arena, from->shape);
  WEFT_TRY_ALLOC(copy->shape);
  *out = copy;
  if (hlo_shape_is_tuple(from->shape)) {
    copy->elements = WEFT_ARENA_ARRAY(arena, const hlo_literal *, from->shape->rank);
    WEFT_TRY_ALLOC(copy->elements);
    for (int i = 0; i < from->shape->rank; i++) WEFT_TRY(copy_literal(arena, from->elements[i], &copy->elements[i]));
    return NULL;
  }
  if (!from->data) return NULL; /* a token */
  hlo_literal *array;
  WEFT_TRY(hlo_literal_new(arena, copy->shape, &array));
  memcpy(array->data, from->data, (size_t)hlo_shape_bytes(from->shape));
  *out = array;
  return NULL;
}

/* A context for nested work in another arena. */
static eval_ctx nested(const eval_ctx *ctx, weft_arena *arena)
{
  eval_ctx inner = *ctx;

  inner.arena = arena;
  return inner;
}

static void nested_arena_init(const eval_ctx *ctx, weft_arena *arena)
{
  weft_arena_init(arena);
  arena->limit_bytes = ctx->arena->limit_bytes;
}

/* ---- structure and control flow ---------------------------------------------------------------------------------- */

static weft_status *eval_identity(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                  const hlo_literal **out)
{
  (void)ctx;
  (void)instr;
  *out = operands[0];
  return NULL;
}

static weft_status *eval_constant(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                  const hlo_literal **out)
{
  (void)ctx;
  (void)operands;
  *out = instr->u.literal;
  return NULL;
}

static weft_status *eval_token(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                               const hlo_literal **out)
{
  (void)operands;
  return eval_result_tuple(ctx, instr->shape, NULL, out);
}

static weft_status *eval_tuple(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                               const hlo_literal **out)
{
  const hlo_literal **elements = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, instr->operand_count);

  WEFT_TRY_ALLOC(elements);
  memcpy(elements, operands, (size_t)instr->operand_count * sizeof *elements);
  return eval_result_tuple(ctx, instr->shape, elements, out);
}

static weft_status *eval_get_tuple_element(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                           const hlo_literal **out)
{
  (void)ctx;
  *out = operands[0]->elements[instr->u.tuple_index];
  return NULL;
}

static weft_status *eval_call(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                              const hlo_literal **out)
{
  return eval_computation(ctx, instr->called[0], operands, out);
}

/* Two arenas hold the state in turn; each turn's work is done in a third. */
static weft_status *while_turns(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *state, weft_arena *work,
                                weft_arena hold[2], const hlo_literal **out)
{
  eval_ctx inner = nested(ctx, work);
  int64_t limit = ctx->options->max_loop_iterations;

  for (int64_t turn = 0;; turn++) {
    const hlo_literal *go_on, *next;
    WEFT_TRY(eval_check_deadline(ctx));
    WEFT_TRY(eval_computation(&inner, instr->called[1], &state, &go_on));
    if (!*(const uint8_t *)go_on->data) break;
    if (limit > 0 && turn >= limit)
      return WEFT_ERR(RESOURCE_EXHAUSTED, "while %s: over %lld iterations", instr->name, (long long)limit);
    WEFT_TRY(eval_computation(&inner, instr->called[0], &state, &next));
    WEFT_TRY(copy_literal(&hold[turn & 1], next, &state));
    weft_arena_reset(&hold[~turn & 1]);
    weft_arena_reset(work);
    ctx->rng_state = inner.rng_state;
  }
  return copy_literal(ctx->arena, state, out);
}

static weft_status *eval_while(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                               const hlo_literal **out)
{
  weft_arena work, hold[2];
  weft_status *st;

  nested_arena_init(ctx, &work);
  nested_arena_init(ctx, &hold[0]);
  nested_arena_init(ctx, &hold[1]);
  st = while_turns(ctx, instr, operands[0], &work, hold, out);
  weft_arena_fini(&work);
  weft_arena_fini(&hold[0]);
  weft_arena_fini(&hold[1]);
  return st;
}

/* A predicate takes the first branch when true; an index out of range, the last. */
static weft_status *eval_conditional(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                     const hlo_literal **out)
{
  int64_t branch = hlo_literal_get_s64(operands[0], 0);

  if (operands[0]->shape->type == WEFT_PRED) branch = branch ? 0 : 1;
  else if (branch < 0 || branch >= instr->called_count) branch = instr->called_count - 1;
  return eval_computation(ctx, instr->called[branch], &operands[branch + 1], out);
}

static weft_status *eval_custom_call(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                     const hlo_literal **out)
{
  if (!ctx->options->custom_call)
    return WEFT_ERR(UNIMPLEMENTED, "custom-call %s to \"%s\"", instr->name, instr->u.custom->target);
  return ctx->options->custom_call(ctx->options->ctx, instr, operands, ctx->arena, out);
}

/* async-start's value is ((operands), result, ...); -update passes it on, -done takes the result out. */
static weft_status *eval_async_start(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                     const hlo_literal **out)
{
  const hlo_literal **elements = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, instr->shape->rank);
  hlo_literal *nothing = WEFT_ARENA_NEW(ctx->arena, hlo_literal);

  WEFT_TRY_ALLOC(elements && nothing);
  nothing->shape = hlo_shape_token(ctx->arena);
  WEFT_TRY_ALLOC(nothing->shape);
  for (int i = 0; i < instr->shape->rank; i++) elements[i] = nothing;
  WEFT_TRY(eval_tuple(ctx, instr, operands, &elements[0]));
  WEFT_TRY(eval_computation(ctx, instr->called[0], operands, &elements[1]));
  return eval_result_tuple(ctx, instr->shape, elements, out);
}
static weft_status *eval_async_done(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                    const hlo_literal **out)
{
  (void)ctx;
  (void)instr;
  *out = operands[0]->elements[1];
  return NULL;
}
/* copy-start: (destination, source, context). */
static weft_status *eval_copy_start(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                    const hlo_literal **out)
{
  const hlo_literal **elements = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, 3);
  hlo_literal *context;

  WEFT_TRY_ALLOC(elements);
  WEFT_TRY(hlo_literal_new(ctx->arena, &HLO_SCALAR_SHAPE(WEFT_U32), &context));
  elements[0] = elements[1] = operands[0];
  elements[2] = context;
  return eval_result_tuple(ctx, instr->shape, elements, out);
}
static weft_status *eval_copy_done(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                   const hlo_literal **out)
{
  (void)ctx;
  (void)instr;
  *out = operands[0]->elements[0];
  return NULL;
}

/* ---- one instruction ----------------------------------------------------------------------------------------------- */

/* Elementwise operations are eval_elementwise's; what is absent needs devices or peers. */
static eval_op *const ops[HLO_OPCODE_COUNT] = {
  [HLO_ADD_DEPENDENCY] = eval_identity,
  [HLO_AFTER_ALL] = eval_token,
  [HLO_ASYNC_DONE] = eval_async_done,
  [HLO_ASYNC_START] = eval_async_start,
  [HLO_ASYNC_UPDATE] = eval_identity,
  [HLO_BATCH_NORM_GRAD] = eval_batch_norm_grad,
  [HLO_BATCH_NORM_INFERENCE] = eval_batch_norm_inference,
  [HLO_BATCH_NORM_TRAINING] = eval_batch_norm_training,
  [HLO_BITCAST] = eval_bitcast,
  [HLO_BITCAST_CONVERT] = eval_bitcast_convert,
  [HLO_BROADCAST] = eval_broadcast,
  [HLO_CALL] = eval_call,
  [HLO_CHOLESKY] = eval_cholesky,
  [HLO_CONCATENATE] = eval_concatenate,
  [HLO_CONDITIONAL] = eval_conditional,
  [HLO_CONSTANT] = eval_constant,
  [HLO_CONVOLUTION] = eval_convolution,
  [HLO_COPY] = eval_identity,
  [HLO_COPY_DONE] = eval_copy_done,
  [HLO_COPY_START] = eval_copy_start,
  [HLO_CUSTOM_CALL] = eval_custom_call,
  [HLO_DOMAIN] = eval_identity,
  [HLO_DOT] = eval_dot,
  [HLO_DYNAMIC_RESHAPE] = eval_dynamic_reshape,
  [HLO_DYNAMIC_SLICE] = eval_dynamic_slice,
  [HLO_DYNAMIC_UPDATE_SLICE] = eval_dynamic_update_slice,
  [HLO_FFT] = eval_fft,
  [HLO_FUSION] = eval_call,
  [HLO_GATHER] = eval_gather,
  [HLO_GET_DIMENSION_SIZE] = eval_get_dimension_size,
  [HLO_GET_TUPLE_ELEMENT] = eval_get_tuple_element,
  [HLO_IOTA] = eval_iota,
  [HLO_MAP] = eval_map,
  [HLO_OPT_BARRIER] = eval_identity,
  [HLO_PAD] = eval_pad,
  [HLO_RAGGED_DOT] = eval_ragged_dot,
  [HLO_REDUCE] = eval_reduce,
  [HLO_REDUCE_WINDOW] = eval_reduce_window,
  [HLO_RESHAPE] = eval_reshape,
  [HLO_REVERSE] = eval_reverse,
  [HLO_RNG] = eval_rng,
  [HLO_RNG_BIT_GENERATOR] = eval_rng_bit_generator,
  [HLO_RNG_GET_AND_UPDATE_STATE] = eval_rng_get_and_update_state,
  [HLO_SCALED_DOT] = eval_scaled_dot,
  [HLO_SCAN] = eval_scan,
  [HLO_SCATTER] = eval_scatter,
  [HLO_SELECT_AND_SCATTER] = eval_select_and_scatter,
  [HLO_SET_DIMENSION_SIZE] = eval_set_dimension_size,
  [HLO_SLICE] = eval_slice,
  [HLO_SORT] = eval_sort,
  [HLO_TOPK] = eval_topk,
  [HLO_TRANSPOSE] = eval_transpose,
  [HLO_TRIANGULAR_SOLVE] = eval_triangular_solve,
  [HLO_TUPLE] = eval_tuple,
  [HLO_WHILE] = eval_while,
};

/* Values must have the dimensions that the program states: the operations trust it. */
static bool same_shape(const hlo_shape *value, const hlo_shape *stated)
{
  if (value->type != stated->type) return false;
  if (!hlo_shape_is_tuple(stated)) return !hlo_shape_is_array(stated) || hlo_shape_same_dims(value, stated);
  if (value->rank != stated->rank) return false;
  for (int i = 0; i < stated->rank; i++)
    if (!same_shape(value->elements[i], stated->elements[i])) return false;
  return true;
}

static weft_status *check_shape(const hlo_literal *value, const hlo_shape *stated, const char *what)
{
  char got[128], want[128];

  if (same_shape(value->shape, stated)) return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "%s: value of shape %s where %s is stated", what,
                  hlo_shape_format(value->shape, got, sizeof got), hlo_shape_format(stated, want, sizeof want));
}

static weft_status *eval_instr(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                               const hlo_literal **out)
{
  eval_op *op = ops[instr->op];

  if (!op && hlo_opcode_is_elementwise(instr->op)) op = eval_elementwise;
  if (!op) return WEFT_ERR(UNIMPLEMENTED, "%s %s in the evaluator", hlo_opcode_name(instr->op), instr->name);
  WEFT_TRY_NOTE(op(ctx, instr, operands, out), "%s %s", hlo_opcode_name(instr->op), instr->name);
  return check_shape(*out, instr->shape, instr->name);
}

/* ---- computations -------------------------------------------------------------------------------------------------- */

/* Values by instruction id, from the least id of the computation. */
static weft_status *run_list(eval_ctx *ctx, const hlo_computation *comp, const hlo_literal *const *arguments,
                             const hlo_literal **out)
{
  int least = comp->first->id, most = least, widest = 0;

  HLO_FOREACH(instr, comp) {
    least = WEFT_MIN(least, instr->id);
    most = WEFT_MAX(most, instr->id);
    widest = WEFT_MAX(widest, instr->operand_count);
  }
  const hlo_literal **values = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, most - least + 1);
  const hlo_literal **operands = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, widest);
  WEFT_TRY_ALLOC(values && operands);
  HLO_FOREACH(instr, comp) {
    const hlo_literal **value = &values[instr->id - least];
    if (instr->op == HLO_PARAMETER) {
      *value = arguments[instr->u.parameter_number];
      WEFT_TRY(check_shape(*value, instr->shape, instr->name));
      continue;
    }
    for (int i = 0; i < instr->operand_count; i++) operands[i] = values[instr->operands[i]->id - least];
    WEFT_TRY(eval_instr(ctx, instr, operands, value));
    WEFT_TRY(eval_check_deadline(ctx));
  }
  *out = values[comp->root->id - least];
  return NULL;
}

weft_status *eval_computation(eval_ctx *ctx, const hlo_computation *comp, const hlo_literal *const *arguments,
                              const hlo_literal **out)
{
  if (ctx->depth >= EVAL_MAX_DEPTH) return WEFT_ERR(RESOURCE_EXHAUSTED, "calls nest over %d deep", EVAL_MAX_DEPTH);
  ctx->depth++;
  weft_status *st = run_list(ctx, comp, arguments, out);
  ctx->depth--;
  return st;
}

/* ---- the interface ------------------------------------------------------------------------------------------------- */

weft_status *hlo_eval_computation(const hlo_computation *comp, const hlo_literal *const *arguments,
                                  const hlo_eval_options *options, weft_arena *arena, const hlo_literal **out_result)
{
  uint64_t counter[2] = {options->seed, 0};
  eval_ctx ctx = {.options = options, .arena = arena, .rng_state = options->seed, .counter = counter};
  size_t limit = arena->limit_bytes;

  *out_result = NULL;
  if (options->max_bytes > 0 && limit == 0) arena->limit_bytes = arena->total_bytes + (size_t)options->max_bytes;
  weft_status *st = eval_computation(&ctx, comp, arguments, out_result);
  arena->limit_bytes = limit;
  return st;
}

weft_status *hlo_eval_module(const hlo_module *module, const hlo_literal *const *arguments,
                             const hlo_eval_options *options, weft_arena *arena, const hlo_literal **out_result)
{
  return hlo_eval_computation(module->entry, arguments, options, arena, out_result);
}

weft_status *hlo_eval_instr(const hlo_instr *instr, const hlo_literal *const *operands,
                            const hlo_eval_options *options, weft_arena *arena, const hlo_literal **out_result)
{
  uint64_t counter[2] = {options->seed, 0};
  eval_ctx ctx = {.options = options, .arena = arena, .rng_state = options->seed, .counter = counter};

  *out_result = NULL;
  for (int i = 0; i < instr->operand_count; i++)
    WEFT_TRY(check_shape(operands[i], instr->operands[i]->shape, instr->name));
  return eval_instr(&ctx, instr, operands, out_result);
}
