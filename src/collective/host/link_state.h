/* collective/host/link_state.h -- the fields of a link, for the files that share them.
 *
 * Channel 0 carries the messages of schedules, in order: each is a header, perhaps the instruction's name, and the
 * payload, padded to units.  A message stays in the stream until its receive is posted; that is the flow control.
 * Channel 1 carries sends and receives: OFFER, answered by ACCEPT once a receive matches, then DATA.  So nothing on
 * channel 1 ever waits for a receive that is not posted.  Small sends do not ask (EAGER): the receiving process
 * keeps data that no receive has met yet, and gives each peer ROOM for it.  A peer that has used up its room sends
 * an OFFER.
 *
 * Large payloads of both channels are lent (see the glossary of the README), one at a time on each link.  A
 * schedule's message may wait until a send's loan ends, because the receive of that send is posted.  A send never
 * waits for a loan: if the link lends already, the send goes through the stream. */
#ifndef WEFT_COLLECTIVE_HOST_LINK_STATE_H
#define WEFT_COLLECTIVE_HOST_LINK_STATE_H

#include "collective/host/link.h"

enum { COLL_SITE_BYTES = COLL_STREAM_UNIT, COLL_EAGER_ROOM = 256 << 10 };

typedef enum link_state {
  LINK_WAITING,    /* for the peer to connect */
  LINK_CONNECTING, /* this side dials */
  LINK_PROVING,    /* connected; the challenge is under way */
  LINK_GREETING,   /* HELLO sent */
  LINK_READY,
  LINK_REFUSED,    /* no process listens at the peer's address; see link.c */
  /* the peer has sent its farewell; data that it sent earlier is still received, and may still be on its way */
  LINK_LEFT,
} link_state;

/* An offer or an eager message that no receive has met yet. */
typedef struct coll_offer {
  struct coll_offer *next;
  coll_header header;
  uint64_t arrival; /* place in the order of all offers of the group, for receives from any rank */
  size_t got;       /* bytes of an eager payload that have come */
  char payload[];
} coll_offer;

struct coll_link {
  coll_link *next_open;
  coll_group *group;
  uint64_t id;
  /* `rank`: this side's rank, number `local` here; its communicator may be gone while others of the group are not */
  int local, rank, peer, fd;
  link_state state;
  coll_transport transport;  /* known once this side dials, or the peer has greeted */
  coll_stream *stream;       /* NULL until the greeting (shm) or until the link is ready */
  coll_handshake shake;      /* of a connection that this side made */
  coll_session session;      /* set once the peer has proven itself */
  coll_frame_reader reader;
  int redials;               /* connection attempts that are left; 0: none has failed yet; -1: none is left */
  char why[200];             /* see coll_link_why */
  int64_t spoke_ns;          /* when this side last sent a message of the handshake */
  bool unheard;              /* this side has sent its farewell, and the peer has not confirmed it */
  bool cut_here;             /* the control connection was cut by a fault that was asked for (fault.c) */
  /* the control connection ended without a farewell or a reason; the diagnosis asks, or has asked, the peer's process,
   * which may be alive */
  bool doubted, asked;
  coll_fifo sends, recvs;    /* channel 0 */
  coll_header rx;            /* of the message that is coming in on channel 0 */
  char rx_site[COLL_SITE_BYTES + 1];
  bool rx_open;
  coll_msg *lends;           /* the message whose payload is lent: sends.head or frames.head; NULL: none */
  coll_msg *borrows;         /* recvs.head or rx1_msg, while a part of its lent payload is being read */
  size_t borrowing;          /* size of that part */
  char *scratch;             /* BULK_PIECE_BYTES for payloads that are borrowed and then reduced; NULL until needed */
  uint64_t tx_count[COLL_CHANNELS], rx_count[COLL_CHANNELS]; /* messages begun */
  uint64_t rx_last[COLL_CHANNELS]; /* of a peer that has left: how many messages it sent */
  coll_farewell farewell;          /* of a peer that has sent its farewell; else zeros */
  coll_fifo frames;          /* channel 1: operations with something to send */
  coll_fifo offered;         /* this side's offers that wait for ACCEPT */
  coll_fifo incoming;        /* receives that were accepted and wait for DATA */
  coll_header rx1;
  coll_msg *rx1_msg;         /* the receive whose payload is coming in */
  coll_offer *offers, **offers_tail;
  size_t offer_count;
  coll_offer *storing;       /* the last offer, while its payload is coming in */
  uint64_t below[2];         /* sends to the peer, and receives from it, that a platform's communicator has had */
  uint64_t next_p2p_id, rx_p2p_id; /* number of the next send of this side, and of the peer */
  /* bytes for eager sends: that the peer has for this side, that this side has for the peer, and that are free again
   * here but not announced yet */
  size_t room_there, room_here, room_due;
  /* for the diagnosis: how many collectives the peer had posted when it said, while the group was frozen, that it
   * had failed; -1: it did not say so */
  int64_t told;
  int64_t broken_ns; /* when the stream was first seen broken, or connections refused; 0: not */
  weft_status *refused; /* LINK_REFUSED: the reason */
};

