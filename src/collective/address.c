/* collective/address.c -- whether an address that a peer gave can be used. */
#include <config.h>

#include "collective/address.h"

#include <string.h>

weft_status *coll_address_check(const coll_address *a, size_t bytes, int size)
{
  if (bytes != sizeof *a || a->magic != COLL_ADDRESS_MAGIC)
    return WEFT_ERR(FAILED_PRECONDITION,
                    "a rank runs another version of Weft: its address has %zu bytes and mark %08x, "
                    "expected %zu and %08x",
                    bytes, bytes >= 4 ? a->magic : 0, sizeof *a, COLL_ADDRESS_MAGIC);
  if (a->size != size)
    return WEFT_ERR(FAILED_PRECONDITION, "a rank says the communicator has %d ranks, not %d", a->size, size);
  if (a->fabric_bytes > sizeof a->fabric_name || !memchr(a->host, 0, sizeof a->host) ||
      !memchr(a->local_name, 0, sizeof a->local_name) || !memchr(a->inet, 0, sizeof a->inet) ||
      !memchr(a->provider, 0, sizeof a->provider))
    return WEFT_ERR(FAILED_PRECONDITION, "a rank's address is damaged");
  return NULL;
}
