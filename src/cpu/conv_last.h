/* cpu/conv_last.h -- convolutions of two dimensions whose features come last, on processors with vectors of 256 bits,
 * and of few output features with AVX-512, too: products whose left operand is the input itself; no patches are
 * made. */
#ifndef WEFT_CPU_CONV_LAST_H
#define WEFT_CPU_CONV_LAST_H

#include "cpu/conv.h"

/* Plans c->last; false if the convolution or the processor is of another kind. c has its sizes and types and the
 * product of its tasks. */
bool cpu_conv_last_init(cpu_conv *c);

/* Arrays in canonical order; `rhs` as f32.  `packed`: the packed forms of the groups' kernels (of c->gemm); its data is
 * NULL without them.  Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_conv_last_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs,
                                              rt_form packed, void *out);

#endif
