/* cli/profile.c -- shows where the time of a run went (profile.h). */
#include <config.h>

#include "cli/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"
#include "base/svg.h"
#include "cli/cli.h"
#include "runtime/trace.h"

enum { MOST_DEPTH = 32, LISTED = 20 };

/* One execution of a step on one thread. */
struct cli_span {
  rt_trace_record record;
  int64_t self_ns;   /* without the executions of other steps inside it */
  int thread, depth; /* 0, 1, ... */
};

/* All executions of one step. */
struct cli_step {
  const rt_trace_record *sample; /* one of the executions, for the kind and the name of the step */
  int64_t count, self_ns;
};

static int by_thread_and_time(const void *a, const void *b)
{
  const rt_trace_record *x = &((const cli_span *)a)->record, *y = &((const cli_span *)b)->record;

  if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end < y->end) - (x->end > y->end); /* of two that begin together, the enclosing one comes first */
}

static int by_name(const void *a, const void *b)
{
  const rt_trace_record *x = ((const cli_step *)a)->sample, *y = ((const cli_step *)b)->sample;
  int order = strcmp(x->name, y->name);

  return order ? order : strcmp(x->kind, y->kind);
}

static int longest_first(const void *a, const void *b)
{
  const cli_step *x = a, *y = b;

  if (x->self_ns != y->self_ns) return x->self_ns > y->self_ns ? -1 : 1;
  return by_name(a, b);
}

void cli_profile_begin(cli_profile *p)
{
  *p = (cli_profile){0};
  rt_trace_capture();
  p->begin = weft_now_ns();
}

/* Finds which executions lie inside which others: sets their depths and their own time. */
static void nest(cli_profile *p)
{
  cli_span *open[MOST_DEPTH];
  int depth = 0;

  for (size_t i = 0; i < p->span_count; i++) {
    cli_span *span = &p->spans[i];
    bool is_first = i == 0 || span[-1].record.thread != span->record.thread;
    if (is_first) depth = 0;
    p->thread_count += is_first;
    span->thread = (int)p->thread_count - 1;
    span->self_ns = span->record.end - span->record.begin;
    while (depth > 0 && open[depth - 1]->record.end <= span->record.begin) depth--;
    if (depth > 0)
      open[depth - 1]->self_ns -= WEFT_MIN(span->record.end, open[depth - 1]->record.end) - span->record.begin;
    else p->busy_ns += span->self_ns;
    span->depth = depth;
    if (depth < MOST_DEPTH) open[depth++] = span;
  }
}

static weft_status *add_up(cli_profile *p, weft_arena *arena)
{
  size_t count = 0;

  p->steps = WEFT_ARENA_ARRAY(arena, cli_step, p->span_count + 1);
  WEFT_TRY_ALLOC(p->steps);
  for (size_t i = 0; i < p->span_count; i++) p->steps[i] = (cli_step){&p->spans[i].record, 1, p->spans[i].self_ns};
  qsort(p->steps, p->span_count, sizeof *p->steps, by_name);
  for (size_t i = 0; i < p->span_count; i++) {
    if (count > 0 && by_name(&p->steps[count - 1], &p->steps[i]) == 0) {
      p->steps[count - 1].count++;
      p->steps[count - 1].self_ns += p->steps[i].self_ns;
    } else {
      p->steps[count++] = p->steps[i];
    }
  }
  p->step_count = count;
  qsort(p->steps, count, sizeof *p->steps, longest_first);
  return NULL;
}

weft_status *cli_profile_end(cli_profile *p, weft_arena *arena)
{
  rt_trace_record *records;

  p->end = weft_now_ns();
  records = rt_trace_between(p->begin, p->end, &p->span_count);
  rt_trace_release();
  p->spans = WEFT_ARENA_ARRAY(arena, cli_span, p->span_count + 1);
  for (size_t i = 0; p->spans && i < p->span_count; i++) p->spans[i].record = records[i];
  free(records);
  WEFT_TRY_ALLOC(p->spans);
  qsort(p->spans, p->span_count, sizeof *p->spans, by_thread_and_time);
  nest(p);
  return add_up(p, arena);
}

static const hlo_instr *find_instr(const hlo_module *module, const char *name)
{
  if (module)
    HLO_FOREACH_COMPUTATION(comp, module)
      HLO_FOREACH(instr, comp)
        if (strcmp(instr->name, name) == 0) return instr;
  return NULL;
}

/* The step's name, with its operation and its line of source code if the program has them. */
static const char *describe(const cli_step *step, const hlo_module *module, char *buf, size_t size)
{
  const hlo_instr *instr = find_instr(module, step->sample->name);

  if (instr) hlo_describe(instr, buf, size);
  else snprintf(buf, size, "%s", step->sample->name);
  return buf;
}

