/* collective/transport/rows.h -- the transports between processes, the preferred one first: X(NAME, name).
 *
 * The table of a row is coll_NAME_transport, with the name in small letters (transport.h).  The row's number goes
 * over the wire, so new rows come last. */
#ifndef WEFT_COLLECTIVE_TRANSPORT_ROWS_H
#define WEFT_COLLECTIVE_TRANSPORT_ROWS_H

#define COLL_TRANSPORTS(X) \
  X(SHM, shm)              \
  X(FABRIC, fabric)

typedef enum coll_transport {
  COLL_TRANSPORT_NONE,
#define COLL_TRANSPORT_ENUM(name, text) COLL_TRANSPORT_##name,
  COLL_TRANSPORTS(COLL_TRANSPORT_ENUM)
#undef COLL_TRANSPORT_ENUM
  COLL_TRANSPORT_COUNT
} coll_transport;

#endif
