/* passes/algebraic_elementwise.c -- Rules of the algebraic simplifier for elementwise instructions. */
#include <config.h>

#include <math.h>

#include "passes/algebraic.h"

static bool is_fixed(const hlo_instr *x)
{
  return x->op == HLO_CONSTANT || (x->op == HLO_BROADCAST && x->operands[0]->op == HLO_CONSTANT);
}

/* Moves a constant to the right of a commutative operation. */
static weft_status *constant_right(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *y = instr->operands[1];

  if (!is_fixed(x) || is_fixed(y)) return NULL;
  WEFT_TRY(hlo_set_operand(instr, 0, y));
  WEFT_TRY(hlo_set_operand(instr, 1, x));
  return simplify_touched(s, instr);
}

static bool is_negative_zero(const hlo_instr *x)
{
  while (x->op == HLO_BROADCAST) x = x->operands[0];
  return x->op == HLO_CONSTANT && weft_dtype_is_float(x->shape->type) && hlo_shape_elems(x->shape) > 0 &&
         hlo_literal_is_splat(x->u.literal) && hlo_literal_get_f64(x->u.literal, 0) == 0 &&
         signbit(hlo_literal_get_f64(x->u.literal, 0));
}

/* For integers (x OP c1) OP c2 becomes x OP (c1 OP c2). Constants stand on the right already. */
static weft_status *merge_constants(simplifier *s, hlo_instr *instr)
{
  hlo_instr *inner = instr->operands[0];
  pass_build b = PASS_BUILD_AT(instr);
  hlo_instr *c;

  /* Constant folding treats the case of constants alone. */
  if (is_floating(instr) || inner->op != instr->op || is_fixed(inner->operands[0])) return NULL;
  if (instr->operands[1]->op == HLO_CONSTANT && inner->operands[1]->op == HLO_CONSTANT) {
    c = pb_op2(&b, instr->op, inner->operands[1], instr->operands[1]);
  } else if (instr->operands[1]->op == HLO_BROADCAST && inner->operands[1]->op == HLO_BROADCAST &&
             instr->operands[1]->operands[0]->op == HLO_CONSTANT &&
             inner->operands[1]->operands[0]->op == HLO_CONSTANT &&
             hlo_shape_is_scalar(instr->operands[1]->operands[0]->shape) &&
             hlo_shape_is_scalar(inner->operands[1]->operands[0]->shape)) {
    c = pb_op2(&b, instr->op, inner->operands[1]->operands[0], instr->operands[1]->operands[0]);
    c = pb_fill(&b, c, instr->shape);
  } else {
    return NULL;
  }
  return simplify_built(s, &b, instr, pb_op2(&b, instr->op, inner->operands[0], c));
}

weft_status *simplify_add(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *y = instr->operands[1];

  WEFT_TRY(constant_right(s, instr));
  if (s->done) return NULL;
  if (is_negative_zero(y) || (!is_floating(instr) && is_all(y, 0))) return simplify_to(s, instr, x);
  if (y->op == HLO_NEGATE) {
    pass_build b = PASS_BUILD_AT(instr);
    return simplify_built(s, &b, instr, pb_sub(&b, x, y->operands[0]));
  }
  if (x->op == HLO_NEGATE) {
    pass_build b = PASS_BUILD_AT(instr);
    return simplify_built(s, &b, instr, pb_sub(&b, y, x->operands[0]));
  }
  if (!is_floating(instr) && x->op == HLO_SUBTRACT && x->operands[1] == y) return simplify_to(s, instr, x->operands[0]);
  return merge_constants(s, instr);
}

weft_status *simplify_subtract(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *y = instr->operands[1];
  pass_build b = PASS_BUILD_AT(instr);

  if (is_all(y, 0) && !is_negative_zero(y)) return simplify_to(s, instr, x); /* x - (+0) is x also if x is -0 */
  if (!is_floating(instr)) {
    if (x == y) return simplify_built(s, &b, instr, pb_splat(&b, instr, 0));
    if (x->op == HLO_ADD && x->operands[1] == y) return simplify_to(s, instr, x->operands[0]);
    if (x->op == HLO_ADD && x->operands[0] == y) return simplify_to(s, instr, x->operands[1]);
  }
  if (y->op == HLO_NEGATE) return simplify_built(s, &b, instr, pb_add(&b, x, y->operands[0]));
  return NULL;
}

