/* gpu/nccl.c -- communicators of NCCL: their owners, and how operations and communicators end (nccl.h).
 *
 *   post (group's lock) -> waiting -> owner: queues it on the stream -> flying -> the stream has done it (completer)
 *     -> landed -> owner: frees what was staged -> ender: coll_communicator_ended
 *
 * After an abort or an error the owner aborts the library's communicator, which stops its device's work.  Operations in
 * `waiting` then end at once; operations that fly end when the stream has drained.
 *
 * A communicator is divided by its owners (ncclCommSplit), each of which hands what it has made to the owner of the
 * rank in the part.
 *
 * Memory of collectives (collective_memory.h) is registered with the library by the first collective that uses it, if
 * all ranks have told each other the same *place*: for the operand and the result, the number of the registration of
 * the block in which it lies, or that there is none, and the offset in the block.  So all ranks register the same
 * blocks in the same order, and addresses of an operation have the same offsets in their windows.  Where places
 * differ, every rank first ends its registrations of the operation's blocks; after MOST_DIFFERENCES such operations no
 * rank registers blocks of that kind any more: arenas of collectives, whose places seldom differ, or plain memory,
 * whose places differ where the ranks' runtimes take it from their caches in different orders.  `place` and `post` keep
 * the books, under the group's lock; owners call the library, in the order of the operations.
 *
 * Locks: a rank's lock is taken under the group's lock and under the completer's; it is a leaf, as the ender's is. */
#include <config.h>

#include "gpu/nccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/swap.h"
#include "collective/host/schedule.h"
#include "gpu/heritage.h"
#include "gpu/jobs.h"
#include "gpu/nccl_calls.h"

enum { LEAST_POLL_US = 10, MOST_POLL_US = 1000, LOOK_MS = 20, ID_SLICE_MS = 50, GONE_MS = 200, REVOKE_MS = 2000, KEPT_MS = 60000,
       JOIN_MS = 10000, GRACE_MS = 700, MOST_TOGETHER = 64 };
enum { MOST_DIFFERENCES = 16 };
enum { WINDOWS_SINCE = 22700 };
enum { SHRINKS_SINCE = 22700 }; /* the version of the library from which on it shrinks communicators */
#define FINALIZE_NS (5 * WEFT_NS_PER_S)

typedef gpu_nccl_rank rank;
typedef struct communicator communicator;

/* A rank's way into its part when its communicator is divided.  The owner and the thread that asks for the division
 * have a reference each: that thread does not wait for an owner in a call of the library that does not return. */
typedef struct branch {
  atomic_int refs;
  int color, key;           /* color: WNC_SPLIT_NOCOLOR for a rank that needs no communicator of the library */
  weft_deadline deadline;
  atomic_bool give_up;
  bool done;                /* guarded by the lock of the rank that is divided, as the next three are */
  bool left;                /* the thread that asked has gone: the owner aborts what it has made */
  wnc_comm made;
  weft_status *error;
} branch;

/* A block that a rank has registered, or is to register.  The list of the rank has it until a job takes it to end the
 * registration, or it is gone; the owner frees it. */
typedef struct registration {
  gpu_block_hold hold;     /* first; the owner's */
  struct registration *next;
  rank *of;
  gpu_extent at;
  uint64_t number;         /* 1, 2, ...: the same on all ranks */
  bool made;               /* the owner's: the library knows it */
  bool gone;               /* guarded by the rank's lock: the runtime has given the block back */
  void *handle;            /* the owner's: of the library; NULL: the library does without */
} registration;

/* What an operation does to the registrations of its rank before it begins. */
typedef struct job {
  gpu_job base;            /* first */
  registration *ends;      /* a list, which the job has */
  registration *begins[2]; /* of the rank's list; NULL: none */
} job;

struct rank {
  communicator *all;
  int rank, local;
  gpu_device *gpu;
  int64_t device_id;
  weft_stream *stream;
  wnc_comm comm;           /* the owner's */
  wnc_comm parent;         /* the owner's: what becomes `comm` by being shrunk */
  weft_deadline leave_by;  /* the owner's; also of a revocation */
  weft_deadline kept_until; /* the owner's: when what it has left in the heirloom goes; {0}: it has left nothing */
  const branch *dividing;  /* the owner's */
  /* the owner's: why the library has stopped what the device does for the rank.  Operations that land after that may
   * not have moved all their data.  NULL: it has not */
  weft_status *stopped;
  pthread_t thread;
  bool started;
  weft_mutex mu;
  weft_cond wake;
  gpu_jobs waiting WEFT_GUARDED_BY(mu);
  gpu_jobs landed WEFT_GUARDED_BY(mu);
  int flying WEFT_GUARDED_BY(mu);
  branch *wanted WEFT_GUARDED_BY(mu); /* the division that the owner has not begun; holds the owner's reference */
  registration *registrations WEFT_GUARDED_BY(mu); /* a list: there are few */
  uint64_t registered WEFT_GUARDED_BY(mu); /* number of the last registration */
  int differences[2] WEFT_GUARDED_BY(mu);  /* operations whose ranks had different places, by gpu_extent.plain */
  bool block_gone WEFT_GUARDED_BY(mu);     /* a registration is `gone` */
  uint64_t epoch WEFT_GUARDED_BY(mu);      /* see gpu_nccl_epoch */
  gpu_jobs held WEFT_GUARDED_BY(mu);       /* their posters queue them: gpu_hold */
  struct put *put WEFT_GUARDED_BY(mu);     /* what the owner is to queue for another thread: holds a reference */
  gpu_lease *leases;       /* guarded by gpu_device.talk_mu, as the next is */
  bool over;               /* the library's communicator ends, or has ended */
  bool ready WEFT_GUARDED_BY(mu);   /* the library's communicator has been made, or `failure` is set */
  bool stop WEFT_GUARDED_BY(mu);
  weft_status *failure WEFT_GUARDED_BY(mu); /* error of making the communicator */
  const char *state WEFT_GUARDED_BY(mu);    /* for reports; static */
  atomic_bool abort;
  gpu_job_pool pool;
};

struct communicator {
  coll_communicator base;  /* first */
  coll_communicator *whole; /* the communicator that the group knows: often this one */
  weft_platform *platform;
  gpu_ender *ender;
  int size, count;
  int version;
  bool is_part;               /* its ranks get what the owners of the whole have made of theirs */
  wnc_unique_id id;
  gpu_heirloom *heirloom;     /* for later communicators; NULL: nothing is left to them */
  int *left_out, left_out_count; /* ranks of the parents that this communicator does not have */
  weft_deadline deadline;     /* of making it */
  atomic_bool give_up;        /* it will not be made: an owner has failed, or the caller gives up */
  rank ranks[];               /* [count] */
};

/* No two ranks have the same epoch at any time. */
static uint64_t next_epoch(void)
{
  static _Atomic uint64_t epochs;

  return atomic_fetch_add(&epochs, 1) + 1;
}

/* ---- polling ---------------------------------------------------------------------------------------------------- */

static void set_state(rank *r, const char *state)
{
  weft_mutex_lock(&r->mu);
  r->state = state;
  weft_mutex_unlock(&r->mu);
}

/* Tells an owner why its communicator cannot be made; NULL: there is no reason.  An owner may come back from a call of
 * the library when the caller of `create` has gone, so it does not look at the caller's spec. */
static weft_status *owner_ends(const rank *r)
{
  const communicator *c = r->all;

  if (atomic_load(&c->give_up)) return WEFT_ERR(CANCELLED, "another rank of this process gave up");
  if (weft_deadline_passed(c->deadline))
    return WEFT_ERR(DEADLINE_EXCEEDED, "NCCL has not connected rank %d with the %d others", r->rank, c->size - 1);
  return NULL;
}

