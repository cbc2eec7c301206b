/* coord/kv_store.c -- a skip list: towers of forward links, each level holding about a quarter of the one below. */
#include <config.h>

#include "coord/kv_store.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LEVEL = 12 }; /* 4^12 keys before searches slow down */

typedef struct kv_node {
  char *key;
  coord_blob *value;
  int32_t owner;
  struct kv_node *next[]; /* one for each level that the node reaches */
} kv_node;

typedef struct kv_usage {
  size_t keys, bytes;
} kv_usage;

struct coord_kv_store {
  coord_budget *budget;
  coord_kv_quota quota;
  kv_usage *usage; /* by owner */
  size_t count, value_bytes;
  uint64_t random;
  kv_node *head[MAX_LEVEL];
};

coord_kv_store *coord_kv_store_new(coord_budget *budget, const coord_kv_quota *quota)
{
  coord_kv_store *store = calloc(1, sizeof *store);

  if (!store) return NULL;
  store->usage = calloc((size_t)quota->owners, sizeof *store->usage);
  if (!store->usage) {
    free(store);
    return NULL;
  }
  store->budget = budget;
  store->quota = *quota;
  store->random = 0x9e3779b97f4a7c15;
  return store;
}

static size_t node_bytes(const char *key, int level)
{
  return sizeof(kv_node) + (size_t)level * sizeof(kv_node *) + strlen(key) + 1;
}

static size_t counted_bytes(const char *key, const coord_blob *value) { return strlen(key) + value->size; }

static void count_node(coord_kv_store *store, const kv_node *node)
{
  store->usage[node->owner].keys++;
  store->usage[node->owner].bytes += counted_bytes(node->key, node->value);
}

static void uncount_node(coord_kv_store *store, const kv_node *node)
{
  store->usage[node->owner].keys--;
  store->usage[node->owner].bytes -= counted_bytes(node->key, node->value);
}

/* May the owner have the key with this value, in place of `old` (NULL: it is new)? */
static bool is_within_quota(const coord_kv_store *store, const char *key, const coord_blob *value, int32_t owner,
                            const kv_node *old)
{
  const kv_usage *usage = &store->usage[owner];
  bool is_own = old && old->owner == owner;
  size_t keys = usage->keys + !is_own,
         bytes = usage->bytes + counted_bytes(key, value) - (is_own ? counted_bytes(key, old->value) : 0);

  return (!store->quota.most_keys || keys <= store->quota.most_keys) &&
         (!store->quota.most_bytes || bytes <= store->quota.most_bytes);
}

static void node_free(coord_kv_store *store, kv_node *node, int level)
{
  uncount_node(store, node);
  coord_budget_give(store->budget, node_bytes(node->key, level));
  store->count--;
  store->value_bytes -= node->value->size;
  coord_blob_release(node->value);
  free(node->key);
  free(node);
}

char *coord_key_normalize(char *key)
{
  char *out = key;

  for (const char *in = key; *in; in++)
    if (*in != '/' || (out > key && out[-1] != '/')) *out++ = *in;
  if (out > key && out[-1] == '/') out--;
  *out = '\0';
  return key;
}

/* Fills links[level] with the link that leads to the first key not less than `key` on each level. */
static void find_links(const coord_kv_store *store, const char *key, kv_node **links[MAX_LEVEL])
{
  kv_node **tower = (kv_node **)(uintptr_t)store->head;

  for (int level = MAX_LEVEL - 1; level >= 0; level--) {
    while (tower[level] && strcmp(tower[level]->key, key) < 0) tower = tower[level]->next;
    links[level] = &tower[level];
  }
}

coord_blob *coord_kv_store_find(const coord_kv_store *store, const char *key)
{
  kv_node **links[MAX_LEVEL], *node;

  find_links(store, key, links);
  node = *links[0];
  return node && strcmp(node->key, key) == 0 ? node->value : NULL;
}

