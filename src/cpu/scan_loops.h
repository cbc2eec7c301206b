/* cpu/scan_loops.h -- the loops of cpu/scan.c for one type and one operation; included once for each.
 *
 * ELEM: the type; NAME(x): the name of function x; OP(a, b): the operation. SQUARES: ELEM has 32 bits, and OP takes
 * vectors, too. */

/* An element in the state of a row, whose declared type is that of bytes. */
typedef ELEM NAME(kept) __attribute__((may_alias));

/* Sums of whole blocks, each begun with `init`: `blocks` of `size` elements lie one behind the other. Eight blocks
 * are summed side by side, since an addition waits for the one before it. */
static CPU_INLINE void NAME(sum_blocks)(const ELEM *in, ELEM *out, int64_t step, int64_t size, int64_t blocks,
                                        ELEM init, ELEM *sums)
{
  int64_t b = 0;

  for (; b + SIDE_BY_SIDE <= blocks; b += SIDE_BY_SIDE) {
    const ELEM *x = in + step * b * size;
    ELEM *y = out + step * b * size, s[SIDE_BY_SIDE];
    for (int i = 0; i < SIDE_BY_SIDE; i++) s[i] = init;
    for (int64_t j = 0; j < size; j++)
      for (int i = 0; i < SIDE_BY_SIDE; i++) {
        s[i] = OP(s[i], x[step * (i * size + j)]);
        y[step * (i * size + j)] = s[i];
      }
    for (int i = 0; i < SIDE_BY_SIDE; i++) sums[b + i] = s[i];
  }
  for (; b < blocks; b++) {
    ELEM s = init;
    for (int64_t j = b * size; j < (b + 1) * size; j++) out[step * j] = s = OP(s, in[step * j]);
    sums[b] = s;
  }
}

/* Combines the elements of whole blocks with their carries. `out`: the first element of the scan's first block. */
static CPU_INLINE void NAME(add_carries)(ELEM *restrict out, int64_t step, int64_t size, int64_t blocks,
                                         const ELEM *restrict carries)
{
  ELEM *y = step > 0 ? out : out - (size - 1);

  for (int64_t b = 0; b < blocks; b++, y += step * size)
    for (int64_t j = 0; j < size; j++) y[j] = OP(carries[b], y[j]);
}

/* The scan of one row, of which the next element of level `l` is x. */
static ELEM NAME(push)(const cpu_scan *s, progress *p, int l, ELEM x, ELEM init)
{
  NAME(kept) *sum = (NAME(kept) *)p[l].sum, *carry = (NAME(kept) *)p[l].carry;
  bool is_top = l + 1 == s->levels;

  if (p[l].at == 0) {
    if (!is_top) *carry = NAME(push)(s, p, l + 1, p[l].has_begun ? *sum : init, init);
    *sum = init;
    p[l].has_begun = true;
  }
  *sum = OP(*sum, x);
  if (++p[l].at == s->size[l] && !is_top) p[l].at = 0;
  return is_top ? *sum : OP(*carry, *sum);
}

/* The same for `width` columns side by side, whose state lies in sums and carries, `width` for each level. out may
 * be x. */
static CPU_HOT void NAME(combine)(int64_t width, const ELEM *a, const ELEM *b, ELEM *out)
{
  CPU_INDEPENDENT
  for (int64_t i = 0; i < width; i++) out[i] = OP(a[i], b[i]);
}

static CPU_HOT void NAME(combine_twice)(int64_t width, ELEM *sum, const ELEM *carry, const ELEM *x, ELEM *out)
{
  CPU_INDEPENDENT
  for (int64_t i = 0; i < width; i++) {
    ELEM so_far = OP(sum[i], x[i]);
    sum[i] = so_far;
    out[i] = OP(carry[i], so_far);
  }
}

