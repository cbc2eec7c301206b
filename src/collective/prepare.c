/* collective/prepare.c -- checks the arguments of an operation and puts them into the form that schedules take. */
#include <config.h>

#include "base/array.h"
#include "base/hash.h"
#include "collective/internal.h"

#include <stdlib.h>
#include <string.h>

#include "collective/prepare.h"

/* Which kinds use which arguments. */
enum { REDUCES = 1, ROOTED = 2, SEND_COUNTS = 4, RECV_COUNTS = 8, OWN_COUNTS = 16, MAY_ALIAS = 32 };
static const int traits[WEFT_COLL_KIND_COUNT] = {
  [WEFT_ALL_REDUCE] = REDUCES | MAY_ALIAS,
  [WEFT_REDUCE] = REDUCES | ROOTED | MAY_ALIAS,
  [WEFT_REDUCE_SCATTER] = REDUCES,
  [WEFT_BROADCAST] = ROOTED | MAY_ALIAS,
  [WEFT_ALL_GATHER_V] = RECV_COUNTS,
  [WEFT_GATHER] = ROOTED,
  [WEFT_GATHER_V] = ROOTED | RECV_COUNTS,
  [WEFT_SCATTER] = ROOTED,
  [WEFT_SCATTER_V] = ROOTED | SEND_COUNTS,
  [WEFT_ALL_TO_ALL_V] = OWN_COUNTS,
};

static uint64_t mix_text(uint64_t h, const char *text)
{
  while (*text) h = weft_mix(h, (unsigned char)*text++);
  return h;
}

/* Makes room for `count` numbers in op->arrays. */
static weft_status *arrays_reserve(coll_op *op, size_t count)
{
  WEFT_TRY_ALLOC(WEFT_RESERVE(op->arrays, op->arrays_capacity, count, 1));
  return NULL;
}

static weft_status *too_big(void) { return WEFT_ERR(INVALID_ARGUMENT, "more than 2^63 bytes"); }

static weft_status *make_prefix(coll_op *op, const size_t *counts)
{
  int64_t *prefix;
  coll_problem *p = &op->problem;

  WEFT_TRY(arrays_reserve(op, (size_t)p->size + 1));
  prefix = op->arrays;
  prefix[0] = 0;
  for (int i = 0; i < p->size; i++) {
    int64_t bytes;
    if (__builtin_mul_overflow(counts[i], (size_t)p->elem_bytes, &bytes) ||
        __builtin_add_overflow(prefix[i], bytes, &prefix[i + 1]))
      return too_big();
    op->fingerprint = weft_mix(op->fingerprint, counts[i]);
  }
  p->prefix = prefix;
  p->bytes = prefix[p->rank + 1] - prefix[p->rank];
  return NULL;
}

/* Offsets and sizes in bytes of one direction of an all-to-all-v. */
static weft_status *make_pieces(const coll_problem *p, const size_t *counts, const size_t *offsets, int64_t *at,
                                int64_t *bytes)
{
  int64_t packed = 0, end;

  for (int i = 0; i < p->size; i++) {
    if (__builtin_mul_overflow(counts[i], (size_t)p->elem_bytes, &bytes[i])) return too_big();
    at[i] = packed;
    if (offsets && __builtin_mul_overflow(offsets[i], (size_t)p->elem_bytes, &at[i])) return too_big();
    if (__builtin_add_overflow(at[i], bytes[i], &end)) return too_big();
    if (!offsets) packed = end;
  }
  return NULL;
}

