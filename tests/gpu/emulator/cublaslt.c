/* tests/gpu/emulator/cublaslt.c -- an emulated cuBLASLt: products of matrices on the thread of their stream.
 *
 * It refuses what the library's manual forbids: types that do not go together, leading dimensions that are too small,
 * s8 operands in another order than [k, m] and [k, n], addresses with a smaller alignment than the search for an
 * algorithm promised, a workspace that is too small.  Sums over many elements are kept in the workspace, so that a
 * workspace which the caller also uses for other things gives wrong results.  FAST compute types round f32 operands. */
#include <config.h>

#include <complex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/abi/cublaslt.h"
#include "library.h"
#include "numbers.h"

#define WBL_FN(type, name, args) API type name args;
WBL_ENTRIES(WBL_FN)
#undef WBL_FN

enum {
  MAGIC_LAYOUT = 0x4c41594f, MAGIC_MATMUL = 0x4d41544d, MAGIC_PREFERENCE = 0x50524546, MAGIC_ALGO = 0x414c474f,
  SPLIT_K = 128, /* sums of so many products use the workspace */
};

struct wbl_context { uint32_t magic; };

typedef struct layout { uint32_t magic; int32_t type, batches, order; uint64_t rows, cols; int64_t ld, stride; } layout;
typedef struct matmul {
  uint32_t magic;
  int32_t compute, scale, a_op, b_op;
  uint32_t epilogue;
  uint64_t bias;
  int64_t bias_stride;
} matmul;
typedef struct preference { uint32_t magic, alignment[4]; uint64_t workspace; } preference;
typedef struct algorithm { uint32_t magic, alignment[4], bias_alignment; uint64_t workspace, problem; } algorithm;
_Static_assert(sizeof(layout) <= sizeof(wbl_layout) && sizeof(matmul) <= sizeof(wbl_matmul) &&
                 sizeof(preference) <= sizeof(wbl_preference) && sizeof(algorithm) <= sizeof(wbl_algo),
               "the descriptors hold what the emulator keeps in them");

/* ---- handles and descriptors ---- */

#define ENTER() ENTER_CALL(wbl_status)

API size_t cublasLtGetVersion(void) { return 130100; }

API wbl_status cublasLtCreate(wbl_handle *handle)
{
  ENTER();
  if (!handle) return WBL_STATUS_INVALID_VALUE;
  if (!weft_emu_ready()) return WBL_STATUS_NOT_INITIALIZED;
  *handle = calloc(1, sizeof **handle);
  return *handle ? WBL_STATUS_SUCCESS : WBL_STATUS_ALLOC_FAILED;
}

API wbl_status cublasLtDestroy(wbl_handle handle)
{
  free(handle);
  return WBL_STATUS_SUCCESS;
}

API wbl_status cublasLtMatmulDescInit_internal(wbl_matmul *d, size_t size, wbl_compute compute, wct_type scale)
{
  ENTER();
  if (!d || size < sizeof(matmul)) return WBL_STATUS_ALLOC_FAILED;
  matmul *m = memset(d, 0, size);
  *m = (matmul){.magic = MAGIC_MATMUL, .compute = compute, .scale = scale, .epilogue = WBL_EPILOGUE_DEFAULT};
  return WBL_STATUS_SUCCESS;
}

API wbl_status cublasLtMatrixLayoutInit_internal(wbl_layout *l, size_t size, wct_type type, uint64_t rows,
                                                 uint64_t cols, int64_t ld)
{
  ENTER();
  if (!l || size < sizeof(layout)) return WBL_STATUS_ALLOC_FAILED;
  layout *m = memset(l, 0, size);
  *m = (layout){.magic = MAGIC_LAYOUT, .type = type, .batches = 1, .rows = rows, .cols = cols, .ld = ld};
  return WBL_STATUS_SUCCESS;
}

