/* passes/spmd/partition.c -- makes each instruction again, on tiles.
 *
 * For an operation on arrays, several candidates for the axes that cut its factors (taken first from its result's
 * sharding, or from an operand's) are compared by the bytes that they move and the work that they do. The operands
 * are resharded for the best candidate, the operation is done on tiles, partial results are combined, and the result
 * gets the sharding that propagation decided. An operation without factors is computed whole on every partition,
 * which is always right. */
#include <config.h>

#include "passes/spmd/partition.h"

#include <string.h>

#include "hlo/sharding.h"
#include "passes/spmd/custom.h"
#include "passes/spmd/edges.h"
#include "passes/spmd/one_partition.h"
#include "passes/spmd/parts.h"
#include "passes/spmd/reshard.h"

/* A value in one of the shardings in which an instruction wanted it. */
typedef struct form {
  struct form *next;
  const spmd_sharding *s;
  hlo_instr *tile;
} form;

typedef struct partitioner {
  spmd_program *p;
  spmd_mover mover;
  weft_arena *arena, *scratch;
  pass_map forms;  /* by instruction: form *, of which the first has the sharding that propagation decided */
  pass_build b;
} partitioner;

static const form *form_of(const partitioner *w, const hlo_instr *instr) { return pass_map_get(&w->forms, instr->id); }

static weft_status *add_form(partitioner *w, const hlo_instr *instr, const spmd_sharding *s, hlo_instr *tile)
{
  form *made = WEFT_ARENA_NEW(w->scratch, form), *first = pass_map_get(&w->forms, instr->id);

  WEFT_TRY_ALLOC(made);
  *made = (form){.s = s, .tile = tile};
  if (!first) return pass_map_set(&w->forms, instr->id, made);
  made->next = first->next;
  first->next = made;
  return NULL;
}

/* ---- values in the wanted sharding ----------------------------------------------------------------------------- */

/* The form from which `want` is reached with the fewest bytes. */
static weft_status *nearest_form(partitioner *w, const hlo_instr *instr, const spmd_sharding *want, const form **out,
                                 double *out_bytes)
{
  *out = NULL;
  for (const form *f = form_of(w, instr); f; f = f->next) {
    double bytes;
    WEFT_TRY(spmd_combine_cost(&w->mover, instr->shape, f->s, 0, want, w->scratch, &bytes));
    if (*out && bytes >= *out_bytes) continue;
    *out = f;
    *out_bytes = bytes;
  }
  return NULL;
}

/* The sharding of an array as the sharding of its dimensions in their order in memory. */
static weft_status *in_memory_order(partitioner *w, const spmd_sharding *s, const int64_t *minor_to_major,
                                    spmd_sharding *out)
{
  WEFT_TRY(spmd_sharding_copy(w->scratch, s, out));
  for (int i = 0; i < s->rank; i++) out->dims[i] = s->dims[minor_to_major[s->rank - 1 - i]];
  return NULL;
}

/* spmd_reshard; values beside calls of foreign code may have another layout, which they keep. */
static weft_status *reshard(partitioner *w, hlo_instr *x, const spmd_sharding *from, const spmd_sharding *to,
                            hlo_instr **out)
{
  const hlo_layout *layout = x->shape->layout;
  int64_t dims[HLO_MAX_RANK];
  spmd_sharding from_order, to_order;
  hlo_shape *shape;

  if (spmd_sharding_equal(from, to) || !hlo_shape_is_array(x->shape) || hlo_shape_is_default_layout(x->shape))
    return spmd_reshard(&w->mover, &w->b, x, from, to, out);
  for (int i = 0; i < x->shape->rank; i++) dims[i] = x->shape->dims[layout->minor_to_major[x->shape->rank - 1 - i]];
  WEFT_TRY(in_memory_order(w, from, layout->minor_to_major, &from_order));
  WEFT_TRY(in_memory_order(w, to, layout->minor_to_major, &to_order));
  x = pb_instr(&w->b, HLO_BITCAST, hlo_shape_array(w->arena, x->shape->type, x->shape->rank, dims), 1, &x);
  WEFT_TRY(pass_build_finish(&w->b));
  WEFT_TRY(spmd_reshard(&w->mover, &w->b, x, &from_order, &to_order, &x));
  for (int i = 0; i < x->shape->rank; i++) dims[layout->minor_to_major[x->shape->rank - 1 - i]] = x->shape->dims[i];
  shape = hlo_shape_array(w->arena, x->shape->type, x->shape->rank, dims);
  WEFT_TRY_ALLOC(shape);
  shape->layout = layout;
  *out = pb_instr(&w->b, HLO_BITCAST, shape, 1, &x);
  return pass_build_finish(&w->b);
}

