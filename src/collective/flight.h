/* collective/flight.h -- the flight recorder: a ring of the last operations of each rank, in memory or in a file. */
#ifndef WEFT_COLLECTIVE_FLIGHT_H
#define WEFT_COLLECTIVE_FLIGHT_H

#include "collective/internal.h"

#define COLL_FLIGHT_MAGIC UINT64_C(0x32544c4654464557) /* "WEFTFLT2" */

/* What a recorder file begins with; `capacity` entries follow.  To compare times of several processes, add
 * realtime_offset_ns (realtime minus monotonic) to each. */
typedef struct coll_flight_header {
  uint64_t magic;
  uint32_t entry_bytes, capacity;
  uint64_t group_id, incarnation;
  int64_t realtime_offset_ns, device_id;
  int32_t rank, size, pid;
  /* 1 + the rank whose death ended the communicator, as this rank learnt; 0: no death did */
  int32_t lost;
  char host[64], name[112];
  int64_t failed_ns, closed_ns; /* when the communicator failed, and when this rank closed the recorder; 0: not yet */
} coll_flight_header;

/* ---- writing ---- */

/* Gives the rank its ring: in a file if WEFT_COLLECTIVE_FLIGHT_DIR is set and the file can be made, else in memory.
 * Errors: RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coll_flight_open(weft_comm *comm);
void coll_flight_close(weft_comm *comm);
void coll_flight_failed_locked(const coll_group *g) WEFT_REQUIRES(g->mu); /* the group's error has been set */
void coll_flight_posted(coll_op *op); /* called by the thread that posts the operation */
void coll_flight_started(const coll_op *op);
void coll_flight_ended(const coll_op *op, weft_code code, int64_t now_ns);

/* ---- reading ---- */

/* The entries of a rank, oldest first: their number, and a copy of each. */
uint64_t coll_flight_count(const weft_comm *comm);
coll_flight_entry coll_flight_at(const weft_comm *comm, uint64_t i);

bool coll_flight_is_p2p(const coll_flight_entry *e); /* a send or a receive */
const char *coll_flight_state(
  const coll_flight_entry *e); /* "queued", "running", "done" or the name of its error's code */
void coll_flight_describe(const coll_flight_entry *e, char *out,
                          size_t size); /* writes, for example: all-reduce f32[10] sum "all-reduce.3" at train.py:4 */

/* ---- flight_join.c ---- */

/* Joins the recorder files of several ranks and writes to `out`, for each communicator, which rank diverged first.
 * Errors: NOT_FOUND, INVALID_ARGUMENT (not a recorder file), RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *coll_flight_join(const char *const *paths, int count, FILE *out);

#endif
