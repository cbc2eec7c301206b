/* tests/fuzz/coll_link_fuzz.c -- A hostile peer: a communicator of two whose other rank is the input.
 *   PATCHES (OFFSET BYTE)...  what is wrong with its HELLO
 *   (COMMAND ...)...          bytes or frames on the control connection, messages and bytes in the shared memory, and
 *                             what our rank does meanwhile
 * Whatever comes, every operation of ours ends and nothing is touched that should not be. */
#include <config.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collective/address.h"
#include "collective/host/host.h"
#include "collective/host/link.h"
#include "collective/progress.h"
#include "fuzz.h"

enum { ME = 1, PEER = 0, SIZE = 2, MOST_OPS = 8, ELEMS = 2000, RING_BYTES = 4096 };

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

static size_t take_bytes(input *in, void *out, size_t most)
{
  size_t wanted = take(in), n = WEFT_MIN(wanted, WEFT_MIN(in->left, most));

  if (n) memcpy(out, in->at, n);
  in->at += n;
  in->left -= n;
  return n;
}

typedef struct stage {
  coll_group *group;
  weft_comm *comm;
  coll_stream *peer; /* the other end of the shared memory */
  int control;       /* ... and of the connection */
  weft_event *events[MOST_OPS];
  int count;
  float in[ELEMS], out[MOST_OPS][ELEMS];
} stage;

static coll_hello greeting(input *in)
{
  coll_hello hello = {.group_id = 1, .src_incarnation = 7, .src = PEER, .dst = ME, .size = SIZE, .transport = COLL_TRANSPORT_SHM,
                      .address = {.magic = COLL_ADDRESS_MAGIC, .size = SIZE, .pid = getpid(), .incarnation = 7, .host = "there"}};

  for (int patches = take(in) % 8; patches > 0; patches--) {
    size_t at = (size_t)(take(in) | take(in) << 8) % sizeof hello;
    ((uint8_t *)&hello)[at] ^= take(in);
  }
  hello.dst = ME;                                                    /* the listener has found the rank by it */
  if (hello.transport == COLL_TRANSPORT_FABRIC) hello.transport = 0; /* refused: libfabric itself is not fuzzed here */
  return hello;
}

static void no_bell(void *ctx) { (void)ctx; } /* its progress thread is us */

/* False: the peer was turned away. */
static bool meet(stage *s, input *in)
{
  coll_address *addresses = calloc(SIZE, sizeof *addresses);
  weft_comm_spec spec = {.name = "fuzz", .size = SIZE, .ranks = (int[]){ME}, .rank_count = 1, .incarnation = 8, .timeout_ns = -1, .warn_ns = -1};
  coll_hello hello = greeting(in);
  coll_session session = {0};
  int sockets[2], memory;

  FUZZ_TRUE(addresses != NULL);
  addresses[ME] =
    (coll_address){.magic = COLL_ADDRESS_MAGIC, .size = SIZE, .pid = getpid(), .incarnation = 8, .host = "here"};
  FUZZ_OK(coll_group_new(&spec, 1, &coll_host_communicator, &s->group));
  s->comm = s->group->locals[0];
  FUZZ_OK(coll_progress_add(s->group));
  FUZZ_OK(coll_bootstrap_known(s->group, addresses));
  FUZZ_OK(coll_shm_new(RING_BYTES, getpid(), &s->peer, &memory));
  s->peer->ring = no_bell;
  FUZZ_TRUE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
  s->control = sockets[0];
  coll_group_lock(s->group);
  weft_status *refused = coll_link_adopt_locked(s->group, &hello, sockets[1], memory, &session);
  coll_group_unlock(s->group);
  FUZZ_TRUE(refused || hello.transport == COLL_TRANSPORT_SHM);
  if (!refused) return true;
  weft_status_free(refused);
  close(sockets[1]);
  close(memory);
  return false;
}

