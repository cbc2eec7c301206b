/* gpu/host_linalg.c -- custom calls that JAX makes on NVIDIA's GPUs and that Weft does on the host, on copies of their
 * arrays: cusparse_gtsv2_ffi and cu_tridiagonal_solve_perturbed, systems with three diagonals, and
 * cu_cholesky_update_ffi. */
#include <config.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/host_numbers.h"
#include "gpu/makers.h"

typedef gpu_number number;

static bool is_array_like(const hlo_instr *operand, const hlo_shape *other, int rank)
{
  return hlo_shape_is_array(operand->shape) && operand->shape->type == other->type && operand->shape->rank == rank;
}

/* ---- three diagonals ------------------------------------------------------------------------------------------- */

/* Systems of `n` unknowns with `columns` right-hand sides each. Elements of the right-hand sides of one column are
 * neighbours. The first element of the lower diagonal and the last one of the upper are not read. */
typedef struct diagonals_thunk {
  rt_thunk base;
  weft_dtype type;
  int64_t systems, n, columns;
  bool perturbed;
} diagonals_thunk;

/* Gaussian elimination with row exchanges, in place: lower[i] is the element left of d[i]. */
static void eliminate(int64_t n, number *lower, number *d, number *upper, number *upper2, number *b)
{
  for (int64_t i = 0; i + 1 < n; i++) {
    upper2[i] = 0;
    if (cabs(d[i]) >= cabs(lower[i + 1])) {
      number factor = lower[i + 1] == 0 ? 0 : lower[i + 1] / d[i]; /* both may be 0 */
      d[i + 1] -= factor * upper[i];
      b[i + 1] -= factor * b[i];
      continue;
    }
    number factor = d[i] / lower[i + 1], below = d[i + 1], rhs = b[i];
    d[i] = lower[i + 1];
    d[i + 1] = upper[i] - factor * below;
    upper[i] = below;
    if (i + 2 < n) {
      upper2[i] = upper[i + 1];
      upper[i + 1] = -factor * upper[i + 1];
    }
    b[i] = b[i + 1];
    b[i + 1] = rhs - factor * b[i + 1];
  }
}

/* Moves a pivot away from 0 by `step`, by twice that and so on, until neither 1 / pivot nor rhs / pivot is above
 * 1 / least. */
static number moved(number pivot, number rhs, double step, double least)
{
  step = copysign(fmax(step, least), creal(pivot));
  while (cabs(pivot) < least || cabs(rhs) * least > cabs(pivot)) {
    pivot += step;
    step *= 2;
  }
  return pivot;
}

/* Solves the system that eliminate() left. A singular matrix whose pivots are to be `perturbed` is replaced by one that
 * is regular and differs by rounding errors of the type: the solution is large and close to a null vector. */
static void substitute(int64_t n, const number *d, const number *upper, const number *upper2, number *b, bool perturbed,
                       bool is_double)
{
  double most = 0, least = is_double ? DBL_MIN : (double)FLT_MIN;

  for (int64_t i = 0; perturbed && i < n; i++) {
    most = fmax(most, cabs(d[i]));
    if (i + 1 < n) most = fmax(most, fmax(cabs(upper[i]), cabs(upper2[i])));
  }
  for (int64_t i = n - 1; i >= 0; i--) {
    if (i + 1 < n) b[i] -= upper[i] * b[i + 1];
    if (i + 2 < n) b[i] -= upper2[i] * b[i + 2];
    b[i] /= perturbed ? moved(d[i], b[i], most * (is_double ? DBL_EPSILON : (double)FLT_EPSILON), least) : d[i];
  }
}

static weft_status *diagonals_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  const diagonals_thunk *t = (const diagonals_thunk *)thunk;
  void *const *args = rt_args(thunk, ctx);
  int64_t n = t->n;
  bool is_double = weft_dtype_component(t->type) == WEFT_F64;
  number *rows = calloc((size_t)WEFT_MAX(5 * n, 1), sizeof *rows);

  WEFT_TRY_ALLOC(rows);
  for (int64_t s = 0; s < t->systems * t->columns; s++) {
    int64_t diagonal = s / t->columns * n;
    for (int64_t i = 0; i < n; i++) {
      for (int k = 0; k < 3; k++) rows[k * n + i] = gpu_get_number(t->type, args[k], diagonal + i);
      rows[4 * n + i] = gpu_get_number(t->type, args[3], s * n + i);
    }
    eliminate(n, rows, rows + n, rows + 2 * n, rows + 3 * n, rows + 4 * n);
    substitute(n, rows + n, rows + 2 * n, rows + 3 * n, rows + 4 * n, t->perturbed, is_double);
    for (int64_t i = 0; i < n; i++) gpu_put_number(t->type, args[4], s * n + i, rows[4 * n + i]);
  }
  free(rows);
  return NULL;
}
static const rt_thunk_ops diagonals_ops = {.size = sizeof(rt_thunk_ops), .kind = "tridiagonal", .run = diagonals_run};

