/* passes/build.c -- HLO written as expressions, for passes that expand one operation into many (build.h). */
#include <config.h>

#include "passes/build.h"

#include <stdio.h>
#include <string.h>

#include "passes/util.h"

/* Returns what `expr` (a weft_status *) made in `out`, after giving it the metadata of the origin. */
#define BUILD(b, expr)                          \
  do {                                          \
    hlo_instr *out = NULL;                      \
    if ((b)->error) return NULL;                \
    (b)->error = (expr);                        \
    return (b)->error ? NULL : tag((b), out);   \
  } while (0)

static hlo_instr *tag(pass_build *b, hlo_instr *instr)
{
  if (b->origin && !instr->metadata) instr->metadata = b->origin->metadata;
  return instr;
}

weft_status *pass_build_finish(pass_build *b) { return WEFT_MOVE(b->error); }

weft_status *pass_build_replace(pass_build *b, hlo_instr *instr, hlo_instr *with)
{
  WEFT_TRY(pass_build_finish(b));
  return hlo_replace(instr, with);
}

hlo_instr *pb_instr(pass_build *b, hlo_opcode op, const hlo_shape *shape, int count, hlo_instr *const *operands)
{
  if (!b->error && !shape) b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  BUILD(b, hlo_add(b->comp, b->before, op, shape, count, operands, NULL, &out));
}

hlo_instr *pb_clone(pass_build *b, const hlo_instr *instr, hlo_instr *const *operands)
{
  BUILD(b, hlo_add_clone(b->comp, b->before, instr, operands, &out));
}

hlo_instr *pb_op1(pass_build *b, hlo_opcode op, hlo_instr *x)
{
  BUILD(b, hlo_add_unary(b->comp, b->before, op, x, &out));
}

hlo_instr *pb_op2(pass_build *b, hlo_opcode op, hlo_instr *x, hlo_instr *y)
{
  BUILD(b, hlo_add_binary(b->comp, b->before, op, x, y, &out));
}

hlo_instr *pb_select(pass_build *b, hlo_instr *pred, hlo_instr *x, hlo_instr *y)
{
  if (b->error) return NULL;
  return pb_instr(b, HLO_SELECT, x->shape, 3, (hlo_instr *[]){pred, x, y});
}

hlo_instr *pb_compare(pass_build *b, hlo_direction direction, hlo_instr *x, hlo_instr *y)
{
  BUILD(b, hlo_add_compare(b->comp, b->before, direction, x, y, &out));
}

hlo_instr *pb_convert(pass_build *b, hlo_instr *x, weft_dtype type)
{
  if (b->error || x->shape->type == type) return x;
  BUILD(b, hlo_add_convert(b->comp, b->before, x, type, &out));
}

hlo_instr *pb_bitcast_convert(pass_build *b, hlo_instr *x, weft_dtype type)
{
  if (b->error || x->shape->type == type) return x;
  return pb_instr(b, HLO_BITCAST_CONVERT, hlo_shape_with_type(&b->comp->module->arena, x->shape, type), 1, &x);
}

hlo_instr *pb_scalar(pass_build *b, weft_dtype type, double value)
{
  BUILD(b, hlo_add_scalar(b->comp, b->before, type, value, &out));
}

hlo_instr *pb_int(pass_build *b, weft_dtype type, int64_t value)
{
  hlo_literal *literal = NULL;

  if (b->error) return NULL;
  b->error = hlo_literal_scalar_s64(&b->comp->module->arena, type, value, &literal);
  return pb_constant(b, literal);
}

hlo_instr *pb_constant(pass_build *b, const hlo_literal *literal)
{
  BUILD(b, hlo_add_constant(b->comp, b->before, literal, &out));
}

hlo_instr *pb_fill(pass_build *b, hlo_instr *scalar, const hlo_shape *dims)
{
  if (b->error || dims->rank == 0) return scalar;
  return pb_broadcast(b, scalar, dims->rank, dims->dims, NULL);
}

hlo_instr *pb_splat(pass_build *b, const hlo_instr *like, double value)
{
  if (b->error) return NULL;
  return pb_fill(b, pb_scalar(b, like->shape->type, value), like->shape);
}

hlo_instr *pb_splat_int(pass_build *b, const hlo_instr *like, int64_t value)
{
  if (b->error) return NULL;
  return pb_fill(b, pb_int(b, like->shape->type, value), like->shape);
}

hlo_instr *pb_iota(pass_build *b, const hlo_shape *shape, int64_t dim)
{
  hlo_instr *iota = pb_instr(b, HLO_IOTA, shape, 0, NULL);

  if (iota) iota->dims = pb_ints(b, 1, &dim);
  return iota;
}