static weft_status *prepare_all_to_all_v(coll_op *op, const weft_coll_op *args)
{
  coll_problem *p = &op->problem;
  size_t n = (size_t)p->size;

  if (!args->send_counts || !args->recv_counts)
    return WEFT_ERR(INVALID_ARGUMENT, "all-to-all-v needs send_counts and recv_counts");
  WEFT_TRY(arrays_reserve(op, 4 * n));
  int64_t *a = op->arrays;
  WEFT_TRY(make_pieces(p, args->send_counts, args->send_offsets, a, a + n));
  WEFT_TRY(make_pieces(p, args->recv_counts, args->recv_offsets, a + 2 * n, a + 3 * n));
  p->send_at = a;
  p->send_bytes = a + n;
  p->recv_at = a + 2 * n;
  p->recv_bytes = a + 3 * n;
  if (p->send_bytes[p->rank] != p->recv_bytes[p->rank])
    return WEFT_ERR(INVALID_ARGUMENT, "all-to-all-v: rank %d sends itself %lld bytes and expects %lld", p->rank,
                    (long long)p->send_bytes[p->rank], (long long)p->recv_bytes[p->rank]);
  return NULL;
}

/* Checks one entry of the ragged arrays against its buffer, and converts it to bytes. */
static weft_status *ragged_piece(const char *what, int64_t offset, int64_t rows, int64_t limit, int64_t row_bytes,
                                 int64_t *out_at, int64_t *out_bytes)
{
  int64_t end;

  if (offset < 0 || rows < 0 || __builtin_add_overflow(offset, rows, &end) || (limit >= 0 && end > limit))
    return WEFT_ERR(INVALID_ARGUMENT, "ragged-all-to-all: %s rows %lld + %lld of %lld", what, (long long)offset,
                    (long long)rows, (long long)limit);
  if (__builtin_mul_overflow(offset, row_bytes, out_at) || __builtin_mul_overflow(rows, row_bytes, out_bytes))
    return too_big();
  return NULL;
}

/* Arrays, n entries each: 0 where to read, 1 how much, 2 where it goes at the receiver, 3 how much comes; then, for
 * the engine, 4 and 5 hold the pairs (where, how much) that each rank is told, 6 and 7 those that each rank tells. */
static weft_status *prepare_ragged(coll_op *op, const weft_coll_op *args)
{
  const weft_coll_ragged *r = args->ragged;
  coll_problem *p = &op->problem;
  int64_t row_bytes;

  if (!r || !r->input_offsets || !r->send_sizes || !r->output_offsets || !r->recv_sizes)
    return WEFT_ERR(INVALID_ARGUMENT, "ragged-all-to-all needs its four arrays");
  int64_t updates = WEFT_MAX((int64_t)1, r->updates), row_elems = WEFT_MAX((int64_t)1, r->row_elems);
  if (updates > INT32_MAX / p->size) return WEFT_ERR(INVALID_ARGUMENT, "ragged-all-to-all: too many updates");
  if (__builtin_mul_overflow(row_elems, p->elem_bytes, &row_bytes)) return too_big();
  size_t n = (size_t)p->size * (size_t)updates;
  WEFT_TRY(arrays_reserve(op, 8 * n));
  int64_t *a = op->arrays;
  for (size_t i = 0; i < n; i++) {
    int64_t ignored;
    WEFT_TRY(ragged_piece("input", r->input_offsets[i], r->send_sizes[i], r->send_rows, row_bytes, &a[i], &a[n + i]));
    WEFT_TRY(ragged_piece("output", r->output_offsets[i], r->send_sizes[i], -1, row_bytes, &a[2 * n + i], &ignored));
    WEFT_TRY(ragged_piece("received", 0, r->recv_sizes[i], r->recv_rows, row_bytes, &ignored, &a[3 * n + i]));
    a[4 * n + 2 * i] = a[2 * n + i];
    a[4 * n + 2 * i + 1] = a[n + i];
  }
  op->problem.pieces = (int)updates;
  op->problem.send_at = a;
  op->problem.send_bytes = a + n;
  op->problem.bytes = r->recv_rows * row_bytes; /* extent of recv */
  op->fingerprint = weft_mix(weft_mix(op->fingerprint, (uint64_t)updates), (uint64_t)row_bytes);
  return NULL;
}