API wbl_status cublasLtMatmulPreferenceInit_internal(wbl_preference *p, size_t size)
{
  ENTER();
  if (!p || size < sizeof(preference)) return WBL_STATUS_ALLOC_FAILED;
  preference *m = memset(p, 0, size);
  *m = (preference){.magic = MAGIC_PREFERENCE, .alignment = {256, 256, 256, 256}};
  return WBL_STATUS_SUCCESS;
}

/* One attribute: a member of the descriptor with the size that the manual gives. */
typedef struct attribute { int id; size_t at, size; } attribute;
#define ATTRIBUTE(id, type, member) {id, offsetof(type, member), sizeof(((type *)0)->member)}

static wbl_status set(void *descriptor, const attribute *rows, size_t count, int id, const void *from, size_t size)
{
  for (size_t n = 0; n < count; n++) {
    if (rows[n].id != id) continue;
    if (!from || size != rows[n].size) return WBL_STATUS_INVALID_VALUE;
    memcpy((char *)descriptor + rows[n].at, from, size);
    return WBL_STATUS_SUCCESS;
  }
  return WBL_STATUS_INVALID_VALUE;
}

#define SET(descriptor, rows, id, from, size) set(descriptor, rows, sizeof(rows) / sizeof *(rows), (int)(id), from, size)

API wbl_status cublasLtMatmulDescSetAttribute(wbl_matmul *d, wbl_matmul_attribute a, const void *from, size_t size)
{
  static const attribute rows[] = {
    ATTRIBUTE(WBL_MATMUL_COMPUTE_TYPE, matmul, compute), ATTRIBUTE(WBL_MATMUL_SCALE_TYPE, matmul, scale),
    ATTRIBUTE(WBL_MATMUL_TRANSA, matmul, a_op), ATTRIBUTE(WBL_MATMUL_TRANSB, matmul, b_op),
    ATTRIBUTE(WBL_MATMUL_EPILOGUE, matmul, epilogue), ATTRIBUTE(WBL_MATMUL_BIAS_POINTER, matmul, bias),
    ATTRIBUTE(WBL_MATMUL_BIAS_BATCH_STRIDE, matmul, bias_stride)};
  ENTER();
  return d && ((matmul *)d)->magic == MAGIC_MATMUL ? SET(d, rows, a, from, size) : WBL_STATUS_INVALID_VALUE;
}

API wbl_status cublasLtMatrixLayoutSetAttribute(wbl_layout *l, wbl_layout_attribute a, const void *from, size_t size)
{
  static const attribute rows[] = {
    ATTRIBUTE(WBL_LAYOUT_TYPE, layout, type), ATTRIBUTE(WBL_LAYOUT_ORDER, layout, order),
    ATTRIBUTE(WBL_LAYOUT_ROWS, layout, rows), ATTRIBUTE(WBL_LAYOUT_COLS, layout, cols),
    ATTRIBUTE(WBL_LAYOUT_LD, layout, ld), ATTRIBUTE(WBL_LAYOUT_BATCH_COUNT, layout, batches),
    ATTRIBUTE(WBL_LAYOUT_STRIDED_BATCH_OFFSET, layout, stride)};
  ENTER();
  return l && ((layout *)l)->magic == MAGIC_LAYOUT ? SET(l, rows, a, from, size) : WBL_STATUS_INVALID_VALUE;
}

API wbl_status cublasLtMatmulPreferenceSetAttribute(wbl_preference *p, wbl_preference_attribute a, const void *from,
                                                    size_t size)
{
  static const attribute rows[] = {
    ATTRIBUTE(WBL_PREF_MAX_WORKSPACE_BYTES, preference, workspace),
    ATTRIBUTE(WBL_PREF_MIN_ALIGNMENT_A_BYTES, preference, alignment[0]),
    ATTRIBUTE(WBL_PREF_MIN_ALIGNMENT_B_BYTES, preference, alignment[1]),
    ATTRIBUTE(WBL_PREF_MIN_ALIGNMENT_C_BYTES, preference, alignment[2]),
    ATTRIBUTE(WBL_PREF_MIN_ALIGNMENT_D_BYTES, preference, alignment[3])};
  ENTER();
  return p && ((preference *)p)->magic == MAGIC_PREFERENCE ? SET(p, rows, a, from, size) : WBL_STATUS_INVALID_VALUE;
}

