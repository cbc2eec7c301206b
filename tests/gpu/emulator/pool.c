/* tests/gpu/emulator/pool.c -- allocation: cuMemAlloc, pinned host memory, and memory pools.
 *
 * A pool gives out addresses at once; what cuMemFreeAsync frees dies when its stream comes to it, so that a use by
 * another stream which is not ordered before is a use after free. */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

struct wcu_mempool_st { int device; uint64_t threshold, values[4]; uint32_t peers; };
static struct wcu_mempool_st default_pools[EMU_DEVICES];

EMU_API cuMemGetInfo_v2(size_t *unused, size_t *total)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!unused || !total) return WCU_ERROR_INVALID_VALUE;
  *total = emu_set.memory, *unused = emu_set.memory - emu_used(emu_current->device);
  return WCU_SUCCESS;
}

EMU_API cuMemAlloc_v2(wcu_ptr *at, size_t bytes)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!at) return WCU_ERROR_INVALID_VALUE;
  uint64_t a;
  wcu_result r = emu_alloc(emu_current->device, bytes, 512, EMU_DEVICE_MEMORY, NULL, &a);
  if (!r) *at = a;
  return r;
}

/* Waits for the device first, as the driver does. */
EMU_API cuMemFree_v2(wcu_ptr at)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  if (!at) return WCU_SUCCESS;
  cuCtxSynchronize();
  return emu_free(at, 1 << EMU_DEVICE_MEMORY);
}

EMU_API cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  (void)flags;
  if (!at) return WCU_ERROR_INVALID_VALUE;
  uint64_t a;
  wcu_result r = emu_alloc(emu_current->device, bytes, 512, EMU_HOST_MEMORY, NULL, &a);
  if (!r) *at = (void *)(uintptr_t)a;
  return r;
}

EMU_API cuMemAllocHost_v2(void **at, size_t bytes) { return cuMemHostAlloc(at, bytes, 0); }

EMU_API cuMemFreeHost(void *at)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  cuCtxSynchronize();
  return emu_free((uint64_t)(uintptr_t)at, 1 << EMU_HOST_MEMORY);
}

EMU_API cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  (void)flags;
  return emu_register(at, bytes);
}

EMU_API cuMemHostUnregister(void *at)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return emu_free((uint64_t)(uintptr_t)at, 1 << EMU_REGISTERED) ? WCU_ERROR_HOST_MEMORY_NOT_REGISTERED : WCU_SUCCESS;
}

EMU_API cuMemHostGetDevicePointer_v2(wcu_ptr *device, void *host, unsigned flags)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  emu_block b;
  if (!device || flags || !emu_lookup((uint64_t)(uintptr_t)host, &b)) return WCU_ERROR_INVALID_VALUE;
  *device = (wcu_ptr)(uintptr_t)host;
  return WCU_SUCCESS;
}

EMU_API cuMemGetAddressRange_v2(wcu_ptr *base, size_t *bytes, wcu_ptr at)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  emu_block b;
  if (!emu_lookup(at, &b)) return WCU_ERROR_NOT_FOUND;
  if (base) *base = b.base;
  if (bytes) *bytes = b.size;
  return WCU_SUCCESS;
}

EMU_API cuPointerGetAttribute(void *value, wcu_pointer_attribute attribute, wcu_ptr at)
{
  EMU_ENTER(EMU_AFTER_INIT);
  emu_block b;
  if (!value || !emu_lookup(at, &b)) return WCU_ERROR_INVALID_VALUE;
  bool host = b.kind == EMU_HOST_MEMORY || b.kind == EMU_REGISTERED;
  switch (attribute) {
  case WCU_POINTER_ATTRIBUTE_CONTEXT: *(wcu_context *)value = &emu_contexts[b.device]; break;
  case WCU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *(wcu_memorytype *)value = host ? WCU_MEMORYTYPE_HOST : WCU_MEMORYTYPE_DEVICE;
    break;
  case WCU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(wcu_ptr *)value = at; break;
  case WCU_POINTER_ATTRIBUTE_HOST_POINTER:
    if (!host) return WCU_ERROR_INVALID_VALUE;
    *(void **)value = (void *)(uintptr_t)at;
    break;
  case WCU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)value = b.id; break;
  case WCU_POINTER_ATTRIBUTE_IS_MANAGED: *(bool *)value = false; break;
  case WCU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = b.device; break;
  case WCU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(wcu_ptr *)value = b.base; break;
  case WCU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = b.size; break;
  case WCU_POINTER_ATTRIBUTE_MAPPED: *(bool *)value = true; break;
  case WCU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(wcu_mempool *)value = b.pool; break;
  default: return WCU_ERROR_INVALID_VALUE;
  }
  return WCU_SUCCESS;
}

/* ---- pools ---- */

EMU_API cuDeviceGetDefaultMemPool(wcu_mempool *pool, wcu_device device)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!pool || device < 0 || device >= emu_set.devices) return WCU_ERROR_INVALID_VALUE;
  default_pools[device].device = device;
  *pool = &default_pools[device];
  return WCU_SUCCESS;
}

