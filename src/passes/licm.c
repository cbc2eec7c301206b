/* passes/licm.c -- loop-invariant-code-motion: computations in the body of a while that depend only on constants and
 * on unchanged elements are done once before the loop, and their results are carried as unchanged elements. Inner
 * loops come first, so that a value moves outwards as far as possible. Not moved are: instructions that are as cheap
 * to make as to carry (constants, iota, broadcast, reshape, slices; they move only where something that moves needs
 * them), results larger than their operands, wide weights that a dot reads as they are stored (pass dot-parts), control
 * flow, custom-calls, collectives, and anything with a side
 * effect. If the loop never runs, the moved work is wasted, as in XLA. */
#include <config.h>

#include "codegen/model/weights.h"
#include "passes/passes.h"
#include "passes/while_loop.h"

enum {
  GROWTH_FREE_BYTES = 4096,   /* results up to this size may be larger than their operands */
  LEAST_KEPT_BYTES = 16 << 20, /* fewer wide weights are read from caches in each round: they move */
};

typedef struct mover {
  while_loop w;
  pass_map outside;  /* body instruction -> its value before the loop, made when it is needed */
  pass_map invariant; /* body instruction -> itself if it is invariant */
  pass_map stays;    /* body instruction -> itself if it makes weights of what is stored, for a dot */
} mover;

static bool never_moves(const hlo_instr *instr)
{
  switch (instr->op) {
  case HLO_PARAMETER: case HLO_WHILE: case HLO_CONDITIONAL: case HLO_CALL: case HLO_CUSTOM_CALL: case HLO_AFTER_ALL:
  case HLO_ADD_DEPENDENCY: case HLO_OPT_BARRIER: case HLO_FUSION: case HLO_PARTITION_ID:
  case HLO_REPLICA_ID: return true;
  default:
    return hlo_opcode_is_collective(instr->op) || hlo_opcode_is_async(instr->op) || pass_has_control_edges(instr) ||
           hlo_has_side_effect(instr);
  }
}

static bool is_worth_moving(const hlo_instr *instr)
{
  int64_t bytes = hlo_shape_total_bytes(instr->shape), from = 0;

  switch (instr->op) {
  case HLO_CONSTANT: case HLO_IOTA: case HLO_BROADCAST: case HLO_RESHAPE: case HLO_BITCAST: case HLO_TUPLE:
  case HLO_GET_TUPLE_ELEMENT:
  case HLO_SLICE: return false;
  default: break;
  }
  if (!hlo_shape_is_array(instr->shape)) return false;
  for (int i = 0; i < instr->operand_count; i++) {
    const hlo_instr *x = instr->operands[i];
    if (x->op != HLO_BROADCAST && x->op != HLO_IOTA) from += hlo_shape_total_bytes(x->shape);
  }
  return bytes <= from || bytes <= GROWTH_FREE_BYTES;
}

static bool is_invariant(const mover *m, const hlo_instr *instr)
{
  const hlo_instr *param = hlo_parameter(m->w.body, 0);

  if (instr->op == HLO_GET_TUPLE_ELEMENT && instr->operands[0] == param)
    return while_is_invariant(&m->w, (int)instr->u.tuple_index);
  if (never_moves(instr)) return false;
  for (int i = 0; i < instr->operand_count; i++)
    if (!pass_map_get(&m->invariant, instr->operands[i]->id)) return false;
  return true;
}

/* The value of an invariant instruction before the loop. `depth` bounds the recursion, which follows only the cheap
 * operands that move along: those that were worth moving are in the map already. */
static weft_status *value_outside(mover *m, hlo_instr *instr, int depth, hlo_instr **out)
{
  hlo_instr **operands, *copy;

  if ((*out = pass_map_get(&m->outside, instr->id)) || depth > 200) return NULL;
  if (instr->op == HLO_GET_TUPLE_ELEMENT && instr->operands[0] == hlo_parameter(m->w.body, 0)) {
    *out = while_init(&m->w, (int)instr->u.tuple_index);
  } else {
    operands = WEFT_ARENA_ARRAY(m->outside.arena, hlo_instr *, instr->operand_count);
    WEFT_TRY_ALLOC(operands);
    for (int i = 0; i < instr->operand_count; i++) {
      WEFT_TRY(value_outside(m, instr->operands[i], depth + 1, &operands[i]));
      if (!operands[i]) return NULL;
    }
    WEFT_TRY(hlo_add_clone(m->w.loop->parent, m->w.loop->operands[0], instr, operands, &copy));
    *out = copy;
  }
  return pass_map_set(&m->outside, instr->id, *out);
}

