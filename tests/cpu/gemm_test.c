/* tests/cpu/gemm_test.c -- Products of matrices against exact sums: every small size, every order of the operands, both
 * widths of vectors; products of integers. */
#include "test.h"

#include <math.h>

#include "codegen/model/processor.h"
#include "cpu/dot.h"
#include "cpu/gemm_block.h"
#include "cpu/gemm_dense.h"
#include "cpu/gemm_few.h"
#include "cpu/gemm_pairs.h"
#include "cpu/gemm_lanes.h"
#include "cpu/gemm_vector.h"

enum { SIDE = 40, DEPTH = 600, LEAD = 43, GUARD = 3 };

/* Whole numbers, so that sums are exact in any order. */
static double left_at(int64_t i, int64_t l) { return (double)((i * 31 + l * 17) % 13 - 6); }
static double right_at(int64_t l, int64_t j) { return (double)((l * 29 + j * 23) % 11 - 5); }

static double want[SIDE][SIDE];

static void sum_up(int64_t k)
{
  memset(want, 0, sizeof want);
  for (int64_t l = 0; l < k; l++)
    for (int64_t i = 0; i < SIDE; i++)
      for (int64_t j = 0; j < SIDE; j++) want[i][j] += left_at(i, l) * right_at(l, j);
}

static void put(weft_dtype type, void *to, int64_t at, double x)
{
  if (type == WEFT_F32) ((float *)to)[at] = (float)x;
  else ((double *)to)[at] = x;
}
static double get(weft_dtype type, const void *from, int64_t at)
{
  return type == WEFT_F32 ? (double)((const float *)from)[at] : ((const double *)from)[at];
}

/* An operand of [SIDE, k] with steps `across` and `along`, in memory that ends with its last element. */
static void *operand(weft_dtype type, int64_t k, int64_t across, int64_t along, bool is_right)
{
  void *data = malloc(weft_dtype_bytes(type) * (size_t)((SIDE - 1) * across + (k - 1) * along + 1));

  T_TRUE(data);
  for (int64_t i = 0; i < SIDE; i++)
    for (int64_t l = 0; l < k; l++) put(type, data, i * across + l * along, is_right ? right_at(l, i) : left_at(i, l));
  return data;
}

static void check_result(const cpu_gemm *g, const void *c, const char *how)
{
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->c_row; j++) {
      double got = get(g->c_type, c, i * g->c_row + j), expected = j < g->n ? want[i][j] : -99;
      if (got != expected)
        fail_msg("%s %s, %lld x %lld x %lld, steps %lld %lld, %lld %lld: [%lld, %lld] is %g, not %g", how,
                 weft_dtype_name(g->c_type), (long long)g->m, (long long)g->n, (long long)g->k, (long long)g->a_row,
                 (long long)g->a_col, (long long)g->b_row, (long long)g->b_col, (long long)i, (long long)j, got,
                 expected);
    }
}

/* The packed form of b gives the same bits as b.  c: the product by b. */
static void check_packed(const cpu_gemm *g, const void *a, const void *b, const void *c, void *scratch)
{
  size_t bytes = (size_t)(g->m * g->c_row) * weft_dtype_bytes(g->c_type);
  int64_t form_bytes = cpu_gemm_packed_bytes(g);

  if (form_bytes == 0) return;
  char *form = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(form_bytes, 64)), *again = malloc(bytes);
  T_TRUE(form && again);
  memset(form, 0xa5, (size_t)form_bytes);
  memcpy(again, c, bytes); /* what lies between the rows of c */
  for (int64_t i = 0; i < g->m; i++)
    memset(again + (size_t)(i * g->c_row) * weft_dtype_bytes(g->c_type), 0x5a,
           (size_t)g->n * weft_dtype_bytes(g->c_type));
  for (int64_t p = 0; p * CPU_PACK_COLUMNS < g->n; p++) cpu_gemm_pack(g, p, b, form);
  for (int64_t t = 0; t < g->tiles; t++) cpu_gemm_tile(g, t, a, b, form, again, scratch);
  if (memcmp(again, c, bytes) != 0)
    fail_msg("%s packed, %lld x %lld x %lld, steps %lld %lld, %lld %lld: other bits", weft_dtype_name(g->b_type),
             (long long)g->m, (long long)g->n, (long long)g->k, (long long)g->a_row, (long long)g->a_col,
             (long long)g->b_row, (long long)g->b_col);
  free(form);
  free(again);
}

/* The same for a product whose plan the test has made for the kernel `gemm_lanes`. */
static void check_lanes_packed(cpu_gemm g, const void *a, const void *b, const void *c, void *scratch)
{
  g.kind = CPU_GEMM_LANES;
  g.tiles_n = (g.n + g.tile_n - 1) / g.tile_n;
  g.tiles = (g.m + g.tile_m - 1) / g.tile_m * g.tiles_n;
  g.column_bytes = cpu_lanes_packed.column_bytes ? cpu_lanes_packed.column_bytes(&g) : 0;
  check_packed(&g, a, b, c, scratch);
}

/* c = a . b by the kernel that cpu_gemm_init chooses, also from the packed form. */
static void multiply_chosen(cpu_gemm *g, const void *a, const void *b, void *c)
{
  cpu_gemm_init(g);
  void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g->scratch_bytes, 64) + 64);
  T_TRUE(scratch && g->kind != CPU_GEMM_NONE);
  for (int64_t t = 0; t < g->tiles; t++) cpu_gemm_tile(g, t, a, b, NULL, c, scratch);
  check_packed(g, a, b, c, scratch);
  free(scratch);
}

/* Tests the kernel that cpu_gemm_init chooses, and the packed kernel, which it does not choose for the smallest
 * products. */
static void check_product(cpu_gemm g, const void *a, const void *b, void *c, void *scratch, int64_t scratch_bytes)
{
  cpu_gemm dense = g;

  for (int64_t i = 0; i < g.m * g.c_row; i++) put(g.c_type, c, i, -99);
  cpu_gemm_init(&g);
  T_TRUE(g.kind != CPU_GEMM_NONE && g.scratch_bytes <= scratch_bytes);
  for (int64_t t = 0; t < g.tiles; t++) cpu_gemm_tile(&g, t, a, b, NULL, c, scratch);
  check_result(&g, c, "chosen");
  check_packed(&g, a, b, c, scratch);
  dense.m = dense.n = SIDE;
  if (!cpu_dense_fits(&dense)) return;
  dense.m = g.m;
  dense.n = g.n;
  for (int64_t i = 0; i < g.m * g.c_row; i++) put(g.c_type, c, i, -99);
  cpu_dense_plan(&dense);
  T_TRUE(dense.scratch_bytes <= scratch_bytes);
  cpu_dense_tile(&dense, g.m, g.n, a, b, c, scratch);
  check_result(&dense, c, cpu_dense_narrow ? "narrow" : "dense");
}

static void check_sizes(weft_dtype type, int64_t k, int order, void *c, void *scratch, int64_t scratch_bytes)
{
  static const int64_t sides[] = {1, 2, 7, 8, 13, 16, 17, 24, 31, 33, 40};
  /* rows dense, columns dense, neither */
  int64_t a_row = order % 3 == 0   ? k + GUARD
                  : order % 3 == 1 ? 1
                                   : 2 * k,
          a_col = order % 3 == 0   ? 1
                  : order % 3 == 1 ? LEAD
                                   : 2;
  int64_t b_row = order / 3 == 0   ? LEAD
                  : order / 3 == 1 ? 1
                                   : 2 * LEAD,
          b_col = order / 3 == 0   ? 1
                  : order / 3 == 1 ? k + GUARD
                                   : 2;
  void *a = operand(type, k, a_row, a_col, false), *b = operand(type, k, b_col, b_row, true);

  for (int64_t side = 1; side <= SIDE; side++)
    for (size_t s = 0; s < WEFT_COUNT(sides); s++)
      for (int swap = 0; swap < 2; swap++) {
        cpu_gemm g = {.a_type = type, .b_type = type, .c_type = type, .m = swap ? sides[s] : side, .n = swap ? side : sides[s],
                      .k = k, .a_row = a_row, .a_col = a_col, .b_row = b_row, .b_col = b_col, .via = WEFT_INVALID};
        g.c_row = g.n + GUARD;
        check_product(g, a, b, c, scratch, scratch_bytes);
      }
  free(a);
  free(b);
}

static void check_orders(bool narrow)
{
  static const int64_t depths[] = {1, 2, 9, 40};
  enum { SCRATCH = 1 << 20 };
  void *c = malloc(sizeof(double) * SIDE * (SIDE + GUARD)), *scratch = aligned_alloc(64, SCRATCH);

  T_TRUE(c && scratch);
  cpu_dense_narrow = cpu_vector_narrow = narrow;
  for (size_t d = 0; d < WEFT_COUNT(depths); d++) {
    sum_up(depths[d]);
    for (int order = 0; order < 9; order++)
      for (int wide = 0; wide < 2; wide++)
        check_sizes(wide ? WEFT_F64 : WEFT_F32, depths[d], order, c, scratch, SCRATCH);
  }
  cpu_dense_narrow = cpu_vector_narrow = false;
  free(c);
  free(scratch);
}

