/* base/array.h -- arrays in memory of malloc that grow: the one place that calls realloc. */
#ifndef WEFT_BASE_ARRAY_H
#define WEFT_BASE_ARRAY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

/* Changes the number of items of an array, which is from malloc or NULL, to `count` items of `size` bytes.  A size of
 * zero bytes counts as one byte.  `array` points to the array's pointer.  False if memory is exhausted or count * size
 * overflows; then the array is unchanged. */
WEFT_NODISCARD bool weft_array_resize(void *array, size_t count, size_t size);
#define WEFT_RESIZE(array, count) weft_array_resize(&(array), (count), sizeof *(array))

/* Grows an array until it has room for `wanted` items.  *capacity is the number of items it has room for (NULL and 0 at
 * first).  If the room is too small, there will be room for at least twice as many items and at least `least`, but for
 * no more than `most`; the added room is not set.  False also if `wanted` exceeds `most`. */
WEFT_NODISCARD bool weft_array_reserve(void *array, size_t *capacity, size_t wanted, size_t least, size_t most,
                                       size_t size);
/* The same with a capacity of type int or size_t; `most` is what the type can count. */
#define WEFT_RESERVE(array, capacity, wanted, least)                                                            \
  __extension__({                                                                                               \
    size_t room_ = (size_t)(capacity), most_ = sizeof(capacity) == sizeof(int) ? (size_t)INT_MAX : SIZE_MAX;    \
    bool has_room_ = weft_array_reserve(&(array), &room_, (size_t)(wanted), (least), most_, sizeof *(array));   \
    (capacity) = (__typeof__(capacity))room_;                                                                   \
    has_room_;                                                                                                  \
  })

#endif
