/* pjrt/profiler.c -- the Profiler extension: what the runtime traces, as planes of the client's profile.
 *
 * jax.profiler makes a profiler, starts and stops it, and asks once for the data: a serialized XSpace with a line
 * for each thread. It leaves struct_size unset, so struct_size is not checked. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/deadline.h"
#include "pjrt/compile.pb-c.h"
#include "pjrt/extensions.h"
#include "runtime/trace.h"

struct PLUGIN_Profiler {
  int64_t from_ns, to_ns; /* of the capture; to_ns 0: it runs, or has not begun */
  bool captures;
  uint8_t *data;          /* malloc'd: the answer to collect_data */
  size_t size;
};
struct PLUGIN_Profiler_Error {
  weft_status *st;
};

static PLUGIN_Profiler_Error no_memory;

/* Takes `st`; NULL for NULL. */
static PLUGIN_Profiler_Error *error_of(weft_status *st)
{
  PLUGIN_Profiler_Error *error;

  if (!st) return NULL;
  error = malloc(sizeof *error);
  if (error) {
    error->st = st;
    return error;
  }
  weft_status_free(st);
  return &no_memory;
}

static void error_destroy(PLUGIN_Profiler_Error_Destroy_Args *args)
{
  if (!args->error || args->error == &no_memory) return;
  weft_status_free(args->error->st);
  free(args->error);
}

static void error_message(PLUGIN_Profiler_Error_Message_Args *args)
{
  args->message = args->error->st ? weft_status_message(args->error->st) : "out of memory";
  args->message_size = strlen(args->message);
}

static PLUGIN_Profiler_Error *error_get_code(PLUGIN_Profiler_Error_GetCode_Args *args)
{
  args->code = args->error->st ? (int)weft_status_code(args->error->st) : WEFT_RESOURCE_EXHAUSTED;
  return NULL;
}

static PLUGIN_Profiler_Error *create(PLUGIN_Profiler_Create_Args *args)
{
  args->profiler = calloc(1, sizeof *args->profiler);
  return args->profiler ? NULL : &no_memory;
}

static void end_capture(PLUGIN_Profiler *p)
{
  if (p->captures) rt_trace_release();
  p->captures = false;
}

static PLUGIN_Profiler_Error *destroy(PLUGIN_Profiler_Destroy_Args *args)
{
  if (!args->profiler) return NULL;
  end_capture(args->profiler);
  free(args->profiler->data);
  free(args->profiler);
  return NULL;
}

static PLUGIN_Profiler_Error *start(PLUGIN_Profiler_Start_Args *args)
{
  if (args->profiler->captures) return error_of(WEFT_ERR(FAILED_PRECONDITION, "the profiler has been started already"));
  rt_trace_capture();
  args->profiler->captures = true;
  args->profiler->from_ns = weft_now_ns();
  args->profiler->to_ns = 0;
  return NULL;
}

/* The events stay until they are collected, or the profiler is destroyed. */
static PLUGIN_Profiler_Error *stop(PLUGIN_Profiler_Stop_Args *args)
{
  if (!args->profiler->captures) return error_of(WEFT_ERR(FAILED_PRECONDITION, "the profiler has not been started"));
  args->profiler->to_ns = weft_now_ns();
  return NULL;
}

/* ---- records to XSpace ---- */

