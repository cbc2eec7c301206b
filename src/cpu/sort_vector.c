/* cpu/sort_vector.c -- sort_vector.h for processors of x86-64. */
#include <config.h>

#include "cpu/sort_vector.h"

int cpu_sort_vector_bits = 512;

#if defined __x86_64__

#include <immintrin.h>
#include <string.h>

#include "codegen/model/processor.h"

enum { MANY = 4096 }; /* from so many keys on the pivot is chosen more carefully */

#define FIRST_BITS(n, lanes) ((n) <= 0 ? 0 : (n) >= (lanes) ? (1u << (lanes)) - 1 : (1u << (n)) - 1)

/* ---- keys of 32 bits, vectors of 512 ----------------------------------------------------------------------------- */

#define NAME(function) function##_32_wide
#define KEY uint32_t
#define VEC __m512i
#define LANES 16
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,bmi2,popcnt")))
#define LOAD(from) _mm512_loadu_si512(from)
#define STORE(to, v) _mm512_storeu_si512(to, v)
#define LEAST(a, b) _mm512_min_epu32(a, b)
#define MOST(a, b) _mm512_max_epu32(a, b)
#define LOAD_FIRST(from, n) _mm512_mask_loadu_epi32(_mm512_set1_epi32(-1), (__mmask16)FIRST_BITS(n, 16), from)
#define STORE_FIRST(to, v, n) _mm512_mask_storeu_epi32(to, (__mmask16)FIRST_BITS(n, 16), v)
#define TURN_2(v) _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0xb1)
#define TURN_4(v) _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x1b)
#define TURN_8(v) _mm512_permutexvar_epi32(_mm512_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8), v)
#define TURN_16(v) _mm512_permutexvar_epi32(_mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), v)
#define SWAP_2(v) _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x4e)
#define SWAP_4(v) _mm512_shuffle_i32x4(v, v, 0xb1)
#define UPPER_1(a, b) _mm512_mask_blend_epi32(0xaaaa, a, b)
#define UPPER_2(a, b) _mm512_mask_blend_epi32(0xcccc, a, b)
#define UPPER_4(a, b) _mm512_mask_blend_epi32(0xf0f0, a, b)
#define UPPER_8(a, b) _mm512_mask_blend_epi32(0xff00, a, b)
#define BROADCAST(key) _mm512_set1_epi32((int)(key))
/* Compressing stores to memory are slow on some processors, so vectors are compressed in registers. */
#define SPLIT_VECTOR(v, pivot, to, below, above)                                                                  \
  do {                                                                                                            \
    __mmask16 is_below_ = _mm512_cmplt_epu32_mask(v, pivot), is_above_ = (__mmask16)~is_below_;                     \
    int64_t count_ = __builtin_popcount(is_below_);                                                               \
    STORE((to) + (below), _mm512_maskz_compress_epi32(is_below_, v));                                             \
    (below) += count_;                                                                                            \
    (above) -= 16 - count_;                                                                                       \
    _mm512_mask_storeu_epi32((to) + (above), (__mmask16)(0xffffu >> count_), _mm512_maskz_compress_epi32(is_above_, v)); \
  } while (0)
#include "cpu/sort_vector_loops.h"

/* ---- keys of 64 bits, vectors of 512 ----------------------------------------------------------------------------- */

#define NAME(function) function##_64_wide
#define KEY uint64_t
#define VEC __m512i
#define LANES 8
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,bmi2,popcnt")))
#define LOAD(from) _mm512_loadu_si512(from)
#define STORE(to, v) _mm512_storeu_si512(to, v)
#define LEAST(a, b) _mm512_min_epu64(a, b)
#define MOST(a, b) _mm512_max_epu64(a, b)
#define LOAD_FIRST(from, n) _mm512_mask_loadu_epi64(_mm512_set1_epi64(-1), (__mmask8)FIRST_BITS(n, 8), from)
#define STORE_FIRST(to, v, n) _mm512_mask_storeu_epi64(to, (__mmask8)FIRST_BITS(n, 8), v)
#define TURN_2(v) _mm512_shuffle_epi32(v, (_MM_PERM_ENUM)0x4e)
#define TURN_4(v) _mm512_permutex_epi64(v, 0x1b)
#define TURN_8(v) _mm512_permutexvar_epi64(_mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0), v)
#define SWAP_2(v) _mm512_permutex_epi64(v, 0x4e)
#define UPPER_1(a, b) _mm512_mask_blend_epi64(0xaa, a, b)
#define UPPER_2(a, b) _mm512_mask_blend_epi64(0xcc, a, b)
#define UPPER_4(a, b) _mm512_mask_blend_epi64(0xf0, a, b)
#define BROADCAST(key) _mm512_set1_epi64((long long)(key))
#define SPLIT_VECTOR(v, pivot, to, below, above)                                                                  \
  do {                                                                                                            \
    __mmask8 is_below_ = _mm512_cmplt_epu64_mask(v, pivot), is_above_ = (__mmask8)~is_below_;                       \
    int64_t count_ = __builtin_popcount(is_below_);                                                               \
    STORE((to) + (below), _mm512_maskz_compress_epi64(is_below_, v));                                             \
    (below) += count_;                                                                                            \
    (above) -= 8 - count_;                                                                                        \
    _mm512_mask_storeu_epi64((to) + (above), (__mmask8)(0xffu >> count_), _mm512_maskz_compress_epi64(is_above_, v)); \
  } while (0)
