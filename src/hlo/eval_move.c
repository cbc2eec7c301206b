/* hlo/eval_move.c -- Data movement: every result element is a copy of an operand element, found through its index. */
#include <config.h>

#include <string.h>

#include "hlo/eval_internal.h"

static void copy_element(hlo_literal *to, int64_t to_offset, const hlo_literal *from, int64_t from_offset)
{
  memcpy(eval_at(to, to_offset), eval_at(from, from_offset), weft_dtype_bytes(to->shape->type));
}

/* Makes *out: for each index of the result, `source` writes the index of the operand's element to `from`. */
typedef void source_index(const hlo_instr *instr, const hlo_shape *in, const int64_t *idx, int64_t *from);
static weft_status *copy_by_index(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *in, source_index *source,
                                  const hlo_literal **out)
{
  int64_t idx[HLO_MAX_RANK] = {0}, from[HLO_MAX_RANK], k = 0;
  hlo_literal *result;

  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  if (hlo_shape_elems(result->shape) == 0) return NULL;
  do {
    source(instr, in->shape, idx, from);
    copy_element(result, k++, in, eval_offset(in->shape->rank, in->shape->dims, from));
  } while (eval_next(result->shape->rank, result->shape->dims, idx));
  return NULL;
}

static void broadcast_index(const hlo_instr *instr, const hlo_shape *in, const int64_t *idx, int64_t *from)
{
  for (int d = 0; d < in->rank; d++) from[d] = idx[instr->dims.v[d]];
}
weft_status *eval_broadcast(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                            const hlo_literal **out)
{
  return copy_by_index(ctx, instr, operands[0], broadcast_index, out);
}

static void transpose_index(const hlo_instr *instr, const hlo_shape *in, const int64_t *idx, int64_t *from)
{
  for (int d = 0; d < in->rank; d++) from[instr->dims.v[d]] = idx[d];
}
weft_status *eval_transpose(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                            const hlo_literal **out)
{
  return copy_by_index(ctx, instr, operands[0], transpose_index, out);
}

static void reverse_index(const hlo_instr *instr, const hlo_shape *in, const int64_t *idx, int64_t *from)
{
  for (int d = 0; d < in->rank; d++) from[d] = eval_contains(instr->dims, d) ? in->dims[d] - 1 - idx[d] : idx[d];
}
weft_status *eval_reverse(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                          const hlo_literal **out)
{
  return copy_by_index(ctx, instr, operands[0], reverse_index, out);
}

static void slice_index(const hlo_instr *instr, const hlo_shape *in, const int64_t *idx, int64_t *from)
{
  for (int d = 0; d < in->rank; d++) from[d] = instr->u.slice->start.v[d] + idx[d] * instr->u.slice->stride.v[d];
}
weft_status *eval_slice(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                        const hlo_literal **out)
{
  return copy_by_index(ctx, instr, operands[0], slice_index, out);
}

/* Result index = low + index + index * interior, which for one element does not overflow, whatever `interior` is.  An
 * index outside the result (negative padding) is dropped. */
weft_status *eval_pad(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                      const hlo_literal **out)
{
  const hlo_literal *in = operands[0];
  int64_t idx[HLO_MAX_RANK] = {0}, to[HLO_MAX_RANK], k = 0, count;
  hlo_literal *result;

  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  count = hlo_shape_elems(result->shape);
  for (int64_t i = 0; i < count; i++) copy_element(result, i, operands[1], 0);
  if (count == 0 || hlo_shape_elems(in->shape) == 0) return NULL;
  do {
    bool inside = true;
    for (int d = 0; d < in->shape->rank; d++) {
      to[d] = instr->u.pad.dims[d].low + idx[d] + idx[d] * instr->u.pad.dims[d].interior;
      if (to[d] < 0 || to[d] >= result->shape->dims[d]) inside = false;
    }
    if (inside) copy_element(result, eval_offset(in->shape->rank, result->shape->dims, to), in, k);
    k++;
  } while (eval_next(in->shape->rank, in->shape->dims, idx));
  return NULL;
}

weft_status *eval_concatenate(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                              const hlo_literal **out)
{
  int64_t d = instr->dims.v[0], base = 0;
  hlo_literal *result;

  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  for (int i = 0; i < instr->operand_count; i++) {
    const hlo_literal *in = operands[i];
    int64_t idx[HLO_MAX_RANK] = {0}, k = 0;
    if (hlo_shape_elems(in->shape) > 0) {
      do {
        int64_t to[HLO_MAX_RANK];
        memcpy(to, idx, sizeof to);
        to[d] += base;
        copy_element(result, eval_offset(in->shape->rank, result->shape->dims, to), in, k++);
      } while (eval_next(in->shape->rank, in->shape->dims, idx));
    }
    base += in->shape->dims[d];
  }
  return NULL;
}

