/* tests/gpu/emulator/device.c -- initialization, devices, contexts, peers, names of
 * errors, and the table of entry points. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

EMU_API cuInit(unsigned flags)
{
  EMU_ENTER(EMU_ANYTIME);
  if (flags) return WCU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&emu_mu);
  if (!emu_initialized) emu_read_settings(true);
  emu_initialized = true;
  for (int d = 0; d < EMU_DEVICES; d++) emu_contexts[d].device = d;
  pthread_mutex_unlock(&emu_mu);
  wcu_result r = emu_enter("cuInit", EMU_ANYTIME); /* once more, now that the faults are read */
  return r ? r : emu_set.devices ? WCU_SUCCESS : WCU_ERROR_NO_DEVICE;
}

/* At unload: what was never freed. */
__attribute__((destructor)) static void finish(void)
{
  char text[600];
  if (!emu_initialized) return;
  size_t n = emu_set.leaks_quiet ? 0 : weft_emu_leaks(text, sizeof text);
  if (n) fprintf(stderr, "weft-emu: %zu allocations were never freed: %s\n", n, text);
  if (n && emu_set.leaks_fail) _exit(97);
}

EMU_API cuDriverGetVersion(int *version)
{
  if (!version) return WCU_ERROR_INVALID_VALUE;
  *version = emu_version();
  return WCU_SUCCESS;
}

/* ---- errors and entry points ---- */

#define ROW(name, value) {value, "CUDA_" #name},
static const struct { int value; const char *name; } results[] = {WCU_RESULTS(ROW)};
#undef ROW

EMU_API cuGetErrorName(wcu_result result, const char **text)
{
  if (!text) return WCU_ERROR_INVALID_VALUE;
  *text = NULL;
  for (size_t n = 0; n < sizeof results / sizeof *results; n++)
    if (results[n].value == (int)result) *text = results[n].name;
  return *text ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}

/* The name in words: "illegal address" of CUDA_ERROR_ILLEGAL_ADDRESS. */
EMU_API cuGetErrorString(wcu_result result, const char **text)
{
  static char words[sizeof results / sizeof *results][64];
  static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
  if (!text) return WCU_ERROR_INVALID_VALUE;
  *text = NULL;
  pthread_mutex_lock(&mu);
  for (size_t n = 0; n < sizeof results / sizeof *results; n++) {
    if (results[n].value != (int)result) continue;
    const char *from = results[n].name + (result ? strlen("CUDA_ERROR_") : strlen("CUDA_"));
    for (size_t k = 0; k < 63 && from[k]; k++)
      words[n][k] = from[k] == '_' ? ' ' : (char)(from[k] >= 'A' && from[k] <= 'Z' ? from[k] + 32 : from[k]);
    *text = words[n];
  }
  pthread_mutex_unlock(&mu);
  return *text ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}

#define WCU_FN(name, symbol, args) {#name, (void *)symbol},
static const struct { const char *name; void *fn; } entries[] = {WCU_ENTRIES(WCU_FN)};
#undef WCU_FN

/* Entry points that older drivers do not have in this form. */
static bool is_too_new(const char *name)
{
  static const char *const from_12_3[] = {"cuGraphAddNode", "cuGraphConditionalHandleCreate",
                                          "cuStreamBeginCaptureToGraph", "cuStreamGetCaptureInfo"};
  bool found = false;
  if (strncmp(name, "cuMulticast", strlen("cuMulticast")) == 0) return emu_version() < 12010;
  for (size_t n = 0; n < sizeof from_12_3 / sizeof *from_12_3; n++) found |= strcmp(from_12_3[n], name) == 0;
  return found && emu_version() < 12030;
}

EMU_API cuGetProcAddress_v2(const char *name, void **fn, int version, uint64_t flags, wcu_proc_address *status)
{
  (void)flags;
  if (!name || !fn) return WCU_ERROR_INVALID_VALUE;
  *fn = NULL;
  for (size_t n = 0; n < sizeof entries / sizeof *entries; n++)
    if (strcmp(entries[n].name, name) == 0 && !is_too_new(name)) *fn = entries[n].fn;
  wcu_proc_address s = *fn ? WCU_GET_PROC_ADDRESS_SUCCESS : WCU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (*fn && version < 12000)
    *fn = NULL, s = WCU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT; /* other versions have other arguments */
  if (status) *status = s;
  return *fn ? WCU_SUCCESS : WCU_ERROR_NOT_FOUND;
}

/* ---- devices ---- */

static bool is_device(int d) { return d >= 0 && d < emu_set.devices; }

EMU_API cuDeviceGetCount(int *n)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!n) return WCU_ERROR_INVALID_VALUE;
  *n = emu_set.devices;
  return WCU_SUCCESS;
}

EMU_API cuDeviceGet(wcu_device *device, int ordinal)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!device || !is_device(ordinal)) return WCU_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return WCU_SUCCESS;
}

