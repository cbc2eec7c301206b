/* cpu/lapack.c -- The custom calls lapack_{s,d,c,z}NAME_ffi on OpenBLAS's LAPACK, as typed FFI handlers.
 *
 * Arrays come column-major in their last two dimensions and are batched over the others; results that start as a copy
 * of an operand usually share its memory.  One handler serves all four kinds of number; the kind is the operand's
 * element type. `info` results are one s32 a matrix; JAX turns those that are not 0 into NaNs. */
#include <config.h>

#include "cpu/lapack.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/macros.h"
#include "cpu/blas.h"
#include "cpu/blocked.h"
#include "cpu/cholesky.h"
#include "cpu/small_solve.h"
#include "runtime/ffi.h"

/* ---- reading a call -------------------------------------------------------------------------------------------- */

typedef enum kind { S, D, C, Z } kind; /* the element type: f32, f64, c64 or c128 */

typedef struct call {
  XLA_FFI_CallFrame *frame;
  kind kind;
  int64_t bytes, real_bytes; /* bytes of an element, and of its real part */
  int64_t batch;
  lapack_int rows, cols;     /* rows and columns of the first operand's matrices */
  lapack_int ld;             /* leading dimension of the first operand: max(1, rows) */
  XLA_FFI_Error *error;
} call;

static XLA_FFI_Error *fail(const XLA_FFI_CallFrame *frame, weft_code code, const char *message)
{
  XLA_FFI_Error_Create_Args args = {.struct_size = sizeof args, .message = message, .errc = (XLA_FFI_Error_Code)code};
  return frame->api->XLA_FFI_Error_Create(&args);
}

static XLA_FFI_Buffer *arg(const call *c, int i) { return c->frame->args.args[i]; }
static XLA_FFI_Buffer *ret(const call *c, int i) { return c->frame->rets.rets[i]; }

static int64_t elems(const XLA_FFI_Buffer *b)
{
  int64_t n = 1;
  for (int64_t d = 0; d < b->rank; d++) n *= b->dims[d];
  return n;
}

/* The size of dimension `from_end`, counted from the last dimension; 1 if the rank is less. */
static int64_t dim(const XLA_FFI_Buffer *b, int from_end)
{
  return b->rank > from_end ? b->dims[b->rank - 1 - from_end] : 1;
}

/* The data of matrix `m` of a buffer. */
static void *part(const call *c, const XLA_FFI_Buffer *b, int64_t m)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(weft_dtype_from_proto(b->dtype));
  return (char *)b->data + elems(b) / WEFT_MAX(1, c->batch) * m * bytes;
}

/* Checks the numbers of operands and results and reads what all calls have; false if there is nothing to do.
 * `matrix_rank` is 2, or 1 for gtsv's diagonals. */
static bool call_init(call *c, XLA_FFI_CallFrame *frame, int args, int rets, int matrix_rank)
{
  *c = (call){.frame = frame};
  if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return false;
  }
  if (frame->args.size != args || frame->rets.size != rets) {
    c->error = fail(frame, WEFT_INVALID_ARGUMENT, "wrong number of operands or results");
    return false;
  }
  const XLA_FFI_Buffer *a = arg(c, 0);
  switch (weft_dtype_from_proto(a->dtype)) {
  case WEFT_F32: c->kind = S; break;
  case WEFT_F64: c->kind = D; break;
  case WEFT_C64: c->kind = C; break;
  case WEFT_C128: c->kind = Z; break;
  default: c->error = fail(frame, WEFT_INVALID_ARGUMENT, "operand is not f32, f64, c64 or c128"); return false;
  }
  c->real_bytes = c->kind == S || c->kind == C ? 4 : 8;
  c->bytes = c->real_bytes * (c->kind >= C ? 2 : 1);
  if (a->rank < matrix_rank || dim(a, 0) > INT32_MAX || dim(a, 1) > INT32_MAX) {
    c->error = fail(frame, WEFT_INVALID_ARGUMENT, "operand is no matrix, or too large a one");
    return false;
  }
  c->rows = (lapack_int)dim(a, matrix_rank - 1);
  c->cols = matrix_rank == 2 ? (lapack_int)dim(a, 0) : 1;
  c->ld = WEFT_MAX(1, c->rows);
  c->batch = 1;
  for (int64_t d = 0; d < a->rank - matrix_rank; d++) c->batch *= a->dims[d];
  cpu_blas_init();
  return c->batch > 0;
}

/* The value of a scalar attribute of at least `bytes` bytes, or NULL. */
static const void *attr(const call *c, const char *name, size_t bytes)
{
  const XLA_FFI_Attrs *attrs = &c->frame->attrs;
  size_t n = strlen(name);

  for (int64_t i = 0; i < attrs->size; i++)
    if (attrs->names[i]->len == n && memcmp(attrs->names[i]->ptr, name, n) == 0 &&
        attrs->types[i] == XLA_FFI_AttrType_SCALAR) {
      const XLA_FFI_Scalar *scalar = attrs->attrs[i];
      return weft_dtype_bytes(weft_dtype_from_proto(scalar->dtype)) >= bytes ? scalar->value : NULL;
    }
  return NULL;
}

/* A character attribute, stored as u8; `otherwise` if it is absent. */
static char attr_char(const call *c, const char *name, char otherwise)
{
  const void *value = attr(c, name, 1);
  return value ? *(const char *)value : otherwise;
}
static lapack_int attr_int(const call *c, const char *name, lapack_int otherwise)
{
  const void *value = attr(c, name, sizeof(lapack_int));
  lapack_int x = otherwise;
  if (value) memcpy(&x, value, sizeof x);
  return x;
}

