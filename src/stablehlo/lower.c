/* stablehlo/lower.c -- programs to modules: functions, regions, control flow, and helpers that the other files use
 * to make instructions.
 *
 * Each value of the program is held by one instruction of the computation that is being built. A region that becomes
 * a computation of its own (of while, if, reduce, ...) sees outer values in two ways: constants are made again
 * inside; all others are passed through the operand tuple (while, if, case) or refused (regions of scalars). */
#include "stablehlo/lower.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/text.h"

/* ---- emission ---------------------------------------------------------------------------------------------------- */

weft_status *lower_emit(lowering *l, hlo_opcode op, const hlo_shape *given, int count, hlo_instr *const *operands,
                        hlo_instr **out)
{
  hlo_instr *made; /* `out` may be the place of an operand */

  WEFT_TRY(hlo_add(l->comp, NULL, op, given, count, operands, NULL, &made));
  *out = made;
  return NULL;
}

weft_status *lower_finish(hlo_instr *instr)
{
  const hlo_shape *shape = NULL;

  WEFT_TRY(hlo_infer_shape(instr, &shape));
  instr->shape = shape;
  return NULL;
}

weft_status *lower_simple(lowering *l, hlo_opcode op, const hlo_shape *given, int count, hlo_instr *const *operands,
                          hlo_instr **out)
{
  WEFT_TRY(lower_emit(l, op, given, count, operands, out));
  return lower_finish(*out);
}

weft_status *lower_unary(lowering *l, hlo_opcode op, hlo_instr *x, hlo_instr **out)
{
  return lower_simple(l, op, NULL, 1, &x, out);
}

weft_status *lower_binary(lowering *l, hlo_opcode op, hlo_instr *x, hlo_instr *y, hlo_instr **out)
{
  return lower_simple(l, op, NULL, 2, (hlo_instr *[]){x, y}, out);
}

weft_status *lower_like(lowering *l, const hlo_instr *x, double value, hlo_instr **out)
{
  WEFT_TRY(hlo_add_scalar(l->comp, NULL, x->shape->type, value, out));
  if (x->shape->rank == 0) return NULL;
  return hlo_add_broadcast(l->comp, NULL, *out, x->shape->rank, x->shape->dims, NULL, out);
}

weft_status *lower_convert(lowering *l, hlo_instr *x, weft_dtype type, hlo_instr **out)
{
  *out = x;
  return x->shape->type == type ? NULL : hlo_add_convert(l->comp, NULL, x, type, out);
}

weft_status *lower_reshape(lowering *l, hlo_instr *x, int rank, const int64_t *dims, hlo_instr **out)
{
  hlo_shape *shape = hlo_shape_array(l->arena, x->shape->type, rank, dims);

  WEFT_TRY_ALLOC(shape);
  *out = x;
  return hlo_shape_equal(shape, x->shape, false) ? NULL : lower_simple(l, HLO_RESHAPE, shape, 1, &x, out);
}

weft_status *lower_broadcast_in_dim(lowering *l, hlo_instr *x, const hlo_shape *to, hlo_ints map, hlo_instr **out)
{
  int64_t dims[HLO_MAX_RANK], kept[HLO_MAX_RANK];
  int rank = 0;

  if (!hlo_shape_is_array(x->shape) || !hlo_shape_is_array(to) || map.count != x->shape->rank)
    return WEFT_ERR(INVALID_ARGUMENT, "%d broadcast dimensions for a rank of %d", map.count, x->shape->rank);
  for (int i = 0; i < map.count; i++) {
    if (map.v[i] < 0 || map.v[i] >= to->rank)
      return WEFT_ERR(INVALID_ARGUMENT, "broadcast dimension %" PRId64 " of a result of rank %d", map.v[i], to->rank);
    for (int j = 0; j < i; j++)
      if (map.v[j] == map.v[i]) return WEFT_ERR(INVALID_ARGUMENT, "broadcast dimension %" PRId64 " twice", map.v[i]);
    if (x->shape->dims[i] != to->dims[map.v[i]] && x->shape->dims[i] != 1)
      return WEFT_ERR(INVALID_ARGUMENT,
                      "sizes differ: %" PRId64 " (operand dim %d), %" PRId64 " (result dim %" PRId64 ")",
                      x->shape->dims[i], i, to->dims[map.v[i]], map.v[i]);
    if (x->shape->dims[i] == 1 && to->dims[map.v[i]] != 1) continue; /* it expands: the reshape below drops it first */
    dims[rank] = x->shape->dims[i];
    kept[rank++] = map.v[i];
  }
  if (rank != x->shape->rank) WEFT_TRY(lower_reshape(l, x, rank, dims, &x));
  hlo_shape *shape = hlo_shape_array(l->arena, x->shape->type, to->rank, to->dims);
  WEFT_TRY_ALLOC(shape);
  *out = x;
  bool identity = rank == to->rank;
  for (int i = 0; i < rank && identity; i++) identity = kept[i] == i;
  if (identity) return NULL;
  WEFT_TRY(lower_emit(l, HLO_BROADCAST, shape, 1, &x, out));
  WEFT_TRY(hlo_ints_new(l->module, rank, kept, &(*out)->dims));
  return lower_finish(*out);
}

enum { MOST_ELIDED_BYTES = 1 << 30 }; /* of all elided constants together, because text does not pay for their memory */

/* Zeros that are marked as meaningless, as HLO's {...} is. */
static weft_status *elided(lowering *l, const mlir_type *t, hlo_instr **out)
{
  const hlo_shape *shape;
  hlo_literal *literal;

  WEFT_TRY(lower_shape(l, t, &shape));
  if (hlo_shape_bytes(shape) > MOST_ELIDED_BYTES - l->elided_bytes)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "elided constants of more than %d bytes", MOST_ELIDED_BYTES);
  l->elided_bytes += hlo_shape_bytes(shape);
  WEFT_TRY(hlo_literal_new(l->arena, shape, &literal));
  literal->elided = true;
  return hlo_add_constant(l->comp, NULL, literal, out);
}

/* A dense constant; a splat becomes a broadcast of its one element. */
weft_status *lower_dense(lowering *l, const mlir_attr *a, hlo_instr **out)
{
  const mlir_type *t = a->type;
  hlo_shape *shape;
  hlo_literal *literal;
  int64_t count;
  bool splat;

  if (mlir_is_elided(a)) return elided(l, t, out);
  WEFT_TRY(mlir_dense_size(l->program, l->source, a, &count, &splat));
  shape = hlo_shape_array(l->arena, t->dtype, splat ? 0 : t->rank, t->dims);
  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(hlo_literal_new(l->arena, shape, &literal));
  WEFT_TRY(mlir_dense_read(l->program, l->source, a, literal->data));
  WEFT_TRY(hlo_add_constant(l->comp, NULL, literal, out));
  if (!splat) return NULL;
  return hlo_add_broadcast(l->comp, NULL, *out, t->rank, t->dims, NULL, out);
}

weft_status *lower_ints(lowering *l, const mlir_op *op, const char *name, hlo_ints *out)
{
  WEFT_TRY_NOTE(mlir_attr_ints(l->program, l->source, l->arena, mlir_attr_of(op, name), out), "attribute %s", name);
  return NULL;
}

weft_status *lower_new_extra(lowering *l, hlo_instr *instr, hlo_extra **out)
{
  (void)l;
  return hlo_mutable_extra(instr, out);
}

