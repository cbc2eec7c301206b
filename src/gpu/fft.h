/* gpu/fft.h -- HLO fft by cuFFT: all four kinds, up to three dimensions. */
#ifndef WEFT_GPU_FFT_H
#define WEFT_GPU_FFT_H

#include "gpu/abi/cuda.h"
#include "gpu/abi/cufft.h"
#include "gpu/triangular.h"

enum { GPU_FFT_RANK = 3 };

typedef struct gpu_fft {
  wft_type type;
  wft_direction direction;
  int rank;
  long long sizes[GPU_FFT_RANK], batch; /* sizes of the real or complex array */
  bool is_double;
  double scale;                         /* of the result; 1: none */
  int64_t result_numbers;               /* real numbers of the result, for scaling */
  size_t input_bytes;
  bool keeps_input;                     /* false: the library may overwrite the operand, so a copy is transformed */
} gpu_fft;

/* A plan of the library for one device.  Thread-safe. */
typedef struct gpu_fft_plan gpu_fft_plan;

/* Reads the instruction.  Errors: UNIMPLEMENTED for more dimensions than three and for empty arrays. */
WEFT_NODISCARD weft_status *gpu_fft_init(gpu_fft *fft, const hlo_instr *instr);

/* Makes a plan for the device whose context is current on the calling thread.  Owned by the caller.
 * Errors: UNAVAILABLE where the library is not found; those of the library. */
WEFT_NODISCARD weft_status *gpu_fft_plan_new(const gpu_fft *fft, gpu_fft_plan **out_plan);
void gpu_fft_plan_free(gpu_fft_plan *plan); /* NULL is fine; no queued work may use it */
WEFT_DEFINE_AUTO(gpu_fft_plan, gpu_fft_plan_free)

/* Bytes of the memory that gpu_fft_enqueue is given, alignment and the copy of the operand included. */
size_t gpu_fft_workspace(const gpu_fft *fft, const gpu_fft_plan *plan);

/* Queues everything but the scaling (gpu_scale_enqueue) on `stream`, of the plan's device, whose context is current.
 * If the operand has to be copied, its copy lies at gpu_fft_copy_at already, and `in` is not read.  Thread-safe. */
WEFT_NODISCARD weft_status *gpu_fft_enqueue(const gpu_fft *fft, gpu_fft_plan *plan, wcu_stream stream, wcu_ptr in,
                                            wcu_ptr out, wcu_ptr workspace);

/* Where in the workspace the caller puts the copy of the operand, before gpu_fft_enqueue. */
wcu_ptr gpu_fft_copy_at(const gpu_fft *fft, wcu_ptr workspace);

#endif
