/* passes/algebraic_reduce.c -- Rules of the algebraic simplifier for reductions, windows and dots. */
#include <config.h>

#include <string.h>

#include "base/swap.h"
#include "passes/algebraic.h"

/* True for a reduction of one array by an operation with an identity, which is also the initial value. */
static bool starts_from_identity(const hlo_instr *reduce)
{
  return pass_is_identity(hlo_reducer_op(reduce->called[0]), reduce->operands[1]);
}

/* What a reduction of the single value x gives: x, combined with the initial value, which is an identity. Only a sum of
 * floats that starts from 0 changes anything: -0 becomes 0. */
static hlo_instr *reduced_alone(pass_build *b, const hlo_instr *reduce, hlo_instr *x)
{
  weft_dtype type = reduce->shape->type;
  bool is_sum = hlo_reducer_op(reduce->called[0]) == HLO_ADD &&
                (weft_dtype_is_float(type) || weft_dtype_is_complex(type));

  return is_sum && x ? pb_add(b, x, pb_splat(b, x, 0)) : x;
}

static weft_status *built_reduce(simplifier *s, pass_build *b, hlo_instr *reduce, hlo_instr *x, int count,
                                 const int64_t *dims)
{
  hlo_instr *result = count ? pb_reduce(b, x, reduce->operands[1], count, dims, reduce->called[0])
                            : reduced_alone(b, reduce, x);

  if (b->error) return pass_build_finish(b);
  return simplify_built(s, b, reduce, pb_reshape_like(b, result, reduce->shape));
}

/* reduce(reshape(x)) becomes a reduction of x if the reshape keeps the reduced and the kept part of memory apart.
 * Both lists of dimensions are walked in step; each group of equal size must be wholly reduced or wholly kept. */
static weft_status *reduce_of_reshape(simplifier *s, hlo_instr *reduce)
{
  const hlo_shape *to = reduce->operands[0]->shape, *from = reduce->operands[0]->operands[0]->shape;
  int64_t dims[HLO_MAX_RANK];
  int i = 0, j = 0, count = 0;
  pass_build b = PASS_BUILD_AT(reduce);

  if (hlo_shape_elems(to) == 0) return NULL;
  while (i < from->rank || j < to->rank) {
    int64_t a = 1, c = 1;
    int first_i = i, first_j = j;
    bool reduced = false, kept = false;
    do {
      if (a <= c && i < from->rank) a *= from->dims[i++];
      else if (j < to->rank) c *= to->dims[j++];
      else if (i < from->rank) a *= from->dims[i++];
      else break;
    } while (a != c || first_i == i || first_j == j);
    for (int k = first_j; k < j; k++) {
      if (to->dims[k] == 1) continue;
      bool is_reduced = pass_ints_contain(reduce->dims, k);
      reduced |= is_reduced;
      kept |= !is_reduced;
    }
    if (reduced && kept) return NULL;
    if (reduced)
      for (int k = first_i; k < i; k++) dims[count++] = k;
  }
  return built_reduce(s, &b, reduce, reduce->operands[0]->operands[0], count, dims);
}

/* reduce(broadcast(y)) = broadcast(reduce(y)). Repeating elements along a reduced dimension multiplies a sum by
 * their number, and changes nothing for operations with op(x, x) = x. */
