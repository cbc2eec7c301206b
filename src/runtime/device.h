/* runtime/device.h -- a device: memory, streams, and a queue that starts launches in the order of their submission. */
#ifndef WEFT_RUNTIME_DEVICE_H
#define WEFT_RUNTIME_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "base/status.h"

typedef struct weft_platform weft_platform;
typedef struct weft_device weft_device;

/* A device lives as long as its platform. */
weft_platform *weft_device_platform(const weft_device *device);
int64_t weft_device_id(const weft_device *device);  /* global, unique over all processes */
int weft_device_ordinal(const weft_device *device); /* among this process's devices */
/* The number that other software on the machine uses for the device; the ordinal if the platform's devices are not
 * pieces of hardware. */
int weft_device_hardware_id(const weft_device *device);
const char *weft_device_kind(const weft_device *device); /* "NVIDIA H200" */

/* The node of the platform's pool whose workers are nearest to the device, for rt_job.node; 0 where none is nearer than
 * others, and for NULL. */
int rt_device_near(const weft_device *device);

/* A fact about a device that its platform tells clients: a text, or a number where `text` is empty. */
typedef struct weft_device_attribute {
  const char *name; /* static */
  char text[32];
  int64_t number;
} weft_device_attribute;
enum { WEFT_MOST_ATTRIBUTES = 4 };
/* Stores the attributes of a device of this process to out[WEFT_MOST_ATTRIBUTES]; returns their number. */
int weft_device_attributes(const weft_device *device, weft_device_attribute *out);

typedef struct weft_memory_stats {
  int64_t bytes_in_use, peak_bytes, cached_bytes, bytes_limit, allocation_count, largest_bytes;
} weft_memory_stats;
/* A snapshot of the device's counters, all in bytes but allocation_count. */
weft_memory_stats weft_device_memory(const weft_device *device);
/* Sets the peak to the bytes now in use, and the allocation count and the largest allocation to 0. */
void weft_device_clear_memory_stats(weft_device *device);

/* ---- a device's bytes ---- */

/* A kind of memory that a device can use. Space 0 is the device's own memory, space 1 the host memory that the
 * device reads fastest, space 2 any host memory. */
typedef struct weft_memory_space {
  const char *kind;     /* as clients name it: "device", "pinned_host", "unpinned_host" */
  int64_t alignment;    /* of what `allocate` returns, bytes; a power of two, at least 64 */
  bool is_host_visible; /* the host can use addresses of this space */
} weft_memory_space;
enum { WEFT_MEMORY_SPACES = 3 };
/* A space that clients do not see: device memory that communicators can register (BUF_COLLECTIVE). Only platforms whose
 * programs have such memory need to allocate it. */
enum { WEFT_COLLECTIVE_SPACE = WEFT_MEMORY_SPACES };

/* A stream is a queue of work on one device: what is queued on it is done in order. A *point* of a stream stands for
 * all work that was queued before it. Points are numbered from 1 on, in the order in which they are recorded. */
typedef struct weft_stream weft_stream; /* the platform's own */

/* A host function that is called when a stream has done what was queued before it. The struct is the caller's memory
 * and must stay until the call. */
typedef struct weft_stream_call {
  struct weft_stream_call *next; /* the platform's */
  uint64_t number;               /* the platform's */
  /* `fn` is called on a thread of the platform: it must be brief, must not wait and must not call device operations.
   * `error` (borrowed) is NULL if the work has been done. Otherwise the stream is broken, and the work has not been
   * done. */
  void (*fn)(void *ctx, const weft_status *error);
  void *ctx;
} weft_stream_call;

/* Bytes of a device that are read to the host's memory. */
typedef struct weft_device_piece {
  void *host;
  const void *from;
  int64_t bytes; /* 0 is fine */
} weft_device_piece;

/* The memory and stream operations of a kind of device: a part of its platform's table (runtime/platform.h). Code
 * above the platform touches a device's bytes only through these operations. All are thread-safe. `bytes` > 0.
 *
 * Operations that take a stream: given one, they are queued on it, and the host memory that they name must stay
 * until they are done. Given NULL, they are done on return, and the caller has made sure that no queued work uses
 * the bytes. */
