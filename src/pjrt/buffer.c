/* pjrt/buffer.c -- buffers: copies from and to the host and between devices, views, deletion, external references. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"

weft_status *pjrt_buffer_new(weft_buffer *buffer, PJRT_Memory *memory, const pjrt_layout *layout,
                             PJRT_Buffer **out_buffer)
{
  *out_buffer = malloc(sizeof **out_buffer);
  if (!*out_buffer) {
    weft_buffer_release(buffer);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  **out_buffer = (PJRT_Buffer){buffer, pjrt_memory_of(memory)->device, memory, layout};
  pjrt_client_retain((*out_buffer)->device->client);
  pjrt_handle_born(*out_buffer, PJRT_KIND_BUFFER);
  return NULL;
}

weft_status *pjrt_type_read(PJRT_Buffer_Type type, const int64_t *dims, size_t rank, weft_array_type *out)
{
  hlo_shape shape = {.rank = (int)rank, .dims = dims};

  *out = (weft_array_type){.type = weft_dtype_from_pjrt((int)type), .rank = (int)rank};
  if (out->type == WEFT_INVALID) return WEFT_ERR(INVALID_ARGUMENT, "unknown PJRT_Buffer_Type %d", (int)type);
  if (rank > HLO_MAX_RANK) return WEFT_ERR(INVALID_ARGUMENT, "rank %zu is over %d", rank, HLO_MAX_RANK);
  if (rank && !dims) return WEFT_ERR(INVALID_ARGUMENT, "%zu dimensions, and no sizes", rank);
  shape.type = out->type;
  if (!hlo_shape_is_sane(&shape))
    return WEFT_ERR(INVALID_ARGUMENT, "an array with a negative dimension or over 2^63 bytes");
  if (rank) memcpy(out->dims, dims, rank * sizeof *dims);
  return NULL;
}

weft_status *pjrt_place(PJRT_Device *device, PJRT_Memory *memory, PJRT_Buffer_Type type, const int64_t *dims,
                        size_t rank, const PJRT_Buffer_MemoryLayout *layout, pjrt_placement *out)
{
  out->device = memory ? pjrt_memory_of(memory)->device : device;
  if (!out->device) return WEFT_ERR(INVALID_ARGUMENT, "neither a device nor a memory was given");
  if (!out->device->device)
    return WEFT_ERR(INVALID_ARGUMENT, "device %d belongs to process %d", out->device->description.id,
                    out->device->description.process_index);
  out->memory = memory ? memory : out->device->memories[0];
  WEFT_TRY(pjrt_type_read(type, dims, rank, &out->type));
  return pjrt_layout_read(layout, &out->type, &out->layout);
}

static weft_status *wrap(const pjrt_placement *at, weft_storage *storage, weft_event *defined, PJRT_Buffer **out_buffer)
{
  weft_buffer *buffer;

  WEFT_TRY(weft_buffer_new(at->device->device, &at->type, storage, defined, &buffer));
  return pjrt_buffer_new(buffer, at->memory, at->layout, out_buffer);
}

weft_status *pjrt_buffer_allocate(const pjrt_placement *at, weft_event *defined, PJRT_Buffer **out_buffer,
                                  weft_storage **out_storage)
{
  WEFT_AUTO(weft_storage) storage = NULL;

  WEFT_TRY(
    weft_storage_new_in(at->device->device, pjrt_memory_of(at->memory)->kind, weft_array_bytes(&at->type), &storage));
  WEFT_TRY(wrap(at, storage, defined, out_buffer));
  if (out_storage) *out_storage = WEFT_MOVE(storage);
  return NULL;
}

/* ---- elements from one order to another ---- */

static bool is_dense(const weft_array_type *type, const int64_t *strides)
{
  int64_t want = (int64_t)weft_dtype_bytes(type->type);

  for (int i = type->rank - 1; i >= 0; i--) {
    if (type->dims[i] != 1 && strides[i] != want) return false;
    want *= type->dims[i];
  }
  return true;
}

