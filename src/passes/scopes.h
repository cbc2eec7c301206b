/* passes/scopes.h -- names of operations are completed by the scopes of their caller (scopes.c). */
#ifndef WEFT_PASSES_SCOPES_H
#define WEFT_PASSES_SCOPES_H

#include "hlo/hlo.h"

/* Completes the name of the operation `instr` by `outer`, the name of its caller, or leaves it if it is complete.
 * `outer` may be NULL: there is no name. `is_call`: the caller is a call, not control flow. Sets *changed, which may be
 * NULL, if the name changes. */
WEFT_NODISCARD weft_status *pass_complete_scopes(hlo_instr *instr, const char *outer, bool is_call, bool *changed);

#endif