weft_status *lower_frontend_attributes(lowering *l, hlo_instr *instr, int count, const hlo_key_value *pairs)
{
  hlo_key_value *all;
  hlo_extra *extra;

  WEFT_TRY(lower_new_extra(l, instr, &extra));
  all = WEFT_ARENA_ARRAY(l->arena, hlo_key_value, extra->frontend_count + count);
  WEFT_TRY_ALLOC(all);
  for (int i = 0; i < extra->frontend_count; i++) all[i] = extra->frontend_attributes[i];
  for (int i = 0; i < count; i++) all[extra->frontend_count + i] = pairs[i];
  extra->frontend_attributes = all;
  extra->frontend_count += count;
  return NULL;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static weft_status *new_static_shape(lowering *l, const mlir_type *type, const hlo_shape **out)
{
  bool dynamic[HLO_MAX_RANK] = {0}, any = false;
  int64_t dims[HLO_MAX_RANK] = {0};
  hlo_shape *shape;

  *out = NULL;
  switch (type->kind) {
  case MLIR_TENSOR: case MLIR_BUFFER:
    for (int i = 0; i < type->rank; i++) {
      dims[i] = type->dims[i];
      if (dims[i] != MLIR_DYNAMIC) continue;
      if (!type->bounds || type->bounds[i] == MLIR_DYNAMIC) return NULL;
      dims[i] = type->bounds[i];
      dynamic[i] = any = true;
    }
    shape = hlo_shape_array(l->arena, type->dtype, type->rank, dims);
    WEFT_TRY_ALLOC(shape);
    if (any) {
      shape->dynamic = weft_arena_memdup(l->arena, dynamic, (size_t)type->rank * sizeof(bool));
      WEFT_TRY_ALLOC(shape->dynamic);
    }
    if (!hlo_shape_is_sane(shape)) return WEFT_ERR(INVALID_ARGUMENT, "a shape that is too large");
    *out = shape;
    return NULL;
  case MLIR_TOKEN:
    *out = hlo_shape_token(l->arena);
    WEFT_TRY_ALLOC(*out);
    return NULL;
  case MLIR_TUPLE: {
    const hlo_shape **elements = WEFT_ARENA_ARRAY(l->arena, const hlo_shape *, type->count);
    WEFT_TRY_ALLOC(elements);
    for (int i = 0; i < type->count; i++) {
      WEFT_TRY(lower_static_shape(l, type->elements[i], &elements[i]));
      if (!elements[i]) return NULL;
    }
    *out = hlo_shape_tuple(l->arena, type->count, elements);
    WEFT_TRY_ALLOC(*out);
    return NULL;
  }
  case MLIR_UNRANKED: return NULL;
  default: return WEFT_ERR(UNIMPLEMENTED, "values of a type that is no tensor, token or tuple are not supported");
  }
}

weft_status *lower_static_shape(lowering *l, const mlir_type *type, const hlo_shape **out)
{
  mlir_type *t = (mlir_type *)(uintptr_t)type;

  if (t->made_by != l->program->lowerings) {
    const hlo_shape *shape;
    WEFT_TRY(new_static_shape(l, t, &shape)); /* fails for types that are not tensors, which may be static too */
    t->shape = shape;
    t->made_by = l->program->lowerings;
  }
  *out = t->shape;
  return NULL;
}

weft_status *lower_shape(lowering *l, const mlir_type *type, const hlo_shape **out)
{
  WEFT_TRY(lower_static_shape(l, type, out));
  if (!*out) return WEFT_ERR(UNIMPLEMENTED, "a dimension of unknown size that no argument's shape decides");
  return NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

weft_status *lower_bind(lowering *l, mlir_value *value, hlo_instr *instr)
{
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&l->scratch, l->undo, l->undo_capacity, l->undo_count + 1, 64));
  l->undo[l->undo_count].value = value;
  l->undo[l->undo_count++].before = value->instr;
  value->instr = instr;
  return NULL;
}

void lower_unbind(lowering *l, int mark)
{
  while (l->undo_count > mark) {
    l->undo_count--;
    l->undo[l->undo_count].value->instr = l->undo[l->undo_count].before;
  }
}

/* Constants, iotas and broadcasts of constants are cheaper to make again than to pass on. */
static bool is_cheap(const hlo_instr *in)
{
  return in->op == HLO_CONSTANT || in->op == HLO_IOTA ||
         (in->op == HLO_BROADCAST && in->operands[0]->op == HLO_CONSTANT && in->operands[0]->shape->rank == 0);
}

/* Makes an instruction that depends on constants alone again, in the current computation. */
static weft_status *copy_in(lowering *l, hlo_instr *in, int depth, hlo_instr **out)
{
  hlo_instr *operands[3];

  if (in->op == HLO_PARAMETER || in->op == HLO_GET_TUPLE_ELEMENT || in->called_count > 0 || in->operand_count > 3 ||
      depth > 8 || hlo_opcode_has_side_effect(in->op))
    return WEFT_ERR(UNIMPLEMENTED, "the region uses %%%s from outside, which is not a constant: not supported",
                    in->name);
  for (int i = 0; i < in->operand_count; i++) WEFT_TRY(copy_in(l, in->operands[i], depth + 1, &operands[i]));
  return hlo_add_clone(l->comp, NULL, in, operands, out);
}

weft_status *lower_value_of(lowering *l, mlir_value *value, hlo_instr **out)
{
  if (!value->instr) return WEFT_ERR(INVALID_ARGUMENT, "a value is used before it is defined");
  if (value->instr->parent != l->comp) {
    hlo_instr *copy;
    WEFT_TRY(copy_in(l, value->instr, 0, &copy));
    WEFT_TRY(lower_bind(l, value, copy));
  }
  *out = value->instr;
  return NULL;
}

weft_status *lower_operand(lowering *l, const mlir_op *op, int i, hlo_instr **out)
{
  if (i >= op->operand_count) return WEFT_ERR(INVALID_ARGUMENT, "operand %d is missing", i);
  return lower_value_of(l, op->operands[i], out);
}

weft_status *lower_count_operands(const lower_entry *entry, const mlir_op *op)
{
  int count = WEFT_MAX(entry->operands, 0);

  if (entry->operands == 0 || op->operand_count == count) return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "%d operands, expected %d", op->operand_count, count);
}

weft_status *lower_operands(lowering *l, const mlir_op *op, hlo_instr ***out)
{
  hlo_instr **operands = WEFT_ARENA_ARRAY(&l->scratch, hlo_instr *, op->operand_count);

  WEFT_TRY_ALLOC(operands);
  for (int i = 0; i < op->operand_count; i++) WEFT_TRY(lower_operand(l, op, i, &operands[i]));
  *out = operands;
  return NULL;
}

static bool shapes_agree(const hlo_shape *a, const hlo_shape *b)
{
  if (a->type != b->type || a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->elements ? !shapes_agree(a->elements[i], b->elements[i]) : a->dims[i] != b->dims[i]) return false;
  return true;
}

weft_status *lower_result(lowering *l, const mlir_op *op, int i, hlo_instr *instr)
{
  const hlo_shape *declared;

  if (i >= op->result_count) return WEFT_ERR(INVALID_ARGUMENT, "%d results, more are needed", op->result_count);
  WEFT_TRY(lower_static_shape(l, op->results[i].type, &declared));
  if (declared && declared != instr->shape && !shapes_agree(declared, instr->shape))
    return WEFT_ERR(INVALID_ARGUMENT, "result %d is declared %s, its operands give %s", i,
                    hlo_shape_format(declared, (char[160]){0}, 160),
                    hlo_shape_format(instr->shape, (char[160]){0}, 160));
  if (declared && declared != instr->shape && hlo_shape_equal(declared, instr->shape, true))
    instr->shape = declared; /* one shape is shared by all values of the type */
  op->results[i].instr = instr;
  return NULL;
}

weft_status *lower_tuple_results(lowering *l, const mlir_op *op, hlo_instr *instr)
{
  if (op->result_count == 1 && (!hlo_shape_is_tuple(instr->shape) || op->results[0].type->kind == MLIR_TUPLE))
    return lower_result(l, op, 0, instr);
  if (!hlo_shape_is_tuple(instr->shape) || instr->shape->rank != op->result_count)
    return WEFT_ERR(INVALID_ARGUMENT, "%d results of %s", op->result_count,
                    hlo_shape_format(instr->shape, (char[160]){0}, 160));
  for (int i = 0; i < op->result_count; i++) {
    hlo_instr *element;
    WEFT_TRY(hlo_add_gte(l->comp, NULL, instr, i, &element));
    WEFT_TRY(lower_result(l, op, i, element));
  }
  return NULL;
}

/* ---- blocks and regions ------------------------------------------------------------------------------------------ */

static weft_status *enter(lowering *l)
{
  if (++l->depth > MLIR_MAX_DEPTH)
    return WEFT_ERR(INVALID_ARGUMENT, "regions and calls nested deeper than %d", MLIR_MAX_DEPTH);
  return NULL;
}