/* Array `instr` as a tile of `want`; each form is made once. */
static weft_status *array_as(partitioner *w, const hlo_instr *instr, const spmd_sharding *want, hlo_instr **out)
{
  const form *from;
  double bytes;

  for (const form *f = form_of(w, instr); f; f = f->next)
    if (spmd_sharding_equal(f->s, want)) {
      *out = f->tile;
      return NULL;
    }
  WEFT_TRY(nearest_form(w, instr, want, &from, &bytes));
  WEFT_TRY(reshard(w, from->tile, from->s, want, out));
  {
    spmd_sharding *copy = WEFT_ARENA_NEW(w->scratch, spmd_sharding);
    WEFT_TRY_ALLOC(copy);
    WEFT_TRY(spmd_sharding_copy(w->scratch, want, copy));
    return add_form(w, instr, copy, *out);
  }
}

static weft_status *local_shape(partitioner *w, const hlo_shape *whole, spmd_sharding *const *leaves, int *at,
                                const hlo_shape **out)
{
  const hlo_shape **elements;

  if (!hlo_shape_is_tuple(whole)) {
    const spmd_sharding *s = leaves[(*at)++];
    *out = whole;
    return hlo_shape_is_array(whole) ? spmd_local_shape(&w->p->grid, s, whole, w->arena, out) : NULL;
  }
  elements = WEFT_ARENA_ARRAY(w->scratch, const hlo_shape *, whole->rank);
  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < whole->rank; i++) WEFT_TRY(local_shape(w, whole->elements[i], leaves, at, &elements[i]));
  *out = hlo_shape_tuple(w->arena, whole->rank, elements);
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

static weft_status *local_shape_of(partitioner *w, const hlo_instr *instr, const hlo_shape **out)
{
  int at = 0;

  return local_shape(w, instr->shape, spmd_leaves_of(w->p, instr)->v, &at, out);
}

/* The tiles `x` of a tuple with shardings `have`, leaf by leaf in the shardings of `want`. */
static weft_status *tuple_as(partitioner *w, hlo_instr *x, const hlo_shape *whole, spmd_sharding *const *have,
                             spmd_sharding *const *want, int *at, hlo_instr **out)
{
  int first = *at, count = hlo_shape_leaf_count(whole);
  bool same = true;
  hlo_instr **elements;

  for (int i = first; i < first + count; i++) same &= spmd_sharding_equal(have[i], want[i]);
  *out = x;
  if (same) {
    *at += count;
    return NULL;
  }
  if (!hlo_shape_is_tuple(whole)) {
    WEFT_TRY(reshard(w, x, have[first], want[first], out));
    ++*at;
    return NULL;
  }
  elements = WEFT_ARENA_ARRAY(w->scratch, hlo_instr *, whole->rank);
  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < whole->rank; i++)
    WEFT_TRY(tuple_as(w, pb_gte(&w->b, x, i), whole->elements[i], have, want, at, &elements[i]));
  *out = pb_tuple(&w->b, whole->rank, elements);
  return pass_build_finish(&w->b);
}

static weft_status *value_as(partitioner *w, const hlo_instr *instr, const spmd_leaves *want, hlo_instr **out)
{
  const spmd_leaves *have = spmd_leaves_of(w->p, instr);
  int at = 0;

  if (hlo_shape_is_array(instr->shape)) return array_as(w, instr, want->v[0], out);
  return tuple_as(w, form_of(w, instr)->tile, instr->shape, have->v, want->v, &at, out);
}

static weft_status *whole_value(partitioner *w, const hlo_instr *instr, hlo_instr **out)
{
  const spmd_leaves *have = spmd_leaves_of(w->p, instr);
  spmd_leaves want = {.count = have->count, .v = WEFT_ARENA_ARRAY(w->scratch, spmd_sharding *, have->count)};

  WEFT_TRY_ALLOC(want.v);
  for (int i = 0; i < have->count; i++) WEFT_TRY(spmd_sharding_new(w->scratch, have->v[i]->rank, &want.v[i]));
  return value_as(w, instr, &want, out);
}

/* The results `x` in the sharding that propagation decided; `have` is by leaf. */
static weft_status *settle(partitioner *w, const hlo_instr *instr, hlo_instr *x, spmd_sharding *const *have)
{
  const spmd_leaves *want = spmd_leaves_of(w->p, instr);
  int at = 0;
  hlo_instr *tile;

  WEFT_TRY(tuple_as(w, x, instr->shape, have, want->v, &at, &tile));
  WEFT_TRY(add_form(w, instr, want->v[0], tile));
  return tile != x && hlo_shape_is_array(instr->shape) ? add_form(w, instr, have[0], x) : NULL;
}

/* ---- operations on arrays ---------------------------------------------------------------------------------------- */

/* One way to compute an operation. */
typedef struct choice {
  spmd_axes axes[SPMD_MAX_FACTORS]; /* by factor */
  spmd_sharding *tensors;           /* the shardings that operands must have and that results get */
  spmd_mask partial;                /* the axes of reduced factors */
  double cost;
} choice;