/* ---- checking a call --------------------------------------------------------------------------------------------- */

/* A program may give a target any operands, results and attributes, so a call is checked first: each array that LAPACK
 * would read or write must be there, and large enough. */

/* What an array holds: the operand's type, its real part, a complex number of that, or s32. */
typedef enum content { SAME, REAL, COMPLEX, INTEGER } content;

static bool refuse(call *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(call *c, const char *format, ...)
{
  char message[200];
  va_list args;

  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  c->error = fail(c->frame, WEFT_INVALID_ARGUMENT, message);
  return false;
}

/* Whether `b` holds `count` elements for each matrix, and of that type;
 * otherwise the call has an error that names it. */
static bool holds(call *c, const XLA_FFI_Buffer *b, const char *what, int index, content content, int64_t count)
{
  bool is_double = c->real_bytes == 8;
  weft_dtype real = is_double ? WEFT_F64 : WEFT_F32, complex = is_double ? WEFT_C128 : WEFT_C64;
  weft_dtype want = content == INTEGER                ? WEFT_S32
                    : content == COMPLEX              ? complex
                    : content == SAME && c->kind >= C ? complex
                                                      : real;

  if (weft_dtype_from_proto(b->dtype) == want && elems(b) == c->batch * count) return true;
  return refuse(c, "%s %d holds %lld elements of %s, want %lld of %s", what, index, (long long)elems(b),
                weft_dtype_name(weft_dtype_from_proto(b->dtype)), (long long)(c->batch * count), weft_dtype_name(want));
}
static bool takes(call *c, int i, content content, int64_t count)
{
  return holds(c, arg(c, i), "operand", i, content, count);
}
static bool gives(call *c, int i, content content, int64_t count)
{
  return holds(c, ret(c, i), "result", i, content, count);
}
static bool is_square(call *c)
{
  return c->rows == c->cols || refuse(c, "operand 0 is no square matrix: it is %d by %d", c->rows, c->cols);
}
static bool is_one_of(call *c, const char *name, char value, const char *allowed)
{
  return (value && strchr(allowed, value)) || refuse(c, "attribute %s is %d, want one of \"%s\"", name, value, allowed);
}
static int64_t size(const call *c) { return (int64_t)c->rows * c->cols; }
static int64_t least(const call *c) { return WEFT_MIN(c->rows, c->cols); }

/* Result r starts as a copy of operand a. */
static void *copy_arg(const call *c, int a, int r)
{
  if (arg(c, a)->data != ret(c, r)->data)
    memcpy(ret(c, r)->data, arg(c, a)->data,
           (size_t)(elems(arg(c, a)) * (int64_t)weft_dtype_bytes(weft_dtype_from_proto(arg(c, a)->dtype))));
  return ret(c, r)->data;
}

/* ---- workspace --------------------------------------------------------------------------------------------------- */

/* A routine that is called with lwork = -1 puts the size of the workspace that it wants into work[0]; it is then
 * called again with that size. */
typedef struct workspace {
  double asked[2];     /* room for one element of any type */
  void *data;
  lapack_int size;
} workspace;

static bool workspace_make(const call *c, workspace *w)
{
  double wanted = w->asked[0];
  float wanted_f32;

  memcpy(&wanted_f32, w->asked, sizeof wanted_f32);
  if (c->real_bytes == 4) wanted = wanted_f32;
  /* f32 may have rounded the size down */
  w->size = (lapack_int)WEFT_MAX(1.0, wanted * (c->real_bytes == 4 ? 1.0000002 : 1));
  w->data = malloc((size_t)w->size * (size_t)c->bytes);
  return w->data != NULL;
}

/* Runs CALL twice, first with (WORK, LWORK) to ask for the size; if there is no memory, the call has an error. */
#define WITH_WORKSPACE(c, CALL)                                                     \
  do {                                                                              \
    workspace space = {.size = -1};                                                 \
    void *WORK = space.asked;                                                       \
    lapack_int *LWORK = &space.size;                                                \
    CALL;                                                                           \
    bool has_room = workspace_make(c, &space);                                      \
    if (!has_room) (c)->error = fail((c)->frame, WEFT_RESOURCE_EXHAUSTED, "out of memory"); \
    WORK = space.data;                                                              \
    for (int64_t m = 0; has_room && m < (c)->batch; m++) { CALL; }                  \
    free(space.data);                                                               \
  } while (0)

/* The routine for the element type: BY_KIND where all four are alike, BY_REAL and BY_COMPLEX where the real and the
 * complex ones differ. */
#define BY_KIND(c, name) ((c)->kind == S ? s##name##_ : (c)->kind == D ? d##name##_ : (c)->kind == C ? c##name##_ : z##name##_)
#define BY_REAL(c, name) ((c)->kind == S ? s##name##_ : d##name##_)
#define BY_COMPLEX(c, name) ((c)->kind == C ? c##name##_ : z##name##_)
#define IS_COMPLEX(c) ((c)->kind >= C)

/* ---- batches over threads ---------------------------------------------------------------------------------------- */

enum { MOST_BUFFERS = 8, MOST_PARTS = 32, LEAST_SHARED_NS = 30000 };

/* The parts of a batch, each a call of its own. Matrices do not depend on each other, so results have the same bits for
 * any number of parts. */
typedef struct batch_job {
  XLA_FFI_CallFrame *frame;
  XLA_FFI_Handler *part_handler;
  int64_t batch, parts;
  int batch_rank; /* the leading dimensions that all buffers have in common */
  XLA_FFI_Error *errors[MOST_PARTS];
} batch_job;

/* The matrices [begin, end) of `whole`; `dims` has room for HLO_MAX_RANK. */
static XLA_FFI_Buffer matrices_of(const batch_job *job, const XLA_FFI_Buffer *whole, int64_t begin, int64_t end,
                                  int64_t *dims)
{
  XLA_FFI_Buffer some = *whole;
  int64_t bytes = (int64_t)weft_dtype_bytes(weft_dtype_from_proto(whole->dtype));

  for (int64_t d = 0; d < whole->rank; d++) dims[d] = d < job->batch_rank ? 1 : whole->dims[d];
  dims[0] = end - begin;
  some.dims = dims;
  some.data = (char *)whole->data + elems(whole) / job->batch * begin * bytes;
  return some;
}

static void part_task(void *ctx, int64_t part)
{
  batch_job *job = ctx;
  XLA_FFI_CallFrame frame = *job->frame;
  XLA_FFI_Buffer args[MOST_BUFFERS], rets[MOST_BUFFERS];
  int64_t arg_dims[MOST_BUFFERS][HLO_MAX_RANK], ret_dims[MOST_BUFFERS][HLO_MAX_RANK];
  void *arg_list[MOST_BUFFERS], *ret_list[MOST_BUFFERS];
  int64_t begin = job->batch * part / job->parts, end = job->batch * (part + 1) / job->parts;

  for (int64_t i = 0; i < frame.args.size; i++) {
    args[i] = matrices_of(job, frame.args.args[i], begin, end, arg_dims[i]);
    arg_list[i] = &args[i];
  }
  for (int64_t i = 0; i < frame.rets.size; i++) {
    rets[i] = matrices_of(job, frame.rets.rets[i], begin, end, ret_dims[i]);
    ret_list[i] = &rets[i];
  }
  frame.args.args = arg_list;
  frame.rets.rets = ret_list;
  job->errors[part] = job->part_handler(&frame);
}

static bool has_batch(const XLA_FFI_Buffer *b, const XLA_FFI_Buffer *first, int batch_rank)
{
  return b->rank >= batch_rank && memcmp(b->dims, first->dims, (size_t)batch_rank * sizeof *b->dims) == 0;
}

/* Calls `handler` for the whole batch, or, where that pays, for parts of it on several threads. */
static XLA_FFI_Error *call_in_parts(XLA_FFI_CallFrame *frame, int matrix_rank, XLA_FFI_Handler *handler)
{
  const double CALL_NS = 100, ELEM_NS = 0.5; /* of a matrix, and of each of rows * columns * the less of the two */
  batch_job job = {.frame = frame, .part_handler = handler, .batch = 1};
  rt_pool *pool = frame->extension_start ? NULL : rt_ffi_pool(frame->ctx);
  XLA_FFI_Error *first_error = NULL;

  if (!pool || rt_pool_threads(pool) < 2 || frame->args.size < 1 || frame->args.size > MOST_BUFFERS ||
      frame->rets.size > MOST_BUFFERS)
    return handler(frame);
  const XLA_FFI_Buffer *first = frame->args.args[0];
  job.batch_rank = (int)first->rank - matrix_rank;
  if (job.batch_rank < 1) return handler(frame);
  for (int d = 0; d < job.batch_rank; d++) job.batch *= first->dims[d];
  double rows = (double)dim(first, matrix_rank - 1), cols = matrix_rank == 2 ? (double)dim(first, 0) : 1;
  double ns = (double)job.batch * (CALL_NS + ELEM_NS * rows * cols * WEFT_MIN(rows, cols));
  bool shares = job.batch > 1 && ns >= LEAST_SHARED_NS;
  for (int64_t i = 0; i < frame->args.size; i++)
    shares = shares && has_batch(frame->args.args[i], first, job.batch_rank);
  for (int64_t i = 0; i < frame->rets.size; i++)
    shares = shares && has_batch(frame->rets.rets[i], first, job.batch_rank);
  if (!shares) return handler(frame);
  job.parts = WEFT_MIN(WEFT_MIN(2 * (int64_t)rt_pool_threads(pool), MOST_PARTS), job.batch);
  rt_parallel_for(pool, job.parts, part_task, &job);
  for (int64_t i = 0; i < job.parts; i++) {
    XLA_FFI_Error_Destroy_Args destroy = {.struct_size = sizeof destroy, .error = job.errors[i]};
    if (!first_error) first_error = job.errors[i];
    else if (job.errors[i]) frame->api->XLA_FFI_Error_Destroy(&destroy);
  }
  return first_error;
}

/* Defines a handler: `c` is set up, or the handler returns what was wrong. */
#define HANDLER(name, args, rets, rank)                              \
  static XLA_FFI_Error *name##_call(call *c);                        \
  static XLA_FFI_Error *name##_matrices(XLA_FFI_CallFrame *frame)    \
  {                                                                  \
    call c;                                                          \
    XLA_FFI_Error *error = call_init(&c, frame, args, rets, rank) ? name##_call(&c) : NULL; \
    return error ? error : c.error;                                  \
  }                                                                  \
  static XLA_FFI_Error *name##_handler(XLA_FFI_CallFrame *frame) { return call_in_parts(frame, rank, name##_matrices); } \
  static XLA_FFI_Error *name##_call(call *c)

/* The `m` of the first CALL in WITH_WORKSPACE: asking for the size does not touch the data, so any matrix serves. */
static const int64_t m = 0;

/* ---- factors ----------------------------------------------------------------------------------------------------- */

int64_t cpu_nan_pivot(weft_dtype type, int64_t n, const void *factor)
{
  int64_t step = (n + 1) * (weft_dtype_is_complex(type) ? 2 : 1);
  bool is_double = weft_dtype_component(type) == WEFT_F64;

  for (int64_t j = 0; j < n; j++)
    if (is_double ? isnan(((const double *)factor)[j * step]) : isnan(((const float *)factor)[j * step])) return j + 1;
  return 0;
}

HANDLER(potrf, 1, 2, 2)
{
  char uplo = attr_char(c, "uplo", 'L');

  if (!is_square(c) || !is_one_of(c, "uplo", uplo, "LU") || !gives(c, 0, SAME, size(c)) || !gives(c, 1, INTEGER, 1))
    return c->error;
  copy_arg(c, 0, 0);
  for (int64_t i = 0; i < c->batch; i++) {
    lapack_int *info = part(c, ret(c, 1), i);
    void *a = part(c, ret(c, 0), i);
    *info = 0; /* rows are LAPACK's columns */
    if (c->rows == c->ld && cpu_cholesky_small(weft_dtype_from_proto(arg(c, 0)->dtype), c->rows, uplo == 'U', a, a))
      continue;
    BY_KIND(c, potrf)(&uplo, &c->rows, part(c, ret(c, 0), i), &c->ld, info, 1);
    if (*info == 0)
      *info = (lapack_int)cpu_nan_pivot(weft_dtype_from_proto(arg(c, 0)->dtype), c->rows, part(c, ret(c, 0), i));
  }
  return NULL;
}

HANDLER(getrf, 1, 3, 2)
{
  weft_dtype type = weft_dtype_from_proto(arg(c, 0)->dtype);

  if (!gives(c, 0, SAME, size(c)) || !gives(c, 1, INTEGER, least(c)) || !gives(c, 2, INTEGER, 1)) return c->error;
  copy_arg(c, 0, 0);
  if (cpu_lu_small(type, c->rows, c->cols, c->batch, ret(c, 0)->data, ret(c, 1)->data, ret(c, 2)->data)) return NULL;
  for (int64_t i = 0; i < c->batch; i++)
    BY_KIND(c, getrf)(&c->rows, &c->cols, part(c, ret(c, 0), i), &c->ld, part(c, ret(c, 1), i), part(c, ret(c, 2), i));
  return NULL;
}

HANDLER(geqrf, 1, 2, 2)
{
  lapack_int info;

  if (!gives(c, 0, SAME, size(c)) || !gives(c, 1, SAME, least(c))) return c->error;
  copy_arg(c, 0, 0);
  WITH_WORKSPACE(
    c, BY_KIND(c, geqrf)(&c->rows, &c->cols, part(c, ret(c, 0), m), &c->ld, part(c, ret(c, 1), m), WORK, LWORK, &info));
  return NULL;
}

HANDLER(geqp3, 2, 3, 2)
{
  lapack_int info;

  if (!takes(c, 1, INTEGER, c->cols) || !gives(c, 0, SAME, size(c)) || !gives(c, 1, INTEGER, c->cols) ||
      !gives(c, 2, SAME, least(c)))
    return c->error;
  copy_arg(c, 0, 0);
  copy_arg(c, 1, 1);
  if (!IS_COMPLEX(c)) {
    WITH_WORKSPACE(c, BY_REAL(c, geqp3)(&c->rows, &c->cols, part(c, ret(c, 0), m), &c->ld, part(c, ret(c, 1), m),
                                        part(c, ret(c, 2), m), WORK, LWORK, &info));
    return NULL;
  }
  void *rwork = malloc((size_t)(2 * (int64_t)c->cols + 1) * (size_t)c->real_bytes);
  if (!rwork) return fail(c->frame, WEFT_RESOURCE_EXHAUSTED, "out of memory");
  WITH_WORKSPACE(c, BY_COMPLEX(c, geqp3)(&c->rows, &c->cols, part(c, ret(c, 0), m), &c->ld, part(c, ret(c, 1), m),
                                         part(c, ret(c, 2), m), WORK, LWORK, rwork, &info));
  free(rwork);
  return NULL;
}

/* The matrix q of a QR factorisation, from its reflectors. */
HANDLER(orgqr, 2, 1, 2)
{
  lapack_int info, k = (lapack_int)dim(arg(c, 1), 0);

  if (k > c->cols || c->cols > c->rows)
    return refuse(c, "%d reflectors, and a matrix of %d by %d", k, c->rows, c->cols), c->error;
  if (!takes(c, 1, SAME, k) || !gives(c, 0, SAME, size(c))) return c->error;
  copy_arg(c, 0, 0);
  if (!IS_COMPLEX(c))
    WITH_WORKSPACE(c, BY_REAL(c, orgqr)(&c->rows, &c->cols, &k, part(c, ret(c, 0), m), &c->ld, part(c, arg(c, 1), m),
                                        WORK, LWORK, &info));
  else
    WITH_WORKSPACE(c, BY_COMPLEX(c, ungqr)(&c->rows, &c->cols, &k, part(c, ret(c, 0), m), &c->ld, part(c, arg(c, 1), m),
                                           WORK, LWORK, &info));
  return NULL;
}

/* q c, q^H c, c q or c q^H, with q given by its reflectors. */
HANDLER(ormqr, 3, 1, 2)
{
  char side = attr_char(c, "left", 1) ? 'L' : 'R';
  char trans = !attr_char(c, "transpose", 0) ? 'N' : IS_COMPLEX(c) ? 'C' : 'T';
  lapack_int info, k = (lapack_int)dim(arg(c, 1), 0);
  lapack_int rows = (lapack_int)dim(ret(c, 0), 1), cols = (lapack_int)dim(ret(c, 0), 0), ldc = WEFT_MAX(1, rows);

  if (k > c->cols || k > c->rows || c->rows != (side == 'L' ? rows : cols))
    return refuse(c, "%d reflectors of %d elements, and a matrix of %d by %d", k, c->rows, rows, cols), c->error;
  if (!takes(c, 1, SAME, k) || !takes(c, 2, SAME, (int64_t)rows * cols) || !gives(c, 0, SAME, (int64_t)rows * cols))
    return c->error;
  copy_arg(c, 2, 0);
  if (!IS_COMPLEX(c))
    WITH_WORKSPACE(c, BY_REAL(c, ormqr)(&side, &trans, &rows, &cols, &k, part(c, arg(c, 0), m), &c->ld,
                                        part(c, arg(c, 1), m), part(c, ret(c, 0), m), &ldc, WORK, LWORK, &info, 1, 1));
  else
    WITH_WORKSPACE(c,
                   BY_COMPLEX(c, unmqr)(&side, &trans, &rows, &cols, &k, part(c, arg(c, 0), m), &c->ld,
                                        part(c, arg(c, 1), m), part(c, ret(c, 0), m), &ldc, WORK, LWORK, &info, 1, 1));
  return NULL;
}

/* ---- systems ----------------------------------------------------------------------------------------------------- */

HANDLER(trsm, 2, 1, 2)
{
  char side = attr_char(c, "side", 'L'), uplo = attr_char(c, "uplo", 'L');
  char trans = attr_char(c, "trans_x", 'N'), diag = attr_char(c, "diag", 'N');
  lapack_int rows = (lapack_int)dim(ret(c, 0), 1), cols = (lapack_int)dim(ret(c, 0), 0), ldb = WEFT_MAX(1, rows);
  static const float one_f[2] = {1, 0};
  static const double one_d[2] = {1, 0};
  const void *one = c->real_bytes == 4 ? (const void *)one_f : one_d;
  bool left = side == 'L', turned = (trans != 'N') == left; /* x op(a) = b is op(a)^T x^T = b^T */
  cpu_system system = {
    .type = weft_dtype_from_proto(arg(c, 0)->dtype), .n = c->rows, .columns = left ? cols : rows,
    .a_row = turned ? c->ld : 1, .a_col = turned ? 1 : c->ld, .x_row = left ? 1 : ldb, .x_col = left ? ldb : 1,
    .lower = (uplo == 'L') != turned, .unit = diag == 'U',
  };

  if (!is_square(c) || !is_one_of(c, "side", side, "LR") || !is_one_of(c, "uplo", uplo, "LU") ||
      !is_one_of(c, "trans_x", trans, "NTC") || !is_one_of(c, "diag", diag, "NU"))
    return c->error;
  if (c->rows != (left ? rows : cols))
    return refuse(c, "a matrix of order %d, and right-hand sides of %d by %d", c->rows, rows, cols), c->error;
  if (!takes(c, 1, SAME, (int64_t)rows * cols) || !gives(c, 0, SAME, (int64_t)rows * cols)) return c->error;
  copy_arg(c, 1, 0);
  if (cpu_system_is_small(&system))
    return cpu_small_systems_solve(&system, c->batch, arg(c, 0)->data, ret(c, 0)->data), NULL;
  bool is_blocked = cpu_blocked_system_fits(&system);
  for (int64_t i = 0; i < c->batch; i++) {
    if (is_blocked && cpu_blocked_system_solve(&system, part(c, arg(c, 0), i), part(c, ret(c, 0), i))) continue;
    BY_KIND(c, trsm)(&side, &uplo, &trans, &diag, &rows, &cols, one, part(c, arg(c, 0), i), &c->ld,
                     part(c, ret(c, 0), i), &ldb, 1, 1, 1, 1);
  }
  return NULL;
}

/* The lower diagonal has n elements, of which the first is not used. */
HANDLER(gtsv, 4, 5, 1)
{
  lapack_int columns = (lapack_int)dim(arg(c, 3), 0);

  for (int i = 0; i < 4; i++) {
    int64_t count = (int64_t)c->rows * (i == 3 ? columns : 1);
    if (!takes(c, i, SAME, count) || !gives(c, i, SAME, count)) return c->error;
  }
  if (!gives(c, 4, INTEGER, 1)) return c->error;
  for (int i = 0; i < 4; i++) copy_arg(c, i, i);
  for (int64_t i = 0; i < c->batch; i++)
    BY_KIND(c, gtsv)(&c->rows, &columns, (char *)part(c, ret(c, 0), i) + c->bytes, part(c, ret(c, 1), i),
                     part(c, ret(c, 2), i), part(c, ret(c, 3), i), &c->ld, part(c, ret(c, 4), i));
  return NULL;
}

/* ---- singular values --------------------------------------------------------------------------------------------- */

static XLA_FFI_Error *svd(call *c, bool divide)
{
  char mode = attr_char(c, "mode", 'A');
  const XLA_FFI_Buffer *x = ret(c, 0), *s = ret(c, 1), *u = ret(c, 2), *vt = ret(c, 3), *info = ret(c, 4);
  int64_t k = least(c), most = WEFT_MAX(c->rows, c->cols);
  lapack_int ldu = WEFT_MAX(1, c->rows), ldvt = (lapack_int)WEFT_MAX(1, mode == 'A' ? c->cols : k);

  if (!is_one_of(c, "mode", mode, "ASN") || !gives(c, 0, SAME, size(c)) || !gives(c, 1, REAL, k) ||
      !gives(c, 4, INTEGER, 1))
    return c->error;
  if (mode != 'N' && (!gives(c, 2, SAME, (int64_t)c->rows * (mode == 'S' ? k : c->rows)) ||
                      !gives(c, 3, SAME, (int64_t)c->cols * (mode == 'S' ? k : c->cols))))
    return c->error;
  lapack_int *iwork = malloc((size_t)(8 * k + 1) * sizeof *iwork);
  /* the largest workspace that the documentation of ?gesdd asks for */
  int64_t rwork_size = WEFT_MAX(5 * k * k + 7 * k, 2 * most * k + 2 * k * k + k) + 5 * most + 1;
  void *rwork = IS_COMPLEX(c) ? malloc((size_t)rwork_size * (size_t)c->real_bytes) : iwork;

  if (!iwork || !rwork) {
    if (rwork != iwork) free(rwork);
    free(iwork);
    return fail(c->frame, WEFT_RESOURCE_EXHAUSTED, "out of memory");
  }
  copy_arg(c, 0, 0);
#define COMMON &c->rows, &c->cols, part(c, x, m), &c->ld, part(c, s, m), part(c, u, m), &ldu, part(c, vt, m), &ldvt, WORK, LWORK
  if (divide && !IS_COMPLEX(c)) WITH_WORKSPACE(c, BY_REAL(c, gesdd)(&mode, COMMON, iwork, part(c, info, m), 1));
  else if (divide) WITH_WORKSPACE(c, BY_COMPLEX(c, gesdd)(&mode, COMMON, rwork, iwork, part(c, info, m), 1));
  else if (!IS_COMPLEX(c)) WITH_WORKSPACE(c, BY_REAL(c, gesvd)(&mode, &mode, COMMON, part(c, info, m), 1, 1));
  else WITH_WORKSPACE(c, BY_COMPLEX(c, gesvd)(&mode, &mode, COMMON, rwork, part(c, info, m), 1, 1));
#undef COMMON
  if (rwork != iwork) free(rwork);
  free(iwork);
  return NULL;
}
HANDLER(gesdd, 1, 5, 2) { return svd(c, true); }
HANDLER(gesvd, 1, 5, 2) { return svd(c, false); }

/* ---- eigenvalues ------------------------------------------------------------------------------------------------- */

HANDLER(syevd, 1, 3, 2)
{
  char mode = attr_char(c, "mode", 'V'), uplo = attr_char(c, "uplo", 'L');
  int64_t n = c->rows;

  if (!is_square(c) || !is_one_of(c, "mode", mode, "VN") || !is_one_of(c, "uplo", uplo, "LU") ||
      !gives(c, 0, SAME, size(c)) || !gives(c, 1, REAL, n) || !gives(c, 2, INTEGER, 1))
    return c->error;
  /* the largest workspace that ?syevd and ?heevd ask for */
  lapack_int lrwork = (lapack_int)WEFT_MIN(1 + 5 * n + 2 * n * n, INT32_MAX), liwork = (lapack_int)(3 + 5 * n);
  lapack_int *iwork = malloc((size_t)liwork * sizeof *iwork);
  void *rwork = IS_COMPLEX(c) ? malloc((size_t)lrwork * (size_t)c->real_bytes) : iwork;

  if (!iwork || !rwork) {
    if (rwork != iwork) free(rwork);
    free(iwork);
    return fail(c->frame, WEFT_RESOURCE_EXHAUSTED, "out of memory");
  }
  copy_arg(c, 0, 0);
#define COMMON &mode, &uplo, &c->rows, part(c, ret(c, 0), m), &c->ld, part(c, ret(c, 1), m), WORK, LWORK
  if (!IS_COMPLEX(c)) WITH_WORKSPACE(c, BY_REAL(c, syevd)(COMMON, iwork, &liwork, part(c, ret(c, 2), m), 1, 1));
  else WITH_WORKSPACE(c, BY_COMPLEX(c, heevd)(COMMON, rwork, &lrwork, iwork, &liwork, part(c, ret(c, 2), m), 1, 1));
#undef COMMON
  if (rwork != iwork) free(rwork);
  free(iwork);
  return NULL;
}

/* LAPACK packs the eigenvectors of a conjugate pair as two real columns, the real and the imaginary part. This
 * spreads them out as complex vectors. */
static void unpack_vectors(const call *c, const char *packed, const char *imaginary, char *out)
{
  int64_t n = c->rows;
  bool is_double = c->real_bytes == 8;
#define GET(base, i) (is_double ? ((const double *)(const void *)(base))[i] : (double)((const float *)(const void *)(base))[i])
  for (int64_t j = 0; j < n; j++) {
    double wi = GET(imaginary, j);
    bool second = j > 0 && wi < 0; /* of a pair, the eigenvalue with positive imaginary part comes first */
    for (int64_t i = 0; i < n; i++) {
      double re = GET(packed, (second ? j - 1 : j) * n + i),
             im = wi == 0 ? 0 : GET(packed, (second ? j : j + 1) * n + i);
      if (second) im = -im;
      if (is_double) {
        ((double *)(void *)out)[2 * (j * n + i)] = re;
        ((double *)(void *)out)[2 * (j * n + i) + 1] = im;
      } else {
        ((float *)(void *)out)[2 * (j * n + i)] = (float)re;
        ((float *)(void *)out)[2 * (j * n + i) + 1] = (float)im;
      }
    }
  }
#undef GET
}

/* Iterations on NaN or infinity need not end. A matrix with such elements has no eigenvalues, which `info` reports
 * as -4 (argument 4), as jaxlib does. */
static bool all_finite(const call *c, const void *a)
{
  int64_t count = (int64_t)c->rows * c->rows * (c->bytes / c->real_bytes);

  for (int64_t i = 0; i < count; i++)
    if (!(c->real_bytes == 4 ? isfinite(((const float *)a)[i]) : isfinite(((const double *)a)[i]))) return false;
  return true;
}

static XLA_FFI_Error *geev_complex(call *c, char left, char right, char *a)
{
  int64_t n = c->rows;
  void *rwork = malloc((size_t)(2 * n + 1) * (size_t)c->real_bytes);

  if (!rwork) return fail(c->frame, WEFT_RESOURCE_EXHAUSTED, "out of memory");
  WITH_WORKSPACE(c, {
    memcpy(a, part(c, arg(c, 0), m), (size_t)(n * n * c->bytes));
    *(lapack_int *)part(c, ret(c, 3), m) = -4;
    if (*LWORK < 0 || all_finite(c, a))
      BY_COMPLEX(c, geev)(&left, &right, &c->rows, a, &c->ld, part(c, ret(c, 0), m), part(c, ret(c, 1), m), &c->ld,
                          part(c, ret(c, 2), m), &c->ld, WORK, LWORK, rwork, part(c, ret(c, 3), m), 1, 1);
  });
  free(rwork);
  return NULL;
}

static XLA_FFI_Error *geev_real(call *c, char left, char right, char *a)
{
  int64_t size = (int64_t)c->rows * c->rows * c->bytes;
  char *vl = a + size, *vr = vl + size;

  WITH_WORKSPACE(c, {
    memcpy(a, part(c, arg(c, 0), m), (size_t)size);
    lapack_int *info = part(c, ret(c, 4), m);
    *info = -4;
    if (*LWORK < 0 || all_finite(c, a))
      BY_REAL(c, geev)(&left, &right, &c->rows, a, &c->ld, part(c, ret(c, 0), m), part(c, ret(c, 1), m), vl, &c->ld, vr,
                       &c->ld, WORK, LWORK, info, 1, 1);
    if (*LWORK > 0 && *info == 0 && left == 'V') unpack_vectors(c, vl, part(c, ret(c, 1), m), part(c, ret(c, 2), m));
    if (*LWORK > 0 && *info == 0 && right == 'V') unpack_vectors(c, vr, part(c, ret(c, 1), m), part(c, ret(c, 3), m));
  });
  return NULL;
}

static XLA_FFI_Error *geev_any(call *c)
{
  char left = attr_char(c, "compute_left", 'V'), right = attr_char(c, "compute_right", 'V');
  int values = IS_COMPLEX(c) ? 1 : 2; /* results with eigenvalues: complex numbers, or real and imaginary parts */
  XLA_FFI_Error *error;

  if (!is_square(c) || !is_one_of(c, "compute_left", left, "VN") || !is_one_of(c, "compute_right", right, "VN") ||
      !gives(c, 0, SAME, c->rows) || !gives(c, values - 1, SAME, c->rows) || !gives(c, values, COMPLEX, size(c)) ||
      !gives(c, values + 1, COMPLEX, size(c)) || !gives(c, values + 2, INTEGER, 1))
    return c->error;
  char *a = malloc((size_t)(3 * size(c) * c->bytes) + 1); /* LAPACK overwrites its matrix */
  if (!a) return fail(c->frame, WEFT_RESOURCE_EXHAUSTED, "out of memory");
  error = IS_COMPLEX(c) ? geev_complex(c, left, right, a) : geev_real(c, left, right, a);
  free(a);
  return error;
}
HANDLER(geev, 1, 5, 2) { return geev_any(c); }
HANDLER(geev_c, 1, 4, 2) { return geev_any(c); }

/* Results: the form, the vectors, `values` arrays of eigenvalues, the number of those that were chosen, info. */
static bool is_schur(call *c, char mode, int values)
{
  return is_square(c) && is_one_of(c, "mode", mode, "VN") && gives(c, 0, SAME, size(c)) &&
         (mode == 'N' || gives(c, 1, SAME, size(c))) && gives(c, 2, SAME, c->rows) &&
         gives(c, 1 + values, SAME, c->rows) && gives(c, 2 + values, INTEGER, 1) && gives(c, 3 + values, INTEGER, 1);
}

/* Schur form without ordering. */
HANDLER(gees, 1, 6, 2)
{
  char mode = attr_char(c, "mode", 'V'), sort = 'N';

  if (!is_schur(c, mode, 2)) return c->error;
  copy_arg(c, 0, 0);
  WITH_WORKSPACE(c, BY_REAL(c, gees)(&mode, &sort, NULL, &c->rows, part(c, ret(c, 0), m), &c->ld, part(c, ret(c, 4), m),
                                     part(c, ret(c, 2), m), part(c, ret(c, 3), m), part(c, ret(c, 1), m), &c->ld, WORK,
                                     LWORK, NULL, part(c, ret(c, 5), m), 1, 1));
  return NULL;
}
HANDLER(gees_c, 1, 5, 2)
{
  char mode = attr_char(c, "mode", 'V'), sort = 'N';

  if (!is_schur(c, mode, 1)) return c->error;
  void *rwork = malloc((size_t)(c->rows + 1) * (size_t)c->real_bytes);
  if (!rwork) return fail(c->frame, WEFT_RESOURCE_EXHAUSTED, "out of memory");
  copy_arg(c, 0, 0);
  WITH_WORKSPACE(c, BY_COMPLEX(c, gees)(&mode, &sort, NULL, &c->rows, part(c, ret(c, 0), m), &c->ld,
                                        part(c, ret(c, 3), m), part(c, ret(c, 2), m), part(c, ret(c, 1), m), &c->ld,
                                        WORK, LWORK, rwork, NULL, part(c, ret(c, 4), m), 1, 1));
  free(rwork);
  return NULL;
}

/* ---- reductions to simpler form ---------------------------------------------------------------------------------- */

HANDLER(gehrd, 1, 3, 2)
{
  lapack_int low = attr_int(c, "low", 1), high = attr_int(c, "high", c->rows);

  if (!is_square(c) || !gives(c, 0, SAME, size(c)) || !gives(c, 1, SAME, WEFT_MAX(0, c->rows - 1)) ||
      !gives(c, 2, INTEGER, 1))
    return c->error;
  if (c->rows > 0 && (low < 1 || high > c->rows || low > high))
    return refuse(c, "rows %d to %d of a matrix of order %d", low, high, c->rows), c->error;
  copy_arg(c, 0, 0);
  WITH_WORKSPACE(c, BY_KIND(c, gehrd)(&c->rows, &low, &high, part(c, ret(c, 0), m), &c->ld, part(c, ret(c, 1), m), WORK,
                                      LWORK, part(c, ret(c, 2), m)));
  return NULL;
}

HANDLER(sytrd, 1, 5, 2)
{
  char uplo = attr_char(c, "uplo", 'L');

  if (!is_square(c) || !is_one_of(c, "uplo", uplo, "LU") || !gives(c, 0, SAME, size(c)) ||
      !gives(c, 1, REAL, c->rows) || !gives(c, 2, REAL, WEFT_MAX(0, c->rows - 1)) ||
      !gives(c, 3, SAME, WEFT_MAX(0, c->rows - 1)) || !gives(c, 4, INTEGER, 1))
    return c->error;
  copy_arg(c, 0, 0);
#define COMMON &uplo, &c->rows, part(c, ret(c, 0), m), &c->ld, part(c, ret(c, 1), m), part(c, ret(c, 2), m), part(c, ret(c, 3), m)
  if (!IS_COMPLEX(c)) WITH_WORKSPACE(c, BY_REAL(c, sytrd)(COMMON, WORK, LWORK, part(c, ret(c, 4), m), 1));
  else WITH_WORKSPACE(c, BY_COMPLEX(c, hetrd)(COMMON, WORK, LWORK, part(c, ret(c, 4), m), 1));
#undef COMMON
  return NULL;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* The names of the real and of the complex targets, and their handlers. */
static const struct { const char *real, *complex; XLA_FFI_Handler *real_handler, *complex_handler; } targets[] = {
  {"trsm", "trsm", trsm_handler, trsm_handler},     {"getrf", "getrf", getrf_handler, getrf_handler},
  {"geqrf", "geqrf", geqrf_handler, geqrf_handler}, {"geqp3", "geqp3", geqp3_handler, geqp3_handler},
  {"orgqr", "ungqr", orgqr_handler, orgqr_handler}, {"ormqr", "unmqr", ormqr_handler, ormqr_handler},
  {"potrf", "potrf", potrf_handler, potrf_handler}, {"gesdd", "gesdd", gesdd_handler, gesdd_handler},
  {"gesvd", "gesvd", gesvd_handler, gesvd_handler}, {"syevd", "heevd", syevd_handler, syevd_handler},
  {"geev", "geev", geev_handler, geev_c_handler},   {"gees", "gees", gees_handler, gees_c_handler},
  {"gehrd", "gehrd", gehrd_handler, gehrd_handler}, {"sytrd", "hetrd", sytrd_handler, sytrd_handler},
  {"gtsv", "gtsv", gtsv_handler, gtsv_handler},
};

static weft_status *register_all(void)
{
  for (size_t i = 0; i < WEFT_COUNT(targets); i++)
    for (int k = 0; k < 4; k++) {
      char name[32];
      int n = snprintf(name, sizeof name, "lapack_%c%s_ffi", "sdcz"[k], k < 2 ? targets[i].real : targets[i].complex);
      XLA_FFI_Handler_Bundle bundle = {.execute = k < 2 ? targets[i].real_handler : targets[i].complex_handler};
      XLA_FFI_Handler_Bundle theirs;
      if (rt_ffi_find(name, &theirs)) continue; /* registering it now would hide the handler of the user */
      WEFT_TRY(rt_ffi_register(name, (size_t)n, &bundle));
    }
  return NULL;
}

static weft_status *registered;
static void register_once(void) { registered = register_all(); }

weft_status *cpu_lapack_register(void)
{
  static pthread_once_t once = PTHREAD_ONCE_INIT;

  pthread_once(&once, register_once);
  return weft_status_dup(registered);
}
