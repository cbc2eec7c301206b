/* lower/collective.c -- collectives, send and recv as thunks over communicators.
 *
 * A thunk posts its operation and ends when the communicator reports the end. No thread waits, except that a worker
 * which would have nothing else to do first polls for the other participants for a moment (POLL_NS). The start half
 * of an asynchronous pair is the same thunk: the executor overlaps it with all work that does not need its result.
 * The done half is only a name for the result. If blocks are not contiguous (a dimension other than the first),
 * operands are packed into the thunk's scratch before posting, and a worker unpacks results from the scratch
 * afterwards. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "hlo/frames.h"
#include "lower/lower_internal.h"

typedef struct collective_thunk {
  rt_thunk base;
  const hlo_instr *instr;       /* of the executable's module */
  const hlo_grouping *grouping;
  int grouping_index;           /* in rt_run_info.comms */
  int64_t partitions;
  int count;                    /* number of operands that are sent, and of results */
  int first_result, scratch;    /* indices of arguments; scratch -1: none */
  int64_t group_size;
  bool by_partition;            /* ids in pairs are partition ids */
  bool on_device;               /* the platform's communicator moves the data; packing is done on the compute stream */
  weft_reduction reduction;
  weft_reducer reducer;
  weft_coll_site site;
} collective_thunk;

/* One run of a thunk: lies in its rt_thunk_state. */
typedef struct collective_state {
  rt_job job;
  weft_coll_waiter waiter;
  const collective_thunk *thunk;
  rt_ctx *ctx;
} collective_state;
_Static_assert(sizeof(collective_state) <= sizeof(rt_thunk_state), "the state of a collective fits");

/* ---- shapes ---------------------------------------------------------------------------------------------------- */

static const hlo_shape *operand_shape(const hlo_instr *instr, int i) { return instr->operands[i]->shape; }

/* The dimension that a collective gathers, scatters or splits; -1: none. */
static int64_t moving_dim(const hlo_instr *instr)
{
  switch (instr->op) {
  case HLO_ALL_GATHER: case HLO_ALL_GATHER_START: case HLO_REDUCE_SCATTER:
  case HLO_ALL_TO_ALL: return instr->dims.count ? instr->dims.v[0] : -1;
  default: return -1;
  }
}

/* Elements before `dim`: if there is more than one, blocks are not contiguous. */
static int64_t outer_elems(const hlo_shape *shape, int64_t dim)
{
  int64_t n = 1;
  for (int64_t i = 0; i < dim; i++) n *= shape->dims[i];
  return n;
}

static bool is_tuple_all_to_all(const hlo_instr *instr) { return instr->op == HLO_ALL_TO_ALL && moving_dim(instr) < 0; }

static int64_t aligned_bytes(const hlo_shape *shape) { return WEFT_ALIGN_UP(hlo_shape_bytes(shape), BUF_ALIGN); }

int64_t low_collective_scratch(const hlo_instr *instr)
{
  int64_t dim = moving_dim(instr), bytes = 0;

  for (int i = 0; i < instr->operand_count; i++) {
    const hlo_shape *shape = operand_shape(instr, i);
    if (!hlo_shape_is_array(shape)) continue;
    bool packed = dim > 0 && outer_elems(shape, dim) > 1;
    switch (instr->op) {
    case HLO_ALL_TO_ALL:
      if (packed || dim < 0) bytes += 2 * aligned_bytes(shape);
      break;
    case HLO_REDUCE_SCATTER:
      if (packed) bytes += aligned_bytes(shape);
      break;
    case HLO_ALL_GATHER: case HLO_ALL_GATHER_START:
      if (packed) {
        const hlo_shape *result = instr->op == HLO_ALL_GATHER ? instr->shape
                                                              : hlo_shape_at(instr->shape, (int64_t[]){1}, 1);
        bytes += aligned_bytes(hlo_shape_is_tuple(result) ? result->elements[i] : result);
      }
      break;
    default: break;
    }
  }
  return bytes;
}

/* Copies on the compute stream of the run's device, or at once in host memory if `device` is NULL. */
static weft_status *copy(weft_device *device, void *to, const void *from, int64_t bytes)
{
  if (device) return weft_device_copy(device, weft_device_stream(device, WEFT_STREAM_COMPUTE), to, device, from, bytes);
  if (bytes > 0) memcpy(to, from, (size_t)bytes);
  return NULL;
}

static weft_status *zero(weft_device *device, void *to, int64_t bytes)
{
  if (device) return weft_device_fill(device, weft_device_stream(device, WEFT_STREAM_COMPUTE), to, 0, bytes);
  if (bytes > 0) memset(to, 0, (size_t)bytes);
  return NULL;
}