/* Copies elements by any byte strides on both sides, one row of the last dimension after the other. */
static void copy_strided(const weft_array_type *type, const char *from, const int64_t *from_strides, char *to,
                         const int64_t *to_strides)
{
  int64_t index[HLO_MAX_RANK] = {0}, inner = type->rank ? type->dims[type->rank - 1] : 1;
  int64_t size = (int64_t)weft_dtype_bytes(type->type);
  int64_t from_step = type->rank ? from_strides[type->rank - 1] : size,
          to_step = type->rank ? to_strides[type->rank - 1] : size;

  for (int i = 0; i < type->rank; i++)
    if (type->dims[i] == 0) return;
  for (;;) {
    const char *x = from;
    char *y = to;
    int d;
    for (int i = 0; i < type->rank - 1; i++) {
      x += index[i] * from_strides[i];
      y += index[i] * to_strides[i];
    }
    if (from_step == size && to_step == size) memcpy(y, x, (size_t)(size * inner));
    else
      for (int64_t i = 0; i < inner; i++, x += from_step, y += to_step) memcpy(y, x, (size_t)size);
    for (d = type->rank - 2; d >= 0 && ++index[d] == type->dims[d]; d--) index[d] = 0;
    if (d < 0) return;
  }
}

/* `type` and `strides` with their dimensions reordered from major to minor, as `layout` has them. */
static void reorder(const weft_array_type *type, const int64_t *strides, const pjrt_layout *layout,
                    weft_array_type *out_type, int64_t *out_strides)
{
  *out_type = (weft_array_type){.type = type->type, .rank = type->rank};
  for (int i = 0; i < type->rank; i++) {
    int64_t dim = layout->minor_to_major[type->rank - 1 - i];
    out_type->dims[i] = type->dims[dim];
    out_strides[i] = strides[dim];
  }
}

static bool is_narrow(weft_dtype type) { return weft_dtype_is_integer(type) && weft_dtype_bits(type) < 8; }

static void extend_narrow(weft_dtype type, void *data, int64_t bytes)
{
  int unused = 8 - weft_dtype_bits(type);

  if (!is_narrow(type)) return;
  for (int64_t i = 0; i < bytes; i++) {
    uint8_t *at = (uint8_t *)data + i;
    *at = weft_dtype_is_signed(type) ? (uint8_t)((int8_t)(*at << unused) >> unused)
                                     : (uint8_t)((uint8_t)(*at << unused) >> unused);
  }
}

/* True if host elements by `strides` (NULL: row-major) are already in the order of `at`. */
static bool is_in_order(const pjrt_placement *at, const int64_t *strides)
{
  weft_array_type type;
  int64_t plain[HLO_MAX_RANK], ordered[HLO_MAX_RANK];

  pjrt_layout_strides(pjrt_layout_row_major(at->type.rank), &at->type, plain);
  reorder(&at->type, strides ? strides : plain, at->layout, &type, ordered);
  return is_dense(&type, ordered);
}

/* Copies host elements to host memory in the order of `at`, and extends narrow integers. */
static void fill(const pjrt_placement *at, const void *data, const int64_t *strides, char *to)
{
  int64_t plain[HLO_MAX_RANK], ordered[HLO_MAX_RANK], dense[HLO_MAX_RANK], bytes = weft_array_bytes(&at->type);
  weft_array_type type;

  if (is_in_order(at, strides)) {
    if (bytes) memcpy(to, data, (size_t)bytes);
  } else {
    pjrt_layout_strides(pjrt_layout_row_major(at->type.rank), &at->type, plain);
    reorder(&at->type, strides ? strides : plain, at->layout, &type, ordered);
    pjrt_layout_strides(pjrt_layout_row_major(type.rank), &type, dense);
    copy_strided(&type, data, ordered, to, dense);
  }
  extend_narrow(at->type.type, to, bytes);
}

weft_status *pjrt_fill(const pjrt_placement *at, const void *data, const int64_t *strides, weft_storage *storage)
{
  WEFT_AUTO_STR staging = NULL;
  int64_t bytes = weft_array_bytes(&at->type);
  char *host = weft_storage_host(storage);

  if (!host && !is_narrow(at->type.type) && is_in_order(at, strides))
    return weft_storage_write(storage, 0, data, bytes);
  if (!host) WEFT_TRY_ALLOC(staging = malloc((size_t)bytes + 1));
  fill(at, data, strides, host ? host : staging);
  return host ? NULL : weft_storage_write(storage, 0, staging, bytes);
}

