/* hlo/eval_dot.c -- Contractions: dot, ragged-dot, scaled-dot, convolution.
 *
 * The operands are widened once.  Products of floats are added in double (complex: two doubles) and rounded at the
 * end; integers wrap; for predicates a product is `and` and a sum is `or`. */
#include <config.h>

#include <math.h>
#include <string.h>

#include "hlo/eval_internal.h"

/* ---- wide operands and sums -------------------------------------------------------------------------------------- */

/* The type to which the algorithm rounds the operands first, or WEFT_INVALID for none.  Algorithms of several passes
 * only approach f32, so they round nothing here. */
static weft_dtype algorithm_type(const hlo_dot_attrs *dot)
{
  switch (dot->algorithm) {
  case HLO_ALG_F16_F16_F16:
  case HLO_ALG_F16_F16_F32: return WEFT_F16;
  case HLO_ALG_BF16_BF16_BF16:
  case HLO_ALG_BF16_BF16_F32: return WEFT_BF16;
  default: return WEFT_INVALID;
  }
}

/* All elements in the class of `result_type`.  Floats are first rounded to `via`, unless that is WEFT_INVALID. */
static weft_status *widen(eval_ctx *ctx, const hlo_literal *lit, weft_dtype result_type, weft_dtype via,
                          eval_scalar **out)
{
  int64_t count = hlo_shape_elems(lit->shape);
  weft_dtype from = lit->shape->type;
  bool to_float = weft_dtype_is_float(result_type) || weft_dtype_is_complex(result_type);
  eval_scalar *wide = WEFT_ARENA_ARRAY(ctx->arena, eval_scalar, count);

  WEFT_TRY_ALLOC(wide);
  for (int64_t i = 0; i < count; i++) {
    wide[i] = eval_load(from, eval_at(lit, i));
    if (via != WEFT_INVALID && weft_dtype_is_float(from))
      wide[i].re = weft_float_decode_f64(via, weft_float_encode_f64(via, wide[i].re));
    wide[i] = eval_convert(from, to_float ? WEFT_C128 : weft_dtype_is_integer(from) ? from : result_type, wide[i]);
  }
  *out = wide;
  return NULL;
}

/* True if each step of a sum of products is rounded to f32.  Sums of narrower floats are rounded to f32, too. */
static bool rounds_steps(const eval_ctx *ctx, weft_dtype type)
{
  bool is_narrow = weft_dtype_is_float(type) && weft_dtype_bits(type) < 32;

  return ctx->options->stepwise_sums && (is_narrow || type == WEFT_F32 || type == WEFT_C64);
}

/* sum += a * b in that class.  `rounded`: each step is rounded to f32. */
static inline void accumulate(weft_dtype_class class, bool rounded, eval_scalar *sum, eval_scalar a, eval_scalar b)
{
  if (rounded) {
    float ar = (float)a.re, br = (float)b.re, ai = (float)a.im, bi = (float)b.im;
    bool is_complex = class == WEFT_CLASS_COMPLEX;
    float re = is_complex ? ar * br - ai * bi : ar * br, im = is_complex ? ar * bi + ai * br : 0;
    sum->re = (float)sum->re + re;
    sum->im = (float)sum->im + im;
    return;
  }
  switch (class) {
  case WEFT_CLASS_FLOAT: sum->re += a.re * b.re; break;
  case WEFT_CLASS_COMPLEX:
    sum->re += a.re * b.re - a.im * b.im;
    sum->im += a.re * b.im + a.im * b.re;
    break;
  case WEFT_CLASS_PRED: sum->s |= a.s & b.s; break;
  default: sum->u += a.u * b.u; break;
  }
}

