/* runtime/device.c -- a device: its memory, and a queue that starts work in the order of its submission (device.h). */
#include <config.h>

#include "runtime/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/options.h"
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

/* Of the last few blocks, puts one of the calling thread's node last, if there is one. */
static void prefer_own_node(const weft_device *device, rt_free_list *list)
{
  enum { FEW = 8 };
  int node = rt_pool_node(device->platform->pool), last = list->count - 1;

  for (int i = last; i >= 0 && i > last - FEW; i--)
    if (list->blocks[i].node == node) {
      rt_free_block own = list->blocks[i];
      memmove(list->blocks + i, list->blocks + i + 1, (size_t)(last - i) * sizeof own);
      list->blocks[last] = own;
      return;
    }
}

/* Takes a block that `taker` may use at once from the list; NULL: there is none. For RT_ANYONE only blocks[0] is
 * tried, as older blocks are likelier to be idle. */
static void *pop_block(const weft_device *device, rt_free_list *list, rt_taker taker)
{
  int at = list->count - 1;

  if (at < 0) return NULL;
  if (device->queues && taker == RT_ANYONE) {
    rt_free_block first = list->blocks[0]; /* the oldest: they stand in the order in which they were freed */
    if (first.number > device->ops->reached(device->streams[WEFT_STREAM_COMPUTE])) return NULL;
    memmove(list->blocks, list->blocks + 1, (size_t)at * sizeof *list->blocks);
    list->blocks[at] = first;
  }
  if (WEFT_UNLIKELY(device->platform->numa.count > 1) && !device->queues) prefer_own_node(device, list);
  list->count = at;
  return list->blocks[at].data;
}

/* False: there is no memory to make the list longer. */
static bool push_block(rt_free_list *list, rt_free_block block)
{
  if (!WEFT_RESERVE(list->blocks, list->capacity, list->count + 1, 8)) return false;
  list->blocks[list->count++] = block;
  return true;
}

/* Returns all idle blocks to the platform.  False: there were none. */
static bool trim(weft_device *device)
{
  int64_t before;
  uint64_t reached = device->queues ? device->ops->reached(device->streams[WEFT_STREAM_COMPUTE]) : 0;

  weft_mutex_lock(&device->memory_mu);
  before = device->memory.cached_bytes;
  for (int space = 0; space < RT_SPACES; space++)
    for (int class = 0; class < RT_SIZE_CLASSES; class ++) {
      rt_free_list *list = &device->free_blocks[space][class];
      int kept = 0;
      for (int i = 0; i < list->count; i++)
        if (list->blocks[i].number > reached) {
          list->blocks[kept++] = list->blocks[i];
        } else {
          device->ops->deallocate(device, space, list->blocks[i].data, class_bytes(class));
          device->memory.cached_bytes -= class_bytes(class);
        }
      list->count = kept;
    }
  bool any = device->memory.cached_bytes < before;
  weft_mutex_unlock(&device->memory_mu);
  return any;
}

/* Allocates a new block. If the platform has no memory left, packed forms that are not in use and then idle blocks of
 * the cache are freed first. */
static weft_status *allocate(weft_device *device, int space, int64_t size, void **out_data)
{
  weft_status *st = device->ops->allocate(device, space, size, out_data);

  if (weft_status_code(st) != WEFT_RESOURCE_EXHAUSTED) return st;
  bool dropped = rt_packed_trim(device->platform);
  if (!trim(device) && !dropped) return st;
  weft_status_free(st);
  return device->ops->allocate(device, space, size, out_data);
}

enum { NEW_BYTE = 0xCB, FREED_BYTE = 0xDB };

/* For tests: fills a block with a pattern, so that a program which reads bytes that it has not written does not find
 * earlier contents by chance. */
static void fill_block(weft_device *device, weft_stream *stream, void *data, int byte, int64_t size)
{
  /* the pattern only helps to find faults, so an error is ignored */
  weft_status_ignore(weft_device_fill(device, stream, data, byte, size));
}

/* Adds to `st` (taken) what the device's memory is used for. */
static weft_status *name_holders(weft_device *device, weft_status *st)
{
  weft_mutex_lock(&device->memory_mu);
  weft_memory_stats memory = device->memory;
  weft_mutex_unlock(&device->memory_mu);
  return weft_status_note(st, __FILE__, __LINE__, "arrays and programs on device %lld hold %s, its cache %s",
                          (long long)device->id, WEFT_BYTES(memory.bytes_in_use), WEFT_BYTES(memory.cached_bytes));
}

