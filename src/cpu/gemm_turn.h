/* cpu/gemm_turn.h -- transposes squares of 32-bit numbers in registers, for packing. x86-64 with AVX2 or AVX-512. */
#ifndef WEFT_CPU_GEMM_TURN_H
#define WEFT_CPU_GEMM_TURN_H

#include <immintrin.h>

#include "cpu/hot.h"

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

/* Afterwards vector j holds number j of each vector. */
static inline __attribute__((target("avx512f"))) void cpu_turn_16x16(__m512i v[16])
{
  __m512i t[16];

  CPU_UNROLL
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  CPU_UNROLL
  for (int i = 0; i < 16; i += 4) { /* v[i + c]: column 4 * lane + c of rows i .. i + 3 */
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  CPU_UNROLL
  for (int c = 0; c < 4; c++) {
    t[c] = _mm512_shuffle_i32x4(v[c], v[c + 4], 0x44);
    t[c + 4] = _mm512_shuffle_i32x4(v[c], v[c + 4], 0xee);
    t[c + 8] = _mm512_shuffle_i32x4(v[c + 8], v[c + 12], 0x44);
    t[c + 12] = _mm512_shuffle_i32x4(v[c + 8], v[c + 12], 0xee);
  }
  CPU_UNROLL
  for (int c = 0; c < 4; c++) {
    v[c] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0x88);
    v[c + 4] = _mm512_shuffle_i32x4(t[c], t[c + 8], 0xdd);
    v[c + 8] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0x88);
    v[c + 12] = _mm512_shuffle_i32x4(t[c + 4], t[c + 12], 0xdd);
  }
}

#endif
