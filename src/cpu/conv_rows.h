/* cpu/conv_rows.h -- convolutions of bf16 whose features come last, on AMX tiles whose rows are pixels, without a
 * matrix of patches. */
#ifndef WEFT_CPU_CONV_ROWS_H
#define WEFT_CPU_CONV_ROWS_H

#include "cpu/conv.h"

/* Plans c->rows and the packed form of the kernel, whose dimensions are in any order; false if the convolution or this
 * machine is of another kind. c has its sizes and types, and order_lhs and order_out. */
bool cpu_conv_rows_init(cpu_conv *c, const hlo_conv_attrs *attrs, const hlo_shape *rhs);

/* `packed`: the form of the kernel, or NULL. `then`: what takes the pixels in place of `out`, if the plan has one task
 * for all features (cpu_conv_takes_pixels); else NULL. `scratch`: c->rows.scratch_bytes. */
void cpu_conv_rows_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs, const rt_form *packed,
                       void *out, const cpu_conv_then *then, void *scratch);

#endif
