/* gpu/dnn.c -- HLO convolution by cuDNN (dnn.h). passes/convolution.h says what x, w and y are, and which of them is
 * computed. */
#include <config.h>

#include "gpu/dnn.h"

#include <limits.h>
#include <stdlib.h>

#include "base/macros.h"
#include "base/thread.h"
#include "gpu/table.h"

enum {
  LEAST_SPATIAL = 2,    /* the library's tensors have at least four dimensions */
  RANK = PASS_CONV_SPATIAL + 2,
  CANDIDATES = 8,
  WORKSPACE_ALIGNMENT = 256,
};

GPU_TABLE(WDN_ENTRIES, "cuDNN", "libcudnn.so.9");

struct gpu_dnn {
  weft_mutex mu;     /* held while `handle` has a stream and a call uses both */
  wdn_handle handle;
};

struct gpu_conv {
  pass_conv_kind kind;
  bool is_double;
  wdn_tensor x, y;
  wdn_filter w;
  wdn_convolution conv;
  int algo;
  size_t workspace_bytes; /* workspace of the algorithm, without alignment */
};

/* ---- errors ---- */

/* The library's codes are in groups of a thousand. */
static weft_code code_of(int number)
{
  if (number == WDN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      number == WDN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    return WEFT_RESOURCE_EXHAUSTED;
  switch (number / 1000) {
  case 1: return WEFT_UNAVAILABLE;
  case 3: return WEFT_UNIMPLEMENTED;
  default: return WEFT_INTERNAL;
  }
}

static weft_status *status_of(wdn_status status, const char *call)
{
  if (status == WDN_STATUS_SUCCESS) return NULL;
  return gpu_table_error(&table, code_of((int)status), call, fn.cudnnGetErrorString(status), (int)status);
}

#define DNN_TRY(call, ...) WEFT_TRY(status_of(fn.call(__VA_ARGS__), #call))

/* ---- the library ---- */

weft_status *gpu_dnn_new(gpu_dnn **out_dnn)
{
  WEFT_AUTO(gpu_dnn) dnn = NULL;

  *out_dnn = NULL;
  WEFT_TRY(gpu_table_open(&table));
  dnn = calloc(1, sizeof *dnn);
  WEFT_TRY_ALLOC(dnn);
  weft_mutex_init(&dnn->mu);
  DNN_TRY(cudnnCreate, &dnn->handle);
  *out_dnn = WEFT_MOVE(dnn);
  return NULL;
}

void gpu_dnn_free(gpu_dnn *dnn)
{
  if (!dnn) return;
  if (dnn->handle) fn.cudnnDestroy(dnn->handle);
  weft_mutex_fini(&dnn->mu);
  free(dnn);
}

/* ---- descriptors ---- */

static weft_status *type_of(weft_dtype type, wdn_type *out)
{
  switch (type) {
  case WEFT_F16: *out = WDN_HALF; return NULL;
  case WEFT_BF16: *out = WDN_BFLOAT16; return NULL;
  case WEFT_F32: *out = WDN_FLOAT; return NULL;
  case WEFT_F64: *out = WDN_DOUBLE; return NULL;
  default: return WEFT_ERR(UNIMPLEMENTED, "convolution of %s: cuDNN has no such product", weft_dtype_name(type));
  }
}

/* [outer, channel, spatial...] as ints; missing spatial dimensions have size 1.  *rank receives the count. */
static weft_status *sizes_of(const pass_conv *c, int64_t outer, int64_t channel, const int64_t *spatial, int *sizes,
                             int *rank)
{
  int64_t all[RANK] = {outer, channel, 1, 1};
  int count = WEFT_MAX(c->spatial, LEAST_SPATIAL) + 2;

  for (int i = 0; i < c->spatial; i++) all[2 + i] = spatial[i];
  for (int i = 0; i < count; i++) {
    if (all[i] > INT_MAX || all[i] < 1)
      return WEFT_ERR(UNIMPLEMENTED, "convolution with a dimension of %lld; cuDNN takes 1 to 2^31 - 1",
                      (long long)all[i]);
    sizes[i] = (int)all[i];
  }
  *rank = count;
  return NULL;
}

static weft_status *describe_tensor(const int *sizes, int rank, wdn_type type, bool channels_last, wdn_tensor *out)
{
  int strides[RANK], next = 1;

  if (channels_last) strides[1] = next, next *= sizes[1];
  for (int i = rank - 1; i >= 0; i--) {
    if (i == 1 && channels_last) continue;
    strides[i] = next;
    if (__builtin_mul_overflow(next, sizes[i], &next))
      return WEFT_ERR(UNIMPLEMENTED, "convolution of more than 2^31 - 1 elements by cuDNN");
  }
  DNN_TRY(cudnnCreateTensorDescriptor, out);
  DNN_TRY(cudnnSetTensorNdDescriptor, *out, type, rank, sizes, strides);
  return NULL;
}

static weft_status *describe_window(const pass_conv *c, wdn_type type, bool tf32, gpu_conv *conv)
{
  int pad[PASS_CONV_SPATIAL] = {0}, stride[PASS_CONV_SPATIAL] = {1, 1, 1}, dilation[PASS_CONV_SPATIAL] = {1, 1, 1};

  for (int i = 0; i < c->spatial; i++) {
    if (c->pad[i] > INT_MAX || c->stride[i] > INT_MAX || c->dilation[i] > INT_MAX || c->groups > INT_MAX)
      return WEFT_ERR(UNIMPLEMENTED, "convolution whose window has numbers above 2^31 - 1");
    pad[i] = (int)c->pad[i];
    stride[i] = (int)c->stride[i];
    dilation[i] = (int)c->dilation[i];
  }
  DNN_TRY(cudnnCreateConvolutionDescriptor, &conv->conv);
  DNN_TRY(cudnnSetConvolutionNdDescriptor, conv->conv, WEFT_MAX(c->spatial, LEAST_SPATIAL), pad, stride, dilation,
          c->reversed ? WDN_CONVOLUTION : WDN_CROSS_CORRELATION, type == WDN_DOUBLE ? WDN_DOUBLE : WDN_FLOAT);
  DNN_TRY(cudnnSetConvolutionGroupCount, conv->conv, (int)c->groups);
  DNN_TRY(cudnnSetConvolutionMathType, conv->conv,
          type == WDN_HALF || type == WDN_BFLOAT16 ? WDN_TENSOR_OP_MATH
          : tf32                                   ? WDN_DEFAULT_MATH
                                                   : WDN_FMA_MATH);
  return NULL;
}

static weft_status *describe(const hlo_instr *instr, const pass_conv *c, bool tf32, gpu_conv *conv)
{
  weft_dtype type = instr->shape->type;
  bool channels_last = c->spatial && c->lhs.channel != 1;
  wdn_type dnn_type;
  int sizes[RANK], rank;

  if (instr->operands[0]->shape->type != type || instr->operands[1]->shape->type != type)
    return WEFT_ERR(UNIMPLEMENTED, "convolution of %s and %s to %s: cuDNN wants one type",
                    weft_dtype_name(instr->operands[0]->shape->type), weft_dtype_name(instr->operands[1]->shape->type),
                    weft_dtype_name(type));
  WEFT_TRY(type_of(type, &dnn_type));
  conv->is_double = dnn_type == WDN_DOUBLE;
  WEFT_TRY(sizes_of(c, c->n, c->c, c->x_size, sizes, &rank));
  WEFT_TRY(describe_tensor(sizes, rank, dnn_type, channels_last, &conv->x));
  WEFT_TRY(sizes_of(c, c->n, c->k, c->y_size, sizes, &rank));
  WEFT_TRY(describe_tensor(sizes, rank, dnn_type, channels_last, &conv->y));
  WEFT_TRY(sizes_of(c, c->k, c->c / c->groups, c->w_size, sizes, &rank));
  DNN_TRY(cudnnCreateFilterDescriptor, &conv->w);
  DNN_TRY(cudnnSetFilterNdDescriptor, conv->w, dnn_type, channels_last ? WDN_NHWC : WDN_NCHW, rank, sizes);
  return describe_window(c, dnn_type, tf32, conv);
}

/* ---- the algorithm ---- */

static wdn_status propose(const gpu_conv *v, wdn_handle handle, int *count, wdn_perf *found)
{
  switch (v->kind) {
  case PASS_CONV_DATA:
    return fn.cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, v->w, v->y, v->conv, v->x, CANDIDATES, count, found);
  case PASS_CONV_FILTER:
    return fn.cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, v->x, v->y, v->conv, v->w, CANDIDATES, count,
                                                            found);
  default:
    return fn.cudnnGetConvolutionForwardAlgorithm_v7(handle, v->x, v->w, v->conv, v->y, CANDIDATES, count, found);
  }
}