TEST(every_small_size_and_order_is_exact) { check_orders(false); }
TEST(so_it_is_with_vectors_of_256_bits) { check_orders(true); }

/* Several blocks of k, several tiles and threads; all values are whole numbers, as above. */
TEST(large_products_are_exact)
{
  static const struct { int64_t m, n, k; bool a_turned, b_turned; } cases[] = {
    {450, 70, 600, false, false}, {450, 70, 600, true, true}, {33, 1100, 513, false, true}, {61, 1100, 257, true, false},
    {1000, 17, 300, false, false}, {17, 1000, 300, true, true},
    {20, 4000, 0, false, false}};
  WEFT_AUTO(rt_pool) pool = NULL;

  T_OK(rt_pool_new(&(rt_pool_options){.threads = 3}, &pool));
  for (size_t n = 0; n < 4 * WEFT_COUNT(cases); n++) {
    int64_t rows = cases[n / 4].m, cols = cases[n / 4].n, k = cases[n / 4].k;
    bool a_turned = cases[n / 4].a_turned, b_turned = cases[n / 4].b_turned;
    weft_dtype type = n & 1 ? WEFT_F64 : WEFT_F32;
    int64_t a_dims[] = {a_turned ? k : rows, a_turned ? rows : k}, b_dims[] = {b_turned ? cols : k, b_turned ? k : cols};
    int64_t c_dims[] = {rows, cols}, a_sum = !a_turned, b_sum = b_turned;
    hlo_shape lhs = {.type = type, .rank = 2, .dims = a_dims}, rhs = {.type = type, .rank = 2, .dims = b_dims};
    hlo_shape out = {.type = type, .rank = 2, .dims = c_dims};
    hlo_dot_attrs attrs = {.lhs_contracting = {1, &a_sum}, .rhs_contracting = {1, &b_sum}};
    cpu_dot dot;
    void *a = malloc((size_t)(rows * k) * 8 + 1), *b = malloc((size_t)(cols * k) * 8 + 1),
         *c = malloc((size_t)(rows * cols) * 8);

    T_TRUE(a && b && c);
    cpu_dense_narrow = n & 2;
    for (int64_t i = 0; i < rows; i++)
      for (int64_t l = 0; l < k; l++) put(type, a, a_turned ? l * rows + i : i * k + l, left_at(i, l));
    for (int64_t j = 0; j < cols; j++)
      for (int64_t l = 0; l < k; l++) put(type, b, b_turned ? j * k + l : l * cols + j, right_at(l, j));
    T_OK(cpu_dot_init(&dot, &attrs, &lhs, &rhs, &out));
    T_OK(cpu_dot_run(&dot, pool, a, b, NULL, c, NULL));
    for (int64_t i = 0; i < rows; i += 1 + i % 7)
      for (int64_t j = 0; j < cols; j += 1 + j % 5) {
        double sum = 0;
        for (int64_t l = 0; l < k; l++) sum += left_at(i, l) * right_at(l, j);
        if (get(type, c, i * cols + j) != sum)
          fail_msg("case %zu: [%lld, %lld] is %g, not %g", n, (long long)i, (long long)j, get(type, c, i * cols + j),
                   sum);
      }
    free(a), free(b), free(c);
  }
  cpu_dense_narrow = false;
}

/* A NaN or an infinity reaches the results of its own row or column and no others, also where it is multiplied by a
 * zero, and next to the edges of the matrix. */
static void put_as(weft_dtype type, void *to, int64_t at, double x)
{
  bool is_integer = weft_dtype_is_integer(type);

  switch (weft_dtype_bytes(type)) {
  case 1: ((uint8_t *)to)[at] = is_integer ? (uint8_t)(int)x : (uint8_t)weft_float_encode(type, (float)x); break;
  case 2: ((uint16_t *)to)[at] = is_integer ? (uint16_t)(int)x : (uint16_t)weft_float_encode(type, (float)x); break;
  default: put(type, to, at, x);
  }
}

/* An element of a right operand that every type has. */
static double weight_at(weft_dtype type, int64_t l, int64_t j)
{
  return right_at(l, j) + (weft_dtype_is_integer(type) && weft_dtype_is_unsigned(type) ? 5 : 0);
}

/* A product by the kernel for few rows (`gemm_few`). The operands end where their memory ends. One row of B holds
 * infinities, if its type has one: the kernel must not multiply them by zeros with which it fills up rows. */
static void check_few(weft_dtype a_type, weft_dtype type, int64_t m, int64_t n, int64_t k, bool turned, bool a_turned)
{
  cpu_gemm g = {.a_type = a_type, .b_type = type, .c_type = WEFT_F32, .m = m, .n = n, .k = k, .c_row = n,
                .via = WEFT_INVALID, .compute = WEFT_F32, .a_row = a_turned ? 1 : k, .a_col = a_turned ? m : 1,
                .b_row = turned ? 1 : n, .b_col = turned ? k : 1};
  size_t bytes = weft_dtype_bytes(type);
  void *a = malloc(weft_dtype_bytes(a_type) * (size_t)(m * k)), *b = malloc(bytes * (size_t)(k * n));
  float *c = malloc(sizeof *c * (size_t)(m * n));
  bool has_inf = weft_dtype_is_float(type) && weft_dtype_float_format(type)->has_inf;

  T_TRUE(a && b && c);
  for (int64_t l = 0; l < k; l++) {
    for (int64_t i = 0; i < m; i++) put_as(a_type, a, i * g.a_row + l * g.a_col, left_at(i, l) + 7);
    for (int64_t j = 0; j < n; j++)
      put_as(type, b, l * g.b_row + j * g.b_col,
             has_inf && l == k - 1 && j % 5 == 0 ? INFINITY : weight_at(type, l, j));
  }
  cpu_few_plan(&g);
  void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g.scratch_bytes, 64));
  T_TRUE(scratch);
  for (int64_t at = 0; at < n; at += g.tile_n)
    cpu_few_tile(&g, m, WEFT_MIN(g.tile_n, n - at), a, (char *)b + at * g.b_col * (int64_t)bytes, (char *)(c + at),
                 scratch);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = has_inf && j % 5 == 0 ? INFINITY : 0;
      for (int64_t l = 0; l < k && !isinf(sum); l++) sum += (left_at(i, l) + 7) * weight_at(type, l, j);
      if ((double)c[i * n + j] != sum)
        fail_msg("%s, %lld x %lld x %lld, turned %d %d: [%lld, %lld] is %g, not %g", weft_dtype_name(type),
                 (long long)m, (long long)n, (long long)k, turned, a_turned, (long long)i, (long long)j,
                 (double)c[i * n + j], sum);
    }
  free(a);
  free(b);
  free(c);
  free(scratch);
}

/* ---- weights with zero points and scales ---- */

/* The operand of step s for element (l, j) of B: whole numbers, powers of two for factors. */
static double step_operand(const struct cpu_step *step, int s, int64_t group, int64_t j)
{
  int64_t at = (step->row ? group : 0) * 5 + (step->column ? j : 0) * 3 + s;

  return step->kind == CPU_STEP_MULTIPLY ? (at % 3 == 0 ? 0.5 : at % 3 == 1 ? 1 : 2) : (double)(at % 4);
}

static double made_weight(const cpu_affine *affine, weft_dtype type, int64_t l, int64_t j)
{
  double x = weight_at(type, l, j);

  for (int s = 0; s < affine->count; s++) {
    const struct cpu_step *step = &affine->steps[s];
    double y = step_operand(step, s, l / affine->group, j);
    x = step->kind == CPU_STEP_MULTIPLY ? x * y : step->kind == CPU_STEP_ADD ? x + y : x - y;
  }
  return x;
}

/* The operands end where their memory ends. `shape` of a step: 0: one number, 1: one a column, 2: one a group and
 * column, with neighbouring columns, 3: with neighbouring groups. */
