#include <config.h>

#include "passes/spmd/reshard.h"

#include <string.h>

int64_t spmd_next_channel(const hlo_module *module)
{
  int64_t channel = 0;

  for (const hlo_computation *c = module->first; c; c = c->next)
    for (const hlo_instr *i = c->first; i; i = i->next)
      if (hlo_opcode_is_collective(i->op) && i->u.collective) channel = WEFT_MAX(channel, i->u.collective->channel_id);
  return channel + 1;
}

/* Attributes of a collective over explicit groups: `groups` of `size` partitions each, one after the other in `ids`.
 * Every collective that the partitioner makes has its own channel: at run time a channel is matched with the order in
 * which partitions reach it, which is the same program on all of them. */
static weft_status *collective_attrs(hlo_module *module, int64_t groups, int64_t size, const int64_t *ids,
                                     const hlo_collective_attrs **out)
{
  hlo_collective_attrs *attrs = WEFT_ARENA_NEW(&module->arena, hlo_collective_attrs);
  hlo_ints *lists = WEFT_ARENA_ARRAY(&module->arena, hlo_ints, groups);

  WEFT_TRY_ALLOC(attrs);
  WEFT_TRY_ALLOC(lists);
  for (int64_t g = 0; g < groups; g++) WEFT_TRY(hlo_ints_new(module, (int)size, ids + g * size, &lists[g]));
  attrs->groups = (hlo_replica_groups){.form = HLO_GROUPS_LIST, .group_count = (int)groups, .groups = lists};
  attrs->channel_id = spmd_next_channel(module);
  attrs->use_global_device_ids = true;
  *out = attrs;
  return NULL;
}

/* The scalar s32 at `table`[partition-id]. */
static weft_status *look_up(pass_build *b, hlo_instr *partition, const int64_t *table, int64_t count, hlo_instr **out)
{
  weft_arena *arena = &b->comp->module->arena;
  const hlo_shape *shape = hlo_shape_array(arena, WEFT_S32, 1, &count), *one = hlo_shape_array(arena, WEFT_S32, 1, (int64_t[]){1});
  hlo_literal *literal;
  hlo_instr *constant, *slice;

  WEFT_TRY_ALLOC(shape);
  WEFT_TRY_ALLOC(one);
  WEFT_TRY(hlo_literal_new(arena, shape, &literal));
  for (int64_t i = 0; i < count; i++) hlo_literal_set_s64(literal, i, table[i]);
  constant = pb_constant(b, literal);
  slice = pb_instr(b, HLO_DYNAMIC_SLICE, one, 2, (hlo_instr *[]){constant, partition});
  if (slice) slice->u.slice_sizes = pb_ints(b, 1, (int64_t[]){1});
  *out = pb_reshape(b, slice, 0, NULL);
  return NULL;
}

weft_status *spmd_slice(pass_build *b, hlo_instr *whole, const spmd_tiling *t, hlo_instr **out)
{
  weft_arena *arena = &b->comp->module->arena;
  hlo_instr *operands[HLO_MAX_RANK + 1], *partition, *slice;
  const hlo_shape *tile, *scalar = hlo_shape_array(arena, WEFT_U32, 0, NULL);
  int64_t *table = WEFT_ARENA_ARRAY(arena, int64_t, t->device_count);

  *out = whole;
  if (spmd_tiling_is_whole(t)) return NULL;
  WEFT_TRY_ALLOC(scalar);
  WEFT_TRY_ALLOC(table);
  WEFT_TRY(spmd_tile_shape(t, whole->shape, arena, &tile));
  partition = pb_convert(b, pb_instr(b, HLO_PARTITION_ID, scalar, 0, NULL), WEFT_S32);
  operands[0] = whole;
  for (int d = t->rank - 1, stride = (int)t->copies; d >= 0; stride *= (int)t->tiles[d], d--) {
    if (t->tiles[d] == 1) {
      operands[d + 1] = pb_int(b, WEFT_S32, 0);
      continue;
    }
    for (int64_t i = 0; i < t->device_count; i++) table[t->devices[i]] = i / stride % t->tiles[d] * tile->dims[d];
    WEFT_TRY(look_up(b, partition, table, t->device_count, &operands[d + 1]));
  }
  slice = pb_instr(b, HLO_DYNAMIC_SLICE, tile, t->rank + 1, operands);
  if (slice) slice->u.slice_sizes = pb_ints(b, tile->rank, tile->dims);
  *out = slice;
  return pass_build_finish(b);
}

