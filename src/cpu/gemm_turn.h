/* cpu/gemm_turn.h -- transposes squares of 32-bit numbers in registers, for packing. x86-64 with AVX2 only. */
#ifndef WEFT_CPU_GEMM_TURN_H
#define WEFT_CPU_GEMM_TURN_H

#include <immintrin.h>

/* Afterwards vector j holds element j of each vector. */
static inline __attribute__((target("avx2,fma"))) void cpu_turn_8x8(__m256 v[8])
{
#define PAIR(i) __m256 lo##i = _mm256_unpacklo_ps(v[i], v[i + 1]), hi##i = _mm256_unpackhi_ps(v[i], v[i + 1]);
#define QUAD(i, j)                                                                                                    \
  __m256 q##i##0 = _mm256_shuffle_ps(lo##i, lo##j, 0x44), q##i##1 = _mm256_shuffle_ps(lo##i, lo##j, 0xee),            \
         q##i##2 = _mm256_shuffle_ps(hi##i, hi##j, 0x44), q##i##3 = _mm256_shuffle_ps(hi##i, hi##j, 0xee);
#define WHOLE(i)                                                                                                      \
  v[i] = _mm256_permute2f128_ps(q0##i, q4##i, 0x20);                                                                  \
  v[i + 4] = _mm256_permute2f128_ps(q0##i, q4##i, 0x31);
  PAIR(0) PAIR(2) PAIR(4) PAIR(6)
  QUAD(0, 2) QUAD(4, 6)
  WHOLE(0) WHOLE(1) WHOLE(2) WHOLE(3)
#undef PAIR
#undef QUAD
#undef WHOLE
}

#endif
