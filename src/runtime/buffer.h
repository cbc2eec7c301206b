/* runtime/buffer.h -- arrays in a device's memory.
 *
 * A buffer is a handle. Its bytes are a *storage*, a reference-counted object of its own that runs in flight and
 * external views hold too, so a buffer may be deleted or donated at any time. A buffer's definition event tells when
 * the bytes are valid, or the error because of which they never will be. Whatever is computed from a buffer with an
 * error gets that error.
 *
 * On a device with streams a buffer can be *recorded* long before it is defined: its bytes will be there when a
 * stream has reached a point. Programs and copies that are queued behind that point need not wait for the event
 * (runtime/stream.h). */
#ifndef WEFT_RUNTIME_BUFFER_H
#define WEFT_RUNTIME_BUFFER_H

#include "base/event.h"
#include "hlo/shape.h"
#include "runtime/device.h"

typedef struct weft_buffer weft_buffer;
typedef struct weft_storage weft_storage;

/* ---- storage: reference-counted bytes ---- */

/* `bytes` of the device's own memory (space 0), aligned as weft_memory_space.alignment says. Contents are undefined.
 * Errors: RESOURCE_EXHAUSTED, naming the size. */
WEFT_NODISCARD weft_status *weft_storage_new(weft_device *device, int64_t bytes, weft_storage **out_storage);
/* The same in memory space `space` of the device. */
WEFT_NODISCARD weft_status *weft_storage_new_in(weft_device *device, int space, int64_t bytes,
                                                weft_storage **out_storage);
/* A storage over memory that somebody else owns. on_free(ctx) is called when the last reference is released; NULL:
 * nothing is. The runtime never writes to such memory and never donates it in place. */
WEFT_NODISCARD weft_status *weft_storage_view(weft_device *device, void *data, int64_t bytes,
                                              void (*on_free)(void *ctx), void *ctx, weft_storage **out_storage);
/* Declares that code outside of the runtime may write to the bytes from now on: no packed form of them (packed.h) is
 * kept. A view is exposed from the start, unless weft_storage_keep says that its owner does not change the bytes. */
void weft_storage_expose(weft_storage *storage);
void weft_storage_keep(weft_storage *storage);
weft_storage *weft_storage_retain(weft_storage *storage);
void weft_storage_release(weft_storage *storage);
WEFT_DEFINE_AUTO(weft_storage, weft_storage_release)
weft_device *weft_storage_device(const weft_storage *storage);
int64_t weft_storage_bytes(const weft_storage *storage);
/* The bytes' address on the device: for kernels, and for clients that know the device. */
void *weft_storage_data(const weft_storage *storage);
/* The same address for the host to use; NULL: the storage's space is not host-visible. */
char *weft_storage_host(const weft_storage *storage);
/* Copies `bytes` to or from the storage, starting at `offset`; the range must lie within the storage. The copy is
 * done on return. */
WEFT_NODISCARD weft_status *weft_storage_write(weft_storage *storage, int64_t offset, const void *host, int64_t bytes);
WEFT_NODISCARD weft_status *weft_storage_read(const weft_storage *storage, int64_t offset, void *host, int64_t bytes);

/* ---- buffers ---- */

/* The type of a buffer's array as clients see it. The bytes are dense and row-major. */
typedef struct weft_array_type {
  weft_dtype type; /* WEFT_TOKEN for a token: no bytes */
  int rank;
  int64_t dims[HLO_MAX_RANK];
} weft_array_type;
int64_t weft_array_bytes(const weft_array_type *type);

/* A buffer over `storage` (retained; NULL: a token, or bytes that come later), which becomes valid when `defined`
 * (retained) is ready. If `defined` is NULL the buffer is valid now. */
WEFT_NODISCARD weft_status *weft_buffer_new(weft_device *device, const weft_array_type *type, weft_storage *storage,
                                            weft_event *defined, weft_buffer **out_buffer);
/* Allocates and copies dense row-major `data` before it returns. */
WEFT_NODISCARD weft_status *weft_buffer_from_host(weft_device *device, const weft_array_type *type, const void *data,
                                                  weft_buffer **out_buffer);
/* A buffer that is an error from the start.  Takes `error`. */
WEFT_NODISCARD weft_status *weft_buffer_from_error(weft_device *device, const weft_array_type *type, weft_status *error,
                                                   weft_buffer **out_buffer);
/* Copies the buffer to `device`, which may be the buffer's own. Asynchronous: the copy begins when the source is
 * defined, or on devices with streams when it is recorded. Errors: FAILED_PRECONDITION: the source is deleted. */
WEFT_NODISCARD weft_status *weft_buffer_copy_to_device(weft_buffer *buffer, weft_device *device,
                                                       weft_buffer **out_buffer);
/* The same into memory space `space` of `device`. */
WEFT_NODISCARD weft_status *weft_buffer_copy_to(weft_buffer *buffer, weft_device *device, int space,
                                                weft_buffer **out_buffer);

/* ---- transfers with the host ---- */

/* Called once when a transfer has ended.  `error` (borrowed) is NULL if all bytes have been copied.  The caller is a
 * worker, the thread that defines the buffer, or the thread that starts the transfer, before its call returns. */
typedef void weft_transfer_done(void *ctx, const weft_status *error);