static void check_affine(weft_dtype type, int64_t m, int64_t n, int64_t k, int64_t group, bool turned,
                         const cpu_step_kind *kinds, int count, int shapes)
{
  static const weft_dtype types[] = {WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F8E5M2};
  cpu_gemm g = {.a_type = WEFT_BF16, .b_type = type, .c_type = WEFT_F32, .m = m, .n = n, .k = k, .c_row = n,
                .via = WEFT_INVALID, .a_row = k, .a_col = 1, .b_row = turned ? 1 : n, .b_col = turned ? k : 1};
  cpu_affine affine = {.count = count, .group = group};
  size_t bytes = weft_dtype_bytes(type);
  void *a = malloc(2 * (size_t)(m * k)), *b = malloc(bytes * (size_t)(k * n)), *operands[CPU_MOST_STEPS];
  float *c = malloc(sizeof *c * (size_t)(m * n));

  T_TRUE(a && b && c);
  for (int64_t l = 0; l < k; l++) {
    for (int64_t i = 0; i < m; i++) put_as(WEFT_BF16, a, i * k + l, left_at(i, l) + 7);
    for (int64_t j = 0; j < n; j++) put_as(type, b, l * g.b_row + j * g.b_col, weight_at(type, l, j));
  }
  for (int s = 0; s < count; s++, shapes /= 4) {
    struct cpu_step *step = &affine.steps[s];
    int64_t groups = shapes % 4 >= 2 ? k / group : 1, columns = shapes % 4 >= 1 ? n : 1;
    *step = (struct cpu_step){kinds[s], types[(shapes + s) % 4],
                              groups == 1       ? 0
                              : shapes % 4 == 2 ? columns
                                                : 1,
                              columns == 1      ? 0
                              : shapes % 4 == 3 ? groups
                                                : 1};
    T_TRUE(operands[s] = malloc(weft_dtype_bytes(step->type) * (size_t)(groups * columns)));
    for (int64_t i = 0; i < groups; i++)
      for (int64_t j = 0; j < columns; j++)
        put_as(step->type, operands[s], i * step->row + j * step->column, step_operand(step, s, i, j));
  }
  cpu_gemm_init_affine(&g, &affine);
  void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g.scratch_bytes, 64));
  T_TRUE(scratch);
  for (int64_t t = 0; t < g.tiles; t++)
    cpu_gemm_tile_affine(&g, &affine, t, a, b, (const void *const *)operands, c, scratch);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t l = 0; l < k; l++) sum += (left_at(i, l) + 7) * made_weight(&affine, type, l, j);
      if ((double)c[i * n + j] != sum)
        fail_msg("%s, %lld x %lld x %lld in groups of %lld, turned %d, %d steps: [%lld, %lld] is %g, not %g",
                 weft_dtype_name(type), (long long)m, (long long)n, (long long)k, (long long)group, turned, count,
                 (long long)i, (long long)j, (double)c[i * n + j], sum);
    }
  for (int s = 0; s < count; s++) free(operands[s]);
  free(a);
  free(b);
  free(c);
  free(scratch);
}

/* By vectors of both widths, and by the loops of processors without AVX2. */
TEST(products_by_weights_with_zero_points_and_scales_are_exact)
{
  enum { A = CPU_STEP_ADD, S = CPU_STEP_SUBTRACT, M = CPU_STEP_MULTIPLY };
  static const struct { cpu_step_kind kinds[CPU_MOST_STEPS]; int count; } steps[] = {
    {{0}, 0}, {{S}, 1}, {{M}, 1}, {{S, M}, 2}, {{M, A}, 2}, {{A, M, S, M}, 4}, {{S, M, M}, 3}};
  static const weft_dtype types[] = {WEFT_S8, WEFT_U8, WEFT_S4, WEFT_U4, WEFT_F8E5M2, WEFT_F16};
  static const int64_t depths[][2] = {{40, 8}, {60, 20}, {99, 33}, {640, 640}, {1100, 550}, {37, 37}};
  gen_processor here = gen_this_processor;
  int shapes = 0;

  for (int machine = 0; machine < 3; machine++) {
    cpu_dense_narrow = machine > 0;
    if (machine == 2) gen_this_processor = (gen_processor){0};
    for (size_t t = 0; t < WEFT_COUNT(types); t++)
      for (size_t s = 0; s < WEFT_COUNT(steps); s++)
        for (size_t d = 0; d < WEFT_COUNT(depths); d++)
          for (int turned = 0; turned < 2; turned++, shapes++)
            check_affine(types[t], (int64_t[]){1, 2, 3, 5, 16}[shapes % 5], (int64_t[]){64, 77, 300}[shapes % 3],
                         depths[d][0], depths[d][1], turned, steps[s].kinds, steps[s].count, shapes * 37);
  }
  gen_this_processor = here;
  cpu_dense_narrow = false;
}

TEST(narrow_floats_are_converted_by_arithmetic)
{
  static const weft_dtype types[] = {WEFT_F16, WEFT_BF16, WEFT_F8E4M3FN, WEFT_F8E5M2, WEFT_F8E4M3, WEFT_F8E5M2FNUZ};

  for (size_t t = 0; t < WEFT_COUNT(types); t++) {
    size_t bytes = weft_dtype_bytes(types[t]);
    int count = 1 << 8 * bytes;
    uint8_t *from = malloc(bytes * (size_t)count);
    float *to = malloc(sizeof *to * (size_t)count);
    T_TRUE(from && to);
    for (int bits = 0; bits < count; bits++) memcpy(from + bytes * (size_t)bits, &bits, bytes); /* little-endian */
    for (int64_t step = 1; step < 4; step += 2) {
      int64_t n = (count - 1) / step + 1;
      cpu_convert(WEFT_F32, to, types[t], from, step, n);
      for (int64_t i = 0; i < n; i++) {
        float want = weft_float_decode(types[t], (uint64_t)(i * step));
        if (isnan(want) ? !isnan(to[i]) : memcmp(&to[i], &want, sizeof want) != 0)
          fail_msg("%s 0x%x is %a, not %a", weft_dtype_name(types[t]), (unsigned)(i * step), (double)to[i],
                   (double)want);
      }
    }
    free(from);
    free(to);
  }
}

/* Rows of every length around a vector's, both ways; what lies behind a row stays as it is. */
TEST(rows_of_floats_become_narrow_ones)
{
  static const weft_dtype types[] = {WEFT_F16, WEFT_BF16, WEFT_F8E4M3FN};
  float from[80];
  uint8_t to[2 * 80 + 2];

  for (int i = 0; i < 80; i++) /* exact, halfway, subnormal in f16, too large for it, and special numbers */
    from[i] = i % 9 == 0 ? (i % 2 ? NAN : -INFINITY)
                         : ldexpf(1 + (float)(i * 37 % 64) / 4096, i - 45) * (i % 3 ? 1 : -1);
  for (size_t t = 0; t < WEFT_COUNT(types); t++)
    for (int64_t step = 1; step < 3; step++)
      for (int64_t count = 0; count <= 40; count++) {
        size_t bytes = weft_dtype_bytes(types[t]);
        memset(to, 0x55, sizeof to);
        cpu_convert(types[t], to, WEFT_F32, from, step, count);
        for (int64_t i = 0; i < count; i++) {
          uint64_t got = 0, want = weft_float_encode(types[t], from[i * step]);
          memcpy(&got, to + bytes * (size_t)i, bytes);
          if (isnan(from[i * step]) ? !isnan(weft_float_decode(types[t], got)) : got != want)
            fail_msg("%a is %s 0x%x, not 0x%x", (double)from[i * step], weft_dtype_name(types[t]), (unsigned)got,
                     (unsigned)want);
        }
        T_EQ_INT(to[bytes * (size_t)count], 0x55);
      }
}

TEST(products_of_few_rows_are_exact)
{
  static const weft_dtype bytes[] = {WEFT_S8, WEFT_U8, WEFT_S4, WEFT_U4, WEFT_F8E4M3FN, WEFT_F8E5M2, WEFT_F16, WEFT_BF16, WEFT_S16};
  static const int64_t depths[] = {1, 3, 4, 7, 8, 33, 300}, widths[] = {64, 77, 131, 1027};

  if (!gen_this_processor.avx2) T_SKIP("this processor has no AVX2");
  for (int narrow = 0; narrow < 2; narrow++) {
    cpu_dense_narrow = narrow;
    for (int64_t m = 2; m <= 16; m += m < 6 ? 1 : 5)
      for (size_t w = 0; w < WEFT_COUNT(widths); w++)
        for (size_t d = 0; d < WEFT_COUNT(depths); d++)
          for (int form = 0; form < 8; form++)
            check_few(form & 1 ? WEFT_BF16 : WEFT_F32, form & 1 ? WEFT_BF16 : WEFT_F32, m, widths[w], depths[d],
                      form & 2, form & 4);
    for (int64_t m = 1; m <= 16; m += m < 6 ? 1 : 5)
      for (size_t t = 0; t < WEFT_COUNT(bytes); t++)
        for (size_t d = 0; d < WEFT_COUNT(depths); d++)
          for (int form = 0; form < 8; form++)
            check_few(form & 1 ? WEFT_BF16 : WEFT_F32, bytes[t], m, widths[(t + d) % WEFT_COUNT(widths)], depths[d],
                      form & 2, form & 4);
  }
  cpu_dense_narrow = false;
}

/* Numbers that are rounded at each addition: the kernel for few rows and the packed form, which is that of another
 * kernel, must add in one order. */
