/* gpu/libraries.c -- the states that NVIDIA's libraries keep for a device (libraries.h). */
#include <config.h>

#include "gpu/libraries.h"

#include "gpu/gpu_internal.h"

void gpu_libraries_init(gpu_libraries *libraries) WEFT_UNSHARED
{
  *libraries = (gpu_libraries){.blas = NULL};
  weft_mutex_init(&libraries->mu);
}

void gpu_libraries_close(gpu_libraries *libraries) WEFT_UNSHARED
{
  gpu_blas_free(libraries->blas);
  gpu_cublas_free(libraries->cublas);
  gpu_dnn_free(libraries->dnn);
  gpu_solver_free(libraries->solver);
}

void gpu_libraries_fini(gpu_libraries *libraries) { weft_mutex_fini(&libraries->mu); }

/* gpu_NAME_of: opens the library when it is called first. */
#define OPEN_ONCE(name)                                                          \
  weft_status *gpu_##name##_of(struct gpu_device *gpu, gpu_##name **out)          \
  {                                                                              \
    weft_status *st = NULL;                                                      \
    weft_mutex_lock(&gpu->libraries.mu);                                         \
    if (!gpu->libraries.name) st = gpu_##name##_new(&gpu->libraries.name);       \
    *out = gpu->libraries.name;                                                  \
    weft_mutex_unlock(&gpu->libraries.mu);                                       \
    return st;                                                                   \
  }
OPEN_ONCE(blas)
OPEN_ONCE(cublas)
OPEN_ONCE(dnn)
OPEN_ONCE(solver)
