/* stablehlo/lower_ops.c -- one function for each kind of StableHLO operation, and the table of all of them.
 * Attribute names are VHLO's (mlir.h). Shapes come from inference; declared types are only compared with them
 * (lower_result). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "stablehlo/lower.h"

/* ---- elementwise ------------------------------------------------------------------------------------------------- */

static const lower_entry *entry_of(const mlir_op *op);

static weft_status *accuracy(lowering *l, const mlir_op *op, hlo_instr *in)
{
  static const char *const modes[] = {"DEFAULT", "HIGHEST", "TOLERANCE"};
  const mlir_attr *a = mlir_attr_of(op, "result_accuracy");
  const char *mode = mlir_attr_text(mlir_dict_get(a, "mode"), "DEFAULT");
  hlo_accuracy *accuracy;
  hlo_extra *extra;

  if (!a || strcmp(mode, "DEFAULT") == 0) return NULL;
  accuracy = WEFT_ARENA_NEW(l->arena, hlo_accuracy);
  WEFT_TRY_ALLOC(accuracy);
  for (int i = 0; i < 3; i++)
    if (strcmp(mode, modes[i]) == 0) accuracy->mode = i;
  accuracy->atol = mlir_attr_double(mlir_dict_get(a, "atol"), 0);
  accuracy->rtol = mlir_attr_double(mlir_dict_get(a, "rtol"), 0);
  accuracy->ulps = mlir_attr_int(mlir_dict_get(a, "ulps"), 0);
  WEFT_TRY(lower_new_extra(l, in, &extra));
  extra->accuracy = accuracy;
  return NULL;
}

/* Operations that have the same name in HLO and no attributes except an accuracy. */
static weft_status *elementwise(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;
  hlo_opcode code = entry_of(op)->code;

  WEFT_TRY(lower_operands(l, op, &operands));
  if (op->operand_count > 0 && operands[0]->shape->type == WEFT_PRED) { /* arithmetic of truth values */
    if (code == HLO_ADD || code == HLO_MAXIMUM) code = HLO_OR;
    if (code == HLO_MULTIPLY || code == HLO_MINIMUM) code = HLO_AND;
  }
  WEFT_TRY(lower_simple(l, code, NULL, op->operand_count, operands, &in));
  WEFT_TRY(accuracy(l, op, in));
  return lower_result(l, op, 0, in);
}

static weft_status *convert(lowering *l, const mlir_op *op)
{
  hlo_instr *x;
  weft_dtype to = op->result_count ? op->results[0].type->dtype : WEFT_INVALID;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  if (!hlo_shape_is_array(x->shape) || !weft_dtype_is_array(to)) return WEFT_ERR(INVALID_ARGUMENT, "not an array");
  if (weft_dtype_is_complex(x->shape->type) && !weft_dtype_is_complex(to)) /* the imaginary part is dropped */
    WEFT_TRY(lower_unary(l, HLO_REAL, x, &x));
  WEFT_TRY(lower_convert(l, x, to, &x));
  return lower_result(l, op, 0, x);
}

