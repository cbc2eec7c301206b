/* passes/spmd/spmd.c -- spmd-partitioner: a program written for whole arrays becomes the program of one partition
 * among many.
 *
 * Every array gets a sharding, starting from the shardings that parameters, results, constraints and manual regions
 * have (propagate.c). Then each instruction is made again on tiles (partition.c), with collectives where a tile is
 * needed in another form (reshard.c). factors.c says for each operation which dimensions belong together; shardings
 * are lists of axes of one grid of partitions (axes.c). Along a dimension where elements change places, tiles get
 * the rows that they need from their neighbours (edges.c), or each partition handles its own rows (parts.c). Regions
 * that are written for one partition already (between SPMDFullToShardShape and SPMDShardToFullShape) keep their
 * collectives; axes that they do not manage cut them too.
 *
 * The pass runs after calls are inlined and each body has one caller. It leaves a module whose parameters and
 * results have the shapes of one partition's tiles, and whose parameters and spmd_output_sharding say how the whole
 * arrays are cut. */
#include <config.h>

#include <string.h>

#include "passes/passes.h"
#include "passes/spmd/partition.h"

/* A collective in which no two partitions communicate: each group has one member, and each pair has the same source
 * and target. */
static bool is_alone(const hlo_instr *instr)
{
  const hlo_collective_attrs *a = instr->u.collective;

  if (!a) return false;
  for (int i = 0; i < a->pair_count; i++)
    if (a->pairs[i][0] != a->pairs[i][1]) return false;
  if (instr->op == HLO_COLLECTIVE_PERMUTE) return true;
  if (a->groups.form == HLO_GROUPS_IOTA) return a->groups.group_size == 1;
  if (a->groups.form != HLO_GROUPS_LIST || a->groups.group_count == 0) return false;
  for (int g = 0; g < a->groups.group_count; g++)
    if (a->groups.groups[g].count != 1) return false;
  return true;
}

/* Collectives without a manual region around them mean that the program has been partitioned already (dumps of
 * partitioned programs keep the shardings of their parameters, whose shapes are those of tiles then). */
static bool is_partitioned(const hlo_module *module)
{
  bool collectives = false, named = false;

  /* a mesh comes from a framework; partition numbers may then be those of a shard_map over axes of size 1, which
   * makes no region */
  for (int i = 0; i < module->entry->param_count; i++) {
    const hlo_sharding *s = module->entry->params[i]->extra ? module->entry->params[i]->extra->sharding : NULL;
    named |= s && s->kind == HLO_SHARDING_NAMED;
  }

  for (const hlo_computation *c = module->first; c; c = c->next)
    for (const hlo_instr *i = c->first; i; i = i->next) {
      if (spmd_is_call_to(i, "SPMDFullToShardShape") || spmd_is_call_to(i, "SPMDShardToFullShape")) return false;
      collectives |= (hlo_opcode_is_collective(i->op) && !is_alone(i)) || (i->op == HLO_PARTITION_ID && !named);
    }
  return collectives;
}

/* A result that is cut in another way than the parameter whose memory it was to share cannot share it. */
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

static bool is_aliased(const hlo_module *module, const hlo_ints *output)
{
  for (int i = 0; i < module->alias_count; i++)
    if (module->aliases[i].output_index.count == output->count &&
        pass_same_ints(module->aliases[i].output_index.v, output->v, output->count))
      return true;
  return false;
}

/* A donated parameter shares memory with a result of its size, once the sizes are those of tiles; without such a
 * result it stays the caller's. */
static weft_status *settle_donors(hlo_module *module)
{
  const hlo_shape *root = module->entry->root->shape;
  bool is_tuple = hlo_shape_is_tuple(root);
  int results = is_tuple ? root->rank : 1;
  hlo_input_output_alias *aliases =
    WEFT_ARENA_ARRAY(&module->arena, hlo_input_output_alias, module->alias_count + module->donor_count);

  WEFT_TRY_ALLOC(aliases);
  if (module->alias_count) memcpy(aliases, module->aliases, (size_t)module->alias_count * sizeof *aliases);
  module->aliases = aliases;
  for (int i = 0; i < module->donor_count; i++) {
    const hlo_buffer_donor *donor = &module->donors[i];
    const hlo_shape *param =
      donor->parameter < module->entry->param_count ? module->entry->params[donor->parameter]->shape : NULL;
    for (int64_t r = 0; r < results && param && hlo_shape_is_array(param) && donor->parameter_index.count == 0; r++) {
      hlo_ints output = {0};
      const hlo_shape *result = is_tuple ? root->elements[r] : root;
      if (!hlo_shape_is_array(result) || hlo_shape_bytes(result) != hlo_shape_bytes(param)) continue;
      if (is_tuple) WEFT_TRY(hlo_ints_new(module, 1, &r, &output));
      if (is_aliased(module, &output)) continue;
      aliases[module->alias_count++] = (hlo_input_output_alias){.output_index = output, .parameter = donor->parameter};
      break;
    }
  }
  module->donor_count = 0;
  return NULL;
}

