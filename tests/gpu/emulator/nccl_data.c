/* tests/gpu/emulator/nccl_data.c -- operations of the emulated NCCL, on the threads of their streams.
 *
 * A collective goes in phases: each rank puts a chunk of its operand into the world, waits until all have, takes what
 * it needs of all chunks, and says so.  Sends and receives of one group go on together, through the boxes of pairs of
 * ranks. A rank that waits for others does so until they come or its communicator is aborted, as a device does. */
#include <config.h>

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library.h"
#include "nccl.h"
#include "numbers.h"

enum { YIELDS = 200 };

static bool is_over(wnc_comm c)
{
  return atomic_load(&c->aborted) || atomic_load(&c->revoked) || atomic_load(&c->error) != WNC_Success;
}

static void rest(int *turns)
{
  if (++*turns < YIELDS) sched_yield();
  else usleep(50);
}

/* ---- reductions ------------------------------------------------------------------------------------------------- */

#define INTEGER_OP(T)                                                                                  \
  static void fold_##T(T *acc, const T *in, size_t n, int op)                                          \
  {                                                                                                    \
    for (size_t i = 0; i < n; i++)                                                                     \
      acc[i] = op == WNC_Prod  ? (T)((uint64_t)acc[i] * (uint64_t)in[i])                               \
               : op == WNC_Max ? (acc[i] > in[i] ? acc[i] : in[i])                                     \
               : op == WNC_Min ? (acc[i] < in[i] ? acc[i] : in[i])                                     \
                               : (T)((uint64_t)acc[i] + (uint64_t)in[i]);                              \
  }
INTEGER_OP(int8_t)
INTEGER_OP(uint8_t)
INTEGER_OP(int32_t)
INTEGER_OP(uint32_t)
INTEGER_OP(int64_t)
INTEGER_OP(uint64_t)

/* Minimum and maximum of a number and a NaN is the number, as the library's kernels have it. */
static double combine(double a, double b, int op)
{
  return op == WNC_Prod ? a * b : op == WNC_Max ? fmax(a, b) : op == WNC_Min ? fmin(a, b) : a + b;
}

static double load_float(const void *at, wnc_type type, size_t i)
{
  switch (type) {
  case WNC_Float16: return ptx_f16(((const uint16_t *)at)[i]);
  case WNC_Bfloat16: return ptx_bf16(((const uint16_t *)at)[i]);
  case WNC_Float32: return ((const float *)at)[i];
  default: return ((const double *)at)[i];
  }
}

static void store_float(void *at, wnc_type type, size_t i, double v)
{
  switch (type) {
  case WNC_Float16: ((uint16_t *)at)[i] = (uint16_t)ptx_bits_f16(v); break;
  case WNC_Bfloat16: ((uint16_t *)at)[i] = (uint16_t)ptx_bits_bf16(v); break;
  case WNC_Float32: ((float *)at)[i] = (float)v; break;
  default: ((double *)at)[i] = v;
  }
}

static void fold(void *acc, const void *in, size_t n, wnc_type type, int op)
{
  switch (type) {
  case WNC_Int8: fold_int8_t(acc, in, n, op); return;
  case WNC_Uint8: fold_uint8_t(acc, in, n, op); return;
  case WNC_Int32: fold_int32_t(acc, in, n, op); return;
  case WNC_Uint32: fold_uint32_t(acc, in, n, op); return;
  case WNC_Int64: fold_int64_t(acc, in, n, op); return;
  case WNC_Uint64: fold_uint64_t(acc, in, n, op); return;
  default:
    for (size_t i = 0; i < n; i++)
      store_float(acc, type, i, combine(load_float(acc, type, i), load_float(in, type, i), op));
  }
}

static bool is_float(wnc_type type) { return type >= WNC_Float16 && type <= WNC_Bfloat16; }

static void divide(void *acc, size_t n, wnc_type type, int by)
{
  for (size_t i = 0; i < n && is_float(type); i++) store_float(acc, type, i, load_float(acc, type, i) / by);
  if (type == WNC_Int32)
    for (size_t i = 0; i < n; i++) ((int32_t *)acc)[i] /= by;
}

/* ---- collectives ------------------------------------------------------------------------------------------------ */

/* Waits until all ranks have reached `phase`.  False: the communicator is over. */
static bool await_all(wnc_comm c, uint64_t phase, bool taken)
{
  int turns = 0;

  for (int r = 0; r < c->size; r++) {
    emu_nccl_member *m = &c->world->members[r];
    while (atomic_load_explicit(taken ? &m->taken : &m->posted, memory_order_acquire) < phase) {
      if (is_over(c)) return false;
      rest(&turns);
    }
  }
  return !is_over(c);
}

