/* cpu/conv_lines.h -- convolutions of f32, and with AVX2 alone of bf16, whose features come before their pixels:
 * products of the kernel, as it lies, and of panels that are gathered from lines of the input. */
#ifndef WEFT_CPU_CONV_LINES_H
#define WEFT_CPU_CONV_LINES_H

#include "cpu/conv.h"

/* Plans c->lines, c->plane and c->packing; false if the convolution or the processor is of another kind. c has its
 * sizes and types, and its arrays have features before pixels, without base dilation, reversal and groups. */
bool cpu_conv_lines_init(cpu_conv *c);

/* `packed`: the packed form of rhs, or NULL. `scratch`: c->lines.scratch_bytes. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_conv_lines_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs,
                                               const rt_form *packed, void *out, void *scratch);

#endif