/* `rows` pieces of `bytes` bytes, which begin `from_step` and `to_step` bytes apart. */
static weft_status *copy_rows(weft_device *device, char *to, int64_t to_step, const char *from, int64_t from_step,
                              int64_t bytes, int64_t rows)
{
  if (device)
    return weft_device_copy_rows(device, weft_device_stream(device, WEFT_STREAM_COMPUTE), to, to_step, from, from_step,
                                 bytes, rows);
  for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_step, from + r * from_step, (size_t)bytes);
  return NULL;
}

/* to[block][row] = from[row][block], blocks of `bytes`. */
static weft_status *pack(weft_device *device, char *to, const char *from, int64_t rows, int64_t blocks, int64_t bytes)
{
  for (int64_t b = 0; b < blocks; b++)
    WEFT_TRY(copy_rows(device, to + b * rows * bytes, bytes, from + b * bytes, blocks * bytes, bytes, rows));
  return NULL;
}

static weft_status *unpack(weft_device *device, char *to, const char *from, int64_t rows, int64_t blocks, int64_t bytes)
{
  for (int64_t b = 0; b < blocks; b++)
    WEFT_TRY(copy_rows(device, to + b * bytes, blocks * bytes, from + b * rows * bytes, bytes, bytes, rows));
  return NULL;
}

/* ---- addresses ------------------------------------------------------------------------------------------------- */

/* The thunk's arguments as addresses for the host's communicators. For a device that the host cannot see they are
 * written to `room`, which holds one pointer for each use, unless they are copies in host memory already. NULL: the
 * device offers no such addresses. */
static void *const *host_args(const rt_thunk *thunk, const rt_ctx *ctx, void **room)
{
  void *const *args = rt_args(thunk, ctx);

  if (!ctx->info->device || thunk->wants_host_memory || ((const collective_thunk *)thunk)->on_device ||
      weft_device_is_host_visible(ctx->info->device))
    return args;
  for (int i = 0; i < thunk->use_count; i++) {
    room[i] = args[i] ? weft_device_host_address(ctx->info->device, args[i]) : NULL;
    if (args[i] && !room[i]) return NULL;
  }
  return room;
}

static weft_status *no_host_address(const rt_thunk *thunk, const rt_ctx *ctx)
{
  return WEFT_ERR(UNIMPLEMENTED, "%s: the memory of device %lld has no address on the host", thunk->name,
                  (long long)ctx->info->device_id);
}

/* ---- ending ---------------------------------------------------------------------------------------------------- */

static const rt_use *result_use(const collective_thunk *t, int i) { return &t->base.uses[t->first_result + i]; }

/* The device on whose compute stream the thunk packs; NULL: it packs in host memory. */
static weft_device *packing_device(const collective_thunk *t, const rt_ctx *ctx)
{
  return t->on_device ? ctx->info->device : NULL;
}

/* Unpacks results from the scratch to where they belong. */
static weft_status *unpack_results(const collective_thunk *t, weft_device *device, void *const *args)
{
  const hlo_instr *instr = t->instr;
  int64_t dim = moving_dim(instr);
  char *from = args[t->scratch];

  if (is_tuple_all_to_all(instr)) from += t->count * aligned_bytes(operand_shape(instr, 0));
  for (int i = 0; i < t->count; i++) {
    const hlo_shape *shape = operand_shape(instr, i);
    int64_t bytes = result_use(t, i)->slice.bytes, outer = dim > 0 ? outer_elems(shape, dim) : 1;
    char *to = args[t->first_result + i];
    if (is_tuple_all_to_all(instr)) {
      WEFT_TRY(copy(device, to, from + (int64_t)i * hlo_shape_bytes(shape), bytes));
      continue;
    }
    if (outer == 1 || bytes == 0) continue;
    if (instr->op == HLO_ALL_TO_ALL) from += aligned_bytes(shape); /* skips the packed operand */
    WEFT_TRY(unpack(device, to, from, outer, t->group_size, bytes / (outer * t->group_size)));
    from += WEFT_ALIGN_UP(bytes, BUF_ALIGN);
  }
  return NULL;
}

/* The scratch of a reduce-scatter holds operands only. */
static bool packs_results(const collective_thunk *t) { return t->scratch >= 0 && t->instr->op != HLO_REDUCE_SCATTER; }