typedef struct weft_device_ops {
  size_t size;          /* sizeof this struct; entries past it are absent */
  const weft_memory_space *spaces; /* WEFT_MEMORY_SPACES of them */
  weft_status *(*allocate)(weft_device *device, int space, int64_t bytes, void **out_data);
  void (*deallocate)(weft_device *device, int space, void *data, int64_t bytes); /* no queued work uses it */

  /* The next four may be NULL where space 0 is host-visible and there are no streams. */
  weft_status *(*write)(weft_device *device, weft_stream *stream, void *to, const void *host, int64_t bytes);
  weft_status *(*read)(weft_device *device, weft_stream *stream, void *host, const void *from, int64_t bytes);
  /* Copies between two devices of one platform, which may be the same device; the stream is one of `to_device`. */
  weft_status *(*copy)(weft_device *to_device, weft_stream *stream, void *to, weft_device *from_device, const void *from,
                       int64_t bytes);
  weft_status *(*fill)(weft_device *device, weft_stream *stream, void *to, int byte, int64_t bytes);
  /* Copies `rows` pieces of `bytes` bytes within a device; pieces begin `from_step` and `to_step` bytes apart.  Absent:
   * each piece is copied by itself. */
  weft_status *(*copy_rows)(weft_device *device, weft_stream *stream, void *to, int64_t to_step, const void *from,
                            int64_t from_step, int64_t bytes, int64_t rows);
  /* Reads all pieces at once, done on return, with one wait for the device. Absent: each is read by itself. */
  weft_status *(*read_pieces)(weft_device *device, const weft_device_piece *pieces, int count);
  /* The address at which the host's own communicators may read and write `data` while no queued work uses it; NULL:
   * there is none. Absent: there never is one, and collectives work on copies in host memory. */
  void *(*host_address)(weft_device *device, void *data);

  /* Streams.  All NULL where the work of this kind of device is done when the call that asks for it returns. */
  /* a stream with a higher priority goes first */
  weft_status *(*stream_create)(weft_device *device, int priority, weft_stream **out_stream);
  /* Waits for the work of the stream, and makes the calls that it has not made. */
  void (*stream_destroy)(weft_stream *stream);
  /* The number of a new point; 0: the stream is broken, and `notify` will say why. */
  uint64_t (*record)(weft_stream *stream);
  /* Work queued on `stream` from now on waits for point `number` of `other`, which has been recorded. */
  weft_status *(*wait)(weft_stream *stream, weft_stream *other, uint64_t number);
  uint64_t (*reached)(weft_stream *stream); /* the highest number whose work is done */
  void (*notify)(weft_stream *stream, weft_stream_call *call);
  bool fills_memory; /* for tests: the runtime fills memory with a pattern before its use and after */
} weft_device_ops;

const weft_device_ops *weft_device_operations(const weft_device *device);

/* True if the host can use the device's own memory directly, and the device can use the host's. */
bool weft_device_is_host_visible(const weft_device *device);

/* Copy bytes to, from and between devices, or fill them, in any space; 0 bytes are fine. `stream` as in
 * weft_device_ops. */
WEFT_NODISCARD weft_status *weft_device_write(weft_device *device, weft_stream *stream, void *to, const void *host,
                                              int64_t bytes);
WEFT_NODISCARD weft_status *weft_device_read(weft_device *device, weft_stream *stream, void *host, const void *from,
                                             int64_t bytes);
/* Reads all pieces; they are read on return. No queued work may use them. */
WEFT_NODISCARD weft_status *weft_device_read_pieces(weft_device *device, const weft_device_piece *pieces, int count);
WEFT_NODISCARD weft_status *weft_device_copy(weft_device *to_device, weft_stream *stream, void *to,
                                             weft_device *from_device, const void *from, int64_t bytes);
WEFT_NODISCARD weft_status *weft_device_fill(weft_device *device, weft_stream *stream, void *to, int byte,
                                             int64_t bytes);

/* See weft_device_ops.copy_rows. */
WEFT_NODISCARD weft_status *weft_device_copy_rows(weft_device *device, weft_stream *stream, void *to, int64_t to_step,
                                                  const void *from, int64_t from_step, int64_t bytes, int64_t rows);

/* The address at which the host's own communicators use `data`: see weft_device_ops.host_address. */
void *weft_device_host_address(weft_device *device, void *data);

/* The streams of a device, by purpose.  NULL where the device has none. */
typedef enum weft_stream_purpose {
  WEFT_STREAM_COMPUTE, /* all programs: what they queue is done in the order of their launches */
  WEFT_STREAM_IN,      /* host to device */
  WEFT_STREAM_OUT,     /* device to host */
  WEFT_STREAM_ACROSS,  /* between devices, with the highest priority */
  WEFT_STREAM_PURPOSES
} weft_stream_purpose;
weft_stream *weft_device_stream(const weft_device *device, weft_stream_purpose purpose);

/* ---- a device's queue ---- */

/* Cancels the run of launch `launch_id` if it has not started yet: it will never compute, and its outputs get
 * `error` (taken) now. False if there is no such run: it has started, or ended, or never was. */
bool weft_device_poison(weft_device *device, int64_t launch_id, weft_status *error);

/* Waits until all work submitted to `device` so far has ended.  DEADLINE_EXCEEDED at `deadline`. */
WEFT_NODISCARD weft_status *weft_device_sync(weft_device *device, weft_deadline deadline);

/* Called before and after a host callback that may submit work to this device and wait for it. Between the two
 * calls, the queue starts the runs that follow the callback's own run. */
void weft_device_enter_callback(weft_device *device);
void weft_device_leave_callback(weft_device *device);

#endif