static void check_few_packed(int64_t m, int64_t n, int64_t k, bool a_turned, float scale)
{
  cpu_gemm g = {.a_type = WEFT_F32, .b_type = WEFT_F32, .c_type = WEFT_F32, .m = m, .n = n, .k = k, .c_row = n,
                .via = WEFT_INVALID, .compute = WEFT_F32, .kind = CPU_GEMM_FEW, .a_row = a_turned ? 1 : k,
                .a_col = a_turned ? m : 1, .b_row = n, .b_col = 1};
  float *a = malloc(sizeof *a * (size_t)(m * k)), *b = malloc(sizeof *b * (size_t)(k * n));
  float *c = malloc(sizeof *c * (size_t)(m * n));

  T_TRUE(a && b && c);
  for (int64_t i = 0; i < m * k; i++) a[i] = scale < 1 ? scale : sinf((float)i) / 3;
  for (int64_t i = 0; i < k * n; i++) b[i] = scale < 1 ? -scale : cosf((float)i) * 7;
  cpu_few_plan(&g);
  g.tiles = g.tiles_n = (n + g.tile_n - 1) / g.tile_n;
  g.column_bytes = cpu_few_packed.column_bytes(&g);
  T_TRUE(g.column_bytes > 0);
  void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g.scratch_bytes, 64));
  T_TRUE(scratch);
  for (int64_t t = 0; t < g.tiles; t++) cpu_gemm_tile(&g, t, a, b, NULL, c, scratch);
  check_packed(&g, a, b, c, scratch);
  free(a), free(b), free(c), free(scratch);
}

/* The same for the kernel that cpu_gemm_init chooses for a matrix of dense columns; at the ends of all operands their
 * memory ends. */
static void check_few_turned(int64_t m, int64_t n, int64_t k)
{
  cpu_gemm g = {.a_type = WEFT_F32, .b_type = WEFT_F32, .c_type = WEFT_F32, .m = m, .n = n, .k = k, .c_row = n,
                .via = WEFT_INVALID, .a_row = k, .a_col = 1, .b_row = 1, .b_col = k};
  float *a = malloc(sizeof *a * (size_t)(m * k)), *b = malloc(sizeof *b * (size_t)(k * n));
  float *c = malloc(sizeof *c * (size_t)(m * n));

  T_TRUE(a && b && c);
  for (int64_t i = 0; i < m * k; i++) a[i] = sinf((float)i) / 3;
  for (int64_t i = 0; i < k * n; i++) b[i] = cosf((float)i) * 7;
  cpu_gemm_init(&g);
  void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g.scratch_bytes + 64, 64));
  T_TRUE(scratch && g.kind != CPU_GEMM_NONE);
  for (int64_t t = 0; t < g.tiles; t++) cpu_gemm_tile(&g, t, a, b, NULL, c, scratch);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0, size = 0;
      for (int64_t l = 0; l < k; l++) {
        double x = (double)a[i * k + l] * (double)b[j * k + l];
        sum += x;
        size += fabs(x);
      }
      if (fabs((double)c[i * n + j] - sum) > size * 1e-6)
        fail_msg("%lld x %lld x %lld: [%lld, %lld] is %g, not %g", (long long)m, (long long)n, (long long)k,
                 (long long)i, (long long)j, (double)c[i * n + j], sum);
    }
  check_packed(&g, a, b, c, scratch);
  free(a), free(b), free(c), free(scratch);
}

TEST(packed_forms_for_few_rows_give_the_same_bits)
{
  static const int64_t depths[] = {1, 5, 255, 256, 257, 300, 1024}, widths[] = {64, 77, 131, 1027};

  if (!gen_this_processor.avx2) T_SKIP("this processor has no AVX2");
  for (int64_t m = 2; m <= 16; m++)
    for (size_t w = 0; w < WEFT_COUNT(widths); w++)
      for (size_t d = 0; d < WEFT_COUNT(depths); d++) check_few_packed(m, widths[w], depths[d], m % 3 == 0, 1);
  for (int64_t m = 2; m <= 18; m += 4)
    for (size_t w = 0; w < WEFT_COUNT(widths); w++)
      for (size_t d = 0; d < WEFT_COUNT(depths); d++) check_few_turned(m, widths[w], depths[d]);
  /* tiles as wide as their sums in the L1 cache allow; sums of -0 */
  for (int64_t m = 2; m <= 16; m++) check_few_packed(m, 12000, 40, false, 1);
  check_few_packed(3, 77, 5, false, 1e-35f);
}

/* A product of complex numbers whose parts are whole numbers, by the kernel and by its definition. The operands end
 * where their memory ends, and nothing is written between the rows of the result. */
static void check_complex(weft_dtype type, int64_t m, int64_t n, int64_t k, int order)
{
  weft_dtype part = weft_dtype_component(type);
  int64_t a_row = order % 3 == 0   ? k + GUARD
                  : order % 3 == 1 ? 1
                                   : 2 * k,
          a_col = order % 3 == 0   ? 1
                  : order % 3 == 1 ? m
                                   : 2;
  int64_t b_row = order / 3 == 0   ? n + GUARD
                  : order / 3 == 1 ? 1
                                   : 2 * n,
          b_col = order / 3 == 0   ? 1
                  : order / 3 == 1 ? k
                                   : 2;
  cpu_gemm g = {.a_type = type, .b_type = type, .c_type = type, .m = m, .n = n, .k = k, .a_row = a_row, .a_col = a_col,
                .b_row = b_row, .b_col = b_col, .c_row = n + GUARD, .via = WEFT_INVALID};
  size_t bytes = weft_dtype_bytes(type);
  void *a = malloc(bytes * (size_t)((m - 1) * a_row + (k - 1) * a_col + 1));
  void *b = malloc(bytes * (size_t)((n - 1) * b_col + (k - 1) * b_row + 1)), *c = malloc(bytes * (size_t)(m * g.c_row));

  T_TRUE(a && b && c);
  for (int64_t l = 0; l < k; l++) {
    for (int64_t i = 0; i < m; i++) {
      put(part, a, 2 * (i * a_row + l * a_col), left_at(i, l));
      put(part, a, 2 * (i * a_row + l * a_col) + 1, left_at(l, i + 5));
    }
    for (int64_t j = 0; j < n; j++) {
      put(part, b, 2 * (l * b_row + j * b_col), right_at(l, j));
      put(part, b, 2 * (l * b_row + j * b_col) + 1, right_at(j + 3, l));
    }
  }
  for (int64_t i = 0; i < 2 * m * g.c_row; i++) put(part, c, i, -99);
  cpu_gemm_init(&g);
  T_EQ_INT(g.kind, CPU_GEMM_COMPLEX);
  void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g.scratch_bytes, 64));
  T_TRUE(scratch);
  for (int64_t t = 0; t < g.tiles; t++) cpu_gemm_tile(&g, t, a, b, NULL, c, scratch);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < g.c_row; j++) {
      double re = j < n ? 0 : -99, im = re;
      for (int64_t l = 0; l < k && j < n; l++) {
        double ar = left_at(i, l), ai = left_at(l, i + 5), br = right_at(l, j), bi = right_at(j + 3, l);
        re += ar * br - ai * bi, im += ar * bi + ai * br;
      }
      double got_re = get(part, c, 2 * (i * g.c_row + j)), got_im = get(part, c, 2 * (i * g.c_row + j) + 1);
      if (got_re != re || got_im != im)
        fail_msg("%s, %lld x %lld x %lld, order %d: [%lld, %lld] is %g%+gi, not %g%+gi", weft_dtype_name(type),
                 (long long)m, (long long)n, (long long)k, order, (long long)i, (long long)j, got_re, got_im, re, im);
    }
  free(a), free(b), free(c), free(scratch);
}

TEST(products_of_complex_numbers_are_exact)
{
  static const int64_t rows[] = {8, 13, 14, 15, 29, 40}, columns[] = {2, 3, 7, 8, 9, 16, 17, 33}, depths[] = {1, 2, 9, 128, 129, 300};

  if (!gen_this_processor.avx2) T_SKIP("this processor has no AVX2");
  for (int narrow = 0; narrow < 2; narrow++) {
    cpu_dense_narrow = narrow;
    for (int order = 0; order < 9; order++)
      for (size_t r = 0; r < WEFT_COUNT(rows); r++)
        for (size_t c = 0; c < WEFT_COUNT(columns); c++)
          for (size_t d = 0; d < WEFT_COUNT(depths); d++)
            check_complex((r + c + d) % 2 ? WEFT_C128 : WEFT_C64, rows[r], columns[c], depths[d], order);
    check_complex(WEFT_C64, 600, 300, 140, narrow); /* several tiles each way */
    check_complex(WEFT_C128, 300, 600, 140, 3 + narrow);
  }
  cpu_dense_narrow = false;
}

/* A matrix of `count` by k times a vector, with steps of every kind. The last row of the sum meets infinities, where
 * neither what lies beside them nor the ends of rows may change another result. */
