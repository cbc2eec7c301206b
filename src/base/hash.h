/* base/hash.h -- hashes of words and bytes, the same in all processes. */
#ifndef WEFT_BASE_HASH_H
#define WEFT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t weft_mix(uint64_t hash, uint64_t value)
{
  hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 29;
}

static inline uint64_t weft_hash_bytes(uint64_t hash, const void *data, size_t size)
{
  const char *at = data;

  for (; size >= 8; at += 8, size -= 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    hash = weft_mix(hash, word);
  }
  if (size) {
    uint64_t word = 0;
    memcpy(&word, at, size);
    hash = weft_mix(hash, word ^ size << 56);
  }
  return hash;
}

#endif
