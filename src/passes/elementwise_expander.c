/* passes/elementwise_expander.c -- elementwise-expander: elementwise instructions that code generation does not know,
 * by those it does.
 *   logistic            1 / (1 + exp(-x))
 *   bitcast-convert     between complex types: by their parts as a last dimension of 2
 *   stochastic-convert  truncation, and one more in magnitude where the random number is below the fraction's bits */
#include <config.h>

#include <math.h>
#include <string.h>

#include "passes/build.h"
#include "passes/passes.h"

static weft_status *expand_logistic(hlo_instr *instr)
{
  pass_build b = PASS_BUILD_AT(instr);
  hlo_instr *x = instr->operands[0], *one = pb_splat(&b, x, 1);

  return pass_build_replace(&b, instr,
                            pb_div(&b, one, pb_add(&b, one, pb_op1(&b, HLO_EXP, pb_op1(&b, HLO_NEGATE, x)))));
}

/* Only for signed integer results, as in XLA. */
static weft_status *expand_stochastic_convert(hlo_instr *instr)
{
  pass_build b = PASS_BUILD_AT(instr);
  hlo_instr *x = instr->operands[0], *random = instr->operands[1], *magnitude, *whole, *fraction, *bits, *result, *up;
  weft_dtype to = instr->shape->type;
  double limit = ldexp(1, weft_dtype_bits(to) - 1);

  if (!weft_dtype_is_signed(to) || weft_dtype_bits(to) > 32)
    return WEFT_ERR(UNIMPLEMENTED, "stochastic-convert \"%s\" to %s: only signed integers up to 32 bits", instr->name,
                    weft_dtype_name(to));
  x = pb_convert(&b, x, x->shape->type == WEFT_F64 ? WEFT_F64 : WEFT_F32);
  magnitude = pb_op1(&b, HLO_ABS, x);
  whole = pb_op1(&b, HLO_FLOOR, magnitude);
  fraction = pb_sub(&b, magnitude, whole);
  if (b.error) return pass_build_finish(&b);
  bits = pb_mul(&b, fraction, pb_splat(&b, fraction, ldexp(1, weft_dtype_bits(random->shape->type))));
  up = pb_compare(&b, HLO_LT, random, b.error ? NULL : pb_convert(&b, bits, random->shape->type));
  result = pb_convert(&b, whole, to);
  if (b.error) return pass_build_finish(&b);
  result = pb_select(&b, up, pb_add(&b, result, pb_splat_int(&b, result, 1)), result);
  result = pb_select(&b, pb_compare(&b, HLO_LT, x, pb_splat(&b, x, 0)), pb_op1(&b, HLO_NEGATE, result), result);
  if (b.error) return pass_build_finish(&b);
  result = pb_select(&b, pb_compare(&b, HLO_LE, x, pb_splat(&b, x, -limit)), pb_splat_int(&b, result, (int64_t)-limit),
                     result);
  result = pb_select(&b, pb_compare(&b, HLO_GE, x, pb_splat(&b, x, limit - 1)),
                     b.error ? NULL : pb_splat_int(&b, result, (int64_t)(limit - 1)), result);
  return pass_build_replace(&b, instr, result);
}

static hlo_instr *bitcast_to(pass_build *b, hlo_instr *x, weft_dtype type, int rank, const int64_t *dims)
{
  const hlo_shape *shape = hlo_shape_array(&b->comp->module->arena, type, rank, dims);

  if (!shape && !b->error) b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  return pb_instr(b, HLO_BITCAST_CONVERT, shape, 1, &x);
}

/* The real and the imaginary parts side by side, with the dimensions of x and a last dimension of 2. */
static hlo_instr *parts_of(pass_build *b, hlo_instr *x, weft_dtype part, int rank, const int64_t *dims)
{
  hlo_instr *parts[2];
  const hlo_shape *shape = hlo_shape_with_type(&b->comp->module->arena, x->shape, part);
  int64_t one[HLO_MAX_RANK];

  if (!shape && !b->error) b->error = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  memcpy(one, dims, (size_t)rank * sizeof *one);
  one[rank - 1] = 1;
  for (int i = 0; i < 2; i++) parts[i] = pb_reshape(b, pb_instr(b, i ? HLO_IMAG : HLO_REAL, shape, 1, &x), rank, one);
  return pb_concat(b, rank - 1, 2, parts);
}

/* Between c64 and c128: f32[..., 2, 2] is f64[..., 2], the parts of the other type. */
static weft_status *expand_complex_bitcast(hlo_instr *instr)
{
  pass_build b = PASS_BUILD_AT(instr);
  const hlo_shape *from = instr->operands[0]->shape, *to = instr->shape;
  int64_t dims[HLO_MAX_RANK];
  int rank = WEFT_MAX(from->rank, to->rank) + 1, from_rank = from->rank + 1, to_rank = to->rank + 1;
  hlo_instr *x, *part[2];

  if (rank > HLO_MAX_RANK) return WEFT_ERR(UNIMPLEMENTED, "bitcast-convert \"%s\" of rank %d", instr->name, rank - 1);
  memcpy(dims, (from_rank == rank ? from : to)->dims, (size_t)(rank - 1) * sizeof *dims);
  dims[rank - 1] = dims[to_rank - 1] = dims[from_rank - 1] = 2;
  x = parts_of(&b, instr->operands[0], weft_dtype_component(from->type), from_rank, dims);
  x = bitcast_to(&b, x, weft_dtype_component(to->type), to_rank, dims);
  for (int i = 0; i < 2; i++) part[i] = pb_reshape_like(&b, pb_slice_dim(&b, x, to_rank - 1, i, i + 1), to);
  return pass_build_replace(&b, instr, pb_instr(&b, HLO_COMPLEX, to, 2, part));
}

static bool is_complex_bitcast(const hlo_instr *instr)
{
  return instr->op == HLO_BITCAST_CONVERT && weft_dtype_is_complex(instr->shape->type) &&
         instr->shape->type != instr->operands[0]->shape->type;
}

static weft_status *elementwise_expander_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) {
      if (instr->op == HLO_LOGISTIC) WEFT_TRY(expand_logistic(instr));
      else if (instr->op == HLO_STOCHASTIC_CONVERT) WEFT_TRY(expand_stochastic_convert(instr));
      else if (is_complex_bitcast(instr)) WEFT_TRY(expand_complex_bitcast(instr));
      else continue;
      *changed = true;
    }
  return NULL;
}
const hlo_pass pass_elementwise_expander = {"elementwise-expander", elementwise_expander_run};
