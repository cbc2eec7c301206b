/* hlo/eval_fn.c -- Called computations over scalars (a reduction's combiner, a sort's comparator), made cheap to call.
 *
 * If every instruction is a scalar elementwise operation, a constant, a parameter or the root tuple, the computation
 * becomes a list of steps over 16-byte slots.  Any other computation is evaluated as usual, in an arena that is
 * emptied after each call. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "hlo/eval_internal.h"

enum { SLOT_BYTES = 16 };

typedef struct eval_step {
  const hlo_instr *instr;
  const void *in[3];
  void *out;
} eval_step;

struct eval_fn {
  eval_ctx ctx;           /* its arena is `scratch` */
  weft_arena scratch;     /* for a computation without steps; emptied after each call */
  const hlo_computation *comp;
  int step_count, result_count;
  eval_step *steps;       /* NULL: not a list of steps */
  void **results;         /* slots of the root's elements */
  const void **params;    /* slots of the parameters */
  weft_arena keep;        /* steps and slots */
};

/* True if `comp` can become a list of steps. */
static bool is_scalar_code(const hlo_computation *comp)
{
  HLO_FOREACH(instr, comp) {
    if (instr->op == HLO_TUPLE && instr == comp->root) continue;
    if (!hlo_shape_is_scalar(instr->shape)) return false;
    if (instr->op == HLO_PARAMETER || instr->op == HLO_CONSTANT) continue;
    if (instr->op == HLO_BITCAST_CONVERT &&
        weft_dtype_bytes(instr->shape->type) == weft_dtype_bytes(instr->operands[0]->shape->type) &&
        weft_dtype_bits(instr->shape->type) >= 8)
      continue;
    if (!hlo_opcode_is_elementwise(instr->op)) return false;
    weft_dtype type = instr->operands[instr->op == HLO_SELECT ? 1 : 0]->shape->type;
    if (!eval_elem_exists(instr->op, type)) return false;
  }
  return true;
}

static weft_status *make_steps(eval_fn *fn, const hlo_computation *comp)
{
  int least = comp->first->id, most = least;

  HLO_FOREACH(instr, comp) {
    least = WEFT_MIN(least, instr->id);
    most = WEFT_MAX(most, instr->id);
  }
  char **slot_of = WEFT_ARENA_ARRAY(&fn->keep, char *, most - least + 1);
  fn->steps = WEFT_ARENA_ARRAY(&fn->keep, eval_step, comp->instr_count);
  fn->params = WEFT_ARENA_ARRAY(&fn->keep, const void *, comp->param_count);
  fn->results = WEFT_ARENA_ARRAY(&fn->keep, void *, WEFT_MAX(1, comp->root->operand_count));
  char *slots = weft_arena_alloc_array(&fn->keep, (size_t)comp->instr_count, SLOT_BYTES);
  WEFT_TRY_ALLOC(slot_of && fn->steps && fn->params && fn->results && slots);
  HLO_FOREACH(instr, comp) {
    if (instr->op == HLO_TUPLE) continue;
    char *slot = slot_of[instr->id - least] = slots;
    slots += SLOT_BYTES;
    if (instr->op == HLO_PARAMETER) {
      fn->params[instr->u.parameter_number] = slot;
    } else if (instr->op == HLO_CONSTANT) {
      memcpy(slot, instr->u.literal->data, weft_dtype_bytes(instr->shape->type));
    } else {
      eval_step *step = &fn->steps[fn->step_count++];
      step->instr = instr;
      step->out = slot;
      for (int i = 0; i < instr->operand_count; i++) step->in[i] = slot_of[instr->operands[i]->id - least];
    }
  }
  if (comp->root->op == HLO_TUPLE)
    for (int i = 0; i < comp->root->operand_count; i++) fn->results[i] = slot_of[comp->root->operands[i]->id - least];
  else fn->results[0] = slot_of[comp->root->id - least];
  return NULL;
}

weft_status *eval_fn_new(eval_ctx *ctx, const hlo_computation *comp, eval_fn **out)
{
  WEFT_AUTO(eval_fn) fn = calloc(1, sizeof *fn);

  *out = NULL;
  WEFT_TRY_ALLOC(fn);
  weft_arena_init(&fn->scratch);
  weft_arena_init(&fn->keep);
  fn->scratch.limit_bytes = eval_nested_limit(ctx);
  fn->ctx = *ctx;
  fn->ctx.arena = &fn->scratch;
  fn->comp = comp;
  fn->result_count = hlo_shape_is_tuple(comp->root->shape) ? comp->root->shape->rank : 1;
  for (int i = 0; i < comp->param_count; i++)
    if (!hlo_shape_is_scalar(comp->params[i]->shape))
      return WEFT_ERR(INVALID_ARGUMENT, "%s: parameter %d is no scalar", comp->name, i);
  if (is_scalar_code(comp)) WEFT_TRY(make_steps(fn, comp));
  *out = WEFT_MOVE(fn);
  return NULL;
}

void eval_fn_free(eval_fn *fn)
{
  if (!fn) return;
  weft_arena_fini(&fn->scratch);
  weft_arena_fini(&fn->keep);
  free(fn);
}

hlo_opcode eval_fn_float_op(const eval_fn *fn)
{
  weft_dtype_class class = weft_dtype_class_of(fn->comp->root->shape->type);

  return class == WEFT_CLASS_FLOAT || class == WEFT_CLASS_COMPLEX ? hlo_reducer_op(fn->comp) : HLO_OPCODE_COUNT;
}

static size_t result_bytes(const eval_fn *fn, int i)
{
  const hlo_shape *shape = fn->comp->root->shape;

  return weft_dtype_bytes(hlo_shape_is_tuple(shape) ? shape->elements[i]->type : shape->type);
}

static weft_status *call_slowly(eval_fn *fn, const void *const *args, void *const *results)
{
  const hlo_literal *result, **literals = WEFT_ARENA_ARRAY(&fn->scratch, const hlo_literal *, fn->comp->param_count);

  WEFT_TRY_ALLOC(literals);
  for (int i = 0; i < fn->comp->param_count; i++) {
    hlo_literal *arg;
    WEFT_TRY(eval_result(&fn->ctx, fn->comp->params[i]->shape, &arg));
    memcpy(arg->data, args[i], weft_dtype_bytes(arg->shape->type));
    literals[i] = arg;
  }
  WEFT_TRY(eval_computation(&fn->ctx, fn->comp, literals, &result));
  if (hlo_shape_is_tuple(result->shape))
    for (int i = 0; i < fn->result_count; i++) memcpy(results[i], result->elements[i]->data, result_bytes(fn, i));
  else memcpy(results[0], result->data, result_bytes(fn, 0));
  weft_arena_reset(&fn->scratch);
  return NULL;
}

weft_status *eval_fn_call(eval_fn *fn, const void *const *args, void *const *results)
{
  if (!fn->steps) return call_slowly(fn, args, results);
  for (int i = 0; i < fn->comp->param_count; i++)
    memcpy((void *)fn->params[i], args[i], weft_dtype_bytes(fn->comp->params[i]->shape->type));
  for (eval_step *step = fn->steps, *end = step + fn->step_count; step < end; step++) {
    if (step->instr->op == HLO_BITCAST_CONVERT) memcpy(step->out, step->in[0], SLOT_BYTES);
    else eval_elem_apply(step->instr, step->in, step->out);
  }
  for (int i = 0; i < fn->result_count; i++) memcpy(results[i], fn->results[i], result_bytes(fn, i));
  return NULL;
}
