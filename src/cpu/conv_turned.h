/* cpu/conv_turned.h -- convolutions of f32 with windows of one element on small images whose features come before their
 * pixels: the lanes of vectors are output features, since the pixels would leave some idle. */
#ifndef WEFT_CPU_CONV_TURNED_H
#define WEFT_CPU_CONV_TURNED_H

#include "cpu/conv.h"

/* Plans c->turned and the packed form of the kernel; false if the convolution or this machine is of another kind. c has
 * its sizes and types; its arrays are in the order of conv_first.h. */
bool cpu_conv_turned_init(cpu_conv *c);

/* `packed`: the form of the kernel, or NULL. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_conv_turned_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs,
                                                const rt_form *packed, void *out);

#endif