/* Makes a buffer in memory space `space` of `device` from the dense row-major elements at `host`, which must stay and
 * not change until done(ctx, error) has been called.  On a device with streams the copy is queued, and the buffer is
 * recorded on return; elsewhere the copy is done on return.  If an error is returned, `done` is not called. */
WEFT_NODISCARD weft_status *weft_buffer_write(weft_device *device, int space, const weft_array_type *type,
                                              const void *host, weft_transfer_done *done, void *ctx,
                                              weft_buffer **out_buffer);
/* Copies bytes [offset, offset + bytes) of the buffer to `host`, which must stay until done(ctx, error) has been
 * called. Asynchronous: the copy begins when the buffer is defined, or on devices with streams when it is recorded.
 * The buffer may be deleted or donated meanwhile.  The range must lie within the buffer.  Errors: FAILED_PRECONDITION
 * if the buffer is deleted, RESOURCE_EXHAUSTED; `done` is not called then. */
WEFT_NODISCARD weft_status *weft_buffer_read(weft_buffer *buffer, int64_t offset, int64_t bytes, void *host,
                                             weft_transfer_done *done, void *ctx);

/* ---- reads by work that is queued outside of the runtime ---- */

/* Begins a read: the buffer keeps its bytes until weft_buffer_end_read, though it may be deleted or donated meanwhile.
 * Errors: FAILED_PRECONDITION if it is deleted. */
WEFT_NODISCARD weft_status *weft_buffer_begin_read(weft_buffer *buffer);
void weft_buffer_end_read(weft_buffer *buffer);
/* Borrowed: when it is ready, work that reads the bytes may be queued behind the point that weft_buffer_source gives,
 * although the buffer may still become an error (weft_buffer_defined). If the event has an error, there will be no
 * bytes. */
weft_event *weft_buffer_readable(const weft_buffer *buffer);
/* The bytes of a buffer that is being read and readable, retained for the caller; NULL: the buffer has none.
 * *out_point: a point of *out_stream after which the bytes are valid; NULL and 0: they are valid already. */
weft_storage *weft_buffer_source(weft_buffer *buffer, weft_stream **out_stream, uint64_t *out_point);

/* ---- promises and references ---- */

/* A pending buffer without bytes. One successful weft_buffer_fulfil or one weft_buffer_fail must follow, not both. */
WEFT_NODISCARD weft_status *weft_buffer_promise(weft_device *device, const weft_array_type *type,
                                                weft_buffer **out_buffer);
/* When `source` is defined, `promise` gets its bytes, or its error. With `donate` the source is deleted now, and its
 * bytes move if nobody else can see them; otherwise both buffers share them. Errors: INVALID_ARGUMENT (another size
 * or device, or `source` is `promise`); FAILED_PRECONDITION (the source is deleted); RESOURCE_EXHAUSTED. After an
 * error `promise` still is a promise. */
WEFT_NODISCARD weft_status *weft_buffer_fulfil(weft_buffer *promise, weft_buffer *source, bool donate);
/* A second buffer over the bytes of `buffer`. It is defined when `buffer` is, and keeps the bytes if `buffer` is
 * deleted or donated later. `type` has as many bytes. Errors as weft_buffer_fulfil. */
WEFT_NODISCARD weft_status *weft_buffer_alias(weft_buffer *buffer, const weft_array_type *type,
                                              weft_buffer **out_alias);
/* Makes the promise an error. Takes `error`. */
void weft_buffer_fail(weft_buffer *promise, weft_status *error);

weft_buffer *weft_buffer_retain(weft_buffer *buffer);
void weft_buffer_release(weft_buffer *buffer);
WEFT_DEFINE_AUTO(weft_buffer, weft_buffer_release)

weft_device *weft_buffer_device(const weft_buffer *buffer);
const weft_array_type *weft_buffer_type(const weft_buffer *buffer);
weft_event *weft_buffer_defined(const weft_buffer *buffer); /* borrowed; keeps its outcome after deletion */
/* Whether the buffer is defined, or will be as soon as work that is queued on a stream has been done. */
bool weft_buffer_is_recorded(const weft_buffer *buffer);

/* Deletes the buffer. Its bytes stay until no work in flight and no external reference uses them. A second call does
 * nothing. */
void weft_buffer_delete(weft_buffer *buffer);
bool weft_buffer_is_deleted(const weft_buffer *buffer); /* deleted or donated */

/* The bytes of a defined buffer, retained for the caller. Errors: the buffer's own; FAILED_PRECONDITION if it is
 * deleted or still pending. */
WEFT_NODISCARD weft_status *weft_buffer_storage(weft_buffer *buffer, weft_storage **out_storage);
/* Waits for the definition, then copies weft_array_bytes() bytes to `data`. */
WEFT_NODISCARD weft_status *weft_buffer_to_host(weft_buffer *buffer, void *data, weft_deadline deadline);

/* External references (views of clients): while there are any, the bytes are not donated in place. *out_data is the
 * bytes' address on the device, NULL for a token. Errors: FAILED_PRECONDITION if the buffer is deleted or has no
 * bytes yet. */
WEFT_NODISCARD weft_status *weft_buffer_pin(weft_buffer *buffer, void **out_data);
WEFT_NODISCARD weft_status *weft_buffer_unpin(weft_buffer *buffer); /* INVALID_ARGUMENT when there is none */

#endif
