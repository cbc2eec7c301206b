/* tests/gpu/solver_test.c -- JAX's cusolver custom calls on the emulated cuSOLVER: the arrays that a routine gives, put
 * together again by plain loops in f64, are the matrix that it was given. */
#include "library_device.h"

#include <complex.h>

#include "gpu/solver.h"
#include "hlo/text.h"
#include "passes/eval_compare.h"

static gpu_solver *solver;
static gpu_cublas *cublas;

/* A call on column-major arrays. `arrays`: operands, then results, in host memory after the call. */
typedef struct call {
  weft_arena arena;
  hlo_module *module;
  gpu_solve solve;
  int operands, count;
  hlo_literal *arrays[GPU_SOLVE_ARRAYS + 1];
} call;

static weft_status *init_call(call *c, const char *target, const char *operands, const char *results,
                              const char *config)
{
  char text[1000];
  gpu_routine routine;

  *c = (call){.module = NULL};
  weft_arena_init(&c->arena);
  snprintf(text, sizeof text,
           "HloModule m\n"
           "ENTRY e {\n"
           "%s\n"
           "  ROOT r = %s custom-call(%s), custom_call_target=\"%s\", "
           "api_version=API_VERSION_TYPED_FFI, backend_config={%s}\n"
           "}\n",
           operands, results,
           strstr(operands, "parameter(2)")   ? "a, b, c"
           : strstr(operands, "parameter(1)") ? "a, b"
                                              : "a",
           target, config);
  T_OK(hlo_parse(text, strlen(text), &c->module));
  T_TRUE(gpu_solve_find(target, &routine));
  const hlo_instr *instr = c->module->entry->root;
  for (int i = 0; i < instr->operand_count; i++)
    T_OK(hlo_literal_new(&c->arena, instr->operands[i]->shape, &c->arrays[c->count++]));
  c->operands = c->count;
  int leaves = hlo_shape_is_tuple(instr->shape) ? instr->shape->rank : 1;
  for (int i = 0; i < leaves; i++)
    T_OK(hlo_literal_new(&c->arena, hlo_shape_is_tuple(instr->shape) ? instr->shape->elements[i] : instr->shape,
                         &c->arrays[c->count++]));
  return gpu_solve_init(&c->solve, routine, instr);
}

static void free_call(call *c)
{
  hlo_module_free(c->module);
  weft_arena_fini(&c->arena);
}

/* Writes the addresses of the matrices in the results at `first` where the library finds them. */
static void put_addresses(const call *c, const wcu_ptr *first, wcu_ptr to)
{
  wcu_ptr addresses[8];
  int64_t count = c->solve.matrices;

  for (int k = 0; k < gpu_solve_lists(&c->solve); k++) {
    int64_t bytes = hlo_shape_bytes(c->arrays[c->operands + k]->shape);
    T_TRUE(count <= 8);
    for (int64_t i = 0; i < count; i++) addresses[i] = first[k] + (wcu_ptr)(i * (bytes / count));
    CU(cuMemcpyHtoD_v2(to + (wcu_ptr)(k * count) * sizeof *addresses, addresses, (size_t)count * sizeof *addresses));
  }
}

static void run_call(call *c)
{
  wcu_ptr at[GPU_SOLVE_ARRAYS + 1];

  T_OK(gpu_solve_measure(&c->solve, solver));
  for (int i = 0; i < c->count; i++)
    at[i] = literal_on_device(c->arrays[i == c->operands ? gpu_solve_overwritten(&c->solve) : i]);
  at[c->count] = on_device(NULL, c->solve.workspace_bytes);
  put_addresses(c, at + c->operands, at[c->count]);
  T_OK(gpu_solve_enqueue(&c->solve, solver, cublas, stream, at, at[c->count]));
  for (int i = c->operands; i < c->count; i++) c->arrays[i] = from_device(&c->arena, c->arrays[i]->shape, at[i]);
  free_device(c->count + 1, at);
}

/* Element (row, column) of matrix i of `rows` x `columns`, column-major. */
static double complex element(const hlo_literal *l, int64_t i, int64_t rows, int64_t columns, int64_t row,
                              int64_t column)
{
  int64_t at = (i * columns + column) * rows + row;
  return hlo_literal_get_f64(l, at) + I * hlo_literal_get_imag(l, at);
}

