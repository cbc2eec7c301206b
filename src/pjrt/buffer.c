/* pjrt/buffer.c -- buffers: in from the host, out to the host, views, copies, deletion, external references. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"

weft_status *pjrt_buffer_new(weft_buffer *buffer, PJRT_Device *device, PJRT_Memory *memory, PJRT_Buffer **out_buffer)
{
  *out_buffer = malloc(sizeof **out_buffer);
  if (!*out_buffer) {
    weft_buffer_release(buffer);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  }
  **out_buffer = (PJRT_Buffer){buffer, device, memory};
  return NULL;
}

/* Where a new buffer goes: `memory` if given, else the default memory of `device`. */
static weft_status *place(PJRT_Device *device, PJRT_Memory *memory, PJRT_Device **out_device, PJRT_Memory **out_memory)
{
  *out_device = memory ? pjrt_memory_of(memory)->device : device;
  if (!*out_device) return WEFT_ERR(INVALID_ARGUMENT, "neither a device nor a memory was given");
  if (!(*out_device)->device)
    return WEFT_ERR(INVALID_ARGUMENT, "device %d belongs to process %d", (*out_device)->description.id,
                    (*out_device)->description.process_index);
  *out_memory = memory ? memory : (*out_device)->memories[0];
  return NULL;
}

static weft_status *read_type(PJRT_Buffer_Type type, const int64_t *dims, size_t rank, weft_array_type *out)
{
  hlo_shape shape = {.rank = (int)rank, .dims = dims};

  *out = (weft_array_type){.type = weft_dtype_from_pjrt((int)type), .rank = (int)rank};
  if (out->type == WEFT_INVALID) return WEFT_ERR(INVALID_ARGUMENT, "unknown PJRT_Buffer_Type %d", (int)type);
  if (rank > HLO_MAX_RANK) return WEFT_ERR(INVALID_ARGUMENT, "rank %zu is over %d", rank, HLO_MAX_RANK);
  shape.type = out->type;
  if (!hlo_shape_is_sane(&shape)) return WEFT_ERR(INVALID_ARGUMENT, "an array with a negative dimension or over 2^63 bytes");
  if (rank) memcpy(out->dims, dims, rank * sizeof *dims);
  return NULL;
}

/* Device layouts other than row-major are not offered; JAX asks for them only where the user does. */
static weft_status *check_layout(const PJRT_Buffer_MemoryLayout *layout, size_t rank)
{
  if (!layout || layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled) return NULL;
  if (layout->tiled.num_tiles) return WEFT_ERR(UNIMPLEMENTED, "tiled device layouts");
  for (size_t i = 0; i < layout->tiled.minor_to_major_size; i++)
    if (layout->tiled.minor_to_major[i] != (int64_t)(rank - 1 - i))
      return WEFT_ERR(UNIMPLEMENTED, "a device layout other than row-major");
  return NULL;
}

static bool is_dense(const weft_array_type *type, const int64_t *strides, size_t count)
{
  int64_t want = (int64_t)weft_dtype_bytes(type->type);

  if (count == 0) return true;
  for (int i = type->rank - 1; i >= 0; i--) {
    if (type->dims[i] != 1 && strides[i] != want) return false;
    want *= type->dims[i];
  }
  return true;
}

/* Rows of the innermost dimension one after the other, by any strides. */
static void copy_strided(const weft_array_type *type, const char *from, const int64_t *strides, char *to)
{
  int64_t index[HLO_MAX_RANK] = {0}, inner = type->rank ? type->dims[type->rank - 1] : 1;
  size_t size = weft_dtype_bytes(type->type);
  int64_t step = type->rank ? strides[type->rank - 1] : 0;

  for (int i = 0; i < type->rank; i++)
    if (type->dims[i] == 0) return;
  for (;;) {
    const char *at = from;
    int d;
    for (int i = 0; i < type->rank - 1; i++) at += index[i] * strides[i];
    if (step == (int64_t)size) {
      memcpy(to, at, size * (size_t)inner);
      to += size * (size_t)inner;
    } else {
      for (int64_t i = 0; i < inner; i++, at += step, to += size) memcpy(to, at, size);
    }
    for (d = type->rank - 2; d >= 0 && ++index[d] == type->dims[d]; d--) index[d] = 0;
    if (d < 0) return;
  }
}