/* As much of tensor t's sharding as still fits. */
static void take_axes(const spmd_grid *grid, const spmd_factors *f, int t, const spmd_sharding *s, choice *c,
                      spmd_mask *used)
{
  spmd_axes axes[SPMD_MAX_FACTORS];

  spmd_factor_axes(grid, f, t, s, axes);
  for (int i = 0; i < f->count; i++) {
    if ((f->factor[i].is_moved && !f->factor[i].is_fetched) ||
        spmd_axes_common(&c->axes[i], &axes[i]) != c->axes[i].count)
      continue;
    for (int k = c->axes[i].count; k < axes[i].count && !(*used >> axes[i].v[k] & 1); k++) {
      spmd_axes_push(&c->axes[i], axes[i].v[k]);
      *used |= UINT32_C(1) << axes[i].v[k];
    }
  }
}

/* The operands that hold sums along axes along which the result is to hold sums too. */
static void keep_sums(const hlo_instr *instr, const spmd_factors *f, const spmd_sharding *const *have,
                      const spmd_sharding *result, choice *c)
{
  spmd_mask used = 0, kept = 0;

  if (!f->is_linear || f->tensor_count != f->operand_count + 1) return;
  for (int i = 0; i < f->count; i++) used |= spmd_axes_mask(&c->axes[i]);
  for (int t = 0; t < f->operand_count; t++) {
    c->tensors[t].unreduced = have[t]->unreduced & result->unreduced & ~used;
    kept |= c->tensors[t].unreduced;
  }
  for (int t = 0; t < f->operand_count && f->is_additive; t++)
    if (f->tensors[t].shape->type == f->tensors[f->operand_count].shape->type &&
        f->tensors[t].shape->rank == f->tensors[f->operand_count].shape->rank && !(instr->op == HLO_SELECT && t == 0))
      c->tensors[t].unreduced = kept;
  c->tensors[f->operand_count].unreduced = kept | (c->partial & result->unreduced);
}

/* The work of a partition, counted in bytes moved between partitions. These are guesses; only their order of
 * magnitude matters. */
static double work_of(const hlo_instr *instr, const spmd_grid *grid, const spmd_factors *f, const choice *c)
{
  double points = 1, bytes = 0;

  for (int i = 0; i < f->count; i++) points *= (double)f->factor[i].size / (double)spmd_axes_size(grid, &c->axes[i], 0);
  for (int t = 0; t < f->tensor_count; t++) {
    double part = hlo_shape_is_array(f->tensors[t].shape) ? (double)hlo_shape_bytes(f->tensors[t].shape) : 0;
    for (int d = 0; d < c->tensors[t].rank; d++) part /= (double)spmd_axes_size(grid, &c->tensors[t].dims[d], 0);
    bytes += part;
  }
  return bytes / 16 + (instr->op == HLO_DOT || instr->op == HLO_CONVOLUTION ? points / 64 : 0);
}

static weft_status *complete(partitioner *w, const hlo_instr *instr, const spmd_factors *f,
                             const spmd_sharding *const *have, spmd_sharding *const *want, choice *c)
{
  const spmd_grid *grid = &w->p->grid;
  int wrong;

  c->tensors = WEFT_ARENA_ARRAY(w->scratch, spmd_sharding, f->tensor_count);
  WEFT_TRY_ALLOC(c->tensors);
  for (int t = 0; t < f->tensor_count; t++) {
    spmd_sharding *made;
    WEFT_TRY(
      spmd_sharding_new(w->scratch, hlo_shape_is_array(f->tensors[t].shape) ? f->tensors[t].shape->rank : 0, &made));
    c->tensors[t] = *made;
  }
  for (int i = 0; i < f->count; i++)
    if (f->factor[i].in_parts && !spmd_parts_fit(instr, f, i, spmd_axes_size(grid, &c->axes[i], 0)))
      c->axes[i].count = 0;
  for (int t = 0; t < f->tensor_count;) { /* drops axes that some tensor cannot have, and looks again */
    if (spmd_factor_sharding(grid, f, t, c->axes, &c->tensors[t], &wrong)) {
      t++;
      continue;
    }
    c->axes[wrong].count = 0;
    t = 0;
  }
  c->partial = 0;
  for (int i = 0; i < f->count; i++)
    if (f->factor[i].is_reduced) c->partial |= spmd_axes_mask(&c->axes[i]);
  keep_sums(instr, f, have, want[0], c);
  c->cost = work_of(instr, grid, f, c) + spmd_edges_cost(grid, instr, f, c->axes, c->tensors);
  for (int t = 0; t < f->tensor_count; t++) {
    int r = t - f->operand_count;
    const form *from;
    double bytes;
    if (!hlo_shape_is_array(f->tensors[t].shape)) continue;
    if (r < 0) WEFT_TRY(nearest_form(w, instr->operands[t], &c->tensors[t], &from, &bytes));
    else
      WEFT_TRY(spmd_combine_cost(&w->mover, f->tensors[t].shape, &c->tensors[t], c->partial & ~c->tensors[t].unreduced,
                                 want[r], w->scratch, &bytes));
    c->cost += bytes;
  }
  return NULL;
}