static weft_status *reduce_of_broadcast(simplifier *s, hlo_instr *reduce)
{
  hlo_instr *x = reduce->operands[0], *y = x->operands[0];
  const hlo_opcode op = hlo_reducer_op(reduce->called[0]);
  const bool is_sum = op == HLO_ADD && (weft_dtype_is_float(y->shape->type) || weft_dtype_is_integer(y->shape->type));
  int64_t place[HLO_MAX_RANK], dims[HLO_MAX_RANK], map[HLO_MAX_RANK], repeats = 1;
  int kept = 0, rank = 0, count = 0;
  pass_build b = PASS_BUILD_AT(reduce);

  for (int64_t d = 0; d < x->shape->rank; d++) {
    if (!pass_ints_contain(reduce->dims, d)) place[d] = kept++;
    else if (!pass_ints_contain(x->dims, d)) repeats *= x->shape->dims[d];
  }
  for (int i = 0; i < y->shape->rank; i++) {
    if (pass_ints_contain(reduce->dims, x->dims.v[i])) dims[count++] = i;
    else map[rank++] = place[x->dims.v[i]];
  }
  if (count == reduce->dims.count && rank == kept) return NULL; /* nothing is repeated */
  if (repeats != 1 && !is_sum && op != HLO_MAXIMUM && op != HLO_MINIMUM && op != HLO_AND && op != HLO_OR) return NULL;
  y = count ? pb_reduce(&b, y, reduce->operands[1], count, dims, reduce->called[0]) : reduced_alone(&b, reduce, y);
  if (repeats != 1 && is_sum) {
    weft_dtype type = reduce->shape->type,
               wide = weft_dtype_is_float(type) && weft_dtype_bits(type) < 32 ? WEFT_F32 : type;
    hlo_instr *one = pb_convert(&b, y, wide);
    hlo_instr *times = !one                        ? NULL
                       : weft_dtype_is_float(wide) ? pb_splat(&b, one, (double)repeats)
                                                   : pb_splat_int(&b, one, repeats);
    y = pb_convert(&b, pb_mul(&b, one, times), type);
  }
  return simplify_built(s, &b, reduce, pb_broadcast(&b, y, kept, reduce->shape->dims, map));
}

weft_status *simplify_reduce(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  int64_t dims[HLO_MAX_RANK];
  int count = 0;
  bool units = false;
  pass_build b = PASS_BUILD_AT(instr);

  if (instr->operand_count != 2) return NULL;
  if (hlo_shape_elems(x->shape) == 0)
    return simplify_built(s, &b, instr, pb_fill(&b, instr->operands[1], instr->shape));
  if (!starts_from_identity(instr)) return NULL;
  for (int i = 0; i < instr->dims.count; i++)
    if (x->shape->dims[instr->dims.v[i]] == 1) units = true;
    else dims[count++] = instr->dims.v[i];
  if (units || count == 0) return built_reduce(s, &b, instr, x, count, dims);
  if (x->op == HLO_RESHAPE) return reduce_of_reshape(s, instr);
  if (x->op == HLO_BROADCAST) return reduce_of_broadcast(s, instr);
  if (x->op == HLO_REDUCE && x->operand_count == 2 && x->user_count == 1 && starts_from_identity(x) &&
      hlo_computation_equal(x->called[0], instr->called[0])) {
    int64_t kept[HLO_MAX_RANK];
    int rank = 0, total = 0;
    for (int64_t d = 0; d < x->operands[0]->shape->rank; d++)
      if (!pass_ints_contain(x->dims, d)) kept[rank++] = d;
    for (int i = 0; i < x->dims.count; i++) dims[total++] = x->dims.v[i];
    for (int i = 0; i < instr->dims.count; i++) dims[total++] = kept[instr->dims.v[i]];
    for (int i = 1; i < total; i++)
      for (int j = i; j > 0 && dims[j - 1] > dims[j]; j--) WEFT_SWAP(dims[j], dims[j - 1]);
    return built_reduce(s, &b, instr, x->operands[0], total, dims);
  }
  if (x->op == HLO_TRANSPOSE) { /* only if the kept dimensions keep their order */
    int64_t last = -1;
    for (int64_t d = 0; d < x->shape->rank; d++) {
      if (pass_ints_contain(instr->dims, d)) continue;
      if (x->dims.v[d] < last) return NULL;
      last = x->dims.v[d];
    }
    count = 0;
    for (int64_t d = 0; d < x->shape->rank; d++) /* in the order of the operand */
      for (int i = 0; i < instr->dims.count; i++)
        if (x->dims.v[instr->dims.v[i]] == d) dims[count++] = d;
    return built_reduce(s, &b, instr, x->operands[0], count, dims);
  }
  return NULL;
}