weft_status *rt_device_take(weft_device *device, int space, int64_t bytes, rt_taker taker, void **out_data)
{
  int class = size_class(bytes);
  int64_t size = class_bytes(class);
  weft_status *st = NULL;

  if (bytes > device->platform->memory_limit)
    return name_holders(device, WEFT_ERR(RESOURCE_EXHAUSTED, "%s asked for, the machine has %s", WEFT_BYTES(bytes),
                                         WEFT_BYTES(device->platform->memory_limit)));
  weft_mutex_lock(&device->memory_mu);
  *out_data = pop_block(device, &device->free_blocks[space][class], taker);
  if (*out_data) device->memory.cached_bytes -= size;
  device->memory.bytes_in_use += size;
  device->memory.peak_bytes = WEFT_MAX(device->memory.peak_bytes, device->memory.bytes_in_use);
  device->memory.largest_bytes = WEFT_MAX(device->memory.largest_bytes, size);
  device->memory.allocation_count++;
  weft_mutex_unlock(&device->memory_mu);
  if (WEFT_UNLIKELY(!*out_data)) st = allocate(device, space, size, out_data);
  if (WEFT_UNLIKELY(st != NULL)) {
    weft_mutex_lock(&device->memory_mu);
    device->memory.bytes_in_use -= size;
    weft_mutex_unlock(&device->memory_mu);
    st = name_holders(device, st);
  } else if (WEFT_UNLIKELY(device->queues) && device->ops->fills_memory) {
    fill_block(device, taker == RT_COMPUTE ? device->streams[WEFT_STREAM_COMPUTE] : NULL, *out_data, NEW_BYTE, size);
  }
  return st;
}

/* A point of the compute stream. Once the stream has reached the point, no queued work uses a block that is given back
 * now. */
static uint64_t last_use(weft_device *device, void *data, int64_t size)
{
  weft_stream *stream = device->streams[WEFT_STREAM_COMPUTE];

  if (!device->ops->fills_memory) return atomic_load_explicit(&device->recorded, memory_order_acquire);
  fill_block(device, stream, data, FREED_BYTE, size);
  return rt_device_record(device, stream);
}

void rt_device_give(weft_device *device, int space, void *data, int64_t bytes)
{
  int class = size_class(bytes);
  int64_t size = class_bytes(class);
  uint64_t number = device->queues ? last_use(device, data, size) : 0;
  int node = WEFT_UNLIKELY(device->platform->numa.count > 1) ? rt_pool_node(device->platform->pool) : 0;
  bool keep, idle = !device->queues || number <= device->ops->reached(device->streams[WEFT_STREAM_COMPUTE]);

  weft_mutex_lock(&device->memory_mu);
  device->memory.bytes_in_use -= size;
  /* a block in use is kept beyond the limit too, because the platform's deallocate does not wait */
  keep = (!idle || device->memory.cached_bytes + size <= device->cache_limit) &&
         push_block(&device->free_blocks[space][class], (rt_free_block){data, number, node});
  if (keep) device->memory.cached_bytes += size;
  weft_mutex_unlock(&device->memory_mu);
  if (keep) return;
  /* the block is in use, and there is no memory for an entry of the list: waits for the stream, whose work is local and
   * ends */
  if (!idle) weft_status_ignore(rt_stream_sync(device, device->streams[WEFT_STREAM_COMPUTE], WEFT_NO_DEADLINE));
  device->ops->deallocate(device, space, data, size);
}

int rt_device_near(const weft_device *device) { return device ? WEFT_MAX(device->home, 0) : 0; }
bool weft_device_is_host_visible(const weft_device *device) { return device->is_host_visible; }
const weft_device_ops *weft_device_operations(const weft_device *device) { return device->ops; }

void *weft_device_host_address(weft_device *device, void *data)
{
  if (device->is_host_visible) return data;
  return device->ops->host_address ? device->ops->host_address(device, data) : NULL;
}

void rt_device_copy_shared(weft_device *device, void *to, const void *from, int64_t bytes)
{
  enum { PIECE = 1 << 20, LEAST_SHARED = 4 << 20 };

  if (bytes <= 0) return; /* then an address may be NULL */
  if (bytes < LEAST_SHARED) memcpy(to, from, (size_t)bytes);
  else rt_parallel_copy(device->platform->pool, to, from, bytes, PIECE);
}

weft_status *weft_device_write(weft_device *device, weft_stream *stream, void *to, const void *host, int64_t bytes)
{
  if (bytes <= 0) return NULL;
  if (!device->is_host_visible || stream) return device->ops->write(device, stream, to, host, bytes);
  memcpy(to, host, (size_t)bytes);
  return NULL;
}

weft_status *weft_device_read(weft_device *device, weft_stream *stream, void *host, const void *from, int64_t bytes)
{
  if (bytes <= 0) return NULL;
  if (!device->is_host_visible || stream) return device->ops->read(device, stream, host, from, bytes);
  memcpy(host, from, (size_t)bytes);
  return NULL;
}

weft_status *weft_device_read_pieces(weft_device *device, const weft_device_piece *pieces, int count)
{
  if (!device->is_host_visible && device->ops->read_pieces) return device->ops->read_pieces(device, pieces, count);
  for (int i = 0; i < count; i++)
    WEFT_TRY(weft_device_read(device, NULL, pieces[i].host, pieces[i].from, pieces[i].bytes));
  return NULL;
}

