/* tests/gpu/emulator/cudnn.c -- an emulated cuDNN: convolutions and their gradients, on the thread of their stream.
 *
 * It refuses sizes that do not fit together, arrays that are neither channels-first nor channels-last, types other than
 * the library's, a workspace that is too small.  The workspace is overwritten before the sums begin, so that a
 * workspace which the caller also uses for other things gives wrong results.  The first algorithm that it proposes is
 * not deterministic, and fails when it is used. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/abi/cudnn.h"
#include "library.h"
#include "numbers.h"

#define WDN_FN(type, name, args) API type name args;
WDN_ENTRIES(WDN_FN)
#undef WDN_FN

enum { RANK = 5, SPATIAL = 3, WRONG_ALGORITHM = 0, RIGHT_ALGORITHM = 1, WORKSPACE = 512 };

struct wdn_context { struct wcu_stream_st *stream; };
/* Sizes are [outer, channel, spatial...], whatever the order in memory. */
struct wdn_tensor_st { wdn_type type; int rank, size[RANK], step[RANK]; };
struct wdn_filter_st { struct wdn_tensor_st array; };
struct wdn_convolution_st { int spatial, pad[SPATIAL], stride[SPATIAL], dilation[SPATIAL], groups; wdn_mode mode; wdn_type compute; wdn_math math; };

#define ENTER() ENTER_CALL(wdn_status)

API size_t cudnnGetVersion(void) { return 91900; }
API const char *cudnnGetErrorString(wdn_status status)
{
  switch (status) {
#define NAME(name, value) case WDN_STATUS_##name: return "CUDNN_STATUS_" #name;
    WDN_STATUSES(NAME)
#undef NAME
  }
  return "CUDNN_STATUS_UNKNOWN";
}

/* ---- handles and descriptors ---- */

#define DESCRIPTOR(create, destroy, type)                                                                            \
  EMU_CREATE(wdn_status, create, type, WDN_STATUS_BAD_PARAM, WDN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)    \
  EMU_DESTROY(wdn_status, destroy, type)