static void NAME(push_columns)(const cpu_scan *s, progress *p, int l, int64_t width, const void *x, const void *init,
                               void *states, void *out)
{
  ELEM *sum = (ELEM *)states + 2 * l * width, *carry = sum + width;
  bool is_top = l + 1 == s->levels;

  if (p[l].at == 0) {
    if (!is_top) NAME(push_columns)(s, p, l + 1, width, p[l].has_begun ? sum : init, init, states, carry);
    memcpy(sum, init, (size_t)width * sizeof *sum);
    p[l].has_begun = true;
  }
  if (++p[l].at == s->size[l] && !is_top) p[l].at = 0;
  if (is_top) {
    NAME(combine)(width, sum, x, sum);
    memcpy(out, sum, (size_t)width * sizeof *sum);
  } else NAME(combine_twice)(width, sum, carry, x, out);
}

/* Replaces the sums of `blocks` blocks of level 0 by what comes before each block. */
static void NAME(carry)(const cpu_scan *s, progress *p, int64_t blocks, void *sums, const void *init)
{
  ELEM first = *(const NAME(kept) *)init, *v = sums, before = p[0].has_begun ? *(NAME(kept) *)p[0].sum : first;
  ELEM sum = *(NAME(kept) *)p[1].sum, carry = *(NAME(kept) *)p[1].carry;
  bool is_top = s->levels == 2;
  int64_t at = p[1].at;

  for (int64_t b = 0, end; b < blocks; b = end) { /* as push does, but in registers */
    if (at == 0) {
      if (!is_top) carry = NAME(push)(s, p, 2, p[1].has_begun ? sum : first, first);
      p[1].has_begun = true;
      sum = first;
    }
    end = is_top ? blocks : WEFT_MIN(blocks, b + s->size[1] - at);
    at += end - b;
    for (int64_t i = b; i < end; i++) {
      ELEM x = before;
      before = v[i];
      sum = OP(sum, x);
      v[i] = is_top ? sum : OP(carry, sum);
    }
    if (!is_top && at == s->size[1]) at = 0;
  }
  *(NAME(kept) *)p[0].sum = before;
  p[0].has_begun = true;
  *(NAME(kept) *)p[1].sum = sum;
  *(NAME(kept) *)p[1].carry = carry;
  p[1].at = at;
}

#ifdef SQUARES
static CPU_INLINE void NAME(reverse)(ELEM *v)
{
  for (int i = 0; i < GEN_SCAN_BLOCK / 2; i++) {
    ELEM swap = v[i];
    v[i] = v[GEN_SCAN_BLOCK - 1 - i];
    v[GEN_SCAN_BLOCK - 1 - i] = swap;
  }
}

typedef ELEM NAME(lanes) __attribute__((vector_size(GEN_SCAN_BLOCK * sizeof(ELEM)), may_alias, aligned(64)));

/* Scans `squares` times GEN_SCAN_BLOCK blocks of that size, at most a chunk. A square is turned, so that a vector has
 * one element of each block, and turned back. `carries`: as for chunk. */
static CPU_HOT void NAME(squares)(const cpu_scan *s, progress *p, turn_square *turn, const ELEM *in, ELEM *out,
                                  int64_t step, int64_t squares, ELEM init, const ELEM *carries)
{
  enum { SIZE = GEN_SCAN_BLOCK, SQUARE = SIZE * SIZE };
  const NAME(lanes) zero = {0};
  _Alignas(64) ELEM turned[CHUNK], before[CHUNK / SIZE];
  int64_t low = step > 0 ? 0 : 1 - SQUARE; /* from the scan's first element to the lowest one of its square */

  for (int64_t i = 0; i < squares; i++) {
    NAME(lanes) *rows = (NAME(lanes) *)(turned + i * SQUARE), sum = zero + init;
    turn(in + low + step * i * SQUARE, rows);
    for (int j = 0; j < SIZE; j++) {
      NAME(lanes) *row = &rows[step > 0 ? j : SIZE - 1 - j];
      *row = sum = OP(sum, *row);
    }
    memcpy(before + i * SIZE, &sum, sizeof sum);
    if (step < 0) NAME(reverse)(before + i * SIZE);
  }
  if (carries) memcpy(before, carries, (size_t)(squares * SIZE) * sizeof *before);
  else NAME(carry)(s, p, squares * SIZE, before, &init);
  for (int64_t i = 0; i < squares; i++) {
    NAME(lanes) *rows = (NAME(lanes) *)(turned + i * SQUARE);
    if (step < 0) NAME(reverse)(before + i * SIZE);
    NAME(lanes) carry = *(const NAME(lanes) *)(before + i * SIZE);
    for (int j = 0; j < SIZE; j++) rows[j] = OP(carry, rows[j]);
    turn(rows, out + low + step * i * SQUARE);
  }
}
#endif

