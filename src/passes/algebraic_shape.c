/* passes/algebraic_shape.c -- Rules of the algebraic simplifier for instructions that move data. */
#include <config.h>

#include <string.h>

#include "base/swap.h"
#include "passes/algebraic.h"

static bool is_scalar_broadcast(const hlo_instr *x)
{
  return x->op == HLO_BROADCAST && hlo_shape_is_scalar(x->operands[0]->shape);
}

/* x without its dimensions of 1. */
static hlo_instr *squeezed(pass_build *b, hlo_instr *x)
{
  int64_t dims[HLO_MAX_RANK];
  int rank = 0;

  for (int i = 0; i < x->shape->rank; i++)
    if (x->shape->dims[i] != 1) dims[rank++] = x->shape->dims[i];
  return pb_reshape(b, x, rank, dims);
}

weft_status *simplify_reshape(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  pass_build b = PASS_BUILD_AT(instr);

  if (same_shape(instr, x)) return simplify_to(s, instr, x);
  if (x->op == HLO_RESHAPE || x->op == HLO_BITCAST)
    return simplify_built(s, &b, instr, pb_reshape_like(&b, x->operands[0], instr->shape));
  if (is_scalar_broadcast(x)) return simplify_built(s, &b, instr, pb_fill(&b, x->operands[0], instr->shape));
  if (x->op == HLO_BROADCAST && pass_same_but_units(x->shape, instr->shape)) {
    hlo_instr *v = x->operands[0];
    int64_t map[HLO_MAX_RANK], dims[HLO_MAX_RANK];
    int rank = 0;
    pass_map_units(x->shape, instr->shape, map);
    for (int i = 0; i < v->shape->rank; i++)
      if (v->shape->dims[i] != 1) dims[rank++] = map[x->dims.v[i]];
    return simplify_built(s, &b, instr,
                          pb_broadcast(&b, squeezed(&b, v), instr->shape->rank, instr->shape->dims, dims));
  }
  if (x->op == HLO_IOTA && pass_same_but_units(x->shape, instr->shape) && x->shape->dims[x->dims.v[0]] != 1) {
    int64_t map[HLO_MAX_RANK];
    pass_map_units(x->shape, instr->shape, map);
    return simplify_built(s, &b, instr, pb_iota(&b, instr->shape, map[x->dims.v[0]]));
  }
  return NULL;
}

weft_status *simplify_transpose(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  const int64_t *perm = instr->dims.v;
  int rank = instr->shape->rank;
  int64_t v[HLO_MAX_RANK];
  pass_build b = PASS_BUILD_AT(instr);

  if (!pass_moves(x->shape, perm)) return simplify_built(s, &b, instr, pb_reshape_like(&b, x, instr->shape));
  if (x->op == HLO_TRANSPOSE) {
    for (int i = 0; i < rank; i++) v[i] = x->dims.v[perm[i]];
    return simplify_built(s, &b, instr, pb_transpose(&b, x->operands[0], v));
  }
  if (x->op == HLO_BROADCAST) {
    int64_t inverse[HLO_MAX_RANK];
    bool increasing = true;
    for (int i = 0; i < rank; i++) inverse[perm[i]] = i;
    for (int i = 0; i < x->dims.count; i++) {
      v[i] = inverse[x->dims.v[i]];
      increasing &= i == 0 || v[i] > v[i - 1];
    }
    if (increasing) return simplify_built(s, &b, instr, pb_broadcast(&b, x->operands[0], rank, instr->shape->dims, v));
  }
  if (x->op == HLO_IOTA)
    for (int i = 0; i < rank; i++)
      if (perm[i] == x->dims.v[0]) return simplify_built(s, &b, instr, pb_iota(&b, instr->shape, i));
  return NULL;
}

