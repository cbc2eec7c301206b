/* gpu/solver.c -- dense linear algebra by cuSOLVER (solver.h).  Matrices are given to the library one after the other,
 * small ones of a batch all at once.
 *
 * The workspace of a step holds the addresses of the matrices for routines that want them, or else an `info` for
 * routines whose custom call has none; then the library's own part. */
#include <config.h>

#include "gpu/solver.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/swap.h"
#include "base/thread.h"
#include "gpu/table.h"
#include "runtime/ffi.h"

enum { WORKSPACE_ALIGNMENT = 256, ALGORITHM_QR = 1 /* of JAX's attribute `algorithm` */ };

GPU_TABLE(WSV_ENTRIES, "cuSOLVER", "libcusolver.so.12", "libcusolver.so.11");

struct gpu_solver {
  weft_mutex mu;     /* held while `handle` has a stream and calls use both */
  wsv_handle handle;
  wsv_params params; /* the defaults */
  wsv_jacobi jacobi;
  wsv_eigen_jacobi eigen_jacobi;
  double polar_error; /* written by gesvdp, and not read */
  struct host_block *host WEFT_GUARDED_BY(mu); /* the largest one first */
};

/* Workspace of the library on the host.  Queued work may use a block until the solver is freed. */
typedef struct host_block {
  struct host_block *next;
  size_t bytes; /* of what follows */
} host_block;

/* ---- errors ---- */

static const char *status_name(wsv_status status)
{
  switch (status) {
#define NAME(name, value) case WSV_STATUS_##name: return "CUSOLVER_STATUS_" #name;
    WSV_STATUSES(NAME)
#undef NAME
  }
  return "an unknown status";
}

static weft_code code_of(wsv_status status)
{
  switch (status) {
  case WSV_STATUS_SUCCESS: return WEFT_OK;
  case WSV_STATUS_ALLOC_FAILED: return WEFT_RESOURCE_EXHAUSTED;
  case WSV_STATUS_ARCH_MISMATCH: case WSV_STATUS_NOT_SUPPORTED: return WEFT_UNIMPLEMENTED;
  case WSV_STATUS_NOT_INITIALIZED: return WEFT_UNAVAILABLE;
  default: return WEFT_INTERNAL;
  }
}

static weft_status *status_of(wsv_status status, const char *call)
{
  return gpu_table_error(&table, code_of(status), call, status_name(status), (int)status);
}

#define SOLVER_TRY(call, ...) WEFT_TRY(status_of(fn.call(__VA_ARGS__), #call))