/* The candidates: the result's axes alone; those and the operands' axes; each operand's axes first. */
static weft_status *choose(partitioner *w, const hlo_instr *instr, const spmd_factors *f,
                           const spmd_sharding *const *have, spmd_sharding *const *want, choice *best)
{
  enum { MAX_LEADS = 4 };
  const spmd_grid *grid = &w->p->grid;
  spmd_mask any = 0, sums = 0;

  for (int t = 0; t < f->tensor_count; t++)
    any |= spmd_sharding_axes(t < f->operand_count ? have[t] : want[t - f->operand_count]);
  for (int t = 0; f->is_linear && t < f->operand_count; t++) sums |= have[t]->unreduced & want[0]->unreduced;
  best->cost = -1;
  for (int lead = -2; lead < (any ? WEFT_MIN(f->operand_count, MAX_LEADS) : -1); lead++) {
    choice c = {.cost = 0};
    spmd_mask used = sums;
    if (lead >= 0) take_axes(grid, f, lead, have[lead], &c, &used);
    for (int t = f->operand_count; t < f->tensor_count; t++)
      take_axes(grid, f, t, want[t - f->operand_count], &c, &used);
    for (int t = 0; t < f->operand_count && lead != -2; t++) take_axes(grid, f, t, have[t], &c, &used);
    WEFT_TRY(complete(w, instr, f, have, want, &c));
    if (best->cost < 0 || c.cost < best->cost) *best = c;
  }
  return NULL;
}

static hlo_ints cut_ints(pass_build *b, hlo_ints v, const hlo_shape *whole, const hlo_shape *tile)
{
  int64_t cut[HLO_MAX_RANK];

  for (int d = 0; d < v.count; d++) cut[d] = whole->dims[d] == tile->dims[d] ? v.v[d] : tile->dims[d];
  return pb_ints(b, v.count, cut);
}

/* Attributes that contain sizes, which are those of tiles now. Cut dimensions are taken whole. */
static weft_status *fit_attributes(partitioner *w, const hlo_instr *instr, hlo_instr *made)
{
  pass_build *b = &w->b;

  switch (made->op) {
  case HLO_SLICE: {
    hlo_ints limit = cut_ints(b, instr->u.slice->limit, instr->shape, made->shape);
    if (limit.v) WEFT_TRY(hlo_set_slice(made, limit.count, instr->u.slice->start.v, limit.v, instr->u.slice->stride.v));
    break;
  }
  case HLO_DYNAMIC_SLICE: made->u.slice_sizes = pb_ints(b, made->shape->rank, made->shape->dims); break;
  case HLO_GATHER: {
    hlo_gather_attrs *g = weft_arena_memdup(w->arena, made->u.gather, sizeof *g);
    WEFT_TRY_ALLOC(g);
    g->slice_sizes = cut_ints(b, g->slice_sizes, instr->operands[0]->shape, made->operands[0]->shape);
    for (int i = 0; i < g->slice_sizes.count; i++) /* single rows stay single */
      if (instr->u.gather->slice_sizes.v[i] == 1) ((int64_t *)(uintptr_t)g->slice_sizes.v)[i] = 1;
    made->u.gather = g;
    break;
  }
  case HLO_CONVOLUTION: {
    int64_t from = instr->operands[0]->shape->dims[instr->u.conv->lhs_feature],
            to = made->operands[0]->shape->dims[instr->u.conv->lhs_feature];
    hlo_conv_attrs *c = weft_arena_memdup(w->arena, made->u.conv, sizeof *c);
    WEFT_TRY_ALLOC(c);
    if (c->feature_group_count > 1) c->feature_group_count = c->feature_group_count * to / from;
    made->u.conv = c;
    break;
  }
  case HLO_CUSTOM_CALL:
    if (made->u.custom->layout_count) {
      hlo_custom_call_attrs *c = weft_arena_memdup(w->arena, made->u.custom, sizeof *c);
      const hlo_shape **shapes = WEFT_ARENA_ARRAY(w->arena, const hlo_shape *, made->operand_count);
      WEFT_TRY_ALLOC(c);
      WEFT_TRY_ALLOC(shapes);
      for (int i = 0; i < made->operand_count && i < c->layout_count; i++) {
        hlo_shape *s = hlo_shape_array(w->arena, made->operands[i]->shape->type, made->operands[i]->shape->rank,
                                       made->operands[i]->shape->dims);
        WEFT_TRY_ALLOC(s);
        s->layout = c->operand_layouts[i]->layout;
        shapes[i] = s;
      }
      c->operand_layouts = shapes;
      made->u.custom = c;
    }
    break;
  default: break;
  }
  return pass_build_finish(b);
}

