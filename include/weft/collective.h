/* weft/collective.h -- collectives between devices of one process, processes of one node and nodes.
 *
 * A communicator is one rank's membership in a group of ranks.  An operation is posted with weft_coll_post, which
 * completes an event, or run to its end with weft_coll_run.  Collectives of one communicator run in the order in which
 * they are posted, which must be the same on every rank; different communicators are independent.
 *
 *   weft_comm *comm;
 *   weft_comm_create(&(weft_comm_spec){.kv = kv, .name = "job/7", .size = 4, .ranks = &rank, .rank_count = 1}, &comm);
 *   weft_coll_run(comm, &(weft_coll_op){.kind = WEFT_ALL_REDUCE, .dtype = WEFT_F32, .reduction = WEFT_SUM,
 *                                       .send = x, .recv = y, .count = n}, NULL);
 *
 * Nothing hangs: each operation has a deadline, and however it ends, its buffers may be freed once its event fires.
 * How an operation fails, on every transport alike:
 *   DEADLINE_EXCEEDED    its deadline passed on this rank; the text names the ranks that arrived, those that did not,
 *                        and what the missing ranks do instead
 *   ABORTED              another rank's deadline, or weft_comm_abort, ended it; the text comes from that rank.
 *                        Collectives that the other rank had ended by then succeed on this rank too, even if this rank
 *                        posts them later
 *   FAILED_PRECONDITION  a rank died ("Task with incarnation id N is not connected"), or ranks disagree on the
 *                        operation (the text has both sides), or the communicator is aborted already
 *   CANCELLED            the communicator was destroyed with the operation pending
 *   INVALID_ARGUMENT     the arguments contradict each other or the type; nothing was sent
 * After any of the first three the communicator is spent.  Each rank gets the code once: from an operation that the
 * rank has pending, or from the next operation that it posts.  Every later operation fails at once with
 * FAILED_PRECONDITION and the first error's text.  Destroy the communicator and create another. */
#ifndef WEFT_COLLECTIVE_H
#define WEFT_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/deadline.h"
#include "base/dtype.h"
#include "base/event.h"
#include "base/kv.h"
#include "base/status.h"

WEFT_PUBLIC_BEGIN

/* ---- operations ---- */

/* X(NAME, text, what): block i is the i-th of `size` blocks of `count` elements, in rank order. */
#define WEFT_COLL_KINDS(X)                                                                                           \
  X(BARRIER, "barrier")                       /* no rank completes before all ranks have posted */                     \
  X(ALL_REDUCE, "all-reduce")                 /* send[count] of all ranks, reduced, to recv[count] of all */         \
  X(REDUCE, "reduce")                         /* ... to recv of root only */                                         \
  X(REDUCE_SCATTER, "reduce-scatter")         /* send[size * count]; block r of the sum to recv[count] of rank r;   \
                                                 or recv_counts[size]: blocks of these sizes */                      \
  X(BROADCAST, "broadcast")                   /* send[count] of root to recv[count] of all (root: recv may be NULL) */ \
  X(ALL_GATHER, "all-gather")                 /* send[count] of rank r to block r of recv[size * count] of all */    \
  X(ALL_GATHER_V, "all-gather-v")             /* ... of recv_counts[r] elements, packed in rank order */             \
  X(GATHER, "gather")                         /* all-gather to root only */                                          \
  X(GATHER_V, "gather-v")                     /* every rank gives recv_counts[size] */                               \
  X(SCATTER, "scatter")                       /* block r of root's send[size * count] to recv[count] of rank r */    \
  X(SCATTER_V, "scatter-v")                   /* ... of send_counts[r] elements; every rank gives send_counts */     \
  X(ALL_TO_ALL, "all-to-all")                 /* block i of send[size * count] to block r of recv of rank i */       \
  X(ALL_TO_ALL_V, "all-to-all-v")             /* by send_counts/recv_counts and optional offsets, in elements */     \
  X(RAGGED_ALL_TO_ALL, "ragged-all-to-all")   /* HLO's: see weft_coll_ragged */                                      \
  X(PERMUTE, "collective-permute")            /* send[count] to rank `target`, recv[count] from `source`; -1: none,  \
                                                 and no source zeroes recv */                                        \
  X(SEND, "send")                             /* send[count] to rank `peer` under `tag`; not ordered with collectives;   \
                                                 a small one may end before it is received */                        \
  X(RECV, "recv")                             /* recv[count] from `peer`, or from any rank: peer -1 */