/* Integers of less than a byte come with any upper bits; ours are extended by sign or zero. */
static void extend_narrow(const weft_array_type *type, void *data)
{
  int unused = 8 - weft_dtype_bits(type->type);
  int64_t bytes = weft_array_bytes(type);

  if (!weft_dtype_is_integer(type->type) || unused <= 0) return;
  for (int64_t i = 0; i < bytes; i++) {
    uint8_t *at = (uint8_t *)data + i;
    *at = weft_dtype_is_signed(type->type) ? (uint8_t)((int8_t)(*at << unused) >> unused)
                                           : (uint8_t)((uint8_t)(*at << unused) >> unused);
  }
}

static void set_event(void *event)
{
  weft_event_set(event, NULL);
  weft_event_release(event);
}

/* Aliases the host's bytes: `done` fires when the last holder lets go of them. */
static weft_status *alias_host(PJRT_Device *device, const weft_array_type *type, const void *data, weft_event *done,
                               weft_buffer **out_buffer)
{
  weft_storage *storage;
  weft_status *st = weft_storage_view(device->device, (void *)data, weft_array_bytes(type), set_event,
                                      weft_event_retain(done), &storage);

  if (st) {
    weft_event_release(done);
    return st;
  }
  st = weft_buffer_new(device->device, type, storage, NULL, out_buffer);
  weft_storage_release(storage);
  return st;
}

static weft_status *copy_host(PJRT_Device *device, const weft_array_type *type, const void *data, const int64_t *strides,
                              bool dense, weft_buffer **out_buffer)
{
  weft_storage *storage;
  weft_status *st;

  WEFT_TRY(weft_storage_new(device->device, weft_array_bytes(type), &storage));
  if (dense)
    memcpy(weft_storage_data(storage), data, (size_t)weft_array_bytes(type));
  else
    copy_strided(type, data, strides, weft_storage_data(storage));
  extend_narrow(type, weft_storage_data(storage));
  st = weft_buffer_new(device->device, type, storage, NULL, out_buffer);
  weft_storage_release(storage);
  return st;
}

static weft_status *from_host(PJRT_Client_BufferFromHostBuffer_Args *args)
{
  weft_array_type type;
  PJRT_Device *device;
  PJRT_Memory *memory;
  WEFT_AUTO(weft_event) done = NULL;
  WEFT_AUTO(weft_buffer) buffer = NULL;
  bool dense, alias;

  WEFT_TRY(place(args->device, args->memory, &device, &memory));
  WEFT_TRY(read_type(args->type, args->dims, args->num_dims, &type));
  WEFT_TRY(check_layout(args->device_layout, args->num_dims));
  if (args->num_byte_strides && args->num_byte_strides != args->num_dims)
    return WEFT_ERR(INVALID_ARGUMENT, "%zu byte strides for %zu dimensions", args->num_byte_strides, args->num_dims);
  dense = is_dense(&type, args->byte_strides, args->num_byte_strides);
  alias = dense && args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy &&
          (uintptr_t)args->data % BUF_ALIGN == 0 && weft_dtype_bits(type.type) >= 8 && weft_array_bytes(&type) > 0;
  WEFT_TRY(weft_event_new(&done));
  if (type.type == WEFT_TOKEN) {
    WEFT_TRY(weft_buffer_new(device->device, &type, NULL, NULL, &buffer));
    weft_event_set(done, NULL);
  } else if (alias) {
    WEFT_TRY(alias_host(device, &type, args->data, done, &buffer));
  } else {
    WEFT_TRY(copy_host(device, &type, args->data, args->byte_strides, dense, &buffer));
    weft_event_set(done, NULL);
  }
  WEFT_TRY(pjrt_buffer_new(WEFT_MOVE(buffer), device, memory, &args->buffer));
  return pjrt_event_new(WEFT_MOVE(done), &args->done_with_host_buffer);
}

PJRT_Error *pjrt_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args)
{
  return pjrt_error(from_host(args));
}

PJRT_Error *pjrt_Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args *args)
{
  weft_array_type type;
  PJRT_Device *device;
  PJRT_Memory *memory;
  weft_storage *storage;
  weft_buffer *buffer;
  weft_status *st;

  PJRT_TRY(place(args->device, args->memory, &device, &memory));
  PJRT_TRY(read_type(args->shape_element_type, args->shape_dims, args->shape_num_dims, &type));
  PJRT_TRY(check_layout(args->shape_layout, args->shape_num_dims));
  PJRT_TRY(weft_storage_new(device->device, weft_array_bytes(&type), &storage));
  st = weft_buffer_new(device->device, &type, storage, NULL, &buffer);
  weft_storage_release(storage);
  PJRT_TRY(st);
  return pjrt_error(pjrt_buffer_new(buffer, device, memory, &args->buffer));
}

