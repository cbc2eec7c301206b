/* gpu/nccl_calls.c -- opening NCCL, its errors, and operations as calls of the library (nccl_calls.h).
 *
 * Operations that only move data count bytes.  Blocks that go from one rank to one other are sends and receives in a
 * group: every version of the library has these. */
#include <config.h>

#include "gpu/nccl_calls.h"

#include "collective/host/schedule.h"
#include "collective/settings.h"
#include "gpu/jobs.h"
#include "gpu/nccl.h"
#include "gpu/table.h"

#include <string.h>

GPU_TABLE_WITH_LATER(WNC_ENTRIES, WNC_LATER_ENTRIES, "NCCL", "libnccl.so.2");
_Static_assert(sizeof(gpu_nccl_entries) == sizeof fn, "one list makes both");

const gpu_nccl_entries *gpu_nccl(void) { return (const gpu_nccl_entries *)(const void *)&fn; }

weft_status *gpu_nccl_error(wnc_result result, const char *call, wnc_comm comm)
{
  const char *words;
  weft_code code = WEFT_INTERNAL;

  if (WEFT_LIKELY(result == WNC_Success || result == WNC_InProgress)) return NULL;
  if (result == WNC_SystemError || result == WNC_RemoteError) code = WEFT_UNAVAILABLE;
  words = fn.ncclGetLastError(comm);
  return weft_status_new(code, __FILE__, __LINE__, "%s: %s (%d)%s%s", call, fn.ncclGetErrorString(result), (int)result,
                         words && *words ? ": " : "", words ? words : "");
}

weft_status *gpu_nccl_open(int *out_version)
{
  *out_version = 0;
  WEFT_TRY(gpu_table_open(&table));
  WEFT_TRY(gpu_nccl_error(fn.ncclGetVersion(out_version), "ncclGetVersion", NULL));
  if (*out_version >= WNC_OLDEST) return NULL;
  return WEFT_ERR(UNAVAILABLE, "NCCL has version %d.%d; Weft needs %d.%d", *out_version / 10000,
                  *out_version / 100 % 100, WNC_OLDEST / 10000, WNC_OLDEST / 100 % 100);
}

/* ---- what NCCL has ---------------------------------------------------------------------------------------------- */

static bool type_of(weft_dtype dtype, wnc_type *out)
{
  switch (dtype) {
  case WEFT_S8: *out = WNC_Int8; return true;
  case WEFT_PRED: case WEFT_U8: *out = WNC_Uint8; return true;
  case WEFT_S32: *out = WNC_Int32; return true;
  case WEFT_U32: *out = WNC_Uint32; return true;
  case WEFT_S64: *out = WNC_Int64; return true;
  case WEFT_U64: *out = WNC_Uint64; return true;
  case WEFT_F16: *out = WNC_Float16; return true;
  case WEFT_BF16: *out = WNC_Bfloat16; return true;
  case WEFT_F32: case WEFT_C64: *out = WNC_Float32; return true;
  case WEFT_F64: case WEFT_C128: *out = WNC_Float64; return true;
  default: return false;
  }
}

bool gpu_nccl_reduction(weft_dtype dtype, weft_reduction reduction, wnc_type *out_type, wnc_op *out_op,
                        int *out_per_elem)
{
  bool is_complex = dtype == WEFT_C64 || dtype == WEFT_C128;
  bool is_float = is_complex || dtype == WEFT_F16 || dtype == WEFT_BF16 || dtype == WEFT_F32 || dtype == WEFT_F64;

  *out_per_elem = is_complex ? 2 : 1;
  if (!type_of(dtype, out_type)) return false;
  switch (reduction) {
  case WEFT_SUM: *out_op = dtype == WEFT_PRED ? WNC_Max : WNC_Sum; return true;
  case WEFT_PRODUCT: *out_op = dtype == WEFT_PRED ? WNC_Min : WNC_Prod; return !is_complex;
  /* NCCL's minimum and maximum of a number and a NaN are the number */
  case WEFT_MIN: *out_op = WNC_Min; return !is_float;
  case WEFT_MAX: *out_op = WNC_Max; return !is_float;
  case WEFT_AND: *out_op = WNC_Min; return dtype == WEFT_PRED;
  case WEFT_OR: *out_op = WNC_Max; return dtype == WEFT_PRED;
  default: return false;
  }
}

static bool is_exact(weft_dtype dtype)
{
  return dtype != WEFT_F16 && dtype != WEFT_BF16 && dtype != WEFT_F32 && dtype != WEFT_F64 && dtype != WEFT_C64 &&
         dtype != WEFT_C128;
}

