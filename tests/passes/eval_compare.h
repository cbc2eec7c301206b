/* tests/passes/eval_compare.h -- Running a module before and after passes on the reference evaluator, and comparing
 * what comes out. */
#ifndef WEFT_TESTS_PASSES_EVAL_COMPARE_H
#define WEFT_TESTS_PASSES_EVAL_COMPARE_H

#include <math.h>

#include "hlo/eval.h"
#include "test.h"

static inline uint64_t next_random(uint64_t *state) /* splitmix64 */
{
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* Floats in [-1, 1], integers in [0, 8), so that they serve as indices; tuples element by element. */
static inline const hlo_literal *random_literal(weft_arena *arena, const hlo_shape *shape, uint64_t *state)
{
  hlo_literal *literal;

  T_OK(hlo_literal_new(arena, shape, &literal));
  if (hlo_shape_is_tuple(shape)) {
    for (int i = 0; i < shape->rank; i++) literal->elements[i] = random_literal(arena, shape->elements[i], state);
    return literal;
  }
  for (int64_t i = 0; hlo_shape_is_array(shape) && i < hlo_shape_elems(shape); i++) {
    uint64_t r = next_random(state);
    if (weft_dtype_is_float(shape->type) || weft_dtype_is_complex(shape->type))
      hlo_literal_set_f64(literal, i, (double)(r >> 11) * 0x1p-52 - 1, (double)(r & 0xffff) / 0x8000 - 1);
    else hlo_literal_set_s64(literal, i, (int64_t)(r % (shape->type == WEFT_PRED ? 2 : 8)));
  }
  return literal;
}

static inline double tolerance_of(weft_dtype type)
{
  switch (type) {
  case WEFT_F64: case WEFT_C128: case WEFT_F32: case WEFT_C64: return 2e-5; /* an f64 may have been an f32 */
  default: return weft_dtype_is_float(type) ? 2e-2 : 0;
  }
}

static inline bool near(double got, double want, double tolerance)
{
  if (isnan(want)) return isnan(got);
  if (got == want) return true;
  return fabs(got - want) <= tolerance * fmax(1, fabs(want));
}

/* False, with a message, at the first difference.  `slack`: least tolerance of floats. */
static inline bool literals_within(const hlo_literal *got, const hlo_literal *want, const char *what, double slack)
{
  if (!hlo_shape_equal(got->shape, want->shape, false)) {
    print_message("# %s: shapes differ\n", what);
    return false;
  }
  if (hlo_shape_is_tuple(want->shape)) {
    for (int i = 0; i < want->shape->rank; i++)
      if (!literals_within(got->elements[i], want->elements[i], what, slack)) return false;
    return true;
  }
  if (!hlo_shape_is_array(want->shape)) return true;
  double tolerance = tolerance_of(want->shape->type);
  if (tolerance > 0) tolerance = fmax(tolerance, slack);
  for (int64_t i = 0; i < hlo_shape_elems(want->shape); i++) {
    if (tolerance == 0 ? hlo_literal_get_s64(got, i) == hlo_literal_get_s64(want, i)
                       : near(hlo_literal_get_f64(got, i), hlo_literal_get_f64(want, i), tolerance) &&
                           near(hlo_literal_get_imag(got, i), hlo_literal_get_imag(want, i), tolerance))
      continue;
    char shape[128];
    print_message("# %s: element %" PRId64 " of %s: got %.17g, want %.17g\n", what, i,
                  hlo_shape_format(want->shape, shape, sizeof shape), hlo_literal_get_f64(got, i),
                  hlo_literal_get_f64(want, i));
    return false;
  }
  return true;
}

/* Equal numbers, or NaN for NaN; the sign of a zero may differ where a maximum or a sum of zeros left it open. */
static inline bool literals_same(const hlo_literal *got, const hlo_literal *want, const char *what)
{
  if (hlo_shape_is_tuple(want->shape)) {
    for (int i = 0; i < want->shape->rank; i++)
      if (!literals_same(got->elements[i], want->elements[i], what)) return false;
    return true;
  }
  for (int64_t i = 0; i < hlo_shape_elems(want->shape); i++) {
    double g = hlo_literal_get_f64(got, i), w = hlo_literal_get_f64(want, i);
    char shape[128];
    if (g == w || (isnan(g) && isnan(w))) continue;
    print_message("# %s: element %" PRId64 " of %s: got %.17g, want %.17g\n", what, i,
                  hlo_shape_format(want->shape, shape, sizeof shape), g, w);
    return false;
  }
  return true;
}

static inline bool literals_near(const hlo_literal *got, const hlo_literal *want, const char *what)
{
  return literals_within(got, want, what, 0);
}

#endif
