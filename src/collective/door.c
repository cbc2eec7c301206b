/* collective/door.c -- the process's keys, and the handshake of door.h. */
#include <config.h>

#include "collective/door.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/secret.h"
#include "base/thread.h"
#include "collective/frame.h"

#define KNOCK_MARK UINT64_C(0x314b4e4b54464557) /* "WEFTKNK1": changes with the handshake */

enum { SHARE_BYTES = 32 };

static struct {
  weft_mutex mu;
  pid_t pid WEFT_GUARDED_BY(mu);            /* the process that drew the keys; 0: none has; a child draws its own */
  coll_key job WEFT_GUARDED_BY(mu);         /* derived from the job's secret */
  coll_key door WEFT_GUARDED_BY(mu);
  /* X25519; once it is gone, recorded connections of the process cannot be decrypted */
  EVP_PKEY *exchange WEFT_GUARDED_BY(mu);
  uint8_t share[SHARE_BYTES] WEFT_GUARDED_BY(mu);
} own = {.mu = WEFT_MUTEX_INITIALIZER};

/* ---- keys of the process ---- */

static weft_status *read_job_key(coll_key *out)
{
  static const coll_key none;
  char *secret;

  WEFT_TRY(weft_secret_of_job(&secret));
  coll_part_of_key part = {secret, secret ? strlen(secret) : 0};
  bool ok =
    coll_key_derive(&none, secret ? "weft job secret" : "weft job without a secret", &part, secret ? 1 : 0, out);
  weft_secret_free(secret);
  return ok ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "OpenSSL has no memory");
}

static weft_status *draw_exchange(EVP_PKEY **out, uint8_t share[SHARE_BYTES])
{
  EVP_PKEY_CTX *maker = EVP_PKEY_CTX_new_id(EVP_PKEY_X25519, NULL);
  size_t bytes = SHARE_BYTES;
  EVP_PKEY *drawn = NULL;
  bool ok = maker && EVP_PKEY_keygen_init(maker) == 1 && EVP_PKEY_keygen(maker, &drawn) == 1 &&
            EVP_PKEY_get_raw_public_key(drawn, share, &bytes) == 1 && bytes == SHARE_BYTES;

  EVP_PKEY_CTX_free(maker);
  if (!ok) EVP_PKEY_free(drawn);
  *out = ok ? drawn : NULL;
  return ok ? NULL : WEFT_ERR(UNAVAILABLE, "OpenSSL has no X25519");
}

/* Makes sure that all keys exist and are this process's own: a child draws new ones. */
static weft_status *furnish_locked(void) WEFT_REQUIRES(own.mu)
{
  weft_mutex_assert_held(&own.mu);
  EVP_PKEY *drawn = NULL;

  if (own.pid == getpid()) return NULL;
  WEFT_TRY(read_job_key(&own.job));
  WEFT_TRY(coll_random(&own.door, sizeof own.door));
  WEFT_TRY(draw_exchange(&drawn, own.share));
  EVP_PKEY_free(own.exchange);
  own.exchange = drawn;
  own.pid = getpid();
  return NULL;
}

weft_status *coll_door_own(coll_key *out)
{
  weft_mutex_lock(&own.mu);
  weft_status *st = furnish_locked();
  *out = own.door;
  weft_mutex_unlock(&own.mu);
  return st;
}

weft_status *coll_door_pair_key(const coll_key *door, coll_key *out)
{
  coll_part_of_key part = {door, sizeof *door};

  weft_mutex_lock(&own.mu);
  weft_status *st = furnish_locked();
  coll_key job = own.job;
  weft_mutex_unlock(&own.mu);
  if (!st && !coll_key_derive(&job, "weft pair", &part, 1, out))
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "OpenSSL has no memory");
  coll_key_wipe(&job);
  return st;
}

