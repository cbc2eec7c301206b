/* collective/transport/transport.h -- a transport: what makes streams between two ranks of different processes. */
#ifndef WEFT_COLLECTIVE_TRANSPORT_TRANSPORT_H
#define WEFT_COLLECTIVE_TRANSPORT_TRANSPORT_H

#include "collective/address.h"
#include "collective/transport/stream.h"

/* The two ends of a stream that is to be opened. */
typedef struct coll_transport_ends {
  coll_group *group;
  const coll_session *session;  /* of the control connection */
  const coll_address *address;  /* of the peer, as its greeting says */
  int mine, theirs;             /* ranks */
  pid_t pid;                    /* of the peer's process, as the kernel says; where `is_local` */
  int fd;                       /* the descriptor that came with the greeting, borrowed; -1: none */
} coll_transport_ends;

/* All functions are called under the group's lock. */
typedef struct coll_transport_ops {
  const char *name;
  bool is_local; /* only between processes of one user on one node: the control connection is a local socket */

  /* Whether a stream can lead from the one address to the other. */
  bool (*reaches)(const coll_address *from, const coll_address *to);

  /* Optional: what a group needs before its first stream; fills the parts of `own` that the peer must know. */
  weft_status *(*open)(coll_group *g, coll_address *own);

  /* Optional: the stream of the rank that connects is made before the greeting, which takes *out_fd to the peer (owned by the caller). */
  weft_status *(*offer)(const coll_transport_ends *ends, coll_stream **out_stream, int *out_fd);

  /* The stream of the other rank, and of both where there is no `offer`. */
  weft_status *(*stream)(const coll_transport_ends *ends, coll_stream **out_stream);

  /* The rest is optional, and is called for groups whose state, coll_group.transports[the row], is set. */

  /* Moves what the transport has to move for all of the group's streams.  True if anything completed. */
  bool (*poll)(coll_group *g);

  /* Before sleeping: true if nothing has completed, and the progress thread will be woken when something does. */
  bool (*arm)(coll_group *g);

  /* A descriptor that the transport watches has become readable. */
  void (*woken)(coll_group *g);

  /* How long the progress thread may sleep until it must poll, because no descriptor can be relied on; 0: until it is woken. */
  int64_t (*nap_ns)(const coll_group *g, int64_t now_ns);

  /* Whether it gave up committed data before that was out, to take back what was lent. */
  bool (*lost_some)(const coll_group *g);

  /* Closes what `open` opened and frees the streams. */
  void (*close)(coll_group *g);
} coll_transport_ops;

#define COLL_TRANSPORT_TABLE(name, text) extern const coll_transport_ops coll_##text##_transport;
COLL_TRANSPORTS(COLL_TRANSPORT_TABLE)
#undef COLL_TRANSPORT_TABLE

/* NULL: there is none of that number, which a peer may have sent. */
const coll_transport_ops *coll_transport_of(int32_t number);

/* The first that reaches. */
coll_transport coll_transport_between(const coll_address *from, const coll_address *to);

/* Whether a transport keeps a state for the group. */
static inline bool coll_transports_open(const coll_group *g)
{
  bool any = false;
  for (int t = COLL_TRANSPORT_NONE + 1; t < COLL_TRANSPORT_COUNT; t++) any |= g->transports[t] != NULL;
  return any;
}

/* The functions of the table, for all transports of a group. */
bool coll_transports_poll(coll_group *g);
bool coll_transports_arm(coll_group *g);
void coll_transports_woken(coll_group *g);
int64_t coll_transports_nap_ns(const coll_group *g, int64_t now_ns); /* the shortest */
bool coll_transports_lost_some(const coll_group *g);
void coll_transports_close(coll_group *g);

#endif