bool gpu_nccl_moves(const struct weft_platform *platform, weft_coll_kind kind, weft_dtype dtype,
                    weft_reduction reduction)
{
  wnc_type type;
  wnc_op op;
  int per_elem, version;
  weft_status *st;

  (void)platform;
  switch (kind) {
  case WEFT_BARRIER: case WEFT_BROADCAST: case WEFT_ALL_GATHER: case WEFT_ALL_TO_ALL: case WEFT_PERMUTE: break;
  case WEFT_RAGGED_ALL_TO_ALL: case WEFT_SEND: case WEFT_RECV: break;
  case WEFT_ALL_REDUCE: case WEFT_REDUCE: case WEFT_REDUCE_SCATTER:
    if (!gpu_nccl_reduction(dtype, reduction, &type, &op, &per_elem)) return false;
    /* NCCL folds in an order of its own */
    if (!is_exact(dtype) && strcmp(coll_settings_get()->order, "rank") == 0) return false;
    break;
  default: return false;
  }
  st = gpu_nccl_open(&version);
  bool there = st == NULL;
  weft_status_free(st);
  return there;
}

/* ---- operations ------------------------------------------------------------------------------------------------- */

static wcu_ptr at(const void *p) { return (wcu_ptr)(uintptr_t)p; }

static weft_status *copy(const gpu_nccl_place *place, void *to, const void *from, int64_t bytes)
{
  if (bytes <= 0 || to == from || !to || !from) return NULL;
  return GPU_CALL(cuMemcpyAsync, at(to), at(from), (size_t)bytes, place->stream);
}

static weft_status *zero(const gpu_nccl_place *place, void *to, int64_t bytes)
{
  return bytes > 0 && to ? GPU_CALL(cuMemsetD8Async, at(to), 0, (size_t)bytes, place->stream) : NULL;
}

/* The operand, or a copy of it where it overlaps the result in a way that the library does not allow. */
static weft_status *separate(gpu_nccl_place *place, const coll_problem *p, const void **send, const void *recv)
{
  int64_t bytes;
  wcu_ptr staged;

  if (!gpu_operand_is_in_the_way(p, *send, recv, &bytes)) return NULL;
  if (!place->staged) return WEFT_ERR(FAILED_PRECONDITION, "an operand overlaps its result");
  WEFT_TRY(GPU_CALL(cuMemAlloc, &staged, (size_t)bytes));
  *place->staged = (void *)(uintptr_t)staged; /* NOLINT */
  WEFT_TRY(copy(place, *place->staged, *send, bytes));
  *send = *place->staged;
  return NULL;
}

/* In a communicator of one rank every operation is a copy, or several. */
static weft_status *alone(gpu_nccl_place *place, const coll_posting *posting)
{
  const coll_problem *p = posting->problem;
  const weft_coll_op *args = posting->args;
  const void *send = args->send;

  if (p->kind == WEFT_BARRIER) return NULL;
  if (p->kind == WEFT_RAGGED_ALL_TO_ALL) {
    WEFT_TRY(separate(place, p, &send, args->recv));
    for (int k = 0; k < p->pieces; k++)
      if (p->recv_bytes[k] > 0)
        WEFT_TRY(copy(place, (char *)args->recv + p->recv_at[k], (const char *)send + p->send_at[k], p->recv_bytes[k]));
    return NULL;
  }
  if (p->kind == WEFT_PERMUTE && p->source != 0) return zero(place, args->recv, p->bytes);
  return copy(place, args->recv, args->send, p->bytes);
}

static wnc_result exchange(const gpu_nccl_place *place, const coll_problem *p, const char *send, char *recv)
{
  wnc_result result = fn.ncclGroupStart(), end;
  size_t bytes = (size_t)p->bytes;

  if (result) return result;
  for (int r = 0; r < place->size && !result; r++) {
    result = fn.ncclSend(send + (int64_t)r * p->bytes, bytes, WNC_Uint8, r, place->comm, place->stream);
    if (!result) result = fn.ncclRecv(recv + (int64_t)r * p->bytes, bytes, WNC_Uint8, r, place->comm, place->stream);
  }
  end = fn.ncclGroupEnd(); /* also after an error: the group must not stay open on this thread */
  return result ? result : end;
}

/* The pieces between two ranks go in the order of their numbers. */
static wnc_result exchange_pieces(const gpu_nccl_place *place, const coll_problem *p, const char *send, char *recv)
{
  wnc_result result = fn.ncclGroupStart(), end;

  if (result) return result;
  for (int64_t i = 0; i < (int64_t)place->size * p->pieces && !result; i++) {
    int peer = (int)(i / p->pieces);
    if (p->send_bytes[i] > 0)
      result = fn.ncclSend(send + p->send_at[i], (size_t)p->send_bytes[i], WNC_Uint8, peer, place->comm, place->stream);
    if (p->recv_bytes[i] > 0 && !result)
      result = fn.ncclRecv(recv + p->recv_at[i], (size_t)p->recv_bytes[i], WNC_Uint8, peer, place->comm, place->stream);
  }
  end = fn.ncclGroupEnd();
  return result ? result : end;
}