weft_status *coll_door_group_id(const coll_key *door, uint64_t public_id, uint64_t *out)
{
  coll_part_of_key part = {&public_id, sizeof public_id};
  coll_key pair, id;

  WEFT_TRY(coll_door_pair_key(door, &pair));
  bool derived = coll_key_derive(&pair, "weft group", &part, 1, &id);
  if (derived) memcpy(out, &id, sizeof *out);
  coll_key_wipe(&pair);
  coll_key_wipe(&id);
  return derived ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "OpenSSL has no memory");
}

/* ---- the session ---- */

void coll_session_fini(coll_session *s)
{
  coll_seal_free(s->out);
  coll_seal_free(s->in);
  OPENSSL_cleanse(s, sizeof *s);
}

bool coll_session_key(const coll_session *s, const char *purpose, bool outgoing, coll_key *out)
{
  uint8_t from_dialler = s->dialled == outgoing;
  coll_part_of_key part = {&from_dialler, 1};

  return coll_key_derive(&s->secret, purpose, &part, 1, out);
}

uint64_t coll_session_name(const coll_session *s)
{
  uint64_t name = 0;
  coll_key key;

  if (s->in && coll_session_key(s, "weft name", s->dialled, &key)) memcpy(&name, &key, sizeof name);
  return name;
}

/* Derives the secret that the shares of both sides agree on. */
static bool agree(const uint8_t theirs[SHARE_BYTES], coll_key *out)
{
  EVP_PKEY *peer = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, theirs, SHARE_BYTES);
  size_t bytes = sizeof *out;

  weft_mutex_lock(&own.mu);
  EVP_PKEY_CTX *maker = EVP_PKEY_CTX_new(own.exchange, NULL); /* holds a reference of the key */
  weft_mutex_unlock(&own.mu);
  bool ok = peer && maker && EVP_PKEY_derive_init(maker) == 1 && EVP_PKEY_derive_set_peer(maker, peer) == 1 &&
            EVP_PKEY_derive(maker, out->bytes, &bytes) == 1 && bytes == sizeof *out;
  EVP_PKEY_CTX_free(maker);
  EVP_PKEY_free(peer);
  return ok;
}

static bool seal_frames(coll_session *s)
{
  coll_key out, in;
  bool ok = coll_session_key(s, "weft frames", true, &out) && coll_session_key(s, "weft frames", false, &in);

  for (int i = 0; i < 2 && ok; i++) {
    weft_status *st = i ? coll_seal_new(&in, false, &s->in) : coll_seal_new(&out, true, &s->out);
    ok = !st;
    weft_status_free(st);
  }
  coll_key_wipe(&out);
  coll_key_wipe(&in);
  return ok;
}

/* ---- the handshake ---- */

/* HMAC(pair key, role, what both sides have sent so far). */
static bool sign(const coll_handshake *h, const char *role, coll_key *out)
{
  coll_part_of_key said[] = {{&h->knock, sizeof h->knock}, {&h->challenge, offsetof(coll_challenge, mac)}};

  return coll_key_derive(&h->pair, role, said, WEFT_COUNT(said), out);
}

static bool open_session(const coll_handshake *h, bool seals, coll_session *out)
{
  coll_key agreed;
  coll_part_of_key parts[] = {{&h->knock, sizeof h->knock}, {&h->challenge, offsetof(coll_challenge, mac)}, {&agreed, sizeof agreed}};

  *out = (coll_session){.dialled = h->dials};
  bool ok = agree(h->dials ? h->challenge.share : h->knock.share, &agreed) &&
            coll_key_derive(&h->pair, "weft session", parts, WEFT_COUNT(parts), &out->secret) &&
            (!seals || seal_frames(out));
  coll_key_wipe(&agreed);
  if (!ok) coll_session_fini(out);
  return ok;
}

void coll_handshake_init(coll_handshake *h, bool dials, const coll_key *pair)
{
  *h = (coll_handshake){.pair = *pair, .dials = dials, .knock = {.mark = KNOCK_MARK}};
}

