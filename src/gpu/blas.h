/* gpu/blas.h -- HLO dot by cuBLASLt, with a matrix, a bias and an activation in the same pass over the result. */
#ifndef WEFT_GPU_BLAS_H
#define WEFT_GPU_BLAS_H

#include "gpu/abi/cublaslt.h"
#include "gpu/abi/cuda.h"
#include "gpu/table.h"
#include "hlo/hlo.h"

/* NULL for success; otherwise an error that names the call and the status. `library` is cuBLAS or cuBLASLt, whose codes
 * are the same. */
WEFT_NODISCARD weft_status *gpu_blas_status(const gpu_table *library, wbl_status status, const char *call);

/* The library's state for one device.  Thread-safe. */
typedef struct gpu_blas gpu_blas;

/* Opens cuBLASLt for the device whose context is current on the calling thread.  Owned by the caller.
 * Errors: UNAVAILABLE where the library is not found; those of the library. */
WEFT_NODISCARD weft_status *gpu_blas_new(gpu_blas **out_blas);
void gpu_blas_free(gpu_blas *blas); /* NULL is fine; no queued work may use it */
WEFT_DEFINE_AUTO(gpu_blas, gpu_blas_free)

/* What is done to each element of the product: activation(sum + addend + bias). */
typedef enum gpu_activation { GPU_LINEAR, GPU_RELU, GPU_GELU } gpu_activation; /* GPU_GELU: approximated with tanh */

/* The algorithm that the library chose for a product, as bytes that may be kept in a file. */
typedef struct gpu_dot_choice {
  wbl_algo algo;
  uint64_t workspace_bytes;
} gpu_dot_choice;

/* out[b, m, n] = activation(sum over k of lhs[b, m, k] * rhs[b, k, n] + addend[b, m, n] + bias[n]), all dense and
 * row-major.  The addend is of the result's type; gpu_dot_enqueue is told whether there is one, and no choice depends
 * on it. */
typedef struct gpu_dot {
  int64_t batches, m, n, k;
  bool lhs_swapped, rhs_swapped; /* lhs is [b, k, m]; rhs is [b, n, k] */
  bool has_bias;                 /* [n], of the result's type */
  gpu_activation activation;
  wct_type type, out_type, scale;
  wbl_compute compute;
  /* filled by gpu_dot_choose: */
  wbl_layout lhs_layout, rhs_layout, out_layout;
  gpu_dot_choice choice;
} gpu_dot;

/* Fills `dot`, except the members that gpu_dot_choose fills.  Pass dot-canonicalizer brings a dot into the form that is
 * wanted: one contracting dimension, at most one batch dimension.  `dot` may be copied until gpu_dot_choose.
 *
 * Sums are at least of f32.  An f32 product is rounded to tf32, bf16 or f16 only if its algorithm says so
 * (steps.c sets that of tf32 for WEFT_CUDA_TF32).
 * Errors: UNIMPLEMENTED for other forms, for empty arrays and for element types that the library does not have. */
WEFT_NODISCARD weft_status *gpu_dot_init(gpu_dot *dot, const hlo_dot_attrs *attrs, const hlo_shape *lhs,
                                         const hlo_shape *rhs, const hlo_shape *out, bool has_bias,
                                         gpu_activation activation);

/* Asks the library for an algorithm that uses at most `most_workspace` bytes; the choice holds for all devices of the
 * same kind.  `dot` must stay where it is from now on.
 * Errors: UNIMPLEMENTED if the library has no algorithm. */
WEFT_NODISCARD weft_status *gpu_dot_choose(gpu_dot *dot, const gpu_blas *blas, size_t most_workspace);

/* The same with a choice that was made before, perhaps by another process; the library checks it.  Errors:
 * INVALID_ARGUMENT: the choice does not fit this product; those of the library. */
WEFT_NODISCARD weft_status *gpu_dot_resume(gpu_dot *dot, const gpu_blas *blas, size_t most_workspace,
                                           const void *choice, size_t size);
/* As text: the library's version and all that its choice depends on, except the device. */
void gpu_dot_describe(const gpu_dot *dot, const gpu_blas *blas, char *out, size_t size);
/* Bytes of the memory that gpu_dot_enqueue is given, alignment included. */
size_t gpu_dot_workspace(const gpu_dot *dot);

/* Queues the product on `stream`, of the device of `blas`, whose context is current.  Addresses are multiples of 16;
 * `bias`, `addend` and `workspace` are 0 where there is none.  Thread-safe. */
typedef struct gpu_dot_arrays { wcu_ptr lhs, rhs, bias, addend, out, workspace; } gpu_dot_arrays;
WEFT_NODISCARD weft_status *gpu_dot_enqueue(const gpu_dot *dot, const gpu_blas *blas, wcu_stream stream,
                                            const gpu_dot_arrays *arrays);

#endif
