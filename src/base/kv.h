/* base/kv.h -- the key-value interface over which processes find each other.
 * Implementations: in-process and file store (base/kv_local.c, base/kv_file.c), the coordination agent (coord), the
 * callbacks a PJRT client hands in (pjrt).  All are thread-safe.  Keys are NUL-terminated, values are bytes. */
#ifndef WEFT_BASE_KV_H
#define WEFT_BASE_KV_H

#include <stddef.h>

#include "base/deadline.h"
#include "base/status.h"

WEFT_PUBLIC_BEGIN

typedef struct weft_kv weft_kv;

typedef struct weft_kv_ops {
  size_t size; /* sizeof this struct as the implementation was built; entries past it are absent */
  const char *name;

  /* Waits until the key exists.  *out_value is malloc'd and owned by the caller; a NUL that *out_size does not count
   * follows the value.
   * Errors: DEADLINE_EXCEEDED, naming the key; CANCELLED when the store closes. */
  weft_status *(*get)(weft_kv *kv, const char *key, weft_deadline deadline, char **out_value, size_t *out_size);

  /* The same without waiting.  Errors: NOT_FOUND. */
  weft_status *(*try_get)(weft_kv *kv, const char *key, char **out_value, size_t *out_size);

  /* Errors: ALREADY_EXISTS if the key exists and `overwrite` is false. */
  weft_status *(*set)(weft_kv *kv, const char *key, const void *value, size_t size, bool overwrite);

  /* Removes the key and every key below it ("a/b" and "a/b/...").  It is no error if none exists. */
  weft_status *(*remove)(weft_kv *kv, const char *key);

  void (*destroy)(weft_kv *kv);
} weft_kv_ops;

struct weft_kv {
  const weft_kv_ops *ops;
};

static inline WEFT_NODISCARD weft_status *weft_kv_get(weft_kv *kv, const char *key, weft_deadline deadline,
                                                      char **out_value, size_t *out_size)
{
  return kv->ops->get(kv, key, deadline, out_value, out_size);
}
static inline WEFT_NODISCARD weft_status *weft_kv_try_get(weft_kv *kv, const char *key, char **out_value,
                                                          size_t *out_size)
{
  return kv->ops->try_get(kv, key, out_value, out_size);
}
static inline WEFT_NODISCARD weft_status *weft_kv_set(weft_kv *kv, const char *key, const void *value, size_t size,
                                                      bool overwrite)
{
  return kv->ops->set(kv, key, value, size, overwrite);
}
static inline WEFT_NODISCARD weft_status *weft_kv_remove(weft_kv *kv, const char *key)
{
  return kv->ops->remove(kv, key);
}
static inline void weft_kv_destroy(weft_kv *kv)
{
  if (kv) kv->ops->destroy(kv);
}
WEFT_DEFINE_AUTO(weft_kv, weft_kv_destroy)

/* A store in this process's memory, for the devices of one process and for tests. */
WEFT_NODISCARD weft_status *weft_kv_local_new(weft_kv **out_kv);

/* A store in a directory that processes share (created if absent).  Each key is a file, which is moved into place so
 * that no reader sees half a value.  Semantics of Gloo's FileStore (set, get, wait), and removal. */
WEFT_NODISCARD weft_status *weft_kv_file_new(const char *directory, weft_kv **out_kv);

/* A view of `parent`: every key is put below `prefix` + "/".  Borrows parent, which must outlive the view. */
WEFT_NODISCARD weft_status *weft_kv_prefix_new(weft_kv *parent, const char *prefix, weft_kv **out_kv);

WEFT_PUBLIC_END

#endif
