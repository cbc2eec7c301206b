/* tests/gpu/emulator/queue.c -- contexts and streams: a thread for each stream does the stream's work in order.
 *
 * The implicit (legacy) stream keeps CUDA's rule: its work waits for all that was queued before on the blocking streams
 * of its context, and work queued on those later waits for it.  After a fault of a kernel the context's error sticks:
 * queued work is dropped, marks are still reached, host functions are not called. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct wcu_context_st emu_contexts[EMU_DEVICES];
_Thread_local wcu_context emu_current;
pthread_mutex_t emu_mu = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t emu_changed = PTHREAD_COND_INITIALIZER;
static wcu_stream streams; /* all that were ever made */

void emu_fail(wcu_context c, wcu_result r, const char *text)
{
  emu_say(text);
  wcu_result none = WCU_SUCCESS;
  __atomic_compare_exchange_n(&c->sticky, &none, r, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* ---- marks ---- */

emu_mark *emu_mark_new(void)
{
  emu_mark *m = calloc(1, sizeof *m);
  if (m) m->refs = 1, m->context = emu_current;
  return m;
}

emu_mark *emu_mark_retain(emu_mark *m)
{
  if (m) __atomic_add_fetch(&m->refs, 1, __ATOMIC_RELAXED);
  return m;
}

void emu_mark_release(emu_mark *m)
{
  if (m && __atomic_sub_fetch(&m->refs, 1, __ATOMIC_ACQ_REL) == 0) free(m);
}

static void reach(emu_mark *m)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  pthread_mutex_lock(&emu_mu);
  m->ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec, m->done = true;
  pthread_cond_broadcast(&emu_changed);
  pthread_mutex_unlock(&emu_mu);
}

static void await_mark(const emu_mark *m)
{
  pthread_mutex_lock(&emu_mu);
  while (!m->done) pthread_cond_wait(&emu_changed, &emu_mu);
  pthread_mutex_unlock(&emu_mu);
}

/* ---- work ---- */

emu_work emu_work_clone(const emu_work *w)
{
  emu_work c = *w;
  emu_mark_retain(c.mark);
  emu_condition_retain(c.condition);
  if (w->bytes) {
    c.bytes = malloc(w->byte_count + 1);
    if (c.bytes) memcpy(c.bytes, w->bytes, w->byte_count);
    else c.what = EMU_EMPTY, c.count = NULL;
  }
  if (c.count) c.count(c.bytes, 1);
  if (w->many) {
    c.many = calloc(w->many_count + 1, sizeof *c.many);
    for (size_t n = 0; c.many && n < w->many_count; n++) c.many[n] = emu_work_clone(&w->many[n]);
  }
  if (c.is_launch) emu_work_count_launch(&c, 1);
  return c;
}

void emu_work_count_launch(const emu_work *w, int change)
{
  if (w->condition) emu_condition_launch(w->condition, change);
  for (size_t n = 0; w->many && n < w->many_count; n++) emu_work_count_launch(&w->many[n], change);
}

void emu_work_drop(emu_work *w)
{
  if (w->is_launch) emu_work_count_launch(w, -1);
  for (size_t n = 0; w->many && n < w->many_count; n++) emu_work_drop(&w->many[n]);
  free(w->many);
  if (w->count) w->count(w->bytes, -1);
  free(w->bytes);
  emu_mark_release(w->mark);
  emu_condition_release(w->condition);
  *w = (emu_work){.what = EMU_EMPTY};
}

/* cuStreamWaitValue32: until the value is at least the wanted one, counted around the corner, or equal. */
static int poll_value(const emu_work *w, const struct wcu_context_st *c);

static int run_one(const emu_work *w, wcu_context c, char *error, size_t size)
{
  switch (w->what) {
  case EMU_KERNEL: return emu_run_kernel(w, c, error, size);
  case EMU_COPY: return emu_run_copy(w, c->device, error, size);
  case EMU_FILL: return emu_run_fill(w, c->device, error, size);
  case EMU_HOST_CALL:
    emu_in_host_function = true;
    w->host.fn(w->host.userData);
    emu_in_host_function = false;
    return 0;
  case EMU_POOL_FREE: emu_free(w->at, 1 << EMU_DEVICE_MEMORY); return 0;
  case EMU_SIGNAL: __atomic_store_n((uint32_t *)(void *)emu_host(w->at), w->value, __ATOMIC_RELEASE); return 0;
  case EMU_POLL: return poll_value(w, c);
  case EMU_LIBRARY: return w->job(w->bytes, c->device, error, size);
  default: return 0;
  }
}

/* The error of a kernel of the context, which all calls return; else WCU_SUCCESS. It is set before the failed work
 * counts as done. */
static wcu_result error_of(const struct wcu_context_st *c) { return __atomic_load_n(&c->sticky, __ATOMIC_ACQUIRE); }

static void run(const emu_work *w, wcu_context c);

/* A launch gives the handles of all conditional nodes, nested ones too, their default values. */
static void begin_conditions(const emu_work *w)
{
  if (w->condition) emu_condition_begin(w->condition);
  for (size_t n = 0; n < w->many_count; n++) begin_conditions(&w->many[n]);
}

static void run_conditional(const emu_work *w, wcu_context c)
{
  uint32_t value = emu_condition_value(w->condition);
  if (w->type == WCU_GRAPH_COND_TYPE_WHILE)
    while (emu_condition_value(w->condition) && !error_of(c)) run(&w->many[0], c);
  else if (w->type == WCU_GRAPH_COND_TYPE_IF) value = !value;
  if (w->type != WCU_GRAPH_COND_TYPE_WHILE && value < w->many_count) run(&w->many[value], c);
}

static void run(const emu_work *w, wcu_context c)
{
  if (w->is_launch) begin_conditions(w);
  if (w->what == EMU_CONDITIONAL && w->many && !error_of(c)) {
    run_conditional(w, c);
    return;
  }
  char error[600] = "";
  if (w->what == EMU_RECORD && w->mark) reach(w->mark);
  if (w->what == EMU_AWAIT && w->mark) await_mark(w->mark);
  for (size_t n = 0; w->what == EMU_MANY && w->many && n < w->many_count; n++) run(&w->many[n], c);
  if (w->what == EMU_MANY || error_of(c)) return;
  int r = run_one(w, c, error, sizeof error);
  if (r) emu_fail(c, (wcu_result)r, error);
}

static int poll_value(const emu_work *w, const struct wcu_context_st *c)
{
  const uint32_t *at = (const uint32_t *)(void *)emu_host(w->at);
  for (;;) {
    uint32_t v = __atomic_load_n(at, __ATOMIC_ACQUIRE);
    if (w->byte_count == 1 ? v == w->value : (int32_t)(v - w->value) >= 0) return 0;
    if (error_of(c)) return 0;
    emu_sleep(20000);
  }
}

/* ---- streams ---- */

static void drop_task(emu_task *t)
{
  emu_work_drop(&t->work);
  free(t->after);
  free(t);
}

static void do_task(wcu_stream s, emu_task *t)
{
  pthread_mutex_lock(&emu_mu);
  for (size_t n = 0; n < t->after_count; n++)
    while (t->after[n].stream->done < t->after[n].until) pthread_cond_wait(&emu_changed, &emu_mu);
  pthread_mutex_unlock(&emu_mu);
  if (emu_set.delay_ns) emu_sleep(emu_random() % emu_set.delay_ns);
  emu_sleep(t->late_ns);
  run(&t->work, s->context);
  drop_task(t);
}

static void *stream_main(void *arg)
{
  wcu_stream s = arg;
  pthread_mutex_lock(&emu_mu);
  for (;;) {
    while (!s->first && !s->stopping) pthread_cond_wait(&s->has_work, &emu_mu);
    emu_task *t = s->first;
    if (!t) break;
    s->first = t->next;
    if (!s->first) s->last = NULL;
    pthread_mutex_unlock(&emu_mu);
    do_task(s, t);
    pthread_mutex_lock(&emu_mu);
    s->done++;
    pthread_cond_broadcast(&emu_changed);
  }
  s->ended = true;
  pthread_cond_broadcast(&emu_changed);
  pthread_mutex_unlock(&emu_mu);
  return NULL;
}

/* A thread that has ended keeps its stack until it is joined. The lock is held from the question to the answer, so
 * that no thread is joined twice: the second join would wait for whoever has the stack next. */
static void join_ended_locked(void)
{
  for (wcu_stream s = streams; s; s = s->next)
    if (s->ended && !s->joined) pthread_join(s->thread, NULL), s->joined = true;
}

wcu_stream emu_stream_new(wcu_context c, unsigned flags, int priority)
{
  wcu_stream s = weft_emu_keep(sizeof *s); /* also when it is destroyed: see emu_stream_of */
  if (!s) return NULL;
  join_ended_locked();
  s->context = c, s->flags = flags, s->priority = priority;
  pthread_cond_init(&s->has_work, NULL);
  if (pthread_create(&s->thread, NULL, stream_main, s)) return NULL;
  s->next = streams, streams = s;
  return s;
}

wcu_stream emu_all_streams(void) { return streams; }

wcu_stream emu_stream_of(wcu_stream s)
{
  if (s == NULL || s == WCU_STREAM_LEGACY || s == WCU_STREAM_PER_THREAD) {
    wcu_stream *own = s == WCU_STREAM_PER_THREAD ? &emu_current->per_thread : &emu_current->legacy;
    if (!*own) *own = emu_stream_new(emu_current, 0, 0);
    return *own;
  }
  for (wcu_stream t = streams; t; t = t->next)
    if (t == s) return t->destroyed ? NULL : t;
  return NULL;
}

/* What the order of the implicit stream makes this task wait for. */
static bool add_waits(wcu_stream s, emu_task *t)
{
  wcu_stream legacy = s->context->legacy;
  size_t n = 0;
  if (s->flags & WCU_STREAM_NON_BLOCKING || !legacy) return true;
  if (s != legacy) {
    t->after = malloc(sizeof *t->after);
    if (!t->after) return false;
    t->after[0].stream = legacy, t->after[0].until = legacy->submitted, t->after_count = 1;
    return true;
  }
  for (wcu_stream o = streams; o; o = o->next) n++;
  t->after = calloc(n + 1, sizeof *t->after);
  if (!t->after) return false;
  for (wcu_stream o = streams; o; o = o->next) {
    if (o == s || o->context != s->context || o->flags & WCU_STREAM_NON_BLOCKING || o->done == o->submitted) continue;
    t->after[t->after_count].stream = o, t->after[t->after_count++].until = o->submitted;
  }
  return true;
}

static wcu_result submit_locked(wcu_stream s, emu_work *w)
{
  if (s->capture) return emu_capture_add(s, w);
  emu_task *t = calloc(1, sizeof *t);
  if (!t || !add_waits(s, t)) {
    free(t);
    emu_work_drop(w);
    return WCU_ERROR_OUT_OF_MEMORY;
  }
  t->work = *w, t->late_ns = emu_take_stall();
  *w = (emu_work){.what = EMU_EMPTY};
  if (s->last) s->last->next = t;
  else s->first = t;
  s->last = t;
  s->submitted++;
  pthread_cond_signal(&s->has_work);
  return WCU_SUCCESS;
}

wcu_result emu_submit(wcu_stream stream, emu_work *w)
{
  pthread_mutex_lock(&emu_mu);
  wcu_stream s = emu_stream_of(stream);
  wcu_result r = s ? submit_locked(s, w) : WCU_ERROR_INVALID_HANDLE;
  if (!s) emu_work_drop(w);
  pthread_mutex_unlock(&emu_mu);
  return r;
}

wcu_result emu_wait(wcu_stream stream)
{
  pthread_mutex_lock(&emu_mu);
  wcu_stream s = emu_stream_of(stream);
  wcu_result r = s ? emu_capture_forbids(s) : WCU_ERROR_INVALID_HANDLE;
  uint64_t until = s ? s->submitted : 0;
  while (r == WCU_SUCCESS && s->done < until) pthread_cond_wait(&emu_changed, &emu_mu);
  pthread_mutex_unlock(&emu_mu);
  return r ? r : error_of(s->context);
}

wcu_result emu_submit_and_wait(wcu_stream stream, emu_work *w)
{
  pthread_mutex_lock(&emu_mu);
  wcu_stream s = emu_stream_of(stream);
  wcu_result r = s ? emu_capture_forbids(s) : WCU_ERROR_INVALID_HANDLE;
  pthread_mutex_unlock(&emu_mu);
  if (r) {
    emu_work_drop(w);
    return r;
  }
  r = emu_submit(stream, w);
  return r ? r : emu_wait(stream);
}

void emu_stop_streams(wcu_context c)
{
  pthread_mutex_lock(&emu_mu);
  for (wcu_stream s = streams; s; s = s->next)
    if (!c || s->context == c) {
      s->stopping = s->destroyed = true;
      pthread_cond_signal(&s->has_work);
    }
  for (wcu_stream s = streams; s; s = s->next)
    while ((!c || s->context == c) && !s->ended) pthread_cond_wait(&emu_changed, &emu_mu);
  join_ended_locked();
  pthread_mutex_unlock(&emu_mu);
}

/* ---- the driver's calls on streams and events ---- */

EMU_API cuStreamCreateWithPriority(wcu_stream *stream, unsigned flags, int priority)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!stream || flags > WCU_STREAM_NON_BLOCKING) return WCU_ERROR_INVALID_VALUE;
  int clamped = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  pthread_mutex_lock(&emu_mu);
  *stream = emu_stream_new(emu_current, flags, clamped);
  pthread_mutex_unlock(&emu_mu);
  return *stream ? WCU_SUCCESS : WCU_ERROR_OUT_OF_MEMORY;
}

