/* stablehlo/raise_ops.c -- the rules of instructions that compute or move elements (raise.h): most keep their name. */
#include <config.h>

#include "stablehlo/raise.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/text.h"

/* ---- instructions that keep their name --------------------------------------------------------------------------- */

void raise_elementwise(raising *r, const hlo_instr *in)
{
  static const hlo_opcode chlo[] = {HLO_ACOS, HLO_ACOSH, HLO_ASIN, HLO_ASINH, HLO_ATANH, HLO_COSH, HLO_SINH, HLO_ERF, HLO_ERFC,
                                    HLO_MULHI};
  bool is_chlo = false;

  for (size_t i = 0; i < WEFT_COUNT(chlo); i++) is_chlo |= chlo[i] == in->op;
  char *spelling = TEXT(r, "%s.%s", is_chlo ? "chlo" : "stablehlo", hlo_opcode_name(in->op));
  for (char *c = spelling; *c; c++)
    if (*c == '-') *c = '_';
  raise_give(r, in, raise_as_op(r, in, spelling));
}

void raise_compare(raising *r, const hlo_instr *in)
{
  static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  static const char *const types[] = {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.compare"));

  raise_set(r, op, "comparison_direction", raise_words(r, MLIR_ENUM, directions[in->u.compare.direction]));
  if (in->u.compare.type != HLO_COMPARE_DEFAULT)
    raise_set(r, op, "compare_type", raise_words(r, MLIR_ENUM, types[in->u.compare.type]));
}

void raise_reduce_precision(raising *r, const hlo_instr *in)
{
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.reduce_precision"));

  raise_set(r, op, "exponent_bits", raise_number(r, WEFT_S32, in->u.reduce_precision.exponent_bits));
  raise_set(r, op, "mantissa_bits", raise_number(r, WEFT_S32, in->u.reduce_precision.mantissa_bits));
}

/* `dimensions` under its StableHLO name: a list, or one number. */
void raise_with_dims(raising *r, const hlo_instr *in)
{
  static const struct { hlo_opcode op; const char *spelling, *name; bool one; } table[] = {
      {HLO_BROADCAST, "stablehlo.broadcast_in_dim", "broadcast_dimensions", false},
      {HLO_TRANSPOSE, "stablehlo.transpose", "permutation", false},
      {HLO_REVERSE, "stablehlo.reverse", "dimensions", false},
      {HLO_CONCATENATE, "stablehlo.concatenate", "dimension", true},
      {HLO_IOTA, "stablehlo.iota", "iota_dimension", true},
      {HLO_GET_DIMENSION_SIZE, "stablehlo.get_dimension_size", "dimension", true},
      {HLO_SET_DIMENSION_SIZE, "stablehlo.set_dimension_size", "dimension", true}};

  for (size_t i = 0; i < WEFT_COUNT(table); i++) {
    if (table[i].op != in->op) continue;
    mlir_op *op = raise_give(r, in, raise_as_op(r, in, table[i].spelling));
    if (table[i].one) raise_set_int(r, op, table[i].name, in->dims.count ? in->dims.v[0] : 0);
    else raise_set_ints(r, op, table[i].name, in->dims);
  }
}

static const raised *literal_value(raising *r, const hlo_literal *l)
{
  const raised **elements;
  mlir_op *op;

  if (hlo_shape_is_tuple(l->shape)) {
    elements = MAKE(r, const raised *, l->shape->rank);
    for (int i = 0; i < l->shape->rank; i++) elements[i] = literal_value(r, l->elements[i]);
    return raise_tuple_of(r, l->shape->rank, elements);
  }
  const mlir_type *type = raise_type_of(r, l->shape);
  if (hlo_shape_is_token(l->shape)) return raise_single(r, raise_make(r, "stablehlo.create_token", 0, NULL, type));
  op = raise_emit(r, "stablehlo.constant", 0, NULL, 1, &type);
  raise_set(r, op, "value", raise_literal_attr(r, l));
  return raise_single(r, op->results);
}

void raise_constant(raising *r, const hlo_instr *in)
{
  r->at[in->id] = literal_value(r, in->u.literal);
  if (r->at[in->id]->value && in->extra) raise_set_extra(r, r->block->last, in);
}

mlir_value *raise_scalar(raising *r, weft_dtype type, int64_t v)
{
  hlo_literal *l = NULL;

  raise_check(r, hlo_literal_scalar_s64(&r->program.arena, type, v, &l));
  return literal_value(r, l)->value;
}

void raise_pad(raising *r, const hlo_instr *in)
{
  static const char *const names[] = {"edge_padding_low", "edge_padding_high", "interior_padding"};
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.pad"));
  int64_t v[HLO_MAX_RANK];

  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < in->u.pad.rank; i++)
      v[i] = k == 0 ? in->u.pad.dims[i].low : k == 1 ? in->u.pad.dims[i].high : in->u.pad.dims[i].interior;
    raise_set(r, op, names[k], raise_ints(r, in->u.pad.rank, v));
  }
}

