/* tests/random_collectives.h -- Random collectives on a grid of devices: each takes some of several u32 arrays of one
 * shape and gives another one. */
#ifndef WEFT_TESTS_RANDOM_COLLECTIVES_H
#define WEFT_TESTS_RANDOM_COLLECTIVES_H

#include "passes/eval_compare.h"

#include "passes/build.h"
#include "passes/util.h"

enum { MOST_DEVICES = 8 };

typedef struct device_grid {
  uint64_t *state; /* of the random numbers */
  hlo_module *module;
  int replicas, partitions;
  int64_t channels; /* used so far */
} device_grid;

static int64_t toss(device_grid *g, int64_t below) { return (int64_t)(next_random(g->state) % (uint64_t)below); }

/* Attributes without groups: the collective joins all devices that its mode joins. *out_size: the number of devices of
 * a group. */
static hlo_collective_attrs *grid_mode(device_grid *g, bool knows_global_ids, int *out_ids, int *out_size)
{
  hlo_collective_attrs *attrs = WEFT_ARENA_NEW(&g->module->arena, hlo_collective_attrs);
  bool has_channel = toss(g, 2);

  *out_ids = has_channel && !knows_global_ids ? g->partitions : g->replicas;
  *out_size = *out_ids;
  if (!has_channel) return attrs;
  attrs->channel_id = ++g->channels;
  if (!knows_global_ids) return attrs;
  attrs->use_global_device_ids = toss(g, 2);
  *out_size = g->replicas * g->partitions;
  if (attrs->use_global_device_ids) *out_ids = *out_size;
  return attrs;
}

/* Ids in any order, cut into groups: of `each` ids, or of any sizes where that is 0. */
static void deal_groups(device_grid *g, int ids, int each, hlo_replica_groups *out)
{
  int64_t *list = WEFT_ARENA_ARRAY(&g->module->arena, int64_t, ids);
  hlo_ints *groups = WEFT_ARENA_ARRAY(&g->module->arena, hlo_ints, ids);
  int count = 0;

  for (int i = 0; i < ids; i++) {
    int at = (int)toss(g, i + 1);
    list[i] = list[at];
    list[at] = i;
  }
  for (int i = 0; i < ids; i++) {
    if (each ? i % each == 0 : i == 0 || toss(g, 3) == 0) groups[count++] = (hlo_ints){0, &list[i]};
    groups[count - 1].count++;
  }
  out->groups = groups;
  out->group_count = count;
}

/* Groups for a collective; `equal`: all of *out_size devices. */
static hlo_collective_attrs *grid_groups(device_grid *g, bool knows_global_ids, bool equal, int *out_size)
{
  int ids, each;
  hlo_collective_attrs *attrs = grid_mode(g, knows_global_ids, &ids, out_size);

  if (!attrs->use_global_device_ids && toss(g, 4) == 0) return attrs;
  do each = 1 + (int)toss(g, ids);
  while (ids % each);
  deal_groups(g, ids, equal ? each : 0, &attrs->groups);
  *out_size = *out_size / ids * each;
  return attrs;
}

static hlo_instr *grid_instr(pass_build *b, hlo_opcode op, const hlo_shape *shape, int count,
                             hlo_instr *const *operands, const hlo_collective_attrs *attrs, int64_t dim)
{
  hlo_instr *r = pb_instr(b, op, shape, count, operands);

  if (!r) return NULL;
  r->u.collective = attrs;
  if (dim >= 0) r->dims = pb_ints(b, 1, &dim);
  return r;
}

/* A reducer that is one operation, or one that is associative and commutative and is not one operation: (1 + a)(1 + b)
 * - 1. */
static hlo_computation *grid_reducer(device_grid *g)
{
  static const hlo_opcode ops[] = {HLO_ADD, HLO_ADD, HLO_MULTIPLY, HLO_MAXIMUM, HLO_MINIMUM, HLO_AND, HLO_OR, HLO_XOR};
  hlo_computation *comp;
  hlo_instr *p[2];
  const char *name;

  if (toss(g, 6)) {
    T_OK(hlo_add_reducer(g->module, ops[toss(g, WEFT_COUNT(ops))], WEFT_U32, &comp));
    return comp;
  }
  T_OK(hlo_unique_name(g->module, "combine", &name));
  T_OK(hlo_computation_new(g->module, name, &comp));
  for (int i = 0; i < 2; i++)
    T_OK(hlo_add_parameter(comp, i, hlo_shape_array(&g->module->arena, WEFT_U32, 0, NULL), NULL, &p[i]));
  pass_build b = PASS_BUILD_IN(comp);
  comp->root = pb_add(&b, pb_add(&b, p[0], p[1]), pb_mul(&b, p[0], p[1]));
  T_OK(pass_build_finish(&b));
  return comp;
}

