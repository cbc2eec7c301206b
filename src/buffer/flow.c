/* buffer/flow.c -- which value is where, and how long each value lives (flow.h). */
#include <config.h>

#include "buffer/flow.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/swap.h"

/* ---- the walk -------------------------------------------------------------------------------------------------- */

typedef struct walker {
  buf_flow *flow;
  int *passes_through; /* by leaf_base + leaf: see find_invariants */
  uint64_t *reached;   /* by instruction id, of fused computations: see reach_elementwise */
  int step;
} walker;

static weft_status *add_value(buf_flow *flow, const hlo_instr *instr, int leaf, int64_t bytes, int def, int *out_value)
{
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&flow->arena, flow->values, flow->value_capacity, flow->value_count + 1, 64));
  *out_value = flow->value_count;
  flow->values[flow->value_count++] =
    (buf_value){.instr = instr, .leaf = leaf, .bytes = bytes, .def = def, .end = def, .param_leaf = -1};
  return NULL;
}

static weft_status *add_tie(buf_flow *flow, buf_tie tie)
{
  if (flow->values[tie.to].bytes == 0) return NULL; /* nothing to share: a token or an empty array */
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&flow->arena, flow->ties, flow->tie_capacity, flow->tie_count + 1, 64));
  flow->ties[flow->tie_count++] = tie;
  return NULL;
}

static weft_status *add_read(buf_flow *flow, int value, const hlo_instr *reader, int point)
{
  flow->values[value].end = WEFT_MAX(flow->values[value].end, point);
  WEFT_TRY_ALLOC(WEFT_ARENA_RESERVE(&flow->arena, flow->reads, flow->read_capacity, flow->read_count + 1, 64));
  flow->reads[flow->read_count++] = (buf_read){value, reader};
  return NULL;
}

static int *values_at(const buf_flow *flow, const hlo_instr *instr)
{
  return flow->value_of + flow->leaf_base[instr->id];
}

static int64_t leaf_bytes(const hlo_shape *shape, int leaf) { return hlo_shape_bytes(hlo_shape_leaf(shape, leaf)); }

/* Makes new values for leaves [first, first + count) of instr, which are written at `step`. */
static weft_status *define(walker *w, const hlo_instr *instr, int first, int count, int step)
{
  for (int leaf = first; leaf < first + count; leaf++)
    WEFT_TRY(
      add_value(w->flow, instr, leaf, leaf_bytes(instr->shape, leaf), 2 * step + 1, &values_at(w->flow, instr)[leaf]));
  return NULL;
}

static const hlo_output_alias *output_aliases(const hlo_instr *instr, int *out_count)
{
  if (instr->op == HLO_FUSION) {
    *out_count = instr->u.fusion.alias_count;
    return instr->u.fusion.aliases;
  }
  *out_count = instr->op == HLO_CUSTOM_CALL ? instr->u.custom->alias_count : 0;
  return *out_count ? instr->u.custom->aliases : NULL;
}

/* The leaf number of an index path in a shape. */
static int leaf_at(const hlo_shape *shape, hlo_ints path)
{
  int leaf = 0;
  for (int i = 0; i < path.count; i++) {
    leaf += hlo_shape_leaf_offset(shape, path.v[i]);
    shape = shape->elements[path.v[i]];
  }
  return leaf;
}

/* Sets of a fusion's results: bit i is result i, for the first 63 results.  MIXED: a result is reached at another
 * index, or has no bit. */
static const uint64_t MIXED = UINT64_C(1) << 63;

/* For each instruction of a loop fusion: the results that its elements reach at their own index and at no other,
 * through elementwise operations and reshapes (which keep the linear index). */
static void reach_elementwise(uint64_t *reached, const hlo_instr *fusion)
{
  const hlo_computation *comp = fusion->called[0];

  HLO_FOREACH(instr, comp) reached[instr->id] = 0;
  if (comp->root->op != HLO_TUPLE) reached[comp->root->id] = 1;
  for (const hlo_instr *instr = comp->last; instr; instr = instr->prev) {
    bool is_root_tuple = instr == comp->root && instr->op == HLO_TUPLE;
    uint64_t results = reached[instr->id];
    for (int i = 0; i < instr->operand_count && (is_root_tuple || results); i++) {
      const hlo_instr *operand = instr->operands[i];
      bool same = hlo_shape_is_array(operand->shape) &&
                  ((hlo_opcode_is_elementwise(instr->op) && hlo_shape_same_dims(instr->shape, operand->shape)) ||
                   instr->op == HLO_RESHAPE || instr->op == HLO_BITCAST);
      if (!is_root_tuple) reached[operand->id] |= same ? results : MIXED;
      else reached[operand->id] |= i < 63 && hlo_shape_is_array(operand->shape) ? UINT64_C(1) << i : MIXED;
    }
  }
}