static void finish_job(rt_job *job)
{
  collective_state *s = WEFT_CONTAINER_OF(job, collective_state, job);

  const rt_thunk *thunk = &s->thunk->base;
  weft_status *st = NULL;

  if (packs_results(s->thunk)) {
    void **room = rt_thread_scratch((int64_t)thunk->use_count * (int64_t)sizeof *room);
    if (!room) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
    else /* the arguments are not NULL: collective_start has checked */
      st = unpack_results(s->thunk, packing_device(s->thunk, s->ctx), host_args(thunk, s->ctx, room));
  }
  rt_thunk_done(thunk, s->ctx, st);
}

/* Called on the thread that ended the operation, which must not compute. */
static void operation_ended(void *ctx, weft_status *st)
{
  collective_state *s = ctx;

  if (st || !packs_results(s->thunk)) rt_thunk_done(&s->thunk->base, s->ctx, st);
  else rt_pool_offer(s->ctx->pool, &s->job, 1);
}

/* ---- starting -------------------------------------------------------------------------------------------------- */

static int64_t place_of(const collective_thunk *t, const rt_ctx *ctx)
{
  return ctx->info->replica_id * t->partitions + ctx->info->partition_id;
}

static int64_t integer_at(const void *data, weft_dtype type, int64_t i)
{
  switch (weft_dtype_bytes(type)) {
  case 4: return type == WEFT_U32 ? (int64_t)((const uint32_t *)data)[i] : ((const int32_t *)data)[i];
  default: return ((const int64_t *)data)[i];
  }
}

typedef struct ragged_arrays { weft_coll_ragged ragged; int64_t *values; } ragged_arrays;

/* Integers of an operation's four arrays: at least one for each rank and array, since an operation without updates is
 * posted as one with an update of no rows. */
static int64_t ragged_integers(const collective_thunk *t)
{
  return 4 * WEFT_MAX(hlo_shape_elems(operand_shape(t->instr, 2)), t->group_size);
}

/* The four arrays of offsets and sizes as integers: array k at to[k * stride].  Arrays on the device are read at once,
 * since the stream has done what the run has queued before a collective starts; they come into the upper parts of their
 * places if they are narrower. */
static weft_status *read_integers(const hlo_instr *instr, weft_device *device, void *const *arrays, int64_t *to,
                                  int64_t stride)
{
  weft_device_piece pieces[4];

  for (int k = 0; k < 4; k++) {
    const hlo_shape *shape = operand_shape(instr, 2 + k);
    int64_t bytes = hlo_shape_bytes(shape);
    pieces[k] = (weft_device_piece){(char *)(to + k * stride + hlo_shape_elems(shape)) - bytes, arrays[k], bytes};
  }
  if (device) WEFT_TRY(weft_device_read_pieces(device, pieces, 4));
  for (int k = 0; k < 4; k++) {
    const hlo_shape *shape = operand_shape(instr, 2 + k);
    const void *from = device ? pieces[k].host : arrays[k];
    for (int64_t i = 0; i < hlo_shape_elems(shape); i++) to[k * stride + i] = integer_at(from, shape->type, i);
  }
  return NULL;
}

static weft_status *ragged_op(const collective_thunk *t, const rt_ctx *ctx, void *const *args, weft_coll_op *op,
                              ragged_arrays *room)
{
  const hlo_instr *instr = t->instr;
  const hlo_shape *input = operand_shape(instr, 0), *output = operand_shape(instr, 1);
  weft_device *device = packing_device(t, ctx);
  int64_t count = ragged_integers(t) / 4;

  memset(room->values, 0, (size_t)(4 * count) * sizeof *room->values);
  WEFT_TRY(read_integers(instr, device, args + 2, room->values, count));
  if (args[t->first_result] != args[1]) WEFT_TRY(copy(device, args[t->first_result], args[1], hlo_shape_bytes(output)));
  room->ragged = (weft_coll_ragged){.input_offsets = room->values,
                                    .send_sizes = room->values + count,
                                    .output_offsets = room->values + 2 * count,
                                    .recv_sizes = room->values + 3 * count,
                                    .updates = count / t->group_size,
                                    .row_elems = input->dims[0] ? hlo_shape_elems(input) / input->dims[0] : 1,
                                    .send_rows = input->dims[0],
                                    .recv_rows = output->dims[0]};
  *op = (weft_coll_op){.kind = WEFT_RAGGED_ALL_TO_ALL,
                       .dtype = input->type,
                       .send = args[0],
                       .recv = args[t->first_result],
                       .ragged = &room->ragged};
  return NULL;
}

/* The rank that sends operand i. The last operand has a rank for each operand, or one for all. The communicator
 * refuses a rank that does not exist. */
static int dynamic_root(const collective_thunk *t, void *const *args, int i)
{
  const hlo_shape *roots = operand_shape(t->instr, t->count);
  int64_t root = integer_at(args[t->count], roots->type, hlo_shape_elems(roots) > i ? i : 0);

  return (int)WEFT_MAX(-1, WEFT_MIN(root, INT32_MAX));
}

