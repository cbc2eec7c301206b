/* passes/spmd/rules.c -- a rule says, from its operands' tilings, how its result is tiled and how an operation on tiles
 * gives it.  Operands come whole or tiled; a whole one is cut as the rule asks (a slice moves no data between partitions),
 * and one tiled otherwise makes the rule give up: the operation is then computed whole, which is always right.
 *
 * To add an operation: write its rule, add it to the table. */
#include <config.h>

#include "passes/spmd/rules.h"

#include "passes/spmd/reshard.h"

typedef weft_status *spmd_rule(spmd_ctx *ctx, hlo_instr *instr, spmd_tiled *out);

/* `whole` cut by `tiling`: its tile if it has that one, a slice if it has none.  NULL: it is tiled in another way. */
static weft_status *tile_as(spmd_ctx *ctx, pass_build *b, hlo_instr *whole, const spmd_tiling *tiling, hlo_instr **out)
{
  const spmd_tiled *have = spmd_tiled_of(ctx, whole);

  *out = NULL;
  if (have) {
    if (spmd_tiling_equal(&have->tiling, tiling)) *out = have->tile;
    return NULL;
  }
  for (int i = 0; i < whole->shape->rank; i++)
    if (whole->shape->dims[i] % tiling->tiles[i] != 0) return NULL;
  return spmd_slice(b, whole, tiling, out);
}

static weft_status *tile_shape_of(spmd_ctx *ctx, const hlo_instr *instr, const spmd_tiling *tiling, const hlo_shape **out)
{
  *out = NULL;
  for (int i = 0; i < instr->shape->rank; i++)
    if (instr->shape->dims[i] % tiling->tiles[i] != 0) return NULL;
  return spmd_tile_shape(tiling, instr->shape, ctx->arena, out);
}

/* A copy of `instr` over tiles. */
static weft_status *compute(pass_build *b, const hlo_instr *instr, const hlo_shape *shape, hlo_instr *const *operands,
                            hlo_instr **out)
{
  *out = pb_clone(b, instr, operands);
  WEFT_TRY(pass_build_finish(b));
  (*out)->shape = shape;
  return NULL;
}

/* Element i of the result depends on elements i of the operands: all are cut alike; scalars stay whole. */
static weft_status *elementwise(spmd_ctx *ctx, hlo_instr *instr, spmd_tiled *out)
{
  enum { MAX_OPERANDS = 3 };
  hlo_instr *operands[MAX_OPERANDS];
  const spmd_tiled *lead = NULL;
  const hlo_shape *shape;
  pass_build b = PASS_BUILD_AT(instr);

  if (instr->operand_count > MAX_OPERANDS) return NULL;
  for (int i = 0; i < instr->operand_count && !lead; i++)
    if (instr->operands[i]->shape->rank == instr->shape->rank) lead = spmd_tiled_of(ctx, instr->operands[i]);
  if (!lead || instr->shape->rank == 0) return NULL;
  WEFT_TRY(tile_shape_of(ctx, instr, &lead->tiling, &shape));
  for (int i = 0; i < instr->operand_count && shape; i++) {
    operands[i] = instr->operands[i];
    if (operands[i]->shape->rank == 0) continue;
    WEFT_TRY(tile_as(ctx, &b, instr->operands[i], &lead->tiling, &operands[i]));
    if (!operands[i]) return NULL;
  }
  if (!shape) return NULL;
  out->tiling = lead->tiling;
  return compute(&b, instr, shape, operands, &out->tile);
}

