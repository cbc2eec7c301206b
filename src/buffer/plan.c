/* buffer/plan.c -- where every value of a scheduled module lives in memory (plan.h). */
#include <config.h>

#include "buffer/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "buffer/hazard.h"
#include "buffer/plan_internal.h"

weft_status *buf_order_parse(const char *text, buf_order *out_order, int64_t *out_budget)
{
  *out_budget = 0;
  if (strncmp(text, "budget=", 7) == 0) {
    *out_order = BUF_BUDGET;
    return weft_option_parse(WEFT_OPT_BYTES, "budget", text + 7, out_budget);
  }
  if (strcmp(text, "topological") != 0 && strcmp(text, "sequential") != 0)
    return WEFT_ERR(INVALID_ARGUMENT, "expected topological, sequential or budget=BYTES, got \"%s\"", text);
  *out_order = strcmp(text, "sequential") == 0 ? BUF_SEQUENTIAL : BUF_TOPOLOGICAL;
  return NULL;
}

static weft_status *add_buffer(buf_plan *plan, buf_buffer buffer)
{
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&plan->arena, plan->buffers, plan->buffer_capacity, plan->buffer_count + 1, 64));
  buffer.bytes = WEFT_ALIGN_UP(buffer.bytes, BUF_ALIGN);
  plan->buffers[plan->buffer_count++] = buffer;
  return NULL;
}

static bool is_token(const hlo_shape *shape) { return !hlo_shape_is_array(shape); }

/* Numbers the allocations: parameters, the arenas, results, constants, in this order. */
static weft_status *number_allocs(buf_plan *plan, const buf_classes *classes, int *class_alloc)
{
  const buf_flow *flow = plan->flow;
  const hlo_shape *result = plan->module->entry->root->shape;
  int constants = 0, at;

  for (int v = 0; v < flow->value_count; v++)
    constants += flow->values[v].instr && flow->values[v].instr->op == HLO_CONSTANT;
  plan->allocs = WEFT_ARENA_ARRAY(&plan->arena, buf_alloc, flow->param_count + ARENAS + flow->result_count + constants);
  plan->output_alloc = WEFT_ARENA_ARRAY(&plan->arena, int, flow->result_count);
  if (!plan->allocs || !plan->output_alloc) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");

  for (int v = 0; v < flow->value_count; v++) {
    const buf_value *value = &flow->values[v];
    if (value->param_leaf < 0) continue;
    plan->allocs[value->param_leaf] = (buf_alloc){.kind = BUF_PARAMETER,
                                                  .bytes = value->bytes,
                                                  .param_leaf = value->param_leaf,
                                                  .read_only = value->read_only,
                                                  .written = classes->classes[buf_class_of(classes, v)].count > 1};
    class_alloc[buf_class_of(classes, v)] = value->param_leaf;
    plan->stats.parameter_bytes += value->bytes;
  }
  for (int a = 0; a < ARENAS; a++) {
    plan->arena_alloc[a] = flow->param_count + a;
    plan->allocs[plan->arena_alloc[a]] = (buf_alloc){.kind = a == ARENA_TEMP ? BUF_TEMP : BUF_COLLECTIVE};
  }
  at = flow->param_count + ARENAS;
  for (int leaf = 0; leaf < flow->result_count; leaf++) {
    int c = buf_class_of(classes, flow->result_value[leaf]);
    int64_t bytes = flow->values[flow->result_value[leaf]].bytes;
    if (is_token(hlo_shape_leaf(result, leaf))) {
      plan->output_alloc[leaf] = -1;
    } else if (class_alloc[c] >= 0) {
      plan->output_alloc[leaf] = class_alloc[c];
      plan->stats.alias_bytes += bytes;
    } else {
      plan->allocs[at] = (buf_alloc){.kind = BUF_OUTPUT, .bytes = bytes};
      plan->stats.output_bytes += bytes;
      class_alloc[c] = plan->output_alloc[leaf] = at++;
    }
  }
  for (int v = 0; v < flow->value_count; v++) {
    const hlo_instr *instr = flow->values[v].instr;
    if (!instr || instr->op != HLO_CONSTANT || is_token(hlo_shape_leaf(instr->shape, flow->values[v].leaf))) continue;
    const hlo_literal *literal = instr->u.literal;
    int leaf = flow->values[v].leaf;
    while (hlo_shape_is_tuple(literal->shape)) { /* tuple constants: descend to the leaf */
      int element = 0, count;
      while (leaf >= (count = hlo_shape_leaf_count(literal->shape->elements[element]))) {
        leaf -= count;
        element++;
      }
      literal = literal->elements[element];
    }
    plan->allocs[at] =
      (buf_alloc){.kind = BUF_CONSTANT, .bytes = flow->values[v].bytes, .read_only = true, .literal = literal};
    plan->stats.constant_bytes += flow->values[v].bytes;
    class_alloc[buf_class_of(classes, v)] = at++;
  }
  plan->alloc_count = at;
  return NULL;
}

