/* stablehlo/lower_quant.c -- quantized types.  A quantized value is held as its stored integers.
 *   value  = (stored - zero) * scale
 *   stored = clamp(round_to_even(value / scale) + zero, min, max)
 * An operation that computes works on values (StableHLO's dequantize_op_quantize); one that only moves elements works
 * on stored integers, if operands and result agree on scale and zero. */
#include <string.h>

#include "stablehlo/lower.h"

/* `values[i]` for element i of the quantized axis, broadcast to the shape of x; a scalar if one scale serves the
 * tensor. */
static weft_status *parameters(lowering *l, const hlo_instr *x, const mlir_quant *q, weft_dtype type, bool scales,
                               hlo_instr **out)
{
  int64_t count = q->count, axis = q->axis;
  hlo_shape *shape = hlo_shape_array(l->arena, type, q->axis < 0 ? 0 : 1, &count);
  hlo_literal *literal;

  WEFT_TRY_ALLOC(shape);
  if (axis >= 0 && (axis >= x->shape->rank || x->shape->dims[axis] != count))
    return WEFT_ERR(INVALID_ARGUMENT, "%d scales for the quantized dimension %d", q->count, q->axis);
  WEFT_TRY(hlo_literal_new(l->arena, shape, &literal));
  for (int i = 0; i < q->count; i++) {
    if (scales) hlo_literal_set_f64(literal, i, q->scales[i], 0);
    else if (weft_dtype_is_integer(type)) hlo_literal_set_s64(literal, i, q->zeros[i]);
    else hlo_literal_set_f64(literal, i, (double)q->zeros[i], 0);
  }
  WEFT_TRY(hlo_add_constant(l->comp, NULL, literal, out));
  if (x->shape->rank == 0) return NULL;
  return hlo_add_broadcast(l->comp, NULL, *out, x->shape->rank, x->shape->dims, &axis, out);
}

static weft_status *dequantize(lowering *l, hlo_instr *x, const mlir_quant *q, hlo_instr **out)
{
  hlo_instr *zero, *scale;
  weft_dtype wide = weft_dtype_bits(q->storage) < 32 ? WEFT_S32 : WEFT_S64;

  WEFT_TRY(lower_convert(l, x, wide, &x));
  WEFT_TRY(parameters(l, x, q, wide, false, &zero));
  WEFT_TRY(lower_binary(l, HLO_SUBTRACT, x, zero, &x));
  WEFT_TRY(lower_convert(l, x, q->expressed, &x));
  WEFT_TRY(parameters(l, x, q, q->expressed, true, &scale));
  return lower_binary(l, HLO_MULTIPLY, x, scale, out);
}

static weft_status *quantize(lowering *l, hlo_instr *x, const mlir_quant *q, hlo_instr **out)
{
  hlo_instr *zero, *scale, *low, *high;

  WEFT_TRY(lower_convert(l, x, q->expressed, &x));
  WEFT_TRY(parameters(l, x, q, q->expressed, true, &scale));
  WEFT_TRY(parameters(l, x, q, q->expressed, false, &zero));
  WEFT_TRY(lower_binary(l, HLO_DIVIDE, x, scale, &x));
  WEFT_TRY(lower_unary(l, HLO_ROUND_EVEN, x, &x));
  WEFT_TRY(lower_binary(l, HLO_ADD, x, zero, &x));
  WEFT_TRY(hlo_add_scalar(l->comp, NULL, q->expressed, (double)q->min, &low));
  WEFT_TRY(hlo_add_scalar(l->comp, NULL, q->expressed, (double)q->max, &high));
  WEFT_TRY(lower_simple(l, HLO_CLAMP, NULL, 3, (hlo_instr *[]){low, x, high}, &x));
  return lower_convert(l, x, q->storage, out);
}

weft_status *lower_uniform_dequantize(lowering *l, const mlir_op *op)
{
  hlo_instr *x;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  if (!op->operands[0]->type->quant) return WEFT_ERR(INVALID_ARGUMENT, "the operand is not quantized");
  WEFT_TRY(dequantize(l, x, op->operands[0]->type->quant, &x));
  return lower_result(l, op, 0, x);
}

