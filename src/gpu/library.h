/* gpu/library.h -- NVIDIA's libraries, opened at run time: Weft needs none of them to build or to start. */
#ifndef WEFT_GPU_LIBRARY_H
#define WEFT_GPU_LIBRARY_H

#include "base/status.h"

/* Opens a shared library by its soname ("libcuda.so.1"): from the folder WEFT_CUDA_LIBDIR if that is set, and from
 * nowhere else then; otherwise a copy that the process has loaded already, or where the loader finds one, or from the
 * folder that was given to configure.  The library stays open for the life of the process.  Thread-safe.  Errors:
 * UNAVAILABLE, with the loader's message for each place. */
WEFT_NODISCARD weft_status *gpu_library_open(const char *soname, void **out_library);

/* The address of a symbol; NULL: the library does not have it. */
void *gpu_library_symbol(void *library, const char *symbol);

#endif
