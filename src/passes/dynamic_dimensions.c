/* passes/dynamic_dimensions.c -- dynamic-dimensions: arrays whose sizes are known only at run time become arrays of
 * their bounds.
 *
 *   set-dimension-size     becomes its operand; the size, an s32, goes to the users
 *   get-dimension-size     becomes that size, or the bound of a static dimension
 *   while, conditional     carry the sizes of what they carry: their tuples grow by an s32 for each
 *   reshapes that move elements   become a gather, whose indices follow from the sizes
 *
 * The elements between the size and the bound are undefined. Where they would influence a result they are first
 * replaced by something that does not: the initial value of a reduction, zero in a product, what sorts last, an
 * index that is skipped. In a result of the program they are zero. Parameters have their full size. An operation
 * that is not listed in `follow` is UNIMPLEMENTED. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"
#include "passes/util.h"

typedef struct sizes { hlo_instr *v[HLO_MAX_RANK]; } sizes; /* by dimension; NULL: the whole dimension */

/* The sizes that a loop or a branch passes on. */
typedef struct carried {
  int count;
  struct carried_size { int leaf, dim; } *v;
} carried;

typedef struct tracker {
  weft_arena *arena;
  pass_map known;   /* instruction -> the sizes of each leaf, if one of them is dynamic */
  pass_map results; /* computation -> carried: what its root gives in addition */
  pass_build b;     /* new instructions go before the current one */
  const hlo_shape *declared; /* the shape of the current instruction, with its dynamic dimensions */
  bool *changed;
} tracker;

static const sizes *sizes_of(const tracker *t, const hlo_instr *x) { return pass_map_get(&t->known, x->id); }

static hlo_instr *bound_of(tracker *t, const hlo_shape *s, int64_t dim)
{
  return pb_int(&t->b, WEFT_S32, s->dims[dim]);
}

static hlo_instr *size_of(tracker *t, const hlo_instr *x, int64_t dim)
{
  const sizes *s = sizes_of(t, x);
  return s && s->v[dim] ? s->v[dim] : bound_of(t, x->shape, dim);
}

static weft_status *unimplemented(const hlo_instr *instr, const char *why)
{
  char where[160];
  return WEFT_ERR(UNIMPLEMENTED, "%s of an array whose size is known only at run time%s (%s)",
                  hlo_opcode_name(instr->op), why, hlo_describe(instr, where, sizeof where));
}

static bool any_size(const sizes *s, int count)
{
  for (int i = 0; s && i < count; i++)
    for (int d = 0; d < HLO_MAX_RANK; d++)
      if (s[i].v[d]) return true;
  return false;
}

/* Records the sizes of the leaves of x; records nothing if all dimensions are whole. */
static weft_status *note(tracker *t, const hlo_instr *x, const sizes *s)
{
  int count = hlo_shape_leaf_count(x->shape);

  if (!any_size(s, count)) return NULL;
  sizes *kept = weft_arena_memdup(t->arena, s, (size_t)count * sizeof *s);
  WEFT_TRY_ALLOC(kept);
  return pass_map_set(&t->known, x->id, kept);
}

/* Makes every dimension of `s` static, with its bound as size. `s` and its leaves must be a copy of the caller's
 * own. */
static void forget_dynamic(hlo_shape *s)
{
  s->dynamic = NULL;
  for (int i = 0; hlo_shape_is_tuple(s) && i < s->rank; i++) forget_dynamic((hlo_shape *)s->elements[i]);
}

static weft_status *static_shape(hlo_instr *instr)
{
  hlo_shape *copy;

  if (!hlo_shape_is_dynamic(instr->shape)) return NULL;
  instr->shape = copy = hlo_shape_copy(&instr->parent->module->arena, instr->shape);
  WEFT_TRY_ALLOC(copy);
  forget_dynamic(copy);
  return NULL;
}

static weft_status *replace(tracker *t, hlo_instr *instr, hlo_instr *with)
{
  *t->changed = true;
  return pass_build_replace(&t->b, instr, with);
}

/* Makes room for the sizes of the leaves of a shape, all of them whole. */
static weft_status *new_sizes(tracker *t, const hlo_shape *shape, sizes **out)
{
  *out = WEFT_ARENA_ARRAY(t->arena, sizes, WEFT_MAX(1, hlo_shape_leaf_count(shape)));
  WEFT_TRY_ALLOC(*out);
  return NULL;
}

/* True where the place along each dimension of `dims` is below its size, with that shape; NULL if all dimensions are
 * whole. */
static hlo_instr *inside(tracker *t, const hlo_shape *shape, weft_arena *arena, const sizes *s, hlo_ints dims)
{
  const hlo_shape *places = hlo_shape_with_type(arena, shape, WEFT_S32);
  hlo_instr *all = NULL;

  for (int i = 0; i < dims.count; i++) {
    hlo_instr *size = s->v[dims.v[i]];
    if (!size) continue;
    hlo_instr *one = pb_compare(&t->b, HLO_LT, pb_iota(&t->b, places, dims.v[i]), pb_fill(&t->b, size, places));
    all = all ? pb_op2(&t->b, HLO_AND, all, one) : one;
  }
  return all;
}

static const int64_t every_dim[HLO_MAX_RANK] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

/* x with `filler`, a scalar, behind the sizes of those dimensions. */
static hlo_instr *masked(tracker *t, hlo_instr *x, const sizes *s, hlo_ints dims, hlo_instr *filler)
{
  hlo_instr *in = inside(t, x->shape, &x->parent->module->arena, s, dims);
  return in ? pb_select(&t->b, in, x, pb_fill(&t->b, filler, x->shape)) : x;
}

static weft_status *mask_operand(tracker *t, hlo_instr *instr, int k, const sizes *s, hlo_ints dims, hlo_instr *filler)
{
  hlo_instr *x = masked(t, instr->operands[k], s, dims, filler);
  return x && x != instr->operands[k] ? hlo_set_operand(instr, k, x) : NULL;
}

