/* hlo/infer.c -- shape inference: the table of rules, shared helpers, elementwise operations and data movement. */
#include "hlo/infer.h"

#include <inttypes.h>

#include "hlo/infer_internal.h"

/* ---- helpers ----------------------------------------------------------------------------------------------------- */

bool infer_same_shape(const hlo_shape *a, const hlo_shape *b)
{
  if (a->type != b->type || a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->elements ? !infer_same_shape(a->elements[i], b->elements[i]) : a->dims[i] != b->dims[i]) return false;
  return true;
}

weft_status *infer_given(const hlo_instr *in, const hlo_shape **out)
{
  if (!in->shape) return INFER_FAIL(in, "the result shape cannot be inferred and is not given");
  *out = in->shape;
  return NULL;
}

weft_status *infer_given_array(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(infer_given(in, out));
  if (!hlo_shape_is_array(*out)) return INFER_FAIL(in, "the result is %s, expected an array", SHAPE_TEXT(*out));
  return infer_array(in, (*out)->type, (*out)->rank, (*out)->dims, (*out)->dynamic, out);
}

weft_status *infer_need_array(const hlo_instr *in, int operand)
{
  const hlo_shape *s = infer_operand(in, operand);

  if (!hlo_shape_is_array(s)) return INFER_FAIL(in, "operand %d is %s, expected an array", operand, SHAPE_TEXT(s));
  return NULL;
}

weft_status *infer_need_scalar(const hlo_instr *in, int operand, weft_dtype type)
{
  const hlo_shape *s = infer_operand(in, operand);

  if (!hlo_shape_is_scalar(s) || (type != WEFT_INVALID && s->type != type))
    return INFER_FAIL(in, "operand %d is %s, expected a scalar%s%s", operand, SHAPE_TEXT(s),
                      type == WEFT_INVALID ? "" : " of type ", type == WEFT_INVALID ? "" : weft_dtype_name(type));
  return NULL;
}

weft_status *infer_need_same_type(const hlo_instr *in, int a, int b)
{
  const hlo_shape *x = infer_operand(in, a), *y = infer_operand(in, b);

  if (x->type != y->type)
    return INFER_FAIL(in, "element types differ: %s (operand %d), %s (operand %d)", SHAPE_TEXT(x), a, SHAPE_TEXT(y), b);
  return NULL;
}

weft_status *infer_need_dims(const hlo_instr *in, const char *what, hlo_ints dims, int rank)
{
  uint64_t seen = 0;

  for (int i = 0; i < dims.count; i++) {
    if (dims.v[i] < 0 || dims.v[i] >= rank)
      return INFER_FAIL(in, "%s has %" PRId64 ", outside of rank %d", what, dims.v[i], rank);
    if (seen >> dims.v[i] & 1) return INFER_FAIL(in, "%s names dimension %" PRId64 " twice", what, dims.v[i]);
    seen |= (uint64_t)1 << dims.v[i];
  }
  return NULL;
}

weft_status *infer_need_calls(const hlo_instr *in, int count)
{
  if (in->called_count != count) return INFER_FAIL(in, "calls %d computations, expected %d", in->called_count, count);
  for (int i = 0; i < count; i++)
    if (!in->called[i]->root) return INFER_FAIL(in, "computation \"%s\" has no root", in->called[i]->name);
  return NULL;
}

