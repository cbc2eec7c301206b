/* runtime/program.c -- Building programs: graphs from the bytes that thunks use, and the choice between running a
 * sequence in order and running its graph. */
#include <config.h>

#include "runtime/program.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "buffer/hazard.h"
#include "runtime/packed.h"
#include "runtime/program_internal.h"

enum {
  REDUCE_LIMIT = 8192,        /* thunks of a sequence up to which edges are reduced (n*n/8 bytes while building) */
  FEW_THUNKS = 4,             /* with fewer thunks a graph never pays */
};
static const double GRAPH_NODE_NS = 300, GRAPH_START_NS = 6000; /* cost of a node in a graph; of enlisting workers */
static const double SMALL_NS = 50;                              /* a thunk of unknown cost */
/* The part of the time in order that a graph may take at most, as estimated: otherwise waking threads does not pay. */
static const double LEAST_GAIN = 0.75;

weft_status *rt_program_new(rt_program **out_program)
{
  rt_program *program = calloc(1, sizeof *program);

  *out_program = NULL;
  WEFT_TRY_ALLOC(program);
  weft_arena_init(&program->arena);
  weft_mutex_init(&program->mu);
  *out_program = program;
  return NULL;
}

static void free_frame(rt_frame *frame)
{
  for (int i = 0; i < frame->program->seq_count; i++) {
    rt_seq_run *run = &frame->runs[i];
    /* all of them are about to leave */
    while (atomic_load_explicit(&run->helpers, memory_order_acquire) > 0) sched_yield();
    weft_mutex_fini(&run->mu);
  }
  weft_arena_fini(&frame->arena);
  free(frame);
}

void rt_program_free(rt_program *program) WEFT_UNSHARED
{
  if (!program) return;
  for (rt_frame *frame = program->free_frames, *next; frame; frame = next) {
    next = frame->next;
    free_frame(frame);
  }
  for (int i = 0; i < program->thunk_count; i++)
    if (program->thunks[i]->ops->destroy) program->thunks[i]->ops->destroy(program->thunks[i]);
  weft_mutex_fini(&program->mu);
  weft_arena_fini(&program->arena);
  free(program);
}

weft_arena *rt_program_arena(rt_program *program) { return &program->arena; }

weft_status *rt_program_adopt(rt_program *program, rt_thunk *thunk)
{
  thunk->own_ops = thunk->ops;
  WEFT_TRY_ALLOC(
    WEFT_ARENA_RESERVE(&program->arena, program->thunks, program->thunk_capacity, program->thunk_count + 1, 32));
  program->thunks[program->thunk_count++] = thunk;
  return NULL;
}

weft_status *rt_program_list(rt_program *program, rt_seq *seq)
{
  seq->index = program->seq_count;
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&program->arena, program->seqs, program->seq_capacity, program->seq_count + 1, 32));
  program->seqs[program->seq_count++] = seq;
  return NULL;
}

weft_status *rt_seq_new(rt_program *program, const char *name, int count, rt_thunk *const *thunks, int edge_count,
                        const int (*edges)[2], rt_seq **out_seq)
{
  rt_seq *seq = WEFT_ARENA_NEW(&program->arena, rt_seq);

  WEFT_TRY_ALLOC(seq);
  *seq = (rt_seq){.name = name, .count = count, .edge_count = edge_count};
  seq->thunks = weft_arena_memdup(&program->arena, thunks, (size_t)count * sizeof *thunks);
  seq->edges = weft_arena_memdup(&program->arena, edges, (size_t)edge_count * sizeof *edges);
  if (!seq->thunks || !seq->edges) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  WEFT_TRY(rt_program_list(program, seq));
  for (int i = 0; i < count; i++) {
    thunks[i]->parent = seq;
    thunks[i]->node = i;
    WEFT_TRY(rt_program_adopt(program, thunks[i]));
  }
  *out_seq = seq;
  return NULL;
}

/* ---- control flow ---------------------------------------------------------------------------------------------- */

static const rt_thunk_ops while_ops = {sizeof(rt_thunk_ops), "while", .control = rt_control_while};
static const rt_thunk_ops conditional_ops = {sizeof(rt_thunk_ops), "conditional", .control = rt_control_conditional};
static const rt_thunk_ops call_ops = {sizeof(rt_thunk_ops), "call", .control = rt_control_call};