weft_status *simplify_broadcast(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  pass_build b = PASS_BUILD_AT(instr);
  int64_t v[HLO_MAX_RANK];
  bool increasing = true;

  for (int i = 1; i < instr->dims.count; i++) increasing &= instr->dims.v[i] > instr->dims.v[i - 1];
  if (hlo_shape_elems(instr->shape) == hlo_shape_elems(x->shape) && increasing) /* only units added */
    return simplify_built(s, &b, instr, pb_reshape_like(&b, x, instr->shape));
  if (x->op == HLO_BROADCAST) {
    for (int i = 0; i < x->dims.count; i++) v[i] = instr->dims.v[x->dims.v[i]];
    return simplify_built(s, &b, instr, pb_broadcast(&b, x->operands[0], instr->shape->rank, instr->shape->dims, v));
  }
  if (!increasing) { /* transposes the small side, so that a broadcast only repeats */
    int64_t order[HLO_MAX_RANK], sorted[HLO_MAX_RANK];
    int rank = instr->dims.count;
    for (int i = 0; i < rank; i++) order[i] = i;
    for (int i = 1; i < rank; i++)
      for (int j = i; j > 0 && instr->dims.v[order[j - 1]] > instr->dims.v[order[j]]; j--)
        WEFT_SWAP(order[j], order[j - 1]);
    for (int i = 0; i < rank; i++) sorted[i] = instr->dims.v[order[i]];
    return simplify_built(s, &b, instr,
                          pb_broadcast(&b, pb_transpose(&b, x, order), instr->shape->rank, instr->shape->dims, sorted));
  }
  for (int i = 0; i < x->shape->rank; i++) { /* dimensions of 1 of the operand do not matter */
    if (x->shape->dims[i] != 1) continue;
    int rank = 0;
    for (int k = 0; k < x->shape->rank; k++)
      if (x->shape->dims[k] != 1) v[rank++] = instr->dims.v[k];
    return simplify_built(s, &b, instr, pb_broadcast(&b, squeezed(&b, x), instr->shape->rank, instr->shape->dims, v));
  }
  return NULL;
}

static bool has_unit_strides(const hlo_instr *slice)
{
  for (int i = 0; i < slice->shape->rank; i++)
    if (slice->u.slice->stride.count && slice->u.slice->stride.v[i] != 1) return false;
  return true;
}

static int64_t stride_of(const hlo_instr *slice, int dim)
{
  return slice->u.slice->stride.count ? slice->u.slice->stride.v[dim] : 1;
}

static hlo_instr *pb_slice(pass_build *b, hlo_instr *x, const int64_t *start, const int64_t *limit,
                           const int64_t *stride)
{
  hlo_instr *out = NULL;

  if (b->error) return NULL;
  b->error = hlo_add_slice(b->comp, b->before, x, start, limit, stride, &out);
  return out;
}

static weft_status *slice_of_concatenate(simplifier *s, hlo_instr *instr)
{
  hlo_instr *concat = instr->operands[0];
  int64_t dim = concat->dims.v[0], start = instr->u.slice->start.v[dim], limit = instr->u.slice->limit.v[dim], at = 0;
  int64_t starts[HLO_MAX_RANK], limits[HLO_MAX_RANK], strides[HLO_MAX_RANK];
  pass_build b = PASS_BUILD_AT(instr);

  for (int i = 0; i < concat->operand_count; i++) {
    int64_t size = concat->operands[i]->shape->dims[dim];
    if (start >= at && limit <= at + size && limit > start) {
      for (int d = 0; d < instr->shape->rank; d++) {
        int64_t shift = d == dim ? at : 0;
        starts[d] = instr->u.slice->start.v[d] - shift;
        limits[d] = instr->u.slice->limit.v[d] - shift;
        strides[d] = stride_of(instr, d);
      }
      return simplify_built(s, &b, instr, pb_slice(&b, concat->operands[i], starts, limits, strides));
    }
    at += size;
    if (at > start) return NULL;
  }
  return NULL;
}