static hlo_instr *reduced(device_grid *g, pass_build *b, hlo_instr *x)
{
  bool is_pair = toss(g, 3) == 0;
  hlo_computation *reducer = grid_reducer(g);
  int size;
  hlo_collective_attrs *attrs = grid_groups(g, true, false, &size);
  hlo_instr *r = grid_instr(b, is_pair ? HLO_ALL_REDUCE_START : HLO_ALL_REDUCE, x->shape, 1, &x, attrs, -1);

  T_OK(hlo_set_called(r, 1, &reducer));
  return is_pair ? grid_instr(b, HLO_ALL_REDUCE_DONE, x->shape, 1, &r, attrs, -1) : r;
}

/* The same value on all devices. */
static inline hlo_instr *grid_agree(device_grid *g, pass_build *b, hlo_instr *x)
{
  hlo_collective_attrs *attrs = WEFT_ARENA_NEW(&g->module->arena, hlo_collective_attrs);
  hlo_computation *reducer;

  attrs->channel_id = ++g->channels;
  T_OK(hlo_add_reducer(g->module, HLO_MAXIMUM, x->shape->type, &reducer));
  hlo_instr *r = grid_instr(b, HLO_ALL_REDUCE, x->shape, 1, &x, attrs, -1);
  T_OK(hlo_set_called(r, 1, &reducer));
  return r;
}

/* All-gather along a dimension, of which each device keeps the entries from some number on. */
static hlo_instr *gathered(device_grid *g, pass_build *b, hlo_instr *x)
{
  int64_t n = x->shape->dims[0], columns = n % 5 == 0 ? 5 : 1, dims[2] = {n / columns, columns}, dim = toss(g, 2), start;
  hlo_instr *m = pb_reshape(b, x, 2, dims), *r;
  bool is_pair = toss(g, 3) == 0;
  int size;
  hlo_collective_attrs *attrs = grid_groups(g, true, true, &size);

  start = toss(g, dims[dim] * (size - 1) + 1);
  dims[dim] *= size;
  const hlo_shape *shapes[] = {m->shape, hlo_shape_array(&g->module->arena, WEFT_U32, 2, dims)};
  const hlo_shape *shape = is_pair ? hlo_shape_tuple(&g->module->arena, 2, shapes) : shapes[1];
  r = grid_instr(b, is_pair ? HLO_ALL_GATHER_START : HLO_ALL_GATHER, shape, 1, &m, attrs, dim);
  if (is_pair) r = grid_instr(b, HLO_ALL_GATHER_DONE, shapes[1], 1, &r, attrs, dim);
  return pb_reshape_like(b, pb_slice_dim(b, r, dim, start, start + m->shape->dims[dim]), x->shape);
}

/* Blocks below or beside each other, one for each device of a group. */
static hlo_instr *blocks(device_grid *g, pass_build *b, hlo_instr **v, int count, int size, int64_t dim,
                         const int64_t *dims)
{
  hlo_instr *parts[MOST_DEVICES];

  for (int i = 0; i < size; i++) parts[i] = pb_reshape(b, v[toss(g, count)], 2, dims);
  return size > 1 ? pb_concat(b, dim, size, parts) : parts[0];
}

static hlo_instr *scattered(device_grid *g, pass_build *b, hlo_instr **v, int count)
{
  int64_t n = v[0]->shape->dims[0], columns = n % 5 == 0 ? 5 : 1, dims[2] = {n / columns, columns}, dim = toss(g, 2);
  hlo_computation *reducer = grid_reducer(g);
  int size;
  hlo_collective_attrs *attrs = grid_groups(g, true, true, &size);
  hlo_instr *x = blocks(g, b, v, count, size, dim, dims);
  hlo_instr *r =
    grid_instr(b, HLO_REDUCE_SCATTER, hlo_shape_array(&g->module->arena, WEFT_U32, 2, dims), 1, &x, attrs, dim);

  T_OK(hlo_set_called(r, 1, &reducer));
  return pb_reshape_like(b, r, v[0]->shape);
}

static hlo_instr *exchanged(device_grid *g, pass_build *b, hlo_instr **v, int count)
{
  int64_t n = v[0]->shape->dims[0], columns = n % 5 == 0 ? 5 : 1, dims[2] = {n / columns, columns}, dim = toss(g, 2);
  int size;
  hlo_collective_attrs *attrs = grid_groups(g, false, true, &size);

  if (toss(g, 3) == 0) { /* each block an operand */
    const hlo_shape *shapes[MOST_DEVICES];
    hlo_instr *given[MOST_DEVICES];
    for (int i = 0; i < size; i++) given[i] = v[toss(g, count)], shapes[i] = v[0]->shape;
    return pb_gte(
      b, grid_instr(b, HLO_ALL_TO_ALL, hlo_shape_tuple(&g->module->arena, size, shapes), size, given, attrs, -1),
      toss(g, size));
  }
  hlo_instr *x = blocks(g, b, v, count, size, dim, dims),
            *r = grid_instr(b, HLO_ALL_TO_ALL, x->shape, 1, &x, attrs, dim);
  int64_t start = toss(g, dims[dim] * (size - 1) + 1);
  return pb_reshape_like(b, pb_slice_dim(b, r, dim, start, start + dims[dim]), v[0]->shape);
}