/* Fills operation i of the thunk; *staging advances through the scratch. */
static weft_status *fill_op(const collective_thunk *t, const rt_ctx *ctx, void *const *args, int i, char **staging,
                            weft_coll_op *op)
{
  const hlo_instr *instr = t->instr;
  const hlo_shape *shape = operand_shape(instr, i);
  weft_device *device = packing_device(t, ctx);
  int rank = t->grouping->rank_of[place_of(t, ctx)];
  int64_t id = t->by_partition ? ctx->info->partition_id : ctx->info->replica_id;
  int64_t elems = hlo_shape_elems(shape), dim = moving_dim(instr), outer = dim > 0 ? outer_elems(shape, dim) : 1;
  int64_t bytes = hlo_shape_bytes(shape);

  *op = (weft_coll_op){.dtype = shape->type,
                       .send = args[i],
                       .recv = args[t->first_result + i],
                       .count = (size_t)elems,
                       .source = -1,
                       .target = -1};
  switch (instr->op) {
  case HLO_ALL_REDUCE:
  case HLO_ALL_REDUCE_START: op->kind = WEFT_ALL_REDUCE; break;
  case HLO_REDUCE_SCATTER:
    op->kind = WEFT_REDUCE_SCATTER;
    op->count = (size_t)(elems / t->group_size);
    if (outer > 1 && bytes > 0) {
      WEFT_TRY(pack(device, *staging, args[i], outer, t->group_size, bytes / (outer * t->group_size)));
      op->send = *staging;
      *staging += aligned_bytes(shape);
    }
    break;
  case HLO_ALL_GATHER: case HLO_ALL_GATHER_START:
    op->kind = WEFT_ALL_GATHER;
    if (outer > 1) {
      op->recv = *staging;
      *staging += WEFT_ALIGN_UP(result_use(t, i)->slice.bytes, BUF_ALIGN);
    }
    break;
  case HLO_ALL_TO_ALL:
    op->kind = WEFT_ALL_TO_ALL;
    op->count = (size_t)(elems / t->group_size);
    if (outer > 1 && bytes > 0) {
      WEFT_TRY(pack(device, *staging, args[i], outer, t->group_size, bytes / (outer * t->group_size)));
      op->send = *staging;
      op->recv = *staging + aligned_bytes(shape);
      *staging += 2 * aligned_bytes(shape);
    }
    break;
  case HLO_COLLECTIVE_BROADCAST:
    op->kind = WEFT_BROADCAST;
    if (instr->u.collective->has_dynamic_root) op->root = dynamic_root(t, args, i);
    if (rank != op->root) op->send = NULL;
    break;
  default: /* collective-permute */
    op->kind = WEFT_PERMUTE;
    for (int p = 0; p < instr->u.collective->pair_count; p++) {
      if (instr->u.collective->pairs[p][0] == id &&
          !(t->grouping->place_count == 1 && instr->u.collective->pairs[p][1] > 0))
        /* XLA accepts pairs that a single participant does not have */
        op->target = (int)instr->u.collective->pairs[p][1];
      if (instr->u.collective->pairs[p][1] == id) op->source = (int)instr->u.collective->pairs[p][0];
    }
  }
  if (t->reduction != WEFT_REDUCE_NONE) {
    op->reduction = t->reduction;
    op->reducer = t->reduction == WEFT_CUSTOM ? &t->reducer : NULL;
  }
  return NULL;
}

/* The tuple form of all-to-all as one operation: packs the operands side by side. */
static weft_status *tuple_all_to_all_op(const collective_thunk *t, const rt_ctx *ctx, void *const *args,
                                        weft_coll_op *op)
{
  const hlo_shape *shape = operand_shape(t->instr, 0);
  int64_t bytes = hlo_shape_bytes(shape);
  char *staging = args[t->scratch];

  for (int i = 0; i < t->count; i++) WEFT_TRY(copy(packing_device(t, ctx), staging + i * bytes, args[i], bytes));
  *op = (weft_coll_op){.kind = WEFT_ALL_TO_ALL,
                       .dtype = shape->type,
                       .send = staging,
                       .recv = staging + t->count * aligned_bytes(shape),
                       .count = (size_t)hlo_shape_elems(shape)};
  return NULL;
}

/* How long a worker polls for the other participants, ns. It is less than an idle worker spins for work, because a
 * step of this very device may be waiting for this thread. */
enum { POLL_NS = 15000 };

