/* base/arena.c -- memory that is freed all at once (arena.h). */
#include <config.h>

#include "base/arena.h"

#include <stdint.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_BLOCK = 4 << 10, LARGE_BLOCK = 256 << 10, PAGE = 64 << 10 /* at most */, HUGE_PAGE = 2 << 20,
       ENOUGH_FOR_HUGE = 4 << 20, ALIGNMENT = WEFT_ARENA_ALIGNMENT };

struct weft_arena_block {
  struct weft_arena_block *older;
  size_t size; /* of data */
  size_t mapped_bytes; /* 0: from calloc */
  _Alignas(ALIGNMENT) char data[];
};

void weft_arena_init(weft_arena *arena) { *arena = (weft_arena){0}; }

/* Under AddressSanitizer every block comes from calloc: the leak checker does not follow pointers in mapped memory. */
#if defined __SANITIZE_ADDRESS__
#define MAY_MAP 0
#elif defined __has_feature
#define MAY_MAP !__has_feature(address_sanitizer)
#else
#define MAY_MAP 1
#endif

/* Maps a block so that the kernel can use huge pages for it: most of the cost of touching new memory is one fault
 * per page. */
static struct weft_arena_block *map_block(size_t bytes)
{
  struct weft_arena_block *block;
  size_t mapped;
  char *base, *at;

  if (bytes > SIZE_MAX - 2 * (size_t)HUGE_PAGE) return NULL;
  mapped = WEFT_ALIGN_UP(bytes, (size_t)PAGE);
  base = mmap(NULL, mapped + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return NULL;
  at = (char *)WEFT_ALIGN_UP((uintptr_t)base, (uintptr_t)HUGE_PAGE);
  if (at > base) munmap(base, (size_t)(at - base));
  munmap(at + mapped, (size_t)(base + HUGE_PAGE - at)); /* never 0 bytes: at - base < HUGE_PAGE */
  (void)madvise(at, mapped, MADV_HUGEPAGE);             /* a hint; it may fail */
  block = (struct weft_arena_block *)at;
  block->mapped_bytes = mapped;
  block->size = mapped - sizeof *block;
  return block;
}

static void free_blocks(struct weft_arena_block *block)
{
  while (block) {
    struct weft_arena_block *older = block->older;
    if (block->mapped_bytes) munmap(block, block->mapped_bytes);
    else free(block);
    block = older;
  }
}

void weft_arena_fini(weft_arena *arena)
{
  free_blocks(arena->head);
  *arena = (weft_arena){
    .limit_bytes = arena->limit_bytes, .exhausted = arena->exhausted, .expected_bytes = arena->expected_bytes};
}

void weft_arena_reset(weft_arena *arena)
{
  struct weft_arena_block *head = arena->head;

  if (!head) return;
  free_blocks(head->older);
  head->older = NULL;
  memset(head->data, 0, (size_t)(arena->next - head->data));
  arena->next = head->data;
  arena->end = head->data + head->size;
  arena->total_bytes = head->size;
}

/* Returns the bytes of the next block.  A huge page costs one page fault, but all of it becomes resident.  It is
 * taken if the arena expects to fill half of it, if the arena already holds ENOUGH_FOR_HUGE bytes, or if the
 * expected size is unknown and blocks have grown to LARGE_BLOCK. */
static size_t next_block(const weft_arena *arena)
{
  const size_t huge = HUGE_PAGE - sizeof *arena->head;
  size_t due = arena->expected_bytes - WEFT_MIN(arena->total_bytes, arena->expected_bytes);

  if (due >= HUGE_PAGE / 2 || arena->total_bytes >= ENOUGH_FOR_HUGE) return huge;
  if (!arena->head) return FIRST_BLOCK;
  if (arena->head->size < LARGE_BLOCK) return arena->head->size * 2;
  return arena->expected_bytes ? LARGE_BLOCK : huge;
}

/* Blocks come zeroed from calloc or the kernel, and weft_arena_reset clears what was used, so an allocation needs no
 * memset. */
static void *alloc_in_new_block(weft_arena *arena, size_t size)
{
  size_t step = next_block(arena);
  size_t left = arena->limit_bytes ? arena->limit_bytes - WEFT_MIN(arena->total_bytes, arena->limit_bytes) : SIZE_MAX;
  size_t block_size = WEFT_MAX(size, WEFT_MIN(step, left));
  struct weft_arena_block *block;

  if (size > left || block_size > SIZE_MAX - sizeof *block) return NULL;
  if (MAY_MAP && sizeof *block + block_size >= HUGE_PAGE) {
    block = map_block(sizeof *block + block_size);
    if (!block) return NULL;
  } else {
    block = calloc(1, sizeof *block + block_size);
    if (!block) return NULL;
    block->size = block_size;
  }
  arena->total_bytes += block->size;
  /* A request larger than the next block gets a block of its own.  The current block stays current, so that its free
   * part is still used. */
  if (arena->head && size > step) {
    block->older = arena->head->older;
    arena->head->older = block;
    return block->data;
  }
  block->older = arena->head;
  arena->head = block;
  arena->next = block->data + size;
  arena->end = block->data + block->size;
  return block->data;
}

static void *fail(weft_arena *arena)
{
  if (arena->exhausted) arena->exhausted(arena);
  return NULL;
}

void *weft_arena_alloc_slowly(weft_arena *arena, size_t size)
{
  if (size > SIZE_MAX - ALIGNMENT) return fail(arena);
  size = size ? WEFT_ALIGN_UP(size, (size_t)ALIGNMENT) : ALIGNMENT;
  if (arena->next && (size_t)(arena->end - arena->next) >= size) {
    void *result = arena->next;
    arena->next += size;
    return result;
  }
  void *result = alloc_in_new_block(arena, size);
  return result ? result : fail(arena);
}

void *weft_arena_memdup(weft_arena *arena, const void *data, size_t size)
{
  void *copy = weft_arena_alloc(arena, size);

  if (copy && size) memcpy(copy, data, size);
  return copy;
}

char *weft_arena_strndup(weft_arena *arena, const char *text, size_t length)
{
  char *copy = length < SIZE_MAX ? weft_arena_alloc(arena, length + 1) : NULL;

  if (copy && length) memcpy(copy, text, length);
  return copy;
}

char *weft_arena_strdup(weft_arena *arena, const char *text) { return weft_arena_strndup(arena, text, strlen(text)); }

char *weft_arena_printf(weft_arena *arena, const char *fmt, ...)
{
  va_list args, again;
  int length;
  char *text = NULL;

  va_start(args, fmt);
  va_copy(again, args);
  length = vsnprintf(NULL, 0, fmt, args);
  va_end(args);
  if (length >= 0) text = weft_arena_alloc(arena, (size_t)length + 1);
  if (text) vsnprintf(text, (size_t)length + 1, fmt, again);
  va_end(again);
  return text;
}

bool weft_arena_reserve(weft_arena *arena, void *array, int *capacity, int64_t wanted, int least, size_t size)
{
  int64_t wider = WEFT_MAX(2 * (int64_t)*capacity, WEFT_MAX(wanted, least));
  void *now, *bigger;

  if (wanted <= *capacity) return true;
  if (wanted > INT_MAX) return false;
  wider = WEFT_MIN(wider, INT_MAX);
  bigger = weft_arena_alloc_array(arena, (size_t)wider, size);
  if (!bigger) return false;
  memcpy(&now, array, sizeof now);
  if (*capacity) memcpy(bigger, now, (size_t)*capacity * size);
  memcpy(array, &bigger, sizeof bigger);
  *capacity = (int)wider;
  return true;
}
