/* hlo/check.h -- the custom-calls check.*, by which a program tests itself: a comparison of two arrays. */
#ifndef WEFT_HLO_CHECK_H
#define WEFT_HLO_CHECK_H

#include "hlo/hlo.h"

typedef struct hlo_check_rule {
  const char *name; /* static: the target */
  enum { HLO_CHECK_EQUAL, HLO_CHECK_BITWISE, HLO_CHECK_ALMOST, HLO_CHECK_CLOSE } kind;
  double tolerance;          /* ALMOST: absolute */
  uint64_t min_ulp, max_ulp; /* CLOSE: how many floats apart */
} hlo_check_rule;

bool hlo_is_check(const hlo_instr *instr);

/* How a check compares.  A check operation of StableHLO's dialect has its tolerance in backend_config; the
 * custom-call of the StableHLO test data has none and follows the rules of StableHLO's test runner (programs.md
 * section 8).
 * Errors: UNIMPLEMENTED for another target; INVALID_ARGUMENT if the operands are not two arrays of one shape. */
WEFT_NODISCARD weft_status *hlo_check_rule_of(const hlo_instr *instr, hlo_check_rule *out_rule);

/* Returns NULL if the check holds.
 * Errors: FAILED_PRECONDITION with the first element that differs, the value and the expected value. */
WEFT_NODISCARD weft_status *hlo_check(const hlo_check_rule *rule, const hlo_literal *got, const hlo_literal *want);

#endif