static void check_vector(weft_dtype type, int64_t count, int64_t k, int form)
{
  bool is_left = form & 1, dense_sum = form & 2, steps = form & 4;
  int64_t across = dense_sum ? k + GUARD : 1, along = dense_sum ? 1 : count + GUARD, x_step = steps ? 3 : 1;
  cpu_gemm g = {.a_type = type, .b_type = type, .c_type = type, .m = is_left ? count : 1, .n = is_left ? 1 : count, .k = k,
                .a_row = is_left ? across : 1, .a_col = is_left ? along : x_step, .b_row = is_left ? x_step : along,
                .b_col = is_left ? 1 : across, .via = WEFT_INVALID};
  size_t bytes = weft_dtype_bytes(type);

  g.c_row = is_left && steps ? 2 : g.n;
  void *matrix = malloc(bytes * (size_t)((count - 1) * across + (k - 1) * along + 1)),
       *x = malloc(bytes * (size_t)((k - 1) * x_step + 1));
  void *c = malloc(bytes * (size_t)((g.m - 1) * g.c_row + g.n));
  T_TRUE(matrix && x && c);
  for (int64_t l = 0; l < k; l++) {
    put(type, x, l * x_step, l == k - 1 ? INFINITY : left_at(3, l));
    for (int64_t i = 0; i < count; i++)
      put(type, matrix, i * across + l * along,
          l == k - 1             ? (i % 3 ? 1 : -1)
          : i % 5 == 4 && l == 0 ? INFINITY
                                 : right_at(l, i));
  }
  if (!cpu_vector_fits(&g)) fail_msg("%lld x %lld, form %d, does not fit", (long long)count, (long long)k, form);
  for (int finite = 0; finite < 2; finite++) {
    if (finite) put(type, x, (k - 1) * x_step, 2);
    cpu_vector_plan(&g);
    void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g.scratch_bytes, 64) + 64);
    T_TRUE(scratch);
    int64_t part = is_left ? g.tile_m : g.tile_n;
    for (int64_t at = 0; at < count; at += part) {
      char *from = (char *)matrix + at * across * (int64_t)bytes,
           *to = (char *)c + at * (is_left ? g.c_row : 1) * (int64_t)bytes;
      int64_t size = WEFT_MIN(part, count - at);
      cpu_vector_tile(&g, is_left ? size : 1, is_left ? 1 : size, is_left ? from : x, is_left ? x : from, to, scratch);
    }
    for (int64_t i = 0; i < count; i++) {
      double sum = 0, got = get(type, c, i * (is_left ? g.c_row : 1));
      for (int64_t l = 0; l < k; l++) sum += get(type, matrix, i * across + l * along) * get(type, x, l * x_step);
      if (got != sum && !(isnan(got) && isnan(sum)))
        fail_msg("%s, %lld x %lld, form %d: [%lld] is %g, not %g", weft_dtype_name(type), (long long)count,
                 (long long)k, form, (long long)i, got, sum);
    }
    free(scratch);
  }
  free(matrix);
  free(x);
  free(c);
}

TEST(products_by_a_vector_are_exact)
{
  static const int64_t counts[] = {1, 2, 3, 4, 7, 16, 33, 1100}, depths[] = {16, 17, 23, 32, 40, 47, 64, 129, 700};

  for (int narrow = 0; narrow < 2; narrow++) {
    cpu_vector_narrow = narrow;
    for (size_t n = 0; n < WEFT_COUNT(counts); n++)
      for (size_t d = 0; d < WEFT_COUNT(depths); d++)
        for (int form = 0; form < 16; form++)
          check_vector(form & 8 ? WEFT_F64 : WEFT_F32, counts[n], depths[d], form & 7);
  }
  cpu_vector_narrow = false;
}

/* With k = 1 a row has one element: a vector that ends with that element would begin before the matrix. */
TEST(a_sum_of_one_factor_is_no_product_by_a_vector)
{
  cpu_gemm g = {.a_type = WEFT_F32, .b_type = WEFT_F32, .c_type = WEFT_F32, .m = 1000, .n = 1, .k = 1,
                .a_row = 1, .a_col = 1, .b_row = 1, .b_col = 1, .c_row = 1, .via = WEFT_INVALID};

  T_TRUE(!cpu_vector_fits(&g));
}

/* Converted operands, as panels: narrow types, orders of the operands, one panel of k and several. */
TEST(products_of_narrow_floats_are_exact)
{
  static const int64_t sizes[][3] = {{16, 16, 16}, {32, 48, 32}, {48, 33, 18}, {16, 64, 31}, {1, 5, 9},
    {33, 40, 64}, {20, 70, 1024}, {20, 70, 1030},
    {130, 100, 96}, {200, 17, 4000}, /* rows of A that are kept for all columns, and too many for that */
    {37, 70, 96}, {53, 67, 128}, {300, 40, 4096}}; /* k ends with a tile of AMX, rows and columns do not */

  for (size_t s = 0; s < WEFT_COUNT(sizes); s++)
    for (int form = 0; form < 8; form++) {
      weft_dtype out = form & 4 ? WEFT_BF16 : WEFT_F32;
      int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
      cpu_gemm g = {.a_type = WEFT_BF16, .b_type = WEFT_BF16, .c_type = out, .m = m, .n = n, .k = k, .c_row = n, .via = WEFT_INVALID,
                    .a_row = form & 1 ? 1 : k, .a_col = form & 1 ? m : 1, .b_row = form & 2 ? 1 : n, .b_col = form & 2 ? k : 1};
      uint16_t *a = malloc(2 * (size_t)(m * k)), *b = malloc(2 * (size_t)(k * n));
      void *c = malloc(sizeof(float) * (size_t)(m * n));
      T_TRUE(a && b && c);
      for (int64_t l = 0; l < k; l++) {
        for (int64_t i = 0; i < m; i++) put_as(WEFT_BF16, a, i * g.a_row + l * g.a_col, left_at(i, l));
        for (int64_t j = 0; j < n; j++) put_as(WEFT_BF16, b, l * g.b_row + j * g.b_col, right_at(l, j));
      }
      multiply_chosen(&g, a, b, c);
      for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
          double sum = 0;
          for (int64_t l = 0; l < k; l++) sum += left_at(i, l) * right_at(l, j);
          if (out == WEFT_F32
                ? (double)((float *)c)[i * n + j] != sum
                : (uint16_t)(((uint16_t *)c)[i * n + j] << 1) != (uint16_t)(weft_float_encode(out, (float)sum) << 1))
            fail_msg("%lld x %lld x %lld, form %d: [%lld, %lld]", (long long)m, (long long)n, (long long)k, form,
                     (long long)i, (long long)j);
        }
      free(a);
      free(b);
      free(c);
    }
}

/* c += a . b where the kernel can add, of all columns of c and of some; the rest of c stays. */
TEST(products_are_added_to_what_is_there)
{
  static const struct { weft_dtype in, out; } types[] = {{WEFT_F32, WEFT_F32}, {WEFT_F64, WEFT_F64}, {WEFT_BF16, WEFT_F32}};
  static const int64_t sizes[][3] = {{16, 16, 16}, {32, 48, 32}, {48, 33, 18}, {40, 100, 96}, {64, 519, 257}, {33, 40, 700}};
  int added = 0;

  for (size_t s = 0; s < WEFT_COUNT(sizes) * WEFT_COUNT(types) * 4; s++) {
    weft_dtype in = types[s % WEFT_COUNT(types)].in, out = types[s % WEFT_COUNT(types)].out;
    const int64_t *size = sizes[s / WEFT_COUNT(types) % WEFT_COUNT(sizes)];
    int64_t m = size[0], n = size[1], k = size[2], row = n + GUARD;
    bool turned = s / WEFT_COUNT(types) / WEFT_COUNT(sizes) & 1, whole = s / WEFT_COUNT(types) / WEFT_COUNT(sizes) & 2;
    int64_t columns = whole ? n : n / 2 + 3;
    cpu_gemm g = {.a_type = in, .b_type = in, .c_type = out, .m = m, .n = n, .k = k, .via = WEFT_INVALID,
                  .a_row = turned ? 1 : k, .a_col = turned ? m : 1, .b_row = n, .b_col = 1, .c_row = row, .adds = true};
    cpu_gemm_init(&g);
    if (!cpu_gemm_can_add(&g)) continue;
    added++;
    char *a = malloc(8 * (size_t)(m * k)), *b = malloc(8 * (size_t)(k * n)), *c = malloc(8 * (size_t)(m * row));
    void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g.scratch_bytes, 64) + 64);
    T_TRUE(a && b && c && scratch);
    for (int64_t l = 0; l < k; l++) {
      for (int64_t i = 0; i < m; i++) put_as(in, a, i * g.a_row + l * g.a_col, left_at(i, l));
      for (int64_t j = 0; j < n; j++) put_as(in, b, l * n + j, right_at(l, j));
    }
    for (int64_t i = 0; i < m * row; i++) put(out, c, i, (double)(i % 19 - 9));
    for (int64_t t = 0; t < g.tiles; t++) cpu_gemm_tile_part(&g, t, columns, g.k, a, b, NULL, c, scratch);
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < row; j++) {
        double sum = (double)((i * row + j) % 19 - 9);
        for (int64_t l = 0; j < columns && l < k; l++) sum += left_at(i, l) * right_at(l, j);
        if (get(out, c, i * row + j) != sum)
          fail_msg("%s, %lld x %lld x %lld: [%lld, %lld] is %g, not %g", weft_dtype_name(in), (long long)m,
                   (long long)n, (long long)k, (long long)i, (long long)j, get(out, c, i * row + j), sum);
      }
    free(a);
    free(b);
    free(c);
    free(scratch);
  }
  print_message("# %d products\n", added);
}

