/* codegen/math.c -- transcendental functions of f32 and f64. */
#include <config.h>

#include "codegen/codegen_internal.h"

/* The C library's names: {f32, f64}; the last resort, called lane by lane. */
static const char *const libm_names[HLO_OPCODE_COUNT][2] = {
  [HLO_ACOS] = {"acosf", "acos"},   [HLO_ACOSH] = {"acoshf", "acosh"}, [HLO_ASIN] = {"asinf", "asin"},
  [HLO_ASINH] = {"asinhf", "asinh"}, [HLO_ATANH] = {"atanhf", "atanh"}, [HLO_CBRT] = {"cbrtf", "cbrt"},
  [HLO_COS] = {"cosf", "cos"},      [HLO_COSH] = {"coshf", "cosh"},    [HLO_ERF] = {"erff", "erf"},
  [HLO_EXP] = {"expf", "exp"},      [HLO_EXPM1] = {"expm1f", "expm1"}, [HLO_LOG] = {"logf", "log"},
  [HLO_LOG1P] = {"log1pf", "log1p"}, [HLO_SIN] = {"sinf", "sin"},      [HLO_SINH] = {"sinhf", "sinh"},
  [HLO_TAN] = {"tanf", "tan"},      [HLO_TANH] = {"tanhf", "tanh"},    [HLO_ATAN2] = {"atan2f", "atan2"},
  [HLO_POWER] = {"powf", "pow"},
};

gen_ssa gen_math(gen_emit *e, hlo_opcode op, gen_ssa a, gen_ssa b)
{
  bool is_f64 = gen_scalar_type(a) == e->part->f64;

  switch (op) {
  case HLO_RSQRT: return gen_bin(e, LLVMFDiv, gen_f(a, 1), gen_intrinsic1(e, "llvm.sqrt", a));
  case HLO_LOGISTIC: {
    gen_ssa x = gen_math(e, HLO_EXP, LLVMBuildFNeg(e->b, a, ""), NULL);
    return gen_bin(e, LLVMFDiv, gen_f(a, 1), gen_bin(e, LLVMFAdd, x, gen_f(a, 1)));
  }
  default: break;
  }
  const char *name = libm_names[op][is_f64];
  return name ? gen_libcall(e, name, b ? 2 : 1, (gen_ssa[]){a, b}) : NULL;
}