/* sum += the products of `count` pairs in order, of which the next ones lie lhs_step and rhs_step elements further. */
static void accumulate_run(weft_dtype_class class, bool rounded, eval_scalar *sum, const eval_scalar *lhs,
                           int64_t lhs_step, const eval_scalar *rhs, int64_t rhs_step, int64_t count)
{
  if (class == WEFT_CLASS_FLOAT && !rounded) {
    double re = sum->re;
    for (int64_t i = 0; i < count; i++) re += lhs[i * lhs_step].re * rhs[i * rhs_step].re;
    sum->re = re;
    return;
  }
  for (int64_t i = 0; i < count; i++) accumulate(class, rounded, sum, lhs[i * lhs_step], rhs[i * rhs_step]);
}

/* ---- dot --------------------------------------------------------------------------------------------------------- */

/* One group of dimensions (batch, free, contracting): their sizes, and the distance in each operand from one index
 * to the next. */
typedef struct dim_group {
  int count;
  int64_t size[HLO_MAX_RANK], lhs_step[HLO_MAX_RANK], rhs_step[HLO_MAX_RANK];
} dim_group;

static int64_t step_of(const hlo_shape *shape, int64_t dim)
{
  int64_t step = 1;

  for (int d = (int)dim + 1; d < shape->rank; d++) step *= shape->dims[d];
  return step;
}

/* lhs_dim or rhs_dim is -1 if that operand does not have the dimension. */
static void group_add(dim_group *g, const hlo_shape *lhs, int64_t lhs_dim, const hlo_shape *rhs, int64_t rhs_dim)
{
  g->size[g->count] = lhs_dim >= 0 ? lhs->dims[lhs_dim] : rhs->dims[rhs_dim];
  g->lhs_step[g->count] = lhs_dim >= 0 ? step_of(lhs, lhs_dim) : 0;
  g->rhs_step[g->count] = rhs_dim >= 0 ? step_of(rhs, rhs_dim) : 0;
  g->count++;
}

static int64_t group_elems(const dim_group *g)
{
  int64_t count = 1;

  for (int d = 0; d < g->count; d++) count *= g->size[d];
  return count;
}

static void group_offsets(const dim_group *g, const int64_t *idx, int64_t *lhs, int64_t *rhs)
{
  for (int d = 0; d < g->count; d++) {
    *lhs += idx[d] * g->lhs_step[d];
    *rhs += idx[d] * g->rhs_step[d];
  }
}

/* kept: the dimensions of the result in order (batch, lhs free, rhs free).  contracted: the contracting dimensions. */
static void dot_groups(const hlo_dot_attrs *dot, const hlo_shape *lhs, const hlo_shape *rhs, dim_group *kept,
                       dim_group *contracted)
{
  kept->count = contracted->count = 0;
  for (int i = 0; i < dot->lhs_batch.count; i++) group_add(kept, lhs, dot->lhs_batch.v[i], rhs, dot->rhs_batch.v[i]);
  for (int d = 0; d < lhs->rank; d++)
    if (!eval_contains(dot->lhs_batch, d) && !eval_contains(dot->lhs_contracting, d)) group_add(kept, lhs, d, rhs, -1);
  for (int d = 0; d < rhs->rank; d++)
    if (!eval_contains(dot->rhs_batch, d) && !eval_contains(dot->rhs_contracting, d) &&
        !eval_contains(dot->rhs_group, d))
      group_add(kept, lhs, -1, rhs, d);
  for (int i = 0; i < dot->lhs_contracting.count; i++)
    group_add(contracted, lhs, dot->lhs_contracting.v[i], rhs, dot->rhs_contracting.v[i]);
}

