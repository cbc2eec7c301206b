/* base/strangers.h -- the connections of a listener that have not authenticated yet ("strangers"), in a bounded table.
 *
 * The table decides; its owner accepts, authenticates and closes connections.  A new connection always gets a place:
 * where there are too many, the oldest one is closed.  A member of the job authenticates soon after it connects, so the
 * oldest connection is the least likely to be a member's.  Not thread-safe: a table belongs to its listener's
 * thread. */
#ifndef WEFT_BASE_STRANGERS_H
#define WEFT_BASE_STRANGERS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_KNOWN_ADDRESSES = 64 };

/* Embedded in the owner's record of a connection. */
typedef struct weft_stranger {
  struct weft_stranger *prev, *next; /* the table's list, oldest first */
  struct in6_addr from;
  bool has_address; /* false: a local socket, which the limit for one address does not count */
  int64_t since_ns;
} weft_stranger;

/* The owner sets the limits; all else begins as zero. */
typedef struct weft_strangers {
  int most;
  int most_of_an_address; /* does not bind addresses that members have come from */
  int64_t most_ns;        /* how long a connection may take to authenticate */
  weft_stranger *oldest;
  int count;
  struct in6_addr known[WEFT_KNOWN_ADDRESSES];
  size_t known_count;
} weft_strangers;

/* The connection to be closed before one from `from` is added; NULL: there is room.  `from` NULL: a local socket. */
weft_stranger *weft_strangers_in_the_way(const weft_strangers *table, const struct in6_addr *from);

/* Adds `stranger`, which the table borrows until it is removed.  `now_ns` does not go back from call to call. */
void weft_strangers_add(weft_strangers *table, weft_stranger *stranger, const struct in6_addr *from, int64_t now_ns);
void weft_strangers_remove(weft_strangers *table, weft_stranger *stranger);

/* Remembers that members connect from `from`.  The last WEFT_KNOWN_ADDRESSES addresses are kept. */
void weft_strangers_know(weft_strangers *table, const struct in6_addr *from);

/* A connection whose time is over; NULL: there is none. */
weft_stranger *weft_strangers_overdue(const weft_strangers *table, int64_t now_ns);
/* From when on weft_strangers_overdue() has an answer; INT64_MAX: the table is empty. */
int64_t weft_strangers_timer_ns(const weft_strangers *table);

#endif
