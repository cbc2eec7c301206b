/* passes/batch_norm_expander.c -- batch-norm-expander: batch-norm-training, -inference and -grad as elementwise
 * operations and reductions over all dimensions but the feature's (StableHLO batch_norm_*).  Types under 32 bits are
 * computed in f32. */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

typedef struct batch_norm {
  pass_build b;
  weft_dtype type;            /* computed in */
  const hlo_shape *shape;     /* of the operand */
  int64_t feature, count;     /* count: elements per feature */
  int reduced_count;
  int64_t reduced[HLO_MAX_RANK];
  hlo_computation *adder;
  float epsilon;
} batch_norm;

static weft_status *begin(hlo_instr *instr, batch_norm *n)
{
  const hlo_shape *shape = instr->operands[0]->shape;

  *n = (batch_norm){.b = PASS_BUILD_AT(instr), .shape = shape, .count = 1, .epsilon = instr->u.batch_norm.epsilon};
  n->type = weft_dtype_is_float(shape->type) && weft_dtype_bits(shape->type) < 32 ? WEFT_F32 : shape->type;
  n->feature = instr->u.batch_norm.feature_index;
  for (int i = 0; i < shape->rank; i++) {
    if (i == n->feature) continue;
    n->reduced[n->reduced_count++] = i;
    n->count *= shape->dims[i];
  }
  return hlo_add_reducer(instr->parent->module, HLO_ADD, n->type, &n->adder);
}

static hlo_instr *wide(batch_norm *n, hlo_instr *x) { return pb_convert(&n->b, x, n->type); }
static hlo_instr *per_feature(batch_norm *n, hlo_instr *v) { return pb_broadcast_1d(&n->b, v, n->shape, n->feature); }
static hlo_instr *sum(batch_norm *n, hlo_instr *x)
{
  return pb_reduce(&n->b, x, pb_scalar(&n->b, n->type, 0), n->reduced_count, n->reduced, n->adder);
}
static hlo_instr *mean(batch_norm *n, hlo_instr *x)
{
  hlo_instr *total = sum(n, x);
  return n->b.error ? NULL : pb_div(&n->b, total, pb_splat(&n->b, total, (double)n->count));
}
static hlo_instr *inverse_deviation(batch_norm *n, hlo_instr *variance)
{
  if (n->b.error) return NULL;
  return pb_op1(&n->b, HLO_RSQRT, pb_add(&n->b, variance, pb_splat(&n->b, variance, n->epsilon)));
}

/* (x - mean) * scale / sqrt(variance + epsilon) + offset */
static hlo_instr *normalized(batch_norm *n, hlo_instr *x, hlo_instr *scale, hlo_instr *offset, hlo_instr *average,
                             hlo_instr *variance)
{
  hlo_instr *factor = pb_mul(&n->b, wide(n, scale), inverse_deviation(n, variance));
  hlo_instr *centered = pb_sub(&n->b, x, per_feature(n, average));

  return pb_add(&n->b, pb_mul(&n->b, centered, per_feature(n, factor)), per_feature(n, wide(n, offset)));
}

static weft_status *expand_training(hlo_instr *instr)
{
  batch_norm n;
  hlo_instr *x, *average, *centered, *variance, *out[3];

  WEFT_TRY(begin(instr, &n));
  x = wide(&n, instr->operands[0]);
  average = mean(&n, x);
  centered = pb_sub(&n.b, x, per_feature(&n, average));
  variance = mean(&n, pb_mul(&n.b, centered, centered));
  out[0] = normalized(&n, x, instr->operands[1], instr->operands[2], average, variance);
  out[1] = average;
  out[2] = variance;
  for (int i = 0; i < 3 && !n.b.error; i++) out[i] = pb_convert(&n.b, out[i], instr->shape->elements[i]->type);
  return pass_build_replace(&n.b, instr, pb_tuple(&n.b, 3, out));
}

static weft_status *expand_inference(hlo_instr *instr)
{
  batch_norm n;
  hlo_instr *y;

  WEFT_TRY(begin(instr, &n));
  y = normalized(&n, wide(&n, instr->operands[0]), instr->operands[1], instr->operands[2], wide(&n, instr->operands[3]),
                 wide(&n, instr->operands[4]));
  return pass_build_replace(&n.b, instr, n.b.error ? NULL : pb_convert(&n.b, y, instr->shape->type));
}

static weft_status *expand_grad(hlo_instr *instr)
{
  batch_norm n;
  hlo_instr *x, *dy, *inverse, *centered, *offset_grad, *scale_grad, *from_scale, *from_offset, *factor, *out[3];

  WEFT_TRY(begin(instr, &n));
  x = wide(&n, instr->operands[0]);
  dy = wide(&n, instr->operands[4]);
  inverse = inverse_deviation(&n, wide(&n, instr->operands[3]));
  centered = pb_sub(&n.b, x, per_feature(&n, wide(&n, instr->operands[2])));
  offset_grad = sum(&n, dy);
  scale_grad = pb_mul(&n.b, sum(&n, pb_mul(&n.b, dy, centered)), inverse);
  if (n.b.error) return pass_build_finish(&n.b);
  hlo_instr *count = pb_splat(&n.b, scale_grad, (double)n.count);
  from_offset = pb_div(&n.b, offset_grad, count);
  from_scale = pb_div(&n.b, pb_mul(&n.b, scale_grad, inverse), count);
  factor = pb_mul(&n.b, wide(&n, instr->operands[1]), inverse);
  out[0] =
    pb_sub(&n.b, pb_sub(&n.b, dy, per_feature(&n, from_offset)), pb_mul(&n.b, centered, per_feature(&n, from_scale)));
  out[0] = pb_mul(&n.b, out[0], per_feature(&n, factor));
  out[1] = scale_grad;
  out[2] = offset_grad;
  for (int i = 0; i < 3 && !n.b.error; i++) out[i] = pb_convert(&n.b, out[i], instr->shape->elements[i]->type);
  return pass_build_replace(&n.b, instr, pb_tuple(&n.b, 3, out));
}

static weft_status *batch_norm_expander_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op == HLO_BATCH_NORM_TRAINING) WEFT_TRY(expand_training(instr));
      else if (instr->op == HLO_BATCH_NORM_INFERENCE) WEFT_TRY(expand_inference(instr));
      else if (instr->op == HLO_BATCH_NORM_GRAD) WEFT_TRY(expand_grad(instr));
      else continue;
      *changed = true;
    }
  return *changed ? hlo_module_gc(module) : NULL;
}
const hlo_pass pass_batch_norm_expander = {"batch-norm-expander", batch_norm_expander_run};
