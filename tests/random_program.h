/* Random HLO programs: a pool of values grows by random operations on random values of it.
 * The same seed gives the same program and arguments everywhere. */
#ifndef WEFT_TESTS_RANDOM_PROGRAM_H
#define WEFT_TESTS_RANDOM_PROGRAM_H

#include "passes/eval_compare.h"

#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/build.h"
#include "passes/util.h"

enum { POOL = 64, LARGEST = 200 /* elements */ };

typedef struct maker {
  uint64_t state;
  pass_build b;
  weft_arena *arena; /* the module's */
  hlo_instr *pool[POOL];
  int count;
  int depth; /* of computations */
  hlo_computation *adders[WEFT_DTYPE_COUNT], *maxers[WEFT_DTYPE_COUNT];
} maker;

static int64_t pick(maker *m, int64_t below) { return (int64_t)(next_random(&m->state) % (uint64_t)below); }
static hlo_instr *any(maker *m) { return m->pool[pick(m, m->count)]; }

static const weft_dtype types[] = {WEFT_F32, WEFT_F32, WEFT_S32, WEFT_PRED, WEFT_F64, WEFT_U32, WEFT_BF16,
                                   WEFT_F32, WEFT_S32, WEFT_S8,  WEFT_U16, WEFT_S64, WEFT_U64,  WEFT_S4, WEFT_C64, WEFT_U8};
static weft_dtype any_type(maker *m) { return types[pick(m, WEFT_COUNT(types))]; }

static const hlo_shape *any_shape(maker *m, weft_dtype type)
{
  int64_t dims[4];
  int rank = (int)pick(m, 4);

  for (int i = 0; i < rank; i++) dims[i] = 1 + pick(m, 5);
  return hlo_shape_array(m->arena, type, rank, dims);
}

/* Something of that type and shape: from the pool by convert, reshape or broadcast, or a constant. */
static hlo_instr *like(maker *m, const hlo_shape *shape)
{
  pass_build *b = &m->b;

  for (int attempt = 0; attempt < 4; attempt++) {
    hlo_instr *x = any(m);
    if (hlo_shape_elems(x->shape) == hlo_shape_elems(shape))
      return pb_convert(b, pb_reshape_like(b, x, shape), shape->type);
    if (x->shape->rank == 1 && shape->rank > 0)
      for (int64_t d = 0; d < shape->rank; d++)
        if (shape->dims[d] == x->shape->dims[0]) return pb_convert(b, pb_broadcast_1d(b, x, shape, d), shape->type);
    if (x->shape->rank == 0) return pb_convert(b, pb_fill(b, x, shape), shape->type);
  }
  if (pick(m, 2) && shape->rank > 0 && shape->type != WEFT_PRED) return pb_iota(b, shape, pick(m, shape->rank));
  return pb_fill(b, pb_scalar(b, shape->type, (double)pick(m, 4) - (weft_dtype_is_unsigned(shape->type) ? 0 : 1)), shape);
}

static hlo_instr *index_scalar(maker *m) { return like(m, hlo_shape_array(m->arena, WEFT_S32, 0, NULL)); }

static hlo_instr *elementwise(maker *m)
{
  static const hlo_opcode real_ops[] = {HLO_ADD, HLO_SUBTRACT, HLO_MULTIPLY, HLO_MAXIMUM, HLO_MINIMUM};
  static const hlo_opcode bit_ops[] = {HLO_AND, HLO_OR, HLO_XOR};
  hlo_instr *x = any(m);
  pass_build *b = &m->b;

  switch (pick(m, 8)) {
  case 0:
    if (x->shape->type == WEFT_PRED) return pb_op1(b, HLO_NOT, x);
    if (weft_dtype_is_unsigned(x->shape->type)) return x;
    return pb_op1(b, pick(m, 2) || weft_dtype_is_complex(x->shape->type) ? HLO_NEGATE : HLO_ABS, x);
  case 1: return weft_dtype_is_float(x->shape->type) || weft_dtype_is_complex(x->shape->type) ? pb_op1(b, pick(m, 2) ? HLO_TANH : HLO_COS, x) : x;
  case 2: return pb_compare(b, (hlo_direction)pick(m, weft_dtype_is_complex(x->shape->type) ? 2 : 6), x, like(m, x->shape));
  case 3: {
    const hlo_shape *p = hlo_shape_with_type(m->arena, x->shape, WEFT_PRED);
    return pb_select(b, like(m, p), x, like(m, x->shape));
  }
  case 4: return pb_convert(b, x, any_type(m));
  default:
    if (x->shape->type == WEFT_PRED || (weft_dtype_is_integer(x->shape->type) && pick(m, 3) == 0))
      return pb_op2(b, bit_ops[pick(m, 3)], x, like(m, x->shape));
    return pb_op2(b, real_ops[pick(m, 5)], x, like(m, x->shape));
  }
}