/* The result's dimension dims[i] is the operand's dimension i; the others are whole. */
static weft_status *broadcast(spmd_ctx *ctx, hlo_instr *instr, spmd_tiled *out)
{
  const spmd_tiled *x = spmd_tiled_of(ctx, instr->operands[0]);
  const hlo_shape *shape;
  int map[HLO_MAX_RANK];
  pass_build b = PASS_BUILD_AT(instr);

  if (!x) return NULL;
  for (int i = 0; i < instr->shape->rank; i++) map[i] = -1;
  for (int i = 0; i < instr->dims.count; i++) map[instr->dims.v[i]] = i;
  WEFT_TRY(spmd_tiling_map(&x->tiling, instr->shape->rank, map, ctx->arena, &out->tiling));
  WEFT_TRY(tile_shape_of(ctx, instr, &out->tiling, &shape));
  return shape ? compute(&b, instr, shape, (hlo_instr *[]){x->tile}, &out->tile) : NULL;
}

static weft_status *transpose(spmd_ctx *ctx, hlo_instr *instr, spmd_tiled *out)
{
  const spmd_tiled *x = spmd_tiled_of(ctx, instr->operands[0]);
  const hlo_shape *shape;
  int map[HLO_MAX_RANK];
  pass_build b = PASS_BUILD_AT(instr);

  if (!x) return NULL;
  for (int i = 0; i < instr->shape->rank; i++) map[i] = (int)instr->dims.v[i];
  WEFT_TRY(spmd_tiling_map(&x->tiling, instr->shape->rank, map, ctx->arena, &out->tiling));
  WEFT_TRY(tile_shape_of(ctx, instr, &out->tiling, &shape));
  return shape ? compute(&b, instr, shape, (hlo_instr *[]){x->tile}, &out->tile) : NULL;
}

/* Dimensions that are kept stay cut.  Over cut dimensions each partition reduces its part and an all-reduce combines the
 * parts, which needs an initial value that may count more than once: the identity. */
static weft_status *reduce(spmd_ctx *ctx, hlo_instr *instr, spmd_tiled *out)
{
  const spmd_tiled *x = spmd_tiled_of(ctx, instr->operands[0]);
  const hlo_shape *shape;
  int map[HLO_MAX_RANK], reduced[HLO_MAX_RANK], kept = 0, cut = 0;
  hlo_instr *partial;
  pass_build b = PASS_BUILD_AT(instr);

  if (!x || instr->operand_count != 2) return NULL;
  for (int i = 0; i < x->tiling.rank; i++) {
    if (!pass_ints_contain(instr->dims, i))
      map[kept++] = i;
    else if (x->tiling.tiles[i] > 1)
      reduced[cut++] = i;
  }
  if (cut && (hlo_reducer_op(instr->called[0]) == HLO_OPCODE_COUNT ||
              !pass_is_identity(hlo_reducer_op(instr->called[0]), instr->operands[1])))
    return NULL;
  WEFT_TRY(spmd_tiling_map(&x->tiling, kept, map, ctx->arena, &out->tiling));
  WEFT_TRY(tile_shape_of(ctx, instr, &out->tiling, &shape));
  if (!shape) return NULL;
  WEFT_TRY(compute(&b, instr, shape, (hlo_instr *[]){x->tile, instr->operands[1]}, &partial));
  return spmd_all_reduce(&b, partial, &x->tiling, cut, reduced, cut ? instr->called[0] : NULL, &out->tile);
}

/* Where operand `side`'s dimension d goes in a dot's result: batch, then lhs free, then rhs free; -1: contracted. */
static int dot_result_dim(const hlo_instr *dot, int side, int d)
{
  const hlo_dot_attrs *a = dot->u.dot;
  hlo_ints batch = side ? a->rhs_batch : a->lhs_batch, contracting = side ? a->rhs_contracting : a->lhs_contracting;
  int at = a->lhs_batch.count;

  for (int i = 0; i < batch.count; i++)
    if (batch.v[i] == d) return i;
  if (pass_ints_contain(contracting, d)) return -1;
  if (side) at += dot->operands[0]->shape->rank - a->lhs_batch.count - a->lhs_contracting.count;
  for (int i = 0; i < d; i++)
    if (!pass_ints_contain(batch, i) && !pass_ints_contain(contracting, i)) at++;
  return at;
}

