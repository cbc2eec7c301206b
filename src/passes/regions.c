/* passes/regions.c -- regions: a while whose iterations do little work each becomes one kernel (kCustom, "region"):
 * code generation makes one native function of it, with no dispatch inside.
 *
 * The pass runs after copy insertion, on the scheduled module. The bodies keep their order and their copies, so that
 * state may be updated in place. The results are the elements of the state that are used after the loop; each is
 * declared to share its initial value's buffer, as it did before. Elements that the loop does not change are read in
 * place. Large arrays may pass through a region as long as an iteration touches little of them (dynamic-slice,
 * in-place updates). Small dots in such loops become loop fusions, also those that pass library-epilogues has given to
 * a GPU's library with what follows them, and those that pass dot-parts has given to the CPU's with the parts of arrays
 * that they read. Loops with other library calls or collectives inside are left alone. */
#include <config.h>

#include "buffer/flow.h"
#include "codegen/model/library.h"
#include "codegen/model/strategy.h"
#include "passes/fusion.h"
#include "passes/passes.h"

enum {
  /* elements computed by one kernel of the body: with more, a dispatch costs nothing in comparison */
  MOST_WORK = 1 << 13,
  SMALL_ARRAY = 32,           /* elements that a loop in one kernel computes one by one (small_loops.c) */
  GUESSED_ROUNDS = 16,
  MOST_INSTRS = 4000,         /* most instructions of a region, without those inside kernels */
  MOST_BLOCK_INSTRS = 1000,   /* most instructions including those: on a GPU a whole region is one function */
  /* bytes of a changing array that is not used after the loop: it lives in scratch memory */
  MOST_HIDDEN_BYTES = 1 << 16,
  MOST_DEPTH = 16,
};

/* The elements that the kernel computes: the largest array inside, without what an in-place update leaves alone. */
static int64_t kernel_work(const hlo_instr *fusion)
{
  const hlo_instr *loop = gen_small_loop_of(fusion->called[0]);
  int64_t work = 0;

  HLO_FOREACH(x, fusion->called[0]) {
    if (!hlo_shape_is_array(x->shape) || x->op == HLO_PARAMETER || x->op == HLO_CONSTANT) continue;
    if (fusion->u.fusion.alias_count && (x->op == HLO_DYNAMIC_UPDATE_SLICE || x->op == HLO_SCATTER)) continue;
    if (fusion->u.fusion.alias_count && (x->op == HLO_RESHAPE || x->op == HLO_BITCAST)) continue;
    work = WEFT_MAX(work, hlo_shape_elems(x->shape));
    for (int i = 0; x->op == HLO_REDUCE && i < x->operand_count; i++)
      work = WEFT_MAX(work, hlo_shape_elems(x->operands[i]->shape));
    if (x->op == HLO_DOT) work = WEFT_MAX(work, hlo_shape_elems(x->shape) * 4);
  }
  /* an inner loop over arrays computes them in each of its rounds, and threads may share them */
  if (loop && work > SMALL_ARRAY && work <= MOST_WORK)
    work *= hlo_known_trip_count(loop) >= 0 ? WEFT_MIN(hlo_known_trip_count(loop), MOST_WORK) : GUESSED_ROUNDS;
  return work;
}

/* Are the dots of a library's fusion small enough for a kernel? */
static bool dots_fit(const gen_target *target, const hlo_instr *fusion)
{
  if (!gen_is_library_fusion(fusion)) return true;
  HLO_FOREACH(x, fusion->called[0])
    if (x->op == HLO_DOT && !gen_dot_needs_kernel(target, x, true)) return false;
  return true;
}

static bool fits(const gen_target *target, const hlo_computation *comp, int *instrs, int depth)
{
  int most = target->block_threads > 1 ? MOST_BLOCK_INSTRS : MOST_INSTRS;

  if (depth > MOST_DEPTH) return false;
  HLO_FOREACH(x, comp) {
    if (++*instrs > most || pass_has_control_edges(x)) return false;
    if (!hlo_shape_is_array(x->shape) && !hlo_shape_is_tuple(x->shape)) return false;
    switch (x->op) {
    case HLO_PARAMETER: case HLO_TUPLE: case HLO_GET_TUPLE_ELEMENT: case HLO_BITCAST: case HLO_RESHAPE:
    case HLO_CONSTANT: break;
    case HLO_COPY:
      if (hlo_shape_total_bytes(x->shape) > MOST_HIDDEN_BYTES) return false;
      break;
    case HLO_FUSION:
      if (kernel_work(x) > MOST_WORK || !dots_fit(target, x)) return false;
      *instrs += target->block_threads > 1 ? x->called[0]->instr_count : 0;
      break;
    case HLO_DOT:
      if (!gen_dot_needs_kernel(target, x, true)) return false;
      break;
    case HLO_WHILE: case HLO_CONDITIONAL: case HLO_CALL:
      for (int i = 0; i < x->called_count; i++)
        if (!fits(target, x->called[i], instrs, depth + 1)) return false;
      break;
    default: return false;
    }
  }
  return true;
}