static const char *const kind_names[] = {"AllReduce", "Reduce", "Broadcast", "ReduceScatter", "AllGather", "AlltoAll",
                                         "Gather", "Scatter", "Send", "Recv"};

static bool sends(const emu_nccl_op *op, int rank);
static bool receives(const emu_nccl_op *op, int rank);

/* Operands and results must lie at the same place of the same symmetric window on all ranks, or in none. */
static bool same_places(wnc_comm c, const emu_nccl_op *op, int other)
{
  const emu_nccl_places *a = &c->world->members[c->rank].places, *b = &c->world->members[other].places;
  bool same = (a->send == b->send || !sends(op, c->rank) || !sends(op, other)) &&
              (a->recv == b->recv || !receives(op, c->rank) || !receives(op, other));

  if (same) return true;
  emu_nccl_fail(c, WNC_InvalidUsage,
                "ranks use other places of symmetric windows in %s: rank %d %#llx and %#llx, rank %d %#llx and %#llx",
                kind_names[op->kind], c->rank, (unsigned long long)a->send, (unsigned long long)a->recv, other,
                (unsigned long long)b->send, (unsigned long long)b->recv);
  return false;
}

/* All ranks must do the same operation. */
static bool agree(wnc_comm c, const emu_nccl_op *op)
{
  const emu_nccl_about *mine = &c->world->members[c->rank].about;

  for (int r = 0; r < c->size; r++) {
    const emu_nccl_about *other = &c->world->members[r].about;
    if (memcmp(mine, other, sizeof *mine) == 0) {
      if (same_places(c, op, r)) continue;
      return false;
    }
    emu_nccl_fail(
      c, WNC_InvalidUsage,
      "ranks do different operations: rank %d %s of %llu (type %d, op %d, root %d), rank %d %s of %llu (type "
      "%d, op %d, root %d)",
      c->rank, kind_names[mine->kind], (unsigned long long)mine->count, mine->type, mine->op, mine->root, r,
      kind_names[other->kind], (unsigned long long)other->count, other->type, other->op, other->root);
    return false;
  }
  return true;
}

/* A rank's operand in bytes, and whether this rank has one. */
static size_t operand_bytes(const emu_nccl_op *op, int size)
{
  size_t block = op->count * emu_nccl_type_bytes(op->type);
  bool blocks = op->kind == EMU_REDUCE_SCATTER || op->kind == EMU_ALL_TO_ALL || op->kind == EMU_SCATTER;
  return blocks ? block * (size_t)size : block;
}
static bool sends(const emu_nccl_op *op, int rank)
{
  return (op->kind != EMU_BROADCAST && op->kind != EMU_SCATTER) || rank == op->peer;
}
static bool receives(const emu_nccl_op *op, int rank)
{
  return (op->kind != EMU_REDUCE && op->kind != EMU_GATHER) || rank == op->peer;
}
static size_t result_bytes(const emu_nccl_op *op, int size)
{
  size_t block = op->count * emu_nccl_type_bytes(op->type);
  bool blocks = op->kind == EMU_ALL_GATHER || op->kind == EMU_ALL_TO_ALL || op->kind == EMU_GATHER;
  return blocks ? block * (size_t)size : block;
}

/* Copies the part of [at, at + n) of rank r's operand that lies in its block
 * `block` to `to`, where that block begins. */
static void take_block(char *to, const char *chunk, size_t at, size_t n, size_t block, size_t block_bytes)
{
  size_t first = block * block_bytes, end = first + block_bytes;
  size_t from = at > first ? at : first, until = at + n < end ? at + n : end;

  if (from < until) memcpy(to + (from - first), chunk + (from - at), until - from);
}

/* Takes what this rank wants of the chunks [at, at + n) of all operands. `acc` has room for one. */
static void take(const emu_nccl_op *op, wnc_comm c, char *recv, size_t at, size_t n, char *acc)
{
  size_t elem = emu_nccl_type_bytes(op->type), block = op->count * elem;

  switch (op->kind) {
  case EMU_ALL_REDUCE: case EMU_REDUCE: case EMU_REDUCE_SCATTER:
    memcpy(acc, c->world->members[0].chunk, n);
    for (int r = 1; r < c->size; r++) fold(acc, c->world->members[r].chunk, n / elem, op->type, op->op);
    if (op->op == WNC_Avg) divide(acc, n / elem, op->type, c->size);
    if (op->kind == EMU_REDUCE_SCATTER) take_block(recv, acc, at, n, (size_t)c->rank, block);
    else memcpy(recv + at, acc, n);
    return;
  case EMU_BROADCAST: memcpy(recv + at, c->world->members[op->peer].chunk, n); return;
  case EMU_ALL_GATHER: case EMU_GATHER:
    for (int r = 0; r < c->size; r++) memcpy(recv + (size_t)r * block + at, c->world->members[r].chunk, n);
    return;
  case EMU_ALL_TO_ALL:
    for (int r = 0; r < c->size; r++)
      take_block(recv + (size_t)r * block, c->world->members[r].chunk, at, n, (size_t)c->rank, block);
    return;
  case EMU_SCATTER: take_block(recv, c->world->members[op->peer].chunk, at, n, (size_t)c->rank, block); return;
  default: return;
  }
}