static void set_element(hlo_literal *l, int64_t at, double complex v)
{
  hlo_literal_set_f64(l, at, creal(v), cimag(v));
}

static double complex random_value(weft_dtype type, uint64_t *seed)
{
  double re = (double)(next_random(seed) >> 11) * 0x1p-52 - 1, im = (double)(next_random(seed) >> 11) * 0x1p-52 - 1;
  return weft_dtype_is_complex(type) ? re + I * im : re;
}

static void fill_random(hlo_literal *l, uint64_t *seed)
{
  for (int64_t i = 0; i < hlo_shape_elems(l->shape); i++) set_element(l, i, random_value(l->shape->type, seed));
}

/* Hermitian matrices, with n added to the diagonal if they are to be positive. */
static void fill_hermitian(hlo_literal *l, int64_t matrices, int64_t n, bool positive, uint64_t *seed)
{
  for (int64_t i = 0; i < matrices; i++)
    for (int64_t c = 0; c < n; c++)
      for (int64_t r = c; r < n; r++) {
        double complex v = random_value(l->shape->type, seed);
        if (r == c) v = creal(v) + (positive ? (double)n + 2 : 0);
        set_element(l, (i * n + c) * n + r, v);
        set_element(l, (i * n + r) * n + c, conj(v));
      }
}

static void close_to(double complex got, double complex want, weft_dtype type, const char *what)
{
  double slack = weft_dtype_component(type) == WEFT_F64 ? 1e-11 : 5e-4;
  if (!(cabs(got - want) <= slack * fmax(1, cabs(want))))
    fail_msg("%s: got %g%+gi, want %g%+gi", what, creal(got), cimag(got), creal(want), cimag(want));
}

static const char *const types[] = {"f32", "f64", "c64", "c128"};
static const char *real_of(int type) { return type % 2 ? "f64" : "f32"; }

TEST(a_cholesky_factor_times_its_adjoint_is_the_matrix)
{
  uint64_t seed = 1;

  for (int round = 0; round < 8; round++) {
    const char *t = types[round % 4];
    char operands[100], results[100];
    bool lower = round / 4;
    const int64_t n = 7;
    call c;

    snprintf(operands, sizeof operands, "  a = %s[3,7,7] parameter(0)\n", t);
    snprintf(results, sizeof results, "(%s[3,7,7], s32[3])", t);
    T_OK(init_call(&c, "cusolver_potrf_ffi", operands, results, lower ? "lower = true" : "lower = false"));
    fill_hermitian(c.arrays[0], 3, n, true, &seed);
    run_call(&c);
    for (int64_t i = 0; i < 3; i++) {
      T_EQ_INT(hlo_literal_get_s64(c.arrays[2], i), 0);
      for (int64_t row = 0; row < n; row++)
        for (int64_t col = 0; col < n; col++) {
          double complex sum = 0;
          for (int64_t k = 0; k <= (row < col ? row : col); k++)
            sum += lower ? element(c.arrays[1], i, n, n, row, k) * conj(element(c.arrays[1], i, n, n, col, k))
                         : conj(element(c.arrays[1], i, n, n, k, row)) * element(c.arrays[1], i, n, n, k, col);
          close_to(sum, element(c.arrays[0], i, n, n, row, col), c.solve.type, "potrf");
        }
    }
    free_call(&c);
  }
}

TEST(a_matrix_that_is_not_positive_is_named_in_info)
{
  call c;

  T_OK(init_call(&c, "cusolver_potrf_ffi", "  a = f32[2,2] parameter(0)\n", "(f32[2,2], s32[])", "lower = true"));
  ((float *)c.arrays[0]->data)[0] = 1;
  ((float *)c.arrays[0]->data)[3] = -1;
  run_call(&c);
  T_EQ_INT(hlo_literal_get_s64(c.arrays[2], 0), 2);
  free_call(&c);
}

