/* gpu/multicast.c -- scratch memory of several GPUs at one address (multicast.h).
 *
 * The driver's order: the object, all devices of its team, then memory is bound and the object is mapped.  The driver
 * would wait for devices that are missing.  In the end memory is unbound before it and the object are unmapped and
 * released. */
#include <config.h>

#include "gpu/multicast.h"

#include <stdlib.h>

#include "base/log.h"

/* The granularity of an object may be as large as hundreds of megabytes: more than this is not taken. */
enum { MOST_BYTES = 64 << 20 };

static wcu_mem_allocation_prop memory_of(const gpu_device *gpu)
{
  return (wcu_mem_allocation_prop){.type = WCU_MEM_ALLOCATION_TYPE_PINNED,
                                   .location = {WCU_MEM_LOCATION_TYPE_DEVICE, gpu->device}};
}

/* Rounds the size up to what the object and the memory of each device allow; both are powers of two. */
static weft_status *choose_size(gpu_multicast *m, wcu_multicast_prop *prop)
{
  size_t unit;

  prop->size = (size_t)m->bytes;
  WEFT_TRY(GPU_CALL(cuMulticastGetGranularity, &unit, prop, WCU_MULTICAST_GRANULARITY_MINIMUM));
  m->unit = unit;
  m->bytes = WEFT_ALIGN_UP(m->bytes, unit);
  for (int k = 0; k < m->count; k++) {
    wcu_mem_allocation_prop memory = memory_of(m->members[k].gpu);
    WEFT_TRY(GPU_CALL(cuMemGetAllocationGranularity, &unit, &memory, WCU_MEM_GRANULARITY_MINIMUM));
    m->bytes = WEFT_ALIGN_UP(m->bytes, unit);
  }
  prop->size = (size_t)m->bytes;
  if (m->bytes <= MOST_BYTES) return NULL;
  return WEFT_ERR(RESOURCE_EXHAUSTED, "a multicast object would take %lld bytes of each GPU", (long long)m->bytes);
}

static weft_status *make_object(gpu_multicast *m)
{
  wcu_multicast_prop prop = {.numDevices = (unsigned)m->count};

  WEFT_TRY(choose_size(m, &prop));
  WEFT_TRY(GPU_CALL(cuMulticastCreate, &m->object, &prop));
  for (int k = 0; k < m->count; k++) WEFT_TRY(GPU_CALL(cuMulticastAddDevice, m->object, m->members[k].gpu->device));
  return NULL;
}

static weft_status *join(gpu_multicast *m, gpu_multicast_member *member)
{
  wcu_mem_allocation_prop prop = memory_of(member->gpu);
  wcu_mem_access_desc rights = {{WCU_MEM_LOCATION_TYPE_DEVICE, member->gpu->device}, WCU_MEM_ACCESS_READWRITE};

  WEFT_TRY(GPU_CALL(cuMemCreate, &member->memory, (size_t)m->bytes, &prop, 0));
  WEFT_TRY(GPU_CALL(cuMulticastBindMem, m->object, 0, member->memory, 0, (size_t)m->bytes, 0));
  member->bound = true;
  WEFT_TRY(gpu_map(member->memory, m->bytes, 0, &rights, 1, &member->own));
  return gpu_map(m->object, m->bytes, m->unit, &rights, 1, &member->all);
}

static weft_status *join_all(gpu_multicast *m)
{
  for (int k = 0; k < m->count; k++) {
    gpu_multicast_member *member = &m->members[k];
    WEFT_TRY(gpu_enter(member->gpu));
    weft_status *st = join(m, member);
    gpu_leave();
    if (st) return weft_status_note(st, __FILE__, __LINE__, "GPU %d", member->gpu->device);
  }
  return NULL;
}

static weft_status *check_devices(const gpu_multicast *m)
{
  for (int k = 0; k < m->count; k++)
    if (!m->members[k].gpu->multicast)
      return WEFT_ERR(UNAVAILABLE, "GPU %d, %s, has no multicast", m->members[k].gpu->device, m->members[k].gpu->kind);
  return NULL;
}

static weft_status *make(gpu_multicast *m)
{
  WEFT_TRY(check_devices(m));
  WEFT_TRY(gpu_enter(m->members[0].gpu));
  weft_status *st = make_object(m);
  gpu_leave();
  return st ? st : join_all(m);
}

weft_status *gpu_multicast_new(gpu_device *const *gpus, int count, int64_t bytes, gpu_multicast **out_multicast)
{
  gpu_multicast *m = calloc(1, sizeof *m + (size_t)count * sizeof m->members[0]);

  *out_multicast = NULL;
  WEFT_TRY_ALLOC(m);
  m->bytes = bytes;
  m->count = count;
  for (int k = 0; k < count; k++) m->members[k].gpu = gpus[k];
  weft_status *st = make(m);
  if (st) gpu_multicast_free(m);
  else *out_multicast = m;
  return st;
}

static bool any_hangs(const gpu_multicast *m)
{
  for (int k = 0; k < m->count; k++)
    if (atomic_load_explicit(&m->members[k].gpu->hung, memory_order_acquire)) return true;
  return false;
}

void gpu_multicast_free(gpu_multicast *m)
{
  if (!m) return;
  if (any_hangs(m)) {
    WEFT_LOG("gpu", WARN, "a GPU hangs: %lld bytes of each of %d GPUs stay in use", (long long)m->bytes, m->count);
    free(m);
    return;
  }
  for (int k = 0; k < m->count; k++)
    if (m->members[k].bound) gpu_cu.cuMulticastUnbind(m->object, m->members[k].gpu->device, 0, (size_t)m->bytes);
  for (int k = 0; k < m->count; k++) {
    gpu_multicast_member *member = &m->members[k];
    if (member->all) gpu_unmap(member->all, m->bytes);
    if (member->own) gpu_unmap(member->own, m->bytes);
    if (member->memory) gpu_cu.cuMemRelease(member->memory);
  }
  if (m->object) gpu_cu.cuMemRelease(m->object);
  free(m);
}