PJRT_Error *pjrt_Client_CreateErrorBuffer(PJRT_Client_CreateErrorBuffer_Args *args)
{
  weft_array_type type;
  PJRT_Device *device;
  PJRT_Memory *memory;
  weft_buffer *buffer;

  PJRT_TRY(place(NULL, args->memory, &device, &memory));
  PJRT_TRY(read_type(args->shape_element_type, args->shape_dims, args->shape_num_dims, &type));
  PJRT_TRY(weft_buffer_from_error(device->device, &type,
                                  weft_status_new((weft_code)args->error_code, __FILE__, __LINE__, "%.*s",
                                                  (int)args->error_message_size, args->error_message),
                                  &buffer));
  return pjrt_error(pjrt_buffer_new(buffer, device, memory, &args->buffer));
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

/* Memory of somebody else; where it is not aligned for our kernels it is copied and given back at once. */
static weft_status *view_device(PJRT_Client_CreateViewOfDeviceBuffer_Args *args)
{
  weft_array_type type;
  PJRT_Device *device;
  PJRT_Memory *memory;
  WEFT_AUTO(weft_buffer) buffer = NULL;
  weft_storage *storage;
  delete_ctx *ctx;
  weft_status *st;

  WEFT_TRY(place(args->device, PJRT_HAS(args, memory) ? args->memory : NULL, &device, &memory));
  WEFT_TRY(read_type(args->element_type, args->dims, args->num_dims, &type));
  WEFT_TRY(check_layout(args->layout, args->num_dims));
  if ((uintptr_t)args->device_buffer_ptr % BUF_ALIGN != 0) {
    WEFT_TRY(copy_host(device, &type, args->device_buffer_ptr, NULL, true, &buffer));
    if (args->on_delete_callback) args->on_delete_callback(args->device_buffer_ptr, args->on_delete_callback_arg);
    return pjrt_buffer_new(WEFT_MOVE(buffer), device, memory, &args->buffer);
  }
  ctx = malloc(sizeof *ctx);
  WEFT_TRY_ALLOC(ctx);
  *ctx = (delete_ctx){args->on_delete_callback, args->device_buffer_ptr, args->on_delete_callback_arg};
  st = weft_storage_view(device->device, args->device_buffer_ptr, weft_array_bytes(&type), call_delete, ctx, &storage);
  if (st) {
    free(ctx);
    return st;
  }
  st = weft_buffer_new(device->device, &type, storage, NULL, &buffer);
  weft_storage_release(storage);
  WEFT_TRY(st);
  return pjrt_buffer_new(WEFT_MOVE(buffer), device, memory, &args->buffer);
}

PJRT_Error *pjrt_Client_CreateViewOfDeviceBuffer(PJRT_Client_CreateViewOfDeviceBuffer_Args *args)
{
  return pjrt_error(view_device(args));
}

/* ---- questions ---- */

PJRT_Error *pjrt_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args)
{
  if (!args->buffer) return NULL;
  weft_buffer_release(args->buffer->buffer);
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

/* The minor-to-major order of every rank: descending from its last dimension. */
static const int64_t *descending(int rank)
{
  static const int64_t order[HLO_MAX_RANK] = {31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
                                              15, 14, 13, 12, 11, 10, 9,  8,  7,  6,  5,  4,  3,  2,  1,  0};
  return order + HLO_MAX_RANK - rank;
}

PJRT_Error *pjrt_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args *args)
{
  int rank = weft_buffer_type(args->buffer->buffer)->rank;

  args->layout = (PJRT_Buffer_MemoryLayout){.struct_size = sizeof args->layout,
                                            .type = PJRT_Buffer_MemoryLayout_Type_Tiled};
  args->layout.tiled = (PJRT_Buffer_MemoryLayout_Tiled){.struct_size = sizeof args->layout.tiled,
                                                        .minor_to_major = descending(rank),
                                                        .minor_to_major_size = (size_t)rank};
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
  args->is_on_cpu = true;
  return NULL;
}