/* True if all results have the same number of elements.  Codegen then computes all results of an index before it
 * stores any; otherwise it computes one result after the other. */
static bool walked_together(const hlo_shape *results)
{
  for (int k = 1; hlo_shape_is_tuple(results) && k < results->rank; k++)
    if (!hlo_shape_is_array(results->elements[k]) || !hlo_shape_is_array(results->elements[0]) ||
        hlo_shape_elems(results->elements[k]) != hlo_shape_elems(results->elements[0]))
      return false;
  return true;
}

/* Which results may be written over one operand leaf: only result `declared` (an alias) if `declared` >= 0; else each
 * of `results`. */
typedef struct permit { int value, declared; uint64_t results; } permit;

/* The result that leaf `leaf` of operand `i` is declared to share memory with, or -1.  If a result is declared for
 * several operands, the first declaration counts: the step reads all of them when it writes the result, which can
 * share memory with one only. */
static int declared_result(const hlo_instr *instr, int i, int leaf)
{
  int count;
  const hlo_output_alias *aliases = output_aliases(instr, &count);

  for (int a = 0; a < count; a++) {
    if (aliases[a].operand != i || leaf_at(instr->operands[i]->shape, aliases[a].operand_index) != leaf) continue;
    int result = leaf_at(instr->shape, aliases[a].output_index);
    bool taken = false;
    for (int b = 0; b < a && !taken; b++) taken = leaf_at(instr->shape, aliases[b].output_index) == result;
    if (!taken) return result;
  }
  return -1;
}

static permit permit_of(const walker *w, const hlo_instr *instr, int i, int leaf)
{
  const hlo_instr *operand = instr->operands[i];
  permit p = {.value = values_at(w->flow, operand)[leaf], .declared = declared_result(instr, i, leaf)};

  if (p.declared >= 0 || !hlo_shape_is_array(operand->shape)) return p;
  if (instr->op == HLO_FUSION && instr->u.fusion.kind == HLO_FUSION_LOOP) {
    uint64_t results = w->reached[hlo_parameter(instr->called[0], i)->id];
    bool one = (results & (results - 1)) == 0;
    if (!(results & MIXED) && (one || walked_together(instr->shape))) p.results = results;
  } else if (instr->op == HLO_SORT) { /* a sort reads a slice before it writes it */
    p.results = i < 63 ? UINT64_C(1) << i : 0;
  } else if (instr->op != HLO_FUSION && instr->op != HLO_COPY && hlo_opcode_is_elementwise(instr->op) &&
             hlo_shape_same_dims(instr->shape, operand->shape)) {
    p.results = 1;
  }
  return p;
}

static weft_status *add_overwrite(walker *w, const hlo_instr *instr, int from, int result)
{
  buf_flow *flow = w->flow;
  int to = values_at(flow, instr)[result];

  if (flow->values[from].bytes != flow->values[to].bytes) return NULL;
  WEFT_TRY_ALLOC(
    WEFT_ARENA_RESERVE(&flow->arena, flow->overwrites, flow->overwrite_capacity, flow->overwrite_count + 1, 64));
  flow->overwrites[flow->overwrite_count++] = (buf_overwrite){from, to};
  return NULL;
}

static int compare_permits(const void *a, const void *b)
{
  const permit *x = a, *y = b;
  return (x->value > y->value) - (x->value < y->value);
}

/* Adds what `instr` reads, and which of its results may be written over which operands.  A value that is given as
 * several operands may be overwritten only as all of them allow, and not at all if one of them has a declared alias. */