hlo_instr *pb_broadcast(pass_build *b, hlo_instr *x, int rank, const int64_t *dims, const int64_t *map)
{
  BUILD(b, hlo_add_broadcast(b->comp, b->before, x, rank, dims, map, &out));
}

hlo_instr *pb_broadcast_1d(pass_build *b, hlo_instr *vector, const hlo_shape *dims, int64_t dim)
{
  return pb_broadcast(b, vector, dims->rank, dims->dims, &dim);
}

hlo_instr *pb_reshape(pass_build *b, hlo_instr *x, int rank, const int64_t *dims)
{
  if (b->error || (x->shape->rank == rank && pass_same_ints(x->shape->dims, dims, rank))) return x;
  BUILD(b, hlo_add_reshape(b->comp, b->before, x, rank, dims, &out));
}

hlo_instr *pb_reshape_like(pass_build *b, hlo_instr *x, const hlo_shape *dims)
{
  return pb_reshape(b, x, dims->rank, dims->dims);
}

hlo_instr *pb_transpose(pass_build *b, hlo_instr *x, const int64_t *permutation)
{
  bool identity = true;

  if (b->error) return NULL;
  for (int i = 0; i < x->shape->rank; i++) identity &= permutation[i] == i;
  if (identity) return x;
  BUILD(b, hlo_add_transpose(b->comp, b->before, x, permutation, &out));
}

hlo_instr *pb_slice_dim(pass_build *b, hlo_instr *x, int64_t dim, int64_t start, int64_t limit)
{
  int64_t starts[HLO_MAX_RANK] = {0}, limits[HLO_MAX_RANK];

  if (b->error || (start == 0 && limit == x->shape->dims[dim])) return x;
  memcpy(limits, x->shape->dims, (size_t)x->shape->rank * sizeof *limits);
  starts[dim] = start;
  limits[dim] = limit;
  BUILD(b, hlo_add_slice(b->comp, b->before, x, starts, limits, NULL, &out));
}

/* The operands of a dynamic slice or update after the first `given` ones: the starts, which are `at` along `dim` and
 * zero elsewhere. */
static void fill_starts(pass_build *b, hlo_instr **operands, int given, int rank, int64_t dim, hlo_instr *at)
{
  hlo_instr *zero = at && rank > 1 ? pb_int(b, at->shape->type, 0) : NULL;

  for (int d = 0; d < rank; d++) operands[given + d] = d == dim ? at : zero;
}

hlo_instr *pb_slice_at(pass_build *b, hlo_instr *x, int64_t dim, hlo_instr *at, int64_t size)
{
  hlo_instr *operands[HLO_MAX_RANK + 1] = {x}, *slice;
  int64_t sizes[HLO_MAX_RANK];

  if (b->error) return NULL;
  memcpy(sizes, x->shape->dims, (size_t)x->shape->rank * sizeof *sizes);
  sizes[dim] = size;
  fill_starts(b, operands, 1, x->shape->rank, dim, at);
  slice = pb_instr(b, HLO_DYNAMIC_SLICE,
                   hlo_shape_array(&b->comp->module->arena, x->shape->type, x->shape->rank, sizes), x->shape->rank + 1,
                   operands);
  if (slice) slice->u.slice_sizes = pb_ints(b, x->shape->rank, sizes);
  return slice;
}

hlo_instr *pb_update_at(pass_build *b, hlo_instr *x, hlo_instr *part, int64_t dim, hlo_instr *at)
{
  hlo_instr *operands[HLO_MAX_RANK + 2] = {x, part};

  if (b->error) return NULL;
  fill_starts(b, operands, 2, x->shape->rank, dim, at);
  return pb_instr(b, HLO_DYNAMIC_UPDATE_SLICE, x->shape, x->shape->rank + 2, operands);
}

hlo_instr *pb_concat(pass_build *b, int64_t dim, int count, hlo_instr *const *parts)
{
  int64_t dims[HLO_MAX_RANK];
  hlo_instr *concat;

  if (b->error) return NULL;
  if (count == 1) return parts[0];
  memcpy(dims, parts[0]->shape->dims, (size_t)parts[0]->shape->rank * sizeof *dims);
  for (int i = 1; i < count; i++) dims[dim] += parts[i]->shape->dims[dim];
  concat = pb_instr(b, HLO_CONCATENATE,
                    hlo_shape_array(&b->comp->module->arena, parts[0]->shape->type, parts[0]->shape->rank, dims), count,
                    parts);
  if (concat) concat->dims = pb_ints(b, 1, &dim);
  return concat;
}

