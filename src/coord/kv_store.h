/* coord/kv_store.h -- the service's keys and values: an ordered map in memory, with a budget.
 * Thread-compatible. */
#ifndef WEFT_COORD_KV_STORE_H
#define WEFT_COORD_KV_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coord/wire/blob.h"

typedef struct coord_kv_store coord_kv_store;

/* What each of the owners may keep; 0: only memory limits it. */
typedef struct coord_kv_quota {
  int32_t owners;
  size_t most_keys, most_bytes; /* bytes of keys and values */
} coord_kv_quota;

typedef enum coord_kv_result { COORD_KV_OK, COORD_KV_NO_MEMORY, COORD_KV_OVER_QUOTA } coord_kv_result;

/* NULL without memory.  Keys, values and nodes are charged to `budget` (borrowed). */
coord_kv_store *coord_kv_store_new(coord_budget *budget, const coord_kv_quota *quota);
void coord_kv_store_free(coord_kv_store *store); /* NULL is fine */

/* Leading, trailing and repeated slashes do not count: "a//b/" is "/a/b" is "a/b".  In place; returns key. */
char *coord_key_normalize(char *key);

/* Keys below are normalized ones. */
coord_blob *coord_kv_store_find(const coord_kv_store *store, const char *key); /* borrowed, or NULL */

/* Inserts or replaces; retains value. From then on the key counts against `owner`, one of 0 ... owners - 1.
 * NO_MEMORY: there is no memory, or the budget is used up. */
coord_kv_result coord_kv_store_put(coord_kv_store *store, const char *key, coord_blob *value, int32_t owner);

/* Removes the key and all keys below it ("key/..."). */
void coord_kv_store_remove(coord_kv_store *store, const char *key);

/* Calls visit for each key below `directory`, in byte-wise order, until it returns false. */
void coord_kv_store_each_below(const coord_kv_store *store, const char *directory,
                               bool (*visit)(void *ctx, const char *key, coord_blob *value), void *ctx);

/* The number of keys, and the bytes of all values. */
size_t coord_kv_store_count(const coord_kv_store *store);
size_t coord_kv_store_value_bytes(const coord_kv_store *store);

#endif
