/* collective/transport/shm.c -- a stream through memory that two processes of a node share.
 *
 * A memfd holds one ring for each direction and channel.  The producer owns `head` and the consumer owns `tail`; both
 * count bytes since the stream was made.  Each ring is mapped twice in a row, so that any run of bytes in it is
 * contiguous.  The memfd has no name and lives as long as a process maps it: after a SIGKILL the kernel frees it.
 *
 * Large payloads are read by the receiver straight out of the sender's memory (process_vm_readv), where the kernel
 * allows that.  At the start each side tries to read a number that only the right process has.  A sender whose
 * operation fails revokes the loan before its buffers are free: a peer that still reads notices that, and does not
 * use the data.
 *
 *   page 0: control of 2 directions x 2 channels, 256 bytes each; the two sides;  then the four rings */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "collective/transport/transport.h"

#define SHM_MAGIC UINT64_C(0x314d485354464557) /* "WEFTSHM1" */

enum { RINGS = 2 * COLL_CHANNELS, SMALL_RING_BYTES = 64 << 10, CONTROL_BYTES = 4096 };

typedef struct ring_control {
  _Alignas(64) _Atomic uint64_t head;
  _Alignas(64) _Atomic uint64_t tail;
  _Alignas(64) atomic_int consumer_sleeps;
  _Alignas(64) atomic_int producer_sleeps;
} ring_control;
_Static_assert(sizeof(ring_control) == 256, "four lines");

typedef enum reading { READING_UNTRIED, READING_WORKS, READING_FAILS } reading;

/* The facts that one side gives the other, and the payload that it lends. */
typedef struct shm_side {
  /* a random number, which this side also has at address `cookie_at` of its process; 0: not yet set */
  _Alignas(64) _Atomic uint64_t cookie;
  uint64_t cookie_at;
  atomic_int reads; /* `reading`: can this side read the other's memory? */
  _Alignas(64) _Atomic uint64_t lent_at; /* byte n of all that this side ever lent is at this address + n */
  atomic_int revoked;
  _Alignas(64) _Atomic uint64_t taken;   /* bytes that this side has read of all that the other side ever lent */
} shm_side;

typedef struct shm_header {
  ring_control rings[RINGS];
  shm_side sides[2]; /* the maker's side first */
  uint64_t magic, ring_bytes;
} shm_header;
_Static_assert(sizeof(shm_header) <= CONTROL_BYTES, "one page");

/* One side's view of one ring. */
typedef struct shm_ring {
  ring_control *control;
  char *data;
  size_t size; /* a power of two */
  /* the producer's head and the last tail it saw; the consumer's tail and the last head it saw */
  uint64_t mine, theirs;
} shm_ring;

typedef struct shm_stream {
  coll_stream base;
  shm_header *header;
  shm_ring out[COLL_CHANNELS], in[COLL_CHANNELS];
  shm_side *self, *peer;
  uint64_t cookie;
  uint64_t lent, taken; /* bytes since the stream was made */
  char *into;           /* where borrowed data goes */
  size_t into_bytes;
  pid_t peer_pid;       /* as the kernel says */
  bool lending, corrupt;
} shm_stream;

static shm_stream *of(coll_stream *base) { return WEFT_CONTAINER_OF(base, shm_stream, base); }

static size_t size_of_channel(int channel, size_t ring_bytes)
{
  return channel == 0 ? ring_bytes : WEFT_MIN(ring_bytes, (size_t)SMALL_RING_BYTES);
}

static size_t shm_space(coll_stream *base, int channel, void **at)
{
  shm_ring *r = &of(base)->out[channel];

  *at = r->data + (r->mine & (r->size - 1));
  if (r->mine - r->theirs > r->size / 2) { /* the tail's cache line is only fetched when the ring looks full */
    uint64_t tail = atomic_load_explicit(&r->control->tail, memory_order_acquire); /* pairs with shm_consume */
    if (r->mine - tail > r->size) of(base)->corrupt = true;
    if (tail % COLL_STREAM_UNIT == 0 && r->mine - tail <= r->size) r->theirs = tail;
  }
  return r->size - (size_t)(r->mine - r->theirs);
}

