#include <config.h>

#include "runtime/device.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/feed.h"
#include "runtime/runtime_internal.h"

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Classes 0..7 are 64, 128 .. 512 bytes; then each power of two has eight, 9/16 .. 16/16 of it. */
static int size_class(int64_t bytes)
{
  if (bytes <= 512) return (int)((WEFT_MAX(bytes, 1) - 1) / 64);
  int log = 64 - __builtin_clzll((unsigned long long)bytes - 1); /* 2^(log-1) < bytes <= 2^log */
  int64_t step = INT64_C(1) << (log - 4);
  return 8 + (log - 10) * 8 + (int)((bytes + step - 1) / step) - 9;
}

static int64_t class_bytes(int class)
{
  if (class < 8) return 64 * (class + 1);
  return (INT64_C(1) << ((class - 8) / 8 + 6)) * ((class - 8) % 8 + 9);
}

static void *pop_block(rt_free_list *list) { return list->count > 0 ? list->blocks[--list->count] : NULL; }

/* False: there is no memory to remember it. */
static bool push_block(rt_free_list *list, void *block)
{
  if (list->count == list->capacity) {
    int wider = WEFT_MAX(2 * list->capacity, 8);
    void **bigger = realloc(list->blocks, (size_t)wider * sizeof *bigger);
    if (!bigger) return false;
    list->blocks = bigger;
    list->capacity = wider;
  }
  list->blocks[list->count++] = block;
  return true;
}

weft_status *rt_device_take(weft_device *device, int64_t bytes, void **out_data)
{
  int class = size_class(bytes);
  int64_t size = class_bytes(class);

  if (bytes > device->platform->memory_limit)
    return WEFT_ERR(RESOURCE_EXHAUSTED, "%lld bytes asked for, the machine has %lld", (long long)bytes,
                    (long long)device->platform->memory_limit);
  weft_mutex_lock(&device->memory_mu);
  void *block = pop_block(&device->free_blocks[class]);
  if (block) device->memory.cached_bytes -= size;
  device->memory.bytes_in_use += size;
  device->memory.peak_bytes = WEFT_MAX(device->memory.peak_bytes, device->memory.bytes_in_use);
  device->memory.largest_bytes = WEFT_MAX(device->memory.largest_bytes, size);
  device->memory.allocation_count++;
  weft_mutex_unlock(&device->memory_mu);
  if (block) {
    *out_data = block;
    return NULL;
  }
  weft_status *st = device->platform->ops->device->allocate(device, size, out_data);
  if (st) {
    weft_mutex_lock(&device->memory_mu);
    device->memory.bytes_in_use -= size;
    weft_mutex_unlock(&device->memory_mu);
  }
  return st;
}

void rt_device_give(weft_device *device, void *data, int64_t bytes)
{
  int class = size_class(bytes);
  int64_t size = class_bytes(class);
  bool keep;

  weft_mutex_lock(&device->memory_mu);
  device->memory.bytes_in_use -= size;
  keep = device->memory.cached_bytes + size <= device->cache_limit && push_block(&device->free_blocks[class], data);
  if (keep) device->memory.cached_bytes += size;
  weft_mutex_unlock(&device->memory_mu);
  if (!keep) device->platform->ops->device->deallocate(device, data, size);
}

bool weft_device_is_host_visible(const weft_device *device) { return device->platform->ops->device->is_host_visible; }

void *weft_device_host_address(weft_device *device, void *data)
{
  const weft_device_ops *ops = device->platform->ops->device;

  return ops->is_host_visible ? data : ops->host_address(device, data);
}

weft_status *weft_device_write(weft_device *device, void *to, const void *host, int64_t bytes)
{
  const weft_device_ops *ops = device->platform->ops->device;

  if (bytes <= 0) return NULL;
  if (!ops->is_host_visible) return ops->write(device, to, host, bytes);
  memcpy(to, host, (size_t)bytes);
  return NULL;
}

weft_status *weft_device_read(weft_device *device, void *host, const void *from, int64_t bytes)
{
  const weft_device_ops *ops = device->platform->ops->device;

  if (bytes <= 0) return NULL;
  if (!ops->is_host_visible) return ops->read(device, host, from, bytes);
  memcpy(host, from, (size_t)bytes);
  return NULL;
}

weft_status *weft_device_copy(weft_device *to_device, void *to, weft_device *from_device, const void *from, int64_t bytes)
{
  const weft_device_ops *ops = to_device->platform->ops->device;

  if (bytes <= 0) return NULL;
  if (!ops->is_host_visible) return ops->copy(to_device, to, from_device, from, bytes);
  memcpy(to, from, (size_t)bytes);
  return NULL;
}

weft_memory_stats weft_device_memory(const weft_device *device)
{
  weft_device *d = (weft_device *)device;

  weft_mutex_lock(&d->memory_mu);
  weft_memory_stats stats = d->memory;
  weft_mutex_unlock(&d->memory_mu);
  stats.bytes_limit = d->platform->memory_limit;
  return stats;
}

void weft_device_clear_memory_stats(weft_device *device)
{
  weft_mutex_lock(&device->memory_mu);
  device->memory.peak_bytes = device->memory.bytes_in_use;
  device->memory.allocation_count = device->memory.largest_bytes = 0;
  weft_mutex_unlock(&device->memory_mu);
}

/* ---- the device itself ----------------------------------------------------------------------------------------- */

weft_status *rt_device_init(weft_device *device, weft_platform *platform, int64_t id, int ordinal, const char *kind) WEFT_UNSHARED
{
  *device = (weft_device){.platform = platform, .id = id, .ordinal = ordinal, .kind = kind, .numa_node = -1,
                          .cache_limit = platform->memory_limit / 8};
  weft_mutex_init(&device->memory_mu);
  weft_mutex_init(&device->mu);
  weft_cond_init(&device->changed);
  weft_cond_init(&device->room);
  device->no_room_at = -1;
  WEFT_TRY(rt_feed_new(&device->infeed));
  return rt_feed_new(&device->outfeed);
}

void rt_device_fini(weft_device *device) WEFT_UNSHARED
{
  for (int class = 0; class < RT_SIZE_CLASSES; class++) {
    for (void *block; (block = pop_block(&device->free_blocks[class]));)
      device->platform->ops->device->deallocate(device, block, class_bytes(class));
    free(device->free_blocks[class].blocks);
  }
  rt_feed_free(device->infeed);
  rt_feed_free(device->outfeed);
  weft_cond_fini(&device->changed);
  weft_cond_fini(&device->room);
  weft_mutex_fini(&device->mu);
  weft_mutex_fini(&device->memory_mu);
}

weft_platform *weft_device_platform(const weft_device *device) { return device->platform; }
int64_t weft_device_id(const weft_device *device) { return device->id; }
int weft_device_ordinal(const weft_device *device) { return device->ordinal; }
int weft_device_process(const weft_device *device) { return device->platform->process_index; }
const char *weft_device_kind(const weft_device *device) { return device->kind; }
