/* gpu/recording.h -- the steps of a stretch (runtime/program.h) as a CUDA graph. */
#ifndef WEFT_GPU_RECORDING_H
#define WEFT_GPU_RECORDING_H

#include "gpu/gpu_internal.h"
#include "runtime/program.h"

/* Records the steps for the addresses of this run: a graph, owned by the caller, with conditional nodes if the stretch
 * decides. The caller has entered the device. Errors: those of the steps and of the driver. */
WEFT_NODISCARD weft_status *gpu_record_stretch(gpu_platform *platform, const rt_stretch *stretch, rt_ctx *ctx,
                                               gpu_device *gpu, wcu_graph *out_graph);

#endif
