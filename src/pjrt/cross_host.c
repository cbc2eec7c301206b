/* pjrt/cross_host.c -- the CrossHostTransfers extension: buffers from a device of one process to a device of
 * another.
 *
 * A transfer's key is the tag of one send and one receive, so transfers of a pair need no order.  A receive starts at
 * once, into memory that is allocated before the call returns.  Both have the time limit of collectives.
 *
 * Device memory goes by the platform's communicators where they can move it (cross_device.c).  This file moves buffers
 * by the host's communicators: a send starts when its buffer is defined, and memory that has no address on the host
 * goes through a block of host memory. */
#include <config.h>

#include <stdlib.h>

#include "pjrt/cross_link.h"
#include "pjrt/extensions.h"

/* ---- one transfer ---- */

typedef struct transfer {
  pjrt_link *link;       /* a reference */
  weft_buffer *buffer;   /* a send: being read; NULL: a receive */
  weft_storage *storage; /* retained: it holds the bytes */
  void *staged;          /* a copy of the bytes on the host, if the storage has no address there; else NULL */
  weft_event *done, *operation;
  weft_status *failure;  /* of reading the buffer of a send */
  weft_dtype type;
  int64_t elems;
  uint64_t key;
  int waiting;           /* atomic: events to come, of the link and of a send's buffer */
  rt_job job;            /* of a receive: copies what was staged */
  weft_event_waiter link_waiter, buffer_waiter, operation_waiter;
} transfer;

/* Takes `st`. */
static void finish(transfer *t, weft_status *st)
{
  weft_event_set(t->done, st);
  weft_event_release(t->done);
  weft_event_release(t->operation);
  weft_status_free(t->failure);
  free(t->staged);
  pjrt_link_give_back(t->link, t->buffer, t->storage);
  free(t);
}

static void copy_staged(rt_job *job)
{
  transfer *t = WEFT_CONTAINER_OF(job, transfer, job);
  finish(t, weft_storage_write(t->storage, 0, t->staged, weft_storage_bytes(t->storage)));
}

static void end_transfer(void *ctx, const weft_status *error)
{
  transfer *t = ctx;

  if (!error && t->staged && !t->buffer)
    rt_pool_offer(weft_platform_pool(t->link->platform), &t->job, 1); /* the copy waits for the device */
  else finish(t, weft_status_dup(error));
}

static void *host_address(const weft_storage *storage)
{
  return weft_device_host_address(weft_storage_device(storage), weft_storage_data(storage));
}

/* The peer waits for a buffer that will not come. */
static weft_status *give_up(weft_comm *comm, weft_status *st)
{
  if (st) weft_comm_abort(comm, weft_status_dup(st));
  return st;
}

/* The bytes of a send's buffer, which is defined. */
static weft_status *take_bytes(transfer *t)
{
  const weft_status *error = weft_event_error(weft_buffer_defined(t->buffer));
  weft_stream *stream;
  uint64_t point;

  if (error) return weft_status_dup(error);
  t->storage = weft_buffer_source(t->buffer, &stream, &point);
  return NULL;
}

/* Starts the transfer: its events are ready. */
static weft_status *start(transfer *t)
{
  const weft_status *unlinked = weft_event_error(t->link->ready);
  weft_comm *comm = unlinked ? NULL : pjrt_link_host(t->link, t->buffer ? 0 : 1);
  weft_coll_call call = {.site = {.executable = "cross-host transfer"}};
  weft_coll_op op = {.kind = t->buffer ? WEFT_SEND : WEFT_RECV, .dtype = t->type, .count = (size_t)t->elems,
                     .peer = t->buffer ? 1 : 0, .source = -1, .target = -1, .tag = t->key};
  void *at = t->staged;

  if (unlinked) return weft_status_dup(unlinked);
  if (t->failure) return give_up(comm, WEFT_MOVE(t->failure));
  if (t->buffer && !at) WEFT_TRY(give_up(comm, take_bytes(t)));
  if (!at && t->storage) at = host_address(t->storage);
  *(t->buffer ? (void **)&op.send : &op.recv) = at;
  return weft_coll_post(comm, &op, &call, &t->operation);
}

static void one_is_there(void *ctx, const weft_status *error)
{
  transfer *t = ctx;
  weft_status *st;

  (void)error; /* start looks at it */
  /* acq_rel: the last event sees what came with the first */
  if (__atomic_sub_fetch(&t->waiting, 1, __ATOMIC_ACQ_REL) != 0) return;
  st = start(t);
  if (!st) {
    weft_event_on_ready_slot(t->operation, &t->operation_waiter, end_transfer, t);
    return;
  }
  finish(t, st);
}