weft_status *infer_need_scalar_function(const hlo_instr *in, int which, int param_count, const weft_dtype *types,
                                        int result_count, const weft_dtype *result_types)
{
  const hlo_computation *f = in->called[which];
  const hlo_shape *root = f->root->shape;

  if (f->param_count != param_count)
    return INFER_FAIL(in, "computation \"%s\" takes %d parameters, expected %d", f->name, f->param_count, param_count);
  for (int i = 0; i < param_count; i++) {
    const hlo_shape *p = f->params[i]->shape;
    if (!hlo_shape_is_scalar(p) || p->type != types[i])
      return INFER_FAIL(in, "parameter %d of \"%s\" is %s, expected %s[]", i, f->name, SHAPE_TEXT(p),
                        weft_dtype_name(types[i]));
  }
  bool is_tuple = hlo_shape_is_tuple(root);
  if (is_tuple ? root->rank != result_count : result_count != 1)
    return INFER_FAIL(in, "\"%s\" gives %s, expected %d scalars", f->name, SHAPE_TEXT(root), result_count);
  for (int i = 0; i < result_count; i++) {
    const hlo_shape *r = is_tuple ? root->elements[i] : root;
    if (!hlo_shape_is_scalar(r) || r->type != result_types[i])
      return INFER_FAIL(in, "result %d of \"%s\" is %s, expected %s[]", i, f->name, SHAPE_TEXT(r),
                        weft_dtype_name(result_types[i]));
  }
  return NULL;
}

/* True if the instruction's shape already is this one, so that verification allocates nothing. */
static bool is_plain(const hlo_shape *s, weft_dtype type, int rank, const int64_t *dims, const bool *dynamic)
{
  if (!s || s->type != type || s->rank != rank || s->layout || !hlo_shape_is_sane(s)) return false;
  for (int i = 0; i < rank; i++)
    if (s->dims[i] != dims[i] || infer_is_dynamic(s, i) != (dynamic && dynamic[i])) return false;
  return true;
}

weft_status *infer_array(const hlo_instr *in, weft_dtype type, int rank, const int64_t *dims, const bool *dynamic,
                         const hlo_shape **out)
{
  bool any = false;
  hlo_shape *s;

  if (rank > HLO_MAX_RANK) return INFER_FAIL(in, "the result has rank %d, over %d", rank, HLO_MAX_RANK);
  if (is_plain(in->shape, type, rank, dims, dynamic)) {
    *out = in->shape;
    return NULL;
  }
  for (int i = 0; dynamic && i < rank; i++) any |= dynamic[i];
  s = hlo_shape_array(infer_arena(in), type, rank, dims);
  WEFT_TRY_ALLOC(s);
  if (any) {
    s->dynamic = weft_arena_memdup(infer_arena(in), dynamic, (size_t)rank * sizeof(bool));
    WEFT_TRY_ALLOC(s->dynamic);
  }
  if (!hlo_shape_is_sane(s)) return INFER_FAIL(in, "the result %s is too large or has a negative size", SHAPE_TEXT(s));
  *out = s;
  return NULL;
}

weft_status *infer_tuple(const hlo_instr *in, int count, const hlo_shape *const *elements, const hlo_shape **out)
{
  const hlo_shape *tuple = hlo_shape_tuple(infer_arena(in), count, elements);

  WEFT_TRY_ALLOC(tuple);
  *out = tuple;
  return NULL;
}

weft_status *infer_one_or_tuple(const hlo_instr *in, int count, const hlo_shape *const *elements, const hlo_shape **out)
{
  if (count != 1) return infer_tuple(in, count, elements, out);
  *out = elements[0];
  return NULL;
}

/* ---- elementwise ------------------------------------------------------------------------------------------------- */

static weft_status *need_class(const hlo_instr *in)
{
  const hlo_shape *x = infer_operand(in, 0);

  WEFT_TRY(infer_need_array(in, 0));
  if (!hlo_opcode_takes(in->op, x->type))
    return INFER_FAIL(in, "element type %s is not allowed", weft_dtype_name(x->type));
  return NULL;
}