/* State in the form that regions need: a tuple of arrays that was built for this loop and is read by
 * get-tuple-element only. */
static bool has_plain_state(const buf_flow *flow, const hlo_instr *loop)
{
  const hlo_instr *init = loop->operands[0];

  if (init->op != HLO_TUPLE || init->user_count != 1 || loop == loop->parent->root) return false;
  if (loop->called[0]->root->op != HLO_TUPLE || pass_has_control_edges(init) || pass_has_control_edges(loop))
    return false;
  for (int i = 0; i < init->operand_count; i++)
    if (!hlo_shape_is_array(init->operands[i]->shape)) return false;
  for (int i = 0; i < init->operand_count; i++) {
    bool used = false, invariant = buf_flow_is_invariant(flow, loop, i);
    for (int k = 0; k < loop->user_count; k++) used = used || loop->users[k]->u.tuple_index == i;
    if (!used && !invariant && hlo_shape_bytes(init->operands[i]->shape) > MOST_HIDDEN_BYTES) return false;
    if (used && invariant) return false; /* while-simplifier replaces those elements; an alias would be wrong */
  }
  for (int k = 0; k < loop->user_count; k++)
    if (loop->users[k]->op != HLO_GET_TUPLE_ELEMENT || pass_has_control_edges(loop->users[k])) return false;
  return loop->user_count > 0;
}

/* How many instructions are between `value` and the parameter that it takes its elements from. */
static int path_length(const hlo_instr *value)
{
  int length = 0;

  for (; value->op != HLO_PARAMETER && value->operand_count > 0; value = value->operands[0]) length++;
  return length;
}

static weft_status *wrap(hlo_instr *const *members, int count, const char *name, pass_map *map)
{
  hlo_instr *fusion;

  WEFT_TRY(pass_outline(members, count, &members[count - 1], 1, map, name, &fusion));
  return pass_fusion_classify(fusion, NULL);
}

/* A dot that reads parts of arrays (pass dot-parts) is a kernel again beside kernels that copy the parts: one kernel
 * would find the place of the part anew for each multiply-add. */
static weft_status *split_parts(hlo_instr *fusion, pass_map *map)
{
  const hlo_instr *inner = fusion->called[0]->root;
  int lengths[2] = {path_length(inner->operands[0]), path_length(inner->operands[1])};
  hlo_instr *dot;

  WEFT_TRY(pass_inline(fusion, fusion->called[0], map, &dot));
  for (int i = 0; i < 2; i++) {
    hlo_instr **path = WEFT_ARENA_ARRAY(map->arena, hlo_instr *, lengths[i] + 1), *value = dot->operands[i];
    WEFT_TRY_ALLOC(path);
    if (lengths[i] == 0 || value->op == HLO_FUSION) continue; /* also where the other operand is the same part */
    for (int n = lengths[i]; n > 0; n--, value = value->operands[0]) path[n - 1] = value;
    WEFT_TRY(wrap(path, lengths[i], "slice_fusion", map));
  }
  return wrap(&dot, 1, "dot_fusion", map);
}

/* Kernels have copies of the scalar constants that they need. */
static weft_status *drop_unused_constants(hlo_computation *comp)
{
  HLO_FOREACH(x, comp)
    if (x->op == HLO_CONSTANT && x->user_count == 0 && x != comp->root) WEFT_TRY(hlo_remove(x));
  return NULL;
}

static weft_status *wrap_dots(hlo_computation *comp, pass_map *map)
{
  HLO_FOREACH(x, comp) {
    if (x->op == HLO_DOT) {
      WEFT_TRY(wrap(&x, 1, "dot_fusion", map));
    } else if (gen_is_library_fusion(x) && x->called[0]->root->op == HLO_DOT) {
      WEFT_TRY(split_parts(x, map));
    } else if (gen_is_library_fusion(x)) {
      hlo_extra *extra;
      WEFT_TRY(hlo_mutable_extra(x, &extra));
      extra->backend_config = NULL;
      WEFT_TRY(pass_fusion_classify(x, NULL));
    } else if (x->op != HLO_FUSION) {
      for (int i = 0; i < x->called_count; i++) WEFT_TRY(wrap_dots(x->called[i], map));
    }
  }
  return drop_unused_constants(comp);
}

