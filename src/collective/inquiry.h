/* collective/inquiry.h -- questions to other processes: what does a rank there do, and has all come that each side has
 * sent?
 *
 * A question goes over a connection of its own, which proves itself and is sealed, so that nobody but the rank's
 * process can have given the answer.  What the two sides have counted of their other connections then shows whether
 * something was held back or removed there. */
#ifndef WEFT_COLLECTIVE_INQUIRY_H
#define WEFT_COLLECTIVE_INQUIRY_H

#include "collective/address.h"
#include "collective/frame.h"
#include "collective/transport/stream.h"

typedef enum coll_verdict {
  COLL_UNASKED,   /* its address is not known here */
  COLL_SILENT,
  COLL_GONE,      /* nobody listens at its address, or a process of another job does */
  COLL_UNREACHED,
  COLL_ARRIVED,   /* it has posted the operation */
  COLL_ABSENT,    /* it has not */
  COLL_STRANGER,  /* its process answers, and knows no such communicator */
} coll_verdict;

/* One rank, and what became of the question to its process. */
typedef struct coll_inquiry {
  int rank, asker; /* asker: a rank of this process */
  int fd;
  bool local, connecting, proving, answered;
  coll_verdict verdict;
  int error; /* errno of a connection that was not made; 0: none */
  coll_address to;
  coll_handshake shake;
  coll_session session;
  coll_frame_reader reader;
  coll_answer answer;
  coll_stream_counts before; /* of messages between the asker and the rank, before the question */
  coll_control control;      /* this side's control connection with the rank, before the question */
  /* what the comparison has found */
  uint64_t lost_here, lost_there;     /* messages to the asker, and to the rank, that were sent and have not come */
  uint64_t frames_here, frames_there; /* the same for frames of the control connection */
  bool stuck;    /* the handshake of the control connection does not go on, although that of the question did */
  bool cut;      /* the control connection ended, and neither side has ended it */
  bool unheard;  /* the rank has left, and its farewell was removed */
  bool ended;    /* the rank answered the first question, and its process ended after that */
  bool stands;   /* the control connection still existed when it was last examined */
  bool unended;  /* the rank's process is gone, and the end of its control connection has not come */
  bool unmade;   /* messages for the rank wait and none has been sent, although the rank answers */
} coll_inquiry;

/* Prepares a question of the local rank `asker` about `rank` of another process. `to`: its address; NULL: as the group
 * knows it. */
void coll_inquiry_init_locked(coll_inquiry *q, coll_group *g, int rank, int asker, const coll_address *to)
  WEFT_REQUIRES(g->mu);

/* Asks all ranks at once whether they have posted operation `seq`, and waits for WEFT_COLLECTIVE_DIAGNOSE at most.
 * Called without the group's lock. */
void coll_inquiries_ask(coll_group *g, coll_inquiry *qs, int count, uint64_t seq);

/* Compares what each side has sent with what has come to the other.  What is missing gets time to come, and then the
 * ranks are asked again: meanwhile the lock, which is held on entry and on exit, is not held. */
void coll_inquiries_compare_locked(coll_group *g, coll_inquiry *qs, int count, uint64_t seq)
  WEFT_REQUIRES(g->mu) WEFT_NO_THREAD_SAFETY;

/* Writes why the rank's communicator is spent, if it is. `same`: how an error of the operation begins that the report
 * is about. If the reason begins so too, the text is not repeated. */
void coll_inquiry_tell_spent(const coll_inquiry *q, const char *same, FILE *out);

/* Writes a line for each thing that the comparison has found. */
void coll_inquiry_tell(const coll_inquiry *q, FILE *out);

/* Has the comparison found that something was held back, removed or cut? */
bool coll_inquiry_found(const coll_inquiry *q);

#endif
