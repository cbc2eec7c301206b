/* pjrt/transfer.c -- buffers that get their bytes later: piecewise transfers from the host, aliases, donations that
 * wait for something else, and copies to a destination that is named later. */
#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "pjrt/internal.h"

/* ---- piecewise host-to-device transfers ---- */

/* A buffer that has not got all its bytes yet.  Its event fires when the last piece has been copied and no other is
 * being copied. */
typedef struct slot {
  pjrt_placement at;
  PJRT_Buffer *buffer;   /* owned until it is retrieved */
  weft_storage *storage; /* owned */
  weft_event *defined;   /* owned */
  int copying;           /* pieces being copied; guarded by the manager's lock */
  weft_status *error;    /* the first error of a piece; guarded likewise; owned */
  bool closed;           /* the last piece has come, or an error */
} slot;

struct PJRT_AsyncHostToDeviceTransferManager {
  PJRT_Device *device;
  weft_mutex mu;
  int count;
  slot slots[];
};

static void manager_free(PJRT_AsyncHostToDeviceTransferManager *m)
{
  for (int i = 0; i < m->count; i++) {
    slot *s = &m->slots[i];
    /* nobody can complete the buffer any more: without an error its users would wait for ever */
    if (s->defined && !s->closed)
      weft_event_set(
        s->defined,
        WEFT_ERR(CANCELLED, "the transfer manager was destroyed before the transfer to buffer %d ended", i));
    if (s->buffer)
      pjrt_Buffer_Destroy(
        &(PJRT_Buffer_Destroy_Args){.struct_size = sizeof(PJRT_Buffer_Destroy_Args), .buffer = s->buffer});
    weft_storage_release(s->storage);
    weft_event_release(s->defined);
    weft_status_free(s->error);
  }
  weft_mutex_fini(&m->mu);
  pjrt_client_release(m->device->client);
  free(m);
}

static weft_status *manager_new(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args)
{
  PJRT_AsyncHostToDeviceTransferManager *m;
  const char *spec = (const char *)args->shape_specs;
  size_t stride = args->num_shape_specs ? WEFT_ALIGN_UP(args->shape_specs[0].struct_size, (size_t)8) : 0;
  weft_status *st = NULL;

  if (args->num_shape_specs > 1 << 20) return WEFT_ERR(INVALID_ARGUMENT, "%zu shapes", args->num_shape_specs);
  if (args->num_device_layouts && args->num_device_layouts != args->num_shape_specs)
    return WEFT_ERR(INVALID_ARGUMENT, "%zu layouts for %zu shapes", args->num_device_layouts, args->num_shape_specs);
  if (!args->memory) return WEFT_ERR(INVALID_ARGUMENT, "no memory was given");
  WEFT_TRY_ALLOC(m = calloc(1, sizeof *m + args->num_shape_specs * sizeof *m->slots));
  weft_mutex_init(&m->mu);
  m->device = pjrt_memory_of(args->memory)->device;
  pjrt_client_retain(m->device->client);
  for (size_t i = 0; i < args->num_shape_specs && !st; i++, spec += stride) {
    const PJRT_ShapeSpec *shape = (const PJRT_ShapeSpec *)spec;
    slot *s = &m->slots[m->count++];
    st = pjrt_place(NULL, args->memory, shape->element_type, shape->dims, shape->num_dims,
                    args->num_device_layouts ? args->device_layouts[i] : NULL, &s->at);
    if (!st) st = weft_event_new(&s->defined);
    if (!st) st = pjrt_buffer_allocate(&s->at, s->defined, &s->buffer, &s->storage);
  }
  if (st) {
    manager_free(m);
    return st;
  }
  pjrt_handle_born(m, PJRT_KIND_MANAGER);
  args->transfer_manager = m;
  return NULL;
}

PJRT_Error *pjrt_Client_CreateBuffersForAsyncHostToDevice(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args)
{
  return pjrt_error(manager_new(args));
}

PJRT_Error *pjrt_AsyncHostToDeviceTransferManager_Destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args *args)
{
  pjrt_handle_gone(args->transfer_manager);
  if (args->transfer_manager) manager_free(args->transfer_manager);
  return NULL;
}

static weft_status *slot_of(PJRT_AsyncHostToDeviceTransferManager *m, int index, slot **out)
{
  if (index < 0 || index >= m->count)
    return WEFT_ERR(INVALID_ARGUMENT, "buffer %d of a transfer manager with %d", index, m->count);
  *out = &m->slots[index];
  return NULL;
}

