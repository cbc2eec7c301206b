/* passes/copy_insertion.c -- copy-insertion: adds the copies that mandatory sharing of memory needs, and no others.
 *
 * While loops, conditionals, in-place operations, donated parameters and results force pairs of values into one
 * buffer (the ties of buffer/flow.h). The pass first removes copies that are already in the program. It then merges
 * ties as far as live ranges allow, and each tie that cannot merge gets a copy at its place. The copy is a value of
 * its own, so the next round can merge it. Copies at the end of a loop body are meant to happen at once but run one
 * after the other: a swap of two carried values therefore takes a second round, whose copy is the temporary of the
 * swap. See later_branches for what conditionals need. If a tie has two copies of its own and still does not merge,
 * the fault lies with another tie: the other ties of the class that it cannot join get copies. Copies add no ties,
 * so the pass ends, at the latest when each tie has copies of its own. */
#include <config.h>

#include <stdlib.h>

#include "buffer/flow.h"
#include "passes/passes.h"

enum { MOST_ROUNDS = 64 }; /* rounds; random programs of nested loops and conditionals need up to eight */

static weft_status *remove_copies(hlo_module *module, bool *changed)
{
  WEFT_AUTO(buf_flow) flow = NULL;

  WEFT_TRY(buf_flow_new(module, &flow));
  HLO_FOREACH_COMPUTATION(comp, module) {
    if (flow->comp_begin[comp->id] < 0) continue;
    HLO_FOREACH(instr, comp) {
      if (instr->op != HLO_COPY || instr->control->pred_count || instr->control->succ_count ||
          !hlo_shape_equal(instr->shape, instr->operands[0]->shape, true))
        continue;
      WEFT_TRY(hlo_replace(instr, instr->operands[0]));
      *changed = true;
    }
  }
  return NULL;
}

/* `value` with the flagged leaves (counted from its own first leaf) replaced by copies, which are made before
 * `before`. The recursion is as deep as tuple shapes nest, which the readers bound. */
static weft_status *with_copies(hlo_computation *comp, hlo_instr *before, hlo_instr *value, const bool *flags,
                                hlo_instr **out_value)
{
  int leaves = hlo_shape_leaf_count(value->shape), any = 0;
  hlo_instr **elements;

  for (int i = 0; i < leaves; i++) any |= flags[i];
  *out_value = value;
  if (!any) return NULL;
  if (!hlo_shape_is_tuple(value->shape)) return hlo_add_unary(comp, before, HLO_COPY, value, out_value);

  elements = WEFT_ARENA_ARRAY(&comp->module->arena, hlo_instr *, value->shape->rank);
  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < value->shape->rank; i++) {
    const bool *mine = flags + hlo_shape_leaf_offset(value->shape, i);
    int count = hlo_shape_leaf_count(value->shape->elements[i]), wanted = 0;
    for (int k = 0; k < count; k++) wanted |= mine[k];
    if (value->op == HLO_TUPLE) elements[i] = value->operands[i];
    else WEFT_TRY(hlo_add_gte(comp, before, value, i, &elements[i]));
    if (wanted) WEFT_TRY(with_copies(comp, before, elements[i], mine, &elements[i]));
  }
  return hlo_add_tuple(comp, before, value->shape->rank, elements, out_value);
}

/* Where the copy for a broken tie goes: an operand, or the root of a computation. */
typedef struct site {
  hlo_instr *instr; /* NULL: the root of comp */
  hlo_computation *comp;
  int operand, leaf;
} site;

static int compare_sites(const void *a, const void *b)
{
  const site *x = a, *y = b;
  if (x->comp->id != y->comp->id) return x->comp->id < y->comp->id ? -1 : 1;
  int xi = x->instr ? x->instr->id : -1, yi = y->instr ? y->instr->id : -1;
  if (xi != yi) return xi < yi ? -1 : 1;
  if (x->operand != y->operand) return x->operand < y->operand ? -1 : 1;
  return (x->leaf > y->leaf) - (x->leaf < y->leaf);
}

static site site_of(const buf_tie *tie)
{
  if (tie->kind == BUF_TIE_LOOP_ENTRY || tie->kind == BUF_TIE_IN_PLACE)
    return (site){(hlo_instr *)tie->instr, tie->instr->parent, tie->operand, tie->leaf};
  return (site){NULL, (hlo_computation *)tie->comp, 0, tie->leaf};
}

/* The copy that was made at the place of `tie`, for this tie alone; or NULL. */
static const hlo_instr *own_copy(const buf_flow *flow, const buf_tie *tie)
{
  const hlo_instr *from = flow->values[tie->from].instr;
  return from && from->op == HLO_COPY && from->parent == site_of(tie).comp && from->user_count == 1 ? from : NULL;
}

/* Branches are laid out in time one after the other. A value that only a later branch reads therefore lives through
 * an earlier branch, with whose result it may have to share memory (loop state that the conditional renews). If the
 * earlier branch already ends with a copy, another copy there does not help. Instead the later branch gets a copy
 * that is made before the conditional, which frees the state. Stores the places of such copies unless `sites` is
 * NULL, and returns their number. */
