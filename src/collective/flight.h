/* collective/flight.h -- the flight recorder: a ring of the last operations of each rank, in memory or in a file. */
#ifndef WEFT_COLLECTIVE_FLIGHT_H
#define WEFT_COLLECTIVE_FLIGHT_H

#include "collective/internal.h"

#define COLL_FLIGHT_MAGIC UINT64_C(0x31544c4654464557) /* "WEFTFLT1" */

/* What a recorder file begins with; `capacity` entries follow.  Times are made comparable between processes by
 * adding realtime_offset_ns (realtime minus monotonic). */
typedef struct coll_flight_header {
  uint64_t magic;
  uint32_t entry_bytes, capacity;
  uint64_t group_id, incarnation;
  int64_t realtime_offset_ns, device_id;
  int32_t rank, size, pid;
  int32_t lost;                 /* 1 + the rank whose death ended the communicator, as this rank learnt; 0: none did */
  char host[64], name[112];
  int64_t failed_ns, closed_ns; /* when the communicator failed, and when this rank was done with it; 0: not */
} coll_flight_header;

/* Joins the recorders of all ranks and writes who diverged first to `out`, for each communicator by itself.
 * Errors: NOT_FOUND, INVALID_ARGUMENT (not a recorder file). */
WEFT_NODISCARD weft_status *coll_flight_join(const char *const *paths, int count, FILE *out);

/* The recorder's text: what the process waits for, then of each communicator the last `most` operations of each rank.  malloc'd; NULL
 * without memory. */
char *coll_flight_text(uint64_t most);

/* A screenful of it, for who asks with SIGUSR1; the whole goes to a file of WEFT_COLLECTIVE_FLIGHT_DIR. */
void coll_flight_dump(FILE *out);

/* Puts this process's address into the store, under COLL_FLIGHT_KEYS, so that its recorder can be asked for.  A failure is
 * of no account. */
#define COLL_FLIGHT_KEYS "weft/flight"
void coll_flight_publish(weft_kv *kv, uint64_t incarnation);

/* Asks the process behind such a key's value for its recorder's text and writes it to `out`.
 * Errors: INVALID_ARGUMENT (no address), UNAVAILABLE (nobody there), UNAUTHENTICATED (another job's), DEADLINE_EXCEEDED (no answer: stopped, or starved). */
WEFT_NODISCARD weft_status *coll_flight_ask(const void *address, size_t bytes, weft_deadline deadline, FILE *out);

#endif
