/* hlo/infer.h -- shape inference and verification: one set of rules for both. */
#ifndef WEFT_HLO_INFER_H
#define WEFT_HLO_INFER_H

#include "hlo/hlo.h"

/* Computes the result shape of `instr` from its opcode, operands, attributes and called computations.  instr->shape
 * is read only for what HLO leaves free (element type of dot and convert, dims of reshape and iota, ...) and may be
 * NULL where nothing is free.  *out_shape is new in the module's arena, or it is the given shape or that of an
 * operand or a computation; ignore its layouts.
 * Errors: INVALID_ARGUMENT with both sides ("dot: contracting sizes differ: 512 (lhs dim 1), 256 (rhs dim 0)");
 * UNIMPLEMENTED for operands with unbounded dimensions; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *hlo_infer_shape(const hlo_instr *instr, const hlo_shape **out_shape);

/* Verifies a module: its structure (roots, parameters, order, users, names, calls without recursion), every
 * instruction's attributes, and that the shape of every instruction is the inferred one.  Layouts are not compared,
 * nor element types where HLO leaves them free.
 * Errors: INVALID_ARGUMENT naming computation and instruction. */
WEFT_NODISCARD weft_status *hlo_verify(const hlo_module *module);

#endif
