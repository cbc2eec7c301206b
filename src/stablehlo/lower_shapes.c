/* stablehlo/lower_shapes.c -- operations by which programs compute sizes: the dialect shape, and some of tensor and
 * arith.
 *
 * Every size is known once the arguments' shapes are, so all of this becomes constants, or scalars that
 * lower_known_ints folds. An index and a !shape.size are s64[]; a !shape.shape and an array of indices are s64[n]; a
 * !shape.witness is pred[] and true: a condition that does not hold is an error here. */
#include <inttypes.h>
#include <string.h>

#include "stablehlo/lower.h"

/* The result is `in`, converted to the element type that the operation declares. */
static weft_status *result(lowering *l, const mlir_op *op, hlo_instr *in)
{
  const mlir_type *type;

  if (op->result_count != 1) return WEFT_ERR(INVALID_ARGUMENT, "%d results, expected 1", op->result_count);
  type = op->results[0].type;
  if (type->kind != MLIR_OTHER && type->dtype != WEFT_INVALID) WEFT_TRY(lower_convert(l, in, type->dtype, &in));
  if (type->kind == MLIR_TENSOR) return lower_result(l, op, 0, in);
  op->results[0].instr = in;
  return NULL;
}

static weft_status *scalar_result(lowering *l, const mlir_op *op, weft_dtype type, int64_t value)
{
  const hlo_shape *shape = hlo_shape_array(l->arena, type, 0, NULL);
  hlo_literal *literal;
  hlo_instr *in;

  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(hlo_literal_new(l->arena, shape, &literal));
  hlo_literal_set_s64(literal, 0, value);
  WEFT_TRY(hlo_add_constant(l->comp, NULL, literal, &in));
  return result(l, op, in);
}

static weft_status *list_result(lowering *l, const mlir_op *op, hlo_ints v)
{
  int64_t n = v.count;
  const hlo_shape *shape = hlo_shape_array(l->arena, WEFT_S64, 1, &n);
  hlo_literal *literal;
  hlo_instr *in;

  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(hlo_literal_new(l->arena, shape, &literal));
  for (int i = 0; i < v.count; i++) hlo_literal_set_s64(literal, i, v.v[i]);
  WEFT_TRY(hlo_add_constant(l->comp, NULL, literal, &in));
  return result(l, op, in);
}

static weft_status *known(lowering *l, const mlir_op *op, int i, hlo_ints *out)
{
  hlo_instr *x;

  WEFT_TRY(lower_operand(l, op, i, &x));
  WEFT_TRY_NOTE(lower_known_ints(l, x, out), "operand %d", i);
  return NULL;
}

static weft_status *known_array(lowering *l, const mlir_op *op, int i, hlo_instr **out)
{
  WEFT_TRY(lower_operand(l, op, i, out));
  if (!hlo_shape_is_array((*out)->shape)) return WEFT_ERR(INVALID_ARGUMENT, "operand %d is no array", i);
  return NULL;
}

