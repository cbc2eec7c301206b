/* collective/flight_text.h -- the flight recorder as text: of this process, and of another. */
#ifndef WEFT_COLLECTIVE_FLIGHT_TEXT_H
#define WEFT_COLLECTIVE_FLIGHT_TEXT_H

#include "collective/internal.h"

/* Writes what the process waits for, then the last `most` operations of each rank of each communicator.  malloc'd;
 * NULL without memory. */
char *coll_flight_text(uint64_t most);

/* Writes a screenful of the recorder's text, for SIGUSR1; the whole text goes to a file in
 * WEFT_COLLECTIVE_FLIGHT_DIR. */
void coll_flight_dump(FILE *out);

/* Writes what the rank does, or did last, for a report. */
void coll_flight_status_locked(const weft_comm *comm, char *out, size_t size) WEFT_REQUIRES_ASSERTED(comm->group->mu);

/* ---- flight_ask.c ---- */

/* Puts this process's address into the store, under COLL_FLIGHT_KEYS, so that other processes can ask for its
 * recorder's text.  Failures are ignored. */
#define COLL_FLIGHT_KEYS "weft/flight"
void coll_flight_publish(weft_kv *kv, uint64_t incarnation);

/* Asks the process whose address is the value of such a key for its recorder's text, and writes it to `out`.
 * Errors: INVALID_ARGUMENT (no address), UNAVAILABLE (no process answers there), UNAUTHENTICATED (it belongs to
 * another job), DEADLINE_EXCEEDED (no answer: the process is stopped or starved). */
WEFT_NODISCARD weft_status *coll_flight_ask(const void *address, size_t bytes, weft_deadline deadline, FILE *out);

#endif
