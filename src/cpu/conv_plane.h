/* cpu/conv_plane.h -- convolutions of few features a group whose spatial dimensions are innermost (depthwise
 * convolution as frameworks that keep channels first write it): plane by plane, vectors along the last dimension. */
#ifndef WEFT_CPU_CONV_PLANE_H
#define WEFT_CPU_CONV_PLANE_H

#include "cpu/conv.h"

/* Decides whether `conv`, whose plan is otherwise complete, suits this form, and then sets conv->plane and
 * conv->by_plane. The planes of lhs and out must be dense. */
bool cpu_conv_plane_init(cpu_conv *conv, const hlo_conv_attrs *attrs, const hlo_shape *lhs, const hlo_shape *rhs,
                         const hlo_shape *out);
/* `rhs` lies as the program has it.  Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_conv_plane_run(const cpu_conv *conv, rt_pool *pool, const void *lhs, const void *rhs,
                                               void *out);

#endif
