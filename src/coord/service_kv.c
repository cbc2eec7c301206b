/* coord/service_kv.c -- the key-value half of the service. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coord/service_internal.h"
#include "coord/wire/text.h"

static weft_status *over_budget(const coord_service *service)
{
  return COORD_ERR(RESOURCE_EXHAUSTED, "the service's memory limit of %zu bytes is reached",
                   service->config.budget->limit_bytes);
}

/* The key in the form that the store uses, on the scratch arena. */
static weft_status *normalized(coord_service *service, const char *key, char **out)
{
  size_t length = strlen(key);

  if (length > service->config.max_key_bytes)
    return COORD_ERR(RESOURCE_EXHAUSTED, "key of %zu bytes; the limit is %zu", length, service->config.max_key_bytes);
  if (!coord_is_utf8(key, length)) return COORD_ERR(INVALID_ARGUMENT, "key is not UTF-8");
  *out = weft_arena_strdup(&service->scratch, key);
  WEFT_TRY_ALLOC(*out);
  coord_key_normalize(*out);
  return NULL;
}

static void answer_value(coord_service *service, coord_call *call, const char *key, coord_blob *value)
{
  coord_entry entry = {.key = key, .value = value->data, .value_size = value->size, .blob = value};

  coord_answer(service, call, &(coord_reply){.entries = &entry, .entry_count = 1}, NULL);
}

static void wait_free(coord_service *service, coord_wait *wait)
{
  HASH_DEL(service->waits, wait);
  coord_budget_give(service->config.budget, wait->charged_bytes);
  free(wait);
}

/* Stores the value, and answers all calls that wait for the key. */
static weft_status *store(coord_service *service, const coord_request *request, const char *key, coord_blob *value)
{
  coord_wait *wait;

  switch (coord_kv_store_put(service->kv, key, value, coord_request_owner(service, request))) {
  case COORD_KV_OK: break;
  case COORD_KV_NO_MEMORY: return over_budget(service);
  case COORD_KV_OVER_QUOTA:
    return COORD_ERR(RESOURCE_EXHAUSTED,
                     "key %s: a task keeps at most %zu keys and %zu bytes (WEFT_COORD_MAX_TASK_KEYS, _BYTES)", key,
                     service->config.max_task_keys, service->config.max_task_bytes);
  }
  HASH_FIND_STR(service->waits, key, wait);
  if (!wait) return NULL;
  while (wait->calls) {
    coord_call *call = wait->calls;
    char *asked = WEFT_MOVE(call->key);
    answer_value(service, call, asked, value);
    free(asked);
  }
  wait_free(service, wait);
  return NULL;
}

static weft_status *insert(coord_service *service, const coord_request *request, const char *key)
{
  coord_blob *value;
  weft_status *st;

  if (request->value_size > service->config.max_value_bytes)
    return COORD_ERR(RESOURCE_EXHAUSTED, "value of %zu bytes for key %s; the limit is %zu", request->value_size, key,
                     service->config.max_value_bytes);
  if (!request->overwrite && coord_kv_store_find(service->kv, key)) /* unmarked, as in the protocol */
    return WEFT_ERR(ALREADY_EXISTS, "key %s already exists.", key);
  value = coord_blob_new(service->config.budget, request->value, request->value_size);
  if (!value) return over_budget(service);
  st = store(service, request, key, value);
  coord_blob_release(value);
  return st;
}

/* Adds the increment to the value, read as a decimal number, and stores the sum; buf is for its text. */
static weft_status *increment(coord_service *service, const coord_request *request, const char *key, char buf[32],
                              coord_blob **out_value)
{
  coord_blob *old = coord_kv_store_find(service->kv, key);
  long long number = 0;
  weft_status *st;

  *out_value = NULL;
  if (old) {
    char *end = NULL;
    errno = 0;
    if (old->size > 0 && old->size < 32) {
      memcpy(buf, old->data, old->size);
      buf[old->size] = '\0';
      number = strtoll(buf, &end, 10);
    }
    if (!end || end == buf || *end || errno)
      return COORD_ERR(FAILED_PRECONDITION, "the value of key %s is not a decimal number of 64 bits", key);
  }
  if (__builtin_add_overflow(number, request->increment, &number))
    return COORD_ERR(FAILED_PRECONDITION, "key %s: the sum does not fit 64 bits", key);
  snprintf(buf, 32, "%lld", number);
  *out_value = coord_blob_new(service->config.budget, buf, strlen(buf));
  if (!*out_value) return over_budget(service);
  st = store(service, request, key, *out_value);
  if (st) coord_blob_release(WEFT_MOVE(*out_value));
  return st;
}

