/* gpu/device.c -- the driver's devices: their properties, their contexts, access between them. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "gpu/gpu_internal.h"

/* The processors that kernels are made for, newest first. A device runs the code of older processors too. */
static const int processors[] = {90, 80, 75};

weft_status *gpu_device_count(int *out_count)
{
  *out_count = 0;
  WEFT_TRY(gpu_driver_open());
  WEFT_TRY(GPU_CALL(cuDeviceGetCount, out_count));
  return *out_count > 0 ? NULL : WEFT_ERR(UNAVAILABLE, "the CUDA driver shows no device");
}

static const gen_target *newest_target(int capability)
{
  char name[16];

  for (size_t i = 0; i < WEFT_COUNT(processors); i++) {
    snprintf(name, sizeof name, "sm_%d", processors[i]);
    if (processors[i] <= capability && gen_gpu_target(name)) return gen_gpu_target(name);
  }
  return NULL;
}

/* Drivers before CUDA 12.2 do not know the node. */
static int node_of(wcu_device device)
{
  int node;

  return gpu_cu.cuDeviceGetAttribute(&node, WCU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) == WCU_SUCCESS && node >= 0
           ? node
           : GPU_NO_NODE;
}

/* Older drivers do not know the attribute. */
static bool has_multicast(const gpu_device *gpu)
{
  enum { OLDEST = 90 }; /* of which PTX's multimem is an instruction */
  int value;

  return gpu_cu.has_multicast && gpu->capability >= OLDEST &&
         gpu_cu.cuDeviceGetAttribute(&value, WCU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, gpu->device) == WCU_SUCCESS &&
         value != 0;
}

weft_status *gpu_device_read(int ordinal, gpu_device *out_gpu)
{
  int major, minor, shared;
  size_t bytes;

  memset(out_gpu, 0, sizeof *out_gpu);
  WEFT_TRY(GPU_CALL(cuDeviceGet, &out_gpu->device, ordinal));
  WEFT_TRY(GPU_CALL(cuDeviceGetName, out_gpu->kind, (int)sizeof out_gpu->kind - 1, out_gpu->device));
  WEFT_TRY(GPU_CALL(cuDeviceTotalMem, &bytes, out_gpu->device));
  WEFT_TRY(GPU_CALL(cuDeviceGetAttribute, &major, WCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, out_gpu->device));
  WEFT_TRY(GPU_CALL(cuDeviceGetAttribute, &minor, WCU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, out_gpu->device));
  WEFT_TRY(
    GPU_CALL(cuDeviceGetAttribute, &out_gpu->processors, WCU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, out_gpu->device));
  WEFT_TRY(
    GPU_CALL(cuDeviceGetAttribute, &shared, WCU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, out_gpu->device));
  out_gpu->shared_bytes = shared;
  out_gpu->bytes = (int64_t)bytes;
  out_gpu->node = node_of(out_gpu->device);
  out_gpu->capability = 10 * major + minor;
  out_gpu->multicast = has_multicast(out_gpu);
  out_gpu->target = newest_target(out_gpu->capability);
  if (out_gpu->target) return NULL;
  return WEFT_ERR(UNAVAILABLE, "device %d, %s, has compute capability %d.%d; Weft needs 7.5", ordinal, out_gpu->kind,
                  major, minor);
}

static weft_status *open_in_context(gpu_device *gpu)
{
  int least;

  WEFT_TRY(GPU_CALL(cuCtxGetStreamPriorityRange, &least, &gpu->top_priority));
  return GPU_CALL(cuStreamCreateWithPriority, &gpu->own, WCU_STREAM_NON_BLOCKING, 0);
}

/* Lets the device, whose context is current, use the memory of its peers where the machine can do that. */
static weft_status *open_peers(gpu_device *gpus, int ordinal, int count)
{
  for (int peer = 0; peer < count; peer++) {
    int can = 0;
    if (gpus[peer].device == gpus[ordinal].device) { /* the device itself, or one that shares its GPU */
      gpus[ordinal].reaches[peer] = true;
      continue;
    }
    WEFT_TRY(GPU_CALL(cuDeviceCanAccessPeer, &can, gpus[ordinal].device, gpus[peer].device));
    if (!can) continue;
    wcu_result result = gpu_cu.cuCtxEnablePeerAccess(gpus[peer].context, 0);
    if (result != WCU_ERROR_PEER_ACCESS_ALREADY_ENABLED) WEFT_TRY(gpu_error(result, "cuCtxEnablePeerAccess"));
    gpus[ordinal].reaches[peer] = true;
  }
  return NULL;
}