mlir_value *raise_slice_of(raising *r, mlir_value *x, const int64_t *start, const int64_t *limit, const int64_t *stride)
{
  int64_t dims[HLO_MAX_RANK], ones[HLO_MAX_RANK];
  mlir_op *op;

  for (int i = 0; i < x->type->rank; i++) {
    ones[i] = 1;
    dims[i] = limit[i] - start[i];
  }
  op = raise_emit(r, "stablehlo.slice", 1, &x, 1,
                  (const mlir_type *[]){raise_array_type(r, x->type->dtype, x->type->rank, dims)});
  raise_set(r, op, "start_indices", raise_ints(r, x->type->rank, start));
  raise_set(r, op, "limit_indices", raise_ints(r, x->type->rank, limit));
  raise_set(r, op, "strides", raise_ints(r, x->type->rank, stride ? stride : ones));
  return op->results;
}

void raise_slice(raising *r, const hlo_instr *in)
{
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.slice"));

  raise_set_ints(r, op, "start_indices", in->u.slice->start);
  raise_set_ints(r, op, "limit_indices", in->u.slice->limit);
  raise_set_ints(r, op, "strides", in->u.slice->stride);
}

mlir_value *raise_reshaped(raising *r, mlir_value *x, int rank, const int64_t *dims)
{
  const mlir_type *to = raise_array_type(r, x->type->dtype, rank, dims);

  return mlir_type_equal(to, x->type) ? x : raise_make(r, "stablehlo.reshape", 1, &x, to);
}

/* dynamic-slice and dynamic-update-slice; old ones have one vector of indices. */
void raise_dynamic_slice(raising *r, const hlo_instr *in)
{
  int fixed = in->op == HLO_DYNAMIC_SLICE ? 1 : 2;
  raised_values operands = raise_operand_leaves(r, in, 0);
  const mlir_type *type = raise_type_of(r, in->shape);
  mlir_op *op;

  if (operands.count == fixed + 1 && operands.v[fixed]->type->rank == 1) {
    mlir_value *indices = operands.v[fixed];
    operands.count = fixed;
    for (int64_t i = 0; i < indices->type->dims[0]; i++)
      raise_push(r, &operands, raise_reshaped(r, raise_slice_of(r, indices, &i, &(int64_t){i + 1}, NULL), 0, NULL));
  }
  op = raise_emit(r, fixed == 1 ? "stablehlo.dynamic_slice" : "stablehlo.dynamic_update_slice", operands.count,
                  operands.v, 1, &type);
  raise_set_extra(r, op, in);
  if (fixed == 1) raise_set_ints(r, op, "slice_sizes", in->u.slice_sizes);
  raise_give(r, in, op);
}

