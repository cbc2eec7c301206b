/* collective/internal.h -- the objects inside a communicator.  The README draws them and states the threads.
 *
 * A group is one process's share of a communicator: all its local ranks under one lock.  The thread that holds the
 * lock runs whatever can run, for any rank; no thread waits for a peer with the lock held.  Events fire after it is
 * released. */
#ifndef WEFT_COLLECTIVE_INTERNAL_H
#define WEFT_COLLECTIVE_INTERNAL_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "collective/communicator.h"
#include "collective/flight_entry.h"
#include "collective/host/reduce.h"
#include "collective/host/schedule.h"
#include "collective/settings.h"
#include "collective/transport/rows.h"
#include "weft/collective.h"

typedef struct coll_link coll_link;

/* Lets the core rest for a moment in a loop that polls. */
static inline void coll_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  __asm__ volatile("" ::: "memory");
#endif
}

/* ---- operations ---- */

/* A send or receive step of the current round (or a send/recv operation) that has not ended. */
typedef struct coll_msg {
  struct coll_msg *next; /* in the FIFO of a pair or a link */
  coll_op *op;
  const coll_step *step;
  int64_t done_bytes; /* of the payload */
  bool header_done;
} coll_msg;

/* weft_coll_waiter.state.  `status` is written before the state becomes DONE. */
enum coll_waiter_state {
  COLL_WAITER_LOOKS,
  COLL_WAITER_DONE,
  COLL_WAITER_SLEEPS, /* in a futex wait on this word */
  COLL_WAITER_LEFT,   /* the caller has gone on: the waiter's function is to be called */
};

/* Where an operation's result goes: exactly one is set. */
typedef struct coll_completion {
  weft_event *event;
  weft_coll_waiter *waiter;
  struct coll_batch *batch;
} coll_completion;

/* Several operations with one completion. */
typedef struct coll_batch {
  atomic_int left;
  atomic_flag failed;
  weft_status *status; /* the first error; its writer holds `failed` */
  coll_completion to;
} coll_batch;

/* One job of an operation whose ranks are all in this process: folds `part_count` parts (one: a copy; none: zeroes)
 * into `dst_count` destinations.  `parts` and `dsts` are the indices in coll_jobs.pointers where the job's pointers
 * begin. */
typedef struct coll_job {
  size_t parts, dsts;
  int part_count, dst_count;
  size_t bytes, first_chunk;
} coll_job;

typedef struct coll_jobs {
  coll_job *jobs;
  void **pointers;
  size_t job_count, job_capacity, pointer_count, pointer_capacity, chunk_count;
  const coll_reducer *reducer; /* that of one of the operations */
} coll_jobs;

static inline void coll_jobs_fini(coll_jobs *jobs)
{
  free(jobs->jobs);
  free(jobs->pointers);
}

/* A part of a fused operation: where its result goes, and the size of one of its blocks. */
typedef struct coll_part {
  void *recv;
  size_t bytes;
} coll_part;

struct coll_op {
  /* first the fields that threads of other ranks touch: two cache lines */
  _Alignas(64) coll_op *next; /* in its rank's queue, the finished list or the free list */
  coll_op *pending_next, **pending_prev; /* in the group's list of pending operations */
  weft_comm *comm;
  uint64_t seq, fingerprint;
  int64_t posted_ns;
  coll_flight_entry *flight;
  char *memory[COLL_MEMORY_COUNT];
  coll_completion completion;
  weft_status *result;
  int last_peer;          /* the rank whose data came last; -1: not known */
  bool collective;        /* not a send or receive */
  bool runnable, started, fused;
  bool slotted;           /* its input fits in a slot: no rank reads another rank's buffers */
  bool alone;             /* its rank runs it outside the lock: see COLL_TURN_ALONE */
  bool below;             /* a platform's communicator has the operation, and uses its buffers */
  bool by_host;           /* its buffers are the host's: no platform's communicator gets it */
  bool half_ended;        /* it was below when the group failed, and another rank had ended it well */
  bool ended_frozen;      /* a platform's communicator ended it well while the group was frozen: it ends with that */
  bool warned;
  bool together;          /* weft_coll_call.together */
  void *hold;             /* weft_coll_call.hold */
  uint64_t place;         /* of one that goes below: what the ranks that this one has heard of have in common */
  coll_reducer reducer;
  weft_coll_site site;
  void *stream;           /* weft_coll_call.stream */
  uint64_t stream_point;  /* weft_coll_call.stream_point */
  int64_t program, run;   /* weft_coll_call.program and run */
  int64_t warn_at_ns, deadline_ns;
  coll_op *next_runnable;
  const coll_schedule *schedule; /* NULL until the operation starts (and for direct and point-to-point operations) */
  size_t next_step;              /* first step of the round after the current one */
  int unmatched;                 /* messages of the round that have not ended */
  int phase;       /* ragged all-to-all: 2 if the input is staged; send and receive: coll_p2p_phase */
  coll_msg p2p;    /* of a send or receive operation */
  /* number of the transfer, given by the sender.  Of one that goes below: its number among the sends to that peer, or
   * among the receives from it */
  uint64_t p2p_id;