typedef enum weft_coll_kind {
#define WEFT_COLL_KIND_ENUM(name, text) WEFT_##name,
  WEFT_COLL_KINDS(WEFT_COLL_KIND_ENUM)
#undef WEFT_COLL_KIND_ENUM
  WEFT_COLL_KIND_COUNT
} weft_coll_kind;

const char *weft_coll_kind_name(weft_coll_kind kind); /* "all-reduce", static */

/* Minimum and maximum propagate NaN; on pred, sum and max are or, product and min are and.  Types narrower than f32
 * are computed in f32 and rounded once a step. */
typedef enum weft_reduction {
  WEFT_REDUCE_NONE,
  WEFT_SUM,
  WEFT_PRODUCT,
  WEFT_MIN,
  WEFT_MAX,
  WEFT_AND, /* bitwise; integers and pred */
  WEFT_OR,
  WEFT_XOR,
  WEFT_CUSTOM, /* weft_coll_op.reducer */
  WEFT_REDUCTION_COUNT
} weft_reduction;

const char *weft_reduction_name(weft_reduction reduction); /* "sum", static */

/* acc[i] = f(acc[i], in[i]) for `count` elements.  The operation must be associative; every algorithm applies it in
 * rank order.  `fn` runs on any thread and perhaps under Weft's locks, so it must not wait for a lock that a caller
 * of Weft holds. */
typedef struct weft_reducer {
  void (*fn)(void *ctx, void *acc, const void *in, size_t count);
  void *ctx;
  uint64_t id; /* the same on every rank: part of the fingerprint */
} weft_reducer;

/* HLO ragged-all-to-all: for each member i and update u, rows send[input_offsets[i*U+u] ..][send_sizes[i*U+u]] go to
 * member i's recv at output_offsets[i*U+u] (offsets into the receiver's buffer, in rows).  Rows not written keep what
 * recv holds.  Arrays have size * updates entries; recv_sizes must be what the senders send. */
typedef struct weft_coll_ragged {
  const int64_t *input_offsets, *send_sizes, *output_offsets, *recv_sizes;
  int64_t updates;             /* U; 0 counts as 1 */
  int64_t row_elems;           /* elements of one row; 0 counts as 1 */
  int64_t send_rows, recv_rows; /* extent of send and of recv: offsets are checked against them */
} weft_coll_ragged;

/* One operation of one rank.  Fields that a kind does not name are zero.  Pointers are borrowed until the event
 * fires, but the count and offset arrays only until the post returns.  `recv` may equal `send`, overlap it, or (for
 * a rank that gets nothing) be NULL. */
typedef struct weft_coll_op {
  weft_coll_kind kind;
  weft_dtype dtype;
  weft_reduction reduction;
  const weft_reducer *reducer; /* for WEFT_CUSTOM; copied */
  const void *send;
  void *recv;
  size_t count;
  int root;
  int peer;           /* SEND, RECV */
  int source, target; /* PERMUTE; -1: none */
  uint64_t tag;       /* SEND, RECV */
  const size_t *send_counts, *recv_counts;   /* [size] elements */
  const size_t *send_offsets, *recv_offsets; /* ALL_TO_ALL_V; NULL: packed */
  const weft_coll_ragged *ragged;            /* RAGGED_ALL_TO_ALL */
} weft_coll_op;

/* Where in a program an operation stands.  It goes into fingerprints, errors and the flight recorder.  The strings
 * are borrowed until the event fires; NULL where unknown. */
typedef struct weft_coll_site {
  const char *executable;  /* "jit_step" */
  const char *instruction; /* "all-reduce.12" */
  const char *source;      /* "train.py:41" */
  /* number of the run, the same on all ranks: ranks that give different numbers disagree on the operation; 0: not
   * given */
  uint64_t launch_id;
} weft_coll_site;

