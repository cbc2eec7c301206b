/* tests/random_program.h -- Random HLO programs: a pool of values grows by random operations on random values of it.
 * The same seed gives the same program and arguments everywhere.
 *
 * An *exact* program has narrow floats and integers only, and operations that are rounded once, on values of few
 * digits: every order of its sums is exact in f32, so that each result is known to the last bit.
 *
 * A *themed* program takes its dimensions from a few sizes of its own, some of them larger than a vector: its values
 * fit each other row by row, transposed, reduced and spread again, which is what the kernels' strategies look for. */
#ifndef WEFT_TESTS_RANDOM_PROGRAM_H
#define WEFT_TESTS_RANDOM_PROGRAM_H

#include "passes/eval_compare.h"

#include "hlo/infer.h"
#include "hlo/text.h"
#include "passes/build.h"
#include "passes/fusion.h"
#include "passes/util.h"

enum { POOL = 64, SIZES = 3, ARGUMENTS = 6, RESULTS = 8 };

typedef struct maker maker;
struct maker {
  uint64_t state;
  pass_build b;
  weft_arena *arena; /* the module's */
  hlo_instr *pool[POOL];
  int count;
  int depth; /* of computations */
  bool is_themed, in_kernel; /* in_kernel: only what a fusion may contain */
  bool is_exact;
  int64_t sizes[SIZES];      /* of the theme */
  int64_t largest;           /* elements of a value */
  int budget;                /* values that wanted() may still make */
  hlo_computation *adders[WEFT_DTYPE_COUNT], *maxers[WEFT_DTYPE_COUNT];
  hlo_instr *(*rare)(maker *m); /* further kinds (random_kinds.h), or NULL */
};

static int64_t pick(maker *m, int64_t below) { return (int64_t)(next_random(&m->state) % (uint64_t)below); }
static hlo_instr *any(maker *m) { return m->pool[pick(m, m->count)]; }

static const weft_dtype types[] = {WEFT_F32, WEFT_F32, WEFT_S32, WEFT_PRED, WEFT_F64, WEFT_U32, WEFT_BF16,
                                   WEFT_F32, WEFT_S32, WEFT_S8,  WEFT_U16, WEFT_S64, WEFT_U64,  WEFT_S4, WEFT_C64, WEFT_U8};
static const weft_dtype exact_types[] = {WEFT_BF16, WEFT_F16, WEFT_BF16, WEFT_F16, WEFT_F8E4M3FN, WEFT_F8E5M2, WEFT_BF16, WEFT_S32,
                                         WEFT_F16, WEFT_BF16, WEFT_S8, WEFT_F16, WEFT_PRED, WEFT_U16, WEFT_BF16, WEFT_F16};
_Static_assert(WEFT_COUNT(types) == WEFT_COUNT(exact_types), "a theme chooses among either");

/* A themed program has mostly one type, so that its values meet without converts between them. */
static weft_dtype any_type(maker *m)
{
  const weft_dtype *from = m->is_exact ? exact_types : types;
  if (m->is_themed && pick(m, 4)) return from[m->sizes[0] % (int64_t)WEFT_COUNT(types)];
  return from[pick(m, WEFT_COUNT(types))];
}

/* An argument of that shape; for an exact program floats are multiples of 1/16 in [-1, 1]. */
static const hlo_literal *argument(maker *m, weft_arena *arena, const hlo_shape *shape)
{
  const hlo_literal *any = random_literal(arena, shape, &m->state);
  hlo_literal *exact;

  if (!m->is_exact || !weft_dtype_is_float(shape->type)) return any;
  T_OK(hlo_literal_new(arena, shape, &exact));
  for (int64_t i = 0; i < hlo_shape_elems(shape); i++)
    hlo_literal_set_f64(exact, i, round(hlo_literal_get_f64(any, i) * 16) / 16, 0);
  return exact;
}

static void shuffle(maker *m, int64_t *v, int count)
{
  for (int i = count - 1; i > 0; i--) {
    int j = (int)pick(m, i + 1);
    int64_t t = v[i];
    v[i] = v[j];
    v[j] = t;
  }
}

static const hlo_shape *any_shape(maker *m, weft_dtype type)
{
  int64_t dims[SIZES + 1];
  int rank = 0;

  if (m->is_themed) { /* some of the sizes, mostly in order */
    for (int i = 0; i < SIZES; i++)
      if (pick(m, 3)) dims[rank++] = m->sizes[i];
    if (pick(m, 6) == 0) dims[rank++] = 1;
    if (pick(m, 6) == 0) shuffle(m, dims, rank);
  } else {
    rank = (int)pick(m, 4);
    for (int i = 0; i < rank; i++) dims[i] = 1 + pick(m, 5);
  }
  return hlo_shape_array(m->arena, type, rank, dims);
}

/* Sizes whose product is bounded; some sizes are 1 or equal. In a few themes the bound is large, so that kernels cut an
 * axis into blocks. */
