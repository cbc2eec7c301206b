/* coord/kv_callbacks.c -- a weft_kv over callbacks that the user gives. */
#include <config.h>

#include <stdlib.h>

#include <weft/coord.h>

enum { TRY_GET_MS = 1 }; /* time limit of the get that replaces try_get, if there is no try_get */

typedef struct callbacks_kv {
  weft_kv base;
  weft_coord_kv_callbacks callbacks;
} callbacks_kv;

static const weft_coord_kv_callbacks *callbacks_of(weft_kv *kv)
{
  return &WEFT_CONTAINER_OF(kv, callbacks_kv, base)->callbacks;
}

static weft_status *get(weft_kv *kv, const char *key, weft_deadline deadline, char **out_value, size_t *out_size)
{
  const weft_coord_kv_callbacks *callbacks = callbacks_of(kv);
  int64_t left_ns = weft_deadline_left_ns(deadline);

  return callbacks->get(callbacks->ctx, key, left_ns / WEFT_NS_PER_MS + (left_ns % WEFT_NS_PER_MS != 0), out_value,
                        out_size);
}

static weft_status *try_get(weft_kv *kv, const char *key, char **out_value, size_t *out_size)
{
  const weft_coord_kv_callbacks *callbacks = callbacks_of(kv);
  weft_status *st;

  if (callbacks->try_get) return callbacks->try_get(callbacks->ctx, key, out_value, out_size);
  st = callbacks->get(callbacks->ctx, key, TRY_GET_MS, out_value, out_size);
  if (weft_status_code(st) != WEFT_DEADLINE_EXCEEDED) return st;
  weft_status_free(st);
  return WEFT_ERR(NOT_FOUND, "no key %s", key);
}

static weft_status *set(weft_kv *kv, const char *key, const void *value, size_t size, bool overwrite)
{
  const weft_coord_kv_callbacks *callbacks = callbacks_of(kv);

  if (overwrite) return WEFT_ERR(UNIMPLEMENTED, "key %s: a PJRT client's key-value callbacks cannot overwrite", key);
  return callbacks->put(callbacks->ctx, key, value, size);
}

static weft_status *erase(weft_kv *kv, const char *key)
{
  (void)kv;
  return WEFT_ERR(UNIMPLEMENTED, "key %s: a PJRT client's key-value callbacks cannot remove", key);
}

static void destroy(weft_kv *kv) { free(WEFT_CONTAINER_OF(kv, callbacks_kv, base)); }

static const weft_kv_ops callbacks_ops = {
  .size = sizeof(weft_kv_ops), .name = "callbacks", .get = get, .try_get = try_get, .set = set, .remove = erase,
  .destroy = destroy,
};

weft_status *weft_coord_kv_callbacks_new(const weft_coord_kv_callbacks *callbacks, weft_kv **out_kv)
{
  callbacks_kv *kv = calloc(1, sizeof *kv);

  *out_kv = NULL;
  WEFT_TRY_ALLOC(kv);
  kv->base.ops = &callbacks_ops;
  kv->callbacks = *callbacks;
  *out_kv = &kv->base;
  return NULL;
}
