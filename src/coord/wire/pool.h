/* coord/wire/pool.h -- the memory of one connection, in one place.
 * A thread that serves thousands of connections in turn finds nothing of the next one in its caches. It would wait
 * for a hundred cache lines, one after the other. Objects that lie together need fewer lines, and these can be
 * fetched all at once, before they are used. */
#ifndef WEFT_COORD_WIRE_POOL_H
#define WEFT_COORD_WIRE_POOL_H

#include <stddef.h>
#include <stdint.h>

enum {
  COORD_POOL_UNIT = 16,        /* bytes that sizes are rounded to; also the alignment */
  COORD_POOL_UNITS = 640,      /* of a pool: room for several calls at a time; further objects are malloc'd */
  COORD_POOL_MAX_BYTES = 512,  /* of an object; larger ones, of which little is read, are malloc'd */
  COORD_POOL_CLASSES = COORD_POOL_MAX_BYTES / COORD_POOL_UNIT + 2,
};

typedef struct coord_pool {
  size_t outside;                           /* bytes of the objects that are malloc'd */
  uint16_t used;                            /* units that were ever handed out */
  uint16_t free_blocks[COORD_POOL_CLASSES]; /* by size in units: the first of a list, or 0 */
  _Alignas(64) uint8_t memory[COORD_POOL_UNITS * COORD_POOL_UNIT];
} coord_pool;

void coord_pool_init(coord_pool *pool);

/* Like malloc, calloc, realloc and free. The first object may be of any size that fits, since all others serve it.
 * Free everything before the pool ends: some of it is malloc'd. */
void *coord_pool_alloc(coord_pool *pool, size_t size);
void *coord_pool_zeroed(coord_pool *pool, size_t count, size_t size);
void *coord_pool_resize(coord_pool *pool, void *memory, size_t size);
void coord_pool_free(coord_pool *pool, void *memory);

/* Memory that the pool's objects take, and that freed ones have left in the pool. */
size_t coord_pool_bytes(const coord_pool *pool);

/* Starts to bring into the caches all that was handed out. */
void coord_pool_prefetch(const coord_pool *pool);

#endif