/* Operands `first` and up must have equal dimensions; the result has these dimensions and `type`. */
static weft_status *same_dims(const hlo_instr *in, int first, weft_dtype type, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, first);
  bool dynamic[HLO_MAX_RANK] = {0};

  for (int i = first; i < in->operand_count; i++) {
    WEFT_TRY(infer_need_array(in, i));
    const hlo_shape *y = infer_operand(in, i);
    if (!hlo_shape_same_dims(x, y))
      return INFER_FAIL(in, "dimensions differ: %s (operand %d), %s (operand %d)", SHAPE_TEXT(x), first, SHAPE_TEXT(y),
                        i);
    for (int d = 0; d < y->rank; d++) dynamic[d] |= infer_is_dynamic(y, d);
  }
  return infer_array(in, type, x->rank, x->dims, dynamic, out);
}

static weft_status *infer_unary(const hlo_instr *in, const hlo_shape **out)
{
  weft_dtype type = infer_operand(in, 0)->type;

  WEFT_TRY(need_class(in));
  switch (in->op) {
  case HLO_ABS: case HLO_REAL: case HLO_IMAG: type = weft_dtype_component(type); break;
  case HLO_IS_FINITE: type = WEFT_PRED; break;
  case HLO_CONVERT: {
    const hlo_shape *given;
    WEFT_TRY(infer_given(in, &given));
    if (!weft_dtype_is_array(given->type))
      return INFER_FAIL(in, "the result is %s, expected an array", SHAPE_TEXT(given));
    type = given->type;
    break;
  }
  case HLO_REDUCE_PRECISION:
    if (in->u.reduce_precision.exponent_bits < 1 || in->u.reduce_precision.mantissa_bits < 0)
      return INFER_FAIL(in, "%d exponent and %d mantissa bits: at least 1 and 0 are needed",
                        in->u.reduce_precision.exponent_bits, in->u.reduce_precision.mantissa_bits);
    break;
  default: break;
  }
  return same_dims(in, 0, type, out);
}

static weft_status *infer_binary(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(need_class(in));
  WEFT_TRY(infer_need_array(in, 1));
  WEFT_TRY(infer_need_same_type(in, 0, 1));
  return same_dims(in, 0, infer_operand(in, 0)->type, out);
}

static weft_status *infer_compare(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(infer_binary(in, out));
  if (weft_dtype_is_complex((*out)->type) && in->u.compare.direction != HLO_EQ && in->u.compare.direction != HLO_NE)
    return INFER_FAIL(in, "complex numbers have no order: only EQ and NE");
  return same_dims(in, 0, WEFT_PRED, out);
}

static weft_status *infer_complex(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(infer_binary(in, out));
  weft_dtype type = weft_dtype_complex_of((*out)->type);
  if (type == WEFT_INVALID) return INFER_FAIL(in, "there is no complex type of %s", weft_dtype_name((*out)->type));
  return same_dims(in, 0, type, out);
}

static weft_status *infer_stochastic_convert(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *given;

  WEFT_TRY(need_class(in));
  WEFT_TRY(infer_need_array(in, 1));
  const hlo_shape *x = infer_operand(in, 0), *random = infer_operand(in, 1);
  if (!weft_dtype_is_unsigned(random->type) || weft_dtype_bits(random->type) != weft_dtype_bits(x->type))
    return INFER_FAIL(in, "the random operand is %s, expected unsigned of the width of %s", SHAPE_TEXT(random),
                      SHAPE_TEXT(x));
  WEFT_TRY(infer_given_array(in, &given));
  return same_dims(in, 0, given->type, out);
}

static weft_status *infer_select(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *p = infer_operand(in, 0), *a = infer_operand(in, 1), *b = infer_operand(in, 2);

  /* old files select between whole tuples */
  if (hlo_shape_is_scalar(p) && !hlo_shape_is_array(a) && infer_same_shape(a, b)) {
    *out = a;
    return NULL;
  }
  WEFT_TRY(infer_need_array(in, 0));
  if (p->type != WEFT_PRED) return INFER_FAIL(in, "the predicate is %s, expected pred", SHAPE_TEXT(p));
  WEFT_TRY(infer_need_array(in, 1));
  WEFT_TRY(infer_need_array(in, 2));
  WEFT_TRY(infer_need_same_type(in, 1, 2));
  if (p->rank > 0 && !hlo_shape_same_dims(p, a))
    return INFER_FAIL(in, "the predicate is %s, expected a scalar or the dimensions of %s", SHAPE_TEXT(p),
                      SHAPE_TEXT(a));
  return same_dims(in, 1, a->type, out);
}

