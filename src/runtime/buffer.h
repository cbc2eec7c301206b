/* runtime/buffer.h -- arrays in a device's memory.
 *
 * A buffer is a handle; its bytes are a *storage*, which runs in flight and external views hold too, so that a buffer may
 * be deleted or donated at any time.  Its definition event tells when the bytes are valid, or why they never will be;
 * the error then travels to whatever is computed from it.
 *
 * On a device with streams a buffer can be *recorded* long before: its bytes come to be valid when a stream has reached a point.
 * Programs and copies that are queued behind that point need not wait for the event (runtime/stream.h). */
#ifndef WEFT_RUNTIME_BUFFER_H
#define WEFT_RUNTIME_BUFFER_H

#include "base/event.h"
#include "hlo/shape.h"
#include "runtime/device.h"

typedef struct weft_buffer weft_buffer;
typedef struct weft_storage weft_storage;

/* ---- storage: reference-counted bytes ---- */

/* `bytes` of the device's own memory, aligned as its space says.  Contents are undefined.  Errors: RESOURCE_EXHAUSTED naming the size. */
WEFT_NODISCARD weft_status *weft_storage_new(weft_device *device, int64_t bytes, weft_storage **out_storage);
/* The same in another memory space of the device. */
WEFT_NODISCARD weft_status *weft_storage_new_in(weft_device *device, int space, int64_t bytes,
                                                weft_storage **out_storage);
/* Somebody else's bytes: on_free(ctx) runs when the last holder is gone.  Never written, never donated in place. */
WEFT_NODISCARD weft_status *weft_storage_view(weft_device *device, void *data, int64_t bytes,
                                              void (*on_free)(void *ctx), void *ctx, weft_storage **out_storage);
weft_storage *weft_storage_retain(weft_storage *storage);
void weft_storage_release(weft_storage *storage);
WEFT_DEFINE_AUTO(weft_storage, weft_storage_release)
weft_device *weft_storage_device(const weft_storage *storage);
int64_t weft_storage_bytes(const weft_storage *storage);
void *weft_storage_data(
  const weft_storage *storage); /* an address on the device: for kernels and for clients that know the device */
char *weft_storage_host(
  const weft_storage *storage); /* the same where the host may use it; NULL: its space is not host-visible */
/* `bytes` from `offset` on; they are within the storage.  Done on return. */
WEFT_NODISCARD weft_status *weft_storage_write(weft_storage *storage, int64_t offset, const void *host, int64_t bytes);
WEFT_NODISCARD weft_status *weft_storage_read(const weft_storage *storage, int64_t offset, void *host, int64_t bytes);

/* ---- buffers ---- */

/* What a buffer holds: dense row-major, with the array shape that clients see. */
typedef struct weft_array_type {
  weft_dtype type; /* WEFT_TOKEN for a token: no bytes */
  int rank;
  int64_t dims[HLO_MAX_RANK];
} weft_array_type;
int64_t weft_array_bytes(const weft_array_type *type);

/* A buffer over `storage` (retained) that becomes valid when `defined` (retained) is ready; `defined` NULL: now. */
WEFT_NODISCARD weft_status *weft_buffer_new(weft_device *device, const weft_array_type *type, weft_storage *storage,
                                            weft_event *defined, weft_buffer **out_buffer);
/* Allocates and copies dense row-major `data` before it returns. */
WEFT_NODISCARD weft_status *weft_buffer_from_host(weft_device *device, const weft_array_type *type, const void *data,
                                                  weft_buffer **out_buffer);
/* A buffer that is an error from the start.  Takes `error`. */
WEFT_NODISCARD weft_status *weft_buffer_from_error(weft_device *device, const weft_array_type *type, weft_status *error,
                                                   weft_buffer **out_buffer);
/* An asynchronous copy on `device`, which may be the same one; it waits for the source's definition. */
WEFT_NODISCARD weft_status *weft_buffer_copy_to_device(weft_buffer *buffer, weft_device *device,
                                                       weft_buffer **out_buffer);
/* The same into a memory space of `device`. */
WEFT_NODISCARD weft_status *weft_buffer_copy_to(weft_buffer *buffer, weft_device *device, int space,
                                                weft_buffer **out_buffer);

/* A buffer without bytes, pending until somebody fulfils it or makes it an error, which must happen once. */
WEFT_NODISCARD weft_status *weft_buffer_promise(weft_device *device, const weft_array_type *type,
                                                weft_buffer **out_buffer);
/* `promise` gets the bytes of `source` once that is defined, or its error.  `donate`: the source is deleted now, and the
 * bytes move.  Otherwise both share them.  On an error (INVALID_ARGUMENT: another size; FAILED_PRECONDITION: the source is
 * deleted; RESOURCE_EXHAUSTED) the promise still is one. */
WEFT_NODISCARD weft_status *weft_buffer_fulfil(weft_buffer *promise, weft_buffer *source, bool donate);
/* A second buffer on the bytes of `buffer`, defined when that is, and there when that has been deleted or donated since.
 * `type` has as many bytes.  Errors as weft_buffer_fulfil. */
WEFT_NODISCARD weft_status *weft_buffer_alias(weft_buffer *buffer, const weft_array_type *type,
                                              weft_buffer **out_alias);
/* Takes `error`. */
void weft_buffer_fail(weft_buffer *promise, weft_status *error);

weft_buffer *weft_buffer_retain(weft_buffer *buffer);
void weft_buffer_release(weft_buffer *buffer);
WEFT_DEFINE_AUTO(weft_buffer, weft_buffer_release)

weft_device *weft_buffer_device(const weft_buffer *buffer);
const weft_array_type *weft_buffer_type(const weft_buffer *buffer);
weft_event *weft_buffer_defined(const weft_buffer *buffer); /* borrowed; keeps its outcome after deletion */

/* Gives up the handle's hold on the bytes; work in flight keeps its own.  A second call does nothing. */
void weft_buffer_delete(weft_buffer *buffer);
bool weft_buffer_is_deleted(const weft_buffer *buffer); /* deleted or donated */

/* The bytes, once defined: retained for the caller.  Errors: the buffer's own; FAILED_PRECONDITION when deleted or still
 * pending. */
WEFT_NODISCARD weft_status *weft_buffer_storage(weft_buffer *buffer, weft_storage **out_storage);
/* Waits for the definition, then copies weft_array_bytes() bytes to `data`. */
WEFT_NODISCARD weft_status *weft_buffer_to_host(weft_buffer *buffer, void *data, weft_deadline deadline);

/* External references (views of clients): while there are any, the bytes are not donated in place. */
WEFT_NODISCARD weft_status *weft_buffer_pin(weft_buffer *buffer, void **out_data);
WEFT_NODISCARD weft_status *weft_buffer_unpin(weft_buffer *buffer); /* INVALID_ARGUMENT when there is none */

#endif
