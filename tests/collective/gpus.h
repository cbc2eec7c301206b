/* tests/collective/gpus.h -- the suites of collectives on the emulated GPU: their ranks are devices of platform "cuda",
 * whose communicators move the data.  What the emulated NCCL refuses and what kernels do outside of their operands are
 * errors of the operation. */
#ifndef WEFT_TESTS_COLLECTIVE_GPUS_H
#define WEFT_TESTS_COLLECTIVE_GPUS_H

#include "test.h"

#include <unistd.h>

#include "collective/internal.h"
#include "gpu/emulated_symbol.h"
#include "gpu/emulator/ptx.h"
#include "platform/registry.h"
#include "runtime/runtime_internal.h"

enum { GPUS = 8 };

/* Operands and results lie in memory that communicators register; WEFT_TEST_COLLECTIVE_MEMORY sets it. */
static bool gpus_registered;

/* The platform of the process, made when it is first needed; WEFT_CUDA_COLLECTIVES says what moves the data. */
static weft_platform *gpus_platform;

static WEFT_UNUSED weft_platform *gpus(void)
{
  if (!gpus_platform) T_OK(plat_new(&(weft_platform_options){.device_count = GPUS, .threads = 2}, &gpus_platform));
  return gpus_platform;
}

/* The platform ends: it has left nothing on its devices, and used NCCL as its manual says. */
static WEFT_UNUSED void gpus_close(void)
{
  size_t (*leaks)(char *, size_t);
  int (*misuses)(void);
  char text[300] = "";

  if (!gpus_platform) return;
  weft_platform_release(WEFT_MOVE(gpus_platform));
  *(void **)&leaks = emulated_symbol("libcuda.so.1", "weft_emu_leaks");
  *(void **)&misuses = emulated_symbol("libnccl.so.2", "weft_emu_nccl_misuses");
  for (int i = 0; i < 1000 && leaks(text, sizeof text) > 0; i++) usleep(5000);
  if (leaks(text, sizeof text)) fail_msg("left on the devices: %s", text);
  T_EQ_INT(misuses(), 0);
}

/* Chooses what moves the data of later communicators: "peers", "nccl" or "auto". */
static WEFT_UNUSED void gpus_use(const char *what)
{
  gpus_close();
  setenv("WEFT_CUDA_COLLECTIVES", what, 1);
  gpus_registered = getenv("WEFT_TEST_COLLECTIVE_MEMORY") != NULL;
}

/* Whether the emulated GPUs have multicast. */
static WEFT_UNUSED void gpus_have_multicast(bool have)
{
  void (*reset)(void);

  setenv("WEFT_EMU_MULTICAST", have ? "1" : "0", 1);
  *(void **)&reset = emulated_symbol("libcuda.so.1", "weft_emu_reset");
  reset();
}

/* Instructions of kernels with multicast that the emulator has run; 0 if no communicator has made memory for them since
 * calls are counted, which begins with the first question. */
static WEFT_UNUSED uint64_t gpus_multicast_work(void)
{
  static const char *const kernels[] = {"multicast_reduce", "multicast_two_shot", "multicast_scatter",
                                        "multicast_gather", "multicast_broadcast", "multicast_spread"};
  bool (*counters)(const char *, ptx_stats *);
  uint64_t (*calls)(const char *);
  uint64_t sum = 0;

  *(void **)&counters = emulated_symbol("libcuda.so.1", "weft_emu_counters");
  *(void **)&calls = emulated_symbol("libcuda.so.1", "weft_emu_calls");
  for (size_t i = 0; i < WEFT_COUNT(kernels); i++) {
    ptx_stats stats = {0};
    if (counters(kernels[i], &stats)) sum += stats.warp_instructions;
  }
  return calls("cuMulticastCreate") ? sum : 0;
}

/* The communicators that `spec` describes have the platform's; rank r is device r. */
static WEFT_UNUSED void gpus_bring(weft_comm_spec *spec)
{
  spec->communicator = gpus()->ops->communicator;
  spec->communicator_ctx = gpus();
}

static WEFT_UNUSED bool gpus_move(weft_coll_kind kind, weft_dtype dtype, weft_reduction reduction)
{
  return gpus()->ops->moves(gpus(), kind, dtype, reduction);
}

/* The device's copies of an operation's arrays, which may be one block. */
typedef struct gpu_operands {
  weft_device *device;
  char *block[2];       /* on the device: of both arrays if they overlap, or of send and of recv */
  int64_t bytes[2];
  char *host_recv, *recv; /* in the host's memory, and its copy on the device */
  int64_t recv_bytes;
} gpu_operands;

