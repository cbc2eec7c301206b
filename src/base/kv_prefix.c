/* base/kv_prefix.c -- a key-value store that is a view of another store below a prefix (kv.h). */
#include <config.h>

#include "base/kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct kv_prefix {
  weft_kv base;
  weft_kv *parent;
  char prefix[];
} kv_prefix;

/* A malloc'd "prefix/key", or NULL without memory. */
static char *full_key(const weft_kv *base, const char *key)
{
  const kv_prefix *kv = WEFT_CONTAINER_OF(base, kv_prefix, base);
  char *full = NULL;
  return asprintf(&full, "%s/%s", kv->prefix, key) < 0 ? NULL : full;
}

static weft_kv *parent_of(weft_kv *base) { return WEFT_CONTAINER_OF(base, kv_prefix, base)->parent; }

static weft_status *prefix_get(weft_kv *base, const char *key, weft_deadline deadline, char **out_value,
                               size_t *out_size)
{
  WEFT_AUTO_STR full = full_key(base, key);
  WEFT_TRY_ALLOC(full);
  return weft_kv_get(parent_of(base), full, deadline, out_value, out_size);
}

static weft_status *prefix_try_get(weft_kv *base, const char *key, char **out_value, size_t *out_size)
{
  WEFT_AUTO_STR full = full_key(base, key);
  WEFT_TRY_ALLOC(full);
  return weft_kv_try_get(parent_of(base), full, out_value, out_size);
}

static weft_status *prefix_set(weft_kv *base, const char *key, const void *value, size_t size, bool overwrite)
{
  WEFT_AUTO_STR full = full_key(base, key);
  WEFT_TRY_ALLOC(full);
  return weft_kv_set(parent_of(base), full, value, size, overwrite);
}

static weft_status *prefix_remove(weft_kv *base, const char *key)
{
  WEFT_AUTO_STR full = full_key(base, key);
  WEFT_TRY_ALLOC(full);
  return weft_kv_remove(parent_of(base), full);
}

static void prefix_destroy(weft_kv *base) { free(WEFT_CONTAINER_OF(base, kv_prefix, base)); }

static const weft_kv_ops prefix_ops = {
  .size = sizeof(weft_kv_ops),
  .name = "prefix",
  .get = prefix_get,
  .try_get = prefix_try_get,
  .set = prefix_set,
  .remove = prefix_remove,
  .destroy = prefix_destroy,
};

weft_status *weft_kv_prefix_new(weft_kv *parent, const char *prefix, weft_kv **out_kv)
{
  kv_prefix *kv = calloc(1, sizeof *kv + strlen(prefix) + 1);

  *out_kv = NULL;
  WEFT_TRY_ALLOC(kv);
  kv->base.ops = &prefix_ops;
  kv->parent = parent;
  strcpy(kv->prefix, prefix);
  *out_kv = &kv->base;
  return NULL;
}