/* This thread polls for the other participants only if all participants of this process can do so at the same time. */
static weft_coll_patience patience_of(const rt_pool *pool, const weft_comm *comm)
{
  bool idle = pool && rt_pool_is_worker(pool) && weft_comm_local_count(comm) <= rt_pool_threads(pool);

  return (weft_coll_patience){idle ? POLL_NS : 0, pool ? rt_pool_wanted(pool) : NULL};
}

static weft_coll_call call_of(const collective_thunk *t, const rt_ctx *ctx)
{
  weft_coll_call call = {.site = t->site};

  if (t->on_device) call.stream = weft_device_stream(ctx->info->device, WEFT_STREAM_COMPUTE);
  call.site.launch_id = ctx->info->comm_launches[t->grouping_index];
  call.program = ctx->info->program_id;
  call.run = ctx->info->run_id;
  call.warn_ns = ctx->info->collective_warn_ns;
  if (ctx->info->collective_timeout_ns) call.deadline = weft_deadline_after_ns(ctx->info->collective_timeout_ns);
  return call;
}

/* Posts the operations. On success the thunk ends when they end. */
static weft_status *post(const collective_thunk *t, rt_ctx *ctx, const weft_coll_op *ops, int count)
{
  collective_state *s = (collective_state *)&ctx->states[t->base.index];
  weft_comm *comm = ctx->info->comms[t->grouping_index];
  weft_coll_call call = call_of(t, ctx);
  bool pending;

  *s = (collective_state){.job = {.run = finish_job, .node = rt_device_near(ctx->info->device)}, .waiter = {.fn = operation_ended, .ctx = s}, .thunk = t, .ctx = ctx};
  WEFT_TRY(weft_coll_start(comm, ops, (size_t)count, &call, patience_of(ctx->pool, comm), &s->waiter, &pending));
  if (!pending) finish_job(&s->job);
  return NULL;
}

static weft_status *collective_start(const rt_thunk *thunk, rt_ctx *ctx)
{
  const collective_thunk *t = (const collective_thunk *)thunk;
  int count = t->instr->op == HLO_RAGGED_ALL_TO_ALL || is_tuple_all_to_all(t->instr) ? 1 : t->count;
  int64_t indices = t->instr->op == HLO_RAGGED_ALL_TO_ALL ? ragged_integers(t) : 0;
  weft_coll_op *ops;
  ragged_arrays room;

  ops = rt_thread_scratch(count * (int64_t)sizeof *ops + indices * (int64_t)sizeof(int64_t) +
                          thunk->use_count * (int64_t)sizeof(void *));
  WEFT_TRY_ALLOC(ops);
  void *const *args = host_args(thunk, ctx, (void **)((int64_t *)(ops + count) + indices));
  if (!args) return no_host_address(thunk, ctx);
  char *staging = t->scratch >= 0 ? args[t->scratch] : NULL;
  if (t->grouping->group_of[place_of(t, ctx)] < 0) {
    if (t->instr->op != HLO_COLLECTIVE_BROADCAST)
      return WEFT_ERR(INVALID_ARGUMENT, "replica %lld, partition %lld is in no group", (long long)ctx->info->replica_id,
                      (long long)ctx->info->partition_id);
    for (int i = 0; i < t->count; i++)
      WEFT_TRY(zero(packing_device(t, ctx), args[t->first_result + i], result_use(t, i)->slice.bytes));
    rt_thunk_done(thunk, ctx, NULL);
    return NULL;
  }
  if (t->instr->op == HLO_RAGGED_ALL_TO_ALL) {
    room.values = (int64_t *)(ops + count);
    WEFT_TRY(ragged_op(t, ctx, args, ops, &room));
  } else if (is_tuple_all_to_all(t->instr)) {
    WEFT_TRY(tuple_all_to_all_op(t, ctx, args, ops));
  } else {
    for (int i = 0; i < count; i++) WEFT_TRY(fill_op(t, ctx, args, i, &staging, &ops[i]));
  }
  return post(t, ctx, ops, count);
}
static const rt_thunk_ops collective_ops = {sizeof(rt_thunk_ops), "collective", .start = collective_start};
/* of those that may be part of graphs: see may_be_recorded */
static const rt_thunk_ops recorded_ops = {
  sizeof(rt_thunk_ops), "collective", .start = collective_start, .stretch = 1u << WEFT_GRAPH_COLLECTIVES};

/* A collective can be part of a graph if its operations need nothing but their addresses: all devices are in groups,
 * and nothing is packed. */
static bool may_be_recorded(const collective_thunk *t)
{
  bool everybody = true;

  for (int64_t p = 0; p < t->grouping->place_count; p++) everybody &= t->grouping->group_of[p] >= 0;
  return t->on_device && everybody && t->scratch < 0 && t->instr->op != HLO_RAGGED_ALL_TO_ALL &&
         t->base.ops == &collective_ops && !is_tuple_all_to_all(t->instr);
}