static void merge(sizes *into, const sizes *more, int rank)
{
  for (int d = 0; more && d < rank; d++)
    if (!into->v[d]) into->v[d] = more->v[d];
}

/* The size that results from two sizes: one element is repeated as often as the other operand has elements. */
static hlo_instr *common_size(tracker *t, hlo_instr *a, hlo_instr *b)
{
  hlo_instr *least = pb_op2(&t->b, HLO_MINIMUM, a, b), *most = pb_op2(&t->b, HLO_MAXIMUM, a, b);
  return pb_select(&t->b, pb_compare(&t->b, HLO_EQ, least, pb_int(&t->b, WEFT_S32, 1)), most, least);
}

/* Operands whose sizes along a dimension are different values: an operand with one element there is repeated. */
static weft_status *follow_elementwise(tracker *t, hlo_instr *instr, sizes *out)
{
  pass_build *b = &t->b;
  sizes differs = {{0}};

  for (int k = 0; k < instr->operand_count; k++) {
    const hlo_instr *x = instr->operands[k];
    const sizes *s = x->shape->rank == instr->shape->rank ? sizes_of(t, x) : NULL;
    for (int d = 0; s && d < instr->shape->rank; d++) {
      hlo_instr *size = s->v[d];
      if (size && out->v[d] && size != out->v[d]) differs.v[d] = size = common_size(t, out->v[d], size);
      if (size) out->v[d] = size;
    }
  }
  for (int64_t d = 0; d < instr->shape->rank; d++)
    for (int k = 0; differs.v[d] && k < instr->operand_count; k++) {
      hlo_instr *x = instr->operands[k], *one;
      const sizes *s = x->shape->rank == instr->shape->rank ? sizes_of(t, x) : NULL;
      int64_t dims[HLO_MAX_RANK], map[HLO_MAX_RANK];
      int n = 0;
      if (!s || !s->v[d] || x->shape->dims[d] == 0) continue;
      for (int i = 0; i < x->shape->rank; i++)
        if (i != d) dims[n] = x->shape->dims[i], map[n++] = i;
      one = pb_reshape(b, pb_slice_dim(b, x, d, 0, 1), n, dims);
      one = pb_broadcast(b, one, x->shape->rank, x->shape->dims, map);
      hlo_instr *repeats = pb_fill(b, pb_compare(b, HLO_EQ, s->v[d], pb_int(b, WEFT_S32, 1)), x->shape);
      hlo_instr *with = pb_select(b, repeats, one, x);
      WEFT_TRY(pass_build_finish(b));
      WEFT_TRY(note(t, with, s));
      WEFT_TRY(hlo_set_operand(instr, k, with));
    }
  return NULL;
}

/* ---- scalar arithmetic on sizes ---------------------------------------------------------------------------------- */

static hlo_instr *plus(tracker *t, hlo_instr *size, int64_t n)
{
  return n ? pb_add(&t->b, size, pb_int(&t->b, WEFT_S32, n)) : size;
}
static hlo_instr *over(tracker *t, hlo_instr *size, int64_t n)
{
  return n == 1 ? size : pb_div(&t->b, size, pb_int(&t->b, WEFT_S32, n));
}
static hlo_instr *times(tracker *t, hlo_instr *size, int64_t n)
{
  return n == 1 ? size : pb_mul(&t->b, size, pb_int(&t->b, WEFT_S32, n));
}
static hlo_instr *at_least(tracker *t, hlo_instr *size, int64_t n)
{
  return pb_op2(&t->b, HLO_MAXIMUM, size, pb_int(&t->b, WEFT_S32, n));
}
static hlo_instr *at_most(tracker *t, hlo_instr *size, int64_t n)
{
  return pb_op2(&t->b, HLO_MINIMUM, size, pb_int(&t->b, WEFT_S32, n));
}

/* ---- reductions and windows -------------------------------------------------------------------------------------- */

/* The sizes that the inputs have together. Behind them, along `dims`, each input gets its initial value. */
static weft_status *mask_inputs(tracker *t, hlo_instr *reduce, hlo_ints dims, sizes *all)
{
  int n = reduce->operand_count / 2, rank = reduce->operands[0]->shape->rank;

  for (int k = 0; k < n; k++) merge(all, sizes_of(t, reduce->operands[k]), rank);
  for (int k = 0; k < n; k++) WEFT_TRY(mask_operand(t, reduce, k, all, dims, reduce->operands[n + k]));
  return NULL;
}

static weft_status *follow_reduce(tracker *t, hlo_instr *reduce, sizes *out)
{
  int rank = reduce->operands[0]->shape->rank;
  sizes all = {{0}};

  WEFT_TRY(mask_inputs(t, reduce, reduce->dims, &all));
  for (int d = 0, kept = 0; d < rank; d++)
    if (!pass_ints_contain(reduce->dims, d)) out->v[kept++] = all.v[d];
  return NULL;
}

static weft_status *follow_reduce_window(tracker *t, hlo_instr *reduce, sizes *out)
{
  const hlo_window *w = reduce->u.window;
  sizes all = {{0}};

  WEFT_TRY(mask_inputs(t, reduce, (hlo_ints){w->rank, every_dim}, &all));
  for (int d = 0; d < w->rank; d++) {
    const hlo_window_dim *dim = &w->dims[d];
    if (!(out->v[d] = all.v[d])) continue;
    hlo_instr *based = plus(t, times(t, plus(t, out->v[d], -1), dim->base_dilation), 1);
    hlo_instr *room = plus(t, based, dim->pad_low + dim->pad_high - ((dim->size - 1) * dim->window_dilation + 1));
    out->v[d] = over(t, at_least(t, plus(t, room, dim->stride), 0), dim->stride);
  }
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
  /* masked on both sides, because zero times an undefined value need not be zero: each operand gets the other's
   * sizes */
  for (int k = 0; k < 2; k++) {
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

/* ---- moving elements --------------------------------------------------------------------------------------------- */

/* Each part is written over what the part before it has behind its size. */
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
    if (!(out->v[d] = s->v[d]) || (p->low == 0 && p->high == 0 && p->interior == 0)) continue;
    WEFT_TRY(mask_operand(t, pad, 0, s, (hlo_ints){1, &d}, pad->operands[1]));
    hlo_instr *holes = p->interior ? times(t, at_least(t, plus(t, s->v[d], -1), 0), p->interior) : NULL;
    out->v[d] = plus(t, holes ? pb_add(&t->b, s->v[d], holes) : s->v[d], p->low + p->high);
    if (p->low + p->high < 0) out->v[d] = at_least(t, out->v[d], 0);
  }
  return NULL;
}

