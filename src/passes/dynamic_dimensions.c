/* dynamic-dimensions: operations on dynamic sizes whose operands turn out to be static.
 *   get-dimension-size of a static dimension   its size
 *   set-dimension-size to the constant bound   nothing
 *   dynamic-reshape to a static shape          reshape */
#include <config.h>

#include "passes/build.h"
#include "passes/passes.h"

static bool is_static_dim(const hlo_shape *shape, int64_t dim) { return !shape->dynamic || !shape->dynamic[dim]; }

static weft_status *resolve(hlo_instr *instr, bool *changed)
{
  hlo_instr *x = instr->operand_count ? instr->operands[0] : NULL, *with = NULL;
  pass_build b = PASS_BUILD_AT(instr);

  switch (instr->op) {
  case HLO_GET_DIMENSION_SIZE:
    if (is_static_dim(x->shape, instr->dims.v[0])) with = pb_int(&b, WEFT_S32, x->shape->dims[instr->dims.v[0]]);
    break;
  case HLO_SET_DIMENSION_SIZE:
    if (is_static_dim(x->shape, instr->dims.v[0]) && instr->operands[1]->op == HLO_CONSTANT &&
        hlo_literal_get_s64(instr->operands[1]->u.literal, 0) == x->shape->dims[instr->dims.v[0]] &&
        hlo_shape_equal(instr->shape, x->shape, false))
      with = x;
    break;
  case HLO_DYNAMIC_RESHAPE:
    if (!hlo_shape_is_dynamic(instr->shape) && !hlo_shape_is_dynamic(x->shape))
      with = pb_reshape_like(&b, x, instr->shape);
    break;
  default: break;
  }
  if (!with) return pass_build_finish(&b);
  *changed = true;
  return pass_build_replace(&b, instr, with);
}

static weft_status *dynamic_dimensions_run(hlo_module *module, pass_ctx *ctx, bool *changed)
{
  (void)ctx;
  HLO_FOREACH_COMPUTATION(comp, module)
    HLO_FOREACH(instr, comp) WEFT_TRY(resolve(instr, changed));
  return NULL;
}
const hlo_pass pass_dynamic_dimensions = {"dynamic-dimensions", dynamic_dimensions_run};
