/* cpu/gemm_vector.c -- a matrix of f32 or f64 times a vector. Such a product costs what reading the matrix costs:
 *
 *   the matrix is dense along the sum:      each result is a dot product, ROWS of them at a time
 *   the matrix is dense along the results:  DEPTH of its rows at a time are added to the results, which stay in L1
 *
 * The order of additions depends on k and on the kind of machine alone. */
#include <config.h>

#include "cpu/gemm_vector.h"

#include <string.h>

#include "base/macros.h"
#include "cpu/gemm_block.h"
#include "cpu/hot.h"

enum {
  ROWS = 4, DEPTH = 8,
  TILE_BYTES = 1 << 18, /* of the matrix, which a tile reads */
  LEAST_RUN = 512,      /* results of a tile that reads runs of its width */
  STRIP = 1024,         /* results that are summed at a time */
};

bool cpu_vector_narrow;

/* result[i] = sum over l of matrix[i * across + l * along] * x[l * x_step] */
typedef struct view {
  int64_t count, across, along, x_step, c_step;
  bool is_left; /* the matrix is the product's left operand */
} view;

static view view_of(const cpu_gemm *g)
{
  view left = {g->m, g->a_row, g->a_col, g->b_row, g->c_row, true}, right = {g->n, g->b_col, g->b_row, g->a_col, 1, false};
  view v = g->n == 1 && (g->m != 1 || g->a_col == 1) ? left : right;

  if (v.count == 1) v.across = v.c_step = 1;
  return v;
}

/* The two halves of a vector, added. */
#define FOLD_16(v) \
  (__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15))
#define FOLD_8(v) (__builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7))
#define FOLD_4(v) (__builtin_shufflevector(v, v, 0, 1) + __builtin_shufflevector(v, v, 2, 3))

typedef float four_floats __attribute__((vector_size(16)));
typedef double two_doubles __attribute__((vector_size(16)));

static CPU_INLINE void sum_floats(float *c, int64_t step, four_floats v0, four_floats v1, four_floats v2,
                                  four_floats v3)
{
  four_floats low = __builtin_shufflevector(v0, v1, 0, 1, 4, 5) + __builtin_shufflevector(v0, v1, 2, 3, 6, 7);
  four_floats high = __builtin_shufflevector(v2, v3, 0, 1, 4, 5) + __builtin_shufflevector(v2, v3, 2, 3, 6, 7);
  four_floats sums = __builtin_shufflevector(low, high, 0, 2, 4, 6) + __builtin_shufflevector(low, high, 1, 3, 5, 7);

  for (int r = 0; r < ROWS; r++) c[r * step] = sums[r];
}

static CPU_INLINE void sum_doubles(double *c, int64_t step, two_doubles v0, two_doubles v1, two_doubles v2,
                                   two_doubles v3)
{
  two_doubles low = __builtin_shufflevector(v0, v1, 0, 2) + __builtin_shufflevector(v0, v1, 1, 3);
  two_doubles high = __builtin_shufflevector(v2, v3, 0, 2) + __builtin_shufflevector(v2, v3, 1, 3);

  c[0] = low[0];
  c[step] = low[1];
  c[2 * step] = high[0];
  c[3 * step] = high[1];
}

#define ELEM float
#define BITS int32_t
#define NAME(x) f32_wide_##x
#define LANES 16
#define SUM_ROWS(c, step, v0, v1, v2, v3)                                                                       \
  {                                                                                                             \
    __typeof__(FOLD_16(v0)) w0 = FOLD_16(v0), w1 = FOLD_16(v1), w2 = FOLD_16(v2), w3 = FOLD_16(v3);             \
    sum_floats(c, step, FOLD_8(w0), FOLD_8(w1), FOLD_8(w2), FOLD_8(w3));                                        \
  }
#include "cpu/gemm_vector_loops.h"
#undef NAME
#undef LANES
#undef SUM_ROWS
#define NAME(x) f32_narrow_##x
#define LANES 8
#define SUM_ROWS(c, step, v0, v1, v2, v3) sum_floats(c, step, FOLD_8(v0), FOLD_8(v1), FOLD_8(v2), FOLD_8(v3))
#include "cpu/gemm_vector_loops.h"
#undef NAME
#undef LANES
#undef SUM_ROWS
#undef ELEM
#undef BITS

