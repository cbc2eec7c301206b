/* stablehlo/lower_dynamic.c -- programs whose shapes depend on values. Every shape is known once the arguments'
 * shapes are, so the dynamic_* operations become their static forms. The values that shapes depend on are folded
 * here. */
#include <inttypes.h>
#include <stdio.h>
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

bool lower_is_dynamic_program(const mlir_program *program, const mlir_module *module)
{
  return program->has_dynamic_types && module->op->region_count > 0 &&
         block_is_dynamic(module->op->regions[0].first, 0);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

weft_status *lower_remember(lowering *l, const hlo_instr *in, const hlo_literal *value)
{
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&l->scratch, l->known, l->known_capacity, (int64_t)in->id + 1, in->id + 64));
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
  if (depth > KNOWN_DEPTH || in->op == HLO_PARAMETER ||
      (hlo_shape_is_array(in->shape) && hlo_shape_elems(in->shape) > KNOWN_ELEMENTS))
    return WEFT_ERR(UNIMPLEMENTED, "a size depends on the value of an argument (%%%s)", in->name);
  operands = WEFT_ARENA_ARRAY(&l->scratch, const hlo_literal *, in->operand_count);
  WEFT_TRY_ALLOC(operands);
  for (int i = 0; i < in->operand_count; i++) WEFT_TRY(known_value(l, in->operands[i], depth + 1, &operands[i]));
  WEFT_TRY(hlo_eval_instr(in, operands, &options, &l->scratch, out));
  return lower_remember(l, in, *out);
}

weft_status *lower_known_ints(lowering *l, hlo_instr *x, hlo_ints *out)
{
  const hlo_literal *value;
  int64_t *v;

  WEFT_TRY(known_value(l, x, 0, &value));
  if (!hlo_shape_is_array(value->shape) ||
      !(weft_dtype_is_integer(value->shape->type) || value->shape->type == WEFT_PRED))
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

static bool is_constant(const hlo_instr *x)
{
  return x->op == HLO_CONSTANT || (x->op == HLO_BROADCAST && x->operands[0]->op == HLO_CONSTANT);
}

static weft_status *disagrees(const hlo_shape *declared, hlo_ints dims)
{
  for (int i = 0; i < WEFT_MIN(dims.count, declared->rank); i++)
    if (declared->dynamic && declared->dynamic[i] ? dims.v[i] > declared->dims[i] : dims.v[i] != declared->dims[i])
      return WEFT_ERR(INVALID_ARGUMENT,
                      "dimension %d of the result is declared %" PRId64 ", its operand gives %" PRId64, i,
                      declared->dims[i], dims.v[i]);
  if (dims.count == declared->rank) return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "the result is declared of rank %d, its operand gives %d", declared->rank,
                  dims.count);
}

weft_status *lower_shape_operand(lowering *l, const mlir_op *op, int i, weft_dtype type, const hlo_shape **out)
{
  hlo_instr *x;
  hlo_ints dims;

  if (op->result_count != 1) return WEFT_ERR(INVALID_ARGUMENT, "%d results, expected 1", op->result_count);
  WEFT_TRY(lower_operand(l, op, i, &x));
  WEFT_TRY(lower_static_shape(l, op->results[0].type, out));
  if (*out && !is_constant(x)) return NULL;
  WEFT_TRY_NOTE(lower_known_ints(l, x, &dims), "operand %d", i);
  if (*out) return disagrees(*out, dims);
  if (dims.count > HLO_MAX_RANK) return WEFT_ERR(INVALID_ARGUMENT, "a shape of rank %d", dims.count);
  *out = hlo_shape_array(l->arena, type, dims.count, dims.v);
  WEFT_TRY_ALLOC(*out);
  if (!hlo_shape_is_sane(*out)) return WEFT_ERR(INVALID_ARGUMENT, "a shape with negative or too large sizes");
  return NULL;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

weft_status *lower_dynamic_broadcast_in_dim(lowering *l, const mlir_op *op)
{
  hlo_instr *x;
  const hlo_shape *shape;
  hlo_ints map;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_shape_operand(l, op, 1, x->shape->type, &shape));
  WEFT_TRY(lower_ints(l, op, "broadcast_dimensions", &map));
  WEFT_TRY(lower_broadcast_in_dim(l, x, shape, map, &x));
  return lower_result(l, op, 0, x);
}

weft_status *lower_dynamic_reshape(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;
  const hlo_shape *shape;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_shape_operand(l, op, 1, x->shape->type, &shape));
  WEFT_TRY(lower_simple(l, HLO_RESHAPE, shape, 1, &x, &in));
  return lower_result(l, op, 0, in);
}