/* `shape` with the layouts of `model`, an entry shape of the same structure. Tuples are no deeper than
 * HLO_MAX_TUPLE_DEPTH. */
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

/* Entry shapes are those of tiles now, with the layouts that the program asks for. */
static weft_status *cut_entry_layout(hlo_module *module)
{
  const hlo_computation *entry = module->entry;

  if (!module->has_entry_layout) return NULL;
  for (int i = 0; i < entry->param_count; i++) {
    module->entry_param_shapes[i] =
      like_entry_shape(&module->arena, entry->params[i]->shape, module->entry_param_shapes[i]);
    WEFT_TRY_ALLOC(module->entry_param_shapes[i]);
  }
  module->entry_result_shape = like_entry_shape(&module->arena, entry->root->shape, module->entry_result_shape);
  WEFT_TRY_ALLOC(module->entry_result_shape);
  return NULL;
}

/* Records the shardings of the parameters (in each of them) and of the results (spmd_output_sharding of the module),
 * where clients look for them. */
static weft_status *report_shardings(spmd_program *p)
{
  hlo_module *module = p->module;
  int count = p->results.count;
  const hlo_sharding **results = WEFT_ARENA_ARRAY(p->arena, const hlo_sharding *, count);
  const hlo_sharding *given = module->spmd_output_sharding;
  hlo_sharding *tuple = WEFT_ARENA_NEW(p->arena, hlo_sharding);

  WEFT_TRY_ALLOC(results);
  WEFT_TRY_ALLOC(tuple);
  for (int i = 0; i < module->entry->param_count; i++) {
    const spmd_leaves *leaves = spmd_leaves_of(p, module->entry->params[i]);
    hlo_extra *extra;
    if (!p->params_fit[i] || !hlo_shape_is_array(module->entry->params[i]->shape)) continue;
    WEFT_TRY(hlo_mutable_extra(module->entry->params[i], &extra));
    WEFT_TRY(spmd_sharding_to_hlo(&p->grid, leaves->v[0], p->arena, &extra->sharding));
  }
  for (int i = 0; i < count; i++) {
    if (p->results_fit[i]) WEFT_TRY(spmd_sharding_to_hlo(&p->grid, p->results.v[i], p->arena, &results[i]));
    else results[i] = given && given->kind == HLO_SHARDING_TUPLE ? given->elements[i] : given;
  }
  *tuple = (hlo_sharding){.kind = HLO_SHARDING_TUPLE, .tuple_count = count, .elements = results};
  module->spmd_output_sharding = hlo_shape_is_tuple(module->entry->root->shape) ? tuple : results[0];
  return NULL;
}

/* The greatest channel id in use. */
static int64_t last_channel(const hlo_module *module)
{
  int64_t channel = 0;

  for (const hlo_computation *c = module->first; c; c = c->next)
    for (const hlo_instr *i = c->first; i; i = i->next)
      if (hlo_opcode_is_collective(i->op) && i->u.collective) channel = WEFT_MAX(channel, i->u.collective->channel_id);
  return channel;
}

static weft_status *spmd_run(hlo_module *module, pass_ctx *pass, bool *changed)
{
  spmd_program p = {.module = module, .arena = &module->arena, .scratch = pass->scratch};
  int64_t next_channel = last_channel(module) + 1;
  pass_comps comps;

  if (module->num_partitions <= 1 || is_partitioned(module)) return NULL;
  WEFT_TRY(pass_sequential(module, pass->scratch, &comps));
  WEFT_TRY(spmd_propagate(&p));
  WEFT_TRY(report_shardings(&p));
  for (int i = 0; i < comps.count; i++) WEFT_TRY(spmd_partition(&p, &next_channel, comps.v[i]));
  WEFT_TRY(cut_entry_layout(module));
  WEFT_TRY(drop_uneven_aliases(module));
  WEFT_TRY(settle_donors(module));
  *changed = true;
  return NULL;
}
const hlo_pass pass_spmd_partitioner = {"spmd-partitioner", spmd_run};