weft_status *simplify_multiply(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *y = instr->operands[1];
  pass_build b = PASS_BUILD_AT(instr);

  WEFT_TRY(constant_right(s, instr));
  if (s->done) return NULL;
  if (is_all(y, 1)) return simplify_to(s, instr, x);
  if (!is_floating(instr) && is_all(y, 0)) return simplify_to(s, instr, y);
  if (is_all(y, -1) && !weft_dtype_is_complex(instr->shape->type))
    return simplify_built(s, &b, instr, pb_op1(&b, HLO_NEGATE, x));
  if (x->op == HLO_NEGATE && y->op == HLO_NEGATE)
    return simplify_built(s, &b, instr, pb_mul(&b, x->operands[0], y->operands[0]));
  return merge_constants(s, instr);
}

/* The constant that all elements of `x` are, or NULL. */
static const hlo_literal *splat_of(const hlo_instr *x)
{
  while (x->op == HLO_BROADCAST) x = x->operands[0];
  return x->op == HLO_CONSTANT && hlo_shape_is_array(x->shape) && hlo_literal_is_splat(x->u.literal) ? x->u.literal
                                                                                                     : NULL;
}

/* True if `y` has an unsigned type and is 2^exponent. The bits decide, because a double holds only 53 of them. */
static bool is_unsigned_power_of_two(const hlo_instr *y, int *exponent)
{
  const hlo_literal *c = weft_dtype_is_unsigned(y->shape->type) ? splat_of(y) : NULL;
  uint64_t bits = c ? (uint64_t)hlo_literal_get_s64(c, 0) : 0;

  if (bits == 0 || (bits & (bits - 1)) != 0) return false;
  *exponent = __builtin_ctzll(bits);
  return true;
}

weft_status *simplify_divide(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *y = instr->operands[1];
  const hlo_literal *constant = splat_of(y);
  pass_build b = PASS_BUILD_AT(instr);
  int exponent;

  if (is_all(y, 1)) return simplify_to(s, instr, x);
  /* A division by a power of two well inside the range: multiplication by the inverse is exact in the same cases. */
  if (constant && weft_dtype_is_float(instr->shape->type) && weft_dtype_bits(instr->shape->type) >= 16) {
    double c = hlo_literal_get_f64(constant, 0);
    if (fabs(frexp(c, &exponent)) == 0.5 && exponent > -13 && exponent < 14)
      return simplify_built(s, &b, instr, pb_mul(&b, x, pb_splat(&b, instr, 1 / c)));
  }
  if (is_unsigned_power_of_two(y, &exponent))
    return simplify_built(s, &b, instr, pb_op2(&b, HLO_SHIFT_RIGHT_LOGICAL, x, pb_splat_int(&b, instr, exponent)));
  return NULL;
}

weft_status *simplify_remainder(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *y = instr->operands[1];
  pass_build b = PASS_BUILD_AT(instr);
  int exponent;

  if (is_unsigned_power_of_two(y, &exponent)) {
    hlo_instr *mask = pb_splat_int(&b, instr, (int64_t)((UINT64_C(1) << exponent) - 1));
    return simplify_built(s, &b, instr, pb_op2(&b, HLO_AND, x, mask));
  }
  return NULL;
}

static bool is_all_ones(const hlo_instr *x)
{
  const hlo_literal *c = splat_of(x);
  weft_dtype type = x->shape->type;

  if (!c) return false;
  if (type == WEFT_PRED) return hlo_literal_get_s64(c, 0) == 1;
  return (uint64_t)hlo_literal_get_s64(c, 0) << (64 - weft_dtype_bits(type)) == ~UINT64_C(0)
                                                                                  << (64 - weft_dtype_bits(type));
}

weft_status *simplify_and(simplifier *s, hlo_instr *instr)
{
  WEFT_TRY(constant_right(s, instr));
  if (s->done) return NULL;
  if (instr->operands[0] == instr->operands[1] || is_all_ones(instr->operands[1]))
    return simplify_to(s, instr, instr->operands[0]);
  if (is_all(instr->operands[1], 0)) return simplify_to(s, instr, instr->operands[1]);
  return merge_constants(s, instr);
}