/* The same elements in the same order: the data are shared. */
weft_status *eval_reshape(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                          const hlo_literal **out)
{
  hlo_literal *result = WEFT_ARENA_NEW(ctx->arena, hlo_literal);
  hlo_shape *shape = hlo_shape_array(ctx->arena, instr->shape->type, instr->shape->rank, instr->shape->dims);

  WEFT_TRY_ALLOC(result && shape);
  if (hlo_shape_bytes(shape) != hlo_shape_bytes(operands[0]->shape))
    return WEFT_ERR(INVALID_ARGUMENT, "%s %s: sizes differ", hlo_opcode_name(instr->op), instr->name);
  result->shape = shape;
  result->data = operands[0]->data;
  *out = result;
  return NULL;
}

/* Copies between the row-major order of a literal and the memory order of the shape's layout. */
static void relayout(const hlo_shape *shape, const char *from, char *to, bool to_memory)
{
  int64_t idx[HLO_MAX_RANK] = {0}, stride[HLO_MAX_RANK], step = 1, k = 0;
  size_t bytes = weft_dtype_bytes(shape->type);

  for (int i = 0; i < shape->rank; i++) {
    int64_t d = shape->layout ? shape->layout->minor_to_major[i] : shape->rank - 1 - i;
    stride[d] = step;
    step *= shape->dims[d];
  }
  if (hlo_shape_elems(shape) == 0) return;
  do {
    int64_t at = 0;
    for (int d = 0; d < shape->rank; d++) at += idx[d] * stride[d];
    memcpy(to + bytes * (size_t)(to_memory ? at : k), from + bytes * (size_t)(to_memory ? k : at), bytes);
    k++;
  } while (eval_next(shape->rank, shape->dims, idx));
}

/* The result has the same bytes in memory, so its elements depend on both layouts. */
weft_status *eval_bitcast(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                          const hlo_literal **out)
{
  const hlo_shape *from = instr->operands[0]->shape;
  const hlo_literal *flat;
  hlo_literal *memory, *result;

  if (hlo_shape_is_default_layout(from) && hlo_shape_is_default_layout(instr->shape))
    return eval_reshape(ctx, instr, operands, out);
  WEFT_TRY(eval_reshape(ctx, instr, operands, &flat)); /* the sizes agree */
  WEFT_TRY(eval_result(ctx, from, &memory));
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  relayout(from, operands[0]->data, memory->data, true);
  relayout(instr->shape, memory->data, result->data, false);
  *out = result;
  return NULL;
}

/* The sizes are scalar operands, one for each dimension.  The evaluator has static data only, so they must be the
 * sizes of the result's shape. */
weft_status *eval_dynamic_reshape(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                  const hlo_literal **out)
{
  for (int d = 0; d < instr->shape->rank; d++)
    if (hlo_literal_get_s64(operands[d + 1], 0) != instr->shape->dims[d])
      return WEFT_ERR(UNIMPLEMENTED, "dynamic-reshape %s to other sizes than its bounds", instr->name);
  return eval_reshape(ctx, instr, operands, out);
}

weft_status *eval_get_dimension_size(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                     const hlo_literal **out)
{
  hlo_literal *result;

  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  hlo_literal_set_s64(result, 0, operands[0]->shape->dims[instr->dims.v[0]]);
  *out = result;
  return NULL;
}

weft_status *eval_set_dimension_size(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                     const hlo_literal **out)
{
  int64_t size = hlo_literal_get_s64(operands[1], 0);

  if (size != operands[0]->shape->dims[instr->dims.v[0]])
    return WEFT_ERR(UNIMPLEMENTED, "set-dimension-size %s to another size than the bound", instr->name);
  return eval_reshape(ctx, instr, operands, out);
}

weft_status *eval_iota(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                       const hlo_literal **out)
{
  int64_t idx[HLO_MAX_RANK] = {0}, k = 0;
  hlo_literal *result;

  (void)operands;
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  if (hlo_shape_elems(result->shape) == 0) return NULL;
  do {
    eval_scalar value = {.s = idx[instr->dims.v[0]]};
    eval_store(result->shape->type, eval_at(result, k++), eval_convert(WEFT_S64, result->shape->type, value));
  } while (eval_next(result->shape->rank, result->shape->dims, idx));
  return NULL;
}

/* ---- dynamic slices and gather ----------------------------------------------------------------------------------- */

