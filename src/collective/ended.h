/* collective/ended.h -- what a process remembers of communicators that have ended and incarnations that have died. */
#ifndef WEFT_COLLECTIVE_ENDED_H
#define WEFT_COLLECTIVE_ENDED_H

#include <stdbool.h>
#include <stdint.h>

/* Why a communicator ended, for a rank that connects or asks later.  The newest 256 are kept. */
typedef struct coll_ended {
  uint64_t group_id, posted; /* `posted`: collectives, the most of its ranks here */
  char reason[256];
} coll_ended;

/* Adds an entry, or finds one: false if there is none. `reason` is copied, at most 255 bytes. Thread-safe. */
void coll_ended_add(uint64_t group_id, uint64_t posted, const char *reason);
bool coll_ended_find(uint64_t group_id, coll_ended *out);

/* Incarnations whose connection closed without a farewell or a reason, in this process or at a peer that reported it.
 * For a hundred seconds no operation waits for them. */
void coll_dead_add(uint64_t incarnation);
bool coll_dead_has(uint64_t incarnation);

#endif
