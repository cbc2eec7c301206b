/* collective/address.h -- how a rank is reached; what ranks exchange when a communicator is made. */
#ifndef WEFT_COLLECTIVE_ADDRESS_H
#define WEFT_COLLECTIVE_ADDRESS_H

#include "collective/door.h"
#include "collective/internal.h"

#define COLL_ADDRESS_MAGIC UINT32_C(0x35414357) /* "WCA5": changes with this struct and with the wire format */

enum { COLL_FABRIC_NAME_BYTES = 96 };

/* Fixed size, no pointers: it travels as it is. */
struct coll_address {
  uint32_t magic;
  int32_t size, pid;         /* of the communicator; of the process */
  uint32_t fabric_bytes;     /* length of fabric_name, 0: none */
  uint64_t incarnation, node; /* `node` is the same for processes that share memory and local sockets */
  int64_t device_id;
  char host[64];
  char local_name[40];       /* name of the abstract unix socket */
  char inet[46];             /* numeric address; "": none */
  uint16_t port;
  char provider[24];         /* libfabric's provider, and its protocol: ranks must have the same */
  uint32_t protocol;
  uint8_t fabric_name[COLL_FABRIC_NAME_BYTES];
  /* the process's door key (door.h): a process that knows it may connect, provided that it has the job's secret if
   * there is one */
  coll_key door;
};

/* This process's address, without rank-specific fields.  Starts the listener. */
WEFT_NODISCARD weft_status *coll_address_own(coll_address *out);

/* Checks an address that a peer sent.  Errors: FAILED_PRECONDITION, naming what is wrong with the address. */
WEFT_NODISCARD weft_status *coll_address_check(const coll_address *address, size_t bytes, int size);

/* Meets the other ranks over spec->kv; fills the group's addresses, incarnations, device ids and topology. */
WEFT_NODISCARD weft_status *coll_bootstrap(coll_group *g, const weft_comm_spec *spec);

/* The same where the address of every rank is known; does not wait.  `addresses` [size] is malloc'd and taken. */
WEFT_NODISCARD weft_status *coll_bootstrap_known(coll_group *g, coll_address *addresses);

#endif
