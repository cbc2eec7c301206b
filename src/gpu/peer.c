/* gpu/peer.c -- collectives between GPUs of one process (peer.h).
 *
 * A communicator has one thread, the *conductor*.  When all ranks have posted an operation, it queues the operation on
 * the stream of each rank:
 *
 *   small all-reduce   one_shot: each rank copies its operand to its scratch, the ranks meet, each folds all scratches.
 *   small reduce-scatter, all-gather   likewise one kernel: scatter folds its block, gather copies all scratches.
 *                      There are two scratches, used in turn: a rank comes to the second operation after this one only
 *                      when all ranks have begun the first, and so have read the scratch.
 *   all-reduce         meet, fold (each rank a slice of the operands), meet, copy (the slices of the others), meet
 *   reduce-scatter, reduce    meet, fold, meet
 *   ragged all-to-all  meet, one kernel that copies pieces of the operands of the others, meet
 *   other operations   meet, copy from the operands of the others, meet
 *
 * Where multicast joins scratches of all ranks (multicast.h), some operations go through these, in pieces of the size
 * of a scratch (choose_way):
 *
 *   all-reduce of integers   one kernel a piece: each rank copies its operand to its scratch, the ranks meet, and the
 *                      switch reduces: everything for each rank, or, if that is much, a share for each rank, which is
 *                      then stored in the scratches of all
 *   reduce-scatter of integers   likewise, each rank its block
 *   other large all-reduce   meet; one kernel a piece: each rank folds a share of the operands and stores it in the
 *                      scratches of all, the ranks meet, each copies its scratch
 *   all-gather, broadcast   one kernel a piece: store the operand in the scratches of all, meet, copy the scratch
 *
 * There, too, two scratches are used in turn.
 *
 * To *meet* is a barrier kernel on each rank, which waits for the signals of the others (peer_ptx.h).  Where ranks
 * share a GPU, kernels that wait for each other might wait for ever, since the GPU need not run them at the same time;
 * there, streams wait for events instead, and no operation is small.
 *
 * An abort sets a word of the host's memory at which waiting kernels look, so the streams drain.  A rank reads the
 * operands of the others, so the buffers of an operation are in use until the streams of all ranks have done it; those
 * of a small all-reduce, until the rank's own stream has done it.
 *
 * Locks: gpu_platform.launching is held while the kernels of one operation are queued, and while a module is loaded:
 * the driver may let a load wait for kernels that run, and those wait for kernels that are not queued yet.  Then the
 * communicator's lock, which is a leaf; it is taken under the group's lock and under the completer's. */
#include <config.h>

#include "gpu/peer.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "collective/host/schedule.h"
#include "gpu/jobs.h"
#include "gpu/multicast.h"
#include "gpu/peer_ptx.h"

enum {
  ONE_SHOT_BYTES = 256 << 10, /* bytes of all blocks of a small operation */
  MOST_BLOCKS = 256,          /* most blocks of a kernel without a barrier */
  JOIN_MS = 10000,
};
_Static_assert(GPU_PEER_AREA_BYTES <= 4096, "scratch begins behind it");
enum { SCRATCH_AT = 4096, OWN_BYTES = SCRATCH_AT + 2 * ONE_SHOT_BYTES };
enum {
  CAST_BYTES = 4 << 20,       /* of a scratch that multicast joins with those of the other ranks */
  /* Bytes of all ranks up to which the switch reduces everything for each rank: that costs one barrier less, but each
   * rank's memory is read by all ranks. */
  CAST_AT_ONCE_BYTES = 1 << 20,
};

typedef struct rank rank;
typedef struct communicator communicator;

typedef struct job {
  gpu_job base;      /* first */
  rank *owner;
  struct job *mate;  /* the job of the next rank in the same operation */
  struct job *first; /* the job of rank 0, which holds the count for operations whose ranks end together */
  int left;
  bool together;
  gpu_timed timed;
} job;

struct rank {
  communicator *all;
  int rank;
  gpu_device *gpu;
  int64_t device_id;
  weft_stream *stream;
  wcu_ptr own;       /* memory on the device: the signal area, then two scratches */
  gpu_jobs waiting;  /* guarded by the communicator's lock */
  gpu_job_pool pool;
};

struct communicator {
  coll_communicator base; /* first */
  gpu_platform *platform;
  int size;
  bool shared;            /* ranks share a GPU */
  uint32_t *abort;        /* pinned memory of the host, which kernels read */
  uint64_t small_count;   /* kernels so far that used a scratch; of the conductor only, as what follows */
  gpu_multicast *cast;    /* two scratches of CAST_BYTES of each rank; NULL: there is no multicast */
  atomic_bool cast_failed; /* its kernels could not be loaded */
  pthread_t thread;
  bool started;
  weft_mutex mu;
  weft_cond wake;
  gpu_jobs landed WEFT_GUARDED_BY(mu);
  int flying WEFT_GUARDED_BY(mu);
  bool stop WEFT_GUARDED_BY(mu);
  bool aborted WEFT_GUARDED_BY(mu);
  weft_status *failure WEFT_GUARDED_BY(mu); /* set once: the error of an operation */
  rank ranks[];
};

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

/* X(name): the kernels, by their names in the modules */
#define KERNELS(X)                                                                                                  \
  X(barrier) X(fold) X(one_shot) X(scatter) X(gather) X(pieces) X(multicast_reduce) X(multicast_two_shot)           \
  X(multicast_scatter) X(multicast_gather) X(multicast_broadcast) X(multicast_spread)
#define KERNEL_ROW(name) KERNEL_##name,
typedef enum kernel { KERNELS(KERNEL_ROW) KERNEL_COUNT } kernel;
#undef KERNEL_ROW

struct gpu_peer_kernels {
  gpu_peer_kernels *next;
  weft_dtype dtype;
  weft_reduction reduction;
  int ranks;
  bool multicast;
  struct { wcu_module module; wcu_function fn[KERNEL_COUNT]; } of[]; /* by ordinal */
};

