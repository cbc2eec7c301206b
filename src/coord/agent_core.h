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
  COORD_RETRY_NEVER,    /* if a reply was lost, the request may have been done */
  COORD_RETRY_LOST,     /* after errors of the network, until the deadline */
  COORD_RETRY_REGISTER, /* after those, and after what the service says while a job starts */
} coord_retry;

/* One operation; it has one request in flight at a time. The caller owns the memory and keeps it in place, with all
 * that `request` points to, until `done` has been called. The caller fills in the members up to `done`. */
typedef struct coord_op {
  coord_request request;  /* method and its arguments; the core fills in who asks */
  int64_t deadline_ns;
  coord_retry retry;
  void (*done)(struct coord_op *op, const coord_reply *reply, const weft_status *error); /* both borrowed */
  /* the core's */
  struct coord_op *prev, *next;
  bool in_flight;
  int attempts;
  int64_t retry_at_ns; /* not in flight: when to send it again */
  weft_status *last_error; /* why the last attempt failed */
  struct coord_agent_barrier *barrier;
  void *call, *carrier; /* the transport's */
} coord_op;

typedef struct coord_agent_config {
  int32_t task;
  uint64_t incarnation; /* random, not 0 */
  int64_t heartbeat_timeout_ns, init_timeout_ns, shutdown_timeout_ns;
  bool poll_for_error;
  bool observes_at_once; /* `observe` fails at once if no service is there yet */
  uint64_t seed; /* for the random pauses between attempts */
  /* Sends op->request. The answer comes through coord_agent_core_reply, never from inside `send`. An error of `send`
   * is handled as if it were the answer. */
  weft_status *(*send)(void *ctx, coord_op *op);
  void (*cancel)(void *ctx, coord_op *op); /* the answer is no longer wanted */
  void (*on_error)(void *ctx, const weft_status *error); /* once: the job, or this process's part in it, has failed */
  void *ctx;
} coord_agent_config;

WEFT_NODISCARD weft_status *coord_agent_core_new(const coord_agent_config *config, coord_agent_core **out_core);
void coord_agent_core_free(coord_agent_core *core); /* ends all operations with CANCELLED; NULL is fine */

/* The answer to a request that `send` has sent. */
void coord_agent_core_reply(coord_agent_core *core, int64_t now_ns, coord_op *op, const coord_reply *reply,
                            const weft_status *error);

/* Does what is due. Returns the latest time for the next call. */
int64_t coord_agent_core_tick(coord_agent_core *core, int64_t now_ns);

/* Of `op` only `done` is to be filled in. */
void coord_agent_core_connect(coord_agent_core *core, int64_t now_ns, coord_op *op);
void coord_agent_core_shutdown(coord_agent_core *core, int64_t now_ns, coord_op *op);

/* Learns the service's incarnation without joining the job: enough for keys and watches. */
void coord_agent_core_observe(coord_agent_core *core, int64_t now_ns, coord_op *op);

/* Any other method. The core counts the instances of barriers and fills in request.counter. The service enforces
 * request.timeout_ms; deadline_ns only guards against a service that does not answer. CANCEL_BARRIER cancels this
 * process's ongoing call of the barrier. */
void coord_agent_core_call(coord_agent_core *core, int64_t now_ns, coord_op *op);

/* Ends the operation with CANCELLED. */
void coord_agent_core_cancel(coord_agent_core *core, coord_op *op);

#endif