TEST(lu_with_its_pivots_is_the_matrix)
{
  static const int64_t sizes[][2] = {{6, 4}, {4, 6}, {5, 5}};
  uint64_t seed = 2;

  for (int round = 0; round < 24; round++) {
    int64_t m = sizes[round % 3][0], n = sizes[round % 3][1], least = WEFT_MIN(m, n);
    const char *t = types[round / 3 % 4];
    char operands[100], results[100];
    call c;

    snprintf(operands, sizeof operands, "  a = %s[2,%d,%d] parameter(0)\n", t, (int)m, (int)n);
    snprintf(results, sizeof results, "(%s[2,%d,%d], s32[2,%d], s32[2])", t, (int)m, (int)n, (int)least);
    T_OK(init_call(&c, "cusolver_getrf_ffi", operands, results, ""));
    T_EQ_INT(gpu_solve_wants_cublas(&c.solve), m == n);
    if (round / 12) c.solve.batched = false; /* one matrix after the other */
    fill_random(c.arrays[0], &seed);
    run_call(&c);
    for (int64_t i = 0; i < 2; i++) {
      int64_t order[8];
      T_EQ_INT(hlo_literal_get_s64(c.arrays[3], i), 0);
      for (int64_t r = 0; r < m; r++) order[r] = r;
      for (int64_t r = 0; r < least; r++) {
        int64_t other = hlo_literal_get_s64(c.arrays[2], i * least + r) - 1, swap = order[r];
        T_TRUE(other >= r && other < m);
        order[r] = order[other], order[other] = swap;
      }
      for (int64_t row = 0; row < m; row++)
        for (int64_t col = 0; col < n; col++) {
          double complex sum = 0;
          for (int64_t k = 0; k < least && k <= row && k <= col; k++)
            sum += (k == row ? 1 : element(c.arrays[1], i, m, n, row, k)) * element(c.arrays[1], i, m, n, k, col);
          close_to(sum, element(c.arrays[0], i, m, n, order[row], col), c.solve.type, "getrf");
        }
    }
    free_call(&c);
  }
}

TEST(q_has_orthonormal_columns_and_q_times_r_is_the_matrix)
{
  uint64_t seed = 3;
  const int64_t m = 6, n = 4;

  for (int round = 0; round < 8; round++) {
    const char *t = types[round % 4];
    char operands[100], results[100];
    call qr, q;

    snprintf(operands, sizeof operands, "  a = %s[2,6,4] parameter(0)\n", t);
    snprintf(results, sizeof results, "(%s[2,6,4], %s[2,4])", t, t);
    T_OK(init_call(&qr, "cusolver_geqrf_ffi", operands, results, ""));
    T_TRUE(gpu_solve_wants_cublas(&qr.solve));
    if (round / 4) qr.solve.batched = false;
    fill_random(qr.arrays[0], &seed);
    run_call(&qr);
    snprintf(operands, sizeof operands,
             "  a = %s[2,6,4] parameter(0)\n"
             "  b = %s[2,4] parameter(1)\n",
             t, t);
    snprintf(results, sizeof results, "%s[2,6,4]", t);
    T_OK(init_call(&q, "cusolver_orgqr_ffi", operands, results, ""));
    q.arrays[0] = qr.arrays[1];
    q.arrays[1] = qr.arrays[2];
    run_call(&q);
    for (int64_t i = 0; i < 2; i++)
      for (int64_t col = 0; col < n; col++) {
        for (int64_t row = 0; row < m; row++) {
          double complex sum = 0;
          for (int64_t k = 0; k <= col; k++)
            sum += element(q.arrays[2], i, m, n, row, k) * element(qr.arrays[1], i, m, n, k, col);
          close_to(sum, element(qr.arrays[0], i, m, n, row, col), q.solve.type, "q r");
        }
        for (int64_t other = 0; other < n; other++) {
          double complex sum = 0;
          for (int64_t k = 0; k < m; k++)
            sum += conj(element(q.arrays[2], i, m, n, k, other)) * element(q.arrays[2], i, m, n, k, col);
          close_to(sum, other == col, q.solve.type, "q' q");
        }
      }
    free_call(&q);
    free_call(&qr);
  }
}