/* Whether a module has a kernel (peer_ptx.h). */
static bool has_kernel(const gpu_peer_kernels *k, kernel which)
{
  bool reduces = k->reduction != WEFT_REDUCE_NONE;

  switch (which) {
  case KERNEL_barrier: return !k->multicast;
  case KERNEL_fold: case KERNEL_one_shot: case KERNEL_scatter: return !k->multicast && reduces;
  case KERNEL_gather: case KERNEL_pieces: return !k->multicast && !reduces;
  case KERNEL_multicast_gather: case KERNEL_multicast_broadcast: return k->multicast && !reduces;
  case KERNEL_multicast_spread: return k->multicast && reduces;
  default: return k->multicast && reduces && gpu_peer_multicast_reduces(k->dtype, k->reduction);
  }
}

static weft_status *load_on(gpu_peer_kernels *k, int ordinal, const char *text)
{
#define KERNEL_ROW(name) #name,
  static const char *const names[] = {KERNELS(KERNEL_ROW)};
#undef KERNEL_ROW
  wcu_module *module = &k->of[ordinal].module;

  WEFT_TRY(GPU_CALL(cuModuleLoadDataEx, module, text, 0, NULL, NULL));
  for (int n = 0; n < KERNEL_COUNT; n++)
    if (has_kernel(k, (kernel)n)) WEFT_TRY(GPU_CALL(cuModuleGetFunction, &k->of[ordinal].fn[n], *module, names[n]));
  return NULL;
}

static void unload(gpu_platform *p, gpu_peer_kernels *k)
{
  for (int d = 0; d < p->gpu_count; d++) {
    if (!k->of[d].module) continue;
    weft_status *st = gpu_enter(&p->gpus[d]);
    if (!st) {
      gpu_cu.cuModuleUnload(k->of[d].module);
      gpu_leave();
    }
    weft_status_ignore(st);
  }
  free(k);
}

static weft_status *load(gpu_platform *p, gpu_peer_kernels *k)
{
  char *text = k->multicast ? gpu_peer_multicast_ptx(k->dtype, k->reduction, k->ranks)
                            : gpu_peer_ptx(k->dtype, k->reduction, k->ranks);
  weft_status *st = text ? NULL : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");

  for (int d = 0; d < p->gpu_count && !st; d++) {
    if (atomic_load_explicit(&p->gpus[d].hung, memory_order_acquire)) continue; /* no rank uses this device any more */
    if (k->multicast && !p->gpus[d].multicast) continue;
    st = gpu_enter(&p->gpus[d]);
    if (st) break;
    st = load_on(k, d, text);
    gpu_leave();
  }
  free(text);
  return st ? weft_status_note(st, __FILE__, __LINE__, "loading the kernels of collectives") : NULL;
}

/* The kernels of a reduction for `ranks` ranks, on all devices of the platform. */
static weft_status *find_kernels(gpu_platform *p, weft_dtype dtype, weft_reduction reduction, int ranks, bool multicast,
                                 const gpu_peer_kernels **out) WEFT_REQUIRES(p->launching)
{
  gpu_peer_kernels *k = p->peer_kernels;

  while (k && (k->dtype != dtype || k->reduction != reduction || k->ranks != ranks || k->multicast != multicast))
    k = k->next;
  *out = k;
  if (k) return NULL;
  k = calloc(1, sizeof *k + (size_t)p->gpu_count * sizeof k->of[0]);
  WEFT_TRY_ALLOC(k);
  k->dtype = dtype;
  k->reduction = reduction;
  k->ranks = ranks;
  k->multicast = multicast;
  weft_status *st = load(p, k);
  if (st) {
    unload(p, k);
    return st;
  }
  k->next = p->peer_kernels;
  p->peer_kernels = k;
  *out = k;
  return NULL;
}

void gpu_peer_kernels_free(gpu_platform *p) WEFT_UNSHARED
{
  for (gpu_peer_kernels *k = p->peer_kernels, *next; k; k = next) {
    next = k->next;
    unload(p, k);
  }
  p->peer_kernels = NULL;
}

/* ---- an operation ----------------------------------------------------------------------------------------------- */

/* What an operation goes by: kernels with multicast, or the other ones. */
typedef enum way { NO_CAST, CAST_REDUCE, CAST_TWO_SHOT, CAST_SCATTER, CAST_SPREAD, CAST_GATHER, CAST_BROADCAST } way;

/* An operation of all ranks, while the conductor queues it. */
typedef struct operation {
  communicator *all;
  job *jobs[GPU_PEER_RANKS];
  const void *send[GPU_PEER_RANKS]; /* operands, or copies of them */
  const coll_problem *problem;      /* the problem of rank 0, for properties that are the same on all ranks */
  const gpu_peer_kernels *kernels;  /* kernels of the reduction, or only the barrier */
  const gpu_peer_kernels *cast_kernels; /* the same with multicast */
  int64_t count;                    /* elements of an operand that the kernels fold, or of a block */
  int64_t elem_bytes;
  way way;
  int64_t first, piece;             /* with multicast: the bytes of each block that the next kernel handles */
} operation;

static wcu_ptr at(const void *p) { return (wcu_ptr)(uintptr_t)p; }
static const weft_coll_op *args_of(const operation *o, int r) { return o->jobs[r]->base.posting.args; }
static const coll_problem *problem_of(const operation *o, int r) { return o->jobs[r]->base.posting.problem; }

static weft_status *launch_grid(rank *r, wcu_function kernel, int64_t columns, int64_t rows, int threads, void *args,
                                size_t bytes)
{
  enum { END, BUFFER_POINTER, BUFFER_SIZE }; /* CU_LAUNCH_PARAM_* */
  void *extra[] = {(void *)BUFFER_POINTER, args, (void *)BUFFER_SIZE, &bytes, (void *)END};

  return GPU_CALL(cuLaunchKernel, kernel, (unsigned)columns, (unsigned)rows, 1, (unsigned)threads, 1, 1, 0,
                  gpu_stream_handle(r->stream), NULL, extra);
}

static weft_status *launch(rank *r, wcu_function kernel, int64_t blocks, int threads, gpu_peer_args *args)
{
  return launch_grid(r, kernel, blocks, 1, threads, args, sizeof *args);
}

static gpu_peer_args args_for(const rank *r)
{
  gpu_peer_args args = {.abort = at(r->all->abort), .rank = (uint32_t)r->rank};

  for (int k = 0; k < r->all->size; k++) args.area[k] = r->all->ranks[k].own;
  return args;
}

