/* gpu/stream.c -- streams, points on them, and the completion thread.
 *
 * A point is an event of the driver.  Work that was queued since the last point makes the stream *dirty*; a stream that
 * is not dirty returns its last point again.  The driver's own host functions are not used, since the driver drops them
 * once a stream has failed.  Instead one thread, the *completer*, asks the driver for the oldest event of every stream,
 * and makes the calls that wait for points which are reached.
 *
 * If an event cannot be recorded (no memory, a failed call), the calling thread waits for the stream instead; the point
 * is then reached at once.  If the driver answers MOST_STRIKES times in a row that a stream has failed, the stream is
 * *broken*: its context is lost, the queued work will not be done, and all waiting calls get the error.
 *
 * If nothing happens on any device for gpu_settings.timeout_ns while work is queued, the devices that have work count
 * as hung, and their streams are broken. The rounds of a loop in a graph are something that happens (conditions.h). The
 * message names the steps that were queued behind the last point that was reached; a point is recorded after every
 * MOST_STEPS steps, so these are few.
 *
 * Locks: completer->streams_mu, then the stream's; a stream's lock is not held while a call runs. */
#include <config.h>

#include <sched.h>
#include <stdlib.h>
#include <stdio.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "gpu/gpu_internal.h"

enum { MOST_STRIKES = 3, YIELDS = 20, LOOK_NS = 3000, LEAST_SLEEP_US = 5, MOST_SLEEP_US = 100, MOST_STEPS = 8, KEPT_STEPS = 256 };

/* A step that was queued. */
typedef struct queued_step {
  uint64_t number; /* number of the point that stands for the step */
  char name[56];
} queued_step;

struct weft_stream {
  gpu_device *gpu;
  gpu_completer *completer;
  int64_t device_id;
  wcu_stream handle;
  weft_stream *next;          /* in the completer's list */
  atomic_bool dirty;
  weft_mutex mu;
  wcu_event *events WEFT_GUARDED_BY(mu); /* a ring: the events of the points that are recorded and not reached */
  int first WEFT_GUARDED_BY(mu);
  int count WEFT_GUARDED_BY(mu);
  int capacity WEFT_GUARDED_BY(mu);
  uint64_t recorded WEFT_GUARDED_BY(mu);
  _Atomic uint64_t reached;   /* written under mu */
  weft_stream_call *calls WEFT_GUARDED_BY(mu); /* in the order of their numbers */
  weft_stream_call **last WEFT_GUARDED_BY(mu);
  int strikes WEFT_GUARDED_BY(mu);
  weft_status *broken WEFT_GUARDED_BY(mu); /* set once */
  queued_step steps[KEPT_STEPS] WEFT_GUARDED_BY(mu); /* a ring: the last steps */
  uint64_t step_count WEFT_GUARDED_BY(mu);
  gpu_times times WEFT_GUARDED_BY(mu);
};

/* gpu_enter for callers that cannot report an error: a call that fails once is repeated. */
static weft_status *enter_surely(const gpu_device *gpu)
{
  weft_status *st = gpu_enter(gpu);

  for (int strikes = 1; st && strikes < MOST_STRIKES; strikes++) {
    weft_status_free(st);
    st = gpu_enter(gpu);
  }
  return st;
}

wcu_stream gpu_stream_handle(const weft_stream *stream) { return stream->handle; }

/* Thread-safe. Release: pairs with the exchange in mark. */
void gpu_stream_used(weft_stream *stream) { atomic_store_explicit(&stream->dirty, true, memory_order_release); }

static void wake(gpu_completer *completer)
{
  atomic_store(&completer->work, true);
  if (!atomic_load(&completer->asleep)) return;
  weft_mutex_lock(&completer->mu);
  weft_cond_signal(&completer->wake);
  weft_mutex_unlock(&completer->mu);
}

/* Pauses that grow: `idle` counts how often nothing has happened. Even the first ones last LOOK_NS: each look at the
 * driver takes locks that a thread which queues work needs. */
static void pause_for(int idle)
{
  int doublings = WEFT_MIN(idle - YIELDS, 8);
  int64_t until;

  if (idle >= YIELDS) {
    usleep((useconds_t)WEFT_MIN(LEAST_SLEEP_US << doublings, MOST_SLEEP_US));
    return;
  }
  until = weft_now_ns() + LOOK_NS;
  do sched_yield();
  while (weft_now_ns() < until);
}

/* Whether `timeout_ns`, unless it is 0, has passed since `since_ns`. */
static bool is_late(int64_t since_ns, int64_t timeout_ns)
{
  return timeout_ns > 0 && weft_now_ns() - since_ns > timeout_ns;
}

