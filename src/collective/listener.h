/* collective/listener.h -- where other processes connect: connections of links, and questions about ranks. */
#ifndef WEFT_COLLECTIVE_LISTENER_H
#define WEFT_COLLECTIVE_LISTENER_H

#include "collective/frame.h"

/* Listens on an abstract unix socket and on TCP; once a process.  Fills local_name, inet and port of *out. */
WEFT_NODISCARD weft_status *coll_listener_start(coll_address *out);
void coll_listener_stop(void);

/* Accepts connections and serves what has come.  Called by the progress thread. */
void coll_listener_ready(void);
/* connections wait for a communicator to be made here, or an entrant has been there for too long */
bool coll_listener_is_due(void);
int64_t coll_listener_timer_ns(void); /* when it next has to look at held connections and entrants */

#endif