static void follow_slice(tracker *t, const hlo_instr *slice, sizes *out)
{
  const sizes *s = sizes_of(t, slice->operands[0]);

  for (int d = 0; s && d < slice->shape->rank; d++) {
    int64_t start = slice->u.slice->start.v[d], limit = slice->u.slice->limit.v[d],
            step = slice->u.slice->stride.count ? slice->u.slice->stride.v[d] : 1;
    if (!s->v[d] || slice->shape->dims[d] == 1) continue; /* one element exists, whatever the size is */
    out->v[d] = s->v[d];
    if (limit < slice->operands[0]->shape->dims[d]) out->v[d] = at_most(t, out->v[d], limit);
    if (start > 0) out->v[d] = at_least(t, plus(t, out->v[d], -start), 0);
    out->v[d] = over(t, plus(t, out->v[d], step - 1), step);
  }
}

/* The elements of a reversed whole array stand at its end; they move to the front. */
static hlo_instr *reversed(tracker *t, const hlo_instr *reverse, sizes *out)
{
  hlo_instr *x = reverse->operands[0], *y = pb_clone(&t->b, reverse, NULL);

  merge(out, sizes_of(t, x), reverse->shape->rank);
  for (int i = 0; i < reverse->dims.count; i++) {
    int64_t d = reverse->dims.v[i], bound = reverse->shape->dims[d];
    hlo_pad_dim pads[HLO_MAX_RANK] = {{0}};
    if (!out->v[d]) continue;
    pads[d].high = bound;
    y = pb_pad(&t->b, y, pb_scalar(&t->b, x->shape->type, 0), pads);
    y = pb_slice_at(&t->b, y, d, pb_sub(&t->b, pb_int(&t->b, WEFT_S32, bound), out->v[d]), bound);
  }
  return y;
}

static weft_status *follow_dynamic_slice(tracker *t, const hlo_instr *slice, sizes *out)
{
  const hlo_instr *x = slice->operands[0];
  const sizes *s = sizes_of(t, x);

  for (int d = 0; s && d < slice->shape->rank; d++) {
    if (!s->v[d] || slice->shape->dims[d] == 1) continue;
    if (slice->shape->dims[d] != x->shape->dims[d]) return unimplemented(slice, ", along it");
    out->v[d] = s->v[d];
  }
  return NULL;
}

/* Only the elements that the update has are written. */
static weft_status *follow_update(tracker *t, hlo_instr *update, sizes *out)
{
  hlo_instr *x = update->operands[0], *part = update->operands[1], *operands[HLO_MAX_RANK + 1] = {x};
  const sizes *s = sizes_of(t, part);
  int rank = update->shape->rank;

  for (int d = 0; s && d < rank; d++)
    if (part->shape->dims[d] == x->shape->dims[d]) out->v[d] = s->v[d];
  merge(out, sizes_of(t, x), rank);
  hlo_instr *given = s ? inside(t, part->shape, &part->parent->module->arena, s, (hlo_ints){rank, every_dim}) : NULL;
  if (!given) return NULL;
  for (int d = 0; d < rank; d++) operands[d + 1] = update->operands[d + 2];
  hlo_instr *old = pb_instr(&t->b, HLO_DYNAMIC_SLICE, part->shape, rank + 1, operands);
  if (old) old->u.slice_sizes = pb_ints(&t->b, rank, part->shape->dims);
  hlo_instr *with = pb_select(&t->b, given, part, old);
  return with ? hlo_set_operand(update, 1, with) : NULL;
}

/* The dimension of `indices` for number `batch` of the dimensions of the result (or updates) that belong to no
 * window. */
static int64_t index_dim(int64_t index_vector_dim, int batch) { return batch + (batch >= index_vector_dim); }

static weft_status *follow_gather(tracker *t, const hlo_instr *gather, sizes *out)
{
  const hlo_gather_attrs *g = gather->u.gather;
  const hlo_instr *x = gather->operands[0];
  const sizes *s = sizes_of(t, x), *of_indices = sizes_of(t, gather->operands[1]);
  int batch = 0, window = 0;

  for (int d = 0; d < gather->shape->rank; d++) {
    if (pass_ints_contain(g->offset_dims, d)) continue;
    int64_t from = index_dim(g->index_vector_dim, batch++);
    out->v[d] = of_indices ? of_indices->v[from] : NULL;
  }
  if (of_indices && g->index_vector_dim < gather->operands[1]->shape->rank && of_indices->v[g->index_vector_dim])
    return unimplemented(gather, ", along the vectors of indices");
  for (int64_t d = 0; d < x->shape->rank; d++) {
    bool is_point = pass_ints_contain(g->collapsed_slice_dims, d) || pass_ints_contain(g->operand_batching_dims, d);
    int64_t at = is_point ? -1 : g->offset_dims.v[window++];
    if (!s || !s->v[d] || g->slice_sizes.v[d] == 1) continue;
    if (at < 0 || g->slice_sizes.v[d] != x->shape->dims[d]) return unimplemented(gather, ", along it");
    out->v[at] = s->v[d];
  }
  return NULL;
}