static weft_status *walk_operands(walker *w, const hlo_instr *instr, int step)
{
  buf_flow *flow = w->flow;
  int total = 0, count = 0;
  permit *permits;

  for (int i = 0; i < instr->operand_count; i++) total += flow->leaf_count[instr->operands[i]->id];
  permits = WEFT_ARENA_ARRAY(&flow->arena, permit, total);
  WEFT_TRY_ALLOC(permits);
  if (instr->op == HLO_FUSION && instr->u.fusion.kind == HLO_FUSION_LOOP) reach_elementwise(w->reached, instr);
  for (int i = 0; i < instr->operand_count; i++)
    for (int leaf = 0; leaf < flow->leaf_count[instr->operands[i]->id]; leaf++) {
      permit p = permit_of(w, instr, i, leaf);
      WEFT_TRY(add_read(flow, p.value, instr, 2 * step + 1));
      if (p.declared >= 0)
        WEFT_TRY(add_tie(flow, (buf_tie){.kind = BUF_TIE_IN_PLACE,
                                         .from = p.value,
                                         .to = values_at(flow, instr)[p.declared],
                                         .instr = instr,
                                         .operand = i,
                                         .leaf = leaf}));
      permits[count++] = p;
    }
  if (count > 1) qsort(permits, (size_t)count, sizeof *permits, compare_permits);
  for (int i = 0, end; i < count; i = end) {
    permit p = permits[i];
    for (end = i + 1; end < count && permits[end].value == p.value; end++) {
      if (p.declared >= 0 || permits[end].declared >= 0) p = (permit){.value = p.value, .declared = -1};
      else p.results &= permits[end].results;
    }
    if (p.declared >= 0) WEFT_TRY(add_overwrite(w, instr, p.value, p.declared));
    for (int r = 0; p.declared < 0 && p.results >> r; r++)
      if (p.results >> r & 1) WEFT_TRY(add_overwrite(w, instr, p.value, r));
  }
  return NULL;
}

/* An operation that runs as one step: reads its operands, writes its results. */
static weft_status *walk_step(walker *w, const hlo_instr *instr, int step)
{
  buf_flow *flow = w->flow;
  int leaves = flow->leaf_count[instr->id], first = 0;
  int *mine = values_at(flow, instr);

  switch (instr->op) { /* leaves that are values of the operands, beside the result proper */
  case HLO_ALL_GATHER_START: case HLO_COLLECTIVE_PERMUTE_START: case HLO_SEND: case HLO_COPY_START: {
    int limit = instr->op == HLO_COPY_START ? 0 : instr->op == HLO_SEND ? 1 : leaves;
    for (int i = 0; i < instr->operand_count && first < limit; i++)
      for (int k = 0; k < flow->leaf_count[instr->operands[i]->id] && first < limit; k++)
        mine[first++] = values_at(flow, instr->operands[i])[k];
    break;
  }
  case HLO_ALL_GATHER_DONE: case HLO_COLLECTIVE_PERMUTE_DONE: {
    int from = hlo_shape_leaf_offset(instr->operands[0]->shape, 1);
    for (; first < leaves; first++) mine[first] = values_at(flow, instr->operands[0])[from + first];
    break;
  }
  case HLO_ALL_REDUCE_DONE:
    for (; first < leaves; first++) mine[first] = values_at(flow, instr->operands[0])[first];
    break;
  case HLO_RECV_DONE:
    mine[0] = values_at(flow, instr->operands[0])[0];
    first = 1;
    break;
  default: break;
  }
  WEFT_TRY(define(w, instr, first, leaves - first, step));

  return walk_operands(w, instr, step);
}

static void walk_alias(walker *w, const hlo_instr *instr)
{
  buf_flow *flow = w->flow;
  int *mine = values_at(flow, instr), at = 0;

  switch (instr->op) {
  case HLO_TUPLE:
    for (int i = 0; i < instr->operand_count; i++) {
      int count = flow->leaf_count[instr->operands[i]->id];
      if (count) memcpy(mine + at, values_at(flow, instr->operands[i]), (size_t)count * sizeof *mine);
      at += count;
    }
    return;
  case HLO_GET_TUPLE_ELEMENT:
    at = hlo_shape_leaf_offset(instr->operands[0]->shape, instr->u.tuple_index); /* fall through */
  default:
    for (int k = 0; k < flow->leaf_count[instr->id]; k++) mine[k] = values_at(flow, instr->operands[0])[at + k];
  }
}

static weft_status *walk(walker *w, const hlo_computation *comp, int depth);

static weft_status *enter(walker *w, const hlo_computation *comp, const hlo_instr *caller)
{
  if (w->flow->comp_begin[comp->id] >= 0)
    return WEFT_ERR(INVALID_ARGUMENT, "computation \"%s\" is run by \"%s\" and by another instruction", comp->name,
                    caller->name);
  w->flow->caller[comp->id] = caller;
  return NULL;
}

/* Loop state that the body passes on unchanged is the value that entered the loop. */
static bool is_invariant(const walker *w, const hlo_computation *body, int leaf)
{
  return w->passes_through[w->flow->leaf_base[body->root->id] + leaf] == leaf;
}

