/* buffer/draw.c -- The plan as text and as a drawing, for people. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/svg.h"
#include "buffer/plan_internal.h"

enum { LISTED = 20 }; /* buffers that buf_plan_print names */

/* ---- buffers ---- */

int buf_plan_buffer_count(const buf_plan *plan) { return plan->buffer_count; }
int buf_plan_step_count(const buf_plan *plan) { return plan->flow->step_count; }

bool buf_plan_buffer(const buf_plan *plan, int index, buf_placed *out)
{
  const buf_buffer *b = &plan->buffers[index];
  int64_t before = b->arena == ARENA_COLLECTIVE ? plan->allocs[plan->arena_alloc[ARENA_TEMP]].bytes : 0;

  *out = (buf_placed){.instr = b->instr,
                      .leaf = b->leaf,
                      .is_scratch = b->kind == BUFFER_SCRATCH,
                      .offset = before + b->offset,
                      .bytes = b->bytes,
                      .first_step = WEFT_MAX(b->def / 2, 0),
                      .last_step = b->end / 2};
  return b->kind != BUFFER_FRAME;
}

int buf_plan_peak_step(const buf_plan *plan, int64_t *out_bytes)
{
  int steps = plan->flow->step_count, peak = 0;
  int64_t *change = calloc((size_t)steps + 2, sizeof *change), live = 0;

  *out_bytes = 0;
  if (!change) return 0;
  for (int b = 0; b < plan->buffer_count; b++) {
    buf_placed buffer;
    if (!buf_plan_buffer(plan, b, &buffer)) continue;
    change[WEFT_MIN(buffer.first_step, steps)] += buffer.bytes;
    change[WEFT_MIN(buffer.last_step, steps) + 1] -= buffer.bytes;
  }
  for (int s = 0; s <= steps; s++) {
    live += change[s];
    if (live <= *out_bytes) continue;
    *out_bytes = live;
    peak = s;
  }
  free(change);
  return peak;
}

static bool is_larger(const buf_placed *a, const buf_placed *b)
{
  return a->bytes != b->bytes ? a->bytes > b->bytes : a->first_step < b->first_step;
}

int buf_plan_largest(const buf_plan *plan, int most, buf_placed *out)
{
  int count = 0;

  for (int b = 0; b < plan->buffer_count; b++) {
    buf_placed buffer;
    int at = count;
    if (!buf_plan_buffer(plan, b, &buffer)) continue;
    while (at > 0 && is_larger(&buffer, &out[at - 1])) at--;
    if (at == most) continue;
    count = WEFT_MIN(count + 1, most);
    memmove(&out[at + 1], &out[at], (size_t)(count - 1 - at) * sizeof *out);
    out[at] = buffer;
  }
  return count;
}

const char *buf_placed_text(const buf_placed *buffer, char *text, size_t size)
{
  char shape[128], where[256];

  hlo_describe(buffer->instr, where, sizeof where);
  if (buffer->is_scratch) snprintf(text, size, "scratch of %s", where);
  else
    snprintf(text, size, "%s %s",
             hlo_shape_format(hlo_shape_leaf(buffer->instr->shape, buffer->leaf), shape, sizeof shape), where);
  return text;
}

/* ---- figures ---- */

