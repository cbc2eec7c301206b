/* passes/spmd/one_partition.c -- a conditional on the partition's number makes the call or gives zeros; sums
 * distribute the results. */
#include <config.h>

#include "passes/spmd/one_partition.h"

int64_t spmd_only_partition(const hlo_instr *instr)
{
  const hlo_sharding *s = instr->extra ? instr->extra->sharding : NULL;

  if (s && s->kind == HLO_SHARDING_TUPLE && s->tuple_count > 0) s = s->elements[0];
  if (s && s->kind == HLO_SHARDING_MAXIMAL) return s->maximal_device;
  if (s && s->kind == HLO_SHARDING_NAMED && s->mesh->axis_count == 0 && s->mesh->device_ids.count == 1)
    return s->mesh->device_ids.v[0];
  return -1;
}

/* Here and below, tuples are no deeper than HLO_MAX_TUPLE_DEPTH. */
static hlo_instr *zeros(pass_build *b, const hlo_shape *shape, weft_arena *arena)
{
  if (hlo_shape_is_tuple(shape)) {
    hlo_instr **elements = WEFT_ARENA_ARRAY(arena, hlo_instr *, shape->rank);
    for (int i = 0; elements && i < shape->rank; i++) elements[i] = zeros(b, shape->elements[i], arena);
    return elements ? pb_tuple(b, shape->rank, elements) : NULL;
  }
  if (!hlo_shape_is_array(shape)) return pb_instr(b, HLO_AFTER_ALL, shape, 0, NULL);
  return pb_fill(b, pb_scalar(b, shape->type, 0), shape);
}

/* A branch of the conditional before `caller`: `instr` on the elements of its operand, or zeros in its place. */
static weft_status *branch(spmd_mover *m, hlo_computation *caller, const hlo_shape *operand, const hlo_instr *instr,
                           bool calls, hlo_computation **out)
{
  const char *name;
  hlo_instr *args, **operands;
  pass_build b;

  WEFT_TRY(hlo_unique_name(m->module, calls ? "call" : "no_call", &name));
  WEFT_TRY(hlo_computation_new(m->module, name, out));
  hlo_computation_move_before(*out, caller);
  WEFT_TRY(hlo_add_parameter(*out, 0, operand, NULL, &args));
  b = PASS_BUILD_IN(*out);
  if (calls) {
    operands = WEFT_ARENA_ARRAY(m->arena, hlo_instr *, instr->operand_count);
    WEFT_TRY_ALLOC(operands);
    for (int i = 0; i < instr->operand_count; i++) operands[i] = pb_gte(&b, args, i);
    (*out)->root = pb_clone(&b, instr, operands);
  } else {
    (*out)->root = zeros(&b, instr->shape, m->arena);
  }
  return pass_build_finish(&b);
}

/* The sum of each array over all partitions. */
static weft_status *sums(spmd_mover *m, pass_build *b, hlo_instr *x, hlo_instr **out)
{
  hlo_computation *any = NULL;
  spmd_sharding *whole;

  *out = x;
  if (hlo_shape_is_tuple(x->shape)) {
    hlo_instr **elements = WEFT_ARENA_ARRAY(m->arena, hlo_instr *, x->shape->rank);
    WEFT_TRY_ALLOC(elements);
    for (int i = 0; i < x->shape->rank; i++) {
      hlo_instr *element = pb_gte(b, x, i);
      WEFT_TRY(pass_build_finish(b));
      WEFT_TRY(sums(m, b, element, &elements[i]));
    }
    *out = pb_tuple(b, x->shape->rank, elements);
    return pass_build_finish(b);
  }
  if (!hlo_shape_is_array(x->shape)) return NULL;
  if (x->shape->type == WEFT_PRED) WEFT_TRY(hlo_add_reducer(m->module, HLO_OR, WEFT_PRED, &any));
  WEFT_TRY(spmd_sharding_new(m->arena, x->shape->rank, &whole));
  return spmd_combine(m, b, x, whole, ((spmd_mask)1 << m->grid->count) - 1, any, whole, out);
}

weft_status *spmd_call_on_one(spmd_mover *m, pass_build *b, const hlo_instr *instr, hlo_instr *const *operands,
                              int64_t partition, hlo_instr **out)
{
  hlo_instr *args = pb_tuple(b, instr->operand_count, operands), *number, *chosen;
  hlo_computation *branches[2];
  const hlo_shape *scalar = hlo_shape_array(m->arena, WEFT_U32, 0, NULL);

  WEFT_TRY_ALLOC(scalar);
  WEFT_TRY(pass_build_finish(b));
  WEFT_TRY(branch(m, b->comp, args->shape, instr, true, &branches[0]));
  WEFT_TRY(branch(m, b->comp, args->shape, instr, false, &branches[1]));
  number = pb_instr(b, HLO_PARTITION_ID, scalar, 0, NULL);
  chosen = pb_compare(b, HLO_EQ, number, pb_int(b, WEFT_U32, partition));
  *out = pb_instr(b, HLO_CONDITIONAL, instr->shape, 3, (hlo_instr *[]){chosen, args, args});
  WEFT_TRY(pass_build_finish(b));
  WEFT_TRY(hlo_set_called(*out, 2, branches));
  return sums(m, b, *out, out);
}