static void scale_chunk(const emu_nccl_op *op, char *chunk, size_t n)
{
  size_t count = n / emu_nccl_type_bytes(op->type);
  for (size_t i = 0; op->scale != 1 && i < count; i++)
    store_float(chunk, op->type, i, load_float(chunk, op->type, i) * op->scale);
}

/* The root of a broadcast or scatter, and the others of a reduce or gather. */
static bool is_one_sided(const emu_nccl_op *op, int rank)
{
  bool gives = op->kind == EMU_BROADCAST || op->kind == EMU_SCATTER,
       gets = op->kind == EMU_REDUCE || op->kind == EMU_GATHER;

  return rank == op->peer ? gives : gets;
}

static int collective(const emu_nccl_op *op, wnc_comm c, int device, char *error, size_t size)
{
  size_t bytes = operand_bytes(op, c->size), results = result_bytes(op, c->size);
  emu_nccl_member *me = &c->world->members[c->rank];
  const char *send = NULL;
  char *recv = NULL;

  if (bytes && sends(op, c->rank) && !(send = weft_emu_reach(device, op->send, bytes, false, error, size)))
    return ILLEGAL_ADDRESS;
  if (results && receives(op, c->rank) && !(recv = weft_emu_reach(device, op->recv, results, true, error, size)))
    return ILLEGAL_ADDRESS;
  /* the operand is read before the result is written, as an operation in place needs it; a part of the result may be a
   * part of the operand that has not been sent yet */
  char *staged = send && recv ? malloc(bytes) : NULL, *acc = malloc(NCCL_CHUNK);
  if ((send && recv && !staged) || !acc) {
    free(staged);
    free(acc);
    return OUT_OF_MEMORY;
  }
  if (staged) send = memcpy(staged, send, bytes);
  for (size_t at = 0, n; at == 0 || at < bytes; at += n) {
    n = bytes - at < NCCL_CHUNK ? bytes - at : NCCL_CHUNK;
    if (!await_all(c, c->phase, true)) break;
    c->phase++;
    if (at == 0) {
      memset(&me->about, 0, sizeof me->about);
      me->about = (emu_nccl_about){(int)op->kind, (int)op->type, op->op, op->peer, op->count, bytes};
      me->places = (emu_nccl_places){op->send_place, op->recv_place};
    }
    if (send) memcpy(me->chunk, send + at, n);
    if (send) scale_chunk(op, me->chunk, n);
    atomic_store_explicit(&me->posted, c->phase, memory_order_release);
    /* a rank that needs nothing of the others ends before they have come, as the library's does */
    if (!is_one_sided(op, c->rank) && (!await_all(c, c->phase, false) || (at == 0 && !agree(c, op)))) break;
    if (recv) take(op, c, recv, at, n, acc);
    atomic_store_explicit(&me->taken, c->phase, memory_order_release);
    if (n == 0) break;
  }
  free(staged);
  free(acc);
  return 0;
}

/* ---- sends and receives ----------------------------------------------------------------------------------------- */

typedef struct transfer {
  const emu_nccl_op *op;
  emu_nccl_box *box;
  char *at;             /* the host's address of the device's bytes */
  uint64_t bytes, done; /* `done` counts the header, too */
  bool sends;
} transfer;

static uint64_t room_in(const transfer *t)
{
  uint64_t written = atomic_load_explicit(&t->box->written, memory_order_acquire);
  uint64_t read = atomic_load_explicit(&t->box->read, memory_order_acquire);
  return t->sends ? NCCL_BOX - (written - read) : written - read;
}

/* Moves bytes between the box and `data`: the i-th byte of a box lies at i modulo its size. */
static void move(const transfer *t, char *data, uint64_t n)
{
  _Atomic uint64_t *end = t->sends ? &t->box->written : &t->box->read;
  uint64_t from = atomic_load_explicit(end, memory_order_relaxed);

  for (uint64_t i = 0; i < n; i++) {
    char *in_box = &t->box->bytes[(from + i) % NCCL_BOX];
    if (t->sends) *in_box = data[i];
    else data[i] = *in_box;
  }
  atomic_store_explicit(end, from + n, memory_order_release);
}