/* An iota along a cut dimension starts where this partition's tile begins. */
static weft_status *add_offset(partitioner *w, const hlo_instr *instr, const spmd_sharding *s, hlo_instr **x)
{
  const spmd_axes *axes = &s->dims[instr->dims.v[0]];
  hlo_instr *offset;

  if (!axes->count) return NULL;
  WEFT_TRY(spmd_number_along(&w->mover, &w->b, axes, (*x)->shape->dims[instr->dims.v[0]], &offset));
  *x = pb_add(&w->b, *x, pb_fill(&w->b, pb_convert(&w->b, offset, (*x)->shape->type), (*x)->shape));
  return pass_build_finish(&w->b);
}

/* A value that is the same everywhere is computed everywhere; but a call that a sharding gives to one partition is
 * made there. */
static weft_status *compute_whole(partitioner *w, const hlo_instr *instr)
{
  hlo_instr **operands = WEFT_ARENA_ARRAY(w->scratch, hlo_instr *, instr->operand_count), *made;
  const spmd_leaves *want = spmd_leaves_of(w->p, instr);
  spmd_sharding **whole = WEFT_ARENA_ARRAY(w->scratch, spmd_sharding *, want->count);
  int64_t only = spmd_only_partition(instr);

  WEFT_TRY_ALLOC(operands);
  WEFT_TRY_ALLOC(whole);
  for (int i = 0; i < instr->operand_count; i++) WEFT_TRY(whole_value(w, instr->operands[i], &operands[i]));
  for (int i = 0; i < want->count; i++) WEFT_TRY(spmd_sharding_new(w->scratch, want->v[i]->rank, &whole[i]));
  if (instr->op == HLO_CUSTOM_CALL && hlo_has_side_effect(instr) && only >= 0 && only < w->p->grid.device_count)
    WEFT_TRY(spmd_call_on_one(&w->mover, &w->b, instr, operands, only, &made));
  else made = pb_clone(&w->b, instr, operands);
  WEFT_TRY(pass_build_finish(&w->b));
  return settle(w, instr, made, whole);
}

static weft_status *compute(partitioner *w, const hlo_instr *instr)
{
  const spmd_leaves *want = spmd_leaves_of(w->p, instr);
  spmd_factors f;
  const spmd_sharding **have;
  spmd_sharding **got;
  hlo_instr **operands, *made;
  hlo_computation *reducer = NULL;
  choice c;

  WEFT_TRY(spmd_factors_of(instr, w->scratch, &f));
  if (f.count == 0 || hlo_has_side_effect(instr) != hlo_opcode_is_collective(instr->op)) return compute_whole(w, instr);
  have = WEFT_ARENA_ARRAY(w->scratch, const spmd_sharding *, f.operand_count);
  operands = WEFT_ARENA_ARRAY(w->scratch, hlo_instr *, f.operand_count);
  got = WEFT_ARENA_ARRAY(w->scratch, spmd_sharding *, want->count);
  WEFT_TRY_ALLOC(have);
  WEFT_TRY_ALLOC(operands);
  WEFT_TRY_ALLOC(got);
  for (int t = 0; t < f.operand_count; t++) have[t] = form_of(w, instr->operands[t])->s;
  WEFT_TRY(choose(w, instr, &f, have, want->v, &c));
  for (int t = 0; t < f.operand_count; t++) WEFT_TRY(array_as(w, instr->operands[t], &c.tensors[t], &operands[t]));
  for (int i = 0; i < want->count; i++) got[i] = &c.tensors[f.operand_count + i];
  if (instr->op == HLO_CONSTANT) {
    spmd_sharding *whole;
    WEFT_TRY(spmd_sharding_new(w->scratch, instr->shape->rank, &whole));
    made = pb_clone(&w->b, instr, NULL);
    WEFT_TRY(pass_build_finish(&w->b));
    return settle(w, instr, made, &whole);
  }
  if (c.partial && f.counted_once >= 0) {
    spmd_axes axes = {0};
    for (int a = 0; a < w->p->grid.count; a++)
      if (c.partial >> a & 1) spmd_axes_push(&axes, a);
    WEFT_TRY(spmd_keep_first(&w->mover, &w->b, operands[f.counted_once], &axes, &operands[f.counted_once]));
  }
  if (spmd_edges_needed(&f, c.axes)) WEFT_TRY(spmd_edges_fetch(&w->mover, &w->b, instr, &f, c.axes, operands));
  made = pb_clone(&w->b, instr, operands);
  WEFT_TRY(pass_build_finish(&w->b));
  {
    int at = 0;
    WEFT_TRY(local_shape(w, instr->shape, got, &at, &made->shape));
  }
  WEFT_TRY(fit_attributes(w, instr, made));
  WEFT_TRY(spmd_edges_finish(&w->mover, &w->b, instr, &f, c.axes, operands, &made));
  if (instr->op == HLO_IOTA) WEFT_TRY(add_offset(w, instr, got[0], &made));
  c.partial &= ~got[0]->unreduced;
  if (spmd_parts_needed(&f, c.axes)) {
    WEFT_TRY(spmd_parts_compute(&w->mover, &w->b, instr, &f, c.axes, made, &made));
    if (instr->op == HLO_REDUCE) c.partial = 0; /* whole already */
    /* zeros everywhere but on the owner */
    if (c.partial && (instr->op == HLO_GATHER || instr->op == HLO_DYNAMIC_SLICE)) {
      WEFT_TRY(spmd_parts_combine(&w->mover, &w->b, made, got[0], c.partial, want->v[0], &made));
      return add_form(w, instr, want->v[0], made);
    }
  }
  if (!c.partial) return settle(w, instr, made, got);
  if (instr->op == HLO_REDUCE) reducer = instr->called[0];
  WEFT_TRY(spmd_combine(&w->mover, &w->b, made, got[0], c.partial, reducer, want->v[0], &made));
  return add_form(w, instr, want->v[0], made);
}