/* The entry point of a routine for an element type. */
#define OF_TYPE(type, s, d, c, z)                                                                   \
  ((type) == WEFT_F32 ? fn.cusolverDnS##s : (type) == WEFT_F64 ? fn.cusolverDnD##d                  \
   : (type) == WEFT_C64 ? fn.cusolverDnC##c : fn.cusolverDnZ##z)
#define SAME_OF_TYPE(type, name) OF_TYPE(type, name, name, name, name)

/* ---- the library ---- */

weft_status *gpu_solver_new(gpu_solver **out_solver)
{
  WEFT_AUTO(gpu_solver) solver = NULL;

  *out_solver = NULL;
  WEFT_TRY(gpu_table_open(&table));
  solver = calloc(1, sizeof *solver);
  WEFT_TRY_ALLOC(solver);
  weft_mutex_init(&solver->mu);
  SOLVER_TRY(cusolverDnCreate, &solver->handle);
  SOLVER_TRY(cusolverDnCreateParams, &solver->params);
  SOLVER_TRY(cusolverDnCreateGesvdjInfo, &solver->jacobi);
  SOLVER_TRY(cusolverDnCreateSyevjInfo, &solver->eigen_jacobi);
  *out_solver = WEFT_MOVE(solver);
  return NULL;
}

void gpu_solver_free(gpu_solver *solver) WEFT_UNSHARED
{
  if (!solver) return;
  if (solver->eigen_jacobi) fn.cusolverDnDestroySyevjInfo(solver->eigen_jacobi);
  if (solver->jacobi) fn.cusolverDnDestroyGesvdjInfo(solver->jacobi);
  if (solver->params) fn.cusolverDnDestroyParams(solver->params);
  if (solver->handle) fn.cusolverDnDestroy(solver->handle);
  for (host_block *block = solver->host, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  weft_mutex_fini(&solver->mu);
  free(solver);
}

/* ---- custom calls ---- */

/* `info`: the index of the result that is the status of each matrix; 0: there is none. */
static const struct { const char *target; int operands, results, info, overwritten; } routines[] = {
  [GPU_POTRF] = {"cusolver_potrf_ffi", 1, 2, 1},  [GPU_GETRF] = {"cusolver_getrf_ffi", 1, 3, 2},
  [GPU_GEQRF] = {"cusolver_geqrf_ffi", 1, 2, 0},  [GPU_ORGQR] = {"cusolver_orgqr_ffi", 2, 1, 0},
  [GPU_SYEVD] = {"cusolver_syevd_ffi", 1, 3, 2},  [GPU_GESVDJ] = {"cusolver_gesvdj_ffi", 1, 5, 4},
  [GPU_GESVDP] = {"cusolver_gesvdp_ffi", 1, 5, 4}, [GPU_GESVD] = {"cusolver_gesvd_ffi", 1, 5, 4},
  [GPU_ORMQR] = {"cusolver_ormqr_ffi", 3, 1, 0, 2}, [GPU_SYTRD] = {"cusolver_sytrd_ffi", 1, 5, 4},
};

bool gpu_solve_find(const char *target, gpu_routine *out_routine)
{
  for (size_t i = 0; i < WEFT_COUNT(routines); i++)
    if (strcmp(target, routines[i].target) == 0) {
      *out_routine = (gpu_routine)i;
      return true;
    }
  return false;
}

/* The value of an attribute of one byte. */
static int attr_byte(const XLA_FFI_Attrs *attrs, const char *name, int otherwise)
{
  size_t length = strlen(name);

  for (int64_t i = 0; i < attrs->size; i++)
    if (attrs->names[i]->len == length && memcmp(attrs->names[i]->ptr, name, length) == 0 &&
        attrs->types[i] == XLA_FFI_AttrType_SCALAR)
      return *(const uint8_t *)((const XLA_FFI_Scalar *)attrs->attrs[i])->value;
  return otherwise;
}

static weft_status *read_attrs(gpu_solve *solve, const hlo_instr *instr)
{
  const char *text = instr->extra ? instr->extra->backend_config : NULL;
  XLA_FFI_Attrs attrs;
  weft_arena arena;

  weft_arena_init(&arena);
  weft_status *st = rt_ffi_attrs_parse(&arena, text ? text : "{}", &attrs);
  if (!st) {
    solve->lower = attr_byte(&attrs, "lower", true);
    solve->economic = !attr_byte(&attrs, "full_matrices", false);
    solve->vectors = attr_byte(&attrs, "compute_uv", true);
    solve->by_qr = attr_byte(&attrs, "algorithm", 0) == ALGORITHM_QR;
    solve->left = attr_byte(&attrs, "left", true);
    solve->adjoint = attr_byte(&attrs, "transpose", false);
    if (attr_byte(&attrs, "transposed", false)) WEFT_SWAP(solve->m, solve->n);
  }
  weft_arena_fini(&arena);
  return st;
}

/* The shape of result `i` of a custom call. */
static const hlo_shape *result_shape(const hlo_instr *instr, int i)
{
  return hlo_shape_is_tuple(instr->shape) ? instr->shape->elements[i] : instr->shape;
}

static int64_t batch_of(const hlo_shape *shape, int matrix_rank)
{
  int64_t count = 1;

  for (int d = 0; d < shape->rank - matrix_rank; d++) count *= shape->dims[d];
  return count;
}

/* Checks that the array `what` has `elems` elements of `type` for each matrix. */
static weft_status *check_array(const gpu_solve *solve, const hlo_shape *shape, int64_t elems, weft_dtype type,
                                const char *what)
{
  int64_t all;

  if (hlo_shape_is_array(shape) && shape->type == type && !__builtin_mul_overflow(solve->matrices, elems, &all) &&
      hlo_shape_elems(shape) == all)
    return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "%s: %s has %lld elements of %s, but %lld matrices need %lld each of %s",
                  routines[solve->routine].target, what,
                  (long long)(hlo_shape_is_array(shape) ? hlo_shape_elems(shape) : 0), weft_dtype_name(shape->type),
                  (long long)solve->matrices, (long long)elems, weft_dtype_name(type));
}

static weft_status *check_results(const gpu_solve *s, const hlo_instr *instr)
{
  int64_t m = s->m, n = s->n, least = WEFT_MIN(m, n);
  int64_t u = s->economic ? least : m, v = s->economic ? least : n;
  weft_dtype type = s->type, real = weft_dtype_component(s->type);

  WEFT_TRY(check_array(s, result_shape(instr, 0), m * n, type, "result 0"));
  switch (s->routine) {
  case GPU_GETRF: WEFT_TRY(check_array(s, result_shape(instr, 1), least, WEFT_S32, "result 1")); break;
  case GPU_GEQRF: WEFT_TRY(check_array(s, result_shape(instr, 1), least, type, "result 1")); break;
  case GPU_ORGQR: WEFT_TRY(check_array(s, instr->operands[1]->shape, s->k, type, "operand 1")); break;
  case GPU_SYEVD: WEFT_TRY(check_array(s, result_shape(instr, 1), n, real, "result 1")); break;
  case GPU_GESVD:
    WEFT_TRY(check_array(s, result_shape(instr, 1), least, real, "result 1"));
    if (!s->vectors) break; /* results 2 and 3 are not written */
    WEFT_TRY(check_array(s, result_shape(instr, 2), m * u, type, "result 2"));
    WEFT_TRY(check_array(s, result_shape(instr, 3), n * v, type, "result 3"));
    break;
  case GPU_ORMQR:
    WEFT_TRY(check_array(s, instr->operands[0]->shape, (s->left ? m : n) * s->k, type, "operand 0"));
    WEFT_TRY(check_array(s, instr->operands[1]->shape, s->k, type, "operand 1"));
    break;
  case GPU_SYTRD:
    WEFT_TRY(check_array(s, result_shape(instr, 1), n, real, "result 1"));
    WEFT_TRY(check_array(s, result_shape(instr, 2), WEFT_MAX(n - 1, 0), real, "result 2"));
    WEFT_TRY(check_array(s, result_shape(instr, 3), WEFT_MAX(n - 1, 0), type, "result 3"));
    break;
  case GPU_GESVDJ:
  case GPU_GESVDP:
    WEFT_TRY(check_array(s, result_shape(instr, 1), least, real, "result 1"));
    WEFT_TRY(check_array(s, result_shape(instr, 2), m * u, type, "result 2"));
    WEFT_TRY(check_array(s, result_shape(instr, 3), n * v, type, "result 3"));
    break;
  default: break;
  }
  int info = routines[s->routine].info;
  return info ? check_array(s, result_shape(instr, info), 1, WEFT_S32, "info") : NULL;
}

/* Most rows and columns for which the library's Jacobi methods take all matrices of a batch in one call. */
enum { MOST_JACOBI = 32 };
/* Most rows and columns for which one call of cuBLAS does all LU or QR factors of a batch: larger matrices fill the
 * device one by one. */
enum { MOST_FACTORS = 256 };

/* Whether the library has a call for all matrices of a batch that is meant for matrices of this size. */
static bool is_batched(const gpu_solve *s)
{
  if (s->matrices < 2 || s->matrices > INT_MAX) return false;
  switch (s->routine) {
  case GPU_POTRF: return true;
  case GPU_GETRF: return s->m == s->n && s->n <= MOST_FACTORS;
  case GPU_GEQRF: return s->m <= MOST_FACTORS && s->n <= MOST_FACTORS;
  case GPU_SYEVD: return s->n <= MOST_JACOBI && !s->by_qr;
  case GPU_GESVDJ: return s->m <= MOST_JACOBI && s->n <= MOST_JACOBI && (!s->economic || s->m == s->n);
  default: return false;
  }
}

weft_status *gpu_solve_init(gpu_solve *solve, gpu_routine routine, const hlo_instr *instr)
{
  int operands = routines[routine].operands, results = hlo_shape_is_tuple(instr->shape) ? instr->shape->rank : 1;

  *solve = (gpu_solve){.routine = routine};
  if (instr->operand_count != operands || results != routines[routine].results)
    return WEFT_ERR(INVALID_ARGUMENT, "%s: %d operands and %d results, expected %d and %d", routines[routine].target,
                    instr->operand_count, results, operands, routines[routine].results);
  const hlo_shape *a = instr->operands[routines[routine].overwritten]->shape;
  if (!hlo_shape_is_array(a) || a->rank < 2)
    return WEFT_ERR(INVALID_ARGUMENT, "%s: operand %d is no matrix", routines[routine].target,
                    routines[routine].overwritten);
  int64_t m = a->dims[a->rank - 2], n = a->dims[a->rank - 1];
  if (a->type != WEFT_F32 && a->type != WEFT_F64 && a->type != WEFT_C64 && a->type != WEFT_C128)
    return WEFT_ERR(UNIMPLEMENTED, "custom call %s of %s on a GPU", routines[routine].target, weft_dtype_name(a->type));
  if (m > INT_MAX || n > INT_MAX)
    return WEFT_ERR(UNIMPLEMENTED, "custom call %s of a matrix of %lld x %lld on a GPU", routines[routine].target,
                    (long long)m, (long long)n);
  if ((routine == GPU_POTRF || routine == GPU_SYEVD || routine == GPU_SYTRD) && m != n)
    return WEFT_ERR(INVALID_ARGUMENT, "%s of a matrix of %lld x %lld", routines[routine].target, (long long)m,
                    (long long)n);
  solve->type = a->type;
  solve->m = (int)m;
  solve->n = (int)n;
  solve->matrices = batch_of(a, 2);
  if ((routine == GPU_ORGQR || routine == GPU_ORMQR) && solve->matrices && instr->operands[1]->shape->rank)
    solve->k = (int)instr->operands[1]->shape->dims[instr->operands[1]->shape->rank - 1];
  WEFT_TRY(read_attrs(solve, instr));
  if (routine == GPU_GESVD && solve->m < solve->n)
    return WEFT_ERR(INVALID_ARGUMENT, "cusolver_gesvd_ffi: %d rows are fewer than %d columns", solve->m, solve->n);
  solve->batched = is_batched(solve);
  return check_results(solve, instr);
}

/* ---- sizes ---- */

static wct_type library_type(weft_dtype type)
{
  switch (type) {
  case WEFT_F32: return WCT_R_32F;
  case WEFT_F64: return WCT_R_64F;
  case WEFT_C64: return WCT_C_32F;
  default: return WCT_C_64F;
  }
}

int gpu_solve_operands(const gpu_solve *solve) { return routines[solve->routine].operands; }
int gpu_solve_overwritten(const gpu_solve *solve) { return routines[solve->routine].overwritten; }
bool gpu_solve_wants_cublas(const gpu_solve *s)
{
  return s->batched && (s->routine == GPU_GETRF || s->routine == GPU_GEQRF);
}
int gpu_solve_lists(const gpu_solve *s)
{
  if (!s->batched) return 0;
  return s->routine == GPU_GEQRF ? 2 : s->routine == GPU_POTRF || s->routine == GPU_GETRF;
}
int gpu_solve_results(const gpu_solve *solve) { return routines[solve->routine].results; }
bool gpu_solve_is_empty(const gpu_solve *s) { return s->matrices == 0 || s->m == 0 || s->n == 0; }

/* Of ORMQR: the side on which q stands, q or its adjoint, and the rows of q. */
static wb3_side side_of(const gpu_solve *s) { return s->left ? WB3_SIDE_LEFT : WB3_SIDE_RIGHT; }
static wbl_operation operation_of(const gpu_solve *s)
{
  return !s->adjoint ? WBL_OP_N : weft_dtype_is_complex(s->type) ? WBL_OP_C : WBL_OP_T;
}
static int order_of(const gpu_solve *s) { return s->left ? s->m : s->n; }

/* The workspace of routines that take all matrices in one call. */
static weft_status *measure_batched(gpu_solve *s, const gpu_solver *solver)
{
  wsv_vectors vectors = s->vectors ? WSV_VECTOR : WSV_NOVECTOR;
  int elements = 0, count = (int)s->matrices;

  if (s->routine == GPU_SYEVD)
    WEFT_TRY(status_of(OF_TYPE(s->type, syevjBatched_bufferSize, syevjBatched_bufferSize, heevjBatched_bufferSize,
                               heevjBatched_bufferSize)(solver->handle, WSV_VECTOR, s->lower ? WSV_LOWER : WSV_UPPER,
                                                        s->n, NULL, s->n, NULL, &elements, solver->eigen_jacobi, count),
                       "cusolverDn syevjBatched_bufferSize"));
  if (s->routine == GPU_GESVDJ)
    WEFT_TRY(status_of(SAME_OF_TYPE(s->type, gesvdjBatched_bufferSize)(solver->handle, vectors, s->m, s->n, NULL, s->m,
                                                                       NULL, NULL, s->m, NULL, s->n, &elements,
                                                                       solver->jacobi, count),
                       "cusolverDn gesvdjBatched_bufferSize"));
  s->device_bytes = (size_t)WEFT_MAX(elements, 0) * weft_dtype_bytes(s->type);
  return NULL;
}

static weft_status *measure_locked(gpu_solve *s, const gpu_solver *solver) WEFT_REQUIRES(solver->mu)
{
  weft_mutex_assert_held(&solver->mu);
  wct_type type = library_type(s->type), real = library_type(weft_dtype_component(s->type));
  wsv_triangle triangle = s->lower ? WSV_LOWER : WSV_UPPER;
  wsv_handle handle = solver->handle;
  int elements = 0;

  if (s->batched) return measure_batched(s, solver);
  switch (s->routine) {
  case GPU_POTRF:
    SOLVER_TRY(cusolverDnXpotrf_bufferSize, handle, solver->params, triangle, s->n, type, NULL, s->m, type,
               &s->device_bytes, &s->host_bytes);
    return NULL;
  case GPU_GEQRF:
    SOLVER_TRY(cusolverDnXgeqrf_bufferSize, handle, solver->params, s->m, s->n, type, NULL, s->m, type, NULL, type,
               &s->device_bytes, &s->host_bytes);
    return NULL;
  case GPU_SYEVD:
    SOLVER_TRY(cusolverDnXsyevd_bufferSize, handle, solver->params, WSV_VECTOR, triangle, s->n, type, NULL, s->m, real,
               NULL, type, &s->device_bytes, &s->host_bytes);
    return NULL;
  case GPU_GETRF:
    WEFT_TRY(status_of(SAME_OF_TYPE(s->type, getrf_bufferSize)(handle, s->m, s->n, NULL, s->m, &elements),
                       "cusolverDn getrf_bufferSize"));
    break;
  case GPU_ORGQR:
    WEFT_TRY(status_of(OF_TYPE(s->type, orgqr_bufferSize, orgqr_bufferSize, ungqr_bufferSize,
                               ungqr_bufferSize)(handle, s->m, s->n, s->k, NULL, s->m, NULL, &elements),
                       "cusolverDn orgqr_bufferSize"));
    break;
  case GPU_GESVDJ:
    WEFT_TRY(status_of(SAME_OF_TYPE(s->type, gesvdj_bufferSize)(handle, s->vectors ? WSV_VECTOR : WSV_NOVECTOR,
                                                                s->economic, s->m, s->n, NULL, s->m, NULL, NULL, s->m,
                                                                NULL, s->n, &elements, solver->jacobi),
                       "cusolverDn gesvdj_bufferSize"));
    break;
  case GPU_GESVDP:
    SOLVER_TRY(cusolverDnXgesvdp_bufferSize, handle, solver->params, s->vectors ? WSV_VECTOR : WSV_NOVECTOR,
               s->economic, s->m, s->n, type, NULL, s->m, real, NULL, type, NULL, s->m, type, NULL, s->n, type,
               &s->device_bytes, &s->host_bytes);
    return NULL;
  case GPU_GESVD:
    WEFT_TRY(
      status_of(SAME_OF_TYPE(s->type, gesvd_bufferSize)(handle, s->m, s->n, &elements), "cusolverDn gesvd_bufferSize"));
    break;
  case GPU_ORMQR:
    WEFT_TRY(status_of(OF_TYPE(s->type, ormqr_bufferSize, ormqr_bufferSize, unmqr_bufferSize,
                               unmqr_bufferSize)(handle, side_of(s), operation_of(s), s->m, s->n, s->k, NULL,
                                                 order_of(s), NULL, NULL, s->m, &elements),
                       "cusolverDn ormqr_bufferSize"));
    break;
  case GPU_SYTRD:
    WEFT_TRY(status_of(OF_TYPE(s->type, sytrd_bufferSize, sytrd_bufferSize, hetrd_bufferSize,
                               hetrd_bufferSize)(handle, triangle, s->n, NULL, s->m, NULL, NULL, NULL, &elements),
                       "cusolverDn sytrd_bufferSize"));
    break;
  }
  s->device_bytes = (size_t)WEFT_MAX(elements, 0) * weft_dtype_bytes(s->type);
  return NULL;
}

/* The part of the workspace before the library's: the addresses of the matrices, or an `info`. */
static size_t head_bytes(const gpu_solve *s)
{
  return WEFT_ALIGN_UP(WEFT_MAX((size_t)gpu_solve_lists(s) * (size_t)s->matrices * sizeof(wcu_ptr), (size_t)1),
                       (size_t)WORKSPACE_ALIGNMENT);
}

weft_status *gpu_solve_measure(gpu_solve *solve, gpu_solver *solver)
{
  weft_status *st = NULL;

  if (gpu_solve_is_empty(solve)) return NULL;
  weft_mutex_lock(&solver->mu);
  st = measure_locked(solve, solver);
  weft_mutex_unlock(&solver->mu);
  /* alignment, the part before the library's, and the library's part with its own alignment */
  solve->workspace_bytes = WORKSPACE_ALIGNMENT + head_bytes(solve) + solve->device_bytes;
  return st;
}

/* ---- running ---- */

static void *pointer(wcu_ptr at) { return (void *)(uintptr_t)at; }

/* The address of matrix `i`'s part of an array that has `elems` elements of `type` for each matrix. */
static void *part(wcu_ptr array, int64_t i, int64_t elems, weft_dtype type)
{
  return pointer(array + (wcu_ptr)(i * elems) * weft_dtype_bytes(type));
}

/* One matrix.  `r`: the results' addresses. */
static weft_status *solve_one(const gpu_solve *s, gpu_solver *solver, const wcu_ptr *arrays, int64_t i, int *info,
                              void *device, void *host)
{
  const wcu_ptr *r = arrays + routines[s->routine].operands;
  wct_type type = library_type(s->type), real = library_type(weft_dtype_component(s->type));
  wsv_triangle triangle = s->lower ? WSV_LOWER : WSV_UPPER;
  int64_t m = s->m, n = s->n, least = WEFT_MIN(m, n);
  int elements = (int)(s->device_bytes / weft_dtype_bytes(s->type));
  weft_dtype real_type = weft_dtype_component(s->type);
  int64_t u = s->economic ? least : m, v = s->economic ? least : n;
  void *a = part(r[0], i, m * n, s->type);
  wsv_handle handle = solver->handle;

  switch (s->routine) {
  case GPU_POTRF:
    SOLVER_TRY(cusolverDnXpotrf, handle, solver->params, triangle, n, type, a, m, type, device, s->device_bytes, host,
               s->host_bytes, info);
    return NULL;
  case GPU_GEQRF:
    SOLVER_TRY(cusolverDnXgeqrf, handle, solver->params, m, n, type, a, m, type, part(r[1], i, least, s->type), type,
               device, s->device_bytes, host, s->host_bytes, info);
    return NULL;
  case GPU_SYEVD:
    SOLVER_TRY(cusolverDnXsyevd, handle, solver->params, WSV_VECTOR, triangle, n, type, a, m, real,
               part(r[1], i, n, real_type), type, device, s->device_bytes, host, s->host_bytes, info);
    return NULL;
  case GPU_GETRF:
    return status_of(
      SAME_OF_TYPE(s->type, getrf)(handle, s->m, s->n, a, s->m, device, part(r[1], i, least, WEFT_S32), info),
      "cusolverDn getrf");
  case GPU_ORGQR:
    return status_of(OF_TYPE(s->type, orgqr, orgqr, ungqr, ungqr)(
                       handle, s->m, s->n, s->k, a, s->m, part(arrays[1], i, s->k, s->type), device, elements, info),
                     "cusolverDn orgqr");
  case GPU_GESVDP:
    SOLVER_TRY(cusolverDnXgesvdp, handle, solver->params, s->vectors ? WSV_VECTOR : WSV_NOVECTOR, s->economic, m, n,
               type, a, m, real, part(r[1], i, least, real_type), type, part(r[2], i, m * u, s->type), m, type,
               part(r[3], i, n * v, s->type), n, type, device, s->device_bytes, host, s->host_bytes, info,
               &solver->polar_error);
    return NULL;
  case GPU_GESVD: {
    signed char job = !s->vectors ? 'N' : s->economic ? 'S' : 'A';
    return status_of(SAME_OF_TYPE(s->type, gesvd)(
                       handle, job, job, s->m, s->n, a, s->m, part(r[1], i, least, real_type),
                       s->vectors ? part(r[2], i, m * u, s->type) : NULL, s->m,
                       s->vectors ? part(r[3], i, v * n, s->type) : NULL, (int)v, device, elements, NULL, info),
                     "cusolverDn gesvd");
  }
  case GPU_ORMQR:
    return status_of(OF_TYPE(s->type, ormqr, ormqr, unmqr,
                             unmqr)(handle, side_of(s), operation_of(s), s->m, s->n, s->k,
                                    part(arrays[0], i, (int64_t)order_of(s) * s->k, s->type), order_of(s),
                                    part(arrays[1], i, s->k, s->type), a, s->m, device, elements, info),
                     "cusolverDn ormqr");
  case GPU_SYTRD:
    return status_of(OF_TYPE(s->type, sytrd, sytrd, hetrd, hetrd)(
                       handle, triangle, s->n, a, s->m, part(r[1], i, n, real_type), part(r[2], i, n - 1, real_type),
                       part(r[3], i, n - 1, s->type), device, elements, info),
                     "cusolverDn sytrd");
  default:
    return status_of(SAME_OF_TYPE(s->type, gesvdj)(handle, s->vectors ? WSV_VECTOR : WSV_NOVECTOR, s->economic, s->m,
                                                   s->n, a, s->m, part(r[1], i, least, real_type),
                                                   part(r[2], i, m * (s->economic ? least : m), s->type), s->m,
                                                   part(r[3], i, n * (s->economic ? least : n), s->type), s->n, device,
                                                   elements, info, solver->jacobi),
                     "cusolverDn gesvdj");
  }
}

/* All matrices.  `addresses`: those of the matrices, in device memory. */
static weft_status *solve_batch(const gpu_solve *s, const gpu_solver *solver, const wcu_ptr *arrays, void *addresses,
                                void *device)
{
  const wcu_ptr *r = arrays + routines[s->routine].operands;
  int elements = (int)(s->device_bytes / weft_dtype_bytes(s->type)), count = (int)s->matrices;
  int *info = pointer(r[routines[s->routine].info]);
  wsv_triangle triangle = s->lower ? WSV_LOWER : WSV_UPPER;
  wsv_handle handle = solver->handle;

  switch (s->routine) {
  case GPU_POTRF:
    return status_of(SAME_OF_TYPE(s->type, potrfBatched)(handle, triangle, s->n, addresses, s->m, info, count),
                     "cusolverDn potrfBatched");
  case GPU_SYEVD:
    return status_of(OF_TYPE(s->type, syevjBatched, syevjBatched, heevjBatched,
                             heevjBatched)(handle, WSV_VECTOR, triangle, s->n, pointer(r[0]), s->m, pointer(r[1]),
                                           device, elements, info, solver->eigen_jacobi, count),
                     "cusolverDn syevjBatched");
  default:
    return status_of(SAME_OF_TYPE(s->type, gesvdjBatched)(
                       handle, s->vectors ? WSV_VECTOR : WSV_NOVECTOR, s->m, s->n, pointer(r[0]), s->m, pointer(r[1]),
                       pointer(r[2]), s->m, pointer(r[3]), s->n, device, elements, info, solver->jacobi, count),
                     "cusolverDn gesvdjBatched");
  }
}

static weft_status *host_workspace_locked(gpu_solver *solver, size_t bytes, void **out) WEFT_REQUIRES(solver->mu)
{
  weft_mutex_assert_held(&solver->mu);
  *out = NULL;
  if (!bytes) return NULL;
  if (!solver->host || bytes > solver->host->bytes) {
    host_block *block = malloc(sizeof *block + bytes);
    WEFT_TRY_ALLOC(block);
    *block = (host_block){solver->host, bytes};
    solver->host = block;
  }
  *out = solver->host + 1;
  return NULL;
}

static weft_status *solve_all_locked(const gpu_solve *s, gpu_solver *solver, wcu_stream stream, const wcu_ptr *arrays,
                                     wcu_ptr workspace) WEFT_REQUIRES(solver->mu)
{
  weft_mutex_assert_held(&solver->mu);
  wcu_ptr start = WEFT_ALIGN_UP(workspace, (wcu_ptr)WORKSPACE_ALIGNMENT);
  int info = routines[s->routine].info;
  void *host;

  WEFT_TRY(host_workspace_locked(solver, s->host_bytes, &host));
  SOLVER_TRY(cusolverDnSetStream, solver->handle, stream);
  void *device = pointer(start + head_bytes(s));
  if (s->batched) return solve_batch(s, solver, arrays, pointer(workspace), device);
  for (int64_t i = 0; i < s->matrices; i++) {
    int *status = info ? part(arrays[routines[s->routine].operands + info], i, 1, WEFT_S32) : pointer(start);
    WEFT_TRY(solve_one(s, solver, arrays, i, status, device, host));
  }
  return NULL;
}

/* The workspace begins with the addresses. */
static weft_status *factor_batch(const gpu_solve *s, gpu_cublas *cublas, wcu_stream stream, const wcu_ptr *arrays,
                                 wcu_ptr addresses)
{
  const gpu_factors factors = {s->type, s->m, s->n, (int)s->matrices};
  const wcu_ptr *r = arrays + routines[s->routine].operands;

  if (s->routine == GPU_GEQRF) return gpu_qr_enqueue(&factors, cublas, stream, addresses);
  return gpu_lu_enqueue(&factors, cublas, stream, addresses, r[1], r[2]);
}

weft_status *gpu_solve_enqueue(const gpu_solve *solve, gpu_solver *solver, gpu_cublas *cublas, wcu_stream stream,
                               const wcu_ptr *arrays, wcu_ptr workspace)
{
  weft_status *st;

  if (gpu_solve_is_empty(solve)) return NULL;
  if (gpu_solve_wants_cublas(solve)) return factor_batch(solve, cublas, stream, arrays, workspace);
  weft_mutex_lock(&solver->mu);
  st = solve_all_locked(solve, solver, stream, arrays, workspace);
  weft_mutex_unlock(&solver->mu);
  return st;
}
