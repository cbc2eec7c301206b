/* gpu/blas.c -- HLO dot by cuBLASLt (blas.h).
 *
 * cuBLASLt's matrices are column-major.  A row-major result [m, n] is the column-major matrix of n rows and m columns,
 * so the library is asked for the transposed product: its A is rhs, its B is lhs. */
#include <config.h>

#include "gpu/blas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "gpu/table.h"

enum {
  ADDRESS_ALIGNMENT = 16,    /* alignment of arrays: the widest load of a GPU */
  WORKSPACE_ALIGNMENT = 256,
  SCALAR_BYTES = 16,         /* bytes of the widest scale type */
};

GPU_TABLE(WBL_ENTRIES, "cuBLASLt", "libcublasLt.so.13", "libcublasLt.so.12");

struct gpu_blas {
  wbl_handle handle;
};

/* ---- errors ---- */

static const char *status_name(wbl_status status)
{
  switch (status) {
#define NAME(name, value) case WBL_STATUS_##name: return "CUBLAS_STATUS_" #name;
    WBL_STATUSES(NAME)
#undef NAME
  }
  return "an unknown status";
}

static weft_code code_of(wbl_status status)
{
  switch (status) {
  case WBL_STATUS_SUCCESS: return WEFT_OK;
  case WBL_STATUS_ALLOC_FAILED: return WEFT_RESOURCE_EXHAUSTED;
  case WBL_STATUS_ARCH_MISMATCH: case WBL_STATUS_NOT_SUPPORTED: return WEFT_UNIMPLEMENTED;
  case WBL_STATUS_NOT_INITIALIZED: return WEFT_UNAVAILABLE;
  default: return WEFT_INTERNAL;
  }
}

weft_status *gpu_blas_status(const gpu_table *library, wbl_status status, const char *call)
{
  return gpu_table_error(library, code_of(status), call, status_name(status), (int)status);
}

#define BLAS_TRY(call, ...) WEFT_TRY(gpu_blas_status(&table, fn.call(__VA_ARGS__), #call))

/* ---- the library ---- */

weft_status *gpu_blas_new(gpu_blas **out_blas)
{
  WEFT_AUTO(gpu_blas) blas = NULL;

  *out_blas = NULL;
  WEFT_TRY(gpu_table_open(&table));
  blas = calloc(1, sizeof *blas);
  WEFT_TRY_ALLOC(blas);
  BLAS_TRY(cublasLtCreate, &blas->handle);
  *out_blas = WEFT_MOVE(blas);
  return NULL;
}

void gpu_blas_free(gpu_blas *blas)
{
  if (!blas) return;
  if (blas->handle) fn.cublasLtDestroy(blas->handle);
  free(blas);
}

/* ---- from HLO ---- */

/* One row for each combination of types that the library has. */
typedef struct type_row {
  weft_dtype in, out;
  wct_type type, out_type, scale;
  wbl_compute compute;
} type_row;

static const type_row type_rows[] = {
  {WEFT_F16, WEFT_F16, WCT_R_16F, WCT_R_16F, WCT_R_32F, WBL_COMPUTE_32F},
  {WEFT_F16, WEFT_F32, WCT_R_16F, WCT_R_32F, WCT_R_32F, WBL_COMPUTE_32F},
  {WEFT_BF16, WEFT_BF16, WCT_R_16BF, WCT_R_16BF, WCT_R_32F, WBL_COMPUTE_32F},
  {WEFT_BF16, WEFT_F32, WCT_R_16BF, WCT_R_32F, WCT_R_32F, WBL_COMPUTE_32F},
  {WEFT_F32, WEFT_F32, WCT_R_32F, WCT_R_32F, WCT_R_32F, WBL_COMPUTE_32F},
  {WEFT_F64, WEFT_F64, WCT_R_64F, WCT_R_64F, WCT_R_64F, WBL_COMPUTE_64F},
  {WEFT_C64, WEFT_C64, WCT_C_32F, WCT_C_32F, WCT_C_32F, WBL_COMPUTE_32F},
  {WEFT_C128, WEFT_C128, WCT_C_64F, WCT_C_64F, WCT_C_64F, WBL_COMPUTE_64F},
  {WEFT_S8, WEFT_S32, WCT_R_8I, WCT_R_32I, WCT_R_32I, WBL_COMPUTE_32I},
};

/* The arithmetic in which an algorithm allows an f32 product to be computed.  The algorithms of several passes
 * approximate f32, which is what the library computes in anyway. */
