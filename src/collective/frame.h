/* collective/frame.h -- the frames of a control connection.
 *
 * A frame is a coll_frame and its payload.  Over a network both are sealed with the session's keys: the payload is
 * encrypted, and a tag follows it.  On a local socket they go as they are. */
#ifndef WEFT_COLLECTIVE_FRAME_H
#define WEFT_COLLECTIVE_FRAME_H

#include "collective/address.h"

typedef enum coll_frame_type {
  COLL_FRAME_BELL = 1, /* wakes the receiver, which then looks for data; or tests that the connection still exists */
  COLL_FRAME_HELLO,    /* coll_hello; the memfd goes along if there is one */
  COLL_FRAME_ACCEPT,   /* coll_hello of the other side */
  COLL_FRAME_REFUSE,   /* code, text */
  COLL_FRAME_ABORT,    /* coll_reason: the sender's communicator is spent */
  /* coll_reason: the sender's communicator will be spent once it has ended that many collectives */
  COLL_FRAME_ENDING,
  COLL_FRAME_YIELD,    /* both sides dialled: the connection of the lower rank stays, and this connection closes */
  COLL_FRAME_GOODBYE,  /* coll_farewell: the sender destroyed its communicator without an error */
  COLL_FRAME_QUERY,    /* coll_query: asks what a rank does */
  COLL_FRAME_ANSWER,   /* coll_answer */
  COLL_FRAME_FLIGHT,   /* asks for the text of the process's flight recorder */
  COLL_FRAME_TEXT,     /* a part of the recorder's text; the end of the connection ends the text */
  /* COLL_DENIED_TEXT: the receiver of this frame did not prove that it belongs to the job.  Never sealed */
  COLL_FRAME_DENIED,
  COLL_FRAME_HEARD,    /* the sender has taken the farewell of the other side */
} coll_frame_type;

typedef struct coll_frame {
  uint32_t type, bytes; /* of the payload that follows */
} coll_frame;

enum { COLL_MOST_FRAME_BYTES = 4096 };

#define COLL_DENIED_TEXT "authentication required"

typedef struct coll_hello {
  uint64_t group_id, src_incarnation, dst_incarnation; /* `dst_incarnation` is 0 if not known yet */
  int32_t src, dst, size, transport;                   /* coll_transport */
  /* whole: messages over libfabric are sealed whole.  Both sides must say the same */
  int32_t whole, reserved;
  coll_address address;                                /* of src */
} coll_hello;

typedef struct coll_reason {
  int32_t code;
  int32_t origin;  /* the rank that gave up first */
  uint64_t posted; /* collectives that the sender's rank has posted */
  /* collectives that ended well at the sender, so that they still may at others: the least of its process's ranks */
  uint64_t ended;
  uint64_t sent[2]; /* messages on each channel */
  uint64_t lost;    /* an incarnation that has died; 0: none known */
  uint32_t member_lost, reserved; /* member_lost 1: a member has died, so that nothing goes on */
  char text[1992];
} coll_reason;

typedef struct coll_farewell {
  uint64_t sent[2]; /* messages of the engine that the sender has begun, by channel */
  /* messages of the stream, and their bytes, that the sender has handed to the network: see coll_stream_counts */
  uint64_t left[2], left_bytes;
  uint64_t below[2]; /* sends to the receiver, and receives from it, that a platform's communicator had */
} coll_farewell;

typedef struct coll_query {
  uint64_t group_id, seq;
  int32_t rank, asker; /* asker: a rank of the sender's process */
} coll_query;

/* What has become of a control connection, as one of its sides sees it. */
typedef enum coll_stage {
  COLL_STAGE_NONE,     /* there is none: this side waits for the other to connect, or is connecting */
  COLL_STAGE_PROVING,  /* this side has connected, and waits for the answer to its challenge */
  COLL_STAGE_GREETING, /* ... and to its greeting */
  COLL_STAGE_STANDS,
  COLL_STAGE_CLOSED,   /* this side has closed it, or the other side has announced that it would */
  COLL_STAGE_CUT,      /* it ended, and neither side had announced that */
  COLL_STAGE_LEAVING,  /* this side has sent its farewell, and waits until the other side confirms it */
} coll_stage;

/* One side of a control connection, for a comparison with the other side. */
typedef struct coll_control {
  uint64_t name;        /* coll_session_name; 0: the connection has no session */
  uint64_t sent, taken; /* numbers of frames; sent: coll_session.spoken */
  int64_t spoke_ago_ns; /* since this side last sent anything */
  uint32_t unacked;     /* bytes of this side that the system of the other side has not acknowledged */
  int32_t stage;        /* coll_stage */
  int32_t open;         /* 1: this side's communicator takes greetings */
  int32_t local;        /* 1: the connection is a local socket, which no other process can change */
} coll_control;

typedef struct coll_answer {
  int32_t known;        /* the rank is known here, in a communicator of that id */
  int32_t arrived;      /* it has posted operation seq */
  int64_t arrived_ago_ns;
  uint64_t posted, ended;
  /* messages between the rank and the asker, by channel (coll_stream_counts) */
  int64_t counted;      /* 1: they are known */
  uint64_t left[2], came[2];
  coll_control control; /* the rank's side of its control connection with the asker */
  char text[512];       /* coll_flight_status_locked */
  char spent[512];      /* why its communicator is spent; "" if it is not */
} coll_answer;

/* Sends a frame without blocking.  passed_fd: a descriptor that goes along, on local sockets only; -1: none.
 * session: seals the frame if it has seals; NULL: does not.  False if not all of the frame was sent. */
bool coll_frame_send(int fd, coll_session *session, coll_frame_type type, const void *payload, size_t bytes,
                     int passed_fd);

/* Collects the bytes of one frame at a time from a non-blocking socket. */
typedef struct coll_frame_reader {
  coll_frame frame;
  size_t got;
  int passed_fd; /* -1: none */
  _Alignas(8) char payload[COLL_MOST_FRAME_BYTES + COLL_TAG_BYTES];
} coll_frame_reader;

typedef enum coll_read_result {
  COLL_READ_NONE,
  COLL_READ_FRAME,
  COLL_READ_END,  /* the peer's side, or somebody on the way, ended the connection */
  COLL_READ_LOST, /* the system gave the connection up: the peer's machine does not answer */
  COLL_READ_CUT,  /* the connection ended within a sealed frame, as no peer ends it */
  COLL_READ_GARBAGE,
  COLL_READ_DENIED, /* by a peer that has not sent a sealed frame yet */
  COLL_READ_FORGED, /* a frame does not open: it was changed or repeated, or frames before it are missing */
} coll_read_result;

/* Reads on.  After COLL_READ_FRAME the reader holds the frame until the next call. */
coll_read_result coll_frame_read(coll_frame_reader *reader, coll_session *session, int fd);

#endif
