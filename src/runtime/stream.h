/* runtime/stream.h -- work that is queued on a device's streams: the buffers that it defines, and functions that are
 * called when it is done. */
#ifndef WEFT_RUNTIME_STREAM_H
#define WEFT_RUNTIME_STREAM_H

#include <stdatomic.h>

#include "base/event.h"
#include "runtime/device.h"
#include "runtime/pool.h"

/* ---- definitions ---- */

/* The definition of buffers whose bytes are made by queued work. Once `recorded` is ready without an error, work may be
 * queued behind the point that uses the bytes, although the stream has not made them yet. The buffer's own event tells
 * whether they become valid. */
typedef struct rt_definition {
  atomic_int refs;
  weft_event *recorded; /* its error: nothing has been queued that would make the bytes */
  weft_stream *stream;  /* the point; set before `recorded` */
  uint64_t number;
} rt_definition;

WEFT_NODISCARD weft_status *rt_definition_new(rt_definition **out_definition);
rt_definition *rt_definition_retain(rt_definition *definition);
void rt_definition_release(rt_definition *definition); /* NULL is fine */

/* Records a point of `stream`, a stream of `device`: the bytes are valid when all work that is queued on the stream now
 * has been done. Must be called once. */
void rt_definition_record(rt_definition *definition, weft_device *device, weft_stream *stream);
/* Makes `recorded` ready. With an error (taken), nothing will make the bytes. Must be called once, and after
 * rt_definition_record if that is called at all. */
void rt_definition_publish(rt_definition *definition, weft_status *error);

/* Work queued on `stream` from now on waits for the definition's point, which has been recorded. */
WEFT_NODISCARD weft_status *rt_definition_wait(const rt_definition *definition, weft_device *device,
                                               weft_stream *stream);

/* ---- going on ---- */

/* A function that a worker calls once a stream has done what was queued before. The struct is the caller's memory
 * and must stay until the call. */
typedef struct rt_after {
  weft_stream_call call;
  rt_job job;
  rt_pool *pool;
  void (*fn)(void *ctx, weft_status *error); /* takes `error`, which is NULL unless the stream is broken */
  void *ctx;
  weft_status *error;
} rt_after;
void rt_after_stream(weft_device *device, weft_stream *stream, rt_after *after,
                     void (*fn)(void *ctx, weft_status *error), void *ctx);

/* Waits until `stream` has done what was queued before.  DEADLINE_EXCEEDED at `deadline`. */
WEFT_NODISCARD weft_status *rt_stream_sync(weft_device *device, weft_stream *stream, weft_deadline deadline);

#endif