hlo_instr *pb_pad(pass_build *b, hlo_instr *x, hlo_instr *value, const hlo_pad_dim *pads)
{
  int64_t dims[HLO_MAX_RANK];
  int rank;
  hlo_instr *pad;

  if (b->error) return NULL;
  rank = x->shape->rank;
  for (int i = 0; i < rank; i++) {
    int64_t size = x->shape->dims[i];
    dims[i] = size + pads[i].low + pads[i].high + (size > 0 ? (size - 1) * pads[i].interior : 0);
  }
  pad = pb_instr(b, HLO_PAD, hlo_shape_array(&b->comp->module->arena, x->shape->type, rank, dims), 2,
                 (hlo_instr *[]){x, value});
  if (!pad) return NULL;
  pad->u.pad.rank = rank;
  pad->u.pad.dims = weft_arena_memdup(&b->comp->module->arena, pads, (size_t)rank * sizeof *pads);
  if (!pad->u.pad.dims) b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  return pad;
}

hlo_instr *pb_reduce(pass_build *b, hlo_instr *x, hlo_instr *init, int count, const int64_t *dims,
                     hlo_computation *reducer)
{
  BUILD(b, hlo_add_reduce(b->comp, b->before, x, init, count, dims, reducer, &out));
}

hlo_instr *pb_tuple(pass_build *b, int count, hlo_instr *const *elements)
{
  BUILD(b, hlo_add_tuple(b->comp, b->before, count, elements, &out));
}

hlo_instr *pb_gte(pass_build *b, hlo_instr *tuple, int64_t index)
{
  BUILD(b, hlo_add_gte(b->comp, b->before, tuple, index, &out));
}

hlo_instr *pb_dot_like(pass_build *b, const hlo_instr *dot, hlo_instr *lhs, hlo_instr *rhs, weft_dtype type,
                       const int64_t *dims)
{
  const hlo_shape *shape = hlo_shape_array(&b->comp->module->arena, type, dot->shape->rank, dims);
  hlo_instr *result = pb_instr(b, HLO_DOT, shape, 2, (hlo_instr *[]){lhs, rhs});

  if (result) {
    result->u.dot = dot->u.dot;
    result->extra = dot->extra;
  }
  return result;
}

hlo_ints pb_ints(pass_build *b, int count, const int64_t *v)
{
  hlo_ints ints = {0, NULL};

  if (!b->error) b->error = hlo_ints_new(b->comp->module, count, v, &ints);
  return ints;
}

/* A computation on the state of a loop; *state receives its parameter. */
static hlo_computation *loop_part(pass_build *b, const char *name, const char *part, const hlo_shape *shape,
                                  hlo_instr **state)
{
  char stem[128];
  const char *unique;
  hlo_computation *comp = NULL;

  snprintf(stem, sizeof stem, "%s_%s", name, part);
  if (!b->error) b->error = hlo_unique_name(b->comp->module, stem, &unique);
  if (!b->error) b->error = hlo_computation_new(b->comp->module, unique, &comp);
  if (!b->error) b->error = hlo_add_parameter(comp, 0, shape, NULL, state);
  return b->error ? NULL : comp;
}

hlo_instr *pb_loop(pass_build *b, const char *name, int64_t trips, int count, hlo_instr *const *init,
                   pb_loop_body *body, const void *context)
{
  weft_dtype index = trips < INT32_MAX ? WEFT_S32 : WEFT_S64;
  hlo_instr **state = WEFT_ARENA_ARRAY(&b->comp->module->arena, hlo_instr *, 2 * (size_t)(count + 1)), **next, *param,
            *i;
  hlo_computation *parts[2];

  if (!b->error && !state) b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  state[0] = pb_int(b, index, 0);
  for (int k = 0; k < count; k++) state[k + 1] = init[k];
  hlo_instr *loop = pb_tuple(b, count + 1, state);
  if (loop) loop = pb_instr(b, HLO_WHILE, loop->shape, 1, &loop);
  if (b->error) return NULL;

  if (!(parts[0] = loop_part(b, name, "body", loop->shape, &param))) return NULL;
  pass_build in = PASS_BUILD_IN(parts[0]);
  in.origin = b->origin;
  next = state + count + 1;
  for (int k = 0; k <= count; k++) state[k] = pb_gte(&in, param, k);
  if (!in.error) body(&in, context, state[0], state + 1, next + 1);
  next[0] = pb_add(&in, state[0], pb_int(&in, index, 1));
  parts[0]->root = pb_tuple(&in, count + 1, next);
  if ((b->error = pass_build_finish(&in)) || !(parts[1] = loop_part(b, name, "condition", loop->shape, &param)))
    return NULL;
  in = PASS_BUILD_IN(parts[1]);
  i = pb_gte(&in, param, 0);
  parts[1]->root = pb_compare(&in, HLO_LT, i, pb_int(&in, index, trips));
  if (!(b->error = pass_build_finish(&in))) b->error = hlo_set_called(loop, 2, parts);
  return b->error ? NULL : loop;
}