static weft_status *walk_while(walker *w, const hlo_instr *loop, int depth)
{
  buf_flow *flow = w->flow;
  const hlo_computation *body = loop->called[0], *cond = loop->called[1];
  const hlo_instr *init = loop->operands[0];
  int leaves = flow->leaf_count[loop->id], entry = w->step++;

  WEFT_TRY(enter(w, cond, loop));
  WEFT_TRY(enter(w, body, loop));
  for (int leaf = 0; leaf < leaves; leaf++) {
    int came_in = values_at(flow, init)[leaf], state = came_in;
    if (!is_invariant(w, body, leaf)) {
      WEFT_TRY(add_value(flow, hlo_parameter(body, 0), leaf, leaf_bytes(loop->shape, leaf), 2 * entry + 1, &state));
      WEFT_TRY(add_read(flow, came_in, loop, 2 * entry));
      WEFT_TRY(add_tie(
        flow, (buf_tie){.kind = BUF_TIE_LOOP_ENTRY, .from = came_in, .to = state, .instr = loop, .leaf = leaf}));
    }
    values_at(flow, hlo_parameter(body, 0))[leaf] = values_at(flow, hlo_parameter(cond, 0))[leaf] = state;
  }
  WEFT_TRY(walk(w, cond, depth));
  WEFT_TRY(add_read(flow, values_at(flow, cond->root)[0], loop, 2 * flow->comp_end[cond->id] + 1));
  for (int leaf = 0; leaf < leaves; leaf++) /* the loop may end here, with the state as its result */
    WEFT_TRY(add_read(flow, values_at(flow, hlo_parameter(cond, 0))[leaf], loop, 2 * flow->comp_end[cond->id]));
  WEFT_TRY(walk(w, body, depth));
  int back = flow->comp_end[body->id], exit = w->step++;
  flow->step[loop->id] = exit;
  for (int leaf = 0; leaf < leaves; leaf++) {
    int state = values_at(flow, hlo_parameter(body, 0))[leaf], next = values_at(flow, body->root)[leaf];
    WEFT_TRY(add_read(flow, next, loop, 2 * back));
    values_at(flow, loop)[leaf] = state;
    if (is_invariant(w, body, leaf)) continue;
    WEFT_TRY(add_tie(
      flow,
      (buf_tie){.kind = BUF_TIE_LOOP_BACK, .from = next, .to = state, .instr = loop, .comp = body, .leaf = leaf}));
    WEFT_TRY(define(w, loop, leaf, 1, exit));
    WEFT_TRY(add_tie(flow, (buf_tie){.kind = BUF_TIE_LOOP_EXIT,
                                     .from = state,
                                     .to = values_at(flow, loop)[leaf],
                                     .instr = loop,
                                     .comp = body,
                                     .leaf = leaf}));
  }
  return NULL;
}

static weft_status *walk_conditional(walker *w, const hlo_instr *instr, int depth)
{
  buf_flow *flow = w->flow;
  int entry = w->step++, leaves = flow->leaf_count[instr->id];

  WEFT_TRY(add_read(flow, values_at(flow, instr->operands[0])[0], instr, 2 * entry + 1));
  for (int b = 0; b < instr->called_count; b++) {
    const hlo_computation *branch = instr->called[b];
    const hlo_instr *param = hlo_parameter(branch, 0), *operand = instr->operands[b + 1];
    WEFT_TRY(enter(w, branch, instr));
    memcpy(values_at(flow, param), values_at(flow, operand), (size_t)flow->leaf_count[operand->id] * sizeof(int));
    WEFT_TRY(walk(w, branch, depth));
  }
  flow->step[instr->id] = w->step++;
  WEFT_TRY(define(w, instr, 0, leaves, flow->step[instr->id]));
  for (int b = 0; b < instr->called_count; b++)
    for (int leaf = 0; leaf < leaves; leaf++) {
      const hlo_computation *branch = instr->called[b];
      int from = values_at(flow, branch->root)[leaf];
      WEFT_TRY(add_read(flow, from, instr, 2 * flow->comp_end[branch->id]));
      WEFT_TRY(add_tie(flow, (buf_tie){.kind = BUF_TIE_BRANCH,
                                       .from = from,
                                       .to = values_at(flow, instr)[leaf],
                                       .instr = instr,
                                       .comp = branch,
                                       .leaf = leaf}));
    }
  return NULL;
}