/* Ties, sums that round to infinity, infinities, NaN and zeros become bf16 as a conversion makes them. */
TEST(sums_are_rounded_to_bf16_as_conversions_are)
{
  static const float pairs[][2] = {{1, 0x1p-8f}, {1, 0x1.8p-7f}, {1, 0x1.02p-8f}, {-1, -0x1.8p-7f}, {0x1.fep127f, 0x1p119f},
    {0x1.fep127f, 0x1p118f}, {-0x1.fep127f, -0x1p119f}, {INFINITY, 1}, {-INFINITY, 1}, {INFINITY, -INFINITY}, {NAN, 1}, {0, 0},
    {0x1p-126f, 0x1p-134f}};
  enum { M = 53, N = 70, K = 96 };
  static uint16_t a[M * K], b[K * N], c[M * N];
  cpu_gemm g = {.a_type = WEFT_BF16, .b_type = WEFT_BF16, .c_type = WEFT_BF16, .m = M, .n = N, .k = K, .a_row = K, .a_col = 1,
                .b_row = N, .b_col = 1, .c_row = N, .via = WEFT_INVALID};

  for (int i = 0; i < M; i++)
    for (int l = 0; l < 2; l++) put_as(WEFT_BF16, a, i * K + l, pairs[i % WEFT_COUNT(pairs)][l]);
  for (int i = 0; i < 2 * N; i++) put_as(WEFT_BF16, b, i, 1);
  multiply_chosen(&g, a, b, c);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      const float *pair = pairs[i % WEFT_COUNT(pairs)];
      float sum = pair[0] + pair[1], got = weft_float_decode(WEFT_BF16, c[i * N + j]);
      float expected = weft_float_decode(WEFT_BF16, weft_float_encode(WEFT_BF16, sum));
      if (isnan(sum) ? !isnan(got) : got != expected)
        fail_msg("[%d, %d]: %a + %a is %a, not %a", i, j, (double)pair[0], (double)pair[1], (double)got,
                 (double)expected);
    }
}

/* A product of bf16 by `gemm_lanes` into f32 or bf16. Its sums are exact, and its arrays' memory ends with their last
 * elements. */
static void check_lanes(int64_t m, int64_t n, int64_t k, int order, weft_dtype out)
{
  int64_t a_row = order % 3 == 0 ? k : order % 3 == 1 ? 1 : 2 * k, a_col = order % 3 == 0 ? 1 : order % 3 == 1 ? m : 2;
  int64_t b_row = order / 3 == 0 ? n : order / 3 == 1 ? 1 : 2 * n, b_col = order / 3 == 0 ? 1 : order / 3 == 1 ? k : 2;
  cpu_gemm g = {.a_type = WEFT_BF16, .b_type = WEFT_BF16, .c_type = out, .m = m, .n = n, .k = k, .via = WEFT_INVALID,
                .a_row = a_row, .a_col = a_col, .b_row = b_row, .b_col = b_col, .c_row = n + (order == 4 ? 0 : GUARD)};
  size_t bytes = weft_dtype_bytes(out), a_size = (size_t)((m - 1) * a_row + (k - 1) * a_col + 1);
  size_t b_size = (size_t)((n - 1) * b_col + (k - 1) * b_row + 1);
  uint16_t *a = malloc(2 * a_size), *b = malloc(2 * b_size);
  char *c = malloc(bytes * (size_t)(m * g.c_row));

  T_TRUE(a && b && c);
  for (int64_t l = 0; l < k; l++) {
    for (int64_t i = 0; i < m; i++) put_as(WEFT_BF16, a, i * a_row + l * a_col, left_at(i, l));
    for (int64_t j = 0; j < n; j++) put_as(WEFT_BF16, b, l * b_row + j * b_col, right_at(l, j));
  }
  memset(c, 0x55, bytes * (size_t)(m * g.c_row));
  cpu_lanes_plan(&g);
  void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g.scratch_bytes, 64) + 64);
  T_TRUE(scratch);
  for (int64_t i = 0; i < m; i += g.tile_m)
    for (int64_t j = 0; j < n; j += g.tile_n)
      cpu_lanes_tile(&g, WEFT_MIN(g.tile_m, m - i), WEFT_MIN(g.tile_n, n - j), (char *)(a + i * a_row),
                     (char *)(b + j * b_col), c + (i * g.c_row + j) * (int64_t)bytes, scratch);
  check_lanes_packed(g, a, b, c, scratch);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < g.c_row; j++) {
      double sum = 0;
      uint32_t got = 0, expected = bytes == 2 ? 0x5555 : 0x55555555;
      for (int64_t l = 0; l < k; l++) sum += left_at(i, l) * right_at(l, j);
      float exact = (float)sum;
      memcpy(&got, c + (i * g.c_row + j) * (int64_t)bytes, bytes);
      if (j < n && bytes == 2) expected = (uint32_t)weft_float_encode(out, exact);
      else if (j < n) memcpy(&expected, &exact, sizeof expected);
      if (got << 1 != expected << 1) /* the sign of zero is free */
        fail_msg("%lld x %lld x %lld, order %d, %s: [%lld, %lld] is %x, not %x", (long long)m, (long long)n,
                 (long long)k, order, weft_dtype_name(out), (long long)i, (long long)j, got, expected);
    }
  free(a), free(b), free(c), free(scratch);
}

TEST(products_of_bf16_by_pairs_are_exact)
{
  static const int64_t sides[] = {1, 2, 8, 14, 15, 31, 33, 65}, depths[] = {2, 3, 16, 31, 64, 129, 500};
  cpu_gemm g = {.a_type = WEFT_BF16, .b_type = WEFT_BF16, .c_type = WEFT_F32, .m = 16, .n = 16, .k = 16, .via = WEFT_INVALID};

  if (!cpu_lanes_fits(&g)) T_SKIP("this processor has no AVX512-BF16");
  for (size_t at = 0; at < WEFT_COUNT(sides) * WEFT_COUNT(sides) * WEFT_COUNT(depths) * 9; at++) {
    size_t s = at / 9;
    int64_t k = depths[s % WEFT_COUNT(depths)], m = sides[s / WEFT_COUNT(depths) % WEFT_COUNT(sides)];
    check_lanes(m, sides[s / WEFT_COUNT(depths) / WEFT_COUNT(sides)], k, (int)(at % 9), at % 2 ? WEFT_BF16 : WEFT_F32);
  }
  /* several tiles, blocks of k and strips; rows that collide in the caches; few rows and few columns of many */
  for (int order = 0; order < 9; order += order == 2 ? 2 : 1) {
    check_lanes(300, 330, 1000, order, WEFT_F32);
    check_lanes(40, 130, 2048, order, WEFT_BF16);
    check_lanes(1, 3000, 777, order, WEFT_BF16);
    check_lanes(3000, 3, 401, order, order % 2 ? WEFT_BF16 : WEFT_F32);
    check_lanes(1200, 1, 400, order, WEFT_F32);
  }
}

/* Numbers that are rounded at each addition: several panels at a time add in the order in which rows are read. */
TEST(one_row_of_bf16_has_the_same_bits_with_and_without_a_packed_form)
{
  static const int64_t widths[] = {128, 131, 160, 300, 1027}, depths[] = {2, 7, 64, 300, 1025};

  for (size_t at = 0; at < WEFT_COUNT(widths) * WEFT_COUNT(depths) * 2; at++) {
    int64_t n = widths[at / 2 % WEFT_COUNT(widths)], k = depths[at / 2 / WEFT_COUNT(widths)];
    cpu_gemm g = {.a_type = WEFT_BF16, .b_type = WEFT_BF16, .c_type = at % 2 ? WEFT_BF16 : WEFT_F32, .m = 1, .n = n,
                  .k = k, .a_row = k, .a_col = 1, .b_row = n, .b_col = 1, .c_row = n, .via = WEFT_INVALID};
    if (!cpu_lanes_fits(&g)) T_SKIP("this processor has no AVX512-BF16");
    uint16_t *a = malloc(2 * (size_t)k), *b = malloc(2 * (size_t)(k * n));
    char *c = malloc(sizeof(float) * (size_t)n);
    T_TRUE(a && b && c);
    for (int64_t l = 0; l < k; l++) put_as(WEFT_BF16, a, l, sin((double)l) / 3);
    for (int64_t i = 0; i < k * n; i++) put_as(WEFT_BF16, b, i, cos((double)i) * 7);
    cpu_lanes_plan(&g);
    void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g.scratch_bytes, 64) + 64);
    T_TRUE(scratch);
    for (int64_t j = 0; j < n; j += g.tile_n)
      cpu_lanes_tile(&g, 1, WEFT_MIN(g.tile_n, n - j), (char *)a, (char *)(b + j),
                     c + j * (int64_t)weft_dtype_bytes(g.c_type), scratch);
    check_lanes_packed(g, a, b, c, scratch);
    free(a), free(b), free(c), free(scratch);
  }
}

