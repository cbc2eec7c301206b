/* cpu/sort_vector.h -- sorts of unsigned integers of one size, without positions, in vectors: quicksort whose parts of
 * few keys are sorted by a network of comparators (sort_vector_loops.h). */
#ifndef WEFT_CPU_SORT_VECTOR_H
#define WEFT_CPU_SORT_VECTOR_H

#include <stdbool.h>
#include <stdint.h>

/* Sorts keys[n] with `spare` of the same size and returns the one of the two that holds the result. */
typedef void *cpu_sort_fn(void *keys, void *spare, int64_t n);

/* The functions for one size of keys and one width of vectors. They read and write nothing outside of their arrays,
 * which need no alignment but that of a key. */
typedef struct cpu_vector_sort {
  /* Sorts keys[n]; `spare` has room for n keys. The result is in `to`, which is `keys` or `spare`. Where the pivots of
   * a part were bad, `slow` sorts this part, so that no order of the keys takes more than O(n log n) steps. */
  void (*sort)(void *keys, void *spare, void *to, int64_t n, cpu_sort_fn *slow);
  /* Moves the keys below `pivot` to the front of to[n] and the others to its back, in any order; returns how many are
   * below. */
  int64_t (*split)(const void *keys, int64_t n, uint64_t pivot, void *to);
  /* The key by which `sort` splits keys[n], for tests. n is greater than `leaf`. */
  uint64_t (*pivot)(const void *keys, int64_t n);
  int64_t leaf; /* so many keys are sorted without being split */
} cpu_vector_sort;

/* The sort of keys of `bytes` bytes in the widest vectors that there is one for. NULL if there is none or the processor
 * lacks the instructions: AVX-512 for keys of 32 and 64 bits, or AVX2 for those of 32 bits. */
const cpu_vector_sort *cpu_vector_sort_of(int64_t bytes);

/* Bits of the widest vectors that are used: 512, or fewer in tests. Read by each sort. */
extern int cpu_sort_vector_bits;

#endif
