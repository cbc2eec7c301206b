/* collective/flight_text.h -- the flight recorder as text: of this process, and of another. */
#ifndef WEFT_COLLECTIVE_FLIGHT_TEXT_H
#define WEFT_COLLECTIVE_FLIGHT_TEXT_H

#include "collective/internal.h"

/* What the process waits for, then of each communicator the last `most` operations of each rank.  malloc'd; NULL
 * without memory. */
char *coll_flight_text(uint64_t most);

/* A screenful of it, for SIGUSR1; the whole goes to a file of WEFT_COLLECTIVE_FLIGHT_DIR. */
void coll_flight_dump(FILE *out);

/* What the rank does or did last, for a report. */
void coll_flight_status_locked(const weft_comm *comm, char *out, size_t size);

/* ---- flight_ask.c ---- */

/* Puts this process's address into the store, under COLL_FLIGHT_KEYS, so that its recorder can be asked for.  A
 * failure is of no account. */
#define COLL_FLIGHT_KEYS "weft/flight"
void coll_flight_publish(weft_kv *kv, uint64_t incarnation);

/* Asks the process behind such a key's value for its recorder's text and writes it to `out`. Errors: INVALID_ARGUMENT
 * (no address), UNAVAILABLE (nobody there), UNAUTHENTICATED (another job's), DEADLINE_EXCEEDED (no answer: stopped,
 * or starved). */
WEFT_NODISCARD weft_status *coll_flight_ask(const void *address, size_t bytes, weft_deadline deadline, FILE *out);

#endif