TEST(infinities_and_nan_go_where_they_belong)
{
  enum { M = 45, N = 51, K = 300 };
  static float a[M * K], b[K * N], c[M * N];
  cpu_gemm g = {.a_type = WEFT_F32, .b_type = WEFT_F32, .c_type = WEFT_F32, .m = M, .n = N, .k = K, .a_row = K, .a_col = 1,
                .b_row = N, .b_col = 1, .c_row = N, .via = WEFT_INVALID};

  for (int narrow = 0; narrow < 2; narrow++) {
    for (int i = 0; i < M * K; i++) a[i] = 1;
    for (int i = 0; i < K * N; i++) b[i] = i % N == 7 ? 0 : 1;
    a[4 * K + 299] = INFINITY;
    a[44 * K] = NAN;
    b[256 * N + 50] = -INFINITY;
    cpu_dense_narrow = cpu_vector_narrow = narrow;
    cpu_gemm_init(&g);
    void *scratch = aligned_alloc(64, WEFT_ALIGN_UP((size_t)g.scratch_bytes + 64, (size_t)64));
    T_TRUE(scratch);
    for (int64_t t = 0; t < g.tiles; t++) cpu_gemm_tile(&g, t, a, b, NULL, c, scratch);
    for (int i = 0; i < M; i++)
      for (int j = 0; j < N; j++) {
        float got = c[i * N + j];
        if (i == 44 || (i == 4 && (j == 7 || j == 50))) T_TRUE(isnan(got));
        else if (i == 4) T_TRUE(got == INFINITY);
        else if (j == 50) T_TRUE(got == -INFINITY);
        else T_TRUE(got == (j == 7 ? 0 : 300));
      }
    free(scratch);
  }
  cpu_dense_narrow = false;
}

static int32_t number_at(weft_dtype type, const void *from, int64_t at)
{
  if (type == WEFT_S32) return ((const int32_t *)from)[at];
  return type == WEFT_S8   ? ((const int8_t *)from)[at]
         : type == WEFT_U8 ? ((const uint8_t *)from)[at]
                           : ((const int16_t *)from)[at];
}

/* Sums of products, the least of each type among them, against c. */
static void check_integers(const cpu_gemm *g, const void *a, const void *b, const int32_t *c, const char *how)
{
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->c_row; j++) {
      uint32_t sum = j < g->n ? 0 : (uint32_t)-99;
      for (int64_t l = 0; l < g->k && j < g->n; l++)
        sum += (uint32_t)number_at(g->a_type, a, i * g->a_row + l * g->a_col) *
               (uint32_t)number_at(g->b_type, b, l * g->b_row + j * g->b_col);
      if (c[i * g->c_row + j] != (int32_t)sum)
        fail_msg("%s, %lld x %lld x %lld, steps %lld %lld, %lld %lld: [%lld, %lld] is %d, not %d", how, (long long)g->m,
                 (long long)g->n, (long long)g->k, (long long)g->a_row, (long long)g->a_col, (long long)g->b_row,
                 (long long)g->b_col, (long long)i, (long long)j, c[i * g->c_row + j], (int32_t)sum);
    }
}

/* In memory that ends with its last element. */
static void *integers(weft_dtype type, size_t count, bool extremes)
{
  void *data = malloc(count * weft_dtype_bytes(type));

  T_TRUE(data);
  for (size_t i = 0; i < count; i++) {
    int64_t x = extremes && i % 5 == 0 ? 0x8000 | 0x80 : (int64_t)(i * 9137 % 65536 ^ i % 256);
    if (type == WEFT_S32) ((int32_t *)data)[i] = (int32_t)((uint32_t)x * 0x10001u);
    else if (type == WEFT_S16) ((int16_t *)data)[i] = (int16_t)(extremes && i % 5 == 0 ? INT16_MIN : x);
    else ((uint8_t *)data)[i] = (uint8_t)x;
  }
  return data;
}

/* The kernel that this processor gets, the same with narrow vectors, that of lanes where there is AMX too,
 * and that of pairs where there is either. */
static void multiply_integers(cpu_gemm g)
{
  enum { CHOSEN, NARROW, BY_LANES, PAIRS };
  static const char *const names[] = {"chosen", "narrow", "lanes", "pairs"};
  size_t c_size = (size_t)(g.m * g.c_row);
  void *a = integers(g.a_type, (size_t)((g.m - 1) * g.a_row + (g.k - 1) * g.a_col + 1), g.a_type == WEFT_S16);
  void *b = integers(g.b_type, (size_t)((g.k - 1) * g.b_row + (g.n - 1) * g.b_col + 1), true);
  int32_t *c = malloc(c_size * sizeof *c);

  T_TRUE(c);
  for (int kernel = CHOSEN; kernel <= PAIRS; kernel++) {
    if (kernel == BY_LANES && !cpu_lanes_fits(&g)) continue;
    if (kernel == PAIRS && !cpu_pairs_fits(&g)) continue;
    cpu_block_narrow = kernel == NARROW;
    if (kernel <= NARROW) cpu_gemm_init(&g);
    else if (kernel == BY_LANES) cpu_lanes_plan(&g);
    else cpu_pairs_plan(&g);
    void *scratch = aligned_alloc(64, WEFT_ALIGN_UP((size_t)g.scratch_bytes + 64, (size_t)64));
    T_TRUE(scratch);
    for (size_t i = 0; i < c_size; i++) c[i] = -99;
    if (kernel == CHOSEN) cpu_gemm_begin(&g);
    for (int64_t t = 0; kernel <= NARROW && t < g.tiles; t++) cpu_gemm_tile(&g, t, a, b, NULL, c, scratch);
    if (kernel == CHOSEN) cpu_gemm_end(&g);
    for (int64_t i = 0; kernel > NARROW && i < g.m; i += g.tile_m)
      for (int64_t j = 0; j < g.n; j += g.tile_n)
        (kernel == BY_LANES ? cpu_lanes_tile : cpu_pairs_tile)(
          &g, WEFT_MIN(g.tile_m, g.m - i), WEFT_MIN(g.tile_n, g.n - j),
          (char *)a + i * g.a_row * (int64_t)weft_dtype_bytes(g.a_type),
          (char *)b + j * g.b_col * (int64_t)weft_dtype_bytes(g.b_type), (char *)(c + i * g.c_row + j), scratch);
    check_integers(&g, a, b, c, names[kernel]);
    if (kernel <= NARROW) check_packed(&g, a, b, c, scratch);
    if (kernel == BY_LANES) check_lanes_packed(g, a, b, c, scratch);
    free(scratch);
  }
  cpu_block_narrow = false;
  free(a), free(b), free(c);
}

static void multiply_types(weft_dtype a_type, weft_dtype b_type)
{
  static const int64_t sides[] = {1, 3, 14, 16, 17, 33, 60}, depths[] = {1, 4, 7, 16, 18, 32, 61, 64, 515, 600};

  for (size_t n = 0; n < WEFT_COUNT(sides) * WEFT_COUNT(sides) * WEFT_COUNT(depths) * 9; n++) {
    size_t at = n / 9;
    int order = (int)(n % 9);
    int64_t k = depths[at % WEFT_COUNT(depths)], rows = sides[at / WEFT_COUNT(depths) % WEFT_COUNT(sides)];
    int64_t cols = sides[at / WEFT_COUNT(depths) / WEFT_COUNT(sides)];
    cpu_gemm g = {.a_type = a_type, .b_type = b_type, .c_type = WEFT_S32, .m = rows, .n = cols, .k = k, .via = WEFT_INVALID,
                  .a_row = order % 3 == 0 ? k + GUARD : order % 3 == 1 ? 1 : WEFT_ALIGN_UP(k, 4),
                  .a_col = order % 3 == 1 ? rows + GUARD : 1, .b_row = order / 3 == 0 ? cols + GUARD : order / 3 == 1 ? 1 : 2 * cols,
                  .b_col = order / 3 == 0 ? 1 : order / 3 == 1 ? k : 2, .c_row = cols + (cols == 1 && order < 5 ? 0 : GUARD)};
    multiply_integers(g);
  }
  multiply_integers((cpu_gemm){.a_type = a_type,
                               .b_type = b_type,
                               .c_type = WEFT_S32,
                               .m = 450,
                               .n = 70,
                               .k = 1024,
                               .via = WEFT_INVALID,
                               .a_row = 1024,
                               .a_col = 1,
                               .b_row = 70,
                               .b_col = 1,
                               .c_row = 70});
  for (int n = 0; n < 6; n++) { /* columns of several vectors, whole and not, in and beside whole tiles */
    int64_t cols = n % 3 == 0 ? 64 : n % 3 == 1 ? 100 : 150, k = n < 3 ? 128 : 200;
    multiply_integers((cpu_gemm){.a_type = a_type,
                                 .b_type = b_type,
                                 .c_type = WEFT_S32,
                                 .m = 75,
                                 .n = cols,
                                 .k = k,
                                 .via = WEFT_INVALID,
                                 .a_row = k,
                                 .a_col = 1,
                                 .b_row = cols + GUARD,
                                 .b_col = 1,
                                 .c_row = cols + GUARD});
  }
}