DESCRIPTOR(cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor, wdn_tensor)
DESCRIPTOR(cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor, wdn_filter)
DESCRIPTOR(cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor, wdn_convolution)
EMU_CREATE_HANDLE(wdn_status, cudnnCreate, wdn_handle, WDN_STATUS_NOT_INITIALIZED,
                  WDN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
EMU_DESTROY(wdn_status, cudnnDestroy, wdn_handle)
EMU_SET_STREAM(wdn_status, cudnnSetStream, wdn_handle, WDN_STATUS_BAD_PARAM)

static bool is_type(wdn_type type)
{
  return type == WDN_FLOAT || type == WDN_DOUBLE || type == WDN_HALF || type == WDN_BFLOAT16;
}

/* Steps of a dense array whose channels come last or behind the outer dimension. */
static void dense_steps(int rank, const int *size, bool channels_last, int *step)
{
  int next = 1;

  if (channels_last) step[1] = next, next *= size[1];
  for (int n = rank - 1; n >= 0; n--)
    if (n != 1 || !channels_last) step[n] = next, next *= size[n];
}

static wdn_status set_array(struct wdn_tensor_st *t, wdn_type type, int rank, const int *size, const int *step)
{
  if (!size || !step || rank < 4 || rank > RANK || !is_type(type)) return WDN_STATUS_BAD_PARAM;
  *t = (struct wdn_tensor_st){.type = type, .rank = rank};
  for (int n = 0; n < rank; n++) {
    if (size[n] < 1 || step[n] < 1) return WDN_STATUS_BAD_PARAM;
    t->size[n] = size[n], t->step[n] = step[n];
  }
  return WDN_STATUS_SUCCESS;
}

API wdn_status cudnnSetTensorNdDescriptor(wdn_tensor t, wdn_type type, int rank, const int *size, const int *step)
{
  ENTER();
  return t ? set_array(t, type, rank, size, step) : WDN_STATUS_BAD_PARAM;
}

API wdn_status cudnnSetFilterNdDescriptor(wdn_filter f, wdn_type type, wdn_format format, int rank, const int *size)
{
  int step[RANK];

  ENTER();
  if (!f || !size || rank < 4 || rank > RANK || (format != WDN_NCHW && format != WDN_NHWC)) return WDN_STATUS_BAD_PARAM;
  dense_steps(rank, size, format == WDN_NHWC, step);
  return set_array(&f->array, type, rank, size, step);
}

API wdn_status cudnnSetConvolutionNdDescriptor(wdn_convolution c, int spatial, const int *pad, const int *stride,
                                               const int *dilation, wdn_mode mode, wdn_type compute)
{
  ENTER();
  if (!c || spatial < 2 || spatial > SPATIAL || (compute != WDN_FLOAT && compute != WDN_DOUBLE))
    return WDN_STATUS_BAD_PARAM;
  *c = (struct wdn_convolution_st){.spatial = spatial, .groups = 1, .mode = mode, .compute = compute};
  for (int n = 0; n < spatial; n++) {
    if (pad[n] < 0 || stride[n] < 1 || dilation[n] < 1) return WDN_STATUS_BAD_PARAM;
    c->pad[n] = pad[n], c->stride[n] = stride[n], c->dilation[n] = dilation[n];
  }
  return WDN_STATUS_SUCCESS;
}

API wdn_status cudnnSetConvolutionGroupCount(wdn_convolution c, int groups)
{
  ENTER();
  if (!c || groups < 1) return WDN_STATUS_BAD_PARAM;
  c->groups = groups;
  return WDN_STATUS_SUCCESS;
}

API wdn_status cudnnSetConvolutionMathType(wdn_convolution c, wdn_math math)
{
  ENTER();
  if (!c) return WDN_STATUS_BAD_PARAM;
  c->math = math;
  return WDN_STATUS_SUCCESS;
}

/* ---- what the library takes ---- */

enum { X, W, Y };

/* One convolution: the arguments of its job.  `target` is the array that is computed. */
typedef struct problem {
  struct wdn_tensor_st array[3];
  struct wdn_convolution_st c;
  int target;
  uint64_t at[3], workspace;
} problem;

static bool is_dense(const struct wdn_tensor_st *t)
{
  int first[RANK], last[RANK];

  dense_steps(t->rank, t->size, false, first);
  dense_steps(t->rank, t->size, true, last);
  return memcmp(t->step, first, (size_t)t->rank * sizeof *first) == 0 ||
         memcmp(t->step, last, (size_t)t->rank * sizeof *last) == 0;
}

static wdn_status examine(const problem *p)
{
  const struct wdn_tensor_st *x = &p->array[X], *w = &p->array[W], *y = &p->array[Y];
  const struct wdn_convolution_st *c = &p->c;

  if (x->rank != c->spatial + 2 || w->rank != x->rank || y->rank != x->rank || x->type != w->type || x->type != y->type)
    return WDN_STATUS_BAD_PARAM;
  if (!is_dense(x) || !is_dense(y) || (x->type == WDN_DOUBLE) != (c->compute == WDN_DOUBLE))
    return WDN_STATUS_NOT_SUPPORTED;
  if (x->size[0] != y->size[0] || w->size[0] != y->size[1] || w->size[1] * c->groups != x->size[1] ||
      w->size[0] % c->groups)
    return WDN_STATUS_BAD_PARAM;
  for (int n = 0; n < c->spatial; n++) {
    int room = x->size[n + 2] + 2 * c->pad[n] - ((w->size[n + 2] - 1) * c->dilation[n] + 1);
    if (room < 0 || room / c->stride[n] + 1 != y->size[n + 2]) return WDN_STATUS_BAD_PARAM;
  }
  return WDN_STATUS_SUCCESS;
}

static wdn_status gather(problem *p, int target, wdn_tensor x, wdn_filter w, wdn_convolution c, wdn_tensor y)
{
  if (!x || !w || !c || !y) return WDN_STATUS_BAD_PARAM;
  *p = (problem){.array = {*x, w->array, *y}, .c = *c, .target = target};
  return examine(p);
}

static wdn_status propose(int target, wdn_tensor x, wdn_filter w, wdn_convolution c, wdn_tensor y, int most, int *count,
                          wdn_perf *results)
{
  problem p;
  wdn_status status = gather(&p, target, x, w, c, y);

  if (status) return status;
  if (most < 2 || !count || !results) return WDN_STATUS_BAD_PARAM;
  results[0] = (wdn_perf){.algo = WRONG_ALGORITHM, .determinism = 0};
  results[1] = (wdn_perf){.algo = RIGHT_ALGORITHM, .memory = WORKSPACE, .determinism = 1, .mathType = c->math};
  *count = 2;
  return WDN_STATUS_SUCCESS;
}

API wdn_status cudnnGetConvolutionForwardAlgorithm_v7(wdn_handle handle, wdn_tensor x, wdn_filter w, wdn_convolution c,
                                                      wdn_tensor y, int most, int *count, wdn_perf *results)
{
  ENTER();
  return handle ? propose(Y, x, w, c, y, most, count, results) : WDN_STATUS_BAD_PARAM;
}
API wdn_status cudnnGetConvolutionBackwardDataAlgorithm_v7(wdn_handle handle, wdn_filter w, wdn_tensor y,
                                                           wdn_convolution c, wdn_tensor x, int most, int *count,
                                                           wdn_perf *results)
{
  ENTER();
  return handle ? propose(X, x, w, c, y, most, count, results) : WDN_STATUS_BAD_PARAM;
}
API wdn_status cudnnGetConvolutionBackwardFilterAlgorithm_v7(wdn_handle handle, wdn_tensor x, wdn_tensor y,
                                                             wdn_convolution c, wdn_filter w, int most, int *count,
                                                             wdn_perf *results)
{
  ENTER();
  return handle ? propose(W, x, w, c, y, most, count, results) : WDN_STATUS_BAD_PARAM;
}

static wdn_status workspace_of(wdn_handle handle, int algo, size_t *bytes)
{
  if (!handle || !bytes || algo != RIGHT_ALGORITHM) return WDN_STATUS_NOT_SUPPORTED;
  *bytes = WORKSPACE;
  return WDN_STATUS_SUCCESS;
}

API wdn_status cudnnGetConvolutionForwardWorkspaceSize(wdn_handle handle, wdn_tensor x, wdn_filter w, wdn_convolution c,
                                                       wdn_tensor y, int algo, size_t *bytes)
{
  (void)x, (void)w, (void)c, (void)y;
  ENTER();
  return workspace_of(handle, algo, bytes);
}
API wdn_status cudnnGetConvolutionBackwardDataWorkspaceSize(wdn_handle handle, wdn_filter w, wdn_tensor y,
                                                            wdn_convolution c, wdn_tensor x, int algo, size_t *bytes)
{
  (void)x, (void)w, (void)c, (void)y;
  ENTER();
  return workspace_of(handle, algo, bytes);
}
API wdn_status cudnnGetConvolutionBackwardFilterWorkspaceSize(wdn_handle handle, wdn_tensor x, wdn_tensor y,
                                                              wdn_convolution c, wdn_filter w, int algo, size_t *bytes)
{
  (void)x, (void)w, (void)c, (void)y;
  ENTER();
  return workspace_of(handle, algo, bytes);
}

/* ---- the arithmetic ---- */

static size_t bytes_of(wdn_type type) { return type == WDN_DOUBLE ? 8 : type == WDN_FLOAT ? 4 : 2; }

static double load(const char *from, size_t n, wdn_type type)
{
  switch (type) {
  case WDN_HALF: return ptx_f16(((const uint16_t *)(const void *)from)[n]);
  case WDN_BFLOAT16: return ptx_bf16(((const uint16_t *)(const void *)from)[n]);
  case WDN_FLOAT: return ((const float *)(const void *)from)[n];
  default: return ((const double *)(const void *)from)[n];
  }
}

static void store(char *to, size_t n, wdn_type type, double v)
{
  switch (type) {
  case WDN_HALF: ((uint16_t *)(void *)to)[n] = (uint16_t)ptx_bits_f16(v); break;
  case WDN_BFLOAT16: ((uint16_t *)(void *)to)[n] = (uint16_t)ptx_bits_bf16(v); break;
  case WDN_FLOAT: ((float *)(void *)to)[n] = (float)v; break;
  default: ((double *)(void *)to)[n] = v;
  }
}

static size_t elements(const struct wdn_tensor_st *t)
{
  size_t count = 1;
  for (int n = 0; n < t->rank; n++) count *= (size_t)t->size[n];
  return count;
}

/* Counts up an index of `count` numbers below `limit`; false: it has come back to 0. */
static bool step(int count, const int *limit, int *index)
{
  for (int n = count - 1; n >= 0; n--) {
    if (++index[n] < limit[n]) return true;
    index[n] = 0;
  }
  return false;
}

/* Adds up target += a * b over all that are in one product: every element of y with every element of its filter. */
static void add_up(const problem *p, double *const *value)
{
  const struct wdn_tensor_st *x = &p->array[X], *w = &p->array[W], *y = &p->array[Y];
  const struct wdn_convolution_st *c = &p->c;
  int o[RANK] = {0}, channels = w->size[1];

  do {
    int f[RANK - 1] = {0}, group = o[1] / (w->size[0] / c->groups);
    size_t y_at = 0;
    for (int n = 0; n < y->rank; n++) y_at += (size_t)o[n] * (size_t)y->step[n];
    do { /* f: channel, then the window */
      size_t x_at = (size_t)o[0] * (size_t)x->step[0] + (size_t)(group * channels + f[0]) * (size_t)x->step[1];
      size_t w_at = (size_t)o[1] * (size_t)w->step[0] + (size_t)f[0] * (size_t)w->step[1];
      bool inside = true;
      for (int n = 0; n < c->spatial && inside; n++) {
        int r = c->mode == WDN_CONVOLUTION ? w->size[n + 2] - 1 - f[n + 1] : f[n + 1];
        int at = o[n + 2] * c->stride[n] + f[n + 1] * c->dilation[n] - c->pad[n];
        inside = at >= 0 && at < x->size[n + 2];
        x_at += (size_t)at * (size_t)x->step[n + 2], w_at += (size_t)r * (size_t)w->step[n + 2];
      }
      if (!inside) continue;
      if (p->target == Y) value[Y][y_at] += value[X][x_at] * value[W][w_at];
      if (p->target == X) value[X][x_at] += value[Y][y_at] * value[W][w_at];
      if (p->target == W) value[W][w_at] += value[X][x_at] * value[Y][y_at];
    } while (step(w->rank - 1, w->size + 1, f));
  } while (step(y->rank, y->size, o));
}

static int run(const void *args, int device, char *error, size_t size)
{
  const problem *p = args;
  char *host[3];
  double *value[3] = {NULL};
  bool enough = true;

  for (int n = 0; n < 3; n++) {
    host[n] = weft_emu_reach(device, p->at[n], elements(&p->array[n]) * bytes_of(p->array[n].type), n == p->target,
                             error, size);
    if (!host[n]) return ILLEGAL_ADDRESS;
  }
  void *workspace = weft_emu_reach(device, p->workspace, WORKSPACE, true, error, size);
  if (!workspace) return ILLEGAL_ADDRESS;
  memset(workspace, 0xff, WORKSPACE);
  for (int n = 0; n < 3; n++) {
    value[n] = calloc(elements(&p->array[n]), sizeof(double));
    enough = enough && value[n];
    for (size_t i = 0; enough && n != p->target && i < elements(&p->array[n]); i++)
      value[n][i] = load(host[n], i, p->array[n].type);
  }
  if (enough) add_up(p, value);
  for (size_t i = 0; enough && i < elements(&p->array[p->target]); i++)
    store(host[p->target], i, p->array[0].type, value[p->target][i]);
  for (int n = 0; n < 3; n++) free(value[n]);
  if (enough) return 0;
  snprintf(error, size, "a convolution of cuDNN: no memory");
  return 2;
}

static wdn_status convolve(int target, wdn_handle handle, wdn_tensor x, const void *x_at, wdn_filter w,
                           const void *w_at, wdn_tensor y, const void *y_at, wdn_convolution c, int algo,
                           void *workspace, size_t bytes)
{
  problem p;
  wdn_status status = gather(&p, target, x, w, c, y);

  if (!weft_emu_ready()) return WDN_STATUS_EXECUTION_FAILED;
  if (status) return status;
  if (!handle || algo != RIGHT_ALGORITHM) return WDN_STATUS_NOT_SUPPORTED;
  if (!x_at || !w_at || !y_at || !workspace || bytes < WORKSPACE) return WDN_STATUS_BAD_PARAM;
  p.at[X] = (uintptr_t)x_at, p.at[W] = (uintptr_t)w_at, p.at[Y] = (uintptr_t)y_at, p.workspace = (uintptr_t)workspace;
  for (int n = 0; n < 3; n++)
    if (p.at[n] % 16) return WDN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
  return weft_emu_enqueue(handle->stream, run, &p, sizeof p) ? WDN_STATUS_EXECUTION_FAILED : WDN_STATUS_SUCCESS;
}

API wdn_status cudnnConvolutionForward(wdn_handle handle, const void *alpha, wdn_tensor x, const void *x_at,
                                       wdn_filter w, const void *w_at, wdn_convolution c, int algo, void *workspace,
                                       size_t bytes, const void *beta, wdn_tensor y, void *y_at)
{
  ENTER();
  if (!alpha || !beta) return WDN_STATUS_BAD_PARAM;
  return convolve(Y, handle, x, x_at, w, w_at, y, y_at, c, algo, workspace, bytes);
}
API wdn_status cudnnConvolutionBackwardData(wdn_handle handle, const void *alpha, wdn_filter w, const void *w_at,
                                            wdn_tensor y, const void *y_at, wdn_convolution c, int algo,
                                            void *workspace, size_t bytes, const void *beta, wdn_tensor x, void *x_at)
{
  ENTER();
  if (!alpha || !beta) return WDN_STATUS_BAD_PARAM;
  return convolve(X, handle, x, x_at, w, w_at, y, y_at, c, algo, workspace, bytes);
}
API wdn_status cudnnConvolutionBackwardFilter(wdn_handle handle, const void *alpha, wdn_tensor x, const void *x_at,
                                              wdn_tensor y, const void *y_at, wdn_convolution c, int algo,
                                              void *workspace, size_t bytes, const void *beta, wdn_filter w, void *w_at)
{
  ENTER();
  if (!alpha || !beta) return WDN_STATUS_BAD_PARAM;
  return convolve(W, handle, x, x_at, w, w_at, y, y_at, c, algo, workspace, bytes);
}
