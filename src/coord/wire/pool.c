/* coord/wire/pool.c -- the memory of one connection: free lists by size in one region, so that it stays together in the
 * caches. */
#include <config.h>

#include "coord/wire/pool.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macros.h"

/* Under the address sanitizer everything is malloc'd, and watched. */
#ifdef __SANITIZE_ADDRESS__
#define IS_WATCHED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define IS_WATCHED 1
#endif
#endif
#ifndef IS_WATCHED
#define IS_WATCHED 0
#endif

enum { CACHE_LINE_BYTES = 64 };

/* Stands before each object: its size and, while the object is free, the next free one of that size. */
typedef union block {
  struct {
    uint16_t units, next;
  };
  _Alignas(COORD_POOL_UNIT) uint8_t unit[COORD_POOL_UNIT];
} block;
_Static_assert(sizeof(block) == COORD_POOL_UNIT, "a header is one unit");

static block *block_at(coord_pool *pool, uint16_t unit)
{
  return (block *)(void *)(pool->memory + (size_t)unit * COORD_POOL_UNIT);
}

static bool is_inside(const coord_pool *pool, const void *memory)
{
  return (uintptr_t)memory - (uintptr_t)pool->memory < sizeof pool->memory;
}

void coord_pool_init(coord_pool *pool)
{
  memset(pool, 0, offsetof(coord_pool, memory));
  pool->used = 1; /* 0 ends lists */
}

static void *alloc_outside(coord_pool *pool, size_t size)
{
  void *memory = malloc(size);

  pool->outside += malloc_usable_size(memory);
  return memory;
}

void *coord_pool_alloc(coord_pool *pool, size_t size)
{
  size_t units = 1 + size / COORD_POOL_UNIT + (size % COORD_POOL_UNIT > 0);
  bool is_first = pool->used == 1;
  uint16_t unit = 0;

  if (IS_WATCHED || (size > COORD_POOL_MAX_BYTES && !is_first)) return alloc_outside(pool, size);
  if (!is_first) unit = pool->free_blocks[units];
  if (unit) {
    pool->free_blocks[units] = block_at(pool, unit)->next;
  } else {
    if (units > COORD_POOL_UNITS - (size_t)pool->used) return alloc_outside(pool, size);
    unit = pool->used;
    pool->used = (uint16_t)(pool->used + units);
    block_at(pool, unit)->units = (uint16_t)units;
  }
  return block_at(pool, unit) + 1;
}

void *coord_pool_zeroed(coord_pool *pool, size_t count, size_t size)
{
  size_t bytes;
  void *memory = __builtin_mul_overflow(count, size, &bytes) ? NULL : coord_pool_alloc(pool, bytes);

  return memory ? memset(memory, 0, bytes) : NULL;
}

void coord_pool_free(coord_pool *pool, void *memory)
{
  block *freed;

  if (!is_inside(pool, memory)) {
    pool->outside -= malloc_usable_size(memory);
    return free(memory);
  }
  freed = (block *)memory - 1;
  if (freed->units >= COORD_POOL_CLASSES) return; /* the first object is freed last: the pool ends with its owner */
  freed->next = pool->free_blocks[freed->units];
  pool->free_blocks[freed->units] = (uint16_t)(((uintptr_t)freed - (uintptr_t)pool->memory) / COORD_POOL_UNIT);
}

void *coord_pool_resize(coord_pool *pool, void *memory, size_t size)
{
  size_t old_size;
  void *grown;

  if (memory && !is_inside(pool, memory)) {
    size_t before = malloc_usable_size(memory);
    if (!weft_array_resize(&memory, size, 1)) return NULL;
    pool->outside += malloc_usable_size(memory) - before;
    return memory;
  }
  old_size = memory ? (((block *)memory - 1)->units - 1u) * (size_t)COORD_POOL_UNIT : 0;
  if (memory && size <= old_size) return memory;
  grown = coord_pool_alloc(pool, size);
  if (!grown) return NULL;
  if (old_size > 0) memcpy(grown, memory, old_size);
  coord_pool_free(pool, memory);
  return grown;
}

size_t coord_pool_bytes(const coord_pool *pool) { return pool->outside + (size_t)pool->used * COORD_POOL_UNIT; }

void coord_pool_prefetch(const coord_pool *pool)
{
  const uint8_t *end = pool->memory + (size_t)pool->used * COORD_POOL_UNIT;

  for (const uint8_t *line = pool->memory; line < end; line += CACHE_LINE_BYTES) __builtin_prefetch(line);
}