weft_status *simplify_slice(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  int rank = instr->shape->rank;
  int64_t starts[HLO_MAX_RANK], limits[HLO_MAX_RANK], strides[HLO_MAX_RANK];
  pass_build b = PASS_BUILD_AT(instr);

  if (same_shape(instr, x)) return simplify_to(s, instr, x);
  if (x->op == HLO_SLICE) {
    for (int d = 0; d < rank; d++) {
      strides[d] = stride_of(x, d) * stride_of(instr, d);
      starts[d] = x->u.slice->start.v[d] + instr->u.slice->start.v[d] * stride_of(x, d);
      limits[d] = instr->shape->dims[d] ? starts[d] + (instr->shape->dims[d] - 1) * strides[d] + 1 : starts[d];
    }
    return simplify_built(s, &b, instr, pb_slice(&b, x->operands[0], starts, limits, strides));
  }
  if (x->op == HLO_CONCATENATE) return slice_of_concatenate(s, instr);
  if (x->op == HLO_BROADCAST) {
    hlo_instr *v = x->operands[0];
    for (int i = 0; i < v->shape->rank; i++) {
      starts[i] = instr->u.slice->start.v[x->dims.v[i]];
      limits[i] = instr->u.slice->limit.v[x->dims.v[i]];
      strides[i] = stride_of(instr, (int)x->dims.v[i]);
    }
    if (v->shape->rank) v = pb_slice(&b, v, starts, limits, strides);
    return simplify_built(s, &b, instr, pb_broadcast(&b, v, rank, instr->shape->dims, x->dims.v));
  }
  if (x->op == HLO_RESHAPE && has_unit_strides(instr) && pass_same_but_units(x->operands[0]->shape, x->shape)) {
    /* slice(reshape) becomes reshape(slice), so that slices meet the instructions that made the values. */
    hlo_instr *v = x->operands[0];
    int64_t map[HLO_MAX_RANK];
    if (hlo_shape_elems(instr->shape) == 0) return NULL;
    pass_map_units(v->shape, x->shape, map);
    for (int i = 0; i < v->shape->rank; i++) {
      starts[i] = map[i] < 0 ? 0 : instr->u.slice->start.v[map[i]];
      limits[i] = map[i] < 0 ? 1 : instr->u.slice->limit.v[map[i]];
    }
    return simplify_built(s, &b, instr, pb_reshape_like(&b, pb_slice(&b, v, starts, limits, NULL), instr->shape));
  }
  if (x->op == HLO_PAD && has_unit_strides(instr)) { /* the slice may lie wholly inside the operand of the pad */
    for (int d = 0; d < rank; d++) {
      const hlo_pad_dim *p = &x->u.pad.dims[d];
      if (p->interior || p->low < 0) return NULL; /* simplify_pad removes negative padding */
      starts[d] = instr->u.slice->start.v[d] - p->low;
      limits[d] = instr->u.slice->limit.v[d] - p->low;
      if (starts[d] < 0 || limits[d] > x->operands[0]->shape->dims[d]) return NULL;
    }
    return simplify_built(s, &b, instr, pb_slice(&b, x->operands[0], starts, limits, NULL));
  }
  return NULL;
}

/* Parts `i` and `i + 1` of a concatenate are adjacent slices of one array: the slice that covers both. */
static hlo_instr *joined_slices(pass_build *b, const hlo_instr *concat, int i)
{
  hlo_instr *x = concat->operands[i], *y = concat->operands[i + 1];
  int64_t dim = concat->dims.v[0];

  if (x->op != HLO_SLICE || y->op != HLO_SLICE || x->operands[0] != y->operands[0] || !has_unit_strides(x) ||
      !has_unit_strides(y))
    return NULL;
  for (int d = 0; d < x->shape->rank; d++)
    if (d == dim ? x->u.slice->limit.v[d] != y->u.slice->start.v[d]
                 : x->u.slice->start.v[d] != y->u.slice->start.v[d] || x->u.slice->limit.v[d] != y->u.slice->limit.v[d])
      return NULL;
  int64_t limits[HLO_MAX_RANK];
  memcpy(limits, x->u.slice->limit.v, (size_t)x->shape->rank * sizeof *limits);
  limits[dim] = y->u.slice->limit.v[dim];
  return pb_slice(b, x->operands[0], x->u.slice->start.v, limits, NULL);
}