/* ---- all other instructions ------------------------------------------------------------------------------------ */

/* Instructions on tiles as they are: operand i comes in the shardings wants[i] (NULL: in those that propagation
 * decided), and the result has the shape that the shardings of its leaves give. */
static weft_status *carry_over(partitioner *w, const hlo_instr *instr, const spmd_leaves *const *wants)
{
  hlo_instr **operands = WEFT_ARENA_ARRAY(w->scratch, hlo_instr *, instr->operand_count), *made;
  const spmd_leaves *leaves = spmd_leaves_of(w->p, instr);

  WEFT_TRY_ALLOC(operands);
  for (int i = 0; i < instr->operand_count; i++) {
    if (wants && wants[i]) WEFT_TRY(value_as(w, instr->operands[i], wants[i], &operands[i]));
    else operands[i] = form_of(w, instr->operands[i])->tile;
  }
  made = pb_clone(&w->b, instr, operands);
  WEFT_TRY(pass_build_finish(&w->b));
  WEFT_TRY(local_shape_of(w, instr, &made->shape));
  return add_form(w, instr, leaves->count ? leaves->v[0] : NULL, made);
}

static weft_status *conditional(partitioner *w, const hlo_instr *instr)
{
  spmd_leaves whole = {.count = 1, .v = WEFT_ARENA_ARRAY(w->scratch, spmd_sharding *, 1)};
  const spmd_leaves **wants = WEFT_ARENA_ARRAY(w->scratch, const spmd_leaves *, instr->operand_count);

  WEFT_TRY_ALLOC(whole.v);
  WEFT_TRY_ALLOC(wants);
  WEFT_TRY(spmd_sharding_new(w->scratch, 0, &whole.v[0]));
  wants[0] = &whole;
  return carry_over(w, instr, wants);
}

/* A sharding that no axes express, as a list of devices. */
static weft_status *odd_tiling(partitioner *w, const hlo_sharding *given, const hlo_shape *shape, spmd_tiling *out)
{
  if (given && given->kind == HLO_SHARDING_NAMED)
    WEFT_TRY(hlo_sharding_from_named(w->arena, given, shape->rank, &given));
  if (!hlo_shape_is_array(shape))
    return WEFT_ERR(UNIMPLEMENTED, "a tuple sharded over a mesh that does not fit the others");
  return spmd_tiling_of(given, shape->rank, w->p->grid.device_count, w->arena, out);
}

/* The sharding at a border joined with that of the region's array: manual axes first. Sums over manual axes are
 * partial arrays inside. */
static weft_status *join(partitioner *w, const spmd_border *border, const spmd_sharding *inner, spmd_sharding **out)
{
  WEFT_TRY(spmd_sharding_new(w->scratch, inner->rank, out));
  (*out)->unreduced = border->manual.unreduced;
  for (int d = 0; d < inner->rank; d++) {
    (*out)->dims[d] = border->manual.dims[d];
    for (int i = 0; i < inner->dims[d].count; i++) spmd_axes_push(&(*out)->dims[d], inner->dims[d].v[i]);
  }
  return NULL;
}

/* Only axes that the region does not manage can cut arrays inside it. */
static weft_status *inner_form(partitioner *w, const spmd_border *border, const spmd_sharding *s, spmd_sharding **out)
{
  WEFT_TRY(spmd_sharding_new(w->scratch, s->rank, out));
  for (int d = 0; d < s->rank; d++)
    for (int i = 0; i < s->dims[d].count && !(border->axes >> s->dims[d].v[i] & 1); i++)
      spmd_axes_push(&(*out)->dims[d], s->dims[d].v[i]);
  return NULL;
}

