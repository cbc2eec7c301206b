/* gpu/makers.c -- the table of makers (makers.h). */
#include <config.h>

#include "gpu/makers.h"

#include "codegen/model/library.h"

const gpu_maker gpu_makers[] = {
  {HLO_CONCATENATE, gpu_kernel_make, gpu_plan_kernel},
  {HLO_CONVOLUTION, gpu_conv_make, gpu_plan_conv},
  {HLO_COPY, gpu_copy_make, NULL},
  {HLO_CUSTOM_CALL, gpu_custom_call_make, gpu_plan_custom_call},
  {HLO_DOT, gpu_dot_make, gpu_plan_dot},
  {HLO_FFT, gpu_fft_make, gpu_plan_fft},
  {HLO_FUSION, gpu_fusion_make, gpu_plan_fusion},
  {HLO_PARTITION_ID, gpu_id_make, NULL},
  {HLO_REDUCE_WINDOW, gpu_kernel_make, gpu_plan_kernel},
  {HLO_REPLICA_ID, gpu_id_make, NULL},
  {HLO_SORT, gpu_kernel_make, gpu_plan_kernel},
  {HLO_TOPK, gpu_kernel_make, gpu_plan_kernel},
  {HLO_TRIANGULAR_SOLVE, gpu_triangular_make, gpu_plan_triangular},
  {.make = NULL},
};

weft_status *gpu_fusion_make(low_step *step, rt_thunk **out_thunk)
{
  return gen_is_library_fusion(step->instr) ? gpu_dot_make(step, out_thunk) : gpu_kernel_make(step, out_thunk);
}

weft_status *gpu_plan_fusion(const gpu_target *target, weft_arena *arena, const hlo_instr *instr, low_plan *plan)
{
  return gen_is_library_fusion(instr) ? gpu_plan_dot(target, arena, instr, plan)
                                      : gpu_plan_kernel(target, arena, instr, plan);
}

const gpu_maker *gpu_find_maker(hlo_opcode op)
{
  const gpu_maker *maker = gpu_makers;

  while (maker->make && maker->op != op) maker++;
  return maker->make ? maker : NULL;
}
