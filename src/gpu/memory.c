/* gpu/memory.c -- the memory of devices, and copies.
 *
 * The runtime caches device memory and reuses it in the order of the compute stream (runtime/device.h), so the driver
 * is asked only for memory that the cache does not have.  A copy between the host and a stream goes through *staging*:
 * pinned host memory that the device reads and writes by itself, so that the calling thread does not wait for the
 * stream.  Both kinds of host space are pinned. */
#include <config.h>

#include <inttypes.h>
#include <string.h>

#include "gpu/gpu_internal.h"

enum { DEVICE_ALIGN = 256 /* alignment of the driver's allocations */, LEAST_STAGING_LOG = 12 };
/* Least size of plain memory that lies in a block: blocks are multiples of 2 MiB.  Collectives of less are seldom
 * quicker with registered memory. */
enum { LEAST_PLAIN_BLOCK = 4 << 20 };
static const int64_t MOST_SPARE_STAGING = 256 << 20; /* bytes of spare blocks that a device keeps */

const weft_memory_space gpu_memory_spaces[WEFT_MEMORY_SPACES] = {
  {"device", DEVICE_ALIGN, false}, {"pinned_host", BUF_ALIGN, true}, {"unpinned_host", BUF_ALIGN, true},
};

/* ---- allocations ----------------------------------------------------------------------------------------------- */

static weft_status *describe_shortage(weft_device *device, int space, int64_t bytes, weft_status *st)
{
  weft_memory_stats held = weft_device_memory(device); /* the runtime has counted the new block already */

  return weft_status_note(st, __FILE__, __LINE__,
                          "cannot allocate %s (%" PRId64 " bytes) of %s memory on device %" PRId64
                          ": %s are in use, %s are cached, the device has %s",
                          WEFT_BYTES(bytes), bytes,
                          space == WEFT_COLLECTIVE_SPACE ? "collective" : gpu_memory_spaces[space].kind, device->id,
                          WEFT_BYTES(WEFT_MAX(held.bytes_in_use - bytes, 0)), WEFT_BYTES(held.cached_bytes),
                          WEFT_BYTES(gpu_of(device)->bytes));
}

/* Is memory of this space and size a block? */
static bool is_block(weft_device *device, int space, int64_t bytes)
{
  if (space != 0) return space == WEFT_COLLECTIVE_SPACE;
  return gpu_platform_of(device)->settings.collective_memory && bytes >= LEAST_PLAIN_BLOCK;
}

weft_status *gpu_allocate(weft_device *device, int space, int64_t bytes, void **out_data)
{
  weft_status *st;
  wcu_ptr at = 0;

  *out_data = NULL;
  WEFT_TRY(gpu_enter(gpu_of(device)));
  if (is_block(device, space, bytes)) {
    st = gpu_block_allocate(gpu_platform_of(device), gpu_of(device), bytes, space == 0, out_data);
  } else if (space == 0) {
    st = GPU_CALL(cuMemAlloc, &at, (size_t)bytes);
    *out_data = (void *)(uintptr_t)at;
  } else {
    st = GPU_CALL(cuMemHostAlloc, out_data, (size_t)bytes, WCU_MEMHOSTALLOC_PORTABLE);
  }
  gpu_leave();
  return st ? describe_shortage(device, space, bytes, st) : NULL;
}

void gpu_deallocate(weft_device *device, int space, void *data, int64_t bytes)
{
  weft_status *st = gpu_enter(gpu_of(device));

  if (!st) {
    if (is_block(device, space, bytes)) gpu_block_give_back(gpu_of(device), data);
    else if (space == 0) gpu_cu.cuMemFree((wcu_ptr)(uintptr_t)data);
    else gpu_cu.cuMemFreeHost(data);
    gpu_leave();
  }
  weft_status_ignore(st);
}

/* ---- staging --------------------------------------------------------------------------------------------------- */

/* The beginning of a block of pinned host memory; the bytes follow. */
struct gpu_staging {
  weft_stream_call call;  /* releases the block once the stream has used it */
  gpu_staging *next;      /* among the spare blocks */
  gpu_device *gpu;
  void *host;             /* of a read: where the bytes go; else NULL */
  int64_t bytes;          /* bytes that are copied */
  int class;              /* the block has 2^(LEAST_STAGING_LOG + class) bytes */
} __attribute__((aligned(64)));

static void *staged_bytes(gpu_staging *block) { return block + 1; }
static int64_t class_bytes(int class) { return INT64_C(1) << (LEAST_STAGING_LOG + class); }

