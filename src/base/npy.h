/* base/npy.h -- arrays in NumPy's .npy files (format: numpy.lib.format, versions 1 to 3). */
#ifndef WEFT_BASE_NPY_H
#define WEFT_BASE_NPY_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

enum { WEFT_NPY_MAX_RANK = 32 };

/* An array, dense and row-major; elements are laid out as base/dtype.h says. */
typedef struct weft_npy {
  weft_dtype type;
  int rank;
  int64_t dims[WEFT_NPY_MAX_RANK];
  void *data; /* malloc'd */
  int64_t bytes;
} weft_npy;

/* Reads a file.  A type that NumPy lacks (bf16, f8, s4, ...) is stored as void of its size.  If `expected` is such a
 * type, void and integer elements of its size are read as it; otherwise `expected` has no effect, and void elements
 * are refused.  Big-endian data is swapped, Fortran order is transposed.
 * Errors: NOT_FOUND; INVALID_ARGUMENT naming the file and what is wrong with it; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *weft_npy_read(const char *path, weft_dtype expected, weft_npy *out_array);
void weft_npy_fini(weft_npy *array);

/* Writes a file of version 1, little-endian, in C order; types that NumPy lacks as void of their size.
 * Errors: INVALID_ARGUMENT if the file cannot be created; RESOURCE_EXHAUSTED if it cannot be written. */
WEFT_NODISCARD weft_status *weft_npy_write(const char *path, weft_dtype type, int rank, const int64_t *dims,
                                           const void *data);

#endif
