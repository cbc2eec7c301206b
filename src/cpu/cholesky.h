/* cpu/cholesky.h -- Cholesky factors of small real matrices. */
#ifndef WEFT_CPU_CHOLESKY_H
#define WEFT_CPU_CHOLESKY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

enum { CPU_CHOLESKY_MOST = 64 };

/* The factor of one row-major n by n matrix of f32 or f64, n at most CPU_CHOLESKY_MOST: reads the lower (or upper)
 * triangle of `in` and writes that of `out`, which may be `in`. False, with nothing written, for other types, and
 * where a pivot is not positive or is NaN. */
bool cpu_cholesky_small(weft_dtype type, int64_t n, bool lower, const void *in, void *out);

#endif