/* True if a use remains in the loop that does not move. */
static bool is_needed_inside(const mover *m, const hlo_instr *instr)
{
  for (int i = 0; i < instr->user_count; i++) {
    const hlo_instr *user = instr->users[i];
    if (!pass_map_get(&m->invariant, user->id) || !pass_map_get(&m->outside, user->id)) return true;
  }
  return false;
}

static bool reads_stored(const pass_ctx *ctx, const hlo_instr *dot, gen_stored *out)
{
  return dot->op == HLO_DOT && gen_dot_reads_stored(pass_target(ctx), dot, true, ctx->options->rounds_narrow, out);
}

/* Outside, the weights would be written once and be read in each round, wide. */
static weft_status *keep_weights(mover *m, const pass_ctx *ctx)
{
  gen_stored w;
  int64_t bytes = 0;

  if (pass_target(ctx)->block_threads > 1) return NULL; /* the library of a GPU does not read them */
  HLO_FOREACH(dot, m->w.body)
    if (reads_stored(ctx, dot, &w)) bytes += hlo_shape_total_bytes(dot->operands[1]->shape);
  if (bytes < LEAST_KEPT_BYTES) return NULL;
  HLO_FOREACH(dot, m->w.body) {
    if (!reads_stored(ctx, dot, &w)) continue;
    for (hlo_instr *x = dot->operands[1]; x != w.view.array; x = x->operands[gen_stored_operand(x, true)])
      WEFT_TRY(pass_map_set(&m->stays, x->id, x));
  }
  return NULL;
}

static weft_status *move_out_of(hlo_instr *loop, const pass_ctx *ctx, bool *changed)
{
  weft_arena *arena = ctx->scratch;
  mover m = {.outside.arena = arena, .invariant.arena = arena, .stays.arena = arena};
  hlo_instr **moved, **values;
  int count = 0, needed = 0;
  bool is_tuple;

  WEFT_TRY(while_open(loop, arena, &m.w, &is_tuple));
  if (!is_tuple || pass_has_control_edges(loop)) return NULL;
  moved = WEFT_ARENA_ARRAY(arena, hlo_instr *, m.w.body->instr_count);
  values = WEFT_ARENA_ARRAY(arena, hlo_instr *, m.w.body->instr_count);
  WEFT_TRY_ALLOC(moved);
  WEFT_TRY_ALLOC(values);
  WEFT_TRY(keep_weights(&m, ctx));
  for (hlo_instr *instr = m.w.body->first; instr; instr = instr->next) {
    hlo_instr *value;
    if (!is_invariant(&m, instr)) continue;
    WEFT_TRY(pass_map_set(&m.invariant, instr->id, instr));
    if (!is_worth_moving(instr) || instr->user_count == 0 || pass_map_get(&m.stays, instr->id)) continue;
    WEFT_TRY(value_outside(&m, instr, 0, &value));
    if (value) moved[count++] = instr;
  }
  for (int i = 0; i < count; i++) {
    if (!is_needed_inside(&m, moved[i])) continue;
    moved[needed] = moved[i];
    values[needed++] = pass_map_get(&m.outside, moved[i]->id);
  }
  if (needed == 0) return NULL;
  WEFT_TRY(while_add_invariants(&m.w, needed, values));
  for (int i = 0; i < needed; i++) WEFT_TRY(hlo_replace_uses(moved[i], values[i]));
  *changed = true;
  return NULL;
}

static weft_status *licm_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  /* callees first: a body comes before the computation that contains its loop */
  for (int i = 0; i < comps.count; i++) {
    HLO_FOREACH(instr, comps.v[i])
      if (instr->op == HLO_WHILE && !hlo_shape_is_dynamic(instr->shape)) WEFT_TRY(move_out_of(instr, ctx, changed));
  }
  return NULL;
}
const hlo_pass pass_licm = {"loop-invariant-code-motion", licm_run};