static weft_status *infer_clamp(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(need_class(in));
  WEFT_TRY(infer_need_array(in, 1));
  const hlo_shape *x = infer_operand(in, 1);
  for (int i = 0; i < 3; i += 2) {
    WEFT_TRY(infer_need_array(in, i));
    WEFT_TRY(infer_need_same_type(in, i, 1));
    const hlo_shape *bound = infer_operand(in, i);
    if (bound->rank > 0 && !hlo_shape_same_dims(bound, x))
      return INFER_FAIL(in, "bound (operand %d) is %s, expected a scalar or %s", i, SHAPE_TEXT(bound), SHAPE_TEXT(x));
  }
  return infer_array(in, x->type, x->rank, x->dims, x->dynamic, out);
}

/* ---- data movement ----------------------------------------------------------------------------------------------- */

static weft_status *infer_copy(const hlo_instr *in, const hlo_shape **out)
{
  *out = hlo_shape_without_layout(infer_arena(in), infer_operand(in, 0));
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

/* If the result type is narrower, the result has one more minor dimension, whose size is the ratio of the widths; if
 * it is wider, the operand's minor dimension of that size disappears. */
static weft_status *infer_bitcast_convert(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0), *given;
  int64_t dims[HLO_MAX_RANK + 1];
  int rank = x->rank;

  WEFT_TRY(infer_need_array(in, 0));
  WEFT_TRY(infer_given_array(in, &given));
  int from = weft_dtype_bits(x->type), to = weft_dtype_bits(given->type);
  if (weft_dtype_is_complex(x->type) != weft_dtype_is_complex(given->type))
    return INFER_FAIL(in, "from %s to %s: both or neither must be complex", weft_dtype_name(x->type),
                      weft_dtype_name(given->type));
  for (int i = 0; i < rank; i++) dims[i] = x->dims[i];
  if (WEFT_MAX(from, to) % WEFT_MIN(from, to))
    return INFER_FAIL(in, "widths of %s and %s do not divide", weft_dtype_name(x->type), weft_dtype_name(given->type));
  if (to < from) {
    dims[rank++] = from / to;
  } else if (to > from) {
    if (rank == 0 || dims[rank - 1] != to / from)
      return INFER_FAIL(in, "the minor dimension of %s is not %d, the ratio to %s", SHAPE_TEXT(x), to / from,
                        weft_dtype_name(given->type));
    rank--;
  }
  return infer_array(in, given->type, rank, dims, NULL, out);
}

static weft_status *infer_bitcast(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);

  WEFT_TRY(infer_given(in, out));
  if (hlo_shape_is_array(x) != hlo_shape_is_array(*out) || (!hlo_shape_is_array(x) && !hlo_shape_equal(x, *out, false)))
    return INFER_FAIL(in, "from %s to %s: both must be arrays, or the same", SHAPE_TEXT(x), SHAPE_TEXT(*out));
  if (hlo_shape_is_array(x) &&
      hlo_shape_elems(x) * weft_dtype_bits(x->type) != hlo_shape_elems(*out) * weft_dtype_bits((*out)->type))
    return INFER_FAIL(in, "sizes differ: %s (operand), %s (result)", SHAPE_TEXT(x), SHAPE_TEXT(*out));
  return NULL;
}

