/* coord/service.h -- the coordination service as a state machine: requests in, answers out; no sockets, no clock.
 *
 *   coord_service_handle -> answer now, or hold the call until something happens
 *   coord_service_drop   -> the caller of a held call is gone
 *   coord_service_tick   -> time passes: stale tasks, late barriers, coalesced watches
 *
 * Thread-compatible.  `answer` is called from inside those functions and may not call the service. */
#ifndef WEFT_COORD_SERVICE_H
#define WEFT_COORD_SERVICE_H

#include <weft/coord.h>

#include "base/arena.h"
#include "base/status.h"
#include "coord/message.h"

typedef struct coord_service coord_service;

/* One request that waits for its answer.  The transport embeds it, zeroed, and keeps it in place until `answer` has
 * been called for it or coord_service_drop has returned.  All members are the service's. */
typedef struct coord_call {
  struct coord_call *prev, *next; /* of the list that holds it */
  enum { COORD_HELD_NOWHERE, COORD_HELD_BARRIER, COORD_HELD_POLL, COORD_HELD_WATCH, COORD_HELD_GET, COORD_HELD_ALIVE } held;
  void *holder;                   /* the barrier, task, wait or round */
  coord_method method;
  int32_t task;
  int32_t owner;                  /* the task whose quota it counts against: coord_request_owner */
  uint64_t incarnation;
  char *key;                      /* GET: the key as the caller wrote it */
} coord_call;

/* One connection: the tasks that speak through it.  The transport embeds it, zeroed; its members are the service's. */
typedef struct coord_caller {
  struct coord_task *tasks;
} coord_caller;

/* Gives `call` its answer: `error` (borrowed), or, if that is NULL, `reply` (borrowed). */
typedef void (*coord_answer_fn)(void *ctx, coord_call *call, const coord_reply *reply, const weft_status *error);

typedef struct coord_service_config {
  int32_t task_count;
  uint64_t incarnation;          /* random, not 0 */
  int64_t heartbeat_timeout_ns;  /* a connected task silent for longer is dead; also the grace after a disconnect */
  int64_t register_timeout_ns;   /* of the barrier at which tasks register */
  int64_t shutdown_timeout_ns;   /* of the barrier at which tasks shut down; 0: tasks leave one by one */
  bool recoverable;              /* tasks may die and come back; failures are not spread */
  size_t max_key_bytes, max_value_bytes;
  size_t max_task_keys, max_task_bytes, max_task_barriers; /* of one task; 0: only memory limits them */
  size_t max_task_waits;         /* held calls of one task; 0: only memory limits them */
  coord_budget *budget;          /* keys, values, barriers, waiters; borrowed */
  coord_answer_fn answer;
  void *answer_ctx;
} coord_service_config;

/* Makes the service for config->task_count tasks. `config` is copied; budget and answer_ctx are borrowed. Errors:
 * INVALID_ARGUMENT for options out of range; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coord_service_new(const coord_service_config *config, int64_t now_ns,
                                              coord_service **out_service);

/* Stops the service as coord_service_stop does, then frees it. NULL is fine. */
void coord_service_free(coord_service *service);

/* Handles one request (borrowed for the call) of `call`: answers it by config->answer before returning, or holds it. */
void coord_service_handle(coord_service *service, int64_t now_ns, const coord_request *request, coord_call *call);

/* Forgets a held call without answering; a call that is not held is fine. */
void coord_service_drop(coord_service *service, coord_call *call);

/* The connection has ended; its calls have been dropped. */
void coord_service_caller_gone(coord_service *service, int64_t now_ns, coord_caller *caller);

/* Does what is due. Returns the latest time for the next call. */
int64_t coord_service_tick(coord_service *service, int64_t now_ns);

/* Ends the service: barriers end ABORTED, watches get an empty list of version -1, all other held calls end
 * CANCELLED. Later requests fail. */
void coord_service_stop(coord_service *service);

/* The number of held calls. */
size_t coord_service_held(const coord_service *service);

/* An admin StatusResponse as bytes on `arena`. The transport gives `connections` and `protection`. */
WEFT_NODISCARD weft_status *coord_service_status(const coord_service *service, int64_t now_ns, int64_t connections,
                                                 const weft_coord_protection *protection, weft_arena *arena,
                                                 const uint8_t **out, size_t *out_size);

/* For simulations and tests. */
coord_task_state coord_service_task_state(const coord_service *service, int32_t task);
uint64_t coord_service_task_incarnation(const coord_service *service, int32_t task);

#endif