/* Finds the classes that collectives use, by representative. */
static weft_status *find_collective(const buf_plan *plan, const buf_classes *classes, const buf_options *options,
                                    weft_arena *arena, bool **out)
{
  const buf_flow *flow = plan->flow;

  *out = NULL;
  if (!options->is_collective) return NULL;
  *out = WEFT_ARENA_ARRAY(arena, bool, flow->value_count);
  WEFT_TRY_ALLOC(*out);
  for (int v = 0; v < flow->value_count; v++)
    if (flow->values[v].instr && options->is_collective(options->ctx, flow->values[v].instr))
      (*out)[buf_class_of(classes, v)] = true;
  for (int r = 0; r < flow->read_count; r++)
    if (flow->reads[r].instr && options->is_collective(options->ctx, flow->reads[r].instr))
      (*out)[buf_class_of(classes, flow->reads[r].value)] = true;
  return NULL;
}

/* Frames of a call: one in each arena that has buffers. */
static weft_status *add_frames(buf_plan *plan, const hlo_instr *instr, const bool *collective)
{
  int first = plan->flow->step_count;

  for (int i = 0; i < instr->called_count; i++) first = WEFT_MIN(first, plan->flow->comp_begin[instr->called[i]->id]);
  for (int a = 0; a < (collective ? ARENAS : 1); a++)
    WEFT_TRY(add_buffer(plan, (buf_buffer){.kind = BUFFER_FRAME,
                                           .arena = (buf_arena)a,
                                           .def = 2 * first,
                                           .end = 2 * plan->flow->step[instr->id] + 1,
                                           .instr = instr}));
  return NULL;
}

static weft_status *add_scratch(buf_plan *plan, const hlo_instr *instr, const buf_options *options)
{
  int step = plan->flow->step[instr->id];
  int64_t bytes = options->scratch_bytes(options->ctx, instr);
  bool collective = options->is_collective && options->is_collective(options->ctx, instr);
  buf_arena arena = collective ? ARENA_COLLECTIVE : ARENA_TEMP;

  if (bytes <= 0) return NULL;
  plan->scratch[instr->id] =
    (buf_slice){.alloc = plan->arena_alloc[arena], .offset = plan->buffer_count, .bytes = bytes};
  return add_buffer(
    plan,
    (buf_buffer){
      .kind = BUFFER_SCRATCH, .arena = arena, .bytes = bytes, .def = 2 * step, .end = 2 * step + 1, .instr = instr});
}

/* Lists the buffers of the arenas: classes without an allocation, scratch, frames of called computations. */
static weft_status *collect_buffers(buf_plan *plan, buf_classes *classes, const int *class_alloc,
                                    const buf_options *options)
{
  const buf_flow *flow = plan->flow;
  bool *collective;

  WEFT_TRY(find_collective(plan, classes, options, &classes->arena, &collective));
  for (int v = 0; v < flow->value_count; v++) {
    const struct buf_class *c = &classes->classes[v];
    plan->class_buffer[v] = -1;
    if (buf_class_of(classes, v) != v || class_alloc[v] >= 0 || flow->values[v].bytes == 0) continue;
    const buf_value *first = &flow->values[c->members[0]], *last = &flow->values[c->members[c->count - 1]];
    plan->class_buffer[v] = plan->buffer_count;
    WEFT_TRY(add_buffer(plan, (buf_buffer){.kind = BUFFER_VALUE,
                                           .arena = collective && collective[v] ? ARENA_COLLECTIVE : ARENA_TEMP,
                                           .bytes = first->bytes,
                                           .def = first->def,
                                           .end = last->end,
                                           .instr = first->instr,
                                           .leaf = first->leaf}));
  }
  HLO_FOREACH_COMPUTATION(comp, plan->module) {
    if (flow->comp_begin[comp->id] < 0) continue;
    HLO_FOREACH(instr, comp) {
      if (hlo_opcode_runs_steps(instr->op)) WEFT_TRY(add_frames(plan, instr, collective));
      else if (options->scratch_bytes && !hlo_opcode_is_alias(instr->op)) WEFT_TRY(add_scratch(plan, instr, options));
    }
  }
  return NULL;
}

