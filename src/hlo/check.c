/* hlo/check.c -- the custom-calls check.*: a program that tests itself.
 * Rules (programs.md section 8): expect_eq compares with ==; expect_almost_eq within an absolute tolerance, NaN equal
 * to NaN; expect_close by the number of floats in between (ULP).  check.eq: integers exactly, floats within 1e-4. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/check.h"

/* The bits of float i, as an integer that grows with the value.  Both zeros give 0. */
static int64_t float_order(const hlo_literal *lit, weft_dtype type, int64_t i)
{
  size_t bytes = weft_dtype_bytes(type);
  int64_t sign_bit = (int64_t)((uint64_t)1 << (weft_dtype_bits(type) - 1));
  uint64_t bits = 0;

  memcpy(&bits, (const char *)lit->data + (size_t)i * bytes, bytes);
  if (!weft_dtype_float_format(type)->has_sign) return (int64_t)bits;
  uint64_t magnitude = bits & ~(uint64_t)sign_bit;
  return bits & (uint64_t)sign_bit ? -(int64_t)magnitude : (int64_t)magnitude;
}

static double float_value(const hlo_literal *lit, weft_dtype type, int64_t i)
{
  uint64_t bits = 0;
  size_t bytes = weft_dtype_bytes(type);

  memcpy(&bits, (const char *)lit->data + (size_t)i * bytes, bytes);
  return type == WEFT_F64 ? ((union { uint64_t u; double d; }){bits}).d : weft_float_decode_f64(type, bits);
}

