/* cpu/sort_vector_loops.h -- the functions of sort_vector.h for one size of keys and one width of vectors. Included by
 * sort_vector.c once for each, which defines:
 *
 *   NAME(function), KEY (the type of a key), VEC, LANES (8 or 16), TARGET (the attribute for the instructions)
 *   LOAD(from), STORE(to, v), LEAST(a, b), MOST(a, b)
 *   LOAD_FIRST(from, n)       the first n of LANES keys, then the greatest of all keys; n may be 0 and less
 *   STORE_FIRST(to, v, n)     stores the first n lanes; n may be 0 and less, or more than LANES
 *   TURN_2, TURN_4, TURN_8 (, TURN_16)(v)   reverses each group of so many neighbouring lanes
 *   SWAP_2 (, SWAP_4)(v)      exchanges lanes 2 (4) apart
 *   UPPER_1, UPPER_2, UPPER_4 (, UPPER_8)(a, b)   a, and from b the lanes whose number has that bit
 *   SPLIT_VECTOR(v, pivot, to, below, above)    stores the lanes below the pivot from to + below on, and the others up
 *                             to to + above; moves both. The free keys between the two are a multiple of LANES
 *   BROADCAST(key)
 *
 * Up to 8 vectors are sorted as the rows of a matrix. First each column is sorted, by a network of comparators of whole
 * vectors. Then neighbouring columns are merged to runs of 2, 4, 8 (, 16) columns; a run lies along the rows. The
 * network that merges is bitonic: a key is compared with the key at the mirrored place of the run, which is the
 * mirrored lane of the mirrored row; the same is done in the upper and in the lower half of the rows, and so on.
 * Within a row the first comparison is with the mirrored lane, and the later ones with the lanes 4, 2 and 1 apart. */

/* Puts the lesser keys in a and the greater ones in b. */
#define SORT_2(a, b)      \
  do {                    \
    VEC least_ = LEAST(a, b); \
    (b) = MOST(a, b);     \
    (a) = least_;         \
  } while (0)
/* The same with b's lanes mirrored. */
#define FOLD(TURN, a, b)  \
  do {                    \
    VEC turned_ = TURN(b); \
    (b) = MOST(a, turned_); \
    (a) = LEAST(a, turned_); \
  } while (0)
/* Compares the lanes of v with those of v moved; the greater keys go to the lanes that UPPER takes from its second
 * operand. */
#define COMPARE_LANES(MOVE, UPPER, v)                  \
  do {                                                 \
    VEC moved_ = MOVE(v);                              \
    (v) = UPPER(LEAST(v, moved_), MOST(v, moved_)); \
  } while (0)

/* The end of a merge within a row of runs of 2, 4, 8 and 16 lanes. */
#define IN_ROW_2(v) COMPARE_LANES(TURN_2, UPPER_1, v)
#define IN_ROW_4(v)                    \
  COMPARE_LANES(TURN_4, UPPER_2, v); \
  COMPARE_LANES(TURN_2, UPPER_1, v)
#define IN_ROW_8(v)                    \
  COMPARE_LANES(TURN_8, UPPER_4, v); \
  COMPARE_LANES(SWAP_2, UPPER_2, v); \
  COMPARE_LANES(TURN_2, UPPER_1, v)
#define IN_ROW_16(v)                   \
  COMPARE_LANES(TURN_16, UPPER_8, v); \
  COMPARE_LANES(SWAP_4, UPPER_4, v); \
  COMPARE_LANES(SWAP_2, UPPER_2, v); \
  COMPARE_LANES(TURN_2, UPPER_1, v)

#define MERGE_1(TURN, IN_ROW) IN_ROW(v0)
#define MERGE_2(TURN, IN_ROW) \
  FOLD(TURN, v0, v1);         \
  IN_ROW(v0);                 \
  IN_ROW(v1)
#define MERGE_4(TURN, IN_ROW) \
  FOLD(TURN, v0, v3);         \
  FOLD(TURN, v1, v2);         \
  FOLD(TURN, v0, v1);         \
  FOLD(TURN, v2, v3);         \
  IN_ROW(v0);                 \
  IN_ROW(v1);                 \
  IN_ROW(v2);                 \
  IN_ROW(v3)
#define MERGE_8(TURN, IN_ROW) \
  FOLD(TURN, v0, v7);         \
  FOLD(TURN, v1, v6);         \
  FOLD(TURN, v2, v5);         \
  FOLD(TURN, v3, v4);         \
  FOLD(TURN, v0, v3);         \
  FOLD(TURN, v1, v2);         \
  FOLD(TURN, v4, v7);         \
  FOLD(TURN, v5, v6);         \
  FOLD(TURN, v0, v1);         \
  FOLD(TURN, v2, v3);         \
  FOLD(TURN, v4, v5);         \
  FOLD(TURN, v6, v7);         \
  IN_ROW(v0);                 \
  IN_ROW(v1);                 \
  IN_ROW(v2);                 \
  IN_ROW(v3);                 \
  IN_ROW(v4);                 \
  IN_ROW(v5);                 \
  IN_ROW(v6);                 \
  IN_ROW(v7)

