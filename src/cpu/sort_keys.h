/* cpu/sort_keys.h -- what the sorts of src/cpu share: how an element becomes an unsigned key, and how unsigned integers
 * are sorted by radix, by insertion and by merging. */
#ifndef WEFT_CPU_SORT_KEYS_H
#define WEFT_CPU_SORT_KEYS_H

#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/macros.h"
#include "base/swap.h"
#include "cpu/hot.h"
#include "cpu/sort.h"

enum {
  CPU_SORT_RUN = 16,         /* sorted by insertion */
  CPU_RADIX_FROM = 64,       /* from this many elements on radix sort is faster than merging */
  CPU_VECTORS_BELOW = 512,   /* fewer elements are sorted faster in vectors, wider than their keys, than by radix */
  CPU_RADIX_WIDE = 1 << 11,  /* from this many elements on 11 bits at a time are faster than 8 */
  CPU_RADIX_BITS = 11,
  CPU_RADIX_SPARSE = 8,      /* n elements are dealt by log2(n) + so many upper bits; few are left out of order */
};

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static inline uint64_t sort_load_bits(const void *from, int64_t bytes)
{
  switch (bytes) {
  case 1: return *(const uint8_t *)from;
  case 2: return *(const uint16_t *)from;
  case 4: return *(const uint32_t *)from;
  default: return *(const uint64_t *)from;
  }
}

/* How an element is mapped to its key; decided once for each sort. */
typedef struct sort_key_map {
  int64_t bytes;
  uint64_t sign, mask, inf; /* inf: the bits of infinity, for floats */
  bool is_float, is_signed, descending, merge_zeros, merge_nans, nans_last;
} sort_key_map;

static inline sort_key_map sort_map_of(const gen_key *key)
{
  int bits = (int)weft_dtype_bytes(key->type) * 8;
  sort_key_map m = {
    .bytes = bits / 8, .sign = UINT64_C(1) << (bits - 1), .mask = UINT64_MAX >> (64 - bits),
    .is_float = weft_dtype_is_float(key->type), .is_signed = weft_dtype_is_signed(key->type),
    .descending = key->descending, .merge_zeros = key->merge_zeros, .merge_nans = key->merge_nans,
    .nans_last = key->nans_last,
  };

  if (m.is_float) {
    const weft_float_format *f = weft_dtype_float_format(key->type);
    m.inf = ((UINT64_C(1) << f->exponent_bits) - 1) << f->mantissa_bits;
  }
  return m;
}

static CPU_INLINE uint64_t sort_key_of(const sort_key_map *m, const void *from)
{
  uint64_t bits = sort_load_bits(from, m->bytes);

  if (m->is_float) {
    uint64_t magnitude = bits & ~m->sign;
    if (m->merge_nans && magnitude > m->inf) {
      if (m->nans_last) return m->mask;
      bits = m->mask & ~m->sign; /* all NaNs become the positive NaN */
    } else if (m->merge_zeros && magnitude == 0) {
      bits = 0;
    }
    bits ^= bits & m->sign ? m->mask : m->sign; /* turns sign and magnitude into unsigned order */
  } else if (m->is_signed) {
    bits ^= m->sign;
  }
  return m->descending ? ~bits & m->mask : bits;
}

/* ---- sorting unsigned integers ----------------------------------------------------------------------------------- */

/* Every type of integer gets the same code. sort_NAME sorts data[n], n > 0, with `spare` of the same size, and returns
 * the one of the two that holds the result. `shift` is where the key starts, `bytes` its size; what lies below the key
 * must be in order already. Only the bits in which the keys differ are sorted by; lower bits of these are left to
 * insertion where the upper ones tell nearly all keys apart. */
