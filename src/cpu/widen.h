/* cpu/widen.h -- bf16 as f32, for hot functions that widen short runs; cpu_convert does so for long ones. */
#ifndef WEFT_CPU_WIDEN_H
#define WEFT_CPU_WIDEN_H

#include <stdint.h>

#include "cpu/hot.h"

/* to = `count` elements of bf16; both need no alignment beyond their elements'. */
static CPU_INLINE void cpu_widen(int64_t count, const void *from, void *to)
{
  enum { LANES = 8 };
  typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
  typedef uint32_t words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
  typedef uint16_t half __attribute__((may_alias));
  typedef uint32_t word __attribute__((may_alias));
  const half *x = from;
  word *y = to;

#define WIDEN(i) *(words *)(y + (i)) = __builtin_convertvector(*(const halves *)(x + (i)), words) << 16
  if (count >= LANES) { /* the last vector overlaps the one before it */
    for (int64_t i = 0; i + LANES <= count; i += LANES) WIDEN(i);
    WIDEN(count - LANES);
  } else
    for (int64_t i = 0; i < count; i++) y[i] = (uint32_t)x[i] << 16;
#undef WIDEN
}

#endif