static wdn_status workspace_of(const gpu_conv *v, wdn_handle handle, int algo, size_t *bytes)
{
  switch (v->kind) {
  case PASS_CONV_DATA:
    return fn.cudnnGetConvolutionBackwardDataWorkspaceSize(handle, v->w, v->y, v->conv, v->x, algo, bytes);
  case PASS_CONV_FILTER:
    return fn.cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, v->x, v->y, v->conv, v->w, algo, bytes);
  default: return fn.cudnnGetConvolutionForwardWorkspaceSize(handle, v->x, v->w, v->conv, v->y, algo, bytes);
  }
}

/* Takes the first proposal, which is the fastest, that gives the same bits each time and fits. */
static weft_status *choose(gpu_conv *conv, wdn_handle handle, size_t most_workspace)
{
  wdn_perf found[CANDIDATES];
  int count = 0;

  WEFT_TRY(status_of(propose(conv, handle, &count, found), "cudnnGetConvolutionAlgorithm"));
  for (int i = 0; i < count; i++) {
    size_t bytes = 0;
    if (found[i].status != WDN_STATUS_SUCCESS || !found[i].determinism) continue;
    if (workspace_of(conv, handle, found[i].algo, &bytes) != WDN_STATUS_SUCCESS || bytes > most_workspace) continue;
    conv->algo = found[i].algo;
    conv->workspace_bytes = bytes;
    return NULL;
  }
  return WEFT_ERR(UNIMPLEMENTED,
                  "convolution: none of %d algorithms of cuDNN is deterministic and fits %zu bytes of workspace", count,
                  most_workspace);
}

