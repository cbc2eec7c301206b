/* gpu/host_sparse.c -- JAX's custom call cusolver_csrlsvqr_ffi, a sparse system, which the host solves on copies of the
 * arrays.
 *
 * Each row of the matrix is turned into the upper triangle by rotations with the rows that are there already, so only
 * the elements of the triangle are kept. */
#include <config.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "gpu/host_numbers.h"
#include "gpu/makers.h"
#include "runtime/ffi.h"

typedef gpu_number number;

typedef struct entry {
  int32_t column;
  number value;
} entry;
/* A row of the system; its entries are in the order of their columns, which are all different. */
typedef struct sparse_row {
  entry *entries; /* NULL: there is no row */
  int64_t count;
  number rhs;
} sparse_row;

typedef struct sparse_thunk {
  rt_thunk base;
  weft_dtype type;
  int64_t n, entries;
  double tolerance; /* a diagonal element of the triangle that is no larger makes the matrix singular */
} sparse_thunk;

static int by_column(const void *a, const void *b)
{
  int32_t x = ((const entry *)a)->column, y = ((const entry *)b)->column;
  return (x > y) - (x < y);
}

/* Reads row `i` of the arguments: values, columns, the first entry of each row, right-hand side. */
static weft_status *read_row(const sparse_thunk *t, void *const *args, int64_t i, sparse_row *out)
{
  const int32_t *columns = args[1], *starts = args[2];
  int64_t first = starts[i], end = starts[i + 1], count = 0;

  if (first < 0 || end < first || end > t->entries)
    return WEFT_ERR(INVALID_ARGUMENT, "cusolver_csrlsvqr_ffi: row %lld has entries %lld to %lld of %lld", (long long)i,
                    (long long)first, (long long)end, (long long)t->entries);
  entry *entries = malloc((size_t)WEFT_MAX(end - first, 1) * sizeof *entries);
  WEFT_TRY_ALLOC(entries);
  *out = (sparse_row){.entries = entries, .rhs = gpu_get_number(t->type, args[3], i)};
  for (int64_t k = first; k < end; k++) {
    if (columns[k] < 0 || columns[k] >= t->n)
      return WEFT_ERR(INVALID_ARGUMENT, "cusolver_csrlsvqr_ffi: column %d of a matrix with %lld columns", columns[k],
                      (long long)t->n);
    entries[k - first] = (entry){columns[k], gpu_get_number(t->type, args[0], k)};
  }
  qsort(entries, (size_t)(end - first), sizeof *entries, by_column);
  for (int64_t k = 0; k < end - first; k++) { /* several values at one place are added */
    if (count > 0 && entries[count - 1].column == entries[k].column) entries[count - 1].value += entries[k].value;
    else entries[count++] = entries[k];
  }
  out->count = count;
  return NULL;
}

/* Rotates two rows that begin in the same column, so that `row` begins further to the right. */
static weft_status *rotate(sparse_row *top, sparse_row *row)
{
  number a = top->entries[0].value, b = row->entries[0].value;
  double length = hypot(cabs(a), cabs(b));
  number c = length > 0 ? a / length : 1, s = length > 0 ? b / length : 0;
  size_t most = (size_t)(top->count + row->count);
  sparse_row up = {malloc(most * sizeof(entry)), 0, conj(c) * top->rhs + conj(s) * row->rhs},
             down = {malloc(most * sizeof(entry)), 0, c * row->rhs - s * top->rhs};

  if (!up.entries || !down.entries) {
    free(up.entries);
    free(down.entries);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "cusolver_csrlsvqr_ffi: no memory for rows of %zu entries", most);
  }
  for (int64_t i = 0, k = 0; i < top->count || k < row->count;) {
    int32_t column = k == row->count || (i < top->count && top->entries[i].column < row->entries[k].column)
                       ? top->entries[i].column
                       : row->entries[k].column;
    number x = i < top->count && top->entries[i].column == column ? top->entries[i++].value : 0;
    number y = k < row->count && row->entries[k].column == column ? row->entries[k++].value : 0;
    up.entries[up.count++] = (entry){column, conj(c) * x + conj(s) * y};
    if (up.count > 1) down.entries[down.count++] = (entry){column, c * y - s * x};
  }
  free(top->entries);
  free(row->entries);
  *top = up;
  *row = down;
  return NULL;
}

/* Makes the upper triangle: triangle[j] begins in column j. */
static weft_status *factor(const sparse_thunk *t, void *const *args, sparse_row *triangle)
{
  for (int64_t i = 0; i < t->n; i++) {
    sparse_row row = {NULL, 0, 0};
    weft_status *st = read_row(t, args, i, &row);
    while (!st && row.count > 0 && triangle[row.entries[0].column].entries)
      st = rotate(&triangle[row.entries[0].column], &row);
    if (st || row.count == 0) free(row.entries);
    if (st) return st;
    if (row.count > 0) triangle[row.entries[0].column] = row;
  }
  return NULL;
}

