/* hlo/eval_linalg.c -- Linear algebra, Fourier transforms and batch normalisation, in double or long double throughout.
 */
#include <config.h>

#include <complex.h>
#include <math.h>
#include <string.h>

#include "hlo/eval_internal.h"

typedef double complex zcplx;

static zcplx load_c(const hlo_literal *lit, int64_t i)
{
  eval_scalar x = eval_load(lit->shape->type, eval_at(lit, i));

  return CMPLX(x.re, weft_dtype_is_complex(lit->shape->type) ? x.im : 0);
}

static void store_c(hlo_literal *lit, int64_t i, zcplx z)
{
  eval_store(lit->shape->type, eval_at(lit, i), (eval_scalar){.re = creal(z), .im = cimag(z)});
}

/* ---- cholesky and triangular-solve ------------------------------------------------------------------------------- */

/* a = l l^H for one n x n matrix at `base`, of which one triangle is read; false if it is not positive definite. */
static bool factor(const hlo_literal *a, int64_t base, int64_t n, bool lower, zcplx *l)
{
  for (int64_t j = 0; j < n; j++) {
    for (int64_t i = j; i < n; i++) {
      zcplx sum = lower ? load_c(a, base + i * n + j) : conj(load_c(a, base + j * n + i));
      for (int64_t k = 0; k < j; k++) sum -= l[i * n + k] * conj(l[j * n + k]);
      if (i > j) l[i * n + j] = sum / l[j * n + j];
      else if (creal(sum) > 0) l[j * n + j] = sqrt(creal(sum));
      else return false;
    }
  }
  return true;
}

/* The other triangle of the result is zero.  A matrix that is not positive definite gives NaN. */
weft_status *eval_cholesky(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                           const hlo_literal **out)
{
  int rank = instr->shape->rank;
  int64_t n = instr->shape->dims[rank - 1], count = hlo_shape_elems(instr->shape);
  zcplx *l = WEFT_ARENA_ARRAY(ctx->arena, zcplx, n * n);
  hlo_literal *result;

  WEFT_TRY_ALLOC(l);
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  for (int64_t base = 0; base < count; base += n * n) {
    memset(l, 0, (size_t)(n * n) * sizeof *l);
    bool ok = factor(operands[0], base, n, instr->u.lower, l);
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++)
        store_c(result, base + i * n + j, !ok ? CMPLX(NAN, NAN) : instr->u.lower ? l[i * n + j] : conj(l[j * n + i]));
    WEFT_TRY(eval_check_deadline(ctx));
  }
  return NULL;
}

/* Finds x with op(a) x = b (left) or x op(a) = b, by n substitutions over the rows (or columns) of x. */
weft_status *eval_triangular_solve(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                   const hlo_literal **out)
{
  const hlo_literal *a = operands[0], *b = operands[1];
  int rank = b->shape->rank;
  int64_t rows = b->shape->dims[rank - 2], cols = b->shape->dims[rank - 1], count = hlo_shape_elems(b->shape);
  bool left = instr->u.triangular.left_side, transposed = instr->u.triangular.transpose_a > HLO_NO_TRANSPOSE;
  bool conjugated = instr->u.triangular.transpose_a == HLO_ADJOINT;
  int64_t n = left ? rows : cols, others = left ? cols : rows;
  /* true if the first unknown of x is solved first */
  bool forward = (instr->u.triangular.lower != transposed) == left;
  zcplx *x = WEFT_ARENA_ARRAY(ctx->arena, zcplx, n);
  hlo_literal *result;

  WEFT_TRY_ALLOC(x);
  WEFT_TRY(eval_result(ctx, instr->shape, &result));
  *out = result;
  for (int64_t matrix = 0; count > 0 && matrix < count / (rows * cols); matrix++) {
    for (int64_t o = 0; o < others; o++) {
      for (int64_t t = 0; t < n; t++) {
        int64_t i = forward ? t : n - 1 - t;
        int64_t at = matrix * rows * cols + (left ? i * cols + o : o * cols + i);
        zcplx sum = load_c(b, at), pivot = 1;
        for (int64_t s = 0; s <= t; s++) {
          int64_t j = forward ? s : n - 1 - s;
          /* the coefficient of unknown j in equation i */
          bool swap = transposed == left;
          zcplx e = load_c(a, matrix * n * n + (swap ? j * n + i : i * n + j));
          if (conjugated) e = conj(e);
          if (j == i) pivot = e;
          else sum -= e * x[j];
        }
        x[i] = instr->u.triangular.unit_diagonal ? sum : sum / pivot;
        store_c(result, at, x[i]);
      }
    }
    WEFT_TRY(eval_check_deadline(ctx));
  }
  return NULL;
}

