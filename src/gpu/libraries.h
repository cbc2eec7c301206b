/* gpu/libraries.h -- the states that NVIDIA's libraries keep for a device, opened when the first step needs them. */
#ifndef WEFT_GPU_LIBRARIES_H
#define WEFT_GPU_LIBRARIES_H

#include "base/thread.h"
#include "gpu/blas.h"
#include "gpu/dnn.h"
#include "gpu/solver.h"
#include "gpu/triangular.h"

/* A member of gpu_device. */
typedef struct gpu_libraries {
  weft_mutex mu;  /* held while a library's state is opened */
  gpu_blas *blas WEFT_GUARDED_BY(mu); /* NULL: not opened; likewise below */
  gpu_cublas *cublas WEFT_GUARDED_BY(mu);
  gpu_dnn *dnn WEFT_GUARDED_BY(mu);
  gpu_solver *solver WEFT_GUARDED_BY(mu);
} gpu_libraries;

void gpu_libraries_init(gpu_libraries *libraries);
/* Frees the states.  The device's context is current; no queued work uses them. */
void gpu_libraries_close(gpu_libraries *libraries);
void gpu_libraries_fini(gpu_libraries *libraries);

struct gpu_device;

/* The device's state of a library, borrowed; it lives as long as the device.  The device's context is current on the
 * calling thread.  Thread-safe.  Errors: UNAVAILABLE where the library is not found; those of the library. */
WEFT_NODISCARD weft_status *gpu_blas_of(struct gpu_device *gpu, gpu_blas **out_blas);
WEFT_NODISCARD weft_status *gpu_cublas_of(struct gpu_device *gpu, gpu_cublas **out_cublas);
WEFT_NODISCARD weft_status *gpu_dnn_of(struct gpu_device *gpu, gpu_dnn **out_dnn);
WEFT_NODISCARD weft_status *gpu_solver_of(struct gpu_device *gpu, gpu_solver **out_solver);

#endif