static wbl_compute f32_compute(hlo_dot_algorithm algorithm)
{
  switch (algorithm) {
  case HLO_ALG_TF32_TF32_F32: return WBL_COMPUTE_32F_FAST_TF32;
  case HLO_ALG_BF16_BF16_BF16:
  case HLO_ALG_BF16_BF16_F32: return WBL_COMPUTE_32F_FAST_16BF;
  case HLO_ALG_F16_F16_F16:
  case HLO_ALG_F16_F16_F32: return WBL_COMPUTE_32F_FAST_16F;
  default: return WBL_COMPUTE_32F;
  }
}

static weft_status *set_types(gpu_dot *dot, hlo_dot_algorithm algorithm, weft_dtype lhs, weft_dtype rhs, weft_dtype out)
{
  for (size_t i = 0; i < WEFT_COUNT(type_rows); i++) {
    const type_row *row = &type_rows[i];
    if (lhs != row->in || rhs != row->in || out != row->out) continue;
    dot->type = row->type;
    dot->out_type = row->out_type;
    dot->scale = row->scale;
    dot->compute = lhs == WEFT_F32 ? f32_compute(algorithm) : row->compute;
    return NULL;
  }
  return WEFT_ERR(UNIMPLEMENTED, "dot of %s and %s to %s: cuBLASLt has no such product", weft_dtype_name(lhs),
                  weft_dtype_name(rhs), weft_dtype_name(out));
}

/* True if the operand has `batch` batch dimensions (none, or dimension 0), one contracting dimension and one more. */
static bool is_matrix(const hlo_shape *shape, hlo_ints batch, hlo_ints contracting)
{
  return batch.count <= 1 && (batch.count == 0 || batch.v[0] == 0) && contracting.count == 1 &&
         contracting.v[0] >= batch.count && shape->rank == batch.count + 2;
}

/* The library multiplies s8 on its matrix units only: of the four orders of the operands the one in which both have
 * the contracting dimension last, with rows of whole words. */
static weft_status *check_s8(const gpu_dot *dot)
{
  if (!dot->lhs_swapped && dot->rhs_swapped && dot->n % 4 == 0 && dot->k % 4 == 0) return NULL;
  return WEFT_ERR(UNIMPLEMENTED,
                  "dot of s8: cuBLASLt wants [m, k] and [n, k] with n and k multiples of 4, got n = %lld, k = %lld",
                  (long long)dot->n, (long long)dot->k);
}

weft_status *gpu_dot_init(gpu_dot *dot, const hlo_dot_attrs *attrs, const hlo_shape *lhs, const hlo_shape *rhs,
                          const hlo_shape *out, bool has_bias, gpu_activation activation)
{
  int batch = attrs->lhs_batch.count;

  *dot = (gpu_dot){.batches = 1, .has_bias = has_bias, .activation = activation};
  if (attrs->sparsity) return WEFT_ERR(UNIMPLEMENTED, "dot with sparsity_config");
  if (!is_matrix(lhs, attrs->lhs_batch, attrs->lhs_contracting) ||
      !is_matrix(rhs, attrs->rhs_batch, attrs->rhs_contracting))
    return WEFT_ERR(UNIMPLEMENTED, "dot whose operands are not matrices, or stacks of them");
  WEFT_TRY(set_types(dot, attrs->algorithm, lhs->type, rhs->type, out->type));
  dot->lhs_swapped = attrs->lhs_contracting.v[0] == batch;
  dot->rhs_swapped = attrs->rhs_contracting.v[0] != batch;
  if (batch) dot->batches = lhs->dims[0];
  dot->m = lhs->dims[batch + dot->lhs_swapped];
  dot->k = lhs->dims[batch + !dot->lhs_swapped];
  dot->n = rhs->dims[batch + !dot->rhs_swapped];
  if (!dot->batches || !dot->m || !dot->n || !dot->k) return WEFT_ERR(UNIMPLEMENTED, "dot of empty arrays");
  if (dot->batches > INT32_MAX)
    return WEFT_ERR(UNIMPLEMENTED, "dot of %lld matrices; cuBLASLt takes up to 2^31 - 1", (long long)dot->batches);
  return dot->type == WCT_R_8I ? check_s8(dot) : NULL;
}

/* ---- to the library ---- */