weft_status *lower_uniform_quantize(lowering *l, const mlir_op *op)
{
  hlo_instr *x;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  if (op->result_count != 1 || !op->results[0].type->quant)
    return WEFT_ERR(INVALID_ARGUMENT, "the result is not quantized");
  if (op->operands[0]->type->quant) WEFT_TRY(dequantize(l, x, op->operands[0]->type->quant, &x)); /* requantize */
  WEFT_TRY(quantize(l, x, op->results[0].type->quant, &x));
  return lower_result(l, op, 0, x);
}

/* ---- any other operation ----------------------------------------------------------------------------------------- */

static bool is_among(const char *name, size_t count, const char *const *names)
{
  for (size_t i = 0; i < count; i++)
    if (strcmp(names[i], name) == 0) return true;
  return false;
}

/* Operations whose values pass through, whatever they stand for. */
static bool carries_values(const char *name)
{
  static const char *const names[] = {"async_done", "bitcast_convert", "custom_call", "get_dimension_size", "get_tuple_element", "infeed",
                                      "optimization_barrier", "outfeed", "recv", "send", "tuple"};
  return is_among(name, WEFT_COUNT(names), names);
}

static bool moves_elements(const char *name)
{
  static const char *const names[] = {
      "broadcast", "broadcast_in_dim", "concatenate", "constant", "dynamic_broadcast_in_dim",
      "dynamic_gather", "dynamic_iota", "dynamic_pad", "dynamic_reshape", "dynamic_slice", "dynamic_update_slice", "gather",
      "pad", "real_dynamic_slice", "reduce", "collective_reduce",
      "reduce_window", "reshape", "reverse", "scatter", "select", "select_and_scatter", "set_dimension_size", "slice",
      "sort", "transpose", "all_gather", "all_to_all", "collective_broadcast", "collective_permute", "map",
      "all_reduce", "reduce_scatter"};
  return is_among(name, WEFT_COUNT(names), names);
}

/* The result that operand `i` becomes a part of. Of n inputs followed by n initial values or updates there are n
 * results. */
static int flows_to(const mlir_op *op, int i)
{
  int n = op->result_count;

  if (n <= 1) return 0;
  return strcmp(op->name, "scatter") == 0 && i > n ? i - n - 1 : i % n;
}

/* True if scales, zeros and bounds are the same; the axis may have moved. */
static bool same_quant(const mlir_quant *a, const mlir_quant *b)
{
  return a->storage == b->storage && a->expressed == b->expressed && a->count == b->count && a->min == b->min &&
         a->max == b->max && memcmp(a->scales, b->scales, (size_t)a->count * sizeof(double)) == 0 &&
         memcmp(a->zeros, b->zeros, (size_t)a->count * sizeof(int64_t)) == 0;
}

weft_status *lower_is_quantized(const mlir_op *op, bool *out)
{
  bool any = false, differ = false, per_axis = false;

  for (int i = 0; i < op->result_count; i++) {
    const mlir_quant *q = op->results[i].type->quant;
    any |= q != NULL;
    per_axis |= q && q->axis >= 0;
  }
  for (int i = 0; i < op->operand_count; i++) {
    const mlir_quant *q = op->operands[i]->type->quant,
                     *to = op->result_count ? op->results[flows_to(op, i)].type->quant : NULL;
    any |= q != NULL;
    per_axis |= q && q->axis >= 0;
    differ |= q && to && !same_quant(q, to);
  }
  *out = any && strncmp(op->name, "uniform_", 8) != 0 && !carries_values(op->name) &&
         (differ || !moves_elements(op->name));
  return per_axis ? lower_check_per_axis(op) : NULL;
}

/* The type of the values: the expressed type takes the place of the quantized one. */
static weft_status *expressed_type(lowering *l, const mlir_type *t, const mlir_type **out)
{
  return mlir_new_tensor(&l->scratch, mlir_element_type(t->quant->expressed), t->rank, t->dims, t->bounds, out);
}

/* A reduction in a wider or in another quantized type: the operands become what the region takes, and the region
 * computes by itself. */