weft_status *lower_dynamic_iota(lowering *l, const mlir_op *op)
{
  const hlo_shape *shape;
  hlo_instr *in;
  int64_t dim = mlir_attr_int(mlir_attr_of(op, "iota_dimension"), 0);

  if (op->result_count != 1) return WEFT_ERR(INVALID_ARGUMENT, "%d results, expected 1", op->result_count);
  WEFT_TRY(lower_shape_operand(l, op, 0, op->results[0].type->dtype, &shape));
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

/* A slice whose start is known only at run time and whose size is that of its result's type: all strides are 1. */
static weft_status *slice_from(lowering *l, const mlir_op *op, hlo_instr *x, hlo_instr *start)
{
  hlo_instr *operands[HLO_MAX_RANK + 1] = {x}, *in;
  const hlo_shape *shape;
  int rank = x->shape->rank;

  WEFT_TRY(lower_shape(l, op->results[0].type, &shape));
  if (!hlo_shape_is_array(start->shape) || shape->rank != rank || start->shape->rank != 1 ||
      start->shape->dims[0] != rank)
    return WEFT_ERR(INVALID_ARGUMENT, "%" PRId64 " starts and a result of rank %d for an operand of rank %d",
                    start->shape->rank == 1 ? start->shape->dims[0] : 0, shape->rank, rank);
  for (int i = 0; i < rank; i++) {
    hlo_slice_attrs *one = WEFT_ARENA_NEW(l->arena, hlo_slice_attrs);
    WEFT_TRY_ALLOC(one);
    WEFT_TRY(hlo_ints_new(l->module, 1, &(int64_t){i}, &one->start));
    WEFT_TRY(hlo_ints_new(l->module, 1, &(int64_t){i + 1}, &one->limit));
    WEFT_TRY(hlo_ints_new(l->module, 1, &(int64_t){1}, &one->stride));
    WEFT_TRY(lower_emit(l, HLO_SLICE, NULL, 1, &start, &in));
    in->u.slice = one;
    WEFT_TRY(lower_finish(in));
    WEFT_TRY(lower_reshape(l, in, 0, NULL, &operands[i + 1]));
  }
  WEFT_TRY(lower_emit(l, HLO_DYNAMIC_SLICE, NULL, rank + 1, operands, &in));
  WEFT_TRY(hlo_ints_new(l->module, rank, shape->dims, &in->u.slice_sizes));
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

static bool all_ones(hlo_ints v)
{
  for (int i = 0; i < v.count; i++)
    if (v.v[i] != 1) return false;
  return true;
}

weft_status *lower_real_dynamic_slice(lowering *l, const mlir_op *op)
{
  hlo_slice_attrs *attrs = WEFT_ARENA_NEW(l->arena, hlo_slice_attrs);
  hlo_instr *x, *start, *in;

  WEFT_TRY_ALLOC(attrs);
  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(lower_operand(l, op, 1, &start));
  WEFT_TRY(known_operand(l, op, 3, &attrs->stride));
  weft_status *known = lower_known_ints(l, start, &attrs->start);
  if (weft_status_code(known) == WEFT_UNIMPLEMENTED && hlo_shape_is_array(x->shape) && op->result_count == 1 &&
      !mlir_type_is_dynamic(op->results[0].type) && all_ones(attrs->stride)) {
    weft_status_ignore(known);
    return slice_from(l, op, x, start);
  }
  WEFT_TRY_NOTE(known, "operand 1");
  WEFT_TRY(known_operand(l, op, 2, &attrs->limit));
  WEFT_TRY(lower_emit(l, HLO_SLICE, NULL, 1, &x, &in));
  in->u.slice = attrs;
  WEFT_TRY(lower_finish(in));
  return lower_result(l, op, 0, in);
}

/* The size of a dimension; that of a static dimension is a constant. */
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

/* ---- custom-calls that stand for operations ---------------------------------------------------------------------- */

/* operand, k -> values, indices */
static weft_status *dynamic_top_k(lowering *l, const mlir_op *op)
{
  hlo_instr *x, *in;
  hlo_ints k;

  WEFT_TRY(lower_operand(l, op, 0, &x));
  WEFT_TRY(known_operand(l, op, 1, &k));
  WEFT_TRY(lower_emit(l, HLO_TOPK, NULL, 1, &x, &in));
  in->u.topk.k = k.count == 1 ? k.v[0] : -1;
  in->u.topk.largest = in->u.topk.is_stable = true;
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

/* state, shape -> state, bits */
static weft_status *dynamic_rng_bit_generator(lowering *l, const mlir_op *op)
{
  const char *word = mlir_attr_text(mlir_attr_of(op, "rng_algorithm"), "DEFAULT");
  hlo_instr *state, *in;
  const hlo_shape *bits;
  hlo_ints dims;

  WEFT_TRY(lower_operand(l, op, 0, &state));
  WEFT_TRY(known_operand(l, op, 1, &dims));
  if (op->result_count != 2 || dims.count > HLO_MAX_RANK)
    return WEFT_ERR(INVALID_ARGUMENT, "a state and bits are expected");
  bits = hlo_shape_array(l->arena, op->results[1].type->dtype, dims.count, dims.v);
  WEFT_TRY_ALLOC(bits);
  if (!hlo_shape_is_sane(bits)) return WEFT_ERR(INVALID_ARGUMENT, "a shape with negative or too large sizes");
  const hlo_shape *shape = hlo_shape_tuple(l->arena, 2, (const hlo_shape *[]){state->shape, bits});
  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(lower_emit(l, HLO_RNG_BIT_GENERATOR, shape, 1, &state, &in));
  in->u.rng_algorithm = strcmp(word, "PHILOX") == 0      ? HLO_RNG_PHILOX
                        : strcmp(word, "THREE_FRY") == 0 ? HLO_RNG_THREE_FRY
                                                         : HLO_RNG_DEFAULT;
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

static weft_status *called(lowering *l, const mlir_op *op, hlo_computation **out)
{
  const mlir_attr *a = mlir_attr_of(op, "called_computations");

  if (!a || a->kind != MLIR_ARRAY || a->u.array.count != 1)
    return WEFT_ERR(INVALID_ARGUMENT, "one called computation is expected");
  return lower_called_function(l, mlir_attr_text(a->u.array.items[0], ""), out);
}

/* inputs..., inits..., sizes, strides, base dilations, window dilations, padding */
static weft_status *dynamic_reduce_window(lowering *l, const mlir_op *op)
{
  hlo_ints window[5];
  hlo_computation *f;
  int first = op->operand_count - (int)WEFT_COUNT(window);

  if (first < 2) return WEFT_ERR(INVALID_ARGUMENT, "%d operands", op->operand_count);
  for (int i = 0; i < (int)WEFT_COUNT(window); i++) WEFT_TRY(known_operand(l, op, first + i, &window[i]));
  WEFT_TRY(called(l, op, &f));
  return lower_reduce_window_with(l, op, first / 2, f, window);
}

/* inputs..., inits... -> the k first elements of each, in the order of the comparator; exact, by a sort. */
static weft_status *first_sorted(lowering *l, const mlir_op *op, int64_t k)
{
  const mlir_attr *config = mlir_attr_of(op, "mhlo.backend_config");
  int n = op->result_count;
  hlo_instr **operands, *sorted;
  hlo_computation *f;

  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(called(l, op, &f));
  if (n < 1 || op->operand_count < 2 * n) return WEFT_ERR(INVALID_ARGUMENT, "%d operands", op->operand_count);
  for (int i = 0; i < n; i++)
    if (!hlo_shape_is_array(operands[i]->shape)) return WEFT_ERR(INVALID_ARGUMENT, "operand %d is no array", i);
  int rank = operands[0]->shape->rank;
  int64_t dim = mlir_attr_int(mlir_dict_get(config, "reduction_dim"), -1);
  if (dim < 0) dim += rank;
  if (dim < 0 || dim >= rank) return WEFT_ERR(INVALID_ARGUMENT, "reduction_dim of rank %d", rank);
  if (k < 0 && op->results[0].type->kind == MLIR_TENSOR && op->results[0].type->rank == rank)
    k = op->results[0].type->dims[dim]; /* as the result's type says */
  if (k < 0) k = mlir_attr_int(mlir_dict_get(config, "top_k"), -1);
  if (k < 0) return WEFT_ERR(INVALID_ARGUMENT, "k is %" PRId64, k);
  WEFT_TRY(lower_emit(l, HLO_SORT, NULL, n, operands, &sorted));
  WEFT_TRY(hlo_set_called(sorted, 1, &f));
  WEFT_TRY(hlo_ints_new(l->module, 1, &dim, &sorted->dims));
  sorted->u.is_stable = true;
  WEFT_TRY(lower_finish(sorted));
  for (int i = 0; i < n; i++) {
    hlo_instr *x = sorted;
    int64_t start[HLO_MAX_RANK] = {0}, limit[HLO_MAX_RANK];
    if (n > 1) WEFT_TRY(hlo_add_gte(l->comp, NULL, sorted, i, &x));
    for (int d = 0; d < rank; d++) limit[d] = d == dim ? WEFT_MIN(k, x->shape->dims[d]) : x->shape->dims[d];
    WEFT_TRY(hlo_add_slice(l->comp, NULL, x, start, limit, NULL, &x));
    WEFT_TRY(lower_result(l, op, i, x));
  }
  return NULL;
}

static weft_status *approx_top_k(lowering *l, const mlir_op *op) { return first_sorted(l, op, -1); }

static weft_status *dynamic_approx_top_k(lowering *l, const mlir_op *op)
{
  hlo_ints k;

  if (op->operand_count < 2 * op->result_count + 1) return WEFT_ERR(INVALID_ARGUMENT, "%d operands", op->operand_count);
  WEFT_TRY(known_operand(l, op, 2 * op->result_count, &k));
  return k.count == 1 && k.v[0] >= 0 ? first_sorted(l, op, k.v[0]) : WEFT_ERR(INVALID_ARGUMENT, "k is no size");
}

/* The order in which two values are to be made. The values do not depend on it, so the operation is dropped. */
static weft_status *control_dep(lowering *l, const mlir_op *op)
{
  (void)l;
  return op->result_count == 0 ? NULL : WEFT_ERR(INVALID_ARGUMENT, "%d results", op->result_count);
}

/* Requires a condition, or fails with its message: {0}, {1}, ... stand for the operands behind the condition. */
static weft_status *shape_assertion(lowering *l, const mlir_op *op)
{
  const char *message = mlir_attr_text(mlir_attr_of(op, "error_message"), "a shape assertion failed");
  char text[1024];
  size_t n = 0;
  hlo_ints v;

  WEFT_TRY(known_operand(l, op, 0, &v));
  if (v.count == 1 && v.v[0] != 0) return NULL;
  for (const char *c = message; *c && n < sizeof text - 32; c++) {
    int which = c[0] == '{' && c[1] >= '0' && c[1] <= '9' && c[2] == '}' ? c[1] - '0' : -1;
    if (which >= 0 && which + 1 < op->operand_count) {
      WEFT_TRY(known_operand(l, op, which + 1, &v));
      n += (size_t)snprintf(text + n, sizeof text - n, "%" PRId64, v.count > 0 ? v.v[0] : 0);
      c += 2;
    } else {
      text[n++] = *c;
    }
  }
  text[n] = '\0';
  return WEFT_ERR(INVALID_ARGUMENT, "%s", text);
}

weft_status *lower_dynamic_custom_call(lowering *l, const mlir_op *op, const char *target, bool *out_known)
{
  static const struct { const char *target; lower_rule *rule; } rules[] = {
      {"stablehlo.dynamic_top_k", dynamic_top_k},
      {"stablehlo.dynamic_rng_bit_generator", dynamic_rng_bit_generator},
      {"stablehlo.dynamic_reduce_window", dynamic_reduce_window},
      {"stablehlo.dynamic_approx_top_k", dynamic_approx_top_k},
      {"ApproxTopK", approx_top_k},
      {"control_dep", control_dep},
      {"shape_assertion", shape_assertion},
  };

  *out_known = false;
  for (size_t i = 0; i < WEFT_COUNT(rules); i++)
    if (strcmp(rules[i].target, target) == 0) {
      *out_known = true;
      return rules[i].rule(l, op);
    }
  return NULL;
}

weft_status *lower_custom_call_shapes(lowering *l, const mlir_op *op, const hlo_shape **shapes, bool *drop)
{
  hlo_ints from, dims;

  WEFT_TRY(lower_ints(l, op, "indices_of_shape_operands", &from));
  for (int i = 0; i < from.count; i++)
    if (from.v[i] < 0 || from.v[i] >= op->operand_count)
      return WEFT_ERR(INVALID_ARGUMENT, "indices_of_shape_operands has %" PRId64, from.v[i]);
  for (int i = 0; i < op->result_count; i++) {
    if (i >= from.count) {
      WEFT_TRY(lower_shape(l, op->results[i].type, &shapes[i]));
      continue;
    }
    WEFT_TRY(known_operand(l, op, (int)from.v[i], &dims));
    drop[from.v[i]] = true;
    if (dims.count > HLO_MAX_RANK) return WEFT_ERR(INVALID_ARGUMENT, "a shape of rank %d", dims.count);
    shapes[i] = hlo_shape_array(l->arena, op->results[i].type->dtype, dims.count, dims.v);
    WEFT_TRY_ALLOC(shapes[i]);
    if (!hlo_shape_is_sane(shapes[i])) return WEFT_ERR(INVALID_ARGUMENT, "a shape with negative or too large sizes");
  }
  return NULL;
}