static weft_status *infer_broadcast(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);

  WEFT_TRY(infer_need_array(in, 0));
  WEFT_TRY(infer_given_array(in, out));
  if (in->dims.count != x->rank)
    return INFER_FAIL(in, "%d dimensions given for an operand %s", in->dims.count, SHAPE_TEXT(x));
  WEFT_TRY(infer_need_dims(in, "dimensions", in->dims, (*out)->rank));
  for (int i = 0; i < x->rank; i++)
    if (x->dims[i] != (*out)->dims[in->dims.v[i]])
      return INFER_FAIL(in, "sizes differ: %" PRId64 " (operand dim %d), %" PRId64 " (result dim %" PRId64 ")",
                        x->dims[i], i, (*out)->dims[in->dims.v[i]], in->dims.v[i]);
  return infer_array(in, x->type, (*out)->rank, (*out)->dims, (*out)->dynamic, out);
}

static weft_status *infer_reshape(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);

  WEFT_TRY(infer_need_array(in, 0));
  WEFT_TRY(infer_given_array(in, out));
  if (hlo_shape_elems(x) != hlo_shape_elems(*out))
    return INFER_FAIL(in, "element counts differ: %" PRId64 " (operand %s), %" PRId64 " (result %s)",
                      hlo_shape_elems(x), SHAPE_TEXT(x), hlo_shape_elems(*out), SHAPE_TEXT(*out));
  return infer_array(in, x->type, (*out)->rank, (*out)->dims, (*out)->dynamic, out);
}

static weft_status *infer_dynamic_reshape(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(infer_reshape(in, out));
  if (in->operand_count != 1 + (*out)->rank)
    return INFER_FAIL(in, "%d sizes for a result %s", in->operand_count - 1, SHAPE_TEXT(*out));
  for (int i = 1; i < in->operand_count; i++) WEFT_TRY(infer_need_scalar(in, i, WEFT_S32));
  return NULL;
}

static weft_status *infer_concatenate(const hlo_instr *in, const hlo_shape **out)
{
  int64_t dims[HLO_MAX_RANK];
  bool dynamic[HLO_MAX_RANK] = {0};
  const hlo_shape *x = infer_operand(in, 0);

  WEFT_TRY(infer_need_array(in, 0));
  if (in->dims.count != 1) return INFER_FAIL(in, "%d dimensions given, expected 1", in->dims.count);
  WEFT_TRY(infer_need_dims(in, "dimensions", in->dims, x->rank));
  int64_t along = in->dims.v[0];
  for (int d = 0; d < x->rank; d++) dims[d] = d == along ? 0 : x->dims[d];
  for (int i = 0; i < in->operand_count; i++) {
    const hlo_shape *y = infer_operand(in, i);
    WEFT_TRY(infer_need_array(in, i));
    WEFT_TRY(infer_need_same_type(in, 0, i));
    if (y->rank != x->rank)
      return INFER_FAIL(in, "ranks differ: %s (operand 0), %s (operand %d)", SHAPE_TEXT(x), SHAPE_TEXT(y), i);
    for (int d = 0; d < x->rank; d++) {
      dynamic[d] |= infer_is_dynamic(y, d);
      if (d != along && y->dims[d] != x->dims[d])
        return INFER_FAIL(in, "sizes of dimension %d differ: %" PRId64 " (operand 0), %" PRId64 " (operand %d)", d,
                          x->dims[d], y->dims[d], i);
    }
    if (__builtin_add_overflow(dims[along], y->dims[along], &dims[along]))
      return INFER_FAIL(in, "dimension %" PRId64 " of the result is over 2^63", along);
  }
  return infer_array(in, x->type, x->rank, dims, dynamic, out);
}

static weft_status *infer_constant(const hlo_instr *in, const hlo_shape **out)
{
  if (!in->u.literal) return INFER_FAIL(in, "no value");
  *out = in->u.literal->shape;
  return NULL;
}