static const char perturbed_target[] = "cu_tridiagonal_solve_perturbed";

static weft_status *diagonals_make(low_step *step, rt_thunk **out_thunk)
{
  const hlo_instr *instr = step->instr;
  const hlo_shape *out = instr->shape;
  bool fits = instr->operand_count == 4 && hlo_shape_is_array(out) && out->rank >= 2 && gpu_is_number(out->type) &&
              is_array_like(instr->operands[3], out, out->rank);

  for (int k = 0; fits && k < 3; k++) {
    fits = is_array_like(instr->operands[k], out, out->rank - 1);
    for (int d = 0; fits && d < out->rank - 1; d++) fits = instr->operands[k]->shape->dims[d] == out->dims[d];
  }
  for (int d = 0; fits && d < out->rank; d++) fits = instr->operands[3]->shape->dims[d] == out->dims[d];
  if (!fits)
    return WEFT_ERR(INVALID_ARGUMENT, "%s: three diagonals and a right-hand side of one type go together",
                    instr->u.custom->target);
  WEFT_TRY(low_thunk_new(step, &diagonals_ops, sizeof(diagonals_thunk), out_thunk));
  diagonals_thunk *t = (diagonals_thunk *)*out_thunk;
  t->base.wants_host_memory = true;
  t->type = out->type;
  t->n = out->dims[out->rank - 2];
  t->columns = out->dims[out->rank - 1];
  t->perturbed = strcmp(instr->u.custom->target, perturbed_target) == 0;
  t->systems = t->n && t->columns ? hlo_shape_elems(out) / (t->n * t->columns) : 0;
  return NULL;
}

/* ---- Cholesky factors of a matrix and a rank of one -------------------------------------------------------------- */

/* From r, upper, to the factor of r^T r + w w^T, by a rotation for each row. */
typedef struct update_thunk {
  rt_thunk base;
  weft_dtype type;
  int64_t n;
} update_thunk;

static weft_status *update_run(const rt_thunk *thunk, rt_ctx *ctx)
{
  const update_thunk *t = (const update_thunk *)thunk;
  void *const *args = rt_args(thunk, ctx);
  void *r = args[2], *w = args[3];

  for (int i = 0; i < 2; i++)
    if (args[i] != args[2 + i] && thunk->uses[i].slice.bytes > 0)
      memcpy(args[2 + i], args[i], (size_t)thunk->uses[i].slice.bytes);
  for (int64_t k = 0; k < t->n; k++) {
    double a = creal(gpu_get_number(t->type, r, k * t->n + k)), b = creal(gpu_get_number(t->type, w, k)),
           length = hypot(a, b);
    double c = length > 0 ? a / length : 1, s = length > 0 ? b / length : 0;
    for (int64_t i = 0; i < t->n; i++) {
      double x = creal(gpu_get_number(t->type, r, k * t->n + i)), z = creal(gpu_get_number(t->type, w, i));
      gpu_put_number(t->type, r, k * t->n + i, c * x + s * z);
      gpu_put_number(t->type, w, i, c * z - s * x);
    }
  }
  return NULL;
}
static const rt_thunk_ops update_ops = {.size = sizeof(rt_thunk_ops), .kind = "cholesky-update", .run = update_run};

static weft_status *update_make(low_step *step, rt_thunk **out_thunk)
{
  const hlo_instr *instr = step->instr;
  const hlo_shape *r = instr->operand_count == 2 ? instr->operands[0]->shape : NULL;

  if (!r || !hlo_shape_is_array(r) || r->rank != 2 || r->dims[0] != r->dims[1] ||
      (r->type != WEFT_F32 && r->type != WEFT_F64) || !is_array_like(instr->operands[1], r, 1) ||
      instr->operands[1]->shape->dims[0] != r->dims[0] || step->result_count != 2)
    return WEFT_ERR(INVALID_ARGUMENT, "cu_cholesky_update_ffi: a real square matrix and a vector go together");
  WEFT_TRY(low_thunk_new(step, &update_ops, sizeof(update_thunk), out_thunk));
  update_thunk *t = (update_thunk *)*out_thunk;
  t->base.wants_host_memory = true;
  t->type = r->type;
  t->n = r->dims[0];
  return NULL;
}

gpu_make_fn *gpu_find_host_routine(const char *target)
{
  if (strcmp(target, "cusparse_gtsv2_ffi") == 0 || strcmp(target, perturbed_target) == 0) return diagonals_make;
  if (strcmp(target, "cu_cholesky_update_ffi") == 0) return update_make;
  if (strcmp(target, "cusolver_csrlsvqr_ffi") == 0) return gpu_sparse_make;
  return NULL;
}
