/* passes/algebraic.h -- internal to the algebraic simplifier: its state, and its rules by opcode. */
#ifndef WEFT_PASSES_ALGEBRAIC_H
#define WEFT_PASSES_ALGEBRAIC_H

#include "passes/build.h"
#include "passes/pass.h"
#include "passes/util.h"

typedef struct simplifier {
  const pass_options *options;
  pass_worklist work;
  int first_new_id; /* instructions with ids from here on were made by the current rule */
  bool done;        /* the current rule has rewritten the instruction */
} simplifier;

/* Replaces `instr` by `with`, which has the same shape, and queues the instructions that may be simplified further
 * as a consequence. */
WEFT_NODISCARD weft_status *simplify_to(simplifier *s, hlo_instr *instr, hlo_instr *with);
/* Replaces `instr` by what a builder made, or returns the builder's error. */
WEFT_NODISCARD weft_status *simplify_built(simplifier *s, pass_build *b, hlo_instr *instr, hlo_instr *with);
/* Records that `instr` was changed in place, and queues it and its users. */
WEFT_NODISCARD weft_status *simplify_touched(simplifier *s, hlo_instr *instr);

/* A set of rules returns after its first rewrite (s->done). It is called again until no rule applies. */
typedef weft_status *simplify_rule(simplifier *s, hlo_instr *instr);

simplify_rule simplify_add, simplify_subtract, simplify_multiply, simplify_divide, simplify_remainder, simplify_and,
  simplify_or, simplify_xor, simplify_not, simplify_negate, simplify_compare, simplify_select, simplify_power,
  simplify_convert, simplify_bitcast_convert, simplify_max_min, simplify_clamp, simplify_real_imag, simplify_abs,
  simplify_shift, simplify_reduce_precision; /* algebraic_elementwise.c */
simplify_rule simplify_reshape, simplify_transpose, simplify_broadcast, simplify_slice, simplify_concatenate,
  simplify_pad, simplify_reverse, simplify_dynamic_slice, simplify_dynamic_update_slice, simplify_iota, simplify_copy,
  simplify_constant, simplify_gather;                                                      /* algebraic_shape.c */
simplify_rule simplify_reduce, simplify_dot, simplify_reduce_window, simplify_convolution; /* algebraic_reduce.c */

/* True if the bounds of its operands decide an integer comparison; *out is its result then. */
bool compare_by_range(const hlo_instr *compare, bool *out); /* algebraic_range.c */

static inline bool is_all(const hlo_instr *x, double value) { return hlo_is_constant_scalar(x, value); }
static inline bool is_floating(const hlo_instr *x)
{
  return weft_dtype_is_float(x->shape->type) || weft_dtype_is_complex(x->shape->type);
}
static inline bool same_shape(const hlo_instr *a, const hlo_instr *b)
{
  return hlo_shape_equal(a->shape, b->shape, false);
}

#endif