#if LANES == 16
#define MERGE_COLUMNS(MERGE)  \
  MERGE(TURN_2, IN_ROW_2);    \
  MERGE(TURN_4, IN_ROW_4);    \
  MERGE(TURN_8, IN_ROW_8);    \
  MERGE(TURN_16, IN_ROW_16)
#else
#define MERGE_COLUMNS(MERGE)  \
  MERGE(TURN_2, IN_ROW_2);    \
  MERGE(TURN_4, IN_ROW_4);    \
  MERGE(TURN_8, IN_ROW_8)
#endif

static TARGET void NAME(sort_1_row)(const KEY *keys, int64_t n, KEY *to)
{
  VEC v0 = LOAD_FIRST(keys, n);

  MERGE_COLUMNS(MERGE_1);
  STORE_FIRST(to, v0, n);
}

static TARGET void NAME(sort_2_rows)(const KEY *keys, int64_t n, KEY *to)
{
  VEC v0 = LOAD(keys), v1 = LOAD_FIRST(keys + LANES, n - LANES);

  SORT_2(v0, v1);
  MERGE_COLUMNS(MERGE_2);
  STORE(to, v0);
  STORE_FIRST(to + LANES, v1, n - LANES);
}

static TARGET void NAME(sort_4_rows)(const KEY *keys, int64_t n, KEY *to)
{
  VEC v0 = LOAD(keys), v1 = LOAD(keys + LANES), v2 = LOAD_FIRST(keys + 2 * LANES, n - 2 * LANES),
      v3 = LOAD_FIRST(keys + 3 * LANES, n - 3 * LANES);

  SORT_2(v0, v2);
  SORT_2(v1, v3);
  SORT_2(v0, v1);
  SORT_2(v2, v3);
  SORT_2(v1, v2);
  MERGE_COLUMNS(MERGE_4);
  STORE(to, v0);
  STORE(to + LANES, v1);
  STORE_FIRST(to + 2 * LANES, v2, n - 2 * LANES);
  STORE_FIRST(to + 3 * LANES, v3, n - 3 * LANES);
}

/* The columns are sorted by the least network for 8 keys, of 19 comparators (Knuth, The Art of Computer Programming,
 * volume 3, section 5.3.4). */
static TARGET void NAME(sort_8_rows)(const KEY *keys, int64_t n, KEY *to)
{
  VEC v0 = LOAD(keys), v1 = LOAD(keys + LANES), v2 = LOAD(keys + 2 * LANES), v3 = LOAD(keys + 3 * LANES),
      v4 = LOAD_FIRST(keys + 4 * LANES, n - 4 * LANES), v5 = LOAD_FIRST(keys + 5 * LANES, n - 5 * LANES),
      v6 = LOAD_FIRST(keys + 6 * LANES, n - 6 * LANES), v7 = LOAD_FIRST(keys + 7 * LANES, n - 7 * LANES);

  SORT_2(v0, v2);
  SORT_2(v1, v3);
  SORT_2(v4, v6);
  SORT_2(v5, v7);
  SORT_2(v0, v4);
  SORT_2(v1, v5);
  SORT_2(v2, v6);
  SORT_2(v3, v7);
  SORT_2(v0, v1);
  SORT_2(v2, v3);
  SORT_2(v4, v5);
  SORT_2(v6, v7);
  SORT_2(v2, v4);
  SORT_2(v3, v5);
  SORT_2(v1, v4);
  SORT_2(v3, v6);
  SORT_2(v1, v2);
  SORT_2(v3, v4);
  SORT_2(v5, v6);
  MERGE_COLUMNS(MERGE_8);
  STORE(to, v0);
  STORE(to + LANES, v1);
  STORE(to + 2 * LANES, v2);
  STORE(to + 3 * LANES, v3);
  STORE_FIRST(to + 4 * LANES, v4, n - 4 * LANES);
  STORE_FIRST(to + 5 * LANES, v5, n - 5 * LANES);
  STORE_FIRST(to + 6 * LANES, v6, n - 6 * LANES);
  STORE_FIRST(to + 7 * LANES, v7, n - 7 * LANES);
}

/* Sorts keys[n], n <= 8 * LANES, to `to`, which may be `keys`. */
static TARGET void NAME(sort_few)(const KEY *keys, int64_t n, KEY *to)
{
  if (n <= LANES) NAME(sort_1_row)(keys, n, to);
  else if (n <= 2 * LANES) NAME(sort_2_rows)(keys, n, to);
  else if (n <= 4 * LANES) NAME(sort_4_rows)(keys, n, to);
  else NAME(sort_8_rows)(keys, n, to);
}

