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
 * Both then have the session's secret: HMAC(pair key, "session", all of these, what the two shares agree on). */
#ifndef WEFT_COLLECTIVE_DOOR_H
#define WEFT_COLLECTIVE_DOOR_H

#include <sys/types.h>

#include "collective/seal.h"

/* ---- keys of the process ---- */

/* This process's door key.  A child has another than its parent.  Errors: INVALID_ARGUMENT, the job's secret cannot
 * be read. */
WEFT_NODISCARD weft_status *coll_door_own(coll_key *out);

/* Of connections to the process that has this door key. */
WEFT_NODISCARD weft_status *coll_door_pair_key(const coll_key *door, coll_key *out);

/* What that process calls the communicator of this public number: a process that lacks the pair key cannot say it. */
WEFT_NODISCARD weft_status *coll_door_group_id(const coll_key *door, uint64_t public_id, uint64_t *out);

/* ---- a connection that both sides have proven ---- */

typedef struct coll_session {
  bool dialled;        /* by this side */
  coll_key secret;
  coll_seal *out, *in; /* of its frames; NULL on a local socket, where the kernel keeps others out */
  uint64_t sent, taken;
  bool cut;            /* a frame went out in part: nothing may follow it */
} coll_session;

void coll_session_fini(coll_session *session);

/* A key of the session for one purpose and direction; the peer has the same for the other direction. */
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
  bool dials, said; /* said: the first message of this side */
  size_t got;       /* of the message that is coming in */
  coll_knock knock;
  coll_challenge challenge;
  coll_proof proof;
} coll_handshake;

typedef enum coll_shake {
  COLL_SHAKE_WAITS,  /* for the peer: call again when it has sent something */
  COLL_SHAKE_DONE,
  COLL_SHAKE_DENIED, /* the peer did not prove itself, or says that we did not */
  COLL_SHAKE_ENDED,  /* the connection closed, or the system has no memory */
} coll_shake;

void coll_handshake_init(coll_handshake *shake, bool dials, const coll_key *pair);

/* Goes on without blocking; `seals`: the session's frames are sealed.  *out is set when the handshake is done, the
 * caller's then; nothing behind the handshake has been read. */
coll_shake coll_handshake_go_on(coll_handshake *shake, int fd, bool seals, coll_session *out);

/* All that is said to a stranger. */
void coll_door_deny(int fd);

/* ---- local sockets ---- */

/* Is the process at the other end of a local socket of this user, or root's?  *pid: its number here. */
bool coll_door_same_user(int fd, pid_t *pid);

#endif