weft_status *coll_stage_reserve(coll_op *op, size_t bytes)
{
  if (bytes <= op->stage_capacity) return NULL;
  char *grown = malloc(bytes);
  WEFT_TRY_ALLOC(grown);
  free(op->stage);
  op->stage = grown;
  op->stage_capacity = bytes;
  return NULL;
}

/* Sets IN and OUT.  An input that its own output would overwrite too early is copied first. */
static weft_status *place_buffers(coll_op *op, const weft_coll_op *args)
{
  coll_problem *p = &op->problem;
  bool ragged = args->kind == WEFT_RAGGED_ALL_TO_ALL;
  size_t in_bytes = args->kind == WEFT_RECV ? 0 : (size_t)coll_problem_in_bytes(p);
  size_t out_bytes = args->kind == WEFT_SEND ? 0 : ragged ? (size_t)p->bytes : (size_t)coll_problem_out_bytes(p);
  char *in = (char *)args->send, *out = args->recv;

  if (args->kind == WEFT_BROADCAST && p->rank == p->root) {
    if (!in) in = out;
    if (!out) out = in; /* the schedule never writes to OUT, which is IN */
  }
  if (in_bytes && !in)
    return WEFT_ERR(INVALID_ARGUMENT, "%s of %zu bytes without a send buffer", weft_coll_kind_name(args->kind),
                    in_bytes);
  if (out_bytes && !out)
    return WEFT_ERR(INVALID_ARGUMENT, "%s of %zu bytes without a recv buffer", weft_coll_kind_name(args->kind),
                    out_bytes);
  bool overlap = in_bytes && out_bytes && (uintptr_t)in < (uintptr_t)out + out_bytes &&
                 (uintptr_t)out < (uintptr_t)in + in_bytes;
  p->in_place = overlap && in == out && (traits[args->kind] & MAY_ALIAS);
  if (overlap && !p->in_place && !coll_op_goes_below(op)) { /* a platform's communicator copies by itself if it must */
    WEFT_TRY(coll_stage_reserve(op, in_bytes));
    memcpy(op->stage, in, in_bytes);
    in = op->stage;
  }
  op->memory[COLL_IN] = in;
  op->memory[COLL_OUT] = out;
  return NULL;
}

static weft_status *check_rank(const coll_problem *p, const char *what, int rank, int least)
{
  if (rank >= least && rank < p->size) return NULL;
  return WEFT_ERR(INVALID_ARGUMENT, "%s: %s %d of %d ranks", weft_coll_kind_name(p->kind), what, rank, p->size);
}

