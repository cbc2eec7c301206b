/* gpu/host_numbers.h -- numbers of any type that linear algebra has, for the routines that the host does. */
#ifndef WEFT_GPU_HOST_NUMBERS_H
#define WEFT_GPU_HOST_NUMBERS_H

#include <complex.h>

#include "hlo/hlo.h"

typedef double complex gpu_number;

static inline bool gpu_is_number(weft_dtype type)
{
  return type == WEFT_F32 || type == WEFT_F64 || type == WEFT_C64 || type == WEFT_C128;
}

/* Element `i` of an array of f32, f64, c64 or c128. */
static inline gpu_number gpu_get_number(weft_dtype type, const void *data, int64_t i)
{
  switch (type) {
  case WEFT_F32: return ((const float *)data)[i];
  case WEFT_F64: return ((const double *)data)[i];
  case WEFT_C64: return ((const float complex *)data)[i];
  default: return ((const double complex *)data)[i];
  }
}

static inline void gpu_put_number(weft_dtype type, void *data, int64_t i, gpu_number value)
{
  switch (type) {
  case WEFT_F32: ((float *)data)[i] = (float)creal(value); break;
  case WEFT_F64: ((double *)data)[i] = creal(value); break;
  case WEFT_C64: ((float complex *)data)[i] = (float complex)value; break;
  default: ((double complex *)data)[i] = value; break;
  }
}

#endif