EMU_API cuDeviceGetMemPool(wcu_mempool *pool, wcu_device device) { return cuDeviceGetDefaultMemPool(pool, device); }

EMU_API cuMemPoolCreate(wcu_mempool *pool, const wcu_mempool_props *props)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!pool || !props || props->location.type != WCU_MEM_LOCATION_TYPE_DEVICE || props->location.id < 0 ||
      props->location.id >= emu_set.devices)
    return WCU_ERROR_INVALID_VALUE;
  *pool = calloc(1, sizeof **pool);
  if (!*pool) return WCU_ERROR_OUT_OF_MEMORY;
  (*pool)->device = props->location.id;
  return WCU_SUCCESS;
}

EMU_API cuMemPoolDestroy(wcu_mempool pool)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!pool || (pool >= default_pools && pool < default_pools + EMU_DEVICES)) return WCU_ERROR_INVALID_VALUE;
  free(pool);
  return WCU_SUCCESS;
}

EMU_API cuMemPoolSetAttribute(wcu_mempool pool, wcu_mempool_attribute attribute, void *value)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!pool || !value) return WCU_ERROR_INVALID_VALUE;
  if (attribute == WCU_MEMPOOL_ATTR_RELEASE_THRESHOLD) pool->threshold = *(uint64_t *)value;
  else if (attribute < WCU_MEMPOOL_ATTR_RELEASE_THRESHOLD) pool->values[attribute & 3] = *(unsigned *)value;
  return WCU_SUCCESS;
}

EMU_API cuMemPoolGetAttribute(wcu_mempool pool, wcu_mempool_attribute attribute, void *value)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!pool || !value) return WCU_ERROR_INVALID_VALUE;
  if (attribute == WCU_MEMPOOL_ATTR_RELEASE_THRESHOLD) *(uint64_t *)value = pool->threshold;
  else if (attribute < WCU_MEMPOOL_ATTR_RELEASE_THRESHOLD) *(unsigned *)value = (unsigned)pool->values[attribute & 3];
  else *(uint64_t *)value = emu_used(pool->device); /* of the whole device: nothing is kept back */
  return WCU_SUCCESS;
}

EMU_API cuMemPoolTrimTo(wcu_mempool pool, size_t keep)
{
  EMU_ENTER(EMU_AFTER_INIT);
  (void)keep;
  return pool ? WCU_SUCCESS : WCU_ERROR_INVALID_VALUE;
}

EMU_API cuMemPoolSetAccess(wcu_mempool pool, const wcu_mem_access_desc *rights, size_t n)
{
  EMU_ENTER(EMU_AFTER_INIT);
  if (!pool || !rights) return WCU_ERROR_INVALID_VALUE;
  for (size_t k = 0; k < n; k++) {
    int d = rights[k].location.id & (EMU_DEVICES - 1);
    bool on = rights[k].flags == WCU_MEM_ACCESS_READWRITE;
    pool->peers = on ? pool->peers | 1u << d : pool->peers & ~(1u << d);
    emu_pool_access(pool, d, on);
  }
  return WCU_SUCCESS;
}

static wcu_result alloc_async(wcu_ptr *at, size_t bytes, wcu_mempool pool, wcu_stream stream)
{
  if (!at || !pool) return WCU_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&emu_mu);
  wcu_stream s = emu_stream_of(stream);
  wcu_result r = !s ? WCU_ERROR_INVALID_HANDLE : s->capture ? WCU_ERROR_STREAM_CAPTURE_UNSUPPORTED : WCU_SUCCESS;
  pthread_mutex_unlock(&emu_mu);
  uint64_t a = 0;
  if (!r) r = emu_alloc(pool->device, bytes, 512, EMU_DEVICE_MEMORY, pool, &a);
  if (!r) *at = a;
  for (int d = 0; !r && d < EMU_DEVICES; d++)
    if (pool->peers >> d & 1) emu_pool_access(pool, d, true);
  return r;
}

EMU_API cuMemAllocFromPoolAsync(wcu_ptr *at, size_t bytes, wcu_mempool pool, wcu_stream stream)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  return alloc_async(at, bytes, pool, stream);
}

EMU_API cuMemAllocAsync(wcu_ptr *at, size_t bytes, wcu_stream stream)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  default_pools[emu_current->device].device = emu_current->device;
  return alloc_async(at, bytes, &default_pools[emu_current->device], stream);
}

EMU_API cuMemFreeAsync(wcu_ptr at, wcu_stream stream)
{
  EMU_ENTER(EMU_WITH_CONTEXT);
  emu_block b;
  if (!emu_lookup(at, &b) || b.base != at || b.kind != EMU_DEVICE_MEMORY) return WCU_ERROR_INVALID_VALUE;
  return emu_submit(stream, &(emu_work){.what = EMU_POOL_FREE, .at = at});
}