/* Waits for the driver's stream. `runs_loops`: graphs run on it, whose loops show that they make progress. */
static weft_status *await_stream(gpu_device *gpu, wcu_stream stream, bool runs_loops)
{
  const weft_status *hung = atomic_load_explicit(&gpu->hung, memory_order_acquire);
  int64_t since = weft_now_ns();
  uint32_t seen = gpu_loops_progress(gpu);

  if (hung) return weft_status_dup(hung);
  for (int idle = 0;; idle += idle < INT32_MAX) {
    wcu_result result = gpu_cu.cuStreamQuery(stream);
    if (result != WCU_ERROR_NOT_READY) return gpu_error(result, "cuStreamQuery");
    bool late = is_late(since, gpu->timeout_ns);
    if (late && runs_loops && gpu_loops_progress(gpu) != seen) {
      seen = gpu_loops_progress(gpu);
      since = weft_now_ns();
    } else if (late) {
      gpu_device_hangs(gpu,
                       WEFT_ERR(DEADLINE_EXCEEDED, "the GPU \"%s\" hangs: a stream was waited for longer than %g s",
                                gpu->kind, (double)gpu->timeout_ns / WEFT_NS_PER_S));
      return weft_status_dup(atomic_load_explicit(&gpu->hung, memory_order_acquire));
    }
    pause_for(idle);
  }
}

weft_status *gpu_await(gpu_device *gpu, wcu_stream stream) { return await_stream(gpu, stream, false); }

/* ---- events ---------------------------------------------------------------------------------------------------- */

/* Makes room for one more event in the ring.  False: there is no memory. */
static bool widen(weft_stream *s) WEFT_REQUIRES(s->mu)
{
  if (s->count < s->capacity) return true;
  int wider = WEFT_MAX(2 * s->capacity, 32);
  wcu_event *bigger = malloc((size_t)wider * sizeof *bigger);
  if (!bigger) return false;
  for (int i = 0; i < s->count; i++) bigger[i] = s->events[(s->first + i) % s->capacity];
  free(s->events);
  s->events = bigger;
  s->first = 0;
  s->capacity = wider;
  return true;
}

static void pop_event(weft_stream *s) WEFT_REQUIRES(s->mu)
{
  gpu_event_give(s->gpu, GPU_POINT, s->events[s->first]);
  s->first = (s->first + 1) % s->capacity;
  s->count--;
}

/* Marks all recorded points as reached: the caller has waited for the stream, or the stream is broken. */
static void reach_all(weft_stream *s) WEFT_REQUIRES(s->mu)
{
  while (s->count > 0) pop_event(s);
  atomic_store_explicit(&s->reached, s->recorded, memory_order_release);
}

static void break_stream(weft_stream *s, weft_status *st) WEFT_REQUIRES(s->mu)
{
  s->broken = weft_status_note(st, __FILE__, __LINE__,
                               "device %lld is lost: runs on it fail until all its clients are gone",
                               (long long)s->device_id);
  WEFT_LOG("gpu", ERROR, "%s", weft_status_text(s->broken, false));
  reach_all(s);
}

/* ---- points ---------------------------------------------------------------------------------------------------- */

static weft_status *record_event(weft_stream *s) WEFT_REQUIRES(s->mu)
{
  wcu_event event;

  if (!widen(s)) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  WEFT_TRY(gpu_event_take(s->gpu, GPU_POINT, &event));
  weft_status *st = GPU_CALL(cuEventRecord, event, s->handle);
  if (st) {
    gpu_event_give(s->gpu, GPU_POINT, event);
    return st;
  }
  s->events[(s->first + s->count++) % s->capacity] = event;
  s->recorded++;
  return NULL;
}

/* Waits for the stream on the calling thread, instead of recording an event. */
static void reach_by_waiting(weft_stream *s) WEFT_REQUIRES(s->mu)
{
  weft_status *st = NULL;

  for (int strikes = 0; strikes < MOST_STRIKES; strikes++) {
    weft_status_free(st);
    st = await_stream(s->gpu, s->handle, true);
    if (weft_status_code(st) == WEFT_DEADLINE_EXCEEDED) break;
    if (st) continue;
    s->recorded++;
    gpu_times_reach(&s->times, s->gpu, s->recorded);
    reach_all(s);
    return;
  }
  break_stream(s, st);
}

