/* passes/loop_pairs.c -- loop-pairs: joins two rounds of a loop to one where that saves copies of its state.
 *
 * A loop that still reads its state while it makes it anew writes the new state to another place, and copy insertion
 * ends each round with a copy back. In a body of two rounds the second one reads that other place and writes the
 * state's own: no copy is left. An exchange of two elements, too, is undone by the second round.
 *
 * The pass runs after regions, on the scheduled module with its copies. It tries: it gives each candidate a body of two
 * rounds, inserts copies anew, and keeps the new body if fewer bytes are copied for each round. It gives all of them
 * up if the memory plan grows. The number of rounds of the joined loop is
 *   - half of the known number; if that is odd, one round is made before the loop;
 *   - else what the condition says: it is evaluated between the two rounds as well, and if it is false there, the
 *     second round only hands its state on. The loop then evaluates the condition once more on the same state.
 *
 * Candidates copy much of what they touch, have few instructions, no effects and no communication. */
#include <config.h>

#include "buffer/flow.h"
#include "buffer/plan.h"
#include "codegen/model/cost.h"
#include "codegen/model/library.h"
#include "passes/fusion.h"
#include "passes/passes.h"
#include "passes/util.h"

enum {
  LEAST_COPIED = 4096,      /* bytes that a round copies */
  LEAST_COPIED_UNKNOWN = 32768, /* the same where the condition decides, since a round then has more steps */
  LEAST_TRIPS = 8,
  MOST_INSTRS = 400,        /* instructions of a body, with those of its kernels */
  MOST_DEPTH = 16,
  BYTES_A_NS = 40,          /* that a step moves within a cache */
  GUESSED_TRIPS = 10,       /* of inner loops whose number of rounds is not known */
  MOST_GROWTH = 1024,       /* bytes by which scalars may enlarge the memory plan */
};
static const double LEAST_SHARE = 1.0 / 16; /* of the time of a round: the copies */

typedef struct pair_loop {
  hlo_instr *loop;
  hlo_computation *single, *twice; /* the body of one round, and of two */
  hlo_computation *same;           /* what hands the state on instead of the second round; NULL: there always is one */
  double copied;                   /* bytes that `single` copies */
  int64_t trips;                   /* of the loop as it was; -1: not known */
  hlo_instr *init;                 /* what the loop as it was begins with, if a round is made before it; else NULL */
  bool joined;
} pair_loop;

/* ---- which loops ------------------------------------------------------------------------------------------------- */

/* What a round of a computation costs, by what its steps move. */
typedef struct toll { double ns, copied_ns, copied; int instrs; } toll;

static int64_t touched_bytes(const hlo_instr *x)
{
  int64_t bytes = hlo_shape_total_bytes(x->shape);

  for (int i = 0; i < x->operand_count; i++) bytes += hlo_shape_total_bytes(x->operands[i]->shape);
  return bytes;
}

/* Adds up `comp` and what it calls. False: it is more than a candidate may be. */
static bool add_toll(const gen_target *target, const hlo_computation *comp, int depth, double times, toll *t)
{
  if (depth > MOST_DEPTH) return false;
  HLO_FOREACH(x, comp) {
    if (++t->instrs > MOST_INSTRS || pass_has_control_edges(x) || hlo_opcode_talks(x->op) || hlo_opcode_is_async(x->op))
      return false;
    if (hlo_has_side_effect(x) || hlo_shape_is_dynamic(x->shape)) return false;
    if (hlo_opcode_runs_steps(x->op)) {
      int64_t trips = x->op == HLO_WHILE ? hlo_known_trip_count(x) : 1;
      double inner = times * (trips < 0 ? GUESSED_TRIPS : (double)trips);
      for (int i = 0; i < x->called_count; i++)
        if (!add_toll(target, x->called[i], depth + 1, inner, t)) return false;
      continue;
    }
    if (!hlo_opcode_is_step(x->op)) continue;
    double ns = (double)touched_bytes(x) / BYTES_A_NS;
    if (gen_is_library_fusion(x)) ns = gen_library_ns(target, x); /* it may read a part of its operands */
    else if (x->op == HLO_FUSION) t->instrs += x->called[0]->instr_count;
    else if (x->op != HLO_COPY) ns = WEFT_MAX(ns, gen_library_ns(target, x));
    if (x->op == HLO_COPY) {
      t->copied += times * (double)hlo_shape_total_bytes(x->shape);
      t->copied_ns += times * ns;
    }
    t->ns += times * ns;
  }
  return t->instrs <= MOST_INSTRS;
}

static bool is_candidate(const gen_target *target, const hlo_instr *loop, double *out_copied)
{
  int64_t trips = hlo_known_trip_count(loop);
  toll body = {0}, condition = {0};

  if (pass_has_control_edges(loop) || (trips >= 0 && trips < LEAST_TRIPS)) return false;
  if (!add_toll(target, loop->called[0], 0, 1, &body) || !add_toll(target, loop->called[1], 0, 1, &condition))
    return false;
  *out_copied = body.copied;
  return body.copied >= (trips < 0 ? LEAST_COPIED_UNKNOWN : LEAST_COPIED) && body.copied_ns >= body.ns * LEAST_SHARE;
}

