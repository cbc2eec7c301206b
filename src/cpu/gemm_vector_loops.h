/* cpu/gemm_vector_loops.h -- the loops of gemm_vector.c, which includes this file once for each type
 * and length of vectors, with these defined:
 *   NAME(x) ELEM BITS LANES   names, element, the integer of its size, elements of a vector
 *   SUM_ROWS(c, step, v0, v1, v2, v3)   c[r * step] = the sum of v_r */

typedef ELEM NAME(vec) __attribute__((vector_size(LANES * sizeof(ELEM)), aligned(sizeof(ELEM)), may_alias));
typedef BITS NAME(mask) __attribute__((vector_size(LANES * sizeof(ELEM)), aligned(sizeof(ELEM)), may_alias));

#define LOAD(p) (*(const NAME(vec) *)(p))
#define LOAD_LAST(p) ((NAME(vec))(*(const NAME(mask) *)(p) & mask))

/* c[n] += x[depth] . m[depth][n].  Asks for what lies `ahead` elements further, if that is not 0. */
static CPU_INLINE void NAME(add)(int depth, int64_t n, const ELEM *m, int64_t row, const ELEM *x, int64_t x_step,
                                 ELEM *c, int64_t ahead)
{
  ELEM factor[DEPTH];
  int64_t j = 0;

  for (int d = 0; d < depth; d++) factor[d] = x[d * x_step];
  for (; j + LANES <= n; j += LANES) {
    NAME(vec) sum = LOAD(c + j);
    for (int d = 0; d < depth; d++) {
      if (LANES * sizeof(ELEM) == 64 && ahead) __builtin_prefetch(m + d * row + j + ahead);
      sum += LOAD(m + d * row + j) * factor[d];
    }
    *(NAME(vec) *)(c + j) = sum;
  }
  for (; j < n; j++) {
    ELEM sum = c[j];
    for (int d = 0; d < depth; d++) sum += m[d * row + j] * factor[d];
    c[j] = sum;
  }
}

static CPU_HOT void NAME(columns)(int64_t n, int64_t k, const ELEM *m, int64_t row, const ELEM *x, int64_t x_step,
                                  ELEM *c)
{
  for (int64_t j = 0; j < n; j += STRIP) {
    int64_t cols = WEFT_MIN(STRIP, n - j), l = 0;
    memset(c + j, 0, (size_t)cols * sizeof *c);
    for (; l + 2 * DEPTH <= k; l += DEPTH)
      NAME(add)(DEPTH, cols, m + l * row + j, row, x + l * x_step, x_step, c + j, DEPTH * row);
    for (; l + DEPTH <= k; l += DEPTH) NAME(add)(DEPTH, cols, m + l * row + j, row, x + l * x_step, x_step, c + j, 0);
    for (; l < k; l++) NAME(add)(1, cols, m + l * row + j, row, x + l * x_step, x_step, c + j, 0);
  }
}

/* c[n] = m[n][k] . x. The last elements of a row, if they do not fill a vector, are read together with elements before
 * them. The mask sets those to zero in both factors, because zero times infinity would be NaN. */
static CPU_HOT void NAME(rows)(int64_t n, int64_t k, const ELEM *m, int64_t row, const ELEM *x, ELEM *c, int64_t c_step)
{
  NAME(mask) mask = {0};
  int64_t pairs = k / (2 * LANES) * (2 * LANES), whole = k / LANES * LANES;

  for (int64_t t = 0; t < LANES; t++) mask[t] = t >= LANES - (k - whole) ? -1 : 0;
  for (int64_t i = 0; i < n; i += ROWS) {
    const ELEM *m0 = m + i * row, *m1 = m + WEFT_MIN(i + 1, n - 1) * row, *m2 = m + WEFT_MIN(i + 2, n - 1) * row,
               *m3 = m + WEFT_MIN(i + 3, n - 1) * row;
    NAME(vec) s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, t0 = {0}, t1 = {0}, t2 = {0}, t3 = {0};
    for (int64_t l = 0; l < pairs; l += 2 * LANES) {
      NAME(vec) f = LOAD(x + l), g = LOAD(x + l + LANES);
      s0 += LOAD(m0 + l) * f;
      s1 += LOAD(m1 + l) * f;
      s2 += LOAD(m2 + l) * f;
      s3 += LOAD(m3 + l) * f;
      t0 += LOAD(m0 + l + LANES) * g;
      t1 += LOAD(m1 + l + LANES) * g;
      t2 += LOAD(m2 + l + LANES) * g;
      t3 += LOAD(m3 + l + LANES) * g;
    }
    if (pairs < whole) {
      NAME(vec) f = LOAD(x + pairs);
      s0 += LOAD(m0 + pairs) * f;
      s1 += LOAD(m1 + pairs) * f;
      s2 += LOAD(m2 + pairs) * f;
      s3 += LOAD(m3 + pairs) * f;
    }
    if (whole < k) {
      NAME(vec) f = LOAD_LAST(x + k - LANES);
      t0 += LOAD_LAST(m0 + k - LANES) * f;
      t1 += LOAD_LAST(m1 + k - LANES) * f;
      t2 += LOAD_LAST(m2 + k - LANES) * f;
      t3 += LOAD_LAST(m3 + k - LANES) * f;
    }
    s0 += t0, s1 += t1, s2 += t2, s3 += t3;
    if (i + ROWS <= n) {
      SUM_ROWS(c + i * c_step, c_step, s0, s1, s2, s3);
      continue;
    }
    ELEM last[ROWS];
    SUM_ROWS(last, 1, s0, s1, s2, s3);
    for (int64_t r = i; r < n; r++) c[r * c_step] = last[r - i];
  }
}

/* The product of two vectors, of at least one vector of lanes. */
static CPU_HOT ELEM NAME(dot)(int64_t k, const ELEM *a, const ELEM *b)
{
  NAME(vec) s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
  NAME(mask) mask = {0};
  int64_t whole = k / LANES * LANES, l = 0;

  for (int64_t t = 0; t < LANES; t++) mask[t] = t >= LANES - (k - whole) ? -1 : 0;
  for (; l + 4 * LANES <= k; l += 4 * LANES) {
    s0 += LOAD(a + l) * LOAD(b + l);
    s1 += LOAD(a + l + LANES) * LOAD(b + l + LANES);
    s2 += LOAD(a + l + 2 * LANES) * LOAD(b + l + 2 * LANES);
    s3 += LOAD(a + l + 3 * LANES) * LOAD(b + l + 3 * LANES);
  }
  for (; l < whole; l += LANES) s0 += LOAD(a + l) * LOAD(b + l);
  if (whole < k) s1 += LOAD_LAST(a + k - LANES) * LOAD_LAST(b + k - LANES);
  s0 += s1;
  s2 += s3;
  s0 += s2;
  ELEM sums[ROWS];
  SUM_ROWS(sums, 1, s0, s0, s0, s0);
  return sums[0];
}

#undef LOAD
#undef LOAD_LAST
