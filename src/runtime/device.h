/* runtime/device.h -- a device: memory, and a queue that starts work in the order of its submission. */
#ifndef WEFT_RUNTIME_DEVICE_H
#define WEFT_RUNTIME_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

typedef struct weft_platform weft_platform;
typedef struct weft_device weft_device;

/* Lives as long as its platform. */
weft_platform *weft_device_platform(const weft_device *device);
int64_t weft_device_id(const weft_device *device);     /* global, unique over all processes */
int weft_device_ordinal(const weft_device *device);    /* among this process's devices */
int weft_device_process(const weft_device *device);
const char *weft_device_kind(const weft_device *device);

typedef struct weft_memory_stats {
  int64_t bytes_in_use, peak_bytes, cached_bytes, bytes_limit, allocation_count, largest_bytes;
} weft_memory_stats;
weft_memory_stats weft_device_memory(const weft_device *device);
/* Peaks and counts start anew. */
void weft_device_clear_memory_stats(weft_device *device);

/* ---- a device's bytes ---- */

/* What a kind of device does with its memory: a part of its platform's table (runtime/platform.h).  Nobody above the platform
 * touches a device's bytes but through these.  All are thread-safe, and what they do is done when they return.  `bytes` > 0. */
typedef struct weft_device_ops {
  size_t size;          /* sizeof this struct; entries past it are absent */
  bool is_host_visible; /* an address on the device is one of this process: then `write` to `host_address` may be NULL */
  /* `bytes` aligned to 64, and back with the same size. */
  weft_status *(*allocate)(weft_device *device, int64_t bytes, void **out_data);
  void (*deallocate)(weft_device *device, void *data, int64_t bytes);
  weft_status *(*write)(weft_device *device, void *to, const void *host, int64_t bytes);
  weft_status *(*read)(weft_device *device, void *host, const void *from, int64_t bytes);
  /* Between devices of one platform, which may be the same one. */
  weft_status *(*copy)(weft_device *to_device, void *to, weft_device *from_device, const void *from, int64_t bytes);
  /* The address under which the host's own communicators may read and write `data` while a run uses it; NULL: there is none. */
  void *(*host_address)(weft_device *device, void *data);
} weft_device_ops;

/* Whether host memory can be device memory as it is, and the other way round. */
bool weft_device_is_host_visible(const weft_device *device);

/* Bytes to, from and between devices; 0 bytes are fine. */
WEFT_NODISCARD weft_status *weft_device_write(weft_device *device, void *to, const void *host, int64_t bytes);
WEFT_NODISCARD weft_status *weft_device_read(weft_device *device, void *host, const void *from, int64_t bytes);
WEFT_NODISCARD weft_status *weft_device_copy(weft_device *to_device, void *to, weft_device *from_device, const void *from,
                                             int64_t bytes);

/* Where the host's own communicators find `data`, as weft_device_ops.host_address says. */
void *weft_device_host_address(weft_device *device, void *data);

/* ---- a device's queue ---- */

/* A run of launch `launch_id` that has not started yet will never compute: its outputs get `error` (taken) now.  False if
 * there is no such run: it has started, or ended, or never was. */
bool weft_device_poison(weft_device *device, int64_t launch_id, weft_status *error);

/* Waits until all work submitted to `device` so far has ended.  DEADLINE_EXCEEDED at `deadline`. */
WEFT_NODISCARD weft_status *weft_device_sync(weft_device *device, weft_deadline deadline);

/* Around a host callback that may submit work to this device and wait for it: between the two, the queue starts what
 * follows the run that the callback is part of. */
void weft_device_enter_callback(weft_device *device);
void weft_device_leave_callback(weft_device *device);

#endif