/* ---- what the library takes ---- */

static size_t bytes_of(int type)
{
  switch (type) {
  case WCT_R_8I: return 1;
  case WCT_R_16F:
  case WCT_R_16BF: return 2;
  case WCT_R_64F:
  case WCT_C_32F: return 8;
  case WCT_C_64F: return 16;
  default: return 4;
  }
}

/* Everything about one product: the arguments of its job. */
typedef struct problem {
  matmul d;
  layout a, b, out;
  uint64_t m, n, k;
  uint64_t a_at, b_at, c_at, out_at, workspace_at;
  size_t workspace;
  _Alignas(16) char alpha[16], beta[16];
} problem;

/* The combinations of the manual's table that Weft may ask for. */
static bool types_go_together(const problem *p)
{
  static const struct { int compute, scale, in, out; } rows[] = {
    {WBL_COMPUTE_16F, WCT_R_16F, WCT_R_16F, WCT_R_16F},   {WBL_COMPUTE_32F, WCT_R_32F, WCT_R_16F, WCT_R_16F},
    {WBL_COMPUTE_32F, WCT_R_32F, WCT_R_16F, WCT_R_32F},   {WBL_COMPUTE_32F, WCT_R_32F, WCT_R_16BF, WCT_R_16BF},
    {WBL_COMPUTE_32F, WCT_R_32F, WCT_R_16BF, WCT_R_32F},  {WBL_COMPUTE_32F, WCT_R_32F, WCT_R_8I, WCT_R_32F},
    {WBL_COMPUTE_32F, WCT_R_32F, WCT_R_32F, WCT_R_32F},   {WBL_COMPUTE_32F, WCT_C_32F, WCT_C_32F, WCT_C_32F},
    {WBL_COMPUTE_64F, WCT_R_64F, WCT_R_64F, WCT_R_64F},   {WBL_COMPUTE_64F, WCT_C_64F, WCT_C_64F, WCT_C_64F},
    {WBL_COMPUTE_32I, WCT_R_32I, WCT_R_8I, WCT_R_32I}};
  int compute = p->d.compute;

  if (compute == WBL_COMPUTE_32F_FAST_16F || compute == WBL_COMPUTE_32F_FAST_16BF ||
      compute == WBL_COMPUTE_32F_FAST_TF32) {
    if (p->a.type != WCT_R_32F && p->a.type != WCT_C_32F) return false;
    compute = WBL_COMPUTE_32F;
  }
  for (size_t n = 0; n < sizeof rows / sizeof *rows; n++)
    if (rows[n].compute == compute && rows[n].scale == p->d.scale && rows[n].in == p->a.type &&
        rows[n].in == p->b.type && rows[n].out == p->out.type)
      return true;
  return false;
}

static bool is_epilogue(const problem *p)
{
  switch (p->d.epilogue) {
  case WBL_EPILOGUE_DEFAULT: return true;
  case WBL_EPILOGUE_RELU:
  case WBL_EPILOGUE_BIAS:
  case WBL_EPILOGUE_RELU_BIAS:
  case WBL_EPILOGUE_GELU:
  case WBL_EPILOGUE_GELU_BIAS: return p->a.type == WCT_R_16F || p->a.type == WCT_R_16BF || p->a.type == WCT_R_32F;
  default: return false;
  }
}

static bool is_layout(const layout *l)
{
  return l->magic == MAGIC_LAYOUT && l->order == 0 && l->rows && l->cols && l->ld >= (int64_t)l->rows && l->batches > 0;
}

/* Matrix units multiply s8 in words of four; both operands lie with k first in memory. */
static bool is_s8(const problem *p)
{
  return p->d.a_op == WBL_OP_T && p->d.b_op == WBL_OP_N && p->m % 4 == 0 && p->k % 4 == 0 && p->a.ld % 4 == 0 &&
         p->b.ld % 4 == 0 && p->out.ld % 4 == 0;
}