TEST(eigenvectors_and_ascending_eigenvalues_are_the_matrix)
{
  uint64_t seed = 4;
  const int64_t n = 5;

  for (int round = 0; round < 8; round++) {
    const char *t = types[round % 4];
    char operands[100], results[100];
    call c;

    snprintf(operands, sizeof operands, "  a = %s[2,5,5] parameter(0)\n", t);
    snprintf(results, sizeof results, "(%s[2,5,5], %s[2,5], s32[2])", t, real_of(round % 4));
    T_OK(init_call(&c, "cusolver_syevd_ffi", operands, results,
                   round / 4 ? "lower = true, algorithm = 0 : ui8" : "lower = false, algorithm = 1 : ui8"));
    fill_hermitian(c.arrays[0], 2, n, false, &seed);
    run_call(&c);
    for (int64_t i = 0; i < 2; i++) {
      for (int64_t k = 1; k < n; k++)
        T_TRUE(hlo_literal_get_f64(c.arrays[2], i * n + k) >= hlo_literal_get_f64(c.arrays[2], i * n + k - 1));
      for (int64_t row = 0; row < n; row++)
        for (int64_t col = 0; col < n; col++) {
          double complex sum = 0;
          for (int64_t k = 0; k < n; k++)
            sum += element(c.arrays[1], i, n, n, row, k) * hlo_literal_get_f64(c.arrays[2], i * n + k) *
                   conj(element(c.arrays[1], i, n, n, col, k));
          close_to(sum, element(c.arrays[0], i, n, n, row, col), c.solve.type, "syevd");
        }
    }
    free_call(&c);
  }
}

TEST(singular_vectors_and_descending_values_are_the_matrix)
{
  static const int64_t sizes[][2] = {{6, 4}, {4, 6}};
  uint64_t seed = 5;

  for (int round = 0; round < 32; round++) {
    int64_t m = sizes[round % 2][0], n = sizes[round % 2][1], least = 4;
    bool full = round / 2 % 2;
    int type = round / 4 % 4;
    bool polar = round / 16;
    int64_t u = full ? m : least, v = full ? n : least;
    char operands[100], results[200];
    call c;

    snprintf(operands, sizeof operands, "  a = %s[2,%d,%d] parameter(0)\n", types[type], (int)m, (int)n);
    snprintf(results, sizeof results, "(%s[2,%d,%d], %s[2,%d], %s[2,%d,%d], %s[2,%d,%d], s32[2])", types[type], (int)m,
             (int)n, real_of(type), (int)least, types[type], (int)m, (int)u, types[type], (int)n, (int)v);
    T_OK(init_call(&c, polar ? "cusolver_gesvdp_ffi" : "cusolver_gesvdj_ffi", operands, results,
                   full ? "full_matrices = true, compute_uv = true" : "full_matrices = false, compute_uv = true"));
    T_EQ_INT(c.solve.batched, !polar && full);
    fill_random(c.arrays[0], &seed);
    run_call(&c);
    for (int64_t i = 0; i < 2; i++) {
      for (int64_t k = 1; k < least; k++)
        T_TRUE(hlo_literal_get_f64(c.arrays[2], i * least + k) <= hlo_literal_get_f64(c.arrays[2], i * least + k - 1));
      for (int64_t row = 0; row < m; row++)
        for (int64_t col = 0; col < n; col++) {
          double complex sum = 0;
          for (int64_t k = 0; k < least; k++)
            sum += element(c.arrays[3], i, m, u, row, k) * hlo_literal_get_f64(c.arrays[2], i * least + k) *
                   conj(element(c.arrays[4], i, n, v, col, k));
          close_to(sum, element(c.arrays[0], i, m, n, row, col), c.solve.type, "gesvdj");
        }
    }
    free_call(&c);
  }
}

/* A transposed call has row-major arrays: its u is the adjoint of the v of the matrix that they are. */
TEST(singular_vectors_by_qr_are_the_matrix)
{
  uint64_t seed = 6;

  for (int round = 0; round < 16; round++) {
    const int64_t m = 6, n = 4;
    bool full = round % 2, transposed = round / 2 % 2;
    int type = round / 4;
    int64_t u = full ? m : n;
    char operands[100], results[200], config[100];
    call c;

    snprintf(operands, sizeof operands, "  a = %s[2,%d,%d] parameter(0)\n", types[type], transposed ? 4 : 6,
             transposed ? 6 : 4);
    snprintf(results, sizeof results, "(%s[2,6,4], %s[2,4], %s[2,6,%d], %s[2,4,4], s32[2])", types[type], real_of(type),
             types[type], (int)u, types[type]);
    snprintf(config, sizeof config, "full_matrices = %s, compute_uv = true, transposed = %s", full ? "true" : "false",
             transposed ? "true" : "false");
    T_OK(init_call(&c, "cusolver_gesvd_ffi", operands, results, config));
    fill_random(c.arrays[0], &seed);
    run_call(&c);
    for (int64_t i = 0; i < 2; i++)
      for (int64_t row = 0; row < m; row++)
        for (int64_t col = 0; col < n; col++) {
          double complex sum = 0;
          for (int64_t k = 0; k < n; k++)
            sum += element(c.arrays[3], i, m, u, row, k) * hlo_literal_get_f64(c.arrays[2], i * n + k) *
                   element(c.arrays[4], i, n, n, k, col);
          close_to(sum, element(c.arrays[0], i, m, n, row, col), c.solve.type, "gesvd");
        }
    free_call(&c);
  }
}

