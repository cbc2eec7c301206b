/* pjrt/profiler.c -- the Profiler extension: what the runtime traces, as planes of the client's profile.
 *
 * jax.profiler makes a profiler, starts and stops it, and asks once for the data: a serialized XSpace. It has a plane
 * for each device, with a line for each thread that executed steps; a plane for what belongs to no device, and one with
 * the programs. jax.profiler leaves struct_size unset, so struct_size is not checked. */
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
  rt_trace_capture(true);
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

/* XProf's tables of operations are made of planes with the names that XLA's GPUs and TPUs have, whose events tell their
 * operation, and of the programs in the plane of metadata. So the devices of every platform have the names of GPUs. */
#define DEVICE_PLANE "/device:GPU:%d"
#define OTHER_PLANE "/device:CUSTOM:Weft"
#define PROGRAMS_PLANE "/host:metadata"

/* The names of stats. Names that stats refer to follow: those of programs, then those of events. */
enum { STAT_HLO_OP = 1, STAT_HLO_MODULE, STAT_PROGRAM_ID, STAT_RUN_ID, STAT_HLO_PROTO, STAT_COUNT };
static char *const stat_names[STAT_COUNT] = {
  [STAT_HLO_OP] = "hlo_op",   [STAT_HLO_MODULE] = "hlo_module", [STAT_PROGRAM_ID] = "program_id",
  [STAT_RUN_ID] = "run_id",   [STAT_HLO_PROTO] = "Hlo Proto"};

/* The plane of a record: that of its device, 0, 1, ...; or -1: the record belongs to no device, or says only that work
 * was queued. */
static int plane_of(const rt_trace_record *record)
{
  return record->device >= 0 && !record->queues && (record->on_device || record->program > 0) ? record->device : -1;
}

/* Whether the record counts as an operation. Records that help, contain or queue another operation do not, so that time
 * is counted once. */
static bool is_operation(const rt_trace_record *record)
{
  return record->program > 0 && !record->helps && !record->contains && !record->queues;
}

static int by_plane_and_thread(const void *a, const void *b)
{
  const rt_trace_record *x = a, *y = b;

  if (plane_of(x) != plane_of(y)) return plane_of(x) < plane_of(y) ? -1 : 1;
  if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

static int by_name(const void *a, const void *b)
{
  return strcmp((*(const rt_trace_record *const *)a)->name, (*(const rt_trace_record *const *)b)->name);
}

/* The state while planes are built. All that the messages point to is in the arena. */
typedef struct profile {
  weft_arena *arena;
  const rt_trace_program *programs;
  size_t program_count;
  int64_t epoch_ns; /* from the monotonic clock to the one of profiles */
  PjrtPb__ProfileSpace space;
} profile;

/* A plane under construction, and the names of its events. */
typedef struct plane {
  PjrtPb__ProfilePlane message;
  const rt_trace_record **names; /* one record of each name, by name: id 1, 2, ... */
  size_t name_count;
} plane;

static weft_status *add_name(profile *f, plane *p, int64_t id, char *name, PjrtPb__ProfileName **out)
{
  PjrtPb__ProfileNameEntry *entry = WEFT_ARENA_NEW(f->arena, PjrtPb__ProfileNameEntry);

  *out = WEFT_ARENA_NEW(f->arena, PjrtPb__ProfileName);
  WEFT_TRY_ALLOC(entry && *out);
  pjrt_pb__profile_name_entry__init(entry);
  pjrt_pb__profile_name__init(*out);
  entry->key = (*out)->id = id;
  (*out)->name = name;
  entry->value = *out;
  p->message.names[p->message.n_names++] = entry;
  return NULL;
}

static weft_status *add_stat_name(profile *f, plane *p, char *name)
{
  PjrtPb__ProfileStatNameEntry *entry = WEFT_ARENA_NEW(f->arena, PjrtPb__ProfileStatNameEntry);
  PjrtPb__ProfileStatName *value = WEFT_ARENA_NEW(f->arena, PjrtPb__ProfileStatName);

  WEFT_TRY_ALLOC(entry && value);
  pjrt_pb__profile_stat_name_entry__init(entry);
  pjrt_pb__profile_stat_name__init(value);
  p->message.stat_names[p->message.n_stat_names++] = entry;
  entry->key = value->id = (int64_t)p->message.n_stat_names;
  value->name = name;
  entry->value = value;
  return NULL;
}

static weft_status *fill_names(profile *f, plane *p, const rt_trace_record *records, size_t count)
{
  PjrtPb__ProfileName *name;

  p->names = WEFT_ARENA_ARRAY(f->arena, const rt_trace_record *, count);
  WEFT_TRY_ALLOC(p->names);
  for (size_t i = 0; i < count; i++) p->names[i] = &records[i];
  qsort(p->names, count, sizeof *p->names, by_name);
  for (size_t i = 0; i < count; i++)
    if (i == 0 || strcmp(p->names[i]->name, p->names[p->name_count - 1]->name) != 0)
      p->names[p->name_count++] = p->names[i];
  p->message.names = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileNameEntry *, p->name_count);
  p->message.stat_names =
    WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileStatNameEntry *, STAT_COUNT + f->program_count + p->name_count);
  WEFT_TRY_ALLOC(p->message.names && p->message.stat_names);
  for (size_t i = 0; i < p->name_count; i++) WEFT_TRY(add_name(f, p, (int64_t)i + 1, (char *)p->names[i]->name, &name));
  for (int i = 1; i < STAT_COUNT; i++) WEFT_TRY(add_stat_name(f, p, stat_names[i]));
  for (size_t i = 0; i < f->program_count; i++) WEFT_TRY(add_stat_name(f, p, f->programs[i].name));
  for (size_t i = 0; i < p->name_count; i++) WEFT_TRY(add_stat_name(f, p, (char *)p->names[i]->name));
  return NULL;
}

