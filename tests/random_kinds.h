/* tests/random_kinds.h -- Kinds of instructions that random_program makes only where a test asks for them: every form
 * of dot, fusions and maps in the input, sorts of any number of arrays, narrow types, running sums, tuples out of
 * branches. */
#ifndef WEFT_TESTS_RANDOM_KINDS_H
#define WEFT_TESTS_RANDOM_KINDS_H

#include "random_program.h"

static hlo_instr *any_float(maker *m) { return pb_convert(&m->b, any(m), pick(m, 4) ? WEFT_F32 : WEFT_F64); }

static hlo_instr *any_integer(maker *m)
{
  static const weft_dtype integers[] = {WEFT_S32, WEFT_U8, WEFT_S4, WEFT_U64, WEFT_S16, WEFT_U32};
  return pb_convert(&m->b, any(m), integers[pick(m, WEFT_COUNT(integers))]);
}

/* A dot with random batch, contracted and free dimensions; the right operand has its dimensions in a random order. */
static hlo_instr *dot_form(maker *m)
{
  hlo_instr *x = any(m), *y, *r;
  int64_t left[2][HLO_MAX_RANK], right[2][HLO_MAX_RANK], dims[HLO_MAX_RANK], sizes[HLO_MAX_RANK], place[HLO_MAX_RANK];
  int count[2] = {0, 0}, rank = 0, free_left = 0, free_right = (int)pick(m, 3), shared;
  hlo_dot_attrs *attrs = WEFT_ARENA_NEW(m->arena, hlo_dot_attrs);

  if (x->shape->rank == 0 || x->shape->rank > 4 || x->shape->type == WEFT_PRED) return x;
  for (int d = 0; d < x->shape->rank; d++) {
    int role = (int)pick(m, 3);
    if (role < 2) left[role][count[role]++] = d;
    else sizes[free_left++] = x->shape->dims[d]; /* set apart for the result */
  }
  for (int role = 0; role < 2; role++) shuffle(m, left[role], count[role]);
  shared = count[0] + count[1];
  for (int i = 0; i < shared + free_right; i++) place[i] = i;
  shuffle(m, place, shared + free_right);
  for (int i = 0; i < shared; i++) {
    int role = i >= count[0];
    right[role][i - role * count[0]] = place[i];
    dims[place[i]] = x->shape->dims[left[role][i - role * count[0]]];
  }
  for (int i = 0; i < free_right; i++) dims[place[shared + i]] = 1 + pick(m, 4);
  y = like(m, hlo_shape_array(m->arena, x->shape->type, shared + free_right, dims));
  memmove(sizes + count[0], sizes, (size_t)free_left * sizeof *sizes);
  for (int i = 0; i < count[0]; i++) sizes[i] = x->shape->dims[left[0][i]];
  rank = count[0] + free_left;
  for (int d = 0; d < shared + free_right; d++) {
    bool is_free = true;
    for (int i = 0; i < shared; i++) is_free &= place[i] != d;
    if (is_free) sizes[rank++] = dims[d];
  }
  const hlo_shape *shape = hlo_shape_array(m->arena, x->shape->type, rank, sizes);
  if (hlo_shape_elems(shape) > m->largest) return x;
  r = pb_instr(&m->b, HLO_DOT, shape, 2, (hlo_instr *[]){x, y});
  attrs->lhs_batch = pb_ints(&m->b, count[0], left[0]);
  attrs->rhs_batch = pb_ints(&m->b, count[0], right[0]);
  attrs->lhs_contracting = pb_ints(&m->b, count[1], left[1]);
  attrs->rhs_contracting = pb_ints(&m->b, count[1], right[1]);
  if (r) r->u.dot = attrs;
  return r;
}

/* A fusion of the input. */
static hlo_instr *ready_made(maker *m)
{
  maker quiet = *m;
  hlo_instr *x = any(m), *r;
  const hlo_shape *result = any_shape(m, any_type(m));
  hlo_computation *body;

  if (m->depth > 1) return x;
  quiet.in_kernel = true;
  quiet.is_themed = false;
  quiet.rare = NULL;
  body = function_of(&quiet, x->shape, result);
  m->state = quiet.state;
  r = attach(pb_instr(&m->b, HLO_FUSION, result, 1, &x), body, NULL);
  if (r) r->u.fusion.kind = HLO_FUSION_LOOP;
  return r;
}