static int ordinal_of(const rank *r) { return (int)(r->gpu - r->all->platform->gpus); }

static wcu_function kernel_of(const operation *o, const rank *r, kernel which)
{
  const gpu_peer_kernels *k = which >= KERNEL_multicast_reduce ? o->cast_kernels : o->kernels;

  return k->of[ordinal_of(r)].fn[which];
}

/* How many elements can be handled in steps: all, unless an address is not aligned. */
static uint64_t steps_of(const gpu_peer_args *args, int ranks, int64_t count, int64_t elem_bytes)
{
  uint64_t addresses = args->out | args->send | args->scratch;

  for (int k = 0; k < ranks; k++) addresses |= args->in[k];
  return addresses % GPU_PEER_STEP_BYTES ? 0 : (uint64_t)(count * elem_bytes / GPU_PEER_STEP_BYTES);
}

/* The number of blocks for `units` units of work, one thread for each. */
static int64_t blocks_for(int64_t units, int most)
{
  return WEFT_MAX(WEFT_MIN((units + GPU_PEER_THREADS - 1) / GPU_PEER_THREADS, most), 1);
}

/* Queues a step of the operation on each rank, within the rank's context. */
static weft_status *on_each(operation *o, weft_status *(*step)(operation *o, rank *r))
{
  for (int k = 0; k < o->all->size; k++) {
    rank *r = &o->all->ranks[k];
    WEFT_TRY(gpu_enter(r->gpu));
    weft_status *st = step(o, r);
    gpu_leave();
    gpu_stream_used(r->stream);
    if (st) return weft_status_note(st, __FILE__, __LINE__, "rank %d (device %lld)", k, (long long)r->device_id);
  }
  return NULL;
}

static weft_status *barrier(operation *o, rank *r)
{
  gpu_peer_args args = args_for(r);

  return launch(r, kernel_of(o, r, KERNEL_barrier), 1, GPU_PEER_BARRIER_THREADS, &args);
}

/* The first stream waits for all others, and they wait for it. */
static weft_status *meet_by_events(communicator *c)
{
  uint64_t number;

  for (int k = 1; k < c->size; k++) {
    number = gpu_stream_record(c->ranks[k].stream);
    if (number) WEFT_TRY(gpu_stream_wait(c->ranks[0].stream, c->ranks[k].stream, number));
  }
  number = gpu_stream_record(c->ranks[0].stream);
  for (int k = 1; k < c->size && number; k++) WEFT_TRY(gpu_stream_wait(c->ranks[k].stream, c->ranks[0].stream, number));
  return NULL;
}

/* After this, work that a rank queues runs after all work that any rank queued before this. */
static weft_status *meet(operation *o)
{
  if (o->all->size == 1) return NULL;
  return o->all->shared ? meet_by_events(o->all) : on_each(o, barrier);
}

/* ---- steps of operations ---------------------------------------------------------------------------------------- */

static weft_status *copy(const rank *r, void *to, const void *from, int64_t bytes)
{
  if (bytes <= 0 || to == from || !to || !from) return NULL;
  return GPU_CALL(cuMemcpyAsync, at(to), at(from), (size_t)bytes, gpu_stream_handle(r->stream));
}

/* An operand that would be overwritten too early is copied. */
static weft_status *stage(operation *o, rank *r)
{
  job *j = o->jobs[r->rank];
  const weft_coll_op *args = j->base.posting.args;
  int64_t bytes;
  wcu_ptr staged;

  o->send[r->rank] = args->send;
  if (args->kind == WEFT_BROADCAST && !args->send && r->rank == o->problem->root) o->send[r->rank] = args->recv;
  if (!gpu_operand_is_in_the_way(j->base.posting.problem, args->send, args->recv, &bytes)) return NULL;
  WEFT_TRY(GPU_CALL(cuMemAlloc, &staged, (size_t)bytes));
  j->base.staged = (void *)(uintptr_t)staged; /* NOLINT */
  o->send[r->rank] = j->base.staged;
  return copy(r, j->base.staged, args->send, bytes);
}

/* to = fold of `count` elements of the operands, from element `first` on. */
static weft_status *fold(operation *o, rank *r, int64_t first, int64_t count, void *to)
{
  gpu_peer_args args = args_for(r);

  if (count <= 0) return NULL;
  for (int k = 0; k < o->all->size; k++) args.in[k] = at(o->send[k]) + (uint64_t)(first * o->elem_bytes);
  args.out = at(to);
  args.count = (uint64_t)count;
  args.steps = steps_of(&args, o->all->size, count, o->elem_bytes);
  int64_t units = args.steps ? (int64_t)args.steps : count;
  return launch(r, kernel_of(o, r, KERNEL_fold), blocks_for(units, MOST_BLOCKS), GPU_PEER_THREADS, &args);
}

/* A small operation by one kernel. */
static weft_status *one_kernel(operation *o, rank *r)
{
  uint64_t scratch_at = SCRATCH_AT + (o->all->small_count % 2) * ONE_SHOT_BYTES;
  weft_coll_kind kind = o->problem->kind;
  gpu_peer_args args = args_for(r);

  args.block = kind == WEFT_ALL_REDUCE ? 0 : (uint64_t)o->problem->bytes;
  uint64_t addresses =
    args.block; /* the same on all ranks: blocks meet by number, so every rank has to cut the elements alike */
  for (int k = 0; k < o->all->size; k++) {
    args.in[k] = o->all->ranks[k].own + scratch_at + (kind == WEFT_REDUCE_SCATTER ? (uint64_t)r->rank * args.block : 0);
    addresses |= at(args_of(o, k)->send) | at(args_of(o, k)->recv);
  }
  args.scratch = r->own + scratch_at;
  args.send = at(args_of(o, r->rank)->send);
  args.out = at(args_of(o, r->rank)->recv);
  args.count = (uint64_t)o->count;
  args.steps = addresses % GPU_PEER_STEP_BYTES ? 0 : steps_of(&args, o->all->size, o->count, o->elem_bytes);
  /* the grid is the same on all ranks, whatever their addresses are */
  int64_t blocks = blocks_for(o->count * o->elem_bytes / GPU_PEER_STEP_BYTES, GPU_PEER_BLOCKS);
  kernel which = kind == WEFT_ALL_REDUCE       ? KERNEL_one_shot
                 : kind == WEFT_REDUCE_SCATTER ? KERNEL_scatter
                                               : KERNEL_gather;
  return launch(r, kernel_of(o, r, which), blocks, GPU_PEER_THREADS, &args);
}

