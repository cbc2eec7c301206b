/* gpu/talk.h -- stretches (runtime/program.h) with collectives of NCCL, as graphs. */
#ifndef WEFT_GPU_TALK_H
#define WEFT_GPU_TALK_H

#include "gpu/gpu_internal.h"
#include "runtime/program.h"

/* The graphs of one stretch on all devices. */
typedef struct gpu_talks gpu_talks;

WEFT_NODISCARD weft_status *gpu_talks_new(gpu_platform *platform, rt_stretch *stretch, gpu_talks **out_talks);
void gpu_talks_free(gpu_talks *talks); /* no run is under way; NULL is fine */

/* As rt_stretch.start. */
WEFT_NODISCARD weft_status *gpu_talks_start(gpu_talks *talks, rt_ctx *ctx, bool *out_started);

#endif
