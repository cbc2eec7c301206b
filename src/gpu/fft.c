/* gpu/fft.c -- HLO fft by cuFFT (fft.h).  The workspace holds the copy of the operand, if there is one, and then the
 * library's part. */
#include <config.h>

#include "gpu/fft.h"

#include <stdlib.h>

#include "base/macros.h"
#include "base/thread.h"
#include "gpu/table.h"

enum { WORKSPACE_ALIGNMENT = 256 };

GPU_TABLE(WFT_ENTRIES, "cuFFT", "libcufft.so.12", "libcufft.so.11");

struct gpu_fft_plan {
  weft_mutex mu;     /* held while `plan` has a stream and a workspace, and a call uses them */
  wft_plan plan;
  bool made;
  size_t workspace_bytes; /* the library's part */
};

/* ---- errors ---- */

static const char *result_name(wft_result result)
{
  switch (result) {
#define NAME(name, value) case WFT_##name: return "CUFFT_" #name;
    WFT_RESULTS(NAME)
#undef NAME
  }
  return "an unknown result";
}

static weft_code code_of(wft_result result)
{
  switch (result) {
  case WFT_SUCCESS: return WEFT_OK;
  case WFT_ALLOC_FAILED: return WEFT_RESOURCE_EXHAUSTED;
  case WFT_INVALID_SIZE: case WFT_NOT_IMPLEMENTED: case WFT_NOT_SUPPORTED: return WEFT_UNIMPLEMENTED;
  case WFT_SETUP_FAILED: return WEFT_UNAVAILABLE;
  default: return WEFT_INTERNAL;
  }
}

static weft_status *status_of(wft_result result, const char *call)
{
  return gpu_table_error(&table, code_of(result), call, result_name(result), (int)result);
}

#define FFT_TRY(call, ...) WEFT_TRY(status_of(fn.call(__VA_ARGS__), #call))

/* ---- reading ---- */

weft_status *gpu_fft_init(gpu_fft *fft, const hlo_instr *instr)
{
  const hlo_shape *in = instr->operands[0]->shape, *out = instr->shape;
  hlo_fft_type kind = instr->u.fft_type;
  const hlo_shape *full = kind == HLO_FFT_IRFFT ? out : in; /* the array whose last dimension has its full length */
  int rank = instr->dims.count;
  double count = 1;

  if (rank < 1 || rank > GPU_FFT_RANK)
    return WEFT_ERR(UNIMPLEMENTED, "fft of %d dimensions; cuFFT has 1 to %d", rank, GPU_FFT_RANK);
  if (hlo_shape_elems(in) == 0 || hlo_shape_elems(out) == 0) return WEFT_ERR(UNIMPLEMENTED, "fft of an empty array");
  *fft = (gpu_fft){.rank = rank, .batch = 1, .is_double = weft_dtype_component(in->type) == WEFT_F64};
  for (int i = 0; i < full->rank - rank; i++) fft->batch *= full->dims[i];
  for (int i = 0; i < rank; i++) {
    fft->sizes[i] = full->dims[full->rank - rank + i];
    count *= (double)fft->sizes[i];
  }
  bool is_real = kind == HLO_FFT_RFFT, to_real = kind == HLO_FFT_IRFFT;
  fft->type = fft->is_double ? (is_real   ? WFT_D2Z
                                : to_real ? WFT_Z2D
                                          : WFT_Z2Z)
                             : (is_real   ? WFT_R2C
                                : to_real ? WFT_C2R
                                          : WFT_C2C);
  fft->direction = kind == HLO_FFT_IFFT || to_real ? WFT_INVERSE : WFT_FORWARD;
  fft->scale = fft->direction == WFT_INVERSE ? 1 / count : 1;
  fft->result_numbers = hlo_shape_elems(out) * (to_real ? 1 : 2);
  fft->input_bytes = (size_t)hlo_shape_bytes(in);
  fft->keeps_input = !(to_real && rank > 1);
  return NULL;
}

/* ---- plans ---- */

static weft_status *make(const gpu_fft *fft, gpu_fft_plan *plan)
{
  long long sizes[GPU_FFT_RANK];

  for (int i = 0; i < GPU_FFT_RANK; i++) sizes[i] = fft->sizes[i];
  FFT_TRY(cufftCreate, &plan->plan);
  plan->made = true;
  FFT_TRY(cufftSetAutoAllocation, plan->plan, 0);
  FFT_TRY(cufftMakePlanMany64, plan->plan, fft->rank, sizes, NULL, 1, 0, NULL, 1, 0, fft->type, fft->batch,
          &plan->workspace_bytes);
  return NULL;
}

weft_status *gpu_fft_plan_new(const gpu_fft *fft, gpu_fft_plan **out_plan)
{
  WEFT_AUTO(gpu_fft_plan) plan = NULL;

  *out_plan = NULL;
  WEFT_TRY(gpu_table_open(&table));
  plan = calloc(1, sizeof *plan);
  WEFT_TRY_ALLOC(plan);
  weft_mutex_init(&plan->mu);
  WEFT_TRY(make(fft, plan));
  *out_plan = WEFT_MOVE(plan);
  return NULL;
}

void gpu_fft_plan_free(gpu_fft_plan *plan)
{
  if (!plan) return;
  if (plan->made) fn.cufftDestroy(plan->plan);
  weft_mutex_fini(&plan->mu);
  free(plan);
}

static size_t copy_bytes(const gpu_fft *fft)
{
  return fft->keeps_input ? 0 : WEFT_ALIGN_UP(fft->input_bytes, (size_t)WORKSPACE_ALIGNMENT);
}

size_t gpu_fft_workspace(const gpu_fft *fft, const gpu_fft_plan *plan)
{
  size_t bytes = copy_bytes(fft) + plan->workspace_bytes;
  return bytes ? bytes + WORKSPACE_ALIGNMENT : 0;
}

wcu_ptr gpu_fft_copy_at(const gpu_fft *fft, wcu_ptr workspace)
{
  return fft->keeps_input ? 0 : WEFT_ALIGN_UP(workspace, (wcu_ptr)WORKSPACE_ALIGNMENT);
}

/* ---- running ---- */

static weft_status *execute(const gpu_fft *fft, const gpu_fft_plan *plan, wcu_stream stream, wcu_ptr in, wcu_ptr out,
                            wcu_ptr area)
{
  FFT_TRY(cufftSetStream, plan->plan, stream);
  if (plan->workspace_bytes) FFT_TRY(cufftSetWorkArea, plan->plan, (void *)(uintptr_t)area);
  FFT_TRY(cufftXtExec, plan->plan, (void *)(uintptr_t)in, (void *)(uintptr_t)out, fft->direction);
  return NULL;
}

weft_status *gpu_fft_enqueue(const gpu_fft *fft, gpu_fft_plan *plan, wcu_stream stream, wcu_ptr in, wcu_ptr out,
                             wcu_ptr workspace)
{
  wcu_ptr area = WEFT_ALIGN_UP(workspace, (wcu_ptr)WORKSPACE_ALIGNMENT) + copy_bytes(fft);

  weft_mutex_lock(&plan->mu);
  weft_status *st = execute(fft, plan, stream, fft->keeps_input ? in : gpu_fft_copy_at(fft, workspace), out, area);
  weft_mutex_unlock(&plan->mu);
  return st;
}