weft_status *pjrt_store(weft_storage *storage, int64_t offset, weft_dtype type, const void *data, int64_t bytes)
{
  WEFT_AUTO_STR extended = NULL;

  if (!is_narrow(type) || bytes == 0) return weft_storage_write(storage, offset, data, bytes);
  WEFT_TRY_ALLOC(extended = malloc((size_t)bytes));
  memcpy(extended, data, (size_t)bytes);
  extend_narrow(type, extended, bytes);
  return weft_storage_write(storage, offset, extended, bytes);
}

/* ---- in from the host ---- */

static void set_event(void *event)
{
  weft_event_set(event, NULL);
  weft_event_release(event);
}

/* Makes a buffer over somebody else's bytes, which do not change if it `stays`. on_free(ctx) is called when nobody uses
 * them any more, and also if this function fails. */
static weft_status *view(const pjrt_placement *at, void *data, bool stays, void (*on_free)(void *ctx), void *ctx,
                         PJRT_Buffer **out_buffer)
{
  WEFT_AUTO(weft_storage) storage = NULL;
  weft_status *st = weft_storage_view(at->device->device, data, weft_array_bytes(&at->type), on_free, ctx, &storage);

  if (st) on_free(ctx);
  WEFT_TRY(st);
  if (stays) weft_storage_keep(storage);
  return wrap(at, storage, NULL, out_buffer);
}

/* A transfer to a device with streams. */
typedef struct sending {
  char *staging;    /* the elements in the order of the device; NULL: they are sent from the client's memory */
  weft_event *done; /* retained; set when the client's memory is not needed any more; NULL with `staging` */
} sending;

static void sent(void *ctx, const weft_status *error)
{
  sending *s = ctx;

  (void)error; /* the buffer has the error */
  if (s->done) weft_event_set(s->done, NULL);
  weft_event_release(s->done);
  free(s->staging);
  free(s);
}

/* Queues the transfer. `done` becomes ready when the client may change or free `data`. */
static weft_status *send_host(const pjrt_placement *at, const void *data, const int64_t *strides, bool stays,
                              weft_event *done, PJRT_Buffer **out_buffer)
{
  bool is_staged = !stays || is_narrow(at->type.type) || !is_in_order(at, strides);
  sending *s = calloc(1, sizeof *s);
  weft_buffer *buffer;
  weft_status *st = NULL;

  WEFT_TRY_ALLOC(s);
  if (is_staged) {
    s->staging = malloc((size_t)weft_array_bytes(&at->type) + 1);
    if (s->staging) fill(at, data, strides, s->staging);
    else st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  } else {
    s->done = weft_event_retain(done);
  }
  if (!st)
    st = weft_buffer_write(at->device->device, pjrt_memory_of(at->memory)->kind, &at->type,
                           is_staged ? s->staging : data, sent, s, &buffer);
  if (st) {
    weft_event_release(s->done);
    free(s->staging);
    free(s);
    return st;
  }
  if (is_staged) weft_event_set(done, NULL);
  return pjrt_buffer_new(buffer, at->memory, at->layout, out_buffer);
}

static weft_status *copy_host(const pjrt_placement *at, const void *data, const int64_t *strides,
                              PJRT_Buffer **out_buffer)
{
  WEFT_AUTO(weft_storage) storage = NULL;

  WEFT_TRY(pjrt_buffer_allocate(at, NULL, out_buffer, &storage));
  weft_status *st = pjrt_fill(at, data, strides, storage);
  if (!st) return NULL;
  pjrt_Buffer_Destroy(&(PJRT_Buffer_Destroy_Args){.buffer = WEFT_MOVE(*out_buffer)});
  return st;
}