weft_status *simplify_concatenate(simplifier *s, hlo_instr *instr)
{
  int64_t dim = instr->dims.v[0], total = 0;
  weft_arena *arena = s->work.arena;
  hlo_instr **parts;
  int count = 0;
  bool changed = false, all_same_scalar = is_scalar_broadcast(instr->operands[0]);
  pass_build b = PASS_BUILD_AT(instr);

  if (instr->operand_count == 1) return simplify_to(s, instr, instr->operands[0]);
  for (int i = 0; i < instr->operand_count; i++) {
    const hlo_instr *part = instr->operands[i];
    bool nests = part->op == HLO_CONCATENATE && part->dims.v[0] == dim && part->user_count == 1;
    total += nests ? part->operand_count : 1;
    changed |= nests || part->shape->dims[dim] == 0 || (i + 1 < instr->operand_count && part->op == HLO_SLICE);
    all_same_scalar = all_same_scalar && is_scalar_broadcast(part) &&
                      part->operands[0] == instr->operands[0]->operands[0];
  }
  if (all_same_scalar) return simplify_built(s, &b, instr, pb_fill(&b, instr->operands[0]->operands[0], instr->shape));
  if (!changed) return NULL;

  parts = WEFT_ARENA_ARRAY(arena, hlo_instr *, total);
  WEFT_TRY_ALLOC(parts);
  changed = false;
  for (int i = 0; i < instr->operand_count; i++) {
    hlo_instr *part = instr->operands[i], *joined;
    if (part->shape->dims[dim] == 0) {
      changed = true;
      continue;
    }
    if (part->op == HLO_CONCATENATE && part->dims.v[0] == dim && part->user_count == 1) {
      for (int k = 0; k < part->operand_count; k++) parts[count++] = part->operands[k];
      changed = true;
      continue;
    }
    if (i + 1 < instr->operand_count && (joined = joined_slices(&b, instr, i))) {
      parts[count++] = joined;
      changed = true;
      i++;
      continue;
    }
    parts[count++] = part;
  }
  if (b.error || !changed) return pass_build_finish(&b);
  if (count == 0) parts[count++] = instr->operands[0];
  return simplify_built(s, &b, instr, pb_concat(&b, dim, count, parts));
}

/* The number of elements that a padding on one side removes, with `step` places from one element to the next. */
static int64_t cut_off(int64_t padding, int64_t step)
{
  return padding < 0 ? WEFT_MIN(-(padding + 1) / step, INT64_MAX - 1) + 1 : 0;
}

/* What remains of x where paddings are negative, and the remaining paddings; false if nothing remains. */
static bool cut_by_padding(const hlo_instr *pad, int64_t *starts, int64_t *limits, hlo_pad_dim *pads)
{
  const hlo_shape *x = pad->operands[0]->shape;

  for (int d = 0; d < x->rank; d++) {
    const hlo_pad_dim *p = &pad->u.pad.dims[d];
    int64_t step = x->dims[d] > 1 ? p->interior + 1 : 1, low = cut_off(p->low, step), high = cut_off(p->high, step);
    if (low >= x->dims[d] || high >= x->dims[d] - low) return false;
    starts[d] = low;
    limits[d] = x->dims[d] - high;
    pads[d] = (hlo_pad_dim){p->low + low * step, p->high + high * step, p->interior};
  }
  return true;
}

weft_status *simplify_pad(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  int rank = instr->shape->rank;
  bool none = true, negative = false;
  int64_t starts[HLO_MAX_RANK], limits[HLO_MAX_RANK];
  hlo_pad_dim pads[HLO_MAX_RANK];
  pass_build b = PASS_BUILD_AT(instr);

  for (int d = 0; d < rank; d++) {
    const hlo_pad_dim *p = &instr->u.pad.dims[d];
    none &= p->low == 0 && p->high == 0 && (p->interior == 0 || x->shape->dims[d] <= 1);
    negative |= p->low < 0 || p->high < 0;
  }
  if (none) return simplify_to(s, instr, x);
  if (hlo_shape_elems(x->shape) == 0)
    return simplify_built(s, &b, instr, pb_fill(&b, instr->operands[1], instr->shape));
  if (is_scalar_broadcast(x) && x->operands[0] == instr->operands[1])
    return simplify_built(s, &b, instr, pb_fill(&b, instr->operands[1], instr->shape));
  if (negative) { /* slice, then pad with what is not negative */
    if (!cut_by_padding(instr, starts, limits, pads))
      return simplify_built(s, &b, instr, pb_fill(&b, instr->operands[1], instr->shape));
    return simplify_built(s, &b, instr, pb_pad(&b, pb_slice(&b, x, starts, limits, NULL), instr->operands[1], pads));
  }
  if (x->op == HLO_PAD && x->operands[1] == instr->operands[1]) {
    for (int d = 0; d < rank; d++) {
      const hlo_pad_dim *p = &x->u.pad.dims[d], *q = &instr->u.pad.dims[d];
      if (q->interior || p->low < 0 || p->high < 0) return NULL;
      pads[d] = (hlo_pad_dim){p->low + q->low, p->high + q->high, p->interior};
    }
    return simplify_built(s, &b, instr, pb_pad(&b, x->operands[0], instr->operands[1], pads));
  }
  return NULL;
}

