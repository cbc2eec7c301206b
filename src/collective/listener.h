/* collective/listener.h -- where other processes connect: connections of links, and questions about ranks. */
#ifndef WEFT_COLLECTIVE_LISTENER_H
#define WEFT_COLLECTIVE_LISTENER_H

#include "collective/frame.h"

/* Listens on an abstract unix socket and on TCP, once a process.  Fills local_name, inet and port. */
WEFT_NODISCARD weft_status *coll_listener_start(coll_address *out);
void coll_listener_stop(void);

/* Accepts and serves what has come: from the progress thread. */
void coll_listener_ready(void);
bool coll_listener_is_due(void);      /* connections wait for a communicator to be made here, or for too long */
int64_t coll_listener_timer_ns(void); /* when it next has to look at held connections */

#endif