static hlo_instr *movement(maker *m)
{
  hlo_instr *x = any(m);
  pass_build *b = &m->b;
  int rank = x->shape->rank;
  int64_t v[HLO_MAX_RANK];

  if (rank == 0) return pb_fill(b, x, any_shape(m, x->shape->type));
  switch (pick(m, 9)) {
  case 0:
    for (int i = 0; i < rank; i++) v[i] = i;
    for (int i = rank - 1; i > 0; i--) {
      int j = (int)pick(m, i + 1);
      int64_t t = v[i];
      v[i] = v[j];
      v[j] = t;
    }
    return pb_transpose(b, x, v);
  case 1: {
    int64_t dim = pick(m, rank), size = x->shape->dims[dim], start = pick(m, size);
    return pb_slice_dim(b, x, dim, start, start + 1 + pick(m, size - start));
  }
  case 2: {
    hlo_instr *parts[3] = {x, pick(m, 2) ? like(m, x->shape) : x, like(m, x->shape)};
    return pb_concat(b, pick(m, rank), 2 + (int)pick(m, 2), parts);
  }
  case 3: {
    hlo_pad_dim pads[HLO_MAX_RANK];
    for (int i = 0; i < rank; i++)
      pads[i] = (hlo_pad_dim){pick(m, 3) - (x->shape->dims[i] > 2), pick(m, 3) - (x->shape->dims[i] > 2), pick(m, 2)};
    return pb_pad(b, x, like(m, hlo_shape_array(m->arena, x->shape->type, 0, NULL)), pads);
  }
  case 4: {
    hlo_instr *r = pb_instr(b, HLO_REVERSE, x->shape, 1, &x);
    v[0] = pick(m, rank);
    if (r) r->dims = pb_ints(b, 1, v);
    return r;
  }
  case 5: { /* drop or add a dimension of 1, or flatten */
    int64_t total = hlo_shape_elems(x->shape);
    return pb_reshape(b, x, 1, &total);
  }
  case 6: {
    hlo_instr *operands[HLO_MAX_RANK + 1] = {x}, *r;
    for (int i = 0; i < rank; i++) {
      v[i] = 1 + pick(m, x->shape->dims[i]);
      operands[i + 1] = index_scalar(m);
    }
    r = pb_instr(b, HLO_DYNAMIC_SLICE, hlo_shape_array(m->arena, x->shape->type, rank, v), rank + 1, operands);
    if (r) r->u.slice_sizes = pb_ints(b, rank, v);
    return r;
  }
  case 7: {
    hlo_instr *operands[HLO_MAX_RANK + 2] = {x};
    for (int i = 0; i < rank; i++) {
      v[i] = 1 + pick(m, x->shape->dims[i]);
      operands[i + 2] = index_scalar(m);
    }
    operands[1] = like(m, hlo_shape_array(m->arena, x->shape->type, rank, v));
    return pb_instr(b, HLO_DYNAMIC_UPDATE_SLICE, x->shape, rank + 2, operands);
  }
  default: {
    int64_t dims[HLO_MAX_RANK], extra = 1 + pick(m, 3);
    for (int i = 0; i < rank; i++) {
      dims[i + 1] = x->shape->dims[i];
      v[i] = i + 1;
    }
    dims[0] = extra;
    return pb_broadcast(b, x, rank + 1, dims, v);
  }
  }
}

