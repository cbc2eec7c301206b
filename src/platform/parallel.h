/* platform/parallel.h -- interpreter.run_parallel: a grid of programs on devices of this process, with their collectives. */
#ifndef WEFT_PLATFORM_PARALLEL_H
#define WEFT_PLATFORM_PARALLEL_H

#include "hlo/eval.h"

/* True for the custom-call that StableHLO's interpreter.run_parallel becomes. */
bool plat_is_run_parallel(const hlo_instr *instr);

/* Runs its programs, replica by replica and partition by partition, on devices made for this call.  For hlo_eval_options:
 * `operands` are those of the programs one after the other, the results likewise, in `arena`.
 * Programs that differ run each on its device and talk through channels of the host.
 * Errors: UNIMPLEMENTED if programs that differ have collectives; what compiling and running them gives. */
WEFT_NODISCARD weft_status *plat_run_parallel(const hlo_instr *call, const hlo_literal *const *operands,
                                              weft_arena *arena, const hlo_literal **out);

/* The same together with check.*, as hlo_eval_options.custom_call; ctx: an int that counts the checks, or NULL. */
WEFT_NODISCARD weft_status *plat_interpreter_call(void *ctx, const hlo_instr *call, const hlo_literal *const *operands,
                                                  weft_arena *arena, const hlo_literal **out);

#endif