/* Sets the slice of every value and scratch, from the offsets of the buffers. */
static void fill_slices(buf_plan *plan, const buf_classes *classes, const int *class_alloc)
{
  const buf_flow *flow = plan->flow;

  for (int v = 0; v < flow->value_count; v++) {
    const buf_value *value = &flow->values[v];
    int c = buf_class_of(classes, v);
    const hlo_shape *shape = value->instr ? value->instr->shape : plan->module->entry->root->shape;
    buf_slice slice = {.alloc = class_alloc[c], .bytes = value->bytes};
    if (is_token(hlo_shape_leaf(shape, value->leaf))) {
      slice.alloc = -1;
    } else if (class_alloc[c] < 0) {
      const buf_buffer *buffer = value->bytes > 0 ? &plan->buffers[plan->class_buffer[c]] : NULL;
      slice.alloc = plan->arena_alloc[buffer ? buffer->arena : ARENA_TEMP];
      if (buffer) slice.offset = buffer->offset;
    }
    plan->slices[v] = slice;
  }
  for (int id = 0; id < plan->module->next_id; id++)
    if (plan->scratch[id].bytes > 0) plan->scratch[id].offset = plan->buffers[plan->scratch[id].offset].offset;
}

/* True if all readers of a value but `writer` itself are done when `writer` starts.  `first` is the value's first
 * read, next[r] the one that follows read r; -1: none.  A loop reads its state as its result, between its condition
 * and its body: before all steps of the body. (A state that the body also hands on lives until the body's end, which
 * the order of the schedule shows.) */
static bool readers_are_done(const buf_deps *deps, int first, const int *next, const hlo_instr *writer)
{
  const buf_flow *flow = deps->plan->flow;

  for (int r = first; r >= 0; r = next[r]) {
    const hlo_instr *reader = flow->reads[r].instr, *made = flow->values[flow->reads[r].value].instr;
    if (!reader) return false; /* the caller, at the end */
    if (reader->op == HLO_WHILE && made == hlo_parameter(reader->called[0], 0)) continue;
    if (reader != writer && !buf_comes_before(deps, reader, writer)) return false;
  }
  return true;
}

/* The member of `c` that is defined next after `value`, a member; -1: it is the last. */
static int member_after(const buf_flow *flow, const struct buf_class *c, int value)
{
  int low = 0, high = c->count;

  while (low < high) {
    int middle = (low + high) / 2;
    if (flow->values[c->members[middle]].def <= flow->values[value].def) low = middle + 1;
    else high = middle;
  }
  return low < c->count ? c->members[low] : -1;
}

/* True if `to` may follow `from` in the class `a` without a new dependence: at its end, with all of `b`, the class of
 * `to`; or, if `to` is alone, before a member that a step of the same computation writes after all readers of `to`. */
static bool follows(const buf_flow *flow, const buf_deps *deps, const struct buf_class *a, const struct buf_class *b,
                    int from, int to, const int *first, const int *next)
{
  int later = member_after(flow, a, from);
  const hlo_instr *writer = later < 0 ? NULL : flow->values[later].instr;

  if (b->members[0] != to || !readers_are_done(deps, first[from], next, flow->values[to].instr)) return false;
  if (later < 0) return true;
  return b->count == 1 && writer && writer->parent == flow->values[to].instr->parent &&
         hlo_opcode_is_step(writer->op) && !hlo_opcode_runs_steps(writer->op) &&
         readers_are_done(deps, first[to], next, writer);
}