EMU_API cuDeviceGetName(char *name, int size, wcu_device device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!name || size <= 0 || !is_device(device)) return WCU_ERROR_INVALID_VALUE;
  snprintf(name, (size_t)size, "%s", emu_set.device.name);
  return WCU_SUCCESS;
}

EMU_API cuDeviceGetUuid_v2(wcu_uuid *uuid, wcu_device device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!uuid || !is_device(device)) return WCU_ERROR_INVALID_VALUE;
  memcpy(uuid->bytes, "weft emulated GP", 16);
  uuid->bytes[15] = (char)device;
  return WCU_SUCCESS;
}

EMU_API cuDeviceGetPCIBusId(char *text, int size, wcu_device device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!text || size < 13 || !is_device(device)) return WCU_ERROR_INVALID_VALUE;
  snprintf(text, (size_t)size, "0000:%02x:00.0", device + 1);
  return WCU_SUCCESS;
}

EMU_API cuDeviceTotalMem_v2(size_t *bytes, wcu_device device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!bytes || !is_device(device)) return WCU_ERROR_INVALID_VALUE;
  *bytes = emu_set.memory;
  return WCU_SUCCESS;
}

/* WEFT_EMU_NUMA is the list of the devices' nodes; the last one is also that of later devices. */
static int node_of(wcu_device device)
{
  const char *list = getenv("WEFT_EMU_NUMA");
  int node = -1;

  for (int i = 0; list && *list && i <= device; i++) {
    char *end;
    node = (int)strtol(list, &end, 10);
    list = *end == ',' ? end + 1 : NULL;
  }
  return node;
}

EMU_API cuDeviceGetAttribute(int *value, wcu_device_attribute attribute, wcu_device device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!value || !is_device(device)) return WCU_ERROR_INVALID_VALUE;
  const emu_device *d = &emu_set.device;
#define IS(name, v) case WCU_DEVICE_ATTRIBUTE_##name: *value = (v); break
  switch (attribute) {
    IS(MAX_THREADS_PER_BLOCK, 1024);
    IS(MAX_BLOCK_DIM_X, 1024);
    IS(MAX_BLOCK_DIM_Y, 1024);
    IS(MAX_BLOCK_DIM_Z, 64);
    IS(MAX_GRID_DIM_X, 0x7fffffff);
    IS(MAX_GRID_DIM_Y, 65535);
    IS(MAX_GRID_DIM_Z, 65535);
    IS(MAX_SHARED_MEMORY_PER_BLOCK, d->shared_per_block);
    IS(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, d->shared_opt_in);
    IS(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, d->shared_per_processor);
    IS(RESERVED_SHARED_MEMORY_PER_BLOCK, d->sm >= 80 ? 1024 : 0);
    IS(TOTAL_CONSTANT_MEMORY, 65536);
    IS(WARP_SIZE, 32);
    IS(MAX_PITCH, 0x7fffffff);
    IS(MAX_REGISTERS_PER_BLOCK, 65536);
    IS(MAX_REGISTERS_PER_MULTIPROCESSOR, 65536);
    IS(CLOCK_RATE, 1500000);
    IS(MEMORY_CLOCK_RATE, 2000000);
    IS(GLOBAL_MEMORY_BUS_WIDTH, 5120);
    IS(MULTIPROCESSOR_COUNT, d->processors);
    IS(MAX_THREADS_PER_MULTIPROCESSOR, d->threads_per_processor);
    IS(MAX_BLOCKS_PER_MULTIPROCESSOR, d->blocks_per_processor);
    IS(L2_CACHE_SIZE, d->l2_bytes);
    IS(COMPUTE_CAPABILITY_MAJOR, d->sm / 10);
    IS(COMPUTE_CAPABILITY_MINOR, d->sm % 10);
    IS(PCI_BUS_ID, device + 1);
    IS(ASYNC_ENGINE_COUNT, 2);
    IS(CAN_MAP_HOST_MEMORY, 1);
    IS(CONCURRENT_KERNELS, 1);
    IS(UNIFIED_ADDRESSING, 1);
    IS(STREAM_PRIORITIES_SUPPORTED, 1);
    IS(COOPERATIVE_LAUNCH, 1);
    IS(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1);
    IS(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1);
    IS(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1);
    IS(MULTICAST_SUPPORTED, emu_set.multicast && d->sm >= 90);
    IS(MEMORY_POOLS_SUPPORTED, 1);
    IS(HOST_NUMA_ID, node_of(device));
  default: *value = 0;
  }
  return WCU_SUCCESS;
}

/* WEFT_EMU_ISLAND: so many devices in a row reach each other, and no others. */
static bool reaches(wcu_device a, wcu_device b)
{
  const char *island = getenv("WEFT_EMU_ISLAND");
  int size = island ? atoi(island) : 0;
  return size < 1 || a / size == b / size;
}