/* A stack of row-major matrices of `rows` rows. */
static weft_status *describe_matrix(const gpu_dot *dot, wct_type type, int64_t rows, int64_t cols, wbl_layout *out)
{
  int32_t batches = (int32_t)dot->batches;
  int64_t stride = rows * cols;

  BLAS_TRY(cublasLtMatrixLayoutInit_internal, out, sizeof *out, type, (uint64_t)cols, (uint64_t)rows, cols);
  if (batches == 1) return NULL;
  BLAS_TRY(cublasLtMatrixLayoutSetAttribute, out, WBL_LAYOUT_BATCH_COUNT, &batches, sizeof batches);
  BLAS_TRY(cublasLtMatrixLayoutSetAttribute, out, WBL_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
  return NULL;
}

static uint32_t epilogue_of(const gpu_dot *dot)
{
  switch (dot->activation) {
  case GPU_RELU: return dot->has_bias ? WBL_EPILOGUE_RELU_BIAS : WBL_EPILOGUE_RELU;
  case GPU_GELU: return dot->has_bias ? WBL_EPILOGUE_GELU_BIAS : WBL_EPILOGUE_GELU;
  default: return dot->has_bias ? WBL_EPILOGUE_BIAS : WBL_EPILOGUE_DEFAULT;
  }
}

static weft_status *describe_product(const gpu_dot *dot, wcu_ptr bias, wbl_matmul *out)
{
  int32_t a_op = dot->rhs_swapped ? WBL_OP_T : WBL_OP_N, b_op = dot->lhs_swapped ? WBL_OP_T : WBL_OP_N;
  uint32_t epilogue = epilogue_of(dot);

  BLAS_TRY(cublasLtMatmulDescInit_internal, out, sizeof *out, dot->compute, dot->scale);
  BLAS_TRY(cublasLtMatmulDescSetAttribute, out, WBL_MATMUL_TRANSA, &a_op, sizeof a_op);
  BLAS_TRY(cublasLtMatmulDescSetAttribute, out, WBL_MATMUL_TRANSB, &b_op, sizeof b_op);
  BLAS_TRY(cublasLtMatmulDescSetAttribute, out, WBL_MATMUL_EPILOGUE, &epilogue, sizeof epilogue);
  if (dot->has_bias) {
    const void *address = (const void *)(uintptr_t)bias;
    BLAS_TRY(cublasLtMatmulDescSetAttribute, out, WBL_MATMUL_BIAS_POINTER, &address, sizeof address);
  }
  return NULL;
}

static weft_status *describe_preference(uint64_t most_workspace, wbl_preference *out)
{
  static const wbl_preference_attribute alignments[] = {WBL_PREF_MIN_ALIGNMENT_A_BYTES, WBL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                        WBL_PREF_MIN_ALIGNMENT_C_BYTES, WBL_PREF_MIN_ALIGNMENT_D_BYTES};
  uint32_t alignment = ADDRESS_ALIGNMENT;

  BLAS_TRY(cublasLtMatmulPreferenceInit_internal, out, sizeof *out);
  BLAS_TRY(cublasLtMatmulPreferenceSetAttribute, out, WBL_PREF_MAX_WORKSPACE_BYTES, &most_workspace,
           sizeof most_workspace);
  for (size_t i = 0; i < WEFT_COUNT(alignments); i++)
    BLAS_TRY(cublasLtMatmulPreferenceSetAttribute, out, alignments[i], &alignment, sizeof alignment);
  return NULL;
}

static weft_status *describe_all(gpu_dot *dot, wbl_matmul *out_product)
{
  WEFT_TRY(describe_matrix(dot, dot->type, dot->lhs_swapped ? dot->k : dot->m, dot->lhs_swapped ? dot->m : dot->k,
                           &dot->lhs_layout));
  WEFT_TRY(describe_matrix(dot, dot->type, dot->rhs_swapped ? dot->n : dot->k, dot->rhs_swapped ? dot->k : dot->n,
                           &dot->rhs_layout));
  WEFT_TRY(describe_matrix(dot, dot->out_type, dot->m, dot->n, &dot->out_layout));
  /* the library derives the alignment of the bias from this address */
  return describe_product(dot, ADDRESS_ALIGNMENT, out_product);
}

weft_status *gpu_dot_choose(gpu_dot *dot, const gpu_blas *blas, size_t most_workspace)
{
  wbl_matmul product;
  wbl_preference preference;
  wbl_heuristic best = {.state = WBL_STATUS_NOT_SUPPORTED};
  int count = 0;

  WEFT_TRY(describe_all(dot, &product));
  WEFT_TRY(describe_preference(most_workspace, &preference));
  BLAS_TRY(cublasLtMatmulAlgoGetHeuristic, blas->handle, &product, &dot->rhs_layout, &dot->lhs_layout, &dot->out_layout,
           &dot->out_layout, &preference, 1, &best, &count);
  if (count < 1) return WEFT_ERR(UNIMPLEMENTED, "cublasLtMatmulAlgoGetHeuristic: no algorithm");
  WEFT_TRY(gpu_blas_status(&table, best.state, "cublasLtMatmulAlgoGetHeuristic"));
  dot->choice = (gpu_dot_choice){best.algo, best.workspaceSize};
  return NULL;
}

weft_status *gpu_dot_resume(gpu_dot *dot, const gpu_blas *blas, size_t most_workspace, const void *choice, size_t size)
{
  gpu_dot_choice kept;
  wbl_matmul product;
  wbl_heuristic checked = {.state = WBL_STATUS_NOT_SUPPORTED};

  if (size != sizeof kept) return WEFT_ERR(INVALID_ARGUMENT, "the choice of an algorithm has %zu bytes", size);
  memcpy(&kept, choice, sizeof kept);
  WEFT_TRY(describe_all(dot, &product));
  BLAS_TRY(cublasLtMatmulAlgoCheck, blas->handle, &product, &dot->rhs_layout, &dot->lhs_layout, &dot->out_layout,
           &dot->out_layout, &kept.algo, &checked);
  WEFT_TRY(gpu_blas_status(&table, checked.state, "cublasLtMatmulAlgoCheck"));
  if (checked.workspaceSize > kept.workspace_bytes || kept.workspace_bytes > most_workspace)
    return WEFT_ERR(INVALID_ARGUMENT, "the choice of an algorithm has %llu bytes of workspace, the algorithm wants %zu",
                    (unsigned long long)kept.workspace_bytes, checked.workspaceSize);
  dot->choice = kept;
  return NULL;
}

void gpu_dot_describe(const gpu_dot *dot, const gpu_blas *blas, char *out, size_t size)
{
  (void)blas;
  snprintf(
    out, size,
    "cuBLASLt %zu, algorithm of %lld x %lld x %lld x %lld, order %d %d, bias %d, activation %d, types %d %d %d %d",
    fn.cublasLtGetVersion(), (long long)dot->batches, (long long)dot->m, (long long)dot->n, (long long)dot->k,
    dot->lhs_swapped, dot->rhs_swapped, dot->has_bias, (int)dot->activation, (int)dot->type, (int)dot->out_type,
    (int)dot->scale, (int)dot->compute);
}

/* Scratch of the memory plan has a smaller alignment than the library's workspace, so there is room to align it. */
size_t gpu_dot_workspace(const gpu_dot *dot)
{
  return dot->choice.workspace_bytes ? dot->choice.workspace_bytes + WORKSPACE_ALIGNMENT : 0;
}

/* 1 in the scale type; `zero` is 0 in every type. */
static void one_of(wct_type scale, void *one)
{
  switch (scale) {
  case WCT_R_64F:
  case WCT_C_64F: *(double *)one = 1; break;
  case WCT_R_32I: *(int32_t *)one = 1; break;
  default: *(float *)one = 1; break;
  }
}

weft_status *gpu_dot_enqueue(const gpu_dot *dot, const gpu_blas *blas, wcu_stream stream, const gpu_dot_arrays *arrays)
{
  _Alignas(16) char one[SCALAR_BYTES] = {0}, zero[SCALAR_BYTES] = {0};
  wcu_ptr addend = arrays->addend ? arrays->addend : arrays->out;
  size_t workspace_bytes = dot->choice.workspace_bytes;
  wbl_matmul product;

  one_of(dot->scale, one);
  WEFT_TRY(describe_product(dot, arrays->bias, &product));
  BLAS_TRY(cublasLtMatmul, blas->handle, &product, one, (const void *)(uintptr_t)arrays->rhs, &dot->rhs_layout,
           (const void *)(uintptr_t)arrays->lhs, &dot->lhs_layout, arrays->addend ? one : zero,
           (const void *)(uintptr_t)addend, &dot->out_layout, (void *)(uintptr_t)arrays->out, &dot->out_layout,
           &dot->choice.algo,
           (void *)(uintptr_t)(workspace_bytes ? WEFT_ALIGN_UP(arrays->workspace, WORKSPACE_ALIGNMENT) : 0),
           workspace_bytes, stream);
  return NULL;
}
