/* cpu/conv_first.h -- convolutions of arrays whose features come before their pixels: products of the weights, as they
 * lie, and of patches; nothing is copied into another order. */
#ifndef WEFT_CPU_CONV_FIRST_H
#define WEFT_CPU_CONV_FIRST_H

#include "cpu/conv.h"

/* True if the arrays are f32 or bf16, and have features before pixels in the one order that conv_lines.c and
 * conv_tiles.c know, too; and if the window has neither holes nor reversal. c has its sizes and types. */
bool cpu_conv_is_first(const cpu_conv *c, const hlo_conv_attrs *attrs);

/* Plans c->first_plan; false if the convolution is of another form. c has its sizes and types. */
bool cpu_conv_first_init(cpu_conv *c, const hlo_conv_attrs *attrs);

/* `scratch`: c->first_plan.shared_bytes. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_conv_first_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs,
                                               void *out, void *scratch);

#endif