static weft_status *reduce_requantized(lowering *l, const mlir_op *op)
{
  mlir_op wide = *op;
  mlir_value *operands = WEFT_ARENA_ARRAY(&l->scratch, mlir_value, op->operand_count);
  const mlir_block *block = op->regions[0].first;
  hlo_instr *x;

  wide.operands = WEFT_ARENA_ARRAY(&l->scratch, mlir_value *, op->operand_count);
  WEFT_TRY_ALLOC(operands);
  WEFT_TRY_ALLOC(wide.operands);
  for (int i = 0; i < op->operand_count; i++) {
    const mlir_type *t = op->operands[i]->type, *to;
    int arg = flows_to(op, i);
    wide.operands[i] = op->operands[i];
    if (!t->quant) continue;
    if (!block || arg >= block->arg_count || !block->args[arg].type->quant)
      return WEFT_ERR(INVALID_ARGUMENT, "operand %d is quantized, argument %d of the region is not", i, arg);
    to = block->args[arg].type->element;
    WEFT_TRY(mlir_new_tensor(&l->scratch, to, t->rank, t->dims, t->bounds, &operands[i].type));
    WEFT_TRY(lower_operand(l, op, i, &x));
    if (!same_quant(t->quant, to->quant)) {
      WEFT_TRY(dequantize(l, x, t->quant, &x));
      WEFT_TRY(quantize(l, x, to->quant, &x));
    }
    operands[i].instr = x;
    wide.operands[i] = &operands[i];
  }
  for (int i = 0; i < op->result_count; i++)
    if (block && (i >= block->arg_count || !block->args[i].type->quant || !op->results[i].type->quant ||
                  !same_quant(block->args[i].type->quant, op->results[i].type->quant)))
      return WEFT_ERR(INVALID_ARGUMENT, "result %d is of another quantized type than the region's", i);
  WEFT_TRY(lower_table_op(l, &wide));
  for (int i = 0; i < op->result_count; i++) WEFT_TRY(lower_result(l, op, i, wide.results[i].instr));
  return NULL;
}

static bool is_reduction(const char *name)
{
  static const char *const names[] = {"all_reduce", "collective_reduce", "reduce", "reduce_scatter", "reduce_window", "scatter"};
  return is_among(name, WEFT_COUNT(names), names);
}

weft_status *lower_quantized_op(lowering *l, const mlir_op *op)
{
  mlir_op floats = *op;
  mlir_value *operands = WEFT_ARENA_ARRAY(&l->scratch, mlir_value, op->operand_count);
  hlo_instr *x;

  floats.operands = WEFT_ARENA_ARRAY(&l->scratch, mlir_value *, op->operand_count);
  floats.results = WEFT_ARENA_ARRAY(&l->scratch, mlir_value, op->result_count);
  WEFT_TRY_ALLOC(operands);
  WEFT_TRY_ALLOC(floats.operands);
  WEFT_TRY_ALLOC(floats.results);
  if (op->region_count == 1 && is_reduction(op->name)) return reduce_requantized(l, op);
  if (op->region_count > 0) return WEFT_ERR(UNIMPLEMENTED, "\"%s\" of quantized values that differ in scale", op->name);
  for (int i = 0; i < op->operand_count; i++) {
    floats.operands[i] = op->operands[i];
    if (!op->operands[i]->type->quant) continue;
    WEFT_TRY(expressed_type(l, op->operands[i]->type, &operands[i].type));
    WEFT_TRY(lower_operand(l, op, i, &x));
    WEFT_TRY(dequantize(l, x, op->operands[i]->type->quant, &operands[i].instr));
    floats.operands[i] = &operands[i];
  }
  for (int i = 0; i < op->result_count; i++) {
    floats.results[i].type = op->results[i].type;
    if (op->results[i].type->quant) WEFT_TRY(expressed_type(l, op->results[i].type, &floats.results[i].type));
  }
  WEFT_TRY(lower_table_op(l, &floats));
  for (int i = 0; i < op->result_count; i++) {
    x = floats.results[i].instr;
    if (op->results[i].type->quant) WEFT_TRY(quantize(l, x, op->results[i].type->quant, &x));
    WEFT_TRY(lower_result(l, op, i, x));
  }
  return NULL;
}