/* Updates behind the sizes go to the largest index, which is skipped. */
static weft_status *follow_scatter(tracker *t, hlo_instr *scatter, sizes *out)
{
  const hlo_scatter_attrs *a = scatter->u.scatter;
  int n = scatter->operand_count / 2, batch = 0;
  const hlo_instr *indices = scatter->operands[n];
  weft_dtype type = indices->shape->type;
  sizes places = {{0}};

  for (int k = 0; k < n; k++) merge(out, sizes_of(t, scatter->operands[k]), scatter->operands[k]->shape->rank);
  merge(&places, sizes_of(t, indices), indices->shape->rank);
  for (int d = 0, window = 0; d < scatter->operands[n + 1]->shape->rank; d++) {
    bool in_window = pass_ints_contain(a->update_window_dims, d);
    int64_t at = in_window ? -1 : index_dim(a->index_vector_dim, batch++), target = 0;
    if (in_window) {
      for (int seen = 0; pass_ints_contain(a->inserted_window_dims, target) ||
                         pass_ints_contain(a->input_batching_dims, target) || seen++ < window;)
        target++;
      window++;
    }
    for (int k = 0; k < n; k++) {
      const sizes *s = sizes_of(t, scatter->operands[n + 1 + k]);
      if (!s || !s->v[d]) continue;
      if (in_window && !out->v[target])
        return unimplemented(scatter, ", in the windows of updates of one that is whole");
      if (!in_window && !places.v[at]) places.v[at] = s->v[d];
    }
  }
  if (!any_size(&places, 1)) return NULL;
  if (!weft_dtype_is_integer(type)) return unimplemented(scatter, ", by such indices");
  int bits = weft_dtype_bits(type) - weft_dtype_is_signed(type);
  hlo_instr *skipped = pb_int(&t->b, type, bits >= 63 ? INT64_MAX : (INT64_C(1) << bits) - 1);
  return mask_operand(t, scatter, n, &places, (hlo_ints){indices->shape->rank, every_dim}, skipped);
}

/* ---- sort -------------------------------------------------------------------------------------------------------- */

/* comp(a, b, ..., a', b') = a' == b' ? less(a, b, ...) : a': elements that exist come before those that do not. */
static weft_status *with_presence(hlo_computation *less, hlo_computation *before, hlo_computation **out)
{
  const hlo_shape *pred = hlo_shape_array(&less->module->arena, WEFT_PRED, 0, NULL);
  hlo_instr *here[2];

  WEFT_TRY_ALLOC(pred);
  WEFT_TRY(hlo_computation_clone(less->module, less, less->name, before, out));
  for (int i = 0; i < 2; i++) WEFT_TRY(hlo_add_parameter(*out, (*out)->param_count, pred, NULL, &here[i]));
  pass_build b = PASS_BUILD_IN(*out);
  (*out)->root = pb_select(&b, pb_compare(&b, HLO_EQ, here[0], here[1]), (*out)->root, here[0]);
  return pass_build_finish(&b);
}

static weft_status *follow_sort(tracker *t, hlo_instr *sort, sizes *out, hlo_instr **with)
{
  int n = sort->operand_count, rank = sort->operands[0]->shape->rank;
  hlo_module *module = sort->parent->module;
  hlo_computation *less;

  for (int k = 0; k < n; k++) merge(out, sizes_of(t, sort->operands[k]), rank);
  if (!out->v[sort->dims.v[0]]) return NULL;
  hlo_instr **operands = WEFT_ARENA_ARRAY(t->arena, hlo_instr *, n + 1);
  const hlo_shape **shapes = WEFT_ARENA_ARRAY(t->arena, const hlo_shape *, n + 1);
  WEFT_TRY_ALLOC(operands && shapes);
  for (int k = 0; k < n; k++) operands[k] = sort->operands[k], shapes[k] = operands[k]->shape;
  operands[n] = inside(t, shapes[0], &module->arena, out, sort->dims);
  WEFT_TRY(pass_build_finish(&t->b));
  shapes[n] = operands[n]->shape;
  WEFT_TRY(with_presence(sort->called[0], sort->parent, &less));
  hlo_instr *all = pb_clone(&t->b, sort, sort->operands); /* for its attributes */
  hlo_instr *more = pb_instr(&t->b, HLO_SORT, hlo_shape_tuple(&module->arena, n + 1, shapes), n + 1, operands);
  WEFT_TRY(pass_build_finish(&t->b));
  more->dims = all->dims;
  more->u = all->u;
  WEFT_TRY(hlo_remove(all));
  WEFT_TRY(hlo_set_called(more, 1, &less));
  for (int k = 0; k < n; k++) operands[k] = pb_gte(&t->b, more, k);
  *with = n == 1 && !hlo_shape_is_tuple(sort->shape) ? operands[0] : pb_tuple(&t->b, n, operands);
  return NULL;
}

/* ---- reshape ----------------------------------------------------------------------------------------------------- */

/* True if each dimension of unknown size is one dimension on both sides, behind equally many elements: then nothing
 * moves. */
static bool passes_through(const hlo_instr *reshape, const sizes *s, sizes *out)
{
  const hlo_shape *from = reshape->operands[0]->shape, *to = reshape->shape;

  for (int64_t d = 0, before = 1; s && d < from->rank; before *= from->dims[d++]) {
    int e = 0;
    int64_t passed = 1;
    if (!s->v[d]) continue;
    while (e < to->rank && (passed < before || to->dims[e] != from->dims[d])) passed *= to->dims[e++];
    if (e == to->rank || passed != before) return false;
    out->v[e] = s->v[d];
  }
  return true;
}

/* The dimensions [*first, *last) of `a`, and [*to_first, *to_last) of `b`, with which dimension d of `a` is joined
 * or divided. */