static CPU_INLINE void NAME(blocks)(const cpu_scan *s, progress *p, const ELEM *in, ELEM *out, int64_t step,
                                    int64_t size, int64_t count, ELEM init, const ELEM *carries)
{
  int64_t blocks = count / size, rest = count - blocks * size;
  ELEM sums[MOST_BLOCKS + 1], sum = init;

#ifdef SQUARES
  turn_square *turn = size == GEN_SCAN_BLOCK && blocks >= GEN_SCAN_BLOCK ? square_turner() : NULL;
  if (turn) {
    int64_t squares = blocks / GEN_SCAN_BLOCK, done = squares * GEN_SCAN_BLOCK * GEN_SCAN_BLOCK;
    NAME(squares)(s, p, turn, in, out, step, squares, init, carries);
    if (done == count) return;
    in += step * done;
    out += step * done;
    blocks -= squares * GEN_SCAN_BLOCK;
    if (carries) carries += squares * GEN_SCAN_BLOCK;
  }
#endif
  NAME(sum_blocks)(in, out, step, size, blocks, init, sums);
  in += step * blocks * size;
  for (int64_t j = 0; j < rest; j++) out[step * (blocks * size + j)] = sum = OP(sum, in[step * j]);
  if (!carries) {
    sums[blocks] = sum;
    NAME(carry)(s, p, blocks + (rest > 0), sums, &init);
    carries = sums;
  }
  NAME(add_carries)(out, step, size, blocks, carries);
  out += step * blocks * size;
  for (int64_t j = 0; j < rest; j++) out[step * j] = OP(carries[blocks], out[step * j]);
}

/* Scans `count` elements, which begin with a block of level 0. `carries`: what comes before each block, or NULL. The
 * usual size is a constant for the compiler. */
static CPU_HOT void NAME(chunk)(const cpu_scan *s, progress *p, const void *in, void *out, int64_t count,
                                const void *init, const void *carries)
{
  int64_t size = s->size[0];
  ELEM first = *(const NAME(kept) *)init;

  if (size == GEN_SCAN_BLOCK && !s->is_reverse) NAME(blocks)(s, p, in, out, 1, GEN_SCAN_BLOCK, count, first, carries);
  else if (size == GEN_SCAN_BLOCK) NAME(blocks)(s, p, in, out, -1, GEN_SCAN_BLOCK, count, first, carries);
  else NAME(blocks)(s, p, in, out, s->is_reverse ? -1 : 1, size, count, first, carries);
}

/* The sum of each block of a chunk. */
static CPU_HOT void NAME(totals)(const cpu_scan *s, const void *in, int64_t count, const void *init, void *out)
{
  int64_t size = s->size[0], step = s->is_reverse ? -1 : 1;
  ELEM *sums = out;

  for (int64_t at = 0; at < count; at += size) {
    ELEM sum = *(const NAME(kept) *)init;
    for (int64_t j = at; j < WEFT_MIN(at + size, count); j++) sum = OP(sum, ((const ELEM *)in)[step * j]);
    *sums++ = sum;
  }
}

static const scan_loops NAME(loops) = {NAME(chunk), NAME(totals), NAME(carry), NAME(push_columns)};