void raise_gather(raising *r, const hlo_instr *in)
{
  const hlo_gather_attrs *g = in->u.gather;
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.gather"));

  raise_set_ints(r, op, "offset_dims", g->offset_dims);
  raise_set_ints(r, op, "collapsed_slice_dims", g->collapsed_slice_dims);
  raise_set_ints(r, op, "operand_batching_dims", g->operand_batching_dims);
  raise_set_ints(r, op, "start_indices_batching_dims", g->start_indices_batching_dims);
  raise_set_ints(r, op, "start_index_map", g->start_index_map);
  raise_set_int(r, op, "index_vector_dim", g->index_vector_dim);
  raise_set_ints(r, op, "slice_sizes", g->slice_sizes);
  raise_set(r, op, "indices_are_sorted", raise_truth(r, g->indices_are_sorted));
}

void raise_scatter(raising *r, const hlo_instr *in)
{
  const hlo_scatter_attrs *s = in->u.scatter;
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.scatter"));

  raise_set_ints(r, op, "update_window_dims", s->update_window_dims);
  raise_set_ints(r, op, "inserted_window_dims", s->inserted_window_dims);
  raise_set_ints(r, op, "input_batching_dims", s->input_batching_dims);
  raise_set_ints(r, op, "scatter_indices_batching_dims", s->scatter_indices_batching_dims);
  raise_set_ints(r, op, "scatter_dims_to_operand_dims", s->scatter_dims_to_operand_dims);
  raise_set_int(r, op, "index_vector_dim", s->index_vector_dim);
  raise_set(r, op, "indices_are_sorted", raise_truth(r, s->indices_are_sorted));
  raise_set(r, op, "unique_indices", raise_truth(r, s->unique_indices));
  raise_called(r, op, in);
}

/* ---- reductions and windows -------------------------------------------------------------------------------------- */

/* The parts of a window, under the names that this operation has for them; NULL: the operation has no such part. */
static void set_window(raising *r, mlir_op *op, const hlo_window *w, const char *sizes, const char *base,
                       const char *window)
{
  const struct { const char *name; size_t offset; } parts[] = {
      {sizes, offsetof(hlo_window_dim, size)}, {"window_strides", offsetof(hlo_window_dim, stride)},
      {base, offsetof(hlo_window_dim, base_dilation)}, {window, offsetof(hlo_window_dim, window_dilation)}};
  int64_t v[HLO_MAX_RANK], padding[2 * HLO_MAX_RANK];

  for (size_t p = 0; p < WEFT_COUNT(parts); p++) {
    for (int i = 0; i < w->rank; i++) v[i] = *(const int64_t *)((const char *)&w->dims[i] + parts[p].offset);
    if (parts[p].name) raise_set(r, op, parts[p].name, raise_ints(r, w->rank, v));
  }
  for (int i = 0; i < w->rank; i++) {
    padding[2 * i] = w->dims[i].pad_low;
    padding[2 * i + 1] = w->dims[i].pad_high;
  }
  raise_set(r, op, "padding", raise_matrix(r, w->rank, 2, padding));
}

void raise_reduce(raising *r, const hlo_instr *in)
{
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.reduce"));

  raise_set_ints(r, op, "dimensions", in->dims);
  raise_called(r, op, in);
}

void raise_reduce_window(raising *r, const hlo_instr *in)
{
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.reduce_window"));

  set_window(r, op, in->u.window, "window_dimensions", "base_dilations", "window_dilations");
  raise_called(r, op, in);
}

void raise_select_and_scatter(raising *r, const hlo_instr *in)
{
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.select_and_scatter"));

  set_window(r, op, in->u.window, "window_dimensions", NULL, NULL);
  raise_called(r, op, in);
}

void raise_map(raising *r, const hlo_instr *in)
{
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.map"));
  int64_t all[HLO_MAX_RANK];

  for (int i = 0; i < in->shape->rank; i++) all[i] = i;
  raise_set(r, op, "dimensions", raise_ints(r, in->shape->rank, all));
  raise_called(r, op, in);
}

