/* collective/flight_entry.h -- what the flight recorder keeps of one operation. */
#ifndef WEFT_COLLECTIVE_FLIGHT_ENTRY_H
#define WEFT_COLLECTIVE_FLIGHT_ENTRY_H

#include <stdint.h>

/* An entry of the recorder, of fixed size for files.  Times are of CLOCK_MONOTONIC; 0: not yet. */
typedef struct coll_flight_entry {
  uint64_t seq, bytes, count;
  int64_t posted_ns, started_ns, ended_ns;
  int32_t root, code; /* `code`: the canonical code with which the operation ended */
  uint8_t kind, dtype, reduction, in_use;
  char instruction[48], executable[24], source[32];
} coll_flight_entry;

#endif
