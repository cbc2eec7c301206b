/* lower/host_steps.h -- steps that every platform does on the host. Their thunks have `run` or `start`, and want their
 * arguments in host memory. */
#ifndef WEFT_LOWER_HOST_STEPS_H
#define WEFT_LOWER_HOST_STEPS_H

#include "lower/lower.h"

/* A step that has no kernel: the reference evaluator (hlo/eval.h) does it. */
WEFT_NODISCARD weft_status *low_evaluate_make(low_step *step, rt_thunk **out_thunk);

/* A custom call, by its target: checks, printing, markers, typed FFI handlers and untyped functions for the host.
 * Planning finds the handler and has it instantiate itself; plan->data is its call.
 *   register_more  registers the platform's own handlers; it is called if no handler has the target's name. Or NULL
 * Errors: those of `register_more`, and of handlers. */
WEFT_NODISCARD weft_status *low_custom_call_plan(weft_arena *arena, const hlo_instr *instr,
                                                 weft_status *(*register_more)(void), low_plan *plan);
/* Makes the thunk of a call that low_custom_call_plan has planned. Errors: that of planning; UNIMPLEMENTED, naming a
 * target that nobody has registered. */
WEFT_NODISCARD weft_status *low_custom_call_make(low_step *step, rt_thunk **out_thunk);

WEFT_NODISCARD weft_status *low_print_make(low_step *step, rt_thunk **out_thunk); /* interpreter.print */

#endif
