/* gpu/makers.c -- the table of makers (makers.h). */
#include <config.h>

#include "gpu/makers.h"

const gpu_maker gpu_makers[] = {
  {HLO_CONCATENATE, gpu_kernel_make, gpu_plan_kernel},
  {HLO_CONVOLUTION, gpu_conv_make, gpu_plan_conv},
  {HLO_COPY, gpu_copy_make, NULL},
  {HLO_CUSTOM_CALL, gpu_custom_call_make, gpu_plan_custom_call},
  {HLO_DOT, gpu_dot_make, gpu_plan_dot},
  {HLO_FFT, gpu_fft_make, gpu_plan_fft},
  {HLO_FUSION, gpu_kernel_make, gpu_plan_kernel},
  {HLO_PARTITION_ID, gpu_id_make, NULL},
  {HLO_REDUCE_WINDOW, gpu_kernel_make, gpu_plan_kernel},
  {HLO_REPLICA_ID, gpu_id_make, NULL},
  {HLO_SORT, gpu_kernel_make, gpu_plan_kernel},
  {HLO_TOPK, gpu_kernel_make, gpu_plan_kernel},
  {HLO_TRIANGULAR_SOLVE, gpu_triangular_make, NULL},
  {.make = NULL},
};

const gpu_maker *gpu_find_maker(hlo_opcode op)
{
  const gpu_maker *maker = gpu_makers;

  while (maker->make && maker->op != op) maker++;
  return maker->make ? maker : NULL;
}