static weft_status *walk_call(walker *w, const hlo_instr *instr, int depth)
{
  buf_flow *flow = w->flow;
  const hlo_computation *callee = instr->called[0];

  WEFT_TRY(enter(w, callee, instr));
  for (int i = 0; i < instr->operand_count; i++)
    memcpy(values_at(flow, hlo_parameter(callee, i)), values_at(flow, instr->operands[i]),
           (size_t)flow->leaf_count[instr->operands[i]->id] * sizeof(int));
  WEFT_TRY(walk(w, callee, depth));
  flow->step[instr->id] = w->step++;
  memcpy(values_at(flow, instr), values_at(flow, callee->root), (size_t)flow->leaf_count[instr->id] * sizeof(int));
  return NULL;
}

/* Numbers the steps of comp and finds the values of its instructions; those of its parameters are known already. */
static weft_status *walk(walker *w, const hlo_computation *comp, int depth)
{
  buf_flow *flow = w->flow;

  if (depth == BUF_MAX_DEPTH)
    return WEFT_ERR(INVALID_ARGUMENT, "computation \"%s\": calls nest deeper than %d", comp->name, BUF_MAX_DEPTH);
  flow->comp_begin[comp->id] = w->step;
  HLO_FOREACH(instr, comp) {
    if (instr->op == HLO_PARAMETER) {
      flow->step[instr->id] = flow->comp_begin[comp->id];
    } else if (instr->op == HLO_CONSTANT || instr->op == HLO_AFTER_ALL) {
      flow->step[instr->id] = w->step;
      WEFT_TRY(define(w, instr, 0, flow->leaf_count[instr->id], -1)); /* live from the start */
      for (int leaf = 0; leaf < flow->leaf_count[instr->id]; leaf++)
        flow->values[values_at(flow, instr)[leaf]].read_only = true;
    } else if (instr->op == HLO_WHILE) {
      WEFT_TRY(walk_while(w, instr, depth + 1));
    } else if (instr->op == HLO_CONDITIONAL) {
      WEFT_TRY(walk_conditional(w, instr, depth + 1));
    } else if (instr->op == HLO_CALL) {
      WEFT_TRY(walk_call(w, instr, depth + 1));
    } else if (hlo_opcode_is_alias(instr->op)) {
      flow->step[instr->id] = w->step;
      walk_alias(w, instr);
    } else {
      flow->step[instr->id] = w->step++;
      WEFT_TRY(walk_step(w, instr, flow->step[instr->id]));
    }
  }
  flow->comp_end[comp->id] = w->step++;
  return NULL;
}

/* For every leaf of every instruction of a sequential computation: the parameter leaf (counted over all parameters)
 * that it passes on unchanged, or -1.  Callees come first in the module's list, so loops and calls are looked
 * through. */
static weft_status *find_invariants(walker *w, const bool *sequential)
{
  buf_flow *flow = w->flow;
  int *pass = w->passes_through;

#define PASS(instr) (pass + flow->leaf_base[(instr)->id])
  HLO_FOREACH_COMPUTATION(comp, flow->module) {
    if (!sequential[comp->id]) continue;
    int param_leaf = 0;
    for (int p = 0; p < comp->param_count; p++)
      for (int k = 0; k < flow->leaf_count[comp->params[p]->id]; k++) PASS(comp->params[p])[k] = param_leaf++;
    HLO_FOREACH(instr, comp) {
      int leaves = flow->leaf_count[instr->id];
      int *mine = PASS(instr);
      if (instr->op == HLO_PARAMETER) continue;
      for (int k = 0; k < leaves; k++) mine[k] = -1;
      if (instr->op == HLO_TUPLE) {
        int at = 0;
        for (int i = 0; i < instr->operand_count; i++)
          for (int k = 0; k < flow->leaf_count[instr->operands[i]->id]; k++) mine[at++] = PASS(instr->operands[i])[k];
      } else if (instr->op == HLO_WHILE) {
        for (int k = 0; k < leaves; k++)
          if (PASS(instr->called[0]->root)[k] == k) mine[k] = PASS(instr->operands[0])[k];
      } else if (instr->op == HLO_CALL) {
        for (int k = 0; k < leaves; k++) {
          int inner = PASS(instr->called[0]->root)[k], i = 0;
          if (inner < 0) continue;
          while (inner >= flow->leaf_count[instr->operands[i]->id]) inner -= flow->leaf_count[instr->operands[i++]->id];
          mine[k] = PASS(instr->operands[i])[inner];
        }
      } else if (hlo_opcode_is_alias(instr->op) && instr->operand_count > 0 && instr->op != HLO_AFTER_ALL) {
        int at = instr->op == HLO_GET_TUPLE_ELEMENT
                   ? hlo_shape_leaf_offset(instr->operands[0]->shape, instr->u.tuple_index)
                   : 0;
        for (int k = 0; k < leaves; k++) mine[k] = PASS(instr->operands[0])[at + k];
      }
    }
  }
#undef PASS
  return NULL;
}

