/* collective/fabric/fabric.h -- streams over libfabric, between nodes. */
#ifndef WEFT_COLLECTIVE_FABRIC_FABRIC_H
#define WEFT_COLLECTIVE_FABRIC_FABRIC_H

#include "collective/address.h"
#include "collective/transport/stream.h"

/* Opens the group's endpoint if it has none, and fills provider, protocol and fabric name of `out`.
 * Errors: UNAVAILABLE, naming what libfabric said. */
WEFT_NODISCARD weft_status *coll_fabric_name(coll_group *g, coll_address *out);

/* A stream between rank `mine` of this process and rank `theirs`, whose address `to` is, with keys and tags of their session.
 * Errors: FAILED_PRECONDITION, where the two sides have different providers. */
WEFT_NODISCARD weft_status *coll_fabric_stream(coll_group *g, const coll_session *session, const coll_address *to, int theirs, int mine,
                                               coll_stream **out_stream);

/* Moves what libfabric has to move.  True if anything completed. */
bool coll_fabric_poll(coll_group *g);

/* The same after its descriptor became readable.  Where it does that again and again for nothing, it lies: then nobody sleeps
 * on it, but looks every millisecond, or less often the longer it waits.  How long to nap until then, 0: it does not lie. */
void coll_fabric_woken(coll_group *g);
int64_t coll_fabric_nap_ns(const coll_group *g, int64_t now_ns);

/* Before sleeping: true if nothing has completed, and the progress thread will be woken when something does. */
bool coll_fabric_arm(coll_group *g);

/* Did it close its endpoint, to take back what was lent, before all that was committed was out? */
bool coll_fabric_lost_some(const coll_group *g);

/* Closes the endpoint and frees the streams, once what was committed is out, or a second has passed since the group was spent. */
void coll_fabric_close(coll_group *g);

#endif