static weft_status *lower_operations(lowering *l, const mlir_op *op, mlir_stream *stream, int *out_count,
                                     hlo_instr ***out)
{
  while (op) {
    if (op->name[0] != 'r' || strcmp(op->name, "return") != 0) {
      lower_place before = {l->comp, l->comp->last, l->depth, l->undo_count};
      weft_status *st = l->refusals ? lower_reads_refused(l, op) : NULL;
      if (!st && (st = lower_op(l, op))) /* the position is looked for in the whole text, so only for an error */
        st = weft_status_note(st, __FILE__, __LINE__, "%s at %s", op->name, LOWER_AT(l, op));
      if (st) WEFT_TRY(lower_refuse(l, op, &before, st));
      if (stream) WEFT_TRY(mlir_stream_next(stream, &op));
      else op = op->next;
      continue;
    }
    *out_count = op->operand_count;
    WEFT_TRY(lower_operands(l, op, out));
    if (stream) WEFT_TRY(mlir_stream_next(stream, &op));
    else op = op->next;
    return op ? WEFT_ERR(INVALID_ARGUMENT, "%s: operations after a return", LOWER_AT(l, op)) : NULL;
  }
  return WEFT_ERR(INVALID_ARGUMENT, "a block without return");
}

weft_status *lower_block(lowering *l, const mlir_block *block, int *out_count, hlo_instr ***out)
{
  mlir_stream *stream = NULL;
  const mlir_op *first = block->first;

  WEFT_TRY(enter(l));
  if (!block->unread) {
    WEFT_TRY(lower_operations(l, first, NULL, out_count, out));
  } else {
    weft_status *st = mlir_stream_open(block, &stream);
    if (!st) st = mlir_stream_next(stream, &first);
    if (!st) st = lower_operations(l, first, stream, out_count, out);
    mlir_stream_close(stream);
    WEFT_TRY(st);
  }
  l->depth--;
  return NULL;
}

static weft_status *only_block(const mlir_op *op, int region, const mlir_block **out)
{
  if (region >= op->region_count || op->regions[region].block_count != 1)
    return WEFT_ERR(INVALID_ARGUMENT, "region %d has %d blocks, expected one", region,
                    region < op->region_count ? op->regions[region].block_count : 0);
  *out = op->regions[region].first;
  return NULL;
}

static weft_status *add_parameter(hlo_computation *comp, int i, const hlo_shape *shape, hlo_instr **out)
{
  /* printf is too slow: a training step has thousands of these names */
  char name[24] = {0}, *at = name + sizeof name - 1;

  for (int rest = i; rest || !*at; rest /= 10) *--at = (char)('0' + rest % 10);
  return hlo_add_parameter(comp, i, shape, memcpy(at - 3, "arg", 3), out);
}

/* Makes a computation for a region. Only functions have names of their own. */
static weft_status *new_region(lowering *l, const char *stem, hlo_computation **out)
{
  const char *name;

  WEFT_TRY(hlo_unique_name(l->module, stem, &name));
  return hlo_computation_new(l->module, name, out);
}

static bool is_scalar(const mlir_type *t) { return t->kind == MLIR_TENSOR && t->rank == 0 && !t->quant; }

/* The operation of a region of scalars that returns op(first argument, second argument) of their own type; or NULL. */
static const mlir_op *reducing_op(const mlir_block *b)
{
  const mlir_op *op = b->first, *end = op ? op->next : NULL;

  if (b->arg_count != 2 || !is_scalar(b->args[0].type) || !mlir_type_equal(b->args[0].type, b->args[1].type))
    return NULL;
  if (!end || end->next) return NULL;
  if (op->operand_count != 2 || op->result_count != 1 || op->attr_count > 0 || op->region_count > 0) return NULL;
  if (op->operands[0] != &b->args[0] || op->operands[1] != &b->args[1] ||
      !mlir_type_equal(op->results[0].type, b->args[0].type))
    return NULL;
  return end->operand_count == 1 && end->operands[0] == &op->results[0] && strcmp(end->name, "return") == 0 ? op : NULL;
}

static weft_status *new_scalar_region(lowering *l, const mlir_op *op, int region, const char *name, weft_dtype as,
                                      hlo_computation **out)
{
  hlo_computation *outer = l->comp, *comp;
  const mlir_block *block;
  hlo_instr **results;
  int count, mark = l->undo_count;

  WEFT_TRY(only_block(op, region, &block));
  WEFT_TRY(new_region(l, name, &comp));
  for (int i = 0; i < block->arg_count; i++) {
    const hlo_shape *shape;
    WEFT_TRY(lower_shape(l, block->args[i].type, &shape));
    if (as != WEFT_INVALID) shape = hlo_shape_with_type(l->arena, shape, as);
    WEFT_TRY_ALLOC(shape);
    WEFT_TRY(add_parameter(comp, i, shape, &block->args[i].instr));
  }
  l->comp = comp;
  for (int i = 0; as != WEFT_INVALID && i < block->arg_count; i++)
    WEFT_TRY(lower_convert(l, block->args[i].instr, block->args[i].type->dtype, &block->args[i].instr));
  WEFT_TRY(lower_block(l, block, &count, &results));
  if (count == 1) {
    comp->root = results[0];
  } else {
    WEFT_TRY(hlo_add_tuple(comp, NULL, count, results, &comp->root));
  }
  lower_unbind(l, mark);
  l->comp = outer;
  *out = comp;
  return NULL;
}

weft_status *lower_scalar_region(lowering *l, const mlir_op *op, int region, const char *name, weft_dtype as,
                                 hlo_computation **out)
{
  const mlir_block *block;
  const mlir_op *what;
  const mlir_type *type;
  int known = 0;

  WEFT_TRY(only_block(op, region, &block));
  what = as == WEFT_INVALID ? reducing_op(block) : NULL;
  if (!what) return new_scalar_region(l, op, region, name, as, out);
  /* Most reducers are sums or maxima: all reductions share one computation for each. */
  type = what->results[0].type;
  for (; known < l->reducer_count; known++)
    if (l->reducers[known].kind == what->kind && l->reducers[known].type == type->dtype) break;
  if (known < l->reducer_count) {
    *out = l->reducers[known].comp;
    return NULL;
  }
  WEFT_TRY(new_scalar_region(l, op, region, name, as, out));
  if (known == (int)WEFT_COUNT(l->reducers)) return NULL;
  l->reducers[known].kind = what->kind;
  l->reducers[known].type = type->dtype;
  l->reducers[known].comp = *out;
  l->reducer_count++;
  return NULL;
}

/* ---- captured values --------------------------------------------------------------------------------------------- */

typedef struct captures { mlir_value **values; int count, capacity; } captures;

static weft_status *mark_defined(lowering *l, const mlir_region *region, int depth)
{
  if (depth > MLIR_MAX_DEPTH) return WEFT_ERR(INVALID_ARGUMENT, "regions nested deeper than %d", MLIR_MAX_DEPTH);
  for (mlir_block *b = region->first; b; b = b->next) {
    for (int i = 0; i < b->arg_count; i++) b->args[i].stamp = l->stamp;
    for (mlir_op *op = b->first; op; op = op->next) {
      for (int i = 0; i < op->result_count; i++) op->results[i].stamp = l->stamp;
      for (int r = 0; r < op->region_count; r++) WEFT_TRY(mark_defined(l, &op->regions[r], depth + 1));
    }
  }
  return NULL;
}

static weft_status *collect_used(lowering *l, const mlir_region *region, captures *c)
{
  for (mlir_block *b = region->first; b; b = b->next)
    for (mlir_op *op = b->first; op; op = op->next) {
      for (int i = 0; i < op->operand_count; i++) {
        mlir_value *v = op->operands[i];
        if (v->stamp == l->stamp) continue;
        v->stamp = l->stamp;
        if (!v->instr) return WEFT_ERR(INVALID_ARGUMENT, "%s: a value is used before it is defined", LOWER_AT(l, op));
        if (is_cheap(v->instr)) continue;
        WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&l->scratch, c->values, c->capacity, c->count + 1, 16));
        c->values[c->count++] = v;
      }
      for (int r = 0; r < op->region_count; r++) WEFT_TRY(collect_used(l, &op->regions[r], c));
    }
  return NULL;
}

