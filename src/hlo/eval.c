/* hlo/eval.c -- The evaluator's frame: modules, computations, control flow, and the table of operations.
 *
 * A computation is evaluated in the order of its list, each instruction for all devices in turn.  Values are
 * literals in an arena; they are shared and never changed once made.  Each iteration of a loop has an arena of its
 * own, from which the loop's state is copied out. */
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

weft_status *eval_zeros(eval_ctx *ctx, const hlo_shape *shape, const hlo_literal **out)
{
  hlo_literal *array;

  if (!hlo_shape_is_tuple(shape) && !hlo_shape_is_token(shape)) {
    WEFT_TRY(eval_result(ctx, shape, &array));
    *out = array;
    return NULL;
  }
  int count = hlo_shape_is_tuple(shape) ? shape->rank : 0;
  const hlo_literal **elements = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, WEFT_MAX(count, 1));
  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < count; i++) WEFT_TRY(eval_zeros(ctx, shape->elements[i], &elements[i]));
  return eval_result_tuple(ctx, shape, elements, out);
}

weft_status *eval_check_deadline(const eval_ctx *ctx)
{
  if (weft_deadline_passed(ctx->options->deadline)) return WEFT_ERR(DEADLINE_EXCEEDED, "evaluation took too long");
  return NULL;
}

/* A deep copy, so that the arena of the original may be freed. */
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

size_t eval_nested_limit(const eval_ctx *ctx)
{
  const weft_arena *outer = ctx->arena;

  return outer->limit_bytes ? (outer->limit_bytes - WEFT_MIN(outer->total_bytes, outer->limit_bytes)) / 2 + 1 : 0;
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

/* A loop of the devices of `ctx`.  `turns` is the context of the devices that are still in the loop. */
typedef struct eval_loop {
  eval_ctx turns;
  const hlo_literal **state, **next; /* by device of `turns` */
  int *index;                        /* by device of `turns`: its index in ctx->devices */
} eval_loop;

static weft_status *loop_init(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *state, weft_arena *work,
                              eval_loop *loop)
{
  int count = ctx->device_count;

  *loop = (eval_loop){.turns = *ctx,
                      .state = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, count),
                      .next = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, count),
                      .index = WEFT_ARENA_ARRAY(ctx->arena, int, count)};
  loop->turns.arena = work;
  loop->turns.devices = weft_arena_memdup(ctx->arena, ctx->devices, (size_t)count * sizeof *ctx->devices);
  loop->turns.outer = ctx;
  loop->turns.parted_at = instr;
  WEFT_TRY_ALLOC(loop->state && loop->next && loop->index && loop->turns.devices);
  for (int d = 0; d < count; d++) {
    loop->state[d] = state[d];
    loop->index[d] = d;
  }
  return NULL;
}

/* Devices whose condition, in loop->next, is false leave the loop.  The state of such a device is its result. */
static weft_status *loop_leave(eval_ctx *ctx, eval_loop *loop, const hlo_literal **out)
{
  int staying = 0;

  for (int d = 0; d < loop->turns.device_count; d++) {
    if (!*(const uint8_t *)loop->next[d]->data) {
      WEFT_TRY(copy_literal(ctx->arena, loop->state[d], &out[loop->index[d]]));
      continue;
    }
    loop->state[staying] = loop->state[d];
    loop->index[staying] = loop->index[d];
    loop->turns.devices[staying++] = loop->turns.devices[d];
  }
  loop->turns.device_count = staying;
  return NULL;
}

/* Lets `arena` grow by the part of `all` bytes that the other two arenas do not use. */
static void share_limit(weft_arena *arena, const weft_arena *second, const weft_arena *third, size_t all)
{
  size_t taken = second->total_bytes + third->total_bytes;

  if (all) arena->limit_bytes = taken < all ? all - taken : 1;
}

/* Two arenas hold the loop's state in alternation.  The work of each iteration is done in a third. */
static weft_status *while_turns(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                weft_arena *work, weft_arena hold[2], const hlo_literal **out)
{
  int64_t limit = ctx->options->max_loop_iterations;
  size_t most_bytes = eval_nested_limit(ctx);
  eval_loop loop;

  share_limit(work, &hold[0], &hold[1], most_bytes);
  WEFT_TRY(loop_init(ctx, instr, operands, work, &loop));
  for (int64_t turn = 0;; turn++) {
    WEFT_TRY(eval_check_deadline(ctx));
    WEFT_TRY(eval_computation(&loop.turns, instr->called[1], loop.state, loop.next));
    WEFT_TRY(loop_leave(ctx, &loop, out));
    if (loop.turns.device_count == 0) return NULL;
    if (limit > 0 && turn >= limit)
      return WEFT_ERR(RESOURCE_EXHAUSTED, "while %s: over %lld iterations", instr->name, (long long)limit);
    WEFT_TRY(eval_computation(&loop.turns, instr->called[0], loop.state, loop.next));
    share_limit(&hold[turn & 1], &hold[~turn & 1], work, most_bytes);
    for (int d = 0; d < loop.turns.device_count; d++)
      WEFT_TRY(copy_literal(&hold[turn & 1], loop.next[d], &loop.state[d]));
    weft_arena_reset(&hold[~turn & 1]);
    weft_arena_reset(work);
    share_limit(work, &hold[0], &hold[1], most_bytes);
  }
}