int low_collective_count(const rt_thunk *thunk) { return ((const collective_thunk *)thunk)->count; }

weft_status *low_collective_describe(const rt_thunk *thunk, const rt_ctx *ctx, weft_coll_op *ops,
                                     weft_coll_call *out_call, weft_comm **out_comm)
{
  const collective_thunk *t = (const collective_thunk *)thunk;
  char *staging = NULL;

  *out_comm = ctx->info->comms[t->grouping_index];
  *out_call = call_of(t, ctx);
  for (int i = 0; i < t->count; i++) WEFT_TRY(fill_op(t, ctx, rt_args(thunk, ctx), i, &staging, &ops[i]));
  return NULL;
}

/* ---- send and recv --------------------------------------------------------------------------------------------- */

/* Reads pairs "{{0,1},{1,2}}" of _xla_send_recv_source_target_pairs: the peer of `id`; -1: none. */
static int peer_of(const char *pairs, int64_t id, bool is_source)
{
  for (const char *at = pairs; at && (at = strpbrk(at, "0123456789"));) {
    char *end;
    long long from = strtoll(at, &end, 10), to;
    at = strpbrk(end, "0123456789");
    if (!at) return -1;
    to = strtoll(at, &end, 10);
    at = end;
    if (is_source && from == id) return (int)to;
    if (!is_source && to == id) return (int)from;
  }
  return -1;
}

static weft_status *send_recv_start(const rt_thunk *thunk, rt_ctx *ctx)
{
  const collective_thunk *t = (const collective_thunk *)thunk;
  const hlo_instr *instr = t->instr;
  bool sends = instr->op == HLO_SEND;
  int64_t id = t->by_partition ? ctx->info->partition_id : ctx->info->replica_id;
  int peer = peer_of(hlo_frontend_attribute(instr, "_xla_send_recv_source_target_pairs"), id, sends);
  const hlo_shape *shape = sends ? operand_shape(instr, 0) : hlo_shape_leaf(instr->shape, 0);
  void **room = rt_thread_scratch(thunk->use_count * (int64_t)sizeof *room);
  WEFT_TRY_ALLOC(room);
  void *const *args = host_args(thunk, ctx, room);
  if (!args) return no_host_address(thunk, ctx);
  void *data = args[sends ? 0 : t->first_result];

  if (peer < 0) {
    if (!sends) memset(data, 0, (size_t)hlo_shape_bytes(shape));
    rt_thunk_done(thunk, ctx, NULL);
    return NULL;
  }
  weft_coll_op op = {.kind = sends ? WEFT_SEND : WEFT_RECV, .dtype = shape->type, .peer = peer, .source = -1, .target = -1,
                     .count = (size_t)hlo_shape_elems(shape), .tag = (uint64_t)instr->u.collective->channel_id};
  if (sends) op.send = data;
  else op.recv = data;
  return post(t, ctx, &op, 1);
}
static const rt_thunk_ops send_recv_ops = {sizeof(rt_thunk_ops), "send-recv", .start = send_recv_start};

/* ---- making ---------------------------------------------------------------------------------------------------- */

/* The kind of operation that a collective's thunk posts. */
static weft_coll_kind kind_of(const hlo_instr *instr)
{
  switch (instr->op) {
  case HLO_ALL_REDUCE: case HLO_ALL_REDUCE_START: return WEFT_ALL_REDUCE;
  case HLO_REDUCE_SCATTER: return WEFT_REDUCE_SCATTER;
  case HLO_ALL_GATHER: case HLO_ALL_GATHER_START: return WEFT_ALL_GATHER;
  case HLO_ALL_TO_ALL: return WEFT_ALL_TO_ALL;
  case HLO_RAGGED_ALL_TO_ALL: return WEFT_RAGGED_ALL_TO_ALL;
  case HLO_COLLECTIVE_BROADCAST: return WEFT_BROADCAST;
  case HLO_SEND: return WEFT_SEND;
  case HLO_RECV: return WEFT_RECV;
  default: return WEFT_PERMUTE;
  }
}

/* CUSTOM: one that communicators have no name for. */
static weft_reduction reduction_of(const hlo_instr *instr)
{
  switch (instr->called_count > 0 ? hlo_reducer_op(instr->called[0]) : HLO_ADD) {
  case HLO_ADD: return instr->called_count > 0 ? WEFT_SUM : WEFT_REDUCE_NONE;
  case HLO_MULTIPLY: return WEFT_PRODUCT;
  case HLO_MAXIMUM: return WEFT_MAX;
  case HLO_MINIMUM: return WEFT_MIN;
  case HLO_AND: return WEFT_AND;
  case HLO_OR: return WEFT_OR;
  case HLO_XOR: return WEFT_XOR;
  default: return WEFT_CUSTOM;
  }
}