/* A message is its size, then its bytes.  True: something has moved. */
static bool advance(wnc_comm c, transfer *t)
{
  uint64_t room = room_in(t);

  if (t->done == 0) {
    uint64_t bytes = t->bytes;
    if (room < sizeof bytes) return false;
    move(t, (char *)&bytes, sizeof bytes);
    t->done = sizeof bytes;
    if (bytes != t->bytes)
      emu_nccl_fail(c, WNC_InvalidUsage, "rank %d receives %llu bytes from rank %d, which sends %llu", c->rank,
                    (unsigned long long)t->bytes, t->op->peer, (unsigned long long)bytes);
    return true;
  }
  uint64_t left = t->bytes + sizeof(uint64_t) - t->done, n = left < room ? left : room;
  if (n == 0) return false;
  move(t, t->at + (t->done - sizeof(uint64_t)), n);
  t->done += n;
  return true;
}

static bool is_done(const transfer *t) { return t->done == t->bytes + sizeof(uint64_t); }

/* Is there an earlier transfer of the same direction and peer that has not ended? */
static bool must_wait(const transfer *all, size_t i)
{
  for (size_t k = 0; k < i; k++)
    if (all[k].box == all[i].box && all[k].sends == all[i].sends && !is_done(&all[k])) return true;
  return false;
}

static int transfers(const emu_nccl_job *job, int device, char *error, size_t size)
{
  wnc_comm c = job->comm;
  emu_nccl_box *boxes = emu_nccl_boxes(c->world);
  transfer *all = calloc(job->count + 1, sizeof *all);
  size_t count = 0, done = 0;
  int result = 0, turns = 0;

  if (!all) return OUT_OF_MEMORY;
  for (size_t i = 0; i < job->count && !result; i++) {
    const emu_nccl_op *op = &job->ops[i];
    if (op->kind != EMU_SEND && op->kind != EMU_RECV) continue;
    transfer *t = &all[count++];
    *t = (transfer){.op = op, .sends = op->kind == EMU_SEND, .bytes = op->count * emu_nccl_type_bytes(op->type)};
    t->box = t->sends ? &boxes[c->rank * c->size + op->peer] : &boxes[op->peer * c->size + c->rank];
    if (t->bytes && !(t->at = weft_emu_reach(device, t->sends ? op->send : op->recv, t->bytes, !t->sends, error, size)))
      result = ILLEGAL_ADDRESS;
  }
  while (!result && done < count && !is_over(c)) {
    bool moved = false;
    for (size_t i = 0; i < count; i++) {
      if (is_done(&all[i]) || must_wait(all, i)) continue;
      moved |= advance(c, &all[i]);
      done += is_done(&all[i]);
    }
    if (moved) turns = 0;
    else rest(&turns);
  }
  free(all);
  return result;
}

/* ---- jobs ------------------------------------------------------------------------------------------------------- */

/* The faults that WEFT_EMU_NCCL has for the next operation.  True: it does not run. */
static bool falls_out(wnc_comm c)
{
  uint64_t number = ++c->ops;
  int turns = 0;

  if (number == c->async_at)
    emu_nccl_fail(c, (wnc_result)c->async_code, "an injected error of operation %llu", (unsigned long long)number);
  if (number == c->kill_at) kill(getpid(), SIGKILL);
  if (number != c->silent_at && number != c->async_at) return false;
  while (!atomic_load(&c->aborted) && !atomic_load(&c->revoked)) rest(&turns); /* the device hangs until then */
  return true;
}

int emu_nccl_run(const void *args, int device, char *error, size_t size)
{
  const emu_nccl_job *job = args;
  wnc_comm c = job->comm;
  bool pairs = false;
  int result = 0;

  if (job->captured) atomic_fetch_add(&c->jobs, 1); /* one of the launches of its graph */
  pthread_mutex_lock(&c->running);
  if (!is_over(c) && !falls_out(c)) {
    for (size_t i = 0; i < job->count; i++) pairs |= job->ops[i].kind == EMU_SEND || job->ops[i].kind == EMU_RECV;
    if (pairs) result = transfers(job, device, error, size);
    for (size_t i = 0; i < job->count && !result && !is_over(c); i++)
      if (job->ops[i].kind != EMU_SEND && job->ops[i].kind != EMU_RECV)
        result = collective(&job->ops[i], c, device, error, size);
  }
  /* a device whose communicator has failed hangs in the operation until the abort */
  for (int turns = 0; !result && atomic_load(&c->error) && !atomic_load(&c->aborted) && !atomic_load(&c->revoked);)
    rest(&turns);
  pthread_mutex_unlock(&c->running);
  atomic_fetch_sub(&c->jobs, 1);
  if (!job->captured) emu_nccl_unref(c);
  return result;
}