/* The slice of an all-reduce that rank k folds, in elements: whole steps. */
static void slice_of(const operation *o, int k, int64_t *out_first, int64_t *out_count)
{
  int64_t unit = GPU_PEER_STEP_BYTES / o->elem_bytes, units = (o->count + unit - 1) / unit;
  int64_t each = (units + o->all->size - 1) / o->all->size * unit;

  *out_first = WEFT_MIN(each * k, o->count);
  *out_count = WEFT_MIN(each, o->count - *out_first);
}

static weft_status *fold_slice(operation *o, rank *r)
{
  int64_t first, count;

  slice_of(o, r->rank, &first, &count);
  return fold(o, r, first, count, (char *)args_of(o, r->rank)->recv + first * o->elem_bytes);
}

static weft_status *copy_slices(operation *o, rank *r)
{
  for (int d = 1; d < o->all->size; d++) {
    /* each rank begins with another rank, so that not all copy from one rank at the same time */
    int k = (r->rank + d) % o->all->size;
    int64_t first, count;
    slice_of(o, k, &first, &count);
    int64_t offset = first * o->elem_bytes;
    WEFT_TRY(copy(r, (char *)args_of(o, r->rank)->recv + offset, (const char *)args_of(o, k)->recv + offset,
                  count * o->elem_bytes));
  }
  return NULL;
}

static weft_status *fold_at_root(operation *o, rank *r)
{
  return r->rank == o->problem->root ? fold(o, r, 0, o->count, args_of(o, r->rank)->recv) : NULL;
}

/* The rank's block of the operands: of equal size, or as `prefix` says. */
static weft_status *fold_block(operation *o, rank *r)
{
  const int64_t *prefix = o->problem->prefix;
  int64_t first = prefix ? prefix[r->rank] : r->rank * o->problem->bytes;
  int64_t bytes = prefix ? prefix[r->rank + 1] - first : o->problem->bytes;

  return fold(o, r, first / o->elem_bytes, bytes / o->elem_bytes, args_of(o, r->rank)->recv);
}

static weft_status *move(operation *o, rank *r)
{
  const coll_problem *p = problem_of(o, r->rank);
  char *recv = args_of(o, r->rank)->recv;

  switch (p->kind) {
  case WEFT_BROADCAST: return copy(r, recv, o->send[p->root], p->bytes);
  case WEFT_PERMUTE:
    if (p->source >= 0) return copy(r, recv, o->send[p->source], p->bytes);
    return p->bytes > 0 && recv ? GPU_CALL(cuMemsetD8Async, at(recv), 0, (size_t)p->bytes, gpu_stream_handle(r->stream))
                                : NULL;
  default:
    for (int d = 0; d < o->all->size; d++) {
      int k = (r->rank + d) % o->all->size;
      int64_t from = p->kind == WEFT_ALL_TO_ALL ? r->rank * p->bytes : 0;
      if (o->send[k]) WEFT_TRY(copy(r, recv + k * p->bytes, (const char *)o->send[k] + from, p->bytes));
    }
    return NULL;
  }
}

/* Copies the pieces that a kernel gets at once. */
static weft_status *launch_pieces(operation *o, rank *r, gpu_peer_pieces *pieces)
{
  int64_t most = 0;

  if (pieces->count == 0) return NULL;
  for (uint64_t i = 0; i < pieces->count; i++) most = WEFT_MAX(most, (int64_t)pieces->piece[i].bytes);
  int64_t columns = blocks_for(most / GPU_PEER_STEP_BYTES, MOST_BLOCKS / (int)pieces->count + 1);
  WEFT_TRY(launch_grid(r, kernel_of(o, r, KERNEL_pieces), columns, (int64_t)pieces->count, GPU_PEER_THREADS, pieces,
                       sizeof *pieces));
  pieces->count = 0;
  return NULL;
}