/* The window over pad(x) as a window over x: what the pad adds to the dimensions over which the window slides
 * becomes padding of the window. `spatial[i]` is the dimension over which w->dims[i] slides. NULL: the pad does
 * something else. */
static hlo_window *window_with_pad(const hlo_instr *pad, const hlo_window *w, const int64_t *spatial)
{
  weft_arena *arena = &pad->parent->module->arena;
  hlo_window *out = WEFT_ARENA_NEW(arena, hlo_window);
  hlo_window_dim *dims = weft_arena_memdup(arena, w->dims, (size_t)w->rank * sizeof *dims);

  for (int d = 0; d < pad->shape->rank; d++) {
    const hlo_pad_dim *p = &pad->u.pad.dims[d];
    int i = 0;
    if (!p->low && !p->high && !p->interior) continue;
    while (i < w->rank && spatial[i] != d) i++;
    if (i == w->rank || p->low < 0 || p->high < 0 || p->interior || w->dims[i].base_dilation != 1 || !dims) return NULL;
    if (__builtin_add_overflow(dims[i].pad_low, p->low, &dims[i].pad_low) ||
        __builtin_add_overflow(dims[i].pad_high, p->high, &dims[i].pad_high))
      return NULL;
  }
  if (out) *out = (hlo_window){w->rank, dims};
  return out;
}

/* Zeros around the image become the convolution's own padding. */
weft_status *simplify_convolution(simplifier *s, hlo_instr *instr)
{
  hlo_instr *x = instr->operands[0];
  hlo_conv_attrs *attrs;
  const hlo_window *w;

  if (x->op != HLO_PAD || !is_all(x->operands[1], 0)) return NULL;
  w = window_with_pad(x, &instr->u.conv->window, instr->u.conv->lhs_spatial.v);
  if (!w) return NULL;
  attrs = weft_arena_memdup(&instr->parent->module->arena, instr->u.conv, sizeof *attrs);
  WEFT_TRY_ALLOC(attrs);
  attrs->window = *w;
  instr->u.conv = attrs;
  WEFT_TRY(hlo_set_operand(instr, 0, x->operands[0]));
  return simplify_touched(s, instr);
}

/* True if a single window covers the whole dimension (sees_whole), or if there is a window for each element
 * (sees_one). */
static bool sees_whole(const hlo_window_dim *w, int64_t size)
{
  return w->size == size && !w->pad_low && !w->pad_high && w->base_dilation == 1 && w->window_dilation == 1;
}
static bool sees_one(const hlo_window_dim *w)
{
  return w->size == 1 && w->stride == 1 && !w->pad_low && !w->pad_high && w->base_dilation == 1;
}

/* Windows of one element combine it with the initial value; windows over whole dimensions reduce them. */
weft_status *simplify_reduce_window(simplifier *s, hlo_instr *instr)
{
  const hlo_window *w = instr->u.window;
  hlo_instr *x = instr->operands[0];
  int64_t dims[HLO_MAX_RANK], all[HLO_MAX_RANK];
  int count = 0;
  bool slides = false;
  pass_build b = PASS_BUILD_AT(instr);

  if (instr->operand_count != 2 || !starts_from_identity(instr) || hlo_shape_elems(x->shape) == 0) return NULL;
  for (int i = 0; i < w->rank; i++) {
    all[i] = i;
    if (sees_one(&w->dims[i])) continue;
    if (sees_whole(&w->dims[i], x->shape->dims[i])) dims[count++] = i;
    else slides = true;
  }
  weft_dtype type = x->shape->type;
  hlo_opcode op = hlo_reducer_op(instr->called[0]);
  /* windows of narrow floats round at every step, a reduction once */
  bool rounds_steps = weft_dtype_is_float(type) && weft_dtype_bits(type) < 32 && (op == HLO_ADD || op == HLO_MULTIPLY);
  if (!slides && (!rounds_steps || count == 0)) return built_reduce(s, &b, instr, x, count, dims);
  if (x->op == HLO_PAD && pass_is_identity(hlo_reducer_op(instr->called[0]), x->operands[1])) {
    w = window_with_pad(x, w, all);
    if (!w) return NULL;
    instr->u.window = w;
    WEFT_TRY(hlo_set_operand(instr, 0, x->operands[0]));
    return simplify_touched(s, instr);
  }
  return NULL;
}

