/* dynamic-dimensions: arrays whose sizes are known only at run time become arrays of their bounds.
 *
 *   set-dimension-size     its operand; the size goes with it, as an s32, to what uses it
 *   get-dimension-size     that size, or the bound of a static dimension
 *   dynamic-reshape to a static shape          reshape
 *
 * What lies between the size and the bound is anything at all.  Where it would be seen, by a sum or a product, it is
 * replaced first by what does not matter there (the initial value, zero).  An operation that is not listed in `follow`
 * and a result of such an array are UNIMPLEMENTED. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"
#include "passes/util.h"

typedef struct sizes { hlo_instr *v[HLO_MAX_RANK]; } sizes; /* by dimension; NULL: all of it */

typedef struct tracker {
  weft_arena *arena;
  pass_map known; /* instruction -> sizes, where one is dynamic */
  pass_build b;   /* before the instruction at hand */
  bool *changed;
} tracker;

static const sizes *sizes_of(const tracker *t, const hlo_instr *x) { return pass_map_get(&t->known, x->id); }

static hlo_instr *size_of(tracker *t, const hlo_instr *x, int64_t dim)
{
  const sizes *s = sizes_of(t, x);
  return s && s->v[dim] ? s->v[dim] : pb_int(&t->b, WEFT_S32, x->shape->dims[dim]);
}

static weft_status *unimplemented(const hlo_instr *instr, const char *why)
{
  char where[160];
  return WEFT_ERR(UNIMPLEMENTED, "%s of an array whose size is known only at run time%s (%s)", hlo_opcode_name(instr->op), why,
                  hlo_describe(instr, where, sizeof where));
}

/* Operand k gets `filler`, a scalar, beyond the sizes `s` of those dimensions. */
static weft_status *mask_operand(tracker *t, hlo_instr *instr, int k, const sizes *s, hlo_ints dims, hlo_instr *filler)
{
  hlo_instr *x = instr->operands[k];
  const hlo_shape *places = hlo_shape_with_type(&x->parent->module->arena, x->shape, WEFT_S32);

  for (int i = 0; i < dims.count; i++) {
    hlo_instr *size = s->v[dims.v[i]];
    if (!size) continue;
    hlo_instr *inside = pb_compare(&t->b, HLO_LT, pb_iota(&t->b, places, dims.v[i]), pb_fill(&t->b, size, places));
    x = pb_select(&t->b, inside, x, pb_fill(&t->b, filler, places));
  }
  return x && x != instr->operands[k] ? hlo_set_operand(instr, k, x) : NULL;
}

static void merge(sizes *into, const sizes *more, int rank)
{
  for (int d = 0; more && d < rank; d++)
    if (!into->v[d]) into->v[d] = more->v[d];
}

static weft_status *follow_reduce(tracker *t, hlo_instr *reduce, sizes *out)
{
  int n = reduce->operand_count / 2, rank = reduce->operands[0]->shape->rank;
  sizes all = {{0}};

  for (int k = 0; k < n; k++) merge(&all, sizes_of(t, reduce->operands[k]), rank);
  for (int k = 0; k < n; k++) WEFT_TRY(mask_operand(t, reduce, k, &all, reduce->dims, reduce->operands[n + k]));
  for (int d = 0, kept = 0; d < rank; d++)
    if (!pass_ints_contain(reduce->dims, d)) out->v[kept++] = all.v[d];
  return NULL;
}

static weft_status *follow_dot(tracker *t, hlo_instr *dot, sizes *out)
{
  const hlo_dot_attrs *a = dot->u.dot;
  const hlo_ints batch[] = {a->lhs_batch, a->rhs_batch}, contracting[] = {a->lhs_contracting, a->rhs_contracting};
  int at = a->lhs_batch.count;

  for (int k = 0; k < 2; k++) {
    const hlo_instr *x = dot->operands[k];
    const sizes *s = sizes_of(t, x);
    for (int i = 0; s && i < batch[k].count; i++)
      if (!out->v[i]) out->v[i] = s->v[batch[k].v[i]];
    for (int64_t d = 0; d < x->shape->rank; d++)
      if (!pass_ints_contain(batch[k], d) && !pass_ints_contain(contracting[k], d)) out->v[at++] = s ? s->v[d] : NULL;
  }
  sizes own[2] = {{{0}}};
  for (int k = 0; k < 2; k++) { /* masked on both sides, as zero times anything need not be zero: each takes the other's sizes */
    const sizes *other = sizes_of(t, dot->operands[1 - k]);
    merge(&own[k], sizes_of(t, dot->operands[k]), dot->operands[k]->shape->rank);
    for (int i = 0; other && i < contracting[k].count; i++)
      if (!own[k].v[contracting[k].v[i]]) own[k].v[contracting[k].v[i]] = other->v[contracting[1 - k].v[i]];
  }
  for (int k = 0; k < 2; k++)
    if (dot->operands[k]->shape->type == WEFT_F8E8M0FNU) return unimplemented(dot, ", of a type that has no zero");
  for (int k = 0; k < 2; k++)
    WEFT_TRY(mask_operand(t, dot, k, &own[k], contracting[k], pb_scalar(&t->b, dot->operands[k]->shape->type, 0)));
  return NULL;
}

