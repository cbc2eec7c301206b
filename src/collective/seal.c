/* collective/seal.c -- HMAC-SHA256 and AES-256-GCM. */
#include <config.h>

#include "collective/seal.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { MOST_DERIVED_FROM = 512 };

bool coll_key_derive(const coll_key *key, const char *label, const coll_part_of_key *parts, int count, coll_key *out)
{
  uint8_t text[MOST_DERIVED_FROM];
  size_t bytes = strlen(label) + 1;
  unsigned length = 0;

  memcpy(text, label, bytes);
  for (int i = 0; i < count; i++) {
    assert(bytes + parts[i].bytes <= sizeof text);
    memcpy(text + bytes, parts[i].at, parts[i].bytes);
    bytes += parts[i].bytes;
  }
  bool ok = HMAC(EVP_sha256(), key->bytes, sizeof key->bytes, text, bytes, out->bytes, &length) &&
            length == sizeof out->bytes;
  OPENSSL_cleanse(text, bytes);
  return ok;
}

bool coll_key_equal(const coll_key *a, const coll_key *b) { return CRYPTO_memcmp(a, b, sizeof *a) == 0; }

void coll_key_wipe(coll_key *key) { OPENSSL_cleanse(key, sizeof *key); }

weft_status *coll_random(void *out, size_t bytes)
{
  for (size_t got = 0; got < bytes;) {
    ssize_t n = getrandom((char *)out + got, bytes - got, 0);
    if (n < 0 && errno != EINTR) return WEFT_ERR(UNAVAILABLE, "the system has no random numbers: %s", strerror(errno));
    got += n > 0 ? (size_t)n : 0;
  }
  return NULL;
}

/* ---- sealing ---- */

struct coll_seal {
  EVP_CIPHER_CTX *cipher; /* the key is set once; a message sets only the nonce */
};

weft_status *coll_seal_new(const coll_key *key, bool closes, coll_seal **out_seal)
{
  coll_seal *s = calloc(1, sizeof *s);

  *out_seal = NULL;
  WEFT_TRY_ALLOC(s);
  s->cipher = EVP_CIPHER_CTX_new();
  if (!s->cipher || EVP_CipherInit_ex(s->cipher, EVP_aes_256_gcm(), NULL, key->bytes, NULL, closes) != 1) {
    coll_seal_free(s);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "OpenSSL has no AES-256-GCM, or no memory");
  }
  *out_seal = s;
  return NULL;
}

void coll_seal_free(coll_seal *s)
{
  if (s) EVP_CIPHER_CTX_free(s->cipher);
  free(s);
}

/* Authenticates the head, and encrypts or decrypts the body, depending on how the seal was made. */
static bool pass(coll_seal *s, const coll_sealed *m)
{
  uint8_t nonce[sizeof m->lane + sizeof m->number];
  int n;

  memcpy(nonce, &m->lane, sizeof m->lane);
  memcpy(nonce + sizeof m->lane, &m->number, sizeof m->number);
  return m->head_bytes <= INT_MAX && m->body_bytes <= INT_MAX &&
         EVP_CipherInit_ex(s->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
         (m->head_bytes == 0 || EVP_CipherUpdate(s->cipher, NULL, &n, m->head, (int)m->head_bytes) == 1) &&
         (m->body_bytes == 0 || EVP_CipherUpdate(s->cipher, m->body, &n, m->body, (int)m->body_bytes) == 1);
}

static int tag_bytes(const coll_sealed *m) { return m->short_tag ? COLL_SHORT_TAG_BYTES : COLL_TAG_BYTES; }

bool coll_seal_close(coll_seal *s, const coll_sealed *m, void *tag)
{
  uint8_t rest[16];
  int n;

  return pass(s, m) && EVP_CipherFinal_ex(s->cipher, rest, &n) == 1 &&
         EVP_CIPHER_CTX_ctrl(s->cipher, EVP_CTRL_AEAD_GET_TAG, tag_bytes(m), tag) == 1;
}

bool coll_seal_open(coll_seal *s, const coll_sealed *m, const void *tag)
{
  uint8_t rest[16];
  int n;

  return pass(s, m) &&
         EVP_CIPHER_CTX_ctrl(s->cipher, EVP_CTRL_AEAD_SET_TAG, tag_bytes(m), (void *)(uintptr_t)tag) == 1 &&
         EVP_CipherFinal_ex(s->cipher, rest, &n) == 1;
}