weft_status *gpu_device_open(gpu_device *gpu)
{
  weft_mutex_init(&gpu->mu);
  weft_mutex_init(&gpu->clock_mu);
  weft_mutex_init(&gpu->recording);
  weft_mutex_init(&gpu->talk_mu);
  gpu_blocks_init(&gpu->blocks);
  gpu_libraries_init(&gpu->libraries);
  gpu_conditions_init(&gpu->conditions);
  WEFT_TRY(GPU_CALL(cuDevicePrimaryCtxRetain, &gpu->context, gpu->device));
  WEFT_TRY(gpu_enter(gpu));
  weft_status *st = open_in_context(gpu);
  gpu_leave();
  return st;
}

weft_status *gpu_device_join(gpu_device *gpus, int ordinal, int count)
{
  gpus[ordinal].reaches = calloc((size_t)count, sizeof *gpus[ordinal].reaches);
  WEFT_TRY_ALLOC(gpus[ordinal].reaches);
  WEFT_TRY(gpu_enter(&gpus[ordinal]));
  weft_status *st = open_peers(gpus, ordinal, count);
  gpu_leave();
  return st;
}

void gpu_device_close(gpu_device *gpu) WEFT_UNSHARED
{
  if (!gpu->context) return;
  weft_status *st = gpu_enter(gpu);
  if (!st) {
    gpu_libraries_close(&gpu->libraries);
    gpu_conditions_close(&gpu->conditions);
    gpu_staging_free(gpu);
    if (gpu->clock.anchor) gpu_event_give(gpu, GPU_TIMING, gpu->clock.anchor);
    for (int kind = 0; kind < GPU_EVENT_KINDS; kind++)
      for (int i = 0; i < gpu->events[kind].count; i++) gpu_cu.cuEventDestroy(gpu->events[kind].spare[i]);
    if (gpu->own) gpu_cu.cuStreamDestroy(gpu->own);
    if (gpu->recorder) gpu_cu.cuStreamDestroy(gpu->recorder);
    gpu_leave();
  }
  weft_status_ignore(st); /* what was not freed here is freed with the context */
  /* the context of a device that hangs is not released: releasing it would wait for the device */
  if (!atomic_load_explicit(&gpu->hung, memory_order_acquire)) gpu_cu.cuDevicePrimaryCtxRelease(gpu->device);
  weft_status_free(atomic_load_explicit(&gpu->hung, memory_order_acquire));
  for (int kind = 0; kind < GPU_EVENT_KINDS; kind++) free(gpu->events[kind].spare);
  free(gpu->reaches);
  gpu_libraries_fini(&gpu->libraries);
  gpu_blocks_fini(&gpu->blocks);
  gpu_conditions_fini(&gpu->conditions);
  weft_mutex_fini(&gpu->talk_mu);
  weft_mutex_fini(&gpu->recording);
  weft_mutex_fini(&gpu->clock_mu);
  weft_mutex_fini(&gpu->mu);
}

weft_status *gpu_event_take(gpu_device *gpu, gpu_event_kind kind, wcu_event *out_event)
{
  *out_event = NULL;
  weft_mutex_lock(&gpu->mu);
  gpu_events *events = &gpu->events[kind];
  if (events->count > 0) *out_event = events->spare[--events->count];
  weft_mutex_unlock(&gpu->mu);
  return *out_event ? NULL : GPU_CALL(cuEventCreate, out_event, kind == GPU_POINT ? WCU_EVENT_DISABLE_TIMING : 0);
}

void gpu_event_give(gpu_device *gpu, gpu_event_kind kind, wcu_event event)
{
  weft_mutex_lock(&gpu->mu);
  gpu_events *events = &gpu->events[kind];
  bool keep = WEFT_RESERVE(events->spare, events->capacity, events->count + 1, 32);
  if (keep) events->spare[events->count++] = event;
  weft_mutex_unlock(&gpu->mu);
  if (!keep) gpu_cu.cuEventDestroy(event);
}

void gpu_device_hangs(gpu_device *gpu, weft_status *st)
{
  weft_status *none = NULL;

  WEFT_LOG("gpu", ERROR, "%s", weft_status_text(st, false));
  /* pairs with the loads in gpu_enter and where loops get their watch (conditions.c); the first error stays */
  if (!atomic_compare_exchange_strong(&gpu->hung, &none, st)) weft_status_free(st);
  gpu_loops_stop(gpu);
}

weft_status *gpu_enter(const gpu_device *gpu)
{
  const weft_status *hung = atomic_load_explicit(&gpu->hung, memory_order_acquire);

  return hung ? weft_status_dup(hung) : GPU_CALL(cuCtxPushCurrent, gpu->context);
}

void gpu_leave(void)
{
  wcu_context context;

  /* repeated once if it fails: the context must not stay on the calling thread's stack */
  if (gpu_cu.cuCtxPopCurrent(&context) != WCU_SUCCESS) gpu_cu.cuCtxPopCurrent(&context);
}