/* q by orgqr, times c, is what ormqr gives. */
TEST(a_product_by_reflectors_is_the_product_by_q)
{
  uint64_t seed = 7;

  for (int round = 0; round < 16; round++) {
    bool left = round % 2, adjoint = round / 2 % 2;
    const char *t = types[round / 4];
    const int64_t order = 5, other = 3, k = 5, m = left ? order : other, n = left ? other : order;
    char operands[200], results[100], config[100];
    call f, q, p;

    snprintf(operands, sizeof operands, "  a = %s[2,5,5] parameter(0)\n", t);
    snprintf(results, sizeof results, "(%s[2,5,5], %s[2,5])", t, t);
    T_OK(init_call(&f, "cusolver_geqrf_ffi", operands, results, ""));
    fill_random(f.arrays[0], &seed);
    run_call(&f);
    snprintf(operands, sizeof operands,
             "  a = %s[2,5,5] parameter(0)\n"
             "  b = %s[2,5] parameter(1)\n",
             t, t);
    snprintf(results, sizeof results, "%s[2,5,5]", t);
    T_OK(init_call(&q, "cusolver_orgqr_ffi", operands, results, ""));
    for (int i = 0; i < 2; i++) q.arrays[i] = f.arrays[1 + i];
    run_call(&q);
    snprintf(operands, sizeof operands,
             "  a = %s[2,5,5] parameter(0)\n"
             "  b = %s[2,5] parameter(1)\n"
             "  c = %s[2,%d,%d] parameter(2)\n",
             t, t, t, (int)m, (int)n);
    snprintf(results, sizeof results, "%s[2,%d,%d]", t, (int)m, (int)n);
    snprintf(config, sizeof config, "left = %s, transpose = %s", left ? "true" : "false", adjoint ? "true" : "false");
    T_OK(init_call(&p, "cusolver_ormqr_ffi", operands, results, config));
    for (int i = 0; i < 2; i++) p.arrays[i] = f.arrays[1 + i];
    fill_random(p.arrays[2], &seed);
    run_call(&p);
    for (int64_t i = 0; i < 2; i++)
      for (int64_t row = 0; row < m; row++)
        for (int64_t col = 0; col < n; col++) {
          double complex sum = 0;
          for (int64_t l = 0; l < k; l++) {
            int64_t x = left ? row : l, y = left ? l : col;
            double complex e = adjoint ? conj(element(q.arrays[2], i, k, k, y, x))
                                       : element(q.arrays[2], i, k, k, x, y);
            sum += left ? e * element(p.arrays[2], i, m, n, l, col) : element(p.arrays[2], i, m, n, row, l) * e;
          }
          close_to(element(p.arrays[3], i, m, n, row, col), sum, p.solve.type, "ormqr");
        }
    free_call(&f);
    free_call(&q);
    free_call(&p);
  }
}

/* A similar matrix has the same trace, and the same sum of squares. */
TEST(three_diagonals_have_the_trace_and_the_norm_of_the_matrix)
{
  uint64_t seed = 8;
  const int64_t n = 6;

  for (int round = 0; round < 8; round++) {
    const char *t = types[round % 4], *real = real_of(round % 4);
    char operands[100], results[200];
    call c;

    snprintf(operands, sizeof operands, "  a = %s[2,6,6] parameter(0)\n", t);
    snprintf(results, sizeof results, "(%s[2,6,6], %s[2,6], %s[2,5], %s[2,5], s32[2])", t, real, real, t);
    T_OK(init_call(&c, "cusolver_sytrd_ffi", operands, results, round / 4 ? "lower = true" : "lower = false"));
    fill_hermitian(c.arrays[0], 2, n, false, &seed);
    run_call(&c);
    for (int64_t i = 0; i < 2; i++) {
      double complex trace = 0, squares = 0, got_trace = 0, got_squares = 0;
      for (int64_t row = 0; row < n; row++) {
        double d = hlo_literal_get_f64(c.arrays[2], i * n + row);
        double e = row + 1 < n ? hlo_literal_get_f64(c.arrays[3], i * (n - 1) + row) : 0;
        trace += element(c.arrays[0], i, n, n, row, row);
        got_trace += d;
        got_squares += d * d + 2 * e * e;
        for (int64_t col = 0; col < n; col++) {
          double complex a = element(c.arrays[0], i, n, n, row, col);
          squares += a * conj(a);
        }
      }
      close_to(got_trace, trace, c.solve.type, "sytrd");
      close_to(got_squares, squares, c.solve.type, "sytrd");
      T_EQ_INT((int)hlo_literal_get_f64(c.arrays[5], i), 0);
    }
    free_call(&c);
  }
}