PJRT_Error *pjrt_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args)
{
  weft_event *event;

  if (weft_buffer_is_deleted(args->buffer->buffer)) {
    PJRT_TRY(weft_event_new_ready(WEFT_ERR(INVALID_ARGUMENT, "Buffer has been deleted or donated."), &event));
    return pjrt_error(pjrt_event_new(event, &args->event));
  }
  event = weft_buffer_defined(args->buffer->buffer);
  if (event)
    weft_event_retain(event);
  else
    PJRT_TRY(weft_event_new_ready(NULL, &event));
  return pjrt_error(pjrt_event_new(event, &args->event));
}

static weft_status *data_of(PJRT_Buffer *buffer, void **out_data)
{
  WEFT_AUTO(weft_storage) storage = NULL;
  weft_event *defined = weft_buffer_defined(buffer->buffer);

  *out_data = NULL;
  if (defined) WEFT_TRY(weft_event_await(defined, WEFT_NO_DEADLINE)); /* the run that defines it has its own deadlines */
  WEFT_TRY(weft_buffer_storage(buffer->buffer, &storage));
  *out_data = storage ? weft_storage_data(storage) : NULL;
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
  weft_buffer *buffer; /* retained */
  weft_event *done;    /* retained */
  char *to;
  int64_t offset, bytes;
  int order[HLO_MAX_RANK]; /* dimensions from major to minor in the destination */
  bool row_major;
} host_copy;

static weft_status *do_copy(const host_copy *c)
{
  WEFT_AUTO(weft_storage) storage = NULL;
  const weft_array_type *type = weft_buffer_type(c->buffer);
  weft_array_type out = *type;
  int64_t strides[HLO_MAX_RANK], transposed[HLO_MAX_RANK], stride = (int64_t)weft_dtype_bytes(type->type);

  WEFT_TRY(weft_buffer_storage(c->buffer, &storage));
  if (c->bytes == 0 || !storage) return NULL;
  if (c->row_major) {
    memcpy(c->to, (const char *)weft_storage_data(storage) + c->offset, (size_t)c->bytes);
    return NULL;
  }
  for (int i = type->rank - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= type->dims[i];
  }
  for (int i = 0; i < type->rank; i++) {
    out.dims[i] = type->dims[c->order[i]];
    transposed[i] = strides[c->order[i]];
  }
  copy_strided(&out, weft_storage_data(storage), transposed, c->to);
  return NULL;
}

static void copy_when_defined(void *ctx, const weft_status *error)
{
  host_copy *c = ctx;

  weft_event_set(c->done, error ? weft_status_dup(error) : do_copy(c));
  weft_event_release(c->done);
  weft_buffer_release(c->buffer);
  free(c);
}

/* Takes `copy`'s fields but its references, which it makes. */
static weft_status *start_copy(PJRT_Buffer *buffer, const host_copy *copy, PJRT_Event **out_event)
{
  WEFT_AUTO(weft_event) done = NULL;
  weft_event *defined = weft_buffer_defined(buffer->buffer);
  host_copy *c;
  weft_status *st = NULL;

  if (weft_buffer_is_deleted(buffer->buffer)) return WEFT_ERR(INVALID_ARGUMENT, "Buffer has been deleted or donated.");
  WEFT_TRY(weft_event_new(&done));
  c = malloc(sizeof *c);
  WEFT_TRY_ALLOC(c);
  *c = *copy;
  c->buffer = weft_buffer_retain(buffer->buffer);
  c->done = weft_event_retain(done);
  if (defined)
    st = weft_event_on_ready(defined, copy_when_defined, c);
  else
    copy_when_defined(c, NULL);
  if (st) copy_when_defined(c, st);
  weft_status_free(st);
  return pjrt_event_new(WEFT_MOVE(done), out_event);
}