/* The outer values that the regions use and that are worth passing in. */
static weft_status *find_captures(lowering *l, const mlir_region *regions, int count, captures *out)
{
  *out = (captures){0};
  l->stamp++;
  for (int r = 0; r < count; r++) WEFT_TRY(mark_defined(l, &regions[r], 0));
  for (int r = 0; r < count; r++) WEFT_TRY(collect_used(l, &regions[r], out));
  return NULL;
}

weft_status *lower_captured_results(lowering *l, const mlir_op *op, int region, int count, hlo_instr ***out)
{
  const mlir_block *block;
  const mlir_op *end;

  *out = NULL;
  WEFT_TRY(only_block(op, region, &block));
  for (end = block->first; end && end->next; end = end->next) continue;
  if (!end || strcmp(end->name, "return") != 0 || end->operand_count != count) return NULL; /* the caller checks this */
  l->stamp++;
  WEFT_TRY(mark_defined(l, &op->regions[region], 0));
  for (int i = 0; i < end->operand_count; i++)
    if (end->operands[i]->stamp == l->stamp) return NULL;
  return lower_operands(l, end, out);
}

static weft_status *agrees_with_type(lowering *l, const mlir_type *type, const hlo_shape *shape, int region, int arg)
{
  const hlo_shape *declared;

  WEFT_TRY(lower_static_shape(l, type, &declared));
  if (!declared || shapes_agree(declared, shape)) return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "argument %d of region %d is declared %s, but gets %s", arg, region,
                  hlo_shape_format(declared, (char[160]){0}, 160), hlo_shape_format(shape, (char[160]){0}, 160));
}

/* Makes a computation of one tuple parameter, whose elements become the block's arguments and then the captured
 * values. */
static weft_status *lower_tuple_region(lowering *l, const mlir_op *op, int region, const char *name,
                                       const hlo_shape *tuple, const captures *c, int *out_count, hlo_instr ***out,
                                       hlo_computation **out_comp)
{
  const mlir_block *block;
  hlo_instr *param, *element;
  int n;

  WEFT_TRY(only_block(op, region, &block));
  n = block->arg_count;
  if (n + c->count != tuple->rank)
    return WEFT_ERR(INVALID_ARGUMENT, "region %d has %d arguments, expected %d", region, n, tuple->rank - c->count);
  WEFT_TRY(new_region(l, name, out_comp));
  WEFT_TRY(hlo_add_parameter(*out_comp, 0, tuple, "state", &param));
  for (int i = 0; i < tuple->rank; i++) {
    WEFT_TRY(hlo_add_gte(*out_comp, NULL, param, i, &element));
    if (i < n) WEFT_TRY(agrees_with_type(l, block->args[i].type, element->shape, region, i));
    WEFT_TRY(lower_bind(l, i < n ? &block->args[i] : c->values[i - n], element));
  }
  l->comp = *out_comp;
  return lower_block(l, block, out_count, out);
}

/* ---- control flow ------------------------------------------------------------------------------------------------ */

/* while: the state is (operands..., captured values...). */
static weft_status *lower_while(lowering *l, const mlir_op *op)
{
  hlo_computation *outer = l->comp, *cond, *body;
  int n = op->operand_count, count, mark = l->undo_count;
  captures c;
  hlo_instr **state, *init, *loop, **results, *element;

  if (op->region_count != 2 || op->result_count != n)
    return WEFT_ERR(INVALID_ARGUMENT, "%d regions, %d operands, %d results", op->region_count, n, op->result_count);
  WEFT_TRY(find_captures(l, op->regions, 2, &c));
  state = WEFT_ARENA_ARRAY(&l->scratch, hlo_instr *, n + c.count);
  WEFT_TRY_ALLOC(state);
  for (int i = 0; i < n; i++) WEFT_TRY(lower_operand(l, op, i, &state[i]));
  for (int i = 0; i < c.count; i++) WEFT_TRY(lower_value_of(l, c.values[i], &state[n + i]));
  WEFT_TRY(hlo_add_tuple(outer, NULL, n + c.count, state, &init));

  WEFT_TRY(lower_tuple_region(l, op, 0, "cond", init->shape, &c, &count, &results, &cond));
  if (count != 1) return WEFT_ERR(INVALID_ARGUMENT, "the condition returns %d values, expected 1", count);
  cond->root = results[0];
  lower_unbind(l, mark);

  WEFT_TRY(lower_tuple_region(l, op, 1, "body", init->shape, &c, &count, &results, &body));
  if (count != n) return WEFT_ERR(INVALID_ARGUMENT, "the body returns %d values, expected %d", count, n);
  hlo_instr **next = WEFT_ARENA_ARRAY(&l->scratch, hlo_instr *, n + c.count);
  WEFT_TRY_ALLOC(next);
  for (int i = 0; i < n; i++) next[i] = results[i];
  for (int i = 0; i < c.count; i++) WEFT_TRY(lower_value_of(l, c.values[i], &next[n + i]));
  WEFT_TRY(hlo_add_tuple(body, NULL, n + c.count, next, &body->root));
  lower_unbind(l, mark);

  l->comp = outer;
  WEFT_TRY(lower_emit(l, HLO_WHILE, NULL, 1, &init, &loop));
  WEFT_TRY(hlo_set_called(loop, 2, (hlo_computation *[]){body, cond}));
  WEFT_TRY(lower_finish(loop));
  for (int i = 0; i < n; i++) {
    WEFT_TRY(hlo_add_gte(outer, NULL, loop, i, &element));
    WEFT_TRY(lower_result(l, op, i, element));
  }
  return NULL;
}

