/* hlo/infer.h -- shape inference and verification: one set of rules for both. */
#ifndef WEFT_HLO_INFER_H
#define WEFT_HLO_INFER_H

#include "hlo/hlo.h"

/* Works out the result shape of `instr` from its opcode, operands, attributes and called computations; instr->shape is
 * read only for what HLO leaves free (element type of dot and convert, dims of reshape and iota, ...) and may be NULL
 * where nothing is free.  The result is in the module's arena (layouts default).
 * Errors: INVALID_ARGUMENT with both sides ("dot: contracting sizes differ: 512 (lhs dim 1), 256 (rhs dim 0)"). */
WEFT_NODISCARD weft_status *hlo_infer_shape(const hlo_instr *instr, const hlo_shape **out_shape);

/* The whole module: structure (roots, parameters, order, users, names, calls without recursion), every instruction's
 * attributes, and that its shape is the inferred one (layouts aside; element type where HLO leaves it free).
 * Errors: INVALID_ARGUMENT naming computation and instruction. */
WEFT_NODISCARD weft_status *hlo_verify(const hlo_module *module);

#endif
