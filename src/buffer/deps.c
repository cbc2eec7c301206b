/* buffer/deps.c -- The dependence graph of each computation that runs by steps: data, control and in-place order, with
 * reachability and longest paths.  It answers the planner's question: have all uses of a buffer ended before a given
 * step can start, whichever ready step the executor runs first? */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "buffer/hazard.h"
#include "buffer/plan_internal.h"

static const hlo_computation *common(const buf_deps *d, const hlo_computation *a, const hlo_computation *b)
{
  const hlo_instr **caller = d->plan->flow->caller;
  while (a != b) {
    if (d->depth[a->id] >= d->depth[b->id]) a = caller[a->id]->parent;
    else b = caller[b->id]->parent;
  }
  return a;
}

int buf_node_in(const buf_deps *d, const hlo_instr *instr, int comp)
{
  while (instr->parent->id != comp) {
    instr = d->plan->flow->caller[instr->parent->id];
    if (!instr) return -1;
  }
  return d->node_of[instr->id];
}

static weft_status *add_edge(buf_deps *d, const hlo_instr *from, const hlo_instr *to)
{
  if (!from || !to) return NULL;
  int comp = common(d, from->parent, to->parent)->id;
  int x = buf_node_in(d, from, comp), y = buf_node_in(d, to, comp);
  if (x < 0 || y < 0 || x >= y) return NULL; /* not steps, the same step, or the back edge of a loop */
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&d->arena, d->edges, d->edge_capacity, d->edge_count + 1, 256));
  d->edges[d->edge_count++] = (buf_edge){comp, x, y};
  return NULL;
}

static int compare_edges(const void *a, const void *b)
{
  const buf_edge *x = a, *y = b;
  if (x->comp != y->comp) return x->comp < y->comp ? -1 : 1;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  return (x->to > y->to) - (x->to < y->to);
}

/* Sorts the edges, drops repeated ones and gives each graph its range of them. */
static void index_edges(buf_deps *d)
{
  int kept = 0;

  if (d->edge_count > 0) qsort(d->edges, (size_t)d->edge_count, sizeof *d->edges, compare_edges);
  for (int i = 0; i < d->edge_count; i++)
    if (i == 0 || compare_edges(&d->edges[i], &d->edges[kept - 1]) != 0) d->edges[kept++] = d->edges[i];
  d->edge_count = kept;
  for (int i = 0, comp; i < kept;) {
    comp = d->edges[i].comp;
    d->graphs[comp].edge_begin = i;
    while (i < kept && d->edges[i].comp == comp) i++;
    d->graphs[comp].edge_end = i;
  }
}

static weft_status *find_descendants(buf_deps *d, buf_graph *g)
{
  if (g->node_count > BUF_REACH_LIMIT) return NULL;
  g->words = (g->node_count + 63) / 64;
  if (!g->below) g->below = WEFT_ARENA_ARRAY(&d->arena, uint64_t, (int64_t)g->node_count * g->words);
  WEFT_TRY_ALLOC(g->below);
  memset(g->below, 0, (size_t)g->node_count * (size_t)g->words * sizeof *g->below);
  for (int i = g->edge_end - 1; i >= g->edge_begin;
       i--) { /* sorted by `from`, and from < to: descendants are complete */
    uint64_t *mine = g->below + (int64_t)d->edges[i].from * g->words;
    const uint64_t *theirs = g->below + (int64_t)d->edges[i].to * g->words;
    if (mine[d->edges[i].to / 64] >> (d->edges[i].to % 64) & 1) continue;
    mine[d->edges[i].to / 64] |= UINT64_C(1) << (d->edges[i].to % 64);
    for (int w = 0; w < g->words; w++) mine[w] |= theirs[w];
  }
  return NULL;
}

static double default_cost(const hlo_instr *instr) /* 100 ns to dispatch it, and the bytes moved at 10 GB/s */
{
  double bytes = (double)hlo_shape_total_bytes(instr->shape);
  for (int i = 0; i < instr->operand_count; i++) bytes += (double)hlo_shape_total_bytes(instr->operands[i]->shape);
  return 100 + bytes / 10;
}