/* The distance in floats: 0 between two NaNs and between equal values, else UINT64_MAX if either is NaN or infinite. */
static uint64_t ulp_distance(const hlo_literal *got, const hlo_literal *want, weft_dtype type, int64_t i)
{
  double a = float_value(got, type, i), b = float_value(want, type, i);

  if (isnan(a) && isnan(b)) return 0;
  if (a == b && isinf(a)) return 0;
  if (!isfinite(a) || !isfinite(b)) return UINT64_MAX;
  int64_t x = float_order(got, type, i), y = float_order(want, type, i);
  return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

/* True if element i passes.  The components of a complex array count as elements. */
static bool passes(const hlo_check_rule *rule, const hlo_literal *got, const hlo_literal *want, weft_dtype type,
                   int64_t i)
{
  size_t bytes = weft_dtype_bytes(type);

  if (rule->kind == HLO_CHECK_BITWISE || !weft_dtype_is_float(type))
    return memcmp((const char *)got->data + (size_t)i * bytes, (const char *)want->data + (size_t)i * bytes, bytes) ==
           0;
  double a = float_value(got, type, i), b = float_value(want, type, i);
  switch (rule->kind) {
  case HLO_CHECK_ALMOST:
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= rule->tolerance;
  case HLO_CHECK_CLOSE: {
    uint64_t distance = ulp_distance(got, want, type, i);
    return distance >= rule->min_ulp && distance <= rule->max_ulp;
  }
  default: return a == b;
  }
}

static void element_text(const hlo_literal *lit, weft_dtype type, int64_t i, char *buf, size_t size)
{
  if (weft_dtype_is_float(type)) {
    snprintf(buf, size, "%.17g", float_value(lit, type, i));
  } else if (weft_dtype_is_unsigned(type)) {
    snprintf(buf, size, "%" PRIu64, (uint64_t)hlo_literal_get_s64(lit, i));
  } else {
    snprintf(buf, size, "%" PRId64, hlo_literal_get_s64(lit, i));
  }
}

weft_status *hlo_check(const hlo_check_rule *rule, const hlo_literal *got, const hlo_literal *want)
{
  weft_dtype type = weft_dtype_component(got->shape->type);
  int parts = type == got->shape->type ? 1 : 2;
  int64_t n = hlo_shape_elems(got->shape) * parts, failed = 0, first = -1;

  for (int64_t i = 0; i < n; i++)
    if (!passes(rule, got, want, type, i)) {
      if (first < 0) first = i;
      failed++;
    }
  if (first < 0) return NULL;
  char a[64], b[64], index[256] = "";
  int64_t rest = first / parts;
  for (int d = got->shape->rank - 1, at = 0; d >= 0; d--, at++) { /* row-major index, last dimension first */
    char piece[32], before[224];
    snprintf(before, sizeof before, "%.*s", 200, index);
    snprintf(piece, sizeof piece, "%" PRId64 "%s", rest % got->shape->dims[d], at ? "," : "");
    snprintf(index, sizeof index, "%s%s", piece, before);
    rest /= got->shape->dims[d];
  }
  element_text(got, type, first, a, sizeof a);
  element_text(want, type, first, b, sizeof b);
  char ulp[64] = "";
  if (rule->kind == HLO_CHECK_CLOSE && weft_dtype_is_float(type))
    snprintf(ulp, sizeof ulp, ", %" PRIu64 " ULP apart", ulp_distance(got, want, type, first));
  return WEFT_ERR(FAILED_PRECONDITION, "%s: element [%s]%s of %s: got %s, want %s%s; %" PRId64 " of %" PRId64 " differ",
                  rule->name, index,
                  parts == 1  ? ""
                  : first % 2 ? " (imaginary)"
                              : " (real)",
                  hlo_shape_format(got->shape, (char[128]){0}, 128), a, b, ulp, failed, n);
}

/* The text behind "key": in the JSON that lower_check writes; NULL if it is not there. */
static const char *field(const char *config, const char *key)
{
  char quoted[64];
  const char *at;

  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  at = config ? strstr(config, quoted) : NULL;
  return at ? at + strlen(quoted) : NULL;
}

bool hlo_is_check(const hlo_instr *instr)
{
  return instr->op == HLO_CUSTOM_CALL && strncmp(instr->u.custom->target, "check.", 6) == 0;
}

weft_status *hlo_check_rule_of(const hlo_instr *instr, hlo_check_rule *out_rule)
{
  static const hlo_check_rule rules[] = {
      {.name = "check.expect_eq", .kind = HLO_CHECK_EQUAL},
      {.name = "check.expect_almost_eq", .kind = HLO_CHECK_ALMOST, .tolerance = 1e-3},
      {.name = "check.expect_close", .kind = HLO_CHECK_CLOSE, .max_ulp = 3},
      {.name = "check.eq", .kind = HLO_CHECK_ALMOST, .tolerance = 1e-4},
  };
  const char *target = instr->u.custom->target, *config = instr->extra ? instr->extra->backend_config : NULL, *at;
  size_t i;

  for (i = 0; i < WEFT_COUNT(rules) && strcmp(rules[i].name, target) != 0; i++) {}
  if (i == WEFT_COUNT(rules)) return WEFT_ERR(UNIMPLEMENTED, "\"%s\" is no check", target);
  *out_rule = rules[i];
  if (instr->operand_count != 2 || !hlo_shape_is_array(instr->operands[0]->shape) ||
      !hlo_shape_equal(instr->operands[0]->shape, instr->operands[1]->shape, false))
    return WEFT_ERR(
      INVALID_ARGUMENT, "%s: shapes differ: %s (got), %s (want)", target,
      instr->operand_count > 0 ? hlo_shape_format(instr->operands[0]->shape, (char[128]){0}, 128) : "none",
      instr->operand_count > 1 ? hlo_shape_format(instr->operands[1]->shape, (char[128]){0}, 128) : "none");
  if ((at = field(config, "tolerance"))) out_rule->tolerance = strtod(at, NULL);
  if ((at = field(config, "min_ulp_difference"))) out_rule->min_ulp = strtoull(at, NULL, 10);
  if ((at = field(config, "max_ulp_difference"))) out_rule->max_ulp = strtoull(at, NULL, 10);
  if ((at = field(config, "bitwise")) && strncmp(at, "true", 4) == 0) out_rule->kind = HLO_CHECK_BITWISE;
  return NULL;
}