static weft_status *from_host(PJRT_Client_BufferFromHostBuffer_Args *args)
{
  pjrt_placement at;
  WEFT_AUTO(weft_event) done = NULL;
  const int64_t *strides = args->num_byte_strides ? args->byte_strides : NULL;
  bool alias, queued, stays;

  WEFT_TRY(pjrt_place(args->device, args->memory, args->type, args->dims, args->num_dims, args->device_layout, &at));
  if (args->num_byte_strides && args->num_byte_strides != args->num_dims)
    return WEFT_ERR(INVALID_ARGUMENT, "%zu byte strides for %zu dimensions", args->num_byte_strides, args->num_dims);
  if (!args->data && weft_array_bytes(&at.type) > 0) return WEFT_ERR(INVALID_ARGUMENT, "no data was given");
  alias = args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy &&
          weft_device_is_host_visible(at.device->device) && (uintptr_t)args->data % BUF_ALIGN == 0 &&
          weft_dtype_bits(at.type.type) >= 8 && weft_array_bytes(&at.type) > 0 && is_in_order(&at, strides);
  queued = weft_device_stream(at.device->device, WEFT_STREAM_IN) && weft_array_bytes(&at.type) > 0;
  stays = args->host_buffer_semantics != PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  WEFT_TRY(weft_event_new(&done));
  if (at.type.type == WEFT_TOKEN) WEFT_TRY(wrap(&at, NULL, NULL, &args->buffer));
  else if (alias) WEFT_TRY(view(&at, (void *)args->data, true, set_event, weft_event_retain(done), &args->buffer));
  else if (queued) WEFT_TRY(send_host(&at, args->data, strides, stays, done, &args->buffer));
  else WEFT_TRY(copy_host(&at, args->data, strides, &args->buffer));
  if (!alias && !queued) weft_event_set(done, NULL);
  return pjrt_event_new(WEFT_MOVE(done), &args->done_with_host_buffer);
}

PJRT_Error *pjrt_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args)
{
  return pjrt_error(from_host(args));
}

PJRT_Error *pjrt_Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args *args)
{
  pjrt_placement at;

  PJRT_TRY(pjrt_place(args->device, args->memory, args->shape_element_type, args->shape_dims, args->shape_num_dims,
                      args->shape_layout, &at));
  return pjrt_error(pjrt_buffer_allocate(&at, NULL, &args->buffer, NULL));
}

PJRT_Error *pjrt_Client_CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args *args)
{
  pjrt_placement at;
  weft_buffer *buffer;

  PJRT_TRY(pjrt_place(NULL, args->memory, args->shape_element_type, args->shape_dims, args->shape_num_dims,
                      args->shape_layout, &at));
  PJRT_TRY(weft_buffer_from_error(at.device->device, &at.type,
                                  pjrt_status_of(args->error_code, args->error_message, args->error_message_size),
                                  &buffer));
  return pjrt_error(pjrt_buffer_new(buffer, at.memory, at.layout, &args->buffer));
}

typedef struct delete_ctx {
  void (*callback)(void *data, void *user_arg);
  void *data, *user_arg;
} delete_ctx;

static void call_delete(void *ctx)
{
  delete_ctx d = *(delete_ctx *)ctx;

  free(ctx);
  if (d.callback) d.callback(d.data, d.user_arg);
}

/* Copies bytes of the same device that somebody else owns into `storage`. */
static weft_status *copy_device(const pjrt_placement *at, const void *from, weft_storage *storage)
{
  int64_t bytes = weft_array_bytes(&at->type);

  if (weft_device_is_host_visible(at->device->device)) return pjrt_store(storage, 0, at->type.type, from, bytes);
  return weft_device_copy(at->device->device, NULL, weft_storage_data(storage), at->device->device, from, bytes);
}

/* Makes a buffer over somebody else's memory. Memory that is not aligned for Weft's kernels is copied and given back
 * at once. */
