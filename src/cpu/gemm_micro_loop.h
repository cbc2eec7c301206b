/* cpu/gemm_micro_loop.h -- the innermost loop of a product, for one type and one instruction set; gemm_dense.c and
 * gemm_lanes.c include it once for each, with these defined:
 *   TABLE                                   the declaration of the cpu_micro_table that is made
 *   NAME(x) TARGET ELEM VEC LANES           names, function attributes, element, vector and elements of a vector
 *   MASK MASK_OF(count)                     selects the first `count` lanes
 *   LOAD(p) LOAD_MASKED(m, p) STORE(p, v) STORE_MASKED(p, m, v) SPLAT(x) ZERO FMA(x, y, z)
 *   PREFETCH(p, step)                       asks for the line of p and advances it; not defined: nothing is asked for
 *   EACH_VARIANT(X)                         X(rows, vectors) for every block of C to make a function for
 *
 * C stays in registers: two vectors of b and one number of a at a time. Rows of a are reached from three pointers with
 * scaled steps, since fourteen pointers are more than there are registers. */

#ifndef PREFETCH
#define PREFETCH(p, step)
#endif

#define MICRO(rows, vectors)                                                                                           \
  static TARGET void NAME(micro_##rows##_##vectors)(int64_t k, const void *left, const void *right, void *out,         \
                                                    const cpu_micro_steps *steps, int64_t last, bool add)                 \
  {                                                                                                                    \
    int64_t row = steps->a_row, row3 = 3 * row, a_col = steps->a_col, b_row = steps->b_row, next_step = steps->next_step;\
    const ELEM *a0 = left, *a5 = a0 + 5 * row, *a10 = a5 + 5 * row, *b = right;                                        \
    ELEM *c = out;                                                                                                     \
    const char *next = steps->next ? steps->next : right;                                                              \
    (void)row3, (void)next, (void)next_step; /* of few rows; without PREFETCH */                                       \
    MASK mask = MASK_OF(last);                                                                                         \
    bool is_whole = last == LANES;                                                                                     \
    EACH_##rows(CLEAR_##vectors)                                                                                       \
    for (; k > 0; k--, a0 += a_col, a5 += a_col, a10 += a_col, b += b_row) {                                           \
      PREFETCH(next, next_step)                                                                                        \
      FETCH_##vectors                                                                                                  \
      EACH_##rows(ADD_##vectors)                                                                                       \
    }                                                                                                                  \
    EACH_##rows(KEEP_##vectors)                                                                                        \
  }

EACH_VARIANT(MICRO)

#define ENTRY(rows, vectors) [rows][vectors] = NAME(micro_##rows##_##vectors),
TABLE = {EACH_VARIANT(ENTRY)};

#undef MICRO
#undef PREFETCH
#undef ENTRY
#undef TABLE
#undef NAME
#undef ELEM
#undef VEC
#undef LANES
#undef MASK
#undef MASK_OF
#undef LOAD
#undef LOAD_MASKED
#undef STORE
#undef STORE_MASKED
#undef SPLAT
#undef ZERO
#undef FMA