void raise_sort(raising *r, const hlo_instr *in)
{
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.sort"));

  raise_set_int(r, op, "dimension", in->dims.count ? in->dims.v[0] : 0);
  raise_set(r, op, "is_stable", raise_truth(r, in->u.is_stable));
  raise_called(r, op, in);
}

void raise_scan(raising *r, const hlo_instr *in)
{
  int64_t carries = in->u.scan.num_carries;
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "chlo.scan"));
  static const char *const segments[] = {"operandSegmentSizes", "resultSegmentSizes"};
  int counts[2] = {op->operand_count, op->result_count};

  raise_set_int(r, op, "dimension", in->dims.count ? in->dims.v[0] : 0);
  raise_set(r, op, "is_reverse", raise_truth(r, in->u.scan.is_reverse));
  if (in->u.scan.is_associative) raise_set(r, op, "is_associative", raise_truth(r, in->u.scan.is_associative == 1));
  for (int i = 0; i < 2; i++) {
    const mlir_attr *a = raise_ints(r, 2, (int64_t[]){counts[i] - carries, carries});
    ((mlir_attr *)(uintptr_t)a)->type = mlir_element_type(WEFT_S32);
    raise_set(r, op, segments[i], a);
  }
  raise_called(r, op, in);
}

void raise_top_k(raising *r, const hlo_instr *in)
{
  bool largest = in->u.topk.largest;
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, largest ? "chlo.top_k" : "mhlo.topk"));

  raise_set_int(r, op, "k", in->u.topk.k);
  if (!largest) raise_set(r, op, "largest", raise_truth(r, false));
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static void set_precision(raising *r, mlir_op *op, int count, const hlo_precision *precision)
{
  static const char *const names[] = {"DEFAULT", "HIGH", "HIGHEST", "PACKED_NIBBLE"};
  const mlir_attr **items = MAKE(r, const mlir_attr *, count);

  for (int i = 0; i < count; i++) items[i] = raise_words(r, MLIR_ENUM, names[precision[i]]);
  if (count) raise_set(r, op, "precision_config", raise_list(r, count, items));
}

static void set_algorithm(raising *r, mlir_op *op, hlo_dot_algorithm algorithm)
{
  static const struct { weft_dtype parts, sum; const char *other; int operations; bool imprecise; } table[] = {
      [HLO_ALG_ANY_F8_ANY_F8_F32] = {WEFT_F8E5M2, WEFT_F32, NULL, 1, false},
      [HLO_ALG_ANY_F8_ANY_F8_F32_FAST_ACCUM] = {WEFT_F8E5M2, WEFT_F32, NULL, 1, true},
      [HLO_ALG_F16_F16_F16] = {WEFT_F16, WEFT_F16, NULL, 1, false},
      [HLO_ALG_F16_F16_F32] = {WEFT_F16, WEFT_F32, NULL, 1, false},
      [HLO_ALG_BF16_BF16_BF16] = {WEFT_BF16, WEFT_BF16, NULL, 1, false},
      [HLO_ALG_BF16_BF16_F32] = {WEFT_BF16, WEFT_F32, NULL, 1, false},
      [HLO_ALG_BF16_BF16_F32_X3] = {WEFT_BF16, WEFT_F32, NULL, 3, false},
      [HLO_ALG_BF16_BF16_F32_X6] = {WEFT_BF16, WEFT_F32, NULL, 6, false},
      [HLO_ALG_BF16_BF16_F32_X9] = {WEFT_BF16, WEFT_F32, NULL, 9, false},
      [HLO_ALG_TF32_TF32_F32] = {WEFT_F32, WEFT_F32, "tf32", 1, false},
      [HLO_ALG_TF32_TF32_F32_X3] = {WEFT_F32, WEFT_F32, "tf32", 3, false},
      [HLO_ALG_F32_F32_F32] = {WEFT_F32, WEFT_F32, NULL, 1, false},
      [HLO_ALG_F64_F64_F64] = {WEFT_F64, WEFT_F64, NULL, 1, false}};
  static const mlir_type tf32 = {.kind = MLIR_OTHER, .text = "tf32"};
  const mlir_type *part;

  if (algorithm == HLO_ALG_UNSET || (size_t)algorithm >= WEFT_COUNT(table)) return;
  part = table[algorithm].other ? &tf32 : mlir_element_type(table[algorithm].parts);
  raise_set(r, op, "lhs_precision_type", raise_of_type(r, part));
  raise_set(r, op, "rhs_precision_type", raise_of_type(r, part));
  raise_set(r, op, "accumulation_type", raise_of_type(r, mlir_element_type(table[algorithm].sum)));
  raise_set_int(r, op, "lhs_component_count", 1);
  raise_set_int(r, op, "rhs_component_count", 1);
  raise_set_int(r, op, "num_primitive_operations", table[algorithm].operations);
  raise_set(r, op, "allow_imprecise_accumulation", raise_truth(r, table[algorithm].imprecise));
}