static void set_stat(PjrtPb__ProfileStat *stat, int64_t id, PjrtPb__ProfileStat__ValueCase kind, uint64_t value)
{
  pjrt_pb__profile_stat__init(stat);
  stat->metadata_id = id;
  stat->value_case = kind;
  if (kind == PJRT_PB__PROFILE_STAT__VALUE_REF) stat->ref = value;
  else stat->number = value;
}

/* The place of a record's program among the profile's; program_count: it is not there. */
static size_t program_of(const profile *f, const rt_trace_record *record)
{
  size_t i = 0;

  while (i < f->program_count && f->programs[i].id != record->program) i++;
  return i;
}

/* Says which program and which run of it the event is of, and which operation it is if it is one. */
static weft_status *fill_stats(profile *f, PjrtPb__ProfileEvent *event, const rt_trace_record *record)
{
  size_t program = program_of(f, record), most = STAT_COUNT;
  PjrtPb__ProfileStat *stats;

  if (record->program == 0 || program == f->program_count) return NULL;
  stats = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileStat, most);
  event->stats = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileStat *, most);
  WEFT_TRY_ALLOC(stats && event->stats);
  set_stat(&stats[0], STAT_HLO_MODULE, PJRT_PB__PROFILE_STAT__VALUE_REF, STAT_COUNT + program);
  set_stat(&stats[1], STAT_PROGRAM_ID, PJRT_PB__PROFILE_STAT__VALUE_NUMBER, (uint64_t)record->program);
  set_stat(&stats[2], STAT_RUN_ID, PJRT_PB__PROFILE_STAT__VALUE_NUMBER, (uint64_t)record->run);
  set_stat(&stats[3], STAT_HLO_OP, PJRT_PB__PROFILE_STAT__VALUE_REF,
           STAT_COUNT + f->program_count + (size_t)event->metadata_id - 1);
  event->n_stats = is_operation(record) ? 4 : 3;
  for (size_t i = 0; i < event->n_stats; i++) event->stats[i] = &stats[i];
  return NULL;
}

/* Adds the line of one thread, whose events `records` are, or of a device's compute stream. */
static weft_status *fill_line(profile *f, plane *p, const rt_trace_record *records, size_t count)
{
  PjrtPb__ProfileLine *line = WEFT_ARENA_NEW(f->arena, PjrtPb__ProfileLine);
  PjrtPb__ProfileEvent *events = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileEvent, count);

  WEFT_TRY_ALLOC(line && events);
  pjrt_pb__profile_line__init(line);
  line->id = records[0].thread;
  line->name = records[0].on_device ? weft_arena_printf(f->arena, records[0].aside ? "collectives" : "compute stream")
                                    : weft_arena_printf(f->arena, "weft thread %d", records[0].thread);
  line->timestamp_ns = records[0].begin + f->epoch_ns;
  line->events = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileEvent *, count);
  WEFT_TRY_ALLOC(line->name && line->events);
  for (size_t i = 0; i < count; i++) {
    const rt_trace_record *record = &records[i];
    const rt_trace_record **name = bsearch(&record, p->names, p->name_count, sizeof *p->names, by_name);
    pjrt_pb__profile_event__init(&events[i]);
    events[i].metadata_id = name - p->names + 1;
    events[i].offset_ps = (record->begin - records[0].begin) * 1000;
    events[i].duration_ps = (record->end - record->begin) * 1000;
    WEFT_TRY(fill_stats(f, &events[i], record));
    line->events[i] = &events[i];
  }
  line->n_events = count;
  p->message.lines[p->message.n_lines++] = line;
  return NULL;
}

/* An empty plane of the profile. */
static weft_status *add_plane(profile *f, char *name, plane **out)
{
  *out = WEFT_ARENA_NEW(f->arena, plane);
  WEFT_TRY_ALLOC(name && *out);
  **out = (plane){0};
  pjrt_pb__profile_plane__init(&(*out)->message);
  (*out)->message.id = (int64_t)f->space.n_planes;
  (*out)->message.name = name;
  f->space.planes[f->space.n_planes++] = &(*out)->message;
  return NULL;
}