/* Canonical dots ([B,] M, K x [B,] K, N; see dot_canonicalizer.c) that need no matrix product. */
weft_status *simplify_dot(simplifier *s, hlo_instr *instr)
{
  const hlo_dot_attrs *a = instr->u.dot;
  hlo_instr *x = instr->operands[0], *y = instr->operands[1];
  int batch = a->lhs_batch.count, rank = batch + 2;
  weft_dtype type = instr->shape->type, wide;
  pass_build b = PASS_BUILD_AT(instr);

  if (instr->operand_count != 2 || a->sparsity) return NULL;
  if (hlo_shape_elems(x->shape) == 0 || hlo_shape_elems(y->shape) == 0)
    return simplify_built(s, &b, instr, pb_splat(&b, instr, 0));
  if (is_all(x, 0) && !is_floating(x)) return simplify_built(s, &b, instr, pb_splat(&b, instr, 0));
  if (batch > 1 || x->shape->rank != rank || y->shape->rank != rank || instr->shape->rank != rank ||
      a->lhs_contracting.count != 1)
    return NULL;
  int64_t k = x->shape->dims[a->lhs_contracting.v[0]], m = instr->shape->dims[batch], n = instr->shape->dims[batch + 1];
  int64_t x_dims[2] = {0, batch}, y_dims[2] = {0, batch + 1};
  if (!batch) {
    x_dims[0] = 0;
    y_dims[0] = 1;
  }
  wide = weft_dtype_is_float(type) && weft_dtype_bits(type) < 32 ? WEFT_F32 : type;
  if (k == 1) { /* an outer product */
    int64_t sizes[2] = {instr->shape->dims[0], m}, other[2] = {instr->shape->dims[0], n};
    x = pb_reshape(&b, pb_convert(&b, x, wide), batch + 1, batch ? sizes : &m);
    y = pb_reshape(&b, pb_convert(&b, y, wide), batch + 1, batch ? other : &n);
    x = pb_broadcast(&b, x, rank, instr->shape->dims, x_dims);
    y = pb_broadcast(&b, y, rank, instr->shape->dims, y_dims);
    if (b.error) return pass_build_finish(&b);
    hlo_instr *product = pb_mul(&b, x, y);
    if (is_floating(instr))
      product = pb_add(&b, product, pb_splat(&b, product, 0)); /* a dot is a sum that starts from 0 */
    return simplify_built(s, &b, instr, pb_convert(&b, product, type));
  }
  if (m == 1 && n == 1) { /* products of vectors */
    int64_t dims[2] = {batch ? instr->shape->dims[0] : k, k}, last = batch;
    hlo_computation *adder;
    WEFT_TRY(hlo_add_reducer(instr->parent->module, HLO_ADD, wide, &adder));
    x = pb_reshape(&b, pb_convert(&b, x, wide), batch + 1, dims);
    y = pb_reshape(&b, pb_convert(&b, y, wide), batch + 1, dims);
    hlo_instr *zero = pb_scalar(&b, wide, 0); /* before the product, because the arguments of a call have no order */
    x = pb_reduce(&b, pb_mul(&b, x, y), zero, 1, &last, adder);
    return simplify_built(s, &b, instr, b.error ? NULL : pb_reshape_like(&b, pb_convert(&b, x, type), instr->shape));
  }
  return NULL;
}
