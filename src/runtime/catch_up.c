/* runtime/catch_up.c -- how a run on a device with streams waits on the host for work of the streams, without blocking
 * a thread.
 *
 * The compute stream does the work of a step before the work of later steps. But a step that works on the host (`run`,
 * `start`) must not begin before the work that was queued earlier is done, and control flow needs a value that queued
 * work makes. Such a step gives up its thread, and a worker continues it once the stream has done that work. */
#include <config.h>

#include <string.h>

#include "base/deadline.h"
#include "runtime/device.h"
#include "runtime/host_copies.h"
#include "runtime/program_internal.h"
#include "runtime/trace.h"

/* ---- faults ---------------------------------------------------------------------------------------------------- */

void rt_thunk_fault(const rt_thunk *thunk, rt_ctx *ctx, weft_status *st)
{
  weft_status *none = NULL;

  st = weft_status_note(st, __FILE__, __LINE__, "%s \"%s\"", thunk->ops->kind, thunk->name);
  if (!atomic_compare_exchange_strong(&((rt_frame *)ctx)->fault, &none, st))
    weft_status_free(st); /* only the first fault is kept */
}

bool rt_has_fault(const rt_ctx *ctx)
{
  return atomic_load_explicit(&((const rt_frame *)ctx)->fault, memory_order_acquire) != NULL;
}

weft_status *rt_frame_take_fault(rt_frame *frame) { return atomic_exchange(&frame->fault, NULL); }

/* The error because of which the run cannot continue: the stream's error (taken), else a copy of the first fault of
 * queued work. NULL: the run can continue. */
static weft_status *queued_error(const rt_frame *frame, weft_status *error)
{
  return error ? error : weft_status_dup(atomic_load_explicit(&frame->fault, memory_order_acquire));
}

static weft_stream *stream_of(const rt_frame *frame)
{
  return weft_device_stream(frame->ctx.info->device, WEFT_STREAM_COMPUTE);
}

/* ---- steps on the host ----------------------------------------------------------------------------------------- */

static void go_on(void *arg, weft_status *error)
{
  rt_async *async = arg;
  rt_frame *frame = async->frame;
  const rt_thunk *thunk = async->thunk;
  const rt_thunk_ops *inner = thunk->own_ops;
  weft_status *st = queued_error(frame, error);
  /* If other steps wait for this step's start, the run cannot end before rt_thunk_started has released them, so the
   * frame is still there at that call. */
  bool awaited = thunk->parent->nodes[thunk->node].started_count > 0 && !thunk->parent->in_order, ended;

  int64_t begin = WEFT_UNLIKELY(rt_trace_on) ? weft_now_ns() : 0;

  if (!st && thunk->wants_host_memory && !weft_device_is_host_visible(frame->ctx.info->device))
    st = rt_host_copies_begin(thunk, &frame->ctx, &async->copies);
  ended = st != NULL;
  if (!st && inner->run) {
    rt_trace_step step = begin ? rt_trace_step_of(thunk, frame->ctx.info) : (rt_trace_step){0};
    rt_trace_current = step; /* other threads that help with the step record their time for it */
    st = inner->run(thunk, &frame->ctx);
    if (begin) rt_trace_done(&step, begin);
    rt_trace_current = (rt_trace_step){0};
    ended = true;
  } else if (!st) {
    st = inner->start(thunk, &frame->ctx);
    ended = st != NULL;
  }
  if (awaited) rt_thunk_started(frame, thunk);
  if (ended) rt_thunk_done(thunk, &frame->ctx, st);
}

static weft_status *late_start(const rt_thunk *thunk, rt_ctx *ctx)
{
  rt_frame *frame = (rt_frame *)ctx;
  rt_async *async = &frame->asyncs[thunk->index];

  async->frame = frame;
  async->thunk = thunk;
  rt_after_stream(ctx->info->device, stream_of(frame), &async->after, go_on, async);
  return NULL;
}

bool rt_starts_late(const rt_thunk *thunk) { return thunk->ops->start == late_start; }

weft_status *rt_make_late(weft_arena *arena, rt_thunk *thunk)
{
  rt_thunk_ops *late;

  if (!thunk->ops->run && !thunk->ops->start) return NULL;
  late = WEFT_ARENA_NEW(arena, rt_thunk_ops);
  WEFT_TRY_ALLOC(late);
  *late =
    (rt_thunk_ops){.size = sizeof *late, .kind = thunk->ops->kind, .start = late_start, .destroy = thunk->ops->destroy};
  thunk->ops = late;
  return NULL;
}

/* ---- values for control flow ----------------------------------------------------------------------------------- */

static void flag_arrived(void *arg, weft_status *error)
{
  rt_async *async = arg;

  rt_flag_arrived(async->frame, async->thunk, queued_error(async->frame, error));
}

bool rt_read_flag(rt_frame *frame, const rt_thunk *thunk, size_t bytes, weft_status **out)
{
  const void *from = rt_args(thunk, &frame->ctx)[0];
  weft_device *device = frame->ctx.info->device;
  rt_async *async = &frame->asyncs[thunk->index];

  if (!device) { /* tests run programs without a device */
    memcpy(&async->flag, from, bytes);
    return true;
  }
  if (!frame->program->queues) {
    *out = weft_device_read(device, NULL, &async->flag, from, (int64_t)bytes);
    return true;
  }
  *out = weft_device_read(device, stream_of(frame), &async->flag, from, (int64_t)bytes);
  if (*out) return true;
  async->frame = frame;
  async->thunk = thunk;
  rt_after_stream(device, stream_of(frame), &async->after, flag_arrived, async);
  return false;
}