/* The buffer of a send is staged, or is an error. */
static void staged(void *ctx, const weft_status *error)
{
  ((transfer *)ctx)->failure = weft_status_dup(error);
  one_is_there(ctx, NULL);
}

static weft_status *stage(transfer *t, const weft_device *device, int64_t bytes)
{
  if (weft_device_is_host_visible(device) || weft_device_operations(device)->host_address || bytes == 0) return NULL;
  t->staged = malloc((size_t)bytes);
  return t->staged
           ? NULL
           : WEFT_ERR(RESOURCE_EXHAUSTED, "no memory on the host for a transfer of %lld bytes", (long long)bytes);
}

/* Takes `link` and `buffer` (NULL: a receive), also on failure. `done` is retained; finish sets it. */
static weft_status *transfer_new(pjrt_link *link, weft_buffer *buffer, const weft_array_type *type, int64_t key,
                                 weft_event *done, transfer **out)
{
  transfer *t = calloc(1, sizeof *t);

  if (!t) {
    pjrt_link_give_back(link, buffer, NULL);
    return WEFT_ERR(RESOURCE_EXHAUSTED, "out of memory for a transfer");
  }
  t->link = link;
  t->buffer = buffer;
  t->done = weft_event_retain(done);
  t->type = type->type;
  t->job.run = copy_staged;
  t->elems = weft_array_bytes(type) / (int64_t)weft_dtype_bytes(type->type);
  t->key = (uint64_t)key;
  *out = t;
  return NULL;
}

static weft_status *peer_of(PJRT_Client *client, int id, const PJRT_Device **out)
{
  *out = pjrt_client_device(client, id);
  return *out ? NULL : WEFT_ERR(INVALID_ARGUMENT, "there is no device %d to transfer with", id);
}

/* Sends by the host's communicator.  Takes `link`; `buffer` is being read, and its reference is taken. */
static weft_status *host_send(pjrt_link *link, weft_buffer *buffer, int64_t key, weft_event *done)
{
  int64_t bytes = weft_array_bytes(weft_buffer_type(buffer));
  transfer *t;

  WEFT_TRY(transfer_new(link, buffer, weft_buffer_type(buffer), key, done, &t));
  t->waiting = 2;
  weft_status *st = stage(t, weft_buffer_device(buffer), bytes);
  if (!st && t->staged) st = weft_buffer_read(buffer, 0, bytes, t->staged, staged, t);
  if (st) {
    finish(t, weft_status_dup(st));
    return st;
  }
  bool reads = t->staged != NULL; /* `t` may be gone after its last event */
  weft_event_on_ready_slot(link->ready, &t->link_waiter, one_is_there, t);
  if (!reads) weft_event_on_ready_slot(weft_buffer_defined(buffer), &t->buffer_waiter, one_is_there, t);
  return NULL;
}

static weft_status *host_receive(pjrt_link *link, const weft_array_type *type, weft_storage *storage, int64_t key,
                                 weft_event *done)
{
  transfer *t;

  WEFT_TRY(transfer_new(link, NULL, type, key, done, &t));
  t->storage = weft_storage_retain(storage);
  t->waiting = 1;
  weft_status *st = stage(t, weft_storage_device(storage), weft_array_bytes(type));
  if (st) {
    finish(t, weft_status_dup(st));
    return st;
  }
  weft_event_on_ready_slot(link->ready, &t->link_waiter, one_is_there, t);
  return NULL;
}

/* The buffer that is sent, retained: its bytes are in the device's own memory if the link carries that. */
static weft_status *source_of(const pjrt_link *link, PJRT_Buffer *buffer, weft_buffer **out)
{
  weft_device *device = weft_buffer_device(buffer->buffer);

  if (link->on_device && pjrt_memory_of(buffer->memory)->kind != 0)
    return weft_buffer_copy_to(buffer->buffer, device, 0, out);
  *out = weft_buffer_retain(buffer->buffer);
  return NULL;
}

static weft_status *send_one(PJRT_Client *client, PJRT_Buffer *buffer, int to, int64_t key, PJRT_Event **out_event)
{
  WEFT_AUTO(pjrt_link) link = NULL;
  WEFT_AUTO(weft_event) done = NULL;
  WEFT_AUTO(weft_buffer) source = NULL;
  const PJRT_Device *peer;

  WEFT_TRY(pjrt_check_handle(buffer, PJRT_KIND_BUFFER, "a buffer to send"));
  if (weft_buffer_is_deleted(buffer->buffer)) return WEFT_ERR(INVALID_ARGUMENT, "Buffer has been deleted or donated.");
  WEFT_TRY(peer_of(client, to, &peer));
  WEFT_TRY(pjrt_link_get(client, buffer->device->description.id, to, 0, &link));
  WEFT_TRY(weft_event_new(&done));
  WEFT_TRY(source_of(link, buffer, &source));
  WEFT_TRY(weft_buffer_begin_read(source));
  bool on_device = link->on_device;
  WEFT_TRY((on_device ? pjrt_device_send : host_send)(WEFT_MOVE(link), WEFT_MOVE(source), key, done));
  return pjrt_event_new(WEFT_MOVE(done), out_event);
}