/* Tells the thread that calls `create` the same.  *ask_ns: when to ask next whether a rank has gone. */
static weft_status *creation_ends(const communicator *c, const weft_comm_spec *spec, int64_t *ask_ns)
{
  if (spec->cancel && atomic_load(spec->cancel))
    return WEFT_ERR(CANCELLED, "the creation of the communicator was cancelled");
  WEFT_TRY(owner_ends(&c->ranks[0]));
  if (!spec->gone || spec->rank_count == spec->size || weft_now_ns() < *ask_ns) return NULL;
  *ask_ns = weft_now_ns() + GONE_MS * WEFT_NS_PER_MS; /* asking reads the key-value store */
  for (int other = 0, here = 0; other < spec->size; other++) {
    if (here < spec->rank_count && spec->ranks[here] == other) {
      here++;
      continue;
    }
    WEFT_TRY(spec->gone(spec->gone_ctx, other));
  }
  return NULL;
}

static weft_status *aborted(const rank *r)
{
  return atomic_load(&r->abort) ? WEFT_ERR(ABORTED, "the communicator was aborted") : NULL;
}

/* Polls until the library is done with the call before on `comm`.  `ends` says why the owner stops waiting. */
static weft_status *await_on(rank *r, wnc_comm comm, const char *call, weft_status *(*ends)(const rank *r))
{
  useconds_t pause_us = LEAST_POLL_US;
  int64_t look_ns = 0;

  for (;;) {
    wnc_result state = WNC_Success;
    WEFT_TRY(gpu_nccl_error(gpu_nccl()->ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError", comm));
    if (state != WNC_InProgress) return gpu_nccl_error(state, call, comm);
    if (weft_now_ns() >= look_ns) {
      weft_status *st = ends(r);
      if (st) return st;
      look_ns = weft_now_ns() + LOOK_MS * WEFT_NS_PER_MS / 4;
    }
    usleep(pause_us);
    pause_us = WEFT_MIN(2 * pause_us, (useconds_t)MOST_POLL_US);
  }
}

static weft_status *await_call(rank *r, const char *call, weft_status *(*ends)(const rank *r))
{
  return await_on(r, r->comm, call, ends);
}

static void abort_one(const rank *r, wnc_comm comm)
{
  if (!comm) return;
  weft_status *st = gpu_nccl_error(gpu_nccl()->ncclCommAbort(comm), "ncclCommAbort", NULL);
  if (st) WEFT_LOG("gpu", WARN, "rank %d: %s", r->rank, weft_status_message(st));
  weft_status_free(st);
}

/* ---- registered memory ------------------------------------------------------------------------------------------ */

static bool has_windows(int version)
{
  return version >= WINDOWS_SINCE && gpu_nccl()->ncclCommWindowRegister && gpu_nccl()->ncclCommWindowDeregister;
}

bool gpu_nccl_registers(void)
{
  int version;
  weft_status *st = gpu_nccl_open(&version);
  bool registers = !st && (has_windows(version) || (gpu_nccl()->ncclCommRegister && gpu_nccl()->ncclCommDeregister));

  weft_status_free(st);
  return registers;
}

bool gpu_nccl_divides(void)
{
  int version;
  weft_status *st = gpu_nccl_open(&version);
  bool divides = !st && gpu_nccl()->ncclCommSplit;

  weft_status_free(st);
  return divides;
}

/* ---- what others have recorded of the communicator --------------------------------------------------------------- */

/* Ends graphs with operations of the communicator: the library wants that before the communicator ends, and nobody may
 * launch them afterwards. */
static void end_leases(rank *r)
{
  weft_mutex_lock(&r->gpu->talk_mu);
  r->over = true;
  for (gpu_lease *lease = WEFT_MOVE(r->leases), *next; lease; lease = next) {
    next = lease->next;
    lease->rank = NULL;
    lease->end(lease);
  }
  weft_mutex_unlock(&r->gpu->talk_mu);
}

static void free_registration(rank *r, registration *g)
{
  gpu_block_release(r->gpu, &g->hold);
  free(g);
}

static void free_registrations(rank *r, registration *first)
{
  for (registration *g = first, *next; g; g = next) {
    next = g->next;
    free_registration(r, g);
  }
}

/* The library's communicator has ended, and its registrations with it. */
static void forget_registrations(rank *r)
{
  weft_mutex_lock(&r->mu);
  registration *all = WEFT_MOVE(r->registrations);
  weft_mutex_unlock(&r->mu);
  free_registrations(r, all);
}

static void abort_comm(rank *r)
{
  end_leases(r);
  abort_one(r, WEFT_MOVE(r->comm));
  forget_registrations(r);
}

/* gpu_block_hold.given_back */
static void block_given_back(gpu_block_hold *hold)
{
  registration *g = (registration *)hold;
  rank *r = g->of;

  weft_mutex_lock(&r->mu);
  g->gone = r->block_gone = true;
  weft_cond_broadcast(&r->wake);
  weft_mutex_unlock(&r->mu);
}

static weft_status *make_registration(rank *r, registration *g)
{
  const gpu_nccl_entries *calls = gpu_nccl();
  void *at = (void *)(uintptr_t)g->at.base; /* NOLINT */
  bool windows = has_windows(r->all->version);
  const char *call = windows ? "ncclCommWindowRegister" : "ncclCommRegister";
  wnc_window window = NULL;

  if (!gpu_block_take_hold(r->gpu, g->at.base, &g->hold)) return WEFT_ERR(INTERNAL, "a block of collectives has gone");
  set_state(r, "registering memory");
  wnc_result result =
    windows ? calls->ncclCommWindowRegister(r->comm, at, (size_t)g->at.bytes, &window, WNC_WIN_COLL_SYMMETRIC)
            : calls->ncclCommRegister(r->comm, at, (size_t)g->at.bytes, &g->handle);
  WEFT_TRY(gpu_nccl_error(result, call, r->comm));
  if (result == WNC_InProgress) WEFT_TRY(await_call(r, call, aborted)); /* writes the handle */
  if (windows) g->handle = window;
  g->made = true;
  WEFT_LOG("gpu", DEBUG, "rank %d: %lld bytes are registered with NCCL", r->rank, (long long)g->at.bytes);
  return NULL;
}

/* Ends a registration, which is no longer in the list.  Frees it, also after an error. */
static weft_status *end_registration(rank *r, registration *g)
{
  const gpu_nccl_entries *calls = gpu_nccl();
  bool windows = has_windows(r->all->version);
  const char *call = windows ? "ncclCommWindowDeregister" : "ncclCommDeregister";
  weft_status *st = NULL;

  if (g->made && g->handle && r->comm) {
    wnc_result result = windows ? calls->ncclCommWindowDeregister(r->comm, g->handle)
                                : calls->ncclCommDeregister(r->comm, g->handle);
    st = gpu_nccl_error(result, call, r->comm);
    if (!st && result == WNC_InProgress) st = await_call(r, call, aborted);
  }
  free_registration(r, g);
  return st;
}

/* Ends registrations of a list, which the caller has taken. */
static weft_status *end_registrations(rank *r, registration *first)
{
  weft_status *st = NULL;

  for (registration *g = first, *next; g; g = next) {
    next = g->next;
    weft_status *own = end_registration(r, g);
    if (st) weft_status_free(own);
    else st = own;
  }
  return st;
}

static weft_status *end_all_registrations(rank *r)
{
  weft_mutex_lock(&r->mu);
  registration *all = WEFT_MOVE(r->registrations);
  weft_mutex_unlock(&r->mu);
  return end_registrations(r, all);
}

/* Ends registrations of blocks that the runtime has given back: no operation uses them. */
static void end_gone(rank *r)
{
  registration *gone = NULL;

  weft_mutex_lock(&r->mu);
  r->block_gone = false;
  for (registration **at = &r->registrations, *g; (g = *at);) {
    if (!g->gone) {
      at = &g->next;
      continue;
    }
    *at = g->next;
    g->next = gone;
    gone = g;
    r->epoch = next_epoch();
  }
  weft_mutex_unlock(&r->mu);
  weft_status *st = end_registrations(r, gone);
  if (st) WEFT_LOG("gpu", WARN, "rank %d: %s", r->rank, weft_status_message(st));
  weft_status_free(st);
}

/* Waits until no operation is on the stream: the library does not say that registrations may end before. */
static weft_status *await_landing(rank *r)
{
  bool flies = true;

  while (flies) {
    WEFT_TRY(aborted(r));
    weft_mutex_lock(&r->mu);
    flies = r->flying > 0;
    if (flies) weft_cond_wait(&r->wake, &r->mu, weft_deadline_after_ms(LOOK_MS));
    weft_mutex_unlock(&r->mu);
  }
  return NULL;
}

/* Does what a job wants to be done to registrations before its operation. */
static weft_status *change_registrations(rank *r, job *j)
{
  weft_status *st = j->ends ? await_landing(r) : NULL;
  weft_status *ended = end_registrations(r, WEFT_MOVE(j->ends));

  if (st) weft_status_free(ended);
  else st = ended;
  for (size_t i = 0; i < WEFT_COUNT(j->begins) && !st; i++)
    if (j->begins[i]) st = make_registration(r, j->begins[i]);
  return st;
}

/* Notes that the library's communicator of the rank is about to stop: for the reason `why`, or for the group's. */
static void note_stop(rank *r, const weft_status *why)
{
  if (r->stopped) return;
  r->stopped = why ? weft_status_dup(why) : WEFT_ERR(ABORTED, "the communicator was aborted");
}

/* ---- what is left to survivors ---------------------------------------------------------------------------------- */

static weft_status *revoking_ends(const rank *r)
{
  return weft_deadline_passed(r->leave_by) ? WEFT_ERR(DEADLINE_EXCEEDED, "the device has not stopped in time") : NULL;
}

/* Ends what the device does for the rank. */
static weft_status *stop_device(rank *r)
{
  wnc_result state = WNC_Success;

  r->leave_by = weft_deadline_after_ms(REVOKE_MS);
  WEFT_TRY(gpu_nccl_error(gpu_nccl()->ncclCommGetAsyncError(r->comm, &state), "ncclCommGetAsyncError", r->comm));
  WEFT_TRY(gpu_nccl_error(state, "NCCL", r->comm)); /* what has failed by itself cannot be shrunk */
  WEFT_TRY(gpu_nccl_error(gpu_nccl()->ncclCommRevoke(r->comm, 0), "ncclCommRevoke", r->comm));
  return await_call(r, "ncclCommRevoke", revoking_ends);
}

/* The group has failed: what is under way ends.  A communicator that can be shrunk is kept for a while. */
static void end_comm(rank *r)
{
  gpu_heirloom *h = r->all->heirloom;
  const gpu_nccl_entries *calls = gpu_nccl();

  if (!h || r->kept_until.at_ns) {
    if (r->comm) note_stop(r, NULL);
    abort_comm(r);
    return;
  }
  weft_status *st = NULL;
  note_stop(r, NULL);
  end_leases(r);
  weft_mutex_lock(&r->mu);
  bool busy = r->flying > 0;
  weft_mutex_unlock(&r->mu);
  if (r->comm && calls->ncclCommRevoke) st = stop_device(r);
  else if (r->comm && busy) st = WEFT_ERR(UNAVAILABLE, "this NCCL has no ncclCommRevoke");
  if (!st) st = end_all_registrations(r);
  if (st) {
    WEFT_LOG("gpu", INFO, "rank %d: nothing is left to survivors: %s", r->rank, weft_status_message(st));
    abort_comm(r);
  }
  weft_status_free(st);
  gpu_heirloom_keep(h, r->local, WEFT_MOVE(r->comm));
  r->kept_until = weft_deadline_after_ms(KEPT_MS);
}

/* What nobody has taken in time is of no use any more. */
static void drop_kept(rank *r)
{
  if (r->kept_until.at_ns) abort_one(r, gpu_heirloom_reclaim(r->all->heirloom, r->local));
  r->kept_until = WEFT_NO_DEADLINE;
}

/* ---- making a rank's communicator -------------------------------------------------------------------------------- */

/* Makes the rank's communicator of its parent, which is of no use after that. */
static weft_status *shrink(rank *r, wnc_config *config)
{
  const communicator *all = r->all;
  wnc_comm parent = r->parent;
  int *left_out = malloc((size_t)all->left_out_count * sizeof *left_out); /* the library sorts it */

  WEFT_TRY_ALLOC(left_out);
  memcpy(left_out, all->left_out, (size_t)all->left_out_count * sizeof *left_out);
  wnc_result result =
    gpu_nccl()->ncclCommShrink(parent, left_out, all->left_out_count, &r->comm, config, WNC_SHRINK_ABORT);
  weft_status *st = gpu_nccl_error(result, "ncclCommShrink", parent);
  if (!st) st = await_on(r, parent, "ncclCommShrink", owner_ends);
  if (!st && !r->comm) st = WEFT_ERR(INTERNAL, "ncclCommShrink: there is no communicator");
  if (!st) st = await_call(r, "ncclCommShrink", owner_ends);
  free(left_out);
  if (st) abort_comm(r);
  abort_one(r, WEFT_MOVE(r->parent));
  return st;
}

static weft_status *init(rank *r)
{
  communicator *all = r->all;
  wnc_config config = WNC_CONFIG(WEFT_MIN(all->version, (int)WNC_VERSION));

  if (all->size == 1) return NULL; /* all operations are copies */
  if (all->is_part) return r->comm ? NULL : WEFT_ERR(CANCELLED, "another rank of this process gave up");
  config.blocking = 0;
  if (r->parent) return shrink(r, &config);
  wnc_result result = gpu_nccl()->ncclCommInitRankConfig(&r->comm, all->size, all->id, r->rank, &config);
  weft_status *st = gpu_nccl_error(result, "ncclCommInitRankConfig", NULL);
  if (!st && !r->comm) return WEFT_ERR(INTERNAL, "ncclCommInitRankConfig: there is no communicator");
  if (!st) st = await_call(r, "ncclCommInitRankConfig", owner_ends);
  if (st) abort_comm(r);
  return st;
}

static void report_ready(rank *r, weft_status *st)
{
  weft_mutex_lock(&r->mu);
  r->failure = st;
  r->ready = true;
  r->state = st ? "not made" : "idle";
  weft_cond_broadcast(&r->wake);
  weft_mutex_unlock(&r->mu);
  if (st) atomic_store(&r->all->give_up, true);
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

/* On the completer's thread, under its lock. */
static void land(void *ctx, const weft_status *error)
{
  gpu_job *j = ctx;
  rank *r = WEFT_CONTAINER_OF(j->pool, rank, pool);

  if (error && !j->error) j->error = weft_status_dup(error);
  weft_mutex_lock(&r->mu);
  r->flying--;
  gpu_jobs_push(&r->landed, j);
  weft_cond_broadcast(&r->wake);
  weft_mutex_unlock(&r->mu);
}

static weft_status *queue_one(rank *r, gpu_job *j, bool *out_in_progress)
{
  gpu_nccl_place place = {
    .comm = r->comm, .size = r->all->size, .rank = r->rank, .stream = gpu_stream_handle(r->stream), .staged = &j->staged};
  return gpu_nccl_queue(&place, &j->posting, out_in_progress);
}

static int ordinal_of(const rank *r) { return (int)(r->gpu - ((const gpu_platform *)r->all->platform)->gpus); }

/* Queues jobs that may end together, as one group of the library. */
static weft_status *queue_group(rank *r, gpu_job *first, bool *out_in_progress)
{
  WEFT_TRY(gpu_nccl_error(gpu_nccl()->ncclGroupStart(), "ncclGroupStart", r->comm));
  weft_status *st = NULL;
  for (gpu_job *j = first; j && !st; j = j->next) st = queue_one(r, j, out_in_progress);
  wnc_result result = gpu_nccl()->ncclGroupEnd(); /* also after an error: the group must not stay open on this thread */
  *out_in_progress = result == WNC_InProgress;
  return st ? st : gpu_nccl_error(result, "ncclGroupEnd", r->comm);
}

static weft_status *queue(rank *r, gpu_job *first)
{
  bool in_progress = false;
  gpu_timed timed;

  /* if that stream is broken, `land` gets the stream's error */
  for (gpu_job *j = first; j; j = j->next) WEFT_TRY(gpu_await_input(r->stream, &j->posting));
  for (gpu_job *j = first; j; j = j->next) WEFT_TRY(change_registrations(r, (job *)j));
  rt_trace_step about = gpu_job_trace(first, ordinal_of(r));
  gpu_stream_time(r->stream, &about, &timed);
  set_state(r, "in a call of the library");
  weft_status *st = first->next ? queue_group(r, first, &in_progress) : queue_one(r, first, &in_progress);
  if (!st && in_progress) st = await_call(r, weft_coll_kind_name(first->posting.args->kind), aborted);
  gpu_stream_time_end(r->stream, &timed);
  gpu_stream_used(r->stream);
  return st;
}

/* The operation's ranks have met: from now on its poster may take it back. */
static void hold(rank *r, gpu_job *j)
{
  gpu_hold *h = j->posting.hold;

  weft_mutex_lock(&r->mu);
  gpu_jobs_push(&r->held, j);
  r->state = "waiting for its graph";
  weft_mutex_unlock(&r->mu);
  gpu_hold_count(h); /* the poster may have taken the job back, and freed the hold */
}

/* Ends jobs that nobody has taken back, after an abort. */
static void end_held(rank *r)
{
  weft_mutex_lock(&r->mu);
  gpu_job *first = gpu_jobs_pop_all(&r->held);
  for (gpu_job *j = first; j; j = j->next) r->flying++;
  weft_mutex_unlock(&r->mu);
  for (gpu_job *j = first, *next; j; j = next) {
    next = j->next;
    j->error = WEFT_ERR(ABORTED, "the communicator was aborted");
    j->call = (weft_stream_call){.fn = land, .ctx = j};
    gpu_stream_notify(r->stream, &j->call);
  }
}

/* The communicator of a rank whose operation has failed stops, so that the stream drains. */
static void launch(rank *r, gpu_job *first)
{
  if (first->posting.hold && (r->comm || r->all->size == 1)) {
    weft_status *changed = change_registrations(r, (job *)first);
    if (!changed) {
      hold(r, first);
      return;
    }
    WEFT_LOG("gpu", WARN, "rank %d: %s", r->rank, weft_status_message(changed));
    weft_status_free(changed);
    abort_comm(r);
  }
  gpu_hold *missed = first->posting.hold;
  weft_status *st = r->comm || r->all->size == 1 ? queue(r, first) : WEFT_ERR(ABORTED, "the communicator was aborted");

  if (st) {
    note_stop(r, st);
    abort_comm(r);
  }
  for (gpu_job *j = first, *next; j; j = next) {
    next = j->next;
    free_registrations(r, WEFT_MOVE(((job *)j)->ends)); /* those that an error has left */
    j->error = weft_status_dup(st);
    weft_mutex_lock(&r->mu);
    r->flying++;
    r->state = "its stream is working";
    weft_mutex_unlock(&r->mu);
    j->call = (weft_stream_call){.fn = land, .ctx = j};
    if (missed) gpu_hold_count(missed); /* before the operation ends: talk.c frees the hold then */
    gpu_stream_notify(r->stream, &j->call);
  }
  weft_status_free(st);
}

/* An error that the library reports by itself while operations are under way. */
static void look_for_errors(rank *r)
{
  wnc_result state = WNC_Success;
  weft_status *st;

  if (!r->comm) return;
  st = gpu_nccl_error(gpu_nccl()->ncclCommGetAsyncError(r->comm, &state), "ncclCommGetAsyncError", r->comm);
  if (!st) st = gpu_nccl_error(state, "NCCL", r->comm);
  if (!st) return;
  note_stop(r, st);
  abort_comm(r);
  coll_communicator_failed(
    r->all->whole, weft_status_note(st, __FILE__, __LINE__, "rank %d (device %lld)", r->rank, (long long)r->device_id));
}

/* ---- dividing a rank's communicator ------------------------------------------------------------------------------ */

static void branch_release(branch *b)
{
  if (atomic_fetch_sub(&b->refs, 1) > 1) return;
  weft_status_free(b->error);
  free(b);
}

static weft_status *branch_ends(const rank *r)
{
  if (atomic_load(&r->dividing->give_up)) return WEFT_ERR(CANCELLED, "another rank of this process gave up");
  if (weft_deadline_passed(r->dividing->deadline))
    return WEFT_ERR(DEADLINE_EXCEEDED, "NCCL has not divided the communicator of rank %d", r->rank);
  return aborted(r);
}

static weft_status *split(rank *r, const branch *b, wnc_comm *out)
{
  wnc_config config = WNC_CONFIG(WEFT_MIN(r->all->version, (int)WNC_VERSION));

  if (r->all->size == 1) return NULL; /* its part is as large */
  if (!r->comm) return WEFT_ERR(ABORTED, "the communicator was aborted");
  config.blocking = 0;
  wnc_result result = gpu_nccl()->ncclCommSplit(r->comm, b->color, b->key, out, &config);
  WEFT_TRY(gpu_nccl_error(result, "ncclCommSplit", r->comm));
  WEFT_TRY(await_call(r, "ncclCommSplit", branch_ends));
  if (b->color < 0) return NULL;
  if (!*out) return WEFT_ERR(INTERNAL, "ncclCommSplit: there is no communicator");
  return await_on(r, *out, "ncclCommSplit", branch_ends);
}

/* After an error the state of the communicator that was to be divided is not known, so it ends too. */
static void take_branch(rank *r, branch *b)
{
  wnc_comm made = NULL;

  set_state(r, "being divided");
  r->dividing = b;
  weft_status *st = split(r, b, &made);
  r->dividing = NULL;
  if (st) {
    abort_one(r, WEFT_MOVE(made));
    if (r->comm) coll_communicator_failed(r->all->whole, weft_status_dup(st));
    abort_comm(r);
  }
  weft_mutex_lock(&r->mu);
  b->error = st;
  b->done = true;
  if (!b->left) b->made = WEFT_MOVE(made);
  weft_cond_broadcast(&r->wake);
  weft_mutex_unlock(&r->mu);
  abort_one(r, made);
  branch_release(b);
}

/* ---- for graphs -------------------------------------------------------------------------------------------------- */

/* An operation that the owner queues for another thread, which may leave: then the owner is in a call of the library
 * that does not return. */
typedef struct put {
  atomic_int refs;
  weft_coll_op args;
  coll_problem problem;
  wcu_stream stream;
  gpu_job *job;        /* NULL: none.  It lives until the owner has returned from the call, as the owner ends it */
  bool done;           /* guarded by the rank's lock */
  weft_status *error;  /* likewise */
} put;

static void put_release(put *p)
{
  if (atomic_fetch_sub(&p->refs, 1) > 1) return;
  weft_status_free(p->error);
  free(p);
}

/* The owner's side. */
static void do_put(rank *r, put *p)
{
  coll_posting posting = {.rank = r->rank, .local = r->local, .args = &p->args, .problem = &p->problem};
  gpu_nccl_place place = {.comm = r->comm, .size = r->all->size, .rank = r->rank, .stream = p->stream,
                          .staged = p->job ? &p->job->staged : NULL};
  bool in_progress = false;
  weft_status *st = NULL;

  if (!r->comm && r->all->size > 1) st = WEFT_ERR(ABORTED, "the communicator was aborted");
  if (!st) st = gpu_nccl_queue(&place, &posting, &in_progress);
  if (!st && in_progress) st = await_call(r, weft_coll_kind_name(p->args.kind), aborted);
  weft_mutex_lock(&r->mu);
  p->error = st;
  p->done = true;
  weft_cond_broadcast(&r->wake);
  weft_mutex_unlock(&r->mu);
  put_release(p);
}

weft_status *gpu_nccl_put(rank *r, gpu_job *job, const weft_coll_op *args, const coll_problem *problem,
                          wcu_stream stream, weft_deadline until)
{
  put *p = calloc(1, sizeof *p);
  bool aborts = false;
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(p);
  *p = (put){.args = *args, .problem = *problem, .stream = stream, .job = job};
  atomic_init(&p->refs, 2);
  weft_mutex_lock(&r->mu);
  r->put = p;
  weft_cond_broadcast(&r->wake);
  while (!p->done && !weft_deadline_passed(until)) {
    weft_cond_wait(&r->wake, &r->mu, weft_deadline_after_ms(LOOK_MS));
    if (!aborts && (aborts = atomic_load(&r->abort)))
      until = weft_deadline_min(until, weft_deadline_after_ms(GRACE_MS));
  }
  if (p->done) st = WEFT_MOVE(p->error);
  else st = WEFT_ERR(ABORTED, "rank %d is in a call of NCCL that does not return", r->rank);
  if (!p->done && r->put == p) {
    r->put = NULL;
    atomic_fetch_sub(&p->refs, 1);
  }
  weft_mutex_unlock(&r->mu);
  put_release(p);
  return st;
}

void gpu_hold_count(gpu_hold *h)
{
  if (atomic_fetch_sub(&h->left, 1) == 1) h->met(h);
}

gpu_nccl_rank *gpu_nccl_local_rank(coll_communicator *c, int local) { return &((communicator *)c)->ranks[local]; }

uint64_t gpu_nccl_epoch(rank *r)
{
  weft_mutex_lock(&r->mu);
  uint64_t epoch = r->epoch;
  weft_mutex_unlock(&r->mu);
  return epoch;
}

bool gpu_nccl_lend(rank *r, gpu_lease *lease)
{
  if (r->over) return false;
  lease->rank = r;
  lease->next = r->leases;
  r->leases = lease;
  return true;
}

void gpu_nccl_give_up(gpu_lease *lease)
{
  if (!lease->rank) return;
  gpu_lease **at = &lease->rank->leases;
  while (*at != lease) at = &(*at)->next;
  *at = lease->next;
  lease->rank = NULL;
}

gpu_job *gpu_nccl_take(rank *r, const gpu_hold *h)
{
  gpu_jobs taken, left;

  gpu_jobs_init(&taken);
  gpu_jobs_init(&left);
  weft_mutex_lock(&r->mu);
  for (gpu_job *j = gpu_jobs_pop_all(&r->held), *next; j; j = next) {
    next = j->next;
    gpu_jobs_push(j->posting.hold == h ? &taken : &left, j);
    r->flying += j->posting.hold == h;
  }
  for (gpu_job *j = gpu_jobs_pop_all(&left), *next; j; j = next) {
    next = j->next;
    gpu_jobs_push(&r->held, j);
  }
  r->state = "its graph is working";
  weft_cond_broadcast(&r->wake); /* the owner looks for errors while operations are under way */
  weft_mutex_unlock(&r->mu);
  return taken.first;
}

void gpu_nccl_queued(gpu_job *j, weft_stream *compute, weft_status *st)
{
  j->error = st;
  j->call = (weft_stream_call){.fn = land, .ctx = j};
  gpu_stream_notify(compute, &j->call);
}

/* What an owner has to do next. */
typedef struct turn {
  gpu_job *landed, *next; /* next: jobs that the library gets at once, linked */
  branch *branch;
  struct put *put;
  bool stop, looks, gone;
} turn;

/* Takes the job that has waited longest, and those behind it that may end together with it. */
static gpu_job *take_waiting_locked(rank *r) WEFT_REQUIRES(r->mu)
{
  weft_mutex_assert_held(&r->mu);
  gpu_job *first = gpu_jobs_pop(&r->waiting), *last = first;

  if (first) first->next = NULL;
  for (int n = 1; first && !first->posting.hold && first->posting.together && r->waiting.first &&
                  r->waiting.first->posting.together && n < MOST_TOGETHER;
       n++) {
    last->next = gpu_jobs_pop(&r->waiting);
    last = last->next;
    last->next = NULL;
  }
  return first;
}

static turn next_turn(rank *r)
{
  turn t = {.landed = NULL};

  weft_mutex_lock(&r->mu);
  for (;;) {
    bool must_abort = atomic_load(&r->abort) && (r->comm || (r->all->heirloom && !r->kept_until.at_ns));
    bool may_divide = r->wanted && !r->flying;
    bool must_end = r->held.first && atomic_load(&r->abort);
    if (r->put || must_end) break;
    if (r->landed.first || r->waiting.first || must_abort || may_divide || t.looks || r->block_gone ||
        (r->stop && !r->flying))
      break;
    weft_deadline until = r->flying && r->comm  ? weft_deadline_after_ms(LOOK_MS)
                          : r->kept_until.at_ns ? r->kept_until
                                                : WEFT_NO_DEADLINE;
    t.looks = !weft_cond_wait(&r->wake, &r->mu, until);
  }
  t.landed = gpu_jobs_pop_all(&r->landed);
  t.next = take_waiting_locked(r);
  if (!t.next && !r->flying) t.branch = WEFT_MOVE(r->wanted); /* the library divides what has no operations */
  t.gone = r->block_gone;
  t.put = WEFT_MOVE(r->put);
  t.stop = r->stop && !r->flying && !t.landed && !t.next && !t.put && !r->held.first;
  if (!t.next && !r->flying) r->state = "idle";
  weft_mutex_unlock(&r->mu);
  return t;
}

static void work(rank *r)
{
  for (;;) {
    turn t = next_turn(r);
    for (gpu_job *j = t.landed, *after; j; j = after) {
      after = j->next;
      gpu_job_free_staged(j);
      if (r->stopped && !j->error) j->error = weft_status_dup(r->stopped);
      gpu_ender_take(r->all->ender, j);
    }
    if (atomic_load(&r->abort)) end_comm(r);
    if (r->kept_until.at_ns && weft_deadline_passed(r->kept_until)) drop_kept(r);
    if (t.gone) end_gone(r);
    if (atomic_load(&r->abort)) end_held(r);
    if (t.put) do_put(r, t.put);
    if (t.branch) take_branch(r, t.branch);
    if (t.next) launch(r, t.next);
    else if (t.looks) look_for_errors(r);
    if (t.stop) return;
  }
}

/* ---- the end of a rank's communicator ---------------------------------------------------------------------------- */

static weft_status *finalizing_ends(const rank *r)
{
  return weft_deadline_passed(r->leave_by) ? WEFT_ERR(DEADLINE_EXCEEDED, "peers have not finished in time") : NULL;
}

/* Waits for a while until the peers are done; then destroys the library's communicator. */
static void leave(rank *r)
{
  end_leases(r);
  if (!r->comm) return;
  r->leave_by = weft_deadline_after_ns(FINALIZE_NS);
  weft_status *st = end_all_registrations(r);
  if (!st) st = gpu_nccl_error(gpu_nccl()->ncclCommFinalize(r->comm), "ncclCommFinalize", r->comm);
  if (!st) st = await_call(r, "ncclCommFinalize", finalizing_ends);
  if (!st) {
    st = gpu_nccl_error(gpu_nccl()->ncclCommDestroy(r->comm), "ncclCommDestroy", NULL);
    r->comm = NULL;
  }
  if (st) WEFT_LOG("gpu", INFO, "rank %d: %s", r->rank, weft_status_message(st));
  weft_status_free(st);
  abort_comm(r);
}

static void *owner_run(void *arg)
{
  rank *r = arg;

  gpu_numa_bind(r->gpu->node); /* the library's threads are started by this one */
  weft_status *st = gpu_enter(r->gpu);
  bool entered = st == NULL;

  if (!st) st = init(r);
  bool made = st == NULL;
  report_ready(r, st);
  if (made) {
    work(r);
    leave(r);
    drop_kept(r);
  }
  if (entered) forget_registrations(r);
  if (entered) gpu_leave();
  return NULL;
}

/* ---- the communicator -------------------------------------------------------------------------------------------- */

/* Makes the owners end. False: an owner is in a call of the library that does not return. */
static bool stop_owners(communicator *c)
{
  bool all = true;

  for (int i = 0; i < c->count; i++) {
    rank *r = &c->ranks[i];
    if (!r->started) continue;
    weft_mutex_lock(&r->mu);
    r->stop = true;
    weft_cond_broadcast(&r->wake);
    weft_mutex_unlock(&r->mu);
  }
  weft_deadline until = weft_deadline_after_ms(JOIN_MS);
  for (int i = 0; i < c->count; i++)
    if (c->ranks[i].started && !gpu_join(c->ranks[i].thread, until, "NCCL communicator")) all = false;
  return all;
}

static void destroy(coll_communicator *base) WEFT_UNSHARED
{
  communicator *c = (communicator *)base;

  if (!stop_owners(c)) {
    gpu_heirloom_withdraw(c->heirloom);
    gpu_platform_leave_thread(c->platform); /* the owner's memory is not freed */
    return;
  }
  for (int i = 0; i < c->count; i++) {
    rank *r = &c->ranks[i];
    if (r->stream) gpu_stream_destroy(r->stream);
    weft_status_free(r->failure);
    weft_status_free(r->stopped);
    gpu_job_pool_fini(&r->pool);
    weft_cond_fini(&r->wake);
    weft_mutex_fini(&r->mu);
  }
  gpu_heirloom_free(c->heirloom);
  free(c->left_out);
  free(c);
}

/* Rank 0's process makes the id under which the library's communicators find each other; the others read it. */
static weft_status *agree_on_id(communicator *c, const weft_comm_spec *spec, const char *key)
{
  char *value = NULL;
  size_t size = 0;
  int64_t ask_ns = 0;

  if (spec->ranks[0] == 0) {
    WEFT_TRY(gpu_nccl_error(gpu_nccl()->ncclGetUniqueId(&c->id), "ncclGetUniqueId", NULL));
    return spec->rank_count == spec->size ? NULL : weft_kv_set(spec->kv, key, &c->id, sizeof c->id, true);
  }
  while (!value) {
    WEFT_TRY(creation_ends(c, spec, &ask_ns));
    weft_deadline slice = weft_deadline_min(spec->deadline, weft_deadline_after_ms(ID_SLICE_MS));
    weft_status *st = weft_kv_get(spec->kv, key, slice, &value, &size);
    if (st && weft_status_code(st) != WEFT_DEADLINE_EXCEEDED) return st;
    weft_status_free(st);
  }
  if (size == sizeof c->id) memcpy(&c->id, value, size);
  free(value);
  return size == sizeof c->id ? NULL : WEFT_ERR(INTERNAL, "the id of NCCL's communicator has %zu bytes", size);
}

static weft_status *init_rank(communicator *c, int i, const weft_comm_spec *spec) WEFT_UNSHARED
{
  rank *r = &c->ranks[i];

  r->all = c;
  r->rank = spec->ranks[i];
  r->local = i;
  r->state = "connecting";
  gpu_jobs_init(&r->waiting);
  gpu_jobs_init(&r->landed);
  gpu_jobs_init(&r->held);
  r->epoch = next_epoch();
  weft_mutex_init(&r->mu);
  weft_cond_init(&r->wake);
  return gpu_job_pool_init(&r->pool, sizeof(job));
}

/* Finds the device of each rank, and makes its stream. */
static weft_status *find_devices(communicator *c, const weft_comm_spec *spec)
{
  for (int i = 0; i < c->count; i++) {
    rank *r = &c->ranks[i];
    int64_t id = spec->device_ids ? spec->device_ids[r->rank] : r->rank;
    weft_device *device = weft_platform_device_by_id(c->platform, id);
    if (!device) return WEFT_ERR(INTERNAL, "device %lld of rank %d is not of this process", (long long)id, r->rank);
    r->gpu = gpu_of(device);
    r->device_id = device->id;
    WEFT_TRY(gpu_stream_create(device, 1, &r->stream));
  }
  return NULL;
}

static weft_status *start_owners(communicator *c)
{
  for (int i = 0; i < c->count; i++) {
    WEFT_TRY(weft_thread_start(&c->ranks[i].thread, "weft-nccl", owner_run, &c->ranks[i]));
    c->ranks[i].started = true;
  }
  return NULL;
}

/* The state of waiting for owners. */
typedef struct owners_wait {
  const weft_comm_spec *spec;
  int64_t ask_ns;      /* for creation_ends */
  weft_status *reason; /* set once: why the creation ends */
  weft_deadline grace; /* set with it: owners that are not ready then are in a call of the library */
} owners_wait;

/* Waits until an owner has made its communicator, or has failed.  Owners end when the creation does.  False: this
 * owner is in a call of the library that does not return, and is not waited for. */
static bool await_ready(rank *r, owners_wait *w)
{
  for (;;) {
    weft_mutex_lock(&r->mu);
    if (!r->ready) weft_cond_wait(&r->wake, &r->mu, weft_deadline_after_ms(LOOK_MS));
    bool ready = r->ready;
    weft_mutex_unlock(&r->mu);
    if (ready || (w->reason && weft_deadline_passed(w->grace))) return ready;
    if (w->reason) continue;
    w->reason = creation_ends(r->all, w->spec, &w->ask_ns); /* without the rank's lock: it may take the group's */
    if (!w->reason) continue;
    atomic_store(&r->all->give_up, true);
    w->grace = weft_deadline_after_ms(GRACE_MS);
  }
}

/* Is `st` no error, or that of an owner that gave up because of another error? */
static bool is_consequence(const weft_status *st) { return !st || weft_status_code(st) == WEFT_CANCELLED; }

/* Waits until the owners have made their communicators.  *out_stuck: one of them is in a call of the library. */
static weft_status *await_owners(communicator *c, const weft_comm_spec *spec, bool *out_stuck)
{
  owners_wait w = {.spec = spec};
  weft_status *st = NULL;
  int stuck = -1;

  for (int i = 0; i < c->count; i++) {
    rank *r = &c->ranks[i];
    if (!r->started) continue;
    if (!await_ready(r, &w)) stuck = r->rank;
    weft_mutex_lock(&r->mu);
    weft_status *own = WEFT_MOVE(r->failure);
    weft_mutex_unlock(&r->mu);
    if (!st || (own && is_consequence(st))) WEFT_SWAP(st, own);
    weft_status_free(own);
  }
  *out_stuck = stuck >= 0;
  if (w.reason && is_consequence(st) && (st || stuck >= 0)) WEFT_SWAP(st, w.reason);
  weft_status_free(w.reason);
  if (stuck < 0 || !st || weft_status_code(st) != WEFT_DEADLINE_EXCEEDED) return st;
  weft_status_free(st);
  return WEFT_ERR(DEADLINE_EXCEEDED, "rank %d is in a call of NCCL that does not return", stuck);
}

static void *destroy_later(void *arg)
{
  communicator *c = arg;
  weft_platform *platform = c->platform;

  destroy(&c->base);
  weft_platform_release(platform);
  return NULL;
}

/* Destroys what was not made.  If an owner is in a call of the library, another thread waits for the owner. */
static void discard(communicator *c, bool stuck)
{
  pthread_t thread;

  if (stuck) {
    weft_platform_retain(c->platform);
    weft_status *st = weft_thread_start(&thread, "weft-nccl-end", destroy_later, c);
    if (!st) {
      pthread_detach(thread);
      return;
    }
    weft_status_free(st);
    weft_platform_release(c->platform); /* not the last reference: the caller has one */
  }
  destroy(&c->base);
}

static bool can_shrink(const communicator *c)
{
  return ((const gpu_platform *)c->platform)->settings.shrink && c->version >= SHRINKS_SINCE &&
         gpu_nccl()->ncclCommShrink;
}

/* A communicator without owners.  After an error *out is NULL, or a communicator to be destroyed. */
static weft_status *new_communicator(weft_platform *platform, const weft_comm_spec *spec, communicator **out)
{
  communicator *c = *out = calloc(1, sizeof *c + (size_t)spec->rank_count * sizeof c->ranks[0]);
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(c);
  *c = (communicator){.base = {.ops = &gpu_nccl_communicator},
                      .platform = platform,
                      .size = spec->size,
                      .count = spec->rank_count,
                      .deadline = spec->deadline};
  c->whole = &c->base;
  c->ender = ((gpu_platform *)platform)->ender;
  for (int i = 0; i < c->count; i++) {
    weft_status *own = init_rank(c, i, spec);
    if (st) weft_status_free(own);
    else st = own;
  }
  if (!st) st = gpu_nccl_open(&c->version);
  if (!st && can_shrink(c)) c->heirloom = gpu_heirloom_new(platform, spec);
  return st ? st : find_devices(c, spec);
}

static weft_status *create(void *ctx, const weft_comm_spec *spec, coll_communicator **out_communicator)
{
  bool stuck;
  communicator *c;
  char key[300];

  *out_communicator = NULL;
  weft_status *st = new_communicator(ctx, spec, &c);
  if (!c) return st;
  snprintf(key, sizeof key, "%.250s/nccl", spec->name ? spec->name : "");
  if (!st && c->size > 1) st = agree_on_id(c, spec, key);
  if (!st) st = start_owners(c);
  if (st) atomic_store(&c->give_up, true);
  weft_status *unmade = await_owners(c, spec, &stuck);
  if (st) weft_status_free(unmade);
  else st = unmade;
  /* all ranks have read the id, or the next attempt has another one */
  if (spec->ranks[0] == 0 && spec->rank_count < spec->size) weft_status_ignore(weft_kv_remove(spec->kv, key));
  if (st) {
    atomic_store(&c->give_up, true); /* for an owner that comes back */
    discard(c, stuck);
    return st;
  }
  *out_communicator = &c->base;
  return NULL;
}

static uint64_t heritage(void *ctx, const weft_comm_spec *spec) { return gpu_heritage_find(ctx, spec); }

/* Ends parents that no owner has. */
static void abort_parents(communicator *c)
{
  for (int i = 0; i < c->count; i++) {
    rank *r = &c->ranks[i];
    if (r->started || !r->parent) continue;
    weft_status *st = r->gpu ? gpu_enter(r->gpu) : NULL;
    bool entered = r->gpu && !st;
    abort_one(r, WEFT_MOVE(r->parent));
    if (entered) gpu_leave();
    weft_status_ignore(st);
  }
}

static weft_status *inherit(void *ctx, const weft_comm_spec *spec, uint64_t number,
                            coll_communicator **out_communicator)
{
  bool stuck;
  communicator *c;

  *out_communicator = NULL;
  weft_status *st = new_communicator(ctx, spec, &c);
  if (!c) return st;
  wnc_comm *parents = calloc((size_t)c->count, sizeof(wnc_comm));
  if (!st && !parents) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  if (!st && !gpu_heritage_take(ctx, spec, number, parents, &c->left_out, &c->left_out_count))
    st = WEFT_ERR(UNAVAILABLE, "the communicator to be shrunk has gone");
  for (int i = 0; i < c->count && !st; i++) c->ranks[i].parent = parents[i];
  free(parents);
  if (!st) st = start_owners(c);
  if (st) atomic_store(&c->give_up, true);
  weft_status *unmade = await_owners(c, spec, &stuck);
  if (st) weft_status_free(unmade);
  else st = unmade;
  if (st) {
    atomic_store(&c->give_up, true);
    abort_parents(c);
    discard(c, stuck);
    return st;
  }
  *out_communicator = &c->base;
  return NULL;
}

void gpu_nccl_report_to(coll_communicator *c, coll_communicator *whole) { ((communicator *)c)->whole = whole; }

/* ---- parts of a communicator ------------------------------------------------------------------------------------- */

/* Asks the owners for the division. */
static weft_status *ask_owners(communicator *c, const coll_division *d, branch **branches)
{
  for (int i = 0; i < c->count; i++) {
    branch *b = branches[i] = calloc(1, sizeof *b);
    WEFT_TRY_ALLOC(b);
    int part = d->part_of[i];
    bool joins = part >= 0 && d->specs[part].size > 1;
    *b = (branch){.color = joins ? d->colors[part] : WNC_SPLIT_NOCOLOR, .key = d->rank_in[i], .deadline = d->deadline};
    atomic_init(&b->refs, 1);
  }
  for (int i = 0; i < c->count; i++) {
    rank *r = &c->ranks[i];
    atomic_store(&branches[i]->refs, 2);
    weft_mutex_lock(&r->mu);
    r->wanted = branches[i];
    weft_cond_broadcast(&r->wake);
    weft_mutex_unlock(&r->mu);
  }
  return NULL;
}

/* Waits until an owner has divided its communicator.  *grace as in is_ready. */
static weft_status *await_branch(rank *r, branch *b, const coll_division *d, branch **all, weft_deadline *grace)
{
  weft_status *st = NULL;
  bool done = false;

  while (!done) {
    weft_mutex_lock(&r->mu);
    if (!b->done) weft_cond_wait(&r->wake, &r->mu, weft_deadline_after_ms(LOOK_MS));
    done = b->done;
    if (!done && grace->at_ns && weft_deadline_passed(*grace)) {
      b->left = done = true;
      if (r->wanted == b) { /* the owner has not begun */
        r->wanted = NULL;
        atomic_fetch_sub(&b->refs, 1);
      }
      b->error = WEFT_ERR(DEADLINE_EXCEEDED, "rank %d is in a call of NCCL that does not return", r->rank);
    }
    weft_status *own = done ? WEFT_MOVE(b->error) : NULL;
    weft_mutex_unlock(&r->mu);
    if (done) return own;
    if (grace->at_ns) continue;
    st = d->ends ? d->ends(d->ends_ctx) : NULL; /* without the rank's lock: it takes the group's */
    if (!st && !weft_deadline_passed(d->deadline)) continue;
    for (int i = 0; i < r->all->count; i++) atomic_store(&all[i]->give_up, true);
    *grace = weft_deadline_after_ms(GRACE_MS);
    weft_status_free(st);
  }
  return NULL;
}

/* The error of an owner that gave up because of another one. */
static bool is_echo(const weft_status *st)
{
  return weft_status_code(st) == WEFT_CANCELLED || weft_status_code(st) == WEFT_ABORTED;
}

/* Waits for all owners.  The error is the first that is no echo of another. */
static weft_status *await_branches(communicator *c, const coll_division *d, branch **branches)
{
  weft_deadline grace = {0};
  weft_status *st = NULL;

  for (int i = 0; i < c->count; i++) {
    weft_status *own = await_branch(&c->ranks[i], branches[i], d, branches, &grace);
    if (own)
      for (int k = 0; k < c->count; k++) atomic_store(&branches[k]->give_up, true);
    if (own && (!st || is_echo(st))) {
      weft_status_free(st);
      st = own;
    } else {
      weft_status_free(own);
    }
  }
  return st;
}

/* Moves the library's communicators to the ranks of the parts, and starts the owners there. */
static weft_status *start_parts(const communicator *c, const coll_division *d, branch **branches,
                                coll_communicator **parts)
{
  for (int i = 0; i < c->count; i++) {
    communicator *part = d->part_of[i] >= 0 ? (communicator *)parts[d->part_of[i]] : NULL;
    for (int k = 0; part && k < part->count; k++)
      if (part->ranks[k].rank == d->rank_in[i]) part->ranks[k].comm = WEFT_MOVE(branches[i]->made);
  }
  for (int p = 0; p < d->part_count; p++) WEFT_TRY(start_owners((communicator *)parts[p]));
  return NULL;
}

/* Destroys parts that are of no use: their owners abort what the library has made. */
static void discard_parts(int count, coll_communicator **parts)
{
  for (int p = 0; p < count; p++) {
    communicator *part = (communicator *)WEFT_MOVE(parts[p]);
    if (!part) continue;
    for (int k = 0; k < part->count; k++) {
      rank *r = &part->ranks[k];
      atomic_store(&r->abort, true);
      if (r->started || !r->comm || !r->gpu) continue;
      weft_status *st = gpu_enter(r->gpu);
      if (!st) {
        abort_comm(r);
        gpu_leave();
      }
      weft_status_ignore(st);
    }
    destroy(&part->base);
  }
}

static weft_status *divide_into(communicator *c, const coll_division *d, branch **branches, coll_communicator **out)
{
  for (int p = 0; p < d->part_count; p++) {
    communicator *part;
    weft_status *st = new_communicator(c->platform, &d->specs[p], &part);
    out[p] = part ? &part->base : NULL;
    if (st) return st;
    part->is_part = true;
  }
  WEFT_TRY(ask_owners(c, d, branches));
  weft_status *st = await_branches(c, d, branches);
  weft_status *unstarted = start_parts(c, d, branches, out); /* also after an error: an owner ends what was made */
  if (st) weft_status_free(unstarted);
  else st = unstarted;
  for (int p = 0; p < d->part_count; p++) {
    communicator *part = (communicator *)out[p];
    bool stuck = false;
    if (!st) st = await_owners(part, &d->specs[p], &stuck);
  }
  return st;
}

static weft_status *divide(coll_communicator *base, const coll_division *division, coll_communicator **out)
{
  communicator *c = (communicator *)base;
  branch **branches = calloc((size_t)c->count, sizeof(branch *));

  for (int p = 0; p < division->part_count; p++) out[p] = NULL;
  WEFT_TRY_ALLOC(branches);
  weft_status *st = divide_into(c, division, branches, out);
  for (int i = 0; i < c->count; i++)
    if (branches[i]) branch_release(branches[i]);
  free(branches);
  if (st) discard_parts(division->part_count, out);
  return st;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* The blocks in which an operand and a result lie; bytes 0: in none. */
typedef struct extents { gpu_extent of[2]; } extents;

static extents extents_of(rank *r, const coll_posting *posting)
{
  const void *at[2] = {posting->args->send, posting->args->recv};
  extents e = {0};

  for (int i = 0; i < 2; i++)
    if (!at[i] || !gpu_block_find(r->gpu, at[i], &e.of[i])) e.of[i] = (gpu_extent){0};
  return e;
}

static bool has_given_up(const rank *r, gpu_extent extent) WEFT_REQUIRES(r->mu)
{
  weft_mutex_assert_held(&r->mu);
  return r->differences[extent.plain] >= MOST_DIFFERENCES;
}

static registration *registration_at(rank *r, gpu_extent extent) WEFT_REQUIRES(r->mu)
{
  registration *g = r->registrations;

  weft_mutex_assert_held(&r->mu);
  while (g && (g->gone || extent.bytes == 0 || g->at.base != extent.base)) g = g->next;
  return g;
}

/* Only collectives whose ranks meet have places. */
static bool has_place(const coll_posting *posting)
{
  weft_coll_kind kind = posting->args->kind;

  return kind != WEFT_SEND && kind != WEFT_RECV && kind != WEFT_RAGGED_ALL_TO_ALL && kind != WEFT_BARRIER;
}

static uint64_t place(coll_communicator *base, const coll_posting *posting)
{
  communicator *c = (communicator *)base;
  rank *r = &c->ranks[posting->local];
  const char *at[2] = {posting->args->send, posting->args->recv};

  if (c->size == 1 || !has_place(posting)) return COLL_ANY_PLACE;
  extents e = extents_of(r, posting);
  if (!e.of[0].bytes && !e.of[1].bytes) return COLL_ANY_PLACE;
  int64_t ignored;
  bool staged = gpu_operand_is_in_the_way(posting->problem, at[0], at[1], &ignored); /* so the operand is elsewhere */
  uint64_t hash = weft_mix(1 + staged, has_windows(c->version));
  bool any = false;
  weft_mutex_lock(&r->mu);
  for (int i = 0; i < 2; i++) {
    if (has_given_up(r, e.of[i])) e.of[i] = (gpu_extent){0};
    any |= e.of[i].bytes > 0;
    const registration *g = registration_at(r, e.of[i]);
    hash = weft_mix(weft_mix(hash, g ? g->number : 0), (uint64_t)e.of[i].bytes);
    if (e.of[i].bytes) hash = weft_mix(hash, (uint64_t)(uintptr_t)at[i] - e.of[i].base);
  }
  weft_mutex_unlock(&r->mu);
  return !any || hash <= COLL_ANY_PLACE ? COLL_ANY_PLACE : hash;
}

/* Moves the registrations of the blocks, and those that the rank has given up, from its list to the job, which ends
 * them. */
static void end_with(rank *r, job *j, const extents *e) WEFT_REQUIRES(r->mu)
{
  weft_mutex_assert_held(&r->mu);
  for (registration **at = &r->registrations, *g; (g = *at);) {
    if (!has_given_up(r, g->at) && g->at.base != e->of[0].base && g->at.base != e->of[1].base) {
      at = &g->next;
      continue;
    }
    *at = g->next;
    g->next = j->ends;
    j->ends = g;
    r->epoch = next_epoch();
  }
}

/* Adds a registration, which the job makes.  NULL: it is there, or there is no block. */
static registration *begin_with(rank *r, gpu_extent extent) WEFT_REQUIRES(r->mu)
{
  weft_mutex_assert_held(&r->mu);
  if (extent.bytes == 0 || has_given_up(r, extent) || registration_at(r, extent)) return NULL;
  registration *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  *g = (registration){.hold = {.given_back = block_given_back},
                      .next = r->registrations,
                      .of = r,
                      .at = extent,
                      .number = ++r->registered};
  r->epoch = next_epoch();
  return r->registrations = g;
}

/* What the operation means for registered memory.  All ranks see the same place, and do the same. */
static void keep_books(rank *r, job *j, const extents *e) WEFT_REQUIRES(r->mu)
{
  const coll_posting *posting = &j->base.posting;

  weft_mutex_assert_held(&r->mu);
  if (posting->place == COLL_ANY_PLACE || !has_place(posting)) return;
  if (posting->place != COLL_NO_PLACE) {
    for (int i = 0; i < 2; i++) j->begins[i] = begin_with(r, e->of[i]);
    return;
  }
  bool has[2] = {false, false}; /* kinds */
  for (int i = 0; i < 2; i++) has[e->of[i].plain] |= e->of[i].bytes > 0 && !has_given_up(r, e->of[i]);
  for (int kind = 0; kind < 2; kind++) r->differences[kind] += has[kind];
  end_with(r, j, e);
}

/* Under the group's lock, as `abort_all` and `describe` are. */
static void post(coll_communicator *base, const coll_posting *posting)
{
  rank *r = &((communicator *)base)->ranks[posting->local];
  gpu_job *j = gpu_job_new(&r->pool, posting);
  extents e = extents_of(r, posting); /* before the rank's lock is taken */

  weft_mutex_lock(&r->mu);
  if (j) {
    keep_books(r, (job *)j, &e);
    gpu_jobs_push(&r->waiting, j);
    r->state = "waiting for its thread";
    weft_cond_broadcast(&r->wake);
  } else {
    WEFT_LOG("gpu", ERROR, "rank %d: no memory for an operation, which will run into its deadline", r->rank);
  }
  weft_mutex_unlock(&r->mu);
}

static void abort_all(coll_communicator *base, const weft_status *why)
{
  communicator *c = (communicator *)base;

  (void)why;
  for (int i = 0; i < c->count; i++) {
    rank *r = &c->ranks[i];
    atomic_store(&r->abort, true);
    weft_mutex_lock(&r->mu);
    weft_cond_broadcast(&r->wake);
    weft_mutex_unlock(&r->mu);
  }
  gpu_heirloom_offer(c->heirloom);
}

static void describe(const coll_communicator *base, char *out, size_t size)
{
  const communicator *c = (const communicator *)base;
  size_t used =
    (size_t)snprintf(out, size, "NCCL %d.%d.%d", c->version / 10000, c->version / 100 % 100, c->version % 100);

  for (int i = 0; i < c->count && used < size; i++) {
    rank *r = (rank *)&c->ranks[i];
    weft_mutex_lock(&r->mu);
    used += (size_t)snprintf(out + used, size - used, "; rank %d on device %lld: %s, %d queued", r->rank,
                             (long long)r->device_id, r->state, r->flying);
    weft_mutex_unlock(&r->mu);
  }
}

const coll_communicator_ops gpu_nccl_communicator = {
  .name = "NCCL",
  .create = create,
  .heritage = heritage,
  .inherit = inherit,
  .divide = divide,
  .place = place,
  .post = post,
  .abort = abort_all,
  .describe = describe,
  .destroy = destroy,
};