  /* The next use of this memory does not clear the fields from here on: coll_op_prepare sets some, and the buffers
   * stay. */
  coll_problem problem;
  weft_coll_op args; /* its array pointers are not valid after the post */
  coll_msg *msgs;    /* one for each message of a round */
  int64_t *arrays; /* offsets and sizes in bytes, copied from the caller */
  char *stage;     /* copy of an input that overlaps its output, or packed parts */
  char *tmp;       /* scratch */
  coll_part *parts; /* of a fused operation */
  coll_jobs jobs;   /* of its rank alone, if the operation is slotted */
  size_t part_count;
  size_t arrays_capacity, stage_capacity, tmp_capacity, msgs_capacity, parts_capacity;
};

/* A FIFO of messages. */
typedef struct coll_fifo {
  coll_msg *head, *tail;
} coll_fifo;

static inline void coll_fifo_push(coll_fifo *fifo, coll_msg *msg)
{
  msg->next = NULL;
  if (fifo->head) fifo->tail->next = msg;
  else fifo->head = msg;
  fifo->tail = msg;
}
static inline coll_msg *coll_fifo_pop(coll_fifo *fifo)
{
  coll_msg *msg = fifo->head;
  if (msg) fifo->head = msg->next;
  return msg;
}

/* What two ranks of this process have posted for each other, in one direction. */
typedef struct coll_pair {
  coll_fifo sends, recvs; /* at most one of the two FIFOs holds anything */
  uint64_t below[2];      /* sends and receives that a platform's communicator has had */
} coll_pair;

/* ---- ranks and groups ---- */

enum { COLL_CACHED_SCHEDULES = 8 };
typedef struct coll_cached {
  coll_problem key; /* without arrays */
  int forced;       /* the group's forced_algorithm when the schedule was built */
  coll_schedule schedule;
  size_t round_msgs; /* the most messages that one round has */
  uint64_t used;     /* 0: empty */
} coll_cached;

/* weft_comm.turn: these flags in the low bits, the number of collectives posted in the bits above them. */
enum {
  COLL_TURN_ALONE = 1,  /* a thread runs an operation outside the lock; operations posted meanwhile queue behind it */
  COLL_TURN_QUEUED = 2, /* the queue is not empty; changed under the lock */
  COLL_TURN_NEXT = 4,
};

struct weft_comm {
  _Alignas(64) coll_group *group; /* holds one reference once the communicator is handed out */
  atomic_int refs;   /* the owner's, and one for each thread that waits for an operation in the queue */
  int rank, local; /* local: the rank's index among the group's ranks of this process */
  bool told; /* the owner knows of the group's error: see "to have heard" in the README's glossary */
  coll_op *head, **tail; /* collectives in order; head is the active one */
  /* memory for the next post, which takes it without the lock.  [0] is filled under the lock, [1] by the thread that
   * has the rank's turn */
  _Atomic(coll_op *) spare[2];
  _Atomic uint64_t turn;
  /* 1 + seq of the last collective that ended well.  Threads of other ranks touch the fields up to here: one cache
   * line */
  _Atomic uint64_t ended_seq;
  uint64_t serial;
  coll_fifo p2p_sends, p2p_recvs; /* unmatched sends to ranks of this process, and unmatched receives, oldest first */
  weft_comm_lateness *lateness; /* [size]; only coll_comm_waited and coll_comm_lateness touch it */
  coll_cached cache[COLL_CACHED_SCHEDULES];
  uint64_t cache_clock;
  coll_flight_entry *flight; /* ring */
  _Atomic uint64_t flight_next;
  int64_t flight_idle_since_ns;
  void *flight_map; /* the mapping, if the recorder writes to a file; else NULL */
  size_t flight_map_bytes;
};