/* The pieces that a rank receives: a kernel takes GPU_PEER_PIECES of them. */
static weft_status *copy_pieces(operation *o, rank *r)
{
  const coll_problem *mine = problem_of(o, r->rank);
  gpu_peer_pieces pieces = {.count = 0};

  for (int d = 0; d < o->all->size; d++) {
    int from = (r->rank + d) % o->all->size;
    const coll_problem *theirs = problem_of(o, from);
    for (int k = 0; k < mine->pieces; k++) {
      int64_t in = (int64_t)from * mine->pieces + k, out = (int64_t)r->rank * mine->pieces + k;
      if (mine->recv_bytes[in] == 0) continue;
      pieces.piece[pieces.count++] = (gpu_peer_piece){.from = at(o->send[from]) + (uint64_t)theirs->send_at[out],
                                                      .to = at(args_of(o, r->rank)->recv) + (uint64_t)mine->recv_at[in],
                                                      .bytes = (uint64_t)mine->recv_bytes[in]};
      if (pieces.count == GPU_PEER_PIECES) WEFT_TRY(launch_pieces(o, r, &pieces));
    }
  }
  return launch_pieces(o, r, &pieces);
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

bool gpu_peer_has(weft_coll_kind kind, weft_dtype dtype, weft_reduction reduction)
{
  weft_dtype kernels;
  int per_elem;

  switch (kind) {
  case WEFT_BARRIER: case WEFT_BROADCAST: case WEFT_ALL_GATHER: case WEFT_ALL_TO_ALL: case WEFT_PERMUTE:
  case WEFT_RAGGED_ALL_TO_ALL: return true;
  case WEFT_ALL_REDUCE: case WEFT_REDUCE:
  case WEFT_REDUCE_SCATTER: return gpu_peer_reduces(dtype, reduction, &kernels, &per_elem);
  default: return false;
  }
}

static weft_status *(*step_of(weft_coll_kind kind))(operation *o, rank *r)
{
  switch (kind) {
  case WEFT_ALL_REDUCE: return fold_slice;
  case WEFT_REDUCE: return fold_at_root;
  case WEFT_REDUCE_SCATTER: return fold_block;
  case WEFT_RAGGED_ALL_TO_ALL: return copy_pieces;
  default: return move;
  }
}

static bool reduces(weft_coll_kind kind)
{
  return kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE || kind == WEFT_REDUCE_SCATTER;
}

/* A block of the one kernel writes its part of the result while others still read the operand, so these must not
 * overlap. */
static bool is_small(const operation *o)
{
  const coll_problem *p = o->problem;
  bool blocks = (p->kind == WEFT_REDUCE_SCATTER && !p->prefix) || p->kind == WEFT_ALL_GATHER;
  int64_t bytes = p->bytes * (blocks ? p->size : 1);

  if ((p->kind != WEFT_ALL_REDUCE && !blocks) || o->all->shared || o->all->size == 1 || bytes > ONE_SHOT_BYTES)
    return false;
  for (int k = 0; k < o->all->size; k++)
    if (gpu_operand_is_in_the_way(problem_of(o, k), args_of(o, k)->send, args_of(o, k)->recv, &bytes)) return false;
  return true;
}

/* ---- operations with multicast ---------------------------------------------------------------------------------- */

static int64_t whole_steps(int64_t bytes) { return WEFT_ALIGN_UP(bytes, GPU_PEER_STEP_BYTES); }

/* The same for all ranks.  All-gathers larger than a scratch are copies, since as many bytes come to each rank either
 * way, and the copies need no multiprocessors. */
static way choose_way(const operation *o)
{
  const coll_problem *p = o->problem;
  const weft_coll_op *args = args_of(o, 0);
  bool by_switch = gpu_peer_multicast_reduces(args->dtype, args->reduction);

  if (!o->all->cast || o->all->cast_failed || o->count == 0) return NO_CAST;
  switch (p->kind) {
  case WEFT_ALL_REDUCE:
    if (by_switch) return p->bytes * p->size <= CAST_AT_ONCE_BYTES ? CAST_REDUCE : CAST_TWO_SHOT;
    return p->bytes > ONE_SHOT_BYTES ? CAST_SPREAD : NO_CAST;
  case WEFT_REDUCE_SCATTER: return by_switch && !p->prefix ? CAST_SCATTER : NO_CAST;
  case WEFT_ALL_GATHER: return whole_steps(p->bytes) * p->size <= CAST_BYTES ? CAST_GATHER : NO_CAST;
  case WEFT_BROADCAST: return CAST_BROADCAST;
  default: return NO_CAST;
  }
}

/* The most bytes of a block that a kernel handles. */
static int64_t most_bytes(const operation *o)
{
  bool blocks = o->way == CAST_SCATTER || o->way == CAST_GATHER;

  return CAST_BYTES / (blocks ? o->all->size : 1) / GPU_PEER_STEP_BYTES * GPU_PEER_STEP_BYTES;
}

static uint64_t steps_at(uint64_t addresses, int64_t bytes)
{
  return addresses % GPU_PEER_STEP_BYTES ? 0 : (uint64_t)(bytes / GPU_PEER_STEP_BYTES);
}

static gpu_peer_args cast_args(const operation *o, const rank *r)
{
  const gpu_multicast_member *own = &o->all->cast->members[r->rank];
  uint64_t scratch_at = (o->all->small_count % 2) * CAST_BYTES, from = 0, to;
  gpu_peer_args args = args_for(r);

  args.scratch = own->own + scratch_at;
  args.all = own->all + scratch_at;
  args.out = at(args_of(o, r->rank)->recv) + (uint64_t)o->first;
  args.send = at(o->send[r->rank]) + (uint64_t)o->first;
  args.bytes = (uint64_t)o->piece;
  args.slot = (uint64_t)whole_steps(o->piece);
  args.block = (uint64_t)o->problem->bytes;
  if (o->way == CAST_BROADCAST) {
    if (r->rank != o->problem->root) args.send = 0;
    if (!args_of(o, r->rank)->recv || args.out == args.send) args.out = 0;
  }
  for (int k = 0; o->way == CAST_SPREAD && k < o->all->size; k++) {
    args.in[k] = at(o->send[k]) + (uint64_t)o->first;
    from |= args.in[k];
  }
  from |= args.send;
  to = args.out;
  if (o->way == CAST_SCATTER) from |= args.block;
  if (o->way == CAST_GATHER) to |= args.block;
  args.steps = steps_at(from, o->piece);
  args.out_steps = steps_at(to, o->piece);
  return args;
}

static weft_status *cast(operation *o, rank *r)
{
  static const kernel kernels[] = {
    [CAST_REDUCE] = KERNEL_multicast_reduce, [CAST_TWO_SHOT] = KERNEL_multicast_two_shot,
    [CAST_SCATTER] = KERNEL_multicast_scatter, [CAST_SPREAD] = KERNEL_multicast_spread,
    [CAST_GATHER] = KERNEL_multicast_gather, [CAST_BROADCAST] = KERNEL_multicast_broadcast,
  };
  bool shares = o->way == CAST_TWO_SHOT || o->way == CAST_SPREAD;
  gpu_peer_args args = cast_args(o, r);
  /* the same on all ranks; where the ranks share the steps of each thread, a thread has one for each of them */
  int64_t units = (int64_t)args.slot / GPU_PEER_STEP_BYTES / (shares ? o->all->size : 1);

  return launch(r, kernel_of(o, r, kernels[o->way]), blocks_for(units, GPU_PEER_BLOCKS), GPU_PEER_THREADS, &args);
}

/* Only "multicast_spread" reads the operands of other ranks; its last barrier is behind the last read. */
static weft_status *cast_all(operation *o)
{
  int64_t most = most_bytes(o);

  WEFT_TRY(on_each(o, stage));
  if (o->way == CAST_SPREAD) WEFT_TRY(meet(o));
  for (o->first = 0; o->first < o->problem->bytes; o->first += o->piece) {
    o->piece = WEFT_MIN(most, o->problem->bytes - o->first);
    WEFT_TRY(on_each(o, cast));
    o->all->small_count++;
  }
  return NULL;
}

/* Whether a rank's part of an operation has ended when the rank's own stream has done it. */
static bool ends_alone(const operation *o) { return o->way == NO_CAST ? is_small(o) : o->way != CAST_SPREAD; }

/* The streams of the ranks wait for the work that comes before the operation. */
static weft_status *await_inputs(operation *o)
{
  for (int k = 0; k < o->all->size; k++) WEFT_TRY(gpu_await_input(o->all->ranks[k].stream, &o->jobs[k]->base.posting));
  return NULL;
}

static weft_status *begin_time(operation *o, rank *r)
{
  job *j = o->jobs[r->rank];
  rt_trace_step about = gpu_job_trace(&j->base, ordinal_of(r));

  gpu_stream_time(r->stream, &about, &j->timed);
  return NULL;
}

static weft_status *end_time(operation *o, rank *r)
{
  gpu_stream_time_end(r->stream, &o->jobs[r->rank]->timed);
  return NULL;
}

static weft_status *queue_timed(operation *o)
{
  weft_coll_kind kind = o->problem->kind;

  if (kind == WEFT_BARRIER) return meet(o);
  /* of a ragged all-to-all it is rank 0's extent, which says nothing about the others */
  if (o->count == 0 && kind != WEFT_RAGGED_ALL_TO_ALL) return NULL;
  if (o->way != NO_CAST) return cast_all(o);
  if (is_small(o)) {
    WEFT_TRY(on_each(o, one_kernel));
    o->all->small_count++;
    return NULL;
  }
  WEFT_TRY(on_each(o, stage));
  WEFT_TRY(meet(o));
  WEFT_TRY(on_each(o, step_of(kind)));
  WEFT_TRY(meet(o));
  if (kind != WEFT_ALL_REDUCE || o->all->size == 1) return NULL;
  WEFT_TRY(on_each(o, copy_slices));
  return meet(o);
}

static weft_status *queue_steps(operation *o)
{
  bool is_timed = rt_trace_on;

  WEFT_TRY(await_inputs(o));
  if (WEFT_UNLIKELY(is_timed)) WEFT_TRY(on_each(o, begin_time));
  weft_status *st = queue_timed(o);
  weft_status *untimed = WEFT_UNLIKELY(is_timed) ? on_each(o, end_time) : NULL;
  weft_status_free(st ? untimed : NULL);
  return st ? st : untimed;
}

/* Kernels that the driver does not take, as where it does not know their version of PTX, are not tried again. */
static void find_cast_kernels(operation *o, weft_dtype dtype, weft_reduction reduction)
  WEFT_REQUIRES(o->all->platform->launching)
{
  weft_status *st = find_kernels(o->all->platform, dtype, reduction, o->all->size, true, &o->cast_kernels);

  if (!st) return;
  WEFT_LOG("gpu", DEBUG, "collectives go on without multicast: %s", weft_status_message(st));
  weft_status_free(st);
  o->all->cast_failed = true;
  o->way = NO_CAST;
}

static weft_status *queue(operation *o) WEFT_REQUIRES(o->all->platform->launching)
{
  const weft_coll_op *args = args_of(o, 0);
  weft_dtype dtype = args->dtype;
  weft_reduction reduction = reduces(args->kind) ? args->reduction : WEFT_REDUCE_NONE;
  int per_elem = 1;

  if (!gpu_peer_has(args->kind, args->dtype, args->reduction))
    return WEFT_ERR(UNIMPLEMENTED, "%s of %s is not done between GPUs", weft_coll_kind_name(args->kind),
                    weft_dtype_name(args->dtype));
  if (reduction) gpu_peer_reduces(args->dtype, reduction, &dtype, &per_elem);
  else dtype = WEFT_U8; /* any type: these kernels have no elements */
  o->elem_bytes = (int64_t)weft_dtype_bytes(dtype);
  o->count = o->problem->prefix ? o->problem->prefix[o->all->size] / o->elem_bytes : o->problem->bytes / o->elem_bytes;
  o->way = choose_way(o);
  if (o->way != NO_CAST) find_cast_kernels(o, dtype, reduction);
  if (o->way == NO_CAST || o->way == CAST_SPREAD)
    WEFT_TRY(find_kernels(o->all->platform, dtype, reduction, o->all->size, false, &o->kernels));
  return queue_steps(o);
}

/* ---- the ends of operations ------------------------------------------------------------------------------------- */

static void set_abort(communicator *c)
{
  if (c->abort) __atomic_store_n(c->abort, 1, __ATOMIC_RELEASE);
}

/* Keeps the error with which the communicator has failed, and ends its waiting kernels. */
static void fail_locked(communicator *c, const weft_status *st) WEFT_REQUIRES(c->mu)
{
  weft_mutex_assert_held(&c->mu);
  if (!c->failure) c->failure = weft_status_dup(st);
  set_abort(c);
}

/* On the completer's thread, under its lock. */
static void land(void *ctx, const weft_status *error)
{
  job *j = ctx;
  communicator *c = j->owner->all;

  weft_mutex_lock(&c->mu);
  if (error) fail_locked(c, error);
  gpu_jobs_push(&c->landed, &j->base);
  weft_cond_signal(&c->wake);
  weft_mutex_unlock(&c->mu);
}

/* After a failure no result counts: a kernel that did not meet the others may have read wrong bytes. */
static void finish(communicator *c, job *j)
{
  weft_mutex_lock(&c->mu);
  if (c->failure && !j->base.error) j->base.error = weft_status_dup(c->failure);
  weft_mutex_unlock(&c->mu);
  if (j->base.staged) {
    weft_status *st = gpu_enter(j->owner->gpu);
    if (!st) {
      gpu_job_free_staged(&j->base);
      gpu_leave();
    }
    weft_status_ignore(st); /* the device hangs: what it holds is not freed */
  }
  gpu_ender_take(c->platform->ender, &j->base);
}

/* The stream of a job has done the job. */
static void take_landed(communicator *c, job *j)
{
  job *first = j->first, *next;

  weft_mutex_lock(&c->mu);
  c->flying--;
  weft_mutex_unlock(&c->mu);
  if (!j->together) {
    finish(c, j);
  } else if (--first->left == 0) {
    for (j = first; j; j = next) {
      next = j->mate;
      finish(c, j);
    }
  }
}

/* ---- the conductor ---------------------------------------------------------------------------------------------- */

static void conduct(communicator *c, operation *o)
{
  weft_status *st;

  o->all = c;
  o->problem = problem_of(o, 0);
  weft_mutex_lock(&o->all->platform->launching);
  st = queue(o);
  weft_mutex_unlock(&o->all->platform->launching);
  bool together = !ends_alone(o);
  for (int k = 0; k < c->size; k++) {
    job *j = o->jobs[k];
    j->first = o->jobs[0];
    j->mate = k + 1 < c->size ? o->jobs[k + 1] : NULL;
    j->left = c->size;
    j->together = together;
    j->base.call = (weft_stream_call){.fn = land, .ctx = j};
  }
  weft_mutex_lock(&c->mu);
  if (st) fail_locked(c, st);
  weft_mutex_unlock(&c->mu);
  weft_status_free(st);
  for (int k = 0; k < c->size; k++) gpu_stream_notify(c->ranks[k].stream, &o->jobs[k]->base.call);
}

/* What the conductor has to do next. */
typedef struct turn {
  gpu_job *landed, *dropped;
  operation operation;
  bool has_operation, stop;
} turn;

/* True: every rank has an operation. */
static bool take_operation(communicator *c, operation *out) WEFT_REQUIRES(c->mu)
{
  for (int k = 0; k < c->size; k++)
    if (!c->ranks[k].waiting.first) return false;
  *out = (operation){.all = c};
  for (int k = 0; k < c->size; k++) out->jobs[k] = (job *)gpu_jobs_pop(&c->ranks[k].waiting);
  return true;
}

static gpu_job *take_waiting(communicator *c) WEFT_REQUIRES(c->mu)
{
  gpu_jobs all;

  gpu_jobs_init(&all);
  for (int k = 0; k < c->size; k++)
    for (gpu_job *j; (j = gpu_jobs_pop(&c->ranks[k].waiting));) gpu_jobs_push(&all, j);
  return all.first;
}

static turn next_turn(communicator *c)
{
  turn t = {.landed = NULL};

  weft_mutex_lock(&c->mu);
  for (;;) {
    bool failed = c->aborted || c->failure;
    if (failed) t.dropped = take_waiting(c);
    else t.has_operation = take_operation(c, &t.operation);
    if (t.has_operation) c->flying += c->size;
    t.landed = gpu_jobs_pop_all(&c->landed);
    t.stop = c->stop && !c->flying && !t.landed;
    if (t.landed || t.dropped || t.has_operation || t.stop) break;
    weft_cond_wait(&c->wake, &c->mu, WEFT_NO_DEADLINE); /* a post, the completer or `destroy` ends the wait */
  }
  weft_mutex_unlock(&c->mu);
  return t;
}

static void *conductor_run(void *arg)
{
  communicator *c = arg;

  gpu_numa_bind(c->platform->node);
  for (;;) {
    turn t = next_turn(c);
    for (gpu_job *j = t.landed, *after; j; j = after) {
      after = j->next;
      take_landed(c, (job *)j);
    }
    for (gpu_job *j = t.dropped, *after; j; j = after) {
      after = j->next;
      j->error = WEFT_ERR(ABORTED, "the communicator was aborted");
      gpu_ender_take(c->platform->ender, j);
    }
    if (t.has_operation) conduct(c, &t.operation);
    if (t.stop) return NULL;
  }
}

/* ---- who can connect -------------------------------------------------------------------------------------------- */

static bool reach_each_other(const gpu_platform *p, int a, int b)
{
  return p->gpus[a].device == p->gpus[b].device || (p->gpus[a].reaches[b] && p->gpus[b].reaches[a]);
}

bool gpu_peer_can_connect_all(const weft_platform *platform)
{
  const gpu_platform *p = (const gpu_platform *)platform;

  for (int a = 0; a < p->gpu_count; a++)
    for (int b = 0; b < a; b++)
      if (!reach_each_other(p, a, b)) return false;
  return p->gpu_count <= GPU_PEER_RANKS;
}

bool gpu_peer_any_shared(const weft_platform *platform) { return ((const gpu_platform *)platform)->settings.share > 1; }

static weft_device *device_of(const weft_platform *platform, const weft_comm_spec *spec, int rank)
{
  return weft_platform_device_by_id(platform, spec->device_ids ? spec->device_ids[rank] : rank);
}

bool gpu_peer_can_connect(const weft_platform *platform, const weft_comm_spec *spec)
{
  if (spec->rank_count != spec->size || spec->size > GPU_PEER_RANKS) return false;
  for (int a = 0; a < spec->size; a++) {
    const weft_device *one = device_of(platform, spec, a);
    if (!one) return false;
    for (int b = 0; b < a; b++)
      if (!reach_each_other((const gpu_platform *)platform, one->ordinal, device_of(platform, spec, b)->ordinal))
        return false;
  }
  return true;
}

/* ---- the communicator ------------------------------------------------------------------------------------------- */

static weft_status *make_own(rank *r)
{
  WEFT_TRY(GPU_CALL(cuMemAlloc, &r->own, OWN_BYTES));
  WEFT_TRY(GPU_CALL(cuMemsetD8Async, r->own, 0, SCRATCH_AT, gpu_stream_handle(r->stream)));
  return gpu_await(r->gpu, gpu_stream_handle(r->stream)); /* a peer may write to it at once */
}

static weft_status *init_rank(communicator *c, int k, weft_device *device)
{
  rank *r = &c->ranks[k];

  r->all = c;
  r->rank = k;
  r->gpu = gpu_of(device);
  r->device_id = device->id;
  gpu_jobs_init(&r->waiting);
  WEFT_TRY(gpu_job_pool_init(&r->pool, sizeof(job)));
  WEFT_TRY(gpu_stream_create(device, 1, &r->stream));
  WEFT_TRY(gpu_enter(r->gpu));
  weft_status *st = make_own(r);
  gpu_leave();
  for (int other = 0; other < k; other++) c->shared |= c->ranks[other].gpu->device == r->gpu->device;
  return st;
}

static weft_status *make_abort_word(communicator *c)
{
  void *word;

  WEFT_TRY(gpu_enter(c->ranks[0].gpu));
  weft_status *st =
    GPU_CALL(cuMemHostAlloc, &word, sizeof *c->abort, WCU_MEMHOSTALLOC_PORTABLE | WCU_MEMHOSTALLOC_DEVICEMAP);
  gpu_leave();
  WEFT_TRY(st);
  c->abort = word;
  *c->abort = 0;
  return NULL;
}

/* Without multicast everything goes by the other kernels and copies. */
static void find_cast(communicator *c)
{
  gpu_device *gpus[GPU_PEER_RANKS];

  if (!c->platform->settings.multicast || c->shared || c->size < 2) return;
  for (int k = 0; k < c->size; k++) gpus[k] = c->ranks[k].gpu;
  weft_status *st = gpu_multicast_new(gpus, c->size, 2 * CAST_BYTES, &c->cast);
  if (st) WEFT_LOG("gpu", DEBUG, "collectives of %d GPUs go without multicast: %s", c->size, weft_status_message(st));
  weft_status_free(st);
}

static weft_status *start(communicator *c, const weft_comm_spec *spec)
{
  if (!gpu_peer_can_connect(&c->platform->base, spec))
    return WEFT_ERR(UNIMPLEMENTED, "collectives between %d devices that do not all reach each other's memory",
                    spec->size);
  for (int k = 0; k < c->size; k++) WEFT_TRY(init_rank(c, k, device_of(&c->platform->base, spec, k)));
  WEFT_TRY(make_abort_word(c));
  find_cast(c);
  WEFT_TRY(weft_thread_start(&c->thread, "weft-peers", conductor_run, c));
  c->started = true;
  return NULL;
}

static void free_rank(rank *r)
{
  if (r->stream) gpu_stream_destroy(r->stream);
  weft_status *st = r->gpu ? gpu_enter(r->gpu) : NULL;
  if (r->gpu && !st) {
    if (r->own) gpu_cu.cuMemFree(r->own);
    gpu_leave();
  }
  weft_status_ignore(st);
  gpu_job_pool_fini(&r->pool);
}

static void destroy(coll_communicator *base) WEFT_UNSHARED
{
  communicator *c = (communicator *)base;

  weft_mutex_lock(&c->mu);
  c->stop = true;
  weft_cond_signal(&c->wake);
  weft_mutex_unlock(&c->mu);
  if (c->started && !gpu_join(c->thread, weft_deadline_after_ms(JOIN_MS), "communicator between GPUs")) {
    gpu_platform_leave_thread(&c->platform->base);
    return;
  }
  for (int k = 0; k < c->size; k++) free_rank(&c->ranks[k]);
  gpu_multicast_free(c->cast);
  if (c->abort) {
    weft_status *st = gpu_enter(c->ranks[0].gpu);
    if (!st) {
      gpu_cu.cuMemFreeHost(c->abort);
      gpu_leave();
    }
    weft_status_ignore(st);
  }
  weft_status_free(c->failure);
  weft_cond_fini(&c->wake);
  weft_mutex_fini(&c->mu);
  free(c);
}

static weft_status *create(void *ctx, const weft_comm_spec *spec, coll_communicator **out_communicator) WEFT_UNSHARED
{
  communicator *c = calloc(1, sizeof *c + (size_t)spec->size * sizeof c->ranks[0]);

  *out_communicator = NULL;
  WEFT_TRY_ALLOC(c);
  c->base.ops = &gpu_peer_communicator;
  c->platform = ctx;
  c->size = spec->size;
  gpu_jobs_init(&c->landed);
  weft_mutex_init(&c->mu);
  weft_cond_init(&c->wake);
  weft_status *st = start(c, spec);
  if (st) destroy(&c->base);
  else *out_communicator = &c->base;
  return st;
}

/* Parts are communicators like any other: no data has to be shared with them. */
static weft_status *divide(coll_communicator *base, const coll_division *division, coll_communicator **out)
{
  communicator *c = (communicator *)base;
  weft_status *st = NULL;
  int made = 0;

  while (made < division->part_count && !st) {
    st = create(c->platform, &division->specs[made], &out[made]);
    if (!st) made++;
  }
  while (st && made > 0) destroy(WEFT_MOVE(out[--made]));
  return st;
}

/* Under the group's lock, as `abort_all` and `describe` are. */
static void post(coll_communicator *base, const coll_posting *posting)
{
  communicator *c = (communicator *)base;
  rank *r = &c->ranks[posting->rank];
  job *j = (job *)gpu_job_new(&r->pool, posting);

  if (!j) {
    WEFT_LOG("gpu", ERROR, "rank %d: no memory for an operation, which will run into its deadline", r->rank);
    return;
  }
  j->owner = r;
  weft_mutex_lock(&c->mu);
  gpu_jobs_push(&r->waiting, &j->base);
  weft_cond_signal(&c->wake);
  weft_mutex_unlock(&c->mu);
}

static void abort_all(coll_communicator *base, const weft_status *why)
{
  communicator *c = (communicator *)base;

  (void)why;
  weft_mutex_lock(&c->mu);
  c->aborted = true;
  set_abort(c);
  weft_cond_signal(&c->wake);
  weft_mutex_unlock(&c->mu);
}

static void describe(const coll_communicator *base, char *out, size_t size)
{
  communicator *c = (communicator *)base;
  int waiting = 0;

  weft_mutex_lock(&c->mu);
  for (int k = 0; k < c->size; k++) waiting += c->ranks[k].waiting.first != NULL;
  snprintf(out, size,
           "kernels and copies between %d devices%s%s; %d of them have an operation that is not queued, %d are working",
           c->size, c->shared ? " that share GPUs" : "", c->cast && !c->cast_failed ? ", with multicast" : "", waiting,
           c->flying);
  weft_mutex_unlock(&c->mu);
}

const coll_communicator_ops gpu_peer_communicator = {
  .name = "peers",
  .create = create,
  .divide = divide,
  .post = post,
  .abort = abort_all,
  .describe = describe,
  .destroy = destroy,
};
