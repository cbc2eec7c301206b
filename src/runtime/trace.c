/* runtime/trace.c -- the recorded events, and the JSON file for Perfetto (trace.h). */
#include <config.h>

#include "runtime/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "base/thread.h"
#include "hlo/hlo.h"
#include "hlo/proto.h"

typedef rt_trace_record event;

enum { MOST_EVENTS = 1 << 20 }; /* 100 MB of events; later events are counted and dropped */
enum { MOST_PROTO_BYTES = 512 << 20 }; /* bytes of all programs: protobuf readers accept no message of 2 GiB */

atomic_bool rt_trace_on;
static const char *path;
static weft_mutex mu = WEFT_MUTEX_INITIALIZER;
static event *events WEFT_GUARDED_BY(mu);
static size_t count WEFT_GUARDED_BY(mu), capacity WEFT_GUARDED_BY(mu), dropped WEFT_GUARDED_BY(mu);
static bool is_finished WEFT_GUARDED_BY(mu); /* no event was recorded since rt_trace_finish wrote the file */
static int captures WEFT_GUARDED_BY(mu);
static bool keeps_programs WEFT_GUARDED_BY(mu);
static rt_trace_program *programs WEFT_GUARDED_BY(mu); /* name and proto are malloc'd */
static size_t program_count WEFT_GUARDED_BY(mu), program_capacity WEFT_GUARDED_BY(mu);
static size_t proto_bytes WEFT_GUARDED_BY(mu); /* of all programs */
static atomic_int_least64_t launches;
static weft_mutex file_mu = WEFT_MUTEX_INITIALIZER; /* only one thread at a time writes the file; taken before mu */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Every %p in the name of the file becomes the id of the process, so that each process of a job has a file. */
static void read_environment(void)
{
  const char *from = getenv("WEFT_TRACE");
  char *name = NULL;
  size_t size;
  FILE *out = from && *from ? open_memstream(&name, &size) : NULL;

  if (!out) return;
  for (; *from; from++) {
    bool is_id = from[0] == '%' && from[1] == 'p';
    if (is_id) fprintf(out, "%d", (int)getpid());
    else fputc(*from, out);
    from += is_id;
  }
  if (fclose(out) != 0) return;
  path = name; /* kept for as long as the process lives */
  rt_trace_on = true;
}
void rt_trace_init(void) { pthread_once(&once, read_environment); }
bool rt_trace_has_file(void) { return path != NULL; }

static bool grow_locked(void) WEFT_REQUIRES(mu)
{
  weft_mutex_assert_held(&mu);
  return capacity < MOST_EVENTS && WEFT_RESERVE(events, capacity, capacity + 1, 4096);
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
  is_finished = false;
  weft_mutex_unlock(&mu);
}

/* An event of the calling thread that ends now. */
static event ending_now(const rt_trace_step *step, int64_t begin_ns)
{
  return (event){.begin = begin_ns,
                 .end = weft_now_ns(),
                 .thread = (int)syscall(SYS_gettid),
                 .device = step->device,
                 .program = step->program,
                 .run = step->run,
                 .contains = step->contains};
}

void rt_trace_event(const char *kind, const char *name, int device, int64_t begin_ns)
{
  record(ending_now(&(rt_trace_step){.device = device}, begin_ns), kind, name);
}

void rt_trace_done(const rt_trace_step *step, int64_t begin_ns)
{
  record(ending_now(step, begin_ns), step->kind, step->name);
}

void rt_trace_queued(const rt_trace_step *step, int64_t begin_ns)
{
  event e = ending_now(step, begin_ns);

  e.queues = true;
  record(e, step->kind, step->name);
}

void rt_trace_on_device(const rt_trace_step *step, int64_t begin_ns, int64_t end_ns)
{
  if (!rt_trace_on) return;
  record((event){.begin = begin_ns,
                 .end = end_ns,
                 .thread = (step->aside ? RT_TRACE_ASIDE_THREADS : RT_TRACE_DEVICE_THREADS) + step->device,
                 .device = step->device,
                 .on_device = true,
                 .aside = step->aside,
                 .program = step->program,
                 .run = step->run},
         step->kind, step->name);
}

void rt_trace_help(const rt_trace_step *step, int64_t begin_ns)
{
  static const rt_trace_step outside = {.kind = "share", .name = "(of work outside a step)", .device = -1};
  event e = ending_now(step->kind ? step : &outside, begin_ns);

  e.helps = true;
  record(e, step->kind ? step->kind : outside.kind, step->kind ? step->name : outside.name);
}

/* ---- captures and programs ------------------------------------------------------------------------------------- */

void rt_trace_capture(bool keep_programs)
{
  rt_trace_init();
  weft_mutex_lock(&mu);
  captures++;
  keeps_programs |= keep_programs;
  rt_trace_on = true;
  weft_mutex_unlock(&mu);
}

static void forget_programs_locked(void) WEFT_REQUIRES(mu)
{
  weft_mutex_assert_held(&mu);
  for (size_t i = 0; i < program_count; i++) {
    free(programs[i].name);
    free(programs[i].proto);
  }
  free(programs);
  programs = NULL;
  program_count = program_capacity = proto_bytes = 0;
}