static weft_status *view_device(PJRT_Client_CreateViewOfDeviceBuffer_Args *args)
{
  pjrt_placement at;
  delete_ctx *ctx;

  WEFT_TRY(pjrt_place(args->device, PJRT_HAS(args, memory) ? args->memory : NULL, args->element_type, args->dims,
                      args->num_dims, args->layout, &at));
  if (!args->device_buffer_ptr && weft_array_bytes(&at.type) > 0)
    return WEFT_ERR(INVALID_ARGUMENT, "no memory was given");
  if ((uintptr_t)args->device_buffer_ptr % BUF_ALIGN != 0) {
    WEFT_AUTO(weft_storage) storage = NULL;
    WEFT_TRY(pjrt_buffer_allocate(&at, NULL, &args->buffer, &storage));
    WEFT_TRY(copy_device(&at, args->device_buffer_ptr, storage));
    if (args->on_delete_callback) args->on_delete_callback(args->device_buffer_ptr, args->on_delete_callback_arg);
    return NULL;
  }
  ctx = malloc(sizeof *ctx);
  WEFT_TRY_ALLOC(ctx);
  *ctx = (delete_ctx){args->on_delete_callback, args->device_buffer_ptr, args->on_delete_callback_arg};
  return view(&at, args->device_buffer_ptr, false, call_delete, ctx, &args->buffer);
}

PJRT_Error *pjrt_Client_CreateViewOfDeviceBuffer(PJRT_Client_CreateViewOfDeviceBuffer_Args *args)
{
  return pjrt_error(view_device(args));
}

/* ---- questions ---- */

PJRT_Error *pjrt_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args)
{
  if (!args->buffer) return NULL;
  pjrt_handle_gone(args->buffer);
  weft_buffer_release(args->buffer->buffer);
  pjrt_client_release(args->buffer->device->client);
  free(args->buffer);
  return NULL;
}

PJRT_Error *pjrt_Buffer_ElementType(PJRT_Buffer_ElementType_Args *args)
{
  args->type = (PJRT_Buffer_Type)weft_dtype_to_pjrt(weft_buffer_type(args->buffer->buffer)->type);
  return NULL;
}

PJRT_Error *pjrt_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args *args)
{
  const weft_array_type *type = weft_buffer_type(args->buffer->buffer);

  args->dims = type->dims;
  args->num_dims = (size_t)type->rank;
  return NULL;
}

PJRT_Error *pjrt_Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args *args)
{
  const weft_array_type *type = weft_buffer_type(args->buffer->buffer);

  args->unpadded_dims = type->dims;
  args->num_dims = (size_t)type->rank;
  return NULL;
}

PJRT_Error *pjrt_Buffer_DynamicDimensionIndices(PJRT_Buffer_DynamicDimensionIndices_Args *args)
{
  args->dynamic_dim_indices = NULL;
  args->num_dynamic_dims = 0;
  return NULL;
}

PJRT_Error *pjrt_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args *args)
{
  const pjrt_layout *layout = args->buffer->layout;

  args->layout =
    (PJRT_Buffer_MemoryLayout){.struct_size = sizeof args->layout, .type = PJRT_Buffer_MemoryLayout_Type_Tiled};
  args->layout.tiled = (PJRT_Buffer_MemoryLayout_Tiled){.struct_size = sizeof args->layout.tiled,
                                                        .minor_to_major = layout->minor_to_major,
                                                        .minor_to_major_size = (size_t)layout->rank};
  return NULL;
}

PJRT_Error *pjrt_Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args *args)
{
  args->on_device_size_in_bytes = (size_t)weft_array_bytes(weft_buffer_type(args->buffer->buffer));
  return NULL;
}

PJRT_Error *pjrt_Buffer_Device(PJRT_Buffer_Device_Args *args)
{
  args->device = args->buffer->device;
  return NULL;
}

PJRT_Error *pjrt_Buffer_Memory(PJRT_Buffer_Memory_Args *args)
{
  args->memory = args->buffer->memory;
  return NULL;
}

PJRT_Error *pjrt_Buffer_Delete(PJRT_Buffer_Delete_Args *args)
{
  weft_buffer_delete(args->buffer->buffer);
  return NULL;
}

PJRT_Error *pjrt_Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args *args)
{
  args->is_deleted = weft_buffer_is_deleted(args->buffer->buffer);
  return NULL;
}

PJRT_Error *pjrt_Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args *args)
{
  args->is_on_cpu = weft_device_is_host_visible(weft_buffer_device(args->buffer->buffer));
  return NULL;
}