weft_status *gpu_conv_new(const hlo_instr *instr, gpu_dnn *dnn, bool tf32, size_t most_workspace, gpu_conv **out_conv)
{
  WEFT_AUTO(gpu_conv) conv = NULL;
  pass_conv c;
  weft_status *st;

  *out_conv = NULL;
  if (!pass_conv_read(instr, &c))
    return WEFT_ERR(UNIMPLEMENTED, "convolution whose window or groups cuDNN does not have");
  bool channels_last = c.spatial && c.lhs.channel != 1;
  if (!pass_conv_is_ordered(&c, &c.lhs, channels_last) || !pass_conv_is_ordered(&c, &c.rhs, channels_last) ||
      !pass_conv_is_ordered(&c, &c.out, channels_last))
    return WEFT_ERR(UNIMPLEMENTED, "convolution whose dimensions are not in the order of cuDNN");
  conv = calloc(1, sizeof *conv);
  WEFT_TRY_ALLOC(conv);
  conv->kind = c.kind;
  WEFT_TRY(describe(instr, &c, tf32, conv));
  weft_mutex_lock(&dnn->mu);
  st = choose(conv, dnn->handle, most_workspace);
  weft_mutex_unlock(&dnn->mu);
  WEFT_TRY(st);
  *out_conv = WEFT_MOVE(conv);
  return NULL;
}

void gpu_conv_free(gpu_conv *conv)
{
  if (!conv) return;
  if (conv->x) fn.cudnnDestroyTensorDescriptor(conv->x);
  if (conv->y) fn.cudnnDestroyTensorDescriptor(conv->y);
  if (conv->w) fn.cudnnDestroyFilterDescriptor(conv->w);
  if (conv->conv) fn.cudnnDestroyConvolutionDescriptor(conv->conv);
  free(conv);
}

size_t gpu_conv_workspace(const gpu_conv *conv)
{
  return conv->workspace_bytes ? conv->workspace_bytes + WORKSPACE_ALIGNMENT : 0;
}

/* ---- running ---- */

static weft_status *call(const gpu_conv *v, wdn_handle handle, wcu_ptr lhs_at, wcu_ptr rhs_at, wcu_ptr out_at,
                         wcu_ptr workspace_at)
{
  static const double one_f64 = 1, zero_f64 = 0;
  static const float one_f32 = 1, zero_f32 = 0;
  const void *one = v->is_double ? (const void *)&one_f64 : &one_f32;
  const void *zero = v->is_double ? (const void *)&zero_f64 : &zero_f32;
  const void *lhs = (const void *)(uintptr_t)lhs_at, *rhs = (const void *)(uintptr_t)rhs_at;
  void *out = (void *)(uintptr_t)out_at;
  void *workspace = (void *)(uintptr_t)(v->workspace_bytes ? WEFT_ALIGN_UP(workspace_at, WORKSPACE_ALIGNMENT) : 0);

  switch (v->kind) {
  case PASS_CONV_DATA:
    DNN_TRY(cudnnConvolutionBackwardData, handle, one, v->w, rhs, v->y, lhs, v->conv, v->algo, workspace,
            v->workspace_bytes, zero, v->x, out);
    return NULL;
  case PASS_CONV_FILTER:
    DNN_TRY(cudnnConvolutionBackwardFilter, handle, one, v->x, lhs, v->y, rhs, v->conv, v->algo, workspace,
            v->workspace_bytes, zero, v->w, out);
    return NULL;
  default:
    DNN_TRY(cudnnConvolutionForward, handle, one, v->x, lhs, v->w, rhs, v->conv, v->algo, workspace, v->workspace_bytes,
            zero, v->y, out);
    return NULL;
  }
}

weft_status *gpu_conv_enqueue(const gpu_conv *conv, gpu_dnn *dnn, wcu_stream stream, wcu_ptr lhs, wcu_ptr rhs,
                              wcu_ptr out, wcu_ptr workspace)
{
  weft_status *st;

  weft_mutex_lock(&dnn->mu);
  st = status_of(fn.cudnnSetStream(dnn->handle, stream), "cudnnSetStream");
  if (!st) st = call(conv, dnn->handle, lhs, rhs, out, workspace);
  weft_mutex_unlock(&dnn->mu);
  return st;
}