static int later_branches(const buf_flow *flow, const buf_classes *classes, const buf_tie *tie, site *sites)
{
  hlo_instr *conditional = (hlo_instr *)tie->instr;
  int to = buf_class_of(classes, tie->to), b = 0, count = 0;

  if (tie->kind != BUF_TIE_BRANCH || flow->values[tie->from].instr->op != HLO_COPY) return 0;
  while (conditional->called[b] != tie->comp) b++;
  while (++b < conditional->called_count) {
    const hlo_instr *operand = conditional->operands[b + 1];
    for (int leaf = 0; leaf < flow->leaf_count[operand->id]; leaf++) {
      int value = buf_flow_value(flow, operand, leaf);
      if (buf_class_of(classes, value) != to || flow->values[value].instr->op == HLO_COPY) continue;
      if (sites) sites[count] = (site){conditional, conditional->parent, b + 1, leaf};
      count++;
    }
  }
  return count;
}

/* Makes a copy for each of `count` leaves of the same operand or root. */
static weft_status *insert_at(const site *sites, int count, weft_arena *scratch)
{
  hlo_computation *comp = sites[0].comp;
  hlo_instr *instr = sites[0].instr, *value = instr ? instr->operands[sites[0].operand] : comp->root, *copied;
  bool *flags = WEFT_ARENA_ARRAY(scratch, bool, hlo_shape_leaf_count(value->shape));

  WEFT_TRY_ALLOC(flags);
  for (int i = 0; i < count; i++) flags[sites[i].leaf] = true;
  WEFT_TRY(with_copies(comp, instr, value, flags, &copied));
  if (instr) WEFT_TRY(hlo_set_operand(instr, sites[0].operand, copied));
  else comp->root = copied;
  if (hlo_is_dead(value)) WEFT_TRY(hlo_remove_with_dead_operands(value));
  return NULL;
}

/* The places of the copies for the broken ties. *out_sites has room for all of them. */
static weft_status *choose_sites(const buf_flow *flow, const buf_classes *classes, const bool *broken,
                                 weft_arena *scratch, site **out_sites, int *out_count)
{
  /* by class: a tie in it was not helped by copies of its own */
  bool *crowded = WEFT_ARENA_ARRAY(scratch, bool, flow->value_count);
  int count = 0, most = flow->tie_count;
  site *sites;

  for (int i = 0; i < flow->tie_count; i++)
    if (broken[i]) most += 1 + later_branches(flow, classes, &flow->ties[i], NULL);
  *out_sites = sites = WEFT_ARENA_ARRAY(scratch, site, most);
  WEFT_TRY_ALLOC(sites && crowded);
  for (int i = 0; i < flow->tie_count; i++) {
    const buf_tie *tie = &flow->ties[i];
    if (!broken[i]) continue;
    if (tie->kind == BUF_TIE_DONATION || flow->values[tie->from].bytes != flow->values[tie->to].bytes)
      return WEFT_ERR(INVALID_ARGUMENT, "\"%s\": aliased buffers cannot be one: %lld and %lld bytes",
                      tie->instr ? tie->instr->name : flow->module->name, (long long)flow->values[tie->from].bytes,
                      (long long)flow->values[tie->to].bytes);
    const hlo_instr *copy = own_copy(flow, tie);
    int later = later_branches(flow, classes, tie, sites + count);
    count += later;
    if (later) continue;
    if (copy && copy->operands[0]->op == HLO_COPY) crowded[buf_class_of(classes, tie->to)] = true;
    sites[count++] = site_of(tie);
  }
  for (int i = 0; i < flow->tie_count; i++) {
    const buf_tie *tie = &flow->ties[i];
    if (broken[i] || tie->kind == BUF_TIE_LOOP_EXIT || tie->kind == BUF_TIE_DONATION) continue;
    if (crowded[buf_class_of(classes, tie->to)] && !own_copy(flow, tie)) sites[count++] = site_of(tie);
  }
  *out_count = count;
  return NULL;
}

static weft_status *insert_copies(hlo_module *module, weft_arena *scratch, int *out_broken)
{
  WEFT_AUTO(buf_flow) flow = NULL;
  WEFT_AUTO(buf_classes) classes = NULL;
  bool *broken;
  site *sites;
  int count;

  WEFT_TRY(buf_flow_new(module, &flow));
  WEFT_TRY(buf_classes_new(flow, &classes));
  broken = WEFT_ARENA_ARRAY(scratch, bool, flow->tie_count);
  WEFT_TRY_ALLOC(broken);
  WEFT_TRY(buf_classes_merge_ties(flow, classes, broken, out_broken));
  WEFT_TRY(choose_sites(flow, classes, broken, scratch, &sites, &count));
  qsort(sites, (size_t)count, sizeof *sites, compare_sites);
  for (int i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && sites[end].comp == sites[i].comp && sites[end].instr == sites[i].instr &&
                      sites[end].operand == sites[i].operand;
         end++) {}
    WEFT_TRY(insert_at(sites + i, end - i, scratch));
  }
  return NULL;
}

static weft_status *copy_insertion_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  int broken = 1;

  WEFT_TRY(remove_copies(module, changed));
  for (int round = 0; broken > 0; round++) {
    if (round == MOST_ROUNDS) return WEFT_ERR(INTERNAL, "copy insertion does not end");
    WEFT_TRY(insert_copies(module, ctx->scratch, &broken));
    if (broken > 0) *changed = true;
  }
  return NULL;
}
const hlo_pass pass_copy_insertion = {"copy-insertion", copy_insertion_run};