EMU_API cuStreamCreate(wcu_stream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

/* The stream's work goes on; its thread ends after it. */
EMU_API cuStreamDestroy_v2(wcu_stream stream)
{
  EMU_ENTER(EMU_AFTER_INIT);
  wcu_result r = WCU_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&emu_mu);
  for (wcu_stream s = streams; s; s = s->next) {
    if (s != stream || s->destroyed) continue;
    s->destroyed = s->stopping = true, r = WCU_SUCCESS;
    emu_capture_drop(s);
    free(s->from);
    s->from = NULL;
    pthread_cond_signal(&s->has_work);
  }
  pthread_mutex_unlock(&emu_mu);
  return r;
}

EMU_API cuStreamQuery(wcu_stream stream)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  pthread_mutex_lock(&emu_mu);
  wcu_stream s = emu_stream_of(stream);
  wcu_result r = s ? emu_capture_forbids(s) : WCU_ERROR_INVALID_HANDLE;
  if (r == WCU_SUCCESS && s->done < s->submitted) r = WCU_ERROR_NOT_READY;
  pthread_mutex_unlock(&emu_mu);
  return r ? r : error_of(s->context); /* the work may have failed since EMU_ENTER looked */
}

EMU_API cuStreamSynchronize(wcu_stream stream)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return emu_wait(stream);
}