static int compare_uses(const void *a, const void *b)
{
  const rt_use *x = a, *y = b;
  if (x->slice.alloc != y->slice.alloc) return x->slice.alloc < y->slice.alloc ? -1 : 1;
  return (x->slice.offset > y->slice.offset) - (x->slice.offset < y->slice.offset);
}

/* Sets the uses of a control thunk: uses[0] is its flag, if it has one; the rest is what its sequences use.
 * Overlapping uses are joined, and so are neighbours with the same access. */
static weft_status *gather_uses(rt_program *program, rt_thunk *thunk, const rt_use *flag)
{
  int count = flag != NULL, kept = flag != NULL;
  rt_use *uses;

  for (int s = 0; s < thunk->seq_count; s++)
    for (int t = 0; t < thunk->seqs[s]->count; t++) count += thunk->seqs[s]->thunks[t]->use_count;
  uses = WEFT_ARENA_ARRAY(&program->arena, rt_use, count);
  WEFT_TRY_ALLOC(uses);
  if (flag) uses[0] = *flag;
  count = kept;
  for (int s = 0; s < thunk->seq_count; s++)
    for (int t = 0; t < thunk->seqs[s]->count; t++) {
      const rt_thunk *inner = thunk->seqs[s]->thunks[t];
      for (int u = 0; u < inner->use_count; u++)
        if (inner->uses[u].slice.alloc >= 0 && inner->uses[u].slice.bytes > 0) uses[count++] = inner->uses[u];
    }
  qsort(uses + kept, (size_t)(count - kept), sizeof *uses, compare_uses);
  for (int i = kept, first = kept; i < count; i++) {
    rt_use *last = &uses[kept - 1];
    int64_t last_end = kept > first ? last->slice.offset + last->slice.bytes : 0;
    bool same = kept > first && last->slice.alloc == uses[i].slice.alloc;
    if (same &&
        (uses[i].slice.offset < last_end || (uses[i].slice.offset == last_end && uses[i].access == last->access))) {
      int64_t end = WEFT_MAX(last_end, uses[i].slice.offset + uses[i].slice.bytes);
      last->slice.bytes = end - last->slice.offset;
      last->access |= uses[i].access;
    } else {
      uses[kept++] = uses[i];
    }
  }
  thunk->uses = uses;
  thunk->use_count = kept;
  return NULL;
}

static weft_status *control_init(rt_program *program, rt_thunk *thunk, const rt_thunk_ops *ops, const char *name,
                                 int seq_count, rt_seq *const *seqs, const buf_slice *flag)
{
  rt_use use = {.access = RT_READ};

  *thunk = (rt_thunk){.ops = ops, .own_ops = ops, .name = name, .seq_count = seq_count};
  thunk->seqs = weft_arena_memdup(&program->arena, seqs, (size_t)seq_count * sizeof *seqs);
  WEFT_TRY_ALLOC(thunk->seqs);
  for (int i = 0; i < seq_count; i++) seqs[i]->owner = thunk;
  if (flag) use.slice = *flag;
  return gather_uses(program, thunk, flag ? &use : NULL);
}

void rt_control_set_flag(rt_thunk *thunk, buf_slice flag) { thunk->uses[0].slice = flag; }

weft_status *rt_program_gather_uses(rt_program *program)
{
  for (int s = 0; s < program->seq_count; s++) /* a control thunk is made after its sequences: they come first */
    for (int t = 0; t < program->seqs[s]->count; t++) {
      rt_thunk *thunk = program->seqs[s]->thunks[t];
      bool has_flag = thunk->own_ops == &while_ops || thunk->own_ops == &conditional_ops;
      if (thunk->ops->control) WEFT_TRY(gather_uses(program, thunk, has_flag ? &thunk->uses[0] : NULL));
    }
  return NULL;
}

weft_status *rt_while_new(rt_program *program, const char *name, rt_seq *condition, rt_seq *body, buf_slice flag,
                          int64_t trips, rt_thunk **out_thunk)
{
  rt_while_thunk *thunk = WEFT_ARENA_NEW(&program->arena, rt_while_thunk);
  rt_seq *seqs[] = {body, condition};

  WEFT_TRY_ALLOC(thunk);
  WEFT_TRY(control_init(program, &thunk->base, &while_ops, name, 2, seqs, &flag));
  thunk->trips = trips;
  *out_thunk = &thunk->base;
  return NULL;
}