/* Records a point behind all work that is queued now; 0: the stream is broken. The caller has entered the device. */
static uint64_t mark(weft_stream *s) WEFT_REQUIRES(s->mu)
{
  if (s->broken) return 0;
  /* acquire: pairs with gpu_stream_used */
  if (!atomic_exchange_explicit(&s->dirty, false, memory_order_acquire) && s->recorded > 0) return s->recorded;
  weft_status *st = record_event(s);
  if (st) {
    WEFT_LOG("gpu", WARN, "device %lld: waiting for a stream, since no event was recorded: %s", (long long)s->device_id,
             weft_status_message(st));
    reach_by_waiting(s);
  }
  weft_status_free(st);
  return s->broken ? 0 : s->recorded;
}

void gpu_stream_step(weft_stream *s, int device, const char *kind, const char *name)
{
  weft_mutex_lock(&s->mu);
  if (s->step_count % MOST_STEPS == 0) mark(s);
  queued_step *step = &s->steps[s->step_count++ % KEPT_STEPS];
  step->number = s->recorded + 1;
  snprintf(step->name, sizeof step->name, "%s", name);
  weft_mutex_unlock(&s->mu);
  gpu_times_begin(s->gpu, s->handle, device, kind, name);
}

void gpu_stream_step_end(weft_stream *s)
{
  if (WEFT_LIKELY(!gpu_times_are_open())) return;
  weft_mutex_lock(&s->mu);
  gpu_times_end(&s->times, s->gpu, s->handle, s->recorded + 1);
  weft_mutex_unlock(&s->mu);
}

void gpu_stream_time(weft_stream *s, const rt_trace_step *about, gpu_timed *out_step)
{
  gpu_times_open(s->gpu, s->handle, about, out_step);
}

void gpu_stream_time_end(weft_stream *s, gpu_timed *step)
{
  if (WEFT_LIKELY(!step->begin)) return;
  weft_mutex_lock(&s->mu);
  gpu_times_close(&s->times, s->gpu, s->handle, s->recorded + 1, step);
  weft_mutex_unlock(&s->mu);
}

uint64_t gpu_stream_record(weft_stream *s)
{
  weft_status *outside = enter_surely(s->gpu);

  weft_mutex_lock(&s->mu);
  uint64_t number = mark(s);
  weft_mutex_unlock(&s->mu);
  if (!outside) gpu_leave();
  weft_status_ignore(outside); /* the driver then refuses all calls that need the context */
  wake(s->completer);
  return number;
}

/* Queues the wait under the lock of `other`: its event cannot be reused meanwhile. */
weft_status *gpu_stream_wait(weft_stream *s, weft_stream *other, uint64_t number)
{
  weft_status *st;

  WEFT_TRY(gpu_enter(s->gpu));
  weft_mutex_lock(&other->mu);
  uint64_t reached = atomic_load_explicit(&other->reached, memory_order_relaxed);
  if (other->broken) st = weft_status_dup(other->broken);
  else if (number <= reached) st = NULL;
  else
    st = GPU_CALL(cuStreamWaitEvent, s->handle,
                  other->events[(other->first + (int)(number - reached - 1)) % other->capacity], 0);
  weft_mutex_unlock(&other->mu);
  gpu_leave();
  gpu_stream_used(s);
  return st;
}

/* acquire: what the work before the point has written is seen */
uint64_t gpu_stream_reached(weft_stream *s) { return atomic_load_explicit(&s->reached, memory_order_acquire); }

void gpu_stream_notify(weft_stream *s, weft_stream_call *call)
{
  weft_status *outside = enter_surely(s->gpu);

  weft_mutex_lock(&s->mu);
  call->next = NULL;
  call->number = mark(s);
  *s->last = call;
  s->last = &call->next;
  weft_mutex_unlock(&s->mu);
  if (!outside) gpu_leave();
  weft_status_ignore(outside);
  wake(s->completer);
}

/* ---- the completer --------------------------------------------------------------------------------------------- */

/* Asks the driver for the stream's oldest points.  True: one was reached, or the stream has broken. */
static bool poll(weft_stream *s) WEFT_REQUIRES(s->mu)
{
  bool progress = false;

  while (s->count > 0) {
    wcu_result result = gpu_cu.cuEventQuery(s->events[s->first]);
    if (result == WCU_ERROR_NOT_READY) break;
    if (result != WCU_SUCCESS) {
      if (++s->strikes < MOST_STRIKES) continue; /* a lost context gives this answer every time */
      break_stream(s, gpu_error(result, "cuEventQuery"));
      return true;
    }
    s->strikes = 0;
    pop_event(s);
    gpu_times_reach(&s->times, s->gpu, atomic_load_explicit(&s->reached, memory_order_relaxed) + 1);
    atomic_fetch_add_explicit(&s->reached, 1, memory_order_release);
    progress = true;
  }
  return progress;
}