/* Adds a plane of `records`, sorted by thread. */
static weft_status *fill_plane(profile *f, const rt_trace_record *records, size_t count)
{
  int device = plane_of(records);
  plane *p;

  WEFT_TRY(add_plane(f, weft_arena_printf(f->arena, device < 0 ? OTHER_PLANE : DEVICE_PLANE, device), &p));
  p->message.lines = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileLine *, count);
  WEFT_TRY_ALLOC(p->message.lines);
  WEFT_TRY(fill_names(f, p, records, count));
  for (size_t first = 0, end; first < count; first = end) {
    for (end = first + 1; end < count && records[end].thread == records[first].thread;) end++;
    WEFT_TRY(fill_line(f, p, &records[first], end - first));
  }
  return NULL;
}

/* The HloProto of a program. */
static weft_status *pack_hlo(profile *f, const rt_trace_program *program, ProtobufCBinaryData *out)
{
  PjrtPb__ProfileHlo hlo = PJRT_PB__PROFILE_HLO__INIT;

  hlo.module = (ProtobufCBinaryData){program->proto_size, program->proto};
  out->len = pjrt_pb__profile_hlo__get_packed_size(&hlo);
  out->data = weft_arena_alloc(f->arena, out->len);
  WEFT_TRY_ALLOC(out->data);
  pjrt_pb__profile_hlo__pack(&hlo, out->data);
  return NULL;
}

/* Adds the plane with the programs, under their ids. */
static weft_status *fill_programs(profile *f)
{
  PjrtPb__ProfileName *name;
  plane *p;

  WEFT_TRY(add_plane(f, PROGRAMS_PLANE, &p));
  p->message.names = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileNameEntry *, f->program_count);
  p->message.stat_names = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileStatNameEntry *, STAT_COUNT);
  WEFT_TRY_ALLOC(p->message.names && p->message.stat_names);
  for (int i = 1; i < STAT_COUNT; i++) WEFT_TRY(add_stat_name(f, p, stat_names[i]));
  for (size_t i = 0; i < f->program_count; i++) {
    const rt_trace_program *program = &f->programs[i];
    PjrtPb__ProfileStat *values = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileStat, 2);
    PjrtPb__ProfileStat **stats = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfileStat *, 2);
    char *text = weft_arena_printf(f->arena, "%s(%lld)", program->name, (long long)program->id);
    WEFT_TRY_ALLOC(values && stats && text);
    if (!program->proto) continue;
    WEFT_TRY(add_name(f, p, program->id, text, &name));
    set_stat(&values[0], STAT_PROGRAM_ID, PJRT_PB__PROFILE_STAT__VALUE_NUMBER, (uint64_t)program->id);
    set_stat(&values[1], STAT_HLO_PROTO, PJRT_PB__PROFILE_STAT__VALUE_DATA, 0);
    WEFT_TRY(pack_hlo(f, program, &values[1].data));
    name->stats = stats;
    name->n_stats = 2;
    for (int s = 0; s < 2; s++) stats[s] = &values[s];
  }
  return NULL;
}

static int64_t monotonic_to_epoch(void)
{
  struct timespec now;

  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * WEFT_NS_PER_S + now.tv_nsec - weft_now_ns();
}

static weft_status *serialize(profile *f, rt_trace_record *records, size_t count, PLUGIN_Profiler *profiler)
{
  size_t planes = 2;

  qsort(records, count, sizeof *records, by_plane_and_thread);
  for (size_t i = 1; i < count; i++) planes += plane_of(&records[i]) != plane_of(&records[i - 1]);
  f->space.planes = WEFT_ARENA_ARRAY(f->arena, PjrtPb__ProfilePlane *, planes);
  WEFT_TRY_ALLOC(f->space.planes);
  if (f->program_count > 0) WEFT_TRY(fill_programs(f));
  for (size_t first = 0, end; first < count; first = end) {
    for (end = first + 1; end < count && plane_of(&records[end]) == plane_of(&records[first]);) end++;
    WEFT_TRY(fill_plane(f, &records[first], end - first));
  }
  profiler->size = pjrt_pb__profile_space__get_packed_size(&f->space);
  profiler->data = malloc(profiler->size + 1);
  WEFT_TRY_ALLOC(profiler->data);
  pjrt_pb__profile_space__pack(&f->space, profiler->data);
  return NULL;
}

static weft_status *collect(PLUGIN_Profiler *profiler)
{
  size_t count, program_count;
  rt_trace_record *records = rt_trace_between(profiler->from_ns, profiler->to_ns ? profiler->to_ns : INT64_MAX, &count);
  rt_trace_program *programs = rt_trace_programs(&program_count);
  weft_arena arena;

  weft_arena_init(&arena);
  profile f = {.arena = &arena, .programs = programs, .program_count = program_count, .epoch_ns = monotonic_to_epoch()};
  pjrt_pb__profile_space__init(&f.space);
  weft_status *st = count ? serialize(&f, records, count, profiler) : NULL;
  weft_arena_fini(&arena);
  free(records);
  free(programs);
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