static void group_of(const hlo_shape *a, const hlo_shape *b, int d, int *first, int *last, int *to_first, int *to_last)
{
  int i = 0, j = 0;

  do {
    int64_t pa = 1, pb = 1;
    *first = i;
    *to_first = j;
    do {
      if (pa <= pb && i < a->rank) pa *= a->dims[i++];
      else if (j < b->rank) pb *= b->dims[j++];
      else break;
    } while (pa != pb || (pa == 1 && (i == *first || j == *to_first)));
    *last = i;
    *to_last = j;
  } while (d >= *last && i < a->rank);
  if (i == a->rank) *to_last = b->rank;
}

/* The dimension of the result in [first, last) to which an operand's dimension of unknown size goes; -1 if no shape
 * tells. */
static int dynamic_dim_of(const hlo_instr *reshape, const hlo_shape *declared, int first, int last)
{
  int found = -1, count = 0;

  if (reshape->dims.count == 1) return (int)reshape->dims.v[0]; /* inferred_dimension */
  if (last - first == 1) return first;
  for (int e = first; e < last; e++)
    if (declared->dynamic && declared->dynamic[e]) found = e;
  if (found >= 0) return found;
  for (int e = first; e < last; e++)
    if (reshape->shape->dims[e] != 1) found = e, count++;
  return count == 1 ? found : -1;
}

/* The sizes of the result of a reshape that joins or divides dimensions. */
static weft_status *reshaped_sizes(tracker *t, const hlo_instr *reshape, const sizes *s, sizes *out)
{
  const hlo_shape *from = reshape->operands[0]->shape, *to = reshape->shape;

  for (int d = 0; d < from->rank; d++) {
    int first, last, to_first, to_last;
    if (!s->v[d] || to->rank == 0) continue;
    group_of(from, to, d, &first, &last, &to_first, &to_last);
    int e = dynamic_dim_of(reshape, t->declared, to_first, to_last);
    if (e < 0 || e >= to->rank || from->dims[d] == 0 || to->dims[e] == 0)
      return unimplemented(reshape, ", and nothing says which dimension of the result takes it");
    /* the size of the group, divided by the other dimensions of the result */
    int64_t others = 1;
    hlo_instr *elements = NULL;
    for (int i = to_first; i < to_last; i++) others *= i == e ? 1 : to->dims[i];
    for (int i = first; i < last; i++) {
      hlo_instr *size = s->v[i] ? s->v[i] : bound_of(t, from, i);
      elements = elements ? pb_mul(&t->b, elements, size) : size;
    }
    out->v[e] = over(t, elements, WEFT_MAX(1, others));
  }
  return NULL;
}

/* Packs the array by its sizes and unpacks it by those of the result: each place of the result is counted in sizes
 * and looked up in the operand, whose elements lie by their bounds. */
static weft_status *repacked(tracker *t, hlo_instr *x, const sizes *s, const hlo_shape *to, const sizes *to_sizes,
                             hlo_instr **out)
{
  pass_build *b = &t->b;
  hlo_module *module = x->parent->module;
  const hlo_shape *from = x->shape, *places = hlo_shape_with_type(&module->arena, to, WEFT_S32);
  int64_t count = hlo_shape_elems(from), stride = 1;
  hlo_instr *number = NULL, *factor = NULL, *place = NULL;

  if (count > INT32_MAX || hlo_shape_elems(to) > INT32_MAX)
    return unimplemented(x, " and of over 2^31 elements, packed");
  if (count == 0 || hlo_shape_elems(to) == 0) {
    *out = pb_fill(b, pb_scalar(b, from->type, 0), to);
    return NULL;
  }
  for (int d = to->rank - 1; d >= 0; d--) {
    hlo_instr *at = pb_iota(b, places, d), *size = to_sizes->v[d] ? to_sizes->v[d] : bound_of(t, to, d);
    if (factor) at = pb_mul(b, at, pb_fill(b, factor, places));
    number = number ? pb_add(b, number, at) : at;
    factor = factor ? pb_mul(b, factor, size) : size;
  }
  if (!number) number = pb_int(b, WEFT_S32, 0);
  for (int d = from->rank - 1; d >= 0; stride *= from->dims[d--]) {
    hlo_instr *size = pb_fill(b, at_least(t, s && s->v[d] ? s->v[d] : bound_of(t, from, d), 1), places);
    hlo_instr *at = d > 0 ? pb_op2(b, HLO_REMAINDER, number, size) : number;
    if (stride > 1) at = pb_mul(b, at, pb_fill(b, pb_int(b, WEFT_S32, stride), places));
    place = place ? pb_add(b, place, at) : at;
    number = pb_div(b, number, size);
  }
  if (!place) place = number;
  hlo_gather_attrs *g = WEFT_ARENA_NEW(&module->arena, hlo_gather_attrs);
  WEFT_TRY_ALLOC(g);
  g->index_vector_dim = to->rank;
  g->collapsed_slice_dims = g->start_index_map = pb_ints(b, 1, (int64_t[]){0});
  g->slice_sizes = pb_ints(b, 1, (int64_t[]){1});
  *out = pb_instr(b, HLO_GATHER, hlo_shape_with_type(&module->arena, to, from->type), 2,
                  (hlo_instr *[]){pb_reshape(b, x, 1, &count), place});
  if (*out) (*out)->u.gather = g;
  return NULL;
}

static weft_status *follow_reshape(tracker *t, const hlo_instr *reshape, sizes *out, hlo_instr **with)
{
  const sizes *s = sizes_of(t, reshape->operands[0]);

  if (passes_through(reshape, s, out)) return NULL;
  *out = (sizes){{0}};
  WEFT_TRY(reshaped_sizes(t, reshape, s, out));
  return repacked(t, reshape->operands[0], s, reshape->shape, out, with);
}

/* ---- loops and branches ------------------------------------------------------------------------------------------ */

