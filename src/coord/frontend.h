/* coord/frontend.h -- between HTTP/2 and the state machine: who may call, decoding, encoding, replies that many share.
 * It has no sockets; the server and the fuzzer use it. Thread-compatible. */
#ifndef WEFT_COORD_FRONTEND_H
#define WEFT_COORD_FRONTEND_H

#include <weft/coord.h>

#include "base/arena.h"
#include "coord/service.h"
#include "coord/trust.h"
#include "coord/wire/h2.h"

typedef struct coord_frontend {
  weft_coord_service_options options;
  bool has_tls, asks_certificates;
  char *secret; /* NULL: none is asked for */
  coord_budget budget;
  coord_h2_limits h2_limits;
  coord_service *core;
  weft_arena request;  /* for the request that is being handled, decoded */
  weft_arena reply;    /* for the reply that is being encoded */
  int64_t connections; /* for status reports, like the next two */
  int64_t trusted[COORD_TRUST_COUNT]; /* connections by what let them in; NONE is not counted */
  int64_t refused_calls;
  const coord_trust_policy *policy; /* NULL: everyone is let in if no secret is set */
  /* The last reply that many callers share, encoded. */
  uint64_t share;
  coord_dialect share_dialect;
  coord_blob *shared;
} coord_frontend;

/* One connection, as the frontend sees it; the context of its coord_h2. */
typedef struct coord_peer {
  coord_frontend *frontend;
  void (*touched)(struct coord_peer *peer); /* there is something to send */
  /* What lets in a call without a secret; asked once for each connection. NULL: everyone is let in if no secret is
   * set, and nobody otherwise. */
  coord_trust (*identify)(struct coord_peer *peer);
  /* Called once its first call has been let in; may be NULL. */
  void (*trusted)(struct coord_peer *peer);
  coord_caller caller;
  coord_trust trust;   /* what let the connection in; the secret outweighs the others */
  bool is_identified;  /* `identify` has been asked, */
  coord_trust without_secret; /* and this was its answer */
} coord_peer;

/* The connection has ended, and its calls with it: takes it out of the counts, and its tasks no longer speak through
 * it. */
void coord_peer_gone(coord_peer *peer);

extern const coord_h2_handler coord_frontend_handler;

/* Checks the options, reads the secret, makes the service. incarnation 0: draws a random one. If this fails, the
 * frontend is empty. */
WEFT_NODISCARD weft_status *coord_frontend_init(coord_frontend *frontend, const weft_coord_service_options *options,
                                                uint64_t incarnation);
void coord_frontend_fini(coord_frontend *frontend); /* all its connections have been closed */

#endif
