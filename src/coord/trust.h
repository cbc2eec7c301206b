/* coord/trust.h -- who is at the other end of a connection to the service.
 *
 * A call is let in by the job's secret. A client that carries none (jaxlib's cannot carry one) is let in by what its
 * connection shows: a certificate, the user id of a process on this machine, or the address of one of the job's
 * hosts. Thread-compatible; the only state is what has been logged. */
#ifndef WEFT_COORD_TRUST_H
#define WEFT_COORD_TRUST_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include <weft/coord.h>

/* What a connection was let in by, once one of its calls was. */
typedef enum coord_trust {
  COORD_TRUST_NONE, /* no call was let in yet: the connection is a stranger */
  COORD_TRUST_SECRET,
  COORD_TRUST_CERTIFICATE,
  COORD_TRUST_UID,
  COORD_TRUST_HOST,
  COORD_TRUST_ANYONE, /* no caller is refused */
  COORD_TRUST_COUNT
} coord_trust;

typedef struct coord_trust_policy {
  bool by_certificate; /* TLS asks for one, and there is no secret */
  bool by_anyone;
  struct in6_addr *hosts; /* [host_count] sorted; IPv4 as mapped addresses */
  size_t host_count;
  bool is_told[COORD_TRUST_COUNT]; /* the log has named this way in */
} coord_trust_policy;

/* Resolves the names of the hosts, and logs the names that have no address. `has_secret`: calls can carry one. */
WEFT_NODISCARD weft_status *coord_trust_init(coord_trust_policy *policy, const weft_coord_service_options *options,
                                             bool has_secret);
void coord_trust_fini(coord_trust_policy *policy);

/* What lets in a call without a secret over the connected TCP socket `fd`. */
coord_trust coord_trust_of(coord_trust_policy *policy, int fd);

/* NULL if a service that listens at the address of `fd` can tell its clients from others, or if the options say that
 * it need not. Errors: FAILED_PRECONDITION, which says how it can. */
WEFT_NODISCARD weft_status *coord_trust_check_listener(const weft_coord_service_options *options, bool has_secret,
                                                       int fd);

/* The user who opened the end `peer` of the TCP connection between `peer` and `here`, if `peer` is on this machine.
 * False: it is not, or that end has been closed, or the kernel does not say. */
bool coord_peer_uid(const struct sockaddr_storage *peer, const struct sockaddr_storage *here, uid_t *out_uid);

#endif
