/* coord/wire/blob.h -- counted memory and shared bytes.
 * One thread: the owner of the service or connection that they belong to. */
#ifndef WEFT_COORD_WIRE_BLOB_H
#define WEFT_COORD_WIRE_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A limit on the memory that the requests of peers can take. */
typedef struct coord_budget {
  size_t used_bytes, limit_bytes;
} coord_budget;

static inline bool coord_budget_take(coord_budget *budget, size_t bytes)
{
  if (bytes > budget->limit_bytes || budget->used_bytes > budget->limit_bytes - bytes) return false;
  budget->used_bytes += bytes;
  return true;
}
static inline void coord_budget_give(coord_budget *budget, size_t bytes) { budget->used_bytes -= bytes; }

/* Immutable bytes that the store and any number of replies in flight share. */
typedef struct coord_blob {
  unsigned refs;
  size_t size;
  coord_budget *budget; /* charged with size until the last release */
  uint8_t data[];
} coord_blob;

/* `data` NULL leaves the bytes to be filled by the caller.  NULL: without memory, or over the budget. */
coord_blob *coord_blob_new(coord_budget *budget, const void *data, size_t size);
coord_blob *coord_blob_retain(coord_blob *blob); /* returns blob */
void coord_blob_release(coord_blob *blob);       /* NULL is fine */

#endif