weft_status *simplify_reverse(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  int64_t dims[HLO_MAX_RANK];
  int count = 0;
  pass_build b = PASS_BUILD_AT(instr);

  for (int i = 0; i < instr->dims.count; i++)
    if (instr->shape->dims[instr->dims.v[i]] > 1) dims[count++] = instr->dims.v[i];
  if (count == 0) return simplify_to(s, instr, x);
  if (count < instr->dims.count) {
    instr->dims = pb_ints(&b, count, dims);
    WEFT_TRY(pass_build_finish(&b));
    return simplify_touched(s, instr);
  }
  if (x->op == HLO_REVERSE && x->dims.count == count) {
    for (int i = 0; i < count; i++)
      if (!pass_ints_contain(x->dims, dims[i])) return NULL;
    return simplify_to(s, instr, x->operands[0]);
  }
  if (is_scalar_broadcast(x)) return simplify_to(s, instr, x);
  return NULL;
}

/* The constant start indices (the operands from `first` on) of a dynamic-(update-)slice whose window has `sizes`,
 * clamped; false if they are not constant. */
static bool constant_starts(const hlo_instr *instr, int first, const hlo_shape *array, const int64_t *sizes,
                            int64_t *starts)
{
  for (int d = 0; d < array->rank; d++) {
    int64_t room = array->dims[d] - sizes[d];
    if (room == 0) {
      starts[d] = 0;
      continue;
    }
    if (instr->operand_count != first + array->rank || instr->operands[first + d]->op != HLO_CONSTANT) return false;
    starts[d] = hlo_literal_get_s64(instr->operands[first + d]->u.literal, 0);
    if (starts[d] < 0 && weft_dtype_is_unsigned(instr->operands[first + d]->shape->type)) starts[d] = room;
    starts[d] = WEFT_MAX(WEFT_MIN(starts[d], room), 0);
  }
  return true;
}

/* True if the start indices of a, from its operand `i` on, are those of b from its operand `j` on. */
static bool same_starts(const hlo_instr *a, int i, const hlo_instr *b, int j)
{
  if (a->operand_count - i != b->operand_count - j) return false;
  for (; i < a->operand_count; i++, j++)
    if (a->operands[i] != b->operands[j]) return false;
  return true;
}

weft_status *simplify_dynamic_slice(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  int64_t starts[HLO_MAX_RANK], limits[HLO_MAX_RANK];
  pass_build b = PASS_BUILD_AT(instr);

  if (same_shape(instr, x)) return simplify_to(s, instr, x);
  if (is_scalar_broadcast(x)) return simplify_built(s, &b, instr, pb_fill(&b, x->operands[0], instr->shape));
  if (constant_starts(instr, 1, x->shape, instr->shape->dims, starts)) {
    for (int d = 0; d < x->shape->rank; d++) limits[d] = starts[d] + instr->shape->dims[d];
    return simplify_built(s, &b, instr, pb_slice(&b, x, starts, limits, NULL));
  }
  /* A slice that reads what an update has just written. */
  if (x->op == HLO_DYNAMIC_UPDATE_SLICE && same_shape(instr, x->operands[1]) && same_starts(instr, 1, x, 2))
    return simplify_to(s, instr, x->operands[1]);
  return NULL;
}

weft_status *simplify_dynamic_update_slice(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0], *update = instr->operands[1];
  int64_t starts[HLO_MAX_RANK];
  hlo_pad_dim pads[HLO_MAX_RANK];
  pass_build b = PASS_BUILD_AT(instr);

  if (same_shape(update, instr)) return simplify_to(s, instr, update);
  if (hlo_shape_elems(update->shape) == 0) return simplify_to(s, instr, x);
  if (is_scalar_broadcast(x) && is_scalar_broadcast(update) && x->operands[0] == update->operands[0])
    return simplify_to(s, instr, x);
  /* An update that writes back what was read from the same place. */
  if (update->op == HLO_DYNAMIC_SLICE && update->operands[0] == x && same_starts(instr, 2, update, 1))
    return simplify_to(s, instr, x);
  /* An update surrounded by one value becomes a pad. */
  if (is_scalar_broadcast(x) && constant_starts(instr, 2, x->shape, update->shape->dims, starts)) {
    for (int d = 0; d < x->shape->rank; d++)
      pads[d] = (hlo_pad_dim){.low = starts[d], .high = x->shape->dims[d] - update->shape->dims[d] - starts[d]};
    return simplify_built(s, &b, instr, pb_pad(&b, update, x->operands[0], pads));
  }
  return NULL;
}

