/* hlo/eval_collective.c -- Collectives: operations whose results depend on the operands of other devices.
 *
 * All devices of the context are at the collective at once.  The collective is evaluated group by group.  All
 * members of a group must be in the context: in a real run they would wait forever for members that took another
 * branch.
 * A value that is the same for all ranks (a reduction, gathered blocks) is made once and shared by the group. */
#include <config.h>

#include <inttypes.h>
#include <string.h>

#include "hlo/eval_internal.h"
#include "hlo/grouping.h"

/* A collective and one of its groups. */
typedef struct meeting {
  eval_ctx *ctx;
  const hlo_instr *instr;
  const hlo_literal *const *operands; /* as of eval_op */
  const hlo_shape *shape;             /* of the collective's result; of a start, without the operands it passes on */
  int operand_count, result_count;    /* operand_count: without the root of a broadcast */
  hlo_grouping grouping;
  int *index;                         /* by place: the device's index in ctx->devices, -1: not in the context */
  const hlo_literal **results;        /* [index * result_count + i] */
  const int64_t *places;              /* of the current group, in the order of ranks */
  int size;
} meeting;

static const hlo_literal *operand(const meeting *m, int rank, int i)
{
  return m->operands[(int64_t)m->index[m->places[rank]] * m->instr->operand_count + i];
}

static const hlo_literal **result(const meeting *m, int rank, int i)
{
  return &m->results[(int64_t)m->index[m->places[rank]] * m->result_count + i];
}

static const hlo_shape *result_shape(const meeting *m, int i)
{
  return hlo_shape_is_tuple(m->shape) ? m->shape->elements[i] : m->shape;
}

