/* gpu/collective_memory.h -- device memory that NCCL's communicators register.
 *
 * A *block* is memory of the driver's virtual memory calls, since only such memory can be mapped by the other ranks'
 * devices and processes.  The runtime caches blocks, and takes from them the arenas of collectives (BUF_COLLECTIVE)
 * and, where the platform's settings ask for that, large *plain* memory: buffers of clients and other arenas.  A
 * communicator that registers a block *holds* it: a block that the runtime gives back is freed when nobody holds it any
 * more, so a registration always ends before its memory does. */
#ifndef WEFT_GPU_COLLECTIVE_MEMORY_H
#define WEFT_GPU_COLLECTIVE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/thread.h"
#include "gpu/abi/cuda.h"

struct gpu_device;
struct gpu_platform;
typedef struct gpu_block gpu_block;

/* The blocks of a device.  The lock comes before those of communicators' ranks. */
typedef struct gpu_blocks {
  weft_mutex mu;
  gpu_block **all WEFT_GUARDED_BY(mu);  /* [count] by their addresses */
  int count WEFT_GUARDED_BY(mu), capacity WEFT_GUARDED_BY(mu);
  int given_back WEFT_GUARDED_BY(mu);   /* blocks that are only held */
} gpu_blocks;

/* The holder's own memory. */
typedef struct gpu_block_hold {
  struct gpu_block_hold *next;
  gpu_block *block;        /* NULL: holds nothing */
  /* The runtime has given the block back: the holder should release it soon.  Called with the lock of the blocks held:
   * it must neither block nor call functions of this file. */
  void (*given_back)(struct gpu_block_hold *hold);
} gpu_block_hold;

typedef struct gpu_extent {
  uint64_t base;
  int64_t bytes;
  bool plain;
} gpu_extent;

/* Reserves addresses, the first a multiple of `align` (0: of what the driver wants), and maps there what the handle
 * stands for, for the devices in `rights`.  Needs no context. */
WEFT_NODISCARD weft_status *gpu_map(wcu_mem_handle handle, int64_t bytes, size_t align,
                                    const wcu_mem_access_desc *rights, int count, wcu_ptr *out_at);
void gpu_unmap(wcu_ptr at, int64_t bytes);

void gpu_blocks_init(gpu_blocks *blocks);
void gpu_blocks_fini(gpu_blocks *blocks); /* no block is left */

/* The caller has entered the device in the calls that follow. */

/* A new block, which all devices of the process that reach the device may use.  Errors: those of the driver. */
WEFT_NODISCARD weft_status *gpu_block_allocate(struct gpu_platform *platform, struct gpu_device *gpu, int64_t bytes,
                                               bool plain, void **out_data);
void gpu_block_give_back(struct gpu_device *gpu, void *data); /* no queued work uses it; does not wait for holders */
void gpu_block_release(struct gpu_device *gpu, gpu_block_hold *hold); /* one that holds nothing is fine */

/* Holds the block that begins at `base`.  False: there is none. */
bool gpu_block_take_hold(struct gpu_device *gpu, uint64_t base, gpu_block_hold *hold);

/* Finds the block in which an address lies.  False: it is no memory of a block. Needs no context. */
bool gpu_block_find(struct gpu_device *gpu, const void *at, gpu_extent *out);

#endif