/* ---- fft --------------------------------------------------------------------------------------------------------- */

typedef long double complex wide;

/* out[0..n) = the transform of in[0], in[step], ...; roots[k] = exp(+-2 pi i k / total) with total = n * root_step.
 * Cooley-Tukey by the least prime factor; depth at most log2 n. */
static void transform(wide *out, const wide *in, int64_t n, int64_t step, const wide *roots, int64_t root_step,
                      wide *spare)
{
  int64_t p = 2, m;

  if (n == 1) {
    out[0] = in[0];
    return;
  }
  while (n % p != 0 && p * p <= n) p++;
  if (n % p != 0) p = n;
  m = n / p;
  for (int64_t r = 0; r < p; r++)
    transform(spare + r * m, in + r * step, m, step * p, roots, root_step * p, out + r * m);
  for (int64_t k = 0; k < n; k++) {
    wide sum = 0;
    for (int64_t r = 0; r < p; r++) sum += spare[r * m + k % m] * roots[r * k % n * root_step];
    out[k] = sum;
  }
}

/* Transforms every line along dimension d of a row-major array. */
static weft_status *transform_dim(eval_ctx *ctx, wide *data, int rank, const int64_t *dims, int d, bool inverse)
{
  int64_t n = dims[d], inner = 1, count = 1;
  wide *roots = WEFT_ARENA_ARRAY(ctx->arena, wide, 4 * n), *line = roots + n, *result = line + n, *spare = result + n;

  WEFT_TRY_ALLOC(roots);
  for (int i = 0; i < rank; i++) count *= dims[i];
  for (int i = d + 1; i < rank; i++) inner *= dims[i];
  for (int64_t k = 0; k < n; k++) {
    long double angle = 2 * acosl(-1) * k / n;
    roots[k] = CMPLXL(cosl(angle), inverse ? sinl(angle) : -sinl(angle));
  }
  for (int64_t l = 0; n > 0 && l < count / n; l++) {
    wide *start = data + l / inner * n * inner + l % inner;
    for (int64_t k = 0; k < n; k++) line[k] = start[k * inner];
    transform(result, line, n, 1, roots, 1, spare);
    for (int64_t k = 0; k < n; k++) start[k * inner] = inverse ? result[k] / n : result[k];
    WEFT_TRY(eval_check_deadline(ctx));
  }
  return NULL;
}

/* Copies rows between arrays with different last dimensions: as many elements of each row as both have. */
static void copy_rows(wide *to, int64_t to_row, const wide *from, int64_t from_row, int64_t rows)
{
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k = 0; k < WEFT_MIN(to_row, from_row); k++) to[r * to_row + k] = from[r * from_row + k];
}

static weft_status *transform_all(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *x,
                                  const hlo_shape *out_shape, hlo_literal **out)
{
  const hlo_shape *in_shape = x->shape;
  hlo_fft_type type = instr->u.fft_type;
  bool inverse = type == HLO_FFT_IFFT || type == HLO_FFT_IRFFT;
  int rank = in_shape->rank, transformed = instr->dims.count;
  int64_t dims[HLO_MAX_RANK], in_row = in_shape->dims[rank - 1], out_row = out_shape->dims[rank - 1];
  int64_t full_row = instr->dims.v[transformed - 1], rows = 1;
  hlo_literal *result;

  WEFT_TRY(eval_result(ctx, out_shape, &result));
  *out = result;
  for (int d = 0; d < rank - 1; d++) rows *= dims[d] = in_shape->dims[d];
  if (rows * in_row == 0 || rows * out_row == 0) return NULL;
  wide *in = WEFT_ARENA_ARRAY(ctx->arena, wide, rows * in_row);
  wide *full = WEFT_ARENA_ARRAY(ctx->arena, wide, rows * full_row); /* zero behind the elements of the input */
  WEFT_TRY_ALLOC(in && full);
  for (int64_t k = 0; k < rows * in_row; k++) {
    zcplx z = load_c(x, k);
    in[k] = CMPLXL(creal(z), cimag(z));
  }
  /* the outer dimensions first: they are transformed on the half spectrum where there is one */
  dims[rank - 1] = in_row;
  for (int d = rank - transformed; d < rank - 1; d++) WEFT_TRY(transform_dim(ctx, in, rank, dims, d, inverse));
  copy_rows(full, full_row, in, in_row, rows);
  /* the other half is the conjugate mirror image; of elements that must be real the real part is taken */
  if (type == HLO_FFT_IRFFT)
    for (int64_t r = 0; r < rows; r++) {
      wide *row = full + r * full_row;
      row[0] = creall(row[0]);
      if (full_row % 2 == 0) row[full_row / 2] = creall(row[full_row / 2]);
      for (int64_t k = full_row / 2 + 1; k < full_row; k++) row[k] = conjl(row[full_row - k]);
    }
  dims[rank - 1] = full_row;
  WEFT_TRY(transform_dim(ctx, full, rank, dims, rank - 1, inverse));
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k = 0; k < out_row; k++) store_c(result, r * out_row + k, (zcplx)full[r * full_row + k]);
  return NULL;
}