TEST(products_of_bytes_are_exact) { multiply_types(WEFT_S8, WEFT_S8); }
TEST(products_of_integers_of_32_bits_are_exact) { multiply_types(WEFT_S32, WEFT_S32); }
TEST(products_of_other_short_integers_are_exact)
{
  multiply_types(WEFT_U8, WEFT_S8);
  multiply_types(WEFT_S16, WEFT_U8);
  multiply_types(WEFT_S16, WEFT_S16);
}

/* ---- sums of the first part of k --------------------------------------------------------------------------------*/

typedef struct types { weft_dtype a, b, c; } types;

static double get_as(weft_dtype type, const void *from, int64_t at)
{
  if (type == WEFT_S32) return ((const int32_t *)from)[at];
  if (weft_dtype_bytes(type) == 2) return (double)weft_float_decode(type, ((const uint16_t *)from)[at]);
  return get(type, from, at);
}

/* Numbers of `a` behind `depth` are not read: they are NaNs, or would change the sums of integers. `is_lanes`: by
 * gemm_lanes, where another kernel would be chosen. */
static void check_depth(types t, int64_t m, int64_t n, int64_t k, int64_t depth, bool by_row, bool is_lanes)
{
  cpu_gemm g = {.a_type = t.a, .b_type = t.b, .c_type = t.c, .m = m, .n = n, .k = k, .via = WEFT_INVALID, .a_row = k,
                .a_col = 1, .b_row = by_row ? n : 1, .b_col = by_row ? 1 : k, .c_row = n};
  char *a = malloc((size_t)(m * k) * weft_dtype_bytes(t.a)), *b = malloc((size_t)(n * k) * weft_dtype_bytes(t.b));
  char *c = malloc((size_t)(m * n) * weft_dtype_bytes(t.c));

  T_TRUE(a && b && c);
  for (int64_t i = 0; i < m; i++)
    for (int64_t l = 0; l < k; l++)
      put_as(t.a, a, i * k + l, l < depth ? left_at(i, l) : weft_dtype_is_integer(t.a) ? 99 : (double)NAN);
  for (int64_t l = 0; l < k; l++)
    for (int64_t j = 0; j < n; j++) put_as(t.b, b, l * g.b_row + j * g.b_col, right_at(l, j));
  cpu_gemm_init(&g);
  if (is_lanes) {
    cpu_lanes_plan(&g);
    g.kind = CPU_GEMM_LANES;
    g.tiles_n = (n + g.tile_n - 1) / g.tile_n;
    g.tiles = (m + g.tile_m - 1) / g.tile_m * g.tiles_n;
    g.column_bytes = cpu_lanes_packed.column_bytes(&g);
  }
  int64_t form_bytes = cpu_gemm_packed_bytes(&g);
  void *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(g.scratch_bytes, 64) + 64);
  char *form = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(form_bytes, 64) + 64);
  T_TRUE(scratch && form && cpu_gemm_takes_depth(&g));
  for (int64_t p = 0; form_bytes && p * CPU_PACK_COLUMNS < n; p++) cpu_gemm_pack(&g, p, b, form);
  for (int packed = 0; packed < (form_bytes ? 2 : 1); packed++) {
    memset(c, 0x55, (size_t)(m * n) * weft_dtype_bytes(t.c));
    cpu_gemm_begin(&g);
    for (int64_t i = 0; i < g.tiles; i++) cpu_gemm_tile_part(&g, i, n, depth, a, b, packed ? form : NULL, c, scratch);
    cpu_gemm_end(&g);
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        double sum = 0, got = get_as(t.c, c, i * n + j);
        for (int64_t l = 0; l < depth; l++) sum += left_at(i, l) * right_at(l, j);
        if (weft_dtype_bytes(t.c) == 2)
          sum = (double)weft_float_decode(t.c, (uint16_t)weft_float_encode(t.c, (float)sum));
        if (got != sum)
          fail_msg("%s, kernel %d%s, %lld x %lld x %lld of %lld, by row %d: [%lld, %lld] is %g, not %g",
                   weft_dtype_name(t.a), g.kind, packed ? " packed" : "", (long long)m, (long long)n, (long long)depth,
                   (long long)k, by_row, (long long)i, (long long)j, got, sum);
      }
  }
  free(a), free(b), free(c), free(scratch), free(form);
}

TEST(sums_of_the_first_part_of_k_leave_out_the_rest)
{
  static const types all[] = {
    {WEFT_F32, WEFT_F32, WEFT_F32}, {WEFT_F64, WEFT_F64, WEFT_F64}, {WEFT_BF16, WEFT_BF16, WEFT_F32},
    {WEFT_BF16, WEFT_BF16, WEFT_BF16}, {WEFT_F16, WEFT_F16, WEFT_F16}, {WEFT_S8, WEFT_S8, WEFT_S32},
    {WEFT_S16, WEFT_S16, WEFT_S32}};
  static const int64_t rows[] = {32, 50}, columns[] = {19, 64, 130}, depths[] = {130, 700, 1100};
  const gen_processor here = gen_this_processor;

  for (int machine = 0; machine < 3; machine++) { /* this one, one with AVX2, one with neither */
    if (machine > 0) gen_this_processor = (gen_processor){.avx2 = machine == 1 && here.avx2};
    for (size_t at = 0; at < WEFT_COUNT(all) * WEFT_COUNT(rows) * WEFT_COUNT(columns) * WEFT_COUNT(depths) * 4; at++) {
      size_t rest = at / 4;
      types t = all[rest % WEFT_COUNT(all)];
      rest /= WEFT_COUNT(all);
      int64_t m = rows[rest % WEFT_COUNT(rows)];
      rest /= WEFT_COUNT(rows);
      int64_t n = columns[rest % WEFT_COUNT(columns)], k = depths[rest / WEFT_COUNT(columns)];
      int64_t depth = at % 2 ? CPU_DEPTH_ALIGN : k / 2 / CPU_DEPTH_ALIGN * CPU_DEPTH_ALIGN;
      cpu_gemm g = {.a_type = t.a, .b_type = t.b, .c_type = t.c, .m = m, .n = n, .k = k, .via = WEFT_INVALID};
      check_depth(t, m, n, k, depth, at / 2 % 2, false);
      if (machine == 0 && cpu_lanes_fits(&g) && t.a != WEFT_F32) check_depth(t, m, n, k, depth, at / 2 % 2, true);
    }
  }
  gen_this_processor = here;
}

TEST_MAIN(UNIT(products_of_complex_numbers_are_exact), UNIT(products_of_few_rows_are_exact), UNIT(products_by_weights_with_zero_points_and_scales_are_exact),
          UNIT(narrow_floats_are_converted_by_arithmetic), UNIT(rows_of_floats_become_narrow_ones), UNIT(packed_forms_for_few_rows_give_the_same_bits),
          UNIT(products_by_a_vector_are_exact),
          UNIT(a_sum_of_one_factor_is_no_product_by_a_vector), UNIT(products_of_narrow_floats_are_exact), UNIT(products_are_added_to_what_is_there), UNIT(sums_are_rounded_to_bf16_as_conversions_are), UNIT(products_of_bf16_by_pairs_are_exact), UNIT(one_row_of_bf16_has_the_same_bits_with_and_without_a_packed_form), UNIT(every_small_size_and_order_is_exact), UNIT(so_it_is_with_vectors_of_256_bits), UNIT(large_products_are_exact),
          UNIT(infinities_and_nan_go_where_they_belong), UNIT(products_of_bytes_are_exact),
          UNIT(products_of_integers_of_32_bits_are_exact), UNIT(products_of_other_short_integers_are_exact),
          UNIT(sums_of_the_first_part_of_k_leave_out_the_rest))