/* Merges the values of `overwrites` where possible, to save memory; with `deps`, only where that adds no dependence. */
static weft_status *merge_overwrites(const buf_flow *flow, buf_classes *classes, const buf_deps *deps)
{
  int *first = WEFT_ARENA_ARRAY(&classes->arena, int, flow->value_count);
  int *next = WEFT_ARENA_ARRAY(&classes->arena, int, flow->read_count);
  bool merged;

  if (!first || !next) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int v = 0; v < flow->value_count; v++) first[v] = -1;
  for (int r = 0; r < flow->read_count; r++) {
    next[r] = first[flow->reads[r].value];
    first[flow->reads[r].value] = r;
  }
  for (int i = 0; i < flow->overwrite_count; i++) {
    int from = flow->overwrites[i].from, to = flow->overwrites[i].to;
    const struct buf_class *a = &classes->classes[buf_class_of(classes, from)],
                           *b = &classes->classes[buf_class_of(classes, to)];
    if (deps && a != b && !follows(flow, deps, a, b, from, to, first, next)) continue;
    WEFT_TRY(buf_classes_merge(flow, classes, from, to, &merged));
  }
  return NULL;
}

typedef struct change { int point; int64_t bytes; } change;

static int compare_changes(const void *a, const void *b)
{
  const change *x = a, *y = b;
  if (x->point != y->point) return x->point < y->point ? -1 : 1;
  return (x->bytes > y->bytes) -
         (x->bytes < y->bytes); /* ends before starts: intervals are closed, so an end is noted at end + 1 */
}

static weft_status *mark_reused(void *ctx, int from, int to)
{
  bool *reused = ctx;
  (void)from;
  reused[to] = true;
  return NULL;
}