weft_status *simplify_or(simplifier *s, hlo_instr *instr)
{
  WEFT_TRY(constant_right(s, instr));
  if (s->done) return NULL;
  if (instr->operands[0] == instr->operands[1] || is_all(instr->operands[1], 0))
    return simplify_to(s, instr, instr->operands[0]);
  if (is_all_ones(instr->operands[1])) return simplify_to(s, instr, instr->operands[1]);
  return merge_constants(s, instr);
}

weft_status *simplify_xor(simplifier *s, hlo_instr *instr)
{
  pass_build b = PASS_BUILD_AT(instr);

  WEFT_TRY(constant_right(s, instr));
  if (s->done) return NULL;
  if (is_all(instr->operands[1], 0)) return simplify_to(s, instr, instr->operands[0]);
  if (instr->operands[0] == instr->operands[1]) return simplify_built(s, &b, instr, pb_splat(&b, instr, 0));
  return merge_constants(s, instr);
}

static hlo_direction opposite(hlo_direction d)
{
  switch (d) {
  case HLO_EQ: return HLO_NE;
  case HLO_NE: return HLO_EQ;
  case HLO_GE: return HLO_LT;
  case HLO_GT: return HLO_LE;
  case HLO_LE: return HLO_GT;
  default: return HLO_GE;
  }
}

weft_status *simplify_not(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *inverse;
  pass_build b = PASS_BUILD_AT(instr);

  if (x->op == HLO_NOT) return simplify_to(s, instr, x->operands[0]);
  /* For floats a NaN makes both x < y and x >= y false; == and != are each other's opposite nevertheless. */
  if (x->op != HLO_COMPARE || (is_floating(x->operands[0]) && x->u.compare.type != HLO_COMPARE_TOTALORDER &&
                               x->u.compare.direction != HLO_EQ && x->u.compare.direction != HLO_NE))
    return NULL;
  inverse = pb_clone(&b, x, NULL);
  if (inverse) inverse->u.compare.direction = opposite(x->u.compare.direction);
  return simplify_built(s, &b, instr, inverse);
}

weft_status *simplify_negate(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  pass_build b = PASS_BUILD_AT(instr);

  if (x->op == HLO_NEGATE) return simplify_to(s, instr, x->operands[0]);
  if (x->op == HLO_SUBTRACT && !is_floating(instr))
    return simplify_built(s, &b, instr, pb_sub(&b, x->operands[1], x->operands[0]));
  return NULL;
}

weft_status *simplify_abs(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];

  if (same_shape(instr, x) && (x->op == HLO_ABS || weft_dtype_is_unsigned(x->shape->type)))
    return simplify_to(s, instr, x);
  return NULL;
}

weft_status *simplify_compare(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *y = instr->operands[1];
  hlo_direction d = instr->u.compare.direction;
  pass_build b = PASS_BUILD_AT(instr);

  if (x == y && (!is_floating(x) || instr->u.compare.type == HLO_COMPARE_TOTALORDER))
    return simplify_built(s, &b, instr, pb_splat(&b, instr, d == HLO_EQ || d == HLO_GE || d == HLO_LE));
  if (x->shape->type == WEFT_PRED && (d == HLO_EQ || d == HLO_NE)) {
    if (is_all(y, d == HLO_EQ)) return simplify_to(s, instr, x);
    if (is_all(y, d == HLO_NE)) return simplify_built(s, &b, instr, pb_op1(&b, HLO_NOT, x));
  }
  if (weft_dtype_is_unsigned(x->shape->type) && is_all(y, 0)) {
    if (d == HLO_LT) return simplify_built(s, &b, instr, pb_splat(&b, instr, 0));
    if (d == HLO_GE) return simplify_built(s, &b, instr, pb_splat(&b, instr, 1));
  }
  bool known;
  return compare_by_range(instr, &known) ? simplify_built(s, &b, instr, pb_splat(&b, instr, known)) : NULL;
}