static weft_status *compare(lowering *l, const mlir_op *op)
{
  static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  static const char *const types[] = {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
  const char *direction = mlir_attr_text(mlir_attr_of(op, "comparison_direction"), "");
  const char *type = mlir_attr_text(mlir_attr_of(op, "compare_type"), "NOTYPE");
  hlo_instr **operands, *in;
  int found = -1;

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_emit(l, HLO_COMPARE, NULL, op->operand_count, operands, &in));
  for (size_t i = 0; i < WEFT_COUNT(directions); i++)
    if (strcmp(directions[i], direction) == 0) found = (int)i;
  if (found < 0) return WEFT_ERR(INVALID_ARGUMENT, "comparison_direction is \"%s\"", direction);
  in->u.compare.direction = (hlo_direction)found;
  for (size_t i = 0; i < WEFT_COUNT(types); i++)
    if (strcmp(types[i], type) == 0) in->u.compare.type = (hlo_compare_type)i;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *reduce_precision(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_emit(l, HLO_REDUCE_PRECISION, NULL, 1, &x, &in));
  in->u.reduce_precision.exponent_bits = (int)mlir_attr_int(mlir_attr_of(op, "exponent_bits"), 0);
  in->u.reduce_precision.mantissa_bits = (int)mlir_attr_int(mlir_attr_of(op, "mantissa_bits"), 0);
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

/* The declared shape of the result; if it is dynamic, the dimensions of x with the declared element type. */
static weft_status *declared(lowering *l, const mlir_op *op, const hlo_instr *like, const hlo_shape **out)
{
  if (op->result_count < 1) return WEFT_ERR(INVALID_ARGUMENT, "no result");
  WEFT_TRY(lower_static_shape(l, op->results[0].type, out));
  if (*out) return NULL;
  if (!like) return lower_shape(l, op->results[0].type, out);
  *out = hlo_shape_array(l->arena, op->results[0].type->dtype, like->shape->rank, like->shape->dims);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

/* The unsigned integer type with as many bits as an element of the type. */
static weft_dtype bits_type(weft_dtype type)
{
  switch (weft_dtype_is_complex(type) ? 0 : weft_dtype_bits(type)) {
  case 2: return WEFT_U2;
  case 4: return WEFT_U4;
  case 8: return WEFT_U8;
  case 16: return WEFT_U16;
  case 32: return WEFT_U32;
  case 64: return WEFT_U64;
  default: return WEFT_INVALID;
  }
}

/* 0, 1, ... along the last dimension of a shape. */
static weft_status *positions(lowering *l, const hlo_shape *shape, hlo_instr **out)
{
  int64_t last = shape->rank - 1;

  WEFT_TRY(lower_emit(l, HLO_IOTA, shape, 0, NULL, out));
  WEFT_TRY(hlo_ints_new(l->module, 1, &last, &(*out)->dims));
  return lower_finish(*out);
}

/* In StableHLO i1 is one bit, in memory it is a byte. i1[..., n] becomes an element of n bits: the sum of the bits
 * in their places. */
static weft_status *pack_bits(lowering *l, const mlir_op *op, hlo_instr *x, const hlo_shape *shape)
{
  weft_dtype bits = bits_type(shape->type);
  int last = x->shape->rank - 1;
  hlo_computation *add;
  hlo_instr *at, *zero, *in;

  if (bits == WEFT_INVALID || last < 0 || x->shape->dims[last] != weft_dtype_bits(shape->type))
    return WEFT_ERR(INVALID_ARGUMENT, "%s from a minor dimension of %" PRId64 " bits", weft_dtype_name(shape->type),
                    last < 0 ? 0 : x->shape->dims[last]);
  WEFT_TRY(lower_convert(l, x, bits, &in));
  WEFT_TRY(positions(l, in->shape, &at));
  WEFT_TRY(lower_binary(l, HLO_SHIFT_LEFT, in, at, &in));
  WEFT_TRY(hlo_add_reducer(l->module, HLO_ADD, bits, &add));
  WEFT_TRY(hlo_add_scalar(l->comp, NULL, bits, 0, &zero));
  WEFT_TRY(hlo_add_reduce(l->comp, NULL, in, zero, 1, &(int64_t){last}, add, &in));
  WEFT_TRY(lower_simple(l, HLO_BITCAST_CONVERT, shape, 1, &in, &in));
  return lower_result(l, op, 0, in);
}

/* An element of n bits -> i1[..., n]. */
static weft_status *unpack_bits(lowering *l, const mlir_op *op, hlo_instr *x)
{
  const hlo_shape *from = x->shape, *words, *spread;
  weft_dtype bits = bits_type(from->type);
  int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK];
  hlo_instr *at, *one, *in;

  if (bits == WEFT_INVALID || from->rank == HLO_MAX_RANK)
    return WEFT_ERR(INVALID_ARGUMENT, "the bits of %s of rank %d", weft_dtype_name(from->type), from->rank);
  for (int i = 0; i < from->rank; i++) {
    dims[i] = from->dims[i];
    map[i] = i;
  }
  dims[from->rank] = weft_dtype_bits(bits);
  words = hlo_shape_with_type(l->arena, from, bits);
  spread = hlo_shape_array(l->arena, bits, from->rank + 1, dims);
  WEFT_TRY_ALLOC(words && spread);
  WEFT_TRY(lower_simple(l, HLO_BITCAST_CONVERT, words, 1, &x, &in));
  WEFT_TRY(lower_broadcast_in_dim(l, in, spread, (hlo_ints){from->rank, map}, &in));
  WEFT_TRY(positions(l, spread, &at));
  WEFT_TRY(lower_binary(l, HLO_SHIFT_RIGHT_LOGICAL, in, at, &in));
  WEFT_TRY(lower_like(l, in, 1, &one));
  WEFT_TRY(lower_binary(l, HLO_AND, in, one, &in));
  WEFT_TRY(lower_convert(l, in, WEFT_PRED, &in));
  return lower_result(l, op, 0, in);
}

static weft_status *bitcast_convert(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;
  const hlo_shape *shape;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(declared(l, op, x, &shape));
  if (x->shape->type == WEFT_PRED && shape->type != WEFT_PRED) return pack_bits(l, op, x, shape);
  if (x->shape->type != WEFT_PRED && shape->type == WEFT_PRED) return unpack_bits(l, op, x);
  WEFT_TRY(lower_simple(l, HLO_BITCAST_CONVERT, shape, 1, &x, &in));
  return lower_result(l, op, 0, in);
}

/* ---- data movement ----------------------------------------------------------------------------------------------- */

static weft_status *scalar_constant(lowering *l, const mlir_attr *value, weft_dtype type, hlo_instr **out)
{
  const hlo_shape *shape = hlo_shape_array(l->arena, type, 0, NULL);
  hlo_literal *literal;

  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(hlo_literal_new(l->arena, shape, &literal));
  if (weft_dtype_is_integer(type) || type == WEFT_PRED)
    hlo_literal_set_s64(literal, 0, mlir_attr_int(value, mlir_attr_bool(value, false)));
  else hlo_literal_set_f64(literal, 0, mlir_attr_double(value, 0), 0);
  return hlo_add_constant(l->comp, NULL, literal, out);
}

static weft_status *constant(lowering *l, const mlir_op *op)
{
  const mlir_attr *value = mlir_attr_of(op, "value");
  hlo_instr *in;

  if (value && op->result_count == 1 && op->results[0].type->kind != MLIR_TENSOR) { /* arith's form: a number */
    const mlir_type *type = op->results[0].type;
    if (!(type->kind == MLIR_ELEMENT || type->kind == MLIR_INDEX) || type->dtype == WEFT_INVALID ||
        !(value->kind == MLIR_INT || value->kind == MLIR_BOOL || value->kind == MLIR_FLOAT))
      return WEFT_ERR(UNIMPLEMENTED, "a constant that is no number");
    return scalar_constant(l, value, type->dtype, &op->results[0].instr);
  }
  if (!value || value->kind != MLIR_DENSE) return WEFT_ERR(INVALID_ARGUMENT, "no dense value");
  WEFT_TRY(lower_dense(l, value, &in));
  return lower_result(l, op, 0, in);
}

static weft_status *iota(lowering *l, const mlir_op *op)
{
  const hlo_shape *shape;
  hlo_instr *in;
  int64_t dim = mlir_attr_int(mlir_attr_of(op, "iota_dimension"), 0);

  WEFT_TRY(declared(l, op, NULL, &shape));
  WEFT_TRY(lower_emit(l, HLO_IOTA, shape, 0, NULL, &in));
  WEFT_TRY(hlo_ints_new(l->module, 1, &dim, &in->dims));
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *broadcast_in_dim(lowering *l, const mlir_op *op)
{
  hlo_instr *x;
  const hlo_shape *shape;
  hlo_ints map;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(declared(l, op, NULL, &shape));
  WEFT_TRY(lower_ints(l, op, "broadcast_dimensions", &map));
  WEFT_TRY(lower_broadcast_in_dim(l, x, shape, map, &x));
  return lower_result(l, op, 0, x);
}

/* The old broadcast: new dimensions stand in front. */
static weft_status *broadcast(lowering *l, const mlir_op *op)
{
  hlo_instr *x;
  hlo_ints sizes;
  int64_t dims[2 * HLO_MAX_RANK], map[HLO_MAX_RANK];

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_ints(l, op, "broadcast_sizes", &sizes));
  if (sizes.count + x->shape->rank > HLO_MAX_RANK) return WEFT_ERR(INVALID_ARGUMENT, "rank over %d", HLO_MAX_RANK);
  for (int i = 0; i < sizes.count; i++) dims[i] = sizes.v[i];
  for (int i = 0; i < x->shape->rank; i++) {
    dims[sizes.count + i] = x->shape->dims[i];
    map[i] = sizes.count + i;
  }
  hlo_shape *shape = hlo_shape_array(l->arena, x->shape->type, sizes.count + x->shape->rank, dims);
  WEFT_TRY_ALLOC(shape);
  if (!hlo_shape_is_sane(shape)) return WEFT_ERR(INVALID_ARGUMENT, "broadcast_sizes are negative or too large");
  WEFT_TRY(lower_broadcast_in_dim(l, x, shape, (hlo_ints){x->shape->rank, map}, &x));
  return lower_result(l, op, 0, x);
}

static weft_status *reshape(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;
  const hlo_shape *shape;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(declared(l, op, NULL, &shape));
  WEFT_TRY(lower_simple(l, HLO_RESHAPE, shape, 1, &x, &in));
  return lower_result(l, op, 0, in);
}

/* MHLO's bitcast: the same bytes with another shape. Layouts that are not row-major would make it a transpose, and
 * are refused. */
static weft_status *bitcast(lowering *l, const mlir_op *op)
{
  static const char *const layouts[] = {"source_layout", "result_layout"};

  for (size_t i = 0; i < WEFT_COUNT(layouts); i++) {
    hlo_ints order;
    WEFT_TRY(lower_ints(l, op, layouts[i], &order));
    for (int d = 0; d < order.count; d++)
      if (order.v[d] != order.count - 1 - d)
        return WEFT_ERR(UNIMPLEMENTED, "a bitcast whose %s is not row-major", layouts[i]);
  }
  return reshape(l, op);
}

/* Operands, and a list of dimensions from an attribute that HLO calls `dimensions`. */
static weft_status *with_dims(lowering *l, const mlir_op *op, hlo_opcode code, const char *attr)
{
  hlo_instr **operands, *in;
  const mlir_attr *a = mlir_attr_of(op, attr);

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_emit(l, code, NULL, op->operand_count, operands, &in));
  if (a && a->kind == MLIR_INT) {
    WEFT_TRY(hlo_ints_new(l->module, 1, &a->u.i, &in->dims));
  } else {
    WEFT_TRY(lower_ints(l, op, attr, &in->dims));
  }
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *transpose(lowering *l, const mlir_op *op) { return with_dims(l, op, HLO_TRANSPOSE, "permutation"); }
static weft_status *reverse(lowering *l, const mlir_op *op) { return with_dims(l, op, HLO_REVERSE, "dimensions"); }
static weft_status *concatenate(lowering *l, const mlir_op *op)
{
  return with_dims(l, op, HLO_CONCATENATE, "dimension");
}

static weft_status *slice(lowering *l, const mlir_op *op)
{
  hlo_slice_attrs *attrs = WEFT_ARENA_NEW(l->arena, hlo_slice_attrs);
  hlo_instr *x, *in;

  WEFT_TRY_ALLOC(attrs);
  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_ints(l, op, "start_indices", &attrs->start));
  WEFT_TRY(lower_ints(l, op, "limit_indices", &attrs->limit));
  WEFT_TRY(lower_ints(l, op, "strides", &attrs->stride));
  WEFT_TRY(lower_emit(l, HLO_SLICE, NULL, 1, &x, &in));
  in->u.slice = attrs;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

weft_status *lower_pad_with(lowering *l, const mlir_op *op, hlo_ints low, hlo_ints high, hlo_ints interior)
{
  hlo_instr *operands[2], *in;
  hlo_pad_dim *dims;

  for (int i = 0; i < 2; i++) WEFT_TRY(lower_operand(l, op, i, &operands[i]));
  int rank = operands[0]->shape->rank;
  if (low.count != rank || high.count != rank || interior.count != rank)
    return WEFT_ERR(INVALID_ARGUMENT, "padding of rank %d, %d, %d for rank %d", low.count, high.count, interior.count,
                    rank);
  dims = WEFT_ARENA_ARRAY(l->arena, hlo_pad_dim, rank);
  WEFT_TRY_ALLOC(dims);
  for (int i = 0; i < rank; i++) dims[i] = (hlo_pad_dim){low.v[i], high.v[i], interior.v[i]};
  WEFT_TRY(lower_emit(l, HLO_PAD, NULL, 2, operands, &in));
  in->u.pad.rank = rank;
  in->u.pad.dims = dims;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *pad(lowering *l, const mlir_op *op)
{
  hlo_ints low, high, interior;

  WEFT_TRY(lower_ints(l, op, "edge_padding_low", &low));
  WEFT_TRY(lower_ints(l, op, "edge_padding_high", &high));
  WEFT_TRY(lower_ints(l, op, "interior_padding", &interior));
  return lower_pad_with(l, op, low, high, interior);
}

static weft_status *dynamic_slice(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_emit(l, HLO_DYNAMIC_SLICE, NULL, op->operand_count, operands, &in));
  WEFT_TRY(lower_ints(l, op, "slice_sizes", &in->u.slice_sizes));
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

/* dynamic_update_slice: HLO has the same operation. */
static weft_status *same(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_simple(l, entry_of(op)->code, NULL, op->operand_count, operands, &in));
  return lower_result(l, op, 0, in);
}

weft_status *lower_gather_with(lowering *l, const mlir_op *op, hlo_ints slice_sizes)
{
  hlo_instr *operands[2], *in;
  hlo_gather_attrs *g = WEFT_ARENA_NEW(l->arena, hlo_gather_attrs);

  WEFT_TRY_ALLOC(g);
  for (int i = 0; i < 2; i++) WEFT_TRY(lower_operand(l, op, i, &operands[i]));
  WEFT_TRY(lower_ints(l, op, "offset_dims", &g->offset_dims));
  WEFT_TRY(lower_ints(l, op, "collapsed_slice_dims", &g->collapsed_slice_dims));
  WEFT_TRY(lower_ints(l, op, "operand_batching_dims", &g->operand_batching_dims));
  WEFT_TRY(lower_ints(l, op, "start_indices_batching_dims", &g->start_indices_batching_dims));
  WEFT_TRY(lower_ints(l, op, "start_index_map", &g->start_index_map));
  g->index_vector_dim = mlir_attr_int(mlir_attr_of(op, "index_vector_dim"), 0);
  g->indices_are_sorted = mlir_attr_bool(mlir_attr_of(op, "indices_are_sorted"), false);
  g->slice_sizes = slice_sizes;
  WEFT_TRY(lower_emit(l, HLO_GATHER, NULL, 2, operands, &in));
  in->u.gather = g;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *gather(lowering *l, const mlir_op *op)
{
  hlo_ints sizes;

  WEFT_TRY(lower_ints(l, op, "slice_sizes", &sizes));
  return lower_gather_with(l, op, sizes);
}

/* torch_index_select(x, index, dim, batch_dims): result[batch..., before..., index..., after...] = x[.., index, ..] */
static weft_status *torch_index_select(lowering *l, const mlir_op *op)
{
  hlo_instr *operands[2], *in;
  hlo_gather_attrs *g = WEFT_ARENA_NEW(l->arena, hlo_gather_attrs);
  int64_t offset[HLO_MAX_RANK], sizes[HLO_MAX_RANK], batch[HLO_MAX_RANK];
  int64_t dim = mlir_attr_int(mlir_attr_of(op, "dim"), 0), batches = mlir_attr_int(mlir_attr_of(op, "batch_dims"), 0);
  int offsets = 0;

  WEFT_TRY_ALLOC(g);
  for (int i = 0; i < 2; i++) WEFT_TRY(lower_operand(l, op, i, &operands[i]));
  int rank = operands[0]->shape->rank, index_rank = operands[1]->shape->rank;
  if (!hlo_shape_is_array(operands[0]->shape) || !hlo_shape_is_array(operands[1]->shape))
    return WEFT_ERR(INVALID_ARGUMENT, "an operand is no array");
  if (batches < 0 || batches > index_rank || dim < batches || dim >= rank || rank + index_rank > HLO_MAX_RANK)
    return WEFT_ERR(INVALID_ARGUMENT, "dim %" PRId64 ", batch_dims %" PRId64, dim, batches);
  for (int d = 0; d < rank; d++) {
    sizes[d] = d < batches || d == dim ? 1 : operands[0]->shape->dims[d];
    if (d < batches) batch[d] = d;
    if (d >= batches && d != dim) offset[offsets++] = d < dim ? d : d - 1 + index_rank - batches;
  }
  WEFT_TRY(hlo_ints_new(l->module, offsets, offset, &g->offset_dims));
  WEFT_TRY(hlo_ints_new(l->module, 1, &dim, &g->collapsed_slice_dims));
  WEFT_TRY(hlo_ints_new(l->module, 1, &dim, &g->start_index_map));
  WEFT_TRY(hlo_ints_new(l->module, (int)batches, batch, &g->operand_batching_dims));
  WEFT_TRY(hlo_ints_new(l->module, (int)batches, batch, &g->start_indices_batching_dims));
  WEFT_TRY(hlo_ints_new(l->module, rank, sizes, &g->slice_sizes));
  g->index_vector_dim = index_rank;
  WEFT_TRY(lower_emit(l, HLO_GATHER, NULL, 2, operands, &in));
  in->u.gather = g;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

/* ---- operations with regions of scalars -------------------------------------------------------------------------- */

/* Converts the operands from `first` on to the element types of the region's parameters from `param` on: StableHLO
 * lets a reduction accumulate in a wider type. */
static weft_status *promote(lowering *l, hlo_instr **operands, int count, const hlo_computation *f, int param)
{
  for (int i = 0; i < count; i++) {
    if (param + i >= f->param_count) return WEFT_ERR(INVALID_ARGUMENT, "the region takes %d arguments", f->param_count);
    if (hlo_shape_is_array(operands[i]->shape))
      WEFT_TRY(lower_convert(l, operands[i], f->params[param + i]->shape->type, &operands[i]));
  }
  return NULL;
}

/* reduce and reduce_window: N inputs, N inits, one region. */
static weft_status *reduction(lowering *l, const mlir_op *op, hlo_opcode code, hlo_instr **out)
{
  hlo_instr **operands;
  hlo_computation *f;
  int n = op->operand_count / 2;

  if (n == 0) return WEFT_ERR(INVALID_ARGUMENT, "%d operands", op->operand_count);
  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_scalar_region(l, op, 0, "reducer", WEFT_INVALID, &f));
  WEFT_TRY(promote(l, operands, n, f, n));
  WEFT_TRY(promote(l, operands + n, op->operand_count - n, f, 0));
  WEFT_TRY(lower_emit(l, code, NULL, op->operand_count, operands, out));
  return hlo_set_called(*out, 1, &f);
}

/* A reduction whose region returns `values`, scalars from outside of it: the result is these values if there is
 * something to reduce. It is not done if only execution can tell whether there is, or if the types of the values
 * differ from those of the initial values. */
static weft_status *captured_reduce(lowering *l, const mlir_op *op, hlo_ints dims, hlo_instr *const *values,
                                    bool *out_done)
{
  int n = op->operand_count / 2, rank = 0;
  int64_t kept[HLO_MAX_RANK], reduced = 1;
  const hlo_shape *x;
  hlo_instr *in;

  *out_done = false;
  WEFT_TRY(lower_operand(l, op, 0, &in));
  x = in->shape;
  if (!hlo_shape_is_array(x) || x->dynamic || op->result_count != n || op->operand_count != 2 * n) return NULL;
  for (int d = 0; d < x->rank; d++) {
    bool is_reduced = false;
    for (int i = 0; i < dims.count; i++) is_reduced |= dims.v[i] == d;
    if (is_reduced) reduced = WEFT_MIN(reduced, x->dims[d]);
    else kept[rank++] = x->dims[d];
  }
  if (rank + dims.count != x->rank) return NULL; /* some of `dims` are not dimensions of x, or appear twice */
  for (int i = 0; i < n; i++) {
    WEFT_TRY(lower_operand(l, op, i, &in));
    if (!hlo_shape_is_array(in->shape) || in->shape->rank != x->rank ||
        memcmp(in->shape->dims, x->dims, (size_t)x->rank * sizeof *x->dims) != 0)
      return NULL;
    WEFT_TRY(lower_operand(l, op, n + i, &in));
    if (!hlo_shape_is_scalar(in->shape) || !hlo_shape_equal(in->shape, values[i]->shape, false)) return NULL;
  }
  for (int i = 0; i < n; i++) {
    WEFT_TRY(lower_operand(l, op, n + i, &in));
    WEFT_TRY(hlo_add_broadcast(l->comp, NULL, reduced > 0 ? values[i] : in, rank, kept, NULL, &in));
    WEFT_TRY(lower_result(l, op, i, in));
  }
  *out_done = true;
  return NULL;
}

static weft_status *reduce(lowering *l, const mlir_op *op)
{
  hlo_instr *in, **captured;
  hlo_ints dims;
  bool done = false;

  WEFT_TRY(lower_ints(l, op, "dimensions", &dims));
  WEFT_TRY(lower_captured_results(l, op, 0, op->operand_count / 2, &captured));
  if (captured) WEFT_TRY(captured_reduce(l, op, dims, captured, &done));
  if (done) return NULL;
  WEFT_TRY(reduction(l, op, HLO_REDUCE, &in));
  in->dims = dims;
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

static int64_t at_or(hlo_ints list, int i, int64_t fallback) { return i < list.count ? list.v[i] : fallback; }

/* A list that may be left out, but that may not be shorter than expected. */
static weft_status *need_count(const char *name, hlo_ints list, int count)
{
  if (list.count == 0 || list.count == count) return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "%s has %d numbers, expected %d", name, list.count, count);
}

static const char *const window_names[] = {"window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding"};

static weft_status *new_window(lowering *l, int rank, const hlo_ints *w, hlo_window **out)
{
  hlo_window_dim *dims = WEFT_ARENA_ARRAY(l->arena, hlo_window_dim, rank);

  if (w[0].count != rank)
    return WEFT_ERR(INVALID_ARGUMENT, "window_dimensions has %d numbers, expected %d", w[0].count, rank);
  for (size_t i = 1; i < WEFT_COUNT(window_names); i++)
    WEFT_TRY(need_count(window_names[i], w[i], i == 4 ? 2 * rank : rank));
  *out = WEFT_ARENA_NEW(l->arena, hlo_window);
  WEFT_TRY_ALLOC(*out);
  WEFT_TRY_ALLOC(dims);
  for (int i = 0; i < rank; i++)
    dims[i] = (hlo_window_dim){.size = at_or(w[0], i, 1),
                               .stride = at_or(w[1], i, 1),
                               .base_dilation = at_or(w[2], i, 1),
                               .window_dilation = at_or(w[3], i, 1),
                               .pad_low = at_or(w[4], 2 * i, 0),
                               .pad_high = at_or(w[4], 2 * i + 1, 0)};
  **out = (hlo_window){rank, dims};
  return NULL;
}

/* The window of reduce_window and select_and_scatter; the sizes are given, everything else has defaults. */
static weft_status *window(lowering *l, const mlir_op *op, int rank, hlo_window **out)
{
  hlo_ints w[WEFT_COUNT(window_names)];

  for (size_t i = 0; i < WEFT_COUNT(w); i++) WEFT_TRY(lower_ints(l, op, window_names[i], &w[i]));
  return new_window(l, rank, w, out);
}

weft_status *lower_reduce_window_with(lowering *l, const mlir_op *op, int inputs, hlo_computation *f,
                                      const hlo_ints *window_lists)
{
  hlo_instr **operands, *in;
  hlo_window *w;

  WEFT_TRY(lower_operands(l, op, &operands));
  if (inputs < 1 || 2 * inputs > op->operand_count) return WEFT_ERR(INVALID_ARGUMENT, "%d operands", op->operand_count);
  WEFT_TRY(promote(l, operands, inputs, f, inputs));
  WEFT_TRY(promote(l, operands + inputs, inputs, f, 0));
  WEFT_TRY(lower_emit(l, HLO_REDUCE_WINDOW, NULL, 2 * inputs, operands, &in));
  WEFT_TRY(hlo_set_called(in, 1, &f));
  WEFT_TRY(new_window(l, operands[0]->shape->rank, window_lists, &w));
  in->u.window = w;
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

static weft_status *reduce_window(lowering *l, const mlir_op *op)
{
  hlo_instr *in;
  hlo_window *w;

  WEFT_TRY(reduction(l, op, HLO_REDUCE_WINDOW, &in));
  WEFT_TRY(window(l, op, in->operands[0]->shape->rank, &w));
  in->u.window = w;
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

static weft_status *select_and_scatter(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;
  hlo_computation *f[2];
  hlo_window *w;

  WEFT_TRY(lower_operands(l, op, &operands));
  if (op->operand_count != 3) return WEFT_ERR(INVALID_ARGUMENT, "%d operands, expected 3", op->operand_count);
  WEFT_TRY(lower_scalar_region(l, op, 1, "scatter", WEFT_INVALID, &f[1]));
  /* all become the type of the accumulator */
  for (int i = 0; i < 3; i++) WEFT_TRY(promote(l, &operands[i], 1, f[1], 0));
  WEFT_TRY(lower_scalar_region(l, op, 0, "select", operands[0]->shape->type, &f[0]));
  WEFT_TRY(lower_emit(l, HLO_SELECT_AND_SCATTER, NULL, op->operand_count, operands, &in));
  WEFT_TRY(hlo_set_called(in, 2, f));
  WEFT_TRY(window(l, op, operands[0]->shape->rank, &w));
  in->u.window = w;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *map(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;
  hlo_computation *f;

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_scalar_region(l, op, 0, "mapped", WEFT_INVALID, &f));
  WEFT_TRY(lower_emit(l, HLO_MAP, NULL, op->operand_count, operands, &in));
  WEFT_TRY(hlo_set_called(in, 1, &f));
  WEFT_TRY(lower_ints(l, op, "dimensions", &in->dims));
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *sort(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;
  hlo_computation *f;

  WEFT_TRY(lower_operands(l, op, &operands));
  if (op->operand_count < 1) return WEFT_ERR(INVALID_ARGUMENT, "no operands");
  int64_t dim = mlir_attr_int(mlir_attr_of(op, "dimension"), -1);
  if (dim < 0) dim += operands[0]->shape->rank;
  WEFT_TRY(lower_scalar_region(l, op, 0, "comparator", WEFT_INVALID, &f));
  WEFT_TRY(lower_emit(l, HLO_SORT, NULL, op->operand_count, operands, &in));
  WEFT_TRY(hlo_set_called(in, 1, &f));
  WEFT_TRY(hlo_ints_new(l->module, 1, &dim, &in->dims));
  in->u.is_stable = mlir_attr_bool(mlir_attr_of(op, "is_stable"), false);
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

static weft_status *scatter(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;
  hlo_computation *f;
  int n = op->operand_count / 2;
  hlo_scatter_attrs *s = WEFT_ARENA_NEW(l->arena, hlo_scatter_attrs);

  WEFT_TRY_ALLOC(s);
  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_scalar_region(l, op, 0, "update", WEFT_INVALID, &f));
  if (op->operand_count % 2 == 0) return WEFT_ERR(INVALID_ARGUMENT, "%d operands", op->operand_count);
  WEFT_TRY(promote(l, operands, n, f, 0));
  WEFT_TRY(promote(l, operands + n + 1, n, f, n));
  WEFT_TRY(lower_ints(l, op, "update_window_dims", &s->update_window_dims));
  WEFT_TRY(lower_ints(l, op, "inserted_window_dims", &s->inserted_window_dims));
  WEFT_TRY(lower_ints(l, op, "input_batching_dims", &s->input_batching_dims));
  WEFT_TRY(lower_ints(l, op, "scatter_indices_batching_dims", &s->scatter_indices_batching_dims));
  WEFT_TRY(lower_ints(l, op, "scatter_dims_to_operand_dims", &s->scatter_dims_to_operand_dims));
  s->index_vector_dim = mlir_attr_int(mlir_attr_of(op, "index_vector_dim"), 0);
  s->indices_are_sorted = mlir_attr_bool(mlir_attr_of(op, "indices_are_sorted"), false);
  s->unique_indices = mlir_attr_bool(mlir_attr_of(op, "unique_indices"), false);
  WEFT_TRY(lower_emit(l, HLO_SCATTER, NULL, op->operand_count, operands, &in));
  WEFT_TRY(hlo_set_called(in, 1, &f));
  in->u.scatter = s;
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static weft_status *precision(lowering *l, const mlir_op *op, int *out_count, const hlo_precision **out)
{
  static const char *const words[] = {"DEFAULT", "HIGH", "HIGHEST", "PACKED_NIBBLE"};
  const mlir_attr *a = mlir_attr_of(op, "precision_config");
  hlo_precision *list;
  bool all_default = true;

  if (!a || a->kind != MLIR_ARRAY) return NULL;
  list = WEFT_ARENA_ARRAY(l->arena, hlo_precision, a->u.array.count);
  WEFT_TRY_ALLOC(list);
  for (int i = 0; i < a->u.array.count; i++) {
    const char *word = mlir_attr_text(a->u.array.items[i], "");
    size_t w = 0;
    while (w < WEFT_COUNT(words) && strcmp(word, words[w]) != 0) w++;
    if (w == WEFT_COUNT(words))
      return WEFT_ERR(INVALID_ARGUMENT, "precision \"%s\" is none of DEFAULT, HIGH, HIGHEST", word);
    list[i] = (hlo_precision)w;
    all_default &= w == 0;
  }
  if (all_default) return NULL; /* means the same as none given */
  *out_count = a->u.array.count;
  *out = list;
  return NULL;
}

/* The algorithm of a dot: the types of the parts, how many parts there are, and whether the accumulator may be
 * imprecise. */
static weft_status *dot_algorithm(const mlir_op *op, hlo_dot_algorithm *out)
{
  static const struct { const char *lhs, *rhs, *accumulator; int64_t operations; hlo_dot_algorithm algorithm; } table[] = {
      {"f16", "f16", "f16", 1, HLO_ALG_F16_F16_F16}, {"f16", "f16", "f32", 1, HLO_ALG_F16_F16_F32},
      {"bf16", "bf16", "bf16", 1, HLO_ALG_BF16_BF16_BF16}, {"bf16", "bf16", "f32", 1, HLO_ALG_BF16_BF16_F32},
      {"bf16", "bf16", "f32", 3, HLO_ALG_BF16_BF16_F32_X3}, {"bf16", "bf16", "f32", 6, HLO_ALG_BF16_BF16_F32_X6},
      {"bf16", "bf16", "f32", 9, HLO_ALG_BF16_BF16_F32_X9}, {"tf32", "tf32", "f32", 1, HLO_ALG_TF32_TF32_F32},
      {"tf32", "tf32", "f32", 3, HLO_ALG_TF32_TF32_F32_X3}, {"f32", "f32", "f32", 1, HLO_ALG_F32_F32_F32},
      {"f64", "f64", "f64", 1, HLO_ALG_F64_F64_F64}};
  const char *parts[3] = {"", "", ""};
  static const char *const names[3] = {"lhs_precision_type", "rhs_precision_type", "accumulation_type"};
  int64_t operations = mlir_attr_int(mlir_attr_of(op, "num_primitive_operations"), 1);
  int64_t components[2] = {mlir_attr_int(mlir_attr_of(op, "lhs_component_count"), 1),
                           mlir_attr_int(mlir_attr_of(op, "rhs_component_count"), 1)};
  bool imprecise = mlir_attr_bool(mlir_attr_of(op, "allow_imprecise_accumulation"), false);
  bool plain = components[0] == 1 && components[1] == 1;

  for (int i = 0; i < 3; i++) {
    const mlir_attr *a = mlir_attr_of(op, names[i]);
    if (!a || (a->kind == MLIR_TYPE && a->type->kind == MLIR_NONE)) return NULL;
    parts[i] = a->kind == MLIR_TYPE && a->type->kind == MLIR_ELEMENT ? weft_dtype_mlir_name(a->type->dtype)
               : a->kind == MLIR_TYPE && a->type->kind == MLIR_OTHER ? a->type->text
                                                                     : mlir_attr_text(a, "");
  }
  if (plain && strncmp(parts[0], "f8", 2) == 0 && strncmp(parts[1], "f8", 2) == 0 && strcmp(parts[2], "f32") == 0 &&
      operations == 1) {
    *out = imprecise ? HLO_ALG_ANY_F8_ANY_F8_F32_FAST_ACCUM : HLO_ALG_ANY_F8_ANY_F8_F32;
    return NULL;
  }
  for (size_t i = 0; plain && !imprecise && i < WEFT_COUNT(table); i++)
    if (strcmp(parts[0], table[i].lhs) == 0 && strcmp(parts[1], table[i].rhs) == 0 &&
        strcmp(parts[2], table[i].accumulator) == 0 && operations == table[i].operations) {
      *out = table[i].algorithm;
      return NULL;
    }
  return WEFT_ERR(
    INVALID_ARGUMENT,
    "no hardware has the algorithm %s x %s -> %s of %" PRId64 " and %" PRId64 " components in %" PRId64 " operations%s",
    parts[0], parts[1], parts[2], components[0], components[1], operations, imprecise ? ", imprecise" : "");
}

weft_status *lower_dot_attrs(lowering *l, const mlir_op *op, hlo_dot_attrs **out)
{
  hlo_dot_attrs *a = WEFT_ARENA_NEW(l->arena, hlo_dot_attrs);

  WEFT_TRY_ALLOC(a);
  WEFT_TRY(lower_ints(l, op, "lhs_batching_dimensions", &a->lhs_batch));
  WEFT_TRY(lower_ints(l, op, "rhs_batching_dimensions", &a->rhs_batch));
  WEFT_TRY(lower_ints(l, op, "lhs_contracting_dimensions", &a->lhs_contracting));
  WEFT_TRY(lower_ints(l, op, "rhs_contracting_dimensions", &a->rhs_contracting));
  WEFT_TRY(precision(l, op, &a->precision_count, &a->precision));
  WEFT_TRY(dot_algorithm(op, &a->algorithm));
  *out = a;
  return NULL;
}

/* The element type of a product is the declared one; its dimensions follow from the operands. */
static weft_status *product_type(lowering *l, const mlir_op *op, const hlo_shape **out)
{
  if (op->result_count != 1) return WEFT_ERR(INVALID_ARGUMENT, "%d results, expected 1", op->result_count);
  *out = hlo_shape_array(l->arena, op->results[0].type->dtype, 0, NULL);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

static weft_status *emit_dot(lowering *l, const mlir_op *op, hlo_dot_attrs *a)
{
  hlo_instr *operands[2], *in;
  const hlo_shape *wish;

  WEFT_TRY(product_type(l, op, &wish));
  for (int i = 0; i < 2; i++) WEFT_TRY(lower_operand(l, op, i, &operands[i]));
  WEFT_TRY(lower_emit(l, HLO_DOT, wish, 2, operands, &in));
  in->u.dot = a;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *dot_general(lowering *l, const mlir_op *op)
{
  hlo_dot_attrs *a;

  WEFT_TRY(lower_dot_attrs(l, op, &a));
  return emit_dot(l, op, a);
}

/* dot contracts the last dimension of lhs with the first of rhs. */
static weft_status *dot(lowering *l, const mlir_op *op)
{
  hlo_dot_attrs *a;
  hlo_instr *lhs;

  WEFT_TRY(lower_dot_attrs(l, op, &a));
  WEFT_TRY(lower_operand(l, op, 0, &lhs));
  WEFT_TRY(hlo_ints_new(l->module, 1, (int64_t[]){lhs->shape->rank - 1}, &a->lhs_contracting));
  WEFT_TRY(hlo_ints_new(l->module, 1, (int64_t[]){0}, &a->rhs_contracting));
  return emit_dot(l, op, a);
}

weft_status *lower_convolution_with(lowering *l, const mlir_op *op, hlo_ints padding)
{
  hlo_instr *operands[2], *in;
  hlo_conv_attrs *c = WEFT_ARENA_NEW(l->arena, hlo_conv_attrs);
  const hlo_shape *wish;
  hlo_ints strides, lhs_dilation, rhs_dilation, reversal;

  WEFT_TRY_ALLOC(c);
  WEFT_TRY(product_type(l, op, &wish));
  for (int i = 0; i < 2; i++) WEFT_TRY(lower_operand(l, op, i, &operands[i]));
  c->lhs_batch = mlir_attr_int(mlir_attr_of(op, "input_batch_dimension"), -1);
  c->lhs_feature = mlir_attr_int(mlir_attr_of(op, "input_feature_dimension"), -1);
  c->rhs_in_feature = mlir_attr_int(mlir_attr_of(op, "kernel_input_feature_dimension"), -1);
  c->rhs_out_feature = mlir_attr_int(mlir_attr_of(op, "kernel_output_feature_dimension"), -1);
  c->out_batch = mlir_attr_int(mlir_attr_of(op, "output_batch_dimension"), -1);
  c->out_feature = mlir_attr_int(mlir_attr_of(op, "output_feature_dimension"), -1);
  WEFT_TRY(lower_ints(l, op, "input_spatial_dimensions", &c->lhs_spatial));
  WEFT_TRY(lower_ints(l, op, "kernel_spatial_dimensions", &c->rhs_spatial));
  WEFT_TRY(lower_ints(l, op, "output_spatial_dimensions", &c->out_spatial));
  WEFT_TRY(lower_ints(l, op, "window_strides", &strides));
  WEFT_TRY(lower_ints(l, op, "lhs_dilation", &lhs_dilation));
  WEFT_TRY(lower_ints(l, op, "rhs_dilation", &rhs_dilation));
  WEFT_TRY(lower_ints(l, op, "window_reversal", &reversal));
  c->feature_group_count = mlir_attr_int(mlir_attr_of(op, "feature_group_count"), 1);
  c->batch_group_count = mlir_attr_int(mlir_attr_of(op, "batch_group_count"), 1);
  WEFT_TRY(precision(l, op, &c->precision_count, &c->precision));
  int rank = c->rhs_spatial.count;
  if (!hlo_shape_is_array(operands[1]->shape) || rank > HLO_MAX_RANK)
    return WEFT_ERR(INVALID_ARGUMENT, "%d spatial dimensions", rank);
  WEFT_TRY(need_count("window_strides", strides, rank));
  WEFT_TRY(need_count("lhs_dilation", lhs_dilation, rank));
  WEFT_TRY(need_count("rhs_dilation", rhs_dilation, rank));
  WEFT_TRY(need_count("window_reversal", reversal, rank));
  WEFT_TRY(need_count("padding", padding, 2 * rank));
  hlo_window_dim *dims = WEFT_ARENA_ARRAY(l->arena, hlo_window_dim, rank);
  WEFT_TRY_ALLOC(dims);
  for (int i = 0; i < rank; i++) {
    int64_t d = c->rhs_spatial.v[i];
    if (d < 0 || d >= operands[1]->shape->rank)
      return WEFT_ERR(INVALID_ARGUMENT, "kernel_spatial_dimensions has %" PRId64, d);
    dims[i] = (hlo_window_dim){.size = operands[1]->shape->dims[d],
                               .stride = at_or(strides, i, 1),
                               .pad_low = at_or(padding, 2 * i, 0),
                               .pad_high = at_or(padding, 2 * i + 1, 0),
                               .window_dilation = at_or(rhs_dilation, i, 1),
                               .base_dilation = at_or(lhs_dilation, i, 1),
                               .reversal = at_or(reversal, i, 0) != 0};
  }
  c->window = (hlo_window){rank, dims};
  WEFT_TRY(lower_emit(l, HLO_CONVOLUTION, wish, 2, operands, &in));
  in->u.conv = c;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *convolution(lowering *l, const mlir_op *op)
{
  hlo_ints padding;

  WEFT_TRY(lower_ints(l, op, "padding", &padding));
  return lower_convolution_with(l, op, padding);
}

/* ---- einsum ------------------------------------------------------------------------------------------------------ */

/* The position of a letter among the first `n` of `labels`, or -1. */
static int label_index(const char *labels, int n, char c)
{
  for (int i = 0; i < n; i++)
    if (labels[i] == c) return i;
  return -1;
}

/* One part of an einsum_config: one character for each dimension. */
typedef struct einsum_labels { int count; char of[HLO_MAX_RANK]; } einsum_labels;

/* "b...i" as labels; an ellipsis stands for `ellipsis` dimensions, which are 1, 2, ... from the right in all parts. */
static weft_status *read_labels(const char *config, const char *s, size_t size, int ellipsis, einsum_labels *out)
{
  bool seen = false;

  *out = (einsum_labels){0};
  for (size_t i = 0; i < size; i++) {
    bool dots = size - i >= 3 && memcmp(s + i, "...", 3) == 0;
    bool letter = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z');
    int n = dots ? ellipsis : 1;
    if (s[i] == ' ') continue;
    if ((!dots && !letter) || (dots && seen)) return WEFT_ERR(INVALID_ARGUMENT, "einsum_config \"%s\"", config);
    if (n < 0 || out->count + n > HLO_MAX_RANK)
      return WEFT_ERR(INVALID_ARGUMENT, "einsum_config \"%s\": the rank differs", config);
    for (int k = 0; k < n; k++) out->of[out->count++] = dots ? (char)(n - k) : s[i];
    seen |= dots;
    i += dots ? 2 : 0;
  }
  for (int i = 0; i < out->count; i++)
    if (label_index(out->of, i, out->of[i]) >= 0)
      return WEFT_ERR(UNIMPLEMENTED, "einsum_config \"%s\": a label twice in one operand", config);
  return NULL;
}

/* The dimensions that an ellipsis in `s` stands for, in an array of that rank. */
static int ellipsis_of(const char *s, size_t size, int rank)
{
  int letters = 0;

  for (size_t i = 0; i < size; i++) letters += s[i] != '.' && s[i] != ' ';
  return memchr(s, '.', size) ? rank - letters : 0;
}

/* Sums over the labels that neither of two other parts has. */
static weft_status *sum_alone(lowering *l, hlo_instr **x, einsum_labels *labels, const einsum_labels *a,
                              const einsum_labels *b)
{
  int64_t dims[HLO_MAX_RANK];
  hlo_computation *add;
  hlo_instr *zero;
  int summed = 0, kept = 0;

  for (int i = 0; i < labels->count; i++) {
    bool alone = label_index(a->of, a->count, labels->of[i]) < 0 && label_index(b->of, b->count, labels->of[i]) < 0;
    if (alone) dims[summed++] = i;
    else labels->of[kept++] = labels->of[i];
  }
  labels->count = kept;
  if (summed == 0) return NULL;
  WEFT_TRY(hlo_add_reducer(l->module, HLO_ADD, (*x)->shape->type, &add));
  WEFT_TRY(hlo_add_scalar(l->comp, NULL, (*x)->shape->type, 0, &zero));
  return hlo_add_reduce(l->comp, NULL, *x, zero, summed, dims, add, x);
}

/* A dot over the labels that both operands have: batch dimensions if the result has them, otherwise contracting
 * ones. */
static weft_status *einsum_dot(lowering *l, const mlir_op *op, hlo_instr *const *operands, const einsum_labels *labels,
                               const einsum_labels *result, einsum_labels *out_order, hlo_instr **out)
{
  int64_t batch[2][HLO_MAX_RANK], contracting[2][HLO_MAX_RANK];
  int batches = 0, contractions = 0, n = 0;
  hlo_dot_attrs *a = WEFT_ARENA_NEW(l->arena, hlo_dot_attrs);
  const hlo_shape *wish;

  WEFT_TRY_ALLOC(a);
  for (int k = 0; k < labels[0].count; k++) {
    int other = label_index(labels[1].of, labels[1].count, labels[0].of[k]);
    bool kept = label_index(result->of, result->count, labels[0].of[k]) >= 0;
    int64_t(*to)[HLO_MAX_RANK] = kept ? batch : contracting;
    int *count = kept ? &batches : &contractions;
    if (other < 0) continue;
    to[0][*count] = k;
    to[1][(*count)++] = other;
    if (kept) out_order->of[n++] = labels[0].of[k];
  }
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < labels[i].count; k++)
      if (label_index(labels[1 - i].of, labels[1 - i].count, labels[i].of[k]) < 0) {
        if (n == HLO_MAX_RANK) return WEFT_ERR(INVALID_ARGUMENT, "einsum: a result of rank over %d", HLO_MAX_RANK);
        out_order->of[n++] = labels[i].of[k];
      }
  out_order->count = n;
  WEFT_TRY(hlo_ints_new(l->module, batches, batch[0], &a->lhs_batch));
  WEFT_TRY(hlo_ints_new(l->module, batches, batch[1], &a->rhs_batch));
  WEFT_TRY(hlo_ints_new(l->module, contractions, contracting[0], &a->lhs_contracting));
  WEFT_TRY(hlo_ints_new(l->module, contractions, contracting[1], &a->rhs_contracting));
  WEFT_TRY(precision(l, op, &a->precision_count, &a->precision));
  WEFT_TRY(product_type(l, op, &wish));
  WEFT_TRY(lower_emit(l, HLO_DOT, wish, 2, operands, out));
  (*out)->u.dot = a;
  return lower_finish(*out);
}

/* einsum "ij,jk->ik" and unary_einsum "ij->i": sums over labels that one operand alone has, then a dot, then a
 * transpose. */
static weft_status *einsum(lowering *l, const mlir_op *op)
{
  const char *config = mlir_attr_text(mlir_attr_of(op, "einsum_config"), ""), *arrow = strstr(config, "->");
  const char *comma = strchr(config, ','), *starts[2] = {config, comma ? comma + 1 : ""};
  int n = comma ? 2 : 1, ellipsis = 0;
  einsum_labels labels[2] = {0}, result, order;
  int64_t permutation[HLO_MAX_RANK];
  hlo_instr *operands[2], *in;
  bool identity = true;

  if (!arrow || op->operand_count != n || (comma && comma > arrow))
    return WEFT_ERR(INVALID_ARGUMENT, "einsum_config \"%s\" for %d operands", config, op->operand_count);
  for (int i = 0; i < n; i++) {
    size_t size = (size_t)((comma && i == 0 ? comma : arrow) - starts[i]);
    WEFT_TRY(lower_operand(l, op, i, &operands[i]));
    if (!hlo_shape_is_array(operands[i]->shape)) return WEFT_ERR(INVALID_ARGUMENT, "operand %d is no array", i);
    int dots = ellipsis_of(starts[i], size, operands[i]->shape->rank);
    WEFT_TRY(read_labels(config, starts[i], size, dots, &labels[i]));
    if (labels[i].count != operands[i]->shape->rank)
      return WEFT_ERR(INVALID_ARGUMENT, "einsum_config \"%s\": operand %d is of rank %d", config, i,
                      operands[i]->shape->rank);
    ellipsis = WEFT_MAX(ellipsis, dots);
  }
  WEFT_TRY(read_labels(config, arrow + 2, strlen(arrow + 2), ellipsis, &result));
  for (int i = 0; i < n; i++) WEFT_TRY(sum_alone(l, &operands[i], &labels[i], &labels[1 - i], &result));
  if (n == 2) {
    WEFT_TRY(einsum_dot(l, op, operands, labels, &result, &order, &in));
  } else {
    order = labels[0];
    in = operands[0];
  }
  if (order.count != result.count) return WEFT_ERR(INVALID_ARGUMENT, "einsum_config \"%s\"", config);
  for (int i = 0; i < result.count; i++) {
    int at = label_index(order.of, order.count, result.of[i]);
    if (at < 0) return WEFT_ERR(INVALID_ARGUMENT, "einsum_config \"%s\"", config);
    permutation[i] = at;
    identity &= at == i;
  }
  if (!identity) WEFT_TRY(hlo_add_transpose(l->comp, NULL, in, permutation, &in));
  return lower_result(l, op, 0, in);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static weft_status *fft(lowering *l, const mlir_op *op)
{
  static const char *const types[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  const char *type = mlir_attr_text(mlir_attr_of(op, "fft_type"), "");
  hlo_instr *x, *in;
  int found = -1;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_emit(l, HLO_FFT, NULL, 1, &x, &in));
  WEFT_TRY(lower_ints(l, op, "fft_length", &in->dims));
  for (size_t i = 0; i < WEFT_COUNT(types); i++)
    if (strcmp(types[i], type) == 0) found = (int)i;
  if (found < 0) return WEFT_ERR(INVALID_ARGUMENT, "fft_type is \"%s\"", type);
  in->u.fft_type = (hlo_fft_type)found;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *cholesky(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_emit(l, HLO_CHOLESKY, NULL, 1, &x, &in));
  in->u.lower = mlir_attr_bool(mlir_attr_of(op, "lower"), false);
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *triangular_solve(lowering *l, const mlir_op *op)
{
  static const char *const words[] = {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  const char *transpose_a = mlir_attr_text(mlir_attr_of(op, "transpose_a"), "NO_TRANSPOSE");
  hlo_instr **operands, *in;

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_emit(l, HLO_TRIANGULAR_SOLVE, NULL, op->operand_count, operands, &in));
  in->u.triangular.left_side = mlir_attr_bool(mlir_attr_of(op, "left_side"), false);
  in->u.triangular.lower = mlir_attr_bool(mlir_attr_of(op, "lower"), false);
  in->u.triangular.unit_diagonal = mlir_attr_bool(mlir_attr_of(op, "unit_diagonal"), false);
  for (size_t i = 0; i < WEFT_COUNT(words); i++)
    if (strcmp(words[i], transpose_a) == 0) in->u.triangular.transpose_a = (hlo_transpose)i;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *batch_norm(lowering *l, const mlir_op *op)
{
  hlo_opcode code = strcmp(op->name, "batch_norm_grad") == 0        ? HLO_BATCH_NORM_GRAD
                    : strcmp(op->name, "batch_norm_inference") == 0 ? HLO_BATCH_NORM_INFERENCE
                                                                    : HLO_BATCH_NORM_TRAINING;
  hlo_instr **operands, *in;

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_emit(l, code, NULL, op->operand_count, operands, &in));
  in->u.batch_norm.epsilon = (float)mlir_attr_double(mlir_attr_of(op, "epsilon"), 0);
  in->u.batch_norm.feature_index = mlir_attr_int(mlir_attr_of(op, "feature_index"), -1);
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

static weft_status *rng(lowering *l, const mlir_op *op)
{
  const char *word = mlir_attr_text(mlir_attr_of(op, "rng_distribution"), "");
  hlo_instr *operands[2], *in;
  const hlo_shape *shape;

  for (int i = 0; i < 2; i++) WEFT_TRY(lower_operand(l, op, i, &operands[i]));
  WEFT_TRY(lower_shape_operand(l, op, 2, op->results[0].type->dtype, &shape));
  WEFT_TRY(lower_emit(l, HLO_RNG, shape, 2, operands, &in));
  in->u.distribution = strcmp(word, "UNIFORM") == 0  ? HLO_RNG_UNIFORM
                       : strcmp(word, "NORMAL") == 0 ? HLO_RNG_NORMAL
                                                     : HLO_RNG_INVALID;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *rng_bit_generator(lowering *l, const mlir_op *op)
{
  static const char *const words[] = {"DEFAULT", "THREE_FRY", "PHILOX"};
  const char *word = mlir_attr_text(mlir_attr_of(op, "rng_algorithm"), "DEFAULT");
  const hlo_shape *parts[2], *shape;
  hlo_instr *state, *in;

  WEFT_TRY(lower_operand(l, op, 0, &state));
  if (op->result_count != 2) return WEFT_ERR(INVALID_ARGUMENT, "%d results, expected 2", op->result_count);
  for (int i = 0; i < 2; i++) WEFT_TRY(lower_shape(l, op->results[i].type, &parts[i]));
  shape = hlo_shape_tuple(l->arena, 2, parts);
  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(lower_emit(l, HLO_RNG_BIT_GENERATOR, shape, 1, &state, &in));
  for (size_t i = 0; i < WEFT_COUNT(words); i++)
    if (strcmp(words[i], word) == 0) in->u.rng_algorithm = (hlo_rng_algorithm)i;
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

/* MHLO's form, as XLA's own converters write it. */
static weft_status *rng_state(lowering *l, const mlir_op *op)
{
  hlo_instr *in;
  const hlo_shape *shape;

  WEFT_TRY(declared(l, op, NULL, &shape));
  WEFT_TRY(lower_emit(l, HLO_RNG_GET_AND_UPDATE_STATE, shape, 0, NULL, &in));
  in->u.delta = mlir_attr_int(mlir_attr_of(op, "delta"), 1);
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static weft_status *stochastic_convert(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;
  const hlo_shape *shape;

  WEFT_TRY(declared(l, op, NULL, &shape));
  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_simple(l, HLO_STOCHASTIC_CONVERT, shape, op->operand_count, operands, &in));
  return lower_result(l, op, 0, in);
}

static weft_status *tuple(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(hlo_add_tuple(l->comp, NULL, op->operand_count, operands, &in));
  return lower_result(l, op, 0, in);
}

static weft_status *get_tuple_element(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_emit(l, HLO_GET_TUPLE_ELEMENT, NULL, 1, &x, &in));
  in->u.tuple_index = mlir_attr_int(mlir_attr_of(op, "index"), -1);
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

/* after_all and create_token */
static weft_status *after_all(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_simple(l, HLO_AFTER_ALL, NULL, op->operand_count, operands, &in));
  return lower_result(l, op, 0, in);
}

/* One value passes through as it is, several as a tuple. */
static weft_status *optimization_barrier(lowering *l, const mlir_op *op)
{
  hlo_instr **operands, *in;

  if (op->operand_count == 0) return NULL;
  WEFT_TRY(lower_operands(l, op, &operands));
  in = operands[0];
  if (op->operand_count > 1) WEFT_TRY(hlo_add_tuple(l->comp, NULL, op->operand_count, operands, &in));
  WEFT_TRY(lower_simple(l, HLO_OPT_BARRIER, NULL, 1, &in, &in));
  return lower_tuple_results(l, op, in);
}

static weft_status *device_id(lowering *l, const mlir_op *op)
{
  hlo_instr *in;

  WEFT_TRY(
    lower_simple(l, strcmp(op->name, "partition_id") == 0 ? HLO_PARTITION_ID : HLO_REPLICA_ID, NULL, 0, NULL, &in));
  return lower_result(l, op, 0, in);
}

/* Sorted by name, for bsearch. */
static const lower_entry table[] = {
    {"abs", elementwise, HLO_ABS, 0},
    {"add", elementwise, HLO_ADD, 0},
    {"add_dependency", same, HLO_ADD_DEPENDENCY, 2},
    {"after_all", after_all, 0, 0},
    {"all_gather", lower_all_gather, 0, 0},
    {"all_reduce", lower_all_reduce, 0, 0},
    {"all_to_all", lower_all_to_all, 0, 0},
    {"and", elementwise, HLO_AND, 0},
    {"async_done", lower_async_done, 0, 0},
    {"async_start", lower_async_start, 0, 0},
    {"atan2", elementwise, HLO_ATAN2, 0},
    {"batch_norm_grad", batch_norm, 0, 0},
    {"batch_norm_inference", batch_norm, 0, 0},
    {"batch_norm_training", batch_norm, 0, 0},
    {"bitcast", bitcast, 0, 1},
    {"bitcast_convert", bitcast_convert, 0, 1},
    {"broadcast", broadcast, 0, 1},
    {"broadcast_in_dim", broadcast_in_dim, 0, 1},
    {"cbrt", elementwise, HLO_CBRT, 0},
    {"ceil", elementwise, HLO_CEIL, 0},
    {"cholesky", cholesky, 0, 1},
    {"clamp", elementwise, HLO_CLAMP, 0},
    {"collective_broadcast", lower_collective_broadcast, 0, 0},
    {"collective_permute", lower_collective_permute, 0, 1},
    {"collective_reduce", lower_collective_reduce, 0, 0},
    {"compare", compare, 0, 2},
    {"complex", elementwise, HLO_COMPLEX, 0},
    {"concatenate", concatenate, 0, 0},
    {"constant", constant, 0, LOWER_NO_OPERANDS},
    {"convert", convert, 0, 1},
    {"convolution", convolution, 0, 2},
    {"cosine", elementwise, HLO_COS, 0},
    {"count_leading_zeros", elementwise, HLO_CLZ, 0},
    {"create_token", after_all, 0, LOWER_NO_OPERANDS},
    {"cross-replica-sum", lower_all_reduce, 0, 0},
    {"custom_call", lower_custom_call, 0, 0},
    {"divide", elementwise, HLO_DIVIDE, 0},
    {"dot", dot, 0, 2},
    {"dot_general", dot_general, 0, 2},
    {"dynamic_broadcast_in_dim", lower_dynamic_broadcast_in_dim, 0, 2},
    {"dynamic_conv", lower_dynamic_conv, 0, 3},
    {"dynamic_gather", lower_dynamic_gather, 0, 3},
    {"dynamic_iota", lower_dynamic_iota, 0, 1},
    {"dynamic_pad", lower_dynamic_pad, 0, 5},
    {"dynamic_reshape", lower_dynamic_reshape, 0, 2},
    {"dynamic_slice", dynamic_slice, 0, 0},
    {"dynamic_update_slice", same, HLO_DYNAMIC_UPDATE_SLICE, 0},
    {"einsum", einsum, 0, 0},
    {"exponential", elementwise, HLO_EXP, 0},
    {"exponential_minus_one", elementwise, HLO_EXPM1, 0},
    {"fft", fft, 0, 1},
    {"floor", elementwise, HLO_FLOOR, 0},
    {"gather", gather, 0, 2},
    {"get_dimension_size", lower_get_dimension_size, 0, 1},
    {"get_tuple_element", get_tuple_element, 0, 1},
    {"imag", elementwise, HLO_IMAG, 0},
    {"infeed", lower_infeed, 0, 1},
    {"iota", iota, 0, LOWER_NO_OPERANDS},
    {"is_finite", elementwise, HLO_IS_FINITE, 0},
    {"log", elementwise, HLO_LOG, 0},
    {"log_plus_one", elementwise, HLO_LOG1P, 0},
    {"logistic", elementwise, HLO_LOGISTIC, 0},
    {"map", map, 0, 0},
    {"maximum", elementwise, HLO_MAXIMUM, 0},
    {"minimum", elementwise, HLO_MINIMUM, 0},
    {"multiply", elementwise, HLO_MULTIPLY, 0},
    {"negate", elementwise, HLO_NEGATE, 0},
    {"not", elementwise, HLO_NOT, 0},
    {"optimization_barrier", optimization_barrier, 0, 0},
    {"or", elementwise, HLO_OR, 0},
    {"outfeed", lower_outfeed, 0, 0},
    {"pad", pad, 0, 2},
    {"partition_id", device_id, 0, LOWER_NO_OPERANDS},
    {"popcnt", elementwise, HLO_POPCNT, 0},
    {"power", elementwise, HLO_POWER, 0},
    {"real", elementwise, HLO_REAL, 0},
    {"real_dynamic_slice", lower_real_dynamic_slice, 0, 4},
    {"recv", lower_recv, 0, 1},
    {"reduce", reduce, 0, 0},
    {"reduce_precision", reduce_precision, 0, 1},
    {"reduce_scatter", lower_reduce_scatter, 0, 0},
    {"reduce_window", reduce_window, 0, 0},
    {"remainder", elementwise, HLO_REMAINDER, 0},
    {"replica_id", device_id, 0, LOWER_NO_OPERANDS},
    {"reshape", reshape, 0, 1},
    {"reverse", reverse, 0, 1},
    {"rng", rng, 0, 3},
    {"rng_bit_generator", rng_bit_generator, 0, 1},
    {"round_nearest_afz", elementwise, HLO_ROUND_AFZ, 0},
    {"round_nearest_even", elementwise, HLO_ROUND_EVEN, 0},
    {"rsqrt", elementwise, HLO_RSQRT, 0},
    {"scatter", scatter, 0, 0},
    {"select", elementwise, HLO_SELECT, 0},
    {"select_and_scatter", select_and_scatter, 0, 0},
    {"send", lower_send, 0, 0},
    {"set_dimension_size", lower_set_dimension_size, 0, 2},
    {"shift_left", elementwise, HLO_SHIFT_LEFT, 0},
    {"shift_right_arithmetic", elementwise, HLO_SHIFT_RIGHT_ARITHMETIC, 0},
    {"shift_right_logical", elementwise, HLO_SHIFT_RIGHT_LOGICAL, 0},
    {"sign", elementwise, HLO_SIGN, 0},
    {"sine", elementwise, HLO_SIN, 0},
    {"slice", slice, 0, 1},
    {"sort", sort, 0, 0},
    {"sqrt", elementwise, HLO_SQRT, 0},
    {"stochastic_convert", stochastic_convert, 0, 2},
    {"subtract", elementwise, HLO_SUBTRACT, 0},
    {"tan", elementwise, HLO_TAN, 0},
    {"tanh", elementwise, HLO_TANH, 0},
    {"topk", lower_top_k, 0, 1},
    {"torch_index_select", torch_index_select, 0, 2},
    {"transpose", transpose, 0, 1},
    {"triangular_solve", triangular_solve, 0, 2},
    {"tuple", tuple, 0, 0},
    {"unary_einsum", einsum, 0, 0},
    {"uniform_dequantize", lower_uniform_dequantize, 0, 1},
    {"uniform_quantize", lower_uniform_quantize, 0, 1},
    {"xla.rng_get_and_update_state", rng_state, 0, LOWER_NO_OPERANDS},
    {"xor", elementwise, HLO_XOR, 0},
};

static int by_name(const void *key, const void *entry) { return strcmp(key, ((const lower_entry *)entry)->name); }

const lower_entry *lower_find_entry(const char *name)
{
  return bsearch(name, table, WEFT_COUNT(table), sizeof *table, by_name);
}

static const lower_entry *entry_of(const mlir_op *op)
{
  if (!op->kind->rule) op->kind->rule = lower_find_entry(op->name);
  return op->kind->rule;
}

weft_status *lower_table_op(lowering *l, const mlir_op *op)
{
  const lower_entry *entry = entry_of(op);
  bool quantized;

  if (!entry) return WEFT_ERR(UNIMPLEMENTED, "operation \"%s\" is not supported", op->name);
  WEFT_TRY(lower_is_quantized(op, &quantized));
  if (quantized) return lower_quantized_op(l, op);
  WEFT_TRY(entry->rule(l, op));
  if (op->result_count > 0) return lower_discardable(l, op->attr_count, op->attrs, op->results[0].instr);
  /* a call that is made for its effect alone */
  if (!l->comp->last || l->comp->last->op != HLO_CUSTOM_CALL) return NULL;
  return lower_discardable(l, op->attr_count, op->attrs, l->comp->last);
}
