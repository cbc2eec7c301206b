/* spmd-partitioner: a program written for whole arrays becomes the program of one partition among many.
 *
 * Correct for every program by replicate-compute-slice: sharded parameters are gathered, everything is computed whole on
 * every partition, and each result is cut to what its sharding asks for.  Regions that are written per partition
 * already (between SPMDFullToShardShape and SPMDShardToFullShape) keep their shapes and collectives; at their borders
 * arrays are cut and gathered.  On that base, operations of the entry that rules.c knows are computed on tiles; their
 * whole results are gathered only if somebody needs them whole.
 * Runs after calls are inlined; leaves a module whose parameters and results have the shapes of one partition's tiles. */
#include <config.h>

#include <string.h>

#include "passes/passes.h"
#include "passes/spmd/reshard.h"
#include "passes/spmd/rules.h"

static const hlo_sharding *sharding_of(const hlo_instr *instr) { return instr->extra ? instr->extra->sharding : NULL; }

static bool is_call_to(const hlo_instr *instr, const char *target)
{
  return instr->op == HLO_CUSTOM_CALL && instr->operand_count == 1 && strcmp(instr->u.custom->target, target) == 0;
}

/* Gathers `tile` before `before` and remembers that the result is tiled. */
static weft_status *gather(spmd_ctx *ctx, hlo_instr *before, hlo_instr *tile, const spmd_tiling *tiling, hlo_instr **out)
{
  pass_build b = {.comp = before->parent, .before = before, .origin = tile};
  spmd_tiled *tiled;

  WEFT_TRY(spmd_gather(&b, tile, tiling, out));
  if (*out == tile) return NULL;
  tiled = WEFT_ARENA_NEW(ctx->arena, spmd_tiled);
  WEFT_TRY_ALLOC(tiled);
  *tiled = (spmd_tiled){tile, *tiling};
  return pass_map_set(&ctx->tiled, (*out)->id, tiled);
}

/* This partition's tile of `whole`: without any work where it is what `whole` was gathered from. */
static weft_status *cut(spmd_ctx *ctx, pass_build *b, hlo_instr *whole, const spmd_tiling *tiling, hlo_instr **out)
{
  const spmd_tiled *have = spmd_tiled_of(ctx, whole);

  if (have && spmd_tiling_equal(&have->tiling, tiling)) {
    *out = have->tile;
    return NULL;
  }
  return spmd_slice(b, whole, tiling, out);
}

/* ---- the borders of regions written per partition ---- */

/* The sharding at a border of the region says how the whole array is cut; the shapes must agree with it. */
static weft_status *border_tiling(spmd_ctx *ctx, const hlo_instr *border, const hlo_shape *full, const hlo_shape *tile,
                                  spmd_tiling *out)
{
  WEFT_TRY(spmd_tiling_of(sharding_of(border), full->rank, ctx->module->num_partitions, ctx->arena, out));
  for (int i = 0; i < full->rank; i++)
    if (full->dims[i] != tile->dims[i] * out->tiles[i])
      return WEFT_ERR(UNIMPLEMENTED, "a manual region whose border cuts dimension %d of %lld into %lld where its sharding has %lld tiles",
                      i, (long long)full->dims[i], (long long)tile->dims[i], (long long)out->tiles[i]);
  return NULL;
}

/* The sharding of what enters a region stands on the Sharding call before it, which will be gone. */
static weft_status *note_border_shardings(hlo_computation *comp)
{
  HLO_FOREACH(instr, comp) {
    const hlo_instr *from;
    hlo_extra *extra;
    if (!is_call_to(instr, "SPMDFullToShardShape")) continue;
    for (from = instr->operands[0]; is_call_to(from, "Sharding") && !sharding_of(from);) from = from->operands[0];
    WEFT_TRY(hlo_mutable_extra(instr, &extra));
    extra->sharding = sharding_of(from);
  }
  return NULL;
}

static weft_status *rewrite_border(spmd_ctx *ctx, hlo_instr *instr, bool *done)
{
  spmd_tiling tiling;
  pass_build b = PASS_BUILD_AT(instr);
  hlo_instr *with;

  *done = true;
  if (is_call_to(instr, "Sharding")) {
    with = instr->operands[0];
  } else if (is_call_to(instr, "SPMDFullToShardShape")) {
    WEFT_TRY(border_tiling(ctx, instr, instr->operands[0]->shape, instr->shape, &tiling));
    WEFT_TRY(cut(ctx, &b, instr->operands[0], &tiling, &with));
  } else if (is_call_to(instr, "SPMDShardToFullShape")) {
    WEFT_TRY(border_tiling(ctx, instr, instr->shape, instr->operands[0]->shape, &tiling));
    WEFT_TRY(gather(ctx, instr, instr->operands[0], &tiling, &with));
  } else {
    *done = false;
    return NULL;
  }
  return hlo_replace(instr, with);
}