static hlo_instr *mapped(maker *m)
{
  hlo_instr *operands[2] = {any(m)}, *p[2], *r;
  const hlo_shape *shape = operands[0]->shape, *scalar = hlo_shape_array(m->arena, shape->type, 0, NULL);
  hlo_module *module = m->b.comp->module;
  int64_t all[HLO_MAX_RANK];
  hlo_computation *f;
  const char *name;

  operands[1] = like(m, shape);
  T_OK(hlo_unique_name(module, "f", &name));
  T_OK(hlo_computation_new(module, name, &f));
  for (int i = 0; i < 2; i++) T_OK(hlo_add_parameter(f, i, scalar, NULL, &p[i]));
  maker inner = {.state = next_random(&m->state), .arena = m->arena, .in_kernel = true, .b = PASS_BUILD_IN(f), .pool = {p[0], p[1]}, .count = 2};
  for (int i = 0; i < 4; i++, inner.count++) inner.pool[inner.count] = elementwise(&inner, any(&inner));
  f->root = pb_convert(&inner.b, any(&inner), shape->type);
  if (inner.b.error) T_OK(inner.b.error);
  r = pb_instr(&m->b, HLO_MAP, shape, 2, operands);
  for (int i = 0; i < shape->rank; i++) all[i] = i;
  if (r) r->dims = pb_ints(&m->b, shape->rank, all);
  return attach(r, f, NULL);
}

/* A sort of one array, or of several arrays by the first two; floats are compared by total order. The program mostly
 * reads the first elements of the result. */
static hlo_instr *sorted_many(maker *m)
{
  hlo_instr *operands[3], *p[6], *r, *first;
  const hlo_shape *shapes[3];
  int count = 1 + (int)pick(m, 3);
  hlo_computation *less;
  const char *name;

  operands[0] = any(m);
  if (operands[0]->shape->rank == 0 || operands[0]->shape->type == WEFT_PRED ||
      weft_dtype_is_complex(operands[0]->shape->type))
    return operands[0];
  int64_t dim = pick(m, operands[0]->shape->rank), size = operands[0]->shape->dims[dim];
  for (int i = 1; i < count; i++)
    operands[i] = pick(m, 2) ? pb_iota(&m->b, hlo_shape_with_type(m->arena, operands[0]->shape, WEFT_S32), dim)
                             : like(m, hlo_shape_with_type(m->arena, operands[0]->shape, any_type(m)));
  T_OK(hlo_unique_name(m->b.comp->module, "order", &name));
  T_OK(hlo_computation_new(m->b.comp->module, name, &less));
  for (int i = 0; i < 2 * count; i++)
    T_OK(hlo_add_parameter(less, i, hlo_shape_array(m->arena, operands[i / 2]->shape->type, 0, NULL), NULL, &p[i]));
  pass_build inner = PASS_BUILD_IN(less);
  int turned = (int)pick(m, 2);
  less->root = pb_compare(&inner, pick(m, 2) ? HLO_LT : HLO_GT, p[turned], p[!turned]);
  if (less->root && weft_dtype_is_float(p[0]->shape->type)) less->root->u.compare.type = HLO_COMPARE_TOTALORDER;
  if (inner.error) T_OK(inner.error);
  for (int i = 0; i < count; i++) shapes[i] = operands[i]->shape;
  r = pb_instr(&m->b, HLO_SORT, count == 1 ? shapes[0] : hlo_shape_tuple(m->arena, count, shapes), count, operands);
  if (!r) return NULL;
  r->dims = pb_ints(&m->b, 1, &dim);
  r->u.is_stable = true;
  attach(r, less, NULL);
  first = count == 1 ? r : pb_gte(&m->b, r, pick(m, count));
  return pick(m, 3) ? pb_slice_dim(&m->b, first, dim, 0, 1 + pick(m, size) / 3) : first;
}