/* How the ranks of one process meet: each rank writes to its own slots and reads the slots of the others.  A rank
 * has two, for operations of even and of odd number.  Two are enough: a rank arrives at operation n + 2 only when
 * all ranks have arrived at n + 1, and so are done with n. */
typedef struct coll_slot {
  /* 2 * (seq + 1) of the rank's operation, plus 1 if the operation is in the queue and another rank is to end it */
  _Alignas(128) _Atomic uint64_t word;
  uint64_t fingerprint;
  int64_t posted_ns;
  coll_op *op; /* pending until all ranks have met */
  char payload[];  /* the operation's input, if it is slotted */
} coll_slot;

/* The state of one look at the slots, or of a count of arrivals: have all ranks arrived? */
typedef struct coll_meeting {
  uint64_t number, fingerprint; /* of the operation, as a slot has them */
  int seen;      /* the ranks found to have arrived; if the operation is slotted, ranks 0 to seen - 1 */
  bool stranger; /* rank `seen` is at another operation */
} coll_meeting;

typedef struct coll_direct {
  /* of operations in the queue.  Two at once, as with slots: the newest operation, and the one before for ranks that
   * are late */
  coll_meeting meeting[2];
  /* the operation that arrived first; its memory may be in use for another once all have met */
  const coll_op *first[2];
  int workers;
  atomic_bool running; /* a large operation's jobs are being worked on; changed under the lock */
  coll_jobs jobs;
  atomic_size_t next_chunk, done_chunks;
} coll_direct;

typedef struct coll_address coll_address;

struct coll_group {
  /* first the fields that every operation writes: few cache lines */
  _Alignas(64) weft_mutex mu;
  coll_op *all_pending, *finished;
  weft_status *error;   /* the error that spent the group */
  /* why a rank elsewhere has given up; operations of number `ends_at` and later end with this error.  NULL: none has */
  weft_status *ending;
  int origin;           /* while `ending` is set: the rank that gave up, -1 if unknown */
  /* the least number of collectives that a rank elsewhere had ended when it gave up; UINT64_MAX: none has given up */
  uint64_t ends_at;
  int64_t spent_ns;     /* when `error` was set */
  uint64_t lost;        /* the incarnation whose death spent the group; 0: unknown */
  bool member_lost;     /* the group was spent because a member died or a peer cannot be reached */
  atomic_int pending;   /* operations that have not ended; written under the lock */
  /* the links need polling although no operation is pending: a stream has unsent data, or a peer refuses
   * connections; written under the lock */
  atomic_bool unsent;
  atomic_bool polls_slowly; /* polling the links costs a system call; written under the lock */
  /* a large payload is under way, so that polling for longer is worthwhile; written under the lock */
  atomic_bool bulk;
  bool frozen;          /* a deadline has passed: nothing moves until the diagnosis is ready */
  _Atomic int64_t next_timer_ns; /* no operation's warning or deadline is due before this time */
  coll_op *runnable, **runnable_tail;
  coll_op *free_ops;
  coll_direct direct;

  _Alignas(64) atomic_int refs; /* one for each communicator, and one for each thread that works on the group */
  atomic_int helpers;   /* threads in weft_coll_wait that poll links */
  coll_group *next_in_context;
  char *name;
  uint64_t public_id;   /* the same in all processes: the recorder shows it, and `id` is derived from it */
  /* the number by which peers name this group when they talk to this process: see coll_door_group_id */
  uint64_t id;
  int size, local_count, live_count; /* live_count: ranks of this process whose communicator is not destroyed */
  weft_comm **locals;   /* [local_count]; an entry is NULL once destroyed */
  int *local_of;        /* [size], the rank's index in `locals`; -1: elsewhere */
  int64_t *device_ids;  /* [size] */
  uint64_t *incarnations; /* [size] */
  coll_address *addresses; /* [size]; NULL: all ranks are here */
  coll_topology topology;
  int64_t timeout_ns, warn_ns;
  bool rank_order, use_direct;
  /* the group is spent, or one of its ranks leaves: a rank that runs alone puts its operation into the queue, and no
   * rank begins to run alone */
  atomic_bool disturbed;
  char *slots;           /* NULL unless all ranks are in this process: see coll_direct_slot */
  size_t slot_bytes;     /* size of one slot with its payload */
  int spins; /* spins of a waiter before it yields its core */
  int forced_algorithm; /* coll_algorithm, AUTO: none */
  /* through which ranks meet and learn of failures; it also moves the data unless a platform's communicator does */
  coll_communicator host;
  coll_communicator *communicator; /* what moves data: `host`, or the platform's */
  int below_count;                 /* operations that the platform's communicator has */
  /* the group has failed, and the platform's communicator is aborted at this time at the latest: half-ended operations
   * are under way.  0: it is not to be aborted, or has been */
  int64_t stop_at_ns;