static weft_status *dot_wide(eval_ctx *ctx, const hlo_instr *instr, const hlo_shape *lhs_shape, const eval_scalar *lhs,
                             const hlo_shape *rhs_shape, const eval_scalar *rhs, const hlo_literal **out)
{
  const hlo_dot_attrs *dot = instr->u.dot;
  weft_dtype_class class = weft_dtype_class_of(instr->shape->type);
  bool rounded = rounds_steps(ctx, instr->shape->type);
  int64_t idx[HLO_MAX_RANK] = {0}, k = 0;
  int64_t run = 1, lhs_step = 0, rhs_step = 0; /* the last contracted dimension */
  dim_group kept, contracted;
  hlo_literal *result;

  if (dot->sparsity) return WEFT_ERR(UNIMPLEMENTED, "dot %s with sparsity_config", instr->name);
  dot_groups(dot, lhs_shape, rhs_shape, &kept, &contracted);
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  if (hlo_shape_elems(result->shape) == 0) return NULL;
  bool is_empty = group_elems(&contracted) == 0;
  if (contracted.count > 0) {
    int last = --contracted.count;
    run = contracted.size[last], lhs_step = contracted.lhs_step[last], rhs_step = contracted.rhs_step[last];
  }
  do {
    int64_t inner[HLO_MAX_RANK] = {0}, lhs_base = 0, rhs_base = 0;
    eval_scalar sum = {.re = 0, .im = 0};
    group_offsets(&kept, idx, &lhs_base, &rhs_base);
    if (!is_empty) {
      do {
        int64_t l = lhs_base, r = rhs_base;
        group_offsets(&contracted, inner, &l, &r);
        accumulate_run(class, rounded, &sum, lhs + l, lhs_step, rhs + r, rhs_step, run);
      } while (eval_next(contracted.count, contracted.size, inner));
    }
    eval_store(result->shape->type, eval_at(result, k++), sum);
    if (k % 4096 == 0) WEFT_TRY(eval_check_deadline(ctx));
  } while (eval_next(kept.count, kept.size, idx));
  return NULL;
}

weft_status *eval_dot(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                      const hlo_literal **out)
{
  weft_dtype via = algorithm_type(instr->u.dot);
  eval_scalar *lhs, *rhs;

  WEFT_TRY(widen(ctx, operands[0], instr->shape->type, via, &lhs));
  WEFT_TRY(widen(ctx, operands[1], instr->shape->type, via, &rhs));
  return dot_wide(ctx, instr, operands[0]->shape, lhs, operands[1]->shape, rhs, out);
}

/* Multiplies each element by the scale of its block; a scalar scales all elements. */
static weft_status *apply_scale(const hlo_shape *shape, eval_scalar *wide, const hlo_literal *scale)
{
  int64_t idx[HLO_MAX_RANK] = {0}, at[HLO_MAX_RANK], k = 0;
  const hlo_shape *s = scale->shape;

  if (hlo_shape_elems(shape) == 0) return NULL;
  for (int d = 0; d < s->rank; d++)
    if (s->rank != shape->rank || s->dims[d] == 0 || shape->dims[d] % s->dims[d] != 0)
      return WEFT_ERR(INVALID_ARGUMENT, "scaled-dot: scale dimensions do not divide the operand's");
  do {
    for (int d = 0; d < s->rank; d++) at[d] = idx[d] / (shape->dims[d] / s->dims[d]);
    double factor = eval_load(s->type, eval_at(scale, eval_offset(s->rank, s->dims, at))).re;
    wide[k].re *= factor;
    wide[k++].im *= factor;
  } while (eval_next(shape->rank, shape->dims, idx));
  return NULL;
}

weft_status *eval_scaled_dot(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                             const hlo_literal **out)
{
  eval_scalar *wide[2];

  for (int i = 0; i < 2; i++) {
    WEFT_TRY(widen(ctx, operands[i], instr->shape->type, WEFT_INVALID, &wide[i]));
    if (i + 2 < instr->operand_count) WEFT_TRY(apply_scale(operands[i]->shape, wide[i], operands[i + 2]));
  }
  return dot_wide(ctx, instr, operands[0]->shape, wide[0], operands[1]->shape, wide[1], out);
}

/* ---- ragged-dot -------------------------------------------------------------------------------------------------- */

/* The group of position `at` of the ragged dimension, from the group sizes that begin at `sizes_base`; -1 behind the
 * last group. */
