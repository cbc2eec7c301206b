/* pjrt/agent.h -- how a client uses an agent of the agent extension (weft/pjrt_extensions.h). */
#ifndef WEFT_PJRT_AGENT_H
#define WEFT_PJRT_AGENT_H

#include "pjrt/internal.h"
#include "weft/pjrt_extensions.h"

/* Finds the agent that `create` numbered `id`, and retains it. Errors: INVALID_ARGUMENT  there is none. */
WEFT_NODISCARD weft_status *pjrt_agent_find(int64_t id, PJRT_WeftAgent **out_agent);
void pjrt_agent_release(PJRT_WeftAgent *agent); /* NULL is fine */

/* The job's keys.  Borrows the agent. */
WEFT_NODISCARD weft_status *pjrt_agent_kv(PJRT_WeftAgent *agent, weft_kv **out_kv);

/* A watch: a thread that reports processes which die or restart. */
typedef struct pjrt_watch pjrt_watch;

/* Calls take(ctx, info) for every process before this function returns, and on the thread for every process at each
 * change. Borrows the agent and ctx until pjrt_agent_unwatch. */
WEFT_NODISCARD weft_status *pjrt_agent_watch(PJRT_WeftAgent *agent,
                                             void (*take)(void *ctx, const PJRT_ProcessInfo *info), void *ctx,
                                             pjrt_watch **out_watch);
void pjrt_agent_unwatch(pjrt_watch *watch); /* NULL is fine */

#endif