  coll_pair *pairs;     /* [local_count * local_count]: by sender, then receiver */
  coll_link **links;    /* [local_count * size]; NULL: none yet */
  coll_link *open_links; /* all that exist */
  int refused_count;     /* how many of open_links are refused by their peer */
  int doubted_count;     /* how many of open_links are doubted and not asked about yet: see coll_link.doubted */
  void *transports[COLL_TRANSPORT_COUNT]; /* the state that a transport keeps for the group; NULL: none */
  uint64_t splits, offers_seen;
};

/* ---- group.c: the lock, operations, failure ---- */

void coll_group_lock(coll_group *g) WEFT_ACQUIRES(g->mu);
bool coll_group_try_lock(coll_group *g) WEFT_THREAD_ATTR(try_acquire_capability(true, g->mu));

/* Releases the lock, then fires what has finished. */
void coll_group_unlock(coll_group *g) WEFT_RELEASES(g->mu);

coll_group *coll_group_retain(coll_group *g);
void coll_group_release(coll_group *g);
WEFT_DEFINE_AUTO(coll_group, coll_group_release)

weft_comm *coll_comm_retain(weft_comm *comm);
void coll_comm_release(weft_comm *comm);

/* A group without links, all fields that `spec` gives set; `host`: the host's communicator.  Its communicators are in
 * g->locals. */
WEFT_NODISCARD weft_status *coll_group_new(const weft_comm_spec *spec, uint64_t public_id,
                                           const coll_communicator_ops *host, coll_group **out_group);

/* Memory for an operation, with the buffers of the operation that used it last. */
coll_op *coll_op_take_locked(coll_group *g) WEFT_REQUIRES(g->mu); /* NULL without memory */
void coll_op_free_locked(coll_op *op) WEFT_REQUIRES_ASSERTED(op->comm->group->mu);
void coll_op_free(coll_op *op);

/* Reports the result of one operation of a batch, or of posting it; `st` is taken.  The last report completes the
 * batch: see coll_batch. */
void coll_batch_finish(coll_batch *batch, weft_status *st);

/* Ends an operation; `st` is taken. */
void coll_op_finish_locked(coll_op *op, weft_status *st) WEFT_REQUIRES_ASSERTED(op->comm->group->mu);
void coll_op_finish_at_locked(coll_op *op, weft_status *st, int64_t now_ns) WEFT_REQUIRES_ASSERTED(op->comm->group->mu);

/* Records that an operation of `comm` waited `late_ns` for rank `peer`, whose data came last. */
void coll_comm_waited(weft_comm *comm, int peer, int64_t late_ns);
weft_comm_lateness coll_comm_lateness(const weft_comm *comm, int peer);

/* Whether a platform's communicator moves the group's data. */
static inline bool coll_group_has_platform(const coll_group *g) { return g->communicator != &g->host; }

/* Whether a platform's communicator gets the operation when its ranks have met. */
static inline bool coll_op_goes_below(const coll_op *op)
{
  return coll_group_has_platform(op->comm->group) && !op->by_host;
}

/* Spends the group: all its operations end with copies of `st` (taken), links close, and the peers are informed.  A
 * group that is spent already keeps its error. */
void coll_group_fail_locked(coll_group *g, weft_status *st) WEFT_REQUIRES(g->mu);

/* Aborts the platform's communicator of a group that has failed, if that was put off: when no half-ended operation is
 * left, or the time for them is over. */
