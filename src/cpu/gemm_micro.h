/* cpu/gemm_micro.h -- the innermost loop of a product, for one type and one instruction set; gemm_dense.c and others include it once
 * for each, with these defined:
 *   NAME(x) TARGET ELEM VEC LANES           names, function attributes, element, vector and elements of a vector
 *   MASK MASK_OF(count)                     selects the first `count` lanes
 *   LOAD(p) LOAD_MASKED(m, p) STORE(p, v) STORE_MASKED(p, m, v) SPLAT(x) ZERO FMA(x, y, z)
 *   EACH_VARIANT(X)                         X(rows, vectors) for every block of C to make a function for
 *
 * c[rows, n] (+)= a . b for n columns in one or two vectors, the last of them of `last` lanes.  C stays in registers: two
 * vectors of b and one number of a at a time.  Rows of a are reached from three pointers with scaled steps, since fourteen
 * pointers are more than there are registers. */

#define ROW_0 a0[0]
#define ROW_1 a0[row]
#define ROW_2 a0[2 * row]
#define ROW_3 a0[row3]
#define ROW_4 a0[4 * row]
#define ROW_5 a5[0]
#define ROW_6 a5[row]
#define ROW_7 a5[2 * row]
#define ROW_8 a5[row3]
#define ROW_9 a5[4 * row]
#define ROW_10 a10[0]
#define ROW_11 a10[row]
#define ROW_12 a10[2 * row]
#define ROW_13 a10[row3]

#define EACH_1(X) X(0)
#define EACH_2(X) EACH_1(X) X(1)
#define EACH_3(X) EACH_2(X) X(2)
#define EACH_4(X) EACH_3(X) X(3)
#define EACH_5(X) EACH_4(X) X(4)
#define EACH_6(X) EACH_5(X) X(5)
#define EACH_7(X) EACH_6(X) X(6)
#define EACH_8(X) EACH_7(X) X(7)
#define EACH_9(X) EACH_8(X) X(8)
#define EACH_10(X) EACH_9(X) X(9)
#define EACH_11(X) EACH_10(X) X(10)
#define EACH_12(X) EACH_11(X) X(11)
#define EACH_13(X) EACH_12(X) X(12)
#define EACH_14(X) EACH_13(X) X(13)

#define CLEAR_1(i) VEC s##i##0 = ZERO;
#define CLEAR_2(i) VEC s##i##0 = ZERO, s##i##1 = ZERO;
#define FETCH_1 VEC b0 = LOAD_MASKED(mask, b);
#define FETCH_2 VEC b0 = LOAD(b), b1 = LOAD_MASKED(mask, b + LANES);
#define ADD_1(i) s##i##0 = FMA(SPLAT(ROW_##i), b0, s##i##0);
#define ADD_2(i)                   \
  {                                \
    VEC x = SPLAT(ROW_##i);        \
    s##i##0 = FMA(x, b0, s##i##0); \
    s##i##1 = FMA(x, b1, s##i##1); \
  }
#define KEEP_1(i)                                                     \
  if (add) s##i##0 += LOAD_MASKED(mask, c + i * steps->c_row);        \
  STORE_MASKED(c + i * steps->c_row, mask, s##i##0);
#define KEEP_2(i)                                                     \
  {                                                                   \
    ELEM *to = c + i * steps->c_row;                                  \
    if (add) {                                                        \
      s##i##0 += LOAD(to);                                            \
      s##i##1 += LOAD_MASKED(mask, to + LANES);                       \
    }                                                                 \
    STORE(to, s##i##0);                                               \
    STORE_MASKED(to + LANES, mask, s##i##1);                          \
  }

#define MICRO(rows, vectors)                                                                                           \
  static TARGET void NAME(micro_##rows##_##vectors)(int64_t k, const void *left, const void *right, void *out,         \
                                                    const micro_steps *steps, int64_t last, bool add)                 \
  {                                                                                                                    \
    int64_t row = steps->a_row, row3 = 3 * row, a_col = steps->a_col, b_row = steps->b_row;                            \
    const ELEM *a0 = left, *a5 = a0 + 5 * row, *a10 = a5 + 5 * row, *b = right;                                        \
    ELEM *c = out;                                                                                                     \
    (void)row3; /* of few rows */                                                                                      \
    MASK mask = MASK_OF(last);                                                                                         \
    EACH_##rows(CLEAR_##vectors)                                                                                       \
    for (; k > 0; k--, a0 += a_col, a5 += a_col, a10 += a_col, b += b_row) {                                           \
      FETCH_##vectors                                                                                                  \
      EACH_##rows(ADD_##vectors)                                                                                       \
    }                                                                                                                  \
    EACH_##rows(KEEP_##vectors)                                                                                        \
  }

EACH_VARIANT(MICRO)

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