static void choose_theme(maker *m)
{
  static const int64_t some[] = {1, 2, 3, 5, 8, 8, 9, 16, 17, 31, 32, 40, 64, 65};
  bool is_large = m->in_kernel && pick(m, 40) == 0;
  int64_t total = 1;

  m->is_themed = true;
  m->largest = is_large ? 150000 : 3000;
  for (int i = 0; i < SIZES; i++) {
    m->sizes[i] = i && pick(m, 3) == 0 ? m->sizes[i - 1] : some[pick(m, WEFT_COUNT(some))];
    if (i == SIZES - 1 && pick(m, 2)) m->sizes[i] = 1;
    if (total * m->sizes[i] > 3000) m->sizes[i] = 1 + pick(m, 2);
    total *= m->sizes[i];
  }
  if (is_large) m->sizes[pick(m, SIZES)] = 65536 / total + pick(m, 1000) + 1;
}

/* x repeated to that shape, its dimensions being some of the shape's in order; NULL if they are not. */
static hlo_instr *spread(maker *m, hlo_instr *x, const hlo_shape *shape)
{
  int64_t map[HLO_MAX_RANK];
  int found = 0;

  for (int d = 0; d < shape->rank && found < x->shape->rank; d++)
    if (shape->dims[d] == x->shape->dims[found] && (shape->rank - d == x->shape->rank - found || pick(m, 3)))
      map[found++] = d;
  return found == x->shape->rank ? pb_broadcast(&m->b, x, shape->rank, shape->dims, map) : NULL;
}

/* A value of that type and shape: made from a value of the pool by convert, reshape or broadcast, or a constant. */
static hlo_instr *like(maker *m, const hlo_shape *shape)
{
  pass_build *b = &m->b;

  for (int attempt = 0; attempt < 4; attempt++) {
    hlo_instr *x = any(m);
    if (hlo_shape_elems(x->shape) == hlo_shape_elems(shape))
      return pb_convert(b, pb_reshape_like(b, x, shape), shape->type);
    if (x->shape->rank == 0) return pb_convert(b, pb_fill(b, x, shape), shape->type);
    if (x->shape->rank > shape->rank) continue;
    hlo_instr *wide = spread(m, x, shape);
    if (wide) return pb_convert(b, wide, shape->type);
  }
  if (pick(m, 2) && shape->rank > 0 && shape->type != WEFT_PRED) return pb_iota(b, shape, pick(m, shape->rank));
  return pb_fill(b, pb_scalar(b, shape->type, (double)pick(m, 4) - (weft_dtype_is_unsigned(shape->type) ? 0 : 1)),
                 shape);
}

static hlo_instr *wanted(maker *m, const hlo_shape *shape);

/* Another value of that shape, to go with one. */
static hlo_instr *other(maker *m, const hlo_shape *shape) { return m->budget > 0 ? wanted(m, shape) : like(m, shape); }

static hlo_instr *index_scalar(maker *m) { return like(m, hlo_shape_array(m->arena, WEFT_S32, 0, NULL)); }

/* Functions that are rounded correctly, and sums in a wider type. */
static hlo_instr *exact_function(maker *m, hlo_instr *x)
{
  static const hlo_opcode ops[] = {HLO_ADD, HLO_SUBTRACT, HLO_MULTIPLY, HLO_DIVIDE};
  pass_build *b = &m->b;

  if (!weft_dtype_is_float(x->shape->type)) return x;
  switch (pick(m, 4)) {
  case 0: return pb_op1(b, HLO_SQRT, pb_op1(b, HLO_ABS, x));
  case 1: return pb_op1(b, pick(m, 2) ? HLO_FLOOR : HLO_ROUND_EVEN, x);
  case 2: return pb_op2(b, HLO_DIVIDE, x, like(m, x->shape));
  default: {
    hlo_instr *wide = pb_convert(b, x, WEFT_F32), *y = pb_convert(b, like(m, x->shape), WEFT_F32);
    return pb_convert(b, pb_op2(b, ops[pick(m, 4)], wide, y), x->shape->type);
  }
  }
}

static hlo_instr *elementwise(maker *m, hlo_instr *x)
{
  static const hlo_opcode real_ops[] = {HLO_ADD, HLO_SUBTRACT, HLO_MULTIPLY, HLO_MAXIMUM, HLO_MINIMUM};
  static const hlo_opcode bit_ops[] = {HLO_AND, HLO_OR, HLO_XOR};
  static const hlo_opcode functions[] = {HLO_TANH, HLO_COS, HLO_TANH, HLO_SIN}; /* bounded: errors do not grow */
  pass_build *b = &m->b;

  switch (pick(m, 8)) {
  case 0:
    if (x->shape->type == WEFT_PRED) return pb_op1(b, HLO_NOT, x);
    if (weft_dtype_is_unsigned(x->shape->type)) return x;
    return pb_op1(b, pick(m, 2) || weft_dtype_is_complex(x->shape->type) ? HLO_NEGATE : HLO_ABS, x);
  case 1:
    if (m->is_exact) return exact_function(m, x);
    return weft_dtype_is_float(x->shape->type) || weft_dtype_is_complex(x->shape->type)
             ? pb_op1(b, functions[pick(m, 4)], x)
             : x;
  case 2:
    return pb_compare(b, (hlo_direction)pick(m, weft_dtype_is_complex(x->shape->type) ? 2 : 6), x, other(m, x->shape));
  case 3: {
    const hlo_shape *p = hlo_shape_with_type(m->arena, x->shape, WEFT_PRED);
    return pb_select(b, other(m, p), x, other(m, x->shape));
  }
  case 4: return pb_convert(b, x, any_type(m));
  default:
    if (x->shape->type == WEFT_PRED || (weft_dtype_is_integer(x->shape->type) && pick(m, 3) == 0))
      return pb_op2(b, bit_ops[pick(m, 3)], x, other(m, x->shape));
    return pb_op2(b, real_ops[pick(m, 5)], x, other(m, x->shape));
  }
}

