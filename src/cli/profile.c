/* cli/profile.c -- shows where the time of a run went (profile.h). */
#include <config.h>

#include "cli/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/deadline.h"
#include "base/svg.h"
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
  int64_t count;                 /* executions; the help of other threads is not counted */
  int64_t self_ns;               /* of all threads, those that helped included */
  int64_t own_ns;                /* of the threads that executed the step: what it took */
  const hlo_instr *instr;        /* of the module, or NULL */
  cli_work work;                 /* of one execution; zeros if not known */
  int64_t rounds;                /* of a loop, in one execution; -1: not a loop, or not known */
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
  rt_trace_capture(false);
  p->begin = weft_now_ns();
}

/* Whether a device has reported the step's time. If it has, the host's time of queuing the step does not count. */
static bool is_queuing(const cli_profile *p, const cli_span *span)
{
  return p->device_count > 0 && span->record.queues;
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
    p->device_count += is_first && span->record.on_device && !span->record.aside;
    p->aside_count += is_first && span->record.aside;
    span->thread = (int)p->thread_count - 1;
    span->self_ns = span->record.end - span->record.begin;
    while (depth > 0 && open[depth - 1]->record.end <= span->record.begin) depth--;
    if (depth > 0)
      open[depth - 1]->self_ns -= WEFT_MIN(span->record.end, open[depth - 1]->record.end) - span->record.begin;
    span->depth = depth;
    if (depth < MOST_DEPTH) open[depth++] = span;
  }
  for (size_t i = 0; i < p->span_count; i++) {
    const cli_span *span = &p->spans[i];
    if (is_queuing(p, span)) p->queuing_ns += span->self_ns;
    else p->busy_ns += span->self_ns;
  }
}

