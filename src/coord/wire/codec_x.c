/* coord/wire/codec_x.c -- dialect X, both sides. */
#include <config.h>

#include "coord/wire/codec_internal.h"

#include "coord/wire/coord_x.pb-c.h"

#define UNPACK(type, Type, var)                                                             \
  const Type *var = codec_unpack(&cx__##type##__descriptor, data, size, arena);             \
  if (!var) return codec_malformed(method)

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
  switch (method) {
  case COORD_REGISTER_TASK: {
    UNPACK(register_task_request, Cx__RegisterTaskRequest, m);
    out->task = m->source_task_id;
    out->incarnation = m->incarnation;
    return NULL;
  }
  case COORD_HEARTBEAT: {
    UNPACK(heartbeat_request, Cx__HeartbeatRequest, m);
    take_incarnations(out, m->incarnations);
    out->task = m->source_task_id;
    out->incarnation = m->incarnation;
    return NULL;
  }
  case COORD_POLL_FOR_ERROR: {
    UNPACK(poll_for_error_request, Cx__PollForErrorRequest, m);
    take_incarnations(out, m->incarnations);
    out->task = m->source_task_id;
    return NULL;
  }
  case COORD_REPORT_ERROR: {
    UNPACK(report_error_to_service_request, Cx__ReportErrorToServiceRequest, m);
    take_incarnations(out, m->incarnations);
    out->task = m->source_task_id;
    out->error_code = m->error_code;
    out->error_message = m->error_message;
    return NULL;
  }
  case COORD_SHUTDOWN_TASK: {
    UNPACK(shutdown_task_request, Cx__ShutdownTaskRequest, m);
    take_incarnations(out, m->incarnations);
    out->task = m->source_task_id;
    return NULL;
  }
  case COORD_WATCH_TASKS: {
    UNPACK(watch_tasks_request, Cx__WatchTasksRequest, m);
    take_incarnations(out, m->incarnations);
    out->version = m->version_number;
    return NULL;
  }
  case COORD_INSERT_KEY_VALUE: {
    UNPACK(insert_key_value_request, Cx__InsertKeyValueRequest, m);
    take_incarnations(out, m->incarnations);
    out->overwrite = m->allow_overwrite;
    if (!m->kv) return NULL;
    out->key = m->kv->key;
    out->value = m->kv->value.data;
    out->value_size = m->kv->value.len;
    return NULL;
  }
  case COORD_GET_KEY_VALUE:
  case COORD_TRY_GET_KEY_VALUE: {
    UNPACK(get_key_value_request, Cx__GetKeyValueRequest, m);
    take_incarnations(out, m->incarnations);
    out->key = m->key;
    return NULL;
  }
  case COORD_INCREMENT_KEY_VALUE: {
    UNPACK(increment_key_value_request, Cx__IncrementKeyValueRequest, m);
    take_incarnations(out, m->incarnations);
    out->key = m->key;
    out->increment = m->increment;
    return NULL;
  }
  case COORD_GET_KEY_VALUE_DIR: {
    UNPACK(get_key_value_dir_request, Cx__GetKeyValueDirRequest, m);
    take_incarnations(out, m->incarnations);
    out->key = m->directory_key;
    return NULL;
  }
  case COORD_DELETE_KEY_VALUE: {
    UNPACK(delete_key_value_request, Cx__DeleteKeyValueRequest, m);
    take_incarnations(out, m->incarnations);
    out->key = m->key;
    return NULL;
  }
  case COORD_BARRIER: {
    UNPACK(barrier_request, Cx__BarrierRequest, m);
    take_incarnations(out, m->incarnations);
    out->task = m->source_task_id;
    out->barrier_id = m->barrier_id;
    out->timeout_ms = m->barrier_timeout_in_ms;
    out->counter = m->counter;
    out->tasks = m->task_ids;
    out->task_count = m->n_task_ids;
    return NULL;
  }
  case COORD_CANCEL_BARRIER: {
    UNPACK(cancel_barrier_request, Cx__CancelBarrierRequest, m);
    take_incarnations(out, m->incarnations);
    out->task = m->source_task_id;
    out->barrier_id = m->barrier_id;
    out->counter = m->counter;
    return NULL;
  }
  case COORD_GET_ALIVE_TASKS: {
    UNPACK(get_alive_tasks_request, Cx__GetAliveTasksRequest, m);
    take_incarnations(out, m->incarnations);
    out->task = m->requesting_task_id;
    out->tasks = m->task_ids;
    out->task_count = m->n_task_ids;
    return NULL;
  }
  case COORD_RESET_TASK:
  case COORD_GET_TASK_STATE:
  case COORD_METHOD_COUNT: break;
  }
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

weft_status *codec_x_reply_encode(coord_method method, const coord_reply *reply, weft_arena *arena,
                                  const uint8_t **out, size_t *out_size)
{
  switch (method) {
  case COORD_REGISTER_TASK:
  case COORD_HEARTBEAT: {
    Cx__RegisterTaskResponse m = CX__REGISTER_TASK_RESPONSE__INIT; /* both have the one field */
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

  incarnations.task_id = r->task;
  incarnations.task_incarnation = r->incarnation;
  incarnations.service_incarnation = r->service_incarnation;
  switch (r->method) {
  case COORD_REGISTER_TASK: {
    Cx__RegisterTaskRequest m = CX__REGISTER_TASK_REQUEST__INIT;
    m.source_task_id = r->task;
    m.incarnation = r->incarnation;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_HEARTBEAT: {
    Cx__HeartbeatRequest m = CX__HEARTBEAT_REQUEST__INIT;
    m.incarnations = &incarnations;
    m.source_task_id = r->task;
    m.incarnation = r->incarnation;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_POLL_FOR_ERROR:
  case COORD_SHUTDOWN_TASK: {
    Cx__PollForErrorRequest m = CX__POLL_FOR_ERROR_REQUEST__INIT; /* ShutdownTask has the same fields */
    m.incarnations = &incarnations;
    m.source_task_id = r->task;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_REPORT_ERROR: {
    Cx__ReportErrorToServiceRequest m = CX__REPORT_ERROR_TO_SERVICE_REQUEST__INIT;
    m.incarnations = &incarnations;
    m.source_task_id = r->task;
    m.error_code = r->error_code;
    m.error_message = codec_text(r->error_message);
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_WATCH_TASKS: {
    Cx__WatchTasksRequest m = CX__WATCH_TASKS_REQUEST__INIT;
    m.incarnations = &incarnations;
    m.version_number = r->version;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_INSERT_KEY_VALUE: {
    Cx__InsertKeyValueRequest m = CX__INSERT_KEY_VALUE_REQUEST__INIT;
    Cx__KeyValueEntry entry;
    fill_entry(&entry, &(coord_entry){.key = r->key, .value = r->value, .value_size = r->value_size});
    m.incarnations = &incarnations;
    m.kv = &entry;
    m.allow_overwrite = r->overwrite;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_GET_KEY_VALUE:
  case COORD_TRY_GET_KEY_VALUE:
  case COORD_GET_KEY_VALUE_DIR: {
    Cx__GetKeyValueRequest m = CX__GET_KEY_VALUE_REQUEST__INIT; /* the directory is field 2 as well */
    m.incarnations = &incarnations;
    m.key = codec_text(r->key);
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_INCREMENT_KEY_VALUE: {
    Cx__IncrementKeyValueRequest m = CX__INCREMENT_KEY_VALUE_REQUEST__INIT;
    m.incarnations = &incarnations;
    m.key = codec_text(r->key);
    m.increment = r->increment;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_DELETE_KEY_VALUE: {
    Cx__DeleteKeyValueRequest m = CX__DELETE_KEY_VALUE_REQUEST__INIT;
    m.incarnations = &incarnations;
    m.key = codec_text(r->key);
    m.is_directory = true;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_BARRIER: {
    Cx__BarrierRequest m = CX__BARRIER_REQUEST__INIT;
    m.incarnations = &incarnations;
    m.barrier_id = codec_text(r->barrier_id);
    m.barrier_timeout_in_ms = r->timeout_ms;
    m.task_ids = (int32_t *)(uintptr_t)r->tasks;
    m.n_task_ids = r->task_count;
    m.source_task_id = r->task;
    m.counter = r->counter;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_CANCEL_BARRIER: {
    Cx__CancelBarrierRequest m = CX__CANCEL_BARRIER_REQUEST__INIT;
    m.incarnations = &incarnations;
    m.barrier_id = codec_text(r->barrier_id);
    m.counter = r->counter;
    m.source_task_id = r->task;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_GET_ALIVE_TASKS: {
    Cx__GetAliveTasksRequest m = CX__GET_ALIVE_TASKS_REQUEST__INIT;
    m.incarnations = &incarnations;
    m.requesting_task_id = r->task;
    m.task_ids = (int32_t *)(uintptr_t)r->tasks;
    m.n_task_ids = r->task_count;
    return codec_pack(&m.base, arena, out, out_size);
  }
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
    list[i] = (coord_entry){.key = entries[i]->key, .value = entries[i]->value.data,
                            .value_size = entries[i]->value.len};
  out->entries = list;
  out->entry_count = count;
  return NULL;
}

weft_status *coord_reply_decode(coord_method method, const void *data, size_t size, weft_arena *arena,
                                coord_reply *out)
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
      infos[i] = (coord_task_info){.task = t->task_id, .state = (coord_task_state)t->state,
                                   .incarnation = t->incarnation, .error_code = t->error_code,
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
