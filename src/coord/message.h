/* coord/message.h -- requests and replies of the coordination protocol, whatever dialect they travel in. */
#ifndef WEFT_COORD_MESSAGE_H
#define WEFT_COORD_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coord/wire/blob.h"

/* Method, its name in dialect X and in dialect T (NULL: the dialect has none). */
#define COORD_METHODS(M)                                                 \
  M(REGISTER_TASK, "RegisterTask", "RegisterTask")                       \
  M(HEARTBEAT, "Heartbeat", "Heartbeat")                                 \
  M(POLL_FOR_ERROR, "PollForError", "PollForError")                      \
  M(REPORT_ERROR, "ReportErrorToService", "ReportErrorToService")        \
  M(SHUTDOWN_TASK, "ShutdownTask", "ShutdownTask")                       \
  M(RESET_TASK, NULL, "ResetTask")                                       \
  M(WATCH_TASKS, "WatchTasks", "WatchJobState")                          \
  M(GET_TASK_STATE, NULL, "GetTaskState")                                \
  M(INSERT_KEY_VALUE, "InsertKeyValue", "InsertKeyValue")                \
  M(GET_KEY_VALUE, "GetKeyValue", "GetKeyValue")                         \
  M(TRY_GET_KEY_VALUE, "TryGetKeyValue", "TryGetKeyValue")               \
  M(INCREMENT_KEY_VALUE, "IncrementKeyValue", "IncrementKeyValue")       \
  M(GET_KEY_VALUE_DIR, "GetKeyValueDir", "GetKeyValueDir")               \
  M(DELETE_KEY_VALUE, "DeleteKeyValue", "DeleteKeyValue")                \
  M(BARRIER, "Barrier", "Barrier")                                       \
  M(CANCEL_BARRIER, "CancelBarrier", "CancelBarrier")                    \
  M(GET_ALIVE_TASKS, "GetAliveTasks", "GetAliveTasks")

typedef enum coord_method {
#define COORD_METHOD_ENUM(name, x, t) COORD_##name,
  COORD_METHODS(COORD_METHOD_ENUM)
#undef COORD_METHOD_ENUM
  COORD_METHOD_COUNT
} coord_method;

/* X: jaxlib 0.10.0 and later.  T: jaxlib 0.9.2 and earlier, and TensorFlow. */
typedef enum coord_dialect { COORD_DIALECT_X, COORD_DIALECT_T } coord_dialect;

/* Numbers of the protocol. */
typedef enum coord_task_state {
  COORD_TASK_UNINITIALIZED = 1, /* only agents use it */
  COORD_TASK_DISCONNECTED = 2,
  COORD_TASK_CONNECTED = 3,
  COORD_TASK_ERROR = 4,
} coord_task_state;

/* One request; a method uses the members that its message has.  Everything is borrowed. */
typedef struct coord_request {
  coord_method method;
  struct coord_caller *caller;  /* the connection that it came through; NULL: not known */
  int32_t task;                 /* who asks */
  bool recoverable;             /* T: the task says so itself */
  uint64_t incarnation;         /* of the asking agent */
  bool is_fenced;               /* X: service_incarnation is to be checked */
  uint64_t service_incarnation; /* of the service the agent registered with */
  const char *key;              /* also the directory */
  const void *value;
  size_t value_size;
  bool overwrite;
  int64_t increment;
  const char *barrier_id;
  int64_t timeout_ms, counter;  /* counter: of the barrier's instance */
  const int32_t *tasks;         /* participants of a barrier, or tasks whose liveness or state is asked */
  size_t task_count;
  int64_t version;
  int32_t error_code;
  const char *error_message;
} coord_request;

typedef struct coord_entry {
  const char *key;
  const void *value;
  size_t value_size;
  coord_blob *blob; /* the same bytes, if they are shared; else NULL */
} coord_entry;

typedef struct coord_task_info {
  int32_t task;
  coord_task_state state;
  uint64_t incarnation;
  int32_t error_code; /* 0: no error; the next two then mean nothing */
  const char *error_message;
  bool is_reported;
} coord_task_info;

/* One reply; members as in coord_request. */
typedef struct coord_reply {
  uint64_t service_incarnation;
  int64_t counter, version;
  const coord_entry *entries;
  size_t entry_count;
  const coord_task_info *infos;
  size_t info_count;
  const int32_t *tasks; /* those that are alive */
  const uint64_t *incarnations;
  size_t task_count;
  uint64_t share; /* not 0: replies of equal `share` and dialect have the same bytes */
} coord_reply;

#endif