static void set_dot(raising *r, mlir_op *op, const hlo_dot_attrs *d)
{
  raise_set_ints(r, op, "lhs_batching_dimensions", d->lhs_batch);
  raise_set_ints(r, op, "rhs_batching_dimensions", d->rhs_batch);
  raise_set_ints(r, op, "lhs_contracting_dimensions", d->lhs_contracting);
  raise_set_ints(r, op, "rhs_contracting_dimensions", d->rhs_contracting);
  if (d->algorithm == HLO_ALG_UNSET)
    set_precision(r, op, WEFT_MIN(d->precision_count, 2), d->precision); /* one or the other */
}

void raise_dot(raising *r, const hlo_instr *in)
{
  if (in->operand_count != 2 || in->u.dot->sparsity) REFUSE(r, in, "a sparse dot has no StableHLO");
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.dot_general"));
  set_dot(r, op, in->u.dot);
  set_algorithm(r, op, in->u.dot->algorithm);
}

void raise_ragged_dot(raising *r, const hlo_instr *in)
{
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "chlo.ragged_dot"));

  set_dot(r, op, in->u.dot);
  raise_set_ints(r, op, "lhs_ragged_dimensions", in->u.dot->lhs_ragged);
  raise_set_ints(r, op, "rhs_group_dimensions", in->u.dot->rhs_group);
}

static mlir_value *converted(raising *r, mlir_value *x, weft_dtype type)
{
  if (x->type->dtype == type) return x;
  return raise_make(r, "stablehlo.convert", 1, &x, raise_array_type(r, type, x->type->rank, x->type->dims));
}

mlir_value *raise_broadcast_to(raising *r, mlir_value *x, int rank, const int64_t *dims, const int64_t *map)
{
  mlir_op *op = raise_emit(r, "stablehlo.broadcast_in_dim", 1, &x, 1,
                           (const mlir_type *[]){raise_array_type(r, x->type->dtype, rank, dims)});

  raise_set(r, op, "broadcast_dimensions", raise_ints(r, x->type->rank, map));
  return op->results;
}

/* A scale for each block of x, as an array of x's sizes. */
static mlir_value *repeated(raising *r, const hlo_instr *in, mlir_value *scale, const mlir_type *x)
{
  int64_t dims[2 * HLO_MAX_RANK], map[HLO_MAX_RANK];

  if (scale->type->rank == 0) return raise_broadcast_to(r, scale, x->rank, x->dims, NULL);
  if (scale->type->rank != x->rank || 2 * x->rank > HLO_MAX_RANK) REFUSE(r, in, "scales of another rank");
  for (int d = 0; d < x->rank; d++) {
    int64_t blocks = scale->type->dims[d];
    if (blocks < 1 || x->dims[d] % blocks) REFUSE(r, in, "scales that do not divide dimension %d", d);
    map[d] = 2 * d;
    dims[2 * d] = blocks;
    dims[2 * d + 1] = x->dims[d] / blocks;
  }
  return raise_reshaped(r, raise_broadcast_to(r, scale, 2 * x->rank, dims, map), x->rank, x->dims);
}