/* Begins to copy a piece, which end_piece must end. Errors: FAILED_PRECONDITION after the last piece. */
static weft_status *begin_piece(PJRT_AsyncHostToDeviceTransferManager *m, slot *s, bool is_last)
{
  bool closed;

  weft_mutex_lock(&m->mu);
  closed = s->closed;
  if (!closed) {
    s->copying++;
    s->closed = is_last;
  }
  weft_mutex_unlock(&m->mu);
  return closed ? WEFT_ERR(FAILED_PRECONDITION, "buffer %d has had its last transfer", (int)(s - m->slots)) : NULL;
}

/* Ends a piece. `st`, taken: the piece could not be copied, and the first such error becomes the buffer's. */
static weft_status *end_piece(PJRT_AsyncHostToDeviceTransferManager *m, slot *s, weft_status *st,
                              PJRT_Event **out_event)
{
  weft_status *error = NULL;
  weft_event *done;
  bool complete;

  weft_mutex_lock(&m->mu);
  if (s->error) weft_status_free(st);
  else s->error = st;
  complete = --s->copying == 0 && s->closed;
  if (complete) error = WEFT_MOVE(s->error);
  weft_mutex_unlock(&m->mu);
  if (complete) weft_event_set(s->defined, error);
  WEFT_TRY(weft_event_new_ready(NULL, &done));
  return pjrt_event_new(done, out_event);
}

static weft_status *transfer_data(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args)
{
  slot *s;

  WEFT_TRY(slot_of(args->transfer_manager, args->buffer_index, &s));
  WEFT_TRY(pjrt_check_range(weft_storage_bytes(s->storage), args->offset, args->transfer_size));
  if (!args->data && args->transfer_size) return WEFT_ERR(INVALID_ARGUMENT, "no data was given");
  WEFT_TRY(begin_piece(args->transfer_manager, s, args->is_last_transfer));
  weft_status *st = pjrt_store(s->storage, args->offset, s->at.type.type, args->data, args->transfer_size);
  return end_piece(args->transfer_manager, s, st, &args->done_with_h2d_transfer);
}

PJRT_Error *pjrt_AsyncHostToDeviceTransferManager_TransferData(
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args)
{
  return pjrt_error(transfer_data(args));
}

/* Transfers the whole value at once. */
static weft_status *transfer_literal(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args *args)
{
  slot *s;
  pjrt_placement from;
  int64_t strides[HLO_MAX_RANK];

  WEFT_TRY(slot_of(args->transfer_manager, args->buffer_index, &s));
  WEFT_TRY(pjrt_place(NULL, s->at.memory, args->shape_element_type, args->shape_dims, args->shape_num_dims,
                      args->shape_layout, &from));
  if (from.type.type != s->at.type.type || from.type.rank != s->at.type.rank ||
      memcmp(from.type.dims, s->at.type.dims, (size_t)from.type.rank * sizeof *from.type.dims) != 0)
    return WEFT_ERR(INVALID_ARGUMENT, "the literal's shape is not that of buffer %d", args->buffer_index);
  if (!args->data && weft_array_bytes(&from.type)) return WEFT_ERR(INVALID_ARGUMENT, "no data was given");
  WEFT_TRY(begin_piece(args->transfer_manager, s, true));
  pjrt_layout_strides(from.layout, &from.type, strides);
  weft_status *st = pjrt_fill(&s->at, args->data, strides, s->storage);
  return end_piece(args->transfer_manager, s, st, &args->done_with_h2d_transfer);
}

PJRT_Error *pjrt_AsyncHostToDeviceTransferManager_TransferLiteral(
  PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args *args)
{
  return pjrt_error(transfer_literal(args));
}

PJRT_Error *pjrt_AsyncHostToDeviceTransferManager_RetrieveBuffer(
  PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args *args)
{
  slot *s;

  PJRT_TRY(slot_of(args->transfer_manager, args->buffer_index, &s));
  weft_mutex_lock(&args->transfer_manager->mu);
  args->buffer_out = WEFT_MOVE(s->buffer);
  weft_mutex_unlock(&args->transfer_manager->mu);
  if (!args->buffer_out)
    return pjrt_error(WEFT_ERR(FAILED_PRECONDITION, "buffer %d has been retrieved already", args->buffer_index));
  return NULL;
}

