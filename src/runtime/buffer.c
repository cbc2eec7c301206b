/* runtime/buffer.c -- arrays in a device's memory (buffer.h). */
#include <config.h>

#include "runtime/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/runtime_internal.h"

/* ---- storage --------------------------------------------------------------------------------------------------- */

weft_status *rt_storage_new(weft_device *device, int space, int64_t bytes, rt_taker taker, weft_storage **out_storage)
{
  weft_storage *storage = malloc(sizeof *storage);
  weft_status *st;

  *out_storage = NULL;
  WEFT_TRY_ALLOC(storage);
  *storage = (weft_storage){.device = device, .bytes = bytes, .space = space};
  atomic_init(&storage->refs, 1);
  st = rt_device_take(device, space, bytes, taker, &storage->data);
  if (st) {
    free(storage);
    return st;
  }
  weft_platform_retain(device->platform);
  *out_storage = storage;
  return NULL;
}

weft_status *weft_storage_new(weft_device *device, int64_t bytes, weft_storage **out_storage)
{
  return rt_storage_new(device, 0, bytes, RT_ANYONE, out_storage);
}

weft_status *weft_storage_new_in(weft_device *device, int space, int64_t bytes, weft_storage **out_storage)
{
  return rt_storage_new(device, space, bytes, RT_ANYONE, out_storage);
}

weft_status *weft_storage_view(weft_device *device, void *data, int64_t bytes, void (*on_free)(void *ctx), void *ctx,
                               weft_storage **out_storage)
{
  weft_storage *storage = malloc(sizeof *storage);

  *out_storage = NULL;
  WEFT_TRY_ALLOC(storage);
  *storage = (weft_storage){.device = device,
                            .data = data,
                            .bytes = bytes,
                            .is_view = true,
                            .packed.closed = true,
                            .on_free = on_free,
                            .ctx = ctx};
  atomic_init(&storage->refs, 1);
  weft_platform_retain(device->platform);
  *out_storage = storage;
  return NULL;
}

weft_storage *weft_storage_retain(weft_storage *storage)
{
  atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
  return storage;
}

void weft_storage_release(weft_storage *storage)
{
  /* acq_rel: all use of the bytes happens before they are freed */
  if (!storage || atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1) return;
  weft_platform *platform = storage->device->platform;
  rt_packed_drop(platform, &storage->packed);
  if (!storage->is_view) rt_device_give(storage->device, storage->space, storage->data, storage->bytes);
  else if (storage->on_free) storage->on_free(storage->ctx);
  free(storage);
  weft_platform_release(platform);
}

void weft_storage_expose(weft_storage *storage) { rt_packed_close(storage->device->platform, &storage->packed); }

void weft_storage_keep(weft_storage *storage)
{
  weft_mutex_lock(&storage->device->platform->packed.mu);
  storage->packed.closed = false;
  weft_mutex_unlock(&storage->device->platform->packed.mu);
}

void *weft_storage_data(const weft_storage *storage) { return storage->data; }
weft_device *weft_storage_device(const weft_storage *storage) { return storage->device; }
int64_t weft_storage_bytes(const weft_storage *storage) { return storage->bytes; }
char *weft_storage_host(const weft_storage *storage)
{
  return storage->device->ops->spaces[storage->space].is_host_visible ? storage->data : NULL;
}

weft_status *weft_storage_write(weft_storage *storage, int64_t offset, const void *host, int64_t bytes)
{
  weft_status *st = weft_device_write(storage->device, NULL, (char *)storage->data + offset, host, bytes);

  /* a run may have made a packed form of the old bytes meanwhile */
  rt_packed_drop(storage->device->platform, &storage->packed);
  return st;
}

weft_status *weft_storage_read(const weft_storage *storage, int64_t offset, void *host, int64_t bytes)
{
  return bytes > 0 ? weft_device_read(storage->device, NULL, host, (const char *)storage->data + offset, bytes) : NULL;
}

/* ---- buffers --------------------------------------------------------------------------------------------------- */

static weft_event *ready_event;
static pthread_once_t ready_once = PTHREAD_ONCE_INIT;
static void make_ready_event(void) { weft_status_ignore(weft_event_new_ready(NULL, &ready_event)); }