static weft_status *prepare(coll_op *op, const weft_coll_op *args, const weft_coll_call *call)
{
  weft_comm *comm = op->comm;
  coll_group *g = comm->group;
  coll_problem *p = &op->problem;

  if ((unsigned)args->kind >= WEFT_COLL_KIND_COUNT) return WEFT_ERR(INVALID_ARGUMENT, "no operation %d", args->kind);
  int t = traits[args->kind];
  op->args = *args;
  *p = (coll_problem){.kind = args->kind,
                      .size = g->size,
                      .rank = comm->rank,
                      .root = args->root,
                      .elem_bytes = (int64_t)weft_dtype_bytes(args->dtype),
                      .source = -1,
                      .target = -1,
                      .rank_order = g->rank_order || args->reduction == WEFT_CUSTOM,
                      .topology = g->topology.size ? &g->topology : NULL};
  op->fingerprint = weft_mix(weft_mix(weft_mix(1469598103934665603u, (uint64_t)args->kind), (uint64_t)args->dtype),
                             (uint64_t)args->reduction);
  if (call && call->site.instruction) op->fingerprint = mix_text(op->fingerprint, call->site.instruction);
  /* a call without a launch number counts as number 0 */
  op->fingerprint = weft_mix(op->fingerprint, call ? call->site.launch_id : 0);
  if (args->kind == WEFT_BARRIER) {
    p->elem_bytes = 1;
    return NULL;
  }
  if (p->elem_bytes == 0)
    return WEFT_ERR(INVALID_ARGUMENT, "%s of %s", weft_coll_kind_name(args->kind), weft_dtype_name(args->dtype));
  if (__builtin_mul_overflow(args->count, (size_t)p->elem_bytes, &p->bytes)) return too_big();
  int64_t all;
  if (__builtin_mul_overflow(p->bytes, (int64_t)p->size, &all)) return too_big();
  if (t & REDUCES) WEFT_TRY(coll_reducer_init(&op->reducer, args->dtype, args->reduction, args->reducer));
  if (args->reduction == WEFT_CUSTOM && args->reducer) op->fingerprint = weft_mix(op->fingerprint, args->reducer->id);
  if (t & ROOTED) {
    WEFT_TRY(check_rank(p, "root", args->root, 0));
    op->fingerprint = weft_mix(op->fingerprint, (uint64_t)args->root);
  } else {
    p->root = 0;
  }
  if (t & (SEND_COUNTS | RECV_COUNTS)) {
    const size_t *counts = t & SEND_COUNTS ? args->send_counts : args->recv_counts;
    if (!counts)
      return WEFT_ERR(INVALID_ARGUMENT, "%s needs %s_counts", weft_coll_kind_name(args->kind),
                      t & SEND_COUNTS ? "send" : "recv");
    WEFT_TRY(make_prefix(op, counts));
  } else if (args->kind == WEFT_REDUCE_SCATTER && args->recv_counts) {
    WEFT_TRY(make_prefix(op, args->recv_counts));
  } else if (args->kind == WEFT_ALL_TO_ALL_V) {
    WEFT_TRY(prepare_all_to_all_v(op, args));
  } else if (args->kind == WEFT_RAGGED_ALL_TO_ALL) {
    WEFT_TRY(prepare_ragged(op, args));
  } else {
    op->fingerprint = weft_mix(op->fingerprint, args->count);
  }
  if (args->kind == WEFT_PERMUTE) {
    WEFT_TRY(check_rank(p, "source", args->source, -1));
    WEFT_TRY(check_rank(p, "target", args->target, -1));
    if ((args->source == p->rank) != (args->target == p->rank))
      return WEFT_ERR(INVALID_ARGUMENT, "collective-permute: rank %d is its own %s but not its %s", p->rank,
                      args->source == p->rank ? "source" : "target", args->source == p->rank ? "target" : "source");
    p->source = args->source;
    p->target = args->target;
  }
  if (args->kind == WEFT_SEND) WEFT_TRY(check_rank(p, "peer", args->peer, 0));
  if (args->kind == WEFT_RECV) WEFT_TRY(check_rank(p, "peer", args->peer, -1));
  if (args->kind == WEFT_RECV && args->peer < 0 && coll_op_goes_below(op))
    return WEFT_ERR(UNIMPLEMENTED, "a receive from any rank on communicator %s (%s)", op->comm->group->name,
                    op->comm->group->communicator->ops->name);
  return place_buffers(op, args);
}

weft_status *coll_op_prepare(coll_op *op, const weft_coll_op *args, const weft_coll_call *call)
{
  WEFT_TRY_NOTE(prepare(op, args, call), "posting %s%s%s", weft_coll_kind_name(args->kind),
                call && call->site.instruction ? " " : "",
                call && call->site.instruction ? call->site.instruction : "");
  return NULL;
}

weft_status *coll_communicator_problem(weft_comm *comm, const weft_coll_op *args, coll_problem *out)
{
  coll_op *op = aligned_alloc(_Alignof(coll_op), sizeof *op);

  WEFT_TRY_ALLOC(op);
  memset(op, 0, sizeof *op);
  op->comm = comm;
  weft_status *st = coll_op_prepare(op, args, NULL);
  *out = op->problem;
  if (!st && (out->prefix || out->send_at))
    st = WEFT_ERR(INTERNAL, "an operation with arrays has no problem without them");
  free(op->arrays);
  free(op->stage);
  free(op);
  return st;
}