/* x with the dimensions of `shape`: cut off, or filled up with zeros. */
static weft_status *resized(eval_ctx *ctx, const hlo_literal *x, const hlo_shape *shape, hlo_literal **out)
{
  int64_t common[HLO_MAX_RANK], at[HLO_MAX_RANK] = {0};

  WEFT_TRY(eval_result(ctx, shape, out));
  memset((*out)->data, 0, (size_t)hlo_shape_bytes(shape));
  for (int d = 0; d < shape->rank; d++)
    if ((common[d] = WEFT_MIN(shape->dims[d], x->shape->dims[d])) == 0) return NULL;
  do store_c(*out, eval_offset(shape->rank, shape->dims, at), load_c(x, eval_offset(shape->rank, x->shape->dims, at)));
  while (eval_next(shape->rank, common, at));
  return NULL;
}

weft_status *eval_fft(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                      const hlo_literal **out)
{
  bool is_square = instr->u.fft_type == HLO_FFT_FFT || instr->u.fft_type == HLO_FFT_IFFT, fits = true;
  hlo_shape *lengths = hlo_shape_copy(ctx->arena, operands[0]->shape);
  int64_t *dims =
    weft_arena_memdup(ctx->arena, lengths ? lengths->dims : NULL, sizeof *dims * (size_t)operands[0]->shape->rank);
  hlo_literal *x, *y;

  WEFT_TRY_ALLOC(lengths && dims);
  for (int i = 0, d = lengths->rank - instr->dims.count; is_square && i < instr->dims.count; i++, d++) {
    fits &= dims[d] == instr->dims.v[i];
    dims[d] = instr->dims.v[i];
  }
  if (fits) {
    WEFT_TRY(transform_all(ctx, instr, operands[0], instr->shape, &y));
  } else {
    lengths->dims = dims;
    WEFT_TRY(resized(ctx, operands[0], lengths, &x));
    WEFT_TRY(transform_all(ctx, instr, x, lengths, &y));
    WEFT_TRY(resized(ctx, y, instr->shape, &y));
  }
  *out = y;
  return NULL;
}

/* ---- batch normalisation ----------------------------------------------------------------------------------------- */

/* Finds the feature of element i of an array, and has the number of elements of each feature. */
typedef struct features {
  int64_t count, inner, elems, per_feature;
} features;

static features features_of(const hlo_shape *shape, int64_t dim)
{
  features f = {.count = shape->dims[dim], .inner = 1, .elems = hlo_shape_elems(shape)};

  for (int d = (int)dim + 1; d < shape->rank; d++) f.inner *= shape->dims[d];
  f.per_feature = f.count ? f.elems / f.count : 0;
  return f;
}
static int64_t feature_of(const features *f, int64_t i) { return i / f->inner % f->count; }
static double get(const hlo_literal *lit, int64_t i) { return hlo_literal_get_f64(lit, i); }

/* y = (x - mean) / sqrt(variance + epsilon) * scale + offset. */
static void normalise(const hlo_instr *instr, const features *f, const hlo_literal *const *operands, const double *mean,
                      const double *variance, hlo_literal *y)
{
  for (int64_t i = 0; i < f->elems; i++) {
    int64_t c = feature_of(f, i);
    double x = (get(operands[0], i) - mean[c]) / sqrt(variance[c] + instr->u.batch_norm.epsilon);
    hlo_literal_set_f64(y, i, x * get(operands[1], c) + get(operands[2], c), 0);
  }
}

