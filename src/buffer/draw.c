/* buffer/draw.c -- The plan for people: its figures, and a drawing. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/svg.h"
#include "buffer/plan_internal.h"

enum { LISTED = 20 }; /* buffers that buf_plan_print names */

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
  fprintf(out, "parameters       %s\n", WEFT_BYTES(s->parameter_bytes));
  fprintf(out, "constants        %s\n", WEFT_BYTES(s->constant_bytes));
  fprintf(out, "results          %s, and %s in donated parameters\n", WEFT_BYTES(s->output_bytes),
          WEFT_BYTES(s->alias_bytes));
  fprintf(out, "temporaries      %s (%" PRId64 " bytes) for %d buffers of %s\n", WEFT_BYTES(s->temp_bytes),
          s->temp_bytes, s->buffer_count, WEFT_BYTES(s->value_bytes));
  fprintf(out, "lower bound      %s, fragmentation %.1f %%\n", WEFT_BYTES(s->lower_bound_bytes),
          100 * s->fragmentation);
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

enum { WIDTH = 1600, HEIGHT = 900, LEFT = 90, TOP = 60, BOTTOM = 50 };

/* What a buffer holds, for its colour. */
static const char *kind_of(const buf_buffer *buffer)
{
  return buffer->kind == BUFFER_SCRATCH ? "scratch" : hlo_opcode_name(buffer->instr->op);
}

static void draw_axes(const buf_plan *plan, double dx, double dy, FILE *out)
{
  double steps = plan->flow->step_count, total = (double)plan->stats.temp_bytes, base = HEIGHT - BOTTOM;
  double rows = weft_svg_marks(total, 8, true), columns = weft_svg_marks(steps, 20, false);

  for (double at = 0; at <= total; at += rows)
    fprintf(out,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%s</text>\n",
            LEFT, base - at * dy, WIDTH - 20, base - at * dy, LEFT - 6, base - at * dy + 4, WEFT_BYTES((int64_t)at));
  columns = WEFT_MAX(columns, 1);
  for (double at = 0; at < steps; at += columns)
    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#999\"/><text x=\"%.1f\" y=\"%.1f\" "
            "text-anchor=\"middle\">%.0f</text>\n",
            LEFT + at * dx, base, LEFT + at * dx, base + 5, LEFT + at * dx, base + 18, at);
  fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step of the schedule</text>\n", WIDTH / 2, HEIGHT - 10);
}

weft_status *buf_plan_svg(const buf_plan *plan, FILE *out)
{
  double dx = (WIDTH - LEFT - 20) / (double)WEFT_MAX(plan->flow->step_count, 1);
  double dy = (HEIGHT - TOP - BOTTOM) / (double)WEFT_MAX(plan->stats.temp_bytes, 1);
  weft_svg_key key = {0};

  weft_svg_begin(out, WIDTH, HEIGHT);
  fprintf(out, "<text x=\"%d\" y=\"24\" font-size=\"16\">", LEFT);
  weft_svg_escaped(out, plan->module->name);
  fprintf(out, ": %s of temporaries, lower bound %s, %d buffers</text>\n", WEFT_BYTES(plan->stats.temp_bytes),
          WEFT_BYTES(plan->stats.lower_bound_bytes), plan->stats.buffer_count);
  draw_axes(plan, dx, dy, out);
  for (int b = 0; b < plan->buffer_count; b++) {
    const buf_buffer *buffer = &plan->buffers[b];
    if (buffer->kind == BUFFER_FRAME) continue;
    double begin = WEFT_MAX(buffer->def / 2, 0), end = buffer->end / 2 + 1;
    double x = LEFT + begin * dx, w = WEFT_MAX((end - begin) * dx, 0.5), h = WEFT_MAX((double)buffer->bytes * dy, 0.3);
    double y = HEIGHT - BOTTOM - (double)buffer->offset * dy - h;
    fprintf(out, "<g><title>");
    weft_svg_escaped(out, buffer->instr->name);
    fprintf(out,
            "%s\n%s at %" PRId64 "\nsteps %.0f to %.0f</title>"
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" stroke=\"#555\" "
            "stroke-width=\"0.3\"/>",
            buffer->kind == BUFFER_SCRATCH ? " (scratch)" : "", WEFT_BYTES(buffer->bytes), buffer->offset, begin,
            end - 1, x, y, w, h, weft_svg_colour(&key, kind_of(buffer)));
    if (h >= 11) weft_svg_label(out, x + 3, y + WEFT_MIN(h / 2 + 4, 14), w - 6, buffer->instr->name);
    fputs("</g>\n", out);
  }
  weft_svg_legend(out, &key, WIDTH - 20, 46);
  return weft_svg_end(out);
}