weft_status *rt_conditional_new(rt_program *program, const char *name, int count, rt_seq *const *branches,
                                buf_slice flag, bool flag_is_pred, rt_thunk **out_thunk)
{
  rt_conditional_thunk *thunk = WEFT_ARENA_NEW(&program->arena, rt_conditional_thunk);

  WEFT_TRY_ALLOC(thunk);
  WEFT_TRY(control_init(program, &thunk->base, &conditional_ops, name, count, branches, &flag));
  thunk->flag_is_pred = flag_is_pred;
  *out_thunk = &thunk->base;
  return NULL;
}

weft_status *rt_call_init(rt_program *program, rt_thunk *thunk, const rt_thunk_ops *ops, const char *name,
                          rt_seq *callee)
{
  return control_init(program, thunk, ops, name, 1, &callee, NULL);
}

weft_status *rt_call_new(rt_program *program, const char *name, rt_seq *callee, rt_thunk **out_thunk)
{
  rt_thunk *thunk = WEFT_ARENA_NEW(&program->arena, rt_thunk);

  WEFT_TRY_ALLOC(thunk);
  WEFT_TRY(rt_call_init(program, thunk, &call_ops, name, callee));
  *out_thunk = thunk;
  return NULL;
}

/* ---- graphs ---------------------------------------------------------------------------------------------------- */

typedef struct edge { int from, to; bool start; } edge; /* start: `to` waits for from's start only */

typedef struct graph {
  weft_arena scratch;
  weft_arena *arena; /* of the nodes */
  rt_seq *seq;
  int count, capacity;
  edge *edges;
} graph;

static weft_status *add_edge(graph *g, edge e)
{
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&g->scratch, g->edges, g->capacity, g->count + 1, 256));
  g->edges[g->count++] = e;
  return NULL;
}

static weft_status *add_hazard(void *ctx, int from, int to) { return add_edge(ctx, (edge){from, to, false}); }

static int compare_edges(const void *a, const void *b)
{
  const edge *x = a, *y = b;
  if (x->from != y->from) return x->from < y->from ? -1 : 1;
  if (x->to != y->to) return x->to < y->to ? -1 : 1;
  return x->start - y->start; /* waiting for the end is stronger and comes first */
}

static weft_status *collect_edges(graph *g, int alloc_count)
{
  const rt_seq *seq = g->seq;
  buf_hazards hazards;
  int kept = 0, groups = 0, *last_of_group;

  for (int t = 0; t < seq->count; t++) groups = WEFT_MAX(groups, seq->thunks[t]->order_group);
  last_of_group = WEFT_ARENA_ARRAY(&g->scratch, int, groups + 1);
  WEFT_TRY_ALLOC(last_of_group);
  memset(last_of_group, -1, (size_t)(groups + 1) * sizeof *last_of_group);
  WEFT_TRY(buf_hazards_init(&hazards, &g->scratch, alloc_count, add_hazard, g));
  for (int t = 0; t < seq->count; t++) {
    const rt_thunk *thunk = seq->thunks[t];
    for (int u = 0; u < thunk->use_count; u++)
      if (thunk->uses[u].access & RT_READ) WEFT_TRY(buf_hazards_read(&hazards, t, thunk->uses[u].slice));
    for (int u = 0; u < thunk->use_count; u++)
      if (thunk->uses[u].access & RT_WRITE) WEFT_TRY(buf_hazards_write(&hazards, t, thunk->uses[u].slice));
    if (thunk->order_group == 0) continue;
    if (last_of_group[thunk->order_group] >= 0)
      WEFT_TRY(add_edge(g, (edge){last_of_group[thunk->order_group], t, true}));
    last_of_group[thunk->order_group] = t;
  }
  for (int i = 0; i < seq->edge_count; i++) WEFT_TRY(add_edge(g, (edge){seq->edges[i][0], seq->edges[i][1], false}));
  if (g->count > 0) qsort(g->edges, (size_t)g->count, sizeof *g->edges, compare_edges);
  for (int i = 0; i < g->count; i++)
    if (kept == 0 || g->edges[i].from != g->edges[kept - 1].from || g->edges[i].to != g->edges[kept - 1].to)
      g->edges[kept++] = g->edges[i];
  g->count = kept;
  return NULL;
}