void coll_group_stop_platform_locked(coll_group *g, int64_t now_ns) WEFT_REQUIRES(g->mu);

/* A member of incarnation `incarnation` has died, and nothing goes on.  0: the member cannot be reached, but may be
 * alive. */
void coll_group_lose_member_locked(coll_group *g, uint64_t incarnation, weft_status *st) WEFT_REQUIRES(g->mu);

/* How many collectives the rank has posted, which is the number of the next. */
static inline uint64_t coll_comm_posted(const weft_comm *comm)
{
  return atomic_load_explicit(&comm->turn, memory_order_relaxed) / COLL_TURN_NEXT;
}

/* Clears and sets flags of comm->turn, adds `add`, and returns the old value.  A plain store under the lock is
 * enough where no thread runs alone or can begin to. */
static inline uint64_t coll_comm_change_turn_locked(weft_comm *comm, uint64_t clear, uint64_t set, uint64_t add)
  WEFT_REQUIRES_ASSERTED(comm->group->mu)
{
  weft_mutex_assert_held(&comm->group->mu);
  uint64_t old = atomic_load_explicit(&comm->turn, memory_order_relaxed);

  if (!comm->group->use_direct || old % COLL_TURN_NEXT == COLL_TURN_QUEUED)
    atomic_store_explicit(&comm->turn, ((old & ~clear) | set) + add, memory_order_release);
  else
    while (!atomic_compare_exchange_weak(&comm->turn, &old, ((old & ~clear) | set) + add)) {}
  return old;
}

/* Keeps an operation's memory for the next post of its rank.  False: the rank has such memory already. */
static inline bool coll_op_spare(coll_op *op, bool alone)
{
  if (atomic_load_explicit(&op->comm->spare[alone], memory_order_relaxed)) return false;
  atomic_store_explicit(&op->comm->spare[alone], op,
                        memory_order_release); /* only this thread may fill it; pairs with coll_comm_spare */
  return true;
}

static inline coll_op *coll_comm_spare(weft_comm *comm, bool alone)
{
  if (!atomic_load_explicit(&comm->spare[alone], memory_order_relaxed)) return NULL;
  return atomic_exchange_explicit(&comm->spare[alone], NULL, memory_order_acquire);
}

/* ---- post.c ---- */

/* As weft_coll_post, for arrays in the host's memory: the host moves the data, whatever moves that of other
 * operations.  The rank has no other operation pending. */
WEFT_NODISCARD weft_status *coll_post_by_host(weft_comm *comm, const weft_coll_op *op, const weft_coll_call *call,
                                              weft_event **out_event);

/* ---- comm.c ---- */

typedef struct coll_split {
  const int *colors; /* [count] by rank of this process, as the next two are; -1: the rank joins no part */
  const int *keys;   /* NULL: zeros */
  const int *sizes;  /* ranks that the part must have; NULL, 0: any number */
  weft_deadline deadline;
  const atomic_bool *cancel; /* optional: the split ends soon after it becomes true, and the parent fails */
} coll_split;

/* As weft_comm_split.  A part for which fewer ranks ask than each of them gives is not made: the communicators of these
 * ranks in out_comms are NULL. */
WEFT_NODISCARD weft_status *coll_comm_split(weft_comm *const *comms, int count, const coll_split *wanted,
                                            weft_comm **out_comms);

/* ---- names.c ---- */

/* Writes, for example: all-reduce f32[1024] sum "all-reduce.12".  `kind`, `dtype` and `reduction` may come from a
 * peer and be unknown values; `name` may be NULL. */
void coll_describe(int kind, int dtype, uint64_t count, int reduction, const char *name, char *out, size_t size);

/* One line about an operation: all-reduce f32[1024] sum "all-reduce.12" (seq 5). */
void coll_op_describe(const coll_op *op, char *out, size_t size);

/* FAILED_PRECONDITION whose text has both operations. */
weft_status *coll_op_disagreement(const coll_op *a, const coll_op *b);

/* Continues the hash `h` (FNV-1a) over the bytes of `text`. */
uint64_t coll_hash_text(const char *text, uint64_t h);

/* "rank 3 (device 7 on host-b, pid 12)" */
void coll_rank_describe(const coll_group *g, int rank, char *out, size_t size);

#endif
