/* codegen/host/lanes.c -- the lanes of a vector combined into one value. */
#include <config.h>

#include "codegen/host/host.h"

void gen_split_lanes(gen_emit *e, gen_value v, gen_value *low, gen_value *high)
{
  int first[64], second[64], half = (int)LLVMGetVectorSize(LLVMTypeOf(v.re)) / 2;
  gen_ssa none = LLVMGetPoison(LLVMTypeOf(v.re));

  for (int i = 0; i < half; i++) first[i] = i, second[i] = half + i;
  *low = (gen_value){gen_shuffle(e, v.re, none, half, first), v.im ? gen_shuffle(e, v.im, none, half, first) : NULL};
  *high = (gen_value){gen_shuffle(e, v.re, none, half, second), v.im ? gen_shuffle(e, v.im, none, half, second) : NULL};
}

gen_value gen_combine_lanes(gen_emit *e, hlo_opcode op, weft_dtype type, gen_value v)
{
  if (!gen_is_vector(v.re)) return v;
  for (int n = (int)LLVMGetVectorSize(LLVMTypeOf(v.re)); n > 1; n /= 2) {
    gen_value low, high;
    gen_split_lanes(e, v, &low, &high);
    v = gen_combine(e, op, type, low, high);
  }
  gen_ssa zero = LLVMConstInt(e->part->i32, 0, 0);
  return (gen_value){LLVMBuildExtractElement(e->b, v.re, zero, ""),
                     v.im ? LLVMBuildExtractElement(e->b, v.im, zero, "") : NULL};
}