/* ---- two rounds -------------------------------------------------------------------------------------------------- */

/* Adds a round of `round` on `state` to `comp`, before `before`. *out_root is what its root yields. */
static weft_status *add_round(hlo_computation *comp, hlo_instr *before, const hlo_computation *round, hlo_instr *state,
                              pass_map *map, hlo_instr **out_root)
{
  const hlo_instr *param = hlo_parameter(round, 0);
  hlo_instr **operands = NULL, *copy;
  int capacity = 0;

  WEFT_TRY(pass_map_set(map, param->id, state));
  HLO_FOREACH(x, round) {
    if (x == param) continue;
    if (x->op == HLO_GET_TUPLE_ELEMENT && x->operands[0] == param && state->op == HLO_TUPLE) {
      copy = state->operands[x->u.tuple_index];
    } else {
      WEFT_TRY(pass_mapped_operands(x, map, &operands, &capacity));
      WEFT_TRY(hlo_add_clone(comp, before, x, operands, &copy));
    }
    WEFT_TRY(pass_map_set(map, x->id, copy));
  }
  *out_root = pass_map_get(map, round->root->id);
  return NULL;
}

static weft_status *remove_if_dead(hlo_instr *x) { return hlo_is_dead(x) ? hlo_remove_with_dead_operands(x) : NULL; }

/* A computation that hands on what it gets. */
static weft_status *make_identity(hlo_computation *before, const hlo_shape *shape, hlo_computation **out)
{
  hlo_module *module = before->module;
  hlo_instr *param;
  const char *name;

  WEFT_TRY(hlo_unique_name(module, "same_state", &name));
  WEFT_TRY(hlo_computation_new(module, name, out));
  hlo_computation_move_before(*out, before);
  WEFT_TRY(hlo_add_parameter(*out, 0, shape, NULL, &param));
  (*out)->root = param;
  return NULL;
}

/* The second round where the condition decides whether there is one. In the flattened schedule the branches follow each
 * other, and so the state that one of them hands on would live through the other if that came first. */
static weft_status *add_choice(pair_loop *p, hlo_instr *state, pass_map *map, hlo_instr **out_root)
{
  hlo_computation *second;
  hlo_instr *flag, *ended;

  WEFT_TRY(add_round(p->twice, NULL, p->loop->called[1], state, map, &flag));
  WEFT_TRY(hlo_add_unary(p->twice, NULL, HLO_NOT, flag, &ended));
  WEFT_TRY(pass_outline(&ended, 1, &ended, 1, map, "ended", &flag));
  WEFT_TRY(pass_fusion_classify(flag, NULL));
  WEFT_TRY(hlo_computation_clone(p->twice->module, p->single, p->single->name, p->twice, &second));
  WEFT_TRY(make_identity(p->twice, state->shape, &p->same));
  WEFT_TRY(
    hlo_add(p->twice, NULL, HLO_CONDITIONAL, state->shape, 3, (hlo_instr *[]){flag, state, state}, NULL, out_root));
  return hlo_set_called(*out_root, 2, (hlo_computation *[]){p->same, second});
}

static weft_status *join_rounds(pair_loop *p, pass_map *map)
{
  hlo_instr *first;

  p->single = p->loop->called[0];
  WEFT_TRY(hlo_computation_clone(p->loop->parent->module, p->single, p->single->name, p->single, &p->twice));
  first = p->twice->root;
  if (p->trips >= 0) WEFT_TRY(add_round(p->twice, NULL, p->single, first, map, &p->twice->root));
  else WEFT_TRY(add_choice(p, first, map, &p->twice->root));
  WEFT_TRY(remove_if_dead(first));
  p->joined = true;
  return hlo_set_called(p->loop, 2, (hlo_computation *[]){p->twice, p->loop->called[1]});
}

/* Half of the rounds; an odd one is made before the loop. */
static weft_status *halve_trips(pair_loop *p, pass_map *map)
{
  hlo_instr *state;

  if (p->trips < 0) return NULL;
  if (p->trips % 2) {
    p->init = p->loop->operands[0];
    WEFT_TRY(add_round(p->loop->parent, p->loop, p->single, p->init, map, &state));
    WEFT_TRY(hlo_set_operand(p->loop, 0, state));
  }
  return pass_set_trip_count(p->loop, p->trips / 2);
}

/* The loop as it was. */
static weft_status *part_rounds(pair_loop *p)
{
  hlo_instr *state = p->loop->operands[0];

  p->joined = false;
  WEFT_TRY(hlo_set_called(p->loop, 2, (hlo_computation *[]){p->single, p->loop->called[1]}));
  if (p->init) {
    WEFT_TRY(hlo_set_operand(p->loop, 0, p->init));
    WEFT_TRY(remove_if_dead(state));
    p->init = NULL;
  }
  return p->trips < 0 ? NULL : pass_set_trip_count(p->loop, p->trips);
}

