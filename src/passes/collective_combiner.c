/* passes/collective_combiner.c -- all-reduce-combiner, all-gather-combiner, reduce-scatter-combiner: small
 * collectives of one kind (reduction, type, set of groups, dimension) become one collective with several operands,
 * which travels as one message (weft_coll_post_group packs it).
 *
 * The candidates of one kind are treated together. The level of an instruction is the greatest number of candidates
 * on a path that leads to it. Two candidates of one level do not depend on each other. Levels grow along every edge
 * that leaves a candidate, so joining the candidates of one level creates no cycle. The kinds are treated one after
 * the other, each on the result of the one before; each costs one walk over the computation. Collectives with
 * control edges (which would have to move), with a reducer that is not one operation, or with several operands are
 * left alone. */
#include <config.h>

#include <stdlib.h>

#include "passes/build.h"
#include "passes/passes.h"

enum {
  /* bytes of one message: above that latency does not dominate, and a collective that waits for its operands delays
   * the others */
  MOST_BYTES = 1 << 20,
  MOST_PARTS = 256,
  MOST_KINDS = 16,      /* kinds that are treated in one computation; each of them costs a walk */
};

typedef struct member {
  hlo_instr *instr;
  int kind;       /* index into combiner.kinds */
  intptr_t level;
  int place;      /* in the order of the list, among the members */
} member;

typedef struct combiner {
  hlo_opcode op;
  hlo_computation *comp;
  weft_arena *arena;
  hlo_instr *kinds[MOST_KINDS]; /* the first candidate of each kind */
  int kind_count, member_count;
  member *members;              /* in the order of the list */
  pass_map level;               /* by id, as an integer */
} combiner;

/* The bytes that a rank sends or receives, whichever is more: an all-gather's result, a reduce-scatter's operand. */
static int64_t message_bytes(const hlo_instr *instr)
{
  return WEFT_MAX(hlo_shape_bytes(instr->shape), hlo_shape_bytes(instr->operands[0]->shape));
}

/* The dimension of an all-gather or reduce-scatter. */
static int64_t moved_dim(const hlo_instr *instr) { return instr->dims.count ? instr->dims.v[0] : -1; }

static hlo_opcode reduction_of(const hlo_instr *instr)
{
  return instr->called_count ? hlo_reducer_op(instr->called[0]) : HLO_OPCODE_COUNT;
}

static bool is_candidate(const combiner *c, const hlo_instr *instr)
{
  return instr->op == c->op && instr->operand_count == 1 && hlo_shape_is_array(instr->shape) &&
         !pass_has_control_edges(instr) && !instr->u.collective->constrain_layout &&
         (instr->called_count == 0 || reduction_of(instr) != HLO_OPCODE_COUNT) &&
         message_bytes(instr) <= MOST_BYTES / 2;
}

static bool is_same_kind(const hlo_instr *a, const hlo_instr *b)
{
  const hlo_collective_attrs *x = a->u.collective, *y = b->u.collective;

  return a->shape->type == b->shape->type && reduction_of(a) == reduction_of(b) && moved_dim(a) == moved_dim(b) &&
         (x->channel_id > 0) == (y->channel_id > 0) && x->use_global_device_ids == y->use_global_device_ids &&
         hlo_replica_groups_equal(&x->groups, &y->groups);
}

/* The candidates of the computation with their kinds. Candidates of kinds beyond MOST_KINDS are left out. */
static weft_status *find_members(combiner *c)
{
  c->members = WEFT_ARENA_ARRAY(c->arena, member, c->comp->instr_count);
  WEFT_TRY_ALLOC(c->members);
  HLO_FOREACH(instr, c->comp) {
    int kind = 0;
    if (!is_candidate(c, instr)) continue;
    while (kind < c->kind_count && !is_same_kind(c->kinds[kind], instr)) kind++;
    if (kind == MOST_KINDS) continue;
    if (kind == c->kind_count) c->kinds[c->kind_count++] = instr;
    c->members[c->member_count] = (member){.instr = instr, .kind = kind, .place = c->member_count};
    c->member_count++;
  }
  return NULL;
}

/* The level that `instr` gives to its users: one more than its own if it is a candidate of this kind. */
static intptr_t level_after(const combiner *c, const hlo_instr *instr, int kind)
{
  bool counts = is_candidate(c, instr) && is_same_kind(c->kinds[kind], instr);
  return (intptr_t)pass_map_get(&c->level, instr->id) + counts;
}