static weft_status *receive_one(const pjrt_placement *at, int from, int64_t key, PJRT_Buffer **out_buffer)
{
  PJRT_Client *client = at->device->client;
  WEFT_AUTO(pjrt_link) link = NULL;
  WEFT_AUTO(weft_event) done = NULL;
  WEFT_AUTO(weft_storage) storage = NULL;
  const PJRT_Device *peer;

  WEFT_TRY(peer_of(client, from, &peer));
  WEFT_TRY(pjrt_link_get(client, from, at->device->description.id, 1, &link));
  WEFT_TRY(weft_event_new(&done));
  WEFT_TRY(pjrt_buffer_allocate(at, done, out_buffer, &storage));
  bool on_device = link->on_device;
  weft_status *st = (on_device ? pjrt_device_receive : host_receive)(WEFT_MOVE(link), &at->type, storage, key, done);
  if (!st) return NULL;
  weft_event_set(done, weft_status_dup(st));
  pjrt_Buffer_Destroy(
    &(PJRT_Buffer_Destroy_Args){.struct_size = sizeof(PJRT_Buffer_Destroy_Args), .buffer = WEFT_MOVE(*out_buffer)});
  return st;
}

/* ---- the extension ---- */

static PJRT_Error *send_buffers(PJRT_Transfers_CrossHostSendBuffers_Args *args)
{
  PJRT_TRY(pjrt_check_handle(args->client, PJRT_KIND_CLIENT, "client"));
  for (size_t i = 0; i < args->num_buffers; i++) {
    weft_status *st = send_one(args->client, args->buffers[i], args->dst_global_device_ids[i], args->transfer_keys[i],
                               &args->send_events[i]);
    if (!st) continue;
    while (i > 0) /* the sends before this one are under way, but their events are not handed out */
      pjrt_Event_Destroy(
        &(PJRT_Event_Destroy_Args){.struct_size = sizeof(PJRT_Event_Destroy_Args), .event = args->send_events[--i]});
    return pjrt_error(st);
  }
  return NULL;
}

static PJRT_Error *receive_buffers(PJRT_Transfers_CrossHostReceiveBuffers_Args *args)
{
  PJRT_TRY(pjrt_check_handle(args->device, PJRT_KIND_DEVICE, "device"));
  for (size_t i = 0; i < args->num_shapes; i++) {
    pjrt_placement at;
    weft_status *st = pjrt_place(args->device, NULL, args->element_types[i], args->dims[i], args->shape_num_dims[i],
                                 args->layouts ? args->layouts[i] : NULL, &at);
    if (!st) st = receive_one(&at, args->src_global_device_ids[i], args->transfer_keys[i], &args->buffers[i]);
    if (!st) continue;
    while (i > 0)
      pjrt_Buffer_Destroy(
        &(PJRT_Buffer_Destroy_Args){.struct_size = sizeof(PJRT_Buffer_Destroy_Args), .buffer = args->buffers[--i]});
    return pjrt_error(st);
  }
  return NULL;
}

static PJRT_Error *make_receive_buffers(PJRT_Transfers_MakeCrossHostReceiveBuffers_Args *args)
{
  (void)args;
  return pjrt_error(WEFT_ERR(UNIMPLEMENTED, "cross-host transfers by descriptors; Weft has those by keys"));
}

static void copy_to_remote_device(PJRT_Transfers_CopyToRemoteDevice_Args *args)
{
  if (args->on_done.on_done)
    args->on_done.on_done(
      pjrt_error(WEFT_ERR(UNIMPLEMENTED, "cross-host transfers by descriptors; Weft has those by keys")), false,
      args->on_done.user_arg);
  if (args->descriptor_destructor)
    args->descriptor_destructor(args->serialized_descriptor, args->serialized_descriptor_size);
  pjrt_Event_Destroy(&(PJRT_Event_Destroy_Args){.struct_size = sizeof(PJRT_Event_Destroy_Args), .event = args->event});
}

PJRT_CrossHostTransfers_Extension pjrt_cross_host_extension = {
    .base = {.struct_size = sizeof(PJRT_CrossHostTransfers_Extension), .type = PJRT_Extension_Type_CrossHostTransfers},
    .make_cross_host_receive_buffers = make_receive_buffers,
    .copy_to_remote_device = copy_to_remote_device,
    .cross_host_receive_buffers = receive_buffers,
    .cross_host_send_buffers = send_buffers};