#define ELEM double
#define BITS int64_t
#define NAME(x) f64_wide_##x
#define LANES 8
#define SUM_ROWS(c, step, v0, v1, v2, v3)                                                                   \
  {                                                                                                         \
    __typeof__(FOLD_8(v0)) w0 = FOLD_8(v0), w1 = FOLD_8(v1), w2 = FOLD_8(v2), w3 = FOLD_8(v3);              \
    sum_doubles(c, step, FOLD_4(w0), FOLD_4(w1), FOLD_4(w2), FOLD_4(w3));                                   \
  }
#include "cpu/gemm_vector_loops.h"
#undef NAME
#undef LANES
#undef SUM_ROWS
#define NAME(x) f64_narrow_##x
#define LANES 4
#define SUM_ROWS(c, step, v0, v1, v2, v3) sum_doubles(c, step, FOLD_4(v0), FOLD_4(v1), FOLD_4(v2), FOLD_4(v3))
#include "cpu/gemm_vector_loops.h"
#undef NAME
#undef LANES
#undef SUM_ROWS
#undef ELEM
#undef BITS

enum { LEAST_DEPTH = CPU_VECTOR_BYTES / 4 }; /* shorter rows do not fill a vector */

/* A product of one type. Vectors whose elements are not neighbours are first copied to the scratch. */
#define PRODUCT(name, type)                                                                                        \
  static void name##_product(const view *v, int64_t count, int64_t k, const type *m, const type *x, type *c, type *scratch) \
  {                                                                                                                \
    bool wide = cpu_block_is_fast() && !cpu_vector_narrow, by_rows = v->along == 1;                                \
    type *sums = v->c_step == 1 ? c : scratch;                                                                     \
    if (by_rows && v->x_step != 1) {                                                                               \
      for (int64_t l = 0; l < k; l++) scratch[l] = x[l * v->x_step];                                               \
      x = scratch;                                                                                                 \
    }                                                                                                              \
    if (by_rows && v->count == 1) {                                                                                \
      *c = wide ? name##_wide_dot(k, m, x) : name##_narrow_dot(k, m, x);                                           \
    } else if (by_rows) {                                                                                          \
      (wide ? name##_wide_rows : name##_narrow_rows)(count, k, m, v->across, x, c, v->c_step);                     \
    } else {                                                                                                       \
      (wide ? name##_wide_columns : name##_narrow_columns)(count, k, m, v->along, x, v->x_step, sums);             \
      for (int64_t i = 0; i < count && sums != c; i++) c[i * v->c_step] = sums[i];                                 \
    }                                                                                                              \
  }
PRODUCT(f32, float)
PRODUCT(f64, double)

bool cpu_vector_fits(const cpu_gemm *g)
{
  view v = view_of(g);

  if ((g->m != 1 && g->n != 1) || g->k < 1 || g->via != WEFT_INVALID) return false;
  if (g->a_type != g->c_type || g->b_type != g->c_type || (g->c_type != WEFT_F32 && g->c_type != WEFT_F64))
    return false;
  return v.along == 1 ? g->k >= LEAST_DEPTH : v.across == 1; /* both steps count as 1 where k is 1 */
}

void cpu_vector_plan(cpu_gemm *g)
{
  view v = view_of(g);
  int64_t bytes = (int64_t)weft_dtype_bytes(g->c_type), fit = TILE_BYTES / bytes / g->k, scratch = 0;
  int64_t part = WEFT_MAX(v.along == 1 ? ROWS : LEAST_RUN, fit);

  if (v.along != 1 && v.count > part) {
    /* an even number of tiles of one size, which two threads share without a rest */
    int64_t tiles = WEFT_ALIGN_UP((v.count + part - 1) / part, 2);
    part = (v.count + tiles - 1) / tiles;
  }
  part = WEFT_MIN(WEFT_ALIGN_UP(part, 64 / bytes), WEFT_MAX(v.count, 1));
  g->tile_m = v.is_left ? part : g->m;
  g->tile_n = v.is_left ? g->n : part;
  if (v.along == 1 && v.x_step != 1) scratch = g->k;
  else if (v.along != 1 && v.c_step != 1) scratch = part;
  g->scratch_bytes = scratch * bytes;
}

void cpu_vector_tile(const cpu_gemm *g, int64_t m, int64_t n, const char *a, const char *b, char *c, void *scratch)
{
  view v = view_of(g);
  const void *matrix = v.is_left ? a : b, *x = v.is_left ? b : a;
  int64_t count = v.is_left ? m : n;

  if (g->c_type == WEFT_F32) f32_product(&v, count, g->k, matrix, x, (void *)c, scratch);
  else f64_product(&v, count, g->k, matrix, x, (void *)c, scratch);
}
