/* weft/coord.h -- how the processes of a job find each other, agree, and learn of each other's end.
 *
 * One process of a job runs a *service*; every process, that one included, joins it through an *agent*.  The protocol
 * is the one of XLA's coordination service: jaxlib's clients join our service, our agents join jaxlib's.
 *
 * Errors are weft_status values with canonical codes (base/status.h); NULL is success.  Every wait has a deadline.
 * Times in options are nanoseconds; the environment variables take units ("30s", "5m"). */
#ifndef WEFT_COORD_H
#define WEFT_COORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/kv.h"
#include "base/options.h"
#include "base/status.h"

/* ---- the service ---- */

typedef struct weft_coord_service weft_coord_service; /* opaque; thread-safe; one thread of its own */

/* Fill with weft_coord_service_options_load, then change what differs.  Strings are borrowed until start returns. */
typedef struct weft_coord_service_options {
  const char *address;  /* "host:port", "[v6]:port"; port 0 picks a free one; loopback unless told otherwise */
  int64_t task_count;   /* processes of the job: 0 ... task_count - 1 */
  int64_t heartbeat_timeout_ns;
  int64_t register_timeout_ns;
  int64_t shutdown_timeout_ns; /* 0: tasks leave one by one, with no barrier */
  bool recoverable;            /* tasks may die and return; their failures are not spread */
  const char *secret_file;     /* "": anyone may call */
  const char *tls_cert_file, *tls_key_file; /* "": cleartext */
  const char *tls_ca_file;     /* "": clients need no certificate */
  int64_t max_key_bytes, max_value_bytes;
  int64_t max_streams;         /* of one connection */
  int64_t max_connections;
  int64_t max_total_bytes;     /* keys, values, requests, waiters, replies on the way: all together */
} weft_coord_service_options;

extern const weft_option_table weft_coord_service_option_table;

/* Defaults and WEFT_COORD_* variables.  Errors: INVALID_ARGUMENT, naming the variable. */
WEFT_NODISCARD weft_status *weft_coord_service_options_load(weft_coord_service_options *out_options);

/* Listens and serves on a thread of its own.
 * Errors: INVALID_ARGUMENT  address, option or file that makes no sense
 *         UNAVAILABLE       the address cannot be had; somebody may be listening there */
WEFT_NODISCARD weft_status *weft_coord_service_start(const weft_coord_service_options *options,
                                                     weft_coord_service **out_service);

const char *weft_coord_service_address(const weft_coord_service *service); /* "host:port" to connect to; borrowed */

/* Ends all that is waiting, closes the connections and frees.  NULL is fine. */
void weft_coord_service_stop(weft_coord_service *service);
WEFT_DEFINE_AUTO(weft_coord_service, weft_coord_service_stop)

#endif