PJRT_Error *pjrt_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args)
{
  weft_event *event;

  if (weft_buffer_is_deleted(args->buffer->buffer)) {
    PJRT_TRY(weft_event_new_ready(WEFT_ERR(INVALID_ARGUMENT, "Buffer has been deleted or donated."), &event));
    return pjrt_error(pjrt_event_new(event, &args->event));
  }
  return pjrt_error(pjrt_event_new(weft_event_retain(weft_buffer_defined(args->buffer->buffer)), &args->event));
}

static weft_status *data_of(PJRT_Buffer *buffer, void **out_data)
{
  WEFT_AUTO(weft_storage) storage = NULL;
  weft_event *defined = weft_buffer_defined(buffer->buffer);

  *out_data = NULL;
  if (defined)
    WEFT_TRY(weft_event_await(defined, WEFT_NO_DEADLINE)); /* the run that defines it has its own deadlines */
  WEFT_TRY(weft_buffer_storage(buffer->buffer, &storage));
  *out_data = storage ? weft_storage_data(storage) : NULL;
  if (storage) weft_storage_expose(storage);
  return NULL;
}

PJRT_Error *pjrt_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args *args)
{
  void *data;

  PJRT_TRY(data_of(args->buffer, &data));
  args->buffer_pointer = (uintptr_t)data;
  return NULL;
}

PJRT_Error *pjrt_Buffer_OpaqueDeviceMemoryDataPointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args *args)
{
  return pjrt_error(data_of(args->buffer, &args->device_memory_ptr));
}

PJRT_Error *pjrt_Buffer_IncreaseExternalReferenceCount(PJRT_Buffer_IncreaseExternalReferenceCount_Args *args)
{
  weft_event *defined = weft_buffer_defined(args->buffer->buffer);
  void *data;

  /* A buffer still being computed has no bytes to pin yet; the run that defines it has deadlines of its own. */
  if (defined) PJRT_TRY(weft_event_await(defined, WEFT_NO_DEADLINE));
  return pjrt_error(weft_buffer_pin(args->buffer->buffer, &data));
}

PJRT_Error *pjrt_Buffer_DecreaseExternalReferenceCount(PJRT_Buffer_DecreaseExternalReferenceCount_Args *args)
{
  return pjrt_error(weft_buffer_unpin(args->buffer->buffer));
}

/* ---- out to the host ---- */

/* A copy that waits for its source. */
typedef struct host_copy {
  weft_buffer *buffer; /* retained; NULL where the runtime does the copy */
  weft_event *done;    /* retained */
  /* the whole buffer, if the runtime copies it and the elements get another order afterwards; else NULL */
  char *staging;
  char *to;
  int64_t offset, bytes;
  bool as_it_lies;          /* bytes [offset, +bytes) of the storage; else elements by the strides: */
  weft_array_type type;     /* dimensions in the order in which they are copied */
  int64_t from_strides[HLO_MAX_RANK], to_strides[HLO_MAX_RANK];
} host_copy;

/* Ends the copy.  Takes `st`. */
static void end_copy(host_copy *c, weft_status *st)
{
  weft_event_set(c->done, st);
  weft_event_release(c->done);
  weft_buffer_release(c->buffer);
  free(c->staging);
  free(c);
}

static weft_status *rearrange(const host_copy *c)
{
  WEFT_AUTO(weft_storage) storage = NULL;

  WEFT_TRY(weft_buffer_storage(c->buffer, &storage));
  if (storage && c->bytes > 0)
    copy_strided(&c->type, weft_storage_host(storage), c->from_strides, c->to, c->to_strides);
  return NULL;
}

static void rearrange_when_defined(void *ctx, const weft_status *error)
{
  end_copy(ctx, error ? weft_status_dup(error) : rearrange(ctx));
}

static void received(void *ctx, const weft_status *error)
{
  host_copy *c = ctx;

  if (!error && c->staging) copy_strided(&c->type, c->staging, c->from_strides, c->to, c->to_strides);
  end_copy(c, weft_status_dup(error));
}