/* Some ids send to some, each at most once. */
static hlo_instr *permuted(device_grid *g, pass_build *b, hlo_instr **v, int count)
{
  int ids, size, kept = 0, which = (int)toss(g, 4);
  hlo_collective_attrs *attrs = grid_mode(g, false, &ids, &size);
  int64_t(*pairs)[2] = (int64_t(*)[2])WEFT_ARENA_ARRAY(&g->module->arena, int64_t, 2 * ids);
  hlo_instr *given[2] = {v[toss(g, count)], v[toss(g, count)]}, *r;
  const hlo_shape *two[] = {v[0]->shape, v[0]->shape}, *u32 = hlo_shape_array(&g->module->arena, WEFT_U32, 0, NULL);
  const hlo_shape *started[] = {v[0]->shape, v[0]->shape, u32, u32};
  hlo_replica_groups order;

  deal_groups(g, ids, ids, &order);
  for (int i = 0; i < ids; i++)
    if (toss(g, 4)) pairs[kept][0] = i, pairs[kept++][1] = order.groups[0].v[i];
  attrs->pairs = (const int64_t(*)[2])pairs;
  attrs->pair_count = kept;
  if (which == 0) {
    r =
      grid_instr(b, HLO_COLLECTIVE_PERMUTE_START, hlo_shape_tuple(&g->module->arena, 4, started), 1, given, attrs, -1);
    return grid_instr(b, HLO_COLLECTIVE_PERMUTE_DONE, v[0]->shape, 1, &r, attrs, -1);
  }
  if (which > 1) return grid_instr(b, HLO_COLLECTIVE_PERMUTE, v[0]->shape, 1, given, attrs, -1);
  r = grid_instr(b, HLO_COLLECTIVE_PERMUTE, hlo_shape_tuple(&g->module->arena, 2, two), 2, given, attrs, -1);
  return pb_gte(b, r, toss(g, 2));
}

/* Some ids are in no group. */
static hlo_instr *broadcasted(device_grid *g, pass_build *b, hlo_instr *x)
{
  int size;
  hlo_collective_attrs *attrs = grid_groups(g, false, false, &size);

  if (attrs->groups.group_count > 1 && toss(g, 2)) attrs->groups.group_count--;
  return grid_instr(b, HLO_COLLECTIVE_BROADCAST, x->shape, 1, &x, attrs, -1);
}

static hlo_instr *constants(device_grid *g, pass_build *b, int64_t count, const int64_t *values)
{
  hlo_literal *literal;

  T_OK(hlo_literal_new(&g->module->arena, hlo_shape_array(&g->module->arena, WEFT_S32, 1, &count), &literal));
  for (int64_t i = 0; i < count; i++) hlo_literal_set_s64(literal, i, values[i]);
  return pb_constant(b, literal);
}

/* Each device sends the same number of rows to each device, from a random offset. They are written to rows that belong
 * to the sender. */
static hlo_instr *ragged(device_grid *g, pass_build *b, hlo_instr **v, int count)
{
  int ids, size;
  hlo_collective_attrs *attrs = grid_mode(g, false, &ids, &size);
  int64_t n = v[0]->shape->dims[0], rows = toss(g, n / size + 1), from[MOST_DEVICES], each[MOST_DEVICES];
  hlo_instr *id = pb_convert(b,
                             pb_instr(b, attrs->channel_id ? HLO_PARTITION_ID : HLO_REPLICA_ID,
                                      hlo_shape_array(&g->module->arena, WEFT_U32, 0, NULL), 0, NULL),
                             WEFT_S32);

  for (int i = 0; i < size; i++) from[i] = toss(g, n - rows + 1), each[i] = rows;
  hlo_instr *sizes = constants(g, b, size, each), *to = pb_mul(b, pb_fill(b, id, sizes->shape), sizes);
  hlo_instr *given[] = {v[toss(g, count)], v[toss(g, count)], constants(g, b, size, from), sizes, to, sizes};
  return grid_instr(b, HLO_RAGGED_ALL_TO_ALL, v[0]->shape, 6, given, attrs, -1);
}

static hlo_instr *plus_id(device_grid *g, pass_build *b, hlo_instr *x)
{
  hlo_instr *id = pb_instr(b, toss(g, 2) ? HLO_PARTITION_ID : HLO_REPLICA_ID,
                           hlo_shape_array(&g->module->arena, WEFT_U32, 0, NULL), 0, NULL);
  return pb_add(b, x, pb_fill(b, id, x->shape));
}

static inline hlo_instr *random_collective(device_grid *g, pass_build *b, hlo_instr **v, int count)
{
  hlo_instr *x = v[toss(g, count)];

  switch (toss(g, 10)) {
  case 0: case 1: return reduced(g, b, x);
  case 2: return gathered(g, b, x);
  case 3: return scattered(g, b, v, count);
  case 4: case 5: return exchanged(g, b, v, count);
  case 6: return permuted(g, b, v, count);
  case 7: return broadcasted(g, b, x);
  case 8: return ragged(g, b, v, count);
  default: return plus_id(g, b, x);
  }
}

#endif