weft_event *rt_ready_event(void)
{
  pthread_once(&ready_once, make_ready_event);
  return ready_event;
}

int64_t weft_array_bytes(const weft_array_type *type)
{
  int64_t bytes = (int64_t)weft_dtype_bytes(type->type);
  for (int i = 0; i < type->rank; i++)
    if (__builtin_mul_overflow(bytes, type->dims[i], &bytes)) return INT64_MAX;
  return bytes;
}

weft_status *weft_buffer_new(weft_device *device, const weft_array_type *type, weft_storage *storage,
                             weft_event *defined, weft_buffer **out_buffer) WEFT_UNSHARED
{
  weft_buffer *buffer = malloc(sizeof *buffer);

  *out_buffer = NULL;
  if (!defined) defined = rt_ready_event();
  if (!buffer || !defined) {
    free(buffer);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  atomic_init(&buffer->refs, 1);
  buffer->device = device;
  buffer->type.type = type->type;
  buffer->type.rank = type->rank;
  memcpy(buffer->type.dims, type->dims, (size_t)type->rank * sizeof *type->dims);
  buffer->bytes = weft_array_bytes(type);
  buffer->defined = weft_event_retain(defined);
  buffer->definition = NULL;
  buffer->storage = storage ? weft_storage_retain(storage) : NULL;
  buffer->uses = buffer->pins = 0;
  buffer->deleted = false;
  weft_mutex_init(&buffer->mu);
  weft_platform_retain(device->platform);
  *out_buffer = buffer;
  return NULL;
}

weft_status *weft_buffer_from_error(weft_device *device, const weft_array_type *type, weft_status *error,
                                    weft_buffer **out_buffer)
{
  WEFT_AUTO(weft_event) failed = NULL;

  *out_buffer = NULL;
  WEFT_TRY(weft_event_new_ready(error, &failed));
  return weft_buffer_new(device, type, NULL, failed, out_buffer);
}

weft_buffer *weft_buffer_retain(weft_buffer *buffer)
{
  atomic_fetch_add_explicit(&buffer->refs, 1, memory_order_relaxed);
  return buffer;
}

void weft_buffer_release(weft_buffer *buffer) WEFT_UNSHARED
{
  /* acq_rel: what other holders did with the buffer happens before it is freed */
  if (!buffer || atomic_fetch_sub_explicit(&buffer->refs, 1, memory_order_acq_rel) != 1) return;
  weft_platform *platform = buffer->device->platform;
  weft_storage_release(buffer->storage);
  weft_event_release(buffer->defined);
  rt_definition_release(buffer->definition);
  weft_mutex_fini(&buffer->mu);
  free(buffer);
  weft_platform_release(platform);
}

weft_device *weft_buffer_device(const weft_buffer *buffer) { return buffer->device; }
const weft_array_type *weft_buffer_type(const weft_buffer *buffer) { return &buffer->type; }
weft_event *weft_buffer_defined(const weft_buffer *buffer) { return buffer->defined; }

bool weft_buffer_is_recorded(const weft_buffer *buffer) { return weft_event_is_ready(rt_buffer_usable(buffer)); }

const weft_status *rt_buffer_known_error(const weft_buffer *buffer)
{
  const rt_definition *definition = buffer->definition;

  if (weft_event_is_ready(buffer->defined)) return weft_event_error(buffer->defined);
  return definition && weft_event_is_ready(definition->recorded) ? weft_event_error(definition->recorded) : NULL;
}

/* Takes the storage out of a buffer that is deleted, not in use and not pinned; NULL: the buffer keeps it. The
 * caller releases the storage after it has unlocked. */
static weft_storage *drop_locked(weft_buffer *buffer) WEFT_REQUIRES(buffer->mu)
{
  weft_mutex_assert_held(&buffer->mu);
  weft_storage *storage = NULL;
  if (buffer->deleted && buffer->uses == 0 && buffer->pins == 0) {
    storage = buffer->storage;
    buffer->storage = NULL;
  }
  return storage;
}

void weft_buffer_delete(weft_buffer *buffer)
{
  weft_mutex_lock(&buffer->mu);
  buffer->deleted = true;
  weft_storage *storage = drop_locked(buffer);
  weft_mutex_unlock(&buffer->mu);
  weft_storage_release(storage);
}

bool weft_buffer_is_deleted(const weft_buffer *buffer)
{
  weft_buffer *b = (weft_buffer *)buffer;

  weft_mutex_lock(&b->mu);
  bool deleted = b->deleted;
  weft_mutex_unlock(&b->mu);
  return deleted;
}

weft_status *rt_buffer_use(weft_buffer *buffer, bool donate)
{
  weft_mutex_lock(&buffer->mu);
  bool deleted = buffer->deleted;
  if (!deleted) {
    buffer->uses++;
    buffer->deleted = donate;
  }
  weft_mutex_unlock(&buffer->mu);
  if (deleted) return WEFT_ERR(FAILED_PRECONDITION, "the buffer has been deleted or donated");
  return NULL;
}

void rt_buffer_end_use(weft_buffer *buffer)
{
  weft_mutex_lock(&buffer->mu);
  buffer->uses--;
  weft_storage *storage = drop_locked(buffer);
  weft_mutex_unlock(&buffer->mu);
  weft_storage_release(storage);
}

bool rt_buffer_is_view(weft_buffer *buffer)
{
  weft_mutex_lock(&buffer->mu);
  bool is_view = buffer->storage && buffer->storage->is_view;
  weft_mutex_unlock(&buffer->mu);
  return is_view;
}

weft_storage *rt_buffer_take(weft_buffer *buffer, bool sole, bool *out_sole)
{
  weft_storage *storage;

  weft_mutex_lock(&buffer->mu);
  storage = buffer->storage;
  *out_sole = sole && storage && buffer->uses == 1 && buffer->pins == 0 && rt_storage_is_unique(storage);
  if (*out_sole) buffer->storage = NULL;
  else if (storage) weft_storage_retain(storage);
  weft_mutex_unlock(&buffer->mu);
  if (*out_sole) rt_packed_drop(storage->device->platform, &storage->packed); /* the new owner may write to it */
  return storage;
}

void rt_buffer_fill(weft_buffer *buffer, weft_storage *storage)
{
  weft_mutex_lock(&buffer->mu);
  buffer->storage = storage;
  weft_storage *dropped = drop_locked(buffer); /* the buffer was deleted before its bytes were there */
  weft_mutex_unlock(&buffer->mu);
  weft_storage_release(dropped);
}

weft_status *weft_buffer_storage(weft_buffer *buffer, weft_storage **out_storage)
{
  bool sole;

  *out_storage = NULL;
  if (!weft_event_is_ready(buffer->defined)) return WEFT_ERR(FAILED_PRECONDITION, "the buffer is not defined yet");
  WEFT_TRY(weft_status_dup(weft_event_error(buffer->defined)));
  WEFT_TRY(rt_buffer_use(buffer, false));
  *out_storage = rt_buffer_take(buffer, false, &sole);
  rt_buffer_end_use(buffer);
  return NULL;
}

weft_status *weft_buffer_begin_read(weft_buffer *buffer) { return rt_buffer_use(buffer, false); }
void weft_buffer_end_read(weft_buffer *buffer) { rt_buffer_end_use(buffer); }
weft_event *weft_buffer_readable(const weft_buffer *buffer) { return rt_buffer_usable(buffer); }

weft_storage *weft_buffer_source(weft_buffer *buffer, weft_stream **out_stream, uint64_t *out_point)
{
  const rt_definition *definition = buffer->definition;
  bool sole, queued = definition && definition->number > 0 && !weft_event_is_ready(buffer->defined);

  *out_stream = queued ? definition->stream : NULL;
  *out_point = queued ? definition->number : 0;
  return rt_buffer_take(buffer, false, &sole);
}

weft_status *weft_buffer_to_host(weft_buffer *buffer, void *data, weft_deadline deadline)
{
  WEFT_AUTO(weft_storage) storage = NULL;

  WEFT_TRY(weft_event_await(buffer->defined, deadline));
  WEFT_TRY(weft_buffer_storage(buffer, &storage));
  return weft_storage_read(storage, 0, data, buffer->bytes);
}

weft_status *weft_buffer_pin(weft_buffer *buffer, void **out_data)
{
  bool usable;

  *out_data = NULL;
  weft_mutex_lock(&buffer->mu);
  usable = !buffer->deleted && (buffer->storage || buffer->bytes == 0);
  if (usable) {
    buffer->pins++;
    if (buffer->storage) {
      *out_data = buffer->storage->data;
      weft_storage_expose(buffer->storage);
    }
  }
  weft_mutex_unlock(&buffer->mu);
  if (!usable) return WEFT_ERR(FAILED_PRECONDITION, "the buffer is deleted, or not allocated yet");
  return NULL;
}

weft_status *weft_buffer_unpin(weft_buffer *buffer)
{
  weft_mutex_lock(&buffer->mu);
  bool pinned = buffer->pins > 0;
  if (pinned) buffer->pins--;
  weft_storage *storage = drop_locked(buffer);
  weft_mutex_unlock(&buffer->mu);
  weft_storage_release(storage);
  if (!pinned) return WEFT_ERR(INVALID_ARGUMENT, "the buffer has no external reference");
  return NULL;
}

/* ---- copies between devices ------------------------------------------------------------------------------------ */

/* A copy first waits until queued work may use its source. It is then queued on a stream, or done at once where the
 * device has no streams. It ends when the stream has done the copy and the source's own event is ready, which may
 * carry an error. */
typedef struct copy {
  rt_job job;
  weft_buffer *from, *to;
  int space;            /* the memory space of `to`'s bytes */
  weft_storage *source; /* retained while queued, as is the target: either buffer may be deleted */
  weft_storage *target;
  weft_event *done;
  weft_event_waiter waiter;
  rt_after after;
} copy;

static void end_copy(copy *c, weft_status *st)
{
  weft_event_set(c->done, st);
  weft_storage_release(c->source);
  weft_storage_release(c->target);
  rt_buffer_end_use(c->from);
  weft_buffer_release(c->from);
  weft_buffer_release(c->to);
  weft_event_release(c->done);
  free(c);
}

/* Ends a copy for which no work has been queued. Takes `st`. */
static void fail_copy(copy *c, weft_status *st)
{
  if (c->to->definition) rt_definition_publish(c->to->definition, weft_status_dup(st));
  end_copy(c, st);
}

/* The copied bytes may be the result of work that failed: then the copy has the source's error. */
static void source_settled(void *ctx, const weft_status *error) { end_copy(ctx, weft_status_dup(error)); }

static void copied(void *ctx, weft_status *error)
{
  copy *c = ctx;

  if (error) end_copy(c, error);
  else weft_event_on_ready_slot(c->from->defined, &c->waiter, source_settled, c);
}

/* Allocates the target and copies into it. The copy is queued on `stream`, or done on return if `stream` is NULL
 * (the device has no streams). */
static weft_status *copy_bytes(copy *c, weft_stream *stream)
{
  WEFT_AUTO(weft_storage) target = NULL;
  weft_device *device = c->to->device;

  WEFT_TRY(weft_storage_new_in(device, c->space, c->from->bytes, &target));
  if (c->from->definition && stream) WEFT_TRY(rt_definition_wait(c->from->definition, device, stream));
  if (c->source)
    WEFT_TRY(weft_device_copy(device, stream, target->data, c->from->device, c->source->data, c->from->bytes));
  c->target = weft_storage_retain(target);
  rt_buffer_fill(c->to, WEFT_MOVE(target));
  return NULL;
}

static void run_copy(rt_job *job)
{
  copy *c = WEFT_CONTAINER_OF(job, copy, job);
  weft_device *device = c->to->device;
  weft_stream *stream = device->streams[WEFT_STREAM_ACROSS];
  bool sole;

  c->source = rt_buffer_take(c->from, false, &sole);
  weft_status *st = copy_bytes(c, stream);
  if (st) {
    fail_copy(c, st);
  } else if (!stream) {
    end_copy(c, NULL);
  } else {
    rt_definition_record(c->to->definition, device, stream);
    rt_definition_publish(c->to->definition, NULL);
    rt_after_stream(device, stream, &c->after, copied, c);
  }
}

static void source_usable(void *ctx, const weft_status *error)
{
  copy *c = ctx;

  if (error) fail_copy(c, weft_status_dup(error));
  else rt_pool_offer(c->to->device->platform->pool, &c->job, 1);
}

weft_status *weft_buffer_copy_to_device(weft_buffer *buffer, weft_device *device, weft_buffer **out_buffer)
{
  return weft_buffer_copy_to(buffer, device, 0, out_buffer);
}

weft_status *weft_buffer_copy_to(weft_buffer *buffer, weft_device *device, int space, weft_buffer **out_buffer)
{
  copy *c = calloc(1, sizeof *c);
  weft_status *st;

  *out_buffer = NULL;
  WEFT_TRY_ALLOC(c);
  c->job = (rt_job){.run = run_copy, .node = rt_device_near(device)};
  c->space = space;
  st = weft_event_new(&c->done);
  if (!st) st = weft_buffer_new(device, &buffer->type, NULL, c->done, &c->to);
  if (!st && device->queues) st = rt_definition_new(&c->to->definition);
  if (!st) st = rt_buffer_use(buffer, false);
  if (st) {
    weft_buffer_release(c->to);
    weft_event_release(c->done);
    free(c);
    return st;
  }
  c->from = weft_buffer_retain(buffer);
  *out_buffer = weft_buffer_retain(c->to);
  weft_event_on_ready_slot(rt_buffer_usable(buffer), &c->waiter, source_usable, c);
  return NULL;
}

/* ---- promises -------------------------------------------------------------------------------------------------- */

weft_status *weft_buffer_promise(weft_device *device, const weft_array_type *type, weft_buffer **out_buffer)
{
  WEFT_AUTO(weft_event) defined = NULL;

  *out_buffer = NULL;
  WEFT_TRY(weft_event_new(&defined));
  return weft_buffer_new(device, type, NULL, defined, out_buffer);
}

typedef struct fulfilment {
  weft_buffer *source, *promise; /* retained; the source is in use */
  bool donate;
  weft_event_waiter waiter;
} fulfilment;

static void fulfil(void *ctx, const weft_status *error)
{
  fulfilment *f = ctx;
  bool sole;

  if (!error) {
    weft_storage *storage = rt_buffer_take(f->source, f->donate, &sole);
    if (storage) rt_buffer_fill(f->promise, storage);
  }
  weft_event_set(f->promise->defined, weft_status_dup(error));
  rt_buffer_end_use(f->source);
  weft_buffer_release(f->source);
  weft_buffer_release(f->promise);
  free(f);
}

weft_status *weft_buffer_fulfil(weft_buffer *promise, weft_buffer *source, bool donate)
{
  fulfilment *f;
  weft_status *st;

  if (source == promise) return WEFT_ERR(INVALID_ARGUMENT, "a buffer cannot be its own value");
  if (source->bytes != promise->bytes || source->device != promise->device)
    return WEFT_ERR(INVALID_ARGUMENT, "%lld bytes on device %lld for a buffer of %lld bytes on device %lld",
                    (long long)source->bytes, (long long)source->device->id, (long long)promise->bytes,
                    (long long)promise->device->id);
  WEFT_TRY_ALLOC(f = calloc(1, sizeof *f));
  st = rt_buffer_use(source, donate);
  if (st) {
    free(f);
    return st;
  }
  f->source = weft_buffer_retain(source);
  f->promise = weft_buffer_retain(promise);
  f->donate = donate;
  weft_event_on_ready_slot(source->defined, &f->waiter, fulfil, f);
  return NULL;
}

weft_status *weft_buffer_alias(weft_buffer *buffer, const weft_array_type *type, weft_buffer **out_alias)
{
  WEFT_AUTO(weft_buffer) alias = NULL;

  WEFT_TRY(weft_buffer_promise(buffer->device, type, &alias));
  WEFT_TRY(weft_buffer_fulfil(alias, buffer, false));
  *out_alias = WEFT_MOVE(alias);
  return NULL;
}

void weft_buffer_fail(weft_buffer *promise, weft_status *error) { weft_event_set(promise->defined, error); }