static weft_status *wait_for(coord_service *service, const coord_request *request, const char *key, coord_call *call)
{
  size_t asked_bytes = strlen(request->key) + 1, wait_bytes = sizeof(coord_wait) + strlen(key) + 1;
  coord_wait *wait;

  HASH_FIND_STR(service->waits, key, wait);
  if (!wait) {
    if (!coord_budget_take(service->config.budget, wait_bytes)) return over_budget(service);
    wait = calloc(1, wait_bytes);
    if (!wait) {
      coord_budget_give(service->config.budget, wait_bytes);
      return over_budget(service);
    }
    wait->charged_bytes = wait_bytes;
    memcpy(wait->key, key, strlen(key) + 1);
    HASH_ADD_STR(service->waits, key, wait);
    if (!wait->hh.tbl) {
      coord_budget_give(service->config.budget, wait_bytes);
      free(wait);
      return over_budget(service);
    }
  }
  call->key = coord_budget_take(service->config.budget, asked_bytes) ? strdup(request->key) : NULL;
  if (!call->key) {
    if (!wait->calls) wait_free(service, wait);
    return over_budget(service);
  }
  wait->charged_bytes += asked_bytes;
  coord_hold(service, call, COORD_HELD_GET, wait, &wait->calls);
  return NULL;
}

void coord_kv_drop(coord_service *service, coord_call *call)
{
  coord_wait *wait = call->holder;
  size_t asked_bytes = strlen(call->key) + 1;

  DL_DELETE(wait->calls, call);
  wait->charged_bytes -= asked_bytes;
  coord_budget_give(service->config.budget, asked_bytes);
  free(WEFT_MOVE(call->key));
  if (!wait->calls) wait_free(service, wait);
}

typedef struct dir_listing {
  weft_arena *arena;
  coord_entry *entries;
  size_t count, capacity, bytes;
} dir_listing;

static bool list_entry(void *ctx, const char *key, coord_blob *value)
{
  dir_listing *listing = ctx;

  if (listing->count == listing->capacity) {
    size_t bigger = listing->capacity ? 2 * listing->capacity : 16;
    coord_entry *grown = WEFT_ARENA_ARRAY(listing->arena, coord_entry, bigger);
    if (!grown) return false;
    if (listing->count) memcpy(grown, listing->entries, listing->count * sizeof *grown);
    listing->entries = grown;
    listing->capacity = bigger;
  }
  listing->entries[listing->count++] =
    (coord_entry){.key = key, .value = value->data, .value_size = value->size, .blob = value};
  listing->bytes += value->size + strlen(key) + 32;
  return true;
}

static void answer_directory(coord_service *service, const char *directory, coord_call *call)
{
  dir_listing listing = {.arena = &service->scratch};

  coord_kv_store_each_below(service->kv, directory, list_entry, &listing);
  if (listing.bytes > INT32_MAX) /* what a peer will parse as one message */
    return coord_answer_free(
      service, call,
      COORD_ERR(RESOURCE_EXHAUSTED, "directory %s holds %zu bytes, too many for one reply", directory, listing.bytes));
  coord_answer(service, call, &(coord_reply){.entries = listing.entries, .entry_count = listing.count}, NULL);
}

void coord_kv_handle(coord_service *service, const coord_request *request, coord_call *call)
{
  char *key = NULL, buf[32];
  coord_blob *value = NULL;
  weft_status *st = normalized(service, request->key, &key);

  if (!st && !*key && request->method != COORD_GET_KEY_VALUE_DIR && request->method != COORD_DELETE_KEY_VALUE)
    st = COORD_ERR(INVALID_ARGUMENT, "empty key");
  if (st) return coord_answer_free(service, call, st);

  switch (request->method) {
  case COORD_INSERT_KEY_VALUE: st = insert(service, request, key); break;
  case COORD_GET_KEY_VALUE:
    value = coord_kv_store_find(service->kv, key);
    if (value) return answer_value(service, call, request->key, value);
    st = wait_for(service, request, key, call);
    if (!st) return;
    break;
  case COORD_TRY_GET_KEY_VALUE:
    value = coord_kv_store_find(service->kv, key);
    if (value) return answer_value(service, call, request->key, value);
    st = COORD_ERR(NOT_FOUND, "Config key %s not found.", request->key);
    break;
  case COORD_INCREMENT_KEY_VALUE:
    st = increment(service, request, key, buf, &value);
    if (st) break;
    answer_value(service, call, request->key, value);
    coord_blob_release(value);
    return;
  case COORD_GET_KEY_VALUE_DIR: return answer_directory(service, key, call);
  default: /* DELETE_KEY_VALUE */ coord_kv_store_remove(service->kv, key); break;
  }
  if (st) return coord_answer_free(service, call, st);
  coord_answer(service, call, &(coord_reply){0}, NULL);
}

void coord_kv_stop(coord_service *service)
{
  coord_wait *wait, *next_wait;

  HASH_ITER(hh, service->waits, wait, next_wait) {
    while (wait->calls) {
      free(WEFT_MOVE(wait->calls->key));
      coord_answer_free(service, wait->calls,
                        WEFT_ERR(CANCELLED, "key %s: the key-value store is shutting down", wait->key));
    }
    wait_free(service, wait);
  }
}