static weft_status *set_levels(combiner *c, int kind)
{
  HLO_FOREACH(instr, c->comp) {
    intptr_t level = 0;
    for (int i = 0; i < instr->operand_count; i++) level = WEFT_MAX(level, level_after(c, instr->operands[i], kind));
    for (int i = 0; i < instr->control->pred_count; i++)
      level = WEFT_MAX(level, level_after(c, instr->control->preds[i], kind));
    WEFT_TRY(pass_map_set(&c->level, instr->id, (void *)level));
  }
  return NULL;
}

static int by_level(const void *a, const void *b)
{
  const member *x = a, *y = b;
  return x->level != y->level ? (x->level > y->level) - (x->level < y->level) : x->place - y->place;
}

/* Makes one instruction in the place of the last candidate. */
static weft_status *combine(combiner *c, const member *members, int count)
{
  hlo_instr **operands = WEFT_ARENA_ARRAY(c->arena, hlo_instr *, count);
  const hlo_shape **shapes = WEFT_ARENA_ARRAY(c->arena, const hlo_shape *, count);
  hlo_instr *first = members[0].instr, *last = members[count - 1].instr;
  pass_build b = PASS_BUILD_AT(last);

  WEFT_TRY_ALLOC(operands);
  WEFT_TRY_ALLOC(shapes);
  for (int i = 0; i < count; i++) {
    operands[i] = members[i].instr->operands[0];
    shapes[i] = members[i].instr->shape;
  }
  hlo_instr *all = pb_instr(&b, c->op, hlo_shape_tuple(&c->comp->module->arena, count, shapes), count, operands);
  if (all) {
    all->u.collective = first->u.collective;
    all->dims = first->dims;
    if (first->called_count) b.error = hlo_set_called(all, 1, first->called);
  }
  for (int i = 0; i < count && !b.error; i++) {
    hlo_instr *part = pb_gte(&b, all, i);
    if (part) b.error = hlo_replace(members[i].instr, part);
  }
  return pass_build_finish(&b);
}

/* Joins the candidates of one kind that may be joined. */
static weft_status *combine_kind(combiner *c, int kind, bool *changed)
{
  member *own = WEFT_ARENA_ARRAY(c->arena, member, c->member_count);
  int count = 0;
  bool joined = false;

  WEFT_TRY_ALLOC(own);
  for (int i = 0; i < c->member_count; i++)
    if (c->members[i].kind == kind) own[count++] = c->members[i];
  if (count < 2) return NULL;
  WEFT_TRY(set_levels(c, kind));
  for (int i = 0; i < count; i++) own[i].level = (intptr_t)pass_map_get(&c->level, own[i].instr->id);
  qsort(own, (size_t)count, sizeof *own, by_level);
  for (int at = 0, end; at < count; at = end) {
    int64_t bytes = 0;
    for (end = at; end < count && own[end].level == own[at].level && end - at < MOST_PARTS; end++) {
      bytes += message_bytes(own[end].instr);
      if (bytes > MOST_BYTES) break;
    }
    if (end - at < 2) continue;
    WEFT_TRY(combine(c, own + at, end - at));
    joined = true;
  }
  *changed |= joined;
  return joined ? hlo_computation_sort(c->comp) : NULL;
}

static weft_status *combine_all(hlo_opcode op, hlo_module *module, const pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) {
    combiner c = {.op = op, .comp = comps.v[i], .arena = ctx->scratch, .level = {.arena = ctx->scratch}};
    WEFT_TRY(find_members(&c));
    for (int kind = 0; kind < c.kind_count; kind++) WEFT_TRY(combine_kind(&c, kind, changed));
  }
  return NULL;
}

#define COMBINER(word, name, op)                                                                                       \
  static weft_status *word##_combiner_run(hlo_module *module, pass_ctx *ctx, bool *changed)                            \
  {                                                                                                                    \
    return combine_all(op, module, ctx, changed);                                                                      \
  }                                                                                                                    \
  const hlo_pass pass_##word##_combiner = {name, word##_combiner_run}
COMBINER(all_reduce, "all-reduce-combiner", HLO_ALL_REDUCE);
COMBINER(all_gather, "all-gather-combiner", HLO_ALL_GATHER);
COMBINER(reduce_scatter, "reduce-scatter-combiner", HLO_REDUCE_SCATTER);
