/* coord/wire/codec_t.c -- dialect T, the service's side. */
#include <config.h>

#include "coord/wire/codec_internal.h"

#include "coord/wire/coord_t.pb-c.h"

#define UNPACK(type, Type, var)                                                             \
  const Type *var = codec_unpack(&ct__##type##__descriptor, data, size, arena);             \
  if (!var) return codec_malformed(method)

static void take_task(coord_request *out, const Ct__CoordinatedTask *task)
{
  if (!task) return;
  out->task = task->task_id;
  out->recoverable = task->recoverable;
}

static weft_status *take_tasks(coord_request *out, Ct__CoordinatedTask *const *tasks, size_t count, weft_arena *arena)
{
  int32_t *ids = WEFT_ARENA_ARRAY(arena, int32_t, count);

  WEFT_TRY_ALLOC(ids);
  for (size_t i = 0; i < count; i++) ids[i] = tasks[i]->task_id;
  out->tasks = ids;
  out->task_count = count;
  return NULL;
}

/* Every request: method, message, and the message's fields. FIELD names the member of coord_request, then that of the
 * message; TASK is the task that asks, TASKS are the tasks it asks about, ENTRY is key and value. */
#define REQUESTS(R)                                                                                                         \
  R(REGISTER_TASK, register_task_request, RegisterTaskRequest, TASK(source_task) FIELD(incarnation, incarnation))           \
  R(HEARTBEAT, heartbeat_request, HeartbeatRequest, TASK(source_task) FIELD(incarnation, incarnation))                      \
  R(POLL_FOR_ERROR, source_task_request, SourceTaskRequest, TASK(source_task))                                              \
  R(SHUTDOWN_TASK, source_task_request, SourceTaskRequest, TASK(source_task))                                               \
  R(RESET_TASK, source_task_request, SourceTaskRequest, TASK(source_task))                                                  \
  R(REPORT_ERROR, report_error_to_service_request, ReportErrorToServiceRequest,                                             \
    TASK(error_origin) FIELD(error_code, error_code) FIELD(error_message, error_message))                                   \
  R(WATCH_TASKS, watch_job_state_request, WatchJobStateRequest, FIELD(version, version_number))                             \
  R(GET_TASK_STATE, get_task_state_request, GetTaskStateRequest, TASKS(source_task))                                        \
  R(INSERT_KEY_VALUE, insert_key_value_request, InsertKeyValueRequest, FIELD(overwrite, allow_overwrite) ENTRY(kv))         \
  R(GET_KEY_VALUE, get_key_value_request, GetKeyValueRequest, FIELD(key, key))                                              \
  R(TRY_GET_KEY_VALUE, get_key_value_request, GetKeyValueRequest, FIELD(key, key))                                          \
  R(GET_KEY_VALUE_DIR, get_key_value_request, GetKeyValueRequest, FIELD(key, key)) /* the directory is field 1 as well */   \
  R(INCREMENT_KEY_VALUE, increment_key_value_request, IncrementKeyValueRequest, FIELD(key, key) FIELD(increment, increment)) \
  R(DELETE_KEY_VALUE, delete_key_value_request, DeleteKeyValueRequest, FIELD(key, key))                                     \
  R(BARRIER, barrier_request, BarrierRequest,                                                                               \
    TASK(source_task) FIELD(barrier_id, barrier_id) FIELD(timeout_ms, barrier_timeout_in_ms) FIELD(counter, counter)        \
    TASKS(tasks))                                                                                                           \
  R(CANCEL_BARRIER, cancel_barrier_request, CancelBarrierRequest,                                                           \
    TASK(source_task) FIELD(barrier_id, barrier_id) FIELD(counter, counter))                                                \
  R(GET_ALIVE_TASKS, get_alive_tasks_request, GetAliveTasksRequest, TASK(requesting_task) TASKS(tasks))

weft_status *codec_t_request_decode(coord_method method, const void *data, size_t size, weft_arena *arena,
                                    coord_request *out)
{
#define FIELD(ours, theirs) out->ours = m->theirs;
#define TASK(theirs) take_task(out, m->theirs);
#define TASKS(theirs) WEFT_TRY(take_tasks(out, m->theirs, m->n_##theirs, arena));
#define ENTRY(theirs) if (m->theirs) codec_take_entry(out, m->theirs->key, m->theirs->value);
#define DECODE(METHOD, message, Message, fields) \
  case COORD_##METHOD: {                         \
    UNPACK(message, Ct__##Message, m);           \
    fields return NULL;                          \
  }
  switch (method) {
    REQUESTS(DECODE)
  case COORD_METHOD_COUNT: break;
  }
  return COORD_ERR(UNIMPLEMENTED, "method %d in dialect T", (int)method);
}

/* `count` empty tasks on the arena; NULL without memory. */
static Ct__CoordinatedTask *new_tasks(size_t count, weft_arena *arena)
{
  Ct__CoordinatedTask *tasks = WEFT_ARENA_ARRAY(arena, Ct__CoordinatedTask, count);

  for (size_t i = 0; tasks && i < count; i++) ct__coordinated_task__init(&tasks[i]);
  return tasks;
}

static weft_status *encode_states(const coord_reply *reply, weft_arena *arena, const uint8_t **out, size_t *out_size)
{
  Ct__WatchJobStateResponse m = CT__WATCH_JOB_STATE_RESPONSE__INIT;
  Ct__CoordinatedTaskStateInfo *infos = WEFT_ARENA_ARRAY(arena, Ct__CoordinatedTaskStateInfo, reply->info_count);
  Ct__CoordinationServiceError *errors = WEFT_ARENA_ARRAY(arena, Ct__CoordinationServiceError, reply->info_count);
  Ct__CoordinatedTask *tasks = new_tasks(reply->info_count, arena);

  m.task_state = WEFT_ARENA_ARRAY(arena, Ct__CoordinatedTaskStateInfo *, reply->info_count);
  if (!infos || !errors || !tasks || !m.task_state) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  m.version_number = reply->version;
  m.n_task_state = reply->info_count;
  for (size_t i = 0; i < reply->info_count; i++) {
    const coord_task_info *info = &reply->infos[i];
    tasks[i].task_id = info->task;
    ct__coordinated_task_state_info__init(&infos[i]);
    infos[i].task = &tasks[i];
    infos[i].state = (int32_t)info->state;
    infos[i].incarnation = info->incarnation;
    m.task_state[i] = &infos[i];
    if (info->error_code == 0) continue;
    infos[i].error_code = info->error_code;
    infos[i].error_message = codec_text(info->error_message);
    infos[i].error_payload = &errors[i];
    ct__coordination_service_error__init(&errors[i]);
    errors[i].is_reported_error = info->is_reported;
    errors[i].source_task = info->is_reported ? &tasks[i] : NULL;
  }
  return codec_pack(&m.base, arena, out, out_size);
}

weft_status *codec_t_reply_encode(coord_method method, const coord_reply *reply, weft_arena *arena, const uint8_t **out,
                                  size_t *out_size)
{
  switch (method) {
  case COORD_REGISTER_TASK:
  case COORD_HEARTBEAT: {
    Ct__RegisterTaskResponse m = CT__REGISTER_TASK_RESPONSE__INIT; /* both replies have this field only */
    m.leader_incarnation = reply->service_incarnation;
    return codec_pack(&m.base, arena, out, out_size);
  }
  case COORD_WATCH_TASKS:
  case COORD_GET_TASK_STATE: return encode_states(reply, arena, out, out_size);
  case COORD_GET_KEY_VALUE:
  case COORD_TRY_GET_KEY_VALUE:
  case COORD_INCREMENT_KEY_VALUE:
  case COORD_GET_KEY_VALUE_DIR:
  case COORD_BARRIER:
    return codec_x_reply_encode(method, reply, arena, out, out_size); /* the dialects agree on these */
  case COORD_GET_ALIVE_TASKS: {
    Ct__GetAliveTasksResponse m = CT__GET_ALIVE_TASKS_RESPONSE__INIT;
    Ct__CoordinatedTask *tasks = new_tasks(reply->task_count, arena);
    m.alive_tasks = WEFT_ARENA_ARRAY(arena, Ct__CoordinatedTask *, reply->task_count);
    if (!tasks || !m.alive_tasks) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    m.n_alive_tasks = m.n_incarnations = reply->task_count;
    m.incarnations = (uint64_t *)(uintptr_t)reply->incarnations;
    for (size_t i = 0; i < reply->task_count; i++) {
      tasks[i].task_id = reply->tasks[i];
      m.alive_tasks[i] = &tasks[i];
    }
    return codec_pack(&m.base, arena, out, out_size);
  }
  default: return NULL; /* the empty message is no bytes */
  }
}

weft_status *codec_t_mark_reported(weft_status *st, int32_t source_task)
{
  Ct__CoordinationServiceError error = CT__COORDINATION_SERVICE_ERROR__INIT;
  Ct__CoordinatedTask task = CT__COORDINATED_TASK__INIT;
  uint8_t packed[48];
  size_t size;

  task.task_id = source_task;
  error.is_reported_error = true;
  error.source_task = &task;
  size = ct__coordination_service_error__pack(&error, packed);
  return weft_status_with_payload(st, COORD_PAYLOAD_SERVICE_ERROR, packed, size);
}
