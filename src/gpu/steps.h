/* gpu/steps.h -- declarations that the files of library steps share (steps.c, linalg_steps.c). */
#ifndef WEFT_GPU_STEPS_H
#define WEFT_GPU_STEPS_H

#include "gpu/libraries.h"
#include "gpu/makers.h"

/* The device whose libraries plan steps at compile time.  All devices of a platform are of one kind. */
static inline gpu_device *gpu_planner(const gpu_target *target) { return &target->platform->gpus[0]; }

static inline wcu_ptr gpu_address(const void *p) { return (wcu_ptr)(uintptr_t)p; }

/* Takes `st`.  Turns UNAVAILABLE (the library is not installed) into UNIMPLEMENTED (the step runs on the host). */
WEFT_NODISCARD weft_status *gpu_or_on_host(weft_status *st);

/* Queues a copy of operand `from` to result `to` of the thunk, unless they share their memory. */
WEFT_NODISCARD weft_status *gpu_copy_operand(const rt_thunk *thunk, const rt_ctx *ctx, int from, int to,
                                             wcu_stream stream);

#endif