/* Operand `i`, which is one number, as an index below `count`. */
static weft_status *known_index(lowering *l, const mlir_op *op, int i, int64_t count, int64_t *out)
{
  hlo_ints v;

  WEFT_TRY(known(l, op, i, &v));
  if (v.count != 1 || v.v[0] < 0 || v.v[0] >= count)
    return WEFT_ERR(INVALID_ARGUMENT, "operand %d is no index into %" PRId64, i, count);
  *out = v.v[0];
  return NULL;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static weft_status *shape_of(lowering *l, const mlir_op *op)
{
  hlo_instr *x;

  WEFT_TRY(known_array(l, op, 0, &x));
  if (x->shape->dynamic)
    return WEFT_ERR(UNIMPLEMENTED, "the shape of %s is known only when it runs",
                    hlo_shape_text(l->arena, x->shape, false));
  return list_result(l, op, (hlo_ints){x->shape->rank, x->shape->dims});
}

/* [4, 3], or the generic form's dense<[4, 3]> */
static weft_status *const_shape(lowering *l, const mlir_op *op)
{
  hlo_ints v;

  WEFT_TRY(lower_ints(l, op, mlir_attr_of(op, "shape") ? "shape" : "value", &v));
  return list_result(l, op, v);
}

static weft_status *const_size(lowering *l, const mlir_op *op)
{
  return scalar_result(l, op, WEFT_S64, mlir_attr_int(mlir_attr_of(op, "value"), 0));
}

static weft_status *num_elements(lowering *l, const mlir_op *op)
{
  int64_t product = 1;
  hlo_ints v;

  WEFT_TRY(known(l, op, 0, &v));
  for (int i = 0; i < v.count; i++)
    if (__builtin_mul_overflow(product, v.v[i], &product)) return WEFT_ERR(INVALID_ARGUMENT, "over 2^63 elements");
  return scalar_result(l, op, WEFT_S64, product);
}

static weft_status *rank_of(lowering *l, const mlir_op *op)
{
  hlo_instr *x;
  hlo_ints v;

  if (strcmp(op->name, "tensor.rank") == 0) {
    WEFT_TRY(known_array(l, op, 0, &x));
    return scalar_result(l, op, WEFT_S64, x->shape->rank);
  }
  WEFT_TRY(known(l, op, 0, &v));
  return scalar_result(l, op, WEFT_S64, v.count);
}

static weft_status *dimension(lowering *l, const mlir_op *op)
{
  hlo_instr *x;
  int64_t d;

  WEFT_TRY(known_array(l, op, 0, &x));
  WEFT_TRY(known_index(l, op, 1, x->shape->rank, &d));
  if (x->shape->dynamic && x->shape->dynamic[d])
    return WEFT_ERR(UNIMPLEMENTED, "dimension %" PRId64 " is known only when it runs", d);
  return scalar_result(l, op, WEFT_S64, x->shape->dims[d]);
}

static weft_status *get_extent(lowering *l, const mlir_op *op)
{
  hlo_ints v;
  int64_t d;

  WEFT_TRY(known(l, op, 0, &v));
  WEFT_TRY(known_index(l, op, 1, v.count, &d));
  return scalar_result(l, op, WEFT_S64, v.v[d]);
}

/* The shapes that the operands hold, one behind the other; or the one number of each operand. */
static weft_status *concat(lowering *l, const mlir_op *op)
{
  hlo_ints *parts = WEFT_ARENA_ARRAY(&l->scratch, hlo_ints, op->operand_count);
  int64_t *all;
  int n = 0;

  WEFT_TRY_ALLOC(parts);
  for (int i = 0; i < op->operand_count; i++) {
    WEFT_TRY(known(l, op, i, &parts[i]));
    if (__builtin_add_overflow(n, parts[i].count, &n)) return WEFT_ERR(INVALID_ARGUMENT, "too long a shape");
  }
  all = WEFT_ARENA_ARRAY(&l->scratch, int64_t, n);
  WEFT_TRY_ALLOC(all);
  n = 0;
  for (int i = 0; i < op->operand_count; i++)
    for (int k = 0; k < parts[i].count; k++) all[n++] = parts[i].v[k];
  return list_result(l, op, (hlo_ints){n, all});
}

static weft_status *same(lowering *l, const mlir_op *op)
{
  hlo_instr *x;

  WEFT_TRY(known_array(l, op, 0, &x));
  return result(l, op, x);
}

/* Broadcasts the shapes as numpy does; *out_fits says whether they are compatible. */
static weft_status *broadcast_shape(lowering *l, const mlir_op *op, int64_t dims[HLO_MAX_RANK], int *out_rank,
                                    bool *out_fits)
{
  int rank = 0;
  hlo_ints v;

  *out_fits = true;
  for (int i = 0; i < op->operand_count; i++) {
    WEFT_TRY(known(l, op, i, &v));
    if (v.count > HLO_MAX_RANK) return WEFT_ERR(INVALID_ARGUMENT, "a shape of rank %d", v.count);
    rank = WEFT_MAX(rank, v.count);
  }
  for (int d = 0; d < rank; d++) dims[d] = 1;
  for (int i = 0; i < op->operand_count; i++) {
    WEFT_TRY(known(l, op, i, &v));
    for (int d = 0; d < v.count; d++) {
      int64_t *to = &dims[rank - v.count + d];
      if (*to != 1 && v.v[d] != 1 && *to != v.v[d]) *out_fits = false;
      if (v.v[d] != 1) *to = v.v[d];
    }
  }
  *out_rank = rank;
  return NULL;
}

static weft_status *broadcast(lowering *l, const mlir_op *op)
{
  int64_t dims[HLO_MAX_RANK];
  bool fits;
  int rank;

  WEFT_TRY(broadcast_shape(l, op, dims, &rank, &fits));
  if (!fits) return WEFT_ERR(INVALID_ARGUMENT, "the shapes do not broadcast");
  return list_result(l, op, (hlo_ints){rank, dims});
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

static weft_status *cstr_broadcastable(lowering *l, const mlir_op *op)
{
  int64_t dims[HLO_MAX_RANK];
  bool fits;
  int rank;

  WEFT_TRY(broadcast_shape(l, op, dims, &rank, &fits));
  return fits ? scalar_result(l, op, WEFT_PRED, 1) : WEFT_ERR(INVALID_ARGUMENT, "the shapes do not broadcast");
}

static weft_status *cstr_eq(lowering *l, const mlir_op *op)
{
  hlo_ints first = {0}, v;

  for (int i = 0; i < op->operand_count; i++) {
    WEFT_TRY(known(l, op, i, &v));
    if (i == 0) first = v;
    if (v.count != first.count || (v.count && memcmp(v.v, first.v, (size_t)v.count * sizeof *v.v) != 0))
      return WEFT_ERR(INVALID_ARGUMENT, "the shapes differ");
  }
  return scalar_result(l, op, WEFT_PRED, 1);
}

/* Nothing can be made of a condition that is false. */
static weft_status *cstr_require(lowering *l, const mlir_op *op)
{
  hlo_ints v;

  for (int i = 0; i < op->operand_count; i++) {
    WEFT_TRY(known(l, op, i, &v));
    if (v.count != 1 || !v.v[0]) return WEFT_ERR(INVALID_ARGUMENT, "what is required does not hold");
  }
  return scalar_result(l, op, WEFT_PRED, 1);
}

static weft_status *const_witness(lowering *l, const mlir_op *op)
{
  const mlir_attr *value = mlir_attr_of(op, mlir_attr_of(op, "passing") ? "passing" : "value");

  return scalar_result(l, op, WEFT_PRED, mlir_attr_bool(value, false));
}

/* The region is lowered in place if the witness holds. */
static weft_status *assuming(lowering *l, const mlir_op *op)
{
  mlir_op region = *op;
  hlo_instr **results;
  hlo_ints holds;
  int count;

  WEFT_TRY(known(l, op, 0, &holds));
  if (holds.count != 1 || !holds.v[0]) return WEFT_ERR(INVALID_ARGUMENT, "what is assumed does not hold");
  region.operand_count = 0;
  WEFT_TRY(lower_inlined(l, &region, NULL, &count, &results));
  for (int i = 0; i < count; i++) WEFT_TRY(lower_result(l, op, i, results[i]));
  return NULL;
}

/* ---- scalars ----------------------------------------------------------------------------------------------------- */

static weft_status *from_elements(lowering *l, const mlir_op *op)
{
  const int64_t one = 1;
  const hlo_shape *shape;
  hlo_instr **parts, *in;
  hlo_literal *nothing;

  if (op->result_count != 1) return WEFT_ERR(INVALID_ARGUMENT, "%d results, expected 1", op->result_count);
  WEFT_TRY(lower_shape(l, op->results[0].type, &shape));
  WEFT_TRY(lower_operands(l, op, &parts));
  if (op->operand_count != hlo_shape_elems(shape)) return WEFT_ERR(INVALID_ARGUMENT, "%d elements", op->operand_count);
  if (op->operand_count == 0) {
    WEFT_TRY(hlo_literal_new(l->arena, shape, &nothing));
    WEFT_TRY(hlo_add_constant(l->comp, NULL, nothing, &in));
    return lower_result(l, op, 0, in);
  }
  for (int i = 0; i < op->operand_count; i++) {
    if (!hlo_shape_is_scalar(parts[i]->shape)) return WEFT_ERR(INVALID_ARGUMENT, "operand %d is no scalar", i);
    WEFT_TRY(lower_reshape(l, parts[i], 1, &one, &parts[i]));
  }
  in = parts[0];
  if (op->operand_count > 1) {
    WEFT_TRY(lower_emit(l, HLO_CONCATENATE, NULL, op->operand_count, parts, &in));
    WEFT_TRY(hlo_ints_new(l->module, 1, &(int64_t){0}, &in->dims));
    WEFT_TRY(lower_finish(in));
  }
  WEFT_TRY(lower_reshape(l, in, shape->rank, shape->dims, &in));
  return result(l, op, in);
}

static weft_status *extract(lowering *l, const mlir_op *op)
{
  int64_t starts[HLO_MAX_RANK], limits[HLO_MAX_RANK];
  hlo_instr *x;

  WEFT_TRY(known_array(l, op, 0, &x));
  if (op->operand_count - 1 != x->shape->rank)
    return WEFT_ERR(INVALID_ARGUMENT, "%d indices for a rank of %d", op->operand_count - 1, x->shape->rank);
  for (int d = 0; d < x->shape->rank; d++) {
    WEFT_TRY(known_index(l, op, 1 + d, x->shape->dims[d], &starts[d]));
    limits[d] = starts[d] + 1;
  }
  WEFT_TRY(hlo_add_slice(l->comp, NULL, x, starts, limits, NULL, &x));
  WEFT_TRY(lower_reshape(l, x, 0, NULL, &x));
  return result(l, op, x);
}

static const struct { const char *name; hlo_opcode code; } binary[] = {
    {"arith.addi", HLO_ADD}, {"arith.divsi", HLO_DIVIDE}, {"arith.maxsi", HLO_MAXIMUM}, {"arith.minsi", HLO_MINIMUM},
    {"arith.muli", HLO_MULTIPLY}, {"arith.remsi", HLO_REMAINDER}, {"arith.subi", HLO_SUBTRACT}};

static weft_status *arithmetic(lowering *l, const mlir_op *op)
{
  hlo_instr *operands[2], *in;

  for (int i = 0; i < 2; i++) WEFT_TRY(known_array(l, op, i, &operands[i]));
  for (size_t i = 0; i < WEFT_COUNT(binary); i++) {
    if (strcmp(binary[i].name, op->name) != 0) continue;
    WEFT_TRY(lower_simple(l, binary[i].code, NULL, 2, operands, &in));
    return result(l, op, in);
  }
  return WEFT_ERR(UNIMPLEMENTED, "operation \"%s\" is not supported", op->name);
}

const lower_entry *lower_find_shape_entry(const char *name)
{
  static const lower_entry entries[] = {
      {"arith.addi", arithmetic, LOWER_STRUCTURE, 2}, {"arith.divsi", arithmetic, LOWER_STRUCTURE, 2},
      {"arith.index_cast", same, LOWER_STRUCTURE, 1}, {"arith.maxsi", arithmetic, LOWER_STRUCTURE, 2},
      {"arith.minsi", arithmetic, LOWER_STRUCTURE, 2}, {"arith.muli", arithmetic, LOWER_STRUCTURE, 2},
      {"arith.remsi", arithmetic, LOWER_STRUCTURE, 2}, {"arith.subi", arithmetic, LOWER_STRUCTURE, 2},
      {"shape.assuming", assuming, LOWER_STRUCTURE, 1}, {"shape.assuming_all", cstr_require, LOWER_STRUCTURE, 0},
      {"shape.broadcast", broadcast, LOWER_STRUCTURE, 0}, {"shape.concat", concat, LOWER_STRUCTURE, 2},
      {"shape.const_shape", const_shape, LOWER_STRUCTURE, LOWER_NO_OPERANDS},
      {"shape.const_size", const_size, LOWER_STRUCTURE, LOWER_NO_OPERANDS},
      {"shape.const_witness", const_witness, LOWER_STRUCTURE, LOWER_NO_OPERANDS},
      {"shape.cstr_broadcastable", cstr_broadcastable, LOWER_STRUCTURE, 0}, {"shape.cstr_eq", cstr_eq, LOWER_STRUCTURE, 0},
      {"shape.cstr_require", cstr_require, LOWER_STRUCTURE, 1}, {"shape.dim", dimension, LOWER_STRUCTURE, 2},
      {"shape.from_extents", concat, LOWER_STRUCTURE, 0}, {"shape.get_extent", get_extent, LOWER_STRUCTURE, 2},
      {"shape.num_elements", num_elements, LOWER_STRUCTURE, 1}, {"shape.rank", rank_of, LOWER_STRUCTURE, 1},
      {"shape.shape_of", shape_of, LOWER_STRUCTURE, 1}, {"shape.to_extent_tensor", same, LOWER_STRUCTURE, 1},
      {"tensor.dim", dimension, LOWER_STRUCTURE, 2}, {"tensor.extract", extract, LOWER_STRUCTURE, 0},
      {"tensor.from_elements", from_elements, LOWER_STRUCTURE, 0}, {"tensor.rank", rank_of, LOWER_STRUCTURE, 1},
  };

  for (size_t i = 0; i < WEFT_COUNT(entries); i++)
    if (strcmp(entries[i].name, name) == 0) return &entries[i];
  return NULL;
}