/* ---- parameters, operations and results of the entry ---- */

/* `shape` with the layouts of `model`, an entry shape of the same structure.  Tuples are no deeper than HLO_MAX_TUPLE_DEPTH. */
static const hlo_shape *like_entry_shape(weft_arena *arena, const hlo_shape *shape, const hlo_shape *model)
{
  hlo_shape *copy;

  if (hlo_shape_is_tuple(shape)) {
    const hlo_shape **elements = WEFT_ARENA_ARRAY(arena, const hlo_shape *, shape->rank);
    for (int i = 0; elements && i < shape->rank; i++)
      if (!(elements[i] = like_entry_shape(arena, shape->elements[i], model->elements[i]))) return NULL;
    return elements ? hlo_shape_tuple(arena, shape->rank, elements) : NULL;
  }
  copy = hlo_shape_copy(arena, shape);
  if (copy) copy->layout = model->layout;
  return copy;
}

static weft_status *cut_parameter(spmd_ctx *ctx, hlo_instr *param, int number)
{
  hlo_module *module = ctx->module;
  const hlo_shape *full = param->shape;
  hlo_instr *whole, *stand_in, *before = module->entry->first;
  spmd_tiling tiling;

  if (!hlo_shape_is_array(full)) return NULL;
  WEFT_TRY(spmd_tiling_of(sharding_of(param), full->rank, module->num_partitions, ctx->arena, &tiling));
  if (spmd_tiling_is_whole(&tiling)) return NULL;
  WEFT_TRY_NOTE(spmd_tile_shape(&tiling, full, ctx->arena, &param->shape), "parameter %d", number);
  if (module->has_entry_layout) {
    module->entry_param_shapes[number] = like_entry_shape(ctx->arena, param->shape, module->entry_param_shapes[number]);
    WEFT_TRY_ALLOC(module->entry_param_shapes[number]);
  }
  while (before && before->op == HLO_PARAMETER) before = before->next;
  /* users of the parameter want the whole: they are moved aside while the gather becomes its only user */
  WEFT_TRY(hlo_add(module->entry, before, HLO_BITCAST, full, 0, NULL, NULL, &stand_in));
  WEFT_TRY(hlo_replace_uses(param, stand_in));
  WEFT_TRY(gather(ctx, stand_in, param, &tiling, &whole));
  return hlo_replace(stand_in, whole);
}

/* In list order, so that operands are tiled before their users ask. */
static weft_status *partition_entry(spmd_ctx *ctx)
{
  HLO_FOREACH(instr, ctx->module->entry) {
    bool done;
    spmd_tiled tiled;
    hlo_instr *whole;
    WEFT_TRY(rewrite_border(ctx, instr, &done));
    if (done) continue;
    WEFT_TRY(spmd_apply_rule(ctx, instr, &tiled));
    if (!tiled.tile) continue;
    WEFT_TRY(gather(ctx, instr, tiled.tile, &tiled.tiling, &whole));
    WEFT_TRY(hlo_replace(instr, whole));
  }
  return NULL;
}

static const hlo_sharding *element_sharding(const hlo_sharding *s, int i)
{
  if (!s || s->kind != HLO_SHARDING_TUPLE) return s;
  return i < s->tuple_count ? s->elements[i] : NULL;
}

/* Each result is cut to its tile; the module's layout follows. */
static weft_status *cut_results(spmd_ctx *ctx, const hlo_sharding *sharding)
{
  hlo_module *module = ctx->module;
  hlo_computation *entry = module->entry;
  bool is_tuple = hlo_shape_is_tuple(entry->root->shape);
  int count = is_tuple ? entry->root->shape->rank : 1;
  hlo_instr **elements = WEFT_ARENA_ARRAY(ctx->arena, hlo_instr *, count);
  pass_build b = PASS_BUILD_IN(entry);

  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < count; i++) {
    spmd_tiling tiling;
    elements[i] = !is_tuple ? entry->root : entry->root->op == HLO_TUPLE ? entry->root->operands[i] : pb_gte(&b, entry->root, i);
    WEFT_TRY(pass_build_finish(&b));
    if (!hlo_shape_is_array(elements[i]->shape)) continue;
    WEFT_TRY(spmd_tiling_of(element_sharding(sharding, i), elements[i]->shape->rank, module->num_partitions, ctx->arena, &tiling));
    WEFT_TRY_NOTE(cut(ctx, &b, elements[i], &tiling, &elements[i]), "result %d", i);
  }
  {
    hlo_instr *old = entry->root;
    entry->root = is_tuple ? pb_tuple(&b, count, elements) : elements[0];
    WEFT_TRY(pass_build_finish(&b));
    if (module->has_entry_layout) {
      module->entry_result_shape = like_entry_shape(ctx->arena, entry->root->shape, module->entry_result_shape);
      WEFT_TRY_ALLOC(module->entry_result_shape);
    }
    if (old != entry->root && hlo_is_dead(old)) WEFT_TRY(hlo_remove_with_dead_operands(old));
  }
  return NULL;
}