weft_status *buf_plan_print(const buf_plan *plan, FILE *out)
{
  const buf_stats *s = &plan->stats;
  buf_placed largest[LISTED];
  int count = buf_plan_largest(plan, LISTED, largest), peak;
  int64_t peak_bytes;

  peak = buf_plan_peak_step(plan, &peak_bytes);
  fprintf(out, "parameters       %s\n", WEFT_BYTES(s->parameter_bytes));
  fprintf(out, "constants        %s\n", WEFT_BYTES(s->constant_bytes));
  fprintf(out, "results          %s, and %s in donated parameters\n", WEFT_BYTES(s->output_bytes),
          WEFT_BYTES(s->alias_bytes));
  fprintf(out, "temporaries      %s (%" PRId64 " bytes) for %d buffers of %s\n", WEFT_BYTES(s->temp_bytes),
          s->temp_bytes, s->buffer_count, WEFT_BYTES(s->value_bytes));
  if (s->collective_bytes > 0)
    fprintf(out, "  for collectives %s (%" PRId64 " bytes), in memory of their own\n", WEFT_BYTES(s->collective_bytes),
            s->collective_bytes);
  fprintf(out, "lower bound      %s, fragmentation %.1f %%\n", WEFT_BYTES(s->lower_bound_bytes),
          100 * s->fragmentation);
  fprintf(out, "peak             step %d of %d\n", peak, plan->flow->step_count);
  fprintf(out, "reuse            %d buffers, adding %d dependences\n", s->reused_count, s->added_edge_count);
  fprintf(out, "critical path    %.1f us by data, %.1f us with the plan; all steps %.1f us\n",
          s->critical_path_free / 1e3, s->critical_path / 1e3, s->total_cost / 1e3);
  if (count > 0) fprintf(out, "%-12s %14s %14s  %-13s %s\n", "largest", "bytes", "offset", "steps", "value");
  for (int i = 0; i < count; i++) {
    char text[512];
    fprintf(out, "%-12d %14" PRId64 " %14" PRId64 "  %6d-%-6d %s\n", i + 1, largest[i].bytes, largest[i].offset,
            largest[i].first_step, largest[i].last_step, buf_placed_text(&largest[i], text, sizeof text));
  }
  return ferror(out) ? WEFT_ERR(UNKNOWN, "cannot write the plan: %s", strerror(errno)) : NULL;
}

/* ---- the drawing ---- */

enum { WIDTH = 1600, HEIGHT = 960, LEFT = 110, RIGHT = 20, TOP = 60, BOTTOM = 110, BAND = 18 };
static const double base = HEIGHT - BOTTOM; /* y of address 0 */

static void draw_axes(const buf_plan *plan, double dx, double dy, FILE *out)
{
  double steps = plan->flow->step_count, total = (double)plan->stats.temp_bytes;
  double rows = weft_svg_marks(total, 8, true), columns = WEFT_MAX(weft_svg_marks(steps, 20, false), 1);

  for (double at = 0; at <= total; at += rows)
    fprintf(out,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">%s</text>\n",
            LEFT, base - at * dy, WIDTH - RIGHT, base - at * dy, LEFT - 6, base - at * dy + 4, WEFT_BYTES((int64_t)at));
  for (double at = 0; at < steps; at += columns)
    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#999\"/><text x=\"%.1f\" y=\"%.1f\" "
            "text-anchor=\"middle\">%.0f</text>\n",
            LEFT + at * dx, base, LEFT + at * dx, base + 5, LEFT + at * dx, base + 18, at);
  fprintf(out, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"middle\">step of the schedule</text>\n", WIDTH / 2, base + 34);
}

static void draw_buffer(const buf_placed *b, double dx, double dy, weft_svg_key *key, FILE *out)
{
  double x = LEFT + b->first_step * dx, w = WEFT_MAX((b->last_step + 1 - b->first_step) * dx, 0.5);
  double h = WEFT_MAX((double)b->bytes * dy, 0.3), y = base - (double)b->offset * dy - h;
  const char *kind = b->is_scratch ? "scratch" : hlo_opcode_name(b->instr->op);
  char text[512];

  buf_placed_text(b, text, sizeof text);
  fprintf(out, "<g><title>");
  weft_svg_escaped(out, text);
  fprintf(out,
          "\n%s at %" PRId64 "\nsteps %d to %d</title>"
          "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" stroke=\"#555\" "
          "stroke-width=\"0.3\"/>",
          WEFT_BYTES(b->bytes), b->offset, b->first_step, b->last_step, x, y, w, h, weft_svg_colour(key, kind));
  if (h >= 11) weft_svg_label(out, x + 3, y + WEFT_MIN(h / 2 + 4, 14), w - 6, text);
  fputs("</g>\n", out);
}