static TARGET int64_t NAME(split)(const void *from, int64_t n, uint64_t by, void *at)
{
  const KEY *keys = from, pivot = (KEY)by;
  KEY *to = at;
  const VEC pivots = BROADCAST(pivot);
  int64_t below = 0, above = n, i = 0;

  for (; i < n % LANES; i++) { /* both places are free, and no branch depends on the key */
    KEY key = keys[i];
    to[below] = key;
    to[above - 1] = key;
    below += key < pivot;
    above -= key >= pivot;
  }
  for (; i + 4 * LANES <= n; i += 4 * LANES) {
    VEC a = LOAD(keys + i), b = LOAD(keys + i + LANES), c = LOAD(keys + i + 2 * LANES), d = LOAD(keys + i + 3 * LANES);
    SPLIT_VECTOR(a, pivots, to, below, above);
    SPLIT_VECTOR(b, pivots, to, below, above);
    SPLIT_VECTOR(c, pivots, to, below, above);
    SPLIT_VECTOR(d, pivots, to, below, above);
  }
  for (; i < n; i += LANES) {
    VEC v = LOAD(keys + i);
    SPLIT_VECTOR(v, pivots, to, below, above);
  }
  return below;
}

#define MIDDLE(a, b, c) MOST(LEAST(a, b), LEAST(MOST(a, b), c))

/* The median of a few vectors' medians: lane by lane of three vectors or of three times three, then of the lanes. */
static TARGET KEY NAME(pivot)(const KEY *keys, int64_t n)
{
  int64_t step = (n - LANES) / 8;
  VEC v0 = MIDDLE(LOAD(keys + step), LOAD(keys + 4 * step), LOAD(keys + 7 * step));
  KEY lanes[LANES];

  if (n >= MANY) {
    VEC a = MIDDLE(LOAD(keys), LOAD(keys + 3 * step), LOAD(keys + 6 * step)),
        b = MIDDLE(LOAD(keys + 2 * step), LOAD(keys + 5 * step), LOAD(keys + 8 * step));
    v0 = MIDDLE(a, v0, b);
  }
  MERGE_COLUMNS(MERGE_1);
  STORE(lanes, v0);
  return lanes[LANES / 2];
}

static uint64_t NAME(any_pivot)(const void *keys, int64_t n) { return NAME(pivot)(keys, n); }

/* Sorts keys[n] to `to`, which is `keys` or `spare`. No key is less than `least`. After `rounds` splits of one part it
 * is left to `slow`. */
static void NAME(sort_part)(KEY *keys, KEY *spare, KEY *to, int64_t n, KEY least, int rounds, cpu_sort_fn *slow)
{
  while (n > 8 * LANES) {
    if (rounds-- == 0) {
      const KEY *sorted = slow(keys, spare, n);
      if (sorted != to) memcpy(to, sorted, (size_t)n * sizeof *to);
      return;
    }
    KEY pivot = NAME(pivot)(keys, n);
    bool is_least = pivot == least;     /* its equals go to the front, and are in order */
    if (is_least && pivot == (KEY)-1) { /* all are equal */
      if (to != keys) memcpy(to, keys, (size_t)n * sizeof *to);
      return;
    }
    int64_t below = NAME(split)(keys, n, is_least ? pivot + 1 : pivot, spare);
    if (!is_least) NAME(sort_part)(spare, keys, to, below, least, rounds, slow);
    else if (to != spare) memcpy(to, spare, (size_t)below * sizeof *to);
    least = is_least ? pivot + 1 : pivot;
    KEY *rest = spare + below;
    spare = keys + below;
    keys = rest;
    to += below;
    n -= below;
  }
  NAME(sort_few)(keys, n, to);
}

static void NAME(sort)(void *keys, void *spare, void *to, int64_t n, cpu_sort_fn *slow)
{
  if (n > 0) NAME(sort_part)(keys, spare, to, n, 0, 2 * (64 - __builtin_clzll((uint64_t)n)), slow);
}

static const cpu_vector_sort NAME(functions) = {NAME(sort), NAME(split), NAME(any_pivot), 8 * LANES};

#undef NAME
#undef KEY
#undef VEC
#undef LANES
#undef TARGET
#undef LOAD
#undef STORE
#undef LEAST
#undef MOST
#undef LOAD_FIRST
#undef STORE_FIRST
#undef TURN_2
#undef TURN_4
#undef TURN_8
#undef TURN_16
#undef SWAP_2
#undef SWAP_4
#undef UPPER_1
#undef UPPER_2
#undef UPPER_4
#undef UPPER_8
#undef SPLIT_VECTOR
#undef BROADCAST
#undef SORT_2
#undef FOLD
#undef COMPARE_LANES
#undef IN_ROW_2
#undef IN_ROW_4
#undef IN_ROW_8
#undef IN_ROW_16
#undef MERGE_1
#undef MERGE_2
#undef MERGE_4
#undef MERGE_8
#undef MERGE_COLUMNS
#undef MIDDLE