/* A block with room for `bytes`; NULL: there is no pinned memory. The caller has entered the device. */
static gpu_staging *take_staging(gpu_device *gpu, int64_t bytes)
{
  int class = 0;
  void *memory = NULL;

  while (class < GPU_STAGING_CLASSES - 1 && class_bytes(class) < bytes + (int64_t)sizeof(gpu_staging)) class ++;
  weft_mutex_lock(&gpu->mu);
  gpu_staging *block = gpu->staging[class];
  if (block) {
    gpu->staging[class] = block->next;
    gpu->staging_bytes -= class_bytes(class);
  }
  weft_mutex_unlock(&gpu->mu);
  if (!block && gpu_cu.cuMemHostAlloc(&memory, (size_t)class_bytes(class), WCU_MEMHOSTALLOC_PORTABLE) == WCU_SUCCESS)
    block = memory;
  if (block) *block = (gpu_staging){.gpu = gpu, .class = class, .bytes = bytes};
  return block;
}

/* The calling thread may have no context. */
static void give_staging(gpu_staging *block)
{
  gpu_device *gpu = block->gpu;

  weft_mutex_lock(&gpu->mu);
  bool keep = gpu->staging_bytes + class_bytes(block->class) <= MOST_SPARE_STAGING;
  if (keep) {
    block->next = gpu->staging[block->class];
    gpu->staging[block->class] = block;
    gpu->staging_bytes += class_bytes(block->class);
  }
  weft_mutex_unlock(&gpu->mu);
  if (keep) return;
  weft_status *st = gpu_enter(gpu);
  if (!st) {
    gpu_cu.cuMemFreeHost(block);
    gpu_leave();
  }
  weft_status_ignore(st);
}

void gpu_staging_free(gpu_device *gpu) WEFT_UNSHARED
{
  for (int class = 0; class < GPU_STAGING_CLASSES; class ++)
    for (gpu_staging *block = gpu->staging[class], *next; block; block = next) {
      next = block->next;
      gpu_cu.cuMemFreeHost(block);
    }
}

static void staging_used(void *ctx, const weft_status *error)
{
  gpu_staging *block = ctx;

  if (block->host && !error) memcpy(block->host, staged_bytes(block), (size_t)block->bytes);
  give_staging(block);
}