/* The number of levels of a new node: 1 + geometric with ratio 1/4. */
static int random_level(coord_kv_store *store)
{
  int level = 1;

  store->random ^= store->random << 13; /* xorshift64 */
  store->random ^= store->random >> 7;
  store->random ^= store->random << 17;
  for (uint64_t bits = store->random; level < MAX_LEVEL && (bits & 3) == 0; bits >>= 2) level++;
  return level;
}

coord_kv_result coord_kv_store_put(coord_kv_store *store, const char *key, coord_blob *value, int32_t owner)
{
  kv_node **links[MAX_LEVEL], *node;
  int level;

  find_links(store, key, links);
  node = *links[0];
  if (node && strcmp(node->key, key) != 0) node = NULL;
  if (!is_within_quota(store, key, value, owner, node)) return COORD_KV_OVER_QUOTA;
  if (node) {
    uncount_node(store, node);
    store->value_bytes += value->size - node->value->size;
    coord_blob_retain(value);
    coord_blob_release(node->value);
    node->value = value;
    node->owner = owner;
    count_node(store, node);
    return COORD_KV_OK;
  }
  level = random_level(store);
  if (!coord_budget_take(store->budget, node_bytes(key, level))) return COORD_KV_NO_MEMORY;
  node = malloc(sizeof *node + (size_t)level * sizeof(kv_node *));
  if (node) node->key = strdup(key);
  if (!node || !node->key) {
    free(node);
    coord_budget_give(store->budget, node_bytes(key, level));
    return COORD_KV_NO_MEMORY;
  }
  node->value = coord_blob_retain(value);
  node->owner = owner;
  count_node(store, node);
  for (int i = 0; i < level; i++) {
    node->next[i] = *links[i];
    *links[i] = node;
  }
  store->count++;
  store->value_bytes += value->size;
  return COORD_KV_OK;
}

/* Unlinks the node that links[0] leads to; the links then lead to its successors. */
static void unlink_node(coord_kv_store *store, kv_node **links[MAX_LEVEL])
{
  kv_node *node = *links[0];
  int level = 0;

  for (; level < MAX_LEVEL && *links[level] == node; level++) *links[level] = node->next[level];
  node_free(store, node, level);
}

/* The keys below "a" are those that start with "a/". Other keys may stand between "a" and them ("a!b"). */
void coord_kv_store_remove(coord_kv_store *store, const char *key)
{
  kv_node **links[MAX_LEVEL];
  size_t length = strlen(key);
  char *prefix;

  find_links(store, key, links);
  if (*links[0] && strcmp((*links[0])->key, key) == 0) unlink_node(store, links);
  prefix = malloc(length + 2);
  if (!prefix) return;
  memcpy(prefix, key, length);
  memcpy(prefix + length, "/", 2);
  find_links(store, prefix, links);
  while (*links[0] && strncmp((*links[0])->key, prefix, length + 1) == 0) unlink_node(store, links);
  free(prefix);
}

void coord_kv_store_each_below(const coord_kv_store *store, const char *directory,
                               bool (*visit)(void *ctx, const char *key, coord_blob *value), void *ctx)
{
  kv_node **links[MAX_LEVEL];
  size_t length = strlen(directory);
  char *prefix = malloc(length + 2);

  if (!prefix) return;
  memcpy(prefix, directory, length);
  memcpy(prefix + length, "/", 2);
  find_links(store, prefix, links);
  for (kv_node *node = *links[0]; node && strncmp(node->key, prefix, length + 1) == 0; node = node->next[0])
    if (!visit(ctx, node->key, node->value)) break;
  free(prefix);
}

size_t coord_kv_store_count(const coord_kv_store *store) { return store->count; }
size_t coord_kv_store_value_bytes(const coord_kv_store *store) { return store->value_bytes; }

void coord_kv_store_free(coord_kv_store *store)
{
  kv_node **links[MAX_LEVEL];

  if (!store) return;
  for (int level = 0; level < MAX_LEVEL; level++) links[level] = &store->head[level];
  while (store->head[0]) unlink_node(store, links);
  free(store->usage);
  free(store);
}
