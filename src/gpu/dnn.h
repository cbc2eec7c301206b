/* gpu/dnn.h -- HLO convolution by cuDNN: products and both gradients, one to three spatial dimensions. */
#ifndef WEFT_GPU_DNN_H
#define WEFT_GPU_DNN_H

#include "gpu/abi/cuda.h"
#include "gpu/abi/cudnn.h"
#include "passes/convolution.h"

/* The library's state for one device.  Thread-safe. */
typedef struct gpu_dnn gpu_dnn;

/* Opens cuDNN for the device whose context is current on the calling thread.  Owned by the caller.
 * Errors: UNAVAILABLE where the library is not found; those of the library. */
WEFT_NODISCARD weft_status *gpu_dnn_new(gpu_dnn **out_dnn);
void gpu_dnn_free(gpu_dnn *dnn); /* NULL is fine; no queued work may use it */
WEFT_DEFINE_AUTO(gpu_dnn, gpu_dnn_free)

/* One convolution, for all devices of a kind.  Immutable. */
typedef struct gpu_conv gpu_conv;

/* Describes the convolution `instr`, which conv-canonicalizer has brought into the form of libraries, and asks the
 * library for a deterministic algorithm that uses at most `most_workspace` bytes.  f32 is rounded to tf32 only
 * if `tf32` allows it.  Owned by the caller.  Errors: UNIMPLEMENTED for other forms and for types that the library does
 * not have. */
WEFT_NODISCARD weft_status *gpu_conv_new(const hlo_instr *instr, gpu_dnn *dnn, bool tf32, size_t most_workspace,
                                         gpu_conv **out_conv);
void gpu_conv_free(gpu_conv *conv); /* NULL is fine */
WEFT_DEFINE_AUTO(gpu_conv, gpu_conv_free)

/* Bytes of the memory that gpu_conv_enqueue is given, alignment included. */
size_t gpu_conv_workspace(const gpu_conv *conv);

/* Queues the convolution on `stream`, of the device of `dnn`, whose context is current.  Addresses are multiples of
 * 16; `workspace` is 0 where there is none.  Thread-safe. */
WEFT_NODISCARD weft_status *gpu_conv_enqueue(const gpu_conv *conv, gpu_dnn *dnn, wcu_stream stream, wcu_ptr lhs,
                                             wcu_ptr rhs, wcu_ptr out, wcu_ptr workspace);

#endif
