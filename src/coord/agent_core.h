/* coord/agent_core.h -- one process's membership in a job, as a state machine: no sockets, no clock, no threads.
 *
 *   operations in -> requests out (config.send) -> coord_agent_core_reply -> op->done
 *                                  time -> coord_agent_core_tick
 *
 *   DISCONNECTED -connect-> CONNECTING -registered-> CONNECTED -shutdown-> DISCONNECTED
 *                                                       \-> ERROR (once; on_error)
 *
 * Thread-compatible.  `done`, `on_error` and `send` are called from inside; done may start operations. */
#ifndef WEFT_COORD_AGENT_CORE_H
#define WEFT_COORD_AGENT_CORE_H

#include "base/status.h"
#include "coord/message.h"

typedef struct coord_agent_core coord_agent_core;

typedef enum coord_retry {
  COORD_RETRY_NEVER,    /* a lost reply may hide a done deed */
  COORD_RETRY_LOST,     /* the network's errors, until the deadline */
  COORD_RETRY_REGISTER, /* those, and what the service says while a job starts */
} coord_retry;

/* One operation, which is one request at a time.  Memory of the caller, in place until `done` has been called, and
 * with it all that `request` points to.  Fill the first members. */
typedef struct coord_op {
  coord_request request;  /* method and its arguments; who asks is filled in */
  int64_t deadline_ns;
  coord_retry retry;
  void (*done)(struct coord_op *op, const coord_reply *reply, const weft_status *error); /* both borrowed */
  /* the core's */
  struct coord_op *prev, *next;
  bool in_flight;
  int attempts;
  int64_t retry_at_ns; /* not in flight: when to send again */
  weft_status *last_error; /* why the last attempt failed */
  struct coord_agent_barrier *barrier;
  void *call, *carrier; /* the transport's */
} coord_op;

typedef struct coord_agent_config {
  int32_t task;
  uint64_t incarnation; /* random, not 0 */
  int64_t heartbeat_timeout_ns, init_timeout_ns, shutdown_timeout_ns;
  bool poll_for_error;
  bool observes_at_once; /* `observe` does not wait for a service that is not there yet */
  uint64_t seed; /* of the pauses between attempts */
  /* Sends op->request; the answer comes through coord_agent_core_reply, never from inside send.  On an error the
   * operation counts as lost on the way. */
  weft_status *(*send)(void *ctx, coord_op *op);
  void (*cancel)(void *ctx, coord_op *op); /* the answer is not wanted any more */
  void (*on_error)(void *ctx, const weft_status *error); /* once: the job, or this process's part in it, has failed */
  void *ctx;
} coord_agent_config;

WEFT_NODISCARD weft_status *coord_agent_core_new(const coord_agent_config *config, coord_agent_core **out_core);
void coord_agent_core_free(coord_agent_core *core); /* ends all operations with CANCELLED; NULL is fine */

/* The answer to a request sent. */
void coord_agent_core_reply(coord_agent_core *core, int64_t now_ns, coord_op *op, const coord_reply *reply,
                            const weft_status *error);

/* Returns when to call again at the latest. */
int64_t coord_agent_core_tick(coord_agent_core *core, int64_t now_ns);

/* `op`: only `done` is to be filled. */
void coord_agent_core_connect(coord_agent_core *core, int64_t now_ns, coord_op *op);
void coord_agent_core_shutdown(coord_agent_core *core, int64_t now_ns, coord_op *op);

/* Learns the service's incarnation without joining the job: enough for keys and watches. */
void coord_agent_core_observe(coord_agent_core *core, int64_t now_ns, coord_op *op);

/* Any other method.  Barriers count themselves: request.counter is filled in, and request.timeout_ms is what the service
 * enforces (deadline_ns only guards against its silence).  CANCEL_BARRIER cancels this process's ongoing one. */
void coord_agent_core_call(coord_agent_core *core, int64_t now_ns, coord_op *op);

/* Ends an operation with CANCELLED. */
void coord_agent_core_cancel(coord_agent_core *core, coord_op *op);

coord_task_state coord_agent_core_state(const coord_agent_core *core);
const weft_status *coord_agent_core_error(const coord_agent_core *core); /* borrowed; NULL: none */
uint64_t coord_agent_core_service_incarnation(const coord_agent_core *core);

#endif