static void send_bytes(stage *s, const void *data, size_t bytes)
{
  if (send(s->control, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return; /* it hung up */
}

static void send_frame(stage *s, input *in)
{
  static const uint32_t lengths[] = {sizeof(coll_reason), sizeof(coll_hello), sizeof(coll_query), sizeof(coll_farewell), 0};
  struct { coll_frame head; uint8_t payload[COLL_MOST_FRAME_BYTES]; } frame = {.head.type = take(in)};
  size_t length = take(in), given = take_bytes(in, frame.payload, sizeof frame.payload);

  frame.head.bytes = length < WEFT_COUNT(lengths) ? lengths[length] : (uint32_t)given;
  send_bytes(s, &frame, sizeof frame.head + frame.head.bytes);
}

static void put_units(stage *s, int channel, const void *data, size_t bytes)
{
  void *at;

  if (s->peer->ops->space(s->peer, channel, &at) < bytes || bytes == 0) return;
  memcpy(at, data, bytes);
  s->peer->ops->commit(s->peer, channel, bytes);
}

/* Makes a valid header of the operation that our rank runs, if it runs one, and changes a few of its bytes. */
static void put_message(stage *s, input *in)
{
  struct { coll_header header; char site[COLL_STREAM_UNIT]; uint8_t payload[8 * COLL_STREAM_UNIT]; } message = {0};
  coll_header *h = &message.header;
  int channel = take(in) % COLL_CHANNELS;

  coll_group_lock(s->group);
  const coll_op *op = s->comm->head;
  if (op)
    *h = (coll_header){.kind = (uint8_t)op->args.kind,
                       .dtype = (uint8_t)op->args.dtype,
                       .reduction = (uint8_t)op->args.reduction,
                       .seq = op->seq,
                       .bytes = (uint64_t)op->problem.bytes,
                       .count = op->args.count,
                       .fingerprint = op->fingerprint,
                       .root = op->problem.root};
  coll_group_unlock(s->group);
  h->type = channel ? COLL_MESSAGE_OFFER : COLL_MESSAGE_STEP;
  for (int patches = take(in) % 8; patches > 0; patches--) {
    size_t at = take(in) % sizeof *h;
    ((uint8_t *)h)[at] ^= take(in);
  }
  coll_header_seal(h);
  bool has_site = h->type & COLL_MESSAGE_HAS_SITE;
  put_units(s, channel, h, sizeof *h);
  if (has_site) put_units(s, channel, message.site, sizeof message.site);
  memset(message.payload, 1, sizeof message.payload);
  put_units(s, channel, message.payload, (take(in) % 9) * (size_t)COLL_STREAM_UNIT);
}

static void put_noise(stage *s, input *in)
{
  uint8_t units[4 * COLL_STREAM_UNIT] = {0};
  int channel = take(in) % COLL_CHANNELS;

  put_units(s, channel, units, WEFT_ALIGN_UP(take_bytes(in, units, sizeof units), (size_t)COLL_STREAM_UNIT));
}

static void post(stage *s, input *in)
{
  static const weft_coll_kind kinds[] = {WEFT_ALL_REDUCE, WEFT_SEND, WEFT_RECV, WEFT_ALL_GATHER, WEFT_BARRIER, WEFT_BROADCAST};
  weft_coll_kind kind = kinds[take(in) % WEFT_COUNT(kinds)];
  weft_coll_op op = {.kind = kind, .dtype = WEFT_F32, .reduction = kind == WEFT_ALL_REDUCE ? WEFT_SUM : WEFT_REDUCE_NONE, .send = s->in,
                     .recv = s->out[s->count % MOST_OPS], .count = (size_t)take(in) * (kind == WEFT_ALL_GATHER ? 3 : 7), .peer = PEER, .tag = take(in)};

  if (kind == WEFT_BARRIER) op.count = 0;
  if (s->count == MOST_OPS) return;
  weft_status *spent = weft_coll_post(s->comm, &op, NULL, &s->events[s->count]);
  s->count += spent == NULL;
  weft_status_free(spent);
}

static void progress(stage *s)
{
  coll_group_lock(s->group);
  coll_group_progress_locked(s->group);
  coll_group_unlock(s->group);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  input in = {data, size};
  stage *s = calloc(1, sizeof *s);
  uint8_t bytes[256];

  FUZZ_TRUE(s != NULL);
  for (bool met = meet(s, &in); met && in.left > 0; progress(s)) {
    switch (take(&in) % 6) {
    case 0: send_bytes(s, bytes, take_bytes(&in, bytes, sizeof bytes)); break;
    case 1: send_frame(s, &in); break;
    case 2: put_message(s, &in); break;
    case 3: put_noise(s, &in); break;
    default: post(s, &in);
    }
  }
  usleep(size % 4 == 0 ? 100 : 0); /* the thread that reads the connection runs, or not */
  weft_comm_destroy(s->comm);
  for (int i = 0; i < s->count; i++) {
    weft_status_free(
      weft_event_await(s->events[i], weft_deadline_after_ms(20000))); /* the other thread may just be firing it */
    FUZZ_TRUE(weft_event_is_ready(s->events[i]));
    weft_event_release(s->events[i]);
  }
  s->peer->ops->close(s->peer);
  close(s->control);
  free(s);
  return 0;
}