static wnc_result permute(const gpu_nccl_place *place, const coll_problem *p, const void *send, void *recv)
{
  wnc_result result = fn.ncclGroupStart(), end;

  if (result) return result;
  if (p->target >= 0) result = fn.ncclSend(send, (size_t)p->bytes, WNC_Uint8, p->target, place->comm, place->stream);
  if (p->source >= 0 && !result)
    result = fn.ncclRecv(recv, (size_t)p->bytes, WNC_Uint8, p->source, place->comm, place->stream);
  end = fn.ncclGroupEnd();
  return result ? result : end;
}

static wnc_result move(const gpu_nccl_place *place, const coll_problem *p, int peer, const void *send, void *recv)
{
  size_t bytes = (size_t)p->bytes;

  switch (p->kind) {
  case WEFT_BROADCAST:
    if (p->rank == p->root)
      return fn.ncclBroadcast(send, recv ? recv : (void *)(uintptr_t)send, bytes, WNC_Uint8, p->root, place->comm,
                              place->stream); /* NOLINT */
    return fn.ncclBroadcast(NULL, recv, bytes, WNC_Uint8, p->root, place->comm, place->stream);
  case WEFT_ALL_GATHER: return fn.ncclAllGather(send, recv, bytes, WNC_Uint8, place->comm, place->stream);
  case WEFT_ALL_TO_ALL: return exchange(place, p, send, recv);
  case WEFT_RAGGED_ALL_TO_ALL: return exchange_pieces(place, p, send, recv);
  case WEFT_SEND: return fn.ncclSend(send, bytes, WNC_Uint8, peer, place->comm, place->stream);
  case WEFT_RECV: return fn.ncclRecv(recv, bytes, WNC_Uint8, peer, place->comm, place->stream);
  default: return permute(place, p, send, recv);
  }
}

static wnc_result reduce(const gpu_nccl_place *place, const coll_problem *p, size_t count, wnc_type type, wnc_op op,
                         const void *send, void *recv)
{
  switch (p->kind) {
  case WEFT_REDUCE: return fn.ncclReduce(send, recv, count, type, op, p->root, place->comm, place->stream);
  case WEFT_REDUCE_SCATTER: return fn.ncclReduceScatter(send, recv, count, type, op, place->comm, place->stream);
  default: return fn.ncclAllReduce(send, recv, count, type, op, place->comm, place->stream);
  }
}

static const char *call_of(weft_coll_kind kind)
{
  switch (kind) {
  case WEFT_ALL_REDUCE: return "ncclAllReduce";
  case WEFT_REDUCE: return "ncclReduce";
  case WEFT_REDUCE_SCATTER: return "ncclReduceScatter";
  case WEFT_BROADCAST: return "ncclBroadcast";
  case WEFT_ALL_GATHER: return "ncclAllGather";
  default: return "ncclSend and ncclRecv";
  }
}

weft_status *gpu_nccl_queue(gpu_nccl_place *place, const coll_posting *posting, bool *out_in_progress)
{
  const coll_problem *p = posting->problem;
  const weft_coll_op *args = posting->args;
  const void *send = args->send;
  bool reduces = args->reduction != WEFT_REDUCE_NONE;
  wnc_type type = WNC_Uint8;
  wnc_op op = WNC_Sum;
  int per_elem = 1;
  wnc_result result;

  *out_in_progress = false;
  if (!gpu_nccl_moves(NULL, args->kind, args->dtype, args->reduction) || args->recv_counts)
    return WEFT_ERR(UNIMPLEMENTED, "%s of %s is not done by NCCL", weft_coll_kind_name(args->kind),
                    weft_dtype_name(args->dtype));
  if (place->size == 1) return alone(place, posting);
  /* a rank without room of its own may still send rows */
  if (p->kind == WEFT_BARRIER || (p->bytes == 0 && p->kind != WEFT_RAGGED_ALL_TO_ALL)) return NULL;
  WEFT_TRY(separate(place, p, &send, args->recv));
  if (p->kind == WEFT_PERMUTE && p->source < 0) { /* the result may lie where the operand was */
    WEFT_TRY(zero(place, args->recv, p->bytes));
    if (p->target < 0) return NULL; /* the rank sends and receives nothing */
  }
  if (reduces && !gpu_nccl_reduction(args->dtype, args->reduction, &type, &op, &per_elem))
    return WEFT_ERR(INTERNAL, "a reduction that NCCL does not have");
  result = reduces ? reduce(place, p, args->count * (size_t)per_elem, type, op, send, args->recv)
                   : move(place, p, args->peer, send, args->recv);
  *out_in_progress = result == WNC_InProgress;
  return gpu_nccl_error(result, call_of(p->kind), place->comm);
}
