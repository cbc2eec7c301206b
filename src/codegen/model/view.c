/* codegen/model/view.c -- parts of arrays that a dot of the CPU's library reads where they lie (view.h). */
#include <config.h>

#include "codegen/model/view.h"

gen_view gen_view_dense(const hlo_shape *shape)
{
  gen_view v = {.rank = shape->rank};
  int64_t step = hlo_shape_elems(shape);

  for (int d = 0; d < shape->rank; d++) {
    v.first[d] = v.parts.count;
    if (shape->dims[d] == 0) continue; /* a view without elements is never walked */
    step /= shape->dims[d];
    if (shape->dims[d] > 1) v.parts.v[v.parts.count++] = (gen_part){shape->dims[d], step};
  }
  v.first[v.rank] = v.parts.count;
  return v;
}

/* Adds a part inside of the others; two parts that one loop can walk become one. */
static bool append(gen_parts *parts, gen_part inner)
{
  gen_part *last = parts->count ? &parts->v[parts->count - 1] : NULL;

  if (inner.size == 1) return true;
  if (last && last->step == inner.size * inner.step) {
    *last = (gen_part){last->size * inner.size, inner.step};
    return true;
  }
  if (parts->count == GEN_VIEW_PARTS) return false;
  parts->v[parts->count++] = inner;
  return true;
}

bool gen_view_walk(const gen_view *view, int count, const int64_t *dims, gen_parts *out)
{
  out->count = 0;
  for (int i = 0; i < count; i++)
    for (int p = view->first[dims[i]]; p < view->first[dims[i] + 1]; p++)
      if (!append(out, view->parts.v[p])) return false;
  return true;
}

/* Takes the innermost part of `from`, or as much of it as has at most `most` elements. False: the sizes do not
 * divide. */
static bool take_inner(gen_parts *from, int64_t most, gen_part *out)
{
  gen_part *last = &from->v[from->count - 1];

  if (last->size <= most) {
    *out = *last;
    from->count--;
    return most % out->size == 0;
  }
  *out = (gen_part){most, last->step};
  if (last->size % most != 0) return false;
  *last = (gen_part){last->size / most, last->step * most};
  return true;
}

static void reverse(gen_parts *parts)
{
  for (int i = 0, j = parts->count - 1; i < j; i++, j--) {
    gen_part part = parts->v[i];
    parts->v[i] = parts->v[j];
    parts->v[j] = part;
  }
}

bool gen_parts_match(gen_parts *a, gen_parts *b)
{
  gen_parts rest_a = *a, rest_b = *b;

  a->count = b->count = 0;
  while (rest_a.count && rest_b.count) {
    int64_t size = WEFT_MIN(rest_a.v[rest_a.count - 1].size, rest_b.v[rest_b.count - 1].size);
    if (a->count == GEN_VIEW_PARTS || !take_inner(&rest_a, size, &a->v[a->count]) ||
        !take_inner(&rest_b, size, &b->v[b->count]))
      return false;
    a->count++;
    b->count++;
  }
  reverse(a);
  reverse(b);
  return rest_a.count == 0 && rest_b.count == 0;
}

/* ---- one instruction --------------------------------------------------------------------------------------------- */

static bool reshape(gen_view *v, const hlo_instr *instr)
{
  const hlo_shape *shape = instr->shape;
  gen_parts rest = {0}, parts = {0}; /* `parts`: from the inside out */
  int counts[HLO_MAX_RANK] = {0};

  for (int p = 0; p < v->parts.count; p++)
    if (!append(&rest, v->parts.v[p])) return false;
  for (int d = shape->rank - 1; d >= 0; d--)
    for (int64_t size = shape->dims[d]; size > 1; size /= parts.v[parts.count++].size) {
      if (parts.count == GEN_VIEW_PARTS || !take_inner(&rest, size, &parts.v[parts.count])) return false;
      counts[d]++;
    }
  reverse(&parts);
  v->parts = parts;
  v->rank = shape->rank;
  v->first[0] = 0;
  for (int d = 0; d < v->rank; d++) v->first[d + 1] = v->first[d] + counts[d];
  return true;
}

static bool transpose(gen_view *v, const hlo_instr *instr)
{
  gen_view before = *v;

  v->parts.count = 0;
  for (int d = 0; d < v->rank; d++) {
    int64_t from = instr->dims.v[d];
    v->first[d] = v->parts.count;
    for (int p = before.first[from]; p < before.first[from + 1]; p++) v->parts.v[v->parts.count++] = before.parts.v[p];
  }
  v->first[v->rank] = v->parts.count;
  return true;
}