/* Checks the start indices: one scalar per dimension, or (in old programs) one vector. */
static weft_status *need_start_indices(const hlo_instr *in, int first, int rank)
{
  int count = in->operand_count - first;
  const hlo_shape *s = count > 0 ? infer_operand(in, first) : NULL;

  if (count == 1 && hlo_shape_is_array(s) && s->rank == 1 && weft_dtype_is_integer(s->type) && s->dims[0] == rank)
    return NULL;
  if (count != rank) return INFER_FAIL(in, "%d start indices for rank %d", count, rank);
  for (int i = first; i < in->operand_count; i++) {
    WEFT_TRY(infer_need_scalar(in, i, WEFT_INVALID));
    if (!weft_dtype_is_integer(infer_operand(in, i)->type))
      return INFER_FAIL(in, "start index (operand %d) is %s, expected an integer", i, SHAPE_TEXT(infer_operand(in, i)));
  }
  return NULL;
}

static weft_status *infer_dynamic_slice(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);

  WEFT_TRY(infer_need_array(in, 0));
  if (in->u.slice_sizes.count != x->rank)
    return INFER_FAIL(in, "%d slice sizes for %s", in->u.slice_sizes.count, SHAPE_TEXT(x));
  WEFT_TRY(need_start_indices(in, 1, x->rank));
  for (int d = 0; d < x->rank; d++)
    if (in->u.slice_sizes.v[d] < 0 || in->u.slice_sizes.v[d] > x->dims[d])
      return INFER_FAIL(in, "slice size %" PRId64 " of dimension %d, whose size is %" PRId64, in->u.slice_sizes.v[d], d,
                        x->dims[d]);
  return infer_array(in, x->type, x->rank, in->u.slice_sizes.v, NULL, out);
}

static weft_status *infer_dynamic_update_slice(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0), *u = infer_operand(in, 1);

  WEFT_TRY(infer_need_array(in, 0));
  WEFT_TRY(infer_need_array(in, 1));
  WEFT_TRY(infer_need_same_type(in, 0, 1));
  if (u->rank != x->rank)
    return INFER_FAIL(in, "ranks differ: %s (operand), %s (update)", SHAPE_TEXT(x), SHAPE_TEXT(u));
  WEFT_TRY(need_start_indices(in, 2, x->rank));
  for (int d = 0; d < x->rank; d++)
    if (u->dims[d] > x->dims[d])
      return INFER_FAIL(in, "the update %s does not fit %s in dimension %d", SHAPE_TEXT(u), SHAPE_TEXT(x), d);
  return infer_array(in, x->type, x->rank, x->dims, x->dynamic, out);
}

static weft_status *infer_dimension_size(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);
  bool dynamic[HLO_MAX_RANK] = {0};

  WEFT_TRY(infer_need_array(in, 0));
  if (in->dims.count != 1) return INFER_FAIL(in, "%d dimensions given, expected 1", in->dims.count);
  WEFT_TRY(infer_need_dims(in, "dimensions", in->dims, x->rank));
  if (in->op == HLO_GET_DIMENSION_SIZE) return infer_array(in, WEFT_S32, 0, NULL, NULL, out);
  WEFT_TRY(infer_need_scalar(in, 1, WEFT_S32));
  for (int d = 0; d < x->rank; d++) dynamic[d] = infer_is_dynamic(x, d) || d == in->dims.v[0];
  /* If the size is known and is the whole dimension, the dimension becomes static again. */
  const hlo_instr *size = hlo_operand(in, 1);
  if (size->op == HLO_CONSTANT && size->u.literal && !size->u.literal->elided &&
      hlo_literal_get_s64(size->u.literal, 0) == x->dims[in->dims.v[0]])
    dynamic[in->dims.v[0]] = false;
  return infer_array(in, x->type, x->rank, x->dims, dynamic, out);
}

static weft_status *infer_iota(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(infer_given_array(in, out));
  if ((*out)->type == WEFT_PRED) return INFER_FAIL(in, "element type pred is not allowed");
  if (in->dims.count != 1) return INFER_FAIL(in, "%d dimensions given, expected 1", in->dims.count);
  return infer_need_dims(in, "iota_dimension", in->dims, (*out)->rank);
}