static weft_status *number_nodes(buf_deps *d, const buf_options *options)
{
  const buf_flow *flow = d->plan->flow;
  const hlo_module *module = flow->module;

  memset(d->node_of, -1, (size_t)module->next_id * sizeof(int));
  for (const hlo_computation *comp = module->last; comp; comp = comp->prev) { /* callers before callees */
    buf_graph *g = &d->graphs[comp->id];
    if (flow->comp_begin[comp->id] < 0) continue;
    g->comp = comp;
    if (flow->caller[comp->id]) d->depth[comp->id] = d->depth[flow->caller[comp->id]->parent->id] + 1;
    g->nodes = WEFT_ARENA_ARRAY(&d->arena, const hlo_instr *, comp->instr_count);
    g->cost = WEFT_ARENA_ARRAY(&d->arena, double, comp->instr_count);
    g->top = WEFT_ARENA_ARRAY(&d->arena, double, comp->instr_count);
    g->bottom = WEFT_ARENA_ARRAY(&d->arena, double, comp->instr_count);
    if (!g->nodes || !g->cost || !g->top || !g->bottom) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    HLO_FOREACH(instr, comp) {
      if (hlo_opcode_is_alias(instr->op)) continue;
      if (!hlo_opcode_runs_steps(instr->op))
        g->cost[g->node_count] = options->cost_ns ? options->cost_ns(options->ctx, instr) : default_cost(instr);
      d->node_of[instr->id] = g->node_count;
      g->nodes[g->node_count++] = instr;
    }
  }
  return NULL;
}

static weft_status *add_flow_edges(buf_deps *d, const bool *in_order)
{
  const buf_flow *flow = d->plan->flow;

  for (int c = 0; in_order && c < flow->module->next_computation_id; c++)
    for (int n = 1; in_order[c] && n < d->graphs[c].node_count; n++)
      WEFT_TRY(add_edge(d, d->graphs[c].nodes[n - 1], d->graphs[c].nodes[n]));
  for (int i = 0; i < flow->read_count; i++)
    WEFT_TRY(add_edge(d, flow->values[flow->reads[i].value].instr, flow->reads[i].instr));
  HLO_FOREACH_COMPUTATION(comp, flow->module)
    if (d->graphs[comp->id].comp)
      HLO_FOREACH(instr, comp)
        for (int i = 0; i < instr->control->pred_count; i++) WEFT_TRY(add_edge(d, instr->control->preds[i], instr));
  return NULL;
}

/* In one buffer, a value is written only after the value before it has been written and read. */
static weft_status *add_class_edges(buf_deps *d, const buf_classes *classes)
{
  const buf_flow *flow = d->plan->flow;
  int *first_read, *by_value;

  first_read = WEFT_ARENA_ARRAY(&d->arena, int, flow->value_count + 1);
  by_value = WEFT_ARENA_ARRAY(&d->arena, int, flow->read_count);
  if (!first_read || !by_value) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int i = 0; i < flow->read_count; i++) first_read[flow->reads[i].value + 1]++;
  for (int v = 0; v < flow->value_count; v++) first_read[v + 1] += first_read[v];
  for (int i = flow->read_count - 1; i >= 0; i--) by_value[--first_read[flow->reads[i].value + 1]] = i;
  for (int v = 0; v < flow->value_count; v++) { /* the loop above left first_read[v + 1] at the start of v */
    const struct buf_class *c = &classes->classes[v];
    if (buf_class_of(classes, v) != v) continue;
    for (int m = 0; m + 1 < c->count; m++) {
      int now = c->members[m];
      const hlo_instr *next = flow->values[c->members[m + 1]].instr;
      int end = now + 2 <= flow->value_count ? first_read[now + 2] : flow->read_count;
      if (now + 1 == flow->value_count) end = flow->read_count;
      WEFT_TRY(add_edge(d, flow->values[now].instr, next));
      for (int r = first_read[now + 1]; r < end; r++) WEFT_TRY(add_edge(d, flow->reads[by_value[r]].instr, next));
    }
  }
  return NULL;
}