/* Marks the computations that run by steps: the entry, and what these run through while, conditional and call. */
static void mark_sequential(const hlo_module *module, bool *sequential)
{
  sequential[module->entry->id] = true;
  for (hlo_computation *comp = module->last; comp; comp = comp->prev) { /* callers before callees */
    if (!sequential[comp->id]) continue;
    HLO_FOREACH(instr, comp)
      if (hlo_opcode_runs_steps(instr->op))
        for (int i = 0; i < instr->called_count; i++) sequential[instr->called[i]->id] = true;
  }
}

static weft_status *number_leaves(buf_flow *flow, const bool *sequential, int *out_total)
{
  int total = 0;

  HLO_FOREACH_COMPUTATION(comp, flow->module) {
    if (!sequential[comp->id]) continue;
    HLO_FOREACH(instr, comp) {
      int count = hlo_shape_leaf_count(instr->shape);
      flow->leaf_base[instr->id] = total;
      flow->leaf_count[instr->id] = count;
      if (__builtin_add_overflow(total, count, &total) || total > 4 * HLO_MAX_MODULE_PARTS)
        return WEFT_ERR(RESOURCE_EXHAUSTED, "the instructions have over %d values", 4 * HLO_MAX_MODULE_PARTS);
    }
  }
  *out_total = total;
  return NULL;
}

static weft_status *add_entry(walker *w)
{
  buf_flow *flow = w->flow;
  const hlo_module *module = flow->module;
  const hlo_computation *entry = module->entry;

  for (int p = 0; p < entry->param_count; p++) {
    const hlo_instr *param = entry->params[p];
    int first = flow->value_count;
    WEFT_TRY(define(w, param, 0, flow->leaf_count[param->id], -1));
    for (int v = first; v < flow->value_count; v++) {
      flow->values[v].param_leaf = flow->param_count++;
      flow->values[v].read_only = true;
    }
    for (int i = 0; i < module->alias_count; i++)
      if (module->aliases[i].parameter == p)
        flow->values[first + leaf_at(param->shape, module->aliases[i].parameter_index)].read_only = false;
    for (int i = 0; i < module->donor_count; i++)
      if (module->donors[i].parameter == p)
        flow->values[first + leaf_at(param->shape, module->donors[i].parameter_index)].read_only = false;
  }
  return NULL;
}

/* The leaves of the result become pseudo-values, written after the last step; they stand for the memory that the
 * caller gets. */
static weft_status *add_results(walker *w)
{
  buf_flow *flow = w->flow;
  const hlo_module *module = flow->module;
  const hlo_instr *root = module->entry->root;
  int end = flow->comp_end[module->entry->id];

  flow->result_count = flow->leaf_count[root->id];
  flow->result_value = WEFT_ARENA_ARRAY(&flow->arena, int, flow->result_count);
  WEFT_TRY_ALLOC(flow->result_value);
  for (int leaf = 0; leaf < flow->result_count; leaf++) {
    int from = values_at(flow, root)[leaf];
    WEFT_TRY(add_value(flow, NULL, leaf, leaf_bytes(root->shape, leaf), 2 * end + 1, &flow->result_value[leaf]));
    WEFT_TRY(add_read(flow, from, NULL, 2 * end));
  }
  for (int i = 0; i < module->alias_count; i++) {
    const hlo_input_output_alias *alias = &module->aliases[i];
    const hlo_instr *param = hlo_parameter(module->entry, alias->parameter);
    int leaf = leaf_at(root->shape, alias->output_index);
    WEFT_TRY(add_tie(flow, (buf_tie){.kind = BUF_TIE_DONATION,
                                     .from = values_at(flow, param)[leaf_at(param->shape, alias->parameter_index)],
                                     .to = flow->result_value[leaf],
                                     .comp = module->entry,
                                     .leaf = leaf}));
  }
  for (int leaf = 0; leaf < flow->result_count; leaf++)
    WEFT_TRY(add_tie(flow, (buf_tie){.kind = BUF_TIE_RESULT,
                                     .from = values_at(flow, root)[leaf],
                                     .to = flow->result_value[leaf],
                                     .comp = module->entry,
                                     .leaf = leaf}));
  return NULL;
}

