/* collective/host/link_state.h -- a link from inside, for the files that share it.
 *
 * Channel 0 carries the messages of schedules, in order: each is a header, perhaps the instruction's name, and the
 * payload, padded to units.  A message stays in the stream until its receive is posted; that is the flow control.
 * Channel 1 carries sends and receives: OFFER, answered by ACCEPT once a receive matches, then DATA.  So nothing on
 * it ever waits for a receive that is not posted.  Small sends do not ask (EAGER): the receiving process keeps data
 * that no receive has met yet, and grants each peer ROOM for it; a peer that has used its room up asks again.
 *
 * Large payloads of both channels are lent (see the glossary of the README), one at a time on each link.  A
 * schedule's message may wait for the loan of a send, whose receive is posted, but not the other way round: a send
 * that finds a loan goes through the stream instead. */
#ifndef WEFT_COLLECTIVE_HOST_LINK_STATE_H
#define WEFT_COLLECTIVE_HOST_LINK_STATE_H

#include "collective/host/link.h"

enum { COLL_SITE_BYTES = COLL_STREAM_UNIT, COLL_EAGER_ROOM = 256 << 10 };

typedef enum link_state {
  LINK_WAITING,    /* for the peer's connection */
  LINK_CONNECTING, /* our connection is under way */
  LINK_PROVING,    /* it is there, and the challenge is under way */
  LINK_GREETING,   /* HELLO sent */
  LINK_READY,
  LINK_REFUSED,    /* nobody listens at the peer's address; see link.c */
  LINK_LEFT,       /* the peer said goodbye; what it sent before still counts, and may still be on its way */
} link_state;

/* An offer that no receive has met yet, or what came without being asked for. */
typedef struct coll_offer {
  struct coll_offer *next;
  coll_header header;
  uint64_t arrival; /* of all offers of the group, for receives from any rank */
  size_t got;       /* bytes of an eager payload */
  char payload[];
} coll_offer;

struct coll_link {
  coll_link *next_open;
  coll_group *group;
  uint64_t id;
  int local, rank, peer, fd; /* rank: of ours, number `local`; its communicator may be gone while others of the group are not */
  link_state state;
  coll_transport transport;  /* once it is dialled, or the peer has greeted */
  coll_stream *stream;       /* NULL until greeting (shm) or ready */
  coll_handshake shake;      /* of a connection that we made */
  coll_session session;      /* once the peer has proven itself */
  coll_frame_reader reader;
  int redials;               /* that many are left, 0: the first has not failed, -1: none is left */
  char why[200];             /* see coll_link_why */
  coll_fifo sends, recvs;    /* channel 0 */
  coll_header rx;            /* of the message coming in on channel 0 */
  char rx_site[COLL_SITE_BYTES + 1];
  bool rx_open;
  coll_msg *lends;           /* sends.head or frames.head, if its payload is lent */
  coll_msg *borrows;         /* recvs.head or rx1_msg, while some of what is lent to it is under way: */
  size_t borrowing;          /* so many bytes */
  char *scratch;             /* BULK_PIECE_BYTES, for what is borrowed and then reduced; NULL until needed */
  uint64_t tx_count[COLL_CHANNELS], rx_count[COLL_CHANNELS]; /* messages begun */
  uint64_t rx_last[COLL_CHANNELS]; /* of one that left: how many it sent */
  coll_fifo frames;          /* channel 1: operations with something to send */
  coll_fifo offered;         /* our offers, waiting for ACCEPT */
  coll_fifo incoming;        /* our accepts, waiting for DATA */
  coll_header rx1;
  coll_msg *rx1_msg;         /* whose DATA is coming in */
  coll_offer *offers, **offers_tail;
  size_t offer_count;
  coll_offer *storing;       /* the last one, while its payload is coming in */
  uint64_t next_p2p_id, rx_p2p_id; /* of our next send, and the peer's */
  size_t room_there, room_here, room_due; /* for eager sends: at the peer, of the peer's here, and what this side has not announced to the peer yet */
  int64_t told; /* how many collectives the peer had posted when it said, while the group was frozen, that it had failed; -1: it did not */
  int64_t broken_ns; /* when the stream was first seen broken, or the connection refused; 0: it works */
  weft_status *refused; /* why: LINK_REFUSED */
};

/* ---- link.c ---- */

void coll_link_hang_up(coll_link *link);
weft_status *coll_link_prove(coll_link *link); /* the challenge begins, or goes on */
/* The stream that a greeting, which came on `fd`, asks for; passed_fd: what came with it, -1: nothing. */
weft_status *coll_link_open_stream(coll_link *link, const coll_hello *theirs, int fd, int passed_fd);
weft_status *coll_link_become_ready(coll_link *link);

/* The connection cannot be made, for the reason `st` (taken): nobody listens there, or the listener had no place for
 * long enough. */
void coll_link_on_refused(coll_link *link, weft_status *st);
void coll_link_on_turned_away(coll_link *link, weft_status *st);
void coll_link_redial(coll_link *link); /* once the pause after the last time is over */

/* The peer is not connected.  `dead`: its process is gone, and not only out of reach. */
void coll_link_peer_died(coll_link *link, bool dead, const char *how);

/* ---- drive.c ---- */

void coll_link_post_locked(coll_group *g, int local, int peer, coll_msg *msg);
bool coll_links_poll_locked(coll_group *g);

/* ---- message.c ---- */

bool coll_header_is_sound(const coll_header *h);

/* Writes a header into a unit of its own, and the site after it.  Returns the bytes used. */
size_t coll_header_put(char *at, const coll_op *op, int type, uint64_t id, int64_t bytes);

/* The peer is at another operation, or sends what no Weft sends: the group fails. */
void coll_link_disagree(coll_link *link, const coll_header *h, const char *site, const coll_op *mine);
void coll_link_garbage(coll_link *link, const char *what);

/* Somebody on the way changed, repeated, reordered or removed what the peer sent: the group fails. */
void coll_link_forged(coll_link *link, const char *where);

/* Of one message, as much as goes now: true when all of it has gone, or come. */
bool coll_link_send_some(coll_link *link, int channel, coll_msg *msg, int type);
bool coll_link_receive_some(coll_link *link, int channel, coll_msg *msg, int64_t total);
bool coll_link_borrow_some(coll_link *link, coll_msg *msg, size_t total); /* of what the peer lends */
bool coll_link_is_bulk(const coll_link *link, const coll_msg *msg);       /* worth lending? */
void coll_link_lend(coll_link *link, int channel, coll_msg *msg,
                    int type);           /* announces it, if there is room for that now */
bool coll_link_is_lent(coll_link *link); /* does the peer have all that is lent to it? */

/* What schedules have posted.  True if anything moved. */
bool coll_link_send_steps(coll_link *link);
bool coll_link_receive_steps(coll_link *link);

/* ---- p2p.c: the same for sends and receives ---- */

bool coll_link_send_p2p(coll_link *link);
bool coll_link_receive_p2p(coll_link *link);
bool coll_link_has_p2p(const coll_link *link);     /* is anything wanted? */
bool coll_link_has_all_p2p(const coll_link *link); /* of a peer that has left: has all come that it sent? */
bool coll_link_p2p_locked(coll_group *g, int local,
                          coll_op *op); /* true: the link has it; false: a receive that no offer meets */
void coll_links_end_p2p_locked(
  coll_group *g); /* ends sends and receives for which nothing can come any more, with g->ending */
bool coll_links_owe_p2p_locked(coll_group *g); /* something that a peer sent before it gave up has not been received */

#endif
