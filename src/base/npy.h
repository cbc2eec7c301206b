/* base/npy.h -- arrays in NumPy's .npy files (format: numpy.lib.format, versions 1 to 3). */
#ifndef WEFT_BASE_NPY_H
#define WEFT_BASE_NPY_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

enum { WEFT_NPY_MAX_RANK = 32 };

/* An array, dense and row-major, as base/dtype.h lays elements out. */
typedef struct weft_npy {
  weft_dtype type;
  int rank;
  int64_t dims[WEFT_NPY_MAX_RANK];
  void *data; /* malloc'd */
  int64_t bytes;
} weft_npy;

/* Reads a file.  Types that NumPy lacks (bf16, f8, s4, ...) are stored as void of their size: `expected` says which one
 * is meant; WEFT_INVALID where that does not matter.  Big-endian files are swapped, Fortran order is transposed.
 * Errors: NOT_FOUND; INVALID_ARGUMENT naming the file and what is wrong with it; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *weft_npy_read(const char *path, weft_dtype expected, weft_npy *out_array);
void weft_npy_fini(weft_npy *array);

/* Writes version 1 (or 2 for a long header), little-endian, C order; types that NumPy lacks as void of their size. */
WEFT_NODISCARD weft_status *weft_npy_write(const char *path, weft_dtype type, int rank, const int64_t *dims,
                                           const void *data);

#endif