static hlo_instr *reduction(maker *m)
{
  hlo_instr *x = any(m);
  pass_build *b = &m->b;
  weft_dtype type;
  int64_t v[HLO_MAX_RANK];
  int count = 0;
  bool is_max = pick(m, 2);

  if (x->shape->type == WEFT_PRED || x->shape->rank == 0 || weft_dtype_is_complex(x->shape->type)) return x;
  if (x->shape->type == WEFT_BF16) x = pb_convert(b, x, WEFT_F32);
  type = x->shape->type;
  for (int i = 0; i < x->shape->rank; i++)
    if (pick(m, 2)) v[count++] = i;
  hlo_computation **reducer = is_max ? &m->maxers[type] : &m->adders[type];
  if (!*reducer) T_OK(hlo_add_reducer(b->comp->module, is_max ? HLO_MAXIMUM : HLO_ADD, type, reducer));
  return pb_reduce(b, x, pb_scalar(b, type, is_max && weft_dtype_is_float(type) ? -INFINITY : 0), count, v, *reducer);
}

static hlo_instr *product(maker *m)
{
  hlo_instr *x = any(m), *y, *r;
  pass_build *b = &m->b;
  int64_t k_dim, dims[2], sizes[2], k, n = 1 + pick(m, 4);
  hlo_dot_attrs *attrs;

  if (x->shape->rank != 2 || !weft_dtype_is_float(x->shape->type)) return x;
  k_dim = pick(m, 2);
  k = x->shape->dims[k_dim];
  sizes[0] = pick(m, 2) ? k : n;
  sizes[1] = sizes[0] == k ? n : k;
  int64_t y_dim = sizes[0] == k ? 0 : 1;
  y = like(m, hlo_shape_array(m->arena, x->shape->type, 2, sizes));
  dims[0] = x->shape->dims[1 - k_dim];
  dims[1] = sizes[1 - y_dim];
  r = pb_instr(b, HLO_DOT, hlo_shape_array(m->arena, x->shape->type, 2, dims), 2, (hlo_instr *[]){x, y});
  attrs = WEFT_ARENA_NEW(m->arena, hlo_dot_attrs);
  attrs->lhs_contracting = pb_ints(b, 1, &k_dim);
  attrs->rhs_contracting = pb_ints(b, 1, &y_dim);
  if (r) r->u.dot = attrs;
  return r;
}

static hlo_instr *attach(hlo_instr *instr, hlo_computation *a, hlo_computation *c)
{
  if (instr) T_OK(hlo_set_called(instr, c ? 2 : 1, (hlo_computation *[]){a, c}));
  return instr;
}

static hlo_computation *combiner(maker *m, hlo_opcode op, weft_dtype type)
{
  hlo_computation **slot = op == HLO_ADD ? &m->adders[type] : &m->maxers[type];
  if (!*slot) T_OK(hlo_add_reducer(m->b.comp->module, op, type, slot));
  return *slot;
}

static hlo_ints all_below(maker *m, int64_t from, int64_t count)
{
  int64_t v[HLO_MAX_RANK];
  for (int64_t i = 0; i < count; i++) v[i] = from + i;
  return pb_ints(&m->b, (int)count, v);
}