void eval_start_indices(const hlo_literal *const *indices, int count, int rank, int64_t *starts)
{
  for (int d = 0; d < rank; d++) { /* one scalar for each dimension, or in old programs one vector */
    const hlo_literal *from = count == rank && indices[0]->shape->rank == 0 ? indices[d] : indices[0];
    int64_t value = hlo_literal_get_s64(from, from->shape->rank == 0 ? 0 : d);
    starts[d] = from->shape->type == WEFT_U64 && value < 0 ? INT64_MAX : value;
  }
}

/* Clamps a start index to [0, size - window], as HLO does. */
static int64_t clamp_start(int64_t start, int64_t size, int64_t window)
{
  return WEFT_MAX(0, WEFT_MIN(start, size - window));
}

weft_status *eval_dynamic_slice(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                const hlo_literal **out)
{
  const hlo_literal *in = operands[0];
  int64_t starts[HLO_MAX_RANK], idx[HLO_MAX_RANK] = {0}, from[HLO_MAX_RANK], k = 0;
  int rank = in->shape->rank;
  hlo_literal *result;

  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  if (hlo_shape_elems(result->shape) == 0) return NULL;
  eval_start_indices(operands + 1, instr->operand_count - 1, rank, starts);
  for (int d = 0; d < rank; d++) starts[d] = clamp_start(starts[d], in->shape->dims[d], result->shape->dims[d]);
  do {
    for (int d = 0; d < rank; d++) from[d] = starts[d] + idx[d];
    copy_element(result, k++, in, eval_offset(rank, in->shape->dims, from));
  } while (eval_next(rank, result->shape->dims, idx));
  return NULL;
}

weft_status *eval_dynamic_update_slice(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                       const hlo_literal **out)
{
  const hlo_literal *in = operands[0], *update = operands[1];
  int64_t starts[HLO_MAX_RANK], idx[HLO_MAX_RANK] = {0}, to[HLO_MAX_RANK], k = 0;
  int rank = in->shape->rank;
  hlo_literal *result;

  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  memcpy(result->data, in->data, (size_t)hlo_shape_bytes(result->shape));
  if (hlo_shape_elems(update->shape) == 0) return NULL;
  eval_start_indices(operands + 2, instr->operand_count - 2, rank, starts);
  for (int d = 0; d < rank; d++) starts[d] = clamp_start(starts[d], in->shape->dims[d], update->shape->dims[d]);
  do {
    for (int d = 0; d < rank; d++) to[d] = starts[d] + idx[d];
    copy_element(result, eval_offset(rank, in->shape->dims, to), update, k++);
  } while (eval_next(rank, update->shape->dims, idx));
  return NULL;
}

/* For each result index: the batch part (dimensions that are not offset_dims) finds a start vector in the indices,
 * and the offset part is a place in the window (StableHLO gather).  Starts are clamped so that the window fits. */
weft_status *eval_gather(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                         const hlo_literal **out)
{
  const hlo_gather_attrs *g = instr->u.gather;
  const hlo_literal *in = operands[0], *indices = operands[1];
  int64_t idx[HLO_MAX_RANK] = {0}, at[HLO_MAX_RANK + 1], from[HLO_MAX_RANK], k = 0;
  hlo_literal *result;

  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  if (hlo_shape_elems(result->shape) == 0) return NULL;
  do {
    int batch = 0, offset = 0;
    memset(from, 0, sizeof from);
    for (int d = 0; d < result->shape->rank; d++) {
      if (eval_contains(g->offset_dims, d)) continue;
      if (batch == g->index_vector_dim) batch++;
      at[batch++] = idx[d];
    }
    for (int i = 0; i < g->start_index_map.count; i++) {
      int64_t dim = g->start_index_map.v[i], start;
      at[g->index_vector_dim] = i;
      start = hlo_literal_get_s64(indices, eval_offset(indices->shape->rank, indices->shape->dims, at));
      if (indices->shape->type == WEFT_U64 && start < 0) start = INT64_MAX;
      from[dim] = clamp_start(start, in->shape->dims[dim], g->slice_sizes.v[dim]);
    }
    for (int i = 0; i < g->operand_batching_dims.count; i++) {
      int64_t dim = g->start_indices_batching_dims.v[i];
      from[g->operand_batching_dims.v[i]] = at[dim];
    }
    for (int d = 0; d < in->shape->rank; d++) {
      if (eval_contains(g->collapsed_slice_dims, d) || eval_contains(g->operand_batching_dims, d)) continue;
      from[d] += idx[g->offset_dims.v[offset++]];
    }
    copy_element(result, k++, in, eval_offset(in->shape->rank, in->shape->dims, from));
  } while (eval_next(result->shape->rank, result->shape->dims, idx));
  return NULL;
}