static int64_t group_of(const hlo_literal *sizes, int64_t sizes_base, int64_t groups, int64_t at)
{
  int64_t end = 0;

  for (int64_t g = 0; g < groups; g++) {
    end += hlo_literal_get_s64(sizes, sizes_base + g);
    if (at < end) return g;
  }
  return -1;
}

/* The ragged dimension of lhs is free (the group of a row chooses the part of rhs), contracting (each group gives a
 * result of its own, and the result has a leading dimension for the groups), or batch (then this is a plain dot). */
weft_status *eval_ragged_dot(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                             const hlo_literal **out)
{
  const hlo_dot_attrs *dot = instr->u.dot;
  const hlo_shape *lhs_shape = operands[0]->shape, *rhs_shape = operands[1]->shape, *sizes_shape = operands[2]->shape;
  weft_dtype type = instr->shape->type;
  weft_dtype_class class = weft_dtype_class_of(type);
  bool rounded = rounds_steps(ctx, type);
  int64_t ragged = dot->lhs_ragged.v[0], groups = sizes_shape->dims[sizes_shape->rank - 1], k = 0;
  int64_t group_step = dot->rhs_group.count ? step_of(rhs_shape, dot->rhs_group.v[0]) : 0;
  bool contracting = eval_contains(dot->lhs_contracting, ragged);
  int ragged_at = -1; /* position of the ragged dimension in `kept` or `contracted` */
  eval_scalar *lhs, *rhs;
  dim_group kept, contracted;
  hlo_literal *result;

  if (eval_contains(dot->lhs_batch, ragged)) return eval_dot(ctx, instr, operands, out);
  if (dot->lhs_ragged.count != 1 || (sizes_shape->rank != 1 && sizes_shape->rank != dot->lhs_batch.count + 1))
    return WEFT_ERR(UNIMPLEMENTED, "ragged-dot %s with these group sizes", instr->name);
  WEFT_TRY(widen(ctx, operands[0], type, WEFT_INVALID, &lhs));
  WEFT_TRY(widen(ctx, operands[1], type, WEFT_INVALID, &rhs));
  dot_groups(dot, lhs_shape, rhs_shape, &kept, &contracted);
  for (int d = 0, free_at = dot->lhs_batch.count; d < lhs_shape->rank && !contracting; d++) {
    if (eval_contains(dot->lhs_batch, d) || eval_contains(dot->lhs_contracting, d)) continue;
    if (d == ragged) ragged_at = free_at;
    free_at++;
  }
  for (int i = 0; i < dot->lhs_contracting.count && contracting; i++)
    if (dot->lhs_contracting.v[i] == ragged) ragged_at = i;
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  if (hlo_shape_elems(result->shape) == 0 || group_elems(&contracted) == 0) return NULL;
  for (int64_t turn = 0; turn < (contracting ? groups : 1); turn++) {
    int64_t idx[HLO_MAX_RANK] = {0};
    do {
      int64_t inner[HLO_MAX_RANK] = {0}, lhs_base = 0, rhs_base = 0, sizes_base = 0, group = turn;
      eval_scalar sum = {.re = 0, .im = 0};
      group_offsets(&kept, idx, &lhs_base, &rhs_base);
      if (sizes_shape->rank > 1)
        for (int i = 0; i < dot->lhs_batch.count; i++) sizes_base = sizes_base * kept.size[i] + idx[i];
      sizes_base *= groups;
      if (!contracting) {
        group = group_of(operands[2], sizes_base, groups, idx[ragged_at]);
        rhs_base += group * group_step;
      }
      if (group >= 0) {
        do {
          int64_t l = lhs_base, r = rhs_base;
          if (contracting && group_of(operands[2], sizes_base, groups, inner[ragged_at]) != group) continue;
          group_offsets(&contracted, inner, &l, &r);
          accumulate(class, rounded, &sum, lhs[l], rhs[r]);
        } while (eval_next(contracted.count, contracted.size, inner));
      }
      eval_store(type, eval_at(result, k++), sum);
      WEFT_TRY(eval_check_deadline(ctx));
    } while (eval_next(kept.count, kept.size, idx));
  }
  return NULL;
}

