/* base/kv_local.c -- a key-value store in this process's memory. */
#include <config.h>

#include "base/kv.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/thread.h"

typedef struct kv_entry {
  UT_hash_handle hh;
  size_t size;
  char *value; /* NUL past its end */
  char key[];
} kv_entry;

typedef struct kv_local {
  weft_kv base;
  weft_mutex mu;
  weft_cond changed;
  kv_entry *entries WEFT_GUARDED_BY(mu);
  int waiters WEFT_GUARDED_BY(mu); /* threads inside get: destroy waits for them to leave */
  bool closed WEFT_GUARDED_BY(mu);
} kv_local;

static kv_entry *find_locked(kv_local *kv, const char *key) WEFT_REQUIRES(kv->mu)
{
  weft_mutex_assert_held(&kv->mu);
  kv_entry *entry = NULL;
  HASH_FIND_STR(kv->entries, key, entry);
  return entry;
}

static weft_status *entry_copy(const kv_entry *entry, char **out_value, size_t *out_size)
{
  char *copy = malloc(entry->size + 1);
  WEFT_TRY_ALLOC(copy);
  memcpy(copy, entry->value, entry->size + 1);
  *out_value = copy;
  *out_size = entry->size;
  return NULL;
}

static weft_status *local_get(weft_kv *base, const char *key, weft_deadline deadline, char **out_value,
                              size_t *out_size)
{
  kv_local *kv = WEFT_CONTAINER_OF(base, kv_local, base);
  kv_entry *entry;
  weft_status *st;

  *out_value = NULL;
  weft_mutex_lock(&kv->mu);
  kv->waiters++;
  while (!(entry = find_locked(kv, key)) && !kv->closed && weft_cond_wait(&kv->changed, &kv->mu, deadline)) {}
  if (entry) st = entry_copy(entry, out_value, out_size);
  else if (kv->closed) st = WEFT_ERR(CANCELLED, "key \"%s\": the store was closed", key);
  else st = WEFT_ERR(DEADLINE_EXCEEDED, "key \"%s\" was not set in time", key);
  kv->waiters--;
  if (kv->closed) weft_cond_broadcast(&kv->changed);
  weft_mutex_unlock(&kv->mu);
  return st;
}

static weft_status *local_try_get(weft_kv *base, const char *key, char **out_value, size_t *out_size)
{
  kv_local *kv = WEFT_CONTAINER_OF(base, kv_local, base);

  *out_value = NULL;
  weft_mutex_lock(&kv->mu);
  kv_entry *entry = find_locked(kv, key);
  weft_status *st = entry ? entry_copy(entry, out_value, out_size) : WEFT_ERR(NOT_FOUND, "key \"%s\"", key);
  weft_mutex_unlock(&kv->mu);
  return st;
}

static void entry_free(kv_entry *entry)
{
  if (!entry) return;
  free(entry->value);
  free(entry);
}
WEFT_DEFINE_AUTO(kv_entry, entry_free)

static weft_status *local_set(weft_kv *base, const char *key, const void *value, size_t size, bool overwrite)
{
  kv_local *kv = WEFT_CONTAINER_OF(base, kv_local, base);
  WEFT_AUTO(kv_entry) entry = calloc(1, sizeof *entry + strlen(key) + 1);
  WEFT_AUTO(kv_entry) replaced = NULL;
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(entry);
  WEFT_TRY_ALLOC(entry->value = malloc(size + 1));
  strcpy(entry->key, key);
  if (size) memcpy(entry->value, value, size);
  entry->value[size] = '\0';
  entry->size = size;

  weft_mutex_lock(&kv->mu);
  kv_entry *old = find_locked(kv, key);
  if (old && !overwrite) {
    st = WEFT_ERR(ALREADY_EXISTS, "key \"%s\" already exists", key);
  } else {
    if (old) HASH_DEL(kv->entries, old);
    replaced = old;
    HASH_ADD_STR(kv->entries, key, entry);
    entry = NULL;
    weft_cond_broadcast(&kv->changed);
  }
  weft_mutex_unlock(&kv->mu);
  return st;
}

static weft_status *local_remove(weft_kv *base, const char *key)
{
  kv_local *kv = WEFT_CONTAINER_OF(base, kv_local, base);
  size_t length = strlen(key);
  kv_entry *entry, *next;

  weft_mutex_lock(&kv->mu);
  HASH_ITER(hh, kv->entries, entry, next) {
    if (strncmp(entry->key, key, length) != 0) continue;
    if (entry->key[length] != '\0' && entry->key[length] != '/') continue;
    HASH_DEL(kv->entries, entry);
    entry_free(entry);
  }
  weft_mutex_unlock(&kv->mu);
  return NULL;
}

static void local_destroy(weft_kv *base)
{
  kv_local *kv = WEFT_CONTAINER_OF(base, kv_local, base);
  kv_entry *entry, *next;

  weft_mutex_lock(&kv->mu);
  kv->closed = true;
  weft_cond_broadcast(&kv->changed);
  while (kv->waiters > 0) weft_cond_wait(&kv->changed, &kv->mu, WEFT_NO_DEADLINE);
  HASH_ITER(hh, kv->entries, entry, next) {
    HASH_DEL(kv->entries, entry);
    entry_free(entry);
  }
  weft_mutex_unlock(&kv->mu);
  weft_cond_fini(&kv->changed);
  weft_mutex_fini(&kv->mu);
  free(kv);
}

static const weft_kv_ops local_ops = {
  .size = sizeof(weft_kv_ops),
  .name = "local",
  .get = local_get,
  .try_get = local_try_get,
  .set = local_set,
  .remove = local_remove,
  .destroy = local_destroy,
};

weft_status *weft_kv_local_new(weft_kv **out_kv)
{
  kv_local *kv = calloc(1, sizeof *kv);

  *out_kv = NULL;
  WEFT_TRY_ALLOC(kv);
  kv->base.ops = &local_ops;
  weft_mutex_init(&kv->mu);
  weft_cond_init(&kv->changed);
  *out_kv = &kv->base;
  return NULL;
}