EMU_API cuCtxSynchronize(void)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  wcu_context c = emu_current;
  pthread_mutex_lock(&emu_mu);
  for (wcu_stream s = streams; s; s = s->next) {
    uint64_t until = s->submitted;
    while (s->context == c && s->done < until) pthread_cond_wait(&emu_changed, &emu_mu);
  }
  pthread_mutex_unlock(&emu_mu);
  return error_of(c);
}

#define STREAM_GET(call, type, expression)                                   \
  EMU_API call(wcu_stream stream, type *out)                                 \
  {                                                                          \
    EMU_ENTER(EMU_WITH_CONTEXT);                                             \
    pthread_mutex_lock(&emu_mu);                                             \
    wcu_stream s = emu_stream_of(stream);                                    \
    if (s && out) *out = (expression);                                       \
    pthread_mutex_unlock(&emu_mu);                                           \
    return s && out ? WCU_SUCCESS : WCU_ERROR_INVALID_HANDLE;                \
  }
STREAM_GET(cuStreamGetPriority, int, s->priority)
STREAM_GET(cuStreamGetFlags, unsigned, s->flags)
STREAM_GET(cuStreamGetCtx, wcu_context, s->context)
STREAM_GET(cuStreamGetDevice, wcu_device, s->context->device)

EMU_API cuStreamWriteValue32_v2(wcu_stream stream, wcu_ptr at, uint32_t value, unsigned flags)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  char why[200];
  if (flags || at % 4 || !emu_reachable(emu_current->device, at, 4, true, why, sizeof why))
    return WCU_ERROR_INVALID_VALUE;
  return emu_submit(stream, &(emu_work){.what = EMU_SIGNAL, .at = at, .value = value});
}