/* Drops edges that longer paths imply.  Paths through a start edge imply nothing about ends and are left out. */
static weft_status *reduce(graph *g)
{
  int n = g->seq->count, words = (n + 63) / 64, kept = 0;
  uint64_t *below;

  if (n > REDUCE_LIMIT) return NULL;
  below = WEFT_ARENA_ARRAY(&g->scratch, uint64_t, (int64_t)n *words);
  WEFT_TRY_ALLOC(below);
  for (int end = g->count, begin; end > 0; end = begin) { /* one node's edges at a time, from the last node */
    int from = g->edges[end - 1].from;
    uint64_t *mine = below + (int64_t)from * words;
    for (begin = end; begin > 0 && g->edges[begin - 1].from == from; begin--) {}
    for (int i = begin; i < end; i++) { /* nearest first: its descendants cover the farther ones */
      edge *e = &g->edges[i];
      if (e->start) continue;
      if (mine[e->to / 64] >> (e->to % 64) & 1) {
        e->to = -1;
        continue;
      }
      mine[e->to / 64] |= UINT64_C(1) << (e->to % 64);
      for (int w = 0; w < words; w++) mine[w] |= below[(int64_t)e->to * words + w];
    }
  }
  for (int i = 0; i < g->count; i++)
    if (g->edges[i].to >= 0) g->edges[kept++] = g->edges[i];
  g->count = kept;
  return NULL;
}

static double spread_cost(const rt_thunk *thunk, int threads)
{
  double ns = thunk->cost_ns > 0 ? thunk->cost_ns : SMALL_NS;
  return thunk->splits && ns > 20000 ? ns / threads + 3000 : ns;
}

/* Decides how the sequence runs and lays out its graph.  In order, a large kernel still spreads over the workers; the
 * graph is faster where other work can run beside steps that are small or cannot be split. */
static weft_status *lay_out(rt_program *program, graph *g)
{
  rt_seq *seq = g->seq;
  int n = seq->count, at = 0;
  double in_order = 0, graph_ns;
  bool elsewhere = false;

  seq->nodes = WEFT_ARENA_ARRAY(g->arena, rt_node, n);
  seq->successors = WEFT_ARENA_ARRAY(g->arena, int, g->count);
  if (!seq->nodes || !seq->successors) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  seq->total_ns = seq->span_ns = 0;
  for (int i = 0; i < n; i++) {
    const rt_thunk *thunk = seq->thunks[i];
    in_order += spread_cost(thunk, program->threads);
    seq->total_ns += thunk->cost_ns > 0 ? thunk->cost_ns : SMALL_NS;
    elsewhere |= thunk->ops->start && !thunk->ops->ends_soon;
  }
  for (int i = n - 1, end = g->count; i >= 0; i--) {
    rt_node *node = &seq->nodes[i];
    double after = 0;
    int begin = end;
    while (begin > 0 && g->edges[begin - 1].from == i) begin--;
    for (int k = begin; k < end; k++) after = WEFT_MAX(after, seq->nodes[g->edges[k].to].priority);
    node->priority = after + spread_cost(seq->thunks[i], program->threads);
    seq->span_ns = WEFT_MAX(seq->span_ns, node->priority);
    end = begin;
  }
  for (int pass = 0; pass < 2; pass++) /* ends, then starts: edges are sorted by `from` */
    for (int k = 0; k < g->count; k++) {
      edge *e = &g->edges[k];
      rt_node *from = &seq->nodes[e->from];
      if (e->start != (pass == 1)) continue;
      int *count = pass ? &from->started_count : &from->successor_count;
      if ((*count)++ == 0) *(pass ? &from->started_begin : &from->successor_begin) = at;
      seq->successors[at++] = e->to;
      seq->nodes[e->to].waits++;
    }
  seq->kept_edges = g->count;
  graph_ns = WEFT_MAX(seq->span_ns, seq->total_ns / program->threads) + n * GRAPH_NODE_NS + GRAPH_START_NS;
  seq->in_order = n < FEW_THUNKS ? !elsewhere || n == 1 : !elsewhere && graph_ns > LEAST_GAIN * in_order;
  /* with one thread or one stream, steps run in order anyway */
  if ((program->threads == 1 || program->queues) && !elsewhere) seq->in_order = true;
  return NULL;
}

