/* cpu/sort_plain.h -- sorts of one operand by its own values, without positions: the part of cpu/sort.h for them. */
#ifndef WEFT_CPU_SORT_PLAIN_H
#define WEFT_CPU_SORT_PLAIN_H

#include "cpu/sort.h"

/* Whether a planned sort has one operand, which is its only key. */
bool cpu_sort_is_plain(const cpu_sort *sort);
/* Whether all threads are to sort each slice of a plain sort, since there are few slices and they are long. */
bool cpu_sort_plain_is_long(const cpu_sort *sort);
/* Bytes of scratch of a slice of `n` elements of `bytes` bytes that all threads sort. */
int64_t cpu_sort_plain_scratch(int64_t n, int64_t bytes);
/* As cpu_sort_run. Borrows all; `out` may be `in`.  Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cpu_sort_plain_run(const cpu_sort *sort, rt_pool *pool, const void *in, void *out,
                                               void *scratch);

#endif
