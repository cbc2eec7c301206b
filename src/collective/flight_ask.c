/* collective/flight_ask.c -- asks another process for the text of its recorder. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collective/address.h"
#include "collective/dial.h"
#include "collective/flight_text.h"
#include "collective/frame.h"

void coll_flight_publish(weft_kv *kv, uint64_t incarnation)
{
  static _Atomic uint64_t published; /* a process makes many communicators, but publishes once */
  uint64_t mark = incarnation ^ (uintptr_t)kv;
  char key[64];
  coll_address own;

  if (atomic_exchange(&published, mark) == mark) return;
  weft_status *st = coll_address_own(&own);
  snprintf(key, sizeof key, COLL_FLIGHT_KEYS "/%llu", (unsigned long long)incarnation);
  if (!st) st = weft_kv_set(kv, key, &own, sizeof own, true);
  weft_status_ignore(st);
}

static bool wait_for(int fd, short events, weft_deadline deadline)
{
  struct pollfd one = {.fd = fd, .events = events};
  return poll(&one, 1, weft_deadline_poll_ms(deadline)) > 0;
}

static weft_status *prove(coll_handshake *shake, int fd, bool local, const coll_address *who, weft_deadline deadline,
                          coll_session *out)
{
  coll_shake got;

  if (!wait_for(fd, POLLOUT, deadline))
    return WEFT_ERR(UNAVAILABLE, "pid %d on %.64s cannot be reached", who->pid, who->host);
  while ((got = coll_handshake_go_on(shake, fd, !local, out)) == COLL_SHAKE_WAITS)
    if (!wait_for(fd, POLLIN, deadline))
      return WEFT_ERR(DEADLINE_EXCEEDED, "pid %d on %.64s does not answer: stopped, or starved of CPU", who->pid,
                      who->host);
  if (got == COLL_SHAKE_DENIED)
    return WEFT_ERR(
      UNAUTHENTICATED,
      "pid %d on %.64s has another secret than this process (WEFT_COORD_SECRET_FILE), or is not the process that published its address",
      who->pid, who->host);
  return got == COLL_SHAKE_DONE ? NULL
                                : WEFT_ERR(UNAVAILABLE, "pid %d on %.64s cannot be reached", who->pid, who->host);
}

/* Both sides prove that they belong to the job. */
static weft_status *shake_hands(int fd, bool local, const coll_address *who, weft_deadline deadline, coll_session *out)
{
  coll_handshake shake;
  coll_key pair;

  WEFT_TRY(coll_door_pair_key(&who->door, &pair));
  coll_handshake_init(&shake, true, &pair);
  coll_key_wipe(&pair);
  weft_status *st = prove(&shake, fd, local, who, deadline, out);
  coll_key_wipe(&shake.pair);
  return st;
}

static weft_status *read_text(int fd, coll_session *session, const coll_address *who, weft_deadline deadline, FILE *out)
{
  coll_frame_reader reader = {.passed_fd = -1};

  if (!coll_frame_send(fd, session, COLL_FRAME_FLIGHT, NULL, 0, -1))
    return WEFT_ERR(UNAVAILABLE, "pid %d on %.64s cannot be reached", who->pid, who->host);
  while (wait_for(fd, POLLIN, deadline)) {
    coll_read_result got;
    while ((got = coll_frame_read(&reader, session, fd)) == COLL_READ_FRAME && reader.frame.type == COLL_FRAME_TEXT)
      fwrite(reader.payload, 1, reader.frame.bytes, out);
    if (got == COLL_READ_END) return NULL;
    if (got != COLL_READ_NONE) return WEFT_ERR(UNAVAILABLE, "pid %d on %.64s sent garbage", who->pid, who->host);
  }
  return WEFT_ERR(DEADLINE_EXCEEDED, "pid %d on %.64s does not answer: stopped, or starved of CPU", who->pid,
                  who->host);
}

weft_status *coll_flight_ask(const void *address, size_t bytes, weft_deadline deadline, FILE *out)
{
  coll_session session = {0};
  bool local = true;
  coll_address to;
  int fd;

  if (bytes != sizeof to || (memcpy(&to, address, sizeof to), to.magic != COLL_ADDRESS_MAGIC))
    return WEFT_ERR(INVALID_ARGUMENT, "no address of a process with a flight recorder: %zu bytes", bytes);
  WEFT_TRY(coll_address_check(&to, bytes, to.size));
  weft_status *st = coll_dial(&to, true, &fd);
  if (st) { /* the process is not on this node, or gone */
    weft_status_free(st);
    local = false;
    WEFT_TRY(coll_dial(&to, false, &fd));
  }
  st = shake_hands(fd, local, &to, deadline, &session);
  if (!st) st = read_text(fd, &session, &to, deadline, out);
  coll_session_fini(&session);
  close(fd);
  return st;
}
