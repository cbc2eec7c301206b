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

/* The planes of the input as this form spreads them, for others (conv_lines.c). Sets the sizes of conv->plane, of which
 * `compute` is set; false if a plane has more than `most` elements. */
bool cpu_conv_plane_layout(cpu_conv *conv, int64_t most);
/* to = the plane `from` in that layout, converted to the type of the sums. What is padding or a hole is left as it is.
 * `spare` has room for the input's plane in the type of the sums if the types differ. */
void cpu_conv_plane_spread(const cpu_conv *conv, const char *from, char *to, char *spare);
/* For each tap of the kernel, the elements from a pixel's place in its plane to what the tap reads. */
void cpu_conv_plane_taps(const cpu_conv *conv, int64_t *offsets);

#endif
