/* collective/host/link.h -- the connection of a rank of this process with one of another: a stream for data, a socket
 * for control.  The lower rank connects, when either first needs the other.  The socket's end is the peer's death. */
#ifndef WEFT_COLLECTIVE_HOST_LINK_H
#define WEFT_COLLECTIVE_HOST_LINK_H

#include "collective/frame.h"
#include "collective/transport/stream.h"

/* What precedes each message on a stream; one unit long. */
typedef struct coll_header {
  uint32_t magic;
  uint8_t type; /* coll_message_type */
  uint8_t kind, dtype, reduction;
  uint64_t seq, bytes, count, fingerprint;
  uint64_t tag;   /* point-to-point: its tag; else 0 */
  uint64_t id;    /* number of the message on this link, or of the point-to-point transfer */
  int32_t root;
  uint32_t check; /* of the bytes before it */
} coll_header;
_Static_assert(sizeof(coll_header) == COLL_STREAM_UNIT, "one unit");

void coll_header_seal(coll_header *header); /* sets magic and check: all else is said */

typedef enum coll_message_type {
  COLL_MESSAGE_STEP = 1, /* of a schedule; on channel 0, all others on channel 1 */
  COLL_MESSAGE_OFFER,    /* a send wants to send */
  COLL_MESSAGE_ACCEPT,   /* a receive has met that offer */
  COLL_MESSAGE_DATA,     /* so here it comes */
  COLL_MESSAGE_EAGER,    /* a small send, which comes unasked: see link_state.h */
  COLL_MESSAGE_ROOM,     /* so many bytes of those have been received */
  COLL_MESSAGE_IS_LENT = 0x40,  /* flag: no payload follows; it is lent (stream.h) */
  COLL_MESSAGE_HAS_SITE = 0x80, /* flag: one unit with the instruction's name follows */
} coll_message_type;

/* Something happened at the socket of link number `id`. */
void coll_link_ready_locked(coll_group *g, uint64_t id);

/* A peer's HELLO for this group came on `fd` (taken, with passed_fd and the session, on success).  Errors: why it is
 * refused. */
WEFT_NODISCARD weft_status *coll_link_adopt_locked(coll_group *g, const coll_hello *hello, int fd, int passed_fd,
                                                   coll_session *session);

/* Connects, or prepares to be connected to.  NULL: the group has failed. */
coll_link *coll_link_of_locked(coll_group *g, int local, int peer);
bool coll_link_is_ready(const coll_link *link);

bool coll_link_is_waiting(const coll_link *link); /* for a connection, by either side */
const char *coll_link_why(const coll_link *link); /* the last connection of one that waits again failed; "": none has */

/* Dials if the link waits, address known.  Unlike above an error spends nothing: the caller may try again. */
WEFT_NODISCARD weft_status *coll_link_dial_locked(coll_group *g, int local, int peer);

/* True if all links are quiet, and their peers will ring. */
bool coll_links_arm_locked(coll_group *g);

#endif
