/* collective/seal.h -- keys, what is derived from them, and messages that are sealed with them.  OpenSSL's home here.
 *
 * A sealed message is encrypted and authenticated by AES-256-GCM.  Its nonce is the lane that it travels in and its
 * number there, which both sides count and nobody sends: a message that was forged, repeated, reordered, cut or taken
 * from another connection does not open. */
#ifndef WEFT_COLLECTIVE_SEAL_H
#define WEFT_COLLECTIVE_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { COLL_KEY_BYTES = 32, COLL_TAG_BYTES = 16, COLL_SHORT_TAG_BYTES = 8 };

typedef struct coll_key {
  uint8_t bytes[COLL_KEY_BYTES];
} coll_key;

typedef struct coll_part_of_key {
  const void *at;
  size_t bytes;
} coll_part_of_key;

/* *out = HMAC-SHA256(key, label, 0, parts...).  Different labels give independent keys.  False: OpenSSL has no
 * memory. */
bool coll_key_derive(const coll_key *key, const char *label, const coll_part_of_key *parts, int count, coll_key *out);

/* Takes a time that does not depend on the contents. */
bool coll_key_equal(const coll_key *a, const coll_key *b);

void coll_key_wipe(coll_key *key);

/* Fills `out` with random bytes of the system. Errors: UNAVAILABLE. */
WEFT_NODISCARD weft_status *coll_random(void *out, size_t bytes);

/* A cipher with the key of one direction of a connection.  Not thread-safe. */
typedef struct coll_seal coll_seal;

WEFT_NODISCARD weft_status *coll_seal_new(const coll_key *key, bool closes,
                                          coll_seal **out_seal); /* `closes`: true for the sender */
void coll_seal_free(coll_seal *seal);                            /* NULL is fine */

/* One message, and its place among the messages of its direction. */
typedef struct coll_sealed {
  uint32_t lane;
  uint64_t number;   /* a pair (lane, number) is used once */
  const void *head;  /* authenticated, not encrypted */
  size_t head_bytes;
  void *body;        /* authenticated, and encrypted in place */
  size_t body_bytes;
  /* the tag has COLL_SHORT_TAG_BYTES: only for a user that ends the connection at the first message that does not
   * open */
  bool short_tag;
} coll_sealed;

/* Encrypts the body and writes the tag.  False: OpenSSL has no memory. */
bool coll_seal_close(coll_seal *seal, const coll_sealed *message, void *tag);

/* Checks the tag and decrypts the body.  False: this is not the message of that number, or it was changed; the
 * contents of the body are then undefined. */
bool coll_seal_open(coll_seal *seal, const coll_sealed *message, const void *tag);

#endif