#include "cpu/sort_vector_loops.h"

/* ---- keys of 32 bits, vectors of 256 ----------------------------------------------------------------------------- */

/* For each set of lanes: their numbers, then those of the other lanes, a byte each. */
#define BELOW(set, lane) __builtin_popcount((set) & ((1u << (lane)) - 1))
#define PLACE(set, lane) \
  ((uint64_t)(lane) << 8 * ((set) >> (lane)&1 ? BELOW(set, lane) : __builtin_popcount(set) + (lane)-BELOW(set, lane)))
#define ORDER_1(set)                                                                                             \
  PLACE(set, 0) | PLACE(set, 1) | PLACE(set, 2) | PLACE(set, 3) | PLACE(set, 4) | PLACE(set, 5) | PLACE(set, 6) | \
    PLACE(set, 7)
#define ORDER_4(set) ORDER_1(set), ORDER_1((set) + 1), ORDER_1((set) + 2), ORDER_1((set) + 3)
#define ORDER_16(set) ORDER_4(set), ORDER_4((set) + 4), ORDER_4((set) + 8), ORDER_4((set) + 12)
#define ORDER_64(set) ORDER_16(set), ORDER_16((set) + 16), ORDER_16((set) + 32), ORDER_16((set) + 48)
static const uint64_t lanes_in_order[256] = {ORDER_64(0u), ORDER_64(64u), ORDER_64(128u), ORDER_64(192u)};

/* All ones in the first n lanes. */
static inline __attribute__((target("avx2"))) __m256i first_lanes(int64_t n)
{
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < 0   ? 0
                                                    : n > 8 ? 8
                                                            : n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline __attribute__((target("avx2"))) __m256i load_first_narrow(const uint32_t *from, int64_t n)
{
  __m256i is_first = first_lanes(n);
  return _mm256_or_si256(_mm256_maskload_epi32((const int *)from, is_first),
                         _mm256_xor_si256(is_first, _mm256_set1_epi32(-1)));
}

#define NAME(function) function##_32_narrow
#define KEY uint32_t
#define VEC __m256i
#define LANES 8
#define TARGET __attribute__((target("avx2,bmi2,popcnt")))
#define LOAD(from) _mm256_loadu_si256((const __m256i *)(from))
#define STORE(to, v) _mm256_storeu_si256((__m256i *)(to), v)
#define LEAST(a, b) _mm256_min_epu32(a, b)
#define MOST(a, b) _mm256_max_epu32(a, b)
#define LOAD_FIRST(from, n) load_first_narrow(from, n)
#define STORE_FIRST(to, v, n) _mm256_maskstore_epi32((int *)(to), first_lanes(n), v)
#define TURN_2(v) _mm256_shuffle_epi32(v, 0xb1)
#define TURN_4(v) _mm256_shuffle_epi32(v, 0x1b)
#define TURN_8(v) _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0))
#define SWAP_2(v) _mm256_shuffle_epi32(v, 0x4e)
#define UPPER_1(a, b) _mm256_blend_epi32(a, b, 0xaa)
#define UPPER_2(a, b) _mm256_blend_epi32(a, b, 0xcc)
#define UPPER_4(a, b) _mm256_blend_epi32(a, b, 0xf0)
#define BROADCAST(key) _mm256_set1_epi32((int)(key))
/* The lanes below the pivot move to the front of the vector and the others to its back; it is stored at both places,
 * and what is wrong at either lies in the free keys between them. */
#define SPLIT_VECTOR(v, pivot, to, below, above)                                                                  \
  do {                                                                                                            \
    __m256i is_above_ = _mm256_cmpeq_epi32(_mm256_max_epu32(v, pivot), v);                                        \
    unsigned is_below_ = ~(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(is_above_)) & 0xff;                    \
    __m256i order_ = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)lanes_in_order[is_below_]));               \
    __m256i ordered_ = _mm256_permutevar8x32_epi32(v, order_);                                                    \
    int64_t count_ = __builtin_popcount(is_below_);                                                               \
    STORE((to) + (below), ordered_);                                                                              \
    STORE((to) + (above)-8, ordered_);                                                                            \
    (below) += count_;                                                                                            \
    (above) -= 8 - count_;                                                                                        \
  } while (0)
#include "cpu/sort_vector_loops.h"

const cpu_vector_sort *cpu_vector_sort_of(int64_t bytes)
{
  bool wide = gen_this_processor.avx512 && cpu_sort_vector_bits >= 512,
       narrow = gen_this_processor.avx2 && cpu_sort_vector_bits >= 256;

  if (bytes == 4) return wide ? &functions_32_wide : narrow ? &functions_32_narrow : NULL;
  return bytes == 8 && wide ? &functions_64_wide : NULL;
}

#else

#include <stddef.h>

const cpu_vector_sort *cpu_vector_sort_of(int64_t bytes)
{
  (void)bytes;
  return NULL;
}

#endif