/* Windows over indexed starts: gather from x, or scatter into it.  One batching dimension half of the time. */
static hlo_instr *indexed(maker *m)
{
  hlo_instr *x = any(m);
  pass_build *b = &m->b;
  int rank = x->shape->rank, kept = 0, mapped = 0;
  bool batched = rank > 1 && pick(m, 2), scatters = pick(m, 2);
  int64_t sizes[HLO_MAX_RANK], map[HLO_MAX_RANK], dropped[HLO_MAX_RANK], window[HLO_MAX_RANK], result[HLO_MAX_RANK];
  int64_t index_dims[3], rows = 1 + pick(m, 4), zero = 0;
  int drops = 0, lead = batched ? 2 : 1;

  if (rank == 0 || x->shape->type == WEFT_PRED) return x;
  for (int d = 0; d < rank; d++) {
    bool is_batch = batched && d == 0;
    sizes[d] = is_batch ? 1 : 1 + pick(m, x->shape->dims[d]);
    if (!is_batch && (mapped == 0 || pick(m, 2))) map[mapped++] = d;
    if (!is_batch && sizes[d] == 1 && pick(m, 2)) dropped[drops++] = d;
    else if (!is_batch) window[kept++] = sizes[d];
  }
  if (batched) index_dims[0] = x->shape->dims[0];
  index_dims[lead - 1] = rows;
  index_dims[lead] = mapped;
  hlo_instr *starts = like(m, hlo_shape_array(m->arena, WEFT_S32, lead + 1, index_dims));
  for (int i = 0; i < lead; i++) result[i] = index_dims[i];
  for (int i = 0; i < kept; i++) result[lead + i] = window[i];
  const hlo_shape *shape = hlo_shape_array(m->arena, x->shape->type, lead + kept, result);
  if (hlo_shape_elems(shape) > LARGEST) return x;
  hlo_ints batch = batched ? pb_ints(b, 1, &zero) : (hlo_ints){0};
  if (scatters) {
    hlo_scatter_attrs *a = WEFT_ARENA_NEW(m->arena, hlo_scatter_attrs);
    *a = (hlo_scatter_attrs){.update_window_dims = all_below(m, lead, kept), .inserted_window_dims = pb_ints(b, drops, dropped),
                             .scatter_dims_to_operand_dims = pb_ints(b, mapped, map), .input_batching_dims = batch,
                             .scatter_indices_batching_dims = batch, .index_vector_dim = lead};
    hlo_instr *r = pb_instr(b, HLO_SCATTER, x->shape, 3, (hlo_instr *[]){x, starts, like(m, shape)});
    if (r) r->u.scatter = a;
    return attach(r, combiner(m, pick(m, 2) ? HLO_ADD : HLO_MAXIMUM, x->shape->type), NULL);
  }
  hlo_gather_attrs *a = WEFT_ARENA_NEW(m->arena, hlo_gather_attrs);
  *a = (hlo_gather_attrs){.offset_dims = all_below(m, lead, kept), .collapsed_slice_dims = pb_ints(b, drops, dropped),
                          .start_index_map = pb_ints(b, mapped, map), .operand_batching_dims = batch,
                          .start_indices_batching_dims = batch, .index_vector_dim = lead, .slice_sizes = pb_ints(b, rank, sizes)};
  hlo_instr *r = pb_instr(b, HLO_GATHER, shape, 2, (hlo_instr *[]){x, starts});
  if (r) r->u.gather = a;
  return r;
}

static hlo_window_dim window_dim(maker *m, int64_t size, bool dilates)
{
  hlo_window_dim w = {.size = 1 + pick(m, 3), .stride = 1 + pick(m, 2), .window_dilation = 1 + pick(m, 2),
                      .base_dilation = dilates ? 1 + pick(m, 2) : 1};
  int64_t base = (size - 1) * w.base_dilation + 1, reach = (w.size - 1) * w.window_dilation + 1;
  w.pad_low = pick(m, 3);
  w.pad_high = pick(m, 3) + (base + w.pad_low < reach ? reach : 0);
  return w;
}

static int64_t windows_in(const hlo_window_dim *w, int64_t size)
{
  int64_t base = (size - 1) * w->base_dilation + 1 + w->pad_low + w->pad_high, reach = (w->size - 1) * w->window_dilation + 1;
  return (base - reach) / w->stride + 1;
}

/* reduce-window, of one array or of two at once. */
static hlo_instr *windows(maker *m)
{
  hlo_instr *x = any(m);
  int64_t dims[HLO_MAX_RANK];
  weft_dtype type = x->shape->type;

  if (x->shape->rank == 0 || type == WEFT_PRED || type == WEFT_BF16 || weft_dtype_is_complex(type)) return x;
  hlo_window *w = WEFT_ARENA_NEW(m->arena, hlo_window);
  hlo_window_dim *each = WEFT_ARENA_ARRAY(m->arena, hlo_window_dim, x->shape->rank);
  for (int d = 0; d < x->shape->rank; d++) {
    each[d] = window_dim(m, x->shape->dims[d], true);
    dims[d] = windows_in(&each[d], x->shape->dims[d]);
  }
  *w = (hlo_window){x->shape->rank, each};
  bool is_max = pick(m, 2);
  hlo_instr *init = pb_scalar(&m->b, type, is_max ? weft_dtype_is_unsigned(type) ? 0 : -7 : 0);
  hlo_instr *r = pb_instr(&m->b, HLO_REDUCE_WINDOW, hlo_shape_array(m->arena, type, x->shape->rank, dims), 2, (hlo_instr *[]){x, init});
  if (r) r->u.window = w;
  return attach(r, combiner(m, is_max ? HLO_MAXIMUM : HLO_ADD, type), NULL);
}