/* What a band of the drawing shows: arrays that lie outside the arena, side by side, as wide as they are large. */
static void draw_band(const buf_plan *plan, buf_alloc_kind kind, const char *title, int64_t total, double y,
                      weft_svg_key *key, FILE *out)
{
  double x = LEFT, scale = (WIDTH - LEFT - RIGHT) / (double)WEFT_MAX(total, 1);
  static const char *const names[] = {[BUF_PARAMETER] = "parameter", [BUF_CONSTANT] = "constant", [BUF_OUTPUT] = "result"};

  if (total == 0) return;
  fprintf(out, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n", LEFT - 6, y + 13, title);
  for (int a = 0, number = 0; a < plan->alloc_count; a++) {
    const buf_alloc *alloc = &plan->allocs[a];
    double w = (double)alloc->bytes * scale;
    char text[64];
    if (alloc->kind != kind) continue;
    snprintf(text, sizeof text, "%s %d: %s", names[kind], kind == BUF_PARAMETER ? alloc->param_leaf : number,
             WEFT_BYTES(alloc->bytes));
    number++;
    fprintf(out,
            "<g><title>%s</title><rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"%s\" stroke=\"#555\" "
            "stroke-width=\"0.3\"/>",
            text, x, y, WEFT_MAX(w, 0.2), BAND - 2, weft_svg_colour(key, names[kind]));
    weft_svg_label(out, x + 3, y + 12, w - 6, text);
    fputs("</g>\n", out);
    x += w;
  }
}

static void mark_peak(const buf_plan *plan, double dx, FILE *out)
{
  int64_t bytes;
  int step = buf_plan_peak_step(plan, &bytes);
  double x = LEFT + (step + 0.5) * dx;

  if (bytes == 0) return;
  fprintf(out,
          "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.0f\" stroke=\"#c00\" stroke-dasharray=\"4 3\"/>"
          "<text x=\"%.1f\" y=\"%d\" fill=\"#c00\" text-anchor=\"%s\">peak: %s at step %d</text>\n",
          x, TOP - 4, x, base, x, TOP - 8, x > WIDTH / 2 ? "end" : "start", WEFT_BYTES(bytes), step);
}

weft_status *buf_plan_svg(const buf_plan *plan, FILE *out)
{
  double dx = (WIDTH - LEFT - RIGHT) / (double)WEFT_MAX(plan->flow->step_count, 1);
  double dy = (base - TOP) / (double)WEFT_MAX(plan->stats.temp_bytes, 1);
  const buf_stats *s = &plan->stats;
  weft_svg_key key = {0};

  weft_svg_begin(out, WIDTH, HEIGHT);
  fprintf(out, "<text x=\"%d\" y=\"24\" font-size=\"16\">", LEFT);
  weft_svg_escaped(out, plan->module->name);
  fprintf(out, ": %s of temporaries, lower bound %s, %d buffers</text>\n", WEFT_BYTES(s->temp_bytes),
          WEFT_BYTES(s->lower_bound_bytes), s->buffer_count);
  draw_axes(plan, dx, dy, out);
  for (int b = 0; b < plan->buffer_count; b++) {
    buf_placed buffer;
    if (buf_plan_buffer(plan, b, &buffer)) draw_buffer(&buffer, dx, dy, &key, out);
  }
  mark_peak(plan, dx, out);
  draw_band(plan, BUF_PARAMETER, "parameters", s->parameter_bytes, base + 44, &key, out);
  draw_band(plan, BUF_OUTPUT, "results", s->output_bytes, base + 44 + BAND, &key, out);
  draw_band(plan, BUF_CONSTANT, "constants", s->constant_bytes, base + 44 + 2 * BAND, &key, out);
  weft_svg_legend(out, &key, WIDTH - RIGHT, 24);
  return weft_svg_end(out);
}