/* Each part is written over what the one before it has beyond its size. */
static hlo_instr *joined(tracker *t, const hlo_instr *concatenate, sizes *out)
{
  pass_build *b = &t->b;
  int64_t dim = concatenate->dims.v[0];
  hlo_instr *all = pb_splat(b, concatenate, 0), *at = pb_int(b, WEFT_S32, 0);

  for (int k = 0; k < concatenate->operand_count; k++) {
    all = pb_update_at(b, all, concatenate->operands[k], dim, at);
    at = pb_add(b, at, size_of(t, concatenate->operands[k], dim));
  }
  out->v[dim] = at;
  return all;
}

static weft_status *follow_pad(tracker *t, hlo_instr *pad, sizes *out)
{
  const sizes *s = sizes_of(t, pad->operands[0]);

  for (int64_t d = 0; s && d < pad->shape->rank; d++) {
    const hlo_pad_dim *p = &pad->u.pad.dims[d];
    out->v[d] = s->v[d];
    if (!s->v[d] || (p->low == 0 && p->high == 0 && p->interior == 0)) continue;
    if (p->low < 0 || p->high < 0 || p->interior) return unimplemented(pad, ", with negative or interior padding along it");
    WEFT_TRY(mask_operand(t, pad, 0, s, (hlo_ints){1, &d}, pad->operands[1]));
    out->v[d] = pb_add(&t->b, s->v[d], pb_int(&t->b, WEFT_S32, p->low + p->high));
  }
  return NULL;
}

/* A dimension goes through where it is one on both sides, after as many elements. */
static weft_status *follow_reshape(tracker *t, const hlo_instr *reshape, sizes *out)
{
  const hlo_shape *from = reshape->operands[0]->shape, *to = reshape->shape;
  const sizes *s = sizes_of(t, reshape->operands[0]);

  for (int64_t d = 0, before = 1; s && d < from->rank; before *= from->dims[d++]) {
    int e = 0;
    int64_t passed = 1;
    if (!s->v[d]) continue;
    while (e < to->rank && (passed < before || to->dims[e] != from->dims[d])) passed *= to->dims[e++];
    if (e == to->rank || passed != before) return unimplemented(reshape, ", which it divides or joins");
    out->v[e] = s->v[d];
  }
  return NULL;
}

/* The sizes of an instruction of which an operand has some; *with: what takes its place, or NULL. */
static weft_status *follow(tracker *t, hlo_instr *instr, sizes *out, hlo_instr **with)
{
  hlo_instr *x = instr->operands[0];
  const sizes *s = sizes_of(t, x);
  int rank = instr->shape->rank;

  if (hlo_opcode_is_elementwise(instr->op)) {
    for (int k = 0; k < instr->operand_count; k++)
      if (instr->operands[k]->shape->rank == rank) merge(out, sizes_of(t, instr->operands[k]), rank);
    return NULL;
  }
  switch (instr->op) {
  case HLO_BROADCAST:
    for (int i = 0; s && i < instr->dims.count; i++) out->v[instr->dims.v[i]] = s->v[i];
    return NULL;
  case HLO_TRANSPOSE:
    for (int i = 0; s && i < rank; i++) out->v[i] = s->v[instr->dims.v[i]];
    return NULL;
  case HLO_GET_TUPLE_ELEMENT: /* of a variadic reduction */
    merge(out, s, rank);
    return NULL;
  case HLO_SLICE:
    for (int d = 0; s && d < rank; d++)
      if (s->v[d] && instr->shape->dims[d] != x->shape->dims[d]) return unimplemented(instr, ", along it");
    merge(out, s, rank);
    return NULL;
  case HLO_CONCATENATE: {
    bool joins = false;
    for (int k = 0; k < instr->operand_count; k++) {
      const sizes *each = sizes_of(t, instr->operands[k]);
      merge(out, each, rank);
      joins |= each && each->v[instr->dims.v[0]];
    }
    if (joins) *with = joined(t, instr, out);
    return NULL;
  }
  case HLO_REDUCE: return follow_reduce(t, instr, out);
  case HLO_DOT: return follow_dot(t, instr, out);
  case HLO_PAD: return follow_pad(t, instr, out);
  case HLO_RESHAPE: return follow_reshape(t, instr, out);
  default: return unimplemented(instr, "");
  }
}