EMU_API cuDeviceCanAccessPeer(int *can, wcu_device device, wcu_device peer)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!can || !is_device(device) || !is_device(peer)) return WCU_ERROR_INVALID_DEVICE;
  *can = device != peer && reaches(device, peer);
  return WCU_SUCCESS;
}

EMU_API cuDeviceGetP2PAttribute(int *value, wcu_p2p_attribute attribute, wcu_device from, wcu_device to)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!value || !is_device(from) || !is_device(to) || from == to) return WCU_ERROR_INVALID_DEVICE;
  *value = reaches(from, to) &&
           (attribute == WCU_P2P_ATTRIBUTE_ACCESS_SUPPORTED || attribute == WCU_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED);
  return WCU_SUCCESS;
}

/* ---- contexts ---- */

EMU_API cuDevicePrimaryCtxRetain(wcu_context *context, wcu_device device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!context || !is_device(device)) return WCU_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&emu_mu);
  emu_contexts[device].refs++;
  *context = &emu_contexts[device];
  pthread_mutex_unlock(&emu_mu);
  return WCU_SUCCESS;
}

/* Ends the context's streams and forgets its error; allocations that are left show as leaks. */
static void end_context(wcu_context c)
{
  emu_stop_streams(c);
  pthread_mutex_lock(&emu_mu);
  c->legacy = c->per_thread = NULL;
  __atomic_store_n(&c->sticky, WCU_SUCCESS, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&emu_mu);
}

EMU_API cuDevicePrimaryCtxRelease_v2(wcu_device device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!is_device(device)) return WCU_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&emu_mu);
  int left = --emu_contexts[device].refs;
  if (left < 0) emu_contexts[device].refs = 0;
  pthread_mutex_unlock(&emu_mu);
  /* after an error that sticks, no call could free the memory of the context */
  bool lost = __atomic_load_n(&emu_contexts[device].sticky, __ATOMIC_ACQUIRE) != WCU_SUCCESS;
  if (left == 0) end_context(&emu_contexts[device]);
  if (left == 0 && lost) emu_free_all(device);
  return left < 0 ? WCU_ERROR_INVALID_CONTEXT : WCU_SUCCESS;
}

EMU_API cuDevicePrimaryCtxReset_v2(wcu_device device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!is_device(device)) return WCU_ERROR_INVALID_DEVICE;
  end_context(&emu_contexts[device]);
  return WCU_SUCCESS;
}

EMU_API cuDevicePrimaryCtxGetState(wcu_device device, unsigned *flags, int *active)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!is_device(device) || !flags || !active) return WCU_ERROR_INVALID_VALUE;
  *flags = 0, *active = emu_contexts[device].refs > 0;
  return WCU_SUCCESS;
}

enum { STACK = 16 };
static _Thread_local wcu_context stack[STACK];
static _Thread_local int stacked;

EMU_API cuCtxSetCurrent(wcu_context context)
{
  EMU_ENTER(EMU_AFTER_INIT);
  emu_current = context;
  return WCU_SUCCESS;
}

EMU_API cuCtxGetCurrent(wcu_context *context)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!context) return WCU_ERROR_INVALID_VALUE;
  *context = emu_current;
  return WCU_SUCCESS;
}

EMU_API cuCtxPushCurrent_v2(wcu_context context)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!context || stacked == STACK) return WCU_ERROR_INVALID_CONTEXT;
  stack[stacked++] = emu_current;
  emu_current = context;
  return WCU_SUCCESS;
}

EMU_API cuCtxPopCurrent_v2(wcu_context *context)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!stacked) return WCU_ERROR_INVALID_CONTEXT;
  if (context) *context = emu_current;
  emu_current = stack[--stacked];
  return WCU_SUCCESS;
}

EMU_API cuCtxGetDevice(wcu_device *device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!device || !emu_current) return WCU_ERROR_INVALID_CONTEXT;
  *device = emu_current->device;
  return WCU_SUCCESS;
}

EMU_API cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return WCU_SUCCESS;
}

EMU_API cuCtxEnablePeerAccess(wcu_context peer, unsigned flags)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!peer || flags || peer == emu_current) return WCU_ERROR_INVALID_VALUE;
  if (!reaches(emu_current->device, peer->device)) return WCU_ERROR_PEER_ACCESS_UNSUPPORTED;
  if (emu_current->peers >> peer->device & 1) return WCU_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  emu_current->peers |= 1u << peer->device;
  emu_peer(emu_current->device, peer->device, true);
  return WCU_SUCCESS;
}

EMU_API cuCtxDisablePeerAccess(wcu_context peer)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!peer || !(emu_current->peers >> peer->device & 1)) return WCU_ERROR_PEER_ACCESS_NOT_ENABLED;
  emu_current->peers &= ~(1u << peer->device);
  emu_peer(emu_current->device, peer->device, false);
  return WCU_SUCCESS;
}