static wbl_status examine(problem *p)
{
  if (p->d.magic != MAGIC_MATMUL || !is_layout(&p->a) || !is_layout(&p->b) || !is_layout(&p->out))
    return WBL_STATUS_INVALID_VALUE;
  p->m = p->d.a_op ? p->a.cols : p->a.rows;
  p->k = p->d.a_op ? p->a.rows : p->a.cols;
  p->n = p->d.b_op ? p->b.rows : p->b.cols;
  if ((p->d.b_op ? p->b.cols : p->b.rows) != p->k || p->out.rows != p->m || p->out.cols != p->n ||
      p->a.batches != p->out.batches || p->b.batches != p->out.batches)
    return WBL_STATUS_INVALID_VALUE;
  if (!types_go_together(p) || !is_epilogue(p)) return WBL_STATUS_NOT_SUPPORTED;
  if (p->a.type == WCT_R_8I && !is_s8(p)) return WBL_STATUS_NOT_SUPPORTED;
  return WBL_STATUS_SUCCESS;
}

/* Descriptors from the caller; false: one is missing. */
static bool gather(problem *p, const wbl_matmul *d, const wbl_layout *a, const wbl_layout *b, const wbl_layout *c,
                   const wbl_layout *out)
{
  if (!d || !a || !b || !c || !out) return false;
  memcpy(&p->d, d, sizeof p->d);
  memcpy(&p->a, a, sizeof p->a);
  memcpy(&p->b, b, sizeof p->b);
  memcpy(&p->out, out, sizeof p->out);
  return memcmp(c, out, sizeof p->out) == 0;
}

/* A number that is another one for another product: an algorithm belongs to the product that it was chosen for. */
static uint64_t fingerprint(const problem *p)
{
  uint64_t h = 1469598103934665603u;
  const uint64_t parts[] = {p->m, p->n, p->k, (uint64_t)p->a.ld, (uint64_t)p->b.ld, (uint64_t)p->out.ld,
                            (uint64_t)p->a.type, (uint64_t)p->out.type, (uint64_t)p->d.compute, (uint64_t)p->d.a_op,
                            (uint64_t)p->d.b_op, p->d.epilogue, (uint64_t)p->out.batches};

  for (size_t n = 0; n < sizeof parts / sizeof *parts; n++) h = (h ^ parts[n]) * 1099511628211u;
  return h;
}

/* Bytes of one element while it is summed up. */
static size_t sum_bytes(const problem *p)
{
  switch (p->d.scale) {
  case WCT_R_64F:
  case WCT_C_32F: return 8;
  case WCT_C_64F: return 16;
  default: return 4;
  }
}

API wbl_status cublasLtMatmulAlgoGetHeuristic(wbl_handle handle, const wbl_matmul *d, const wbl_layout *a,
                                              const wbl_layout *b, const wbl_layout *c, const wbl_layout *out,
                                              const wbl_preference *p, int most, wbl_heuristic *results, int *count)
{
  problem q = {0};
  preference want;

  ENTER();
  if (!handle || !p || !results || !count || most < 1 || !gather(&q, d, a, b, c, out)) return WBL_STATUS_INVALID_VALUE;
  memcpy(&want, p, sizeof want);
  *count = 0;
  wbl_status status = examine(&q);
  if (status) return status;
  const size_t least[] = {bytes_of(q.a.type), bytes_of(q.b.type), bytes_of(q.out.type), bytes_of(q.out.type)};
  for (int n = 0; n < 4; n++)
    if (want.magic != MAGIC_PREFERENCE || want.alignment[n] < least[n]) return WBL_STATUS_NOT_SUPPORTED;
  uint64_t workspace = q.k < SPLIT_K ? 0 : q.m * sum_bytes(&q);
  algorithm algo = {.magic = MAGIC_ALGO, .workspace = workspace <= want.workspace ? workspace : 0, .problem = fingerprint(&q)};
  memcpy(algo.alignment, want.alignment, sizeof algo.alignment);
  algo.bias_alignment = (uint32_t)(q.d.bias & -q.d.bias);
  results[0] = (wbl_heuristic){.workspaceSize = algo.workspace, .wavesCount = 1};
  memcpy(&results[0].algo, &algo, sizeof algo);
  *count = 1;
  return WBL_STATUS_SUCCESS;
}