EMU_API cuStreamWaitValue32_v2(wcu_stream stream, wcu_ptr at, uint32_t value, unsigned flags)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  char why[200];
  if (flags > 1 || at % 4 || !emu_reachable(emu_current->device, at, 4, false, why, sizeof why))
    return WCU_ERROR_INVALID_VALUE;
  return emu_submit(stream, &(emu_work){.what = EMU_POLL, .at = at, .value = value, .byte_count = flags});
}

EMU_API cuLaunchHostFunc(wcu_stream stream, wcu_host_fn fn, void *user)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!fn) return WCU_ERROR_INVALID_VALUE;
  return emu_submit(stream, &(emu_work){.what = EMU_HOST_CALL, .host = {fn, user}});
}

EMU_API cuEventCreate(wcu_event *event, unsigned flags)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!event || flags > 7) return WCU_ERROR_INVALID_VALUE;
  *event = calloc(1, sizeof **event);
  if (!*event) return WCU_ERROR_OUT_OF_MEMORY;
  (*event)->flags = flags;
  return WCU_SUCCESS;
}

EMU_API cuEventDestroy_v2(wcu_event event)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!event) return WCU_ERROR_INVALID_HANDLE;
  emu_mark_release(event->mark);
  free(event->from);
  free(event);
  return WCU_SUCCESS;
}

