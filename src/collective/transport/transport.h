/* collective/transport/transport.h -- a transport: what makes streams between two ranks of different processes. */
#ifndef WEFT_COLLECTIVE_TRANSPORT_TRANSPORT_H
#define WEFT_COLLECTIVE_TRANSPORT_TRANSPORT_H

#include "collective/address.h"
#include "collective/transport/stream.h"

/* The two ends of a stream that is to be opened. */
typedef struct coll_transport_ends {
  coll_group *group;
  const coll_session *session;  /* of the control connection */
  const coll_address *address;  /* of the peer, from its greeting */
  int mine, theirs;             /* ranks */
  pid_t pid;                    /* of the peer's process, as the kernel says; set if `is_local` */
  int fd;                       /* the descriptor that came with the greeting, borrowed; -1: none */
} coll_transport_ends;

/* All functions are called under the group's lock. */
typedef struct coll_transport_ops {
  const char *name;
  bool is_local; /* only between processes of one user on one node: the control connection is a local socket */

  /* True if a stream can be opened between the two addresses. */
  bool (*reaches)(const coll_address *from, const coll_address *to);

  /* Optional: prepares a group for its first stream; fills the fields of `own` that the peer must know. */
  weft_status *(*open)(coll_group *g, coll_address *own);

  /* Optional: makes the stream of the rank that connects before it sends its greeting.  The greeting takes *out_fd,
   * owned by the caller, to the peer. */
  weft_status *(*offer)(const coll_transport_ends *ends, coll_stream **out_stream, int *out_fd);

  /* Makes the stream of the rank that is connected to; where there is no `offer`, also that of the rank that
   * connects. */
  weft_status *(*stream)(const coll_transport_ends *ends, coll_stream **out_stream);

  /* The rest is optional.  These functions are called only for groups whose state of this transport,
   * coll_group.transports[the row], is set. */

  /* Moves what the transport has to move for all of the group's streams.  True if anything completed. */
  bool (*poll)(coll_group *g);

  /* Called before sleeping.  True: nothing has completed, and the progress thread will be woken when something does. */
  bool (*arm)(coll_group *g);

  /* A descriptor that the transport watches has become readable. */
  void (*woken)(coll_group *g);

  /* The longest time that the progress thread may sleep before it must poll, where the transport's descriptor is not
   * reliable; 0: until it is woken. */
  int64_t (*nap_ns)(const coll_group *g, int64_t now_ns);

  /* True if committed data was dropped before it was sent, because a loan had to be revoked. */
  bool (*lost_some)(const coll_group *g);

  /* Closes what `open` opened and frees the streams. */
  void (*close)(coll_group *g);
} coll_transport_ops;

#define COLL_TRANSPORT_TABLE(name, text) extern const coll_transport_ops coll_##text##_transport;
COLL_TRANSPORTS(COLL_TRANSPORT_TABLE)
#undef COLL_TRANSPORT_TABLE

/* NULL: no transport has that number, which may come from a peer. */
const coll_transport_ops *coll_transport_of(int32_t number);

/* The first transport that reaches; if none does, the last one, which reports the reason. */
coll_transport coll_transport_between(const coll_address *from, const coll_address *to);

/* True if a transport keeps a state for the group. */
static inline bool coll_transports_open(const coll_group *g)
{
  bool any = false;
  for (int t = COLL_TRANSPORT_NONE + 1; t < COLL_TRANSPORT_COUNT; t++) any |= g->transports[t] != NULL;
  return any;
}

/* Each calls the function of that name of every transport that the group uses. */
bool coll_transports_poll(coll_group *g);
bool coll_transports_arm(coll_group *g);
void coll_transports_woken(coll_group *g);
int64_t coll_transports_nap_ns(const coll_group *g, int64_t now_ns); /* the shortest */
bool coll_transports_lost_some(const coll_group *g);
void coll_transports_close(coll_group *g);

#endif