static int compare_ints(const void *a, const void *b)
{
  return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

/* Finds the home, the touches and the first node of each buffer. */
static weft_status *locate_buffers(buf_deps *d, const buf_classes *classes)
{
  buf_plan *plan = (buf_plan *)d->plan;
  const buf_flow *flow = plan->flow;
  int *count = WEFT_ARENA_ARRAY(&d->arena, int, plan->buffer_count + 1);
  const hlo_computation **home = WEFT_ARENA_ARRAY(&d->arena, const hlo_computation *, plan->buffer_count);
  int total = 0;

  if (!count || !home) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
#define EACH_TOUCH(body)                                                                                       \
  for (int v = 0; v < flow->value_count; v++) {                                                                \
    int b = plan->class_buffer[buf_class_of(classes, v)];                                                      \
    const hlo_instr *instr = flow->values[v].instr;                                                            \
    if (b >= 0 && instr) body                                                                                  \
  }                                                                                                            \
  for (int r = 0; r < flow->read_count; r++) {                                                                 \
    int b = plan->class_buffer[buf_class_of(classes, flow->reads[r].value)];                                   \
    const hlo_instr *instr = flow->reads[r].instr;                                                             \
    if (b >= 0 && instr) body                                                                                  \
  }
  EACH_TOUCH({
    home[b] = home[b] ? common(d, home[b], instr->parent) : instr->parent;
    count[b]++;
  })
  for (int b = 0; b < plan->buffer_count; b++) {
    buf_buffer *buffer = &plan->buffers[b];
    if (buffer->kind != BUFFER_VALUE) {
      home[b] = buffer->instr->parent;
      count[b] = 1;
    }
    buffer->home = home[b]->id;
    buffer->touch_begin = buffer->touch_end = total;
    total += count[b];
  }
  d->touches = WEFT_ARENA_ARRAY(&d->arena, int, total);
  WEFT_TRY_ALLOC(d->touches);
  EACH_TOUCH({
    int node = buf_node_in(d, instr, plan->buffers[b].home);
    if (node >= 0) d->touches[plan->buffers[b].touch_end++] = node;
  })
#undef EACH_TOUCH
  for (int b = 0; b < plan->buffer_count; b++) {
    buf_buffer *buffer = &plan->buffers[b];
    int *mine = d->touches + buffer->touch_begin, kept = 0;
    if (buffer->kind != BUFFER_VALUE) d->touches[buffer->touch_end++] = d->node_of[buffer->instr->id];
    qsort(mine, (size_t)(buffer->touch_end - buffer->touch_begin), sizeof *mine, compare_ints);
    for (int i = 0; i < buffer->touch_end - buffer->touch_begin; i++)
      if (i == 0 || mine[i] != mine[kept - 1]) mine[kept++] = mine[i];
    buffer->touch_end = buffer->touch_begin + kept;
    buffer->first_node = mine[0]; /* nodes are in list order, and a value is written before it is read */
  }
  d->touch_count = total;
  return NULL;
}

static weft_status *index_graphs(buf_deps *d)
{
  index_edges(d);
  for (int c = 0; c < d->plan->module->next_computation_id; c++)
    if (d->graphs[c].comp) WEFT_TRY(find_descendants(d, &d->graphs[c]));
  return NULL;
}

weft_status *buf_deps_new(const buf_plan *plan, const buf_options *options, buf_deps **out_deps)
{
  WEFT_AUTO(buf_deps) d = calloc(1, sizeof *d);
  const hlo_module *module = plan->module;

  *out_deps = NULL;
  WEFT_TRY_ALLOC(d);
  weft_arena_init(&d->arena);
  d->plan = plan;
  d->node_of = WEFT_ARENA_ARRAY(&d->arena, int, module->next_id);
  d->depth = WEFT_ARENA_ARRAY(&d->arena, int, module->next_computation_id);
  d->graphs = WEFT_ARENA_ARRAY(&d->arena, buf_graph, module->next_computation_id);
  if (!d->node_of || !d->depth || !d->graphs) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  WEFT_TRY(number_nodes(d, options));
  WEFT_TRY(add_flow_edges(d, options->in_order));
  WEFT_TRY(index_graphs(d));
  *out_deps = WEFT_MOVE(d);
  return NULL;
}

bool buf_comes_before(const buf_deps *d, const hlo_instr *before, const hlo_instr *after)
{
  int comp = common(d, before->parent, after->parent)->id, x = buf_node_in(d, before, comp),
      y = buf_node_in(d, after, comp);
  return x >= 0 && y > x && d->graphs[comp].below && buf_reaches(&d->graphs[comp], x, y);
}

weft_status *buf_deps_add_classes(buf_deps *d, const buf_classes *classes)
{
  WEFT_TRY(add_class_edges(d, classes));
  WEFT_TRY(index_graphs(d));
  return locate_buffers(d, classes);
}

void buf_deps_free(buf_deps *deps)
{
  if (!deps) return;
  weft_arena_fini(&deps->arena);
  free(deps);
}

double buf_control_time(buf_control kind, int64_t trips, double sum, double most)
{
  enum { GUESSED_TRIPS = 10 };

  if (kind == BUF_CHOICE) return most;
  return kind == BUF_LOOP ? sum * (trips >= 0 ? (double)trips : GUESSED_TRIPS) : sum;
}

/* The time of a step that runs computations, from their times.  Without `by_trips` a loop counts as one round. */
static double control_time(const hlo_instr *instr, const double *times, bool by_trips)
{
  buf_control kind = instr->op == HLO_CONDITIONAL ? BUF_CHOICE : instr->op == HLO_WHILE ? BUF_LOOP : BUF_CALL;
  double sum = 0, most = 0;

  for (int i = 0; i < instr->called_count; i++) {
    sum += times[instr->called[i]->id];
    most = WEFT_MAX(most, times[instr->called[i]->id]);
  }
  return buf_control_time(kind, !by_trips ? 1 : kind == BUF_LOOP ? hlo_known_trip_count(instr) : 1, sum, most);
}

static void find_paths(buf_deps *d, buf_graph *g)
{
  for (int n = 0; n < g->node_count; n++) {
    g->top[n] = 0;
    g->bottom[n] = g->cost[n];
  }
  g->span = 0;
  for (int i = g->edge_begin, n = 0; n < g->node_count;
       n++) { /* top[n] holds the latest end of n's predecessors so far */
    g->top[n] += g->cost[n];
    g->span = WEFT_MAX(g->span, g->top[n]);
    for (; i < g->edge_end && d->edges[i].from == n; i++)
      g->top[d->edges[i].to] = WEFT_MAX(g->top[d->edges[i].to], g->top[n]);
  }
  for (int i = g->edge_end - 1; i >= g->edge_begin; i--)
    g->bottom[d->edges[i].from] =
      WEFT_MAX(g->bottom[d->edges[i].from], g->cost[d->edges[i].from] + g->bottom[d->edges[i].to]);
}

void buf_deps_span(buf_deps *d, bool by_trips, double *paths)
{
  HLO_FOREACH_COMPUTATION(comp, d->plan->module) {
    buf_graph *g = &d->graphs[comp->id];
    if (!g->comp) continue;
    for (int n = 0; n < g->node_count; n++)
      if (hlo_opcode_runs_steps(g->nodes[n]->op)) g->cost[n] = control_time(g->nodes[n], paths, by_trips);
    find_paths(d, g);
    paths[comp->id] = g->span;
  }
}

void buf_deps_work(const buf_deps *d, double *work)
{
  HLO_FOREACH_COMPUTATION(comp, d->plan->module) {
    const buf_graph *g = &d->graphs[comp->id];
    work[comp->id] = 0;
    for (int n = 0; g->comp && n < g->node_count; n++)
      work[comp->id] += hlo_opcode_runs_steps(g->nodes[n]->op) ? control_time(g->nodes[n], work, true) : g->cost[n];
  }
}

typedef struct sharing {
  buf_deps *deps;
  const hlo_instr **instr_at; /* by step */
  int added;
} sharing;

static weft_status *add_shared_edge(void *ctx, int from, int to)
{
  sharing *s = ctx;
  buf_deps *d = s->deps;
  const hlo_instr *a = s->instr_at[from], *b = s->instr_at[to];
  int comp = common(d, a->parent, b->parent)->id, x = buf_node_in(d, a, comp), y = buf_node_in(d, b, comp);
  const buf_graph *g = &d->graphs[comp];

  if (!g->below || x >= y || buf_reaches(g, x, y)) return NULL;
  s->added++;
  return add_edge(d, a, b);
}

weft_status *buf_deps_add_sharing(buf_deps *d, int *out_added)
{
  const buf_plan *plan = d->plan;
  const buf_flow *flow = plan->flow;
  sharing s = {.deps = d};
  buf_hazards hazards;

  s.instr_at = WEFT_ARENA_ARRAY(&d->arena, const hlo_instr *, flow->step_count);
  WEFT_TRY_ALLOC(s.instr_at);
  for (int c = 0; c < plan->module->next_computation_id; c++)
    for (int n = 0; d->graphs[c].comp && n < d->graphs[c].node_count; n++)
      if (!hlo_opcode_runs_steps(d->graphs[c].nodes[n]->op))
        s.instr_at[flow->step[d->graphs[c].nodes[n]->id]] = d->graphs[c].nodes[n];
  WEFT_TRY(buf_hazards_init(&hazards, &d->arena, plan->alloc_count, add_shared_edge, &s));
  for (int step = 0; step < flow->step_count; step++) {
    const hlo_instr *instr = s.instr_at[step];
    if (!instr) continue;
    for (int i = 0; i < instr->operand_count; i++)
      for (int leaf = 0; leaf < flow->leaf_count[instr->operands[i]->id]; leaf++)
        WEFT_TRY(buf_hazards_read(&hazards, step, buf_plan_slice(plan, instr->operands[i], leaf)));
    for (int leaf = 0; leaf < flow->leaf_count[instr->id]; leaf++)
      if (flow->values[buf_flow_value(flow, instr, leaf)].instr == instr)
        WEFT_TRY(buf_hazards_write(&hazards, step, buf_plan_slice(plan, instr, leaf)));
    WEFT_TRY(buf_hazards_write(&hazards, step, buf_plan_scratch(plan, instr)));
  }
  index_edges(d);
  *out_added = s.added;
  return NULL;
}
