/* collective/host/ending.h -- how a communicator that has peers ends: see "When a communicator ends" in the README. */
#ifndef WEFT_COLLECTIVE_HOST_ENDING_H
#define WEFT_COLLECTIVE_HOST_ENDING_H

#include "collective/internal.h"

/* A rank elsewhere (`origin`, -1: unknown) has given up for the reason `st` (taken) after it had ended `ends_at`
 * collectives.  Those end well here too, later ones with `st`.  The group is spent as soon as nothing is left that
 * may end well. */
void coll_group_end_at_locked(coll_group *g, weft_status *st, uint64_t ends_at, int origin) WEFT_REQUIRES(g->mu);

/* In a group that is ending: ends operations that cannot end well any more, and the group once none is left that
 * can. */
void coll_group_check_end_locked(coll_group *g) WEFT_REQUIRES(g->mu);

/* The group has failed: sends the reason to the peers. After that nothing is sent or received. */
void coll_links_fail_locked(coll_group *g, const weft_status *st) WEFT_REQUIRES(g->mu);

/* The last rank of this process leaves: says farewell to the peers.  Peers on other hosts say that they have heard it;
 * for those that do not, the process stays up to a second, and answers when they ask what has become of it. */
void coll_links_leave(coll_group *g);
void coll_links_close_locked(coll_group *g) WEFT_REQUIRES(g->mu);

/* True if the peer has ended its communicator, and so shut its side of the connection.  Then the peer needs nothing
 * from this process any more. */
bool coll_link_peer_has_ended(const coll_link *link);

#endif
