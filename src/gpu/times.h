/* gpu/times.h -- how long steps take on a device, for traces (runtime/trace.h).
 *
 * While events are recorded, each step is queued between two events of the driver that record the time. When the stream
 * has passed both, the driver tells the time between them, and the step is reported in the host's time. Unless events
 * are recorded, nothing of this happens.
 *
 * A device has a clock of its own: the driver tells only differences of its times. The clock of a device is therefore
 * an *anchor*, an event and the host's time of it. A step cannot have begun before it was queued, nor have ended after
 * the host saw its end; the anchor is moved to where this holds. A new anchor replaces one that is far away, since the
 * driver's differences are f32 and the two clocks drift apart. */
#ifndef WEFT_GPU_TIMES_H
#define WEFT_GPU_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/thread.h"
#include "gpu/driver.h"

struct gpu_device;

/* The clock of a device. Zeros: it has no anchor. */
typedef struct gpu_clock {
  wcu_event anchor;
  int64_t anchor_ns; /* the host's time of it */
} gpu_clock;

/* A step whose work is queued. */
typedef struct gpu_timed {
  uint64_t number;   /* number of the stream's point behind the step's end */
  wcu_event begin, end;
  int64_t queued_ns; /* when the host began to queue it */
  int device;        /* local ordinal, for the trace, as are: */
  int64_t program, run;
  bool aside;        /* rt_trace_step.aside */
  char kind[16], name[93];
} gpu_timed;

/* The steps of a stream that are queued, oldest first: a ring. The stream's lock guards it. Zeros: empty. */
typedef struct gpu_times {
  gpu_timed *steps;
  int first, count, capacity;
} gpu_times;

/* Notes that the calling thread queues a step on `stream` next. Does nothing unless events are recorded. Without the
 * driver's events the step is not timed. The caller has entered the device, here and below. */
void gpu_times_begin(struct gpu_device *gpu, wcu_stream stream, int device, const char *kind, const char *name);
/* The calling thread has queued the step that it began last, whose end the stream's point `number` will stand for. */
void gpu_times_end(gpu_times *times, struct gpu_device *gpu, wcu_stream stream, uint64_t number);
/* True if gpu_times_end would do something: the calling thread has begun a step. */
bool gpu_times_are_open(void);
/* The same for steps whose queuing overlaps: `step` is the caller's, and is zeros unless events are recorded. */
struct rt_trace_step;
void gpu_times_open(struct gpu_device *gpu, wcu_stream stream, const struct rt_trace_step *about, gpu_timed *out_step);
void gpu_times_close(gpu_times *times, struct gpu_device *gpu, wcu_stream stream, uint64_t number, gpu_timed *step);
/* Reports the steps up to the stream's point `number`, which is reached. */
void gpu_times_reach(gpu_times *times, struct gpu_device *gpu, uint64_t number);
/* Drops the steps that are queued. */
void gpu_times_fini(gpu_times *times, struct gpu_device *gpu);

#endif