static hlo_instr *update_slice(maker *m, hlo_instr *x)
{
  hlo_instr *operands[HLO_MAX_RANK + 2] = {x};
  int64_t v[HLO_MAX_RANK];
  int rank = x->shape->rank;

  for (int i = 0; i < rank; i++) {
    v[i] = 1 + pick(m, x->shape->dims[i]);
    operands[i + 2] = index_scalar(m);
  }
  operands[1] = like(m, hlo_shape_array(m->arena, x->shape->type, rank, v));
  return pb_instr(&m->b, HLO_DYNAMIC_UPDATE_SLICE, x->shape, rank + 2, operands);
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
    shuffle(m, v, rank);
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
  case 7: return update_slice(m, x);
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

/* The dimensions to reduce: any, or the last ones, or the first ones. */
static int reduced_dims(maker *m, int rank, int64_t *v)
{
  int count = 0, some = 1 + (int)pick(m, rank), how = (int)pick(m, 3);

  for (int i = 0; i < rank; i++)
    if (how == 0 ? pick(m, 2) : how == 1 ? i >= rank - some : i < some) v[count++] = i;
  return count;
}

/* The larger of two, and at most 3: a combiner that is not one operation. */
static hlo_computation *add_capped(maker *m, weft_dtype type)
{
  hlo_instr *p[2];
  hlo_computation *comp;
  const char *name;

  T_OK(hlo_unique_name(m->b.comp->module, "capped", &name));
  T_OK(hlo_computation_new(m->b.comp->module, name, &comp));
  for (int i = 0; i < 2; i++) T_OK(hlo_add_parameter(comp, i, hlo_shape_array(m->arena, type, 0, NULL), NULL, &p[i]));
  pass_build b = PASS_BUILD_IN(comp);
  comp->root = pb_op2(&b, HLO_MINIMUM, pb_op2(&b, HLO_MAXIMUM, p[0], p[1]), pb_scalar(&b, type, 3));
  T_OK(pass_build_finish(&b));
  return comp;
}

/* Reduces to the largest element of the first operand with the value beside it; among equal elements, the smallest such
 * value. */
static hlo_computation *add_arg_max(maker *m, weft_dtype type, weft_dtype with)
{
  const weft_dtype of[] = {type, with, type, with};
  hlo_instr *p[4];
  hlo_computation *comp;
  const char *name;

  T_OK(hlo_unique_name(m->b.comp->module, "arg_max", &name));
  T_OK(hlo_computation_new(m->b.comp->module, name, &comp));
  for (int i = 0; i < 4; i++) T_OK(hlo_add_parameter(comp, i, hlo_shape_array(m->arena, of[i], 0, NULL), NULL, &p[i]));
  pass_build b = PASS_BUILD_IN(comp);
  hlo_instr *same = pb_op2(&b, HLO_AND, pb_compare(&b, HLO_EQ, p[0], p[2]), pb_compare(&b, HLO_LE, p[1], p[3]));
  hlo_instr *first = pb_op2(&b, HLO_OR, pb_compare(&b, HLO_GT, p[0], p[2]), same);
  comp->root = pb_tuple(&b, 2, (hlo_instr *[]){pb_select(&b, first, p[0], p[2]), pb_select(&b, first, p[1], p[3])});
  T_OK(pass_build_finish(&b));
  return comp;
}

static hlo_instr *arg_max(maker *m, hlo_instr *x, int count, const int64_t *v)
{
  pass_build *b = &m->b;
  weft_dtype type = x->shape->type;
  hlo_instr *with = like(m, hlo_shape_with_type(m->arena, x->shape, WEFT_S32));
  hlo_instr *low = pb_scalar(b, type, weft_dtype_is_float(type) ? -INFINITY : 0), *plain, *r;

  /* for its shape */
  plain = pb_reduce(b, x, low, count, v, m->maxers[type]);
  if (!plain) return NULL;
  const hlo_shape *shapes[] = {plain->shape, hlo_shape_with_type(m->arena, plain->shape, WEFT_S32)};
  r = pb_instr(b, HLO_REDUCE, hlo_shape_tuple(m->arena, 2, shapes), 4,
               (hlo_instr *[]){x, with, low, pb_scalar(b, WEFT_S32, 99)});
  if (!r) return NULL;
  r->dims = pb_ints(b, count, v);
  T_OK(hlo_set_called(r, 1, (hlo_computation *[]){add_arg_max(m, type, WEFT_S32)}));
  return pb_gte(b, r, pick(m, 2));
}

static hlo_instr *reduce_over(maker *m, hlo_instr *x, int count, const int64_t *v)
{
  pass_build *b = &m->b;
  bool is_max = pick(m, 2);

  if (x->shape->type == WEFT_BF16 && !m->is_exact) x = pb_convert(b, x, WEFT_F32);
  weft_dtype type = x->shape->type;
  hlo_computation **reducer = is_max ? &m->maxers[type] : &m->adders[type];
  if (!*reducer) T_OK(hlo_add_reducer(b->comp->module, is_max ? HLO_MAXIMUM : HLO_ADD, type, reducer));
  if (is_max && pick(m, 5) == 0) return arg_max(m, x, count, v);
  hlo_instr *init =
    pb_scalar(b, type, is_max && weft_dtype_is_float(type) && pick(m, 2) ? -INFINITY : (double)pick(m, 3));
  return pb_reduce(b, x, init, count, v, pick(m, 6) ? *reducer : add_capped(m, type));
}

static bool can_reduce(weft_dtype type) { return type != WEFT_PRED && !weft_dtype_is_complex(type); }

static hlo_instr *reduction(maker *m)
{
  hlo_instr *x = any(m);
  int64_t v[HLO_MAX_RANK];

  if (x->shape->rank == 0 || !can_reduce(x->shape->type)) return x;
  int count = reduced_dims(m, x->shape->rank, v);
  return reduce_over(m, x, count, v);
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
  bool batched = rank > 1 && pick(m, 2), scatters = !m->in_kernel && pick(m, 2);
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
  if (hlo_shape_elems(shape) > m->largest) return x;
  hlo_ints batch = batched ? pb_ints(b, 1, &zero) : (hlo_ints){0};
  if (scatters) {
    hlo_scatter_attrs *a = WEFT_ARENA_NEW(m->arena, hlo_scatter_attrs);
    *a = (hlo_scatter_attrs){.update_window_dims = all_below(m, lead, kept),
                             .inserted_window_dims = pb_ints(b, drops, dropped),
                             .scatter_dims_to_operand_dims = pb_ints(b, mapped, map),
                             .input_batching_dims = batch,
                             .scatter_indices_batching_dims = batch,
                             .index_vector_dim = lead};
    hlo_instr *r = pb_instr(b, HLO_SCATTER, x->shape, 3, (hlo_instr *[]){x, starts, like(m, shape)});
    if (r) r->u.scatter = a;
    return attach(r, combiner(m, pick(m, 2) ? HLO_ADD : HLO_MAXIMUM, x->shape->type), NULL);
  }
  hlo_gather_attrs *a = WEFT_ARENA_NEW(m->arena, hlo_gather_attrs);
  *a = (hlo_gather_attrs){.offset_dims = all_below(m, lead, kept),
                          .collapsed_slice_dims = pb_ints(b, drops, dropped),
                          .start_index_map = pb_ints(b, mapped, map),
                          .operand_batching_dims = batch,
                          .start_indices_batching_dims = batch,
                          .index_vector_dim = lead,
                          .slice_sizes = pb_ints(b, rank, sizes)};
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
  int64_t base = (size - 1) * w->base_dilation + 1 + w->pad_low + w->pad_high,
          reach = (w->size - 1) * w->window_dilation + 1;
  return (base - reach) / w->stride + 1;
}

/* reduce-window, of one array or of two at once. */
static hlo_instr *windows(maker *m)
{
  hlo_instr *x = any(m);
  int64_t dims[HLO_MAX_RANK];
  weft_dtype type = x->shape->type;

  if (x->shape->rank == 0 || type == WEFT_PRED || (type == WEFT_BF16 && !m->is_exact) || weft_dtype_is_complex(type))
    return x;
  hlo_window *w = WEFT_ARENA_NEW(m->arena, hlo_window);
  hlo_window_dim *each = WEFT_ARENA_ARRAY(m->arena, hlo_window_dim, x->shape->rank);
  for (int d = 0; d < x->shape->rank; d++) {
    each[d] = window_dim(m, x->shape->dims[d], true);
    dims[d] = windows_in(&each[d], x->shape->dims[d]);
  }
  *w = (hlo_window){x->shape->rank, each};
  bool is_max = pick(m, 2);
  hlo_instr *init = pb_scalar(&m->b, type, is_max ? weft_dtype_is_unsigned(type) ? 0 : -7 : 0);
  hlo_instr *r = pb_instr(&m->b, HLO_REDUCE_WINDOW, hlo_shape_array(m->arena, type, x->shape->rank, dims), 2,
                          (hlo_instr *[]){x, init});
  if (r) r->u.window = w;
  return attach(r, combiner(m, is_max ? HLO_MAXIMUM : HLO_ADD, type), NULL);
}

/* A convolution with one or two spatial dimensions, groups, dilation, reversal, any order of dimensions. */
static hlo_instr *convolution(maker *m)
{
  int spatial = 1 + (int)pick(m, 2), rank = spatial + 2, order[2][4];
  int64_t groups = 1 + pick(m, 2), batch_groups = groups == 1 ? 1 + pick(m, 2) : 1, in = 1 + pick(m, 3),
          out = (1 + pick(m, 2)) * groups * batch_groups;
  int64_t batches = (1 + pick(m, 2)) * batch_groups, lhs[4], rhs[4], result[4], lhs_sp[2], rhs_sp[2];
  weft_dtype type = pick(m, 3) ? (m->is_exact ? WEFT_BF16 : WEFT_F32) : WEFT_S32;
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
  *a = (hlo_conv_attrs){.window = {spatial, each},
                        .lhs_batch = order[0][0],
                        .lhs_feature = order[0][1],
                        .rhs_in_feature = order[1][0],
                        .rhs_out_feature = order[1][1],
                        .out_batch = order[0][0],
                        .out_feature = order[0][1],
                        .lhs_spatial = pb_ints(&m->b, spatial, lhs_sp),
                        .rhs_spatial = pb_ints(&m->b, spatial, rhs_sp),
                        .out_spatial = pb_ints(&m->b, spatial, lhs_sp),
                        .feature_group_count = groups,
                        .batch_group_count = batch_groups};
  hlo_instr *operands[2] = {like(m, hlo_shape_array(m->arena, type, rank, lhs)), like(m, hlo_shape_array(m->arena, type, rank, rhs))};
  hlo_instr *r = pb_instr(&m->b, HLO_CONVOLUTION, hlo_shape_array(m->arena, type, rank, result), 2, operands);
  if (r) r->u.conv = a;
  return r;
}

/* A stable sort of pairs by an integer key. The result is the sorted key or the other array. */
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
  for (int i = 0; i < 4; i++)
    T_OK(hlo_add_parameter(less, i, hlo_shape_array(m->arena, i < 2 ? key->shape->type : x->shape->type, 0, NULL), NULL,
                           &p[i]));
  pass_build inner = PASS_BUILD_IN(less);
  less->root = pb_compare(&inner, pick(m, 2) ? HLO_LT : HLO_GT, p[0], p[1]);
  r = pb_instr(&m->b, HLO_SORT, hlo_shape_tuple(m->arena, 2, (const hlo_shape *[]){key->shape, x->shape}), 2,
               (hlo_instr *[]){key, x});
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

/* Of another computation of the same program. */
static maker maker_inside(maker *m)
{
  maker inner = {.state = next_random(&m->state), .arena = m->arena, .depth = m->depth + 1, .is_themed = m->is_themed,
                 .in_kernel = m->in_kernel, .is_exact = m->is_exact, .largest = m->largest, .rare = m->rare};

  memcpy(inner.sizes, m->sizes, sizeof inner.sizes);
  return inner;
}

/* A branch or a called function: computes the shape of `x` from a value of its own. */
static hlo_computation *function_of(maker *m, const hlo_shape *argument, const hlo_shape *result)
{
  hlo_module *module = m->b.comp->module;
  maker inner = maker_inside(m);
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

/* ---- from a result to what it needs: values that fit each other, none of them unused ----------------------------- */

static hlo_instr *one_like(maker *m, const hlo_shape *shape, bool exact)
{
  for (int attempt = 0, at = (int)pick(m, m->count); attempt < m->count; attempt++, at = (at + 1) % m->count)
    if (exact ? hlo_shape_equal(m->pool[at]->shape, shape, false) : hlo_shape_same_dims(m->pool[at]->shape, shape))
      return m->pool[at];
  return NULL;
}

static hlo_instr *leaf(maker *m, const hlo_shape *shape)
{
  hlo_instr *x = one_like(m, shape, true);

  if (!x) x = one_like(m, shape, false);
  if (x) return pb_convert(&m->b, x, shape->type);
  if (!m->in_kernel || m->b.comp->param_count >= ARGUMENTS) return like(m, shape);
  T_OK(hlo_add_parameter(m->b.comp, m->b.comp->param_count, shape, NULL, &x));
  m->pool[m->count++] = x;
  return x;
}

/* The shape with one size changed. */
static const hlo_shape *resized(maker *m, const hlo_shape *shape, int64_t dim, int64_t size)
{
  int64_t dims[HLO_MAX_RANK];

  memcpy(dims, shape->dims, sizeof *dims * (size_t)shape->rank);
  dims[dim] = size;
  return hlo_shape_array(m->arena, shape->type, shape->rank, dims);
}

static hlo_instr *wanted_transpose(maker *m, const hlo_shape *shape)
{
  int64_t v[HLO_MAX_RANK], dims[HLO_MAX_RANK];

  for (int i = 0; i < shape->rank; i++) v[i] = i;
  shuffle(m, v, shape->rank);
  for (int i = 0; i < shape->rank; i++) dims[v[i]] = shape->dims[i];
  return pb_transpose(&m->b, wanted(m, hlo_shape_array(m->arena, shape->type, shape->rank, dims)), v);
}

static hlo_instr *wanted_broadcast(maker *m, const hlo_shape *shape)
{
  int64_t map[HLO_MAX_RANK], dims[HLO_MAX_RANK];
  int kept = 0;

  for (int d = 0; d < shape->rank; d++)
    if (pick(m, 2)) dims[kept] = shape->dims[d], map[kept++] = d;
  return pb_broadcast(&m->b, wanted(m, hlo_shape_array(m->arena, shape->type, kept, dims)), shape->rank, shape->dims,
                      map);
}

static hlo_instr *wanted_reduce(maker *m, const hlo_shape *shape)
{
  int64_t dims[HLO_MAX_RANK], over[HLO_MAX_RANK], place = pick(m, shape->rank + 1);
  int more = shape->rank < 3 && pick(m, 4) == 0 ? 2 : 1;

  for (int i = 0; i < shape->rank; i++) dims[i < place ? i : i + more] = shape->dims[i];
  for (int i = 0; i < more; i++) dims[place + i] = m->sizes[pick(m, SIZES)], over[i] = place + i;
  const hlo_shape *in = hlo_shape_array(m->arena, shape->type, shape->rank + more, dims);
  if (!can_reduce(shape->type) || hlo_shape_elems(in) > m->largest) return leaf(m, shape);
  hlo_instr *r = reduce_over(m, wanted(m, in), more, over);
  return r ? pb_reshape_like(&m->b, r, shape) : NULL;
}

static hlo_instr *wanted_concatenate(maker *m, const hlo_shape *shape, int64_t d)
{
  int64_t first = pick(m, shape->dims[d] + 1);
  hlo_instr *parts[2];

  if (first == 0 || first == shape->dims[d]) return leaf(m, shape);
  parts[0] = wanted(m, resized(m, shape, d, first));
  parts[1] = wanted(m, resized(m, shape, d, shape->dims[d] - first));
  return pb_concat(&m->b, d, 2, parts);
}

static hlo_instr *wanted_pad(maker *m, const hlo_shape *shape, int64_t d)
{
  hlo_pad_dim pads[HLO_MAX_RANK] = {{0}};
  int64_t size = 1 + pick(m, shape->dims[d]), left = shape->dims[d] - size;

  if (size > 1 && left >= size - 1 && pick(m, 2)) pads[d].interior = 1, left -= size - 1;
  pads[d].low = pick(m, left + 3) - 1;
  pads[d].high = left - pads[d].low;
  if (size + pads[d].low <= 0 || size + pads[d].high <= 0) return leaf(m, shape);
  hlo_instr *x = wanted(m, resized(m, shape, d, size));
  return pb_pad(&m->b, x, other(m, hlo_shape_array(m->arena, shape->type, 0, NULL)), pads);
}

static hlo_instr *wanted_reshape(maker *m, const hlo_shape *shape)
{
  int64_t dims[HLO_MAX_RANK];
  int rank = 0;

  for (int d = 0; d < shape->rank; d++)
    if (rank > 0 && pick(m, 3) == 0) dims[rank - 1] *= shape->dims[d]; /* joined */
    else dims[rank++] = shape->dims[d];
  if (pick(m, 3) == 0) shuffle(m, dims, rank);
  if (rank < 3 && pick(m, 4) == 0) dims[rank++] = 1;
  return pb_reshape_like(&m->b, wanted(m, hlo_shape_array(m->arena, shape->type, rank, dims)), shape);
}

/* Rows of an array, by their numbers. */
static hlo_instr *wanted_gather(maker *m, const hlo_shape *shape)
{
  int64_t sizes[HLO_MAX_RANK], zero = 0, rows[] = {shape->dims[0], 1};
  hlo_gather_attrs *a = WEFT_ARENA_NEW(m->arena, hlo_gather_attrs);

  memcpy(sizes, shape->dims, sizeof *sizes * (size_t)shape->rank);
  sizes[0] = 1;
  hlo_instr *x = wanted(m, resized(m, shape, 0, 1 + pick(m, 9)));
  hlo_instr *starts = wanted(m, hlo_shape_array(m->arena, WEFT_S32, 2, rows));
  *a = (hlo_gather_attrs){.offset_dims = all_below(m, 1, shape->rank - 1),
                          .collapsed_slice_dims = pb_ints(&m->b, 1, &zero),
                          .start_index_map = pb_ints(&m->b, 1, &zero),
                          .index_vector_dim = 1,
                          .slice_sizes = pb_ints(&m->b, shape->rank, sizes)};
  hlo_instr *r = pb_instr(&m->b, HLO_GATHER, shape, 2, (hlo_instr *[]){x, starts});
  if (r) r->u.gather = a;
  return r;
}

static hlo_instr *wanted_slice(maker *m, const hlo_shape *shape, int64_t d, bool is_dynamic)
{
  int64_t more = pick(m, 9), start = pick(m, more + 1);
  hlo_instr *operands[HLO_MAX_RANK + 1] = {wanted(m, resized(m, shape, d, shape->dims[d] + more))};

  if (!is_dynamic) return pb_slice_dim(&m->b, operands[0], d, start, start + shape->dims[d]);
  for (int i = 0; i < shape->rank; i++) operands[i + 1] = i == d ? index_scalar(m) : pb_scalar(&m->b, WEFT_S32, 0);
  hlo_instr *r = pb_instr(&m->b, HLO_DYNAMIC_SLICE, shape, shape->rank + 1, operands);
  if (r) r->u.slice_sizes = pb_ints(&m->b, shape->rank, shape->dims);
  return r;
}

static hlo_instr *make_wanted(maker *m, const hlo_shape *shape)
{
  int64_t d = shape->rank ? pick(m, shape->rank) : 0;

  if (shape->rank == 0) return pick(m, 3) ? wanted_reduce(m, shape) : elementwise(m, wanted(m, shape));
  switch (pick(m, 24)) {
  case 0: case 1: case 2: return wanted_transpose(m, shape);
  case 3: case 4: return wanted_broadcast(m, shape);
  case 5: case 6: case 7: return wanted_reduce(m, shape);
  case 8: return wanted_slice(m, shape, d, pick(m, 2));
  case 9: return wanted_concatenate(m, shape, d);
  case 10: return wanted_pad(m, shape, d);
  case 11: return wanted_reshape(m, shape);
  case 12: return wanted_gather(m, shape);
  case 13: return update_slice(m, wanted(m, shape));
  case 14: {
    hlo_instr *x = wanted(m, shape), *r = pb_instr(&m->b, HLO_REVERSE, shape, 1, &x);
    if (r) r->dims = pb_ints(&m->b, 1, &d);
    return r;
  }
  default: return elementwise(m, wanted(m, shape));
  }
}

static hlo_instr *wanted(maker *m, const hlo_shape *shape)
{
  hlo_instr *x = pick(m, 4) == 0 ? one_like(m, shape, true) : NULL;

  if (x) return x;
  if (m->budget-- <= 0 || hlo_shape_elems(shape) > m->largest) return leaf(m, shape);
  x = make_wanted(m, shape);
  if (m->b.error) T_OK(m->b.error);
  x = pb_convert(&m->b, x, shape->type);
  m->pool[m->count < POOL ? m->count++ : (int)pick(m, POOL)] = x;
  return x;
}

/* ---- from values to what can be made of them --------------------------------------------------------------------- */

/* One more value. */
static hlo_instr *another(maker *m)
{
  switch (pick(m, m->is_themed ? 20 : 16)) {
  case 0: case 1: case 2: case 16: case 17: return movement(m);
  case 3: return reduction(m);
  case 18:
  case 19: m->budget = 8; return wanted(m, any_shape(m, any_type(m)));
  case 4: return product(m);
  case 5: return indexed(m);
  case 6: return m->in_kernel || pick(m, 2) ? windows(m) : convolution(m);
  case 7: return m->in_kernel || pick(m, 2) ? recast(m) : sorted(m);
  case 8: return m->in_kernel || pick(m, 2) ? any(m) : branching(m);
  case 9:
    if (!m->in_kernel && m->depth < 2 && pick(m, 6) == 0) add_loop(m);
    return any(m);
  case 10: case 11: case 12: return m->rare && !m->in_kernel ? m->rare(m) : elementwise(m, any(m));
  default: return elementwise(m, any(m));
  }
}

static void grow(maker *m, int count)
{
  for (int i = 0; i < count; i++) {
    hlo_instr *x = another(m);
    if (m->b.error) T_OK(m->b.error);
    if (hlo_shape_elems(x->shape) == 0 || hlo_shape_elems(x->shape) > m->largest) continue;
    m->pool[m->count < POOL ? m->count++ : (int)pick(m, POOL)] = x;
  }
}

/* A counted loop over a few values of the pool, whose body is random too. */
static void add_loop(maker *m)
{
  hlo_module *module = m->b.comp->module;
  maker inner = maker_inside(m);
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
  for (int i = 1; i <= count; i++) {
    int how = (int)pick(m, 6);
    hlo_instr *old = pb_gte(&inner.b, param, i);
    next[i] = how < 2 ? old : how == 2 ? update_slice(&inner, old) : like(&inner, state[i]->shape);
  }
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

static hlo_module *begin_program(maker *m, weft_arena *arena, const hlo_literal *arguments[ARGUMENTS])
{
  hlo_computation *entry;
  hlo_module *module;

  T_OK(hlo_module_new("random", &module));
  T_OK(hlo_computation_new(module, "entry", &entry));
  module->entry = entry;
  m->arena = &module->arena;
  m->b = PASS_BUILD_IN(entry);
  for (int i = 0; i < ARGUMENTS; i++) {
    T_OK(hlo_add_parameter(entry, i, any_shape(m, any_type(m)), NULL, &m->pool[m->count++]));
    arguments[i] = argument(m, arena, m->pool[i]->shape);
  }
  return module;
}

/* Program and arguments of a seed; `arena` holds the arguments.  `rare`: further kinds, or NULL. */
static inline hlo_module *random_program_of(maker m, uint64_t seed, weft_arena *arena,
                                            const hlo_literal *arguments[ARGUMENTS])
{
  hlo_instr *results[RESULTS];

  if (seed % 2) choose_theme(&m);
  hlo_module *module = begin_program(&m, arena, arguments);
  grow(&m, 15);
  if (pick(&m, 2)) add_loop(&m);
  grow(&m, 15);
  if (pick(&m, 3) == 0) add_loop(&m);
  grow(&m, 5);
  for (int i = 0; i < RESULTS; i++) results[i] = any(&m);
  module->entry->root = pb_tuple(&m.b, RESULTS, results);
  T_OK(pass_build_finish(&m.b));
  T_OK(hlo_module_gc(module));
  T_OK(hlo_verify(module));
  return module;
}

static inline hlo_module *random_program(uint64_t seed, hlo_instr *(*rare)(maker *m), weft_arena *arena,
                                         const hlo_literal *arguments[ARGUMENTS])
{
  return random_program_of((maker){.state = seed, .largest = 200, .rare = rare}, seed, arena, arguments);
}

static inline hlo_module *exact_program(uint64_t seed, weft_arena *arena, const hlo_literal *arguments[ARGUMENTS])
{
  return random_program_of((maker){.state = seed, .largest = 200, .is_exact = true}, seed, arena, arguments);
}

/* Does the evaluator's result differ by as much when the arguments differ in their last digits? Then the difference
 * shows no fault: the program compares or converts almost equal numbers, or subtracts large ones. */
static inline bool is_sensitive(const hlo_module *module, const hlo_literal *const *arguments,
                                const hlo_eval_options *eval, weft_arena *arena, const hlo_literal *want, double slack)
{
  const hlo_literal *nudged[ARGUMENTS], *other;

  for (int sign = -1; sign <= 1; sign += 2) {
    for (int k = 0; k < module->entry->param_count; k++) {
      weft_dtype type = arguments[k]->shape->type;
      bool is_complex = weft_dtype_is_complex(type);
      hlo_literal *copy;
      if (nudged[k] = arguments[k], !weft_dtype_is_float(type) && !is_complex) continue;
      T_OK(hlo_literal_new(arena, arguments[k]->shape, &copy));
      for (int64_t i = 0; i < hlo_shape_elems(copy->shape); i++) {
        double factor = 1 + sign * (i % 3 - 1) * (weft_dtype_bits(type) < 32 ? 4e-3 : 2e-7);
        hlo_literal_set_f64(copy, i, hlo_literal_get_f64(arguments[k], i) * factor,
                            hlo_literal_get_imag(arguments[k], i) * factor);
      }
      nudged[k] = copy;
    }
    T_OK(hlo_eval_module(module, nudged, eval, arena, &other));
    if (!literals_within(other, want, "# nudged", slack)) return true;
  }
  return false;
}

/* A module whose entry is one fusion of all its parameters, as no fusion pass would make it; with up to four results,
 * mostly of one size.  Some update a parameter, the first one, in place. */
static inline hlo_module *random_kernel(uint64_t seed, bool is_exact, weft_arena *arena,
                                        const hlo_literal *arguments[ARGUMENTS])
{
  maker m = {.state = seed, .in_kernel = true, .is_exact = is_exact, .largest = 200, .sizes = {2, 3, 5}};
  hlo_instr *outer[ARGUMENTS], *results[4], *fusion, *updated = NULL;
  int count = 1 + (int)(pick(&m, 3) == 0 ? pick(&m, 4) : 0);
  hlo_computation *body, *entry;
  hlo_module *module;

  T_OK(hlo_module_new("random", &module));
  m.arena = &module->arena;
  T_OK(hlo_computation_new(module, "fused", &body));
  m.b = PASS_BUILD_IN(body);
  if (pick(&m, 6)) choose_theme(&m);
  const hlo_shape *shape = any_shape(&m, any_type(&m));
  T_OK(hlo_add_parameter(body, 0, shape, NULL, &m.pool[0]));
  if (pick(&m, 6) == 0) updated = m.pool[0]; /* and nothing else reads it */
  m.count = updated == NULL;
  if (updated) m.pool[m.count++] = pb_scalar(&m.b, WEFT_S32, 1);
  for (int i = 0; i < count; i++) {
    m.budget = m.largest > 10000 ? 4 : 2 + (int)pick(&m, 16);
    if (i > 0 && pick(&m, 4) == 0) shape = any_shape(&m, any_type(&m));
    results[i] = i == 0 && updated ? update_slice(&m, updated)
                                   : wanted(&m, hlo_shape_with_type(m.arena, shape, any_type(&m)));
  }
  body->root = count == 1 ? results[0] : pb_tuple(&m.b, count, results);
  T_OK(pass_build_finish(&m.b));
  T_OK(hlo_computation_new(module, "entry", &entry));
  module->entry = entry;
  m.b = PASS_BUILD_IN(entry);
  for (int i = 0; i < body->param_count; i++) {
    T_OK(hlo_add_parameter(entry, i, body->params[i]->shape, NULL, &outer[i]));
    arguments[i] = argument(&m, arena, outer[i]->shape);
  }
  fusion = pb_instr(&m.b, HLO_FUSION, body->root->shape, body->param_count, outer);
  T_OK(pass_build_finish(&m.b));
  T_OK(hlo_set_called(fusion, 1, &body));
  T_OK(pass_fusion_classify(fusion, NULL));
  entry->root = fusion;
  T_OK(hlo_module_gc(module));
  T_OK(hlo_verify(module));
  return module;
}

#endif