static int by_thread(const void *a, const void *b)
{
  const rt_trace_record *x = a, *y = b;

  if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static int by_name(const void *a, const void *b)
{
  return strcmp((*(const rt_trace_record *const *)a)->name, (*(const rt_trace_record *const *)b)->name);
}

/* A plane, and the names of its events. All that the message points to is in the profile's arena. */
typedef struct plane {
  weft_arena *arena;
  PjrtPb__ProfilePlane message;
  const rt_trace_record **names; /* one record of each name, by name: id 1, 2, ... */
  size_t name_count;
} plane;

static weft_status *fill_names(plane *p, const rt_trace_record *records, size_t count)
{
  PjrtPb__ProfileNameEntry *entries;
  PjrtPb__ProfileName *names;

  p->names = WEFT_ARENA_ARRAY(p->arena, const rt_trace_record *, count);
  WEFT_TRY_ALLOC(p->names);
  for (size_t i = 0; i < count; i++) p->names[i] = &records[i];
  qsort(p->names, count, sizeof *p->names, by_name);
  for (size_t i = 0; i < count; i++)
    if (i == 0 || strcmp(p->names[i]->name, p->names[p->name_count - 1]->name) != 0)
      p->names[p->name_count++] = p->names[i];
  entries = WEFT_ARENA_ARRAY(p->arena, PjrtPb__ProfileNameEntry, p->name_count);
  names = WEFT_ARENA_ARRAY(p->arena, PjrtPb__ProfileName, p->name_count);
  p->message.names = WEFT_ARENA_ARRAY(p->arena, PjrtPb__ProfileNameEntry *, p->name_count);
  WEFT_TRY_ALLOC(entries && names && p->message.names);
  for (size_t i = 0; i < p->name_count; i++) {
    pjrt_pb__profile_name_entry__init(&entries[i]);
    pjrt_pb__profile_name__init(&names[i]);
    entries[i].key = names[i].id = (int64_t)i + 1;
    names[i].name = (char *)p->names[i]->name;
    entries[i].value = &names[i];
    p->message.names[i] = &entries[i];
  }
  p->message.n_names = p->name_count;
  return NULL;
}

/* The records of a device stand in a plane of its own, under the name by which XProf knows it. */
static const char *plane_name(weft_arena *arena, const rt_trace_record *record)
{
  return record->on_device ? weft_arena_printf(arena, "/device:GPU:%d", record->device) : "/device:CUSTOM:Weft";
}

/* Adds the line of one thread, whose events `records` are, or of a device's compute stream. */
static weft_status *fill_line(plane *p, const rt_trace_record *records, size_t count, int64_t epoch_ns)
{
  PjrtPb__ProfileLine *line = WEFT_ARENA_NEW(p->arena, PjrtPb__ProfileLine);
  PjrtPb__ProfileEvent *events = WEFT_ARENA_ARRAY(p->arena, PjrtPb__ProfileEvent, count);

  WEFT_TRY_ALLOC(line && events);
  pjrt_pb__profile_line__init(line);
  line->id = records[0].thread;
  line->name = records[0].on_device ? weft_arena_printf(p->arena, "compute stream")
                                    : weft_arena_printf(p->arena, "weft thread %d", records[0].thread);
  line->timestamp_ns = records[0].begin + epoch_ns;
  line->events = WEFT_ARENA_ARRAY(p->arena, PjrtPb__ProfileEvent *, count);
  WEFT_TRY_ALLOC(line->name && line->events);
  for (size_t i = 0; i < count; i++) {
    const rt_trace_record *record = &records[i];
    const rt_trace_record **name = bsearch(&record, p->names, p->name_count, sizeof *p->names, by_name);
    pjrt_pb__profile_event__init(&events[i]);
    events[i].metadata_id = name - p->names + 1;
    events[i].offset_ps = (record->begin - records[0].begin) * 1000;
    events[i].duration_ps = (record->end - record->begin) * 1000;
    line->events[i] = &events[i];
  }
  line->n_events = count;
  p->message.lines[p->message.n_lines++] = line;
  return NULL;
}

/* Nanoseconds from the monotonic clock to the one of profiles. */
static int64_t monotonic_to_epoch(void)
{
  struct timespec now;

  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * WEFT_NS_PER_S + now.tv_nsec - weft_now_ns();
}

/* Fills a plane with `records`, sorted by thread. */
static weft_status *fill_plane(plane *p, const rt_trace_record *records, size_t count, int64_t epoch_ns)
{
  pjrt_pb__profile_plane__init(&p->message);
  p->message.name = (char *)plane_name(p->arena, records);
  p->message.lines = WEFT_ARENA_ARRAY(p->arena, PjrtPb__ProfileLine *, count);
  WEFT_TRY_ALLOC(p->message.name && p->message.lines);
  WEFT_TRY(fill_names(p, records, count));
  for (size_t first = 0, end; first < count; first = end) {
    for (end = first + 1; end < count && records[end].thread == records[first].thread;) end++;
    WEFT_TRY(fill_line(p, &records[first], end - first, epoch_ns));
  }
  return NULL;
}

/* Whether two records, neighbours by thread, belong to different planes: one for the threads, and one for each device. */
static bool is_new_plane(const rt_trace_record *before, const rt_trace_record *record)
{
  return record->on_device && record->thread != before->thread;
}

static weft_status *serialize(weft_arena *arena, rt_trace_record *records, size_t count, PLUGIN_Profiler *profiler)
{
  PjrtPb__ProfileSpace space = PJRT_PB__PROFILE_SPACE__INIT;
  int64_t epoch_ns = monotonic_to_epoch();
  size_t most = 1;

  qsort(records, count, sizeof *records, by_thread);
  for (size_t i = 1; i < count; i++) most += is_new_plane(&records[i - 1], &records[i]);
  space.planes = WEFT_ARENA_ARRAY(arena, PjrtPb__ProfilePlane *, most);
  WEFT_TRY_ALLOC(space.planes);
  for (size_t first = 0, end; first < count; first = end) {
    plane *p = WEFT_ARENA_NEW(arena, plane);
    WEFT_TRY_ALLOC(p);
    p->arena = arena;
    for (end = first + 1; end < count && !is_new_plane(&records[end - 1], &records[end]);) end++;
    WEFT_TRY(fill_plane(p, &records[first], end - first, epoch_ns));
    space.planes[space.n_planes++] = &p->message;
  }
  profiler->size = pjrt_pb__profile_space__get_packed_size(&space);
  profiler->data = malloc(profiler->size + 1);
  WEFT_TRY_ALLOC(profiler->data);
  pjrt_pb__profile_space__pack(&space, profiler->data);
  return NULL;
}

static weft_status *collect(PLUGIN_Profiler *profiler)
{
  size_t count;
  rt_trace_record *records = rt_trace_between(profiler->from_ns, profiler->to_ns ? profiler->to_ns : INT64_MAX, &count);
  weft_arena arena;

  weft_arena_init(&arena);
  weft_status *st = count ? serialize(&arena, records, count, profiler) : NULL;
  weft_arena_fini(&arena);
  free(records);
  if (!st) end_capture(profiler);
  return st;
}

/* If no buffer is given, the data stays the profiler's, and args->buffer points to it. */
static PLUGIN_Profiler_Error *collect_data(PLUGIN_Profiler_CollectData_Args *args)
{
  PLUGIN_Profiler *p = args->profiler;
  weft_status *st = p->data ? NULL : collect(p);

  if (st) return error_of(st);
  if (!args->buffer) args->buffer = p->data;
  else if (args->buffer_size_in_bytes < p->size)
    return error_of(
      WEFT_ERR(INVALID_ARGUMENT, "the profile has %zu bytes, the buffer %zu", p->size, args->buffer_size_in_bytes));
  else if (p->size > 0) memcpy(args->buffer, p->data, p->size);
  args->buffer_size_in_bytes = p->size;
  return NULL;
}

static PLUGIN_Profiler_Api profiler_api = {
    .struct_size = sizeof profiler_api, .error_destroy = error_destroy, .error_message = error_message,
    .error_get_code = error_get_code, .create = create, .destroy = destroy, .start = start, .stop = stop,
    .collect_data = collect_data};
PJRT_Profiler_Extension pjrt_profiler_extension = {
    .base = {.struct_size = sizeof(PJRT_Profiler_Extension), .type = PJRT_Extension_Type_Profiler},
    .profiler_api = &profiler_api};
