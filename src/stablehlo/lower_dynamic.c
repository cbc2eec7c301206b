/* stablehlo/lower_dynamic.c -- programs whose shapes depend on values: the dynamic_* operations become their static
 * forms, since every shape is known once the arguments' shapes are.  Values that shapes depend on are folded here. */
#include <inttypes.h>
#include <string.h>

#include "hlo/eval.h"
#include "stablehlo/lower.h"

static bool block_is_dynamic(const mlir_block *block, int depth)
{
  for (; block && depth <= MLIR_MAX_DEPTH; block = block->next) {
    for (int i = 0; i < block->arg_count; i++)
      if (mlir_type_is_dynamic(block->args[i].type)) return true;
    for (const mlir_op *op = block->first; op; op = op->next) {
      for (int i = 0; i < op->result_count; i++)
        if (mlir_type_is_dynamic(op->results[i].type)) return true;
      for (int r = 0; r < op->region_count; r++)
        if (block_is_dynamic(op->regions[r].first, depth + 1)) return true;
    }
  }
  return false;
}

bool lower_is_dynamic_program(const mlir_module *module)
{
  return module->op->region_count > 0 && block_is_dynamic(module->op->regions[0].first, 0);
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

static weft_status *remember(lowering *l, const hlo_instr *in, const hlo_literal *value)
{
  if (in->id >= l->known_capacity) {
    int capacity = WEFT_MAX(2 * l->known_capacity, in->id + 64);
    const hlo_literal **grown = WEFT_ARENA_ARRAY(&l->scratch, const hlo_literal *, capacity);
    WEFT_TRY_ALLOC(grown);
    if (l->known_capacity) memcpy(grown, l->known, (size_t)l->known_capacity * sizeof(*grown));
    l->known = grown;
    l->known_capacity = capacity;
  }
  l->known[in->id] = value;
  return NULL;
}

enum { KNOWN_DEPTH = 200, KNOWN_ELEMENTS = 1 << 16 }; /* sizes are computed by few operations on small arrays */

static weft_status *known_value(lowering *l, const hlo_instr *in, int depth, const hlo_literal **out)
{
  const hlo_literal **operands;
  hlo_eval_options options = {.deadline = WEFT_NO_DEADLINE, .max_loop_iterations = KNOWN_ELEMENTS, .max_bytes = 64 << 20};

  if (in->id < l->known_capacity && l->known[in->id]) {
    *out = l->known[in->id];
    return NULL;
  }
  if (depth > KNOWN_DEPTH || in->op == HLO_PARAMETER || (hlo_shape_is_array(in->shape) && hlo_shape_elems(in->shape) > KNOWN_ELEMENTS))
    return WEFT_ERR(UNIMPLEMENTED, "a size depends on the value of an argument (%%%s)", in->name);
  operands = WEFT_ARENA_ARRAY(&l->scratch, const hlo_literal *, in->operand_count);
  WEFT_TRY_ALLOC(operands);
  for (int i = 0; i < in->operand_count; i++) WEFT_TRY(known_value(l, in->operands[i], depth + 1, &operands[i]));
  WEFT_TRY(hlo_eval_instr(in, operands, &options, &l->scratch, out));
  return remember(l, in, *out);
}

weft_status *lower_known_ints(lowering *l, hlo_instr *x, hlo_ints *out)
{
  const hlo_literal *value;
  int64_t *v;

  WEFT_TRY(known_value(l, x, 0, &value));
  if (!hlo_shape_is_array(value->shape) || !(weft_dtype_is_integer(value->shape->type) || value->shape->type == WEFT_PRED))
    return WEFT_ERR(INVALID_ARGUMENT, "expected an array of integers");
  int64_t n = hlo_shape_elems(value->shape);
  v = WEFT_ARENA_ARRAY(l->arena, int64_t, n);
  WEFT_TRY_ALLOC(v);
  for (int64_t i = 0; i < n; i++) v[i] = hlo_literal_get_s64(value, i);
  *out = (hlo_ints){(int)n, v};
  return NULL;
}

static weft_status *known_operand(lowering *l, const mlir_op *op, int i, hlo_ints *out)
{
  hlo_instr *x;

  WEFT_TRY(lower_operand(l, op, i, &x));
  WEFT_TRY_NOTE(lower_known_ints(l, x, out), "operand %d", i);
  return NULL;
}

/* The result's shape: as declared, or with the sizes that operand `i` gives. */
static weft_status *shape_from(lowering *l, const mlir_op *op, int i, weft_dtype type, const hlo_shape **out)
{
  hlo_ints dims;

  if (op->result_count != 1) return WEFT_ERR(INVALID_ARGUMENT, "%d results, expected 1", op->result_count);
  WEFT_TRY(lower_static_shape(l, op->results[0].type, out));
  if (*out) return NULL;
  WEFT_TRY(known_operand(l, op, i, &dims));
  if (dims.count > HLO_MAX_RANK) return WEFT_ERR(INVALID_ARGUMENT, "a shape of rank %d", dims.count);
  *out = hlo_shape_array(l->arena, type, dims.count, dims.v);
  WEFT_TRY_ALLOC(*out);
  if (!hlo_shape_is_sane(*out)) return WEFT_ERR(INVALID_ARGUMENT, "a shape with negative or too large sizes");
  return NULL;
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

weft_status *lower_dynamic_broadcast_in_dim(lowering *l, const mlir_op *op)
{
  hlo_instr *x;
  const hlo_shape *shape;
  hlo_ints map;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(shape_from(l, op, 1, x->shape->type, &shape));
  WEFT_TRY(lower_ints(l, op, "broadcast_dimensions", &map));
  WEFT_TRY(lower_broadcast_in_dim(l, x, shape, map, &x));
  return lower_result(l, op, 0, x);
}

weft_status *lower_dynamic_reshape(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;
  const hlo_shape *shape;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(shape_from(l, op, 1, x->shape->type, &shape));
  WEFT_TRY(lower_simple(l, HLO_RESHAPE, shape, 1, &x, &in));
  return lower_result(l, op, 0, in);
}

weft_status *lower_dynamic_iota(lowering *l, const mlir_op *op)
{
  const hlo_shape *shape;
  hlo_instr *in;
  int64_t dim = mlir_attr_int(mlir_attr_of(op, "iota_dimension"), 0);

  if (op->result_count != 1) return WEFT_ERR(INVALID_ARGUMENT, "%d results, expected 1", op->result_count);
  WEFT_TRY(shape_from(l, op, 0, op->results[0].type->dtype, &shape));
  WEFT_TRY(lower_emit(l, HLO_IOTA, shape, 0, NULL, &in));
  WEFT_TRY(hlo_ints_new(l->module, 1, &dim, &in->dims));
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

weft_status *lower_dynamic_pad(lowering *l, const mlir_op *op)
{
  hlo_ints low, high, interior;

  WEFT_TRY(known_operand(l, op, 2, &low));
  WEFT_TRY(known_operand(l, op, 3, &high));
  WEFT_TRY(known_operand(l, op, 4, &interior));
  return lower_pad_with(l, op, low, high, interior);
}

weft_status *lower_dynamic_gather(lowering *l, const mlir_op *op)
{
  hlo_ints sizes;

  WEFT_TRY(known_operand(l, op, 2, &sizes));
  return lower_gather_with(l, op, sizes);
}

weft_status *lower_dynamic_conv(lowering *l, const mlir_op *op)
{
  hlo_ints padding;

  WEFT_TRY(known_operand(l, op, 2, &padding));
  return lower_convolution_with(l, op, padding);
}

weft_status *lower_real_dynamic_slice(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_emit(l, HLO_SLICE, NULL, 1, &x, &in));
  WEFT_TRY(known_operand(l, op, 1, &in->u.slice.start));
  WEFT_TRY(known_operand(l, op, 2, &in->u.slice.limit));
  WEFT_TRY(known_operand(l, op, 3, &in->u.slice.stride));
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

/* Of a static dimension: a constant. */
weft_status *lower_get_dimension_size(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;
  int64_t dim = mlir_attr_int(mlir_attr_of(op, "dimension"), -1);

  WEFT_TRY(lower_operand(l, op, 0, &x));
  if (!hlo_shape_is_array(x->shape) || dim < 0 || dim >= x->shape->rank)
    return WEFT_ERR(INVALID_ARGUMENT, "dimension %" PRId64 " of a rank of %d", dim, x->shape->rank);
  if (x->shape->dynamic && x->shape->dynamic[dim]) {
    WEFT_TRY(lower_emit(l, HLO_GET_DIMENSION_SIZE, NULL, 1, &x, &in));
    WEFT_TRY(hlo_ints_new(l->module, 1, &dim, &in->dims));
    WEFT_TRY(lower_finish(in));
  } else {
    WEFT_TRY(hlo_add_scalar(l->comp, NULL, WEFT_S32, (double)x->shape->dims[dim], &in));
  }
  return lower_result(l, op, 0, in);
}

weft_status *lower_set_dimension_size(lowering *l, const mlir_op *op)
{
  hlo_instr *operands[2], *in;
  int64_t dim = mlir_attr_int(mlir_attr_of(op, "dimension"), -1);

  for (int i = 0; i < 2; i++) WEFT_TRY(lower_operand(l, op, i, &operands[i]));
  WEFT_TRY(lower_emit(l, HLO_SET_DIMENSION_SIZE, NULL, 2, operands, &in));
  WEFT_TRY(hlo_ints_new(l->module, 1, &dim, &in->dims));
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}
