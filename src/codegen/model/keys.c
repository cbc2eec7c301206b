/* codegen/model/keys.c -- recognises comparators: decides whether a computation is a lexicographic order of keys. */
#include <config.h>

#include <math.h>

#include "codegen/model/keys.h"

/* What a side of a compare does to its parameter: nothing, or what JAX does so that NaNs and zeros compare alike:
 *   select(compare(x, x, NE), nan, select(compare(x, 0, EQ), 0, x)) */
typedef struct key_expr {
  int64_t parameter;
  bool merge_zeros, merge_nans;
} key_expr;

static bool is_constant(const hlo_instr *in, bool nan)
{
  if (in->op == HLO_CONVERT) in = in->operands[0];
  if (in->op != HLO_CONSTANT || !weft_dtype_is_float(in->shape->type) || !hlo_shape_is_scalar(in->shape)) return false;
  double value = hlo_literal_get_f64(in->u.literal, 0);
  return nan ? isnan(value) : value == 0;
}

static bool read_key(const hlo_instr *in, key_expr *key)
{
  if (in->op == HLO_PARAMETER) {
    *key = (key_expr){.parameter = in->u.parameter_number};
    return true;
  }
  if (in->op == HLO_COPY) return read_key(in->operands[0], key);
  if (in->op == HLO_CONVERT) { /* a conversion to a wider float keeps the order */
    weft_dtype from = in->operands[0]->shape->type, to = in->shape->type;
    return (from == WEFT_BF16 || from == WEFT_F16 || from == WEFT_F32) && (to == WEFT_F32 || to == WEFT_F64) &&
           weft_dtype_bits(from) < weft_dtype_bits(to) && read_key(in->operands[0], key);
  }
  if (in->op != HLO_SELECT) return false;
  const hlo_instr *when = in->operands[0], *then = in->operands[1];
  key_expr about;
  if (!read_key(in->operands[2], key) || when->op != HLO_COMPARE || !read_key(when->operands[0], &about) ||
      about.parameter != key->parameter)
    return false;
  if (when->u.compare.direction == HLO_NE && when->operands[0] == when->operands[1] && is_constant(then, true))
    return key->merge_nans = true;
  if (when->u.compare.direction == HLO_EQ && is_constant(when->operands[1], false) && is_constant(then, false))
    return key->merge_zeros = true;
  return false;
}

/* compare(key of the left element, the same key of the right element) in one of `directions`. */
static bool read_compare(const hlo_instr *in, hlo_direction *direction, gen_key *out)
{
  key_expr a, b;

  if (in->op != HLO_COMPARE || !read_key(in->operands[0], &a) || !read_key(in->operands[1], &b)) return false;
  if (a.merge_nans != b.merge_nans || a.merge_zeros != b.merge_zeros || a.parameter / 2 != b.parameter / 2)
    return false;
  *direction = in->u.compare.direction;
  if (a.parameter == b.parameter + 1) { /* compare(b, a): the opposite direction */
    static const hlo_direction turned[] = {[HLO_EQ] = HLO_EQ, [HLO_NE] = HLO_NE, [HLO_GE] = HLO_LE, [HLO_GT] = HLO_LT,
                                           [HLO_LE] = HLO_GE, [HLO_LT] = HLO_GT};
    *direction = turned[*direction];
  } else if (b.parameter != a.parameter + 1) {
    return false;
  }
  weft_dtype type = in->parent->params[a.parameter & ~INT64_C(1)]->shape->type;
  bool by_value = weft_dtype_is_float(type) && in->u.compare.type != HLO_COMPARE_TOTALORDER;
  *out = (gen_key){.operand = (int)(a.parameter / 2),
                   .type = type,
                   .merge_zeros = a.merge_zeros || by_value,
                   .merge_nans = a.merge_nans || by_value,
                   .nans_last = by_value};
  return true;
}

static bool read_less(const hlo_instr *in, gen_key *key)
{
  hlo_direction direction;

  if (!read_compare(in, &direction, key) || (direction != HLO_LT && direction != HLO_GT)) return false;
  key->descending = direction == HLO_GT;
  return true;
}

/* order := less | or(less, and(equal of the same key, order)), the operands of or and and in any order. */
bool gen_keys_of(const hlo_computation *comparator, gen_key *keys, int *key_count)
{
  const hlo_instr *in = comparator->root;

  for (*key_count = 0; *key_count < GEN_MOST_KEYS;) {
    gen_key equal, *key = &keys[(*key_count)++];
    hlo_direction direction;
    if (read_less(in, key)) return true;
    if (in->op != HLO_OR) return false;
    int less = read_less(in->operands[0], key) ? 0 : 1;
    const hlo_instr *rest = in->operands[1 - less];
    if ((less == 1 && !read_less(in->operands[1], key)) || rest->op != HLO_AND) return false;
    int same = read_compare(rest->operands[0], &direction, &equal) && direction == HLO_EQ ? 0 : 1;
    if (same == 1 && !(read_compare(rest->operands[1], &direction, &equal) && direction == HLO_EQ)) return false;
    if (equal.operand != key->operand || equal.merge_zeros != key->merge_zeros || equal.merge_nans != key->merge_nans)
      return false;
    in = rest->operands[1 - same];
  }
  return false;
}

bool gen_key_is_bits(weft_dtype type)
{
  switch (weft_dtype_class_of(type)) {
  case WEFT_CLASS_PRED:
  case WEFT_CLASS_SINT:
  case WEFT_CLASS_UINT: return true;
  case WEFT_CLASS_FLOAT: return type == WEFT_F16 || type == WEFT_BF16 || type == WEFT_F32 || type == WEFT_F64;
  default: return false;
  }
}
