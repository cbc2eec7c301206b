/* cpu/hot.h -- marks inner loops, which are compiled to vector code with any CFLAGS, once for each level of x86-64. */
#ifndef WEFT_CPU_HOT_H
#define WEFT_CPU_HOT_H

#include "base/macros.h"

#if defined __clang__
#define CPU_HOT_OPT
#else
#define CPU_HOT_OPT __attribute__((optimize("O3")))
#endif

/* Stands before a loop whose iterations touch different memory. */
#if defined __clang__
#define CPU_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define CPU_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Stands before a loop of at most 16 rounds over an array of vectors, which is to be in registers: gcc at -O2 keeps
 * both. */
#if defined __clang__
#define CPU_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CPU_UNROLL _Pragma("GCC unroll 16")
#endif

/* The runtimes of sanitizers are not ready when the dynamic linker resolves clones: the resolvers, which are
 * instrumented too, would crash before main. */
#if defined WEFT_HAS_ASAN || defined WEFT_HAS_TSAN
#define CPU_NO_CLONES
#endif

/* A hot function is static, because clang before version 17 gives the symbol that the dynamic linker resolves a name
 * that other files do not know. */
#if defined HAVE_TARGET_CLONES && !defined CPU_NO_CLONES
#define CPU_HOT CPU_HOT_OPT __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CPU_HOT CPU_HOT_OPT
#endif

/* Bytes of the vectors that loops over vectors are written for: on machines with AVX-512, and on others, where wider
 * vectors would live in memory. cpu_block_is_fast (gemm_block.h) tells which machine this is. */
enum {
  CPU_VECTOR_BYTES = 64,
#if defined __x86_64__
  CPU_NARROW_BYTES = 32,
#else
  CPU_NARROW_BYTES = 16,
#endif
};

/* For functions that hot functions share: they are compiled as a part of each. */
#define CPU_INLINE inline __attribute__((always_inline))

#endif
