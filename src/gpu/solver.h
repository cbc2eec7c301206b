/* gpu/solver.h -- dense linear algebra by cuSOLVER: what JAX's custom calls cusolver_*_ffi ask for. */
#ifndef WEFT_GPU_SOLVER_H
#define WEFT_GPU_SOLVER_H

#include "gpu/abi/cuda.h"
#include "gpu/abi/cusolver.h"
#include "gpu/triangular.h"
#include "hlo/hlo.h"

/* The library's state for one device.  Thread-safe. */
typedef struct gpu_solver gpu_solver;

/* Opens cuSOLVER for the device whose context is current on the calling thread.  Owned by the caller.
 * Errors: UNAVAILABLE where the library is not found; those of the library. */
WEFT_NODISCARD weft_status *gpu_solver_new(gpu_solver **out_solver);
void gpu_solver_free(gpu_solver *solver); /* NULL is fine; no queued work may use it */
WEFT_DEFINE_AUTO(gpu_solver, gpu_solver_free)

/* Matrices are column-major and batched over all dimensions but the last two.  The operand that has the shape of the
 * first result, `a` or `c`, is overwritten by that result.
 *   POTRF   a -> factor, info             Cholesky
 *   GETRF   a -> lu, pivots from 1, info
 *   GEQRF   a -> reflectors, tau
 *   ORGQR   a, tau -> q
 *   SYEVD   a -> vectors, values, info    Hermitian eigenvalues, ascending
 *   GESVDJ  a -> (undefined), s, u, v, info   a = u s v^H, by Jacobi's method
 *   GESVDP  the same, by polar decomposition
 *   GESVD   a -> (undefined), s, u, v^H, info   by QR, with at least as many rows as columns; `transposed` says that
 *           the arrays are row-major and u and v^H have changed places, which is the same for the transpose of a
 *   ORMQR   a, tau, c -> q c or c q       also with the adjoint of q
 *   SYTRD   a -> reflectors, d, e, tau, info   a similar matrix with three diagonals
 * Small matrices of a batch are given to a library all at once (gpu_solve.batched): to cuBLAS by GETRF and GEQRF. */
typedef enum gpu_routine { GPU_POTRF, GPU_GETRF, GPU_GEQRF, GPU_ORGQR, GPU_SYEVD, GPU_GESVDJ, GPU_GESVDP, GPU_GESVD, GPU_ORMQR, GPU_SYTRD } gpu_routine;

enum { GPU_SOLVE_ARRAYS = 7 }; /* most operands and results of a routine */

typedef struct gpu_solve {
  gpu_routine routine;
  weft_dtype type;
  int64_t matrices;
  int m, n, k;                   /* of the first result; k: reflectors of ORGQR and ORMQR */
  bool lower, economic, vectors; /* attributes `lower`, not `full_matrices`, `compute_uv` */
  bool by_qr;                    /* attribute `algorithm` of SYEVD asks for QR */
  bool left, adjoint;            /* attributes `left` and `transpose` of ORMQR */
  bool batched;                  /* one call of the library does all matrices */
  /* filled by gpu_solve_measure: */
  size_t device_bytes, host_bytes;
  size_t workspace_bytes;        /* of the memory that gpu_solve_enqueue is given, alignment included */
} gpu_solve;

/* The routine of a custom call's target ("cusolver_potrf_ffi"); false: there is none. */
bool gpu_solve_find(const char *target, gpu_routine *out_routine);

/* Reads the custom call `instr` of this routine.  Errors: INVALID_ARGUMENT for arrays or attributes that the routine
 * does not have; UNIMPLEMENTED for element types that the library does not have and for sizes above 2^31 - 1. */
WEFT_NODISCARD weft_status *gpu_solve_init(gpu_solve *solve, gpu_routine routine, const hlo_instr *instr);

/* Arrays of the custom call, and whether there is nothing to compute. */
int gpu_solve_operands(const gpu_solve *solve);
int gpu_solve_results(const gpu_solve *solve);
int gpu_solve_overwritten(const gpu_solve *solve); /* the operand that becomes result 0 */
/* How many lists of addresses have to stand at the beginning of the workspace, one after the other: list k has those of
 * the matrices' parts of result k. */
int gpu_solve_lists(const gpu_solve *solve);
bool gpu_solve_wants_cublas(const gpu_solve *solve); /* false after `batched` has been set to false */
bool gpu_solve_is_empty(const gpu_solve *solve);

/* Asks the library for the size of the workspace. */
WEFT_NODISCARD weft_status *gpu_solve_measure(gpu_solve *solve, gpu_solver *solver);

/* Queues the routine for all matrices on `stream`, of the device of `solver`, whose context is current.
 *   arrays  the operands' addresses, then the results'; result 0 holds what it overwrites already
 *   cublas  NULL unless gpu_solve_wants_cublas
 * Thread-safe. */
WEFT_NODISCARD weft_status *gpu_solve_enqueue(const gpu_solve *solve, gpu_solver *solver, gpu_cublas *cublas,
                                              wcu_stream stream, const wcu_ptr *arrays, wcu_ptr workspace);

#endif