/* Starts a copy that the runtime does: of bytes as they lie, or of a whole buffer to host memory first. Takes `c`. */
static weft_status *receive(weft_buffer *buffer, host_copy *c)
{
  int64_t bytes = c->bytes;
  weft_status *st = NULL;

  if (!c->as_it_lies) {
    c->staging = malloc((size_t)bytes + 1);
    if (!c->staging) st = WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  if (!st) st = weft_buffer_read(buffer, c->offset, bytes, c->staging ? c->staging : c->to, received, c);
  if (st) end_copy(c, weft_status_dup(st));
  return st;
}

/* Starts a copy of elements from memory that the host can see. The client may delete or donate the buffer before it is
 * defined.  Takes `c`. */
static weft_status *rearrange_later(weft_buffer *buffer, host_copy *c)
{
  weft_status *st = weft_buffer_alias(buffer, weft_buffer_type(buffer), &c->buffer);

  if (!st) st = weft_event_on_ready(weft_buffer_defined(c->buffer), rearrange_when_defined, c);
  if (st) end_copy(c, weft_status_dup(st));
  return st;
}

/* Starts the copy that `copy` describes, with references of its own. */
static weft_status *start_copy(PJRT_Buffer *buffer, const host_copy *copy, weft_event **out_event)
{
  WEFT_AUTO(weft_event) done = NULL;
  host_copy *c;

  if (weft_buffer_is_deleted(buffer->buffer)) return WEFT_ERR(INVALID_ARGUMENT, "Buffer has been deleted or donated.");
  WEFT_TRY(weft_event_new(&done));
  c = malloc(sizeof *c);
  WEFT_TRY_ALLOC(c);
  *c = *copy;
  c->done = weft_event_retain(done);
  bool rearranges = !c->as_it_lies && weft_device_is_host_visible(weft_buffer_device(buffer->buffer));
  WEFT_TRY(rearranges ? rearrange_later(buffer->buffer, c) : receive(buffer->buffer, c));
  *out_event = WEFT_MOVE(done);
  return NULL;
}

/* Reads the order that the elements get at the destination. Errors: INVALID_ARGUMENT if they need more than `room`
 * bytes. */
static weft_status *read_host_layout(const PJRT_Buffer *buffer, const PJRT_Buffer_MemoryLayout *given, int64_t room,
                                     host_copy *c)
{
  const weft_array_type *type = weft_buffer_type(buffer->buffer);
  const pjrt_layout *order = pjrt_layout_row_major(type->rank);
  int64_t from[HLO_MAX_RANK], to[HLO_MAX_RANK], reach = (int64_t)weft_dtype_bytes(type->type);
  weft_array_type ignored;
  bool by_strides = given && given->type == PJRT_Buffer_MemoryLayout_Type_Strides;

  if (by_strides &&
      (given->strides.num_byte_strides != (size_t)type->rank || (type->rank > 0 && !given->strides.byte_strides)))
    return WEFT_ERR(INVALID_ARGUMENT, "%zu byte strides for an array of rank %d", given->strides.num_byte_strides,
                    type->rank);
  if (given && !by_strides) WEFT_TRY(pjrt_layout_read(given, type, &order));
  pjrt_layout_strides(order, type, to);
  if (by_strides && type->rank > 0) memcpy(to, given->strides.byte_strides, (size_t)type->rank * sizeof *to);
  for (int i = 0; i < type->rank && c->bytes > 0; i++) {
    int64_t span;
    if (to[i] < 0 || __builtin_mul_overflow(to[i], type->dims[i] - 1, &span) ||
        __builtin_add_overflow(reach, span, &reach))
      return WEFT_ERR(INVALID_ARGUMENT, "byte stride %lld of dimension %d", (long long)to[i], i);
  }
  if (c->bytes > 0 && reach > room)
    return WEFT_ERR(INVALID_ARGUMENT, "dst has %lld bytes, the buffer %lld", (long long)room, (long long)reach);
  pjrt_layout_strides(buffer->layout, type, from);
  reorder(type, from, order, &c->type, c->from_strides);
  reorder(type, to, order, &ignored, c->to_strides);
  c->as_it_lies = is_dense(&c->type, c->from_strides) && is_dense(&c->type, c->to_strides);
  return NULL;
}

static weft_status *to_host(PJRT_Buffer_ToHostBuffer_Args *args)
{
  host_copy copy = {.to = args->dst, .bytes = weft_array_bytes(weft_buffer_type(args->src->buffer))};
  weft_event *event;

  if (!args->dst) {
    args->dst_size = (size_t)copy.bytes;
    return NULL;
  }
  WEFT_TRY(read_host_layout(args->src, args->host_layout, (int64_t)WEFT_MIN(args->dst_size, (size_t)INT64_MAX), &copy));
  WEFT_TRY(start_copy(args->src, &copy, &event));
  return pjrt_event_new(event, &args->event);
}

PJRT_Error *pjrt_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args) { return pjrt_error(to_host(args)); }

