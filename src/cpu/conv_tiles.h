/* cpu/conv_tiles.h -- convolutions of bf16 whose features come before their pixels, on AMX tiles, without a matrix of
 * patches. */
#ifndef WEFT_CPU_CONV_TILES_H
#define WEFT_CPU_CONV_TILES_H

#include "cpu/conv.h"

/* Plans c->tiles and the packed form of the kernel; false if the convolution or this machine is of another kind. c has
 * its sizes and types; its arrays are of one type and in the order of conv_first.h, its result is of that type or
 * f32. */
bool cpu_conv_tiles_init(cpu_conv *c);

/* `packed`: the form of the kernel, or NULL. `scratch`: c->tiles.scratch_bytes. Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_conv_tiles_run(const cpu_conv *c, rt_pool *pool, const void *lhs, const void *rhs,
                                               const rt_form *packed, void *out, void *scratch);

#endif