weft_status *simplify_iota(simplifier *s, hlo_instr *instr)
{
  pass_build b = PASS_BUILD_AT(instr);
  int64_t dim = instr->dims.v[0], size = instr->shape->dims[dim];

  if (size == 1) return simplify_built(s, &b, instr, pb_splat(&b, instr, 0));
  if (instr->shape->rank > 1 && hlo_shape_elems(instr->shape) > size) { /* one vector, repeated */
    const hlo_shape *shape = hlo_shape_array(&instr->parent->module->arena, instr->shape->type, 1, &size);
    return simplify_built(s, &b, instr, pb_broadcast_1d(&b, pb_iota(&b, shape, 0), instr->shape, dim));
  }
  return NULL;
}

weft_status *simplify_copy(simplifier *s, hlo_instr *instr) { return simplify_to(s, instr, instr->operands[0]); }

/* A constant whose elements are all the same becomes a broadcast scalar. */
weft_status *simplify_constant(simplifier *s, hlo_instr *instr)
{
  weft_arena *arena = &instr->parent->module->arena;
  const hlo_literal *literal = instr->u.literal;
  hlo_literal *scalar;
  hlo_shape *shape;
  pass_build b = PASS_BUILD_AT(instr);

  if (!hlo_shape_is_array(instr->shape) || hlo_shape_elems(instr->shape) <= 1 || literal->elided ||
      !hlo_literal_is_splat(literal))
    return NULL;
  shape = hlo_shape_array(arena, instr->shape->type, 0, NULL);
  WEFT_TRY_ALLOC(shape);
  WEFT_TRY(hlo_literal_new(arena, shape, &scalar));
  memcpy(scalar->data, literal->data, weft_dtype_bytes(shape->type));
  return simplify_built(s, &b, instr, pb_fill(&b, pb_constant(&b, scalar), instr->shape));
}

/* A gather of one window becomes a dynamic-slice; both clamp their starts in the same way. */
weft_status *simplify_gather(simplifier *s, hlo_instr *instr)
{
  const hlo_gather_attrs *g = instr->u.gather;
  hlo_instr *x = instr->operands[0], *indices = instr->operands[1], *starts[HLO_MAX_RANK + 1], *slice;
  pass_build b = PASS_BUILD_AT(instr);
  int64_t per_window = g->start_index_map.count;
  weft_dtype type = indices->shape->type;

  if (hlo_shape_elems(instr->shape) == 0 || g->operand_batching_dims.count || per_window == 0 ||
      hlo_shape_elems(indices->shape) != per_window || !weft_dtype_is_integer(type))
    return NULL;
  indices = pb_reshape(&b, indices, 1, &per_window);
  starts[0] = x;
  for (int d = 0; d < x->shape->rank; d++) starts[d + 1] = NULL;
  for (int i = 0; i < per_window; i++)
    starts[1 + g->start_index_map.v[i]] = pb_reshape(&b, pb_slice_dim(&b, indices, 0, i, i + 1), 0, NULL);
  for (int d = 0; d < x->shape->rank; d++)
    if (!starts[d + 1]) starts[d + 1] = pb_int(&b, type, 0);
  if (b.error) return pass_build_finish(&b);
  slice = pb_instr(&b, HLO_DYNAMIC_SLICE,
                   hlo_shape_array(&instr->parent->module->arena, x->shape->type, x->shape->rank, g->slice_sizes.v),
                   x->shape->rank + 1, starts);
  if (slice) slice->u.slice_sizes = g->slice_sizes;
  /* Collapsed dimensions have size 1, offset dimensions keep their order, and all others have size 1 too. */
  return simplify_built(s, &b, instr, pb_reshape_like(&b, slice, instr->shape));
}
