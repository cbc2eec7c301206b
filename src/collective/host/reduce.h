/* collective/host/reduce.h -- element-wise reductions of every element type. */
#ifndef WEFT_COLLECTIVE_HOST_REDUCE_H
#define WEFT_COLLECTIVE_HOST_REDUCE_H

#include "weft/collective.h"

/* A reduction of one type; an operation looks it up once. */
typedef struct coll_reducer {
  weft_dtype dtype;
  weft_reduction reduction;
  weft_reducer custom;
  size_t elem_bytes;
  void (*combine)(void *dst, const void *a, const void *b, size_t count); /* NULL: through f32, or custom */
} coll_reducer;

/* Errors: INVALID_ARGUMENT, where the type has no such reduction (minimum of complex numbers, bitwise and of
 * floats). */
WEFT_NODISCARD weft_status *coll_reducer_init(coll_reducer *r, weft_dtype dtype, weft_reduction reduction,
                                              const weft_reducer *custom);

/* dst = a (+) b, each `bytes` long.  `dst` may be `a` or `b`, and must not overlap them otherwise. */
void coll_reduce(const coll_reducer *r, void *dst, const void *a, const void *b, size_t bytes);

/* Writes the left fold of parts[0..part_count) to every one of dsts[0..dst_count), from byte `at` of each on.  Any
 * dst may be any part.  Types narrower than f32 are rounded once, at the end. */
void coll_fold(const coll_reducer *r, void *const *dsts, int dst_count, const void *const *parts, int part_count,
               size_t at, size_t bytes);

#endif