static weft_status *build(buf_flow *flow)
{
  const hlo_module *module = flow->module;
  int ids = module->next_id, comps = module->next_computation_id, total = 0;
  walker w = {.flow = flow};
  bool *sequential = WEFT_ARENA_ARRAY(&flow->arena, bool, comps);

  flow->step = WEFT_ARENA_ARRAY(&flow->arena, int, ids);
  flow->leaf_base = WEFT_ARENA_ARRAY(&flow->arena, int, ids);
  flow->leaf_count = WEFT_ARENA_ARRAY(&flow->arena, int, ids);
  flow->comp_begin = WEFT_ARENA_ARRAY(&flow->arena, int, comps);
  flow->comp_end = WEFT_ARENA_ARRAY(&flow->arena, int, comps);
  flow->caller = WEFT_ARENA_ARRAY(&flow->arena, const hlo_instr *, comps);
  if (!sequential || !flow->step || !flow->leaf_base || !flow->leaf_count || !flow->comp_begin || !flow->comp_end ||
      !flow->caller)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  memset(flow->step, -1, (size_t)ids * sizeof(int));
  memset(flow->leaf_base, -1, (size_t)ids * sizeof(int));
  memset(flow->comp_begin, -1, (size_t)comps * sizeof(int));
  memset(flow->comp_end, -1, (size_t)comps * sizeof(int));
  mark_sequential(module, sequential);
  WEFT_TRY(number_leaves(flow, sequential, &total));
  flow->value_of = WEFT_ARENA_ARRAY(&flow->arena, int, total);
  w.passes_through = WEFT_ARENA_ARRAY(&flow->arena, int, total);
  w.reached = WEFT_ARENA_ARRAY(&flow->arena, uint64_t, ids);
  if (!flow->value_of || !w.passes_through || !w.reached) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  WEFT_TRY(find_invariants(&w, sequential));
  WEFT_TRY(add_entry(&w));
  WEFT_TRY(walk(&w, module->entry, 0));
  WEFT_TRY(add_results(&w));
  flow->step_count = w.step;
  return NULL;
}

weft_status *buf_flow_new(const hlo_module *module, buf_flow **out_flow)
{
  WEFT_AUTO(buf_flow) flow = calloc(1, sizeof *flow);

  *out_flow = NULL;
  WEFT_TRY_ALLOC(flow);
  weft_arena_init(&flow->arena);
  flow->module = module;
  WEFT_TRY(build(flow));
  *out_flow = WEFT_MOVE(flow);
  return NULL;
}

void buf_flow_free(buf_flow *flow)
{
  if (!flow) return;
  weft_arena_fini(&flow->arena);
  free(flow);
}

/* ---- classes --------------------------------------------------------------------------------------------------- */

weft_status *buf_classes_new(const buf_flow *flow, buf_classes **out_classes)
{
  WEFT_AUTO(buf_classes) classes = calloc(1, sizeof *classes);
  int *members;

  *out_classes = NULL;
  WEFT_TRY_ALLOC(classes);
  weft_arena_init(&classes->arena);
  classes->parent = WEFT_ARENA_ARRAY(&classes->arena, int, flow->value_count);
  classes->classes = WEFT_ARENA_ARRAY(&classes->arena, struct buf_class, flow->value_count);
  members = WEFT_ARENA_ARRAY(&classes->arena, int, flow->value_count);
  if (!classes->parent || !classes->classes || !members) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int v = 0; v < flow->value_count; v++) {
    const buf_value *value = &flow->values[v];
    classes->parent[v] = members[v] = v;
    classes->classes[v] = (struct buf_class){.count = 1,
                                             .capacity = 1,
                                             .members = &members[v],
                                             .param_leaf = value->param_leaf,
                                             .result_leaf = value->instr ? -1 : value->leaf,
                                             .read_only = value->read_only};
  }
  *out_classes = WEFT_MOVE(classes);
  return NULL;
}

void buf_classes_free(buf_classes *classes)
{
  if (!classes) return;
  weft_arena_fini(&classes->arena);
  free(classes);
}

int buf_class_of(const buf_classes *classes, int value)
{
  int *parent = classes->parent;
  while (parent[value] != value) value = parent[value] = parent[parent[value]];
  return value;
}

