/* collective/host/link.h -- the connection between a rank of this process and a rank of another one: a stream for
 * data, a socket for control.  The lower rank connects when either first needs the other.  The end of the socket is
 * the peer's death. */
#ifndef WEFT_COLLECTIVE_HOST_LINK_H
#define WEFT_COLLECTIVE_HOST_LINK_H

#include "collective/frame.h"
#include "collective/transport/stream.h"

/* Precedes each message on a stream; one unit long. */
typedef struct coll_header {
  uint32_t magic;
  uint8_t type; /* coll_message_type */
  uint8_t kind, dtype, reduction;
  uint64_t seq, bytes, count, fingerprint;
  uint64_t tag;   /* point-to-point: its tag; else coll_op.place */
  uint64_t id;    /* number of the message on this link, or of the send that it belongs to */
  int32_t root;
  uint32_t check; /* checksum of the bytes before it */
} coll_header;
_Static_assert(sizeof(coll_header) == COLL_STREAM_UNIT, "one unit");

void coll_header_seal(coll_header *header); /* sets magic and check; call it last */

typedef enum coll_message_type {
  COLL_MESSAGE_STEP = 1, /* of a schedule, on channel 0; all other types are on channel 1 */
  COLL_MESSAGE_OFFER,    /* a send asks to send */
  COLL_MESSAGE_ACCEPT,   /* a receive has met that offer */
  COLL_MESSAGE_DATA,     /* the payload of an accepted offer */
  COLL_MESSAGE_EAGER,    /* a small send, with its payload and without an offer: see link_state.h */
  COLL_MESSAGE_ROOM,     /* `bytes` of room for eager sends are free again */
  COLL_MESSAGE_IS_LENT = 0x40,  /* flag: no payload follows; it is lent (stream.h) */
  COLL_MESSAGE_HAS_SITE = 0x80, /* flag: one unit with the instruction's name follows */
} coll_message_type;

/* Something happened at the socket of link number `id`. */
void coll_link_ready_locked(coll_group *g, uint64_t id) WEFT_REQUIRES(g->mu);

/* A peer's HELLO for this group came on `fd`.  On success `fd`, passed_fd and the session are taken.  Errors: the
 * reason why the greeting is refused; UNAVAILABLE: not yet; ALREADY_EXISTS: this side's own connection stays. */
WEFT_NODISCARD weft_status *coll_link_adopt_locked(coll_group *g, const coll_hello *hello, int fd, int passed_fd,
                                                   coll_session *session) WEFT_REQUIRES(g->mu);

/* Makes the link if there is none, and dials if the peer's address is known.  NULL: the group has failed. */
coll_link *coll_link_of_locked(coll_group *g, int local, int peer) WEFT_REQUIRES(g->mu);
bool coll_link_is_ready(const coll_link *link);

bool coll_link_is_waiting(const coll_link *link); /* for the peer to connect, or for another try */
const char *coll_link_why(const coll_link *link); /* why the last try to connect failed; "": none has failed */

/* Dials if the link waits and the peer's address is known.  Unlike in coll_link_of_locked, an error does not refuse
 * the link: the caller may try again. */
WEFT_NODISCARD weft_status *coll_link_dial_locked(coll_group *g, int local, int peer) WEFT_REQUIRES(g->mu);

/* The messages between a rank of this process and a peer, which may be any number; zeros where nothing counts them. */
coll_stream_counts coll_link_counts(coll_group *g, int rank, int peer);

/* The number of messages that a peer which has left had handed to the network, and that have not come. 0 also if there
 * are more of them than this machine had room for, because then a slow rank may be the cause. */
uint64_t coll_link_owed_by_left(coll_group *g, int rank, int peer);

/* One side of the control connection between a rank of this process and a peer, which may be any number, after its
 * frames that have come are read; zeros where there is none. */
coll_control coll_link_control_locked(coll_group *g, int rank, int peer) WEFT_REQUIRES(g->mu);

/* Sends a frame that says nothing, over a network: if the peer's system has forgotten the connection, it says so. */
void coll_link_probe_locked(coll_group *g, int rank, int peer) WEFT_REQUIRES(g->mu);

/* Fails the group if a platform's communicator has a send or receive whose other half cannot come any more, since its
 * peer has left. */
void coll_p2p_check_left_locked(coll_group *g) WEFT_REQUIRES(g->mu);

/* Asks all peers to wake this process when they send or make room.  True if no link has anything to do now. */
bool coll_links_arm_locked(coll_group *g) WEFT_REQUIRES(g->mu);

#endif