static weft_status *misfit(const meeting *m, int i)
{
  char from[128], to[128];

  return WEFT_ERR(INVALID_ARGUMENT, "operand %d %s and result %s do not fit a group of %d", i,
                  hlo_shape_format(m->instr->operands[i]->shape, from, sizeof from),
                  hlo_shape_format(result_shape(m, i), to, sizeof to), m->size);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Copies `size` entries of dimension `dim`, from entry from_at of `from` to entry to_at of `to`. */
static void copy_block(hlo_literal *to, int64_t to_at, const hlo_literal *from, int64_t from_at, int64_t dim,
                       int64_t size)
{
  int64_t outer = 1, inner = 1;

  for (int64_t d = 0; d < dim; d++) outer *= from->shape->dims[d];
  for (int64_t d = dim + 1; d < from->shape->rank; d++) inner *= from->shape->dims[d];
  if (size * inner == 0) return;
  for (int64_t o = 0; o < outer; o++)
    memcpy(eval_at(to, (o * to->shape->dims[dim] + to_at) * inner),
           eval_at(from, (o * from->shape->dims[dim] + from_at) * inner),
           (size_t)(size * inner) * weft_dtype_bytes(to->shape->type));
}

/* True if the shapes are equal except in dimension `dim`, where size(from) * factor == size(to) * divisor. */
static bool fits(const hlo_shape *from, const hlo_shape *to, int64_t dim, int64_t factor, int64_t divisor)
{
  if (!hlo_shape_is_array(from) || !hlo_shape_is_array(to) || from->type != to->type || from->rank != to->rank)
    return false;
  for (int64_t d = 0; d < from->rank; d++)
    if (d != dim ? from->dims[d] != to->dims[d] : from->dims[d] * factor != to->dims[d] * divisor) return false;
  return true;
}

static weft_status *gather(meeting *m, int i)
{
  const hlo_shape *block = m->instr->operands[i]->shape;
  int64_t dim = m->instr->dims.v[0];
  hlo_literal *all;

  if (!fits(block, result_shape(m, i), dim, m->size, 1)) return misfit(m, i);
  WEFT_TRY(eval_result(m->ctx, result_shape(m, i), &all));
  for (int rank = 0; rank < m->size; rank++) {
    copy_block(all, rank * block->dims[dim], operand(m, rank, i), 0, dim, block->dims[dim]);
    *result(m, rank, i) = all;
  }
  return NULL;
}

/* Each operand is split into one block per rank along dims[0].  Result of rank r: block r of each rank, in the order
 * of ranks. */
static weft_status *exchange_blocks(meeting *m, int i)
{
  const hlo_shape *shape = m->instr->operands[i]->shape;
  int64_t dim = m->instr->dims.v[0], size = shape->dims[dim] / m->size;

  if (!fits(shape, result_shape(m, i), dim, 1, 1) || size * m->size != shape->dims[dim]) return misfit(m, i);
  for (int to = 0; to < m->size; to++) {
    hlo_literal *mine;
    WEFT_TRY(eval_result(m->ctx, shape, &mine));
    for (int from = 0; from < m->size; from++) copy_block(mine, from * size, operand(m, from, i), to * size, dim, size);
    *result(m, to, i) = mine;
  }
  return NULL;
}

/* Result i of rank r is operand r of rank i. */
static weft_status *exchange_operands(meeting *m, int i)
{
  if (m->size != m->operand_count) return misfit(m, i);
  for (int rank = 0; rank < m->size; rank++) *result(m, rank, i) = operand(m, i, rank);
  return NULL;
}

static weft_status *all_to_all(meeting *m, int i)
{
  return m->instr->dims.count ? exchange_blocks(m, i) : exchange_operands(m, i);
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* Reduces element by element, in the order of ranks.  For one operation on floats narrower than f32: each step is
 * done in f32, and the result is rounded to their type at the end. */
static weft_status *fold_wide(meeting *m, int i, hlo_opcode op, hlo_literal *sum)
{
  hlo_shape f32 = {.type = WEFT_F32};
  hlo_instr value = {.shape = &f32}, *values[2] = {&value, &value};
  hlo_instr step = {.op = op, .shape = &f32, .operand_count = 2, .operands = values};
  weft_dtype type = sum->shape->type;

  for (int64_t e = 0; e < hlo_shape_elems(sum->shape); e++) {
    float so_far = (float)eval_load(type, eval_at(operand(m, 0, i), e)).re;
    for (int rank = 1; rank < m->size; rank++) {
      float next = (float)eval_load(type, eval_at(operand(m, rank, i), e)).re;
      eval_elem_apply(&step, (const void *[]){&so_far, &next}, &so_far);
    }
    eval_store(type, eval_at(sum, e), (eval_scalar){.re = so_far});
  }
  return NULL;
}

static weft_status *fold_by_steps(meeting *m, int i, hlo_literal *sum)
{
  WEFT_AUTO(eval_fn) fn = NULL;

  WEFT_TRY(eval_fn_new(m->ctx, m->instr->called[0], &fn));
  memcpy(sum->data, operand(m, 0, i)->data, (size_t)hlo_shape_bytes(sum->shape));
  for (int rank = 1; rank < m->size; rank++)
    for (int64_t e = 0; e < hlo_shape_elems(sum->shape); e++)
      WEFT_TRY(eval_fn_call(fn, (const void *[]){eval_at(sum, e), eval_at(operand(m, rank, i), e)},
                            (void *[]){eval_at(sum, e)}));
  return NULL;
}

static weft_status *fold(meeting *m, int i, hlo_literal **out)
{
  const hlo_shape *shape = m->instr->operands[i]->shape;
  hlo_opcode op = hlo_reducer_op(m->instr->called[0]);
  bool is_wide = weft_dtype_is_float(shape->type) && weft_dtype_bits(shape->type) < 32 && op != HLO_OPCODE_COUNT;

  if (m->instr->called[0]->root->shape->type != shape->type)
    return WEFT_ERR(UNIMPLEMENTED, "a reduction of %s in %s", weft_dtype_name(shape->type),
                    weft_dtype_name(m->instr->called[0]->root->shape->type));
  WEFT_TRY(eval_result(m->ctx, shape, out));
  return is_wide ? fold_wide(m, i, op, *out) : fold_by_steps(m, i, *out);
}

static weft_status *all_reduce(meeting *m, int i)
{
  hlo_literal *sum;

  if (!fits(m->instr->operands[i]->shape, result_shape(m, i), -1, 1, 1)) return misfit(m, i);
  WEFT_TRY(fold(m, i, &sum));
  for (int rank = 0; rank < m->size; rank++) *result(m, rank, i) = sum;
  return NULL;
}

static weft_status *reduce_scatter(meeting *m, int i)
{
  const hlo_shape *part = result_shape(m, i);
  int64_t dim = m->instr->dims.v[0];
  hlo_literal *sum, *mine;

  if (!fits(m->instr->operands[i]->shape, part, dim, 1, m->size)) return misfit(m, i);
  WEFT_TRY(fold(m, i, &sum));
  for (int rank = 0; rank < m->size; rank++) {
    WEFT_TRY(eval_result(m->ctx, part, &mine));
    copy_block(mine, 0, sum, rank * part->dims[dim], dim, part->dims[dim]);
    *result(m, rank, i) = mine;
  }
  return NULL;
}

/* ---- permute, broadcast, ragged-all-to-all ----------------------------------------------------------------------- */

/* The group has all ids of source_target_pairs, so a member's rank is its id. */
static weft_status *permute(meeting *m, int i)
{
  const hlo_collective_attrs *c = m->instr->u.collective;

  if (!fits(m->instr->operands[i]->shape, result_shape(m, i), -1, 1, 1)) return misfit(m, i);
  for (int p = 0; p < c->pair_count; p++) {
    int64_t from = c->pairs[p][0], to = c->pairs[p][1];
    /* a program of one device may name others, as in XLA */
    if (m->grouping.place_count == 1 && (from > 0 || to > 0)) continue;
    if (from < 0 || from >= m->size || to < 0 || to >= m->size)
      return WEFT_ERR(INVALID_ARGUMENT, "source_target_pairs names {%" PRId64 ",%" PRId64 "} where ids are below %d",
                      from, to, m->size);
    if (*result(m, (int)to, i))
      return WEFT_ERR(INVALID_ARGUMENT, "source_target_pairs names target %" PRId64 " twice", to);
    *result(m, (int)to, i) = operand(m, (int)from, i);
  }
  return NULL; /* a device that is no target gets zeros */
}

static weft_status *broadcast(meeting *m, int i)
{
  for (int rank = 0; rank < m->size; rank++) {
    int64_t root = 0;
    if (m->instr->u.collective
          ->has_dynamic_root) { /* the last operand has one root for each other operand, or one for all */
      const hlo_literal *roots = operand(m, rank, m->operand_count);
      root = hlo_literal_get_s64(roots, hlo_shape_elems(roots->shape) > i ? i : 0);
    }
    if (root < 0 || root >= m->size)
      return WEFT_ERR(INVALID_ARGUMENT, "root %" PRId64 " in a group of %d", root, m->size);
    *result(m, rank, i) = operand(m, (int)root, i);
  }
  return NULL;
}

/* Copies update `u` of the pair: send_sizes rows of rank `from`, from row input_offsets on, to row output_offsets of
 * the output of rank `to`. */
static weft_status *send_rows(const meeting *m, int from, int to, int64_t u, int64_t updates, hlo_literal *output)
{
  const hlo_literal *input = operand(m, from, 0);
  int64_t start = hlo_literal_get_s64(operand(m, from, 2), to * updates + u);
  int64_t rows = hlo_literal_get_s64(operand(m, from, 3), to * updates + u);
  int64_t at = hlo_literal_get_s64(operand(m, from, 4), to * updates + u);
  int64_t expected = hlo_literal_get_s64(operand(m, to, 5), from * updates + u);

  if (rows != expected)
    return WEFT_ERR(INVALID_ARGUMENT, "rank %d sends %" PRId64 " rows to rank %d, which expects %" PRId64, from, rows,
                    to, expected);
  if (start < 0 || rows < 0 || at < 0 || rows > input->shape->dims[0] || start > input->shape->dims[0] - rows ||
      rows > output->shape->dims[0] || at > output->shape->dims[0] - rows)
    return WEFT_ERR(INVALID_ARGUMENT,
                    "rank %d sends %" PRId64 " rows from row %" PRId64 " to row %" PRId64 " of rank %d: out of bounds",
                    from, rows, start, at, to);
  copy_block(output, at, input, start, 0, rows);
  return NULL;
}

static weft_status *ragged(meeting *m, int i)
{
  int64_t count = hlo_shape_elems(m->instr->operands[2]->shape), updates = count / m->size;
  hlo_literal *mine;

  if (updates * m->size != count) return misfit(m, 2);
  for (int to = 0; to < m->size; to++) {
    WEFT_TRY(eval_result(m->ctx, result_shape(m, i), &mine));
    memcpy(mine->data, operand(m, to, 1)->data, (size_t)hlo_shape_bytes(mine->shape));
    for (int from = 0; from < m->size; from++)
      for (int64_t u = 0; u < updates; u++) WEFT_TRY(send_rows(m, from, to, u, updates, mine));
    *result(m, to, i) = mine;
  }
  return NULL;
}

/* ---- the groups and their members -------------------------------------------------------------------------------- */

static bool has_place(const eval_ctx *ctx, int64_t place)
{
  for (int d = 0; d < ctx->device_count; d++)
    if (ctx->devices[d]->place == place) return true;
  return false;
}

static weft_status *would_wait(const meeting *m, int64_t here, int64_t absent)
{
  const eval_ctx *ctx = m->ctx;

  while (ctx->outer && !has_place(ctx->outer, absent)) ctx = ctx->outer;
  return WEFT_ERR(FAILED_PRECONDITION,
                  "device %" PRId64 " would wait for device %" PRId64 ", which went another way at %s \"%s\"", here,
                  absent, ctx->parted_at ? hlo_opcode_name(ctx->parted_at->op) : "the start of",
                  ctx->parted_at ? ctx->parted_at->name : "the program");
}

/* Makes `group` the current group.  *out_here: its members are in the context.  Fails if only some of them are. */
static weft_status *gather_members(meeting *m, hlo_ints group, bool *out_here)
{
  int64_t here = -1, absent = -1;

  for (int rank = 0; rank < group.count; rank++)
    if (m->index[group.v[rank]] >= 0) here = group.v[rank];
    else absent = group.v[rank];
  *out_here = here >= 0;
  m->places = group.v;
  m->size = group.count;
  return here >= 0 && absent >= 0 ? would_wait(m, here, absent) : NULL;
}

/* A device in no group gets zeros from a broadcast.  In other collectives it is an error. */
static weft_status *check_groups(const meeting *m)
{
  for (int d = 0; d < m->ctx->device_count; d++)
    if (m->grouping.group_of[m->ctx->devices[d]->place] < 0 && m->instr->op != HLO_COLLECTIVE_BROADCAST)
      return WEFT_ERR(INVALID_ARGUMENT, "device %" PRId64 " is in no group", m->ctx->devices[d]->place);
  for (int g = 1; g < m->grouping.group_count && m->instr->dims.count; g++)
    if (m->grouping.groups[g].count != m->grouping.groups[0].count)
      return WEFT_ERR(INVALID_ARGUMENT, "groups of %d and %d", m->grouping.groups[0].count,
                      m->grouping.groups[g].count);
  return NULL;
}

/* Evaluates operand `i` of all members of the group: makes result `i` of each member. */
typedef weft_status *collective_op(meeting *m, int i);

static collective_op *op_of(hlo_opcode op)
{
  switch (op) {
  case HLO_ALL_GATHER: case HLO_ALL_GATHER_START: return gather;
  case HLO_ALL_REDUCE: case HLO_ALL_REDUCE_START: return all_reduce;
  case HLO_ALL_TO_ALL: return all_to_all;
  case HLO_COLLECTIVE_BROADCAST: return broadcast;
  case HLO_COLLECTIVE_PERMUTE: case HLO_COLLECTIVE_PERMUTE_START: return permute;
  case HLO_RAGGED_ALL_TO_ALL: return ragged;
  default: return reduce_scatter;
  }
}

static weft_status *meet(meeting *m)
{
  collective_op *op = op_of(m->instr->op);

  for (int g = 0; g < m->grouping.group_count; g++) {
    bool here;
    WEFT_TRY(gather_members(m, m->grouping.groups[g], &here));
    for (int i = 0; here && i < m->result_count; i++) WEFT_TRY(op(m, i));
    WEFT_TRY(eval_check_deadline(m->ctx));
  }
  return NULL;
}

static weft_status *meeting_init(meeting *m)
{
  const hlo_eval_options *options = m->ctx->options;
  const hlo_instr *instr = m->instr;
  int64_t places = (int64_t)options->replicas * options->partitions;

  if (places == 0) return WEFT_ERR(UNIMPLEMENTED, "a collective where no devices are known");
  m->operand_count = instr->operand_count - instr->u.collective->has_dynamic_root;
  m->result_count = hlo_shape_is_tuple(m->shape) ? m->shape->rank : 1;
  if (m->result_count != (instr->op == HLO_RAGGED_ALL_TO_ALL ? 1 : m->operand_count))
    return WEFT_ERR(UNIMPLEMENTED, "%d results of %d operands", m->result_count, m->operand_count);
  m->index = WEFT_ARENA_ARRAY(m->ctx->arena, int, places);
  m->results = WEFT_ARENA_ARRAY(m->ctx->arena, const hlo_literal *, (int64_t)m->ctx->device_count * m->result_count);
  WEFT_TRY_ALLOC(m->index && m->results);
  memset(m->index, -1, (size_t)places * sizeof *m->index);
  for (int d = 0; d < m->ctx->device_count; d++) m->index[m->ctx->devices[d]->place] = d;
  WEFT_TRY(hlo_grouping_new(m->ctx->arena, instr, options->replicas, options->partitions, &m->grouping));
  return check_groups(m);
}

/* Evaluates a collective that gives a value of `shape` on each device. */
static weft_status *collective(eval_ctx *ctx, const hlo_instr *instr, const hlo_shape *shape,
                               const hlo_literal *const *operands, const hlo_literal **out)
{
  meeting m = {.ctx = ctx, .instr = instr, .operands = operands, .shape = shape};

  WEFT_TRY(meeting_init(&m));
  WEFT_TRY(meet(&m));
  for (int d = 0; d < ctx->device_count; d++) {
    const hlo_literal **own = &m.results[(int64_t)d * m.result_count];
    for (int i = 0; i < m.result_count; i++)
      if (!own[i]) WEFT_TRY(eval_zeros(ctx, result_shape(&m, i), &own[i]));
    out[d] = own[0];
    if (hlo_shape_is_tuple(shape)) WEFT_TRY(eval_result_tuple(ctx, shape, own, &out[d]));
  }
  return NULL;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

weft_status *eval_collective(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                             const hlo_literal **out)
{
  return collective(ctx, instr, instr->shape, operands, out);
}

/* The result is (operands, result, contexts...): one operand stands as it is, several stand in a tuple. */
weft_status *eval_collective_start(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                   const hlo_literal **out)
{
  WEFT_TRY(collective(ctx, instr, instr->shape->elements[1], operands, out));
  for (int d = 0; d < ctx->device_count; d++) {
    const hlo_literal **elements = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, instr->shape->rank);
    const hlo_literal *const *own = operands + (int64_t)d * instr->operand_count;
    WEFT_TRY_ALLOC(elements);
    elements[0] = own[0];
    if (hlo_shape_is_tuple(instr->shape->elements[0])) {
      const hlo_literal **list = weft_arena_memdup(ctx->arena, own, (size_t)instr->operand_count * sizeof *own);
      WEFT_TRY_ALLOC(list);
      WEFT_TRY(eval_result_tuple(ctx, instr->shape->elements[0], list, &elements[0]));
    }
    elements[1] = out[d];
    for (int i = 2; i < instr->shape->rank; i++) WEFT_TRY(eval_zeros(ctx, instr->shape->elements[i], &elements[i]));
    WEFT_TRY(eval_result_tuple(ctx, instr->shape, elements, &out[d]));
  }
  return NULL;
}

static weft_status *eval_id(eval_ctx *ctx, bool is_replica, const hlo_literal **out)
{
  int64_t partitions = ctx->options->partitions, place = ctx->devices[0]->place;
  hlo_literal *id;

  if (ctx->options->replicas == 0 || partitions == 0)
    return WEFT_ERR(UNIMPLEMENTED, "the id of a device where none are known");
  WEFT_TRY(hlo_literal_scalar_s64(ctx->arena, WEFT_U32, is_replica ? place / partitions : place % partitions, &id));
  *out = id;
  return NULL;
}

weft_status *eval_partition_id(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                               const hlo_literal **out)
{
  (void)instr;
  (void)operands;
  return eval_id(ctx, false, out);
}

weft_status *eval_replica_id(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                             const hlo_literal **out)
{
  (void)instr;
  (void)operands;
  return eval_id(ctx, true, out);
}