TEST(calls_with_wrong_arrays_are_refused)
{
  static const struct { const char *target, *operands, *results; weft_code code; } cases[] = {
    {"cusolver_potrf_ffi", "  a = f32[2,3] parameter(0)\n", "(f32[2,3], s32[])", WEFT_INVALID_ARGUMENT},
    {"cusolver_potrf_ffi", "  a = f16[3,3] parameter(0)\n", "(f16[3,3], s32[])", WEFT_UNIMPLEMENTED},
    {"cusolver_potrf_ffi", "  a = f32[4,3,3] parameter(0)\n", "(f32[4,3,3], s32[3])", WEFT_INVALID_ARGUMENT},
    {"cusolver_getrf_ffi", "  a = f32[4,3] parameter(0)\n", "(f32[4,3], s32[4], s32[])", WEFT_INVALID_ARGUMENT},
    {"cusolver_potrf_ffi", "  a = f32[3,3] parameter(0)\n", "(s8[3,3], s32[])", WEFT_INVALID_ARGUMENT},
    {"cusolver_getrf_ffi", "  a = f32[4,3] parameter(0)\n", "(f32[4,3], s8[3], s32[])", WEFT_INVALID_ARGUMENT},
    {"cusolver_syevd_ffi", "  a = f64[3,3] parameter(0)\n", "(f64[3,3], f32[3], s32[])", WEFT_INVALID_ARGUMENT},
    {"cusolver_orgqr_ffi", "  a = f32[4,3] parameter(0)\n", "f32[4,3]", WEFT_INVALID_ARGUMENT},
    {"cusolver_syevd_ffi", "  a = f32[3] parameter(0)\n", "(f32[3], f32[3], s32[])", WEFT_INVALID_ARGUMENT},
    {"cusolver_gesvdj_ffi", "  a = f32[4,3] parameter(0)\n", "(f32[4,3], f32[3], f32[4,4], f32[3,3], s32[])", WEFT_INVALID_ARGUMENT}};
  gpu_routine routine;
  call c;

  for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
    T_CODE(init_call(&c, cases[i].target, cases[i].operands, cases[i].results, ""), cases[i].code);
    free_call(&c);
  }
  T_TRUE(!gpu_solve_find("cusolver_unknown_ffi", &routine));
}

static int set_up(void **state)
{
  (void)state;
  open_device();
  T_OK(gpu_solver_new(&solver));
  T_OK(gpu_cublas_new(&cublas));
  return 0;
}

static int tear_down(void **state)
{
  (void)state;
  gpu_cublas_free(cublas);
  gpu_solver_free(solver);
  close_device();
  return 0;
}

int main(void)
{
  const struct CMUnitTest units[] = {
    UNIT(a_cholesky_factor_times_its_adjoint_is_the_matrix), UNIT(a_matrix_that_is_not_positive_is_named_in_info),
    UNIT(lu_with_its_pivots_is_the_matrix), UNIT(q_has_orthonormal_columns_and_q_times_r_is_the_matrix),
    UNIT(eigenvectors_and_ascending_eigenvalues_are_the_matrix),
    UNIT(singular_vectors_and_descending_values_are_the_matrix), UNIT(singular_vectors_by_qr_are_the_matrix),
    UNIT(a_product_by_reflectors_is_the_product_by_q), UNIT(three_diagonals_have_the_trace_and_the_norm_of_the_matrix),
    UNIT(calls_with_wrong_arrays_are_refused)};
  return cmocka_run_group_tests(units, set_up, tear_down);
}