static weft_status *read_host_layout(const PJRT_Buffer_MemoryLayout *layout, const weft_array_type *type, host_copy *c)
{
  c->row_major = true;
  for (int i = 0; i < type->rank; i++) c->order[i] = i;
  if (!layout) return NULL;
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    int64_t want = (int64_t)weft_dtype_bytes(type->type);
    for (int i = type->rank - 1; i >= 0; i--) {
      if (type->dims[i] > 1 && layout->strides.byte_strides[i] != want)
        return WEFT_ERR(UNIMPLEMENTED, "a host layout by strides that is not row-major");
      want *= type->dims[i];
    }
    return NULL;
  }
  if (layout->tiled.num_tiles) return WEFT_ERR(UNIMPLEMENTED, "a tiled host layout");
  if (layout->tiled.minor_to_major_size != (size_t)type->rank)
    return WEFT_ERR(INVALID_ARGUMENT, "a host layout of rank %zu for an array of rank %d",
                    layout->tiled.minor_to_major_size, type->rank);
  for (int i = 0; i < type->rank; i++) {
    int64_t dim = layout->tiled.minor_to_major[type->rank - 1 - i];
    if (dim < 0 || dim >= type->rank) return WEFT_ERR(INVALID_ARGUMENT, "dimension %lld in a host layout", (long long)dim);
    c->order[i] = (int)dim;
    c->row_major &= dim == i;
  }
  return NULL;
}

PJRT_Error *pjrt_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args)
{
  const weft_array_type *type = weft_buffer_type(args->src->buffer);
  host_copy copy = {.to = args->dst, .bytes = weft_array_bytes(type)};

  if (!args->dst) {
    args->dst_size = (size_t)copy.bytes;
    return NULL;
  }
  if (args->dst_size < (size_t)copy.bytes)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "dst has %zu bytes, the buffer %lld", args->dst_size,
                               (long long)copy.bytes));
  PJRT_TRY(read_host_layout(args->host_layout, type, &copy));
  return pjrt_error(start_copy(args->src, &copy, &args->event));
}

static weft_status *check_range(PJRT_Buffer *buffer, int64_t offset, int64_t size)
{
  int64_t bytes = weft_array_bytes(weft_buffer_type(buffer->buffer));

  if (offset < 0 || size < 0 || offset > bytes || size > bytes - offset)
    return WEFT_ERR(INVALID_ARGUMENT, "bytes [%lld, +%lld) of a buffer of %lld bytes", (long long)offset, (long long)size,
                    (long long)bytes);
  return NULL;
}

PJRT_Error *pjrt_Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args *args)
{
  host_copy copy = {.to = args->dst, .offset = args->offset, .bytes = args->transfer_size, .row_major = true};

  PJRT_TRY(check_range(args->buffer, args->offset, args->transfer_size));
  return pjrt_error(start_copy(args->buffer, &copy, &args->event));
}

/* ---- device to device ---- */

static weft_status *copy_to(PJRT_Buffer *buffer, PJRT_Device *device, PJRT_Memory *memory, PJRT_Buffer **out_buffer)
{
  weft_buffer *copy;

  WEFT_TRY(place(device, memory, &device, &memory));
  if (weft_buffer_is_deleted(buffer->buffer)) return WEFT_ERR(INVALID_ARGUMENT, "Buffer has been deleted or donated.");
  WEFT_TRY(weft_buffer_copy_to_device(buffer->buffer, device->device, &copy));
  return pjrt_buffer_new(copy, device, memory, out_buffer);
}

PJRT_Error *pjrt_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args *args)
{
  return pjrt_error(copy_to(args->buffer, args->dst_device, NULL, &args->dst_buffer));
}

PJRT_Error *pjrt_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args *args)
{
  return pjrt_error(copy_to(args->buffer, NULL, args->dst_memory, &args->dst_buffer));
}

/* The same bytes under another type of the same size. */
PJRT_Error *pjrt_Buffer_Bitcast(PJRT_Buffer_Bitcast_Args *args)
{
  weft_array_type type;
  WEFT_AUTO(weft_storage) storage = NULL;
  weft_buffer *buffer;
  int64_t have = weft_array_bytes(weft_buffer_type(args->buffer->buffer));

  PJRT_TRY(read_type(args->element_type, args->dims, args->num_dims, &type));
  PJRT_TRY(check_layout(args->device_layout, args->num_dims));
  if (weft_array_bytes(&type) != have)
    return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "bitcast of %lld bytes to %lld", (long long)have,
                               (long long)weft_array_bytes(&type)));
  PJRT_TRY(weft_buffer_storage(args->buffer->buffer, &storage));
  PJRT_TRY(weft_buffer_new(args->buffer->device->device, &type, storage, weft_buffer_defined(args->buffer->buffer), &buffer));
  return pjrt_error(pjrt_buffer_new(buffer, args->buffer->device, args->buffer->memory, &args->out_buffer));
}