/* A convolution with one or two spatial dimensions, groups, dilation, reversal, any order of dimensions. */
static hlo_instr *convolution(maker *m)
{
  int spatial = 1 + (int)pick(m, 2), rank = spatial + 2, order[2][4];
  int64_t groups = 1 + pick(m, 2), batch_groups = groups == 1 ? 1 + pick(m, 2) : 1, in = 1 + pick(m, 3), out = (1 + pick(m, 2)) * groups * batch_groups;
  int64_t batches = (1 + pick(m, 2)) * batch_groups, lhs[4], rhs[4], result[4], lhs_sp[2], rhs_sp[2];
  weft_dtype type = pick(m, 3) ? WEFT_F32 : WEFT_S32;
  hlo_conv_attrs *a = WEFT_ARENA_NEW(m->arena, hlo_conv_attrs);
  hlo_window_dim *each = WEFT_ARENA_ARRAY(m->arena, hlo_window_dim, spatial);

  for (int k = 0; k < 2; k++) { /* places of batch or in-feature, feature or out-feature, spatial ones */
    for (int i = 0; i < rank; i++) order[k][i] = i;
    for (int i = rank - 1; i > 0; i--) {
      int j = (int)pick(m, i + 1), t = order[k][i];
      order[k][i] = order[k][j];
      order[k][j] = t;
    }
  }
  lhs[order[0][0]] = batches, lhs[order[0][1]] = in * groups;
  rhs[order[1][0]] = in, rhs[order[1][1]] = out;
  result[order[0][0]] = batches / batch_groups, result[order[0][1]] = out;
  for (int d = 0; d < spatial; d++) {
    int64_t size = 1 + pick(m, 5);
    each[d] = window_dim(m, size, true);
    each[d].reversal = pick(m, 2);
    lhs_sp[d] = order[0][2 + d], rhs_sp[d] = order[1][2 + d];
    lhs[lhs_sp[d]] = size, rhs[rhs_sp[d]] = each[d].size, result[lhs_sp[d]] = windows_in(&each[d], size);
  }
  *a = (hlo_conv_attrs){.window = {spatial, each}, .lhs_batch = order[0][0], .lhs_feature = order[0][1], .rhs_in_feature = order[1][0],
                        .rhs_out_feature = order[1][1], .out_batch = order[0][0], .out_feature = order[0][1],
                        .lhs_spatial = pb_ints(&m->b, spatial, lhs_sp), .rhs_spatial = pb_ints(&m->b, spatial, rhs_sp),
                        .out_spatial = pb_ints(&m->b, spatial, lhs_sp), .feature_group_count = groups, .batch_group_count = batch_groups};
  hlo_instr *operands[2] = {like(m, hlo_shape_array(m->arena, type, rank, lhs)), like(m, hlo_shape_array(m->arena, type, rank, rhs))};
  hlo_instr *r = pb_instr(&m->b, HLO_CONVOLUTION, hlo_shape_array(m->arena, type, rank, result), 2, operands);
  if (r) r->u.conv = a;
  return r;
}