/* Blocks of each part, one for each rank or one in all: of the input, and of the result. */
static int in_blocks(const weft_coll_op *op, int size) { return op->kind == WEFT_REDUCE_SCATTER ? size : 1; }
static int out_blocks(const weft_coll_op *op, int size) { return op->kind == WEFT_ALL_GATHER ? size : 1; }

size_t coll_op_fusable(const weft_coll_op *ops, size_t count, int size)
{
  enum { MOST_BYTES = 1 << 20 };
  size_t bytes = 0, n = 0;

  for (; n < count; n++) {
    const weft_coll_op *op = &ops[n];
    size_t each = weft_dtype_bytes(op->dtype) * (size_t)(in_blocks(op, size) * out_blocks(op, size));
    bool may = op->kind == WEFT_ALL_REDUCE || op->kind == WEFT_ALL_GATHER ||
               (op->kind == WEFT_REDUCE_SCATTER && !op->recv_counts);
    if (!may || op->kind != ops[0].kind || op->dtype != ops[0].dtype || op->reduction != ops[0].reduction ||
        op->reduction == WEFT_CUSTOM || each == 0 || op->count > MOST_BYTES / each)
      break;
    bytes += op->count * each;
    if (bytes > MOST_BYTES) break;
  }
  return WEFT_MAX(n, (size_t)1);
}

/* Packs the first blocks of all parts, then the second ones, and so on. */
static void pack(char *at, const weft_coll_op *ops, const coll_op *op, size_t count, int blocks)
{
  for (int b = 0; b < blocks; b++)
    for (size_t i = 0; i < count; at += op->parts[i++].bytes)
      if (op->parts[i].bytes)
        memcpy(at, (const char *)ops[i].send + (size_t)b * op->parts[i].bytes, op->parts[i].bytes);
}

void coll_op_unpack(const coll_op *op)
{
  const char *at = op->memory[COLL_OUT];

  for (int b = 0; b < out_blocks(&op->args, op->comm->group->size); b++)
    for (size_t i = 0; i < op->part_count; at += op->parts[i++].bytes)
      if (op->parts[i].bytes)
        memcpy((char *)op->parts[i].recv + (size_t)b * op->parts[i].bytes, at, op->parts[i].bytes);
}

weft_status *coll_op_fuse(coll_op *op, const weft_coll_op *ops, size_t count, const weft_coll_call *call)
{
  weft_coll_op whole = ops[0];
  int size = op->comm->group->size, in = in_blocks(&whole, size), out = out_blocks(&whole, size);
  size_t elem_bytes = weft_dtype_bytes(whole.dtype), bytes;

  WEFT_TRY_ALLOC(WEFT_RESERVE(op->parts, op->parts_capacity, count, 1));
  whole.count = 0;
  for (size_t i = 0; i < count; i++) {
    op->parts[i] = (coll_part){ops[i].recv, ops[i].count * elem_bytes};
    if (ops[i].count && (!ops[i].send || !ops[i].recv))
      return WEFT_ERR(INVALID_ARGUMENT, "%s %zu of a group without its buffers", weft_coll_kind_name(whole.kind), i);
    whole.count += ops[i].count;
  }
  bytes = whole.count * elem_bytes;
  bool in_place = whole.kind == WEFT_ALL_REDUCE;
  WEFT_TRY(coll_stage_reserve(op, bytes * (size_t)(in_place ? 1 : in + out) + 1));
  pack(op->stage, ops, op, count, in);
  whole.send = op->stage;
  whole.recv = in_place ? op->stage : op->stage + bytes * (size_t)in;
  WEFT_TRY(coll_op_prepare(op, &whole, call));
  for (size_t i = 0; i < count; i++) op->fingerprint = weft_mix(op->fingerprint, ops[i].count);
  op->part_count = count;
  op->fused = true;
  return NULL;
}
