/* collective/frame.c -- frames: sending, collecting, sealing. */
#include <config.h>

#include "collective/frame.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sends without blocking.  True if all bytes were sent; *out_sent: how many were. */
static bool send_parts(int fd, struct iovec *parts, size_t count, int passed_fd, size_t *out_sent)
{
  union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = {0};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
  size_t bytes = 0;
  ssize_t sent;

  for (size_t i = 0; i < count; i++) bytes += parts[i].iov_len;
  if (passed_fd >= 0) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control.room;
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &passed_fd, sizeof(int));
  }
  do {
    sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  *out_sent = sent > 0 ? (size_t)sent : 0;
  return sent == (ssize_t)bytes;
}

bool coll_frame_send(int fd, coll_session *session, coll_frame_type type, const void *payload, size_t bytes,
                     int passed_fd)
{
  coll_frame frame = {type, (uint32_t)bytes};
  struct iovec parts[2] = {{&frame, sizeof frame}, {(void *)payload, bytes}};
  char sealed[COLL_MOST_FRAME_BYTES + COLL_TAG_BYTES];
  size_t sent;

  if (!session || !session->out) return send_parts(fd, parts, bytes ? 2 : 1, passed_fd, &sent);
  if (session->cut || bytes > COLL_MOST_FRAME_BYTES) return false;
  if (bytes) memcpy(sealed, payload, bytes);
  coll_sealed message = {.number = session->sent, .head = &frame, .head_bytes = sizeof frame, .body = sealed, .body_bytes = bytes};
  if (!coll_seal_close(session->out, &message, sealed + bytes)) return false;
  parts[1] = (struct iovec){sealed, bytes + COLL_TAG_BYTES};
  bool whole = send_parts(fd, parts, 2, -1, &sent);
  session->sent += whole;
  if (whole && type != COLL_FRAME_BELL) {
    session->spoken = session->sent;
    session->spoke_ns = weft_now_ns();
  }
  session->cut = !whole && sent > 0;
  if (session->cut) /* the connection ends with a reset: a clean end within a frame is an attacker's (COLL_READ_CUT) */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
  return whole;
}

static void keep_passed_fd(coll_frame_reader *reader, struct msghdr *message)
{
  for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      if (reader->passed_fd < 0) reader->passed_fd = fd;
      else close(fd);
    }
  }
}

/* Number of bytes that follow the head. */
static size_t rest_of(const coll_frame_reader *reader, const coll_session *session)
{
  return reader->frame.bytes + (session && session->in ? (size_t)COLL_TAG_BYTES : 0);
}

/* A whole frame has come: checks it and opens its seal. */
static coll_read_result open_frame(coll_frame_reader *reader, coll_session *session)
{
  const coll_frame *frame = &reader->frame;

  if (!session || !session->in) return frame->type == COLL_FRAME_DENIED ? COLL_READ_DENIED : COLL_READ_FRAME;
  coll_sealed message = {.number = session->taken, .head = frame, .head_bytes = sizeof *frame, .body = reader->payload, .body_bytes = frame->bytes};
  if (!coll_seal_open(session->in, &message, reader->payload + frame->bytes)) return COLL_READ_FORGED;
  session->taken++;
  return COLL_READ_FRAME;
}

/* What is wrong with a head that has come; COLL_READ_NONE: nothing. */
static coll_read_result check_head(const coll_frame_reader *reader, const coll_session *session)
{
  bool sealed = session && session->in;

  if (sealed && session->taken == 0 && reader->frame.type == COLL_FRAME_DENIED) return COLL_READ_DENIED;
  if (reader->frame.bytes <= COLL_MOST_FRAME_BYTES) return COLL_READ_NONE;
  return sealed ? COLL_READ_FORGED : COLL_READ_GARBAGE;
}

coll_read_result coll_frame_read(coll_frame_reader *reader, coll_session *session, int fd)
{
  size_t head = sizeof reader->frame;

  if (reader->got >= head && reader->got == head + rest_of(reader, session)) reader->got = 0;
  for (;;) {
    bool in_head = reader->got < head;
    size_t want = in_head ? head - reader->got : head + rest_of(reader, session) - reader->got;
    if (!in_head && want == 0) return open_frame(reader, session);
    char *at = in_head ? (char *)&reader->frame + reader->got : reader->payload + (reader->got - head);
    struct iovec part = {at, want};
    union { struct cmsghdr header; char room[CMSG_SPACE(4 * sizeof(int))]; } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
    ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return COLL_READ_NONE;
    if (n < 0) return errno == ECONNRESET ? COLL_READ_END : COLL_READ_LOST;
    if (n == 0) return reader->got > 0 && session && session->in ? COLL_READ_CUT : COLL_READ_END;
    keep_passed_fd(reader, &message);
    reader->got += (size_t)n;
    coll_read_result wrong = reader->got == head ? check_head(reader, session) : COLL_READ_NONE;
    if (wrong != COLL_READ_NONE) return wrong;
  }
}