/* There and back through a type of a few bits. */
static hlo_instr *narrowed(maker *m)
{
  static const weft_dtype narrow[] = {WEFT_F8E5M2, WEFT_F8E4M3FN, WEFT_F16, WEFT_BF16, WEFT_S2, WEFT_U2, WEFT_U4, WEFT_F8E4M3B11FNUZ,
                                      WEFT_F8E5M2FNUZ, WEFT_S16};
  hlo_instr *x = any(m);
  weft_dtype type = narrow[pick(m, WEFT_COUNT(narrow))];

  if (weft_dtype_is_complex(x->shape->type)) return x;
  if (weft_dtype_is_float(x->shape->type) && weft_dtype_is_integer(type)) x = pb_convert(&m->b, x, WEFT_S8);
  hlo_instr *y = pb_convert(&m->b, x, type);
  if (pick(m, 2)) y = pb_op2(&m->b, pick(m, 2) ? HLO_MAXIMUM : HLO_ADD, y, pb_convert(&m->b, like(m, x->shape), type));
  return pick(m, 3) ? pb_convert(&m->b, y, any_type(m) == WEFT_C64 ? WEFT_F32 : WEFT_S32) : y;
}

static hlo_instr *of_integers(maker *m)
{
  static const hlo_opcode shifts[] = {HLO_SHIFT_LEFT, HLO_SHIFT_RIGHT_LOGICAL, HLO_SHIFT_RIGHT_ARITHMETIC};
  static const hlo_opcode counts[] = {HLO_CLZ, HLO_POPCNT, HLO_SIGN};
  static const hlo_opcode ratios[] = {HLO_DIVIDE, HLO_REMAINDER};
  hlo_instr *x = any_integer(m), *y = like(m, x->shape);

  switch (pick(m, 4)) {
  case 0: return pb_op2(&m->b, shifts[pick(m, 3)], x, y);
  case 1: return pb_op1(&m->b, counts[pick(m, weft_dtype_is_unsigned(x->shape->type) ? 2 : 3)], x);
  case 2: return pb_instr(&m->b, HLO_CLAMP, x->shape, 3, (hlo_instr *[]){y, x, like(m, x->shape)});
  default: return pb_op2(&m->b, ratios[pick(m, 2)], x, pick(m, 2) ? y : pb_splat(&m->b, x, (double)(1 + pick(m, 7))));
  }
}

static hlo_instr *of_floats(maker *m)
{
  static const hlo_opcode steps[] = {HLO_FLOOR, HLO_CEIL, HLO_ROUND_AFZ, HLO_ROUND_EVEN, HLO_SIGN, HLO_LOGISTIC, HLO_ERF};
  hlo_instr *x = any_float(m), *r;

  switch (pick(m, 6)) {
  case 0: return pb_op1(&m->b, steps[pick(m, WEFT_COUNT(steps))], x);
  case 1: return pb_instr(&m->b, HLO_IS_FINITE, hlo_shape_with_type(m->arena, x->shape, WEFT_PRED), 1, &x);
  case 2: return pb_instr(&m->b, HLO_CLAMP, x->shape, 3, (hlo_instr *[]){pb_splat(&m->b, x, -1), x, like(m, x->shape)});
  case 3: return pb_div(&m->b, x, pb_splat(&m->b, x, (double)(1 << pick(m, 4)) - 0.5));
  case 4:
    r = pb_op1(&m->b, HLO_REDUCE_PRECISION, x);
    if (r)
      r->u.reduce_precision.exponent_bits = 3 + (int)pick(m, 6),
      r->u.reduce_precision.mantissa_bits = 1 + (int)pick(m, 10);
    return r;
  default: {
    const hlo_shape *c = hlo_shape_with_type(m->arena, x->shape, x->shape->type == WEFT_F32 ? WEFT_C64 : WEFT_C128);
    r = pb_instr(&m->b, HLO_COMPLEX, c, 2, (hlo_instr *[]){x, like(m, x->shape)});
    return pick(m, 2) ? r : pb_instr(&m->b, pick(m, 2) ? HLO_REAL : HLO_IMAG, x->shape, 1, &r);
  }
  }
}

