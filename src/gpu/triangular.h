/* gpu/triangular.h -- HLO triangular-solve, scaling of arrays, and LU and QR factors of the matrices of a batch, by
 * cuBLAS. */
#ifndef WEFT_GPU_TRIANGULAR_H
#define WEFT_GPU_TRIANGULAR_H

#include "gpu/abi/cublas.h"
#include "gpu/abi/cuda.h"
#include "hlo/hlo.h"

/* The library's state for one device.  Thread-safe. */
typedef struct gpu_cublas gpu_cublas;

/* Opens cuBLAS for the device whose context is current on the calling thread.  Owned by the caller.
 * Errors: UNAVAILABLE where the library is not found; those of the library. */
WEFT_NODISCARD weft_status *gpu_cublas_new(gpu_cublas **out_cublas);
void gpu_cublas_free(gpu_cublas *cublas); /* NULL is fine; no queued work may use it */
WEFT_DEFINE_AUTO(gpu_cublas, gpu_cublas_free)

/* Queues array *= factor on `stream`: `count` numbers, of f64 or else f32.  Thread-safe. */
WEFT_NODISCARD weft_status *gpu_scale_enqueue(gpu_cublas *cublas, wcu_stream stream, bool is_double, double factor,
                                              wcu_ptr array, int64_t count);

/* op(a) x = b or x op(a) = b, dense and row-major, for each matrix of a batch. */
typedef struct gpu_triangular {
  weft_dtype type;
  int rows, cols; /* sizes of b */
  int64_t matrices;
  wb3_side side;  /* in the library's column-major terms, as are the next three */
  wb3_triangle triangle;
  wbl_operation op;
  wb3_diagonal diagonal;
} gpu_triangular;

/* Errors: UNIMPLEMENTED for element types that the library does not have and for sizes above 2^31 - 1. */
WEFT_NODISCARD weft_status *gpu_triangular_init(gpu_triangular *t, const hlo_instr *instr);

/* Systems that one call solves; 0: they are too large to gain by that, and each has a call of its own. */
int64_t gpu_triangular_batch(const gpu_triangular *t);
/* Bytes of the matrices of one system. */
int64_t gpu_triangular_a_bytes(const gpu_triangular *t);
int64_t gpu_triangular_x_bytes(const gpu_triangular *t);

/* Queues the solution on `stream`, of the device of `cublas`, whose context is current.  `x` holds b already and is
 * overwritten.  `addresses`, in the device's memory, are those of each a and then of each x, if gpu_triangular_batch is
 * not 0.  Thread-safe. */
WEFT_NODISCARD weft_status *gpu_triangular_enqueue(const gpu_triangular *t, gpu_cublas *cublas, wcu_stream stream,
                                                   wcu_ptr a, wcu_ptr x, wcu_ptr addresses);

/* `count` column-major matrices, of f32, f64, c64 or c128, that are replaced by their factors. */
typedef struct gpu_factors {
  weft_dtype type;
  int m, n, count;
} gpu_factors;

/* Queues the LU factors, of square matrices: pivots, from 1, n for each matrix, and an info for each.  `addresses`, in
 * the device's memory, are those of the matrices.  Thread-safe. */
WEFT_NODISCARD weft_status *gpu_lu_enqueue(const gpu_factors *f, gpu_cublas *cublas, wcu_stream stream,
                                           wcu_ptr addresses, wcu_ptr pivots, wcu_ptr info);
/* The same with the QR factors.  `addresses` are those of the matrices and then of the scales of their reflectors. */
WEFT_NODISCARD weft_status *gpu_qr_enqueue(const gpu_factors *f, gpu_cublas *cublas, wcu_stream stream,
                                           wcu_ptr addresses);

#endif