weft_status *spmd_gather(pass_build *b, hlo_instr *tile, const spmd_tiling *t, hlo_instr **out)
{
  hlo_module *module = b->comp->module;
  int64_t groups = t->copies, size = t->device_count / groups, dims[2 * HLO_MAX_RANK], permutation[2 * HLO_MAX_RANK],
          full[HLO_MAX_RANK], *ids = WEFT_ARENA_ARRAY(&module->arena, int64_t, t->device_count);
  const hlo_collective_attrs *attrs;
  const hlo_shape *shape;
  hlo_instr *gathered;
  int rank = t->rank;

  *out = tile;
  if (spmd_tiling_is_whole(t)) return NULL;
  if (2 * rank > HLO_MAX_RANK) return WEFT_ERR(UNIMPLEMENTED, "gathering a sharded array of rank %d", rank);
  WEFT_TRY_ALLOC(ids);
  for (int64_t g = 0; g < groups; g++)
    for (int64_t i = 0; i < size; i++) ids[g * size + i] = t->devices[i * t->copies + g];
  WEFT_TRY(collective_attrs(module, groups, size, ids, &attrs));
  /* tiles one behind the other, then each grid dimension moved beside the array dimension that it cuts */
  dims[0] = size;
  for (int i = 0; i < rank; i++) dims[i + 1] = tile->shape->dims[i];
  shape = hlo_shape_array(&module->arena, tile->shape->type, rank + 1, dims);
  WEFT_TRY_ALLOC(shape);
  dims[0] = 1;
  tile = pb_reshape(b, tile, rank + 1, dims);
  gathered = pb_instr(b, HLO_ALL_GATHER, shape, 1, &tile);
  if (gathered) {
    gathered->u.collective = attrs;
    gathered->dims = pb_ints(b, 1, (int64_t[]){0});
  }
  for (int i = 0; i < rank; i++) {
    dims[i] = t->tiles[i];
    dims[rank + i] = shape->dims[i + 1];
    permutation[2 * i] = i;
    permutation[2 * i + 1] = rank + i;
    full[i] = t->tiles[i] * shape->dims[i + 1];
  }
  *out = pb_reshape(b, pb_transpose(b, pb_reshape(b, gathered, 2 * rank, dims), permutation), rank, full);
  return pass_build_finish(b);
}

weft_status *spmd_all_reduce(pass_build *b, hlo_instr *partial, const spmd_tiling *t, int dim_count, const int *dims,
                             hlo_computation *reducer, hlo_instr **out)
{
  hlo_module *module = b->comp->module;
  const hlo_collective_attrs *attrs;
  spmd_tiling grouped;
  int map[HLO_MAX_RANK], kept = 0;
  int64_t size = 1;
  hlo_instr *reduced;

  *out = partial;
  for (int i = 0; i < t->rank; i++) {
    bool is_reduced = false;
    for (int j = 0; j < dim_count; j++) is_reduced |= dims[j] == i;
    if (!is_reduced) map[kept++] = i;
  }
  for (int j = 0; j < dim_count; j++) size *= t->tiles[dims[j]];
  if (size == 1) return NULL;
  /* Partitions in the order: kept tiles, reduced tiles, copies.  A group has one of each reduced tile. */
  WEFT_TRY(spmd_tiling_map(t, kept, map, &module->arena, &grouped));
  {
    int64_t *ids = WEFT_ARENA_ARRAY(&module->arena, int64_t, t->device_count), at = 0;
    WEFT_TRY_ALLOC(ids);
    for (int64_t tile = 0; tile < t->device_count / grouped.copies; tile++)
      for (int64_t c = 0; c < t->copies; c++)
        for (int64_t i = 0; i < size; i++) ids[at++] = grouped.devices[tile * grouped.copies + i * t->copies + c];
    WEFT_TRY(collective_attrs(module, t->device_count / size, size, ids, &attrs));
  }
  reduced = pb_instr(b, HLO_ALL_REDUCE, partial ? partial->shape : NULL, 1, &partial);
  if (reduced) {
    reduced->u.collective = attrs;
    if (!b->error) b->error = hlo_set_called(reduced, 1, &reducer);
  }
  *out = reduced;
  return pass_build_finish(b);
}
