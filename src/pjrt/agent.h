/* pjrt/agent.h -- how a client uses an agent of the agent extension (weft/pjrt_extensions.h). */
#ifndef WEFT_PJRT_AGENT_H
#define WEFT_PJRT_AGENT_H

#include "pjrt/internal.h"
#include "weft/pjrt_extensions.h"

/* Retains the agent that create numbered `id`.  Errors: INVALID_ARGUMENT  there is none. */
WEFT_NODISCARD weft_status *pjrt_agent_find(int64_t id, PJRT_WeftAgent **out_agent);
void pjrt_agent_release(PJRT_WeftAgent *agent); /* NULL is fine */

/* The job's keys.  Borrows the agent. */
WEFT_NODISCARD weft_status *pjrt_agent_kv(PJRT_WeftAgent *agent, weft_kv **out_kv);

/* A thread that tells a client (pjrt_client_take_process) of processes that die or restart. */
typedef struct pjrt_watch pjrt_watch;

/* The client knows the state of every process when this returns.  Borrows both until pjrt_agent_unwatch. */
WEFT_NODISCARD weft_status *pjrt_agent_watch(PJRT_WeftAgent *agent, PJRT_Client *client, pjrt_watch **out_watch);
void pjrt_agent_unwatch(pjrt_watch *watch); /* NULL is fine */

/* Takes one process's state: ends what waits for an incarnation that is gone. */
void pjrt_client_take_process(PJRT_Client *client, const PJRT_ProcessInfo *info); /* client.c */

#endif
