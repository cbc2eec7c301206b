/* tests/platform/deferred.c -- a platform whose work is queued, not done. Linked into a test program, it becomes
 * that program's default platform.
 *
 * Each stream is a queue that a thread of its own drains, with random delays. Copies, fills, kernels, points and
 * completions all go through the queue. Code that takes "queued" for "done" finds wrong bytes, since memory holds a
 * pattern before its use and again after it is freed. Addresses are those of region.h, so code that touches the
 * bytes without the platform traps.
 *
 * WEFT_DEFERRED_SEED   seed of the delays; 1
 * WEFT_DEFERRED_BREAK  breaks a promise on purpose, to show that the tests notice:
 *                      "wait"     a wait for another stream's point is left out
 *                      "notify"   a completion is called at once
 *                      "reached"  a recorded point counts as reached
 *                      "read"     a queued read is done at once */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu/platform.h"
#include "deferred.h"
#include "region.h"
#include "runtime/trace.h"

enum { MOST_QUEUED = 512, PATIENCE_MS = 120000, ONE_IN = 4, MOST_DELAY_US = 300 };

typedef enum op_kind { COPY, FILL, STEP, RECORD, WAIT, CALL } op_kind;
typedef struct op {
  op_kind kind;
  void *to;
  const void *from;
  int64_t bytes;
  int byte;
  const rt_thunk *thunk;
  rt_ctx *ctx;
  rt_trace_step traced; /* the step as traces name it; kind NULL: it is not recorded */
  uint64_t number;
  weft_stream *other;
  weft_stream_call *call;
} op;

struct weft_stream {
  weft_device *device;
  pthread_t thread;
  weft_mutex mu;
  weft_cond changed;
  op ops[MOST_QUEUED] WEFT_GUARDED_BY(mu); /* a ring */
  int first WEFT_GUARDED_BY(mu);
  int count WEFT_GUARDED_BY(mu);
  uint64_t recorded WEFT_GUARDED_BY(mu);
  uint64_t reached WEFT_GUARDED_BY(mu);
  bool ends WEFT_GUARDED_BY(mu);
  bool held WEFT_GUARDED_BY(mu);
  uint64_t random; /* the thread's */
};

static bool breaks(const char *promise)
{
  const char *broken = getenv("WEFT_DEFERRED_BREAK");
  return broken && strcmp(broken, promise) == 0;
}

/* ---- the thread ------------------------------------------------------------------------------------------------ */

static void give_up(const char *what)
{
  fprintf(stderr, "deferred platform: %s took over %d ms\n", what, PATIENCE_MS);
  _exit(98);
}

static uint64_t next_random(weft_stream *s)
{
  s->random ^= s->random << 13;
  s->random ^= s->random >> 7;
  return s->random ^= s->random << 17;
}

static void delay(weft_stream *s)
{
  if (next_random(s) % ONE_IN == 0) usleep((useconds_t)(next_random(s) % MOST_DELAY_US));
}

static void reach(weft_stream *s, uint64_t number)
{
  weft_mutex_lock(&s->mu);
  s->reached = number;
  weft_cond_broadcast(&s->changed);
  weft_mutex_unlock(&s->mu);
}

static void wait_for(weft_stream *other, uint64_t number)
{
  weft_deadline deadline = weft_deadline_after_ms(PATIENCE_MS);
  bool in_time = true;

  weft_mutex_lock(&other->mu);
  while (other->reached < number && in_time) in_time = weft_cond_wait(&other->changed, &other->mu, deadline);
  weft_mutex_unlock(&other->mu);
  if (!in_time) give_up("a wait for another stream");
}

/* Runs a thunk that the CPU's target has made, on real addresses. */
static void do_step(const rt_thunk *thunk, rt_ctx *ctx);

static void do_queued_step(const op *o)
{
  int64_t begin = o->traced.kind ? weft_now_ns() : 0;

  do_step(o->thunk, o->ctx);
  if (begin) rt_trace_on_device(&o->traced, begin, weft_now_ns());
}

