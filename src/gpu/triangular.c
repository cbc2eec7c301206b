/* gpu/triangular.c -- HLO triangular-solve, scaling of arrays, and factors of batches, by cuBLAS (triangular.h).
 *
 * A row-major matrix is its transpose in the library's column-major terms.  The transposed system of op(a) x = b is
 * x^T op(a)^T = b^T: the side changes, and so does the triangle in which a lies; op stays. */
#include <config.h>

#include "gpu/triangular.h"

#include <limits.h>
#include <stdlib.h>

#include "base/macros.h"
#include "base/thread.h"
#include "gpu/blas.h"
#include "gpu/table.h"

GPU_TABLE(WB3_ENTRIES, "cuBLAS", "libcublas.so.13", "libcublas.so.12");

struct gpu_cublas {
  weft_mutex mu; /* held while `handle` has a stream and calls use both */
  wb3_handle handle;
};

#define CUBLAS_TRY(call, ...) WEFT_TRY(gpu_blas_status(&table, fn.call(__VA_ARGS__), #call))

/* The entry point of a routine for an element type. */
#define OF_TYPE(type, name)                                                          \
  ((type) == WEFT_F32 ? fn.cublasS##name : (type) == WEFT_F64 ? fn.cublasD##name     \
   : (type) == WEFT_C64 ? fn.cublasC##name : fn.cublasZ##name)

weft_status *gpu_cublas_new(gpu_cublas **out_cublas)
{
  WEFT_AUTO(gpu_cublas) cublas = NULL;

  *out_cublas = NULL;
  WEFT_TRY(gpu_table_open(&table));
  cublas = calloc(1, sizeof *cublas);
  WEFT_TRY_ALLOC(cublas);
  weft_mutex_init(&cublas->mu);
  CUBLAS_TRY(cublasCreate_v2, &cublas->handle);
  *out_cublas = WEFT_MOVE(cublas);
  return NULL;
}

void gpu_cublas_free(gpu_cublas *cublas)
{
  if (!cublas) return;
  if (cublas->handle) fn.cublasDestroy_v2(cublas->handle);
  weft_mutex_fini(&cublas->mu);
  free(cublas);
}

/* ---- scaling ---- */

static weft_status *scale(const gpu_cublas *cublas, wcu_stream stream, bool is_double, double factor, wcu_ptr array,
                          int64_t count)
{
  float factor_f32 = (float)factor;

  CUBLAS_TRY(cublasSetStream_v2, cublas->handle, stream);
  for (int64_t done = 0; done < count; done += INT_MAX) {
    int part = (int)WEFT_MIN(count - done, INT_MAX);
    wcu_ptr at = array + (wcu_ptr)done * (is_double ? sizeof(double) : sizeof(float));
    if (is_double) CUBLAS_TRY(cublasDscal_v2, cublas->handle, part, &factor, (double *)(uintptr_t)at, 1);
    else CUBLAS_TRY(cublasSscal_v2, cublas->handle, part, &factor_f32, (float *)(uintptr_t)at, 1);
  }
  return NULL;
}

weft_status *gpu_scale_enqueue(gpu_cublas *cublas, wcu_stream stream, bool is_double, double factor, wcu_ptr array,
                               int64_t count)
{
  weft_mutex_lock(&cublas->mu);
  weft_status *st = scale(cublas, stream, is_double, factor, array, count);
  weft_mutex_unlock(&cublas->mu);
  return st;
}

/* ---- triangular systems ---- */

weft_status *gpu_triangular_init(gpu_triangular *t, const hlo_instr *instr)
{
  const hlo_shape *b = instr->shape;
  int64_t rows = b->dims[b->rank - 2], cols = b->dims[b->rank - 1];
  hlo_transpose transpose = instr->u.triangular.transpose_a;

  if (b->type != WEFT_F32 && b->type != WEFT_F64 && b->type != WEFT_C64 && b->type != WEFT_C128)
    return WEFT_ERR(UNIMPLEMENTED, "triangular-solve of %s", weft_dtype_name(b->type));
  if (rows > INT_MAX || cols > INT_MAX)
    return WEFT_ERR(UNIMPLEMENTED, "triangular-solve of a matrix larger than 2^31 - 1");
  *t = (gpu_triangular){
    .type = b->type,
    .rows = (int)rows,
    .cols = (int)cols,
    .matrices = rows && cols ? hlo_shape_elems(b) / (rows * cols) : 0,
    .side = instr->u.triangular.left_side ? WB3_SIDE_RIGHT : WB3_SIDE_LEFT,
    .triangle = instr->u.triangular.lower ? WB3_FILL_UPPER : WB3_FILL_LOWER,
    .op = transpose == HLO_ADJOINT        ? WBL_OP_C
          : transpose == HLO_DO_TRANSPOSE ? WBL_OP_T
                                          : WBL_OP_N,
    .diagonal = instr->u.triangular.unit_diagonal ? WB3_DIAG_UNIT : WB3_DIAG_NON_UNIT,
  };
  return NULL;
}

enum { LARGE_ORDER = 512 /* rows of a matrix that is large enough to use the whole device */ };

static int order_of(const gpu_triangular *t) { return t->side == WB3_SIDE_LEFT ? t->cols : t->rows; }

int64_t gpu_triangular_batch(const gpu_triangular *t)
{
  return t->matrices > 1 && t->matrices <= INT_MAX && order_of(t) < LARGE_ORDER ? t->matrices : 0;
}

int64_t gpu_triangular_a_bytes(const gpu_triangular *t)
{
  return (int64_t)order_of(t) * order_of(t) * weft_dtype_bytes(t->type);
}

int64_t gpu_triangular_x_bytes(const gpu_triangular *t)
{
  return (int64_t)t->rows * t->cols * weft_dtype_bytes(t->type);
}

static weft_status *solve(const gpu_triangular *t, const gpu_cublas *cublas, wcu_stream stream, wcu_ptr a, wcu_ptr x,
                          wcu_ptr addresses)
{
  static const double one_f64[2] = {1, 0};
  static const float one_f32[2] = {1, 0};
  bool is_double = weft_dtype_component(t->type) == WEFT_F64;
  const void *one = is_double ? (const void *)one_f64 : one_f32;
  wb3_fn_cublasStrsm_v2 trsm = OF_TYPE(t->type, trsm_v2);
  wb3_fn_cublasStrsmBatched trsm_batched = OF_TYPE(t->type, trsmBatched);
  int order = order_of(t);
  wcu_ptr a_bytes = (wcu_ptr)gpu_triangular_a_bytes(t), x_bytes = (wcu_ptr)gpu_triangular_x_bytes(t);
  int batch = (int)gpu_triangular_batch(t);

  CUBLAS_TRY(cublasSetStream_v2, cublas->handle, stream);
  if (batch)
    return gpu_blas_status(&table,
                           trsm_batched(cublas->handle, t->side, t->triangle, t->op, t->diagonal, t->cols, t->rows, one,
                                        (const void *)(uintptr_t)addresses, order,
                                        (void *)(uintptr_t)(addresses + (wcu_ptr)batch * sizeof(wcu_ptr)), t->cols,
                                        batch),
                           "cublas trsmBatched");
  for (int64_t i = 0; i < t->matrices; i++)
    WEFT_TRY(gpu_blas_status(&table,
                             trsm(cublas->handle, t->side, t->triangle, t->op, t->diagonal, t->cols, t->rows, one,
                                  (const void *)(uintptr_t)(a + (wcu_ptr)i * a_bytes), order,
                                  (void *)(uintptr_t)(x + (wcu_ptr)i * x_bytes), t->cols),
                             "cublas trsm"));
  return NULL;
}

weft_status *gpu_triangular_enqueue(const gpu_triangular *t, gpu_cublas *cublas, wcu_stream stream, wcu_ptr a,
                                    wcu_ptr x, wcu_ptr addresses)
{
  weft_mutex_lock(&cublas->mu);
  weft_status *st = solve(t, cublas, stream, a, x, addresses);
  weft_mutex_unlock(&cublas->mu);
  return st;
}

/* ---- factors of a batch ---- */

static void *pointer(wcu_ptr at) { return (void *)(uintptr_t)at; }

static weft_status *lu(const gpu_factors *f, const gpu_cublas *cublas, wcu_stream stream, wcu_ptr addresses,
                       wcu_ptr pivots, wcu_ptr info)
{
  CUBLAS_TRY(cublasSetStream_v2, cublas->handle, stream);
  return gpu_blas_status(&table,
                         OF_TYPE(f->type, getrfBatched)(cublas->handle, f->n, pointer(addresses), f->n, pointer(pivots),
                                                        pointer(info), f->count),
                         "cublas getrfBatched");
}

weft_status *gpu_lu_enqueue(const gpu_factors *f, gpu_cublas *cublas, wcu_stream stream, wcu_ptr addresses,
                            wcu_ptr pivots, wcu_ptr info)
{
  weft_mutex_lock(&cublas->mu);
  weft_status *st = lu(f, cublas, stream, addresses, pivots, info);
  weft_mutex_unlock(&cublas->mu);
  return st;
}

static weft_status *qr(const gpu_factors *f, const gpu_cublas *cublas, wcu_stream stream, wcu_ptr addresses)
{
  wcu_ptr scales = addresses + (wcu_ptr)f->count * sizeof(wcu_ptr);
  int wrong = 0; /* the number of an argument, which the call's result tells too */

  CUBLAS_TRY(cublasSetStream_v2, cublas->handle, stream);
  return gpu_blas_status(&table,
                         OF_TYPE(f->type, geqrfBatched)(cublas->handle, f->m, f->n, pointer(addresses), f->m,
                                                        pointer(scales), &wrong, f->count),
                         "cublas geqrfBatched");
}

weft_status *gpu_qr_enqueue(const gpu_factors *f, gpu_cublas *cublas, wcu_stream stream, wcu_ptr addresses)
{
  weft_mutex_lock(&cublas->mu);
  weft_status *st = qr(f, cublas, stream, addresses);
  weft_mutex_unlock(&cublas->mu);
  return st;
}