/* Gives the block back when the stream has done the work that is queued. */
static void release_behind(weft_stream *stream, gpu_staging *block)
{
  block->call = (weft_stream_call){.fn = staging_used, .ctx = block};
  gpu_stream_notify(stream, &block->call);
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */

#define AT(p) ((wcu_ptr)(uintptr_t)(p))

/* Copies on `stream`, or at once if it is NULL. The driver recognises addresses of the host. */
static weft_status *copy_on(gpu_device *gpu, weft_stream *stream, void *to, const void *from, int64_t bytes)
{
  if (stream) {
    WEFT_TRY(GPU_CALL(cuMemcpyAsync, AT(to), AT(from), (size_t)bytes, gpu_stream_handle(stream)));
    gpu_stream_used(stream);
    return NULL;
  }
  WEFT_TRY(GPU_CALL(cuMemcpyAsync, AT(to), AT(from), (size_t)bytes, gpu->own));
  return gpu_await(gpu, gpu->own);
}

static weft_status *staged_write(gpu_device *gpu, weft_stream *stream, void *to, const void *host, int64_t bytes)
{
  gpu_staging *block = stream ? take_staging(gpu, bytes) : NULL;

  if (!block) return copy_on(gpu, stream, to, host, bytes); /* the driver then copies from memory that is not pinned */
  memcpy(staged_bytes(block), host, (size_t)bytes);
  weft_status *st = copy_on(gpu, stream, to, staged_bytes(block), bytes);
  release_behind(stream, block);
  return st;
}

static weft_status *staged_read(gpu_device *gpu, weft_stream *stream, void *host, const void *from, int64_t bytes)
{
  gpu_staging *block = stream ? take_staging(gpu, bytes) : NULL;

  if (!block) return copy_on(gpu, stream, host, from, bytes);
  weft_status *st = copy_on(gpu, stream, staged_bytes(block), from, bytes);
  if (!st) block->host = host;
  release_behind(stream, block);
  return st;
}

weft_status *gpu_write(weft_device *device, weft_stream *stream, void *to, const void *host, int64_t bytes)
{
  WEFT_TRY(gpu_enter(gpu_of(device)));
  weft_status *st = staged_write(gpu_of(device), stream, to, host, bytes);
  gpu_leave();
  return st;
}

weft_status *gpu_read(weft_device *device, weft_stream *stream, void *host, const void *from, int64_t bytes)
{
  WEFT_TRY(gpu_enter(gpu_of(device)));
  weft_status *st = staged_read(gpu_of(device), stream, host, from, bytes);
  gpu_leave();
  return st;
}

/* Each piece by itself, where there is no pinned memory. */
static weft_status *read_one_by_one(gpu_device *gpu, const weft_device_piece *pieces, int count)
{
  for (int i = 0; i < count; i++)
    if (pieces[i].bytes > 0) WEFT_TRY(copy_on(gpu, NULL, pieces[i].host, pieces[i].from, pieces[i].bytes));
  return NULL;
}

/* Copies the pieces one behind the other into the block, and waits once. */
static weft_status *read_through(gpu_device *gpu, gpu_staging *block, const weft_device_piece *pieces, int count)
{
  char *at = staged_bytes(block);
  weft_status *st = NULL;

  for (int i = 0; i < count && !st; at += pieces[i++].bytes)
    if (pieces[i].bytes > 0)
      st = GPU_CALL(cuMemcpyAsync, AT(at), AT(pieces[i].from), (size_t)pieces[i].bytes, gpu->own);
  weft_status *late = gpu_await(gpu, gpu->own); /* also after an error: the block must not be written to later */
  if (st) weft_status_free(late);
  if (st || late) return st ? st : late;
  at = staged_bytes(block);
  for (int i = 0; i < count; at += pieces[i++].bytes)
    if (pieces[i].bytes > 0) memcpy(pieces[i].host, at, (size_t)pieces[i].bytes);
  return NULL;
}

weft_status *gpu_read_pieces(weft_device *device, const weft_device_piece *pieces, int count)
{
  gpu_device *gpu = gpu_of(device);
  int64_t bytes = 0;

  for (int i = 0; i < count; i++) bytes += pieces[i].bytes;
  if (bytes == 0) return NULL;
  WEFT_TRY(gpu_enter(gpu));
  gpu_staging *block = take_staging(gpu, bytes);
  weft_status *st = block ? read_through(gpu, block, pieces, count) : read_one_by_one(gpu, pieces, count);
  /* the block of a device that hangs stays with the device */
  if (block && !atomic_load_explicit(&gpu->hung, memory_order_acquire)) give_staging(block);
  gpu_leave();
  return st;
}

static weft_status *copy_across(gpu_device *gpu, weft_stream *stream, void *to, const gpu_device *from_gpu,
                                const void *from, int64_t bytes)
{
  wcu_stream on = stream ? gpu_stream_handle(stream) : gpu->own;

  WEFT_TRY(GPU_CALL(cuMemcpyPeerAsync, AT(to), gpu->context, AT(from), from_gpu->context, (size_t)bytes, on));
  if (!stream) return gpu_await(gpu, gpu->own);
  gpu_stream_used(stream);
  return NULL;
}

weft_status *gpu_copy(weft_device *to_device, weft_stream *stream, void *to, weft_device *from_device, const void *from,
                      int64_t bytes)
{
  gpu_device *gpu = gpu_of(to_device), *other = gpu_of(from_device);

  WEFT_TRY(gpu_enter(gpu));
  weft_status *st = gpu == other ? copy_on(gpu, stream, to, from, bytes)
                                 : copy_across(gpu, stream, to, other, from, bytes);
  gpu_leave();
  return st;
}

static weft_status *copy_rows_on(gpu_device *gpu, weft_stream *stream, const wcu_memcpy2d *copy)
{
  if (!stream) {
    WEFT_TRY(GPU_CALL(cuMemcpy2DAsync, copy, gpu->own));
    return GPU_CALL(cuStreamSynchronize, gpu->own);
  }
  WEFT_TRY(GPU_CALL(cuMemcpy2DAsync, copy, gpu_stream_handle(stream)));
  gpu_stream_used(stream);
  return NULL;
}

weft_status *gpu_copy_rows(weft_device *device, weft_stream *stream, void *to, int64_t to_step, const void *from,
                           int64_t from_step, int64_t bytes, int64_t rows)
{
  wcu_memcpy2d copy = {.srcMemoryType = WCU_MEMORYTYPE_DEVICE, .srcDevice = AT(from), .srcPitch = (size_t)from_step,
                       .dstMemoryType = WCU_MEMORYTYPE_DEVICE, .dstDevice = AT(to), .dstPitch = (size_t)to_step,
                       .WidthInBytes = (size_t)bytes, .Height = (size_t)rows};

  WEFT_TRY(gpu_enter(gpu_of(device)));
  weft_status *st = copy_rows_on(gpu_of(device), stream, &copy);
  gpu_leave();
  return st;
}

static weft_status *fill_on(gpu_device *gpu, weft_stream *stream, void *to, int byte, int64_t bytes)
{
  wcu_stream on = stream ? gpu_stream_handle(stream) : gpu->own;

  WEFT_TRY(GPU_CALL(cuMemsetD8Async, AT(to), (unsigned char)byte, (size_t)bytes, on));
  if (!stream) return gpu_await(gpu, gpu->own);
  gpu_stream_used(stream);
  return NULL;
}

weft_status *gpu_fill(weft_device *device, weft_stream *stream, void *to, int byte, int64_t bytes)
{
  WEFT_TRY(gpu_enter(gpu_of(device)));
  weft_status *st = fill_on(gpu_of(device), stream, to, byte, bytes);
  gpu_leave();
  return st;
}