static void perform(weft_stream *s, const op *o)
{
  switch (o->kind) {
  case COPY: memmove(region_real(o->to), region_real(o->from), (size_t)o->bytes); break;
  case FILL: memset(region_real(o->to), o->byte, (size_t)o->bytes); break;
  case STEP: do_queued_step(o); break;
  case RECORD: reach(s, o->number); break;
  case WAIT: wait_for(o->other, o->number); break;
  case CALL: o->call->fn(o->call->ctx, NULL); break;
  }
}

static bool take(weft_stream *s, op *out)
{
  weft_mutex_lock(&s->mu);
  while ((s->count == 0 || s->held) && !s->ends)
    weft_cond_wait(&s->changed, &s->mu, weft_deadline_after_ms(PATIENCE_MS));
  bool any = s->count > 0;
  if (any) {
    *out = s->ops[s->first];
    s->first = (s->first + 1) % MOST_QUEUED;
    s->count--;
    weft_cond_broadcast(&s->changed);
  }
  weft_mutex_unlock(&s->mu);
  return any;
}

static void *drain(void *arg)
{
  weft_stream *s = arg;
  op o;

  weft_thread_flush_denormals(s->device->platform->flush_denormals);
  while (take(s, &o)) {
    delay(s);
    perform(s, &o);
  }
  return NULL;
}

