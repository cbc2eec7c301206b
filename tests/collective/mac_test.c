/* tests/collective/mac_test.c -- codes of messages: against OpenSSL's SipHash
 * and a polynomial evaluated word by word. */
#include "test.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>

#include "collective/mac.h"

enum { LANE = 2 };
static const uint64_t number = UINT64_C(0x123456789abcdef);

static coll_key make_key(uint8_t first)
{
  coll_key key;

  for (size_t i = 0; i < sizeof key.bytes; i++) key.bytes[i] = (uint8_t)(first + 37 * i);
  return key;
}

static void fill(uint8_t *text, size_t bytes)
{
  for (size_t i = 0; i < bytes; i++) text[i] = (uint8_t)(251 - 7 * i + (i >> 5));
}

static uint64_t code_of(const coll_mac *mac, const uint8_t *text, size_t first, size_t second)
{
  return coll_mac_code(mac, LANE, number, (coll_mac_text){text, text + first, first, second});
}

static uint64_t openssl_siphash(const uint8_t key[16], uint64_t a, uint64_t b)
{
  uint64_t words[] = {a, b}, out = 0;
  size_t size = sizeof out, got = 0;
  OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size), OSSL_PARAM_construct_end()};
  EVP_MAC *siphash = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
  EVP_MAC_CTX *ctx = EVP_MAC_CTX_new(siphash);

  T_TRUE(EVP_MAC_init(ctx, key, 16, params) == 1 && EVP_MAC_update(ctx, (uint8_t *)words, sizeof words) == 1 &&
         EVP_MAC_final(ctx, (uint8_t *)&out, &got, sizeof out) == 1 && got == sizeof out);
  EVP_MAC_CTX_free(ctx);
  EVP_MAC_free(siphash);
  return out;
}

/* By Horner's rule, in exact arithmetic: the last word has the highest power. */
static uint64_t polynomial(uint64_t r, const uint8_t *text, size_t bytes)
{
  const uint64_t prime = (UINT64_C(1) << 61) - 1;
  unsigned __int128 sum = 0;
  uint32_t word;

  for (size_t i = bytes / 4; i > 0; i--) {
    memcpy(&word, text + 4 * (i - 1), 4);
    sum = (sum + word) * (r % prime) % prime;
  }
  return (uint64_t)((sum + bytes) * (r % prime) % prime);
}

TEST(a_code_is_siphash_plus_the_polynomial)
{
  static const size_t sizes[] = {0, 4, 16, 80, 1024, COLL_MAC_MOST_BYTES};
  uint8_t text[COLL_MAC_MOST_BYTES];
  coll_mac mac;

  for (int highest = 0; highest < 2; highest++) {
    coll_key key = make_key(200);
    if (highest) memset(key.bytes, 0xff, sizeof key.bytes);
    uint64_t r;
    memcpy(&r, key.bytes + 16, sizeof r);
    coll_mac_init(&mac, &key);
    for (size_t i = 0; i < WEFT_COUNT(sizes); i++) {
      fill(text, sizes[i]);
      if (highest) memset(text, 0xff, sizes[i]);
      T_TRUE(code_of(&mac, text, sizes[i], 0) ==
             openssl_siphash(key.bytes, LANE, number) + polynomial(r, text, sizes[i]));
    }
  }
}

TEST(a_text_has_one_code_however_it_is_cut)
{
  uint8_t text[512];
  coll_key key = make_key(1);
  coll_mac mac;

  coll_mac_init(&mac, &key);
  fill(text, sizeof text);
  for (size_t cut = 0; cut <= sizeof text; cut += 4)
    T_TRUE(code_of(&mac, text, cut, sizeof text - cut) == code_of(&mac, text, sizeof text, 0));
}

TEST(each_bit_length_lane_number_and_key_counts)
{
  uint8_t text[COLL_MAC_MOST_BYTES];
  coll_key key = make_key(1), other = make_key(2);
  coll_mac mac, other_mac;

  coll_mac_init(&mac, &key);
  coll_mac_init(&other_mac, &other);
  fill(text, sizeof text);
  uint64_t code = code_of(&mac, text, sizeof text, 0);
  for (size_t bit = 0; bit < 8 * sizeof text; bit++) {
    text[bit / 8] ^= (uint8_t)(1 << bit % 8);
    T_TRUE(code_of(&mac, text, sizeof text, 0) != code);
    text[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  coll_mac_text all = {text, NULL, sizeof text, 0};
  T_TRUE(coll_mac_code(&mac, LANE + 1, number, all) != code);
  T_TRUE(coll_mac_code(&mac, LANE, number + 1, all) != code);
  T_TRUE(coll_mac_code(&other_mac, LANE, number, all) != code);
  memset(text, 0, sizeof text);
  for (size_t bytes = 4; bytes <= sizeof text; bytes += 4)
    T_TRUE(code_of(&mac, text, bytes, 0) != code_of(&mac, text, bytes - 4, 0));
}

TEST_MAIN(UNIT(a_code_is_siphash_plus_the_polynomial), UNIT(a_text_has_one_code_however_it_is_cut), UNIT(each_bit_length_lane_number_and_key_counts))