#define CPU_SORTS(name, T)                                                                                      \
  static inline void insert_##name(T *data, int64_t n)                                                          \
  {                                                                                                             \
    for (int64_t i = 1; i < n; i++) {                                                                           \
      T x = data[i];                                                                                            \
      int64_t j = i;                                                                                            \
      for (; j > 0 && data[j - 1] > x; j--) data[j] = data[j - 1];                                              \
      data[j] = x;                                                                                              \
    }                                                                                                           \
  }                                                                                                             \
  static inline void merge_##name(T *to, const T *a, int64_t an, const T *b, int64_t bn)                        \
  {                                                                                                             \
    const T *a_end = a + an, *b_end = b + bn;                                                                   \
    while (a < a_end && b < b_end) {                                                                            \
      T x = *a, y = *b;                                                                                         \
      bool take_b = y < x;                                                                                      \
      *to++ = take_b ? y : x;                                                                                   \
      b += take_b;                                                                                              \
      a += !take_b;                                                                                             \
    }                                                                                                           \
    memcpy(to, a, (size_t)(a_end - a) * sizeof(T));                                                             \
    memcpy(to + (a_end - a), b, (size_t)(b_end - b) * sizeof(T));                                               \
  }                                                                                                             \
  static T *merge_sort_##name(T *data, T *spare, int64_t n)                                                     \
  {                                                                                                             \
    for (int64_t i = 0; i < n; i += CPU_SORT_RUN) insert_##name(data + i, WEFT_MIN(CPU_SORT_RUN, n - i));       \
    for (int64_t width = CPU_SORT_RUN; width < n; width *= 2) {                                                 \
      for (int64_t lo = 0; lo < n; lo += 2 * width) {                                                           \
        int64_t mid = WEFT_MIN(lo + width, n), hi = WEFT_MIN(lo + 2 * width, n);                                \
        merge_##name(spare + lo, data + lo, mid - lo, data + mid, hi - mid);                                    \
      }                                                                                                         \
      WEFT_SWAP(data, spare);                                                                                   \
    }                                                                                                           \
    return data;                                                                                                \
  }                                                                                                             \
  /* Moves data[n] to `to`, in the order of the bits [shift, shift + bits) and stable. Few bits of many items are counted in\
   * four tables, since an increment waits for the last one of the same counter. */                             \
  static void deal_##name(const T *restrict data, T *restrict to, int64_t n, int shift, int bits)               \
  {                                                                                                             \
    uint32_t at[1 << CPU_RADIX_BITS], mask = (UINT32_C(1) << bits) - 1, sum = 0;                                \
    bool spread = n >= CPU_RADIX_WIDE && bits + 2 <= CPU_RADIX_BITS;                                            \
    int64_t i = 0;                                                                                              \
    memset(at, 0, sizeof *at << (spread ? bits + 2 : bits));                                                    \
    if (spread)                                                                                                 \
      for (; i + 4 <= n; i += 4)                                                                                \
        for (uint32_t k = 0; k < 4; k++) at[((uint32_t)(data[i + k] >> shift) & mask) + (k << bits)]++;         \
    for (; i < n; i++) at[(uint32_t)(data[i] >> shift) & mask]++;                                               \
    for (uint32_t v = 0; v <= mask; v++) {                                                                      \
      uint32_t count = at[v];                                                                                   \
      if (spread)                                                                                               \
        for (uint32_t k = 1; k < 4; k++) count += at[v + (k << bits)];                                          \
      at[v] = sum;                                                                                              \
      sum += count;                                                                                             \
    }                                                                                                           \
    for (i = 0; i < n; i++) to[at[(uint32_t)(data[i] >> shift) & mask]++] = data[i];                            \
  }                                                                                                             \
  static CPU_HOT T differing_##name(const T *data, int64_t n)                                                   \
  {                                                                                                             \
    T differ = 0;                                                                                               \
    for (int64_t i = 0; i < n; i++) differ |= data[i] ^ data[0];                                                \
    return differ;                                                                                              \
  }                                                                                                             \
  /* Insertion where little is left to do. False if that takes more than 4 moves an element: data[n] is not in order then. */ \
  static bool finish_##name(T *data, int64_t n)                                                                 \
  {                                                                                                             \
    int64_t moves = 4 * n;                                                                                      \
    for (int64_t i = 1; i < n; i++) {                                                                           \
      T x = data[i];                                                                                            \
      int64_t j = i;                                                                                            \
      if (WEFT_LIKELY(data[i - 1] <= x)) continue;                                                              \
      for (; j > 0 && data[j - 1] > x && moves > 0; j--, moves--) data[j] = data[j - 1];                        \
      data[j] = x;                                                                                              \
      if (moves == 0) return false;                                                                             \
    }                                                                                                           \
    return true;                                                                                                \
  }                                                                                                             \
  static T *deal_all_##name(T *data, T *spare, int64_t n, int lo, int end)                                      \
  {                                                                                                             \
    int most = n < CPU_RADIX_WIDE ? 8 : CPU_RADIX_BITS, width = 0;                                              \
    for (int rounds = (end - lo + most - 1) / most; rounds > 0; rounds--, lo += width) {                        \
      width = (end - lo + rounds - 1) / rounds;                                                                 \
      deal_##name(data, spare, n, lo, width);                                                                   \
      WEFT_SWAP(data, spare);                                                                                   \
    }                                                                                                           \
    return data;                                                                                                \
  }                                                                                                             \
  static T *sort_##name(T *data, T *spare, int64_t n, int shift, int bytes)                                     \
  {                                                                                                             \
    if (n < CPU_RADIX_FROM || n > UINT32_MAX) return merge_sort_##name(data, spare, n);                         \
    uint64_t bits = (uint64_t)(differing_##name(data, n) >> shift) & UINT64_MAX >> (64 - 8 * bytes);            \
    if (!bits) return data;                                                                                     \
    int lo = shift + __builtin_ctzll(bits), end = shift + 64 - __builtin_clzll(bits);                           \
    int enough = 64 - __builtin_clzll((uint64_t)n) + CPU_RADIX_SPARSE;                                          \
    if (end - lo <= enough || shift + 8 * bytes < 8 * (int)sizeof(T)) return deal_all_##name(data, spare, n, lo, end); \
    T *dealt = deal_all_##name(data, spare, n, end - enough, end);                                              \
    if (finish_##name(dealt, n)) return dealt;                                                                  \
    return deal_all_##name(dealt, dealt == data ? spare : data, n, lo, end);                                    \
  }

#endif