weft_status *simplify_select(simplifier *s, hlo_instr *instr)
{
  hlo_instr *pred = instr->operands[0], *x = instr->operands[1], *y = instr->operands[2];
  pass_build b = PASS_BUILD_AT(instr);

  if (x == y || is_all(pred, 1)) return simplify_to(s, instr, x);
  if (is_all(pred, 0)) return simplify_to(s, instr, y);
  if (pred->op == HLO_NOT) return simplify_built(s, &b, instr, pb_select(&b, pred->operands[0], y, x));
  if (instr->shape->type == WEFT_PRED && same_shape(instr, pred)) {
    if (is_all(x, 1) && is_all(y, 0)) return simplify_to(s, instr, pred);
    if (is_all(x, 0) && is_all(y, 1)) return simplify_built(s, &b, instr, pb_op1(&b, HLO_NOT, pred));
  }
  /* A select inside a select with the same predicate. */
  if (x->op == HLO_SELECT && x->operands[0] == pred)
    return simplify_built(s, &b, instr, pb_select(&b, pred, x->operands[1], y));
  if (y->op == HLO_SELECT && y->operands[0] == pred)
    return simplify_built(s, &b, instr, pb_select(&b, pred, x, y->operands[2]));
  /* select(x != y, x, y) and select(x == y, y, x) are x for integers. */
  if (pred->op == HLO_COMPARE && !is_floating(x) && same_shape(pred->operands[0], x) &&
      ((pred->operands[0] == x && pred->operands[1] == y) || (pred->operands[0] == y && pred->operands[1] == x))) {
    if (pred->u.compare.direction == HLO_NE) return simplify_to(s, instr, x);
    if (pred->u.compare.direction == HLO_EQ) return simplify_to(s, instr, y);
  }
  return NULL;
}

weft_status *simplify_power(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *y = instr->operands[1];
  pass_build b = PASS_BUILD_AT(instr);

  if (is_all(y, 1)) return simplify_to(s, instr, x);
  if (is_all(y, 2)) return simplify_built(s, &b, instr, pb_mul(&b, x, x));
  bool rounds_twice = weft_dtype_is_float(instr->shape->type) && weft_dtype_bits(instr->shape->type) < 32;
  if (is_all(y, 3) && !rounds_twice) return simplify_built(s, &b, instr, pb_mul(&b, pb_mul(&b, x, x), x));
  if (is_all(y, 0)) return simplify_built(s, &b, instr, pb_splat_int(&b, instr, 1)); /* s1 has no 1: it wraps */
  if (is_all(y, -1) && is_floating(instr)) return simplify_built(s, &b, instr, pb_div(&b, pb_splat(&b, instr, 1), x));
  return NULL;
}

/* True if every value of `from` is a value of `to`, apart from NaN payloads. */
static bool is_widening(weft_dtype from, weft_dtype to)
{
  const weft_float_format *f = weft_dtype_float_format(from), *t = weft_dtype_float_format(to);
  int from_bits = from == WEFT_PRED ? 1 : weft_dtype_bits(from), to_bits = weft_dtype_bits(to);

  if (f && t)
    return from == to || (t->exponent_bits >= f->exponent_bits && t->mantissa_bits >= f->mantissa_bits &&
                          (from == WEFT_F16 || from == WEFT_BF16 || from == WEFT_F32 || to_bits >= 32));
  if (weft_dtype_is_integer(to))
    return (weft_dtype_is_unsigned(from) || from == WEFT_PRED)
             ? (weft_dtype_is_unsigned(to) ? to_bits >= from_bits : to_bits > from_bits)
             : weft_dtype_is_signed(from) && weft_dtype_is_signed(to) && to_bits >= from_bits;
  if (t && (weft_dtype_is_integer(from) || from == WEFT_PRED))
    return t->mantissa_bits + 1 >= from_bits && t->exponent_bits >= 8;
  return false;
}