static weft_status *add_up(cli_profile *p, weft_arena *arena)
{
  size_t taken = 0, count = 0;

  p->steps = WEFT_ARENA_ARRAY(arena, cli_step, p->span_count + 1);
  WEFT_TRY_ALLOC(p->steps);
  for (size_t i = 0; i < p->span_count; i++) {
    const cli_span *span = &p->spans[i];
    bool helps = span->record.helps;
    if (is_queuing(p, span)) continue;
    p->steps[taken++] = (cli_step){.sample = &span->record,
                                   .count = !helps,
                                   .self_ns = span->self_ns,
                                   .own_ns = helps ? 0 : span->self_ns,
                                   .rounds = -1};
  }
  qsort(p->steps, taken, sizeof *p->steps, by_name);
  for (size_t i = 0; i < taken; i++) {
    if (count > 0 && by_name(&p->steps[count - 1], &p->steps[i]) == 0) {
      p->steps[count - 1].count += p->steps[i].count;
      p->steps[count - 1].self_ns += p->steps[i].self_ns;
      p->steps[count - 1].own_ns += p->steps[i].own_ns;
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

/* ---- facts about the steps, from the module ---- */

/* Names of records are cut to the room that they have. */
static bool is_name(const char *record, const char *name)
{
  return strncmp(record, name, sizeof((rt_trace_record *)0)->name - 1) == 0;
}

static int by_record_name(const void *key, const void *element)
{
  return strcmp(key, (*(cli_step *const *)element)->sample->name);
}

static int by_step_name(const void *a, const void *b)
{
  return strcmp((*(cli_step *const *)a)->sample->name, (*(cli_step *const *)b)->sample->name);
}

static cli_step *find_step(cli_step **by_name, size_t count, const char *name)
{
  char cut[sizeof((rt_trace_record *)0)->name];
  cli_step **found;

  snprintf(cut, sizeof cut, "%s", name);
  found = bsearch(cut, by_name, count, sizeof *by_name, by_record_name);
  return found ? *found : NULL;
}

/* How often a loop went round in one execution: as often as the step of its body that was executed most. */
static int64_t rounds_of(const hlo_instr *loop, int64_t executions, cli_step **by_name, size_t count)
{
  int64_t most = 0;

  HLO_FOREACH(instr, loop->called[0]) {
    const cli_step *step = find_step(by_name, count, instr->name);
    if (step && is_name(step->sample->name, instr->name)) most = WEFT_MAX(most, step->count);
  }
  return most > 0 && executions > 0 ? most / executions : -1;
}

weft_status *cli_profile_explain(cli_profile *p, const hlo_module *module, int threads, weft_arena *arena)
{
  cli_step **by_name = WEFT_ARENA_ARRAY(arena, cli_step *, p->step_count + 1);

  WEFT_TRY_ALLOC(by_name);
  for (size_t i = 0; i < p->step_count; i++) by_name[i] = &p->steps[i];
  qsort(by_name, p->step_count, sizeof(cli_step *), by_step_name);
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      cli_step *step = find_step(by_name, p->step_count, instr->name);
      if (!step || step->instr) continue;
      step->instr = instr;
      step->work = cli_work_of(instr);
      if (instr->op == HLO_WHILE) step->rounds = rounds_of(instr, step->count, by_name, p->step_count);
    }
  if (p->device_count == 0) p->limits = cli_limits_measure(threads);
  return NULL;
}

/* What one execution of a step took on the thread that executed it. */
static double ns_of(const cli_step *step) { return (double)step->own_ns / (double)WEFT_MAX(step->count, 1); }

/* ---- the table ---- */

/* The step's name, with its operation and its line of source code if the program has them. */
static const char *describe(const cli_step *step, char *buf, size_t size)
{
  if (step->instr) hlo_describe(step->instr, buf, size);
  else snprintf(buf, size, "%s", step->sample->name);
  if (step->rounds >= 0) {
    size_t length = strlen(buf);
    snprintf(buf + length, size - length, ", %lld rounds", (long long)step->rounds);
  }
  return buf;
}

/* Fills `text` with the rate of `amount` units in `ns`; empty if there are none. */
static const char *rate_text(double amount, double ns, char *text, size_t size)
{
  if (amount > 0 && ns > 0) snprintf(text, size, "%.3g", amount / ns);
  else text[0] = '\0';
  return text;
}

static void print_step(const cli_profile *p, const cli_step *step, double all_ns, FILE *out)
{
  char where[320], flops[32], bytes[32], limit[32] = "";
  bool by_memory;
  double ns = ns_of(step), share = ns > 0 ? cli_share_of_limit(step->work, ns, p->limits, &by_memory) : 0;

  if (share > 0) snprintf(limit, sizeof limit, "%.0f%% %s", 100 * share, by_memory ? "mem" : "arith");
  fprintf(out, "%10.3f %6.1f %8lld %11.2f %9s %8s %11s  %-14s %s\n", (double)step->self_ns / 1e6,
          100 * (double)step->self_ns / all_ns, (long long)step->count, ns / 1e3,
          rate_text(step->work.flops, ns, flops, sizeof flops), rate_text(step->work.bytes, ns, bytes, sizeof bytes),
          limit, step->sample->kind, describe(step, where, sizeof where));
}

void cli_profile_print(const cli_profile *p, FILE *out)
{
  double wall = (double)(p->end - p->begin), all = (double)WEFT_MAX(p->busy_ns, 1);

  if (p->device_count > 0)
    fprintf(
      out,
      "profile of one more run: %.3f ms; %d device%s and %zu threads were at work for %.3f ms between them, and the "
      "host took %.3f ms to queue steps\n",
      wall / 1e6, p->device_count, p->device_count == 1 ? "" : "s",
      p->thread_count - (size_t)(p->device_count + p->aside_count), (double)p->busy_ns / 1e6,
      (double)p->queuing_ns / 1e6);
  else
    fprintf(out, "profile of one more run: %.3f ms; %zu threads were at work for %.3f ms between them\n", wall / 1e6,
            p->thread_count, (double)p->busy_ns / 1e6);
  if (p->limits.flops > 0)
    fprintf(out, "limits of this machine, measured now: %.1f GFLOP/s of f32, %.1f GB/s from memory\n", p->limits.flops,
            p->limits.bytes);
  if (p->step_count > 0)
    fprintf(out, "%10s %6s %8s %11s %9s %8s %11s  %-14s %s\n", "self ms", "%", "count", "mean us", "GFLOP/s", "GB/s",
            "of limit", "kind", "step");
  for (size_t i = 0; i < p->step_count && i < LISTED; i++) print_step(p, &p->steps[i], all, out);
  if (p->step_count > LISTED) fprintf(out, "%10s %zu more steps\n", "...", p->step_count - LISTED);
}

/* ---- JSON ---- */

void cli_profile_json(const cli_profile *p, cli_json *json)
{
  cli_json_object(json, "profiled_run");
  cli_json_number(json, "ms", (double)(p->end - p->begin) / 1e6);
  cli_json_number(json, "busy_ms", (double)p->busy_ns / 1e6);
  cli_json_int(json, "threads", (int64_t)p->thread_count - p->device_count - p->aside_count);
  cli_json_int(json, "devices", p->device_count);
  cli_json_number(json, "queuing_ms", (double)p->queuing_ns / 1e6);
  cli_json_number(json, "limit_gflops", p->limits.flops);
  cli_json_number(json, "limit_gbytes", p->limits.bytes);
  cli_json_end_object(json);
  cli_json_array(json, "profile");
  for (size_t i = 0; i < p->step_count; i++) {
    const cli_step *step = &p->steps[i];
    char where[320];
    cli_json_object(json, NULL);
    cli_json_text(json, "kind", step->sample->kind);
    cli_json_text(json, "name", step->sample->name);
    cli_json_int(json, "count", step->count);
    cli_json_number(json, "self_ms", (double)step->self_ns / 1e6);
    cli_json_number(json, "mean_us", ns_of(step) / 1e3);
    cli_json_number(json, "flops", step->work.flops);
    cli_json_number(json, "bytes", step->work.bytes);
    if (step->instr) cli_json_text(json, "step", hlo_describe(step->instr, where, sizeof where));
    if (step->rounds >= 0) cli_json_int(json, "rounds", step->rounds);
    cli_json_end_object(json);
  }
  cli_json_end_array(json);
}

/* family, kind, name, count, milliseconds of all threads, microseconds of one execution, GFLOP/s, GB/s, share of the
 * limit, whether the limit is the memory's, rounds of a loop (-1: not known) */
static void put_step(const cli_profile *p, const cli_step *step, cli_json *json)
{
  double ns = ns_of(step);
  bool by_memory = false;

  cli_json_array(json, NULL);
  cli_json_int(json, NULL, weft_svg_family_of(step->sample->kind));
  cli_json_text(json, NULL, step->sample->kind);
  cli_json_text(json, NULL, step->instr ? step->instr->name : step->sample->name);
  cli_json_int(json, NULL, step->count);
  cli_json_number(json, NULL, (double)step->self_ns / 1e6);
  cli_json_number(json, NULL, ns / 1e3);
  cli_json_number(json, NULL, ns > 0 ? step->work.flops / ns : 0);
  cli_json_number(json, NULL, ns > 0 ? step->work.bytes / ns : 0);
  cli_json_number(json, NULL, ns > 0 ? cli_share_of_limit(step->work, ns, p->limits, &by_memory) : 0);
  cli_json_bool(json, NULL, by_memory);
  cli_json_int(json, NULL, step->rounds);
  cli_json_end_array(json);
}

/* thread, depth, begin and duration in nanoseconds, family, name, whether it helps another thread */
static void put_span(const cli_profile *p, const cli_span *span, cli_json *json)
{
  cli_json_array(json, NULL);
  cli_json_int(json, NULL, span->thread);
  cli_json_int(json, NULL, span->depth);
  cli_json_int(json, NULL, span->record.begin - p->begin);
  cli_json_int(json, NULL, span->record.end - span->record.begin);
  cli_json_int(json, NULL, weft_svg_family_of(span->record.kind));
  cli_json_text(json, NULL, span->record.name);
  cli_json_bool(json, NULL, span->record.helps);
  cli_json_end_array(json);
}

enum { MOST_SPANS = 12000 };

/* The length such that at most MOST_SPANS executions take as long. */
static int64_t shortest_shown(const cli_profile *p)
{
  int64_t ns = 0;

  for (size_t count = p->span_count; count > MOST_SPANS;) {
    ns = ns ? 2 * ns : 100;
    count = 0;
    for (size_t i = 0; i < p->span_count; i++) count += p->spans[i].record.end - p->spans[i].record.begin >= ns;
  }
  return ns;
}

void cli_profile_page(const cli_profile *p, cli_json *json)
{
  int64_t shortest_ns = shortest_shown(p);

  cli_json_object(json, "profile");
  cli_json_int(json, "wall_ns", p->end - p->begin);
  cli_json_int(json, "busy_ns", p->busy_ns);
  cli_json_int(json, "threads", (int64_t)p->thread_count);
  cli_json_int(json, "devices", p->device_count);
  cli_json_int(json, "queuing_ns", p->queuing_ns);
  cli_json_number(json, "limit_gflops", p->limits.flops);
  cli_json_number(json, "limit_gbytes", p->limits.bytes);
  cli_json_int(json, "shortest_ns", shortest_ns);
  cli_json_array(json, "steps");
  for (size_t i = 0; i < p->step_count; i++) put_step(p, &p->steps[i], json);
  cli_json_end_array(json);
  cli_json_array(json, "spans");
  for (size_t i = 0; i < p->span_count; i++)
    if (p->spans[i].record.end - p->spans[i].record.begin >= shortest_ns) put_span(p, &p->spans[i], json);
  cli_json_end_array(json);
  cli_json_end_object(json);
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

/* Draws the whole run: a band for each thread and device, with one row for each level of nested steps. */
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
      fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s %d</text>\n", LEFT - 8, y + 12,
              span->record.aside       ? "collectives"
              : span->record.on_device ? "device"
                                       : "thread",
              span->record.on_device ? span->record.device : thread);
    }
    rows = WEFT_MAX(rows, span->depth + 1);
    if (x + w <= drawn_to[span->depth] + 0.1) continue; /* too narrow to be seen: leaving it out keeps the file small */
    draw_span(&span->record, x, y + span->depth * ROW, w, &key, out);
    drawn_to[span->depth] = x + w;
  }
  weft_svg_legend(out, &key, WIDTH - RIGHT, 24);
  return weft_svg_end(out);
}