static weft_status *eval_while(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                               const hlo_literal **out)
{
  weft_arena work, hold[2];
  weft_status *st;

  weft_arena_init(&work);
  weft_arena_init(&hold[0]);
  weft_arena_init(&hold[1]);
  st = while_turns(ctx, instr, operands, &work, hold, out);
  weft_arena_fini(&work);
  weft_arena_fini(&hold[0]);
  weft_arena_fini(&hold[1]);
  return st;
}

/* A true predicate takes branch 0, a false one branch 1.  An index out of range takes the last branch. */
static int64_t branch_of(const hlo_instr *instr, const hlo_literal *which)
{
  int64_t branch = hlo_literal_get_s64(which, 0);

  if (which->shape->type == WEFT_PRED) return branch ? 0 : 1;
  return branch < 0 || branch >= instr->called_count ? instr->called_count - 1 : branch;
}

/* The devices that take the same branch evaluate it in lockstep. */
static weft_status *eval_conditional(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                     const hlo_literal **out)
{
  int all = ctx->device_count, *index = WEFT_ARENA_ARRAY(ctx->arena, int, all);
  const hlo_literal **arguments = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, all);
  const hlo_literal **results = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, all);
  eval_ctx together = *ctx;

  together.outer = ctx;
  together.parted_at = instr;
  together.devices = WEFT_ARENA_ARRAY(ctx->arena, eval_device *, all);
  WEFT_TRY_ALLOC(index && arguments && results && together.devices);
  for (int branch = 0; branch < instr->called_count; branch++) {
    together.device_count = 0;
    for (int d = 0; d < all; d++) {
      const hlo_literal *const *own = operands + (int64_t)d * instr->operand_count;
      if (branch_of(instr, own[0]) != branch) continue;
      index[together.device_count] = d;
      arguments[together.device_count] = own[branch + 1];
      together.devices[together.device_count++] = ctx->devices[d];
    }
    if (together.device_count == 0) continue;
    WEFT_TRY(eval_computation(&together, instr->called[branch], arguments, results));
    for (int d = 0; d < together.device_count; d++) out[index[d]] = results[d];
  }
  return NULL;
}

static weft_status *eval_custom_call(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                     const hlo_literal **out)
{
  if (!ctx->options->custom_call)
    return WEFT_ERR(UNIMPLEMENTED, "custom-call %s to \"%s\"", instr->name, instr->u.custom->target);
  return ctx->options->custom_call(ctx->options->ctx, instr, operands, ctx->arena, out);
}

/* The value of async-start is ((operands), result, ...).  async-update passes it on, async-done returns the result. */
static weft_status *eval_async_start(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                     const hlo_literal **out)
{
  WEFT_TRY(eval_computation(ctx, instr->called[0], operands, out));
  for (int d = 0; d < ctx->device_count; d++) {
    const hlo_literal **elements = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, instr->shape->rank);
    WEFT_TRY_ALLOC(elements);
    WEFT_TRY(eval_tuple(ctx, instr, operands + (int64_t)d * instr->operand_count, &elements[0]));
    elements[1] = out[d];
    for (int i = 2; i < instr->shape->rank; i++) WEFT_TRY(eval_zeros(ctx, instr->shape->elements[i], &elements[i]));
    WEFT_TRY(eval_result_tuple(ctx, instr->shape, elements, &out[d]));
  }
  return NULL;
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

/* ---- one instruction --------------------------------------------------------------------------------------------- */

/* The evaluators by opcode.  A joint one works for all devices of a context at once, the others for one device. */
static const struct { eval_op *op; bool is_joint; } ops[HLO_OPCODE_COUNT] = {
#define eval_none NULL
#define eval_JOINT(evaluator) eval_##evaluator, true
#define X(NAME, text, least, most, traits, classes, rule, evaluator, ...) [HLO_##NAME] = {eval_##evaluator},
#include "hlo/opcodes.def"
#undef X
#undef eval_JOINT
#undef eval_none
};

/* A value must have the dimensions that the program states, because the operations rely on them. */
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

static weft_status *eval_one(eval_ctx *ctx, eval_op *op, const hlo_instr *instr, const hlo_literal *const *operands,
                             const hlo_literal **out)
{
  WEFT_TRY_NOTE(op(ctx, instr, operands, out), "%s %s", hlo_opcode_name(instr->op), instr->name);
  for (int d = 0; d < ctx->device_count; d++) WEFT_TRY(check_shape(out[d], instr->shape, instr->name));
  return NULL;
}

static weft_status *eval_instr(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                               const hlo_literal **out)
{
  eval_op *op = ops[instr->op].op;
  eval_ctx alone = *ctx;

  if (!op) return WEFT_ERR(UNIMPLEMENTED, "%s %s in the evaluator", hlo_opcode_name(instr->op), instr->name);
  if (ops[instr->op].is_joint) return eval_one(ctx, op, instr, operands, out);
  alone.outer = ctx;
  alone.parted_at = instr;
  alone.device_count = 1;
  for (int d = 0; d < ctx->device_count; d++) {
    alone.devices = &ctx->devices[d];
    WEFT_TRY(eval_one(&alone, op, instr, operands + (int64_t)d * instr->operand_count, &out[d]));
  }
  return NULL;
}

