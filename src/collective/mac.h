/* collective/mac.h -- codes of 8 bytes that authenticate short texts without encrypting them, at a cost of little
 * more than a cache miss.
 *
 * The code of message `number` of a lane is  SipHash-2-4(k, lane, number) + P(r)  modulo 2^64, where k and r are
 * keys and P is the polynomial over the integers modulo 2^61 - 1 whose coefficients are the text's length and its
 * 32-bit words (Wegman and Carter, 1981; Bernstein, 2005: each attempt of a forger succeeds with a probability of at
 * most 2^-51).  This bound holds if each (lane, number) is used for one text, and if a receiver takes no more
 * messages after one wrong code. */
#ifndef WEFT_COLLECTIVE_MAC_H
#define WEFT_COLLECTIVE_MAC_H

#include "collective/seal.h"

enum { COLL_MAC_MOST_BYTES = 1088, COLL_MAC_WORDS = COLL_MAC_MOST_BYTES / 4 };

/* The keys of one direction of a connection. */
typedef struct coll_mac {
  uint64_t k[2];
  uint64_t powers[1 + COLL_MAC_WORDS]; /* r, r^2, ... */
} coll_mac;

/* Derives k, r and the powers of r from `key`. */
void coll_mac_init(coll_mac *mac, const coll_key *key);

/* A text in two parts, each a multiple of four bytes long, COLL_MAC_MOST_BYTES in all. */
typedef struct coll_mac_text {
  const void *first, *second;
  size_t first_bytes, second_bytes;
} coll_mac_text;

/* The code of message `number` of `lane`. */
uint64_t coll_mac_code(const coll_mac *mac, uint32_t lane, uint64_t number, coll_mac_text text);

#endif
