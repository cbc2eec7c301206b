/* cpu/conv_phases.c -- see conv_phases.h. Pixels of the result are counted through the whole of a phase, with those in
 * the padding between lines, which are no pixels: a *column* is a pixel so counted. */
#include <config.h>

#include "cpu/conv_phases.h"

#include "base/macros.h"

enum {
  MOST_PLACES = 1 << 26, /* of an image */
  MOST_WASTE = 4,        /* columns for each pixel of the result */
};

bool cpu_conv_phases_plan(const cpu_conv *c, cpu_conv_phases *p)
{
  p->columns = p->all = p->places = 1;
  for (int d = c->spatial - 1; d >= 0; d--) {
    const hlo_window_dim *w = &c->window[d];
    if (c->kernel_size[d] > CPU_CONV_MOST_TAPS || w->window_dilation > MOST_PLACES || c->out_size[d] > MOST_PLACES)
      return false;
    int64_t reach = (c->kernel_size[d] - 1) * w->window_dilation;
    p->count[d] = WEFT_MIN(w->stride, reach + 1);
    p->size[d] = c->out_size[d] + reach / w->stride;
    p->step[d] = p->places;
    p->columns += (c->out_size[d] - 1) * p->step[d];
    p->places *= p->size[d];
    p->all *= p->count[d];
    if (p->places > MOST_PLACES || p->all > MOST_PLACES / p->places) return false;
  }
  return p->columns <= MOST_WASTE * c->out_pixels;
}

void cpu_conv_phases_taps(const cpu_conv *c, const cpu_conv_phases *p, int64_t *taps)
{
  int64_t tap[HLO_MAX_RANK] = {0};

  do {
    int64_t at = 0, phase = 0;
    for (int d = 0; d < c->spatial; d++) {
      int64_t place = tap[d] * c->window[d].window_dilation, stride = c->window[d].stride;
      at += place / stride * p->step[d];
      phase = phase * p->count[d] + place % stride;
    }
    *taps++ = phase * p->places + at;
  } while (cpu_conv_next(c->spatial, c->kernel_size, tap));
}

void cpu_conv_phases_inside(const cpu_conv *c, const cpu_conv_phases *p, int64_t q, int64_t *lo, int64_t *hi)
{
  int last = c->spatial - 1;
  const hlo_window_dim *w = &c->window[last];
  int64_t count = p->size[last], first = q - w->pad_low;
  int64_t end = first >= c->in_size[last] ? 0 : (c->in_size[last] - 1 - first) / w->stride + 1;

  *lo = first >= 0 ? 0 : WEFT_MIN(count, (-first + w->stride - 1) / w->stride);
  *hi = WEFT_MAX(*lo, WEFT_MIN(end, count));
}

uint32_t cpu_conv_phases_pixels(const cpu_conv *c, const cpu_conv_phases *p, int64_t column, int64_t end,
                                int64_t *pixel)
{
  int last = c->spatial - 1;
  int64_t width = c->out_size[last], pitch = p->size[last];
  uint32_t which = 0;

  for (int64_t at = column; at < end;) {
    int64_t x = at % pitch, first = at - column, rest = at / pitch, line = 0, step = 1;
    int64_t count = WEFT_MIN(WEFT_MAX(0, width - x), end - at);
    for (int d = last - 1; d >= 0; rest /= p->size[d--]) {
      int64_t place = rest % p->size[d];
      if (place >= c->out_size[d]) count = 0;
      line += place * step;
      step *= c->out_size[d];
    }
    if (count > 0) {
      if (!which) *pixel = line * width + x;
      which |= (uint32_t)((((uint64_t)1 << count) - 1) << first);
    }
    at += pitch - x;
  }
  return which;
}