/* Led by one tiled operand: batch dimensions cut the other alike, free dimensions leave it whole, and cut contracting
 * dimensions cut the other alike and end in an all-reduce.  The other operand must be whole, or tiled just so. */
static weft_status *dot(spmd_ctx *ctx, hlo_instr *instr, spmd_tiled *out)
{
  const hlo_dot_attrs *a = instr->u.dot;
  int side = spmd_tiled_of(ctx, instr->operands[0]) ? 0 : 1, cut = 0, reduced[HLO_MAX_RANK], map[HLO_MAX_RANK];
  const spmd_tiled *lead = spmd_tiled_of(ctx, instr->operands[side]);
  hlo_instr *other = instr->operands[1 - side], *operands[2], *partial;
  hlo_ints from_batch = side ? a->rhs_batch : a->lhs_batch, to_batch = side ? a->lhs_batch : a->rhs_batch,
           from_contracting = side ? a->rhs_contracting : a->lhs_contracting,
           to_contracting = side ? a->lhs_contracting : a->rhs_contracting;
  spmd_tiling want;
  const hlo_shape *shape;
  hlo_computation *adder;
  pass_build b = PASS_BUILD_AT(instr);

  if (!lead || instr->operand_count != 2) return NULL;
  for (int i = 0; i < other->shape->rank; i++) map[i] = -1;
  for (int i = 0; i < from_batch.count; i++) map[to_batch.v[i]] = (int)from_batch.v[i];
  for (int i = 0; i < from_contracting.count; i++) {
    map[to_contracting.v[i]] = (int)from_contracting.v[i];
    if (lead->tiling.tiles[from_contracting.v[i]] > 1) reduced[cut++] = (int)from_contracting.v[i];
  }
  WEFT_TRY(spmd_tiling_map(&lead->tiling, other->shape->rank, map, ctx->arena, &want));
  operands[side] = lead->tile;
  if (spmd_tiling_is_whole(&want))
    operands[1 - side] = other; /* whole, or gathered */
  else
    WEFT_TRY(tile_as(ctx, &b, other, &want, &operands[1 - side]));
  if (!operands[1 - side]) return NULL;
  for (int i = 0; i < instr->shape->rank; i++) map[i] = -1;
  for (int d = 0; d < lead->tiling.rank; d++) {
    int to = dot_result_dim(instr, side, d);
    if (to >= 0) map[to] = d;
  }
  WEFT_TRY(spmd_tiling_map(&lead->tiling, instr->shape->rank, map, ctx->arena, &out->tiling));
  WEFT_TRY(tile_shape_of(ctx, instr, &out->tiling, &shape));
  if (!shape) return NULL;
  WEFT_TRY(compute(&b, instr, shape, operands, &partial));
  if (cut) WEFT_TRY(hlo_add_reducer(ctx->module, HLO_ADD, shape->type, &adder));
  return spmd_all_reduce(&b, partial, &lead->tiling, cut, reduced, cut ? adder : NULL, &out->tile);
}

static const struct { hlo_opcode op; spmd_rule *rule; } rules[] = {
    {HLO_BROADCAST, broadcast}, {HLO_TRANSPOSE, transpose}, {HLO_REDUCE, reduce}, {HLO_DOT, dot},
};

weft_status *spmd_apply_rule(spmd_ctx *ctx, hlo_instr *instr, spmd_tiled *out)
{
  *out = (spmd_tiled){0};
  if (!hlo_shape_is_array(instr->shape) || pass_has_control_edges(instr)) return NULL;
  if (hlo_opcode_is_elementwise(instr->op)) return elementwise(ctx, instr, out);
  for (size_t i = 0; i < WEFT_COUNT(rules); i++)
    if (rules[i].op == instr->op) return rules[i].rule(ctx, instr, out);
  return NULL;
}
