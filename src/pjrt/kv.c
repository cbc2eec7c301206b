/* pjrt/kv.c -- the key-value interface over the callbacks that a client hands in.
 *
 * The client's store writes each key once. A value that overwrites a key goes to the first free one of key, key/~1,
 * key/~2, ..., and a reader takes the last one that exists. So a process that comes back is found at its new
 * address. */
#include <config.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"

typedef struct callback_kv {
  weft_kv base;
  PJRT_KeyValueGetCallback get;
  PJRT_KeyValueTryGetCallback try_get; /* or NULL: the client is older than this callback */
  PJRT_KeyValuePutCallback put;
  void *get_arg, *try_get_arg, *put_arg;
  atomic_bool closed;
} callback_kv;

static weft_status *check_open(callback_kv *kv)
{
  return atomic_load(&kv->closed) ? WEFT_ERR(CANCELLED, "the client has been destroyed") : NULL;
}

void pjrt_kv_close(weft_kv *kv) { atomic_store(&((callback_kv *)kv)->closed, true); }

/* The client's callbacks make their errors by this function. */
static PJRT_Error *make_error(PJRT_Error_Code code, const char *message, size_t size)
{
  return pjrt_error(weft_status_new((weft_code)code, __FILE__, __LINE__, "%.*s", (int)size, message));
}
static PJRT_CallbackError callback_error = make_error;

/* Copies the value that a callback has returned, adds a NUL, and calls the value's deleter. */
static weft_status *take_value(char *value, size_t size, void (*deleter)(char *), char **out_value, size_t *out_size)
{
  char *copy = malloc(size + 1);

  if (copy) {
    memcpy(copy, value, size);
    copy[size] = '\0';
  }
  if (deleter) deleter(value);
  WEFT_TRY_ALLOC(copy);
  *out_value = copy;
  *out_size = size;
  return NULL;
}

enum { MAX_VERSIONS = 1000, MAX_KEY = 600 };

static weft_status *version_key(const char *key, int version, char *buf)
{
  int n = version ? snprintf(buf, MAX_KEY, "%s/~%d", key, version) : snprintf(buf, MAX_KEY, "%s", key);

  return n < MAX_KEY ? NULL : WEFT_ERR(INVALID_ARGUMENT, "a key of %zu bytes", strlen(key));
}

static weft_status *get_one(callback_kv *kv, const char *key, weft_deadline deadline, char **out_value,
                            size_t *out_size)
{
  int timeout_ms = weft_deadline_poll_ms(deadline);
  PJRT_KeyValueGetCallback_Args args = {
      .struct_size = sizeof args, .key = key, .key_size = strlen(key), .timeout_in_ms = timeout_ms < 0 ? INT_MAX : timeout_ms,
      .callback_error = &callback_error, .user_arg = kv->get_arg};

  WEFT_TRY(check_open(kv));
  WEFT_TRY_NOTE(pjrt_status(kv->get(&args)), "key \"%s\"", key);
  return take_value(args.value, args.value_size, args.value_deleter_callback, out_value, out_size);
}

static weft_status *try_get_one(callback_kv *kv, const char *key, char **out_value, size_t *out_size)
{
  PJRT_KeyValueTryGetCallback_Args args = {.struct_size = sizeof args, .key = key, .key_size = strlen(key),
                                           .callback_error = &callback_error, .user_arg = kv->try_get_arg};

  if (!kv->try_get) return get_one(kv, key, weft_deadline_after_ms(1), out_value, out_size);
  WEFT_TRY(check_open(kv));
  WEFT_TRY(pjrt_status(kv->try_get(&args)));
  return take_value(args.value, args.value_size, args.value_deleter_callback, out_value, out_size);
}

/* Replaces the value by that of the key's newest version. */
static weft_status *newest(callback_kv *kv, const char *key, char **value, size_t *size)
{
  char versioned[MAX_KEY];

  for (int version = 1; version < MAX_VERSIONS; version++) {
    char *newer;
    size_t newer_size;
    WEFT_TRY(version_key(key, version, versioned));
    weft_status *st = try_get_one(kv, versioned, &newer, &newer_size);
    if (st) {
      weft_status_free(st); /* no such version; if the store has failed, the next call to it says so */
      break;
    }
    free(*value);
    *value = newer;
    *size = newer_size;
  }
  return NULL;
}

static weft_status *kv_get(weft_kv *base, const char *key, weft_deadline deadline, char **out_value, size_t *out_size)
{
  *out_value = NULL;
  WEFT_TRY(get_one((callback_kv *)base, key, deadline, out_value, out_size));
  return newest((callback_kv *)base, key, out_value, out_size);
}

static weft_status *kv_try_get(weft_kv *base, const char *key, char **out_value, size_t *out_size)
{
  *out_value = NULL;
  WEFT_TRY(try_get_one((callback_kv *)base, key, out_value, out_size));
  return newest((callback_kv *)base, key, out_value, out_size);
}

static weft_status *kv_set(weft_kv *base, const char *key, const void *value, size_t size, bool overwrite)
{
  callback_kv *kv = (callback_kv *)base;
  char versioned[MAX_KEY];
  weft_status *st = NULL;

  for (int version = 0; version < MAX_VERSIONS; version++) {
    weft_status_free(st);
    WEFT_TRY(check_open(kv));
    WEFT_TRY(version_key(key, version, versioned));
    PJRT_KeyValuePutCallback_Args args = {.struct_size = sizeof args, .key = versioned, .key_size = strlen(versioned),
                                          .value = value, .value_size = size, .callback_error = &callback_error,
                                          .user_arg = kv->put_arg};
    st = pjrt_status(kv->put(&args));
    if (!st || !overwrite || weft_status_code(st) != WEFT_ALREADY_EXISTS) break;
  }
  WEFT_TRY_NOTE(st, "key \"%s\"", key);
  return NULL;
}

static weft_status *kv_remove(weft_kv *base, const char *key)
{
  (void)base;
  return WEFT_ERR(UNIMPLEMENTED, "the client's key-value store does not remove (key \"%s\")", key);
}

static void kv_destroy(weft_kv *base) { free(base); }

static const weft_kv_ops ops = {.size = sizeof ops, .name = "pjrt-callbacks", .get = kv_get, .try_get = kv_try_get,
                                .set = kv_set, .remove = kv_remove, .destroy = kv_destroy};

weft_status *pjrt_kv_new(const PJRT_Client_Create_Args *args, weft_kv **out_kv)
{
  callback_kv *kv;

  *out_kv = NULL;
  if (!args->kv_get_callback || !args->kv_put_callback)
    return WEFT_ERR(INVALID_ARGUMENT, "num_nodes is over 1, and no key-value callbacks were given");
  kv = calloc(1, sizeof *kv);
  WEFT_TRY_ALLOC(kv);
  kv->base.ops = &ops;
  kv->get = args->kv_get_callback;
  kv->get_arg = args->kv_get_user_arg;
  kv->put = args->kv_put_callback;
  kv->put_arg = args->kv_put_user_arg;
  if (PJRT_HAS(args, kv_try_get_user_arg)) {
    kv->try_get = args->kv_try_get_callback;
    kv->try_get_arg = args->kv_try_get_user_arg;
  }
  *out_kv = &kv->base;
  return NULL;
}