static weft_status *build_graph(rt_program *program, rt_seq *seq, const buf_plan *plan, weft_arena *arena)
{
  graph g = {.seq = seq, .arena = arena};
  weft_status *st;

  weft_arena_init(&g.scratch);
  st = collect_edges(&g, buf_plan_alloc_count(plan));
  if (!st) st = reduce(&g);
  if (!st) st = lay_out(program, &g);
  weft_arena_fini(&g.scratch);
  return st;
}

/* A control thunk costs what its sequences do. */
static void price_control(rt_thunk *thunk)
{
  bool is_loop = thunk->ops == &while_ops;
  double sum = 0, most = 0;

  for (int s = 0; s < thunk->seq_count; s++) {
    sum += thunk->seqs[s]->total_ns;
    most = WEFT_MAX(most, thunk->seqs[s]->total_ns);
  }
  thunk->cost_ns = buf_control_time(is_loop                          ? BUF_LOOP
                                    : thunk->ops == &conditional_ops ? BUF_CHOICE
                                                                     : BUF_CALL,
                                    is_loop ? ((rt_while_thunk *)thunk)->trips : 1, sum, most);
}

static weft_status *number_args(rt_program *program)
{
  const buf_plan *plan = program->plan;
  int temp = buf_plan_temp_alloc(plan);

  for (int t = 0; t < program->thunk_count; t++) {
    rt_thunk *thunk = program->thunks[t];
    thunk->first_arg = program->arg_count;
    program->arg_count += thunk->ops->control ? WEFT_MIN(thunk->use_count, 1) : thunk->use_count;
    thunk->index = thunk->ops->control || thunk->ops->start ? program->state_count++ : -1;
    program->cost_ns += thunk->ops->control ? 0 : thunk->cost_ns > 0 ? thunk->cost_ns : SMALL_NS;
  }
  program->constants = WEFT_ARENA_ARRAY(&program->arena, rt_patch, program->arg_count);
  program->temps = WEFT_ARENA_ARRAY(&program->arena, rt_patch, program->arg_count);
  program->fresh = WEFT_ARENA_ARRAY(&program->arena, rt_patch, program->arg_count);
  if (!program->constants || !program->temps || !program->fresh) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int t = 0; t < program->thunk_count; t++) {
    const rt_thunk *thunk = program->thunks[t];
    for (int u = 0; u < (thunk->ops->control ? WEFT_MIN(thunk->use_count, 1) : thunk->use_count); u++) {
      rt_patch patch = {thunk->first_arg + u, thunk->uses[u].slice.alloc, thunk->uses[u].slice.offset};
      if (patch.alloc < 0) continue;
      if (buf_plan_alloc(plan, patch.alloc)->kind == BUF_CONSTANT)
        program->constants[program->constant_count++] = patch;
      else if (patch.alloc == temp) program->temps[program->temp_count++] = patch;
      else program->fresh[program->fresh_count++] = patch;
    }
  }
  return NULL;
}

static bool same_slot(const rt_packed_slot *a, const rt_packed_slot *b)
{
  return a->alloc == b->alloc && a->offset == b->offset && a->packing->bytes == b->packing->bytes &&
         a->packing->key_bytes == b->packing->key_bytes &&
         memcmp(a->packing->key, b->packing->key, (size_t)a->packing->key_bytes) == 0;
}

