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
