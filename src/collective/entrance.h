/* collective/entrance.h -- the listener's handshake: connections that have not proven that they belong to the job
 * (door.h).
 *
 * All functions are the progress thread's. */
#ifndef WEFT_COLLECTIVE_ENTRANCE_H
#define WEFT_COLLECTIVE_ENTRANCE_H

#include "collective/door.h"

/* Takes a connection that has proven itself: `fd`, which is still watched, and `session`. */
typedef void coll_admit(int fd, coll_session *session);

/* Call it before the sockets are watched.  `pair`: the key of connections to this process; copied. */
void coll_entrance_open(const coll_key *pair, coll_admit *admit);
void coll_entrance_close(void); /* call it after the progress thread has ended */

/* Accepts the connections that wait at a listening socket. */
void coll_entrance_accept(int listening_fd, bool local);
void coll_entrance_hear(void);

/* When the next entrant will have been there for too long; INT64_MAX: there is no entrant. */
int64_t coll_entrance_timer_ns(void);

#endif