static weft_status *infer_pad(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);
  int64_t dims[HLO_MAX_RANK];

  WEFT_TRY(infer_need_array(in, 0));
  WEFT_TRY(infer_need_scalar(in, 1, x->type));
  if (in->u.pad.rank != x->rank) return INFER_FAIL(in, "padding of rank %d for %s", in->u.pad.rank, SHAPE_TEXT(x));
  for (int d = 0; d < x->rank; d++) {
    const hlo_pad_dim *p = &in->u.pad.dims[d];
    int64_t inner = 0;
    if (p->interior < 0) return INFER_FAIL(in, "negative interior padding %" PRId64 " of dimension %d", p->interior, d);
    if (__builtin_mul_overflow(WEFT_MAX(x->dims[d] - 1, 0), p->interior, &inner) ||
        __builtin_add_overflow(x->dims[d], inner, &inner) || __builtin_add_overflow(inner, p->low, &inner) ||
        __builtin_add_overflow(inner, p->high, &dims[d]))
      return INFER_FAIL(in, "dimension %d of the result is over 2^63", d);
    if (dims[d] < 0)
      return INFER_FAIL(in, "padding %" PRId64 "_%" PRId64 "_%" PRId64 " makes dimension %d of %s negative", p->low,
                        p->high, p->interior, d, SHAPE_TEXT(x));
  }
  return infer_array(in, x->type, x->rank, dims, x->dynamic, out);
}

static weft_status *infer_parameter(const hlo_instr *in, const hlo_shape **out) { return infer_given(in, out); }

static weft_status *infer_reverse(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);

  WEFT_TRY(infer_need_array(in, 0));
  WEFT_TRY(infer_need_dims(in, "dimensions", in->dims, x->rank));
  return infer_array(in, x->type, x->rank, x->dims, x->dynamic, out);
}

static weft_status *infer_slice(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);
  const hlo_ints start = in->u.slice->start, limit = in->u.slice->limit, stride = in->u.slice->stride;
  int64_t dims[HLO_MAX_RANK];

  WEFT_TRY(infer_need_array(in, 0));
  if (start.count != x->rank || limit.count != x->rank || (stride.count != 0 && stride.count != x->rank))
    return INFER_FAIL(in, "%d starts, %d limits, %d strides for %s", start.count, limit.count, stride.count,
                      SHAPE_TEXT(x));
  for (int d = 0; d < x->rank; d++) {
    int64_t step = stride.count ? stride.v[d] : 1;
    if (start.v[d] < 0 || start.v[d] > limit.v[d] || limit.v[d] > x->dims[d] || step < 1)
      return INFER_FAIL(in, "[%" PRId64 ":%" PRId64 ":%" PRId64 "] of dimension %d, whose size is %" PRId64, start.v[d],
                        limit.v[d], step, d, x->dims[d]);
    dims[d] = (limit.v[d] - start.v[d]) / step + ((limit.v[d] - start.v[d]) % step != 0);
  }
  return infer_array(in, x->type, x->rank, dims, NULL, out);
}

static weft_status *infer_transpose(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *x = infer_operand(in, 0);
  int64_t dims[HLO_MAX_RANK];
  bool dynamic[HLO_MAX_RANK];

  WEFT_TRY(infer_need_array(in, 0));
  if (in->dims.count != x->rank)
    return INFER_FAIL(in, "a permutation of %d dimensions for %s", in->dims.count, SHAPE_TEXT(x));
  WEFT_TRY(infer_need_dims(in, "dimensions", in->dims, x->rank));
  for (int d = 0; d < x->rank; d++) {
    dims[d] = x->dims[in->dims.v[d]];
    dynamic[d] = infer_is_dynamic(x, in->dims.v[d]);
  }
  return infer_array(in, x->type, x->rank, dims, dynamic, out);
}

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

