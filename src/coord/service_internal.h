/* coord/service_internal.h -- the service's state, for the files that make it up. */
#ifndef WEFT_COORD_SERVICE_INTERNAL_H
#define WEFT_COORD_SERVICE_INTERNAL_H

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has no hh.tbl */
#include <uthash.h>
#include <utlist.h>

#include "base/deadline.h"
#include "coord/kv_store.h"
#include "coord/service.h"
#include "coord/wire/wire_status.h"

/* Lists of names in messages end after this many: a long trailer never reaches a C-core client. */
enum { COORD_MAX_NAMES = 3 };

typedef struct coord_task {
  coord_task_state state;
  bool recoverable;       /* this task may come back, or any task of the service */
  bool has_registered;    /* at any time */
  bool lost;              /* in ERROR because its heartbeats stopped */
  bool is_reported;       /* in ERROR because it reported an error itself */
  weft_status *error;     /* of state ERROR */
  uint64_t incarnation;   /* 0: never registered */
  int64_t last_heartbeat_ns;
  int64_t grace_until_ns; /* DISCONNECTED: heartbeats that were on their way are accepted until then */
  coord_call *poll;
  coord_caller *speaker;  /* the connection that it speaks through; NULL: none, or not known */
  struct coord_task *prev_spoken, *next_spoken; /* in the list of that connection's tasks */
  int64_t silent_since_ns; /* when its connection ended; 0: it has one, or never had one */
  size_t barriers;         /* that count against its quota: it was the owner of their first call */
  size_t held;             /* its held calls that count against its quota */
} coord_task;

typedef enum coord_barrier_kind { COORD_BARRIER_USER, COORD_BARRIER_REGISTER, COORD_BARRIER_SHUTDOWN } coord_barrier_kind;

/* One barrier id. Its instances are counted; the members describe the latest. */
typedef struct coord_barrier {
  char *id;
  coord_barrier_kind kind;
  int64_t counter;
  bool passed;               /* ended, well or not */
  weft_status *result;       /* of the ended instance; NULL: all arrived */
  bool has_participants;     /* false: no instance has started yet, there is only a result */
  bool is_everyone;          /* participants are all tasks: index = id, `tasks` is NULL */
  int32_t *tasks;            /* sorted */
  int32_t count;             /* of participants */
  int32_t arrived_count;
  int32_t initiator;
  int64_t started_ns, deadline_ns;
  bool *arrived;             /* by participant; for the ongoing instance, like the next */
  coord_call **waiters;      /* NULL where the caller is gone or has not come */
  size_t charged_bytes;
  struct coord_barrier *prev, *next; /* ongoing ones */
  UT_hash_handle hh;
} coord_barrier;

/* The callers that wait for one key. */
typedef struct coord_wait {
  coord_call *calls;
  size_t charged_bytes;
  UT_hash_handle hh;
  char key[];
} coord_wait;

/* One question "who of these tasks is alive?", answered when all of them that are alive have asked it. */
typedef struct coord_round {
  coord_call *calls;
  size_t charged_bytes;
  UT_hash_handle hh;
  int32_t count;
  int32_t pending; /* alive members that have not asked yet */
  bool *present;   /* by member */
  int32_t tasks[]; /* sorted: the key */
} coord_round;

struct coord_service {
  coord_service_config config;
  coord_task *tasks;
  bool stopped;
  bool polled;              /* some task polls for errors */
  weft_status *first_error; /* the answer to error polls, once something has failed */
  coord_barrier *barriers, *ongoing;
  coord_kv_store *kv;
  coord_wait *waits;
  coord_round *rounds;
  bool liveness_changed;    /* the rounds must be looked at again */
  coord_call *watchers;
  int64_t version;          /* of the tasks' states */
  bool version_changed;     /* the watchers must be answered */
  coord_task_info *infos;   /* the snapshot of `version` */
  uint64_t watch_share;     /* of that snapshot; 0: it has not been made yet */
  uint64_t last_share;
  size_t held;              /* all held calls */
  size_t held_of_none, barriers_of_none; /* like coord_task's, for connections that speak for no task */
  int64_t started_ns, now_ns, next_stale_check_ns;
  weft_arena scratch;       /* for one entry into the service */
};

/* NULL if there is no such task. */
coord_task *coord_service_task(const coord_service *service, int32_t task);

/* identity.c */
/* From now on the task speaks through `caller`, or through no connection (NULL). */
void coord_task_speaks(coord_task *task, coord_caller *caller);
/* True if the task speaks through another connection than the request's, and that connection is alive. */
bool coord_is_spoken_elsewhere(const coord_task *task, const coord_request *request);
/* NULL if the caller may make this request in its task's name.  Errors: PERMISSION_DENIED. */
WEFT_NODISCARD weft_status *coord_check_identity(const coord_service *service, const coord_request *request);
/* The task whose quota the request counts against; task_count if its connection speaks for no task. */
int32_t coord_request_owner(const coord_service *service, const coord_request *request);

/* Holding and answering. */
void coord_hold(coord_service *service, coord_call *call, int where, void *holder, coord_call **list);
void coord_answer(coord_service *service, coord_call *call, const coord_reply *reply, const weft_status *error);
void coord_answer_free(coord_service *service, coord_call *call, weft_status *error); /* takes error */

/* State changes, with everything that follows from them. set_error takes st, propagate borrows it. */
void coord_service_connect(coord_service *service, int32_t task);
void coord_service_disconnect(coord_service *service, int32_t task);
void coord_service_set_error(coord_service *service, int32_t task, weft_status *st);
void coord_service_propagate(coord_service *service, const weft_status *st);

/* barrier.c */
typedef struct coord_barrier_request {
  coord_barrier_kind kind;
  const char *id;
  int64_t counter, timeout_ns;
  int32_t task;
  const int32_t *tasks; /* none: everyone */
  size_t task_count;
} coord_barrier_request;
void coord_barrier_join(coord_service *service, const coord_barrier_request *request, coord_call *call);
void coord_barrier_cancel(coord_service *service, const coord_request *request, coord_call *call);
void coord_barrier_drop(coord_service *service, coord_call *call);
void coord_barriers_leave(coord_service *service, int32_t task, bool recoverable);
void coord_barriers_expire(coord_service *service);
int64_t coord_barriers_next_deadline(const coord_service *service);
void coord_barriers_stop(coord_service *service);
void coord_barriers_free(coord_service *service);
bool coord_barrier_has(const coord_barrier *barrier, int32_t task, int32_t *out_index);

/* service_kv.c */
void coord_kv_handle(coord_service *service, const coord_request *request, coord_call *call);
void coord_kv_drop(coord_service *service, coord_call *call);
void coord_kv_stop(coord_service *service);

/* alive.c */
void coord_alive_handle(coord_service *service, const coord_request *request, coord_call *call);
void coord_alive_drop(coord_service *service, coord_call *call);
void coord_alive_settle(coord_service *service); /* answers the rounds that are complete now */
void coord_alive_stop(coord_service *service);

/* `tasks` sorted and without duplicates, on the scratch arena (or `tasks` itself if it is so already); NULL without
 * memory. */
const int32_t *coord_task_set(coord_service *service, const int32_t *tasks, size_t count, int32_t *out_count);

#endif