typedef struct weft_coll_call {
  weft_coll_site site;
  weft_deadline deadline; /* {0}: the communicator's timeout from now; WEFT_NO_DEADLINE: none */
  int64_t warn_ns;        /* 0: the communicator's; negative: never */
  /* a stream of the device, only where a platform's communicator moves the data: the operation runs after the work
   * that the stream has queued.  NULL: the operation's buffers are ready now.  The host's communicator refuses a
   * stream (INVALID_ARGUMENT) */
  void *stream;
  uint64_t stream_point; /* a point of the stream: the operation runs after it; 0: after all work queued by now */
  bool will_wait;         /* the caller calls weft_coll_wait at once, so the progress thread need not wake */
  /* of a send or receive whose data is ready on both sides.  The operation may end as late as other operations of the
   * rank that have this flag, so a platform's communicator may queue them as a group */
  bool together;
  /* numbers of a program and of one of its runs, for the profile of a platform that moves the data; 0: of none */
  int64_t program, run;
  /* for the platform's own code: what its communicator tells when all ranks have met, instead of queueing the
   * operation; NULL: none */
  void *hold;
} weft_coll_call;

/* ---- communicators ---- */

/* Thread-safe.  One for each rank that lives in this process. */
typedef struct weft_comm weft_comm;

typedef enum weft_coll_order {
  WEFT_ORDER_DEFAULT, /* WEFT_COLLECTIVE_ORDER, else fast */
  WEFT_ORDER_FAST,    /* the same bits on every run with the same ranks and counts */
  WEFT_ORDER_RANK,    /* a left fold in rank order: the same bits for every algorithm, transport and split */
} weft_coll_order;

typedef struct weft_comm_spec {
  weft_kv *kv;        /* where ranks meet; borrowed until the last communicator made here is destroyed; may be NULL
                         when all ranks are in this call */
  const char *name;   /* prefix of the keys in `kv`, another one for each set of incarnations; copied */
  int size;           /* ranks in all */
  const int *ranks;   /* those of this process, ascending */
  int rank_count;
  uint64_t incarnation;       /* of this process; 0: a random one */
  const int64_t *device_ids;  /* [size] the global device of each rank, for reports; NULL: the rank's number; copied */
  weft_deadline deadline;     /* for the rendezvous; {0}: WEFT_COLLECTIVE_CONNECT_TIMEOUT from now */
  const atomic_bool *cancel; /* optional: creation ends with CANCELLED soon after it becomes true */
  /* optional; called from time to time for a rank that has not come.  Returns an error, which Weft takes, if the rank
   * will never come; else NULL */
  weft_status *(*gone)(void *ctx, int rank);
  void *gone_ctx;
  int64_t timeout_ns, warn_ns; /* defaults of the communicator's operations; 0: the settings; negative: none */
  weft_coll_order order;
  /* the communicator of a Weft platform that moves the data; NULL: the host moves it */
  const struct coll_communicator_ops *communicator;
  void *communicator_ctx;
} weft_comm_spec;

/* Makes the communicators of this process's ranks, out_comms[rank_count], each owned by the caller.  Blocks until
 * all ranks have met.
 * Errors: DEADLINE_EXCEEDED, naming the rank that did not come; CANCELLED; FAILED_PRECONDITION, where ranks disagree
 * on the size or a rank is of another incarnation; the error that `gone` returns; INVALID_ARGUMENT. */
WEFT_NODISCARD weft_status *weft_comm_create(const weft_comm_spec *spec, weft_comm **out_comms);

/* Splits a communicator: ranks of one color form a new one, ordered by (key, rank).  Every rank of the parent takes
 * part; a process passes all its `count` ranks of the parent in one call.  A rank of color -1 joins none, and its
 * *out is NULL.  The key-value store is not used.  Where a platform's communicator moves the data, it moves that of the
 * parts, too: operations of the parent end first, and none is posted until the split has returned; `deadline` {0} is
 * then WEFT_COLLECTIVE_CONNECT_TIMEOUT from now, and after an error the parent may be spent.
 * Errors: DEADLINE_EXCEEDED, the error of the parent or of a part, UNIMPLEMENTED where the platform cannot do it. */
WEFT_NODISCARD weft_status *weft_comm_split(weft_comm *const *comms, int count, const int *colors, const int *keys,
                                            weft_deadline deadline, weft_comm **out_comms);

/* Pending operations end with CANCELLED; peers that still wait for this rank learn that it left.  The last rank of the
 * process waits, for a second at most, until the peers on other hosts have learned it.  NULL is fine. */
void weft_comm_destroy(weft_comm *comm);
WEFT_DEFINE_AUTO(weft_comm, weft_comm_destroy)

/* Ends the communicator's operations on every rank: in this process with `st` (taken; NULL: ABORTED), in other
 * processes with ABORTED and the text of `st`, or with FAILED_PRECONDITION if `st` has that code.  Collectives that had
 * ended in this process still succeed on the other ranks.  Returns when the buffers of this process are free, or, after
 * ten seconds, with a log line if a platform's communicator still uses them. */
