/* tests/gpu/emulator/nccl.h -- what the files of the emulated NCCL share.
 *
 * A communicator's ranks meet in a file of shared memory (the *world*), named by the unique id, so they may be devices
 * of one process or of several.  All data goes through it: nccl_world.c has its layout and the exchanges, nccl_data.c
 * what the streams' threads do, nccl.c the library's functions and the rules of their use. */
#ifndef WEFT_EMU_NCCL_H
#define WEFT_EMU_NCCL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "gpu/abi/nccl.h"

enum { NCCL_RANKS = 64, NCCL_CHUNK = 1 << 16, NCCL_BOX = 1 << 13, NCCL_TEXT = 400 };

/* ---- nccl_world.c ---- */

typedef enum emu_nccl_kind {
  EMU_ALL_REDUCE, EMU_REDUCE, EMU_BROADCAST, EMU_REDUCE_SCATTER, EMU_ALL_GATHER, EMU_ALL_TO_ALL, EMU_GATHER, EMU_SCATTER,
  EMU_SEND, EMU_RECV
} emu_nccl_kind;

/* An operation; `peer` is the root of a rooted one. */
typedef struct emu_nccl_op {
  wnc_comm comm;
  struct wcu_stream_st *stream;
  emu_nccl_kind kind;
  wnc_type type;
  int op, peer;
  uint64_t send, recv, count;
  uint64_t send_place, recv_place; /* in symmetric windows: which window, and where in it; 0: in none */
  double scale; /* of a reduction made by ncclRedOpCreatePreMulSum; else 1 */
} emu_nccl_op;

/* What the ranks must agree on. */
typedef struct emu_nccl_about { int kind, type, op, root; uint64_t count, bytes; } emu_nccl_about;
typedef struct emu_nccl_places { uint64_t send, recv; } emu_nccl_places;

/* What the ranks must agree on when they register a window; `ops`: operations that the rank has queued before. */
typedef struct emu_nccl_window_about { uint64_t bytes, ops; int flags; } emu_nccl_window_about;

/* The way of bytes from one rank to another. */
typedef struct emu_nccl_box { _Alignas(64) _Atomic uint64_t written, read; char bytes[NCCL_BOX]; } emu_nccl_box;

typedef struct emu_nccl_member {
  /* phases of exchanges: the chunk is there; this rank has read all chunks */
  _Alignas(64) _Atomic uint64_t posted, taken;
  _Atomic uint64_t pid, device;                /* pid 0: has not come */
  _Atomic uint64_t splits;                     /* number of its splits; the next two belong to the last one */
  int color, key;
  uint64_t token;                              /* random: names the world of a part that this rank leads */
  emu_nccl_about about;
  emu_nccl_places places;
  _Atomic uint64_t windows;                    /* number of its windows; of the last two is known: */
  emu_nccl_window_about window[2];
  char chunk[NCCL_CHUNK];
} emu_nccl_member;

typedef struct emu_nccl_world {
  _Atomic uint32_t size, arrived;
  _Atomic int wrong; /* wnc_result: ranks do not fit together */
  emu_nccl_member members[]; /* [size], then boxes [size * size] */
} emu_nccl_world;

static inline emu_nccl_box *emu_nccl_boxes(emu_nccl_world *w)
{
  return (emu_nccl_box *)(void *)&w->members[atomic_load(&w->size)];
}

/* Opens or makes the world of that name.  NULL: there is no memory. */
emu_nccl_world *emu_nccl_open(uint64_t token, int size);
void emu_nccl_close(emu_nccl_world *world, int size);
void emu_nccl_unlink(uint64_t token);
uint64_t emu_nccl_token(void); /* random, not 0 */

/* ---- nccl.c ---- */

struct wnc_comm_st {
  uint64_t magic, token;
  int size, rank, device;
  bool blocking, met, finalized;
  emu_nccl_world *world;
  atomic_int refs;              /* the handle's, and one for each job that has not ended: then the world is unmapped */
  atomic_int jobs;
  atomic_bool aborted, revoked;
  _Atomic int error;            /* wnc_result of ncclCommGetAsyncError, once something has failed */
  pthread_mutex_t running;      /* held by the job that runs: operations of one communicator run one after another */
  uint64_t phase, ops;          /* under `running` */
  char text[NCCL_TEXT];
  int polls, registered, windows;
  struct emu_nccl_registration *window_list; /* all that there ever were */
  struct emu_nccl_registration *opening;     /* a window whose ranks have not all come */
  atomic_int recorded;       /* copies of its operations in graphs, and in launches of these */
  bool ever_captured;
  uint64_t window_number, queued; /* windows, and collectives queued, so far */
  /* faults of WEFT_EMU_NCCL for this rank; 0: none */
  bool absent;
  uint64_t silent_at, async_at, kill_at;
  int async_code;
  /* a split or shrink under way */
  wnc_comm part;
  wnc_comm parent;
  uint64_t split_number;
  uint64_t split_ranks;         /* bit set: the parent's ranks that take part */
  int split_color, split_key;
};

void emu_nccl_fail(wnc_comm comm, wnc_result result, const char *format, ...) __attribute__((format(printf, 3, 4)));
void emu_nccl_unref(wnc_comm comm);
size_t emu_nccl_type_bytes(wnc_type type);

/* ---- nccl_data.c ---- */

typedef struct emu_nccl_job { wnc_comm comm; size_t count; bool captured; emu_nccl_op ops[]; } emu_nccl_job;
int emu_nccl_run(const void *job, int device, char *error, size_t size); /* a weft_emu_job */

#endif
