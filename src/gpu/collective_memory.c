/* gpu/collective_memory.c -- device memory that NCCL's communicators register (collective_memory.h). */
#include <config.h>

#include "gpu/collective_memory.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/deadline.h"
#include "gpu/gpu_internal.h"

/* How long an allocation waits for blocks that are given back and still held, when the driver has no memory left. */
enum { SETTLE_MS = 2000 };

struct gpu_block {
  gpu_extent at;
  wcu_mem_handle memory;
  gpu_block_hold *holds;
  bool given_back;
};

void gpu_blocks_init(gpu_blocks *blocks) WEFT_UNSHARED
{
  *blocks = (gpu_blocks){.all = NULL};
  weft_mutex_init(&blocks->mu);
}

void gpu_blocks_fini(gpu_blocks *blocks) WEFT_UNSHARED
{
  free(blocks->all);
  weft_mutex_fini(&blocks->mu);
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

static bool has(const gpu_device *gpu, wcu_device_attribute attribute)
{
  int value;

  return gpu_cu.cuDeviceGetAttribute(&value, attribute, gpu->device) == WCU_SUCCESS && value != 0;
}

static wcu_mem_allocation_prop properties(const gpu_device *gpu, wcu_mem_handle_type handles)
{
  bool rdma = has(gpu, WCU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);

  return (wcu_mem_allocation_prop){.type = WCU_MEM_ALLOCATION_TYPE_PINNED,
                                   .requestedHandleTypes = handles,
                                   .location = {WCU_MEM_LOCATION_TYPE_DEVICE, gpu->device},
                                   .allocFlags = {.gpuDirectRDMACapable = rdma}};
}

/* Physical memory that other processes can map: through the fabric, where there is one, and by a file descriptor. */
static weft_status *create(const gpu_device *gpu, int64_t *bytes, wcu_mem_handle *out)
{
  static const wcu_mem_handle_type file = WCU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  bool fabric = has(gpu, WCU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  wcu_mem_allocation_prop prop = properties(gpu, fabric ? file | WCU_MEM_HANDLE_TYPE_FABRIC : file);
  size_t unit;

  WEFT_TRY(GPU_CALL(cuMemGetAllocationGranularity, &unit, &prop, WCU_MEM_GRANULARITY_RECOMMENDED));
  *bytes = (*bytes + (int64_t)unit - 1) / (int64_t)unit * (int64_t)unit;
  /* a process may lack the right to the fabric */
  if (fabric && gpu_cu.cuMemCreate(out, (size_t)*bytes, &prop, 0) == WCU_SUCCESS) return NULL;
  prop.requestedHandleTypes = file;
  return GPU_CALL(cuMemCreate, out, (size_t)*bytes, &prop, 0);
}

void gpu_unmap(wcu_ptr at, int64_t bytes)
{
  gpu_cu.cuMemUnmap(at, (size_t)bytes);
  gpu_cu.cuMemAddressFree(at, (size_t)bytes);
}

weft_status *gpu_map(wcu_mem_handle handle, int64_t bytes, size_t align, const wcu_mem_access_desc *rights, int count,
                     wcu_ptr *out_at)
{
  wcu_ptr at;

  WEFT_TRY(GPU_CALL(cuMemAddressReserve, &at, (size_t)bytes, align, 0, 0));
  weft_status *st = GPU_CALL(cuMemMap, at, (size_t)bytes, 0, handle, 0);
  if (st) {
    gpu_cu.cuMemAddressFree(at, (size_t)bytes);
    return st;
  }
  st = GPU_CALL(cuMemSetAccess, at, (size_t)bytes, rights, (size_t)count);
  if (st) gpu_unmap(at, bytes);
  else *out_at = at;
  return st;
}

/* For the device, and for those that reach it. */
static weft_status *map(const gpu_platform *platform, const gpu_device *gpu, wcu_mem_handle memory, int64_t bytes,
                        wcu_ptr *out)
{
  int own = (int)(gpu - platform->gpus), count = 0;
  wcu_mem_access_desc *rights = calloc((size_t)platform->gpu_count, sizeof *rights);

  WEFT_TRY_ALLOC(rights);
  for (int d = 0; d < platform->gpu_count; d++)
    if (d == own || (platform->gpus[d].reaches && platform->gpus[d].reaches[own]))
      rights[count++] =
        (wcu_mem_access_desc){{WCU_MEM_LOCATION_TYPE_DEVICE, platform->gpus[d].device}, WCU_MEM_ACCESS_READWRITE};
  weft_status *st = gpu_map(memory, bytes, 0, rights, count, out);
  free(rights);
  return st;
}

static weft_status *fill(const gpu_platform *platform, const gpu_device *gpu, int64_t bytes, gpu_block *block)
{
  wcu_ptr at;

  WEFT_TRY(create(gpu, &bytes, &block->memory));
  weft_status *st = map(platform, gpu, block->memory, bytes, &at);
  if (st) gpu_cu.cuMemRelease(block->memory);
  else block->at = (gpu_extent){at, bytes, block->at.plain};
  return st;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

/* False: blocks that are given back are still held. */
static bool is_settled(gpu_device *gpu)
{
  weft_mutex_lock(&gpu->blocks.mu);
  bool settled = gpu->blocks.given_back == 0;
  weft_mutex_unlock(&gpu->blocks.mu);
  return settled;
}

static void free_block(gpu_block *block)
{
  gpu_unmap(block->at.base, block->at.bytes);
  gpu_cu.cuMemRelease(block->memory);
  free(block);
}

/* How many blocks begin at or before an address. */
static int count_up_to(const gpu_blocks *blocks, uint64_t at) WEFT_REQUIRES(blocks->mu)
{
  int low = 0, high = blocks->count;

  weft_mutex_assert_held(&blocks->mu);
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (blocks->all[middle]->at.base <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}

static gpu_block *find_locked(const gpu_blocks *blocks, uint64_t at) WEFT_REQUIRES(blocks->mu)
{
  weft_mutex_assert_held(&blocks->mu);
  int before = count_up_to(blocks, at);

  return before > 0 && at - blocks->all[before - 1]->at.base < (uint64_t)blocks->all[before - 1]->at.bytes
           ? blocks->all[before - 1]
           : NULL;
}

/* False: there is no memory to make the list longer. */
static bool list_block(gpu_blocks *blocks, gpu_block *block)
{
  weft_mutex_lock(&blocks->mu);
  bool listed = WEFT_RESERVE(blocks->all, blocks->capacity, blocks->count + 1, 16);
  if (listed) {
    int place = count_up_to(blocks, block->at.base);
    memmove(blocks->all + place + 1, blocks->all + place, (size_t)(blocks->count - place) * sizeof *blocks->all);
    blocks->all[place] = block;
    blocks->count++;
  }
  weft_mutex_unlock(&blocks->mu);
  return listed;
}

/* Takes the block out of the list if nobody has it any more; NULL: somebody has. */
static gpu_block *take_out_locked(gpu_blocks *blocks, gpu_block *block) WEFT_REQUIRES(blocks->mu)
{
  weft_mutex_assert_held(&blocks->mu);
  if (!block->given_back || block->holds) return NULL;
  int place = count_up_to(blocks, block->at.base) - 1;
  blocks->count--;
  memmove(blocks->all + place, blocks->all + place + 1, (size_t)(blocks->count - place) * sizeof *blocks->all);
  blocks->given_back--;
  return block;
}

weft_status *gpu_block_allocate(gpu_platform *platform, gpu_device *gpu, int64_t bytes, bool plain, void **out_data)
{
  static const struct timespec nap = {.tv_nsec = 1000000};
  gpu_block *block = calloc(1, sizeof *block);

  WEFT_TRY_ALLOC(block);
  block->at.plain = plain;
  weft_status *st = fill(platform, gpu, bytes, block);
  if (weft_status_code(st) == WEFT_RESOURCE_EXHAUSTED && !is_settled(gpu)) {
    weft_deadline until = weft_deadline_after_ms(SETTLE_MS);
    while (!is_settled(gpu) && !weft_deadline_passed(until)) nanosleep(&nap, NULL);
    weft_status_free(st);
    st = fill(platform, gpu, bytes, block);
  }
  if (st) {
    free(block);
    return st;
  }
  if (!list_block(&gpu->blocks, block)) {
    free_block(block);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  *out_data = (void *)(uintptr_t)block->at.base; /* NOLINT */
  return NULL;
}

void gpu_block_give_back(gpu_device *gpu, void *data)
{
  weft_mutex_lock(&gpu->blocks.mu);
  gpu_block *block = find_locked(&gpu->blocks, (uint64_t)(uintptr_t)data);
  if (block) {
    block->given_back = true;
    gpu->blocks.given_back++;
    for (gpu_block_hold *h = block->holds; h; h = h->next) h->given_back(h);
    block = take_out_locked(&gpu->blocks, block);
  }
  weft_mutex_unlock(&gpu->blocks.mu);
  if (block) free_block(block);
}

bool gpu_block_take_hold(gpu_device *gpu, uint64_t base, gpu_block_hold *hold)
{
  weft_mutex_lock(&gpu->blocks.mu);
  gpu_block *block = find_locked(&gpu->blocks, base);
  hold->block = block;
  if (block) {
    hold->next = block->holds;
    block->holds = hold;
  }
  weft_mutex_unlock(&gpu->blocks.mu);
  return block;
}

void gpu_block_release(gpu_device *gpu, gpu_block_hold *hold)
{
  gpu_block *block = hold->block;

  if (!block) return;
  weft_mutex_lock(&gpu->blocks.mu);
  gpu_block_hold **at = &block->holds;
  while (*at != hold) at = &(*at)->next;
  *at = hold->next;
  hold->block = NULL;
  block = take_out_locked(&gpu->blocks, block);
  weft_mutex_unlock(&gpu->blocks.mu);
  if (block) free_block(block);
}

bool gpu_block_find(gpu_device *gpu, const void *at, gpu_extent *out)
{
  weft_mutex_lock(&gpu->blocks.mu);
  const gpu_block *block = find_locked(&gpu->blocks, (uint64_t)(uintptr_t)at);
  if (block) *out = block->at;
  weft_mutex_unlock(&gpu->blocks.mu);
  return block;
}
