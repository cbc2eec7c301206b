/* coord/service_status.c -- what `weft coord status` shows. */
#include <config.h>

#include "coord/service_internal.h"
#include "coord/wire/codec_internal.h"
#include "coord/wire/coord_admin.pb-c.h"

enum { MAX_MISSING = 100, MAX_BARRIERS = 1000 };

static weft_status *fill_barrier(const coord_barrier *barrier, int64_t now_ns, weft_arena *arena, Ca__Barrier *m)
{
  ca__barrier__init(m);
  m->id = codec_text(barrier->id);
  m->counter = barrier->counter;
  m->age_ms = (now_ns - barrier->started_ns) / WEFT_NS_PER_MS;
  m->left_ms = barrier->deadline_ns == INT64_MAX ? -1 : (barrier->deadline_ns - now_ns) / WEFT_NS_PER_MS;
  m->arrived = barrier->arrived_count;
  m->participants = barrier->count;
  m->missing = WEFT_ARENA_ARRAY(arena, int32_t, MAX_MISSING);
  WEFT_TRY_ALLOC(m->missing);
  for (int32_t i = 0; i < barrier->count && m->n_missing < MAX_MISSING; i++)
    if (!barrier->arrived[i]) m->missing[m->n_missing++] = barrier->is_everyone ? i : barrier->tasks[i];
  return NULL;
}

static void fill_protection(const weft_coord_protection *protection, Ca__Protection *m)
{
  ca__protection__init(m);
  m->has_secret = protection->has_secret;
  m->has_tls = protection->has_tls;
  m->asks_certificates = protection->asks_certificates;
  m->lets_anyone_in = protection->lets_anyone_in;
  m->hosts = protection->hosts;
  m->by_secret = protection->by_secret;
  m->by_certificate = protection->by_certificate;
  m->by_uid = protection->by_uid;
  m->by_host = protection->by_host;
  m->by_anyone = protection->by_anyone;
  m->strangers = protection->strangers;
  m->refused_calls = protection->refused_calls;
}

weft_status *coord_service_status(const coord_service *service, int64_t now_ns, int64_t connections,
                                  const weft_coord_protection *protection, weft_arena *arena, const uint8_t **out,
                                  size_t *out_size)
{
  Ca__StatusResponse m = CA__STATUS_RESPONSE__INIT;
  Ca__Protection protected;
  size_t n = (size_t)service->config.task_count;
  Ca__Task *tasks = WEFT_ARENA_ARRAY(arena, Ca__Task, n);
  const coord_barrier *barrier;
  const coord_wait *wait, *next_wait;
  const coord_call *call;

  m.tasks = WEFT_ARENA_ARRAY(arena, Ca__Task *, n);
  m.barriers = WEFT_ARENA_ARRAY(arena, Ca__Barrier *, MAX_BARRIERS);
  if (!tasks || !m.tasks || !m.barriers) return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  m.service_incarnation = service->config.incarnation;
  m.uptime_ms = (now_ns - service->started_ns) / WEFT_NS_PER_MS;
  m.heartbeat_timeout_ms = service->config.heartbeat_timeout_ns / WEFT_NS_PER_MS;
  for (m.n_tasks = 0; m.n_tasks < n; m.n_tasks++) {
    const coord_task *task = &service->tasks[m.n_tasks];
    Ca__Task *t = m.tasks[m.n_tasks] = &tasks[m.n_tasks];
    ca__task__init(t);
    t->task_id = (int32_t)m.n_tasks;
    t->state = (int32_t)task->state;
    t->incarnation = task->incarnation;
    t->heartbeat_age_ms = task->last_heartbeat_ns ? (now_ns - task->last_heartbeat_ns) / WEFT_NS_PER_MS : -1;
    t->lost_ms = task->silent_since_ns ? (now_ns - task->silent_since_ns) / WEFT_NS_PER_MS : -1;
    t->error_code = (int32_t)weft_status_code(task->error);
    t->error_message = codec_text(weft_status_message(task->error));
    t->recoverable = task->recoverable;
  }
  DL_FOREACH(service->ongoing, barrier) {
    Ca__Barrier *b = WEFT_ARENA_NEW(arena, Ca__Barrier);
    if (m.n_barriers == MAX_BARRIERS) break;
    WEFT_TRY_ALLOC(b);
    WEFT_TRY(fill_barrier(barrier, now_ns, arena, b));
    m.barriers[m.n_barriers++] = b;
  }
  HASH_ITER(hh, service->waits, wait, next_wait)
    DL_FOREACH(wait->calls, call) m.waiting_gets++;
  m.keys = (int64_t)coord_kv_store_count(service->kv);
  m.key_value_bytes = (int64_t)coord_kv_store_value_bytes(service->kv);
  m.connections = connections;
  fill_protection(protection, &protected);
  m.protection = &protected;
  m.memory_bytes = (int64_t)service->config.budget->used_bytes;
  m.first_error = codec_text(weft_status_message(service->first_error));
  return codec_pack(&m.base, arena, out, out_size);
}