/* Numbers the operands that may be packed. */
static weft_status *number_packed(rt_program *program)
{
  program->packed = WEFT_ARENA_ARRAY(&program->arena, rt_packed_slot, program->thunk_count + 1);
  WEFT_TRY_ALLOC(program->packed);
  for (int t = 0; t < program->thunk_count; t++) {
    rt_thunk *thunk = program->thunks[t];
    if (!thunk->packing || thunk->uses[thunk->packed_use].slice.alloc < 0) continue;
    rt_packed_slot slot = {.packing = thunk->packing, .arg = thunk->first_arg + thunk->packed_use,
                           .alloc = thunk->uses[thunk->packed_use].slice.alloc,
                           .in_operand = thunk->packed_offset,
                           .offset = thunk->uses[thunk->packed_use].slice.offset + thunk->packed_offset};
    const buf_alloc *alloc = buf_plan_alloc(program->plan, slot.alloc);
    if (alloc->kind != BUF_CONSTANT && (alloc->kind != BUF_PARAMETER || alloc->written)) continue;
    int s = 1;
    while (s <= program->packed_count && !same_slot(&program->packed[s], &slot)) s++;
    program->packed[s] = slot;
    program->packed_count = WEFT_MAX(program->packed_count, s);
    thunk->packed_slot = s;
  }
  return NULL;
}

/* Steps that work on the host wait for what was queued before them. */
static weft_status *order_behind_stream(rt_program *program)
{
  for (int t = 0; t < program->thunk_count; t++) {
    rt_thunk *thunk = program->thunks[t];
    bool reads = thunk->ops == &conditional_ops || (thunk->ops == &while_ops && ((rt_while_thunk *)thunk)->trips < 0);
    WEFT_TRY(rt_make_late(&program->arena, thunk));
    program->asks_host |= reads || rt_starts_late(thunk);
  }
  return NULL;
}

static weft_status *build_graphs(rt_program *program, const buf_plan *plan, weft_arena *arena)
{
  for (int s = 0; s < program->seq_count; s++) { /* a control thunk is made after its sequences: they come first */
    rt_seq *seq = program->seqs[s];
    for (int t = 0; t < seq->count; t++)
      if (seq->thunks[t]->ops->control) price_control(seq->thunks[t]);
    WEFT_TRY(build_graph(program, seq, plan, arena));
  }
  return NULL;
}

weft_status *rt_program_order(rt_program *program, const buf_plan *plan, int threads, bool queues)
{
  weft_arena scratch;
  weft_status *st;

  program->threads = WEFT_MAX(threads, 1);
  program->queues = queues;
  if (queues) WEFT_TRY(order_behind_stream(program));
  weft_arena_init(&scratch);
  st = build_graphs(program, plan, &scratch); /* rt_program_finish makes them again */
  weft_arena_fini(&scratch);
  return st;
}

weft_status *rt_program_finish(rt_program *program, rt_seq *root, const buf_plan *plan)
{
  program->root = root;
  program->plan = plan;
  WEFT_TRY(build_graphs(program, plan, &program->arena));
  WEFT_TRY(number_args(program));
  for (int t = 0; t < program->thunk_count; t++)
    if (program->thunks[t]->ops->control == rt_control_stretch)
      WEFT_TRY(rt_stretch_number(program, (rt_stretch *)program->thunks[t]));
  return number_packed(program);
}

int rt_program_packed_count(const rt_program *program) { return program->packed_count; }
const rt_packed_slot *rt_program_packed(const rt_program *program, int slot) { return &program->packed[slot]; }

bool rt_seq_runs_in_order(const rt_seq *seq) { return seq->in_order; }
int rt_seq_count(const rt_seq *seq) { return seq->count; }
rt_thunk *const *rt_seq_steps(const rt_seq *seq) { return seq->thunks; }

rt_control_kind rt_control_kind_of(const rt_thunk *thunk)
{
  if (!thunk->ops->control) return RT_NO_CONTROL;
  return thunk->ops == &while_ops ? RT_LOOP : thunk->ops == &conditional_ops ? RT_CHOICE : RT_CALL;
}

int64_t rt_loop_trips(const rt_thunk *loop) { return ((const rt_while_thunk *)loop)->trips; }

/* Steps of a thunk with all their rounds; more than `most`, and where the number is not known: most + 1. */
static int64_t unrolled_steps(const rt_thunk *thunk, int64_t most)
{
  rt_control_kind kind = rt_control_kind_of(thunk);
  int64_t rounds = kind == RT_LOOP ? rt_loop_trips(thunk) : 1, sum = 0;

  if (kind == RT_NO_CONTROL) return 1;
  if (kind == RT_CHOICE || rounds < 0 || rounds > most) return most + 1;
  for (int t = 0; t < thunk->seqs[0]->count && sum <= most; t++) sum += unrolled_steps(thunk->seqs[0]->thunks[t], most);
  return sum > most ? most + 1 : WEFT_MIN(rounds * sum, most + 1);
}