void cli_profile_print(const cli_profile *p, const hlo_module *module, FILE *out)
{
  double wall = (double)(p->end - p->begin), all = (double)WEFT_MAX(p->busy_ns, 1);

  fprintf(out, "profile of one more run: %.3f ms; %zu threads were at work for %.3f ms between them\n", wall / 1e6,
          p->thread_count, (double)p->busy_ns / 1e6);
  if (p->step_count > 0)
    fprintf(out, "%12s %7s %9s %12s  %-14s %s\n", "self ms", "%", "count", "mean us", "kind", "step");
  for (size_t i = 0; i < p->step_count && i < LISTED; i++) {
    const cli_step *step = &p->steps[i];
    char where[256];
    fprintf(out, "%12.3f %7.1f %9lld %12.2f  %-14s %s\n", (double)step->self_ns / 1e6,
            100 * (double)step->self_ns / all, (long long)step->count,
            (double)step->self_ns / 1e3 / (double)step->count, step->sample->kind,
            describe(step, module, where, sizeof where));
  }
  if (p->step_count > LISTED) fprintf(out, "%12s %zu more steps\n", "...", p->step_count - LISTED);
}

void cli_profile_json(const cli_profile *p, FILE *out)
{
  fputc('[', out);
  for (size_t i = 0; i < p->step_count; i++) {
    const cli_step *step = &p->steps[i];
    fputs(i ? ", {\"kind\": " : "{\"kind\": ", out);
    cli_json_string(out, step->sample->kind);
    fputs(", \"name\": ", out);
    cli_json_string(out, step->sample->name);
    fprintf(out, ", \"count\": %lld, \"self_ms\": %.6g}", (long long)step->count, (double)step->self_ns / 1e6);
  }
  fputc(']', out);
}

enum { WIDTH = 1600, LEFT = 90, RIGHT = 40, TOP = 70, ROW = 18, GAP = 14 };

static void draw_span(const rt_trace_record *r, double x, double y, double w, weft_svg_key *key, FILE *out)
{
  fputs("<g><title>", out);
  weft_svg_escaped(out, r->name);
  fprintf(out,
          " (%s) on device %d: %.3f us</title><rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" "
          "fill=\"%s\" stroke=\"#555\" stroke-width=\"%s\"/>",
          r->kind, r->device, (double)(r->end - r->begin) / 1e3, x, y, w, ROW - 2, weft_svg_colour(key, r->kind),
          w < 2 ? "0" : "0.3");
  weft_svg_label(out, x + 3, y + 12, w - 6, r->name);
  fputs("</g>\n", out);
}

static void draw_axis(double ms, double height, FILE *out)
{
  double mark = weft_svg_marks(ms, 10, false), scale = (WIDTH - LEFT - RIGHT) / ms;

  for (double at = 0; at <= ms; at += mark)
    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.0f\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%d\" "
            "text-anchor=\"middle\">%.6g ms</text>\n",
            LEFT + at * scale, TOP - 8, LEFT + at * scale, height - 20, LEFT + at * scale, TOP - 12, at);
}

/* Draws the whole run: a band for each thread, with one row for each level of nested steps. */
static double height_of(const cli_profile *p)
{
  double height = TOP + 30;
  int rows = 0;

  for (size_t i = 0; i < p->span_count; i++) {
    rows = WEFT_MAX(rows, p->spans[i].depth + 1);
    if (i + 1 < p->span_count && p->spans[i + 1].thread == p->spans[i].thread) continue;
    height += rows * ROW + GAP;
    rows = 0;
  }
  return height;
}

weft_status *cli_profile_draw(const cli_profile *p, const char *title, FILE *out)
{
  double all_ns = (double)WEFT_MAX(p->end - p->begin, 1), scale = (WIDTH - LEFT - RIGHT) / all_ns;
  double y = TOP, height = height_of(p), drawn_to[MOST_DEPTH + 1];
  int rows = 0, thread = -1;
  weft_svg_key key = {0};

  weft_svg_begin(out, WIDTH, height);
  fprintf(out, "<text x=\"%d\" y=\"24\" font-size=\"16\">", LEFT);
  weft_svg_escaped(out, title);
  fprintf(out, ": one run, %.3f ms</text>\n", all_ns / 1e6);
  draw_axis(all_ns / 1e6, height, out);
  for (size_t i = 0; i < p->span_count; i++) {
    const cli_span *span = &p->spans[i];
    double x = LEFT + (double)(span->record.begin - p->begin) * scale;
    double w = WEFT_MAX((double)(span->record.end - span->record.begin) * scale, 0.3);
    if (span->thread != thread) {
      if (thread >= 0) y += rows * ROW + GAP;
      rows = 0;
      thread = span->thread;
      for (int d = 0; d <= MOST_DEPTH; d++) drawn_to[d] = 0;
      fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">thread %d</text>\n", LEFT - 8, y + 12, thread);
    }
    rows = WEFT_MAX(rows, span->depth + 1);
    if (x + w <= drawn_to[span->depth] + 0.1) continue; /* too narrow to be seen: leaving it out keeps the file small */
    draw_span(&span->record, x, y + span->depth * ROW, w, &key, out);
    drawn_to[span->depth] = x + w;
  }
  weft_svg_legend(out, &key, WIDTH - RIGHT, 24);
  return weft_svg_end(out);
}