/* Detaches the calls whose points are reached, or all if the stream is broken. */
static weft_stream_call *take_calls(weft_stream *s) WEFT_REQUIRES(s->mu)
{
  weft_stream_call *taken = s->calls, **end = &taken;

  while (*end && (s->broken || (*end)->number <= atomic_load_explicit(&s->reached, memory_order_relaxed)))
    end = &(*end)->next;
  s->calls = *end;
  if (!s->calls) s->last = &s->calls;
  *end = NULL;
  return taken;
}

static void make_calls(weft_stream_call *calls, const weft_status *error)
{
  for (weft_stream_call *call = calls, *next; call; call = next) {
    next = call->next;
    call->fn(call->ctx, error);
  }
}

/* Adds to *pending the points that the stream has not reached, and 1 if calls wait.  True: something happened. */
static bool attend(weft_stream *s, int *pending)
{
  weft_status *outside = enter_surely(s->gpu);

  weft_mutex_lock(&s->mu);
  bool progress = !outside && poll(s);
  if (outside && !s->broken && weft_status_code(outside) == WEFT_DEADLINE_EXCEEDED) {
    break_stream(s, weft_status_dup(outside));
    progress = true;
  }
  weft_stream_call *calls = take_calls(s);
  const weft_status *error = s->broken; /* set once */
  *pending += s->count + (s->calls != NULL);
  weft_mutex_unlock(&s->mu);
  if (!outside) gpu_leave();
  weft_status_ignore(outside);
  make_calls(calls, error);
  return progress || calls;
}

/* Looks at all streams once.  False: nothing happened; *out_pending is 0 if no stream has work. */
static bool sweep(gpu_completer *completer, int *out_pending)
{
  bool progress = false;

  *out_pending = 0;
  weft_mutex_lock(&completer->streams_mu);
  for (weft_stream *s = completer->streams; s; s = s->next) progress |= attend(s, out_pending);
  weft_mutex_unlock(&completer->streams_mu);
  return progress;
}

/* The steps behind the last point that was reached, as words for a message; "" if there are none. */
static void name_steps(weft_stream *s, char *out, size_t size) WEFT_REQUIRES(s->mu)
{
  uint64_t reached = atomic_load_explicit(&s->reached, memory_order_relaxed);
  uint64_t first = s->step_count > KEPT_STEPS ? s->step_count - KEPT_STEPS : 0, last;

  while (first < s->step_count && s->steps[first % KEPT_STEPS].number <= reached) first++;
  for (last = first;
       last + 1 < s->step_count && s->steps[(last + 1) % KEPT_STEPS].number == s->steps[first % KEPT_STEPS].number;)
    last++;
  if (first == s->step_count) *out = 0;
  else if (first == last) snprintf(out, size, ": step \"%s\" has not ended", s->steps[first % KEPT_STEPS].name);
  else
    snprintf(out, size, ": one of the steps \"%s\" to \"%s\" has not ended", s->steps[first % KEPT_STEPS].name,
             s->steps[last % KEPT_STEPS].name);
}

/* Marks the devices that have work as hung. */
static void give_up(gpu_completer *completer)
{
  char words[200] = "";

  weft_mutex_lock(&completer->streams_mu);
  for (weft_stream *s = completer->streams; s && !*words; s = s->next) {
    weft_mutex_lock(&s->mu);
    if (s->count > 0) name_steps(s, words, sizeof words);
    weft_mutex_unlock(&s->mu);
  }
  for (weft_stream *s = completer->streams; s; s = s->next) {
    weft_mutex_lock(&s->mu);
    bool waits = s->count > 0 && !s->broken;
    weft_mutex_unlock(&s->mu);
    if (waits && !atomic_load_explicit(&s->gpu->hung, memory_order_relaxed))
      gpu_device_hangs(s->gpu, WEFT_ERR(DEADLINE_EXCEEDED, "the GPU \"%s\" hangs: no progress for %g s%s", s->gpu->kind,
                                        (double)completer->timeout_ns / WEFT_NS_PER_S, words));
  }
  weft_mutex_unlock(&completer->streams_mu);
}

/* A number that changes as long as a loop runs on a device that has work. */
static uint32_t progress_of_loops(gpu_completer *completer)
{
  uint32_t sum = 0;

  weft_mutex_lock(&completer->streams_mu);
  for (weft_stream *s = completer->streams; s; s = s->next) {
    weft_mutex_lock(&s->mu);
    if (s->count > 0) sum += gpu_loops_progress(s->gpu);
    weft_mutex_unlock(&s->mu);
  }
  weft_mutex_unlock(&completer->streams_mu);
  return sum;
}