PJRT_Error *pjrt_AsyncHostToDeviceTransferManager_Device(PJRT_AsyncHostToDeviceTransferManager_Device_Args *args)
{
  args->device_out = args->transfer_manager->device;
  return NULL;
}

PJRT_Error *pjrt_AsyncHostToDeviceTransferManager_BufferCount(
  PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args *args)
{
  args->buffer_count = (size_t)args->transfer_manager->count;
  return NULL;
}

PJRT_Error *pjrt_AsyncHostToDeviceTransferManager_BufferSize(
  PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args *args)
{
  slot *s;

  PJRT_TRY(slot_of(args->transfer_manager, args->buffer_index, &s));
  args->buffer_size = (size_t)weft_storage_bytes(s->storage);
  return NULL;
}

PJRT_Error *pjrt_AsyncHostToDeviceTransferManager_SetBufferError(
  PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args *args)
{
  slot *s;
  PJRT_Event *done;

  PJRT_TRY(slot_of(args->transfer_manager, args->buffer_index, &s));
  PJRT_TRY(begin_piece(args->transfer_manager, s, true));
  PJRT_TRY(end_piece(args->transfer_manager, s,
                     pjrt_status_of(args->error_code, args->error_message, args->error_message_size), &done));
  return pjrt_Event_Destroy(&(PJRT_Event_Destroy_Args){.struct_size = sizeof(PJRT_Event_Destroy_Args), .event = done});
}

/* Names for profilers of transfer engines; copies within the host need none. */
PJRT_Error *pjrt_AsyncHostToDeviceTransferManager_AddMetadata(
  PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args *args)
{
  (void)args;
  return NULL;
}

/* ---- aliases: a buffer whose value another one will be ---- */

struct PJRT_FulfillAliasBufferCallback {
  weft_buffer *promise; /* retained */
};

PJRT_Error *pjrt_Client_CreateAliasBuffer(PJRT_Client_CreateAliasBuffer_Args *args)
{
  pjrt_placement at;
  WEFT_AUTO(weft_buffer) promise = NULL;
  PJRT_FulfillAliasBufferCallback *callback;

  PJRT_TRY(pjrt_place(NULL, args->memory, args->shape_element_type, args->shape_dims, args->shape_num_dims,
                      args->shape_layout, &at));
  PJRT_TRY(weft_buffer_promise(at.device->device, &at.type, &promise));
  callback = malloc(sizeof *callback);
  if (!callback) return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  callback->promise = weft_buffer_retain(promise);
  args->fulfill_alias_buffer_cb = callback;
  return pjrt_error(pjrt_buffer_new(WEFT_MOVE(promise), at.memory, at.layout, &args->alias_buffer));
}

/* The callback has been called, whatever the outcome, and is not called again. */
PJRT_Error *pjrt_Client_FulfillAliasBuffer(PJRT_Client_FulfillAliasBuffer_Args *args)
{
  PJRT_FulfillAliasBufferCallback *callback = args->fulfill_alias_buffer_cb;
  WEFT_AUTO(weft_buffer) promise = NULL;
  weft_status *st = NULL;

  if (!callback) return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "no fulfil callback was given"));
  promise = callback->promise;
  free(callback);
  if (args->status_code != PJRT_Error_Code_OK) {
    weft_buffer_fail(promise, pjrt_status_of(args->status_code, args->error_message, args->error_message_size));
    return NULL;
  }
  st = args->buffer ? weft_buffer_fulfil(promise, args->buffer->buffer, false)
                    : WEFT_ERR(INVALID_ARGUMENT, "neither a buffer nor an error was given");
  if (st) weft_buffer_fail(promise, weft_status_dup(st));
  return pjrt_error(st);
}

/* ---- donation with a control dependency: the bytes move to a buffer that also waits for a client's event ---- */

typedef struct dependency {
  weft_buffer *held, *promise; /* retained: `held` has the bytes meanwhile, `promise` gets them */
} dependency;

static void dependency_ready(PJRT_Buffer_DonateWithControlDependency_Callback_Args *args)
{
  dependency *d = args->callback_data;
  weft_status *st = args->error_code != PJRT_Error_Code_OK
                      ? pjrt_status_of(args->error_code, args->error_message, args->error_message_size)
                      : weft_buffer_fulfil(d->promise, d->held, true);

  if (st) weft_buffer_fail(d->promise, st);
  weft_buffer_release(d->held);
  weft_buffer_release(d->promise);
  free(d);
}