static weft_status *cross_border(partitioner *w, const hlo_instr *instr, const spmd_border *border)
{
  const hlo_instr *operand = instr->operands[0];
  spmd_sharding *inner, *outer;
  hlo_instr *x;

  if (!border->fits) {
    spmd_tiling tiling;
    const hlo_shape *full = border->enters ? operand->shape : instr->shape;
    WEFT_TRY(odd_tiling(w, border->given, full, &tiling));
    WEFT_TRY(whole_value(w, operand, &x));
    if (border->enters) WEFT_TRY(spmd_slice(&w->mover, &w->b, x, &tiling, &x));
    else WEFT_TRY(spmd_gather(&w->mover, &w->b, x, &tiling, &x));
    WEFT_TRY(spmd_sharding_new(w->scratch, full->rank, &outer));
    return settle(w, instr, x, &outer);
  }
  WEFT_TRY(inner_form(w, border, spmd_leaves_of(w->p, border->enters ? instr : operand)->v[0], &inner));
  WEFT_TRY(join(w, border, inner, &outer));
  WEFT_TRY(array_as(w, operand, border->enters ? outer : inner, &x));
  return settle(w, instr, x, border->enters ? &inner : &outer);
}

/* The parameter gets the shape of its tile. From here on `*out_old` takes the place of the whole array for its
 * users. A parameter that is cut in a way that no axes express is assembled at once. */
static weft_status *parameter(partitioner *w, hlo_instr *param, hlo_instr **out_old)
{
  const spmd_leaves *leaves = spmd_leaves_of(w->p, param);
  hlo_module *module = w->p->module;
  bool is_entry = param->parent == module->entry;
  int64_t number = param->u.parameter_number;
  hlo_instr *x = param;

  WEFT_TRY(hlo_add(param->parent, param->next, HLO_BITCAST, param->shape, 0, NULL, NULL, out_old));
  WEFT_TRY(hlo_replace_uses(param, *out_old));
  WEFT_TRY(pass_map_set(&w->p->leaves, (*out_old)->id, (void *)(uintptr_t)leaves));
  if (is_entry && !w->p->params_fit[number]) {
    spmd_tiling tiling;
    WEFT_TRY_NOTE(odd_tiling(w, param->extra->sharding, param->shape, &tiling), "parameter %lld", (long long)number);
    WEFT_TRY(spmd_tile_shape(&tiling, param->shape, w->arena, &param->shape));
    WEFT_TRY(spmd_gather(&w->mover, &w->b, param, &tiling, &x));
  } else {
    WEFT_TRY(local_shape_of(w, param, &param->shape));
  }
  return add_form(w, *out_old, leaves->count ? leaves->v[0] : NULL, x);
}

/* A host callback that each partition makes with the tiles that it has (jax.debug.callback(..., partitioned=True)). */
static bool sees_tiles(const hlo_instr *instr)
{
  return instr->op == HLO_CUSTOM_CALL && strstr(instr->u.custom->target, "_partitioned_python_");
}

static weft_status *call_on_tiles(partitioner *w, const hlo_instr *instr)
{
  WEFT_TRY(carry_over(w, instr, NULL));
  return fit_attributes(w, instr, form_of(w, instr)->tile);
}

/* A call for which a client gives the program on tiles, or whose sharding a client wants to see. */
static weft_status *custom_call(partitioner *w, const hlo_instr *instr, const pass_custom_partitioner *custom)
{
  spmd_sharding **have = WEFT_ARENA_ARRAY(w->scratch, spmd_sharding *, instr->operand_count);
  hlo_instr **operands = WEFT_ARENA_ARRAY(w->scratch, hlo_instr *, instr->operand_count), *made;
  spmd_custom_call call;

  WEFT_TRY_ALLOC(have);
  WEFT_TRY_ALLOC(operands);
  for (int i = 0; i < instr->operand_count; i++) have[i] = spmd_leaves_of(w->p, instr->operands[i])->v[0];
  if (custom->inspect && instr->operand_count == 1 && hlo_shape_equal(instr->shape, instr->operands[0]->shape, false)) {
    WEFT_TRY(spmd_custom_inspect(&w->mover, instr, custom, have[0]));
    return settle(w, instr, form_of(w, instr->operands[0])->tile, have);
  }
  if (!custom->partition) return compute(w, instr);
  WEFT_TRY(spmd_custom_ask(&w->mover, instr, custom, have, spmd_leaves_of(w->p, instr)->v, w->scratch, &call));
  for (int i = 0; i < instr->operand_count; i++)
    WEFT_TRY(array_as(w, instr->operands[i], &call.operands[i], &operands[i]));
  WEFT_TRY(spmd_custom_inline(&w->b, &call, operands, w->scratch, &made));
  return settle(w, instr, made, call.results);
}

