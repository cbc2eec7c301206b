/* collective/door.h -- which processes may talk: the mutual challenge with which every connection begins.
 *
 * Each process draws a door key, which its members learn with its address.  The pair key of a connection is derived
 * from the job's secret, if there is one, and the listener's door key.  The side that connects (the dialler) proves
 * that it has the pair key, and so does the listener, before anything else is said:
 *
 *   dialler  -> listener   coll_knock      mark, a random number, an X25519 share
 *   listener -> dialler    coll_challenge  a random number, a share, HMAC(pair key, "listener", all of these)
 *   dialler  -> listener   coll_proof      HMAC(pair key, "dialler", all of these)
 *
 * Both then have the session's secret: HMAC(pair key, "session", all of these, the secret that both sides compute from
 * the two shares). */
#ifndef WEFT_COLLECTIVE_DOOR_H
#define WEFT_COLLECTIVE_DOOR_H

#include <sys/types.h>

#include "collective/seal.h"

/* ---- keys of the process ---- */

/* This process's door key.  A child process has another key than its parent.  Errors: INVALID_ARGUMENT, the job's
 * secret cannot be read. */
WEFT_NODISCARD weft_status *coll_door_own(coll_key *out);

/* The pair key of connections to the process that has this door key. */
WEFT_NODISCARD weft_status *coll_door_pair_key(const coll_key *door, coll_key *out);

/* The number by which the process with this door key calls the communicator `public_id`.  A process that lacks the
 * pair key cannot derive it. */
WEFT_NODISCARD weft_status *coll_door_group_id(const coll_key *door, uint64_t public_id, uint64_t *out);

/* ---- a connection that both sides have proven ---- */

typedef struct coll_session {
  bool dialled;        /* this side is the dialler */
  coll_key secret;
  coll_seal *out, *in; /* for the session's frames; NULL on a local socket, where the kernel keeps other users out */
  uint64_t sent, taken; /* sealed frames, sent and received */
  /* number of the last sent frame that was no COLL_FRAME_BELL, plus 1; 0: none */
  uint64_t spoken;
  int64_t spoke_ns;     /* when that frame was sent */
  bool cut;             /* only a part of a frame was sent: nothing may follow it */
} coll_session;

void coll_session_fini(coll_session *session);

/* A number of the session, the same on both sides; 0: it is not sealed. */
uint64_t coll_session_name(const coll_session *session);

/* A key of the session for one purpose and direction.  The peer derives the same key for the opposite direction. */
bool coll_session_key(const coll_session *session, const char *purpose, bool outgoing, coll_key *out);

/* ---- the challenge ---- */

typedef struct coll_knock {
  uint64_t mark;
  uint8_t random[32], share[32];
} coll_knock;

typedef struct coll_challenge {
  uint8_t random[32], share[32];
  coll_key mac;
} coll_challenge;

typedef struct coll_proof {
  coll_key mac;
} coll_proof;

typedef struct coll_handshake {
  coll_key pair;
  bool dials, said; /* `said`: this side has sent its first message */
  size_t got;       /* bytes of the message that is coming in */
  coll_knock knock;
  coll_challenge challenge;
  coll_proof proof;
} coll_handshake;

typedef enum coll_shake {
  COLL_SHAKE_WAITS,  /* for the peer's next message: call again when the socket has input */
  COLL_SHAKE_DONE,
  COLL_SHAKE_DENIED, /* the peer's proof is wrong, or the peer says that this side's proof is */
  COLL_SHAKE_ENDED,  /* the connection closed, or there is no memory or no random number */
} coll_shake;

/* `dials`: this side is the dialler. `pair`: the pair key, copied. */
void coll_handshake_init(coll_handshake *shake, bool dials, const coll_key *pair);

/* Continues the handshake without blocking.  `seals`: the session's frames are sealed.  When the handshake is done,
 * *out is set and belongs to the caller; no byte behind the handshake has been read. */
coll_shake coll_handshake_go_on(coll_handshake *shake, int fd, bool seals, coll_session *out);

/* Sends COLL_FRAME_DENIED, the only answer to a peer that has not proven that it belongs to the job. */
void coll_door_deny(int fd);

/* ---- local sockets ---- */

/* Does the process at the other end of a local socket belong to this user or to root?  *pid: its number in this
 * namespace. */
bool coll_door_same_user(int fd, pid_t *pid);

#endif
