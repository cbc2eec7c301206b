/* coord/wire/codec_x.c -- dialect X, both sides. */
#include <config.h>

#include "coord/wire/codec_internal.h"

#include "coord/wire/coord_x.pb-c.h"

#define UNPACK(type, Type, var)                                                             \
  const Type *var = codec_unpack(&cx__##type##__descriptor, data, size, arena);             \
  if (!var) return codec_malformed(method)

/* Every request: method, message, and the message's fields. VALUE and POINTER name the member of coord_request, then
 * that of the message; INCARNATIONS are those of the asking task and its service, ENTRY is key and value, ALWAYS a flag
 * that we set and do not read. */
#define REQUESTS(R)                                                                                                          \
  R(REGISTER_TASK, register_task_request, RegisterTaskRequest, VALUE(task, source_task_id) VALUE(incarnation, incarnation)) \
  R(HEARTBEAT, heartbeat_request, HeartbeatRequest,                                                                         \
    INCARNATIONS VALUE(task, source_task_id) VALUE(incarnation, incarnation))                                               \
  R(POLL_FOR_ERROR, poll_for_error_request, PollForErrorRequest, INCARNATIONS VALUE(task, source_task_id))                  \
  R(SHUTDOWN_TASK, shutdown_task_request, ShutdownTaskRequest, INCARNATIONS VALUE(task, source_task_id))                    \
  R(REPORT_ERROR, report_error_to_service_request, ReportErrorToServiceRequest,                                             \
    INCARNATIONS VALUE(task, source_task_id) VALUE(error_code, error_code) POINTER(error_message, error_message))           \
  R(WATCH_TASKS, watch_tasks_request, WatchTasksRequest, INCARNATIONS VALUE(version, version_number))                       \
  R(INSERT_KEY_VALUE, insert_key_value_request, InsertKeyValueRequest,                                                      \
    INCARNATIONS VALUE(overwrite, allow_overwrite) ENTRY(kv))                                                               \
  R(GET_KEY_VALUE, get_key_value_request, GetKeyValueRequest, INCARNATIONS POINTER(key, key))                               \
  R(TRY_GET_KEY_VALUE, get_key_value_request, GetKeyValueRequest, INCARNATIONS POINTER(key, key))                           \
  R(INCREMENT_KEY_VALUE, increment_key_value_request, IncrementKeyValueRequest,                                             \
    INCARNATIONS POINTER(key, key) VALUE(increment, increment))                                                             \
  R(GET_KEY_VALUE_DIR, get_key_value_dir_request, GetKeyValueDirRequest, INCARNATIONS POINTER(key, directory_key))          \
  R(DELETE_KEY_VALUE, delete_key_value_request, DeleteKeyValueRequest,                                                      \
    INCARNATIONS POINTER(key, key) ALWAYS(is_directory))                                                                    \
  R(BARRIER, barrier_request, BarrierRequest,                                                                               \
    INCARNATIONS VALUE(task, source_task_id) POINTER(barrier_id, barrier_id) VALUE(timeout_ms, barrier_timeout_in_ms)       \
    VALUE(counter, counter) POINTER(tasks, task_ids) VALUE(task_count, n_task_ids))                                         \
  R(CANCEL_BARRIER, cancel_barrier_request, CancelBarrierRequest,                                                           \
    INCARNATIONS VALUE(task, source_task_id) POINTER(barrier_id, barrier_id) VALUE(counter, counter))                       \
  R(GET_ALIVE_TASKS, get_alive_tasks_request, GetAliveTasksRequest,                                                         \
    INCARNATIONS VALUE(task, requesting_task_id) POINTER(tasks, task_ids) VALUE(task_count, n_task_ids))

static void take_incarnations(coord_request *out, const Cx__Incarnations *incarnations)
{
  out->is_fenced = true;
  if (!incarnations) return;
  out->incarnation = incarnations->task_incarnation;
  out->service_incarnation = incarnations->service_incarnation;
}

weft_status *codec_x_request_decode(coord_method method, const void *data, size_t size, weft_arena *arena,
                                    coord_request *out)
{
#define VALUE(ours, theirs) out->ours = m->theirs;
#define POINTER(ours, theirs) out->ours = m->theirs;
#define INCARNATIONS take_incarnations(out, m->incarnations);
#define ENTRY(theirs) if (m->theirs) codec_take_entry(out, m->theirs->key, m->theirs->value);
#define ALWAYS(theirs)
#define DECODE(METHOD, message, Message, fields) \
  case COORD_##METHOD: {                         \
    UNPACK(message, Cx__##Message, m);           \
    fields return NULL;                          \
  }
  switch (method) {
    REQUESTS(DECODE)
  case COORD_RESET_TASK:
  case COORD_GET_TASK_STATE:
  case COORD_METHOD_COUNT: break;
  }
#undef VALUE
#undef POINTER
#undef INCARNATIONS
#undef ENTRY
#undef ALWAYS
  return COORD_ERR(UNIMPLEMENTED, "method %d in dialect X", (int)method);
}

static void fill_entry(Cx__KeyValueEntry *m, const coord_entry *entry)
{
  cx__key_value_entry__init(m);
  m->key = codec_text(entry->key);
  m->value = (ProtobufCBinaryData){.len = entry->value_size, .data = codec_bytes(entry->value)};
}

static weft_status *encode_watch(const coord_reply *reply, weft_arena *arena, const uint8_t **out, size_t *out_size)
{
  Cx__WatchTasksResponse m = CX__WATCH_TASKS_RESPONSE__INIT;
  Cx__TaskInfo *infos = WEFT_ARENA_ARRAY(arena, Cx__TaskInfo, reply->info_count);
  Cx__CoordinationServiceError *errors = WEFT_ARENA_ARRAY(arena, Cx__CoordinationServiceError, reply->info_count);

  m.task_state = WEFT_ARENA_ARRAY(arena, Cx__TaskInfo *, reply->info_count);
  if (!infos || !errors || !m.task_state) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  m.version_number = reply->version;
  m.n_task_state = reply->info_count;
  for (size_t i = 0; i < reply->info_count; i++) {
    const coord_task_info *info = &reply->infos[i];
    cx__task_info__init(&infos[i]);
    infos[i].task_id = info->task;
    infos[i].state = (int32_t)info->state;
    infos[i].incarnation = info->incarnation;
    m.task_state[i] = &infos[i];
    if (info->error_code == 0) continue;
    infos[i].error_code = info->error_code;
    infos[i].error_message = codec_text(info->error_message);
    infos[i].error_payload = &errors[i];
    cx__coordination_service_error__init(&errors[i]);
    errors[i].is_reported_error = info->is_reported;
    errors[i].source_task_id = info->is_reported ? info->task : 0;
  }
  return codec_pack(&m.base, arena, out, out_size);
}

weft_status *codec_x_reply_encode(coord_method method, const coord_reply *reply, weft_arena *arena, const uint8_t **out,
                                  size_t *out_size)
{
  switch (method) {
  case COORD_REGISTER_TASK:
  case COORD_HEARTBEAT: {
    Cx__RegisterTaskResponse m = CX__REGISTER_TASK_RESPONSE__INIT; /* both replies have this field only */
    m.service_incarnation = reply->service_incarnation;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_WATCH_TASKS: return encode_watch(reply, arena, out, out_size);
  case COORD_GET_KEY_VALUE:
  case COORD_TRY_GET_KEY_VALUE:
  case COORD_INCREMENT_KEY_VALUE: {
    Cx__GetKeyValueResponse m = CX__GET_KEY_VALUE_RESPONSE__INIT;
    Cx__KeyValueEntry entry;
    fill_entry(&entry, &reply->entries[0]);
    m.kv = &entry;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_GET_KEY_VALUE_DIR: {
    Cx__GetKeyValueDirResponse m = CX__GET_KEY_VALUE_DIR_RESPONSE__INIT;
    Cx__KeyValueEntry *entries = WEFT_ARENA_ARRAY(arena, Cx__KeyValueEntry, reply->entry_count);
    m.kv = WEFT_ARENA_ARRAY(arena, Cx__KeyValueEntry *, reply->entry_count);
    if (!entries || !m.kv) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    m.n_kv = reply->entry_count;
    for (size_t i = 0; i < m.n_kv; i++) fill_entry(m.kv[i] = &entries[i], &reply->entries[i]);
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_BARRIER: {
    Cx__BarrierResponse m = CX__BARRIER_RESPONSE__INIT;
    m.counter = reply->counter;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_GET_ALIVE_TASKS: {
    Cx__GetAliveTasksResponse m = CX__GET_ALIVE_TASKS_RESPONSE__INIT;
    m.n_alive_task_ids = m.n_incarnations = reply->task_count;
    m.alive_task_ids = (int32_t *)(uintptr_t)reply->tasks;
    m.incarnations = (uint64_t *)(uintptr_t)reply->incarnations;
    return codec_pack(&m.base, arena, out, out_size);
  }
  default: return NULL; /* the empty message is no bytes */
  }
}

/* ---- the agent's side ---- */

weft_status *coord_request_encode(const coord_request *r, weft_arena *arena, const uint8_t **out, size_t *out_size)
{
  Cx__Incarnations incarnations = CX__INCARNATIONS__INIT;
  Cx__KeyValueEntry entry;

  incarnations.task_id = r->task;
  incarnations.task_incarnation = r->incarnation;
  incarnations.service_incarnation = r->service_incarnation;
#define VALUE(ours, theirs) m.theirs = r->ours;
#define POINTER(ours, theirs) m.theirs = (__typeof__(m.theirs))(uintptr_t)r->ours;
#define INCARNATIONS m.incarnations = &incarnations;
#define ENTRY(theirs) \
  fill_entry(m.theirs = &entry, &(coord_entry){.key = r->key, .value = r->value, .value_size = r->value_size});
#define ALWAYS(theirs) m.theirs = true;
#define ENCODE(METHOD, message, Message, fields)              \
  case COORD_##METHOD: {                                      \
    Cx__##Message m;                                          \
    cx__##message##__init(&m);                                \
    fields return codec_pack(&m.base, arena, out, out_size);  \
  }
  switch (r->method) {
    REQUESTS(ENCODE)
  case COORD_RESET_TASK:
  case COORD_GET_TASK_STATE:
  case COORD_METHOD_COUNT: break;
  }
  return COORD_ERR(UNIMPLEMENTED, "method %d in dialect X", (int)r->method);
}

static weft_status *decode_entries(Cx__KeyValueEntry *const *entries, size_t count, weft_arena *arena, coord_reply *out)
{
  coord_entry *list = WEFT_ARENA_ARRAY(arena, coord_entry, count);

  WEFT_TRY_ALLOC(list);
  for (size_t i = 0; i < count; i++)
    list[i] =
      (coord_entry){.key = entries[i]->key, .value = entries[i]->value.data, .value_size = entries[i]->value.len};
  out->entries = list;
  out->entry_count = count;
  return NULL;
}

weft_status *coord_reply_decode(coord_method method, const void *data, size_t size, weft_arena *arena, coord_reply *out)
{
  *out = (coord_reply){0};
  switch (method) {
  case COORD_REGISTER_TASK:
  case COORD_HEARTBEAT: {
    UNPACK(register_task_response, Cx__RegisterTaskResponse, m);
    out->service_incarnation = m->service_incarnation;
    return NULL;
  }
  case COORD_WATCH_TASKS: {
    UNPACK(watch_tasks_response, Cx__WatchTasksResponse, m);
    coord_task_info *infos = WEFT_ARENA_ARRAY(arena, coord_task_info, m->n_task_state);
    WEFT_TRY_ALLOC(infos);
    for (size_t i = 0; i < m->n_task_state; i++) {
      const Cx__TaskInfo *t = m->task_state[i];
      infos[i] = (coord_task_info){.task = t->task_id,
                                   .state = (coord_task_state)t->state,
                                   .incarnation = t->incarnation,
                                   .error_code = t->error_code,
                                   .error_message = t->error_message,
                                   .is_reported = t->error_payload && t->error_payload->is_reported_error};
    }
    out->version = m->version_number;
    out->infos = infos;
    out->info_count = m->n_task_state;
    return NULL;
  }
  case COORD_GET_KEY_VALUE:
  case COORD_TRY_GET_KEY_VALUE:
  case COORD_INCREMENT_KEY_VALUE: {
    UNPACK(get_key_value_response, Cx__GetKeyValueResponse, m);
    if (!m->kv) return codec_malformed(method);
    return decode_entries(&m->kv, 1, arena, out);
  }
  case COORD_GET_KEY_VALUE_DIR: {
    UNPACK(get_key_value_dir_response, Cx__GetKeyValueDirResponse, m);
    return decode_entries(m->kv, m->n_kv, arena, out);
  }
  case COORD_BARRIER: {
    UNPACK(barrier_response, Cx__BarrierResponse, m);
    out->counter = m->counter;
    return NULL;
  }
  case COORD_GET_ALIVE_TASKS: {
    UNPACK(get_alive_tasks_response, Cx__GetAliveTasksResponse, m);
    if (m->n_alive_task_ids != m->n_incarnations) return codec_malformed(method);
    out->tasks = m->alive_task_ids;
    out->incarnations = m->incarnations;
    out->task_count = m->n_alive_task_ids;
    return NULL;
  }
  default: return NULL;
  }
}
