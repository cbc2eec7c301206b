/* collective/transport/stream.h -- a transport between two ranks of different processes: ordered bytes, two channels
 * each way.
 *
 * Sending: ask for space, write into it, commit.  Receiving: look at the data in place, consume it.  Amounts are
 * multiples of COLL_STREAM_UNIT.  The memory belongs to the transport, so the caller's buffer is not in use after a
 * commit. A large payload may be lent instead, which means that the peer reads it out of the caller's buffer: see
 * bulk_least. All calls are made under the group's lock. */
#ifndef WEFT_COLLECTIVE_TRANSPORT_STREAM_H
#define WEFT_COLLECTIVE_TRANSPORT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

enum { COLL_STREAM_UNIT = 64, COLL_CHANNELS = 2 };

typedef struct coll_stream coll_stream;

typedef struct coll_stream_ops {
  const char *name;

  /* Bytes that can be written at *at now, contiguous. */
  size_t (*space)(coll_stream *s, int channel, void **at);

  /* The first `bytes` of that space go to the peer. */
  void (*commit)(coll_stream *s, int channel, size_t bytes);

  /* Bytes that have come, contiguous at *at. */
  size_t (*data)(coll_stream *s, int channel, const void **at);
  void (*consume)(coll_stream *s, int channel, size_t bytes);

  /* Before sleeping: asks the peer to ring when it sends or makes room.  True if there is nothing to do now. */
  bool (*arm)(coll_stream *s);

  /* Optional: moves what the transport itself has to move.  True if something did. */
  bool (*poll)(coll_stream *s);

  /* Optional, all or none: large messages go from memory to memory, past the stream's own.  One thing at a time is lent
   * and one borrowed; the memory is in the transport's hands from `lend` until `lent` says true, and from `borrow` until
   * `borrowed` does, or until `revoke`, which ends both at once. */
  size_t (*bulk_least)(coll_stream *s);                             /* from this size on; SIZE_MAX: not with this peer */
  void (*lend)(coll_stream *s, const void *data, size_t bytes);     /* before the header in the stream that announces the loan */
  bool (*lent)(coll_stream *s);                                     /* the peer has it all */
  void (*borrow)(coll_stream *s, void *into, size_t bytes);         /* the next bytes of what the peer lends */
  bool (*borrowed)(coll_stream *s);
  void (*revoke)(coll_stream *s);

  /* The reason why the stream broke, owned by the caller; NULL while it works. */
  weft_status *(*health)(coll_stream *s);

  void (*close)(coll_stream *s);
} coll_stream_ops;

struct coll_stream {
  const coll_stream_ops *ops;
  void (*ring)(void *ctx); /* wakes the peer's progress thread */
  void *ring_ctx;
  bool unsent; /* committed data leaves only when the stream is polled again */
  bool unwanted; /* the peer has ended: committed data need not leave any more */
};

/* Shared memory between two processes.  The maker hands *out_fd (a sealed memfd, to be closed by the caller) to the
 * peer, which opens it.  peer_pid: of the process at the other end of the socket that it goes through, as the kernel
 * says. */
WEFT_NODISCARD weft_status *coll_shm_new(size_t ring_bytes, pid_t peer_pid, coll_stream **out_stream, int *out_fd);
WEFT_NODISCARD weft_status *coll_shm_open(int fd, pid_t peer_pid, coll_stream **out_stream);

/* Decorates `inner` (taken, also on failure) with the faults of a specification, for example "drop@3",
 * "delay@1=200ms"; see docs/collectives.md.  `disconnect` cuts the control connection. */
WEFT_NODISCARD weft_status *coll_fault_new(coll_stream *inner, const char *spec, void (*disconnect)(void *ctx),
                                           void *ctx, coll_stream **out_stream);

/* How far the process has come in its faults' count, and where the last one happened (0: none did). */
typedef struct coll_fault_counts {
  unsigned long moves, fired_at;
} coll_fault_counts;
coll_fault_counts coll_fault_seen(void);

#endif