/* Sweeps until nothing is pending. The pauses grow as long as nothing happens. */
static void complete_all(gpu_completer *completer)
{
  int64_t since = weft_now_ns();
  uint32_t loops = progress_of_loops(completer);
  int pending = 1, idle = 0;

  while (pending > 0) {
    if (sweep(completer, &pending)) {
      idle = 0;
      since = weft_now_ns();
    } else if (pending > 0) {
      pause_for(idle);
      idle += idle < INT32_MAX;
      if (idle % 64 != 0 || !is_late(since, completer->timeout_ns)) continue;
      uint32_t now = progress_of_loops(completer);
      if (now == loops) give_up(completer);
      else since = weft_now_ns();
      loops = now;
    }
  }
}

static void *completer_run(void *arg)
{
  gpu_completer *completer = arg;
  bool stop = false;

  const gpu_platform *platform = WEFT_CONTAINER_OF(completer, gpu_platform, completer);
  rt_platform_own_thread(&platform->base);
  gpu_numa_bind(platform->node);
  while (!stop) {
    complete_all(completer);
    weft_mutex_lock(&completer->mu);
    atomic_store(&completer->asleep, true);
    while (!atomic_exchange(&completer->work, false) && !completer->stop)
      weft_cond_wait(&completer->wake, &completer->mu, WEFT_NO_DEADLINE);
    atomic_store(&completer->asleep, false);
    stop = completer->stop;
    weft_mutex_unlock(&completer->mu);
  }
  return NULL;
}

weft_status *gpu_completer_start(gpu_completer *completer)
{
  weft_mutex_init(&completer->streams_mu);
  weft_mutex_init(&completer->mu);
  weft_cond_init(&completer->wake);
  weft_status *st = weft_thread_start(&completer->thread, "gpu-complete", completer_run, completer);
  completer->started = st == NULL;
  return st;
}

void gpu_completer_stop(gpu_completer *completer)
{
  if (!completer->started) return;
  weft_mutex_lock(&completer->mu);
  completer->stop = true;
  weft_cond_signal(&completer->wake);
  weft_mutex_unlock(&completer->mu);
  pthread_join(completer->thread, NULL);
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

weft_status *gpu_stream_create(weft_device *device, int priority, weft_stream **out_stream) WEFT_UNSHARED
{
  gpu_completer *completer = &gpu_platform_of(device)->completer;
  gpu_device *gpu = gpu_of(device);
  weft_stream *s = calloc(1, sizeof *s);

  *out_stream = NULL;
  WEFT_TRY_ALLOC(s);
  weft_status *st = gpu_enter(gpu);
  if (!st) {
    st =
      GPU_CALL(cuStreamCreateWithPriority, &s->handle, WCU_STREAM_NON_BLOCKING, priority > 0 ? gpu->top_priority : 0);
    gpu_leave();
  }
  if (st) {
    free(s);
    return st;
  }
  s->gpu = gpu;
  s->completer = completer;
  s->device_id = device->id;
  s->last = &s->calls;
  weft_mutex_init(&s->mu);
  weft_mutex_lock(&completer->streams_mu);
  s->next = completer->streams;
  completer->streams = s;
  weft_mutex_unlock(&completer->streams_mu);
  *out_stream = s;
  return NULL;
}

void gpu_stream_destroy(weft_stream *s) WEFT_UNSHARED
{
  gpu_completer *completer = s->completer;
  weft_stream **link = &completer->streams;

  weft_mutex_lock(&completer->streams_mu);
  while (*link != s) link = &(*link)->next;
  *link = s->next;
  weft_mutex_unlock(&completer->streams_mu);
  weft_status *st = gpu_enter(s->gpu), *late = NULL;
  if (!st) {
    /* the remaining work of the stream is local, and uses memory that is freed next */
    late = gpu_await(s->gpu, s->handle);
    while (s->count > 0) pop_event(s);
    gpu_times_fini(&s->times, s->gpu);
    gpu_cu.cuStreamDestroy(s->handle);
    gpu_leave();
  }
  /* Copies through staging ask for a call that nobody else knows of (memory.c), so there may be some left. The
   * completer does not know the stream any more. */
  make_calls(WEFT_MOVE(s->calls), s->broken ? s->broken : st ? st : late);
  weft_status_ignore(st);
  weft_status_ignore(late);
  weft_status_free(s->broken);
  weft_mutex_fini(&s->mu);
  free(s->events);
  free(s->times.steps);
  free(s);
}
