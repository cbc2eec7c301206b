/* codegen/model/library.h -- which instructions become (part of) a compiled kernel, and which a call of a library. */
#ifndef WEFT_CODEGEN_MODEL_LIBRARY_H
#define WEFT_CODEGEN_MODEL_LIBRARY_H

#include "codegen/model/target.h"
#include "hlo/hlo.h"

/* Does an instruction of a sequential computation become a kernel?  Else it is a library call, control flow, a
 * collective or an alias. */
bool gen_needs_kernel(const gen_target *target, const hlo_instr *instr);
/* The same of a dot.  Inside a region every kernel is cheaper, since nothing dispatches it. */
bool gen_dot_needs_kernel(const gen_target *target, const hlo_instr *dot, bool in_region);
/* Has a concatenate so many operands and elements that it is a library call?  Its kernel would have a loop for
 * each operand. */
bool gen_is_wide_concatenate(const hlo_instr *instr);

#endif
