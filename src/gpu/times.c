/* gpu/times.c -- how long steps take on a device (times.h). */
#include <config.h>

#include "gpu/times.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/deadline.h"
#include "gpu/gpu_internal.h"
#include "runtime/trace.h"

/* an anchor is replaced if it is that much older than the end of a step */
static const int64_t FAR_NS = WEFT_NS_PER_S / 10;

/* The step that the calling thread is queuing; `begin` NULL: none. */
static _Thread_local gpu_timed open_step;

bool gpu_times_are_open(void) { return open_step.begin != NULL; }

/* An event that is recorded on the stream; NULL: there is none. */
static wcu_event recorded(gpu_device *gpu, wcu_stream stream)
{
  wcu_event event;
  weft_status *st = gpu_event_take(gpu, GPU_TIMING, &event);

  if (!st && (st = GPU_CALL(cuEventRecord, event, stream))) {
    gpu_event_give(gpu, GPU_TIMING, event);
    event = NULL;
  }
  weft_status_ignore(st); /* the step is not timed */
  return event;
}

void gpu_times_open(gpu_device *gpu, wcu_stream stream, const rt_trace_step *about, gpu_timed *out_step)
{
  out_step->begin = NULL;
  if (WEFT_LIKELY(!rt_trace_on)) return;
  *out_step = (gpu_timed){.queued_ns = weft_now_ns(),
                          .device = about->device,
                          .program = about->program,
                          .run = about->run,
                          .aside = about->aside};
  snprintf(out_step->kind, sizeof out_step->kind, "%s", about->kind);
  snprintf(out_step->name, sizeof out_step->name, "%s", about->name);
  out_step->begin = recorded(gpu, stream);
}

void gpu_times_begin(gpu_device *gpu, wcu_stream stream, int device, const char *kind, const char *name)
{
  if (WEFT_LIKELY(!rt_trace_on) || gpu_times_are_open()) return;
  gpu_times_open(
    gpu, stream,
    &(rt_trace_step){
      .kind = kind, .name = name, .device = device, .program = rt_trace_current.program, .run = rt_trace_current.run},
    &open_step);
}

static bool widen(gpu_times *t)
{
  int wider = WEFT_MAX(2 * t->capacity, 64);
  gpu_timed *bigger;

  if (t->count < t->capacity) return true;
  bigger = malloc((size_t)wider * sizeof *bigger);
  if (!bigger) return false;
  for (int i = 0; i < t->count; i++) bigger[i] = t->steps[(t->first + i) % t->capacity];
  free(t->steps);
  *t = (gpu_times){.steps = bigger, .count = t->count, .capacity = wider};
  return true;
}

static void drop(gpu_device *gpu, const gpu_timed *step)
{
  if (step->begin) gpu_event_give(gpu, GPU_TIMING, step->begin);
  if (step->end) gpu_event_give(gpu, GPU_TIMING, step->end);
}

void gpu_times_end(gpu_times *t, gpu_device *gpu, wcu_stream stream, uint64_t number)
{
  gpu_times_close(t, gpu, stream, number, &open_step);
}

void gpu_times_close(gpu_times *t, gpu_device *gpu, wcu_stream stream, uint64_t number, gpu_timed *timed)
{
  gpu_timed step = *timed;

  if (!step.begin) return;
  timed->begin = NULL;
  step.end = recorded(gpu, stream);
  step.number = number;
  if (step.end && widen(t)) t->steps[(t->first + t->count++) % t->capacity] = step;
  else drop(gpu, &step);
}

/* Nanoseconds from one event to another, both of which are reached.  False: the driver does not say. */
static bool elapsed(wcu_event from, wcu_event to, int64_t *out_ns)
{
  float ms;

  if (gpu_cu.cuEventElapsedTime(&ms, from, to) != WCU_SUCCESS) return false;
  *out_ns = (int64_t)((double)ms * 1e6);
  return true;
}

/* Where the step began in the host's time, when `seen_ns` is now.  Moves the anchor, and may take an event of the step
 * as a new one: its member is then NULL. */
static bool place_locked(gpu_device *gpu, gpu_timed *step, int64_t took_ns, int64_t seen_ns, int64_t *out_begin_ns)
  WEFT_REQUIRES(gpu->clock_mu)
{
  weft_mutex_assert_held(&gpu->clock_mu);
  gpu_clock *clock = &gpu->clock;
  int64_t since = 0;

  if (clock->anchor && step->queued_ns - clock->anchor_ns > 10 * FAR_NS) {
    gpu_event_give(gpu, GPU_TIMING, clock->anchor);
    clock->anchor = NULL;
  }
  if (!clock->anchor) *clock = (gpu_clock){WEFT_MOVE(step->begin), step->queued_ns};
  else if (!elapsed(clock->anchor, step->begin, &since)) return false;
  if (clock->anchor_ns + since < step->queued_ns) clock->anchor_ns = step->queued_ns - since;
  if (clock->anchor_ns + since + took_ns > seen_ns) clock->anchor_ns = seen_ns - since - took_ns;
  *out_begin_ns = clock->anchor_ns + since;
  if (since + took_ns > FAR_NS) {
    gpu_event_give(gpu, GPU_TIMING, clock->anchor);
    *clock = (gpu_clock){WEFT_MOVE(step->end), clock->anchor_ns + since + took_ns};
  }
  return true;
}

static void report(gpu_device *gpu, gpu_timed *step)
{
  int64_t took_ns, begin_ns;

  if (elapsed(step->begin, step->end, &took_ns)) {
    weft_mutex_lock(&gpu->clock_mu);
    bool is_placed = place_locked(gpu, step, took_ns, weft_now_ns(), &begin_ns);
    weft_mutex_unlock(&gpu->clock_mu);
    if (is_placed)
      rt_trace_on_device(&(rt_trace_step){.kind = step->kind,
                                          .name = step->name,
                                          .device = step->device,
                                          .program = step->program,
                                          .run = step->run,
                                          .aside = step->aside},
                         begin_ns, begin_ns + took_ns);
  }
  drop(gpu, step);
}

void gpu_times_reach(gpu_times *t, gpu_device *gpu, uint64_t number)
{
  while (t->count > 0 && t->steps[t->first].number <= number) {
    report(gpu, &t->steps[t->first]);
    t->first = (t->first + 1) % t->capacity;
    t->count--;
  }
}

void gpu_times_fini(gpu_times *t, gpu_device *gpu)
{
  for (; t->count > 0; t->count--, t->first = (t->first + 1) % t->capacity) drop(gpu, &t->steps[t->first]);
  free(t->steps);
  *t = (gpu_times){0};
}