/* The shape with its bounds for sizes. */
static weft_status *make_static(hlo_instr *instr)
{
  hlo_shape *shape = hlo_shape_copy(&instr->parent->module->arena, instr->shape);

  WEFT_TRY_ALLOC(shape);
  for (int i = 0; hlo_shape_is_tuple(shape) && i < shape->rank; i++) {
    hlo_shape *element = hlo_shape_copy(&instr->parent->module->arena, shape->elements[i]);
    WEFT_TRY_ALLOC(element);
    element->dynamic = NULL;
    ((const hlo_shape **)shape->elements)[i] = element;
  }
  shape->dynamic = NULL;
  instr->shape = shape;
  return NULL;
}

static weft_status *note(tracker *t, const hlo_instr *instr, const sizes *s)
{
  sizes *kept = WEFT_ARENA_NEW(t->arena, sizes);

  WEFT_TRY_ALLOC(kept);
  *kept = *s;
  return pass_map_set(&t->known, instr->id, kept);
}

static weft_status *replace(tracker *t, hlo_instr *instr, hlo_instr *with)
{
  *t->changed = true;
  return pass_build_replace(&t->b, instr, with);
}

static bool is_whole(const hlo_instr *size, int64_t bound)
{
  return size->op == HLO_CONSTANT && hlo_literal_get_s64(size->u.literal, 0) == bound;
}

static weft_status *resolve(tracker *t, hlo_instr *instr)
{
  hlo_instr *x = instr->operand_count ? instr->operands[0] : NULL, *with = NULL;
  bool follows = false, any = false;
  sizes out = {{0}};

  t->b = PASS_BUILD_AT(instr);
  switch (instr->op) {
  case HLO_GET_DIMENSION_SIZE:
    if (hlo_shape_is_dynamic(x->shape)) return NULL; /* of a parameter */
    return replace(t, instr, size_of(t, x, instr->dims.v[0]));
  case HLO_SET_DIMENSION_SIZE: {
    int64_t dim = instr->dims.v[0];
    if (hlo_shape_is_dynamic(x->shape)) return NULL;
    merge(&out, sizes_of(t, x), x->shape->rank);
    out.v[dim] = is_whole(instr->operands[1], x->shape->dims[dim]) ? NULL : instr->operands[1];
    /* The operand may have other users, for whom it is whole. */
    with = pb_op1(&t->b, HLO_COPY, x);
    if (with) WEFT_TRY(note(t, with, &out));
    WEFT_TRY(make_static(instr));
    return replace(t, instr, with);
  }
  case HLO_DYNAMIC_RESHAPE:
    if (hlo_shape_is_dynamic(instr->shape) || hlo_shape_is_dynamic(x->shape) || sizes_of(t, x)) break;
    return replace(t, instr, pb_reshape_like(&t->b, x, instr->shape));
  default: break;
  }
  for (int k = 0; k < instr->operand_count; k++) follows |= sizes_of(t, instr->operands[k]) != NULL;
  if (!follows) return NULL;
  if (hlo_shape_is_dynamic(instr->shape)) WEFT_TRY(make_static(instr));
  WEFT_TRY(follow(t, instr, &out, &with));
  for (int d = 0; d < HLO_MAX_RANK; d++) any |= out.v[d] != NULL;
  if (any) WEFT_TRY(note(t, with ? with : instr, &out));
  return with ? replace(t, instr, with) : pass_build_finish(&t->b);
}

static weft_status *dynamic_dimensions_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  tracker t = {.arena = ctx->scratch, .known.arena = ctx->scratch, .changed = changed};

  HLO_FOREACH_COMPUTATION(comp, module) {
    HLO_FOREACH(instr, comp) WEFT_TRY(resolve(&t, instr));
    if (sizes_of(&t, comp->root)) return unimplemented(comp->root, ", as a result");
  }
  return NULL;
}
const hlo_pass pass_dynamic_dimensions = {"dynamic-dimensions", dynamic_dimensions_run};