/* Running sums along a dimension, forwards or backwards. */
static hlo_instr *running(maker *m)
{
  hlo_instr *x = any(m);
  hlo_window *w = WEFT_ARENA_NEW(m->arena, hlo_window);
  weft_dtype type = x->shape->type;
  int rank = x->shape->rank;

  if (rank == 0 || type == WEFT_PRED || type == WEFT_BF16 || weft_dtype_is_complex(type)) return x;
  hlo_window_dim *each = WEFT_ARENA_ARRAY(m->arena, hlo_window_dim, rank);
  for (int d = 0; d < rank; d++)
    each[d] = (hlo_window_dim){.size = 1, .stride = 1, .window_dilation = 1, .base_dilation = 1};
  int64_t dim = pick(m, rank), size = x->shape->dims[dim];
  each[dim].size = size;
  *(pick(m, 2) ? &each[dim].pad_low : &each[dim].pad_high) = size - 1;
  *w = (hlo_window){rank, each};
  bool is_max = pick(m, 3) == 0;
  hlo_instr *init = pb_scalar(&m->b, type, is_max && !weft_dtype_is_unsigned(type) ? -7 : 0);
  hlo_instr *r = pb_instr(&m->b, HLO_REDUCE_WINDOW, x->shape, 2, (hlo_instr *[]){x, init});
  if (r) r->u.window = w;
  return attach(r, combiner(m, is_max ? HLO_MAXIMUM : HLO_ADD, type), NULL);
}

/* A conditional, or a barrier, that gives several values. */
static hlo_instr *several(maker *m)
{
  hlo_instr *parts[3] = {any(m), any(m), any(m)}, *tuple = pb_tuple(&m->b, 3, parts), *p, *which, *r;
  hlo_computation *branches[2];
  const char *name;

  if (!tuple || pick(m, 2)) return pb_gte(&m->b, pb_instr(&m->b, HLO_OPT_BARRIER, tuple->shape, 1, &tuple), pick(m, 3));
  for (int k = 0; k < 2; k++) {
    hlo_instr *out[3];
    T_OK(hlo_unique_name(m->b.comp->module, "branch", &name));
    T_OK(hlo_computation_new(m->b.comp->module, name, &branches[k]));
    T_OK(hlo_add_parameter(branches[k], 0, tuple->shape, NULL, &p));
    maker inner = maker_inside(m);
    inner.b = PASS_BUILD_IN(branches[k]);
    for (int i = 0; i < 3; i++) inner.pool[inner.count++] = pb_gte(&inner.b, p, i);
    for (int i = 0; i < 3; i++)
      out[i] = pick(m, 3) ? elementwise(&inner, like(&inner, parts[i]->shape)) : inner.pool[i];
    for (int i = 0; i < 3; i++) out[i] = pb_convert(&inner.b, out[i], parts[i]->shape->type);
    branches[k]->root = pb_tuple(&inner.b, 3, out);
    if (inner.b.error) T_OK(inner.b.error);
  }
  which = like(m, hlo_shape_array(m->arena, WEFT_PRED, 0, NULL));
  r = attach(pb_instr(&m->b, HLO_CONDITIONAL, tuple->shape, 3, (hlo_instr *[]){which, tuple, tuple}), branches[0],
             branches[1]);
  return pb_gte(&m->b, r, pick(m, 3));
}

static hlo_instr *strided(maker *m)
{
  hlo_instr *x = any(m), *r;
  int64_t start[HLO_MAX_RANK], stride[HLO_MAX_RANK], limit[HLO_MAX_RANK];

  for (int d = 0; d < x->shape->rank; d++) {
    start[d] = pick(m, x->shape->dims[d]);
    limit[d] = start[d] + 1 + pick(m, x->shape->dims[d] - start[d]);
    stride[d] = 1 + pick(m, 3);
  }
  T_OK(hlo_add_slice(m->b.comp, m->b.before, x, start, limit, stride, &r));
  return r;
}

static hlo_instr *rare_kind(maker *m)
{
  static hlo_instr *(*const kinds[])(maker *) = {dot_form, mapped, sorted_many, narrowed, of_integers,
                                                 of_floats, running, several, strided, ready_made};
  return kinds[pick(m, WEFT_COUNT(kinds))](m);
}

#endif