/* A full queue makes the caller wait; the stream's own thread makes room. */
static uint64_t put(weft_stream *s, op o)
{
  weft_deadline deadline = weft_deadline_after_ms(PATIENCE_MS);
  bool in_time = true;

  weft_mutex_lock(&s->mu);
  while (s->count == MOST_QUEUED && in_time) in_time = weft_cond_wait(&s->changed, &s->mu, deadline);
  if (in_time) {
    if (o.kind == RECORD) o.number = ++s->recorded;
    s->ops[(s->first + s->count++) % MOST_QUEUED] = o;
    weft_cond_broadcast(&s->changed);
  }
  weft_mutex_unlock(&s->mu);
  if (!in_time) give_up("a full queue");
  return o.number;
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

static weft_status *stream_create(weft_device *device, int priority, weft_stream **out_stream)
{
  static atomic_int streams;
  const char *seed = getenv("WEFT_DEFERRED_SEED");
  weft_stream *s = calloc(1, sizeof *s);
  weft_status *st;

  (void)priority;
  WEFT_TRY_ALLOC(s);
  s->device = device;
  s->random = ((seed ? strtoull(seed, NULL, 10) : 1) + 1) * 0x9E3779B97F4A7C15 +
              (uint64_t)atomic_fetch_add(&streams, 1);
  weft_mutex_init(&s->mu);
  weft_cond_init(&s->changed);
  st = weft_thread_start(&s->thread, "deferred", drain, s);
  if (st) free(s);
  else *out_stream = s;
  return st;
}

void deferred_hold_one(weft_device *device, weft_stream_purpose purpose, bool held)
{
  weft_stream *s = weft_device_stream(device, purpose);

  weft_mutex_lock(&s->mu);
  s->held = held;
  weft_cond_broadcast(&s->changed);
  weft_mutex_unlock(&s->mu);
}

void deferred_hold(weft_device *device, bool held)
{
  for (int i = 0; i < WEFT_STREAM_PURPOSES; i++) deferred_hold_one(device, i, held);
}

static void stream_destroy(weft_stream *s)
{
  weft_mutex_lock(&s->mu);
  s->ends = true;
  weft_cond_broadcast(&s->changed);
  weft_mutex_unlock(&s->mu);
  pthread_join(s->thread, NULL);
  weft_cond_fini(&s->changed);
  weft_mutex_fini(&s->mu);
  free(s);
}

static uint64_t record_point(weft_stream *s) { return put(s, (op){RECORD}); }

static weft_status *stream_wait(weft_stream *s, weft_stream *other, uint64_t number)
{
  if (!breaks("wait")) put(s, (op){WAIT, .other = other, .number = number});
  return NULL;
}

static uint64_t reached(weft_stream *s)
{
  weft_mutex_lock(&s->mu);
  uint64_t number = breaks("reached") ? s->recorded : s->reached;
  weft_mutex_unlock(&s->mu);
  return number;
}

static void notify(weft_stream *s, weft_stream_call *call)
{
  if (breaks("notify")) call->fn(call->ctx, NULL);
  else put(s, (op){CALL, .call = call});
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */

static weft_status *move_bytes(weft_stream *stream, void *to, const void *from, int64_t bytes)
{
  if (stream) put(stream, (op){COPY, .to = to, .from = from, .bytes = bytes});
  else memmove(region_real(to), region_real(from), (size_t)bytes);
  return NULL;
}

static weft_status *device_write(weft_device *device, weft_stream *stream, void *to, const void *host, int64_t bytes)
{
  (void)device;
  return move_bytes(stream, to, host, bytes);
}

static weft_status *device_read(weft_device *device, weft_stream *stream, void *host, const void *from, int64_t bytes)
{
  (void)device;
  return move_bytes(breaks("read") ? NULL : stream, host, from, bytes);
}

static weft_status *copy(weft_device *to_device, weft_stream *stream, void *to, weft_device *from_device,
                         const void *from, int64_t bytes)
{
  (void)to_device, (void)from_device;
  return move_bytes(stream, to, from, bytes);
}

static weft_status *device_fill(weft_device *device, weft_stream *stream, void *to, int byte, int64_t bytes)
{
  (void)device;
  if (stream) put(stream, (op){FILL, .to = to, .bytes = bytes, .byte = byte});
  else memset(region_real(to), byte, (size_t)bytes);
  return NULL;
}

/* ---- kernels --------------------------------------------------------------------------------------------------- */

/* A thunk with `run` is queued. A thunk with `start` (a handler of a custom call)
 * stays on the host, on real addresses. */

static void do_step(const rt_thunk *thunk, rt_ctx *ctx)
{
  weft_status *st;

  if (rt_has_fault(ctx)) return;
  region_translate(thunk, ctx);
  st = region_cpu_ops(thunk)->run(thunk, ctx);
  if (st) rt_thunk_fault(thunk, ctx, st);
}

static weft_status *enqueue(const rt_thunk *thunk, rt_ctx *ctx)
{
  put(weft_device_stream(ctx->info->device, WEFT_STREAM_COMPUTE),
      (op){STEP, .thunk = thunk, .ctx = ctx, .traced = rt_trace_current});
  return NULL;
}

static weft_status *start(const rt_thunk *thunk, rt_ctx *ctx)
{
  region_translate(thunk, ctx);
  return region_cpu_ops(thunk)->start(thunk, ctx);
}

static void wrap(rt_thunk_ops *ops)
{
  if (ops->run) {
    ops->run = NULL;
    ops->enqueue = enqueue;
  } else {
    ops->start = start;
  }
}

/* ---- the platform ---------------------------------------------------------------------------------------------- */

static weft_platform_ops deferred_platform;

static weft_status *make(void *ctx, low_step *step, rt_thunk **out_thunk)
{
  return region_make(ctx, step, wrap, out_thunk);
}
static void adapt(low_target *target) { region_adapt(target, make); }

static weft_status *create(const weft_platform_options *options, weft_platform **out_platform)
{
  return region_create(&deferred_platform, options, out_platform);
}

static weft_status *compile(weft_platform *platform, hlo_module *module, const weft_compile_options *options,
                            weft_executable **out_executable)
{
  return cpu_compile_adapted(platform, module, options, adapt, out_executable);
}

static weft_status *load(weft_platform *platform, hlo_module *module, const void *code, size_t size,
                         const weft_compile_options *options, weft_executable **out_executable)
{
  return cpu_load_adapted(platform, module, code, size, options, adapt, out_executable);
}

static const weft_device_ops deferred_device = {
  .size = sizeof(weft_device_ops),
  .spaces = region_spaces,
  .allocate = region_allocate,
  .deallocate = region_deallocate,
  .write = device_write,
  .read = device_read,
  .copy = copy,
  .fill = device_fill,
  .host_address = region_host_address,
  .stream_create = stream_create,
  .stream_destroy = stream_destroy,
  .record = record_point,
  .wait = stream_wait,
  .reached = reached,
  .notify = notify,
  .fills_memory = true,
};

__attribute__((constructor)) static void become_the_default(void)
{
  region_register(&deferred_platform, "deferred", &deferred_device, create, compile);
  deferred_platform.load = load;
}
