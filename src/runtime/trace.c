/* runtime/trace.c -- what ran when, as a JSON file for Perfetto (trace.h). */
#include <config.h>

#include "runtime/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"

typedef rt_trace_record event;

enum { MOST_EVENTS = 1 << 20 }; /* 100 MB; later ones are counted and dropped */

atomic_bool rt_trace_on;
static const char *path;
static weft_mutex mu = WEFT_MUTEX_INITIALIZER;
static event *events WEFT_GUARDED_BY(mu);
static size_t count WEFT_GUARDED_BY(mu), capacity WEFT_GUARDED_BY(mu), dropped WEFT_GUARDED_BY(mu);
static int captures WEFT_GUARDED_BY(mu);
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
  path = getenv("WEFT_TRACE");
  rt_trace_on = path && *path;
}
void rt_trace_init(void) { pthread_once(&once, read_environment); }

static bool grow_locked(void) WEFT_REQUIRES(mu)
{
  weft_mutex_assert_held(&mu);
  size_t wider = capacity ? 2 * capacity : 4096;
  event *bigger = capacity < MOST_EVENTS ? realloc(events, wider * sizeof *bigger) : NULL;

  if (!bigger) return false;
  events = bigger;
  capacity = wider;
  return true;
}

_Thread_local rt_trace_step rt_trace_current;

/* Adds `e`, whose kind and name are still to be set. */
static void record(event e, const char *kind, const char *name)
{
  snprintf(e.kind, sizeof e.kind, "%s", kind);
  snprintf(e.name, sizeof e.name, "%s", name);
  weft_mutex_lock(&mu);
  if (count < capacity || grow_locked()) events[count++] = e;
  else dropped++;
  weft_mutex_unlock(&mu);
}

/* An event of the calling thread that ends now. */
static event ending_now(int device, int64_t begin_ns)
{
  return (event){.begin = begin_ns, .end = weft_now_ns(), .thread = (int)syscall(SYS_gettid), .device = device};
}

void rt_trace_event(const char *kind, const char *name, int device, int64_t begin_ns)
{
  record(ending_now(device, begin_ns), kind, name);
}

void rt_trace_queued(const char *kind, const char *name, int device, int64_t begin_ns)
{
  event e = ending_now(device, begin_ns);

  e.queues = true;
  record(e, kind, name);
}

void rt_trace_on_device(const char *kind, const char *name, int device, int64_t begin_ns, int64_t end_ns)
{
  if (!rt_trace_on) return;
  record((event){.begin = begin_ns,
                 .end = end_ns,
                 .thread = RT_TRACE_DEVICE_THREADS + device,
                 .device = device,
                 .on_device = true},
         kind, name);
}

void rt_trace_help(const rt_trace_step *step, int64_t begin_ns)
{
  event e = ending_now(step->kind ? step->device : -1, begin_ns);

  e.helps = true;
  record(e, step->kind ? step->kind : "share", step->kind ? step->name : "(of work outside a step)");
}

void rt_trace_capture(void)
{
  rt_trace_init();
  weft_mutex_lock(&mu);
  captures++;
  rt_trace_on = true;
  weft_mutex_unlock(&mu);
}

void rt_trace_release(void)
{
  weft_mutex_lock(&mu);
  if (--captures == 0 && !(path && *path)) {
    rt_trace_on = false;
    free(events);
    events = NULL;
    count = capacity = dropped = 0;
  }
  weft_mutex_unlock(&mu);
}

rt_trace_record *rt_trace_between(int64_t from_ns, int64_t to_ns, size_t *out_count)
{
  rt_trace_record *copy;

  *out_count = 0;
  weft_mutex_lock(&mu);
  copy = count ? malloc(count * sizeof *copy) : NULL;
  for (size_t i = 0; copy && i < count; i++)
    if (events[i].begin >= from_ns && events[i].begin < to_ns) copy[(*out_count)++] = events[i];
  weft_mutex_unlock(&mu);
  return copy;
}

static void json_string(FILE *out, const char *text)
{
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') fprintf(out, "\\%c", *text);
    else if ((unsigned char)*text < 0x20) fprintf(out, "\\u%04x", *text);
    else fputc(*text, out);
  }
}

/* Names the rows of devices, of which there are fewer than 64. */
static void name_devices_locked(FILE *out) WEFT_REQUIRES(mu)
{
  weft_mutex_assert_held(&mu);
  uint64_t seen = 0;

  for (size_t i = 0; i < count; i++) {
    int device = events[i].device;
    if (!events[i].on_device || device < 0 || device > 63 || seen >> device & 1) continue;
    seen |= (uint64_t)1 << device;
    fprintf(out, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"device %d\"}}",
            (int)getpid(), events[i].thread, device);
  }
}

weft_status *rt_trace_flush(void)
{
  FILE *out;
  int failed;

  if (!path || !*path) return NULL;
  out = fopen(path, "w");
  if (!out) return WEFT_ERR(PERMISSION_DENIED, "WEFT_TRACE: cannot write \"%s\": %s", path, strerror(errno));
  fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", out);
  weft_mutex_lock(&mu);
  for (size_t i = 0; i < count; i++) {
    const event *e = &events[i];
    fputs(i ? ",\n{\"ph\":\"X\",\"cat\":\"" : "{\"ph\":\"X\",\"cat\":\"", out);
    json_string(out, e->kind);
    fputs("\",\"name\":\"", out);
    json_string(out, e->name);
    fprintf(out,
            "\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d,\"args\":{\"device\":%d,\"helps\":%s,\"queues\":%s}}",
            (double)e->begin / 1e3, (double)(e->end - e->begin) / 1e3, (int)getpid(), e->thread, e->device,
            e->helps ? "true" : "false", e->queues ? "true" : "false");
  }
  name_devices_locked(out);
  if (dropped) WEFT_LOG("rt", WARN, "WEFT_TRACE: %zu events over the limit of %d were dropped", dropped, MOST_EVENTS);
  weft_mutex_unlock(&mu);
  fputs("\n]}\n", out);
  failed = ferror(out);
  if (fclose(out) != 0 || failed)
    return WEFT_ERR(UNKNOWN, "WEFT_TRACE: cannot write \"%s\": %s", path, strerror(errno));
  return NULL;
}