/* Wakes the other side (the stream's bell) if it has said that it sleeps. */
static void wake(shm_stream *s, atomic_int *sleeps)
{
  atomic_thread_fence(memory_order_seq_cst); /* pairs with shm_arm: one of the two sides sees the other's store */
  if (atomic_load_explicit(sleeps, memory_order_relaxed) && atomic_exchange(sleeps, 0)) s->base.ring(s->base.ring_ctx);
}

static void shm_commit(coll_stream *base, int channel, size_t bytes)
{
  shm_stream *s = of(base);
  shm_ring *r = &s->out[channel];

  r->mine += bytes;
  atomic_store_explicit(&r->control->head, r->mine, memory_order_release); /* pairs with shm_data */
  wake(s, &r->control->consumer_sleeps);
}

static size_t shm_data(coll_stream *base, int channel, const void **at)
{
  shm_stream *s = of(base);
  shm_ring *r = &s->in[channel];

  *at = r->data + (r->mine & (r->size - 1));
  if (r->theirs == r->mine) {
    __builtin_prefetch(*at); /* fetched together with the cache line of `head`, not after it */
    uint64_t head = atomic_load_explicit(&r->control->head, memory_order_acquire); /* pairs with shm_commit */
    if (head - r->mine > r->size || head % COLL_STREAM_UNIT) {
      s->corrupt = true;
      return 0;
    }
    r->theirs = head;
  }
  return (size_t)(r->theirs - r->mine);
}

static void shm_consume(coll_stream *base, int channel, size_t bytes)
{
  shm_stream *s = of(base);
  shm_ring *r = &s->in[channel];

  r->mine += bytes;
  atomic_store_explicit(&r->control->tail, r->mine, memory_order_release); /* pairs with shm_space */
  wake(s, &r->control->producer_sleeps);
}

static bool shm_arm(coll_stream *base)
{
  shm_stream *s = of(base);
  bool quiet = true;

  for (int c = 0; c < COLL_CHANNELS; c++) {
    atomic_store_explicit(&s->in[c].control->consumer_sleeps, 1, memory_order_relaxed);
    atomic_store_explicit(&s->out[c].control->producer_sleeps, 1, memory_order_relaxed);
  }
  atomic_thread_fence(memory_order_seq_cst); /* pairs with wake */
  for (int c = 0; c < COLL_CHANNELS; c++) {
    uint64_t head = atomic_load_explicit(&s->in[c].control->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&s->out[c].control->tail, memory_order_acquire);
    bool was_full = s->out[c].mine - s->out[c].theirs >= s->out[c].size;
    quiet = quiet && head == s->in[c].theirs && !(was_full && tail != s->out[c].theirs);
  }
  quiet = quiet && !(s->lending && atomic_load_explicit(&s->peer->taken, memory_order_acquire) == s->lent);
  return quiet;
}

/* ---- lending ---- */

/* Sizes from which one copy by the kernel costs less than two through the ring; and the size of one read. */
enum { BULK_BYTES = 32 << 10, READ_AT_ONCE = 1 << 20 };

/* Reads the peer's memory.  False if the process has gone, or the kernel forbids that. */
static bool read_peer(const shm_stream *s, void *into, uint64_t at, size_t bytes)
{
  struct iovec local = {into, bytes}, remote = {(void *)(uintptr_t)at, bytes};
  return process_vm_readv(s->peer_pid, &local, 1, &remote, 1, 0) == (ssize_t)bytes;
}

/* Can this process read the peer's memory?  A process that has the same number in another namespace does not have
 * the cookie. */
static void try_reading(shm_stream *s)
{
  uint64_t found = 0, cookie = atomic_load_explicit(&s->peer->cookie, memory_order_acquire); /* pairs with introduce */

  if (!cookie) return;
  bool works = read_peer(s, &found, s->peer->cookie_at, sizeof found) && found == cookie;
  atomic_store_explicit(&s->self->reads, works ? READING_WORKS : READING_FAILS, memory_order_relaxed);
}

static void introduce(shm_stream *s)
{
  while (getrandom(&s->cookie, sizeof s->cookie, 0) != sizeof s->cookie || !s->cookie) {}
  s->self->cookie_at = (uintptr_t)&s->cookie;
  atomic_store_explicit(&s->self->cookie, s->cookie, memory_order_release);
  try_reading(s);
}

