/* gpu/recording.h -- the steps of a stretch (runtime/program.h) as a CUDA graph. */
#ifndef WEFT_GPU_RECORDING_H
#define WEFT_GPU_RECORDING_H

#include "gpu/gpu_internal.h"
#include "runtime/program.h"

/* Queues a step that has no `enqueue`, where the steps of the calling thread are queued now (gpu_begin_step). */
typedef weft_status *gpu_put_step(void *ctx, const rt_thunk *step);

/* Records the steps for the addresses of this run: a graph, owned by the caller, with conditional nodes if the stretch
 * decides. The caller has entered the device. `put` is for a stretch that talks. Errors: those of the steps and of the
 * driver. */
WEFT_NODISCARD weft_status *gpu_record_stretch(gpu_platform *platform, const rt_stretch *stretch, rt_ctx *ctx,
                                               gpu_device *gpu, gpu_put_step *put, void *put_ctx, wcu_graph *out_graph);

/* Queues the steps of a stretch that does not decide, one by one. */
WEFT_NODISCARD weft_status *gpu_queue_stretch(const rt_stretch *stretch, rt_ctx *ctx, gpu_put_step *put, void *put_ctx);

/* How often the sequence in a step of such a stretch is queued: once for a call, once a round for a loop; 0: there is
 * none. */
int64_t gpu_rounds_of(const rt_thunk *step);

#endif