static weft_status *donate(PJRT_Buffer_DonateWithControlDependency_Args *args)
{
  const PJRT_Buffer *from = args->buffer;
  const weft_array_type *type = weft_buffer_type(from->buffer);
  WEFT_AUTO(weft_buffer) held = NULL;
  WEFT_AUTO(weft_buffer) promise = NULL;
  dependency *d;

  WEFT_TRY(weft_buffer_promise(from->device->device, type, &held));
  WEFT_TRY(weft_buffer_promise(from->device->device, type, &promise));
  WEFT_TRY(pjrt_buffer_new(weft_buffer_retain(promise), from->memory, from->layout, &args->out_buffer));
  d = malloc(sizeof *d);
  weft_status *st = d ? weft_buffer_fulfil(held, from->buffer, true) : WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory");
  if (st) {
    free(d);
    pjrt_Buffer_Destroy(
      &(PJRT_Buffer_Destroy_Args){.struct_size = sizeof(PJRT_Buffer_Destroy_Args), .buffer = args->out_buffer});
    args->out_buffer = NULL;
    return st;
  }
  *d = (dependency){WEFT_MOVE(held), WEFT_MOVE(promise)};
  args->callback_data = d;
  args->dependency_ready_callback = dependency_ready;
  return NULL;
}

PJRT_Error *pjrt_Buffer_DonateWithControlDependency(PJRT_Buffer_DonateWithControlDependency_Args *args)
{
  return pjrt_error(donate(args));
}

/* ---- a raw copy whose destination comes later ---- */

typedef struct late_copy {
  PJRT_Buffer source; /* with an alias of the buffer: the client may delete its own */
  weft_event *done;   /* retained */
  int64_t offset, bytes;
} late_copy;

static void end_late_copy(void *done, const weft_status *error)
{
  weft_event_set(done, weft_status_dup(error));
  weft_event_release(done);
}

static void destination_ready(PJRT_Buffer_CopyRawToHostFuture_Callback_Args *args)
{
  late_copy *c = args->callback_data;
  WEFT_AUTO(weft_event) copied = NULL;
  weft_status *st = args->error_code != PJRT_Error_Code_OK
                      ? pjrt_status_of(args->error_code, args->error_message, args->error_message_size)
                      : pjrt_copy_raw(&c->source, args->dst, c->offset, c->bytes, &copied);

  if (!st) st = weft_event_on_ready(copied, end_late_copy, c->done);
  if (st) {
    end_late_copy(c->done, st);
    weft_status_free(st);
  }
  weft_buffer_release(c->source.buffer);
  free(c);
}

PJRT_Error *pjrt_Buffer_CopyRawToHostFuture(PJRT_Buffer_CopyRawToHostFuture_Args *args)
{
  WEFT_AUTO(weft_event) done = NULL;
  WEFT_AUTO(weft_buffer) source = NULL;
  late_copy *c;

  PJRT_TRY(
    pjrt_check_range(weft_array_bytes(weft_buffer_type(args->buffer->buffer)), args->offset, args->transfer_size));
  PJRT_TRY(weft_buffer_alias(args->buffer->buffer, weft_buffer_type(args->buffer->buffer), &source));
  PJRT_TRY(weft_event_new(&done));
  PJRT_TRY(pjrt_event_new(weft_event_retain(done), &args->event));
  c = malloc(sizeof *c);
  if (!c) {
    pjrt_Event_Destroy(
      &(PJRT_Event_Destroy_Args){.struct_size = sizeof(PJRT_Event_Destroy_Args), .event = args->event});
    return pjrt_error(WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory"));
  }
  *c =
    (late_copy){.source = *args->buffer, .done = WEFT_MOVE(done), .offset = args->offset, .bytes = args->transfer_size};
  c->source.buffer = WEFT_MOVE(source);
  args->callback_data = c;
  args->future_ready_callback = destination_ready;
  return NULL;
}

/* ---- memory for transfer engines: the host's needs no mapping, so it is mapped already ---- */

PJRT_Error *pjrt_Client_DmaMap(PJRT_Client_DmaMap_Args *args)
{
  if (!args->data || args->size == 0) return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "no memory was given to map"));
  return NULL;
}

PJRT_Error *pjrt_Client_DmaUnmap(PJRT_Client_DmaUnmap_Args *args)
{
  if (!args->data) return pjrt_error(WEFT_ERR(INVALID_ARGUMENT, "no memory was given to unmap"));
  return NULL;
}
