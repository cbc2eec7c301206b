/* tests/fuzz/coll_door_fuzz.c -- Two processes shake hands and send frames, and the input is between them.
 *   FLAGS                     bit 0: frames are sealed;  bit 1: the sides have different pair keys
 *   (COMMAND ...)...          passes bytes on, changed or not, drops them, puts others in, or lets a side send a frame
 * Whatever passes: two sides that are done have the same session, they are not if their keys differ, and a sealed frame
 * that is read is the one of its number that was sent. */
#include <config.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collective/frame.h"
#include "fuzz.h"

enum { SIDES = 2, MOST_FRAMES = 64, MOST_PASSED = 4300 };

typedef struct input {
  const uint8_t *at;
  size_t left;
} input;

static uint8_t take(input *in)
{
  if (in->left == 0) return 0;
  in->left--;
  return *in->at++;
}

typedef struct side {
  int fd, middle; /* its socket, and the other end of it */
  coll_handshake shake;
  coll_shake got;
  coll_session session;
  coll_frame_reader reader;
  struct { uint32_t type, bytes; uint8_t first; } sent[MOST_FRAMES];
  size_t sent_count, read_count;
  bool broken;
} side;

static void go_on(side *s, const side *other, bool seals)
{
  if (s->got == COLL_SHAKE_WAITS) {
    s->got = coll_handshake_go_on(&s->shake, s->fd, seals, &s->session);
    if (s->got == COLL_SHAKE_DONE) FUZZ_TRUE(coll_key_equal(&s->shake.pair, &other->shake.pair));
    if (s->got == COLL_SHAKE_DONE && other->got == COLL_SHAKE_DONE)
      FUZZ_TRUE(coll_key_equal(&s->session.secret, &other->session.secret));
    if (s->got == COLL_SHAKE_DENIED) coll_door_deny(s->fd);
    return;
  }
  while (s->got == COLL_SHAKE_DONE && !s->broken) {
    coll_read_result read = coll_frame_read(&s->reader, &s->session, s->fd);
    if (read == COLL_READ_NONE) return;
    if (s->reader.passed_fd >= 0) close(s->reader.passed_fd);
    s->reader.passed_fd = -1;
    s->broken = read != COLL_READ_FRAME;
    if (s->broken || !seals) continue;
    FUZZ_TRUE(s->read_count < other->sent_count);
    size_t n = s->read_count++;
    FUZZ_TRUE(other->sent[n].type == s->reader.frame.type && other->sent[n].bytes == s->reader.frame.bytes);
    FUZZ_TRUE(s->reader.frame.bytes == 0 || (uint8_t)s->reader.payload[0] == other->sent[n].first);
  }
}

static void send_frame(side *s, input *in)
{
  uint8_t payload[COLL_MOST_FRAME_BYTES];
  uint32_t type = take(in), bytes = (uint32_t)take(in) * 16;

  if (s->got != COLL_SHAKE_DONE || s->sent_count == MOST_FRAMES) return;
  memset(payload, take(in), sizeof payload);
  s->sent[s->sent_count].type = type;
  s->sent[s->sent_count].bytes = bytes;
  s->sent[s->sent_count].first = payload[0];
  s->sent_count += coll_frame_send(s->fd, &s->session, (coll_frame_type)type, payload, bytes, -1);
}

/* Passes the bytes that side `from` has sent to the other side. */
static void pass(side *from, side *to, input *in, int command)
{
  uint8_t data[MOST_PASSED];
  size_t most = take(in);
  ssize_t n = recv(from->middle, data, most == 255 ? sizeof data : most * 2 + 1, MSG_DONTWAIT);

  if (n <= 0) return;
  if (command == 1) data[(size_t)(take(in) | take(in) << 8) % (size_t)n] ^= take(in);
  for (int times = command == 2 ? 0 : command == 3 ? 2 : 1; times > 0; times--)
    if (send(to->middle, data, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
}

static void put_noise(side *to, input *in)
{
  uint8_t noise[255];
  size_t bytes = take(in);

  for (size_t i = 0; i < bytes; i++) noise[i] = take(in);
  if (bytes && send(to->middle, noise, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  input in = {data, size};
  uint8_t flags = take(&in);
  side *s = calloc(SIDES, sizeof *s);

  FUZZ_TRUE(s != NULL);
  for (int i = 0; i < SIDES; i++) {
    coll_key pair = {{(uint8_t)(flags & 2 ? i : 7)}};
    int sockets[2];
    FUZZ_TRUE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
    s[i] = (side){.fd = sockets[0], .middle = sockets[1], .got = COLL_SHAKE_WAITS, .reader = {.passed_fd = -1}};
    coll_handshake_init(&s[i].shake, i == 0, &pair);
  }
  do {
    int command = take(&in), from = command >> 3 & 1;
    switch (command & 7) {
    case 4: put_noise(&s[from], &in); break;
    case 5: send_frame(&s[from], &in); break;
    default: pass(&s[from], &s[!from], &in, command & 7);
    }
    for (int i = 0; i < SIDES; i++) go_on(&s[i], &s[!i], flags & 1);
  } while (in.left > 0);
  for (int i = 0; i < SIDES; i++) {
    close(s[i].fd);
    close(s[i].middle);
    coll_session_fini(&s[i].session);
  }
  free(s);
  return 0;
}