/* Adds the dimensions that `shape` declares as dynamic, and those for which `s` has a size. */
static weft_status *add_carried(tracker *t, carried *c, const hlo_shape *shape, const sizes *s)
{
  for (int leaf = 0; leaf < hlo_shape_leaf_count(shape); leaf++) {
    const hlo_shape *x = hlo_shape_leaf(shape, leaf);
    for (int d = 0; hlo_shape_is_array(x) && d < x->rank; d++) {
      bool known = false;
      if (!(x->dynamic && x->dynamic[d]) && !(s && s[leaf].v[d])) continue;
      for (int i = 0; i < c->count; i++) known |= c->v[i].leaf == leaf && c->v[i].dim == d;
      if (known) continue;
      if ((c->count & (c->count - 1)) == 0) {
        struct carried_size *grown = WEFT_ARENA_ARRAY(t->arena, struct carried_size, WEFT_MAX(1, 2 * c->count));
        WEFT_TRY_ALLOC(grown);
        for (int i = 0; i < c->count; i++) grown[i] = c->v[i];
        c->v = grown;
      }
      c->v[c->count++] = (struct carried_size){leaf, d};
    }
  }
  return NULL;
}

static int tuple_size(const hlo_shape *s) { return hlo_shape_is_tuple(s) ? s->rank : 1; }

/* The value with its sizes: a tuple of the value, or of its elements, and of the sizes. */
static weft_status *pack(tracker *t, pass_build *b, hlo_instr *x, const carried *c, hlo_instr **out)
{
  int n = tuple_size(x->shape);
  const sizes *s = sizes_of(t, x);
  hlo_instr **all = WEFT_ARENA_ARRAY(t->arena, hlo_instr *, n + c->count);

  WEFT_TRY_ALLOC(all);
  for (int i = 0; i < n; i++) all[i] = hlo_shape_is_tuple(x->shape) ? pb_gte(b, x, i) : x;
  for (int i = 0; i < c->count; i++) {
    hlo_instr *size = s ? s[c->v[i].leaf].v[c->v[i].dim] : NULL;
    all[n + i] = size ? size : pb_int(b, WEFT_S32, hlo_shape_leaf(x->shape, c->v[i].leaf)->dims[c->v[i].dim]);
  }
  *out = pb_tuple(b, n + c->count, all);
  return NULL;
}

/* The inverse of pack: *out is the value of `shape` that `packed` contains, and its sizes are recorded. */
static weft_status *unpack(tracker *t, pass_build *b, hlo_instr *packed, const hlo_shape *shape, const carried *c,
                           hlo_instr **out)
{
  int n = tuple_size(shape);
  hlo_instr **all = WEFT_ARENA_ARRAY(t->arena, hlo_instr *, WEFT_MAX(1, n));
  sizes *s;

  WEFT_TRY_ALLOC(all);
  WEFT_TRY(new_sizes(t, shape, &s));
  for (int i = 0; i < n; i++) all[i] = pb_gte(b, packed, i);
  *out = hlo_shape_is_tuple(shape) ? pb_tuple(b, n, all) : all[0];
  for (int i = 0; i < c->count; i++) s[c->v[i].leaf].v[c->v[i].dim] = pb_gte(b, packed, n + i);
  WEFT_TRY(pass_build_finish(b));
  WEFT_TRY(note(t, *out, s));
  for (int i = 0, leaf = 0; hlo_shape_is_tuple(shape) && i < n; leaf += hlo_shape_leaf_count(shape->elements[i++]))
    WEFT_TRY(note(t, all[i], s + leaf));
  return NULL;
}

/* The parameter of a body or a branch gets the sizes too. */
static weft_status *extend_parameter(tracker *t, hlo_computation *comp, const hlo_shape *packed, const carried *c)
{
  hlo_instr *param = comp->params[0], *before, *value;
  pass_build b = {.comp = comp, .before = param->next};

  /* stands for the parameter until the parameter's value has been unpacked */
  before = pb_op1(&b, HLO_COPY, param);
  WEFT_TRY(pass_build_finish(&b));
  WEFT_TRY(hlo_replace_uses(param, before));
  param->shape = packed;
  b.before = before;
  WEFT_TRY(unpack(t, &b, param, before->shape, c, &value));
  return hlo_replace(before, value);
}

static weft_status *give_sizes(tracker *t, const hlo_computation *comp, const carried *c)
{
  carried *kept = weft_arena_memdup(t->arena, c, sizeof *c);

  WEFT_TRY_ALLOC(kept);
  return pass_map_set(&t->results, comp->id, kept);
}

static weft_status *follow_while(tracker *t, hlo_instr *loop, const hlo_shape *declared)
{
  hlo_instr *init = loop->operands[0], *packed, *value;
  carried c = {0};

  WEFT_TRY(add_carried(t, &c, declared, sizes_of(t, init)));
  for (int i = 0; i < 2; i++) WEFT_TRY(add_carried(t, &c, loop->called[i]->params[0]->shape, NULL));
  WEFT_TRY(add_carried(t, &c, loop->called[0]->root->shape, NULL));
  if (c.count == 0) return NULL;
  WEFT_TRY(pack(t, &t->b, init, &c, &packed));
  hlo_instr *more = pb_clone(&t->b, loop, &packed);
  WEFT_TRY(pass_build_finish(&t->b));
  more->shape = packed->shape;
  WEFT_TRY(unpack(t, &t->b, more, loop->shape, &c, &value));
  for (int i = 0; i < 2; i++) {
    WEFT_TRY(static_shape(loop->called[i]->params[0]));
    WEFT_TRY(extend_parameter(t, loop->called[i], packed->shape, &c));
  }
  WEFT_TRY(give_sizes(t, loop->called[0], &c));
  return replace(t, loop, value);
}

/* Adds its sizes to a branch's operand, and to the branch's parameter. */
static weft_status *follow_argument(tracker *t, hlo_instr *conditional, int branch)
{
  hlo_instr *x = conditional->operands[1 + branch], *packed, *param = conditional->called[branch]->params[0];
  carried c = {0};

  WEFT_TRY(add_carried(t, &c, param->shape, sizes_of(t, x)));
  WEFT_TRY(static_shape(param));
  if (c.count == 0) return NULL;
  WEFT_TRY(pack(t, &t->b, x, &c, &packed));
  WEFT_TRY(pass_build_finish(&t->b));
  WEFT_TRY(hlo_set_operand(conditional, 1 + branch, packed));
  return extend_parameter(t, conditional->called[branch], packed->shape, &c);
}