weft_status *pjrt_check_range(int64_t total, int64_t offset, int64_t size)
{
  if (offset < 0 || size < 0 || offset > total || size > total - offset)
    return WEFT_ERR(INVALID_ARGUMENT, "bytes [%lld, +%lld) of a buffer of %lld bytes", (long long)offset,
                    (long long)size, (long long)total);
  return NULL;
}

weft_status *pjrt_copy_raw(PJRT_Buffer *buffer, void *to, int64_t offset, int64_t bytes, weft_event **out_event)
{
  host_copy copy = {.to = to, .offset = offset, .bytes = bytes, .as_it_lies = true};

  WEFT_TRY(pjrt_check_range(weft_array_bytes(weft_buffer_type(buffer->buffer)), offset, bytes));
  if (!to && bytes > 0) return WEFT_ERR(INVALID_ARGUMENT, "no destination was given");
  return start_copy(buffer, &copy, out_event);
}

PJRT_Error *pjrt_Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args *args)
{
  weft_event *event;

  PJRT_TRY(pjrt_copy_raw(args->buffer, args->dst, args->offset, args->transfer_size, &event));
  return pjrt_error(pjrt_event_new(event, &args->event));
}

/* ---- device to device ---- */

static weft_status *copy_to(PJRT_Buffer *buffer, PJRT_Memory *memory, PJRT_Buffer **out_buffer)
{
  const PJRT_Device *device;
  weft_buffer *copy;

  if (!memory) return WEFT_ERR(INVALID_ARGUMENT, "the destination is of another process, or none was given");
  device = pjrt_memory_of(memory)->device;
  if (weft_buffer_is_deleted(buffer->buffer)) return WEFT_ERR(INVALID_ARGUMENT, "Buffer has been deleted or donated.");
  WEFT_TRY(weft_buffer_copy_to(buffer->buffer, device->device, pjrt_memory_of(memory)->kind, &copy));
  return pjrt_buffer_new(copy, memory, buffer->layout, out_buffer);
}

PJRT_Error *pjrt_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args *args)
{
  return pjrt_error(copy_to(args->buffer, args->dst_device ? args->dst_device->memories[0] : NULL, &args->dst_buffer));
}

PJRT_Error *pjrt_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args *args)
{
  return pjrt_error(copy_to(args->buffer, args->dst_memory, &args->dst_buffer));
}

/* The same bytes as an array of another type with as many bytes. */
PJRT_Error *pjrt_Buffer_Bitcast(PJRT_Buffer_Bitcast_Args *args)
{
  pjrt_placement at;
  weft_buffer *alias;
  int64_t have = weft_array_bytes(weft_buffer_type(args->buffer->buffer));

  PJRT_TRY(
    pjrt_place(NULL, args->buffer->memory, args->element_type, args->dims, args->num_dims, args->device_layout, &at));
  if (weft_array_bytes(&at.type) != have)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "bitcast of %lld bytes to %lld", (long long)have,
                               (long long)weft_array_bytes(&at.type)));
  PJRT_TRY(weft_buffer_alias(args->buffer->buffer, &at.type, &alias));
  return pjrt_error(pjrt_buffer_new(alias, at.memory, at.layout, &args->out_buffer));
}
