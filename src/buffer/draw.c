/* The plan for people: its figures, and a drawing. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/svg.h"
#include "buffer/plan_internal.h"

enum { LISTED = 20 }; /* buffers that buf_plan_print names */

static const char *bytes_text(int64_t bytes, char *buf, size_t size)
{
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = (double)bytes;
  size_t unit = 0;

  for (; value >= 1024 && unit + 1 < WEFT_COUNT(units); unit++) value /= 1024;
  snprintf(buf, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
  return buf;
}
#define BYTES(n) bytes_text((n), (char[32]){0}, 32)

static int larger_first(const void *a, const void *b)
{
  const buf_buffer *x = *(const buf_buffer *const *)a, *y = *(const buf_buffer *const *)b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->def > y->def) - (x->def < y->def);
}

weft_status *buf_plan_print(const buf_plan *plan, FILE *out)
{
  const buf_stats *s = &plan->stats;
  const buf_buffer **sorted = calloc((size_t)plan->buffer_count + 1, sizeof(const buf_buffer *));
  int count = 0;

  WEFT_TRY_ALLOC(sorted);
  fprintf(out, "parameters       %s\n", BYTES(s->parameter_bytes));
  fprintf(out, "constants        %s\n", BYTES(s->constant_bytes));
  fprintf(out, "results          %s, and %s in donated parameters\n", BYTES(s->output_bytes), BYTES(s->alias_bytes));
  fprintf(out, "temporaries      %s (%" PRId64 " bytes) for %d buffers of %s\n", BYTES(s->temp_bytes), s->temp_bytes,
          s->buffer_count, BYTES(s->value_bytes));
  fprintf(out, "lower bound      %s, fragmentation %.1f %%\n", BYTES(s->lower_bound_bytes), 100 * s->fragmentation);
  fprintf(out, "reuse            %d buffers, adding %d dependences\n", s->reused_count, s->added_edge_count);
  fprintf(out, "critical path    %.1f us by data, %.1f us with the plan; all steps %.1f us\n",
          s->critical_path_free / 1e3, s->critical_path / 1e3, s->total_cost / 1e3);
  for (int b = 0; b < plan->buffer_count; b++)
    if (plan->buffers[b].kind != BUFFER_FRAME) sorted[count++] = &plan->buffers[b];
  qsort(sorted, (size_t)count, sizeof *sorted, larger_first);
  if (count > 0) fprintf(out, "%-12s %14s %14s  %-13s %s\n", "largest", "bytes", "offset", "steps", "value");
  for (int i = 0; i < count && i < LISTED; i++)
    fprintf(out, "%-12d %14" PRId64 " %14" PRId64 "  %6d-%-6d %s%s\n", i + 1, sorted[i]->bytes, sorted[i]->offset,
            sorted[i]->def / 2, sorted[i]->end / 2, sorted[i]->instr->name,
            sorted[i]->kind == BUFFER_SCRATCH ? " (scratch)" : "");
  free(sorted);
  return ferror(out) ? WEFT_ERR(UNKNOWN, "cannot write the plan: %s", strerror(errno)) : NULL;
}

weft_status *buf_plan_svg(const buf_plan *plan, FILE *out)
{
  enum { WIDTH = 1600, HEIGHT = 900, LEFT = 90, TOP = 50, BOTTOM = 40 };
  double steps = WEFT_MAX(plan->flow->step_count, 1), total = (double)WEFT_MAX(plan->stats.temp_bytes, 1);
  double dx = (WIDTH - LEFT - 20) / steps, dy = (HEIGHT - TOP - BOTTOM) / total;

  weft_svg_begin(out, WIDTH, HEIGHT);
  fprintf(out, "<text x=\"%d\" y=\"24\" font-size=\"16\">", LEFT);
  weft_svg_escaped(out, plan->module->name);
  fprintf(out, ": %s of temporaries, lower bound %s, %d buffers</text>\n", BYTES(plan->stats.temp_bytes),
          BYTES(plan->stats.lower_bound_bytes), plan->stats.buffer_count);
  for (int i = 0; i <= 4; i++) {
    double y = HEIGHT - BOTTOM - i * (HEIGHT - TOP - BOTTOM) / 4.0;
    fprintf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
                 "text-anchor=\"end\">%s</text>\n", LEFT, y, WIDTH - 20, y, LEFT - 6, y + 4,
            BYTES((int64_t)(total * i / 4)));
  }
  fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step of the schedule (%d)</text>\n", WIDTH / 2, HEIGHT - 10,
          plan->flow->step_count);
  for (int b = 0; b < plan->buffer_count; b++) {
    const buf_buffer *buffer = &plan->buffers[b];
    if (buffer->kind == BUFFER_FRAME) continue;
    double begin = WEFT_MAX(buffer->def / 2, 0), end = buffer->end / 2 + 1;
    double x = LEFT + begin * dx, w = WEFT_MAX((end - begin) * dx, 0.5), h = WEFT_MAX((double)buffer->bytes * dy, 0.3);
    double y = HEIGHT - BOTTOM - (double)buffer->offset * dy - h;
    unsigned hue = (unsigned)b * 137u % 360u;
    fprintf(out, "<g><title>");
    weft_svg_escaped(out, buffer->instr->name);
    fprintf(out, "%s\n%s at %" PRId64 "\nsteps %.0f to %.0f</title>"
                 "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"hsl(%u,55%%,%d%%)\" stroke=\"#555\" "
                 "stroke-width=\"0.3\"/>", buffer->kind == BUFFER_SCRATCH ? " (scratch)" : "", BYTES(buffer->bytes),
            buffer->offset, begin, end - 1, x, y, w, h, hue, buffer->kind == BUFFER_SCRATCH ? 85 : 75);
    if (h >= 11) weft_svg_label(out, x + 2, y + WEFT_MIN(h / 2 + 4, 14), w - 4, buffer->instr->name);
    fputs("</g>\n", out);
  }
  return weft_svg_end(out);
}