/* Operands times their scales, in f32 or wider. */
void raise_scaled_dot(raising *r, const hlo_instr *in)
{
  weft_dtype type = in->shape->type, wide = weft_dtype_bits(type) < 32 ? WEFT_F32 : type;
  mlir_value *x[2];
  const mlir_type *product;
  mlir_op *op;

  for (int i = 0; i < 2; i++) {
    x[i] = converted(r, raise_array_operand(r, in, i), wide);
    if (i + 2 >= in->operand_count) continue;
    mlir_value *scale = repeated(r, in, converted(r, raise_array_operand(r, in, i + 2), wide), x[i]->type);
    x[i] = raise_make(r, "stablehlo.multiply", 2, (mlir_value *[]){x[i], scale}, x[i]->type);
  }
  product = raise_array_type(r, wide, in->shape->rank, in->shape->dims);
  op = raise_emit(r, "stablehlo.dot_general", 2, x, 1, &product);
  set_dot(r, op, in->u.dot);
  r->at[in->id] = raise_single(r, converted(r, op->results, type));
}

void raise_convolution(raising *r, const hlo_instr *in)
{
  const hlo_conv_attrs *c = in->u.conv;
  const mlir_type *type = raise_type_of(r, in->shape);
  weft_dtype common = in->operands[0]->shape->type, other = in->operands[1]->shape->type;
  mlir_value *x[2];
  mlir_op *op;
  bool reversed = false;

  if (c->sparsity) REFUSE(r, in, "a sparse convolution has no StableHLO");
  if (weft_dtype_bits(other) > weft_dtype_bits(common)) common = other; /* HLO takes operands of two types */
  for (int i = 0; i < 2; i++) x[i] = converted(r, raise_array_operand(r, in, i), common);
  op = raise_emit(r, "stablehlo.convolution", 2, x, 1, &type);
  raise_set_extra(r, op, in);
  set_window(r, op, &c->window, NULL, "lhs_dilation", "rhs_dilation");
  const mlir_attr **flags = MAKE(r, const mlir_attr *, c->window.rank);
  for (int i = 0; i < c->window.rank; i++) {
    flags[i] = raise_truth(r, c->window.dims[i].reversal);
    reversed |= c->window.dims[i].reversal;
  }
  if (reversed) raise_set(r, op, "window_reversal", raise_list(r, c->window.rank, flags));
  const struct { const char *name; int64_t v; } numbers[] = {
      {"input_batch_dimension", c->lhs_batch}, {"input_feature_dimension", c->lhs_feature},
      {"kernel_input_feature_dimension", c->rhs_in_feature}, {"kernel_output_feature_dimension", c->rhs_out_feature},
      {"output_batch_dimension", c->out_batch}, {"output_feature_dimension", c->out_feature},
      {"feature_group_count", c->feature_group_count}, {"batch_group_count", c->batch_group_count}};
  for (size_t i = 0; i < WEFT_COUNT(numbers); i++) raise_set_int(r, op, numbers[i].name, numbers[i].v);
  raise_set_ints(r, op, "input_spatial_dimensions", c->lhs_spatial);
  raise_set_ints(r, op, "kernel_spatial_dimensions", c->rhs_spatial);
  raise_set_ints(r, op, "output_spatial_dimensions", c->out_spatial);
  set_precision(r, op, WEFT_MIN(c->precision_count, 2), c->precision);
  raise_give(r, in, op);
}

/* ---- linear algebra, statistics, random numbers ------------------------------------------------------------------ */