API wbl_status cublasLtMatmulAlgoCheck(wbl_handle handle, const wbl_matmul *d, const wbl_layout *a, const wbl_layout *b,
                                       const wbl_layout *c, const wbl_layout *out, const wbl_algo *algo,
                                       wbl_heuristic *result)
{
  problem q = {0};
  algorithm chosen;

  ENTER();
  if (!handle || !algo || !result || !gather(&q, d, a, b, c, out)) return WBL_STATUS_INVALID_VALUE;
  wbl_status status = examine(&q);
  if (status) return status;
  memcpy(&chosen, algo, sizeof chosen);
  if (chosen.magic != MAGIC_ALGO || chosen.problem != fingerprint(&q)) return WBL_STATUS_INVALID_VALUE;
  *result = (wbl_heuristic){.algo = *algo, .workspaceSize = chosen.workspace, .wavesCount = 1};
  return WBL_STATUS_SUCCESS;
}

/* ---- the arithmetic ---- */

/* How f32 operands are rounded. */
static float rounded(float v, int compute)
{
  switch (compute) {
  case WBL_COMPUTE_32F_FAST_16F: return (float)ptx_f16(ptx_bits_f16(v));
  case WBL_COMPUTE_32F_FAST_16BF: return ptx_bf16(ptx_bits_bf16(v));
  case WBL_COMPUTE_32F_FAST_TF32: return (float)ptx_widen(ptx_narrow(v, ptx_fmt_tf32, 0, false), ptx_fmt_tf32);
  default: return v;
  }
}

static float load_f32(const void *from, size_t n, int type, int compute)
{
  switch (type) {
  case WCT_R_16F: return (float)ptx_f16(((const uint16_t *)from)[n]);
  case WCT_R_16BF: return ptx_bf16(((const uint16_t *)from)[n]);
  case WCT_R_8I: return ((const int8_t *)from)[n];
  default: return rounded(((const float *)from)[n], compute);
  }
}

static double load_f64(const void *from, size_t n, int type, int compute)
{
  (void)type, (void)compute;
  return ((const double *)from)[n];
}

static complex float load_c64(const void *from, size_t n, int type, int compute)
{
  (void)type;
  const float *v = (const float *)from + 2 * n;
  return rounded(v[0], compute) + I * rounded(v[1], compute);
}

static complex double load_c128(const void *from, size_t n, int type, int compute)
{
  (void)type, (void)compute;
  return ((const complex double *)from)[n];
}

static int32_t load_s32(const void *from, size_t n, int type, int compute)
{
  (void)compute;
  return type == WCT_R_8I ? ((const int8_t *)from)[n] : ((const int32_t *)from)[n];
}

static void store_f32(void *to, size_t n, int type, float v)
{
  switch (type) {
  case WCT_R_16F: ((uint16_t *)to)[n] = (uint16_t)ptx_bits_f16(v); break;
  case WCT_R_16BF: ((uint16_t *)to)[n] = (uint16_t)ptx_bits_bf16(v); break;
  default: ((float *)to)[n] = v;
  }
}
static void store_f64(void *to, size_t n, int type, double v) { (void)type, ((double *)to)[n] = v; }
static void store_c64(void *to, size_t n, int type, complex float v) { (void)type, ((complex float *)to)[n] = v; }
static void store_c128(void *to, size_t n, int type, complex double v) { (void)type, ((complex double *)to)[n] = v; }
static void store_s32(void *to, size_t n, int type, int32_t v) { (void)type, ((int32_t *)to)[n] = v; }