static weft_status *follow_conditional(tracker *t, hlo_instr *conditional, const hlo_shape *declared)
{
  hlo_module *module = conditional->parent->module;
  hlo_instr *value;
  carried c = {0};

  for (int i = 0; i < conditional->called_count; i++) WEFT_TRY(follow_argument(t, conditional, i));
  WEFT_TRY(add_carried(t, &c, declared, NULL));
  for (int i = 0; i < conditional->called_count; i++)
    WEFT_TRY(add_carried(t, &c, conditional->called[i]->root->shape, NULL));
  if (c.count == 0) return NULL;
  int n = tuple_size(conditional->shape);
  const hlo_shape **shapes = WEFT_ARENA_ARRAY(t->arena, const hlo_shape *, n + c.count);
  WEFT_TRY_ALLOC(shapes);
  for (int i = 0; i < n; i++)
    shapes[i] = hlo_shape_is_tuple(conditional->shape) ? conditional->shape->elements[i] : conditional->shape;
  for (int i = 0; i < c.count; i++) shapes[n + i] = hlo_shape_array(&module->arena, WEFT_S32, 0, NULL);
  hlo_instr *more = pb_clone(&t->b, conditional, NULL);
  if (more && !(more->shape = hlo_shape_tuple(&module->arena, n + c.count, shapes))) WEFT_TRY_ALLOC(NULL);
  WEFT_TRY(pass_build_finish(&t->b));
  WEFT_TRY(unpack(t, &t->b, more, conditional->shape, &c, &value));
  for (int i = 0; i < conditional->called_count; i++) WEFT_TRY(give_sizes(t, conditional->called[i], &c));
  return replace(t, conditional, value);
}

/* ---- the pass ---------------------------------------------------------------------------------------------------- */

/* The sizes of an array with an operand of unknown size; *with: its replacement, or NULL. */
static weft_status *follow(tracker *t, hlo_instr *instr, sizes *out, hlo_instr **with)
{
  hlo_instr *x = instr->operands[0];
  const sizes *s = sizes_of(t, x);
  int rank = instr->shape->rank;

  if (hlo_opcode_is_elementwise(instr->op)) return follow_elementwise(t, instr, out);
  switch (instr->op) {
  case HLO_BROADCAST:
    for (int i = 0; s && i < instr->dims.count; i++) out->v[instr->dims.v[i]] = s->v[i];
    return NULL;
  case HLO_TRANSPOSE:
    for (int i = 0; s && i < rank; i++) out->v[i] = s->v[instr->dims.v[i]];
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
  case HLO_REVERSE: *with = reversed(t, instr, out); return NULL;
  case HLO_SLICE: follow_slice(t, instr, out); return NULL;
  case HLO_REDUCE: return follow_reduce(t, instr, out);
  case HLO_REDUCE_WINDOW: return follow_reduce_window(t, instr, out);
  case HLO_DOT: return follow_dot(t, instr, out);
  case HLO_PAD: return follow_pad(t, instr, out);
  case HLO_DYNAMIC_SLICE: return follow_dynamic_slice(t, instr, out);
  case HLO_DYNAMIC_UPDATE_SLICE: return follow_update(t, instr, out);
  case HLO_GATHER: return follow_gather(t, instr, out);
  case HLO_SCATTER: return follow_scatter(t, instr, out);
  case HLO_SORT: return follow_sort(t, instr, out, with);
  case HLO_RESHAPE: return follow_reshape(t, instr, out, with);
  default: return unimplemented(instr, "");
  }
}

/* A tuple, or an element of one: the sizes of its leaves do not change. */
static weft_status *follow_tuple(tracker *t, const hlo_instr *instr)
{
  sizes *all;
  int leaf = 0;

  if (instr->op == HLO_GET_TUPLE_ELEMENT) {
    const sizes *s = sizes_of(t, instr->operands[0]);
    return s ? note(t, instr, s + hlo_shape_leaf_offset(instr->operands[0]->shape, instr->u.tuple_index)) : NULL;
  }
  WEFT_TRY(new_sizes(t, instr->shape, &all));
  for (int k = 0; k < instr->operand_count; k++) {
    const sizes *s = sizes_of(t, instr->operands[k]);
    int count = hlo_shape_leaf_count(instr->operands[k]->shape);
    for (int i = 0; s && i < count; i++) all[leaf + i] = s[i];
    leaf += count;
  }
  return note(t, instr, all);
}

static weft_status *follow_array(tracker *t, hlo_instr *instr)
{
  hlo_instr *with = NULL;
  sizes out = {{0}}, *all;

  WEFT_TRY(follow(t, instr, &out, &with));
  WEFT_TRY(pass_build_finish(&t->b));
  WEFT_TRY(new_sizes(t, instr->shape, &all));
  /* of a variadic operation: all results have the same sizes */
  for (int i = 0; i < hlo_shape_leaf_count(instr->shape); i++) all[i] = out;
  WEFT_TRY(note(t, with ? with : instr, all));
  return with ? replace(t, instr, with) : NULL;
}

static bool is_whole(const hlo_instr *size, int64_t bound)
{
  return size->op == HLO_CONSTANT && hlo_literal_get_s64(size->u.literal, 0) == bound;
}

static weft_status *set_size(tracker *t, hlo_instr *set)
{
  /* other users may see all of x */
  hlo_instr *x = set->operands[0], *size = set->operands[1], *copy = pb_op1(&t->b, HLO_COPY, x);
  int64_t dim = set->dims.v[0];
  sizes out = {{0}};

  WEFT_TRY(pass_build_finish(&t->b));
  merge(&out, sizes_of(t, x), x->shape->rank);
  out.v[dim] = is_whole(size, x->shape->dims[dim]) ? NULL : size;
  WEFT_TRY(note(t, copy, &out));
  return replace(t, set, copy);
}