bool rt_unrolls(const rt_thunk *thunk, int64_t most) { return unrolled_steps(thunk, most) <= most; }
bool rt_choice_is_by_pred(const rt_thunk *choice) { return ((const rt_conditional_thunk *)choice)->flag_is_pred; }
bool rt_program_asks_host(const rt_program *program) { return program->asks_host; }
double rt_program_cost_ns(const rt_program *program) { return program->cost_ns; }
/* ---- frames ---------------------------------------------------------------------------------------------------- */

static weft_status *fill_frame(rt_frame *frame)
{
  rt_program *program = frame->program;

  frame->ctx.args = WEFT_ARENA_ARRAY(&frame->arena, void *, program->arg_count);
  frame->ctx.states = WEFT_ARENA_ARRAY(&frame->arena, rt_thunk_state, program->state_count);
  frame->asyncs = WEFT_ARENA_ARRAY(&frame->arena, rt_async, program->state_count);
  if (!frame->ctx.args || !frame->ctx.states || !frame->asyncs) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int i = 0; i < program->seq_count; i++) {
    rt_seq_run *run = &frame->runs[i];
    rt_seq_run_init(run);
    run->seq = program->seqs[i];
    run->frame = frame;
    if (run->seq->in_order) continue;
    run->waits = WEFT_ARENA_ARRAY(&frame->arena, int, run->seq->count);
    run->ready = WEFT_ARENA_ARRAY(&frame->arena, int, run->seq->count);
    if (!run->waits || !run->ready) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  for (int i = 0; i < program->constant_count; i++) {
    const rt_patch *p = &program->constants[i];
    frame->ctx.args[p->arg] = (char *)buf_plan_alloc(program->plan, p->alloc)->literal->data + p->offset;
  }
  return NULL;
}