static size_t shm_bulk_least(coll_stream *base)
{
  shm_stream *s = of(base);

  if (atomic_load_explicit(&s->self->reads, memory_order_relaxed) == READING_UNTRIED) try_reading(s);
  return atomic_load_explicit(&s->peer->reads, memory_order_relaxed) == READING_WORKS ? BULK_BYTES : SIZE_MAX;
}

static void shm_lend(coll_stream *base, const void *data, size_t bytes)
{
  shm_stream *s = of(base);

  atomic_store_explicit(&s->self->lent_at, (uintptr_t)data - s->lent,
                        memory_order_relaxed); /* the commit of the header releases it */
  s->lent += bytes;
  s->lending = true;
}

static bool shm_lent(coll_stream *base)
{
  shm_stream *s = of(base);

  s->lending = atomic_load_explicit(&s->peer->taken, memory_order_acquire) != s->lent; /* pairs with shm_borrowed */
  return !s->lending;
}

static void shm_borrow(coll_stream *base, void *into, size_t bytes)
{
  of(base)->into = into;
  of(base)->into_bytes = bytes;
}

static bool shm_borrowed(coll_stream *base)
{
  shm_stream *s = of(base);
  uint64_t at = atomic_load_explicit(&s->peer->lent_at, memory_order_relaxed);

  for (size_t done = 0, n; done < s->into_bytes; done += n) {
    n = WEFT_MIN(s->into_bytes - done, (size_t)READ_AT_ONCE);
    if (!read_peer(s, s->into + done, at + s->taken + done, n)) return false;
    atomic_thread_fence(
      memory_order_seq_cst); /* pairs with shm_revoke: if the peer's buffers are free, this side sees `revoked` */
    /* the peer's abort is on its way */
    if (atomic_load_explicit(&s->peer->revoked, memory_order_relaxed)) return false;
  }
  s->taken += s->into_bytes;
  atomic_store_explicit(&s->self->taken, s->taken, memory_order_release);
  wake(s, &s->in[0].control->producer_sleeps);
  return true;
}

static void shm_revoke(coll_stream *base)
{
  atomic_store_explicit(&of(base)->self->revoked, 1, memory_order_relaxed);
  atomic_thread_fence(memory_order_seq_cst);
}

static weft_status *shm_health(coll_stream *base)
{
  if (!of(base)->corrupt) return NULL;
  return WEFT_ERR(DATA_LOSS, "the shared memory of a peer holds impossible counters");
}

static void shm_close(coll_stream *base)
{
  shm_stream *s = of(base);

  for (int c = 0; c < COLL_CHANNELS; c++) {
    if (s->out[c].data) munmap(s->out[c].data, 2 * s->out[c].size);
    if (s->in[c].data) munmap(s->in[c].data, 2 * s->in[c].size);
  }
  if (s->header) munmap(s->header, CONTROL_BYTES);
  free(s);
}

static const coll_stream_ops shm_ops = {
  .name = "shm",
  .space = shm_space,
  .commit = shm_commit,
  .data = shm_data,
  .consume = shm_consume,
  .arm = shm_arm,
  .bulk_least = shm_bulk_least,
  .lend = shm_lend,
  .lent = shm_lent,
  .borrow = shm_borrow,
  .borrowed = shm_borrowed,
  .revoke = shm_revoke,
  .health = shm_health,
  .close = shm_close,
};

