/* runtime/transfer.c -- transfers between host memory and buffers (buffer.h). On a device with streams they are queued;
 * elsewhere they are done by the thread that starts them or that defines the buffer. */
#include <config.h>

#include <stdlib.h>

#include "runtime/buffer.h"
#include "runtime/runtime_internal.h"

/* ---- in from the host ---- */

typedef struct incoming {
  weft_buffer *buffer;  /* retained */
  weft_storage *target; /* retained: the queued copy writes to it, though the buffer may be deleted */
  weft_transfer_done *done;
  void *ctx;
  rt_after after;
} incoming;

static void free_incoming(incoming *in)
{
  weft_storage_release(in->target);
  weft_buffer_release(in->buffer);
  free(in);
}

/* The buffer's event is set last: a thread that waits for it then finds that the transfer holds nothing. */
static void arrived(void *ctx, weft_status *error)
{
  incoming *in = ctx;
  weft_event *defined = weft_event_retain(in->buffer->defined);

  in->done(in->ctx, error);
  free_incoming(in);
  weft_event_set(defined, error);
  weft_event_release(defined);
}

/* Queues the copy on `stream`. */
static weft_status *queue_incoming(incoming *in, weft_stream *stream, const weft_array_type *type, const void *host)
{
  WEFT_AUTO(weft_event) defined = NULL;
  weft_device *device = in->target->device;

  WEFT_TRY(weft_event_new(&defined));
  WEFT_TRY(weft_buffer_new(device, type, in->target, defined, &in->buffer));
  WEFT_TRY(rt_definition_new(&in->buffer->definition));
  WEFT_TRY(weft_device_write(device, stream, in->target->data, host, in->buffer->bytes));
  rt_definition_record(in->buffer->definition, device, stream);
  rt_definition_publish(in->buffer->definition, NULL);
  return NULL;
}

static weft_status *write_queued(weft_storage *target, const weft_array_type *type, const void *host,
                                 weft_transfer_done *done, void *ctx, weft_buffer **out_buffer)
{
  weft_device *device = target->device;
  weft_stream *stream = device->streams[WEFT_STREAM_IN];
  incoming *in = calloc(1, sizeof *in);

  WEFT_TRY_ALLOC(in);
  *in = (incoming){.target = weft_storage_retain(target), .done = done, .ctx = ctx};
  weft_status *st = queue_incoming(in, stream, type, host);
  if (st) {
    free_incoming(in);
    return st;
  }
  *out_buffer = weft_buffer_retain(in->buffer);
  rt_after_stream(device, stream, &in->after, arrived, in);
  return NULL;
}

/* Copies the elements before it returns. */
static weft_status *write_now(weft_storage *target, const weft_array_type *type, const void *host,
                              weft_buffer **out_buffer)
{
  if (target->device->is_host_visible)
    rt_device_copy_shared(target->device, target->data, host, weft_array_bytes(type));
  else WEFT_TRY(weft_device_write(target->device, NULL, target->data, host, weft_array_bytes(type)));
  return weft_buffer_new(target->device, type, target, NULL, out_buffer);
}

weft_status *weft_buffer_from_host(weft_device *device, const weft_array_type *type, const void *data,
                                   weft_buffer **out_buffer)
{
  WEFT_AUTO(weft_storage) target = NULL;

  *out_buffer = NULL;
  WEFT_TRY(weft_storage_new(device, weft_array_bytes(type), &target));
  return write_now(target, type, data, out_buffer);
}

weft_status *weft_buffer_write(weft_device *device, int space, const weft_array_type *type, const void *host,
                               weft_transfer_done *done, void *ctx, weft_buffer **out_buffer)
{
  WEFT_AUTO(weft_storage) target = NULL;
  int64_t bytes = weft_array_bytes(type);

  *out_buffer = NULL;
  WEFT_TRY(weft_storage_new_in(device, space, bytes, &target));
  if (device->queues && bytes > 0) return write_queued(target, type, host, done, ctx, out_buffer);
  WEFT_TRY(write_now(target, type, host, out_buffer));
  done(ctx, NULL);
  return NULL;
}

