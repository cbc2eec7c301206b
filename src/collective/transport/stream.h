/* collective/transport/stream.h -- a stream between two ranks of different processes: ordered bytes, two channels
 * each way.
 *
 * To send: ask for space, write into it, commit.  To receive: look at the data in place, consume it.  Amounts are
 * multiples of COLL_STREAM_UNIT.  This memory belongs to the transport, so the caller's buffer is not in use after a
 * commit.  A large payload may be lent instead: then the peer reads it out of the caller's buffer (see bulk_least).
 * All calls are made under the group's lock. */
#ifndef WEFT_COLLECTIVE_TRANSPORT_STREAM_H
#define WEFT_COLLECTIVE_TRANSPORT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

enum { COLL_STREAM_UNIT = 64, COLL_CHANNELS = 2 };

typedef struct coll_stream coll_stream;

/* Messages between this side and its peer, by channel. */
typedef struct coll_stream_counts {
  uint64_t left[COLL_CHANNELS];  /* handed to the network */
  uint64_t waits[COLL_CHANNELS]; /* committed, and not taken by the network yet */
  uint64_t came[COLL_CHANNELS];  /* from the peer; authenticated */
  uint64_t left_bytes, came_bytes; /* of those that left and came */
} coll_stream_counts;

typedef struct coll_stream_ops {
  const char *name;

  /* Returns how many bytes can be written at *at now, contiguously. */
  size_t (*space)(coll_stream *s, int channel, void **at);

  /* Sends the first `bytes` of that space to the peer. */
  void (*commit)(coll_stream *s, int channel, size_t bytes);

  /* Returns how many bytes have come; they are contiguous at *at. */
  size_t (*data)(coll_stream *s, int channel, const void **at);
  void (*consume)(coll_stream *s, int channel, size_t bytes);

  /* Call it before sleeping: asks the peer to wake this process (the stream's `ring`) when the peer sends or makes
   * room.  True if there is nothing to do now. */
  bool (*arm)(coll_stream *s);

  /* Optional: moves what the transport itself has to move.  True if anything moved. */
  bool (*poll)(coll_stream *s);

  /* Optional, all or none: a large payload is lent, so that it goes from the sender's buffer to the receiver's
   * without a copy in the stream's memory.  A stream lends one buffer at a time and borrows one.  The buffer is in
   * the transport's hands from `lend` until `lent` returns true, and from `borrow` until `borrowed` returns true, or
   * until `revoke`, which ends both at once. */
  /* the least size to lend; SIZE_MAX: nothing can be lent to this peer */
  size_t (*bulk_least)(coll_stream *s);
  /* call it before the commit of the header that announces the loan */
  void (*lend)(coll_stream *s, const void *data, size_t bytes);
  bool (*lent)(coll_stream *s);                                     /* the peer has all of it */
  void (*borrow)(coll_stream *s, void *into, size_t bytes);         /* reads the next `bytes` of what the peer lends */
  bool (*borrowed)(coll_stream *s);
  void (*revoke)(coll_stream *s);

  /* Optional: the messages so far.  Members that a transport does not fill in count as 0. */
  void (*counts)(coll_stream *s, coll_stream_counts *out);

  /* The reason why the stream broke, owned by the caller; NULL while it works. */
  weft_status *(*health)(coll_stream *s);

  void (*close)(coll_stream *s);
} coll_stream_ops;

struct coll_stream {
  const coll_stream_ops *ops;
  void (*ring)(void *ctx); /* wakes the peer's progress thread */
  void *ring_ctx;
  bool unsent; /* committed data leaves only if the stream is polled again */
  bool unwanted; /* the peer has ended its communicator: committed data need not leave any more */
};

/* A stream through memory that two processes share.  The maker hands *out_fd (a sealed memfd, which the caller
 * closes) to the peer, which opens it.  peer_pid: the process at the other end of the socket that the descriptor
 * goes through, as the kernel says. */
WEFT_NODISCARD weft_status *coll_shm_new(size_t ring_bytes, pid_t peer_pid, coll_stream **out_stream, int *out_fd);
WEFT_NODISCARD weft_status *coll_shm_open(int fd, pid_t peer_pid, coll_stream **out_stream);

/* Makes a stream that passes all calls to `inner` (taken, also on failure) and injects the faults of a
 * specification, for example "drop@3" or "delay@1=200" (milliseconds): see docs/collectives.md.  `disconnect` cuts
 * the control connection. */
WEFT_NODISCARD weft_status *coll_fault_new(coll_stream *inner, const char *spec, void (*disconnect)(void *ctx),
                                           void *ctx, coll_stream **out_stream);

/* How many moves the process has counted for its faults, and the move of the last fault (0: none happened). */
typedef struct coll_fault_counts {
  unsigned long moves, fired_at;
} coll_fault_counts;
coll_fault_counts coll_fault_seen(void);

#endif