/* ---- is it better? ----------------------------------------------------------------------------------------------- */

/* Bytes that the copies of `comp` and of what it calls move. `rare` (or NULL) is run once in the whole loop and does
 * not count. Nesting was bounded before. */
static double copied_bytes(const hlo_computation *comp, const hlo_computation *rare)
{
  double bytes = 0;

  if (comp == rare) return 0;
  HLO_FOREACH(x, comp) {
    int64_t trips = x->op == HLO_WHILE ? hlo_known_trip_count(x) : 1;
    double inner = trips < 0 ? GUESSED_TRIPS : (double)trips;
    if (x->op == HLO_COPY) bytes += (double)hlo_shape_total_bytes(x->shape);
    if (!hlo_opcode_runs_steps(x->op)) continue;
    for (int i = 0; i < x->called_count; i++) bytes += inner * copied_bytes(x->called[i], rare);
  }
  return bytes;
}

static weft_status *planned_bytes(const hlo_module *module, int64_t *out)
{
  WEFT_AUTO(buf_plan) plan = NULL;

  WEFT_TRY(buf_plan_new(module, &(buf_options){.order = BUF_TOPOLOGICAL}, &plan));
  *out = buf_plan_stats(plan)->temp_bytes;
  return NULL;
}

/* Copies as they have to be now, and computations that have one caller each. */
static weft_status *settle(hlo_module *module, pass_ctx *ctx)
{
  bool changed;

  WEFT_TRY(pass_flatten.run(module, ctx, &changed));
  return pass_copy_insertion.run(module, ctx, &changed);
}

/* How deep calls nest below `comp`; each computation has one caller here, and the depth was bounded before. */
static int height_of(const hlo_computation *comp)
{
  int most = 0;

  HLO_FOREACH(x, comp)
    for (int i = 0; hlo_opcode_runs_steps(x->op) && i < x->called_count; i++)
      most = WEFT_MAX(most, height_of(x->called[i]));
  return most + 1;
}

/* Candidates that contain no other candidate. */
static weft_status *find_loops(hlo_module *module, pass_ctx *ctx, pass_map *has_candidate, pair_loop **out,
                               int *out_count)
{
  pass_comps comps;
  pair_loop *found = NULL;
  int count = 0, capacity = 0;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = 0; i < comps.count; i++) { /* callees first */
    hlo_computation *comp = comps.v[i];
    HLO_FOREACH(x, comp) {
      double copied;
      bool inside = false;
      if (!hlo_opcode_runs_steps(x->op)) continue;
      for (int k = 0; k < x->called_count; k++) inside = inside || pass_map_get(has_candidate, x->called[k]->id);
      if (!inside && x->op == HLO_WHILE && is_candidate(pass_target(ctx), x, &copied)) {
        inside = true;
        if (!WEFT_ARENA_RESERVE(ctx->scratch, found, capacity, count + 1, 8))
          return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
        found[count++] = (pair_loop){.loop = x, .copied = copied, .trips = hlo_known_trip_count(x)};
      }
      if (inside) WEFT_TRY(pass_map_set(has_candidate, comp->id, comp));
    }
  }
  *out = found;
  *out_count = count;
  return NULL;
}

static weft_status *loop_pairs_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch}, has_candidate = {.arena = ctx->scratch};
  int64_t bytes_before, bytes;
  pair_loop *loops;
  int count;

  WEFT_TRY(find_loops(module, ctx, &has_candidate, &loops, &count));
  if (count == 0) return NULL;
  if (height_of(module->entry) + 1 >= BUF_MAX_DEPTH) return NULL; /* a second round may lie a level deeper */
  *changed = true;
  WEFT_TRY(planned_bytes(module, &bytes_before));
  for (int i = 0; i < count; i++) WEFT_TRY(join_rounds(&loops[i], &map));
  WEFT_TRY(settle(module, ctx));
  for (int i = 0; i < count; i++) {
    bool better = copied_bytes(loops[i].twice, loops[i].same) <= loops[i].copied;
    WEFT_TRY(better ? halve_trips(&loops[i], &map) : part_rounds(&loops[i]));
  }
  WEFT_TRY(settle(module, ctx));
  WEFT_TRY(planned_bytes(module, &bytes));
  for (int i = 0; i < count; i++) {
    if (loops[i].joined && bytes > bytes_before + MOST_GROWTH) WEFT_TRY(part_rounds(&loops[i]));
    if (loops[i].init) WEFT_TRY(remove_if_dead(loops[i].init));
  }
  WEFT_TRY(hlo_module_gc(module));
  return bytes > bytes_before + MOST_GROWTH ? settle(module, ctx) : NULL;
}
const hlo_pass pass_loop_pairs = {"loop-pairs", loop_pairs_run};