weft_status *weft_device_copy(weft_device *to_device, weft_stream *stream, void *to, weft_device *from_device,
                              const void *from, int64_t bytes)
{
  if (bytes <= 0) return NULL;
  if (!to_device->is_host_visible || stream)
    return to_device->ops->copy(to_device, stream, to, from_device, from, bytes);
  memcpy(to, from, (size_t)bytes);
  return NULL;
}

weft_status *weft_device_fill(weft_device *device, weft_stream *stream, void *to, int byte, int64_t bytes)
{
  if (bytes <= 0) return NULL;
  if (!device->is_host_visible || stream) return device->ops->fill(device, stream, to, byte, bytes);
  memset(to, byte, (size_t)bytes);
  return NULL;
}

weft_status *weft_device_copy_rows(weft_device *device, weft_stream *stream, void *to, int64_t to_step,
                                   const void *from, int64_t from_step, int64_t bytes, int64_t rows)
{
  if (bytes <= 0 || rows <= 0) return NULL;
  if (device->ops->copy_rows) return device->ops->copy_rows(device, stream, to, to_step, from, from_step, bytes, rows);
  for (int64_t r = 0; r < rows; r++)
    WEFT_TRY(
      weft_device_copy(device, stream, (char *)to + r * to_step, device, (const char *)from + r * from_step, bytes));
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

weft_status *rt_device_init(weft_device *device, weft_platform *platform, int64_t id, int ordinal,
                            const char *kind) WEFT_UNSHARED
{
  *device = (weft_device){.platform = platform,
                          .id = id,
                          .ordinal = ordinal,
                          .kind = kind,
                          .numa_node = -1,
                          .home = -1,
                          .cache_limit = platform->memory_limit / 8};
  weft_mutex_init(&device->memory_mu);
  weft_mutex_init(&device->mu);
  weft_cond_init(&device->changed);
  weft_cond_init(&device->room);
  device->no_room_at = -1;
  WEFT_TRY(rt_feed_new(&device->infeed));
  return rt_feed_new(&device->outfeed);
}

weft_status *rt_device_open(weft_device *device)
{
  static const int priorities[WEFT_STREAM_PURPOSES] = {[WEFT_STREAM_ACROSS] = 1};

  device->ops = device->platform->ops->device;
  device->is_host_visible = device->ops->spaces[0].is_host_visible;
  device->queues = device->ops->stream_create != NULL;
  for (int i = 0; device->queues && i < WEFT_STREAM_PURPOSES; i++)
    WEFT_TRY_NOTE(device->ops->stream_create(device, priorities[i], &device->streams[i]), "streams of device %lld",
                  (long long)device->id);
  return NULL;
}

void rt_device_fini(weft_device *device) WEFT_UNSHARED
{
  for (int i = 0; i < WEFT_STREAM_PURPOSES; i++)
    if (device->streams[i]) device->ops->stream_destroy(device->streams[i]);
  for (int space = 0; space < RT_SPACES; space++)
    for (int class = 0; class < RT_SIZE_CLASSES; class ++) {
      rt_free_list *list = &device->free_blocks[space][class];
      for (int i = 0; i < list->count; i++)
        device->ops->deallocate(device, space, list->blocks[i].data, class_bytes(class));
      free(list->blocks);
    }
  rt_feed_free(device->infeed);
  rt_feed_free(device->outfeed);
  weft_cond_fini(&device->changed);
  weft_cond_fini(&device->room);
  weft_mutex_fini(&device->mu);
  weft_mutex_fini(&device->memory_mu);
}

uint64_t rt_device_record(weft_device *device, weft_stream *stream)
{
  uint64_t number = device->ops->record(stream), known;

  if (stream != device->streams[WEFT_STREAM_COMPUTE]) return number;
  known = atomic_load_explicit(&device->recorded, memory_order_relaxed);
  /* release: pairs with last_use */
  while (known < number && !atomic_compare_exchange_weak_explicit(&device->recorded, &known, number,
                                                                  memory_order_release, memory_order_relaxed)) {}
  return number;
}

weft_stream *weft_device_stream(const weft_device *device, weft_stream_purpose purpose)
{
  return device->streams[purpose];
}
weft_platform *weft_device_platform(const weft_device *device) { return device->platform; }
int64_t weft_device_id(const weft_device *device) { return device->id; }
int weft_device_ordinal(const weft_device *device) { return device->ordinal; }
int weft_device_hardware_id(const weft_device *device) { return device->hardware_id; }
const char *weft_device_kind(const weft_device *device) { return device->kind; }
int weft_device_attributes(const weft_device *device, weft_device_attribute *out)
{
  const weft_platform *platform = device->platform;

  return platform->ops->attributes ? platform->ops->attributes(platform, device->ordinal, out) : 0;
}