/* Maps the same `size` bytes of the file twice in a row. */
static char *map_twice(int fd, off_t offset, size_t size)
{
  char *area = mmap(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

  if (area == MAP_FAILED) return NULL;
  for (int half = 0; half < 2; half++)
    if (mmap(area + (size_t)half * size, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset) ==
        MAP_FAILED) {
      munmap(area, 2 * size);
      return NULL;
    }
  return area;
}

static weft_status *map_all(int fd, size_t ring_bytes, bool maker, pid_t peer_pid, coll_stream **out_stream)
{
  shm_stream *s = calloc(1, sizeof *s);
  void *header = mmap(NULL, CONTROL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  off_t offset = CONTROL_BYTES;
  bool ok = s && header != MAP_FAILED;

  if (header != MAP_FAILED && !s) munmap(header, CONTROL_BYTES);
  if (s && header != MAP_FAILED) s->header = header;
  for (int i = 0; i < RINGS && ok; i++) {
    int channel = i % COLL_CHANNELS;
    bool out = (i < COLL_CHANNELS) == maker; /* the maker sends through the first two rings */
    shm_ring *r = out ? &s->out[channel] : &s->in[channel];
    r->size = size_of_channel(channel, ring_bytes);
    r->control = &s->header->rings[i];
    ok = (r->data = map_twice(fd, offset, r->size)) != NULL;
    offset += (off_t)r->size;
  }
  if (!ok) {
    weft_status *st = WEFT_ERR(RESOURCE_EXHAUSTED, "mapping shared memory: %s", strerror(errno));
    if (s) shm_close(&s->base);
    return st;
  }
  s->base.ops = &shm_ops;
  s->peer_pid = peer_pid;
  s->self = &s->header->sides[!maker];
  s->peer = &s->header->sides[maker];
  introduce(s);
  *out_stream = &s->base;
  return NULL;
}

static off_t file_bytes(size_t ring_bytes)
{
  off_t bytes = CONTROL_BYTES;
  for (int i = 0; i < RINGS; i++) bytes += (off_t)size_of_channel(i % COLL_CHANNELS, ring_bytes);
  return bytes;
}

weft_status *coll_shm_new(size_t ring_bytes, pid_t peer_pid, coll_stream **out_stream, int *out_fd)
{
  int fd = memfd_create("weft-coll", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  weft_status *st = NULL;

  *out_stream = NULL;
  *out_fd = -1;
  if (fd < 0 || ftruncate(fd, file_bytes(ring_bytes)) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    st = WEFT_ERR(RESOURCE_EXHAUSTED, "shared memory of %lld bytes: %s", (long long)file_bytes(ring_bytes),
                  strerror(errno));
  if (!st) st = map_all(fd, ring_bytes, true, peer_pid, out_stream);
  if (st) {
    if (fd >= 0) close(fd);
    return st;
  }
  shm_header *h = WEFT_CONTAINER_OF(*out_stream, shm_stream, base)->header;
  h->magic = SHM_MAGIC;
  h->ring_bytes = ring_bytes;
  *out_fd = fd;
  return NULL;
}

weft_status *coll_shm_open(int fd, pid_t peer_pid, coll_stream **out_stream)
{
  struct stat info;
  int seals = fcntl(fd, F_GET_SEALS);
  uint64_t words[2] = {0};

  *out_stream = NULL;
  /* Without the seal a peer could shrink the file while it is mapped, and to read it would be a SIGBUS. */
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) != 0 || info.st_size < CONTROL_BYTES ||
      pread(fd, words, sizeof words, offsetof(shm_header, magic)) != sizeof words || words[0] != SHM_MAGIC ||
      words[1] < 4096 || words[1] > UINT64_C(1) << 30 || (words[1] & (words[1] - 1)) ||
      file_bytes((size_t)words[1]) != info.st_size)
    return WEFT_ERR(FAILED_PRECONDITION, "a peer offered shared memory of another kind");
  return map_all(fd, (size_t)words[1], false, peer_pid, out_stream);
}

/* ---- the transport ---- */

static bool shm_reaches(const coll_address *from, const coll_address *to)
{
  return strcmp(coll_settings_get()->transport, "fabric") != 0 && from->node == to->node;
}

static weft_status *shm_offer(const coll_transport_ends *ends, coll_stream **out_stream, int *out_fd)
{
  return coll_shm_new((size_t)coll_settings_get()->ring_bytes, ends->pid, out_stream, out_fd);
}

static weft_status *shm_open_stream(const coll_transport_ends *ends, coll_stream **out_stream)
{
  return coll_shm_open(ends->fd, ends->pid, out_stream);
}

const coll_transport_ops coll_shm_transport = {
  .name = "shm", .is_local = true, .reaches = shm_reaches, .offer = shm_offer, .stream = shm_open_stream,
};