static weft_status *measure(buf_plan *plan)
{
  weft_arena scratch;
  buf_hazards hazards;
  int count = 0;
  int64_t live = 0;
  weft_status *st;

  weft_arena_init(&scratch);
  change *changes = WEFT_ARENA_ARRAY(&scratch, change, 2 * plan->buffer_count);
  bool *reused = WEFT_ARENA_ARRAY(&scratch, bool, plan->buffer_count);
  if (!changes || !reused) {
    weft_arena_fini(&scratch);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  for (int b = 0; b < plan->buffer_count; b++) {
    const buf_buffer *buffer = &plan->buffers[b];
    if (buffer->kind == BUFFER_FRAME) continue;
    changes[count++] = (change){buffer->def, buffer->bytes};
    changes[count++] = (change){buffer->end + 1, -buffer->bytes};
    plan->stats.value_bytes += buffer->bytes;
    plan->stats.buffer_count++;
  }
  qsort(changes, (size_t)count, sizeof *changes, compare_changes);
  for (int i = 0; i < count; i++) {
    live += changes[i].bytes;
    plan->stats.lower_bound_bytes = WEFT_MAX(plan->stats.lower_bound_bytes, live);
  }
  st = buf_hazards_init(&hazards, &scratch, plan->alloc_count, mark_reused, reused);
  for (int b = 0; b < plan->buffer_count && !st; b++)
    if (plan->buffers[b].kind != BUFFER_FRAME)
      st = buf_hazards_write(
        &hazards, b,
        (buf_slice){plan->arena_alloc[plan->buffers[b].arena], plan->buffers[b].offset, plan->buffers[b].bytes});
  for (int b = 0; b < plan->buffer_count; b++) plan->stats.reused_count += reused[b];
  weft_arena_fini(&scratch);
  if (plan->stats.temp_bytes > 0)
    plan->stats.fragmentation = 1 - (double)plan->stats.lower_bound_bytes / (double)plan->stats.temp_bytes;
  return st;
}

/* Makes the plan's tables, and the classes of values that must share memory.  *out_class_alloc, by class: its
 * allocation, -1 while there is none. */
static weft_status *begin(buf_plan *plan, buf_classes **out_classes, int **out_class_alloc)
{
  WEFT_AUTO(buf_classes) classes = NULL;
  const hlo_module *module = plan->module;
  const buf_flow *flow = plan->flow;
  bool *broken;
  int broken_count, *class_alloc;

  WEFT_TRY(buf_classes_new(flow, &classes));
  broken = WEFT_ARENA_ARRAY(&classes->arena, bool, flow->tie_count);
  *out_class_alloc = class_alloc = WEFT_ARENA_ARRAY(&classes->arena, int, flow->value_count);
  plan->class_buffer = WEFT_ARENA_ARRAY(&plan->arena, int, flow->value_count);
  plan->slices = WEFT_ARENA_ARRAY(&plan->arena, buf_slice, flow->value_count);
  plan->scratch = WEFT_ARENA_ARRAY(&plan->arena, buf_slice, module->next_id);
  plan->frame_bytes = WEFT_ARENA_ARRAY(&plan->arena, int64_t, module->next_computation_id);
  plan->paths = WEFT_ARENA_ARRAY(&plan->arena, double, module->next_computation_id);
  plan->work = WEFT_ARENA_ARRAY(&plan->arena, double, module->next_computation_id);
  if (!broken || !class_alloc || !plan->class_buffer || !plan->slices || !plan->scratch || !plan->frame_bytes ||
      !plan->paths || !plan->work)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  memset(class_alloc, -1, (size_t)flow->value_count * sizeof(int));
  WEFT_TRY(buf_classes_merge_ties(flow, classes, broken, &broken_count));
  for (int i = 0; broken_count > 0 && i < flow->tie_count; i++) {
    if (!broken[i]) continue;
    const buf_value *from = &flow->values[flow->ties[i].from];
    return WEFT_ERR(INVALID_ARGUMENT, "\"%s\" leaf %d must be copied first: run copy-insertion", from->instr->name,
                    from->leaf);
  }
  *out_classes = WEFT_MOVE(classes);
  return NULL;
}

static weft_status *draft(buf_plan *plan, const buf_options *options)
{
  WEFT_AUTO(buf_classes) classes = NULL;
  int *class_alloc;
  int64_t end = 0;

  WEFT_TRY(begin(plan, &classes, &class_alloc));
  WEFT_TRY(number_allocs(plan, classes, class_alloc));
  WEFT_TRY(collect_buffers(plan, classes, class_alloc, options));
  for (int b = 0; b < plan->buffer_count; b++) {
    plan->buffers[b].offset = end;
    if (__builtin_add_overflow(end, plan->buffers[b].bytes, &end))
      return WEFT_ERR(RESOURCE_EXHAUSTED, "intermediate results take more than 2^63 bytes");
  }
  fill_slices(plan, classes, class_alloc);
  return NULL;
}

static weft_status *place(buf_plan *plan, const buf_options *options)
{
  WEFT_AUTO(buf_classes) classes = NULL;
  WEFT_AUTO(buf_deps) deps = NULL;
  const hlo_module *module = plan->module;
  const buf_flow *flow = plan->flow;
  int *class_alloc;

  WEFT_TRY(begin(plan, &classes, &class_alloc));
  WEFT_TRY(buf_deps_new(plan, options, &deps));
  WEFT_TRY(merge_overwrites(flow, classes, options->order == BUF_SEQUENTIAL ? NULL : deps));
  WEFT_TRY(number_allocs(plan, classes, class_alloc));
  WEFT_TRY(collect_buffers(plan, classes, class_alloc, options));
  WEFT_TRY(buf_deps_add_classes(deps, classes));
  buf_deps_span(deps, true, plan->paths);
  plan->stats.critical_path_free = plan->paths[module->entry->id];
  buf_deps_span(deps, false, plan->paths);
  WEFT_TRY(buf_place(plan, deps, options, plan->paths[module->entry->id]));
  plan->allocs[plan->arena_alloc[ARENA_TEMP]].bytes = plan->stats.temp_bytes - plan->stats.collective_bytes;
  plan->allocs[plan->arena_alloc[ARENA_COLLECTIVE]].bytes = plan->stats.collective_bytes;
  fill_slices(plan, classes, class_alloc);
  WEFT_TRY(buf_deps_add_sharing(deps, &plan->stats.added_edge_count));
  buf_deps_span(deps, true, plan->paths);
  buf_deps_work(deps, plan->work);
  plan->stats.critical_path = plan->paths[module->entry->id];
  plan->stats.total_cost = plan->work[module->entry->id];
  return measure(plan);
}

static weft_status *note_module(weft_status *st, const hlo_module *module)
{
  WEFT_TRY_NOTE(st, "memory plan of module \"%s\"", module->name);
  return NULL;
}

/* Makes a plan that has the values of its module, and no addresses yet. */
static weft_status *plan_of(const hlo_module *module, buf_plan **out_plan)
{
  WEFT_AUTO(buf_plan) plan = calloc(1, sizeof *plan);

  WEFT_TRY_ALLOC(plan);
  weft_arena_init(&plan->arena);
  plan->module = module;
  WEFT_TRY(note_module(buf_flow_new(module, &plan->flow), module));
  *out_plan = WEFT_MOVE(plan);
  return NULL;
}

weft_status *buf_plan_draft(const hlo_module *module, const buf_options *options, buf_plan **out_plan)
{
  WEFT_AUTO(buf_plan) plan = NULL;

  *out_plan = NULL;
  WEFT_TRY(plan_of(module, &plan));
  WEFT_TRY(note_module(draft(plan, options), module));
  *out_plan = WEFT_MOVE(plan);
  return NULL;
}

weft_status *buf_plan_place(buf_plan *plan, const buf_options *options)
{
  weft_arena arena = plan->arena;

  weft_arena_reset(&arena); /* only the values of the draft are kept */
  *plan = (buf_plan){.arena = arena, .module = plan->module, .flow = plan->flow};
  WEFT_TRY(note_module(place(plan, options), plan->module));
#ifndef NDEBUG
  WEFT_TRY(buf_plan_check(plan));
#endif
  return NULL;
}

weft_status *buf_plan_new(const hlo_module *module, const buf_options *options, buf_plan **out_plan)
{
  WEFT_AUTO(buf_plan) plan = NULL;

  *out_plan = NULL;
  WEFT_TRY(plan_of(module, &plan));
  WEFT_TRY(buf_plan_place(plan, options));
  *out_plan = WEFT_MOVE(plan);
  return NULL;
}

void buf_plan_free(buf_plan *plan)
{
  if (!plan) return;
  buf_flow_free(plan->flow);
  weft_arena_fini(&plan->arena);
  free(plan);
}

const hlo_module *buf_plan_module(const buf_plan *plan) { return plan->module; }
int buf_plan_alloc_count(const buf_plan *plan) { return plan->alloc_count; }
const buf_alloc *buf_plan_alloc(const buf_plan *plan, int alloc) { return &plan->allocs[alloc]; }
int buf_plan_temp_alloc(const buf_plan *plan) { return plan->arena_alloc[ARENA_TEMP]; }
int buf_plan_collective_alloc(const buf_plan *plan) { return plan->arena_alloc[ARENA_COLLECTIVE]; }
int buf_plan_param_count(const buf_plan *plan) { return plan->flow->param_count; }
int buf_plan_param_alloc(const buf_plan *plan, int param_leaf)
{
  (void)plan;
  return param_leaf;
}
int buf_plan_output_count(const buf_plan *plan) { return plan->flow->result_count; }
int buf_plan_output_alloc(const buf_plan *plan, int output_leaf) { return plan->output_alloc[output_leaf]; }
const buf_stats *buf_plan_stats(const buf_plan *plan) { return &plan->stats; }

buf_times buf_plan_times(const buf_plan *plan, const hlo_computation *computation)
{
  return (buf_times){.work = plan->work[computation->id], .path = plan->paths[computation->id]};
}

buf_slice buf_plan_slice(const buf_plan *plan, const hlo_instr *instr, int leaf)
{
  return plan->slices[buf_flow_value(plan->flow, instr, leaf)];
}

buf_slice buf_plan_scratch(const buf_plan *plan, const hlo_instr *instr)
{
  buf_slice slice = plan->scratch[instr->id];
  if (slice.bytes == 0) slice.alloc = -1;
  return slice;
}