EMU_API cuEventRecord(wcu_event event, wcu_stream stream)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  emu_mark *m = event ? emu_mark_new() : NULL;
  if (!m) return event ? WCU_ERROR_OUT_OF_MEMORY : WCU_ERROR_INVALID_HANDLE;
  wcu_result r;
  emu_mark *old = m; /* what is released in the end */
  pthread_mutex_lock(&emu_mu);
  wcu_stream s = emu_stream_of(stream);
  if (!s) {
    r = WCU_ERROR_INVALID_HANDLE;
  } else if (s->capture) {
    r = emu_capture_record(event, s);
  } else {
    m->refs = 2;
    old = event->mark, event->mark = m, event->capture = NULL;
    r = submit_locked(s, &(emu_work){.what = EMU_RECORD, .mark = m});
  }
  pthread_mutex_unlock(&emu_mu);
  emu_mark_release(old);
  return r;
}

EMU_API cuStreamWaitEvent(wcu_stream stream, wcu_event event, unsigned flags)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  (void)flags;
  if (!event) return WCU_ERROR_INVALID_HANDLE;
  wcu_result r = WCU_SUCCESS;
  pthread_mutex_lock(&emu_mu);
  wcu_stream s = emu_stream_of(stream);
  if (!s) {
    r = WCU_ERROR_INVALID_HANDLE;
  } else if (event->capture) {
    r = emu_capture_wait(s, event);
  } else if (s->capture && event->mark) {
    r = WCU_ERROR_STREAM_CAPTURE_ISOLATION; /* the event is of work outside of the capture */
  } else if (event->mark) {
    r = submit_locked(s, &(emu_work){.what = EMU_AWAIT, .mark = emu_mark_retain(event->mark)});
  }
  pthread_mutex_unlock(&emu_mu);
  return r;
}

EMU_API cuEventQuery(wcu_event event)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!event) return WCU_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&emu_mu);
  wcu_result r = event->capture                      ? WCU_ERROR_CAPTURED_EVENT
                 : event->mark && !event->mark->done ? WCU_ERROR_NOT_READY
                                                     : WCU_SUCCESS;
  pthread_mutex_unlock(&emu_mu);
  return r ? r : error_of(emu_current); /* as in cuStreamQuery */
}

EMU_API cuEventSynchronize(wcu_event event)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!event) return WCU_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&emu_mu);
  emu_mark *m = event->capture ? NULL : event->mark;
  wcu_result r = event->capture ? WCU_ERROR_CAPTURED_EVENT : WCU_SUCCESS;
  emu_mark_retain(m);
  while (m && !m->done) pthread_cond_wait(&emu_changed, &emu_mu);
  pthread_mutex_unlock(&emu_mu);
  emu_mark_release(m);
  return r ? r : error_of(emu_current);
}

EMU_API cuEventElapsedTime_v2(float *ms, wcu_event start, wcu_event end)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!ms || !start || !end || !start->mark || !end->mark || (start->flags | end->flags) & WCU_EVENT_DISABLE_TIMING)
    return WCU_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&emu_mu);
  bool done = start->mark->done && end->mark->done;
  if (done) *ms = (float)((double)(int64_t)(end->mark->ns - start->mark->ns) * 1e-6);
  pthread_mutex_unlock(&emu_mu);
  return done ? WCU_SUCCESS : WCU_ERROR_NOT_READY;
}
