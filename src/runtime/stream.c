/* runtime/stream.c -- work that is queued on a device's streams (stream.h). */
#include <config.h>

#include "runtime/stream.h"

#include <stdlib.h>

#include "base/macros.h"
#include "runtime/runtime_internal.h"

/* ---- definitions ----------------------------------------------------------------------------------------------- */

weft_status *rt_definition_new(rt_definition **out_definition)
{
  rt_definition *definition = calloc(1, sizeof *definition);
  weft_status *st;

  *out_definition = NULL;
  WEFT_TRY_ALLOC(definition);
  atomic_init(&definition->refs, 1);
  st = weft_event_new(&definition->recorded);
  if (st) free(definition);
  else *out_definition = definition;
  return st;
}

rt_definition *rt_definition_retain(rt_definition *definition)
{
  atomic_fetch_add_explicit(&definition->refs, 1, memory_order_relaxed);
  return definition;
}

void rt_definition_release(rt_definition *definition)
{
  /* acq_rel: all use of the definition happens before it is freed */
  if (!definition || atomic_fetch_sub_explicit(&definition->refs, 1, memory_order_acq_rel) != 1) return;
  weft_event_release(definition->recorded);
  free(definition);
}

void rt_definition_record(rt_definition *definition, weft_device *device, weft_stream *stream)
{
  definition->stream = stream;
  definition->number = rt_device_record(device, stream);
}

void rt_definition_publish(rt_definition *definition, weft_status *error)
{
  weft_event_set(definition->recorded, error);
}

weft_status *rt_definition_wait(const rt_definition *definition, weft_device *device, weft_stream *stream)
{
  if (definition->stream == stream || definition->number == 0) return NULL;
  return device->ops->wait(stream, definition->stream, definition->number);
}

/* ---- going on -------------------------------------------------------------------------------------------------- */

static void go_on(rt_job *job)
{
  rt_after *after = WEFT_CONTAINER_OF(job, rt_after, job);

  after->fn(after->ctx, WEFT_MOVE(after->error));
}

/* Called on the stream's thread, which must not compute, release a platform or call back into clients. */
static void stream_did(void *ctx, const weft_status *error)
{
  rt_after *after = ctx;

  after->error = weft_status_dup(error);
  rt_pool_offer(after->pool, &after->job, 1);
}

void rt_after_stream(weft_device *device, weft_stream *stream, rt_after *after,
                     void (*fn)(void *ctx, weft_status *error), void *ctx)
{
  *after = (rt_after){.call = {.fn = stream_did, .ctx = after},
                      .job = {.run = go_on, .node = rt_device_near(device)},
                      .pool = device->platform->pool,
                      .fn = fn,
                      .ctx = ctx};
  device->ops->notify(stream, &after->call);
}

/* The call that rt_stream_sync waits for. The call frees it. Caller and call each hold the event, because the caller
 * may return first, at its deadline. */
typedef struct stream_wait {
  weft_stream_call call;
  weft_event *event;
} stream_wait;

static void wait_over(void *ctx, const weft_status *error)
{
  stream_wait *w = ctx;

  weft_event_set(w->event, weft_status_dup(error));
  weft_event_release(w->event);
  free(w);
}

weft_status *rt_stream_sync(weft_device *device, weft_stream *stream, weft_deadline deadline)
{
  WEFT_AUTO(weft_event) event = NULL;
  stream_wait *w;

  WEFT_TRY(weft_event_new(&event));
  w = malloc(sizeof *w);
  WEFT_TRY_ALLOC(w);
  *w = (stream_wait){.call = {.fn = wait_over, .ctx = w}, .event = weft_event_retain(event)};
  device->ops->notify(stream, &w->call);
  return weft_event_await(event, deadline);
}