/* ---- convolution ------------------------------------------------------------------------------------------------- */

/* Feature groups split input and output features in the same way.  Batch groups split the input batch, and the
 * output features choose the part. */
weft_status *eval_convolution(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                              const hlo_literal **out)
{
  const hlo_conv_attrs *c = instr->u.conv;
  const hlo_shape *ls = operands[0]->shape, *rs = operands[1]->shape, *os = instr->shape;
  weft_dtype_class class = weft_dtype_class_of(os->type);
  bool rounded = rounds_steps(ctx, os->type);
  int spatial = c->window.rank;
  int64_t idx[HLO_MAX_RANK] = {0}, kernel_size[HLO_MAX_RANK], k = 0;
  int64_t lhs_size[HLO_MAX_RANK], lhs_step[HLO_MAX_RANK], rhs_step[HLO_MAX_RANK]; /* of the spatial dimensions */
  int64_t in_features = rs->dims[c->rhs_in_feature], out_features = os->dims[c->out_feature];
  int64_t batches = os->dims[c->out_batch];
  int64_t lhs_feature_step = step_of(ls, c->lhs_feature), rhs_feature_step = step_of(rs, c->rhs_in_feature);
  int64_t batch_step = step_of(ls, c->lhs_batch), out_feature_step = step_of(rs, c->rhs_out_feature);
  eval_scalar *lhs, *rhs;
  hlo_literal *result;

  WEFT_TRY(widen(ctx, operands[0], os->type, WEFT_INVALID, &lhs));
  WEFT_TRY(widen(ctx, operands[1], os->type, WEFT_INVALID, &rhs));
  for (int d = 0; d < spatial; d++) {
    kernel_size[d] = rs->dims[c->rhs_spatial.v[d]];
    lhs_size[d] = ls->dims[c->lhs_spatial.v[d]];
    lhs_step[d] = step_of(ls, c->lhs_spatial.v[d]);
    rhs_step[d] = step_of(rs, c->rhs_spatial.v[d]);
  }
  WEFT_TRY(eval_result(ctx, os, &result));
  *out = result;
  if (hlo_shape_elems(os) == 0 || hlo_shape_elems(rs) == 0) return NULL;
  do {
    int64_t feature = idx[c->out_feature], group = feature / (out_features / c->feature_group_count);
    int64_t batch = idx[c->out_batch] + feature / (out_features / c->batch_group_count) * batches;
    int64_t inner[HLO_MAX_RANK] = {0};
    eval_scalar sum = {.re = 0, .im = 0};
    do {
      int64_t l = batch * batch_step + group * in_features * lhs_feature_step, r = feature * out_feature_step;
      bool inside = true;
      for (int d = 0; d < spatial && inside; d++) {
        const hlo_window_dim *w = &c->window.dims[d];
        int64_t at = idx[c->out_spatial.v[d]] * w->stride + inner[d] * w->window_dilation - w->pad_low;
        int64_t tap = w->reversal ? kernel_size[d] - 1 - inner[d] : inner[d], hole = 0;
        if (w->base_dilation != 1) hole = at % w->base_dilation, at /= w->base_dilation;
        inside = hole == 0 && at >= 0 && at < lhs_size[d];
        l += at * lhs_step[d];
        r += tap * rhs_step[d];
      }
      if (!inside && ls->type == WEFT_F8E8M0FNU) sum.re = NAN; /* padding and holes are 0, which the type lacks */
      if (inside)
        accumulate_run(class, rounded, &sum, lhs + l, lhs_feature_step, rhs + r, rhs_feature_step, in_features);
    } while (eval_next(spatial, kernel_size, inner));
    eval_store(os->type, eval_at(result, k++), sum);
    if (k % 1024 == 0) WEFT_TRY(eval_check_deadline(ctx));
  } while (eval_next(os->rank, os->dims, idx));
  return NULL;
}