/* ---- link.c ---- */

/* Closes socket, stream and session of the link. */
void coll_link_hang_up(coll_link *link);
weft_status *coll_link_prove(coll_link *link); /* begins the challenge, or continues it */
/* Opens the stream that a greeting, which came on `fd`, asks for.  passed_fd: the descriptor that came with it; -1:
 * none. */
weft_status *coll_link_open_stream(coll_link *link, const coll_hello *theirs, int fd, int passed_fd);
weft_status *coll_link_become_ready(coll_link *link);

/* The connection cannot be made, for the reason `st` (taken).  on_refused: no process listens there.
 * on_turned_away: the listener had no place for this side for long enough. */
void coll_link_on_refused(coll_link *link, weft_status *st);
void coll_link_on_turned_away(coll_link *link, weft_status *st);
void coll_link_redial(coll_link *link); /* dials again once the pause after the last try is over */

/* The peer is not connected.  `dead`: its process is gone; else it is only out of reach.  `how`: words for the
 * report. */
void coll_link_peer_died(coll_link *link, bool dead, const char *how);

/* ---- drive.c ---- */

/* Queues a message of a schedule on the link to `peer`, which is made if there is none, and moves what can be moved. */
void coll_link_post_locked(coll_group *g, int local, int peer, coll_msg *msg) WEFT_REQUIRES(g->mu);
/* Moves what can be moved on all links. True if anything moved, or if a spent group still has data to send. */
bool coll_links_poll_locked(coll_group *g) WEFT_REQUIRES(g->mu);

/* ---- message.c ---- */

/* True if magic number, checksum and size are those of a header that Weft wrote. */
bool coll_header_is_sound(const coll_header *h);

/* Writes a header into one unit and, for COLL_MESSAGE_HAS_SITE, the site into the next.  Returns the bytes used. */
size_t coll_header_put(char *at, const coll_op *op, int type, uint64_t id, int64_t bytes);

/* Two ways in which a peer fails the group: it is at another operation than `mine`; or it sends bytes that Weft never
 * sends. */
void coll_link_disagree(coll_link *link, const coll_header *h, const char *site, const coll_op *mine);
void coll_link_garbage(coll_link *link, const char *what);

/* Fails the group: a message from the peer was changed, repeated, reordered or removed on its way. */
void coll_link_forged(coll_link *link, const char *where);

/* Each moves as much of one message as can be moved now.  True when the message is complete. */
bool coll_link_send_some(coll_link *link, int channel, coll_msg *msg, int type);
bool coll_link_receive_some(coll_link *link, int channel, coll_msg *msg, int64_t total);
/* the same for a payload that the peer lends */
bool coll_link_borrow_some(coll_link *link, coll_msg *msg, size_t total);
/* True if the payload is large enough to be lent. */
bool coll_link_is_bulk(const coll_link *link, const coll_msg *msg);
void coll_link_lend(coll_link *link, int channel, coll_msg *msg,
                    int type);           /* announces the loan, if there is space for that now */
bool coll_link_is_lent(coll_link *link); /* True if the peer has read all of the loan. */

/* Move messages of schedules.  True if anything moved. */
bool coll_link_send_steps(coll_link *link);
bool coll_link_receive_steps(coll_link *link);

/* Ends, with g->ending, operations of a platform's communicator that still meet the others, and for which the group has
 * ended.  Those that are below go on. */
void coll_links_end_meetings_locked(coll_group *g) WEFT_REQUIRES(g->mu);

/* ---- p2p.c: the same for sends and receives ---- */

bool coll_link_send_p2p(coll_link *link);
bool coll_link_receive_p2p(coll_link *link);
bool coll_link_has_p2p(const coll_link *link);     /* is any send or receive pending? */
bool coll_link_has_all_p2p(const coll_link *link); /* True if all messages have come that a peer which left had sent. */

/* Posts a send or receive.  True: a link has the operation.  False: it is a receive that no offer meets. */
bool coll_link_p2p_locked(coll_group *g, int local, coll_op *op) WEFT_REQUIRES(g->mu);

/* Counts a send or receive that a platform's communicator is to have.  False: the group has failed, for instance
 * because the peer has left without the other half. */
bool coll_p2p_goes_below_locked(coll_group *g, coll_op *op) WEFT_REQUIRES(g->mu);

void coll_links_end_p2p_locked(coll_group *g)
  WEFT_REQUIRES(g->mu); /* ends, with g->ending, sends and receives for which nothing can come any more */
bool coll_links_owe_p2p_locked(coll_group *g)
  WEFT_REQUIRES(g->mu); /* True if the peer sent data before it gave up that has not been received. */

#endif