void rt_trace_release(void)
{
  weft_mutex_lock(&mu);
  if (--captures == 0) keeps_programs = false;
  if (captures == 0 && !rt_trace_has_file()) {
    rt_trace_on = false;
    free(events);
    events = NULL;
    count = capacity = dropped = 0;
    forget_programs_locked();
  }
  weft_mutex_unlock(&mu);
}

/* The program with that id, added if it is not there; NULL without memory. */
static rt_trace_program *program_of_locked(int64_t id) WEFT_REQUIRES(mu)
{
  weft_mutex_assert_held(&mu);
  for (size_t i = program_count; i-- > 0;)
    if (programs[i].id == id) return &programs[i];
  if (!WEFT_RESERVE(programs, program_capacity, program_count + 1, 16)) return NULL;
  programs[program_count] = (rt_trace_program){.id = id};
  return &programs[program_count++];
}

int64_t rt_trace_launch(int64_t program, const hlo_module *module)
{
  weft_status *st = NULL;

  weft_mutex_lock(&mu);
  rt_trace_program *p = program_of_locked(program);
  if (p && !p->name) p->name = strdup(module->name);
  if (p && !p->asked && keeps_programs) {
    p->asked = true;
    st = hlo_to_proto(module, &p->proto, &p->proto_size);
    if (st || proto_bytes + p->proto_size > MOST_PROTO_BYTES) {
      free(p->proto);
      p->proto = NULL;
      p->proto_size = 0;
    }
    proto_bytes += p->proto_size;
  }
  weft_mutex_unlock(&mu);
  weft_status_ignore(st); /* without memory the profile lacks the program */
  return atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed) + 1;
}

/* Takes `size` bytes at *end, filled from `from`. */
static void *put(char **end, const void *from, size_t size)
{
  void *at = *end;

  if (size > 0) memcpy(at, from, size);
  *end += size;
  return at;
}

rt_trace_program *rt_trace_programs(size_t *out_count)
{
  rt_trace_program *copy;
  size_t bytes = 0;

  weft_mutex_lock(&mu);
  for (size_t i = 0; i < program_count; i++)
    bytes += sizeof *copy + (programs[i].name ? strlen(programs[i].name) : 0) + 1 + programs[i].proto_size;
  copy = bytes ? malloc(bytes) : NULL;
  *out_count = copy ? program_count : 0;
  char *end = (char *)(copy + *out_count);
  for (size_t i = 0; i < *out_count; i++) {
    const rt_trace_program *p = &programs[i];
    copy[i] = *p;
    copy[i].name = put(&end, p->name ? p->name : "", (p->name ? strlen(p->name) : 0) + 1);
    if (p->proto) copy[i].proto = put(&end, p->proto, p->proto_size);
  }
  weft_mutex_unlock(&mu);
  return copy;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

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
  uint64_t seen[2] = {0};

  for (size_t i = 0; i < count; i++) {
    int device = events[i].device;
    uint64_t *rows = &seen[events[i].aside];
    if (!events[i].on_device || device < 0 || device > 63 || *rows >> device & 1) continue;
    *rows |= (uint64_t)1 << device;
    fprintf(out, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"device %d%s\"}}",
            (int)getpid(), events[i].thread, device, events[i].aside ? " collectives" : "");
  }
}

static void put_event_locked(const event *e, FILE *out) WEFT_REQUIRES(mu)
{
  weft_mutex_assert_held(&mu);
  fputs("{\"ph\":\"X\",\"cat\":\"", out);
  json_string(out, e->kind);
  fputs("\",\"name\":\"", out);
  json_string(out, e->name);
  fprintf(out, "\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d,\"tid\":%d,\"args\":{\"device\":%d,\"helps\":%s,\"queues\":%s",
          (double)e->begin / 1e3, (double)(e->end - e->begin) / 1e3, (int)getpid(), e->thread, e->device,
          e->helps ? "true" : "false", e->queues ? "true" : "false");
  if (e->program > 0) {
    const rt_trace_program *p = program_of_locked(e->program);
    fputs(",\"module\":\"", out);
    json_string(out, p && p->name ? p->name : "");
    fprintf(out, "\",\"program\":%lld,\"run\":%lld", (long long)e->program, (long long)e->run);
  }
  fputs("}}", out);
}

/* Writes the file. */
static weft_status *write_file(void) WEFT_REQUIRES(file_mu)
{
  FILE *out = fopen(path, "w");
  int failed;

  weft_mutex_assert_held(&file_mu);
  if (!out) return WEFT_ERR(PERMISSION_DENIED, "WEFT_TRACE: cannot write \"%s\": %s", path, strerror(errno));
  fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", out);
  weft_mutex_lock(&mu);
  for (size_t i = 0; i < count; i++) {
    if (i > 0) fputs(",\n", out);
    put_event_locked(&events[i], out);
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

weft_status *rt_trace_flush(void)
{
  weft_status *st;

  if (!rt_trace_has_file()) return NULL;
  weft_mutex_lock(&file_mu);
  st = write_file();
  weft_mutex_unlock(&file_mu);
  return st;
}

void rt_trace_finish(void)
{
  weft_mutex_lock(&mu);
  bool nothing_new = is_finished;
  is_finished = true; /* so that a failure is reported once */
  weft_mutex_unlock(&mu);
  if (nothing_new) return;
  weft_status *st = rt_trace_flush();
  if (st) WEFT_LOG("rt", WARN, "%s", weft_status_text(st, false));
  weft_status_free(st);
}