static weft_status *substitute(const sparse_thunk *t, const sparse_row *triangle, number *x)
{
  for (int64_t j = t->n - 1; j >= 0; j--) {
    const sparse_row *row = &triangle[j];
    if (!row->entries || !(cabs(row->entries[0].value) > t->tolerance))
      return WEFT_ERR(INVALID_ARGUMENT, "cusolver_csrlsvqr_ffi: the matrix is singular: column %lld depends on others",
                      (long long)j);
    x[j] = row->rhs;
    for (int64_t k = 1; k < row->count; k++) x[j] -= row->entries[k].value * x[row->entries[k].column];
    x[j] /= row->entries[0].value;
  }
  return NULL;
}

static weft_status *sparse_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  const sparse_thunk *t = (const sparse_thunk *)thunk;
  void *const *args = rt_args(thunk, ctx);
  sparse_row *triangle = calloc((size_t)WEFT_MAX(t->n, 1), sizeof *triangle);
  number *x = calloc((size_t)WEFT_MAX(t->n, 1), sizeof *x);
  weft_status *st = triangle && x ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "cusolver_csrlsvqr_ffi: no memory");

  if (!st) st = factor(t, args, triangle);
  if (!st) st = substitute(t, triangle, x);
  for (int64_t j = 0; !st && j < t->n; j++) gpu_put_number(t->type, args[4], j, x[j]);
  for (int64_t j = 0; triangle && j < t->n; j++) free(triangle[j].entries);
  free(triangle);
  free(x);
  return st;
}
static const rt_thunk_ops sparse_ops = {.size = sizeof(rt_thunk_ops), .kind = "sparse-solve", .run = sparse_run};

/* The attribute `tol`; 0 where there is none. */
static weft_status *read_tolerance(const hlo_instr *instr, double *out)
{
  const char *text = instr->extra ? instr->extra->backend_config : NULL;
  XLA_FFI_Attrs attrs;
  weft_arena arena;

  *out = 0;
  weft_arena_init(&arena);
  weft_status *st = rt_ffi_attrs_parse(&arena, text ? text : "{}", &attrs);
  for (int64_t i = 0; !st && i < attrs.size; i++) {
    const XLA_FFI_Scalar *scalar = attrs.attrs[i];
    bool is_tol = attrs.names[i]->len == 3 && memcmp(attrs.names[i]->ptr, "tol", 3) == 0;
    if (is_tol && attrs.types[i] == XLA_FFI_AttrType_SCALAR && weft_dtype_from_proto((int)scalar->dtype) == WEFT_F64)
      memcpy(out, scalar->value, sizeof *out);
  }
  weft_arena_fini(&arena);
  return st;
}

static bool is_vector(const hlo_shape *shape, weft_dtype type, int64_t elems)
{
  return hlo_shape_is_array(shape) && shape->rank == 1 && shape->type == type && shape->dims[0] == elems;
}

weft_status *gpu_sparse_make(low_step *step, rt_thunk **out_thunk)
{
  const hlo_instr *instr = step->instr;
  const hlo_shape *out = instr->shape;
  bool fits = instr->operand_count == 4 && hlo_shape_is_array(out) && out->rank == 1 &&
              hlo_shape_is_array(instr->operands[0]->shape) && instr->operands[0]->shape->rank == 1;
  int64_t n = fits ? out->dims[0] : 0, entries = fits ? instr->operands[0]->shape->dims[0] : 0;
  double tolerance;

  if (!fits || !is_vector(instr->operands[0]->shape, out->type, entries) ||
      !is_vector(instr->operands[1]->shape, WEFT_S32, entries) ||
      !is_vector(instr->operands[2]->shape, WEFT_S32, n + 1) || !is_vector(instr->operands[3]->shape, out->type, n))
    return WEFT_ERR(INVALID_ARGUMENT, "cusolver_csrlsvqr_ffi: values, their columns (s32), the first of each row (s32) "
                                      "and a right-hand side go together");
  if (!gpu_is_number(out->type))
    return WEFT_ERR(UNIMPLEMENTED, "custom call cusolver_csrlsvqr_ffi of %s on a GPU", weft_dtype_name(out->type));
  WEFT_TRY(read_tolerance(instr, &tolerance));
  WEFT_TRY(low_thunk_new(step, &sparse_ops, sizeof(sparse_thunk), out_thunk));
  sparse_thunk *t = (sparse_thunk *)*out_thunk;
  t->base.wants_host_memory = true;
  t->type = out->type;
  t->n = n;
  t->entries = entries;
  t->tolerance = tolerance;
  return NULL;
}
