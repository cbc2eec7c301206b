/* runtime/ffi.h -- custom calls: the registry of handlers, and calling them by XLA's typed FFI (weft/xla_ffi.h).
 *
 * Handlers are registered for a target name and a platform ("Host", as XLA calls the CPU), before or while programs are
 * compiled; a later registration of a name replaces an earlier one for programs compiled after it.  Handlers run on
 * worker threads, several calls at once, with no lock held. */
#ifndef WEFT_RUNTIME_FFI_H
#define WEFT_RUNTIME_FFI_H

#include "base/deadline.h"
#include "base/status.h"
#include "hlo/hlo.h"
#include "runtime/pool.h"
#include "runtime/thunk.h"
#include "weft/xla_ffi.h"

/* The table of functions that handlers call; static. */
const XLA_FFI_Api *rt_ffi_api(void);

/* Thread-safe.  `name` is copied.  Errors: INVALID_ARGUMENT without an execute handler; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *rt_ffi_register(const char *name, size_t length, const XLA_FFI_Handler_Bundle *bundle);
bool rt_ffi_find(const char *name, XLA_FFI_Handler_Bundle *out_bundle);
/* The same for handlers that get arrays in a device's memory, and the stream on which to queue their work ("CUDA"). */
typedef struct rt_ffi_device_handler {
  XLA_FFI_Handler_Bundle bundle;
  XLA_FFI_Handler_Traits traits;
} rt_ffi_device_handler;
WEFT_NODISCARD weft_status *rt_ffi_register_on_device(const char *name, size_t length,
                                                      const rt_ffi_device_handler *handler);
bool rt_ffi_find_on_device(const char *name, rt_ffi_device_handler *out_handler);
bool rt_ffi_is_device_platform(const char *platform, size_t length); /* "CUDA" and "gpu", in any case */
bool rt_ffi_calls_python(const char *name); /* jaxlib's handlers of Python callbacks, known by their names */

/* If `*type_id` is 0, gives it the number of the type called `name`, a new one if need be; otherwise records that
 * number. `deleter` destroys objects of the type; or NULL. Thread-safe. */
WEFT_NODISCARD weft_status *rt_ffi_type_register(const char *name, size_t length, int64_t *type_id,
                                                 void (*deleter)(void *object));

/* Objects that a user attaches to a launch, by type id; handlers find them there. Objects with a deleter are owned by
 * the user data. Filled before the launch, only read during it. */
typedef struct rt_ffi_user_data rt_ffi_user_data;
WEFT_NODISCARD weft_status *rt_ffi_user_data_new(rt_ffi_user_data **out);
void rt_ffi_user_data_free(rt_ffi_user_data *data); /* NULL is fine */
/* Adds an object.  `deleter` NULL: that of the type, if it has one.  ALREADY_EXISTS: the type is there. */
WEFT_NODISCARD weft_status *rt_ffi_user_data_add(rt_ffi_user_data *data, int64_t type_id, void *object,
                                                 void (*deleter)(void *object));

/* ---- one custom-call of a program -------------------------------------------------------------------------------- */

typedef struct rt_ffi_call rt_ffi_call;

/* Reads the attributes of `instr` (its backend_config: an MLIR dictionary), and runs the instantiate stage. The call
 * borrows nothing but `arena`, which must outlive it.
 * Errors: INVALID_ARGUMENT for attributes that cannot be read; the error that the instantiate stage returns. */
WEFT_NODISCARD weft_status *rt_ffi_call_new(weft_arena *arena, const hlo_instr *instr,
                                            const XLA_FFI_Handler_Bundle *bundle, rt_ffi_call **out_call);
void rt_ffi_call_free(rt_ffi_call *call); /* destroys the handler's state; NULL is fine */

/* Starts the call on buffers: leaves of the operands, then leaves of the result. `done(arg, status)` is called
 * exactly once and takes the status: before this function returns, unless the handler goes on asynchronously. */
void rt_ffi_call_start(rt_ffi_call *call, void *const *buffers, rt_pool *pool, const rt_run_info *info,
                       void (*done)(void *arg, weft_status *st), void *arg);

/* The pool of the run that a handler of Weft's own works for, for rt_parallel_for; NULL: it has none. */
rt_pool *rt_ffi_pool(const XLA_FFI_ExecutionContext *ctx);

/* The context that a handler on a device gets besides its arrays. */
typedef struct rt_ffi_queue {
  void *stream; /* for XLA_FFI_Stream_Get */
  /* allocate and free memory of the device; queued work may still use a block that is freed */
  weft_status *(*take)(void *ctx, size_t bytes, void **out_data);
  void (*give)(void *ctx, size_t bytes, void *data);
  void *ctx;
  weft_deadline deadline; /* the longest wait for handlers that end later */
} rt_ffi_queue;

/* As rt_ffi_call_start, for a handler of a device: `buffers` are in its memory. On return the handler has queued its
 * work. A handler that ends later is waited for. Errors: the handler's; DEADLINE_EXCEEDED. */
WEFT_NODISCARD weft_status *rt_ffi_call_enqueue(rt_ffi_call *call, void *const *buffers, rt_pool *pool,
                                                const rt_run_info *info, const rt_ffi_queue *queue);
/* Whether the handler expects elements of less than a byte packed. Packing is possible only in host memory. */
bool rt_ffi_call_packs(const rt_ffi_call *call);

/* An MLIR dictionary ("{uplo = 76 : ui8, mode = \"full\"}") as attributes sorted by name, in `arena`.
 * Errors: INVALID_ARGUMENT saying where. */
WEFT_NODISCARD weft_status *rt_ffi_attrs_parse(weft_arena *arena, const char *text, XLA_FFI_Attrs *out_attrs);

#endif
