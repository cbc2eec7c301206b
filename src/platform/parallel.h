/* platform/parallel.h -- interpreter.run_parallel: a grid of programs on devices of
 * this process, with their collectives. */
#ifndef WEFT_PLATFORM_PARALLEL_H
#define WEFT_PLATFORM_PARALLEL_H

#include "hlo/eval.h"

/* True for the custom-call that StableHLO's interpreter.run_parallel becomes. */
bool plat_is_run_parallel(const hlo_instr *instr);

/* Runs the programs of a call on devices made for the call. Programs are listed by replica, then partition.
 * `operands` are those of all programs, one program after the other; so are the results, which are in `arena`.
 * Programs that differ run each on its own device and communicate through channels of the host.
 * Errors: UNIMPLEMENTED if programs that differ have collectives; what compiling and running them gives. */
WEFT_NODISCARD weft_status *plat_run_parallel(const hlo_instr *call, const hlo_literal *const *operands,
                                              weft_arena *arena, const hlo_literal **out);

/* A function for hlo_eval_options.custom_call: run_parallel and check.*. ctx: an int that counts the checks, or
 * NULL. */
WEFT_NODISCARD weft_status *plat_interpreter_call(void *ctx, const hlo_instr *call, const hlo_literal *const *operands,
                                                  weft_arena *arena, const hlo_literal **out);

#endif
