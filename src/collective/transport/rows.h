/* collective/transport/rows.h -- the transports between processes, the one to be preferred first: X(NAME, name).
 *
 * A row's table is coll_NAME_transport (transport.h), and its number goes over the wire, so new rows come last. */
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
