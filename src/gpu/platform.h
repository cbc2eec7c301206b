/* gpu/platform.h -- the platform "cuda": NVIDIA's GPUs, through a driver that is found at run time. */
#ifndef WEFT_GPU_PLATFORM_H
#define WEFT_GPU_PLATFORM_H

#include "base/options.h"
#include "runtime/platform.h"

extern const weft_platform_ops gpu_platform_ops;
extern const weft_option_table gpu_options; /* WEFT_CUDA_LIBDIR and others */

#endif