static weft_status *partition_instr(partitioner *w, hlo_instr *instr)
{
  const pass_custom_partitioner *custom = spmd_custom_of(instr);
  const spmd_border *border = pass_map_get(&w->p->borders, instr->id);
  const spmd_leaves *leaves = spmd_leaves_of(w->p, instr);
  hlo_instr *x;

  if (border) return cross_border(w, instr, border);
  if (spmd_is_call_to(instr, "Sharding") && hlo_shape_is_array(instr->shape)) {
    WEFT_TRY(array_as(w, instr->operands[0], leaves->v[0], &x));
    return add_form(w, instr, leaves->v[0], x);
  }
  if (sees_tiles(instr)) return call_on_tiles(w, instr);
  if (custom) return custom_call(w, instr, custom);
  switch (instr->op) {
  case HLO_TUPLE:
  case HLO_GET_TUPLE_ELEMENT:
  case HLO_OPT_BARRIER:
  case HLO_ADD_DEPENDENCY:
  case HLO_DOMAIN:
  case HLO_CALL: return carry_over(w, instr, NULL);
  case HLO_WHILE: return carry_over(w, instr, &leaves);
  case HLO_CONDITIONAL: return conditional(w, instr);
  default: return compute(w, instr);
  }
}

/* Control edges between old instructions are made again between the new ones. */
static weft_status *copy_control_edges(partitioner *w, const hlo_instr *instr)
{
  for (int i = 0; i < instr->control->pred_count; i++) {
    const form *from = form_of(w, instr->control->preds[i]), *to = form_of(w, instr);
    if (from && to && from->tile != to->tile && to->tile->op != HLO_PARAMETER)
      WEFT_TRY(hlo_add_control_edge(from->tile, to->tile));
  }
  return NULL;
}

/* Cuts results of the entry whose shardings no axes express. */
static weft_status *cut_odd_results(partitioner *w, const hlo_instr *old_root, hlo_instr **root)
{
  const spmd_program *p = w->p;
  const hlo_sharding *given = p->module->spmd_output_sharding;
  bool is_tuple = hlo_shape_is_tuple(old_root->shape), odd = false;
  int count = is_tuple ? old_root->shape->rank : 1;
  hlo_instr **elements = WEFT_ARENA_ARRAY(w->scratch, hlo_instr *, count);

  WEFT_TRY_ALLOC(elements);
  for (int i = 0; i < p->results.count; i++) odd |= !p->results_fit[i];
  if (!odd) return NULL;
  if (p->results.count != count)
    return WEFT_ERR(UNIMPLEMENTED, "nested results sharded over a mesh that does not fit the others");
  for (int i = 0; i < count; i++) {
    const hlo_sharding *s = is_tuple && given ? given->elements[i] : given;
    spmd_tiling tiling;
    elements[i] = is_tuple ? pb_gte(&w->b, *root, i) : *root;
    WEFT_TRY(pass_build_finish(&w->b));
    if (p->results_fit[i]) continue;
    WEFT_TRY_NOTE(odd_tiling(w, s, elements[i]->shape, &tiling), "result %d", i);
    WEFT_TRY(spmd_slice(&w->mover, &w->b, elements[i], &tiling, &elements[i]));
  }
  *root = is_tuple ? pb_tuple(&w->b, count, elements) : elements[0];
  return pass_build_finish(&w->b);
}

weft_status *spmd_partition(spmd_program *p, int64_t *next_channel, hlo_computation *comp)
{
  partitioner w = {.p = p, .arena = p->arena, .scratch = p->scratch, .forms = {.arena = p->scratch}, .b = PASS_BUILD_IN(comp),
                   .mover = {.module = p->module, .arena = p->arena, .grid = &p->grid, .next_channel = *next_channel}};
  const spmd_leaves *want = pass_map_get(&p->roots, comp->id);
  hlo_instr *old_root, *root, **old = WEFT_ARENA_ARRAY(p->scratch, hlo_instr *, comp->instr_count);
  int count = 0;

  WEFT_TRY_ALLOC(old);
  HLO_FOREACH(instr, comp) old[count++] = instr;
  for (int i = 0; i < count; i++) {
    w.b.origin = old[i];
    WEFT_TRY(old[i]->op == HLO_PARAMETER ? parameter(&w, old[i], &old[i]) : partition_instr(&w, old[i]));
    if (pass_has_control_edges(old[i])) WEFT_TRY(copy_control_edges(&w, old[i]));
  }
  old_root = comp->root;
  WEFT_TRY(value_as(&w, old_root, want ? want : spmd_leaves_of(p, old_root), &root));
  if (comp == p->module->entry) WEFT_TRY(cut_odd_results(&w, old_root, &root));
  comp->root = root;
  for (int i = count - 1; i >= 0; i--) {
    hlo_remove_control_edges(old[i]);
    WEFT_TRY(hlo_remove(old[i]));
  }
  *next_channel = w.mover.next_channel;
  return NULL;
}