static weft_status *set_reduction(const low_step *step, collective_thunk *t)
{
  const hlo_computation *reducer = step->instr->called[0];

  t->reduction = reduction_of(step->instr);
  if (t->reduction != WEFT_CUSTOM) return NULL;
  WEFT_TRY(step->target->reducer(step->target->ctx, reducer, &t->reducer));
  t->reducer.id = hlo_computation_hash(reducer);
  return NULL;
}

/* How many leaves of the result are the operands' memory. */
static int forwarded_leaves(const low_step *step)
{
  switch (step->instr->op) {
  case HLO_ALL_GATHER_START: case HLO_COLLECTIVE_PERMUTE_START: return step->operand_count;
  case HLO_SEND: return 1;
  default: return 0;
  }
}

/* Operands and results must have the sizes that groups of this size give. The verifier does not know the groups, so
 * it could not check. */
static weft_status *check_sizes(const collective_thunk *t)
{
  const hlo_instr *instr = t->instr;
  int64_t dim = moving_dim(instr);

  for (int i = 0; i < t->count; i++) {
    const hlo_shape *shape = operand_shape(instr, i);
    int64_t in, out = result_use(t, i)->slice.bytes;

    if (!hlo_shape_is_array(shape)) return WEFT_ERR(UNIMPLEMENTED, "%s of a tuple", hlo_opcode_name(instr->op));
    in = hlo_shape_bytes(shape);
    if (instr->op == HLO_REDUCE_SCATTER && __builtin_mul_overflow(out, t->group_size, &out)) out = -1;
    if ((instr->op == HLO_ALL_GATHER || instr->op == HLO_ALL_GATHER_START) &&
        __builtin_mul_overflow(in, t->group_size, &in))
      in = -1;
    if (instr->op == HLO_ALL_TO_ALL && dim >= 0 && shape->dims[dim] % t->group_size != 0) in = -1;
    if (in != out || (is_tuple_all_to_all(instr) && !hlo_shape_same_dims(shape, operand_shape(instr, 0))))
      return WEFT_ERR(INVALID_ARGUMENT, "%s: operand %d and its result do not fit groups of %lld",
                      hlo_opcode_name(instr->op), i, (long long)t->group_size);
  }
  return NULL;
}

/* "train.py:41", or NULL if the module does not say. */
static const char *source_of(const low_step *step)
{
  const char *file, *slash;
  int line;

  if (!hlo_source_place(step->instr, &file, &line)) return NULL;
  slash = strrchr(file, '/');
  return weft_arena_printf(step->arena, "%s:%d", slash ? slash + 1 : file, line);
}

static weft_status *make(low_step *step, const hlo_grouping *grouping, int grouping_index, int64_t partitions,
                         const char *executable, rt_thunk **out_thunk)
{
  const hlo_instr *instr = step->instr;
  bool pairwise = instr->op == HLO_SEND || instr->op == HLO_RECV;
  int forwarded = forwarded_leaves(step);
  hlo_group_mode mode;
  rt_thunk *thunk;

  for (int i = 0; i < forwarded; i++) step->uses[step->operand_count + i].access = RT_READ;
  WEFT_TRY(hlo_group_mode_of(instr, &mode));
  WEFT_TRY(low_thunk_new(step, pairwise ? &send_recv_ops : &collective_ops, sizeof(collective_thunk), &thunk));
  collective_thunk *t = (collective_thunk *)thunk;
  t->instr = instr;
  t->grouping = grouping;
  t->grouping_index = grouping_index;
  t->partitions = partitions;
  t->by_partition = mode == HLO_CROSS_PARTITION;
  t->count =
    pairwise || instr->op == HLO_RAGGED_ALL_TO_ALL ? 1 : instr->operand_count - instr->u.collective->has_dynamic_root;
  t->first_result = step->operand_count + forwarded;
  t->scratch = step->use_count > step->operand_count + step->result_count ? step->use_count - 1 : -1;
  t->group_size = grouping->group_count ? grouping->groups[0].count : 1;
  t->site = (weft_coll_site){.executable = executable, .instruction = instr->name, .source = source_of(step)};
  thunk->detail = hlo_opcode_name(instr->op);
  if (moving_dim(instr) >= 0 || is_tuple_all_to_all(instr) || instr->op == HLO_RAGGED_ALL_TO_ALL)
    for (int g = 0; g < grouping->group_count; g++)
      if (grouping->groups[g].count != t->group_size)
        return WEFT_ERR(INVALID_ARGUMENT, "groups of different sizes: %d and %lld", grouping->groups[g].count,
                        (long long)t->group_size);
  if (instr->op == HLO_RAGGED_ALL_TO_ALL && hlo_shape_elems(operand_shape(instr, 2)) % t->group_size != 0)
    return WEFT_ERR(INVALID_ARGUMENT, "ragged-all-to-all: %lld offsets for groups of %lld",
                    (long long)hlo_shape_elems(operand_shape(instr, 2)), (long long)t->group_size);
  if (is_tuple_all_to_all(instr) && t->count != t->group_size)
    return WEFT_ERR(INVALID_ARGUMENT, "%d operands for groups of %lld", t->count, (long long)t->group_size);
  if (!pairwise && instr->op != HLO_RAGGED_ALL_TO_ALL && step->result_count - forwarded < t->count)
    return WEFT_ERR(UNIMPLEMENTED, "%d operands with %d results", t->count, step->result_count - forwarded);
  if (!pairwise && instr->op != HLO_RAGGED_ALL_TO_ALL) WEFT_TRY(check_sizes(t));
  if (instr->called_count > 0) WEFT_TRY(set_reduction(step, t));
  *out_thunk = thunk;
  return NULL;
}