/* Pairs sorted by an integer key, stably: the sorted key or what came with it. */
static hlo_instr *sorted(maker *m)
{
  hlo_instr *x = any(m), *p[4], *r;
  hlo_module *module = m->b.comp->module;
  hlo_computation *less;
  const char *name;
  int64_t dim;

  if (x->shape->rank == 0) return x;
  dim = pick(m, x->shape->rank);
  hlo_instr *key = like(m, hlo_shape_with_type(m->arena, x->shape, pick(m, 2) ? WEFT_S32 : WEFT_U8));
  T_OK(hlo_unique_name(module, "less", &name));
  T_OK(hlo_computation_new(module, name, &less));
  for (int i = 0; i < 4; i++) T_OK(hlo_add_parameter(less, i, hlo_shape_array(m->arena, i < 2 ? key->shape->type : x->shape->type, 0, NULL), NULL, &p[i]));
  pass_build inner = PASS_BUILD_IN(less);
  less->root = pb_compare(&inner, pick(m, 2) ? HLO_LT : HLO_GT, p[0], p[1]);
  r = pb_instr(&m->b, HLO_SORT, hlo_shape_tuple(m->arena, 2, (const hlo_shape *[]){key->shape, x->shape}), 2, (hlo_instr *[]){key, x});
  if (r) {
    r->dims = pb_ints(&m->b, 1, &dim);
    r->u.is_stable = true;
  }
  return pb_gte(&m->b, attach(r, less, NULL), pick(m, 2));
}

/* Integers read as wider or narrower ones, or with the other sign. */
static hlo_instr *recast(maker *m)
{
  static const weft_dtype integers[] = {WEFT_S4, WEFT_U8, WEFT_S8, WEFT_U16, WEFT_U32, WEFT_S32, WEFT_S64, WEFT_U64};
  hlo_instr *x = any(m), *r;
  weft_dtype to = integers[pick(m, WEFT_COUNT(integers))];
  int from_bits = weft_dtype_bits(x->shape->type), to_bits = weft_dtype_bits(to), rank = x->shape->rank;
  int64_t dims[HLO_MAX_RANK];

  if (!weft_dtype_is_integer(x->shape->type) || rank == HLO_MAX_RANK) return x;
  for (int i = 0; i < rank; i++) dims[i] = x->shape->dims[i];
  if (to_bits < from_bits) dims[rank++] = from_bits / to_bits;
  if (to_bits > from_bits && (rank == 0 || dims[--rank] != to_bits / from_bits)) return x;
  r = pb_instr(&m->b, HLO_BITCAST_CONVERT, hlo_shape_array(m->arena, to, rank, dims), 1, &x);
  return r;
}

static void grow(maker *m, int count);

/* A branch or a called function: computes the shape of `x` from a value of its own. */
static hlo_computation *function_of(maker *m, const hlo_shape *argument, const hlo_shape *result)
{
  hlo_module *module = m->b.comp->module;
  maker inner = {.state = next_random(&m->state), .arena = m->arena, .depth = m->depth + 1};
  hlo_computation *comp;
  const char *name;

  T_OK(hlo_unique_name(module, "fn", &name));
  T_OK(hlo_computation_new(module, name, &comp));
  T_OK(hlo_add_parameter(comp, 0, argument, NULL, &inner.pool[inner.count++]));
  inner.b = PASS_BUILD_IN(comp);
  grow(&inner, 5);
  comp->root = like(&inner, result);
  if (inner.b.error) T_OK(inner.b.error);
  return comp;
}

static hlo_instr *branching(maker *m)
{
  hlo_instr *x = any(m), *y = any(m);
  const hlo_shape *result = any_shape(m, any_type(m));

  if (m->depth > 1) return x;
  if (pick(m, 3) == 0) return attach(pb_instr(&m->b, HLO_CALL, result, 1, &x), function_of(m, x->shape, result), NULL);
  hlo_instr *which = pick(m, 2) ? index_scalar(m) : like(m, hlo_shape_array(m->arena, WEFT_PRED, 0, NULL));
  hlo_computation *first = function_of(m, x->shape, result), *second = function_of(m, y->shape, result);
  return attach(pb_instr(&m->b, HLO_CONDITIONAL, result, 3, (hlo_instr *[]){which, x, y}), first, second);
}

static void add_loop(maker *m);

static void grow(maker *m, int count)
{
  for (int i = 0; i < count; i++) {
    hlo_instr *x;
    switch (pick(m, 16)) {
    case 0: case 1: case 2: x = movement(m); break;
    case 3: x = reduction(m); break;
    case 4: x = product(m); break;
    case 5: x = indexed(m); break;
    case 6: x = pick(m, 2) ? windows(m) : convolution(m); break;
    case 7: x = pick(m, 2) ? sorted(m) : recast(m); break;
    case 8: x = pick(m, 2) ? branching(m) : any(m); break;
    case 9:
      if (m->depth < 2 && pick(m, 6) == 0) add_loop(m);
      x = any(m);
      break;
    default: x = elementwise(m);
    }
    if (m->b.error) T_OK(m->b.error);
    if (hlo_shape_elems(x->shape) == 0 || hlo_shape_elems(x->shape) > LARGEST) continue;
    m->pool[m->count < POOL ? m->count++ : (int)pick(m, POOL)] = x;
  }
}

