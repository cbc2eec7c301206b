/* cpu/conv_phases.h -- how the forms on AMX tiles spread an image: with its padding, and with strides by phases. */
#ifndef WEFT_CPU_CONV_PHASES_H
#define WEFT_CPU_CONV_PHASES_H

#include "cpu/conv.h"

enum { CPU_CONV_MOST_TAPS = 512 };

/* Plans the phases from the sizes of `c`. False: they are too large, or have too many columns for the pixels of the
 * result. */
bool cpu_conv_phases_plan(const cpu_conv *c, cpu_conv_phases *phases);

/* taps[c->taps]: places from a column to what each tap reads for it. */
void cpu_conv_phases_taps(const cpu_conv *c, const cpu_conv_phases *phases, int64_t *taps);

/* The places lo <= i < hi of a line of phase `q` (along the line) that lie in the input, not in its padding. Place i is
 * the input's i * stride + q - pad_low. */
void cpu_conv_phases_inside(const cpu_conv *c, const cpu_conv_phases *phases, int64_t q, int64_t *lo, int64_t *hi);

/* Which of the columns from `column` on, at most 32 up to `end`, are pixels of the result. *pixel: the first one. */
uint32_t cpu_conv_phases_pixels(const cpu_conv *c, const cpu_conv_phases *phases, int64_t column, int64_t end,
                                int64_t *pixel);

#endif
