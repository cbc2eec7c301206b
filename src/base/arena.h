/* base/arena.h -- memory that is freed all at once: IR, plans, scratch of a pass. */
#ifndef WEFT_BASE_ARENA_H
#define WEFT_BASE_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

/* A bump allocator over growing blocks.  Not thread-safe: one owner at a time. */
typedef struct weft_arena {
  struct weft_arena_block *head; /* the block being filled; older ones behind it */
  char *next, *end;              /* the free part of head */
  size_t total_bytes;            /* the data of all blocks */
  size_t limit_bytes;            /* 0: no limit; an allocation that would pass it fails */
  size_t expected_bytes;         /* set by weft_arena_expect; 0: not known */
  void (*exhausted)(struct weft_arena *arena); /* NULL, or called before an allocation fails; it may longjmp away */
} weft_arena;

void weft_arena_init(weft_arena *arena); /* takes no memory yet */
void weft_arena_fini(weft_arena *arena);
/* Sets how many bytes the caller will allocate in all. The arena then chooses blocks that cause few page faults and
 * leave little memory unused. */
static inline void weft_arena_expect(weft_arena *arena, size_t bytes) { arena->expected_bytes = bytes; }

/* Frees all blocks but the current one, which is cleared and used again.  Memory handed out before is no longer
 * valid. */
void weft_arena_reset(weft_arena *arena);

enum { WEFT_ARENA_ALIGNMENT = 16 };
void *weft_arena_alloc_slowly(weft_arena *arena, size_t size); /* what weft_arena_alloc does when the block is full */

/* Returns `size` zeroed bytes aligned to 16; NULL when memory is exhausted or the limit would be passed.  Size 0
 * gives a unique pointer. */
static inline void *weft_arena_alloc(weft_arena *arena, size_t size)
{
  size_t left = (uintptr_t)arena->end - (uintptr_t)arena->next,
         wanted = WEFT_ALIGN_UP(size, (size_t)WEFT_ARENA_ALIGNMENT);
  void *result = arena->next;

  if (WEFT_UNLIKELY(wanted - 1 >= left)) return weft_arena_alloc_slowly(arena, size); /* also if `wanted` is 0 */
  arena->next += wanted;
  return result;
}

/* Returns count * size zeroed bytes; NULL also when the product overflows. */
static inline void *weft_arena_alloc_array(weft_arena *arena, size_t count, size_t size)
{
  size_t bytes;

  return weft_arena_alloc(arena, __builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes);
}

/* Copies in the arena; NULL when memory is exhausted. */
void *weft_arena_memdup(weft_arena *arena, const void *data, size_t size);
char *weft_arena_strndup(weft_arena *arena, const char *text, size_t length);
char *weft_arena_strdup(weft_arena *arena, const char *text);
WEFT_PRINTF(2, 3) char *weft_arena_printf(weft_arena *arena, const char *fmt, ...);

/* Grows an array in the arena until it has room for `wanted` items of `size` bytes.  `array` points to the array's
 * pointer; *capacity is the number of items it has room for (NULL and 0 at first).  If the room is too small, the
 * items move to new memory for at least twice as many items and at least `least`; the added room is zeroed.  Returns
 * false when memory is exhausted or `wanted` exceeds INT_MAX; the array is unchanged then. */
bool weft_arena_reserve(weft_arena *arena, void *array, int *capacity, int64_t wanted, int least, size_t size);
#define WEFT_ARENA_RESERVE(arena, array, capacity, wanted, least) \
  weft_arena_reserve((arena), &(array), &(capacity), (wanted), (least), sizeof *(array))

#define WEFT_ARENA_NEW(arena, type) ((type *)weft_arena_alloc((arena), sizeof(type)))
#define WEFT_ARENA_ARRAY(arena, type, count) ((type *)weft_arena_alloc_array((arena), (size_t)(count), sizeof(type)))

#endif