static weft_status *make_region(hlo_instr *loop, pass_map *map)
{
  hlo_module *module = loop->parent->module;
  hlo_instr *init = loop->operands[0], *fusion;
  int n = init->operand_count, outputs = 0;
  hlo_instr **members = WEFT_ARENA_ARRAY(map->arena, hlo_instr *, n + 2),
            **given = WEFT_ARENA_ARRAY(map->arena, hlo_instr *, n);
  hlo_output_alias *aliases = WEFT_ARENA_ARRAY(&module->arena, hlo_output_alias, n);
  hlo_extra *extra;

  if (!members || !given || !aliases) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  for (int i = 0; i < 2; i++) WEFT_TRY(wrap_dots(loop->called[i], map));
  members[0] = init;
  members[1] = loop;
  for (int i = 0; i < n; i++) {
    hlo_instr *first = NULL;
    for (int k = loop->user_count - 1; k >= 0; k--) { /* one element each */
      hlo_instr *user = loop->users[k];
      if (user->u.tuple_index != i || user == first) continue;
      if (!first) {
        first = user;
        continue;
      }
      WEFT_TRY(hlo_replace(user, first));
      k = loop->user_count;
    }
    if (!first) continue;
    given[outputs] = init->operands[i];
    members[2 + outputs++] = first;
  }
  for (int k = outputs - 1; k >= 0; k--) hlo_move_before(members[2 + k], loop->next);
  WEFT_TRY(pass_outline(members, outputs + 2, members + 2, outputs, map, "region", &fusion));
  fusion->u.fusion.kind = HLO_FUSION_CUSTOM;
  fusion->u.fusion.aliases = aliases;
  for (int64_t r = 0; r < outputs; r++) {
    for (int k = 0; k < fusion->operand_count; k++) {
      bool taken = false;
      if (fusion->operands[k] != given[r]) continue;
      for (int a = 0; a < fusion->u.fusion.alias_count; a++) taken = taken || aliases[a].operand == k;
      if (taken) break;
      hlo_output_alias *alias = &aliases[fusion->u.fusion.alias_count++];
      alias->operand = k;
      WEFT_TRY(hlo_ints_new(module, outputs > 1, &r, &alias->output_index));
      break;
    }
  }
  WEFT_TRY(hlo_mutable_extra(fusion, &extra));
  extra->backend_config = "region";
  extra->backend_config_is_json = false;
  return NULL;
}

/* The contents of a region are no longer a place to look for regions. */
static weft_status *mark_inside(const hlo_computation *comp, pass_map *inside)
{
  if (pass_map_get(inside, comp->id)) return NULL;
  WEFT_TRY(pass_map_set(inside, comp->id, (void *)comp));
  HLO_FOREACH(x, comp)
    for (int i = 0; i < x->called_count; i++) WEFT_TRY(mark_inside(x->called[i], inside));
  return NULL;
}

static weft_status *regions_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  pass_map map = {.arena = ctx->scratch}, inside = {.arena = ctx->scratch};
  const gen_target *target = pass_target(ctx);
  WEFT_AUTO(buf_flow) flow = NULL; /* of the loops as they were; a region does not change the state of another loop */
  pass_comps comps;

  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = comps.count - 1; i >= 0; i--) { /* callers first: the outermost loop that fits */
    hlo_computation *comp = comps.v[i];
    hlo_instr **loops = WEFT_ARENA_ARRAY(ctx->scratch, hlo_instr *, comp->instr_count);
    int count = 0;
    WEFT_TRY_ALLOC(loops);
    if (pass_map_get(&inside, comp->id)) continue;
    HLO_FOREACH(x, comp)
      if (x->op == HLO_WHILE) loops[count++] = x;
    if (count > 0 && !flow) WEFT_TRY(buf_flow_new(module, &flow));
    for (int k = 0; k < count; k++) {
      int instrs = 0;
      if (!has_plain_state(flow, loops[k]) || !fits(target, loops[k]->called[0], &instrs, 0) ||
          !fits(target, loops[k]->called[1], &instrs, 0))
        continue;
      for (int c = 0; c < 2; c++) WEFT_TRY(mark_inside(loops[k]->called[c], &inside));
      WEFT_TRY(make_region(loops[k], &map));
      *changed = true;
    }
  }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_regions = {"regions", regions_run};