void raise_fft(raising *r, const hlo_instr *in)
{
  static const char *const types[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.fft"));

  raise_set(r, op, "fft_type", raise_words(r, MLIR_ENUM, types[in->u.fft_type]));
  raise_set_ints(r, op, "fft_length", in->dims);
}

void raise_cholesky(raising *r, const hlo_instr *in)
{
  raise_set(r, raise_give(r, in, raise_as_op(r, in, "stablehlo.cholesky")), "lower", raise_truth(r, in->u.lower));
}

void raise_triangular_solve(raising *r, const hlo_instr *in)
{
  static const char *const names[] = {"NO_TRANSPOSE", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  mlir_op *op = raise_give(r, in, raise_as_op(r, in, "stablehlo.triangular_solve"));

  raise_set(r, op, "left_side", raise_truth(r, in->u.triangular.left_side));
  raise_set(r, op, "lower", raise_truth(r, in->u.triangular.lower));
  raise_set(r, op, "unit_diagonal", raise_truth(r, in->u.triangular.unit_diagonal));
  raise_set(r, op, "transpose_a", raise_words(r, MLIR_ENUM, names[in->u.triangular.transpose_a]));
}

void raise_batch_norm(raising *r, const hlo_instr *in)
{
  mlir_op *op = raise_give(r, in,
                           raise_as_op(r, in,
                                       in->op == HLO_BATCH_NORM_GRAD        ? "stablehlo.batch_norm_grad"
                                       : in->op == HLO_BATCH_NORM_INFERENCE ? "stablehlo.batch_norm_inference"
                                                                            : "stablehlo.batch_norm_training"));

  raise_set(r, op, "epsilon", raise_real(r, WEFT_F32, in->u.batch_norm.epsilon));
  raise_set_int(r, op, "feature_index", in->u.batch_norm.feature_index);
}

void raise_rng(raising *r, const hlo_instr *in)
{
  const mlir_type *type = raise_type_of(r, in->shape);
  int64_t rank = in->shape->rank;
  hlo_literal sizes = {.shape = hlo_shape_array(&r->program.arena, WEFT_S64, 1, &rank),
                       .data = weft_arena_memdup(&r->program.arena, in->shape->dims, (size_t)rank * sizeof(int64_t))};
  mlir_value *operands[3] = {raise_array_operand(r, in, 0), raise_array_operand(r, in, 1), literal_value(r, &sizes)->value};
  mlir_op *op = raise_give(r, in, raise_emit(r, "stablehlo.rng", 3, operands, 1, &type));

  raise_set_extra(r, op, in);
  raise_set(r, op, "rng_distribution",
            raise_words(r, MLIR_ENUM, in->u.distribution == HLO_RNG_NORMAL ? "NORMAL" : "UNIFORM"));
}

/* HLO may give the bits alone. */
void raise_rng_bit_generator(raising *r, const hlo_instr *in)
{
  static const char *const names[] = {"DEFAULT", "THREE_FRY", "PHILOX"};
  mlir_value *state = raise_array_operand(r, in, 0);
  bool is_tuple = hlo_shape_is_tuple(in->shape);
  mlir_op *op =
    raise_emit(r, "stablehlo.rng_bit_generator", 1, &state, 2,
               (const mlir_type *[]){state->type, raise_type_of(r, is_tuple ? in->shape->elements[1] : in->shape)});

  if (is_tuple) raise_set_extra(r, op, in);
  raise_set(r, op, "rng_algorithm", raise_words(r, MLIR_ENUM, names[in->u.rng_algorithm]));
  r->at[in->id] = is_tuple ? raise_results_of(r, op, in->shape) : raise_single(r, &op->results[1]);
}

void raise_rng_state(raising *r, const hlo_instr *in)
{
  raise_set_int(r, raise_give(r, in, raise_as_op(r, in, "mhlo.xla.rng_get_and_update_state")), "delta", in->u.delta);
}

void raise_stochastic_convert(raising *r, const hlo_instr *in)
{
  raise_give(r, in, raise_as_op(r, in, "mhlo.stochastic_convert"));
}

/* ---- bitcasts ---------------------------------------------------------------------------------------------------- */

/* x with its dimensions in the order of memory, slowest first; or from that order back to shape s. */
static mlir_value *transposed(raising *r, mlir_value *x, const hlo_shape *s, bool to_memory)
{
  int64_t permutation[HLO_MAX_RANK], dims[HLO_MAX_RANK];
  mlir_op *op;

  if (hlo_shape_is_default_layout(s)) return x;
  for (int i = 0; i < s->rank; i++) {
    int64_t d = s->layout->minor_to_major[s->rank - 1 - i];
    if (to_memory) permutation[i] = d;
    else permutation[d] = i;
  }
  for (int i = 0; i < s->rank; i++) dims[i] = x->type->dims[permutation[i]];
  op = raise_emit(r, "stablehlo.transpose", 1, &x, 1,
                  (const mlir_type *[]){raise_array_type(r, x->type->dtype, s->rank, dims)});
  raise_set(r, op, "permutation", raise_ints(r, s->rank, permutation));
  return op->results;
}

/* The bytes of x as elements of another type, in one dimension. */
static mlir_value *recast(raising *r, mlir_value *x, weft_dtype to)
{
  int64_t from_bits = weft_dtype_bits(x->type->dtype), bits = weft_dtype_bits(to), n = mlir_tensor_elems(x->type);
  int64_t wide = from_bits < bits ? bits / from_bits : from_bits / bits;
  int64_t dims[2] = {from_bits < bits ? n / wide : n, wide};

  if (from_bits < bits) {
    x = raise_reshaped(r, x, 2, dims);
    return raise_make(r, "stablehlo.bitcast_convert", 1, &x, raise_array_type(r, to, 1, dims));
  }
  x = raise_reshaped(r, x, 1, &n);
  x = raise_make(r, "stablehlo.bitcast_convert", 1, &x, raise_array_type(r, to, from_bits == bits ? 1 : 2, dims));
  return raise_reshaped(r, x, 1, &(int64_t){n * wide});
}

void raise_bitcast(raising *r, const hlo_instr *in)
{
  const hlo_shape *from = in->operands[0]->shape, *to = in->shape;
  int64_t dims[HLO_MAX_RANK];
  mlir_value *x;

  if (!hlo_shape_is_array(from) || !hlo_shape_is_array(to)) REFUSE(r, in, "a bitcast of what is no array");
  if (hlo_shape_is_dynamic(from) || hlo_shape_is_dynamic(to)) REFUSE(r, in, "a bitcast of dynamic shape");
  for (int i = 0; i < to->rank; i++)
    dims[i] = to->dims[hlo_shape_is_default_layout(to) ? i : to->layout->minor_to_major[to->rank - 1 - i]];
  x = transposed(r, raise_array_operand(r, in, 0), from, true);
  if (from->type != to->type) x = recast(r, x, to->type);
  x = raise_reshaped(r, x, to->rank, dims);
  r->at[in->id] = raise_single(r, transposed(r, x, to, false));
}

void raise_dynamic_reshape(raising *r, const hlo_instr *in)
{
  raised_values sizes = {0};
  const mlir_type *type = raise_type_of(r, in->shape);
  mlir_value *all;

  if (in->operand_count < 2) REFUSE(r, in, "a dynamic-reshape without sizes");
  for (int i = 1; i < in->operand_count; i++)
    raise_push(r, &sizes, raise_reshaped(r, raise_array_operand(r, in, i), 1, &(int64_t){1}));
  all = raise_make(r, "stablehlo.concatenate", sizes.count, sizes.v,
                   raise_array_type(r, sizes.v[0]->type->dtype, 1, &(int64_t){sizes.count}));
  raise_set_int(r, r->block->last, "dimension", 0);
  mlir_value *operands[2] = {raise_array_operand(r, in, 0), all};
  raise_give(r, in, raise_emit(r, "stablehlo.dynamic_reshape", 2, operands, 1, &type));
}