static weft_status *infer_rng(const hlo_instr *in, const hlo_shape **out)
{
  WEFT_TRY(infer_given_array(in, out));
  for (int i = 0; i < 2; i++) WEFT_TRY(infer_need_scalar(in, i, (*out)->type));
  bool is_float = weft_dtype_is_float((*out)->type),
       is_discrete = weft_dtype_is_integer((*out)->type) || (*out)->type == WEFT_PRED;
  if (in->u.distribution == HLO_RNG_INVALID) return INFER_FAIL(in, "no distribution");
  if (!is_float && !(is_discrete && in->u.distribution == HLO_RNG_UNIFORM))
    return INFER_FAIL(in, "element type %s is not allowed", weft_dtype_name((*out)->type));
  return NULL;
}

/* (new state, bits), or the bits alone.  The shape of the bits is free. */
static weft_status *infer_rng_bit_generator(const hlo_instr *in, const hlo_shape **out)
{
  const hlo_shape *state = infer_operand(in, 0), *bits;

  WEFT_TRY(infer_need_array(in, 0));
  if (state->type != WEFT_U64 && state->type != WEFT_U32)
    return INFER_FAIL(in, "the state is %s, expected u32 or u64", SHAPE_TEXT(state));
  WEFT_TRY(infer_given(in, out));
  if (hlo_shape_is_tuple(*out) && ((*out)->rank != 2 || !infer_same_shape((*out)->elements[0], state)))
    return INFER_FAIL(in, "the result is %s, expected (%s, bits)", SHAPE_TEXT(*out), SHAPE_TEXT(state));
  bits = hlo_shape_is_tuple(*out) ? (*out)->elements[1] : *out;
  if (!hlo_shape_is_array(bits) || weft_dtype_is_complex(bits->type) || bits->type == WEFT_PRED)
    return INFER_FAIL(in, "the bits are %s, expected integers or floats", SHAPE_TEXT(bits));
  return NULL;
}

static weft_status *infer_rng_state(const hlo_instr *in, const hlo_shape **out)
{
  return infer_array(in, WEFT_U64, 1, (int64_t[]){2}, NULL, out);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static infer_rule *const rules[HLO_OPCODE_COUNT] = {
#define X(NAME, text, least, most, traits, classes, rule, ...) [HLO_##NAME] = infer_##rule,
#include "hlo/opcodes.def"
#undef X
};

static bool has_unbounded(const hlo_shape *s)
{
  for (int i = 0; i < s->rank; i++)
    if (s->elements ? has_unbounded(s->elements[i]) : s->dims[i] == HLO_UNBOUNDED) return true;
  return false;
}

weft_status *hlo_infer_shape(const hlo_instr *instr, const hlo_shape **out_shape)
{
  int least = hlo_opcode_least_operands(instr->op), most = hlo_opcode_most_operands(instr->op);

  if (instr->operand_count < least || (most >= 0 && instr->operand_count > most))
    return INFER_FAIL(instr, "%d operands, expected %d%s", instr->operand_count,
                      instr->operand_count < least ? least : most, least == most ? "" : " (at least or most)");
  bool takes_one = instr->op == HLO_GET_TUPLE_ELEMENT; /* of a tuple that may be wide: only the element counts */
  for (int i = 0; i < instr->operand_count && !takes_one; i++)
    if (has_unbounded(infer_operand(instr, i)))
      return WEFT_ERR(UNIMPLEMENTED, "%s: operand %d is %s: dimensions without a bound are not supported",
                      hlo_opcode_name(instr->op), i, SHAPE_TEXT(infer_operand(instr, i)));
  WEFT_TRY(rules[instr->op](instr, out_shape));
  if (takes_one && *out_shape && has_unbounded(*out_shape))
    return WEFT_ERR(UNIMPLEMENTED, "%s: the element is %s: dimensions without a bound are not supported",
                    hlo_opcode_name(instr->op), SHAPE_TEXT(*out_shape));
  return *out_shape ? hlo_shape_check_parts(*out_shape) : NULL;
}