static weft_status *dynamic_reshape(tracker *t, hlo_instr *reshape, const hlo_shape *declared)
{
  const sizes *s = sizes_of(t, reshape->operands[0]);
  hlo_instr *with = NULL;
  sizes out = {{0}};

  for (int d = 0; d < declared->rank; d++)
    if (declared->dynamic && declared->dynamic[d]) out.v[d] = reshape->operands[d + 1];
  if (s || any_size(&out, 1)) WEFT_TRY(repacked(t, reshape->operands[0], s, reshape->shape, &out, &with));
  else with = pb_reshape_like(&t->b, reshape->operands[0], reshape->shape);
  WEFT_TRY(pass_build_finish(&t->b));
  WEFT_TRY(note(t, with, &out));
  return replace(t, reshape, with);
}

static weft_status *resolve(tracker *t, hlo_instr *instr)
{
  bool follows = false;

  t->b = PASS_BUILD_AT(instr);
  t->declared = instr->shape;
  WEFT_TRY(static_shape(instr));
  switch (instr->op) {
  case HLO_GET_DIMENSION_SIZE: return replace(t, instr, size_of(t, instr->operands[0], instr->dims.v[0]));
  case HLO_SET_DIMENSION_SIZE: return set_size(t, instr);
  case HLO_DYNAMIC_RESHAPE: return dynamic_reshape(t, instr, t->declared);
  case HLO_WHILE: return follow_while(t, instr, t->declared);
  case HLO_CONDITIONAL: return follow_conditional(t, instr, t->declared);
  default: break;
  }
  for (int k = 0; k < instr->operand_count; k++) follows |= sizes_of(t, instr->operands[k]) != NULL;
  if (!follows) return NULL;
  if (instr->op == HLO_TUPLE || instr->op == HLO_GET_TUPLE_ELEMENT || instr->op == HLO_OPT_BARRIER)
    return follow_tuple(t, instr);
  return follow_array(t, instr);
}

/* A result of the program as XLA leaves it in memory: packed by its sizes, here with zeros behind. */
static weft_status *finished_array(tracker *t, hlo_instr *x, const sizes *s, hlo_instr **out)
{
  const hlo_shape *shape = x->shape;
  int64_t count = hlo_shape_elems(shape);
  bool moves = false;
  sizes flat = {{pb_int(&t->b, WEFT_S32, 1)}};

  *out = x;
  for (int d = 1; d < shape->rank; d++) moves |= s->v[d] != NULL;
  if (moves) {
    for (int d = 0; d < shape->rank; d++)
      flat.v[0] = pb_mul(&t->b, flat.v[0], s->v[d] ? s->v[d] : bound_of(t, shape, d));
    WEFT_TRY(repacked(t, x, s, hlo_shape_array(&x->parent->module->arena, shape->type, 1, &count), &flat, out));
    s = &flat;
  }
  if (*out) *out = masked(t, *out, s, (hlo_ints){(*out)->shape->rank, every_dim}, pb_scalar(&t->b, shape->type, 0));
  if (moves) *out = pb_reshape_like(&t->b, *out, shape);
  return NULL;
}

static weft_status *finished(tracker *t, hlo_instr *x, const sizes *s, hlo_instr **out)
{
  int n = x->shape->rank;

  *out = x;
  if (!any_size(s, hlo_shape_leaf_count(x->shape))) return NULL;
  if (!hlo_shape_is_tuple(x->shape)) return finished_array(t, x, s, out);
  hlo_instr **all = WEFT_ARENA_ARRAY(t->arena, hlo_instr *, n);
  WEFT_TRY_ALLOC(all);
  for (int i = 0; i < n; i++) { /* the recursion is as deep as tuples nest */
    all[i] = x->op == HLO_TUPLE ? x->operands[i] : pb_gte(&t->b, x, i);
    if (!t->b.error) WEFT_TRY(finished(t, all[i], s, &all[i]));
    s += hlo_shape_leaf_count(x->shape->elements[i]);
  }
  *out = pb_tuple(&t->b, n, all);
  return NULL;
}

static weft_status *finish_root(tracker *t, hlo_computation *comp)
{
  const sizes *s = sizes_of(t, comp->root);
  const carried *c = pass_map_get(&t->results, comp->id);
  hlo_instr *root = comp->root;

  t->b = PASS_BUILD_IN(comp);
  if (c) WEFT_TRY(pack(t, &t->b, root, c, &root));
  else if (s && comp == comp->module->entry) WEFT_TRY(finished(t, root, s, &root));
  else if (s) return unimplemented(root, ", which its loop or branch does not declare");
  WEFT_TRY(pass_build_finish(&t->b));
  *t->changed |= root != comp->root;
  comp->root = root;
  return NULL;
}

static bool is_concerned(const hlo_module *module)
{
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp)
      if (hlo_shape_is_dynamic(instr->shape) || instr->op == HLO_SET_DIMENSION_SIZE ||
          instr->op == HLO_GET_DIMENSION_SIZE || instr->op == HLO_DYNAMIC_RESHAPE)
        return true;
  return false;
}

static weft_status *dynamic_dimensions_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  tracker t = {.arena = ctx->scratch, .known.arena = ctx->scratch, .results.arena = ctx->scratch, .changed = changed};
  pass_comps comps;

  if (!is_concerned(module)) return NULL;
  WEFT_TRY(pass_sequential(module, ctx->scratch, &comps));
  for (int i = comps.count - 1; i >= 0; i--) { /* callers first: they decide which sizes a parameter comes with */
    HLO_FOREACH(instr, comps.v[i]) WEFT_TRY(resolve(&t, instr));
    WEFT_TRY(finish_root(&t, comps.v[i]));
  }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_dynamic_dimensions = {"dynamic-dimensions", dynamic_dimensions_run};