/* Whether the platform has communicators of its own, and they move all of this collective's data. */
static bool platform_moves(const weft_platform *platform, const hlo_instr *instr)
{
  const weft_platform_ops *ops = platform->ops;

  if (!ops->communicator || instr->u.collective->has_dynamic_root) return false; /* the root is read on the host */
  if (instr->op == HLO_SEND || instr->op == HLO_RECV)
    return false; /* they meet by their tags, which only the host has */
  for (int i = 0; ops->moves && i < instr->operand_count; i++)
    if (!ops->moves(platform, kind_of(instr), operand_shape(instr, i)->type, reduction_of(instr))) return false;
  return true;
}

bool low_collective_is_registered(const weft_platform *platform, const hlo_instr *instr)
{
  /* the offsets of the pieces that ragged-all-to-all moves differ between ranks */
  return hlo_opcode_is_collective(instr->op) && instr->op != HLO_RAGGED_ALL_TO_ALL && platform_moves(platform, instr);
}

/* Finds the grouping of a collective, or adds it: it is number *out_index of the program's. Collectives of the same
 * groups share communicators if the same implementation moves their data. */
static weft_status *find_grouping(low_module *m, const hlo_instr *instr, hlo_grouping *out_grouping, int *out_index)
{
  weft_arena *arena = rt_program_arena(m->out->program);
  int at = 0;

  WEFT_TRY(hlo_grouping_new(arena, instr, m->replicas, m->partitions, out_grouping));
  out_grouping->by_host = m->platform->ops->communicator && !platform_moves(m->platform, instr);
  while (at < m->out->grouping_count && !hlo_grouping_equal(&m->groupings[at], out_grouping))
    at++; /* a program has few */
  *out_index = at;
  if (at < m->out->grouping_count) return NULL;
  hlo_grouping *more = WEFT_ARENA_ARRAY(arena, hlo_grouping, at + 1);
  WEFT_TRY_ALLOC(more);
  if (at) memcpy(more, m->groupings, (size_t)at * sizeof *more);
  more[at] = *out_grouping;
  m->out->groupings = m->groupings = more;
  m->out->grouping_count++;
  return NULL;
}

weft_status *low_collective_make(low_module *m, low_step *step, rt_thunk **out_thunk)
{
  hlo_grouping grouping;
  int index;

  if (step->instr->u.collective->is_host_transfer) return low_host_transfer_make(step, m->platform, out_thunk);
  WEFT_TRY(find_grouping(m, step->instr, &grouping, &index));
  hlo_grouping *own = weft_arena_memdup(step->arena, &grouping, sizeof grouping);
  WEFT_TRY_ALLOC(own);
  WEFT_TRY(make(step, own, index, m->partitions, m->out->module->name, out_thunk));
  const weft_device_ops *device = m->platform->ops->device;
  ((collective_thunk *)*out_thunk)->on_device = m->platform->ops->communicator && !grouping.by_host;
  if (may_be_recorded((collective_thunk *)*out_thunk)) (*out_thunk)->ops = &recorded_ops;
  (*out_thunk)->wants_host_memory = !((collective_thunk *)*out_thunk)->on_device &&
                                    !device->spaces[0].is_host_visible && !device->host_address;
  return NULL;
}