static bool broadcast(gen_view *v, const hlo_instr *instr)
{
  gen_view before = *v;

  v->parts.count = 0;
  v->rank = instr->shape->rank;
  for (int d = 0; d < v->rank; d++) {
    int from = 0;
    v->first[d] = v->parts.count;
    while (from < before.rank && instr->dims.v[from] != d) from++;
    int end = from < before.rank ? before.first[from + 1] : 0;
    for (int p = from < before.rank ? before.first[from] : 0; p < end; p++) {
      if (v->parts.count == GEN_VIEW_PARTS) return false;
      v->parts.v[v->parts.count++] = before.parts.v[p];
    }
    if (from < before.rank || instr->shape->dims[d] == 1) continue;
    if (v->parts.count == GEN_VIEW_PARTS) return false;
    v->parts.v[v->parts.count++] = (gen_part){instr->shape->dims[d], 0};
  }
  v->first[v->rank] = v->parts.count;
  return true;
}

static void remove_single(gen_view *v)
{
  gen_view before = *v;

  v->parts.count = 0;
  for (int d = 0; d < v->rank; d++) {
    v->first[d] = v->parts.count;
    for (int p = before.first[d]; p < before.first[d + 1]; p++)
      if (before.parts.v[p].size > 1) v->parts.v[v->parts.count++] = before.parts.v[p];
  }
  v->first[v->rank] = v->parts.count;
}

static bool is_whole(const hlo_instr *instr, int d)
{
  return instr->shape->dims[d] == instr->operands[0]->shape->dims[d];
}

/* The one part of dimension `d`; NULL: there are more, so that a range of the dimension may have no parts. */
static gen_part *only_part(gen_view *v, int d)
{
  return v->first[d + 1] - v->first[d] == 1 ? &v->parts.v[v->first[d]] : NULL;
}

static bool slice(gen_view *v, const hlo_instr *instr)
{
  const hlo_slice_attrs *a = instr->u.slice;

  for (int d = 0; d < v->rank; d++) {
    if (is_whole(instr, d)) continue;
    gen_part *part = only_part(v, d);
    if (!part) return false;
    v->offset += a->start.v[d] * part->step;
    *part = (gen_part){instr->shape->dims[d], part->step * (a->stride.count ? a->stride.v[d] : 1)};
  }
  remove_single(v);
  return true;
}

static bool dynamic_slice(gen_view *v, const hlo_instr *instr)
{
  const hlo_shape *of = instr->operands[0]->shape;

  if (instr->operand_count != 1 + v->rank) return false;
  for (int d = 0; d < v->rank; d++) {
    const hlo_instr *value = instr->operands[1 + d];
    int64_t most = of->dims[d] - instr->shape->dims[d];
    if (most == 0) continue;
    gen_part *part = only_part(v, d);
    if (!part || !weft_dtype_is_integer(value->shape->type) || weft_dtype_bits(value->shape->type) < 8) return false;
    if (v->start_count == HLO_MAX_RANK) return false;
    v->starts[v->start_count++] = (gen_view_start){value, most, part->step};
    part->size = instr->shape->dims[d];
  }
  remove_single(v);
  return true;
}

static bool is_moved(const hlo_instr *x)
{
  switch (x->op) {
  case HLO_RESHAPE: case HLO_BITCAST: case HLO_SLICE: case HLO_DYNAMIC_SLICE: case HLO_TRANSPOSE:
    return hlo_shape_is_array(x->operands[0]->shape) && x->shape->type == x->operands[0]->shape->type &&
           hlo_shape_elems(x->shape) > 0;
  default: return false;
  }
}

bool gen_view_apply(gen_view *v, const hlo_instr *x)
{
  switch (x->op) {
  case HLO_RESHAPE: case HLO_BITCAST: return reshape(v, x);
  case HLO_TRANSPOSE: return transpose(v, x);
  case HLO_BROADCAST: return broadcast(v, x);
  case HLO_SLICE: v->is_part = true; return slice(v, x);
  default: v->is_part = true; return dynamic_slice(v, x);
  }
}

gen_view gen_view_of(const hlo_instr *value)
{
  const hlo_instr *steps[GEN_VIEW_LENGTH], *array = value;
  int count = 0;

  for (; count < GEN_VIEW_LENGTH && is_moved(array); array = array->operands[0]) steps[count++] = array;
  gen_view v = gen_view_dense(array->shape);
  v.array = array;
  while (count > 0) {
    const hlo_instr *x = steps[--count];
    if (gen_view_apply(&v, x)) continue;
    v = gen_view_dense(x->shape); /* x is no view of what it is made of, and is an array of its own */
    v.array = x;
  }
  return v;
}