weft_status *simplify_convert(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *source;
  weft_dtype to = instr->shape->type, via = x->shape->type, from;
  pass_build b = PASS_BUILD_AT(instr);

  if (to == via) return simplify_to(s, instr, x);
  if (x->op == HLO_BROADCAST && hlo_shape_elems(x->operands[0]->shape) < hlo_shape_elems(x->shape)) {
    hlo_instr *small = pb_convert(&b, x->operands[0], to), *wide;
    wide = pb_clone(&b, x, &small);
    if (wide) wide->shape = instr->shape;
    return simplify_built(s, &b, instr, wide);
  }
  if (x->op != HLO_CONVERT) return NULL;
  source = x->operands[0];
  from = source->shape->type;
  /* through a float, integers saturate; a direct conversion would wrap */
  if (is_widening(from, via) &&
      (is_floating(source) || !weft_dtype_is_float(via) || !weft_dtype_is_integer(to) || is_widening(from, to)))
    return simplify_built(s, &b, instr, pb_convert(&b, source, to));
  if (weft_dtype_is_integer(from) && weft_dtype_is_integer(via) && weft_dtype_is_integer(to) &&
      weft_dtype_bits(via) >= weft_dtype_bits(to)) /* integers wrap, so only the low bits count */
    return simplify_built(s, &b, instr, pb_convert(&b, source, to));
  return NULL;
}

weft_status *simplify_bitcast_convert(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  pass_build b = PASS_BUILD_AT(instr);

  if (same_shape(instr, x)) return simplify_to(s, instr, x);
  if (x->op != HLO_BITCAST_CONVERT) return NULL;
  if (same_shape(instr, x->operands[0])) return simplify_to(s, instr, x->operands[0]);
  if (weft_dtype_bits(instr->shape->type) == weft_dtype_bits(x->shape->type) &&
      weft_dtype_bits(x->operands[0]->shape->type) == weft_dtype_bits(x->shape->type))
    return simplify_built(s, &b, instr, pb_bitcast_convert(&b, x->operands[0], instr->shape->type));
  return NULL;
}

weft_status *simplify_max_min(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *y = instr->operands[1];
  bool is_max = instr->op == HLO_MAXIMUM;

  WEFT_TRY(constant_right(s, instr));
  if (s->done) return NULL;
  if (x == y) return simplify_to(s, instr, x);
  if (instr->shape->type == WEFT_PRED) {
    pass_build b = PASS_BUILD_AT(instr);
    return simplify_built(s, &b, instr, pb_op2(&b, is_max ? HLO_OR : HLO_AND, x, y));
  }
  if (weft_dtype_is_unsigned(instr->shape->type) && is_all(y, 0)) return simplify_to(s, instr, is_max ? x : y);
  /* max(x, -inf) is x for every x, NaN included */
  if (weft_dtype_is_float(instr->shape->type) && is_all(y, is_max ? -INFINITY : INFINITY))
    return simplify_to(s, instr, x);
  return NULL;
}

weft_status *simplify_clamp(simplifier *s, hlo_instr *instr)
{
  hlo_instr *inner = instr->operands[1];

  if (inner->op == HLO_CLAMP && inner->operands[0] == instr->operands[0] && inner->operands[2] == instr->operands[2])
    return simplify_to(s, instr, inner);
  return NULL;
}

weft_status *simplify_real_imag(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];

  if (x->op == HLO_COMPLEX) return simplify_to(s, instr, x->operands[instr->op == HLO_IMAG]);
  if (instr->op == HLO_REAL && same_shape(instr, x)) return simplify_to(s, instr, x);
  return NULL;
}

weft_status *simplify_shift(simplifier *s, hlo_instr *instr)
{
  return is_all(instr->operands[1], 0) ? simplify_to(s, instr, instr->operands[0]) : NULL;
}

weft_status *simplify_reduce_precision(simplifier *s, hlo_instr *instr)
{
  const weft_float_format *f = weft_dtype_float_format(instr->shape->type);
  hlo_instr *x = instr->operands[0];

  if (f && instr->u.reduce_precision.exponent_bits == f->exponent_bits &&
      instr->u.reduce_precision.mantissa_bits == f->mantissa_bits)
    return simplify_to(s, instr, x);
  if (x->op == HLO_REDUCE_PRECISION && x->u.reduce_precision.exponent_bits <= instr->u.reduce_precision.exponent_bits &&
      x->u.reduce_precision.mantissa_bits <= instr->u.reduce_precision.mantissa_bits)
    return simplify_to(s, instr, x);
  return NULL;
}
