/* tests/cpu/sort_vector_test.c -- Sorts of plain keys beside qsort, with every width of vectors that this processor
 * has: orders that are hard for quicksort, every small length, and slices that all threads sort. */
#include "test.h"

#include "base/macros.h"
#include "codegen/model/processor.h"
#include "cpu/sort.h"
#include "cpu/sort_vector.h"
#include "hlo/text.h"
#include "runtime/pool.h"

enum { GUARD = 64 }; /* bytes around an array that nothing may write */

static uint64_t seed = 7;

static uint64_t next_bits(void)
{
  seed = seed * 6364136223846793005 + 1442695040888963407;
  return (seed >> 32 | seed << 32) * UINT64_C(0x9e3779b97f4a7c15);
}

/* ---- keys in an array -------------------------------------------------------------------------------------------- */

static void set_key(void *keys, int64_t i, int64_t bytes, uint64_t key)
{
  if (bytes == 4) ((uint32_t *)keys)[i] = (uint32_t)key;
  else ((uint64_t *)keys)[i] = key;
}

static uint64_t get_key(const void *keys, int64_t i, int64_t bytes)
{
  return bytes == 4 ? ((const uint32_t *)keys)[i] : ((const uint64_t *)keys)[i];
}

static int compare_u32(const void *a, const void *b)
{
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static int compare_u64(const void *a, const void *b)
{
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

typedef int compare_fn(const void *, const void *);
static compare_fn *comparing(int64_t bytes) { return bytes == 4 ? compare_u32 : compare_u64; }

static int64_t slow_calls;

/* A cpu_sort_fn that leaves its result in either array by turns. */
static void *slow_sort(void *keys, void *spare, int64_t n, int64_t bytes)
{
  qsort(keys, (size_t)n, (size_t)bytes, comparing(bytes));
  if (slow_calls++ % 2) return keys;
  memcpy(spare, keys, (size_t)(n * bytes));
  memset(keys, 0x5a, (size_t)(n * bytes));
  return spare;
}
static void *slow_u32(void *keys, void *spare, int64_t n) { return slow_sort(keys, spare, n, 4); }
static void *slow_u64(void *keys, void *spare, int64_t n) { return slow_sort(keys, spare, n, 8); }

/* ---- orders ------------------------------------------------------------------------------------------------------ */

typedef enum order {
  RANDOM, TWO_VALUES, FEW_VALUES, EQUAL, ALL_LEAST, ALL_GREATEST, MANY_GREATEST, ASCENDING, DESCENDING, ORGAN_PIPE, SAW, MOSTLY_EQUAL,
  SKEWED, NEARLY_SORTED, ORDERS
} order;

static uint64_t key_at(order o, int64_t i, int64_t n)
{
  switch (o) {
  case TWO_VALUES: return next_bits() % 2 ? UINT64_MAX : 3;
  case FEW_VALUES: return next_bits() % 5 * UINT64_C(0x3333333333333333);
  case EQUAL: return 77;
  case ALL_LEAST: return 0;
  case ALL_GREATEST: return UINT64_MAX;
  case MANY_GREATEST: return next_bits() % 3 ? UINT64_MAX : next_bits();
  case ASCENDING: return (uint64_t)i;
  case DESCENDING: return (uint64_t)(n - i);
  case ORGAN_PIPE: return (uint64_t)WEFT_MIN(i, n - i);
  case SAW: return (uint64_t)(i % 100);
  case MOSTLY_EQUAL: return next_bits() % 10 ? 1000 : next_bits();
  case SKEWED: return (next_bits() | UINT64_C(1) << 63) >> (next_bits() % 64);
  case NEARLY_SORTED: return i % 50 ? (uint64_t)i : next_bits() % (uint64_t)n;
  default: return next_bits();
  }
}

/* ---- the functions for each width -------------------------------------------------------------------------------- */

/* Sorts a copy of keys[n] and compares it with the keys sorted by qsort. `in_spare`: where the result is asked for. */
static void check_sort(const cpu_vector_sort *v, int64_t bytes, const void *keys, int64_t n, bool in_spare,
                       const char *what)
{
  size_t size = (size_t)(n * bytes);
  char *want = malloc(size + 1), *mine = malloc(size + 2 * GUARD), *spare = malloc(size + 2 * GUARD);

  T_TRUE(want && mine && spare);
  memset(mine, 0xa5, size + 2 * GUARD);
  memset(spare, 0xa5, size + 2 * GUARD);
  memcpy(want, keys, size);
  memcpy(mine + GUARD, keys, size);
  qsort(want, (size_t)n, (size_t)bytes, comparing(bytes));
  char *result = in_spare ? spare : mine;
  v->sort(mine + GUARD, spare + GUARD, result + GUARD, n, bytes == 4 ? slow_u32 : slow_u64);
  if (memcmp(result + GUARD, want, size) != 0)
    fail_msg("%s: %" PRId64 " keys of %" PRId64 " bytes with %d bits", what, n, bytes, cpu_sort_vector_bits);
  for (int i = 0; i < GUARD; i++) {
    T_EQ_INT((uint8_t)mine[i] & (uint8_t)mine[GUARD + size + (size_t)i], 0xa5);
    T_EQ_INT((uint8_t)spare[i] & (uint8_t)spare[GUARD + size + (size_t)i], 0xa5);
  }
  free(want);
  free(mine);
  free(spare);
}

static void check_orders(const cpu_vector_sort *v, int64_t bytes, int64_t n)
{
  void *keys = malloc((size_t)(n * bytes) + 1);

  T_TRUE(keys);
  for (order o = 0; o < ORDERS; o++) {
    char what[32];
    for (int64_t i = 0; i < n; i++) set_key(keys, i, bytes, key_at(o, i, n));
    snprintf(what, sizeof what, "order %d", (int)o);
    check_sort(v, bytes, keys, n, (n + (int64_t)o) % 2, what);
  }
  free(keys);
}

/* Calls `check` for the keys of 4 and of 8 bytes of each width of vectors. */
static void with_every_width(void (*check)(const cpu_vector_sort *v, int64_t bytes))
{
  static const int widths[] = {512, 256};
  bool any = false;

  for (size_t w = 0; w < WEFT_COUNT(widths); w++) {
    cpu_sort_vector_bits = widths[w];
    for (int64_t bytes = 4; bytes <= 8; bytes *= 2) {
      const cpu_vector_sort *v = cpu_vector_sort_of(bytes);
      if (v && (w > 0 || gen_this_processor.avx512)) check(v, bytes);
      any |= v != NULL;
    }
  }
  cpu_sort_vector_bits = 512;
  if (!any) T_SKIP("this processor has neither AVX2 nor AVX-512");
}

static void check_small(const cpu_vector_sort *v, int64_t bytes)
{
  for (int64_t n = 0; n <= 300; n += n < 140 ? 1 : T_STRIDE(7)) check_orders(v, bytes, n);
}
TEST(every_small_length_is_sorted) { with_every_width(check_small); }

static void check_long(const cpu_vector_sort *v, int64_t bytes)
{
  for (int64_t power = 512; power <= 65536; power *= 2)
    for (int64_t n = power - 1; n <= power + 1; n++) check_orders(v, bytes, n);
  check_orders(v, bytes, 100003);
}
TEST(lengths_around_powers_of_two_are_sorted) { with_every_width(check_long); }

/* A network of comparators sorts everything if it sorts all zeros and ones (Knuth, volume 3, section 5.3.4,
 * theorem Z). */
static void check_zeros_and_ones(const cpu_vector_sort *v, int64_t bytes)
{
  uint64_t keys[128];

  for (int round = 0; round < 40; round += T_STRIDE(10))
    for (int64_t n = 1; n <= v->leaf; n++)
      for (int64_t ones = 0; ones <= n; ones += 1 + n / 16) {
        for (int64_t i = 0; i < n; i++) set_key(keys, i, bytes, (int64_t)(next_bits() % (uint64_t)n) < ones);
        check_sort(v, bytes, keys, n, false, "zeros and ones");
      }
}
TEST(networks_sort_zeros_and_ones) { with_every_width(check_zeros_and_ones); }

static void check_split(const cpu_vector_sort *v, int64_t bytes)
{
  enum { MOST = 300 };
  uint64_t keys[MOST], to[MOST], before[MOST];

  for (int64_t n = 0; n <= MOST; n++)
    for (int kind = 0; kind < 4; kind++) {
      uint64_t pivot = kind == 0    ? 0
                       : kind == 1  ? (bytes == 4 ? UINT32_MAX : UINT64_MAX)
                       : bytes == 4 ? UINT32_C(1) << 31
                                    : UINT64_C(1) << 63;
      int64_t want = 0;
      for (int64_t i = 0; i < n; i++) {
        set_key(keys, i, bytes, key_at(kind == 2 ? TWO_VALUES : RANDOM, i, n));
        want += get_key(keys, i, bytes) < pivot;
      }
      memcpy(before, keys, sizeof before);
      T_EQ_INT(v->split(keys, n, pivot, to), want);
      for (int64_t i = 0; i < n; i++) T_EQ_INT(get_key(to, i, bytes) < pivot, i < want);
      qsort(before, (size_t)n, (size_t)bytes, comparing(bytes));
      qsort(to, (size_t)n, (size_t)bytes, comparing(bytes));
      T_TRUE(memcmp(before, to, (size_t)(n * bytes)) == 0);
    }
}
TEST(a_split_keeps_all_keys) { with_every_width(check_split); }

/* Makes keys whose pivots are bad, as McIlroy does ("A Killer Adversary for Quicksort", 1999): a key has no value until
 * it is asked for. Keys without a value are greater than those with one; whenever such a key would be the pivot, it
 * gets the least value that is left. So each split takes few keys away. */
static void check_adversary(const cpu_vector_sort *v, int64_t bytes)
{
  enum { N = 20000, UNKNOWN = 1 << 24 }; /* UNKNOWN + i: the i-th key of the slice, without a value */
  uint64_t *keys = malloc(N * sizeof *keys), *now = malloc(N * sizeof *now), *then = malloc(N * sizeof *then);
  uint64_t next = 1;
  int64_t n = N;

  T_TRUE(keys && now && then);
  for (int64_t i = 0; i < N; i++) set_key(now, i, bytes, (uint64_t)(UNKNOWN + i)), set_key(keys, i, bytes, UNKNOWN);
  while (n > v->leaf) {
    uint64_t pivot = v->pivot(now, n);
    if (pivot >= UNKNOWN) {
      int64_t i = 0;
      while (get_key(now, i, bytes) != pivot) i++;
      set_key(now, i, bytes, next);
      set_key(keys, (int64_t)(pivot - UNKNOWN), bytes, next++);
      continue;
    }
    int64_t below = v->split(now, n, pivot, then);
    n -= below;
    memcpy(now, (char *)then + below * bytes, (size_t)(n * bytes));
    if (below == 0) break; /* the pivot is the least key, which the sort takes away */
  }
  for (int64_t i = 0; i < N; i++)
    if (get_key(keys, i, bytes) == UNKNOWN) set_key(keys, i, bytes, next++);
  slow_calls = 0;
  check_sort(v, bytes, keys, N, true, "adversary");
  T_TRUE(slow_calls > 0); /* else the keys were no adversary's, and nothing was tested */
  free(keys);
  free(now);
  free(then);
}
TEST(bad_pivots_end_in_the_slow_sort) { with_every_width(check_adversary); }

/* ---- sorts of the CPU's library ---------------------------------------------------------------------------------- */

static const struct { const char *type, *compare; int64_t bytes; bool is_float, is_signed, descending; } kinds[] = {
  {"f32", "direction=LT, type=TOTALORDER", 4, true, true, false},
  {"s32", "direction=GT", 4, false, true, true},
  {"u32", "direction=LT", 4, false, false, false},
  {"f64", "direction=GT, type=TOTALORDER", 8, true, true, true},
  {"s64", "direction=LT", 8, false, true, false},
  {"u64", "direction=LT", 8, false, false, false},
};

/* Turns an element's bits into a key whose unsigned order is the order of the sort, for ascending orders. */
static uint64_t key_of(size_t kind, uint64_t bits)
{
  uint64_t sign = UINT64_C(1) << (8 * kinds[kind].bytes - 1), mask = sign | (sign - 1);

  bits &= mask;
  if (kinds[kind].is_float && bits & sign) return ~bits & mask;
  return kinds[kind].is_signed ? bits ^ sign : bits;
}

static void sort_expected(size_t kind, const void *elements, int64_t n, void *want)
{
  int64_t bytes = kinds[kind].bytes;
  uint64_t *pairs = malloc((size_t)n * sizeof *pairs);

  T_TRUE(pairs);
  for (int64_t i = 0; i < n; i++) pairs[i] = key_of(kind, get_key(elements, i, bytes));
  qsort(pairs, (size_t)n, sizeof *pairs, compare_u64);
  for (int64_t i = 0; i < n; i++) { /* key_of is turned back bit by bit: it keeps all bits but the sign, or flips all */
    uint64_t sign = UINT64_C(1) << (8 * bytes - 1), key = pairs[kinds[kind].descending ? n - 1 - i : i];
    if (kinds[kind].is_float) key = key & sign ? key ^ sign : ~key;
    else if (kinds[kind].is_signed) key ^= sign;
    set_key(want, i, bytes, key);
  }
  free(pairs);
}

/* Sorts slices of n elements along the middle dimension of [outer, n, inner]. */
static void check_library(rt_pool *pool, size_t kind, int64_t outer, int64_t n, int64_t inner, order o)
{
  WEFT_AUTO(hlo_module) module = NULL;
  const char *type = kinds[kind].type;
  int64_t bytes = kinds[kind].bytes, all = outer * n * inner;
  char text[1024];
  cpu_sort sort;

  snprintf(text, sizeof text,
           "HloModule m\n"
           "less {\n"
           "  a = %s[] parameter(0)\n"
           "  b = %s[] parameter(1)\n"
           "  ROOT r = pred[] compare(a, b), %s\n"
           "}\n"
           "ENTRY e {\n"
           "  k = %s[%" PRId64 ",%" PRId64 ",%" PRId64 "] parameter(0)\n"
           "  ROOT r = %s[%" PRId64 ",%" PRId64 ",%" PRId64 "] sort(k), dimensions={1}, to_apply=less\n"
           "}\n",
           type, type, kinds[kind].compare, type, outer, n, inner, type, outer, n, inner);
  T_OK(hlo_parse(text, strlen(text), &module));
  T_OK(cpu_sort_init(&sort, module->entry->root, NULL));
  void *in = malloc((size_t)(all * bytes) + 1), *out = malloc((size_t)(all * bytes) + 1),
       *slice = malloc((size_t)(n * bytes) + 1), *want = malloc((size_t)(n * bytes) + 1),
       *scratch = aligned_alloc(64, (size_t)WEFT_ALIGN_UP(sort.scratch_bytes, 64) + 64);
  T_TRUE(in && out && slice && want && scratch);
  for (int64_t i = 0; i < all; i++) set_key(in, i, bytes, key_at(o, i, all));
  T_OK(cpu_sort_run(&sort, pool, &in, &out, scratch));
  for (int64_t s = 0; s < outer * inner; s++) {
    int64_t base = s / inner * n * inner + s % inner;
    for (int64_t i = 0; i < n; i++) set_key(slice, i, bytes, get_key(in, base + i * inner, bytes));
    sort_expected(kind, slice, n, want);
    for (int64_t i = 0; i < n; i++)
      if (get_key(out, base + i * inner, bytes) != get_key(want, i, bytes))
        fail_msg("%s[%" PRId64 ",%" PRId64 ",%" PRId64 "], order %d, %d bits: slice %" PRId64 ", element %" PRId64,
                 type, outer, n, inner, (int)o, cpu_sort_vector_bits, s, i);
  }
  free(in);
  free(out);
  free(slice);
  free(want);
  free(scratch);
}

/* By radix (0 bits) and in vectors. */
TEST(slices_of_every_shape_are_sorted_with_any_number_of_threads)
{
  static const struct { int64_t outer, n, inner; } shapes[] = {
    {1, 131072, 1}, {1, 300001, 1}, {1, 70000, 1}, {2, 70000, 1}, {1, 131073, 2}, {300, 77, 1}, {40, 700, 1}, {3, 33, 5}, {2, 4096, 33}, {1, 5000, 64}};
  static const int widths[] = {512, 256, 0};

  for (int threads = 1; threads <= 5; threads += 2) {
    WEFT_AUTO(rt_pool) pool = NULL;
    T_OK(rt_pool_new(&(rt_pool_options){.threads = threads}, &pool));
    for (size_t w = 0; w < WEFT_COUNT(widths); w++) {
      cpu_sort_vector_bits = widths[w];
      for (size_t s = 0; s < WEFT_COUNT(shapes); s++) /* each kind, and each order, in many of the cases */
        for (size_t i = 0; i < 6; i += T_STRIDE(3))
          check_library(pool, (s + i) % WEFT_COUNT(kinds), shapes[s].outer, shapes[s].n, shapes[s].inner,
                        (order)((s * 5 + i * 3 + (size_t)threads) % ORDERS));
    }
  }
  cpu_sort_vector_bits = 512;
}

TEST_MAIN(UNIT(every_small_length_is_sorted), UNIT(lengths_around_powers_of_two_are_sorted), UNIT(networks_sort_zeros_and_ones),
          UNIT(a_split_keeps_all_keys), UNIT(bad_pivots_end_in_the_slow_sort),
          UNIT(slices_of_every_shape_are_sorted_with_any_number_of_threads))
