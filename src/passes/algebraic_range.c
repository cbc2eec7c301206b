/* passes/algebraic_range.c -- bounds of integers, as far as they follow from a few operations. Indices made of iotas,
 * clamps and maxima are known not to be negative. Then the test for negative indices, which JAX emits for `x[i]`
 * because a negative index counts from the end, can be removed, and each index is used as it is. */
#include <config.h>

#include "passes/algebraic.h"

/* limits of the depth, and of the operands of a concatenation: an operand with several users is examined once for each
 * user */
enum { DEEPEST = 6, MOST_PARTS = 8 };

typedef struct bounds { int64_t low, high; } bounds; /* inclusive */

/* All numbers of the type; false for types other than integers that fit into 64 bits with a sign. */
static bool bounds_of_type(weft_dtype type, bounds *out)
{
  int bits = (int)weft_dtype_bits(type);

  if (!weft_dtype_is_integer(type) || type == WEFT_PRED || (bits == 64 && weft_dtype_is_unsigned(type))) return false;
  if (weft_dtype_is_unsigned(type)) *out = (bounds){0, (int64_t)(UINT64_MAX >> (64 - bits))};
  else *out = (bounds){-(INT64_MAX >> (64 - bits)) - 1, INT64_MAX >> (64 - bits)};
  return true;
}

static bounds wider(bounds a, bounds b) { return (bounds){WEFT_MIN(a.low, b.low), WEFT_MAX(a.high, b.high)}; }

static bounds find(const hlo_instr *x, int depth);

/* The bounds of x's type, unless all values lie between low and high and none of them can have wrapped (`wraps`). */
static bounds within(const hlo_instr *x, int64_t low, int64_t high, bool wraps)
{
  bounds type = {INT64_MIN, INT64_MAX};

  bounds_of_type(x->shape->type, &type);
  return wraps || low < type.low || high > type.high ? type : (bounds){low, high};
}

static bounds of_constant(const hlo_instr *x)
{
  int64_t value = hlo_shape_elems(x->shape) > 0 ? hlo_literal_get_s64(x->u.literal, 0) : 0;
  bounds all = within(x, 0, 0, true);

  return hlo_literal_is_splat(x->u.literal) ? (bounds){value, value} : all;
}

static bounds of_sum(const hlo_instr *x, bounds a, bounds b)
{
  int64_t low, high;
  bool wraps = x->op == HLO_ADD ? __builtin_add_overflow(a.low, b.low, &low)
                                : __builtin_sub_overflow(a.low, b.high, &low);

  wraps |= x->op == HLO_ADD ? __builtin_add_overflow(a.high, b.high, &high)
                            : __builtin_sub_overflow(a.high, b.low, &high);
  return within(x, low, high, wraps);
}

static bounds of_product(const hlo_instr *x, bounds a, bounds b)
{
  const int64_t left[] = {a.low, a.high}, right[] = {b.low, b.high};
  int64_t low = INT64_MAX, high = INT64_MIN;
  bool wraps = false;

  for (int i = 0; i < 4; i++) {
    int64_t v;
    wraps |= __builtin_mul_overflow(left[i / 2], right[i % 2], &v);
    low = WEFT_MIN(low, v);
    high = WEFT_MAX(high, v);
  }
  return within(x, low, high, wraps);
}

static bounds find(const hlo_instr *x, int depth)
{
  bounds all, a, b;

  if (!hlo_shape_is_array(x->shape) || !bounds_of_type(x->shape->type, &all) || depth == DEEPEST)
    return within(x, 0, 0, true);
  switch (x->op) {
  case HLO_CONSTANT: return of_constant(x);
  case HLO_IOTA: return within(x, 0, WEFT_MAX(x->shape->dims[x->dims.v[0]] - 1, 0), false);
  case HLO_BROADCAST: case HLO_RESHAPE: case HLO_TRANSPOSE: case HLO_SLICE: case HLO_DYNAMIC_SLICE: case HLO_REVERSE:
  case HLO_GATHER: return find(x->operands[0], depth + 1);
  case HLO_CONCATENATE:
    if (x->operand_count > MOST_PARTS) return all;
    a = find(x->operands[0], depth + 1);
    for (int i = 1; i < x->operand_count; i++) a = wider(a, find(x->operands[i], depth + 1 + (x->operand_count > 2)));
    return a;
  case HLO_SELECT: return wider(find(x->operands[1], depth + 1), find(x->operands[2], depth + 1));
  case HLO_CONVERT:
    if (x->operands[0]->shape->type == WEFT_PRED) return within(x, 0, 1, false);
    if (!bounds_of_type(x->operands[0]->shape->type, &a)) return all; /* from a float type or u64 */
    a = find(x->operands[0], depth + 1);
    return within(x, a.low, a.high, false);
  case HLO_MAXIMUM: case HLO_MINIMUM: case HLO_ADD: case HLO_SUBTRACT: case HLO_MULTIPLY: break;
  case HLO_CLAMP: /* the lower bound may be above the upper one, which wins then */
    a = find(x->operands[0], depth + 1);
    b = find(x->operands[2], depth + 1);
    return (bounds){WEFT_MIN(a.low, b.low), b.high};
  /* the remainder has the sign of the dividend; the remainder of a division by zero is the dividend */
  case HLO_REMAINDER: a = find(x->operands[0], depth + 1); return (bounds){WEFT_MIN(a.low, 0), WEFT_MAX(a.high, 0)};
  case HLO_AND: /* with an operand that is not negative the result is between 0 and that operand */
    a = find(x->operands[0], depth + 1);
    b = find(x->operands[1], depth + 1);
    if (a.low < 0 && b.low < 0) return all;
    return (bounds){0, a.low < 0 ? b.high : b.low < 0 ? a.high : WEFT_MIN(a.high, b.high)};
  default: return all;
  }
  a = find(x->operands[0], depth + 1);
  b = find(x->operands[1], depth + 1);
  switch (x->op) {
  case HLO_MAXIMUM: return (bounds){WEFT_MAX(a.low, b.low), WEFT_MAX(a.high, b.high)};
  case HLO_MINIMUM: return (bounds){WEFT_MIN(a.low, b.low), WEFT_MIN(a.high, b.high)};
  case HLO_MULTIPLY: return of_product(x, a, b);
  default: return of_sum(x, a, b);
  }
}

bool compare_by_range(const hlo_instr *compare, bool *out)
{
  const hlo_instr *x = compare->operands[0], *y = compare->operands[1];
  bounds a, b;

  if (!bounds_of_type(x->shape->type, &a)) return false;
  a = find(x, 0);
  b = find(y, 0);
  bool less = a.high<b.low, more = a.low> b.high, no_more = a.high <= b.low, no_less = a.low >= b.high;
  switch (compare->u.compare.direction) {
  case HLO_LT: *out = less; return less || no_less;
  case HLO_GE: *out = no_less; return less || no_less;
  case HLO_GT: *out = more; return more || no_more;
  case HLO_LE: *out = no_more; return more || no_more;
  case HLO_EQ: *out = false; return less || more;
  case HLO_NE: *out = true; return less || more;
  default: return false;
  }
}