/* if (pred) and case (s32): each branch gets the tuple of the values that it captures. */
static weft_status *lower_branches(lowering *l, const mlir_op *op)
{
  hlo_computation *outer = l->comp;
  int n = op->region_count;
  hlo_instr **operands = WEFT_ARENA_ARRAY(&l->scratch, hlo_instr *, n + 1), **results, *in;
  hlo_computation **branches = WEFT_ARENA_ARRAY(&l->scratch, hlo_computation *, n);

  WEFT_TRY_ALLOC(operands);
  WEFT_TRY_ALLOC(branches);
  if (n == 0) return WEFT_ERR(INVALID_ARGUMENT, "no branches");
  WEFT_TRY(lower_operand(l, op, 0, &operands[0]));
  for (int r = 0; r < n; r++) {
    captures c;
    int count;
    WEFT_TRY(find_captures(l, &op->regions[r], 1, &c));
    hlo_instr **captured = WEFT_ARENA_ARRAY(&l->scratch, hlo_instr *, c.count);
    WEFT_TRY_ALLOC(captured);
    for (int i = 0; i < c.count; i++) WEFT_TRY(lower_value_of(l, c.values[i], &captured[i]));
    int branch_mark = l->undo_count;
    WEFT_TRY(hlo_add_tuple(outer, NULL, c.count, captured, &operands[r + 1]));
    WEFT_TRY(lower_tuple_region(l, op, r, "branch", operands[r + 1]->shape, &c, &count, &results, &branches[r]));
    if (count == 1) {
      branches[r]->root = results[0];
    } else {
      WEFT_TRY(hlo_add_tuple(branches[r], NULL, count, results, &branches[r]->root));
    }
    lower_unbind(l, branch_mark);
    l->comp = outer;
  }
  WEFT_TRY(lower_emit(l, HLO_CONDITIONAL, NULL, n + 1, operands, &in));
  WEFT_TRY(hlo_set_called(in, n, branches));
  WEFT_TRY(lower_finish(in));
  return lower_tuple_results(l, op, in);
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

lower_function *lower_find_function(lowering *l, const char *name)
{
  for (int i = 0; name && i < l->function_count; i++)
    if (strcmp(l->functions[i].name, name) == 0) return &l->functions[i];
  return NULL;
}

static weft_status *find_callee(lowering *l, const char *name, lower_function **out, const mlir_block **out_block)
{
  *out = lower_find_function(l, name);
  if (!*out) return WEFT_ERR(INVALID_ARGUMENT, "there is no function \"%s\"", name ? name : "");
  (*out)->reached = true;
  if ((*out)->busy) return WEFT_ERR(INVALID_ARGUMENT, "function \"%s\" calls itself", name);
  if ((*out)->op->regions[0].block_count == 0)
    return WEFT_ERR(UNIMPLEMENTED, "function \"%s\" is declared and has no body", name);
  WEFT_TRY_NOTE(only_block((*out)->op, 0, out_block), "function \"%s\"", name);
  return NULL;
}

static weft_status *function_root(lowering *l, int count, hlo_instr *const *results)
{
  if (count == 1) {
    l->comp->root = results[0];
    return NULL;
  }
  return hlo_add_tuple(l->comp, NULL, count, results, &l->comp->root);
}

weft_status *lower_called_function(lowering *l, const char *name, hlo_computation **out)
{
  hlo_computation *outer = l->comp;
  const mlir_block *block;
  lower_function *f;
  hlo_instr **results;
  int count;

  WEFT_TRY(find_callee(l, name, &f, &block));
  if (!f->comp) {
    WEFT_TRY(hlo_computation_new(l->module, name, &f->comp));
    for (int i = 0; i < block->arg_count; i++) {
      const hlo_shape *shape;
      WEFT_TRY(lower_shape(l, block->args[i].type, &shape));
      WEFT_TRY(add_parameter(f->comp, i, shape, &block->args[i].instr));
    }
    l->comp = f->comp;
    f->busy = true;
    weft_status *st = lower_block(l, block, &count, &results);
    f->busy = false;
    /* a computation that failed is not kept: this call may not be needed, and another call must report the error too */
    if (st) f->comp = NULL;
    WEFT_TRY_NOTE(st, "function \"%s\"", name);
    WEFT_TRY(function_root(l, count, results));
    l->comp = outer;
  }
  *out = f->comp;
  return NULL;
}

/* Lowers a call in place, which dynamic shapes need: constants flow in, and shapes flow out. */
static weft_status *inline_call(lowering *l, const mlir_op *op, const char *name)
{
  const mlir_block *block;
  lower_function *f;
  hlo_instr **args, **results;
  int count;

  WEFT_TRY(find_callee(l, name, &f, &block));
  WEFT_TRY(lower_operands(l, op, &args));
  if (block->arg_count != op->operand_count)
    return WEFT_ERR(INVALID_ARGUMENT, "function \"%s\" takes %d arguments, %d are given", name, block->arg_count,
                    op->operand_count);
  for (int i = 0; i < block->arg_count; i++) block->args[i].instr = args[i];
  f->busy = true;
  weft_status *st = lower_block(l, block, &count, &results);
  f->busy = false;
  WEFT_TRY_NOTE(st, "function \"%s\"", name);
  if (count != op->result_count)
    return WEFT_ERR(INVALID_ARGUMENT, "function \"%s\" gives %d results, expected %d", name, count, op->result_count);
  for (int i = 0; i < count; i++) WEFT_TRY(lower_result(l, op, i, results[i]));
  return NULL;
}

static weft_status *lower_call(lowering *l, const mlir_op *op)
{
  bool composite = strcmp(op->name, "composite") == 0;
  const char *name = mlir_attr_text(mlir_attr_of(op, composite ? "decomposition" : "callee"), "");
  hlo_computation *callee;
  hlo_instr **operands, *in;

  if (l->inline_calls) return inline_call(l, op, name);
  WEFT_TRY(lower_operands(l, op, &operands));
  WEFT_TRY(lower_called_function(l, name, &callee));
  WEFT_TRY(lower_emit(l, HLO_CALL, NULL, op->operand_count, operands, &in));
  WEFT_TRY(hlo_set_called(in, 1, &callee));
  WEFT_TRY(lower_finish(in));
  WEFT_TRY(lower_discardable(l, op->attr_count, op->attrs, in));
  /* A function with one result of tuple type returns that tuple; any other returns a tuple of its results. */
  return lower_tuple_results(l, op, in);
}

weft_status *lower_inlined(lowering *l, const mlir_op *op, hlo_instr *const *args, int *out_count,
                           hlo_instr ***out_results)
{
  const mlir_block *block;

  WEFT_TRY(only_block(op, 0, &block));
  if (block->arg_count != op->operand_count)
    return WEFT_ERR(INVALID_ARGUMENT, "%d arguments for %d operands", block->arg_count, op->operand_count);
  for (int i = 0; i < block->arg_count; i++) block->args[i].instr = args[i];
  WEFT_TRY(lower_block(l, block, out_count, out_results));
  if (*out_count != op->result_count)
    return WEFT_ERR(INVALID_ARGUMENT, "%d results, expected %d", *out_count, op->result_count);
  return NULL;
}

/* A region that runs once, in place: sdy.named_computation, mhlo.fusion. */
static weft_status *lower_inline_region(lowering *l, const mlir_op *op)
{
  hlo_instr **args, **results;
  int count;

  WEFT_TRY(lower_operands(l, op, &args));
  WEFT_TRY(lower_inlined(l, op, args, &count, &results));
  for (int i = 0; i < count; i++) WEFT_TRY(lower_result(l, op, i, results[i]));
  return NULL;
}

static weft_status *lower_identity(lowering *l, const mlir_op *op)
{
  hlo_instr *x;

  for (int i = 0; i < op->result_count; i++) {
    WEFT_TRY(lower_operand(l, op, i, &x));
    WEFT_TRY(lower_result(l, op, i, x));
  }
  return NULL;
}

const lower_entry *lower_find_rule(const mlir_op *op)
{
  static const struct { shlo_dialect dialect; lower_entry entry; } structural[] = {
      {SHLO_STABLEHLO, {"while", lower_while, LOWER_STRUCTURE, 0}}, {SHLO_STABLEHLO, {"if", lower_branches, LOWER_STRUCTURE, 1}},
      {SHLO_STABLEHLO, {"case", lower_branches, LOWER_STRUCTURE, 1}}, {SHLO_STABLEHLO, {"composite", lower_call, LOWER_STRUCTURE, 0}},
      {SHLO_STABLEHLO, {"copy", lower_identity, LOWER_STRUCTURE, 1}}, {SHLO_STABLEHLO, {"domain", lower_identity, LOWER_STRUCTURE, 1}},
      {SHLO_STABLEHLO, {"fusion", lower_inline_region, LOWER_STRUCTURE, 0}},
      {SHLO_FUNC, {"call", lower_call, LOWER_STRUCTURE, 0}}, {SHLO_STABLEHLO, {"call", lower_call, LOWER_STRUCTURE, 0}},
      {SHLO_SDY, {"manual_computation", lower_manual_computation, LOWER_STRUCTURE, 0}},
      {SHLO_SDY, {"named_computation", lower_inline_region, LOWER_STRUCTURE, 0}},
      {SHLO_SDY, {"sharding_constraint", lower_sharding_constraint, LOWER_STRUCTURE, 0}},
      {SHLO_SDY, {"reshard", lower_sharding_constraint, LOWER_STRUCTURE, 0}},
      {SHLO_SDY, {"sharding_group", lower_sharding_group, LOWER_STRUCTURE, 0}},
      {SHLO_BUILTIN, {"unrealized_conversion_cast", lower_identity, LOWER_STRUCTURE, 0}},
      /* tensor.cast changes only what the type says about the shape */
      {SHLO_BUILTIN, {"cast", lower_identity, LOWER_STRUCTURE, 0}},
  };
  static const lower_entry dialects[] = { /* of Shardy: barriers to propagation, and collectives on whole arrays */
      [SHLO_SDY] = {NULL, lower_identity, LOWER_STRUCTURE, 0}, [SHLO_CHLO] = {NULL, lower_chlo_op, LOWER_STRUCTURE, 0},
      [SHLO_CHECK] = {NULL, lower_check, LOWER_STRUCTURE, 0}, [SHLO_INTERPRETER] = {NULL, lower_interpreter, LOWER_STRUCTURE, 0}};

  for (size_t i = 0; i < WEFT_COUNT(structural); i++)
    if (structural[i].dialect == op->dialect && strcmp(structural[i].entry.name, op->name) == 0)
      return &structural[i].entry;
  if (op->dialect == SHLO_SDY && strcmp(op->name, "constant") == 0) return lower_find_entry(op->name);
  if (op->dialect < WEFT_COUNT(dialects) && dialects[op->dialect].rule) return &dialects[op->dialect];
  return op->dialect == SHLO_STABLEHLO ? lower_find_entry(op->name)
         : op->dialect == SHLO_OTHER   ? lower_find_shape_entry(op->name)
                                       : NULL;
}

/* Gives the instructions that `op` has become (those of the current computation behind `before`) its location. */
static weft_status *locate(lowering *l, const mlir_location *location, const hlo_instr *before)
{
  const hlo_metadata *metadata;

  if (!location) return NULL;
  WEFT_TRY(lower_metadata(l, location, &metadata));
  for (hlo_instr *in = before ? before->next : l->comp->first; in && metadata; in = in->next)
    if (!in->metadata) in->metadata = metadata;
  return NULL;
}

enum { MOST_INSTRUCTIONS = 1 << 19 }; /* plus 64 for each byte of input */

/* Lowers an operation by its rule. `form`: where to record what it becomes, or NULL. */
static weft_status *lower_by_rule(lowering *l, const mlir_op *op, lower_form **form)
{
  const hlo_instr *before = l->comp->last;
  const lower_entry *entry;

  if (!op->kind->rule) {
    op->kind->rule = lower_find_rule(op);
    op->kind->constraint = lower_find_constraint(op);
  }
  entry = op->kind->rule;
  if (op->kind->constraint) WEFT_TRY(((const lower_constraint *)op->kind->constraint)->check(l, op));
  if (!entry) return WEFT_ERR(UNIMPLEMENTED, "operation \"%s\" is not supported", op->name);
  WEFT_TRY(lower_count_operands(entry, op));
  if (entry->code == LOWER_STRUCTURE) {
    WEFT_TRY(entry->rule(l, op));
  } else {
    WEFT_TRY(lower_table_op(l, op));
  }
  if (form) WEFT_TRY(lower_note_form(l, op, before, form));
  return locate(l, op->location, before);
}

weft_status *lower_op(lowering *l, const mlir_op *op)
{
  lower_form **form;
  bool done;

  /* Inlined calls multiply: a small program may not become arbitrarily large, nor take arbitrarily long without
   * making an instruction. */
  if (WEFT_UNLIKELY((size_t)WEFT_MAX(l->module->next_id, ++l->operation_count) >
                    MOST_INSTRUCTIONS + 64 * l->program->size))
    return WEFT_ERR(RESOURCE_EXHAUSTED, "over %d instructions from %zu bytes",
                    WEFT_MAX(l->module->next_id, l->operation_count) - 1, l->program->size);
  WEFT_TRY(lower_repeat(l, op, &form, &done));
  return done ? NULL : lower_by_rule(l, op, form);
}

/* ---- the module -------------------------------------------------------------------------------------------------- */

/* XLA's attribute of the module for aliases that arguments cannot express: parts of tuples, and aliases that must
 * hold. */
static weft_status *module_aliases(lowering *l)
{
  const mlir_attr *list = mlir_attr_of(l->source->op, "mhlo.input_output_alias");
  int n = list && list->kind == MLIR_ARRAY ? list->u.array.count : 0;
  hlo_input_output_alias *aliases = WEFT_ARENA_ARRAY(l->arena, hlo_input_output_alias, n);

  WEFT_TRY_ALLOC(aliases);
  for (int i = 0; i < n; i++) {
    const mlir_attr *item = list->u.array.items[i], *alias = mlir_dict_get(item, "alias");
    hlo_input_output_alias *a = &aliases[i];
    a->must_alias = strcmp(mlir_attr_text(mlir_dict_get(alias, "kind"), ""), "must_alias") == 0;
    a->parameter = mlir_attr_int(mlir_dict_get(alias, "parameter_number"), -1);
    WEFT_TRY(
      mlir_attr_ints(l->program, l->source, l->arena, mlir_dict_get(alias, "parameter_index"), &a->parameter_index));
    WEFT_TRY(mlir_attr_ints(l->program, l->source, l->arena, mlir_dict_get(item, "output_index"), &a->output_index));
    if (a->parameter < 0 || a->parameter >= l->comp->param_count ||
        !hlo_shape_at(l->comp->params[a->parameter]->shape, a->parameter_index.v, a->parameter_index.count) ||
        !hlo_shape_at(l->comp->root->shape, a->output_index.v, a->output_index.count))
      return WEFT_ERR(INVALID_ARGUMENT, "mhlo.input_output_alias: number %d names no part of an argument and a result",
                      i);
  }
  if (n == 0) return NULL;
  l->module->alias_count = n;
  l->module->aliases = aliases;
  return NULL;
}

/* The aliases that arguments declare: tf.aliasing_output and jax.buffer_donor. */
static weft_status *argument_attributes(lowering *l, const mlir_op *func, int result_count)
{
  const mlir_attr *dicts = mlir_attr_of(func, "arg_attrs");
  int n = dicts && dicts->kind == MLIR_ARRAY ? dicts->u.array.count : 0;
  hlo_input_output_alias *aliases = WEFT_ARENA_ARRAY(l->arena, hlo_input_output_alias, n);
  hlo_buffer_donor *donors = WEFT_ARENA_ARRAY(l->arena, hlo_buffer_donor, n);

  WEFT_TRY_ALLOC(aliases);
  WEFT_TRY_ALLOC(donors);
  for (int i = 0; i < n && i < l->comp->param_count; i++) {
    const mlir_attr *dict = dicts->u.array.items[i];
    if (dict->kind != MLIR_DICT) continue;
    WEFT_TRY(lower_discardable(l, dict->u.dict.count, dict->u.dict.items, hlo_parameter(l->comp, i)));
    int64_t output = mlir_attr_int(mlir_dict_get(dict, "tf.aliasing_output"), -1);
    if (output >= result_count)
      return WEFT_ERR(INVALID_ARGUMENT, "argument %d aliases output %" PRId64 " of %d", i, output, result_count);
    if (output >= 0) {
      hlo_input_output_alias *a = &aliases[l->module->alias_count++];
      a->parameter = i;
      WEFT_TRY(hlo_ints_new(l->module, result_count == 1 ? 0 : 1, &output, &a->output_index));
    } else if (mlir_attr_bool(mlir_dict_get(dict, "jax.buffer_donor"), false)) {
      donors[l->module->donor_count++].parameter = i;
    }
  }
  l->module->aliases = aliases;
  l->module->donors = donors;
  return NULL;
}

static weft_status *entry_shape(lowering *l, const mlir_type *type, int i, const shlo_options *options,
                                const hlo_shape **out)
{
  const hlo_shape *given;

  WEFT_TRY(lower_static_shape(l, type, out));
  if (!options || options->argument_count == 0) return *out ? NULL : lower_shape(l, type, out);
  given = options->argument_shapes[i];
  if (given->type == WEFT_INVALID) given = hlo_shape_with_type(l->arena, given, type->dtype);
  WEFT_TRY_ALLOC(given);
  if (given->type != type->dtype && type->kind == MLIR_TENSOR)
    return WEFT_ERR(INVALID_ARGUMENT, "argument %d is of type %s, expected %s", i, weft_dtype_name(given->type),
                    weft_dtype_name(type->dtype));
  if (type->kind == MLIR_TENSOR) {
    bool fits = given->rank == type->rank;
    for (int d = 0; fits && d < type->rank; d++)
      fits = type->dims[d] == MLIR_DYNAMIC || type->dims[d] == given->dims[d];
    if (!fits)
      return WEFT_ERR(INVALID_ARGUMENT, "argument %d is %s, which does not fit its type", i,
                      hlo_shape_format(given, (char[160]){0}, 160));
  }
  *out = hlo_shape_copy(l->arena, given);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

/* Memory kinds as HLO writes them, as a layout's memory space: S(5) is XLA's for the host, S(6) is Weft's own. */
static int64_t memory_space_of(const char *kind)
{
  return strcmp(kind, "pinned_host") == 0 ? 5 : strcmp(kind, "unpinned_host") == 0 ? 6 : 0;
}

/* The attributes that JAX gives an argument or a result: mhlo.layout_mode ("default", "auto" or the text of a layout)
 * and mhlo.memory_kind. */
static weft_status *placed_shape(lowering *l, const hlo_shape *shape, const mlir_attr *dict, const hlo_shape **out)
{
  bool given = dict && dict->kind == MLIR_DICT && hlo_shape_is_array(shape);
  const char *mode = given ? mlir_attr_text(mlir_dict_get(dict, "mhlo.layout_mode"), "") : "";
  int64_t space = given ? memory_space_of(mlir_attr_text(mlir_dict_get(dict, "mhlo.memory_kind"), "")) : 0;

  *out = shape;
  if (mode[0] == '{' && shape->rank > 0) {
    char *text = weft_arena_printf(l->arena, "%s%s", hlo_shape_text(l->arena, shape, false), mode);
    WEFT_TRY_ALLOC(text);
    WEFT_TRY_NOTE(hlo_parse_shape(l->arena, text, strlen(text), out), "mhlo.layout_mode");
    if ((*out)->layout && (*out)->layout->tile_count)
      return WEFT_ERR(UNIMPLEMENTED, "mhlo.layout_mode \"%s\": tiled layouts", mode);
  }
  if (space != 0) WEFT_TRY_ALLOC(*out = hlo_shape_in_memory(l->arena, *out, space));
  return NULL;
}

/* `shape`, which is that of result value `x`, in the order of dimensions in which x's bytes exist without a copy:
 * the order of the parameter or of the computed value (row-major) below its transposes. */
static const hlo_shape *cheapest_layout(lowering *l, const hlo_instr *x, const hlo_shape *shape)
{
  /* to_result: indexed by x's dimensions */
  int64_t to_result[HLO_MAX_RANK], above[HLO_MAX_RANK], minor_to_major[HLO_MAX_RANK];
  const hlo_layout *base;

  for (int i = 0; i < shape->rank; i++) to_result[i] = i;
  for (; x->op == HLO_TRANSPOSE; x = x->operands[0]) {
    memcpy(above, to_result, sizeof above);
    for (int i = 0; i < shape->rank; i++) to_result[x->dims.v[i]] = above[i];
  }
  base = x->op == HLO_PARAMETER ? l->module->entry_param_shapes[x->u.parameter_number]->layout : NULL;
  for (int i = 0; i < shape->rank; i++)
    minor_to_major[i] = to_result[base && base->minor_to_major ? base->minor_to_major[i] : shape->rank - 1 - i];
  return hlo_shape_with_layout(l->arena, shape, minor_to_major);
}

static bool is_auto(const mlir_attr *dict)
{
  return dict && dict->kind == MLIR_DICT &&
         strcmp(mlir_attr_text(mlir_dict_get(dict, "mhlo.layout_mode"), ""), "auto") == 0;
}

static const mlir_attr *dict_of(const mlir_attr *dicts, int i)
{
  return dicts && dicts->kind == MLIR_ARRAY && i < dicts->u.array.count ? dicts->u.array.items[i] : NULL;
}

/* Programs exchange row-major arrays in device memory unless attributes say otherwise. The layout of a custom call
 * that is the result stays inside the program. */
static weft_status *entry_layout(lowering *l, const mlir_op *func)
{
  hlo_module *module = l->module;
  const hlo_computation *entry = module->entry;
  const hlo_shape *root = entry->root->shape, *plain = hlo_shape_without_layout(l->arena, root), **elements;
  const mlir_attr *args = mlir_attr_of(func, "arg_attrs"), *results = mlir_attr_of(func, "res_attrs");
  bool is_tuple = hlo_shape_is_tuple(root);
  int count = is_tuple ? root->rank : 1;

  module->has_entry_layout = !hlo_shape_is_default_layout(root);
  module->entry_param_shapes = WEFT_ARENA_ARRAY(l->arena, const hlo_shape *, entry->param_count);
  elements = WEFT_ARENA_ARRAY(l->arena, const hlo_shape *, count);
  WEFT_TRY_ALLOC(plain && module->entry_param_shapes && elements);
  for (int i = 0; i < entry->param_count; i++) {
    WEFT_TRY_NOTE(placed_shape(l, entry->params[i]->shape, dict_of(args, i), &module->entry_param_shapes[i]),
                  "argument %d", i);
    module->has_entry_layout |= module->entry_param_shapes[i] != entry->params[i]->shape;
  }
  for (int i = 0; i < count; i++) {
    const hlo_shape *shape = is_tuple ? plain->elements[i] : plain;
    const hlo_instr *value = !is_tuple ? entry->root : entry->root->op == HLO_TUPLE ? entry->root->operands[i] : NULL;
    if (value && hlo_shape_is_array(shape) && is_auto(dict_of(results, i)))
      WEFT_TRY_ALLOC(shape = cheapest_layout(l, value, shape));
    WEFT_TRY_NOTE(placed_shape(l, shape, dict_of(results, i), &elements[i]), "result %d", i);
    module->has_entry_layout |= elements[i]->layout != NULL;
  }
  module->entry_result_shape = is_tuple ? hlo_shape_tuple(l->arena, count, elements) : elements[0];
  WEFT_TRY_ALLOC(module->entry_result_shape);
  return NULL;
}

static weft_status *lower_entry_function(lowering *l, lower_function *f, const shlo_options *options)
{
  const mlir_block *block;
  hlo_instr **results;
  int count;

  WEFT_TRY(find_callee(l, f->name, &f, &block));
  if (options && options->argument_count && options->argument_count != block->arg_count)
    return WEFT_ERR(INVALID_ARGUMENT, "function \"%s\" takes %d arguments, %d shapes are given", f->name,
                    block->arg_count, options->argument_count);
  WEFT_TRY(hlo_computation_new(l->module, f->name, &f->comp));
  l->module->entry = l->comp = f->comp;
  for (int i = 0; i < block->arg_count; i++) {
    const hlo_shape *shape;
    WEFT_TRY_NOTE(entry_shape(l, block->args[i].type, i, options, &shape), "argument %d of \"%s\"", i, f->name);
    WEFT_TRY(add_parameter(l->comp, i, shape, &block->args[i].instr));
    if (block->arg_locations && block->arg_locations[i])
      WEFT_TRY(lower_metadata(l, block->arg_locations[i], &block->args[i].instr->metadata));
    if (options && options->argument_values && options->argument_values[i])
      WEFT_TRY(lower_remember(l, block->args[i].instr, options->argument_values[i]));
  }
  f->busy = true;
  WEFT_TRY_NOTE(lower_block(l, block, &count, &results), "function \"%s\"", f->name);
  f->busy = false;
  WEFT_TRY(function_root(l, count, results));
  WEFT_TRY(entry_layout(l, f->op));
  WEFT_TRY(argument_attributes(l, f->op, count));
  WEFT_TRY(module_aliases(l));
  return lower_result_shardings(l, f->op, count);
}

static const mlir_block *module_block(const mlir_module *m)
{
  return m->op->region_count == 1 ? m->op->regions[0].first : NULL;
}

static bool is_function(const mlir_op *op)
{
  return op->dialect == SHLO_FUNC && strcmp(op->name, "func") == 0 && op->region_count == 1;
}

static void forget_instructions(const mlir_region *region, int depth)
{
  for (mlir_block *b = region->first; b && depth <= MLIR_MAX_DEPTH; b = b->next) {
    for (int i = 0; i < b->arg_count; i++) b->args[i] = (mlir_value){.type = b->args[i].type};
    for (mlir_op *op = b->first; op; op = op->next) {
      for (int i = 0; i < op->result_count; i++) op->results[i] = (mlir_value){.type = op->results[i].type};
      for (int r = 0; r < op->region_count; r++) forget_instructions(&op->regions[r], depth + 1);
    }
  }
}

static weft_status *check_region(lowering *l, const mlir_region *region, int depth);

static weft_status *check_op(lowering *l, const mlir_op *op, int depth)
{
  const lower_constraint *c = lower_find_constraint(op);

  if (c) WEFT_TRY_NOTE(c->check(l, op), "%s at %s", op->name, LOWER_AT(l, op));
  for (int r = 0; r < op->region_count; r++) WEFT_TRY(check_region(l, &op->regions[r], depth));
  return NULL;
}

static weft_status *check_region(lowering *l, const mlir_region *region, int depth)
{
  if (depth > MLIR_MAX_DEPTH) return WEFT_ERR(INVALID_ARGUMENT, "regions nested deeper than %d", MLIR_MAX_DEPTH);
  for (const mlir_block *b = region->first; b; b = b->next)
    for (const mlir_op *op = b->first; op; op = op->next) WEFT_TRY(check_op(l, op, depth + 1));
  return NULL;
}

/* Functions that nobody calls are not lowered, but they must satisfy the specification. */
static weft_status *check_function(lowering *l, const mlir_op *func)
{
  const mlir_block *block = func->regions[0].first;
  mlir_stream *stream = NULL;
  const mlir_op *op = NULL;
  weft_status *st;

  if (!block || !block->unread) return check_region(l, func->regions, 0);
  st = mlir_stream_open(block, &stream);
  while (!st && (st = mlir_stream_next(stream, &op)) == NULL && op) st = check_op(l, op, 1);
  mlir_stream_close(stream);
  return st;
}

static weft_status *lower_module(lowering *l, const shlo_options *options)
{
  const mlir_block *block = module_block(l->source);
  lower_function *entry;
  int count = 0;

  for (const mlir_op *op = block ? block->first : NULL; op; op = op->next) count += is_function(op);
  l->functions = WEFT_ARENA_ARRAY(&l->scratch, lower_function, count);
  WEFT_TRY_ALLOC(l->functions);
  for (const mlir_op *op = block ? block->first : NULL; op; op = op->next)
    if (is_function(op))
      l->functions[l->function_count++] =
        (lower_function){.name = mlir_attr_text(mlir_attr_of(op, "sym_name"), ""), .op = op};
  l->module->replica_count = WEFT_MAX(mlir_attr_int(mlir_attr_of(l->source->op, "mhlo.num_replicas"), 1), 1);
  l->module->num_partitions = WEFT_MAX(mlir_attr_int(mlir_attr_of(l->source->op, "mhlo.num_partitions"), 1), 1);
  l->inline_calls = lower_is_dynamic_program(l->program, l->source);
  entry = lower_find_function(l, options && options->function ? options->function : "main");
  for (int i = 0; !entry && !(options && options->function) && i < l->function_count; i++) {
    const char *visibility = mlir_attr_text(mlir_attr_of(l->functions[i].op, "sym_visibility"), "");
    if (strcmp(visibility, "private") != 0) entry = &l->functions[i];
  }
  if (!entry)
    return WEFT_ERR(NOT_FOUND, "there is no function \"%s\"",
                    options && options->function ? options->function : "main");
  WEFT_TRY(lower_entry_function(l, entry, options));
  for (int i = 0; i < l->function_count; i++)
    if (!l->functions[i].reached)
      WEFT_TRY_NOTE(check_function(l, l->functions[i].op), "function \"%s\"", l->functions[i].name);
  WEFT_TRY(hlo_module_gc(l->module));
  return l->refusals ? lower_check_refused(l) : NULL;
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */

struct shlo_program { mlir_program p; };

static const char bytecode_magic[4] = {'M', 'L', '\xef', 'R'};

bool shlo_is_program(const void *bytes, size_t size)
{
  const char *p = bytes, *end = p + size;
  static const char *const starts[] = {"module", "func", "builtin.module", "\"builtin", "#", "!", "{-#", "sdy."};

  if (size >= 4 && memcmp(p, bytecode_magic, 4) == 0) return true;
  for (;;) { /* the first word that is not a comment */
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
    if (end - p < 2 || p[0] != '/' || p[1] != '/') break;
    p = memchr(p, '\n', (size_t)(end - p));
    if (!p) return false;
  }
  for (size_t i = 0; i < WEFT_COUNT(starts); i++)
    if ((size_t)(end - p) > strlen(starts[i]) && memcmp(p, starts[i], strlen(starts[i])) == 0) return true;
  return false;
}

static weft_status *read_program(const void *bytes, size_t size, bool in_parts, shlo_program **out_program)
{
  WEFT_AUTO(shlo_program) program = calloc(1, sizeof *program);

  *out_program = NULL;
  WEFT_TRY_ALLOC(program);
  weft_arena_init(&program->p.arena);
  program->p.input = bytes;
  program->p.size = size;
  if (size >= 4 && memcmp(bytes, bytecode_magic, 4) == 0) {
    WEFT_TRY(mlir_read_bytecode(&program->p, in_parts));
  } else {
    WEFT_TRY(mlir_read_text(&program->p));
  }
  *out_program = WEFT_MOVE(program);
  return NULL;
}

weft_status *shlo_read(const void *bytes, size_t size, shlo_program **out_program)
{
  return read_program(bytes, size, false, out_program);
}

void shlo_program_free(shlo_program *program)
{
  if (!program) return;
  weft_arena_fini(&program->p.arena);
  free(program);
}

int shlo_module_count(const shlo_program *program) { return program->p.module_count; }

static const mlir_op *function_at(const shlo_program *program, int module, int function)
{
  const mlir_block *block = module_block(&program->p.modules[module]);

  for (const mlir_op *op = block ? block->first : NULL; op; op = op->next)
    if (is_function(op) && function-- == 0) return op;
  return NULL;
}

int shlo_function_count(const shlo_program *program, int module)
{
  const mlir_block *block = module_block(&program->p.modules[module]);
  int count = 0;

  for (const mlir_op *op = block ? block->first : NULL; op; op = op->next) count += is_function(op);
  return count;
}

const char *shlo_function_name(const shlo_program *program, int module, int function)
{
  return mlir_attr_text(mlir_attr_of(function_at(program, module, function), "sym_name"), "");
}

bool shlo_function_is_public(const shlo_program *program, int module, int function)
{
  return strcmp(mlir_attr_text(mlir_attr_of(function_at(program, module, function), "sym_visibility"), ""),
                "private") != 0;
}

bool shlo_is_dynamic(const shlo_program *program, int module)
{
  return lower_is_dynamic_program(&program->p, &program->p.modules[module]);
}

weft_status *shlo_print(const shlo_program *program, FILE *out) { return mlir_print(&program->p, out); }

/* the bytes of a module for one byte of operations in bytecode, roughly; its constants come on top */
enum { MODULE_PER_CODE = 22 };

weft_status *shlo_lower(shlo_program *program, const shlo_options *options, hlo_module **out_module)
{
  WEFT_AUTO(hlo_module) module = NULL;
  int index = options ? options->module : 0;
  lowering l = {.program = &program->p};
  weft_status *st;

  *out_module = NULL;
  if (index < 0 || index >= program->p.module_count)
    return WEFT_ERR(NOT_FOUND, "there is no module %d in a file of %d", index, program->p.module_count);
  l.source = &program->p.modules[index];
  WEFT_TRY(hlo_module_new(l.source->name ? l.source->name : "module", &module));
  l.module = module;
  if (program->p.code_bytes)
    weft_arena_expect(&module->arena, program->p.size + program->p.code_bytes * MODULE_PER_CODE);
  l.arena = &module->arena;
  weft_arena_init(&l.scratch);
  l.stamp = 1 << 30; /* higher than the numbers that printing has left in values */
  if (program->p.lowerings++ > 0)
    for (int r = 0; r < l.source->op->region_count; r++) forget_instructions(&l.source->op->regions[r], 0);
  st = lower_module(&l, options);
  if (!st && l.frames) st = hlo_frame_builder_finish(l.frames, module);
  lower_free_refused(&l);
  weft_arena_fini(&l.scratch);
  WEFT_TRY(st);
  *out_module = WEFT_MOVE(module);
  return NULL;
}

weft_status *shlo_parse(const void *bytes, size_t size, const shlo_options *options, hlo_module **out_module)
{
  WEFT_AUTO(shlo_program) program = NULL;

  *out_module = NULL;
  WEFT_TRY(read_program(bytes, size, true, &program));
  return shlo_lower(program, options, out_module);
}