void weft_comm_abort(weft_comm *comm, weft_status *st);

/* Why the communicator is spent or about to be, owned by the caller; NULL while it is healthy. */
weft_status *weft_comm_health(weft_comm *comm);

/* True if a rank of this process knows of the communicator's error: an operation of the rank ended with the error, or
 * the rank aborted the communicator. */
bool weft_comm_is_told(weft_comm *comm);

/* The rank of `comm` among weft_comm_size() ranks, and the incarnation of the process that holds a rank. */
int weft_comm_rank(const weft_comm *comm);
int weft_comm_size(const weft_comm *comm);
int weft_comm_local_count(const weft_comm *comm); /* ranks that live in this process */
uint64_t weft_comm_serial(const weft_comm *comm); /* not zero; no other communicator of this process has or had it */
uint64_t weft_comm_incarnation(const weft_comm *comm, int rank);

/* ---- posting ---- */

/* Posts and returns; the event (owned by the caller) fires when the operation has ended.  Never blocks on a peer.
 * `call` may be NULL.  After an error nothing was posted, and the communicator is unharmed. */
WEFT_NODISCARD weft_status *weft_coll_post(weft_comm *comm, const weft_coll_op *op, const weft_coll_call *call,
                                           weft_event **out_event);

/* Posts `count` operations as one: they run together, and the event fires when all have ended.  Every rank passes
 * the same number and kinds of operations.  Sends and receives may be among them.  Small all-reduces of one type and
 * reduction travel as one message; so do small all-gathers, and small reduce-scatters of equal blocks. */
WEFT_NODISCARD weft_status *weft_coll_post_group(weft_comm *comm, const weft_coll_op *ops, size_t count,
                                                 const weft_coll_call *call, weft_event **out_event);

/* For callers that must not block: posts `count` operations as one (as weft_coll_post_group), makes no event, and
 * works on the operations for about patience.poll_ns.  *out_pending false: the operations have ended and the
 * returned status is their result, or nothing was posted and the status says why.  True: waiter->fn(ctx, error) will
 * be called once, on any thread; it takes `error` and must return soon.  The waiter is borrowed until then. */
typedef struct weft_coll_waiter {
  void (*fn)(void *ctx, weft_status *error); /* set by the caller, as `ctx` is */
  void *ctx;
  weft_status *status; /* the members below are private to Weft */
  atomic_int state;
} weft_coll_waiter;

typedef struct weft_coll_patience {
  int64_t poll_ns;          /* how long the caller would otherwise only look for work; 0: the caller has work to do */
  const atomic_int *wanted; /* optional; once the value is not 0 the caller has work to do, and the polling ends */
} weft_coll_patience;

WEFT_NODISCARD weft_status *weft_coll_start(weft_comm *comm, const weft_coll_op *ops, size_t count,
                                            const weft_coll_call *call, weft_coll_patience patience,
                                            weft_coll_waiter *waiter, bool *out_pending);

/* Waits for an event of `comm`. While it waits, the calling thread works on the communicator's operations, which gives
 * the lowest latency. Returns a copy of the event's error. */
WEFT_NODISCARD weft_status *weft_coll_wait(weft_comm *comm, weft_event *event);

/* Posts and waits, without an event. */
WEFT_NODISCARD weft_status *weft_coll_run(weft_comm *comm, const weft_coll_op *op, const weft_coll_call *call);

/* ---- what goes on ---- */

/* How late another rank is, as this rank measures it: how long operations of this rank waited for the other rank. */
typedef struct weft_comm_lateness {
  uint64_t times_last; /* operations in which the other rank's data came last */
  int64_t waited_ns, max_ns;
} weft_comm_lateness;

/* Fills out[size], an entry for each rank. */
void weft_comm_stragglers(weft_comm *comm, weft_comm_lateness *out);

/* The flight recorder of this process: what is pending, then one line per operation, newest last; malloc'd, NULL
 * without memory. */
char *weft_coll_flight_text(void);

/* Aborts every communicator of this process that has a member of that incarnation: FAILED_PRECONDITION "Task with
 * incarnation id N is not connected", plus `detail` (may be NULL).  Called when the coordination service reports a
 * death. */
void weft_coll_incarnation_died(uint64_t incarnation, const char *detail);

WEFT_PUBLIC_END

#endif