static WEFT_UNUSED int64_t gpus_sum(const size_t *counts, int size)
{
  int64_t sum = 0;

  for (int r = 0; r < size; r++) sum += (int64_t)counts[r];
  return sum;
}

/* Elements of the arrays of an operation that a platform's communicator may have. */
static WEFT_UNUSED void gpus_extents(int rank, int size, const weft_coll_op *op, int64_t *out_send, int64_t *out_recv)
{
  int64_t count = (int64_t)op->count, all = count * size;

  if (op->kind == WEFT_RAGGED_ALL_TO_ALL) {
    *out_send = op->ragged->send_rows * WEFT_MAX(op->ragged->row_elems, 1);
    *out_recv = op->ragged->recv_rows * WEFT_MAX(op->ragged->row_elems, 1);
    return;
  }
  *out_send = op->kind == WEFT_ALL_TO_ALL       ? all
              : op->kind == WEFT_REDUCE_SCATTER ? op->recv_counts ? gpus_sum(op->recv_counts, size) : all
              : op->kind == WEFT_BARRIER || (op->kind == WEFT_BROADCAST && rank != op->root) ? 0
                                                                                             : count;
  *out_recv = op->kind == WEFT_ALL_TO_ALL || op->kind == WEFT_ALL_GATHER ? all
              : op->kind == WEFT_REDUCE_SCATTER && op->recv_counts       ? (int64_t)op->recv_counts[rank]
              : op->kind == WEFT_BARRIER                                 ? 0
                                                                         : count;
}

static int gpus_space(void) { return gpus_registered ? WEFT_COLLECTIVE_SPACE : 0; }
static int64_t gpus_block_bytes(int64_t bytes)
{
  return gpus_registered ? WEFT_ALIGN_UP(bytes, (int64_t)RT_COLLECTIVE_UNIT) : bytes;
}

static WEFT_UNUSED char *gpus_copy_in(weft_device *device, const char *from, int64_t bytes)
{
  void *to = NULL;

  if (bytes == 0) return NULL;
  T_OK(rt_device_take(device, gpus_space(), gpus_block_bytes(bytes), RT_ANYONE, &to));
  T_OK(weft_device_write(device, NULL, to, from, bytes));
  return to;
}

/* The device of a communicator's rank. */
static WEFT_UNUSED weft_device *gpus_device(const weft_comm *comm)
{
  return weft_platform_device(gpus(), (int)comm->group->device_ids[weft_comm_rank(comm)]);
}

/* The operation of a rank with arrays in the memory of its device, which lie to each other as those of the host do. */
static WEFT_UNUSED weft_coll_op gpus_stage(const weft_comm *comm, const weft_coll_op *op, gpu_operands *out)
{
  weft_device *device = gpus_device(comm);
  int rank = weft_comm_rank(comm), size = weft_comm_size(comm);
  int64_t each = (int64_t)weft_dtype_bytes(op->dtype), send_bytes, recv_bytes;
  const char *send = op->send;
  char *recv = op->recv;
  weft_coll_op on_device = *op;

  gpus_extents(rank, size, op, &send_bytes, &recv_bytes);
  send_bytes = send ? send_bytes * each : 0;
  recv_bytes = recv ? recv_bytes * each : 0;
  *out = (gpu_operands){.device = device, .host_recv = recv, .recv_bytes = recv_bytes};
  if (send_bytes && recv_bytes && send < recv + recv_bytes && recv < send + send_bytes) {
    const char *first = WEFT_MIN(send, (const char *)recv),
               *end = WEFT_MAX(send + send_bytes, (const char *)recv + recv_bytes);
    out->bytes[0] = end - first;
    out->block[0] = gpus_copy_in(device, first, out->bytes[0]);
    on_device.send = out->block[0] + (send - first);
    on_device.recv = out->recv = out->block[0] + (recv - first);
    return on_device;
  }
  out->bytes[0] = send_bytes;
  out->bytes[1] = recv_bytes;
  on_device.send = out->block[0] = gpus_copy_in(device, send, send_bytes);
  on_device.recv = out->block[1] = out->recv = gpus_copy_in(device, recv, recv_bytes);
  return on_device;
}

/* The operation has ended: its result goes back to the host. */
static WEFT_UNUSED void gpus_unstage(gpu_operands *s)
{
  weft_device *device = s->device;

  if (s->recv) T_OK(weft_device_read(device, NULL, s->host_recv, s->recv, s->recv_bytes));
  for (int i = 0; i < 2; i++)
    if (s->block[i]) rt_device_give(device, gpus_space(), s->block[i], gpus_block_bytes(s->bytes[i]));
}

#endif