/* ---- computations ------------------------------------------------------------------------------------------------ */

/* `values` has, for each instruction id from the computation's least id on, one value for each device. */
static weft_status *run_list(eval_ctx *ctx, const hlo_computation *comp, const hlo_literal *const *arguments,
                             const hlo_literal **out)
{
  int least = comp->first->id, most = least, widest = 0, devices = ctx->device_count;

  HLO_FOREACH(instr, comp) {
    least = WEFT_MIN(least, instr->id);
    most = WEFT_MAX(most, instr->id);
    widest = WEFT_MAX(widest, instr->operand_count);
  }
  const hlo_literal **values = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, ((int64_t)most - least + 1) * devices);
  const hlo_literal **operands = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, (int64_t)widest *devices);
  WEFT_TRY_ALLOC(values && operands);
  HLO_FOREACH(instr, comp) {
    const hlo_literal **value = &values[((int64_t)instr->id - least) * devices];
    if (instr->op == HLO_PARAMETER) {
      for (int d = 0; d < devices; d++) {
        value[d] = arguments[(int64_t)d * comp->param_count + instr->u.parameter_number];
        WEFT_TRY(check_shape(value[d], instr->shape, instr->name));
      }
      continue;
    }
    for (int i = 0; i < instr->operand_count; i++)
      for (int d = 0; d < devices; d++)
        operands[(int64_t)d * instr->operand_count + i] =
          values[((int64_t)instr->operands[i]->id - least) * devices + d];
    WEFT_TRY(eval_instr(ctx, instr, operands, value));
    WEFT_TRY(eval_check_deadline(ctx));
  }
  memcpy(out, &values[((int64_t)comp->root->id - least) * devices], (size_t)devices * sizeof *out);
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

/* ---- the interface ----------------------------------------------------------------------------------------------- */

static weft_status *start(const hlo_eval_options *options, weft_arena *arena, eval_ctx *out_ctx)
{
  int64_t known = (int64_t)options->replicas * options->partitions;
  int count = (int)WEFT_MAX(known, 1);

  if (known < 0 || known > EVAL_MAX_DEVICES)
    return WEFT_ERR(INVALID_ARGUMENT, "%d replicas of %d partitions in the evaluator, which knows %d devices",
                    options->replicas, options->partitions, EVAL_MAX_DEVICES);
  eval_device *devices = WEFT_ARENA_ARRAY(arena, eval_device, count);
  eval_device **list = WEFT_ARENA_ARRAY(arena, eval_device *, count);

  WEFT_TRY_ALLOC(devices && list);
  for (int d = 0; d < count; d++) {
    devices[d] = (eval_device){.place = d, .rng_state = options->seed, .counter = {options->seed, 0}};
    list[d] = &devices[d];
  }
  *out_ctx = (eval_ctx){.options = options, .arena = arena, .device_count = count, .devices = list};
  return NULL;
}

/* An arena that has a limit already keeps it. */
static void limit_arena(weft_arena *arena, const hlo_eval_options *options)
{
  if (options->max_bytes > 0 && arena->limit_bytes == 0)
    arena->limit_bytes = arena->total_bytes + (size_t)options->max_bytes;
}

weft_status *hlo_eval_computation(const hlo_computation *comp, const hlo_literal *const *arguments,
                                  const hlo_eval_options *options, weft_arena *arena, const hlo_literal **out_result)
{
  size_t limit = arena->limit_bytes;
  eval_ctx ctx;

  *out_result = NULL;
  WEFT_TRY(start(options, arena, &ctx));
  limit_arena(arena, options);
  weft_status *st = eval_computation(&ctx, comp, arguments, out_result);
  arena->limit_bytes = limit;
  return st;
}

weft_status *hlo_eval_module(const hlo_module *module, const hlo_literal *const *arguments,
                             const hlo_eval_options *options, weft_arena *arena, const hlo_literal **out_result)
{
  return hlo_eval_computation(module->entry, arguments, options, arena, out_result);
}

weft_status *hlo_eval_instr(const hlo_instr *instr, const hlo_literal *const *operands, const hlo_eval_options *options,
                            weft_arena *arena, const hlo_literal **out_result)
{
  hlo_eval_options one_device = *options;
  size_t limit = arena->limit_bytes;
  eval_ctx ctx;

  *out_result = NULL;
  one_device.replicas = one_device.partitions = 0;
  WEFT_TRY(start(&one_device, arena, &ctx));
  for (int i = 0; i < instr->operand_count; i++)
    WEFT_TRY(check_shape(operands[i], instr->operands[i]->shape, instr->name));
  limit_arena(arena, options);
  weft_status *st = eval_instr(&ctx, instr, operands, out_result);
  arena->limit_bytes = limit;
  return st;
}
