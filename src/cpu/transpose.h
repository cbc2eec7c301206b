/* cpu/transpose.h -- copies of arrays into another order of their dimensions, on the worker pool. */
#ifndef WEFT_CPU_TRANSPOSE_H
#define WEFT_CPU_TRANSPOSE_H

#include <stdint.h>

#include "hlo/hlo.h"
#include "runtime/pool.h"

typedef struct cpu_transpose {
  int rank;
  int64_t size[HLO_MAX_RANK], step[HLO_MAX_RANK]; /* in the new order; steps are those of the source, in elements */
  int64_t elems, elem_bytes;                      /* an element has 1, 2, 4, 8 or 16 bytes */
} cpu_transpose;

/* dst (dense) = src in the new order. */
void cpu_transpose_run(const cpu_transpose *transpose, rt_pool *pool, void *dst, const void *src);

#endif