/* Each of the three messages fits whole into the buffer of a new socket. */
static bool say(int fd, const void *data, size_t bytes)
{
  return send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

/* Reads on.  DONE: the whole message is there. */
static coll_shake hear(coll_handshake *h, int fd, void *into, size_t bytes)
{
  while (h->got < bytes) {
    ssize_t n = recv(fd, (char *)into + h->got, bytes - h->got, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return COLL_SHAKE_WAITS;
    if (n <= 0) return COLL_SHAKE_ENDED;
    h->got += (size_t)n;
  }
  h->got = 0;
  return COLL_SHAKE_DONE;
}

static bool introduce(uint8_t random[32], uint8_t share[SHARE_BYTES])
{
  weft_status *st = coll_random(random, 32);

  weft_mutex_lock(&own.mu);
  if (!st) st = furnish_locked();
  memcpy(share, own.share, SHARE_BYTES);
  weft_mutex_unlock(&own.mu);
  bool ok = !st;
  weft_status_ignore(st);
  return ok;
}

static coll_shake dial_on(coll_handshake *h, int fd, bool seals, coll_session *out)
{
  static const coll_frame denied = {COLL_FRAME_DENIED, sizeof COLL_DENIED_TEXT - 1};
  coll_key expected;

  if (!h->said && !(introduce(h->knock.random, h->knock.share) && say(fd, &h->knock, sizeof h->knock)))
    return COLL_SHAKE_ENDED;
  h->said = true;
  coll_shake heard = hear(h, fd, &h->challenge, sizeof h->challenge);
  if (h->got >= sizeof denied && memcmp(&h->challenge, &denied, sizeof denied) == 0) return COLL_SHAKE_DENIED;
  if (heard != COLL_SHAKE_DONE) return heard;
  if (!sign(h, "weft listener", &expected)) return COLL_SHAKE_ENDED;
  if (!coll_key_equal(&expected, &h->challenge.mac)) return COLL_SHAKE_DENIED;
  if (!sign(h, "weft dialler", &h->proof.mac) || !open_session(h, seals, out)) return COLL_SHAKE_ENDED;
  if (say(fd, &h->proof, sizeof h->proof)) return COLL_SHAKE_DONE;
  coll_session_fini(out);
  return COLL_SHAKE_ENDED;
}

static coll_shake listen_on(coll_handshake *h, int fd, bool seals, coll_session *out)
{
  coll_key expected;

  if (!h->said) {
    coll_shake heard = hear(h, fd, &h->knock, sizeof h->knock);
    size_t marked = WEFT_MIN(heard == COLL_SHAKE_DONE ? sizeof h->knock : h->got, sizeof h->knock.mark);
    if (memcmp(&h->knock.mark, &(uint64_t){KNOCK_MARK}, marked) != 0) return COLL_SHAKE_DENIED;
    if (heard != COLL_SHAKE_DONE) return heard;
    if (!introduce(h->challenge.random, h->challenge.share) || !sign(h, "weft listener", &h->challenge.mac) ||
        !say(fd, &h->challenge, sizeof h->challenge))
      return COLL_SHAKE_ENDED;
    h->said = true;
  }
  coll_shake heard = hear(h, fd, &h->proof, sizeof h->proof);
  if (heard != COLL_SHAKE_DONE) return heard;
  if (!sign(h, "weft dialler", &expected)) return COLL_SHAKE_ENDED;
  if (!coll_key_equal(&expected, &h->proof.mac)) return COLL_SHAKE_DENIED;
  return open_session(h, seals, out) ? COLL_SHAKE_DONE : COLL_SHAKE_ENDED;
}

coll_shake coll_handshake_go_on(coll_handshake *h, int fd, bool seals, coll_session *out)
{
  return h->dials ? dial_on(h, fd, seals, out) : listen_on(h, fd, seals, out);
}

void coll_door_deny(int fd)
{
  coll_frame_send(fd, NULL, COLL_FRAME_DENIED, COLL_DENIED_TEXT, sizeof COLL_DENIED_TEXT - 1, -1);
}

bool coll_door_same_user(int fd, pid_t *pid)
{
  struct ucred peer;
  socklen_t bytes = sizeof peer;

  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
  *pid = peer.pid;
  return peer.uid == geteuid() || peer.uid == 0;
}