/* ---- out to the host ---- */

typedef struct outgoing {
  rt_job job;
  weft_buffer *buffer;  /* retained and in use */
  weft_storage *source; /* retained while queued */
  int64_t offset, bytes;
  void *host;
  weft_transfer_done *done;
  void *ctx;
  weft_event_waiter waiter;
  rt_after after;
} outgoing;

static void end_outgoing(outgoing *out, const weft_status *error)
{
  out->done(out->ctx, error);
  weft_storage_release(out->source);
  rt_buffer_end_use(out->buffer);
  weft_buffer_release(out->buffer);
  free(out);
}

/* The copied bytes may be the result of work that failed: then the transfer has the buffer's error. */
static void source_settled(void *ctx, const weft_status *error) { end_outgoing(ctx, error); }

static void left(void *ctx, weft_status *error)
{
  outgoing *out = ctx;

  if (!error) {
    weft_event_on_ready_slot(out->buffer->defined, &out->waiter, source_settled, out);
    return;
  }
  end_outgoing(out, error);
  weft_status_free(error);
}

static weft_status *queue_outgoing(outgoing *out, weft_device *device, weft_stream *stream)
{
  if (out->buffer->definition) WEFT_TRY(rt_definition_wait(out->buffer->definition, device, stream));
  return weft_device_read(device, stream, out->host, (const char *)out->source->data + out->offset, out->bytes);
}

/* Called when the bytes may be read, or work that reads them may be queued. */
static void begin_outgoing(outgoing *out)
{
  weft_device *device = out->buffer->device;
  weft_stream *stream = device->streams[WEFT_STREAM_OUT];
  bool sole, queued = false;
  weft_status *st = NULL;

  out->source = rt_buffer_take(out->buffer, false, &sole);
  if (out->source && out->bytes > 0) {
    queued = device->queues;
    st = queued ? queue_outgoing(out, device, stream)
                : weft_device_read(device, NULL, out->host, (const char *)out->source->data + out->offset, out->bytes);
  }
  if (queued && !st) {
    rt_after_stream(device, stream, &out->after, left, out);
    return;
  }
  end_outgoing(out, st);
  weft_status_free(st);
}

static void run_outgoing(rt_job *job) { begin_outgoing(WEFT_CONTAINER_OF(job, outgoing, job)); }

/* Called by the thread that defines or records the buffer. On a device with streams that thread may hold locks of the
 * launch that it queues, so a worker continues the transfer. */
static void source_usable(void *ctx, const weft_status *error)
{
  outgoing *out = ctx;

  if (error) end_outgoing(out, error);
  else if (out->buffer->device->queues) rt_pool_offer(out->buffer->device->platform->pool, &out->job, 1);
  else begin_outgoing(out);
}

weft_status *weft_buffer_read(weft_buffer *buffer, int64_t offset, int64_t bytes, void *host, weft_transfer_done *done,
                              void *ctx)
{
  weft_event *usable = rt_buffer_usable(buffer);
  outgoing *out = calloc(1, sizeof *out);

  WEFT_TRY_ALLOC(out);
  weft_status *st = rt_buffer_use(buffer, false);
  if (st) {
    free(out);
    return st;
  }
  *out = (outgoing){.job = {.run = run_outgoing, .node = rt_device_near(buffer->device)},
                    .buffer = weft_buffer_retain(buffer),
                    .offset = offset,
                    .bytes = bytes,
                    .host = host,
                    .done = done,
                    .ctx = ctx};
  if (weft_event_is_ready(usable) && !weft_event_error(usable)) begin_outgoing(out);
  else weft_event_on_ready_slot(usable, &out->waiter, source_usable, out);
  return NULL;
}