static float finish_f32(float v, const problem *p, const void *bias, size_t row)
{
  if (bias) v += load_f32(bias, row, p->out.type, 0);
  switch (p->d.epilogue) {
  case WBL_EPILOGUE_RELU:
  case WBL_EPILOGUE_RELU_BIAS: return v > 0 || v != v ? v : 0;
  case WBL_EPILOGUE_GELU:
  case WBL_EPILOGUE_GELU_BIAS: return 0.5f * v * (1 + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
  default: return v;
  }
}
#define FINISH_NONE(v, p, bias, row) ((void)(bias), (v))

/* out = epilogue(alpha A B + beta C) of one pair of matrices: A is copied to rows of m, so that the inner loop runs
 * along a column of the result. */
#define PRODUCT(name, T, load, store, finish)                                                                      \
  static bool name(const problem *p, const char *a, const char *b, const char *c, char *out, const void *bias,     \
                   char *workspace)                                                                                \
  {                                                                                                                \
    T alpha, beta, *rows = malloc(p->m * p->k * sizeof(T) + 1), *sums = (T *)(void *)workspace;                    \
    memcpy(&alpha, p->alpha, sizeof alpha), memcpy(&beta, p->beta, sizeof beta);                                   \
    if (!workspace) sums = malloc(p->m * sizeof(T));                                                               \
    for (size_t k = 0; rows && k < p->k; k++)                                                                      \
      for (size_t i = 0; i < p->m; i++)                                                                            \
        rows[k * p->m + i] = load(a, p->d.a_op ? i * (size_t)p->a.ld + k : k * (size_t)p->a.ld + i, p->a.type, p->d.compute); \
    for (size_t j = 0; rows && sums && j < p->n; j++) {                                                            \
      memset(sums, 0, p->m * sizeof(T));                                                                           \
      for (size_t k = 0; k < p->k; k++) {                                                                          \
        T v = load(b, p->d.b_op ? k * (size_t)p->b.ld + j : j * (size_t)p->b.ld + k, p->b.type, p->d.compute);     \
        for (size_t i = 0; i < p->m; i++) sums[i] += rows[k * p->m + i] * v;                                       \
      }                                                                                                            \
      for (size_t i = 0; i < p->m; i++) {                                                                          \
        size_t at = j * (size_t)p->out.ld + i;                                                                     \
        T v = alpha * sums[i];                                                                                     \
        if (beta != 0) v += beta * load(c, at, p->out.type, 0);                                                    \
        store(out, at, p->out.type, finish(v, p, bias, i));                                                        \
      }                                                                                                            \
    }                                                                                                              \
    bool done = rows && sums;                                                                                      \
    free(rows);                                                                                                    \
    if (!workspace) free(sums);                                                                                    \
    return done;                                                                                                   \
  }
PRODUCT(product_f32, float, load_f32, store_f32, finish_f32)
PRODUCT(product_f64, double, load_f64, store_f64, FINISH_NONE)
PRODUCT(product_c64, complex float, load_c64, store_c64, FINISH_NONE)
PRODUCT(product_c128, complex double, load_c128, store_c128, FINISH_NONE)
PRODUCT(product_s32, int32_t, load_s32, store_s32, FINISH_NONE)

typedef bool product(const problem *p, const char *a, const char *b, const char *c, char *out, const void *bias,
                     char *workspace);

static product *product_of(const problem *p)
{
  switch (p->d.scale) {
  case WCT_R_64F: return product_f64;
  case WCT_C_32F: return product_c64;
  case WCT_C_64F: return product_c128;
  case WCT_R_32I: return product_s32;
  default: return product_f32;
  }
}

/* Bytes from the first element of a stack of matrices to the end of the last one. */
static size_t extent(const layout *l)
{
  size_t one = (size_t)l->ld * (l->cols - 1) + l->rows;
  return (one + (size_t)(l->batches - 1) * (size_t)l->stride) * bytes_of(l->type);
}

static int run(const void *args, int device, char *error, size_t size)
{
  const problem *p = args;
  const void *bias = NULL;
  char *workspace = NULL;
  const char *a = weft_emu_reach(device, p->a_at, extent(&p->a), false, error, size);
  const char *b = a ? weft_emu_reach(device, p->b_at, extent(&p->b), false, error, size) : NULL;
  const char *c = b ? weft_emu_reach(device, p->c_at, extent(&p->out), false, error, size) : NULL;
  char *out = c ? weft_emu_reach(device, p->out_at, extent(&p->out), true, error, size) : NULL;

  if (!out) return ILLEGAL_ADDRESS;
  if (p->d.epilogue & WBL_EPILOGUE_BIAS &&
      !(bias = weft_emu_reach(device, p->d.bias, p->m * bytes_of(p->out.type), false, error, size)))
    return ILLEGAL_ADDRESS;
  if (p->workspace && !(workspace = weft_emu_reach(device, p->workspace_at, p->workspace, true, error, size)))
    return ILLEGAL_ADDRESS;
  for (size_t n = 0; n < (size_t)p->out.batches; n++) {
    size_t skip = n * (size_t)p->out.stride * bytes_of(p->out.type);
    if (!product_of(p)(p, a + n * (size_t)p->a.stride * bytes_of(p->a.type),
                       b + n * (size_t)p->b.stride * bytes_of(p->b.type), c + skip, out + skip, bias, workspace)) {
      snprintf(error, size, "cublasLtMatmul: no memory");
      return OUT_OF_MEMORY;
    }
  }
  return 0;
}

API wbl_status cublasLtMatmul(wbl_handle handle, const wbl_matmul *d, const void *alpha, const void *a,
                              const wbl_layout *a_layout, const void *b, const wbl_layout *b_layout, const void *beta,
                              const void *c, const wbl_layout *c_layout, void *out, const wbl_layout *out_layout,
                              const wbl_algo *algo, void *workspace, size_t workspace_bytes,
                              struct wcu_stream_st *stream)
{
  problem p = {.a_at = (uintptr_t)a, .b_at = (uintptr_t)b, .c_at = (uintptr_t)c, .out_at = (uintptr_t)out,
               .workspace_at = (uintptr_t)workspace};
  algorithm chosen = {0};

  ENTER();
  if (!weft_emu_ready()) return WBL_STATUS_EXECUTION_FAILED;
  if (!handle || !alpha || !beta || !a || !b || !c || !out || !gather(&p, d, a_layout, b_layout, c_layout, out_layout))
    return WBL_STATUS_INVALID_VALUE;
  wbl_status status = examine(&p);
  if (status) return status;
  if (algo) memcpy(&chosen, algo, sizeof chosen);
  if (chosen.magic != MAGIC_ALGO || chosen.problem != fingerprint(&p)) return WBL_STATUS_NOT_SUPPORTED;
  const uint64_t at[] = {p.a_at, p.b_at, p.c_at, p.out_at};
  for (int n = 0; n < 4; n++)
    if (at[n] % chosen.alignment[n]) return WBL_STATUS_INVALID_VALUE;
  if (p.d.epilogue & WBL_EPILOGUE_BIAS && (!p.d.bias || (chosen.bias_alignment && p.d.bias % chosen.bias_alignment)))
    return WBL_STATUS_INVALID_VALUE;
  if (workspace_bytes < chosen.workspace || (chosen.workspace && (!workspace || p.workspace_at % 256)))
    return WBL_STATUS_INVALID_VALUE;
  p.workspace = chosen.workspace;
  size_t scale_bytes = bytes_of(p.d.scale);
  memcpy(p.alpha, alpha, scale_bytes), memcpy(p.beta, beta, scale_bytes);
  return weft_emu_enqueue(stream, run, &p, sizeof p) ? WBL_STATUS_EXECUTION_FAILED : WBL_STATUS_SUCCESS;
}