/* Gathers that nobody asked for.  Their all-gather counts as a side effect, so dead-code elimination leaves it: but every
 * partition runs this very program, and all of them leave it out. */
static weft_status *remove_unused_gathers(hlo_module *module)
{
  for (hlo_instr *instr = module->entry->last, *before; instr; instr = before) {
    before = instr->prev;
    if (instr->user_count || instr == module->entry->root || pass_has_control_edges(instr)) continue;
    if (instr->op == HLO_ALL_GATHER || instr->op == HLO_RESHAPE || instr->op == HLO_TRANSPOSE || hlo_is_dead(instr))
      if (instr->op != HLO_PARAMETER) WEFT_TRY(hlo_remove(instr));
  }
  return NULL;
}

/* Collectives without a manual region around them: somebody has partitioned this program already (dumps of partitioned
 * programs keep the shardings of their parameters, whose shapes are tiles by then). */
static bool is_partitioned(const hlo_module *module)
{
  bool collectives = false;

  for (const hlo_computation *c = module->first; c; c = c->next)
    for (const hlo_instr *i = c->first; i; i = i->next) {
      if (is_call_to(i, "SPMDFullToShardShape") || is_call_to(i, "SPMDShardToFullShape")) return false;
      collectives |= hlo_opcode_is_collective(i->op) || i->op == HLO_PARTITION_ID;
    }
  return collectives;
}

/* A result that is cut in another way than the parameter it was to share memory with cannot share it. */
static weft_status *drop_uneven_aliases(hlo_module *module)
{
  hlo_input_output_alias *kept = WEFT_ARENA_ARRAY(&module->arena, hlo_input_output_alias, module->alias_count);
  int count = 0;

  WEFT_TRY_ALLOC(kept);
  for (int i = 0; i < module->alias_count; i++) {
    const hlo_input_output_alias *a = &module->aliases[i];
    const hlo_shape *result = hlo_shape_at(module->entry->root->shape, a->output_index.v, a->output_index.count),
                    *param = a->parameter < module->entry->param_count
                                 ? hlo_shape_at(module->entry->params[a->parameter]->shape, a->parameter_index.v,
                                                a->parameter_index.count)
                                 : NULL;
    if (result && param && hlo_shape_equal(result, param, false)) kept[count++] = *a;
  }
  module->aliases = kept;
  module->alias_count = count;
  return NULL;
}

static weft_status *spmd_run(hlo_module *module, pass_ctx *pass, bool *changed)
{
  spmd_ctx ctx = {.module = module, .arena = &module->arena, .tiled = {.arena = pass->scratch}};
  const hlo_sharding *results = module->spmd_output_sharding;

  if (module->num_partitions <= 1 || is_partitioned(module)) return NULL;
  if (!results) results = sharding_of(module->entry->root); /* which a rewrite may replace */
  HLO_FOREACH_COMPUTATION(comp, module) WEFT_TRY(note_border_shardings(comp));
  for (int i = 0; i < module->entry->param_count; i++) WEFT_TRY(cut_parameter(&ctx, module->entry->params[i], i));
  WEFT_TRY(partition_entry(&ctx));
  WEFT_TRY(cut_results(&ctx, results));
  WEFT_TRY(remove_unused_gathers(module));
  WEFT_TRY(drop_uneven_aliases(module));
  HLO_FOREACH_COMPUTATION(comp, module) {
    if (comp == module->entry) continue;
    HLO_FOREACH(instr, comp) {
      bool done;
      WEFT_TRY(rewrite_border(&ctx, instr, &done));
    }
  }
  *changed = true;
  return NULL;
}
const hlo_pass pass_spmd_partitioner = {"spmd-partitioner", spmd_run};
