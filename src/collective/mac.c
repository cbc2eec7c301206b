/* collective/mac.c -- a polynomial modulo 2^61 - 1, encrypted by adding SipHash (mac.h). */
#include <config.h>

#include "collective/mac.h"

#include <assert.h>
#include <string.h>

#define PRIME ((UINT64_C(1) << 61) - 1)

/* x modulo PRIME, for x < 2^122. */
static uint64_t modulo_prime(unsigned __int128 x)
{
  uint64_t sum = ((uint64_t)x & PRIME) + (uint64_t)(x >> 61);

  sum = (sum & PRIME) + (sum >> 61);
  return sum >= PRIME ? sum - PRIME : sum;
}

void coll_mac_init(coll_mac *mac, const coll_key *key)
{
  uint64_t r;

  memcpy(mac->k, key->bytes, sizeof mac->k);
  memcpy(&r, key->bytes + sizeof mac->k, sizeof r);
  mac->powers[0] = modulo_prime(r);
  for (int i = 1; i <= COLL_MAC_WORDS; i++)
    mac->powers[i] = modulo_prime((unsigned __int128)mac->powers[i - 1] * mac->powers[0]);
}

static uint64_t turn(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static void sip_rounds(uint64_t v[4], int rounds)
{
  for (int i = 0; i < rounds; i++) {
    v[0] += v[1], v[1] = turn(v[1], 13) ^ v[0], v[0] = turn(v[0], 32);
    v[2] += v[3], v[3] = turn(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = turn(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = turn(v[1], 17) ^ v[2], v[2] = turn(v[2], 32);
  }
}

/* SipHash-2-4 of two words (Aumasson and Bernstein, 2012). */
static uint64_t sip(const uint64_t k[2], uint64_t a, uint64_t b)
{
  const uint64_t words[] = {a, b, UINT64_C(16) << 56 /* bytes */};
  uint64_t v[] = {k[0] ^ 0x736f6d6570736575, k[1] ^ 0x646f72616e646f6d, k[0] ^ 0x6c7967656e657261, k[1] ^ 0x7465646279746573};

  for (int i = 0; i < 3; i++) {
    v[3] ^= words[i];
    sip_rounds(v, 2);
    v[0] ^= words[i];
  }
  v[2] ^= 0xff;
  sip_rounds(v, 4);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The sum of the products of text and powers: each is below 2^(32 + 61), and there are far fewer than 2^29. */
static unsigned __int128 evaluate(const uint64_t *powers, const char *text, size_t bytes)
{
  unsigned __int128 sum = 0;
  uint32_t word;

  for (size_t i = 0; i < bytes / sizeof word; i++) {
    memcpy(&word, text + i * sizeof word, sizeof word);
    sum += (unsigned __int128)powers[i] * word;
  }
  return sum;
}

uint64_t coll_mac_code(const coll_mac *mac, uint32_t lane, uint64_t number, coll_mac_text text)
{
  size_t bytes = text.first_bytes + text.second_bytes;
  const uint64_t *powers = mac->powers + 1;

  assert(text.first_bytes % 4 == 0 && text.second_bytes % 4 == 0 && bytes <= COLL_MAC_MOST_BYTES);
  unsigned __int128 sum = (unsigned __int128)mac->powers[0] * bytes + evaluate(powers, text.first, text.first_bytes) +
                          evaluate(powers + text.first_bytes / 4, text.second, text.second_bytes);
  return sip(mac->k, lane, number) + modulo_prime(sum);
}