static weft_status *new_frame(rt_program *program, rt_frame **out_frame)
{
  rt_frame *frame = calloc(1, sizeof *frame);
  weft_status *st;

  WEFT_TRY_ALLOC(frame);
  weft_arena_init(&frame->arena);
  frame->program = program;
  frame->runs = WEFT_ARENA_ARRAY(&frame->arena, rt_seq_run, program->seq_count);
  if (!frame->runs) {
    weft_arena_fini(&frame->arena);
    free(frame);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  for (int i = 0; i < program->seq_count; i++) weft_mutex_init(&frame->runs[i].mu);
  st = fill_frame(frame);
  if (st) {
    free_frame(frame);
    return st;
  }
  *out_frame = frame;
  return NULL;
}

weft_status *rt_frame_acquire(rt_program *program, rt_frame **out_frame)
{
  weft_mutex_lock(&program->mu);
  rt_frame *frame = program->free_frames;
  if (frame) program->free_frames = frame->next;
  weft_mutex_unlock(&program->mu);
  if (!frame) return new_frame(program, out_frame);
  *out_frame = frame;
  return NULL;
}

void rt_frame_release(rt_frame *frame)
{
  rt_program *program = frame->program;

  weft_mutex_lock(&program->mu);
  frame->next = program->free_frames;
  program->free_frames = frame;
  weft_mutex_unlock(&program->mu);
}

void rt_frame_bind(rt_frame *frame, void *const *base)
{
  const rt_program *program = frame->program;
  void **args = frame->ctx.args;
  char *temp = base[buf_plan_temp_alloc(program->plan)];

  for (int i = 0; i < program->fresh_count; i++)
    args[program->fresh[i].arg] = (char *)base[program->fresh[i].alloc] + program->fresh[i].offset;
  if (temp == frame->bound_temp) return;
  for (int i = 0; i < program->temp_count; i++) args[program->temps[i].arg] = temp + program->temps[i].offset;
  frame->bound_temp = temp;
}

void rt_frame_bind_constants(rt_frame *frame, void *const *constants)
{
  const rt_program *program = frame->program;

  for (int i = 0; i < program->constant_count; i++)
    frame->ctx.args[program->constants[i].arg] = (char *)constants[program->constants[i].alloc] +
                                                 program->constants[i].offset;
}

void rt_frame_bind_packed(rt_frame *frame, const rt_form *packed) { frame->ctx.packed = packed; }
const void *rt_frame_arg(const rt_frame *frame, int arg) { return frame->ctx.args[arg]; }

/* ---- for people ------------------------------------------------------------------------------------------------ */

/* Uses the times of the memory plan if it has them, so that a program's figures are those of its plan; else the times
 * of the sequence. */
static buf_times times_of(const rt_program *program, const rt_seq *seq)
{
  HLO_FOREACH_COMPUTATION(comp, buf_plan_module(program->plan))
    if (strcmp(comp->name, seq->name) == 0) return buf_plan_times(program->plan, comp);
  return (buf_times){.work = seq->total_ns, .path = seq->span_ns};
}

static weft_sequence describe(const rt_program *program, const rt_seq *seq)
{
  buf_times times = times_of(program, seq);

  return (weft_sequence){.name = seq->name,
                         .is_entry = !seq->owner,
                         .in_order = seq->in_order,
                         .step_count = seq->count,
                         .dependence_count = seq->kept_edges,
                         .work_ns = times.work,
                         .path_ns = times.path};
}

void rt_program_each_sequence(const rt_program *program, void (*visit)(void *ctx, const weft_sequence *sequence),
                              void *ctx)
{
  for (int s = program->seq_count - 1; s >= 0; s--) {
    weft_sequence sequence = describe(program, program->seqs[s]);
    visit(ctx, &sequence);
  }
}

weft_status *rt_program_print(const rt_program *program, FILE *out)
{
  for (int s = program->seq_count - 1; s >= 0; s--) {
    const rt_seq *seq = program->seqs[s];
    weft_sequence d = describe(program, seq);
    fprintf(out, "%s%s: %d thunks, %d dependences, %s, %.1f us of work, longest path %.1f us\n",
            d.is_entry ? "entry " : "", d.name, d.step_count, d.dependence_count,
            d.in_order ? "in order" : "as a graph", d.work_ns / 1e3, d.path_ns / 1e3);
    for (int t = 0; t < seq->count; t++) {
      const rt_thunk *thunk = seq->thunks[t];
      const rt_node *node = &seq->nodes[t];
      fprintf(out, "  %4d %-14s %-32s %9.2f us%s", t, thunk->ops->kind, thunk->name, thunk->cost_ns / 1e3,
              thunk->splits ? " splits" : "");
      if (thunk->detail) fprintf(out, "  [%s]", thunk->detail);
      for (int i = 0; i < thunk->seq_count; i++) fprintf(out, "  %s", thunk->seqs[i]->name);
      for (int k = 0; k < node->successor_count; k++)
        fprintf(out, "%s%d", k ? "," : "  -> ", seq->successors[node->successor_begin + k]);
      fputc('\n', out);
    }
  }
  return ferror(out) ? WEFT_ERR(UNKNOWN, "cannot write the program") : NULL;
}

void rt_program_each_step(const rt_program *program, void (*visit)(void *ctx, const weft_step *step), void *ctx)
{
  for (int s = program->seq_count - 1; s >= 0; s--) {
    const rt_seq *seq = program->seqs[s];
    for (int t = 0; t < seq->count; t++) {
      const rt_thunk *thunk = seq->thunks[t];
      const rt_node *node = &seq->nodes[t];
      weft_step step = {.sequence = seq->name,
                        .is_entry = !seq->owner,
                        .in_order = seq->in_order,
                        .kind = thunk->ops->kind,
                        .name = thunk->name,
                        .detail = thunk->detail,
                        .cost_ns = thunk->cost_ns,
                        .splits = thunk->splits,
                        .trips = thunk->own_ops == &while_ops ? ((const rt_while_thunk *)thunk)->trips : -1,
                        .successor_count = node->successor_count,
                        .successors = seq->successors + node->successor_begin};
      for (int i = 0; i < thunk->seq_count && i < WEFT_STEP_CALLED; i++)
        step.called[step.called_count++] = thunk->seqs[i]->name;
      visit(ctx, &step);
    }
  }
}
