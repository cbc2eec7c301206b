/* coord/agent_internal.h -- the agent's insides, for the files that make it up. */
#ifndef WEFT_COORD_AGENT_INTERNAL_H
#define WEFT_COORD_AGENT_INTERNAL_H

#include <weft/coord.h>

#include "base/arena.h"
#include "base/event.h"
#include "base/thread.h"
#include "coord/agent_core.h"
#include "coord/conn.h"

#define COORD_GRACE_NS (10 * WEFT_NS_PER_S)  /* on top of a time-out that the service enforces */
#define COORD_LAST_WORD_NS (3 * WEFT_NS_PER_S) /* for the report of a process that fails: the service may be gone */
#define COORD_PROMPT_NS (60 * WEFT_NS_PER_S) /* for calls that the service answers at once */

struct weft_coord_agent {
  weft_coord_agent_options options;
  char *address, *secret;
  SSL_CTX *tls;
  uint64_t incarnation;
  pthread_t thread;
  coord_loop *loop;
  coord_job quit_job;
  /* the loop thread's */
  coord_agent_core *core;
  coord_conn conn;
  coord_conns conns;
  bool has_conn;
  weft_arena arena; /* the memory of one turn of the loop */
  /* any thread's */
  weft_mutex mu;
  weft_status *error WEFT_GUARDED_BY(mu);
};

/* One blocking call, on the caller's stack. */
typedef struct coord_agent_call {
  coord_op op;
  void (*begin)(coord_agent_core *core, int64_t now_ns, coord_op *op); /* NULL: coord_agent_core_call */
  /* Copies what the caller wants out of the reply; runs on the loop thread. */
  weft_status *(*take)(struct coord_agent_call *call, const coord_reply *reply);
  void *out;
  weft_coord_agent *agent;
  weft_event *ended;
  coord_job job;
} coord_agent_call;

/* Runs the call on the loop thread and waits for its end; op.deadline_ns bounds it. Errors: FAILED_PRECONDITION on the
 * agent's own thread; the call's. */
WEFT_NODISCARD weft_status *coord_agent_run(weft_coord_agent *agent, coord_agent_call *call);

/* Loop thread only: makes sure that a connection exists or is being made. */
WEFT_NODISCARD weft_status *coord_agent_dial(weft_coord_agent *agent);

#endif
