/* pjrt/kv.c -- the key-value interface over the callbacks that a client hands in. */
#include <config.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"

typedef struct callback_kv {
  weft_kv base;
  PJRT_KeyValueGetCallback get;
  PJRT_KeyValueTryGetCallback try_get; /* or NULL: a client older than it */
  PJRT_KeyValuePutCallback put;
  void *get_arg, *try_get_arg, *put_arg;
} callback_kv;

/* How the other side makes an error out of ours. */
static PJRT_Error *make_error(PJRT_Error_Code code, const char *message, size_t size)
{
  return pjrt_error(weft_status_new((weft_code)code, __FILE__, __LINE__, "%.*s", (int)size, message));
}
static PJRT_CallbackError callback_error = make_error;

/* Takes the value from the callback: a copy of ours, NUL-terminated, then its deleter. */
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

static weft_status *kv_get(weft_kv *base, const char *key, weft_deadline deadline, char **out_value, size_t *out_size)
{
  callback_kv *kv = (callback_kv *)base;
  int timeout_ms = weft_deadline_poll_ms(deadline);
  PJRT_KeyValueGetCallback_Args args = {
      .struct_size = sizeof args, .key = key, .key_size = strlen(key), .timeout_in_ms = timeout_ms < 0 ? INT_MAX : timeout_ms,
      .callback_error = &callback_error, .user_arg = kv->get_arg};

  *out_value = NULL;
  WEFT_TRY_NOTE(pjrt_status(kv->get(&args)), "key \"%s\"", key);
  return take_value(args.value, args.value_size, args.value_deleter_callback, out_value, out_size);
}

static weft_status *kv_try_get(weft_kv *base, const char *key, char **out_value, size_t *out_size)
{
  callback_kv *kv = (callback_kv *)base;
  PJRT_KeyValueTryGetCallback_Args args = {.struct_size = sizeof args, .key = key, .key_size = strlen(key),
                                           .callback_error = &callback_error, .user_arg = kv->try_get_arg};

  *out_value = NULL;
  if (!kv->try_get) return kv_get(base, key, weft_deadline_after_ms(1), out_value, out_size);
  WEFT_TRY(pjrt_status(kv->try_get(&args)));
  return take_value(args.value, args.value_size, args.value_deleter_callback, out_value, out_size);
}

static weft_status *kv_set(weft_kv *base, const char *key, const void *value, size_t size, bool overwrite)
{
  callback_kv *kv = (callback_kv *)base;
  PJRT_KeyValuePutCallback_Args args = {.struct_size = sizeof args, .key = key, .key_size = strlen(key), .value = value,
                                        .value_size = size, .callback_error = &callback_error, .user_arg = kv->put_arg};

  if (overwrite) return WEFT_ERR(UNIMPLEMENTED, "the client's key-value store does not overwrite (key \"%s\")", key);
  WEFT_TRY_NOTE(pjrt_status(kv->put(&args)), "key \"%s\"", key);
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