/* A counted loop over a few values of the pool, whose body is random too. */
static void add_loop(maker *m)
{
  hlo_module *module = m->b.comp->module;
  maker inner = {.state = next_random(&m->state), .arena = m->arena, .depth = m->depth + 1};
  hlo_instr *state[5], *next[5], *tuple, *param, *loop, *test, *limit;
  hlo_computation *body, *cond;
  const char *name;
  int count = 1 + (int)pick(m, 4);

  state[0] = pb_scalar(&m->b, WEFT_S32, 0);
  for (int i = 1; i <= count; i++) state[i] = any(m);
  tuple = pb_tuple(&m->b, count + 1, state);
  T_OK(hlo_unique_name(module, "body", &name));
  T_OK(hlo_computation_new(module, name, &body));
  T_OK(hlo_unique_name(module, "cond", &name));
  T_OK(hlo_computation_new(module, name, &cond));
  T_OK(hlo_add_parameter(body, 0, tuple->shape, NULL, &param));
  inner.b = PASS_BUILD_IN(body);
  for (int i = 0; i <= count; i++) inner.pool[inner.count++] = pb_gte(&inner.b, param, i);
  grow(&inner, 8);
  next[0] = pb_add(&inner.b, pb_gte(&inner.b, param, 0), pb_scalar(&inner.b, WEFT_S32, 1));
  for (int i = 1; i <= count; i++)
    next[i] = pick(m, 3) == 0 ? pb_gte(&inner.b, param, i) : like(&inner, state[i]->shape);
  body->root = pb_tuple(&inner.b, count + 1, next);
  if (inner.b.error) T_OK(inner.b.error);
  T_OK(hlo_add_parameter(cond, 0, tuple->shape, NULL, &param));
  inner.b = PASS_BUILD_IN(cond);
  limit = pb_scalar(&inner.b, WEFT_S32, (double)pick(m, 12));
  test = pb_compare(&inner.b, HLO_LT, pb_gte(&inner.b, param, 0), limit);
  cond->root = test;
  loop = pb_instr(&m->b, HLO_WHILE, tuple->shape, 1, &tuple);
  T_OK(hlo_set_called(loop, 2, (hlo_computation *[]){body, cond}));
  for (int i = 0; i <= count && m->count < POOL; i++) m->pool[m->count++] = pb_gte(&m->b, loop, i);
}

enum { ARGUMENTS = 6, RESULTS = 8 };

/* Program and arguments of a seed; `arena` holds the arguments. */
static inline hlo_module *random_program(uint64_t seed, weft_arena *arena, const hlo_literal *arguments[ARGUMENTS])
{
  maker m = {.state = seed};
  hlo_instr *results[RESULTS];
  hlo_computation *entry;
  hlo_module *module;

  T_OK(hlo_module_new("random", &module));
  T_OK(hlo_computation_new(module, "entry", &entry));
  module->entry = entry;
  m.arena = &module->arena;
  m.b = PASS_BUILD_IN(entry);
  for (int i = 0; i < ARGUMENTS; i++) {
    T_OK(hlo_add_parameter(entry, i, any_shape(&m, any_type(&m)), NULL, &m.pool[m.count++]));
    arguments[i] = random_literal(arena, m.pool[i]->shape, &m.state);
  }
  grow(&m, 15);
  if (pick(&m, 2)) add_loop(&m);
  grow(&m, 15);
  if (pick(&m, 3) == 0) add_loop(&m);
  grow(&m, 5);
  for (int i = 0; i < RESULTS; i++) results[i] = any(&m);
  entry->root = pb_tuple(&m.b, RESULTS, results);
  T_OK(pass_build_finish(&m.b));
  T_OK(hlo_module_gc(module));
  T_OK(hlo_verify(module));
  return module;
}

#endif