weft_status *eval_batch_norm_inference(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                       const hlo_literal **out)
{
  features f = features_of(operands[0]->shape, instr->u.batch_norm.feature_index);
  double *mean = WEFT_ARENA_ARRAY(ctx->arena, double, 2 * f.count), *variance = mean + f.count;
  hlo_literal *y;

  WEFT_TRY_ALLOC(mean);
  for (int64_t c = 0; c < f.count; c++) {
    mean[c] = get(operands[3], c);
    variance[c] = get(operands[4], c);
  }
  WEFT_TRY(eval_result(ctx, instr->shape, &y));
  normalise(instr, &f, operands, mean, variance, y);
  *out = y;
  return NULL;
}

/* Gives (y, mean, variance).  The variance is divided by n, not n - 1. */
weft_status *eval_batch_norm_training(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                      const hlo_literal **out)
{
  features f = features_of(operands[0]->shape, instr->u.batch_norm.feature_index);
  double *mean = WEFT_ARENA_ARRAY(ctx->arena, double, 2 * f.count), *variance = mean + f.count;
  const hlo_literal **elements = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, 3);
  hlo_literal *made[3];

  WEFT_TRY_ALLOC(mean && elements);
  for (int i = 0; i < 3; i++) {
    WEFT_TRY(eval_result(ctx, instr->shape->elements[i], &made[i]));
    elements[i] = made[i];
  }
  for (int64_t i = 0; i < f.elems; i++) mean[feature_of(&f, i)] += get(operands[0], i) / (double)f.per_feature;
  for (int64_t i = 0; i < f.elems; i++) {
    double d = get(operands[0], i) - mean[feature_of(&f, i)];
    variance[feature_of(&f, i)] += d * d / (double)f.per_feature;
  }
  normalise(instr, &f, operands, mean, variance, made[0]);
  for (int64_t c = 0; c < f.count; c++) {
    hlo_literal_set_f64(made[1], c, mean[c], 0);
    hlo_literal_set_f64(made[2], c, variance[c], 0);
  }
  return eval_result_tuple(ctx, instr->shape, elements, out);
}

/* Takes (x, scale, mean, variance, gy), gives (gx, gscale, goffset). */
weft_status *eval_batch_norm_grad(eval_ctx *ctx, const hlo_instr *instr, const hlo_literal *const *operands,
                                  const hlo_literal **out)
{
  const hlo_literal *x = operands[0], *scale = operands[1], *mean = operands[2], *variance = operands[3];
  const hlo_literal *gy = operands[4];
  features f = features_of(x->shape, instr->u.batch_norm.feature_index);
  double *sum_gy = WEFT_ARENA_ARRAY(ctx->arena, double, 2 * f.count), *sum_gy_dx = sum_gy + f.count;
  const hlo_literal **elements = WEFT_ARENA_ARRAY(ctx->arena, const hlo_literal *, 3);
  double n = (double)f.per_feature, epsilon = instr->u.batch_norm.epsilon;
  hlo_literal *made[3];

  WEFT_TRY_ALLOC(sum_gy && elements);
  for (int i = 0; i < 3; i++) {
    WEFT_TRY(eval_result(ctx, instr->shape->elements[i], &made[i]));
    elements[i] = made[i];
  }
  for (int64_t i = 0; i < f.elems; i++) {
    int64_t c = feature_of(&f, i);
    sum_gy[c] += get(gy, i);
    sum_gy_dx[c] += get(gy, i) * (get(x, i) - get(mean, c));
  }
  for (int64_t i = 0; i < f.elems; i++) {
    int64_t c = feature_of(&f, i);
    double v = get(variance, c) + epsilon;
    double g = n * get(gy, i) - sum_gy[c] - (get(x, i) - get(mean, c)) / v * sum_gy_dx[c];
    hlo_literal_set_f64(made[0], i, get(scale, c) / sqrt(v) * g / n, 0);
  }
  for (int64_t c = 0; c < f.count; c++) {
    hlo_literal_set_f64(made[1], c, sum_gy_dx[c] / sqrt(get(variance, c) + epsilon), 0);
    hlo_literal_set_f64(made[2], c, sum_gy[c], 0);
  }
  return eval_result_tuple(ctx, instr->shape, elements, out);
}