/* Returns whether `to` may be written over `from`.  `overwrites` is in the order of the steps that define `to`. */
static bool may_overwrite(const buf_flow *flow, int from, int to)
{
  int low = 0, high = flow->overwrite_count, def = flow->values[to].def;

  while (low < high) {
    int middle = (low + high) / 2;
    if (flow->values[flow->overwrites[middle].to].def < def) low = middle + 1;
    else high = middle;
  }
  for (; low < flow->overwrite_count && flow->values[flow->overwrites[low].to].def == def; low++)
    if (flow->overwrites[low].from == from && flow->overwrites[low].to == to) return true;
  return false;
}

/* True if two values may not share memory; `a` is defined no later than `b`. */
static bool clash(const buf_flow *flow, int a, int b)
{
  const buf_value *x = &flow->values[a], *y = &flow->values[b];
  if (x->end < y->def) return false;
  return x->end != y->def || x->def == y->def || !may_overwrite(flow, a, b);
}

/* True if `v` clashes with a member of c.  The members are sorted and do not clash with each other. */
static bool clashes(const buf_flow *flow, const struct buf_class *c, int v)
{
  const buf_value *value = &flow->values[v];
  int low = 0, high = c->count; /* the first member that ends at or after value's definition */

  while (low < high) {
    int middle = (low + high) / 2;
    if (flow->values[c->members[middle]].end < value->def) low = middle + 1;
    else high = middle;
  }
  for (; low < c->count && flow->values[c->members[low]].def <= value->end; low++) {
    int other = c->members[low];
    if (flow->values[other].def <= value->def ? clash(flow, other, v) : clash(flow, v, other)) return true;
  }
  return false;
}

weft_status *buf_classes_merge(const buf_flow *flow, buf_classes *classes, int a, int b, bool *out_merged)
{
  struct buf_class *big = &classes->classes[buf_class_of(classes, a)],
                   *small = &classes->classes[buf_class_of(classes, b)];

  *out_merged = big == small;
  if (big == small) return NULL;
  if (big->count < small->count) WEFT_SWAP(big, small);
  if (flow->values[a].bytes != flow->values[b].bytes || big->read_only || small->read_only ||
      (big->param_leaf >= 0 && small->param_leaf >= 0) || (big->result_leaf >= 0 && small->result_leaf >= 0))
    return NULL;
  for (int i = 0; i < small->count; i++)
    if (clashes(flow, big, small->members[i])) return NULL;

  if (big->capacity < big->count + small->count) {
    int capacity = 2 * (big->count + small->count);
    int *members = WEFT_ARENA_ARRAY(&classes->arena, int, capacity);
    WEFT_TRY_ALLOC(members);
    memcpy(members, big->members, (size_t)big->count * sizeof *members);
    big->members = members;
    big->capacity = capacity;
  }
  for (int i = big->count - 1, j = small->count - 1, at = big->count + small->count - 1; j >= 0;
       at--) /* from the end */
    big->members[at] = i >= 0 && flow->values[big->members[i]].def > flow->values[small->members[j]].def
                         ? big->members[i--]
                         : small->members[j--];
  big->count += small->count;
  big->param_leaf = WEFT_MAX(big->param_leaf, small->param_leaf);
  big->result_leaf = WEFT_MAX(big->result_leaf, small->result_leaf);
  classes->parent[small - classes->classes] = (int)(big - classes->classes);
  *out_merged = true;
  return NULL;
}

weft_status *buf_classes_merge_ties(const buf_flow *flow, buf_classes *classes, bool *broken, int *out_broken_count)
{
  /* Ties whose copy would cost most come first.  Exits always merge.  A donation was promised to the caller, so it must
   * share memory.  A copy in a loop's body or before an in-place update may run in every iteration; a copy at a loop's
   * entry or of a result runs once. */
  static const buf_tie_kind order[] = {BUF_TIE_LOOP_EXIT, BUF_TIE_DONATION, BUF_TIE_LOOP_BACK, BUF_TIE_IN_PLACE,
                                       BUF_TIE_BRANCH, BUF_TIE_LOOP_ENTRY, BUF_TIE_RESULT};

  *out_broken_count = 0;
  for (size_t k = 0; k < WEFT_COUNT(order); k++)
    for (int i = 0; i < flow->tie_count; i++) {
      bool merged;
      if (flow->ties[i].kind != order[k]) continue;
      WEFT_TRY(buf_classes_merge(flow, classes, flow->ties[i].from, flow->ties[i].to, &merged));
      broken[i] = !merged;
      *out_broken_count += !merged;
    }
  return NULL;
}
